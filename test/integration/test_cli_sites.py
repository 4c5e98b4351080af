"""memoir sites: which lines hold the memory of a process, in every grouping, saved, and compared."""

import csv
import io
import json
import os
import pathlib
import pty
import shutil
import subprocess

from cli_support import BUILD, ENVIRONMENT
from sites_support import CLIENT, FIGURES, SitesTest


class Sites(SitesTest):
    def setUp(self):
        super().setUp()
        self.client = self.start(
            "left 1 1000", "left 2 2000", "right 3 500", "inlined 4 70", "direct 5 60000", "device 6 4096", "free 2",
            "churn 1000 16",
        )
        self.pid = str(self.client.pid)

    def test_figures_and_names_are_exact(self):
        document = self.document(self.pid)
        rows = self.by_function(document)
        expected = {
            ("ask", "heap"): (1500, 2, 3500, 3),
            ("path_direct", "heap"): (60000, 1, 60000, 1),
            ("ask_inlined", "heap"): (70, 1, 70, 1),
            ("path_device", "dram"): (4096, 1, 4096, 1),
            ("path_churn", "heap"): (0, 0, 16000, 1000),
        }
        self.assertEqual({k: tuple(r[f] for f in FIGURES) for k, r in rows.items()}, expected)
        self.assertEqual(tuple(document[f] for f in FIGURES), tuple(map(sum, zip(*expected.values()))))
        self.assertEqual(document["accounted"], document["bytes"])
        self.assertEqual((document["pid"], document["program"], document["matched"]), (self.client.pid, "sites_client", 5))
        row = rows["ask", "heap"]
        source = (pathlib.Path(__file__).parent / "sites_client.c").read_text().splitlines()
        self.assertEqual(pathlib.Path(row["source_file"]).name, "sites_client.c")
        self.assertIn("memoir_alloc", source[row["line"] - 1])
        self.assertEqual(row["site"], f"sites_client.c:{row['line']} ask")
        self.assertEqual((row["module"], row["frame"].split("+")[0]), (str(CLIENT), str(CLIENT)))
        self.assertLess(row["age"], 600)
        self.assertFalse(row["estimated"])
        device = rows["path_device", "dram"]
        self.assertEqual((device["ordinal"], device["device_name"], device["device_uid"]), (0, "Card", "CARD-0"))

    def test_the_order_is_what_was_asked_for(self):
        live = [r["bytes"] for r in self.document(self.pid)["sites"]]
        self.assertEqual(live, sorted(live, reverse=True))
        self.assertEqual(self.document(self.pid, "--allocated")["sites"][1]["function"], "path_churn")
        self.assertEqual(self.document(self.pid, "--blocks")["sites"][0]["function"], "ask")
        self.assertEqual(len(self.document(self.pid, "--top", "2")["sites"]), 2)
        self.assertEqual(self.document(self.pid, "--top", "2")["matched"], 5)
        self.assertEqual(len(self.document(self.pid, "--min", "1kB")["sites"]), 3)
        self.assertEqual(len(self.document(self.pid, "--space", "dram")["sites"]), 1)

    def test_every_grouping_adds_up(self):
        whole = self.document(self.pid)
        sizes = {"caller": 5, "stack": 6, "function": 5, "file": 2, "module": 2, "space": 2, "device": 2}
        for by, n in sizes.items():
            with self.subTest(by):
                document = self.document(self.pid, "--by", by)
                self.assertEqual(len(document["sites"]), n)
                for field in FIGURES:
                    self.assertEqual(sum(r[field] for r in document["sites"]), whole[field])

    def test_stacks_are_whole_with_what_was_compiled_into_what(self):
        stacks = {}
        for row in self.document(self.pid, "--by", "stack")["sites"]:
            names = [f["function"] for f in row["frames"]]
            stacks["<".join(names[: names.index("main") + 1])] = row
        self.assertEqual(
            set(stacks),
            {
                "ask<path_left<obey<main", "ask<path_right<obey<main", "ask_inlined<path_inlined<obey<main",
                "path_direct<obey<main", "path_device<obey<main", "path_churn<obey<main",
            },
        )
        self.assertEqual(stacks["ask<path_left<obey<main"]["bytes"], 1000)
        self.assertEqual(stacks["ask<path_right<obey<main"]["bytes"], 500)
        frames = stacks["ask_inlined<path_inlined<obey<main"]["frames"]
        self.assertEqual([f["inlined"] for f in frames[:3]], [True, False, False])
        self.assertEqual(frames[0]["offset"], frames[1]["offset"])
        self.assertTrue(stacks["ask<path_left<obey<main"]["stack"].endswith(";main;obey;path_left;ask"))
        text = self.sites(self.pid, "--stacks", "--top", "1").stdout
        self.assertRegex(text, r"^60\.0 kB in 1 block, 91\.4 %, 60\.0 kB allocated in all, heap\n    sites_client\.c:\d+ path_direct\n    sites_client\.c:\d+ obey\n")

    def test_the_screen(self):
        lines = self.sites(self.pid, environment={"COLUMNS": "80"}).stdout.splitlines()
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertRegex(lines[0], r"^ *LIVE .*BLOCKS .*SITE$")
        self.assertRegex(lines[1], r"^60\.0 kB +█+.* 1 .*sites_client\.c:\d+ path_direct$")
        self.assertRegex(lines[-1], r"^sites_client \(PID \d+\): 65\.7 kB live in 5 blocks, 83\.7 kB allocated in all$")
        plain = self.sites(self.pid, environment={"LC_ALL": "C", "COLUMNS": "100"}).stdout
        self.assertTrue(plain.isascii())
        self.assertNotIn("\033", self.sites(self.pid).stdout)
        self.assertIn("Shown: 1 of 5 rows. --top 0 shows all.", self.sites(self.pid, "--top", "1").stdout)

    def test_a_program_is_found_where_its_file_lies(self):
        """Whoever starts ./server asks for 'server' in the folder that has the file of that name."""
        shutil.copy(CLIENT, self.files / "sites_client")
        done = subprocess.run([BUILD / "src/cli/memoir", "sites", "--dir", self.dir, "sites_client"], cwd=self.files,
                              env=ENVIRONMENT, capture_output=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"sites_client (PID {self.pid}): 65.7 kB live".encode(), done.stdout)

    def test_csv(self):
        rows = list(csv.DictReader(io.StringIO(self.sites("--csv", self.pid).stdout, newline="")))
        self.assertEqual([int(r["bytes"]) for r in rows], [60000, 4096, 1500, 70, 0])
        self.assertEqual(rows[0]["function"], "path_direct")
        self.assertEqual(len(self.sites("--csv", "--no-header", self.pid).stdout.splitlines()), 5)

    def test_names_can_be_left_out(self):
        rows = self.document(self.pid, "--no-names")["sites"]
        self.assertEqual({r["function"] for r in rows}, {None})
        self.assertRegex(rows[0]["site"], r"^sites_client\+0x[0-9a-f]+$")

    def test_the_dead_keep_their_sites(self):
        before = self.document(self.pid)
        self.client.kill()
        self.client.wait()
        after = self.document(self.pid)
        self.assertEqual([r["bytes"] for r in after["sites"]], [r["bytes"] for r in before["sites"]])
        self.assertEqual(after["sites"][0]["function"], "path_direct")

    def test_all_processes_of_a_program_are_taken_together(self):
        self.start("left 1 10", "direct 2 5")
        document = self.document("sites_client")
        rows = self.by_function(document)
        self.assertEqual((document["processes"], document["pid"]), (2, None))
        self.assertEqual(tuple(rows["ask", "heap"][f] for f in FIGURES), (1510, 3, 3510, 4))
        self.assertEqual(rows["path_direct", "heap"]["bytes"], 60005)
        self.assertIn("2 processes of sites_client: ", self.sites("sites_client").stdout)

    def test_callers_alone_are_enough(self):
        client = self.start("left 1 100", "right 2 11", "direct 3 5", stacks="caller")
        rows = self.by_function(self.document(str(client.pid)))
        self.assertEqual((rows["ask", "heap"]["bytes"], rows["ask", "heap"]["call_sites"]), (111, 1))
        text = self.sites(str(client.pid), "--stacks").stdout
        self.assertIn("(who called it is not known)", text)


