"""memoir trace, on real processes that use the stand-in driver.

All runs in a mount namespace of its own, with its own /run and bpffs: tests neither see nor end observers of others.
"""

import csv
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cuda"))

from cli_support import ENVIRONMENT, MEMOIR, PATIENCE_S, wait_for
from cuda_support import BUILD, MIB, STANDIN, TRAIN, Drive, environment
from document import checked

OBSERVE = BUILD / "src/observe/memoir-observe"
SETUP = ("mount --make-rprivate / && mount -t tmpfs tmpfs /run && mkdir /run/memoir && mount -t bpf bpf /sys/fs/bpf"
         " && echo ready && exec sleep infinity")


class Stage:
    """A mount namespace that lives as long as this object."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "-m", "sh", "-c", SETUP], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.ready = self.holder.stdout.readline() == "ready\n"
        self.prefix = ["nsenter", "-m", "-t", str(self.holder.pid)]

    def close(self):
        self.holder.kill()
        self.holder.wait(PATIENCE_S)
        self.holder.stdout.close()
        self.holder.stderr.close()


STAGE = None
WHY_NOT = None


def why_not():
    """Why this machine cannot trace; None: it can."""
    if not OBSERVE.exists():
        return "memoir-observe was not built"
    if os.geteuid() != 0:
        return "needs root"
    if not STAGE.ready:
        return "needs a mount namespace"
    sleeper = subprocess.Popen(["sleep", "infinity"])
    done = subprocess.run([*STAGE.prefix, MEMOIR, "trace", "attach", str(sleeper.pid)], capture_output=True, text=True, check=False)
    subprocess.run([*STAGE.prefix, MEMOIR, "trace", "stop", str(sleeper.pid)], capture_output=True, check=False)
    sleeper.kill()
    sleeper.wait()
    return None if done.returncode == 0 else f"BPF is not permitted here: {done.stderr.strip()}"


def setUpModule():
    global STAGE, WHY_NOT
    STAGE = Stage() if os.geteuid() == 0 else None
    WHY_NOT = why_not()


def tearDownModule():
    if STAGE:
        STAGE.close()


class TraceTest(unittest.TestCase):
    def setUp(self):
        if WHY_NOT:
            self.skipTest(WHY_NOT)
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        books = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.addCleanup(books.cleanup)
        standin = environment(self.folder)
        self.environment = ENVIRONMENT | {key: standin[key] for key in ("LD_LIBRARY_PATH", "MEMOIR_STANDIN_DIR")} | {"MEMOIR_DIR": books.name}
        self.environment.pop("MEMOIR_OBSERVE", None)

    def memoir(self, *arguments, check=0, more=None, prefix=()):
        done = subprocess.run([*STAGE.prefix, *prefix, MEMOIR, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env=self.environment | (more or {}), timeout=PATIENCE_S, check=False)
        if check is not None:
            self.assertEqual(done.returncode, check, f"memoir {arguments}:\n{done.stdout}\n{done.stderr}")
        return done

    def json(self, *arguments, **more):
        return checked(json.loads(self.memoir(*arguments, "--json", **more).stdout))

    def drive(self, **more):
        drive = Drive(self.folder, **more)
        self.addCleanup(drive.close)
        return drive

    def attached(self, **more):
        """A traced cuda_drive with a context."""
        drive = self.drive(**more)
        self.memoir("trace", "attach", drive.pid)
        self.addCleanup(lambda: self.memoir("trace", "stop", drive.pid, check=None))
        drive.ok("context", 0)
        return drive

    def observer(self, *arguments):
        """An observer that has attached its probes."""
        ready, write = os.pipe()
        process = subprocess.Popen([*STAGE.prefix, OBSERVE, *arguments, "--ready", str(write)], env=self.environment, pass_fds=[write],
                                   stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        os.close(write)
        with os.fdopen(ready) as pipe:
            self.assertEqual(pipe.read(), "ready\n")
        return process

    def listed(self, pid):
        for process in self.json("trace", "list")["processes"]:
            if process["pid"] == pid:
                return process
        return None


class RunTest(TraceTest):
    def train(self, *options, steps=20, check=0):
        return self.memoir("trace", "run", *options, TRAIN, "--steps", steps, "--step-ms", 1, check=check)

    def test_the_summary_tells_peaks_copies_and_waste_and_the_output_is_the_programs(self):
        done = self.train()
        self.assertIn("step 0\n", done.stdout)
        self.assertNotIn("CUDA memory", done.stdout)
        self.assertIn("CUDA memory of cuda_train", done.stderr)
        self.assertRegex(done.stderr, r"device +peak 23\d\.\d MB")
        self.assertRegex(done.stderr, r"pinned +peak 16\.8 MB, 4 allocations")
        self.assertIn("copy_labels", done.stderr)
        self.assertIn("would save about", done.stderr)
        self.assertIn("Allocations never copied", done.stderr)

    def test_a_saved_history_counts_every_copy(self):
        dump = self.folder / "run.trace"
        self.train("-q", "-o", dump)
        told = self.json("trace", "load", dump)
        self.assertEqual(told["schema"], "memoir.trace.summary/2")
        self.assertEqual(told["copies"]["to_device"]["copies"], 4 + 2 * 20)  # weights; batch and labels of each step
        self.assertEqual(told["copies"]["to_device"]["bytes"], 4 * 8 * MIB + 20 * (4 + 1) * MIB)
        self.assertEqual(told["copies"]["from_device"]["copies"], 20)
        self.assertTrue(told["process"]["exited"])
        self.assertEqual(told["spaces"]["pinned"]["peak"], 16 * MIB)
        self.assertEqual(stat_mode(dump), 0o600)

    def test_a_json_dump_loads_as_a_binary_one_does(self):
        dump = self.folder / "run.json"
        self.train("-q", "-o", dump, "--json", steps=3)
        json.loads(dump.read_text())
        self.assertEqual(self.json("trace", "load", dump)["copies"]["from_device"]["copies"], 3)

    def test_exit_codes_and_signals_are_the_programs(self):
        self.memoir("trace", "run", "sh", "-c", "exit 7", check=7)
        self.memoir("trace", "run", "sh", "-c", "kill -TERM $$", check=-signal.SIGTERM)
        self.assertIn("cannot run", self.memoir("trace", "run", self.folder / "absent", check=127).stderr)

    def test_a_program_without_cuda_is_told_so(self):
        done = self.memoir("trace", "run", "true")
        self.assertIn("made no call of the CUDA driver", done.stderr)
        self.memoir("trace", "run", "-o", self.folder / "x.trace", "true", check=1)
        self.assertFalse((self.folder / "x.trace").exists())

    def test_names_of_programs_cannot_steer_the_terminal(self):
        program, saved, again = self.folder / "x\033[2J\u202ey", self.folder / "x.trace", self.folder / "y.trace"
        shutil.copy(TRAIN, program)
        self.memoir("trace", "run", "-q", "-o", saved, program, "--steps", "1")
        for words, status in ((("dump", saved, "-o", again), 0), (("oom", saved), 3), (("load", saved), 0), (("hot", saved), None)):
            done = self.memoir("trace", *words, check=status)
            said = done.stdout + done.stderr
            self.assertNotIn("\033", said, words)
            self.assertNotIn("\u202e", said, words)
        self.assertIn("call sites of x", self.memoir("trace", "dump", saved, "-o", again).stdout)

    def test_no_probe_stays_behind(self):
        self.train("-q")
        pins = subprocess.run([*STAGE.prefix, "ls", "/sys/fs/bpf"], capture_output=True, text=True, check=True).stdout
        self.assertNotIn("memoir-pid", pins)

    def test_the_observer_ends_with_a_memoir_that_is_killed(self):
        run = subprocess.Popen([*STAGE.prefix, MEMOIR, "trace", "run", "-q", TRAIN, "--step-ms", "5"], env=self.environment,
                               stdout=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)
        process = wait_for(lambda: next((p for p in self.json("trace", "list")["processes"] if p.get("program") == "cuda_train"), None),
                           "a traced process")
        run.kill()
        wait_for(lambda: not self.listed(process["pid"]) and not self.socket_there(process["pid"]), "the observer's end")

    def socket_there(self, pid):
        return subprocess.run([*STAGE.prefix, "test", "-e", f"/run/memoird/trace-{pid}.sock"], check=False).returncode == 0

    def test_without_rights_the_program_runs_all_the_same(self):
        done = self.memoir("trace", "run", "sh", "-c", "echo fine; exit 3", check=3,
                           prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
        self.assertEqual(done.stdout, "fine\n")
        self.assertIn("runs without being traced: tracing needs root", done.stderr)

    def test_names_are_in_the_dump_not_in_files(self):
        program = self.folder / "gone_train"
        shutil.copy(TRAIN, program)
        dump = self.folder / "run.trace"
        self.memoir("trace", "run", "-q", "-o", dump, program, "--steps", "3", "--step-ms", "1")
        program.unlink()
        lines = {row["copy_site"] for row in self.json("trace", "hot", dump)["buffers"]}
        self.assertTrue(any(line and "copy_labels" in line for line in lines), lines)


    def test_python_lines_are_the_users_own(self):
        program = self.folder / "job.py"
        package = self.folder / "lib/python3/site-packages"
        package.mkdir(parents=True)
        (package / "wrapper.py").write_text(PYTHON_PACKAGE)
        program.write_text(PYTHON_PROGRAM)
        dump = self.folder / "python.trace"
        self.memoir("trace", "run", "-q", "-o", dump, PYTHON, program, more={"PYTHONPATH": str(package)})
        rows = self.json("trace", "hot", dump, "--space", "device")["buffers"]
        self.assertEqual([(row["copies"], row["site"]) for row in rows], [(3, "job.py:6 in make")])
        self.assertEqual(rows[0]["copy_site"], "job.py:10 in send")
        self.assertIn("wrapper.py", json.dumps(rows[0]["frames"]))


class SharedTest(TraceTest):
    """With an observer of the whole machine, as memoird has one."""

    def setUp(self):
        super().setUp()
        self.socket = self.folder / "observe.sock"
        name = f"shared-{os.getpid()}"
        self.shared = self.observer("--all", "--system-calls", "--name", name, "--socket", self.socket)

    def test_commands_ask_it_and_leave_it_running(self):
        dump = self.folder / "run.trace"
        self.memoir("trace", "run", "--socket", self.socket, "-q", "-o", dump, TRAIN, "--steps", "5", "--step-ms", "1")
        self.assertEqual(self.json("trace", "load", dump)["copies"]["from_device"]["copies"], 5)
        drive = self.drive()
        self.memoir("trace", "attach", "--socket", self.socket, drive.pid)
        drive.ok("context", 0)
        drive.ok("alloc", 3 * MIB)
        listed = self.json("trace", "list", "--socket", self.socket)["processes"]
        self.assertEqual([p["device"] for p in listed if p["pid"] == drive.pid], [3 * MIB])
        self.assertEqual(len(self.json("trace", "cold", "--socket", self.socket, drive.pid)["buffers"]), 1)
        self.assertIsNone(self.shared.poll())


class KeepTest(TraceTest):
    def test_an_observer_ends_some_time_after_its_process(self):
        sleeper = subprocess.Popen(["sleep", "infinity"])
        observer = self.observer("--pid", str(sleeper.pid), "--keep", "1")
        self.assertIsNone(observer.poll())
        sleeper.kill()
        sleeper.wait()
        self.assertEqual(observer.wait(PATIENCE_S), 0)


PYTHON = shutil.which("python3", path="/usr/bin") or sys.executable
PYTHON_PACKAGE = """
import ctypes
import time
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
time.sleep(0.5)  # a real driver takes as long for a context; the interpreter is found meanwhile

