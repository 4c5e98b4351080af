#!/usr/bin/env python3
"""What memoir run costs CPython: CPU time of loads under it, with every object accounted, against plain pymalloc.

Usage: bench/explain/python_cost.py BUILD RESULTS [--quick]

The ways take turns, and the least time of each counts, so that a busy machine disturbs them alike.
"""

import json
import math
import pathlib
import subprocess
import sys

LOADS = ("json", "objects", "text", "threads", "asyncio")
PROGRAM = pathlib.Path(__file__).resolve().parent / "python_load.py"


def bench(build, results, quick):
    memoir = build.resolve() / "src/cli/memoir"
    ways = {"pymalloc": [sys.executable], "glibc": ["env", "PYTHONMALLOC=malloc", sys.executable],
            "memoir run": [memoir, "run", "--quiet", sys.executable],
            "memoir run --stacks off": [memoir, "run", "--quiet", "--stacks", "off", sys.executable]}
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
    (results / "python.json").write_text(json.dumps({"seconds": seconds, "geometric_means": means}, indent=1) + "\n")


if __name__ == "__main__":
    bench(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), "--quick" in sys.argv)