class Moments(SitesTest):
    def setUp(self):
        super().setUp()
        self.client = self.start("left 1 1000", "right 2 300", "direct 3 50")
        self.pid = str(self.client.pid)
        self.before = self.files / "before.sites"
        self.sites(self.pid, "--save", self.before)

    def test_a_saved_moment_is_the_same_later(self):
        was = self.document(self.pid, "--by", "stack")
        self.tell(self.client, "left 4 77777")
        self.client.kill()
        self.client.wait()
        shutil.rmtree(self.dir)
        self.dir.mkdir()
        now = self.document(str(self.before), "--by", "stack")
        for document in (was, now):
            for row in document["sites"]:
                del row["age"]
        self.assertEqual(now["sites"], was["sites"])
        self.assertEqual(now["pid"], self.client.pid)
        self.assertEqual(self.before.stat().st_mode & 0o777, 0o600)

    def test_what_changed_is_exact(self):
        self.tell(self.client, "left 4 5000", "left 5 5000", "free 2", "inlined 6 8")
        document = self.document("--diff", self.before, self.pid)
        rows = {r["function"]: r for r in document["sites"]}
        self.assertEqual([r["function"] for r in document["sites"]], ["ask", "ask_inlined", "path_direct"])
        change = ("bytes_change", "bytes", "bytes_before", "blocks_change", "allocated_change")
        self.assertEqual(tuple(rows["ask"][f] for f in change), (9700, 11000, 1300, 1, 10000))
        self.assertEqual(tuple(rows["ask_inlined"][f] for f in change), (8, 8, 0, 1, 8))
        self.assertEqual(tuple(rows["path_direct"][f] for f in change), (0, 50, 50, 0, 0))
        stacks = self.document("--diff", self.before, self.pid, "--by", "stack")["sites"]
        self.assertEqual([r["bytes_change"] for r in stacks], [10000, 8, 0, -300])
        turned = self.document("--diff", self.pid, self.before)["sites"]
        self.assertEqual([r["bytes_change"] for r in turned], [0, -8, -9700])
        self.assertEqual(len(self.document("--diff", self.before, self.pid, "--min", "100")["sites"]), 1)

    def test_what_changed_on_the_screen(self):
        self.tell(self.client, "left 4 5000", "free 3")
        text = self.sites("--diff", self.before, self.pid).stdout
        lines = text.splitlines()
        self.assertRegex(lines[1], r"^\+5\.0 kB +6\.3 kB +1\.3 kB +\+1 ")
        self.assertRegex(lines[2], r"^ *-50 B +0 B +50 B +-1 ")
        self.assertRegex(lines[-1], r"; \+5\.0 kB in ")
        colored = self.sites("--diff", self.before, self.pid, "--color", "always").stdout
        self.assertIn("\033[1;31m+5.0 kB\033[0m", colored)
        self.assertIn("\033[32m-50 B\033[0m", colored)

    def test_another_run_is_compared_by_its_code(self):
        other = self.start("left 1 1000", "right 2 300", "direct 3 51")
        rows = self.document("--diff", self.before, str(other.pid))["sites"]
        self.assertEqual([(r["function"], r["bytes_change"]) for r in rows], [("path_direct", 1), ("ask", 0)])

    def test_another_build_is_compared_by_its_names(self):
        """A copy with another build-id and the same names."""
        copy = self.files / "sites_client"
        data = bytearray(CLIENT.read_bytes())
        note = data.find(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0")
        if note < 0:
            self.skipTest("programs have no build-id here")
        data[note + 16] ^= 0xFF
        copy.write_bytes(data)
        copy.chmod(0o755)
        other = self.start("left 1 1000", "right 2 301", "direct 3 50", program=copy)
        for by, n in (("caller", 2), ("stack", 3), ("function", 2)):
            rows = self.document("--diff", self.before, str(other.pid), "--by", by)["sites"]
            self.assertEqual([r["bytes_change"] for r in rows], [1] + [0] * (n - 1), by)

    def test_rates(self):
        child = subprocess.Popen(
            [BUILD / "src/cli/memoir", "sites", "--dir", self.dir, self.pid, "--every", "0.1", "--json"],
            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=ENVIRONMENT,
        )
        self.addCleanup(child.wait)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.kill)
        asked = held = 0
        ids = iter(range(1000, 10_000_000))
        while asked == 0 or held == 0:
            self.tell(self.client, f"left {next(ids)} 4096")
            document = json.loads(child.stdout.readline())
            row = next(r for r in document["sites"] if r["function"] == "ask")
            self.assertGreater(document["interval"], 0.09)
            asked = row["allocated_rate"]
            held = row["growth"]
            self.assertEqual(asked, held)
            if asked:
                # One or more blocks of 4,096 in that time, and as many calls.
                blocks = asked * document["interval"] / 4096
                self.assertAlmostEqual(blocks, round(blocks), delta=0.01)
                self.assertAlmostEqual(row["calls_rate"], round(blocks) / document["interval"], delta=1)

    def test_two_looks_end_by_themselves(self):
        text = self.sites(self.pid, "--for", "0.1").stdout
        self.assertIn("sites_client (PID", text)
        self.assertEqual(self.document(self.pid, "--for", "0.1")["sites"][0]["allocated_rate"], 0)

    def test_files_of_others_are_refused(self):
        bad = self.files / "bad.sites"
        data = self.before.read_bytes()
        for content in (b"", b"MEMOIRSN", data[:-1], data[:24] + bytes(100), b"#!/bin/sh\n"):
            bad.write_bytes(content)
            self.assertIn("is damaged, or no file", self.sites(str(bad), check=1).stderr)
        bad.write_bytes(data[:8] + b"\x09" + data[9:])
        self.assertIn("later version", self.sites(str(bad), check=1).stderr)
        self.assertIn("there is no file", self.sites(str(self.files / "none"), check=3).stderr)
        self.assertIn("cannot save", self.sites(self.pid, "--save", "/proc/none/x", check=1).stderr)


