"""Traces of CUDA programs over HTTP and the native protocol, on the stand-in driver: what they say, and to whom."""

import datetime
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

from api_support import MEMOIR, ApiTest
from document import checked
from daemon_fixture import NOBODY, PATIENCE_S, Process, as_user
from native_fixture import ASK, Line
from observe_support import BUILD, LIBRARY, STANDIN, TRAIN, environment, why_not

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cuda"))
from cuda_support import Drive  # noqa: E402

MIB = 1 << 20
REASON = why_not()
OTHER = 12345


class TraceTest(ApiTest):
    def setUp(self):
        super().setUp()
        self.folder.chmod(0o777)  # programs of other users have the stand-in's shared files here

    def tracing(self, *flags, library=LIBRARY, **options):
        """memoird with an observer of its own."""
        if REASON:
            self.skipTest(REASON)
        daemon = self.api("--trace", "yes", "--trace-socket", str(self.folder / "observe.sock"), "--trace-library",
                          str(library), "--socket-group", "", *flags, **options)
        self.addCleanup(self.end, daemon)
        os.chmod(self.http, 0o666)
        os.chmod(self.path, 0o666)
        daemon.err.wait("tracing CUDA programs")
        self.wait_until(lambda: self.observer_status()["libraries"] > 0, "probes on the stand-in")
        return daemon

    def observer_status(self):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(PATIENCE_S)
            s.connect(str(self.folder / "observe.sock"))
            with s.makefile("rwb") as f:
                f.write(b"status\n")
                f.flush()
                return json.loads(f.read(int(f.readline().split()[1])))

    def end(self, daemon):
        """In order, so that its observer ends, too, and lets go of the log."""
        if daemon.popen.poll() is None:
            daemon.kill(signal.SIGTERM)
            daemon.wait()

    def observer_pid(self, daemon):
        for pid in pathlib.Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split():
            if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "memoir-observe":
                return int(pid)
        raise AssertionError("no observer")

    def drive(self, **more):
        drive = Drive(self.folder, **more)
        self.addCleanup(drive.close)
        drive.ok("primary", 0)
        return drive

    def traced(self, pid, good=lambda row: True):
        """The row of a process, once it is as it should be."""
        def ask():
            rows = self.valid(self.get("/traced"), "Traced")["processes"]
            return next((row for row in rows if row["pid"] == pid), None)

        return self.eventually(ask, lambda row: row and good(row), f"the trace of {pid}")

    def trace(self, pid, good=lambda trace: True, **arguments):
        return self.eventually(lambda: self.valid(self.get(f"/processes/{pid}/trace", **arguments), "Trace"), good,
                               f"the trace of {pid}")


