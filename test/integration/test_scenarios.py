"""The scenarios of the original allocation server, and what happens when clients, daemons and disks fail.

Everything random goes by SEED, which is printed. SOAK=1 (script/soak) runs the long versions: 1,000 clients and more
that come and die for a minute."""

import os
import random
import signal
import subprocess
import threading
import time
import unittest

from daemon_fixture import NOBODY, SANITIZED, as_user, crowded, needs_root
from socket_support import Monitor, SocketTest, add

SOAK = bool(os.environ.get("SOAK"))
ORIGINAL_LOAD = ("dram=150x170000", "cb=800x28000", "kernel=30x6800")
ORIGINAL_TOTALS = {"dram": 150 * 170000, "cb": 800 * 28000, "kernel": 30 * 6800}
DEMO = ("l1=4x1048576", "dram=4x26214400", "l1=8x1048576", "free=l1=6", "free=dram=2")
DEMO_TOTALS = {"l1": 6 * 1048576, "dram": 2 * 26214400}
AT_ONCE = 20  # clients that come and die
LIVES_S = 60 if SOAK else 4
LIVES_MIN = 1000 if SOAK else 100
DAEMONS = 20 if SOAK else 4


class ScenarioTest(SocketTest):
    def setUp(self):
        super().setUp()
        seed = int(os.environ.get("SEED", time.time_ns() % 1000000))
        print(f"# SEED={seed}")
        self.random = random.Random(seed)

    def number(self):
        return self.random.randrange(1 << 30)


