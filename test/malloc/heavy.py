"""Large programs under libmemoir-malloc: they do the same work as without it. Run by script/test-malloc; each needs a package
that script/test does not, and skips without it."""

import contextlib
import glob
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest

from malloc_support import LIBRARY, PATIENCE_S, ProgramTest

# Modules of Python's own tests that allocate in many ways: large containers, buffers, threads, fork, C extensions.
PYTHON_TESTS = ["test_json", "test_list", "test_dict", "test_set", "test_bytes", "test_unicode", "test_deque", "test_heapq", "test_array",
                "test_struct", "test_io", "test_re", "test_decimal", "test_zlib", "test_bz2", "test_lzma", "test_sqlite3", "test_thread",
                "test_threading", "test_queue", "test_fork1", "test_subprocess", "test_ctypes", "test_pickle", "test_gc", "test_weakref"]
NODE = """
const { Worker, isMainThread } = require('worker_threads'), zlib = require('zlib'), crypto = require('crypto');
if (isMainThread) {
  const map = {};
  for (let i = 0; i < 200000; i++) map['k' + i % 9999] = Buffer.alloc(i % 500, i % 251);
  const hash = crypto.createHash('sha256');
  for (const key of Object.keys(map).sort()) hash.update(map[key]);
  console.log(Object.keys(map).length, hash.digest('hex'), zlib.gzipSync(Buffer.alloc(1 << 20, 'ab')).length > 0);
  let left = 4;
  for (let i = 0; i < 4; i++) new Worker(__filename).on('exit', (code) => { if (--left === 0) console.log('workers', code); });
} else {
  const kept = [];
  for (let i = 0; i < 20000; i++) kept[i % 100] = new Float64Array(i % 1000);
}
"""
SQL = """
create table t(a int primary key, b text);
insert into t select i, 'row ' || (i * 7919 % 20011) from generate_series(1, 20000) i;
create index u on t(b); analyze t;
select count(*), max(b), min(b) from t where b like 'row 1%';
select md5(string_agg(b, ',' order by a)) from t;
select a % 7, count(*) from t group by 1 order by 1;
"""
MPI = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    int rank, size;
    enum { N = 100000 };
    double *sent = malloc(N * sizeof(double)), *sum = malloc(N * sizeof(double));
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < N; i++)
            sent[i] = rank + i + round;
        MPI_Allreduce(sent, sum, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        sum = realloc(sum, (N + round * 1000) * sizeof(double));
    }
    if (rank == 0)
        printf("%d ranks, %.1f\\n", size, sum[N - 1]);
    MPI_Finalize();
    free(sent);
    free(sum);
}
"""
GIMP = """(let* ((image (car (gimp-image-new 300 200 RGB))) (layer (car (gimp-layer-new image 300 200 RGB-IMAGE "l" 100 LAYER-MODE-NORMAL))))
(gimp-image-insert-layer image layer 0 0) (gimp-context-set-foreground '(200 30 60)) (gimp-drawable-fill layer FILL-FOREGROUND)
(plug-in-gauss RUN-NONINTERACTIVE image layer 12 12 0) (gimp-image-scale image 150 100)
(file-png-save RUN-NONINTERACTIVE image (car (gimp-image-get-active-layer image)) "out.png" "out.png" 0 9 0 0 0 0 0)
(file-ppm-save RUN-NONINTERACTIVE image (car (gimp-image-get-active-layer image)) "out.ppm" "out.ppm" 1))"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class HeavyTest(ProgramTest):
    def home(self):
        """A home of its own, so that nothing of the user's is touched."""
        home = self.folder / "home"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        return {"HOME": str(home), "XDG_RUNTIME_DIR": str(home), "XDG_CACHE_HOME": str(home), "XDG_CONFIG_HOME": str(home),
                "XDG_DATA_HOME": str(home)}

    def serve(self, command, ready, preload=True, environment=None):
        """A server that is up: `ready` says so. It has ended when the test does."""
        log = open(self.folder / "server.log", "ab")  # pylint: disable=consider-using-with
        self.addCleanup(log.close)
        server = subprocess.Popen(list(map(str, command)), cwd=self.folder, env=self.environment(preload, environment),
                                  stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.addCleanup(self.end, server)
        until = time.monotonic() + PATIENCE_S
        while not ready():
            if server.poll() is not None or time.monotonic() > until:
                self.fail(f"{command[0]} is not up: " + (self.folder / "server.log").read_text(errors="replace")[-3000:])
            time.sleep(0.05)
        return server

    @staticmethod
    def end(server):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()

    def uses_library(self, pid):
        maps = pathlib.Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
        self.assertIn(LIBRARY.name, maps)


class Languages(HeavyTest):
    def test_python_own_tests(self):
        self.need("/usr/bin/python3")
        if not glob.glob("/usr/lib/python3*/test/test_json"):
            self.skipTest("Python's own tests are not installed (libpython3.11-testsuite)")

        def outcome(preload):
            code, out, err = self.call(["/usr/bin/python3", "-m", "test", "-j2", "--timeout=250", *PYTHON_TESTS], preload,
                                       self.home() | {"PYTHONMALLOC": "malloc"})
            text = (out + err).decode(errors="replace")
            failed = re.findall(r"^(?:FAIL|ERROR): (.*)$", text, re.MULTILINE)
            return code, sorted(failed), text

        ours = outcome(True)
        if ours[0] != 0:  # a machine may lack something that a test wants: then the same fail without us
            self.assertEqual(ours[:2], outcome(False)[:2], ours[2][-5000:])

    def test_node(self):
        self.need("node")
        (self.folder / "work.js").write_text(NODE, encoding="utf-8")
        self.assertIn(b"9999 ", self.same(["node", "work.js"]))


class Servers(HeavyTest):
    def test_postgres(self):
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))
        if not found:
            self.skipTest("postgresql is not installed")
        tools = pathlib.Path(found[-1]).parent
        as_user = []
        self.folder.chmod(0o755)
        if os.geteuid() == 0:  # it refuses to run as root
            as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            os.chown(self.folder, 65534, 65534)
        answers = []
        for preload in (False, True):
            data = self.folder / f"data{preload}"
            code, out, err = self.call([*as_user, tools / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync"], preload)
            self.assertEqual(code, 0, out + err)
            socket_path = data / ".s.PGSQL.5432"
            client = [tools / "psql", "-h", data, "-U", "postgres", "-AtX", "-v", "ON_ERROR_STOP=1"]
            server = self.serve([*as_user, tools / "postgres", "-D", data, "-k", data, "-h", "", "-F"],
                                lambda s=socket_path, c=client: s.exists() and self.call([*c, "-c", "select 1"], False)[0] == 0,
                                preload)
            if preload:
                self.uses_library(server.pid)
            answers.append(self.call(client, preload, input=SQL.encode()))
            server.send_signal(signal.SIGINT)
            self.assertEqual(server.wait(PATIENCE_S), 0)
        self.assertEqual(answers[0][0], 0, answers[0])
        self.assertEqual(answers[1], answers[0])

    def test_redis(self):
        self.need("redis-server", "redis-cli")
        script = ("for i=1,30000 do redis.call('set', 'k' .. i % 5000, string.rep('x', i % 300)) end "
                  "for i=1,2000 do redis.call('rpush', 'list', i) redis.call('hset', 'hash', i, i) end "
                  "for i=1,4000 do redis.call('del', 'k' .. i) end return redis.call('dbsize')")
        answers = []
        for preload in (False, True):
            path = self.folder / f"socket{preload}"
            client = ["redis-cli", "-s", path]
            server = self.serve(["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--dir", self.folder,
                                 "--dbfilename", f"dump{preload}", "--enable-debug-command", "yes"],
                                lambda c=client: self.call([*c, "ping"], False)[1] == b"PONG\n", preload)
            if preload:
                self.uses_library(server.pid)
            answers.append([self.call([*client, *words], False) for words in
                            (["eval", script, "0"], ["llen", "list"], ["hlen", "hash"], ["strlen", "k4321"], ["bgsave"],
                             ["debug", "digest"], ["debug", "reload"], ["debug", "digest"])])
            self.call([*client, "shutdown", "nosave"], False)
            self.assertEqual(server.wait(PATIENCE_S), 0)
        self.assertEqual(answers[1], answers[0])

    def test_nginx(self):
        self.need("nginx")
        port = free_port()
        (self.folder / "page").write_text("served\n" * 1000, encoding="utf-8")
        (self.folder / "nginx.conf").write_text(
            f"daemon off; pid nginx.pid; error_log error.log; worker_processes 2; events {{}}\n"
            f"http {{ access_log off; gzip on; gzip_types *; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f;\n"
            f"uwsgi_temp_path u; scgi_temp_path s; server {{ listen 127.0.0.1:{port}; root {self.folder}; }} }}\n",
            encoding="utf-8")
        self.folder.chmod(0o755)

        def page():
            try:
                with socket.create_connection(("127.0.0.1", port), 5) as s:
                    s.sendall(b"GET /page HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n")
                    return b"".join(iter(lambda: s.recv(65536), b"")).partition(b"\r\n\r\n")[2]
            except OSError:
                return b""
        server = self.serve(["nginx", "-p", f"{self.folder}/", "-c", "nginx.conf", "-e", "error.log"], page)
        self.uses_library(server.pid)
        first = page()
        for _ in range(500):
            self.assertEqual(page(), first)
        server.send_signal(signal.SIGQUIT)
        self.assertEqual(server.wait(PATIENCE_S), 0)


class Desktop(HeavyTest):
    def test_chromium(self):
        self.need("chromium")
        (self.folder / "page.html").write_text(
            "<title>t</title><canvas id=c width=200 height=100></canvas><p id=p></p><script>const m = new Map();"
            "for (let i = 0; i < 100000; i++) m.set('k' + i % 5000, new Array(i % 50).fill(i));"
            "document.getElementById('p').textContent = m.size + ' ' + m.get('k77').length;</script>", encoding="utf-8")
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   f"--user-data-dir={self.folder}/profile", "--virtual-time-budget=5000", "--dump-dom",
                   f"file://{self.folder}/page.html"]

        def words(preload):
            code, out, err = self.call(command, preload, self.home())
            self.assertEqual(code, 0, err[-3000:])
            return out
        plain = words(False)
        self.assertIn(b"5000 27</p>", plain)
        self.assertEqual(words(True), plain)

    def test_libreoffice(self):
        self.need("soffice")
        (self.folder / "in.html").write_text(
            "<h1>Title</h1>" + "".join(f"<p>Paragraph {i} with <b>bold</b> words.</p>" for i in range(300)), encoding="utf-8")

        def text(preload):
            (self.folder / "in.txt").unlink(missing_ok=True)
            (self.folder / "in.odt").unlink(missing_ok=True)
            environment = self.home()
            for kind, name in (("odt", "in.html"), ("txt:Text", "in.odt")):
                code, out, err = self.call(["soffice", f"-env:UserInstallation=file://{self.folder}/home/office", "--headless",
                                            "--infilter=HTML (StarWriter)" if name == "in.html" else "--norestore",
                                            "--convert-to", kind, name], preload, environment)
                self.assertEqual(code, 0, out + err)
            return (self.folder / "in.txt").read_bytes()
        plain = text(False)
        self.assertIn(b"Paragraph 299", plain)
        self.assertEqual(text(True), plain)

    def test_gimp(self):
        self.need("gimp-console-2.10")

        def picture(preload):  # as PPM: what is in a PNG tells the time
            for name in ("out.png", "out.ppm"):
                (self.folder / name).unlink(missing_ok=True)
            code, out, err = self.call(["gimp-console-2.10", "-i", "-d", "-f", "-s", "-b", GIMP, "-b", "(gimp-quit 0)"], preload,
                                       self.home(), stdin=subprocess.DEVNULL)
            self.assertEqual(code, 0, out + err)
            self.assertTrue((self.folder / "out.png").exists(), out + err)
            return (self.folder / "out.ppm").read_bytes()
        plain = picture(False)
        self.assertGreater(len(plain), 150 * 100 * 3)
        self.assertTrue(picture(True) == plain, "the pictures differ")


class Cluster(HeavyTest):
    def test_mpi(self):
        self.need("mpicc", "mpirun")
        (self.folder / "work.c").write_text(MPI, encoding="utf-8")
        self.assertEqual(self.call(["mpicc", "-O1", "-o", "work", "work.c"], False)[0], 0)
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl_base_warn_component_unused": "0",
                "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl": "self,vader", "TMPDIR": str(self.folder)}
        command = ["mpirun", "-n", "3", "./work"]
        plain, ours = (self.call(command, preload, self.home() | root) for preload in (False, True))
        self.assertEqual(plain[:2], (0, b"3 ranks, 300057.0\n"), plain)
        self.assertEqual(ours[:2], plain[:2], ours)


if __name__ == "__main__":
    unittest.main()
