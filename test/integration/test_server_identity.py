"""Who a client of memoird's sockets is, whose figures he can change, and who pays for his books."""

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

from daemon_fixture import NOBODY, Process, as_user, crowded, needs_root
from mute_files import MuteFiles
from native_fixture import NativeTest

FAR_USER = 54321

# One client, told by lines of JSON what to do; it answers each with one line.
PUPPET = """
import json, os, socket, sys
lines = {}
for text in sys.stdin:
    what, *rest = json.loads(text)
    if what == "connect":
        lines[rest[0]] = socket.socket(socket.AF_UNIX)
        lines[rest[0]].connect(rest[1])
        print(os.getpid(), flush=True)
    elif what == "ask":
        lines[rest[0]].sendall(json.dumps(rest[1]).encode() + b"\\n")
        print(lines[rest[0]].makefile().readline(), end="", flush=True)
    elif what == "mute":  # map that file over the page with the random bytes, above all that is in use
        import ctypes, struct
        auxv = open("/proc/self/auxv", "rb").read()
        at = dict(struct.iter_unpack("QQ", auxv))[25] & ~4095
        mmap = ctypes.CDLL(None).mmap
        mmap.restype = ctypes.c_size_t
        mmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_size_t]
        fd = os.open(rest[0], os.O_RDONLY)
        print(mmap(at, 4096, 1, 0x12, fd, 0) == at, flush=True)
    elif what == "exec":
        os.set_inheritable(lines[0].fileno(), True)
        os.execv(rest[0], rest)
    elif what == "close":
        lines.pop(rest[0]).close()
        print("closed", flush=True)
"""


class Puppet:
    def __init__(self, path, uid=None, **options):
        user = as_user(uid) if uid else []
        self.popen = subprocess.Popen([*user, sys.executable, "-c", PUPPET], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True, **options)
        self.pid = int(self.tell("connect", 0, path))

    def order(self, *words):
        self.popen.stdin.write(json.dumps(words) + "\n")
        self.popen.stdin.flush()

    def hear(self):
        return self.popen.stdout.readline()

    def tell(self, *words):
        self.order(*words)
        return self.hear()

    def ask(self, message, number=0):
        return json.loads(self.tell("ask", number, message))

    def close(self):
        self.popen.kill()
        self.popen.wait()
        self.popen.stdin.close()
        self.popen.stdout.close()


class IdentityTest(NativeTest):
    def puppet(self, *arguments, **options):
        puppet = Puppet(self.path, *arguments, **options)
        self.addCleanup(puppet.close)
        return puppet

    def open_native(self, *flags, **options):
        daemon = self.native(*flags, **options)
        os.chmod(self.path, 0o777)
        return daemon


def heap(bytes, id=1):
    return {"alloc": {"space": "heap", "id": id, "bytes": bytes}, "ack": True}


