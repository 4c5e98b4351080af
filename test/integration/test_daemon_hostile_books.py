"""What one user can make root's memoird spend on forged books, names and mappings."""

import os
import pathlib
import signal
import subprocess
import time
import unittest

from daemon_fixture import BUILD, MEMOIRD, NOBODY, SANITIZED, DaemonTest, Process, as_user, crowded, needs_root

FORGE = BUILD / "test/integration/forge"


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat", encoding="ascii").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@needs_root
class HostileBooks(DaemonTest):
    def setUp(self):
        super().setUp()
        self.place = self.books / str(NOBODY)
        self.place.mkdir(mode=0o700)
        os.chown(self.place, NOBODY, NOBODY)

    def forge(self, *arguments):
        process = Process([*as_user(NOBODY), FORGE, *arguments])
        self.addCleanup(process.close)
        process.out.wait(r"^ready \d+$")
        return process

    def taken(self):
        """Bytes that the files of the place really have."""
        return sum(path.stat().st_blocks * 512 for path in self.place.iterdir())

    def answers(self, daemon):
        """Seconds until a process that is killed now is retired."""
        client = self.client("device=D", "dram=4x100000", "ready", "wait")
        self.watched(daemon, client.pid)
        start = time.monotonic()
        client.kill()
        self.gone(daemon, client.pid)
        return time.monotonic() - start

    def test_holes_are_not_read_into_memory(self):
        daemon = self.daemon("--log-level=debug", "--refresh=20ms", "--rescan=100ms")
        self.forge("holes", self.place, "6")
        daemon.err.wait("is ignored: No data available", 6)
        self.answers(daemon)
        self.assertLess(self.taken(), 24 << 20)
        doctor = subprocess.run([str(BUILD / "src/cli/memoir"), "ps", "--dir", str(self.books)], capture_output=True,
                                text=True, timeout=60, check=False)
        self.assertLess(self.taken(), 24 << 20, doctor)

    def test_book_with_many_names_is_refused(self):
        daemon = self.daemon("--log-level=debug", "--rescan=100ms")
        self.forge("blocks", self.place, "1", "12")
        daemon.err.wait("is ignored: Too many links", 12)
        self.assertFalse([line for line in daemon.err.lines if " gone: " in line])
        for path in sorted(self.place.iterdir())[1:]:
            path.unlink()
        daemon.err.wait(r"PID 4194303 \(forged, found dead\) gone: ")

    def test_scan_of_a_giant_table_ends_in_time(self):
        # The forger may be seen while its book still has two names.
        daemon = self.daemon("--log-level=debug", "--rescan=100ms")
        self.forge("blocks", self.place, "128", "1")
        daemon.err.wait(r"PID 4194303 \(forged, found dead\) gone: ")
        record = self.retired()[-1]
        self.assertEqual(record["cause"], "found dead")
        self.assertEqual(len(record["blocks"]), 100)
        peak = int(next(line.split()[1] for line in open(f"/proc/{daemon.pid}/status", encoding="ascii")
                        if line.startswith("VmHWM")))
        if not SANITIZED:
            self.assertLess(peak, 150 << 10)  # kB; 128 MiB have 5 million blocks of 32 bytes

    def test_flood_of_dead_books_leaves_room_for_others(self):
        daemon = self.daemon("--log-level=debug")
        self.answers(daemon)
        flood = self.forge("dead", self.place, "3000")
        self.wait_until(lambda: not list(self.place.glob("*.book")), "all are removed")
        daemon.err.wait(rf"\d+ processes of uid {NOBODY} were retired without a line or a record")
        self.assertLess(self.answers(daemon), crowded(1))
        flood.close()
        lines = [line for line in daemon.err.lines if "found dead" in line]
        self.assertTrue(1000 <= len(lines) < 1500, len(lines))
        records = self.retired()
        self.assertEqual(records[0]["uid"], 0)
        self.assertLess(len(records), 1500)

    def test_more_places_than_are_watched(self):
        for uid in range(100000, 104300):
            path = self.books / str(uid)
            path.mkdir(mode=0o700)
            os.chown(path, uid, uid)
        daemon = self.daemon("--log-level=debug")
        daemon.err.wait(r"430\d directories for books: 4096 of them are watched")
        client = self.client("device=D", "dram=4x100000", "ready", "wait", prefix=as_user(NOBODY))
        late = self.client("device=D", "dram=4x100000", "ready", "wait")
        self.watched(daemon, late.pid)
        client.kill()
        late.kill()
        self.gone(daemon, client.pid)
        self.gone(daemon, late.pid)

    def test_nice_value(self):
        self.assertEqual(os.getpriority(os.PRIO_PROCESS, self.daemon().pid), -5)
        self.folder.chmod(0o777)
        other = self.spawn("--dir", self.books, "--state", self.folder / "user", "--log-level=debug",
                           prefix=as_user(NOBODY))
        other.err.wait("cannot set the nice value to -5")
        other.err.wait("ready: watching")


