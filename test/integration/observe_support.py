"""memoir-observe with probes on the stand-in driver."""

import json
import os
import pathlib
import sys
import tempfile
import time

import observer_process
from observer_process import OBSERVE, PATIENCE_S, ObserverProcess  # noqa: F401

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cuda"))
from cuda_support import BUILD, STANDIN, TRAIN, CudaTest, Drive, environment  # noqa: E402, F401

LIBRARY = STANDIN / "libcuda.so.1"

# What the stand-in calls them, by the space that Memoir has for them.
SPACES = {
    "dram": ("device", "pool", "array", "physical"),
    "pinned": ("host",),
    "managed": ("managed",),
    "registered": ("registered",),
}


def why_not():
    """Why nothing can be traced here, or None."""
    if observer_process.why_not():
        return observer_process.why_not()
    with tempfile.TemporaryDirectory() as folder:
        try:
            Observer(folder, "probe-test").stop()
        except RuntimeError as error:
            return str(error)
    return None


class Observer(ObserverProcess):
    """A running observer of all processes that use the stand-in. Names tell observers of parallel tests apart."""

    def __init__(self, folder, name, *options, books=None, system_calls=True, prefix=()):
        self.folder, self.name = pathlib.Path(folder), f"{name}-{os.getpid()}"
        self.socket = str(self.folder / f"{name}.sock")
        self.log = self.folder / f"{name}.log"
        self.options, self.prefix = options, prefix
        self.books = books
        self.system_calls = system_calls
        self.start()

    def start(self):
        books = ["--dir", str(self.books)] if self.books else ["--no-books"]
        books += ["--system-calls"] if self.system_calls else []
        self.launch(self.log, "--all", "--name", self.name, "--library", str(LIBRARY), *books, *self.options, prefix=self.prefix)

    def traced(self, pid):
        """What the kernel's tables say of a process; None: nothing."""
        for p in json.loads(self.ask("list"))["processes"]:
            if p["pid"] == pid:
                return p
        return None


def live(process, space):
    return (process or {"spaces": {}})["spaces"].get(space, {}).get("bytes", 0)


def counted(counts, space):
    """Live bytes by the stand-in's own count, all devices."""
    return sum(device.get(kind, [0, 0])[0] for device in counts["live"] for kind in SPACES[space])


def wait_for(what, condition):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {PATIENCE_S} s: {what}")


class ObserveTest(CudaTest):
    reason = why_not()

    def setUp(self):
        if self.reason:
            self.skipTest(self.reason)
        super().setUp()

    @classmethod
    def shared(cls):
        """One observer with default options for all tests of the class that only look at what it tells: to load and remove
        probes takes most of a test's time."""
        if "_shared" not in cls.__dict__ or cls._shared.process.poll() is not None:
            holder = tempfile.TemporaryDirectory()
            cls.addClassCleanup(holder.cleanup)
            cls._shared = Observer(holder.name, f"shared-{cls.__name__.lower()}"[:30])
            cls.addClassCleanup(cls._shared.stop)
        return cls._shared

    def observer(self, *options, books=None, system_calls=True, prefix=()):
        observer = Observer(self.folder, self.id().rsplit(".", 1)[-1].replace("_", "-")[:30], *options, books=books,
                            system_calls=system_calls, prefix=prefix)
        self.addCleanup(observer.stop)
        return observer

    def assert_same(self, observer, pid, answer, where=""):
        """All live bytes are those that the stand-in counts."""
        traced = observer.traced(pid)
        for space in SPACES:
            self.assertEqual(live(traced, space), counted(answer["counts"], space), f"{where} {space}")
        return traced
