"""What nothing points to any more: memoir leaks --scan on living programs, memoir run --scan at their end."""

import ctypes
import errno
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import unittest

from cli_support import BUILD, ENVIRONMENT, MEMOIR, CommandTest, wait_for
from document import checked

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "leaks"))

import leaks  # noqa: E402


def forbid_reading_by_pid(action=0x00050000 | errno.EPERM):
    """process_vm_readv() gives EPERM from now on; or another action of seccomp."""
    number = {"x86_64": 310, "aarch64": 270}[os.uname().machine]
    seccomp_filter([(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, action), (0x06, 0, 0, 0x7FFF0000)])


def forbid_tracing():
    """ptrace() gives EPERM from now on, as in a container that may not."""
    number = {"x86_64": 101, "aarch64": 117}[os.uname().machine]
    seccomp_filter([(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | errno.EPERM),
                    (0x06, 0, 0, 0x7FFF0000)])


def forbid_shared_memory():
    """mmap() with exactly MAP_SHARED | MAP_ANONYMOUS fails, which who looks apart needs before anything else."""
    number, fourth = {"x86_64": 9, "aarch64": 222}[os.uname().machine], 16 + 3 * 8
    seccomp_filter([(0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, fourth), (0x15, 0, 1, 0x21),
                    (0x06, 0, 0, 0x00050000 | errno.ENOMEM), (0x06, 0, 0, 0x7FFF0000)])


def seccomp_filter(code):
    libc = ctypes.CDLL(None, use_errno=True)
    filters = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in code))
    program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(code), ctypes.addressof(filters)))
    no_new_privileges, seccomp, by_filter = 38, 22, 2
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) < 0 or libc.prctl(seccomp, by_filter, program, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "seccomp")


OWN_MALLOC = """
#include <stddef.h>
static char all[1 << 20];
static size_t used;
void *malloc(size_t n) { char *p = all + used; used += (n + 31) & ~(size_t)15; return p; }
void *calloc(size_t n, size_t m) { return malloc(n * m); }
void *realloc(void *p, size_t n) { return malloc(n); }
void free(void *p) {}
int main(void) { return malloc(100) == NULL; }
"""


# Every other 2 MiB of many become free, and then large blocks are needed.
IN_TURNS = """
#include <stdlib.h>
#include <string.h>
enum { UNITS = 40, PART = 1000 << 10, LOST = 3, LOST_BYTES = (9 << 20) + (300 << 10) };
static char *part[2 * UNITS];
static __attribute__((noinline)) char *filled(size_t n) { return memset(malloc(n), 1, n); }
static __attribute__((noinline)) void lose(void) { char *volatile p = filled(LOST_BYTES); p = NULL; }
int main(void)
{
    for (int i = 0; i < 2 * UNITS; i++)
        part[i] = filled(PART);
    for (int i = 0; i < 2 * UNITS; i++)
        if (i / 2 % 2 == 0) {
            free(part[i]);
            part[i] = NULL;
        }
    for (int i = 0; i < LOST; i++)
        lose();
    return 0;
}
"""


# A pointer where even the kernel does not read it for others; ends with 77 where there is no such memory.
SECRET = """
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void)
{
    int file = (int)syscall(447, 0);
    void **secret = MAP_FAILED;
    if (file >= 0 && ftruncate(file, 4096) == 0)
        secret = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (secret == MAP_FAILED)
        return 77;
    *secret = malloc(100);
    volatile char stack[8192];
    for (unsigned i = 0; i < sizeof(stack); i++)
        stack[i] = 0;
    return 0;
}
"""


