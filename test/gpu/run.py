#!/usr/bin/env python3
"""What the observer tells and costs on a machine with a GPU, as a table. Run by script/test-gpu.

Usage: run.py BIN OUT [--quick] [--only WHAT,...]

WHAT: counted, owners, costs, flood, train, shared, tracked

BIN has memoir-observe and the compiled programs of this folder; results go to OUT/gpu.json. Exits with 1 when a row misses.
"""

import json
import os
import pathlib
import re
import statistics
import subprocess
import socket
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


class Observer:
    """memoir-observe for the whole machine, until stop()."""

    def __init__(self, bin_dir, work):
        self.socket = f"{work}/observe.sock"
        read_end, write_end = os.pipe()
        start = time.monotonic()
        self.process = subprocess.Popen(
            [f"{bin_dir}/libexec/memoir/memoir-observe", "--all", "--name", "test-gpu", "--socket", self.socket,
             "--ready", str(write_end), "--dir", work],
            pass_fds=[write_end], stderr=open(f"{work}/observe.log", "a"),
            env={**os.environ, "LD_LIBRARY_PATH": f"{bin_dir}/needed"})
        os.close(write_end)
        with os.fdopen(read_end) as ready:
            if ready.read().strip() != "ready":
                raise SystemExit("memoir-observe did not start: " + open(f"{work}/observe.log").read())
        self.start_ms = (time.monotonic() - start) * 1e3
        self.log = f"{work}/observe.log"
        self.attach_ms = json.loads(self.ask("status"))["attach_ms"]

    def ask(self, request):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(self.socket)
            f = s.makefile("rwb")
            f.write(request.encode() + b"\n")
            f.flush()
            head = f.readline().decode().split(None, 1)
            if head[0] != "ok":
                raise RuntimeError(f"{request}: {head[1]}")
            return f.read(int(head[1]))

    def process_of(self, pid):
        for p in json.loads(self.ask("list"))["processes"]:
            if p["pid"] == pid:
                return p
        return None

    def settle(self, pid, patience_s=3):
        """Until the driver's figure of the process is known: asking NVML for it disturbs the program once, at the beginning."""
        end = time.monotonic() + patience_s
        while time.monotonic() < end and not (self.process_of(pid) or {}).get("devices"):
            time.sleep(0.05)

    def cpu_s(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        """How long the probes took to remove, in ms."""
        self.process.terminate()
        self.process.wait(timeout=60)
        return float(re.findall(r"removed the probes .* in ([0-9.]+) ms", open(self.log).read())[-1])


class Program:
    """A child that answers each line with a line of JSON."""

    def __init__(self, command):
        self.p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.p.pid

    def read(self):
        line = self.p.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.p.args} ended with {self.p.wait()}")
        return json.loads(line)

    def send(self, text="go"):
        self.p.stdin.write(text + "\n")
        self.p.stdin.flush()

    def ask(self, text="go"):
        self.send(text)
        return self.read()

    def close(self):
        self.p.stdin.close()
        return self.p.wait(timeout=60)


rows = []


def row(what, value, reach, ok):
    rows.append({"what": what, "value": value, "reach": reach, "ok": bool(ok)})
    print(f"{'ok  ' if ok else 'MISS'} {what}: {value} (reach: {reach})", flush=True)


def live(process, space):
    return process["spaces"].get(space, {}).get("live_bytes", 0) if process else 0


def nvml_used(pid):
    out = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
                         capture_output=True, text=True).stdout
    for line in out.splitlines():
        fields = [f.strip() for f in line.split(",")]
        if fields[0] == str(pid) and fields[1].isdigit():
            return int(fields[1]) << 20
    return None


