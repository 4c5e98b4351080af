"""Every view is a question: over one world that stands still, under one stopped clock, a command, memoir query and the route of
the API give the same bytes."""

import json
import os
import re
import signal
import subprocess
import time
import unittest
import urllib.parse

from api_support import MEMOIR, ApiTest
from cli_support import CB, DRAM, ENVIRONMENT, HEAP, L1, LIBRARY, SCRIPTED
from daemon_fixture import BUILD, PATIENCE_S

CLOCK = BUILD / "test/integration/libfrozen_clock.so"

# One line for each view: the command with its own options, or None; the table and the tests that these stand for; the route; and what
# its users add, where it is not ASKED. Columns that are read from a clock that cannot be stopped (ages of blocks) are not asked for.
STEADY = ["--show", "pid,program,device,space,bytes,tag,moves,id", "--sort", "-bytes,+pid,+id"]
# What users add to a view.
ASKED = [
    {},
    {"where": "{pid_test}"},
    {"by": "user"},
    {"where": "{pid_test}", "by": "program,user", "show": "count", "sort": "count"},
    {"show": "node,user", "sort": "user,node"},
    {"by": "user", "show": "count,any(program)", "where": "{pid_test} or uid=12345"},
]
CODE = [
    {"where": "bytes>0", "show": "pid,program,space,site,function,source_file,line,bytes,blocks,allocated,freed,estimated,key"},
    {"where": "bytes>0", "by": "space,user", "show": "count,bytes,blocks,allocated", "sort": "-bytes"},
    {"where": "space=heap", "show": "key,bytes,device,device_id,frame", "sort": "+key"},
]
STACKS = [{key: value.replace(",function,source_file,line", "").replace(",frame", ",frames,functions,places,modules,keys")
           for key, value in words.items()} for words in CODE]
BARE = [  # memoird's loop has no names of functions
    {"where": "{pid_test}", "show": "pid,program,space,bytes,blocks,allocated,key", "sort": "-bytes,+pid,+key"},
    {"where": "{pid_test}", "by": "space,user", "show": "count,bytes,blocks", "sort": "-bytes"},
]
LEAKS = [
    {"where": "level>=0 and bytes>0", "show": "pid,program,user,space,bytes,blocks,key,site_number,book_inode", "sort": "-bytes,+pid,+key"},
    {"where": "level>=0 and bytes>0", "by": "program,space", "show": "count,bytes", "sort": "-bytes"},
]
SERIES = "({pid_test}) and (series=heap or series=dram)"
HISTORY = [
    {"where": SERIES, "show": "of,pid,program,series,measure,last,points,peaks", "sort": "+pid,+series"},
    {"where": SERIES, "by": "series", "show": "count,points,end", "sort": "+series"},
]
PAST = [
    {"where": "{pid_test}", "show": "time,pid,program,heap,device,device.dram,nodes", "sort": "+pid"},
    {"where": "{pid_test}", "by": "program", "show": "count,heap,device"},
]
MACHINE = [{"show": "node,total,nodes", "sort": "+node"}, {"by": "node", "show": "total,count"}]
DEVICES = [{"show": "device,device_id,space,used,capacity,percent", "sort": "+device,+space"}, {"by": "space", "show": "used,count"}]
VIEWS = [
    (["ps"], "processes", "", "/ps", ASKED),
    (["ps", "--user", "{uid}"], "processes", "uid={uid}", "/ps", ASKED),
    (["ps", "--wide"], "accounts", "", "/accounts", ASKED),
    (["devices"], "devices", "", "/devices", ASKED),
    (["devices", "--device", "0"], "devices",
     '(ordinal=0 or (device~"0*" and device!~"0?*") or (device_uid~"0*" and device_uid!~"0?*") or (device_bus~"0*" and '
     'device_bus!~"0?*") or (device_name~"0*" and device_name!~"0?*"))', "/devices", ASKED),
    (["buffers", *STEADY], "buffers", "", "/buffers", ASKED),
    (["buffers", "--space", "dram", "--min", "2000", *STEADY], "buffers", 'space="dram" and bytes>=2000', "/buffers", ASKED),
    (["top", "--show", "pid,user,program,rss,heap,device,threads"], "host", "", "/processes", ASKED),
    (["exited"], "exited", "", "/exited", ASKED),
    (["ps", "--exited", "--blocks", "--show", "pid,program,ended,cause,device,space,bytes,age,tag,id"], "exited_blocks", "",
     "/exited_blocks", ASKED),
    (["sites", "{pid}"], "lines", "pid={pid}", "/processes/{pid}/sites", CODE),
    (["flame", "{pid}"], "stacks", "pid={pid}", "/processes/{pid}/stacks", STACKS),
    (None, "sites", "", "/sites", BARE),
    (None, "lines", "", "/lines", [{"where": "{pid_test}", "by": "space", "show": "count(bytes),bytes"}]),
    (None, "leaks", "", "/leaks", LEAKS),  # under a stopped clock there is no verdict, which memoir leaks waits for: test_leaks_daemon
    (["history"], "history", "", None, HISTORY),
    (["top"], "host_past", "", "/processes", PAST),
    (["ps"], "processes_past", "", "/ps", PAST),
    (None, "system_past", "", "/system", MACHINE),
    (["devices"], "devices_past", "", "/devices", DEVICES),
    (None, "system", "", "/system", MACHINE),
    (None, "device_processes", "", "/device_processes", [{"show": "pid,device,program"}]),
]
# Tables that no command of one machine shows, or whose rows do not stand still, and why that is fine.
ELSEWHERE = {
    "events": "kept in memoird alone: test_api compares /events, /query and the stream",
    "cgroups": "figures of cgroups change by themselves: test_cgroups compares the command with memoird",
    "explain": "taken anew for each question: test_explain asks the command, the table and the route",
}


