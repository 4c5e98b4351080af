"""Whatever one client does, the others get their turn, and the client its answers."""

import json

from daemon_fixture import SANITIZED
from socket_support import ALLOC, SocketTest, message

BUFFERS = 4000 if SANITIZED else 15000


class TurnsTest(SocketTest):
    def hold(self, buffers, size=4096):
        """Buffers of our own process, accounted when this returns. The connection stays."""
        monitor = self.monitor()
        monitor.socket.sendall(b"".join(message(ALLOC, size=size, number=i + 1) for i in range(buffers)))
        self.assertEqual(monitor.totals(), {"dram": size * buffers} if buffers else {})
        return monitor


class Answers(TurnsTest):
    def test_a_large_answer_given_after_a_wait_arrives_whole(self):
        """Costly queries wait for their turn: the second answer is written by a timer, not by new bytes."""
        self.daemon()
        self.hold(BUFFERS)
        client = self.native_client()
        question = json.dumps({"query": {"table": "buffers", "limit": BUFFERS}}).encode() + b"\n"
        client.socket.sendall(question * 2)
        for _ in range(2):
            answer = json.loads(client.file.readline())
            self.assertEqual(len(answer["result"]["rows"]), BUFFERS)


if __name__ == "__main__":
    import unittest
    unittest.main()
