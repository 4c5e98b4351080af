"""Life and death where the usual numbers mislead: time namespaces, another boot id, locks of children."""

import fcntl
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import time
import unittest

from daemon_fixture import BUILD, NOBODY, DaemonTest, Process, as_user

ROOT = pathlib.Path(os.environ.get("MEMOIR_SOURCE_ROOT", "."))
sys.path.insert(0, str(ROOT / "clients" / "python"))

from memoir.book import Book  # noqa: E402

MEMOIR = BUILD / "src/cli/memoir"
TIME_NAMESPACE = ["unshare", "--time", "--fork", "--kill-child", "--boottime=100000", "--monotonic=5000"]
START_TICKS_AT, PID_AT, COMPAT_AT, WRITER_PID_AT = 72, 88, 20, 104
TICKS_OFF = 12345


def works(*command):
    return subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0


def needs(*command):
    return unittest.skipUnless(works(*command), f"'{' '.join(command)}' is not allowed here")


def start_ticks(pid):
    return int(open(f"/proc/{pid}/stat", encoding="ascii").read().rsplit(")", 1)[1].split()[19])


class NamespaceTest(DaemonTest):
    def ps(self, prefix=()):
        """pid → row of `memoir ps`."""
        out = subprocess.run([*prefix, MEMOIR, "ps", "--all", "--dir", self.books, "--json"], capture_output=True, text=True,
                             check=True).stdout
        return {row["book_pid"]: row for row in json.loads(out)["rows"]}

    def let_rescans_pass(self, daemon):
        """Several searches and looks at every process."""
        time.sleep(0.5)
        self.assertIsNone(daemon.popen.poll())

    def daemon_in_haste(self, **options):
        return self.daemon("--log-level=debug", "--rescan=100ms", "--refresh=50ms", **options)


class TimeNamespace(NamespaceTest):
    @needs(*TIME_NAMESPACE)
    def test_process_inside_lives_and_dies_as_others(self):
        daemon = self.daemon_in_haste()
        client = self.client("device=D", "dram=4x100000", "ready", "wait", prefix=TIME_NAMESPACE)
        self.watched(daemon, client.pid)
        with Book.open(self.book_files()[0]) as book:
            self.assertEqual(book.identity.start_ticks, start_ticks(client.pid))
            self.assertNotEqual(book.identity.time_ns, os.stat("/proc/self/ns/time").st_ino)
        self.let_rescans_pass(daemon)
        row = self.ps()[client.pid]
        self.assertEqual((row["state"], row["pid"]), ("running", client.pid))
        self.assertGreater(row["rss"], 0)
        self.assertLess(row["age"], 1000)
        os.kill(client.pid, signal.SIGKILL)
        self.assertIn("killed by SIGKILL) gone: removed 4 buffers", self.gone(daemon, client.pid))
        self.assertEqual(self.book_files(), [])
        for block in self.retired()[0]["blocks"]:
            self.assertTrue(0.3 < block["age_s"] < 1000, block["age_s"])

    @needs(*TIME_NAMESPACE)
    def test_daemon_inside_sees_those_outside(self):
        daemon = self.daemon_in_haste(prefix=TIME_NAMESPACE)
        client = self.client("device=D", "dram=4x100000", "ready", "wait")
        self.watched(daemon, client.pid)
        self.let_rescans_pass(daemon)
        row = self.ps(prefix=TIME_NAMESPACE)[client.pid]
        self.assertEqual(row["state"], "running")
        self.assertGreater(row["rss"], 0)
        self.assertLess(row["age"], 1000)
        client.kill()
        self.assertIn("killed by SIGKILL) gone: removed 4 buffers", self.gone(daemon, client.pid))
        for block in self.retired()[0]["blocks"]:
            self.assertTrue(0.3 < block["age_s"] < 1000, block["age_s"])


