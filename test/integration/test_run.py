"""memoir run: the program behaves as it would without, and its memory is told at the end."""

import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import stage

stage.build_root()
from daemon_fixture import DaemonTest  # noqa: E402
from cli_support import BUILD, ENVIRONMENT, MEMOIR, CommandTest, memoir, wait_for  # noqa: E402
from document import checked  # noqa: E402

TRACKER = BUILD / "src/track/libmemoir-track.so"
ALLOCATOR = BUILD / "src/malloc/libmemoir-malloc.so"


class RunTest(CommandTest):
    def run_it(self, *arguments, summary=True, **more):
        """`memoir run`, its books in a private folder; the result has text."""
        flags = ["--summary"] if summary else []
        command = [str(MEMOIR), "run", *flags, "--dir", str(self.dir), *map(str, arguments)]
        more.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=False, **more)

    def start_it(self, *arguments, summary=True, **more):
        command = [str(MEMOIR), "run", *(["--summary"] if summary else []), "--dir", str(self.dir), *map(str, arguments)]
        process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   stdin=subprocess.DEVNULL, **more)
        self.addCleanup(self.end_it, process)
        return process

    @staticmethod
    def end_it(process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def folder(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-run-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def books(self):
        return list(self.dir.rglob("*.book"))


@unittest.skipUnless(os.geteuid() == 0, "mounts")
class Places(RunTest):
    def test_where_no_book_can_be_made_the_summary_says_so(self):
        folder = self.folder()
        folder.chmod(0o777)
        out = folder / "out.json"
        done = self.run_it("--json", out, "true", user=65534, group=65534, extra_groups=[])  # its directory of books is root's
        self.assertEqual(done.returncode, 0)
        self.assertIn("'true' is not tracked: there is no place for its book: Permission denied", done.stderr)
        told = json.loads(out.read_text())
        self.assertEqual((told["tracked"], told["why_not"]), (False, "there is no place for its book"))

    def test_a_full_place_for_books_costs_no_figures(self):
        """Users share /run/memoir: where one has filled it, with files or with bytes, books are in the next place."""
        out = self.folder() / "out.json"
        fills = ("while touch /run/memoir/$((i=i+1)) 2>&-; do :; done", "cat /dev/zero > /run/memoir/fill 2>&-")
        for fill in fills:
            with self.subTest(fill):
                script = "mount -t tmpfs none /run; mount -t tmpfs none /dev/shm; mkdir -p /run/memoir/0 /run/user/0\n"
                script += "mount -t tmpfs -o size=1m,nr_inodes=50 none /run/memoir; mkdir -m 700 /run/memoir/0\n"
                script += f"{fill}\n{MEMOIR} run --json {out} ls / >/dev/null || exit; find /run /dev/shm -name '*.book'"
                done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, timeout=60, check=True,
                                      env={**{k: v for k, v in ENVIRONMENT.items() if k != "MEMOIR_DIR"}, "XDG_RUNTIME_DIR": "/run/user/0"})
                told = json.loads(out.read_text())
                self.assertTrue(told["tracked"], told["why_not"])
                self.assertGreater(told["heap"]["allocated_blocks"], 0)
                self.assertEqual(done.stdout, "")  # no book stays


class Ends(RunTest):
    """As it ended, so do we, with a summary or without."""

    def both(self, *command):
        results = [self.run_it(*command, summary=summary) for summary in (True, False)]
        self.assertEqual(results[0].returncode, results[1].returncode)
        self.assertEqual(results[0].stdout, results[1].stdout)
        return results[0]

    def test_exit_codes_are_the_programs(self):
        for code in (0, 1, 3, 77, 255):
            self.assertEqual(self.both("sh", "-c", f"echo out; exit {code}").returncode, code)

    def test_deaths_by_signal_are_the_programs(self):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGUSR1, signal.SIGINT, signal.SIGPIPE):
            self.assertEqual(self.both("sh", "-c", f"kill -{number.value} $$").returncode, -number)

    def test_what_cannot_be_run_is_said_as_env_says_it(self):
        result = self.both("/no/such/program")
        self.assertEqual(result.returncode, 127)
        self.assertIn("cannot run '/no/such/program': No such file or directory", result.stderr)
        self.assertEqual(self.both("no-such-program-at-all").returncode, 127)
        self.assertEqual(self.both("/etc/passwd").returncode, 126)
        result = self.both("/")
        self.assertEqual(result.returncode, 126)
        self.assertNotIn("tracked", result.stderr)

    def test_no_program_is_a_mistake(self):
        self.assertEqual(memoir("run").returncode, 2)
        self.assertEqual(memoir("run", "--quiet", "--summary", "true").returncode, 2)
        self.assertEqual(memoir("run", "--sample", "0", "true").returncode, 2)
        self.assertEqual(memoir("run", "--stacks", "many", "true").returncode, 2)

    def test_options_behind_the_program_are_its_own(self):
        result = self.both("printf", "%s,", "--summary", "-h", "--", "--no-such")
        self.assertEqual(result.stdout, "--summary,-h,--,--no-such,")
        self.assertEqual(self.both("--", "printf", "%s", "x").stdout, "x")

    def test_standard_input_is_the_programs(self):
        for summary in (True, False):
            process = subprocess.run([str(MEMOIR), "run", *(["--summary"] if summary else []), "cat"], input="words\n",
                                     capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=False)
            self.assertEqual((process.returncode, process.stdout), (0, "words\n"))

    def test_ignored_and_blocked_signals_stay_as_they_are(self):
        def ignore():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])

        plain = subprocess.run(["grep", "-E", "^Sig(Ign|Blk|Cgt)", "/proc/self/status"], preexec_fn=ignore, check=True,
                               capture_output=True, text=True, env=ENVIRONMENT)
        for summary in (True, False):
            result = self.run_it("grep", "-E", "^Sig(Ign|Blk|Cgt)", "/proc/self/status", summary=summary, preexec_fn=ignore)
            self.assertEqual(result.stdout, plain.stdout)

    def test_only_the_environment_that_we_name_changes(self):
        plain = set(subprocess.run(["env"], capture_output=True, text=True, env=ENVIRONMENT, check=True).stdout.splitlines())
        result = set(self.run_it("env").stdout.splitlines())
        added = {line.split("=")[0] for line in result - plain}
        self.assertLessEqual(added, {"LD_PRELOAD", "MEMOIR_MALLOC", "MEMOIR_STACKS", "MEMOIR_DIR", "MEMOIR_KEEP",
                                     "MEMOIR_KEEP_IN"})
        self.assertEqual(plain - result, set())


