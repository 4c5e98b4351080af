"""Programs that leak, and programs that look like it, side by side: what watching them says.

How sure a verdict is depends on how evenly the machine lets the programs run, so on a busy one only false leaks count. SOAK=1
watches for as long as memoir leaks usually does and wants every leak found.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("MEMOIR_SOURCE_ROOT") or pathlib.Path(__file__).parents[2])
sys.path.insert(0, str(ROOT / "test/leaks"))
import leaks  # noqa: E402
from cli_support import BUILD, ENVIRONMENT, MEMOIR  # noqa: E402

TRACKER = BUILD / "src/track/libmemoir-track.so"
SOAK = bool(os.environ.get("SOAK"))
WATCH_S = 60 if SOAK else 6
STEP_MS = 20


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
        programs = [p for p in leaks.programs(BUILD) if p.path.suffix == ".py" or pathlib.Path(p.command(BUILD)[0]).exists()]
        started, processes = {}, []
        for program in programs:
            process = self.start([*program.command(BUILD), str(STEP_MS)], PYTHONMALLOC="malloc", MEMOIR_STACKS="off")
            started[process.pid] = program
            self.line(process, "running")
            processes.append(process)
        for process in processes if not SOAK else ():
            self.line(process, "warm")  # where the machine is slow, filling up would take as long as the watch
        done = memoir_leaks(self.dir)
        return started, done["rows"]

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
                if program.verdict != "none" and (program.by or program.path.suffix == ".py"):
                    self.assertTrue(rows)
                elif program.verdict != "none":
                    self.assertEqual({s["line"] for s in rows}, set(program.lines("LEAK")))


def memoir_leaks(folder, watch_s=WATCH_S):
    done = subprocess.run([str(MEMOIR), "leaks", "--json", "--all", "--dir", str(folder), "--for", f"{watch_s}s", "--needs",
                           f"{watch_s}s"], capture_output=True, text=True, env=ENVIRONMENT, timeout=10 * watch_s + 60,
                          check=False)
    if done.returncode != 0:
        raise AssertionError(f"memoir leaks ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


if __name__ == "__main__":
    unittest.main()
