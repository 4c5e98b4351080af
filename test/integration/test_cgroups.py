"""The table of cgroups: with a cgroup of our own where the machine allows one, by the command and by memoird's socket."""

import json
import os
import pathlib
import subprocess
import sys
import time
import unittest

from cli_support import CommandTest, memoir
from daemon_fixture import NOBODY, PATIENCE_S, as_user
from native_fixture import ASK, NativeTest

ROOT = pathlib.Path("/sys/fs/cgroup")
LIMIT = 256 << 20
HELD = 24 << 20
NAME = "odd \x1b[2J name"
# Enters the cgroup, holds memory there, says so, and waits for the end of its input.
HOLDER = f"""
import sys
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
x = bytearray(b"x") * {HELD}
print("ready", flush=True)
sys.stdin.read()
"""
SHOW = "path,name,parent_path,depth,current,peak,limit,percent,headroom,anon,processes,own_processes,oom_kills"


def hierarchy():
    """Where memory cgroups are made, and the file of their limit."""
    if (ROOT / "memory/memory.usage_in_bytes").exists():
        return ROOT / "memory", "memory.limit_in_bytes"
    if (ROOT / "cgroup.controllers").exists() and "memory" in (ROOT / "cgroup.subtree_control").read_text():
        return ROOT, "memory.max"
    return None, None


class Made:
    """A cgroup with a child that has a process; for a test case."""

    def remove(self, folder):
        """A kernel may need a moment after the last process has gone."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return folder.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def make_cgroups(self):
        top, limit = hierarchy()
        if not top:
            self.skipTest("no cgroups that account memory")
        folder = top / f"memoir-test-{os.getpid()}-{self._testMethodName}"
        inner = folder / NAME
        try:
            folder.mkdir()
            self.addCleanup(self.remove, folder)
            (folder / limit).write_text(str(LIMIT))
            if limit == "memory.max":
                (folder / "cgroup.subtree_control").write_text("+memory")
            inner.mkdir()
            self.addCleanup(self.remove, inner)
        except OSError as error:
            self.skipTest(f"may not make cgroups: {error}")
        holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(inner)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(holder.stderr.close)
        self.addCleanup(holder.wait)
        self.addCleanup(holder.stdout.close)
        self.addCleanup(holder.stdin.close)
        if holder.stdout.readline() != "ready\n":
            holder.kill()
            self.skipTest(f"may not enter a cgroup: {holder.stderr.read().splitlines()[-1:]}")
        return f"/{folder.name}"

    def check(self, rows, path):
        outer, inner = rows
        self.assertEqual(outer["path"], path)
        self.assertEqual(outer["limit"], LIMIT)
        self.assertEqual((outer["processes"], outer["own_processes"]), (1, 0))
        self.assertEqual(outer["parent_path"], "/")
        self.assertEqual(outer["depth"], 1)
        self.assertEqual(inner["parent_path"], path)
        self.assertEqual(inner["depth"], 2)
        self.assertEqual(inner["name"], NAME)
        self.assertIsNone(inner["limit"])
        self.assertIsNone(inner["percent"])
        self.assertEqual((inner["processes"], inner["own_processes"]), (1, 1))
        self.assertGreaterEqual(inner["current"], HELD)
        self.assertIsNotNone(inner["anon"])  # how much, the kernel tells late and in batches
        self.assertEqual(inner["oom_kills"], 0)
        if inner["peak"] is not None:
            self.assertGreaterEqual(inner["peak"], inner["current"])
        # The room of the outer one is the inner one's, too. Figures of one look are some microseconds apart.
        self.assertLessEqual(outer["headroom"], LIMIT - HELD)
        self.assertEqual(inner["headroom"], outer["headroom"])
        self.assertAlmostEqual(outer["percent"], 100 * outer["current"] / LIMIT, delta=0.1)


class Command(Made, CommandTest):
    def test_a_cgroup_with_a_process(self):
        path = self.make_cgroups()
        done = memoir("query", "cgroups", "--json", "--dir", self.dir, "--where", f"path~{path}", "--show", SHOW, check=0)
        self.check(json.loads(done.stdout)["rows"], path)
        text = memoir("query", "cgroups", "--dir", self.dir, "--where", f"path~{path}", check=0).stdout
        self.assertNotIn("\x1b", text)
        self.assertIn("odd", text)

    def test_the_root_is_first(self):
        done = memoir("query", "cgroups", "--json", "--dir", self.dir, "--show", "path,depth,order,parent_path")
        if not done.stdout:
            self.skipTest("no cgroups that account memory")
        rows = json.loads(done.stdout)["rows"]
        self.assertEqual(rows[0], {"path": "/", "depth": 0, "order": 1, "parent_path": None})
        seen = set()
        for row in rows:  # nobody comes before the one around it
            self.assertTrue(row["parent_path"] is None or row["parent_path"] in seen, row)
            seen.add(row["path"])


class Socket(Made, NativeTest):
    def test_a_cgroup_with_a_process(self):
        path = self.make_cgroups()
        self.native()
        question = {"query": {"table": "cgroups", "where": f"path~{path}", "show": SHOW}}
        self.check(self.connect().ask(question)["result"]["rows"], path)

    def test_it_is_read_again(self):
        path = self.make_cgroups()
        self.native("--history=no")
        line = self.connect()

        def rows(where):
            return line.ask({"query": {"table": "cgroups", "where": where, "show": "path,figures_age"}})["result"]["rows"]

        self.assertEqual(len(rows(f"path~{path}")), 2)
        later = hierarchy()[0] / f"memoir-later-{os.getpid()}"
        later.mkdir()
        self.addCleanup(self.remove, later)
        self.wait_until(lambda: rows(f"name={later.name}"), "the new cgroup is there")

    @unittest.skipUnless(os.geteuid() == 0, "needs two users")
    def test_others_see_it(self):
        path = self.make_cgroups()
        self.native()
        os.chmod(self.path, 0o666)
        self.folder.chmod(0o755)
        question = {"query": {"table": "cgroups", "where": f"path~{path}", "show": SHOW}}
        done = subprocess.run([*as_user(NOBODY), sys.executable, "-c", ASK, self.path, json.dumps(question)],
                              stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=True)
        self.check(json.loads(done.stdout)["result"]["rows"], path)


if __name__ == "__main__":
    unittest.main()
