"""What one user is told about another user's process: every table, column, filter, order and group, every route, and the streams,
with exactly the rights that the unit gives memoird."""

import json
import os
import re
import subprocess
import sys
import unittest
import urllib.parse

import unit_sandbox
from api_support import MEMOIR, ApiTest
from daemon_fixture import NOBODY, PATIENCE_S, Process, as_user, needs_root
from test_trust import VICTIM

REASON = unit_sandbox.why_not()
SOURCE = unit_sandbox.UNIT.parents[2]

# Asks many questions over one connection; a line in is a path, a line out its status and answer.
ASKER = """
import http.client, json, socket, sys
def ask(path):
    c = http.client.HTTPConnection("localhost", timeout=60)
    c.sock = socket.socket(socket.AF_UNIX)
    c.sock.connect(sys.argv[1])
    c.request("GET", "/api/v1" + path)
    answer = c.getresponse()
    told = [answer.status, answer.read().decode("latin-1")]
    c.close()
    return told
for line in sys.stdin:
    print(json.dumps(ask(line.rstrip("\\n"))), flush=True)
"""

# Everything that a user could keep to itself has this word in it.
WORD = "hushhush"
PROGRAM = f"""
import os, sys, time
sys.path.insert(0, {str(SOURCE / "clients/python")!r})
import memoir
kept = []
def {WORD}_function():
    kept.append(bytearray(8 << 20))
    kept.append([bytearray(1000) for _ in range(3000)])
{WORD}_function()
client = memoir.Client(sys.argv[1])
device = client.device(0, kind="npu", name="shared card", capacity={{"dram": 1 << 30}})
with client.tag("{WORD} tag"):
    client.alloc(device, "dram", id=0x7000, bytes=4 << 20)
print("ready", os.getpid(), flush=True)
sys.stdin.readline()
client.free(device, "dram", id=0x7000)
print("again", flush=True)
sys.stdin.readline()
"""


