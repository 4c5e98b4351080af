"""Figures of the observer where calls fail, contexts end, old forms are called, and a user means harm."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest
import unittest.mock

from endurance_support import PinnedMap
from observe_support import BUILD, Drive, LIBRARY, ObserveTest, PATIENCE_S, environment, live, wait_for

MIB = 1 << 20

# Executes the text in each line that it reads and answers with the value of `r`.
PROGRAM = """
import ctypes, os, sys
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p, create_string_buffer
if "UIDS" in os.environ: # real, effective and saved; a program that starts with different ones would not find the library
    os.setresuid(*map(int, os.environ["UIDS"].split()))
c = ctypes.CDLL('libcuda.so.1')
c.cuInit(0)
def primary(device):
    context = c_void_p()
    assert c.cuDevicePrimaryCtxRetain(byref(context), device) == 0
    assert c.cuCtxSetCurrent(context) == 0
    return context
def alloc(size):
    p = c_uint64()
    assert c.cuMemAlloc_v2(byref(p), c_size_t(size)) == 0
    return p
def physical(size):
    handle, properties = c_uint64(), create_string_buffer(32)
    ctypes.memmove(properties, b'\\1\\0\\0\\0' b'\\0\\0\\0\\0' b'\\1\\0\\0\\0', 12)
    assert c.cuMemCreate(byref(handle), c_size_t(size), properties, c_uint64(0)) == 0
    return handle
print('ready', flush=True)
for line in sys.stdin:
    r = None
    exec(eval(line))
    print(repr(r), flush=True)
