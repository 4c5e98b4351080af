"""Nodes that are machines of their own (hosts_support.py): links are cut and healed, servers die, the asker's own among them."""

import json
import os
import signal
import subprocess
import time
import unittest

from attach_support import Program
from daemon_fixture import BUILD, Process, crowded
from hosts_support import HostsTest, child_of, inner_pid


class Hosts(HostsTest):
    def test_each_host_counts_its_own_processes_once(self):
        nodes = self.three_hosts()
        answer = nodes[0].query(table="host", show="node,program", where="pid=1", scope="cluster")
        self.assertEqual(sorted((row["node"], row["program"]) for row in answer["result"]["rows"]),
                         [("h1", "memoird"), ("h2", "memoird"), ("h3", "memoird")])
        # Figures of all are the sum of what each says of itself.
        question = dict(table="host", show="count", where="program~memoird*")
        own = [node.query(**question)["result"]["rows"][0]["count"] for node in nodes]
        together = nodes[1].query(**question, scope="cluster")["result"]["rows"][0]["count"]
        self.assertEqual(together, sum(own))

    def test_partition_and_heal(self):
        h1, h2, h3 = self.three_hosts()
        self.hosts[2].cut()
        cut = time.monotonic()
        self.wait_until(lambda: h1.states()["h3"] == "unreachable", "h3 is unreachable")
        self.assertLess(time.monotonic() - cut, crowded(5.5))  # heartbeats of before may still be on their way
        # A node may have been connected to the server that was cut off: then it looks for another.
        self.wait_until(lambda: self.answered(h1)[0] == {"h1", "h2"}, "h1 and h2 answer")
        _, cluster = self.answered(h1)
        self.assertEqual((cluster["expected"], cluster["answered"]), (3, 2))
        self.assertEqual([m["node"] for m in cluster["missing"]], ["h3"])
        # The other side: h3 goes on for itself, with both others missing.
        self.wait_until(lambda: self.answered(h3)[0] == {"h3"}, "h3 is alone")
        self.assertTrue(h3.query(table="system", show="total")["result"]["rows"])
        self.hosts[2].heal()
        self.wait_until(lambda: self.answered(h1)[0] == {"h1", "h2", "h3"}, "h3 is back")
        self.wait_until(lambda: self.answered(h3)[0] == {"h1", "h2", "h3"}, "for h3, too")

    def test_the_asker_s_server_dies(self):
        h1, h2, _ = self.three_hosts()
        self.servers[0].kill(signal.SIGKILL)
        self.servers[0].wait()
        start = time.monotonic()
        self.wait_until(lambda: self.answered(h1)[0] == {"h1", "h2", "h3"}, "h1 found another server")
        self.assertLess(time.monotonic() - start, crowded(5))
        self.assertEqual(self.answered(h2)[0], {"h1", "h2", "h3"})

    def test_the_asker_s_server_hangs(self):
        h1, _, _ = self.three_hosts()
        os.kill(self.servers[0].pid, signal.SIGSTOP)
        self.addCleanup(os.kill, self.servers[0].pid, signal.SIGCONT)
        start = time.monotonic()
        self.wait_until(lambda: self.answered(h1)[0] == {"h1", "h2", "h3"}, "h1 found another server")
        self.assertLess(time.monotonic() - start, crowded(9))  # 6 s until it is given up, and the others' routes to it

    def programs(self, node, **arguments):
        """By name: what each node holds, and which of them are outliers."""
        status, body = node.get("/api/v1/cluster/programs?limit=1000")
        self.assertEqual(status, 200, body)
        return {p["program"]: {n["node"]: (n["outlier"], n["why"]) for n in p["nodes"]} for p in body["programs"]}

    def test_a_leak_on_one_host_is_the_outlier(self):
        """In the usual window of 30 s, that is 30 s after the leak began; here the window has 3 s."""
        nodes = self.three_hosts("--growth-window", "3s")
        for node in nodes:
            careful = [] if node is nodes[1] else ["--careful"]
            shop = Process([*self.on_host(node), BUILD / "src/cli/shop", *careful])
            self.addCleanup(shop.close)

        def outliers():
            return {(program, name, odd[0]) for program, names in self.programs(nodes[0]).items()
                    for name, odd in names.items() if odd[0]}

        self.wait_until(lambda: outliers() == {("shop", "h2", "grows")}, f"h2 is the outlier, and nothing else: {outliers()}")
        for node in nodes:  # and so it is seen from each node
            self.assertRegex(self.programs(node)["shop"]["h2"][1], r"grows by [45]\d\.\d kB/s, \S+ B/s on other nodes")
        place = dict(os.environ, XDG_RUNTIME_DIR=str(nodes[2].folder))
        (nodes[2].folder / "memoird.sock").symlink_to(nodes[2].socket)
        shown = nodes[2].memoir("cluster", "programs", "--outliers", env=place)
        self.assertRegex(shown.stdout, r"\nshop .* h2 grows by ", shown.stderr)
        one = nodes[2].memoir("cluster", "programs", "shop", "--json", env=place)
        self.assertEqual([n["node"] for n in json.loads(one.stdout)["programs"][0]["nodes"] if n["outlier"]], ["h2"])
        # The node stops, and with it the outlier; two nodes cannot tell.
        nodes[1].process.kill(signal.SIGKILL)
        self.wait_until(lambda: not outliers(), "without h2 there is no outlier")

    def test_attach_to_a_process_of_another_host(self):
        urls = f"nats://{self.hosts[0].address}:4222"
        self.servers = [self.server(self.hosts[0])]
        h1 = self.host_node(self.hosts[0], urls)
        h1.process.err.wait("connected to the cluster")
        h2 = self.host_node(self.hosts[1], urls, "--cluster-trust", f"{h1.key()}:root=root")
        h2.process.err.wait("connected to the cluster")
        self.wait_until(lambda: len(h1.states()) == 2, "both are members")
        program = Program(prefix=self.on_host(h2))
        self.addCleanup(program.end)
        pid = inner_pid(child_of(program.process.pid))
        path = f"/api/v1/processes/{pid}"
        self.wait_until(lambda: h1.get(f"{path}?node=h2")[0] == 200, "h2 knows the process")
        tracking = h1.get(f"{path}?node=h2")[1]["tracking"]
        if not tracking.get("attach"):
            self.skipTest(f"nothing can be attached here: {tracking}")
        place = dict(os.environ, XDG_RUNTIME_DIR=str(h1.folder))
        (h1.folder / "memoird.sock").symlink_to(h1.socket)
        done = h1.memoir("cluster", "tracking", "h2", pid, "on", env=place)
        self.assertEqual((done.returncode, done.stdout), (0, "tracking is on\n"), done.stderr)
        held, _ = program.live("alloc", 100, 1000)

        def seen():
            found = h1.query(table="processes", show="heap", where=f"pid={pid}", node="h2")["result"]["rows"]
            return found[0]["heap"] if found else None

        self.wait_until(lambda: seen() == held, f"{held} bytes are seen: {seen()}")
        # h1 has a process with that PID perhaps, but it is not that one.
        self.assertNotIn("heap", [k for r in h1.query(table="processes", show="pid,heap", where=f"pid={pid}")["result"]["rows"]
                                  for k, v in r.items() if v])
        done = h1.memoir("cluster", "tracking", "h2", pid, "off", env=place)
        self.assertEqual((done.returncode, done.stdout), (0, "the process is not tracked any more\n"), done.stderr)
        self.wait_until(lambda: seen() is None, "its book is gone")
        program("alloc", 1, 10)  # and it goes on
        audit = [json.loads(line) for line in (h2.state / "audit.jsonl").read_text().splitlines()]
        self.assertEqual([(a["who"], a["what"], a["status"]) for a in audit],
                         [("root at h1", f"tracking of PID {pid} on", 200), ("root at h1", f"tracking of PID {pid} off", 200)])

    def test_slow_and_lossy_link(self):
        if subprocess.run(["ip", "netns", "exec", self.hosts[2].name, "tc", "qdisc", "add", "dev", "eth0", "root", "netem",
                           "delay", "30ms", "loss", "2%"], check=False, capture_output=True).returncode:
            self.skipTest("no tc netem here")
        h1, _, _ = self.three_hosts()
        complete = sum(self.answered(h1)[1]["answered"] == 3 for _ in range(20))
        self.assertGreaterEqual(complete, 15)  # a lost packet costs 200 ms, more than the stall cut-off


if __name__ == "__main__":
    unittest.main()
