"""Read books: the shared-memory files in which Memoir accounts the memory of processes.

The format is described in doc/book.md; this module needs nothing but that description and the standard
library. It reads with pread() only, never through a mapping, so a book that is cut short while it is read
raises BookError and nothing worse, and reading makes no pages in the sparse file.

    for path in find_books():
        with Book.open(path) as book:
            for account in book.accounts():
                print(book.identity.pid, account.name, book.totals()[account.record].live_bytes)

As a program it prints a table, or JSON: python3 -m memoir.book [--json] [PATH...]
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import sys
from dataclasses import dataclass
from typing import NamedTuple, Optional

from memoir.places import find_books, find_places

__all__ = [
    "Account", "Block", "Book", "BookError", "Device", "Frame", "Identity", "LOSSES", "Module", "NotReady",
    "SOURCES", "SPACES", "STATES", "Script", "Site", "Status", "Totals", "Watcher", "find_books", "find_places",
]

MAGIC = b"MEMOIRBK"
ENDIAN_MARK = 0x01020304
HEADER_BYTES = 4096
SECTION_ALIGN = 64
INCOMPAT_KNOWN = 0
FILE_MAX = 1 << 48
ENTRY_BYTES_MAX = 65536
TIME_SHIFT_MAX = 32

COMPAT_ON_BEHALF, COMPAT_FORK_CHILD, COMPAT_REMOTE = 1, 2, 4

SOURCES = {
    1: "client", 2: "malloc", 3: "track", 4: "observer", 5: "socket", 6: "region", 7: "cuda", 8: "attach",
}
STATES = {0: "initial", 1: "open", 2: "closed", 3: "stopped"}
STOP_REASONS = {0: "", 1: "asked", 2: "full"}
DEVICE_KINDS = {0: "other", 1: "GPU", 2: "NPU", 3: "FPGA", 4: "simulated"}
SPACES = {
    1: "heap", 2: "mapped", 3: "pinned", 4: "managed", 5: "shared", 6: "chain", 16: "dram", 17: "l1", 18: "l1_small",
    19: "trace", 20: "cb", 21: "kernel", 22: "system",
}
LOSSES = (
    "blocks_full", "sites_full", "accounts_full", "tags_full", "modules_full", "counters_full", "reentry",
    "stuck_lock", "unknown_free", "replaced", "bad_argument", "suspended", "torn", "unknown_move",
    "limit", "scripts_full",
)

CONTROL, REGISTRY, COUNTER_INDEX, COUNTERS, MODULES, FRAMES, SITES, TAGS, BLOCKS = range(1, 10)
MOVES, SCRIPTS = 11, 14

# kind: (bytes of an entry in version 1, most entries that are looked at)
_KINDS = {
    CONTROL: (64, 1), REGISTRY: (256, 4096), COUNTER_INDEX: (16, 65536), COUNTERS: (4096, 65536),
    MODULES: (512, 4080), FRAMES: (8, 1 << 24), SITES: (32, 1 << 20), TAGS: (64, 65536),
    BLOCKS: (4096, None), MOVES: (8, None), SCRIPTS: (512, 65536),
}

# "=": the machine's byte order, no padding.
_FIXED = struct.Struct("=8sIHHIIQII")  # magic ... source, at 0
_IDENTITY = struct.Struct("=16sQQQQiiIIiIQQ")  # boot_id ... created_monotonic_ns, at 40
_LIVE = struct.Struct("=IIQQ32Q")  # state ... losses
_LIVE_AT = 128
_SECTION = struct.Struct("=IIQQQQQ")  # 32 of them
_SECTIONS_AT, _SECTIONS_MAX = 1592, 32
_EXEC_RANDOM_AT = 3256
_STRINGS = {"comm": (488, 16), "host": (504, 64), "exe": (568, 512), "command": (1080, 512)}
_WATCHER = struct.Struct("=iIQQ")
_WATCHERS_AT = 8
_DEVICE = struct.Struct("=IIiI64s64s32s")
_ACCOUNT = struct.Struct("=IIIIQQqQ32sQ")
_COMMON_AT = 128
_COUNTERS = struct.Struct("=6Qq5Q")
_COUNTER_PAGE = struct.Struct("=IIII")
_SITE_COUNTERS = struct.Struct("=4Q")
_MODULE = struct.Struct("=QQQIIB32s15x432s")
_SCRIPT = struct.Struct("=128sII8x368s")
_FRAME = struct.Struct("=Q")
_SITE = struct.Struct("=QIHHII")
_BLOCK = struct.Struct("=QQQ")
_MOVES = struct.Struct("=II")

_RECORD_DEVICE, _RECORD_ACCOUNT = 1, 2
_PAGE_ACCOUNTS, _PAGE_SITES, _PAGE_SAMPLED_SITES = 1, 2, 3
_SITE_SAMPLED = 4
_ACCOUNTS_PER_PAGE, _SITES_PER_PAGE, _BLOCKS_PER_PAGE = 32, 128, 168
_SITE_FRAMES_MAX = 1024
_RECORDS_MAX = 4096
_SPACE_DEVICE = 16  # spaces below it are the host's
_SITE_CUT = 2
_OFFSET_MASK = (1 << 52) - 1
_MODULE_SCRIPT, _SCRIPT_BITS = 4095, 24
_MODULE_LINK = 4093
_WORD = (1 << 64) - 1
_SCAN_TRIES = 4
_NOTHING = (0, 0)


def _live(alloc: int, freed: int) -> int:
    """The difference of two counters, which may have wrapped; 0 where a dishonest book has less than nothing."""
    difference = alloc - freed & _WORD
    return difference if difference < 1 << 63 else 0


class BookError(Exception):
    """The file is no book that this version may read, or it was cut short."""


class NotReady(BookError):
    """The book is still being made; try again."""


@dataclass(frozen=True)
class Identity:
    """Who the book is about. Numbers that could not be read are 0."""

    boot_id: str
    pid_ns: int
    time_ns: int
    start_ticks: int
    exec_id: int
    pid: int
    parent_pid: int
    uid: int
    exec_count: int
    writer_pid: int
    time_shift: int
    created_realtime_ns: int
    created_monotonic_ns: int
    version: int
    compat: int
    source: int
    comm: str
    host: str
    exe: str
    command: str
    st_uid: int
    st_dev: int
    st_ino: int
    exec_random: int = 0

    @property
    def on_behalf(self) -> bool:
        return bool(self.compat & COMPAT_ON_BEHALF)

    @property
    def owner(self) -> int:
        """Whose book it is: the file's owner; `uid` is a claim, unless root's daemon made it."""
        return self.uid if self.on_behalf and self.st_uid == 0 else self.st_uid


@dataclass(frozen=True)
class Status:
    """What changes while the book lives. `losses` names those that are not 0."""

    state: int
    stop_reason: int
    peak_error: int
    losses: dict[str, int]


@dataclass(frozen=True)
class Watcher:
    """A daemon that watches the book: `slot` is 0 for root's, 1 for the user's own."""

    slot: int
    pid: int
    flags: int
    start_ticks: int
    pid_ns: int


@dataclass(frozen=True)
class Device:
    record: int
    kind: int
    ordinal: int
    name: str
    uid: str
    bus: str


@dataclass(frozen=True)
class Account:
    """One memory space on one device; `device` is a Device's record, or 0 for the host.

    Several accounts of one space and device add up. Inherited is what the parent held at fork and the
    process did not free since; it is in no total.
    """

    record: int
    space: int
    device: int
    flags: int
    capacity: int
    inherited_bytes: int
    inherited_blocks: int
    name: str

    @property
    def partial(self) -> bool:
        """Counted from some moment on, not from the start."""
        return bool(self.flags & 1)

    @property
    def sampled(self) -> bool:
        """An estimate."""
        return bool(self.flags & 2)


@dataclass(frozen=True)
class Totals:
    alloc_bytes: int = 0
    alloc_blocks: int = 0
    freed_bytes: int = 0
    freed_blocks: int = 0
    alloc_served: int = 0
    freed_served: int = 0
    reallocs: int = 0
    moved_in_bytes: int = 0
    moved_in: int = 0
    moved_out_bytes: int = 0
    moved_out: int = 0
    stored_peak: int = 0

    @property
    def live_bytes(self) -> int:
        return _live(self.alloc_bytes, self.freed_bytes)

    @property
    def live_blocks(self) -> int:
        return _live(self.alloc_blocks, self.freed_blocks)

    @property
    def peak_bytes(self) -> int:
        """Too low by Status.peak_error at most."""
        return max(self.stored_peak, self.live_bytes)


@dataclass(frozen=True)
class Module:
    """A loaded ELF file; an empty path means the program itself (Identity.exe)."""

    path: str
    build_id: str
    bias: int
    map_start: int
    map_end: int
    generation: int
    path_cut: bool


@dataclass(frozen=True)
class Script:
    """A function of a script: code that an interpreter runs. The line that runs is the frame's."""

    function: str
    file: str
    first_line: int
    function_cut: bool
    file_cut: bool


