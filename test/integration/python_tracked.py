"""A Python program that holds memory, for a heap tracker to see.

Usage: python_tracked.py held | churn SECONDS

It prints one line of JSON, waits for a line on its standard input, and ends with exit status 7. It imports little: each
import is a thousand stacks.
"""

import sys
import threading
import time

held = []


def hold(size):
    held.append(bytearray(size))


def hold_some():
    for _ in range(100):
        hold(100000)
    [held.append(bytes(50000)) for _ in range(40)]


def churn_code(number):
    return f"""
def inner_{number}(n):
    kept[n % 100] = [str(n), bytes(n % 5000), {{n: number}}]
def recursive_{number}(n, depth):
    return recursive_{number}(n, depth - 1) if depth else inner_{number}(n)
def generator_{number}(n):
    inner_{number}(n)
    yield n
def run_{number}():
    n = 0
    while running[0]:
        n += 1
        recursive_{number}(n, n % 5)
        list(generator_{number}(n))
        sorted(range(3), key=lambda_{number})
        exec(made, {{"n": n}})
lambda_{number} = lambda x: inner_{number}(x) or x
made = compile("def made_{number}(): return [n] * 1000\\nmade_{number}()", "worker_{number}.py", "exec")
"""


def churn(seconds):
    sys.setswitchinterval(1e-5)
    running = [True]
    workers = []
    for number in range(6):
        space = {"kept": {}, "running": running, "number": number}
        held.append(space)
        exec(compile(churn_code(number), f"worker_{number}.py", "exec"), space)
        workers.append(threading.Thread(target=space[f"run_{number}"]))
    for worker in workers:
        worker.start()
    time.sleep(seconds)
    running[0] = False
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    if sys.argv[1] == "churn":
        churn(float(sys.argv[2]))
    else:
        hold_some()
    print('{"held": %d}' % len(held), flush=True)
    sys.stdin.readline()
    sys.exit(7)
