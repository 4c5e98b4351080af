"""The scripts that judge the rest: a broken judge would pass everything."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import stage
from daemon_fixture import NOBODY, PATIENCE_S, as_user

ROOT = pathlib.Path(os.environ.get("MEMOIR_SOURCE_ROOT") or pathlib.Path(__file__).parents[2])


def run(*command, **options):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **options)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


class Installed(unittest.TestCase):
    def test_every_module_of_the_python_client_is_installed(self):
        build = pathlib.Path(os.environ.get("MEMOIR_BUILD_ROOT") or ROOT / "build")
        installed = json.loads((build / "meson-info/intro-installed.json").read_text(encoding="utf-8"))
        there = {pathlib.Path(to).name for to in installed.values() if "/memoir/python/memoir/" in to}
        self.assertEqual(there, {path.name for path in (ROOT / "clients/python/memoir").glob("*.py")})


class TestVm(unittest.TestCase):
    """That its pieces are whole; the machine itself boots only in its own lane."""

    def test_says_how_to_use_it(self):
        result = run(ROOT / "script/test-vm", "--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("Usage: script/test-vm", result.stdout)

    def test_names_a_case_that_is_not_there(self):
        result = run(ROOT / "script/test-vm", "test/vm/nothing.sh")
        self.assertEqual(result.returncode, 1)
        self.assertIn("test/vm/nothing.sh", result.stderr)

    def test_every_case_is_a_shell_script(self):
        cases = [*(ROOT / "test/vm").glob("*.sh"), ROOT / "test/vm/init"]
        self.assertGreater(len(cases), 2)
        for case in cases:
            self.assertEqual(run("sh", "-n", case).returncode, 0, case)


class TestArm64(unittest.TestCase):
    """The same."""

    def test_says_how_to_use_it(self):
        result = run(ROOT / "script/test-arm64", "--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("Usage: script/test-arm64", result.stdout)

    def test_knows_no_other_pages(self):
        result = run(ROOT / "script/test-arm64", "--pages", "64")
        self.assertEqual(result.returncode, 1)
        self.assertIn("4 or 16", result.stderr)

    def test_what_runs_in_the_machine_is_a_shell_script(self):
        self.assertEqual(run("bash", "-n", ROOT / "test/arm64/init").returncode, 0)


class NeedPackages(Folder):
    """need_packages of script/lib.sh, with an apt-get of ours."""

    def setUp(self):
        super().setUp()
        (self.dir / "script").mkdir()
        shutil.copy(ROOT / "script/lib.sh", self.dir / "script")
        for name, text in (("sudo", 'exec "$@"'), ("dpkg-query", "echo not-installed")):
            self.program(name, text)

    def program(self, name, text):
        self.write("bin/" + name, f"#!/bin/sh\n{text}\n").chmod(0o755)

    def install(self, **environment):
        path = f"{self.dir}/bin:{os.environ['PATH']}"
        return run("bash", "-c", "set -euo pipefail; source script/lib.sh; need_packages one", cwd=self.dir,
                   env={**os.environ, "PATH": path, **environment})

    def test_waits_for_another_apt_and_says_so(self):
        self.program("apt-get", f"""echo "$@" >>{self.dir}/calls
