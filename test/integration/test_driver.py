"""What the NVIDIA driver counts, in commands, in memoird and over HTTP: from a library under NVML's name whose figures stand in
a file (test/nvml/fake.c)."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

from api_support import ApiTest
from cli_support import CommandTest, memoir
from daemon_fixture import BUILD

LIBRARY = BUILD.resolve() / "test/nvml/fake-nvml-now.so"
GIB = 1 << 30
MIB = 1 << 20
DRAM = 16
NOT_KNOWN = "used memory as the driver counts it is not known"


def is_initial_namespace():
    return os.readlink("/proc/self/ns/pid") == "pid:[4026531836]"


needs_pids = unittest.skipUnless(is_initial_namespace(), "PIDs of the driver are believed in the initial PID namespace only")


class Figures:
    """The file of figures, and the environment that leads to it."""

    def __init__(self, test):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-nvml-"))
        test.addCleanup(shutil.rmtree, self.folder, True)
        self.path = self.folder / "figures"
        self.environment = {"MEMOIR_NVML": str(LIBRARY), "FAKE_NVML": str(self.path)}

    def write(self, *lines):
        new = self.folder / "new"
        new.write_text("".join(line + "\n" for line in lines))
        new.rename(self.path)  # the library reads all of it, or all of what was


def gpu(uuid, used, reserved=20 * MIB, total=100 * GIB, bus="00000000:1B:00.0", name="NVIDIA Fake", mode=""):
    return f"gpu uuid={uuid} bus={bus} total={total} used={used} reserved={reserved} {mode}name={name}"


def process(pid, used, use="c"):
    return f"process pid={pid} used={used} use={use}"


class CommandsTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.driver = Figures(self)
        self.other = subprocess.Popen(["sleep", "1000"])  # uses a device, and keeps no book
        self.addCleanup(self.other.wait)
        self.addCleanup(self.other.kill)

    def memoir(self, *arguments, check=0, **environment):
        return memoir(*arguments, "--dir", self.dir, environment=self.driver.environment | environment, check=check)

    def device(self):
        (row,) = json.loads(self.memoir("devices", "--json").stdout)["rows"]
        return row

    def query(self, table, *arguments):
        return json.loads(self.memoir("query", table, "--json", *arguments).stdout)["rows"]

    def test_a_device_without_any_book_is_shown_as_the_driver_counts_it(self):
        self.driver.write("driver 580.1", gpu("GPU-aa", 50 * GIB), process(self.other.pid, 40 * GIB))
        device = self.device()
        self.assertEqual(device["device_uid"], "GPU-aa")
        self.assertEqual(device["device_bus"], "0000:1b:00.0")
        self.assertEqual(device, device | {"driver.used": 50 * GIB, "driver.reserved": 20 * MIB, "capacity": 100 * GIB,
                                           "unattributed": 50 * GIB})
        text = self.memoir("devices").stdout
        self.assertIn("Device 0 NVIDIA Fake", text)
        self.assertRegex(text, r"(?m)^  driver +53\.7 GB / 107\.4 GB .* 50\.0 %$")
        self.assertNotRegex(text, r"(?m)^  DRAM")
        self.memoir("devices", "--check", "51")
        self.memoir("devices", "--check", "50", check=1)

    @needs_pids
    def test_a_process_without_a_book_is_a_holder_with_the_drivers_figure(self):
        self.driver.write(gpu("GPU-aa", 50 * GIB), process(self.other.pid, 40 * GIB))
        (owner,) = self.query("device_processes")
        self.assertEqual((owner["pid"], owner["program"], owner["driver"], owner["accounted"]),
                         (self.other.pid, "sleep", 40 * GIB, None))
        self.assertIn(f"sleep 42.9 GB by driver (PID {self.other.pid})", self.memoir("devices").stdout)

    @needs_pids
    def test_accounts_and_the_driver_stand_side_by_side(self):
        client = self.start_scripted(f"device 0 GPU-aa {900 * GIB} 0", f"alloc 0 {DRAM} 1 {3 * GIB}")
        self.driver.write("driver 580.1", gpu("GPU-aa", 3599 * MIB), process(client.pid, 3590 * MIB))
        device = self.device()
        self.assertEqual(device["used"], 3 * GIB)
        self.assertEqual(device["capacity"], 100 * GIB)  # not what the client claims
        self.assertEqual(device["unattributed"], (3599 - 3072) * MIB)
        text = self.memoir("devices").stdout
        self.assertRegex(text, r"(?m)^  DRAM +3\.2 GB / 107\.4 GB")
        self.assertRegex(text, r"(?m)^  driver +3\.8 GB / 107\.4 GB")
        self.assertIn("552.6 MB unattributed, 21.0 MB more reserved by the driver itself", text)
        self.assertIn(f"3.2 GB of 3.8 GB (PID {client.pid})", text)
        (row,) = self.query("processes", "--show", "pid,device,device.driver")
        self.assertEqual((row["device"], row["device.driver"]), (3 * GIB, 3590 * MIB))
        (row,) = self.query("devices", "--show", "used,driver.used,driver.reserved,driver.processes,unattributed,confirmed")
        self.assertEqual(row, row | {"used": 3 * GIB, "driver.used": 3599 * MIB, "driver.reserved": 20 * MIB, "driver.processes": 1,
                                     "unattributed": 527 * MIB, "confirmed": True})
        (row,) = self.query("device_processes", "--show", "pid,use,driver,accounted,unattributed")
        self.assertEqual(row, row | {"pid": client.pid, "use": "compute", "driver": 3590 * MIB, "accounted": 3 * GIB,
                                     "unattributed": 518 * MIB})

    @needs_pids
    def test_every_process_of_the_machine_has_the_column(self):
        self.driver.write(gpu("GPU-aa", 9 * GIB), process(self.other.pid, 4 * GIB),
                           gpu("GPU-bb", 9 * GIB, bus="00000000:1C:00.0"), process(self.other.pid, 3 * GIB))
        (row,) = self.query("host", "--where", "device.driver>0", "--show", "pid,device.driver")
        self.assertEqual((row["pid"], row["device.driver"]), (self.other.pid, 7 * GIB))

    def test_figures_that_the_driver_does_not_tell_are_absent(self):
        self.driver.write(gpu("GPU-aa", "-", "-"), process(self.other.pid, "-"))
        device = self.device()
        self.assertEqual((device["driver.used"], device["unattributed"]), (None, None))
        self.assertIsNone(self.query("device_processes")[0]["driver"])
        self.assertIn("does not tell what is used", self.memoir("devices").stdout)
        (row,) = self.query("devices", "--show", "driver.used,unattributed")
        self.assertEqual((row["driver.used"], row["unattributed"]), (None, None))

    def test_a_pid_that_is_nobodys_here_is_shown_as_the_drivers(self):
        self.driver.write(gpu("GPU-aa", GIB), process(99999999, GIB))
        self.assertIn("unknown 1.1 GB by driver (PID 99999999 of the driver)", self.memoir("devices").stdout)
        (row,) = self.query("device_processes", "--show", "pid,driver_pid,program,driver")
        self.assertEqual((row["pid"], row["program"], row["driver_pid"], row["driver"]), (None, None, 99999999, GIB))

    @needs_pids
    def test_mig_instances_are_devices(self):
        self.driver.write(gpu("GPU-aa", 9 * GIB, mode="mig=1 "),
                           f"mig uuid=MIG-1 total={40 * GIB} used={2 * GIB} name=NVIDIA Fake MIG 3g.40gb", process(self.other.pid, GIB),
                           f"mig uuid=MIG-2 total={20 * GIB} used=0 name=NVIDIA Fake MIG 1g.20gb")
        rows = self.query("devices", "--show", "device_uid,capacity,driver.used", "--sort", "+device_uid")
        self.assertEqual([(r["device_uid"], r["capacity"], r["driver.used"]) for r in rows],
                         [("MIG-1", 40 * GIB, 2 * GIB), ("MIG-2", 20 * GIB, 0)])
        (row,) = self.query("device_processes", "--show", "device_uid,pid,driver")
        self.assertEqual((row["device_uid"], row["pid"], row["driver"]), ("MIG-1", self.other.pid, GIB))

    def test_csv_has_the_drivers_figures_in_the_row_of_the_memory(self):
        self.driver.write(gpu("GPU-aa", 5 * GIB))
        head, row = self.memoir("devices", "--csv").stdout.splitlines()
        row = dict(zip(head.split(","), row.split(",")))
        self.assertEqual((row["space"], row["driver.used"], row["unattributed"]), ("dram", str(5 * GIB), str(5 * GIB)))

    def test_what_goes_wrong_is_one_line(self):
        self.driver.write("mode hang")
        done = self.memoir("devices")
        self.assertIn(f"NVML: no answer within 3000 ms: {NOT_KNOWN}", done.stderr)
        self.driver.write("mode crash")
        self.assertIn("NVML: the library crashed", self.memoir("devices").stderr)
        self.assertIn("NVML: the library crashed", self.memoir("query", "device_processes").stderr)
        self.assertNotIn("NVML", self.memoir("devices", MEMOIR_NVML="off").stderr)

    def test_books_are_shown_although_nvml_crashes(self):
        self.start_scripted(f"device 0 GPU-aa {900 * GIB} 0", f"alloc 0 {DRAM} 1 {3 * GIB}")
        self.driver.write("mode crash")
        done = self.memoir("devices")
        self.assertRegex(done.stdout, r"(?m)^  DRAM +3\.2 GB")
        self.assertIn(NOT_KNOWN, done.stdout)

    def test_doctor_explains(self):
        def findings(**environment):
            done = memoir("doctor", "--json", "--dir", self.dir, environment=self.driver.environment | environment)
            return [f for f in json.loads(done.stdout)["findings"] if f["check"] == "device driver"]

        self.driver.write("driver 580.1", gpu("GPU-aa", 0))
        (good,) = findings()
        self.assertEqual(good["status"], "ok")
        self.assertRegex(good["finding"], r"driver 580\.1, 1 GPU, 0 processes on them; a reading takes \d")
        (absent,) = findings(MEMOIR_NVML="/nowhere/libnvidia-ml.so.1")
        self.assertEqual(absent["status"], "ok")
        self.assertEqual(absent["finding"], f"NVML: /nowhere/libnvidia-ml.so.1 not found: {NOT_KNOWN}")
        self.driver.write("mode refuse")
        (refused,) = findings()
        self.assertEqual(refused["status"], "warn")
        self.assertIn("Driver Not Loaded", refused["finding"])
        self.assertIsNotNone(refused["remedy"])


class DaemonTest(ApiTest):
    def setUp(self):
        super().setUp()
        self.driver = Figures(self)

    def start(self, **environment):
        return self.api(env=os.environ | self.driver.environment | environment)

    def workers(self, daemon):
        """PIDs of the processes that read NVML for this daemon."""
        found = []
        for task in pathlib.Path(f"/proc/{daemon.pid}/task").iterdir():
            for pid in (task / "children").read_text().split():
                try:
                    if pathlib.Path(f"/proc/{pid}/comm").read_text() == "memoir-nvml\n":
                        found.append(int(pid))
                except OSError:
                    pass
        return found

    def used(self):
        return [row["driver.used"] for row in self.rows("/devices")]

    def await_used(self, used):
        """A question waits a second for the driver at most: on a busy machine the first may be answered without it."""
        self.eventually(self.used, lambda rows: rows == [used], f"{used} bytes are used")

    def await_kept_worker(self, daemon):
        """The PID of a worker that stays while one looks. The one of the reading at the start may just be ending."""
        self.eventually(lambda: (self.used(), self.get("/self")["driver"]["readings"])[1], lambda n: n >= 2, "a second reading")
        (worker,) = self.eventually(lambda: self.workers(daemon), lambda pids: len(pids) == 1, "a worker runs")
        return worker

    @needs_pids
    def test_devices_and_processes_are_answered_over_http(self):
        me = os.getpid()
        self.driver.write("driver 580.1", gpu("GPU-aa", 5 * GIB), process(me, 4 * GIB))
        self.start()
        began = time.monotonic()
        if not self.valid(self.get("/devices"), "Table")["rows"]:  # the first question waits for a reading, a second at most
            self.assertGreaterEqual(time.monotonic() - began, 1)
        (row,) = self.eventually(lambda: self.rows("/devices"), lambda rows: rows, "the driver's figures")
        self.assertEqual(row, row | {"device_uid": "GPU-aa", "space": "dram", "used": 0, "capacity": 100 * GIB, "driver.used": 5 * GIB,
                                     "driver.reserved": 20 * MIB, "driver.processes": 1, "unattributed": 5 * GIB, "confirmed": True})
        (row,) = self.valid(self.get("/device_processes"), "Table")["rows"]
        self.assertEqual((row["device_uid"], row["pid"], row["driver"], row["accounted"]), ("GPU-aa", me, 4 * GIB, None))
        rows = self.eventually(lambda: self.rows("/processes", where=f"pid={me}", show="pid,device.driver"),
                               lambda rows: rows and rows[0]["device.driver"], "the column has a figure")
        self.assertEqual(rows[0]["device.driver"], 4 * GIB)
        driver = self.valid(self.get("/self"), "Self")["driver"]
        self.assertEqual((driver["version"], driver["problem"], driver["failures"]), ("580.1", "", 0))
        self.assertGreater(driver["readings"], 0)
        self.assertGreater(driver["reading"], 0)

    def test_new_figures_come_while_somebody_looks(self):
        self.driver.write(gpu("GPU-aa", 5 * GIB))
        self.start()
        self.await_used(5 * GIB)
        self.driver.write(gpu("GPU-aa", 7 * GIB))
        self.await_used(7 * GIB)

    def test_nvml_is_read_once_while_nobody_looks(self):
        self.driver.write("driver 580.1", gpu("GPU-aa", 5 * GIB))
        daemon = self.start()

        def status():
            return self.get("/self")["driver"]

        self.eventually(status, lambda driver: driver["readings"] == 1, "the reading at the start")
        self.eventually(lambda: self.workers(daemon), lambda pids: not pids, "the worker ends")
        self.let_look(daemon, 1.5)
        self.assertEqual((status()["readings"], self.workers(daemon)), (1, []))
        self.await_used(5 * GIB)  # a look makes a new reading

    def test_a_claim_does_not_change_what_the_driver_confirms(self):
        self.driver.write(gpu("GPU-aa", 5 * GIB))
        self.start()
        self.await_used(5 * GIB)
        line = self.with_device(uid="GPU-aa", capacity={"dram": 900 * GIB})
        line.send({"alloc": {"device": 0, "space": "dram", "id": 1, "bytes": GIB}})
        rows = self.eventually(lambda: self.rows("/devices"), lambda rows: len(rows) == 1 and rows[0]["used"] == GIB, "the report")
        self.assertEqual(rows[0]["capacity"], 100 * GIB)
        self.assertEqual(rows[0]["unattributed"], 4 * GIB)

    def test_a_worker_that_is_killed_is_replaced(self):
        self.driver.write(gpu("GPU-aa", 5 * GIB))
        daemon = self.start()
        self.await_used(5 * GIB)
        os.kill(self.await_kept_worker(daemon), 9)
        self.driver.write(gpu("GPU-aa", 8 * GIB))
        self.await_used(8 * GIB)
        daemon.err.wait(r"NVML: the process that reads it ended")
        daemon.err.wait(r"NVML answers again")

    def test_a_hang_holds_up_nobody(self):
        self.driver.write("mode hang")
        daemon = self.start()
        self.assertEqual(self.rows("/devices"), [])
        self.get("/system")
        daemon.err.wait(rf"NVML: no answer within 3000 ms: {NOT_KNOWN}")
        self.driver.write(gpu("GPU-aa", 5 * GIB))
        self.await_used(5 * GIB)

    def test_figures_that_are_too_old_are_unknown_and_sizes_stay(self):
        self.driver.write(gpu("GPU-aa", 5 * GIB), process(os.getpid(), GIB))
        self.start()
        self.await_used(5 * GIB)
        self.driver.write("mode hang")
        (row,) = self.eventually(lambda: self.rows("/devices"), lambda rows: rows[0]["driver.used"] is None, "it is unknown")
        self.assertEqual((row["capacity"], row["confirmed"], row["unattributed"]), (100 * GIB, True, None))
        self.assertEqual(self.rows("/device_processes"), [])

    def test_memoird_ends_although_nvml_hangs(self):
        self.driver.write("mode hang")
        daemon = self.start()
        self.eventually(lambda: self.workers(daemon), lambda pids: len(pids) == 1, "a worker runs")
        daemon.kill(15)
        self.assertEqual(daemon.wait(), 0)

    def test_no_library_is_one_line_and_no_fault(self):
        daemon = self.start(MEMOIR_NVML="/nowhere/libnvidia-ml.so.1")
        daemon.err.wait(rf"info: NVML: /nowhere/libnvidia-ml.so.1 not found: {NOT_KNOWN}")
        self.assertEqual(self.rows("/devices"), [])
        self.assertEqual(self.workers(daemon), [])
        lines = [line for line in daemon.err.lines if re.search("NVML", line)]
        self.assertEqual(len(lines), 1, lines)


if __name__ == "__main__":
    unittest.main()
