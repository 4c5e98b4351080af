"""Looking inside the heap: checks that find what is broken and nothing else, dumps, addresses explained, memory by node."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("MEMOIR_SOURCE_ROOT") or pathlib.Path(__file__).parents[2])
BUILD = pathlib.Path(os.environ.get("MEMOIR_BUILD_ROOT") or ROOT / "build")
TOOLS = BUILD / "test/integration/tools"
CRIMES = BUILD / "test/integration/crimes"


def run(case, settings="", before=()):
    """Its status, and what it and the allocator said. Linked with the library, nothing is preloaded."""
    env = {**os.environ, "MEMOIR_MALLOC": settings}
    result = subprocess.run([*before, TOOLS, case], env=env, capture_output=True, text=True, check=False, timeout=150)
    return result.returncode, result.stdout, result.stderr


class Check(unittest.TestCase):
    def test_finds_nothing_wrong_with_a_heap_in_use(self):
        for settings in ("", "harden=1", "harden=2", "harden=3"):
            with self.subTest(settings=settings):
                self.assertEqual(run("whole", settings), (0, "ok\n", ""))

    def test_finds_nothing_wrong_while_others_allocate(self):
        for settings in ("", "harden=2"):
            with self.subTest(settings=settings):
                self.assertEqual(run("whole_with_threads", settings), (0, "ok\n", ""))

    def test_finds_a_free_list_that_was_overwritten(self):
        status, said, _ = run("broken_list")
        self.assertEqual(status, 0, said)
        self.assertRegex(said, r"memoir-malloc: check: free list leaves its slab")

    def test_finds_a_write_beyond_the_end_before_the_block_is_freed(self):
        for level in (1, 2, 3):
            status, said, _ = run("broken_canary", f"harden={level}")
            self.assertEqual(status, 0, said)
            self.assertRegex(said, r"write beyond the end of a block, at byte at 0x[0-9a-f]+: 40")


class Dump(unittest.TestCase):
    def test_tells_from_a_signal_handler_what_there_is(self):
        status, said, _ = run("dump")
        self.assertEqual(status, 0)
        sizes = {int(size): (int(used), int(made)) for size, used, made in
                 re.findall(r"^  blocks of (\d+): (\d+) used of (\d+) made, in \d+ slabs of \d+ KiB$", said, re.MULTILINE)}
        self.assertGreater(len(sizes), 15)
        for size, (used, made) in sizes.items():
            self.assertLessEqual(used, made, size)
        # 800 blocks, nearly all of up to 3,000 bytes.
        self.assertTrue(700 <= sum(used for used, _ in sizes.values()) <= 820, said)
        self.assertRegex(said, r"(?m)^first blocks, side by side: \d+ used, \d+ bytes$")
        self.assertRegex(said, r"(?m)^node 0: \d+ KiB mapped, \d+ KiB in slabs")
        self.assertRegex(said, r"(?m)^heap of thread \d+: \d+ slabs")

    def test_waits_for_nobody(self):
        status, said, _ = run("dump_with_threads")
        self.assertEqual(status, 0, said)
        self.assertTrue(said.endswith("ok\n"))

    def test_explains_an_address(self):
        _, said, _ = run("explain")
        self.assertRegex(said, r"(?m)^0x[0-9a-f]+: 30 bytes into a block of 1\d\d bytes at 0x[0-9a-f]+$")
        self.assertRegex(said, r"(?m)^0x[0-9a-f]+: no memory of this heap$")

    def test_explains_who_allocated_and_who_freed(self):
        _, said, _ = run("explain", "harden=1")
        self.assertRegex(said, r"  live, 100 bytes asked\n  allocated by:\n    \S+/tools\+0x")
        self.assertRegex(said, r"  freed, 200 bytes asked\n  allocated by:\n(    .*\n)+  freed by:\n    \S+/tools\+0x")


@unittest.skipUnless(shutil.which("gdb"), "gdb is not installed")
class Debugger(unittest.TestCase):
    """Without running code of the program: the same of it alive and of its core."""

    def gdb(self, *commands, target=("--args", TOOLS, "wait_for_debugger"), settings=""):
        script = ROOT / "src/malloc/memoir-malloc-gdb.py"
        words = ["gdb", "-q", "-batch", "-nx", "-iex", "set debuginfod enabled off", "-iex", "set startup-with-shell off"]
        for command in commands:
            words += ["-ex", command.replace("SCRIPT", f"source {script}")]
        env = {**os.environ, "MEMOIR_MALLOC": settings}
        result = subprocess.run([*words, *target], env=env, capture_output=True, text=True, check=False, timeout=150)
        if "ptrace" in result.stderr:
            self.skipTest("gdb may not trace here")
        return result.stdout + result.stderr

    def heap(self, said):
        return re.findall(r"(?m)^(?:node|  blocks of|  large blocks|heap of thread) .*$", said)

    def test_shows_the_heap_of_a_process_and_of_its_core(self):
        with tempfile.TemporaryDirectory() as folder:
            core = f"{folder}/core"
            alive = self.gdb("run", "SCRIPT", "memoir heap", "memoir block last", "memoir block first", f"generate-core-file {core}")
            dead = self.gdb("SCRIPT", "memoir heap", target=(TOOLS, core))
        self.assertGreater(len(self.heap(alive)), 15, alive)
        self.assertEqual(self.heap(alive), self.heap(dead))
        self.assertRegex(alive, r"0 bytes into a block of 1\d\d\d bytes at 0x[0-9a-f]+: used;")
        self.assertRegex(alive, r"0 bytes into a block of 96 bytes at 0x[0-9a-f]+: used; one of the first ones")

    def test_names_who_allocated_a_block_of_a_hardened_program(self):
        said = self.gdb("run", "SCRIPT", "memoir block last", settings="harden=1")
        self.assertRegex(said, r"1234 bytes asked\n  allocated by:\n    0x[0-9a-f]+ wait_for_debugger ")

    def test_calls_the_check(self):
        said = self.gdb("run", "call (int)memoir_malloc_check(2)")
        if "extended state" in said and "$1" not in said:
            self.skipTest("this gdb cannot call functions on this processor: it does not know all of its registers")
        self.assertIn("$1 = 0", said)


@unittest.skipUnless(shutil.which("valgrind"), "valgrind is not installed")
class Memcheck(unittest.TestCase):
    """With our malloc() in its place, and with Valgrind's own before it."""

    OURS = "--soname-synonyms=somalloc=nouserintercepts"

    def setUp(self):
        # It refuses to start where the C library's symbols are not to be had.
        if subprocess.run(["valgrind", "-q", "/bin/true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("valgrind does not start here")
        if b"-DHAVE_VALGRIND" not in (BUILD / "build.ninja").read_bytes():
            self.skipTest("built without valgrind/memcheck.h")

    def commit(self, crime, *options):
        library = BUILD / "src/malloc/libmemoir-malloc.so"
        env = {**os.environ, "LD_PRELOAD": str(library)}
        words = ["valgrind", self.OURS, "--error-exitcode=9", *options, CRIMES, crime]
        result = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=150)
        return result.returncode, result.stderr

    def assert_told(self, crime, pattern, *options):
        status, said = self.commit(crime, *options)
        self.assertEqual(status, 9, said)
        self.assertRegex(said, pattern)
        self.assertRegex(said, r"ERROR SUMMARY: 1 errors")

    def test_blocks_are_understood(self):
        self.assert_told("overrun_by_one", r"Invalid write of size 1\n(.*\n)*.* 0 bytes after a block of size 24 alloc'd")
        self.assert_told("double_free", r"Invalid free\(\)(.*\n)*.* 0 bytes inside a block of size 24 free'd")
        self.assert_told("read_before_written", r"Conditional jump or move depends on uninitialised value")
        self.assert_told("lost", r"777 bytes in 1 blocks are definitely lost", "--leak-check=full")

    def test_nothing_is_told_of_a_program_that_does_nothing_wrong(self):
        for options in ((), (self.OURS,)):
            for case in ("whole", "node_blocks"):
                with self.subTest(options=options, case=case):
                    status, said, errors = run(case, before=("valgrind", "-q", "--error-exitcode=9", *options))
                    self.assertEqual((status, said), (0, "ok\n"), errors)


class Nodes(unittest.TestCase):
    def test_memory_by_node_is_memory_like_any_other(self):
        for settings in ("", "numa=off", "harden=1"):
            with self.subTest(settings=settings):
                self.assertEqual(run("nodes", settings), (0, "ok\n", ""))


if __name__ == "__main__":
    unittest.main()
