"""Lines of Python in call stacks: what a book says is what the interpreter itself says.

The interpreter is Debian's. Others of MEMOIR_TEST_PYTHONS (paths, separated by colons) are tried as well.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["MEMOIR_SOURCE_ROOT"])
BUILD = pathlib.Path(os.environ["MEMOIR_BUILD_ROOT"])
sys.path.insert(0, str(SOURCE / "clients" / "python"))

from memoir.book import Book, find_books  # noqa: E402

PROGRAM = SOURCE / "test" / "integration" / "python_program.py"
TRACKED = SOURCE / "test" / "integration" / "python_tracked.py"
LIBRARY = BUILD / "src" / "client" / "libmemoir.so.0"
SANITIZED = os.environ.get("MEMOIR_SANITIZED") == "1"
DEADLINE_S = 120
FRAMES_MAX = 64
NAME_MAX, FILE_MAX = 127, 367
VERSIONS = {(3, minor) for minor in range(8, 14)}
CUT, SAMPLED = 2, 4


def version_of(python):
    code = "import sys; print(*sys.version_info[:2], getattr(sys, '_is_gil_enabled', lambda: True)())"
    answer = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    words = answer.stdout.split()
    return (int(words[0]), int(words[1])) if len(words) == 3 and words[2] == "True" else None


def interpreters():
    candidates = ["/usr/bin/python3", *filter(None, os.environ.get("MEMOIR_TEST_PYTHONS", "").split(":"))]
    return [p for p in candidates if os.access(p, os.X_OK) and version_of(p) in VERSIONS]


PYTHONS = interpreters()


class Program:
    """A Python program that prints a line of JSON and goes on until it is told to end."""

    def __init__(self, python, directory, *arguments, flags=(), **environment):
        self.process = subprocess.Popen(
            [python, *flags, *map(str, arguments)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "MEMOIR_DIR": directory, "MEMOIR_STACKS": "all", "PYTHONIOENCODING": "utf-8",
                 **environment})

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the program ended: {self.process.wait()}, {self.process.stderr.read().decode()}")
        return json.loads(line)

    def end(self):
        self.process.communicate(b"\n" * 4, timeout=DEADLINE_S)
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


def script_frames(site):
    return [[f.script.function, f.script.file, f.line] for f in site.frames if f.script]


def as_kept(frame):
    """What a book keeps of a name: the front of a function's, the end of a file's."""
    function, file, line = frame
    return [function.encode()[:NAME_MAX].decode(errors="ignore"), file.encode()[-FILE_MAX:].decode(), line]


@unittest.skipIf(SANITIZED, "the library of a sanitizer build cannot be loaded into another program")
@unittest.skipUnless(PYTHONS, "no /usr/bin/python3 of a version from 3.8 to 3.13")
class PythonTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="memoir-test-python-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, self.directory, True)

    def start(self, python, *arguments, **options):
        return self.start_program(python, PROGRAM, LIBRARY, *arguments, **options)

    def start_program(self, python, *arguments, **options):
        program = Program(python, self.directory, *arguments, **options)
        self.addCleanup(program.close)
        return program

    def book(self, pid):
        for path in find_books(self.directory):
            with Book.open(path) as book:
                if book.identity.pid == pid:
                    found = book.blocks()[0]  # first: the program goes on, and a new block may have a new site
                    sites = {s.number: s for s in book.sites()}
                    blocks = {b.id: sites[b.site] for b in found if b.site}
                    return book.identity, book.status(), sites, blocks
        raise AssertionError(f"no book of {pid}")

    def check(self, expected, blocks):
        self.assertEqual(sorted(int(i) for i in expected), sorted(blocks))
        for number, frames in expected.items():
            site = blocks[int(number)]
            found, wanted = script_frames(site), [as_kept(f) for f in frames]
            self.assertGreater(len(found), 0, f"no Python frames where {wanted} should be: {site}")
            if site.flags & CUT:
                self.assertEqual(len(site.frames), FRAMES_MAX)
                wanted = wanted[:len(found)]
            self.assertEqual(found, wanted)

    def check_calls(self, python, **options):
        program = self.start(python, "calls", **options)
        expected = program.answer()["blocks"]
        self.assertGreater(len(expected), 400)
        _, status, _, blocks = self.book(program.process.pid)
        self.check(expected, blocks)
        self.assertEqual(status.losses, {})
        self.assertEqual(program.end(), 0)


class Frames(PythonTest):
    def test_lines_are_those_of_the_interpreter(self):
        for python in PYTHONS:
            with self.subTest(python=python):
                self.check_calls(python)

    def test_flags_and_other_allocators_change_nothing(self):
        for python in PYTHONS:
            with self.subTest(python=python):
                self.check_calls(python, flags=("-X", "importtime"), PYTHONMALLOC="malloc")
                self.check_calls(python, flags=("-X", "faulthandler", "-I", "-O"), PYTHONMALLOC="debug")

    def test_native_frames_stay_where_they_belong(self):
        for python in PYTHONS:
            with self.subTest(python=python):
                program = self.start(python, "calls")
                expected = program.answer()["blocks"]
                identity, _, _, blocks = self.book(program.process.pid)
                between = set()
                for number in expected:
                    site = blocks[int(number)]
                    is_script = [f.script is not None for f in site.frames]
                    first = is_script.index(True)
                    self.assertGreater(first, 0)  # the call that reports is foreign
                    self.assertTrue(any("ffi" in f.module.path or "ctypes" in f.module.path or "python" in f.module.path
                                        for f in site.frames[:first]))
                    last = len(is_script) - 1 - is_script[::-1].index(True)
                    for f in site.frames[first:last]:
                        if f.script is None:
                            between.add(os.path.basename(f.module.path or identity.exe))
                # qsort calls back from C, and asyncio's tasks are stepped by an extension.
                self.assertTrue(any(name.startswith("libc.so") for name in between), between)
                self.assertFalse(any(name.startswith(("python3", "libpython3")) for name in between), between)
                self.assertEqual(program.end(), 0)

    def test_keys_are_the_same_in_every_run(self):
        keys = []
        for _ in range(2):
            program = self.start(PYTHONS[0], "calls", PYTHONHASHSEED="random")
            program.answer()
            keys.append(sorted(s.key for s in self.book(program.process.pid)[2].values()))
            self.assertEqual(program.end(), 0)
        self.assertEqual(keys[0], keys[1])

    def test_threads_never_get_the_names_of_others(self):
        for python in PYTHONS:
            with self.subTest(python=python):
                program = self.start(python, "threads", 2)
                program.answer()
                _, status, sites, blocks = self.book(program.process.pid)
                self.assertEqual({k: v for k, v in status.losses.items() if k not in ("replaced", "unknown_free")}, {})
                seen = set()
                for number, site in blocks.items():
                    worker = (number >> 40) - 1
                    frames = script_frames(site)
                    self.assertRegex(frames[0][0], rf"^inner_{worker}$")
                    for function, file, line in frames:
                        if file.startswith("worker_"):
                            self.assertEqual(file, f"worker_{worker}.py")
                            if not function.startswith("<"):  # has no name of its own before 3.11
                                self.assertIn(f"_{worker}", function)
                            self.assertGreater(line, worker)
                    self.assertTrue(any(f[0] == f"run_{worker}" for f in frames), frames)
                    seen.add(worker)
                self.assertEqual(seen, set(range(8)))
                for site in sites.values():
                    self.assertLessEqual(len({f[1] for f in script_frames(site) if f[1].startswith("worker_")}), 1)
                self.assertEqual(program.end(), 0)

    def test_child_of_fork_has_its_own_names(self):
        for python in PYTHONS:
            with self.subTest(python=python):
                program = self.start(python, "fork")
                answer = program.answer()
                self.check(answer["blocks"], self.book(program.process.pid)[3])
                self.check(answer["child_blocks"], self.book(answer["child"])[3])
                self.assertEqual(program.end(), 0)

    def test_callers_alone_stay_native(self):
        program = self.start(PYTHONS[0], "fork", MEMOIR_STACKS="caller")
        program.answer()
        sites = self.book(program.process.pid)[2]
        self.assertTrue(sites)
        for site in sites.values():
            self.assertEqual(script_frames(site), [])
            self.assertEqual(len(site.frames), 1)
        self.assertEqual(program.end(), 0)


class Tracked(PythonTest):
    """The stacks of a heap tracker have lines of Python, too."""

    def start(self, python, *arguments, stacks="all", **environment):
        library = BUILD / "src" / "track" / "libmemoir-track.so"
        if not library.exists():
            self.skipTest("libmemoir-track was not built")
        return self.start_program(python, TRACKED, *arguments, LD_PRELOAD=str(library), MEMOIR_STACKS=stacks,
                                  **environment)

    def by_function(self, pid, flags=0):
        """Live blocks and bytes by the innermost Python call."""
        figures = {}
        for site in self.book(pid)[2].values():
            frames = script_frames(site)
            if frames and site.flags & SAMPLED == flags:
                blocks, size = figures.get(frames[0][0], (0, 0))
                figures[frames[0][0]] = blocks + site.live_blocks, size + site.live_bytes
        return figures

    def test_every_block_has_its_line(self):
        for python in PYTHONS:
            with self.subTest(python=python):
                program = self.start(python, "held")
                self.assertEqual(program.answer(), {"held": 140})
                figures = self.by_function(program.process.pid)
                self.assertEqual(figures["hold"][0], 100)
                self.assertGreaterEqual(figures["hold"][1], 100 * 100000)
                # In 3.12 it is inlined, before 3.11 it has no name of its own.
                listed = [v[1] for k, v in figures.items() if k.startswith(("hold_some", "<listcomp>"))]
                self.assertGreaterEqual(sum(listed), 40 * 50000)
                self.assertEqual(program.end(), 7)

    def test_sampled_stacks_have_lines(self):
        program = self.start(PYTHONS[0], "held", stacks="sampled", MEMOIR_SAMPLE_BYTES="20000")
        program.answer()
        sites = self.book(program.process.pid)[2]
        sampled = [script_frames(s)[0][0] for s in sites.values() if s.flags & SAMPLED and script_frames(s)]
        self.assertIn("hold", sampled)
        for site in sites.values():
            self.assertTrue(site.flags & SAMPLED or not script_frames(site))  # callers stay native
        self.assertEqual(program.end(), 7)

    def test_threads_never_get_the_names_of_others(self):
        for python in PYTHONS:
            with self.subTest(python=python):
                program = self.start(python, "churn", 1, PYTHONMALLOC="malloc", MEMOIR_RESERVE="large")
                program.answer()
                seen = set()
                for site in self.book(program.process.pid)[2].values():
                    frames = [f for f in script_frames(site) if f[1].startswith("worker_")]
                    workers = {f[1] for f in frames}
                    self.assertLessEqual(len(workers), 1, frames)
                    for function, file, _ in frames:
                        if not function.startswith("<"):
                            self.assertIn(file[6:8], function)
                    seen |= workers
                self.assertEqual(seen, {f"worker_{i}.py" for i in range(6)})
                self.assertEqual(program.end(), 7)


class Layouts(unittest.TestCase):
    """The table of offsets is what CPython's headers say."""

    def headers(self):
        found = []
        for python in PYTHONS:
            code = "import sysconfig; print(sysconfig.get_paths()['include'])"
            path = pathlib.Path(subprocess.run([python, "-c", code], capture_output=True, text=True, check=True,
                                               timeout=DEADLINE_S).stdout.strip())
            if (path / "internal" / "pycore_pystate.h").exists():
                found.append(path)
        return found

    def test_offsets_are_those_of_the_headers(self):
        compiler = shutil.which("cc") or shutil.which("gcc")
        headers = self.headers()
        if not headers or not compiler:
            self.skipTest("no headers of CPython (python3-dev), or no compiler")
        told = subprocess.run([BUILD / "test" / "integration" / "python_layouts"], capture_output=True, text=True,
                              check=True, timeout=DEADLINE_S).stdout
        ours = {tuple(line.split()[:2]): line.split()[2] for line in told.splitlines()}
        for path in headers:
            with self.subTest(headers=path), tempfile.TemporaryDirectory() as directory:
                program = pathlib.Path(directory) / "offsets"
                subprocess.run([compiler, "-w", f"-I{path}", f"-I{path}/internal", "-o", program,
                                SOURCE / "test" / "integration" / "python_offsets.c"], check=True, timeout=DEADLINE_S)
                lines = subprocess.run([program], capture_output=True, text=True, check=True,
                                       timeout=DEADLINE_S).stdout.splitlines()
                theirs = {tuple(line.split()[:2]): line.split()[2] for line in lines}
                version = lines[0].split()[0]
                mine = {k: v for k, v in ours.items() if k[0] == version}
                self.assertEqual({k: v for k, v in mine.items() if k in theirs}, theirs)
                # What a version does not have is 0 in the table.
                self.assertEqual({v for k, v in mine.items() if k not in theirs} - {"0"}, set())


