"""Verdicts on growth that is no leak by a call site: memory outside malloc, and what a garbage collector frees."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from api_support import MEMOIR, ApiTest
from daemon_fixture import PATIENCE_S, Process

HERE = pathlib.Path(__file__).parent
FAST = ("--leaks-interval", "50ms")  # a verdict after two seconds
STEP_MS = "10"


class VerdictsTest(ApiTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.programs = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-verdicts-"))
        cls.addClassCleanup(shutil.rmtree, cls.programs, ignore_errors=True)
        for name, library in (("collected", "libjvm.so"), ("kept", "libkept.so")):
            subprocess.run(["gcc", "-O1", "-shared", "-fPIC", HERE / "collected.c", "-o", cls.programs / library], check=True)
            subprocess.run(["gcc", "-O1", HERE / "outside_malloc.c", cls.programs / library, f"-Wl,-rpath,{cls.programs}",
                            "-o", cls.programs / name], check=True)

    def start(self, program, *arguments):
        process = Process([MEMOIR, "run", "--quiet", self.programs / program, *arguments, STEP_MS],
                          env=dict(os.environ, MEMOIR_DIR=str(self.books)))
        self.addCleanup(process.close)
        process.out.wait("^ready$")
        return process

    def suspects(self, process, where="level>=3"):
        return [row for row in self.get("/leaks", where=where)["rows"] if row["pid"] == process.pid]

    def leaks(self, *arguments):
        return subprocess.run([MEMOIR, "leaks", "--dir", self.books, *map(str, arguments)], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)

    def test_growth_outside_malloc_has_a_row_of_its_own(self):
        self.api(*FAST)
        grows, steady = self.start("kept", "outside"), self.start("kept", "steady")
        (row,) = self.eventually(lambda: self.suspects(grows), bool, "growth outside malloc is seen")
        self.assertEqual((row["verdict"], row["space"], row["reason"]), ("growing", "outside malloc", "outside malloc"))
        self.assertGreater(row["growth"], 100_000)
        self.assertIn("not served by malloc", row["why"])
        self.assertEqual((row["blocks"], row["function"]), (None, None))
        self.assertTrue(row["site"], row)  # whose it is, by its mappings
        self.assertEqual(self.suspects(steady), [])
        # The same by the command, which asks memoird; and a count that does not say that all is well.
        text = self.leaks("--socket", self.path, grows.pid).stdout
        self.assertIn("outside malloc", text)
        self.assertRegex(text, "0 leaks, 1 growing;")

    def test_a_watch_of_our_own_sees_it_too(self):
        grows = self.start("kept", "outside")
        document = json.loads(self.leaks("--json", "--for", "3s", "--needs", "2s").stdout)
        (row,) = [row for row in document["rows"] if row["pid"] == grows.pid]
        self.assertEqual((row["verdict"], row["space"]), ("growing", "outside malloc"))

    def test_all_sites_through_which_a_line_of_python_leaks_are_named(self):
        script = self.programs / "many.py"
        script.write_text("import time\nkept = []\nprint('ready', flush=True)\nfor n in range(10**9):\n"
                          "    kept.append(([n] * 40, {str(n): n}, (n,) * 50, float(n), b'x' * 300, {n, n + 1}))\n"
                          "    if n % 40 == 0:\n        time.sleep(0.01)\n")
        # Only sites that are suspected are sampled, three at a time.
        process = Process([MEMOIR, "run", "--quiet", "python3", script],
                          env=dict(os.environ, MEMOIR_DIR=str(self.books), MEMOIR_SAMPLE_BYTES=str(1 << 30)))
        self.addCleanup(process.close)
        process.out.wait("^ready$")
        document = json.loads(self.leaks("--json", "--for", "6s", "--needs", "4s", "--socket", "none").stdout)
        rows = [row for row in document["rows"] if row["pid"] == process.pid and row["verdict"] in ("leak", "growing") and row["growth"] > 400_000]
        # What blocks cost beside their bytes is no growth of its own.
        self.assertNotIn("outside malloc", {row["space"] for row in rows})
        named = [row for row in rows if (row["site"] or "").startswith("many.py:5")]
        self.assertGreater(len(named), 3, [(row["site"], row["growth"], row["samples"]) for row in rows])

    def test_a_suspected_site_is_sampled_more_often(self):
        deep = self.start("kept", "deep")  # 1.6 MB a second: as usual one stack of it in two thirds of a second
        document = json.loads(self.leaks("--json", "--for", "4s", "--needs", "3s", "--socket", "none").stdout)
        row = max((row for row in document["rows"] if row["pid"] == deep.pid), key=lambda row: row["growth"])
        self.assertEqual(row["verdict"], "leak")
        self.assertGreater(row["samples"], 12, row)  # of two and a half seconds
        self.assertGreater(row["stack_samples"], 0.9 * row["samples"])
        self.assertTrue(any("kept_here" in frame for frame in row["stack"]), row["stack"])
        # When nobody watches any more, all is as before: what it takes by the usual samples stays an estimate of it.
        sites = json.loads(subprocess.run([MEMOIR, "sites", str(deep.pid), "--by", "stack", "--json", "--dir", self.books], text=True,
                                          capture_output=True, timeout=PATIENCE_S, check=True).stdout)
        held = sum(s["bytes"] for s in sites["sites"] if "kept_here" in (s["stack"] or ""))
        self.assertGreater(held, 0.7 * row["bytes"])

    def test_memory_of_a_collecting_runtime_waits_for_a_collection(self):
        self.api(*FAST)
        collected, kept = self.start("collected", "runtime"), self.start("kept", "runtime")
        self.eventually(lambda: [r["verdict"] for r in self.suspects(kept)], lambda v: v == ["leak"],
                        "what a library keeps is a leak")
        (row,) = self.eventually(lambda: self.suspects(collected), bool, "what a runtime keeps grows")
        self.assertEqual((row["verdict"], row["reason"]), ("growing", "waits for a collection"))
        self.assertIn("waiting for the first collection", row["why"])


if __name__ == "__main__":
    unittest.main()
