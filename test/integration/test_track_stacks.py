"""A stack of every call, and of every sample: those that are told from what is known of earlier ones are the same as by the tables.

Programs run under a build of the tracker that takes each such stack once more at the same moment (test/track/verify.c), and
ends the program where they differ.
"""

import glob
import re
import shutil
import subprocess
import unittest

from daemon_fixture import BUILD
from track_support import PROGRAMS, TrackTest

VERIFY = BUILD / "test/track/libmemoir-track-verify.so"

PYTHON = """
import ast, json, re, threading, traceback
def rec(n):
    return [n] + rec(n - 1) if n else []
def gen(n):
    for i in range(n):
        yield {"k%d" % i: [i] * 3}
def fall(n):
    try:
        if n == 0:
            raise ValueError("x" * 50)
        fall(n - 1)
    finally:
        str(n) * 3
def work():
    for i in range(3):
        rec(30); list(gen(50))
        try:
            fall(15)
        except ValueError:
            traceback.format_exc()
        code = "def f():\\n%s return [str(i) for i in range(9)]\\nf()" % ("\\n" * (i % 3))
        exec(compile(code, "<made>", "exec"), {})
        json.loads(json.dumps({"a": [1, 2, {"b": "c" * 9}] * 10}))
        ast.parse("x = [1, 2, 3]\\nfor i in x:\\n    print(i)\\n")
threads = [threading.Thread(target=work) for _ in range(2)]
[t.start() for t in threads]
work()
[t.join() for t in threads]
table = {}
for i in range(2000):
    table["key%d" % (i % 700)] = [i, str(i), (i, i + 1)]
print(len(table))
"""
PERL = 'my %h; sub f { my $n = shift; $h{"k" . $n % 99} = [$n, "v$n", {a => $n}]; $n % 7 ? f($n - 1) : 0 } ' \
       'f($_) for 1 .. 600; print scalar(keys %h), "\\n";'
SQL = "create table t(a integer primary key, b text); with recursive n(i) as (select 1 union all select i + 1 from n " \
      "where i < 2000) insert into t select i, 'row ' || (i * 7919 % 2000) from n; create index u on t(b); " \
      "select count(*) from t where b > 'row 5';"
C = "struct s { int a[10]; }; int f(struct s *s, int n) { int r = 0; for (int i = 0; i < n; i++) r += s->a[i % 10] * i; " \
    "return r; } int g(const char *t) { struct s s = {{0}}; for (; *t; t++) s.a[*t % 10]++; return f(&s, 9); }"


class StacksTest(TrackTest):
    def compared(self, command, least, stacks="all", **variables):
        """Runs it plain and verified: the same output, and so many stacks compared, most of them without a walk.

        Those of samples are walked as far as they changed."""
        out = self.dir / "compared"
        out.unlink(missing_ok=True)
        plain = self.environment(preload=(), **variables)
        tracked = self.environment(preload=(VERIFY,), MEMOIR_STACKS=stacks, RECALL_VERIFY_OUT=str(out), **variables)
        run = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 120, "check": False}
        command = [str(word) for word in command]
        expected = subprocess.run(command, env=plain, **run)
        done = subprocess.run(command, env=tracked, **run)
        told = out.read_text(encoding="utf-8") if out.exists() else ""
        self.assertNotIn("WRONG", told)
        self.assertEqual((done.returncode, done.stdout), (0, expected.stdout), done.stderr)
        walked, quickly = map(sum, zip(*((int(a), int(b)) for a, b in re.findall(r"compared (\d+) (\d+)", told))))
        self.assertGreater(walked + quickly, least)
        if stacks == "all":
            self.assertGreater(quickly, least / 8)
        else:
            self.assertEqual(quickly, 0)

    def command(self, name):
        path = shutil.which(name)
        if not path:
            self.skipTest(f"there is no {name} here")
        return path

    def test_stacks_of_every_kind(self):
        self.compared([PROGRAMS / "track_winding"], 5000)

    def test_samples_of_every_kind(self):
        self.compared([PROGRAMS / "track_winding"], 5000, "sampled", MEMOIR_SAMPLE_BYTES="1")

    def test_samples_of_sqlite(self):
        self.compared([self.command("sqlite3"), ":memory:", SQL], 3000, "sampled", MEMOIR_SAMPLE_BYTES="1")

    def test_what_lies_between_two_stacks_is_not_read(self):
        for settings in ({"MEMOIR_STACKS": "all"}, {"MEMOIR_SAMPLE_BYTES": "1"}):
            process = self.start("track_hollow", settings=settings)
            self.assertEqual(process.wait(), 0, process.err.lines)
            process.out.wait("same")

    def test_stacks_with_exceptions(self):
        program = PROGRAMS / "track_throwing"
        if not program.exists():
            self.skipTest("this build has no C++")
        self.compared([program], 5000)

    def test_stacks_of_python_with_its_lines(self):
        if not glob.glob("/usr/bin/python3"):
            self.skipTest("there is no python3 here")
        self.compared(["/usr/bin/python3", "-S", "-c", PYTHON], 20000, PYTHONMALLOC="malloc", PYTHONHASHSEED="0")

    def test_stacks_of_perl(self):
        self.compared([self.command("perl"), "-e", PERL], 2000, PERL_HASH_SEED="0", PERL_PERTURB_KEYS="0")

    def test_stacks_of_sqlite(self):
        self.compared([self.command("sqlite3"), ":memory:", SQL], 3000)

    def test_stacks_of_a_compiler(self):
        gcc = self.command("gcc")
        cc1 = subprocess.run([gcc, "-print-prog-name=cc1"], capture_output=True, text=True, check=True).stdout.strip()
        source = self.dir / "source.i"
        source.write_text(C, encoding="utf-8")
        self.compared([cc1, "-quiet", "-fpreprocessed", "-O2", "-o", "-", source], 5000)


if __name__ == "__main__":
    unittest.main()
