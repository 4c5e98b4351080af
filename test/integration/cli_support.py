"""What the tests of the commands share: running memoir, clients with known figures, golden files."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

BUILD = pathlib.Path(os.environ["MEMOIR_BUILD_ROOT"])
GOLDEN = pathlib.Path(__file__).resolve().parent / "golden" / "cli"
MEMOIR = BUILD / "src/cli/memoir"
LIBRARY = BUILD / "src/client"  # for copies of programs, which do not find it beside themselves
CLIENT = BUILD / "test/integration/cli_client"
SCRIPTED = BUILD / "test/integration/scripted_client"

PATIENCE_S = 60  # a limit for a broken program, never a wait

# enum memoir_space, for scripted clients
HEAP, DRAM, L1, L1_SMALL, TRACE, CB, KERNEL, SYSTEM = 1, 16, 17, 18, 19, 20, 21, 22
COMMANDS = ["top", "ps", "devices", "buffers", "sites", "flame", "leaks", "heap", "explain", "query", "log", "history", "exited", "run", "trace",
            "open", "token", "cluster", "doctor", "demo", "help"]

# Nothing of the caller's environment changes what the commands print.
ENVIRONMENT = {
    key: value
    for key, value in os.environ.items()
    if key not in ("COLUMNS", "NO_COLOR", "MEMOIR_DIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")
} | {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC", "TERM": "xterm"}


def memoir(*arguments, environment=None, check=None, stdin=subprocess.DEVNULL):
    """Run `memoir ARGUMENTS`; `check` is the exit status that it must have."""
    done = subprocess.run(
        [MEMOIR, *map(str, arguments)],
        stdin=stdin,
        capture_output=True,
        env=ENVIRONMENT | (environment or {}),
        timeout=PATIENCE_S,
    )
    done.stdout = done.stdout.decode()
    done.stderr = done.stderr.decode()
    if check is not None and done.returncode != check:
        raise AssertionError(
            f"memoir {' '.join(map(str, arguments))} ended with {done.returncode}, not {check}:\n"
            f"{done.stdout}\n{done.stderr}"
        )
    return done


def wait_for(condition, what, timeout_s=PATIENCE_S):
    """Poll until `condition()` gives something true, and return it."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {timeout_s} s")


class CommandTest(unittest.TestCase):
    """A private directory of books in memory, and clients that end with the test."""

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-cli-", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def start_client(self, *arguments, program=CLIENT):
        client = subprocess.Popen(
            [program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=ENVIRONMENT | {"MEMOIR_DIR": str(self.dir), "LD_LIBRARY_PATH": str(LIBRARY)},
        )
        self.addCleanup(self.end_client, client)
        self.assertEqual(client.stdout.readline(), b"ready\n")
        return client

    def start_scripted(self, *lines, program=SCRIPTED):
        """A client that reports what `tell` says; see scripted_client.c."""
        client = self.start_client(program=program)
        self.tell(client, *lines)
        return client

    @staticmethod
    def tell(client, *lines):
        """Reports, each of which is in the book on return."""
        for line in lines:
            client.stdin.write(f"{line}\n".encode())
            client.stdin.flush()
            answer = client.stdout.readline()
            if answer != b"ok\n":
                raise AssertionError(f"the client did not understand '{line}'")

    def copy_of(self, program, name):
        """The program under another name; not in self.dir, which may be mounted noexec."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-cli-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        shutil.copy(program, folder / name)
        return folder / name

    @staticmethod
    def end_client(client):
        client.stdin.close()
        client.wait()
        client.stdout.close()

    def ps(self, *arguments, check=0):
        """The rows of `memoir ps --json`; with --wide those of accounts."""
        done = memoir("ps", "--json", "--dir", self.dir, *arguments, check=check)
        return json.loads(done.stdout)["rows"]

    def assert_golden(self, name, text, masks=()):
        """`text` equals the golden file once what differs from run to run is masked."""
        for pattern, replacement in masks:
            text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
        path = GOLDEN / name
        if os.environ.get("GENERATE"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        self.assertTrue(path.exists(), f"{path} is missing; GENERATE=1 writes it")
        self.assertEqual(text, path.read_bytes().decode(), f"{name} differs; GENERATE=1 rewrites it")