"""


class Program:
    def __init__(self, folder, user=None, **more):
        python = sys.executable if user is None else "/usr/bin/python3"  # which other users may run
        self.process = subprocess.Popen([python, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, user=user, env=environment(folder, **more))
        self.pid = self.process.pid
        assert self.process.stdout.readline().strip() == "ready"

    def __call__(self, line):
        self.process.stdin.write(repr(line) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise AssertionError(f"ended at: {line}")
        return eval(answer)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class FiguresTest(ObserveTest):
    def program(self, **more):
        program = Program(self.folder, **more)
        self.addCleanup(program.close)
        return program


class Forms(FiguresTest):
    def test_old_forms_have_narrow_sizes(self):
        observer = self.shared()
        program = self.program()
        program("primary(0)")
        # The upper half of the register is not part of the argument.
        self.assertEqual(program("p = c_void_p(); r = c.cuMemAllocHost(byref(p), c_uint64(0x123400000000 + 65536))"), 0)
        self.assertEqual(live(observer.traced(program.pid), "pinned"), 65536)
        self.assertEqual(program("p = c_uint64(); w = c_uint64(); r = c.cuMemAllocPitch(byref(p), byref(w), "
                                 "c_uint64(512), c_uint64(0x500000000 + 16), 4)"), 0)
        self.assertEqual(live(observer.traced(program.pid), "dram"), 512 * 16)

    def test_levels_of_a_mipmapped_array(self):
        observer = self.shared()
        program = self.program()
        program("primary(0)")
        program("import struct; d = create_string_buffer(struct.pack('QQQIIII', 64, 64, 0, 0x20, 1, 0, 0)); h = c_void_p()")
        self.assertEqual(program("r = c.cuMipmappedArrayCreate(byref(h), d, c_uint64(0x100000000 + 2))"), 0)
        self.assertEqual(live(observer.traced(program.pid), "dram"), (64 * 64 + 32 * 32) * 4)

    def test_a_batch_of_copies_is_counted_whole(self):
        observer = self.shared()
        program = self.program()
        program("primary(0)")
        program("n = 200; a, b = alloc(1 << 20), alloc(1 << 20)")
        program("to, of, sizes = (c_uint64 * n)(*[a.value] * n), (c_uint64 * n)(*[b.value] * n), (c_size_t * n)(*[100] * n)")
        program("at, which = (c_uint64 * 16)(), (c_size_t * 1)(0)")
        program("at[0] = 1; fail = c_size_t(); stream = c_void_p(); c.cuStreamCreate(byref(stream), 1)")
        self.assertEqual(program("r = c.cuMemcpyBatchAsync(to, of, sizes, c_size_t(n), at, which, c_size_t(1), byref(fail), "
                                 "stream)"), 0)
        copies = observer.traced(program.pid)["copies"]
        self.assertEqual((copies["unknown"]["copies"], copies["unknown"]["bytes"]), (200, 20000))


    def test_a_batch_of_shaped_copies(self):
        observer = self.shared()
        program = self.program()
        program("primary(0); import struct; a, b = alloc(1 << 20), alloc(1 << 20)")
        program("one = lambda p: struct.pack('IIQQQQ', 1, 0, p.value, 0, 0, 0)")
        program("op = one(b) + one(a) + struct.pack('QQQII', 128, 4, 2, 1, 0); n = 70; stream = c_void_p()")
        program("c.cuStreamCreate(byref(stream), 1); ops = create_string_buffer(op * n)")
        self.assertEqual(program("r = c.cuMemcpy3DBatchAsync_v2(c_size_t(n), ops, c_uint64(0), stream)"), 0)
        copies = observer.traced(program.pid)["copies"]
        self.assertEqual((copies["unknown"]["copies"], copies["unknown"]["bytes"]), (70, 70 * 1024))

    def test_a_multicast_object_has_no_memory_of_its_own(self):
        observer = self.shared()
        program = self.program()
        program("primary(0); h = c_uint64(); p = create_string_buffer(__import__('struct').pack('IIQQQ', 1, 0, 2 << 20, 0, 0))")
        self.assertEqual(program("r = c.cuMulticastCreate(byref(h), p)"), 0)
        self.assertEqual(live(observer.traced(program.pid), "dram"), 0)
        self.assertEqual(program("r = c.cuMemRelease(h)"), 0)
        self.assertEqual(observer.traced(program.pid)["blocks"], 0)


class System(FiguresTest):
    """What the operating system did, from the dump of a history."""

    def system(self, observer, program):
        observer.ask("flush")
        path = self.folder / "dump"
        path.write_bytes(observer.ask(f"dump {program.pid}"))
        told = subprocess.run([BUILD / "src/cli/memoir", "trace", "dump", "--json", "-o", "-", path], capture_output=True,
                              text=True, check=True)
        return json.loads(told.stdout)

    def test_huge_pages_and_brk(self):
        observer = self.shared()
        program = self.program()
        program("primary(0); a = alloc(4 << 20); libc = ctypes.CDLL(None); libc.sbrk.restype = c_void_p")
        program("h = libc.sbrk(c_size_t(8 << 20))")
        self.assertEqual(program("r = c.cuMemcpyHtoD_v2(a, c_void_p(h), c_size_t(4096))"), 0)
        program("import mmap; m = mmap.mmap(-1, 8 << 20); m.write(b'x' * (8 << 20)); "
                "w = (ctypes.c_char * (8 << 20)).from_buffer(m); at = (ctypes.addressof(w) + (2 << 20) - 1) & -(2 << 20)")
        collapsed = program("r = libc.madvise(c_void_p(at), c_size_t(2 << 20), 25)")  # MADV_COLLAPSE
        told = self.system(observer, program)
        if collapsed == 0:
            self.assertEqual(told["totals"]["system"]["huge"], 1)
        heap = program("r = h")
        self.assertTrue(any(b["address"] == heap and b["size"] == 8 << 20 for b in told["blocks"]), told["blocks"])


    def test_prefetches_one_by_one_and_in_batches(self):
        observer = self.shared()
        program = self.program()
        program("primary(0); m = c_uint64(); assert c.cuMemAllocManaged(byref(m), c_size_t(4 << 20), 1) == 0")
        program("at, sizes = (c_uint64 * 2)(m.value, m.value + 65536), (c_size_t * 2)(4096, 8192)")
        program("where, which = (c_int * 2)(1, 0), (c_size_t * 1)(0)")
        for batch in ("cuMemPrefetchBatchAsync", "cuMemDiscardAndPrefetchBatchAsync"):
            self.assertEqual(program(f"r = c.{batch}(at, sizes, c_size_t(2), where, which, c_size_t(1), c_uint64(0), None)"), 0)
        told = self.system(observer, program)
        block = [b for b in told["blocks"] if b["space"] == "managed"]
        self.assertEqual([b["prefetches"] for b in block], [{"copies": 4, "bytes": 2 * (4096 + 8192)}], told["blocks"])
        self.assertEqual(observer.traced(program.pid)["lost"]["unreadable"], 0)


class Copies(FiguresTest):
    """Small copies of ranges that were copied before are counted at their entry: their return is not looked at."""

    def begin(self, *options, **more):
        observer = self.observer(*options) if options else self.shared()
        program = self.program(**more)
        program("primary(0); a = alloc(1 << 20); b = create_string_buffer(1 << 20)")
        return observer, program

    def copies(self, program, n, to="a.value", size=4096):
        """How many of n copies to the device the driver refused."""
        return program(f"r = sum(c.cuMemcpyHtoD_v2(c_uint64({to}), b, c_size_t({size})) != 0 for i in range({n}))")

    def counted(self, observer, program):
        traced = observer.traced(program.pid)
        to = traced["copies"]["to_device"]
        return to["copies"], to["bytes"], traced["unchecked_copies"], traced["lost"]["doubtful_copies"]

    def test_most_returns_of_small_copies_are_left_out(self):
        observer, program = self.begin()
        if not observer.status()["session"]:
            self.skipTest("the kernel has no session links")
        self.assertEqual(self.copies(program, 640), 0)
        count, size, unchecked, doubtful = self.counted(observer, program)
        self.assertEqual((count, size, doubtful), (640, 640 * 4096, 0))
        self.assertGreaterEqual(unchecked, 580)  # the last ones are counted with the next check
        self.assertLessEqual(unchecked, 640 * 31 // 32)

    def test_large_copies_and_other_ranges_are_checked(self):
        observer, program = self.begin()
        large = (4 << 20) + 1
        program(f"a = alloc({large}); b = create_string_buffer({large})")
        self.assertEqual(self.copies(program, 50, size=large), 0)
        self.assertEqual(self.copies(program, 100, to="a.value + 8192 * i"), 0)
        self.assertEqual(self.counted(observer, program), (150, 50 * large + 100 * 4096, 0, 0))

    def test_neighbouring_ranges_are_proved_together(self):
        observer, program = self.begin()
        if not observer.status()["session"]:
            self.skipTest("the kernel has no session links")
        self.assertEqual(self.copies(program, 1000, to="a.value + i % 200 * 4096"), 0)
        count, _, unchecked, _ = self.counted(observer, program)
        self.assertEqual(count, 1000)
        self.assertGreaterEqual(unchecked, 700)

    def test_refused_copies_are_not_counted(self):
        for links in ((), ("--two-links",)):
            with self.subTest(links=links):
                observer, program = self.begin(*links)
                self.assertEqual(self.copies(program, 100), 0)
                self.assertEqual(self.copies(program, 100, to="a.value + (1 << 20) - 100"), 100)  # beyond the end
                self.assertEqual(self.copies(program, 100, to="64"), 100)
                self.assertEqual(self.copies(program, 10), 0)
                self.assertEqual(self.counted(observer, program)[:2], (110, 110 * 4096))
                observer.stop()

    def test_a_copy_to_memory_that_was_freed_is_checked(self):
        observer, program = self.begin()
        self.assertEqual(self.copies(program, 100), 0)
        self.assertEqual(program("r = c.cuMemFree_v2(a)"), 0)
        self.assertEqual(self.copies(program, 100), 100)
        self.assertEqual(self.counted(observer, program)[0], 100)
        program("a = alloc(1 << 20)")
        self.assertEqual(self.copies(program, 100), 0)
        self.assertEqual(program("r = c.cuDevicePrimaryCtxReset_v2(0)"), 0)
        self.assertEqual(self.copies(program, 100), 100)
        self.assertEqual(self.counted(observer, program)[0], 200)

    def test_copies_that_failed_unseen_are_told_as_doubtful(self):
        # From its 100th copy on the device refuses all, as it does after a kernel crashed.
        observer, program = self.begin(MEMOIR_STANDIN_FAIL="cuMemcpyHtoD_v2:100+")
        refused = self.copies(program, 500)
        self.assertEqual(refused, 401)
        count, _, _, doubtful = self.counted(observer, program)
        self.assertLessEqual(doubtful, 31)
        self.assertLessEqual(count - doubtful, 99)
        self.assertGreaterEqual(count, 99)
        self.assertLess(count, 99 + 32)

    def test_with_two_links_every_copy_is_checked(self):
        observer, program = self.begin("--two-links", MEMOIR_STANDIN_FAIL="cuMemcpyHtoD_v2:100+")
        self.assertFalse(observer.status()["session"])
        self.assertEqual(self.copies(program, 500), 401)
        self.assertEqual(self.counted(observer, program), (99, 99 * 4096, 0, 0))


class Contexts(FiguresTest):
    def test_the_last_release_of_a_primary_context_frees_its_memory(self):
        observer = self.shared()
        program = self.program()
        program("primary(0); primary(0); alloc(1 << 20)")
        program("r = c.cuDevicePrimaryCtxRelease_v2(0)")
        self.assertEqual(live(observer.traced(program.pid), "dram"), MIB)
        program("r = c.cuDevicePrimaryCtxRelease_v2(0)")
        self.assertEqual(live(observer.traced(program.pid), "dram"), 0)

    def test_physical_memory_outlives_contexts(self):
        observer = self.shared()
        program = self.program()
        program("primary(0); h = physical(4 << 20); alloc(1 << 20)")
        self.assertEqual(live(observer.traced(program.pid), "dram"), 5 * MIB)
        self.assertEqual(program("r = c.cuDevicePrimaryCtxReset_v2(0)"), 0)
        traced = observer.traced(program.pid)
        self.assertEqual((live(traced, "dram"), traced["history_live"]), (4 * MIB, 4 * MIB))
        self.assertEqual(program("r = c.cuMemRelease(h)"), 0)
        self.assertEqual(live(observer.traced(program.pid), "dram"), 0)

    def test_memory_of_an_ended_context_does_not_come_back(self):
        observer = self.observer()
        program = self.program()
        program("ctx = c_void_p(); r = c.cuCtxCreate_v2(byref(ctx), 0, 0)")
        program("for i in range(10): alloc(1 << 20)")
        self.assertEqual(program("r = c.cuCtxDestroy_v2(ctx)"), 0)
        self.assertEqual(observer.traced(program.pid)["blocks"], 0)
        program("primary(0); alloc(3 << 20)")
        observer.kill()
        observer.start()
        traced = observer.traced(program.pid)
        self.assertEqual((live(traced, "dram"), traced["history_live"], traced["blocks"]), (3 * MIB, 3 * MIB, 1))

    def test_a_popped_context_uncovers_the_one_below(self):
        observer = self.shared()
        program = self.program()
        program("a = primary(0); b = primary(1); c.cuCtxSetCurrent(b)")
        program("c.cuCtxPushCurrent_v2(a); o = c_void_p(); r = c.cuCtxPopCurrent_v2(byref(o))")
        program("alloc(5 << 20)")
        program("r = c.cuDevicePrimaryCtxReset_v2(0)")
        self.assertEqual(live(observer.traced(program.pid), "dram"), 5 * MIB)  # it is on the other device
        program("r = c.cuDevicePrimaryCtxReset_v2(1)")
        self.assertEqual(live(observer.traced(program.pid), "dram"), 0)

    def test_contexts_of_one_process_leave_room_for_others(self):
        observer = self.shared()
        program, other = self.program(), self.drive()
        program("primary(0); p = c_uint64()")
        program("for i in range(20000): c.cuCtxSetCurrent(c_void_p(0x1000 + i)); c.cuMemHostAlloc(byref(p), c_size_t(4096), 0)")
        program("for i in range(20000): c.cuCtxSetCurrent(c_void_p(0x1000 + i)); c.cuMemFree_v2(c_uint64(0x77777777))")
        other.ok("primary", 0)
        self.assert_same(observer, other.pid, other.ok("alloc", 5 * MIB))


class Handles(FiguresTest):
    def test_a_release_that_fails_takes_nothing(self):
        observer = self.shared()
        program = self.program(MEMOIR_STANDIN_FAIL="cuMemRelease:2+")
        program("primary(0); h = physical(4 << 20); va = c_uint64()")
        self.assertEqual(program("r = c.cuMemAddressReserve(byref(va), c_size_t(4 << 20), c_size_t(0), c_uint64(0), "
                                 "c_uint64(0))"), 0)
        self.assertEqual(program("r = c.cuMemMap(va, c_size_t(4 << 20), c_size_t(0), h, c_uint64(0))"), 0)
        self.assertEqual(program("r = c.cuMemRelease(h)"), 0)
        self.assertNotEqual(program("r = c.cuMemRelease(h)"), 0)
        self.assertEqual(live(observer.traced(program.pid), "dram"), 4 * MIB)  # mapped as before
        self.assertEqual(program("r = c.cuMemUnmap(va, c_size_t(4 << 20))"), 0)
        self.assertEqual(live(observer.traced(program.pid), "dram"), 0)
        program("h = physical(2 << 20)")
        self.assertNotEqual(program("r = c.cuMemRelease(h)"), 0)
        traced = observer.traced(program.pid)
        self.assertEqual((live(traced, "dram"), traced["history_live"]), (2 * MIB, 2 * MIB))


class Endurance(FiguresTest):
    def pins(self, observer):
        return f"/sys/fs/bpf/memoir-{observer.name}"

    def entries(self, observer, name):
        """The PIDs that a pinned map has entries for. Programs of other tests may be among them."""
        with PinnedMap(f"{self.pins(observer)}/{name}") as pinned:
            return set(pinned.pids())

    def test_ended_processes_leave_nothing_behind(self):
        observer = self.shared()
        ended = set()
        for _ in range(5):
            drive = self.drive()
            ended.add(drive.pid)
            drive.ok("primary", 0)
            drive.ok("alloc", MIB)
            observer.ask("flush")
            drive.close()
            wait_for("its end is told", lambda: observer.traced(drive.pid) is None)
        observer.ask("flush")
        for name in ("processes", "consumed", "python_facts"):
            self.assertEqual(self.entries(observer, name) & ended, set(), name)

    def test_a_process_that_gets_the_pid_of_another_inherits_nothing(self):
        observer = self.shared()
        drive = self.drive()
        drive.ok("primary", 0)
        drive.ok("alloc", 5 * MIB)
        pid = drive.pid
        drive.close()
        wait_for("its end is told", lambda: observer.traced(pid) is None)
        for _ in range(50):
            pathlib.Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
            again = self.drive()
            if again.pid == pid:
                break
            again.close()
        else:
            self.skipTest("another program was faster each time")
        again.ok("primary", 0)
        traced = self.assert_same(observer, pid, again.ok("alloc", MIB))
        self.assertEqual((live(traced, "dram"), traced["blocks"]), (MIB, 1))

    def test_an_observer_killed_while_it_reads_leaks_no_share_of_the_ring(self):
        observer = self.observer("--ring-quota", "262144")
        drive = self.drive()
        drive.ok("primary", 0)
        for i in range(6):
            observer.process.send_signal(signal.SIGSTOP)
            drive.ok("phase", "churn", 3000, 1)
            observer.process.send_signal(signal.SIGCONT)
            observer.kill()
            observer.start()
        observer.ask("flush")
        before = observer.traced(drive.pid)
        drive.ok("alloc", MIB)
        after = observer.traced(drive.pid)
        self.assertEqual(after["lost"]["events"], before["lost"]["events"])

    def test_processes_that_fill_the_ring_leave_room_for_others(self):
        # Large enough that a few programs of tests beside this one, which have shares of it, too, leave enough.
        observer = self.observer("--ring-bytes", str(MIB), "--ring-quota", str(MIB // 2))
        hostile, other = [self.drive() for _ in range(3)], self.drive()
        for drive in (*hostile, other):
            drive.ok("primary", 0)
        observer.ask("flush")
        observer.process.send_signal(signal.SIGSTOP)  # nobody reads
        try:
            for drive in hostile:
                drive.ok("phase", "churn", 8000, 1)
            answer = other.ok("alloc", MIB)
            for _ in range(50):
                answer = other.ok("alloc", 4096)
        finally:
            observer.process.send_signal(signal.SIGCONT)
        self.assertEqual(self.assert_same(observer, other.pid, answer)["lost"]["events"], 0)
        for drive in hostile:
            self.assertGreater(observer.traced(drive.pid)["lost"]["events"], 0)

    def test_a_pin_of_an_observer_that_was_killed_while_it_attached(self):
        observer = self.observer()
        observer.kill()
        pins = pathlib.Path(self.pins(observer))
        enter = [p for p in pins.iterdir() if p.name.startswith("probes-") and p.name.endswith("-enter")]
        self.assertGreater(len(enter), 0)
        for pin in enter:
            pin.unlink()
        observer.start()
        self.assertNotIn("no probes", observer.log.read_text())
        drive = self.drive()
        drive.ok("primary", 0)
        self.assert_same(observer, drive.pid, drive.ok("alloc", MIB))

    def test_requests_are_answered_while_events_never_end(self):
        observer = self.shared()
        drives = [self.drive() for _ in range(3)]
        for drive in drives:
            drive.ok("primary", 0)
            drive.process.stdin.write("phase churn 400000 4\n")
            drive.process.stdin.flush()
        slowest = 0.0
        for _ in range(5):
            start = time.monotonic()
            observer.status()
            slowest = max(slowest, time.monotonic() - start)
        self.assertTrue(all(d.process.poll() is None for d in drives))
        self.assertLess(slowest, 10)

    def test_a_dump_that_nobody_reads_holds_neither_the_observer_nor_its_name(self):
        observer = self.observer()
        drive = self.drive()
        drive.ok("primary", 0)
        for _ in range(20):
            drive.ok("phase", "churn", 2000, 2)
        observer.ask("flush")
        clients = []
        for _ in range(8):
            s = socket.socket(socket.AF_UNIX)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            self.addCleanup(s.close)
            s.connect(observer.socket)
            s.sendall(f"dump {drive.pid}\n".encode())
            clients.append(s)
        start = time.monotonic()
        observer.status()
        self.assertLess(time.monotonic() - start, 15)
        observer.kill()
        observer.start()  # refused while the lock is held


class Uses(FiguresTest):
    """What the driver counts beyond blocks: NVML is asked when a context is made."""

    CONTEXT = 64 * MIB  # of the stand-in

    def setUp(self):
        super().setUp()
        more = {"MEMOIR_NVML": str(LIBRARY.parent / "libnvidia-ml.so.1"), "MEMOIR_STANDIN_DIR": str(self.folder)}
        patch = unittest.mock.patch.dict(os.environ, more)
        patch.start()
        self.addCleanup(patch.stop)

    def device(self, observer, program):
        def told():
            devices = (observer.traced(program.pid) or {}).get("devices")
            return devices and not (devices[0]["estimated"] and "context" not in devices[0]) and devices[0]
        return wait_for("NVML's figure", told)

    def test_the_context_of_a_program_traced_from_its_start(self):
        observer = self.observer()
        program = self.program()
        program("primary(0); alloc(5 << 20); alloc(1000)")
        device = wait_for("an exact figure", lambda: (d := self.device(observer, program)) and not d["estimated"] and d)
        self.assertEqual(device, {"ordinal": 0, "context": self.CONTEXT, "before": 0, "estimated": False})
        program("alloc(50 << 20)")
        self.assertEqual(self.device(observer, program)["context"], self.CONTEXT)

    def test_what_was_there_before_tracing_began(self):
        early = self.program()
        early("primary(0); alloc(10 << 20)")
        observer = self.observer()
        early("alloc(4 << 20)")
        device = self.device(observer, early)
        self.assertNotIn("context", device)  # of the two only the sum is known
        self.assertEqual(device["before"], self.CONTEXT + 10 * MIB)
        late = self.program()
        late("primary(0)")
        wait_for("a context to compare with", lambda: "context" in self.device(observer, early))
        device = self.device(observer, early)
        self.assertEqual((device["context"], device["before"], device["estimated"]),
                         (self.CONTEXT, 10 * MIB, True))

    def test_a_context_that_ended_is_asked_for_again(self):
        observer = self.observer()
        program = self.program()
        program("primary(0)")
        self.device(observer, program)
        program("c.cuDevicePrimaryCtxReset_v2(0)")
        wait_for("its end", lambda: observer.traced(program.pid)["devices"] == [])
        program("primary(0)")
        self.assertEqual(self.device(observer, program)["context"], self.CONTEXT)


class Users(FiguresTest):
    def test_processes_of_one_user_leave_room_for_others(self):
        observer = self.observer("--blocks-max", "1000", "--blocks-quota", "300", "--user-quota", "500")
        os.chmod(self.folder, 0o777)
        hostile = [self.program(user=12345) for _ in range(4)]
        for program in hostile:
            program("primary(0)\nfor i in range(300): alloc(4096)")
        kept = sum(observer.traced(p.pid)["blocks"] for p in hostile)
        lost = sum(observer.traced(p.pid)["lost"]["blocks"] for p in hostile)
        self.assertEqual((kept, lost), (500, 700))
        other = self.program(user=12346)
        other("primary(0)\nfor i in range(250): alloc(4096)")
        traced = observer.traced(other.pid)
        self.assertEqual((traced["blocks"], traced["lost"]["blocks"]), (250, 0))
        # What ended processes held is free for others of that user.
        for program in hostile[:2]:
            program.close()
        wait_for("their end is told", lambda: all(observer.traced(p.pid) is None for p in hostile[:2]))
        observer.ask("flush")
        late = self.program(user=12345)
        late("primary(0)\nfor i in range(100): alloc(4096)")
        self.assertEqual(observer.traced(late.pid)["blocks"], 100)


    def test_subordinate_uids_and_set_uid_programs_are_in_the_quota_of_their_user(self):
        if not os.path.exists("/etc/subuid"):
            self.skipTest("no /etc/subuid here")
        os.chmod(self.folder, 0o777)
        table = self.folder / "subuid"
        table.write_text("12345:200000:10\n")
        mounted = ["unshare", "--mount", "sh", "-c", f'mount --bind {table} /etc/subuid && exec "$@"', "sh"]
        observer = self.observer("--blocks-max", "1000", "--blocks-quota", "300", "--user-quota", "300", prefix=mounted)
        # The last one's uids differ, as those of a set-uid program: it is shown to root alone, and its user pays.
        for real, effective, kept in ((12345, 12345, 200), (200003, 200003, 100), (200004, 200004, 0), (12346, 12346, 200),
                                      (12345, 12346, 0)):
            program = self.program(UIDS=f"{real} {effective} {effective}")
            program("primary(0)\nfor i in range(200): alloc(4096)")
            traced = observer.traced(program.pid)
            self.assertEqual((traced["blocks"], traced["lost"]["blocks"]), (kept, 200 - kept), (real, effective))


class Libraries(FiguresTest):
    def test_files_of_a_user_leave_room_for_the_driver(self):
        observer = self.observer()
        image = LIBRARY.read_bytes()
        kept = []
        for i in range(80):
            path = self.folder / f"{i}" / "libcuda.so.1"
            path.parent.mkdir()
            path.write_bytes(image)
            os.chown(path, 12345, 12345)
            kept.append(path)
        code = ("import ctypes, sys\nfor p in sys.argv[1:]: ctypes.CDLL(p)\nprint('ready', flush=True); sys.stdin.readline()")
        hostile = subprocess.Popen([sys.executable, "-c", code, *map(str, kept)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        try:
            self.assertEqual(hostile.stdout.readline().strip(), "ready")
            observer.ask("flush")
            self.assertLess(observer.status()["libraries"], 40)
            late = self.folder / "late" / "libcuda.so.1"
            late.parent.mkdir()
            late.write_bytes(image)
            drive = self.drive(LD_LIBRARY_PATH=str(late.parent))
            observer.ask("flush")
            drive.ok("primary", 0)
            self.assert_same(observer, drive.pid, drive.ok("alloc", MIB))
        finally:
            hostile.kill()
            hostile.communicate()

    def test_files_that_nobody_maps_any_more_make_room(self):
        observer = self.observer()
        image = LIBRARY.read_bytes()
        for i in range(70):  # containers that come and go
            path = self.folder / f"{i}" / "libcuda.so.1"
            path.parent.mkdir()
            path.write_bytes(image)
            drive = Drive(self.folder, LD_LIBRARY_PATH=str(path.parent))
            observer.ask("flush")
            drive.close()
            path.unlink()
        log = observer.log.read_text()
        self.assertEqual(log.count(f"functions of '{self.folder}"), 70, log)

    def test_a_file_that_no_process_used_for_two_rounds_loses_its_probes(self):
        """They would hold the space of a file that was removed."""
        observer = self.observer()
        folders = [self.folder / name for name in ("used", "unused")]
        for folder in folders:
            folder.mkdir()
            shutil.copy(LIBRARY.resolve(), folder / "libcuda.so.1")
        used = self.drive(LD_LIBRARY_PATH=str(folders[0]))
        unused = Drive(self.folder, LD_LIBRARY_PATH=str(folders[1]))
        names = [f"{os.stat(folder / 'libcuda.so.1').st_ino:x}" for folder in folders]

        def probed():
            links = " ".join(os.listdir(f"/sys/fs/bpf/memoir-{observer.name}"))
            return [name in links for name in names]

        wait_for("probes on both", lambda: observer.ask("flush") is not None and probed() == [True, True])
        unused.close()
        shutil.rmtree(folders[1])
        observer.ask("tidy")
        self.assertEqual(probed(), [True, True])  # a process may come in a moment
        observer.ask("tidy")
        self.assertEqual(probed(), [True, False])
        used.ok("primary", 0)
        self.assert_same(observer, used.pid, used.ok("alloc", MIB))

    def test_a_process_that_maps_it_in_a_loop_does_not_hold_up_others(self):
        observer = self.observer()
        code = ("import ctypes, mmap, sys\nf = open(sys.argv[1], 'rb')\nkept = []\n"
                "c = ctypes.CDLL(None); c.mmap.restype = ctypes.c_void_p\n"
                "for i in range(30000): c.mmap(None, ctypes.c_size_t(4096), 1 + 2 * (i % 2), 0x22, -1, 0)\n"
                "print('ready', flush=True)\n"
                "while True: mmap.mmap(f.fileno(), 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC, flags=mmap.MAP_PRIVATE).close()")
        hostile = subprocess.Popen([sys.executable, "-c", code, str(LIBRARY)], stdout=subprocess.PIPE, text=True)
        try:
            self.assertEqual(hostile.stdout.readline().strip(), "ready")
            slowest = 0.0
            for _ in range(20):
                start = time.monotonic()
                observer.status()
                slowest = max(slowest, time.monotonic() - start)
            self.assertLess(slowest, 10)
        finally:
            hostile.kill()
            hostile.communicate()

    def test_a_file_without_functions_is_told_once(self):
        observer = self.observer()
        path = self.folder / "libcuda.so.1"
        path.write_bytes(b"\x7fELF" + b"\0" * 8192)
        code = ("import mmap, sys\nf = open(sys.argv[1], 'rb')\n"
                "for i in range(300): mmap.mmap(f.fileno(), 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC, flags=mmap.MAP_PRIVATE)\n"
                "print('ready', flush=True); sys.stdin.readline()")
        program = subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True)
        try:
            self.assertEqual(program.stdout.readline().strip(), "ready")
            observer.ask("flush")
        finally:
            program.kill()
            program.communicate()
        self.assertLessEqual(observer.log.read_text().count("no probes"), 1)


if __name__ == "__main__":
    unittest.main()
