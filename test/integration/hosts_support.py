"""Nodes that are machines of their own: PID, mount, UTS and network namespaces, each with a NATS server of one cluster, on links that can be cut."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from cluster_support import NATS_SERVER, ClusterTest, Node
from daemon_fixture import Process


def run(*command):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout


def works():
    """May we make namespaces with links between them?"""
    if not shutil.which("ip"):
        return False
    name = f"memoir-try-{os.getpid()}"
    try:
        run("ip", "netns", "add", name)
        run("ip", "netns", "del", name)
        return True
    except (subprocess.CalledProcessError, OSError):
        return False


def child_of(pid):
    """The only child of a process, seen from outside."""
    return int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def inner_pid(pid):
    """As its own PID namespace calls it."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1])


class Host:
    """A network namespace with one link to a bridge in the hub's."""

    def __init__(self, hub, number):
        self.hub, self.number = hub, number
        self.name = f"{hub}-{number}"
        self.address = f"10.77.0.{number}"
        self.link = f"l{number}"
        run("ip", "netns", "add", self.name)
        run("ip", "-n", self.name, "link", "set", "lo", "up")
        run("ip", "-n", hub, "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        run("ip", "-n", hub, "link", "set", self.link, "master", "br0", "up")
        run("ip", "-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        run("ip", "-n", self.name, "link", "set", "eth0", "up")

    def cut(self):
        run("ip", "-n", self.hub, "link", "set", self.link, "down")

    def heal(self):
        run("ip", "-n", self.hub, "link", "set", self.link, "up")

    def close(self):
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)


@unittest.skipUnless(NATS_SERVER, "needs nats-server")
class HostsTest(ClusterTest):
    def setUp(self):
        if os.geteuid() != 0 or not works():
            self.skipTest("needs root, ip and network namespaces")
        self.hub = f"mh{os.getpid()}"
        run("ip", "netns", "add", self.hub)
        self.addCleanup(lambda: subprocess.run(["ip", "netns", "del", self.hub], check=False))
        run("ip", "-n", self.hub, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", self.hub, "link", "set", "br0", "up")
        self.hosts = []
        for number in (1, 2, 3):
            host = Host(self.hub, number)
            self.addCleanup(host.close)
            self.hosts.append(host)

    def server(self, host):
        """Its NATS server, which knows those of the others."""
        folder = tempfile.mkdtemp(prefix="memoir-nats-")
        self.addCleanup(shutil.rmtree, folder, True)
        routes = ", ".join(f'"nats://{h.address}:6222"' for h in self.hosts)
        config = f"{folder}/nats.conf"
        with open(config, "w", encoding="ascii") as file:
            file.write(f'listen: "{host.address}:4222"\nserver_name: "s{host.number}"\nping_interval: "2s"\nping_max: 2\n'
                       f'cluster {{ name: "c", listen: "{host.address}:6222", routes: [{routes}] }}\n')
        process = Process(["ip", "netns", "exec", host.name, NATS_SERVER, "-c", config])
        self.addCleanup(process.close)
        process.err.wait("Server is ready")
        return process

    def host_node(self, host, urls, *flags):
        """memoird as the first process of a machine called hN. Sockets of observers are named by PIDs: each has its own."""
        inside = f"hostname h{host.number} && mkdir -p /run/memoird && mount -t tmpfs -o mode=755 none /run/memoird && exec \"$@\""
        node = Node(f"h{host.number}", urls, *flags,
                    prefix=["ip", "netns", "exec", host.name, "unshare", "--pid", "--mount", "--uts", "--fork",
                            "--kill-child", "--mount-proc", "sh", "-c", inside, "sh"], ready=False)
        self.addCleanup(node.close)
        return node

    def on_host(self, node):
        """What starts a command on the machine of a node; it is killed with the process that the test has."""
        return ["nsenter", "-t", str(child_of(node.process.pid)), "-p", "-m", "-r", "-u", "-n", "setpriv", "--pdeathsig", "KILL"]

    def three_hosts(self, *flags):
        self.servers = [self.server(host) for host in self.hosts]
        nodes = []
        for host in self.hosts:  # the own server first
            order = sorted(self.hosts, key=lambda h, own=host: h is not own)
            nodes.append(self.host_node(host, ",".join(f"nats://{h.address}:4222" for h in order), *flags))
        for node in nodes:
            node.process.err.wait("connected to the cluster")
            self.wait_until(lambda n=node: list(n.states().values()).count("alive") == 3, f"{node.name} knows all")
        return nodes

    def answered(self, node):
        answer = node.query(table="system", by="node", show="total", scope="cluster")
        return {row["node"] for row in answer["result"]["rows"]}, answer["cluster"]