class Frame(NamedTuple):
    """A return address: `offset` as in the module's ELF file, or an absolute address without a module.

    A line of a script has a `script`, and its `line` (0: not known). A frame of a sort that this reader does
    not know (`number` is none of a module) has none of these.
    """

    module: Optional[Module]
    offset: int
    number: int = 0
    script: Optional[Script] = None

    @property
    def known(self) -> bool:
        return self.module is not None or self.script is not None or self.number == 0

    @property
    def line(self) -> int:
        return self.offset >> _SCRIPT_BITS if self.script else 0


@dataclass(frozen=True)
class Site:
    """A call stack, innermost frame first, with what was allocated there.

    All its blocks are of one `account` (0: unknown); a stack that has blocks of several is several sites.
    A site that was found by sampling has estimates of what other sites count exactly: do not add both.
    """

    number: int
    key: int
    flags: int
    account: int
    frames: tuple[Frame, ...]
    alloc_bytes: int = 0
    alloc_blocks: int = 0
    freed_bytes: int = 0
    freed_blocks: int = 0

    @property
    def sampled(self) -> bool:
        return bool(self.flags & _SITE_SAMPLED)

    @property
    def live_bytes(self) -> int:
        return _live(self.alloc_bytes, self.freed_bytes)

    @property
    def live_blocks(self) -> int:
        return _live(self.alloc_blocks, self.freed_blocks)