@needs_root
class OwnMachine(DaemonTest):
    """In pid and mount namespaces of their own, where /run and /dev/shm are empty."""

    def machine(self, script, *arguments):
        environment = dict(os.environ)
        for name in ("MEMOIR_DIR", "XDG_RUNTIME_DIR"):
            environment.pop(name, None)
        self.folder.chmod(0o777)
        inside = Process(["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "sh", "-c",
                          "mount -t tmpfs none /run; mount -t tmpfs none /dev/shm;" + script, "sh",
                          MEMOIRD, self.state, *arguments], env=environment)
        self.addCleanup(inside.close)
        inside.err.wait("ready: watching")
        return inside, pathlib.Path(f"/proc/{self.child(inside)}/root")

    def child(self, inside):
        path = f"/proc/{inside.popen.pid}/task/{inside.popen.pid}/children"
        self.wait_until(lambda: open(path, encoding="ascii").read(), "it has a child")
        return int(open(path, encoding="ascii").read().split()[0])

    def as_nobody(self, inside, *command):
        subprocess.run(["nsenter", "-t", str(self.child(inside)), "-m", "-r", *as_user(NOBODY), *map(str, command)], check=True)

    def test_names_of_other_users_are_taken_away(self):
        inside, root = self.machine('"$1" --state "$2" --log-level=debug')
        run = root / "run/memoir"
        self.as_nobody(inside, "mkdir", "/run/memoir/1234", f"/run/memoir/{NOBODY}", "/run/memoir/1235x")
        self.wait_until(lambda: not (run / "1234").exists(), "the empty one is removed")
        self.as_nobody(inside, "sh", "-c", "mkdir /run/memoir/t; touch /run/memoir/t/x; mv /run/memoir/t /run/memoir/1236;"
                       "ln -s /etc /run/memoir/1237; touch /run/memoir/1238; mkdir /run/memoir/1239")
        for name in ("1236", "1237", "1238", "1239"):
            self.wait_until(lambda: not os.path.lexists(run / name), f"{name} goes")
        self.assertTrue((run / str(NOBODY)).exists())
        self.assertTrue((run / "1235x").exists())
        self.assertEqual(len([n for n in os.listdir(run) if n.startswith(".taken-")]), 1)
        self.assertTrue((root / "etc").exists())

    def test_each_user_has_a_part_of_run_memoir(self):
        inside, _root = self.machine('"$1" --state "$2" --log-level=debug --tmpfs-size=64M --tmpfs-user-size=2M')
        if any("cannot limit what each user has" in line for line in inside.err.lines):
            self.skipTest("this kernel has no quotas for tmpfs")
        self.as_nobody(inside, "mkdir", f"/run/memoir/{NOBODY}")
        with self.assertRaises(subprocess.CalledProcessError):
            self.as_nobody(inside, "dd", "if=/dev/zero", f"of=/run/memoir/{NOBODY}/x", "bs=1M", "count=4", "status=none")

    def test_many_mappings_do_not_take_the_processor(self):
        if subprocess.run([*as_user(NOBODY), "unshare", "-rm", "true"], capture_output=True, check=False).returncode:
            self.skipTest("no user namespaces here, as in a chroot")
        script = """
            mkdir -m 777 /run/x
            "$1" --state "$2" --log-level=debug --foreign-scan=100ms &
            while ! mountpoint -q /run/memoir; do sleep 0.01; done
            for i in 1 2 3; do
                setpriv --reuid=65534 --regid=65534 --clear-groups unshare -rm "$3" maps /run/x/$i-1-1-1.book 30000 < /dev/zero &
            done
            unshare -m "$3" maps /run/x/9-1-1-1.book 30000
        """
        inside, _root = self.machine(script.replace("< /dev/zero", "< /run/fifo").replace(
            "mkdir -m 777 /run/x", "mkdir -m 777 /run/x; mkfifo -m 666 /run/fifo; exec 9<>/run/fifo"), FORGE)
        inside.out.wait("^ready ", 4)
        pids = [int(pid) for pid in os.listdir("/proc") if pid.isdigit()]
        daemon = next(pid for pid in pids if self.is_daemon(pid))
        time.sleep(0.5)
        before = cpu_seconds(daemon)
        time.sleep(2)
        if not SANITIZED:
            self.assertLess(cpu_seconds(daemon) - before, 0.4)
        os.kill(daemon, signal.SIGTERM)
        inside.err.wait("memoird exiting")

    def is_daemon(self, pid):
        try:
            command = open(f"/proc/{pid}/cmdline", "rb").read()
        except OSError:
            return False
        return command.startswith(os.fsencode(MEMOIRD)) and os.fsencode(self.state) in command


if __name__ == "__main__":
    unittest.main()
