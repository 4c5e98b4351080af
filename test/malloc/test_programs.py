"""Programs of every day say the same with our allocator as without it. The heavy ones are in heavy.py, which script/test-malloc
runs."""

import shutil
import subprocess
import unittest

from malloc_support import ProgramTest
from stage import git_environment

C_SOURCE = "#include <stdio.h>\n#include <string.h>\n#include <stdlib.h>\n" + "\n".join(
    f"int f{i}(int a) {{ int s = 0; for (int i = 0; i < a; i++) s += a * i ^ {i}; return s + (int)strlen(\"x{i}\"); }}"
    for i in range(25))
CXX_SOURCE = """
#include <map>
#include <string>
#include <vector>
#include <algorithm>
#include <iostream>
int main() {
    std::map<std::string, std::vector<int>> m;
    for (int i = 0; i < 1000; i++) m["k" + std::to_string(i % 37)].push_back(i);
    for (auto &e : m) std::sort(e.second.rbegin(), e.second.rend());
    std::cout << m.size() << ' ' << m["k5"].front() << '\\n';
}
"""
MAKEFILE = """
objects := $(patsubst %.c,%.o,$(sort $(wildcard part*.c)))
all: whole
%.o: %.c
	gcc -O1 -c -o $@ $<
whole: $(objects)
	gcc -o $@ $(objects)
"""
PYTHON = """
import collections, concurrent.futures, decimal, json, re, zlib, hashlib, random
random.seed(5)
words = [f"word{random.randrange(997)}" for _ in range(20000)]
counts = collections.Counter(words)
text = json.dumps(counts, sort_keys=True)
assert json.loads(text) == counts
print(hashlib.sha256(text.encode()).hexdigest(), len(zlib.compress(text.encode() * 50)))
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    print(sum(pool.map(lambda n: len(bytes(n)) + len(str(decimal.Decimal(2) ** n)), range(1000, 3000, 7))))
"""
PERL = """
my %seen; $seen{"key" . ($_ % 501)} .= "x" x ($_ % 7) for 1 .. 60000;
my @sorted = sort { length $seen{$a} <=> length $seen{$b} || $a cmp $b } keys %seen;
my $s = ""; $s .= sprintf("%s:%d,", $_, length $seen{$_}) for @sorted[0 .. 49]; $s =~ s/key(\\d)/K$1/g; print "$s\\n"; exit 3;
"""
PHP = """
$seen = []; for ($i = 0; $i < 20000; $i++) $seen["key" . ($i % 997)][] = str_repeat("x", $i % 50);
$text = json_encode(array_slice($seen, 0, 997)); $back = json_decode($text, true); ksort($back);
echo count($back), " ", preg_match_all('/key1[0-9]*5"/', $text), " done";
"""
BASH = """
declare -A seen
for ((i = 0; i < 3000; i++)); do seen[key$((i % 97))]+=x; done
echo "${#seen[@]} ${#seen[key5]}"
text=$(for i in {1..50}; do echo "line $i"; done | sort -r | head -3); echo "$text"
for i in {1..20}; do (exit $i) & done; wait; (exit 5); echo "$?"
"""
SQL = """
create table t(a integer primary key, b text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000) insert into t select i, 'row ' || (i * 7919 % 20011) from n;
create index u on t(b); select count(*), max(b), min(b) from t where b like 'row 1%';
select a, b from t order by b desc limit 5; delete from t where a % 3 = 0; vacuum; pragma integrity_check;
"""
VIM = """
call setline(1, map(range(3000), '"line " . v:val . repeat("x", v:val % 50)'))
%s/x\\+$/\\=len(submatch(0))/
g/7$/normal! yypA copy
sort! n
write! out.txt
quit!
"""


