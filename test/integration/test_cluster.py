"""Nodes of a cluster: they find each other, answer for each other, and say who is missing."""

import ctypes
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

from cluster_support import (ACK, ASK, BYE, FOREIGN, REFUSE, ClusterTest, Speaker, ask, free_port, hello, message, nonce_of,
                             reply, rows, text, varint)
from api_support import Schemas
from daemon_fixture import BUILD, NOBODY, SANITIZED, as_user, crowded, needs_root

LANDLOCK_CREATE_RULESET = 444  # a system call; asm-generic/unistd.h


class Questions(ClusterTest):
    def test_programs_over_all_nodes(self):
        _, nodes = self.three()
        for i, node in enumerate(nodes):
            for _ in range(i + 1):
                node.client("device=D", f"dram={i + 1}x1000", "ready", "wait")
        n1 = nodes[0]
        question = dict(by="program", show="device.dram,count", scope="cluster")
        self.wait_until(lambda: rows(n1.query(**question)) ==
                        [{"program": "client", "device.dram": 1000 + 4000 + 9000, "count": 6}], "all are counted")
        for node in nodes:  # any node answers the same
            by_node = {row["node"]: row["device.dram"]
                       for row in rows(node.query(by="program,node", show="device.dram", scope="cluster"))}
            self.assertEqual(by_node, {"n1": 1000, "n2": 4000, "n3": 9000})
        answer = n1.query(by="node", show="device.dram", node="n3")
        self.assertEqual(rows(answer), [{"node": "n3", "device.dram": 9000}])
        self.assertEqual((answer["cluster"]["expected"], answer["cluster"]["answered"]), (1, 1))
        status, body = n1.get("/api/v1/query?by=program,node&show=device.dram&scope=cluster&sort=-device.dram")
        self.assertEqual(status, 200)
        self.assertEqual([row["node"] for row in body["rows"]], ["n3", "n2", "n1"])
        self.assertEqual(body["cluster"]["answered"], 3)
        status, body = n1.get("/api/v1/processes?show=node,pid,rss&node=n2&limit=2")
        self.assertEqual({row["node"] for row in body["rows"]}, {"n2"})
        status, body = n1.get("/api/v1/cluster/programs?measure=device")
        description = n1.get("/api/v1/openapi.json")[1]
        Schemas(description).check(body, {"$ref": "#/components/schemas/ClusterPrograms"})
        self.assertEqual((status, body["measure"]), (200, "device"))

        def held():  # the table of all processes comes a moment later than the books
            programs = n1.get("/api/v1/cluster/programs?measure=device")[1]["programs"]
            return {n["node"]: n["value"] for p in programs if p["program"] == "client" for n in p["nodes"]}

        self.wait_until(lambda: held() == {"n1": 1000, "n2": 4000, "n3": 9000}, f"each node has its own: {held()}")
        told = n1.memoir("cluster", "programs", "--limit", 1, "--json", "--socket", n1.socket)
        cut = json.loads(told.stdout)
        self.assertEqual(len(cut["programs"]), 1, told.stderr)
        self.assertGreater(cut["programs_total"], 1)  # of all, not of those that are shown
        status, body = n1.get("/api/v1/cluster/programs?where=rsss%3E1")
        self.assertEqual((status, body["part"]), (400, "where"))
        status, body = n1.get("/api/v1/query?node=nowhere")
        self.assertEqual((status, body["type"]), (404, "urn:memoir:problem:no-node"))

    def test_leaks_of_another_node_are_its_own(self):
        _, (n1, n2, _) = self.three()
        n2.client("device=D", "dram=4x1000", "ready", "wait")

        def watched(query=""):
            status, body = n1.get("/api/v1/leaks" + query)
            self.assertEqual(status, 200, body)
            return body["watch"]["books"]

        self.wait_until(lambda: watched("?node=n2") == 1, "n2 watches its client")
        self.assertEqual(watched(), 0)
        self.assertEqual(watched("?node=n1"), 0)
        self.assertEqual(n1.get("/api/v1/leaks?scope=cluster")[1]["cluster"]["expected"], 3)

    def test_invalid_question_is_refused_here(self):
        _, (n1, _, _) = self.three()
        error = n1.ask({"query": {"show": "rsss", "scope": "cluster"}})["error"]
        self.assertEqual((error["code"], error["part"]), ("bad-query", "show"))
        self.assertEqual(n1.get("/api/v1/query?show=rsss&scope=cluster")[0], 400)

    def test_clients_that_go_leave_nothing_behind(self):
        _, (n1, _, n3) = self.three()
        os.kill(n3.process.pid, signal.SIGSTOP)
        try:
            for _ in range(300):  # more than may be out at once
                s = socket.socket(socket.AF_UNIX)
                s.connect(str(n1.socket))
                s.sendall(b'{"query":{"table":"system","scope":"cluster"}}\n')
                s.close()
        finally:
            os.kill(n3.process.pid, signal.SIGCONT)
        # A busy memoird may not have seen yet that they are gone.
        question = {"query": {"table": "system", "scope": "cluster"}}
        self.wait_until(lambda: n1.ask(question).get("cluster", {}).get("answered") == 3, "it works on")


    @needs_root
    def test_one_user_cannot_take_all_questions(self):
        nats = self.nats()
        n1 = self.node("n1", nats.url, "--socket-group", "all")
        speaker = Speaker(nats.port)
        self.addCleanup(speaker.close)
        speaker.subscribe("memoir.1.ask.*")
        speaker.publish(f"memoir.1.beat.{FOREIGN}", hello("slow"))
        self.wait_until(lambda: n1.states().get("slow") == "alive", "it is a member")
        to = f"memoir.1.re.{n1.status()['self']}.{FOREIGN}"

        def acknowledge():  # and never answer: such a question is open until its deadline
            try:
                while True:
                    subject, _, data = speaker.next()
                    if subject.startswith("memoir.1.ask."):
                        speaker.publish(to, message(ACK, nonce_of(data)))
            except (EOFError, OSError, ValueError):
                pass

        threading.Thread(target=acknowledge, daemon=True).start()
        question = json.dumps({"query": {"table": "system", "scope": "cluster"}})
        code = ("import socket,sys\nall=[]\nfor i in range(int(sys.argv[3])):\n s=socket.socket(socket.AF_UNIX)\n s.connect(sys.argv[1])\n"
                " s.sendall(sys.argv[2].encode()+b'\\n')\n all.append(s.makefile())\nfor f in all: sys.stdout.write(f.readline())")

        def asked(times, user):
            return subprocess.Popen([*user, sys.executable, "-c", code, n1.socket, question, str(times)],
                                    stdout=subprocess.PIPE, text=True)

        greedy = asked(250, as_user(NOBODY))
        self.wait_until(lambda: n1.status()["figures"]["asked"] >= 100, "they are out")
        others = asked(20, [])
        answers = [json.loads(line) for line in greedy.communicate()[0].splitlines()]
        refused = [a["error"] for a in answers if "error" in a]
        self.assertLessEqual({(e["code"], e["message"]) for e in refused},
                             {("limit", "you have too many questions to the cluster open: wait for their answers")})
        if not SANITIZED:  # there, questions may be over before there are too many of them
            self.assertGreater(len(refused), 50)
        answers = [json.loads(line) for line in others.communicate()[0].splitlines()]
        self.assertEqual([a["error"] for a in answers if "error" in a], [])
        self.assertEqual(len(answers), 20)


