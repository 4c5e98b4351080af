"""Who is in the cluster: joining, leaving and death are seen in time; servers and nodes that hang or go away."""

import os
import signal
import socket
import threading
import time
import unittest

from cluster_support import FOREIGN, ClusterTest, Link, Speaker, hello, lost, rows
from daemon_fixture import crowded


class Membership(ClusterTest):
    def test_join_leave_and_death_are_seen_in_time(self):
        nats, (n1, n2, n3) = self.three()
        # A node that connects is a member in under a second.
        n4 = self.node("n4", nats.url, ready=False)
        n4.process.err.wait("connected to the cluster")
        took = self.wait_until(lambda: n1.states().get("n4") == "alive", "n4 is a member")
        self.assertLess(took, crowded(1))
        self.wait_until(lambda: len(n4.states()) == 4, "n4 knows all")
        # One that ends in order leaves: it is not missed.
        n4.process.kill(signal.SIGTERM)
        n4.process.wait()
        self.wait_until(lambda: n1.states()["n4"] == "left", "n4 left")
        answer = n1.query(table="system", by="node", show="total", scope="cluster")
        self.assertEqual(answer["cluster"]["expected"], 3)
        # One that dies is unreachable within 5 s, and missed by name at once.
        n3.process.kill(signal.SIGKILL)
        n3.process.wait()
        died = time.monotonic()
        answer = n1.query(table="system", by="node", show="total", scope="cluster")
        self.assertEqual({row["node"] for row in rows(answer)}, {"n1", "n2"})
        self.assertEqual([m["node"] for m in answer["cluster"]["missing"]], ["n3"])
        self.assertLess(answer["cluster"]["took"], crowded(0.11))
        self.wait_until(lambda: n1.states()["n3"] == "unreachable", "n3 is unreachable")
        self.assertLess(time.monotonic() - died, crowded(5))
        answer = n2.query(table="system", by="node", show="total", scope="cluster")
        self.assertEqual((answer["cluster"]["expected"], answer["cluster"]["answered"]), (3, 2))
        self.assertIn("unreachable", answer["cluster"]["missing"][0]["why"])
        # And it comes back.
        n3.start()
        self.wait_until(lambda: n1.states()["n3"] == "alive", "n3 is back")
        self.assertEqual(n1.query(table="system", show="total", scope="cluster")["cluster"]["answered"], 3)

    def test_hung_node_is_missed_and_comes_back(self):
        _, (n1, n2, n3) = self.three()
        os.kill(n3.process.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, n3.process.pid, signal.SIGCONT)
        answer = n1.query(table="system", by="node", show="total", scope="cluster")
        self.assertEqual([m["why"] for m in answer["cluster"]["missing"]], ["no sign of life"])
        self.assertLess(answer["cluster"]["took"], crowded(0.11))
        self.wait_until(lambda: n2.states()["n3"] == "unreachable", "n3 is unreachable")
        os.kill(n3.process.pid, signal.SIGCONT)
        self.wait_until(lambda: n2.states()["n3"] == "alive", "n3 is back")
        answer = n1.query(table="system", by="node", show="total", scope="cluster")
        self.assertEqual(answer["cluster"]["answered"], 3)

    def test_a_watcher_reports_a_death_to_all(self):
        """With many members heartbeats to all are rare: here so rare that only a watcher can tell."""
        nats, (n1, n2, _) = self.three()
        speaker = Speaker(nats.port)
        self.addCleanup(speaker.close)
        speaker.publish(f"memoir.1.beat.{FOREIGN}", hello("far", interval_ms=600000))
        self.wait_until(lambda: n2.states().get("far") == "alive", "n2 knows it")
        # n1 is its watcher, and hears it once.
        speaker.publish(f"memoir.1.to.{n1.status()['self']}.{FOREIGN}", hello("far", 0, 600000, 2000))
        begin = time.monotonic()
        # Meanwhile a report about a node that lives changes nothing.
        speaker.publish(f"memoir.1.beat.{FOREIGN}", lost(n2.status()["self"]))
        self.wait_until(lambda: n2.states()["far"] == "unreachable", "n2 is told of its death")
        took = time.monotonic() - begin
        self.assertGreater(took, 4)
        self.assertLess(took, crowded(5))
        self.assertEqual(n1.states(), {"n1": "alive", "n2": "alive", "n3": "alive", "far": "unreachable"})
        self.assertEqual(n1.status()["figures"]["rejected"], 0)

    def test_local_use_goes_on_without_the_server(self):
        nats, (n1, n2, _) = self.three()
        client = n1.client("device=D", "dram=4x100000", "ready", "wait")
        self.wait_until(lambda: rows(n1.query(show="pid,device")) ==
                        [{"pid": client.pid, "device": 400000}], "the book is there")
        nats.kill()
        self.wait_until(lambda: n1.status()["state"] == "connecting", "n1 lost its server")
        self.assertEqual(rows(n1.query(show="pid,device")), [{"pid": client.pid, "device": 400000}])
        answer = n1.query(show="pid,device", scope="cluster")
        self.assertEqual(rows(answer), [{"pid": client.pid, "device": 400000}])
        self.assertEqual(answer["cluster"]["answered"], 1)
        self.assertEqual(len(answer["cluster"]["missing"]), 2)
        self.assertIn("no connection", answer["cluster"]["missing"][0]["why"])
        nats.start()
        self.wait_until(lambda: n1.query(show="pid", scope="cluster")["cluster"]["answered"] == 3, "all are back")
        self.assertEqual(rows(n2.query(show="node,pid,device", scope="cluster")),
                         [{"node": "n1", "pid": client.pid, "device": 400000}])

    def test_hung_server_is_noticed(self):
        nats, (n1, _, _) = self.three()
        os.kill(nats.process.pid, signal.SIGSTOP)
        self.addCleanup(lambda: nats.process.popen.poll() is None and os.kill(nats.process.pid, signal.SIGCONT))
        took = self.wait_until(lambda: n1.status()["state"] == "connecting", "n1 notices")
        self.assertLess(took, crowded(8))
        self.assertTrue(rows(n1.query(table="system", show="total")))
        os.kill(nats.process.pid, signal.SIGCONT)
        self.wait_until(lambda: n1.query(table="system", show="total", scope="cluster")["cluster"]["answered"] == 3,
                        "all are back")

    def test_a_name_instead_of_a_url(self):
        nats = self.nats()
        node = self.node("n1", f"localhost:{nats.port}")
        self.assertEqual(node.status()["state"], "connected")

    def test_slow_link_and_one_that_stalls(self):
        nats = self.nats()
        n1 = self.node("n1", nats.url)
        link = Link(nats.port, 0.02)
        self.addCleanup(link.close)
        self.node("n2", link.url)
        self.wait_until(lambda: n1.states().get("n2") == "alive", "n2 is a member")

        def asked():
            return n1.query(table="system", by="node", show="total", scope="cluster")

        self.wait_until(lambda: asked()["cluster"]["answered"] == 2, "a slow node answers")
        self.assertGreater(asked()["cluster"]["took"], 0.04)
        # Nothing comes through, as when packets are lost and sent again: it is missing, and not counted as 0.
        link.flows.clear()
        answer = asked()
        self.assertEqual([row["node"] for row in rows(answer)], ["n1"])
        self.assertEqual([(m["node"], m["why"]) for m in answer["cluster"]["missing"]], [("n2", "no sign of life")])
        link.flows.set()
        self.wait_until(lambda: asked()["cluster"]["answered"] == 2, "it answers again")
        # What came too late is counted, and was no part of another answer.
        self.wait_until(lambda: n1.status()["figures"]["late"] >= 1, "the late answer is counted")
        self.assertEqual(n1.status()["figures"]["rejected"], 0)

    def test_without_a_server_at_the_start(self):
        nats = self.nats()
        nats.kill()
        node = self.node("n1", nats.url, ready=False)
        self.assertTrue(rows(node.query(table="system", show="total")))
        answer = node.query(table="system", by="node", show="total", scope="cluster")
        self.assertEqual(answer["cluster"]["answered"], 1)
        node.process.err.wait("cannot join the cluster: no server answers")
        nats.start()
        node.process.err.wait("connected to the cluster")

    def test_wrong_credentials_are_told_and_tried_again(self):
        nats = self.nats('authorization { user: "memoir", password: "right" }\n')
        node = self.node("n1", nats.url, ready=False)
        node.process.err.wait("cannot join the cluster: the server refuses .* authorization")
        self.assertTrue(rows(node.query(table="system", show="total")))
        self.assertRegex(node.status()["problem"], "(?i)authorization")
        secret = node.folder / "secret"
        secret.write_text("right\n")
        secret.chmod(0o600)
        other = self.node("n2", nats.url, "--cluster-user", "memoir", "--cluster-password-file", secret)
        self.assertEqual(other.status()["state"], "connected")

    def test_a_server_that_breaks_every_connection_is_left_alone_for_a_while(self):
        """libnats connects again at once, a thousand times a second."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        came = []

        def serve():
            try:
                while True:
                    with listener.accept()[0] as s, s.makefile("rb") as file:
                        s.sendall(b'INFO {"server_id":"S","version":"2.9.10","proto":1,"max_payload":1048576}\r\n')
                        while (line := file.readline()) and line != b"PING\r\n":
                            pass
                        s.sendall(b"PONG\r\n")
                        came.append(time.monotonic())
            except OSError:
                pass

        threading.Thread(target=serve, daemon=True).start()
        node = self.node("n1", f"nats://127.0.0.1:{listener.getsockname()[1]}")
        node.process.err.wait("cannot join the cluster: the server breaks each connection at once; trying again in 1 s")
        node.process.err.wait("cannot join the cluster: the server breaks each connection at once; trying again in 2 s")
        self.assertLess(len(came), 40)
        self.assertTrue(node.query(table="system", show="total")["result"]["rows"])

    def test_no_cluster_is_said(self):
        node = self.node("n1", None, ready=False)
        self.assertEqual(node.status()["state"], "none")
        self.assertEqual(node.ask({"query": {"scope": "cluster"}})["error"]["code"], "no-cluster")
        status, body = node.get("/api/v1/query?scope=cluster")
        self.assertEqual((status, body["type"]), (409, "urn:memoir:problem:no-cluster"))
        self.assertEqual(node.get("/api/v1/cluster")[1]["state"], "none")

    def test_two_nodes_of_one_name_are_told_apart(self):
        nats = self.nats()
        n1 = self.node("web", nats.url)
        speaker = Speaker(nats.port)
        self.addCleanup(speaker.close)
        speaker.publish(f"memoir.1.beat.{FOREIGN}", hello("web"))
        self.wait_until(lambda: len(n1.states()) == 2, "the other is a member")
        labels = set(n1.states())
        self.assertEqual(labels, {"web~" + n1.status()["self"][:4], "web~ffff"})
        self.assertEqual(n1.ask({"query": {"node": "web"}})["error"]["code"], "no-node")

    def test_services_are_listed(self):
        nats, (n1, _, _) = self.three()
        speaker = Speaker(nats.port)
        self.addCleanup(speaker.close)
        speaker.subscribe("inbox.test")
        speaker.publish("$SRV.PING", b"", "inbox.test")
        answers = [speaker.next()[2] for _ in range(3)]
        self.assertTrue(all(b'"io.nats.micro.v1.ping_response"' in a and b'"name":"memoir"' in a for a in answers))
        n1.query(table="system", scope="cluster")
        speaker.publish(f"$SRV.STATS.memoir.{n1.status()['self']}", b"", "inbox.test")
        self.assertIn(b'"num_requests":', speaker.next()[2])
        speaker.publish("$SRV.INFO.memoir", b"", "inbox.test")
        self.assertIn(b'"endpoints":[{"name":"query"', speaker.next()[2])


if __name__ == "__main__":
    unittest.main()