class SomebodyElse(IdentityTest):
    @needs_root
    def test_old_connection_writes_nothing_for_who_got_the_pid(self):
        last = "/proc/sys/kernel/ns_last_pid"
        if not os.access(last, os.W_OK):
            self.skipTest("pids cannot be chosen")
        self.open_native()
        mine, other = socket.socketpair()
        self.addCleanup(mine.close)
        self.addCleanup(other.close)
        pid = os.fork()
        if pid == 0:  # connects, gives the socket away and ends
            os.setresuid(FAR_USER, FAR_USER, FAR_USER)
            line = socket.socket(socket.AF_UNIX)
            line.connect(self.path)
            socket.send_fds(other, [b"x"], [line.fileno()])
            other.recv(1)
            os._exit(0)
        _, fds, _, _ = socket.recv_fds(mine, 1, 1)
        line = socket.socket(fileno=fds[0])
        self.addCleanup(line.close)
        line.sendall(b'{"ping":1}\n')
        line.recv(100)  # memoird has seen who it is
        mine.send(b"x")
        os.waitpid(pid, 0)
        for _ in range(200):
            with open(last, "w") as file:
                file.write(str(pid - 1))
            child = os.fork()
            if child == 0:
                if os.getpid() == pid:
                    os.setresuid(NOBODY, NOBODY, NOBODY)
                    signal.pause()
                os._exit(0)
            if child == pid:
                break
            os.waitpid(child, 0)
        else:
            self.skipTest("the pid went to others")
        try:
            line.sendall(json.dumps(heap(4711)).encode() + b"\n")
            self.assertEqual(json.loads(line.recv(1000))["error"]["code"], "forbidden")
            self.assertEqual(self.book_files(), [])
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    @needs_root
    def test_memory_is_not_booked_on_a_setuid_program(self):
        self.open_native()
        program = self.folder / "sleep"
        shutil.copy("/bin/sleep", program)
        program.chmod(0o4755)  # owned by root
        ours, theirs = socket.socketpair()
        self.addCleanup(ours.close)
        self.addCleanup(theirs.close)
        pid = os.fork()
        if pid == 0:
            os.setresuid(FAR_USER, FAR_USER, FAR_USER)
            line = socket.socket(socket.AF_UNIX)
            line.connect(self.path)
            socket.send_fds(theirs, [b"x"], [line.fileno()])
            os.execv(program, ["sleep", "1000"])
        self.addCleanup(os.waitpid, pid, 0)
        self.addCleanup(os.kill, pid, signal.SIGKILL)
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
        line = socket.socket(fileno=fds[0])
        self.addCleanup(line.close)
        self.wait_until(lambda: os.readlink(f"/proc/{pid}/exe") == str(program), "it calls exec")
        for message in (heap(4711), {"hello": 1, "pid": pid}):
            line.sendall(json.dumps(message).encode() + b"\n")
            self.assertEqual(json.loads(line.recv(1000))["error"]["code"], "forbidden")
        self.assertEqual(self.book_files(), [])


