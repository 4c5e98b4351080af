"""The programs of test/leaks and what is to be found in them, for tests.

manifest.json has an object for each program:
  name      leak_NAME in the build folder's test/leaks, made of SOURCE (a .py program is run as it is; .rs needs a compiler)
  class     which way to leak, or to look like it, it stands for
  verdict   what watching it says: "leak" (grows for ever, nobody will free it), "growth" (grows for ever, and can be
            reached), "none" (steady, bounded, warming up, or all is freed)
  scan      what a look at its pointers says of what its LEAK and HELD lines hold: "lost", "reachable", "hidden" (in use,
            but no pointer to it can be seen), or "none" (nothing is held)
  leaked    blocks and bytes that its LEAK lines hold after its usual 200 steps
  held      the same for its HELD lines
  by        "libc" where the C library allocates in the name of the line, so that only a stack tells it; "std" for Rust's
Lines are found by their comments: LEAK (what it gets stays for ever; "LEAK indirect" where another LEAK line's blocks point to
it, "LEAK reachable" where the program could still find it) and HELD (kept on purpose).
"""

import json
import pathlib
import re

FOLDER = pathlib.Path(__file__).resolve().parent
MARK = re.compile(r"(?:/\*|#) (LEAK|HELD)(?: (\w+))?\b")


class Program:
    def __init__(self, entry):
        self.__dict__.update(entry)
        self.path = FOLDER / entry["source"]
        self.by = entry.get("by")
        self.marks = {}  # line: (kind, detail)
        for number, text in enumerate(self.path.read_text(encoding="utf-8").splitlines(), 1):
            mark = MARK.search(text)
            if mark:
                self.marks[number] = (mark[1], mark[2])

    def lines(self, kind):
        return [line for line, mark in self.marks.items() if mark[0] == kind]

    def command(self, build):
        if self.path.suffix == ".py":
            return ["/usr/bin/python3", str(self.path)]
        return [str(build / "test/leaks" / f"leak_{self.name}")]


def programs(build=None):
    """All of them; those of `build` without what it had no compiler for."""
    entries = json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))
    all_of_them = [Program(entry) for entry in entries]
    return [p for p in all_of_them
            if build is None or p.path.suffix != ".rs" or pathlib.Path(p.command(build)[0]).exists()]


def truth(output):
    """What a program says of itself: line -> figures."""
    for text in output.splitlines():
        if text.startswith("TRUTH "):
            return {entry["line"]: entry for entry in json.loads(text[6:])["lines"]}
    raise ValueError("the program did not tell the truth")


def held(figures, lines):
    """Blocks and bytes that these lines hold."""
    chosen = [figures[line] for line in lines if line in figures]
    return {"blocks": sum(f["live_blocks"] for f in chosen), "bytes": sum(f["live_bytes"] for f in chosen)}
