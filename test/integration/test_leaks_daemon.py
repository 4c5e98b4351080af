"""memoird's watch over call sites, by its socket and by memoir leaks."""

import json
import os
import pwd
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from api_support import UnixConnection
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
                                     "show": "pid,user,verdict,confidence,growth,bytes,freed_share,site,watched,why"}})
        return {row["pid"]: row for row in answer["result"]["rows"]}

    def wait_row(self, line, pid, good):
        """The row of a process once it is as it should be: a busy machine may make gaps in the watch."""
        last = {}

        def there():
            last.update(row=self.rows(line).get(pid))
            return last["row"] and good(last["row"])

        try:
            self.wait_until(there, "")
        except AssertionError:
            raise AssertionError(f"never as it should be: {last}") from None
        return last["row"]

    @staticmethod
    def is_rate(per_second):
        return abs(per_second / RATE - 1) < 0.2

    def memoir(self, *arguments, prefix=()):
        done = subprocess.run([*prefix, MEMOIR, "leaks", "--dir", self.books, "--socket", self.path, *map(str, arguments)],
                              capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.stderr, "")
        return done

    def test_verdicts_come_at_once_and_after_a_restart(self):
        daemon = self.native(*FAST)
        leak, steady = self.leak_client("leak", RATE), self.leak_client("steady", RATE)
        line = self.connect()
        row = self.wait_row(line, leak.pid, lambda row: row["verdict"] == "leak" and self.is_rate(row["growth"]))
        self.assertEqual(row["freed_share"], 0)
        self.assertRegex(row["site"], r"^leak_client\+0x")
        self.assertRegex(row["why"], "^rose by .* without slowing; nothing was freed")
        self.assertEqual(self.wait_row(line, steady.pid, lambda row: row["verdict"] == "steady")["growth"], 0)
        self.wait_until(lambda: set(self.rows(line, where="pid>0")) == {leak.pid},
                        "only suspects are told, unless all are asked for")

        self.wait_until(lambda: self.memoir("--check", "leak_client").returncode == 1, "memoir leaks sees it")
        document = json.loads(self.memoir("--json", leak.pid).stdout)
        self.assertEqual(document["rows"][0]["watcher"], "memoird")
        (suspect,) = document["rows"]
        self.assertEqual((suspect["function"], suspect["pid"]), ("keep_block", leak.pid))
        self.assertEqual((suspect["user"], row["user"]), (pwd.getpwuid(os.geteuid()).pw_name,) * 2)
        self.assertEqual(len(suspect["examples"]), 3)
        # The command is a query: what stands still is the same, byte for byte, but for the time.
        words = ("--where", f"pid={leak.pid} and space=pinned", "--show", "pid,program,user,space,verdict,key,site,function,line", "--json")
        question = subprocess.run([MEMOIR, "query", "leaks", "--dir", self.books, "--socket", self.path, *words],
                                  capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
        same = [re.sub('"time":"[^"]*"', "", text) for text in (self.memoir(*words).stdout, question)]
        self.assertEqual(*same)
        self.assertIn("keep_block", question)

        daemon.kill()
        daemon.wait()
        self.native(*FAST)
        line = self.connect()
        row = self.wait_row(line, leak.pid, lambda row: row["verdict"] == "leak")
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
        self.wait_row(line, mine.pid, lambda row: row["verdict"] == "leak")
        self.wait_row(line, his.pid, lambda row: row["verdict"] == "leak")
        seen = json.loads(self.memoir("--json", "--all", prefix=as_user(NOBODY)).stdout)
        self.assertEqual({s["pid"] for s in seen["rows"]}, {his.pid})
        self.assertEqual(seen["rows"][0]["watcher"], "memoird")

    def test_it_can_be_turned_off(self):
        self.native("--leaks=no")
        self.leak_client("leak", RATE)
        line = self.connect()
        # Its book comes with its first report, and a watch of a tenth of a second may end before that on a busy machine.
        self.wait_until(lambda: line.ask({"query": {"table": "accounts", "where": "space=pinned"}})["result"]["rows"], "its book")
        answer = line.ask({"query": {"table": "leaks", "where": "level>=0"}})
        self.assertEqual(answer["result"]["rows"], [])
        document = json.loads(self.memoir("--json", "--all", "--needs", "100ms").stdout)  # so it watches by itself
        self.assertEqual(document["rows"][0]["watcher"], "memoir")


# Programs of which no book tells. Each takes 3 MB a second in its own way.
UNTRACKED = {
    "arenas": "kept.append([{} for _ in range(800)])",
    "malloc": "kept.append([bytes(1000) for _ in range(60)])",
    "mapped": "m = mmap.mmap(-1, 1 << 16, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); m.write(bytes(1 << 16)); kept.append(m)",
    "shared": "m = mmap.mmap(-1, 1 << 16); m.write(bytes(1 << 16)); kept.append(m)",
    "file": "f.write(bytes(1 << 16)); f.flush(); kept.append(mmap.mmap(f.fileno(), 1 << 16, offset=i << 16)); kept[-1].read()",
    "steady": "m = mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); m.write(bytes(1 << 20)); m.close()",
}
LOOP = """
import mmap, sys, tempfile, time
kept, f = [], tempfile.TemporaryFile(dir=sys.argv[1])
for i in range(1 << 30):
    {}
    time.sleep(0.02)
"""


class UntrackedTest(NativeTest):
    """Growth of processes that keep no book, by the same table."""

    def rows(self, line):
        return {row["pid"]: row for row in line.ask({"query": {
            "table": "leaks", "where": "space=resident",
            "show": "pid,verdict,reason,growth,bytes,site,why,watched,limit_in"}})["result"]["rows"]}

    def start(self, name, prefix=()):
        process = subprocess.Popen([*prefix, sys.executable, "-c", LOOP.format(UNTRACKED[name]), self.folder])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process.pid

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="memoir-test-untracked-", dir="/var/tmp")  # a file system with files
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_what_grows_is_named_and_what_the_kernel_can_take_back_is_not_told(self):
        self.native("--leaks-untracked", "4s")
        line = self.connect()
        pids = {name: self.start(name) for name in UNTRACKED}
        grows = {pids[name] for name in ("arenas", "malloc", "mapped", "shared")}
        self.wait_until(lambda: grows <= set(self.rows(line)), "all that grow are told")
        rows = self.rows(line)
        self.assertNotIn(pids["steady"], rows)
        self.assertNotIn(pids["file"], rows)
        said = {name: (rows[pids[name]]["verdict"], rows[pids[name]]["reason"]) for name in pids if pids[name] in rows}
        self.assertEqual(said, {"arenas": ("growing", "outside malloc"), "malloc": ("growing", "resident size"),
                                "mapped": ("growing", "outside malloc"), "shared": ("growing", "outside malloc")})
        sites = {name: rows[pids[name]]["site"] for name in said}
        self.assertEqual(sites["malloc"], "malloc heap")
        self.assertIn("CPython arenas", sites["arenas"])
        self.assertIn("anonymous memory", sites["mapped"])
        self.assertIn("shared memory", sites["shared"])
        self.assertRegex(rows[pids["arenas"]]["why"], r"RSS grows by .*; growing part: CPython arenas .*memoir run")
        self.assertRegex(rows[pids["malloc"]]["why"], r"RSS grows by .*; growing part: malloc heap; attach to it")
        told = subprocess.run([MEMOIR, "leaks", "--dir", self.books, "--socket", self.path, str(pids["malloc"])],
                              capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        self.assertEqual(told.stderr, "")
        self.assertIn("malloc heap", told.stdout)
        self.assertIn("0 leaks, 1 growing", told.stdout)

    @unittest.skipIf(os.geteuid() != 0, "only root can be somebody else")
    def test_growth_of_others_is_not_told(self):
        self.native("--leaks-untracked", "4s", "--socket-group", "all")
        os.chmod(self.folder, 0o777)
        mine, his = self.start("malloc"), self.start("malloc", prefix=as_user(NOBODY))
        line = self.connect()
        self.wait_until(lambda: {mine, his} <= set(self.rows(line)), "root sees both")
        told = subprocess.run([*as_user(NOBODY), MEMOIR, "leaks", "--json", "--dir", self.books, "--socket", self.path],
                              capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        self.assertEqual({row["pid"] for row in json.loads(told.stdout)["rows"]} & {mine, his}, {his})

    @unittest.skipIf(os.geteuid() != 0, "only root can be somebody else")
    def test_what_a_set_uid_program_is_made_of_is_not_told_to_who_started_it(self):
        self.native("--leaks-untracked", "4s", "--socket-group", "all")
        raised = self.start("malloc", prefix=["setpriv", f"--ruid={NOBODY}"])  # as a set-uid program of root's that nobody started
        os.chmod(self.folder, 0o777)
        plain = self.start("malloc", prefix=as_user(NOBODY))
        line = self.connect()
        self.wait_until(lambda: {raised, plain} <= set(self.rows(line)), "both grow")
        self.assertEqual({pid: row["site"] for pid, row in self.rows(line).items() if pid in (raised, plain)},
                         {raised: None, plain: "malloc heap"})

    @unittest.skipIf(os.geteuid() != 0, "only root can be somebody else")
    def test_one_user_leaves_places_to_others(self):
        http = self.path + ".http"
        daemon = self.native("--leaks-untracked", "4s", "--http", "none", "--http-socket", http)
        os.chmod(self.folder, 0o777)
        slow = LOOP.replace("0.02", "0.1")  # many of them take little together
        code = "import os\nfor _ in range(59):\n    if os.fork() == 0: break\n" + slow.format(UNTRACKED["malloc"])
        many = subprocess.Popen([*as_user(NOBODY), sys.executable, "-c", code, self.folder], process_group=0)
        self.addCleanup(many.wait)
        self.addCleanup(os.killpg, many.pid, signal.SIGKILL)
        line = self.connect()

        def left_out():
            connection = UnixConnection(http)
            try:
                connection.request("GET", "/api/v1/self")
                return json.loads(connection.getresponse().read())["leaks"]["untracked_left_out"]
            finally:
                connection.close()

        self.wait_until(lambda: left_out() >= 60 - 32, "nobody's processes take the places")
        mine = self.start("malloc")
        self.wait_until(lambda: mine in self.rows(line), "root's process is watched all the same")
        before = left_out()
        self.let_look(daemon, 3)
        self.assertLess(left_out() - before, 60 - 32)  # each of them was counted once: what comes is of others

    def test_it_can_be_turned_off(self):
        daemon = self.native("--leaks-untracked", "0")
        pid = self.start("malloc")
        line = self.connect()
        self.let_look(daemon, 6)
        self.assertNotIn(pid, self.rows(line))


if __name__ == "__main__":
    unittest.main()
