"""Lives that come and go (test/leaks/life.c), what they say of themselves, and what their books and memoird say of them."""

import collections
import json
import os
import pathlib
import random
import select
import signal
import socket
import struct
import subprocess
import time

from cli_support import ENVIRONMENT
from daemon_fixture import BUILD
from faults_support import Book
from memoir.book import BookError
from memoir.client import Client

LIFE = BUILD / "test/leaks/leak_life"
MEMOIR = BUILD / "src/cli/memoir"
TRACKER = BUILD / "src/track/libmemoir-track.so"
PATIENCE_S = 60
HEAP = 1
ORDERLY = "erx"  # ends after which a book goes that nobody watched: by the tracker's last word, or by the next image
FIGURES = ("alloc_blocks", "alloc_bytes", "freed_blocks", "freed_bytes")
PAGE = struct.Struct("=4Q4Q4Q4Q2Q1Q1Q")


class Drift(AssertionError):
    """Book and truth differ."""


def told(path):
    """What a life counted: begun, done, freed of what it inherited (begun, done), lost, threads that ended."""
    sums = [0] * 20
    for page in PAGE.iter_unpack(path.read_bytes()):
        sums = [a + b for a, b in zip(sums, page)]
    return {"begun": sums[0:4], "done": sums[4:8], "inherited_begun": sums[10:12], "inherited_done": sums[14:16],
            "lost": sums[16:18], "threads": sums[18]}


def counted(book):
    """What the book says of the program's own code, by the exact counters."""
    sums = [0, 0, 0, 0]
    for site in book.sites():
        if not site.sampled and site.frames and site.frames[0].module \
                and site.frames[0].module.path in ("", book.identity.exe):
            sums = [a + getattr(site, name) for a, name in zip(sums, FIGURES)]
    return sums


def heap(book):
    """The whole account: (totals, blocks inherited, bytes inherited)."""
    accounts = [a for a in book.accounts() if a.space == HEAP]
    totals = book.totals()
    sums = [sum(getattr(totals[a.record], name) for a in accounts) for name in FIGURES]
    return sums, [sum(a.inherited_blocks for a in accounts), sum(a.inherited_bytes for a in accounts)]


def state_of(pid, book):
    """What keeps a process, and who else maps its book: for whoever reads of a test that failed."""
    words = []
    for task in pathlib.Path("/proc").glob(f"{pid}/task/*"):
        try:
            words.append([task.name, (task / "wchan").read_text(), (task / "syscall").read_text().split()[:2]])
        except OSError as reason:
            words.append([task.name, str(reason)])
    name = f"{pid}-{book.identity.start_ticks}"
    for maps in pathlib.Path("/proc").glob("[0-9]*/maps"):
        try:
            if name in maps.read_text(errors="replace"):
                words.append(f"mapped by {maps.parent.name} {(maps.parent / 'comm').read_text().strip()}")
        except OSError:
            pass
    return words


class Life:
    """One process image: from its start or exec to its end or the next exec."""

    def __init__(self, world, connection, pid, number):
        self.world, self.connection, self.pid, self.number = world, connection, pid, number
        self.born = time.monotonic()
        self.truth = world.truths / f"{pid}-{number}"
        self.inherited = None  # what it inherited, in [blocks, bytes], once known

    def say(self, letter):
        self.connection.sendall(letter.encode())

    def line(self):
        ready, _, _ = select.select([self.connection], [], [], PATIENCE_S)
        text = self.connection.recv(64) if ready else b""
        if not text:
            raise AssertionError(f"PID {self.pid} does not answer")
        return text.decode().strip()

    def book(self):
        """Its book, or None while it has allocated too little for one."""
        for path in self.world.books.glob(f"*/{self.pid}-*.book"):
            try:
                book = Book.open(path)
            except (OSError, BookError):  # not ready yet, or just gone
                continue
            over = (self.pid, book.identity.created_realtime_ns) in self.world.over
            if book.identity.pid == self.pid and not over and book.writer_alive():
                return book
            book.close()
        return None

    def compare(self, book, exactly):
        truth, books = told(self.truth), counted(book)
        low, high = truth["done"], truth["begun"]
        if exactly and low != high:
            raise AssertionError(f"PID {self.pid} does not stand still")
        losses = book.status().losses
        if any(not a <= b <= c for a, b, c in zip(low, books, high)):
            raise Drift(f"PID {self.pid}: {FIGURES} are {books}, and in truth {low} to {high}, with losses {losses}")
        if losses:
            raise Drift(f"PID {self.pid}: losses {losses}")
        sums, inherited = heap(book)
        for i, what in enumerate(("blocks", "bytes")):
            before = inherited[i] + truth["inherited_done"][i]
            if self.inherited is not None and exactly and before != self.inherited[i]:
                raise Drift(f"PID {self.pid}: inherited {what} are {before}, and were {self.inherited[i]}")
        if exactly:
            self.inherited = [inherited[i] + truth["inherited_done"][i] for i in (0, 1)]
        return sums


