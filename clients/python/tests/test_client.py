"""The Python client against a real memoird: reporting, batching, breaks, threads, forks, queries, events."""

import hashlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

SOURCE = pathlib.Path(os.environ.get("MEMOIR_SOURCE_ROOT", pathlib.Path(__file__).resolve().parents[3]))
sys.path[:0] = [str(SOURCE / "test/integration"), str(SOURCE / "clients/python")]

import memoir  # noqa: E402
import memoir.client  # noqa: E402
from native_fixture import NativeTest  # noqa: E402

TOKEN = "correct-horse-battery-staple"


class ClientTest(NativeTest):
    def client_of(self, **options):
        client = memoir.Client(self.path, **options)
        self.addCleanup(client.close)
        return client


class Reporting(ClientTest):
    def test_reports_arrive(self):
        self.native()
        client = self.client_of()
        gpu = client.device(3, kind="gpu", name="H200", capacity={"dram": 1 << 40})
        client.alloc(gpu, "dram", id=2**64 - 1, bytes=1000)
        client.alloc(gpu, "dram", id=2, bytes=50)
        client.alloc(None, "pinned", id=2, bytes=7)
        client.realloc(gpu, "dram", old=2, id=3, bytes=60)
        client.transfer((None, "pinned", 2), (gpu, "dram", 3), 7)
        client.free(None, "pinned", id=2)
        self.assertTrue(client.flush())
        self.assertEqual(self.figures(), {(3, "dram"): (1060, 2)})
        self.assertEqual(self.losses(), {})
        status = client.status()
        self.assertEqual((status.connected, status.waiting, status.acknowledged, status.lost, status.refused), (True, 0, 6, 0, 0))

    def test_tags_nest_and_belong_to_their_thread(self):
        self.native()
        client = self.client_of()
        with client.tag("outer"):
            client.alloc(None, "heap", 1, 10)
            with client.tag("inner"):
                client.alloc(None, "heap", 2, 10)
                thread = threading.Thread(target=client.alloc, args=(None, "heap", 3, 10))
                thread.start()
                thread.join()
                client.alloc(None, "heap", 4, 10, tag="own")
            client.alloc(None, "heap", 5, 10)
        client.alloc(None, "heap", 6, 10)
        client.flush()
        self.assertEqual({id: tag for (_, id), (_, tag) in self.blocks().items()},
                         {1: "outer", 2: "inner", 3: None, 4: "own", 5: "outer", 6: None})

    def test_batches_go_by_size_and_by_time(self):
        self.native()
        client = self.client_of(batch=100, interval=30.0)
        for i in range(100):
            client.alloc(None, "heap", i, 1)
        self.wait_until(lambda: self.figures() == {(None, "heap"): (100, 100)}, "a full batch is sent at once")
        client = self.client_of(batch=100000, interval=0.02)
        client.alloc(None, "mapped", 1, 1)
        self.wait_until(lambda: (None, "mapped") in self.figures(), "one report is sent after the interval")

    def test_large_batches_are_cut_to_what_memoird_takes(self):
        self.native("--message-max", "8K")
        client = self.client_of(batch=10000)
        for i in range(5000):
            client.alloc(None, "heap", i, 1, tag="a tag of some length " + "x" * 40)
        self.assertTrue(client.flush(20))
        self.assertEqual(self.figures(), {(None, "heap"): (5000, 5000)})
        self.assertEqual(client.status().lost, 0)

    def test_wrong_arguments_are_counted_or_raised(self):
        self.native()
        client, strict = self.client_of(), self.client_of(strict=True)
        wrong = [(None, "dram", 1, 1), (5, "dram", 1, 1), (None, "drum", 1, 1), (None, "heap", -1, 1), (None, "heap", 2**64, 1),
                 (None, "heap", 1, -1), (None, "heap", 1, 2**48), (None, "heap", "1", 1), (None, "heap", 1, 1.5), (None, "heap", True, 1)]
        for arguments in wrong:
            client.alloc(*arguments)
            with self.assertRaises(ValueError, msg=arguments):
                strict.alloc(*arguments)
        client.alloc(None, "heap", 1, 1)
        client.flush()
        self.assertEqual((client.status().refused, client.status().lost), (len(wrong), 0))
        self.assertEqual(self.figures(), {(None, "heap"): (1, 1)})

    def test_many_threads(self):
        self.native()
        client = self.client_of(batch=50)

        def work(number):
            for i in range(500):
                client.alloc(None, "heap", number * 1000 + i, 3)
                if i % 2:
                    client.free(None, "heap", number * 1000 + i)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertTrue(client.flush(20))
        self.assertEqual(self.figures(), {(None, "heap"): (8 * 250 * 3, 8 * 250)})
        self.assertEqual(self.losses(), {})

    def test_program_that_just_ends_has_told_everything(self):
        daemon = self.native("--log-level=debug")
        script = ("import sys, memoir\nc = memoir.Client(sys.argv[1], interval=60)\n"
                  "for i in range(10): c.alloc(None, 'pinned', i, 1000000)\nprint('ready')\n")
        process = subprocess.run([sys.executable, "-c", script, self.path], env=self.environment(), capture_output=True, text=True,
                                 timeout=60, check=True)
        self.assertEqual((process.stdout, process.stderr), ("ready\n", ""))
        daemon.err.wait(r"gone: removed 10 pinned blocks \(10.0 MB\)")

    def test_child_after_fork_reports_for_itself(self):
        self.native()
        client = self.client_of()
        gpu = client.device(0, name="D")
        client.alloc(gpu, "dram", 1, 1000)
        client.flush()
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                client.alloc(gpu, "dram", 1, 5)
                status = 0 if client.flush() and client.status().acknowledged == 1 else 2
                os.write(write, b"x")
                signal.pause()
            finally:
                os._exit(status)
        self.addCleanup(os.waitpid, pid, 0)
        self.addCleanup(os.kill, pid, signal.SIGKILL)
        os.read(read, 1)
        client.alloc(gpu, "dram", 2, 30)
        client.flush()
        self.assertEqual((self.figures(), self.figures(pid)), ({(0, "dram"): (1030, 2)}, {(0, "dram"): (5, 1)}))

    def environment(self):
        return dict(os.environ, PYTHONPATH=str(SOURCE / "clients/python"))


