"""Whatever one client does, the others get their turn, and the client its answers."""

import json
import os
import signal
import socket
import struct
import sys
import threading
import time
import unittest

from daemon_fixture import NOBODY, PATIENCE_S, SANITIZED, Process, as_user, crowded, needs_root
from socket_support import ALLOC, SocketTest, message

BUFFERS = 4000 if SANITIZED else 15000
CROWD = 20000 if SANITIZED else 300000
SUBSCRIBERS = 200 if SANITIZED else 1000
WORK_S = 1 if SANITIZED else 0.2  # of memoird's, before others are served; without turns it is many times that
STALL_S = 3 if SANITIZED else 2  # what we send ourselves has to come in whole messages within it
DUMP_REMAINING, KERNEL_LOAD, DUMP_KERNELS = 5, 10, 12
DUMP_MARK = struct.unpack("=Q", b"MEMOIRDP")[0]

# As many connections as there are to be had, kept open.
HOG = """
kept = []
for _ in range(70):
    one = connect(native)
    try:
        one.sendall(b'{"ping":1}\\n')
        if b"pong" in one.recv(99):
            kept.append(one)
    except OSError:
        pass
print("kept", len(kept), flush=True)
"""


class Waits:
    """How long others waited at worst: in time, and in what memoird worked meanwhile, whoever else has the processors."""

    def __init__(self, daemon):
        self.clock = ~daemon.pid << 3 | 2  # of the time that a process has been running
        self.seconds = self.work = 0

    def during(self, call):
        start, work = time.monotonic(), time.clock_gettime(self.clock)
        call()
        self.seconds = max(self.seconds, time.monotonic() - start)
        self.work = max(self.work, time.clock_gettime(self.clock) - work)


class TurnsTest(SocketTest):
    def hold(self, buffers, size=4096):
        """Buffers and a kernel of our own process, accounted when this returns. The connection stays."""
        monitor = self.monitor()
        monitor.socket.sendall(b"".join(message(ALLOC, size=size, number=i + 1) for i in range(buffers)))
        monitor.send(KERNEL_LOAD, size=size, number=1)
        self.assertEqual(monitor.totals(), {"dram": size * buffers, "kernel": size})
        return monitor

    def assert_prompt(self, daemon, attack, seconds=2):
        """Another client is served while and after `attack` runs, and need not wait until all of that is done."""
        client, waits, failed = self.native_client(), Waits(daemon), []

        def run():
            try:
                attack()
            except BaseException as reason:
                failed.append(reason)

        client.ask(ping=1)
        thread = threading.Thread(target=run)
        thread.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end or thread.is_alive():
            waits.during(lambda: client.ask(ping=1))
            time.sleep(0.005)
        thread.join()
        self.assertEqual(failed, [])
        self.assertLess(waits.work, WORK_S, f"others had to wait ({waits.seconds} s)")
        self.assertLess(waits.seconds, crowded(10), f"others had to wait, though it worked for {waits.work} s")


