"""memoir query host and system: all processes of the machine, without a daemon."""

import json
import os
import subprocess
import sys
import unittest

from cli_support import CommandTest, memoir

HEAP = 300_000  # what one cli_client holds
CROWD = 2000

# Holds 64 MB, says so, and waits for the end of its input.
HOLDER = "import sys; x = bytearray(b'x') * (64 << 20); print('ready', flush=True); sys.stdin.read()"
# Many children that sleep until their common input ends.
MANY = """
import os, sys
try:
    for _ in range(int(sys.argv[1])):
        if os.fork() == 0:
            os.read(0, 1)
            os._exit(0)
    print('ready', flush=True)
except OSError as error:
    print(error, flush=True)
os.read(0, 1)
"""


class Host(CommandTest):
    def query(self, *arguments):
        return json.loads(memoir("query", "--json", "--dir", self.dir, *arguments, check=0).stdout)["rows"]

    def start(self, code, *arguments, environment=None):
        process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})})
        self.addCleanup(process.wait)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        said = process.stdout.readline()
        if said != "ready\n":
            self.skipTest(f"cannot start it: {said}")
        return process

    def test_a_process_without_a_book_is_there(self):
        holder = self.start(HOLDER, environment={"SLURM_JOB_ID": "4711", "SLURM_PROCID": "5"})
        (row,) = self.query("host", "--where", f"pid={holder.pid}", "--show",
                            "pid,parent,uid,rss,pss,uss,anon,vms,threads,command,job,rank,heap,tracked,peak_rss,age")
        self.assertEqual(row["parent"], os.getpid())
        self.assertEqual(row["uid"], os.getuid())
        self.assertGreater(row["rss"], 64 << 20)
        self.assertGreaterEqual(row["peak_rss"], 64 << 20)
        self.assertGreater(row["vms"], row["rss"])
        self.assertIn("bytearray", row["command"])
        self.assertEqual(row["job"], "4711")
        self.assertEqual(row["rank"], 5)
        self.assertIsNone(row["heap"])
        self.assertEqual(row["tracked"], "no: not asked")
        for name in ("pss", "uss"):
            if row[name] is not None:  # a kernel may have no smaps_rollup
                self.assertGreater(row[name], 64 << 20)

    def test_a_row_joins_the_books(self):
        client = self.start_client()
        (row,) = self.query("host", "--where", f"pid={client.pid}", "--show", "pid,program,rss,heap,device.0.dram")
        self.assertGreater(row.pop("rss"), 0)
        self.assertEqual(row, {"pid": client.pid, "program": "cli_client", "heap": HEAP, "device.0.dram": 6_000_000})
        (all_,) = self.query("host", "--show", "count,rss,heap")
        self.assertEqual(all_["heap"], HEAP)
        self.assertGreater(all_["count"], 1)

    def test_two_thousand_processes(self):
        crowd = self.start(MANY, str(CROWD))
        (row,) = self.query("host", "--where", f"parent={crowd.pid}", "--show", "count,rss,max(threads)")
        self.assertEqual(row["count"], CROWD)
        self.assertGreater(row["rss"], CROWD << 12)
        self.assertEqual(row["max(threads)"], 1)

    def test_names_that_look_like_something_else(self):
        code = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'a) R 1\\n\\x1b[2J', 0, 0, 0);" + HOLDER
        holder = self.start(code)
        (row,) = self.query("host", "--where", f"pid={holder.pid}", "--show", "pid,parent,state,rss")
        self.assertEqual(row["parent"], os.getpid())
        self.assertGreater(row["rss"], 64 << 20)
        text = memoir("query", "host", "--where", f"pid={holder.pid}", "--dir", self.dir, check=0).stdout
        self.assertNotIn("\x1b", text)

    def test_parts_of_the_machine_add_up(self):
        parts = ["anon", "shmem", "cache", "buffers", "slab_reclaimable", "slab_unreclaimable", "page_tables",
                 "kernel_stacks", "percpu", "hugetlb", "free", "unattributed"]
        (row,) = self.query("system", "--show", ",".join(["total", "available", "used", *parts]))
        self.assertGreater(row["total"], 0)
        self.assertGreaterEqual(sum(row[part] for part in parts), row["total"])
        if row["unattributed"]:
            self.assertEqual(sum(row[part] for part in parts), row["total"])
        if row["available"] is not None:
            self.assertEqual(row["used"], row["total"] - row["available"])

    def test_threads_of_the_kernel_only_when_asked_for(self):
        usual = {row["pid"] for row in self.query("host", "--show", "pid,rss")}
        self.assertIn(os.getpid(), usual)
        done = memoir("query", "host", "--json", "--dir", self.dir, "--where", "kernel_thread", "--show", "pid,rss,heap")
        for row in json.loads(done.stdout)["rows"]:  # a container shows none
            self.assertNotIn(row["pid"], usual)
            self.assertIsNone(row["rss"])


if __name__ == "__main__":
    unittest.main()
