"""Memoir under a real systemd: the shipped unit as a package installs it, with two ordinary users.

Runs as root in the machine that script/test-systemd boots. A line of the results is "ok NAME", "FAILED NAME" or "# ..."; "end" closes.
"""

import json
import os
import pathlib
import pwd
import re
import signal
import socket
import subprocess
import sys
import time
import traceback
import urllib.parse

RESULTS = open(sys.argv[1], "w", encoding="utf-8", buffering=1)
PATIENCE_S = 120
MIB = 1 << 20
KEEPER = """
import sys
kept = [bytearray(1 << 20) for _ in range(24)]
print("ready", flush=True)
sys.stdin.read()
"""


def tell(line):
    for part in str(line).splitlines() or [""]:
        print(part, file=RESULTS)


def run(*command, check=True, user=None, **options):
    """Output of a command, as root or as a user."""
    if user:
        command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--", *command]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, timeout=PATIENCE_S, **options)
    if check and done.returncode:
        raise AssertionError(f"{command}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done


def expect(condition, *told):
    if not condition:
        raise AssertionError(" ".join(map(str, told)))


def eventually(what, get, good=bool):
    deadline = time.monotonic() + PATIENCE_S
    while True:
        value = get()
        if good(value):
            return value
        expect(time.monotonic() < deadline, "waited in vain:", what, value)
        time.sleep(0.1)


def show(name):
    return run("systemctl", "show", "memoird", "--value", "-p", name).stdout.strip()


def main_pid():
    return int(show("MainPID"))


def active():
    return eventually("memoird is active", lambda: show("ActiveState"), lambda state: state == "active")


def status(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def family(pid):
    """Names of all descendants, by PID."""
    found, parents = {}, {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        parents[int(folder.name)] = (int(text.rsplit(")", 1)[1].split()[1]), text[text.index("(") + 1:text.rindex(")")])
    wanted = {pid}
    while True:
        more = {child for child, (parent, _) in parents.items() if parent in wanted} - wanted
        if not more:
            return found
        wanted |= more
        found.update({child: parents[child][1] for child in more})


def journal(*arguments):
    return run("journalctl", "-q", "-u", "memoird", "-o", "cat", "--no-pager", *arguments).stdout


def rows(table, *arguments, user=None):
    """Rows of a table over the native socket's core, as the HTTP socket gives them to a user."""
    words = dict(zip((a.removeprefix("--") for a in arguments[::2]), arguments[1::2]))
    code, text = http(user or "root", "/query?" + urllib.parse.urlencode({"table": table, **words}))
    expect(code == 200, code, text)
    return json.loads(text)


def http(user, path, method="GET", body=None):
    """Status and answer of the HTTP socket, asked by a user."""
    script = (
        "import http.client, json, socket, sys\n"
        "c = http.client.HTTPConnection('localhost', timeout=60)\n"
        "c.sock = socket.socket(socket.AF_UNIX)\n"
        "c.sock.connect('/run/memoird/memoir-http.sock')\n"
        "body = sys.argv[3]\n"
        "c.request(sys.argv[1], '/api/v1' + sys.argv[2], body or None, {'Content-Type': 'application/json'} if body else {})\n"
        "r = c.getresponse()\n"
        "print(r.status); print(r.read().decode())\n")
    out = run("python3", "-c", script, method, path, json.dumps(body) if body is not None else "", user=user).stdout
    code, text = out.split("\n", 1)
    return int(code), text


def held(pid):
    return sum(row["bytes"] or 0 for row in rows("accounts", "--where", f"pid={pid}")["rows"])


class Keeper:
    """A tracked program of a user that holds 24 MiB."""

    def __init__(self, user):
        self.process = subprocess.Popen(
            ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--", "memoir", "run", "python3", "-c", KEEPER],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        expect(self.process.stdout.readline() == "ready\n", "the program did not start")
        children = eventually("python runs", lambda: [p for p, n in family(self.process.pid).items() if n.startswith("python")] or
                              ([self.process.pid] if os.readlink(f"/proc/{self.process.pid}/exe").find("python") > 0 else []))
        self.pid = children[0]

    def end(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)


def test_the_unit_starts_and_says_so():
    run("systemctl", "start", "memoird")
    expect(active() == "active")
    expect(show("Result") == "success", show("Result"))
    tell("# " + run("memoir", "--version").stdout.strip() + ", " + run("uname", "-r").stdout.strip() + ", "
         + run("systemctl", "--version").stdout.splitlines()[0] + ", " + run("stat", "-f", "-c", "%T", "/sys/fs/cgroup").stdout.strip())
    log = run("dmesg", check=False).stdout
    expect("usrquota" not in log, "the kernel was asked for what it does not have")
    told = journal("-p", "warning")
    tell("# warnings in the journal: " + (told.strip() or "none"))


def test_the_processes_have_the_rights_that_the_unit_gives():
    mine = status(main_pid())
    expect(mine["NoNewPrivs"] == "1" and mine["Seccomp"] == "2", mine)
    names = family(main_pid())
    broker = [pid for pid, name in names.items() if name == "memoir-broker"]
    expect(len(broker) == 1, names)
    expect(int(status(broker[0])["CapEff"], 16) == 0b11000000, status(broker[0])["CapEff"])  # SETGID, SETUID
    expect(not int(mine["CapEff"], 16) & 0b11000000, mine["CapEff"])
    tell(f"# processes: {sorted(names.values())}")


def test_systemd_finds_no_exposure_beyond_what_is_needed():
    out = run("systemd-analyze", "security", "--no-pager", "memoird").stdout
    score = float(re.search(r"Overall exposure level for memoird.service: ([\d.]+)", out)[1])
    tell(f"# systemd-analyze security: {score}")
    expect(score <= 6.0, out)


def test_doctor_finds_nothing_broken():
    done = run("memoir", "doctor", check=False)
    tell("\n".join("# " + line for line in done.stdout.splitlines()))
    expect(done.returncode == 0, done.stdout, done.stderr)


def test_the_owner_sees_names_of_call_sites_and_others_only_figures():
    keeper = Keeper("ann")
    try:
        eventually("it is accounted", lambda: held(keeper.pid), lambda n: n >= 24 * MIB)
        code, mine = http("ann", f"/processes/{keeper.pid}/sites")
        expect(code == 200 and "<listcomp>" in mine, code, mine[:2000])
        names = family(main_pid())
        workers = [pid for pid, name in names.items() if name == "memoir-symbols"]
        expect(len(workers) == 1, names)
        worker = status(workers[0])
        expect(worker["Uid"].split() == ["65534"] * 4 and int(worker["CapEff"], 16) == 0 and worker["Seccomp"] == "2", worker)
        code, told = http("ann", f"/processes/{keeper.pid}/scan", "POST", {})
        expect(code in (200, 202), code, told)
        code, told = http("bob", f"/processes/{keeper.pid}/scan", "POST", {})
        expect(code in (403, 404), code, told)
        code, told = http("bob", f"/processes/{keeper.pid}/ages?source=heap")
        expect(code in (403, 404), code, told)
        code, told = http("bob", f"/processes/{keeper.pid}/sites")
        expect(code in (403, 404), code, told[:500])
        theirs = rows("host", "--where", f"pid={keeper.pid}", "--show", "pid,command", user="bob")
        expect("bytearray" not in json.dumps(theirs), theirs)
        eventually("its user sees the command, once it was read",
                   lambda: rows("host", "--where", f"pid={keeper.pid}", "--show", "pid,command", user="ann"),
                   lambda told: "bytearray" in json.dumps(told))
    finally:
        keeper.end()


def test_a_link_logs_in_once():
    link = run("memoir", "open", "--print", user="ann").stdout.strip().splitlines()[-1]
    port = int(re.search(r":(\d+)/login", link)[1])
    path = link[link.index("/login"):]

    def ask(with_path, cookie=""):
        with socket.create_connection(("127.0.0.1", port), 30) as s:
            s.sendall(f"GET {with_path} HTTP/1.1\r\nHost: localhost:{port}\r\n{cookie}Connection: close\r\n\r\n".encode())
            return b"".join(iter(lambda: s.recv(65536), b"")).decode(errors="replace")

    first = ask(path)
    cookie = re.search(r"Set-Cookie: ([^;]+)", first)
    expect(cookie, first[:500])
    expect("HttpOnly" in first and "SameSite=Strict" in first, first[:500])
    expect(" 200 " in ask("/api/v1/self", f"Cookie: {cookie[1]}\r\n").split("\n", 1)[0])
    expect(" 401 " in ask("/api/v1/self").split("\n", 1)[0])
    expect("Set-Cookie" not in ask(path), "a link is good once")


def test_a_kill_is_survived_with_all_figures():
    keeper = Keeper("ann")
    try:
        before = eventually("it is accounted", lambda: held(keeper.pid), lambda n: n >= 24 * MIB)
        old = main_pid()
        os.kill(old, signal.SIGKILL)
        eventually("systemd starts it again", main_pid, lambda pid: pid not in (0, old))
        active()
        after = eventually("the book is found again", lambda: held(keeper.pid), lambda n: n >= 24 * MIB)
        tell(f"# held before {before}, after {after}")
        expect(show("NRestarts") == "1", show("NRestarts"))
        left = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
                if name_of(pid).startswith("memoir-") and pid not in family(main_pid())]
        left = [pid for pid in left if parent_of(pid) != keeper.process.pid]
        eventually("children of the killed one end", lambda: [p for p in left if os.path.exists(f"/proc/{p}")], lambda l: not l)
        run("systemctl", "restart", "memoird")
        active()
        eventually("the book is found again", lambda: held(keeper.pid), lambda n: n >= 24 * MIB)
        run("systemctl", "reload", "memoird")
        expect(active() == "active")
    finally:
        keeper.end()
    eventually("its end is told", lambda: journal(), lambda text: f"PID {keeper.pid} " in text)


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def parent_of(pid):
    try:
        return int(status(pid)["PPid"])
    except (OSError, KeyError):
        return 0


def test_limits_of_services_are_seen():
    run("systemd-run", "--unit=limited", "-p", "MemoryMax=96M", "-p", "MemoryHigh=80M", "python3", "-c",
        "import time; kept = bytearray(b'x') * (40 << 20); time.sleep(1000)")
    try:
        pid = int(run("systemctl", "show", "limited", "--value", "-p", "MainPID").stdout)
        row = eventually("its row has a limit", lambda: rows(
            "host", "--where", f"pid={pid}", "--show", "pid,cgroup,cgroup_limit,cgroup_used,headroom")["rows"],
            lambda r: r and (r[0]["cgroup_used"] or 0) > 40 * MIB)[0]
        tell(f"# {row}")
        expect(row["cgroup_limit"] in (96 * MIB, 80 * MIB) and "limited.service" in row["cgroup"], row)
        expect(0 < row["headroom"] <= 56 * MIB, row)
        table = rows("cgroups", "--where", "name=limited.service", "--show", "name,limit,current,headroom")["rows"]
        expect(table and table[0]["limit"] in (96 * MIB, 80 * MIB) and table[0]["current"] > 40 * MIB, table)
    finally:
        run("systemctl", "stop", "limited")


def test_ends_of_processes_are_told():
    self = json.loads(http("root", "/self")[1])
    tell(f"# exits: {self['exits']}")
    expect(self["exits"]["state"] == "on", self["exits"])
    pid = int(run("sh", "-c", "echo $$; exit 7", check=False).stdout)
    row = eventually("it is listed", lambda: rows("exited", "--where", f"pid={pid}")["rows"])[0]
    expect("7" in row["cause"], row)


def test_an_oom_kill_of_a_service_is_told():
    run("systemd-run", "--unit=greedy", "-p", "MemoryMax=32M", "-p", "MemorySwapMax=0", "--wait", "python3", "-c",
        "kept = [bytearray(b'x') * (1 << 20) for _ in range(200)]", check=False)
    row = eventually("it is listed", lambda: rows("exited", "--where", "kind=oom", "--show", "pid,program,cause,cgroup")["rows"])[0]
    tell(f"# {row}")
    expect("greedy.service" in row["cgroup"], row)


def test_tracing_works_or_says_why_not():
    self = json.loads(http("root", "/self")[1])
    tell(f"# tracing: {self.get('tracing')}")
    names = family(main_pid())
    observers = [pid for pid, name in names.items() if name == "memoir-observe"]
    parsers = [pid for pid, name in names.items() if name == "memoir-parse"]
    expect(len(observers) == len(parsers), names)
    for pid in parsers:
        worker = status(pid)
        expect(int(worker["CapEff"], 16) == 0 and int(worker["CapPrm"], 16) == 0 and worker["Seccomp"] == "2", worker)


def test_attaching_works_or_says_why_not():
    plain = subprocess.Popen(["setpriv", "--reuid=ann", "--regid=ann", "--init-groups", "--", "python3", "-c",
                              "import time\nx = []\nwhile True: x.append(bytearray(100000)); time.sleep(0.01)"])
    try:
        done = run("memoir", "attach", str(plain.pid), check=False)
        tell(f"# attach: exit {done.returncode}: {(done.stdout + done.stderr).strip()[:600]}")
        expect(done.returncode == 0 or "6.6" in done.stderr + done.stdout, done.stdout, done.stderr)
    finally:
        plain.kill()
        plain.wait()


def test_it_stops_in_order():
    run("systemctl", "stop", "memoird")
    expect(show("ActiveState") == "inactive" and show("Result") == "success", show("ActiveState"), show("Result"))
    left = [name_of(pid) for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if name_of(pid).startswith("memoir")]
    expect(not left, left)
    run("systemctl", "start", "memoird")
    active()


def main():
    for user in ("ann", "bob"):
        try:
            pwd.getpwnam(user)
        except KeyError:
            run("useradd", "-m", user)
    run("groupadd", "-f", "memoir")
    for user in ("ann", "bob"):
        run("usermod", "-aG", "memoir", user)
    with open("/etc/memoir/memoird.conf", "a", encoding="utf-8") as f:
        f.write("socket-group = memoir\n")
    run("systemctl", "restart", "memoird")
    tests = [(name, f) for name, f in globals().items() if name.startswith("test_")]
    for name, f in tests:
        began = time.monotonic()
        try:
            f()
            tell(f"ok {name[5:]} {time.monotonic() - began:.1f} s")
        except Exception:  # every kind of failure is one of the test
            tell("\n".join("# " + line for line in traceback.format_exc().splitlines()))
            tell(f"FAILED {name[5:]}")
    tell("# journal of memoird:")
    tell("\n".join("# " + line for line in journal().splitlines()[-60:]))
    tell("end")


try:
    main()
finally:
    RESULTS.close()
    subprocess.run(["systemctl", "poweroff", "--no-block"], check=False)
