"""What a user does to the processes that act for it delays that user alone."""

import os
import pathlib
import re
import sys
import unittest

import test_trust
import unit_sandbox
from daemon_fixture import NOBODY, as_user
from test_trust import VICTIM as STRANGER

SOON_S = 2  # an answer that waited for nobody, on a busy machine
STOPPED_S = 2.5  # less than memoird waits for an explanation

# A process whose mappings take a while to read.
LARGE = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
start = libc.mmap(None, ctypes.c_size_t(60000 << 12), 1, 0x22, -1, ctypes.c_long(0))
for page in range(0, 50000, 2):
    libc.mprotect(ctypes.c_void_p(start + (page << 12)), ctypes.c_size_t(4096), 3)
print("ready", flush=True)
sys.stdin.read()
"""

# Stops each process that the broker starts for this user, and lets it go on before memoird gives up.
STOPPER = """
import os, sys, time
broker, stopped_s = int(sys.argv[1]), float(sys.argv[2])
waiting = {}
while True:
    with open(f"/proc/{broker}/task/{broker}/children") as children:
        for pid in map(int, children.read().split()):
            try:
                if pid not in waiting and os.stat(f"/proc/{pid}").st_uid in (0, os.getuid()):
                    os.kill(pid, 19)
                    waiting[pid] = time.monotonic() + stopped_s
                    print("stopped", pid, flush=True)
            except (PermissionError, ProcessLookupError, FileNotFoundError):
                pass
    for pid, until in waiting.items():
        if until < time.monotonic():
            try:
                os.kill(pid, 18)
            except (PermissionError, ProcessLookupError):
                pass
"""

# Asks for the same again and again, a line with status and seconds for each answer. The limit makes it a question that has no answer yet.
ASKER = """
import http.client, socket, sys, time
class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])
limit = int(sys.argv[3])
while True:
    begin = time.monotonic()
    limit += 1
    call = Unix("localhost")
    call.request("GET", f"/api/v1/query?table=explain&where=pid%3D{sys.argv[2]}&limit={limit}")
    answer = call.getresponse()
    answer.read()
    call.close()
    print(answer.status, round(time.monotonic() - begin, 3), flush=True)
    time.sleep(float(sys.argv[4]))
"""


class Fair(test_trust.TrustTest):
    family = test_trust.Names.family

    def script(self, uid, text, *arguments):
        return self.start(*as_user(uid), sys.executable, "-c", text, *map(str, arguments))

    def asker(self, uid, pid, number=0, pause_s=0):
        return self.script(uid, ASKER, self.http, pid, 1000 * number, pause_s)

    @staticmethod
    def answers(asker):
        """[(status, seconds)]"""
        return [(int(words[0]), float(words[1])) for words in map(str.split, asker.out.lines) if len(words) == 2]

    def test_stopping_ones_own_processes_delays_nobody_else(self):
        daemon = self.api()
        theirs = self.script(STRANGER, LARGE)
        theirs.out.wait("ready")
        own = self.start(*as_user(NOBODY), "/bin/sleep", "1000")
        broker = next(pid for pid, name in self.family(daemon.pid).items() if name == "memoir-broker")
        self.as_other(NOBODY, f"/processes/{own.pid}/explain")
        self.as_other(STRANGER, f"/processes/{theirs.pid}/explain")
        stopper = self.script(STRANGER, STOPPER, broker, STOPPED_S)
        attacks = [self.asker(STRANGER, theirs.pid, number) for number in range(3)]
        stopper.out.wait("stopped")
        asker = self.asker(NOBODY, own.pid, pause_s=0.05)
        # Until the account of the one that stops them is used up, though none of them ran into a limit.
        daemon.err.wait(rf"files or memory of uid {STRANGER} took 8 s to answer")
        answers = self.answers(asker)
        self.assertGreater(len(answers), 20)
        self.assertEqual({status for status, _ in answers}, {200})
        self.assertLess(max(seconds for _, seconds in answers), SOON_S)
        late = [seconds for attack in attacks for _, seconds in self.answers(attack) if seconds > SOON_S]
        self.assertTrue(late, "the attack held up its own questions")
        # From now on nothing is tried for that user, and nobody waits.
        self.as_other(STRANGER, f"/processes/{theirs.pid}/explain", 504)
        self.as_other(NOBODY, f"/processes/{own.pid}/explain")

    def test_what_questions_wait_for_has_the_priority_of_memoird(self):
        """Else busy loops of any user would hold up the table of processes, and with it everybody's questions."""
        daemon = self.api()
        self.rows("/processes", limit=1)
        found = {}
        for thread in pathlib.Path(f"/proc/{daemon.pid}/task").iterdir():
            name, _, rest = (thread / "stat").read_text(encoding="utf-8").partition("(")[2].rpartition(") ")
            found[name] = int(rest.split()[16])
        self.assertIn("processes", found)
        later = {name for name, nice in found.items() if nice > os.getpriority(os.PRIO_PROCESS, daemon.pid)}
        self.assertLessEqual(later, {"history"})  # nobody waits for what is written

    def charges(self, size, others, wanted_ms):
        """Milliseconds that nobody's questions took, and those it was charged, while its children share a processor with programs of
        another user."""
        daemon = self.api("--log-level=debug")
        own = self.script(NOBODY, LARGE.replace("50000", str(size)))
        own.out.wait("ready")
        broker = next(pid for pid, name in self.family(daemon.pid).items() if name == "memoir-broker")
        processor = min(os.sched_getaffinity(0))
        os.sched_setaffinity(broker, {processor})
        loop = ("/bin/sh", "-c", "echo runs; while :; do :; done")
        for other in [self.start(*as_user(STRANGER), "taskset", "-c", str(processor), *loop) for _ in range(others)]:
            other.out.wait("runs")
        self.asker(NOBODY, own.pid)

        def told():
            found = (re.search(rf"a question took (\d+) ms, of which uid {NOBODY} is charged (\d+)", line) for line in daemon.err.lines)
            return [(int(line[1]), int(line[2])) for line in found if line and int(line[1]) >= wanted_ms]

        self.wait_until(told, "questions take long")
        return told()

    def test_a_busy_machine_is_not_the_fault_of_who_asks(self):
        for took, charged in self.charges(20000, 6, 400):
            self.assertLess(charged, took / 2)

    def test_a_busy_machine_is_not_the_fault_of_who_gets_no_answer(self):
        for took, charged in self.charges(50000, 24, 2900):  # EXPLAINING_MS_MAX is 3 s
            self.assertLess(charged, took / 2)


@unittest.skipIf(unit_sandbox.why_not(), unit_sandbox.why_not())
class Boxed(Fair):
    def api(self, *flags, **options):
        return super().api(*flags, **{"prefix": unit_sandbox.prefix(), **options})


if __name__ == "__main__":
    unittest.main()