@unittest.skipIf(os.environ.get("MEMOIR_SANITIZED"), "nothing is preloaded into programs with a sanitizer")
class Views(ApiTest):
    def setUp(self):
        super().setUp()
        first = self.api("--refresh", "50ms", "--history-flush", "100ms")  # its clock runs: it writes the history
        dead = self.client_of(300)
        self.pids = [self.client_of(size).pid for size in (1000, 5000)]
        self.coder = self.coder_with_sites()
        now = 0

        def recorded():
            nonlocal now
            now = int(time.time())
            return self.rows("/ps", at="now")

        self.eventually(recorded, lambda rows: len(rows) == 4, "the history has all")
        first.kill()
        first.wait()
        self.frozen = {"LD_PRELOAD": str(CLOCK), "FROZEN_S": str(now),
                       "FROZEN_BOOT_S": str(int(time.clock_gettime(time.CLOCK_BOOTTIME)))}
        self.api("--refresh", "50ms", "--history=no", "--leaks-interval", "50ms", env=os.environ | self.frozen)
        self.eventually(lambda: self.rows("/ps"), lambda rows: len(rows) == 4, "memoird knows all")
        dead.kill()
        dead.wait()
        self.dead = dead.pid
        self.eventually(lambda: self.rows("/exited"), lambda rows: len(rows) == 1, "memoird remembers one that ended")
        for pid in (*self.pids, self.coder):
            os.kill(pid, signal.SIGSTOP)

    def client_of(self, size):
        """A process that holds so much, and nothing else happens."""
        environment = ENVIRONMENT | {"MEMOIR_DIR": str(self.books), "LD_LIBRARY_PATH": str(LIBRARY)}
        client = subprocess.Popen([SCRIPTED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        for end in (client.wait, client.kill, client.stdin.close, client.stdout.close):
            self.addCleanup(end)
        self.assertEqual(client.stdout.readline(), b"ready\n")
        for line in ("device 0 Card-A 1000000 2000", "tag weights", f"alloc 0 {DRAM} 1 {size}", "untag", f"alloc 0 {L1} 2 30",
                     f"alloc 0 {CB} 3 70", f"alloc -1 {HEAP} 4 {size}"):
            client.stdin.write(line.encode() + b"\n")
            client.stdin.flush()
            self.assertEqual(client.stdout.readline(), b"ok\n")
        return client

    def coder_with_sites(self):
        """The PID of one whose book has call sites."""
        client = self.client(program=BUILD / "test/integration/sites_client", ready=False, settings={"MEMOIR_STACKS": "all"})
        client.out.wait("^ready$")
        for i, line in enumerate(("left 1 1000", "right 3 4000", "device 5 8192")):
            client.popen.stdin.write(line + "\n")
            client.popen.stdin.flush()
            client.out.wait("^ok$", i + 1)
        return client.pid

    def say(self, *arguments):
        done = subprocess.run([MEMOIR, *map(str, arguments)], capture_output=True, env=os.environ | self.frozen, timeout=PATIENCE_S,
                              check=False)
        self.assertIn(done.returncode, (0, 3), done.stderr)
        return done.stdout.decode()

    def place(self, command, table):
        """Where the command finds the same world: options of its own."""
        name = command[0]
        if table.endswith("_past"):  # the step of 10 seconds that the stopped clock stands in
            return ["--at", "now", "--state", self.state]
        if table == "history":
            return ["--since", "10m", "--step", "10s", "--state", self.state]
        if table == "leaks":
            return ["--dir", self.books, "--socket", self.path]
        if table in ("system", "cgroups", "device_processes") or (name == "query" and table == "host"):
            return [] if table != "host" else ["--dir", self.books]
        return ["--state", self.state] if table.startswith("exited") else ["--dir", self.books]

    def served(self, route, table, asked):
        words = dict(asked)
        if table.endswith("_past"):
            words["at"] = "now"
        if table == "history":
            words |= {"since": "-10m", "points": 61}
        text = self.request("GET", route + "?" + urllib.parse.urlencode(words)).body.decode()
        for more in (',"exits":{', ',"watch":{'):  # what the daemon alone can tell
            head, found, _ = text.partition(more)
            text = head + "}\n" if found else text
        return re.sub('"step":[0-9]+,', "", text, count=1)

    def filled(self, text, table):
        pid_test = f"pid={self.pids[0]} or pid={self.pids[1]}" if not table.startswith("exited") else f"pid={self.dead}"
        if table == "devices":
            pid_test = "space=dram"
        if table in ("sites", "lines", "stacks", "leaks"):
            pid_test = f"pid={self.coder}"
        return text.replace("{pid_test}", pid_test).replace("{uid}", str(os.getuid())).replace("{pid}", str(self.coder))

    def test_command_question_and_route_give_the_same_bytes(self):
        for command, table, tests, route, asked in VIEWS:
            for words in asked:
                with self.subTest(command=command, table=table, words=words):
                    self.compare([self.filled(word, table) for word in command or []], table, self.filled(tests, table),
                                 route and self.filled(route, table), {key: self.filled(value, table) for key, value in words.items()})

    def test_every_table_is_compared(self):
        tables = {table["name"] for table in self.get("/tables")["tables"]}
        compared = {table for _, table, *_ in VIEWS}
        self.assertEqual(tables, compared | set(ELSEWHERE), "a new table needs a line in VIEWS, or a reason in ELSEWHERE")
        self.assertEqual(compared & set(ELSEWHERE), set())

    def compare(self, command, table, tests, route, words):
        if table == "devices" and "user" in json.dumps(words):
            return  # a device has none
        if table == "host" and "where" not in words:
            return  # other processes do not stand still
        own = {}
        for option in ("--show", "--sort"):
            if option in command:
                at = command.index(option)
                own[option[2:]] = command[at + 1]
                command = command[:at] + command[at + 2:]
        if "by" not in words:
            words = own | words
        elif own:  # groups of blocks would show their age
            words = {"show": "count,bytes"} | words
        options = [f"--{key}={value}" for key, value in words.items()]
        now = table.removesuffix("_past")
        first = command or ["query", now]
        document = json.loads(self.say(*first, "--json", *options, *self.place(first, table)))
        # What the view asks when nothing else is said is a question, too.
        asked = dict(words)
        if "by" not in asked:
            asked.setdefault("show", ",".join(column["name"] for column in document["columns"]))
        both = [part for part in (tests, asked.get("where")) if part]
        if table == "history":
            both.insert(0, 'measure=bytes or measure="percent/100"')
            asked["where"] = f"{both[0]}, ({both[1]})"
        elif both:
            asked["where"] = both[0] if len(both) == 1 else f"{both[0]} and ({both[1]})"
        if table == "exited" and "sort" not in asked:
            asked["sort"] = "-processes" if "by" in asked else "-ended,-sequence"
        if table == "exited" and "by" in asked:
            asked.setdefault("show", "processes,peak_rss,cpu,lived,ended")
        empty = "12345" in str(words) or table in ("device_processes", "leaks")  # no driver; nothing was watched for long enough
        self.assertTrue(document["rows"] or empty, document)
        question = ["query", now, "--json", *(f"--{key}={value}" for key, value in asked.items()), *self.place(["query"], table)]
        if command:
            self.same(lambda: self.say(*command, "--json", *options, *self.place(command, table)), question)
        if route:
            self.same(lambda: self.served(route, table, asked), question)
        if not (route or "").startswith("/processes/"):  # with names of functions, which the loop has not
            self.same(lambda: self.served("/query", table, {"table": now, **asked}), question)

    def test_the_history_of_the_command_and_of_the_route_is_one_document(self):
        identity = next(row["device_id"] for row in self.rows("/devices") if row["device_name"] == "Card-A")
        for options, words in ((["--system"], {"what": "system"}), (["--device", "host"], {"what": "space"}),
                               (["--pid", str(self.pids[0])], {"what": "process", "pid": self.pids[0]}),
                               (["--device", "Card-A"], {"what": "device", "device": identity}),
                               (["--pid", "2147483000"], None)):
            with self.subTest(options):
                told = self.say("history", "--json", *options, "--since", "10m", "--step", "10s", "--state", self.state)
                document = json.loads(told)
                self.assertEqual(document["series"] == [], words is None)
                if words:
                    query = urllib.parse.urlencode(words | {"from": "-10m", "points": 61})
                    served = self.request("GET", "/history?" + query).body.decode()
                    self.assertEqual(self.timeless(told), self.timeless(served))

    def timeless(self, text):
        return re.sub('"time":"[^"]*"', "", text, count=1).strip()

    def test_the_log_takes_the_words_of_a_question(self):
        """Its rows are changes, so there is no snapshot to ask: the same change is the same line, whatever else is asked for."""
        client = self.client_of(700)
        begin = ["log", "--json", "--dir", self.books, "--pid", client.pid]
        whole = self.logging(*begin, "--lines", 40, "--where", "kind=alloc")
        some = self.logging(*begin, "--lines", 12, "--where", "kind=alloc and space=dram and bytes>1500", "--show",
                            "kind,pid,program,space,bytes,id")
        until, number = time.monotonic() + PATIENCE_S, 10
        while (whole.poll() is None or some.poll() is None) and time.monotonic() < until:
            number += 1
            client.stdin.write(f"alloc 0 {DRAM} {number} {number * 100}\n".encode())
            client.stdin.flush()
            self.assertEqual(client.stdout.readline(), b"ok\n")
            time.sleep(0.01)
        lines = {line["id"]: line for line in map(json.loads, whole.communicate(timeout=PATIENCE_S)[0].splitlines())}
        told = [json.loads(line) for line in some.communicate(timeout=PATIENCE_S)[0].splitlines()]
        self.assertEqual(len(told), 12)
        self.assertTrue(all(line["bytes"] > 1500 and line["space"] == "dram" for line in told), told)
        both = [line for line in told if line["id"] in lines]
        self.assertTrue(both)
        self.assertEqual(both, [{name: lines[line["id"]][name] for name in line} for line in both])

    def logging(self, *arguments):
        process = subprocess.Popen([MEMOIR, *map(str, arguments)], stdout=subprocess.PIPE, env=os.environ | self.frozen)
        for end in (process.wait, process.kill, process.stdout.close):
            self.addCleanup(end)
        return process

    def same(self, other, question):
        """What the kernel says of a process changes even while it is stopped (its pages may be reclaimed), and memoird reads it once in
        a while. So both have to give the same bytes at some time, not at the first: two shapes never do."""
        self.eventually(lambda: (other(), self.say(*question)), lambda both: both[0] == both[1], "the same bytes")



if __name__ == "__main__":
    unittest.main()
