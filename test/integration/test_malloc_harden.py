"""Hardening: every crime against the heap is named, with the stacks of who allocated and who freed, and nothing else is."""

import os
import pathlib
import re
import signal
import subprocess
import unittest

BUILD = pathlib.Path(os.environ.get("MEMOIR_BUILD_ROOT") or pathlib.Path(__file__).parents[2] / "build")
LIBRARY = BUILD / "src/malloc/libmemoir-malloc.so"
CRIMES = BUILD / "test/integration/crimes"
NOT_CAUGHT = "not caught\n"


def commit(crime, settings, program=CRIMES):
    """The program's status, what it said, and what the allocator said."""
    env = {**os.environ, "LD_PRELOAD": str(LIBRARY), "MEMOIR_MALLOC": settings}
    result = subprocess.run([program, crime], env=env, capture_output=True, text=True, check=False, timeout=120)
    return result.returncode, result.stdout, result.stderr


def functions(stack):
    """Names of the functions of the lines MODULE+0xOFFSET."""
    names = []
    for module, offset in re.findall(r"^    (\S+)\+(0x[0-9a-f]+)$", stack, re.MULTILINE):
        if pathlib.Path(module).name == CRIMES.name:
            out = subprocess.run(["addr2line", "-f", "-e", module, offset], capture_output=True, text=True, check=True)
            names.append(out.stdout.split("\n", maxsplit=1)[0])
    return names


def section(message, title):
    found = re.search(rf"^  {title}:\n((?:    .*\n)+)", message, re.MULTILINE)
    return functions(found[1]) if found else None


class Crimes(unittest.TestCase):
    def assert_named(self, crime, level, pattern):
        status, said, message = commit(crime, f"harden={level}")
        self.assertEqual(status, -signal.SIGABRT, (crime, level, said, message))
        self.assertRegex(message, rf"^memoir-malloc: {pattern}")
        return message

    def assert_ends(self, crime, level):
        status, said, _ = commit(crime, f"harden={level}")
        self.assertEqual((status, said), (-signal.SIGSEGV, ""), (crime, level))

    def assert_both_frees(self, message, second="crime_free_second", first="crime_free_first"):
        self.assertIn(second, section(message, "now by"))
        self.assertIn(first, section(message, "freed before by"))
        self.assertIn("crime_allocate", section(message, "allocated by"))

    def test_double_free_names_three_stacks(self):
        for level in (1, 2, 3):
            for crime, size in (("double_free", 24), ("double_free_threads", 24), ("double_free_large", 100000),
                                ("double_free_huge", 5 << 20)):
                with self.subTest(crime=crime, level=level):
                    message = self.assert_named(crime, level, f"double free of a block of {size} bytes at 0x")
                    self.assert_both_frees(message)

    def test_free_after_realloc_names_who_called_realloc(self):
        for level in (1, 2, 3):
            with self.subTest(level=level):
                message = self.assert_named("double_free_realloc", level, "double free of a block of 24 bytes")
                self.assert_both_frees(message, first="double_free_realloc")

    def test_free_inside_a_block_tells_how_far(self):
        for level in (1, 2, 3):
            message = self.assert_named("free_inside", level, "free of an address inside a block.* 16 bytes into one of 100")
            self.assertIn("crime_allocate", section(message, "allocated by"))
            self.assert_named("free_inside_large", level, ".* 150000 bytes into one of 200000")

    def test_free_of_what_is_no_block(self):
        for level in (1, 2, 3):
            for crime in ("free_stack", "free_static", "free_wild"):
                message = self.assert_named(crime, level, "free of something that this program's heap does not have")
                self.assertIn("crime_free_first", section(message, "now by"))

    def test_free_of_what_is_no_block_without_hardening(self):
        for crime in ("free_stack", "free_static", "free_wild"):
            message = self.assert_named(crime, 0, r"free of an invalid pointer at 0x[0-9a-f]+: not allocated by this heap")
            self.assertIn("crime_free_first", section(message, "now by"))

    def test_write_beyond_the_end_is_found_by_free_and_realloc(self):
        for level in (1, 2, 3):
            for crime, size in (("overrun_by_one", 24), ("overrun_realloc", 24), ("overrun_large", 70001)):
                message = self.assert_named(crime, level, f"write beyond the end of a block of {size} bytes at .*, byte {size}")
                self.assertIn("crime_allocate", section(message, "allocated by"))

    def test_a_long_write_beyond_the_end_is_found_though_it_takes_the_record(self):
        for level in (1, 2):
            message = self.assert_named("overrun_long", level, "what follows a block was overwritten at")
            self.assertIn("crime_free_first", section(message, "found by"))

    def test_write_after_free_is_found_when_the_block_leaves_the_quarantine(self):
        message = self.assert_named("write_after_free", 2, "write after free into a block of 40 bytes at .*, byte 8")
        self.assertIn("crime_free_first", section(message, "freed before by"))
        self.assertIn("crime_allocate", section(message, "allocated by"))

    def test_guards_end_the_program_where_it_happens(self):
        for crime in ("touch_beyond_page", "touch_before_page", "touch_after_free_page", "touch_beyond_huge"):
            with self.subTest(crime=crime):
                self.assert_ends(crime, 3)

    def test_the_innocent_are_left_alone(self):
        for settings in ("", "harden=1", "harden=2", "harden=3", "zero_free=1", "harden=2,zero_free=1,quarantine=64K"):
            with self.subTest(settings=settings):
                self.assertEqual(commit("innocent", settings), (0, NOT_CAUGHT, ""))

    def test_a_crime_is_no_matter_without_hardening(self):
        self.assertEqual(commit("overrun_by_one", ""), (0, NOT_CAUGHT, ""))

    def test_python_runs_hardened(self):
        code = "import json, threading; print(len(json.dumps([str(i) * 9 for i in range(9999)])))"
        for level in (0, 1, 2, 3):
            env = {**os.environ, "LD_PRELOAD": str(LIBRARY), "MEMOIR_MALLOC": f"harden={level}", "PYTHONMALLOC": "malloc"}
            out = subprocess.run(["/usr/bin/python3", "-c", code], env=env, capture_output=True, text=True, check=False)
            self.assertEqual((out.returncode, out.stdout, out.stderr), (0, "389970\n", ""), level)


