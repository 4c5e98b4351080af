"""Programs of every day run unchanged with tracking on, and what is counted is what they asked for.

The independent count is test/leaks/count.c, preloaded in front: it sees every call as the program makes it. SOAK=1 does more of
everything, and what takes longer.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import unittest

from cli_support import BUILD, ENVIRONMENT, MEMOIR, wait_for
from faults_support import HEAP, Book
from memoir.book import BookError
from stage import git_environment

TRACKER = BUILD / "src/track/libmemoir-track.so"
COUNTER = BUILD / "test/leaks/libcount.so"
SOAK = bool(os.environ.get("SOAK"))
SCALE = 20 if SOAK else 1
STACKS = ("off", "sampled", "all")
PATIENCE_S = 600 if SOAK else 150
COMPAT_FORK_CHILD = 2

C_SOURCE = """
#include <stdio.h>
#include <string.h>
struct point { int x, y; };
static int length(struct point p) { return p.x * p.x + p.y * p.y; }
int work(const char *text) { struct point p = {(int)strlen(text), 7}; printf("%s %d", text, length(p)); return p.x; }
""" + "\n".join(f"int f{i}(int a) {{ int s = 0; for (int i = 0; i < a; i++) s += a * i ^ {i}; return s; }}" for i in range(40))

PYTHON = f"""
import json, re
words = [f"word{{i % 997}}" for i in range({3000 * SCALE})]
counts = dict()
for word in words:
    counts[word] = counts.get(word, 0) + 1