class Routes(TraceTest):
    def test_the_list_has_exact_figures(self):
        self.tracing()
        drive = self.drive()
        drive.ok("alloc", 5 * MIB)
        drive.ok("alloc", 2 * MIB, "host")
        drive.ok("copy", "h2d", 0, 4096, 1)
        row = self.traced(drive.pid, lambda row: row["copies"]["to_device"]["copies"] == 1)
        self.assertEqual(row["spaces"]["dram"]["bytes"], 5 * MIB)
        self.assertEqual(row["spaces"]["pinned"]["bytes"], 2 * MIB)
        self.assertEqual(row["copies"]["to_device"]["bytes"], 4096)
        self.assertEqual(row["lost"]["events"], 0)
        self.assertEqual(self.get("/traced")["state"], "running")

    def test_an_ended_process_is_retired_and_costs_the_observer_nothing(self):
        daemon = self.tracing()
        observer = pathlib.Path(f"/proc/{self.observer_pid(daemon)}/maps")
        drive = self.drive()
        drive.ok("alloc", 5 * MIB)
        self.traced(drive.pid, lambda row: row["spaces"]["dram"]["bytes"] == 5 * MIB)
        self.assertIn(f"/{drive.pid}-", observer.read_text())
        os.kill(drive.pid, signal.SIGKILL)
        daemon.err.wait(rf"PID {drive.pid} \(.*SIGKILL\) gone: removed 1 ")
        self.assertEqual([path for path in self.books.rglob(f"{drive.pid}-*.book")], [])
        self.wait_until(lambda: f"/{drive.pid}-" not in observer.read_text(), "its book is not mapped any more")

    def privileged(self, mode):
        """A copy of sleep with other rights than the user who starts it."""
        program = self.folder / f"sleep-{mode:o}"
        shutil.copy("/bin/sleep", program)
        program.chmod(mode)
        return program

    def switch(self, pid, on, status):
        return self.as_other(NOBODY, f"/processes/{pid}/tracing", status, "POST", {"on": on})

    def test_tracing_of_a_program_with_other_rights_is_for_root_to_switch(self):
        """Whoever starts it can neither switch it off before its first call, nor become the user who sees its trace."""
        self.tracing()
        for mode in (0o4755, 0o2755):  # set-uid, set-gid
            process = Process([*as_user(NOBODY), self.privileged(mode), "1000"])
            self.addCleanup(process.close)
            self.wait_until(lambda: os.readlink(f"/proc/{process.pid}/exe").endswith(f"-{mode:o}"), "it calls exec")
            for on in (True, False):
                self.switch(process.pid, on, 403)
            self.assertEqual(self.request("POST", f"/processes/{process.pid}/tracing", {"on": True}).status, 200)
            row = self.traced(process.pid)
            self.assertEqual((row["uid"], row["off"]), (0, False))
            self.switch(process.pid, False, 403)
            self.assertEqual(self.request("POST", f"/processes/{process.pid}/tracing", {"on": False}).status, 200)
            self.traced(process.pid, lambda row: row["off"])

    def test_a_switch_ends_where_a_process_gets_other_rights(self):
        self.tracing()
        script = "import os, sys; print('ready', flush=True); sys.stdin.readline(); os.execv(sys.argv[1], sys.argv[1:])"
        process = subprocess.Popen([*as_user(NOBODY), sys.executable, "-c", script, self.privileged(0o2755), "1000"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "ready\n")
        self.switch(process.pid, True, 200)
        self.switch(process.pid, False, 200)
        self.assertEqual(self.traced(process.pid, lambda row: row["off"])["uid"], NOBODY)
        said = json.loads(subprocess.run([MEMOIR, "trace", "list", "--json", "--socket", self.folder / "observe.sock"],
                                         capture_output=True, text=True, check=True).stdout)
        self.assertEqual([row["off"] for row in said["processes"] if row["pid"] == process.pid], [True])
        process.stdin.write("go\n")
        process.stdin.flush()
        self.assertEqual(self.traced(process.pid, lambda row: not row["off"])["uid"], 0)
        self.switch(process.pid, False, 403)

    def test_tracing_of_a_process_is_switched_off_and_on(self):
        folder = self.folder / "driver"  # a file of our own: processes of other tests do not need its probes
        folder.mkdir()
        library = pathlib.Path(shutil.copy(LIBRARY.resolve(), folder / "libcuda.so.1"))
        self.tracing(library=library)
        drive = self.drive(LD_LIBRARY_PATH=str(folder))
        drive.ok("alloc", 5 * MIB)
        drive.ok("buffer", MIB)
        drive.ok("copy", "h2d", 0, 4096, 1)
        self.trace(drive.pid, lambda t: t["totals"]["copies"]["to_device"]["copies"] == 1)
        path = f"/processes/{drive.pid}/tracing"
        libraries = self.observer_status()["libraries"]
        self.assertGreater(libraries, 0)
        self.assertEqual(self.valid(self.request("POST", path, {"on": False}).json(), "Tracing")["state"], "off")
        self.traced(drive.pid, lambda row: row["off"])
        # The library has no probes any more, no figure is kept, and what was recorded stays.
        self.assertEqual(self.observer_status()["libraries"], libraries - 1)
        drive.ok("copy", "h2d", 0, 4096, 1)
        drive.ok("alloc", 2 * MIB)
        row = self.traced(drive.pid, lambda row: row["off"])
        self.assertEqual((row["calls"], row["blocks"], row["spaces"]), (0, 0, {}))
        trace = self.trace(drive.pid, lambda t: True)
        self.assertEqual(trace["totals"]["copies"]["to_device"]["copies"], 1)
        self.eventually(lambda: self.get("/query", table="accounts", where=f"pid={drive.pid}")["rows"], lambda rows: not rows,
                        "its book is gone")
        # A second process that uses the library gets its probes again; the first one is left alone.
        other = self.drive(LD_LIBRARY_PATH=str(folder))
        self.eventually(lambda: self.observer_status()["libraries"], lambda n: n == libraries, "probes are back")
        other.ok("alloc", 3 * MIB)
        self.traced(other.pid, lambda row: row["spaces"]["dram"]["bytes"] == 3 * MIB)
        drive.ok("alloc", MIB)
        self.assertEqual(self.traced(drive.pid, lambda row: row["off"])["calls"], 0)
        self.assertEqual(self.request("POST", path, {"on": True}).status, 200)
        drive.ok("alloc", 4 * MIB)
        self.traced(drive.pid, lambda row: not row["off"] and row["spaces"]["dram"]["bytes"] == 4 * MIB)
        drive.ok("copy", "h2d", 0, 4096, 1)
        self.trace(drive.pid, lambda t: t["totals"]["copies"]["to_device"]["copies"] == 1)
        self.problem("/processes/4194304/tracing", 404, "no-process", "POST", {"on": True})
        self.problem(path, 400, "bad-body", "POST", {"off": True})

    def test_the_trace_of_a_process(self):
        self.tracing()
        drive = self.drive()
        drive.ok("alloc", 5 * MIB)
        drive.ok("alloc", 3 * MIB)
        drive.ok("alloc", 7 * MIB)
        drive.ok("buffer", MIB)
        for _ in range(9):
            drive.ok("copy", "h2d", 0, 8192, 3)
        (repeat,) = self.trace(drive.pid, lambda t: t["totals"]["copies"]["to_device"]["copies"] == 9)["repeats"]
        self.assertNotEqual(repeat["space"], "dram")  # of the side that is read
        self.assertEqual((repeat["copies"], repeat["size"], repeat["direction"]), (9, 8192, "to_device"))
        drive.ok("copy", "h2d", 1, 512 * 1024, 3)
        drive.ok("copy", "d2h", 1, 100, 3)
        trace = checked(self.trace(drive.pid, lambda t: t["totals"]["copies"]["from_device"]["copies"] == 1))
        self.assertEqual({block["state"] for block in trace["cold"]}, {"live"})  # as memoir trace cold says
        totals = trace["totals"]
        self.assertEqual(totals["device"], 15 * MIB)
        self.assertEqual(totals["copies"]["to_device"], {"copies": 10, "bytes": 9 * 8192 + 512 * 1024})
        self.assertEqual(totals["pageable"]["copies"], 11)
        self.assertGreater(totals["pageable_saving"], 0)
        device = [block for block in trace["hot"] if block["space"] == "dram"]
        self.assertEqual([block["size"] for block in device], [3 * MIB, 5 * MIB])  # by bytes
        by_count = [block for block in self.trace(drive.pid, by="count")["hot"] if block["space"] == "dram"]
        self.assertEqual([block["copies"] for block in by_count], [9, 2])
        self.assertEqual(len(self.trace(drive.pid, k=1)["hot"]), 1)
        self.assertEqual(trace["cold"][0]["size"], 7 * MIB)
        self.assertEqual(by_count[0]["repeated"], {"copies": 8, "bytes": 8 * 8192})
        self.assertEqual(sum(row["bytes"] for row in trace["never_copied"] if row["space"] == "dram"), 7 * MIB)
        self.assertEqual(sum(c["to_device"]["bytes"] for c in trace["copiers"]), 9 * 8192 + 512 * 1024)
        lines = [line for line in trace["timeline"]["lines"] if line["group"] == "device"]
        self.assertEqual(sum(line["last"][-1] for line in lines), 15 * MIB)
        now = datetime.datetime.fromisoformat(trace["timeline"]["now"])
        self.assertLess(abs(now.timestamp() - time.time()), 60)

    def test_lines_are_the_programs_own(self):
        self.tracing()
        train = subprocess.Popen([str(TRAIN), "--step-ms", "5"], stdout=subprocess.DEVNULL, env=environment(self.folder))
        self.addCleanup(train.wait)
        self.addCleanup(train.kill)
        self.traced(train.pid, lambda row: row["copies"]["to_device"]["copies"] > 20)
        trace = self.trace(train.pid)
        sites = {site["site"]: site for site in trace["sites"]}
        for site in sites.values():
            self.assertNotIn("libcuda.so", site["text"])
            self.assertEqual(os.path.basename(site["module"] or ""), "cuda_train", site)
        self.assertTrue(any("cuda_train.c:" in site["text"] for site in sites.values()), sites)
        hottest = trace["hot"][0]
        self.assertIn("train", " ".join(sites[hottest["copy_site"]]["stack"]))
        self.assertTrue(any("allocate_buffers" in " ".join(sites[row["site"]]["stack"]) for row in trace["never_copied"]
                            if row["site"]), trace["never_copied"])

    def test_out_of_memory_in_one_sentence(self):
        self.tracing()
        drive = self.drive()
        drive.ok("alloc", 64 * MIB)
        self.assertNotEqual(drive("alloc", 1 << 46)["result"], 0)
        trace = self.trace(drive.pid, lambda t: t["failures"])
        failure = trace["failures"][0]
        self.assertTrue(failure["out_of_memory"])
        self.assertEqual((failure["size"], failure["held"]), (1 << 46, 64 * MIB))
        self.assertRegex(failure["text"], rf"\(PID {drive.pid}\) asked for 70\.4 TB on device 0 at .*out of memory: "
                                          r"it held 67\.1 MB itself \(67\.1 MB by ")
        self.assertEqual(failure["holders"][0]["bytes"], 64 * MIB)

    def test_owners_sum_to_the_drivers_figure(self):
        self.tracing(env={**environment(self.folder), "MEMOIR_NVML": str(STANDIN / "libnvidia-ml.so.1")})
        drive = self.drive()
        drive.ok("alloc", 5 * MIB)
        drive.ok("alloc", 3 * MIB)
        # The driver is read at another moment than the trace: 64 MiB of context, 5 and 3 MiB in pieces of 2 MiB. The context
        # is an estimate until a reading during which no block came or went.
        trace = self.trace(drive.pid, lambda t: t["owners"] and t["owners"]["driver"] == (64 + 6 + 4) * MIB and
                           sum(row["blocks"] or 0 for row in t["owners"]["rows"]) == 2 and
                           any(row["kind"] == "CUDA context" and not row["estimated"] for row in t["owners"]["rows"]))
        rows = trace["owners"]["rows"]
        self.assertEqual(sum(row["bytes"] for row in rows), trace["owners"]["driver"])
        lines = [row for row in rows if row["kind"] == "allocated"]
        self.assertEqual(sum(row["bytes"] for row in lines), 8 * MIB)
        self.assertEqual({row["library"] for row in lines}, {"cuda_drive"})
        self.assertEqual(next(row["bytes"] for row in rows if row["kind"] == "rounding"), 2 * MIB)
        self.assertEqual(next(row["bytes"] for row in rows if row["kind"] == "CUDA context"), 64 * MIB)
        self.assertLessEqual(sum(row["bytes"] for row in rows if row["kind"] == "unknown"),
                             trace["owners"]["driver"] // 50)

    def test_owners_that_share_a_line_are_told_with_their_callers(self):
        self.tracing(env={**environment(self.folder), "MEMOIR_NVML": str(STANDIN / "libnvidia-ml.so.1")})
        train = subprocess.Popen([str(TRAIN), "--step-ms", "5"], stdout=subprocess.DEVNULL, env=environment(self.folder))
        self.addCleanup(lambda: (train.kill(), train.wait()))
        self.traced(train.pid, lambda row: row["copies"]["to_device"]["copies"] > 2)
        trace = self.trace(train.pid, lambda t: t["owners"] and sum(row["kind"] == "allocated" for row in t["owners"]["rows"]) >= 5)
        lines = [row["site"] for row in trace["owners"]["rows"] if row["kind"] == "allocated"]
        self.assertEqual(sum("load_weights \u2192 device_alloc" in line for line in lines), 3, lines)

    def test_a_dump_loads(self):
        self.tracing()
        drive = self.drive()
        drive.ok("alloc", 5 * MIB)
        self.traced(drive.pid)
        answer = self.request("GET", f"/processes/{drive.pid}/trace/dump")
        self.assertEqual((answer.status, answer.body[:8]), (200, b"MEMOIRTR"))
        self.assertIn(f"memoir-{drive.pid}.trace", answer.headers["Content-Disposition"])

    def test_processes_that_are_not_traced(self):
        self.tracing()
        self.problem(f"/processes/{os.getpid()}/trace", 404, "not-traced")
        self.problem("/processes/1/trace?k=0", 400, "bad-argument")
        self.problem("/processes/1/trace?by=size", 400, "bad-argument")

    def test_the_history_of_a_process_that_ended(self):
        self.tracing()
        drive = self.drive()
        drive.ok("alloc", 5 * MIB)
        self.traced(drive.pid)
        drive.close()
        trace = self.trace(drive.pid, lambda t: t["totals"]["ended"])
        self.assertEqual(trace["totals"]["allocated"], 5 * MIB)


class Rights(TraceTest):
    def setUp(self):
        super().setUp()
        self.daemon_process = self.tracing()
        self.own = self.drive(prefix=as_user(OTHER))
        self.own.ok("alloc", 5 * MIB)
        self.roots = self.drive()
        self.roots.ok("alloc", 3 * MIB)
        self.traced(self.own.pid)
        self.traced(self.roots.pid)

    def test_a_user_sees_only_that_users_processes(self):
        self.assertEqual([row["pid"] for row in self.as_other(OTHER, "/traced")["processes"]], [self.own.pid])
        # Tests beside this one may have programs of nobody's.
        theirs = {self.own.pid, self.roots.pid}
        self.assertEqual({row["pid"] for row in self.as_other(NOBODY, "/traced")["processes"]} & theirs, set())
        self.assertEqual(self.as_other(OTHER, f"/processes/{self.own.pid}/trace")["totals"]["device"], 5 * MIB)
        for uid, pid in ((OTHER, self.roots.pid), (NOBODY, self.own.pid)):
            for what in ("trace", "trace/dump"):
                problem = self.as_other(uid, f"/processes/{pid}/{what}", 403)
                self.assertTrue(problem["type"].endswith("not-yours"), problem)

    def test_the_rights_are_those_of_the_trace_when_the_process_ended(self):
        pid = self.roots.pid
        self.roots.close()
        self.trace(pid, lambda t: t["totals"]["ended"])
        # While the ledger has it, the ledger's owner counts; then the one that the trace names.
        for book in self.books.glob(f"*/*{pid}*"):
            book.unlink()
        self.eventually(lambda: self.as_other(OTHER, f"/processes/{pid}/trace", 403)["detail"],
                        lambda detail: "see its trace" in detail, "the ledger has forgotten it")

    def native_as(self, uid, question):
        done = subprocess.run([*as_user(uid), sys.executable, "-c", ASK, self.path, json.dumps(question)],
                              capture_output=True, text=True, timeout=PATIENCE_S, check=True, cwd="/")
        return json.loads(done.stdout)

    def test_the_native_protocol_has_the_same_rights(self):
        self.assertEqual([row["pid"] for row in self.native_as(OTHER, {"trace": "list"})["traced"]], [self.own.pid])
        theirs = {self.own.pid, self.roots.pid}
        self.assertEqual({row["pid"] for row in self.native_as(NOBODY, {"trace": "list"})["traced"]} & theirs, set())
        for uid, pid in ((OTHER, self.roots.pid), (NOBODY, self.own.pid)):
            self.assertEqual(self.native_as(uid, {"trace": pid})["error"]["code"], "forbidden")

    def memoir_as(self, uid, *arguments):
        return subprocess.run([*as_user(uid), BUILD / "src/cli/memoir", "trace", *arguments, "--socket", self.path],
                              capture_output=True, text=True, timeout=PATIENCE_S, cwd="/")

    def test_the_command_asks_memoird_where_the_observer_is_for_root_alone(self):
        done = self.memoir_as(OTHER, "cold", str(self.own.pid), "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([row["size"] for row in json.loads(done.stdout)["buffers"]], [5 * MIB])
        for uid, pid in ((OTHER, self.roots.pid), (NOBODY, self.own.pid)):
            done = self.memoir_as(uid, "cold", str(pid), "--json")
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("belongs to another user", done.stderr)

    def test_the_list_of_the_command_is_memoirds_where_the_observer_is_for_root_alone(self):
        for uid, pids in ((OTHER, [self.own.pid]), (NOBODY, [])):
            done = self.memoir_as(uid, "list", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = json.loads(done.stdout)["processes"]
            self.assertEqual([(row["pid"], row["device"], row["observer"]) for row in rows],
                             [(pid, 5 * MIB, "memoird") for pid in pids])


class Native(TraceTest):
    def take_dump(self, line, question):
        line.send(question)
        head = line.receive()
        data = line.buffer
        while len(data) < head["bytes"]:
            piece = line.socket.recv(1 << 16)
            self.assertTrue(piece, "memoird closed the connection")
            data += piece
        line.buffer = data[head["bytes"]:]
        return head, data[:head["bytes"]]

    def test_a_dump_follows_its_line_and_answers_keep_their_order(self):
        self.tracing()
        drive = self.drive()
        drive.ok("alloc", 5 * MIB)
        self.traced(drive.pid)
        line = self.connect()
        line.send({"ping": 1})
        line.send({"trace": drive.pid, "id": 7}, {"ping": 2})
        self.assertEqual(line.receive(), {"pong": 1})
        head, data = self.take_dump(line, b"")
        self.assertEqual((head["trace"], head["id"]), (drive.pid, 7))
        self.assertEqual(data[:8], b"MEMOIRTR")
        self.assertEqual(line.receive(), {"pong": 2})
        self.assertIn(drive.pid, [row["pid"] for row in line.ask({"trace": "list"})["traced"]])

    def test_a_large_dump_in_pieces(self):
        self.tracing()
        drive = self.drive()
        drive.ok("phase", "churn", 60000, 2)
        self.traced(drive.pid)
        expected = 0

        def bigger():
            nonlocal expected
            head, data = self.take_dump(line, {"trace": drive.pid})
            expected = head["bytes"]
            return len(data) > 512 * 1024

        line = self.connect()
        self.wait_until(bigger, "a dump larger than the output queue")
        self.assertEqual(line.ask({"ping": 1}), {"pong": 1})

    def test_bad_requests(self):
        self.tracing()
        line = self.connect()
        self.assertEqual(line.error({"trace": "all"})["code"], "bad-request")
        self.assertEqual(line.error({"trace": 0})["code"], "bad-request")
        self.assertEqual(line.error({"trace": os.getpid()})["code"], "not-traced")

    def test_clients_that_leave_while_the_observer_hangs(self):
        daemon = self.tracing()
        drive = self.drive()
        self.traced(drive.pid)
        observer = self.observer_pid(daemon)
        os.kill(observer, signal.SIGSTOP)
        try:
            for _ in range(5):
                line = Line(self.path)
                line.send({"trace": drive.pid})
                line.close()
            self.assertEqual(self.connect().ask({"ping": 1}), {"pong": 1})
        finally:
            os.kill(observer, signal.SIGCONT)
        self.assertIn("traced", self.connect().ask({"trace": "list"}))


class Faults(TraceTest):
    def test_no_observer(self):
        self.api("--trace", "no")
        answer = self.valid(self.get("/traced"), "Traced")
        self.assertEqual((answer["state"], answer["processes"]), ("off", []))
        self.assertIn("switched off", answer["problem"])
        problem = self.problem(f"/processes/{os.getpid()}/trace", 503, "not-tracing")
        self.assertIn("switched off", problem["detail"])
        self.assertEqual(self.connect().error({"trace": "list"})["code"], "not-tracing")
        self.assertEqual(self.get("/self")["tracing"]["state"], "off")

    def test_a_killed_observer_comes_back(self):
        daemon = self.tracing()
        drive = self.drive()
        drive.ok("alloc", 5 * MIB)
        self.traced(drive.pid)
        os.kill(self.observer_pid(daemon), signal.SIGKILL)
        drive.ok("alloc", 2 * MIB)
        self.assertIn(self.request("GET", "/traced").status, (200,))
        self.assertIn(self.request("GET", f"/processes/{drive.pid}/trace").status, (200, 503))
        daemon.err.wait("tracing CUDA programs", 2)
        row = self.traced(drive.pid, lambda row: row["spaces"]["dram"]["bytes"] == 7 * MIB)
        self.assertEqual(row["spaces"]["dram"]["blocks"], 2)
        self.trace(drive.pid, lambda t: t["totals"]["device"] == 7 * MIB)

    def test_probes_of_a_killed_observer_go_with_memoird(self):
        """Else they would count in every CUDA program, for nobody."""
        daemon = self.tracing()
        observer = self.observer_pid(daemon)
        words = pathlib.Path(f"/proc/{observer}/cmdline").read_text().split("\0")
        pins = pathlib.Path(f"/sys/fs/bpf/memoir-{words[words.index('--name') + 1]}")
        self.assertTrue(list(pins.glob("probes-*")))
        os.kill(observer, signal.SIGKILL)
        daemon.err.wait("CUDA programs are not traced")
        daemon.kill(signal.SIGTERM)
        self.assertEqual(daemon.wait(), 0)
        self.assertFalse(pins.exists())

    def test_an_observer_that_hangs_holds_up_nothing_else(self):
        daemon = self.tracing()
        drive = self.drive()
        self.traced(drive.pid)
        observer = self.observer_pid(daemon)
        os.kill(observer, signal.SIGSTOP)
        try:
            line = self.connect()
            line.send({"trace": drive.pid})
            begin = time.monotonic()
            self.get("/self")
            self.assertEqual(self.connect().ask({"ping": 1}), {"pong": 1})
            self.get("/leaks")  # on the worker for symbols
            self.assertLess(time.monotonic() - begin, 4)
            self.assertEqual(line.receive()["error"]["code"], "no-answer")
            self.problem(f"/processes/{drive.pid}/trace", 504, "no-answer")
        finally:
            os.kill(observer, signal.SIGCONT)
        self.trace(drive.pid)

    def test_memoird_ends_while_the_observer_hangs(self):
        daemon = self.tracing()
        drive = self.drive()
        self.traced(drive.pid)
        observer = self.observer_pid(daemon)
        os.kill(observer, signal.SIGSTOP)
        try:
            line = self.connect()
            line.send({"trace": drive.pid})
            line.send({"ping": 1})
            time.sleep(0.1)  # the question is on its way
            begin = time.monotonic()
            daemon.kill(signal.SIGTERM)
            self.assertEqual(daemon.wait(), 0)
            self.assertLess(time.monotonic() - begin, 4)
        finally:
            os.kill(observer, signal.SIGCONT)

    def test_many_viewers_cost_one_dump(self):
        self.tracing()
        drive = self.drive()
        drive.ok("alloc", 5 * MIB)
        self.traced(drive.pid)

        def moments():
            return {self.get(f"/processes/{drive.pid}/trace", k=k)["timeline"]["now"] for k in range(1, 9)}

        self.eventually(lambda: len(moments()), lambda n: n <= 2, "dumps that are shared")


if __name__ == "__main__":
    unittest.main()
