#!/usr/bin/env python3
"""Make a book of a later version from a golden one: grow.py BOOK TEXT GROWN_BOOK GROWN_TEXT

What doc/book.md promises to readers of version 1 under "Versions" happens here all at once: entries and
header are longer, there are unknown sections, records, spaces, pages, bits and numbers, and whatever is
spare holds garbage. The text of the grown book follows from that of the golden one by rules, not from what
a reader says, so that a reader which is wrong about both does not pass.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

PAGE = 4096
GAP = 32  # EXTENT_GAP_BYTES of book_extents.h

HEADER_BYTES = 3 * PAGE
SECTIONS_AT, SECTION, SECTIONS = 1592, struct.Struct("=IIQQQQQ"), 32
CONTROL, REGISTRY, COUNTER_INDEX, COUNTERS, MODULES, FRAMES, SITES, TAGS, BLOCKS, BLOCK_INDEX, MOVES = range(1, 12)
SCRIPTS = 14
# kind: bytes that its entries are longer
LONGER = {CONTROL: 32, REGISTRY: 64, COUNTER_INDEX: 8, COUNTERS: 64, MODULES: 8, FRAMES: 8, SITES: 16, TAGS: 8,
          BLOCKS: 512, MOVES: 8, SCRIPTS: 8}
# (offset, bytes) of what is spare in an entry
SPARE = {CONTROL: [(4, 4), (56, 8)], COUNTER_INDEX: [(12, 4)], MODULES: [(65, 15)], SITES: [(24, 8)],
         BLOCKS: [(4032, 64)], SCRIPTS: [(136, 8)]}
SPARE_DEVICE, SPARE_ACCOUNT, SPARE_COUNTERS = [(176, 80)], [(88, 40), (128 + 104, 24)], (104, 24)
FLAG = {"compat": 0xABCDE000, "device": 0x80, "account": 0x100, "module": 0x80, "site": 0x4000, "script": 0x80}
LOSS, LOST, STATE, STOP_REASON, SOURCE, VERSION = 20, 7, 9, 77, 99, 7
RECORD_LATER, SPACE_LATER, PAGE_LATER = 9, 40, 4
SCRIPT_FRAMES = (4090 << 52 | 0x11, 4095 << 52 | 0x22)
SITE_KEY = 0x1234567890ABCDEF


def garbage(n: int, seed: int) -> bytes:
    """Never 0, and with low bits of all sorts."""
    return bytes((seed * 31 + i * 7) % 255 + 1 for i in range(n))


class Sparse:
    """A sparse file in memory."""

    def __init__(self) -> None:
        self.size = 0
        self.pages: dict[int, bytearray] = {}

    @classmethod
    def expand(cls, data: bytes) -> Sparse:
        book = cls()
        book.size = struct.unpack_from("=Q", data)[0]
        at = 8
        while at < len(data):
            offset, n = struct.unpack_from("=QI", data, at)
            book.write(offset, data[at + 12 : at + 12 + n])
            at += 12 + n
        return book

    def read(self, offset: int, n: int) -> bytes:
        out = bytearray()
        while n > 0:
            page, start = divmod(offset, PAGE)
            part = min(n, PAGE - start)
            out += self.pages.get(page, bytes(PAGE))[start : start + part]
            offset, n = offset + part, n - part
        return bytes(out)

    def write(self, offset: int, data: bytes) -> None:
        while data:
            page, start = divmod(offset, PAGE)
            part = data[: PAGE - start]
            self.pages.setdefault(page, bytearray(PAGE))[start : start + len(part)] = part
            offset, data = offset + len(part), data[len(part) :]

    def numbers(self, start: int, end: int, step: int) -> list[int]:
        """Those of the entries from `start` on that have something in them."""
        found = set()
        for page in self.pages:
            first, last = max(page * PAGE, start), min((page + 1) * PAGE, end)
            if first < last:
                found.update(range((first - start) // step, (last - 1 - start) // step + 1))
        return sorted(found)

    def compact(self) -> bytes:
        """As extents_dump() of book_extents.h."""
        out = bytearray(struct.pack("=Q", self.size))
        for number in sorted(self.pages):
            page = self.pages[number]
            runs: list[list[int]] = []
            for i in (i for i in range(PAGE) if page[i]):
                if runs and i - runs[-1][1] < GAP:
                    runs[-1][1] = i + 1
                else:
                    runs.append([i, i + 1])
            for start, end in runs:
                out += struct.pack("=QI", number * PAGE + start, end - start) + page[start:end]
        return bytes(out)


def spoil(entry: bytearray, spare: list[tuple[int, int]], seed: int) -> None:
    for at, n in spare:
        entry[at : at + n] = garbage(n, seed)


def or_in(entry: bytearray, at: int, form: str, bits: int) -> None:
    struct.pack_into("=" + form, entry, at, struct.unpack_from("=" + form, entry, at)[0] | bits)


def grown_entry(kind: int, number: int, old: bytes, what: int) -> bytes:
    """One entry as a later version might write it; `what` is that of a counter page."""
    entry = bytearray(old)
    spoil(entry, SPARE.get(kind, []), number)
    record = struct.unpack_from("=I", entry)[0] if kind == REGISTRY else 0
    if record == 1:
        spoil(entry, SPARE_DEVICE, number)
        or_in(entry, 12, "I", FLAG["device"])
    elif record == 2:
        spoil(entry, SPARE_ACCOUNT, number)
        or_in(entry, 12, "I", FLAG["account"])
    elif kind == COUNTERS and what == 1:
        for i in range(32):
            spoil(entry, [(i * 128 + SPARE_COUNTERS[0], SPARE_COUNTERS[1])], i)
    elif kind == MODULES and number:
        or_in(entry, 28, "I", FLAG["module"])
    elif kind == SCRIPTS and number:
        or_in(entry, 132, "I", FLAG["script"])
    elif kind == SITES and number:
        or_in(entry, 14, "H", FLAG["site"])
    elif kind == BLOCKS:
        for i in range(168):  # a slot is free if its account is 0, whatever else is there
            if not struct.unpack_from("=Q", entry, i * 24 + 16)[0] & 0xFFF:
                spoil(entry, [(i * 24, 16), (i * 24 + 18, 6)], i)
    return bytes(entry) + garbage(LONGER[kind], number)


def additions(counts: dict[int, int]) -> dict[int, list[bytes]]:
    """What no reader of version 1 knows, at the end of sections that have entries."""
    later = counts[REGISTRY]
    account = struct.Struct("=IIIIQQqQ32sQ40x6Qq5Q32x")

    def named(space: int, device: int, name: bytes) -> bytes:
        return account.pack(2, space, device, 0, 0, 0, 0, 5, name, 0, 0, 0, 5, 1, *[0] * 8)

    return {
        REGISTRY: [struct.pack("=I", RECORD_LATER) + garbage(252, 5), named(17, later, b"on nothing"),
                   named(3, later, b"host"), named(SPACE_LATER, 0, b"later")],
        COUNTER_INDEX: [struct.pack("=IIII", PAGE_LATER, 0, 0, 0), struct.pack("=IIII", 77, 0, 0, 0)],
        COUNTERS: [garbage(PAGE, 3), garbage(PAGE, 4)],
        FRAMES: [struct.pack("=Q", frame) for frame in SCRIPT_FRAMES],
        SITES: [struct.pack("=QIHHII8x", SITE_KEY, counts[FRAMES], len(SCRIPT_FRAMES), 0, 0, 0)],
    }


def grow(data: bytes) -> bytes:
    old, new = Sparse.expand(data), Sparse()
    header = bytearray(old.read(0, PAGE))
    sections = [s for i in range(SECTIONS) if (s := SECTION.unpack_from(header, SECTIONS_AT + i * 48))[0]]
    used = {s[0]: s[5] for s in sections}
    more = additions(used)
    whats = [struct.unpack("=I", old.read(s[2] + i * s[1], 4))[0] for s in sections if s[0] == COUNTER_INDEX
             for i in range(s[5])]
    at = HEADER_BYTES + 64
    directory = [(40, 3, 5, 1 << 40, 1 << 50, 1 << 60, 1), (12, 0, HEADER_BYTES, 1 << 20, 1 << 20, 0, 2)]
    for kind, step, offset, size, opened, n, _ in sections:
        wide = step + LONGER.get(kind, 0)
        if kind in LONGER:
            for i in old.numbers(offset, offset + opened, step):
                entry = old.read(offset + i * step, step)
                if kind in (BLOCKS, MOVES) or i < n or kind == CONTROL:
                    what = whats[i] if kind == COUNTERS else 0
                    new.write(at + i * wide, grown_entry(kind, i, entry, what))
            n = max(n, 1) if kind == SITES else n  # number 0 stays empty
            for i, entry in enumerate(more.get(kind, [])):
                new.write(at + (n + i) * wide, grown_entry(kind, n + i, entry, 0))
        else:
            for page in old.numbers(offset, offset + opened, PAGE):
                new.write(at + page * PAGE, old.read(offset + page * PAGE, PAGE))
        n += len(more.get(kind, []))
        opened = max(opened // step * wide, n * wide)
        size = size // step * wide
        directory.append((kind, wide, at, size, opened, n, int.from_bytes(garbage(8, kind), "little")))
        at = (at + size + 63) // 64 * 64
    directory += [(REGISTRY, 1, 1, 1, 2, 9, 0), (13, 8, HEADER_BYTES, 64, 64, 8, 0)]
    new.size = at
    struct.pack_into("=HHI", header, 12, VERSION, HEADER_BYTES, 0)
    or_in(header, 20, "I", FLAG["compat"])
    struct.pack_into("=Q", header, 24, new.size)
    struct.pack_into("=I", header, 36, SOURCE)
    struct.pack_into("=II", header, 128, STATE, STOP_REASON)
    struct.pack_into("=Q", header, 152 + 8 * LOSS, LOST)
    for i in range(SECTIONS):
        SECTION.pack_into(header, SECTIONS_AT + i * 48, *(directory[i] if i < len(directory) else (0,) * 7))
    spoil(header, [(3256, 840)], 1)
    new.write(0, bytes(header) + garbage(HEADER_BYTES - PAGE, 2))
    return new.compact()


def field(line: str, name: str, bits: int) -> str:
    words = line.split(" ")
    at = words.index(name) + 1
    words[at] = str(int(words[at]) | bits)
    return " ".join(words)


def grown_text(text: str) -> str:
    """What a reader of version 1 says about the grown book, given what it says about the first."""
    lines, out = text.splitlines(), []
    last = {word: max((i for i, line in enumerate(lines) if line.startswith(word + " ")), default=-1)
            for word in ("loss", "peak_error", "totals", "module", "script", "site")}
    sites = sum(line.startswith("site ") for line in lines)
    records = max(int(line.split()[1]) for line in lines if line.startswith(("device ", "account "))) + 1
    for i, line in enumerate(lines):
        word = line.split(" ")[0]
        if word == "compat":
            line = field(line, "compat", FLAG["compat"])
        elif word in ("state", "stop_reason", "source"):
            line = f"{word} " + str({"state": STATE, "stop_reason": STOP_REASON, "source": SOURCE}[word])
        elif word in ("account", "site"):
            line = field(line, "flags", FLAG[word])
        out.append(line)
        if i == max(last["loss"], last["peak_error"]):
            out.append(f"loss {LOSS} {LOST}")
        if i == last["totals"]:
            for record, space, name in ((records + 2, 3, "host"), (records + 3, SPACE_LATER, "later")):
                out.append(f"account {record} space {space} device 0 flags {FLAG['account']} capacity 0 "
                           f"inherited 0 0 name {name}")
                out.append(f"totals {record} live 5 1 alloc 5 1 freed 0 0 served 0 0 reallocs 0 in 0 0 out 0 0 peak 5")
        if i == max(last["site"], last["script"], last["module"], last["totals"]):
            frames = "".join(f" {f >> 52}:{f & (1 << 52) - 1:x}" for f in SCRIPT_FRAMES)
            out.append(f"site {sites + 1} key {SITE_KEY:016x} flags {FLAG['site']} account 0 alloc 0 0 freed 0 0 frames{frames}")
    return "\n".join(out) + "\n"


def main(book: str, text: str, grown_book: str, grown_text_file: str) -> None:
    Path(grown_book).write_bytes(grow(Path(book).read_bytes()))
    Path(grown_text_file).write_text(grown_text(Path(text).read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
