"""memoir explain: the parts of a process's RSS sum, and name their owners, for each runtime that is here."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import stage

stage.build_root()
from cli_support import ENVIRONMENT, MEMOIR, CommandTest, memoir  # noqa: E402
from document import checked  # noqa: E402

PROGRAMS = pathlib.Path(__file__).resolve().parents[2] / "bench/explain"
REST_PERCENT = 3
PLAIN = {key: value for key, value in ENVIRONMENT.items() if key != "MALLOC_PERTURB_"}  # it touches every block

UNTOUCHED = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *kept[200];
__attribute__((noinline)) static void untouched(void) { for (int i = 0; i < 100; i++) kept[i] = calloc(1, 2 << 20); }
__attribute__((noinline)) static void touched(void) {
    for (int i = 100; i < 200; i++) memset(kept[i] = malloc(500000), 1, 500000);
}
int main(void) { untouched(); touched(); puts("ready"); fflush(stdout); pause(); }
"""

# As Go does: its heap begins at a fixed address, and stacks lie in it.
LIKE_GO = """
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static void *wait_here(void *arg) { puts("ready"); fflush(stdout); pause(); return arg; }
int main(void) {
    char *heap = mmap((void *)0xc000000000, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    pthread_attr_t attr;
    pthread_t thread;
    memset(heap, 1, 4 << 20);
    pthread_attr_init(&attr);
    pthread_attr_setstack(&attr, heap + (1 << 20), 1 << 20);
    pthread_create(&thread, &attr, wait_here, NULL);
    pthread_join(thread, NULL);
}
"""