class Breaks(ClientTest):
    def test_nothing_raises_and_nothing_blocks_without_memoird(self):
        client = self.client_of()
        start = time.monotonic()
        for i in range(1000):
            client.alloc(None, "heap", i, 1)
        self.assertLess(time.monotonic() - start, 5)
        self.assertFalse(client.flush(0.05))
        self.assertFalse(client.status().connected)
        with self.assertRaises(memoir.Unreachable):
            client.ping()
        with self.assertRaises(memoir.Unreachable):
            self.client_strict_flush()
        self.native()
        self.assertTrue(client.flush(20))
        self.assertEqual(self.figures(), {(None, "heap"): (1000, 1000)})

    def client_strict_flush(self):
        client = self.client_of(strict=True)
        client.alloc(None, "heap", 1, 1)
        client.flush(0.05)

    def test_figures_are_equal_after_memoird_was_killed_under_load(self):
        daemon = self.native()
        client = self.client_of(batch=100, interval=0.001)
        gpu = client.device(0, name="D")
        live = {}
        for i in range(20000):
            id = (i * 7919) % 3000
            if id in live and i % 3:
                del live[id]
                client.free(gpu, "dram", id)
            else:
                live[id] = i + 1
                client.alloc(gpu, "dram", id, i + 1, tag="t" if i % 2 else None)
            if i in (4800, 11800):
                self.assertTrue(client.flush(20))
            if i in (5000, 12000):
                daemon.kill()
                daemon.wait()
                daemon = self.native()
        self.assertTrue(client.flush(20))
        self.assertEqual({id: size for (_, id), (size, _) in self.blocks().items()}, live)
        self.assertEqual(self.figures(), {(0, "dram"): (sum(live.values()), len(live))})
        self.assertEqual(client.status().lost, 0)
        self.assertGreaterEqual(client.status().connections, 3)

    def test_two_clients_of_one_process_do_not_harm_each_other(self):
        daemon = self.native()
        clients = [self.client_of() for _ in range(2)]
        for i, client in enumerate(clients):
            for j in range(10):
                client.alloc(None, "heap", 100 * i + j, 1)
            self.assertTrue(client.flush())
        daemon.kill()
        daemon.wait()
        self.native()
        for i, client in enumerate(clients):
            client.free(None, "heap", 100 * i)
            self.assertTrue(client.flush(20))
        self.assertEqual(self.figures(), {(None, "heap"): (18, 18)})

    def test_too_much_to_wait_with_starts_over_with_what_is_alive(self):
        daemon = self.native()
        client = self.client_of(batch=100, interval=0.001, waiting_max=1000)
        for i in range(50):
            client.alloc(None, "heap", i, 10)
        self.assertTrue(client.flush())
        daemon.kill()
        daemon.wait()
        self.wait_until(lambda: not self.reports_connected(client), "the client notices")
        for i in range(5000):
            client.alloc(None, "heap", 100 + i, 1, tag="t")
            client.free(None, "heap", 100 + i)
        client.free(None, "heap", 0)
        client.alloc(None, "heap", 77, 5, tag="kept")
        self.assertLessEqual(client.status().waiting, 1000)
        self.native()
        self.assertTrue(client.flush(20))
        self.assertEqual(self.figures(), {(None, "heap"): (49 * 10 + 5, 50)})
        self.assertEqual(self.blocks()["heap", 77], (5, "kept"))

    def reports_connected(self, client):
        client.alloc(None, "mapped", 1, 1)
        client.free(None, "mapped", 1)
        return client.status().connected

    def test_over_tcp_an_expired_client_comes_back_with_all_it_holds(self):
        tokens = self.folder / "tokens"
        tokens.write_text(f"farm {hashlib.sha256(TOKEN.encode()).hexdigest()} user={os.getuid()}\n")
        tokens.chmod(0o600)
        port = self.free_port()
        flags = ("--tcp", f"127.0.0.1:{port}", "--token-file", tokens, "--remote-expire", "100ms")
        daemon = self.native(*flags)
        client = memoir.Client(address=f"127.0.0.1:{port}", token=TOKEN)
        self.addCleanup(client.close)
        client.alloc(None, "heap", 1, 10)
        self.assertTrue(client.flush())
        used = {"table": "accounts", "where": f"node={socket.gethostname()}", "show": "bytes,source"}
        self.assertEqual([row["bytes"] for row in client.query(**used)], [10])
        daemon.kill()
        daemon.wait()
        self.native(*flags)
        self.wait_until(lambda: not self.book_files(), "nobody came back, and the book expired")
        client.alloc(None, "heap", 2, 5)
        self.assertTrue(client.flush(20))
        self.assertEqual([row["bytes"] for row in client.query(**used)], [15])
        wrong = memoir.Client(address=f"127.0.0.1:{port}", token="wrong-token-of-some-length")
        self.addCleanup(wrong.close)
        with self.assertRaises(memoir.Error) as caught:
            wrong.ping()
        self.assertEqual(caught.exception.code, "token")

    @staticmethod
    def free_port():
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]


