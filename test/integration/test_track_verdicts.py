"""Programs that leak, and programs that look like it, side by side: what watching them says. And churn: no drift, ever.

How sure a verdict is depends on how evenly the machine lets the programs run, so on a busy one only false leaks count. SOAK=1
watches for as long as memoir leaks usually does and wants every leak found; SOAK_CHURN_S is how long the churn is (an hour).
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(os.environ.get("MEMOIR_SOURCE_ROOT") or pathlib.Path(__file__).parents[2])
sys.path.insert(0, str(ROOT / "test/leaks"))
import leaks  # noqa: E402
from cli_support import BUILD, ENVIRONMENT, MEMOIR  # noqa: E402
from faults_support import Book  # noqa: E402

TRACKER = BUILD / "src/track/libmemoir-track.so"
SOAK = bool(os.environ.get("SOAK"))
WATCH_S = 60 if SOAK else 6
STEP_MS = 20
CHURN_S = int(os.environ.get("SOAK_CHURN_S", 3600)) if SOAK else 3
SITE_SAMPLED = 4


class WatchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not TRACKER.exists():
            raise unittest.SkipTest("this build has no tracker")

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-verdicts-", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def start(self, command, **variables):
        """The program itself, under the tracker, with its book from the first call on."""
        environment = ENVIRONMENT | {"LD_PRELOAD": str(TRACKER), "MEMOIR_DIR": str(self.dir), **variables}
        process = subprocess.Popen(["sh", "-c", 'export MEMOIR_KEEP=$$; exec "$@"', "sh", *command], env=environment,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.communicate()

    def line(self, process, wanted):
        for text in process.stdout:
            if text.strip() == wanted:
                return
        self.fail(f"the program ended before it said '{wanted}'")


class Verdicts(WatchTest):
    def watch(self):
        programs = [p for p in leaks.programs() if p.path.suffix == ".py" or pathlib.Path(p.command(BUILD)[0]).exists()]
        started, processes = {}, []
        for program in programs:
            process = self.start([*program.command(BUILD), str(STEP_MS)], PYTHONMALLOC="malloc", MEMOIR_STACKS="off")
            started[process.pid] = program
            self.line(process, "running")
            processes.append(process)
        for process in processes if not SOAK else ():
            self.line(process, "warm")  # where the machine is slow, filling up would take as long as the watch
        done = memoir_leaks(self.dir)
        return started, done["suspects"]

    def test_nothing_else_is_called_a_leak(self):
        started, suspects = self.watch()
        self.assertEqual({s["pid"] for s in suspects} - set(started), set())
        for suspect in suspects:
            program = started[suspect["pid"]]
            if suspect["verdict"] == "leak" and program.path.suffix != ".py":
                with self.subTest(program.name):
                    self.assertNotEqual(program.verdict, "none", suspect)
                    if not program.by:
                        self.assertIn(suspect["line"], program.lines("LEAK"), suspect)
            if suspect["verdict"] == "leak" and program.path.suffix == ".py":
                self.assertNotEqual(program.verdict, "none", suspect)
        if SOAK:
            self.every_leak_is_found(started, suspects)

    def every_leak_is_found(self, started, suspects):
        for pid, program in started.items():
            rows = [s for s in suspects if s["pid"] == pid and s["verdict"] in ("leak", "growing")]
            with self.subTest(program.name):
                if getattr(program, "leaked", {}).get("bytes") == 0:
                    continue  # grows in blocks only, and a verdict is about bytes
                if program.verdict != "none" and (program.by or program.path.suffix == ".py"):
                    self.assertTrue(rows)
                elif program.verdict != "none":
                    self.assertEqual({s["line"] for s in rows}, set(program.lines("LEAK")))


def memoir_leaks(folder):
    done = subprocess.run([str(MEMOIR), "leaks", "--json", "--all", "--dir", str(folder), "--for", f"{WATCH_S}s", "--needs",
                           f"{WATCH_S}s"], capture_output=True, text=True, env=ENVIRONMENT, timeout=10 * WATCH_S + 60,
                          check=False)
    if done.returncode != 0:
        raise AssertionError(f"memoir leaks ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


class Churn(WatchTest):
    """Threads allocate, resize, hand over and free without a pause: the book says what they say, whenever one looks."""

    def told(self, process):
        process.stdin.write("\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    def counted(self, pid):
        """What the book says of the program's own code."""
        paths = [p for p in self.dir.glob("*/*.book") if p.name.startswith(f"{pid}-")]
        sums = [0, 0, 0, 0]
        for path in paths:
            with Book.open(path) as book:
                if "leak_churn" not in book.identity.exe:
                    continue
                for site in book.sites():
                    if site.flags & SITE_SAMPLED or not site.frames or not site.frames[0].module:
                        continue
                    if site.frames[0].module.path in ("", book.identity.exe):
                        for i, value in enumerate((site.alloc_blocks, site.alloc_bytes, site.freed_blocks, site.freed_bytes)):
                            sums[i] += value
        return sums

    def test_book_and_truth_never_drift_apart(self):
        process = self.start([str(BUILD / "test/leaks/leak_churn"), "4"], MEMOIR_STACKS="sampled")
        end, looks = time.monotonic() + CHURN_S, 0
        while time.monotonic() < end or looks < 3:
            told = self.told(process)
            self.assertEqual(self.counted(process.pid), told)
            process.stdin.write("\n")
            process.stdin.flush()
            looks += 1
            time.sleep(min(0.5, CHURN_S / 10))
        self.assertGreater(told[0], 10000)


if __name__ == "__main__":
    unittest.main()
