"""Crowds of short CUDA processes under memoird and its observer: nothing grows with their number, nothing stays behind.

A few seconds of it; script/soak --cuda has thousands of processes (SOAK=1, SOAK_PROCESSES of them) and then also wants that
memory, descriptors, threads, children and kernel objects of both are level. SOAK_OUT is a folder for the figures.
"""

import collections
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import time
import unittest

from endurance_support import PinnedMap, measure, steadiness
from observe_support import BUILD, LIBRARY, environment
from test_trace_api import TraceTest

SOAK = bool(os.environ.get("SOAK"))
PROCESSES = int(os.environ.get("SOAK_PROCESSES", 4000)) if SOAK else 80
AT_ONCE = 8 if SOAK else 6
KILLS = 4 if SOAK else 1  # of memoird and of the observer each, in the first half
LIBRARY_EVERY = 100 if SOAK else 30  # processes that share one file of the driver
SAMPLE_S = 2
ANON_SLACK, FDS_SLACK = 2 << 20, 8
BRIEF = BUILD / "test/cuda/cuda_brief"
MIB = 1 << 20
MAPS = ("processes", "contexts", "blocks", "graphs", "consumed", "python_facts", "known")
STATUSES = {"return": 0, "_exit": 0, "abort": -signal.SIGABRT, "segv": -signal.SIGSEGV, "kill": -signal.SIGKILL}


def pause(chance, longest):
    return [f"wait={chance.randint(0, longest)}"]


def life(chance):
    """Words for one process, how it ends, and what it then holds on the device: None where another image or process has it."""
    size = chance.choice((1 << 16, 1 << 18, MIB))
    n = chance.randint(1, 6)
    work = [f"alloc={size}"] * n + [f"copy={chance.randint(0, 20)}", *pause(chance, 60), f"host={1 << 16}", *pause(chance, 60)]
    how = chance.choice(("tidy", "leak", "abort", "segv", "kill", "_exit", "exec", "fork", "spawn", "instant"))
    if how == "tidy":
        return [*work, "launch", "free-all", *pause(chance, 40)], "return", 0
    if how == "leak":
        return work, "return", n * size
    if how == "fork":
        return [*work, "fork", *pause(chance, 20)], "return", n * size
    if how in ("exec", "spawn"):
        return [*work, how, *work, "free"], "return", None
    if how == "instant":
        return [f"alloc={size}"], "return", size
    return [*work, how], how, n * size