class Nothing(SitesTest):
    def test_who_has_no_sites_is_told_what_to_do(self):
        cases = {
            str(os.getpid()): "'memoir run COMMAND' from the start",
            "99999999999": "there is no process 99999999999",
            "nosuchprogram": "'memoir run nosuchprogram' starts one that does",
        }
        for word, hint in cases.items():
            with self.subTest(word):
                done = self.sites(word, check=3)
                self.assertEqual(done.stdout, "")
                self.assertIn(hint, done.stderr)
        client = self.start("left 1 100000", stacks="off")
        self.assertIn("without call sites", self.sites(str(client.pid), check=3).stderr)

    def test_bad_command_lines(self):
        for arguments in (
            [], ["1", "2"], ["--diff", "1"], ["--json", "--csv", "1"], ["--live", "--blocks", "1"], ["--by", "beauty", "1"],
            ["--min", "much", "1"], ["--space", "foo", "1"], ["--every", "0.01", "1"], ["--diff", "--every", "1", "1", "2"],
            ["--save", "x", "--every", "1", "1"],
        ):
            with self.subTest(arguments):
                self.assertEqual(self.sites(*arguments, check=2).stdout, "")


class Many(SitesTest):
    def test_thousands_of_stacks(self):
        """2^13 stacks of one caller: nothing is lost, and the names take no time worth noting."""
        client = self.start("tree 13 64")
        document = self.document(str(client.pid), "--by", "stack")
        self.assertEqual((document["matched"], document["bytes"]), (8192, 8192 * 64))
        self.assertEqual({r["bytes"] for r in document["sites"]}, {64})
        self.assertEqual(len({r["stack"] for r in document["sites"]}), 8192)
        self.assertEqual(len(self.document(str(client.pid))["sites"]), 1)

    def test_progress_is_for_terminals(self):
        client = self.start("left 1 100")
        primary, secondary = pty.openpty()
        with os.fdopen(primary, "rb", buffering=0) as screen:
            done = subprocess.run(
                [BUILD / "src/cli/memoir", "sites", "--dir", self.dir, str(client.pid)],
                stdin=subprocess.DEVNULL, stdout=secondary, stderr=secondary, env=ENVIRONMENT, timeout=60, check=False,
            )
            os.close(secondary)
            self.assertEqual(done.returncode, 0)
            self.assertIn(b"sites_client (PID", screen.read(65536))
