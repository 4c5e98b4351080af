"""Who sees and does what on another node: totals, tokens, nodes that vouch for their users, signatures."""

import hashlib
import hmac
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from cluster_support import ACK, FOREIGN, MEMOIR, REFUSE, REPLY, ClusterTest, Signer, Speaker, ask, hello, rows, signed
from daemon_fixture import BUILD, NOBODY, SANITIZED, Process, as_user, needs_root
from observe_support import LIBRARY, why_not

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cuda"))
from cuda_support import Drive  # noqa: E402

TRACING_REASON = "sanitizers are not traced" if SANITIZED else why_not()


class Rights(ClusterTest):
    def question(self, **more):
        return dict(table="processes", show="node,pid,program,command", where="program=client", **more)

    def test_other_nodes_get_totals_only(self):
        _, (n1, n2, _) = self.three()
        own = n1.client("device=D", "dram=1x1000", "ready", "wait")
        other = n2.client("device=D", "dram=1x1000", "ready", "wait")
        self.wait_until(lambda: len(rows(n1.query(**self.question(scope="cluster")))) == 2, "both are there")
        commands = {row["pid"]: row["command"] for row in rows(n1.query(**self.question(scope="cluster")))}
        self.assertIn("dram=1x1000", commands[own.pid])
        self.assertIsNone(commands[other.pid])
        # Rows that are private as a whole are refused with a reason, not shown as none.
        answer = n1.query(table="buffers", by="node", show="count,bytes", scope="cluster")
        self.assertEqual([row["node"] for row in rows(answer)], ["n1"])
        self.assertEqual({(m["node"], m["refused"]) for m in answer["cluster"]["missing"]}, {("n2", True), ("n3", True)})
        self.assertIn("token", answer["cluster"]["missing"][0]["why"])

    def token(self, node, *options):
        made = node.memoir("token", "add", "visitor", "--state", node.state, *options)
        self.assertEqual(made.returncode, 0, made.stderr)
        return made.stdout.strip()

    def test_a_token_of_the_target_opens_it(self):
        _, (n1, n2, n3) = self.three()
        other = n2.client("device=D", "dram=1x1000", "ready", "wait")
        user = str(os.geteuid())
        token = self.token(n2, "--user", user)
        self.wait_until(lambda: rows(n1.query(**self.question(node="n2"))), "it is there")
        row = rows(n1.query(**self.question(node="n2", token=token)))[0]
        self.assertEqual(row["pid"], other.pid)
        self.assertIn("dram=1x1000", row["command"])
        answer = n1.query(table="buffers", show="bytes", node="n2", token=token)
        self.assertEqual([row["bytes"] for row in rows(answer)], [1000])
        # Mappings are read on a thread beside the loop, there as here.
        parts = dict(table="explain", where=f"pid={other.pid}", show="node,pid,bytes,rss", node="n2")
        answer = n1.query(**parts, token=token)
        self.assertEqual({(row["node"], row["pid"]) for row in rows(answer)}, {("n2", other.pid)})
        self.assertEqual(sum(row["bytes"] for row in rows(answer)), rows(answer)[0]["rss"])
        self.assertIn("token", n1.query(**parts)["cluster"]["missing"][0]["why"])
        self.assertIn("needs pid=NUMBER", n1.ask({"query": dict(parts, where="bytes>0", token=token)})["error"]["message"])
        # Over HTTP the token comes in a header. What it opens is not given to those without it.
        path = "/api/v1/query?table=processes&show=node,pid,command&where=program%3Dclient&node=n2"
        for _ in range(2):
            self.assertIsNone(n1.get(path)[1]["rows"][0]["command"])
            self.assertIn("dram=1x1000", n1.get(path, token)[1]["rows"][0]["command"])
        buffers = f"/api/v1/processes/{other.pid}/buffers?node=n2"
        self.assertEqual(n1.get(buffers)[0], 403)
        self.assertEqual(n1.get(buffers, token)[0], 200)
        self.assertEqual(n1.get(buffers)[0], 403)
        # It says nothing at another node, and a wrong one says nothing anywhere.
        for node, secret in (("n3", token), ("n2", "x" * 43)):
            answer = n1.query(**self.question(node=node, token=secret))
            self.assertEqual([m["why"] for m in answer["cluster"]["missing"]], ["this token is not known here"])

    @needs_root
    def test_a_user_of_one_node_and_another_user_s_process_on_a_second(self):
        nats = self.nats()
        n1 = self.node("n1", nats.url, "--socket-group", "all")
        trust = f"{n1.key()}:nobody=nobody"
        n2 = self.node("n2", nats.url, "--cluster-trust", trust)
        n3 = self.node("n3", nats.url)
        self.wait_until(lambda: len(n1.states()) == 3, "all are members")
        for node in (n2, n3):
            node.client("device=D", "dram=1x1000", "ready", "wait")
            node.client("device=D", "dram=2x1000", "ready", "wait", prefix=as_user(NOBODY))
        self.wait_until(lambda: len(rows(n1.query(**self.question(scope="cluster")))) == 4, "all are there")

        def seen_by(user):
            code = "import json,sys,socket\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n" \
                   "s.sendall(sys.argv[2].encode()+b'\\n')\nprint(s.makefile().readline())"
            question = json.dumps({"query": dict(self.question(scope="cluster"), show="node,user,command")})
            out = subprocess.run([*user, sys.executable, "-c", code, n1.socket, question], check=True,
                                 capture_output=True, text=True).stdout
            return {(row["node"], row["user"]): row["command"] is not None for row in rows(json.loads(out))}

        # n2 trusts n1 to vouch for nobody, who sees there what is nobody's, and nothing of root's; n3 trusts no node.
        self.assertEqual(seen_by(as_user(NOBODY)), {("n2", "root"): False, ("n2", "nobody"): True,
                                                    ("n3", "root"): False, ("n3", "nobody"): False})
        # root of n1 is not root of n2.
        self.assertEqual(seen_by([]), {("n2", "root"): False, ("n2", "nobody"): False,
                                       ("n3", "root"): False, ("n3", "nobody"): False})

    def trusting(self):
        """n2 trusts n1 to vouch for root; n3 trusts no node."""
        nats = self.nats()
        n1 = self.node("n1", nats.url)
        n2 = self.node("n2", nats.url, "--cluster-trust", f"{n1.key()}:root=root")
        n3 = self.node("n3", nats.url)
        self.wait_until(lambda: len(n1.states()) == 3, "all are members")
        return n1, n2, n3

    def audit(self, node):
        return [json.loads(line) for line in (node.state / "audit.jsonl").read_text().splitlines()]

    @needs_root
    @unittest.skipIf(SANITIZED, "a program of a sanitizer build cannot be tracked: its malloc is the sanitizer's")
    def test_tracking_of_a_process_on_another_node(self):
        n1, n2, n3 = self.trusting()
        programs = {}
        for node in (n2, n3):
            process = Process([MEMOIR, "run", "--quiet", "--suspended", BUILD / "test/integration/sites_malloc"],
                              env=dict(os.environ, MEMOIR_DIR=str(node.books)))
            self.addCleanup(process.close)
            process.out.wait("^ready$")
            programs[node.name] = process
            self.wait_until(lambda n=node, p=process: n.get(f"/api/v1/processes/{p.pid}")[1].get("tracking", {})
                            .get("state") == "suspended", "it is tracked")
        pid = programs["n2"].pid
        # Through n1, what it is and its switch.
        status, body = n1.get(f"/api/v1/processes/{pid}?node=n2")
        self.assertEqual((status, body["pid"], body["tracking"]["can"]), (200, pid, True))
        status, body = n1.post(f"/api/v1/processes/{pid}/tracking?node=n2", {"on": True})
        self.assertEqual((status, body["state"], body["changed"]), (200, "on", True))
        self.assertEqual([(a["who"], a["what"], a["status"]) for a in self.audit(n2)],
                         [("root at n1", f"tracking of PID {pid} on", 200)])
        # A token of n3 with the role control switches there.
        call = {"node": "n3", "method": "POST", "target": f"/api/v1/processes/{programs['n3'].pid}/tracking",
                "body": '{"on":true}'}
        token = self.token(n3, "--user", "root", "--role", "control")
        answer = n1.ask({"call": dict(call, token=token)})["call"]
        self.assertEqual((answer["status"], json.loads(answer["body"])["state"]), (200, "on"))
        self.assertEqual(self.audit(n3)[-1]["who"], "token visitor at n1")
        # Sites of the other node's process, named there.
        self.assertEqual(n1.get(f"/api/v1/processes/{pid}/sites?node=n2")[0], 200)
        # A scan of a heap there; the program holds all that it allocated.
        process = Process([MEMOIR, "run", "--quiet", BUILD / "test/integration/sites_malloc"],
                          env=dict(os.environ, MEMOIR_DIR=str(n2.books)))
        self.addCleanup(process.close)
        process.out.wait("^ready$")
        pid = process.pid
        self.wait_until(lambda: n2.get(f"/api/v1/processes/{pid}")[1]["tracking"]["state"] == "on", "it is tracked")
        status, body = n1.post(f"/api/v1/processes/{pid}/scan?node=n2", {})
        self.assertEqual((status, body["pid"], body["program"]), (200, pid, "sites_malloc"), body)
        self.assertGreater(body["reachable"]["blocks"], 0)
        self.assertEqual(self.audit(n2)[-1]["what"], f"scan of PID {pid}")
        self.assertEqual(n1.post(f"/api/v1/processes/{programs['n3'].pid}/scan?node=n3", {})[0], 403)
        # Tracing of CUDA calls does not run there, which is said.
        status, body = n1.post(f"/api/v1/processes/{pid}/tracing?node=n2", {"on": False})
        self.assertEqual((status, body["type"]), (503, "urn:memoir:problem:not-tracing"), body)
        self.assertEqual(self.audit(n2)[-1]["what"], f"tracing of PID {pid} off")
        # The same by commands.
        (n1.folder / "memoird.sock").symlink_to(n1.socket)
        place = dict(os.environ, XDG_RUNTIME_DIR=str(n1.folder))
        done = n1.memoir("cluster", "scan", "n2", pid, env=place)
        self.assertRegex(done.stdout, rf"sites_malloc \(PID {pid} on n2\) was paused for .* reachable [1-9]", done.stderr)
        self.assertEqual(json.loads(n1.memoir("cluster", "scan", "n2", pid, "--json", env=place).stdout)["pid"], pid)
        self.assertEqual(n1.memoir("cluster", "tracking", "n2", pid, "off", env=place).stdout, "tracking is suspended\n")
        done = n1.memoir("cluster", "tracing", "n2", pid, "on", env=place)
        self.assertEqual(done.returncode, 1)
        self.assertIn("not traced at the moment", done.stderr)
        self.assertEqual(n1.memoir("cluster", "scan", "n2", "x", env=place).returncode, 2)
        self.assertEqual(n1.memoir("cluster", "key", env=place).stdout.strip(), n1.key())

    @unittest.skipIf(TRACING_REASON, TRACING_REASON)
    def test_tracing_of_a_process_on_another_node(self):
        nats = self.nats()
        n1 = self.node("n1", nats.url)
        driver = n1.folder / "driver"  # a file of our own: no other process needs its probes
        driver.mkdir()
        shutil.copy(LIBRARY.resolve(), driver / "libcuda.so.1")
        n2 = self.node("n2", nats.url, "--cluster-trust", f"{n1.key()}:root=root", "--trace", "yes", "--trace-socket",
                       n1.folder / "observe.sock", "--trace-library", driver / "libcuda.so.1")
        n2.process.err.wait("tracing CUDA programs")
        n2.process.err.wait("probes on [0-9]+ functions of '.*/driver/libcuda.so.1'")
        drive = Drive(n1.folder, LD_LIBRARY_PATH=str(driver))
        self.addCleanup(drive.close)
        drive.ok("primary", 0)
        drive.ok("alloc", 5 << 20)

        def traced():
            rows_ = n1.get("/api/v1/traced?node=n2")[1].get("processes", [])
            return next((r for r in rows_ if r["pid"] == drive.pid), None)

        self.wait_until(lambda: (traced() or {}).get("spaces", {}).get("dram", {}).get("bytes") == 5 << 20, "it is traced")
        place = dict(os.environ, XDG_RUNTIME_DIR=str(n1.folder))
        (n1.folder / "memoird.sock").symlink_to(n1.socket)
        done = n1.memoir("cluster", "tracing", "n2", drive.pid, "off", env=place)
        self.assertEqual((done.returncode, done.stdout), (0, "tracing is off\n"), done.stderr)
        n2.process.err.wait("removed the probes of 1 libraries")
        self.wait_until(lambda: traced()["off"], "it is off")
        status, body = n1.post(f"/api/v1/processes/{drive.pid}/tracing?node=n2", {"on": True})
        self.assertEqual((status, body["state"]), (200, "on"), body)
        drive.ok("alloc", 3 << 20)
        self.wait_until(lambda: traced()["spaces"].get("dram", {}).get("bytes") == 3 << 20, "it is traced again")
        self.assertEqual([(a["who"], a["what"], a["status"]) for a in self.audit(n2)],
                         [("root at n1", f"tracing of PID {drive.pid} {to}", 200) for to in ("off", "on")])

    @needs_root
    def test_a_node_that_is_trusted_without_its_key_looks_and_does_not_act(self):
        nats = self.nats()
        n1 = self.node("n1", nats.url)
        n2 = self.node("n2", nats.url, "--cluster-trust", f"{n1.status()['self']}:root=root")
        self.wait_until(lambda: len(n1.states()) == 2, "both are members")
        client = n2.client("device=D", "dram=1x1000", "ready", "wait")
        self.wait_until(lambda: rows(n1.query(**self.question(node="n2"))), "it is there")
        self.assertIn("dram=1x1000", rows(n1.query(**self.question(node="n2")))[0]["command"])
        self.assertEqual(n1.post(f"/api/v1/processes/{client.pid}/tracking?node=n2", {"on": True})[0], 403)

    @needs_root
    def test_trust_does_not_pass_from_node_to_node(self):
        """n3 trusts n2, and n2 trusts n1: n1 gets nothing of n3 through n2."""
        nats = self.nats()
        n1 = self.node("n1", nats.url)
        n2 = self.node("n2", nats.url, "--cluster-trust", f"{n1.key()}:root=root")
        n3 = self.node("n3", nats.url, "--cluster-trust", f"{n2.key()}:root=root")
        self.wait_until(lambda: len(n1.states()) == 3 and len(n2.states()) == 3, "all are members")
        client = n3.client("device=D", "dram=1x1000", "ready", "wait")
        path = f"/api/v1/processes/{client.pid}"
        self.wait_until(lambda: n2.get(f"{path}/buffers?node=n3")[0] == 200, "n3 answers n2")
        for method, target, body in (("GET", f"{path}/buffers?node=n3", ""), ("POST", f"{path}/tracking?node=n3", '{"on":true}'),
                                     ("GET", "/api/v1/query?table=buffers&scope=cluster", ""),
                                     ("GET", "/api/v1/leaks?node=n3", ""), ("GET", "/api/v1/leaks?scope=cluster", "")):
            call = {"node": "n2", "method": method, "target": target, "body": body}
            answer = n1.ask({"call": call})["call"]
            self.assertEqual((answer["status"], json.loads(answer["body"])["type"]), (403, "urn:memoir:problem:handed-on"), target)
        self.assertFalse((n3.state / "audit.jsonl").exists())

    @needs_root
    def test_calls_to_another_node(self):
        n1, n2, n3 = self.trusting()
        client = n3.client("device=D", "dram=1x1000", "ready", "wait")
        target = f"/api/v1/processes/{client.pid}/scan"
        call = {"node": "n3", "method": "POST", "target": target, "body": "{}"}
        self.wait_until(lambda: n1.get(f"/api/v1/processes/{client.pid}?node=n3")[0] == 200, "n3 knows the process")
        # n3 trusts no node: control needs a token of n3, with the role control.
        self.assertEqual(n1.post(target + "?node=n3", {})[0], 403)
        self.assertEqual(n1.ask({"call": call})["call"]["status"], 403)
        reader = self.token(n3, "--user", "root")
        self.assertEqual(n1.ask({"call": dict(call, token=reader)})["call"]["status"], 403)
        made = n3.memoir("token", "add", "operator", "--state", n3.state, "--user", "root", "--role", "control")
        operator = made.stdout.strip()
        self.assertEqual(n1.post(target + "?node=n3", {}, operator)[0], 409)
        answer = n1.ask({"call": dict(call, token=operator)})["call"]
        self.assertEqual(answer["status"], 409, answer)  # allowed, but the heap of this process is not known
        self.assertEqual(n1.get("/api/v1/processes/4194304?node=n2")[0], 404)
        self.assertEqual(n1.get("/api/v1/cluster?node=n2")[0], 400)
        os.kill(n2.process.pid, signal.SIGSTOP)
        status, body = n1.get("/api/v1/processes/1?node=n2")
        os.kill(n2.process.pid, signal.SIGCONT)
        self.assertEqual((status, body["type"]), (504, "urn:memoir:problem:no-answer"))


