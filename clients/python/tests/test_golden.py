"""Golden books: what test/unit/test_golden.c says about them is what the reader in Python says."""

from __future__ import annotations

import os
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from test_book import ROOT, expand  # noqa: E402

from memoir.book import LOSSES, Book  # noqa: E402

GOLDEN = ROOT / "test" / "golden"
sys.path.insert(0, str(GOLDEN))

import grow  # noqa: E402


def loss_number(name: str) -> int:
    """Those of later versions have no name but loss_N."""
    return LOSSES.index(name) if name in LOSSES else int(name.removeprefix("loss_"))


def describe(book: Book) -> str:
    """One fact a line, as say_all() in C."""
    who, status = book.identity, book.status()
    lines = [f"{name} {getattr(who, name)}" for name in (
        "boot_id", "pid_ns", "time_ns", "start_ticks", "exec_id", "pid", "parent_pid", "writer_pid", "uid",
        "exec_count", "source", "compat", "time_shift", "created_realtime_ns", "created_monotonic_ns", "comm", "host", "exe",
        "command")]
    lines += [f"state {status.state}", f"stop_reason {status.stop_reason}", f"peak_error {status.peak_error}"]
    lines += [f"loss {loss_number(name)} {count}" for name, count in status.losses.items()]
    lines += [f"device {d.record} kind {d.kind} ordinal {d.ordinal} uid {d.uid} bus {d.bus} name {d.name}"
              for d in book.devices()]
    totals = book.totals()
    for a in book.accounts():
        t = totals[a.record]
        lines.append(f"account {a.record} space {a.space} device {a.device} flags {a.flags} "
                     f"capacity {a.capacity} inherited {a.inherited_bytes} {a.inherited_blocks} name {a.name}")
        lines.append(f"totals {a.record} live {t.live_bytes} {t.live_blocks} alloc {t.alloc_bytes} "
                     f"{t.alloc_blocks} freed {t.freed_bytes} {t.freed_blocks} served {t.alloc_served} "
                     f"{t.freed_served} reallocs {t.reallocs} in {t.moved_in_bytes} {t.moved_in} "
                     f"out {t.moved_out_bytes} {t.moved_out} peak {t.peak_bytes}")
    modules = book.modules()
    for number, m in enumerate(modules):
        if m is not None:
            lines.append(f"module {number} generation {m.generation} build_id {m.build_id} path {m.path}")
    for number, f in enumerate(book.scripts()):
        if f is not None:
            lines.append(f"script {number} first_line {f.first_line} cut {f.function_cut:d} {f.file_cut:d} "
                         f"function {f.function} file {f.file}")
    for s in book.sites():
        frames = "".join(f" {f.number}:{f.offset:x}" for f in s.frames)
        lines.append(f"site {s.number} key {s.key:016x} flags {s.flags} account {s.account} "
                     f"alloc {s.alloc_bytes} {s.alloc_blocks} freed {s.freed_bytes} {s.freed_blocks} frames{frames}")
    lines += [f"tag {number} {name}" for number, name in enumerate(book.tags()) if number]
    blocks, exact = book.blocks()
    for b in sorted(blocks, key=lambda b: (b.account, b.id)):
        lines.append(f"block {b.account} {b.id:016x} bytes {b.bytes} site {b.site} tag {b.tag} "
                     f"time {b.time_ns} moves {b.moves}")
    lines.append(f"exact {int(exact)}")
    return "\n".join(lines) + "\n"


class GoldenTest(unittest.TestCase):
    def test_golden_books_are_read_as_ever(self) -> None:
        paths = sorted(GOLDEN.glob("book-v*.extents"))
        self.assertTrue(paths)
        for path in paths:
            with self.subTest(path=path.name):
                self.check(path.read_bytes(), path.with_suffix(".txt").read_text(encoding="utf-8"))

    def test_books_of_later_versions_are_read_as_far_as_they_are_known(self) -> None:
        for path in sorted(GOLDEN.glob("book-v*.extents")):
            with self.subTest(path=path.name):
                text = path.with_suffix(".txt").read_text(encoding="utf-8")
                self.check(grow.grow(path.read_bytes()), grow.grown_text(text), left_out=1)

    def check(self, compact: bytes, text: str, left_out: int = 0) -> None:
        fd = os.memfd_create("golden")
        expand(compact, fd, size_max=1 << 40)
        with Book(fd) as book:
            self.assertEqual(describe(book).splitlines(), text.splitlines())
            self.assertEqual(book.left_out(), left_out)


if __name__ == "__main__":
    unittest.main()
