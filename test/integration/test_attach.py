"""Probes on the allocator of a running process: its live blocks are those that it counts itself, and it never notices."""

import os
import pathlib
import signal
import time
import unittest

from attach_support import CPP, PATIENCE_S, PROGRAM, STATIC, AttachTest, Heap

LIBRARIES = pathlib.Path("/usr/lib/x86_64-linux-gnu")
ALLOCATORS = {"jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4", "mimalloc": "libmimalloc.so.2"}


class Exactness(AttachTest):
    def allocators(self):
        """Those that are installed; each of the others is a skip that the result counts."""
        for name, file in ALLOCATORS.items():
            if (LIBRARIES / file).exists():
                yield name, str(LIBRARIES / file)
            else:
                with self.subTest(name=name):
                    self.skipTest(f"{file} is not installed")

    def steps(self, program, *options):
        program("cross", 4, 10)  # what the C library keeps for threads is there from now on
        heap = self.heap(program, *options)
        for words in (("alloc", 1, 100), ("alloc", 1000, 24), ("free", 1), ("resize", 5000), ("resize", 10),
                      ("every", 10), ("every", 5000), ("odd",), ("strdup",), ("alloc", 3, 40 << 20), ("resize", 90 << 20),
                      ("free", 2), ("cross", 4, 2000), ("fork",), ("free", 900), ("alloc", 5, 1), ("every", 100),
                      ("resize", 300000)):
            self.assertEqual(program.live(*words), heap.live(), words)
        return heap

    def test_live_bytes_after_every_step(self):
        status = self.steps(self.program()).status()
        self.assertEqual((status["allocator"], status["slow_functions"]), ("glibc", 0))
        self.assertEqual((status["replaced"], status["uncounted_blocks"]), (0, 0))
        self.assertGreaterEqual(status["failed"], 4)

    def test_the_same_with_two_links(self):
        self.steps(self.program(), "--two-links")

    def test_a_static_program_by_its_symbol_table(self):
        status = self.steps(self.program(STATIC)).status()
        self.assertEqual(status["file"], str(STATIC))

    def test_other_allocators(self):
        for name, library in self.allocators():
            with self.subTest(name=name):
                heap = self.steps(self.program(PROGRAM, LD_PRELOAD=library))
                status = heap.status()
                self.assertEqual((status["allocator"], status["slow_functions"]), (name, 0))
                heap.stop()

    def test_every_form_of_new_and_delete_with_other_allocators(self):
        for name, library in [*self.allocators(), ("glibc", "")]:
            with self.subTest(name=name):
                program = self.program(CPP, **({"LD_PRELOAD": library} if library else {}))
                program("make", 1)
                program("unmake", 1)  # what the allocator keeps for itself is there from now on
                refuse = ("refuse",) if name != "mimalloc" else ("make", 0)  # its operator new ends the program
                program.before = program(*refuse)
                heap = self.heap(program)
                for words in (("make", 1), refuse, ("make", 5), ("unmake", 2), refuse, ("make", 20), ("unmake", 24)):
                    self.assertEqual(program.live(*words), heap.live(), words)
                status = heap.status()
                self.assertEqual((status["allocator"], status["operator_new_unseen"], status["unknown_frees"], status["replaced"]),
                                 (name, False, 0, 0))
                heap.stop()

    def test_a_million_pairs(self):
        program = self.program()
        heap = self.heap(program)
        program("pairs", 1000000, 64)
        status = heap.status()
        self.assertEqual((status["allocated_blocks"], status["freed_blocks"]), (1000000, 1000000))
        self.assertEqual((status["bytes"], status["blocks"], status["uncounted_blocks"]), (0, 0, 0))

    def test_blocks_that_are_older_are_not_counted(self):
        program = self.program()
        heap = self.heap(program)
        program("free", 200)
        status = heap.status()
        self.assertEqual((status["bytes"], status["unknown_frees"]), (0, 200))
        program("alloc", 10, 50)
        self.assertEqual(heap.live(), (500, 10))

    def test_a_full_table_is_counted(self):
        program = self.program()
        heap = self.heap(program, "--blocks-max", "64")
        program("alloc", 200, 10)
        status = heap.status()
        self.assertEqual(status["blocks"] + status["uncounted_blocks"], 200)
        self.assertGreater(status["uncounted_blocks"], 0)
        program("free", 200)
        status = heap.status()
        self.assertEqual((status["bytes"], status["blocks"]), (0, 0))


