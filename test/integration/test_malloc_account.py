"""Accounting inside libmemoir-malloc: what it counts is what the program asked for, as libmemoir-track counts it."""

import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import test_track
import test_track_programs
import test_track_truth
from cli_support import ENVIRONMENT, MEMOIR, wait_for
from daemon_fixture import MEMOIRD, Process
from document import checked
from memoir.client import Client
from track_support import BUILD, PROGRAMS, SOURCE_MALLOC

MALLOC = BUILD / "src/malloc/libmemoir-malloc.so"
SPACE_CHAIN = 6


class Accounted:
    library, source = MALLOC, SOURCE_MALLOC
    variables = {"MEMOIR_MALLOC": "account=1"}


class Calls(Accounted, test_track.TrackTest):
    over = test_track.Calls.over

    def test_every_call_counts(self):
        self.over("track_calls", "glibc")

    def test_every_operator_counts(self):
        self.over("track_cxx", "glibc")

    def test_many_callers_and_blocks_that_wander_count(self):
        self.assertGreaterEqual(self.over("track_wide", "glibc"), 64 << 20)

    def test_child_forked_while_a_book_is_made_keeps_nothing_of_it(self):
        process = self.start("track_crossing")
        self.assertEqual(process.wait(), 0, process.err.lines)


class Threads(Accounted, test_track.Threads):
    pass


class Life(Accounted, test_track.Life):
    """But for blocks of another allocator's, which there are not, and for double frees, which hardening is for."""
    test_blocks_of_others_pass_unharmed = test_blocks_of_others_that_look_like_ours_keep_their_content = None
    test_double_free_is_the_allocator_s_to_judge = None


class Forks(Accounted, test_track.TrackTest):
    test_handler_that_forks_inside_the_allocator = test_track.Signals.test_handler_that_forks_inside_the_allocator


class Stacks(Accounted, test_track.Stacks):
    pass


class Programs(test_track_programs.ProgramTest):
    """The same output, and the same count as somebody's in front."""
    library, flag = MALLOC, "--malloc"
    test_bash = test_track_programs.EveryDay.test_bash
    test_perl = test_track_programs.EveryDay.test_perl
    test_sqlite = test_track_programs.EveryDay.test_sqlite
    test_the_compiler = test_track_programs.EveryDay.test_the_compiler


class Lines(test_track_truth.TruthTest):
    """Of programs that tell the truth about every line."""
    flag = "--malloc"
    compare = test_track_truth.Lines.compare

    def test_every_line_counts_as_the_program_says(self):
        self.compare("--stacks", "off", part=2)


