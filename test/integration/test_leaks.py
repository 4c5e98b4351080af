"""memoir leaks: verdicts over real processes, by a watch of its own."""

import csv
import io
import json
import subprocess
import sys
import unittest

from cli_support import BUILD, CommandTest, memoir

CLIENT = BUILD / "test/integration/leak_client"
RATE = 20_000_000  # bytes a second
# 10 MB a second by the clock, until standard input ends
GROWING = """
import select, sys, time
begin, held = time.monotonic(), []
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.01)[0]:
    while len(held) * 100_000 < (time.monotonic() - begin) * 10e6:
        held.append(b"x" * 100_000)
"""
TRIES = 5  # on a machine so busy that the watch had gaps


class LeaksTest(CommandTest):
    def start(self, *arguments):
        return self.start_client(*map(str, arguments), program=CLIENT)

    def leaks(self, *arguments, check=0):
        return memoir("leaks", "--dir", self.dir, *arguments, check=check)

    def watch(self, *arguments, seconds):
        """The document of a watch that needs no more than these seconds."""
        time = f"{seconds}s"
        return json.loads(self.leaks("--json", "--for", time, "--needs", time, *arguments).stdout)

    @staticmethod
    def pinned(document, client):
        (row,) = [s for s in document["rows"] if s["pid"] == client.pid and s["space"] == "pinned"]
        return row

    def test_a_leak_is_told_from_what_is_steady_and_from_a_warm_up(self):
        leak, steady = self.start("leak", RATE), self.start("steady", RATE)
        for seconds in range(3, 3 + 2 * TRIES, 2):
            warm = self.start("warm", RATE, 400 * seconds)
            warm.stdin.write(b"\n")
            warm.stdin.flush()
            document = self.watch("--all", seconds=seconds)
            rows = [self.pinned(document, client) for client in (leak, steady, warm)]
            self.assertNotEqual(rows[1]["verdict"], "leak", rows[1])
            self.assertNotEqual(rows[2]["verdict"], "leak", rows[2])
            if [row["verdict"] for row in rows] == ["leak", "steady", "warming up"] and \
                    abs(rows[0]["growth"] / RATE - 1) < 0.2:
                break
        self.assertEqual([row["verdict"] for row in rows], ["leak", "steady", "warming up"], rows)
        row = rows[0]
        self.assertAlmostEqual(row["growth"] / RATE, 1, delta=0.2)
        self.assertGreaterEqual(row["confidence"], 0.8)
        self.assertEqual(row["freed_share"], 0)
        self.assertEqual(row["function"], "keep_block")
        self.assertEqual(row["blocks"] * 4096, row["bytes"])
        self.assertIn(row["limit_kind"], ("machine", "cgroup"))
        self.assertGreater(row["limit_in"], 0)
        self.assertEqual(len(row["trend"]), 24)
        self.assertLess(row["trend"][0], row["trend"][-1])
        self.assertEqual([int(block.split()[1]) for block in row["examples"]], [4096] * 3)
        self.assertGreater(rows[1]["freed_share"], 0.99)
        self.assertEqual(document["rows"][0]["watcher"], "memoir")
        self.assertGreaterEqual(document["rows"][0]["watched"], 3)
        self.assertEqual([r["verdict"] for r in document["rows"]].count("leak"), 1)
        self.assertEqual(document["rows"][0]["pid"], leak.pid)

    def test_suspects_are_printed_and_can_fail_a_script(self):
        leak, steady = self.start("leak", RATE), self.start("steady", RATE)
        short = ("--for", "2s", "--needs", "2s")
        for _ in range(TRIES):
            done = memoir("leaks", "--dir", self.dir, "--check", *short, leak.pid, steady.pid)
            if done.returncode == 1:
                break
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("keep_block", done.stdout)
        self.assertIn(f"leak_client (PID {leak.pid}), pinned", done.stdout)
        self.assertRegex(done.stdout, r"(?m)^1 leak, \d growing; ")
        short = ("--for", "200ms", "--needs", "200ms")  # whatever is found, it is too slow
        fast = self.leaks("--csv", "--min-rate", "10GB", "--check", *short, str(leak.pid)).stdout
        (header,) = csv.reader(io.StringIO(fast))
        self.assertEqual(header[:3], ["verdict", "confidence", "reason"])

    def test_a_watch_that_is_too_short_says_so(self):
        client = self.start("leak", RATE)
        document = json.loads(self.leaks("--json", "--all", "--for", "100ms", "leak_client").stdout)
        row = self.pinned(document, client)
        self.assertEqual(row["verdict"], "unknown yet")
        self.assertIsNone(row["confidence"])
        self.assertRegex(row["why"], r"^watched [\d.]+ m?s, needs 30\.0 s\.$")

    def test_of_a_process_without_a_book_the_resident_size_is_watched(self):
        grow = subprocess.Popen([sys.executable, "-c", GROWING], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(self.end_client, grow)
        self.assertEqual(grow.stdout.readline(), b"ready\n")
        for seconds in range(2, 2 + TRIES):
            (row,) = self.watch(grow.pid, seconds=seconds)["rows"]
            self.assertNotEqual(row["verdict"], "leak")
            if row["verdict"] == "growing":
                break
        self.assertEqual((row["verdict"], row["reason"], row["space"]), ("growing", "resident size", "resident"), row)
        self.assertAlmostEqual(row["growth"] / 10e6, 1, delta=0.3)
        self.assertIsNone(row["freed_share"])
        self.assertIsNone(row["blocks"])

    def test_what_is_not_there(self):
        self.assertIn("nothing to watch", self.leaks("--for", "10ms").stderr)
        self.assertIn("no process 999999999", self.leaks("--for", "10ms", "999999999", check=3).stderr)
        self.assertIn("invalid size", self.leaks("--min-rate", "much", check=2).stderr)
        self.leaks("--json", "--csv", check=2)
        self.assertIn("memoir leaks", memoir("query", "leaks", check=1).stderr)


if __name__ == "__main__":
    unittest.main()
