"""A Python program that reports blocks from all sorts of calls, and says for each what its stack is.

Usage: python_program.py LIBMEMOIR MODE [SECONDS]

It asks the interpreter itself (sys._getframe), so the lines are right whatever this file looks like. It prints
one JSON object: {"blocks": {ID: [[function, file, line], ...]}}, innermost first, then waits for a line on its
standard input. MODE is "calls", "threads" or "fork".
"""

import asyncio
import ctypes
import gc
import json
import os
import sys
import threading
import time
import weakref

HOST, HEAP = 0, 1
SIGNATURE = [ctypes.c_int, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64]
libc = ctypes.CDLL(None)

expected = {}
next_id = 0x1000


def load(path):
    """memoir_alloc() twice: called without the interpreter's lock, and with it."""
    calls = []
    for kind in (ctypes.CDLL, ctypes.PyDLL):
        library = kind(path)
        library.memoir_alloc.argtypes = SIGNATURE
        library.memoir_free.argtypes = SIGNATURE[:3]
        calls.append(library.memoir_alloc)
    library.memoir_open(0)
    return calls, library


def frames(frame):
    """As a book names them, from this frame on."""
    out = []
    while frame:
        code = frame.f_code
        out.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return out


def report():
    """The line of the call is this function's; the rest is the caller's."""
    global next_id
    for alloc in allocs:
        next_id += 16
        here = frames(sys._getframe())
        alloc(HOST, HEAP, next_id, 100); here[0][2] = sys._getframe().f_lineno
        expected[next_id] = here


# ---- calls ----

def recursion(depth):
    if depth:
        recursion(depth - 1)
    else:
        report()


def generator(n):
    for i in range(n):
        report()
        yield i


def delegating():
    yield from generator(2)
    yield from (report() or i for i in range(1))


class Thing:
    def __init__(self):
        self.method()

    def method(self):
        report()

    @property
    def value(self):
        report()
        return 1

    @staticmethod
    def plain():
        report()

    def __enter__(self):
        report()
        return self

    def __exit__(self, *unused):
        report()

    def __lt__(self, other):
        report()
        return True

    def __del__(self):
        report()


def decorated(function):
    def wrapper(*arguments, **keywords):
        return function(*arguments, **keywords)
    return wrapper


@decorated
def wrapped(
    a,
    b=2,
):
    return [
        a,
        report(),
        b,
    ]


def handler():
    try:
        raise ValueError("on purpose")
    except ValueError:
        report()
    finally:
        report()


def expressions():
    [report() for _ in range(2)]
    {report(): 1 for _ in range(1)}
    list(map(lambda _: report(), [1]))
    sorted([3, 1, 2], key=lambda x: report() or x)
    sorted([Thing.__new__(Thing), Thing.__new__(Thing)])
    return (report(),
            report())


def évaluation_中文():
    report()


async def sleeper(n):
    await asyncio.sleep(0)
    report()
    return n


async def coroutines():
    report()
    await sleeper(1)
    await asyncio.gather(sleeper(2), sleeper(3))
    async for _ in numbers():
        report()


async def numbers():
    report()
    yield 1


COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
RUN = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


def compare(a, b):
    report()
    return 0


def callbacks():
    values = (ctypes.c_int * 3)(3, 1, 2)
    libc.qsort(values, 3, 4, COMPARE(compare))
    nested = RUN(lambda unused: libc.qsort(values, 2, 4, COMPARE(compare)))
    nested(None)
    # A thread that the interpreter did not make.
    thread = ctypes.c_ulong()
    start = RUN(lambda unused: report())
    libc.pthread_create.argtypes = [ctypes.c_void_p, ctypes.c_void_p, RUN, ctypes.c_void_p]
    libc.pthread_create(ctypes.byref(thread), None, start, None)
    libc.pthread_join(thread, None)


def executed():
    """Code that comes and goes at the same addresses, with other names and lines."""
    for i in range(200):
        source = "\n" * (i % 7) + f"def made_{i % 11}():\n" + "\n" * (i % 5) + "  report()\n" + f"made_{i % 11}()\n"
        exec(compile(source, f"<made {i % 3}>", "exec"), {"report": report})
    # The same name, file and first line, the same instructions, another line: only the line table differs.
    for i in range(200):
        exec(compile("def again():\n" + "\n" * (i % 5) + "  report()\nagain()\n", "<again>", "exec"), {"report": report})
    eval("report()")


def long_name():
    name = "f" * 300
    space = {"report": report}
    exec(compile(f"def {name}(): report()\n{name}()", "/" + "d/" * 400 + "long.py", "exec"), space)


def calls():
    report()
    for depth in (1, 3, 30, 300):
        recursion(depth)
    list(generator(2))
    list(delegating())
    with Thing() as thing:
        thing.value
        Thing.plain()
    del thing
    wrapped(1)
    handler()
    expressions()
    évaluation_中文()
    asyncio.run(coroutines())
    callbacks()
    executed()
    long_name()

    class Target:
        pass
    target = Target()
    reference = weakref.ref(target, lambda unused: report())
    del target
    gc.collect()
    threads = [threading.Thread(target=recursion, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
        thread.join()
    return reference


# ---- threads ----

def worker_code(number):
    """Functions whose names nobody else's have."""
    return "\n" * number + f"""
def inner_{number}(n):
    alloc(0, 1, n, 100)
    if n % 50: free(0, 1, n)
def recursive_{number}(n, depth):
    return recursive_{number}(n, depth - 1) if depth else inner_{number}(n)
def generator_{number}(n):
    inner_{number}(n)
    yield n
def outer_{number}(n):
    recursive_{number}(n, n % 5)
    for _ in generator_{number}(n + 1): pass
    sorted([2, 1], key=lambda_{number})
    [inner_{number}(n + 2) for _ in range(1)]
lambda_{number} = lambda x: recursive_{number}(base[0] + 3, 1) or x
def run_{number}():
    while running[0]:
        base[0] += 16
        outer_{number}(base[0])
"""


def threads(seconds):
    allocs[0](HOST, HEAP, 8 << 40, 1)  # the interpreter is known before threads race to find it
    free(HOST, HEAP, 8 << 40)
    sys.setswitchinterval(1e-5)
    running = [True]
    workers = []
    for number in range(8):
        space = {"alloc": allocs[number % 2], "free": free, "running": running, "base": [number + 1 << 40]}
        exec(compile(worker_code(number), f"worker_{number}.py", "exec"), space)
        workers.append(threading.Thread(target=space[f"run_{number}"], daemon=number == 7))
    for worker in workers:
        worker.start()
    time.sleep(seconds)
    running[0] = False
    for worker in workers:
        worker.join()


# ---- fork ----

def fork():
    recursion(2)
    ready = os.pipe()
    child = os.fork()
    if child == 0:
        expected.clear()
        library.memoir_open(0)
        recursion(3)
        os.write(ready[1], json.dumps(expected).encode() + b"\n")
        sys.stdin.readline()
        os._exit(0)
    with os.fdopen(ready[0]) as answer:
        theirs = json.loads(answer.readline())
    recursion(4)
    print(json.dumps({"blocks": expected, "child": child, "child_blocks": theirs}), flush=True)
    os.waitpid(child, 0)


if __name__ == "__main__":
    allocs, library = load(sys.argv[1])
    free = library.memoir_free
    if sys.argv[2] == "fork":
        fork()
    else:
        if sys.argv[2] == "threads":
            threads(float(sys.argv[3]))
        else:
            kept = calls()
        print(json.dumps({"blocks": expected}), flush=True)
        sys.stdin.readline()
