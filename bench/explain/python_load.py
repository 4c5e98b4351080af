"""Loads of CPython as services have them, for what accounting costs. Usage: python_load.py NAME; prints CPU seconds of the load alone."""

import asyncio
import collections
import json
import queue
import re
import sys
import threading
import time


def load_json():
    text = json.dumps([{"id": i, "name": f"user{i}", "tags": ["a", "b", str(i)], "score": i / 3} for i in range(2000)])
    for _ in range(40):
        rows = json.loads(text)
        by_name = {row["name"]: row for row in rows}
        json.dumps([by_name[name] for name in list(by_name)[::2]])


def load_objects():
    class Node:
        def __init__(self, value, next_node):
            self.value, self.next = value, next_node

    for _ in range(20):
        head = None
        for i in range(40000):
            head = Node(i, head)
        total = 0
        while head:
            total, head = total + head.value, head.next


def load_text():
    words = [f"word{i % 997} line{i}" for i in range(5000)]
    pattern = re.compile(r"(\w+) (\w+)")
    for _ in range(40):
        counts = collections.Counter(pattern.sub(r"\2-\1", line).split("-")[1] for line in words)
        "\n".join(f"{k}: {v}" for k, v in counts.most_common())


def load_threads():
    tasks, done = queue.Queue(), queue.Queue()

    def work():
        while (item := tasks.get()) is not None:
            done.put({"id": item, "squares": [i * i for i in range(item % 50)]})

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(60000):
        tasks.put(i)
    for _ in threads:
        tasks.put(None)
    for thread in threads:
        thread.join()


def load_asyncio():
    async def handle(i):
        await asyncio.sleep(0)
        return {"request": i, "body": bytes(200), "headers": {"a": str(i), "b": "c"}}

    async def serve():
        for _ in range(60):
            await asyncio.gather(*(handle(i) for i in range(500)))

    asyncio.run(serve())


if __name__ == "__main__":
    load = globals()["load_" + sys.argv[1]]
    begin = time.process_time()
    load()
    print(f"{time.process_time() - begin:.4f}")
