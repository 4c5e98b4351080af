"""The observer sees every allocation and copy of programs on the stand-in driver, and keeps the count whatever happens."""

import fcntl
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tempfile
import time
import unittest

from observe_support import BUILD, LIBRARY, OBSERVE, ObserveTest, Observer, PATIENCE_S, environment, live, wait_for

MIB = 1 << 20


class Exactness(ObserveTest):
    def test_live_bytes_after_every_step(self):
        observer = self.shared()
        drive = self.drive()
        drive.ok("primary", 0)
        for words in (("alloc", MIB), ("alloc", 12345), ("alloc", 4 * MIB, "managed"), ("alloc", 3 * MIB, "pool"),
                      ("alloc", 2 * MIB, "host"), ("alloc", 70000, "pitch"), ("alloc", 65536, "array"),
                      ("alloc", 2 * MIB, "physical"), ("register", 5 * MIB), ("buffer", MIB),
                      ("copy", "h2d", 0, 4096, 9), ("copy", "d2h", 0, 4096, 9), ("free", 0), ("free", 2), ("free", 4),
                      ("free", 6), ("free", 7), ("free", 8), ("alloc", 9 * MIB), ("free", 1), ("free", 3), ("free", 5)):
            self.assert_same(observer, drive.pid, drive.ok(*words), words)
        self.assertEqual(live(observer.traced(drive.pid), "dram"), 9 * MIB)

    def test_every_entry_point(self):
        observer = self.shared()
        for way in ("name", "version"):
            with self.subTest(way=way):
                drive = self.drive(way)
                drive.ok("context", 0)
                said = drive("phase", "every")
                self.assertEqual((said["failed"], said["unused"]), ([], ""))
                traced = self.assert_same(observer, drive.pid, said)
                self.assertEqual(traced["lost"]["unpaired"], 0)
                self.assertEqual(traced["lost"]["blocks"], 0)

    def test_failing_calls_and_bad_arguments(self):
        observer = self.shared()
        drive = self.drive()
        drive.ok("primary", 0)
        drive.ok("alloc", MIB)
        self.assert_same(observer, drive.pid, drive("phase", "errors"))
        self.assertNotEqual(drive("alloc", 1 << 46)["result"], 0)
        self.assertNotEqual(drive("free", "0x123456789000")["result"], 0)
        self.assert_same(observer, drive.pid, drive("counts"))

    def test_a_free_that_fails_keeps_its_block(self):
        observer = self.shared()
        drive = self.drive(MEMOIR_STANDIN_FAIL="cuMemFree_v2:1")
        drive.ok("primary", 0)
        drive.ok("alloc", 3 * MIB)
        self.assertNotEqual(drive("free", 0)["result"], 0)
        traced = self.assert_same(observer, drive.pid, drive("counts"))
        self.assertEqual(live(traced, "dram"), 3 * MIB)
        self.assertEqual(traced["history_live"], 3 * MIB)

    def test_threads_that_hand_addresses_on(self):
        observer = self.shared()
        drive = self.drive()
        drive.ok("primary", 0)
        traced = self.assert_same(observer, drive.pid, drive.ok("phase", "handoff", 40000, 4))
        self.assertEqual(traced["lost"]["unknown_frees"], 0)
        self.assertEqual(traced["lost"]["replaced"], 0)

    def test_a_million_events(self):
        observer = self.shared()
        drive = self.drive()
        drive.ok("primary", 0)
        answer = drive.ok("phase", "churn", 125000, 2)  # four calls each
        traced = self.assert_same(observer, drive.pid, answer)
        self.assertGreaterEqual(traced["calls"], 1000000)
        self.assertEqual(traced["lost"]["unknown_frees"], 0)

    def test_contexts_end_in_one_step(self):
        observer = self.shared()
        drive = self.drive()
        drive.ok("context", 0)
        drive.ok("alloc", 8 * MIB)
        drive.ok("alloc", MIB, "host")
        self.assert_same(observer, drive.pid, drive.ok("destroy"), "destroy")
        drive.ok("primary", 1)
        drive.ok("alloc", 2 * MIB)
        self.assert_same(observer, drive.pid, drive.ok("reset", 1), "reset")
        self.assertEqual(live(observer.traced(drive.pid), "dram"), 0)

    def test_copies_are_counted_each_way(self):
        observer = self.shared()
        drive = self.drive()
        drive.ok("primary", 0)
        drive.ok("alloc", MIB)
        drive.ok("buffer", MIB)
        for _ in range(7):
            drive.ok("copy", "h2d", 0, 5000, 1)
        for _ in range(3):
            drive.ok("copy", "d2h", 0, 600, 1)
        copies = observer.traced(drive.pid)["copies"]
        self.assertEqual((copies["to_device"]["copies"], copies["to_device"]["bytes"]), (7, 35000))
        self.assertEqual((copies["from_device"]["copies"], copies["from_device"]["bytes"]), (3, 1800))


