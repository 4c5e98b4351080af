"""memoir demo: real clients of libmemoir, seen with memoir ps, and nothing left behind."""

import os
import pathlib
import re
import signal
import subprocess

from cli_support import ENVIRONMENT, LIBRARY, MEMOIR, CommandTest, wait_for


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
        rows = [p for p in self.ps() if p["program"] == program and p["state"] == state]
        return rows[0] if rows else None

    def test_four_programs_keep_books(self):
        self.start("--quiet")
        wait_for(lambda: len(self.ps()) == 4, "four books")
        victim = wait_for(lambda: self.row("victim"), "the victim's book")
        spaces = {s["space"]: s for s in victim["spaces"]}
        self.assertEqual((spaces["dram"]["live_blocks"], spaces["dram"]["live_bytes"]), (150, 25500000))
        self.assertEqual((spaces["cb"]["live_blocks"], spaces["cb"]["live_bytes"]), (800, 22400000))
        self.assertEqual((spaces["kernel"]["live_blocks"], spaces["kernel"]["live_bytes"]), (30, 204000))
        self.assertTrue(all(p["lost_reports"] == 0 for p in self.ps()))

    def test_the_leak_grows_and_the_others_come_back(self):
        self.start("--quiet")
        first = wait_for(lambda: self.row("leaky"), "the leak's book")["device_bytes"]
        # More than its requests can explain: those come and go.
        wait_for(lambda: self.row("leaky")["device_bytes"] > first + 16_000_000, "growth", 40)

        def trainer_shrinks():
            before = self.row("trainer")["device_bytes"]
            return self.row("trainer")["device_bytes"] < before

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
        self.assertEqual(demo.wait(timeout=20), 0)
        self.assertEqual(demo.stdout.read(), "")
        self.assertFalse(any(alive(pid) for pid in programs))
        self.assertEqual(list(self.dir.glob("*/*")), [])

    def test_ctrl_c_ends_it_in_order(self):
        demo = self.start("--quiet")
        wait_for(lambda: len(self.ps()) == 4, "four books")
        demo.send_signal(signal.SIGINT)
        self.assertEqual(demo.wait(timeout=20), 0)
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
        for process in self.ps():
            for space in process["spaces"]:
                if space["space"] == "dram":
                    held.setdefault(space["device"], []).append(space)
        self.assertEqual(len(held), 2)
        for spaces in held.values():
            self.assertLessEqual(
                sum(s["live_bytes"] for s in spaces), spaces[0]["capacity_bytes"]
            )

    def test_a_client_that_somebody_kills_starts_anew(self):
        demo = self.start()
        trainer = wait_for(lambda: self.row("trainer"), "the trainer")["pid"]
        wait_for(lambda: self.row("trainer")["age_seconds"] > 1.2, "its second birthday")
        os.kill(trainer, signal.SIGKILL)
        wait_for(
            lambda: (self.row("trainer") or {"pid": trainer})["pid"] != trainer, "the next one"
        )
        demo.terminate()
        self.assertIn("trainer was killed by signal 9", demo.stdout.read())

    def test_the_walk_through_names_what_is_there(self):
        demo = self.start("--duration", "9", "--color", "never")
        seen = set()

        def finished():
            seen.update(p["pid"] for p in self.ps())
            return demo.poll() is not None

        wait_for(finished, "its end", 40)
        text = demo.stdout.read()
        told = set(map(int, re.findall(r"PID (\d+)", text)))
        self.assertTrue(told and told <= seen, (told, seen))
        self.assertEqual(re.findall(r"(?m)^ ?(\d+)  ", text), ["1", "2", "3", "4"])
        self.assertIn("$ memoir ps --watch 1", text)
        self.assertIn("The end", text)

    def test_a_missing_program_is_told(self):
        done = subprocess.run(
            [self.copy_of(MEMOIR, "memoir"), "demo"],
            capture_output=True,
            text=True,
            env=ENVIRONMENT | {"LD_LIBRARY_PATH": str(LIBRARY)},
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("demo: its programs", done.stderr)
