"""libmemoir-tracer as a program sees it that was built elsewhere: its header, its symbols, the example of its manual, its dumps."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("MEMOIR_SOURCE_ROOT") or pathlib.Path(__file__).parents[2])
BUILD = pathlib.Path(os.environ.get("MEMOIR_BUILD_ROOT", "build"))
LIBRARY = BUILD / "src/trace/libmemoir-tracer.so"
OBSERVER = BUILD / "test/unit/trace_observer"
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic"]


def compiler(*names):
    return next((path for path in map(shutil.which, names) if path), None)


@unittest.skipIf(os.environ.get("MEMOIR_SANITIZED") == "1", "programs that are not sanitized cannot load the library")
class Tracer(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_it(self, *command, **environment):
        return subprocess.run([str(word) for word in command], env={**os.environ, **environment}, text=True, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

    def example(self):
        code = re.search(r"```c\n(.*?)```", (ROOT / "doc/tracer.md").read_text(encoding="utf-8"), re.DOTALL)[1]
        source, program = self.folder / "example.c", self.folder / "example"
        source.write_text(code, encoding="utf-8")
        built = self.run_it(compiler("cc", "gcc", "clang"), *WARNINGS, "-std=gnu11", f"-I{ROOT}/include", source, "-o", program,
                            f"-L{LIBRARY.parent}", "-lmemoir-tracer", f"-Wl,-rpath,{LIBRARY.parent.resolve()}")
        self.assertEqual((built.returncode, built.stdout), (0, ""))
        return program

    def test_the_header_is_clean_in_c_and_in_cpp(self):
        header = ROOT / "include/memoir/tracer.h"
        for name, language, standards in (("cc", "c", ("c99", "gnu17")), ("c++", "c++", ("c++11", "c++17"))):
            program = compiler(name, {"cc": "gcc", "c++": "g++"}[name])
            if not program:
                continue
            source = self.folder / f"include.{language}"
            source.write_text(f'#include "{header}"\n', encoding="utf-8")
            for standard in standards:
                done = self.run_it(program, *WARNINGS, "-fsyntax-only", f"-std={standard}", "-x", language, source)
                self.assertEqual((done.returncode, done.stdout), (0, ""), standard)

    def test_only_public_names_leave_the_library_and_all_of_the_header_do(self):
        names = set(self.run_it("nm", "-D", "--defined-only", "--format=just-symbols", LIBRARY).stdout.split())
        declared = set(re.findall(r"MEMOIR_API [^;(]*?\**(memoir_trace\w*)\(", (ROOT / "include/memoir/tracer.h").read_text(encoding="utf-8")))
        self.assertEqual(names, declared)
        self.assertGreater(len(names), 20)

    def test_the_example_of_the_manual_traces_and_saves_what_loads_as_json(self):
        dump = self.folder / "dump"
        done = self.run_it(self.example(), "777", "1", dump, MEMOIR_OBSERVE=str(OBSERVER), TRACE_OBSERVER="plain")
        self.assertEqual(done.returncode, 0, done.stdout)
        # The stand-in tells three blocks, copied 1, 2 and 3 times, by one line; and the host range that they were copied from.
        self.assertIn("0x300000         4096 bytes, 3 copies to the device, forward (model.py:42)", done.stdout)
        self.assertEqual(len(done.stdout.splitlines()), 4)
        self.assertEqual(dump.read_bytes()[:8], b"MEMOIRTR")

    def test_the_example_says_why_it_cannot_trace(self):
        done = self.run_it(self.example(), "777", "1", MEMOIR_OBSERVE=str(OBSERVER), TRACE_OBSERVER="refuse")
        self.assertEqual((done.returncode, done.stdout), (1, "cannot trace: no privilege to load BPF programs\n"))
        done = self.run_it(self.example(), "777", "1", MEMOIR_OBSERVE="/nowhere")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot start '/nowhere': No such file", done.stdout)


class Documented(unittest.TestCase):
    def test_every_field_of_json_dumps_is_documented(self):
        text = (ROOT / "doc/trace-dump.md").read_text(encoding="utf-8")
        words = set(re.findall(r"`([a-z0-9_]+)_?\*?`", text)) | set(re.findall(r"`([a-z_]+_)`", text))

        def keys(value):
            if isinstance(value, dict):
                for key, inner in value.items():
                    yield key
                    yield from keys(inner)
            elif isinstance(value, list):
                for inner in value:
                    yield from keys(inner)

        dump = json.loads((ROOT / "test/fuzz/corpus/trace_dump/json").read_text(encoding="utf-8"))
        missing = {key for key in keys(dump) if key not in words and key.split("_")[0] + "_" not in words
                   and key.split("_")[0] + "_*" not in text}
        self.assertEqual(missing - {"copies", "bytes", "blocks"}, set())


if __name__ == "__main__":
    unittest.main()