class World:
    """Lives, a memoird that watches them, and the figures of both."""

    def __init__(self, folder, books, state, daemon_pid, native, seed, population):
        self.books, self.state, self.client = books, state, Client(str(native))
        self.truths = folder / "truths"
        self.truths.mkdir()
        self.random = random.Random(seed)
        self.population = population
        self.daemon = pathlib.Path(f"/proc/{daemon_pid}")
        self.count = collections.Counter()
        self.lives, self.briefs, self.dead = [], [], {}
        self.over = set()  # books whose writer has been seen gone: who looks at one takes its lock for a moment
        self.retired_at, self.retired_file, self.seeds = 0, None, seed
        self.path = folder / "home"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen(64)
        self.children = {}

    # ---- who lives ----

    def start(self):
        self.seeds += 1
        environment = ENVIRONMENT | {"LD_PRELOAD": str(TRACKER), "MEMOIR_DIR": str(self.books)}
        child = subprocess.Popen([str(LIFE), str(self.path), str(self.truths), str(self.seeds)], env=environment,
                                 stdin=subprocess.DEVNULL)
        self.children[child.pid] = child
        self.count["started"] += 1
        self.welcome()

    def welcome(self):
        """The next one that calls."""
        ready, _, _ = select.select([self.listener], [], [], PATIENCE_S)
        if not ready:
            raise AssertionError("a life did not call")
        connection, _ = self.listener.accept()
        life = Life(self, connection, 0, 0)
        life.pid, life.number = map(int, life.line().split())
        life.truth = self.truths / f"{life.pid}-{life.number}"
        self.lives.append(life)
        return life

    def gone(self, life, book, how, watched):
        """Its image has ended: what the book said last, and that memoird remembers it."""
        end = time.monotonic() + PATIENCE_S
        while book.writer_alive():
            if time.monotonic() > end:
                raise AssertionError(f"PID {life.pid} does not end ({how}): {state_of(life.pid, book)}")
            time.sleep(0.002)
        self.over.add((life.pid, book.identity.created_realtime_ns))
        self.lives.remove(life)
        life.connection.close()
        sums = life.compare(book, exactly=False)
        self.count["post_mortem"] += 1
        self.forget(life.truth)
        if how not in ORDERLY or watched:  # else the book may be gone before memoird sees it
            self.dead[(life.pid, book.identity.created_realtime_ns, life.number)] = (sums, time.monotonic())
        book.close()
        if how != "x" and life.pid in self.children:
            self.children.pop(life.pid).wait(PATIENCE_S)

    def forget(self, path):
        truth = told(path)
        for i, name in enumerate(FIGURES):
            self.count[name] += truth["done"][i]
        self.count["threads_ended"] += truth["threads"]
        self.count["lost_blocks"] += truth["lost"][0]
        path.unlink()

    # ---- what happens ----

    def act(self):
        while len(self.lives) < self.population:
            self.start()
        life = self.random.choice(self.lives)
        crowded = len(self.lives) >= 2 * self.population
        choice = self.random.random()
        if choice < 0.55:
            self.check(life)
        elif choice < 0.70:
            life.say("b")
            self.count["brief"] += 1
        elif choice < 0.78 and not crowded:
            life.say(self.random.choice("fF"))
            self.count["forks"] += 1
            self.welcome()
        else:
            self.end(life, crowded)

    def check(self, life):
        life.say("c")
        if life.line() != "still":
            raise AssertionError(f"PID {life.pid} did not understand")
        book = life.book()
        try:
            if book is None:
                if told(life.truth)["done"][0] > 2000 and time.monotonic() - life.born > PATIENCE_S:
                    raise Drift(f"PID {life.pid} has no book")
                self.count["checks_without_book"] += 1
                return
            with book:
                sums = life.compare(book, exactly=True)
            self.count["checks"] += 1
            if self.count["checks"] % 10 == 0:
                self.ask_daemon(life, sums)
            if self.count["checks"] % 25 == 0:
                self.scan(life)
        finally:
            life.say("g")

    def end(self, life, crowded):
        book = life.book()
        if book is None:
            return  # too young
        how = self.random.choice("kkkerqa" if crowded else "kerqaxxxx")
        watched = bool(book.watchers())
        if how == "k":
            time.sleep(self.random.random() * 0.02)
            os.kill(life.pid, signal.SIGKILL)
        else:
            life.say(how)
        self.count[{"k": "killed", "e": "exit", "r": "return", "q": "_exit", "a": "abort", "x": "exec"}[how]] += 1
        self.count["exec_watched"] += how == "x" and watched
        self.gone(life, book, how, watched)
        if how == "x":
            self.welcome()

    # ---- what others say ----

    def memoir(self, *words, tries=1):
        for _ in range(tries):  # on a busy machine threads may take too long to stop
            done = subprocess.run([str(MEMOIR), *map(str, words)], capture_output=True, text=True, env=ENVIRONMENT,
                                  timeout=PATIENCE_S, check=False, stdin=subprocess.DEVNULL)
            if done.returncode == 0:
                break
        if done.returncode != 0:
            raise AssertionError(f"memoir {words} ended with {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    def ask_daemon(self, life, sums):
        """What memoird says over its socket of a process that stands still."""
        live = [sums[0] - sums[2], sums[1] - sums[3]]
        end, found = time.monotonic() + PATIENCE_S, None
        while time.monotonic() < end:
            found = [row["heap"] for row in self.client.query(where=f"pid={life.pid}", show="pid,heap")]
            if found == [live[1]]:
                self.count["daemon_checks"] += 1
                return
            time.sleep(0.1)  # the book may be new to it
        raise Drift(f"PID {life.pid}: memoird says {found} bytes, and the book {live[1]}")

    def scan(self, life):
        """Nothing is called lost that is not."""
        lost = told(life.truth)["lost"]
        document = self.memoir("leaks", "--scan", life.pid, "--json", "--dir", self.books, tries=5)
        blocks = sum(site["blocks"] for site in document["sites"] if "lost" in site["state"])
        if blocks > lost[0]:
            raise Drift(f"PID {life.pid}: {blocks} blocks called lost, in truth {lost[0]}")
        self.count["scans"] += 1
        self.count["scan_lost_truth"] += lost[0]
        self.count["scan_lost_found"] += blocks

    def look_at_retired(self):
        """What memoird wrote of those that ended is what their books said last."""
        path = self.state / "retired.jsonl"
        if not path.exists():
            return
        with path.open("rb") as file:
            number = os.fstat(file.fileno()).st_ino
            if self.retired_file not in (None, number):  # it was full: the rest of it has another name
                with path.with_name("retired.jsonl.1").open("rb") as rest:
                    self.read_retired(rest)
                self.retired_at = 0
            self.retired_file = number
            self.read_retired(file)

    def read_retired(self, file):
        file.seek(self.retired_at)
        for line in file:
            if not line.endswith(b"\n"):
                break
            self.retired_at += len(line)
            self.match(json.loads(line))

    def match(self, record):
        sums = [sum(account[name] for account in record["accounts"] if account["space"] == "heap")
                for name in ("alloc_blocks", "alloc_bytes", "live_blocks", "live_bytes")]
        for identity, (book, _when) in self.dead.items():
            if identity[0] == record["pid"] and book[:2] == sums[:2]:
                if [book[0] - book[2], book[1] - book[3]] != sums[2:]:
                    raise Drift(f"PID {record['pid']}: memoird remembers {sums}, and the book said {book}")
                del self.dead[identity]
                self.count["retired"] += 1
                return
        truth = self.truths / f"{record['pid']}-0"
        if truth.exists() and record["pid"] not in {life.pid for life in self.lives}:
            done = told(truth)["done"]  # a brief one, which allocates nothing but its own
            if [done[0], done[1], done[0] - done[2], done[1] - done[3]] != sums:
                raise Drift(f"PID {record['pid']}: memoird remembers {sums}, and in truth {done}")
            self.forget(truth)
            self.count["retired_brief"] += 1

    def overdue(self, seconds=PATIENCE_S):
        late = [key for key, (_sums, when) in self.dead.items() if time.monotonic() - when > seconds]
        if late:
            raise Drift(f"memoird has not written of {late}")

    def descriptors(self):
        """What memoird keeps: of processes of the machine, of which some have ended (their PIDs), and all others."""
        kept, ended, others = 0, set(), 0
        for entry in os.scandir(self.daemon / "fd"):
            try:
                words = os.readlink(entry.path).split("/")
            except FileNotFoundError:
                continue
            if words[1:2] == ["proc"] and words[2:3] and words[2].isdigit():
                kept += 1
                if not os.path.exists(f"/proc/{words[2]}"):
                    ended.add(words[2])
            else:
                others += 1
        return kept, ended, others

    def measure(self):
        """What memoird itself takes."""
        status = dict(line.split(":", 1) for line in (self.daemon / "status").read_text().splitlines() if ":" in line)
        kept, ended, others = self.descriptors()
        fields = (self.daemon / "stat").read_text().rsplit(")", 1)[1].split()
        return {"rss_bytes": int(status["VmRSS"].split()[0]) * 1024,
                "anon_bytes": int(status["RssAnon"].split()[0]) * 1024,
                "fds_proc": kept, "fds_ended": len(ended), "fds": others,
                "cpu_s": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
                "lives": len(self.lives), "checks": self.count["checks"]}

    def close(self):
        for life in list(self.lives):
            try:
                os.kill(life.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            life.connection.close()
        for child in self.children.values():
            child.kill()
            child.wait()
        self.listener.close()
        self.client.close()
