"""History: what memoird writes while processes come and go, what is left when it is killed, and what the command shows."""

import csv
import io
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

from daemon_fixture import BUILD, MEMOIRD, NOBODY, PATIENCE_S, DaemonTest, as_user

MEMOIR = BUILD / "src/cli/memoir"
FAST = ("--history-flush=100ms", "--refresh=100ms", "--socket=none", "--tt-socket=none", "--history-processes=0")
HOLDER = "import sys; x = bytearray(b'x') * (32 << 20); print('ready', flush=True); sys.stdin.read()"
ENVIRONMENT = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")} | {
    "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC", "TERM": "xterm"}


class HistoryTest(DaemonTest):
    def history(self, *arguments, status=0, environment=None):
        done = subprocess.run([str(MEMOIR), "history", "--state", str(self.state), *map(str, arguments)],
                              capture_output=True, env=ENVIRONMENT | (environment or {}), timeout=PATIENCE_S,
                              check=False)
        done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def series(self, *arguments):
        """What it knows, by what tells series apart; nothing while there is no history."""
        done = subprocess.run([str(MEMOIR), "history", "--state", str(self.state), "--since=5m", "--step=1s", "--json",
                               *map(str, arguments)], capture_output=True, timeout=PATIENCE_S, check=False)
        if done.returncode == 3:
            return {}
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        document = json.loads(done.stdout)
        self.assertEqual(document["schema"], "memoir.history/2")
        return {(s.get("pid"), s.get("device_name", "host"), s["name"].split(".")[-1]): s for s in document["series"]}

    def check_described(self, document):
        """The document is that of the API: all keys are described, and none that is required is missing."""
        api = json.loads(subprocess.run([str(MEMOIRD), "--print-api"], capture_output=True, check=True, timeout=PATIENCE_S).stdout)
        schema = api["components"]["schemas"]["History"]
        series = schema["properties"]["series"]["items"]
        for where, what in ((document, schema), *((s, series) for s in document["series"])):
            self.assertLessEqual(set(what["required"]), set(where))
            self.assertLessEqual(set(where), set(what["properties"]))
        self.assertEqual(document["schema"], schema["properties"]["schema"]["const"])
        for s in document["series"]:
            self.assertEqual((len(s["last"]), len(s["max"])), (len(document["t"]),) * 2)
        self.assertEqual([b - a for a, b in zip(document["t"], document["t"][1:])], [document["step"]] * (len(document["t"]) - 1))

    @staticmethod
    def latest(series):
        return [v for v in series["last"] if v is not None][-1]

    @staticmethod
    def largest(series):
        return max(v for v in series["max"] if v is not None)

    def values(self, *arguments, key):
        series = self.series(*arguments).get(key)
        return [v for v in series["last"] if v is not None] if series else []

    def wait_for_value(self, value, *arguments, key):
        self.wait_until(lambda: value in self.values(*arguments, key=key), f"{value} in {key}")


