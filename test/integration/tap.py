#!/usr/bin/env python3
"""Run one unittest file and print TAP, so that every test method counts.

Usage: tap.py FILE [TEST...]     TEST is Class.method or Class, as unittest names them
"""

import importlib.util
import os
import pathlib
import signal
import sys
import time
import traceback
import unittest


class TapResult(unittest.TestResult):
    """One line per method; what went wrong follows as comments."""

    def __init__(self):
        super().__init__()
        self.count = 0
        self.bad = 0
        self.started = None

    def startTest(self, test):
        super().startTest(test)
        self.started = time.monotonic()

    def line(self, ok, test, directive="", details=""):
        self.count += 1
        self.bad += not ok
        name = test.id().replace("#", "%23")
        print(f"{'ok' if ok else 'not ok'} {self.count} - {name}{directive}")
        if self.started is not None and not directive:
            print(f"# {time.monotonic() - self.started:.2f} s")
        for text in details.splitlines():
            print(f"# {text}")
        sys.stdout.flush()

    def addSuccess(self, test):
        self.line(True, test)

    def addFailure(self, test, err):
        self.line(False, test, details="".join(traceback.format_exception(*err)))

    addError = addFailure

    def addSkip(self, test, reason):
        self.line(True, test, directive=f" # SKIP {reason}")

    def addExpectedFailure(self, test, err):
        self.line(True, test)

    def addUnexpectedSuccess(self, test):
        self.line(False, test, details="passed although a failure was expected")

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.line(False, subtest, details="".join(traceback.format_exception(*err)))


def end_when_told(result):
    """Who finds that a test takes too long sends SIGTERM: that test fails then, and says where it stood."""
    runner = os.getpid()

    def told(number, _frame):
        if os.getpid() != runner:  # a child of some test, which has not asked for this
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        result.stop()
        raise TimeoutError("told to end: this takes too long")

    signal.signal(signal.SIGTERM, told)


def load(path, names):
    """The tests of a file; its folder is importable, for shared helpers."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    loader = unittest.defaultTestLoader
    return loader.loadTestsFromNames(names, module) if names else loader.loadTestsFromModule(module)


def main():
    if len(sys.argv) < 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    suite = load(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:])
    result = TapResult()
    end_when_told(result)
    suite.run(result)
    print(f"1..{result.count}")
    return 1 if result.bad else 0


if __name__ == "__main__":
    sys.exit(main())
