"""Programs that know what they hold (test/leaks): the tracker says of every line what the program itself says."""

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
# What the programs count, and what memoir run --json calls it.
FIGURES = {"alloc_blocks": "allocated_blocks", "alloc_bytes": "allocated", "live_blocks": "blocks", "live_bytes": "bytes"}


class TruthTest(unittest.TestCase):
    flag = "--track"

    @classmethod
    def setUpClass(cls):
        if not TRACKER.exists():
            raise unittest.SkipTest("this build has no tracker")

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-truth-", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def track(self, program, *flags):
        """What the program says of itself, and what memoir run says of it."""
        out = self.dir / "out.json"
        done = subprocess.run([str(MEMOIR), "run", self.flag, "--dir", str(self.dir), "--json", str(out), *flags, "--",
                               *program.command(BUILD)], capture_output=True, text=True, env=ENVIRONMENT, timeout=60,
                              stdin=subprocess.DEVNULL, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        document = json.loads(out.read_text(encoding="utf-8"))
        self.assertTrue(document["tracked"])
        self.assertEqual(document["losses"], 0)
        return done.stdout, document

    @staticmethod
    def programs():
        """Those that tell the truth about themselves and were built."""
        return [p for p in leaks.programs() if p.path.suffix != ".py" and pathlib.Path(p.command(BUILD)[0]).exists()]


def by_line(document, source):
    """Figures of the lines of a source file that call the allocator themselves, not through a library's function."""
    lines = {}
    for site in document["sites"]:
        if site["line"] and not site["via"] and pathlib.Path(site["source_file"]).name == source:
            sums = lines.setdefault(site["line"], dict.fromkeys(FIGURES, 0))
            for figure in FIGURES:
                sums[figure] += site[FIGURES[figure]]
    return lines


class Lines(TruthTest):
    """Counts and bytes of every line, exactly."""

    def compare(self, *flags, part=1):
        for program in self.programs()[::part]:
            if program.by:
                continue
            with self.subTest(program.name):
                output, document = self.track(program, *flags)
                truth = leaks.truth(output)
                told = by_line(document, program.path.name)
                self.assertEqual({line: {f: entry[f] for f in FIGURES} for line, entry in truth.items()}, told)
                self.assertEqual(leaks.held(truth, program.lines("LEAK")), program.leaked)
                self.assertEqual(leaks.held(truth, program.lines("HELD")), program.held)

    def test_by_caller(self):
        self.compare("--stacks", "off")

    def test_with_sampled_stacks(self):
        self.compare("--sample", "1K", part=3)

    def test_with_all_stacks(self):
        self.compare("--stacks", "all", part=3)


class InLibc(TruthTest):
    """Where the C library allocates in the name of a line, what it holds is what the line holds."""

    def test_what_the_library_holds(self):
        for program in self.programs():
            if program.by != "libc":
                continue
            with self.subTest(program.name):
                output, document = self.track(program, "--stacks", "off")
                held = {"blocks": 0, "bytes": 0}
                for site in document["sites"]:
                    self.assertIn("libc.so", site["frame"])
                    held["blocks"] += site["blocks"]
                    held["bytes"] += site["bytes"]
                self.assertEqual(held, program.leaked)
                self.assertEqual(leaks.held(leaks.truth(output), program.lines("LEAK")), program.leaked)


class Manifest(unittest.TestCase):
    """Others rely on it."""

    def test_every_program_has_its_marks(self):
        programs = leaks.programs()
        self.assertGreaterEqual(len(programs), 30)
        self.assertEqual(len({p.name for p in programs}), len(programs))
        for program in programs:
            with self.subTest(program.name):
                self.assertIn(program.verdict, ("leak", "growth", "none"))
                self.assertIn(program.scan, ("lost", "reachable", "hidden", "none"))
                self.assertEqual(bool(program.lines("LEAK")), program.verdict != "none")
                reachable = {detail == "reachable" for kind, detail in program.marks.values() if kind == "LEAK"}
                if reachable:
                    self.assertEqual(reachable, {program.verdict == "growth"})
                if program.path.suffix != ".py":
                    self.assertEqual(program.leaked["blocks"] > 0, program.verdict != "none")

    def test_every_source_is_in_it(self):
        sources = {p.source for p in leaks.programs()} | {"count.c", "cpp_lines.cpp", "dlopen_plugin.c", "keeper.c", "leaks.py", "life.c",
                                                        "made_code.c"}
        here = {p.name for p in leaks.FOLDER.iterdir() if p.suffix in (".c", ".cpp", ".py", ".rs")}
        self.assertEqual(sources, here)


if __name__ == "__main__":
    unittest.main()