class Default(unittest.TestCase):
    """What is seen without hardening: with accounting, as `memoir run` has it, all that glibc sees; else what costs nothing."""

    def assert_seen(self, crime, settings, pattern, by):
        status, said, message = commit(crime, settings)
        self.assertEqual(status, -signal.SIGABRT, (crime, settings, said, message))
        self.assertRegex(message, rf"^memoir-malloc: {pattern}")
        self.assertIn(by, section(message, "now by"))
        return message

    def test_accounting_names_who_allocated_the_block(self):
        for crime, pattern, by in (
                ("double_free", "double free of a block of 24 bytes", "crime_free_second"),
                ("double_free_warm", "double free of a block of 24 bytes", "crime_free_second"),
                ("double_free_later", "double free of a block of 24 bytes", "crime_free_second"),
                ("double_free_realloc", "double free of a block of 24 bytes", "crime_free_second"),
                ("double_free_threads", "double free of a block of 24 bytes", "crime_free_second"),
                ("free_inside", "free of an invalid pointer, 16 bytes into a block of 100 bytes", "crime_free_first"),
                ("free_inside_warm", "free of an invalid pointer, 48 bytes into a block of 100 bytes", "crime_free_first"),
                ("free_inside_odd", "free of an invalid pointer, 8 bytes into a block of 100 bytes", "crime_free_first"),
                ("realloc_inside", "realloc of an invalid pointer, 16 bytes into a block of 100 bytes", "realloc_inside"),
                ("realloc_freed", "realloc of a freed block of 100 bytes", "realloc_freed")):
            with self.subTest(crime=crime):
                message = self.assert_seen(crime, "account=1", pattern, by)
                found = re.search(r"^memoir-malloc: .* at 0x[0-9a-f]+, allocated by (\S+\+0x[0-9a-f]+)\n", message)
                self.assertIsNotNone(found, message)
                self.assertEqual(functions(f"    {found[1]}"), ["crime_allocate"])

    def test_what_costs_nothing_is_seen_without_accounting(self):
        for crime, pattern, by in (
                ("double_free_warm", "double free of a block of", "crime_free_second"),
                ("free_inside_odd", "free of an invalid pointer, 8 bytes into a block of", "crime_free_first"),
                ("realloc_inside", "realloc of an invalid pointer, 16 bytes into a block of", "realloc_inside"),
                ("realloc_freed", "realloc of a freed block of", "realloc_freed")):
            with self.subTest(crime=crime):
                self.assert_seen(crime, "", pattern, by)

    def test_blocks_of_large_and_huge_sizes(self):
        for settings in ("", "account=1"):
            for crime in ("double_free_large", "double_free_huge", "free_inside_large"):
                with self.subTest(crime=crime, settings=settings):
                    self.assert_seen(crime, settings, "free of an invalid pointer at", "crime_free_second" if "double" in crime else "crime_free_first")

    def test_the_innocent_are_left_alone(self):
        self.assertEqual(commit("innocent", "account=1"), (0, NOT_CAUGHT, ""))


if __name__ == "__main__":
    unittest.main()
