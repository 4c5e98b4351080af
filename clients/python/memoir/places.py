"""Find books: the directories where they are, and the files in them (doc/book.md, "Where books are")."""

from __future__ import annotations

import os
import stat
from typing import Iterator, Optional

_TMPFS = {"tmpfs", "ramfs"}


def _is_tmpfs(path: str) -> bool:
    """By the mount table: Python has no fstatfs() with the type."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as table:
        for line in table:
            fields = line.split()
            if fields[2] == wanted:
                return fields[fields.index("-") + 1] in _TMPFS
    return False


def _is_place(path: str, uid: int) -> bool:
    try:
        st = os.lstat(path)
        return (stat.S_ISDIR(st.st_mode) and st.st_uid in (uid, 0) and not st.st_mode & 0o022
                and _is_tmpfs(path))
    except OSError:
        return False


def _uid_of(name: str, prefix: str) -> Optional[int]:
    digits = name[len(prefix) :]
    if not name.startswith(prefix) or not digits.isascii() or not digits.isdigit():
        return None
    uid = int(digits)
    return uid if str(uid) == digits and uid < 0xFFFFFFFF else None


def _below(directory: str, prefix: str = "", suffix: str = "") -> Iterator[tuple[str, int]]:
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return
    for name in names:
        uid = _uid_of(name, prefix)
        if uid is not None and os.geteuid() in (0, uid):
            yield f"{directory}/{name}{suffix}", uid


def find_places(root: Optional[str] = None) -> list[tuple[str, int]]:
    """Directories that hold books, each with the uid whose books they are. `root` is like $MEMOIR_DIR."""
    root = root or os.environ.get("MEMOIR_DIR")
    if root:
        candidates = list(_below(root))
    else:
        candidates = list(_below("/run/memoir"))
        candidates += _below("/run/user", suffix="/memoir")
        runtime = os.environ.get("XDG_RUNTIME_DIR", "")
        if runtime.startswith("/"):
            candidates.append((f"{runtime}/memoir", os.geteuid()))
        candidates += _below("/dev/shm", prefix="memoir-")
    places = []
    for path, uid in candidates:
        if (path, uid) not in places and _is_place(path, uid):
            places.append((path, uid))
    return places


def find_books(root: Optional[str] = None) -> Iterator[str]:
    """Paths of all books that may be read, by place and name."""
    for place, uid in find_places(root):
        try:
            names = sorted(os.listdir(place))
        except OSError:
            continue
        for name in names:
            path = f"{place}/{name}"
            try:
                st = os.lstat(path)
            except OSError:
                continue
            if name.endswith(".book") and stat.S_ISREG(st.st_mode) and st.st_uid in (uid, 0):
                yield path