class Crowd(TraceTest):
    def setUp(self):
        super().setUp()
        self.seed = int(os.environ.get("SEED", time.time_ns() % 1000000))
        print(f"# SEED={self.seed}")
        self.random = random.Random(self.seed)
        limits = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, limits[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_CORE, limits)
        self.standin = self.folder / "standin"
        self.standin.mkdir()
        self.count = collections.Counter()
        self.running, self.ended, self.samples = [], {}, []
        self.epoch = 0  # begins anew with each kill: what a process held is known to one observer only within one

    # ---- programs ----

    def driver(self, number):
        """The folder of a file of the driver. Number 0 is what memoird was told of; others come and go, as with containers: their
        first processes may end before there are probes."""
        folder = self.folder / f"driver-{number}"
        if not folder.exists():
            folder.mkdir()
            shutil.copy(LIBRARY.resolve(), folder / "libcuda.so.1")
            if number > 2:
                shutil.rmtree(self.folder / f"driver-{number - 2}")
        return folder

    def start(self):
        words, end, held = life(self.random)
        turn = self.count["started"] // LIBRARY_EVERY
        number = turn if turn % 2 else 0
        process = subprocess.Popen([BRIEF, *words], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env=environment(self.standin, LD_LIBRARY_PATH=str(self.driver(number))))
        self.running.append((process, words, end, held, None if number else self.epoch))
        self.count["started"] += 1

    def reap(self):
        """Those that have ended, each as it should."""
        for entry in list(self.running):
            process, words, end, held, epoch = entry
            if process.poll() is None:
                continue
            self.running.remove(entry)
            self.assertEqual(process.returncode, STATUSES[end], words)
            if held is not None and epoch == self.epoch:
                self.ended[process.pid] = held

    # ---- memoird and its observer ----

    def begin(self):
        self.memoird = self.tracing(library=self.driver(0) / "libcuda.so.1")
        self.pins = self.pins_folder()

    def pins_folder(self):
        words = pathlib.Path(f"/proc/{self.observer_status()['pid']}/cmdline").read_text().split("\0")
        return pathlib.Path(f"/sys/fs/bpf/memoir-{words[words.index('--name') + 1]}")

    def kill_memoird(self):
        """Its observer goes on; the next memoird takes it over."""
        observer = self.observer_status()["pid"]
        self.memoird.kill()
        self.memoird.popen.wait()  # the observer keeps the log open
        self.begin()
        self.assertEqual(self.observer_status()["pid"], observer)
        self.count["memoird_killed"] += 1
        self.renew()

    def kill_observer(self):
        status = self.observer_status()
        os.kill(status["pid"], signal.SIGKILL)
        self.add_losses(status)
        self.count["observer_killed"] += 1
        self.renew()

    def renew(self):
        self.epoch += 1
        self.ended.clear()

    def add_losses(self, status):
        for name in ("gaps", "lost_processes", "stacks_lost", "parser_deaths", "memory_parsers_refused", "records"):
            self.count[name] += status[name]

    def observer_there(self):
        try:
            return self.observer_status()
        except (OSError, IndexError, ValueError):
            return None

    def sample(self, begin):
        status = self.observer_there()
        if not status:
            return
        figures = {"s": round(time.monotonic() - begin, 1), "started": self.count["started"], "pins": len(list(self.pins.iterdir()))}
        figures["files"] = sum(len(files) for folder in (self.state, "/run/memoird") for _, _, files in os.walk(folder))
        figures["books"] = len(self.book_files())
        figures["libraries"] = status["libraries"]
        try:
            figures |= {f"memoird_{k}": v for k, v in measure(self.memoird.pid).items()}
            figures |= {f"observer_{k}": v for k, v in measure(status["pid"]).items()}
            figures |= {f"map_{name}": sum(self.entries(name).values()) for name in MAPS}
        except (OSError, KeyError):
            return  # the observer was killed meanwhile
        self.samples.append(figures)

    def entries(self, name):
        with PinnedMap(self.pins / name) as pinned:
            return pinned.pids()

    # ---- the run ----

    def crowd(self, n, kills):
        """So many processes, with so many kills of memoird and of the observer spread over them."""
        events = {(i + 1) * n // (2 * kills + 1): (self.kill_memoird, self.kill_observer)[i % 2] for i in range(2 * kills)}
        begin, looked = time.monotonic(), 0
        for i in range(n):
            while len(self.running) >= AT_ONCE:
                self.reap()
                time.sleep(0.002)
            self.start()
            if i in events:
                self.wait_until(self.observer_there, "the observer answers")
                events[i]()
            if time.monotonic() - looked > SAMPLE_S:
                looked = time.monotonic()
                self.sample(begin)
                self.write("running")
        self.wait_until(lambda: self.reap() or not self.running, "all have ended")

    # ---- what is left ----

    def alive(self, pids):
        return {pid for pid in pids if os.path.exists(f"/proc/{pid}")}

    def nothing_left(self):
        """No book, no entry in a table of the kernel, and no row."""
        self.wait_until(self.observer_there, "the observer answers")
        dead = lambda pids: set(pids) - self.alive(pids)  # noqa: E731
        self.wait_until(lambda: not dead(int(path.name.split("-")[0]) for path in self.book_files()), "no book of the dead is left")
        for name in MAPS if SOAK else ("processes", "consumed"):
            self.wait_until(lambda: not dead(self.entries(name)), f"the dead have no entry in {name}")
        self.eventually(lambda: self.rows("/processes", where="program=cuda_brief", show="pid,device"), lambda rows: not rows,
                        "no row of cuda_brief")

    def compare(self):
        """What memoird remembers of them is what they held when they ended."""
        for record in self.retired():
            held = self.ended.get(record["pid"])
            if held is None or record["name"] != "cuda_brief":
                continue
            told = sum(account["live_bytes"] for account in record["accounts"] if account["space"] == "dram")
            self.assertEqual(told, held, record)
            self.count["compared"] += 1
        self.assertGreater(self.count["compared"], 0)

    def assert_level(self):
        """In the last quarter of the second half as in its second, when all that is kept of the ended is full."""
        half = [s for s in self.samples if s["started"] > PROCESSES // 2]
        for name in half[0]:
            _, before, _, late, _ = steadiness(half, name)
            slack = ANON_SLACK if name.endswith("_bytes") else FDS_SLACK if "fds" in name else 4 * AT_ONCE
            if name not in ("s", "started") and not name.startswith("map_"):
                self.assertLessEqual(late, before * 1.05 + slack, f"{name} grows: {[s[name] for s in half]}")
            if name.endswith("zombies"):
                self.assertLessEqual(late, 2, name)

    def write(self, verdict):
        if not os.environ.get("SOAK_OUT"):
            return
        folder = pathlib.Path(os.environ["SOAK_OUT"])
        folder.mkdir(parents=True, exist_ok=True)
        names = [name for name in self.samples[0] if name not in ("s", "started")] if self.samples else []
        summary = {"verdict": verdict, "seed": self.seed, **dict(sorted(self.count.items())),
                   "quarters_and_most": {name: steadiness(self.samples, name) for name in names}}
        (folder / "cuda.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
        (folder / "cuda.jsonl").write_text("".join(json.dumps(s) + "\n" for s in self.samples), encoding="utf-8")

    def test_short_processes_leave_nothing_behind(self):
        verdict = "failed"
        try:
            self.begin()
            self.crowd(PROCESSES // 2, KILLS)
            self.wait_until(self.observer_there, "the observer answers")
            self.renew()
            self.crowd(PROCESSES - PROCESSES // 2, 0)
            self.nothing_left()
            self.compare()
            self.add_losses(self.observer_status())
            if SOAK:  # else other tests fill the rings, too
                self.assertEqual((self.count["gaps"], self.count["lost_processes"]), (0, 0))
                self.assert_level()
            verdict = "passed"
        finally:
            self.write(verdict)
            print(f"# {dict(self.count)}")


if __name__ == "__main__":
    unittest.main()
