"""Ordinary programs, plain and under memoir run: the same output and exit status, and no block told as lost that valgrind does not find lost.

Usage: programs.py BUILD [NAME...]

Each program runs plain, with memoir's allocator, and with the tracker in front of the C library's; in the two latter with a scan at its end. A
program that is not installed is skipped, and said to be. valgrind is asked only where a scan tells of lost blocks."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

TIMEOUT_S = 120
VALGRIND_TIMEOUT_S = 600
MODES = {"malloc": ["--malloc"], "track": ["--track"]}
TEXT = "".join(f"{i * 7919 % 1000} line {i} of a text that is sorted, searched and packed\n" for i in range(3000))

# Name: command, what it reads, whether valgrind can tell of it. {dir} is a folder with the files of make_files().
PROGRAMS = {
    "ls": (["ls", "-lR", "--time-style=+%Y", "{dir}/tree"], None, True),
    "ls-plain": (["ls", "{dir}/tree"], None, True),
    "sort": (["sort", "-n"], TEXT, True),
    "sort-many": (["sort", "--parallel=2", "-S", "64K"], TEXT, True),
    "awk": (["awk", "{{ n[$1] += $3 }} END {{ for (k in n) print k, n[k] | \"sort -n\" }}"], TEXT, True),
    "sed": (["sed", "-e", "s/line \\([0-9]*\\)/\\1th/", "-e", "y/abc/xyz/"], TEXT, True),
    "grep": (["grep", "-nE", "^(1|2)+ .*9 of"], TEXT, True),
    "cut": (["cut", "-d ", "-f1,3"], TEXT, True),
    "tr": (["tr", "a-z", "A-Z"], TEXT, True),
    "wc": (["wc"], TEXT, True),
    "date": (["date", "-u", "-d", "2020-01-01", "+%F"], None, True),
    "expr": (["expr", "12345", "*", "6789"], None, True),
    "stat": (["stat", "-c", "%s", "{dir}/text"], None, True),
    "diff": (["diff", "{dir}/text", "{dir}/other"], None, True),
    "find": (["find", "{dir}/tree", "-name", "*3*"], None, True),
    "tar": (["tar", "-c", "--mtime=@0", "--sort=name", "-C", "{dir}", "tree"], None, True),
    "xz": (["xz", "-c", "-1"], TEXT, True),
    "gzip": (["gzip", "-cn"], TEXT, True),
    "bash": (["bash", "-c", "for i in {{1..300}}; do a[i]=$((i*i)); done; echo ${{a[@]}} | md5sum; (exit 3)"], None, True),
    "dash": (["dash", "-c", "i=0; while [ $i -lt 500 ]; do i=$((i+1)); done; echo $i; exit 4"], None, True),
    "git": (["git", "-C", "{dir}/repository", "log", "--stat", "--format=%s"], None, True),
    "python": (["/usr/bin/python3", "-I", "-c", "import json, re; print(len(json.dumps({{str(i): [i] * 9 for i in range(2000)}})))"],
               None, False),
    "perl": (["perl", "-ne", "$n{{length $_}}++; END {{ print \"$_ $n{{$_}}\\n\" for sort keys %n }}"], TEXT, True),
    "php": (["php", "-n", "-r", "$a = []; for ($i = 0; $i < 5000; $i++) $a[\"k$i\"] = str_repeat('x', $i % 50); echo count($a);"], None, False),
    # With the extensions of its configuration, which it loads with RTLD_DEEPBIND; -n above loads none.
    "php-extensions": (["php", "-r", "echo count(get_loaded_extensions()) > 10, md5(json_encode(range(1, 500))), ctype_alpha('x');"], None, True),
    "sqlite3": (["sqlite3", ":memory:", "create table t (a, b); with recursive n (i) as (select 1 union all select i + 1 from n "
                 "where i < 3000) insert into t select i, i * i from n; select count(*), sum(b) from t where a % 7 = 3;"], None, True),
    "gcc": (["gcc", "-O1", "-S", "-o", "-", "{dir}/program.c"], None, True),
    "make": (["make", "-s", "-C", "{dir}", "-f", "Makefile"], None, True),
    "vim": (["vim", "-es", "-u", "NONE", "-i", "NONE", "-c", "%s/line/row/|1,5p|q!", "{dir}/text"], None, True),
    "openssl": (["openssl", "dgst", "-sha256", "{dir}/text"], None, True),
    "node": (["node", "-e", "const m = new Map(); for (let i = 0; i < 20000; i++) m.set('k' + i, [i]); console.log(m.size)"], None, False),
    "gdb": (["gdb", "-nx", "-batch", "-ex", "print 6*7"], None, False),
    "man": (["man", "-P", "cat", "-l", "{dir}/page.1"], None, False),
    "bc": (["bc", "-q"], "2^2000 % 987654321\n", True),
    "curl": (["curl", "-s", "file://{dir}/text"], None, True),
    "git-gc": (["sh", "-c", "rm -rf {dir}/clone && git clone -q {dir}/repository {dir}/clone && git -C {dir}/clone gc -q && "
                "git -C {dir}/clone fsck --full && git -C {dir}/clone diff --stat HEAD~3"], None, False),
    "gcc-link": (["gcc", "-O2", "-g", "-o", "{dir}/program", "{dir}/program.c"], None, True),
    "g++": (["g++", "-O1", "-S", "-o", "-", "{dir}/program.cpp"], None, True),
    "clang": (["clang", "-O1", "-S", "-o", "-", "{dir}/program.c"], None, False),
    "objdump": (["objdump", "-d", "-S", "/bin/true"], None, True),
    "ruby": (["ruby", "-rjson", "-e", "h = Hash.new(0); 20000.times {{ |i| h[(i * 7919 % 1000).to_s] += i }}; puts JSON.dump(h).size; exit 5"], None, True),
    "lua": (["lua5.4", "-e", "local t = {{}} for i = 1, 50000 do t[i] = tostring(i):rep(3) end print(#table.concat(t))"], None, True),
    "tcl": (["tclsh"], "set s 0; for {set i 0} {$i < 20000} {incr i} {dict set d $i [expr {$i * $i}]; incr s $i}; puts \"$s [dict size $d]\"\n", True),
    "java": (["java", "-XX:-UsePerfData", "-Xmx64m", "-Xshare:auto", "-cp", "{dir}", "Program"], None, False),
    "jq": (["jq", "-c", "map(select(.n % 7 == 0)) | group_by(.k) | map({{k: .[0].k, n: length}})", "{dir}/list.json"], None, True),
    "xmllint": (["xmllint", "--xpath", "count(//row[@k='3'])", "{dir}/rows.xml"], None, True),
    "zip": (["sh", "-c", "cd {dir} && rm -f t.zip && zip -qrX t.zip tree && unzip -l t.zip"], None, False),
    "bzip2": (["bzip2", "-c"], TEXT, True),
    "zstd": (["zstd", "-c", "-q", "-T2", "-19"], TEXT, True),
    "rsync": (["rsync", "-an", "--out-format=%n %l", "{dir}/tree", "{dir}/nowhere/"], None, True),
    "convert": (["/usr/bin/convert", "-size", "300x200", "gradient:red-blue", "-resize", "50%", "-blur", "0x3", "ppm:-"], None, False),
    "ffmpeg": (["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc=duration=1:size=160x120:rate=10", "-bitexact", "-threads", "2", "-c:v", "mpeg4",
                "-f", "avi", "-"], None, False),
    "gs": (["gs", "-q", "-dNODISPLAY", "-dBATCH", "-dNOPAUSE", "-c", "1 1 2000 {{dup mul}} for count ="], None, False),
    "cmake": (["cmake", "-P", "{dir}/script.cmake"], None, True),
    "initdb": (["sh", "-c", "rm -rf {dir}/db && install -d -o postgres {dir}/db && PATH=$PATH:$(echo /usr/lib/postgresql/*/bin) setpriv --reuid=postgres "
                "--regid=postgres --clear-groups initdb -N -E UTF8 --locale=C -D {dir}/db | grep -v pg_ctl"], None, False),
}


def make_files(folder):
    for i in range(40):
        place = folder / "tree" / f"folder{i % 5}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"file{i}").write_text("x" * i * 10)
    for path in [folder / "tree", *(folder / "tree").rglob("*")]:
        os.utime(path, (0, 0))
    (folder / "text").write_text(TEXT)
    (folder / "other").write_text(TEXT.replace("line 7", "line seven"))
    (folder / "program.c").write_text("int f(int x) { return x * 3; }\nint main(int n, char **v) { return f(n); }\n")
    (folder / "Makefile").write_text("all: ; @for i in 1 2 3; do echo $$i; done\n")
    (folder / "page.1").write_text(".TH PAGE 1\n.SH NAME\npage \\- a page\n.SH TEXT\n" + "A word or two.\n" * 50)
    (folder / "program.cpp").write_text("#include <map>\n#include <string>\nint main() { std::map<std::string, int> m; m[\"a\"] = 1; return m.size() - 1; }\n")
    (folder / "list.json").write_text(json.dumps([{"n": i, "k": i * 31 % 17} for i in range(3000)]))
    (folder / "rows.xml").write_text("<rows>" + "".join(f"<row k='{i % 9}'>{i}</row>" for i in range(3000)) + "</rows>")
    (folder / "script.cmake").write_text(
        'foreach(i RANGE 2000)\n  list(APPEND l "x${i}")\nendforeach()\nlist(LENGTH l n)\nstring(SHA1 h "${l}")\nmessage("${n} ${h}")\n')
    (folder / "Program.java").write_text(
        "public class Program { public static void main(String[] a) { java.util.Map<Integer, String> m = new java.util.TreeMap<>();\n"
        "for (int i = 0; i < 50000; i++) m.put(i * 7919 % 10007, \"v\" + i); System.out.println(m.size()); System.exit(6); } }\n")
    if shutil.which("javac"):
        subprocess.run(["javac", "-d", str(folder), str(folder / "Program.java")], check=True)
    folder.chmod(0o755)
    repository = folder / "repository"
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    for i in range(5):
        (repository / f"file{i}").write_text(TEXT[: 1000 * i + 1])
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-qm", f"commit {i}"], check=True)


def run(command, text, timeout=TIMEOUT_S):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MEMOIR")} | {"LC_ALL": "C.UTF-8", "TERM": "dumb"}
    done = subprocess.run(command, input=(text or "").encode(), capture_output=True, timeout=timeout, env=environment, check=False)
    return done.returncode, done.stdout, done.stderr


def valgrind_lost(command, text):
    """Blocks that valgrind finds lost, directly or with others."""
    code, _, said = run(["valgrind", "--leak-check=full", "--num-callers=4", "--child-silent-after-fork=yes", *command], text, VALGRIND_TIMEOUT_S)
    said = said.decode(errors="replace")
    if "no leaks are possible" in said:
        return 0
    # Children say nothing: the summary is the program's own.
    found = re.findall(r"(definitely|indirectly) lost: [\d,]+ bytes in ([\d,]+) blocks", said)
    return sum(int(blocks.replace(",", "")) for _, blocks in found) if found else None


class Programs:
    def __init__(self, build, folder):
        self.memoir = pathlib.Path(build) / "src/cli/memoir"
        self.folder = folder
        self.wrong = []

    def say_wrong(self, name, text):
        print(f"not ok - {name}: {text}")
        self.wrong.append(name)

    def one_mode(self, name, mode, command, text, plain, ask_valgrind):
        summary = self.folder / "summary.json"
        under = [str(self.memoir), "run", "--dir", str(self.folder / "books"), *MODES[mode], "--quiet"]
        if (got := run([*under, "--", *command], text)) != plain:
            return self.say_wrong(name, f"{mode}: plain {plain!r:.300}, got {got!r:.300}")
        summary.unlink(missing_ok=True)
        if (got := run([*under, "--scan", "--json", str(summary), "--", *command], text)) != plain:
            return self.say_wrong(name, f"{mode}, scanned: plain {plain!r:.300}, got {got!r:.300}")
        told = json.loads(summary.read_text())
        scan = told["scan"]
        if not told["tracked"] or not scan:
            return self.say_wrong(name, f"{mode}: not tracked or not scanned: {told['why_not']}")
        if not scan["proof"]:
            return self.say_wrong(name, f"{mode}: no proof, {scan['unread']} bytes could not be read")
        lost = scan["lost"]["blocks"] + scan["indirectly_lost"]["blocks"]
        if lost and ask_valgrind and shutil.which("valgrind"):
            true = valgrind_lost(command, text)
            if true is not None and lost > true:
                sites = [(s["state"], s["blocks"], s["bytes"], s["site"]) for s in scan["sites"][:5]]
                return self.say_wrong(name, f"{mode}: {lost} blocks lost, valgrind finds {true}: {sites}")
        print(f"ok - {name} {mode}: {told['heap']['blocks'] if told['heap'] else 0} blocks at the end, {lost} lost")

    def one(self, name):
        command, text, ask_valgrind = PROGRAMS[name]
        command = [word.format(dir=self.folder) for word in command]
        if not shutil.which(command[0]):
            print(f"ok - {name} # SKIP not installed")
            return
        plain = run(command, text)
        if run(command, text) != plain:
            print(f"ok - {name} # SKIP it says something else each time")
            return
        for mode in MODES:
            self.one_mode(name, mode, command, text, plain, ask_valgrind)

    def server(self, name, command, ready, load, end):
        """One that serves a short load, plain and in both modes: what its clients get is the same, and so is how it ends."""
        if not shutil.which(command[0]):
            print(f"ok - {name} # SKIP not installed")
            return
        plain = None
        for mode in (None, *MODES):
            summary = self.folder / "summary.json"
            under = [] if mode is None else [str(self.memoir), "run", "--dir", str(self.folder / "books"), "--quiet", *MODES[mode],
                                             "--scan", "--json", str(summary), "--"]
            with open(self.folder / "log", "wb") as log:
                process = subprocess.Popen([*under, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            deadline = time.monotonic() + TIMEOUT_S
            while run(*ready)[0] != 0 and time.monotonic() < deadline and process.poll() is None:
                time.sleep(0.05)
            answers = [run(*step) for step in load]
            run(*end)
            got = (answers, process.wait(TIMEOUT_S))
            if mode is None:
                plain = got
            elif got != plain:
                self.say_wrong(name, f"{mode}: plain {plain!r:.300}, got {got!r:.300}")
            else:
                told = json.loads(summary.read_text())
                lost = told["scan"]["lost"]["blocks"] if told["scan"] else None
                if lost is None or not told["scan"]["proof"]:
                    self.say_wrong(name, f"{mode}: not scanned, or no proof: {told['scan']}")
                else:
                    print(f"ok - {name} {mode}: {lost} blocks lost")

    def servers(self, wanted):
        if "redis" in wanted:
            socket = str(self.folder / "redis")
            client = ["redis-cli", "-s", socket]
            load = [([*client, "eval", "for i = 1, 2000 do redis.call('set', 'k' .. i, string.rep('x', i % 100)) end return 1", "0"], None),
                    ([*client, "get", "k77"], None), ([*client, "dbsize"], None), ([*client, "flushall"], None)]
            self.server("redis", ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--daemonize", "no"],
                        ([*client, "ping"], None), load, ([*client, "shutdown", "nosave"], None))
        if "nginx" in wanted:
            (self.folder / "nginx.conf").write_text(
                f"daemon off; master_process off; pid {self.folder}/nginx.pid; error_log {self.folder}/nginx.log;\n"
                "events {} http { access_log off; server { "
                f"listen unix:{self.folder}/nginx; root {self.folder}; }} }}\n")
            client = ["curl", "-s", "--unix-socket", str(self.folder / "nginx"), "http://localhost/text"]
            self.server("nginx", ["nginx", "-c", str(self.folder / "nginx.conf"), "-p", str(self.folder)], (client, None), [(client, None)] * 20,
                        (["sh", "-c", f"kill -QUIT $(cat {self.folder}/nginx.pid)"], None))


def main():
    names = sys.argv[2:] or [*PROGRAMS, "redis", "nginx"]
    unknown = [n for n in names if n not in PROGRAMS and n not in ("redis", "nginx")]
    if unknown:
        sys.exit(f"unknown: {' '.join(unknown)}; there are: {' '.join([*PROGRAMS, 'redis', 'nginx'])}")
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="memoir-programs-") as folder:
        programs = Programs(sys.argv[1], pathlib.Path(folder))
        (programs.folder / "books").mkdir()
        make_files(programs.folder)
        for name in names:
            if name in PROGRAMS:
                programs.one(name)
                sys.stdout.flush()
        programs.servers(names)
    sys.exit(f"wrong: {' '.join(sorted(set(programs.wrong)))}" if programs.wrong else 0)


if __name__ == "__main__":
    main()
