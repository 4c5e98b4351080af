"""memoird publishes how scarce memory is: one word in a file beside the books, whatever happens to it."""

import json
import os
import signal
import stat
import struct
import time
import unittest

from daemon_fixture import BUILD, NOBODY, Process, as_user
from http_support import HttpTest

READER = BUILD / "test/integration/pressure_reader"
ROOT = unittest.skipUnless(os.getuid() == 0, "needs root to be two users")
ALWAYS = ("--pressure-left-critical", "100")
NEVER = [word for level in ("some", "high", "critical")
         for word in (f"--pressure-left-{level}", "0", f"--pressure-stall-{level}", "100")]
LEVELS = ("plenty", "some", "high", "critical")


class PressureTest(HttpTest):
    def setUp(self):
        super().setUp()
        self.file = self.books / "pressure"

    def word(self):
        """(level, age in seconds), or None when nobody publishes."""
        magic, version, size, word = struct.unpack_from("<8sIIQ", self.file.read_bytes())
        self.assertEqual((magic, version, size), (b"memPRESS", 1, 112))
        return (LEVELS[word & 0xff], time.monotonic() - (word >> 8) / 1000) if word else None

    def level(self):
        word = self.word()
        return word and word[0]

    def stop(self, daemon, number=signal.SIGTERM):
        daemon.kill(number)
        daemon.wait()

    def reader(self, prefix=()):
        """Asks an allocator's reader, on a machine that has plenty itself and whose cgroup has no limit."""
        machine = self.folder / "machine"
        (machine / "self").mkdir(parents=True, exist_ok=True)
        (machine / "meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 900 kB\n")
        (machine / "self/cgroup").write_text("0::/\n")
        reader = Process([*prefix, READER, machine, machine], env=dict(os.environ, MEMOIR_DIR=str(self.books)))
        self.addCleanup(reader.close)
        asked = 0

        def ask():
            nonlocal asked
            reader.popen.stdin.write("\n")
            reader.popen.stdin.flush()
            asked += 1
            return reader.out.wait(".", count=asked)

        return ask

    def doctor(self):
        done = self.memoir("doctor", "--json", "--dir", self.books)
        return next(f["finding"] for f in json.loads(done.stdout)["findings"] if f["check"] == "pressure")


class File(PressureTest):
    def test_is_a_page_for_all_to_read_that_is_kept_up_to_date(self):
        self.daemon()
        info = self.file.stat()
        self.assertEqual((stat.S_IMODE(info.st_mode), info.st_size, info.st_uid), (0o644, 4096, os.getuid()))
        first = self.file.read_bytes()[16:24]
        self.wait_until(lambda: self.file.read_bytes()[16:24] != first, "another word is written")
        self.assertIn(self.level(), LEVELS)

    def test_says_at_the_end_that_nobody_publishes_and_is_used_again(self):
        daemon = self.daemon()
        inode = self.file.stat().st_ino
        self.stop(daemon)
        self.assertIsNone(self.word())
        self.daemon()
        self.assertIsNotNone(self.word())
        self.assertEqual(self.file.stat().st_ino, inode)  # programs have it mapped

    def test_of_a_killed_daemon_stays_and_is_used_again(self):
        daemon = self.daemon(*ALWAYS)
        inode = self.file.stat().st_ino
        self.stop(daemon, signal.SIGKILL)
        self.assertEqual(self.level(), "critical")  # with the time that tells its age
        self.daemon(*NEVER)
        self.assertEqual((self.level(), self.file.stat().st_ino), ("plenty", inode))

    def test_is_not_there_unless_wanted(self):
        self.daemon("--pressure=no")
        self.assertFalse(self.file.exists())

    def test_with_other_rights_or_another_size_is_made_anew(self):
        self.stop(self.daemon())
        for spoil in (lambda: self.file.chmod(0o666), lambda: os.truncate(self.file, 100),
                      lambda: os.link(self.file, self.books / "other")):
            spoil()
            inode = self.file.stat().st_ino
            self.stop(self.daemon())
            info = self.file.stat()
            self.assertEqual((stat.S_IMODE(info.st_mode), info.st_size), (0o644, 4096))
            self.assertNotEqual(info.st_ino, inode)

    def squat_with_the_way_out_taken(self):
        self.file.mkdir()
        (self.file / "full").write_text("x")
        (self.folder / f".taken-{self.file.stat().st_ino}").write_text("x")

    @ROOT
    def test_of_another_user_makes_way(self):
        victim = self.folder / "victim"
        victim.write_text("precious")
        for squat in (lambda: self.file.write_bytes(b"x" * 4096), lambda: self.file.symlink_to(victim),
                      lambda: (self.file.mkdir(), (self.file / "full").write_text("x")), lambda: os.mkfifo(self.file),
                      self.squat_with_the_way_out_taken):
            squat()
            os.chown(self.file, NOBODY, NOBODY, follow_symlinks=False)
            self.stop(self.daemon())
            info = self.file.lstat()
            self.assertEqual((stat.S_ISREG(info.st_mode), info.st_uid, info.st_size), (True, 0, 4096))
            self.file.unlink()
        self.assertEqual(victim.read_text(), "precious")