class BootId(NamespaceTest):
    SCRIPT = 'mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && exec "$@"'

    @needs("unshare", "--mount")
    def test_another_boot_id_is_not_death(self):
        other = self.folder / "boot_id"
        other.write_text("01234567-89ab-cdef-0123-456789abcdef\n", encoding="ascii")
        prefix = ["unshare", "--mount", "sh", "-c", self.SCRIPT, "sh", other]
        if not works(*map(str, prefix)):
            self.skipTest("a boot id cannot be mounted over here")
        daemon = self.daemon_in_haste()
        client = self.client("device=D", "dram=4x100000", "ready", "wait", prefix=prefix)
        self.watched(daemon, client.pid)
        with Book.open(self.book_files()[0]) as book:
            self.assertEqual(book.identity.boot_id, "0123456789abcdef0123456789abcdef")
        self.let_rescans_pass(daemon)
        row = self.ps()[client.pid]
        self.assertEqual((row["state"], row["pid"]), ("running", client.pid))
        self.assertGreater(row["rss"], 0)
        client.kill()
        self.assertIn("killed by SIGKILL) gone: removed 4 buffers", self.gone(daemon, client.pid))
        self.assertEqual(self.book_files(), [])


class Locks(NamespaceTest):
    """Books whose lock this test holds, as their writer or a child of it would."""

    def forge(self, pid, ticks, compat=0):
        """A book about that process, made of a real one."""
        maker = self.client("device=D", "dram=4x100000", "ready", "wait")
        (real,) = self.book_files()
        path = real.with_name(f"{pid}-{ticks}-1-f0f0.book")
        hidden = real.with_name("forged")
        subprocess.run(["cp", "--sparse=always", real, hidden], check=True)
        maker.kill()
        maker.wait()
        real.unlink()
        fd = os.open(hidden, os.O_RDWR)
        self.addCleanup(os.close, fd)
        os.pwrite(fd, struct.pack("=I", compat), COMPAT_AT)
        os.pwrite(fd, struct.pack("=Q", ticks), START_TICKS_AT)
        os.pwrite(fd, struct.pack("=i", pid), PID_AT)
        os.pwrite(fd, struct.pack("=i", os.getpid()), WRITER_PID_AT)
        fcntl.flock(fd, fcntl.LOCK_EX)
        hidden.rename(path)
        return path, fd

    def sleeper(self):
        process = Process(["sleep", "1000"])
        self.addCleanup(process.close)
        return process

    def test_witnessed_death_counts_though_a_child_keeps_the_lock(self):
        sleeper = self.sleeper()
        path, _ = self.forge(sleeper.pid, start_ticks(sleeper.pid))
        daemon = self.daemon_in_haste()
        self.watched(daemon, sleeper.pid)
        sleeper.kill()
        self.assertIn("removed 4 buffers", self.gone(daemon, sleeper.pid))
        self.assertFalse(path.exists())

    def test_held_lock_keeps_a_book_whose_start_time_is_wrong(self):
        sleeper = self.sleeper()
        path, fd = self.forge(sleeper.pid, start_ticks(sleeper.pid) + TICKS_OFF)
        daemon = self.daemon_in_haste()
        self.watched(daemon, sleeper.pid)
        self.let_rescans_pass(daemon)
        self.assertEqual(self.ps()[sleeper.pid]["state"], "running")
        self.assertTrue(path.exists())
        fcntl.flock(fd, fcntl.LOCK_UN)
        self.assertIn("removed 4 buffers", self.gone(daemon, sleeper.pid))
        self.assertFalse(path.exists())

    def test_death_that_nobody_saw_waits_for_the_lock(self):
        sleeper = self.sleeper()
        path, fd = self.forge(sleeper.pid, start_ticks(sleeper.pid))
        sleeper.kill()
        sleeper.wait()
        daemon = self.daemon_in_haste()
        self.let_rescans_pass(daemon)
        self.assertEqual(self.ps()[sleeper.pid]["state"], "exited")
        self.assertTrue(path.exists())
        fcntl.flock(fd, fcntl.LOCK_UN)
        self.assertIn("removed 4 buffers", self.gone(daemon, sleeper.pid))
        self.assertFalse(path.exists())

    def test_book_that_another_daemon_writes_is_left_to_it(self):
        sleeper = self.sleeper()
        path, fd = self.forge(sleeper.pid, start_ticks(sleeper.pid), compat=1)
        daemon = self.daemon_in_haste()
        self.watched(daemon, sleeper.pid)
        sleeper.kill()
        sleeper.wait()
        self.let_rescans_pass(daemon)
        self.assertTrue(path.exists())
        self.assertEqual(self.retired(), [])
        fcntl.flock(fd, fcntl.LOCK_UN)
        self.assertIn("killed by SIGKILL) gone: removed 4 buffers", self.gone(daemon, sleeper.pid))
        self.assertFalse(path.exists())


