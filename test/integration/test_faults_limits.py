"""Processes with little, places that are no good: the accounting stops visibly, the program never."""

import errno
import json
import os
import pathlib
import resource
import subprocess
import unittest

from faults_support import HEAP, LIMITS, NOBODY, OFF, OPEN, PROCESS, FaultTest, needs_root, not_sanitized

MIB = 1 << 20


class Limits(FaultTest):
    def check_off(self, told, error, word):
        self.assertEqual((told["state"], told["error"]), (OFF, error))
        self.assertIn(word, told["reason"])
        self.assertEqual(self.files(), [])

    def test_no_file_may_be_written(self):
        told, _ = self.run_to_end(LIMITS, "fsize", 0)
        self.check_off(told, errno.EFBIG, "ulimit -f")
        self.assertEqual(told["lost"], 2000)

    def test_no_file_may_be_written_any_more(self):
        told, _ = self.run_to_end(LIMITS, "fsize", 0, "early")
        self.check_off(told, errno.EFBIG, "ulimit -f")

    def test_small_files_hold_small_books(self):
        told, _ = self.run_to_end(LIMITS, "fsize", 32 * MIB)
        self.assertEqual((told["state"], told["live_blocks"], told["lost"]), (OPEN, 2000, 0))

    @not_sanitized("the leak checker needs descriptors")
    def test_no_descriptor_is_left(self):
        told, _ = self.run_to_end(LIMITS, "nofile")
        self.check_off(told, errno.EMFILE, "ulimit -n")

    @not_sanitized("sanitizers reserve terabytes")
    def test_little_address_space_is_mostly_left_to_the_program(self):
        for bytes_ in (256 * MIB, 1024 * MIB):
            told, _ = self.run_to_end(LIMITS, "as", bytes_)
            self.assertEqual((told["state"], told["live_blocks"], told["lost"]), (OPEN, 5000, 0))

    @needs_root
    @not_sanitized("sanitizers make mlockall() do nothing")
    def test_locked_memory_does_not_fill_the_reserve(self):
        for when in ("before", "after"):
            told, lines = self.run_to_end(LIMITS, "mlock", when)
            self.assertEqual((told["live_blocks"], told["lost"]), (2000, 0))
            self.assertLess(int(lines[0]), 8 * 1024)  # KiB, with the program's own

    @needs_root
    @not_sanitized("sanitizers make mlockall() do nothing")
    def test_program_with_little_lockable_memory_keeps_it(self):
        most = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
        if most != resource.RLIM_INFINITY and most < 256 * MIB:
            self.skipTest("the limit on locked memory cannot be raised")
        for when in ("before", "after"):
            told, lines = self.run_to_end(LIMITS, "mlock", when, 256 * MIB)
            self.assertLess(int(lines[0]), 8 * 1024)
            self.assertEqual((told["state"], told["live_blocks"], told["lost"]), (OPEN, 2000, 0))

    @needs_root
    @not_sanitized("sanitizers make mlockall() do nothing")
    def test_program_that_locked_nearly_all_it_may_gets_more(self):
        # 8 MiB, the kernel's default: whether there is a book or not, the program has its memory.
        told, lines = self.run_to_end(LIMITS, "mlock", "before", 8 * MIB)
        self.assertLess(int(lines[0]), 8 * 1024)
        self.assertIn(told["state"], (OPEN, OFF))

    def test_descriptors_are_closed(self):
        told, lines = self.run_to_end(LIMITS, "closefrom")
        self.assertEqual((told["state"], told["live_blocks"], told["lost"]), (OPEN, 100010, 0))
        self.assertEqual(lines, ["3"])

    def test_standard_streams_are_closed(self):
        answer = self.dir / "answer"
        self.run_to_end(LIMITS, "closed", answer)
        told = json.loads(answer.read_text())
        self.assertEqual((told["state"], told["live_blocks"], told["lost"]), (OPEN, 100000, 0))
        self.assertEqual(self.files(), [])


@not_sanitized("sanitizers make system calls of their own")
class Sandbox(FaultTest):
    def test_filter_that_kills_lets_the_book_grow(self):
        told, _ = self.run_to_end(LIMITS, "seccomp")
        self.assertEqual((told["state"], told["alloc_blocks"], told["live_blocks"], told["lost"]),
                         (OPEN, 100020, 20, 0))

    def test_sealed_book_works_without_any_system_call(self):
        fault = self.start(LIMITS, "strict")
        told = fault.told("strict")
        self.assertEqual((told["state"], told["alloc_blocks"]), (OPEN, 120001))
        book = self.books()[0]
        losses = book.status().losses
        blocks, _exact = book.blocks()
        self.assertGreaterEqual(len(blocks), 20000 + 10)  # what was asked for, and the heap's
        self.assertEqual(losses.pop("blocks_full"), 120000 + 10 - 1 - len(blocks))  # one freed by realloc
        self.assertEqual(losses.pop("replaced"), 1)
        self.assertEqual(losses, {})  # call sites, tags and counters are all there
        fault.go_on()
        self.assertEqual(fault.wait(), 0)


