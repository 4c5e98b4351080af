"""The process table over memoird's socket: all processes, who may see what, and what is read when."""

import json
import os
import subprocess
import sys
import unittest

from daemon_fixture import NOBODY, PATIENCE_S, as_user
from native_fixture import ASK, NativeTest

HOLDER = "import sys; x = bytearray(b'x') * (32 << 20); print('ready', flush=True); sys.stdin.read()"
# 300 children that sleep until their common input ends.
CROWD = """
import os
for _ in range(300):
    if os.fork() == 0:
        os.read(0, 1)
        os._exit(0)
print("ready", flush=True)
os.read(0, 1)
for _ in range(300):
    os.wait()
"""


class Host(NativeTest):
    def holder(self, **environment):
        process = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True, env={**os.environ, **environment})
        self.addCleanup(process.wait)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def question(self, pid, show):
        return {"query": {"table": "host", "where": f"pid={pid}", "show": show}}

    def row(self, pid, show):
        rows = self.connect().ask(self.question(pid, show))["result"]["rows"]
        return rows[0] if rows else None

    def test_processes_without_a_book_are_there(self):
        self.native()
        holder = self.holder()
        self.wait_until(lambda: self.row(holder.pid, "pid"), "it is in the table")
        row = self.row(holder.pid, "pid,parent,rss,heap,threads,state")
        self.assertEqual(row["parent"], os.getpid())
        self.assertIsNone(row["heap"])
        self.wait_until(lambda: self.row(holder.pid, "rss")["rss"] > 32 << 20, "its memory is known")

    def test_without_history_too(self):
        self.native("--history=no")
        holder = self.holder()
        self.wait_until(lambda: (self.row(holder.pid, "rss") or {"rss": 0})["rss"] > 32 << 20, "its memory is known")

    def test_costly_fields_come_later(self):
        self.native("--probe-share", "1000")
        holder = self.holder(SLURM_JOB_ID="77")
        # A helper that somebody's memory keeps waiting rests for a while; and a kernel may have no smaps_rollup.
        smaps = os.access(f"/proc/{holder.pid}/smaps_rollup", os.R_OK)

        def known():
            row = self.row(holder.pid, "command,job,pss,tracked")
            return row and row["command"] and row["job"] == "77" and row["tracked"] and (row["pss"] or not smaps)

        self.wait_until(known, "it was probed")
        self.assertIn("bytearray", self.row(holder.pid, "command")["command"])

    def test_nobody_is_probed_without_a_share(self):
        self.native("--probe-share", "0")
        holder = self.holder()
        self.wait_until(lambda: self.row(holder.pid, "pid"), "it is in the table")
        self.assertEqual(self.row(holder.pid, "command,pss"), {"command": None, "pss": None})

    def test_a_row_joins_what_was_reported(self):
        self.native()
        line = self.connect()
        self.assertEqual(line.ask({"alloc": {"space": "heap", "id": 1, "bytes": 4711}, "ack": True}), {"ack": 0})
        self.wait_until(lambda: (self.row(os.getpid(), "rss,heap") or {}).get("heap") == 4711, "both are in one row")
        self.assertGreater(self.row(os.getpid(), "rss")["rss"], 0)

    def test_a_crowd_in_which_one_grows(self):
        """Past some number of processes the kernel tells who changed, where BPF is allowed; what is shown is the same."""
        self.native("--log-level=debug")
        crowd = subprocess.Popen([sys.executable, "-c", CROWD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(crowd.wait)
        self.addCleanup(crowd.stdout.close)
        self.addCleanup(crowd.stdin.close)
        self.assertEqual(crowd.stdout.readline(), "ready\n")

        def children(show):
            query = {"table": "host", "where": f"parent={crowd.pid}", "show": show}
            return self.connect().ask({"query": query})["result"]["rows"]

        self.wait_until(lambda: len(children("pid")) == 300, "all are there")
        holder = self.holder()
        self.wait_until(lambda: (self.row(holder.pid, "rss") or {"rss": 0})["rss"] > 32 << 20, "its memory is known")
        self.assertEqual(len(children("pid")), 300)
        self.assertGreater(min(row["rss"] for row in children("rss")), 0)
        crowd.stdin.close()
        crowd.wait()
        self.wait_until(lambda: not children("pid"), "all are gone")

    def test_the_machine(self):
        self.native()
        (row,) = self.connect().ask({"query": {"table": "system", "show": "total,available,free"}})["result"]["rows"]
        self.assertGreater(row["total"], row["free"])

    @unittest.skipUnless(os.geteuid() == 0, "needs two users")
    def test_others_see_figures_only(self):
        self.native("--probe-share", "1000")
        os.chmod(self.path, 0o666)
        self.folder.chmod(0o755)
        holder = self.holder(SLURM_JOB_ID="77", SLURM_PROCID="3")
        show = "rss,command,job,rank,exe,tracked"
        self.wait_until(lambda: (self.row(holder.pid, show) or {}).get("command"), "it was probed")
        done = subprocess.run([*as_user(NOBODY), sys.executable, "-c", ASK, self.path,
                               json.dumps(self.question(holder.pid, show))],
                              stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=True)
        (row,) = json.loads(done.stdout)["result"]["rows"]
        self.assertGreater(row["rss"], 0)
        for name in ("command", "job", "rank", "exe", "tracked"):
            self.assertIsNone(row[name], name)


if __name__ == "__main__":
    unittest.main()
