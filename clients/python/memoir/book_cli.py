"""python3 -m memoir.book: print what the books of this machine say."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any, Iterable, Optional, Sequence

from memoir.book import DEVICE_KINDS, SOURCES, SPACES, STATES, STOP_REASONS, Account, Book, BookError, Device, Frame, Site
from memoir.places import find_books

HEADINGS = ("PID", "SOURCE", "STATE", "ACCOUNT", "LIVE", "BLOCKS", "PEAK", "COMMAND")


def human(n: int) -> str:
    """25.5 MB, as the rest of Memoir prints sizes."""
    if n < 1000:
        return f"{n} B"
    value = float(n)
    for unit in ("kB", "MB", "GB", "TB", "PB", "EB"):
        value /= 1000
        if value < 999.95:
            return f"{value:.1f} {unit}"
    return f"{value:.0f} EB"


def account_name(account: Account, devices: Iterable[Device]) -> str:
    space = account.name or SPACES.get(account.space, f"space {account.space}")
    for device in devices:
        if device.record == account.device:
            return f"{device.name or DEVICE_KINDS.get(device.kind, 'device')} {device.ordinal}: {space}"
    return space


def state_name(book: Book) -> str:
    status = book.status()
    if status.state == 1 and not book.writer_alive():
        return "dead"
    name = STATES.get(status.state, str(status.state))
    return f"{name} ({STOP_REASONS[status.stop_reason]})" if STOP_REASONS.get(status.stop_reason) else name


def table_rows(book: Book) -> list[tuple[str, ...]]:
    who = book.identity
    front = (str(who.pid), SOURCES.get(who.source, str(who.source)), state_name(book))
    command = who.command or who.exe or who.comm
    devices, totals = book.devices(), book.totals()
    rows = []
    for account in book.accounts():
        t = totals.get(account.record)
        if t is not None:
            rows.append((*front, account_name(account, devices), human(t.live_bytes), str(t.live_blocks),
                         human(t.peak_bytes), command))
    return rows or [(*front, "-", "-", "-", "-", command)]


def print_table(rows: Sequence[Sequence[str]]) -> None:
    rows = [HEADINGS, *rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS) - 1)]
    for row in rows:
        cells = [c.rjust(w) if i in (0, 4, 5, 6) else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths))]
        print("  ".join([*cells, row[-1]]).rstrip())


def frame_json(f: Frame) -> dict[str, Any]:
    if f.script:
        return {"file": f.script.file, "function": f.script.function, "line": f.line or None}
    return {"module": f.module.path if f.module else None, "build_id": f.module.build_id if f.module else None,
            "offset": f.offset if f.known else None}


def site_json(site: Site) -> dict[str, Any]:
    frames = [frame_json(f) for f in site.frames]
    return {"number": site.number, "key": f"{site.key:016x}", "account": site.account, "frames": frames, "live_bytes": site.live_bytes,
            "live_blocks": site.live_blocks, "alloc_bytes": site.alloc_bytes, "alloc_blocks": site.alloc_blocks}


def book_json(book: Book, sites: bool, blocks: bool) -> dict[str, Any]:
    totals = book.totals()
    answer: dict[str, Any] = {
        "identity": asdict(book.identity),
        "status": {**asdict(book.status()), "writer_alive": book.writer_alive()},
        "watchers": [asdict(w) for w in book.watchers()],
        "devices": [asdict(d) for d in book.devices()],
        "accounts": [],
        "accounts_left_out": book.left_out(),
    }
    for account in book.accounts():
        t = totals.get(account.record)
        if t is None:
            continue
        answer["accounts"].append({
            **asdict(account), "partial": account.partial, "sampled": account.sampled, **asdict(t), "live_bytes": t.live_bytes, "live_blocks": t.live_blocks,
            "peak_bytes": t.peak_bytes,
        })
    if sites:
        answer["sites"] = [site_json(s) for s in book.sites()]
        answer["tags"] = book.tags()
    if blocks:
        found, exact = book.blocks()
        answer["blocks"] = [asdict(b) for b in found]
        answer["blocks_exact"] = exact
    return answer


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m memoir.book", description="Print what books say.")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="books; without any, all that can be found")
    parser.add_argument("--dir", help="look below this directory instead of the usual places")
    parser.add_argument("--json", action="store_true", help="one JSON array instead of a table")
    parser.add_argument("--sites", action="store_true", help="with --json: call sites and tags, too")
    parser.add_argument("--blocks", action="store_true", help="with --json: every live block, too")
    options = parser.parse_args(arguments)
    rows: list[tuple[str, ...]] = []
    answers: list[dict[str, Any]] = []
    failed = 0
    for path in options.paths or find_books(options.dir):
        try:
            with Book.open(path) as book:
                if options.json:
                    answers.append({"path": path, **book_json(book, options.sites, options.blocks)})
                else:
                    rows += table_rows(book)
        except (BookError, OSError) as error:
            # Books that were found may vanish or be unfinished; books that were named should be there.
            if options.paths:
                print(f"{path}: {error}", file=sys.stderr)
                failed = 1
    if options.json:
        json.dump(answers, sys.stdout, indent=2)
        print()
    else:
        print_table(rows)
    return failed
