"""Run a program in the sandbox that the shipped unit describes, where there is no systemd to do it.

Usage: unit_sandbox.py PROGRAM [ARGUMENT...]     as root

Read from memoird.service.in: CapabilityBoundingSet, NoNewPrivileges, UMask, SystemCallFilter with SystemCallErrorNumber
(its groups are those of systemd-analyze), RestrictAddressFamilies, RestrictNamespaces, RestrictRealtime, RestrictSUIDSGID,
LockPersonality and MemoryDenyWriteExecute, by the same rules of libseccomp that systemd makes of them (seccomp-util.c).
Not done: ProtectClock and ProtectHostname (their system calls are not in the list of allowed ones), limits and priorities.
"""

import ctypes
import errno
import os
import pathlib
import re
import shutil
import socket
import stat
import subprocess
import sys

UNIT = pathlib.Path(os.environ.get("MEMOIR_SOURCE_ROOT") or pathlib.Path(__file__).parents[2]) / "src/daemon/memoird.service.in"

ALLOW = 0x7FFF0000
NOT_EQUAL, EQUAL, GREATER, MASKED_EQUAL = 1, 4, 6, 7
PROT_WRITE, PROT_EXEC, SHM_EXEC = 2, 4, 0o100000
NAMESPACES = 0x7E020080  # every CLONE_NEW* flag that clone() takes; CLONE_NEWTIME shares its bit with the signal
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 38, 24


class Compare(ctypes.Structure):
    _fields_ = [("argument", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def setting(name):
    """The words of a setting of the unit."""
    found = re.search(rf"^{name}=(.*)$", UNIT.read_text(encoding="utf-8"), re.M)
    return found[1].split() if found else []


def why_not():
    """Why the sandbox cannot be made here, or None."""
    if os.geteuid() != 0:
        return "needs root"
    if not shutil.which("systemd-analyze"):
        return "systemd-analyze is not installed"
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return "libseccomp is not installed"
    return None


def prefix():
    """What stands before a command that is to run in the sandbox."""
    capabilities = ",".join("+" + name.removeprefix("CAP_").lower() for name in setting("CapabilityBoundingSet"))
    return ["setpriv", f"--bounding-set=-all,{capabilities}", "--inh-caps=-all", "--no-new-privs", sys.executable, __file__]


def group(name):
    """All system calls of one of systemd's groups."""
    told = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager", name], capture_output=True, text=True, check=True).stdout
    calls = set()
    for word in told.split("\n")[1:]:
        word = word.strip()
        if word.startswith("@"):
            calls |= group(word)
        elif word and not word.startswith("#"):
            calls.add(word)
    return calls


class Filter:
    """One filter; a call that it has no rule for gets `default`."""

    def __init__(self, default=ALLOW):
        self.library = ctypes.CDLL("libseccomp.so.2")
        self.library.seccomp_init.restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(self.library.seccomp_init(ctypes.c_uint32(default)))

    def rule(self, action, call, *compares):
        number = self.library.seccomp_syscall_resolve_name(call.encode())
        if number < 0:
            return  # none of this architecture
        array = (Compare * max(len(compares), 1))(*[Compare(*c) for c in compares])
        r = self.library.seccomp_rule_add_array(self.context, ctypes.c_uint32(action), number, len(compares), array)
        if r < 0:
            raise OSError(-r, f"{call}: {os.strerror(-r)}")

    def load(self):
        r = self.library.seccomp_load(self.context)
        if r < 0:
            raise OSError(-r, os.strerror(-r))


def refuse(error):
    return 0x00050000 | error


def restrictions():
    """The filters beside the list of calls; each allows what it does not name."""
    f = Filter()
    families = sorted(getattr(socket, name) for name in setting("RestrictAddressFamilies"))
    denied = refuse(errno.EAFNOSUPPORT)
    for family in range(families[-1]):
        if family not in families:
            f.rule(denied, "socket", (0, EQUAL, family, 0))
    f.rule(denied, "socket", (0, GREATER, families[-1], 0))
    if setting("RestrictNamespaces") == ["yes"]:
        f.rule(refuse(errno.ENOSYS), "clone3")
        f.rule(refuse(errno.EPERM), "setns")
        for bit in range(32):
            if NAMESPACES >> bit & 1:
                f.rule(refuse(errno.EPERM), "unshare", (0, MASKED_EQUAL, 1 << bit, 1 << bit))
                f.rule(refuse(errno.EPERM), "clone", (0, MASKED_EQUAL, 1 << bit, 1 << bit))
    if setting("RestrictRealtime") == ["yes"]:
        f.rule(refuse(errno.EPERM), "sched_setscheduler", (1, GREATER, 5, 0))
        for policy in (1, 2):
            f.rule(refuse(errno.EPERM), "sched_setscheduler", (1, EQUAL, policy, 0))
    if setting("LockPersonality") == ["yes"]:
        f.rule(refuse(errno.EPERM), "personality", (0, NOT_EQUAL, 0xFFFFFFFF, 0))
    if setting("RestrictSUIDSGID") == ["yes"]:
        for bit in (stat.S_ISUID, stat.S_ISGID):
            for call, argument in (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("mkdir", 1), ("mkdirat", 2), ("mknod", 1), ("mknodat", 2)):
                f.rule(refuse(errno.EPERM), call, (argument, MASKED_EQUAL, bit, bit))
            f.rule(refuse(errno.EPERM), "open", (1, MASKED_EQUAL, os.O_CREAT, os.O_CREAT), (2, MASKED_EQUAL, bit, bit))
            f.rule(refuse(errno.EPERM), "openat", (2, MASKED_EQUAL, os.O_CREAT, os.O_CREAT), (3, MASKED_EQUAL, bit, bit))
    if setting("MemoryDenyWriteExecute") == ["yes"]:
        both = PROT_WRITE | PROT_EXEC
        f.rule(refuse(errno.EPERM), "mmap", (2, MASKED_EQUAL, both, both))
        for call in ("mprotect", "pkey_mprotect"):
            f.rule(refuse(errno.EPERM), call, (2, MASKED_EQUAL, PROT_EXEC, PROT_EXEC))
        f.rule(refuse(errno.EPERM), "shmat", (2, MASKED_EQUAL, SHM_EXEC, SHM_EXEC))
    return f


def allowed_calls():
    calls = {"execve", "exit", "exit_group", "getrlimit", "rt_sigreturn", "sigreturn"}  # systemd allows these whatever the list says
    for word in setting("SystemCallFilter"):
        calls |= group(word) if word.startswith("@") else {word}
    return calls


def main():
    (error,) = setting("SystemCallErrorNumber")
    listed = Filter(refuse(getattr(errno, error)))
    for call in sorted(allowed_calls()):
        listed.rule(ALLOW, call)
    others = restrictions()
    os.umask(int(setting("UMask")[0], 8))
    others.load()
    listed.load()
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
