"""How processes ended: what the kernel tells memoird, what it keeps, and what `memoir exited` shows.

Every process here is of a program with a name of its own, so that the others of the machine do not matter.
"""

import functools
import itertools
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import unittest

from daemon_fixture import BUILD, MEMOIRD, NOBODY, DaemonTest, Process, as_user

MEMOIR = BUILD / "src/cli/memoir"
PROGRAM = BUILD / "test/integration/exits_client"
NAMES = itertools.count()
PAGE = resource.getpagesize()
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "XDG_RUNTIME_DIR"} | {"TZ": "UTC"}


@functools.cache
def why_not():
    """Why exits cannot be seen here; None: they can."""
    if os.geteuid() != 0:
        return "not root"
    with tempfile.TemporaryDirectory(prefix="memoir-test-", dir="/dev/shm") as folder:
        daemon = Process([MEMOIRD, "--dir", folder, "--state", f"{folder}/state", "--socket=none", "--tt-socket=none",
                          "--exits=yes"])
        daemon.err.wait(r"\bready: watching")
        daemon.kill(signal.SIGTERM)
        daemon.wait()
        lines = [line for line in daemon.err.lines if "only processes that keep a book" in line]
        daemon.close()
    return lines[0] if lines else None


# Where fields of the header of exits.ring are, and how they are stored (src/query/exit_file.h).
HEADER = {"state": (20, "<I"), "since_ns": (24, "<Q"), "last_ns": (64, "<Q"), "gap_from_ns": (72, "<Q"),
          "gap_to_ns": (80, "<Q"), "lost": (48, "<Q")}


def header(path, field):
    at, form = HEADER[field]
    return struct.unpack_from(form, path.read_bytes(), at)[0]


