"""The native protocol when memoird dies, when clients come from other machines, and when they come back."""

import hashlib
import json
import os
import random
import socket
import threading
import time

from daemon_fixture import PATIENCE_S, SANITIZED
from native_fixture import NativeTest

TOKEN = "correct-horse-battery-staple"


class Resume(NativeTest):
    def test_seq_that_was_applied_is_acknowledged_and_not_applied_again(self):
        self.native()
        line, _ = self.greeted()
        line.ask({"device": 0})
        message = {"report": [["a", 0, "dram", 1, 10]], "seq": 1, "ack": True}
        self.assertEqual(line.ask(message), {"ack": 1})
        line.ask({"report": [["f", 0, "dram", 1]], "seq": 2, "ack": True})
        self.assertEqual(line.ask(message), {"ack": 1})
        self.assertEqual((self.figures(), self.losses()), ({}, {}))

    def test_session_goes_on_after_kill_and_restart(self):
        daemon = self.native()
        line, hello = self.greeted()
        line.ask({"device": 0, "name": "D", "capacity": {"dram": 5000}})
        line.ask({"report": [["a", 0, "dram", i, 10, "tagged"] for i in range(100)], "seq": 7, "ack": True})
        daemon.kill()
        daemon.wait()
        self.assertEqual(self.figures(), {(0, "dram"): (1000, 100)})
        self.native()
        line, again = self.greeted(session=hello["session"])
        self.assertEqual((again["resumed"], again["seq"], again["session"]), (True, 7, hello["session"]))
        line.ask({"device": 0, "name": "D"})
        self.assertEqual(line.ask({"report": [["f", 0, "dram", i] for i in range(50)], "seq": 8, "ack": True}), {"ack": 8})
        self.assertEqual(self.figures(), {(0, "dram"): (500, 50)})
        self.assertEqual(self.blocks()["dram", 99], (10, "tagged"))
        self.assertEqual(len(self.book_files()), 1)

    def test_several_sessions_of_one_process_go_on(self):
        daemon = self.native()
        sessions = []
        for i in range(5):
            line, hello = self.greeted()
            line.ask({"report": [["a", None, "heap", i, 10]], "seq": 10 + i, "ack": True})
            sessions.append(hello["session"])
        daemon.kill()
        daemon.wait()
        self.native()
        for i, session in enumerate(sessions):
            self.assertEqual(self.greeted(session=session)[1]["seq"], 10 + i)
        self.assertEqual(self.figures(), {(None, "heap"): (50, 5)})

    def test_unknown_session_begins_at_0(self):
        self.native()
        _, hello = self.greeted(session="00" * 16)
        self.assertEqual((hello["resumed"], hello["seq"]), (False, 0))

    def test_kill_under_load_and_figures_exactly_equal(self):
        """Three times; the client keeps what is not acknowledged and sends it again."""
        random_numbers = random.Random(1)
        live, waiting, seq = {}, [], 0
        self.acknowledged = 0
        session = None
        daemon = self.native()
        line = None
        deaths = 3
        kill_at = {random_numbers.randrange(50, 150) + 200 * i for i in range(deaths)}
        for step in range(200 * deaths):
            batch = []
            for _ in range(200):
                id = random_numbers.randrange(2000)
                if id in live and random_numbers.random() < 0.6:
                    del live[id]
                    batch.append(["f", 0, "dram", id])
                else:
                    live[id] = random_numbers.randrange(1, 1 << 20)
                    batch.append(["a", 0, "dram", id, live[id]])
            seq += 1
            waiting.append({"report": batch, "seq": seq, "ack": True})
            if step in kill_at:
                threading.Timer(0.002, daemon.kill).start()  # in the middle of the next messages
            while True:
                try:
                    if line is None:
                        line, session = self.resume(session, waiting)
                    line.send(waiting[-1])
                    while waiting and step % 10 == 9:
                        self.forget(waiting, line.receive())
                    break
                except (EOFError, OSError):
                    line = None
                    daemon.wait()
                    daemon = self.native()
        while waiting:
            try:
                line, session = (line, session) if line else self.resume(session, waiting)
                self.forget(waiting, line.receive())
            except (EOFError, OSError):
                line = None
                daemon.wait()
                daemon = self.native()
        self.assertEqual({id: size for (_, id), (size, _) in self.blocks().items()}, live)
        self.assertEqual(self.figures(), {(0, "dram"): (sum(live.values()), len(live))})

    def forget(self, waiting, answer):
        self.assertNotIn("error", answer)
        if "ack" in answer:
            self.acknowledged = answer["ack"]
            while waiting and waiting[0]["seq"] <= answer["ack"]:
                waiting.pop(0)

    def resume(self, session, waiting):
        line = self.connect(patient=True)
        hello = line.ask({"hello": 1, **({"session": session} if session else {})})
        self.assertEqual(hello["resumed"], session is not None and hello["seq"] > 0)
        self.assertGreaterEqual(hello["seq"], self.acknowledged)
        line.ask({"device": 0, "name": "D"})
        while waiting and waiting[0]["seq"] <= hello["seq"]:
            waiting.pop(0)
        line.send(*waiting[:-1])
        return line, hello["session"]


