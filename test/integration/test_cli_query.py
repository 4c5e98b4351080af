"""memoir query: tables, groups, filters, formats and mistakes, without a daemon."""

import csv
import io
import json
import os
import pty
import select
import subprocess
import unittest

from cli_support import ENVIRONMENT, MEMOIR, CommandTest, memoir

# What one cli_client holds.
DRAM = 6_000_000
DEVICE = DRAM + 2048 + 512
HEAP = 300_000


class Query(CommandTest):
    def query(self, *arguments, check=0):
        """The rows of `memoir query --json`."""
        done = memoir("query", "--json", "--dir", self.dir, *arguments, check=check)
        return json.loads(done.stdout)["rows"]

    def test_processes_show_what_they_hold(self):
        client = self.start_client()
        (row,) = self.query("--show", "pid,program,device,device.0.dram,device.kernel,heap,rss,state")
        self.assertGreater(row.pop("rss"), 0)
        self.assertEqual(
            row,
            {
                "pid": client.pid,
                "program": "cli_client",
                "device": DEVICE,
                "device.0.dram": DRAM,
                "device.kernel": 512,
                "heap": HEAP,
                "state": "running",
            },
        )

    def test_groups_add_up(self):
        for _ in range(3):
            self.start_client()
        rows = self.query("--by", "program,user", "--show", "count,device,max(heap),avg(device)")
        self.assertEqual(len(rows), 1)
        self.assertEqual(rows[0]["count"], 3)
        self.assertEqual(rows[0]["device"], 3 * DEVICE)
        self.assertEqual(rows[0]["max(heap)"], HEAP)
        self.assertEqual(rows[0]["avg(device)"], DEVICE)
        self.assertNotIn("at_least", rows[0])

    def test_filters_and_their_units(self):
        clients = [self.start_client() for _ in range(2)]
        self.assertEqual(len(self.query("--where", "device>5MB and device<=6.1MB")), 2)
        (row,) = self.query("--where", f"program~CLI* , pid={clients[1].pid}", "--show", "pid")
        self.assertEqual(row, {"pid": clients[1].pid})
        self.assertEqual(self.query("--where", "age>1h", check=3), [])

    def test_the_gone_hold_nothing_unless_asked_for(self):
        living = self.start_client()
        dead = self.start_client()
        dead.kill()
        dead.wait()
        for table in ("processes", "accounts", "buffers", "sites"):
            with self.subTest(table):
                pids = {row["pid"] for row in self.query(table, "--show", "pid,state")}
                self.assertEqual(pids, {living.pid})
                pids = {row["pid"] for row in self.query(table, "--where", "state=exited")}
                self.assertEqual(pids, {dead.pid})
        self.assertEqual(self.query("--show", "count,device"), [{"count": 1, "device": DEVICE}])
        rows = self.query("--by", "state", "--show", "count", "--sort", "state")
        self.assertEqual([row["state"] for row in rows], ["exited", "running"])

    def test_nothing_that_matches_ends_with_3(self):
        done = memoir("query", "--dir", self.dir, "--where", "pid>0", check=3)
        self.assertEqual(done.stdout, "")
        self.assertIn("nothing in the table processes matches", done.stderr)

    def test_an_empty_machine_is_no_failure(self):
        done = memoir("query", "--dir", self.dir, check=0)
        self.assertEqual(done.stdout, "")
        self.assertIn(f"for the table processes yet. Try: memoir demo --dir {self.dir}", done.stderr)
        self.assertEqual(self.query("devices"), [])

    def test_devices_tell_shares(self):
        self.start_client()
        self.start_client()
        (row,) = self.query("devices", "--where", "space=dram and used>0")
        self.assertEqual(row["device"], "0 Test device")
        self.assertEqual(row["used"], 2 * DRAM)
        self.assertEqual(row["capacity"], 1_000_000_000)
        self.assertEqual(row["free"], 1_000_000_000 - 2 * DRAM)
        self.assertEqual(row["percent"], 1.2)
        self.assertEqual(self.query("devices", "--where", "percent>=90%", check=3), [])

    def test_accounts_of_each_space(self):
        self.start_client()
        rows = self.query("accounts", "--by", "device,space", "--show", "bytes,blocks")
        held = {(row["device"], row["space"]): (row["bytes"], row["blocks"]) for row in rows}
        self.assertEqual(held["0 Test device", "dram"], (DRAM, 6))
        self.assertEqual(held["host", "heap"], (HEAP, 1))

    def test_buffers_have_tags_sites_and_ages(self):
        client = self.start_client()
        rows = self.query("buffers", "--where", f"pid={client.pid} and space=dram")
        self.assertEqual(len(rows), 6)
        self.assertEqual({row["tag"] for row in rows}, {"weights"})
        self.assertEqual({row["bytes"] for row in rows}, {1_000_000})
        self.assertTrue(all("cli_client" in row["site"] for row in rows), rows)
        self.assertTrue(all(0 <= row["age"] < 60 for row in rows), rows)
        (group,) = self.query("buffers", "--by", "tag", "--where", "tag!=none", "--show", "count,bytes")
        self.assertEqual(group, {"tag": "weights", "count": 6, "bytes": DRAM})

    def test_sites_add_up_to_the_account(self):
        self.start_client()
        # A compiler may unroll the loop, which makes several sites of one line.
        (row,) = self.query("sites", "--by", "space", "--where", "space=dram",
                            "--show", "bytes,allocated,freed,blocks")  # fmt: skip
        expected = {"bytes": DRAM, "allocated": 10_000_000, "freed": 4_000_000, "blocks": 6}
        self.assertEqual(row, {"space": "dram"} | expected)

    def test_the_dead_come_from_the_daemons_list(self):
        line = {
            "pid": 77, "uid": os.getuid(), "name": "train.py", "cause": "killed by SIGKILL",
            "signal": 9, "start": 1000.0, "end": 1060.5, "figures_complete": True,
            "accounts": [{"space": "dram", "device": 0, "live_bytes": 500, "live_blocks": 2}],
        }  # fmt: skip
        (self.dir / "retired.jsonl").write_text(json.dumps(line) + "\n")
        (row,) = self.query("exited", "--state", self.dir, "--where", "signal=9")
        self.assertEqual(row["program"], "train.py")
        self.assertEqual(row["device"], 500)
        self.assertEqual(row["lived"], 60.5)
        self.assertEqual(row["ended"], "1970-01-01T00:17:40.500Z")
        done = memoir("query", "exited", "--state", self.dir / "none", check=3)
        self.assertIn("there is no list of processes that ended", done.stderr)

    def test_order_and_limit(self):
        clients = sorted(self.start_client().pid for _ in range(3))
        rows = self.query("--show", "pid", "--sort", "+pid")
        self.assertEqual([row["pid"] for row in rows], clients)
        rows = self.query("--show", "pid", "--sort", "-pid", "--limit", 2)
        self.assertEqual([row["pid"] for row in rows], clients[:0:-1])
        done = memoir("query", "--json", "--dir", self.dir, "--limit", 1, check=0)
        self.assertEqual(json.loads(done.stdout)["matched"], 3)

    def test_text_has_units_and_names(self):
        self.start_client()
        show = ["--show", "program,device.dram", "--dir", self.dir]
        self.assertEqual(
            memoir("query", *show, check=0).stdout, "PROGRAM     DEVICE.DRAM\ncli_client       6.0 MB\n"
        )
        self.assertIn("5.7 MiB", memoir("query", *show, "--units", "binary", check=0).stdout)
        self.assertIn(" 6000000\n", memoir("query", *show, "--units", "bytes", check=0).stdout)
        self.assertEqual(
            memoir("query", *show, "--no-header", check=0).stdout, "cli_client  6.0 MB\n"
        )

    def test_csv_is_exact(self):
        self.start_client()
        done = memoir("query", "devices", "--csv", "--dir", self.dir, check=0)
        rows = list(csv.DictReader(io.StringIO(done.stdout, newline="")))
        spaces = {row["space"]: row for row in rows if row["device"] == "0 Test device"}
        self.assertEqual(spaces["dram"]["used"], str(DRAM))
        self.assertEqual(spaces["dram"]["percent"], "0.60")
        self.assertEqual(spaces["cb"]["capacity"], "")

    def test_columns_are_listed(self):
        text = memoir("query", "buffers", "--columns", check=0).stdout
        self.assertRegex(text, r"(?m)^bytes +bytes +sum +size of the block$")
        done = memoir("query", "--columns", "--json", check=0)
        columns = json.loads(done.stdout)["columns"]
        self.assertEqual({c["table"] for c in columns},
                         {"processes", "host", "system", "cgroups", "accounts", "devices", "device_processes", "buffers", "sites", "leaks", "stacks", "history", "exited",
                          "exited_blocks", "explain", "lines", "processes_past", "host_past", "system_past", "devices_past"})
        self.assertTrue(all(c["help"] for c in columns))
        private = {(c["table"], c["column"]) for c in columns if c["private"]}
        self.assertIn(("processes", "command"), private)

    def test_every_column_can_be_shown_and_grouped_by(self):
        self.start_client()
        columns = json.loads(memoir("query", "--columns", "--json", check=0).stdout)["columns"]
        for table in ("processes", "accounts", "devices", "buffers", "sites"):
            names = [c["column"] for c in columns if c["table"] == table]
            for row in self.query(table, "--show", ",".join(names)):
                self.assertEqual(set(names), set(row) - {"at_least", "estimate"})
            for name in names:
                with self.subTest(table=table, column=name):
                    self.assertTrue(self.query(table, "--by", name, "--show", "count"))

    def test_watch_repeats(self):
        self.start_client()
        watcher = subprocess.Popen(
            [MEMOIR, "query", "--watch=0.05", "--json", "--dir", self.dir],
            stdout=subprocess.PIPE, env=ENVIRONMENT,
        )  # fmt: skip
        self.addCleanup(watcher.stdout.close)
        self.addCleanup(watcher.wait)
        self.addCleanup(watcher.terminate)
        for _ in range(3):
            self.assertEqual(len(json.loads(watcher.stdout.readline())["rows"]), 1)

    def test_a_user_cannot_ask_a_terminal_to_do_things(self):
        """What strangers named reaches no terminal as it is."""
        program = self.copy_of(MEMOIR.parent.parent.parent / "test/integration/cli_client", "e\x1b[31mvil")
        self.start_client(program=program)
        master, slave = pty.openpty()
        with os.fdopen(master, "rb", buffering=0) as screen:
            done = subprocess.run([MEMOIR, "query", "--show", "program,exe,command", "--dir", self.dir],
                                  stdout=slave, env=ENVIRONMENT)
            os.close(slave)
            self.assertEqual(done.returncode, 0)
            text = b""
            while select.select([screen], [], [], 0.2)[0]:
                try:
                    piece = screen.read(65536)
                except OSError:
                    break
                if not piece:
                    break
                text += piece
        self.assertIn(b"vil", text)
        self.assertNotIn(b"\x1b[31m", text)


