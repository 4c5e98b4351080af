"""memoir buffers: live blocks, filtered, sorted, cut, and printed in every format."""

import csv
import io
import json

from cli_support import CB, DRAM, HEAP, L1, CommandTest, memoir, wait_for


class Buffers(CommandTest):
    def buffers(self, *arguments, check=0, environment=None):
        return memoir("buffers", "--dir", self.dir, *arguments, check=check, environment=environment)

    def document(self, *arguments, check=0):
        return json.loads(self.buffers("--json", *arguments, check=check).stdout)

    def ids(self, *arguments):
        return [int(b["id"], 16) for b in self.document(*arguments)["rows"]]

    def setUp(self):
        super().setUp()
        self.client = self.start_scripted(
            "device 0 Card-A 1000000 0",
            "device 1 Card-B 0 0",
            "tag weights",
            f"alloc 0 {DRAM} 10 5000",
            f"alloc 1 {DRAM} 11 7000",
            "untag",
            f"alloc 0 {L1} 12 300",
            f"alloc 0 {CB} 13 9000",
            f"alloc -1 {HEAP} 14 64",
            f"alloc 0 {DRAM} 15 1",
            f"free 0 {DRAM} 15",
        )

    def test_every_live_block_is_there_with_its_words(self):
        document = self.document()
        self.assertEqual((document["matched"], sum(b["bytes"] for b in document["rows"])), (5, 21364))
        self.assertNotIn("incomplete", document)
        block = next(b for b in document["rows"] if b["id"] == "0xa")
        self.assertEqual(
            (block["pid"], block["program"], block["space"], block["bytes"], block["tag"], block["moves"]),
            (self.client.pid, "scripted_client", "dram", 5000, "weights", 0),
        )
        self.assertEqual((block["ordinal"], block["device_name"], block["device_uid"]), (0, "Card-A", "Card-A"))
        self.assertLess(block["age"], 60)
        self.assertRegex(block["site"], r"^scripted_client\.c:\d+ obey")

    def test_filters(self):
        other = self.start_scripted("device 0 Card-A 0 0", f"alloc 0 {DRAM} 99 1")
        cases = {
            ("--device", "1"): [11],
            ("--device", "card-a", "--pid", str(self.client.pid)): [13, 10, 12],
            ("--device", "host"): [14],
            ("--space", "cb"): [13],
            ("--space", "L1"): [12],
            ("--tag", "weights"): [11, 10],
            ("--min", "7K"): [13],
            ("--min", "7kB"): [13, 11],
            ("--pid", str(other.pid)): [99],
            (str(other.pid),): [99],
        }
        for arguments, ids in cases.items():
            with self.subTest(arguments):
                self.assertEqual(self.ids(*arguments), ids)

    def test_orders(self):
        self.assertEqual(self.ids(), [13, 11, 10, 12, 14])
        self.assertEqual(self.ids("--sort", "+bytes"), [14, 12, 10, 11, 13])
        self.assertEqual(self.ids("--sort", "+id"), [10, 11, 12, 13, 14])
        self.assertEqual(self.ids("--sort", "tag,-bytes")[:2], [11, 10])  # what has none comes last

    def test_old_blocks(self):
        def old_enough():
            return self.document("--sort", "age")["rows"][0]["age"] > 1.2

        wait_for(old_enough, "a second")
        self.tell(self.client, f"alloc 0 {DRAM} 77 100000")
        self.assertNotIn(77, self.ids("--older", "1"))
        self.assertEqual(len(self.ids("--older", "1")), 5)
        self.assertEqual(self.ids("--sort", "age")[-1], 77)

    def test_the_limit_keeps_the_right_ones(self):
        self.tell(self.client, f"fill 0 {DRAM} 3000 8000")
        self.tell(self.client, f"alloc 0 {DRAM} 500 8001")
        for key in ("bytes", "+bytes", "id", "-id", "age,id", "tag,id"):
            self.assertEqual(self.ids("--sort", key, "--limit", "7"), self.ids("--sort", key)[:7], key)
        document = self.document("--limit", "2")
        self.assertEqual((document["matched"], len(document["rows"])), (3006, 2))
        text = self.buffers().stdout
        self.assertEqual(len(text.splitlines()), 1 + 40 + 3)
        self.assertIn("3,006 blocks, 24.0 MB; the oldest", text)
        self.assertIn("Shown: 40.", text)

    def test_the_screen(self):
        text = self.buffers("--no-sites", environment={"COLUMNS": "80"}).stdout
        self.assertLessEqual(max(map(len, text.splitlines())), 80)
        lines = text.splitlines()
        self.assertRegex(lines[0], r"^ *PID  PROGRAM +DEVICE +SPACE +SIZE +AGE +TAG +.*SITE$")
        self.assertRegex(
            lines[2], rf"^ *{self.client.pid}  scripted_cl.* 1 Card-B +dram +7\.0 kB +\d+s  weights +0xb  "
        )
        self.assertRegex(lines[-1], r"^5 blocks, 21\.4 kB, in 1 process; the oldest is .* old$")

    def test_a_block_that_moved_says_so(self):
        self.start_client()  # of test_cli: transfers into its block 1009
        moved = [b for b in self.document()["rows"] if b["moves"]]
        self.assertEqual({b["id"] for b in moved}, {"0x3f1", "0x1"})
        self.assertIn("MOVES", self.buffers(environment={"COLUMNS": "200"}).stdout)

    def test_what_the_dead_held_is_shown_when_asked_for(self):
        self.client.kill()
        self.client.wait()
        self.assertEqual(self.document()["rows"], [])
        self.assertEqual(len(self.ids("--pid", str(self.client.pid))), 5)

    def test_csv(self):
        rows = list(csv.DictReader(io.StringIO(self.buffers("--csv").stdout, newline="")))
        self.assertEqual([int(r["id"], 16) for r in rows], [13, 11, 10, 12, 14])
        self.assertEqual((rows[0]["space"], rows[0]["bytes"], rows[0]["ordinal"], rows[4]["ordinal"]), ("cb", "9000", "0", ""))
        self.assertEqual(len(self.buffers("--csv", "--no-header").stdout.splitlines()), 5)

    def test_nothing_like_that_is_3(self):
        for arguments in (["--pid", "1"], ["--tag", "no such"], ["--device", "9"], ["--space", "trace"]):
            with self.subTest(arguments):
                done = self.buffers(*arguments, check=3)
                self.assertEqual(done.stdout, "")
                self.assertTrue(done.stderr)
        self.assertIn("no process reports device 9; there are: 0 Card-A, 1 ", self.buffers("--device", "9", check=3).stderr)
        self.assertEqual(self.document("--tag", "no such", check=3)["rows"], [])

    def test_bad_command_lines(self):
        for arguments in (
            ["--json", "--csv"],
            ["client"],
            ["12x"],
            ["--pid", "1", "2"],
            ["--sort", "beauty"],
            ["--limit", "-1"],
            ["--limit", "many"],
            ["--min", "much"],
            ["--space", "foo"],
        ):
            self.assertEqual(self.buffers(*arguments, check=2).stdout, "")
        self.assertIn("no kind of memory 'drma', did you mean 'dram'?", self.buffers("--space", "drma", check=2).stderr)

    def test_it_is_a_view_of_the_query_core(self):
        rows = self.document("--by", "device,space", "--show", "count,bytes", "--where", "bytes>100", "--sort", "-bytes")["rows"]
        self.assertEqual([(r["device"], r["space"], r["count"], r["bytes"]) for r in rows],
                         [("0 Card-A", "cb", 1, 9000), ("1 Card-B", "dram", 1, 7000), ("0 Card-A", "dram", 1, 5000),
                          ("0 Card-A", "l1", 1, 300)])
        done = self.buffers("--where", "bytess>1", check=2)
        self.assertIn("did you mean 'bytes'?", done.stderr)
        self.assertIn("  where: bytess>1\n         ^^^^^^\n", done.stderr)

    def test_many_blocks(self):
        self.tell(self.client, f"fill 1 {CB} 200000 16")
        document = self.document("--no-sites")
        self.assertEqual((document["matched"], len(document["rows"])), (200005, 200005))
        self.assertEqual(len({(b["id"], b["space"], b["device"]) for b in document["rows"]}), 200005)


class NoBuffers(CommandTest):
    def test_nothing_at_all_is_no_error(self):
        done = memoir("buffers", "--dir", self.dir, check=0)
        self.assertIn(f"memoir demo --dir {self.dir}", done.stderr)


