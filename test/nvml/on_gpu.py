#!/usr/bin/env python3
"""On a machine with an NVIDIA GPU: memoir's figures against those of nvidia-smi and of a program that holds 3 GiB.

Usage: test/nvml/on_gpu.py MEMOIR      the program to try; refuses where NVML is not the driver's own

Prints one line a check and ends with 1 if one failed.
"""

import json
import os
import subprocess
import sys
import tempfile

HOLDER = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
print("context", flush=True)
sys.stdin.readline()
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(3 << 30)) == 0
print("held", flush=True)
sys.stdin.readline()
"""
MIB = 1 << 20
failed = 0


def check(what, got, expected, tolerance=0):
    global failed
    good = abs(got - expected) <= tolerance
    failed += not good
    print(f"{'ok' if good else 'not ok'} - {what}: {got} (expected {expected})")


def smi(what, *fields):
    out = subprocess.run(["nvidia-smi", f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"],
                         capture_output=True, text=True, check=True).stdout
    return [[cell.strip() for cell in line.split(",")] for line in out.splitlines()]


def devices(memoir, books):
    out = subprocess.run([memoir, "devices", "--json", "--where", "space=dram", "--dir", books], capture_output=True, text=True,
                         check=True).stdout
    return {row["device_uid"]: row for row in json.loads(out)["rows"]}


def driver_bytes(memoir, books, pid):
    out = subprocess.run([memoir, "query", "device_processes", "--json", "--dir", books], capture_output=True, text=True,
                         check=True).stdout
    return next((row["driver"] for row in json.loads(out)["rows"] if row["pid"] == pid), None)


def main():
    if len(sys.argv) != 2 or "MEMOIR_NVML" in os.environ:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(dir="/dev/shm") as books, subprocess.Popen(
            [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        holder.stdout.readline()
        uuid = smi("compute-apps", "pid", "gpu_uuid")
        uuid = next(row[1] for row in uuid if int(row[0]) == holder.pid)
        context = driver_bytes(sys.argv[1], books, holder.pid)
        holder.stdin.write("\n")
        holder.stdin.flush()
        holder.stdout.readline()
        device = devices(sys.argv[1], books)[uuid]
        row = next(row for row in smi("gpu", "uuid", "memory.used", "memory.total", "memory.reserved") if row[0] == uuid)
        check("context, MiB (more than nothing)", int(context > 0), 1)
        check("bytes of the process beyond its context", driver_bytes(sys.argv[1], books, holder.pid) - context, 3 << 30)
        check("used, MiB", device["driver.used"] // MIB, int(row[1]), 1)
        check("size, MiB", device["capacity"] // MIB, int(row[2]), 1)
        check("reserved, MiB", device["driver.reserved"] // MIB, int(row[3]), 1)
        check("unattributed is what the driver counts", device["unattributed"], device["driver.used"])
        print(subprocess.run([sys.argv[1], "devices", "--dir", books], capture_output=True, text=True, check=True).stdout)
        print(subprocess.run([sys.argv[1], "doctor", "--dir", books], capture_output=True, text=True, check=False).stdout)
        holder.stdin.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
