"""Calls a probed function through Python and C in turns: chain.py LIBRARY. Waits for a line before each round."""

import ctypes
import sys
import threading

library = ctypes.CDLL(sys.argv[1])
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)


class Loader:
    def load_batch(self, n):
        return library.probed_by_wrapper(n)  # line: inner


def generate(n):
    yield Loader().load_batch(n)  # line: generator


@CALLBACK
def called_back(n):
    return next(generate(n))  # line: callback


def middle(n):
    return library.probed_call_back(called_back, n)  # line: middle


def outer(n):
    return middle(n)  # line: outer


def deep(n, depth):
    return deep(n, depth - 1) if depth else library.probed(n)


def ünïcode(n):
    return library.probed(n)


library.probed_key.restype = ctypes.c_uint64
print("ready", flush=True)
for line in sys.stdin:
    what = line.strip()
    if what == "chain":
        outer(1)
    elif what == "thread":
        thread = threading.Thread(target=outer, args=(2,))
        thread.start()
        thread.join()
    elif what == "deep":
        deep(3, 100)
    elif what == "unicode":
        ünïcode(4)
    elif what.startswith("made"):  # a function in the place of one that is gone; it waits for a line
        space = {"library": library, "wait": sys.stdin.readline}
        text = f"\n\ndef {what}():\n    library.probed(10)\n    wait()\n"
        exec(compile(text, f"{what}.py", "exec"), space)
        space.pop(what)()
        space.clear()
    elif what == "keys":
        library.probed_keep_keys()
    print("done", library.probed_key(), flush=True)