class Levels(PressureTest):
    def test_thresholds_make_the_level_which_is_shown_and_logged(self):
        daemon = self.serve(*ALWAYS)
        daemon.err.wait(r"memory pressure is critical, was plenty: \S+ \S+ of \S+ \S+ available")
        self.assertEqual(self.level(), "critical")
        shown = self.ask("/api/v1/self", unix=True).json()["pressure"]
        self.assertEqual((shown["level"], shown["changes"]), ("critical", 1))
        self.assertGreater(shown["total"], shown["available"])
        self.assertRegex(self.doctor(), rf"^{self.file} says critical: ")

    def test_thresholds_can_change_and_the_level_falls_after_a_while(self):
        path = self.folder / "memoird.conf"
        path.write_text("pressure-left-high = 100\n")
        daemon = self.daemon("--config", path)
        self.assertIn(self.level(), ("high", "critical"))
        path.write_text("".join(f"{key[2:]} = {value}\n" for key, value in zip(NEVER[::2], NEVER[1::2])))
        daemon.kill(signal.SIGHUP)
        daemon.err.wait("configuration read again: changed pressure-")
        daemon.err.wait(r"memory pressure is \S+, was (high|critical)")  # seconds later, one step down

    def test_doctor_says_who_looks_where_nobody_publishes(self):
        self.assertRegex(self.doctor(), "programs look for themselves")
        self.file.write_text("x")
        self.assertRegex(self.doctor(), "is not believed: it is of another version, or no word at all")


class Reader(PressureTest):
    def sees(self, ask, level):
        self.wait_until(lambda: ask() == level, f"a reader sees {level}")

    def test_allocators_follow_the_word_from_one_daemon_to_the_next(self):
        daemon = self.daemon(*ALWAYS)
        ask = self.reader()
        self.sees(ask, "critical")
        self.stop(daemon, signal.SIGKILL)
        daemon = self.daemon(*NEVER)
        self.sees(ask, "plenty")  # the same file, still mapped
        self.stop(daemon)
        self.sees(ask, "plenty")
        self.daemon(*ALWAYS)
        self.sees(ask, "critical")

    @ROOT
    def test_others_believe_root_and_nobody_else(self):
        self.daemon(*ALWAYS)
        ask, other = self.reader(as_user(NOBODY)), self.reader(as_user(NOBODY))
        self.sees(ask, "critical")
        data = bytearray(self.file.read_bytes())
        self.file.unlink()
        struct.pack_into("<Q", data, 16, int(time.monotonic() * 1000) << 8 | LEVELS.index("critical"))
        self.file.write_bytes(data)
        self.file.chmod(0o644)
        os.chown(self.file, 4242, 4242)
        self.assertEqual(other(), "plenty")


if __name__ == "__main__":
    unittest.main()
