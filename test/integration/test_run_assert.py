"""memoir run --assert: one line and an exit status for CI; and CPython, whose objects malloc serves by default."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import stage

stage.build_root()
from cli_support import ENVIRONMENT, MEMOIR, CommandTest  # noqa: E402

LOSE = """
#include <stdlib.h>
#include <string.h>
static void *keep;
static void lose(void) { for (int i = 0; i < 100; i++) memset(malloc(1000), 1, 1000); }
int main(int argc, char **argv) {
    keep = malloc(5000000);
    memset(keep, 1, 5000000);
    lose();
    return argc > 1 ? atoi(argv[1]) : 0;
}
"""
PRINT = "import os; print(os.environ.get('PYTHONMALLOC'))"
# A Python of a virtual environment, or a shim, would be found by its name; here the file itself is meant.
PYTHON = os.path.realpath(sys.executable)


class RunTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-assert-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def run_it(self, *arguments, **environment):
        return subprocess.run([MEMOIR, "run", "--dir", self.dir, *arguments], capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL, env=ENVIRONMENT | environment, check=False)


class Assertions(RunTest):
    def setUp(self):
        super().setUp()
        self.program = self.folder / "lose"
        subprocess.run(["gcc", "-g", "-O0", "-x", "c", "-", "-o", self.program], input=LOSE, text=True, check=True)

    def test_what_holds_is_silent(self):
        done = self.run_it("--assert", "peak<200MB", "--assert", "live >= 5MB", "--assert", "rss>1MB", "--assert", "blocks!=0",
                           "--assert", "duration<1h", self.program)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_what_does_not_is_told_with_its_site(self):
        done = self.run_it("--assert", "peak<1MB", "--assert", "allocations<50", self.program)
        self.assertEqual(done.returncode, 1)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 2)
        self.assertRegex(lines[0], r"^memoir: assertion 'peak<1MB' failed: peak is 5\.1 MB; .*:7 main held most at the peak, 5\.0 MB$")
        self.assertRegex(lines[1], r"^memoir: assertion 'allocations<50' failed: allocations is 1\d\d; ")

    def test_lost_blocks_need_no_further_option(self):
        done = self.run_it("--quiet", "--assert", "lost=0", "--assert", "lost_blocks=100", self.program)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^memoir: assertion 'lost=0' failed: lost is 100\.0 kB; .*:5 lose lost most, 100\.0 kB\n$")

    def test_the_programs_own_failure_counts_more(self):
        self.assertEqual(self.run_it("--assert", "peak<1MB", self.program, "7").returncode, 7)

    def test_what_is_not_known_does_not_hold(self):
        subprocess.run(["gcc", "-static", "-x", "c", "-", "-o", self.program], input=LOSE, text=True, check=True)
        done = self.run_it("--assert", "peak<1GB", self.program)
        self.assertEqual(done.returncode, 1)
        self.assertIn("assertion 'peak<1GB' failed: peak is not known", done.stderr)

    def test_invalid_ones_start_nothing(self):
        for text, said in (("peka<1MB", "expected one of peak, live"), ("peak~1", "expected <, <="), ("peak<x", "invalid value 'x'"),
                           ("peak<", "invalid value ''"), ("blocks<1MB", "invalid value '1MB'")):
            done = self.run_it("--assert", text, "touch", self.folder / "started")
            self.assertEqual(done.returncode, 2, text)
            self.assertIn(said, done.stderr)
        self.assertFalse((self.folder / "started").exists())


class Python(RunTest):
    def told(self, *arguments, **environment):
        done = self.run_it(*arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual("PYTHONMALLOC=malloc is set" in done.stderr, done.stdout == "malloc\n" and "PYTHONMALLOC" not in environment)
        return done.stdout.strip()

    def script(self, first_line):
        path = self.folder / "script"
        path.write_text(f"#!{first_line}\n{PRINT}\n")
        path.chmod(0o755)
        return path

    def test_it_uses_malloc(self):
        self.assertEqual(self.told(PYTHON, "-c", PRINT), "malloc")

    def test_unless_the_user_chose(self):
        self.assertEqual(self.told(PYTHON, "-c", PRINT, PYTHONMALLOC="debug"), "debug")
        self.assertEqual(self.told(PYTHON, "-c", PRINT, PYTHONDEVMODE="1"), "None")
        self.assertEqual(self.told("--keep-pymalloc", PYTHON, "-c", PRINT), "None")
        self.assertEqual(self.told(PYTHON, "-I", "-c", PRINT), "None")

    def test_it_is_found_behind_scripts_and_links(self):
        self.assertEqual(self.told(self.script(PYTHON)), "malloc")
        self.assertEqual(self.told(self.script("/usr/bin/env python3"), PATH=f"{pathlib.Path(PYTHON).parent}:/usr/bin:/bin"), "malloc")
        link = self.folder / "service"
        link.symlink_to(PYTHON)
        self.assertEqual(self.told(link, "-c", PRINT), "malloc")
        self.assertEqual(self.told(self.script(link)), "malloc")

    def test_others_are_left_alone(self):
        self.assertEqual(self.told("sh", "-c", "echo ${PYTHONMALLOC:-None}"), "None")

    def test_small_objects_are_in_the_figures(self):
        program = "kept = [{'key': i} for i in range(100000)]"
        self.assertEqual(self.run_it("--quiet", "--assert", "peak>20MB", PYTHON, "-c", program).returncode, 0)
        self.assertEqual(self.run_it("--quiet", "--keep-pymalloc", "--assert", "peak>20MB", PYTHON, "-c", program).returncode, 1)


class Outside(RunTest):
    """What malloc does not see is told, too."""

    def test_the_summary_tells_what_was_resident(self):
        program = "import time; kept = [{'key': i} for i in range(200000)]; time.sleep(2)"
        done = self.run_it("--keep-pymalloc", "--summary", PYTHON, "-c", program)
        self.assertRegex(done.stderr, r"memoir: of .* resident after .*: CPython arenas \(pymalloc\) [2-9]\d\.\d MB, ")
        file = self.folder / "summary.json"
        self.run_it("--keep-pymalloc", "--quiet", "--json", file, PYTHON, "-c", program)
        told = json.loads(file.read_text())
        self.assertEqual(sum(told["explain"]["kinds"].values()), told["explain"]["rss"])
        self.assertGreater(told["explain"]["kinds"]["runtime"], 20_000_000)
        self.assertIsNone(told["outside_growth"])

    def test_growth_outside_malloc_is_told_with_its_owner(self):
        # By the clock, not by rounds: on a busy machine rounds take longer, and growth would seem to slow down. And fast,
        # since a start of Python that takes longer than a second is a step beside it. At its exit Python frees it all.
        program = ("import time\nkept, begin = [], time.monotonic()\nwhile (s := time.monotonic() - begin) < 14:\n"
                   "  while len(kept) < s * 20000: kept.append({'a': len(kept), 'b': str(s)})\n  time.sleep(0.02)\n")
        done = self.run_it("--keep-pymalloc", "--summary", "--needs", "8s", PYTHON, "-c", program)
        self.assertRegex(done.stderr, r"memoir: RSS grows by \d+\.\d MB/min, .*/min of it in the heap; growing part: CPython arenas")


if __name__ == "__main__":
    unittest.main()