class EveryDay(ProgramTest):
    def test_gcc(self):
        self.need("gcc")
        (self.folder / "work.c").write_text(C_SOURCE, encoding="utf-8")
        self.same(["gcc", "-O2", "-c", "-o", "work.o", "work.c"], made=["work.o"])
        (self.folder / "wrong.c").write_text("int x = ;\n", encoding="utf-8")
        self.same(["gcc", "-c", "wrong.c"], code=1)

    def test_gxx(self):
        self.need("g++")
        (self.folder / "work.cpp").write_text(CXX_SOURCE, encoding="utf-8")
        self.same(["g++", "-O1", "-o", "work", "work.cpp"], made=["work"])
        self.assertEqual(self.same(["./work"]), b"37 967\n")

    def test_make_in_parallel(self):
        self.need("make", "gcc")
        (self.folder / "Makefile").write_text(MAKEFILE, encoding="utf-8")
        for i in range(8):
            (self.folder / f"part{i}.c").write_text(C_SOURCE.replace("int f", f"int p{i}_"), encoding="utf-8")
        (self.folder / "part.c").write_text("int p3_5(int); int main(void) { return p3_5(3) != 52; }\n", encoding="utf-8")

        def clean():
            for path in (*self.folder.glob("*.o"), self.folder / "whole"):
                path.unlink(missing_ok=True)
        self.same(["make", "-s", "-j4"], reset=clean, made=["whole"])

    def test_git(self):
        self.need("git")
        environment = git_environment(self.folder)

        def reset():
            shutil.rmtree(self.folder / "work", ignore_errors=True)
            (self.folder / "work").mkdir()
            for i in range(60):
                (self.folder / "work" / f"file{i}").write_text(f"text {i}\n" * i * 10, encoding="utf-8")

        script = ("cd work && git init -q -b main . && git add . && git commit -q -m one && sed -i s/text/word/ file1* &&"
                  " git commit -qam two && git log --stat && git diff HEAD~1 | sha256sum && git repack -adq && git gc -q"
                  " && git fsck --full 2>/dev/null && git blame file17 | tail -2 && git grep -c word | head -5")
        self.assertIn(b"11 files changed", self.same(["bash", "-c", script], environment, reset))

    def test_python(self):
        self.need("/usr/bin/python3")
        for allocator in ("pymalloc", "malloc"):
            environment = {"PYTHONMALLOC": allocator, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
            self.same(["/usr/bin/python3", "-c", PYTHON], environment)
        self.same(["/usr/bin/python3", "-c", "raise SystemExit(7)"], code=7)

    def test_perl(self):
        self.need("perl")
        self.same(["perl", "-e", PERL], {"PERL_HASH_SEED": "0"}, code=3)

    def test_php(self):
        """Its extensions are loaded with RTLD_DEEPBIND."""
        self.need("php")
        self.assertEqual(self.same(["php", "-r", PHP]), b"997 11 done")
        self.same(["php", "-r", "exit(3);"], code=3)

    def test_bash(self):
        self.assertIn(b"97 31\nline 9\nline 8\nline 7\n5\n", self.same(["bash", "-c", BASH]))

    def test_sqlite(self):
        self.need("sqlite3")
        self.assertIn(b"\nok\n", self.same(["sqlite3", ":memory:", SQL]))
        self.same(["sqlite3", ":memory:", "select nonsense"], code=1)

    def test_tar_and_xz(self):
        self.need("tar", "xz", "gzip")
        (self.folder / "tree").mkdir()
        for i in range(40):
            (self.folder / "tree" / f"file{i}").write_text(C_SOURCE * (i % 5 + 1), encoding="utf-8")
        pack = ("tar --sort=name --mtime=@0 --owner=0 --group=0 -cf - tree | xz -T2 -6 > a.xz && "
                "tar --sort=name --mtime=@0 --owner=0 --group=0 -czf a.gz tree && "
                "rm -rf back && mkdir back && tar -xJf a.xz -C back && diff -r tree back/tree && tar -tzf a.gz | wc -l")
        self.assertEqual(self.same(["bash", "-c", pack], made=["a.xz", "a.gz"]).strip(), b"41")

    def test_vim(self):
        self.need("vim")
        (self.folder / "script.vim").write_text(VIM, encoding="utf-8")
        self.same(["vim", "-es", "-u", "NONE", "-i", "NONE", "-n", "-S", "script.vim"], stdin=subprocess.DEVNULL, made=["out.txt"])

    def test_sort_with_threads(self):
        (self.folder / "lines").write_text("".join(f"{i * 7919 % 100003} {i}\n" for i in range(100000)), encoding="utf-8")
        self.same(["sort", "-n", "--parallel=4", "-S", "1M", "-o", "sorted", "lines"], made=["sorted"])


if __name__ == "__main__":
    unittest.main()
