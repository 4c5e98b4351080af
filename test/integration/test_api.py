"""The HTTP API: every route by its own description, the same figures as the command line, rights, history, events."""

import json
import os
import subprocess
import sys
import unittest

from api_support import MEMOIR, ApiTest, Invalid, Schemas
from daemon_fixture import BUILD, MEMOIRD, NOBODY, Process, as_user
from native_fixture import SOURCE

LEAKS = BUILD / "test/integration/leak_client"
ROOT = unittest.skipUnless(os.getuid() == 0, "needs root to be two users")
BUSY = ("device=Card", "dram=3x5000", "l1=2x100", "pinned=4x1000", "heap=5x200", "ready", "wait")
# Columns of the table lines that do not change by themselves; memoir sites --json calls them the same.
FIGURES = ("bytes", "blocks", "allocated", "allocated_blocks")
QUIET = (*FIGURES, "site", "function", "source_file", "line", "module", "frame", "space", "ordinal", "estimated", "call_sites")


def whole(answer):
    """On a busy machine the time for reading blocks may be over before all of them are read."""
    return answer["rows"] and not answer.get("incomplete")


class RoutesTest(ApiTest):
    def test_every_route_answers_as_it_is_described(self):
        self.api("--history-flush", "1s")
        client = self.client(*BUSY)
        self.eventually(lambda: self.rows("/accounts", where=f"pid={client.pid}"), len, "the client is known")
        asked = set()
        for path, methods in self.description()["paths"].items():
            route = methods.get("get")
            if not route or "login" in path:
                continue
            content = route["responses"]["200"].get("content", {})
            target = path.removeprefix("/api/v1").replace("{pid}", str(client.pid))
            asked.add(path)
            if "schema" not in content.get("application/json", {}):
                self.assertIn(path, ("/api/v1/stream", "/api/v1/processes/{pid}/profile", "/api/v1/openapi.json",
                                     "/api/v1/processes/{pid}/trace/dump"))
                continue
            if path.endswith("/trace"):  # test_trace_api has those that are traced
                self.problem(target, 503, "not-tracing")
                continue
            if path.endswith("/cluster/programs"):  # test_cluster has nodes to compare
                self.problem(target, 409, "no-cluster")
                continue
            if path.endswith("/pinning"):  # of programs that were started by memoir pin run
                self.problem(target, 404, "no-pinning")
                continue
            more = {"what": "system"} if path.endswith("/history") else {}
            more |= {"source": "device"} if path.endswith("/ages") else {}
            names = {p["name"]: p for p in route.get("parameters", [])}
            for shape in ("objects", "arrays") if "shape" in names else (None,):
                answer = self.get(target, **more, **({"shape": shape} if shape else {}))
                try:
                    Schemas(self.description()).check(answer, content["application/json"]["schema"])
                except Invalid as wrong:
                    self.fail(f"{path}: {wrong}")
            head = self.request("HEAD", target + ("?what=system" if more.get("what") else ""))
            self.assertEqual((head.status, head.body), (200 if "ages" not in path else head.status, b""), path)
        self.assertGreaterEqual(len(asked), 24)

    def test_what_makes_no_sense_is_a_problem_that_tells_where(self):
        self.api()
        problem = self.problem("/query", 400, "bad-query", table="host", where="pid=1 and rsss>1GB")
        self.assertEqual((problem["part"], problem["at"], problem["len"]), ("where", 10, 4))
        self.assertIn("did you mean 'rss'", problem["detail"])
        self.assertEqual(self.problem("/query", 400, "bad-query", table="hots")["part"], "table")
        self.assertEqual(self.problem("/devices", 400, "bad-query", sort="-usd")["part"], "sort")
        for target, arguments in (
            ("/processes", {"limit": "many"}), ("/processes", {"shape": "round"}), ("/history", {"what": "weather"}),
            ("/history", {}), ("/processes", {"colour": "red"}), ("/processes/none/sites", {}),
            ("/history", {"what": "process"}), ("/history", {"what": "system", "from": "yesterday"}),
            ("/history", {"what": "system", "from": "100", "to": "50"}),
        ):
            answer = self.get(target, 400, **arguments)
            self.valid(answer, "Problem")
            self.assertTrue(answer["detail"], answer)
        self.problem("/nowhere", 404, "not-found")
        self.problem("/processes/1/tracking", 400, "bad-body", "POST", {"off": True})

    def test_processes_that_are_not_there_or_keep_no_book_are_told_apart(self):
        self.api()
        gone = self.client("ready", "wait")
        gone.kill()
        gone.wait()
        for target in ("", "/sites", "/flame", "/profile", "/ages", "/buffers"):
            self.problem(f"/processes/{gone.pid}{target}", 404, "no-process")
            if target:
                self.problem(f"/processes/{os.getpid()}{target}", 404, "no-book")
        process = self.eventually(lambda: self.valid(self.get(f"/processes/{os.getpid()}"), "Process"),
                                  lambda p: p["process"], "it is in the table")
        self.assertEqual(process["process"]["pid"], os.getpid())
        self.assertEqual(process["accounts"], [])
        self.assertEqual(process["tracking"]["state"], "none")
        problem = self.problem(f"/processes/{os.getpid()}/tracking", 409, "not-tracked", "POST", {"on": False})
        self.assertIn("memoir run", problem["detail"])

    def test_who_one_is_and_what_memoird_takes(self):
        self.api()
        session = self.get("/session")
        self.assertEqual((session["uid"], session["role"], session["by"]), (os.getuid(), "control", "peer"))
        before = self.get("/self")
        self.assertEqual(before["books"]["books"], 0)
        self.client(*BUSY)
        after = self.eventually(lambda: self.get("/self"), lambda s: s["books"]["books"] == 1, "it counts books")
        self.assertGreater(after["http"]["requests"], before["http"]["requests"])
        self.assertGreater(after["loop"]["turns"], 0)
        self.assertGreaterEqual(after["loop"]["lag_max"], after["loop"]["lag_p50"])