class Namespaces(IdentityTest):
    CROWD = """
import json, os, socket, sys
lines = [socket.socket(socket.AF_UNIX) for _ in range(40)]
for line in lines:
    line.connect(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for i, line in enumerate(lines):
    line.sendall(b"".join(b'{"hello":1,"pid":%d}\\n' % (10000 + 8 * i + k) for k in range(8)))
for line in lines:
    text = line.makefile()
    for k in range(8):
        assert "error" in json.loads(text.readline())
child = os.fork()
if child == 0:
    sys.stdin.readline()
    os._exit(0)
lines[0].close()
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[1])
line.sendall(b'{"hello":1,"pid":%d}\\n' % child)
print(line.makefile().readline(), end="", flush=True)
sys.stdin.readline()
"""

    @needs_root
    def test_pids_of_another_namespace_cost_little(self):
        self.open_native()
        others = subprocess.Popen(["sh", "-c", "for i in $(seq 400); do sleep 1000 & done; echo ready; wait"],
                                  stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.addCleanup(others.wait)
        self.addCleanup(os.killpg, others.pid, signal.SIGKILL)
        self.addCleanup(others.stdout.close)
        self.assertEqual(others.stdout.readline(), "ready\n")
        crowd = Process(["unshare", "--pid", "--fork", "--kill-child", *as_user(FAR_USER), sys.executable, "-c",
                         self.CROWD, self.path])
        self.addCleanup(crowd.close)
        crowd.out.wait("^ready$")
        line, worst, start = self.connect(), 0, time.monotonic()
        crowd.popen.stdin.write("\n")
        crowd.popen.stdin.flush()
        while not any("hello" in text for text in crowd.out.lines) and not crowd.out.ended:
            begin = time.monotonic()
            line.ask({"ping": 1})
            worst = max(worst, time.monotonic() - begin)
        self.assertLess(worst, crowded(0.5))
        self.assertLess(time.monotonic() - start, crowded(2))  # all 320 of them
        self.assertFalse(crowd.out.ended, crowd.err.lines)
        answer = json.loads(crowd.out.wait("hello"))  # a child is found all the same
        self.assertTrue(os.path.exists(f"/proc/{answer['pid']}"))  # by its pid out here
        self.assertEqual(os.stat(f"/proc/{answer['pid']}").st_uid, FAR_USER)


class Exec(IdentityTest):
    def test_memory_of_the_old_image_is_gone_though_the_socket_stays(self):
        daemon = self.open_native()
        client = self.puppet()
        self.assertEqual(client.ask(heap(4711)), {"ack": 0})
        client.order("exec", "/bin/sleep", "1000")
        self.assertIn("replaced by exec", self.gone(daemon, client.pid))
        self.wait_until(lambda: not self.figures(client.pid), "its book is removed")
        self.assertNotIn("python", os.readlink(f"/proc/{client.pid}/exe"))  # it lives, as another program

    def test_image_that_goes_on_keeps_its_book(self):
        daemon = self.open_native("--refresh", "20ms")
        client = self.puppet()
        self.assertEqual(client.ask(heap(4711)), {"ack": 0})
        self.assertEqual(self.puppet().ask(heap(1)), {"ack": 0})
        time.sleep(0.3)  # many looks
        self.assertEqual(self.figures(client.pid), {(None, "heap"): (4711, 1)})
        self.assertFalse([line for line in daemon.err.lines if "exec" in line])


class MemoryOfStrangers(IdentityTest):
    @needs_root
    def test_memory_that_does_not_answer_stops_nobody(self):
        self.open_native()
        files = MuteFiles()
        if files.error:
            self.skipTest(f"no FUSE: {files.error}")
        self.addCleanup(files.close)  # before memoird's end, which may wait for it
        # Pages of pointers to these lie between the random bytes and the stack that is used.
        hostile = self.puppet(env={**os.environ, **{f"FILL{i}": "" for i in range(2000)}})
        self.assertEqual(hostile.tell("mute", f"{files.folder}/mute"), "True\n")
        begin = time.monotonic()
        hostile.order("ask", 0, heap(4711))
        self.assertEqual(self.connect().ask({"ping": 1}), {"pong": 1})
        self.assertEqual(hostile.hear(), '{"ack":0}\n')
        hostile.tell("close", 0)
        self.assertEqual(self.connect().ask({"ping": 1}), {"pong": 1})
        self.assertLess(time.monotonic() - begin, crowded(5))
        self.assertFalse(files.asked.is_set())
        self.assertEqual(self.figures(hostile.pid), {(None, "heap"): (4711, 1)})

    def commands(self):
        rows = self.connect().ask({"query": {"table": "processes", "show": ["pid", "command"]}})["result"]["rows"]
        return {row["pid"]: row["command"] for row in rows}

    def test_command_line_that_cannot_be_read_is_left_out(self):
        daemon = self.open_native()
        self.wait_until(lambda: self.helpers(daemon), "memoird has a helper")
        first = self.puppet()
        first.ask(heap(1))
        self.assertIn(sys.executable + " -c", self.commands()[first.pid])
        stuck = self.helpers(daemon)
        os.kill(stuck[0], signal.SIGSTOP)
        begin = time.monotonic()
        second, third = self.puppet(), self.puppet()
        for puppet in (second, third):
            self.assertEqual(puppet.ask(heap(1)), {"ack": 0})
        self.assertLess(time.monotonic() - begin, crowded(5))
        commands = self.commands()
        self.assertIn(second.pid, commands)
        self.assertFalse(commands[second.pid])
        self.assertFalse(commands[third.pid])
        self.wait_until(lambda: stuck[0] not in self.helpers(daemon), "it is killed")

    def test_helper_that_was_killed_is_replaced(self):
        daemon = self.open_native()
        self.wait_until(lambda: self.helpers(daemon), "memoird has a helper")
        os.kill(self.helpers(daemon)[0], signal.SIGKILL)
        client = self.puppet()
        client.ask(heap(1))
        self.assertIn(sys.executable + " -c", self.commands()[client.pid])
        helper = self.helpers(daemon)[0]
        daemon.kill()
        daemon.wait()
        self.wait_until(lambda: not os.path.exists(f"/proc/{helper}/comm"), "it ends with memoird")


class Hello(IdentityTest):
    def test_reports_after_hello_are_of_the_pid_that_it_named(self):
        self.open_native()
        child = subprocess.Popen(["sleep", "1000"])
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        line = self.connect()
        self.assertEqual(line.ask(heap(1000)), {"ack": 0})
        self.assertEqual(line.ask({"hello": 1, "pid": child.pid})["pid"], child.pid)
        self.assertEqual(line.ask(heap(7)), {"ack": 0})
        self.assertEqual(self.figures(), {(None, "heap"): (1000, 1)})
        self.assertEqual(self.figures(child.pid), {(None, "heap"): (7, 1)})

    def test_hello_about_oneself_keeps_the_devices(self):
        self.open_native()
        line = self.with_device()
        self.assertEqual(line.ask({"hello": 1, "pid": os.getpid()})["pid"], os.getpid())
        self.assertEqual(line.ask({"alloc": {"device": 0, "space": "dram", "id": 1, "bytes": 9}, "ack": True}), {"ack": 0})
        self.assertEqual(self.figures(), {(0, "dram"): (9, 1)})


class WhoPays(IdentityTest):
    @needs_root
    def test_books_count_in_their_users_limits_though_connections_close(self):
        self.open_native("--books-per-user-max", "3")
        answers = []
        for _ in range(5):
            client = self.puppet(FAR_USER)
            answers.append(client.ask(heap(1)))
            client.tell("close", 0)  # the process lives on, and so does its book
        self.assertEqual([a.get("ack", a.get("error", {}).get("code")) for a in answers], [0, 0, 0, "limit", "limit"])
        self.assertIn("ack", self.puppet(NOBODY).ask(heap(1)))  # others have their own
        for _ in range(5):
            self.assertIn("ack", self.puppet().ask(heap(1)))  # and root no limit

    @needs_root
    def test_user_at_his_limit_goes_on_after_a_restart(self):
        daemon = self.open_native("--books-per-user-max", "3")
        clients = [self.puppet(FAR_USER) for _ in range(3)]
        for client in clients:
            self.assertEqual(client.ask(heap(10)), {"ack": 0})
        daemon.kill()
        daemon.wait()
        self.open_native("--books-per-user-max", "3")
        for client in clients:
            client.tell("connect", 1, self.path)
            self.assertEqual(client.ask(heap(5, id=2), number=1), {"ack": 0})
            self.assertEqual(self.figures(client.pid), {(None, "heap"): (15, 2)})

    def test_books_of_other_machines_count_for_their_token(self):
        tokens = self.folder / "tokens"
        secrets = ["first-token-of-some-length", "second-token-of-some-length"]
        tokens.write_text("".join(f"t{i} {hashlib.sha256(t.encode()).hexdigest()} user=0\n" for i, t in enumerate(secrets)))
        tokens.chmod(0o600)
        daemon = self.native("--books-per-user-max", "3", "--tcp", "127.0.0.1:0", "--token-file", tokens)
        address = ("127.0.0.1", int(daemon.err.wait(r"port \d+").rpartition("port ")[2].split()[0]))

        def enter(secret):
            line = self.connect(address)
            line.ask({"hello": 1, "token": secret, "host": "far"})
            answer = line.ask(heap(1))
            line.close()
            return answer.get("ack", answer.get("error", {}).get("code"))

        self.assertEqual([enter(secrets[0]) for _ in range(5)], [0, 0, 0, "limit", "limit"])
        self.assertEqual(enter(secrets[1]), 0)
