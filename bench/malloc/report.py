"""Medians, tables and goals of the loads."""

import json
import math
import statistics

import allocators
from measure import number

FIGURES = ("wall_s", "cpu_s", "user_s", "system_s", "rss_bytes", "faults", "switches")
TIME_BEHIND_MAX, RSS_BEHIND_MAX = 1.10, 1.15


def geometric(values):
    return math.exp(sum(math.log(v) for v in values) / len(values))


class Results:
    """found: load -> allocator -> runs; calls: load -> allocator -> counts; kinds: load -> synthetic or program."""

    def __init__(self, found, calls, kinds, bench):
        self.calls, self.kinds, self.by = calls, kinds, bench.by
        self.names = list(bench.allocators)
        self.medians = {load: {name: {f: statistics.median(run[f] for run in runs) for f in FIGURES} for name, runs in by_name.items()}
                        for load, by_name in found.items()}

    def write(self, path):
        merged = {load: {name: {**figures, "calls": self.calls.get(load, {}).get(name)} for name, figures in by_name.items()}
                  for load, by_name in self.medians.items()}
        path.write_text(json.dumps(merged, indent=1) + "\n", encoding="utf-8")

    def failed(self):
        return [(load, name) for load, by_name in self.medians.items() for name in self.names if name not in by_name]

    def relative(self, load, figure):
        """allocator -> how many times the best of all."""
        values = {name: max(figures[figure], 1e-9) for name, figures in self.medians[load].items()}
        best = min(values.values())
        return {name: value / best for name, value in values.items()}

    def mean(self, name, figure, base=None, kind=None):
        """Geometric mean over the loads that all allocators did, relative to `base` or to each load's best."""
        ratios = []
        for load, by_name in self.medians.items():
            if len(by_name) < len(self.names) or kind not in (None, self.kinds[load]):
                continue
            relative = self.relative(load, figure)
            ratios.append(relative[name] / (relative[base] if base else 1))
        return geometric(ratios) if ratios else float("nan")

    def print(self):
        label = {"wall_s": "time on the wall", "cpu_s": "CPU time"}[self.by]
        self.block(f"{label}: seconds of the fastest, and how many times that each took", self.by, lambda v: f"{v:.3f}")
        self.block("peak RSS: MB of the leanest, and how many times that each had", "rss_bytes", lambda v: f"{v / 1e6:.2f}")
        self.counts("page faults", lambda load, name: self.medians[load][name]["faults"])
        self.counts("system time, ms", lambda load, name: self.medians[load][name]["system_s"] * 1000)
        if self.calls:
            self.counts("mmap, munmap, madvise, mremap and brk calls",
                        lambda load, name: sum(self.calls[load][name].values()))

    def block(self, title, figure, shown):
        rows = []
        for load, by_name in self.medians.items():
            relative = self.relative(load, figure)
            best = min(f[figure] for f in by_name.values())
            rows.append([load, shown(best)] + [f"{relative[n]:.2f}" if n in relative else "fails" for n in self.names])
        for kind, what in ((None, "geometric mean"), ("synthetic", "  synthetic"), ("program", "  programs")):
            means = [self.mean(n, figure, kind=kind) for n in self.names]
            if not all(map(math.isnan, means)):
                rows.append([what, ""] + [f"{m:.3f}" for m in means])
        rows.append(["to glibc", ""] + [f"{self.mean(n, figure, base='glibc'):.3f}" for n in self.names])
        aligned(title, ["load", "best", *self.names], rows)

    def counts(self, title, value):
        rows = []
        for load in self.medians:
            cells = []
            for name in self.names:
                try:
                    cells.append(f"{value(load, name):,.0f}")
                except KeyError:
                    cells.append("-")
            rows.append([load, *cells])
        aligned(title, ["load", *self.names], rows)

    def judge(self, table):
        """The goals: ours leads both means, and no load is far behind."""
        ours = allocators.OURS
        if ours not in self.names or len(self.names) < 2:
            return
        peers = [n for n in self.names if n != ours]
        other = {"wall_s": "cpu_s", "cpu_s": "wall_s"}[self.by]
        for figure, what in ((self.by, "time"), ("rss_bytes", "peak RSS")):
            means = {n: self.mean(n, figure) for n in self.names}
            best = min(peers, key=means.get)
            told = ", ".join(f"{n} {means[n]:.3f}" for n in self.names)
            table.add(f"{what}, geometric mean of {len(self.medians)} loads, ours to the best peer", "< 1", means[ours] / means[best], "x",
                      below=1, detail=f"best peer {best}; to each load's best: {told}")
            table.info(f"{what}, to glibc", self.mean(ours, figure, base="glibc"), "x",
                       ", ".join(f"{n} {self.mean(n, figure, base='glibc'):.3f}" for n in peers))
        means = {n: self.mean(n, other) for n in self.names}
        table.info("the same by " + {"cpu_s": "CPU time", "wall_s": "the clock on the wall"}[other], means[ours] / min(means[n] for n in peers), "x",
                   ", ".join(f"{n} {means[n]:.3f}" for n in self.names))
        for figure, what, limit in ((self.by, "time", TIME_BEHIND_MAX), ("rss_bytes", "peak RSS", RSS_BEHIND_MAX)):
            behind = {load: self.relative(load, figure)[ours] for load, by_name in self.medians.items() if ours in by_name}
            if not behind:
                continue
            far = sorted((load for load in behind if behind[load] > limit), key=lambda load: -behind[load])
            table.add(f"{what}, the load that is furthest behind its best", f"<= {limit:.2f}", max(behind.values()), "x", at_most=limit,
                      detail="; ".join(f"{load} {number(behind[load])} ({self.best(load, figure)})" for load in far) or "none is further")

    def best(self, load, figure):
        relative = self.relative(load, figure)
        return min(relative, key=relative.get)


def aligned(title, head, rows):
    print(title)
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for row in (head, ["-" * w for w in widths], *rows):
        print(("-|-" if row[0].startswith("--") else " | ").join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))).rstrip())
    print()
