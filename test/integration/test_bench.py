"""The benchmarks of books, of the server and of the tracker run, judge, and keep what they measured."""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
from importlib.machinery import SourceFileLoader

ROOT = pathlib.Path(os.environ.get("MEMOIR_SOURCE_ROOT") or pathlib.Path(__file__).parents[2])
BUILD = pathlib.Path(os.environ.get("MEMOIR_BUILD_ROOT", "build"))
HEAPTRACK = pathlib.Path("/usr/lib/heaptrack/libheaptrack_preload.so")


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Quick:
    """What holds for every benchmark with a table of goals."""

    name = program = None
    goals = 0       # with a verdict, in a quick run
    rows = set()    # of raw data
    allowed = ()    # paths that the table may name

    @classmethod
    def setUpClass(cls):
        if not (BUILD / "bench" / cls.program).exists():
            raise unittest.SkipTest("this build has no benchmark programs")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.out = pathlib.Path(folder.name)
        # Other tests run at the same time and need their share.
        cls.result = subprocess.run([str(ROOT / "bench" / cls.name / "run"), str(BUILD), str(cls.out), "--quick",
                                     "--no-pin", "--no-realtime"],
                                    capture_output=True, text=True, check=False, timeout=100)

    def test_succeeds_whatever_the_figures(self):
        self.assertEqual(self.result.returncode, 0, self.result.stderr)

    def test_every_goal_has_a_verdict(self):
        judged = [row for row in lines(self.out / "rows.jsonl") if row["reach"]]
        self.assertEqual(len(judged), self.goals)
        for row in judged:
            self.assertIn(row["verdict"], ("ok", "MISSED"))
            self.assertIn(row["what"], self.result.stdout)

    def test_every_repetition_is_kept_with_the_load(self):
        raw = lines(self.out / "raw.jsonl")
        self.assertEqual({line["row"] for line in raw}, {"setup", *self.rows})
        for line in raw:
            self.assertIn("load", line)
            self.assertNotIn("error", line)

    def test_nothing_tells_where_it_ran(self):
        for path in self.out.iterdir():
            text = path.read_text(encoding="utf-8")
            for word in self.allowed:
                text = text.replace(word, "")
            for word in ("/dev/shm", "/tmp", str(BUILD.resolve()), str(ROOT.resolve()), os.uname().nodename):
                self.assertNotIn(word, text, path.name)


class Book(Quick, unittest.TestCase):
    name, program = "book", "bench_book_report"
    goals = 11  # the large ones of the first row are left out
    rows = {"pairs", "threads", "read", "spawn", "memory-grow", "memory-churn", "memory-own", "memory-on-behalf",
            "retire", "idle"}
    allowed = ("/bin/true",)

    def test_every_repetition_of_a_row_is_kept(self):
        self.assertEqual(len([line for line in lines(self.out / "raw.jsonl") if line["row"] == "pairs"]), 2 * 3)


