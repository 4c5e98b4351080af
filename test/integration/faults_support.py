"""What the fault tests share: the programs of faults/, a private place for books, books read in Python."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from daemon_fixture import BUILD, PATIENCE_S, SANITIZED, Process, needs_root  # noqa: F401

SOURCE = pathlib.Path(os.environ.get("MEMOIR_SOURCE_ROOT", pathlib.Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(SOURCE / "clients/python"))
from memoir.book import Book  # noqa: E402

PROCESS = BUILD / "test/integration/fault_process"
LIMITS = BUILD / "test/integration/fault_limits"
MEMOIR = BUILD / "src/cli/memoir"
NOBODY = 65534
IDLE, EARLY, OPEN, OFF = range(4)  # enum memoir_state
HEAP, DRAM = 1, 16


def not_sanitized(reason):
    return unittest.skipIf(SANITIZED, reason)


class Fault(Process):
    """A program of faults/ that answers in lines of JSON."""

    def told(self, who, count=1):
        return json.loads(self.out.wait(rf'"who":"{who}"', count))

    def go_on(self):
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()


class FaultTest(unittest.TestCase):
    def setUp(self):
        self.dir = self.folder_in("/dev/shm")
        self.dir.chmod(0o1777)

    def folder_in(self, where):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-fault-", dir=where))
        self.addCleanup(shutil.rmtree, folder, True)
        return folder

    def environment(self, **more):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MEMOIR_") and k != "XDG_RUNTIME_DIR"}
        return environment | {"MEMOIR_DIR": str(self.dir),
                              "LD_LIBRARY_PATH": str(BUILD.resolve() / "src/client")} | more

    def start(self, program, *arguments, prefix=(), environment=None, **options):
        fault = Fault([*prefix, program, *arguments], env=environment or self.environment(), **options)
        self.addCleanup(fault.close)
        return fault

    def run_to_end(self, program, *arguments, status=0, **options):
        """Start, wait for the end, and give what it told (or None) with the lines after it."""
        fault = self.start(program, *arguments, stdin=subprocess.DEVNULL, **options)
        self.assertEqual(fault.wait(), status, fault.err.lines)
        lines = fault.out.lines
        return (json.loads(lines[0]) if lines else None), lines[1:]

    def files(self):
        return sorted(self.dir.glob("*/*.book"))

    def books(self):
        """All books there are, open until the end of the test, oldest first."""
        books = [Book.open(path) for path in self.files()]
        for book in books:
            self.addCleanup(book.close)
        return sorted(books, key=lambda b: b.identity.created_monotonic_ns)

    def live(self, book, space=DRAM):
        """(blocks, bytes) of a space, which must be in the table too."""
        accounts = {a.record for a in book.accounts() if a.space == space}
        totals = [t for record, t in book.totals().items() if record in accounts]
        blocks, _exact = book.blocks()
        blocks = [b for b in blocks if b.account in accounts]
        sums = (sum(t.live_blocks for t in totals), sum(t.live_bytes for t in totals))
        self.assertEqual((len(blocks), sum(b.bytes for b in blocks)), sums)
        return sums

    def ps(self):
        done = subprocess.run([MEMOIR, "ps", "--all", "--json", "--dir", self.dir], capture_output=True, text=True,
                              env=self.environment(), timeout=PATIENCE_S, check=True)
        return json.loads(done.stdout)["rows"]
