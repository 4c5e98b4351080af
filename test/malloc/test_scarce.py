"""Programs on libmemoir-malloc give memory back when memoird says that it is scarce."""

import os
import pathlib
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))

from daemon_fixture import BUILD, PATIENCE_S, DaemonTest, Process  # noqa: E402

LIBRARY = BUILD / "src/malloc/libmemoir-malloc.so"
PROGRAM = BUILD / "test/malloc/malloc_follow"
FREED = 200_000_000
SCARCE_MAX = 24_000_000
NEVER = "".join(f"pressure-left-{level} = 0\npressure-stall-{level} = 100\n" for level in ("some", "high", "critical"))
ALWAYS = "pressure-left-high = 100\n"


@unittest.skipUnless(LIBRARY.exists(), "this build has no allocator")
class Return(DaemonTest):
    def setUp(self):
        super().setUp()
        self.conf = self.folder / "memoird.conf"

    def program(self, **settings):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("MEMOIR_", "LD_"))}
        process = Process([PROGRAM], env=environment | {"LD_PRELOAD": str(LIBRARY), "MEMOIR_DIR": str(self.books)} | settings)
        self.addCleanup(process.close)
        process.asked = 0
        return process

    @staticmethod
    def freed(process):
        return int(process.out.wait(r"^freed \d+").split()[1])

    @staticmethod
    def go_on(process):
        process.popen.stdin.write("\n")
        process.popen.stdin.flush()
        process.asked += 1
        return int(process.out.wait(r"^now \d+", count=process.asked).split()[1])

    def test_half_stays_at_most_and_the_rest_goes_once_memory_is_scarce(self):
        self.conf.write_text(NEVER)
        daemon = self.daemon("--config", self.conf)
        program = self.program()
        self.assertLess(self.freed(program), FREED / 2 + SCARCE_MAX)
        self.conf.write_text(ALWAYS)
        daemon.kill(signal.SIGHUP)
        self.wait_until(lambda: self.go_on(program) < SCARCE_MAX, "the program gives its memory back")

    def test_all_goes_at_once_where_memory_is_scarce_from_the_start(self):
        self.conf.write_text(ALWAYS)
        self.daemon("--config", self.conf)
        self.wait_until(lambda: self.freed(self.program()) < SCARCE_MAX, "a program keeps little")

    def test_the_users_word_wins(self):
        self.conf.write_text(ALWAYS)
        self.daemon("--config", self.conf)
        kept = self.freed(self.program(MEMOIR_MALLOC="pressure=none,keep=1G"))
        self.assertGreater(kept, FREED * 3 / 4)

    def test_a_limit_is_the_end_of_memory_and_not_of_the_program(self):
        words = ("import sys\n"
                 "try: bytearray(200 << 20)\n"
                 "except MemoryError: print('no more', end=' ')\n"
                 "print(len(bytearray(40 << 20)))\n")
        done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                              env=os.environ | {"LD_PRELOAD": str(LIBRARY), "MEMOIR_MALLOC": "limit=100M"})
        self.assertEqual((done.returncode, done.stdout), (0, f"no more {40 << 20}\n"), done.stderr)


if __name__ == "__main__":
    unittest.main()