class Asking(ClientTest):
    def test_query_sees_what_was_just_reported(self):
        self.native()
        client = self.client_of(interval=60)
        gpu = client.device(0, name="D", capacity={"dram": 100})
        client.alloc(gpu, "dram", 1, 25)
        result = client.query("devices", show=["used", "percent"])
        self.assertEqual((len(result), result.matched, result.table), (1, 1, "devices"))
        self.assertEqual([(row["used"], row["percent"]) for row in result], [(25, 25)])
        self.assertEqual([c["name"] for c in result.columns][-2:], ["used", "percent"])
        with self.assertRaises(memoir.Error) as caught:
            client.query(where="nonsense > 3")
        self.assertEqual((caught.exception.code, caught.exception.details["part"]), ("bad-query", "where"))
        self.assertGreater(client.ping(), 0)

    def test_queries_go_on_after_a_restart(self):
        daemon = self.native()
        client = self.client_of()
        self.assertGreater(client.ping(), 0)
        daemon.kill()
        daemon.wait()
        self.native()
        self.assertGreater(client.ping(), 0)

    def test_subscribe(self):
        self.native()
        client = self.client_of(interval=0.001)
        with client.subscribe(["reports", "devices"], interval=0.05) as events:
            client.alloc(None, "heap", 1, 10, tag="t")
            kinds = set()
            for event in events:
                kinds.add(event["event"])
                if event["event"] == "alloc":
                    self.assertEqual((event["pid"], event["bytes"], event["tag"]), (os.getpid(), 10, "t"))
                if kinds >= {"alloc", "devices"}:
                    break
        with client.subscribe(["reports"]) as events:
            self.assertIsNone(events.next(0.02))
            client.free(None, "heap", 1)
            self.assertEqual(events.next(20)["event"], "free")
        with self.assertRaises(memoir.Error):
            client.subscribe(["nonsense"])

    def test_subscription_ends_when_it_is_closed_elsewhere(self):
        self.native()
        events = self.client_of().subscribe(["processes"])
        threading.Timer(0.05, events.close).start()
        self.assertEqual(list(events), [])


if __name__ == "__main__":
    unittest.main()
