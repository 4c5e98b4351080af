"""The native protocol: every request, and everything that can be wrong with one."""

import json
import os
import random
import socket
import subprocess
import sys
import time

from daemon_fixture import NOBODY, PATIENCE_S, as_user, crowded
from native_fixture import NativeTest

# A client of its own process: reports what its arguments say, tells its pid, waits for a line.
REPORTER = """
import json, os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
f = s.makefile("rw")
for message in sys.argv[2:]:
    f.write(message + "\\n")
f.write('{"ping":1}\\n')
f.flush()
for line in f:
    print(line, end="", flush=True)
    if "pong" in line:
        break
print("ready", os.getpid(), flush=True)
sys.stdin.readline()
"""
DEVICE = '{"device":0,"kind":"gpu","name":"Test"}'


class Requests(NativeTest):
    def test_hello_tells_version_session_and_limits(self):
        self.native("--message-max", "8K")
        _, hello = self.greeted(program="test")
        self.assertRegex(hello["session"], r"^[0-9a-f]{32}$")
        self.assertTrue(hello["server"].startswith("memoird "))
        self.assertEqual((hello["resumed"], hello["seq"], hello["pid"], hello["uid"]), (False, 0, os.getpid(), os.getuid()))
        self.assertEqual(hello["limits"]["message_bytes"], 8192)

    def test_hello_is_said_once_and_in_a_version_that_is_spoken(self):
        self.native()
        line, _ = self.greeted()
        self.assertEqual(line.error({"hello": 1})["code"], "bad-request")
        other = self.connect()
        self.assertIn("version 1", other.error({"hello": 2})["message"])
        self.assertEqual(other.ask({"ping": 1}), {"pong": 1})

    def test_ids_and_pings_come_back_as_they_were(self):
        self.native()
        line = self.connect()
        line.send(b'{"ping":18446744073709551615,"id":"a\\u0062"}\n')
        self.assertEqual(line.receive(), {"pong": 18446744073709551615, "id": "ab"})
        self.assertEqual(line.ask({"nothing": 1, "id": 7}), line.ask({"nothing": 1, "id": 7}))

    def test_reports_in_words(self):
        self.native()
        line = self.with_device(capacity={"dram": 1 << 30})
        line.send({"alloc": {"device": 0, "space": "dram", "id": "0xffffffffffffffff", "bytes": 1000, "tag": "w"}},
                  {"alloc": {"device": 0, "space": "l1", "id": 5, "bytes": 30}},
                  {"alloc": {"space": "pinned", "id": 5, "bytes": 7}},
                  {"realloc": {"device": 0, "space": "l1", "old": 5, "id": 6, "bytes": 40}},
                  {"transfer": {"from": {"space": "pinned", "id": 5}, "to": {"device": 0, "space": "dram"}, "bytes": 7}})
        self.assertEqual(line.ask({"free": {"space": "pinned", "id": 5}, "ack": True}), {"ack": 0})
        self.assertEqual(self.blocks(), {("dram", 2**64 - 1): (1000, "w"), ("l1", 6): (40, None)})
        self.assertEqual(self.figures(), {(0, "dram"): (1000, 1), (0, "l1"): (40, 1)})
        row = line.ask({"query": {"table": "accounts", "where": "space=dram", "show": "moved_in,capacity"}})["result"]["rows"][0]
        self.assertEqual((row["moved_in"], row["capacity"]), (7, 1 << 30))

    def test_batched_reports(self):
        self.native()
        line = self.with_device()
        reports = [["a", 0, "dram", i, 10, "even" if i % 2 == 0 else None] for i in range(1, 1001)]
        reports += [["f", 0, 16, hex(i)] for i in range(1, 501)] + [["r", 0, "dram", 501, 5000, 99], ["a", None, "heap", 1, 5]]
        self.assertEqual(line.ask({"report": reports, "ack": True, "seq": 3}), {"ack": 3})
        self.assertEqual(self.figures(), {(0, "dram"): (499 * 10 + 99, 500), (None, "heap"): (5, 1)})
        self.assertEqual(self.blocks()["dram", 502], (10, "even"))

    def test_wrong_reports_of_right_form_are_counted_and_harm_nothing(self):
        self.native()
        line = self.with_device()
        line.ask({"report": [["a", 0, "dram", 1, 10], ["a", 0, "dram", 1, 20], ["f", 0, "dram", 2], ["f", 0, "l1", 1],
                             ["t", 0, "dram", 77, 0, "dram", 1, 5]], "ack": True})
        self.assertEqual(self.figures(), {(0, "dram"): (20, 1)})
        self.assertEqual(self.losses(), {"replaced": 1, "unknown_free": 2, "unknown_move": 1})

    def test_a_message_is_applied_whole_or_not_at_all(self):
        self.native()
        line = self.with_device()
        good = ["a", 0, "dram", 1, 10]
        for bad in (["a", 0, "dram", 2], ["a", 9, "dram", 2, 3], ["a", 0, "dram", 2, 1 << 48], ["x"], 7):
            error = line.error({"report": [good, bad], "seq": 5, "id": 1})
            self.assertEqual((error["code"], error["index"]), ("bad-report", 1), error)
        self.assertEqual(line.ask({"ping": 1}), {"pong": 1})
        self.assertEqual(self.figures(), {})
        self.assertEqual(line.ask({"report": [good], "seq": 5, "ack": True}), {"ack": 5})
        self.assertEqual(self.figures(), {(0, "dram"): (10, 1)})

    def test_reset_frees_everything_of_the_process(self):
        self.native()
        line = self.with_device()
        line.send({"report": [["a", 0, "dram", i, 10] for i in range(100)] + [["a", None, "pinned", 1, 5]]})
        self.assertEqual(line.ask({"reset": True, "ack": True, "seq": 9}), {"ack": 9})
        self.assertEqual((self.figures(), self.blocks()), ({}, {}))

    def test_a_book_outlives_the_connection_and_ends_with_the_process(self):
        daemon = self.native("--log-level=debug")
        process = self.reporter(DEVICE, '{"alloc":{"device":0,"space":"dram","id":1,"bytes":5000000}}')
        self.assertEqual(self.figures(process.pid), {(0, "dram"): (5000000, 1)})
        process.kill()
        self.assertIn("removed 1 buffer (5.0 MB)", self.gone(daemon, process.pid))
        self.wait_until(lambda: not self.book_files(), "the book is removed")

    def test_a_parent_speaks_for_its_child_and_nobody_for_strangers(self):
        self.native("--socket-group", "all")
        child = subprocess.Popen(["sleep", "60"])
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        line, hello = self.greeted(pid=child.pid)
        self.assertEqual(hello["pid"], child.pid)
        line.ask({"alloc": {"space": "pinned", "id": 1, "bytes": 12}, "ack": True})
        self.assertEqual(self.figures(child.pid), {(None, "pinned"): (12, 1)})
        if os.getuid() == 0:
            out = self.reporter_output('{"hello":1,"pid":%d}' % child.pid, prefix=as_user(NOBODY))
            self.assertEqual(json.loads(out[0])["error"]["code"], "forbidden")
        self.assertEqual(self.connect().error({"hello": 1, "pid": 2**30})["code"], "forbidden")

    def test_query(self):
        self.native()
        line = self.with_device(uid="GPU-1", capacity={"dram": 1000})
        line.send({"report": [["a", 0, "dram", 1, 250]]})
        answer = line.ask({"query": {"table": "devices", "show": ["device", "used", "percent", "capacity"]}, "id": 1})
        self.assertEqual(answer["id"], 1)
        row = answer["result"]["rows"][0]
        self.assertEqual((row["used"], row["capacity"], row["percent"]), (250, 1000, 25))
        row = line.ask({"query": {"by": "pid", "show": "device.dram", "where": f"pid={os.getpid()}"}})["result"]["rows"][0]
        self.assertEqual((row["pid"], row["device.dram"]), (os.getpid(), 250))
        again = line.ask({"query": {"by": "pid", "show": "device.dram", "where": f"pid={os.getpid()}"}})["result"]["rows"][0]
        self.assertEqual(again, row)
        error = line.error({"query": {"show": "rss,nonsense"}})
        self.assertEqual((error["code"], error["part"], error["at"], error["length"]), ("bad-query", "show", 4, 8))

    def test_query_about_the_past_is_refused_rather_than_answered_with_the_present(self):
        self.native()
        line, now = self.connect(), int(time.time())
        for table, words in (("host", "takes long to read: ask for it over HTTP"), ("processes", "processes_past takes long"),
                             ("buffers", "the past of the table buffers is not recorded"), ("cgroups", "is not recorded")):
            error = line.error({"query": {"table": table, "since": now - 60}})
            self.assertEqual(error["code"], "bad-query", table)
            self.assertIn(words, error["message"], table)
        for time_keys, words in (({"until": now}, "go with since"), ({"step": 5}, "go with since"),
                                 ({"since": now, "until": now - 5}, "until must be later")):
            self.assertIn(words, line.error({"query": {"table": "host", **time_keys}})["message"])
        rows = line.ask({"query": {"table": "exited", "since": now - 60}})["result"]["rows"]
        self.assertTrue(all(row["ended"] >= "2" for row in rows))
        self.assertTrue(line.ask({"query": {"table": "system"}})["result"]["rows"])

    def test_query_sees_what_was_reported_just_before(self):
        self.native()
        line, other = self.with_device(), self.connect()
        for i in range(1, 50):
            line.ask({"alloc": {"device": 0, "space": "dram", "id": i, "bytes": 10}, "ack": True})
            for asker in (line, other):
                rows = asker.ask({"query": {"table": "devices", "show": "used,blocks"}})["result"]["rows"]
                self.assertEqual([(row["used"], row["blocks"]) for row in rows], [(10 * i, i)])

    def test_query_sees_users_by_name_and_the_dead(self):
        daemon = self.native("--log-level=debug")
        process = self.reporter(DEVICE, '{"alloc":{"device":0,"space":"dram","id":1,"bytes":500}}')
        line = self.connect()
        if os.getuid() == 0:
            rows = line.ask({"query": {"where": "user=root", "show": "pid"}})["result"]["rows"]
            self.assertIn(process.pid, [row["pid"] for row in rows])
        process.kill()
        self.gone(daemon, process.pid)
        rows = line.ask({"query": {"table": "exited", "show": "pid,cause,device"}})["result"]["rows"]
        self.assertEqual([(r["pid"], r["cause"], r["device"]) for r in rows], [(process.pid, "killed by SIGKILL", 500)])

    # ---- subscriptions ----

    def test_subscribe_to_processes(self):
        self.native()
        line = self.connect()
        self.assertEqual(line.ask({"subscribe": ["processes"]}), {"subscribed": ["processes"], "interval_ms": 1000})
        process = self.reporter(DEVICE, '{"alloc":{"device":0,"space":"dram","id":1,"bytes":500}}')
        came = line.wait_event(event="process", what="came")
        self.assertEqual((came["pid"], came["uid"]), (process.pid, os.getuid()))
        self.assertAlmostEqual(came["time"], time.time(), delta=60)
        process.kill()
        went = line.wait_event(event="process", what="went")
        self.assertEqual((went["pid"], went["bytes"], went["blocks"], went["cause"]),
                         (process.pid, 500, 1, "killed by SIGKILL"))
        self.assertIn("gone: removed 1 buffer (500 B)", went["line"])
        self.assertEqual(line.ask({"unsubscribe": True}), {"subscribed": []})

    def test_subscribe_to_reports(self):
        self.native()
        line, reports = self.connect(), self.with_device()
        line.ask({"subscribe": ["reports"]})
        reports.send({"report": [["a", 0, "dram", 1, 100, "w"], ["a", 0, "dram", 2, 50], ["f", 0, "dram", 1],
                                 ["t", None, "pinned", 0, 0, "dram", 2, 9]]})
        events = [line.receive() for _ in range(5)]
        self.assertEqual([(e["event"], e["space"], e["id"], e["bytes"], e.get("tag")) for e in events],
                         [("alloc", "dram", 1, 100, "w"), ("alloc", "dram", 2, 50, None), ("free", "dram", 1, 100, None),
                          ("moved_out", "pinned", 0, 9, None), ("moved_in", "dram", 2, 9, None)])
        self.assertEqual([e.get("total") for e in events[:3]], [100, 150, 50])
        self.assertEqual({(e["pid"], e.get("ordinal")) for e in events[:3]}, {(os.getpid(), 0)})

    def test_subscribe_to_device_totals(self):
        self.native()
        line, reports = self.connect(), self.with_device(capacity={"dram": 1000})
        line.ask({"subscribe": ["devices"], "interval_ms": 20})
        reports.ask({"alloc": {"device": 0, "space": "dram", "id": 1, "bytes": 100}, "ack": True})

        def used(event):
            return [s["used"] for d in event["devices"] for s in d["spaces"] if s["space"] == "dram"]

        first = line.receive()
        self.wait_until(lambda: used(line.receive()) == [100], "the total shows up")
        times = [line.receive()["time"] for _ in range(5)]
        self.assertLess(times[-1] - first["time"], PATIENCE_S)
        self.assertTrue(all(later > sooner for sooner, later in zip(times, times[1:])))

    def test_slow_subscriber_loses_events_and_is_told_while_others_go_on(self):
        self.native()
        slow, reports = self.connect(), self.with_device()
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.ask({"subscribe": ["reports"]})
        n, batch = 60, 400
        for i in range(n):
            start = time.monotonic()
            reports.ask({"report": [["a", 0, "dram", i * batch + j, 10, "a tag that takes room"] for j in range(batch)], "ack": True})
            self.assertLess(time.monotonic() - start, crowded(5))
        got = lost = 0
        while got + lost < n * batch:
            message = slow.receive()
            got, lost = got + ("event" in message), lost + message.get("lost", 0)
        self.assertGreater(lost, 0)
        self.assertEqual(got + lost, n * batch)
        reports.send({"free": {"device": 0, "space": "dram", "id": 0}})
        self.assertEqual(slow.wait_event(event="free")["id"], 0)

    # ---- bad input ----

    def test_bad_lines_are_told_and_the_connection_goes_on(self):
        self.native()
        line = self.with_device()
        for bad, code in ((b"hello\n", "bad-json"), (b"[]\n", "bad-json"), (b"{\n", "bad-json"), (b'{"ping":1}}\n', "bad-json"),
                          (b'{"ping":"\xff"}\n', "bad-request"), (b"{}\n", "bad-request"), (b'{"pong":1}\n', "bad-request"),
                          (b'{"ping":1,"ping":1}\n', "bad-request"), (b'{"query":{},"ping":1}\n', "bad-request"),
                          (b'{"a":' * 100 + b"1" + b"}" * 100 + b"\n", "bad-request"), (b"\0\n", "bad-json")):
            self.assertEqual(line.error(bad)["code"], code, bad)
        line.send(b"\n\r\n")  # empty lines are nobody's fault
        self.assertEqual(line.ask(b'  {"ping":1} \r\n'), {"pong": 1})

    def test_damaged_messages_harm_nobody(self):
        daemon = self.native()
        witness = self.with_device()
        witness.ask({"report": [["a", 0, "dram", i, 10] for i in range(100)], "ack": True})
        child = subprocess.Popen(["sleep", "60"])  # for whom the damaged ones report
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        good = [DEVICE, '{"report":[["a",0,"dram",1,2,"t"],["r",0,"dram",1,2,3],["t",null,"heap",0,0,"dram",2,9],["f",0,"dram",2]],"seq":3}',
                '{"query":{"table":"devices"}}', '{"query":{"by":"program","show":"rss"}}', '{"query":{"table":"buffers"}}',
                '{"subscribe":["processes","devices","reports"],"interval_ms":10}', '{"unsubscribe":true}', '{"reset":true,"seq":9}',
                '{"alloc":{"device":0,"space":"l1","id":"0xff","bytes":9}}', '{"hello":1}', '{"ping":"x"}']
        chance = random.Random(3)
        for _ in range(100):
            line = self.connect()
            line.send({"hello": 1, "pid": child.pid})
            for _ in range(20):
                message = bytearray(chance.choice(good).encode() + b"\n")
                for _ in range(chance.randrange(3)):
                    message[chance.randrange(len(message))] = chance.randrange(256)
                line.send(bytes(message[:chance.randrange(len(message))] if chance.random() < 0.1 else message))
            line.close()
        self.assertEqual(witness.ask({"ping": 1}), {"pong": 1})
        self.assertEqual(self.figures(), {(0, "dram"): (1000, 100)})
        self.assertEqual([text for text in daemon.err.lines if "runtime error" in text], [])

    def test_oversized_line_is_told_and_closed(self):
        self.native("--message-max", "4K")
        for text in (b'{"ping":"' + b"x" * 5000 + b'"}\n', b"x" * 5000):
            line = self.connect()
            line.send(text)
            self.assertEqual(line.receive()["error"]["code"], "too-long")
            self.assertTrue(line.at_end())
        self.assertEqual(self.connect().ask({"ping": 1}), {"pong": 1})

    def test_byte_by_byte(self):
        self.native()
        line = self.connect()
        line.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        for byte in (DEVICE + '\n{"alloc":{"device":0,"space":"dram","id":1,"bytes":77}}\n{"ping":1}\n').encode():
            line.send(bytes([byte]))
        self.assertEqual([line.receive(), line.receive()], [{"device": 0}, {"pong": 1}])
        self.assertEqual(self.figures(), {(0, "dram"): (77, 1)})

    def test_half_a_line_that_stalls_is_closed(self):
        self.native("--stall", "200ms")
        line, other = self.connect(), self.connect()
        line.send(b'{"ping":')
        self.assertTrue(line.at_end())
        self.assertEqual(other.ask({"ping": 1}), {"pong": 1})  # idle is not stalled

    def test_reader_that_takes_no_answers_is_closed_and_harms_nobody(self):
        daemon = self.native("--stall", "300ms")
        line, other = self.connect(), self.with_device()
        line.send(*[{"query": {"table": "devices"}}] * 5000)
        self.assertEqual(other.ask({"ping": 1}), {"pong": 1})
        daemon.err.wait("native connection of PID .* closed: ")
        self.assertTrue(line.at_end())
        self.assertEqual(other.ask({"ping": 1}), {"pong": 1})

    def test_costly_queries_wait_for_their_turn_and_are_all_answered_in_order(self):
        self.native()
        lines = [self.with_device() for _ in range(3)]
        lines[0].ask({"report": [["a", 0, "dram", i, 10] for i in range(1500)], "ack": True})
        for line in lines:
            line.send(*[{"query": {"table": "buffers", "limit": 5}, "id": i} if i % 2 else {"ping": i} for i in range(20)])
        whole = 0
        for line in lines:
            answers = [line.receive() for _ in range(20)]
            self.assertEqual([a.get("id", a.get("pong")) for a in answers], list(range(20)))
            # An answer that ran out of time, as on a machine that is busy otherwise, says so.
            results = [a["result"] for a in answers if "result" in a]
            self.assertEqual(len(results), 10)
            self.assertLessEqual({r["matched"] for r in results if not r.get("incomplete")}, {1500})
            whole += sum(not r.get("incomplete") for r in results)
        self.assertGreater(whole, 0)

    # ---- limits ----

    def test_buffers_per_client_max(self):
        self.native("--buffers-per-client-max", "10")
        line = self.with_device()
        line.send({"report": [["a", 0, "dram", i, 1] for i in range(15)], "ack": True, "seq": 1})
        error = line.receive()
        self.assertEqual((error["error"]["code"], error["error"]["index"], error["seq"]), ("limit", 10, 1))
        self.assertIn("buffers-per-client-max", error["error"]["message"])
        self.assertEqual(line.receive(), {"ack": 1})
        self.assertEqual(self.figures(), {(0, "dram"): (10, 10)})

    def test_connections_max(self):
        self.native("--connections-max", "3")
        lines = [self.connect() for _ in range(3)]
        for line in lines:
            self.assertEqual(line.ask({"ping": 1}), {"pong": 1})
        self.assertTrue(self.connect().at_end())
        lines[0].close()
        self.wait_until(lambda: self.pings(), "there is room again")

    def pings(self):
        try:
            return self.connect().ask({"ping": 1}) == {"pong": 1}
        except (EOFError, OSError):
            return False

    def test_reports_per_second(self):
        self.native("--reports-per-second", "1000")
        line = self.with_device()
        start = time.monotonic()
        for i in range(3):
            line.ask({"report": [["a", 0, "dram", i * 1000 + j, 1] for j in range(1000)], "ack": True})
        line.ask({"ping": 1})
        self.assertGreater(time.monotonic() - start, 0.9)
        self.assertEqual(self.figures(), {(0, "dram"): (3000, 3000)})

    # ---- who may see what ----

    def test_other_users_see_totals_and_nothing_else(self):
        if os.getuid() != 0:
            self.skipTest("needs root")
        daemon = self.native("--socket-group", "all")
        self.wait_until(lambda: self.helpers(daemon), "somebody who reads command lines")
        line = self.with_device()
        line.ask({"alloc": {"device": 0, "space": "dram", "id": 4711, "bytes": 1234, "tag": "secret tag"}, "ack": True})
        query = {"query": {"show": "pid,program,command,device.dram", "where": f"pid={os.getpid()}"}}
        mine = line.ask(query)["result"]["rows"][0]
        self.assertIn("python", mine["command"])
        own = '{"alloc":{"device":0,"space":"dram","id":1,"bytes":99}}'
        out = self.reporter_output(DEVICE, own, json.dumps(query), '{"query":{"table":"buffers"}}',
                                   '{"query":{"table":"devices","show":"used"}}', prefix=as_user(NOBODY))
        process, buffers, devices = (json.loads(text)["result"]["rows"] for text in out[1:4])
        self.assertEqual((process[0]["pid"], process[0]["device.dram"]), (os.getpid(), 1234))
        self.assertNotIn("python", json.dumps(process))
        self.assertEqual(len(buffers), 1, buffers)
        self.assertNotIn("secret", "".join(out))
        self.assertEqual(devices[0]["used"], 1333)

    def test_other_users_hear_of_processes_without_names_and_of_no_reports(self):
        if os.getuid() != 0:
            self.skipTest("needs root")
        self.native("--socket-group", "all")
        watcher = self.spawn_python("""
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
f = s.makefile("rw")
f.write('{"subscribe":["processes","reports"]}\\n')
f.flush()
for line in f:
    print(line, end="", flush=True)
""", self.path, prefix=as_user(NOBODY))
        watcher.out.wait("subscribed")
        process = self.reporter(DEVICE, '{"alloc":{"device":0,"space":"dram","id":1,"bytes":500,"tag":"secret"}}')
        watcher.out.wait('"came"')
        process.kill()
        went = json.loads(watcher.out.wait('"went"'))
        self.assertEqual((went["pid"], went["bytes"]), (process.pid, 500))
        self.assertFalse({"program", "line", "cause", "command"} & set(went))
        self.assertEqual([text for text in watcher.out.lines if "alloc" in text or "secret" in text], [])

    # ---- other processes ----

    def spawn_python(self, script, *arguments, prefix=()):
        from daemon_fixture import Process
        process = Process([*prefix, sys.executable if not prefix else "/usr/bin/python3", "-c", script, *arguments])
        self.addCleanup(process.close)
        return process

    def reporter(self, *messages, prefix=()):
        process = self.spawn_python(REPORTER, self.path, *messages, prefix=prefix)
        process.out.wait(r"^ready \d+$")
        return process

    def reporter_output(self, *messages, prefix=()):
        process = self.reporter(*messages, prefix=prefix)
        return list(process.out.lines)
