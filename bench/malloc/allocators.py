"""Which allocators take part, and which versions of them these are."""

import hashlib
import os
import pathlib
import subprocess

OURS = "memoir"
LIBRARIES = pathlib.Path(f"/usr/lib/{os.uname().machine}-linux-gnu")
PEERS = {"jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4", "mimalloc": "libmimalloc.so.2.0"}


class Allocator:
    def __init__(self, name, preload, environment=None):
        self.name, self.preload, self.environment = name, str(preload), environment or {}

    def facts(self):
        """Name, file, version as the package says, and a sum of the file that was used."""
        path = pathlib.Path(self.preload or LIBRARIES / "libc.so.6").resolve()
        facts = {"name": self.name, "file": str(path), "environment": self.environment,
                 "sha256": hashlib.sha256(path.read_bytes()).hexdigest()[:16]}
        for tried in (path, str(path).removeprefix("/usr")):
            owner = subprocess.run(["dpkg-query", "-S", str(tried)], capture_output=True, text=True, check=False)
            if owner.returncode == 0:
                package = owner.stdout.split(": ")[0].split(",")[0]
                version = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False)
                facts["version"] = f"{package.split(':')[0]} {version.stdout}"
                break
        if "version" not in facts:
            facts["file"] = path.name  # where it was built is nobody's business
        return facts


def find(build, asked):
    """name -> Allocator. Without a wish: those of Debian that are installed, and ours where it is built. glibc always takes part: it
    says what is right."""
    known = {"glibc": ""}
    for name, library in PEERS.items():
        if (LIBRARIES / library).exists():
            known[name] = LIBRARIES / library
    ours = build / "src/malloc/libmemoir-malloc.so"
    if ours.exists():
        known[OURS] = ours
    if not asked:
        return {name: Allocator(name, path) for name, path in known.items()}
    found = {"glibc": Allocator("glibc", "")}
    for wish in asked.split(","):
        name, _, path = wish.partition("=")
        if path and not pathlib.Path(path).is_file():
            raise SystemExit(f"bench malloc: there is no {path}")
        if not path and name not in known:
            raise SystemExit(f"bench malloc: no allocator '{name}' here; there are: {', '.join(known)}; another is named as NAME=PATH")
        found[name] = Allocator(name, pathlib.Path(path).resolve() if path else known[name])
    return found


def described(allocators):
    lines = []
    for allocator in allocators.values():
        facts = allocator.facts()
        lines.append(f"{allocator.name}: {facts.get('version', 'of this build')} ({facts['file']}, sha256 {facts['sha256']})")
    return lines + [""]