def owners_of(bin_dir, observer, pid):
    """What `memoir trace owners` says of the first device; None: the driver counts nothing there."""
    done = subprocess.run([f"{bin_dir}/bin/memoir", "trace", "owners", str(pid), "--json", "--socket", observer.socket],
                          capture_output=True, text=True,
                          env={**os.environ, "LD_LIBRARY_PATH": f"{bin_dir}/needed:{bin_dir}/lib"})
    told = json.loads(done.stdout) if done.returncode == 0 else {"driver": []}
    if not told["driver"]:
        return None
    kinds = {}
    for owner in told["owners"]:
        kinds[owner["kind"]] = kinds.get(owner["kind"], 0) + owner["bytes"]
    return {"driver": told["driver"][0]["used_bytes"], "kinds": kinds}


def counted(bin_dir, work, variant, results):
    observer = Observer(bin_dir, work)
    program = Program([f"{bin_dir}/counted-{variant}"])
    wrong, phases = [], []
    try:
        while True:
            said = program.read()
            observer.ask("flush")
            traced = observer.process_of(program.pid)
            for space in ("dram", "pinned", "managed", "registered"):
                if live(traced, space) != said[space]:
                    wrong.append(f"{said['phase']}: {space} {live(traced, space)} != {said[space]}")
            recorded = traced["graphs"]["recorded_bytes"]
            if recorded != said["graph"]:
                wrong.append(f"{said['phase']}: graphs {recorded} != {said['graph']}")
            if variant == "static":
                observer.settle(program.pid) # a context is made before the driver counts it
                said["owners"] = owners_of(bin_dir, observer, program.pid)
                said["nvml"] = nvml_used(program.pid)
            phases.append(said)
            program.send()
            if said["phase"] == "reset":
                break
        program.close()
        lost = traced["lost"]
        results[f"counted_{variant}"] = {"phases": phases, "wrong": wrong, "lost": lost, "copies": traced["copies"],
                                         "devices": traced.get("devices")}
    finally:
        observer.stop()
    row(f"live bytes against the program's own count, {variant} cudart, {len(phases)} phases",
        "equal" if not wrong else "; ".join(wrong[:4]), "equal", not wrong)


def owners(bin_dir, work, results):
    """`memoir trace owners` after every phase: its rows against the driver's figure of the process."""
    shares, wrong = [], []
    for phase in results["counted_static"]["phases"]:
        told = phase["owners"]
        if not told:
            continue
        if sum(told["kinds"].values()) != told["driver"]:
            wrong.append(phase["phase"])
        if "CUDA context" not in told["kinds"] and phase["phase"] != "reset":
            wrong.append(f"{phase['phase']}: no context")
        off = told["kinds"].get("unknown", 0) + abs(told["kinds"].get("not counted by the driver", 0))
        shares.append((off / told["driver"], phase["phase"]))
    worst = max(shares) if shares else (1, "no figure of NVML")
    row("owners sum to NVML's figure, after every phase", "; ".join(wrong[:4]) or "equal", "equal", shares and not wrong)
    row("of which unknown, worst phase", f"{worst[0]:.2%} ({worst[1]})", "<= 2 %", worst[0] <= 0.02)


PAUSE_S = 0.5


def after_a_pause(program, warm, measured, observer=None):
    """A measured round. Both sides have the same pause and warm-up before it: what was idle runs slower at first."""
    program.ask(warm) # a traced program's stacks and contexts are known then
    start = time.monotonic()
    if observer:
        observer.settle(program.pid)
    time.sleep(max(0, start + PAUSE_S - time.monotonic()))
    program.ask(warm)
    return program.ask(measured)