class Exits(Quick, unittest.TestCase):
    name, program = "exits", "bench_exits_crowd"
    goals = 3
    rows = {"load", "kernel", "loop", "daemon"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        why = [line for line in cls.result.stderr.splitlines() if "could not be measured" in line]
        if why:  # not root, or the kernel says no
            raise unittest.SkipTest(why[0])


class Server(Quick, unittest.TestCase):
    name, program = "server", "bench_server_stream"
    goals = 10
    rows = {"stream", "single", "native", "query", "fresh", "report", "crowd", "kill", "history"}

    def test_both_servers_are_measured(self):
        raw = lines(self.out / "raw.jsonl")
        for row in ("stream", "single", "query", "report", "kill"):
            self.assertLessEqual({"memoird", "original"}, {line.get("server") for line in raw if line["row"] == row})


class Track(Quick, unittest.TestCase):
    name, program = "track", "bench_track_pairs"
    goals = 5 + HEAPTRACK.exists() + 2 * (BUILD / "bench/libmemoir-bench-extension.so").exists()
    rows = {"programs", "pairs", "extension", "memory"}

    def test_our_modes_take_part_in_every_round(self):
        runs = [line for line in lines(self.out / "raw.jsonl") if line["row"] == "programs"]
        for program in {line["program"] for line in runs}:
            self.assertLessEqual({"plain", "empty", "caller", "sampled", "all"},
                                 {line["tool"] for line in runs if line["program"] == program and line["round"] == 1})
        self.assertTrue(all(line["same_output"] for line in runs if line["tool"] != "heaptrack"))


class Proc(Quick, unittest.TestCase):
    name, program = "proc", "bench_proc_refresh"
    goals = 2
    rows = {"1000", "10000"}

    def test_others_take_turns_with_ours(self):
        who = {line["who"] for line in lines(self.out / "raw.jsonl") if "who" in line}
        self.assertEqual(who, {"memoir", "ps"} if shutil.which("ps") else {"memoir"})


class Harden(unittest.TestCase):
    def test_all_levels_take_part_in_every_round(self):
        if not (BUILD / "bench/bench_malloc_launch").exists():
            self.skipTest("this build has no benchmark programs")
        with tempfile.TemporaryDirectory() as folder:
            result = subprocess.run([str(ROOT / "bench/harden/run"), str(BUILD), folder, "--quick"], capture_output=True,
                                    text=True, check=False, timeout=100)
            self.assertEqual(result.returncode, 0, result.stderr)
            runs, rows = (lines(pathlib.Path(folder) / name) for name in ("raw.jsonl", "rows.jsonl"))
        found = {run["program"] for run in runs}
        self.assertIn("python3", found)
        self.assertEqual({row["program"] for row in rows}, found)
        for program in found:
            for number in (1, 2):
                self.assertEqual(sorted(r["level"] for r in runs if (r["program"], r["round"]) == (program, number)),
                                 ["0", "1", "2", "3", "glibc"])
            by_level = {row["level"]: row for row in rows if row["program"] == program}
            self.assertEqual(by_level["0"]["cpu_min"], 1)
            self.assertGreater(by_level["2"]["rss"], 1)
            self.assertIn(f"{program:<10}3 ", result.stdout)


class Verdicts(unittest.TestCase):
    def setUp(self):
        loader = SourceFileLoader("bench_book_run", str(ROOT / "bench/book/run"))
        spec = importlib.util.spec_from_loader("bench_book_run", loader)
        self.run_module = importlib.util.module_from_spec(spec)
        loader.exec_module(self.run_module)

    def table(self, *rows):
        with tempfile.TemporaryDirectory() as folder:
            table = self.run_module.measure.Table(pathlib.Path(folder))
            for value, goal in rows:
                table.add("a", "b", value, "ns", **goal)
            table.file.close()
        return table

    def test_a_missed_goal_is_said(self):
        table = self.table((21, {"at_most": 20}), (20, {"at_most": 20}), (49, {"at_least": 50}), (0.5, {"below": 0.5}),
                           (1, {}))
        self.assertEqual([row[3] for row in table.rows], ["MISSED", "ok", "MISSED", "MISSED", "for information"])
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            table.print()
        self.assertIn("1 of 4 goals reached, 3 MISSED", text.getvalue())

    def test_p99_of_few_values_is_the_worst(self):
        self.assertEqual(self.run_module.percentile(range(1, 51), 99), 50)
        self.assertEqual(self.run_module.percentile(range(1, 301), 99), 297)
        self.assertEqual(self.run_module.percentile([7], 50), 7)


class History(unittest.TestCase):
    def test_history_is_measured_and_judged(self):
        if not (BUILD / "bench/bench_history").exists():
            self.skipTest("this build has no benchmark programs")
        with tempfile.TemporaryDirectory() as folder:
            result = subprocess.run([str(ROOT / "bench/history/run"), str(BUILD), folder, "--quick"],
                                    capture_output=True, text=True, check=False, timeout=100)
            self.assertEqual(result.returncode, 0, result.stderr)
            rows = lines(pathlib.Path(folder) / "rows.jsonl")
            raw = lines(pathlib.Path(folder) / "raw.jsonl")
        # These do not depend on how busy the machine is: the walks are the same in every run.
        size = [row for row in rows if row["reach"] == "<= 2 B"]
        self.assertEqual([row["verdict"] for row in size], ["ok"])
        self.assertEqual([run["row"] for run in raw], ["busy", "quiet", "noise"])
        self.assertEqual(raw[0]["values"], (50 * 12 + 1) * 600)  # and the sum of resident sizes
        self.assertEqual(raw[0]["kept_values"], raw[0]["values"])


if __name__ == "__main__":
    unittest.main()
