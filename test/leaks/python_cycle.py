"""Objects of a Python program that keep each other, until the collector finds them."""

import sys
import time


class Node:
    def __init__(self):
        self.other = None
        self.payload = bytearray(600)


def step():
    left, right = Node(), Node()
    left.other, right.other = right, left


def main():
    if len(sys.argv) < 2:
        for _ in range(200):
            step()
        return
    print("running\nwarm", flush=True)
    while True:
        step()
        time.sleep(int(sys.argv[1]) / 1000)


main()
