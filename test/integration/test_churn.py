"""Processes come, allocate, lose, fork, end threads, call exec, end and are killed, tracked and watched: books never differ from truth.

A few seconds of it; script/soak has an hour (SOAK=1, SOAK_CHURN_S seconds) and then also wants that memoird takes no more
memory and descriptors at the end than it did once it was warm. SOAK_OUT is a folder for the figures.
"""

import json
import os
import pathlib
import statistics
import subprocess
import time
import unittest

from churn_support import TRACKER, World
from cli_support import wait_for
from daemon_fixture import DaemonTest

SOAK = bool(os.environ.get("SOAK"))
CHURN_S = int(os.environ.get("SOAK_CHURN_S", 3600)) if SOAK else 6
POPULATION = 8 if SOAK else 4
CHECKS_MIN = 20
WATCH_S = 90  # a limit for a memoird that watches nobody, never a wait
SAMPLE_S = 10 if SOAK else 1
RSS_SLACK = 1 << 20
FDS_SLACK = 8
ROOT = pathlib.Path(os.environ.get("MEMOIR_SOURCE_ROOT") or pathlib.Path(__file__).parents[2])


class Churn(DaemonTest):
    def setUp(self):
        if not TRACKER.exists():
            self.skipTest("this build has no tracker")
        super().setUp()
        self.seed = int(os.environ.get("SEED", time.time_ns() % 1000000))
        print(f"# SEED={self.seed}")
        self.samples = []
        self.commit = commit()

    def world(self):
        native = self.folder / "memoir.sock"
        daemon = self.daemon("--socket", native)
        world = World(self.folder, self.books, self.state, daemon.pid, native, self.seed, POPULATION)
        self.addCleanup(world.close)
        return world

    def churn(self, world):
        """For some time; longer where memoird is slow, until it watched an image that exec ended, and so has to tell of it."""
        begin = looked = time.monotonic()
        while (seconds := time.monotonic() - begin) < CHURN_S or world.count["checks"] < CHECKS_MIN \
                or not world.count["exec_watched"] and seconds < CHURN_S + WATCH_S:
            world.act()
            if time.monotonic() - looked >= SAMPLE_S:
                looked = time.monotonic()
                world.look_at_retired()
                world.overdue()
                self.samples.append({"s": round(looked - begin, 1), **world.measure()})
                self.write(world, looked - begin, "running")
        self.assertGreater(world.count["exec_watched"], 0, f"memoird watched none of the images that exec ended: {dict(world.count)}")
        return time.monotonic() - begin

    def settle(self, world):
        """All have ended: memoird has written of them all, and no book is left."""
        for life in list(world.lives):
            book = life.book()
            if book:
                watched = bool(book.watchers())
                life.say("r")
                world.gone(life, book, "r", watched)
        world.close()
        wait_for(lambda: world.look_at_retired() or not world.dead, "memoird writes of all that ended", 60)
        wait_for(lambda: not self.book_files(), "no book is left", 60)

    @staticmethod
    def closed(world, before, then):
        """As few as before, and none of processes that had ended some time ago: others end all the time."""
        _, ended, others = world.descriptors()
        return others <= before + FDS_SLACK and not ended & then

    def write(self, world, seconds, verdict):
        folder = os.environ.get("SOAK_OUT")
        if not folder:
            return
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        summary = {"verdict": verdict, "seconds": round(seconds, 1), "seed": self.seed, "population": POPULATION,
                   "commit": self.commit, "drift": 0 if verdict in ("running", "passed") else None,
                   **dict(sorted(world.count.items())), "memoird": self.steadiness()}
        (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
        (folder / "samples.jsonl").write_text("".join(json.dumps(s) + "\n" for s in self.samples), encoding="utf-8")

    def steadiness(self):
        """memoird in the second sixth of the time (the first is its start), in the one before the last, and in the last."""
        sixth = max(1, len(self.samples) // 6)
        if len(self.samples) < 12:
            return {}
        parts = {"early": self.samples[sixth:2 * sixth], "before": self.samples[-2 * sixth:-sixth],
                 "late": self.samples[-sixth:]}
        return {name: {part: statistics.median(s[name] for s in samples) for part, samples in parts.items()}
                | {"most": max(s[name] for s in self.samples)}
                for name in ("rss_bytes", "anon_bytes", "fds", "fds_proc", "lives")} | {"cpu_s": self.samples[-1]["cpu_s"]}

    def assert_steady(self, steady):
        """It knows every process of the machine, and keeps the room for as many as there ever were: so whether it grows is
        told by the last two parts, unless others have started many in between."""
        self.assertLess(steady["fds"]["late"], steady["fds"]["early"] + 10 * POPULATION)
        anon, processes = steady["anon_bytes"], steady["fds_proc"]
        if processes["late"] <= 1.5 * processes["before"]:
            self.assertLess(anon["late"], anon["before"] * 1.05 + RSS_SLACK)

    def test_book_and_truth_never_drift_apart(self):
        world = self.world()
        begin, verdict = time.monotonic(), "failed"
        before = world.measure()["fds"]
        try:
            self.churn(world)
            self.settle(world)
            _, then, _ = world.descriptors()
            wait_for(lambda: self.closed(world, before, then), "memoird closes what it opened", 60)
            steady = self.steadiness()
            if SOAK and steady:
                self.assert_steady(steady)
            verdict = "passed"
        except BaseException as reason:
            verdict = f"failed: {reason}"
            raise
        finally:
            self.write(world, time.monotonic() - begin, verdict)


def commit():
    done = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True,
                          check=False)
    return done.stdout.strip() or None


if __name__ == "__main__":
    unittest.main()
