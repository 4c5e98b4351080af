"""Attaching through memoird: the API, the command, users' rights, and what is killed meanwhile."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

from api_support import MEMOIR, ApiTest
from attach_support import PROGRAM, Program, why_not
from daemon_fixture import NOBODY, as_user
from document import checked


@unittest.skipIf(why_not(), why_not())
class AttachDaemonTest(ApiTest):
    def program(self, **options):
        program = Program(PROGRAM, **options)
        self.addCleanup(program.end)
        return program

    def tracking(self, pid):
        return self.get(f"/processes/{pid}")["tracking"]

    def switch(self, pid, on, status=200):
        answer = self.request("POST", f"/processes/{pid}/tracking", {"on": on})
        self.assertEqual(answer.status, status, answer.body)
        return answer.json()

    def attached(self, program):
        self.assertEqual(self.switch(program.pid, True)["state"], "on")
        self.addCleanup(self.memoir, "detach", program.pid)
        self.eventually(lambda: self.tracking(program.pid), lambda t: t["source"] == "attach", "it is attached")

    def memoir(self, *words, prefix=()):
        return subprocess.run([*prefix, str(MEMOIR), *map(str, words)], capture_output=True, text=True, timeout=60,
                              check=False)

    def heap(self, pid):
        accounts = self.get(f"/processes/{pid}")["accounts"]
        return next((a["bytes"] for a in accounts if a["space"] == "heap"), 0)

    def observer(self, pid):
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as f:
                    words = f.read().split(b"\0")
            except OSError:
                continue
            if b"--heap" in words and str(pid).encode() in words:
                return int(entry)
        return None

    def test_the_switch_attaches_and_detaches(self):
        self.api()
        program = self.program()
        tracking = self.tracking(program.pid)
        self.assertEqual((tracking["state"], tracking["can"], tracking["attach"]), ("none", True, True))
        self.attached(program)
        tracking = self.valid(self.get(f"/processes/{program.pid}"), "Process")["tracking"]
        self.assertEqual((tracking["state"], tracking["source"], tracking["attach"]), ("on", "attach", False))
        program("alloc", 1000, 1000)
        self.eventually(lambda: self.heap(program.pid), lambda n: n == 1000000, "what came after is counted")
        sites = self.get(f"/processes/{program.pid}/sites")
        self.assertIn("alloc_some", json.dumps(sites))
        told = self.valid(self.get(f"/processes/{program.pid}/explain"), "Explain")
        self.assertEqual(sum(told["kinds"].values()), told["rss"])
        self.assertGreater(told["kinds"]["older"], 0)  # and no slack: which of it is free is not known
        self.assertEqual(told["kinds"]["slack"], 0)
        self.assertEqual(self.switch(program.pid, False), {"pid": program.pid, "state": "none", "changed": True})
        self.eventually(lambda: self.tracking(program.pid)["state"], lambda s: s == "none", "it is detached")
        self.eventually(lambda: self.observer(program.pid), lambda o: o is None, "its observer ends")
        audit = [json.loads(line)["what"] for line in (self.state / "audit.jsonl").read_text().splitlines()]
        self.assertEqual(audit, [f"tracking of PID {program.pid} on", f"tracking of PID {program.pid} off"])

    def test_estimates_say_as_of_when_they_are(self):
        self.api()
        program = self.program()
        self.attached(program)
        self.assertIsNone(self.tracking(program.pid)["as_of"])  # exact
        def busy():
            program("mixed", 500)
            return self.tracking(program.pid)["as_of"]
        self.eventually(busy, lambda when: when is not None, "it is above the budget")
        self.valid(self.get(f"/processes/{program.pid}"), "Process")

    def test_children_are_attached_with_it_and_left_with_it(self):
        self.api()
        program = self.program()
        answer = self.request("POST", f"/processes/{program.pid}/tracking", {"on": True, "children": True})
        self.assertEqual(answer.status, 200, answer.body)
        self.addCleanup(self.memoir, "detach", program.pid)
        program("child")  # which reads the commands from now on
        with open(f"/proc/{program.pid}/task/{program.pid}/children") as f:
            child = int(f.read().split()[0])
        self.eventually(lambda: self.tracking(child)["source"], lambda s: s == "attach", "the child is attached")
        program("alloc", 10, 100)
        self.eventually(lambda: self.heap(child), lambda n: n == 1000, "it is counted by itself")
        self.assertEqual(self.heap(program.pid), 0)
        self.switch(program.pid, False)
        self.eventually(lambda: self.observer(child), lambda o: o is None, "its observer ends with its parent's")
        self.eventually(lambda: self.tracking(child)["state"], lambda s: s == "none", "its book is gone")
        refused = self.request("POST", f"/processes/{program.pid}/tracking", {"on": True, "children": 4})
        self.assertEqual(refused.status, 400, refused.body)

    def test_observers_that_ended_are_reaped(self):
        daemon = self.api()
        program = self.program()
        for _ in range(3):
            self.assertEqual(self.switch(program.pid, True)["state"], "on")
            self.switch(program.pid, False)

        def zombies():
            stats = []
            for entry in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{entry}/stat") as f:
                        stats.append(f.read().rsplit(")", 1)[1].split())
                except OSError:
                    continue
            return [s for s in stats if s[:2] == ["Z", str(daemon.pid)]]

        self.eventually(zombies, lambda z: z == [], "no observer is left as a zombie")

    def test_a_killed_observer_leaves_no_book(self):
        self.api()
        program = self.program()
        self.attached(program)
        os.kill(self.observer(program.pid), signal.SIGKILL)
        self.eventually(lambda: self.tracking(program.pid)["state"], lambda s: s == "none", "its book is gone")
        self.attached(program)
        program("alloc", 10, 100)
        self.eventually(lambda: self.heap(program.pid), lambda n: n == 1000, "and it can be attached again")

    def test_a_killed_memoird_leaves_the_observer_to_the_next(self):
        daemon = self.api()
        program = self.program()
        self.attached(program)
        program("alloc", 10, 100)
        daemon.kill()
        daemon.popen.wait()  # its standard error is the observer's, too
        program("alloc", 10, 100)
        self.api()
        self.eventually(lambda: self.heap(program.pid), lambda n: n == 2000, "the count went on")
        self.switch(program.pid, False)
        self.eventually(lambda: self.observer(program.pid), lambda o: o is None, "its observer ends")

    def elsewhere(self):
        """From now on another memoird is meant: with directories and sockets of its own."""
        before = self.books, self.state, self.path, self.http
        self.books = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, self.books, True)
        self.books.chmod(0o1777)
        self.state = self.folder / "state2"
        self.path, self.http = (str(self.folder / name) for name in ("native2.sock", "http2.sock"))
        return before

    def test_memoirds_with_other_directories_leave_each_other_s_observers_alone(self):
        daemon = self.api()
        program = self.program()
        self.attached(program)
        first = self.elsewhere()
        self.api()
        off = self.request("POST", f"/processes/{program.pid}/tracking", {"on": False})
        self.assertEqual(off.status, 409, off.body)
        on = self.request("POST", f"/processes/{program.pid}/tracking", {"on": True})
        self.assertNotEqual(on.status, 200)
        self.assertIn("with another directory", on.json()["detail"])
        daemon.kill()
        daemon.popen.wait()
        off = self.request("POST", f"/processes/{program.pid}/tracking", {"on": False})
        self.assertEqual(off.status, 409, off.body)  # the second has not taken it over
        self.books, self.state, self.path, self.http = first
        self.api()
        program("alloc", 10, 100)
        self.eventually(lambda: self.heap(program.pid), lambda n: n == 1000, "the count of the first goes on")

    def test_an_ended_process_is_retired_with_what_it_held(self):
        self.api()
        program = self.program()
        self.attached(program)
        program("alloc", 10, 12345)
        self.eventually(lambda: self.heap(program.pid), lambda n: n == 123450, "it is counted")
        program.process.kill()
        program.process.wait()
        retired = self.state / "retired.jsonl"
        line = self.eventually(lambda: retired.read_text() if retired.exists() else "",
                               lambda text: f'"pid":{program.pid}' in text, "it is retired")
        self.assertIn("123450", line)

    def test_users_attach_to_their_own_processes_only(self):
        self.api()
        own = Program(PROGRAM, prefix=as_user(NOBODY))
        self.addCleanup(own.end)
        others = self.program()
        command = dict(prefix=as_user(NOBODY))
        socket = self.http
        for path in (self.folder, socket):
            os.chmod(path, 0o777)
        refused = self.memoir("attach", others.pid, "--socket", socket, **command)
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertIn("belongs to another user", refused.stderr)
        self.assertIsNone(self.observer(others.pid))
        done = self.memoir("attach", own.pid, "--socket", socket, **command)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"Attached to process {own.pid}.", done.stdout)
        done = self.memoir("detach", own.pid, "--socket", socket, **command)
        self.assertEqual((done.returncode, done.stdout), (0, f"Detached from process {own.pid}.\n"), done.stderr)
        again = self.memoir("detach", own.pid, "--socket", socket, **command)
        self.assertEqual((again.returncode, again.stderr), (3, f"memoir: process {own.pid} is not attached\n"))

    def test_json_tells_how_it_is_attached(self):
        self.api()
        program = self.program()
        self.attached(program)
        program("alloc", 10, 12345)
        told = checked(json.loads(self.memoir("attach", program.pid, "--json").stdout))
        self.assertEqual((told["schema"], told["pid"], told["state"]), ("memoir.attach/1", program.pid, "attached"))
        self.assertEqual((told["bytes"], told["blocks"]), (123450, 10))
        self.assertTrue(0 < told["attached"] < 3600, told)

    def test_a_user_s_share_outlives_a_restart(self):
        """Eight processes at a time, also where a memoird before this one attached them."""
        daemon = self.api()
        programs = [self.program(prefix=as_user(NOBODY)) for _ in range(9)]

        def attach(program):
            for path in (self.folder, self.http):
                os.chmod(path, 0o777)
            return self.memoir("attach", program.pid, "--socket", self.http, prefix=as_user(NOBODY))

        for program in programs[:8]:
            done = attach(program)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.addCleanup(self.memoir, "detach", program.pid)
        self.assertIn("too many processes are attached", attach(programs[8]).stderr)
        daemon.kill()
        daemon.popen.wait()
        self.api()
        for program in programs[:8]:
            self.eventually(lambda p=program: self.tracking(p.pid)["state"], lambda s: s == "on", "it is still attached")
        self.eventually(lambda: attach(programs[8]).stderr, lambda said: "too many processes are attached" in said,
                        "all eight are adopted, and count as the user's")

    def test_what_has_no_malloc_is_refused_in_words(self):
        self.api()
        program = self.program()
        self.attached(program)
        stranger = subprocess.Popen(["/bin/sleep", "60"], env={"LD_PRELOAD": str(MEMOIR.parents[1] / "track/libmemoir-track.so")})
        self.addCleanup(stranger.wait)
        self.addCleanup(stranger.kill)
        done = self.memoir("attach", stranger.pid, "--dir", self.books)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("its heap is counted already", done.stderr)


if __name__ == "__main__":
    unittest.main()