def signals_as_usual():
    """Whoever started the tests may ignore some (nohup does), and a shell cannot trap what was ignored when it began."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)


class Signals(RunTest):
    def started(self, script):
        process = self.start_it("sh", "-c", script, preexec_fn=signals_as_usual)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def test_signals_sent_to_us_reach_the_program(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT):
            process = self.started(f"trap 'echo got; exit 9' {number.value}; echo ready; while :; do sleep 0.01; done")
            process.send_signal(number)
            out, _ = process.communicate(timeout=60)
            self.assertEqual((process.returncode, out), (9, "got\n"))

    def test_who_kills_us_kills_the_program(self):
        process = self.started("echo ready; echo $$; exec sleep 600")
        pid = int(process.stdout.readline())
        process.kill()
        process.wait()

        def gone():
            try:
                return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] == "Z"
            except OSError:
                return True
        wait_for(gone, "the end of the program")

    def test_a_program_that_stops_alone_goes_on_alone(self):
        process = self.started("echo ready; echo $$; exec sleep 600")
        pid = int(process.stdout.readline())
        os.kill(pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGKILL)
        process.wait(timeout=60)
        self.assertEqual(process.returncode, -signal.SIGKILL)


class Terminal(RunTest):
    """A shell with job control in front of us."""

    def setUp(self):
        super().setUp()
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ.update(ENVIRONMENT, PS1="", MEMOIR_DIR=str(self.dir))
            os.execv("/bin/bash", ["bash", "--norc", "--noprofile", "-i"])
        self.seen = ""
        self.addCleanup(self.end)
        self.type("stty -echo; bind 'set enable-bracketed-paste off'; echo be''gin")
        self.expect("begin")

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.close(self.terminal)
        os.waitpid(self.pid, 0)

    def type(self, line):
        os.write(self.terminal, line.encode() + b"\n")

    def expect(self, text):
        """Read until it is there; what was before it is gone then."""
        def come():
            if text not in self.seen:
                self.seen += os.read(self.terminal, 65536).decode(errors="replace")
            return text in self.seen
        os.set_blocking(self.terminal, False)

        def tried():
            try:
                return come()
            except BlockingIOError:
                return False
        try:
            wait_for(tried, f"'{text}' on the terminal")
        except AssertionError as error:
            raise AssertionError(f"{error}; there is: {self.seen!r}") from None
        self.seen = self.seen.split(text, 1)[1]

    def test_ctrl_z_stops_and_fg_goes_on(self):
        self.type(f"{MEMOIR} run sh -c 'echo star''ted; read x; echo re''ad $x; exit 6'; echo code''=$?")
        self.expect("started")
        os.write(self.terminal, b"\x1a")
        self.expect("code=148")  # 128 + SIGTSTP
        self.type("fg; echo code''=$?")
        self.type("words")
        self.expect("read words")
        self.expect("code=6")

    def test_so_it_does_where_it_may_not_be_traced(self):
        """A scan was asked for, and there is none."""
        script = self.folder() / "forbid.py"
        script.write_text("import os, sys\n"
                          f"sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})\n"
                          "import test_scan\n"
                          "test_scan.forbid_tracing()\n"
                          "options = os.environ.get('ASAN_OPTIONS', '')\n"
                          "os.environ['ASAN_OPTIONS'] = options + ':detect_leaks=0'  # which traces, too\n"
                          "os.execv(sys.argv[1], sys.argv[1:])\n", encoding="utf-8")
        self.type(f"{sys.executable} {script} {MEMOIR} run --scan sh -c 'echo star''ted; read x; exit 6'; echo code''=$?")
        self.expect("started")
        os.write(self.terminal, b"\x1a")
        self.expect("code=148")
        self.type("fg; echo code''=$?")
        self.type("words")
        self.expect("what is lost is not known: Operation not permitted")
        self.expect("code=6")

    def test_ctrl_c_ends_the_program_and_the_summary_follows(self):
        self.type(f"{MEMOIR} run sh -c 'echo star''ted; exec sleep 600'")
        self.expect("started")
        os.write(self.terminal, b"\x03")
        self.expect("was killed by signal 2")
        self.type("echo code''=$?")
        self.expect("code=130")


class Untracked(RunTest):
    """It runs all the same, and one line says why."""

    @classmethod
    def setUpClass(cls):
        if not TRACKER.exists():
            raise unittest.SkipTest("this build has no tracker")

    def compiled(self, *flags):
        folder = self.folder()
        (folder / "main.c").write_text('#include <stdio.h>\nint main(void) { puts("ran"); return 5; }\n', encoding="utf-8")
        done = subprocess.run(["gcc", *flags, "-o", str(folder / "program"), str(folder / "main.c")], capture_output=True,
                              check=False)
        if done.returncode != 0:
            self.skipTest(f"gcc {' '.join(flags)} does not work here")
        return folder / "program"

    def test_static_programs(self):
        program = self.compiled("-static")
        for summary in (True, False):
            result = self.run_it(program, summary=summary)
            self.assertEqual((result.returncode, result.stdout), (5, "ran\n"))
            self.assertIn("runs without being tracked: it is linked statically", result.stderr)
        self.assertEqual(self.run_it("--quiet", program, summary=False).stderr, "")

    def test_scripts_of_static_interpreters(self):
        program = self.compiled("-static")
        script = program.parent / "script"
        script.write_text(f"#!{program}\n", encoding="utf-8")
        script.chmod(0o755)
        result = self.run_it(script)
        self.assertEqual(result.returncode, 5)
        self.assertIn("linked statically", result.stderr)

    def test_setuid_programs(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        program = self.compiled()
        os.chown(program, 1, 1)
        program.chmod(0o4755)
        result = self.run_it(program)
        self.assertEqual((result.returncode, result.stdout), (5, "ran\n"))
        self.assertIn("set-uid or set-gid", result.stderr)

    def test_32_bit_programs_run_without_complaints_of_the_loader(self):
        program = self.compiled("-m32")
        result = self.run_it(program)
        self.assertEqual((result.returncode, result.stdout), (5, "ran\n"))
        self.assertIn("32-bit", result.stderr)
        self.assertNotIn("ld.so", result.stderr)

    def test_sanitized_programs_are_left_to_their_sanitizer(self):
        for kind in ("address", "leak"):
            with self.subTest(kind):
                program = self.compiled(f"-fsanitize={kind}")
                alone = subprocess.run([program], capture_output=True, text=True, check=False)
                result = self.run_it(program)
                self.assertEqual((result.returncode, result.stdout), (alone.returncode, alone.stdout))
                self.assertIn("made with -fsanitize", result.stderr)


NEXT = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    free(malloc(100));
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "wait") == 0)
            usleep(700000);
        else if (strcmp(argv[i], "rename") == 0)
            prctl(PR_SET_NAME, "other");
        else if (strcmp(argv[i], "_exit") == 0)
            _exit(5);
    return 5;
}
"""


