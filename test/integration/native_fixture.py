"""A memoird with a native socket of its own, raw connections to it, and the truth as the book has it."""

import json
import os
import pathlib
import socket
import sys
import time

from daemon_fixture import PATIENCE_S, DaemonTest

SOURCE = pathlib.Path(os.environ.get("MEMOIR_SOURCE_ROOT", pathlib.Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(SOURCE / "clients/python"))

from memoir.book import Book, BookError  # noqa: E402

# A program that asks one question, for other users to run, and prints the answer: SOCKET QUESTION.
ASK = """
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(sys.argv[2].encode() + b"\\n")
data = b""
while not data.endswith(b"\\n"):
    data += s.recv(1 << 16)
sys.stdout.write(data.decode())
"""

class Line:
    """One connection; everything is raw, so that wrong messages can be sent as well."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(address)
        self.buffer = b""

    def close(self):
        self.socket.close()

    def send(self, *messages):
        self.socket.sendall(b"".join(m if isinstance(m, bytes) else json.dumps(m).encode() + b"\n" for m in messages))

    def receive(self):
        while b"\n" not in self.buffer:
            data = self.socket.recv(1 << 16)
            if not data:
                raise EOFError("memoird closed the connection")
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)

    def ask(self, message):
        self.send(message)
        return self.receive()

    def error(self, message):
        """The error that a message gets."""
        return self.ask(message)["error"]

    def wait_event(self, **wanted):
        while True:
            message = self.receive()
            if all(message.get(key) == value for key, value in wanted.items()):
                return message

    def at_end(self):
        """Did memoird close it? What came before is thrown away."""
        try:
            while self.socket.recv(1 << 16):
                pass
            return True
        except ConnectionResetError:
            return True
        except socket.timeout:
            return False


class NativeTest(DaemonTest):
    def setUp(self):
        super().setUp()
        self.path = str(self.folder / "native.sock")

    def native(self, *flags, **options):
        return self.daemon("--socket", self.path, "--tt-socket", "none", *flags, **options)

    def helpers(self, daemon):
        """Processes that read command lines for memoird, and have begun to."""
        found = []
        for pid in pathlib.Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split():
            try:
                text = pathlib.Path(f"/proc/{pid}/stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile
            if "(memoird-command) " in text and ") Z" not in text:
                found.append(int(pid))
        return found

    def connect(self, address=None, patient=False):
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                line = Line(address or self.path)
                break
            except OSError:
                if not patient or time.monotonic() > end:
                    raise
                time.sleep(0.01)
        self.addCleanup(line.close)
        return line

    def greeted(self, **keys):
        line = self.connect()
        hello = line.ask({"hello": 1, **keys})
        self.assertEqual(hello["hello"], 1, hello)
        return line, hello

    def with_device(self, **keys):
        line = self.connect()
        self.assertEqual(line.ask({"device": 0, "kind": "gpu", "name": "Test", **keys}), {"device": 0})
        return line

    def figures(self, pid=None):
        """{(ordinal or None, space): (bytes, blocks)} of a process, read from its book, not from memoird."""
        pid = pid or os.getpid()
        found = {}
        for path in self.book_files():
            try:
                with Book.open(path) as book:
                    if book.identity.pid != pid:
                        continue
                    ordinals = {d.record: d.ordinal for d in book.devices()}
                    totals = book.totals()
                    for account in book.accounts():
                        t = totals[account.record]
                        found[ordinals.get(account.device), account.name] = (t.live_bytes, t.live_blocks)
            except (BookError, FileNotFoundError):
                continue
        return {key: value for key, value in found.items() if value != (0, 0)}

    def blocks(self, pid=None):
        """{(space, id): (bytes, tag)} as the book has it."""
        pid = pid or os.getpid()
        for path in self.book_files():
            with Book.open(path) as book:
                if book.identity.pid == pid:
                    names = {a.record: a.name for a in book.accounts()}
                    tags = book.tags()
                    return {(names[b.account], b.id): (b.bytes, tags[b.tag] if b.tag else None) for b in book.blocks()[0]}
        return {}

    def losses(self, pid=None):
        pid = pid or os.getpid()
        for path in self.book_files():
            with Book.open(path) as book:
                if book.identity.pid == pid:
                    return {k: v for k, v in book.status().losses.items() if v}
        return {}
