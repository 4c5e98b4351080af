"""What it costs a small program that the allocator is there, and programs that come by it in another way."""

import statistics
import sys
import unittest

from malloc_support import BUILD, LIBRARY, ProgramTest

SMALL = BUILD / "test/malloc/malloc_small"
ROUNDS = 21
# KiB more than without it. An empty library that is preloaded takes 12 to 20.
ANONYMOUS_MAX = 20  # two pages to spare
FILE_MAX = 16       # of code, constants and tables of the library; one page to spare, with either compiler
HEAP_FILE_MAX = 60  # the same with a heap, one page to spare
ALL_MAX = 80        # where libraries lie decides what else the kernel maps, by windows of 64: so the least of all rounds

USE_EMBEDDED = """
import ctypes, os, sys, threading
lib = ctypes.CDLL(sys.argv[1])
lib.memoir_malloc.restype = ctypes.c_void_p
lib.memoir_malloc.argtypes = [ctypes.c_size_t]
lib.memoir_malloc_free.argtypes = [ctypes.c_void_p]
lib.memoir_malloc_usable.argtypes = [ctypes.c_void_p]
def use():
    blocks = [lib.memoir_malloc(i % 3000) for i in range(3000)]
    assert all(lib.memoir_malloc_usable(p) >= i % 3000 for i, p in enumerate(blocks))
    for p in blocks:
        lib.memoir_malloc_free(p)
first = [lib.memoir_malloc(100) for _ in range(50)]
for p in first[:25]:
    lib.memoir_malloc_free(p)
thread = threading.Thread(target=use)
thread.start()
thread.join()
for p in first[25:]:
    lib.memoir_malloc_free(p)
child = os.fork()
use()
assert lib.memoir_malloc_check(2) == 0
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("done")
"""


class Start(ProgramTest):
    def figures(self, preload, *kind):
        rows = []
        for _ in range(ROUNDS):
            code, out, err = self.call([SMALL, LIBRARY.name, *kind], preload)
            if code == 77:
                self.skipTest("no /proc/self/smaps")
            self.assertEqual((code, err), (0, b""))
            rows.append(list(map(int, out.split())))
        anonymous, of_library, everything = zip(*rows)
        return [statistics.median(anonymous), statistics.median(of_library), min(everything)]

    def test_a_small_program_has_little_more_resident(self):
        plain, ours = self.figures(False), self.figures(True)
        print(f"# KiB anonymous, of the library, all: without {plain}, with {ours}")
        self.assertLessEqual(ours[0] - plain[0], ANONYMOUS_MAX)
        self.assertGreater(ours[1], 0, "the library is not there")
        self.assertLessEqual(ours[1], FILE_MAX)
        self.assertLessEqual(ours[2] - plain[2], ALL_MAX)

    def test_a_program_with_a_heap_runs_little_of_the_library(self):
        for kind in ("heap", "threads"):
            plain, ours = self.figures(False, kind), self.figures(True, kind)
            print(f"# KiB anonymous, of the library, all, {kind}: without {plain}, with {ours}")
            self.assertLessEqual(ours[1], HEAP_FILE_MAX, kind)

    def test_small_programs_say_the_same(self):
        for command in (["true"], ["ls", "-la", "/etc"], ["bash", "-c", "for i in 1 2 3; do echo $(($i * 7)) | cat; done; (exit 3); echo $?"],
                        ["sh", "-c", "echo word; ls / | sort | head -3"], ["env", "-i", "printf", "%s", "x"]):
            self.same(command)

    def test_a_library_that_is_loaded_later(self):
        self.assertEqual(self.call([sys.executable, "-c", USE_EMBEDDED, LIBRARY], False), (0, b"done\n", b""))

    def test_a_library_that_is_loaded_later_beside_itself(self):
        self.assertEqual(self.call([sys.executable, "-c", USE_EMBEDDED, LIBRARY], True), (0, b"done\n", b""))


if __name__ == "__main__":
    unittest.main()
