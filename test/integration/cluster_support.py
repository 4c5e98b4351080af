"""A NATS server, memoirds that are its nodes, and a raw client that speaks NATS as a hostile node would."""

import json
import pathlib
import queue
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from daemon_fixture import BUILD, MEMOIRD, PATIENCE_S, Client, Process
from http_support import UnixConnection

MEMOIR = BUILD / "src/cli/memoir"
NATS_SERVER = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/bin")


FOREIGN = "f" * 32  # ID of a node that a test plays


def rows(answer):
    return answer["result"]["rows"]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Nats:
    """One nats-server at a free port, that can be killed and started again there."""

    def __init__(self, config=""):
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="memoir-nats-"))
        self.config = self.folder / "nats.conf"
        self.config.write_text(f'listen: "127.0.0.1:{self.port}"\nping_interval: "2s"\nping_max: 2\n' + config)
        self.process = None
        self.start()

    def start(self):
        self.process = Process([NATS_SERVER, "-c", self.config])
        self.process.err.wait("Server is ready")

    def kill(self, number=signal.SIGKILL):
        self.process.kill(number)
        if number == signal.SIGKILL:
            self.process.wait()

    def close(self):
        self.process.close()
        shutil.rmtree(self.folder, True)


class Link:
    """A slow way to a server: what is sent arrives later, by `delay_s` in each direction, and not while `flows` is cleared."""

    def __init__(self, port, delay_s):
        self.target, self.delay_s = port, delay_s
        self.flows = threading.Event()
        self.flows.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"nats://127.0.0.1:{self.port}"
        self.sockets = [self.listener]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        try:
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
                self.sockets += [near, far]
                for a, b in ((near, far), (far, near)):
                    pieces = queue.SimpleQueue()
                    threading.Thread(target=self.read, args=(a, pieces), daemon=True).start()
                    threading.Thread(target=self.write, args=(b, pieces), daemon=True).start()
        except OSError:
            pass

    def read(self, source, pieces):
        try:
            while data := source.recv(65536):
                pieces.put((time.monotonic() + self.delay_s, data))
        except OSError:
            pass
        pieces.put((0, b""))

    def write(self, target, pieces):
        try:
            while True:
                due, data = pieces.get()
                if not data:
                    target.shutdown(socket.SHUT_WR)
                    return
                time.sleep(max(0, due - time.monotonic()))
                self.flows.wait()
                target.sendall(data)
        except OSError:
            pass

    def close(self):
        self.flows.set()
        for s in self.sockets:
            s.close()


class Node:
    """A memoird in a cluster."""

    def __init__(self, name, url, *flags, prefix=(), ready=True):
        self.name, self.prefix = name, prefix
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="memoir-node-"))
        self.folder.chmod(0o755)
        self.books = pathlib.Path(tempfile.mkdtemp(prefix="memoir-node-", dir="/dev/shm"))
        self.books.chmod(0o1777)
        self.socket = self.folder / "m.sock"
        self.http = self.folder / "m-http.sock"
        self.state = self.folder / "state"
        self.clients = []
        self.command = [*prefix, MEMOIRD, "--dir", self.books, "--state", self.state, "--socket", self.socket,
                        "--http", "none", "--http-socket", self.http, "--tt-socket", "none",
                        "--cluster-name", name, *(["--cluster", url] if url else []), *flags]
        self.process = None
        self.start(ready)

    def start(self, ready=True):
        self.process = Process(self.command)
        self.process.err.wait(r"\bready: watching")
        if ready:
            self.process.err.wait("connected to the cluster")

    def close(self):
        for client in self.clients:
            client.close()
        if self.process.popen.poll() is None and not self.prefix:
            self.process.kill(signal.SIGTERM)  # so that it ends a server of its own
            self.process.wait()
        self.process.close()
        shutil.rmtree(self.folder, True)
        shutil.rmtree(self.books, True)

    def client(self, *arguments, **options):
        client = Client(self.books, *arguments, **options)
        self.clients.append(client)
        return client

    def ask(self, question, path=None):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(PATIENCE_S)
            s.connect(str(path or self.socket))
            s.sendall(json.dumps(question).encode() + b"\n")
            with s.makefile() as file:
                return json.loads(file.readline())

    def query(self, **query):
        answer = self.ask({"query": query})
        if "error" in answer:
            raise AssertionError(answer)
        return answer

    def get(self, path, token=None):
        return self.request("GET", path, token=token)

    def post(self, path, body, token=None):
        return self.request("POST", path, json.dumps(body), token)

    def request(self, method, path, body=None, token=None):
        headers = {"Content-Type": "application/json"} if body else {}
        if token:
            headers["Memoir-Node-Token"] = token
        connection = UnixConnection(self.http)
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        body = json.loads(response.read())
        connection.close()
        return response.status, body

    def status(self):
        return self.ask({"cluster": "status"})["cluster"]

    def members(self):
        return {m["node"]: m for m in self.status()["members"]}

    def key(self):
        """ID and public key, for cluster-trust of other nodes."""
        status = self.status()
        return f"{status['self']}+{status['key']}"

    def states(self):
        return {name: m["state"] for name, m in self.members().items()}

    def memoir(self, *arguments, **options):
        return subprocess.run([MEMOIR, *map(str, arguments)], capture_output=True, text=True, check=False,
                              timeout=PATIENCE_S, **options)


