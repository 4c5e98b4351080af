"""Servers under a steady load do not leak, and nobody says so.

Each is asked the same few questions over and over by as many clients as it takes, from before memoir leaks begins to watch until
it has ended. It watches for a few seconds; with SOAK=1 for as long as it usually does; and until each has answered a few hundred
questions more, where the machine is slow: garbage is collected after so many, however long they take.
"""

import itertools
import shutil
import socket
import subprocess
import threading
import time
import unittest

from cli_support import ENVIRONMENT
from test_track_verdicts import SOAK, TRACKER, WATCH_S, WatchTest, memoir_leaks

PATIENCE_S = 60
CLIENTS = 2  # for each server
WARM = 3000 if SOAK else 300  # questions before it is watched: buffers and caches have their size then
WATCHED = 3  # times as many while it is watched
PAUSE_S = 0.002  # between two questions of a client: the load is steady, not the machine's limit
KEYS = 200

NODE = """
const http = require('http'), seen = new Map();
http.createServer((request, response) => {
  const body = Buffer.alloc(2000, request.url);
  seen.set(request.url, body);
  response.end(JSON.stringify({size: body.length, kept: seen.size}));
}).listen(process.argv[1]);
"""
NGINX = """
daemon off; pid nginx.pid; error_log error.log; worker_processes 1; events {{}}
http {{ access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
gzip on; gzip_min_length 1; gzip_types text/plain;
server {{ listen unix:{folder}/socket; root {folder}; default_type text/plain; }} }}
"""


def http_question(i):
    return b"GET /page%d HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n" % (i % KEYS), b" 200 OK"


def redis_question(i):
    """One of each kind on keys that come again: what is set is set over, what is added is taken away."""
    key = b"key%d" % (i % KEYS)
    lines = (b"SET %s %s" % (key, b"v" * (i * 37 % 300)), b"GET " + key, b"LPUSH list%s %d" % (key, i), b"RPOP list" + key,
             b"HSET hash%s a%d 1" % (key, i % 7), b"DEL " + key)
    return b"\r\n".join(lines) + b"\r\nQUIT\r\n", b"+OK"


def listens(path):
    """A socket is there before anybody listens."""
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.connect(str(path))
        except OSError:
            return False
    return True


class Load:
    """Clients that ask until they are told to stop. `wrong` is the first answer that was none."""

    def __init__(self, path, question):
        self.path, self.question = path, question
        self.answered, self.wrong, self.begun = 0, None, 0
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self.ask, args=(i,), daemon=True) for i in range(CLIENTS)]

    def ask(self, first):
        for i in itertools.count(first, CLIENTS):
            if self.stopped.wait(PAUSE_S):
                return
            text, wanted = self.question(i)
            try:
                with socket.socket(socket.AF_UNIX) as s:
                    s.settimeout(PATIENCE_S)
                    s.connect(str(self.path))
                    s.sendall(text)
                    answer = b"".join(iter(lambda: s.recv(65536), b""))
            except OSError as error:
                answer = str(error).encode()
            if wanted not in answer:
                self.wrong = self.wrong or answer
                return
            self.answered += 1

    def begin(self):
        self.begun = time.monotonic()
        for thread in self.threads:
            thread.start()

    def wait_warm(self):
        """How long that took, from its beginning on."""
        end = self.begun + 10 * PATIENCE_S
        while self.answered < WARM and not self.wrong and time.monotonic() < end:
            time.sleep(0.01)
        return time.monotonic() - self.begun

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()  # waits for its last answer


class Steady(WatchTest):
    def servers(self):
        """name: (command, question), each with a folder of its own where it makes its socket."""
        folders = {name: self.dir / name for name in ("redis-server", "nginx", "node")}
        for folder in folders.values():
            folder.mkdir()
            folder.chmod(0o755)
        redis, nginx, node = folders.values()
        for i in range(KEYS):
            (nginx / f"page{i}").write_text(f"{i} and more\n" * i, encoding="utf-8")
        (nginx / "nginx.conf").write_text(NGINX.format(folder=nginx), encoding="utf-8")
        found = {
            "redis-server": (["redis-server", "--port", "0", "--unixsocket", redis / "socket", "--save", "", "--dir", redis],
                             redis_question),
            "nginx": (["nginx", "-p", f"{nginx}/", "-c", "nginx.conf", "-e", "error.log"], http_question),
            "node": (["node", "-e", NODE, node / "socket"], http_question),
        }
        return {name: server for name, server in found.items() if shutil.which(name)}

    def begin(self, name, command):
        environment = ENVIRONMENT | {"LD_PRELOAD": str(TRACKER), "MEMOIR_DIR": str(self.dir), "MEMOIR_STACKS": "sampled"}
        server = subprocess.Popen(["sh", "-c", 'export MEMOIR_KEEP=$$; exec "$@"', "sh", *map(str, command)], env=environment,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(self.stop, server)
        end = time.monotonic() + PATIENCE_S
        while not listens(self.dir / name / "socket") and server.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        self.assertIsNone(server.poll(), f"{name} ended")
        return server

    @staticmethod
    def stop(server):
        """In order, so that it ends its workers, too."""
        server.terminate()
        try:
            server.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()

    def test_no_server_is_said_to_leak(self):
        self.dir.chmod(0o1777)
        servers = self.servers()
        if not servers:
            self.skipTest("there are no servers")
        started, loads = {}, {}
        for name, (command, question) in servers.items():
            started[name] = self.begin(name, command)
            loads[name] = Load(self.dir / name / "socket", question)
            self.addCleanup(loads[name].stop)
            loads[name].begin()
        warm_s = max([load.wait_warm() for load in loads.values()])
        before = {name: load.answered for name, load in loads.items()}
        told = memoir_leaks(self.dir, max(WATCH_S, round(WATCHED * warm_s)))
        after = {name: load.answered for name, load in loads.items()}
        for name, load in loads.items():
            with self.subTest(name):
                load.stop()
                self.assertIsNone(load.wrong)
                self.assertGreater(after[name], before[name])  # it was asked all the while
                self.assertTrue(list(self.dir.glob(f"*/{started[name].pid}-*.book")), "it has no book")
        leaks = [s for s in told["rows"] if s["verdict"] == "leak"]
        self.assertEqual(leaks, [], f"questions before {before} and after {after}")


if __name__ == "__main__":
    unittest.main()
