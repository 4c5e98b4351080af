"""The stand-in driver: every entry point is there and works, its counts are right, and it fails as a driver does."""

import ctypes
import pathlib
import platform
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from cuda_support import MIB, PATIENCE_S, STANDIN, TRAIN, CudaTest, Nvml, environment

SYMBOLS = pathlib.Path(__file__).resolve().parent / "driver_symbols.txt"
CONTEXT = 64 * MIB
INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, NO_DEVICE, INVALID_CONTEXT, ILLEGAL_ADDRESS = 1, 2, 3, 100, 201, 700


def address_of(library, name):
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value


class Symbols(unittest.TestCase):
    def setUp(self):
        self.library = ctypes.CDLL(str(STANDIN / "libcuda.so.1"))
        self.names = SYMBOLS.read_text(encoding="ascii").split()

    def test_every_memory_entry_point_is_exported(self):
        self.assertGreater(len(self.names), 180)
        self.assertEqual([name for name in self.names if not hasattr(self.library, name)], [])

    def test_each_symbol_has_code_of_its_own(self):
        addresses = {address_of(self.library, name) for name in self.names}
        self.assertEqual(len(addresses), len(self.names))

    @unittest.skipUnless(platform.machine() == "x86_64", "x86-64 code")
    def test_functions_begin_with_a_push(self):
        begins = {name: ctypes.string_at(address_of(self.library, name), 4).hex() for name in self.names}
        # Another test may have a probe there just now: a breakpoint in place of the first byte.
        self.assertEqual({name: code for name, code in begins.items() if code not in ("554889e5", "cc4889e5")}, {})

    def test_it_says_what_it_is(self):
        self.assertEqual(ctypes.c_int.in_dll(self.library, "memoir_standin").value, 1)
        self.assertTrue(hasattr(self.library, "standin_counts"))


class Entries(CudaTest):
    def every(self, way):
        drive = self.drive(way)
        drive.ok("context", 0)
        said = drive("phase", "every")
        self.assertEqual((said["failed"], said["unused"]), ([], ""))
        self.assertEqual(said["counts"]["live"], [{}, {}])
        self.assertEqual(said["counts"]["allocations"], said["counts"]["frees"])

    def test_every_function_works_when_found_by_name(self):
        self.every("name")

    def test_every_function_works_when_found_by_version(self):
        self.every("version")

    def test_mistakes_are_answered_as_by_a_driver(self):
        drive = self.drive()
        drive.ok("context", 0)
        said = drive("phase", "errors")
        self.assertEqual(said["failed"], [])
        self.assertEqual(said["counts"]["live"], [{}, {}])


