"""The HTTP API about tracked programs: the switch with its audit, blocks of the heap by age and size."""

import json
import os
import subprocess
import threading
import unittest
import urllib.parse

from api_support import MEMOIR, ApiTest
from daemon_fixture import BUILD, NOBODY, Process, as_user

SITES = BUILD / "test/integration/sites_malloc"


class TrackedTest(ApiTest):
    def tracked(self, program, *options):
        process = Process([MEMOIR, "run", "--quiet", *options, program],
                          env=dict(os.environ, MEMOIR_DIR=str(self.books)))
        self.addCleanup(process.close)
        process.out.wait("^ready$")
        self.eventually(lambda: self.get(f"/processes/{process.pid}")["tracking"]["state"], lambda s: s != "none",
                        "it is tracked")
        return process

    def more(self, process):
        process.popen.stdin.write("\n")
        process.popen.stdin.flush()
        process.out.wait("^more$")

    def heap(self, process):
        accounts = self.get(f"/processes/{process.pid}")["accounts"]
        return next((a["bytes"] for a in accounts if a["space"] == "heap"), 0)

    def switch(self, process, on):
        answer = self.request("POST", f"/processes/{process.pid}/tracking", {"on": on})
        self.assertEqual(answer.status, 200, answer.body)
        return self.valid(answer.json(), "Tracking")

    def audit(self):
        path = self.state / "audit.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def test_a_program_can_begin_suspended_and_be_switched_on(self):
        daemon = self.api()
        stream = self.stream()
        process = self.tracked(SITES, "--suspended")
        tracking = self.get(f"/processes/{process.pid}")["tracking"]
        self.assertEqual((tracking["state"], tracking["can"], tracking["source"]), ("suspended", True, "malloc"))
        before = self.heap(process)
        self.assertEqual(before, 0)  # of 4 MB that it took so far
        self.assertEqual(self.switch(process, True), {"pid": process.pid, "state": "on", "changed": True})
        self.assertEqual(self.switch(process, True)["changed"], False)
        event = stream.wait(lambda e: e["event"] == "event" and e["data"]["kind"] == "tracking", "the switch")
        self.assertEqual(event["data"]["pid"], process.pid)
        self.more(process)
        self.eventually(lambda: self.heap(process), lambda n: n >= before + 500_000, "what came after is counted")
        line = daemon.err.wait(rf"tracking of PID {process.pid} on")
        self.assertIn("root" if os.getuid() == 0 else str(os.getuid()), line)
        actions = self.eventually(self.audit, lambda a: len(a) == 2, "both are in the audit")
        self.assertEqual(actions[0]["what"], f"tracking of PID {process.pid} on")
        self.assertEqual(actions[0]["status"], 200)

    def test_off_counts_nothing_until_it_is_on_again_also_after_a_restart(self):
        daemon = self.api()
        process = self.tracked(SITES)
        held = self.eventually(lambda: self.heap(process), lambda n: n >= 3_000_000, "its heap is known")
        self.assertEqual(self.switch(process, False)["state"], "suspended")
        daemon.kill()
        daemon.wait()
        self.api()
        self.eventually(lambda: self.get(f"/processes/{process.pid}")["tracking"]["state"], lambda s: s == "suspended",
                        "it is still suspended")
        self.more(process)
        self.assertLess(self.eventually(lambda: self.heap(process), lambda n: n > 0, "its heap"), held + 100_000)
        self.assertEqual(self.switch(process, True)["state"], "on")

    def test_live_blocks_of_the_heap_by_age_and_size(self):
        self.api()
        process = self.tracked(SITES)
        self.eventually(lambda: self.heap(process), lambda n: n >= 3_000_000, "its heap is known")
        ages = self.valid(self.get(f"/processes/{process.pid}/ages"), "Ages")
        if not ages["searched"]:
            self.skipTest("the memory of other processes cannot be read here")
        self.assertEqual((ages["source"], ages["complete"]), ("heap", True))
        (account,) = self.get(f"/processes/{process.pid}")["accounts"]
        self.assertEqual((ages["live_blocks"], ages["live"]), (account["blocks"], account["bytes"]))
        column = ages["sizes"].index(256)
        self.assertEqual(sum(row[column] for row in ages["blocks"]), 3000)  # of 1,000 bytes each
        self.assertEqual(sum(map(sum, ages["blocks"])), ages["live_blocks"])
        self.assertEqual(sum(map(sum, ages["bytes"])), ages["live"])

    def test_a_scan_finds_what_the_command_line_finds(self):
        self.api()
        process = Process([MEMOIR, "run", "--quiet", BUILD / "test/leaks/leak_aligned_lost", "5"],
                          env=dict(os.environ, MEMOIR_DIR=str(self.books)))
        self.addCleanup(process.close)
        process.out.wait("warm")  # it lost 300 blocks, and goes on

        def local():
            return self.memoir("leaks", "--scan", process.pid, "--json", "--dir", self.books)

        before = local()
        answer = self.eventually(lambda: self.request("POST", f"/processes/{process.pid}/scan", {}),
                                 lambda a: a.status != 404, "memoird knows its book")
        scan, after = self.valid(answer.json(), "Scan"), local()
        self.assertGreaterEqual(before["lost"]["blocks"], 290)
        self.assertLessEqual(before["lost"]["blocks"], scan["lost"]["blocks"])
        self.assertLessEqual(scan["lost"]["blocks"], after["lost"]["blocks"])
        keys = ("state", "site", "function", "frame")
        self.assertEqual({k: scan["sites"][0][k] for k in keys}, {k: before["sites"][0][k] for k in keys})
        self.assertIn("step", scan["sites"][0]["function"])
        self.assertEqual(self.audit()[-1]["what"], f"scan of PID {process.pid}")
        own = self.problem(f"/processes/{os.getpid()}/scan", 404, "no-book", "POST", {})
        self.assertIn("memoir run", own["detail"])

    @unittest.skipUnless(os.getuid() == 0, "needs root")
    def test_a_scan_by_its_user_and_by_none_other(self):
        self.api()
        os.chmod(self.http, 0o666)
        os.chmod(self.books, 0o1777)
        theirs = Process([*as_user(NOBODY), MEMOIR, "run", "--quiet", SITES],
                         env=dict(os.environ, MEMOIR_DIR=str(self.books)))
        self.addCleanup(theirs.close)
        theirs.out.wait("^ready$")
        mine = self.tracked(SITES)
        self.eventually(lambda: self.get(f"/processes/{theirs.pid}")["tracking"]["state"], lambda s: s == "on", "it is tracked")
        scan = self.as_other(NOBODY, f"/processes/{theirs.pid}/scan", method="POST", body={})  # by the broker
        self.assertGreater(scan["reachable"]["blocks"], 2000)
        self.assertEqual(self.as_other(NOBODY, f"/processes/{mine.pid}/scan", 403, method="POST", body={})["type"],
                         "urn:memoir:problem:not-yours")

    def sums(self, explained):
        self.assertEqual(sum(part["bytes"] for part in explained["parts"]), explained["rss"])
        return self.valid(explained, "Explain")

    def test_resident_memory_is_explained_with_a_book_and_without(self):
        self.api()
        process = self.tracked(SITES)
        self.eventually(lambda: self.heap(process), lambda n: n >= 3_000_000, "its heap is known")
        told = self.sums(self.get(f"/processes/{process.pid}/explain"))
        self.assertEqual(told["live"], self.heap(process))
        self.assertEqual(sum(site["bytes"] for site in told["sites"]) + told["others"]["bytes"], told["kinds"]["heap"])
        self.assertIn("ask", told["sites"][0]["site"])
        told = self.sums(self.get(f"/processes/{os.getpid()}/explain"))
        self.assertEqual((told["sites"], told["live"]), (None, None))
        self.assertGreater(told["kinds"]["file"], 1_000_000)
        gone = Process(["sleep", "600"])
        gone.close()
        self.problem(f"/processes/{gone.pid}/explain", 404, "no-process")

    def test_its_parts_are_rows_of_a_table_here_and_at_the_command_line(self):
        self.api()
        process = self.tracked(SITES)
        self.eventually(lambda: self.heap(process), lambda n: n >= 3_000_000, "its heap is known")
        def of(rows):
            return {(row["kind"], row["part"]) for row in rows if row["bytes"] >= 65536}
        here = self.get("/query", table="explain", where=f"pid={process.pid}", show="kind,part,bytes,rss")["rows"]
        document = self.get(f"/processes/{process.pid}/explain")
        parts = [part for part in document["parts"] if part["kind"] != "heap"]
        parts += [{"kind": "heap", "name": site["site"], "bytes": site["bytes"]} for site in document["sites"]]
        parts += [{"kind": "heap", "name": "other call sites", "bytes": document["others"]["bytes"]}]
        there = self.memoir("query", "explain", "--where", f"pid={process.pid}", "--show", "kind,part,bytes,rss", "--json",
                            "--dir", self.books)["rows"]
        self.assertEqual(sum(row["bytes"] for row in here), here[0]["rss"])
        self.assertIn("ask", max((row for row in here if row["kind"] == "heap"), key=lambda row: row["bytes"])["part"])
        self.assertEqual(of(here), of(there))
        self.assertEqual(of(here), {(part["kind"], part["name"]) for part in parts if part["bytes"] >= 65536})
        for where in ("", "program=bash", f"pid={process.pid} or rss>0", f"pid!={process.pid}"):
            told = self.problem(f"/query?table=explain&where={urllib.parse.quote(where)}", 400, "bad-query")
            self.assertIn("needs pid=NUMBER", told["detail"])

    def test_the_number_of_a_thread_is_no_process(self):
        self.api()
        done = threading.Event()
        thread = threading.Thread(target=done.wait)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(done.set)
        self.assertEqual(self.get("/query", table="explain", where=f"pid={thread.native_id}")["rows"], [])
        self.problem(f"/processes/{thread.native_id}/explain", 404, "no-process")

    @unittest.skipUnless(os.getuid() == 0, "needs root")
    def test_only_its_user_and_root_see_where_the_memory_goes(self):
        self.api()
        os.chmod(self.http, 0o666)
        theirs = Process([*as_user(NOBODY), "sleep", "600"])
        self.addCleanup(theirs.close)
        self.sums(self.get(f"/processes/{theirs.pid}/explain"))
        told = self.sums(self.as_other(NOBODY, f"/processes/{theirs.pid}/explain"))  # by the broker
        self.assertEqual(told["program"], "sleep")
        self.assertGreater(told["rss"], 100_000)
        self.assertEqual(self.as_other(NOBODY, f"/processes/{os.getpid()}/explain", 403)["type"],
                         "urn:memoir:problem:not-yours")
        both = f"/query?table=explain&by=pid&where=pid%3D{theirs.pid}%20or%20pid%3D{os.getpid()}"
        self.assertEqual({row["pid"] for row in self.get(both)["rows"]}, {theirs.pid, os.getpid()})
        self.assertEqual([row["pid"] for row in self.as_other(NOBODY, both)["rows"]], [theirs.pid])
        refused = subprocess.run([*as_user(NOBODY), MEMOIR, "query", "explain", "--where", f"pid={os.getpid()}"],
                                 capture_output=True, text=True, check=False)
        self.assertIn("the mappings of some processes could not be read", refused.stderr)

    def test_figures_are_those_of_the_command_line(self):
        self.api()
        process = self.tracked(SITES, "--stacks", "all")
        self.eventually(lambda: self.heap(process), lambda n: n >= 3_000_000, "its heap is known")
        local = self.memoir("sites", process.pid, "--json", "--dir", self.books, "--by", "stack")
        answer = self.valid(self.get(f"/processes/{process.pid}/stacks",
                                     show="bytes,blocks,allocated,allocated_blocks,functions,estimated"), "Table")
        keys = ("bytes", "blocks", "allocated", "allocated_blocks", "estimated")
        self.assertEqual([[s[k] for k in keys] + [";".join(s["functions"])] for s in answer["rows"]],
                         [[s[k] for k in keys] + [s["stack"]] for s in local["sites"]])
        stacks = {s["functions"][-2]: s["bytes"] for s in answer["rows"] if s["functions"][-1] == "ask"}
        self.assertEqual(stacks, {"path_left": 2_250_000, "path_right": 750_000})
        folded = subprocess.run([MEMOIR, "flame", str(process.pid), "--dir", self.books, "--export", "folded"],
                                capture_output=True, text=True, check=True)
        profile = self.request("GET", f"/processes/{process.pid}/profile?format=folded").body.decode()
        self.assertEqual(sorted(profile.splitlines()), sorted(folded.stdout.splitlines()))


if __name__ == "__main__":
    unittest.main()
