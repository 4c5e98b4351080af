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
        self.attach_ms = json.loads(self.ask("status"))["attach_took"] * 1000

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

    def programs(self):
        """Runs of its probes' programs in the kernel, and the nanoseconds that they took; counted with kernel.bpf_stats_enabled."""
        runs = ns = 0
        for entry in pathlib.Path(f"/proc/{self.process.pid}/fdinfo").iterdir():
            fields = dict(re.findall(r"(\w+):\t(\d+)", entry.read_text()))
            if fields.get("prog_type") == "2": # BPF_PROG_TYPE_KPROBE
                runs += int(fields.get("run_cnt", 0))
                ns += int(fields.get("run_time_ns", 0))
        return runs, ns

    def stop(self):
        """How long the probes took to remove, in ms."""
        self.process.terminate()
        self.process.wait(timeout=60)
        return float(re.findall(r"removed the probes .* in ([0-9.]+) ms", open(self.log).read())[-1])


class Program:
    """A child that answers each line with a line of JSON."""

    def __init__(self, command, env=None):
        self.p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
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
    return process["spaces"].get(space, {}).get("bytes", 0) if process else 0


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
    return {"driver": told["driver"][0]["used"], "kinds": kinds}


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
            recorded = traced["graphs"]["recorded"]
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


# Calls in a row, and how often both programs are asked for them.
PARTS = {"copy_4k": 150, "copy_1m": 40, "copy_16m": 6, "pair": 16, "set_device": 400, "system_call": 10}
MEASURED_CPU = 3


def pin(pid, cpus):
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), cpus)


def hidden_driver(work):
    """A copy of the driver's library under a name that the observer does not look for, found by the name that programs ask for."""
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout
    found = re.search(r"libcuda\.so\.1 \(libc6,x86-64\S*\) => (\S+)", listed)
    if not found:
        raise RuntimeError("libcuda.so.1 is not known to ldconfig")
    folder = pathlib.Path(work, "hidden")
    folder.mkdir(exist_ok=True)
    (folder / "libdriver.so").write_bytes(pathlib.Path(found[1]).read_bytes())
    (folder / "libcuda.so.1").unlink(missing_ok=True)
    (folder / "libcuda.so.1").symlink_to("libdriver.so")
    return {**os.environ, "LD_LIBRARY_PATH": str(folder)}


def in_turn(program, other, part, rounds):
    """How much longer a call takes in `program`: each answer against those of `other` before and after it. The machine's speed
    changes by a third within seconds; the three are a few milliseconds apart, on the same processor."""
    line = f"{part} {PARTS[part]}"
    before, more, base = other.ask(line)["us"], [], []
    for _ in range(rounds):
        here = program.ask(line)["us"]
        after = other.ask(line)["us"]
        more.append(here - (before + after) / 2)
        base.append(after)
        before = after
    return {"base_us": statistics.median(base), "more_us": statistics.median(more), "base": base, "more": more}


