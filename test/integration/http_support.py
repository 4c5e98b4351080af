"""Clients of memoird's HTTP server, for tests: whole requests, and bytes as a hostile client sends them."""

import gzip
import http.client
import json
import pathlib
import re
import socket
import subprocess

from daemon_fixture import BUILD, PATIENCE_S, DaemonTest

MEMOIR = BUILD / "src/cli/memoir"


class Answer:
    def __init__(self, response, body):
        self.status = response.status
        self.headers = response.headers
        self.raw = body
        self.body = gzip.decompress(body) if response.headers.get("Content-Encoding") == "gzip" else body

    def json(self):
        return json.loads(self.body)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE_S)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(self.path)


def read_answer(sock):
    """What the server sends until it closes, or one whole answer: (status, head, body). (None, "", b"") for nothing."""
    data = b""
    try:
        while b"\r\n\r\n" not in data:
            piece = sock.recv(65536)
            if not piece:
                return (None, "", b"") if not data else (0, data.decode("latin-1"), b"")
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)^content-length: (\d+)", head, re.MULTILINE)
        while length and len(body) < int(length[1]):
            piece = sock.recv(65536)
            if not piece:
                break
            body += piece
    except ConnectionResetError:
        return None, "", b""
    return int(head.split()[1]), head.decode("latin-1"), body


class HttpTest(DaemonTest):
    """A memoird with HTTP at a free port and at a Unix socket."""

    def setUp(self):
        super().setUp()
        self.native = self.folder / "memoir.sock"
        self.unix = self.folder / "memoir-http.sock"
        self.port = None

    def serve(self, *flags, **options):
        daemon = self.daemon("--socket", self.native, "--http", "127.0.0.1:0", *flags, **options)
        line = daemon.err.wait(r"dashboard and API at")
        self.port = int(re.search(r"://[^:]+:(\d+)", line)[1])
        return daemon

    def memoir(self, *words, **options):
        return subprocess.run([str(MEMOIR), *map(str, words)], capture_output=True, text=True, timeout=PATIENCE_S,
                              check=False, **options)

    def token(self, name="test", *options):
        made = self.memoir("token", "add", name, "--state", self.state, *options)
        self.assertEqual(made.returncode, 0, made.stderr)
        return made.stdout.strip()

    def link(self, *options, prefix=()):
        made = subprocess.run([*prefix, str(MEMOIR), "open", "--print", "--socket", str(self.native), *options],
                              capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(made.returncode, 0, made.stderr)
        return made.stdout.strip()

    def connection(self, unix=False):
        made = UnixConnection(self.unix) if unix else http.client.HTTPConnection("localhost", self.port,
                                                                                   timeout=PATIENCE_S)
        self.addCleanup(made.close)
        return made

    def ask(self, path, method="GET", unix=False, token=None, cookie=None, body=None, **headers):
        """One request on a connection of its own. Underscores in names of headers are dashes."""
        heads = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            heads["Authorization"] = f"Bearer {token}"
        if cookie:
            heads["Cookie"] = cookie
        if body is not None:
            heads.setdefault("Content-Type", "application/json")
        connection = self.connection(unix)
        connection.request(method, path, body=body, headers=heads)
        response = connection.getresponse()
        answer = Answer(response, response.read())
        connection.close()
        return answer

    def raw(self, data, unix=False):
        """A socket to which `data` was sent."""
        if unix:
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(str(self.unix))
        else:
            sock = socket.create_connection(("127.0.0.1", self.port))
        self.addCleanup(sock.close)
        sock.settimeout(PATIENCE_S)
        sock.sendall(data if isinstance(data, bytes) else data.encode("latin-1"))
        return sock

    def log_in(self, *options, prefix=()):
        """By the link of `memoir open`: the cookie."""
        link = self.link(*options, prefix=prefix)
        answer = self.ask(link[link.index("/login"):])
        self.assertEqual(answer.status, 303, answer.body)
        return answer.headers["Set-Cookie"].split(";")[0]

    def assertProblem(self, answer, status, code):
        self.assertEqual(answer.status, status, answer.body)
        self.assertEqual(answer.headers["Content-Type"], "application/problem+json")
        problem = answer.json()
        self.assertEqual((problem["type"], problem["status"]), (f"urn:memoir:problem:{code}", status))
        self.assertTrue(problem["title"] and problem["detail"])

    def descriptors(self, pid):
        """What they are, of those that stay for longer than a moment."""
        found = []
        for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            try:
                found.append(link.readlink())
            except FileNotFoundError:
                pass
        return found