class Original(ScenarioTest):
    """What the text of the original allocation server walks through."""

    def test_three_clients_at_once_count_together(self):
        self.daemon()
        monitor = self.monitor()
        clients = [self.reporter(f"tt={self.tt}", *DEMO, "ready", "wait") for _ in range(3)]
        self.assertEqual(monitor.totals(), add(*[DEMO_TOTALS] * 3))
        clients[1].go_on()
        clients[1].wait()
        self.wait_totals(monitor, add(*[DEMO_TOTALS] * 2))

    def test_clients_one_after_the_other_are_told_apart(self):
        daemon = self.daemon()
        monitor = self.monitor()
        for _ in range(3):
            client = self.reporter(f"tt={self.tt}", *DEMO, "ready", "wait")
            self.assertEqual(monitor.totals(), DEMO_TOTALS)
            client.go_on()
            client.wait()
            self.assertIn("exited with 0", self.gone(daemon, client.pid))
            self.wait_totals(monitor, {})
        self.assertEqual(len(self.retired()), 3)

    def test_killed_client_leaves_zero_and_a_line(self):
        daemon = self.daemon()
        monitor = self.monitor()
        client = self.reporter(f"tt={self.tt}", *ORIGINAL_LOAD, "ready", "wait")
        self.assertEqual(monitor.totals(), ORIGINAL_TOTALS)
        client.kill()
        self.assertEqual(self.gone(daemon, client.pid),
                         f"PID {client.pid} (socket_client, killed by SIGKILL) gone: removed 150 buffers (25.5 MB), "
                         "800 CBs (22.4 MB), 30 kernels (0.2 MB)")
        self.wait_totals(monitor, {})
        self.assertEqual(self.book_files(), [])

    def test_killed_client_is_gone_in_milliseconds(self):
        if SANITIZED:
            self.skipTest("timing")
        self.daemon()
        monitor = self.monitor()
        took = []
        for _ in range(20):
            client = self.reporter(f"tt={self.tt}", *ORIGINAL_LOAD, "ready", "wait")
            begin = time.monotonic()
            client.kill()
            while monitor.totals():
                pass
            took.append(time.monotonic() - begin)
            client.wait()
        # The goal, 10 ms, is measured by script/bench on a quiet machine; here others run as well.
        self.assertLess(sorted(took)[len(took) // 2], crowded(0.25), took)

    def test_several_monitors_see_the_same(self):
        self.daemon()
        monitors = [self.monitor() for _ in range(8)]
        clients = [self.reporter(f"tt={self.tt}", "ready", f"churn={self.number()}", "wait") for _ in range(2)]
        stop, wrong, answers = threading.Event(), [], [0] * len(monitors)

        def watch(i):
            try:
                while not stop.is_set():
                    # Never below zero, and never more than these clients can hold.
                    wrong.extend(size for size in monitors[i].totals().values() if size > 2 * 2000 * 100000)
                    answers[i] += 1
            except (OSError, AssertionError) as error:
                wrong.append(error)

        threads = [threading.Thread(target=watch, args=(i,)) for i in range(len(monitors))]
        for thread in threads:
            thread.start()
        self.wait_until(lambda: wrong or min(answers) >= 100, "every monitor gets answers")
        wanted = add(*[client.held() for client in clients])
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        for monitor in monitors:
            self.wait_totals(monitor, wanted)


class Mixed(ScenarioTest):
    def test_all_ways_to_report_give_one_total(self):
        daemon = self.daemon()
        monitor, native = self.monitor(), self.native_client()
        clients = [self.reporter(way, "dram=10x1000", "l1=5x300", "cb=3x70", "kernel=2x11", "l1_small=1x5", "ready",
                                 "wait") for way in self.ways()]
        each = {"dram": 10000, "l1": 1500, "cb": 210, "kernel": 22, "l1_small": 5}
        self.wait_totals(monitor, add(*[each] * len(clients)))
        self.assertEqual(native.totals(), add(*[each] * len(clients)))
        for left in reversed(range(len(clients))):
            clients[left].kill()
            self.assertIn("removed 16 buffers", self.gone(daemon, clients[left].pid))
            self.wait_totals(monitor, add(*[each] * left))

    def test_same_ids_of_two_processes_are_two_buffers(self):
        self.daemon()
        monitor = self.monitor()
        clients = [self.reporter(way, "dram=10x1000", "free=dram=4", "ready", "wait") for way in self.ways() * 2]
        self.wait_totals(monitor, {"dram": len(clients) * 6000})
        clients[0].kill()
        self.wait_totals(monitor, {"dram": (len(clients) - 1) * 6000})

    def test_what_a_process_reports_in_two_ways_counts_once(self):
        """One of two sources that may see the same allocation counts: see doc/book.md."""
        daemon = self.daemon()
        monitor = self.monitor()
        client = self.reporter(f"tt={self.tt}", "dram=2x1000", "ready", "book", "dram=2x1000", "ready", "wait")
        client.out.wait("^ready", 2)
        self.wait_totals(monitor, {"dram": 2000})
        client.kill()
        self.gone(daemon, client.pid)
        self.wait_totals(monitor, {})


class Dying(ScenarioTest):
    def test_clients_that_come_and_die_at_random_leave_nothing(self):
        self.daemon()
        monitor = self.monitor()
        steady = [self.reporter(way, *ORIGINAL_LOAD, "ready", "wait") for way in self.ways()]
        lives, end, running = 0, time.monotonic() + LIVES_S, []
        while time.monotonic() < end or lives < LIVES_MIN:
            for i in reversed(range(len(running))):
                if running[i].popen.poll() is not None:
                    client = running.pop(i)
                    self.assertIn(client.wait(), (0, -signal.SIGKILL), client.err.lines)
                    client.close()
            while len(running) < AT_ONCE:
                client = self.reporter(self.random.choice(self.ways()), f"life={self.number()}", ready=False)
                client.popen.stdin.close()
                running.append(client)
                lives += 1
            totals = monitor.totals()
            for space, size in ORIGINAL_TOTALS.items():  # of those who stay; the others only add
                self.assertGreaterEqual(totals.get(space, 0), len(steady) * size)
            time.sleep(0.002)
        print(f"# {lives} clients")
        for client in running:
            client.wait()
        self.wait_totals(monitor, add(*[ORIGINAL_TOTALS] * len(steady)))
        self.wait_until(lambda: len(self.book_files()) == len(steady), "only the books of the living are left")
        for client in steady:
            client.kill()
        self.wait_totals(monitor, {})
        self.wait_until(lambda: not self.book_files(), "no book is left")

    def test_killed_daemon_finds_every_figure_again(self):
        daemon = self.daemon()
        clients = [self.reporter(way, "ready", f"churn={self.number()}", "wait") for way in self.ways() * 2]
        for _ in range(DAEMONS):
            time.sleep(self.random.uniform(0.05, 0.5))
            if self.random.random() < 0.5:  # and one dies while nobody looks
                clients.append(self.reporter(self.random.choice(self.ways()), *ORIGINAL_LOAD, "ready", "wait"))
                daemon.kill()
                daemon.wait()
                victim = clients.pop()
                victim.kill()
                victim.wait()
            else:
                daemon.kill()
                daemon.wait()
            daemon = self.daemon()
        time.sleep(self.random.uniform(0.05, 0.5))
        held = [client.held() for client in clients]
        with Monitor(self.tt) as monitor:
            self.wait_totals(monitor, add(*held))
        self.assertEqual(self.native_client().totals(), add(*held))
        for client in clients:
            client.kill()
            client.wait()
        with Monitor(self.tt) as monitor:
            self.wait_totals(monitor, {})
        self.wait_until(lambda: not self.book_files(), "no book is left")

    def test_daemon_killed_while_clients_are_quiet(self):
        """They never speak again, and count all the same."""
        daemon = self.daemon()
        clients = [self.reporter(way, *ORIGINAL_LOAD, "ready", "wait") for way in self.ways()]
        daemon.kill()
        daemon.wait()
        clients[1].kill()
        clients[1].wait()
        daemon = self.daemon()
        self.wait_totals(self.monitor(), add(*[ORIGINAL_TOTALS] * (len(clients) - 1)))
        self.assertIn("found dead", self.gone(daemon, clients[1].pid))


@needs_root
class Full(ScenarioTest):
    def mounted(self, where, kilobytes):
        """A command prefix that runs in a mount namespace with a small tmpfs there."""
        where.mkdir(parents=True, exist_ok=True)
        return ["unshare", "--mount", "sh", "-c",
                f"mount -t tmpfs -o size={kilobytes}k,mode=1777 none '{where}' && exec \"$@\"", "sh"]

    def test_full_state_changes_no_figure(self):
        prefix = self.mounted(self.state, 128)
        fill = f"head -c 100000 /dev/zero > '{self.state}/filler'; exec \"$@\""
        daemon = self.daemon("--log-level=debug", prefix=[*prefix, "sh", "-c", fill, "sh"])
        monitor = self.monitor()
        stays = self.reporter(f"tt={self.tt}", *ORIGINAL_LOAD, "ready", "wait")
        for i in range(30):  # each leaves a record with a hundred blocks
            client = self.reporter(self.ways()[i % len(self.ways())], *ORIGINAL_LOAD, "ready", "wait")
            client.kill()
            client.wait()
            self.assertIn("removed 150 buffers", self.gone(daemon, client.pid))
        self.wait_totals(monitor, ORIGINAL_TOTALS)
        daemon.err.wait("(No space left|no space|full)")
        self.assertIsNone(daemon.popen.poll())
        stays.kill()
        self.wait_totals(monitor, {})

    def test_full_place_for_books_is_counted_and_kills_nobody(self):
        books = self.folder / "small"
        daemon = self.spawn("--dir", books, "--state", self.state, "--tt-socket", self.tt, "--socket", self.native,
                            prefix=self.mounted(books, 512))
        daemon.err.wait("ready: watching")
        monitor = self.monitor()
        client = self.reporter(f"tt={self.tt}", "dram=60000x1000", "ready", "wait")
        totals = monitor.totals().get("dram", 0)
        self.assertTrue(0 < totals < 60000 * 1000, totals)  # some, and no more than there was room for
        self.assertIsNone(daemon.popen.poll())
        client.kill()
        self.wait_totals(monitor, {})
        again = self.reporter(f"tt={self.tt}", *DEMO, "ready", "wait")
        self.wait_totals(monitor, DEMO_TOTALS)
        again.kill()


@unittest.skipUnless(os.geteuid() == 0, "needs root to be two users")
class Users(ScenarioTest):
    def setUp(self):
        super().setUp()
        self.daemon("--socket-group", "nogroup")
        self.owner = self.reporter(f"tt={self.tt}", "dram=10x1000", "cb=5x100", "kernel=1x10", "ready", "wait")
        self.totals = {"dram": 10000, "cb": 500, "kernel": 10}

    def other(self, code):
        """Run that as nobody, with the helpers at hand; what it prints."""
        program = f"import sys; sys.path.insert(0, {str(os.path.dirname(os.path.abspath(__file__)))!r})\n{code}"
        script = self.folder / "other.py"
        script.write_text(program)
        done = subprocess.run([*as_user(NOBODY), "python3", "-B", str(script)], capture_output=True, text=True,
                              check=False, timeout=60, env=dict(os.environ))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def wire(self, body):
        """A piece of code that speaks the Tenstorrent protocol without our helpers, which nobody may not reach."""
        return ("import os, socket, struct\n"
                "M = struct.Struct('<B3xiQB3xiQQ6Q2Q10I')\n"
                f"s = socket.socket(socket.AF_UNIX); s.connect({str(self.tt)!r}); s.settimeout(60)\n"
                "def say(kind, device=0, size=0, buffer_type=0, pid=None, number=0):\n"
                "    s.sendall(M.pack(kind, device, size, buffer_type, pid or os.getpid(), number, 0, *[0] * 18))\n"
                "def totals():\n"
                "    say(3); return M.unpack(s.recv(M.size, socket.MSG_WAITALL))[7:13]\n" + body)

    def test_other_user_sees_totals(self):
        self.assertEqual(self.other(self.wire("print(totals())")).strip(), "(10000, 0, 0, 0, 500, 10)")

    def test_other_user_frees_nothing(self):
        self.other(self.wire(f"for kind in (2, 9, 11):\n    for number in range(1, 20):\n"
                             f"        say(kind, size=1000, pid={self.owner.pid}, number=number)\n"
                             f"        say(kind, size=1000, number=number)\ntotals()"))
        self.wait_totals(self.monitor(), self.totals)

    def test_other_user_speaks_for_nobody_else(self):
        # He may well be thrown out for it.
        self.other(self.wire(f"try:\n    say(1, size=5000, pid={self.owner.pid}, number=77)\n"
                             "    say(1, size=6000, pid=1, number=78)\n    totals()\n"
                             "except (OSError, struct.error):\n    pass\n"))
        self.wait_totals(self.monitor(), self.totals)

    def test_other_user_reports_for_himself(self):
        told = self.other(self.wire("say(1, size=7, number=1)\nprint(totals())"))
        self.assertEqual(told.strip(), "(10007, 0, 0, 0, 500, 10)")
        self.wait_totals(self.monitor(), self.totals)  # he is gone

    def test_other_user_reads_no_buffers(self):
        code = ("import json, socket\n"
                f"s = socket.socket(socket.AF_UNIX); s.connect({str(self.native)!r}); s.settimeout(60)\n"
                "f = s.makefile('rw')\n"
                "f.write('{\"query\":{\"table\":\"buffers\"}}\\n'); f.flush()\n"
                "print(len(json.loads(f.readline())['result']['rows']))")
        self.assertEqual(self.other(code).strip(), "0")
        self.assertEqual(len(self.native_client().ask(query={"table": "buffers"})["result"]["rows"]), 16)

    def test_without_the_group_nobody_gets_in(self):
        os.chown(self.tt, 0, 0)
        done = subprocess.run([*as_user(NOBODY), "python3", "-c", self.wire("totals()")], capture_output=True, text=True,
                              check=False, timeout=60)
        self.assertIn("PermissionError", done.stderr)


if __name__ == "__main__":
    unittest.main()