class Machine(HistoryTest):
    """Processes without a book, and the machine."""

    def holder(self):
        process = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def test_a_process_without_a_book_is_noted(self):
        self.daemon(*FAST, "--history-processes=65536", "--probe-share=1000")
        holder = self.holder()
        self.wait_until(lambda: self.values("--space=rss", holder.pid, key=(holder.pid, "host", "rss")), "it is noted")
        last = self.values(holder.pid, key=(holder.pid, "host", "rss"))[-1]
        self.assertGreater(last, 32 << 20)
        if os.access(f"/proc/{holder.pid}/smaps_rollup", os.R_OK):
            key = (holder.pid, "host", "pss")
            self.wait_until(lambda: self.values("--space=pss", holder.pid, key=key), "its share is noted")
            self.assertGreater(self.values("--space=pss", holder.pid, key=key)[-1], 32 << 20)
            self.assertNotIn((holder.pid, "host", "rss"), self.series("--space=pss", holder.pid))
        self.assertEqual({key[0] for key in self.series(holder.pid)}, {holder.pid})
        [name] = {row["program"] for row in self.series(holder.pid).values()}
        self.assertIn((holder.pid, "host", "rss"), self.series(name))
        self.assertEqual(self.series("no-such-program-here"), {})

    def test_the_daemon_that_runs_tells_where_its_files_are(self):
        daemon = self.daemon("--history-flush=100ms", "--refresh=100ms", "--tt-socket=none",
                             f"--socket={self.folder}/memoird.sock")
        environment = ENVIRONMENT | {"XDG_RUNTIME_DIR": str(self.folder), "HOME": str(self.folder / "nobody")}
        environment.pop("XDG_STATE_HOME", None)

        def ask(*words):
            return subprocess.run([str(MEMOIR), *words], capture_output=True, env=environment, timeout=PATIENCE_S, check=False)

        self.wait_until(lambda: ask("history", "--system", "--since=5m").returncode == 0, "history is found")
        client = self.client("heap=1000x1000", "ready", "wait")
        self.end_and_write(daemon, client)
        for words in (("ps", "--exited", "--json"), ("query", "exited", "--json", "--show", "pid")):
            with self.subTest(words[0]):
                done = ask(*words)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(str(client.pid), done.stdout.decode())

    def end_and_write(self, daemon, client):
        """Killed, and written of."""
        client.kill()
        self.gone(daemon, client.pid)
        self.wait_until(lambda: any(record["pid"] == client.pid for record in self.retired()), "it is written")

    def test_the_machine_is_noted_in_parts_that_add_up(self):
        self.daemon(*FAST)
        parts = ("anon", "shmem", "cache", "buffers", "slab_reclaimable", "slab_unreclaimable", "page_tables",
                 "kernel_stacks", "percpu", "hugetlb", "free", "unattributed")
        self.wait_until(lambda: (None, "host", "total") in self.series("--system"), "it is noted")
        series = self.series("--system")
        total = self.latest(series[None, "host", "total"])
        self.assertGreaterEqual(sum(self.latest(series[None, "host", part]) for part in parts), total)
        self.assertNotIn((None, "host", "total"), self.series())
        self.assertIn("whole machine", self.history("--system", "--pid=1", status=2).stderr)
        self.assertIn("is not a valid PID", self.history("4soon", status=2).stderr)
        self.assertIn("unexpected argument", self.history("soon", "--pid=1", status=2).stderr)
        self.assertIn("unattributed", self.history("--system").stdout)

    def test_it_is_a_table_that_takes_questions(self):
        self.daemon(*FAST)
        self.wait_until(lambda: (None, "host", "total") in self.series("--system"), "it is noted")
        asked = ("--where", "of=system", "--show", "series,measure", "--sort", "series", "--json")
        own = json.loads(self.history(*asked).stdout)
        query = json.loads(subprocess.run([str(MEMOIR), "query", "history", "--state", str(self.state), *asked],
                                          capture_output=True, env=ENVIRONMENT, timeout=PATIENCE_S, check=True).stdout)
        self.assertEqual(own["rows"], query["rows"])
        self.assertIn({"series": "total", "measure": "bytes"}, own["rows"])
        grouped = json.loads(self.history("--where", "of=system", "--by", "of", "--show", "count,max(points)",
                                          "--json", "--step", "1s", "--since", "1m").stdout)["rows"]
        self.assertEqual([row["of"] for row in grouped], ["system"])
        times = [time for time, _ in grouped[0]["max(points)"]]
        self.assertEqual(times, sorted(set(times)))
        self.assertIn("of,series,max", self.history("--by", "of,series", "--show", "max", "--csv").stdout)
        then = ("--at", "2s", "--where", "of=system and series=total", "--show", "series,last,steps", "--json")

        seen = []

        def known():
            done = subprocess.run([str(MEMOIR), "history", "--state", str(self.state), *then], capture_output=True,
                                  env=ENVIRONMENT, timeout=PATIENCE_S, check=False)
            seen[:] = json.loads(done.stdout)["rows"] if done.returncode == 0 else []
            return seen

        self.wait_until(known, "what it was two seconds ago")
        row = seen[0]
        self.assertEqual((row["series"], row["steps"]), ("total", 1))
        self.assertGreater(row["last"], 1 << 20)
        self.assertIn("takes the place of", self.history("--at", "1m", "--since", "1h", status=2).stderr)
        self.assertIn("no column 'foo'", self.history("--where", "foo=1", status=2).stderr)
        self.assertIn("no data", self.history("--where", "series=nothing", status=3).stderr)

    def table(self, *arguments, status=0):
        """Rows of a command that shows a table, by JSON; what it says on stderr where it fails."""
        command, *rest = map(str, arguments)
        done = subprocess.run([str(MEMOIR), command, *rest, "--state", str(self.state), *(["--json"] if status == 0 else [])], capture_output=True,
                              env=ENVIRONMENT, timeout=PATIENCE_S, check=False)
        if status:
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            return done.stderr.decode()
        return json.loads(done.stdout)["rows"] if done.returncode == 0 else []

    def test_tables_have_a_past(self):
        holder = self.holder()
        self.daemon("--history-flush=100ms", "--refresh=100ms", "--socket=none", "--tt-socket=none")
        mine = ("--where", f"pid={holder.pid}")
        past = ("query", "host", "--since", "1m", "--step", "2s", *mine, "--show", "time,rss,program,user,nodes")
        self.wait_until(lambda: len(self.table(*past)) >= 3, "steps in which it was noted")
        rows = self.table(*past)
        times = [row["time"] for row in rows]
        self.assertEqual(times, sorted(set(times)))
        self.assertTrue(all(row["rss"] > 32 << 20 and row["nodes"] == 1 for row in rows), rows)
        self.assertTrue(all(int(t[17:19]) % 2 == 0 and t.endswith(".000Z") for t in times), times)  # aligned to 1970
        self.assertTrue(all(set(row) == {"time", "program", "rss"} for row in self.table(
            "query", "host", "--since", "1m", "--by", "program", "--show", "rss")), "groups are by time, too")
        holder.stdin.close()
        holder.wait()
        self.wait_until(lambda: self.table("query", "host", *mine) == [], "it has ended")
        self.assertEqual(self.table("top", "--at", "1m", *mine), [])  # long before it began
        self.assertIn("no data", self.table("top", "--at", "1m", *mine, status=3))
        ended = self.table("top", "--since", "1m", *mine, "--show", "time,rss")
        self.assertGreaterEqual(len(ended), len(rows) // 2)
        machine = self.table("query", "system", "--since", "1m", "--step", "1s", "--show", "time,total,used")
        self.assertTrue(machine and all(row["total"] > row["used"] > 0 for row in machine))
        self.assertTrue(self.table("query", "system", "--at", "0s", "--show", "total"))
        for command in (["query", "buffers"], ["query", "sites"]):
            self.assertIn("is not recorded; that of host, processes, system, devices", self.table(*command, "--at", "1m", status=2))
        self.assertIn("invalid time 'never' for --at", self.table("ps", "--at", "never", status=2))
        self.assertIn("a longer --step", self.table("query", "host", "--since", "9000d", "--step", "1s", status=1))
        self.assertIn("--at goes with neither --since", self.table("ps", "--at", "1m", "--since", "2m", status=2))
        self.assertIn("has no column 'threads'", self.table("query", "host", "--at", "1m", "--show", "threads", status=2))

    def test_memory_pressure_is_noted_where_the_kernel_measures_it(self):
        self.daemon(*FAST)
        self.wait_until(lambda: (None, "host", "total") in self.series("--system"), "it is noted")
        try:
            with open("/proc/pressure/memory", encoding="ascii") as file:
                measured = bool(file.read())
        except OSError:
            measured = False
        series = self.series("--system")
        for name in ("pressure", "stall"):
            self.assertEqual((None, "host", name) in series, measured)
            if measured:
                self.assertEqual(series[None, "host", name]["kind"], "percent")
                self.assertLessEqual(self.largest(series[None, "host", name]), 100)
        if measured:
            self.assertRegex(self.history("--system").stdout, r"pressure .* \d+\.\d\d %")


class Writing(HistoryTest):
    def test_processes_come_and_go(self):
        daemon = self.daemon(*FAST)
        first = self.client("device=card", "dram=10x1000", "heap=2x500", "ready", "wait")
        self.wait_for_value(10000, key=(None, "card", "dram"))
        second = self.client("device=card", "dram=5x1000", "ready", "wait")
        self.wait_for_value(15000, key=(None, "card", "dram"))
        first.kill()
        self.gone(daemon, first.pid)
        self.wait_until(lambda: self.values(key=(None, "card", "dram"))[-1] == 5000, "the first is gone")
        second.kill()
        self.gone(daemon, second.pid)
        self.wait_until(lambda: self.values(key=(None, "card", "dram"))[-1] == 0, "nothing is left")
        self.assertEqual(self.values(key=(None, "host", "heap"))[-1], 0)
        # Each process keeps its own figures, and the largest value of the device stays.
        series = self.series("--by=process")
        self.assertEqual(self.largest(series[first.pid, "card", "dram"]), 10000)
        self.assertEqual(self.latest(series[first.pid, "host", "heap"]), 1000)
        self.assertGreater(self.latest(series[first.pid, "host", "rss"]), 100000)
        self.assertEqual(self.latest(series[second.pid, "card", "dram"]), 5000)
        self.assertEqual(self.largest(self.series()[None, "card", "dram"]), 15000)
        blocks = self.series("--blocks", "--by=process")
        self.assertEqual(self.latest(blocks[first.pid, "host", "all"]), 12)

    def test_killed_daemon_loses_no_more_than_a_flush(self):
        client = self.client("device=card", "dram=10x1000", "ready", "wait")
        for _ in range(4):
            daemon = self.daemon(*FAST)
            key = (client.pid, "card", "dram")
            before = len(self.values("--by=process", key=key))
            self.wait_until(lambda: len(self.values("--by=process", key=key)) >= before + 1, "more values")
            known = self.values("--by=process", key=key)
            daemon.kill(signal.SIGKILL)
            daemon.wait()
            # It opens clean, without a daemon, and the next one goes on with the same series.
            self.assertEqual(self.values("--by=process", key=key)[:len(known)], known)
            with sqlite3.connect(self.state / "history.db") as database:
                self.assertEqual(database.execute("PRAGMA integrity_check").fetchone(), ("ok",))
                self.assertEqual(database.execute("SELECT count(*) FROM process").fetchone(), (1,))
        self.assertFalse(list(self.state.glob("*.bad-*")))

    def test_clean_end_writes_everything(self):
        client = self.client("device=card", "dram=10x1000", "ready", "wait")
        daemon = self.daemon("--history-flush=60s", "--refresh=100ms", "--socket=none", "--tt-socket=none")
        time.sleep(1.2)  # a second at least has passed
        daemon.kill(signal.SIGTERM)
        self.assertEqual(daemon.wait(), 0)
        self.assertIn(10000, self.values("--by=process", key=(client.pid, "card", "dram")))

    def test_no_history_leaves_no_file(self):
        daemon = self.daemon("--history=no", "--socket=none", "--tt-socket=none")
        daemon.kill(signal.SIGTERM)
        daemon.wait()
        self.assertFalse((self.state / "history.db").exists())
        self.assertIn("memoird --daemon", self.history(status=3).stderr)


class Faults(HistoryTest):
    def test_damaged_file_is_kept_aside(self):
        self.state.mkdir(mode=0o700)
        (self.state / "history.db").write_bytes(b"no database " * 1000)
        self.assertIn("damaged", self.history(status=1).stderr)
        daemon = self.daemon(*FAST)
        daemon.err.wait(r"history\.db' is damaged .* kept as '.*history\.db\.bad-")
        self.client("device=card", "dram=10x1000", "ready", "wait")
        self.wait_for_value(10000, key=(None, "card", "dram"))
        aside = list(self.state.glob("history.db.bad-*"))
        self.assertEqual([path.read_bytes()[:12] for path in aside], [b"no database "])

    def test_file_damaged_while_it_runs_is_kept_aside(self):
        daemon = self.daemon(*FAST)
        self.client("device=card", "dram=10x1000", "ready", "wait")
        self.wait_for_value(10000, key=(None, "card", "dram"))
        with sqlite3.connect(self.state / "history.db") as database:
            database.execute("DROP TABLE recent")
        database.close()
        daemon.err.wait("is damaged .* kept as")
        self.wait_for_value(10000, key=(None, "card", "dram"))
        self.assertIsNone(daemon.popen.poll())

    def test_one_user_cannot_fill_it(self):
        if os.geteuid() != 0:
            self.skipTest("needs another user")
        daemon = self.daemon(*FAST, "--history-values-per-user-max=64")
        many = [self.client("device=card", "dram=1x1000", "ready", "wait", prefix=as_user(NOBODY))
                for _ in range(25)]
        own = self.client("device=card", "dram=1x5000", "ready", "wait")
        daemon.err.wait(r"history left out \d+ values")
        self.wait_for_value(5000, "--by=process", key=(own.pid, "card", "dram"))
        self.wait_for_value(30000, key=(None, "card", "dram"))  # sums have everybody
        known = {pid for pid, _, _ in self.series("--by=process", "--user", NOBODY)}
        self.assertIn(len(known & {client.pid for client in many}), range(64 // 6, 64 // 3 + 1))

    def test_full_disk_stops_history_and_nothing_else(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to mount a small disk")
        disk = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-disk-"))
        self.addCleanup(disk.rmdir)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2M", "none", str(disk)], check=False).returncode != 0:
            self.skipTest("cannot mount")
        self.addCleanup(subprocess.run, ["umount", "-l", str(disk)], check=True)
        self.state = disk / "state"
        daemon = self.daemon(*FAST)
        client = self.client("device=card", "dram=10x1000", "ready", "wait")
        self.wait_for_value(10000, key=(None, "card", "dram"))
        filler = disk / "filler"
        with open(filler, "wb") as file:
            try:
                while True:
                    file.write(bytes(65536))
                    file.flush()
            except OSError:
                pass
        # Whatever was preallocated is used up first.
        daemon.err.wait("history stops: cannot write '.*': no room left")
        client.kill()
        self.gone(daemon, client.pid)  # the rest goes on
        filler.unlink()
        daemon.err.wait("history goes on")
        other = self.client("device=card", "dram=7x1000", "ready", "wait")
        self.wait_for_value(7000, "--by=process", key=(other.pid, "card", "dram"))
        self.assertEqual(len([line for line in daemon.err.lines if "history stops" in line]), 1)


class Showing(HistoryTest):
    def setUp(self):
        super().setUp()
        self.running = self.daemon(*FAST)
        self.reporter = self.client("device=card", "dram=10x1000", "heap=2x500", "ready", "wait")
        self.wait_for_value(10000, key=(None, "card", "dram"))

    def test_text_has_a_chart_and_figures(self):
        lines = self.history("--since=1m").stdout.splitlines()
        self.assertRegex(lines[0], r"^\d\d:\d\d:\d\d to \d\d:\d\d:\d\d, a character is \d+s$")
        self.assertEqual(lines[2].split(), ["DEVICE", "SPACE", "CHART", "MIN", "MAX", "LAST"])
        card = next(line for line in lines if "dram" in line)
        self.assertIn("0 card", card)
        self.assertIn("█", card)
        self.assertIn("10.0 kB", card)
        self.assertTrue(any(line.startswith("host") and "heap" in line for line in lines))

    def test_ascii_and_colour_follow_the_terminal(self):
        plain = self.history("--since=1m", environment={"LANG": "C", "LC_ALL": "C"}).stdout
        self.assertTrue(plain.isascii())
        self.assertIn("#", plain)
        self.assertNotIn("\033[", plain)
        self.assertIn("\033[32m", self.history("--since=1m", "--color=always").stdout)

    def test_groups_and_filters(self):
        by_user = self.history("--by=user", "--space=heap", "--no-header").stdout.split()
        self.assertIn("1.0", by_user)
        self.assertEqual(self.history("--by=program", "--space=heap", "--no-header").stdout.split()[:2], ["client", "1"])
        key = (self.reporter.pid, "card", "dram")
        for flags in (["--pid", self.reporter.pid], ["--program=cli*"], ["--user", os.geteuid()]):
            self.assertIn(key, self.series(*flags))
        self.assertEqual(list(self.series("--device=0", "--space=dram")), [(None, "card", "dram")])
        self.assertNotIn((None, "card", "dram"), self.series("--device=host"))

    def test_the_document_is_that_of_the_api(self):
        for flags in ([], ["--by=user"], ["--by=program"], ["--system"], ["--device=card"], ["--blocks"]):
            with self.subTest(flags):
                document = json.loads(self.history("--since=5m", "--json", *flags).stdout)
                self.assertTrue(document["series"])
                self.check_described(document)

    def test_csv_has_a_row_a_point(self):
        rows = list(csv.DictReader(io.StringIO(self.history("--csv", "--step=1s", "--device=card").stdout)))
        self.assertEqual({(row["ordinal"], row["device_name"]) for row in rows}, {("0", "card")})
        self.assertIn(("10000", "10000"), {(row["last"], row["max"]) for row in rows})

    def test_a_kind_of_memory_that_does_not_exist_is_a_mistake(self):
        self.assertIn("did you mean 'heap'?", self.history("--space=haep", status=2).stderr)

    def test_what_is_not_there_is_told(self):
        self.assertIn("no data for this selection", self.history("--pid=1", status=3).stderr)
        self.assertIn("the history begins at", self.history("--since=2d", "--until=1d", status=3).stderr)
        document = json.loads(self.history("--pid=1", "--json", status=3).stdout)
        self.assertEqual(document["series"], [])

    def test_mistakes_are_told(self):
        for flags, word in ((["--since=soon"], "invalid time"), (["--since=1m", "--until=2m"], "later"),
                            (["--space=attic"], "attic"), (["--json", "--csv"], "exclude"), (["--step=1.5"], "whole"),
                            (["--by=colour"], "colour")):
            self.assertIn(word, self.history(*flags, status=2).stderr)
        self.assertIn("longer --step", self.history("--since=9000d", "--step=1s", status=1).stderr)

    def test_it_reads_after_the_daemon_ended(self):
        self.running.kill(signal.SIGTERM)
        self.running.wait()
        self.assertIn(10000, self.values(key=(None, "card", "dram")))
        self.assertEqual((self.state / "history.db").stat().st_mode & 0o777, 0o600)


if __name__ == "__main__":
    import unittest
    unittest.main()