@needs_root
class Full(FaultTest):
    def mount(self, size):
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=1777", "none", self.dir], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.dir], check=True)

    def test_full_file_system_costs_blocks_and_comes_back(self):
        self.mount("512k")
        fault = self.start(LIMITS, "full")
        full = fault.told("full")
        self.assertEqual(full["state"], OPEN)
        self.assertEqual(full["live_blocks"] % 1000, 0)  # totals count every block
        losses = self.books()[0].status().losses
        self.assertGreaterEqual(losses["blocks_full"], 5000 - 1000)
        subprocess.run(["mount", "-o", "remount,size=64m", self.dir], check=True)
        fault.go_on()
        again = fault.told("again")
        self.assertEqual(again["live_blocks"], full["live_blocks"] + 23000)
        self.assertEqual(fault.wait(), 0)
        self.assertEqual(fault.out.lines[-1], "0")  # nothing lost any more
        self.assertEqual(self.files(), [])

    def test_no_room_for_a_book_at_all(self):
        for size in ("4k", "16k", "40k"):
            with self.subTest(size=size):
                self.mount(size)
                fault = self.start(LIMITS, "full", stdin=subprocess.DEVNULL)
                self.assertEqual(fault.wait(), 0)
                told = fault.told("full")
                if told["state"] == OFF:
                    self.assertEqual((told["error"], self.files()), (errno.ENOSPC, []))
                else:
                    self.assertGreater(told["lost"], 0)

    def test_no_inode_is_left(self):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=2,mode=1777", "none", self.dir], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.dir], check=True)
        told, _ = self.run_to_end(PROCESS, "plain")
        self.assertEqual((told["state"], told["error"]), (OFF, errno.ENOSPC))


class Place(FaultTest):
    def off(self, error, directory=None, **options):
        environment = self.environment(MEMOIR_DIR=str(directory or self.dir))
        told, _ = self.run_to_end(PROCESS, "plain", environment=environment, **options)
        self.assertEqual((told["state"], told["error"]), (OFF, error), told)
        self.assertGreater(told["lost"], 0)
        self.assertNotEqual(told["reason"], "")

    def own(self):
        return self.dir / str(os.geteuid())

    def test_directory_is_missing(self):
        self.off(errno.ENOENT, self.dir / "no/such")

    def test_directory_is_no_directory(self):
        self.own().write_text("")
        self.off(errno.ENOTDIR)

    def test_directory_is_a_link(self):
        target = self.folder_in("/dev/shm")
        self.own().symlink_to(target)
        self.off(errno.ENOTDIR)
        self.assertEqual(list(target.iterdir()), [])

    def test_directory_is_open_to_others(self):
        self.own().mkdir()
        self.own().chmod(0o777)
        self.off(errno.EPERM)

    def test_directory_is_not_in_memory(self):
        folder = self.folder_in(os.environ.get("MEMOIR_BUILD_ROOT", "."))
        if subprocess.run(["stat", "-fc", "%T", folder], capture_output=True, text=True, check=True).stdout == "tmpfs\n":
            self.skipTest("the build folder is in memory")
        self.off(errno.EMEDIUMTYPE, folder)
        self.assertEqual(list(folder.glob("*/*")), [])

    @needs_root
    def test_directory_is_another_users(self):
        self.own().mkdir()
        os.chown(self.own(), NOBODY, NOBODY)
        self.off(errno.EPERM)
        squatted = self.dir / str(NOBODY)
        squatted.mkdir(mode=0o777)  # root's, where nobody's would be
        self.off(errno.EPERM, prefix=("setpriv", f"--reuid={NOBODY}", "--clear-groups"))

    @needs_root
    def test_directory_is_read_only(self):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", self.dir], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.dir], check=True)
        self.off(errno.EROFS)

    def test_directory_is_removed_under_a_living_book(self):
        fault = self.start(PROCESS, "exec", 1)
        fault.told("image")
        for path in self.files():
            path.unlink()
        self.own().rmdir()
        fault.go_on()
        self.assertEqual(fault.told("image", 2)["state"], OPEN)  # made again
        fault.go_on()
        self.assertEqual(fault.wait(), 0)
        self.assertEqual(self.files(), [])

    def test_hostile_names_in_the_directory_are_left_alone(self):
        self.own().mkdir(mode=0o700)
        outside = self.folder_in("/dev/shm") / "precious"
        outside.write_text("precious")
        os.utime(outside, (0, 0))
        (self.own() / "1-2-1-3.book").symlink_to(outside)
        os.mkfifo(self.own() / "2-2-1-3.book")
        (self.own() / "3-2-1-3.book").mkdir()
        for i in range(80):
            junk = self.own() / f"{i}-9-1-0.book"
            junk.write_bytes(os.urandom(4096))
            os.utime(junk, (0, 0))
        for _ in range(40):
            told, _ = self.run_to_end(PROCESS, "plain")
            self.assertEqual(told["state"], OPEN)
        self.assertEqual(outside.read_text(), "precious")
        self.assertLess(len(self.files()), 60)  # old junk goes, a few at a time

    def test_cxx_program_can_use_the_header(self):
        source = pathlib.Path(__file__).resolve().parent / "faults/tagged.cc"
        program = self.folder_in(None) / "tagged"
        include = source.parents[3] / "include"
        library = pathlib.Path(os.environ["MEMOIR_BUILD_ROOT"]).resolve() / "src/client"
        if os.environ.get("MEMOIR_SANITIZED"):
            self.skipTest("a plain program cannot load a sanitized library")
        subprocess.run(["g++", "-std=c++11", "-Wall", "-Wextra", "-Werror", f"-I{include}", source, f"-L{library}",
                        "-lmemoir", "-o", program], check=True)
        fault = self.start(program)
        told = fault.told("tagged")
        book = self.books()[0]
        blocks, _ = book.blocks()
        self.assertEqual(sorted((b.bytes, book.tags()[b.tag]) for b in blocks), [(1 << 20, "inner"), (2 << 20, "outer"), (3 << 20, "")])
        self.assertEqual(told["state"], OPEN)
        self.assertEqual(self.live(book, HEAP)[0], 3)


if __name__ == "__main__":
    unittest.main()
