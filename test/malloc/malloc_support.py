"""What the tests of programs under libmemoir-malloc share: the same program without it and with it, and what each said."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))

from stage import build_root  # noqa: E402

BUILD = build_root()
# Another one may be named: what is said here of a system allocator holds for any good one.
LIBRARY = pathlib.Path(os.environ.get("MALLOC_LIBRARY") or BUILD / "src/malloc/libmemoir-malloc.so")
PATIENCE_S = 600  # a limit for a broken program, never a wait
ENVIRONMENT = {k: v for k, v in os.environ.items()
               if not k.startswith(("MEMOIR_", "LD_", "PYTHON", "MALLOC_"))} | {"LC_ALL": "C.UTF-8", "TZ": "UTC"}


class ProgramTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not LIBRARY.exists():
            raise unittest.SkipTest("this build has no allocator")

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-malloc-", dir="/var/tmp"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def need(self, *programs):
        for program in programs:
            if not shutil.which(program):
                self.skipTest(f"{program} is not installed")

    @staticmethod
    def environment(preload, more=None):
        """Settings of the allocator may be tried from outside: MEMOIR_MALLOC reaches the programs."""
        wanted = {"LD_PRELOAD": str(LIBRARY)} if preload else {}
        if preload and "MEMOIR_MALLOC" in os.environ:
            wanted["MEMOIR_MALLOC"] = os.environ["MEMOIR_MALLOC"]
        return ENVIRONMENT | wanted | (more or {})

    def call(self, command, preload, environment=None, **more):
        done = subprocess.run(list(map(str, command)), capture_output=True, cwd=self.folder, check=False,
                              env=self.environment(preload, environment), timeout=PATIENCE_S, **more)
        return done.returncode, done.stdout, done.stderr

    def same(self, command, environment=None, reset=None, made=(), code=0, **more):
        """The same words, the same end and the same files, with glibc's malloc and with ours. Returns the words."""
        results = []
        for preload in (False, True):
            if reset:
                reset()
            said = self.call(command, preload, environment, **more)
            files = [(self.folder / path).read_bytes() for path in made]
            results.append((said, files))
        self.assertEqual(results[1][0], results[0][0])
        self.assertTrue(results[1][1] == results[0][1], f"{made} differ")
        self.assertEqual(results[0][0][0], code, results[0][0])
        return results[0][0][1]