class Versions(ClusterTest):
    """Members of another version, played by the test."""

    def test_a_member_without_a_column_answers_without_it(self):
        nats, (n1, n2, _) = self.three()
        own, other = n1.status()["self"], n2.status()["self"]
        speaker = Speaker(nats.port)
        self.addCleanup(speaker.close)
        # What n2 sends when it is asked for fewer columns is what an older version sends.
        speaker.subscribe(f"memoir.1.re.{own}.{other}")
        speaker.ready()
        n1.query(table="system", by="node", show="total", scope="cluster")
        body = None
        while body is None or body[3] == ACK:
            _, _, body = speaker.next()
        speaker.subscribe("memoir.1.ask.*")
        speaker.publish(f"memoir.1.beat.{FOREIGN}", hello("old", version="0.0.9"))
        self.wait_until(lambda: n1.states().get("old") == "alive", "it is a member")
        self.assertEqual(n1.members()["old"]["version"], "0.0.9")

        def play():
            while True:
                subject, _, data = speaker.next()
                if subject == f"memoir.1.ask.{own}":
                    speaker.publish(f"memoir.1.re.{own}.{FOREIGN}", body[:4] + nonce_of(data) + body[20:])
                    return

        thread = threading.Thread(target=play)
        thread.start()
        answer = n1.query(table="system", by="node", show="total,used", scope="cluster")
        thread.join()
        self.assertEqual(answer["cluster"]["answered"], 4)
        self.assertEqual(answer["cluster"]["lacking"], [{"node": "old", "version": "0.0.9", "columns": ["used"]}])
        by_node = {row["node"]: row for row in rows(answer)}
        self.assertIsNone(by_node["old"]["used"])
        self.assertEqual(by_node["old"]["total"], by_node["n2"]["total"])
        self.assertIsNotNone(by_node["n2"]["used"])

    def test_what_later_versions_may_send(self):
        nats, (n1, _, _) = self.three()
        own = n1.status()["self"]
        speaker = Speaker(nats.port)
        self.addCleanup(speaker.close)
        speaker.subscribe(f"memoir.1.re.{FOREIGN}.*")
        # Further fields are ignored.
        speaker.publish(f"memoir.1.beat.{FOREIGN}", hello("new", watch_ms=0) + b"more fields")
        self.wait_until(lambda: n1.states().get("new") == "alive", "it is a member")
        self.assertEqual(n1.status()["figures"]["rejected"], 0)
        # A question of a kind that this version does not know is refused, with a reason.
        speaker.publish(f"memoir.1.to.{own}.{FOREIGN}", ask(os.urandom(16), "", 0, b"?", what=9))
        _, _, answer = speaker.next()
        self.assertEqual(answer[3], REFUSE)
        self.assertIn(b"another version", answer)
        # Messages of another layout, or of a kind that is not known, are counted and change nothing.
        speaker.publish(f"memoir.1.beat.{FOREIGN}", b"MC\x02\x01" + b"x" * 40)
        speaker.publish(f"memoir.1.beat.{FOREIGN}", b"MC\x01\x63")
        self.wait_until(lambda: n1.status()["figures"]["rejected"] == 2, "they are counted")
        self.assertEqual(n1.states()["new"], "alive")


