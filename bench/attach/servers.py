"""Servers that others wrote, under load: each answers a question that has one right answer."""

import http.client
import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
import time

POSTGRES = next(iter(sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"))), None)
PATIENCE_S = 30


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def connected(port):
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(word) for word in f.read().split()]


def end_process(process):
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Redis:
    def __init__(self, folder):
        self.port = free_port()
        self.process = subprocess.Popen(["redis-server", "--port", str(self.port), "--save", "", "--dir", str(folder)],
                                        stdout=subprocess.DEVNULL)
        self.pid = self.process.pid
        self.link = connected(self.port)
        self.file = self.link.makefile("rb")
        self.load = subprocess.Popen(["redis-benchmark", "-p", str(self.port), "-n", "1000000000", "-c", "10", "-t", "set,get",
                                      "-d", "200", "-r", "10000", "-q"], stdout=subprocess.DEVNULL)
        self.n = 0

    @staticmethod
    def why_not():
        return None if shutil.which("redis-server") else "redis-server is not installed"

    def __call__(self):
        self.n += 1
        self.link.sendall(f"SET own:{self.n} {'v' * 300}{self.n}\r\nGET own:{self.n}\r\nSTRLEN own:{self.n}\r\n".encode())
        said = [self.file.readline() for _ in range(4)]
        return said[0] == b"+OK\r\n" and said[2].strip().decode() == "v" * 300 + str(self.n)

    def end(self):
        self.load.kill()
        self.load.wait()
        self.link.close()
        end_process(self.process)


class Nginx:
    """Its one worker, while another client asks for the same pages all the time."""

    PAGES = {f"/{n}.txt": (f"page {n}\n" * (n * 400)).encode() for n in (1, 7, 40)}

    def __init__(self, folder):
        self.port, root = free_port(), pathlib.Path(tempfile.mkdtemp(prefix="nginx-", dir=folder))
        for name, text in self.PAGES.items():
            (root / name[1:]).write_bytes(text)
        os.chmod(folder, 0o755)
        os.chmod(root, 0o755)
        paths = "".join(f"{kind}_temp_path {root}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (root / "conf").write_text(
            f"worker_processes 1; daemon off; pid {root}/pid; error_log {root}/log; user nobody nogroup;"
            f"events {{ worker_connections 64; }} http {{ access_log off; gzip on; gzip_types text/plain; {paths}"
            f"server {{ listen 127.0.0.1:{self.port}; root {root}; }} }}")
        self.process = subprocess.Popen(["/usr/sbin/nginx", "-c", str(root / "conf"), "-e", str(root / "log")])
        connected(self.port).close()
        self.pid = children_of(self.process.pid)[0]
        self.stopping = False
        self.load = threading.Thread(target=self.work)
        self.load.start()

    @staticmethod
    def why_not():
        return None if os.path.exists("/usr/sbin/nginx") else "nginx is not installed"

    def pages_right(self, link):
        for name, text in self.PAGES.items():
            link.request("GET", name, headers={"Accept-Encoding": "identity"})
            if link.getresponse().read() != text:
                return False
        return True

    def work(self):
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        while not self.stopping:
            link.request("GET", "/40.txt", headers={"Accept-Encoding": "gzip"})
            link.getresponse().read()
        link.close()

    def __call__(self):
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            return self.pages_right(link)
        finally:
            link.close()

    def end(self):
        self.stopping = True
        self.load.join()
        end_process(self.process)


class Postgres:
    """One backend of a cluster of its own, while pgbench keeps others busy."""

    QUESTION = ("SELECT md5(string_agg(md5(i::text) || repeat('x', i % 50), ',' ORDER BY i DESC)), count(DISTINCT i % 977) "
                "FROM generate_series(1, 20000) i;")

    def __init__(self, folder):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="postgres-", dir=folder))
        os.chmod(folder, 0o755)
        shutil.chown(self.folder, "postgres")
        tools, data = POSTGRES.parent, self.folder / "data"
        self.prefix = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        environment = {**os.environ, "PGHOST": str(self.folder), "PGDATABASE": "postgres", "PGUSER": "postgres", "HOME": str(self.folder)}
        self.run([tools / "initdb", "-D", data, "--no-sync", "-A", "trust"], environment)
        self.process = subprocess.Popen([*self.prefix, tools / "postgres", "-D", data, "-c", "listen_addresses=", "-c",
                                         f"unix_socket_directories={self.folder}", "-c", "fsync=off"], stderr=subprocess.DEVNULL)
        end = time.monotonic() + PATIENCE_S
        while subprocess.run([tools / "pg_isready", "-q"], env=environment, check=False).returncode != 0:
            if time.monotonic() > end:
                raise RuntimeError("postgres did not start")
            time.sleep(0.05)
        self.run([tools / "pgbench", "-i", "-q", "-s", "1"], environment)
        self.load = subprocess.Popen([*self.prefix, tools / "pgbench", "-n", "-c", "1", "-T", "100000"], env=environment,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.client = subprocess.Popen([*self.prefix, "psql", "-qtA"], env=environment, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, bufsize=0)
        self.pid = int(self.ask("SELECT pg_backend_pid();"))
        self.first = self.ask(self.QUESTION)

    @staticmethod
    def why_not():
        if not POSTGRES or not shutil.which("psql"):
            return "postgres is not installed"
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            return "there is no user postgres"
        return None

    def run(self, words, environment):
        done = subprocess.run([*self.prefix, *map(str, words)], env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)

    def ask(self, question):
        self.client.stdin.write(question.encode() + b"\n")
        return self.client.stdout.readline()

    def __call__(self):
        return self.ask(self.QUESTION) == self.first and len(self.first) > 32

    def end(self):
        self.load.kill()
        self.load.wait()
        self.client.stdin.close()
        self.client.wait()
        self.client.stdout.close()
        end_process(self.process)
