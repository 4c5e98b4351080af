"""The real programs, with inputs that are made here, so that a run does the same on every commit.

Each is run under each allocator by bench_malloc_launch; see run.
"""

import pathlib
import random
import shutil
import subprocess
import time

PATIENCE_S = 120

PYTHON = """
import json, re, sys
n = int(sys.argv[1])
table = {"key%d" % i: {"id": i, "name": "n%d" % (i * 7919 % n), "tags": [str(i), "t%d" % (i % 7)], "at": (i, i + 1)}
         for i in range(n)}
text = json.dumps(table)
back = json.loads(text)
words = re.findall(r"n[0-9]+", text)
names = sorted(back, key=lambda key: back[key]["name"])
groups = {}
for key in names:
    groups.setdefault(back[key]["id"] % 97, []).append(key + "/" + back[key]["name"])
print(len(text), len(words), sum(len(",".join(g)) for g in groups.values()))
"""

PERL = """
my ($n, %h) = (shift); $h{"key" . $_ % ($n / 3)} = [$_, "v$_", {a => $_, b => "text $_"}] for 1 .. $n;
my @k = sort { $h{$a}[0] <=> $h{$b}[0] } keys %h; my %by; push @{$by{$h{$_}[0] % 101}}, $_ . ":" . $h{$_}[2]{b} for @k;
my $text = join(",", map { @{$by{$_}} } sort { $a <=> $b } keys %by); my @w = split /,/, $text; s/key/k/ for @w;
print scalar(@k), " ", length($text), " ", length(join("", @w)), "\\n";
"""

SQL = """
pragma cache_size = 2000;
create table t(a integer primary key, b text, c real, d text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < {n})
insert into t select i, 'row ' || (i * 7919 % {n}), i / 3.0, printf('%08x and some more text', i * 104729) from n;
create index u on t(b); create index v on t(d, c);
select count(*), sum(c) from t where b between 'row 1' and 'row 5';
update t set d = b || d where a % 3 = 0; delete from t where a % 7 = 0;
select substr(b, 1, 6), count(*), max(d) from t group by 1 order by 2 desc, 1 limit 5;
select count(*) from t x join t y on x.b = 'row ' || y.a where y.c < {n} / 6.0;
with recursive s(i, t) as (select 1, '' union all select i + 1, t || char(65 + i % 26) from s where i < 400) select length(max(t)) from s;
"""

POSTSCRIPT = """%!PS
/Helvetica findfont 9 scalefont setfont
/leaf {{ newpath 0 0 moveto 20 10 40 -10 60 0 curveto 40 30 20 10 0 0 curveto closepath fill }} def
1 1 {pages} {{
  /page exch def
  0 1 400 {{ /i exch def gsave i 37 mul page add 560 mod i 53 mul 780 mod translate i page mul 7 mul rotate
    i 100 mod 100 div 0.6 0.8 sethsbcolor leaf grestore }} for
  0 setgray 0 1 70 {{ /i exch def 40 780 i 11 mul sub moveto
    0 1 10 {{ page i mul add 7919 mul 10007 mod 12 string cvs show ( words ) show }} for }} for
  /rows [ 0 1 200 {{ [ exch dup 3 mul exch dup mul 2 array astore ] }} for ] def
  rows {{ pop }} forall
  showpage
}} for
"""


def c_source(functions):
    """A C file with structures, tables, loops, switches and calls: much of it alike, as in generated code."""
    draw = random.Random(20240229)
    lines = ["typedef unsigned long word;",
             "struct node { struct node *left, *right; word key, values[8]; double weight; char name[24]; };",
             "extern word mix(word, word); extern void emit(const char *, ...);"]
    for f in range(functions):
        a, b, c = (draw.randrange(3, 97) for _ in range(3))
        lines.append(f"""
static const word table_{f}[] = {{{', '.join(str(draw.randrange(1 << 30)) for _ in range(24))}}};
static inline word step_{f}(struct node *n, word x, double *out) {{
    word sum = x * {a}u;
    for (int i = 0; i < 8; i++) {{ sum += n->values[i] * table_{f}[(i + {b}) % 24]; n->values[i] ^= sum >> {c % 13 + 1}; }}
    if (n->left && sum % {a} < {b % a + 1}) sum += n->left->key; else if (n->right) sum ^= n->right->key << {b % 7};
    *out += n->weight * (double)sum / {c}.0;
    return sum;
}}
word visit_{f}(struct node *n, word x) {{
    double total = 0;
    word kept[16] = {{0}};
    while (n) {{
        word sum = step_{f}(n, x, &total);
        switch (sum % 11) {{
        case 0: kept[x & 15] += sum; break;
        case 1: kept[sum & 15] -= x * {c}; n->weight *= 0.{a}; break;
        case 2: emit("node %lu of {f}: %s", sum, n->name); break;
        case 3: for (word i = 0; i < (sum & 63); i++) kept[i & 15] += kept[(i + {b}) & 15] * table_{f}[i % 24]; break;
        case 4: {f'x = visit_{draw.randrange(f)}(n->right, x + 1);' if f else 'x++;'} break;
        case 5: n->name[sum % 24] = (char)(sum % 26 + 'a'); break;
        default: x = mix(x, sum + (word)total);
        }}
        n = x & 1 ? n->left : n->right;
    }}
    for (int i = 0; i < 16; i++) x ^= kept[i] << (i % {c % 5 + 2});
    return x + (word)total;
}}""")
    return "\n".join(lines) + "\n"


