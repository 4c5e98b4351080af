"""What root's memoird does for a user with rights that the user lacks: nothing, whatever the user's books say."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

from api_support import ApiTest
from daemon_fixture import BUILD, NOBODY, PATIENCE_S, Process, as_user, needs_root
from mute_files import MuteFiles

FORGE = BUILD / "test/integration/forge_claim"
FIXTURE = BUILD / "test/unit/libfixture_a.so"
VICTIM = 65533
WORKER = 2147483646  # symbol_confine.c: a user that has nothing else
LODGER = 165533  # has no account, only a place in a user namespace of the victim's
SETUID, SETGID = 6, 7  # linux/capability.h

# In a user namespace that the caller makes: wait for its map of users, become its user 0, start a program.
LODGE = """
import ctypes, os, sys
assert ctypes.CDLL(None, use_errno=True).unshare(0x10000000) == 0
print("made", flush=True)
sys.stdin.readline()
os.setresgid(0, 0, 0)
os.setresuid(0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def start_ticks(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[19])


def status(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


@needs_root
class TrustTest(ApiTest):
    def setUp(self):
        super().setUp()
        self.place = self.books / str(NOBODY)
        self.place.mkdir(mode=0o700)
        os.chown(self.place, NOBODY, NOBODY)
        self.pid_ns = os.stat("/proc/self/ns/pid").st_ino

    def api(self, *flags, **options):
        daemon = super().api(*flags, **options)
        os.chmod(self.http, 0o666)
        return daemon

    def start(self, *command):
        process = Process(command)
        self.addCleanup(process.close)
        return process

    def forge(self, *words, program=FORGE):
        process = self.start(*as_user(NOBODY), program, "book", self.place, *words)
        process.out.wait(r"^ready \d+$")
        return process

    def claim(self, daemon, pid):
        """A book of nobody's about that process, once memoird has looked at it."""
        self.forge(pid, start_ticks(pid), self.pid_ns)
        daemon.err.wait(rf"(watching PID {pid} |/{pid}-1-2-\w+\.book' is ignored: )")


class Memory(TrustTest):
    def ages(self, pid, status_wanted):
        return self.as_other(NOBODY, f"/processes/{pid}/ages?source=heap", status_wanted)

    def refused(self, pid, status_wanted):
        """Nothing is done for nobody that reads the process's memory or mappings, or stops it."""
        self.ages(pid, status_wanted)
        self.as_other(NOBODY, f"/processes/{pid}/explain", 403)
        self.as_other(NOBODY, f"/processes/{pid}/scan", status_wanted, method="POST", body={})

    def sleeper(self, *prefix, program="/bin/sleep"):
        process = self.start(*prefix, program, "1000")
        self.wait_until(lambda: os.readlink(f"/proc/{process.pid}/exe") == os.path.realpath(program), "it calls exec")
        return process.pid

    def test_a_user_sees_the_ages_of_a_plain_process(self):
        daemon = self.api("--log-level=debug")
        pid = self.sleeper(*as_user(NOBODY))
        self.claim(daemon, pid)
        self.assertGreater(self.ages(pid, 200)["searched"], 0)
        daemon.err.wait(rf"broker: memory of PID {pid} for uid {NOBODY}: done")

    def test_a_user_sees_the_ages_of_a_process_in_a_user_namespace_of_its_own(self):
        if subprocess.run([*as_user(NOBODY), "unshare", "-r", "true"], capture_output=True, check=False).returncode:
            self.skipTest("no user namespaces here")
        daemon = self.api("--log-level=debug")
        pid = self.sleeper(*as_user(NOBODY), "unshare", "-r")
        self.assertNotEqual(int(status(pid)["CapPrm"], 16), 0)  # in that namespace
        self.claim(daemon, pid)
        self.assertGreater(self.ages(pid, 200)["searched"], 0)

    def test_memory_of_a_set_uid_process_is_not_searched(self):
        daemon = self.api("--log-level=debug")
        program = self.folder / "sleep"
        shutil.copy("/bin/sleep", program)
        program.chmod(0o4755)  # owned by root
        pid = self.sleeper(*as_user(NOBODY), program=str(program))
        self.assertEqual(status(pid)["Uid"].split()[:2], [str(NOBODY), "0"])
        self.claim(daemon, pid)
        self.refused(pid, 404)

    def test_memory_of_a_set_gid_process_is_not_searched(self):
        daemon = self.api("--log-level=debug")
        program = self.folder / "sleep"
        shutil.copy("/bin/sleep", program)
        program.chmod(0o2755)
        pid = self.sleeper(*as_user(NOBODY), program=str(program))
        self.assertEqual(status(pid)["Gid"].split()[:2], [str(NOBODY), "0"])
        self.claim(daemon, pid)
        self.refused(pid, 403)

    def test_memory_of_a_process_with_capabilities_is_not_searched(self):
        daemon = self.api("--log-level=debug")
        pid = self.sleeper(*as_user(NOBODY), "--inh-caps=+net_raw", "--ambient-caps=+net_raw")
        self.assertNotEqual(int(status(pid)["CapPrm"], 16), 0)
        self.claim(daemon, pid)
        self.refused(pid, 403)

    def test_memory_of_a_process_that_is_not_dumpable_is_not_searched(self):
        daemon = self.api("--log-level=debug")
        script = "import ctypes, time; ctypes.CDLL(None).prctl(4, 0); print('hidden', flush=True); time.sleep(1000)"
        process = self.start(*as_user(NOBODY), sys.executable, "-c", script)
        process.out.wait("^hidden$")
        self.claim(daemon, process.pid)
        self.refused(process.pid, 403)


class Files(TrustTest):
    def test_a_file_system_that_does_not_answer_holds_nobody_up(self):
        """A mapped file that looks like a book, of another mount namespace: it is looked at only where no server can be asked."""
        files = MuteFiles("4711-1-2-0123456789abcdef.book")
        if files.error:
            self.skipTest(f"no FUSE: {files.error}")
        script = ("import mmap, os, sys, time\nf = os.open(sys.argv[1], os.O_RDONLY)\nm = mmap.mmap(f, 65536, mmap.MAP_SHARED, mmap.PROT_READ)\n"
                  "print('mapped', flush=True)\ntime.sleep(1000)\n")
        hostile = self.start("unshare", "--mount", "--propagation=unchanged", *as_user(NOBODY), "/usr/bin/python3", "-c", script, files.folder / files.name)
        self.addCleanup(files.close)  # before the process, whose end waits for it
        hostile.out.wait("^mapped$")
        files.mute_all = True
        done = subprocess.run([BUILD / "src/cli/memoir", "ps", "--all", "--json"], capture_output=True, text=True, timeout=PATIENCE_S / 2, check=False)
        self.assertIn("memoir.", done.stdout, done.stderr)
        self.assertFalse(files.asked.is_set())


    def test_a_directory_for_books_with_a_file_system_over_it_is_left_alone(self):
        files = MuteFiles("4711-1-2-0123456789abcdef.book", self.place)
        if files.error:
            self.skipTest(f"no FUSE: {files.error}")
        self.addCleanup(files.close)
        files.mute_all = True
        self.api()
        self.assertIsInstance(self.rows("/processes", limit=1), list)
        self.assertFalse(files.asked.is_set())


class Names(TrustTest):
    def place_in(self, file, function):
        """The build-id of a file, and an address inside of a function, in hexadecimal."""
        notes = subprocess.run(["readelf", "-n", file], capture_output=True, text=True, check=True).stdout
        symbols = subprocess.run(["nm", file], capture_output=True, text=True, check=True).stdout
        address = int(re.search(rf"^(\w+) T {function}$", symbols, re.M)[1], 16)
        return re.search(r"Build ID: (\w+)", notes)[1], f"{address + 1:x}"

    def library(self, folder, mode):
        """A copy of the fixture, older than any process that claims to run it."""
        folder.mkdir(exist_ok=True)
        path = folder / f"lib{mode:o}.so"
        shutil.copy(FIXTURE, path)
        path.chmod(mode)
        return path

    def names(self, path, program=FORGE, function="fixture_outer"):
        """What nobody is told about a call site of its own process, which says to lie in that file."""
        process = self.forge(0, 0, self.pid_ns, path, *self.place_in(path, function), program=program)
        self.eventually(lambda: self.rows("/accounts", by="pid", where=f"pid={process.pid}"), bool, "it is watched")
        return str(self.as_other(NOBODY, f"/processes/{process.pid}/sites")["rows"])

    def test_names_come_from_files_that_the_owner_can_reach(self):
        self.api()
        opened = self.library(self.folder / "open", 0o755)
        self.assertIn("fixture_", self.names(opened))

    def test_no_names_from_a_file_in_a_directory_that_the_owner_cannot_enter(self):
        self.api()
        secret = self.library(self.folder / "home", 0o755)
        secret.parent.chmod(0o700)
        self.assertNotIn("fixture_", self.names(secret))
        link = self.folder / "link.so"
        link.symlink_to(secret)
        self.assertNotIn("fixture_", self.names(link))

    def test_no_names_from_a_file_that_the_owner_may_only_execute(self):
        self.api()
        self.assertNotIn("fixture_", self.names(self.library(self.folder / "open", 0o711)))

    def test_names_come_from_the_program_that_runs(self):
        self.api()
        program = self.folder / "forge"
        shutil.copy(FORGE, program)
        self.assertIn("'function': 'main'", self.names(program, program, "main"))

    def test_no_names_from_a_program_that_the_owner_may_only_execute(self):
        self.api()
        program = self.folder / "forge"
        shutil.copy(FORGE, program)
        program.chmod(0o711)
        self.assertNotIn("'function': 'main'", self.names(program, program, "main"))

    def test_a_lodger_in_a_namespace_does_not_get_the_rights_of_its_maker(self):
        """Sub-uids run what the maker does not trust: containers. They must not act as the maker outside."""
        if subprocess.run([*as_user(VICTIM), "unshare", "-U", "true"], capture_output=True, check=False).returncode:
            self.skipTest("no user namespaces here")
        self.api()
        secret = self.library(self.folder / "home", 0o755)
        os.chown(secret.parent, VICTIM, VICTIM)
        secret.parent.chmod(0o700)
        place = self.books / str(LODGER)
        place.mkdir(mode=0o700)
        os.chown(place, LODGER, LODGER)
        process = self.start(*as_user(VICTIM), sys.executable, "-c", LODGE, FORGE, "book", place, 0, 0,
                             self.pid_ns, secret, *self.place_in(secret, "fixture_outer"))
        process.out.wait("^made$")
        for name in ("uid_map", "gid_map"):
            pathlib.Path(f"/proc/{process.pid}/{name}").write_text(f"0 {LODGER} 1", encoding="ascii")
        process.popen.stdin.write("\n")
        process.popen.stdin.flush()
        process.out.wait(r"^ready \d+$")
        self.assertEqual(status(process.pid)["Uid"].split()[0], str(LODGER))
        self.eventually(lambda: self.rows("/accounts", by="pid", where=f"pid={process.pid}"), bool, "it is watched")
        self.assertNotIn("fixture_", str(self.as_other(LODGER, f"/processes/{process.pid}/sites")["rows"]))
        # Root sees all, and its answers are not kept for others.
        self.assertIn("fixture_", str(self.get(f"/processes/{process.pid}/sites")["rows"]))
        self.assertNotIn("fixture_", str(self.as_other(LODGER, f"/processes/{process.pid}/sites")["rows"]))

    def unit_capabilities(self):
        root = pathlib.Path(os.environ.get("MEMOIR_SOURCE_ROOT") or pathlib.Path(__file__).parents[2])
        unit = (root / "src/daemon/memoird.service.in").read_text(encoding="utf-8")
        names = re.search(r"^CapabilityBoundingSet=(.*)$", unit, re.M).group(1).split()
        return "-all," + ",".join("+" + name.removeprefix("CAP_").lower() for name in names)

    def family(self, pid):
        """All descendants of a process: {pid: comm}."""
        found, parents = {}, {pid}
        while parents:
            children = set()
            for entry in os.listdir("/proc"):
                try:
                    facts = status(entry) if entry.isdigit() else {}
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if int(facts.get("PPid", 0)) in parents:
                    children.add(int(entry))
                    found[int(entry)] = facts["Name"]
            parents = children
        return found

    def test_with_the_capabilities_of_the_unit_the_worker_has_a_user_of_its_own_and_memoird_no_other(self):
        """Exactly the unit's bounding set, and no new privileges."""
        prefix = ["setpriv", f"--bounding-set={self.unit_capabilities()}", "--inh-caps=-all", "--no-new-privs"]
        daemon = self.api(prefix=prefix)
        opened = self.library(self.folder / "open", 0o755)
        self.names(opened)
        family = self.family(daemon.pid)
        workers = [pid for pid, name in family.items() if name == "memoir-symbols"]
        self.assertEqual(len(workers), 1, family)
        worker = status(workers[0])
        self.assertEqual(worker["Uid"].split(), [str(WORKER)] * 4)
        self.assertEqual(worker["Gid"].split(), [str(WORKER)] * 4)
        # Nobody's processes cannot stop it.
        kill = [*as_user(NOBODY), "kill", "-STOP", str(workers[0])]
        self.assertNotEqual(subprocess.run(kill, capture_output=True, check=False).returncode, 0)
        self.assertEqual(worker["Groups"].strip(), "")
        for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            self.assertEqual(int(worker[name], 16), 0, name)
        self.assertEqual((worker["Seccomp"], worker["NoNewPrivs"]), ("2", "1"))
        self.assertEqual(os.listdir(f"/proc/{workers[0]}/fd").__len__(), 4)  # /dev/null three times, and its socket
        setters = 1 << SETUID | 1 << SETGID
        for name in ("CapPrm", "CapEff", "CapInh"):
            self.assertEqual(int(status(daemon.pid)[name], 16) & setters, 0, name)
        brokers = [pid for pid, name in family.items() if name == "memoir-broker"]
        self.assertEqual(len(brokers), 1, family)
        self.assertEqual(int(status(brokers[0])["CapPrm"], 16), setters)

    def test_without_the_right_to_change_the_user_nothing_is_named(self):
        prefix = ["setpriv", "--bounding-set=-setuid,-setgid", "--inh-caps=-all"]
        daemon = self.api(prefix=prefix)
        daemon.err.wait("cannot act as other users: CAP_SETUID and CAP_SETGID are missing")
        self.assertNotIn("fixture_", self.names(self.library(self.folder / "open", 0o755)))
        self.assertNotIn("memoir-symbols", self.family(daemon.pid).values())


class Pids(TrustTest):
    def test_a_book_written_before_its_pid_was_in_use_is_not_another_users(self):
        daemon = self.api("--log-level=debug")
        for _ in range(20):
            gone = subprocess.Popen(["true"])
            gone.wait()
            pid, seen = gone.pid, len(daemon.err.lines)
            forged = self.forge(pid, 0, 0)
            daemon.err.wait(rf"watching PID \d+ .*/{pid}-1-2-", after=seen)
            victim = self.start(FORGE, "at", pid, VICTIM)
            if victim.out.wait(r"^(ready|taken) \d+$").startswith("ready"):
                break
            forged.close()
            victim.close()
        else:
            self.skipTest("other processes took the PID")
        self.as_other(VICTIM, f"/processes/{pid}/sites", 404)
        self.as_other(NOBODY, f"/processes/{pid}/sites", 404)
        self.assertEqual(self.rows("/accounts", by="pid", where=f"pid={pid}"), [])


if __name__ == "__main__":
    unittest.main()
