"""memoir leaks over the programs of test/leaks, each of which leaks, or seems to, in a way of its own: all of them at a
time, tracked, while they run."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

from cli_support import BUILD, MEMOIR, CommandTest

SOURCE = pathlib.Path(os.environ.get("MEMOIR_SOURCE_ROOT", pathlib.Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(SOURCE / "test/leaks"))
import leaks  # noqa: E402

STEP_MS = 10
COLLECTED_STEP_MS = 2  # so that Python's collector comes several times in a watch
WATCHES_S = (5, 8, 12, 20)  # longer each time: on a busy machine the programs take fewer steps in a second


class ProgramsTest(CommandTest):
    def start(self, program):
        # With a summary to write it keeps a book from the first call on, however little it does.
        step_ms = COLLECTED_STEP_MS if program.path.suffix == ".py" else STEP_MS
        stacks = "all" if program.by else "off"  # only a stack tells who called the C library
        run = [MEMOIR, "run", "--quiet", "--json", "/dev/null", "--stacks", stacks, "--dir", self.dir, "--",
               *program.command(BUILD), str(step_ms)]
        process = subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.stdin.close()
        process.terminate()
        process.stdout.close()
        process.wait()

    @staticmethod
    def pids(process):
        """It and its children: what runs is one of them."""
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return {process.pid, *map(int, children)}

    def watch(self, seconds):
        time = f"{seconds}s"
        done = subprocess.run([MEMOIR, "leaks", "--json", "--for", time, "--needs", time, "--dir", self.dir],
                              capture_output=True, text=True, timeout=120, check=True)
        return json.loads(done.stdout)["rows"]

    @staticmethod
    def wrong(program, suspects):
        """What is not as the manifest says, in words."""
        found = [s for s in suspects if s["verdict"] == "leak"]
        if program.verdict == "none":
            return [f"{program.name} called a leak: {s['site']}, {s['why']}" for s in found]
        if not found:
            return [f"{program.name} not found: {[(s['site'], s['why']) for s in suspects]}"]
        if program.by and not any(f"{program.source}:{line} " in frame for line in program.lines("LEAK")
                                  for s in found for frame in s["stack"]):
            return [f"{program.name}: not in the stacks {[s['stack'] for s in found]}"]
        lines = [s["line"] for s in found if s["source_file"] and s["source_file"].endswith(program.source)]
        if program.verdict == "leak" and program.by is None and not set(lines) & set(program.lines("LEAK")):
            return [f"{program.name}: found in lines {lines}, not in {program.lines('LEAK')}"]
        return []

    def test_all_that_leak_are_found_by_their_line_and_no_other(self):
        if not (BUILD / "src/track/libmemoir-track.so").exists():
            self.skipTest("no tracker was built")
        programs = leaks.programs(BUILD)
        started = [(p, self.start(p)) for p in programs]
        for program, process in started:
            self.assertEqual(process.stdout.readline(), "running\n", program.name)
        for seconds in WATCHES_S:
            suspects = self.watch(seconds)
            wrong = [words for program, process in started
                     for words in self.wrong(program, [s for s in suspects if s["pid"] in self.pids(process)])]
            if not wrong:
                break
        self.assertEqual(wrong, [])
        self.assertGreater(len(programs), 40)


if __name__ == "__main__":
    unittest.main()
