"""A client of Tenstorrent's allocation protocol, written from doc/tt-protocol.md.

As a program: report buffers, circular buffers and kernels, say "ready PID", and go on with each line of
standard input: "free", "query", or the end.

Usage: tt_client.py SOCKET [--size BYTES] [--buffers N] [--cbs N] [--kernels N] [--bytes N] [--device D]
                    [--anonymous]
"""

import argparse
import os
import socket
import struct
import sys

ALLOC, FREE, QUERY, RESPONSE, DUMP_REMAINING, INFO_QUERY, INFO_RESPONSE = range(1, 8)
CB_ALLOC, CB_FREE, KERNEL_LOAD, KERNEL_UNLOAD, DUMP_KERNELS = range(8, 13)
DRAM, L1, SYSTEM, L1_SMALL, TRACE = range(5)
SIZES = (72, 112, 128, 144)
DUMP_MARK = int.from_bytes(b"MEMOIRDP", "little")
INFO = ("total_dram", "total_l1", "arch", "channels", "per_channel", "per_core", "available", "devices")


def message(kind, device=0, size=0, memory=0, pid=None, number=0, total=144):
    """The bytes of a request."""
    head = struct.pack("=B3xiQB3xiQQ", kind, device, size, memory, os.getpid() if pid is None else pid, number, 0)
    return head + bytes(total - len(head))


def parse(data):
    """An answer as a dictionary: what its size has room for."""
    kind, device, size, memory, pid, number, time = struct.unpack_from("=B3xiQB3xiQQ", data)
    answer = {"type": kind, "device": device, "size": size, "memory": memory, "pid": pid, "number": number,
              "time": time}
    answer.update(zip(("dram", "l1", "l1_small", "trace"), struct.unpack_from("=4Q", data, 40)))
    if len(data) >= 128:
        answer.update(zip(("cb", "kernel"), struct.unpack_from("=2Q", data, 72)))
    if len(data) >= 112:
        answer.update(zip(INFO, struct.unpack_from("=2Q6I", data, 72 if len(data) == 112 else 88)))
    if len(data) == 144:
        answer.update(zip(("ring_total", "ring_used", "programs"), struct.unpack_from("=3I", data, 128)))
    return answer


class Connection:
    def __init__(self, path, total=144, timeout=60):
        self.total = total
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        self.socket.connect(str(path))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, kind, device=0, **fields):
        self.socket.sendall(message(kind, device, total=self.total, **fields))

    def receive(self):
        data = b""
        while len(data) < self.total:
            more = self.socket.recv(self.total - len(data))
            if not more:
                raise EOFError(f"closed after {len(data)} bytes of an answer")
            data += more
        return parse(data)

    def query(self, device=0):
        self.send(QUERY, device, pid=0)
        return self.receive()

    def info(self, device=0):
        self.send(INFO_QUERY, device, pid=0)
        return self.receive()

    def dump(self, kind=DUMP_REMAINING, device=-1):
        """Rows, and the message that ends them."""
        self.send(kind, device, number=DUMP_MARK)
        rows = []
        while True:
            row = self.receive()
            if row["device"] == -1:
                return rows, row
            rows.append(row)

    def is_closed(self):
        """Waits until the server closes."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True


def held(answer):
    return {key: answer[key] for key in ("dram", "l1", "l1_small", "trace", "cb", "kernel") if key in answer}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("socket")
    for name, default in (("size", 144), ("buffers", 1), ("cbs", 0), ("kernels", 0), ("bytes", 1000), ("device", 0),
                          ("pid", 0)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--anonymous", action="store_true", help="send a pid of 0")
    options = parser.parse_args()
    pid = 0 if options.anonymous else options.pid or None
    connection = Connection(options.socket, options.size)
    kinds = ((ALLOC, FREE, options.buffers), (CB_ALLOC, CB_FREE, options.cbs),
             (KERNEL_LOAD, KERNEL_UNLOAD, options.kernels))

    def send_all(which, size):
        connection.socket.sendall(b"".join(
            message(kind[which], options.device, size, number % 2 if kind[which] == ALLOC else 0, pid, number + 1,
                    options.size) for kind in kinds for number in range(kind[2])))

    send_all(0, options.bytes)
    print("held", *held(connection.query(options.device)).values(), flush=True)
    print("ready", os.getpid(), flush=True)
    for line in sys.stdin:
        if line.strip() == "free":
            send_all(1, 0)
        print(line.strip(), *held(connection.query(options.device)).values(), flush=True)


if __name__ == "__main__":
    main()
