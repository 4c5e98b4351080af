"""Report what a program holds to memoird, ask questions, hear of changes.

    client = memoir.Client()
    gpu = client.device(0, kind="gpu", name="H200", capacity={"dram": 141 << 30})
    with client.tag("weights"):
        client.alloc(gpu, "dram", id=0x7f00_0000_0000, bytes=1 << 20)
    client.free(gpu, "dram", id=0x7f00_0000_0000)
    for row in client.query(by="program", show="device.dram"):
        print(row)

Reports cost about two microseconds: they are queued and sent by a thread of the client, many at a time. They
never block and never raise (unless strict=True); where memoird is away they wait, and after it comes back
everything is as if it had never gone. Report an allocation after it was made and a free before it happens.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import dataclasses
import os
import random
import socket
import sys
import threading
import time
import weakref
from collections import deque
from typing import Any, Deque, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from .wire import Error, Message, Unreachable, Wire, encode, raise_error

SPACES = {"heap": 1, "mapped": 2, "pinned": 3, "managed": 4, "shared": 5, "chain": 6, "dram": 16, "l1": 17, "l1_small": 18,
          "trace": 19, "cb": 20, "kernel": 21, "system": 22}
FIRST_DEVICE_SPACE = 16
SIZE_LIMIT = 1 << 48
ID_LIMIT = 1 << 64
DEVICES_MAX = 256
MESSAGE_ROOM = 64  # of a message, for what is around its reports
WINDOW = 32  # messages that may be unanswered
FIRST_RETRY_S, LAST_RETRY_S = 0.02, 2.0
IDLE_S = 5.0  # look that often whether memoird is still there: over TCP it forgets who stays away

Row = Tuple[Any, ...]
Block = Tuple[int, int, int]  # device (-1: host), space, id
Words = Union[str, Sequence[str], None]


@dataclasses.dataclass(frozen=True)
class Status:
    """How the reporting goes. `lost`: reports that memoird could not be told of; `refused`: bad arguments."""

    connected: bool
    waiting: int  # reports not yet acknowledged
    acknowledged: int
    lost: int
    refused: int
    connections: int
    error: Optional[str]  # the last one


@dataclasses.dataclass(frozen=True)
class Result:
    """The answer to a query; iterating gives its rows, dictionaries by column."""

    table: str
    columns: List[Dict[str, str]]
    rows: List[Dict[str, Any]]
    matched: int
    left_out: int = 0
    incomplete: bool = False

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


class Client:
    """Thread-safe and fork-safe: a child starts with nothing reported and a connection of its own.

    path      socket of memoird; default: MEMOIR_SOCKET, the system's memoird, the user's
    address   "HOST:PORT" of a memoird on another machine, with
    token     what its token-file knows
    strict    raise where a report is wrong or could not be sent, instead of counting it
    batch, interval   send when so many reports wait, or the first of them for so many seconds
    waiting_max       reports to keep while memoird is away; beyond that only what is alive is remembered
    """

    def __init__(self, path: Optional[str] = None, *, address: Optional[str] = None, token: Optional[str] = None,
                 strict: bool = False, batch: int = 1000, interval: float = 0.05, waiting_max: int = 200_000,
                 timeout: float = 10.0) -> None:
        self.path, self.address, self.token = path, address, token
        self.strict = strict
        self.batch, self.interval, self.waiting_max = max(1, batch), interval, waiting_max
        self.timeout = timeout
        self._tag: contextvars.ContextVar[Optional[str]] = contextvars.ContextVar("memoir_tag", default=None)
        self._devices: Dict[int, Message] = {}
        self._closed = False
        self._reset()
        _clients.add(self)

    def _reset(self) -> None:
        """As if nothing had been reported: at the start, and in a child."""
        self._changed = threading.Condition(threading.Lock())
        self._thread: Optional[threading.Thread] = None
        self._rows: List[Row] = []  # to be sent
        self._sent: Deque[Tuple[int, int, bytes]] = deque()  # (seq, reports, line), not acknowledged
        self._in_sent = 0  # reports in them
        self._live: Dict[Block, Tuple[int, Optional[str]]] = {}
        self._anew = False  # too much waited: start over with what is alive
        self._new_devices: List[int] = list(self._devices)
        self._seq = 0
        self._session: Optional[str] = None
        self._message_max = 0
        self._fits = self.batch  # reports of a message, as far as is known
        self._wire: Optional[Wire] = None  # the thread's
        self._asking: Optional[Wire] = None  # for queries
        self._asking_lock = threading.Lock()
        self._flushing = 0
        self._acknowledged = self._lost = self._refused = self._connections = 0
        self._error: Optional[str] = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- reports ----

    def device(self, number: int, *, kind: str = "other", ordinal: Optional[int] = None, name: str = "", uid: str = "",
               bus: str = "", capacity: Optional[Mapping[str, int]] = None) -> int:
        """Tell of a device (doc/native-protocol.md); reports name it by `number`, 0 to 255, which is returned."""
        if not 0 <= number < DEVICES_MAX:
            raise ValueError("a device's number is 0 to 255")
        message: Message = {"device": number, "kind": kind, "ordinal": number if ordinal is None else ordinal}
        message.update({key: value for key, value in (("name", name), ("uid", uid), ("bus", bus)) if value})
        if capacity:
            message["capacity"] = dict(capacity)
        with self._changed:
            self._devices[number] = message
            self._new_devices.append(number)
            self._start()
        return number

    def alloc(self, device: Optional[int], space: str, id: int, bytes: int, tag: Optional[str] = None) -> None:
        """A block of `bytes` was made. Host spaces (heap, pinned ...) need no device: None."""
        block = self._block(device, space, id)
        if block is None or not self._check_size(bytes):
            return
        tag = self._tag.get() if tag is None else tag
        where = None if block[0] < 0 else block[0]
        row: Row = ("a", where, block[1], id, bytes) if tag is None else ("a", where, block[1], id, bytes, str(tag))
        with self._changed:
            self._live[block] = (bytes, None if tag is None else str(tag))
            self._put(row)

    def free(self, device: Optional[int], space: str, id: int) -> None:
        """A block is going to be freed."""
        block = self._block(device, space, id)
        if block is None:
            return
        with self._changed:
            self._live.pop(block, None)
            self._put(("f", None if block[0] < 0 else block[0], block[1], id))

    def realloc(self, device: Optional[int], space: str, old: int, id: int, bytes: int, tag: Optional[str] = None) -> None:
        """A block moved or changed its size."""
        before, block = self._block(device, space, old), self._block(device, space, id)
        if before is None or block is None or not self._check_size(bytes):
            return
        tag = self._tag.get() if tag is None else tag
        row: Row = ("r", None if block[0] < 0 else block[0], block[1], old, id, bytes)
        with self._changed:
            self._live.pop(before, None)
            self._live[block] = (bytes, None if tag is None else str(tag))
            self._put(row if tag is None else row + (str(tag),))

    def transfer(self, source: Tuple[Optional[int], str, int], target: Tuple[Optional[int], str, int], bytes: int) -> None:
        """Bytes moved between two places (device, space, id); id 0: no block in particular."""
        begin, end = self._block(*source), self._block(*target)
        if begin is None or end is None or not self._check_size(bytes):
            return
        places = [part for place in (begin, end) for part in (None if place[0] < 0 else place[0], place[1], place[2])]
        with self._changed:
            self._put(("t", *places, bytes))

    @contextlib.contextmanager
    def tag(self, name: str) -> Iterator[None]:
        """Allocations inside carry this tag; of this thread or asyncio task only, the innermost wins."""
        token = self._tag.set(name)
        try:
            yield
        finally:
            self._tag.reset(token)

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until memoird has everything. False if it could not be told in time (strict: raises)."""
        end = time.monotonic() + timeout
        with self._changed:
            if self._nothing_waits():
                return True
            self._start()
            self._flushing += 1
            self._changed.notify_all()
            done = self._changed.wait_for(self._nothing_waits, max(0.0, end - time.monotonic()))
            self._flushing -= 1
            error = self._error
        if not done and self.strict:
            raise Unreachable(error or "memoird did not take the reports in time")
        return done

    def close(self, timeout: float = 2.0) -> None:
        """Send what waits, for at most `timeout` seconds, and end the thread. What was reported stays: it ends with
        the process, or over TCP half a minute later."""
        with self._changed:
            if self._closed:
                return
            waits = not self._nothing_waits()
        if waits:
            with contextlib.suppress(Error):
                self.flush(timeout)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread, asking = self._thread, self._asking
            self._asking = None
        if thread and thread is not threading.current_thread():
            thread.join(timeout)
        if asking:
            asking.close()

    def status(self) -> Status:
        with self._changed:
            return Status(self._wire is not None, len(self._rows) + self._in_sent, self._acknowledged, self._lost,
                          self._refused, self._connections, self._error)

    # ---- questions ----

    def query(self, table: str = "processes", *, by: Words = None, where: Optional[str] = None, show: Words = None,
              sort: Words = None, limit: int = 0) -> Result:
        """Ask memoird (`memoir help query` has the language). Sees what this client reported before. Raises Error."""
        self.flush()
        question: Message = {"table": table}
        for key, words in (("by", by), ("where", where), ("show", show), ("sort", sort)):
            if words:
                question[key] = words if isinstance(words, str) else list(words)
        if limit:
            question["limit"] = limit
        answer = self._ask({"query": question})["result"]
        return Result(answer["table"], answer["columns"], answer["rows"], answer["matched"], answer.get("left_out", 0),
                      bool(answer.get("incomplete", False)))

    def ping(self) -> float:
        """Seconds to memoird and back. Raises Unreachable."""
        start = time.monotonic()
        self._ask({"ping": 1})
        return time.monotonic() - start

    def subscribe(self, topics: Iterable[str] = ("processes",), *, interval: float = 1.0, pid: int = 0) -> Subscription:
        """Events from now on: iterate over what is returned. Topics: processes, devices, reports."""
        wire = self._open(self.timeout)
        message: Message = {"subscribe": list(topics), "interval_ms": int(interval * 1000)}
        if pid:
            message["pid"] = pid
        try:
            wire.request(message)
        except BaseException:
            wire.close()
            raise
        return Subscription(wire)

    def _open(self, timeout: Optional[float]) -> Wire:
        wire = Wire(self.path, self.address, timeout)
        if self.address:
            try:
                wire.request(self._hello())
            except BaseException:
                wire.close()
                raise
        return wire

    def _ask(self, message: Message) -> Message:
        with self._asking_lock:
            for attempt in (0, 1):
                kept = self._asking is not None
                if self._asking is None:
                    self._asking = self._open(self.timeout)
                try:
                    return self._asking.request(message)
                except (Unreachable, TimeoutError):
                    self._asking.close()
                    self._asking = None
                    if attempt or not kept:
                        raise
                    # memoird was restarted since the last question
        raise AssertionError

    # ---- inside ----

    def _refuse(self, why: str) -> None:
        if self.strict:
            raise ValueError(why)
        with self._changed:
            self._refused += 1
            self._error = why

    def _block(self, device: Optional[int], space: str, id: int) -> Optional[Block]:
        number = SPACES.get(space)
        if number is None:
            self._refuse(f"unknown space {space!r}: use one of {', '.join(SPACES)}")
        elif type(id) is not int or not 0 <= id < ID_LIMIT:
            self._refuse(f"an id is a whole number of 64 bits, not {id!r}")
        elif number < FIRST_DEVICE_SPACE:
            return -1, number, id
        elif device not in self._devices:
            self._refuse(f"device {device!r} was not declared: call device() first")
        else:
            return device, number, id  # type: ignore[return-value]
        return None

    def _check_size(self, size: int) -> bool:
        if type(size) is int and 0 <= size < SIZE_LIMIT:
            return True
        self._refuse(f"a size is a whole number below 2^48, not {size!r}")
        return False

    def _put(self, row: Row) -> None:
        """With the lock held."""
        rows = self._rows
        if not self._anew:
            rows.append(row)
            if len(rows) + self._in_sent > self.waiting_max and self._wire is None:
                self._anew = True
                rows.clear()
        if len(rows) == 1 or len(rows) == self.batch:
            self._changed.notify_all()
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name="memoir", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _nothing_waits(self) -> bool:
        return not (self._rows or self._sent or self._anew or self._new_devices)

    def _hello(self) -> Message:
        hello: Message = {"hello": 1}
        if self.address:
            hello.update(token=self.token or "", host=socket.gethostname(), pid=os.getpid(),
                         program=os.path.basename(sys.argv[0]) if sys.argv else "python",
                         command=" ".join(sys.argv)[:500])
        return hello

    def _run(self) -> None:
        """The thread: connect, send, wait for acks; again after each break."""
        pid = os.getpid()
        retry = FIRST_RETRY_S
        while not self._finished() and os.getpid() == pid:
            try:
                self._connect()
                retry = FIRST_RETRY_S
                while self._turn():
                    pass
            except (Error, OSError, ValueError, KeyError) as error:
                with self._changed:
                    self._error = str(error)
                    self._disconnect()
                    self._changed.wait_for(lambda: self._closed, retry * random.uniform(0.5, 1.0))
                retry = min(2 * retry, LAST_RETRY_S)
        with self._changed:
            self._disconnect()
            self._thread = None
            self._changed.notify_all()

    def _finished(self) -> bool:
        with self._changed:
            return self._closed

    def _disconnect(self) -> None:
        if self._wire:
            self._wire.close()
        self._wire = None

    def _connect(self) -> None:
        if self._wire:
            return
        wire = Wire(self.path, self.address, self.timeout)
        try:
            hello = self._hello()
            if self._session:
                hello["session"] = self._session
            answer = wire.request(hello)
            with self._changed:
                self._resume(answer)
            for device in list(self._devices.values()):
                wire.request(device)
        except BaseException:
            wire.close()
            raise
        with self._changed:
            self._wire = wire
            self._connections += 1
            self._new_devices.clear()
            again = b"".join(line for _, _, line in self._sent)
        wire.send(again)
        self._collect(wire)

    def _resume(self, answer: Message) -> None:
        """What memoird has, and what it must be told again."""
        had_session, self._session = self._session is not None, answer["session"]
        self._message_max = int(answer["limits"]["message_bytes"])
        if answer["resumed"]:
            self._acknowledge(int(answer["seq"]))
        elif had_session:
            self._anew = True  # it knows nothing of us any more
        if self._anew:
            self._start_anew()

    def _start_anew(self) -> None:
        self._anew = False
        self._sent.clear()
        self._rows = [("a", None if device < 0 else device, space, id, size) + (() if tag is None else (tag,))
                      for (device, space, id), (size, tag) in self._live.items()]
        self._seq += 1
        self._sent.append((self._seq, 0, encode({"reset": True, "seq": self._seq, "ack": True})))
        self._in_sent = 0

    def _turn(self) -> bool:
        """Send what waits. False: closed."""
        wire = self._wire
        assert wire is not None
        with self._changed:
            if not self._changed.wait_for(lambda: self._closed or bool(self._rows) or bool(self._new_devices), IDLE_S):
                wire.check()
                return True
            if self._closed and not self._rows:
                return False
            if len(self._rows) < self.batch and not self._closed:
                self._changed.wait_for(lambda: self._closed or bool(self._flushing) or len(self._rows) >= self.batch,
                                       self.interval)
            devices, self._new_devices = self._new_devices, []
        for number in devices:
            try:
                wire.request(self._devices[number])
            except Unreachable:
                with self._changed:
                    self._new_devices.append(number)
                raise
        with self._changed:
            lines = self._take()
        if lines:
            wire.send(lines)
            self._collect(wire)
        else:
            with self._changed:
                self._changed.notify_all()
        return True

    def _take(self) -> bytes:
        """The next messages, which are then waited for. With the lock held."""
        lines: List[bytes] = []
        while self._rows and len(lines) < WINDOW:
            n = min(self.batch, len(self._rows), self._fits)
            line = self._line(self._rows[:n])
            while len(line) > self._message_max - MESSAGE_ROOM and n > 1:
                n = self._fits = n // 2
                line = self._line(self._rows[:n])
            del self._rows[:n]
            self._seq += 1
            line = line[:-2] + b',"seq":%d,"ack":true}\n' % self._seq
            self._sent.append((self._seq, n, line))
            self._in_sent += n
            lines.append(line)
        return b"".join(lines)

    @staticmethod
    def _line(rows: List[Row]) -> bytes:
        return encode({"report": rows})

    def _collect(self, wire: Wire) -> None:
        """Wait for the acks of all that was sent."""
        while True:
            with self._changed:
                if not self._sent:
                    return
            answer = wire.receive()
            with self._changed:
                if "ack" in answer:
                    self._acknowledge(int(answer["ack"]))
                elif "error" in answer:
                    self._complain(answer)

    def _acknowledge(self, seq: int) -> None:
        while self._sent and self._sent[0][0] <= seq:
            _, n, _ = self._sent.popleft()
            self._in_sent -= n
            self._acknowledged += n
        if not self._sent:
            self._changed.notify_all()

    def _complain(self, answer: Message) -> None:
        """memoird refused a message, or a part of it. One that it refused whole is not acknowledged."""
        error = answer["error"]
        self._error = str(error.get("message"))
        if error.get("code") in ("limit", "internal"):
            return
        for entry in list(self._sent):
            if entry[0] == answer.get("seq"):
                self._sent.remove(entry)
                self._in_sent -= entry[1]
                self._lost += entry[1]
        if not self._sent:
            self._changed.notify_all()