print(len(json.dumps(counts)), len(re.findall("d1", " ".join(words))), sum(hash(x) == 0 for x in ()))
"""
PERL = f"""
my %seen; $seen{{"key" . ($_ % 501)}} .= "x" x ($_ % 7) for 1 .. {5000 * SCALE};
print join(",", map {{ length }} @seen{{(sort keys %seen)[0 .. 9]}}), "\\n"; exit 3;
"""
PHP = """
$seen = []; for ($i = 0; $i < 5000; $i++) $seen["key" . ($i % 501)][] = str_repeat("x", $i % 50);
echo count(json_decode(json_encode($seen), true)), " ok";
"""
BASH = f"""
declare -A seen
for ((i = 0; i < {500 * SCALE}; i++)); do seen[key$((i % 97))]+=x; done
echo "${{#seen[@]}} ${{#seen[key5]}}"
(exit 5); echo "$? $(echo child)"
"""
SQL = f"""
create table t(a integer primary key, b text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < {2000 * SCALE}) insert into t select i, 'row ' || i from n;
create index u on t(b); select count(*), max(b) from t where b like 'row 1%';
"""
NODE = "const m = {}; for (let i = 0; i < 20000; i++) m['k' + i % 999] = Buffer.alloc(i % 100); console.log(Object.keys(m).length)"


class ProgramTest(unittest.TestCase):
    library, flag = TRACKER, "--track"

    @classmethod
    def setUpClass(cls):
        if not cls.library.exists():
            raise unittest.SkipTest("this build has no tracker")

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-programs-", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.dir.chmod(0o1777)  # servers change their user
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-programs-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def need(self, *programs):
        for program in programs:
            if not shutil.which(program):
                self.skipTest(f"{program} is not installed")

    def call(self, command, environment=None, **more):
        done = subprocess.run(list(map(str, command)), capture_output=True, cwd=self.folder, check=False,
                              env=ENVIRONMENT | (environment or {}), timeout=PATIENCE_S, **more)
        return done.returncode, done.stdout, done.stderr

    def tracked(self, command, *flags):
        return [MEMOIR, "run", self.flag, "--quiet", "--dir", self.dir, *flags, "--", *command]

    def check(self, command, environment=None, reset=None, count=True, **more):
        """Plain, and with each sort of stacks: the same words and the same end. And the count."""
        def run(*prefix):
            if reset:
                reset()
            return self.call([*prefix, *command], environment, **more)

        plain = run()
        for stacks in STACKS:
            self.assertEqual(run(*self.tracked([], "--stacks", stacks)), plain, stacks)
        if count:
            self.count(command, plain, environment, reset, **more)
        return plain

    def count(self, command, plain, environment, reset, **more):
        out, counts = self.dir / "out.json", self.dir / "counts"
        counts.mkdir(exist_ok=True)
        if reset:
            reset()
        preload = ["env", f"LD_PRELOAD={COUNTER}:{self.library}", f"COUNT_DIR={counts}"]
        self.assertEqual(self.call(self.tracked([*preload, *command], "--json", out), environment, **more), plain)
        document = json.loads(out.read_text(encoding="utf-8"))
        self.assertEqual(document["losses"], 0)
        heap = document["heap"]
        counted = struct.unpack("QQQ", (counts / str(document["pid"])).read_bytes())
        self.assertEqual((heap["allocated_blocks"], heap["allocated"], heap["freed_blocks"]), counted)
        self.assertGreater(counted[0], 20)
        self.assertEqual(sum(site["allocated_blocks"] for site in document["sites"]), heap["allocated_blocks"])
        self.assertEqual(sum(site["bytes"] for site in document["sites"]), heap["bytes"])


class EveryDay(ProgramTest):
    def test_bash(self):
        code, out, _ = self.check(["bash", "-c", BASH])
        self.assertEqual((code, out.split()[-2:]), (0, [b"5", b"child"]))

    def test_perl(self):
        self.need("perl")
        self.assertEqual(self.check(["perl", "-e", PERL], {"PERL_HASH_SEED": "0"})[0], 3)

    def test_python(self):
        self.need("/usr/bin/python3")
        environment = {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}
        self.check(["/usr/bin/python3", "-S", "-c", PYTHON], environment)
        self.assertEqual(self.check(["/usr/bin/python3", "-c", "raise SystemExit(7)"], environment, count=False)[0], 7)

    def test_php(self):
        """Its extensions are loaded with RTLD_DEEPBIND: what they free was counted, too."""
        self.need("php")
        code, out, err = self.check(["php", "-r", PHP], count=False)
        self.assertEqual((code, out, err), (0, b"501 ok", b""))

    def test_sqlite(self):
        self.need("sqlite3")
        self.check(["sqlite3", ":memory:", SQL])
        self.assertEqual(self.check(["sqlite3", ":memory:", "select nonsense"], count=False)[0], 1)

    def test_the_compiler(self):
        self.need("gcc")
        (self.folder / "work.c").write_text(C_SOURCE, encoding="utf-8")
        cc1 = subprocess.run(["gcc", "-print-prog-name=cc1"], capture_output=True, text=True, check=True).stdout.strip()
        self.check([cc1, "-quiet", "-O2", "-o", "-", "work.c"])
        code, _, _ = self.call(["gcc", "-O2", "-c", "-o", "plain.o", "work.c"])
        self.assertEqual(code, 0)
        self.assertEqual(self.call(self.tracked(["gcc", "-O2", "-c", "-o", "tracked.o", "work.c"])), (0, b"", b""))
        self.assertEqual((self.folder / "plain.o").read_bytes(), (self.folder / "tracked.o").read_bytes())
        (self.folder / "wrong.c").write_text("int x = ;\n", encoding="utf-8")
        self.assertEqual(self.check(["gcc", "-c", "wrong.c"], count=False)[0], 1)

    def test_git(self):
        self.need("git")
        environment = git_environment(self.folder)

        def reset():
            shutil.rmtree(self.folder / "work", ignore_errors=True)
            (self.folder / "work").mkdir()
            for i in range(20 * SCALE):
                (self.folder / "work" / f"file{i}").write_text(f"text {i}\n" * i, encoding="utf-8")

        script = "cd work && git init -q -b main . && git add . && git commit -q -m one && git log --stat && git fsck --full"
        self.check(["bash", "-c", script], environment, reset, count=False)
        self.assertEqual(self.check(["git", "-C", "work", "log", "-p"], environment)[0], 0)
        self.assertEqual(self.check(["git", "-C", "work", "show", "nonsense"], environment, count=False)[0], 128)

    def test_node(self):
        self.need("node")
        self.check(["node", "-e", NODE], count=False)  # its threads run to the very end


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Extensions(unittest.TestCase):
    """A C++ extension that is loaded for itself alone, as those of Python are: its operators are in no scope of the tracker's."""

    def test_what_is_not_found_is_looked_for_once(self):
        program = BUILD / "test/malloc/malloc_extension_fixed"
        if not program.exists():
            self.skipTest("built without C++")
        with tempfile.TemporaryDirectory(prefix="memoir-test-") as folder:
            done = subprocess.run(
                [program, "new_and_delete_look_nothing_up"], capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                env={**ENVIRONMENT, "LD_PRELOAD": str(TRACKER), "LD_DEBUG": "symbols", "LD_DEBUG_OUTPUT": f"{folder}/loader",
                     "CASE_EXTENSION": str(BUILD / "test/malloc/libmalloc_extension.so")})
            told = "".join(path.read_text(errors="replace") for path in pathlib.Path(folder).iterdir())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("symbol=malloc;", told)
        # A line for each library that was searched. The program makes and deletes more than 1,000 objects.
        self.assertLess(len(re.findall("symbol=_Z(?:nw|na|dl|da)", told)), 500)


