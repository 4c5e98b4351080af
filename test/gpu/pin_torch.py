#!/usr/bin/env python3
"""Load pageable tensors into a GPU, as a data loader does, and print one line of JSON: throughput, and a digest of what arrived.

Usage: pin_torch.py MIB STEPS
"""
import ctypes
import hashlib
import json
import sys
import time

import torch

mib, steps = int(sys.argv[1]), int(sys.argv[2])
elements = mib * (1 << 20) // 4
torch.manual_seed(1)
device = torch.device("cuda")
torch.zeros(1, device=device)
source = torch.randint(0, 1 << 30, (elements,), dtype=torch.int32)
weights = torch.arange(elements, dtype=torch.int32, device=device) % 1009
digest = hashlib.sha256()
fresh_s = kept_s = 0.0
copied = 0
kept = source.clone()

for step in range(steps):
    batch = source + step  # a new pageable tensor in each step
    torch.cuda.synchronize()
    start = time.perf_counter()
    there = batch.to(device, non_blocking=True)
    batch.zero_()  # pageable memory may be changed as soon as the call returns
    torch.cuda.synchronize()
    # The zeroing is the program's own time; it is taken off by measuring it once more.
    middle = time.perf_counter()
    batch.zero_()
    fresh_s += middle - start - (time.perf_counter() - middle)
    digest.update(str((there.long() * weights).sum().item()).encode())
    del there, batch
    kept += 1
    torch.cuda.synchronize()
    start = time.perf_counter()
    there = kept.to(device)
    torch.cuda.synchronize()
    kept_s += time.perf_counter() - start
    digest.update(str((there.long() * weights).sum().item()).encode())
    back = there.cpu()
    assert torch.equal(back, kept)
    copied += 2 * mib
    del there, back


class Stats(ctypes.Structure):
    """The beginning of struct memoir_pin_stats (memoir/pin.h)."""
    _fields_ = [("struct_size", ctypes.c_size_t), ("mode", ctypes.c_int), ("calibrated", ctypes.c_int)] + [(name, ctypes.c_uint64) for name in (
        "live_bytes live_blocks served_bytes served_blocks pinned_bytes pinned_bytes_peak idle_bytes own_bytes budget_bytes copies copied_bytes pinned_copies "
        "pinned_copied_bytes missed_ns saved_ns cost_ns registers unregisters failures evictions denied pool_hits mismatches staged_copies staged_bytes "
        "staged_saved_ns touched_bytes register_ns unregister_ns").split()]


def stats():
    """What the preloaded library says about itself; nothing without it."""
    try:
        ask = ctypes.CDLL(None).memoir_pin_stats
    except AttributeError:
        return {}
    said = Stats(struct_size=ctypes.sizeof(Stats))
    return {name: getattr(said, name) for name, _ in Stats._fields_} if ask(ctypes.byref(said)) == 0 else {}


print(json.dumps({"pin": stats(), "fresh_gb_s": mib * steps / 1024 / fresh_s, "kept_gb_s": mib * steps / 1024 / kept_s,
                  "gb_s": copied / 1024 / (fresh_s + kept_s), "digest": digest.hexdigest(), "torch": torch.__version__}))
