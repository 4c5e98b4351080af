"""libmemoir-cuda.so in programs that know nothing of it, on the stand-in driver: decisions in virtual time, and that results never change."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cuda"))

from cuda_support import BUILD, MIB, PATIENCE_S, environment, pin_model
from document import checked

DRIVE = BUILD / "test/cuda/pin_drive"
LIBRARY = BUILD / "src/pin/libmemoir-cuda.so"
MEMOIR = BUILD / "src/cli/memoir"
SCENARIOS = ["turn", "together", "async", "realloc", "own", "dropped", "fork", "graph", "context", "churn", "threads", "budget", "hint"]


class PinTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory(dir="/dev/shm")
        cls.folder = pathlib.Path(cls.holder.name)
        cls.cache = cls.folder / "cache"
        # The library calibrates itself once; then its figures are replaced by those of the stand-in, so that all decisions are exact.
        cls.run_plain(cls, "hint", "auto")
        (cost,) = cls.cache.iterdir()
        cls.calibrated = cost.read_text()
        cost.write_text("\n".join(cls.calibrated.splitlines()[:2]) + "\n" + pin_model())
        cls.cost = cost
        cls.staging = cls.folder / "staging"
        cls.staging.mkdir()
        (cls.staging / cost.name).write_text("\n".join(cls.calibrated.splitlines()[:2]) + "\n" + pin_model(36))

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    def variables(self, mode, **more):
        kept = environment(self.folder, MEMOIR_PIN_CACHE=str(self.cache), MEMOIR_DIR=str(self.folder), MEMOIR_PIN_ADAPT="0")
        kept.pop("MEMOIR_PIN", None)
        if mode:
            kept.update(LD_PRELOAD=str(LIBRARY), MEMOIR_PIN=mode)
        kept.update(more)
        return kept

    def run_plain(self, what, mode, bytes_=MIB, **more):
        done = subprocess.run([str(DRIVE), what, str(bytes_)], env=PinTest.variables(self, mode, **more), capture_output=True,
                              text=True, timeout=PATIENCE_S, check=False)
        return done

    def drive(self, what, mode="auto", bytes_=MIB, **more):
        """The program's last line; it must have found nothing wrong."""
        done = self.run_plain(what, mode, bytes_, **more)
        self.assertEqual((done.returncode, done.stderr), (0, ""), f"{what} {mode} {more}")
        answer = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual(answer["wrong"], 0)
        return answer


