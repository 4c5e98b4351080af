"""Tenstorrent's allocation protocol, as its clients see it."""

import fcntl
import json
import os
import pathlib
import random
import re
import signal
import socket
import stat
import subprocess
import sys
import time
import unittest

import stage
import tt_client as tt
from daemon_fixture import BUILD, MEMOIRD, NOBODY, PATIENCE_S, SANITIZED, DaemonTest, Process, as_user, crowded, needs_root
from tt_client import Connection, held, message

PROGRAM = stage.for_others(pathlib.Path(__file__).resolve().parent / "tt_client.py")
NOTHING = {"dram": 0, "l1": 0, "l1_small": 0, "trace": 0, "cb": 0, "kernel": 0}


class Client(Process):
    """tt_client.py as a process of its own; waits until its reports are accounted."""

    def __init__(self, path, *arguments, prefix=()):
        super().__init__([*prefix, sys.executable, PROGRAM, path, *arguments])
        self.out.wait(r"^ready \d+$")

    def say(self, word):
        count = sum(line.split()[0] == word for line in self.out.lines) + 1
        self.popen.stdin.write(word + "\n")
        self.popen.stdin.flush()
        return [int(figure) for figure in self.out.wait(rf"^{word}\b", count).split()[1:]]


class ServerTest(DaemonTest):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "tt.sock"

    def server(self, *flags, **options):
        return self.daemon("--tt-socket", self.path, *flags, **options)

    def connect(self, total=144, **options):
        connection = Connection(self.path, total, **options)
        self.addCleanup(connection.close)
        return connection

    def tt_client(self, *arguments, **options):
        client = Client(self.path, *arguments, **options)
        self.addCleanup(client.close)
        return client

    def losses(self, pid=None):
        """What books say was not accounted, by name, from memoir's own view."""
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients/python"))
        from memoir import book
        for path in self.book_files():
            if path.name.startswith(f"{pid or os.getpid()}-"):
                with book.Book.open(path) as opened:
                    return opened.status().losses
        return None

    def until(self, condition):
        self.wait_until(condition, "what was waited for")


class Messages(ServerTest):
    def test_every_size_reports_and_queries(self):
        self.server()
        for total in tt.SIZES:
            with self.subTest(total=total), Connection(self.path, total) as c:
                for memory in range(5):
                    c.send(tt.ALLOC, 3, size=1000 * (memory + 1), memory=memory, number=memory + 1)
                c.send(tt.CB_ALLOC, 3, size=77, number=1)
                c.send(tt.KERNEL_LOAD, 3, size=99, number=1)
                answer = c.query(3)
                self.assertEqual(answer["type"], tt.RESPONSE)
                expected = {"dram": 1000, "l1": 2000, "l1_small": 4000, "trace": 5000}
                if total >= 128:
                    expected.update(cb=77, kernel=99)
                self.assertEqual(held(answer), expected)
                for memory in range(5):
                    c.send(tt.FREE, 3, memory=memory, number=memory + 1)
                c.send(tt.CB_FREE, 3, number=1)
                c.send(tt.KERNEL_UNLOAD, 3, number=1)
                self.assertEqual(held(c.query(3)), {key: 0 for key in expected})

    def test_a_first_question_is_answered_in_its_own_size(self):
        self.server()
        for total in tt.SIZES:
            for question in (tt.QUERY, tt.INFO_QUERY):
                with self.subTest(total=total, question=question), Connection(self.path, total) as c:
                    for _ in range(3):
                        c.send(question, 0, pid=0)
                        c.receive()
                    c.socket.settimeout(0.05)
                    self.assertRaises(TimeoutError, c.socket.recv, 1)

    def test_messages_may_be_split_at_any_byte(self):
        self.server()
        for total in tt.SIZES:
            data = message(tt.ALLOC, size=10, number=1, total=total) + \
                message(tt.ALLOC, size=20, memory=tt.L1, number=2, total=total) + \
                message(tt.QUERY, pid=0, total=total)
            for cut in range(1, len(data)):
                with Connection(self.path, total) as c:
                    c.socket.sendall(data[:cut])
                    time.sleep(0.0005 if cut % 8 else 0)
                    c.socket.sendall(data[cut:])
                    self.assertEqual((c.receive()["dram"], total, cut), (10, total, cut))

    def test_messages_may_come_byte_by_byte(self):
        self.server()
        for total in tt.SIZES:
            with self.subTest(total=total), Connection(self.path, total) as c:
                for byte in message(tt.ALLOC, size=10, number=1, total=total) + message(tt.QUERY, total=total):
                    c.socket.sendall(bytes([byte]))
                    time.sleep(0.0003)
                self.assertEqual(c.receive()["dram"], 10)

    def test_nobody_holds_more_than_there_is(self):
        self.server()
        most = (1 << 48) - 1
        c = self.connect()
        other = self.tt_client("--buffers", "1", "--bytes", "1000")
        c.socket.sendall(b"".join(message(tt.ALLOC, size=most, number=n) for n in range(1, 300)))
        # Sums that begin anew at 0 would hide what others hold.
        answer = c.query()
        self.assertGreater(answer["dram"], 1 << 55)
        self.assertLess(answer["dram"], 1 << 57)
        self.assertEqual(answer["number"], 256 + 1)
        self.assertEqual(self.losses()["limit"], 299 - 256)
        c.send(tt.FREE, number=1)
        c.send(tt.ALLOC, size=most, number=1000)
        self.assertEqual(c.query()["number"], 256 + 1)
        other.close()

    def test_a_pause_inside_the_first_message_is_no_end_of_it(self):
        self.server()
        for cut in (72, 112, 128):
            data = message(tt.ALLOC, size=10, number=1) + message(tt.QUERY)
            with self.subTest(cut=cut), Connection(self.path) as c:
                c.socket.sendall(data[:cut])
                time.sleep(0.1)  # longer than it takes to guess
                c.socket.sendall(data[cut:])
                self.assertEqual(c.receive()["dram"], 10)

    def test_one_report_of_a_small_message_counts_at_once_and_may_stay_alone(self):
        self.server("--stall", "100ms")
        for total in tt.SIZES:
            with self.subTest(total=total), Connection(self.path, total) as c:
                c.send(tt.ALLOC, size=10 + total, number=1)
                monitor = self.connect()
                self.until(lambda: monitor.query()["dram"] == 10 + total)
                time.sleep(0.3)  # longer than half a message may stand
                self.assertEqual(c.query()["dram"], 10 + total)
                c.send(tt.FREE, number=1)
                self.assertEqual(c.query()["dram"], 0)

    def test_garbage_closes_the_connection(self):
        daemon = self.server()
        noise = random.Random(4)
        for data in (b"\0" * 144, b"\xff" * 400, b"GET / HTTP/1.1\r\n\r\n" * 20,
                     bytes(noise.randrange(256) for _ in range(1000)),
                     message(tt.ALLOC, size=1, number=1) + b"\xff" * 200):
            c = self.connect()
            try:
                c.socket.sendall(data)
            except ConnectionError:
                pass
            self.assertTrue(c.is_closed())
        c = self.connect()
        c.send(tt.ALLOC, size=5, number=9)
        self.assertEqual(c.query()["dram"], 5)
        c.socket.sendall(message(99) * 9)  # a few of an unknown type are skipped
        self.assertEqual(c.query()["dram"], 5)
        c.socket.sendall(message(99))
        self.assertTrue(c.is_closed())
        self.assertIsNone(daemon.popen.poll())

    def test_a_large_batch_is_applied_in_order(self):
        self.server()
        c = self.connect()
        data = b"".join(message(tt.ALLOC, size=7, memory=i % 5, number=i) +
                        (message(tt.FREE, number=i) if i % 2 else b"") for i in range(1, 20001))
        c.socket.sendall(data + message(tt.QUERY))
        answer = c.receive()
        self.assertEqual(answer["dram"] + answer["l1"] + answer["l1_small"] + answer["trace"], 7 * 8000)
        self.assertEqual(answer["number"], 8000)


