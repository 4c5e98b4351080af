"""memoir log: a line for every change, sums that add up, and a clean end."""

import csv
import io
import json
import os
import re
import select
import signal
import subprocess
import time

from native_fixture import NativeTest

from cli_support import BUILD, CB, DRAM, ENVIRONMENT, HEAP, KERNEL, L1, MEMOIR, PATIENCE_S, CommandTest, memoir, wait_for


class LogTest(CommandTest):
    def start_log(self, *arguments):
        """A log that has taken its first look: what happens from now on is told."""
        marker = self.start_scripted("device 7 Marker 0 0")
        log = subprocess.Popen(
            [MEMOIR, "log", "--dir", self.dir, "--interval", "0.01", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
        )
        self.addCleanup(self.end_log, log)
        os.set_blocking(log.stdout.fileno(), False)
        log.text = ""
        if {"--pid", "--device", "--space", "--min", "--lines"}.isdisjoint(arguments):
            # Its first look is over when it tells of something.
            number = 0
            while "Marker" not in log.text and "marker" not in log.text and "device 7" not in log.text:
                number += 1
                self.tell(marker, f"alloc 7 {DRAM} {number} 1")
                self.read(log, 0.05)
            # What it was told last is the last that it tells.
            last = re.compile(rf"\b0x{number:x}\b.*\n")
            wait_for(lambda: last.search(log.text) or self.read(log, 0.05) and None, "its last line about the marker")
        else:
            # Nothing of it may show: it rested between looks, some times, after it opened the directory.
            wait_for(lambda: self.follows(log), "its first look")
            rests = self.rests(log)
            wait_for(lambda: self.rests(log) >= rests + 10, "looks after its first one")
        log.text = ""
        return log

    def follows(self, log):
        folder = f"/proc/{log.pid}/fd"
        try:
            return any(
                os.readlink(f"{folder}/{fd}").startswith(f"{self.dir}/") for fd in os.listdir(folder)
            )
        except FileNotFoundError:
            return False

    @staticmethod
    def rests(log):
        """How often it gave the processor away by itself: at each wait for its next look."""
        with open(f"/proc/{log.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("voluntary_ctxt_switches:"))

    @staticmethod
    def end_log(log):
        if log.poll() is None:
            log.kill()
        log.wait()
        log.stdout.close()
        log.stderr.close()

    @staticmethod
    def read(log, timeout_s):
        """What it printed meanwhile, which is also added to log.text."""
        ready, _, _ = select.select([log.stdout], [], [], timeout_s)
        data = (log.stdout.read() or b"").decode() if ready else ""
        log.text += data
        return data

    def lines(self, log, count, timeout_s=PATIENCE_S):
        end = time.monotonic() + timeout_s
        while log.text.count("\n") < count and time.monotonic() < end:
            self.read(log, 0.05)
        lines = log.text.splitlines()
        self.assertGreaterEqual(len(lines), count, log.text)
        return lines

    def events(self, log, count):
        return [json.loads(line) for line in self.lines(log, count)]


class Log(LogTest):
    def test_an_allocation_and_a_free_are_a_line_each_with_the_sum(self):
        client = self.start_scripted("device 0 Card 1000000000 0", f"alloc 0 {DRAM} 1 125000000")
        log = self.start_log()
        self.tell(client, "tag weights", f"alloc 0 {DRAM} 5 25000000")
        self.lines(log, 1)
        self.tell(client, f"free 0 {DRAM} 5")
        lines = self.lines(log, 2)
        self.assertRegex(
            lines[0],
            rf"^\d\d:\d\d:\d\d PID {client.pid} +scripted_client +\+25\.0 MB  DRAM +device 0"
            r"  id 0x5  weights  \(device 0: 150\.0 MB DRAM\)$",
        )
        self.assertRegex(lines[1], r"-25\.0 MB  DRAM +device 0  id 0x5  weights  \(device 0: 125\.0 MB DRAM\)$")

    def test_lines_add_up_whatever_was_seen(self):
        client = self.start_scripted("device 0 Card 0 0")
        log = self.start_log("--json")
        self.tell(client, f"churn 0 {CB} 3000 100", f"fill 0 {CB} 40 100", f"churn 0 {L1} 10 7")

        def complete():
            self.read(log, 0.05)
            events = [json.loads(line) for line in log.text.splitlines()]
            came = sum(e["blocks"] for e in events if e["kind"] in ("alloc", "unseen"))
            went = sum(
                e["blocks"] if e["kind"] == "free" else e["freed_blocks"] or 0
                for e in events
                if e["kind"] in ("free", "unseen")
            )
            return events if (came, went) == (3050, 3010) else None

        events = wait_for(complete, "all changes")
        cbs = [e for e in events if e["space"] == "cb"]
        self.assertEqual(cbs[-1]["total"], 4000)
        unseen = sum(e["blocks"] for e in cbs if e["kind"] == "unseen")
        self.assertGreater(unseen, 0)

    def test_what_came_and_went_is_one_line(self):
        client = self.start_scripted("device 0 Card 0 0")
        log = self.start_log("--interval", "0.2")
        self.tell(client, f"churn 0 {DRAM} 1204 2657807")

        def told():
            self.read(log, 0.1)
            return re.findall(r"… +DRAM +device 0  ([\d,]+) more came (?:and went )?\((\d\.\d GB)\)", log.text)

        # One line, or two where a look fell into it.
        parts = wait_for(told, "the line")
        self.assertLessEqual(int(parts[0][0].replace(",", "")), 1204)

    def test_a_process_begins_and_is_gone_with_all_it_held(self):
        log = self.start_log("--json")
        victim = self.start_scripted("device 0 Card 0 0", f"alloc 0 {DRAM} 1 3000", f"fill 0 {CB} 4 100")
        self.tell(victim, f"alloc 0 {KERNEL} 1 77")
        self.events(log, 7)
        log.text = ""
        victim.kill()
        victim.wait()
        events = self.events(log, 4)
        self.assertEqual((events[0]["kind"], events[0]["pid"]), ("gone", victim.pid))
        self.assertEqual((events[0]["bytes"], events[0]["blocks"]), (3477, 6))
        self.assertIsNone(events[0]["cause"])  # no daemon
        self.assertEqual(
            {(e["kind"], e["space"], e["bytes"], e["blocks"], e["total"]) for e in events[1:]},
            {("held", "dram", 3000, 1, 0), ("held", "cb", 400, 4, 0), ("held", "kernel", 77, 1, 0)},
        )

    def test_filters_by_process_device_space_and_size(self):
        client = self.start_scripted("device 0 Card 0 0", "device 1 Other 0 0")
        other = self.start_scripted("device 0 Card 0 0")
        log = self.start_log("--pid", client.pid, "--device", "1", "--space", "cb", "--min", "1K")
        self.tell(other, f"alloc 0 {CB} 1 5000")
        self.tell(
            client,
            f"alloc 0 {CB} 2 5000",
            f"alloc 1 {DRAM} 3 5000",
            f"alloc 1 {CB} 4 1000",
            f"alloc 1 {CB} 5 1024",
        )
        lines = self.lines(log, 1)
        self.assertEqual(len(lines), 1)
        self.assertRegex(lines[0], r"id 0x5  \(device 1: 2\.0 kB CB\)$")  # the small one counts

    def test_small_blocks_are_left_out_also_where_they_are_only_counted(self):
        client = self.start_scripted("device 0 Card 0 0")
        log = self.start_log("--min", "1M")
        self.tell(client, f"churn 0 {CB} 5 100", f"churn 0 {DRAM} 2 2000000")
        self.lines(log, 1)
        self.tell(client, f"alloc 0 {CB} 7 1048576")  # what was ahead of it is told by then

        def told():
            self.read(log, 0.05)
            return log.text.splitlines() if re.search(r"id 0x7 .*\n", log.text) else None

        lines = wait_for(told, "the line of the large one")
        self.assertEqual([line for line in lines if "CB" in line and "id 0x7 " not in line], [])
        self.assertTrue(any("DRAM" in line for line in lines), lines)

    def test_it_ends_with_the_process_that_it_is_about(self):
        client = self.start_scripted("device 0 Card 0 0", f"alloc 0 {DRAM} 1 3000")
        log = self.start_log("--pid", client.pid)
        client.kill()
        client.wait()
        self.assertEqual(log.wait(PATIENCE_S), 0)

    def test_csv_is_flushed_line_by_line(self):
        client = self.start_scripted("device 0 Card 0 0")
        log = self.start_log("--csv")
        self.tell(client, f"alloc 0 {DRAM} 255 10")
        row = next(csv.reader(io.StringIO(self.lines(log, 1)[0])))
        self.assertEqual(row[1:2] + row[4:11], ["alloc", "0 Card", "0", "Card", "Card", "dram", "0xff", "10"])

    def test_rows_are_those_of_a_question(self):
        client = self.start_scripted("device 0 Card 0 0")
        log = self.start_log("--json", "--where", "bytes>=10 and device_name!=Marker", "--show", "kind,pid,bytes", "--lines", 2)
        for line in (f"alloc 0 {DRAM} 1 9", f"alloc 0 {DRAM} 2 10", f"alloc 0 {DRAM} 3 11"):
            self.tell(client, line)
        self.assertEqual(sorted((line["kind"], line["pid"], line["bytes"]) for line in map(json.loads, self.lines(log, 2))),
                         [("alloc", client.pid, 10), ("alloc", client.pid, 11)])
        self.assertIn("no column 'nothing'", memoir("log", "--dir", self.dir, "--where", "nothing=1", check=2).stderr)
        memoir("log", "--dir", self.dir, "--show", "pid", check=2)

    def test_signals_end_it_cleanly(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            log = self.start_log()
            log.send_signal(number)
            self.assertEqual(log.wait(PATIENCE_S), 0)
            self.assertEqual(log.stderr.read(), b"")

    def test_it_ends_when_nobody_reads(self):
        log = self.start_log()
        log.stdout.close()
        self.assertEqual(log.wait(PATIENCE_S), 0)
        log.stdout = open(os.devnull)

    def test_lines_ends_it_after_so_many(self):
        client = self.start_scripted("device 0 Card 0 0")
        log = self.start_log("--lines", "2")
        self.tell(client, f"fill 0 {DRAM} 10 10")
        self.assertEqual(log.wait(PATIENCE_S), 0)
        self.assertEqual(len(self.lines(log, 2)), 2)

    def test_bad_command_lines(self):
        for arguments in (["--json", "--csv"], ["--interval", "0"], ["--min", "much"], ["--space", "foo"]):
            self.assertEqual(memoir("log", *arguments, check=2).stdout, "")

    def test_a_device_that_is_not_there_is_told_and_waited_for(self):
        log = self.start_log("--device", "9", "--lines", "1")
        client = self.start_scripted("device 9 Late 0 0", f"alloc 9 {DRAM} 1 3000")
        self.tell(client, f"alloc 9 {DRAM} 2 3000")
        self.assertEqual(log.wait(PATIENCE_S), 0)
        self.assertIn(b"no process reports device 9; there are: 7 Marker\n", log.stderr.read())

    def test_the_hosts_memory_is_a_device_to_ask_for(self):
        client = self.start_scripted("device 0 Card 0 0")
        log = self.start_log("--device", "host", "--pid", client.pid)
        self.tell(client, f"alloc 0 {DRAM} 1 3000", f"alloc -1 {HEAP} 2 5000")
        lines = self.lines(log, 1)
        self.assertRegex(lines[0], r"\(host: 5\.0 kB HEAP\)$")

    def test_a_process_that_is_not_there_is_not_waited_for(self):
        done = memoir("log", "--pid", 2**22 + 1, "--dir", self.dir, check=3)  # above any kernel.pid_max
        self.assertIn(f"there is no process {2**22 + 1}", done.stderr)


class LogWithDaemon(LogTest):
    def setUp(self):
        super().setUp()
        self.state = self.dir / "state"
        self.dir = self.dir / "books"
        self.dir.mkdir()
        daemon = subprocess.Popen(
            [BUILD / "src/daemon/memoird", "--foreground", "--dir", self.dir, "--state", self.state],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=ENVIRONMENT,
        )
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.terminate)
        wait_for(lambda: (self.state / "memoird.lock").exists(), "the daemon")

    def test_the_daemon_tells_the_cause(self):
        client = self.start_scripted("device 0 Card 0 0", f"alloc 0 {DRAM} 1 3000")
        wait_for(lambda: all(p["watchers"] for p in self.ps()), "the daemon's eye on it")
        log = self.start_log("--state", self.state)
        client.kill()
        client.wait()
        gone = self.lines(log, 2)[0]
        self.assertRegex(gone, r"gone  killed by SIGKILL  it held 3\.0 kB in 1 block$")



class LogOverDaemons(NativeTest):
    """Books that daemons write for others: one that comes after another copies them."""

    def test_a_new_daemon_brings_nothing_back(self):
        daemon = self.native()
        line = self.with_device()
        line.ask({"report": [["a", 0, "dram", i, 1000, "kept"] for i in range(50)], "ack": True})
        with open(self.folder / "log", "wb") as output:
            log = subprocess.Popen(
                [MEMOIR, "log", "--json", "--interval", "0.01", "--dir", self.books],
                stdout=output,
                env=ENVIRONMENT,
            )
        self.addCleanup(log.wait)
        self.addCleanup(log.kill)

        def lines():
            text = (self.folder / "log").read_text()
            return [json.loads(l) for l in text.splitlines(True) if l.endswith("\n")]

        def events(kind):
            return [e for e in lines() if e["kind"] == kind]

        number = 100
        while not events("alloc"):  # its first look is over when it tells of something
            number += 1
            line.ask({"report": [["a", 0, "dram", number, 1]], "ack": True})
            time.sleep(0.05)
        self.wait_until(lambda: hex(number) in {e["id"] for e in events("alloc")}, "all is told")
        told = {e["id"] for e in events("alloc")}
        daemon.kill()
        daemon.wait()
        line.close()
        self.native()
        line = self.with_device()
        line.ask({"report": [["a", 0, "dram", 7777, 5], ["f", 0, "dram", 3]], "ack": True})
        self.wait_until(lambda: events("free"), "the free")
        self.wait_until(lambda: any(e["id"] == "0x1e61" for e in events("alloc")), "the allocation")
        time.sleep(0.2)  # for what should not come
        self.assertEqual([e["id"] for e in events("free")], ["0x3"])
        self.assertEqual({e["id"] for e in events("alloc")} - told, {"0x1e61"})
        self.assertEqual(events("gone") + events("begin") + events("unseen"), [])
        self.assertEqual(lines()[-1]["total"], 49 * 1000 + (number - 100) + 5)
