"""memoird in the sandbox of its shipped unit: the capabilities, the list of system calls and the other restrictions."""

import os
import signal
import subprocess
import unittest

import test_api_track
import test_exits
import test_leaks_daemon
import test_trace_api
import test_trust
import unit_sandbox
from daemon_fixture import NOBODY, as_user
from observe_support import environment

REASON = unit_sandbox.why_not()
MIB = 1 << 20


@unittest.skipIf(REASON, REASON)
class Sandbox(test_trust.TrustTest):
    library, place_in, names = test_trust.Names.library, test_trust.Names.place_in, test_trust.Names.names
    family = test_trust.Names.family

    def boxed(self, *flags, **options):
        return self.api("--log-level=debug", *flags, prefix=unit_sandbox.prefix(), **options)

    def test_the_filter_refuses_what_the_unit_does(self):
        """Else the tests below would show nothing."""
        def run(*command):
            return subprocess.run([*unit_sandbox.prefix(), *command], capture_output=True, text=True, check=False)

        self.assertEqual(run("/bin/true").returncode, 0)
        self.assertNotEqual(run("/usr/bin/unshare", "--mount", "/bin/true").returncode, 0)  # RestrictNamespaces
        told = run("/usr/bin/python3", "-c", "import ctypes, mmap, os, socket\n"
                   "def refused(f):\n"
                   "    try: f()\n"
                   "    except OSError as e: return e.errno\n"
                   "c = ctypes.CDLL(None, use_errno=True)\n"
                   "print(refused(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)),\n"
                   "      refused(lambda: mmap.mmap(-1, 4096, prot=6)), refused(lambda: os.chmod('/tmp', 0o4777)),\n"
                   "      c.adjtimex(ctypes.create_string_buffer(512)), ctypes.get_errno())\n")  # not in the list
        self.assertEqual(told.stdout.split(), ["97", "1", "1", "-1", "1"], told.stderr)
        self.assertEqual(run("/bin/sh", "-c", "umask").stdout, "0077\n")

    def test_files_are_opened_and_memory_is_read_as_the_user(self):
        daemon = self.boxed()
        self.assertIn("fixture_", self.names(self.library(self.folder / "open", 0o755)))
        self.assertIn("memoir-symbols", self.family(daemon.pid).values())
        process = self.start(*as_user(NOBODY), "/bin/sleep", "1000")
        self.wait_until(lambda: os.readlink(f"/proc/{process.pid}/exe").endswith("/sleep"), "it calls exec")
        self.claim(daemon, process.pid)
        self.assertGreater(self.as_other(NOBODY, f"/processes/{process.pid}/ages?source=heap", 200)["searched"], 0)
        self.assertGreater(self.get(f"/processes/{os.getpid()}/explain")["rss"], 0)
        self.assertFalse([line for line in daemon.err.lines if " warn: " in line or " error: " in line])

    def test_exits_are_seen(self):
        if test_exits.why_not():
            self.skipTest(test_exits.why_not())
        self.boxed("--exits=yes")
        self.assertEqual(self.get("/self")["exits"]["state"], "on")
        ended = subprocess.Popen(["/bin/sh", "-c", "exit 7"])
        ended.wait()
        self.eventually(lambda: self.rows("/exited", where=f"pid={ended.pid}"), bool, "its end is told")


class Boxed:
    def api(self, *flags, **options):
        return super().api(*flags, **{"prefix": unit_sandbox.prefix(), **options})


@unittest.skipIf(REASON, REASON)
class Memory(Boxed, test_trust.Memory):
    """What users cannot make root's memoird read, with exactly the rights that the unit gives it."""


@unittest.skipIf(REASON, REASON)
class Names(Boxed, test_trust.Names):
    pass


@unittest.skipIf(REASON, REASON)
class Tracked(Boxed, test_api_track.TrackedTest):
    """Scans stop a process by ptrace(), others read its memory."""


@unittest.skipIf(REASON, REASON)
class Growing(test_leaks_daemon.UntrackedTest):
    """The watch over processes that keep no book explains those of users with the rights of the user, those of root itself."""
    test_growth_of_others_is_not_told = test_one_user_leaves_places_to_others = test_it_can_be_turned_off = None
    test_what_grows_is_named_and_what_the_kernel_can_take_back_is_not_told = None

    def native(self, *flags, **options):
        return super().native(*flags, **{"prefix": unit_sandbox.prefix(), **options})

    def test_growth_of_root_and_of_a_user_is_named(self):
        self.native("--leaks-untracked", "4s")
        os.chmod(self.folder, 0o777)
        pids = {self.start("malloc"), self.start("malloc", prefix=as_user(NOBODY))}
        line = self.connect()
        self.wait_until(lambda: pids <= set(self.rows(line)), "both grow")
        self.assertEqual({row["site"] for pid, row in self.rows(line).items() if pid in pids}, {"malloc heap"})