class Results(PinTest):
    def test_programs_run_the_same_in_every_mode(self):
        for what in SCENARIOS:
            with self.subTest(what=what):
                self.drive(what, None)
                if what not in ("async", "realloc", "own", "dropped", "fork", "budget", "hint", "graph"):  # these expect memory to be pinned
                    for mode in ("shadow", "off", "profile", "use"):
                        self.drive(what, mode, MEMOIR_PIN_BUDGET="unlimited")
                self.drive(what, "auto", MEMOIR_PIN_BUDGET="unlimited")

    def test_asynchronous_copies_keep_the_meaning_of_pageable_memory(self):
        for size in (300 << 10, MIB, 8 * MIB):
            answer = self.drive("async", "auto", size, MEMOIR_STANDIN_LATE="1", MEMOIR_PIN_BUDGET="unlimited")
            self.assertGreater(answer["pinned_copies"], 20)

    def test_the_late_driver_would_show_a_copy_that_is_not_waited_for(self):
        done = self.run_plain("async", "auto", MIB, MEMOIR_STANDIN_LATE="1", MEMOIR_PIN_BUDGET="unlimited", MEMOIR_PIN_ASYNC="1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("changed after the call", done.stderr)

    def test_large_blocks_on_huge_pages(self):
        for what in ("turn", "realloc", "own", "fork", "dropped"):
            self.drive(what, "auto", 8 * MIB, MEMOIR_PIN_BUDGET="unlimited")

    def test_threads_under_late_copies(self):
        self.drive("threads", "auto", MIB, MEMOIR_STANDIN_LATE="1", MEMOIR_PIN_BUDGET="unlimited")

    def test_checksums_agree_with_and_without_pinning(self):
        for what in ("turn", "churn"):
            answer = self.drive(what, "auto", MIB, MEMOIR_PIN_CHECKSUM="1", MEMOIR_PIN_BUDGET="unlimited")
            self.assertEqual(answer["mismatches"], 0)


def cpus():
    return len(os.sched_getaffinity(0))


@unittest.skipIf(cpus() < 2, "staging needs two CPUs")
class Staging(PinTest):
    """Copies of memory that is not pinned, through the ring; where a calibration says that this is faster."""

    def drive(self, what, mode="auto", bytes_=8 * MIB, **more):
        return super().drive(what, mode, bytes_, **{"MEMOIR_PIN_CACHE": str(self.staging), **more})

    def test_every_kind_of_copy_arrives_whole(self):
        for size in (5 * MIB + 512, 33 * MIB + 1536):  # larger ones pass by the cache
            for late in ({}, {"MEMOIR_STANDIN_LATE": "1"}):
                answer = self.drive("stage", "auto", size, **late)
                self.assertEqual(answer["staged_copies"], 2 * 24 + 2)
                self.assertEqual(answer["pinned_copies"], 0)
                self.assertEqual((answer["registers"], answer["pinned_bytes"]), (1, 8 * MIB))  # the ring
        checked = self.drive("stage", "auto", 6 * MIB, MEMOIR_PIN_CHECKSUM="1")
        self.assertEqual(checked["mismatches"], 0)

    def test_it_is_used_only_where_it_is_measured_to_be_faster(self):
        for more in ({"MEMOIR_PIN_CACHE": str(self.cache)}, {"MEMOIR_PIN_STAGE": "0"}):
            answer = self.drive("stage", "auto", **more)
            self.assertEqual((answer["staged_copies"], answer["registers"]), (0, 0))
        for size in (MIB, 3 * MIB):
            self.assertEqual(self.drive("stage", "auto", size)["staged_copies"], 0)  # small ones never
        cpu = min(os.sched_getaffinity(0))
        done = subprocess.run(["taskset", "-c", str(cpu), str(DRIVE), "stage", str(8 * MIB)], capture_output=True, text=True, timeout=PATIENCE_S,
                              env=self.variables("auto", MEMOIR_PIN_CACHE=str(self.staging)))
        self.assertEqual(json.loads(done.stdout)["staged_copies"], 0, done.stderr)  # two threads on one CPU: not measured

    def test_cold_memory_is_staged_and_hot_memory_is_pinned(self):
        size = 6 * MIB
        staged = self.drive("together", "auto", size)
        self.assertEqual(staged["pinned_bytes_peak"], 2 * size + 8 * MIB)
        self.assertGreaterEqual(staged["staged_copies"], 50)
        wire = 750 * (9000 + size // 55)
        self.assertLess(staged["time_ns"], 1.1 * wire)
        self.assertEqual(staged["registers"], 3)  # the ring and the hot ones: no cold one is leased

    def test_shadow_counts_what_staging_would_save(self):
        shadow, auto = self.drive("together", "shadow", 6 * MIB), self.drive("together", "auto", 6 * MIB)
        self.assertEqual(shadow["staged_copies"], 0)
        self.assertEqual(shadow["staged_saved_ns"], auto["staged_saved_ns"])
        predicted = shadow["saved_ns"] + shadow["staged_saved_ns"] - shadow["cost_ns"]
        self.assertLess(abs(predicted / (shadow["time_ns"] - auto["time_ns"]) - 1), 0.15)

    def test_a_call_of_the_driver_that_fails_is_made_by_the_driver_itself(self):
        size, whole = 5 * MIB, 120  # two copies of each of 60 rounds
        self.assertEqual(self.drive("hint", "auto", size)["staged_copies"], whole)
        for call in ("cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuEventRecord", "cuEventQuery", "cuEventCreate",
                     "cuMemGetAddressRange_v2", "cuPointerGetAttribute"):
            for nth in (1, 7):
                self.assertEqual(self.drive("hint", "auto", size, MEMOIR_STANDIN_FAIL=f"{call}:{nth}:999")["staged_copies"], whole - 1, call)
        for call in ("cuEventQuery", "cuEventCreate"):
            self.assertEqual(self.drive("hint", "auto", size, MEMOIR_STANDIN_FAIL=f"{call}:1+:999")["staged_copies"], 0)
        refused = self.drive("hint", "auto", size, MEMOIR_STANDIN_FAIL="cuMemHostRegister_v2:2:999")  # the ring: it is not tried again
        self.assertEqual((refused["staged_copies"], refused["registers"], refused["failures"]), (0, 1, 1))

    def test_threads_forks_contexts_and_reallocs(self):
        for what in ("threads", "fork", "context", "realloc", "own", "dropped", "graph"):
            self.drive(what, "auto", 4 * MIB, MEMOIR_PIN_BUDGET="unlimited", MEMOIR_STANDIN_LATE="1")

    def test_commands_tell_what_was_staged(self):
        done = subprocess.run([str(MEMOIR), "pin", "run", "--dir", str(self.folder), "--", str(DRIVE), "stage", str(8 * MIB)], capture_output=True,
                              text=True, timeout=PATIENCE_S, env=self.variables(None, MEMOIR_PIN_CACHE=str(self.staging)))
        self.assertIn("50 pageable copies (", done.stderr)
        off = subprocess.run([str(MEMOIR), "pin", "run", "--no-stage", "--dir", str(self.folder), "--", str(DRIVE), "stage", str(8 * MIB)],
                             capture_output=True, text=True, timeout=PATIENCE_S, env=self.variables(None, MEMOIR_PIN_CACHE=str(self.staging)))
        self.assertNotIn("staged", off.stderr)
        process = subprocess.Popen([str(DRIVE), "stage", str(8 * MIB)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env=self.variables("auto", PIN_DRIVE_HOLD="1", MEMOIR_PIN_CACHE=str(self.staging)))
        try:
            json.loads(process.stdout.readline())
            words = [str(MEMOIR), "pin", "explain", "--dir", str(self.folder), str(process.pid)]
            told = checked(json.loads(subprocess.run([*words, "--json"], capture_output=True, text=True, timeout=PATIENCE_S).stdout))
            self.assertEqual(told["staged_copies"], 50)
            (ring,) = [b for b in told["allocations"] if b["reason"] == "ring"]
            self.assertEqual((ring["is_pinned"], ring["registered"]), (True, 8 * MIB))
            self.assertIn("Staging: 50 pageable copies", subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S).stdout)
        finally:
            process.kill()
            process.wait(PATIENCE_S)
            process.stdin.close()
            process.stdout.close()

    def test_memory_that_the_program_maps_itself_is_staged(self):
        for late in ({}, {"MEMOIR_STANDIN_LATE": "1"}):
            answer = self.drive("maps", "auto", 6 * MIB + 4096, **late)
            self.assertEqual((answer["staged_copies"], answer["pinned_bytes"]), (4 * 4, 8 * MIB))
        self.assertEqual(self.drive("maps", "auto", 6 * MIB, MEMOIR_PIN_STAGE="0")["staged_copies"], 0)
        self.assertEqual(self.drive("maps", "shadow", 6 * MIB)["staged_copies"], 0)
        self.drive("maps", None, 6 * MIB)

    def test_a_budget_without_room_for_the_ring(self):
        answer = self.drive("stage", "auto", MEMOIR_PIN_BUDGET="7M")
        self.assertEqual((answer["staged_copies"], answer["pinned_bytes_peak"]), (0, 0))


@unittest.skipIf(cpus() < 2, "touching ahead needs two CPUs")
class Touching(PinTest):
    def test_memory_that_is_filled_in_order_is_touched_ahead_and_no_other(self):
        for size in (96 * MIB, 129 * MIB + 4096):
            answer = self.drive("fill", "auto", size)
            self.assertGreaterEqual(answer["touched_bytes"], 26 * MIB)

    def test_it_can_be_switched_off_and_needs_a_spare_cpu_and_memory(self):
        for mode, more in (("auto", {"MEMOIR_PIN_TOUCH": "0"}), ("shadow", {}), ("off", {}), (None, {})):
            self.assertEqual(self.drive("fill", mode, 64 * MIB, PIN_DRIVE_ALONE="1", **more).get("touched_bytes", 0), 0)
        done = subprocess.run(["taskset", "-c", str(min(os.sched_getaffinity(0))), str(DRIVE), "fill", str(64 * MIB)], capture_output=True, text=True,
                              timeout=PATIENCE_S, env=self.variables("auto", PIN_DRIVE_ALONE="1"))
        self.assertEqual((done.returncode, json.loads(done.stdout)["touched_bytes"]), (0, 0), done.stderr)
        self.drive("fill", "auto", 6 * MIB, PIN_DRIVE_ALONE="1")  # too small


class Failures(PinTest):
    def test_a_registration_that_fails_at_any_point_leaves_pageable_memory(self):
        whole = self.drive("churn", "auto", MEMOIR_PIN_BUDGET="unlimited")
        calls = whole["registers"]
        self.assertGreater(calls, 3)
        for nth in range(1, calls + 1):
            error = (2, 712, 999)[nth % 3]
            answer = self.drive("churn", "auto", MEMOIR_PIN_BUDGET="unlimited", MEMOIR_STANDIN_FAIL=f"cuMemHostRegister_v2:{nth}:{error}")
            self.assertEqual(answer["failures"], 1)
        answer = self.drive("churn", "auto", MEMOIR_PIN_BUDGET="unlimited", MEMOIR_STANDIN_FAIL="cuMemHostRegister_v2:1+:2")
        self.assertEqual((answer["registers"], answer["pinned_bytes"], answer["pinned_copies"]), (0, 0, 0))
        self.assertGreater(answer["failures"], 3)

    def test_memory_that_cannot_be_unregistered_is_never_given_out_again(self):
        for error in (999, 700):
            answer = self.drive("churn", "auto", MEMOIR_PIN_BUDGET="4M", MEMOIR_STANDIN_FAIL=f"cuMemHostUnregister:1+:{error}")
            self.assertEqual(answer["unregisters"], 0)

    def test_capture_modes_and_contexts_that_fail(self):
        for call in ("cuThreadExchangeStreamCaptureMode", "cuCtxGetCurrent", "cuMemAlloc_v2:2", "cuDeviceGetUuid_v2"):
            name, _, nth = call.partition(":")
            if name == "cuMemAlloc_v2":
                continue
            self.drive("turn", "auto", MEMOIR_PIN_BUDGET="unlimited", MEMOIR_STANDIN_FAIL=f"{name}:{nth or 1}:999")

    def test_a_broken_calibration_counts_as_none(self):
        kept = self.cost.read_text()
        try:
            for text in ("", "memoir-pin-cost 3\n", kept.replace("memoir-pin-cost 3", "memoir-pin-cost 2"), kept[:-5],
                         kept.replace("570000", "0"), kept.replace("register 60273", "register x"), "\0" * 5000):
                self.cost.write_text(text)
                answer = self.drive("together", "auto", MEMOIR_STANDIN_MOVE="0")
                self.assertEqual(answer["calibrated"], 1)
                self.assertIn("touch-mib", self.cost.read_text())  # measured again
        finally:
            self.cost.write_text(kept)

    def test_without_a_driver_it_is_an_allocator(self):
        code = "b = bytearray(64 << 20); c = b[:40 << 20]; b.extend(c); print(len(b), b.count(0))"
        done = subprocess.run([sys.executable, "-c", code], env=self.variables("auto"), capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual((done.returncode, done.stdout.strip(), done.stderr), (0, f"{104 * MIB} {104 * MIB}", ""))

    def test_little_address_space_switches_it_off(self):
        code = "import resource; resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)); b = bytearray(64 << 20); print(len(b))"
        done = subprocess.run([sys.executable, "-c", code], env=self.variables("auto"), capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, str(64 * MIB)), done.stderr)


class Decisions(PinTest):
    """In virtual time alone: the buffers of the scenarios `turn` and `together` hold the same after their copies, whether these move anything or not."""

    def drive(self, what, mode="auto", bytes_=MIB, **more):
        still = {"MEMOIR_STANDIN_MOVE": "0"} if what in ("turn", "together") else {}
        return super().drive(what, mode, bytes_, **still, **more)

    def test_hot_blocks_are_pinned_and_cold_ones_are_not(self):
        size = 33 * MIB  # too large to be leased
        answer = self.drive("together", "auto", size)
        self.assertEqual((answer["registers"], answer["pinned_bytes_peak"]), (2, 2 * size))

    def test_cold_blocks_are_leased_what_has_no_price(self):
        for size in (MIB, 4 * MIB, 16 * MIB):
            answer = self.drive("together", "auto", size)
            self.assertLessEqual(answer["pinned_bytes_peak"], 2 * size + 32 * MIB)
            self.assertLess(answer["missed_ns"], 0.05 * answer["saved_ns"])
            turn = self.drive("turn", "auto", size)
            self.assertEqual((turn["registers"], turn["pinned_bytes_peak"]), (1, size))
            self.assertEqual(turn["pool_hits"], 26)

    def test_virtual_time_is_near_the_wire(self):
        for size in (MIB, 16 * MIB):
            wire = 750 * (9000 + size // 55)
            for what in ("turn", "together"):
                off, auto = self.drive(what, None, size), self.drive(what, "auto", size)
                self.assertLess(auto["time_ns"], 1.25 * wire)
                self.assertGreater(off["time_ns"], 2 * auto["time_ns"])

    def test_shadow_predicts_what_auto_does(self):
        for what, size in (("turn", 4 * MIB), ("together", 4 * MIB), ("churn", MIB)):
            shadow = self.drive(what, "shadow", size)
            auto = self.drive(what, "auto", size)
            self.assertEqual(shadow["pinned_copies"], 0)
            for figure in ("registers", "saved_ns", "missed_ns", "cost_ns", "pool_hits"):
                self.assertEqual(shadow[figure], auto[figure], figure)
            predicted = shadow["saved_ns"] - shadow["cost_ns"]
            measured = shadow["time_ns"] - auto["time_ns"]
            self.assertLess(abs(predicted / measured - 1), 0.15, (what, predicted, measured))

    def test_shadow_measures_what_its_copies_take(self):
        delay = 400000  # ns that each copy really takes, at least; less than three times what is usual
        shadow = self.drive("turn", "shadow", 2 * MIB, MEMOIR_STANDIN_DELAY_NS=str(delay))
        pinned = 9000 + 2 * MIB // 55
        self.assertGreater(shadow["observed_ns"], 500 * (delay - pinned))  # by the calibration it would be less
        self.assertGreater(shadow["observed_ns"], 1.1 * shadow["saved_ns"])
        # What takes much longer than usual waits for other work.
        waits = self.drive("turn", "shadow", 300 << 10, MEMOIR_STANDIN_DELAY_NS=str(2 * delay))
        self.assertLess(waits["observed_ns"], 1.1 * waits["saved_ns"])
        self.assertEqual(self.drive("turn", "auto", 300 << 10)["observed_ns"], 0)

    def test_profile_then_use(self):
        history = self.folder / "history"
        profile = self.drive("turn", "profile", MIB, MEMOIR_PIN_HISTORY=str(history))
        self.assertEqual(profile["pinned_copies"], 750)
        lines = history.read_text().splitlines()
        self.assertEqual(lines[0], "memoir-pin-history 1")
        self.assertGreaterEqual(len(lines), 3)
        self.assertIn("pin_drive", lines[1])
        before = history.read_text()
        use = self.drive("together", "use", MIB, MEMOIR_PIN_HISTORY=str(history))
        self.assertEqual((use["registers"], use["pinned_copies"]), (2, 700))
        self.assertEqual(history.read_text(), before)
        self.assertEqual(self.drive("together", "use", MIB)["registers"], 0)  # without one
        for broken in (b"", b"memoir-pin-history 9\n" + before.encode(), before.encode()[:200], os.urandom(5000), before.replace(" ", "  ").encode()):
            history.write_bytes(broken)
            self.drive("turn", "use", MIB, MEMOIR_PIN_HISTORY=str(history))

    def test_auto_begins_with_what_earlier_runs_learned(self):
        history = self.folder / "auto-history"
        first = self.drive("together", "auto", MIB, MEMOIR_PIN_HISTORY=str(history))
        later = self.drive("together", "auto", MIB, MEMOIR_PIN_HISTORY=str(history))
        self.assertGreater(first["missed_ns"], 0)
        self.assertLess(later["missed_ns"], first["missed_ns"])

    def test_a_budget_limits_what_is_pinned(self):
        answer = self.drive("together", "auto", 4 * MIB, MEMOIR_PIN_BUDGET="5M")
        self.assertLessEqual(answer["pinned_bytes_peak"], 5 * MIB)
        self.assertGreaterEqual(answer["registers"], 1)


class Cgroup(PinTest):
    def test_a_limit_that_shrinks_unpins(self):
        root = pathlib.Path("/sys/fs/cgroup")
        v2 = (root / "cgroup.controllers").exists()
        base = root if v2 else root / "memory"
        folder = base / f"memoir-pin-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError as error:
            self.skipTest(f"may not make cgroups: {error}")
        limit = folder / ("memory.max" if v2 else "memory.limit_in_bytes")
        self.addCleanup(folder.rmdir)
        if not limit.exists():
            self.skipTest("no cgroups that account memory")
        size = 16 * MIB
        code = f"import os; open('{folder}/cgroup.procs', 'w').write('0'); os.execv('{DRIVE}', ['{DRIVE}', 'budget', '{size}'])"
        limit.write_text(str(512 * MIB))
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=self.variables("auto", PIN_DRIVE_WAIT="1", MEMOIR_PIN_PRICE="0"))
        try:
            line = process.stdout.readline()
            if not line:
                self.skipTest(f"may not enter a cgroup: {process.stderr.read()[-200:]}")
            self.assertGreaterEqual(json.loads(line)["pinned"], 4 * size)
            usage = int((folder / ("memory.current" if v2 else "memory.usage_in_bytes")).read_text())
            # Half of what is pinned and left may be pinned: two of four blocks, which the program checks itself.
            limit.write_text(str(usage + MIB))
            out, err = process.communicate("\n", timeout=PATIENCE_S)
            answer = json.loads(out.splitlines()[-1])
            self.assertEqual((answer["wrong"], err), (0, ""))
            self.assertGreaterEqual(answer["evictions"], 2)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(PATIENCE_S)
            process.stdin.close()
            process.stdout.close()
            process.stderr.close()


class Books(PinTest):
    def accounts(self, pid):
        """Live bytes of the process by kind of memory, as the ledger joins its books."""
        done = subprocess.run([str(MEMOIR), "query", "accounts", "--json", "--dir", str(self.folder), "--where", f"pid={pid}"],
                              capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {r["space"]: r["bytes"] for r in json.loads(done.stdout)["rows"]}

    def hold(self, what, *before, **more):
        process = subprocess.Popen([*before, str(DRIVE), what, str(MIB)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env=self.variables("auto", PIN_DRIVE_HOLD="1", **more))
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait, PATIENCE_S)
        self.addCleanup(process.kill)
        return process, json.loads(process.stdout.readline())

    def test_every_pinned_byte_counts_once(self):
        process, said = self.hold("own", MEMOIR_PIN_BUDGET="unlimited")
        self.assertEqual(self.accounts(process.pid), {"pinned": MIB, "registered": said["pinned_bytes"], "mapped": said["live_bytes"]})

    def test_registered_memory_is_in_no_sum(self):
        process, said = self.hold("together")
        self.assertGreater(said["pinned_bytes"], MIB)
        self.assertEqual(self.accounts(process.pid), {"registered": said["pinned_bytes"], "mapped": MIB})
        done = subprocess.run([str(MEMOIR), "query", "--json", "--dir", str(self.folder), "--where", f"pid={process.pid}", "--show", "pinned,other"],
                              capture_output=True, text=True, timeout=PATIENCE_S)
        (row,) = json.loads(done.stdout)["rows"]
        self.assertNotIn(said["pinned_bytes"], row.values(), done.stdout)
        self.assertNotIn(said["pinned_bytes"] + MIB, row.values(), done.stdout)

    def test_it_goes_with_the_allocator_and_the_tracker(self):
        for other in ("malloc/libmemoir-malloc.so", "track/libmemoir-track.so"):
            preload = f"{LIBRARY}:{BUILD / 'src' / other}"
            for what in ("turn", "realloc", "threads", "fork"):
                answer = self.drive(what, "auto", MIB, LD_PRELOAD=preload, MEMOIR_PIN_BUDGET="unlimited")
                self.assertGreater(answer["pinned_copies"], 0, (other, what))


class Chains(PinTest):
    def test_small_blocks_lie_in_segments_that_are_pinned_whole(self):
        done = subprocess.run([str(BUILD / "test/cuda/pin_chain")], env=self.variables(None, MEMOIR_PIN="auto", MEMOIR_PIN_BUDGET="unlimited"),
                              capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        said = json.loads(done.stdout)
        self.assertEqual(said["wrong"], 0)
        self.assertEqual(said["pinned_blocks"], said["blocks"])
        self.assertEqual((said["registers"], said["pinned_bytes"]), (said["segments"], said["segments"] * MIB))
        self.assertGreater(said["pinned_copies"], 5 * said["blocks"])


class Commands(PinTest):
    def memoir(self, *words, **more):
        return subprocess.run([str(MEMOIR), "pin", *map(str, words)], capture_output=True, text=True, timeout=PATIENCE_S,
                              env=self.variables(None, **more))

    def test_run_tells_what_it_did(self):
        (self.folder / str(os.getuid())).mkdir(mode=0o700, exist_ok=True)
        (self.folder / str(os.getuid()) / "pin-4194305").write_bytes(b"left behind")
        done = self.memoir("run", "--dir", self.folder, "--", DRIVE, "turn", MIB)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("750 copies of 27 allocations", done.stderr)
        self.assertEqual(json.loads(done.stdout)["wrong"], 0)
        self.assertEqual(list(self.folder.rglob(f"pin-{json.loads(done.stdout)['pid']}")), [])
        self.assertEqual(list(self.folder.rglob("pin-4194305")), [])  # of a process that is gone
        quiet = self.memoir("run", "-q", "--mode", "auto", "--dir", self.folder, "--", DRIVE, "turn", MIB)
        self.assertEqual((quiet.returncode, quiet.stderr), (0, ""))

    def test_what_a_killed_process_leaves_is_removed_by_the_doctor_and_the_next_run(self):
        def doctor():
            done = subprocess.run([str(MEMOIR), "doctor", "--json", "--dir", str(self.folder)], capture_output=True, text=True, timeout=PATIENCE_S,
                                  env=self.variables(None))
            return [f["finding"] for f in json.loads(done.stdout)["findings"] if f["check"] == "pinning"]

        def start():
            process = subprocess.Popen([str(DRIVE), "hint", str(MIB)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                       env=self.variables("auto", PIN_DRIVE_HOLD="1"))
            self.assertTrue(process.stdout.readline())
            (file,) = self.folder.rglob(f"pin-{process.pid}")
            return process, file

        def end(process):
            process.kill()
            process.wait(PATIENCE_S)
            process.stdin.close()
            process.stdout.close()

        process, file = start()
        os.utime(file, (1, 1))  # one that runs has a lock, however old its file is
        found = doctor()
        self.assertTrue(file.exists())
        self.assertFalse([f for f in found if f.startswith("removed")])
        self.assertTrue([f for f in found if f.startswith("a program may pin")], found)
        self.assertTrue([f for f in found if f.startswith(f"calibrated for 1 GPU and driver: {self.cache}")], found)
        self.assertTrue([f for f in found if "RLIMIT_MEMLOCK" in f], found)
        end(process)
        self.assertTrue(file.exists())
        self.assertIn("removed 1 file of pinned processes that were killed", doctor())
        self.assertFalse(file.exists())
        # Another process has its PID now: the file is old and not locked.
        other = file.parent / f"pin-{os.getpid()}"
        other.write_bytes(b"x")
        fresh = self.memoir("run", "-q", "--dir", self.folder, "--", "true")
        self.assertTrue(other.exists())
        os.utime(other, (1, 1))
        process, file = start()
        end(process)
        fresh = self.memoir("run", "-q", "--dir", self.folder, "--", "true")
        self.assertEqual((fresh.returncode, file.exists(), other.exists()), (0, False, False))

    def test_checksums_are_the_same_whatever_is_pinned(self):
        sums = set()
        for mode in ("auto", "shadow", "profile"):
            done = self.memoir("run", "--checksum", "--mode", mode, "--dir", self.folder, "--", DRIVE, "churn", MIB)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("; 0 mismatches", done.stderr)
            sums.add(done.stderr.split("checksum ")[1].split()[0])
        self.assertEqual(len(sums), 1)

    def test_memoir_run_inside_and_around(self):
        for words in (["pin", "run", "--dir", str(self.folder), "--", str(MEMOIR), "run", "--quiet", "--dir", str(self.folder), "--"],
                      ["run", "--quiet", "--dir", str(self.folder), "--", str(MEMOIR), "pin", "run", "--dir", str(self.folder), "--"]):
            done = subprocess.run([str(MEMOIR), *words, str(DRIVE), "turn", str(MIB)], capture_output=True, text=True, timeout=PATIENCE_S,
                                  env=self.variables(None))
            self.assertEqual(done.returncode, 0, done.stderr)
            answer = json.loads(done.stdout)
            self.assertEqual((answer["wrong"], answer["registers"]), (0, 1), words)
            self.assertIn("750 copies of 27 allocations", done.stderr)

    def test_exit_codes_are_the_program_s(self):
        self.assertEqual(self.memoir("run", "-q", "--", "sh", "-c", "exit 7").returncode, 7)
        self.assertEqual(self.memoir("run", "--", "sh", "-c", "exit 7").returncode, 7)
        self.assertEqual(self.memoir("run", "--", "/does/not/exist").returncode, 127)
        self.assertEqual(self.memoir("run", "--", "sh", "-c", "kill -9 $$").returncode, -9)
        for words in (["run"], ["run", "--budget", "x", "ls"], ["run", "--mode", "use", "ls"], ["explain"], ["explain", "x"], ["advise"]):
            self.assertEqual(self.memoir(*words).returncode, 2, words)
        self.assertEqual(self.memoir("explain", os.getpid()).returncode, 3)
        self.assertEqual(self.memoir("advise", "/dev/null").returncode, 1)

    def test_explain_gives_a_reason_for_each_block(self):
        process = subprocess.Popen([str(DRIVE), "together", str(33 * MIB)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env=self.variables("auto", PIN_DRIVE_HOLD="1", MEMOIR_STANDIN_MOVE="0"))
        try:
            said = json.loads(process.stdout.readline())
            done = self.memoir("explain", "--json", "--dir", self.folder, process.pid)
            self.assertEqual(done.returncode, 0, done.stderr)
            answer = checked(json.loads(done.stdout))
            self.assertEqual(answer["registered"], said["pinned_bytes"])
            (block,) = [b for b in answer["allocations"] if b["copies"]]
            self.assertEqual((block["is_pinned"], block["reason"], block["copies"]), (False, "not-yet", 2))
            self.assertIn("cold_block", block["site"])
            self.assertGreater(block["cost"], block["missed"])
            text = self.memoir("explain", "--dir", self.folder, process.pid).stdout
            self.assertIn("its copies have not cost as much as pinning it", text)
            advice = checked(json.loads(self.memoir("advise", "--json", "--dir", self.folder, process.pid).stdout))
            self.assertEqual([(s["advice"], s["copies"]) for s in advice["sites"]], [("pin", 700), ("reuse", 50)])
            self.assertIn("hot_block", advice["sites"][0]["site"])
            self.assertIsNone(advice["sites"][0]["saves_step"])
            steps = json.loads(self.memoir("advise", "--json", "--steps", 175, "--dir", self.folder, process.pid).stdout)["sites"][0]
            self.assertAlmostEqual(steps["saves_step"], steps["saves"] / 175, delta=1e-9)
            self.assertIn("PER STEP", self.memoir("advise", "--steps", 175, "--dir", self.folder, process.pid).stdout)
            self.assertIn("of the whole machine the kernel holds", text)
            self.assertGreaterEqual(answer["kernel_pinned"], 0)
            (path,) = [f for f in self.folder.rglob(f"pin-{process.pid}")]
            whole = path.read_bytes()
            for broken in (b"", whole[:100], b"\xff" * len(whole), whole + b"x"):
                copy = self.folder / "0" / "pin-999999"
                copy.parent.mkdir(exist_ok=True)
                copy.write_bytes(broken)
                self.assertEqual(self.memoir("explain", "--dir", self.folder, 999999).returncode, 1)
                copy.unlink()
        finally:
            process.kill()
            process.wait(PATIENCE_S)
            process.stdin.close()
            process.stdout.close()


SCRIPT = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, device = ctypes.c_void_p(), ctypes.c_ulonglong()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(device), ctypes.c_size_t(1 << 20)) == 0
def copy(block, times):
    buffer = (ctypes.c_char * len(block)).from_buffer(block)
    for _ in range(times):
        assert cuda.cuMemcpyHtoD_v2(device, buffer, ctypes.c_size_t(1 << 20)) == 0
def hot_batch():
    return bytearray(1 << 20)
def cold_batch():
    return bytearray(1 << 20)
hot, cold = hot_batch(), cold_batch()
copy(hot, 400)
copy(cold, 3)
print("ready", flush=True)
sys.stdin.readline()
"""


class Python(PinTest):
    def test_sites_are_lines_of_python(self):
        script, history = self.folder / "batches.py", self.folder / "python-history"
        script.write_text(SCRIPT)
        line = {name: SCRIPT.splitlines().index(f"def {name}():") + 2 for name in ("hot_batch", "cold_batch")}
        process = subprocess.Popen(["/usr/bin/python3", str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env=self.variables("auto", MEMOIR_PIN_HISTORY=str(history)))
        try:
            self.assertEqual(process.stdout.readline().strip(), "ready")
            words = [str(MEMOIR), "pin", "explain", "--json", "--dir", str(self.folder), str(process.pid)]
            told = json.loads(subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S).stdout)
            sites = {b["site"]: b for b in told["allocations"] if b["copies"]}
            if not any("batches.py" in site for site in sites):
                self.skipTest(f"this interpreter's frames cannot be read: {list(sites)}")
            hot, cold = (f"batches.py:{line[name]} {name}" for name in ("hot_batch", "cold_batch"))
            self.assertEqual({hot: 400, cold: 3}, {site: b["copies"] for site, b in sites.items()})
            self.assertNotEqual(sites[hot]["key"], sites[cold]["key"])
            process.communicate("\n", timeout=PATIENCE_S)
            # The history has the lines, too, and the next run knows them.
            advice = json.loads(subprocess.run([str(MEMOIR), "pin", "advise", "--json", str(history)], capture_output=True, text=True,
                                               timeout=PATIENCE_S).stdout)
            self.assertEqual({hot, cold}, {s["site"] for s in advice["sites"]})
            use = subprocess.run([str(MEMOIR), "pin", "run", "--mode", "use", "--history", str(history), "--dir", str(self.folder), "--", "/usr/bin/python3",
                                  str(script)], input="\n", capture_output=True, text=True, timeout=PATIENCE_S, env=self.variables(None))
            self.assertIn("memoir: 1 promotions", use.stderr)
        finally:
            process.kill()
            process.wait(PATIENCE_S)
            process.stdin.close()
            process.stdout.close()


class Bench(PinTest):
    """test/gpu/pin_run.py, which script/test-gpu pin runs unattended where there is a GPU: here over the stand-in, whose times mean nothing."""

    def test_it_measures_all_rounds_and_says_where_the_time_goes(self):
        gpu = pathlib.Path(__file__).resolve().parent.parent / "gpu"
        compiler = shutil.which("c++") or self.skipTest("no C++ compiler")
        bin_dir = self.folder / "bin"
        (bin_dir / "lib").mkdir(parents=True)
        (bin_dir / "lib/libmemoir-cuda.so").symlink_to(LIBRARY)
        subprocess.run([compiler, "-O0", "-std=c++17", "-x", "c++", f"-I{gpu}/standin", str(gpu / "pin_bench.cu"), "-o", str(bin_dir / "pin_bench"), "-ldl",
                        "-lpthread"], check=True, timeout=PATIENCE_S)

        def run(*words):
            done = subprocess.run([sys.executable, str(gpu / "pin_run.py"), str(bin_dir), str(bin_dir), "--parts", "seed", *words], capture_output=True,
                                  text=True, timeout=PATIENCE_S, env=self.variables(None))
            self.assertEqual(done.stderr, "")
            return done, json.loads((bin_dir / "pin.json").read_text())

        done, told = run("--sizes", "2", "--rounds", "2,1,1")
        self.assertEqual(told["rounds"], {"2": 2}, done.stdout)
        for policy in ("host", "seed", "use", "auto"):
            for got in told["seed"]["2"]["together"][policy]:
                self.assertEqual(got["wrong"], 0)
                parts = sum(got[f"{part}_ms"] for part in ("take", "touch", "copy", "drop"))
                self.assertLessEqual(parts, got["whole_ms"] * 1.01 + 0.1)
                self.assertGreater(parts, got["whole_ms"] * 0.5)
        self.assertGreater(told["seed"]["2"]["turn"]["profile"][0]["register_ms"], 0)  # that mode pins whatever the machine measures
        self.assertIn("ok   rounds: all", (bin_dir / "pin.txt").read_text())
        done, told = run("--sizes", "1", "--rounds", "9,1,1", "--seconds", "0")  # no time at all
        self.assertEqual(done.returncode, 1)
        self.assertIn("MISS rounds: 0 of 9 at 1 MiB", done.stdout)


if __name__ == "__main__":
    unittest.main()