class Life(AttachTest):
    def test_detach_and_attach_again(self):
        program = self.program()
        for i in range(5):
            heap = self.heap(program)
            program.before = program("free", 0)
            self.assertEqual(program.live("alloc", 10, 100 + i), heap.live())
            self.assertEqual(heap.stop(), 0)
            self.assertEqual(list(pathlib.Path(heap.books).rglob("*-*")), [])
        self.assertLess(float(program("pairs", 100000, 64)[1]), 500, "probes are left in the program")

    def test_a_killed_observer_leaves_the_program_alone(self):
        program = self.program()
        heap = self.heap(program)
        program("alloc", 10, 100)
        heap.kill()
        self.assertEqual(program("alloc", 1, 1)[0], "live")
        deadline = time.monotonic() + 20
        while float(program("pairs", 100000, 64)[1]) > 500:
            self.assertLess(time.monotonic(), deadline, "probes are left in the program")
        program.before = program("free", 0)
        heap = self.heap(program)
        self.assertEqual(program.live("alloc", 7, 7), heap.live())
        books = [b for b in pathlib.Path(heap.books).rglob("*-*") if b.is_file()]
        self.assertEqual(len(books), 1, "the book of the killed observer stayed")

    def test_the_end_of_the_process_ends_the_observer(self):
        program = self.program()
        heap = self.heap(program)
        program("alloc", 10, 100)
        program.process.send_signal(signal.SIGKILL)
        self.assertEqual(heap.process.wait(30), 0)

    def test_exec_ends_the_observer(self):
        program = self.program()
        heap = self.heap(program)
        program("alloc", 10, 100)
        self.assertEqual(program("exec"), ["live", "1000000", "500"])
        self.assertEqual(heap.process.wait(30), 0)
        self.assertEqual(program("alloc", 1, 1), ["live", "1000001", "501"])

    def test_exec_ends_the_observer_although_its_ring_is_full(self):
        program = self.program()
        heap = self.heap(program, "--sample-bytes", "1")
        for _ in range(20):
            program("alloc", 100, 8)
            heap.status()  # it has taken their stacks
        heap.process.send_signal(signal.SIGSTOP)
        program("alloc", 1000, 8)  # stacks fill the ring, the ends of blocks fill what is left of it
        program("free", 3000)
        self.assertEqual(program("exec"), ["live", "1000000", "500"])
        heap.process.send_signal(signal.SIGCONT)
        self.assertEqual(heap.process.wait(30), 0)

    def test_a_stopped_process_is_attached_and_detached(self):
        program = self.program()
        program.process.send_signal(signal.SIGSTOP)
        heap = self.heap(program)
        program.process.send_signal(signal.SIGCONT)
        self.assertEqual(program.live("alloc", 10, 100), heap.live())
        program.process.send_signal(signal.SIGSTOP)
        self.assertEqual(heap.stop(), 0)
        program.process.send_signal(signal.SIGCONT)
        self.assertEqual(program.live("alloc", 1, 1), (1001, 11))

    def test_operator_new_that_throws(self):
        libraries = [str(LIBRARIES / ALLOCATORS[name]) for name in ("jemalloc", "tcmalloc")]
        for library in ["", *filter(os.path.exists, libraries)]:
            with self.subTest(library=library):
                program = self.program(CPP, **({"LD_PRELOAD": library} if library else {}))
                alone = program("work")
                for _ in range(1 if library else 3):
                    heap = self.heap(program)
                    self.assertEqual(program("leak", 200), alone)
                    self.assertGreaterEqual(heap.live()[0], 200 * 1000)
                    heap.stop()
                    self.assertEqual(program("work"), alone)


class Children(AttachTest):
    """A program that forks: the child reads the commands until it exits."""

    def child_of(self, program):
        program("child")
        with open(f"/proc/{program.pid}/task/{program.pid}/children") as f:
            return int(f.read().split()[0])

    def test_a_child_is_counted_by_an_observer_of_its_own(self):
        program = self.program()
        heap = self.heap(program, "--children", "4")
        child = self.child_of(program)
        self.eventually(lambda: heap.status()["children"], [child])
        own = heap.of(child)
        self.eventually(lambda: own.state(), "attached")
        program("alloc", 10, 100)
        program("free", 5)
        self.assertEqual(own.live(), (500, 5))
        self.assertEqual(heap.live(), (0, 0), "nothing of that is the parent's")
        program.process.stdin.write(b"exit\n")
        program.answer()  # the parent's
        self.eventually(lambda: heap.status()["children"], [])
        self.assertEqual(program.live("alloc", 1, 7), heap.live())

    def test_a_detach_leaves_the_children_too(self):
        program = self.program()
        heap = self.heap(program, "--children", "4")
        own = heap.of(self.child_of(program))
        self.eventually(lambda: own.state(), "attached")
        self.assertEqual(heap.stop(), 0)
        self.assertIsNone(own.state())
        self.assertLess(float(program("pairs", 100000, 64)[1]), 500, "probes are left in the child")

    def test_more_children_than_allowed_are_counted_as_missed(self):
        program = self.program()
        heap = self.heap(program, "--children", "0")
        self.child_of(program)
        self.assertEqual(heap.status()["missed_children"], 0, "nothing is followed")
        program.process.stdin.write(b"exit\n")
        program.answer()
        heap.stop()
        heap = self.heap(program, "--children", "1")
        first = self.child_of(program)
        self.eventually(lambda: heap.of(first).state(), "attached")
        program("child")  # a grandchild: a quarter of one child is none
        self.assertEqual(heap.of(first).status()["children"], [])
        self.assertEqual(heap.status()["children"], [first])

    def test_without_the_option_they_are_left_alone(self):
        program = self.program()
        heap = self.heap(program)
        child = self.child_of(program)
        program("alloc", 10, 100)
        status = heap.status()
        self.assertEqual((status["children"], status["bytes"]), ([], 0))
        self.assertIsNone(heap.of(child).state())

    def test_a_child_that_executes_a_program_is_not_followed(self):
        program = self.program()
        heap = self.heap(program, "--children", "4")
        child = self.child_of(program)
        own = heap.of(child)
        self.eventually(lambda: own.state(), "attached")
        self.assertEqual(program("exec"), ["live", "1000000", "500"])
        self.eventually(lambda: own.state(), None)
        self.eventually(lambda: heap.status()["children"], [])
        self.assertEqual(program("alloc", 1, 1), ["live", "1000001", "501"])