class Honesty(ServerTest):
    def test_a_buffer_that_is_reported_again_replaces_itself(self):
        self.server()
        c = self.connect()
        c.send(tt.ALLOC, size=100, number=1)
        c.send(tt.ALLOC, size=300, number=1)
        c.send(tt.CB_ALLOC, size=50, number=1)
        c.send(tt.CB_ALLOC, size=60, number=1)
        self.assertEqual(held(c.query()), NOTHING | {"dram": 300, "cb": 60})
        c.send(tt.ALLOC, size=40, memory=tt.L1, number=1)  # the same id in another memory
        self.assertEqual(held(c.query()), NOTHING | {"l1": 40, "cb": 60})
        self.assertEqual(self.losses().get("replaced"), 3)

    def test_a_free_counts_what_was_allocated_whatever_it_says(self):
        self.server()
        c = self.connect()
        c.send(tt.ALLOC, size=100, memory=tt.L1, number=1)
        c.send(tt.CB_ALLOC, size=100, number=1)
        c.send(tt.KERNEL_LOAD, size=100, number=1)
        c.send(tt.FREE, size=1 << 40, memory=tt.DRAM, number=1)  # wrong size, wrong memory
        c.send(tt.CB_FREE, size=1 << 40, number=1)
        c.send(tt.KERNEL_UNLOAD, size=1 << 40, number=1)
        self.assertEqual(held(c.query()), NOTHING)

    def test_unknown_frees_change_nothing_and_are_counted(self):
        self.server()
        c = self.connect()
        c.send(tt.ALLOC, size=100, number=1)
        for kind in (tt.FREE, tt.CB_FREE, tt.KERNEL_UNLOAD):
            c.send(kind, size=50, number=77)
        c.send(tt.FREE, 5, number=1)  # another device
        self.assertEqual(held(c.query()), NOTHING | {"dram": 100})
        self.assertEqual(self.losses().get("unknown_free"), 4)

    def test_ids_belong_to_their_process(self):
        self.server()
        client = self.tt_client("--buffers", "2", "--bytes", "1000")  # ids 1 and 2
        c = self.connect()
        c.send(tt.ALLOC, size=5, number=1)
        self.assertEqual(c.query()["dram"], 1005)
        c.send(tt.FREE, number=1)
        c.send(tt.FREE, number=2)  # somebody else's
        self.assertEqual(held(c.query()), NOTHING | {"dram": 1000, "l1": 1000})
        self.assertEqual(client.say("free"), [0] * 6)

    def test_reports_that_make_no_sense_are_counted(self):
        self.server()
        c = self.connect()
        c.send(tt.ALLOC, size=10, number=1)
        c.send(tt.ALLOC, size=0, number=2)
        c.send(tt.ALLOC, size=1 << 48, number=3)
        c.send(tt.ALLOC, size=10, memory=5, number=4)
        c.send(tt.ALLOC, -1, size=10, number=5)
        self.assertEqual(held(c.query()), NOTHING | {"dram": 10})
        self.assertEqual(self.losses().get("bad_argument"), 4)

    def test_devices_and_capacities(self):
        self.server("--tt-arch", "blackhole")
        c = self.connect()
        self.assertEqual(c.info(-1)["devices"], len(list(pathlib.Path("/sys/class/tenstorrent").glob("*"))))
        for device in (0, 5, 900):
            c.send(tt.ALLOC, device, size=10, number=1)
        self.assertGreaterEqual(c.info(-1)["devices"], 3)
        info = c.info(5)
        self.assertEqual((info["type"], info["available"], info["arch"]), (tt.INFO_RESPONSE, 1, 3))
        self.assertEqual(info["total_dram"], 8 * 4278190080)
        self.assertEqual(info["total_l1"], 140 * 1572864)
        self.assertEqual((info["channels"], info["per_channel"], info["per_core"]), (8, 4278190080, 1572864))
        self.assertEqual(c.info(7)["available"], 0)
        self.assertEqual(c.query(900)["dram"], 10)

    @needs_root
    def test_a_claim_does_not_change_a_capacity_that_is_configured(self):
        native = self.folder / "native.sock"
        self.server("--tt-arch", "blackhole", "--socket", native, "--socket-group", "all")
        c = self.connect()
        c.send(tt.ALLOC, size=10, number=1)
        self.assertEqual(c.info()["total_dram"], 8 * 4278190080)
        for claim in (1, 1 << 50):
            code = ("import json, socket, sys\n"
                    "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); f = s.makefile('rw')\n"
                    "def ask(m): f.write(json.dumps(m) + '\\n'); f.flush(); return f.readline()\n"
                    f"ask({{'device': 0, 'kind': 'npu', 'name': 'Blackhole', 'capacity': {{'dram': {claim}}}}})\n"
                    "print('ready', ask({'alloc': {'device': 0, 'space': 'dram', 'id': 1, 'bytes': 500}, 'ack': True}), flush=True)\n"
                    "sys.stdin.read()")
            liar = Process([*as_user(NOBODY), sys.executable, "-c", code, native])
            self.addCleanup(liar.close)
            liar.out.wait("^ready")
        self.until(lambda: c.query()["dram"] == 1010)
        self.assertEqual(c.info()["total_dram"], 8 * 4278190080)

    def test_what_nobody_knows_is_zero(self):
        self.server()
        c = self.connect()
        c.send(tt.ALLOC, 63, size=10, number=1)
        c.send(tt.KERNEL_LOAD, 63, size=10, number=1)
        answer = c.query(63)
        self.assertEqual([answer[k] for k in ("total_dram", "total_l1", "arch", "ring_total", "ring_used")], [0] * 5)
        self.assertEqual(answer["programs"], 1)

    @unittest.skipIf(SANITIZED, "a sanitized library cannot be loaded into Python")
    def test_a_query_adds_up_all_sources(self):
        self.server("--refresh", "1h")
        c = self.connect()
        c.send(tt.ALLOC, size=10, number=1)
        library = BUILD / "src/client/libmemoir.so"
        code = ("import ctypes, struct, sys\n"
                f"m = ctypes.CDLL({str(library)!r}); name = b'Blackhole p150'\n"
                "class Options(ctypes.Structure): _fields_ = [('size', ctypes.c_size_t), ('kind', ctypes.c_int),\n"
                "  ('ordinal', ctypes.c_int), ('name', ctypes.c_char_p), ('uid', ctypes.c_char_p),\n"
                "  ('bus', ctypes.c_char_p), ('capacity', ctypes.c_uint64 * 32)]\n"
                "o = Options(ctypes.sizeof(Options), 2, 0, name, b'asic-1', None)\n"
                "d = m.memoir_device(ctypes.byref(o))\n"
                "m.memoir_alloc(d, 16, ctypes.c_uint64(1), ctypes.c_uint64(5000))\n"
                "print('ready', flush=True); input()")
        process = Process([sys.executable, "-c", code], env=dict(os.environ, MEMOIR_DIR=str(self.books)))
        self.addCleanup(process.close)
        process.out.wait("ready")
        self.until(lambda: c.query()["dram"] == 5010)
        self.assertEqual(c.info()["arch"], 3)  # by the name that the other one told
        process.kill()
        process.close()
        self.until(lambda: c.query()["dram"] == 10)


