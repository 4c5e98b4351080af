"""Processes that become others: exec, every way to fork, another user, a reused PID, a namespace."""

import os
import signal
import unittest

from daemon_fixture import DaemonTest
from faults_support import DRAM, HEAP, NOBODY, OPEN, PROCESS, FaultTest, needs_root, not_sanitized

COMPAT_FORK_CHILD = 2


class Exec(FaultTest):
    def test_each_image_has_a_book_of_its_own(self):
        fault = self.start(PROCESS, "exec", 3)
        exec_ids = set()
        for image in range(4):
            told = fault.told("image", image + 1)
            self.assertEqual((told["live_blocks"], told["lost"]), (10 * (image + 1), 0))
            books = self.books()
            self.assertEqual(len(books), 1)  # the earlier image's went when this one's was made
            identity = books[0].identity
            self.assertEqual((identity.pid, identity.exec_count), (fault.pid, image))
            self.assertEqual(self.live(books[0]), (10 * (image + 1), 10000 * (image + 1)))
            self.assertTrue(books[0].writer_alive())
            exec_ids.add((identity.exec_id, identity.exec_random))
            fault.go_on()
        self.assertEqual(fault.wait(), 0)
        self.assertEqual(len(exec_ids), 4)
        self.assertEqual(self.files(), [])

    def test_image_that_was_left_is_not_alive(self):
        fault = self.start(PROCESS, "exec", 1)
        fault.told("image")
        first = self.books()[0]
        fault.go_on()
        fault.told("image", 2)
        self.assertFalse(first.writer_alive())
        self.assertTrue(self.books()[0].writer_alive())


class ExecWatched(DaemonTest):
    def test_daemon_retires_each_image(self):
        daemon = self.daemon("--log-level=debug")
        environment = {"MEMOIR_DIR": str(self.books), **{k: v for k, v in os.environ.items() if k != "MEMOIR_DIR"}}
        from faults_support import Fault
        fault = Fault([PROCESS, "exec", 2], env=environment)
        self.addCleanup(fault.close)
        for image in range(3):
            fault.told("image", image + 1)
            daemon.err.wait(rf"watching PID {fault.pid} ", image + 1)
            fault.go_on()
            self.assertIn(f"{10 * (image + 1)} buffers", self.gone(daemon, fault.pid, image + 1))
        self.assertEqual(fault.wait(), 0)
        self.wait_until(lambda: not self.book_files(), "all books are removed")


class Fork(FaultTest):
    def check_fork(self, kind):
        fault = self.start(PROCESS, "fork", kind)
        child = fault.told("child")
        fault.go_on()
        parent = fault.told("parent")
        self.assertEqual((parent["live_blocks"], parent["live_bytes"], parent["lost"]), (101, 101000, 0))
        self.assertEqual((child["alloc_blocks"], child["live_blocks"], child["device"]), (7, 7, parent["device"]))
        self.assertEqual(child["lost"], 1)  # freed the parent's block
        books = {b.identity.pid == fault.pid: b for b in self.books()}
        self.assertEqual(len(books), 2)
        self.assertEqual(self.live(books[True]), (101, 101000))
        self.assertEqual(self.live(books[False]), (7, 7000))
        self.assertEqual(self.live(books[False], HEAP), (3, 3000))
        self.assertTrue(books[False].identity.compat & COMPAT_FORK_CHILD)
        self.assertFalse(books[True].identity.compat & COMPAT_FORK_CHILD)
        self.assertEqual([(d.record, d.ordinal) for d in books[True].devices()],
                         [(d.record, d.ordinal) for d in books[False].devices()])
        inherited = {a.space: a.inherited_bytes for a in books[False].accounts() if a.inherited_bytes}
        if kind != "fork":  # nobody asked us: the child may see what the parent did meanwhile
            inherited[DRAM] = min(inherited[DRAM], 100000)
        self.assertEqual(inherited, {DRAM: 100000, HEAP: 10000})
        self.assertEqual(books[False].tags(), books[True].tags())
        fault.go_on()
        after = fault.told("after")
        self.assertEqual((after["live_blocks"], after["lost"]), (100, 0))
        self.assertEqual(self.live(books[True]), (100, 100000))
        self.assertTrue(books[True].writer_alive())
        self.assertFalse(books[False].writer_alive())
        self.assertEqual(len(self.files()), 1)
        fault.kill()
        fault.wait()
        self.assertFalse(books[True].writer_alive())

    def test_fork(self):
        self.check_fork("fork")

    def test_fork_without_handlers(self):
        self.check_fork("_Fork")

    def test_raw_clone(self):
        self.check_fork("clone")

    def check_spawn(self, kind):
        fault = self.start(PROCESS, "fork", kind)
        fault.told("plain")
        books = {b.identity.pid == fault.pid: b for b in self.books()}
        self.assertEqual(len(books), 2)
        self.assertEqual(self.live(books[False]), (5, 5000))
        self.assertFalse(books[False].identity.compat & COMPAT_FORK_CHILD)
        fault.popen.stdin.close()  # both wait for a line
        self.assertEqual(fault.told("parent")["live_blocks"], 101)
        self.assertEqual((fault.told("after")["live_blocks"], fault.told("after")["lost"]), (100, 0))
        self.assertEqual(fault.wait(), 0)
        self.assertEqual(self.files(), [])

    def test_vfork(self):
        self.check_spawn("vfork")

    def test_posix_spawn(self):
        self.check_spawn("spawn")

    def test_child_of_a_parent_without_book_is_an_ordinary_process(self):
        fault = self.start(PROCESS, "fork", "fork", "before")
        child = fault.told("child")
        self.assertEqual(child["state"], 1)  # three small blocks: no book yet
        fault.go_on()
        fault.told("parent")
        fault.go_on()
        fault.told("after")
        self.assertEqual(self.files(), [])