@dataclass(frozen=True)
class Block:
    """One live block. `account` is a record, `site` and `tag` are numbers (0: none)."""

    id: int
    bytes: int
    account: int
    site: int
    tag: int
    time_ns: int  # CLOCK_MONOTONIC of the writer's machine
    moves: int = 0


@dataclass(frozen=True)
class _Section:
    slot: int
    entry_size: int
    offset: int
    size: int


def _text(raw: bytes) -> str:
    """A string up to its NUL, without control characters: it may end up on somebody's terminal."""
    text = raw.split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join("?" if ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 else c for c in text)


class Book:
    """An open book. Every question is answered from the file as it is now."""

    def __init__(self, fd: int) -> None:
        """Take over `fd`, a descriptor of the book. Raises BookError and closes it if it is none."""
        self._fd = fd
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(cls, path: str | os.PathLike[str], dir_fd: Optional[int] = None) -> Book:
        """Open by name; links are not followed and only regular files are books."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return cls(os.open(path, flags, dir_fd=dir_fd))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Book:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    # ---- opening ----

    def _open(self) -> None:
        st = os.fstat(self._fd)
        if not stat.S_ISREG(st.st_mode) or st.st_size > FILE_MAX:
            raise BookError("not a book: no regular file, or too large")
        header = self._pread(min(HEADER_BYTES, st.st_size), 0)
        magic = header[:8]
        if magic.strip(b"\0") == b"":
            raise NotReady("the book is still being made")
        if magic != MAGIC or len(header) < HEADER_BYTES:
            raise BookError("not a book")
        (_, mark, version, header_bytes, incompat, compat, file_size, _, source) = _FIXED.unpack_from(header)
        if mark != ENDIAN_MARK or version == 0 or incompat & ~INCOMPAT_KNOWN:
            raise BookError(f"a book of a kind that cannot be read here (version {version}, {incompat:#x})")
        if header_bytes < HEADER_BYTES or not header_bytes <= file_size <= st.st_size:
            raise BookError("the header makes no sense")
        values = _IDENTITY.unpack_from(header, 40)
        strings = {k: _text(header[at : at + n]) for k, (at, n) in _STRINGS.items()}
        self.identity = Identity(
            values[0].hex(), *values[1:], version=version, compat=compat, source=source, **strings,
            st_uid=st.st_uid, st_dev=st.st_dev, st_ino=st.st_ino,
            exec_random=int.from_bytes(header[_EXEC_RANDOM_AT : _EXEC_RANDOM_AT + 8], sys.byteorder),
        )
        if self.identity.time_shift > TIME_SHIFT_MAX:
            raise BookError("the header makes no sense")
        self._sections = self._read_sections(header, header_bytes, file_size)

    @staticmethod
    def _read_sections(header: bytes, header_bytes: int, file_size: int) -> dict[int, _Section]:
        sections: dict[int, _Section] = {}
        for slot in range(_SECTIONS_MAX):
            kind, entry, offset, size, opened, _, _ = _SECTION.unpack_from(header, _SECTIONS_AT + slot * 48)
            if kind not in _KINDS or kind in sections:
                continue
            least, most = _KINDS[kind]
            if not least <= entry <= ENTRY_BYTES_MAX or entry % 8 or offset % SECTION_ALIGN or opened > size:
                raise BookError(f"section {kind} makes no sense")
            if offset < header_bytes or offset + size > file_size:
                raise BookError(f"section {kind} lies outside the file")
            if most is not None:
                size = min(size, most * entry)
            if size > 0:
                sections[kind] = _Section(slot, entry, offset, size)
        spans = sorted((s.offset, s.offset + s.size) for s in sections.values())
        if any(a[1] > b[0] for a, b in zip(spans, spans[1:])):
            raise BookError("sections overlap")
        return sections

    # ---- bytes ----

    def _pread(self, n: int, offset: int) -> bytes:
        parts = []
        while n > 0:
            part = os.pread(self._fd, min(n, 1 << 20), offset)
            if not part:
                raise BookError("the book was cut short")
            parts.append(part)
            offset += len(part)
            n -= len(part)
        return b"".join(parts)

    def _live(self, kind: int) -> tuple[int, int]:
        """(open bytes, complete entries) of a section now, clamped to what was checked."""
        s = self._sections.get(kind)
        if s is None:
            return 0, 0
        raw = self._pread(_SECTION.size, _SECTIONS_AT + s.slot * _SECTION.size)
        opened, used = _SECTION.unpack(raw)[4:6]
        opened = min(opened, s.size)
        return opened, min(used, opened // s.entry_size)

    def _entries(self, kind: int, n: int) -> list[bytes]:
        """The first n entries of a section, as long as this version's are."""
        if n == 0:
            return []
        s = self._sections[kind]
        length = _KINDS[kind][0]
        raw = self._pread(n * s.entry_size, s.offset)
        return [raw[i : i + length] for i in range(0, len(raw), s.entry_size)]

    def _next_data(self, offset: int, end: int) -> int:
        """The first byte from `offset` on that is not in a hole, or `end`."""
        if offset >= end:
            return end
        try:
            return min(end, max(offset, os.lseek(self._fd, offset, os.SEEK_DATA)))
        except OSError:
            return end

    # ---- status ----

    def status(self) -> Status:
        state, reason, peak_error, _, *losses = _LIVE.unpack(self._pread(_LIVE.size, _LIVE_AT))
        names = [LOSSES[i] if i < len(LOSSES) else f"loss_{i}" for i in range(len(losses))]
        return Status(state, reason, peak_error, {k: v for k, v in zip(names, losses) if v})

    def writer_alive(self) -> bool:
        """Whether the writer still maps the book. Works across PID namespaces."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return False

    def watchers(self) -> list[Watcher]:
        """The daemons that say they watch this book; they may have died since."""
        s = self._sections.get(CONTROL)
        if s is None or self._live(CONTROL)[0] < _KINDS[CONTROL][0]:
            return []
        raw = self._pread(_KINDS[CONTROL][0], s.offset)
        slots = [_WATCHER.unpack_from(raw, _WATCHERS_AT + i * _WATCHER.size) for i in range(2)]
        return [Watcher(i, *values) for i, values in enumerate(slots) if values[0]]

    # ---- devices, accounts, totals ----

    def _records(self) -> list[bytes]:
        return self._entries(REGISTRY, self._live(REGISTRY)[1])

    def devices(self) -> list[Device]:
        return self._devices(self._records())

    @staticmethod
    def _devices(records: list[bytes]) -> list[Device]:
        devices = []
        for number, raw in enumerate(records):
            kind, what, ordinal, _, name, uid, bus = _DEVICE.unpack_from(raw)
            if number > 0 and kind == _RECORD_DEVICE:
                devices.append(Device(number, what, ordinal, _text(name), _text(uid), _text(bus)))
        return devices

    def accounts(self) -> list[Account]:
        """Accounts of the host and of devices that exist, in the order of their records."""
        return self._accounts()[0]

    def left_out(self) -> int:
        """How many accounts are not among accounts(), because their device is none."""
        return self._accounts()[1]

    def _accounts(self) -> tuple[list[Account], int]:
        records = self._records()
        known = {0} | {d.record for d in self._devices(records)}
        accounts: list[Account] = []
        left_out = 0
        for number, raw in enumerate(records):
            kind, space, device, flags, capacity, in_bytes, _, _, name, in_blocks = _ACCOUNT.unpack_from(raw)
            if number == 0 or kind != _RECORD_ACCOUNT:
                continue
            if space < _SPACE_DEVICE:
                device = 0  # whatever stands there
            if device not in known:
                left_out += 1
                continue
            accounts.append(Account(number, space, device, flags, capacity, in_bytes, in_blocks, _text(name)))
        return accounts, left_out

    def _pages(self, wanted: int) -> list[tuple[int, int]]:
        """(number, first) of the counter pages that hold `wanted`."""
        index = self._live(COUNTER_INDEX)[1]
        opened = self._live(COUNTERS)[0]
        if COUNTERS not in self._sections:
            return []
        entries = self._entries(COUNTER_INDEX, min(index, opened // self._sections[COUNTERS].entry_size))
        pages = []
        for number, raw in enumerate(entries):
            what, first, _, _ = _COUNTER_PAGE.unpack(raw)
            if what == wanted:
                pages.append((number, first))
        return pages

    def _page(self, number: int) -> bytes:
        s = self._sections[COUNTERS]
        return self._pread(_KINDS[COUNTERS][0], s.offset + number * s.entry_size)

    def totals(self) -> dict[int, Totals]:
        """Totals by the account's record.

        All shards are read twice: freed counters are taken from the first reading and allocated ones from
        the second, so that what was freed is also found allocated. The second includes shards that came
        in between.
        """
        accounts = self.accounts()
        freed = self._sum_shards(accounts, self._pages(_PAGE_ACCOUNTS))
        alloc = self._sum_shards(accounts, self._pages(_PAGE_ACCOUNTS))
        records = self._records()
        result = {}
        for account in accounts:
            early, late = freed[account.record], alloc[account.record]
            result[account.record] = Totals(
                freed_bytes=early[0], freed_blocks=early[1], freed_served=early[4], alloc_bytes=late[2],
                alloc_blocks=late[3], alloc_served=late[5], reallocs=late[7], moved_in_bytes=late[8],
                moved_in=late[9], moved_out_bytes=late[10], moved_out=late[11],
                stored_peak=_ACCOUNT.unpack_from(records[account.record])[7],
            )
        return result

    def _sum_shards(self, accounts: list[Account], pages: list[tuple[int, int]]) -> dict[int, list[int]]:
        records = self._records()
        sums = {a.record: list(_COUNTERS.unpack_from(records[a.record], _COMMON_AT)) for a in accounts}
        for number, first in pages:
            page = self._page(number)
            for i in range(_ACCOUNTS_PER_PAGE):
                total = sums.get(first + i)
                if total is not None:
                    for k, value in enumerate(_COUNTERS.unpack_from(page, i * 128)):
                        total[k] = total[k] + value & _WORD
        return sums

    # ---- sites and tags ----

    def modules(self) -> list[Optional[Module]]:
        """By number; the first is None."""
        return self._modules(self._live(MODULES)[1])

    def _modules(self, n: int) -> list[Optional[Module]]:
        modules: list[Optional[Module]] = []
        for raw in self._entries(MODULES, n):
            bias, start, end, generation, flags, id_len, build_id, path = _MODULE.unpack_from(raw)
            build_id = build_id[:id_len].hex() if id_len <= len(build_id) else ""
            modules.append(Module(_text(path), build_id, bias, start, end, generation, bool(flags & 1)))
        if modules:
            modules[0] = None
        return modules

    def scripts(self) -> list[Optional[Script]]:
        """Functions of scripts by number; the first is None."""
        scripts: list[Optional[Script]] = []
        for raw in self._entries(SCRIPTS, self._live(SCRIPTS)[1]):
            function, first_line, flags, file = _SCRIPT.unpack_from(raw)
            scripts.append(Script(_text(function), _text(file), first_line, bool(flags & 1), bool(flags & 2)))
        if scripts:
            scripts[0] = None
        return scripts

    def sites(self) -> list[Site]:
        """All call sites with their counters; number 0 is left out."""
        n_sites = self._live(SITES)[1]
        n_frames = self._live(FRAMES)[1]
        modules = self._modules(self._live(MODULES)[1])
        scripts = self.scripts()
        raw_sites = self._entries(SITES, n_sites)
        frames = [_FRAME.unpack(raw)[0] for raw in self._entries(FRAMES, n_frames)]
        kinds = (_PAGE_SITES, _PAGE_SAMPLED_SITES)
        freed_of = [self._sum_sites(self._pages(kind), n_sites, slice(0, 2)) for kind in kinds]
        alloc_of = [self._sum_sites(self._pages(kind), n_sites, slice(2, 4)) for kind in kinds]
        sites = []
        for number in range(1, n_sites):
            key, first, count, flags, _, account = _SITE.unpack_from(raw_sites[number])
            if count > _SITE_FRAMES_MAX:
                count = _SITE_FRAMES_MAX
                flags |= _SITE_CUT
            if first + count > n_frames:
                count = 0
            values, cut = self._follow(frames, first, count)
            if cut:
                flags |= _SITE_CUT
            stack = tuple(self._frame(value, modules, scripts) for value in values)
            freed, alloc = freed_of[bool(flags & _SITE_SAMPLED)], alloc_of[bool(flags & _SITE_SAMPLED)]
            sites.append(Site(
                number, key, flags, account if account < _RECORDS_MAX else 0, stack, freed_bytes=freed.get(number, _NOTHING)[0],
                freed_blocks=freed.get(number, _NOTHING)[1], alloc_bytes=alloc.get(number, _NOTHING)[0],
                alloc_blocks=alloc.get(number, _NOTHING)[1],
            ))
        return sites

    @staticmethod
    def _follow(frames: list[int], first: int, count: int) -> tuple[list[int], bool]:
        """The frames of a site, over its links, and whether there are more than a reader takes."""
        values: list[int] = []
        at, end = first, first + count
        while at < end and len(values) < _SITE_FRAMES_MAX:
            value = frames[at]
            at += 1
            if value >> 52 != _MODULE_LINK:
                values.append(value)
                continue
            at, end = (value & _OFFSET_MASK) - 1, len(frames)
            if not 0 <= at < end or frames[at] >> 52 == _MODULE_LINK:
                return values, False
        return values, len(values) == _SITE_FRAMES_MAX and at < end

    @staticmethod
    def _frame(value: int, modules: list[Optional[Module]], scripts: list[Optional[Script]]) -> Frame:
        number, offset = value >> 52, value & _OFFSET_MASK
        if number == _MODULE_SCRIPT:
            script = offset & (1 << _SCRIPT_BITS) - 1
            return Frame(None, offset, number, scripts[script] if script < len(scripts) else None)
        return Frame(modules[number] if number < len(modules) else None, offset, number)

    def _sum_sites(self, pages: list[tuple[int, int]], n: int, part: slice) -> dict[int, list[int]]:
        sums: dict[int, list[int]] = {}
        for number, first in pages:
            page = self._page(number)
            for i in range(min(_SITES_PER_PAGE, n - first)):
                values = _SITE_COUNTERS.unpack_from(page, i * _SITE_COUNTERS.size)[part]
                if any(values):
                    total = sums.setdefault(first + i, [0, 0])
                    total[0] = total[0] + values[0] & _WORD
                    total[1] = total[1] + values[1] & _WORD
        return sums

    def tags(self) -> list[str]:
        """By number; the first is empty."""
        return [_text(raw) for raw in self._entries(TAGS, self._live(TAGS)[1])]

    # ---- blocks ----

    def blocks(self) -> tuple[list[Block], bool]:
        """All live blocks, once each, and whether nothing was moved or torn meanwhile."""
        alive = self.writer_alive()
        found: dict[tuple[int, int], Block] = {}
        exact = False
        for _ in range(_SCAN_TRIES):
            before = self._blocks_seq()
            found = {}
            torn = self._scan_blocks(alive, found)
            after = self._blocks_seq()
            exact = before == after and (before % 2 == 0 or not alive) and not torn
            if exact:
                break
        return list(found.values()), exact

    def _blocks_seq(self) -> int:
        return _LIVE.unpack(self._pread(_LIVE.size, _LIVE_AT))[3]

    def _scan_blocks(self, alive: bool, found: dict[tuple[int, int], Block]) -> bool:
        """Add all live blocks to `found`; whether a slot never came to rest."""
        s = self._sections.get(BLOCKS)
        if s is None:
            return False
        torn = False
        end = s.offset + self._live(BLOCKS)[0] // s.entry_size * s.entry_size
        moves_open = self._live(MOVES)[0]
        at = s.offset
        while (at := self._next_data(at, end)) < end:
            page = (at - s.offset) // s.entry_size
            at = s.offset + page * s.entry_size
            slots = self._slots(at)
            if alive:
                for i, (one, other) in enumerate(zip(slots, self._slots(at))):
                    if one != other:
                        slots[i], settled = self._settle(other, at + i * _BLOCK.size)
                        torn = torn or not settled
            if any(slot[2] & 0xFFF for slot in slots):
                moves = self._moves(page * _BLOCKS_PER_PAGE, moves_open)
                for slot, count in zip(slots, moves):
                    self._add_block(found, slot, count)
            at += s.entry_size
        return torn

    def _slots(self, at: int) -> list[tuple[int, ...]]:
        return list(_BLOCK.iter_unpack(self._pread(_BLOCKS_PER_PAGE * _BLOCK.size, at)))

    def _settle(self, values: tuple[int, ...], at: int) -> tuple[tuple[int, ...], bool]:
        """Read a slot until two copies agree."""
        for _ in range(8):
            again = _BLOCK.unpack(self._pread(_BLOCK.size, at))
            if again == values:
                return values, True
            values = again
        return values, False

    def _moves(self, first: int, opened: int) -> list[int]:
        """How often the blocks in the 168 slots from `first` on moved."""
        s = self._sections.get(MOVES)
        n = min(_BLOCKS_PER_PAGE, max(0, opened // s.entry_size - first)) if s else 0
        moves = [0] * _BLOCKS_PER_PAGE
        if s and n:
            raw = self._pread(n * s.entry_size, s.offset + first * s.entry_size)
            for i in range(n):
                moves[i] = _MOVES.unpack_from(raw, i * s.entry_size)[0]
        return moves

    def _add_block(self, found: dict[tuple[int, int], Block], slot: tuple[int, ...], moves: int) -> None:
        block_id, size_tag, place = slot
        if place & 0xFFF == 0:
            return
        block = Block(
            id=block_id, bytes=size_tag & ((1 << 48) - 1), tag=size_tag >> 48, account=place & 0xFFF,
            site=place >> 12 & 0xFFFFF, moves=moves,
            time_ns=self.identity.created_monotonic_ns + ((place >> 32) << self.identity.time_shift),
        )
        other = found.get((block.id, block.account))
        if other is None or block.time_ns >= other.time_ns:
            found[block.id, block.account] = block


if __name__ == "__main__":
    import sys

    from memoir.book_cli import main

    sys.exit(main())