class Servers(ProgramTest):
    """They answer, what is counted is what they asked for while they rest, and they end when they are told."""

    def serve(self, command, ready, **more):
        counts = self.dir / "counts"
        counts.mkdir(mode=0o777)
        counts.chmod(0o1777)
        command = ["env", f"LD_PRELOAD={COUNTER}:{self.library}", f"COUNT_DIR={counts}", *command]
        process = subprocess.Popen(list(map(str, self.tracked(command))), cwd=self.folder, env=ENVIRONMENT,
                                   stderr=subprocess.DEVNULL, start_new_session=True,
                                   **{"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL} | more)
        self.addCleanup(self.end, process)
        if ready:
            wait_for(ready, "an answer of the server", 30)
        return process

    @staticmethod
    def end(process):
        """With all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def same_counts(self, program, processes):
        """As many processes of it, whose books say what was counted in front of them, once they rest."""
        told = {}

        def same():
            told.clear()
            for path in self.dir.glob("*/*.book"):
                with contextlib.suppress(OSError, BookError), Book.open(path) as book:
                    if book.identity.comm == program and book.writer_alive():
                        told[book.identity.pid] = self.figures(book)
            return len(told) == processes and all(a == b for a, b in told.values())

        try:
            wait_for(same, "the same counts", PATIENCE_S)
        except AssertionError as reason:
            raise AssertionError(f"{reason}: {told}") from None
        self.assertGreater(min(counted[0] for counted, _ in told.values()), 20)

    def figures(self, book):
        heaps = {a.record for a in book.accounts() if a.space == HEAP}
        totals = [t for record, t in book.totals().items() if record in heaps]
        losses = book.status().losses
        counted = struct.unpack("QQQ", (self.dir / "counts" / str(book.identity.pid)).read_bytes())
        # A child frees what it inherited, too: the counter in front cannot tell it from its own.
        inherited = book.identity.compat & COMPAT_FORK_CHILD
        names = ("alloc_blocks", "alloc_bytes") if inherited else ("alloc_blocks", "alloc_bytes", "freed_blocks")
        return counted[:len(names)], tuple(sum(getattr(t, name) for t in totals) for name in names) if not losses else losses

    def test_redis(self):
        self.need("redis-server", "redis-cli")
        path = self.folder / "socket"
        client = ["redis-cli", "-s", str(path)]

        def ready():
            return self.call([*client, "ping"])[1] == b"PONG\n"

        server = self.serve(["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--dir", self.folder], ready)
        self.assertEqual(self.call([*client, "eval", "for i=1,1000 do redis.call('set', i, i) end return 7", "0"])[1], b"7\n")
        self.assertEqual(self.call([*client, "get", "500"])[1], b"500\n")
        self.call([*client, "eval", f"for i=1,{1000 * SCALE} do redis.call('append', i % 700, i) end return 7", "0"])
        self.call([*client, "eval", "for i=1,600 do redis.call('del', i) end return 7", "0"])
        self.same_counts("redis-server", 1)
        self.call([*client, "shutdown", "nosave"])
        self.assertEqual(server.wait(PATIENCE_S), 0)

    def test_nginx(self):
        self.need("nginx")
        port = free_port()
        (self.folder / "page").write_text("served\n", encoding="utf-8")
        (self.folder / "nginx.conf").write_text(
            f"daemon off; pid nginx.pid; error_log error.log; worker_processes 1; events {{}}\n"
            f"http {{ access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u;\n"
            f"scgi_temp_path s; server {{ listen 127.0.0.1:{port}; root {self.folder}; }} }}\n", encoding="utf-8")
        self.folder.chmod(0o755)

        def page():
            try:
                with socket.create_connection(("127.0.0.1", port), 5) as s:
                    s.sendall(b"GET /page HTTP/1.0\r\n\r\n")
                    return b"served" in b"".join(iter(lambda: s.recv(4096), b""))
            except OSError:
                return False
        server = self.serve(["nginx", "-p", f"{self.folder}/", "-c", "nginx.conf", "-e", "error.log"], page)
        for _ in range(100 * SCALE):
            self.assertTrue(page())
        self.same_counts("nginx", 2)  # the master and its worker
        server.send_signal(signal.SIGQUIT)
        self.assertEqual(server.wait(PATIENCE_S), 0)

    def test_node_while_it_waits(self):
        self.need("node")
        script = NODE + "; process.stdin.on('end', () => process.exit(4)); process.stdin.resume()"
        server = self.serve(["node", "-e", script], None, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(server.stdout.close)
        self.assertEqual(server.stdout.readline(), b"999\n")
        self.same_counts("node", 1)
        server.stdin.close()
        self.assertEqual(server.wait(PATIENCE_S), 4)


if __name__ == "__main__":
    unittest.main()
