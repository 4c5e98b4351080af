"""memoir sites and flame of a program that memoir run tracks: exact by line, estimated by stack, sums exact."""

import json
import pathlib
import subprocess

from cli_support import BUILD, ENVIRONMENT, memoir, wait_for
from sites_support import FIGURES, SitesTest

PROGRAM = BUILD / "test/integration/sites_malloc"


class Tracked(SitesTest):
    def run_tracked(self, *options):
        program = subprocess.Popen(
            [BUILD / "src/cli/memoir", "run", "--dir", self.dir, "--quiet", *options, "--", PROGRAM],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT,
        )
        self.addCleanup(self.end_client, program)
        self.assertEqual(program.stdout.readline(), b"ready\n")
        rows = wait_for(lambda: self.ps(), "a book of the program")
        return program, str(rows[0]["pid"])

    @staticmethod
    def of_ask(document):
        return [r for r in document["sites"] if r["function"] == "ask"]

    def test_exact_by_line_and_estimated_by_stack(self):
        _, pid = self.run_tracked("--sample", "16K")
        lines, stacks = self.document(pid), self.document(pid, "--by", "stack")
        ask = self.of_ask(lines)
        self.assertEqual([tuple(r[f] for f in FIGURES) for r in ask], [(3000000, 3000, 4000000, 4000)])
        self.assertFalse(ask[0]["estimated"])
        source = (pathlib.Path(__file__).parent / "sites_malloc.c").read_text().splitlines()
        self.assertIn("malloc(BYTES)", source[ask[0]["line"] - 1])
        # The stacks of the line are estimates, whose sum is the line's figure in every measure.
        found = self.of_ask(stacks)
        self.assertTrue(all(r["estimated"] for r in found))
        for field in FIGURES:
            self.assertEqual(sum(r[field] for r in found), ask[0][field])
            self.assertEqual(stacks[field], lines[field])
            self.assertEqual(sum(r[field] for r in stacks["sites"]), lines[field])
        shares = {r["frames"][1]["function"]: r["allocated"] / 4000000 for r in found}
        self.assertEqual(set(shares), {"path_left", "path_right"})
        self.assertTrue(0.55 < shares["path_left"] < 0.92, shares)  # three quarters; 250 samples
        text = self.sites(pid, "--by", "stack").stdout
        self.assertRegex(text, r"(?m)^ *~.*sites_malloc\.c:\d+ ask ← sites_malloc\.c:\d+ path_left ")
        self.assertIn("Rows with ~ are estimates", text)
        (exact,) = [line for line in self.sites(pid).stdout.splitlines() if line.endswith(" ask")]
        self.assertNotIn("~", exact)

    def test_all_stacks_are_exact(self):
        _, pid = self.run_tracked("--stacks", "all")
        stacks = self.of_ask(self.document(pid, "--by", "stack"))
        figures = {r["frames"][1]["function"]: tuple(r[f] for f in FIGURES) for r in stacks}
        self.assertEqual(figures["path_left"], (2250000, 2250, 3000000, 3000))
        self.assertEqual(figures["path_right"], (750000, 750, 1000000, 1000))
        self.assertEqual({r["estimated"] for r in stacks}, {False})

    def question(self, *words):
        document = json.loads(memoir(*words, "--dir", self.dir, "--json", check=0).stdout)
        del document["time"]
        return document

    def test_sites_and_flame_are_questions(self):
        """What they print with the words of a question is what memoir query prints, and stacks add up to sites."""
        _, pid = self.run_tracked("--sample", "16K")
        ways = ["--where", "bytes>1000", "--show", "site,bytes,blocks,allocated", "--sort", "-bytes"]
        self.assertEqual(self.question("sites", pid, *ways),
                         self.question("query", "lines", "--where", f"pid={pid} and (bytes>1000)", *ways[2:]))
        groups = ["--by", "space", "--show", "bytes,blocks,allocated,freed"]
        sites = self.question("sites", pid, *groups)
        stacks = self.question("flame", pid, *groups)
        self.assertEqual(stacks, self.question("query", "stacks", "--where", f"pid={pid}", *groups))
        for name in ("space", "bytes", "blocks", "allocated", "freed"):
            self.assertEqual([r[name] for r in stacks["rows"]], [r[name] for r in sites["rows"]])
        rows = self.question("flame", pid, "--where", "site~*ask*")["rows"]
        self.assertTrue(all(r["estimated"] and r["bytes"] <= r["allocated"] and r["blocks"] <= r["allocated_blocks"]
                            for r in rows), rows)
        self.assertEqual({r["frames"][-2].split()[-1] for r in rows}, {"path_left", "path_right"})
        self.assertIn("_start", rows[0]["frames"][0])
        memoir("flame", "--dir", self.dir, pid, "--where", "bytes>1TB", check=3)

    def test_who_keeps_no_single_blocks_says_so(self):
        """With all stacks there is no sample of blocks: that is not the same as no blocks."""
        _, pid = self.run_tracked("--stacks", "all")
        done = memoir("buffers", "--dir", self.dir, pid, check=3)
        self.assertIn("counts its heap by call site, and lists no single block", done.stderr)
        self.assertIn(f"memoir sites {pid}", done.stderr)

    def test_what_grew_is_told_exactly(self):
        program, pid = self.run_tracked()
        before = self.files / "before"
        self.sites(pid, "--save", before)
        program.stdin.write(b"\n")
        program.stdin.flush()
        self.assertEqual(program.stdout.readline(), b"more\n")
        rows = self.document("--diff", before, pid)["sites"]
        self.assertEqual((rows[0]["function"], rows[0]["bytes_change"], rows[0]["blocks_change"]), ("ask", 500000, 500))

    def test_the_picture_adds_up_to_the_lines(self):
        _, pid = self.run_tracked("--sample", "16K")
        total = self.document(pid)["bytes"]
        folded = memoir("flame", "--dir", self.dir, pid, "--export", "folded", check=0).stdout
        self.assertEqual(sum(int(line.rpartition(" ")[2]) for line in folded.splitlines()), total)
        self.assertIn(";path_left;ask ", folded)
        scope = json.loads(memoir("flame", "--dir", self.dir, pid, "--export", "speedscope", check=0).stdout)
        self.assertEqual(scope["profiles"][0]["endValue"], total)
        self.assertIn("marked ~", memoir("flame", "--dir", self.dir, pid, check=0).stdout)
