"""The user's own line is the headline: of containers that are compiled into their users, behind wrappers, in every view."""

import json
import pathlib
import re
import subprocess
import unittest

from cli_support import BUILD, ENVIRONMENT, CommandTest, memoir, wait_for

SOURCE = pathlib.Path(__file__).parent.parent / "leaks/cpp_lines.cpp"
MARKS = {match[1]: number for number, line in enumerate(SOURCE.read_text().splitlines(), 1)
         if (match := re.search(r"// LINE:(\w+)", line))}
MADE_CODE = BUILD / "test/leaks/leak_made_code"
PROGRAMS = [BUILD / "test/leaks/leak_cpp_lines", BUILD / "test/leaks/leak_cpp_lines_plain"]


def line(mark, function):
    return f"cpp_lines.cpp:{MARKS[mark]} {function}"


@unittest.skipUnless(PROGRAMS[0].exists(), "there is no C++ compiler")
class Lines(CommandTest):
    def run_tracked(self, program, *options, arguments=()):
        child = subprocess.Popen(
            [BUILD / "src/cli/memoir", "run", "--dir", self.dir, "--quiet", "--sample", "64K", *options, "--",
             program, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT)
        self.addCleanup(self.end_client, child)
        self.assertEqual(child.stdout.readline(), b"ready\n")
        rows = wait_for(lambda: self.ps(), "a book of the program")
        return child, str(rows[0]["pid"])

    def document(self, *words):
        return json.loads(memoir(*words, "--dir", self.dir, "--json", check=0).stdout)

    @staticmethod
    def held(rows, site):
        return sum(row["bytes"] for row in rows if row["site"] == site)

    def check_sites(self, rows):
        exact = {
            line("map", "session_add"): 2000 * 3001,
            line("vector", "table_add"): 2000 * 4000,
            line("shared", "shared_add"): 2000 * 2001,
            line("xmalloc", "line_read"): 2000 * 5000,
            line("node", "node_new"): 12000 * 4008,
            line("grab", "grab_most"): 2000 * 20000,
        }
        for site, expected in exact.items():
            # Lines behind something that others call as well are estimates from a thousand samples and more.
            self.assertTrue(0.6 * expected < self.held(rows, site) < 1.6 * expected,
                            (site, expected, self.held(rows, site)))
        via = {row["site"]: row["via"] for row in reversed(rows)}
        self.assertEqual(via[line("xmalloc", "line_read")], "xmalloc")
        self.assertEqual(via[line("grab", "grab_most")], "grab")
        self.assertIsNone(via[line("node", "node_new")])
        self.assertIn("std::vector<…>", via[line("vector", "table_add")])
        strangers = sum(row["bytes"] for row in rows if "cpp_lines.cpp" not in row["site"])
        self.assertLess(strangers, 0.02 * sum(row["bytes"] for row in rows))

    def test_sites_name_the_lines_of_the_program(self):
        """As compilers optimise it, and as they do not, where all of the library is there as functions."""
        for program in PROGRAMS:
            child, pid = self.run_tracked(program)
            document = self.document("sites", pid)
            self.check_sites(document["sites"])
            self.assertEqual(sum(row["bytes"] for row in document["sites"]), document["bytes"])
            child.stdin.close()
            child.wait(timeout=30)

    def test_every_view_has_the_same_name(self):
        _, pid = self.run_tracked(PROGRAMS[0])
        sites = {row["site"] for row in self.document("sites", pid)["sites"]}
        self.assertIn(line("xmalloc", "line_read"), sites)
        text = memoir("sites", "--dir", self.dir, pid, check=0).stdout
        self.assertRegex(text, re.escape(line("xmalloc", "line_read")) + "  via xmalloc")
        explained = self.document("explain", pid)["sites"]
        of = {row["site"]: row["via"] for row in explained}
        self.assertEqual(of[line("xmalloc", "line_read")], "xmalloc")
        self.assertIn(line("node", "node_new"), of)
        for table in ("sites", "buffers"):
            rows = json.loads(memoir("query", table, "--dir", self.dir, "--where", f"pid={pid}", "--by", "site", "--json", check=0).stdout)["rows"]
            self.assertIn(line("xmalloc", "line_read"), {row["site"] for row in rows}, table)
        lost = json.loads(memoir("leaks", "--dir", self.dir, "--scan", "--all", "--json", pid, check=0).stdout)
        names = {row["site"]: row["via"] for row in lost["sites"]}
        self.assertEqual(names[line("xmalloc", "line_read")], "xmalloc")
        self.assertIn(line("vector", "table_add"), names)

    def test_the_summary_of_a_run_names_them(self):
        report = self.dir / "report.json"
        done = subprocess.run(
            [BUILD / "src/cli/memoir", "run", "--dir", self.dir, "--summary", "--json", report, "--", PROGRAMS[0]],
            input=b"", stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=60)
        document = json.loads(report.read_text())
        sites = {row["site"] for row in document["sites"]}
        self.assertIn(line("node", "node_new"), sites, done.stderr)
        self.assertIn(line("xmalloc", "line_read"), sites)

    def made_rows(self, pid):
        rows = self.document("sites", pid)["sites"]
        return [row for row in rows if row["blocks"] >= 100 and row["bytes"] > 100_000]

    def test_code_made_at_run_time_is_one_place(self):
        """Made anew in 200 places, it is one site, of all its blocks; a growing one stays one that grows."""
        for options in ([], ["--stacks", "all"]):
            child, pid = self.run_tracked(MADE_CODE, *options)
            (row,) = self.made_rows(pid)
            self.assertEqual((row["blocks"], row["bytes"]), (20000, 20000 * 2000))
            self.assertTrue("[JIT]" in (row["site"], row["via"]), row)
            child.stdin.close()
            child.wait(timeout=30)

    def test_code_made_at_run_time_has_the_name_that_perf_knows(self):
        child, pid = self.run_tracked(MADE_CODE, arguments=["map"])
        (row,) = self.made_rows(pid)
        self.assertEqual((row["blocks"], row["site"]), (20000, "made_grow"))
        self.assertIn("made_grow", memoir("flame", "--dir", self.dir, "--export", "folded", pid, check=0).stdout)
        child.stdin.close()
        child.wait(timeout=30)


if __name__ == "__main__":
    unittest.main()