class Counts(CudaTest):
    def test_each_kind_counts_what_was_asked_for(self):
        drive = self.drive()
        drive.ok("context", 1)
        want = {}
        slots = []
        for kind, size, counted in (("device", 1000, 1000), ("managed", 3 * MIB, 3 * MIB), ("pool", 777, 777),
                                    ("host", 5000, 5000), ("array", 4096, 4096)):
            slots.append(drive.ok("alloc", size, kind)["slot"])
            want[kind] = [counted, 1]
            self.assertEqual(drive("counts")["counts"]["live"], [{}, want])
        slots.append(drive.ok("register", 9000)["slot"])
        want["registered"] = [9000, 1]
        self.assertEqual(drive("counts")["counts"]["live"], [{}, want])
        for slot in slots:
            drive.ok("free", slot)
        counts = drive("counts")["counts"]
        self.assertEqual((counts["live"], counts["allocations"], counts["frees"]), ([{}, {}], 6, 6))

    def test_a_pitched_block_counts_its_rows(self):
        drive = self.drive()
        drive.ok("context", 0)
        self.assertEqual(drive.ok("alloc", 1000, "pitch")["counts"]["live"][0], {"device": [4 * 1024, 1]})

    def test_copies_count_by_direction_and_move_bytes(self):
        drive = self.drive()
        drive.ok("context", 0)
        a, b = drive.ok("alloc", 3 * MIB)["slot"], drive.ok("alloc", 5000)["slot"]
        drive.ok("set", a, 3 * MIB, 9)
        drive.ok("copy", "d2d", a, 5000, b)
        self.assertEqual(drive.ok("peek", b)["byte"], 9)
        host = drive.ok("alloc", 5000, "host")["slot"]
        drive.ok("copy", "h2d", b, 100, host)
        self.assertEqual(drive.ok("peek", b)["byte"], 0)
        copies = drive("copy", "h2d", a, 1000)["counts"]["copies"]
        self.assertEqual(copies, {"h2d": [2, 1100], "d2h": [2, 2], "d2d": [1, 5000], "h2h": [0, 0]})

    def test_a_copy_without_a_direction_is_counted_by_what_lies_there(self):
        drive = self.drive()
        drive.ok("context", 0)
        device = drive.ok("alloc", 5000)["slot"]
        hosts = [drive.ok("alloc", 5000, "host")["slot"], drive.ok("register", 5000)["slot"], drive.ok("buffer", 5000)["slot"]]
        for host in hosts:
            drive.ok("copy", "any", host, 10, device)
            drive.ok("copy", "any", device, 20, host)
            drive.ok("copy", "any", host, 40, host)
        managed = drive.ok("alloc", 5000, "managed")["slot"]
        copies = drive.ok("copy", "any", managed, 80, device)["counts"]["copies"]
        self.assertEqual(copies, {"h2d": [3, 30], "d2h": [3, 60], "d2d": [1, 80], "h2h": [3, 120]})

    def test_a_call_that_fails_changes_no_count(self):
        drive = self.drive(MEMOIR_STANDIN_MEMORY=str(512 * MIB))
        drive.ok("context", 0)
        slot = drive.ok("alloc", 1000)["slot"]
        before = drive.ok("free", slot)["counts"]
        for command, error in ((("free", slot), INVALID_VALUE), (("alloc", 600 * MIB), OUT_OF_MEMORY),
                               (("alloc", 0), INVALID_VALUE), (("copy", "h2d", slot, 10), INVALID_VALUE),
                               (("free", "0x1234"), INVALID_VALUE)):
            said = drive(*command)
            self.assertEqual(said["result"], error, command)
            for key in ("live", "allocations", "frees", "copies"):
                self.assertEqual(said["counts"][key], before[key], command)

    def test_a_context_takes_its_blocks_with_it(self):
        drive = self.drive()
        drive.ok("context", 0)
        for kind in ("device", "managed", "pool", "host", "array"):
            drive.ok("alloc", 5000, kind)
        said = drive.ok("destroy")["counts"]
        self.assertEqual((said["live"], said["frees"]), ([{}, {}], 5))
        self.assertEqual(drive("alloc", 10)["result"], INVALID_CONTEXT)
        drive.ok("primary", 0)
        drive.ok("alloc", 5000)
        self.assertEqual(drive.ok("reset", 0)["counts"]["live"], [{}, {}])

    def test_threads_that_share_addresses_lose_no_block(self):
        drive = self.drive()
        drive.ok("context", 0)
        churn = drive("phase", "churn", 5000, 4)
        self.assertEqual((churn["failed"], churn["counts"]["live"]), ([], [{}, {}]))
        self.assertEqual(churn["counts"]["allocations"], 20000)
        self.assertEqual(churn["counts"]["copies"]["h2d"], [20000, 20000 * 64])
        handoff = drive("phase", "handoff", 5000, 2)
        self.assertEqual((handoff["failed"], handoff["counts"]["live"]), ([], [{}, {}]))
        self.assertEqual(handoff["counts"]["frees"], 30000)


class Addresses(CudaTest):
    def test_a_freed_address_is_given_out_next(self):
        drive = self.drive()
        drive.ok("context", 0)
        for kind in ("device", "pool", "host"):
            for size in (100, 200_000, MIB, 5 * MIB):
                made = [drive.ok("alloc", size, kind) for _ in range(5)]
                for block in (made[1], made[3]):
                    drive.ok("free", block["slot"])
                again = [drive.ok("alloc", size, kind)["address"] for _ in range(2)]
                self.assertEqual(again, [made[3]["address"], made[1]["address"]], (kind, size))

    def test_small_blocks_lie_at_512_and_large_ones_at_2_MiB(self):
        drive = self.drive()
        drive.ok("context", 0)
        small = [drive.ok("alloc", size)["address"] for size in (1, 513, 100)]
        self.assertEqual([a - small[0] for a in small], [0, 512, 512 + 1024])
        for size in (MIB, 3 * MIB):
            self.assertEqual(drive.ok("alloc", size)["address"] % (2 * MIB), 0)

    def test_addresses_are_the_same_in_each_run(self):
        def run():
            drive = self.drive()
            drive.ok("context", 0)
            return [drive.ok("alloc", size)["address"] for size in (10, 5 * MIB, 70_000, MIB)]

        self.assertEqual(run(), run())


