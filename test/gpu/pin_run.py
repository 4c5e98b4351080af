#!/usr/bin/env python3
"""Smart pinning on a machine with a GPU: two hot and 25 cold buffers, hostile traces, PyTorch. Run by script/test-gpu pin.

Usage: pin_run.py BIN OUT [--quick] [--seconds N] [--rounds A,B,C] [--sizes MIB,...] [--policies P,...] [--parts torch,traces,shadow,fork,seed]

BIN has libmemoir-cuda.so in lib/ and pin_bench. Results go to OUT/pin.json, a table to OUT/pin.txt. Policies are interleaved; what is measured so far is saved
after every step. Ends within N seconds (default: 540); rounds for which there was no time are reported. Exits with 1 when a row misses.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
SIZES = [1, 4, 16, 31, 32, 64, 128, 256]
POLICIES = ("malloc", "host", "seed", "use", "auto", "profile")
CHOSEN = set(POLICIES)
PARTS = ("take", "touch", "copy", "drop")  # of the whole time; "register" is part of copy and drop


class Bench:
    def __init__(self, bin_dir, work, deadline):
        self.bin, self.work, self.deadline = bin_dir, work, deadline
        self.library = str(pathlib.Path(bin_dir, "lib/libmemoir-cuda.so").resolve())

    def environment(self, mode=None, **more):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("MEMOIR_")}
        if mode:
            kept.update(LD_PRELOAD=self.library, MEMOIR_PIN=mode, MEMOIR_PIN_CACHE=f"{self.work}/cache", MEMOIR_DIR="/dev/shm")
        kept.update(more)
        return kept

    def run(self, words, mode=None, **more):
        left = self.deadline - time.monotonic()
        if left < 5:
            return None
        try:
            done = subprocess.run([str(w) for w in words], env=self.environment(mode, **more), capture_output=True, text=True,
                                  timeout=left)
        except subprocess.TimeoutExpired:
            return None
        if done.returncode != 0:
            print(f"{words} {mode}: exit {done.returncode}: {done.stderr[-800:]}", flush=True)
            return None
        if done.stderr.strip():
            print(done.stderr.strip()[-1500:], flush=True)
        return json.loads(done.stdout.strip().splitlines()[-1])

    def is_over(self):
        return self.deadline - time.monotonic() < 5

    def bench(self, *words, mode=None, **more):
        return self.run([f"{self.bin}/pin_bench", *words], mode, **more)


rows = []


def row(what, value, reach, ok):
    rows.append({"what": what, "value": value, "reach": reach, "ok": bool(ok)})
    print(f"{'ok  ' if ok else 'MISS'} {what}: {value} (reach: {reach})", flush=True)


ROUNDS = [5, 3, 1]  # up to 32 MiB, at 64, beyond


def rounds_of(mib, quick):
    return 1 if quick else ROUNDS[0 if mib <= 32 else 1 if mib == 64 else 2]


def seed_once(b, policy, variant, mib, history):
    if policy in ("auto", "profile"):
        return b.bench("seed", "malloc", variant, mib, mode=policy)
    if policy == "use":
        return b.bench("seed", "malloc", variant, mib, mode="use", MEMOIR_PIN_HISTORY=history)
    return b.bench("seed", policy, variant, mib)


def seed_workload(b, quick, results, save):
    """Round by round over all sizes, so that a deadline costs the last rounds and not the largest sizes."""
    history = f"{b.work}/history"
    b.bench("seed", "malloc", "turn", 16, mode="profile", MEMOIR_PIN_HISTORY=history)
    table = results["seed"] = {}
    for n in range(max(rounds_of(mib, quick) for mib in SIZES)):
        for mib in sorted(SIZES, key=lambda m: (m < 64, m)):  # large sizes first: a deadline costs the least
            if n >= rounds_of(mib, quick) or b.is_over():
                continue
            entry = table.setdefault(str(mib), {v: {p: [] for p in POLICIES} for v in ("turn", "together")})
            if n == 0:
                entry["wire"] = b.bench("wire", mib)
            for variant in ("turn", "together"):
                for policy in POLICIES:
                    if policy not in CHOSEN:
                        continue
                    if policy == "malloc" and (n > 0 or variant == "together" or mib > (64 if quick else 128)):
                        continue
                    if policy == "profile" and (n > 0 or variant == "together"):
                        continue
                    got = seed_once(b, policy, variant, mib, history)
                    if got:
                        entry[variant][policy].append(got)
            save()
    table = results["seed"] = dict(sorted(table.items(), key=lambda entry: int(entry[0])))
    results["rounds"] = {mib: min(len(e[v]["auto"]) for v in ("turn", "together")) for mib, e in table.items()}
    for mib in SIZES:
        if str(mib) in table:
            seed_print(mib, table[str(mib)])
    short = [f"{results['rounds'].get(str(mib), 0)} of {rounds_of(mib, quick)} at {mib} MiB" for mib in SIZES
             if results["rounds"].get(str(mib), 0) < rounds_of(mib, quick)]
    row("rounds", ", ".join(short) or "all", "all", not short)


def median(runs, key):
    return statistics.median(r[key] for r in runs) if runs else None


def seed_print(mib, entry):
    for variant in ("turn", "together"):
        text = []
        for policy, runs in entry[variant].items():
            if runs:
                text.append(f"{policy} {median(runs, 'whole_ms'):.1f}/{median(runs, 'copy_ms'):.1f} ms "
                            f"{max(r['kernel_pinned_peak'] for r in runs) / MIB:.0f} MiB "
                            f"({', '.join(f'{p} ' + format(median(runs, p + '_ms'), '.1f') for p in PARTS)}"
                            + (f", register {median(runs, 'register_ms'):.1f}, staged {median(runs, 'staged_copies'):.0f} copies,"
                               f" touched ahead {median(runs, 'touched') / MIB:.0f} MiB" if "register_ms" in runs[0] else "") + ")")
        print(f"{mib} MiB {variant}: " + "; ".join(text), flush=True)


def wire_ms(entry):
    """What all copies take at pinned bandwidth: as measured by itself, or by the policy that pins everything, whichever was faster (a link that was idle begins slowly)."""
    times = [median(entry[v]["host"], "copy_ms") for v in ("turn", "together") if entry[v]["host"]]
    if entry["wire"]:
        times.append(375 * (entry["wire"]["pinned_to_ms"] + entry["wire"]["pinned_from_ms"]))
    return min(times) if times else None


def seed_rows(results):
    slow, seed_ratio, wire_ratio, share = [], [], [], []
    for mib, entry in results["seed"].items():
        size, wire = int(mib), wire_ms(entry)
        for variant in ("turn", "together"):
            runs = entry[variant]
            auto, host, seed = (median(runs[p], "whole_ms") for p in ("auto", "host", "seed"))
            if auto and host:
                slow.append((host / auto, f"{mib} MiB {variant}"))
            if auto and seed and size >= 64:
                seed_ratio.append((seed / auto, f"{mib} MiB {variant}"))
            if wire and runs["auto"]:
                wire_ratio.append((size, median(runs["auto"], "copy_ms") / wire, variant))
            for r in runs["auto"]:
                limit = 0.075 * r["allocated"] + 32 * MIB
                share.append((r["kernel_pinned_peak"] / limit, r["kernel_pinned_peak"] / r["allocated"], f"{mib} MiB {variant}"))
    if slow:
        worst = min(slow)
        row("auto against pinning everything, whole program", f"{worst[0]:.2f} x faster at worst ({worst[1]})", "> 1 at every size", worst[0] > 1)
    for variant in ("turn", "together"):
        these = [s for s in seed_ratio if s[1].endswith(variant)]
        if these:
            worst = min(these)
            row(f"auto against two runs (profile, then use) from 64 MiB, whole program, {variant}", f"{worst[0]:.2f} x faster at worst ({worst[1]})", ">= 1.3",
                worst[0] >= 1.3)
    for sizes, limit in (((16,), 1.35), ((64, 128, 256), 1.5)):
        these = [(r, f"{s} MiB {v}") for s, r, v in wire_ratio if s in sizes]
        if these:
            worst = max(these)
            row(f"auto, copies only against the wire at {', '.join(map(str, sizes))} MiB", f"{worst[0]:.3f} ({worst[1]})", f"<= {limit}", worst[0] <= limit)
    if share:
        worst = max(share)
        row("pinned, by the kernel's counters", f"{100 * worst[1]:.1f} % at {worst[2]}, {100 * worst[0]:.0f} % of what is allowed", "<= 7.5 % + 32 MiB", worst[0] <= 1)


def counter_rows(results):
    """The kernel's counters must see both kinds of pinned memory: of cudaHostAlloc, and registered."""
    allocated, registered = [], []
    for mib, entry in results["seed"].items():
        if int(mib) < 64:
            continue  # the counters are off by up to 125 pages for each processor
        allocated += [(r["kernel_pinned_peak"] / r["allocated"], mib) for r in entry["together"]["host"]]
        registered += [(r["kernel_pinned_peak"] / r["pinned_peak"], mib) for r in entry["together"]["auto"] if r.get("pinned_peak")]
    for what, found in (("cudaHostAlloc", allocated), ("registered", registered)):
        if found:
            worst = max(found, key=lambda f: abs(f[0] - 1))
            row(f"the kernel's counters against what is pinned, {what}", f"{worst[0]:.3f} at {worst[1]} MiB", "within 10 %", abs(worst[0] - 1) <= 0.1)