[ $(wc -l <{self.dir}/calls) -ge 3 ] && exit 0
echo "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 1 (apt-get)" >&2
exit 100""")
        done = self.install()
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertEqual(done.stdout.count("waiting for another apt"), 1, done.stdout)
        calls = (self.dir / "calls").read_text(encoding="utf-8").splitlines()
        self.assertRegex(calls[0], "DPkg::Lock::Timeout=0 install .* one$")
        self.assertRegex(calls[1], "DPkg::Lock::Timeout=[1-9][0-9]* install")

    def test_gives_up_after_a_while(self):
        self.program("apt-get", "echo 'E: Could not get lock /var/lib/apt/lists/lock.' >&2; exit 100")
        done = self.install(MEMOIR_APT_LOCK_TIMEOUT_S="0")
        self.assertEqual(done.returncode, 1)
        self.assertIn("Could not get lock", done.stderr)

    def test_another_error_is_told_at_once(self):
        self.program("apt-get", "echo 'E: Unable to locate package one' >&2; exit 100")
        done = self.install()
        self.assertEqual(done.returncode, 1)
        self.assertIn("Unable to locate package one", done.stderr)
        self.assertNotIn("waiting", done.stdout)


class Up(Folder):
    """script/up with programs of this build."""

    def setUp(self):
        super().setUp()
        (self.dir / "script").mkdir()
        (self.dir / "dist/bin").mkdir(parents=True)
        for name in ("up", "up-lib.sh", "lib.sh"):
            shutil.copy(ROOT / "script" / name, self.dir / "script")
        self.write("script/build", "#!/bin/sh\n").chmod(0o755)
        for folder, name in (("daemon", "memoird"), ("cli", "memoir")):
            (self.dir / "dist/bin" / name).symlink_to(stage.build_root() / "src" / folder / name)
        books = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.addCleanup(books.cleanup)
        self.books = pathlib.Path(books.name)
        self.prefix = []
        if os.geteuid() == 0:  # whose sockets are the machine's
            for path in (self.dir, *self.dir.rglob("*"), self.books):
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
            self.prefix = as_user(NOBODY)

    def up(self, *arguments):
        return run(*self.prefix, self.dir / "script/up", *arguments, timeout=PATIENCE_S,
                   env=dict(os.environ, XDG_RUNTIME_DIR=str(self.dir)))

    def test_takes_another_port_and_says_so_where_7070_is_in_use(self):
        with socket.socket() as taken:
            for _ in range(30):
                try:
                    taken.bind(("127.0.0.1", 7070))
                    taken.listen()
                    break
                except OSError:
                    time.sleep(0.1)  # somebody else has it: just as well if that one stays
            done = self.up("--no-demo", "--dir", self.books)
            self.addCleanup(self.up, "--stop")
        self.assertEqual(done.returncode, 0, done.stderr)
        link = re.search(r"http://localhost:(\d+)/login\?code=\S+", done.stdout)
        self.assertTrue(link, done.stdout)
        self.assertNotEqual(link[1], "7070")
        self.assertIn(f"port 7070 is in use: the dashboard is at http://localhost:{link[1]}", done.stderr)
        opened = run(*self.prefix, self.dir / "dist/bin/memoir", "open", "--print",
                     env=dict(os.environ, XDG_RUNTIME_DIR=str(self.dir)))
        self.assertIn(f"http://localhost:{link[1]}/login", opened.stdout)


class CheckIncludes(Folder):
    def setUp(self):
        super().setUp()
        (self.dir / "script").mkdir()
        self.script = shutil.copy(ROOT / "script/check-includes", self.dir / "script")

    def check(self, path, line):
        self.write(path, f"/* a file */\n{line}\n")
        return run(self.script)

    def test_allows_the_way_down(self):
        for path, line in (("src/book/a.c", '#include "base/log.h"'), ("src/cli/a.c", '#include "ledger/ledger.h"'),
                           ("src/client/a.c", '#include "base/atomic.h"'), ("src/base/a.c", '#include <stdio.h>'),
                           ("src/book/b.c", '#include <memoir/memoir.h>'), ("src/book/c.c", '#include "book/x.h"')):
            with self.subTest(line=line):
                result = self.check(path, line)
                self.assertEqual(result.returncode, 0, result.stdout)

    def test_names_an_include_that_points_up(self):
        result = self.check("src/base/a.c", '  #  include "book/layout.h"')
        self.assertEqual(result.returncode, 1)
        self.assertIn("src/base/a.c:2:", result.stdout)

    def test_refuses_malloc_users_in_a_strangers_process(self):
        self.assertEqual(self.check("src/client/a.c", '#include "base/json.h"').returncode, 1)

    def test_refuses_private_headers_in_public_ones(self):
        self.assertEqual(self.check("include/memoir/a.h", '#include "base/atomic.h"').returncode, 1)

    def test_refuses_folders_it_does_not_know(self):
        self.assertEqual(self.check("src/attic/a.c", "").returncode, 1)


class CountTests(Folder):
    def count(self, *tests):
        log = self.write("testlog.json", "".join(json.dumps(t) + "\n" for t in tests))
        result = run(ROOT / "script/count-tests", log)
        return result.stdout.strip(), result.stderr

    def test_counts_each_tap_line(self):
        stdout = "ok 1 - a\nnot ok 2 - b\nok 3 - c # SKIP why\n# not ok 4 - comment\n1..3\n"
        numbers, told = self.count({"name": "t", "result": "FAIL", "stdout": stdout})
        self.assertEqual(numbers, "1 1 1")
        self.assertIn("FAILED t: b", told)

    def test_crash_after_passing_tests_is_a_failure(self):
        numbers, _ = self.count({"name": "t", "result": "ERROR", "returncode": -11, "stdout": "ok 1 - a\n"})
        self.assertEqual(numbers, "1 1 0")

    def test_program_without_tap_is_one_test(self):
        numbers, _ = self.count({"name": "t", "result": "OK"}, {"name": "u", "result": "TIMEOUT"})
        self.assertEqual(numbers, "1 1 0")

    def test_what_passes_again_is_told_as_unsteady(self):
        first = self.write(
            "first.json",
            json.dumps({"name": "s / t", "result": "FAIL", "stdout": "not ok 1 - a\n# why\nok 2 - b\n"})
            + "\n"
            + json.dumps({"name": "s / u", "result": "FAIL", "stdout": "not ok 1 - c\n"})
            + "\n",
        )
        again = self.write(
            "again.json",
            json.dumps({"name": "s / t", "result": "OK", "stdout": "ok 1 - a\nok 2 - b\n"})
            + "\n"
            + json.dumps({"name": "s / u", "result": "FAIL", "stdout": "not ok 1 - c\n"})
            + "\n",
        )
        self.assertEqual(run(ROOT / "script/count-tests", "--failed", first).stdout.split(), ["t", "u"])
        result = run(ROOT / "script/count-tests", first, again)
        self.assertEqual(result.stdout.strip(), "2 1 0")
        self.assertIn("UNSTEADY s / t: a (failed once, passed alone)\n", result.stderr)
        self.assertIn("    # why\n", result.stderr)
        self.assertIn("FAILED s / u: c (and once before)\n", result.stderr)

    def test_what_fails_three_times_has_failed(self):
        bad, good = {"name": "s / t", "result": "FAIL", "stdout": "not ok 1 - a\n"}, {"name": "s / t", "result": "OK", "stdout": "ok 1 - a\n"}
        bad, good = (self.write(f"{t['result']}.json", json.dumps(t) + "\n") for t in (bad, good))
        result = run(ROOT / "script/count-tests", bad, bad, bad)
        self.assertEqual(result.stdout.strip(), "0 1 0")
        self.assertIn("FAILED s / t: a (and twice before)\n", result.stderr)
        result = run(ROOT / "script/count-tests", bad, bad, good)
        self.assertEqual(result.stdout.strip(), "1 0 0")
        self.assertIn("UNSTEADY s / t: a (failed twice, passed alone)\n", result.stderr)


MESON = """#!{python}
import json, os, pathlib, sys
words = sys.argv[1:]
if words[0] == "setup":
    folder = pathlib.Path(words[1])
    (folder / "meson-logs").mkdir(parents=True)
    (folder / "build.ninja").touch()
    sys.exit(0)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