def costs(bin_dir, work, rounds, results):
    program, other = Program([f"{bin_dir}/costs"]), Program([f"{bin_dir}/costs"], env=hidden_driver(work))
    all_cpus = os.sched_getaffinity(0)
    for p in (program, other):
        p.read()
        pin(p.pid, {MEASURED_CPU})
    pin(os.getpid(), all_cpus - {MEASURED_CPU}) # and the observer, which inherits it
    same = {part: in_turn(program, other, part, rounds // 4) for part in PARTS}
    attach, detach = [], []
    observer = Observer(bin_dir, work)
    program.ask("copy_4k 10")
    observer.settle(program.pid)
    traced = {part: in_turn(program, other, part, rounds) for part in PARTS}
    process = observer.process_of(program.pid)
    if not process or not process["copies"]["to_device"]["copies"] or observer.process_of(other.pid):
        raise RuntimeError("not exactly one of the two programs is traced")
    attach.append(observer.attach_ms)
    detach.append(observer.stop())
    for _ in range(4):
        observer = Observer(bin_dir, work)
        attach.append(observer.attach_ms)
        detach.append(observer.stop())
    results["probe_ns"] = probe_ns(bin_dir, work, program)
    for p in (program, other):
        p.close()
    pin(os.getpid(), all_cpus)
    results["costs"] = {"same": same, "traced": traced, "attach_ms": attach, "detach_ms": detach}
    print("     programs of probes, ns each:", results["probe_ns"], flush=True)
    costs_tell(same, traced)
    row("attach", f"{statistics.median(attach):.0f} ms", "<= 100 ms", statistics.median(attach) <= 100)
    row("detach", f"{statistics.median(detach):.0f} ms", "<= 250 ms", statistics.median(detach) <= 250)


def probe_ns(bin_dir, work, program):
    """How much of it is our programs, by the kernel's own measurement, which makes them slower by some 40 ns."""
    subprocess.run(["sysctl", "-q", "-w", "kernel.bpf_stats_enabled=1"], check=False)
    observer = Observer(bin_dir, work)
    told = {}
    program.ask("copy_4k 10")
    observer.settle(program.pid)
    for part in PARTS:
        before = observer.programs()
        program.ask(f"{part} {10 * PARTS[part]}")
        runs, ns = ((after - b) for after, b in zip(observer.programs(), before))
        told[part] = {"runs": runs, "ns": round(ns / runs) if runs else 0}
    observer.stop()
    subprocess.run(["sysctl", "-q", "-w", "kernel.bpf_stats_enabled=0"], check=False)
    return told


def costs_tell(same, traced):
    for part, told in traced.items():
        parts = statistics.quantiles(told["base"], n=20)
        noise = parts[-1] - parts[0]
        text = (f"{told['base_us']:.2f} us, {told['more_us']:+.2f} us traced ({same[part]['more_us']:+.2f} if neither is); "
                f"not traced {parts[0]:.2f} to {parts[-1]:.2f} us")
        if part == "copy_4k":
            row("copy of 4 KB", text, "<= +1 us", told["more_us"] <= 1)
        elif part in ("copy_1m", "copy_16m"): # noise: how far apart the medians of the same calls are, not traced, but for a tenth
            row(f"copy of {part[5:-1]} MB", text, "below noise", told["more_us"] <= max(noise, 0.01 * told["base_us"]))
        elif part == "pair":
            row("cudaMalloc + cudaFree of 1 MB", text, "<= +8 us", told["more_us"] <= 8)
        else:
            print(f"     {part}: {text}", flush=True)
    print(f"     a system call of any process: {same['system_call']['base_us']:.3f} us, "
          f"{traced['system_call']['base_us']:.3f} us while there is an observer", flush=True)


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
    seen = traced["copies"]["to_device"]["copies"]
    results["flood"] = {"made": said["copies"], "seen": seen, "lost": traced["lost"], "cpu": cpu, "seconds": seconds}
    row(f"{said['copies'] / seconds:,.0f} copies/s from 4 threads for {seconds} s: lost",
        f"{traced['lost']['events']}, {said['copies'] - seen} not counted", "0",
        traced["lost"]["events"] == 0 and seen == said["copies"])
    row("observer's share of a core meanwhile", f"{cpu:.1%}", "<= 25 %", cpu <= 0.25)


STEPS = ("launch_ms", "transformer_ms")
STEP_NAMES = {"launch_ms": "launch-bound step", "transformer_ms": "transformer step"}
STEPS_AT_ONCE = 4 # of which the first is left out: the other program has had the processor and the device
STEP_CPUS = {3, 4, 5, 6}


def steps_ask(program):
    answer = program.ask(str(STEPS_AT_ONCE))
    return {key: statistics.median(answer[key][1:]) for key in STEPS}


def steps_in_turn(program, other, rounds):
    """As in_turn(), for steps of training."""
    told = {key: {"base": [], "ratio": []} for key in STEPS}
    before = steps_ask(other)
    for _ in range(rounds):
        here, after = steps_ask(program), steps_ask(other)
        for key in STEPS:
            told[key]["ratio"].append(2 * here[key] / (before[key] + after[key]))
            told[key]["base"].append(after[key])
        before = after
    return told


def steps_tell(told, what, reach):
    for key in STEPS:
        base, ratio = (statistics.median(told[key][side]) for side in ("base", "ratio"))
        row(f"{STEP_NAMES[key]}{what}, {len(told[key]['ratio'])} times in turn", f"{base:.3f} ms, {ratio:.4f} x",
            f"<= {reach} x", ratio <= reach)


def children_of(pid):
    """The processes below `pid`: those that load data, and under `memoir run` the program itself."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *children_of(int(child))]
    return found


def trainer(command=(), env=None):
    program = Program([*command, sys.executable, str(HERE / "train.py")], env=env)
    program.hello = program.read()
    for pid in (program.pid, *children_of(program.pid)):
        pin(pid, STEP_CPUS)
    return program


def train(bin_dir, work, rounds, results):
    program, other = trainer(), trainer(env=hidden_driver(work))
    same = steps_in_turn(program, other, rounds // 4)
    observer = Observer(bin_dir, work)
    steps_ask(program)
    observer.settle(program.pid)
    told = steps_in_turn(program, other, rounds)
    observer.ask("flush")
    results["train_process"] = observer.process_of(program.pid)
    pathlib.Path(work, "train.trace").write_bytes(observer.ask(f"dump {program.pid}"))
    if not results["train_process"] or observer.process_of(other.pid):
        raise RuntimeError("not exactly one of the two programs is traced")
    observer.stop()
    results["train"] = {"torch": program.hello["torch"], "same": same, "traced": told}
    for p in (program, other):
        p.close()
    print("     if neither is traced:", {key: round(statistics.median(same[key]["ratio"]), 4) for key in STEPS}, flush=True)
    steps_tell(told, "", 1.01)


def tracked(bin_dir, work, rounds, results):
    memoir = ["env", f"LD_LIBRARY_PATH={bin_dir}/needed:{bin_dir}/lib", f"MEMOIR_DIR={work}", f"{bin_dir}/bin/memoir", "run",
              "--quiet"]
    plain = ["env", "-u", "LD_LIBRARY_PATH"] # the program has its own libraries
    other = trainer(plain)
    for name, options, reach in (("run", [], 1.02), ("track", ["--track"], 1.10)):
        program = trainer([*memoir, *options, "--", *plain])
        results[f"under_{name}"] = told = steps_in_turn(program, other, rounds)
        program.close()
        steps_tell(told, f" under memoir run{''.join(f' {word}' for word in options)}", reach)
    other.close()


def main():
    bin_dir, out = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
    quick = "--quick" in sys.argv
    only = sys.argv[sys.argv.index("--only") + 1].split(",") if "--only" in sys.argv else None
    work = tempfile.mkdtemp(prefix="memoir-gpu-", dir="/dev/shm")
    results = {}
    start = time.monotonic()
    steps = {"counted": lambda: counted(bin_dir, work, "static", results),
             "owners": lambda: owners(bin_dir, work, results),
             "costs": lambda: costs(bin_dir, work, 60 if quick else 400, results),
             "flood": lambda: flood(bin_dir, work, 10 if quick else 30, results),
             "train": lambda: train(bin_dir, work, 20 if quick else 70, results),
             "shared": lambda: counted(bin_dir, work, "shared", results),
             "tracked": lambda: tracked(bin_dir, work, 20 if quick else 50, results)}
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
