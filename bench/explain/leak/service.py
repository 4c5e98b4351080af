"""Services with a planted leak, in Python. Usage: service.py KIND leak|steady. Comments LINE:KIND mark what is to be named."""
import asyncio
import collections
import json
import sys
import threading
import time

KIND, STEADY = sys.argv[1], sys.argv[2] == "steady"
KEPT_MAX = 300
kept = collections.deque(maxlen=KEPT_MAX if STEADY else None)


def bytes_add(number):
    kept.append(b"x" * (8000 + number % 7))  # LINE:bytes


def dicts_add(number):
    kept.append(json.loads('{"a": [1.5, 2.5, 3.5], "b": {"c": "d"}}'))  # LINE:dicts


class Point:
    def __init__(self, x):
        self.x, self.y, self.z = x, x + 0.5, [x] * 20  # LINE:objects


def objects_add(number):
    kept.append(Point(float(number)))


def threads_add(number):
    def work():
        kept.append([float(number + i) for i in range(300)])  # LINE:threads
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


async def serve():
    async def request(number):
        await asyncio.sleep(0)
        kept.append({"number": number, "body": "y" * 8000 + str(number)})  # LINE:asyncio
    for number in range(10**9):
        await asyncio.gather(request(number))
        await asyncio.sleep(0.02)


def main():
    add = {"bytes": (bytes_add, 1), "dicts": (dicts_add, 12), "objects": (objects_add, 12), "threads": (threads_add, 1)}
    if KIND == "asyncio":
        asyncio.run(serve())
    function, times = add[KIND]
    for number in range(10**9):
        for _ in range(times):
            function(number)
        time.sleep(0.02)


main()
