"""memoird among people who do not mean well, on machines that are full, and in namespaces."""

import fcntl
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest

from daemon_fixture import CLIENT, MEMOIRD, NOBODY, PATIENCE_S, SANITIZED, DaemonTest, Process, as_user, crowded, needs_root, with_descriptors

# struct book_header of src/book/layout.h
START_TICKS_AT, PID_AT = 72, 88


def start_ticks(pid):
    return int(open(f"/proc/{pid}/stat", encoding="ascii").read().rsplit(")", 1)[1].split()[19])


class Users(DaemonTest):
    @needs_root
    def test_root_retires_another_users_book(self):
        daemon = self.daemon("--log-level=debug")
        client = self.client("device=D", "dram=4x100000", "ready", "wait", prefix=as_user(NOBODY))
        self.watched(daemon, client.pid)
        self.assertEqual([b.stat().st_uid for b in self.book_files()], [NOBODY])
        client.kill()
        self.assertIn("removed 4 buffers", self.gone(daemon, client.pid))
        self.assertEqual(self.retired()[0]["uid"], NOBODY)
        self.assertEqual(self.book_files(), [])

    @needs_root
    def test_user_runs_his_own_daemon(self):
        self.folder.chmod(0o777)
        daemon = self.daemon("--log-level=debug", prefix=as_user(NOBODY))
        own = self.client("device=D", "dram=4x100000", "ready", "wait", prefix=as_user(NOBODY))
        root = self.client("device=D", "dram=9x100000", "ready", "wait")
        self.watched(daemon, own.pid)
        root.kill()
        own.kill()
        self.assertIn("killed by SIGKILL) gone: removed 4 buffers", self.gone(daemon, own.pid))
        self.assertFalse([line for line in daemon.err.lines if f"PID {root.pid} " in line])
        daemon.kill(signal.SIGTERM)
        self.assertEqual(daemon.wait(), 0)

    @needs_root
    def test_book_about_somebody_elses_process_does_not_count(self):
        client = self.client("device=D", "dram=4x100000", "ready", "wait", prefix=as_user(NOBODY))
        forged = self.book_files()[0].with_name(f"{os.getpid()}-1-1-beef.book")
        subprocess.run(["cp", "--sparse=always", self.book_files()[0], forged], check=True)
        with open(forged, "r+b") as book:
            book.seek(PID_AT)
            book.write(struct.pack("=i", os.getpid()))
            book.seek(START_TICKS_AT)
            book.write(struct.pack("=Q", start_ticks(os.getpid())))
        os.chown(forged, NOBODY, NOBODY)
        daemon = self.daemon("--log-level=debug")
        daemon.err.wait(rf"warn: book '{re.escape(str(forged))}' is ignored: its owner may not speak")
        daemon.err.wait("watching 1 book of 1 process")
        self.assertTrue(forged.exists())
        client.kill()
        self.gone(daemon, client.pid)

    @needs_root
    def test_squatted_directory_is_not_used(self):
        squat = self.books / "0"
        squat.mkdir()
        os.chown(squat, NOBODY, NOBODY)
        daemon = self.daemon("--log-level=debug")
        daemon.err.wait("watching 0 books of 0 processes in 0 places")
        daemon.kill(signal.SIGTERM)
        self.assertEqual(daemon.wait(), 0)

    @needs_root
    def test_names_in_a_shared_directory_cannot_be_squatted(self):
        self.books.chmod(0o777)  # nor sticky
        daemon = self.daemon("--log-level=debug", "--rescan=100ms")
        self.assertEqual(self.books.stat().st_mode & 0o7777, 0o1777)
        squat = self.books / "4242"
        subprocess.run([*as_user(NOBODY), "sh", "-c", f"cd '{self.books}' && mkdir x && touch x/mine && mv x {squat.name}"], check=True)
        self.wait_until(lambda: not squat.exists(), "the name is free again")
        client = self.client("device=D", "dram=4x100000", "ready", "wait", prefix=as_user(4242))
        self.watched(daemon, client.pid)
        self.assertEqual(squat.stat().st_uid, 4242)

    @needs_root
    def test_squatted_lock_does_not_keep_it_away(self):
        """Root's lock lies where users cannot write."""
        lock = self.books / "memoird.lock"
        lock.write_text("1\n")
        os.chown(lock, NOBODY, NOBODY)
        with open(lock, encoding="ascii") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            first = self.daemon()
            second = self.spawn("--dir", self.books, "--state", self.folder / "other")
            self.assertEqual(second.wait(), 1)
            self.assertIn(f"another memoird (PID {first.pid}) uses the books", second.err.lines[-1])
        self.assertEqual(lock.read_text(), "1\n")

    @needs_root
    def test_file_with_another_name_is_no_lock(self):
        victim = self.folder / "victim"
        victim.write_text("precious")
        self.state.mkdir()
        os.link(victim, self.state / "memoird.lock")
        self.daemon()
        self.assertEqual(victim.read_text(), "precious")

    @needs_root
    def test_link_in_place_of_the_lock_is_not_followed(self):
        victim = self.folder / "victim"
        victim.write_text("precious")
        (self.books / "memoird.lock").symlink_to(victim)
        self.daemon()
        self.assertEqual(victim.read_text(), "precious")