class Views(PythonTest):
    """The command line names lines of scripts."""

    def memoir(self, *arguments):
        answer = subprocess.run([BUILD / "src" / "cli" / "memoir", *arguments], capture_output=True, text=True,
                                env={**os.environ, "MEMOIR_DIR": self.directory}, timeout=DEADLINE_S, check=False)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return answer.stdout

    def test_buffers_and_sites_show_the_innermost_line(self):
        program = self.start(PYTHONS[0], "fork")
        expected = program.answer()["blocks"]
        wanted = {number: frames[0] for number, frames in expected.items()}
        rows = json.loads(self.memoir("buffers", "--json", "--pid", str(program.process.pid)))["rows"]
        self.assertEqual(len(rows), len(wanted))
        for row in rows:
            function, file, line = wanted[str(int(row["id"], 16))]
            self.assertEqual(row["site"], f"{os.path.basename(file)}:{line} in {function}")
        rows = json.loads(self.memoir("query", "sites", "--show", "site,blocks", "--json"))["rows"]
        function, file, line = wanted[min(wanted)]
        self.assertIn(f"{os.path.basename(file)}:{line} in {function}", [row["site"] for row in rows])
        rows = json.loads(self.memoir("sites", str(program.process.pid), "--json"))["sites"]
        self.assertIn((function, file, line), [(row["function"], row["source_file"], row["line"]) for row in rows])
        self.assertEqual(program.end(), 0)
