"""libmemoir-tt.so in front of a stand-in for tt-metal: what it tells, and that the program never notices."""

import json
import os
import re
import subprocess
import unittest

from daemon_fixture import BUILD, DaemonTest, Process

MEMOIR = BUILD / "src/cli/memoir"
PRELOAD = BUILD / "src/tt/libmemoir-tt.so"
FOLDER = BUILD / "test/tt"

DRAM_CAPACITY = 8 * 4278190080
L1_CAPACITY = 14 * 10 * 1572864


class Driver(Process):
    """test/tt/driver.cpp in one of its forms; waits until it is ready."""

    def __init__(self, test, form=0, preload=True, command=None, **environment):
        environment = dict(os.environ, MEMOIR_DIR=str(test.books), LD_LIBRARY_PATH=str(FOLDER), **environment)
        if preload:
            environment["LD_PRELOAD"] = str(PRELOAD)
        super().__init__(command or [FOLDER / f"tt_driver_{form}"], env=environment)
        test.addCleanup(self.close)
        self.answers = 0
        self.pid = int(self.out.wait(r"^ready \d+$").split()[1])

    def say(self, *words):
        """Its answer."""
        self.popen.stdin.write(" ".join(map(str, words)) + "\n")
        self.popen.stdin.flush()
        self.answers += 1
        return self.out.wait(r"^(done|caught|counts|forked)", self.answers)


