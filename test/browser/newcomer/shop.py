"""A small service as its developer would write it, with a leak: orders are kept by session, and sessions never end."""
import os
import random
import time
import uuid

PRICES = {f"item-{i}": random.random() * 100 for i in range(2000)}
sessions = {}


class Order:
    def __init__(self, user, items):
        self.user = user
        self.items = items
        self.total = sum(PRICES[item] for item in items)


def handle_request():
    items = random.sample(list(PRICES), 10)
    order = Order(f"user-{random.randrange(1000)}", items)
    receipt = "\n".join(f"{item}: {PRICES[item]:.2f}" for item in items) * 8  # LEAK
    sessions[str(uuid.uuid4())] = (order, receipt)
    return order.total


print("ready", os.getpid(), flush=True)
while True:
    for _ in range(20):
        handle_request()
    time.sleep(0.01)
