"""Clients of memoird's sockets, for tests: a Tenstorrent monitor, a native client, and programs that report."""

import json
import os
import socket
import struct

from daemon_fixture import BUILD, PATIENCE_S, DaemonTest, Process

SOCKET_CLIENT = BUILD / "test/integration/socket_client"
SPACES = ("dram", "l1", "l1_small", "trace", "cb", "kernel")
ALLOC, FREE, QUERY, RESPONSE = 1, 2, 3, 4
MESSAGE = struct.Struct("<B3xiQB3xiQQ6Q2Q10I")  # 144 bytes: the newest clients
assert MESSAGE.size == 144


def message(kind, device=0, size=0, buffer_type=0, pid=None, number=0):
    return MESSAGE.pack(kind, device, size, buffer_type, os.getpid() if pid is None else pid, number, 0, *[0] * 18)


class Connection:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(str(path))

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Monitor(Connection):
    """A Tenstorrent client that asks."""

    def send(self, *arguments, **options):
        self.socket.sendall(message(*arguments, **options))

    def receive(self):
        answer = b""
        while len(answer) < MESSAGE.size:
            piece = self.socket.recv(MESSAGE.size - len(answer))
            if not piece:
                raise ConnectionResetError("memoird hung up")
            answer += piece
        return MESSAGE.unpack(answer)

    def totals(self, device=0):
        """Bytes by space; what is zero is left out."""
        self.send(QUERY, device)
        answer = self.receive()
        if answer[0] != RESPONSE:
            raise AssertionError(f"a message of type {answer[0]} instead of a response")
        return {space: size for space, size in zip(SPACES, answer[7:13]) if size}


class Native(Connection):
    """JSON lines: one goes, one comes."""

    def __init__(self, path):
        super().__init__(path)
        self.file = self.socket.makefile("r", encoding="utf-8")

    def close(self):
        self.file.close()
        super().close()

    def ask(self, **request):
        self.socket.sendall(json.dumps(request).encode() + b"\n")
        line = self.file.readline()
        if not line:
            raise ConnectionResetError("memoird hung up")
        return json.loads(line)

    def totals(self, ordinal=0):
        answer = self.ask(query={"table": "devices", "where": f"ordinal={ordinal}", "show": ["space", "used"]})
        return {row["space"]: row["used"] for row in answer["result"]["rows"] if row["used"]}


class Reporter(Process):
    """test/integration/socket_client."""

    def __init__(self, books, *arguments, prefix=(), ready=True, **options):
        environment = dict(os.environ, MEMOIR_DIR=str(books), LD_LIBRARY_PATH=str(BUILD.resolve() / "src/client"))
        super().__init__([*prefix, SOCKET_CLIENT, *arguments], env=environment, **options)
        if ready:
            try:
                self.pid = int(self.out.wait(r"^ready \d+$").split()[1])
            except AssertionError as error:
                raise AssertionError("\n".join([str(error), *self.err.lines])) from None

    def go_on(self):
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()

    def held(self):
        """End its churning; what it holds then."""
        self.go_on()
        words = self.out.wait(r"^held ").split()[1:]
        return {space: int(size) for space, size in (word.split("=") for word in words) if int(size)}


def add(*totals):
    """The sum of totals by space."""
    spaces = {space for total in totals for space in total}
    return {space: sum(total.get(space, 0) for total in totals) for space in spaces}


class SocketTest(DaemonTest):
    """Daemons with both local sockets."""

    def setUp(self):
        super().setUp()
        self.tt = self.folder / "tt.sock"
        self.native = self.folder / "native.sock"

    def ways(self):
        """How a program can report, as arguments of socket_client."""
        return [f"tt={self.tt}", f"native={self.native}", "book"]

    def daemon(self, *flags, **options):
        return super().daemon("--tt-socket", self.tt, "--socket", self.native, *flags, **options)

    def reporter(self, *arguments, **options):
        reporter = Reporter(self.books, *arguments, **options)
        self.addCleanup(reporter.close)
        return reporter

    def monitor(self):
        monitor = Monitor(self.tt)
        self.addCleanup(monitor.close)
        return monitor

    def native_client(self):
        client = Native(self.native)
        self.addCleanup(client.close)
        return client

    def wait_totals(self, monitor, wanted):
        """Until the answer is that. Figures may be a millisecond old, and new books have to be found."""
        last = []

        def right():
            last[:] = [monitor.totals()]
            return last[0] == wanted

        try:
            self.wait_until(right, "")
        except AssertionError:
            raise AssertionError(f"totals are {last[0]} instead of {wanted}") from None
