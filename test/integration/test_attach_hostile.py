"""Attaching where something is in the way: other roots, other rights, other allocators, two at once, ends in between."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

from attach_support import BUILD, CPP, OBSERVE, PATIENCE_S, PROGRAM, AttachTest, Heap, Program
from daemon_fixture import NOBODY, as_user

LIBRARIES = pathlib.Path("/usr/lib/x86_64-linux-gnu")
LOADER = pathlib.Path("/lib64/ld-linux-x86-64.so.2")


def code_of(pid, name):
    """The bytes of a library's code as the process has them, and as its file has them."""
    with open(f"/proc/{pid}/maps") as maps:
        lines = [line.split() for line in maps if line.rstrip().endswith(name)]
    for where, rights, offset, *_, path in lines:
        if "x" in rights:
            start, end = (int(part, 16) for part in where.split("-"))
            with open(f"/proc/{pid}/mem", "rb") as memory, open(path, "rb") as file:
                memory.seek(start)
                file.seek(int(offset, 16))
                return memory.read(end - start), file.read(end - start)
    raise AssertionError(f"{name} is not mapped: {lines}")


def differences(pid, name="libc.so.6"):
    mapped, stored = code_of(pid, name)
    return sum(a != b for a, b in zip(mapped, stored))


class Traces(AttachTest):
    def test_a_detach_leaves_no_trace(self):
        program = self.program()
        self.assertEqual(differences(program.pid), 0)
        pins = sorted(os.listdir("/sys/fs/bpf"))
        heap = self.heap(program)
        self.assertGreater(differences(program.pid), 3, "the probes can be seen")
        with open(f"/proc/{heap.process.pid}/fdinfo/0"):
            descriptors = os.listdir(f"/proc/{heap.process.pid}/fd")
        self.assertGreater(len(descriptors), 5)
        self.assertEqual(heap.stop(), 0)
        self.assertEqual(differences(program.pid), 0, "breakpoints are left")
        self.assertEqual(sorted(os.listdir("/sys/fs/bpf")), pins)
        self.assertEqual(sorted(p.name for p in self.folder.rglob("*") if not p.is_dir()), ["heap.log"])

    def test_nor_does_a_killed_observer(self):
        program = self.program()
        heap = self.heap(program)
        heap.kill()
        self.eventually(lambda: differences(program.pid), 0)

    def test_nor_do_the_probes_of_operator_new(self):
        library = LIBRARIES / "libjemalloc.so.2"
        if not library.exists():
            self.skipTest("libjemalloc2 is not installed")
        program = self.program(CPP, LD_PRELOAD=str(library))
        program("work")
        heap = self.heap(program)
        self.assertGreater(differences(program.pid, library.name), 10)
        heap.stop()
        self.assertEqual(differences(program.pid, library.name), 0)


class Places(AttachTest):
    def test_another_root_with_another_c_library(self):
        root = self.folder / "root"
        libc = subprocess.run(["ldd", str(PROGRAM)], capture_output=True, text=True, check=True).stdout
        files = [pathlib.Path(p) for p in re.findall(r"(/\S+) \(0x", libc)]
        for file in files:
            to = root / str(file).lstrip("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file.resolve(), to)
        shutil.copy(PROGRAM, root / "program")
        program = self.program("/program", ["unshare", "--mount", "chroot", str(root)])
        heap = self.heap(program)
        self.assertEqual(program.live("alloc", 10, 100), heap.live())
        heap.ask("flush")
        sites = self.json("sites", program.pid, "--dir", heap.books)["sites"]
        self.assertEqual([s["bytes"] for s in sites], [1000])
        self.assertEqual(differences(heap.process.pid), 0, "its own C library has no probe")


class Rights(AttachTest):
    def refused(self, pid, *options):
        with self.assertRaises(RuntimeError) as caught:
            Heap(pid, self.folder, *options)
        return str(caught.exception)

    def test_a_setuid_program_is_refused_to_its_user(self):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            os.chmod(folder, 0o755)
            program = os.path.join(folder, "setuid")
            shutil.copy(PROGRAM, program)
            os.chmod(program, 0o4755)
            process = self.program(program, as_user(NOBODY))
            why = self.refused(process.pid, "--for", str(NOBODY))
            self.assertIn("has more rights", why)
            self.assertEqual(differences(process.pid), 0)

    def test_another_users_is_refused(self):
        self.assertIn("belongs to another user", self.refused(self.program().pid, "--for", str(NOBODY)))


class Meetings(AttachTest):
    def test_two_at_once_are_refused(self):
        program = self.program()
        first = self.heap(program)
        with self.assertRaises(RuntimeError) as caught:
            Heap(program.pid, self.folder)
        self.assertIn("attached already", str(caught.exception))
        self.assertEqual(program.live("alloc", 10, 100), first.live(), "the first one goes on")

    def test_under_memoir_run_it_is_refused(self):
        for library in (BUILD / "src/malloc/libmemoir-malloc.so", BUILD / "src/track/libmemoir-track.so"):
            with self.subTest(library=library.name):
                self.assertTrue(library.exists())
                program = self.program(PROGRAM, LD_PRELOAD=str(library))
                with self.assertRaises(RuntimeError) as caught:
                    Heap(program.pid, self.folder)
                self.assertIn("its heap is counted already", str(caught.exception))

    def test_an_allocator_that_is_loaded_later_changes_nothing(self):
        """Names that are bound stay bound: what calls malloc() goes on to call that of the C library."""
        library = next((LIBRARIES / n for n in ("libtcmalloc_minimal.so.4", "libjemalloc.so.2") if (LIBRARIES / n).exists()), None)
        if not library:
            self.skipTest("no other allocator is installed")
        code = ("import ctypes, sys\nlibc = ctypes.CDLL(None)\nlibc.malloc.restype = ctypes.c_void_p\nkept = []\n"
                "print('ready', flush=True)\n"
                "for line in sys.stdin:\n"
                f"    if line == 'load\\n': ctypes.CDLL({str(library)!r}, ctypes.RTLD_GLOBAL)\n"
                "    else: kept += [libc.malloc(100003) for _ in range(100)]\n"
                "    print('done', flush=True)\n")
        program = Program("/usr/bin/python3", arguments=["-c", code])
        self.addCleanup(program.end)
        heap = self.heap(program)
        for words in (("alloc",), ("load",), ("alloc",)):
            before = heap.live()[0]
            self.assertEqual(program(*words), ["done"])
            if words != ("load",):
                self.assertAlmostEqual(heap.live()[0] - before, 100 * 100003, delta=200000)
        self.assertEqual(heap.status()["allocator"], "glibc")

    def test_a_process_that_ends_meanwhile(self):
        for wait_s in (0, 0.05, 0.2, 0.4):
            process = subprocess.Popen([str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            observer = subprocess.Popen([str(OBSERVE), "--heap", "--pid", str(process.pid), "--dir", str(self.folder)],
                                        stderr=subprocess.PIPE, text=True)
            time.sleep(wait_s)  # whenever that is: each moment must end the same way
            process.kill()
            process.communicate()
            _, said = observer.communicate(timeout=PATIENCE_S)
            self.assertIn(observer.returncode, (0, 1), said)
            self.assertNotIn("Sanitizer", said)
            self.assertEqual([p for p in self.folder.rglob("*-*") if p.is_file()], [])


if __name__ == "__main__":
    unittest.main()