def smt_problem(stores):
    """Arrays that are stored into at unknown places, and the factors of a number."""
    draw = random.Random(7)
    lines = ["(declare-const a0 (Array Int Int))"]
    for i in range(stores):
        lines.append(f"(declare-const i{i} Int)(declare-const a{i + 1} (Array Int Int))"
                     f"(assert (= a{i + 1} (store a{i} i{i} (+ 1 (select a{i} {draw.randint(0, 9)})))))")
    lines += [f"(assert (not (= (select a{stores} 0) (select a{stores} 1))))", "(check-sat)", "(reset)"]
    if stores > 20:
        lines += ["(declare-const x (_ BitVec 32))", "(declare-const y (_ BitVec 32))",
                  f"(assert (= (bvmul x y) (_ bv{46337 * 46349} 32)))", "(assert (and (bvult #x00000001 x) (bvult x #x00010000)))",
                  "(assert (and (bvult #x00000001 y) (bvult y #x00010000)))", "(check-sat)"]
    return "\n".join(lines) + "\n"


class Program:
    """A command that is run as it is; what it prints must not depend on the allocator unless it says so."""

    kind = "program"

    def __init__(self, name, command, environment=None, same_output=True):
        self.name, self.command, self.environment, self.same_output = name, list(map(str, command)), environment or {}, same_output

    def run(self, bench, allocator, folder, prefix=()):
        return bench.launch([*prefix, *self.command], allocator.preload, {**self.environment, **allocator.environment}, folder)


class Redis:
    """The server's own time for a fixed number of requests. Its wall time would be that of the client's, so both are its CPU time."""

    name, kind, same_output = "redis", "program", False

    def __init__(self, requests):
        self.requests = requests

    def run(self, bench, allocator, folder, prefix=()):
        path, result = folder / "redis", folder / "redis.json"
        for old in (path, result):
            old.unlink(missing_ok=True)
        # Debian's is linked to jemalloc: to have glibc's malloc, libc is preloaded before it.
        preload = allocator.preload or "libc.so.6"
        server = subprocess.Popen([bench.program("launch"), str(PATIENCE_S), str(result), preload, *prefix, "redis-server", "--port", "0",
                                   "--unixsocket", str(path), "--save", "", "--dir", str(folder), "--appendonly", "no"],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  env={**bench.environment, **allocator.environment}, cwd=folder)
        try:
            end = time.monotonic() + PATIENCE_S
            while not path.exists():
                if server.poll() is not None or time.monotonic() > end:
                    raise RuntimeError("redis-server does not start")
                time.sleep(0.005)
            done = subprocess.run(["redis-benchmark", "-s", str(path), "-n", str(self.requests), "-r", "100000", "-P", "32",
                                   "-c", "20", "-q", "-d", "40", "-t", "set,get,lpush,lpop,hset,sadd"], capture_output=True,
                                  timeout=PATIENCE_S, check=False, env=bench.environment)
            subprocess.run(["redis-cli", "-s", str(path), "shutdown", "nosave"], capture_output=True, timeout=PATIENCE_S,
                           check=False, env=bench.environment)
            server.wait(PATIENCE_S)
        finally:
            if server.poll() is None:
                server.kill()  # and the server with it
                server.wait()
        figures = bench.figures(result)
        figures["wall_s"] = figures["user_s"] + figures["system_s"]
        figures["status"] = figures["status"] or done.returncode
        return figures, b""


def programs(quick, folder):
    """Those that are installed, with their inputs in `folder`."""
    found = []

    def have(name):
        return shutil.which(name) is not None

    def scaled(n):
        return n // 30 if quick else n

    if have("gcc"):
        cc1 = subprocess.run(["gcc", "-print-prog-name=cc1"], capture_output=True, text=True, check=True).stdout.strip()
        (folder / "source.c").write_text(c_source(3 if quick else 22), encoding="utf-8")
        found.append(Program("gcc", [cc1, "-quiet", "-O2", "-g", "-o", "-", "source.c"]))
    if pathlib.Path("/usr/bin/python3").exists():
        found.append(Program("python3", ["/usr/bin/python3", "-S", "-c", PYTHON, scaled(45000)],
                             {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}))
    if have("sqlite3"):
        found.append(Program("sqlite3", ["sqlite3", ":memory:", SQL.format(n=scaled(140000))]))
    if have("perl"):
        found.append(Program("perl", ["perl", "-e", PERL, scaled(96000)], {"PERL_HASH_SEED": "0", "PERL_PERTURB_KEYS": "0"}))
    if have("redis-server") and have("redis-benchmark"):
        found.append(Redis(scaled(120000)))
    if have("z3"):
        (folder / "problem.smt2").write_text(smt_problem(8 if quick else 32), encoding="utf-8")
        found.append(Program("z3", ["z3", "problem.smt2"]))
    if have("gs"):
        (folder / "picture.ps").write_text(POSTSCRIPT.format(pages=1 if quick else 8), encoding="utf-8")
        found.append(Program("ghostscript", ["gs", "-q", "-dBATCH", "-dNOPAUSE", "-sDEVICE=ppmraw", f"-r{20 if quick else 100}",
                                             "-sOutputFile=%stdout", "picture.ps"]))
    return found
