"""Questions that cost much: users get them answered in turn, however many one of them asks."""

import os
import socket
import sys
import time
import unittest

from daemon_fixture import NOBODY, SANITIZED, Process, as_user, crowded
from socket_support import ALLOC, SocketTest, message

CROWD = 20000 if SANITIZED else 200000
COSTLY = {"table": "buffers", "by": "space"}

# Asks on many connections, reads what comes and asks again for each.
GREEDY = """
import selectors, socket, sys
question = b'{"query":{"table":"buffers","by":"space"}}\\n'
selector = selectors.DefaultSelector()
for _ in range(20):
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    s.sendall(question * 100)
    selector.register(s, selectors.EVENT_READ)
answers = 0
while True:
    for key, _ in selector.select():
        data = key.fileobj.recv(1 << 16)
        if not data:
            sys.exit("hung up")
        n = data.count(b"\\n")
        key.fileobj.sendall(question * n)
        answers += n
        if answers >= 3 and answers - n < 3:
            print("going", flush=True)
"""


@unittest.skipUnless(os.geteuid() == 0, "needs two users")
class Queries(SocketTest):
    def greedy(self):
        self.native.chmod(0o666)
        self.folder.chmod(0o755)
        greedy = Process([*as_user(NOBODY), sys.executable, "-c", GREEDY, self.native])
        self.addCleanup(greedy.close)
        greedy.out.wait("^going$")
        return greedy

    def hold(self, buffers=CROWD):
        monitor = self.monitor()
        monitor.socket.sendall(b"".join(message(ALLOC, size=4096, number=i + 1) for i in range(buffers)))
        self.assertEqual(monitor.totals(), {"dram": 4096 * buffers})

    def test_one_user_does_not_keep_another_waiting(self):
        self.daemon("--stall", "2s")
        self.hold()
        greedy = self.greedy()
        client = self.native_client()
        for _ in range(10):
            start = time.monotonic()
            answer = client.ask(query=COSTLY)["result"]["rows"]
            self.assertLess(time.monotonic() - start, crowded(5 if SANITIZED else 1))
            self.assertEqual([row["space"] for row in answer], ["dram"])
        self.assertIsNone(greedy.popen.poll(), greedy.err.lines)

    def test_who_does_not_take_his_answers_stops_nobody(self):
        self.daemon("--stall", "1m")
        self.hold(5000)
        for _ in range(5):
            s = socket.socket(socket.AF_UNIX)
            self.addCleanup(s.close)
            s.connect(str(self.native))
            s.setblocking(False)
            line = b'{"query":{"table":"buffers","limit":4000}}\n'
            s.send(line * 50)
        client = self.native_client()
        for _ in range(5):
            start = time.monotonic()
            self.assertIn("result", client.ask(query=COSTLY))
            self.assertLess(time.monotonic() - start, crowded(10))


if __name__ == "__main__":
    unittest.main()
