#!/usr/bin/env python3
"""What memoir run costs CPython: CPU time of loads under it, with every object accounted, against plain pymalloc.

Usage: bench/explain/python_cost.py BUILD RESULTS [--quick] [--baseline MEMOIR]

The ways take turns, and the least time of each counts, so that a busy machine disturbs them alike. --baseline adds `memoir run` of another
build, to compare two versions in one run. The last line has the median over the rounds of the ratio within a round, and its quartiles.
"""

import json
import math
import pathlib
import statistics
import subprocess
import sys

LOADS = ("json", "objects", "text", "threads", "asyncio")
PROGRAM = pathlib.Path(__file__).resolve().parent / "python_load.py"


def mean_ratios(seconds, way):
    """Geometric means over the loads, one for each round."""
    rounds = zip(*([a / b for a, b in zip(times[way], times["pymalloc"])] for times in seconds.values()))
    return [math.exp(statistics.fmean(map(math.log, ratios))) for ratios in rounds]


def bench(build, results, quick, baseline=None):
    memoir = build.resolve() / "src/cli/memoir"
    ways = {"pymalloc": [sys.executable], "glibc": ["env", "PYTHONMALLOC=malloc", sys.executable],
            "memoir run": [memoir, "run", "--quiet", sys.executable],
            "memoir run --stacks off": [memoir, "run", "--quiet", "--stacks", "off", sys.executable]}
    if baseline:
        ways["baseline"] = [baseline, "run", "--quiet", sys.executable]
    seconds = {}
    print(f"{'load':12}" + "".join(f"{way:>26}" for way in ways))
    for load in LOADS:
        for _ in range(2 if quick else 9):
            for way, command in ways.items():
                done = subprocess.run([*command, PROGRAM, load], capture_output=True, text=True, check=True)
                seconds.setdefault(load, {}).setdefault(way, []).append(float(done.stdout))
        least = {way: min(times) for way, times in seconds[load].items()}
        print(f"{load:12}" + "".join(f"{least[way] / least['pymalloc']:24.3f} ×" for way in ways), flush=True)
    means = {way: math.exp(sum(math.log(min(s[way]) / min(s["pymalloc"])) for s in seconds.values()) / len(LOADS)) for way in ways}
    print(f"{'mean':12}" + "".join(f"{means[way]:24.3f} ×" for way in ways))
    spreads = {way: statistics.quantiles(mean_ratios(seconds, way), n=4) for way in ways}
    print(f"{'by rounds':12}" + "".join(f"{f'{s[1]:.3f} ({s[0]:.3f}-{s[2]:.3f})':>26}" for s in spreads.values()))
    (results / "python.json").write_text(json.dumps({"seconds": seconds, "geometric_means": means}, indent=1) + "\n")


if __name__ == "__main__":
    other = sys.argv[sys.argv.index("--baseline") + 1] if "--baseline" in sys.argv else None
    bench(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), "--quick" in sys.argv, other)
