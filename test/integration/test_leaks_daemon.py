"""memoird's watch over call sites, by its socket and by memoir leaks."""

import json
import os
import subprocess
import unittest

from daemon_fixture import BUILD, NOBODY, PATIENCE_S, as_user
from native_fixture import NativeTest

CLIENT = BUILD / "test/integration/leak_client"
MEMOIR = BUILD / "src/cli/memoir"
RATE = 20_000_000  # bytes a second
FAST = ("--leaks-interval", "50ms")  # a verdict after two seconds


class LeaksTest(NativeTest):
    def leak_client(self, *arguments, **options):
        client = self.client(*map(str, arguments), program=CLIENT, ready=False, **options)
        client.out.wait("^ready$")
        return client

    def rows(self, line, where="level>=0"):
        """{pid: row} of the memory that leak_client is about."""
        answer = line.ask({"query": {"table": "leaks", "where": f"space=pinned, {where}",
                                     "show": "pid,verdict,confidence,rate,bytes,freed,site,watched,why"}})
        return {row["pid"]: row for row in answer["result"]["rows"]}

    def wait_verdict(self, line, pid, verdict):
        last = {}

        def there():
            last.update(row=self.rows(line).get(pid))
            return last["row"] and last["row"]["verdict"] == verdict

        try:
            self.wait_until(there, "")
        except AssertionError:
            raise AssertionError(f"never {verdict}: {last}") from None
        return last["row"]

    def memoir(self, *arguments, prefix=()):
        done = subprocess.run([*prefix, MEMOIR, "leaks", "--dir", self.books, "--socket", self.path, *map(str, arguments)],
                              capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.stderr, "")
        return done

    def test_verdicts_come_at_once_and_after_a_restart(self):
        daemon = self.native(*FAST)
        leak, steady = self.leak_client("leak", RATE), self.leak_client("steady", RATE)
        line = self.connect()
        row = self.wait_verdict(line, leak.pid, "leak")
        self.assertAlmostEqual(row["rate"] / (RATE * 60), 1, delta=0.2)
        self.assertEqual(row["freed"], 0)
        self.assertRegex(row["site"], r"^leak_client\+0x")
        self.assertRegex(row["why"], "^rose by .* without slowing; nothing was freed")
        self.assertEqual(self.wait_verdict(line, steady.pid, "steady")["rate"], 0)
        self.assertNotIn(steady.pid, self.rows(line, where="pid>0"))  # only suspects, unless all are asked for

        document = json.loads(self.memoir("--json", "--check", leak.pid).stdout)
        self.assertEqual(document["watched_by"], "memoird")
        (suspect,) = document["suspects"]
        self.assertEqual((suspect["verdict"], suspect["function"], suspect["pid"]), ("leak", "keep_block", leak.pid))
        self.assertEqual(len(suspect["sample_blocks"]), 3)
        self.assertEqual(self.memoir("--check", "leak_client").returncode, 1)

        daemon.kill()
        daemon.wait()
        self.native(*FAST)
        line = self.connect()
        row = self.wait_verdict(line, leak.pid, "leak")
        self.assertGreater(row["bytes"], suspect["bytes"])  # the counters went on
        leak.kill()
        leak.wait()
        self.wait_until(lambda: leak.pid not in self.rows(line), "the dead leave the table")

    @unittest.skipIf(os.geteuid() != 0, "only root can be somebody else")
    def test_sites_of_others_are_not_told(self):
        self.native("--socket-group", "all", *FAST)
        mine = self.leak_client("leak", RATE)
        his = self.leak_client("leak", RATE, prefix=as_user(NOBODY))
        line = self.connect()
        self.wait_verdict(line, mine.pid, "leak")
        self.wait_verdict(line, his.pid, "leak")
        seen = json.loads(self.memoir("--json", prefix=as_user(NOBODY)).stdout)
        self.assertEqual({s["pid"] for s in seen["suspects"]}, {his.pid})
        self.assertEqual(seen["watched_by"], "memoird")

    def test_it_can_be_turned_off(self):
        self.native("--leaks=no")
        self.leak_client("leak", RATE)
        answer = self.connect().ask({"query": {"table": "leaks", "where": "level>=0"}})
        self.assertEqual(answer["result"]["rows"], [])
        document = json.loads(self.memoir("--json", "--needs", "100ms").stdout)  # so it watches by itself
        self.assertEqual(document["watched_by"], "memoir")


if __name__ == "__main__":
    unittest.main()
