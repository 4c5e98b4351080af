"""What is not a load: the start of a small program, memory that is given back, and what accounting costs."""

import json
import statistics

import allocators
import programs
import report
from measure import number, spread

GIVE_BACK_MB, IDLE_MS = 400, 2500
PRESSURE = {"MEMOIR_MALLOC": "pressure=critical"}
ACCOUNT = {"MEMOIR_MALLOC": "account=1"}


def row_start(bench, table, folder, found, wanted):
    """Peak resident memory of programs that allocate little, against glibc's."""
    rounds = 3 if bench.quick else 15
    for what, command in (("a small program", [bench.program("small")]), ("/bin/true", ["/bin/true"]), ("ls", ["/bin/ls", "/"])):
        rss = {name: [] for name in bench.allocators}
        for i in range(rounds):
            for allocator in bench.allocators.values():
                figures, _ = bench.launch(command, allocator.preload, allocator.environment, folder)
                rss[allocator.name].append(figures["rss_bytes"])
                bench.record("start", {"program": what, "allocator": allocator.name, "round": i + 1, **figures})
        kb = {name: statistics.median(values) / 1024 for name, values in rss.items()}
        told = ", ".join(f"{name} {number(value)}" for name, value in kb.items())
        if bench.ours and what == "a small program":
            table.add("peak RSS of a small program less glibc's", "<= 0 KiB", kb[allocators.OURS] - kb["glibc"], "KiB", at_most=0, detail=told)
        else:
            shown = kb.get(allocators.OURS, kb["glibc"])
            table.info(f"peak RSS of {what}", shown, "KiB", told)


def give_back(bench, allocator, kind, environment, folder):
    command = [bench.program("give_back"), str(GIVE_BACK_MB // 10 if bench.quick else GIVE_BACK_MB),
               str(100 if bench.quick else IDLE_MS), kind]
    figures, output = bench.launch(command, allocator.preload, {**allocator.environment, **environment}, folder)
    if figures["status"] != 0:
        raise RuntimeError(f"it fails under {allocator.name} with status {figures['status']}")
    told = json.loads(output)
    bench.record("return", {"allocator": allocator.name, "kind": kind, **environment, **told})
    return {key.removesuffix("_bytes"): value / 1e6 for key, value in told.items()}


def row_return(bench, table, folder, found, wanted):
    """Two threads free 400 MB, half of it each other's: what is resident after 2.5 s of nothing."""
    for kind in ("small", "mixed"):
        told = []
        for allocator in bench.allocators.values():
            mb = give_back(bench, allocator, kind, {}, folder)
            told.append(f"{allocator.name} {mb['idle']:.0f} of {mb['live']:.0f}, threads ended {mb['ended']:.0f}, trimmed {mb['trimmed']:.0f}")
            if allocator is bench.ours:
                ours = mb
        if not bench.ours:
            table.info(f"resident after {IDLE_MS / 1000} s idle, {kind} blocks", 0, "MB", "; ".join(told))
            continue
        freed = ours["live"] - (ours["live"] - ours["asked"])
        table.add(f"resident after {IDLE_MS / 1000} s idle, {kind} blocks", "<= half", ours["idle"] / freed, "of what was freed", at_most=0.5,
                  detail="MB: " + "; ".join(told))
        pressed = give_back(bench, bench.ours, kind, PRESSURE, folder)
        table.add(f"the same under pressure, {kind} blocks", "<= 24 MB", pressed["idle"], "MB", at_most=24,
                  detail=f"threads ended {pressed['ended']:.0f}, trimmed {pressed['trimmed']:.0f}")


def row_account(bench, table, folder, found, wanted):
    """Accounting on: the tight loop, bytes a block, and real programs against glibc without any."""
    if not bench.ours:
        table.info("accounting: ours is not in this build", 0, "rows")
        return
    plain, accounted = bench.ours, allocators.Allocator("accounted", bench.ours.preload, ACCOUNT)
    pairs = [str(bench.build / "bench/bench_track_pairs"), "1", str(60000 if bench.quick else 6000000)]
    over, told = [], {"plain": [], "accounted": []}
    with bench.books() as books:
        book = {"MEMOIR_DIR": str(books)}
        for _ in range(max(bench.rounds, 1)):
            ns = {}
            for allocator in (plain, accounted):
                figures, output = bench.launch(pairs, allocator.preload, {**allocator.environment, **book}, folder)
                if figures["status"] != 0:
                    raise RuntimeError(f"the tight loop fails with status {figures['status']}")
                # The program's own figure is by the clock on the wall, which others on the machine make longer.
                ns[allocator.name] = float(output.split()[-1]) if bench.by == "wall_s" else figures["cpu_s"] * 1e9 / int(pairs[2])
            bench.record("account", ns)
            over.append(ns["accounted"] - ns[plain.name])
            told["plain"].append(ns[plain.name])
            told["accounted"].append(ns["accounted"])
        table.add("accounting: a pair of the tight loop costs more by", "<= 8 ns", statistics.median(over), "ns", at_most=8,
                  detail=f"{spread(over)}; " + ", ".join(f"{k} {number(statistics.median(v))}" for k, v in told.items()))
        account_memory(bench, table, folder, plain, accounted, book)
        account_programs(bench, table, folder, accounted, book)


def account_memory(bench, table, folder, plain, accounted, book):
    blocks = 20000 if bench.quick else 1000000
    held = {}
    for allocator in (plain, accounted):
        _, output = bench.launch([str(bench.build / "bench/bench_track_hold"), str(blocks)], allocator.preload, {**allocator.environment, **book}, folder)
        line = json.loads(output)
        bench.record("account", {"allocator": allocator.name, **line})
        held[allocator.name] = line["memory_bytes"]
    table.add(f"accounting: memory for each of {blocks:,} live blocks", "<= 8 B", (held["accounted"] - held[plain.name]) / blocks, "B", at_most=8)


def account_programs(bench, table, folder, accounted, book):
    """Interleaved with glibc, as the loads are."""
    accounted = allocators.Allocator(accounted.name, accounted.preload, {**accounted.environment, **book})
    ratios = {}
    for program in programs.programs(bench.quick, folder):
        each = []
        for i in range(bench.rounds):
            value = {}
            for allocator in (bench.allocators["glibc"], accounted):
                figures, _ = program.run(bench, allocator, folder)
                bench.record("account", {"load": program.name, "allocator": allocator.name, "round": i + 1, **figures})
                value[allocator.name] = figures[bench.by] if figures["status"] == 0 else None
            if None in value.values():
                raise RuntimeError(f"{program.name} fails with accounting on")
            each.append(value["accounted"] / value["glibc"])
        ratios[program.name] = statistics.median(each)
    table.add("accounting: real programs to glibc without, geometric mean", "< 1", report.geometric(list(ratios.values())), "x", below=1,
              detail=", ".join(f"{name} {number(r)}" for name, r in ratios.items()))


ROWS = {"start": row_start, "return": row_return, "account": row_account}