def costs(bin_dir, work, rounds, results):
    program = Program([f"{bin_dir}/costs"])
    program.read()
    program.ask()
    off, on, attach, detach = [after_a_pause(program, "few", "go")], [], [], []
    for _ in range(rounds):
        observer = Observer(bin_dir, work)
        attach.append(observer.attach_ms)
        on.append(after_a_pause(program, "few", "go", observer))
        detach.append(observer.stop())
        off.append(after_a_pause(program, "few", "go"))
    # How much of that is our programs: a round with the kernel's own measurement, which slows it down a little.
    subprocess.run(["sysctl", "-q", "-w", "kernel.bpf_stats_enabled=1"], check=False)
    observer = Observer(bin_dir, work)
    program.ask()
    status = json.loads(observer.ask("status"))
    results["probe_ns"] = {key: status.get(key) for key in ("enter_ns", "leave_ns", "stacks", "records")}
    print("     programs of probes, mean:", results["probe_ns"], flush=True)
    observer.stop()
    subprocess.run(["sysctl", "-q", "-w", "kernel.bpf_stats_enabled=0"], check=False)
    program.close()
    pairs = [r["copy_4k_us"] - (off[i]["copy_4k_us"] + off[i + 1]["copy_4k_us"]) / 2 for i, r in enumerate(on)]
    print("     4 KB, each round against its neighbours:", [round(p, 2) for p in pairs], flush=True)
    median = lambda side, key: statistics.median(r[key] for r in side)
    results["costs"] = {"off": off, "on": on, "attach_ms": attach, "detach_ms": detach}
    # The processor's clock changes by a quarter within seconds: each round is compared with those before and after it.
    small = statistics.median(r["copy_4k_us"] - (off[i]["copy_4k_us"] + off[i + 1]["copy_4k_us"]) / 2
                              for i, r in enumerate(on))
    row("copy of 4 KB", f"{median(off, 'copy_4k_us'):.2f} -> {median(on, 'copy_4k_us'):.2f} us, {small:+.2f} by neighbouring rounds",
        "<= +1 us", small <= 1)
    for key, name in (("copy_1m_us", "1 MB"), ("copy_16m_us", "16 MB")):
        spread = max(r[key] for r in off) - min(r[key] for r in off)
        more = median(on, key) - median(off, key)
        row(f"copy of {name}", f"{median(off, key):.1f} -> {median(on, key):.1f} us, spread without {spread:.1f}",
            "below noise", more <= max(spread, 0.01 * median(off, key)))
    pair = median(on, "pair_us") - median(off, "pair_us")
    row("cudaMalloc + cudaFree of 1 MB", f"{median(off, 'pair_us'):.2f} -> {median(on, 'pair_us'):.2f} us, +{pair:.2f}",
        "<= +8 us", pair <= 8)
    row("attach", f"{statistics.median(attach):.0f} ms", "<= 100 ms", statistics.median(attach) <= 100)
    row("detach", f"{statistics.median(detach):.0f} ms", "<= 250 ms", statistics.median(detach) <= 250)


def flood(bin_dir, work, seconds, results):
    observer = Observer(bin_dir, work)
    program = Program([f"{bin_dir}/flood", str(seconds)])
    before = observer.cpu_s()
    said = program.read()
    cpu = (observer.cpu_s() - before) / seconds
    observer.ask("flush")
    traced = observer.process_of(program.pid)
    program.close()
    observer.stop()
    seen = traced["copies"]["to_device"]["count"]
    results["flood"] = {"made": said["copies"], "seen": seen, "lost": traced["lost"], "cpu": cpu, "seconds": seconds}
    row(f"{said['copies'] / seconds:,.0f} copies/s from 4 threads for {seconds} s: lost",
        f"{traced['lost']['events']}, {said['copies'] - seen} not counted", "0",
        traced["lost"]["events"] == 0 and seen == said["copies"])
    row("observer's share of a core meanwhile", f"{cpu:.1%}", "<= 25 %", cpu <= 0.25)


def train(bin_dir, work, rounds, steps, results):
    program = Program([sys.executable, str(HERE / "train.py")])
    said = program.read()
    times = {"off": {"launch_ms": [], "transformer_ms": []}, "on": {"launch_ms": [], "transformer_ms": []}}
    dump = None
    for n in range(rounds):
        for side in ("off", "on") if n % 2 == 0 else ("on", "off"):
            observer = Observer(bin_dir, work) if side == "on" else None
            answer = after_a_pause(program, "3", str(steps), observer)
            for key in times[side]:
                times[side][key] += answer[key]
            if observer:
                observer.ask("flush")
                results["train_process"] = observer.process_of(program.pid)
                dump = observer.ask(f"dump {program.pid}")
                observer.stop()
    program.close()
    results["train"] = {"torch": said["torch"], "times": times}
    pathlib.Path(work, "train.trace").write_bytes(dump or b"")
    for key, name in (("launch_ms", "launch-bound step"), ("transformer_ms", "transformer step")):
        off, on = (statistics.median(times[side][key]) for side in ("off", "on"))
        row(f"{name}, {len(times['on'][key])} each, interleaved", f"{off:.3f} -> {on:.3f} ms, {on / off:.4f} x", "<= 1.01 x",
            on / off <= 1.01)