class Chains(Accounted, test_track.TrackTest):
    """Blocks of user chains: an account of their own says what the program itself counted."""
    NAMES = ("alloc_bytes", "alloc_blocks", "freed_bytes", "freed_blocks")

    def account(self, pid):
        book = self.book(pid)
        account = next(a for a in book.accounts() if a.space == SPACE_CHAIN)
        return book, account

    def compare(self, process, step):
        told = process.told(step)
        book, account = self.account(told["pid"])
        totals = book.totals()[account.record]
        wanted = {name: told[name] for name in self.NAMES}
        self.assertEqual({name: getattr(totals, name) for name in self.NAMES}, wanted, step)
        sites = [s for s in book.sites() if s.account == account.record]
        self.assertEqual({name: sum(getattr(s, name) for s in sites) for name in self.NAMES}, wanted, step)
        self.assertTrue(all(s.frames and s.frames[0].module and not s.frames[0].module.path for s in sites), step)
        blocks = [b for b in book.blocks()[0] if b.account == account.record]
        self.assertEqual((len(blocks), sum(b.bytes for b in blocks)),
                         (told["alloc_blocks"] - told["freed_blocks"], told["alloc_bytes"] - told["freed_bytes"]), step)
        return book

    def test_every_call_on_every_kind_counts(self):
        process = self.start("track_chains")
        for step in ("alone", "others", "ended", "together", "default", "shared", "parent", "child", "child's end",
                     "parent's end"):
            book = self.compare(process, step)
            self.assertEqual(self.losses(book), {}, step)
            if step == "together":
                self.look(process.pid)
            process.go_on()
        self.assertEqual(process.wait(), 0, process.err.lines)

    def look(self, pid):
        """From outside."""
        def ask(*words, whom=(str(pid),)):
            return subprocess.run([MEMOIR, *words, "--dir", self.dir, *whom], capture_output=True, text=True,
                                  env=ENVIRONMENT, timeout=60, check=True).stdout
        totals = (lambda book, account: book.totals()[account.record])(*self.account(pid))
        document = json.loads(ask("heap", "--json"))
        self.assertEqual((document["chain_blocks"], document["chain"]),
                         (totals.live_blocks, totals.live_bytes))
        self.assertEqual(json.loads(ask("heap", "--json", whom=("track_chains",)))["pid"], pid)
        self.assertRegex(ask("heap"), rf"(?m)^track_chains \(PID {pid}\)$")
        self.assertRegex(ask("heap"), rf"(?m)^In user chains +[\d.]+ [kM]B +{totals.live_blocks:,} blocks$")
        (row,) = json.loads(ask("query", "processes", "--json", "--show", "pid,host,heap,chain", whom=()))["rows"]
        self.assertEqual((row["host"], row["chain"]), (row["heap"], totals.live_bytes))  # their buffers count, not both
        (process,) = json.loads(ask("ps", "--json", whom=()))["rows"]
        self.assertIsNone(process["other"])
        self.assertRegex(ask("sites"), r"(?m) chain +(chains.c:\d+ )?turn$")
        self.assertRegex(ask("buffers"), r"(?m) host +chain .* (chains.c:\d+ )?turn$")

    def test_memoird_tells_them_apart_from_the_memory_that_they_lie_in(self):
        """While it lives, and when it is gone: their blocks count, their bytes are the heap's or the program's own."""
        state, native = self.dir / "state", self.dir / "native.sock"
        daemon = Process([MEMOIRD, "--dir", self.dir, "--state", state, "--socket", native, "--tt-socket", "none",
                          "--refresh", "20ms"])
        self.addCleanup(daemon.close)
        daemon.err.wait("ready: watching")
        process = self.start("track_chains")
        told = process.told("alone")
        blocks, size = (told[f"alloc_{what}"] - told[f"freed_{what}"] for what in ("blocks", "bytes"))
        self.assertGreater(blocks, 100)
        with Client(str(native)) as client:
            (live,) = wait_for(lambda: [row for row in client.query(where=f"pid={process.pid}", show="heap,host,chain")
                                        if row["chain"] == size and row["heap"]], "memoird knows what is in chains", 60)
        self.assertEqual(live["host"], live["heap"])
        process.kill()
        line = daemon.err.wait(rf"PID {process.pid} .* gone: ")
        self.assertRegex(line, rf"\b{blocks} blocks in chains \(")
        record = json.loads((state / "retired.jsonl").read_text(encoding="utf-8").splitlines()[-1])
        accounts = {account["space"]: account for account in record["accounts"]}
        self.assertEqual([accounts["chain"][name] for name in ("live_blocks", "live_bytes")], [blocks, size])
        self.assertTrue(any(record["accounts"][block["account"]]["space"] == "chain" for block in record["blocks"]))
        done = subprocess.run([MEMOIR, "ps", "--exited", "--json", "--state", state], capture_output=True, text=True,
                              env=ENVIRONMENT, timeout=60, check=True)
        (row,) = json.loads(done.stdout)["rows"]
        self.assertEqual((row["heap"], row["pinned"]), (accounts["heap"]["live_bytes"], None))
        self.assertEqual(row["blocks"], accounts["heap"]["live_blocks"] + blocks)
        with Client(str(native)) as client:
            self.assertEqual(list(client.query(where=f"pid={process.pid}", show="heap")), [])

    def test_what_is_allocated_while_it_is_suspended_is_not_counted(self):
        process = self.start("track_chains", "suspended")
        for step, flags, losses in (("seen", 2, set()), ("unseen", 0, {"suspended"}), ("seen again", 0, {"suspended"})):
            book = self.compare(process, step)
            self.assertEqual(set(self.losses(book)), losses, step)
            self.set_flags(process.pid, flags)
            process.go_on()
        self.assertEqual(process.wait(), 0, process.err.lines)

    def test_a_summary_tells_them_apart_from_the_heap(self):
        out = self.dir / "summary.json"
        done = subprocess.run([MEMOIR, "run", "--malloc", "--summary", "--json", out, "--dir", self.dir,
                               PROGRAMS / "track_chains", "suspended"], input="\n\n\n", capture_output=True, text=True,
                              env=ENVIRONMENT, timeout=60, check=True)
        chain = done.stderr.split("memoir: in user chains: ")
        self.assertEqual(len(chain), 2, done.stderr)
        self.assertNotIn("suspended", chain[0])
        self.assertRegex(chain[1], r"^peak 300 B( \(or up to [\d.]+ k?B more\))?; 3 allocations, 600 B in all; 300 B in 1 block held at the end\n"
                                   r"memoir: +300 B in +1 block +(chains.c:\d+ )?suspended\n$")
        document = json.loads(out.read_text(encoding="utf-8"))
        self.assertEqual([document["chain"][name] for name in ("bytes", "blocks", "allocated", "allocated_blocks", "freed", "freed_blocks")],
                         [300, 1, 600, 3, 300, 2])
        held = {space: sum(s["bytes"] for s in document["sites"] if s["space"] == space)
                for space in ("heap", "chain")}
        self.assertEqual(held, {space: document[space]["bytes"] for space in held})

    def test_nothing_counts_without_accounting(self):
        process = self.start("track_chains", settings={"MEMOIR_MALLOC": "account=0"})
        process.told("alone")
        self.assertEqual(self.books(), [])