class DescriptionTest(ApiTest):
    def test_it_is_printed_as_it_is_served_and_the_page_is_written_from_it(self):
        self.api()
        printed = json.loads(self.run_memoird("--print-api").stdout)
        self.assertEqual(printed, self.description())
        script = SOURCE / "script/api-doc"
        done = subprocess.run([sys.executable, script, "--check", MEMOIRD], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class SameFiguresTest(ApiTest):
    def test_tables_are_those_of_memoir_query(self):
        self.api()
        client = self.client(*BUSY)
        questions = (
            {"table": "processes", "show": "pid,program,user,device,device.dram,heap,pinned,blocks,peak,state"},
            {"table": "accounts", "show": "pid,device,space,bytes,blocks,peak,allocated,freed,source", "sort": "space"},
            {"table": "accounts", "by": "space", "show": "count,bytes,max(peak)", "where": "bytes>500"},
            {"table": "buffers", "show": "pid,space,bytes,id,tag", "sort": "space,id"},
            {"table": "devices", "show": "device,space,used,capacity,percent,blocks,processes"},
            {"table": "host", "show": "pid,parent,uid,heap,blocks,start", "where": f"pid={client.pid}"},
        )
        for question in questions:
            words = [w for key, value in question.items() if key != "table" for w in ("--" + key, value)]
            local = self.memoir("query", question["table"], "--json", "--dir", self.books, *words)
            self.assertTrue(local["rows"], question)
            answer = self.eventually(lambda q=question: self.get("/query", **q), whole, "there are rows")
            for key in ("schema", "table", "columns", "rows", "matched"):
                self.assertEqual(answer[key], local[key], question)
            arrays = self.eventually(lambda q=question: self.get("/query", shape="arrays", **q), whole, "there are rows")
            names = [column["name"] for column in arrays["columns"]]
            marks = {"at_least", "estimate"}
            plain = [{key: value for key, value in row.items() if key not in marks} for row in answer["rows"]]
            self.assertEqual([dict(zip(names, row)) for row in arrays["rows"]], plain)
            for mark in sorted(marks):
                marked = {(i, name) for i, row in enumerate(answer["rows"]) for name in row.get(mark, ())}
                self.assertEqual({(row, names[column]) for row, column in arrays.get(mark, ())}, marked)

    def test_blocks_of_a_process_have_the_names_of_their_sites(self):
        self.api()
        client = self.client(*BUSY)
        self.eventually(lambda: self.rows("/accounts", where=f"pid={client.pid}"), len, "the client is known")
        words = ("--show", "device,space,bytes,id,tag,site,user,program", "--sort", "space,id")
        local = self.memoir("query", "buffers", "--json", "--dir", self.books, *words)
        answer = self.eventually(lambda: self.get(f"/processes/{client.pid}/buffers", show=words[1], sort=words[3]), whole,
                                 "there are blocks")
        self.assertEqual(answer["rows"], local["rows"])
        self.assertIn("client.c", answer["rows"][0]["site"])
        few = self.eventually(lambda: self.get(f"/processes/{client.pid}/buffers", where="space=dram", limit=2, shape="arrays"),
                              whole, "there are blocks")
        self.assertEqual((len(few["rows"]), few["matched"]), (2, 3))
        self.assertEqual(self.problem(f"/processes/{client.pid}/buffers", 400, "bad-query", show="sites")["part"], "show")

    def test_sites_and_stacks_are_those_of_memoir_sites(self):
        self.api()
        client = self.client(program=BUILD / "test/integration/sites_client", ready=False, settings={"MEMOIR_STACKS": "all"})
        client.out.wait("^ready$")
        for i, line in enumerate(("left 1 1000", "left 2 500", "right 3 4000", "inlined 4 96", "device 5 8192", "free 2")):
            client.popen.stdin.write(line + "\n")
            client.popen.stdin.flush()
            client.out.wait("^ok$", i + 1)
        self.eventually(lambda: self.rows("/accounts", where=f"pid={client.pid}"), len, "the client is known")
        lines = f"/processes/{client.pid}/sites"
        local = self.memoir("sites", client.pid, "--json", "--dir", self.books)
        answer = self.valid(self.get(lines), "Table")
        self.assertEqual([{k: s[k] for k in QUIET} for s in answer["rows"]],
                         [{k: s[k] for k in QUIET} for s in local["sites"]])
        for by, columns in (("function", "function"), ("file", "source_file"), ("module", "module"), ("space", "space")):
            local = self.memoir("sites", client.pid, "--json", "--dir", self.books, "--by", by)
            answer = self.valid(self.get(lines, by=columns + ",space,device", show="bytes,blocks,allocated,allocated_blocks"), "Table")
            self.assertEqual(sorted([s[k] for k in FIGURES] for s in answer["rows"]),
                             sorted([s[k] for k in FIGURES] for s in local["sites"]), by)
        local = self.memoir("sites", client.pid, "--json", "--dir", self.books, "--by", "stack")
        stacks = self.valid(self.get(f"/processes/{client.pid}/stacks", show="bytes,functions,places,modules,keys"), "Table")
        self.assertEqual([s["functions"] for s in stacks["rows"]], [s["stack"].split(";") for s in local["sites"]])
        self.assertEqual([s["modules"] for s in stacks["rows"]],
                         [[f["module"] or "" for f in reversed(s["frames"])] for s in local["sites"]])
        top = self.get(lines, limit=1)
        self.assertEqual((len(top["rows"]), top["matched"]), (1, answer_sites(self, client)))
        live_bytes = sum(row["bytes"] for row in self.get(lines)["rows"])
        key = top["rows"][0]["key"]
        through = self.get(f"/processes/{client.pid}/stacks", where=f'keys~"{key}"', show="keys,bytes")["rows"]
        self.assertTrue(through and all(key in row["keys"] for row in through))
        self.assertEqual(self.problem(lines, 400, "bad-query", where="space=")["status"], 400)
        self.assertEqual(self.problem(f"/processes/{client.pid}/flame", 400, "bad-argument", space="heaps")["status"], 400)

        flame = self.valid(self.get(f"/processes/{client.pid}/flame"), "Flame")
        live = flame["values"].index("bytes") + 2
        nodes = flame["nodes"]
        self.assertEqual(nodes[0][live], live_bytes)
        names = [flame["names"][node[1]] for node in nodes]
        self.assertIn("path_left", names)
        for number, node in enumerate(nodes[1:], 1):
            self.assertTrue(0 <= node[0] < number)
        left = names.index("path_left")
        self.assertEqual(nodes[left][live], 1000)
        again = self.get(f"/processes/{client.pid}/flame", space="heap")
        keys = dict(zip(flame["names"], flame["keys"]))
        self.assertEqual({n: keys[n] for n in again["names"]}, dict(zip(again["names"], again["keys"])))
        self.assertEqual(again["nodes"][0][live], live_bytes - 8192)

        folded = self.request("GET", f"/processes/{client.pid}/profile?format=folded")
        self.assertIn("attachment", folded.headers["Content-Disposition"])
        self.assertRegex(folded.body.decode(), r"(?m)^\S+;path_left;ask 1000$")
        self.assertEqual(self.request("GET", f"/processes/{client.pid}/profile").body[:2], b"\x1f\x8b")
        scope = self.get(f"/processes/{client.pid}/profile", format="speedscope")
        self.assertTrue(scope["profiles"])

    def test_blocks_of_devices_by_age_and_size(self):
        self.api()
        client = self.client(*BUSY)
        self.eventually(lambda: self.rows("/accounts", where=f"pid={client.pid}"), len, "the client is known")
        ages = self.valid(self.get(f"/processes/{client.pid}/ages"), "Ages")
        self.assertEqual(ages["source"], "device")
        self.assertEqual((ages["live_blocks"], ages["live"]), (5, 15200))
        size = ages["sizes"].index(4096)
        self.assertEqual(sum(row[size] for row in ages["blocks"]), 3)
        self.assertEqual(sum(row[size] for row in ages["bytes"]), 15000)
        self.problem(f"/processes/{client.pid}/ages", 409, "not-tracked", source="heap")


def answer_sites(test, client):
    return len(test.memoir("sites", client.pid, "--json", "--dir", test.books)["sites"])


class RightsTest(ApiTest):
    @ROOT
    def test_call_sites_blocks_and_commands_are_for_their_owner(self):
        self.api()
        os.chmod(self.http, 0o666)
        mine = self.client(*BUSY)
        (self.books / str(NOBODY)).mkdir(mode=0o700)
        os.chown(self.books / str(NOBODY), NOBODY, NOBODY)
        theirs = self.client(*BUSY, prefix=as_user(NOBODY))
        both = f"pid={mine.pid} or pid={theirs.pid}"
        self.eventually(lambda: self.rows("/accounts", by="pid", where=both), lambda rows: len(rows) == 2, "both are known")

        def other(target, status=200, **options):
            return self.as_other(NOBODY, target, status, **options)

        session = other("/session")
        self.assertEqual((session["uid"], session["sees_all"]), (NOBODY, False))
        rows = {r["pid"]: r for r in other(f"/query?table=processes&show=pid,device,command,exe&where={both}".replace(" ", "%20"))["rows"]}
        self.assertEqual(rows[mine.pid]["device"], rows[theirs.pid]["device"])  # figures are for all
        self.assertEqual((rows[mine.pid]["command"], rows[mine.pid]["exe"]), (None, None))
        self.assertTrue(rows[theirs.pid]["exe"])
        buffers = self.eventually(lambda: other("/buffers"), whole, "he sees blocks")
        self.assertEqual({r["pid"] for r in buffers["rows"]}, {theirs.pid})
        buffers = self.eventually(lambda: self.get("/buffers"), whole, "root sees blocks")
        self.assertEqual({r["pid"] for r in buffers["rows"]}, {mine.pid, theirs.pid})
        process = self.eventually(lambda: other(f"/processes/{mine.pid}"), lambda p: p["process"], "it is in the table")
        self.assertFalse(process["own"])
        self.assertFalse(process["tracking"]["can"])
        self.assertIsNone(process["process"]["command"])
        self.assertTrue(process["accounts"])
        for target in ("sites", "flame", "profile", "ages", "buffers"):
            problem = other(f"/processes/{mine.pid}/{target}", 403)
            self.assertTrue(problem["type"].endswith(":not-yours"), problem)
        self.assertEqual(other(f"/processes/{theirs.pid}/ages")["live_blocks"], 5)
        self.assertEqual(other(f"/processes/{mine.pid}/tracking", 403, method="POST", body={"on": True})["status"], 403)
        # What one is told is not given to the other, however soon he asks.
        self.assertEqual(self.get(f"/processes/{mine.pid}")["own"], True)
        self.assertFalse(other(f"/processes/{mine.pid}")["own"])


    @ROOT
    def test_how_a_process_ended_is_for_its_owner_on_every_surface(self):
        self.api()
        os.chmod(self.http, 0o666)
        mine = self.client(*BUSY)
        (self.books / str(NOBODY)).mkdir(mode=0o700)
        os.chown(self.books / str(NOBODY), NOBODY, NOBODY)
        theirs = self.client(*BUSY, prefix=as_user(NOBODY))
        both = f"pid={mine.pid} or pid={theirs.pid}"
        self.eventually(lambda: self.rows("/accounts", by="pid", where=both), lambda rows: len(rows) == 2, "both are known")
        made = subprocess.run([MEMOIR, "token", "add", "t", "--user", str(NOBODY), "--state", self.state],
                              capture_output=True, text=True, check=True)
        stream = self.stream(headers={"Authorization": f"Bearer {made.stdout.strip()}"})
        stream.wait(lambda e: e["event"] == "hello", "hello")
        roots = self.stream()
        roots.wait(lambda e: e["event"] == "hello", "hello")
        for process in (mine, theirs):
            process.kill()
        wanted = ("went", "killed", "oom")

        def ended(events):
            return {e["pid"]: e for e in events if e["kind"] in wanted}

        def exited(answer):
            return {r["pid"]: r for r in answer["rows"]}

        show = f"/query?table=exited&show=pid,uid,program,cause,kind,signal,exit_code,core,device&where={both}".replace(" ", "%20")
        self.eventually(lambda: self.get(show), lambda a: len(a["rows"]) == 2, "both ended")
        for events in (ended(self.as_other(NOBODY, "/events")["rows"]),
                       ended(stream.wait(lambda e, p=p: e["event"] == "event" and e["data"]["pid"] == p.pid and
                                         e["data"]["kind"] in wanted, "an end")["data"] for p in (mine, theirs))):
            own, foreign = events[theirs.pid], events[mine.pid]
            self.assertEqual((own["kind"], own["program"]), ("killed", "client"))
            self.assertIn("SIGKILL", own["message"])
            self.assertEqual((foreign["kind"], foreign["program"], foreign["message"]),
                             ("went", None, f"PID {mine.pid} of uid 0 ended"))
            self.assertEqual(foreign["bytes"], own["bytes"])  # figures are for all
            self.valid(foreign, "Event")
        rows = exited(self.as_other(NOBODY, show))
        self.assertEqual([rows[theirs.pid][k] for k in ("program", "kind", "signal")], ["client", "signal", 9])
        self.assertEqual([rows[mine.pid][k] for k in ("program", "cause", "kind", "signal", "exit_code", "core")], [None] * 6)
        self.assertEqual(rows[mine.pid]["device"], rows[theirs.pid]["device"])
        found = self.as_other(NOBODY, "/query?table=exited&show=pid&where=program%3Dclient%20and%20signal%3D9")["rows"]
        self.assertEqual([r["pid"] for r in found], [theirs.pid])  # nor can it be found out by asking
        killed = roots.wait(lambda e: e["event"] == "event" and e["data"]["pid"] == mine.pid and
                            e["data"]["kind"] in wanted, "an end")["data"]
        self.assertEqual((killed["kind"], killed["program"]), ("killed", "client"))  # root sees all


    def claim(self, uid, capacity, size=1000):
        """A process of `uid` that claims a capacity for the one device, and holds something there."""
        code = ("import json, socket, sys\n"
                "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); f = s.makefile('rw')\n"
                "def ask(m): f.write(json.dumps(m) + '\\n'); f.flush(); return f.readline()\n"
                f"ask({{'device': 0, 'kind': 'gpu', 'name': 'Card', 'uid': 'GPU-1', 'capacity': {{'dram': {capacity}}}}})\n"
                f"print('ready', ask({{'alloc': {{'device': 0, 'space': 'dram', 'id': 1, 'bytes': {size}}}, 'ack': True}}), flush=True)\n"
                "sys.stdin.read()")
        process = Process([*as_user(uid), sys.executable, "-c", code, self.path])
        self.addCleanup(process.close)
        process.out.wait("^ready")
        return process

    @ROOT
    def test_a_claimed_capacity_is_its_owners_until_root_confirms_it(self):
        self.api("--socket-group", "all")
        show = "/query?table=devices&show=used,capacity,percent,confirmed,disputed&where=space%3Ddram"

        def devices(uid=0):
            rows = (self.get(show) if uid == 0 else self.as_other(uid, show))["rows"]
            return [(r["capacity"], r["confirmed"], r["disputed"]) for r in rows]

        self.claim(4242, 80000)
        self.eventually(devices, lambda d: d == [(80000, False, False)], "the only claim holds")
        liar = self.claim(4243, 1)
        self.eventually(devices, lambda d: d == [(None, False, True)], "a disputed claim holds for nobody else")
        self.eventually(lambda: devices(4242), lambda d: d == [(80000, False, True)], "as uid 4242 sees it")  # but for its own user
        self.eventually(lambda: devices(4243), lambda d: d == [(1, False, True)], "as uid 4243 sees it")
        self.eventually(lambda: devices(4244), lambda d: d == [(None, False, True)], "as uid 4244 sees it")
        shown = subprocess.run([MEMOIR, "devices", "--dir", self.books], capture_output=True, text=True, check=False).stdout
        self.assertIn("capacity disputed", shown)
        larger = self.claim(4244, 1 << 50)
        root = self.claim(0, 90000)
        self.eventually(devices, lambda d: d == [(90000, True, True)], "root confirms")
        self.eventually(lambda: devices(4243), lambda d: d == [(90000, True, True)], "as uid 4243 sees it")
        for process in (liar, larger, root):
            process.kill()
            process.close()
        self.eventually(devices, lambda d: d == [(80000, False, False)], "the dispute is over")


class HistoryTest(ApiTest):
    def test_ranges_have_what_was_held(self):
        self.api("--history-flush", "1s", "--refresh", "100ms")
        client = self.client(*BUSY)

        def history(**arguments):
            return self.valid(self.get("/history", **arguments), "History")

        def series(answer, name):
            return next((s for s in answer["series"] if s["name"] == name), None)

        def known(answer, name):
            found = series(answer, name)
            return found and any(value is not None for value in found["last"])

        answer = self.eventually(lambda: history(what="process", pid=client.pid, **{"from": "-2m"}),
                                 lambda a: known(a, "device.0.dram") and known(a, "pinned") and known(a, "heap"),
                                 "the process has a history")
        self.assertEqual(max(v for v in series(answer, "device.0.dram")["max"] if v), 15000)
        self.assertEqual([v for v in series(answer, "pinned")["last"] if v][-1], 4000)
        self.assertEqual(len(answer["t"]), len(series(answer, "pinned")["last"]))
        self.assertEqual(answer["t"][0], answer["from"])
        self.assertEqual({b - a for a, b in zip(answer["t"], answer["t"][1:])}, {answer["step"]})

        machine = self.eventually(lambda: history(what="system", **{"from": "-1m"}), lambda a: known(a, "total"),
                                  "the machine has a history")
        total = max(v for v in series(machine, "total")["last"] if v)
        self.assertGreater(total, max(v for v in series(machine, "used")["last"] if v))
        identity = self.get("/devices", shape="objects")["rows"][0]["device_id"]
        device = history(what="device", device=identity, **{"from": "-1m"})
        self.assertEqual({s["device_id"] for s in device["series"]}, {identity})
        self.assertEqual({s["ordinal"] for s in device["series"]}, {0})
        self.assertEqual(history(what="device", device="7")["series"], [])
        self.assertTrue(known(history(what="space", **{"from": "-1m"}), "heap"))
        self.problem("/history", 404, "no-process", what="process", pid=2147483000)
        few = history(what="system", points=5, **{"from": "-1h"})
        self.assertLessEqual(len(few["t"]), 6)
        self.assertEqual(few["step"] * len(few["t"]), few["to"] - few["from"])


class EventsTest(ApiTest):
    def test_a_kill_is_told_at_once_and_again_to_who_missed_it(self):
        self.api()
        stream = self.stream()
        hello = stream.wait(lambda e: e["event"] == "hello", "hello")
        self.assertEqual(set(hello["data"]) >= {"node", "version", "session"}, True)
        tick = stream.wait(lambda e: e["event"] == "tick", "a tick")
        self.valid(tick["data"], "Tick")
        self.assertGreater(tick["data"]["system"]["total"], tick["data"]["system"]["free"])
        self.assertGreater(tick["data"]["processes"], 1)
        client = self.client(*BUSY)
        came = stream.wait(lambda e: e["event"] == "event" and e["data"]["kind"] == "came", "that it came")
        self.assertEqual(came["data"]["pid"], client.pid)
        stream.wait(lambda e: e["event"] == "tick" and any(d["used"] for d in e["data"]["devices"]), "a tick with its memory")
        client.kill()
        killed = stream.wait(lambda e: e["event"] == "event" and e["data"]["kind"] == "killed", "that it was killed")
        self.valid(killed["data"], "Event")
        self.assertEqual((killed["data"]["pid"], killed["data"]["program"], killed["data"]["bytes"]),
                         (client.pid, "client", 20200))
        self.assertIn("SIGKILL", killed["data"]["message"])
        self.assertEqual(int(killed["id"]), killed["data"]["seq"])
        stream.wait(lambda e: e["event"] == "tick" and e["data"]["devices"] == [], "a tick without it")

        rows = self.get("/events")["rows"]
        self.assertIn(killed["data"], rows)
        numbers = [row["seq"] for row in rows]
        self.assertEqual(numbers, sorted(numbers, reverse=True))
        after = self.get("/events", where=f"seq>{came['id']}", sort="+seq")["rows"]
        self.assertEqual([row["seq"] for row in after], sorted(n for n in numbers if n > int(came["id"])))
        self.assertEqual(self.get("/events", where=f"seq>{numbers[0]}")["rows"], [])
        show = "seq,time,kind,pid,program,user,uid,bytes,message"
        self.assertEqual(self.get("/query", table="events", where=f"seq>{came['id']}", show=show)["rows"], after)
        past = self.get("/query", table="history", where="of=system", show="series", by="of", since="-1m")
        self.assertGreaterEqual(past["step"], 1)
        self.assertGreaterEqual(self.get("/query", table="history", by="of", until="now")["step"], 1)
        for words in ("until=-1m", "at=-1m&since=-2m", "at=-1m&until=now"):
            self.problem(f"/query?table=host&{words}", 400, "bad-argument")
        self.assertEqual([row["seq"] for row in self.get("/events", limit=1)["rows"]], numbers[:1])

        again = self.stream(headers={"Last-Event-ID": came["id"]})
        replayed = again.wait(lambda e: e["event"] == "event", "what was missed")
        self.assertGreater(int(replayed["id"]), int(came["id"]))
        self.assertEqual(again.wait(lambda e: e.get("id") == killed["id"], "the kill")["data"], killed["data"])
        again.wait(lambda e: e["event"] == "tick", "a tick")
        fresh = self.stream()
        fresh.wait(lambda e: e["event"] == "tick", "a tick")
        self.assertEqual([e for e in fresh.events if e["event"] == "event"], [])

    def test_numbers_of_events_go_on_after_a_restart(self):
        daemon = self.api()
        self.client(*BUSY)
        first = self.eventually(lambda: self.get("/events"), lambda a: a["rows"], "an event")["rows"][0]["seq"]
        daemon.kill()
        daemon.wait()
        self.api()
        later = self.eventually(lambda: self.get("/events", where=f"seq>{first}"), lambda a: a["rows"], "events after it")
        self.assertGreater(later["rows"][0]["seq"], first)


class SuspectsTest(ApiTest):
    def test_a_leak_is_told_with_its_evidence(self):
        self.api("--leaks-interval", "50ms")
        stream = self.stream()
        leak = self.client("leak", "20000000", program=LEAKS, ready=False)
        leak.out.wait("^ready$")
        answer = self.eventually(lambda: self.valid(self.get("/leaks", where=f"pid={leak.pid}"), "Table"),
                                 lambda a: a["rows"] and a["rows"][0]["verdict"] == "leak", "the leak is found")
        suspect = answer["rows"][0]
        self.assertEqual((suspect["function"], suspect["pid"]), ("keep_block", leak.pid))
        self.assertEqual(len(suspect["examples"]), 3)
        self.assertTrue(0 < suspect["confidence"] <= 1)
        self.assertTrue(0 <= suspect["freed_share"] <= 1)
        self.assertTrue(suspect["why"])
        times, values = zip(*suspect["trend"])
        self.assertGreaterEqual(len(times), 36)
        self.assertEqual(times, tuple(sorted(times)))
        self.assertGreater(values[-1], values[0])
        self.assertTrue(answer["watch"]["ready"])
        self.assertEqual(self.get("/leaks", where="pid=1")["rows"], [])
        units = {c["name"]: c["unit"] for c in answer["columns"]}
        self.assertEqual((units["growth"], units["confidence"], units["limit_in"]), ("bytes/s", "fraction", "seconds"))
        # The command that asks memoird has the same rows, but for what was measured a moment later.
        done = subprocess.run([MEMOIR, "leaks", "--socket", self.path, "--dir", self.books, "--json", str(leak.pid)],
                              stdout=subprocess.PIPE, check=True)
        told = json.loads(done.stdout)["rows"][0]
        self.assertEqual(set(told), set(suspect))
        for name in ("pid", "program", "space", "function", "source_file", "line", "frame", "key", "device", "watcher"):
            self.assertEqual(told[name], suspect[name], name)
        event = stream.wait(lambda e: e["event"] == "event" and e["data"]["kind"] == "leak", "the leak")
        self.assertEqual(event["data"]["pid"], leak.pid)
        if os.getuid() == 0:
            os.chmod(self.http, 0o666)
            self.assertEqual(self.as_other(NOBODY, "/leaks")["rows"], [])
            kinds = {e["kind"] for e in self.as_other(NOBODY, "/events")["rows"]}
            self.assertNotIn("leak", kinds)


if __name__ == "__main__":
    unittest.main()