class Originals(ServerTest):
    """Clients as Tenstorrent's own programs behave."""

    def test_a_free_with_pid_0_is_the_senders(self):
        self.server()
        for total in tt.SIZES:
            with self.subTest(total=total), Connection(self.path, total) as c:
                c.send(tt.ALLOC, size=1 << 20, memory=tt.L1, number=1)
                c.send(tt.FREE, pid=0, number=1)  # the second message also has to prove the size
                c.send(tt.ALLOC, size=total, pid=0, number=2)
                self.assertEqual((c.query()["l1"], c.query()["dram"]), (0, total))
                c.send(tt.FREE, pid=0, number=2)
                self.assertEqual(c.query()["dram"], 0)
        self.assertFalse(self.losses())

    @needs_root
    def test_pid_0_in_a_pid_namespace_is_the_sender(self):
        self.server()
        client = self.tt_client("--buffers", "3", "--anonymous", prefix=("unshare", "--pid", "--fork"))
        with self.connect() as c:
            self.assertEqual(c.query()["dram"], 2000)
            client.say("free")
            self.assertEqual(c.query()["dram"], 0)

    def test_a_dump_whose_sender_closes_at_once_is_in_the_log(self):
        daemon = self.server()
        c = self.connect()
        c.send(tt.ALLOC, 3, size=4242, number=1)
        self.assertEqual(c.query(3)["dram"], 4242)
        for turn, total in enumerate((72, 104, 112), 1):  # 104: what dump_kernels.py sends
            with Connection(self.path, total) as script:
                script.send(tt.DUMP_REMAINING, 0, pid=0)
            daemon.err.wait(rf"dump: PID {os.getpid()} .* holds 4242 bytes in 1 blocks of dram on device 3", turn)
            time.sleep(1.1)  # at most one dump a second goes to the log

    def test_a_first_question_is_answered_when_its_sender_half_closes(self):
        self.server()
        for total in tt.SIZES:
            with self.subTest(total=total), Connection(self.path, total) as c:
                c.socket.sendall(message(tt.QUERY, pid=0, total=total)[:50])
                time.sleep(0.02)
                c.socket.sendall(message(tt.QUERY, pid=0, total=total)[50:])
                c.socket.shutdown(socket.SHUT_WR)
                began = time.monotonic()
                self.assertEqual(c.receive()["type"], tt.RESPONSE)
                self.assertTrue(c.is_closed())
                self.assertLess(time.monotonic() - began, 0.9)  # not the pause that ends a message in pieces

    def test_answers_reach_a_client_that_half_closed(self):
        self.server()
        with self.connect() as c:
            for number in range(3000):
                c.send(tt.ALLOC, size=10, number=number + 1)
            c.send(tt.DUMP_REMAINING, -1, number=tt.DUMP_MARK)
            c.socket.shutdown(socket.SHUT_WR)
            time.sleep(0.2)  # the socket's buffer holds less than the answer
            rows = [c.receive() for _ in range(3001)]
            self.assertEqual((rows[-1]["device"], rows[-1]["size"]), (-1, 3000))
            self.assertTrue(c.is_closed())

    def test_a_device_of_unknown_capacity_is_not_available(self):
        self.server()
        c = self.connect()
        c.send(tt.ALLOC, 63, size=10, number=1)
        self.assertEqual([c.info(63)[k] for k in ("available", "total_dram", "dram")], [0, 0, 10])

    def test_the_doctor_tells_of_reports_that_were_rejected(self):
        self.daemon("--tt-socket", self.path, "--socket", self.folder / "memoird.sock")
        c = self.connect()
        c.send(tt.ALLOC, size=10, number=1)
        c.query()
        findings = self.doctor_findings()
        self.assertFalse([f for f in findings if "rejected" in f], findings)
        c.send(tt.FREE, pid=2 ** 30, number=1)
        c.query()
        findings = self.doctor_findings()
        self.assertTrue([f for f in findings if "rejected 1 reports" in f], findings)

    def doctor_findings(self):
        done = subprocess.run([BUILD / "src/cli/memoir", "doctor", "--json", "--dir", self.books], capture_output=True,
                              env=dict(os.environ, XDG_RUNTIME_DIR=str(self.folder)), timeout=PATIENCE_S)
        return [f["finding"] for f in json.loads(done.stdout)["findings"]]


