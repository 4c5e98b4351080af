"""What tt-metal's own regions tell joins the tables like everything else; what they tell of the dead does not."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

import stage
from daemon_fixture import BUILD, NOBODY, SANITIZED, DaemonTest, Process, as_user

MEMOIR = BUILD / "src/cli/memoir"
LIBRARY = BUILD / "src/client/libmemoir.so"
PROGRAM = stage.for_others(pathlib.Path(__file__).resolve().parent / "tt_program.py")


class Tt(Process):
    def __init__(self, test, asic_id, device_id, *flags, prefix=()):
        super().__init__([*prefix, sys.executable, PROGRAM, test.regions, asic_id, device_id, *flags],
                         env=dict(os.environ, MEMOIR_DIR=str(test.books)))
        test.addCleanup(self.close)
        self.done = 0
        self.pid = int(self.out.wait(r"^ready \d+$").split()[1])

    def say(self, *words):
        self.popen.stdin.write(" ".join(map(str, words)) + "\n")
        self.popen.stdin.flush()
        self.done += 1
        self.out.wait("^done$", self.done)


class RegionTest(DaemonTest):
    def setUp(self):
        super().setUp()
        self.regions = self.books / "regions"
        self.regions.mkdir()
        self.regions.chmod(0o1777)
        self.environment = dict(os.environ, MEMOIR_TT_REGIONS=str(self.regions))

    def tt(self, *arguments, **options):
        return Tt(self, *arguments, **options)

    def memoir(self, *arguments, prefix=()):
        done = subprocess.run([*map(str, prefix), str(MEMOIR), *map(str, arguments), "--dir", str(self.books), "--json"],
                              env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        return json.loads(done.stdout)

    def spaces(self, pid):
        """{(device, space): (live bytes, source)} of one process, where it holds something."""
        rows = [s for s in self.memoir("ps", "--wide")["rows"] if s["pid"] == pid]
        return {(s["ordinal"], s["space"]): (s["bytes"], s["source"]) for s in rows if s["bytes"]} if rows else None

    def findings(self, word):
        return [f["finding"] for f in self.memoir("doctor")["findings"]
                if word in json.dumps(f)]

    def test_processes_of_several_devices_are_seen_without_a_daemon(self):
        first, second = self.tt(11, 0), self.tt(12, 1, "--version", 4)
        first.say("set", 1000, 200, 30, 4, 5)
        second.say("set", 5000, 0, 0, 0, 0)
        self.assertEqual(self.spaces(first.pid), {
            (0, "dram"): (1000, "region"), (0, "l1"): (200, "region"), (0, "l1_small"): (30, "region"),
            (0, "trace"): (4, "region"), (0, "cb"): (5, "region")})
        self.assertEqual(self.spaces(second.pid), {(1, "dram"): (5000, "region")})
        first.say("set", 10, 0, 0, 0, 0)
        self.assertEqual(self.spaces(first.pid), {(0, "dram"): (10, "region")})

    def test_two_processes_of_one_device_share_its_row(self):
        first, second = self.tt(11, 0), self.tt(11, 0)
        first.say("set", 1000, 0, 0, 0, 0)
        second.say("set", 2000, 0, 0, 0, 0)
        uids = {s["device_uid"] for s in self.memoir("ps", "--wide")["rows"]}
        self.assertEqual(uids, {"tt-11"})
        self.assertEqual(self.spaces(first.pid)[(0, "dram")][0] + self.spaces(second.pid)[(0, "dram")][0], 3000)

    def test_what_the_program_reports_itself_comes_before_the_region(self):
        if SANITIZED:
            self.skipTest("libmemoir with a sanitizer does not load into python")
        program = self.tt(11, 0, "--client", LIBRARY, 7777)
        program.say("set", 9999, 200, 0, 0, 0)
        # One row of one device: its dram from the client, its l1 from the region.
        self.assertEqual(self.spaces(program.pid), {(0, "dram"): (7777, "client"), (0, "l1"): (200, "region")})
        uids = {s["device_uid"] for s in self.memoir("ps", "--wide")["rows"]}
        self.assertEqual(uids, {"tt-11"})

    def test_the_killed_are_ghosts_and_in_no_total(self):
        killed, lives = self.tt(11, 0), self.tt(11, 0)
        killed.say("set", 1 << 30, 0, 0, 0, 0)
        lives.say("set", 500, 0, 0, 0, 0)
        killed.kill()
        killed.wait()
        self.assertIsNone(self.spaces(killed.pid))
        self.assertEqual(self.spaces(lives.pid), {(0, "dram"): (500, "region")})
        self.assertTrue(any("1 ghost slot, 1.1 GB" in f for f in self.findings("ghost")), self.memoir("doctor"))

    def test_a_program_that_was_replaced_by_exec_holds_nothing(self):
        program = self.tt(11, 0)
        program.say("set", 4096, 0, 0, 0, 0)
        program.say("exec")
        self.wait_until(lambda: pathlib.Path(f"/proc/{program.pid}/comm").read_text() == "sleep\n", "exec")
        self.assertIsNone(self.spaces(program.pid))
        self.assertTrue(self.findings("ghost slot"))

    def test_a_total_that_lost_updates_is_shown_and_not_used(self):
        program = self.tt(11, 0)
        program.say("set", 1000, 0, 0, 0, 0)
        self.assertFalse(self.findings("its own total"))
        program.say("total", 123456)
        self.assertTrue(self.findings("its own total says 123.5 kB, its processes 1.0 kB"))
        self.assertEqual(self.spaces(program.pid), {(0, "dram"): (1000, "region")})

    def test_a_region_that_is_being_made_is_waited_for(self):
        program = self.tt(11, 0, "--version", 4, "--not-ready")
        program.say("set", 1000, 0, 0, 0, 0)
        self.assertIsNone(self.spaces(program.pid))
        self.assertFalse(self.findings("tt_device_11"))

    def test_bad_regions_are_told_of_and_harm_nothing(self):
        good = self.tt(11, 0)
        good.say("set", 1000, 0, 0, 0, 0)
        (self.regions / "tt_device_12_memory").write_bytes(b"\3\0\0\0" + b"x" * 3000)
        (self.regions / "tt_device_13_memory").write_bytes(b"\7\0\0\0" + bytes(9000))
        (self.regions / "tt_device_14_memory").symlink_to("tt_device_11_memory")
        os.link(self.regions / "tt_device_13_memory", self.regions / "tt_device_15_memory")
        os.mkfifo(self.regions / "tt_device_16_memory", 0o600)
        (self.regions / "tt_device_17_memory").mkdir()
        for name in (12, 13):
            (self.regions / f"tt_device_{name}_memory").chmod(0o600)
        self.assertEqual(self.spaces(good.pid), {(0, "dram"): (1000, "region")})
        for name in (12, 13, 14, 15, 16, 17):
            self.assertTrue(self.findings(f"tt_device_{name}_memory"), name)

    @unittest.skipIf(os.geteuid() != 0, "needs root")
    def test_nobody_speaks_for_a_process_that_is_not_his(self):
        victim = self.tt(11, 0)
        victim.say("set", 1000, 0, 0, 0, 0)
        script = (f"import os,sys; sys.path.insert(0,{str(PROGRAM.parent)!r}); import tt_program as t, struct, time\n"
                  f"r=t.Region({str(self.regions)!r}, 99, 0, 3, True); r.claim(); r.set([1<<40,0,0,0,0])\n"
                  f"struct.pack_into('<i', r.map, r.slot, {victim.pid}); print('ready', flush=True); time.sleep(1000)")
        forger = Process([*as_user(NOBODY), sys.executable, "-c", script])
        self.addCleanup(forger.close)
        forger.out.wait("ready")
        self.assertEqual(self.spaces(victim.pid), {(0, "dram"): (1000, "region")})

    @unittest.skipIf(os.geteuid() != 0, "needs root")
    def test_root_sees_a_users_region_and_the_user_only_his(self):
        mine, his = self.tt(11, 0), self.tt(12, 1, prefix=as_user(NOBODY))
        mine.say("set", 1000, 0, 0, 0, 0)
        his.say("set", 2000, 0, 0, 0, 0)
        self.assertEqual(self.spaces(his.pid), {(1, "dram"): (2000, "region")})
        for process in self.memoir("ps")["rows"]:
            self.assertEqual(process["uid"], NOBODY if process["pid"] == his.pid else 0)
        seen = [p["pid"] for p in self.memoir("ps", prefix=as_user(NOBODY))["rows"]]
        self.assertEqual(seen, [his.pid])

    @unittest.skipIf(os.geteuid() != 0 or subprocess.run(["unshare", "--pid", "--fork", "true"], check=False,
                                                         capture_output=True).returncode, "needs pid namespaces")
    def test_a_pid_of_another_namespace_is_nobodys_here(self):
        inner = self.tt(11, 0, prefix=["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"])
        inner.say("set", 5000, 0, 0, 0, 0)
        outer = self.tt(12, 1)
        outer.say("set", 1000, 0, 0, 0, 0)
        # `inner.pid` is what the program itself sees: 1, or little more, which here is another process.
        self.assertLess(inner.pid, 10)
        held = {p["pid"]: p["device"] for p in self.memoir("ps")["rows"] if p["device"]}
        self.assertEqual(held, {outer.pid: 1000})
        self.assertTrue(self.findings("1 slot of an unknown process, 5.0 kB: in no total"), self.memoir("doctor"))

    def test_memoird_sees_regions_come_and_retires_their_processes(self):
        daemon = self.daemon("--refresh", "50ms", "--log-level", "debug", env=self.environment)
        program = self.tt(11, 0)
        program.say("set", 1 << 20, 0, 0, 0, 0)
        self.watched(daemon, program.pid)
        program.say("set", 3 << 20, 0, 0, 0, 7)
        self.let_look(daemon, 0.3)  # it polls, and sees the last figures
        program.kill()
        self.assertIn("killed", self.gone(daemon, program.pid))
        self.wait_until(self.retired, "a record")
        record = self.retired()[-1]
        self.assertEqual(record["pid"], program.pid)
        live = {a["space"]: a["live_bytes"] for a in record["accounts"] if a["live_bytes"]}
        self.assertEqual(live, {"dram": 3 << 20, "cb": 7})
        # The ghost does not make it come back.
        self.let_look(daemon, 0.3)
        self.assertEqual(len(self.retired()), 1)

    def test_memoird_finds_regions_that_are_there_when_it_starts(self):
        program = self.tt(11, 0)
        program.say("set", 1000, 0, 0, 0, 0)
        daemon = self.daemon("--log-level", "debug", env=self.environment)
        self.watched(daemon, program.pid)
        program.say("close")
        program.say("end")
        self.gone(daemon, program.pid)


if __name__ == "__main__":
    unittest.main()
