"""Memory that never comes: who reads it gives up in time, and the process that has it goes on."""

import os
import pathlib
import subprocess
import time

from api_support import MEMOIR, ApiTest
from cli_support import ENVIRONMENT
from daemon_fixture import BUILD, Process

ABSENT = BUILD / "test/integration/absent"
SITES = BUILD / "test/integration/sites_malloc"
MALLOC = BUILD / "src/malloc/libmemoir-malloc.so"
LIMIT_S = 120  # of what takes seconds; it would never end


class Absent(ApiTest):
    def started(self, program, *command, **environment):
        process = Process([*command, program], env={**os.environ, "MEMOIR_DIR": str(self.books), **environment})
        self.addCleanup(process.close)
        said = process.out.wait("^(ready|none)$")
        if said.strip() == "none":
            self.skipTest("no userfaultfd here")
        return process

    def fails(self, *arguments):
        """What it says on its way out, which it finds."""
        began = time.monotonic()
        done = subprocess.run([MEMOIR, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S,
                              stdin=subprocess.DEVNULL, env=ENVIRONMENT)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        return done.stderr, time.monotonic() - began

    def status(self, process):
        return pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]

    def test_heap_gives_up_after_its_timeout(self):
        process = self.started(ABSENT, LD_PRELOAD=str(MALLOC))
        said, took_s = self.fails("heap", process.pid, "--timeout", "2s")
        self.assertIn("did not answer in time", said)
        self.assertGreaterEqual(took_s, 2)

    def test_a_scan_gives_up_and_lets_the_process_go_on(self):
        process = self.started(ABSENT, MEMOIR, "run", "--quiet", "--track")
        said, _ = self.fails("leaks", "--scan", process.pid, "--dir", self.books)
        self.assertIn("does not answer", said)
        self.assertIn("goes on as before", said)
        self.eventually(lambda: self.status(process), lambda s: s == "S", "it waits, and is not stopped")

    def test_a_scan_at_the_end_gives_up_and_the_program_ends(self):
        done = subprocess.run([MEMOIR, "run", "--quiet", "--track", "--scan", "--lost-code", "9", ABSENT, "leave"],
                              capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL,
                              env={**os.environ, "MEMOIR_DIR": str(self.books)})
        if "none" in done.stdout:
            self.skipTest("no userfaultfd here")
        self.assertIn("does not answer", done.stderr)
        self.assertEqual(done.returncode, 9)

    def test_the_daemon_answers_others_meanwhile(self):
        self.api()
        absent = self.started(ABSENT, MEMOIR, "run", "--quiet", "--track")
        good = self.started(SITES, MEMOIR, "run", "--quiet")
        for process in absent, good:
            self.eventually(lambda: self.get(f"/processes/{process.pid}")["tracking"]["state"],
                            lambda s: s != "none", "it is tracked")
        for _ in range(3):
            self.problem(f"/processes/{absent.pid}/ages", 504, "no-answer")
            self.assertGreater(self.get(f"/processes/{good.pid}/ages")["live_blocks"], 1000)
