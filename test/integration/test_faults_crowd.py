"""Many short processes, and programs that are killed at any moment: nothing stays behind, nothing is wrong.

SOAK=1 (script/soak) runs the long versions: 30,000 processes and a minute of killing."""

import json
import os
import random
import time
import unittest

from daemon_fixture import SANITIZED, DaemonTest
from faults_support import HEAP, PROCESS, FaultTest

SOAK = bool(os.environ.get("SOAK"))
PROCESSES = 30000 if SOAK else 300 if SANITIZED else 3000
KILLING_S = 60 if SOAK else 8
MANY = 64  # books above which the dead go at once: see src/book/sweep.c
HOUR = 3600


class Crowd(FaultTest):
    def crowd(self, n, how):
        crowd = self.start(PROCESS, "crowd", n, how)
        self.assertEqual(crowd.popen.wait(600), 0, crowd.err.lines)

    def test_short_processes_leave_nothing_behind(self):
        self.crowd(PROCESSES, "return")
        self.assertEqual(self.files(), [])

    def test_processes_that_run_no_handlers_leave_few_books(self):
        self.crowd(PROCESSES // 10, "_exit")
        self.assertLess(len(self.files()), 2 * MANY)

    def test_killed_processes_leave_few_books_that_are_swept_later(self):
        self.crowd(PROCESSES // 10, "kill")
        left = len(self.files())
        self.assertTrue(0 < left < 2 * MANY, left)
        self.assertEqual(self.live(self.books()[0], HEAP), (100, 100000))  # a post-mortem
        for path in self.files():
            os.utime(path, (time.time() - 2 * HOUR,) * 2)
        for _ in range(100):  # each sweeps a few
            if not self.files():
                break
            self.crowd(20, "return")
        self.assertEqual(self.files(), [])

    def test_book_of_a_living_process_is_never_swept(self):
        living = self.start(PROCESS, "plain")
        living.told("plain")
        for path in self.files():
            os.utime(path, (0, 0))
        self.crowd(300, "_exit")
        self.assertEqual([b.identity.pid for b in self.books() if b.writer_alive()], [living.pid])


class Killing(DaemonTest):
    """Daemons and clients die at random moments."""

    def setUp(self):
        super().setUp()
        seed = int(os.environ.get("SEED", time.time_ns() % 1000000))
        print(f"# SEED={seed}")
        self.random = random.Random(seed)
        self.clients = []
        self.killed_daemons = 0

    def step(self):
        choice = self.random.random()
        if choice < 0.5 or not self.clients:
            n = self.random.randint(1, 3000)
            client = self.client("device=BH", f"dram={n}x1000", f"free=dram={n // 2}", "ready", "wait", "exit=0",
                                 ready=False)
            client.blocks = n - n // 2
            self.clients.append(client)
        elif choice < 0.6:
            self.daemon_process.kill()
            self.killed_daemons += 1
            self.daemon_process.wait()
            self.daemon_process = self.daemon(ready=self.random.random() < 0.5)
        else:
            client = self.clients.pop(self.random.randrange(len(self.clients)))
            if self.random.random() < 0.7:
                client.kill()
            else:
                client.go_on()
            client.wait()  # also before it has begun

    def records(self):
        """What the daemons remember, and the number of lines that make no sense."""
        path = self.state / "retired.jsonl"
        records, spoilt = [], 0
        for line in path.read_text().splitlines() if path.exists() else []:
            try:
                records.append(json.loads(line))
            except ValueError:
                spoilt += 1
        return records, spoilt

    def strays(self, living):
        """Files of the dead. Whoever dies while he makes a book leaves a file without a word in it, which
        the next writers remove once it cannot be in the making any more."""
        strays = {path for path in self.book_files() if int(path.name.split("-")[0]) not in living}
        for path in strays:
            try:
                if path.stat().st_size == 0 or not path.open("rb").read(8).strip(b"\0"):
                    os.utime(path, (time.time() - 60,) * 2)
                    self.client("heap=1x100000", ready=False).wait()
            except FileNotFoundError:
                pass
        return strays

    def test_killing_at_random_leaves_no_stray_book_and_no_wrong_total(self):
        self.daemon_process = self.daemon()
        end = time.monotonic() + KILLING_S
        while time.monotonic() < end:
            self.step()
        if not self.daemon_process.err.lines:
            self.daemon_process.err.wait("ready: watching")
        for client in self.clients:
            client.out.wait(r"^ready")
        from memoir.book import Book
        living = {client.pid: client.blocks for client in self.clients}
        self.wait_until(lambda: self.strays(living) == set(), "only the books of the living are left")
        for path in self.book_files():
            with Book.open(path) as book:
                blocks, _exact = book.blocks()
                pid = book.identity.pid
                self.assertEqual(len(blocks), living[pid])
                self.assertEqual(sum(t.live_bytes for t in book.totals().values()), 1000 * living[pid])
        records, spoilt = self.records()
        self.assertLessEqual(spoilt, self.killed_daemons)  # the line that one was writing
        for record in records:  # nobody was retired who lives
            self.assertNotIn(record["pid"], living)
        after = len(self.daemon_process.err.lines)
        for client in self.clients:
            client.kill()
        for client in self.clients:
            blocks = living[client.pid]
            line = self.daemon_process.err.wait(rf"\bPID {client.pid} \(.* gone: ", after=after)
            self.assertIn(f"removed {blocks} buffer", line)
        self.wait_until(lambda: not self.book_files(), "no book is left")


if __name__ == "__main__":
    unittest.main()