class Past(ClusterTest):
    """Each node answers from its own history; points of one time are added up."""

    def test_the_past_of_all_nodes(self):
        nats = self.nats()
        n1, n2 = (self.node(name, nats.url, "--history-flush", "100ms") for name in ("n1", "n2"))
        self.wait_until(lambda: len(n1.states()) == 2, "both are members")
        question = "table=history&where=of%3Dsystem%20and%20series%3Dtotal&since=-30s&points=15"

        def points():
            status, body = n1.get(f"/api/v1/query?{question}&by=series&show=points,count&scope=cluster")
            self.assertEqual((status, body["cluster"]["answered"]), (200, 2), body)
            return body["rows"][0]["points"] if body["rows"] and body["rows"][0]["count"] == 2 else []

        def own(node):
            rows_ = node.get(f"/api/v1/query?{question}&show=points")[1]["rows"]
            return rows_[0]["points"] if rows_ else []

        self.wait_until(lambda: len(points()) >= 2 and len(own(n1)) and len(own(n2)), "both have written some")
        together, one, two = dict(map(tuple, points())), dict(map(tuple, own(n1))), dict(map(tuple, own(n2)))
        common = [t for t in together if t in one and t in two and t < max(together)]
        self.assertTrue(common)
        for t in common:
            self.assertEqual(together[t], one[t] + two[t])
        # Each step counts its nodes.
        counted = n1.get(f"/api/v1/query?{question}&by=of&show=points,step_nodes&scope=cluster")[1]["rows"][0]
        nodes = dict(map(tuple, counted["step_nodes"]))
        self.assertEqual(set(nodes), {t for t, _ in counted["points"]})
        self.assertEqual({nodes[t] for t in common}, {2})
        alone = n1.get(f"/api/v1/query?{question}&by=of&show=step_nodes")[1]["rows"][0]["step_nodes"]
        self.assertEqual({n for _, n in alone}, {1})
        times = sorted(together)
        step = min(b - a for a, b in zip(times, times[1:]))
        self.assertTrue(all(t % step == 0 for t in times), times)  # aligned to 1970
        # A time is needed; and a node that keeps no history says so.
        n3 = self.node("n3", nats.url, "--history=no")
        self.wait_until(lambda: len(n1.states()) == 3, "n3 is a member")
        answer = n1.get(f"/api/v1/query?{question}&by=node&show=count&scope=cluster")[1]
        self.assertEqual([(m["node"], m["why"]) for m in answer["cluster"]["missing"]], [("n3", "it keeps no history")])
        answer = n1.query(table="history", by="node", show="count", scope="cluster")
        self.assertEqual(answer["cluster"]["answered"], 0)
        place = dict(os.environ, XDG_RUNTIME_DIR=str(n1.folder))
        (n1.folder / "memoird.sock").symlink_to(n1.socket)
        shown = n1.memoir("history", "--cluster", "--system", "--since", "1m", "--by", "node", "--show", "count", env=place)
        self.assertRegex(shown.stdout, "n2 +[0-9]+", shown.stderr)
        self.assertIn("n3 (it keeps no history)", shown.stderr)
        self.tables_of_the_past(n1, place)

    def tables_of_the_past(self, n1, place):
        """Tables as they were, of all nodes: one step for all, and each counts its nodes."""
        body = n1.get("/api/v1/system?since=-20s&points=4&by=time&show=total,used,nodes&scope=cluster")[1]
        self.assertEqual((body["cluster"]["answered"], body["table"]), (2, "system_past"))
        total = n1.get("/api/v1/system?show=total")[1]["rows"][0]["total"]
        both = [row for row in body["rows"] if row["nodes"] == 2]
        self.assertTrue(both, body["rows"])
        self.assertEqual({row["total"] for row in both}, {2 * total})
        rows_ = n1.get("/api/v1/query?table=host&since=-20s&points=4&by=node&show=count,rss,nodes&scope=cluster")[1]["rows"]
        self.assertEqual({row["node"] for row in rows_}, {"n1", "n2"})  # groups are by time, too
        self.assertLessEqual({row["time"] for row in both} - {row["time"] for row in rows_}, {max(row["time"] for row in both)})
        status, problem = n1.get("/api/v1/buffers?at=-10s&scope=cluster")
        self.assertEqual(status, 400)
        self.assertIn("is not recorded", problem["detail"])
        shown = n1.memoir("top", "--cluster", "--at", "5s", "--by", "node", "--show", "count,rss", env=place)
        self.assertRegex(shown.stdout, "n2 +[0-9]+", shown.stderr)
        shown = n1.memoir("query", "system", "--node", "n2", "--since", "20s", "--show", "node,time,total", "--json", env=place)
        self.assertEqual({row["node"] for row in json.loads(shown.stdout)["rows"]}, {"n2"})