class Subscription:
    """An iterator over events, each a dictionary; `lost` is how many memoird had to leave out so far."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.lost = 0
        self._closed = False
        wire.set_timeout(None)

    def __iter__(self) -> Subscription:
        return self

    def __next__(self) -> Message:
        while True:
            try:
                event = self._wire.receive()
            except Unreachable:
                if self._closed:
                    raise StopIteration from None
                raise
            raise_error(event)
            if "lost" in event:
                self.lost += int(event["lost"])
            elif "event" in event:
                return event

    def next(self, timeout: float) -> Optional[Message]:
        """The next event, or None when there was none in time."""
        self._wire.set_timeout(timeout)
        try:
            return next(self)
        except TimeoutError:
            return None
        finally:
            self._wire.set_timeout(None)

    def close(self) -> None:
        """Ends the iteration, also from another thread."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._wire.socket.shutdown(socket.SHUT_RDWR)
        self._wire.close()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---- all clients of the process ----

_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _after_fork() -> None:
    # The sockets are the parent's and threads did not come along; locks may be held by them for ever.
    for client in list(_clients):
        for wire in (client._wire, client._asking):
            if wire:
                wire.close()
        client._reset()


def _at_exit() -> None:
    for client in list(_clients):
        with contextlib.suppress(Exception):
            client.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
