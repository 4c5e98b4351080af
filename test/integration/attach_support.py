"""memoir-observe --heap on programs of our own, which count by themselves."""

import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time
import unittest

from document import checked
from observer_process import BUILD, OBSERVE, PATIENCE_S, ObserverProcess, why_not  # noqa: F401

MEMOIR = BUILD / "src/cli/memoir"
PROGRAMS = BUILD / ("test/integration" if (BUILD / "test/integration").exists() else "bench")
PROGRAM = PROGRAMS / "attach_program"
STATIC = PROGRAMS / "attach_static"
CPP = PROGRAMS / "attach_cpp"


class Program:
    """A program that reads commands and answers each with one line."""

    def __init__(self, path=PROGRAM, prefix=(), arguments=(), **environment):
        self.process = subprocess.Popen([*prefix, str(path), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                                        env={**os.environ, **environment})
        self.pid = self.process.pid
        self.rest = b""
        if path != CPP:
            self.before = self.answer()

    def answer(self):
        while b"\n" not in self.rest:
            if not select.select([self.process.stdout], [], [], PATIENCE_S)[0]:
                raise AssertionError("the program does not answer")
            piece = os.read(self.process.stdout.fileno(), 4096)
            if not piece:
                raise AssertionError(f"the program ended: {self.process.wait()}")
            self.rest += piece
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode().split()

    def __call__(self, *words):
        self.process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        return self.answer()

    def live(self, *words):
        """Do it; (bytes, blocks) since the attach, by its own count."""
        said = self(*words)
        return int(said[1]) - int(self.before[1]), int(said[2]) - int(self.before[2])

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Heap(ObserverProcess):
    """An observer of one heap."""

    def __init__(self, pid, folder, *options):
        self.books, self.socket, self.log = folder / "books", str(folder / "heap.sock"), folder / "heap.log"
        self.books.mkdir(exist_ok=True)
        self.launch(self.log, "--heap", "--pid", str(pid), "--dir", str(self.books),
                    *(() if "--budget" in options else ("--budget", "0")), *options)

    def of(self, child):
        """The observer of a child that this one follows."""
        other = object.__new__(Heap)
        other.socket = str(pathlib.Path(self.socket).parent / f"heap-{child}.sock")
        return other

    def state(self):
        """What it says of itself; None: there is none."""
        try:
            return self.status()["state"]
        except OSError:
            return None

    def live(self):
        status = self.status()
        return status["bytes"], status["blocks"]


class AttachTest(unittest.TestCase):
    reason = why_not()

    def setUp(self):
        if self.reason:
            self.skipTest(self.reason)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="memoir-attach-", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def program(self, *arguments, **environment):
        program = Program(*arguments, **environment)
        self.addCleanup(program.end)
        return program

    def heap(self, program, *options):
        heap = Heap(program.pid, self.folder, *options)
        self.addCleanup(heap.stop)
        return heap

    def eventually(self, look, wanted):
        deadline = time.monotonic() + PATIENCE_S
        while (seen := look()) != wanted:
            self.assertLess(time.monotonic(), deadline, f"{seen} instead of {wanted}")
            time.sleep(0.02)

    def memoir(self, *words):
        return subprocess.run([str(MEMOIR), *map(str, words)], capture_output=True, text=True, timeout=PATIENCE_S,
                              env={**os.environ, "MEMOIR_SYMBOLS": "on"})

    def json(self, *words):
        done = self.memoir(*words, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        told = json.loads(done.stdout)
        return told if "table" in told else checked(told)
