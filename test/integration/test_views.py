"""Every view is a question: over one world that stands still, under one stopped clock, a command, memoir query and the route of
the API give the same bytes."""

import json
import os
import signal
import subprocess
import time
import unittest
import urllib.parse

from api_support import MEMOIR, ApiTest
from cli_support import CB, DRAM, ENVIRONMENT, HEAP, L1, LIBRARY, SCRIPTED
from daemon_fixture import BUILD, PATIENCE_S

CLOCK = BUILD / "test/integration/libfrozen_clock.so"

# Command with its own options; the table and the tests that they stand for; the route. One line for each view. Columns that are read
# from a clock that cannot be stopped (ages of blocks) are not asked for.
STEADY = ["--show", "pid,program,device,space,bytes,tag,moves,id", "--sort", "-bytes,+pid,+id"]
VIEWS = [
    (["ps"], "processes", "", "/ps"),
    (["ps", "--user", "{uid}"], "processes", "uid={uid}", "/ps"),
    (["ps", "--wide"], "accounts", "", "/accounts"),
    (["devices"], "devices", "", "/devices"),
    (["devices", "--device", "0"], "devices",
     '(ordinal=0 or (device~"0*" and device!~"0?*") or (device_uid~"0*" and device_uid!~"0?*") or (device_bus~"0*" and '
     'device_bus!~"0?*") or (device_name~"0*" and device_name!~"0?*"))', "/devices"),
    (["buffers", *STEADY], "buffers", "", "/buffers"),
    (["buffers", "--space", "dram", "--min", "2000", *STEADY], "buffers", 'space="dram" and bytes>=2000', "/buffers"),
    (["top", "--show", "pid,user,program,rss,heap,device,threads"], "host", "", "/processes"),
    (["exited"], "exited", "", "/exited"),
    (["ps", "--exited", "--blocks", "--show", "pid,program,ended,cause,device,space,bytes,age,tag,id"], "exited_blocks", "",
     "/exited_blocks"),
]
# What users add to a view.
ASKED = [
    {},
    {"where": "{pid_test}"},
    {"by": "user"},
    {"where": "{pid_test}", "by": "program,user", "show": "count", "sort": "count"},
    {"show": "node,user", "sort": "user,node"},
    {"by": "user", "show": "count,any(program)", "where": "{pid_test} or uid=12345"},
]


@unittest.skipIf(os.environ.get("MEMOIR_SANITIZED"), "nothing is preloaded into programs with a sanitizer")
class Views(ApiTest):
    def setUp(self):
        super().setUp()
        self.frozen = {"LD_PRELOAD": str(CLOCK), "FROZEN_S": str(int(time.time())),
                       "FROZEN_BOOT_S": str(int(time.clock_gettime(time.CLOCK_BOOTTIME)))}
        self.api("--refresh", "50ms", env=os.environ | self.frozen)
        dead = self.client_of(300)
        self.pids = [self.client_of(size).pid for size in (1000, 5000)]
        self.eventually(lambda: self.rows("/ps"), lambda rows: len(rows) == 3, "memoird knows all")
        dead.kill()
        dead.wait()
        self.dead = dead.pid
        self.eventually(lambda: self.rows("/exited"), lambda rows: len(rows) == 1, "memoird remembers one that ended")
        for pid in self.pids:
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

    def say(self, *arguments):
        done = subprocess.run([MEMOIR, *map(str, arguments)], capture_output=True, env=os.environ | self.frozen, timeout=PATIENCE_S,
                              check=False)
        self.assertIn(done.returncode, (0, 3), done.stderr)
        return done.stdout.decode()

    def place(self, table):
        return ["--state", self.state] if table.startswith("exited") else ["--dir", self.books]

    def served(self, route, asked):
        target = route + "?" + urllib.parse.urlencode(asked)
        text = self.request("GET", target).body.decode()
        head, found, _ = text.partition(',"exits":{')  # whether ends are seen at all is the daemon's to tell
        return head + "}\n" if found else text

    def filled(self, text, table):
        pid_test = f"pid={self.pids[0]} or pid={self.pids[1]}" if not table.startswith("exited") else f"pid={self.dead}"
        if table == "devices":
            pid_test = "space=dram"
        return text.replace("{pid_test}", pid_test).replace("{uid}", str(os.getuid()))

    def test_command_question_and_route_give_the_same_bytes(self):
        for command, table, tests, route in VIEWS:
            for words in ASKED:
                with self.subTest(command=command, words=words):
                    self.compare([self.filled(word, table) for word in command], table, self.filled(tests, table), route,
                                 {key: self.filled(value, table) for key, value in words.items()})

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
        view = self.say(*command, "--json", *options, *self.place(table))
        document = json.loads(view)
        # What the view asks when nobody says otherwise is a question, too.
        asked = dict(words)
        if "by" not in asked:
            asked.setdefault("show", ",".join(column["name"] for column in document["columns"]))
        both = [part for part in (tests, asked.get("where")) if part]
        if both:
            asked["where"] = both[0] if len(both) == 1 else f"{both[0]} and ({both[1]})"
        if table == "exited" and "sort" not in asked:
            asked["sort"] = "-processes" if "by" in asked else "-ended,-sequence"
        if table == "exited" and "by" in asked:
            asked.setdefault("show", "processes,peak_rss,cpu,lived,ended")
        self.assertTrue(document["rows"] or "12345" in str(words), document)
        question = ["query", table, "--json", *(f"--{key}={value}" for key, value in asked.items()), *self.place(table)]
        self.same(lambda: self.say(*command, "--json", *options, *self.place(table)), question)
        self.same(lambda: self.served(route, asked), question)
        self.same(lambda: self.served("/query", {"table": table, **asked}), question)

    def same(self, other, question):
        """What the kernel says of a process changes even while it is stopped (its pages may be reclaimed), and memoird reads it once in
        a while. So both have to give the same bytes at some time, not at the first: two shapes never do."""
        self.eventually(lambda: (other(), self.say(*question)), lambda both: both[0] == both[1], "the same bytes")



if __name__ == "__main__":
    unittest.main()