class Processes(ObserveTest):
    def test_two_processes_apart(self):
        observer = self.shared()
        one, two = self.drive(), self.drive()
        one.ok("primary", 0)
        two.ok("primary", 0)
        self.assert_same(observer, one.pid, one.ok("alloc", 5 * MIB))
        self.assert_same(observer, two.pid, two.ok("alloc", 7 * MIB))
        self.assert_same(observer, one.pid, one.ok("free", 0))
        self.assertEqual(live(observer.traced(two.pid), "dram"), 7 * MIB)

    def test_exec_begins_anew(self):
        observer = self.shared()
        drive = self.drive()
        drive.ok("primary", 0)
        drive.ok("alloc", 5 * MIB)
        drive("exec")
        drive.ok("primary", 0)
        traced = self.assert_same(observer, drive.pid, drive.ok("alloc", MIB))
        self.assertEqual(live(traced, "dram"), MIB)

    def test_fork_leaves_the_parent_as_it_is(self):
        observer = self.shared()
        drive = self.drive()
        drive.ok("primary", 0)
        drive.ok("alloc", 5 * MIB)
        self.assert_same(observer, drive.pid, drive("fork"))

    def test_a_killed_process_is_purged(self):
        observer = self.shared()
        drive = self.drive()
        drive.ok("primary", 0)
        drive.ok("alloc", 5 * MIB)
        self.assertIsNotNone(observer.traced(drive.pid))
        pid = drive.pid
        drive.process.kill()
        drive.process.wait(PATIENCE_S)
        wait_for("the kernel's entry is gone", lambda: observer.traced(pid) is None)
        self.assertGreater(len(observer.ask(f"dump {pid}")), 100)  # its history stays

    def test_attach_in_the_middle_and_again(self):
        drive = self.drive()
        drive.ok("primary", 0)
        drive.ok("alloc", 5 * MIB)
        observer = self.observer()
        drive.ok("alloc", 3 * MIB)
        self.assertEqual(live(observer.traced(drive.pid), "dram"), 3 * MIB)
        drive.ok("free", 0)
        traced = observer.traced(drive.pid)
        self.assertEqual((live(traced, "dram"), traced["lost"]["unknown_frees"]), (3 * MIB, 1))
        observer.stop()
        drive.ok("free", 1)
        drive.ok("alloc", MIB)
        observer.start()
        drive.ok("alloc", 2 * MIB)
        self.assertEqual(live(observer.traced(drive.pid), "dram"), 2 * MIB)

    def test_only_root_sees_a_process_that_its_user_may_not_trace(self):
        """It acts for more than its real user, whom its history must not be shown, or has hidden itself."""
        observer = self.shared()
        nobody = ("--reuid=65534", "--regid=65534", "--clear-groups")
        for setup, options, owner in (
                ("os.setresuid(65534, 0, 0)", (), 0), ("os.setresuid(0, 65534, 0)", (), 0),
                ("os.setresuid(65534, 65534, 65534)", (), 0),  # it may still have what root gave it
                ("os.setresgid(65534, 0, 0); os.setresuid(65534, 65534, 65534)", (), 0),
                ("pass", (*nobody, "--inh-caps=+net_raw", "--ambient-caps=+net_raw"), 0),
                ("ctypes.CDLL(None).prctl(4, 0)", nobody, 0),  # PR_SET_DUMPABLE
                ("pass", nobody, 65534)):
            program = subprocess.Popen(
                ["setpriv", *options, "/usr/bin/python3", "-c", f"import ctypes, os, sys; {setup}; c = ctypes.CDLL('libcuda.so.1');"
                 "c.cuInit(0); print('ready', flush=True); sys.stdin.read()"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(self.folder))
            try:
                self.assertEqual(program.stdout.readline(), "ready\n")
                self.assertEqual(observer.traced(program.pid)["uid"], owner, (setup, options))
            finally:
                program.communicate()

    def test_a_copy_of_the_library_is_found_by_looking(self):
        observer = self.observer(system_calls=False)
        self.assertFalse([n for n in os.listdir(f"/sys/fs/bpf/memoir-{observer.name}") if n.startswith("link-mmap")])
        copies = self.folder / "copies"
        copies.mkdir()
        shutil.copy(LIBRARY, copies)
        drive = self.drive(LD_LIBRARY_PATH=str(copies))
        drive.ok("primary", 0)
        def seen():
            drive.ok("alloc", 4096)
            return observer.traced(drive.pid)
        self.assertGreater(wait_for("its library has probes", seen)["calls"], 0)


class Faults(ObserveTest):
    def test_counting_goes_on_without_the_observer(self):
        observer = self.observer()
        drive = self.drive()
        drive.ok("primary", 0)
        drive.ok("alloc", 5 * MIB)
        self.assertEqual(live(observer.traced(drive.pid), "dram"), 5 * MIB)
        observer.kill()
        drive.ok("alloc", 3 * MIB)
        drive.ok("free", 0)
        answer = drive.ok("phase", "churn", 1000, 2)
        observer.start()
        traced = self.assert_same(observer, drive.pid, answer)
        self.assertEqual(traced["history_live"], 3 * MIB)
        self.assertTrue(observer.status()["adopted"])

    def test_a_full_ring_costs_events_only(self):
        observer = self.observer("--ring-bytes", "65536", "--ring-quota", "32768")
        drive = self.drive()
        drive.ok("primary", 0)
        observer.process.send_signal(19)  # SIGSTOP: nobody reads
        try:
            answer = drive.ok("phase", "churn", 3000, 1)
            answer = drive.ok("alloc", 4 * MIB)
        finally:
            observer.process.send_signal(18)
        traced = self.assert_same(observer, drive.pid, answer)
        self.assertGreater(traced["lost"]["events"], 0)
        wait_for("the history finds what it missed",
                 lambda: observer.traced(drive.pid)["history_live"] == 4 * MIB)

    def test_a_full_table_counts_what_does_not_fit(self):
        observer = self.observer("--blocks-quota", "10")
        drive, other = self.drive(), self.drive()
        drive.ok("primary", 0)
        other.ok("primary", 0)
        for _ in range(15):
            drive.ok("alloc", MIB)
        traced = observer.traced(drive.pid)
        self.assertEqual(live(traced, "dram"), 10 * MIB)
        self.assertEqual((traced["lost"]["blocks"], traced["lost"]["bytes"]), (5, 5 * MIB))
        self.assert_same(observer, other.pid, other.ok("alloc", MIB))  # its quota is its own

    def test_stop_removes_all_probes(self):
        observer = self.observer()
        name = f"/sys/fs/bpf/memoir-{observer.name}"
        lock = f"/run/memoird/observe-{observer.name}.lock"
        self.assertTrue(os.path.isdir(name))
        self.assertTrue(os.path.exists(lock))
        observer.ask("stop")
        observer.process.wait(PATIENCE_S)
        self.assertFalse(os.path.exists(name))
        self.assertFalse(os.path.exists(lock))

    def test_orphans_are_removed_on_request(self):
        observer = self.observer()
        observer.kill()
        name = f"/sys/fs/bpf/memoir-{observer.name}"
        self.assertTrue(os.path.isdir(name))
        observer.start() # takes over
        observer.kill()
        said = subprocess.run([BUILD / "src/observe/memoir-observe", "--remove-orphans"], capture_output=True, text=True,
                              timeout=PATIENCE_S)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn(observer.name, said.stdout)
        self.assertFalse(os.path.exists(name))

    def test_locks_that_killed_observers_left_are_removed(self):
        """But not one that is held, nor one that is so young that it may be about to be, nor one whose pins are still there."""
        killed = self.observer()
        killed.kill()
        self.addCleanup(killed.stop)
        self.addCleanup(killed.start)  # takes its pins over, and removes them at its end
        names = ("stale", "held", "young")
        locks = {name: pathlib.Path(f"/run/memoird/observe-test-{name}-{os.getpid()}.lock") for name in names}
        locks["pinned"] = pathlib.Path(f"/run/memoird/observe-{killed.name}.lock")
        for name in names:
            locks[name].touch(0o600)
            self.addCleanup(locks[name].unlink, True)
        with locks["held"].open("r") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            for name in ("stale", "held", "pinned"):
                os.utime(locks[name], (0, 0))
            observer = Observer(self.folder, "sweeper")
            self.addCleanup(observer.stop)
            self.assertEqual([name for name, path in locks.items() if not path.exists()], ["stale"])

    def test_sockets_and_locks_are_only_where_no_other_user_can_write(self):
        """A user who can create names there would pose as the observer, hold its lock, or lead its bpffs elsewhere."""
        other = self.folder / "other"
        other.mkdir()
        for make in ("mkdir /run/memoird; chmod 0777 /run/memoird", "mkdir /run/memoird; chown 65534 /run/memoird",
                     f"ln -s {other} /run/memoird"):
            with self.subTest(make):
                # A /run of its own, and no bpffs but the one that it would mount.
                script = f"mount -t tmpfs -o mode=755 none /run; umount -l /sys/fs/bpf; {make}; ln -s {other} /run/memoird/bpf\n"
                script += f"{OBSERVE} --all --name place-{os.getpid()} --socket /run/observe.sock --no-books; echo ended $?\n"
                script += f"mountpoint -q {other} && echo mounted; ls /run/memoird/*.lock /run/observe.sock {other}/*.lock"
                done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, timeout=PATIENCE_S)
                self.assertEqual(done.stdout, "ended 1\n", done.stderr)
                self.assertIn("'/run/memoird' must be a directory of root's that no other user can write to", done.stderr)

    def test_a_bpffs_in_which_users_create_names(self):
        """What a user calls as the pins' directory is neither used nor emptied, whether it is a link or a directory."""
        other = self.folder / "other"
        for make in ("ln -s {other} {pins}", "mkdir {pins}"):
            with self.subTest(make):
                other.mkdir(exist_ok=True)
                (other / "file").write_text("x")
                pins = f"/sys/fs/bpf/memoir-open-{os.getpid()}"
                # Sticky, and open to all, as the kernel makes it.
                script = "mount -t tmpfs -o mode=755 none /run; umount -l /sys/fs/bpf; mount -t bpf bpf /sys/fs/bpf\n"
                script += f"setpriv --reuid=65534 --regid=65534 --clear-groups {make.format(other=other, pins=pins)}\n"
                script += f"{OBSERVE} --remove-orphans; {OBSERVE} --all --name open-{os.getpid()} --no-books --ready 1 --linger 1 "
                script += f"--socket /run/memoird/observe.sock; echo ended $?; stat -c %u {pins}"
                done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, timeout=PATIENCE_S)
                self.assertEqual(done.stdout, "ready\nended 0\n65534\n", done.stderr)
                self.assertTrue((other / "file").exists())

    @unittest.skipUnless(platform.machine() == "x86_64", "machine code of x86_64")
    def test_a_lease_on_mapped_code_holds_nobody_up(self):
        """Opening a file that another process has a lease on waits for that process, for 45 seconds if it does not care."""
        code = self.folder / "code"
        # push rbp; mov rbp, rsp; mov rax, rdi; mov rdi, rsi; mov rsi, rdx; call rax; pop rbp; ret
        code.write_bytes(bytes.fromhex("55 4889e5 4889f8 4889f7 4889d6 ffd0 5d c3"))
        observer = self.shared()
        program = subprocess.Popen(
            ["/usr/bin/python3", "-c",
             "import ctypes, fcntl, os, signal, sys; signal.signal(signal.SIGIO, signal.SIG_IGN)\n"
             "libc = ctypes.CDLL(None); libc.mmap.restype = ctypes.c_void_p; fd = os.open(sys.argv[1], os.O_RDONLY)\n"
             "at = libc.mmap(None, ctypes.c_size_t(4096), 5, 2, fd, ctypes.c_long(0)); fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n"
             "c = ctypes.CDLL('libcuda.so.1'); a = ctypes.c_void_p(); c.cuInit(0); c.cuDevicePrimaryCtxRetain(ctypes.byref(a), 0)\n"
             "c.cuCtxSetCurrent(a); call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(at)\n"
             "assert call(ctypes.cast(c.cuMemAlloc_v2, ctypes.c_void_p), ctypes.addressof(a), 4096) == 0\n"
             "print('ready', flush=True); sys.stdin.read()", str(code)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(self.folder))
        try:
            self.assertEqual(program.stdout.readline(), "ready\n")
            before = time.monotonic()
            observer.ask("flush")
            traced = {process["pid"] for process in json.loads(observer.ask("list"))["processes"]}
            self.assertIn(program.pid, traced)
            self.assertLess(time.monotonic() - before, 30)
        finally:
            program.kill()
            program.communicate()

    def test_requests_that_make_no_sense(self):
        observer = self.shared()
        for request in ("", "dump", "dump x", "dump -1", "dump 4194305", "trace 0", "nonsense", "dump 1"):
            with self.assertRaises(RuntimeError, msg=request):
                observer.ask(request)
        with self.assertRaises(Exception):
            observer.ask("x" * 5000)
        # It still answers, and took none of these PIDs. Programs of tests beside this one may be there.
        traced = {process["pid"] for process in json.loads(observer.ask("list"))["processes"]}
        self.assertEqual(traced & {0, 1, -1, 4194305}, set())


class Views(ObserveTest):
    def memoir(self, *words):
        return subprocess.run([BUILD / "src/cli/memoir", *map(str, words)], capture_output=True, text=True,
                              timeout=PATIENCE_S, env={**os.environ, "MEMOIR_DIR": str(self.books), "MEMOIR_NVML": "off"})

    def setUp(self):
        super().setUp()
        holder = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.addCleanup(holder.cleanup)
        os.chmod(holder.name, 0o755)
        self.books = holder.name

    def test_books_of_observed_processes(self):
        observer = self.observer(books=self.books)
        drive = self.drive()
        drive.ok("primary", 0)
        drive.ok("alloc", 5 * MIB)
        drive.ok("alloc", 2 * MIB, "host")
        drive.ok("register", 3 * MIB)
        observer.ask("flush")
        said = self.memoir("query", "processes", "--show", "pid,device,pinned,registered,host", "--csv")
        row = [line for line in said.stdout.splitlines() if line.startswith(f"{drive.pid},")]
        self.assertEqual(row, [f"{drive.pid},{5 * MIB},{2 * MIB},{3 * MIB},{2 * MIB}"], said)

    def test_the_book_of_a_process_that_its_user_may_not_trace_is_roots(self):
        observer = self.observer(books=self.books)
        for setup, options, owner in (("pass", (), 65534), ("ctypes.CDLL(None).prctl(4, 0)", (), 0),  # PR_SET_DUMPABLE
                                      ("pass", ("--inh-caps=+net_raw", "--ambient-caps=+net_raw"), 0)):
            program = subprocess.Popen(
                ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *options, "/usr/bin/python3", "-c",
                 f"import ctypes, os, sys; {setup}; c = ctypes.CDLL('libcuda.so.1'); a = ctypes.c_void_p();"
                 "c.cuInit(0); c.cuDevicePrimaryCtxRetain(ctypes.byref(a), 0); c.cuCtxSetCurrent(a);"
                 "c.cuMemAlloc_v2(ctypes.byref(a), ctypes.c_size_t(4096)); print('ready', flush=True); sys.stdin.read()"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(self.folder))
            try:
                self.assertEqual(program.stdout.readline(), "ready\n")
                observer.ask("flush")
                there = [os.path.basename(at) for at, _, names in os.walk(self.books) for name in names
                         if name.startswith(f"{program.pid}-")]
                self.assertEqual(there, [str(owner)], (setup, options))
            finally:
                program.communicate()

    def test_books_go_with_the_observer_and_with_their_process(self):
        observer = self.observer(books=self.books)
        one, two = self.drive(), self.drive()
        for drive in (one, two):
            drive.ok("primary", 0)
            drive.ok("alloc", MIB)
        observer.ask("flush")
        # The observer sees all processes of the machine: tests beside this one have programs, too.
        mine = (f"{one.pid}-", f"{two.pid}-")
        books = lambda: [name for _, _, names in os.walk(self.books) for name in names
                         if name.endswith(".book") and name.startswith(mine)]
        self.assertEqual(len(books()), 2)
        one.close()
        wait_for("the book of the process is gone", lambda: len(books()) == 1)
        observer.stop()
        self.assertEqual(books(), [])

    def test_a_killed_observer_leaves_books_that_the_next_takes_over(self):
        observer = self.observer(books=self.books)
        drive = self.drive()
        drive.ok("primary", 0)
        drive.ok("alloc", 5 * MIB)
        observer.ask("flush")
        observer.kill()
        drive.ok("alloc", 3 * MIB)
        observer.start()
        observer.ask("flush")
        said = self.memoir("query", "processes", "--show", "pid,device", "--csv")
        self.assertIn(f"{drive.pid},{8 * MIB}", said.stdout.splitlines(), said)

    def test_python_lines_are_named(self):
        observer = self.observer(books=self.books)
        script = self.folder / "train.py"
        script.write_text(
            "import ctypes, sys\n"
            "c = ctypes.CDLL('libcuda.so.1')\n"
            "c.cuInit(0)\n"
            "context = ctypes.c_void_p()\n"
            "c.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)\n"
            "c.cuCtxSetCurrent(context)\n"
            "print('ready', flush=True); sys.stdin.readline()\n"
            "def load_weights():\n"
            "    p = ctypes.c_uint64()\n"
            "    c.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(8 << 20))\n"
            "load_weights()\n"
            "print('done', flush=True); sys.stdin.readline()\n")
        program = subprocess.Popen(["/usr/bin/python3", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env=environment(self.folder))
        try:
            self.assertEqual(program.stdout.readline().strip(), "ready")
            observer.ask("flush")
            program.stdin.write("\n")
            program.stdin.flush()
            self.assertEqual(program.stdout.readline().strip(), "done")
            observer.ask("flush")
            said = self.memoir("sites", program.pid)
            self.assertIn("train.py:10 in load_weights", said.stdout, said)
        finally:
            program.kill()
            program.communicate()


class Library(ObserveTest):
    def test_the_tracer_library_follows_a_running_program(self):
        """The example of doc/tracer.md, with real probes."""
        root = pathlib.Path(os.environ.get("MEMOIR_SOURCE_ROOT") or pathlib.Path(__file__).parents[2])
        code = re.search(r"```c\n(.*?)```", (root / "doc/tracer.md").read_text(encoding="utf-8"), re.DOTALL)[1]
        source, program = self.folder / "example.c", self.folder / "example"
        # It waits for a line instead of sleeping, so that the test can tell it when to look.
        source.write_text(re.sub(r"sleep\([^;]*;", 'puts("ready"); fflush(stdout); getchar();', code), encoding="utf-8")
        library = BUILD / "src/trace"
        subprocess.run(["cc", f"-I{root}/include", source, "-o", program, f"-L{library}", "-lmemoir-tracer",
                        f"-Wl,-rpath,{library}"], check=True, timeout=PATIENCE_S)
        drive = self.drive()
        drive.ok("primary", 0)
        example = subprocess.Popen([program, str(drive.pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env={**os.environ, "MEMOIR_OBSERVE": str(BUILD / "src/observe/memoir-observe")})
        self.addCleanup(lambda: (example.kill(), example.communicate()))
        self.assertEqual(example.stdout.readline().strip(), "ready")
        drive.ok("alloc", 5 * MIB)
        drive.ok("buffer", MIB)
        for _ in range(9):
            drive.ok("copy", "h2d", 0, 4096, 1)
        time.sleep(0.5)  # the stream has no end that could be waited for
        said, _ = example.communicate("\n", timeout=PATIENCE_S)
        self.assertIn(f"{5 * MIB} bytes, 9 copies to the device", said)
        self.assertEqual([name for name in os.listdir("/sys/fs/bpf") if "stream-" in name], [])


if __name__ == "__main__":
    unittest.main()
