"""One connection to memoird: lines of JSON, one answer for each request (doc/native-protocol.md)."""

from __future__ import annotations

import json
import os
import socket
from typing import Any, Dict, List, Optional, Tuple, Union

Message = Dict[str, Any]

SYSTEM_SOCKET = "/run/memoird/memoir.sock"
LINE_MAX = 8 << 20  # of an answer


class Error(Exception):
    """memoird refused: `code` is for programs ("bad-query"), the text says what to do."""

    def __init__(self, code: str, message: str, details: Optional[Message] = None) -> None:
        super().__init__(message)
        self.code = code
        self.details: Message = details or {}


class Unreachable(Error):
    """There is no memoird at the other end (any more)."""

    def __init__(self, message: str) -> None:
        super().__init__("unreachable", message)


def default_paths() -> List[str]:
    """Where memoird may listen, the first that works is taken. MEMOIR_SOCKET overrides."""
    chosen = os.environ.get("MEMOIR_SOCKET")
    if chosen:
        return [chosen]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return [SYSTEM_SOCKET] + ([os.path.join(runtime, "memoird.sock")] if runtime else [])


def split_address(address: str) -> Tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"expected HOST:PORT, not {address!r}")
    return host.strip("[]"), int(port)


class Wire:
    """Not for two threads at a time."""

    def __init__(self, path: Optional[str] = None, address: Optional[str] = None, timeout: Optional[float] = 10.0) -> None:
        self.buffer = b""
        self.socket = self._connect_tcp(address, timeout) if address else self._connect_unix(path, timeout)

    @staticmethod
    def _connect_tcp(address: str, timeout: Optional[float]) -> socket.socket:
        try:
            sock = socket.create_connection(split_address(address), timeout)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as error:
            raise Unreachable(f"cannot connect to memoird at {address}: {error.strerror or error}") from error

    @staticmethod
    def _connect_unix(path: Optional[str], timeout: Optional[float]) -> socket.socket:
        why = "no path is known: set MEMOIR_SOCKET"
        for candidate in [path] if path else default_paths():
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            sock.settimeout(timeout)
            try:
                sock.connect(candidate)
                return sock
            except OSError as error:
                sock.close()
                why = f"{candidate}: {error.strerror or error}"
        raise Unreachable(f"cannot connect to memoird: {why}; is it running?")

    def close(self) -> None:
        self.socket.close()

    def set_timeout(self, timeout: Optional[float]) -> None:
        self.socket.settimeout(timeout)

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise Unreachable(f"the connection to memoird broke: {error.strerror or error}") from error

    def send_message(self, message: Message) -> None:
        self.send(encode(message))

    def check(self) -> None:
        """Raises Unreachable if the other end has closed the connection."""
        try:
            if self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"":
                raise Unreachable("memoird closed the connection")
        except BlockingIOError:
            pass
        except OSError as error:
            raise Unreachable(f"the connection to memoird broke: {error.strerror or error}") from error

    def receive(self) -> Message:
        """The next message, errors too. TimeoutError when none came in time; what came of it is kept."""
        while b"\n" not in self.buffer:
            if len(self.buffer) > LINE_MAX:
                raise Unreachable("memoird sent an endless line")
            try:
                data = self.socket.recv(1 << 18)
            except (socket.timeout, BlockingIOError) as error:
                raise TimeoutError("memoird did not answer in time") from error
            except OSError as error:
                raise Unreachable(f"the connection to memoird broke: {error.strerror or error}") from error
            if not data:
                raise Unreachable("memoird closed the connection")
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        message = json.loads(line)
        if not isinstance(message, dict):
            raise Unreachable("this is not memoird: it sent something else than objects")
        return message

    def request(self, message: Message) -> Message:
        """Send, and wait for the answer. Raises Error for an error, TimeoutError."""
        self.send_message(message)
        answer = self.receive()
        raise_error(answer)
        return answer


def encode(message: Union[Message, List[Any]]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def raise_error(message: Message) -> None:
    error = message.get("error")
    if isinstance(error, dict):
        raise Error(str(error.get("code")), str(error.get("message")), error)