class Watchers(NamespaceTest):
    def flags(self):
        """What the writer looks at: the first word of the control page."""
        with open(self.book_files()[0], "rb") as book:
            header = os.pread(book.fileno(), 4096, 0)
            sections = [struct.unpack_from("=IIQ", header, 1592 + i * 48) for i in range(32)]
            (offset,) = [offset for kind, _, offset in sections if kind == 1]
            return struct.unpack("=I", os.pread(book.fileno(), 4, offset))[0]

    def watchers(self):
        with Book.open(self.book_files()[0]) as book:
            return [(w.slot, w.pid, w.flags) for w in book.watchers()]

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_each_daemon_has_a_slot_of_its_own(self):
        self.folder.chmod(0o777)
        client = self.client("device=D", "dram=4x100000", "ready", "wait", prefix=as_user(NOBODY))
        root = self.daemon_in_haste()
        self.watched(root, client.pid)
        self.assertEqual(self.watchers(), [(0, root.pid, 1)])
        self.assertEqual(self.ps()[client.pid]["watchers"], f"root:{root.pid}")
        root.kill()  # leaves its slot, but is known to be dead
        root.wait()
        self.assertIsNone(self.ps()[client.pid]["watchers"])
        for lock in self.books.glob("*lock*"):
            lock.unlink()  # root's, so that the user's cannot take it
        self.state = self.folder / "user"
        user = self.daemon_in_haste(prefix=as_user(NOBODY))
        self.watched(user, client.pid)
        self.assertEqual(self.watchers(), [(0, root.pid, 1), (1, user.pid, 1)])
        self.assertEqual(self.ps()[client.pid]["watchers"], f"user:{user.pid}")
        user.kill(signal.SIGTERM)
        self.assertEqual(user.wait(), 0)
        self.assertEqual(self.watchers(), [(0, root.pid, 1)])
        self.assertEqual(self.flags(), 1)
        self.state = self.folder / "root"
        root = self.daemon_in_haste()
        self.watched(root, client.pid)
        root.kill(signal.SIGTERM)
        self.assertEqual(root.wait(), 0)
        self.assertEqual(self.watchers(), [])
        self.assertEqual(self.flags(), 0)


class Containers(NamespaceTest):
    """A memoird of the whole machine, in a mount namespace of its own: to it the books of this test are those of a container."""

    APART = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs -o mode=755 none /run && "
             "mount -t tmpfs -o mode=1777 none /dev/shm && exec \"$@\"", "sh"]

    def machine_daemon(self):
        daemon = self.spawn("--state", self.state, "--socket", "none", "--tt-socket", "none", "--trace", "no",
                            "--foreign-scan=100ms", "--log-level=debug", prefix=self.APART)
        daemon.err.wait(r"\bready: watching")
        return daemon

    @unittest.skipUnless(os.geteuid() == 0 and works(*APART), "needs root and mount namespaces")
    def test_a_book_that_memoird_cannot_remove_goes_with_its_process(self):
        daemon = self.machine_daemon()
        client = self.client("device=D", "dram=4x100000", "ready", "wait")
        self.watched(daemon, client.pid)
        with Book.open(self.book_files()[0]) as book:
            self.assertEqual(book.watchers(), [])
        client.go_on()
        self.assertEqual(client.wait(), 0)
        self.assertEqual(self.book_files(), [])
        self.assertIn("removed 4 buffers", self.gone(daemon, client.pid))  # its last figures are told all the same


if __name__ == "__main__":
    unittest.main()