class Mistakes(unittest.TestCase):
    def test_each_points_at_the_place(self):
        for arguments, message, mark in (
            (["--where", "user=ann and rsss>1"], "did you mean 'rss'?", "                      ^^^^"),
            (["--where", "rss>many"], "a size (1.5GB, 64K)", "             ^^^^"),
            (["--where", "(pid=1"], "never closed", "         ^"),
            (["--by", "progam"], "did you mean 'program'?", "      ^^^^^^"),
            (["--show", "mox(rss)"], "no way to combine", "        ^^^"),
            (["--sort", "-hepa"], "did you mean 'heap'?", "         ^^^^"),
            (["procesess"], "did you mean 'processes'?", "         ^^^^^^^^^"),
            (["blocks"], "there are processes, ", "         ^^^^^^"),
        ):
            with self.subTest(arguments):
                done = memoir("query", *arguments, check=2)
                self.assertEqual(done.stdout, "")
                lines = done.stderr.splitlines()
                self.assertIn(message, lines[0])
                self.assertEqual(lines[2], mark)

    def test_values_that_make_no_sense(self):
        for arguments in (
            ["--json", "--csv"],
            ["--units", "stone"],
            ["--limit", "few"],
            ["--watch=0"],
            ["--where", "pid="],
            ["--where", "x" * 5000],
        ):
            with self.subTest(arguments):
                memoir("query", *arguments, check=2)

    def test_a_directory_that_is_not_there(self):
        memoir("query", "--dir", "/nowhere", check=1)