class Tcp(NativeTest):
    def setUp(self):
        super().setUp()
        self.tokens = self.folder / "tokens"
        self.write_tokens(f"farm {hashlib.sha256(TOKEN.encode()).hexdigest()}\n")

    def write_tokens(self, text, mode=0o600):
        self.tokens.write_text("# a comment\n\n" + text)
        self.tokens.chmod(mode)

    def remote(self, *flags, **options):
        daemon = self.native("--tcp", "127.0.0.1:0", "--token-file", self.tokens, *flags, **options)
        self.address = ("127.0.0.1", int(daemon.err.wait(r"port \d+").rpartition("port ")[2].split()[0]))
        return daemon

    def enter(self, **keys):
        line = self.connect(self.address)
        hello = line.ask({"hello": 1, "token": TOKEN, "host": "far", "pid": 4711, "program": "train", **keys})
        self.assertIn("session", hello, hello)
        return line, hello

    def used(self):
        """By remote processes, in all."""
        rows = self.connect().ask({"query": {"table": "accounts", "show": "bytes,blocks", "where": "node=far"}})
        return [(row["bytes"], row["blocks"]) for row in rows["result"]["rows"]]

    def test_token_is_needed_first(self):
        daemon = self.remote()
        for first in ({"ping": 1}, {"hello": 1}, {"hello": 1, "token": "wrong-but-long-enough"}, {"hello": 1, "token": ""}, b"GET / HTTP/1.0\r\n",
                      {"query": {}}):
            line = self.connect(self.address)
            line.send(first, {"query": {}})
            self.assertEqual(line.receive()["error"]["code"], "token")
            self.assertTrue(line.at_end())
        self.assertIn("127.0.0.1", daemon.err.wait("came with (a wrong|no) token"))
        line, _ = self.enter()
        self.assertEqual(line.ask({"ping": 1}), {"pong": 1})

    def test_strangers_are_few_and_do_not_keep_out_those_with_a_token(self):
        daemon = self.remote()
        elsewhere = socket.create_connection(self.address, source_address=("127.0.0.2", 0))
        self.addCleanup(elsewhere.close)
        strangers = [self.connect(self.address) for _ in range(70)]
        self.assertEqual(self.enter()[0].ask({"ping": 1}), {"pong": 1})
        # The oldest went; not those who came last, nor one from another address.
        self.assertTrue(all(stranger.at_end() for stranger in strangers[:70 - 16]))
        for last in (strangers[-1].socket, elsewhere):
            last.setblocking(False)
            self.assertRaises(BlockingIOError, last.recv, 1)
        daemon.err.wait("too many clients without a token from one address: .* 127.0.0.1")
        self.assertEqual(self.connect().ask({"ping": 1}), {"pong": 1})

    def test_strangers_of_many_addresses_are_few_too(self):
        self.remote()
        strangers = []
        for i in range(80):
            stranger = socket.create_connection(self.address, source_address=(f"127.0.0.{2 + i % 8}", 0))
            self.addCleanup(stranger.close)
            stranger.settimeout(PATIENCE_S)
            strangers.append(stranger)
        self.assertEqual(self.enter()[0].ask({"ping": 1}), {"pong": 1})
        for stranger in strangers[:16]:
            self.assertEqual(stranger.recv(1), b"")
        strangers[-1].setblocking(False)
        self.assertRaises(BlockingIOError, strangers[-1].recv, 1)

    def test_long_first_line_is_refused_early(self):
        self.remote()
        line = self.connect(self.address)
        line.send(b"x" * 5000)
        self.assertEqual(line.receive()["error"]["code"], "too-long")
        self.assertTrue(line.at_end())

    def test_token_file_must_be_private_and_is_read_again(self):
        self.tokens.chmod(0o644)
        daemon = self.native("--tcp", "127.0.0.1:0", "--token-file", self.tokens, ready=False)
        self.assertNotEqual(daemon.wait(), 0)
        self.assertTrue(any("chmod 600" in text for text in daemon.err.lines), daemon.err.lines)
        self.write_tokens("nonsense\n")
        self.remote()
        line = self.connect(self.address)
        self.assertEqual(line.ask({"hello": 1, "token": TOKEN})["error"]["code"], "token")
        self.write_tokens(f"farm {hashlib.sha256(TOKEN.encode()).hexdigest().upper()} user=0\n")
        self.enter()
        self.tokens.unlink()
        self.assertEqual(self.connect(self.address).ask({"hello": 1, "token": TOKEN})["error"]["code"], "token")

    def test_tcp_without_token_file_does_not_start(self):
        daemon = self.native("--tcp", "127.0.0.1:0", ready=False)
        self.assertNotEqual(daemon.wait(), 0)
        self.assertTrue(any("token-file" in text for text in daemon.err.lines), daemon.err.lines)

    def test_short_token_is_refused_even_if_it_is_in_the_file(self):
        self.write_tokens(f"short {hashlib.sha256(b'secret').hexdigest()}\n")
        self.remote()
        self.assertEqual(self.connect(self.address).ask({"hello": 1, "token": "secret"})["error"]["code"], "token")

    def test_remote_book_counts_with_its_host_and_expires(self):
        self.remote("--remote-expire", "300ms")
        line, _ = self.enter()
        line.ask({"device": 0, "kind": "gpu", "name": "far GPU"})
        listener = self.connect()
        listener.ask({"subscribe": ["reports"], "pid": 4711})
        line.ask({"alloc": {"device": 0, "space": "dram", "id": 1, "bytes": 777}, "ack": True})
        if os.getuid() == 0:
            event = listener.receive()
            self.assertEqual((event["pid"], event["host"], event["bytes"]), (4711, "far", 777))
        self.assertEqual(self.used(), [(777, 1)])
        watcher = self.connect()
        watcher.ask({"subscribe": ["processes"]})
        time.sleep(0.4)  # connected ones do not expire
        self.assertEqual(self.used(), [(777, 1)])
        line.close()
        went = watcher.wait_event(event="process", what="went")
        self.assertEqual((went["host"], went["bytes"], went["pid"]), ("far", 777, 4711))
        self.assertEqual(self.used(), [])
        self.wait_until(lambda: not self.book_files(), "its book is removed")

    def test_remote_session_resumes_before_it_expires_and_not_after(self):
        self.remote("--remote-expire", "2s")
        line, hello = self.enter()
        line.ask({"device": 0})
        line.ask({"report": [["a", 0, "dram", 1, 777]], "seq": 1, "ack": True})
        line.close()
        line, again = self.enter(session=hello["session"])
        self.assertEqual((again["resumed"], again["seq"]), (True, 1))
        self.assertEqual(self.used(), [(777, 1)])
        line.close()
        self.wait_until(lambda: not self.used(), "it expires")
        _, third = self.enter(session=hello["session"])
        self.assertEqual((third["resumed"], third["seq"]), (False, 0))

    def test_remote_session_resumes_after_kill_and_restart(self):
        daemon = self.remote()
        line, hello = self.enter()
        line.ask({"device": 0})
        line.ask({"report": [["a", 0, "dram", 1, 777]], "seq": 1, "ack": True})
        daemon.kill()
        daemon.wait()
        self.remote()
        line, again = self.enter(session=hello["session"])
        self.assertEqual((again["resumed"], again["seq"]), (True, 1))
        line.ask({"device": 0})
        line.ask({"report": [["a", 0, "dram", 2, 3]], "seq": 2, "ack": True})
        self.assertEqual(self.used(), [(780, 2)])

    def test_session_of_another_token_is_not_resumed(self):
        other = "another-token-of-some-length"
        self.write_tokens("".join(f"t{i} {hashlib.sha256(t.encode()).hexdigest()}\n" for i, t in enumerate((TOKEN, other))))
        self.remote()
        line, hello = self.enter()
        line.ask({"report": [["a", None, "heap", 1, 777]], "seq": 1, "ack": True})
        _, stolen = self.enter(token=other, session=hello["session"])
        self.assertEqual((stolen["resumed"], stolen["seq"]), (False, 0))
        self.assertEqual(self.used(), [(777, 1)])

    def test_silent_stranger_is_closed_after_a_few_seconds(self):
        self.remote("--stall", "1m")
        silent, slow = self.connect(self.address), self.connect(self.address)
        slow.send(b'{"hello"')
        self.assertTrue(silent.at_end() and slow.at_end())

    def test_another_session_is_another_process(self):
        self.remote()
        one, _ = self.enter()
        two, _ = self.enter()
        for line, size in ((one, 10), (two, 20)):
            line.ask({"device": 0})
            line.ask({"alloc": {"device": 0, "space": "dram", "id": 1, "bytes": size}, "ack": True})
        self.assertEqual(sorted(self.used()), [(10, 1), (20, 1)])

    def test_token_without_a_user_sees_no_names(self):
        self.remote()
        local = self.connect()
        local.ask({"alloc": {"space": "pinned", "id": 1, "bytes": 55, "tag": "secret"}, "ack": True})
        line, _ = self.enter()
        rows = line.ask({"query": {"show": "pid,program,command,pinned", "where": f"pid={os.getpid()}"}})["result"]["rows"]
        self.assertEqual((rows[0]["pid"], rows[0]["pinned"]), (os.getpid(), 55))
        self.assertNotIn("python", json.dumps(rows))
        self.assertEqual(line.ask({"query": {"table": "buffers"}})["result"]["rows"], [])