@unittest.skipIf(REASON, REASON)
class Pids(Boxed, test_trust.Pids):
    pass


@unittest.skipIf(REASON, REASON)
class Tracing(test_trace_api.TraceTest):
    def test_cuda_programs_are_traced(self):
        self.tracing(prefix=unit_sandbox.prefix())
        drive = self.drive()
        drive.ok("alloc", 5 * MIB)
        row = self.traced(drive.pid, lambda row: row["spaces"]["dram"]["bytes"] == 5 * MIB)
        self.assertEqual(row["lost"]["events"], 0)

    def test_elf_files_of_users_are_parsed_without_rights(self):
        """The observer has the rights of root; a child of it reads nothing itself and may do nothing."""
        daemon = self.tracing(prefix=unit_sandbox.prefix())
        drive = self.drive()
        drive.ok("alloc", 5 * MIB)
        self.traced(drive.pid, lambda row: row["spaces"]["dram"]["bytes"] == 5 * MIB)
        parsers = self.parsers(daemon)
        self.assertEqual(len(parsers), 1)
        self.unprivileged(parsers[0])

    def parsers(self, daemon):
        """Those that run: one that was killed is waited for when another one is needed."""
        return [pid for pid, name in test_trust.Names.family(self, daemon.pid).items()
                if name == "memoir-parse" and not test_trust.status(pid)["State"].startswith("Z")]

    def unprivileged(self, pid):
        rights = test_trust.status(pid)
        for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            self.assertEqual(int(rights[name], 16), 0, name)
        self.assertEqual((rights["Seccomp"], rights["NoNewPrivs"]), ("2", "1"))
        self.assertEqual(sorted(os.listdir(f"/proc/{pid}/fd")), ["0", "1", "2"])

    def test_python_calls_of_users_are_named_by_the_parser(self):
        """Objects of the interpreter are the user's bytes. A parser that is killed costs neither the observer nor later names."""
        daemon = self.tracing(prefix=unit_sandbox.prefix())
        script = self.folder / "train.py"
        script.write_text(PYTHON_PROGRAM, encoding="utf-8")
        script.chmod(0o644)
        program = subprocess.Popen([*as_user(NOBODY), "/usr/bin/python3", script], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True, env=environment(self.folder))
        self.addCleanup(program.communicate)
        self.addCleanup(program.kill)
        observer = self.observer_pid(daemon)

        def called(name):
            """Calls a function of the program, and returns whether a stack names it; the first ones may come before the interpreter is known."""
            self.assertEqual(program.stdout.readline(), "ready\n")
            program.stdin.write(f"{name}\n")
            program.stdin.flush()
            sites = self.get(f"/processes/{program.pid}/trace")["sites"]
            return any(f"in {name}" in " ".join(site["stack"]) for site in sites)

        for name in ("load_weights", "load_more", "load_most"):
            self.wait_until(lambda: called(name), f"the line in {name}")
            parsers = self.parsers(daemon)
            if name == "load_weights":
                self.assertEqual(len(parsers), 2)  # of files, and of this user's memory
            self.assertTrue(parsers)
            for pid in parsers:
                self.unprivileged(pid)
                os.kill(pid, signal.SIGKILL)
            # One that dies over a question would be the process's fault.
            self.wait_until(lambda: not set(parsers) & set(self.parsers(daemon)), "they end")
        self.assertEqual(self.observer_pid(daemon), observer)


PYTHON_PROGRAM = """
import ctypes, sys
c = ctypes.CDLL('libcuda.so.1')
c.cuInit(0)
context = ctypes.c_void_p()
c.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
c.cuCtxSetCurrent(context)
def allocate():
    c.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(1 << 20))
def load_weights():
    allocate()
def load_more():
    allocate()
def load_most():
    allocate()
while True:
    print('ready', flush=True)
    globals()[sys.stdin.readline().strip()]()
"""


if __name__ == "__main__":
    unittest.main()
