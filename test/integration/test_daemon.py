"""memoird: finding books, retiring the dead, living and dying itself."""

import fcntl
import os
import signal
import socket
import struct
import subprocess
import time
import unittest

from daemon_fixture import MEMOIRD, PATIENCE_S, SANITIZED, DaemonTest, crowded, with_descriptors

ORIGINAL = ("device=BH", "dram=150x170000", "cb=800x28000", "kernel=30x6800")


class Retirement(DaemonTest):
    def test_killed_process_gets_the_line_and_its_book_goes(self):
        daemon = self.daemon("--log-level=debug")
        client = self.client(*ORIGINAL, "ready", "wait")
        self.watched(daemon, client.pid)
        client.kill()
        self.assertEqual(self.gone(daemon, client.pid),
                         f"PID {client.pid} (client, killed by SIGKILL) gone: removed 150 buffers (25.5 MB), "
                         "800 CBs (22.4 MB), 30 kernels (0.2 MB)")
        self.wait_until(lambda: not self.book_files(), "the book is removed")
        record = self.retired()[0]
        self.assertEqual((record["pid"], record["signal"], record["name"]), (client.pid, 9, "client"))
        dram = next(a for a in record["accounts"] if a["space"] == "dram")
        self.assertEqual((dram["live_blocks"], dram["live_bytes"]), (150, 25500000))
        self.assertEqual(len(record["blocks"]), 100)
        self.assertEqual({b["bytes"] for b in record["blocks"]}, {170000})

    def test_cause_of_death_is_told(self):
        daemon = self.daemon("--log-level=debug")
        for argument, words in [("return=0", "exited with 0"), ("exit=3", "exited with 3"),
                                ("signal=15", "killed by SIGTERM"), ("signal=6", "killed by SIGABRT"),
                                ("signal=36", "killed by SIGRTMIN+2")]:
            client = self.client("device=D", "dram=1x100000", "ready", "wait", argument)
            self.watched(daemon, client.pid)
            client.go_on()
            line = self.gone(daemon, client.pid).replace(" (core dumped)", "")  # as the machine is set up
            self.assertEqual(line, f"PID {client.pid} (client, {words}) gone: removed 1 buffer (100.0 kB)")

    def test_zombie_that_nobody_reaps_is_retired(self):
        daemon = self.daemon("--log-level=debug")
        client = self.client("device=D", "dram=1x100000", "ready", "wait", "exit=7")
        self.watched(daemon, client.pid)
        client.go_on()  # we do not wait() for it before the line is there
        self.assertIn("exited with 7", self.gone(daemon, client.pid))
        self.assertIsNotNone(client.popen.wait())

    def test_process_that_held_nothing(self):
        daemon = self.daemon("--log-level=debug")
        client = self.client("device=D", "dram=2x100000", "free=dram=2", "ready", "wait")
        self.watched(daemon, client.pid)
        client.go_on()
        self.assertEqual(self.gone(daemon, client.pid),
                         f"PID {client.pid} (client, exited with 0) gone: held nothing")

    def test_host_spaces_have_their_own_words(self):
        daemon = self.daemon("--log-level=debug")
        client = self.client("heap=2x50000", "mapped=1x70000", "pinned=3x1000000", "ready", "wait")
        self.watched(daemon, client.pid)
        client.kill()
        self.assertTrue(self.gone(daemon, client.pid).endswith(
            "removed 3 pinned blocks (3.0 MB), 2 heap blocks (0.1 MB), 1 mapping (0.1 MB)"))

    def test_interpreter_is_called_by_its_script(self):
        daemon = self.daemon("--log-level=debug")
        script = self.folder / "train.py"
        library = os.environ.get("MEMOIR_BUILD_ROOT", "build") + "/src/client/libmemoir.so"
        script.write_text(f"import ctypes, os\nm = ctypes.CDLL({library!r})\n"
                          "m.memoir_open(ctypes.c_uint64(0))\n"
                          "m.memoir_alloc(0, 3, ctypes.c_uint64(1), ctypes.c_uint64(5000000))\n"
                          "print('ready', os.getpid(), flush=True)\ninput()\n")
        if SANITIZED:
            self.skipTest("a sanitized library cannot be loaded into a plain interpreter")
        client = self.client(script, program="/usr/bin/python3")
        self.watched(daemon, client.pid)
        client.kill()
        self.assertEqual(self.gone(daemon, client.pid), f"PID {client.pid} (train.py, killed by SIGKILL) gone: "
                         "removed 1 pinned block (5.0 MB)")

    def test_tags_sites_and_ages_are_kept(self):
        daemon = self.daemon("--log-level=debug")
        client = self.client("device=D", "dram=1x100000", "tag=weights", "dram=1x900000", "ready", "wait")
        self.watched(daemon, client.pid)
        client.kill()
        self.gone(daemon, client.pid)
        record = self.retired()[0]
        self.assertEqual([(b["bytes"], b.get("tag")) for b in record["blocks"]],
                         [(900000, "weights"), (100000, None)])
        self.assertTrue(any("/client+0x" in frame for frame in record["sites"][0]["frames"]))
        self.assertTrue(all(0 <= b["age_s"] < 600 for b in record["blocks"]))
        self.assertTrue(record["blocks_complete"] and record["figures_complete"])

    def poke_account(self, space, offset, form, *values):
        """Store something into the account of that space in the only book: doc/book.md has the offsets."""
        with open(self.book_files()[0], "r+b") as book:
            header = book.read(4096)
            sections = [struct.unpack_from("=IIQQQQQ", header, 1592 + i * 48) for i in range(32)]
            _, step, at, _, _, used, _ = next(s for s in sections if s[0] == 2)
            for number in range(1, used):
                book.seek(at + number * step)
                if struct.unpack("=II", book.read(8)) == (2, space):
                    book.seek(at + number * step + offset)
                    book.write(struct.pack("=" + form, *values))

    def test_estimates_are_kept_as_such(self):
        daemon = self.daemon("--log-level=debug")
        client = self.client("device=D", "dram=3x100000", "heap=1x70000", "ready", "wait")
        self.watched(daemon, client.pid)
        self.poke_account(1, 12, "I", 3)
        client.kill()
        self.gone(daemon, client.pid)
        record = self.retired()[0]
        self.assertEqual({a["space"]: (a.get("partial"), a.get("sampled")) for a in record["accounts"]},
                         {"heap": (True, True), "dram": (None, None), "l1": (None, None)})
        self.assertTrue(record["blocks_complete"])

    def test_blocks_that_are_not_in_the_book_are_missed(self):
        daemon = self.daemon("--log-level=debug")
        for values in ((0, 1), (5, 0)):  # bytes, blocks that are counted and stand nowhere
            with self.subTest(values):
                client = self.client("device=D", "dram=3x100000", "ready", "wait")
                self.watched(daemon, client.pid)
                self.poke_account(16, 128 + 16, "QQ", *values)
                client.kill()
                self.gone(daemon, client.pid)
                record = self.retired()[-1]
                self.assertEqual(len(record["blocks"]), 3)
                self.assertFalse(record["blocks_complete"])
                self.assertTrue(record["figures_complete"])

    def test_many_deaths_at_once(self):
        daemon = self.daemon("--log-level=debug")
        clients = [self.client("device=D", f"dram={i + 1}x100000", "ready", "wait") for i in range(40)]
        for client in clients:
            self.watched(daemon, client.pid)
        for client in clients:
            client.kill()
        for i, client in enumerate(clients):
            words = "1 buffer" if i == 0 else f"{i + 1} buffers"
            self.assertIn(f"removed {words} (", self.gone(daemon, client.pid))
        self.wait_until(lambda: not self.book_files(), "all books are removed")

    def test_kill_to_retired_takes_milliseconds(self):
        if SANITIZED:
            self.skipTest("timing")
        daemon = self.daemon("--log-level=debug")
        took = []
        for _ in range(20):
            client = self.client("device=D", "dram=100000x1000", "ready", "wait")
            self.watched(daemon, client.pid)
            start = time.monotonic()
            client.kill()
            self.gone(daemon, client.pid)
            took.append(daemon.err.times[-1] - start)
            client.wait()
        took.sort()
        # The goal, 5 ms, is measured by script/bench on a quiet machine; here others run as well.
        self.assertLess(took[len(took) // 2], crowded(0.25), took)


class Exec(DaemonTest):
    def test_exec_into_another_program(self):
        daemon = self.daemon("--log-level=debug")
        client = self.client("device=D", "dram=3x100000", "ready", "wait", "run=cat")
        self.watched(daemon, client.pid)
        client.go_on()
        self.assertEqual(self.gone(daemon, client.pid), f"PID {client.pid} (client, replaced by exec) gone: "
                         "removed 3 buffers (300.0 kB)")
        self.assertIsNone(client.popen.poll())

    def test_chain_of_images_each_with_a_book(self):
        daemon = self.daemon("--log-level=debug")
        client = self.client("device=D", "dram=1x100000", "ready", "wait", "exec",
                             "device=D", "dram=2x100000", "ready", "wait", "exec",
                             "device=D", "dram=3x100000", "ready", "wait")
        for images in range(3):
            daemon.err.wait(rf"watching PID {client.pid} ", images + 1)
            client.out.wait("^ready", images + 1)
            client.go_on()
        for images, words in enumerate(["1 buffer (", "2 buffers (", "3 buffers ("]):
            line = self.gone(daemon, client.pid, images + 1)
            self.assertIn("removed " + words, line)
            self.assertIn("exited with 0" if images == 2 else "replaced by exec", line)
        self.wait_until(lambda: not self.book_files(), "all books are removed")

    def test_exec_after_the_book_lost_its_name(self):
        """As the next image removes it when it comes before our mark: then no lock tells, and nobody may count it twice."""
        daemon = self.daemon("--log-level=debug", "--refresh=20ms")
        client = self.client("device=D", "dram=3x100000", "ready", "wait", "run=cat")
        self.watched(daemon, client.pid)
        for book in self.book_files():
            book.unlink()
        client.go_on()
        self.assertEqual(self.gone(daemon, client.pid), f"PID {client.pid} (client, replaced by exec) gone: "
                         "removed 3 buffers (300.0 kB)")
        self.assertIsNone(client.popen.poll())

    def test_book_removed_by_hand_is_no_exec(self):
        daemon = self.daemon("--log-level=debug", "--refresh=20ms")
        client = self.client("device=D", "dram=3x100000", "ready", "wait")
        self.watched(daemon, client.pid)
        for book in self.book_files():
            book.unlink()
        other = self.client("device=D", "dram=1x100000", "ready", "wait")
        self.watched(daemon, other.pid)
        other.kill()
        self.gone(daemon, other.pid)
        self.assertFalse([l for l in daemon.err.lines if f"PID {client.pid} (client" in l and "gone" in l])
        client.kill()
        self.assertIn("removed 3 buffers", self.gone(daemon, client.pid))


class Life(DaemonTest):
    def test_who_took_its_book_away_is_not_remembered_whoever_saw_its_end(self):
        daemon = self.daemon("--log-level=debug", "--refresh=20ms", prefix=with_descriptors(56))
        # Where no pidfd is to be had any more, nobody can tell how a process ended that its parent has buried.
        while not any("cannot get a pidfd" in line for line in daemon.err.lines):
            quiet = self.client("device=D", "dram=1x100000", "free=dram=1", "ready", "wait")
            self.watched(daemon, quiet.pid)
        (book,) = self.books.glob(f"*/{quiet.pid}-*.book")
        book.unlink()
        quiet.go_on()
        quiet.wait()
        other = self.client("device=D", "dram=1x100000", "ready", "wait")
        self.watched(daemon, other.pid)
        other.kill()
        other.wait()
        self.assertIn("removed 1 buffer", self.gone(daemon, other.pid))
        daemon.kill(signal.SIGTERM)
        self.assertEqual(daemon.wait(), 0)
        self.assertEqual([record["pid"] for record in self.retired()], [other.pid])

    def test_finds_books_that_were_there_before(self):
        clients = [self.client("device=D", "dram=5x100000", "ready", "wait") for _ in range(3)]
        daemon = self.daemon()
        daemon.err.wait("watching 3 books of 3 processes in 1 place")
        clients[1].kill()
        self.assertIn("killed by SIGKILL", self.gone(daemon, clients[1].pid))

    def test_killed_daemon_loses_nothing(self):
        first = self.daemon("--log-level=debug")
        alive = self.client("device=D", "dram=2x100000", "ready", "wait")
        dies = self.client("device=D", "dram=7x100000", "ready", "wait")
        self.watched(first, alive.pid)
        self.watched(first, dies.pid)
        first.kill()
        first.wait()
        dies.kill()
        dies.wait()
        self.assertEqual(len(self.book_files()), 2)
        second = self.daemon("--log-level=debug")
        self.assertEqual(self.gone(second, dies.pid), f"PID {dies.pid} (client, found dead) gone: "
                         "removed 7 buffers (700.0 kB)")
        self.assertEqual(len(self.book_files()), 1)
        alive.kill()
        self.assertIn("removed 2 buffers", self.gone(second, alive.pid))

    def test_half_a_line_of_a_killed_daemon_is_cut_off(self):
        self.state.mkdir(parents=True, mode=0o700)
        (self.state / "retired.jsonl").write_text('{"pid": 1}\n{"pid": 2, "half' + "x" * 5000)
        daemon = self.daemon("--log-level=debug")
        client = self.client("device=D", "dram=1x1000", "ready", "wait")
        self.watched(daemon, client.pid)
        client.kill()
        self.gone(daemon, client.pid)
        self.assertEqual([record["pid"] for record in self.retired()], [1, client.pid])

    def test_clean_shutdown_releases_the_books(self):
        daemon = self.daemon("--log-level=debug")
        client = self.client("device=D", "dram=2x100000", "ready", "wait")
        self.watched(daemon, client.pid)
        daemon.kill(signal.SIGTERM)
        self.assertEqual(daemon.wait(), 0)
        self.assertIn("memoird exiting; 1 books left in place, 0 processes retired", daemon.err.lines[-1])
        self.assertEqual(len(self.book_files()), 1)
        client.go_on()  # nobody watches, so it takes its book away itself
        client.wait()
        self.assertEqual(self.book_files(), [])

    def test_watched_book_is_left_at_exit(self):
        daemon = self.daemon("--log-level=debug")
        client = self.client("device=D", "dram=2x100000", "ready", "wait")
        self.watched(daemon, client.pid)
        daemon.kill(signal.SIGSTOP)
        client.go_on()
        client.wait()
        self.assertEqual(len(self.book_files()), 1)
        daemon.kill(signal.SIGCONT)
        self.gone(daemon, client.pid)

    def test_directory_is_made_for_all_and_must_be_in_memory(self):
        self.spawn("--dir", self.books / "new", "--state", self.state).err.wait("ready: watching")
        self.assertEqual((self.books / "new").stat().st_mode & 0o7777, 0o1777 if os.geteuid() == 0 else 0o755)
        disk = self.spawn("--dir", self.folder / "disk", "--state", self.folder / "other")
        if subprocess.run(["stat", "-fc%T", self.folder], capture_output=True, check=True).stdout != b"tmpfs\n":
            disk.err.wait("warn: '.*/disk' is not in memory")

    def test_sigint_ends_it_too(self):
        daemon = self.daemon()
        daemon.kill(signal.SIGINT)
        self.assertEqual(daemon.wait(), 0)

    def test_two_daemons_on_the_same_books_are_refused(self):
        first = self.daemon()
        second = self.spawn("--dir", self.books, "--state", self.folder / "other")
        self.assertEqual(second.wait(), 1)
        self.assertIn(f"another memoird (PID {first.pid}) uses the books of '{self.books}'",
                      second.err.lines[-1])

    def test_two_daemons_with_the_same_state_are_refused(self):
        first = self.daemon()
        other = self.books / "other"
        second = self.spawn("--dir", other, "--state", self.state)
        self.assertEqual(second.wait(), 1)
        self.assertIn(f"another memoird (PID {first.pid}) uses state directory '{self.state}'",
                      second.err.lines[-1])

    def test_the_lock_of_one_that_died_is_waited_for(self):
        dead = subprocess.Popen(["true"])
        dead.wait()
        self.state.mkdir(exist_ok=True)
        with open(self.state / "memoird.lock", "w") as lock:
            lock.write(f"{dead.pid}\n")
            lock.flush()
            fcntl.flock(lock, fcntl.LOCK_EX)  # as a helper does that has not begun yet
            daemon = self.daemon(ready=False)
            time.sleep(0.3)
            self.assertEqual([l for l in daemon.err.lines if "error" in l], [])
        daemon.err.wait(r"\bready: watching")

    def test_lock_is_free_after_a_kill(self):
        first = self.daemon()
        first.kill()
        first.wait()
        self.daemon()

    def test_background_with_pid_file(self):
        pid_file, log = self.folder / "memoird.pid", self.folder / "log"
        done = self.run_memoird("--daemon", "--dir", self.books, "--state", self.state,
                                "--pid-file", pid_file, "--log-file", log)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        pid = int(pid_file.read_text())
        self.addCleanup(lambda: os.path.exists(f"/proc/{pid}") and os.kill(pid, signal.SIGKILL))
        self.assertIn("ready: watching", log.read_text())  # the command ended after that
        os.kill(pid, signal.SIGTERM)
        self.wait_until(lambda: not pid_file.exists(), "the pid file is removed")

    def test_relative_paths_hold_in_the_background(self):
        (self.folder / "books").symlink_to(self.books)
        done = subprocess.run([str(MEMOIRD.resolve()), "--daemon", "--dir=books", "--state=state", "--pid-file=pid",
                               "--log-file=log"], cwd=self.folder, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 0)
        pid = int((self.folder / "pid").read_text())
        self.addCleanup(lambda: os.path.exists(f"/proc/{pid}") and os.kill(pid, signal.SIGKILL))
        os.kill(pid, signal.SIGHUP)
        self.wait_until(lambda: "nothing changed" in (self.folder / "log").read_text(), "the reload is logged")
        os.kill(pid, signal.SIGTERM)
        self.wait_until(lambda: not (self.folder / "pid").exists(), "the pid file is removed")

    def test_background_start_that_fails_says_so(self):
        self.daemon()
        done = self.run_memoird("--daemon", "--dir", self.books, "--state", self.state)
        self.assertEqual(done.returncode, 1)
        self.assertIn("another memoird", done.stderr)

    def test_systemd_is_told(self):
        path = str(self.folder / "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(path)
            listener.settimeout(PATIENCE_S)
            daemon = self.daemon(env=dict(os.environ, NOTIFY_SOCKET=path))
            self.assertTrue(listener.recv(4096).startswith(b"READY=1\nSTATUS=watching 0 books"))
            daemon.kill(signal.SIGHUP)
            self.assertTrue(listener.recv(4096).startswith(b"RELOADING=1\nMONOTONIC_USEC="))
            self.assertEqual(listener.recv(4096), b"READY=1")
            daemon.kill(signal.SIGTERM)
            self.assertEqual(listener.recv(4096), b"STOPPING=1")

    def test_idle_costs_next_to_nothing(self):
        if SANITIZED:
            self.skipTest("timing")
        clients = [self.client("device=D", "dram=10x100000", "ready", "wait") for _ in range(100)]
        daemon = self.daemon()
        daemon.err.wait("watching 100 books of 100 processes")

        def ticks():
            fields = open(f"/proc/{daemon.pid}/stat", encoding="ascii").read().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])

        def begun():
            with open("/proc/stat", encoding="ascii") as stat:
                return next(int(line.split()[1]) for line in stat if line.startswith("processes "))

        before, begun_before, start = ticks(), begun(), time.monotonic()
        time.sleep(3)
        seconds = time.monotonic() - start
        share = (ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds
        # The goal of 0.5 % is measured on a quiet machine. Here others may have, or start meanwhile, thousands of
        # processes, and the first look at each takes 50 us.
        processes = sum(name.isdigit() for name in os.listdir("/proc")) + begun() - begun_before
        self.assertLess(share, 0.02 + 1e-4 * processes / seconds)
        status = open(f"/proc/{daemon.pid}/status", encoding="ascii").read()
        anonymous = int(status.split("RssAnon:")[1].split()[0])
        self.assertLess(anonymous, 20000)
        files = []
        for name in os.listdir(f"/proc/{daemon.pid}/fd"):
            try:
                files.append(os.readlink(f"/proc/{daemon.pid}/fd/{name}"))
            except FileNotFoundError:
                pass  # closed meanwhile
        # A pidfd for each; the process table keeps files of all processes of the machine, besides.
        self.assertLess(len([file for file in files if not file.startswith("/proc/")]), 100 + 45)
        self.assertEqual(len(clients), 100)


if __name__ == "__main__":
    unittest.main()