class Devices(CudaTest):
    UUID = "GPU-00000000-5374-616e-642d-696e0000000{}"

    def visible(self, value):
        return self.drive(CUDA_VISIBLE_DEVICES=value, MEMOIR_STANDIN_DEVICES="4").first

    def test_visible_devices_are_indices_or_uuids(self):
        for value, count in (("1", 1), ("3,0", 2), ("0,7,1", 1), (self.UUID.format(2), 1), (self.UUID.format(1) + ",0", 2)):
            self.assertEqual(len(self.visible(value)["counts"]["live"]), count, value)
        for value in ("", "-1", "GPU-nothing"):
            self.assertEqual(self.visible(value)["result"], NO_DEVICE, value)

    def test_the_process_numbers_its_visible_devices_from_0(self):
        nvml = Nvml(self.folder)
        self.addCleanup(nvml.close)
        drive = self.drive(CUDA_VISIBLE_DEVICES="1")
        drive.ok("context", 0)
        self.assertEqual(list(nvml.processes(1)), [drive.pid])
        self.assertEqual(nvml.processes(0), {})


class Failures(CudaTest):
    def test_the_call_that_is_asked_for_fails(self):
        drive = self.drive(MEMOIR_STANDIN_FAIL="cuMemAlloc_v2:3,cuMemFree_v2:2,cuMemHostAlloc:2+:999")
        drive.ok("context", 0)
        self.assertEqual([drive("alloc", 1000)["result"] for _ in range(4)], [0, 0, OUT_OF_MEMORY, 0])
        self.assertEqual([drive("free", slot)["result"] for slot in (0, 1, 1)], [0, ILLEGAL_ADDRESS, 0])
        self.assertEqual([drive("alloc", 1000, "host")["result"] for _ in range(3)], [0, 999, 999])
        counts = drive("counts")["counts"]
        self.assertEqual((counts["injected"], counts["failed"]), (4, 4))
        self.assertEqual(counts["live"][0], {"device": [1000, 1], "host": [1000, 1]})

    def test_a_child_has_no_driver(self):
        drive = self.drive()
        drive.ok("context", 0)
        drive.ok("alloc", 1000)
        said = drive.ok("fork")
        self.assertEqual(said["child"], NOT_INITIALIZED)
        self.assertEqual(said["counts"]["live"][0], {"device": [1000, 1]})

    def test_a_delay_makes_copies_take_longer(self):
        drive = self.drive(MEMOIR_STANDIN_DELAY_NS="1000000")
        drive.ok("context", 0)
        began = time.monotonic()
        said = drive("phase", "churn", 20, 1)
        self.assertEqual(said["failed"], [])
        self.assertGreaterEqual(time.monotonic() - began, 40 * 0.001)  # two copies a round


