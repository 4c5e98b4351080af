"""What the benchmarks share: a table of goals that judges, raw data, and how to run a program.

bench/NAME/run has a table of rows and calls main() here. A goal that is missed says so and is no failure of the
benchmark; a measurement that could not be made is.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time


class Table:
    """Rows as they are printed, and kept."""

    HEAD = ("what", "reach", "measured", "")

    def __init__(self, out):
        self.rows = []
        self.file = open(out / "rows.jsonl", "w", encoding="utf-8")

    def add(self, what, reach, value, unit, at_most=None, below=None, at_least=None, detail=""):
        ok = None
        if at_most is not None:
            ok = value <= at_most
        if below is not None:
            ok = value < below
        if at_least is not None:
            ok = value >= at_least
        verdict = {True: "ok", False: "MISSED", None: "for information"}[ok]
        measured = f"{number(value)} {unit}" + (f" ({detail})" if detail else "")
        self.rows.append((what, reach, measured, verdict))
        json.dump({"what": what, "reach": reach, "value": value, "unit": unit, "detail": detail, "verdict": verdict},
                  self.file)
        self.file.write("\n")
        self.file.flush()

    def info(self, what, value, unit, detail=""):
        self.add("  " + what, "", value, unit, detail=detail)

    def print(self):
        widths = [max(len(row[i]) for row in (self.HEAD, *self.rows)) for i in range(4)]

        def line(row):
            return " | ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()

        print(line(self.HEAD))
        print("-|-".join("-" * width for width in widths))
        for row in self.rows:
            print(line(row))
        missed = sum(row[3] == "MISSED" for row in self.rows)
        judged = sum(row[3] in ("ok", "MISSED") for row in self.rows)
        print(f"\n{judged - missed} of {judged} goals reached" + (f", {missed} MISSED" if missed else ""))


def number(value):
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}"


def spread(values, scale=1):
    return f"min {number(min(values) / scale)}, max {number(max(values) / scale)}, n {len(values)}"


def percentile(values, share):
    """The smallest value that at least this share of all does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]


class Bench:
    """Where things are, how much is done, and the raw data."""

    PREFIX = "bench_"  # of its programs

    def __init__(self, options):
        self.build = options.build.resolve()
        self.quick = options.quick
        self.raw = open(options.out / "raw.jsonl", "w", encoding="utf-8")
        self.memoird = self.build / "src/daemon/memoird"
        self.environment = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "MEMOIR_DIR")}
        self.environment["MEMOIR_BENCH_PIN"] = "0" if options.no_pin else "1"
        self.environment["MEMOIR_BENCH_REALTIME"] = "0" if options.no_realtime else "1"
        self.record("setup", {"pin": not options.no_pin, "realtime": not options.no_realtime and os.geteuid() == 0,
                              "quick": self.quick})

    def program(self, name):
        return self.build / "bench" / (self.PREFIX + name)

    def record(self, row, values):
        json.dump({"row": row, "time": round(time.time(), 3), "load": round(os.getloadavg()[0], 2), **values}, self.raw)
        self.raw.write("\n")
        self.raw.flush()

    def run(self, row, name, *arguments, books, **more):
        """The lines that a program printed, which are also kept, with what else is known of them."""
        lines = []
        command = [str(self.program(name)), *map(str, arguments)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                              env=dict(self.environment, MEMOIR_DIR=str(books))) as process:
            for line in process.stdout:
                lines.append({**json.loads(line), **more})
                self.record(row, lines[-1])
        if process.returncode != 0 or not lines:
            raise RuntimeError(f"{name} ended with status {process.returncode}")
        return lines

    @contextlib.contextmanager
    def books(self):
        """A private directory for books, which must be in memory."""
        path = pathlib.Path(tempfile.mkdtemp(prefix="memoir-bench-", dir="/dev/shm"))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def main(name, what, rows, bench_class):
    """Command line, rows, table; the exit status."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="a little of everything: shows that it works, not how fast")
    parser.add_argument("--only", action="append", choices=rows, metavar="ROW", help=", ".join(rows))
    parser.add_argument("--no-pin", action="store_true", help="let the scheduler move threads")
    parser.add_argument("--no-realtime", action="store_true", help="stay at normal priority, also as root")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    bench, table, status = bench_class(options), Table(options.out), 0
    for row in options.only or rows:
        print(f"bench {name}: {row}", file=sys.stderr, flush=True)
        try:
            rows[row](bench, table)
        except (RuntimeError, OSError, ValueError, subprocess.SubprocessError) as error:
            print(f"bench {name}: {row} could not be measured: {error}", file=sys.stderr)
            bench.record(row, {"error": str(error)})
            status = 1
    if bench.quick:
        print("a quick run shows that everything works; its figures mean nothing\n")
    table.print()
    return status