def allocate(size):
    address = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) == 0
    return address

def copy(address, data):
    assert cuda.cuMemcpyHtoD_v2(address, data, ctypes.c_size_t(len(data))) == 0
"""
PYTHON_PROGRAM = """
import wrapper

def make():
    # the line below is the user's
    return wrapper.allocate(1 << 20)

def send(buffer):
    data = bytes(1 << 16)
    wrapper.copy(buffer, data)

buffer = make()
for i in range(3):
    send(buffer)
wrapper.time.sleep(0.5)  # stacks are resolved while the process is there
"""


def stat_mode(path):
    return os.stat(path).st_mode & 0o777


class HotTest(TraceTest):
    def setUp(self):
        super().setUp()
        self.dump = self.folder / "run.trace"
        self.memoir("trace", "run", "-q", "-o", self.dump, TRAIN, "--steps", "20", "--step-ms", "1")

    def test_one_command_tells_buffer_lines_and_what_the_system_did(self):
        told = self.json("trace", "hot", self.dump)
        self.assertEqual(told["schema"], "memoir.trace.hot/2")
        rows = told["buffers"]
        self.assertEqual(rows, sorted(rows, key=lambda row: -row["copies"]))
        labels = next(row for row in rows if "copy_labels" in (row["copy_site"] or "") and row["space"] == "device")
        self.assertEqual((labels["copies"], labels["to_device"], labels["host_side"]), (20, 20 * MIB, "pageable"))
        self.assertEqual(labels["repeated_copies"], 19)
        self.assertIn("allocate_buffers", labels["site"])
        self.assertIn("cuda_train.c", labels["site"])
        self.assertTrue(labels["frames"] and labels["copy_frames"])
        staged = [row for row in rows if row["space"] == "pinned"]
        self.assertEqual(len(staged), 4)
        self.assertEqual({row["host_side"] for row in staged}, {"pinned"})
        self.assertEqual(sum(row["copies"] for row in staged), 20)
        self.assertTrue(all(row["faults_before_copy"] > 0 for row in staged), staged)

    def test_limits_filters_and_orders(self):
        rows = self.json("trace", "hot", self.dump, "--by", "bytes", "-n", 2)["buffers"]
        self.assertEqual(len(rows), 2)
        self.assertIn("copy_batch", rows[0]["copy_site"])
        rows = self.json("trace", "hot", self.dump, "--space", "pinned")["buffers"]
        self.assertEqual({row["space"] for row in rows}, {"pinned"})
        rows = self.json("trace", "hot", self.dump, "--space", "host")["buffers"]
        self.assertTrue(rows)
        self.assertEqual({row["space"] for row in rows}, {"host"})
        self.memoir("trace", "hot", self.dump, "--space", "banana", check=2)
        self.memoir("trace", "hot", self.dump, "-n", "0", check=2)
        rows = self.json("trace", "cold", self.dump, "-n", 500)["buffers"]
        self.assertEqual(rows[0]["copies"], 0)
        self.assertEqual(rows, sorted(rows, key=lambda row: row["copies"]))
        self.assertIn(96 * MIB, {row["size"] for row in rows if row["copies"] == 0})

    def test_csv_and_text_have_a_header(self):
        rows = list(csv.DictReader(io.StringIO(self.memoir("trace", "hot", self.dump, "--csv").stdout)))
        self.assertEqual(int(rows[0]["copies"]), 20)
        text = self.memoir("trace", "hot", self.dump, more={"COLUMNS": "80"}).stdout
        self.assertTrue(all(len(line) <= 80 for line in text.splitlines()), text)
        self.assertIn("allocated at", text)
        self.assertIn("COPIED AT", self.memoir("trace", "hot", self.dump).stdout)

    def test_waste_is_told_with_an_estimate(self):
        told = self.json("trace", "waste", self.dump)
        pageable = [row for row in told["waste"] if row["kind"] == "pageable"]
        labels = next(row for row in pageable if "copy_labels" in row["copy_site"])
        self.assertEqual(labels["bytes"], 20 * MIB)
        self.assertAlmostEqual(labels["saved"], (20 * MIB / 10 - 20 * MIB / 50) / 1e9, delta=2e-9)
        slow = self.json("trace", "waste", self.dump, "--pageable-rate", "1GB", "--pinned-rate", "2GB")["waste"]
        labels = next(row for row in slow if row["kind"] == "pageable" and "copy_labels" in row["copy_site"])
        self.assertAlmostEqual(labels["saved"], 20 * MIB / 2 / 1e9, delta=2e-9)
        again = [row for row in told["waste"] if row["kind"] == "repeated" and row["direction"] == "to_device"]
        labels = next(row for row in again if "copy_labels" in row["copy_site"])
        self.assertEqual((labels["copies"], labels["size"], labels["space"]), (19, MIB, "host"))
        self.assertEqual(sum(row["copies"] for row in again if row["space"] == "pinned"), 20 - 4)  # of four stages
        self.assertNotIn("device", {row["space"] for row in again})  # that side is written
        self.assertIn(96 * MIB, {row["bytes"] for row in told["waste"] if row["kind"] == "uncopied"})
        self.memoir("trace", "waste", self.dump, "--pinned-rate", "0", check=2)

    def test_diff_of_a_dump_with_itself_is_empty(self):
        self.assertEqual(self.json("trace", "diff", self.dump, self.dump)["sites"], [])


class AttachTest(TraceTest):
    def test_list_has_the_live_bytes_of_every_space(self):
        drive = self.attached()
        drive.ok("alloc", 3 * MIB, "device")
        drive.ok("alloc", 2 * MIB, "host")
        drive.ok("alloc", 5 * MIB, "managed")
        drive.ok("register", MIB)
        drive.ok("copy", "h2d", 0, MIB, 1)
        process = self.listed(drive.pid)
        self.assertEqual((process["device"], process["pinned"], process["managed"], process["registered"]),
                         (3 * MIB, 2 * MIB, 5 * MIB, MIB))
        self.assertEqual((process["to_device_copies"], process["to_device"], process["lost_events"]), (1, MIB, 0))

    def test_an_address_that_is_used_again_has_two_histories(self):
        drive = self.attached()
        first = drive.ok("alloc", MIB)
        drive.ok("buffer", MIB)
        drive.ok("copy", "h2d", 0, MIB, 1)
        drive.ok("free", 0)
        second = drive.ok("alloc", MIB)
        self.assertEqual(first["address"], second["address"])
        told = self.json("trace", "history", drive.pid, hex(first["address"]))
        self.assertEqual(told["allocations"], 2)
        calls = [event["event"] for event in told["events"] if event["count"] is None]  # not what the system did
        self.assertEqual([event.split(",")[0] for event in calls], ["allocated", "copied to device", "freed", "allocated"])
        self.assertEqual({event["allocation"] for event in told["events"] if event["allocation"]}, {1, 2})
        times = [event["at"] for event in told["events"]]
        self.assertEqual(times, sorted(times))
        self.assertIn("alloc_device", told["events"][0]["site"])
        by_line = self.json("trace", "history", drive.pid, "--site", "alloc_device")
        self.assertEqual(by_line["allocations"], 2)
        self.memoir("trace", "history", drive.pid, "0x123", check=3)
        self.memoir("trace", "history", drive.pid, "--site", "no such line", check=3)
        self.memoir("trace", "history", drive.pid, "banana", check=2)

    def test_diff_tells_what_grew_since_a_dump(self):
        drive = self.attached()
        dump = self.folder / "before.trace"
        drive.ok("alloc", MIB)
        self.memoir("trace", "dump", drive.pid, "-o", dump)
        drive.ok("alloc", 4 * MIB)
        told = self.json("trace", "diff", dump, drive.pid)
        self.assertTrue(told["same_process"])
        self.assertEqual(told["live_change"], 4 * MIB)
        self.assertEqual([(row["change"], row["live_change"]) for row in told["sites"] if row["space"] == "device"], [("grown", 4 * MIB)])

    def test_dumps_go_to_standard_output(self):
        drive = self.attached()
        drive.ok("alloc", MIB)
        self.assertIn("MEMOIR", self.memoir("trace", "dump", drive.pid, "-o", "-", "--json").stdout.upper())

    def test_stop_removes_the_probes_and_the_history(self):
        drive = self.attached()
        drive.ok("alloc", MIB)
        self.memoir("trace", "stop", drive.pid)
        self.assertIsNone(self.listed(drive.pid))
        drive.ok("alloc", MIB)  # it runs on
        self.memoir("trace", "stop", drive.pid, check=3)

    def test_a_history_outlives_its_process(self):
        drive = self.attached()
        drive.ok("alloc", MIB)
        drive.ok("buffer", MIB)
        drive.ok("copy", "h2d", 0, MIB, 1)
        drive.close()
        rows = self.json("trace", "hot", drive.pid)["buffers"]
        self.assertEqual({row["copies"] for row in rows}, {1})

    def test_a_process_that_is_not_traced_is_traced_for_a_moment(self):
        train = subprocess.Popen([TRAIN, "--step-ms", "5"], env=self.environment, stdout=subprocess.PIPE, text=True)
        self.addCleanup(train.stdout.close)
        self.addCleanup(train.wait)
        self.addCleanup(train.kill)
        train.stdout.readline()
        done = self.memoir("trace", "hot", train.pid, "--for", "500ms")
        self.assertIn("is not traced yet", done.stderr)
        self.assertIn("copy_labels", done.stdout)
        self.assertIn("allocated before tracing began", done.stderr)
        self.assertIsNone(self.listed(train.pid))

    def test_probes_of_a_killed_observer_are_found_and_removed(self):
        self.orphaned(lambda drive: ())

    def test_stop_of_a_process_removes_what_its_killed_observer_left(self):
        self.orphaned(lambda drive: (drive.pid,))

    def orphaned(self, which):
        drive = self.attached()
        drive.ok("alloc", MIB)
        observer = next(int(p.name) for p in pathlib.Path("/proc").iterdir()
                        if p.name.isdigit() and f"--pid\0{drive.pid}\0".encode() in read(p / "cmdline"))
        os.kill(observer, signal.SIGKILL)
        found = wait_for(lambda: [f for f in json.loads(self.memoir("doctor", "--json", check=None).stdout)["findings"]
                                  if "whose observer is gone" in f["finding"]], "the orphan")
        self.assertIn(f"pid-{drive.pid}", found[0]["finding"])
        self.assertEqual(found[0]["status"], "warn")
        self.assertIn(f"pid-{drive.pid}", self.memoir("trace", "stop", *which(drive)).stdout)
        after = json.loads(self.memoir("doctor", "--json", check=None).stdout)["findings"]
        self.assertFalse([f for f in after if "whose observer is gone" in f["finding"]])

    def test_only_root_may_ask(self):
        drive = self.attached()
        drive.ok("alloc", MIB)
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        for arguments in (("hot", drive.pid), ("dump", drive.pid, "-o", "/dev/null")):
            done = self.memoir("trace", *arguments, prefix=nobody, check=1)
            self.assertIn("only root", done.stderr)
        self.assertIn("needs root", self.memoir("trace", "attach", self.drive().pid, prefix=nobody, check=1).stderr)
        self.memoir("trace", "stop", prefix=nobody, check=1)


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


class OomTest(TraceTest):
    def test_one_sentence_says_who_held_what(self):
        drive = self.attached(MEMOIR_STANDIN_MEMORY=str(1 << 30))
        drive.ok("alloc", 300 * MIB)
        drive.ok("alloc", 100 * MIB)
        self.memoir("trace", "oom", drive.pid, check=3)
        self.assertEqual(drive("alloc", 900 * MIB)["result"], 2)
        done = self.memoir("trace", "oom", drive.pid)
        self.assertIn("asked for 943.7 MB on device 0 at", done.stdout)
        self.assertIn("and failed", done.stdout)
        told = self.json("trace", "oom", drive.pid)
        self.assertEqual(told["failure"]["size"], 900 * MIB)
        self.assertEqual(told["failure"]["held"], 400 * MIB)
        own = [row for row in told["holders"] if row["pid"] == drive.pid]
        self.assertEqual(sum(row["bytes"] for row in own), 400 * MIB)
        dump = self.folder / "oom.trace"
        self.memoir("trace", "dump", drive.pid, "-q", "-o", dump)
        drive.close()
        self.assertIn("asked for 943.7 MB", self.memoir("trace", "oom", dump).stdout)

    def test_the_driver_tells_the_devices_size_and_its_other_processes(self):
        self.environment |= {"MEMOIR_NVML": str(STANDIN / "libnvidia-ml.so.1"), "MEMOIR_STANDIN_MEMORY": str(1 << 30)}
        other = self.drive(MEMOIR_STANDIN_MEMORY=str(1 << 30))
        other.ok("context", 0)
        other.ok("alloc", 200 * MIB)
        drive = self.attached(MEMOIR_STANDIN_MEMORY=str(1 << 30))
        drive.ok("alloc", 300 * MIB)
        self.assertEqual(drive("alloc", 900 * MIB)["result"], 2)
        told = self.json("trace", "oom", drive.pid)
        self.assertAlmostEqual(told["failure"]["capacity"], 1 << 30, delta=32 * MIB)  # with what the driver keeps
        self.assertGreaterEqual(told["failure"]["used"], 500 * MIB)
        others = [row for row in told["holders"] if row["pid"] == other.pid]
        self.assertGreaterEqual(others[0]["bytes"], 200 * MIB)
        self.assertRegex(told["sentence"], rf"of 1\.1 GB were held by .*cuda_drive \(PID {other.pid}, ")

    def test_the_sentence_ends_the_summary_of_a_run(self):
        done = self.memoir("trace", "run", TRAIN, "--steps", "2", check=1, more={"MEMOIR_STANDIN_MEMORY": str(200 * MIB)})
        self.assertIn("Out of memory\n", done.stderr)
        self.assertRegex(done.stderr, r"cuda_train \(PID \d+\) asked for .* on device 0 at .*device_alloc.* and failed: ")


class OwnersTest(TraceTest):
    def test_rows_sum_to_the_drivers_figure(self):
        drive = self.attached()
        drive.ok("alloc", 3 * MIB)
        drive.ok("alloc", 1000)
        nvml = {"MEMOIR_NVML": str(STANDIN / "libnvidia-ml.so.1")}
        told = self.json("trace", "owners", drive.pid, more=nvml)
        self.assertEqual(sum(row["bytes"] for row in told["owners"]), told["driver"][0]["used"])
        lines = [row for row in told["owners"] if row["kind"] == "allocated"]
        self.assertEqual(sum(row["bytes"] for row in lines), 3 * MIB + 1000)
        self.assertEqual({row["library"] for row in lines}, {"cuda_drive"})
        context = self.json("trace", "owners", drive.pid, "--context", "1MiB", more=nvml)["owners"]
        self.assertEqual(sum(row["bytes"] for row in context), told["driver"][0]["used"])
        self.assertIn(MIB, [row["bytes"] for row in context if row["kind"] == "CUDA context"])
        self.assertIn("driver does not tell", self.memoir("trace", "owners", drive.pid, more={"MEMOIR_NVML": "off"}, check=1).stderr)

    def test_what_the_driver_counts_beyond_blocks_is_asked_for(self):
        self.environment = {**self.environment, "MEMOIR_NVML": str(STANDIN / "libnvidia-ml.so.1")}
        drive = self.attached()
        drive.ok("alloc", 3 * MIB)
        end = time.monotonic() + 60
        while True:
            told = self.json("trace", "owners", drive.pid)
            kinds = {row["kind"]: row["bytes"] for row in told["owners"] if row["kind"] != "allocated"}
            if "before attach" in kinds or time.monotonic() > end:
                break
        self.assertEqual(kinds, {"rounding": MIB, "before attach": 64 * MIB})  # cuInit() came before tracing
        self.assertEqual(sum(row["bytes"] for row in told["owners"]), told["driver"][0]["used"])


class MistakeTest(TraceTest):
    def test_errors_say_what_is_wrong(self):
        cases = [
            (2, "missing subcommand", ()),
            (2, "did you mean 'hot'", ("hott",)),
            (2, "unknown subcommand 'banana'", ("banana",)),
            (2, "missing argument: PID or FILE", ("hot",)),
            (2, "missing argument: COMMAND", ("run",)),
            (2, "--json needs -o", ("run", "--json", "true")),
            (2, "missing option: -o FILE", ("dump", "1")),
            (2, "'banana' is not a valid PID", ("attach", "banana")),
            (2, "exclude each other", ("hot", "--json", "--csv", "1")),
            (2, "two dumps", ("diff", "one")),
            (3, "no process 4194303", ("hot", "4194303")),
            (3, "no process 4194303", ("attach", "4194303")),
            (3, "neither a process nor a file", ("hot", self.folder / "absent")),
        ]
        for code, words, arguments in cases:
            with self.subTest(arguments=arguments):
                self.assertIn(words, self.memoir("trace", *arguments, check=code).stderr)

    def test_damaged_dumps_are_refused(self):
        dump = self.folder / "run.trace"
        self.memoir("trace", "run", "-q", "-o", dump, TRAIN, "--steps", "2", "--step-ms", "1")
        whole = dump.read_bytes()
        for name, content in (("cut", whole[:-7]), ("changed", whole[:60] + bytes([whole[60] ^ 1]) + whole[61:]), ("text", b"hello"), ("empty", b"")):
            with self.subTest(name):
                dump.write_bytes(content)
                self.assertIn("not a dump of memoir trace, or it is damaged", self.memoir("trace", "load", dump, check=1).stderr)
        self.memoir("trace", "load", self.folder, check=1)

    def test_nothing_traced_is_told(self):
        self.assertIn("No process is traced", self.memoir("trace", "list").stderr)
        self.assertEqual(self.json("trace", "list")["processes"], [])


class HelpTest(unittest.TestCase):
    PARTS = ["run", "attach", "stop", "list", "hot", "cold", "history", "waste", "owners", "oom", "dump", "load", "diff"]

    def output(self, *arguments):
        return subprocess.run([MEMOIR, *arguments], capture_output=True, text=True, env=ENVIRONMENT, check=True).stdout

    def test_help_man_and_completion_come_from_the_tables(self):
        overview = self.output("trace", "--help")
        scripts = {shell: self.output("--generate", "completion", shell) for shell in ("bash", "zsh", "fish")}
        for part in self.PARTS:
            with self.subTest(part):
                self.assertIn(f"\n  {part} ", overview)
                self.assertTrue(self.output("trace", part, "--help").startswith(f"Usage: memoir trace {part} "))
                self.assertEqual(self.output("help", "trace", part), self.output("trace", part, "--help"))
                page = self.output("--generate", "man", f"trace-{part}")
                self.assertIn(f'.TH "MEMOIR\\-TRACE\\-{part.upper()}" 1', page)
                self.assertIn(f"trace\\-{part}", self.output("--generate", "man", "trace"))
                self.assertIn(part, scripts["bash"])
                self.assertIn(f"__fish_seen_subcommand_from trace; and __fish_seen_subcommand_from {part}", scripts["fish"])

    def test_bash_completes_subcommands_and_their_options(self):
        script = self.output("--generate", "completion", "bash")
        ask = 'COMP_WORDS=({words}); COMP_CWORD={last}; _memoir; echo "${{COMPREPLY[@]}}"'
        for words, last, expected in ((["memoir", "trace", "h"], 2, "hot history"), (["memoir", "trace", "hot", "--li"], 3, "--limit --live"),
                                      (["memoir", "trace", "hot", "--by", "c"], 4, "count"), (["memoir", "run", "--tr"], 2, "--track")):
            with self.subTest(words=words):
                done = subprocess.run(["bash", "-c", script + ask.format(words=" ".join(words), last=last)], capture_output=True, text=True, check=True)
                self.assertEqual(sorted(done.stdout.split()), sorted(expected.split()))


if __name__ == "__main__":
    unittest.main()