class Executed(RunTest):
    """After exec the figures of an earlier program are not taken for those of the last one."""

    @classmethod
    def setUpClass(cls):
        if not TRACKER.exists():
            raise unittest.SkipTest("this build has no tracker")

    def compiled(self, *flags):
        program = self.folder() / "next"
        done = subprocess.run(["gcc", *flags, "-x", "c", "-", "-o", str(program)], input=NEXT, text=True, capture_output=True, check=False)
        if done.returncode != 0:
            self.skipTest(f"gcc {' '.join(flags)} does not work here")
        program.parent.chmod(0o755)
        return program

    def told(self, *command, **more):
        folder = self.folder()
        folder.chmod(0o777)
        done = self.run_it("--json", folder / "out.json", *command, **more)
        self.assertEqual(done.returncode, 5, done.stderr)
        return checked(json.loads((folder / "out.json").read_text(encoding="utf-8"))), done.stderr

    def test_a_static_program_is_told_from_the_one_that_executed_it(self):
        program = self.compiled("-static")
        told, said = self.told("sh", "-c", f"exec {program} wait")
        self.assertEqual((told["tracked"], told["last_image"]), (False, str(program)))
        self.assertIn("linked statically", told["why_not"])
        self.assertEqual(told["image"], os.path.realpath(shutil.which("sh")))
        self.assertGreater(told["heap"]["allocated_blocks"], 0)
        self.assertIn(f"these are the figures of {told['image']}; it executed {program}, which is not tracked: it is linked statically", said)
        done = self.run_it("--assert", "peak<1GB", "sh", "-c", f"exec {program} wait; exit 0", summary=False)
        self.assertIn("not known", done.stderr)  # whatever the shell's peak was

    def test_one_that_ends_at_once_is_not_said_to_be_tracked(self):
        told, _ = self.told("sh", "-c", f"exec {self.compiled('-static')}")
        self.assertFalse(told["tracked"])  # null: only its name was seen
        self.assertEqual(told["last_image"].rpartition("/")[2], "next")

    def test_a_program_without_the_preload(self):
        program = self.compiled()
        told, _ = self.told("env", "-u", "LD_PRELOAD", program, "wait")
        self.assertEqual((told["tracked"], told["last_image"]), (False, str(program)))
        self.assertIn("without LD_PRELOAD", told["why_not"])

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_set_uid_programs(self):
        program = self.compiled("-static")
        os.chown(program, 1, 1)
        program.chmod(0o4755)
        told, _ = self.told("sh", "-c", f"exec {program} wait")
        self.assertEqual((told["tracked"], told["last_image"]), (False, str(program)))
        self.assertIn("set-uid", told["why_not"])
        self.dir.chmod(0o1777)
        told, _ = self.told("sh", "-c", f"exec {program} wait", user=65534, group=65534, extra_groups=[])
        self.assertFalse(told["tracked"])
        self.assertIn("set-uid", told["why_not"])

    def test_a_program_that_renames_itself_is_the_same(self):
        program = self.compiled()
        for words in (["rename"], ["rename", "wait", "wait", "_exit"], ["_exit"]):
            with self.subTest(words):
                told, _ = self.told("sh", "-c", f"exec {program} {' '.join(words)}")
                self.assertEqual((told["tracked"], told["why_not"], told["image"], told["last_image"]),
                                 (True, None, str(program), None))


