"""memoir demo: real clients of libmemoir, seen with memoir ps, and nothing left behind."""

import json
import os
import pathlib
import re
import signal
import subprocess

from cli_support import BUILD, ENVIRONMENT, LIBRARY, MEMOIR, CommandTest, memoir, wait_for


def children(pid):
    path = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text().split()]


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Demo(CommandTest):
    def start(self, *arguments):
        demo = subprocess.Popen(
            [MEMOIR, "demo", "--dir", self.dir, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=ENVIRONMENT,
        )
        self.addCleanup(self.end, demo)
        return demo

    @staticmethod
    def end(demo):
        if demo.poll() is None:
            demo.terminate()
        demo.wait()
        demo.stdout.close()

    def row(self, program, state="running"):
        rows = [p for p in self.ps("--all") if p["program"] == program and p["state"] == state]
        return rows[0] if rows else None

    def test_four_programs_keep_books(self):
        self.start("--quiet")
        wait_for(lambda: len(self.ps()) == 4, "four books")
        victim = wait_for(lambda: self.row("victim"), "the victim's book")
        spaces = {s["space"]: s for s in self.ps("--wide", "--pid", victim["pid"])}
        self.assertEqual((spaces["dram"]["blocks"], spaces["dram"]["bytes"]), (150, 25500000))
        self.assertEqual((spaces["cb"]["blocks"], spaces["cb"]["bytes"]), (800, 22400000))
        self.assertEqual((spaces["kernel"]["blocks"], spaces["kernel"]["bytes"]), (30, 204000))
        self.assertTrue(all(p["losses"] == 0 for p in self.ps()))

    def test_the_leak_grows_and_the_others_come_back(self):
        self.start("--quiet")
        first = wait_for(lambda: self.row("leaky"), "the leak's book")["device"]
        # More than its requests can explain: those come and go.
        wait_for(lambda: self.row("leaky")["device"] > first + 16_000_000, "growth", 40)

        def trainer_shrinks():
            before = self.row("trainer")["device"]
            return self.row("trainer")["device"] < before

        wait_for(trainer_shrinks, "the trainer giving memory back")

    def test_the_victim_is_killed_and_starts_anew(self):
        demo = self.start("--quiet", "--kill-after", "1")
        first = wait_for(lambda: self.row("victim"), "the victim")["pid"]
        wait_for(lambda: not alive(first), "its death")
        self.assertIsNone(self.row("victim"))
        dead = self.row("victim", "exited")
        self.assertEqual((dead["pid"], dead["blocks"]), (first, 980))
        second = wait_for(lambda: self.row("victim"), "its second life")["pid"]
        self.assertNotEqual(first, second)
        self.assertIsNone(demo.poll())

    def test_it_ends_by_itself_and_leaves_nothing(self):
        demo = self.start("--quiet", "--kill-after", "1", "--duration", "3")
        wait_for(lambda: len(self.ps()) == 4, "four books")
        programs = children(demo.pid)
        self.assertEqual(demo.wait(timeout=60), 0)
        self.assertEqual(demo.stdout.read(), "")
        self.assertFalse(any(alive(pid) for pid in programs))
        self.assertEqual(list(self.dir.glob("*/*")), [])

    def test_ctrl_c_ends_it_in_order(self):
        demo = self.start("--quiet")
        wait_for(lambda: len(self.ps()) == 4, "four books")
        demo.send_signal(signal.SIGINT)
        self.assertEqual(demo.wait(timeout=60), 0)
        self.assertEqual(self.ps(), [])

    def test_kill_9_of_the_demo_leaves_no_child(self):
        demo = self.start("--quiet", "--clients", "12")
        wait_for(lambda: len(self.ps()) == 12, "twelve books")
        programs = children(demo.pid)
        self.assertEqual(len(programs), 12)
        demo.kill()
        demo.wait()
        wait_for(lambda: not any(alive(pid) for pid in programs), "the end of its children")
        self.assertEqual(self.ps(), [])  # they ended in order and took their books along

    def test_a_crowd_shares_the_accelerators(self):
        self.start("--quiet", "--clients", "40")
        wait_for(lambda: len(self.ps()) == 40, "forty books")
        held = {}
        for space in self.ps("--wide", "--where", "space=dram"):
            held.setdefault(space["device"], []).append(space)
        self.assertEqual(len(held), 2)
        for spaces in held.values():
            self.assertLessEqual(sum(s["bytes"] for s in spaces), spaces[0]["capacity"])

    def test_a_client_that_somebody_kills_starts_anew(self):
        demo = self.start()
        trainer = wait_for(lambda: self.row("trainer"), "the trainer")["pid"]
        wait_for(lambda: self.row("trainer")["age"] > 1.2, "its second birthday")
        os.kill(trainer, signal.SIGKILL)
        wait_for(
            lambda: (self.row("trainer") or {"pid": trainer})["pid"] != trainer, "the next one"
        )
        demo.terminate()
        self.assertIn("trainer was killed by signal 9", demo.stdout.read())

    def test_the_walk_through_tells_what_is_there(self):
        demo = self.start("--fast", "--color", "never")
        seen = set()

        def finished():
            seen.update(p["pid"] for p in self.ps())
            return demo.poll() is not None

        wait_for(finished, "its end", 60)
        self.assertEqual(demo.returncode, 0)
        text = demo.stdout.read()
        told = set(map(int, re.findall(r"PID (\d+)", text)))
        self.assertTrue(told and told <= seen, (told, seen))
        steps = re.findall(r"(?m)^\[Step (\d+)\] (\w+)", text)
        self.assertEqual([int(number) for number, _ in steps], list(range(1, len(steps) + 1)))
        self.assertEqual(
            [word for _, word in steps],
            ["trainer", "inference", "leaky", "victim", "All", "The", "kill", "It", "The"],
        )
        self.assertIn("$ memoir devices --watch", text)
        self.assertRegex(text, r"(?m)^  L1 total .*%.* blocks$")
        self.assertEqual(list(self.dir.glob("*/*")), [])

    def test_the_walk_through_shows_the_victims_memory_disappear(self):
        text = self.start("--fast", "--color", "never", "--clients", "4").communicate(timeout=60)[0]
        cbs = re.search(r"L1 circular buffers +([\d.]+) MB +([\d.]+ \w+)", text)
        before, after = float(cbs[1]), cbs[2]
        self.assertGreaterEqual(before, 22.4)
        gone = before - (float(after.split()[0]) / (1 if after.endswith("MB") else 1000))
        self.assertAlmostEqual(gone, 22.4, delta=5)  # the trainer goes on in between
        self.assertRegex(text, r"kill -9 \d+: the victim had no chance to free anything")

    def test_a_folder_on_a_disk_is_refused(self):
        folder = "/sys"  # no tmpfs on any machine
        done = memoir("demo", "--fast", "--dir", folder, check=1)
        self.assertEqual(done.stdout, "")
        self.assertIn(f"books must lie in memory, and '{folder}' does not", done.stderr)

    def test_a_relative_folder_will_do(self):
        demo = subprocess.Popen(
            [MEMOIR, "demo", "--quiet", "--dir", self.dir.name],
            stdout=subprocess.PIPE,
            cwd=self.dir.parent,
            env=ENVIRONMENT,
        )
        self.addCleanup(self.end, demo)
        wait_for(lambda: len(self.ps()) == 4, "four books")

    def test_a_missing_program_is_told(self):
        done = subprocess.run(
            [self.copy_of(MEMOIR, "memoir"), "demo"],
            capture_output=True,
            text=True,
            env=ENVIRONMENT | {"LD_LIBRARY_PATH": str(LIBRARY)},
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("demo: its programs", done.stderr)


class DemoWithDaemon(CommandTest):
    def setUp(self):
        super().setUp()
        self.state = self.dir / "state"
        self.books = self.dir / "books"
        self.books.mkdir()
        self.start(
            BUILD / "src/daemon/memoird", "--foreground", "--dir", self.books, "--state", self.state
        )
        wait_for(lambda: (self.state / "memoird.lock").exists(), "the daemon")
        self.dir = self.books
        self.demo = self.start(
            MEMOIR, "demo", "--quiet", "--dir", self.books, "--kill-after", "1"
        )

    def start(self, *command):
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        return process

    def exited(self, *arguments):
        done = memoir("ps", "--exited", "--json", "--state", self.state, *arguments)
        if done.returncode != 0:
            return []
        return json.loads(done.stdout)["rows"]

    def test_the_victims_row_vanishes_and_the_daemon_remembers_it(self):
        victim = wait_for(
            lambda: next((p for p in self.ps() if p["program"] == "victim"), None), "the victim"
        )["pid"]
        wait_for(lambda: all(p["pid"] != victim for p in self.ps()), "its row's end")
        dead = wait_for(lambda: self.exited("--pid", victim), "its memory")[0]
        self.assertEqual(
            (dead["program"], dead["cause"], dead["signal"], dead["blocks"]),
            ("victim", "killed by SIGKILL", 9, 980),
        )
        self.assertEqual(dead["device"], 25500000 + 22400000 + 204000)
        largest = self.exited("--pid", victim, "--blocks")[0]
        self.assertEqual(
            (largest["program"], largest["cause"], largest["bytes"], largest["tag"], largest["space"]),
            ("victim", "killed by SIGKILL", 170000, "buffers", "dram"),
        )
        self.assertRegex(largest["site"], r"^victim\.c:\d+ main$")
        self.assertEqual((largest["function"], largest["source_file"].rpartition("/")[2]), ("main", "victim.c"))
        (program,) = self.exited("--pid", victim, "--blocks", "--by", "program", "--where", "space=dram", "--show", "count")
        self.assertEqual(program["program"], "victim")

    def test_doctor_finds_the_daemon(self):
        wait_for(lambda: len(self.ps()) == 4, "four books")

        def watches_all():
            done = memoir("doctor", "--json", "--dir", self.dir)
            findings = json.loads(done.stdout)["findings"]
            return next(f for f in findings if f["check"] == "daemon")["status"] == "ok"

        wait_for(watches_all, "a daemon that watches all books")

    def test_the_doctors_trial_is_not_remembered(self):
        for _ in range(3):
            memoir("doctor", "--dir", self.dir)
        victim = wait_for(lambda: next((p for p in self.ps() if p["program"] == "victim"), None), "the victim")
        wait_for(lambda: self.exited("--pid", victim["pid"]), "the record of a later death")
        self.assertNotIn("memoir", [p["program"] for p in self.exited()])
