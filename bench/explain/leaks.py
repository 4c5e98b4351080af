"""Services with a planted leak under memoir run: which are found by a watch of all of them, and by which line."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent / "leak"
START_S = 10  # imports, first compilations; what comes later is part of the watch
# Buffers that a runtime takes from malloc: its own function is the name.
RUNTIME_SITES = r"^(node::|v8::.*ArrayBuffer|Unsafe_AllocateMemory)"
RUNTIME = "outside malloc"  # the space of rows that are no call sites
BOOKLESS = {"Go"}  # linked statically: nothing can be preloaded, so each is watched by its PID, as a whole


def build_all(folder):
    """Commands by language, without kind and mode; and what is missing."""
    found, missing = {}, []

    def have(language, tool, command, *build):
        if not shutil.which(tool):
            missing.append(f"{language} ({tool})")
            return
        if build:
            subprocess.run([str(word) for word in build], check=True, stdout=subprocess.DEVNULL)
        found[language] = [str(word) for word in command]

    have("C", "gcc", [folder / "c"], "gcc", "-O2", "-g", HERE / "service.c", "-o", folder / "c")
    have("C++", "g++", [folder / "cpp"], "g++", "-O2", "-g", HERE / "service.cpp", "-o", folder / "cpp")
    have("Rust", "rustc", [folder / "rust"], "rustc", "-O", "-g", HERE / "service.rs", "-o", folder / "rust")
    have("Python", sys.executable, [sys.executable, HERE / "service.py"])
    have("Node", "node", ["node", HERE / "service.js"])
    have("Java", "javac", ["java", "-Xmx512m", "-cp", folder, "Service"], "javac", "-d", folder, HERE / "Service.java")
    have("Go", "go", [folder / "go"], "go", "build", "-o", folder / "go", HERE / "service.go")
    have("Go, cgo", "go", [folder / "gocgo"], "go", "build", "-o", folder / "gocgo", HERE / "service_cgo.go")
    have("PHP", "php", ["php", "-d", "memory_limit=2G", HERE / "service.php"])
    return found, missing


SOURCES = {"C": "service.c", "C++": "service.cpp", "Rust": "service.rs", "Python": "service.py"}
CASES = [("C", "plain"), ("C", "wrapper"), ("C++", "map"), ("C++", "cycle"), ("C++", "strings"), ("Rust", "vec"), ("Rust", "rc"),
         ("Python", "bytes"), ("Python", "dicts"), ("Python", "objects"), ("Python", "threads"), ("Python", "asyncio"),
         ("Node", "heap"), ("Node", "buffer"), ("Java", "heap"), ("Java", "direct"), ("Go", "heap"), ("Go, cgo", "heap"), ("PHP", "heap")]


def wanted(language, kind):
    """The line that its developer wants to read; None: the runtime's own heap."""
    if language not in SOURCES:
        return None
    for number, line in enumerate((HERE / SOURCES[language]).read_text().splitlines(), 1):
        if re.search(rf"LINE:{kind}\b", line):
            return f"{SOURCES[language]}:{number}"
    raise SystemExit(f"no line of {language} {kind} is marked")


def start(memoir, books, command, kind, mode):
    return subprocess.Popen([memoir, "run", "-q", "--dir", books, "--", *command, kind, "steady" if mode == "steady" else "leak"],
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def pid_of(child):
    """memoir run becomes the program, or is its parent."""
    try:
        children = pathlib.Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    except OSError:
        children = []
    return {child.pid, *map(int, children)}


def judge(rows, language, kind):
    """What the worst verdict is, which row has the wanted name, and what is told of the largest one."""
    line = wanted(language, kind)
    grown = [row for row in rows if row["verdict"] in ("leak", "growing")]
    named = [row for row in grown if (row["site"] or "").split(" ")[0] == line] if line else \
        [row for row in grown if row["space"] == RUNTIME or row["space"] == "resident" and row["site"] or re.search(RUNTIME_SITES, row["site"] or "")]
    told = max(named or grown, key=lambda row: row["growth"] or 0, default=None)
    return line, grown, named, told


KEPT = ("program", "pid", "space", "verdict", "confidence", "reason", "growth", "bytes", "blocks", "site", "via", "stack_samples", "samples")


def grown_rows(rows):
    """What is kept as raw data: all that leaks or grows, without charts and stacks."""
    return [{key: row.get(key) for key in KEPT} for row in rows if row["verdict"] in ("leak", "growing")]


def bench(build, results, mode, quick):
    memoir = build.resolve() / "src/cli/memoir"
    seconds = (40 if quick else 50) if mode == "leaks" else (60 if quick else 300)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="memoir-bench-leaks-"))
    books = pathlib.Path(tempfile.mkdtemp(prefix="memoir-bench-leaks-", dir="/dev/shm"))
    running = []
    try:
        commands, missing = build_all(folder)
        for name in missing:
            print(f"left out, since it is not installed: {name}")
        for language, kind in CASES:
            if language in commands:
                running.append((language, kind, start(memoir, books, commands[language], kind, mode)))
        time.sleep(START_S)
        watch = [memoir, "leaks", "--dir", books, "--for", f"{seconds}s", "--json", "--all"]
        watches = [subprocess.Popen([*watch, *pid], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                   for pid in ([], *([str(child.pid)] for language, _, child in running if language in BOOKLESS))]
        rows = [row for done in watches for row in json.loads(done.communicate()[0])["rows"]]
        table(mode, seconds, running, rows)
        (results / f"{mode}.json").write_text(json.dumps(grown_rows(rows), indent=1) + "\n")
    finally:
        for _, _, child in running:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(books, ignore_errors=True)


def table(mode, seconds, running, rows):
    if mode == "leaks":
        print(f"\nservices that leak, watched for {seconds} s, {START_S} s after their start")
        print(f"{'service':18}{'found':>9}  {'wanted':>16}  {'by that name':>12}  {'told'}")
    else:
        print(f"\nthe same services without a leak, watched for {seconds} s")
        print(f"{'service':18}{'leaks':>9}{'growing':>9}  told")
    for language, kind, child in running:
        own = [row for row in rows if row["pid"] in pid_of(child)]
        line, grown, named, told = judge(own, language, kind)
        text = f"{told['verdict']}: {told['site']}" + (f" via {told['via']}" if told.get("via") else "") if told else "-"
        if mode == "leaks":
            print(f"{language + ' ' + kind:18}{'yes' if grown else 'no':>9}  {line or 'the runtime':>16}  {'yes' if named else 'no':>12}  {text}", flush=True)
        else:
            leaks = sum(row["verdict"] == "leak" for row in own)
            print(f"{language + ' ' + kind:18}{leaks:>9}{len(grown) - leaks:>9}  {text}", flush=True)