class Dumps(ServerTest):
    def test_a_marked_dump_answers_with_one_message_for_each_block(self):
        self.server()
        for total in tt.SIZES:
            with self.subTest(total=total), Connection(self.path, total) as c:
                for number in range(1, 6):
                    c.send(tt.ALLOC, number % 2, size=100 * number, memory=number % 5, number=number)
                c.send(tt.CB_ALLOC, size=7, number=1)
                c.send(tt.KERNEL_LOAD, size=8, number=2)
                rows, end = c.dump()
                self.assertEqual(sorted((r["device"], r["memory"], r["size"], r["number"]) for r in rows),
                                 [(0, 2, 200, 2), (0, 4, 400, 4), (0, 5, 7, 1), (0, 6, 8, 2),
                                  (1, 0, 500, 5), (1, 1, 100, 1), (1, 3, 300, 3)])
                self.assertEqual({r["pid"] for r in rows}, {os.getpid()})
                self.assertEqual((end["size"], end["memory"]), (7, 0))
                self.assertEqual(len(c.dump(device=1)[0]), 3)
                self.assertEqual([r["size"] for r in c.dump(tt.DUMP_KERNELS)[0]], [8])
                self.assertEqual(c.query(1)["dram"], 500)  # and goes on as before

    def test_an_unmarked_dump_is_for_the_log_only(self):
        daemon = self.server()
        c = self.connect()
        c.send(tt.ALLOC, size=4242, number=1)
        c.send(tt.DUMP_REMAINING, -1)
        self.assertEqual(c.query()["dram"], 4242)  # the first bytes that come are the answer to this
        daemon.err.wait(rf"dump: PID {os.getpid()} .* holds 4242 bytes in 1 blocks of dram on device 0")
        time.sleep(1.1)  # not more than one dump a second goes to the log
        c.send(tt.DUMP_KERNELS, -1)
        daemon.err.wait(r"dump: nothing is held")


