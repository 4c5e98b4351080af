#!/usr/bin/env python3
"""Draw the plots of doc/pinning.md from bench/results/gpu/pin.json, and print its tables.

Usage: pin_plots.py [PIN_JSON] [DOC]     default: bench/results/gpu/pin.json and doc/

Writes DOC/pinning-runtime.svg, -copies.svg, -share.svg and -profile.svg; needs nothing but Python.
"""

import json
import math
import pathlib
import statistics
import sys

sys.dont_write_bytecode = True
from pin_run import wire_ms  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MIB = 1 << 20
COLOURS = {"malloc": "#8c8c8c", "host": "#c0504d", "seed": "#d98b2b", "use": "#4f81bd", "auto": "#2e8b57", "profile": "#7f5fa9", "wire": "#222222"}
NAMES = {"malloc": "malloc: nothing pinned", "host": "cudaHostAlloc: everything pinned", "seed": "two runs: profile, then use", "use": "Memoir, use",
         "auto": "Memoir, auto", "profile": "Memoir, profile", "wire": "the wire"}


def median(runs, key):
    return statistics.median(r[key] for r in runs) if runs else None


class Plot:
    """Lines over sizes, both axes logarithmic unless `linear`."""

    W, H, LEFT, RIGHT, TOP, BOTTOM = 720, 400, 70, 220, 44, 56

    def __init__(self, title, unit, sizes, linear=False):
        self.title, self.unit, self.sizes, self.linear, self.lines = title, unit, sizes, linear, []

    def line(self, name, colour, points):
        points = [(s, v) for s, v in points if v is not None]
        if points:
            self.lines.append((name, colour, points))

    def x(self, size):
        low, high = math.log2(self.sizes[0]), math.log2(self.sizes[-1])
        share = 0.5 if high == low else (math.log2(size) - low) / (high - low)
        return self.LEFT + share * (self.W - self.LEFT - self.RIGHT)

    def scale(self):
        values = [v for _, _, points in self.lines for _, v in points if v > 0]
        if self.linear:
            return 0.0, max(values) * 1.1
        return math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))

    def y(self, value, low, high):
        share = value / high if self.linear else (math.log10(max(value, 10 ** low)) - low) / (high - low)
        return self.H - self.BOTTOM - share * (self.H - self.TOP - self.BOTTOM)

    def svg(self):
        low, high = self.scale()
        out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.W} {self.H}" font-family="sans-serif" font-size="12">',
               f'<rect width="{self.W}" height="{self.H}" fill="#ffffff"/>',
               f'<text x="{self.LEFT}" y="22" font-size="15">{self.title}</text>']
        ticks = [high / 1.1 * i / 4 for i in range(5)] if self.linear else [10.0 ** e for e in range(int(low), int(high) + 1)]
        for value in ticks:
            y = self.y(value, low, high)
            label = f"{value:.0f}" if value >= 1 or value == 0 else f"{value:g}"
            out.append(f'<line x1="{self.LEFT}" y1="{y:.1f}" x2="{self.W - self.RIGHT}" y2="{y:.1f}" stroke="#dddddd"/>')
            out.append(f'<text x="{self.LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
        for size in self.sizes:
            if size == 31:
                continue
            out.append(f'<text x="{self.x(size):.1f}" y="{self.H - self.BOTTOM + 18}" text-anchor="middle">{size}</text>')
        out.append(f'<text x="{(self.LEFT + self.W - self.RIGHT) / 2}" y="{self.H - 14}" text-anchor="middle">size of a buffer in MiB</text>')
        out.append(f'<text x="16" y="{self.H / 2}" text-anchor="middle" transform="rotate(-90 16 {self.H / 2})">{self.unit}</text>')
        for i, (name, colour, points) in enumerate(self.lines):
            path = " ".join(f"{self.x(s):.1f},{self.y(v, low, high):.1f}" for s, v in points)
            out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
            out += [f'<circle cx="{self.x(s):.1f}" cy="{self.y(v, low, high):.1f}" r="3" fill="{colour}"/>' for s, v in points]
            y = self.TOP + 18 * i
            out.append(f'<line x1="{self.W - self.RIGHT + 12}" y1="{y}" x2="{self.W - self.RIGHT + 32}" y2="{y}" stroke="{colour}" stroke-width="3"/>')
            out.append(f'<text x="{self.W - self.RIGHT + 38}" y="{y + 4}">{name}</text>')
        return "\n".join(out + ["</svg>", ""])


def series(results, variant, policy, key, by=1.0):
    points = []
    for mib, entry in results["seed"].items():
        value = median(entry.get(variant, {}).get(policy, []), key)
        points.append((int(mib), value * by if value is not None else None))
    return points


def wire(results):
    return [(int(m), wire_ms(e)) for m, e in results["seed"].items()]


def share(results, variant, policy):
    points = []
    for mib, entry in results["seed"].items():
        runs = entry.get(variant, {}).get(policy, [])
        points.append((int(mib), 100 * max(r["kernel_pinned_peak"] / r["allocated"] for r in runs) if runs else None))
    return points


def table(results, variant, key):
    policies = [p for p in ("malloc", "host", "seed", "use", "auto") if any(e.get(variant, {}).get(p) for e in results["seed"].values())]
    lines = ["| MiB | " + " | ".join(NAMES[p].split(":")[0] for p in policies) + " | wire |", "|---|" + "---|" * (len(policies) + 1)]
    wires = dict(wire(results))
    for mib, entry in results["seed"].items():
        cells = [median(entry.get(variant, {}).get(p, []), key) for p in policies]
        lines.append(f"| {mib} | " + " | ".join(f"{c:,.0f}" if c is not None else "" for c in cells) +
                     (f" | {wires[int(mib)]:,.0f} |" if wires[int(mib)] else " | |"))
    return "\n".join(lines)


def main():
    source = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "bench/results/gpu/pin.json")
    doc = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "doc")
    results = json.loads(source.read_text())
    sizes = sorted(int(m) for m in results["seed"])
    runtime = Plot("Whole program: allocate, touch, copy, free; all buffers live together", "milliseconds", sizes)
    copies = Plot("Copies only, buffers touched before; all live together", "milliseconds", sizes)
    for policy in ("malloc", "host", "seed", "use", "auto"):
        variant = "turn" if policy == "malloc" else "together"
        runtime.line(NAMES[policy].split(":")[0] + (" (in turn)" if policy == "malloc" else ""), COLOURS[policy], series(results, variant, policy, "whole_ms"))
        copies.line(NAMES[policy].split(":")[0] + (" (in turn)" if policy == "malloc" else ""), COLOURS[policy], series(results, variant, policy, "copy_ms"))
    copies.line("the wire", COLOURS["wire"], wire(results))
    pinned = Plot("Pinned at most, of all that was allocated (kernel's counters)", "per cent", sizes, linear=True)
    for policy in ("host", "seed", "use", "auto"):
        pinned.line(NAMES[policy].split(":")[0], COLOURS[policy], share(results, "together", policy))
    profile = Plot("Profiling pins everything: against cudaHostAlloc, each buffer in turn", "milliseconds", sizes)
    for policy in ("host", "profile", "auto"):
        profile.line(NAMES[policy].split(":")[0], COLOURS[policy], series(results, "turn", policy, "whole_ms"))
    for name, plot in (("runtime", runtime), ("copies", copies), ("share", pinned), ("profile", profile)):
        (doc / f"pinning-{name}.svg").write_text(plot.svg())
    for variant in ("turn", "together"):
        for key in ("whole_ms", "copy_ms"):
            print(f"\n{variant}, {key}\n\n{table(results, variant, key)}")


if __name__ == "__main__":
    main()