class ExplainTest(CommandTest):
    def start(self, *command, environment=None):
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                   env=PLAIN | (environment or {}), text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def explain(self, process):
        told = checked(json.loads(memoir("explain", "--dir", self.dir, "--json", process.pid, check=0).stdout))
        self.assertEqual(sum(part["bytes"] for part in told["parts"]), told["rss"])
        self.assertEqual(sum(told["kinds"].values()), told["rss"])
        self.assertTrue(told["memory_read"])
        self.assertTrue(told["program"])  # with or without a book
        self.assertLessEqual(told["kinds"]["rest"] * 100, REST_PERCENT * told["rss"], told["parts"])
        return told

    def part(self, told, kind, name):
        return sum(part["bytes"] for part in told["parts"] if part["kind"] == kind and name in part["name"])

    def folder(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-explain-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def c_program(self):
        program = self.folder() / "hold"
        subprocess.run(["gcc", "-O1", "-g", "-pthread", PROGRAMS / "hold.c", "-o", program], check=True)
        return program


class Runtimes(ExplainTest):
    def test_c(self):
        told = self.explain(self.start(self.c_program()))
        self.assertGreater(told["kinds"]["heap"], 80_000_000)
        self.assertIsNone(told["sites"])
        self.assertGreater(self.part(told, "heap", "arenas of threads"), 3_000_000)
        self.assertGreater(self.part(told, "heap", "mmap"), 15_000_000)
        self.assertGreater(self.part(told, "stack", "other threads"), 4 * 64 << 10)

    def test_cpython(self):
        told = self.explain(self.start(sys.executable, PROGRAMS / "hold.py"))
        self.assertGreater(self.part(told, "runtime", "CPython"), 40_000_000)
        self.assertGreater(self.part(told, "heap", ""), 8_000_000)

    def test_stacks_that_lie_in_the_heap_of_go_are_part_of_it(self):
        program = self.folder() / "like_go"
        subprocess.run(["gcc", "-O1", "-pthread", "-x", "c", "-", "-o", program], input=LIKE_GO, text=True, check=True)
        told = self.explain(self.start(program))
        self.assertEqual(self.part(told, "runtime", "Go heap"), 4 << 20)
        self.assertLess(told["kinds"]["stack"], 1 << 20)

    @unittest.skipUnless(shutil.which("go"), "there is no go")
    def test_go(self):
        program = self.folder() / "hold_go"
        subprocess.run(["go", "build", "-o", program, PROGRAMS / "hold.go"], check=True)
        told = self.explain(self.start(program))
        self.assertGreater(self.part(told, "runtime", "Go heap"), 30_000_000)

    @unittest.skipUnless(shutil.which("node"), "there is no node")
    def test_node(self):
        told = self.explain(self.start("node", PROGRAMS / "hold.js"))
        self.assertGreater(self.part(told, "runtime", "V8 heap"), 30_000_000)
        self.assertGreater(self.part(told, "heap", ""), 15_000_000)

    @unittest.skipUnless(shutil.which("php"), "there is no php")
    def test_php(self):
        told = self.explain(self.start("php", PROGRAMS / "hold.php"))
        self.assertGreater(self.part(told, "runtime", "PHP"), 80_000_000)

    @unittest.skipUnless(shutil.which("javac"), "there is no javac")
    def test_java(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-explain-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        subprocess.run(["javac", "-d", folder, PROGRAMS / "Hold.java"], check=True)
        told = self.explain(self.start("java", "-cp", folder, "Hold"))
        self.assertGreater(self.part(told, "runtime", "Java heap"), 15_000_000)
        self.assertGreater(self.part(told, "heap", ""), 15_000_000)


class Tracked(ExplainTest):
    def tracked(self, *flags):
        return self.explain(self.start(MEMOIR, "run", "--quiet", "--dir", self.dir, *flags, self.c_program()))

    def check(self, told):
        self.assertEqual(sum(site["bytes"] for site in told["sites"]) + told["others"]["bytes"], told["kinds"]["heap"])
        self.assertIn("small_make", told["sites"][0]["site"])
        self.assertGreater(told["live"], 48_000_000 + (48 << 20))
        # 32 MiB were never touched.
        self.assertGreater(told["live_absent"], 6_000_000)
        self.assertGreater(told["kinds"]["memoir"], 0)

    def test_our_allocator_has_sites_and_slack(self):
        told = self.tracked()
        self.check(told)
        self.assertGreater(told["kinds"]["slack"], 10_000_000)

    def test_another_allocator_has_sites(self):
        self.check(self.tracked("--track"))

    def test_what_was_never_touched_is_not_resident_at_its_site(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-explain-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        subprocess.run(["gcc", "-O1", "-g", "-x", "c", "-", "-o", folder / "empty"], input=UNTOUCHED, text=True, check=True)
        for flags in ((), ("--track",)):
            told = self.explain(self.start(MEMOIR, "run", "--quiet", "--dir", self.dir, *flags, folder / "empty"))
            sites = {site["site"].split()[-1]: site["bytes"] for site in told["sites"]}
            self.assertAlmostEqual(sites["touched"], 50_000_000, delta=3_000_000)
            self.assertLess(sites.get("untouched", 0), 3_000_000)
            self.assertEqual(sum(site["bytes"] for site in told["sites"]) + told["others"]["bytes"], told["kinds"]["heap"])


    def test_call_sites_are_rows_of_the_table_that_sum_to_the_heap(self):
        process = self.start(MEMOIR, "run", "--quiet", "--dir", self.dir, self.c_program())
        def rows(*words):
            return json.loads(memoir("query", "explain", "--dir", self.dir, "--where", f"pid={process.pid}", *words, "--json",
                                     check=0).stdout)["rows"]
        told, all_rows = self.explain(process), rows("--show", "kind,part,bytes,estimated,live,blocks,folded,private,rss")
        sites = [row for row in all_rows if row["kind"] == "heap"]
        self.assertEqual(sum(row["bytes"] for row in all_rows), all_rows[0]["rss"])
        self.assertAlmostEqual(sum(row["bytes"] for row in sites), told["kinds"]["heap"], delta=told["rss"] / 100)
        self.assertAlmostEqual(sum(row["private"] for row in sites),
                               sum(part["private"] for part in told["parts"] if part["kind"] == "heap"),
                               delta=told["rss"] / 100)
        self.assertTrue(all(row["estimated"] for row in sites))
        first = max(sites, key=lambda row: row["bytes"])
        self.assertIn("small_make", first["part"])
        self.assertEqual((first["live"], first["blocks"], first["folded"]),
                         (told["sites"][0]["live"], told["sites"][0]["blocks"], 0))
        self.assertEqual({row["kind"] for row in rows("--by", "kind")}, {row["kind"] for row in all_rows})


class Command(ExplainTest):
    def test_people_see_kinds_and_a_bar(self):
        process = self.start(sys.executable, PROGRAMS / "hold.py", "1000")
        text = memoir("explain", process.pid, check=0).stdout
        self.assertIn(" resident in ", text)
        self.assertIn("runtime", text)
        self.assertIn("libc.so.6", text)
        self.assertNotIn("\x1b", text)
        self.assertIn("\x1b", memoir("explain", "--color", "always", process.pid, check=0).stdout)

    def test_parts_are_rows_of_a_table(self):
        process = self.start(sys.executable, PROGRAMS / "hold.py", "1000")
        def rows(*words):
            return json.loads(memoir("query", "explain", "--where", f"pid={process.pid}", *words, "--json", check=0).stdout)["rows"]
        told, parts = self.explain(process), rows("--show", "kind,part,bytes,rss")
        self.assertEqual(sum(row["bytes"] for row in parts), parts[0]["rss"])
        self.assertEqual({row["part"] for row in parts if row["kind"] == "file"},
                         {part["name"] for part in told["parts"] if part["kind"] == "file"})
        self.assertEqual({row["kind"] for row in rows("--by", "kind")}, {row["kind"] for row in parts})

    def test_what_is_not_there_is_told(self):
        self.assertIn("no process", memoir("explain", "2147483646", check=3).stderr)
        self.assertIn("no process called", memoir("explain", "no-such-program", check=3).stderr)
        self.assertIn("not a valid PID", memoir("explain", "12x", check=2).stderr)
        self.assertIn("missing argument", memoir("explain", check=2).stderr)


if __name__ == "__main__":
    unittest.main()