class PreloadTest(DaemonTest):
    def driver(self, *arguments, **options):
        return Driver(self, *arguments, **options)

    def process(self, pid):
        """Its row of `memoir ps`, with those of its accounts as "spaces"."""
        rows = []
        for options in ([], ["--wide"]):
            done = subprocess.run([str(MEMOIR), "ps", "--json", *options, "--dir", str(self.books)], capture_output=True,
                                  text=True, timeout=60, check=True)
            rows.append([p for p in json.loads(done.stdout)["rows"] if p["pid"] == pid])
        return rows[0][0] | {"spaces": rows[1]} if rows[0] else None

    def held(self, pid):
        """{(device, space): (bytes, blocks)}, where there are any; no report was lost."""
        process = self.process(pid)
        self.assertEqual(process["losses"], 0)
        return {(s["ordinal"], s["space"]): (s["bytes"], s["blocks"])
                for s in process["spaces"] if s["blocks"]}

    def test_buffers_of_every_kind_are_told(self):
        for form in (0, 1):
            with self.subTest(form=form):
                driver = self.driver(form)
                for kind in range(5):
                    driver.say("buffer", f"b{kind}", 0, kind, 1000 + kind)
                expected = {(0, "dram"): (1000, 1), (0, "l1"): (1001, 1), (0, "system"): (1002, 1),
                            (0, "l1_small"): (1003, 1), (0, "trace"): (1004, 1)}
                self.assertEqual(self.held(driver.pid), expected)
                driver.say("free", "b1")
                driver.say("free", "b2")
                del expected[(0, "l1")], expected[(0, "system")]
                self.assertEqual(self.held(driver.pid), expected)

    def test_a_buffer_of_a_mesh_is_on_each_of_its_devices(self):
        for form in (0, 1):
            with self.subTest(form=form):
                driver = self.driver(form)
                driver.say("buffer", "a", "mesh", 0, 4096)
                driver.say("buffer", "b", 1, 0, 10)
                self.assertEqual(self.held(driver.pid), {(1, "dram"): (4106, 2), (2, "dram"): (4096, 1)})
                driver.say("free", "a")
                self.assertEqual(self.held(driver.pid), {(1, "dram"): (10, 1)})

    def test_many_buffers_that_go_in_any_order_are_each_found(self):
        driver = self.driver()
        for more, keep in ((5000, 3000), (3000, 100), (4000, 4100), (0, 7), (0, 0)):
            driver.say("churn", more, keep)
            self.assertEqual(self.held(driver.pid), {(0, "dram"): (10 * keep, keep)} if keep else {})

    def test_devices_have_names_numbers_and_capacities(self):
        driver = self.driver()
        driver.say("buffer", "a", 3, 0, 1)
        spaces = {s["space"]: s for s in self.process(driver.pid)["spaces"]}
        self.assertEqual((spaces["dram"]["device_name"], spaces["dram"]["ordinal"]), ("Tenstorrent", 3))
        self.assertEqual(spaces["dram"]["capacity"], DRAM_CAPACITY)
        self.assertEqual(spaces["l1"]["capacity"], L1_CAPACITY)

    def test_what_takes_no_memory_is_not_told(self):
        driver = self.driver()
        driver.say("hooked", "a", 0, 4096)
        driver.say("buffer", "b", 0, 0, 0)
        driver.say("buffer", "c", 0, 0, 7)
        self.assertEqual(self.held(driver.pid), {(0, "dram"): (7, 1)})
        driver.say("free", "a")
        driver.say("free", "b")
        self.assertEqual(self.held(driver.pid), {(0, "dram"): (7, 1)})

    def test_every_thread_is_watched(self):
        driver = self.driver()
        driver.say("threads", 16, 2000)
        self.assertEqual(self.held(driver.pid), {(0, "dram"): (1600, 16)})
        dram = [s for s in self.process(driver.pid)["spaces"] if s["space"] == "dram"][0]
        self.assertEqual(dram["allocated_blocks"], 32000)

    def test_circular_buffers_count_the_l1_in_which_they_lie(self):
        driver = self.driver()
        driver.say("program", "p", 0x1000, 10, 0, "64,128")
        driver.say("run", "p", 0)
        self.assertEqual(self.held(driver.pid), {(0, "cb"): (1920, 2)})
        # The same addresses again, and 64 bytes further: 256 bytes of 10 cores in all.
        driver.say("program", "q", 0x1000, 10, 0, "256")
        driver.say("run", "q", 0)
        self.assertEqual(self.held(driver.pid)[(0, "cb")][0], 2560)
        # One that lies elsewhere, on both devices of a mesh.
        driver.say("program", "r", 0x8000, 2, 0, "100")
        driver.say("run", "r", "mesh")
        self.assertEqual({key: value[0] for key, value in self.held(driver.pid).items()},
                         {(0, "cb"): 2560, (1, "cb"): 200, (2, "cb"): 200})
        driver.say("drop", "q")
        self.assertEqual(self.held(driver.pid)[(0, "cb")], (1920, 2))
        driver.say("drop", "p")
        driver.say("drop", "r")
        self.assertEqual(self.held(driver.pid), {})

    def test_circular_buffers_that_are_laid_out_anew_replace_those_of_before(self):
        driver = self.driver()
        driver.say("program", "p", 0x1000, 10, 0, "64,128")
        for _ in range(3):
            driver.say("run", "p", 0)
        self.assertEqual(self.held(driver.pid), {(0, "cb"): (1920, 2)})

    def test_kernels_count_once_for_each_device(self):
        driver = self.driver()
        driver.say("program", "p", 0x1000, 10, "100,200,300", 0)
        for _ in range(3):
            driver.say("run", "p", 0)
        driver.say("run", "p", "mesh")
        self.assertEqual(self.held(driver.pid),
                         {(0, "kernel"): (600, 1), (1, "kernel"): (600, 1), (2, "kernel"): (600, 1)})
        driver.say("drop", "p")
        self.assertEqual(self.held(driver.pid), {})

    def test_the_real_functions_see_every_call(self):
        counts = []
        for preload, environment in ((False, {}), (True, {}), (True, {"MEMOIR_OFF": "1"})):
            driver = self.driver(preload=preload, **environment)
            driver.say("buffer", "a", "mesh", 0, 4096)
            driver.say("threads", 4, 100)
            driver.say("program", "p", 0x1000, 10, "5", "64")
            driver.say("run", "p", 0)
            driver.say("drop", "p")
            self.assertEqual(driver.say("throw"), "caught 3")
            driver.say("free", "a")
            counts.append(driver.say("counts"))
            driver.popen.stdin.write("end\n")
            driver.popen.stdin.flush()
            self.assertEqual(driver.wait(), 0)
            self.assertEqual(driver.err.lines, [])
        self.assertEqual(len(set(counts)), 1, counts)

    def test_exceptions_pass_and_leave_nothing_behind(self):
        driver = self.driver()
        for _ in range(3):
            self.assertEqual(driver.say("throw"), "caught 3")
        driver.say("buffer", "a", 0, 0, 10)
        driver.say("program", "p", 0x1000, 1, 0, "64")
        driver.say("run", "p", 0)
        self.assertEqual(self.held(driver.pid), {(0, "dram"): (10, 1), (0, "cb"): (64, 1)})

    def test_a_forked_child_has_its_own_figures(self):
        driver = self.driver()
        driver.say("buffer", "a", 0, 0, 1000)
        driver.say("fork")
        child = int(driver.out.wait(r"^child \d+$").split()[1])
        self.assertEqual(self.held(child), {(0, "l1"): (777, 1)})
        self.assertEqual(self.held(driver.pid), {(0, "dram"): (1000, 1)})
        driver.say("buffer", "b", 0, 0, 1)
        self.assertEqual(self.held(driver.pid), {(0, "dram"): (1001, 2)})

    def test_tt_metal_that_was_loaded_privately_is_watched(self):
        driver = self.driver(command=[FOLDER / "tt_host", FOLDER / "libtt_plugin.so"])
        driver.say("buffer", "a", "mesh", 1, 100)
        driver.say("program", "p", 0x1000, 10, "100", "64")
        driver.say("run", "p", 0)
        self.assertEqual(self.held(driver.pid), {(0, "kernel"): (100, 1), (0, "cb"): (640, 1), (1, "l1"): (100, 1),
                                                 (2, "l1"): (100, 1)})
        self.assertEqual(driver.say("throw"), "caught 3")
        driver.say("drop", "p")
        self.assertEqual(self.held(driver.pid), {(1, "l1"): (100, 1), (2, "l1"): (100, 1)})
        self.assertEqual(driver.say("counts"), "counts 2 1 3 2 2 2")

    def test_a_form_of_buffers_that_nobody_knows_is_left_alone(self):
        driver = self.driver(2, MEMOIR_VERBOSE="1")
        driver.say("buffer", "a", 0, 0, 1000)
        driver.say("buffer", "b", "mesh", 1, 1000)
        driver.say("program", "p", 0x1000, 10, "100", "64")
        driver.say("run", "p", 0)
        self.assertEqual(self.held(driver.pid), {(0, "kernel"): (100, 1), (0, "cb"): (640, 1)})
        driver.say("free", "a")
        self.assertEqual(driver.say("counts"), "counts 2 1 2 0 1 0")

    def test_what_is_not_exported_turns_off_its_feature_with_one_line(self):
        driver = self.driver(3, MEMOIR_VERBOSE="1")
        driver.say("threads", 8, 10)
        driver.say("buffer", "a", "mesh", 1, 1000)
        driver.say("program", "p", 0x1000, 10, "100", "64")
        driver.say("run", "p", 0)
        self.assertEqual(self.held(driver.pid), {(0, "dram"): (800, 8)})
        for words in ("circular buffers off", "kernels off", "meshes off"):
            self.assertEqual(len([line for line in driver.err.lines if words in line]), 1, driver.err.lines)

    def test_a_kill_is_seen_and_call_sites_lie_outside_of_tt_metal(self):
        daemon = self.daemon("--log-level", "debug", "--retired-blocks", "10")
        driver = self.driver()
        driver.say("buffer", "a", 0, 0, 1 << 20)
        driver.say("program", "p", 0x1000, 10, "100", "64")
        driver.say("run", "p", 0)
        self.watched(daemon, driver.pid)
        driver.kill()
        self.assertIn("killed", self.gone(daemon, driver.pid))
        self.wait_until(self.retired, "a record")
        record = self.retired()[-1]
        live = {a["space"]: a["live_bytes"] for a in record["accounts"] if a["live_bytes"]}
        self.assertEqual(live, {"dram": 1 << 20, "cb": 640, "kernel": 100})
        self.assertEqual(len(record["blocks"]), 3)
        text = json.dumps(record)
        self.assertRegex(text, r"tt_driver_0\+0x")
        self.assertNotRegex(text, r"libtt_metal_0\.so\+0x|libmemoir-tt\.so\+0x")

    def test_whole_stacks_are_kept_when_asked_for(self):
        daemon = self.daemon("--log-level", "debug", "--retired-blocks", "10")
        driver = self.driver(MEMOIR_STACKS="all")
        driver.say("buffer", "a", 0, 0, 1 << 20)
        self.watched(daemon, driver.pid)
        driver.kill()
        self.gone(daemon, driver.pid)
        self.wait_until(self.retired, "a record")
        text = json.dumps(self.retired()[-1])
        self.assertRegex(text, r"libtt_metal_0\.so\+0x")
        self.assertGreater(len(re.findall(r"tt_driver_0\+0x", text)), 1)

    def test_a_program_without_tt_metal_does_not_notice(self):
        done = subprocess.run(["sh", "-c", "echo fine"], env=dict(os.environ, LD_PRELOAD=str(PRELOAD), MEMOIR_VERBOSE="1"),
                              capture_output=True, text=True, timeout=60, check=True)
        self.assertEqual((done.stdout, done.stderr), ("fine\n", ""))


if __name__ == "__main__":
    unittest.main()