class Shared(CudaTest):
    def setUp(self):
        super().setUp()
        self.nvml = Nvml(self.folder)
        self.addCleanup(self.nvml.close)

    def test_a_process_takes_a_context_and_whole_chunks(self):
        drive = self.drive()
        self.assertEqual(self.nvml.processes(0), {})
        drive.ok("context", 0)
        self.assertEqual(self.nvml.processes(0), {drive.pid: CONTEXT})
        drive.ok("alloc", 1000)
        drive.ok("alloc", 1000)
        self.assertEqual(self.nvml.processes(0), {drive.pid: CONTEXT + 2 * MIB})
        large = drive.ok("alloc", 3 * MIB)["slot"]
        self.assertEqual(self.nvml.processes(0), {drive.pid: CONTEXT + 6 * MIB})
        self.assertEqual(self.nvml.memory(0).used, CONTEXT + 6 * MIB)
        drive.ok("alloc", 4 * MIB, "physical")
        self.assertEqual(self.nvml.processes(0), {drive.pid: CONTEXT + 10 * MIB})
        drive.ok("free", large)
        drive.ok("alloc", 1000, "host")
        self.assertEqual(self.nvml.processes(0), {drive.pid: CONTEXT + 6 * MIB})
        self.assertEqual(self.nvml.processes(1), {})
        drive.ok("context", 1)
        self.assertEqual(self.nvml.processes(1), {drive.pid: CONTEXT})

    def test_figures_vanish_when_a_process_is_killed(self):
        one, two = self.drive(), self.drive()
        for drive in (one, two):
            drive.ok("context", 0)
            drive.ok("alloc", MIB)
        self.assertEqual(set(self.nvml.processes(0)), {one.pid, two.pid})
        one.process.send_signal(signal.SIGKILL)
        one.process.wait(PATIENCE_S)
        self.assertEqual(set(self.nvml.processes(0)), {two.pid})
        self.assertEqual(self.nvml.memory(0).used, CONTEXT + 2 * MIB)
        self.assertEqual([f.name for f in self.folder.iterdir()], [str(two.pid)])

    def test_figures_vanish_when_a_process_runs_another_program(self):
        drive = self.drive()
        drive.ok("context", 0)
        self.assertEqual(drive("exec")["pid"], drive.pid)
        self.assertEqual(self.nvml.processes(0), {})

    def test_another_process_writes_into_exported_memory(self):
        owner, other = self.drive(), self.drive()
        for drive in (owner, other):
            drive.ok("context", 0)
        owner.ok("alloc", 100)
        slot = owner.ok("alloc", 5000)["slot"]
        owner.ok("set", slot, 5000, 3)
        handle = owner.ok("export", slot)["handle"]
        imported = other.ok("import", handle)["slot"]
        self.assertEqual(other.ok("peek", imported)["byte"], 3)
        self.assertEqual(other("counts")["counts"]["live"][0], {"imported": [5000, 1]})
        other.ok("set", imported, 5000, 4)
        self.assertEqual(owner.ok("peek", slot)["byte"], 4)
        self.assertEqual(other.ok("import", handle)["counts"]["live"][0], {"imported": [5000, 1]})
        other.ok("free", imported)
        self.assertEqual(other.ok("free", imported)["counts"]["live"][0], {})

    def test_devices_have_the_same_name_everywhere(self):
        name, uuid = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
        self.assertEqual(self.nvml.lib.nvmlDeviceGetName(self.nvml.device(0), name, 96), 0)
        self.assertEqual(name.value, b"Stand-in GPU (no hardware)")
        self.assertEqual(self.nvml.lib.nvmlDeviceGetUUID(self.nvml.device(1), uuid, 96), 0)
        self.assertEqual(uuid.value.decode(), Devices.UUID.format(1))
        found = ctypes.c_void_p()
        self.assertEqual(self.nvml.lib.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(found)), 0)
        self.assertEqual(found.value, self.nvml.device(1).value)

    def test_a_list_that_is_too_short_says_how_long_it_must_be(self):
        drives = [self.drive() for _ in range(2)]
        for drive in drives:
            drive.ok("context", 0)
        count = ctypes.c_uint(0)
        for call in ("", "_v2", "_v3"):
            function = getattr(self.nvml.lib, "nvmlDeviceGetComputeRunningProcesses" + call)
            count.value = 0
            self.assertEqual(function(self.nvml.device(0), ctypes.byref(count), None), 7, call)
            self.assertEqual(count.value, 2)


class Training(CudaTest):
    def test_the_job_runs_its_steps_and_leaks(self):
        done = subprocess.run([str(TRAIN), "--steps", "21", "--step-ms", "0"], env=environment(self.folder),
                              capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(f"{3 * 48 * 1024} bytes", done.stdout)

    def test_the_job_stops_when_told(self):
        process = subprocess.Popen([str(TRAIN)], env=environment(self.folder), stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "step 0\n")
        process.send_signal(signal.SIGTERM)
        self.assertIn("never freed", process.communicate(timeout=PATIENCE_S)[0])
        self.assertEqual(process.returncode, 0)


if __name__ == "__main__":
    unittest.main()