def traces(b, results):
    for what, limit in (("adversary", 2.0), ("zipf", 1.2)):
        got = [r for r in (b.bench(what, mode="auto", MEMOIR_PIN_BUDGET="unlimited") for _ in range(3)) if r]
        results[what] = got
        if got:
            ratio = statistics.median(r["ratio"] for r in got)
            row(f"{what} trace against the offline optimum", f"{ratio:.3f}", f"<= {limit}", ratio <= limit)
    limited = results["zipf_budget"] = b.bench("zipf", mode="auto", MEMOIR_PIN_BUDGET="256M")
    if limited:
        row("zipf trace under a budget of 256 MiB, against the optimum without one", f"{limited['ratio']:.3f}", "reported", True)


def shadow(b, quick, results):
    out = results["shadow"] = []
    for mib in (4, 16, 64):
        for _ in range(1 if quick else 2):
            off = b.bench("seed", "malloc", "turn", mib, mode="shadow")
            on = b.bench("seed", "malloc", "turn", mib, mode="auto")
            again = b.bench("seed", "malloc", "turn", mib, mode="shadow")  # what is predicted must not be measured by the same run
            if off and on and again:
                out.append({"mib": mib, "predicted_ms": off["observed_ms"] - off["cost_ms"], "by_calibration_ms": off["saved_ms"] + off["staged_saved_ms"] - off["cost_ms"],
                            "measured_ms": again["copy_ms"] - on["copy_ms"]})
    errors = [abs(r["predicted_ms"] / r["measured_ms"] - 1) for r in out]
    if errors:
        row("shadow's predicted saving against the measured one", f"off by {100 * statistics.median(errors):.1f} % (worst {100 * max(errors):.1f} %)",
            "within 15 %", statistics.median(errors) <= 0.15)


