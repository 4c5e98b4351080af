"""What each line held when the heap was at its peak: memoir run, sites, flame, query."""

import json
import subprocess
import unittest

from cli_support import BUILD, ENVIRONMENT, memoir, wait_for
from sites_support import SitesTest

PROGRAM = BUILD / "test/integration/peak_malloc"
HELD = {"ask_large": 40 << 20, "ask_small": 20_000_000, "ask_theirs": 20_000_000}


class AtPeak(SitesTest):
    def run_it(self, *options):
        summary = self.files / "summary.json"
        program = subprocess.Popen([BUILD / "src/cli/memoir", "run", "--dir", self.dir, "--summary", "--json", summary, *options, PROGRAM],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT, text=True)
        self.addCleanup(self.end_client, program)
        self.assertEqual(program.stdout.readline(), "ready\n")
        return program, summary

    def end(self, program, summary):
        text = program.communicate(timeout=60)[1]
        with open(summary, encoding="utf-8") as file:
            return text, json.load(file)

    def expect(self, held, error):
        for function, bytes_ in HELD.items():
            self.assertAlmostEqual(held.get(function, 0), bytes_, delta=error, msg=function)
        self.assertLessEqual(held.get("ask_later", 0), error)

    def check(self, *options):
        text, told = self.end(*self.run_it(*options))
        heap = told["heap"]
        self.assertLess(heap["bytes"], heap["peak"] / 3)
        self.assertAlmostEqual(sum(s["at_peak"] for s in told["sites"]), heap["peak"], delta=heap["peak_error"])
        self.assertLess(heap["peak_error"], heap["peak"] / 20)
        self.expect({s["function"]: s["at_peak"] for s in told["sites"]}, heap["peak_error"])
        after = text[text.index("held at the peak:"):].splitlines()
        self.assertRegex(after[1], r"^memoir: +4[12]\.\d MB in +\d+ blocks  .*ask_large")
        self.assertIn("ask_later", text[:text.index("held at the peak:")])

    def test_with_our_allocator(self):
        self.check("--malloc")

    def test_in_front_of_the_programs_own(self):
        self.check("--track")

    def test_with_all_stacks(self):
        self.check("--track", "--stacks", "all")

    def test_of_a_process_that_runs(self):
        program, _ = self.run_it()
        pid = str(wait_for(self.ps, "a book of the program")[0]["pid"])
        now, then = self.document(pid), self.document(pid, "--at-peak")
        self.assertEqual((now["at_peak"], then["at_peak"]), (False, True))
        error = 5_000_000
        self.expect({s["function"]: s["bytes"] for s in then["sites"]}, error)
        self.assertEqual(sum(s["bytes"] for s in then["sites"]), then["bytes"])
        self.assertIn("ask_later", now["sites"][0]["site"])
        self.assertRegex(self.sites(pid, "--at-peak").stdout, r"at the peak in [\d,]+ blocks")
        # The same by stack, as a flame graph and as a table.
        stacks = self.document(pid, "--at-peak", "--by", "stack")
        self.assertEqual(stacks["bytes"], then["bytes"])
        flame = memoir("flame", pid, "--dir", self.dir, "--at-peak", "--text", check=0).stdout
        self.assertIn("ask_large", flame)
        self.assertIn("at the peak", flame)
        rows = json.loads(memoir("query", "sites", "--where", f"pid={pid}", "--show", "site,bytes,at_peak", "--sort", "-at_peak",
                                 "--dir", self.dir, "--json", check=0).stdout)["rows"]
        self.assertIn("ask_large", rows[0]["site"])
        self.assertEqual(sum(r["at_peak"] for r in rows), then["bytes"])
        program.communicate(timeout=60)


if __name__ == "__main__":
    unittest.main()
