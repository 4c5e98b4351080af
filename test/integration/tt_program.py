"""A program of tt-metal's, as its region sees it: claims a slot, maps the region, counts.

Usage: tt_program.py DIR ASIC_ID DEVICE_ID [--version N] [--not-ready] [--client LIBRARY BYTES]

Then lines on standard input: `set DRAM L1 L1_SMALL TRACE CB`, `total N` (the region's own total of dram), `close`
(gives the slot back and unmaps), `exec` (becomes another program, as a crash of the runtime would leave the slot),
`end`. Each is answered by `done`.
"""

import argparse
import ctypes
import mmap
import os
import struct
import sys
import time

BYTES, SLOTS, SLOT, SLOT_BYTES, READY = 8576, 64, 856, 120, 0x52454459
COUNTERS = 5


class Region:
    def __init__(self, folder, asic_id, device_id, version, ready):
        path = f"{folder}/tt_device_{asic_id}_memory"
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(fd, BYTES)
        self.map = mmap.mmap(fd, BYTES)
        os.close(fd)
        struct.pack_into("<QQI", self.map, 24, 0, asic_id, device_id)
        if version >= 4 and ready:
            struct.pack_into("<I", self.map, 8536, READY)
        struct.pack_into("<I", self.map, 0, version)
        self.slot = None

    def claim(self):
        for slot in range(SLOTS):
            at = SLOT + slot * SLOT_BYTES
            if struct.unpack_from("<i", self.map, at)[0] == 0:
                struct.pack_into("<i", self.map, at, os.getpid())
                name = open("/proc/self/comm", "rb").read().strip()[:63]
                self.map[at + 56:at + 56 + len(name)] = name
                self.slot = at
                return

    def set(self, counts):
        struct.pack_into(f"<{COUNTERS}Q", self.map, self.slot + 8, *counts)
        struct.pack_into("<Q", self.map, self.slot + 48, time.time_ns())
        totals = [0] * COUNTERS
        for slot in range(SLOTS):
            at = SLOT + slot * SLOT_BYTES
            if struct.unpack_from("<i", self.map, at)[0]:
                totals = [a + b for a, b in zip(totals, struct.unpack_from(f"<{COUNTERS}Q", self.map, at + 8))]
        struct.pack_into(f"<{COUNTERS}Q", self.map, 48, *totals)

    def close(self):
        self.set([0] * COUNTERS)
        struct.pack_into("<i", self.map, self.slot, 0)
        self.map.close()


class Device(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("kind", ctypes.c_int), ("ordinal", ctypes.c_int),
                ("name", ctypes.c_char_p), ("uid", ctypes.c_char_p), ("bus", ctypes.c_char_p),
                ("capacity", ctypes.c_uint64 * 32)]


def report(library, device_id, count):
    """The same memory, told by the program itself through libmemoir, which knows no asic id."""
    memoir = ctypes.CDLL(library)
    device = memoir.memoir_device(ctypes.byref(Device(ctypes.sizeof(Device), 2, device_id, b"Tenstorrent")))
    memoir.memoir_alloc.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64]
    memoir.memoir_alloc(device, 16, 1, count)
    return memoir


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir")
    parser.add_argument("asic_id", type=int)
    parser.add_argument("device_id", type=int)
    parser.add_argument("--version", type=int, default=3)
    parser.add_argument("--not-ready", action="store_true")
    parser.add_argument("--client", nargs=2)
    options = parser.parse_args()
    region = Region(options.dir, options.asic_id, options.device_id, options.version, not options.not_ready)
    region.claim()
    keep = options.client and report(options.client[0], options.device_id, int(options.client[1]))
    print("ready", os.getpid(), flush=True)
    for line in sys.stdin:
        word, *numbers = line.split()
        if word == "set":
            region.set([int(n) for n in numbers])
        elif word == "total":
            struct.pack_into("<Q", region.map, 48, int(numbers[0]))
        elif word == "close":
            region.close()
        elif word == "exec":
            print("done", flush=True)
            os.execvp("sleep", ["sleep", "1000"])
        print("done", flush=True)
        if word == "end":
            break
    del keep


if __name__ == "__main__":
    main()