class Deaths(ServerTest):
    def test_killed_clients_memory_is_gone_in_milliseconds(self):
        daemon = self.server()
        monitor = self.connect()
        delays = []
        for _ in range(5 if SANITIZED else 20):
            client = self.tt_client("--buffers", "4000", "--cbs", "800", "--kernels", "30")
            self.assertEqual(held(monitor.query()),
                             NOTHING | {"dram": 2000000, "l1": 2000000, "cb": 800000, "kernel": 30000})
            start = time.monotonic()
            client.kill()
            while held(monitor.query()) != NOTHING:
                self.assertLess(time.monotonic() - start, PATIENCE_S)
            delays.append(time.monotonic() - start)
            client.close()
            daemon.err.wait(rf"PID {client.pid} \(tt_client.py, killed by SIGKILL\) gone: removed 4000 buffers "
                            r".*, 800 CBs .*, 30 kernels")
        delays.sort()
        print(f"# from kill to zero: median {delays[len(delays) // 2] * 1e3:.2f} ms, most {delays[-1] * 1e3:.2f} ms")
        self.assertLess(delays[len(delays) // 2], crowded(1 if SANITIZED else 0.1))
        self.assertEqual(self.book_files(), [])

    def test_who_only_disconnects_still_holds_its_memory(self):
        self.server()
        c = self.connect()
        c.send(tt.ALLOC, size=10, number=1)
        self.assertEqual(c.query()["dram"], 10)
        c.close()
        c = self.connect()
        self.assertEqual(c.query()["dram"], 10)
        c.send(tt.FREE, number=1)
        self.assertEqual(c.query()["dram"], 0)

    def test_exec_gives_the_memory_back(self):
        daemon = self.server()
        code = (f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r}); import os, tt_client as tt\n"
                f"c = tt.Connection({str(self.path)!r}); c.send(tt.ALLOC, size=10, number=1); c.query()\n"
                "print('ready', flush=True); input(); os.execv('/bin/sleep', ['sleep', '60'])")
        process = Process([sys.executable, "-c", code])
        self.addCleanup(process.close)
        process.out.wait("ready")
        process.popen.stdin.write("\n")
        process.popen.stdin.flush()
        daemon.err.wait(rf"PID {process.pid} \(.*, replaced by exec\) gone: removed 1 buffer")
        self.assertEqual(self.connect().query()["dram"], 0)

    def test_a_forked_child_speaks_for_itself_over_its_parents_connection(self):
        self.server()
        c = self.connect()
        c.send(tt.ALLOC, size=10, number=1)
        self.assertEqual(c.query()["dram"], 10)
        child = os.fork()
        if child == 0:
            c.send(tt.ALLOC, size=500, number=1)
            time.sleep(60)
            os._exit(0)
        monitor = self.connect()
        self.until(lambda: monitor.query()["dram"] == 510)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        self.until(lambda: monitor.query()["dram"] == 10)

    def test_three_clients_at_once_and_one_after_the_other(self):
        self.server()
        monitors = [self.connect(total) for total in tt.SIZES]
        clients = [self.tt_client("--buffers", "10", "--bytes", "100", "--size", str(size)) for size in (144, 112, 72)]
        for monitor in monitors:
            self.assertEqual(monitor.query()["dram"], 3 * 500)
        for left, client in zip((2, 1, 0), clients):
            client.close()
            for monitor in monitors:
                self.until(lambda: monitor.query()["dram"] == left * 500)
        for _ in range(3):
            client = self.tt_client("--buffers", "10", "--bytes", "100")
            self.assertEqual(monitors[0].query()["dram"], 500)
            client.close()
            self.until(lambda: monitors[0].query()["dram"] == 0)