def ask(path, where):
    """The daemon's answer about its process table, as it is written."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(60)
        s.connect(str(path))
        s.sendall(json.dumps({"query": {"table": "host", "where": where, "show": "program"}}).encode() + b"\n")
        return s.makefile(encoding="utf-8").readline()


def works(*command):
    return subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0


class ExitsTest(DaemonTest):
    """With a daemon that sees exits, or skipped."""

    def setUp(self):
        if why_not():
            self.skipTest(why_not())
        super().setUp()
        self.names = []

    def name(self):
        self.names.append(f"mx{os.getpid()}-{next(NAMES)}")
        return self.names[-1]

    def watch(self, *flags, **options):
        return self.daemon("--exits=yes", "--log-level=debug", *flags, **options)

    def end(self, *arguments, prefix=(), name=None, **options):
        """Run exits_client to its end; its name, and what subprocess says."""
        name = name or self.name()
        done = subprocess.run([*prefix, self.program(name), *map(str, arguments)], capture_output=True, text=True,
                              check=False, **options)
        return name, done

    def program(self, name):
        """exits_client under that name."""
        path = self.folder / name
        if not path.exists():
            shutil.copy(PROGRAM, path)
        return path

    def exited(self, *arguments, source=None, prefix=(), check=True):
        """Rows of `memoir exited --json`."""
        done = subprocess.run([*prefix, MEMOIR, "exited", "--json", *map(str, source or ("--state", self.state)),
                               *map(str, arguments)], capture_output=True, text=True, env=ENVIRONMENT, check=False)
        if check:
            self.assertIn(done.returncode, (0, 3), done.stderr)
        return json.loads(done.stdout)["rows"]

    def rows(self, name, count, **options):
        """The rows of that name, once they are there. Others may end at any rate: if they pushed ours out before we
        looked, or memoird did not come to read, there is nothing to be learnt."""
        found = []

        def there():
            found[:] = self.exited("--program", name, **options)
            if len(found) >= count:
                return True
            if header(self.state / "exits.ring", "lost"):
                self.skipTest("more processes ended at once than the kernel's ring holds")
            summed = self.exited("--program", name, "--by", "summed", **options)
            if any(row["summed"] for row in summed):
                self.skipTest("so many processes ended meanwhile that ours are only in the sums")
            return False

        self.wait_until(there, f"{name} is among those that ended")
        self.assertEqual(len(found), count, found)
        return found

    def row(self, name, **options):
        return self.rows(name, 1, **options)[0]

    def seen(self, name, count):
        """Wait until so many of that name were seen, one by one or in sums."""

        def number():
            return sum(row["processes"] for row in self.exited("--program", name, "--by", "program"))

        def there():
            if header(self.state / "exits.ring", "lost"):
                self.skipTest("more processes ended at once than the kernel's ring holds")
            return number() >= count

        self.wait_until(there, f"{count} of {name} are seen")
        self.assertEqual(number(), count)


class Causes(ExitsTest):
    def test_code_and_what_else_is_known(self):
        self.watch()
        name, done = self.end("code", 3)
        self.assertEqual(done.returncode, 3)
        row = self.row(name)
        self.assertEqual((row["cause"], row["kind"], row["exit_code"], row["signal"]), ("exited with 3", "code", 3, None))
        self.assertEqual((row["uid"], row["parent"], row["has_book"], row["core"]), (0, os.getpid(), False, False))
        self.assertEqual((row["heap"], row["device"]), (None, None))
        self.assertGreater(row["peak_rss"], 0)
        self.assertTrue(row["cgroup"].startswith("/"), row["cgroup"])
        self.assertGreaterEqual(row["ended"], row["start"])

    def test_signal(self):
        self.watch()
        for number, words in ((signal.SIGKILL, "killed by SIGKILL"), (signal.SIGTERM, "killed by SIGTERM"),
                              (36, "killed by SIGRTMIN+2")):
            name, done = self.end("signal", int(number))
            self.assertEqual(done.returncode, -number)
            row = self.row(name)
            self.assertEqual((row["cause"], row["kind"], row["signal"], row["exit_code"]),
                             (words, "signal", int(number), None))

    def test_core_dump(self):
        self.watch()
        with tempfile.TemporaryDirectory() as folder:
            unlimited = lambda: resource.setrlimit(resource.RLIMIT_CORE, (64 << 20, 64 << 20))  # noqa: E731
            name = self.name()
            child = subprocess.Popen([self.program(name), "signal", "11"], cwd=folder, preexec_fn=unlimited)
            _, status = os.waitpid(child.pid, 0)
            child.returncode = status
            row = self.row(name)
        self.assertEqual(row["core"], os.WCOREDUMP(status))
        self.assertEqual(row["cause"], "killed by SIGSEGV" + (" (core dumped)" if os.WCOREDUMP(status) else ""))
        if not os.WCOREDUMP(status):
            self.skipTest("this machine writes no core dumps")

    def test_process_whose_first_thread_ended_before_the_others(self):
        self.watch()
        name, done = self.end("threads")
        self.assertEqual(done.returncode, 5)
        row = self.row(name)
        self.assertEqual((row["cause"], row["parent"]), ("exited with 5", os.getpid()))

    def test_oom_kill_in_a_cgroup(self):
        group, procs = self.small_cgroup(32 << 20)
        self.watch()
        enter = lambda: procs.write_text(str(os.getpid()))  # noqa: E731
        name, done = self.end("eat", 512 << 20, preexec_fn=enter)
        if done.returncode != -signal.SIGKILL:
            self.skipTest("the kernel let it have more than its cgroup may")
        row = self.row(name)
        self.assertEqual((row["cause"], row["kind"], row["signal"]), ("OOM kill", "oom", 9))
        self.assertEqual(row["cgroup"], "/" + group.name)
        self.assertEqual([r["program"] for r in self.exited("--cause", "oom", "--program", name)], [name])

    def small_cgroup(self, limit):
        """A cgroup that may have so much memory, of whichever version there is."""
        name = f"memoir-test-{os.getpid()}-{next(NAMES)}"
        for top, file, swap in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
                                ("/sys/fs/cgroup", "memory.max", "memory.swap.max")):
            group = pathlib.Path(top, name)
            try:
                group.mkdir()
                self.addCleanup(group.rmdir)
                (group / file).write_text(str(limit))
            except OSError as e:
                why = e
                continue
            if (group / swap).exists():
                (group / swap).write_text("0" if file == "memory.max" else str(limit))
            return group, group / "cgroup.procs"
        self.skipTest(f"no cgroup with a memory limit can be made: {why}")


class Figures(ExitsTest):
    def test_peak_is_what_the_process_itself_was_told(self):
        self.watch()
        name, done = self.end("peak", 48 << 20)
        told = int(done.stdout)
        row = self.row(name)
        # Counters lag by up to 64 pages for each of three kinds and each CPU.
        slack = 3 * 64 * PAGE * os.cpu_count() + (1 << 20)
        self.assertGreater(row["peak_rss"], 48 << 20)
        self.assertLess(abs(row["peak_rss"] - told), slack)

    def test_thousands_that_lived_for_a_moment_are_all_seen(self):
        self.watch()
        name, done = self.end("crowd", 2000)
        self.assertEqual(done.returncode, 0)
        self.seen(name, 2001)  # with their parent

    def test_user_and_namespaces(self):
        namespace = ["unshare", "--pid", "--fork"]
        daemon = self.watch()
        name, done = self.end("code", 4, prefix=as_user(NOBODY))
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertEqual(self.row(name)["uid"], NOBODY)
        self.assertEqual([row["program"] for row in self.exited("--user", NOBODY, "--program", name)], [name])
        self.assertEqual(self.exited("--user", 0, "--program", name), [])
        if works(*namespace):
            name, done = self.end("code", 9, prefix=namespace)
            row = self.row(name)
            self.assertEqual((row["exit_code"], row["uid"]), (9, 0))
            self.assertGreater(row["pid"], 1)  # as it is known outside
        rootless = [*as_user(NOBODY), "unshare", "--user", "--map-root-user"]
        if works(*rootless):
            name, _ = self.end("code", 6, prefix=rootless)
            self.assertEqual(self.row(name)["uid"], NOBODY)  # who made the namespace answers for it
        self.assertIsNone(daemon.popen.poll())


class Keeping(ExitsTest):
    def test_daemon_that_is_killed_forgets_nothing(self):
        daemon = self.watch()
        name, _ = self.end("code", 1)
        before = self.row(name)
        daemon.kill()
        daemon.wait()
        self.assertEqual(self.row(name), before)
        self.watch()
        later, _ = self.end("code", 2)
        self.assertGreater(self.row(later)["sequence"], before["sequence"])
        self.assertEqual(self.row(name), before)

    def test_time_without_a_daemon_is_told(self):
        daemon = self.watch()
        before, _ = self.end("code", 1)
        self.row(before)
        daemon.kill(signal.SIGTERM)
        daemon.wait()
        path = self.state / "exits.ring"
        self.assertEqual((header(path, "state"), header(path, "gap_to_ns")), (0, 0))
        with open(path, "r+b") as file:  # as if it had ended an hour ago
            file.seek(HEADER["last_ns"][0])
            file.write(struct.pack("<Q", header(path, "last_ns") - 3600 * 10**9))
        self.watch()
        self.assertEqual(header(path, "gap_to_ns"), header(path, "since_ns"))
        self.assertGreater(header(path, "gap_to_ns") - header(path, "gap_from_ns"), 3600 * 10**9)
        table = subprocess.run([MEMOIR, "exited", "--state", self.state, "--program", before], capture_output=True,
                               text=True, env=ENVIRONMENT, check=True)
        self.assertRegex(table.stderr, r"no watcher from [\d -]+:\d+:\d+ to .* are missing")

    def test_script_has_its_own_name(self):
        sock = self.folder / "memoir.sock"
        self.watch("--socket", sock)
        for _ in range(5):  # the process table may be in use at the moment of an exit
            script = self.folder / f"{self.name()}.py"
            script.write_text("import sys\nprint('ready', flush=True)\nsys.stdin.read()\nsys.exit(6)\n", encoding="ascii")
            process = Process(["python3", script])
            self.addCleanup(process.close)
            process.out.wait("ready")
            self.wait_until(lambda: script.name in ask(sock, f"pid={process.pid}"), "the process table has the script")
            process.popen.stdin.close()
            process.wait()
            mine = ("--pid", process.pid, "--where", "exit_code=6")
            self.wait_until(lambda: self.exited(*mine), "its end is seen")
            program = self.exited(*mine)[0]["program"]
            if program == script.name:
                return
            self.assertEqual(program, "python3")
        self.fail("no script ended under its own name")

    def test_file_keeps_its_size(self):
        self.watch()
        self.end("code", 0)
        size = (self.state / "exits.ring").stat().st_size
        name, _ = self.end("crowd", 500)
        self.seen(name, 501)
        self.assertEqual((self.state / "exits.ring").stat().st_size, size)

    def test_process_with_a_book_is_one_row_with_both_figures(self):
        daemon = self.watch()
        client = self.client("device=D", "dram=150x170000", "ready", "wait")
        self.watched(daemon, client.pid)
        client.kill()
        self.gone(daemon, client.pid)
        rows = self.exited("--pid", client.pid, "--where", f"parent={os.getpid()}")
        self.assertEqual(len(rows), 1, rows)
        self.assertEqual((rows[0]["cause"], rows[0]["device"], rows[0]["blocks"], rows[0]["has_book"]),
                         ("killed by SIGKILL", 25500000, 150, True))
        self.assertGreater(rows[0]["peak_rss"], 0)
        record = next(r for r in self.retired() if r["pid"] == client.pid)
        self.assertEqual((record["cause"], record["peak_rss_bytes"], record["cgroup"]),
                         (rows[0]["cause"], rows[0]["peak_rss"], rows[0]["cgroup"]))
        out = subprocess.run([MEMOIR, "ps", "--exited", "--state", self.state, "--json"], capture_output=True, text=True,
                             check=True).stdout
        ps = [p for p in json.loads(out)["rows"] if p["pid"] == client.pid]
        self.assertEqual([(p["cause"], p["device"]) for p in ps], [("killed by SIGKILL", 25500000)])


class Command(ExitsTest):
    def socket(self):
        path = self.folder / "memoir.sock"
        self.watch("--socket", path, "--socket-group=all")
        return "--socket", path

    def test_other_users_ask_the_daemon(self):
        source = self.socket()
        name, _ = self.end("code", 7, prefix=as_user(NOBODY))
        row = self.row(name, source=source, prefix=as_user(NOBODY))
        self.assertEqual((row["cause"], row["user"]), ("exited with 7", "nobody"))
        self.assertEqual(row, self.row(name))  # what the files say
        name, _ = self.end("code", 8)
        own = self.row(name)
        foreign = self.exited("--where", f"pid={own['pid']} and parent={os.getpid()}", source=source, prefix=as_user(NOBODY))
        self.assertEqual([(r["user"], r["program"], r["cause"], r["exit_code"], r["peak_rss"]) for r in foreign],
                         [("root", None, None, None, own["peak_rss"])])  # figures are for all, how it ended is not

    def test_filters_and_groups(self):
        source = self.socket()
        good, _ = self.end("code", 0)
        bad, _ = self.end("code", 1, name=good)
        ugly, _ = self.end("signal", 9)
        self.rows(good, 2)
        self.row(ugly)
        for how in (source, ("--state", self.state)):
            ask = functools.partial(self.exited, "--where", f"parent={os.getpid()}", source=how)
            mine = {good, ugly}
            self.assertEqual({r["program"] for r in ask("--cause", "signal")} & mine, {ugly})
            self.assertEqual({r["program"] for r in ask("--cause", "code")} & mine, {good})
            self.assertEqual([r["exit_code"] for r in ask("--cause", "failed", "--program", bad)], [1])
            self.assertEqual(ask("--since", "2030-01-01", "--program", good), [])
            self.assertEqual(len(ask("--since", "1h", "--program", good)), 2)
            rows = self.exited("--by", "program,cause", "--program", good, source=how)
            self.assertEqual(sorted((r["cause"], r["processes"]) for r in rows),
                             [("exited with 0", 1), ("exited with 1", 1)])

    def test_follow_shows_exits_as_they_come(self):
        source = self.socket()
        for how in (source, ("--state", self.state)):
            name = self.name()
            command = Process([MEMOIR, "exited", "--follow", "--program", name, *map(str, how)])
            self.addCleanup(command.close)
            command.out.wait(r"^ *ENDED +LIVED +PROGRAM")
            self.wait_until(lambda: self.end("code", 8, name=name) and any(name in line for line in command.out.lines),
                            "an exit is shown")
            self.assertRegex(command.out.wait(name), r"root +\d+ +exited with 8 +([\d.]+ [kM]B|-)$")
            command.kill(signal.SIGTERM)

    def test_table_and_csv(self):
        self.watch()
        name, _ = self.end("code", 3)
        self.row(name)
        run = functools.partial(subprocess.run, capture_output=True, text=True, env=ENVIRONMENT, check=True)
        table = run([MEMOIR, "exited", "--state", self.state, "--program", name]).stdout
        self.assertRegex(table, r"ENDED +LIVED +PROGRAM +USER +PID +CAUSE +PEAK_RSS +HEAP +DEVICE +CGROUP")
        self.assertRegex(table, rf"{name} +root +\d+ +exited with 3 ")
        csv = run([MEMOIR, "exited", "--state", self.state, "--program", name, "--csv", "--no-header"]).stdout
        self.assertIn(f",{name},root,0,", csv)
        nothing = subprocess.run([MEMOIR, "exited", "--state", self.state, "--program", "nobody-has-this"],
                                 capture_output=True, text=True, check=False)
        self.assertEqual((nothing.returncode, nothing.stdout), (3, ""))
        self.assertIn("no process that ended is remembered", nothing.stderr)


class WithoutBpf(DaemonTest):
    """What the kernel refuses, or nobody asked for, costs nothing else."""

    def exited(self):
        return subprocess.run([MEMOIR, "exited", "--state", self.state], capture_output=True, text=True, check=False)

    @unittest.skipUnless(os.geteuid() == 0, "needs another user")
    def test_daemon_of_a_user_says_why_and_goes_on(self):
        self.state.mkdir()
        self.state.chmod(0o777)
        daemon = self.daemon("--exits=yes", prefix=as_user(NOBODY))
        why = daemon.err.wait(r"only processes that keep a book are seen when they end")
        done = self.exited()
        self.assertEqual(done.returncode, 0)
        self.assertIn("It sees only processes that keep a book: ", done.stderr)
        self.assertIn(done.stderr.rsplit("book: ", 1)[1].strip(), why)
        self.assertIsNone(daemon.popen.poll())

    def test_daemon_for_one_directory_does_not_watch_unless_told(self):
        daemon = self.daemon("--log-level=debug")
        self.assertFalse((self.state / "exits.ring").exists())
        client = self.client("device=D", "dram=1x100000", "ready", "wait")
        self.watched(daemon, client.pid)
        client.kill()
        self.gone(daemon, client.pid)
        done = self.exited()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, rf"client +\w+ +{client.pid} +killed by SIGKILL +- +- +100.0 kB")

    def test_no_daemon_was_ever_here(self):
        done = self.exited()
        self.assertEqual(done.returncode, 3)
        self.assertIn("memoird --daemon", done.stderr)
        for wrong in (["--since", "soon"], ["--where", "nosuch=1"], ["--by", "nosuch"], ["--csv", "--json"],
                      ["--cause", "love"], ["--follow", "--by", "program"]):
            done = subprocess.run([MEMOIR, "exited", "--state", self.state, *wrong], capture_output=True, check=False)
            self.assertEqual(done.returncode, 2, (wrong, done.stderr))
        gone = subprocess.run([MEMOIR, "exited", "--socket", self.folder / "none"], capture_output=True, text=True, check=False)
        self.assertEqual(gone.returncode, 3)
        self.assertIn("no server at", gone.stderr)


if __name__ == "__main__":
    unittest.main()
