"""What long-running programs of ours take: memory, descriptors, threads, children, kernel objects; and whether it grows."""

import ctypes
import errno
import os
import pathlib
import re
import statistics

SYS_BPF = 321 if os.uname().machine == "x86_64" else 280
BPF_MAP_GET_NEXT_KEY, BPF_OBJ_GET = 4, 7
KEY_MAX = 64


def status_of(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def descriptors(pid):
    """How many of which kind: those of /proc are one or more for each process of the machine."""
    count = {"fds": 0, "fds_proc": 0, "fds_bpf": 0}
    for entry in os.scandir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(entry.path)
        except FileNotFoundError:
            continue
        kind = "fds_bpf" if target.startswith("anon_inode:bpf") else \
            "fds_proc" if re.match(r"/proc/\d+", target) or target == "anon_inode:[pidfd]" else "fds"
        count[kind] += 1
    return count


def descendants(pid):
    """Children, and theirs: {pid: state}."""
    found = {}
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = path.read_text().split()
        except OSError:
            continue
        for child in children:
            try:
                found[int(child)] = status_of(child)["State"].split()[0]
                found |= descendants(child)
            except (OSError, KeyError):
                pass
    return found


def measure(pid):
    """What a process takes now."""
    status = status_of(pid)
    children = descendants(pid)
    return {"rss_bytes": int(status["VmRSS"].split()[0]) * 1024, "anon_bytes": int(status["RssAnon"].split()[0]) * 1024,
            "threads": int(status["Threads"]), "children": len(children), "zombies": list(children.values()).count("Z"),
            **descriptors(pid)}


def steadiness(samples, name):
    """Medians of a figure in four quarters of the time, and its largest value."""
    values = [sample[name] for sample in samples]
    quarter = max(1, len(values) // 4)
    parts = [values[i * quarter:(i + 1) * quarter] or values[-1:] for i in range(4)]
    return [statistics.median(part) for part in parts] + [max(values)]


class PinnedMap:
    """Keys of a map of the kernel that is pinned in a bpffs."""

    def __init__(self, path):
        self.libc = ctypes.CDLL(None, use_errno=True)
        name = ctypes.create_string_buffer(str(path).encode())
        attr = ctypes.create_string_buffer(128)
        ctypes.memmove(attr, ctypes.addressof(ctypes.c_uint64(ctypes.addressof(name))), 8)
        self.fd = self.libc.syscall(SYS_BPF, BPF_OBJ_GET, attr, 16)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), f"BPF_OBJ_GET of {path}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)

    def keys(self, limit=1 << 20):
        """One after the other; others add and remove keys meanwhile, so that the walk may begin anew: it ends after `limit`."""
        key, following = None, ctypes.create_string_buffer(KEY_MAX)
        for _ in range(limit):
            attr = ctypes.create_string_buffer(128)
            words = (ctypes.c_uint64 * 3)(self.fd, ctypes.addressof(key) if key else 0, ctypes.addressof(following))
            ctypes.memmove(attr, words, 24)
            if self.libc.syscall(SYS_BPF, BPF_MAP_GET_NEXT_KEY, attr, 32) < 0:
                if ctypes.get_errno() != errno.ENOENT:
                    raise OSError(ctypes.get_errno(), "BPF_MAP_GET_NEXT_KEY")
                return
            key = ctypes.create_string_buffer(following.raw, KEY_MAX)
            yield key.raw

    def pids(self):
        """Of a map whose keys begin with a PID: how many keys each has."""
        count = {}
        for key in self.keys():
            pid = int.from_bytes(key[:4], "little")
            count[pid] = count.get(pid, 0) + 1
        return count