class Hostile(ClusterTest):
    """A member that lies, at a server that lets it."""

    def begin(self):
        nats, (n1, n2, n3) = self.three()
        speaker = Speaker(nats.port)
        self.addCleanup(speaker.close)
        self.speaker, self.n1 = speaker, n1
        speaker.subscribe("memoir.1.ask.*")
        speaker.publish(f"memoir.1.beat.{FOREIGN}", hello("liar"))
        self.wait_until(lambda: n1.states().get("liar") == "alive", "the liar is a member")
        return n1, n2, n3

    def answer_with(self, make):
        """n1's answer when the liar answers by these messages."""
        done = []

        def play():
            _, _, ask = self.speaker.next()
            for subject, data in make(ask):
                self.speaker.publish(subject, data)
            done.append(True)

        thread = threading.Thread(target=play)
        thread.start()
        answer = self.n1.query(table="system", by="node", show="total", scope="cluster")
        thread.join()
        self.assertTrue(done)
        return answer

    def missing(self, answer):
        return {m["node"]: m["why"] for m in answer["cluster"]["missing"]}

    def test_malformed_and_oversized_answers_are_rejected(self):
        n1, _, _ = self.begin()
        to = f"memoir.1.re.{n1.status()['self']}.{FOREIGN}"
        for body in (b"", b"MPQ\x02", b"MPQ\x02" + b"\xff" * 1000, os.urandom(100000)):
            answer = self.answer_with(lambda ask, b=body: [(to, reply(nonce_of(ask), b))])
            self.assertEqual(self.missing(answer), {"liar": "its answer was invalid"})
            self.assertEqual({row["node"] for row in rows(answer)}, {"n1", "n2", "n3"})
        answer = self.answer_with(lambda ask: [(to, reply(nonce_of(ask), b"x" * 800000, i, 16)) for i in range(12)])
        self.assertEqual(self.missing(answer), {"liar": "its answer was too large"})
        self.assertEqual(n1.members()["liar"]["rejected"], 5)
        before = n1.status()["figures"]["rejected"]
        for data in (b"", b"MC", os.urandom(500), message(ASK), b"MC\x01\x63"):
            self.speaker.publish(to, data)
            self.speaker.publish(f"memoir.1.beat.{FOREIGN}", data)
        self.wait_until(lambda: n1.status()["figures"]["rejected"] >= before + 10, "they are counted")
        self.assertEqual(n1.query(table="system", scope="cluster", node="n2")["cluster"]["answered"], 1)

    def test_a_large_answer_does_not_make_other_nodes_look_silent(self):
        n1, _, _ = self.begin()
        to = f"memoir.1.re.{n1.status()['self']}.{FOREIGN}"
        # The head of a partial result with one column, a number, and rows in which it is not known: they take long to read.
        head = b"MPQ\x02" + text("processes") + text("") * 4 + varint(0) * 2 + text("liar") + varint(0) * 2 \
            + varint(0) + varint(1) + text("pid") + varint(1) + varint(0) * 5
        body = head + varint(7_000_000) + bytes(7_000_000)
        part = 800_000
        parts = -(-len(body) // part)

        def play():
            _, _, ask = self.speaker.next()
            self.speaker.publish(to, message(ACK, nonce_of(ask)))
            for i in range(parts):
                self.speaker.publish(to, reply(nonce_of(ask), body[i * part:(i + 1) * part], i, parts))

        answered = []

        def large():
            answer = n1.query(table="processes", show="pid", sort="pid", limit=10, scope="cluster")
            answered.append((answer["cluster"]["answered"], self.missing(answer)))

        for _ in range(3):
            threads = [threading.Thread(target=f) for f in (play, large)]
            for thread in threads:
                thread.start()
            while threads[1].is_alive():
                answer = n1.query(table="system", show="total", node="n2")
                self.assertEqual(self.missing(answer), {})
            for thread in threads:
                thread.join()
        self.assertEqual(answered, [(4, {})] * 3)

    def test_coming_and_going_does_not_fill_the_log(self):
        n1, _, _ = self.begin()
        for _ in range(200):
            self.speaker.publish(f"memoir.1.beat.{FOREIGN}", message(BYE))
            self.speaker.publish(f"memoir.1.beat.{FOREIGN}", hello("liar", first=0))
        self.speaker.publish(f"memoir.1.beat.{FOREIGN}", hello("end", first=0))
        self.wait_until(lambda: "end" in n1.states(), "all was heard")
        self.assertLess(sum("node liar" in line for line in n1.process.err.lines), 30)

    def test_claiming_to_be_another_node(self):
        n1, n2, _ = self.begin()
        # What n2 really sends, sent again by the liar under its own name: its rows are the liar's.
        listener = Speaker(int(self.speaker.socket.getpeername()[1]))
        self.addCleanup(listener.close)
        listener.subscribe(f"memoir.1.re.{n1.status()['self']}.{n2.status()['self']}")
        listener.publish("x", b"")
        thread = threading.Thread(target=self.speaker.next)
        thread.start()
        n1.query(table="system", by="node", show="total", scope="cluster")
        thread.join()
        _, _, stolen = listener.next()
        while stolen[3] == ACK:
            _, _, stolen = listener.next()
        to = f"memoir.1.re.{n1.status()['self']}.{FOREIGN}"
        answer = self.answer_with(lambda ask: [(to, stolen[:4] + nonce_of(ask) + stolen[20:])])
        self.assertEqual(sorted(row["node"] for row in rows(answer)), ["liar", "n1", "n2", "n3"])
        self.assertEqual(answer["cluster"]["answered"], 4)


class Private(ClusterTest):
    """The server that memoir cluster init starts beside memoird."""

    def command(self, node, *words):
        options = ["--state", node.state, "--socket", node.socket] if words[0] != "status" else ["--socket", node.socket]
        done = node.memoir("cluster", *words, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def init(self):
        n1 = self.node("n1", None, ready=False)
        self.port = free_port()
        line = self.command(n1, "init", "--listen", f"127.0.0.1:{self.port}", "--advertise", "127.0.0.1")
        n1.process.err.wait("connected to the cluster")
        return n1, line.split()[-1]

    def join(self, name, url):
        node = self.node(name, None, ready=False)
        self.command(node, "join", url)
        node.process.err.wait("connected to the cluster")
        return node

    def test_init_join_invite_leave(self):
        n1, url = self.init()
        n2 = self.join("n2", url)
        n3 = self.join("n3", self.command(n1, "invite", "--advertise", "127.0.0.1").split()[-1])
        for node in (n1, n2, n3):
            self.wait_until(lambda n=node: n.states() == {"n1": "alive", "n2": "alive", "n3": "alive"}, "all are members")
        self.assertEqual(len({m["id"] for m in n2.members().values()}), 3)
        self.assertEqual(n3.query(table="system", show="total", scope="cluster")["cluster"]["answered"], 3)
        # The server tells of a death at once.
        n3.process.kill(signal.SIGKILL)
        n3.process.wait()
        self.assertLess(self.wait_until(lambda: n1.states()["n3"] == "unreachable", "n3 is unreachable"), crowded(1))
        # A node that is started again is in the cluster again.
        n3.start()
        self.wait_until(lambda: n1.states()["n3"] == "alive", "n3 is back")
        self.command(n2, "leave")
        self.wait_until(lambda: n1.states()["n2"] == "left", "n2 left")
        self.assertEqual(n2.status()["state"], "none")
        # memoird is killed, its server is not, and is taken over.
        n1.process.kill(signal.SIGKILL)
        n1.process.wait()
        self.assertEqual(n3.status()["state"], "connected")
        n1.start()
        self.assertTrue(any("took over the cluster's nats-server" in line for line in n1.process.err.lines))
        self.command(n1, "leave")
        self.wait_until(lambda: n3.status()["state"] != "connected", "the server stopped")

    def test_join_by_standard_input(self):
        n1, _ = self.init()
        line = self.command(n1, "invite", "--advertise", "127.0.0.1")
        n2 = self.node("n2", None, ready=False)
        words = ["cluster", "join", "-", "--state", n2.state, "--socket", n2.socket]
        self.assertIn("invalid line on standard input", n2.memoir(*words, input="nonsense\n").stderr)
        self.assertEqual(n2.memoir(*words, input=line).returncode, 0)
        n2.process.err.wait("connected to the cluster")

    def test_the_server_has_no_rights_beyond_its_own_folder(self):
        """It listens to the network, and memoird may be root's."""
        n1, _ = self.init()
        pid = int((pathlib.Path(n1.state) / "cluster/nats.pid").read_text())
        status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
        self.assertEqual([status[name] for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")], ["0" * 16] * 4)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))

    @unittest.skipUnless(os.geteuid() == 0, "mounts")
    def test_what_runs_as_the_server_is_confined(self):
        version = ctypes.CDLL(None).syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
        if version < 1:
            self.skipTest("the kernel has no Landlock")
        folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        (folder / "nats.conf").write_text("listen: \"127.0.0.1:1\"\n")
        program = folder / "program"
        program.write_text(f"""#!/bin/sh
cd {folder}
echo x > own && echo own > out
cat /etc/passwd > copy && echo passwd >> out
echo x > {folder.parent}/{folder.name}-other && echo other >> out
kill -0 $(cat pid) && echo signal >> out
/usr/bin/python3 -I -c 'import socket; socket.socket(socket.AF_UNIX)' && echo unix >> out
/usr/bin/python3 -I -c 'import socket; socket.create_connection(("127.0.0.1", 1))' 2>&1 | grep -q refused && echo connect >> out
/usr/bin/python3 -I -c 'import socket; socket.socket().bind(("127.0.0.1", 0))' && echo bind >> out
""")
        program.chmod(0o755)
        (folder / "pid").write_text(str(os.getpid()))
        script = f"mount --bind {program} {shutil.which('nats-server', path='/usr/bin:/usr/sbin:/usr/local/bin')}\n"
        script += f"exec -a memoird-nats-server {BUILD}/src/daemon/memoird {folder}/nats.conf"
        done = subprocess.run(["unshare", "--mount", "bash", "-c", script], capture_output=True, text=True, timeout=60)
        # Kernels before 6.7 cannot refuse connections, those before 6.12 not signals.
        allowed = ["own", *["signal"] * (version < 6), *["connect"] * (version < 4), "bind"]
        self.assertEqual((folder / "out").read_text().split(), allowed, done.stderr)

    def test_the_server_lets_nobody_speak_for_another(self):
        n1, url = self.init()
        user, password = url.split("//")[1].split("@")[0].split(":")
        speaker = Speaker(self.port, user, password)
        self.addCleanup(speaker.close)
        self.assertRaises(EOFError, Speaker, self.port, user, "wrong")
        speaker.publish(f"memoir.1.beat.{FOREIGN}", hello("impostor"))
        speaker.publish(f"memoir.1.re.{n1.status()['self']}.{FOREIGN}", b"MC")
        speaker.subscribe(f"memoir.1.re.{n1.status()['self']}.*")
        speaker.publish(f"memoir.1.beat.{user}", hello("honest"))
        self.wait_until(lambda: "honest" in n1.states(), "the honest one is a member")
        self.assertEqual(set(n1.states()), {"n1", "honest"})
        speaker.socket.sendall(b"PING\r\n")
        line = b""
        while line != b"PONG\r\n":
            line = speaker.file.readline()
            if line.startswith(b"-ERR"):
                speaker.errors.append(line)
        self.assertEqual(sum(b"Permissions Violation" in e for e in speaker.errors), 3)

    def test_answering_oneself_gives_no_right_to_speak_for_another(self):
        n1, url = self.init()
        user, password = url.split("//")[1].split("@")[0].split(":")
        speaker = Speaker(self.port, user, password)
        self.addCleanup(speaker.close)
        speaker.subscribe("memoir.1.beat.*")
        forged = f"memoir.1.beat.{FOREIGN}"
        speaker.publish(f"memoir.1.beat.{user}", hello("honest"), inbox=forged)
        while speaker.next()[0] != f"memoir.1.beat.{user}":
            pass
        speaker.publish(forged, hello("impostor"))
        speaker.publish(f"memoir.1.beat.{user}", hello("later"))
        self.wait_until(lambda: "later" in n1.states(), "what came after it was heard")
        self.assertEqual(set(n1.states()), {"n1", "later"})

    @needs_root
    def test_trust_is_given_and_taken_back(self):
        n1, url = self.init()
        n2 = self.join("n2", url)
        self.wait_until(lambda: len(n1.states()) == 2, "both are members")
        client = n2.client("device=D", "dram=1x1000", "ready", "wait")
        scan = f"/api/v1/processes/{client.pid}/scan?node=n2"
        self.wait_until(lambda: n1.get(f"/api/v1/processes/{client.pid}?node=n2")[0] == 200, "n2 knows the process")
        self.assertEqual(n1.post(scan, {})[0], 403)
        key = n1.memoir("cluster", "key", "--socket", n1.socket).stdout.strip()
        self.command(n2, "trust", key + ":root=root")
        self.assertEqual(n1.post(scan, {})[0], 409)  # allowed, but the heap of this process is not known
        self.assertEqual(n2.status()["state"], "connected")
        self.command(n2, "trust", key.replace("+" + key[33], "+" + ("0" if key[33] != "0" else "1")) + ":root=root")
        status, body = n1.post(scan, {})
        self.assertEqual(status, 403)
        self.assertIn("signature", body["detail"])
        self.command(n2, "trust", key[:32], "--remove")
        self.assertEqual(n1.post(scan, {})[0], 403)
        self.assertNotIn("cluster-trust", (n2.state / "cluster.conf").read_text())
        self.assertEqual(n2.memoir("cluster", "trust", "nonsense", "--state", n2.state).returncode, 2)

    def test_views_of_other_nodes(self):
        n1, url = self.init()
        n2 = self.join("n2", url)
        self.wait_until(lambda: len(n1.states()) == 2, "both are members")
        client = n2.client("device=D", "dram=4x100000", "ready", "wait")
        socket_place = n1.folder / "memoird.sock"
        socket_place.symlink_to(n1.socket)
        place = dict(os.environ, XDG_RUNTIME_DIR=str(n1.folder))

        def run(*words):
            done = n1.memoir(*words, env=place)
            self.assertIn(done.returncode, (0, 3), done.stderr)
            return done

        self.wait_until(lambda: str(client.pid) in run("ps", "--cluster").stdout, "ps shows it")
        row = json.loads(run("ps", "--node", "n2", "--json").stdout)
        self.assertEqual([(r["node"], r["pid"]) for r in row["rows"]], [("n2", client.pid)])
        self.assertEqual((row["cluster"]["expected"], row["cluster"]["answered"]), (1, 1))
        self.assertIn("400", run("devices", "--cluster").stdout)
        self.assertRegex(run("query", "--cluster").stdout, rf"^NODE +PID .*\nn2 +{client.pid} ")  # rows say whose they are
        self.assertIn("1 of 2 nodes answered", run("sites", "--cluster", "--limit", "3").stderr)  # as --top
        self.assertRegex(run("top", "--cluster", "--limit", "2").stdout, "n[12] ")
        self.assertIn("1 of 2 nodes answered", run("buffers", "--cluster").stderr)
        self.assertIn("n2", run("query", "--cluster", "--by", "node", "--show", "device.dram").stdout)
        by_node = run("ps", "--cluster", "--by", "node", "--show", "device.dram", "--where", "device>1kB").stdout
        self.assertRegex(by_node, "n2 +400")
        wrong = n1.memoir("ps", "--cluster", "--exited", env=place)
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("goes with neither --cluster", wrong.stderr)
        self.assertIn("there is no such node", n1.memoir("ps", "--node", "nowhere", env=place).stderr)
        self.assertIn("n2", self.command(n1, "status"))


if __name__ == "__main__":
    unittest.main()
