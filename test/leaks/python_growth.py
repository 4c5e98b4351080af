"""A list that a Python program only ever adds to."""

import sys
import time

kept = []


def step(number):
    kept.append(f"entry {number} " * 50)  # LEAK reachable


def main():
    if len(sys.argv) < 2:
        for number in range(200):
            step(number)
        return
    print("running\nwarm", flush=True)
    number = 0
    while True:
        step(number)
        number += 1
        time.sleep(int(sys.argv[1]) / 1000)


main()