class Junk(DaemonTest):
    def place(self):
        place = self.books / str(os.geteuid())
        place.mkdir(mode=0o700, exist_ok=True)
        return place

    def still_works(self, daemon):
        client = self.client("device=D", "dram=4x100000", "ready", "wait")
        self.watched(daemon, client.pid)
        client.kill()
        self.assertIn("removed 4 buffers", self.gone(daemon, client.pid))

    def test_files_of_every_kind(self):
        place, victim = self.place(), self.folder / "victim"
        victim.write_text("precious")
        (place / "1-1-1-empty.book").touch()
        (place / "1-1-1-random.book").write_bytes(os.urandom(200000))
        (place / "1-1-1-magic.book").write_bytes(b"MEMOIRBK" + os.urandom(200000))
        (place / "1-1-1-link.book").symlink_to(victim)
        (place / "1-1-1-loop.book").symlink_to("1-1-1-loop.book")
        (place / "1-1-1-dir.book").mkdir()
        os.mkfifo(place / "1-1-1-fifo.book")
        (place / ("x" * 240 + ".book")).write_bytes(b"MEMOIRBK")
        (place / ".book").touch()
        daemon = self.daemon("--log-level=debug", "--rescan=100ms")
        self.still_works(daemon)
        self.assertEqual(victim.read_text(), "precious")
        left = {p.name for p in place.iterdir()} - {"1-1-1-empty.book"}  # which goes when it is as old as a rescan
        self.assertEqual(len(left), 8, sorted(name[:20] for name in left))

    def test_book_that_was_never_finished_is_removed_in_the_end(self):
        place = self.place()
        fresh, junk = place / "77-1-1-0123456789abcdef.book", place / "notes.book"
        for path in (fresh, junk):
            path.touch()
        daemon = self.daemon("--log-level=debug", "--rescan=100ms")
        self.wait_until(lambda: not fresh.exists(), "it is removed")
        self.assertTrue(junk.exists())  # which is not called as a book is
        self.still_works(daemon)

    @needs_root
    def test_half_made_book_of_a_daemon_is_removed_in_the_end(self):
        """A memoird that was killed while it made a book on behalf of another user's process."""
        place = self.books / str(NOBODY)
        place.mkdir(mode=0o700)
        os.chown(place, NOBODY, NOBODY)
        half = place / "77-1-2-0123456789abcdef.book"
        half.write_bytes(bytes(8) + b"x" * 4088)  # no magic yet
        daemon = self.daemon("--log-level=debug", "--rescan=100ms")
        self.wait_until(lambda: not half.exists(), "it is removed")
        self.still_works(daemon)

    def test_book_cut_short_while_watched(self):
        daemon = self.daemon("--log-level=debug", "--refresh=10ms")
        client = self.client("device=D", "dram=4x100000", "ready", "wait")
        self.watched(daemon, client.pid)
        client.kill(signal.SIGSTOP)
        os.truncate(self.book_files()[0], 100)
        self.still_works(daemon)
        client.kill()
        self.gone(daemon, client.pid)
        self.still_works(daemon)

    def test_place_that_vanishes_and_returns(self):
        daemon = self.daemon("--log-level=debug")
        self.still_works(daemon)
        shutil.rmtree(self.place())
        self.still_works(daemon)
        self.place().rename(self.books / "elsewhere")
        self.still_works(daemon)

    def test_a_hundred_thousand_files(self):
        place = self.place()
        directory = os.open(place, os.O_RDONLY)
        count = 10000 if SANITIZED else 100000
        for i in range(count):
            os.close(os.open(f"{i}-1-1-junk.book", os.O_CREAT | os.O_WRONLY, dir_fd=directory))
        os.close(directory)
        client = self.client("device=D", "dram=4x100000", "ready", "wait")
        daemon = self.daemon("--log-level=debug")
        self.watched(daemon, client.pid)
        daemon.kill(signal.SIGHUP)
        daemon.err.wait("read again")  # the loop answers
        client.kill()
        self.assertIn("removed 4 buffers", self.gone(daemon, client.pid))
        self.still_works(daemon)

    def test_overflow_of_the_event_queue(self):
        daemon = self.daemon("--log-level=debug")
        self.still_works(daemon)
        daemon.kill(signal.SIGSTOP)
        limit = int(open("/proc/sys/fs/inotify/max_queued_events", encoding="ascii").read())
        directory = os.open(self.place(), os.O_RDONLY)
        for i in range(limit // 2 + 1000):  # each makes two events: created, closed
            os.close(os.open(f"{i}.junk", os.O_CREAT | os.O_WRONLY, dir_fd=directory))
        os.close(directory)
        client = self.client("device=D", "dram=4x100000", "ready", "wait")
        daemon.kill(signal.SIGCONT)
        daemon.err.wait("queue of file events overflowed")
        self.watched(daemon, client.pid)
        client.kill()
        self.gone(daemon, client.pid)

    def test_flood_of_events_is_muted_and_books_still_found(self):
        daemon = self.daemon("--log-level=debug")
        self.still_works(daemon)
        flood = subprocess.Popen(
            [sys.executable, "-c",
             "import os, sys\nd = os.open(sys.argv[1], os.O_RDONLY)\n"
             "while True:\n os.close(os.open('x.junk', os.O_CREAT | os.O_WRONLY, dir_fd=d)); os.unlink('x.junk', dir_fd=d)\n",
             str(self.place())])
        self.addCleanup(flood.wait)
        self.addCleanup(flood.kill)
        daemon.err.wait("events a second in .* searching it once a second instead")
        client = self.client("device=D", "dram=4x100000", "ready", "wait")
        self.watched(daemon, client.pid)
        start = time.monotonic()
        client.kill()
        self.gone(daemon, client.pid)
        self.assertLess(time.monotonic() - start, crowded(5))

    def test_more_books_than_allowed(self):
        daemon = self.daemon("--log-level=debug", "--books-max=3")
        clients = [self.client("device=D", "dram=1x100000", "ready", "wait") for _ in range(5)]
        daemon.err.wait("too many books in")
        for client in clients:
            client.kill()
        for _ in range(3):
            daemon.err.wait("gone: removed 1 buffer", 3)

    def test_descriptors_run_out(self):
        daemon = self.daemon("--log-level=debug", "--refresh=50ms", prefix=with_descriptors(56))
        clients = [self.client("device=D", "dram=2x100000", "ready", "wait") for _ in range(40)]
        for client in clients:
            self.watched(daemon, client.pid)
        daemon.err.wait("cannot get a pidfd: .*, looking for the death of some processes only at each refresh")
        for client in clients:
            client.kill()
        for client in clients:
            client.popen.wait()
            self.assertIn("removed 2 buffers", self.gone(daemon, client.pid))
        self.assertEqual(len([line for line in daemon.err.lines if "cannot get a pidfd" in line]), 1)

    def test_daemon_and_writers_killed_at_random(self):
        end = time.monotonic() + 5
        rounds = 0
        while time.monotonic() < end:
            daemon = self.daemon("--log-level=debug", ready=False)
            clients = [self.client("device=D", "dram=50x100000", "ready", "wait", "exit=0", ready=False)
                       for _ in range(6)]
            time.sleep(int.from_bytes(os.urandom(2), "big") / 65536 / 20)
            for client in clients[:3]:
                client.kill()
            daemon.kill()
            daemon.wait()
            for client in clients:
                client.close()
            rounds += 1
        last = self.daemon("--rescan=100ms")
        self.wait_until(lambda: not self.book_files(), f"all books are removed after {rounds} rounds")
        last.kill(signal.SIGTERM)
        self.assertEqual(last.wait(), 0)


class FullDisk(DaemonTest):
    @needs_root
    def test_full_state_disk_costs_lines_and_nothing_else(self):
        self.state.mkdir()
        script = 'mount -t tmpfs -o size=64k none "$1" && shift && exec "$@"'
        daemon = Process(["unshare", "-m", "sh", "-c", script, "sh", self.state, MEMOIRD, "--dir", self.books,
                          "--state", self.state, "--log-level=debug"])
        self.addCleanup(daemon.close)
        daemon.err.wait("ready: watching")
        state = pathlib.Path(f"/proc/{daemon.pid}/root") / str(self.state).lstrip("/")

        def one_more():
            client = self.client("device=D", "dram=200x100000", "ready", "wait")
            self.watched(daemon, client.pid)
            client.kill()
            self.assertIn("removed 200 buffers (20.0 MB)", self.gone(daemon, client.pid))

        for _ in range(15):  # some 7 kB each
            one_more()
        warning = daemon.err.wait("cannot append to retired.jsonl in .*: No space left on device, "
                                  "keeping the last 1000 in memory only")
        self.assertEqual(daemon.err.lines.count(warning), 1)
        content = (state / "retired.jsonl").read_text()
        self.assertTrue(content.endswith("}\n"))
        (state / "retired.jsonl").unlink()
        one_more()
        daemon.err.wait(r"retired.jsonl can be written again, \d+ lines were lost")
        self.assertEqual(len((state / "retired.jsonl").read_text().splitlines()), 1)

    def test_file_is_rotated_at_its_limit(self):
        daemon = self.daemon("--log-level=debug", "--retired-file-max=20K")
        for _ in range(8):
            client = self.client("device=D", "dram=200x100000", "ready", "wait")
            self.watched(daemon, client.pid)
            client.kill()
            self.gone(daemon, client.pid)
        sizes = [(self.state / name).stat().st_size for name in ("retired.jsonl", "retired.jsonl.1")]
        self.assertTrue(all(0 < size <= 20 << 10 for size in sizes), sizes)


class Namespaces(DaemonTest):
    @needs_root
    def test_process_in_a_pid_namespace_has_its_outer_pid(self):
        daemon = self.daemon("--log-level=debug")
        client = self.client("device=D", "dram=4x100000", "ready", "wait",
                             prefix=["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"])
        self.assertEqual(client.pid, 1)
        outer = int(open(f"/proc/{client.popen.pid}/task/{client.popen.pid}/children", encoding="ascii").read())
        self.watched(daemon, outer)
        os.kill(outer, signal.SIGKILL)
        self.assertEqual(self.gone(daemon, outer),
                         f"PID {outer} (client, killed by SIGKILL) gone: removed 4 buffers (400.0 kB)")
        record = self.retired()[0]
        self.assertEqual((record["pid"], record["inner_pid"]), (outer, 1))

    @needs_root
    def test_containers_with_their_own_mounts_are_seen_and_run_memoir_is_made(self):
        """All in a machine of its own: pid and mount namespaces, /run and /dev/shm of its own."""
        script = """
            set -e
            mount -t tmpfs none /dev/shm
            mount -t tmpfs none /run
            "$1" --state "$3" --log-level=debug --foreign-scan=100ms &
            while ! mountpoint -q /run/memoir; do sleep 0.01; done
            exec unshare -m sh -c 'mount -t tmpfs none /run; mount -t tmpfs none /dev/shm; exec "$@"' sh \
                "$2" device=D dram=4x100000 ready wait
        """
        environment = dict(os.environ, LD_LIBRARY_PATH=str(CLIENT.resolve().parents[2] / "src/client"))
        environment.pop("MEMOIR_DIR", None)
        environment.pop("XDG_RUNTIME_DIR", None)
        inside = Process(["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "sh", "-c", script, "sh",
                          MEMOIRD, CLIENT, self.state], env=environment)
        self.addCleanup(inside.close)
        inside.out.wait("^ready 1$")
        line = inside.err.wait(r"watching PID 1 \(client\) by '")
        self.assertNotIn("/run/memoir/", line)
        self.assertIn("/dev/shm/memoir-0/", line)

    @needs_root
    def test_users_reach_the_sockets_whatever_the_umask(self):
        """The unit's umask takes all rights from others, and /run/memoird is made by memoird."""
        script = """
            mount -t tmpfs -o mode=755 none /run
            umask 0077
            "$1" --state "$2" --socket-group all &
            while ! [ -S /run/memoird/memoir.sock ]; do sleep 0.01; done
            stat -c 'mode %a' /run/memoird
            setpriv --reuid=65534 --regid=65534 --clear-groups /usr/bin/python3 -c '
import socket
s = socket.socket(socket.AF_UNIX)
s.connect("/run/memoird/memoir.sock")
print("connected", flush=True)'; wait
        """
        inside = Process(["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "sh", "-c", script, "sh", MEMOIRD, self.state])
        self.addCleanup(inside.close)
        inside.out.wait("^mode 755$")
        inside.out.wait("^connected$")

    @needs_root
    def test_root_mounts_a_tmpfs_and_finds_it_again(self):
        script = """
            mount -t tmpfs none /run
            before=$(grep -c /run/memoir /proc/self/mounts)
            "$1" --state "$2" --tmpfs-size=10M --tmpfs-inodes=500 & first=$!
            while ! [ -e "$2/go" ]; do sleep 0.01; done
            findmnt -no FSTYPE,OPTIONS /run/memoir | tail -n 1; stat -c %a /run/memoir
            kill $first; wait $first
            "$1" --state "$2" --tmpfs-size=20M & second=$!
            while ! [ -e "$2/go2" ]; do sleep 0.01; done
            echo $(($(grep -c /run/memoir /proc/self/mounts) - before))
            stat -fc '%s %b' /run/memoir
            kill $second; wait $second
        """
        inside = Process(["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "sh", "-c", script, "sh",
                          MEMOIRD, self.state])
        self.addCleanup(inside.close)
        inside.err.wait("ready: watching")
        (self.state / "go").touch()
        inside.err.wait("ready: watching", 2)
        (self.state / "go2").touch()
        inside.wait()
        lines = inside.out.lines
        for option in ("tmpfs", "nosuid", "nodev", "noexec", "size=10240k", "nr_inodes=500"):
            self.assertIn(option, lines[0])
        self.assertEqual(lines[1:3], ["1777", "1"])
        block, blocks = map(int, lines[3].split())
        self.assertEqual(block * blocks, 20 << 20)

    @needs_root
    def test_without_the_right_to_mount_it_says_so_and_goes_on(self):
        """Root without CAP_SYS_ADMIN, in a machine of its own."""
        script = """
            mount -t tmpfs none /run
            exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin "$1" --state "$2"
        """
        inside = Process(["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "sh", "-c", script, "sh",
                          MEMOIRD, self.state])
        self.addCleanup(inside.close)
        inside.err.wait("cannot mount a tmpfs on '/run/memoir': .*, using the directory without limits of its own")
        inside.err.wait("ready: watching")


class Unit(DaemonTest):
    @needs_root
    def test_capabilities_of_the_systemd_unit_are_enough(self):
        """Mounting, watching a user's process and removing his book, in a machine of its own."""
        root = pathlib.Path(os.environ.get("MEMOIR_SOURCE_ROOT") or pathlib.Path(__file__).parents[2])
        unit = (root / "src/daemon/memoird.service.in").read_text(encoding="utf-8")
        names = re.search(r"^CapabilityBoundingSet=(.*)$", unit, re.M).group(1).split()
        bounding = "-all," + ",".join("+" + name.removeprefix("CAP_").lower() for name in names)
        script = """
            mount -t tmpfs none /run
            setpriv --bounding-set="$4" --inh-caps=-all --no-new-privs "$1" --state "$3" --log-level=debug \
                --tt-socket none --http 127.0.0.1:0 &
            while ! mountpoint -q /run/memoir; do sleep 0.01; done
            setpriv --reuid=65534 --regid=65534 --clear-groups "$2" device=D dram=4x100000 ready wait
            wait
        """
        environment = dict(os.environ, LD_LIBRARY_PATH=str(CLIENT.resolve().parents[2] / "src/client"))
        environment.pop("MEMOIR_DIR", None)
        inside = Process(["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "sh", "-c", script, "sh",
                          MEMOIRD, CLIENT, self.state, bounding], env=environment)
        self.addCleanup(inside.close)
        pid = inside.out.wait(r"^ready \d+$").split()[1]
        inside.err.wait(rf"watching PID {pid} \(client\) by '/run/memoir/65534/")
        inside.popen.stdin.write("\n")
        inside.popen.stdin.flush()
        inside.err.wait(rf"PID {pid} \(client, exited with 0\) gone: removed 4 buffers")
        self.assertFalse([line for line in inside.err.lines if " warn: " in line])


if __name__ == "__main__":
    unittest.main()