class Turns(TurnsTest):
    def test_dumps_leave_time_for_others(self):
        """Small messages that cost much: each reads the whole book."""
        daemon = self.daemon()
        dumps = message(DUMP_KERNELS, number=DUMP_MARK) * 300
        holder = self.hold(CROWD)
        self.assert_prompt(daemon, lambda: holder.socket.sendall(dumps))

    def test_dumps_of_many_connections_leave_time_for_others(self):
        daemon = self.daemon()
        dumps = message(DUMP_KERNELS, number=DUMP_MARK) * 3
        self.hold(CROWD)
        crowd = [self.monitor() for _ in range(100)]
        self.assert_prompt(daemon, lambda: [c.socket.sendall(dumps) for c in crowd])

    def receive_dump(self, holder):
        """Whether an answer was whole. One that takes 50 ms is cut."""
        row, rows = holder.receive(), 0
        while row[5] != DUMP_MARK:
            self.assertEqual(row[5], 1)
            row, rows = holder.receive(), rows + 1
        self.assertEqual(row[2], rows)
        self.assertTrue(rows == 1 or row[3], "there is a kernel, and the answer was not cut")
        return not row[3]

    def test_dumps_are_all_answered(self):
        self.daemon()
        holder, whole = self.hold(CROWD // 10), False
        end = time.monotonic() + PATIENCE_S
        while not whole and time.monotonic() < end:  # on a busy machine, all of some may be cut
            holder.socket.sendall(message(DUMP_KERNELS, number=DUMP_MARK) * 20)
            whole = any([self.receive_dump(holder) for _ in range(20)])
        self.assertTrue(whole, "every answer was cut")

    def test_resets_leave_time_for_others(self):
        daemon = self.daemon()
        self.hold(CROWD)
        client = self.native_client()
        resets = b'{"alloc":{"space":"heap","id":1,"bytes":1}}\n{"reset":true}\n' * 3000
        self.assert_prompt(daemon, lambda: client.socket.sendall(resets))

    def test_resets_of_nothing_cost_nothing(self):
        """Where much was held once, there is much to walk through."""
        waits = Waits(self.daemon())
        self.hold(CROWD)
        client, n = self.native_client(), 1000 if SANITIZED else 20000
        client.ask(reset=True, ack=True)
        waits.during(lambda: (client.socket.sendall(b'{"reset":true}\n' * n), client.ask(ping=1)))
        self.assertLess(waits.work, 2)

    def test_what_was_sent_before_the_end_counts_across_turns(self):
        self.daemon()
        client, lines, each = self.native_client(), 100, 500 if SANITIZED else 2000
        client.ask(device=0, kind="npu", name="Test")
        data = b"".join(
            b'{"report":[' + b",".join(b'["a",0,16,%d,1]' % (i * each + k) for k in range(each)) + b"]}\n"
            for i in range(lines))
        client.socket.sendall(data)
        client.close()
        self.wait_totals(self.monitor(), {"dram": lines * each})

    def test_messages_of_one_batch_keep_their_order_across_turns(self):
        self.daemon()
        client = self.native_client()
        lines = [{"ping": i} if i % 2 else {"query": {"table": "devices"}, "id": i} for i in range(6000)]
        data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        sender = threading.Thread(target=client.socket.sendall, args=(data,))
        sender.start()
        for i in range(6000):
            answer = json.loads(client.file.readline())
            self.assertEqual(answer.get("pong", answer.get("id")), i)
        sender.join()


class Others(TurnsTest):
    """What one user does to another."""

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("needs root")

    def stranger(self, code, until="done", uid=NOBODY):
        """Python as another user, with connect(path); waits until it prints a line."""
        begin = ("import socket, sys\n"
                 "def connect(path):\n"
                 f"    s = socket.socket(socket.AF_UNIX); s.settimeout({PATIENCE_S}); s.connect(path); return s\n"
                 "native, tt = sys.argv[1:]\n")
        end = "\nprint('done', flush=True)\nsys.stdin.read()\n"
        process = Process([*as_user(uid), sys.executable, "-c", begin + code + end, self.native, self.tt])
        self.addCleanup(process.close)
        process.out.wait(f"^{until}$")
        return process

    def test_a_user_with_all_connections_does_not_lock_out_root(self):
        daemon = self.daemon("--connections-max", "24", "--socket-group", "all")
        self.stranger("kept = [connect(native) for _ in range(40)]")
        daemon.err.wait(r"18 connections: more are turned away \(connections-max\)")
        self.assertEqual(self.native_client().ask(ping=1), {"pong": 1})

    def test_a_user_with_all_connections_does_not_lock_out_another_user(self):
        self.daemon("--connections-max", "64", "--socket-group", "all")
        self.stranger(HOG)
        self.stranger("one = connect(native); one.sendall(b'{\"ping\":1}\\n'); assert b'pong' in one.recv(99)", uid=4242)
        self.stranger(HOG, uid=4243)  # nor do two
        self.stranger("one = connect(native); one.sendall(b'{\"ping\":1}\\n'); assert b'pong' in one.recv(99)", uid=4244)

    @needs_root
    def test_subordinate_uids_count_for_their_owner(self):
        subuid = self.folder / "subuid"
        subuid.write_text("4242:200000:3\n")
        self.daemon("--connections-max", "64", "--connections-per-user-max", "20", "--socket-group", "all",
                    prefix=("unshare", "--mount", "sh", "-c", f'mount --bind {subuid} /etc/subuid && exec "$@"', "sh"))
        kept = [int(self.stranger(HOG, uid=uid).out.wait(r"^kept \d+$").split()[1]) for uid in range(200000, 200003)]
        self.assertEqual(kept, [20, 0, 0])
        own = self.stranger(HOG, uid=4242).out.wait(r"^kept \d+$")
        self.assertEqual(own, "kept 0")
        other = self.stranger(HOG, uid=200003).out.wait(r"^kept \d+$")  # beyond the range
        self.assertEqual(other, "kept 20")

    @unittest.skipIf(SANITIZED, "memory is measured")
    def test_unread_answers_of_one_user_are_limited_and_all_come_when_they_are_read(self):
        daemon = self.daemon("--socket-group", "all", "--stall", "1m")

        def resident():
            with open(f"/proc/{daemon.pid}/statm", encoding="ascii") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        before = resident()
        stranger = self.stranger("""
import os, struct
def message(kind, size=0, number=0):
    return struct.pack("=B3xiQB3xiQQ", kind, 0, size, 0, os.getpid(), number, 0).ljust(144, b"\\0")
mark = struct.unpack("=Q", b"MEMOIRDP")[0]
one = connect(tt)
one.sendall(b"".join(message(1, 1, i + 1) for i in range(60000)) + message(3))
one.recv(144, socket.MSG_WAITALL)
crowd = [connect(tt) for _ in range(20)]
for c in crowd:
    c.sendall(message(5, number=mark))
one.sendall(message(3))
one.recv(144, socket.MSG_WAITALL)
print('asked', flush=True)
sys.stdin.readline()
for c in crowd:
    tail, got = b"", 0
    while got == 0 or got % 144 or tail[24:32] != b"MEMOIRDP":  # fewer than all where the time for one was over
        piece = c.recv(1 << 20)
        tail, got = (tail + piece)[-144:], got + len(piece)
""", until="asked")
        end = time.monotonic() + 2
        while time.monotonic() < end:
            self.assertLess(resident() - before, 64 << 20)
            time.sleep(0.05)
        stranger.popen.stdin.write("\n")
        stranger.popen.stdin.flush()
        stranger.out.wait("^done$")

    def test_a_user_cannot_flood_the_log_and_others_still_reach_it(self):
        daemon = self.daemon("--socket-group", "all")
        dumps = """
import os, struct, time
def message(kind, size=0, number=0):
    return struct.pack("=B3xiQB3xiQQ", kind, 0, size, 0, os.getpid(), number, 0).ljust(144, b"\\0")
s = connect(tt)
s.sendall(message(1, 1, 1) + message(5) * 300 + message(3))
s.recv(144)
"""
        root, start = self.hold(1), time.monotonic()
        first = self.stranger(dumps)
        second = self.stranger(dumps)

        def heard():
            """One dump a second, whoever asks: who has used up his lines cannot take that of others."""
            root.send(DUMP_REMAINING)
            time.sleep(0.2)
            return any(f"dump: PID {os.getpid()} " in line for line in daemon.err.lines)

        self.wait_until(heard, "root's dump is in the log")
        seconds = time.monotonic() - start
        daemon.kill(signal.SIGTERM)
        daemon.err.wait(rf"\d\d\d lines that uid {NOBODY} caused were left out of the log")
        said = ["first" if f"PID {first.pid} " in line else "second" if f"PID {second.pid} " in line else "root"
                for line in daemon.err.lines if "dump: PID" in line]
        self.assertEqual(said[:1], ["first"])
        self.assertLessEqual({"first", "second", "root"}, set(said))  # root's dump: everything
        self.assertLessEqual(len(said), 4 * (2 + seconds), said)

    def test_subscribers_of_one_user_are_limited(self):
        self.daemon("--socket-group", "all")
        process = self.stranger("""
kept = [connect(native) for _ in range(65)]
for s in kept:
    s.sendall(b'{"subscribe":["reports"]}\\n')
    print(s.recv(1000).decode().strip(), flush=True)
kept[0].sendall(b'{"unsubscribe":true}\\n')
kept[0].recv(1000)
s.sendall(b'{"subscribe":["reports"]}\\n')
print(s.recv(1000).decode().strip(), flush=True)
""")
        answers = [json.loads(line) for line in process.out.lines[:66]]
        self.assertEqual([list(answer)[0] for answer in answers], ["subscribed"] * 64 + ["error", "subscribed"])
        self.assertEqual(answers[64]["error"]["code"], "limit")

    def test_reports_to_many_subscribers_leave_time_for_others(self):
        """Of one user who has as many connections as he gets, and reads none of them."""
        daemon = self.daemon("--socket-group", "all")
        self.assert_prompt(daemon, lambda: self.stranger(f"""
kept = [connect(native) for _ in range({SUBSCRIBERS})]
for s in kept:
    s.sendall(b'{{"subscribe":["reports"]}}\\n')
    s.recv(1000)
s.sendall((b'{{"report":[' + b','.join([b'["a",null,"heap",1,1],["f",null,"heap",1]'] * 700) + b']}}\\n') * 30)
"""))


class Answers(TurnsTest):
    def test_who_takes_an_answer_by_crumbs_is_closed(self):
        daemon = self.daemon("--stall", f"{STALL_S}s")
        holder = self.hold(15000)
        holder.socket.sendall(message(DUMP_REMAINING, number=DUMP_MARK) * 200)  # one may be cut, after 50 ms
        for _ in range(30):
            try:
                if not holder.socket.recv(50000):
                    break
            except ConnectionResetError:
                break
            time.sleep(0.8 * STALL_S)  # there is progress in each `stall`, though not much
        else:
            self.fail("it was served for as long as it liked")
        daemon.err.wait("it does not take its answers")

    def test_much_may_be_sent_behind_a_query_that_waits(self):
        self.daemon()
        self.hold(CROWD)
        client = self.native_client()
        costly = b'{"query":{"table":"buffers","by":"space"}}\n'
        n, space = 10000, b" " * 110
        pings = b"".join(b'{"ping":%d%s}\n' % (i, space) for i in range(n))
        self.assertGreater(len(pings), 1 << 20)
        sender = threading.Thread(target=client.socket.sendall, args=(costly * 3 + pings,))
        sender.start()
        for _ in range(3):
            self.assertIn("result", json.loads(client.file.readline()))
        for i in range(n):
            self.assertEqual(client.file.readline(), '{"pong":%d}\n' % i)
        sender.join()

    def test_a_large_answer_given_after_a_wait_arrives_whole(self):
        """Costly queries wait for their turn: the second answer is written by a timer, not by new bytes."""
        self.daemon()
        self.hold(BUFFERS)
        client = self.native_client()
        question = json.dumps({"query": {"table": "buffers", "where": "space=dram", "limit": BUFFERS}}).encode() + b"\n"
        client.socket.sendall(question * 2)
        for _ in range(2):
            answer = json.loads(client.file.readline())
            self.assertEqual(len(answer["result"]["rows"]), BUFFERS)


if __name__ == "__main__":
    unittest.main()