def torch(b, quick, results):
    steps = 40 if quick else 60
    out = results["torch"] = {"off": [], "auto": []}
    for _ in range(1):
        for mode in ("off", "auto"):
            got = b.run(["python3", HERE / "pin_torch.py", 64, steps], None if mode == "off" else mode)
            if got:
                out[mode].append(got)
    checked = b.run(["python3", HERE / "pin_torch.py", 64, 12], "auto", MEMOIR_PIN_CHECKSUM="1")
    plain = b.run(["python3", HERE / "pin_torch.py", 64, 12])
    if out["off"] and out["auto"]:
        ratio = median(out["auto"], "gb_s") / median(out["off"], "gb_s")
        same = len({r["digest"] for runs in out.values() for r in runs}) == 1
        if checked and plain:
            same = same and checked["digest"] == plain["digest"]
        row("PyTorch, host to device from pageable tensors", f"{ratio:.2f} x, results {'identical' if same else 'DIFFER'}", ">= 1.5 x, identical", ratio >= 1.5 and same)


def forks(b, results):
    results["fork"] = {m or "off": b.bench("fork", 512, mode=m) for m in (None, "auto")}
    print("fork", results["fork"], flush=True)


def main():
    bin_dir, out = sys.argv[1], pathlib.Path(sys.argv[2])
    quick = "--quick" in sys.argv
    seconds = float(sys.argv[sys.argv.index("--seconds") + 1]) if "--seconds" in sys.argv else 540
    if "--sizes" in sys.argv:
        SIZES[:] = [int(s) for s in sys.argv[sys.argv.index("--sizes") + 1].split(",")]
    if "--policies" in sys.argv:
        CHOSEN.intersection_update(sys.argv[sys.argv.index("--policies") + 1].split(","))
    if "--rounds" in sys.argv:
        ROUNDS[:] = [int(s) for s in sys.argv[sys.argv.index("--rounds") + 1].split(",")]
    parts = sys.argv[sys.argv.index("--parts") + 1].split(",") if "--parts" in sys.argv else None
    results = {"quick": quick}

    def save():
        results["rows"] = rows
        (out / "pin.json.new").write_text(json.dumps(results, indent=1))
        (out / "pin.json.new").replace(out / "pin.json")

    with tempfile.TemporaryDirectory() as work:
        b = Bench(bin_dir, work, time.monotonic() + seconds)
        start = time.monotonic()
        b.bench("seed", "malloc", "turn", 1, mode="auto")  # calibrates
        results["cost"] = [p.read_text() for p in pathlib.Path(work, "cache").glob("*")]
        for name, part in (("torch", lambda: torch(b, quick, results)), ("traces", lambda: traces(b, results)),
                           ("shadow", lambda: shadow(b, quick, results)), ("fork", lambda: forks(b, results)),
                           ("seed", lambda: seed_workload(b, quick, results, save))):
            if parts and name not in parts:
                continue
            began = time.monotonic()
            part()
            print(f"-- {name}: {time.monotonic() - began:.1f} s", flush=True)
            save()
        if "seed" in results:
            seed_rows(results)
            counter_rows(results)
        results["seconds"] = time.monotonic() - start
    save()
    (out / "pin.txt").write_text("".join(f"{'ok  ' if r['ok'] else 'MISS'} {r['what']}: {r['value']} (reach: {r['reach']})\n" for r in rows))
    return 0 if all(r["ok"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
