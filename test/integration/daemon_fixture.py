"""A memoird of its own for each test, and clients that report to it.

Everything lives in a private folder in /dev/shm (books must be in memory) and one for state. Tests wait
for lines of the log, which is how a person would see it.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from stage import build_root

BUILD = build_root()
SANITIZED = bool(os.environ.get("MEMOIR_SANITIZED"))
MEMOIRD = BUILD / "src/daemon/memoird"
CLIENT = BUILD / "test/integration/client"
NOBODY = 65534
PATIENCE_S = 180 if SANITIZED else 60  # a limit for a broken program, never a wait


def is_whole_root():
    """Root as a machine has it, not as a container does, who may neither mount nor look into other users' processes."""
    sys_ptrace, sys_admin, sys_nice = 19, 21, 23  # linux/capability.h
    with open("/proc/self/status", encoding="ascii") as status:
        rights = next(int(line.split()[1], 16) for line in status if line.startswith("CapEff:"))
    return os.geteuid() == 0 and all(rights >> n & 1 for n in (sys_ptrace, sys_admin, sys_nice))


def needs_root(test):
    return unittest.skipUnless(is_whole_root(), "needs root with all its rights")(test)


def crowded(seconds):
    """A limit for what takes no longer than that where the machine is ours: longer by as much as others share it now."""
    with open("/proc/loadavg", encoding="ascii") as file:
        words = file.read().split()
    wanting = max(float(words[0]), int(words[3].split("/")[0]))
    return seconds * max(1, wanting / len(os.sched_getaffinity(0)))


def as_user(uid):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]


def with_descriptors(n):
    """A prefix for a program that has no more than these: root could go beyond what it is given."""
    bound = ["setpriv", "--bounding-set=-sys_resource"] if os.geteuid() == 0 else []
    return [*bound, "prlimit", f"--nofile={n}:{n}"]


class Lines:
    """Lines of a stream, as they come."""

    def __init__(self, stream):
        self.stream = stream
        self.lines = []
        self.times = []
        self.ended = False
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.stream:
            with self.changed:
                self.times.append(time.monotonic())
                self.lines.append(line.rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def wait(self, pattern, count=1, after=0):
        """The `count`-th line that matches, looked for from line number `after` on."""
        regex = re.compile(pattern)

        def found():
            hits = [line for line in self.lines[after:] if regex.search(line)]
            return hits[count - 1] if len(hits) >= count else None

        with self.changed:
            if self.changed.wait_for(lambda: found() or self.ended, PATIENCE_S) and found():
                return found()
        raise AssertionError(f"no line matches {pattern!r} ({count} of them) in:\n" + "\n".join(self.lines))

    def wait_end(self):
        self.thread.join(PATIENCE_S)
        return self.lines


class Process:
    """A program whose output is read while it runs."""

    def __init__(self, command, **options):
        options.setdefault("stdin", subprocess.PIPE)
        self.popen = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True, errors="replace", **options)
        self.out = Lines(self.popen.stdout)
        self.err = Lines(self.popen.stderr)
        self.pid = self.popen.pid

    def kill(self, number=signal.SIGKILL):
        self.popen.send_signal(number)

    def wait(self):
        status = self.popen.wait(PATIENCE_S)
        self.out.wait_end()
        self.err.wait_end()
        return status

    def close(self):
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait(PATIENCE_S)
        for stream in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if stream:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass


class Client(Process):
    """test/integration/client; waits until it is ready."""

    def __init__(self, books, *arguments, prefix=(), program=CLIENT, ready=True, settings=None, **options):
        environment = dict(os.environ, MEMOIR_DIR=str(books), LD_LIBRARY_PATH=str(BUILD.resolve() / "src/client"),
                           **(settings or {}))
        super().__init__([*prefix, program, *arguments], env=environment, **options)
        if ready:
            self.pid = int(self.out.wait(r"^ready \d+$").split()[1])

    def go_on(self):
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()


class DaemonTest(unittest.TestCase):
    def setUp(self):
        self.books = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, self.books, True)
        self.books.chmod(0o1777)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.folder.chmod(0o755)
        self.state = self.folder / "state"

    def spawn(self, *flags, prefix=(), **options):
        """memoird with these flags alone."""
        process = Process([*prefix, MEMOIRD, *flags], **options)
        self.addCleanup(process.close)
        return process

    def daemon(self, *flags, ready=True, **options):
        # The usual sockets are one each for the whole machine, so tests have none unless they name one.
        quiet = [word for key in ("--socket", "--tt-socket") if key not in flags for word in (key, "none")]
        process = self.spawn("--dir", self.books, "--state", self.state, *quiet, *flags, **options)
        if ready:
            process.err.wait(r"\bready: watching")
        return process

    def client(self, *arguments, **options):
        client = Client(self.books, *arguments, **options)
        self.addCleanup(client.close)
        return client

    def run_memoird(self, *flags):
        return subprocess.run([str(MEMOIRD), *map(str, flags)], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)

    def book_files(self):
        return sorted(self.books.glob("*/*.book"))

    def retired(self):
        path = self.state / "retired.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def gone(self, daemon, pid, count=1):
        """What the line about that process says after the level."""
        line = daemon.err.wait(rf"\bPID {pid} \(.* gone: ", count)
        return line.split(" info: ", 1)[1]

    def wait_until(self, condition, what):
        """For what no event tells of; polls, and fails with `what`."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"never: {what}")
            time.sleep(0.005)

    def let_look(self, daemon, seconds):
        """Time for what it does at intervals: that long, and until it rested as often as it does in some of them."""

        def rests():
            with open(f"/proc/{daemon.pid}/status", encoding="ascii") as status:
                return next(int(line.split()[1]) for line in status if line.startswith("voluntary_ctxt_switches:"))

        enough = rests() + 6
        time.sleep(seconds)
        self.wait_until(lambda: rests() >= enough, "it rests between looks")

    def watched(self, daemon, pid):
        """Wait until the daemon (at log level debug) watches that process."""
        daemon.err.wait(rf"watching PID {pid} ")