class Budget(AttachTest):
    def estimated(self, *command):
        """Works until a few windows have closed: what it holds, and what the observer says then."""
        program = self.program()
        heap = self.heap(program, "--budget", "25")
        deadline = time.monotonic() + PATIENCE_S
        while heap.status()["windows"] < 3:
            self.assertLess(time.monotonic(), deadline, heap.status())
            held, _ = program.live(*command)
        status = heap.status()
        self.assertTrue(status["estimated"])
        self.assertTrue(status["probe_measured"])  # on this machine: 900 ns, more beside other programs
        self.assertTrue(150e-9 < status["probe_cost"] < 30e-6 and status["probe_cost"] != 1e-6, status)
        self.assertGreater(status["figures_age"], 0)
        self.assertGreater(status["cpu_share"], 0.1)  # of the last look: less than the budget beside other programs
        return held, status, heap

    def within(self, *command):
        """The error that it states is two standard deviations: one of many runs may be outside."""
        for _ in range(3):
            held, status, heap = self.estimated(*command)
            self.assertLess(status["bytes_error"], 0.9 * held, (held, status))
            if abs(status["bytes"] - held) <= status["bytes_error"]:
                return heap
            heap.stop()
        self.fail((held, status))

    def test_above_the_budget_figures_are_estimates_with_their_error(self):
        heap = self.within("mixed", 500)
        rows = self.json("query", "processes", "--show", "pid,heap", "--dir", heap.books)["rows"]
        self.assertIn("heap", rows[0].get("estimate", []), rows)

    def test_blocks_that_come_and_go_between_windows_are_no_growth(self):
        self.within("ring", 500, 60000)

    def test_a_process_that_does_little_is_exact(self):
        program = self.program()
        heap = self.heap(program, "--budget", "2")
        deadline = time.monotonic() + PATIENCE_S
        while heap.status()["attached"] < 5:
            self.assertLess(time.monotonic(), deadline)
            program("pairs", 8, 64)
            time.sleep(0.005)  # a service that waits for others most of the time
        status = heap.status()
        self.assertGreater(status["cpu_share"], 0.02, "it is above the budget")
        self.assertFalse(status["estimated"], status)

    def test_below_it_they_are_exact(self):
        program = self.program()
        heap = self.heap(program, "--budget", "100")
        for _ in range(6):
            held = program.live("mixed", 200)
        self.assertEqual(heap.live(), held)
        self.assertFalse(heap.status()["estimated"])
        self.assertEqual(heap.status()["figures_age"], 0)


class Views(AttachTest):
    def test_sites_name_the_line_and_not_operator_new(self):
        program = self.program(CPP)
        program("work")
        heap = self.heap(program, "--sample-bytes", "4096")
        for _ in range(8):  # what hands requests on is known from here on, one caller after the other
            program("leak", 1)
            heap.ask("flush")
        program("leak", 3000)
        heap.ask("flush")
        sites = self.json("sites", program.pid, "--dir", heap.books)["sites"]
        largest = max(sites, key=lambda s: s["bytes"])
        self.assertEqual(largest["module"], str(CPP), "the library's operator new")
        self.assertGreaterEqual(largest["bytes"], 2900 * 1000)
        flame = self.memoir("flame", program.pid, "--dir", heap.books).stdout
        self.assertIn("leak", flame)
        self.assertIn("main", flame)

    def test_every_view_has_it(self):
        program = self.program()
        heap = self.heap(program)
        program("alloc", 1000, 1000)
        heap.ask("flush")
        rows = self.json("query", "processes", "--show", "pid,heap,blocks", "--dir", heap.books)["rows"]
        self.assertEqual(rows, [{"pid": program.pid, "heap": 1000000, "blocks": 1000, "at_least": ["heap", "blocks"]}])
        sites = self.json("sites", program.pid, "--dir", heap.books)["sites"]
        self.assertEqual([s["bytes"] for s in sites], [1000000])
        self.assertIn("alloc_some", str(sites[0]))

    def test_refusals_are_clear(self):
        done = self.memoir("attach", 999999999)
        self.assertEqual((done.returncode, done.stderr), (3, "memoir: no process 999999999\n"))
        with self.assertRaises(RuntimeError) as caught:
            Heap(2, self.folder)  # a thread of the kernel
        self.assertIn("it is a thread of the kernel", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