@unittest.skipUnless(NATS_SERVER, "needs nats-server")
class ClusterTest(unittest.TestCase):
    def nats(self, config=""):
        nats = Nats(config)
        self.addCleanup(nats.close)
        return nats

    def node(self, name, url, *flags, **options):
        node = Node(name, url, *flags, **options)
        self.addCleanup(node.close)
        return node

    def wait_until(self, condition, what, patience=PATIENCE_S):
        """Seconds that it took."""
        start = time.monotonic()
        while not condition():
            if time.monotonic() - start > patience:
                raise AssertionError(f"never: {what}")
            time.sleep(0.01)
        return time.monotonic() - start

    def three(self, *flags, config=""):
        nats = self.nats(config)
        nodes = [self.node(name, nats.url, *flags) for name in ("n1", "n2", "n3")]
        for node in nodes:
            self.wait_until(lambda n=node: n.states() == {"n1": "alive", "n2": "alive", "n3": "alive"},
                            f"{node.name} knows all: {node.states()}")
        return nats, nodes


# ---- bytes as nodes send them ----

def varint(number):
    out = b""
    while number >= 0x80:
        out += bytes([0x80 | number & 0x7f])
        number >>= 7
    return out + bytes([number])


def text(words):
    data = words.encode() if isinstance(words, str) else words
    return varint(len(data)) + data


HELLO, BYE, ASK, ACK, REPLY, REFUSE, LOST = range(1, 8)


def message(kind, *fields):
    return b"MC" + varint(1) + varint(kind) + b"".join(f if isinstance(f, bytes) else varint(f) for f in fields)


def hello(name, first=1, interval_ms=2000, watch_ms=None, version="9.9.9"):
    """watch_ms None: as the first versions send it, without that field."""
    fields = [] if watch_ms is None else [watch_ms]
    return message(HELLO, text(name), text(version), time.time_ns(), time.time_ns(), interval_ms, first, *fields)


def lost(node):
    return message(LOST, text(node))


CALL = 2  # what an ASK may want


def ask(nonce, user, expires_ns, body, signature=b"", what=CALL, deadline_ms=2000, key=b"", mac=b""):
    return message(ASK, nonce, deadline_ms, what, text(user), expires_ns, text(key), text(mac), text(body), text(signature))


def signed(asker, target, nonce, user, expires_ns, body, what=CALL):
    """What the signature of an ASK covers."""
    parts = [text("memoir ask"), text(asker), text(target), nonce, varint(expires_ns), varint(what), text(user), text(body)]
    return b"".join(parts)


class Signer:
    """A key of a node that a test plays."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.pem = self.folder / "node.pem"
        self.run("genpkey", "-algorithm", "ed25519", "-out", self.pem)
        self.public = self.run("pkey", "-in", self.pem, "-pubout", "-outform", "DER")[-32:].hex()

    def run(self, *words):
        return subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True).stdout

    def sign(self, data):
        path = self.folder / "to-sign"
        path.write_bytes(data)
        return self.run("pkeyutl", "-sign", "-rawin", "-inkey", self.pem, "-in", path)


def reply(nonce, body, part=0, parts=1):
    return message(REPLY, nonce, part, parts, text(body))


def nonce_of(ask):
    """Of the bytes of a question."""
    return ask[4:20]


class Speaker:
    """A NATS client by hand."""

    def __init__(self, port, user=None, password=None):
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.file = self.socket.makefile("rb")
        self.file.readline()  # INFO
        connect = {"verbose": False, "pedantic": False, "lang": "test", "version": "1", "protocol": 1}
        if user:
            connect.update(user=user, **{"pass": password})
        self.socket.sendall(b"CONNECT " + json.dumps(connect).encode() + b"\r\nPING\r\n")
        self.errors = []
        while True:
            line = self.file.readline()
            if line.startswith(b"-ERR"):
                self.errors.append(line)
            if line == b"PONG\r\n":
                break
            if not line:
                raise EOFError("the server closed the connection")
        self.sid = 0

    def subscribe(self, subject):
        self.sid += 1
        self.socket.sendall(f"SUB {subject} {self.sid}\r\n".encode())

    def publish(self, subject, data, inbox=""):
        self.socket.sendall(f"PUB {subject} {inbox} {len(data)}\r\n".encode() + data + b"\r\n")

    def ready(self):
        """Waits until the server has taken what was sent."""
        self.socket.sendall(b"PING\r\n")
        while (line := self.file.readline()) != b"PONG\r\n":
            if not line:
                raise EOFError("the server closed the connection")

    def next(self):
        """(subject, reply, bytes) of the next message."""
        while True:
            line = self.file.readline()
            if not line:
                raise EOFError("the server closed the connection")
            if line == b"PING\r\n":
                self.socket.sendall(b"PONG\r\n")
            elif line.startswith(b"-ERR"):
                self.errors.append(line)
            elif line.startswith(b"MSG "):
                words = line.decode().split()
                data = self.file.read(int(words[-1]) + 2)[:-2]
                return words[1], words[3] if len(words) == 5 else "", data

    def close(self):
        self.socket.close()