class Tracked(RunTest):
    PROGRAM = BUILD / "test/leaks/leak_direct"

    @classmethod
    def setUpClass(cls):
        if not TRACKER.exists():
            raise unittest.SkipTest("this build has no tracker")

    def test_the_summary_names_the_line_that_holds_most(self):
        result = self.run_it(self.PROGRAM)
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stderr, r"ended with status 0 after .*, at most .* resident")
        self.assertRegex(result.stderr, r"heap: peak [\d.]+ kB( \(or up to [\d.]+ k?B more\))?; \d+ allocations, .* in all; .* in \d+ blocks held at the end")
        self.assertRegex(result.stderr, r"9\.6 kB in +200 blocks  direct\.c:6 step")
        self.assertEqual(self.books(), [])

    def test_json_has_the_same(self):
        out = self.folder() / "out.json"
        self.run_it("--json", out, self.PROGRAM, summary=False)
        document = checked(json.loads(out.read_text(encoding="utf-8")))
        self.assertEqual((document["schema"], document["status"], document["signal"]), ("memoir.run/3", 0, None))
        self.assertTrue(document["tracked"])
        site = document["sites"][0]
        self.assertEqual((site["function"], site["line"], site["blocks"], site["bytes"]), ("step", 6, 200, 9600))
        self.assertEqual(document["losses"], 0)
        self.assertEqual(self.books(), [])

    def test_a_killed_program_is_summed_up(self):
        result = self.run_it("sh", "-c", "kill -9 $$")
        self.assertIn("was killed by signal 9", result.stderr)
        self.assertIn("memoir: heap: peak", result.stderr)
        self.assertEqual(self.books(), [])

    def test_the_image_that_came_last_counts(self):
        result = self.run_it("sh", "-c", f"exec {self.PROGRAM}")
        self.assertIn("direct.c:6 step", result.stderr)
        self.assertEqual(self.books(), [])

    def chain(self, images, remove):
        """The summary of a process of so many images; only the last one asks for much. Those whose number is in `remove` remove their books, as a
        daemon may."""
        script = self.folder() / "chain.py"
        script.write_text("import os, pathlib, sys\n"
                          "number, images, books = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])\n"
                          "if number in map(int, sys.argv[4].split(',')):\n"
                          "    for book in books.rglob(f'{os.getpid()}-*.book'):\n"
                          "        book.unlink()\n"
                          "if number < images:\n"
                          "    os.execv(sys.executable, [sys.executable, '-IS', sys.argv[0], str(number + 1), *sys.argv[2:]])\n"
                          "bytes(50_000_000)\n")
        out = self.folder() / "out.json"
        result = self.run_it("--json", out, "/usr/bin/python3", "-IS", script, 1, images, self.dir, ",".join(map(str, remove)), summary=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return json.loads(out.read_text())

    def test_it_counts_whatever_became_of_the_books_before_it(self):
        self.assertGreaterEqual(self.chain(3, [2])["heap"]["peak"], 50_000_000)
        self.assertGreaterEqual(self.chain(4, [3, 4])["heap"]["peak"], 50_000_000)

    def test_it_counts_after_many_images(self):
        told = self.chain(40, range(1, 41))
        self.assertGreaterEqual(told["heap"]["peak"], 50_000_000)
        self.assertEqual(list(self.dir.glob("*/.run-*")), [])

    def test_what_was_preloaded_stays_so(self):
        other = BUILD / "test/leaks/libcount.so"
        folder = self.folder()
        environment = ENVIRONMENT | {"LD_PRELOAD": str(other), "COUNT_DIR": str(folder)}
        for flags, library in (((), ALLOCATOR), (("--malloc",), ALLOCATOR), (("--track",), TRACKER), (("--mmap",), TRACKER)):
            result = subprocess.run([str(MEMOIR), "run", *flags, "--dir", str(self.dir), "sh", "-c", "echo $LD_PRELOAD"],
                                    capture_output=True, text=True, env=environment, timeout=60, check=False)
            self.assertEqual(result.stdout, f"{library.resolve()}:{other}\n")

    def said(self, variable, *flags, **environment):
        result = subprocess.run([str(MEMOIR), "run", *flags, "--dir", str(self.dir), "sh", "-c", f'echo "${variable}"'],
                                capture_output=True, text=True, env=ENVIRONMENT | environment, timeout=60, check=False)
        return result.stdout.strip()

    def test_an_allocator_that_the_user_has_chosen_stays(self):
        for name in ("libjemalloc.so.2", "/opt/lib/libtcmalloc_minimal.so.4", "libmimalloc.so.2"):
            self.assertIn("libmemoir-track", self.said("LD_PRELOAD", LD_PRELOAD=name))
            self.assertIn("libmemoir-malloc", self.said("LD_PRELOAD", "--malloc", LD_PRELOAD=name))

    def test_a_program_that_is_linked_with_an_allocator_keeps_it(self):
        folder = self.folder()
        (folder / "main.c").write_text('#include <stdio.h>\n#include <stdlib.h>\n'
                                       'int main(void) { puts(getenv("LD_PRELOAD")); return 0; }\n', encoding="utf-8")
        (folder / "own.c").write_text("int own(void) { return 0; }\n", encoding="utf-8")
        library, program = folder / "libjemalloc.so.9", folder / "program"
        subprocess.run(["gcc", "-shared", "-Wl,-soname,libjemalloc.so.9", "-o", library, folder / "own.c"], check=True)
        subprocess.run(["gcc", "-Wl,--no-as-needed", "-o", program, folder / "main.c", library, f"-Wl,-rpath,{folder}"],
                       check=True)
        self.assertIn("libmemoir-track", self.run_it(program).stdout)

    def test_further_settings_of_the_allocator_stay(self):
        self.assertEqual(self.said("MEMOIR_MALLOC"), "account=1")
        self.assertEqual(self.said("MEMOIR_MALLOC", MEMOIR_MALLOC="limit=1G"), "limit=1G,account=1")
        self.assertEqual(self.said("MEMOIR_MALLOC", MEMOIR_MALLOC="account=1"), "account=1")
        self.assertEqual(self.said("MEMOIR_MALLOC", "--track", MEMOIR_MALLOC="account=1"), "account=1,account=0")
        self.assertEqual(self.said("MEMOIR_MALLOC", "--track"), "")
        for flags in (("--track", "--malloc"), ("--malloc", "--mmap")):
            self.assertEqual(memoir("run", *flags, "true").returncode, 2)

    def test_it_can_be_seen_while_it_runs(self):
        process = subprocess.Popen([str(MEMOIR), "run", "--summary", "--dir", str(self.dir), str(self.PROGRAM), "10"],
                                   env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        self.addCleanup(self.end_it, process)
        rows = wait_for(lambda: [p for p in self.ps() if p["program"] == "leak_direct"], "its row in memoir ps")
        self.assertGreater(rows[0]["heap"], 0)
        _, said = process.communicate("", timeout=60)
        self.assertIn("direct.c:6 step", said)


class Watched(DaemonTest):
    """A daemon that retires books the moment that a process dies."""

    def test_the_summary_is_there_all_the_same(self):
        if not TRACKER.exists():
            self.skipTest("this build has no tracker")
        daemon = self.daemon()
        summary = self.books.parent / "summary.json"
        command = [str(MEMOIR), "run", "--json", str(summary), "--dir", str(self.books)]
        for command in command + [str(BUILD / "test/leaks/leak_direct")], command + ["/bin/true"], \
                command + ["--track", str(BUILD / "test/leaks/leak_direct")], \
                command + ["/usr/bin/env", str(BUILD / "test/leaks/leak_direct")]:  # two images within a tick of the clock
            for _ in range(15):  # whoever comes first, the daemon or memoir
                summary.unlink(missing_ok=True)
                result = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT,
                                        stdin=subprocess.DEVNULL, timeout=60, check=False)
                self.assertEqual(result.returncode, 0, result.stderr)
                told = json.loads(summary.read_text())
                self.assertTrue(told["tracked"], told)
                if "leak_direct" in command[-1]:
                    self.assertEqual((told["heap"]["bytes"], told["heap"]["blocks"]), (9600, 200))
        wait_for(lambda: not list(self.books.rglob("*.book")), "the end of the books")
        self.assertEqual(list(self.books.rglob(".run-*")), [])
        daemon.close()

    def test_what_a_killed_run_leaves_is_removed_by_the_next(self):
        left = self.books / str(os.geteuid()) / ".run-1-0"
        command = [str(MEMOIR), "run", "--json", "/dev/null", "--dir", str(self.books), "/bin/true"]
        subprocess.run(command, env=ENVIRONMENT, timeout=60, check=True)
        left.mkdir()
        (left / "1-2-3-4.book").write_bytes(b"")
        subprocess.run(command, env=ENVIRONMENT, timeout=60, check=True)
        self.assertTrue(left.exists())  # its owner may be about to lock it
        os.utime(left, (0, 0))
        subprocess.run(command, env=ENVIRONMENT, timeout=60, check=True)
        self.assertFalse(left.exists())


if __name__ == "__main__":
    unittest.main()