def run_under(bin_dir, ways, steps, rounds):
    """Times of both steps in processes of their own, started in `ways` in turn: the machine has a faster and a slower state that
    last for seconds, so that few processes tell nothing."""
    times = {name: {"launch_ms": [], "transformer_ms": []} for name in ways}
    for n in range(rounds):
        for name, command in list(ways.items())[:: 1 if n % 2 else -1]:
            program = Program([*command, sys.executable, str(HERE / "train.py")])
            program.read()
            answer = program.ask(str(steps))
            program.close()
            for key in times[name]:
                times[name][key] += answer[key]
    return times


def tracked(bin_dir, work, steps, rounds, results):
    memoir = ["env", f"LD_LIBRARY_PATH={bin_dir}/needed:{bin_dir}/lib", f"MEMOIR_DIR={work}", f"{bin_dir}/bin/memoir", "run",
              "--quiet"]
    plain = ["env", "-u", "LD_LIBRARY_PATH"] # the program has its own libraries
    ways = {"plain": plain, "run": [*memoir, "--", *plain], "track": [*memoir, "--track", "--", *plain]}
    times = run_under(bin_dir, ways, steps, rounds)
    results["tracked"] = times
    for name, reach in (("run", 1.02), ("track", 1.10)):
        for key, what in (("launch_ms", "launch-bound step"), ("transformer_ms", "transformer step")):
            ratio = statistics.median(times[name][key]) / statistics.median(times["plain"][key])
            row(f"{what} under memoir run{' --track' if name == 'track' else ''}", f"{ratio:.3f} x", f"<= {reach} x",
                ratio <= reach)


def main():
    bin_dir, out = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
    quick = "--quick" in sys.argv
    only = sys.argv[sys.argv.index("--only") + 1].split(",") if "--only" in sys.argv else None
    work = tempfile.mkdtemp(prefix="memoir-gpu-", dir="/dev/shm")
    results = {}
    start = time.monotonic()
    steps = {"counted": lambda: counted(bin_dir, work, "static", results),
             "owners": lambda: owners(bin_dir, work, results),
             "costs": lambda: costs(bin_dir, work, 3 if quick else 15, results),
             "flood": lambda: flood(bin_dir, work, 10 if quick else 30, results),
             "train": lambda: train(bin_dir, work, 4 if quick else 10, 10 if quick else 20, results),
             "shared": lambda: counted(bin_dir, work, "shared", results),
             "tracked": lambda: tracked(bin_dir, work, 20 if quick else 30, 2 if quick else 4, results)}
    for name, what in steps.items():
        if only and name not in only:
            continue
        try:
            what()
        except Exception as error: # the other rows are worth having
            row(f"{type(error).__name__}", str(error)[:300], "no error", False)
        results["rows"] = rows
        results["took_s"] = time.monotonic() - start
        out.mkdir(parents=True, exist_ok=True)
        (out / "gpu.json").write_text(json.dumps(results, indent=1)) # what is cut short leaves the rows that it had
    results["took_s"] = time.monotonic() - start
    out.mkdir(parents=True, exist_ok=True)
    (out / "gpu.json").write_text(json.dumps(results, indent=1))
    for name in ("train.trace", "observe.log"):
        source = pathlib.Path(work, name)
        if source.exists():
            (out / name).write_bytes(source.read_bytes())
    failed = sum(not r["ok"] for r in rows)
    print(f"{len(rows) - failed} reached, {failed} missed, {results['took_s']:.0f} s")
    sys.exit(1 if failed else 0)


main()