@needs_root
class Setuid(FaultTest):
    def test_book_goes_on_after_root_is_given_up(self):
        fault = self.start(PROCESS, "setuid", "late")
        told = fault.told("nobody")
        self.assertEqual((told["state"], told["live_blocks"], told["lost"]), (OPEN, 100100, 0))
        book = self.books()[0]
        self.assertEqual(book.identity.st_uid, 0)
        self.assertEqual(self.live(book)[0], 100100)

    def test_book_made_afterwards_lies_in_the_new_users_place(self):
        fault = self.start(PROCESS, "setuid", "early")
        told = fault.told("nobody")
        self.assertEqual((told["state"], told["live_blocks"], told["lost"]), (OPEN, 100003, 0))
        self.assertEqual(self.files()[0].parent.name, str(NOBODY))
        self.assertEqual(self.books()[0].identity.st_uid, NOBODY)
        fault.go_on()
        self.assertEqual(fault.wait(), 0)
        self.assertEqual(self.files(), [])


@needs_root
class Namespace(FaultTest):
    UNSHARE = ("unshare", "--pid", "--fork", "--kill-child")

    def test_reused_pid_is_another_process(self):
        fault = self.start(PROCESS, "reuse", prefix=(*self.UNSHARE, "--mount-proc"))
        fault.told("first")
        fault.go_on()
        fault.told("second")
        first, second = self.books()
        self.assertEqual(first.identity.pid, second.identity.pid)
        self.assertNotEqual(first.identity.start_ticks, second.identity.start_ticks)
        self.assertEqual(second.identity.exec_count, 0)
        self.assertEqual((first.writer_alive(), second.writer_alive()), (False, True))
        self.assertEqual((self.live(first)[0], self.live(second)[0]), (10, 20))
        rows = sorted(self.ps(), key=lambda p: p["device"])
        self.assertEqual([p["device"] for p in rows], [10000, 20000])
        self.assertEqual(len({p["state"] for p in rows}), 2)

    def check_from_outside(self, *flags):
        fault = self.start(PROCESS, "plain", 30, prefix=(*self.UNSHARE, *flags))
        fault.told("plain")
        book = self.books()[0]
        self.assertEqual(book.identity.pid, 1)
        self.assertNotEqual(book.identity.pid_ns, os.stat("/proc/self/ns/pid").st_ino)
        row, = self.ps()
        self.assertEqual((row["book_pid"], row["device"]), (1, 30000))
        self.assertNotEqual(row["pid"], 1)
        with open(f"/proc/{row['pid']}/comm", encoding="ascii") as comm:
            self.assertEqual(comm.read().strip(), "fault_process")

    def test_pid_namespace_seen_from_outside(self):
        self.check_from_outside("--mount-proc")

    def test_pid_namespace_with_the_outer_proc(self):
        self.check_from_outside()


@needs_root
class NamespaceWatched(DaemonTest):
    def test_daemon_retires_a_process_of_a_namespace(self):
        from faults_support import Fault
        daemon = self.daemon("--log-level=debug")
        environment = dict(os.environ, MEMOIR_DIR=str(self.books))
        fault = Fault(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", PROCESS, "plain", "30"],
                      env=environment)
        self.addCleanup(fault.close)
        fault.told("plain")
        line = daemon.err.wait(r"watching PID \d+ ")
        outer = int(line.split("watching PID ")[1].split()[0])
        self.assertNotEqual(outer, 1)
        os.kill(outer, signal.SIGKILL)
        self.assertIn("30 buffers", self.gone(daemon, outer))
        self.wait_until(lambda: not self.book_files(), "the book is removed")


if __name__ == "__main__":
    unittest.main()