class Scan(CommandTest):
    def run_scan(self, command, *options, tells=False, **keys):
        """Run a program to its end: what the scan told, and how it ended."""
        summary = self.dir / "summary.json"
        said = [] if tells else ["--quiet"]
        done = subprocess.run(
            [MEMOIR, "run", "--scan", *said, "--json", summary, "--dir", self.dir, *options, "--", *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            env=ENVIRONMENT,
            **keys,
        )
        self.assertTrue(summary.exists(), done.stderr)
        told = checked(json.loads(summary.read_text()))
        return told["scan"] and checked(told["scan"]), done

    def program(self, name):
        return next(p for p in leaks.programs() if p.name == name)

    def sites(self, scan, program, *states):
        """Blocks and bytes of the program's own lines that are in these states, by line."""
        found = {}
        for row in scan["sites"]:
            own = row["source_file"] and pathlib.Path(row["source_file"]).name == program.path.name
            if own and row["state"] in states:
                blocks, size = found.get(row["line"], (0, 0))
                found[row["line"]] = (blocks + row["blocks"], size + row["bytes"])
        return found

    def test_every_way_to_lose_memory_is_found_and_no_other(self):
        self.every_way()

    def test_so_it_is_in_blocks_of_the_c_library(self):
        self.every_way("--track")

    def every_way(self, *options):
        for program in leaks.programs(BUILD):
            if program.path.suffix == ".py" or program.by:
                continue
            with self.subTest(program.name):
                scan, done = self.run_scan(program.command(BUILD), *options)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(scan["proof"])
                figures = leaks.truth(done.stdout)
                lost = self.sites(scan, program, "lost", "indirectly lost")
                expected = {}
                if program.scan in ("lost", "hidden"):  # a pointer that nobody can see is none
                    kinds = ("LEAK", "HELD") if program.scan == "hidden" else ("LEAK",)
                    for kind in kinds:
                        for line in program.lines(kind):
                            f = figures.get(line, {"live_blocks": 0})
                            if f["live_blocks"] and program.marks[line][1] != "reachable":
                                expected[line] = (f["live_blocks"], f["live_bytes"])
                self.assertEqual(lost, expected)

    def test_what_a_library_allocates_for_a_line_is_lost_too(self):
        for program in (p for p in leaks.programs(BUILD) if p.by and p.scan == "lost"):
            with self.subTest(program.name):
                scan, _ = self.run_scan(program.command(BUILD))
                self.assertEqual(scan["lost"]["blocks"] + scan["indirectly_lost"]["blocks"], program.leaked["blocks"])

    def test_what_hangs_on_the_lost_is_told_apart(self):
        program = self.program("indirect")
        scan, _ = self.run_scan(program.command(BUILD))
        direct = self.sites(scan, program, "lost")
        indirect = self.sites(scan, program, "indirectly lost")
        for line, (kind, detail) in program.marks.items():
            self.assertIn(line, indirect if detail == "indirect" else direct, kind)
            self.assertNotIn(line, direct if detail == "indirect" else indirect)

    def test_who_scans_may_be_forbidden_to_read_by_pid(self):
        """As Yama forbids it to all but the tracer, for whom a child looks: then by what the tracer has opened."""
        program = self.program("indirect")
        for options in (), ("--track",):
            free = self.run_scan(program.command(BUILD), *options)[0]
            scan, done = self.run_scan(program.command(BUILD), *options, preexec_fn=forbid_reading_by_pid)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(scan["proof"])
            self.assertEqual(self.sites(scan, program, "lost"), self.sites(free, program, "lost"))
            self.assertGreater(scan["lost"]["blocks"], 0)

    def test_memory_that_cannot_be_read_is_told(self):
        secret = self.compiled(text=SECRET)
        if subprocess.run([secret]).returncode == 77:
            self.skipTest("this kernel has no secret memory")
        for options in (), ("--track",):
            scan, done = self.run_scan([secret], *options, tells=True)
            self.assertEqual((scan["proof"], scan["unread"]), (False, 4096), done.stderr)
            self.assertIn("No proof: 4.1 kB of its memory could not be read", done.stderr)

    def test_exit_codes(self):
        lost = self.program("direct").command(BUILD)
        fine = self.program("config").command(BUILD)
        self.assertEqual(self.run_scan(lost, "--lost-code", "9")[1].returncode, 9)
        threads = self.program("thread_handover").command(BUILD)  # the C library keeps what their stacks need
        self.assertEqual(self.run_scan(fine, "--lost-code", "9")[1].returncode, 0)
        self.assertEqual(self.run_scan(threads, "--lost-code", "9")[1].returncode, 0)
        self.assertEqual(self.run_scan(["sh", "-c", "exit 5"], "--lost-code", "9")[1].returncode, 5)
        ended = self.run_scan(["sh", "-c", "kill -SEGV $$"])[1]
        self.assertEqual(ended.returncode, -signal.SIGSEGV)
        wrong = subprocess.run([MEMOIR, "run", "--lost-code", "9", "true"], capture_output=True, env=ENVIRONMENT)
        self.assertEqual(wrong.returncode, 2)

    def test_a_scan_that_cannot_begin_counts_as_lost(self):
        fine = self.program("config").command(BUILD)
        scan, done = self.run_scan(fine, "--lost-code", "9", preexec_fn=forbid_shared_memory)
        self.assertIsNone(scan)
        self.assertIn("could not be scanned: Cannot allocate memory", done.stderr)
        self.assertEqual(done.returncode, 9)

    def test_a_scan_whose_child_is_killed_counts_as_lost(self):
        kill_process = 0x80000000
        fine = self.program("config").command(BUILD)
        scan, done = self.run_scan(fine, "--lost-code", "9", preexec_fn=lambda: forbid_reading_by_pid(kill_process))
        self.assertIsNone(scan)
        self.assertRegex(done.stderr, "was killed, .* It ends all the same")
        self.assertEqual(done.returncode, 9)

    def test_where_nobody_may_trace_it_is_not_known_what_is_lost(self):
        fine = self.program("config").command(BUILD)
        scan, done = self.run_scan(fine, "--lost-code", "9", tells=True, preexec_fn=forbid_tracing)
        self.assertIsNone(scan)
        self.assertIn("was not scanned, so what is lost is not known: Operation not permitted", done.stderr)
        self.assertEqual(done.returncode, 9)
        self.assertEqual(self.run_scan(fine, preexec_fn=forbid_tracing)[1].returncode, 0)
        quiet = self.run_scan(fine, "--lost-code", "9", preexec_fn=forbid_tracing)[1]
        self.assertEqual((quiet.returncode, quiet.stderr), (9, ""))

    def not_known(self, command, *options):
        scan, done = self.run_scan(command, "--lost-code", "9", *options, tells=True)
        self.assertIsNone(scan)
        self.assertRegex(done.stderr, "keeps no book: it could not be tracked")
        self.assertEqual(done.returncode, 9)
        quiet = self.run_scan(command, "--lost-code", "9", *options)[1]
        self.assertEqual((quiet.returncode, quiet.stderr), (9, ""))

    def compiled(self, *flags, text="int main(void) { return 0; }\n"):
        source, program = self.dir / "program.c", self.dir / "program"
        source.write_text(text, encoding="utf-8")
        if subprocess.run(["gcc", *flags, "-o", program, source], capture_output=True, check=False).returncode != 0:
            self.skipTest(f"gcc {' '.join(flags)} does not work here")
        return program

    def test_without_a_book_it_is_not_known_what_is_lost(self):
        """Not even by that of the program that started it by exec."""
        self.not_known(["env", "MEMOIR_OFF=1", *self.program("config").command(BUILD)])

    def test_of_a_program_that_cannot_be_tracked_it_is_not_known_what_is_lost(self):
        self.not_known([self.compiled("-static")])

    def test_of_a_program_with_a_malloc_of_its_own_it_is_not_known_what_is_lost(self):
        """The loader gives that to everybody, and nobody calls ours."""
        program = self.compiled("-rdynamic", text=OWN_MALLOC)
        self.not_known([program])
        self.not_known([program], "--track")

    def test_of_a_hardened_heap_it_is_not_known_what_is_lost(self):
        self.not_known(["env", "MEMOIR_MALLOC=account=1,harden=2", *self.program("config").command(BUILD)])

    def test_large_blocks_are_lost_whatever_was_there_before_them(self):
        scan, done = self.run_scan([self.compiled(text=IN_TURNS)])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(scan["lost"], {"blocks": 3, "bytes": 3 * ((9 << 20) + (300 << 10))})

    def test_who_allocates_nothing_loses_nothing(self):
        for options in (), ("--track",):
            for command in [self.compiled()], ["sh", "-c", f"exec {self.compiled()}"], ["/bin/true"]:
                with self.subTest(command, options=options):
                    scan, done = self.run_scan(command, "--lost-code", "9", *options, tells=True)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual((scan["proof"], scan["lost"]["blocks"]), (True, 0))

    def test_signals_reach_a_program_that_is_traced(self):
        script = "import signal,sys\nsignal.signal(signal.SIGUSR1, lambda *a: sys.exit(7))\n"
        script += "print('ready', flush=True)\nwhile True: signal.pause()\n"
        run = subprocess.Popen(
            [MEMOIR, "run", "--scan", "--quiet", "--dir", self.dir, "--", sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            env=ENVIRONMENT,
        )
        self.addCleanup(run.stdout.close)
        self.addCleanup(run.kill)
        self.assertEqual(run.stdout.readline(), b"ready\n")
        run.send_signal(signal.SIGUSR1)
        self.assertEqual(run.wait(60), 7)

    def living(self, name):
        """A tracked program that takes a step each millisecond until its input closes."""
        program = self.program(name)
        process = subprocess.Popen(
            [MEMOIR, "run", "--quiet", "--dir", self.dir, "--", *program.command(BUILD), "1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdin.close)
        self.assertEqual(process.stdout.readline(), "running\n")
        return program, process

    def leaks(self, *arguments):
        return subprocess.run(
            [MEMOIR, "leaks", "--scan", "--dir", self.dir, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=120,
            env=ENVIRONMENT,
        )

    def scan_of(self, process):
        """Its book is made once there is enough to tell."""

        def scanned():
            done = self.leaks("--json", process.pid)
            return checked(json.loads(done.stdout)) if done.returncode == 0 else None

        return wait_for(scanned, "a scan")

    def test_a_living_program_loses_more_and_more(self):
        program, process = self.living("direct")
        first = self.scan_of(process)
        second = wait_for(
            lambda: (lambda s: s if s["lost"]["blocks"] > first["lost"]["blocks"] else None)(self.scan_of(process)),
            "more lost blocks",
        )
        line = program.lines("LEAK")[0]
        self.assertEqual(list(self.sites(second, program, "lost")), [line])
        row = second["sites"][0]
        self.assertTrue(row["samples"] and all(s["bytes"] == 48 for s in row["samples"]))
        self.assertEqual(self.leaks("--check", "--csv", process.pid).returncode, 1)
        text = self.leaks(process.pid).stdout
        self.assertRegex(text, r"lost +[\d.]+ kB +\d+ .*direct\.c:\d+ step")
        self.assertIn("was paused for", text)

    def test_a_living_program_goes_on_as_before(self):
        _, process = self.living("cache_bounded")
        scan = self.scan_of(process)
        for _ in range(5):
            self.assertEqual(self.leaks("--check", "--json", process.pid).returncode, 0)
        self.assertEqual(scan["lost"]["blocks"], 0)
        process.stdin.close()
        out = process.stdout.read()
        self.assertEqual(process.wait(60), 0)
        self.assertIn("TRUTH", out)

    def test_who_cannot_be_scanned_is_told_why(self):
        done = self.leaks(os.getpid())
        self.assertEqual(done.returncode, 3)
        self.assertIn("memoir run", done.stderr)
        self.assertEqual(self.leaks().returncode, 2)


if __name__ == "__main__":
    unittest.main()