class Restarts(ServerTest):
    def test_a_killed_daemon_loses_nothing(self):
        daemon = self.server()
        clients = [self.tt_client("--buffers", str(10 * n), "--cbs", str(n), "--kernels", "2") for n in range(1, 6)]
        c = self.connect()
        c.send(tt.ALLOC, size=12345, number=1)
        before = c.query()
        daemon.kill()
        daemon.wait()
        self.assertTrue(stat.S_ISSOCK(self.path.stat().st_mode))  # a stale one
        clients[4].kill()  # while nobody looks
        clients[4].close()
        self.server()
        c = self.connect()
        after = c.query()
        for key, lost in (("dram", 25000), ("l1", 25000), ("cb", 5000), ("kernel", 2000)):
            self.assertEqual(after[key], before[key] - lost, key)
        # What they report next goes on from there.
        c.send(tt.ALLOC, size=5, number=2)
        self.assertEqual(c.query()["dram"], after["dram"] + 5)
        c.send(tt.FREE, number=1)
        c.send(tt.FREE, number=2)
        self.assertEqual(c.query()["dram"], after["dram"] - 12345)
        mine = [path for path in self.book_files() if path.name.startswith(f"{os.getpid()}-")]
        self.assertEqual(len(mine), 1)

    def test_a_lock_on_a_book_costs_nothing_when_memoird_is_restarted(self):
        """Whoever may read a book can lock it, for as long as he likes."""
        for kind in (fcntl.LOCK_SH, fcntl.LOCK_EX):
            daemon = self.server()
            with self.connect() as c:
                for number in range(1, 101):
                    c.send(tt.ALLOC, size=1000, number=number)
                self.assertEqual(c.query()["dram"], 100000)
            daemon.kill()
            daemon.wait()
            path, = self.book_files()
            with path.open("rb") as reader:
                fcntl.flock(reader, kind)
                daemon = self.server()
                with self.connect() as c:
                    self.assertEqual(c.query()["dram"], 100000)
                    c.send(tt.FREE, number=1)
                    c.send(tt.ALLOC, size=5, number=101)
                    self.assertEqual(c.query()["dram"], 99005)
                    for number in range(1, 102):
                        c.send(tt.FREE, number=number)
                    self.assertEqual(c.query()["dram"], 0)
            self.assertEqual(len(self.book_files()), 1)
            daemon.kill()
            daemon.wait()

    def test_an_adopted_book_keeps_ages_and_large_tables(self):
        daemon = self.server()
        c = self.connect()
        c.socket.sendall(b"".join(message(tt.ALLOC, size=i, memory=i % 5, number=i) for i in range(1, 30001)))
        before = held(c.query())
        rows = {(r["memory"], r["number"]): r for r in c.dump()[0]}
        self.assertEqual(len(rows), 30000)
        created = self.created()
        daemon.kill()
        daemon.wait()
        self.server()
        c = self.connect()
        c.send(tt.ALLOC, 1, size=1, number=1)  # adopts
        self.assertEqual(held(c.query()), before)
        again = {(r["memory"], r["number"]): r for r in c.dump(device=0)[0]}
        self.assertEqual({key: row["size"] for key, row in again.items()},
                         {key: row["size"] for key, row in rows.items()})
        self.assertTrue(all(abs(again[key]["time"] - rows[key]["time"]) < 40e6 for key in rows))  # two units of time
        self.assertEqual(self.created(), created)
        c.socket.sendall(b"".join(message(tt.FREE, number=i) for i in range(1, 30001)))
        self.assertEqual(held(c.query()), NOTHING)
        self.assertNotIn("unknown_free", self.losses())

    def created(self):
        """The moment from which times count in the only book, by both clocks."""
        (path,) = self.book_files()
        with open(path, "rb") as book:
            return book.read(128)[112:]

    def test_killed_again_and_again_under_load(self):
        path = str(self.path)
        code = (f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r}); import time, tt_client as tt\n"
                "live, n, c = {}, 0, None\n"
                "while True:\n"
                "  try:\n"
                f"    c = c or tt.Connection({path!r})\n"
                "    n += 1; live[n] = n; c.send(tt.ALLOC, size=n, number=n)\n"
                "    if n % 3 == 0: c.send(tt.FREE, number=n - 1); del live[n - 1]\n"
                "    if n == 4000: break\n"
                "  except OSError:\n"
                "    c = None; time.sleep(0.001)\n"
                # What was on its way when the daemon died is told again, as a client must.
                "while True:\n"
                "  try:\n"
                f"    c = c or tt.Connection({path!r})\n"
                "    for i in range(1, n + 1):\n"
                "      if i in live: c.send(tt.ALLOC, size=i, number=i)\n"
                "      else: c.send(tt.FREE, number=i)\n"
                "    c.query(); break\n"
                "  except (OSError, EOFError):\n"
                "    c = None; time.sleep(0.001)\n"
                "print('sum', sum(live), flush=True); input()")
        daemon = self.server()
        process = Process([sys.executable, "-c", code])
        self.addCleanup(process.close)
        for _ in range(5):
            time.sleep(0.02)
            daemon.kill()
            daemon.wait()
            daemon = self.server()
        expected = int(process.out.wait(r"^sum \d+").split()[1])
        self.assertEqual(self.connect().query()["dram"], expected)
        process.kill()
        process.close()
        monitor = self.connect()
        self.until(lambda: monitor.query()["dram"] == 0)

    def test_an_orderly_end_keeps_books_and_removes_the_socket(self):
        daemon = self.server()
        client = self.tt_client("--buffers", "2")
        daemon.kill(signal.SIGTERM)
        self.assertEqual(daemon.wait(), 0)
        self.assertFalse(self.path.exists())
        self.assertEqual(len(self.book_files()), 1)
        self.server()
        self.assertEqual(self.connect().query()["dram"], 1000)
        client.close()


