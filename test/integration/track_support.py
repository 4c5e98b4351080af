"""What the tests of libmemoir-track share: programs that count for themselves, and their books."""

import glob
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

from daemon_fixture import BUILD, Process
from faults_support import HEAP, Book



PROGRAMS = BUILD / "test/track"
TRACK = BUILD / "src/track/libmemoir-track.so"
SOURCE_MALLOC, SOURCE_TRACK = 2, 3
CONTROL = 1  # section kind
LIBRARIES = "/usr/lib/*-linux-gnu/"
ALLOCATORS = {"glibc": None, "jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc.so.4",
              "tcmalloc_minimal": "libtcmalloc_minimal.so.4", "mimalloc": "libmimalloc.so.2"}


def library(name):
    found = glob.glob(LIBRARIES + name)
    return found[0] if found else None


class Program(Process):
    def told(self, who, count=1):
        return json.loads(self.out.wait(rf'"who":"{who}"', count))

    def go_on(self):
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()


class TrackTest(unittest.TestCase):
    library, source = TRACK, SOURCE_TRACK  # what is preloaded, and what books say of it
    variables = {}  # what it needs besides

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-track-", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, self.dir, True)
        self.dir.chmod(0o1777)

    def environment(self, preload=None, **more):
        preload = [self.library] if preload is None else preload
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MEMOIR_") and k != "XDG_RUNTIME_DIR"}
        return environment | {"MEMOIR_DIR": str(self.dir), "LD_PRELOAD": ":".join(str(p) for p in preload)} | self.variables | more

    def start(self, program, *arguments, preload=None, settings=None, **options):
        process = Program([PROGRAMS / program, *arguments], env=self.environment(preload, **(settings or {})), **options)
        self.addCleanup(process.close)
        return process

    def start_command(self, command):
        process = Program(command, env=self.environment())
        self.addCleanup(process.close)
        return process

    def set_flags(self, pid, flags):
        """As a daemon would: in the control page, which is the first section."""
        for path in self.dir.glob("*/*.book"):
            with Book.open(path) as book:
                if book.identity.pid == pid:
                    offset = book._sections[CONTROL].offset
            with open(path, "r+b") as file:
                file.seek(offset)
                file.write(flags.to_bytes(4, sys.byteorder))

    def books(self, pid=None):
        books = [Book.open(path) for path in sorted(self.dir.glob("*/*.book"))]
        for book in books:
            self.addCleanup(book.close)
        return [b for b in books if pid in (None, b.identity.pid)]

    def book(self, pid=None):
        books = self.books(pid)
        self.assertEqual(len(books), 1, [b.identity.pid for b in books])
        self.assertEqual(books[0].identity.source, self.source)
        return books[0]

    @staticmethod
    def heap(book):
        """Account and totals of the heap."""
        account = next(a for a in book.accounts() if a.space == HEAP)
        return account, book.totals()[account.record]

    @staticmethod
    def own_sites(book):
        """Sites in the program itself."""
        return [s for s in book.sites() if not s.sampled and s.frames and s.frames[0].module and not s.frames[0].module.path]

    def assert_same(self, book, told):
        """The book says of the program's own code what it counted itself, and its sums add up."""
        sites = self.own_sites(book)
        for name in ("alloc_bytes", "alloc_blocks", "freed_bytes", "freed_blocks"):
            self.assertEqual(sum(getattr(s, name) for s in sites), told[name], name)
        _account, totals = self.heap(book)
        for name in ("alloc_bytes", "alloc_blocks", "freed_bytes", "freed_blocks"):
            self.assertEqual(sum(getattr(s, name) for s in book.sites() if not s.sampled), getattr(totals, name), name)
        # What is freed counts where it was allocated.
        self.assertEqual([s for s in sites if s.freed_bytes > s.alloc_bytes or s.freed_blocks > s.alloc_blocks], [])

    def counts(self, book):
        sites = self.own_sites(book)
        return {name: sum(getattr(s, name) for s in sites)
                for name in ("alloc_bytes", "alloc_blocks", "freed_bytes", "freed_blocks")}

    def losses(self, book):
        return {name: n for name, n in book.status().losses.items() if n}