found = {{"ignored": status["SigIgn"].strip(), "umask": status["Umask"].strip(), "input": os.readlink("/proc/self/fd/0")}}
json.dump(found | {{"words": sorted(os.environ)}}, open("found.json", "w"))
with open("runs", "a+") as runs:
    runs.write(" ".join(words) + "\\n")
    runs.seek(0)
    number = len(runs.readlines())
bad = {plan}[number - 1].split()
with open("build/test/meson-logs/testlog.json", "w") as log:
    for name in "abcdefgh":
        if number == 1 or name in words:
            told = "not ok 1 - x\\n# why %s failed in run %d\\n" % (name, number) if name in bad else "ok 1 - x\\n"
            log.write(json.dumps({{"name": "s / " + name, "result": "FAIL" if name in bad else "OK", "stdout": told}}) + "\\n")
"""


class TestScript(Folder):
    """script/test, over a meson whose tests fail as planned: for each run, which ones."""

    def run_lane(self, *plan, ninja=0, prefix=(), **environment):
        for name in ("test", "lib.sh", "count-tests"):
            (self.dir / "script").mkdir(exist_ok=True)
            shutil.copy(ROOT / "script" / name, self.dir / "script")
        self.write("web/package-lock.json", "{}")
        self.write("web/node_modules/.package-lock.json", "{}")
        for name, text in (("meson", MESON.format(python=sys.executable, plan=plan)), ("dpkg-query", "#!/bin/sh\nprintf installed\n"),
                           ("node", "#!/bin/sh\n"), ("npm", "#!/bin/sh\n"), ("ninja", f"#!/bin/sh\necho no cigar\nexit {ninja}\n"),
                           ("sleep", "#!/bin/sh\n")):
            self.write(f"bin/{name}", text).chmod(0o755)
        path = f"{self.dir / 'bin'}:{os.environ['PATH']}"
        result = run(*prefix, self.dir / "script/test", "--lane", "release", env=os.environ | {"PATH": path} | environment)
        runs = self.dir / "runs"
        return result, runs.read_text(encoding="utf-8").splitlines() if runs.exists() else []

    def test_nothing_is_run_again_where_all_passed(self):
        result, runs = self.run_lane("")
        self.assertEqual((result.returncode, len(runs)), (0, 1), result.stdout)
        self.assertTrue(result.stdout.endswith("\n8 passed, 0 failed\n"), result.stdout)

    def test_what_starts_it_decides_nothing(self):
        odd = {"MEMOIR_DIR": "/nowhere", "XDG_RUNTIME_DIR": "/nowhere", "GIT_DIR": "/nowhere", "LD_PRELOAD": ""}
        result, _ = self.run_lane("", prefix=("bash", "-c", "umask 077; trap '' HUP INT USR1 TERM; exec \"$@\" <&-", "bash"), **odd)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        found = json.loads((self.dir / "found.json").read_text(encoding="utf-8"))
        # Python itself ignores SIGPIPE and SIGXFSZ.
        self.assertEqual(int(found["ignored"], 16) & ~(1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1), 0)
        self.assertEqual((found["umask"], found["input"]), ("0022", "/dev/null"))
        self.assertEqual(set(odd) & set(found["words"]), set())

    def test_what_fails_is_run_again_alone_and_told(self):
        result, runs = self.run_lane("b d", "d", "")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual([line.partition("--num-processes ")[2] for line in runs], [str(len(os.sched_getaffinity(0)) + 2), "1 b d", "1 d"])
        end = result.stdout[result.stdout.index("==> finished"):]
        self.assertIn("UNSTEADY s / b: x (failed once, passed alone)\n", end)
        self.assertIn("UNSTEADY s / d: x (failed twice, passed alone)\n", end)
        self.assertIn("# why d failed in run 1\n", end)
        self.assertTrue(end.endswith("\n8 passed, 0 failed\n"), end)

    def test_what_fails_three_times_is_failed(self):
        result, runs = self.run_lane("b", "b", "b")
        self.assertEqual((result.returncode, len(runs)), (1, 3), result.stdout)
        end = result.stdout[result.stdout.index("==> finished"):]
        self.assertIn("FAILED s / b: x (and twice before)\n", end)
        self.assertTrue(end.endswith("\n7 passed, 1 failed\n"), end)

    def test_many_failures_are_not_bad_luck(self):
        result, runs = self.run_lane("a b c d e f")
        self.assertEqual((result.returncode, len(runs)), (1, 1), result.stdout)
        self.assertTrue(result.stdout.endswith("\n2 passed, 6 failed\n"), result.stdout)

    def test_lane_that_does_not_build_is_a_failure_and_built_once(self):
        result, runs = self.run_lane("", ninja=1)
        self.assertEqual((result.returncode, runs), (1, []), result.stdout)
        end = result.stdout[result.stdout.index("==> finished"):]
        self.assertIn("FAILED release: compile\n    no cigar\n", end)
        self.assertTrue(end.endswith("\n0 passed, 1 failed\n"), end)


class Tap(Folder):
    def tap(self, body):
        path = self.write("test_x.py", "import unittest\nclass X(unittest.TestCase):\n" + body)
        result = run(sys.executable, ROOT / "test/integration/tap.py", path)
        return result.returncode, [l for l in result.stdout.splitlines() if not l.startswith("#")]

    def test_each_method_is_a_line(self):
        code, lines = self.tap("    def test_a(self): pass\n    def test_b(self): self.fail('no')\n")
        self.assertEqual((code, lines), (1, ["ok 1 - test_x.X.test_a", "not ok 2 - test_x.X.test_b", "1..2"]))

    def test_broken_class_setup_is_a_failure(self):
        code, lines = self.tap("    @classmethod\n    def setUpClass(cls): 1 / 0\n    def test_a(self): pass\n")
        self.assertEqual(code, 1)
        self.assertTrue(lines[0].startswith("not ok 1"))

    def test_one_that_takes_too_long_says_so_and_where(self):
        path = self.write("test_x.py", "import time, unittest\nclass X(unittest.TestCase):\n    def test_a(self):\n"
                          "        print('# here', flush=True)\n        time.sleep(1000)\n    def test_b(self): pass\n")
        with subprocess.Popen([sys.executable, ROOT / "test/integration/tap.py", path], stdout=subprocess.PIPE, text=True) as tap:
            self.assertEqual(tap.stdout.readline(), "# here\n")
            tap.terminate()
            rest = tap.stdout.read()
        self.assertEqual(tap.returncode, 1)
        self.assertIn("not ok 1 - test_x.X.test_a", rest)
        self.assertIn(", in test_a\n", rest)
        self.assertNotIn("test_b", rest)

    def test_skip_is_told_as_skip(self):
        code, lines = self.tap("    @unittest.skip('why')\n    def test_a(self): pass\n")
        self.assertEqual((code, lines[0]), (0, "ok 1 - test_x.X.test_a # SKIP why"))


class CheckInprocess(Folder):
    def check(self, source, *flags):
        self.write("lib.c", source)
        library = self.dir / "lib.so"
        made = run("cc", "-shared", "-fPIC", "-O0", *flags, "-o", library, self.dir / "lib.c")
        self.assertEqual(made.returncode, 0, made.stderr)
        return run(ROOT / "script/check-inprocess", library)

    def test_accepts_a_quiet_library(self):
        result = self.check("#include <unistd.h>\nint memoir_a(void) { return (int)getpid(); }\n")
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_names_calls_of_malloc(self):
        result = self.check("#include <stdlib.h>\nvoid *memoir_a(void) { return malloc(1); }\n")
        self.assertEqual(result.returncode, 1)
        self.assertIn("calls malloc", result.stdout)

    def test_names_exports_that_are_not_ours(self):
        result = self.check("int leaked_name(void) { return 1; }\n")
        self.assertIn("exports leaked_name", result.stdout)

    def test_names_libraries_that_a_program_may_lack(self):
        result = self.check("#include <math.h>\ndouble memoir_a(double x) { return cbrt(x); }\n",
                            "-Wl,--no-as-needed,-lm")
        self.assertIn("needs libm.so", result.stdout)


if __name__ == "__main__":
    unittest.main()