class Sockets(ServerTest):
    def test_a_stale_socket_is_replaced_and_a_live_one_is_not(self):
        old = socket.socket(socket.AF_UNIX)
        old.bind(str(self.path))
        old.listen()
        refused = self.server(ready=False)
        self.assertEqual(refused.wait(), 1)
        self.assertIn("another server answers there", "\n".join(refused.err.lines))
        old.close()
        self.server()
        self.connect().query()

    def test_other_files_are_left_alone(self):
        self.path.write_text("mine")
        refused = self.server(ready=False)
        self.assertEqual(refused.wait(), 1)
        self.assertIn("no socket has that name", "\n".join(refused.err.lines))
        self.assertEqual(self.path.read_text(), "mine")
        self.path.unlink()
        self.path.symlink_to(self.folder / "elsewhere")
        refused = self.server(ready=False)
        self.assertEqual(refused.wait(), 1)
        self.assertTrue(self.path.is_symlink())

    def test_only_the_group_may_connect(self):
        self.server()
        self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o660)

    def test_a_group_can_be_named(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        self.server("--socket-group", str(NOBODY))
        info = self.path.stat()
        self.assertEqual((stat.S_IMODE(info.st_mode), info.st_gid), (0o660, NOBODY))
        bad = self.spawn("--dir", self.books / "other", "--state", self.folder / "s2", "--socket", "none", "--tt-socket",
                         self.folder / "x.sock", "--socket-group", "nosuchgroup")
        self.assertEqual(bad.wait(), 1)
        self.assertIn("no such group", "\n".join(bad.err.lines))

    def test_a_socket_of_another_user_in_a_sticky_folder_is_his(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        sticky = self.folder / "sticky"
        sticky.mkdir()
        sticky.chmod(0o1777)
        path = sticky / "tt.sock"
        old = socket.socket(socket.AF_UNIX)
        old.bind(str(path))
        old.close()
        books = self.books / "mine"
        books.mkdir(mode=0o777)
        books.chmod(0o777)
        state = self.folder / "his"
        state.mkdir()
        os.chown(state, NOBODY, NOBODY)
        refused = self.spawn("--dir", books, "--state", state, "--socket", "none", "--tt-socket", path,
                             prefix=as_user(NOBODY))
        self.assertEqual(refused.wait(), 1)
        self.assertRegex("\n".join(refused.err.lines), "another user's|Permission denied")


class Users(ServerTest):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("needs root")

    def test_a_second_user_cannot_free_or_report_for_another(self):
        daemon = self.server("--socket-group", "all")
        mine = self.connect()
        mine.send(tt.ALLOC, size=100, number=1)
        self.assertEqual(mine.query()["dram"], 100)
        other = self.tt_client("--buffers", "1", "--pid", str(os.getpid()), "--bytes", "7", prefix=as_user(NOBODY))
        self.assertEqual(other.say("free")[0], 100)
        self.assertEqual(mine.query()["dram"], 100)
        daemon.err.wait(rf"PID {other.pid} \(uid {NOBODY}\) reports about PID {os.getpid()}: it may not speak")

    def test_a_second_user_has_a_book_and_sees_only_his_own_blocks(self):
        self.server("--socket-group", "all")
        mine = self.connect()
        mine.send(tt.ALLOC, size=100, number=1)
        client = self.tt_client("--buffers", "2", "--bytes", "7", prefix=as_user(NOBODY))
        self.assertEqual(held(mine.query()), NOTHING | {"dram": 107, "l1": 7})
        directory = self.books / str(NOBODY)
        self.assertEqual((directory.stat().st_uid, stat.S_IMODE(directory.stat().st_mode)), (NOBODY, 0o700))
        self.assertEqual(len(mine.dump()[0]), 3)
        code = (f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r}); import tt_client as tt\n"
                f"print(sorted(r['size'] for r in tt.Connection({str(self.path)!r}).dump()[0]))")
        result = subprocess.run([*as_user(NOBODY), sys.executable, "-c", code], capture_output=True, text=True,
                                timeout=PATIENCE_S, check=True)
        self.assertEqual(result.stdout.strip(), "[7, 7]")
        client.close()
        self.until(lambda: mine.query()["dram"] == 100)

    def test_root_may_speak_for_anybody(self):
        self.server("--socket-group", "all")
        client = self.tt_client("--buffers", "1", "--bytes", "7", prefix=as_user(NOBODY))
        c = self.connect()
        c.send(tt.ALLOC, size=100, number=50, pid=client.pid)
        self.assertEqual(c.query()["dram"], 107)
        client.close()
        self.until(lambda: c.query()["dram"] == 0)

    def test_a_client_in_a_pid_namespace(self):
        probe = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, check=False)
        if probe.returncode:
            self.skipTest("no pid namespaces here")
        daemon = self.server()
        c = self.connect()
        client = self.tt_client("--buffers", "3", "--bytes", "10",
                                prefix=["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"])
        self.assertRegex(client.out.lines[-1], r"^ready 1$")  # its pid in there, which is what it tells
        self.assertEqual(held(c.query()), NOTHING | {"dram": 20, "l1": 10})
        rows, _ = c.dump()
        self.assertNotEqual({row["pid"] for row in rows}, {1})
        client.kill()
        client.close()
        self.until(lambda: c.query()["dram"] == 0)
        daemon.err.wait(r"killed by SIGKILL\) gone: removed 3 buffers")


    @needs_root
    def test_the_systemd_unit_may_do_what_it_takes(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        unit = (root / "src/daemon/memoird.service.in").read_text(encoding="utf-8")
        names = re.search(r"^CapabilityBoundingSet=(.*)$", unit, re.M).group(1).split()
        bounding = "-all," + ",".join("+" + name.removeprefix("CAP_").lower() for name in names)
        old = socket.socket(socket.AF_UNIX)
        os.chmod(self.folder, 0o1777)
        old.bind(str(self.path))
        os.chown(self.path, 1, 1)  # what another user's server left
        old.close()
        script = """
            mount -t tmpfs none /run
            setpriv --bounding-set="$1" --inh-caps=-all --no-new-privs "$2" --state "$3" --socket none \\
                --tt-socket "$4" --socket-group 65534 --http 127.0.0.1:0 &
            while ! "$5" -c "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])" "$4" 2>/dev/null; do
                sleep 0.02
            done
            setpriv --reuid=65534 --regid=65534 --clear-groups "$5" "$6" "$4" --buffers 3
            wait
        """
        inside = Process(["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "sh", "-c", script, "sh",
                          bounding, MEMOIRD, self.state, self.path, sys.executable, PROGRAM])
        self.addCleanup(inside.close)
        pid = inside.out.wait(r"^ready \d+$").split()[1]
        self.assertIn("held 2000 1000 0 0 0 0", inside.out.lines)
        inside.popen.stdin.close()
        inside.err.wait(rf"PID {pid} \(tt_client.py, exited with 0\) gone: removed 3 buffers")
        self.assertFalse([line for line in inside.err.lines if " warn: " in line])


class Limits(ServerTest):
    def test_connections_in_all(self):
        daemon = self.server("--connections-max", "3")
        kept = [self.connect() for _ in range(3)]
        self.assertEqual([c.query()["dram"] for c in kept], [0, 0, 0])
        self.assertTrue(self.connect().is_closed())
        self.assertTrue(self.connect().is_closed())
        daemon.err.wait(r"3 connections: more are turned away \(connections-max\)")
        kept[0].close()
        self.until(self.works)
        daemon.kill(signal.SIGTERM)
        daemon.err.wait(r"rejected since start: \d+ connections past connections-max$")

    def works(self):
        try:
            with Connection(self.path) as c:
                return c.query()["type"] == tt.RESPONSE
        except (OSError, EOFError):
            return False

    def test_connections_of_one_user(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        daemon = self.server("--connections-per-user-max", "1", "--socket-group", "all")
        first = self.tt_client(prefix=as_user(NOBODY))
        code = (f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r}); import tt_client as tt\n"
                f"print(tt.Connection({str(self.path)!r}).is_closed())")
        result = subprocess.run([*as_user(NOBODY), sys.executable, "-c", code], capture_output=True, text=True,
                                timeout=PATIENCE_S, check=True)
        self.assertEqual(result.stdout.strip(), "True")
        daemon.err.wait(rf"uid {NOBODY} has 1 connections: more are turned away")
        self.connect().query()  # root has no limit
        first.close()

    def test_buffers_of_one_client(self):
        daemon = self.server("--buffers-per-client-max", "10")
        c = self.connect()
        for number in range(1, 16):
            c.send(tt.ALLOC, size=1, number=number)
        self.assertEqual(c.query()["dram"], 10)
        self.assertEqual(self.losses().get("limit"), 5)
        daemon.err.wait(r"holds 10 buffers: more are not accounted \(buffers-per-client-max,")
        c.send(tt.FREE, number=1)
        c.send(tt.ALLOC, size=1, number=20)
        self.assertEqual(c.query()["dram"], 10)

    def test_the_books_of_one_user_stay_within_his_share(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        self.server("--tmpfs-user-size", "1M", "--socket-group", "all")
        client = self.tt_client("--buffers", "60000", "--bytes", "1", prefix=as_user(NOBODY))
        c = self.connect()
        answer = c.query()
        self.assertTrue(10000 < answer["dram"] + answer["l1"] < 50000, answer)
        used = sum(path.stat().st_blocks * 512 for path in self.book_files())
        self.assertLess(used, 2 << 20)
        self.assertEqual(self.losses(client.pid).get("limit"), 60000 - answer["dram"] - answer["l1"])
        c.socket.sendall(b"".join(message(tt.ALLOC, size=1, number=n) for n in range(1, 60001)))  # root has no limit
        self.assertEqual(c.query()["dram"], answer["dram"] + 60000)
        self.assertEqual(client.say("free")[0], 60000)

    def test_a_full_file_system_loses_reports_and_nothing_else(self):
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=192k,mode=1777", "tmpfs", self.books],
                                 capture_output=True, check=False)
        if mounted.returncode:
            self.skipTest("cannot mount")
        self.addCleanup(subprocess.run, ["umount", "-l", self.books], check=False)
        daemon = self.server()
        c = self.connect()
        c.socket.sendall(b"".join(message(tt.ALLOC, size=1, number=n) for n in range(1, 20001)))
        answer = c.query()
        self.assertTrue(1000 < answer["dram"] < 20000, answer)
        self.assertEqual(self.losses().get("blocks_full"), 20000 - answer["dram"])
        other = self.tt_client("--buffers", "4")  # there is no room for a book of its own
        daemon.err.wait(rf"PID {other.pid} .* reports about PID {other.pid}: No space left on device")
        self.assertEqual(c.query()["dram"], answer["dram"])
        for n in range(1, 20001):
            c.send(tt.FREE, number=n)
        self.assertEqual(held(c.query()), NOTHING)
        other.close()
        self.assertIsNone(daemon.popen.poll())

    def test_reports_a_second_make_the_client_wait_and_lose_nothing(self):
        daemon = self.server("--reports-per-second", "2000")
        c = self.connect()
        start = time.monotonic()
        for batch in range(8):
            c.socket.sendall(b"".join(message(tt.ALLOC, size=1, number=batch * 500 + i) for i in range(1, 501)))
        self.assertEqual(c.query()["dram"], 4000)
        self.assertGreater(time.monotonic() - start, 0.5)
        daemon.err.wait(r"more than 2000 reports a second and has to wait")

    def test_half_a_message_is_given_up(self):
        daemon = self.server("--stall", "200ms")
        whole, half = self.connect(), self.connect()
        whole.query()
        half.socket.sendall(message(tt.ALLOC, size=1, number=1)[:50])
        self.assertTrue(half.is_closed())
        daemon.err.wait(r"half a message stood for too long \(stall\)")
        self.assertEqual(whole.query()["dram"], 0)

    def test_who_takes_no_answers_is_closed(self):
        daemon = self.server("--stall", "300ms")
        c = self.connect()
        question = message(tt.QUERY, pid=0) * 1000
        c.socket.settimeout(0.5)
        try:
            for _ in range(1000):
                c.socket.sendall(question)
        except OSError:
            pass
        daemon.err.wait(r"it does not take its answers")
        self.assertEqual(self.connect().query()["dram"], 0)

    def test_many_clients_that_come_and_die(self):
        self.server()
        code = (f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r}); import os, random, time, tt_client as tt\n"
                "for i in range(int(sys.argv[1])):\n"
                "  child = os.fork()\n"
                "  if child == 0:\n"
                f"    c = tt.Connection({str(self.path)!r}, tt.SIZES[i % 4])\n"
                "    for n in range(1, 40): c.send(tt.ALLOC, i % 3, size=n, number=n)\n"
                "    if i % 2: c.query()\n"
                "    os.kill(os.getpid(), 9)\n"
                "  if i % 16 == 15:\n"
                "    for _ in range(16): os.wait()\n")
        process = Process([sys.executable, "-c", code, "64" if SANITIZED else "320"])
        self.addCleanup(process.close)
        self.assertEqual(process.wait(), 0)
        c = self.connect()
        self.until(lambda: all(held(c.query(device)) == NOTHING for device in range(3)))
        self.until(lambda: self.book_files() == [])


if __name__ == "__main__":
    unittest.main()