@needs_root
@unittest.skipIf(REASON, REASON)
class Views(ApiTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.api("--exits=auto", "--refresh", "200ms", prefix=unit_sandbox.prefix())
        for path in (self.http, self.path):
            os.chmod(path, 0o666)
        home = self.folder / f"{WORD} home"
        home.mkdir()
        (home / "program.py").write_text(PROGRAM)
        os.chown(home, VICTIM, VICTIM)
        home.chmod(0o755)
        self.victim = Process([
            *as_user(VICTIM), "env", f"MEMOIR_DIR={self.books}", f"SLURM_JOB_ID={WORD}7", f"SLURM_JOB_NAME={WORD}", MEMOIR, "run", "--track",
            "/usr/bin/python3", home / "program.py", self.path, f"--{WORD}-argument"], cwd="/")
        self.addCleanup(self.victim.close)
        self.pid = int(self.victim.out.wait(r"^ready \d+$").split()[1])
        self.asker = subprocess.Popen([*as_user(NOBODY), sys.executable, "-c", ASKER, self.http], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True, cwd="/")
        self.addCleanup(self.asker.wait)
        self.addCleanup(self.asker.stdin.close)
        self.addCleanup(self.asker.stdout.close)

    def ask(self, target, **arguments):
        """As nobody: status and text."""
        if arguments:
            target += "?" + urllib.parse.urlencode(arguments)
        self.asker.stdin.write(target + "\n")
        self.asker.stdin.flush()
        return json.loads(self.asker.stdout.readline())

    def hidden(self, target, **arguments):
        status, text = self.ask(target, **arguments)
        # What was asked is no answer, even if it comes back in a message or in the name of a column.
        asked = " ".join(map(str, arguments.values()))
        if WORD not in asked:
            self.assertNotIn(WORD, text, (target, arguments, status))
        return status, text

    def watched(self):
        """Root sees the words, so that they could be told."""
        self.eventually(lambda: self.rows("/accounts", where=f"pid={self.pid}"), lambda r: len(r) > 1, "both sources are known")
        self.eventually(lambda: json.dumps(self.get("/query", table="host", where=f"pid={self.pid}", show="command")),
                        lambda text: WORD in text, "root is told the command")
        self.eventually(lambda: self.request("GET", f"/processes/{self.pid}/sites").body.decode(), lambda text: f"{WORD}_function" in text,
                        "root is told the function")
        self.eventually(lambda: json.dumps(self.rows("/query", table="buffers", where=f"pid={self.pid}")), lambda text: f"{WORD} tag" in text,
                        "root is told the tag")

    def tables(self):
        for table in self.get("/tables")["tables"]:
            yield table["name"], [column["name"] for column in table["columns"]]

    def test_no_table_tells_of_another_users_process(self):
        self.watched()
        asked = answered = 0
        for table, columns in self.tables():
            for column in columns:
                for arguments in ({"show": column}, {"by": column}, {"show": f"pid,{column}" if "pid" in columns else column, "sort": column}):
                    status, _ = self.hidden("/query", table=table, limit=20000, **arguments)
                    asked += 1
                    answered += status == 200
        self.assertGreater(asked, 400)
        self.assertGreater(answered, asked * 0.6)

    def test_no_filter_tells_by_the_number_of_its_rows(self):
        """A hidden value must be unknown to filters and orders as well: else a user guesses it letter by letter."""
        self.watched()
        asked = 0
        for table, columns in self.tables():
            for column in columns:
                for where in (f"{column}~{WORD}", f"{column}=*{WORD}*"):
                    status, text = self.ask("/query", table=table, where=where, limit=20000)
                    if status == 200 and json.loads(text).get("rows"):
                        self.fail(f"{table}: {where}: {text[:500]}")
                    asked += status == 200
        self.assertGreater(asked, 50)

    def test_no_route_tells_of_another_users_process(self):
        self.watched()
        statuses = {}
        for path, methods in self.description()["paths"].items():
            if "get" in methods and not path.endswith("/stream"):
                target = path.removeprefix("/api/v1").replace("{pid}", str(self.pid)).replace("{name}", "x")
                status, _ = self.hidden(target)
                statuses[path] = status
        details = [path for path in statuses if re.search(r"\{pid\}/(?!tracking)", path)]
        self.assertGreater(len(details), 6)
        for path in details:
            self.assertIn(statuses[path], (403, 404), path)
        self.hidden("/history", what="process", pid=self.pid)

    def test_streams_and_ends_do_not_tell_either(self):
        self.watched()
        other = Process([*as_user(NOBODY), sys.executable, "-c", (
            "import socket, sys\n"
            "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
            "s.sendall(b'GET /api/v1/stream HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')\n"
            "print('open', flush=True)\n"
            "while True:\n"
            "    data = s.recv(65536)\n"
            "    if not data: break\n"
            "    print(data.decode(errors='replace'), flush=True)\n"), self.http], cwd="/")
        self.addCleanup(other.close)
        other.out.wait("^open$")
        own = self.stream()
        self.victim.popen.stdin.write("go\n")
        self.victim.popen.stdin.flush()
        self.victim.out.wait("^again$")
        os.kill(self.pid, 9)
        own.wait(lambda event: str(self.pid) in json.dumps(event), "root hears of it")
        self.eventually(lambda: self.rows("/exited", where=f"pid={self.pid}"), bool, "it is listed")
        for table in ("exited", "exited_blocks", "events", "history"):
            self.hidden("/query", table=table, limit=20000)
            self.hidden("/query", table=table, where=f"pid={self.pid}", limit=20000)
        self.assertNotIn(WORD, "\n".join(other.out.lines))

    def test_the_native_socket_does_not_tell_either(self):
        self.watched()
        script = ("import json, sys\nsys.path.insert(0, sys.argv[1])\nimport memoir\nclient = memoir.Client(sys.argv[2])\n"
                  "for line in sys.stdin:\n"
                  "    try: print(json.dumps(client.query(**json.loads(line)).rows, default=str))\n"
                  "    except memoir.Error as e: print('error', e)\n")
        lines = [json.dumps({"table": table, "show": ",".join(columns)}) for table, columns in self.tables()]
        lines += [json.dumps({"table": table, "by": column}) for table, columns in self.tables() for column in columns]
        done = subprocess.run([*as_user(NOBODY), sys.executable, "-c", script, str(SOURCE / "clients/python"), self.path],
                              input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd="/")
        answers = done.stdout.splitlines()
        self.assertEqual(len(answers), len(lines), done.stderr)
        self.assertGreater(sum(not a.startswith("error") for a in answers), 100, answers[:20])
        for question, answer in zip(lines, answers):
            self.assertNotIn(WORD, answer, question)


if __name__ == "__main__":
    unittest.main()