class Signatures(ClusterTest):
    """A node that the test plays, and that n1 trusts by its key, asks n1 to act."""

    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("needs root: a user to vouch for")
        folder = tempfile.TemporaryDirectory(prefix="memoir-key-")
        self.addCleanup(folder.cleanup)
        self.signer = Signer(folder.name)
        nats = self.nats()
        self.n1 = self.node("n1", nats.url, "--cluster-trust", f"{FOREIGN}+{self.signer.public}:root=root")
        self.target = self.n1.status()["self"]
        self.client = self.n1.client("device=D", "dram=1x1000", "ready", "wait")
        self.port = nats.port
        self.listen()
        self.wait_until(lambda: rows(self.n1.query(show="pid")), "n1 knows the process")
        self.body = f"POST\0/api/v1/processes/{self.client.pid}/scan\0".encode() + b"{}"

    def listen(self):
        self.speaker = Speaker(self.port)
        self.addCleanup(self.speaker.close)
        self.speaker.subscribe(f"memoir.1.re.{FOREIGN}.*")
        self.speaker.publish(f"memoir.1.beat.{FOREIGN}", hello("far"))
        self.wait_until(lambda: "far" in self.n1.states(), "it is a member")

    def send(self, data, subject=None):
        """(kind, rest) of what n1 answers."""
        self.speaker.publish(subject or f"memoir.1.to.{self.target}.{FOREIGN}", data)
        while True:
            _, _, answer = self.speaker.next()
            if answer[3] != ACK:
                return answer[3], answer[20:]

    def make(self, nonce=None, expires_ns=None, **change):
        nonce = nonce or os.urandom(16)
        expires_ns = expires_ns or time.time_ns() + 30 * 10**9
        fields = dict(asker=FOREIGN, target=self.target, nonce=nonce, user="root", expires_ns=expires_ns, body=self.body)
        signature = self.signer.sign(signed(**dict(fields, **change)))
        return ask(nonce, "root", expires_ns, self.body, signature)

    def audit(self):
        path = self.n1.state / "audit.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def test_a_signed_call_is_done_once(self):
        call = self.make()
        kind, answer = self.send(call)
        self.assertEqual(kind, REPLY)
        self.assertIn(b"not-tracked", answer)  # it came through to the process, whose heap is not known
        self.assertEqual([(a["who"], a["status"]) for a in self.audit()], [("root at far", 409)])
        kind, answer = self.send(call)
        self.assertEqual(kind, REFUSE)
        self.assertIn(b"used before", answer)
        self.assertEqual(len(self.audit()), 1)

    def test_a_call_that_was_made_before_memoird_started_is_not_done_again(self):
        call = self.make()
        self.assertEqual(self.send(call)[0], REPLY)
        self.n1.process.kill(signal.SIGKILL)
        self.n1.process.wait()
        self.n1.start()
        self.wait_until(lambda: rows(self.n1.query(show="pid")), "n1 knows the process")
        self.listen()
        kind, answer = self.send(call)
        self.assertEqual(kind, REFUSE)
        self.assertRegex(answer, b"has just started|has expired")
        self.assertEqual(len(self.audit()), 1)
        self.assertEqual(self.send(self.make())[0], REPLY)

    def by_token(self, token, body):
        """A call by a token of n1."""
        nonce, expires_ns = os.urandom(16), time.time_ns() + 50 * 10**9
        digest = hashlib.sha256(token.encode()).digest()
        text = signed(FOREIGN, self.target, nonce, "", expires_ns, body)
        return ask(nonce, "", expires_ns, body, key=hashlib.sha256(digest).digest()[:8],
                   mac=hmac.digest(digest, text, "sha256"))

    def flood(self, token, body, n):
        """What n1 refuses of n calls."""
        refused = []
        for _ in range(n // 16):
            for _ in range(16):
                self.speaker.publish(f"memoir.1.to.{self.target}.{FOREIGN}", self.by_token(token, body))
            for _ in range(16):
                while (answer := self.speaker.next()[2])[3] == ACK:
                    pass
                if answer[3] == REFUSE:
                    refused.append(answer)
        return refused

    def test_calls_of_one_user_leave_room_for_those_of_others(self):
        made = self.n1.memoir("token", "add", "busy", "--state", self.n1.state, "--user", "nobody", "--role", "control")
        token = made.stdout.strip()
        self.assertEqual(self.flood(token, b"GET\0/api/v1/nothing\0", 1024), [])  # what cannot act needs no memory
        refused = self.flood(token, b"POST\0/api/v1/nothing\0", 4112)
        self.assertIn(b"too many calls", refused[-1])
        kind, answer = self.send(self.make())
        self.assertEqual(kind, REPLY, answer)

    def test_what_is_not_signed_or_expired_is_refused(self):
        past, future = time.time_ns() - 10**9, time.time_ns() + 3600 * 10**9
        for call, why in ((self.make(expires_ns=past), b"expired"), (self.make(expires_ns=future), b"expired"),
                          (self.make(user="ann"), b"invalid"), (self.make(target=FOREIGN), b"invalid"),
                          (self.make(asker=self.target), b"invalid"), (self.make(body=self.body + b" "), b"invalid"),
                          (self.make(what=1), b"invalid"),
                          (ask(os.urandom(16), "root", future, self.body, os.urandom(64)), b"invalid"),
                          (ask(os.urandom(16), "root", future, self.body), b"invalid")):
            kind, answer = self.send(call)
            self.assertEqual(kind, REFUSE)
            self.assertIn(why, answer)
        # One that says it is of no user gets what all may see, and may not act.
        kind, answer = self.send(ask(os.urandom(16), "", future, self.body))
        self.assertEqual(kind, REPLY)
        self.assertNotIn(b"not-tracked", answer)
        self.assertFalse([a for a in self.audit() if a["status"] < 400 or a["status"] == 409])


if __name__ == "__main__":
    unittest.main()
