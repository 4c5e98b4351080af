"""The reader in Python against books of the tests of the one in C.

Those are kept in a compact form (test/unit/book_extents.h): the size of the sparse file, then extents of
offset, length and bytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import shutil
import struct
import sys
import tempfile
import unittest
from pathlib import Path

CLIENT = Path(__file__).resolve().parent.parent
ROOT = CLIENT.parent.parent
sys.path.insert(0, str(CLIENT))

from memoir import book_cli  # noqa: E402
from memoir.book import (  # noqa: E402
    CONTROL, COUNTER_INDEX, COUNTERS, FRAMES, REGISTRY, SITES, Block, Book, BookError, NotReady, Watcher, find_books,
    find_places,
)

CORPUS = ROOT / "test" / "fuzz" / "corpus" / "reader"
SECTIONS_AT = 1592
LATE = 1 << 63
SIZE_MAX = 64 << 20


def expand(data: bytes, fd: int, late: bool = False, size_max: int = SIZE_MAX) -> None:
    """What extents_apply() does in C."""
    if len(data) < 8:
        return
    size = struct.unpack_from("=Q", data)[0]
    if not late:
        if size > size_max:
            return
        os.ftruncate(fd, size)
    at = 8
    while len(data) - at >= 12:
        offset, n = struct.unpack_from("=QI", data, at)
        at += 12
        n = min(n, len(data) - at)
        if bool(offset & LATE) == late and (offset & ~LATE) <= size_max:
            offset &= ~LATE
            if n:
                os.pwrite(fd, data[at : at + n], offset)
            elif late:
                os.ftruncate(fd, offset)
        at += n


def ask_everything(book: Book) -> None:
    book.status()
    book.devices()
    book.totals()
    book.sites()
    book.tags()
    book.blocks()
    book_cli.table_rows(book)
    json.dumps(book_cli.book_json(book, sites=True, blocks=True))


class BookTest(unittest.TestCase):
    def setUp(self) -> None:
        self.fd = os.memfd_create("book")
        self.addCleanup(os.close, self.fd)

    def make(self, name: str) -> Book:
        expand((CORPUS / name).read_bytes(), self.fd)
        return self.open()

    def open(self) -> Book:
        book = Book(os.open(f"/proc/self/fd/{self.fd}", os.O_RDWR))
        self.addCleanup(book.close)
        return book

    def poke(self, offset: int, form: str, *values: int) -> None:
        os.pwrite(self.fd, struct.pack("=" + form, *values), offset)

    def test_identity_is_read(self) -> None:
        who = self.make("sample").identity
        self.assertEqual((who.pid, who.parent_pid, who.writer_pid), (4242, 4200, 4242))
        self.assertEqual((who.uid, who.exec_count, who.source, who.version), (1000, 3, 1, 1))
        self.assertEqual(who.boot_id, bytes(range(0xA0, 0xB0)).hex())
        self.assertEqual((who.pid_ns, who.time_ns, who.start_ticks), (4026531836, 4026531834, 123456))
        self.assertEqual(who.exec_id, 0x1122334455667788)
        self.assertEqual((who.created_realtime_ns, who.created_monotonic_ns), (1700000000000000000, 5000000000))
        self.assertEqual((who.comm, who.exe), ("train.py", "/usr/bin/python3.11"))
        self.assertEqual(who.command, "python3 train.py --epochs 3")
        self.assertEqual((who.st_uid, who.owner), (os.geteuid(), os.geteuid()))
        self.poke(20, "I", 1)  # written on behalf of somebody
        if os.geteuid() == 0:
            self.assertEqual(self.open().identity.owner, 1000)

    def test_devices_and_accounts_are_listed(self) -> None:
        book = self.make("sample")
        (device,) = book.devices()
        self.assertEqual((device.record, device.kind, device.name), (1, 1, "NVIDIA H200"))
        self.assertEqual((device.uid, device.bus), ("uid-0", "0000:00:00.0"))
        dram, heap = book.accounts()
        self.assertEqual((dram.record, dram.space, dram.device, dram.capacity), (2, 16, 1, 141 << 30))
        self.assertEqual((heap.record, heap.space, heap.device, heap.name), (3, 1, 0, "heap"))
        self.assertEqual((heap.inherited_bytes, heap.inherited_blocks), (0, 0))
        self.assertFalse(heap.partial or heap.sampled)
        at = self.section(book, REGISTRY) + 3 * 256
        self.poke(at + 12, "I", 2)
        self.poke(at + 24, "Q", 4000)
        self.poke(at + 80, "Q", 4)
        heap = book.accounts()[1]
        self.assertEqual((heap.inherited_bytes, heap.inherited_blocks), (4000, 4))
        self.assertEqual((heap.partial, heap.sampled), (False, True))

    def add_record(self, book: Book, form: str, *values: int) -> int:
        number = book._live(REGISTRY)[1]
        self.poke(self.section(book, REGISTRY) + number * 256, form, *values)
        self.poke(SECTIONS_AT + book._sections[REGISTRY].slot * 48 + 32, "Q", number + 1)
        return number

    def test_account_of_a_device_that_is_none_is_left_out(self) -> None:
        book = self.make("sample")
        for device in (2, 4000, 0xFFFFFFFF):
            self.add_record(book, "III", 2, 17, device)
        self.assertEqual(len(book.accounts()), 2)
        self.assertEqual(book.left_out(), 3)
        self.assertEqual(book_cli.book_json(book, sites=False, blocks=False)["accounts_left_out"], 3)

    def test_space_of_the_host_has_no_device_whatever_stands_there(self) -> None:
        book = self.make("sample")
        later = self.add_record(book, "I", 9)
        for space, device in ((1, later), (15, 4000), (1, 0xFFFFFFFF), (15, 1)):
            self.add_record(book, "III", 2, space, device)
        self.assertEqual([a.device for a in book.accounts()[2:]], [0] * 4)
        self.assertEqual(book.left_out(), 0)

    def test_counters_that_wrapped_give_what_is_live(self) -> None:
        book = self.make("sample")
        self.poke(self.section(book, REGISTRY) + 2 * 256 + 128, "QQQQ", 2**64 - 210, 2**64 - 2, 6, 1)
        t = book.totals()[2]
        self.assertEqual((t.live_bytes, t.live_blocks), (4216, 4))
        self.poke(self.section(book, REGISTRY) + 2 * 256 + 128, "Q", 2**64 - 100)
        self.assertEqual(book.totals()[2].freed_bytes, 100)
        self.poke(self.section(book, REGISTRY) + 2 * 256 + 128, "QQQQ", 2**63 - 10000, 9, 0, 0)
        t = book.totals()[2]
        self.assertEqual((t.live_bytes, t.live_blocks), (0, 0))

    def test_stack_of_more_frames_than_are_taken_is_cut(self) -> None:
        book = self.make("sample")
        s = book._sections[FRAMES]
        for i in range(1025):
            self.poke(s.offset + i * 8, "Q", 1 << 52 | i)
        self.poke(SECTIONS_AT + s.slot * 48 + 24, "QQ", 3 * 4096, 1025)
        sites = self.section(book, SITES)
        self.poke(sites + 32 + 8, "IHH", 0, 1024, 0)
        self.poke(sites + 64 + 8, "IHH", 0, 1025, 0)
        most, more = book.sites()
        self.assertEqual((len(most.frames), most.flags), (1024, 0))
        self.assertEqual((len(more.frames), more.flags), (1024, 2))

    def test_watchers_are_listed(self) -> None:
        book = self.make("sample")
        self.assertEqual(book.watchers(), [])
        self.poke(self.section(book, CONTROL) + 8 + 24, "iIQQ", 77, 1, 5, 6)
        self.assertEqual(book.watchers(), [Watcher(slot=1, pid=77, flags=1, start_ticks=5, pid_ns=6)])

    def test_shard_that_comes_between_passes_counts_as_allocated(self) -> None:
        """Its block was freed in a shard that was there before, and must not be found freed only."""
        book = self.make("sample")
        plain = Book._sum_shards
        calls = []

        def between(self: Book, *arguments: object) -> object:
            sums = plain(self, *arguments)
            calls.append(1)
            if len(calls) == 1:
                test.add_shard(book)
            return sums

        test = self
        self.add_freed(book, 700)
        Book._sum_shards = between  # type: ignore[assignment]
        try:
            t = book.totals()[2]
        finally:
            Book._sum_shards = plain  # type: ignore[method-assign]
        self.assertEqual((t.live_bytes, t.live_blocks), (5000, 3))

    def add_freed(self, book: Book, n: int) -> None:
        at = self.section(book, REGISTRY) + 2 * 256 + 128
        freed, blocks = struct.unpack("=QQ", os.pread(self.fd, 16, at))
        self.poke(at, "QQ", freed + n, blocks + 1)

    def add_shard(self, book: Book) -> None:
        """A third counter page with 700 bytes in one block of account 2."""
        self.poke(self.section(book, COUNTERS) + 2 * 4096 + 2 * 128 + 16, "QQ", 700, 1)
        self.poke(self.section(book, COUNTER_INDEX) + 2 * 16, "II", 1, 0)
        for kind in (COUNTERS, COUNTER_INDEX):
            s = book._sections[kind]
            self.poke(SECTIONS_AT + s.slot * 48 + 24, "QQ", max(4096, 3 * s.entry_size), 3)

    @staticmethod
    def section(book: Book, kind: int) -> int:
        return book._sections[kind].offset

    def test_totals_add_up_all_shards(self) -> None:
        totals = self.make("sample").totals()
        t = totals[2]
        self.assertEqual((t.alloc_bytes, t.freed_bytes, t.live_bytes), (5300, 300, 5000))
        self.assertEqual((t.alloc_blocks, t.freed_blocks, t.live_blocks), (5, 2, 3))
        self.assertEqual((t.alloc_served, t.freed_served, t.reallocs), (5632, 384, 5))
        self.assertEqual((t.moved_in_bytes, t.moved_in, t.moved_out_bytes, t.moved_out), (64, 2, 32, 1))
        self.assertEqual(t.peak_bytes, 5000)
        self.assertEqual(totals[3].live_bytes, 77)

    def test_sites_have_frames_and_counters(self) -> None:
        book = self.make("sample")
        deep, shallow = book.sites()
        self.assertEqual((deep.number, deep.key), (1, 0xFEEDFACE))
        self.assertEqual([f.offset for f in deep.frames], [0x1234, 0x5678])
        self.assertEqual([f.module.path for f in deep.frames if f.module], ["/usr/lib/libtorch.so", ""])
        self.assertEqual(deep.frames[1].module and deep.frames[1].module.build_id, "deadbeef")
        self.assertEqual((deep.live_bytes, deep.live_blocks), (5000, 3))
        self.assertEqual(shallow.frames, ((None, 0x7FFF12345678, 0, None),))
        self.assertTrue(shallow.frames[0].known)
        self.assertEqual((deep.account, shallow.account), (2, 3))
        self.assertEqual(shallow.live_bytes, 77)
        self.assertEqual(book.tags(), ["", "weights"])

    def test_frame_of_an_unknown_sort_is_no_address(self) -> None:
        book = self.make("sample")
        self.poke(self.section(book, FRAMES), "Q", 4095 << 52 | 0x42)
        frame = book.sites()[0].frames[0]
        self.assertEqual((frame.module, frame.known), (None, False))
        answer = book_cli.book_json(book, sites=True, blocks=False)
        self.assertIsNone(answer["sites"][0]["frames"][0]["offset"])

    def test_blocks_are_decoded(self) -> None:
        blocks, exact = self.make("sample").blocks()
        self.assertTrue(exact)
        tick = 1 << 20
        self.assertEqual(sorted(blocks, key=lambda b: b.time_ns), [
            Block(id=0x1000, bytes=1000, account=2, site=1, tag=1, time_ns=5000000000 + tick, moves=0),
            Block(id=0x2000, bytes=4000, account=2, site=1, tag=0, time_ns=5000000000 + 2 * tick, moves=6),
            Block(id=0x1000, bytes=77, account=3, site=2, tag=0, time_ns=5000000000 + 3 * tick, moves=0),
        ])

    def test_block_that_stands_twice_comes_once(self) -> None:
        book = self.make("died-while-moving")
        blocks, exact = book.blocks()
        self.assertEqual(len(blocks), 3)
        self.assertTrue(exact)
        fcntl.flock(self.fd, fcntl.LOCK_EX)  # now somebody may still be moving them
        blocks, exact = book.blocks()
        self.assertEqual(len(blocks), 3)
        self.assertFalse(exact)

    def test_writer_is_alive_while_it_holds_its_lock(self) -> None:
        book = self.make("sample")
        self.assertFalse(book.writer_alive())
        fcntl.flock(self.fd, fcntl.LOCK_EX)
        self.assertTrue(book.writer_alive())
        fcntl.flock(self.fd, fcntl.LOCK_UN)
        self.assertFalse(book.writer_alive())

    def test_longer_entries_of_a_later_version_are_stepped_over(self) -> None:
        book = self.make("longer-entries")
        self.assertEqual(book.identity.version, 2)
        (site,) = book.sites()
        self.assertEqual(site.frames[0].offset, 7)
        (block,), _ = book.blocks()
        self.assertEqual((block.id, block.bytes, block.moves), (1, 2, 3))

    def test_losses_and_states_are_named(self) -> None:
        book = self.make("sample")
        self.poke(128, "II", 3, 2)
        self.poke(152 + 8 * 1, "Q", 17)
        self.poke(152 + 8 * 13, "Q", 18)
        self.poke(152 + 8 * 31, "Q", 19)
        status = book.status()
        self.assertEqual((status.state, status.stop_reason, status.peak_error), (3, 2, 65536))
        self.assertEqual(status.losses, {"sites_full": 17, "unknown_move": 18, "loss_31": 19})

    def test_unfinished_book_asks_to_try_again(self) -> None:
        with self.assertRaises(NotReady):
            self.open()
        with self.assertRaises(NotReady):
            self.make("not-ready")

    def test_what_is_no_book_is_refused(self) -> None:
        for offset, form, value in ((0, "Q", 1), (8, "I", 0x04030201), (12, "H", 0), (14, "H", 4095),
                                    (16, "I", 1 << 31), (24, "Q", 1 << 39), (108, "I", 33)):
            with self.subTest(offset=offset):
                self.make("sample")
                self.poke(offset, form, value)
                with self.assertRaises(BookError):
                    self.open()
        with self.assertRaises(BookError):
            self.make("overlapping")
        with self.assertRaises(BookError):
            Book(os.open("/", os.O_RDONLY))

    def test_strings_are_made_printable(self) -> None:
        self.make("sample")
        os.pwrite(self.fd, b"a\x1b[2J\x7f\xc3\xa4\xff\xc2\x85z....", 488)
        self.assertEqual(self.open().identity.comm, "a?[2J?\u00e4\ufffd?z....")

    def test_reading_makes_no_pages(self) -> None:
        book = self.make("sample")
        before = os.fstat(self.fd).st_blocks
        ask_everything(book)
        self.assertEqual(os.fstat(self.fd).st_blocks, before)

    def test_whole_corpus_gives_answers_or_errors(self) -> None:
        for path in sorted(CORPUS.iterdir()):
            data = path.read_bytes()
            with self.subTest(path=path.name):
                os.ftruncate(self.fd, 0)
                expand(data, self.fd)
                try:
                    book = self.open()
                    ask_everything(book)
                    expand(data, self.fd, late=True)
                    ask_everything(book)
                except BookError:
                    pass


class FindTest(unittest.TestCase):
    def setUp(self) -> None:
        self.root = tempfile.mkdtemp(prefix="memoir-test-python-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, self.root)
        self.place = f"{self.root}/{os.geteuid()}"
        os.mkdir(self.place, 0o700)

    def make(self, name: str) -> str:
        path = f"{self.place}/{name}"
        with open(path, "wb") as out:
            expand((CORPUS / "sample").read_bytes(), out.fileno())
        return path

    def test_books_are_found_below_a_directory(self) -> None:
        path = self.make("1-2-1-a.book")
        self.make("other.dat")
        os.symlink("1-2-1-a.book", f"{self.place}/link.book")
        os.mkfifo(f"{self.place}/fifo.book")
        self.assertEqual(find_places(self.root), [(self.place, os.geteuid())])
        self.assertEqual(list(find_books(self.root)), [path])

    def test_directories_that_are_no_places_are_left_out(self) -> None:
        os.mkdir(f"{self.root}/01")
        os.mkdir(f"{self.root}/name")
        os.chmod(self.place, 0o777)
        self.assertEqual(find_places(self.root), [])
        self.assertEqual(find_places(f"{self.root}/missing"), [])

    def test_program_prints_a_table_and_json(self) -> None:
        path = self.make("1-2-1-a.book")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(book_cli.main(["--dir", self.root]), 0)
        lines = out.getvalue().splitlines()
        self.assertEqual(lines[0].split(), list(book_cli.HEADINGS))
        self.assertIn("NVIDIA H200 0: dram  5.0 kB", lines[1])
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(book_cli.main(["--json", "--sites", "--blocks", path]), 0)
        (answer,) = json.loads(out.getvalue())
        self.assertEqual(answer["accounts"][0]["live_bytes"], 5000)
        self.assertEqual(len(answer["blocks"]), 3)
        self.assertEqual(answer["sites"][0]["frames"][1]["build_id"], "deadbeef")

    def test_program_tells_about_books_that_it_cannot_read(self) -> None:
        with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(book_cli.main([f"{self.root}/none.book"]), 1)
        self.assertIn("none.book", err.getvalue())

    def test_sizes_are_printed_as_elsewhere(self) -> None:
        for n, text in ((0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (25500000, "25.5 MB"), (999960, "1.0 MB")):
            self.assertEqual(book_cli.human(n), text)


if __name__ == "__main__":
    unittest.main()