class Heap(Accounted, test_track.TrackTest):
    """memoir heap: what the allocator itself knows, from outside."""

    def heap(self, pid):
        done = subprocess.run([MEMOIR, "heap", "--json", "--dir", self.dir, str(pid)], capture_output=True, text=True,
                              env=ENVIRONMENT, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        document = checked(json.loads(done.stdout))
        self.assertEqual((document["schema"], document["broken"], document["whole"]), ("memoir.heap/2", 0, True))
        return document

    def blocks(self, document):
        return sum(c["used_blocks"] for c in document["classes"]) + document["large"]["blocks"] + document["huge"]["blocks"]

    def test_blocks_in_use_are_those_that_were_counted(self):
        process = self.start("track_threads")
        for step in ("exchange", "ends", "crowd"):
            process.told(step)
            document = self.heap(process.pid)
            totals = test_track.TrackTest.heap(self.book(process.pid))[1]
            self.assertTrue(document["accounting"])
            self.assertEqual((document["asked_blocks"], document["asked"]), (totals.live_blocks, totals.live_bytes))
            # Besides there are the few that the loader asked for before there was an environment to look at.
            self.assertLessEqual(totals.live_blocks, self.blocks(document))
            self.assertLess(self.blocks(document), totals.live_blocks + 64)
            self.assertGreaterEqual(document["used"], document["asked"])
            self.assertIn(process.pid, [c["tid"] for c in document["chains"]])
            self.assertGreater(document["metadata"], 0)
            self.assertGreater(document["kernel"]["mmap"], 0)
            process.go_on()
        self.assertEqual(process.wait(), 0, process.err.lines)

    def test_without_accounting_it_knows_all_but_what_was_asked_for(self):
        process = self.start("track_threads", settings={"MEMOIR_MALLOC": "account=0"})
        process.told("exchange")
        document = self.heap(process.pid)
        self.assertEqual((document["accounting"], document["asked"]), (False, None))
        self.assertGreater(self.blocks(document), 0)
        text = subprocess.run([MEMOIR, "heap", str(process.pid)], capture_output=True, text=True, env=ENVIRONMENT,
                              timeout=60, check=True).stdout
        self.assertRegex(text, r"(?m)^In use +[\d.]+ [kM]?B ")
        self.assertRegex(text, r"(?m)^ +\d+ +\d+ +\d+ .* MB|kB")
        self.assertIn("Free in slabs", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)

    def test_it_is_called_as_in_other_views(self):
        """The kernel cuts names after 15 bytes; of one without a book there is no other."""
        name = "a_name_of_more_than_15_bytes"
        folder = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-"))
        self.addCleanup(shutil.rmtree, folder)
        shutil.copy(PROGRAMS / "track_threads", folder / name)
        for account, shown in ((1, name), (0, name[:15])):
            process = self.start(folder / name, settings={"MEMOIR_MALLOC": f"account={account}"})
            process.told("exchange")
            for word in (str(process.pid), name)[:1 + account]:
                text = subprocess.run([MEMOIR, "heap", "--dir", self.dir, word], capture_output=True, text=True, env=ENVIRONMENT,
                                      timeout=60, check=True).stdout
                self.assertEqual(text.splitlines()[0], f"{shown} (PID {process.pid})")
            process.close()

    def test_who_has_another_allocator_is_told_so(self):
        process = self.start("track_threads", preload=[])
        process.told("exchange")
        for pid, words in ((str(process.pid), "another allocator"), ("999999999", "no process"), ("4me", "not a valid PID"),
                           ("no-such-program", "memoir run no-such-program")):
            done = subprocess.run([MEMOIR, "heap", pid], capture_output=True, text=True, env=ENVIRONMENT, timeout=60,
                                  check=False)
            self.assertIn(words, done.stderr)
            self.assertIn(done.returncode, (2, 3))


if __name__ == "__main__":
    unittest.main()
