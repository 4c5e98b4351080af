"""libmemoir-track: what it counts is what the program asked for, over every allocator and from every thread."""

import resource
import shutil
import signal
import subprocess
import unittest

from track_support import ALLOCATORS, PROGRAMS, TrackTest, library

UNKNOWN_FREE, SUSPENDED = "unknown_free", "suspended"
OF_JUMPS = {"torn", "stuck_lock", "counters_full", "sites_full", "blocks_full"}  # a lock may be lost for a while
COMPAT_FORK_CHILD = 2


class Calls(TrackTest):
    def over(self, program, allocator, settings=None):
        preload = [self.library]
        if ALLOCATORS[allocator]:
            path = library(ALLOCATORS[allocator])
            if not path:
                self.skipTest(f"{ALLOCATORS[allocator]} is not installed")
            preload.append(path)
        process = self.start(program, allocator, preload=preload, settings=settings)
        told = process.told("end")
        book = self.book(process.pid)
        self.assert_same(book, told)
        self.assertEqual(self.losses(book), {})
        peak = self.heap(book)[1].peak_bytes
        process.go_on()
        self.assertEqual(process.wait(), 0, process.err.lines)
        self.assertEqual(self.books(), [])  # a clean end leaves nothing
        return peak

    def test_every_call_counts_over_glibc(self):
        self.over("track_calls", "glibc")

    def test_every_call_counts_where_blocks_have_mappings_of_their_own(self):
        self.over("track_calls", "glibc", {"MALLOC_MMAP_THRESHOLD_": "1024"})

    def test_every_call_counts_over_jemalloc(self):
        self.over("track_calls", "jemalloc")

    def test_every_call_counts_over_tcmalloc(self):
        self.over("track_calls", "tcmalloc")

    def test_every_call_counts_over_tcmalloc_minimal(self):
        self.over("track_calls", "tcmalloc_minimal")

    def test_every_call_counts_over_mimalloc(self):
        self.over("track_calls", "mimalloc")

    def test_every_operator_counts_over_glibc(self):
        self.over("track_cxx", "glibc")

    def test_every_operator_counts_over_jemalloc(self):
        self.over("track_cxx", "jemalloc")

    def test_every_operator_counts_over_tcmalloc(self):
        self.over("track_cxx", "tcmalloc")

    def test_every_operator_counts_over_mimalloc(self):
        self.over("track_cxx", "mimalloc")

    def test_many_callers_and_blocks_that_wander_count_over_every_allocator(self):
        for allocator in ALLOCATORS:
            with self.subTest(allocator):
                self.assertGreaterEqual(self.over("track_wide", allocator), 64 << 20)  # of a block that came and went

    def test_callers_that_are_in_use_are_known_however_many_were_before(self):
        costs = []
        for off in ("0", "1"):
            done = subprocess.run([PROGRAMS / "track_wide", "costs"], env={**self.environment(), "MEMOIR_OFF": off}, check=True,
                                  capture_output=True, text=True)
            costs.append(float(done.stdout))
        self.assertLess(costs[0], 2 * costs[1])

    def test_nothing_is_left_behind_for_the_program(self):
        for stacks in ("off", "sampled", "all"):
            with self.subTest(stacks):
                process = self.start("track_quiet", settings={"MEMOIR_STACKS": stacks})
                self.assertEqual(process.wait(), 0, process.err.lines)

    def test_other_libraries_in_front_of_mmap_are_asked(self):
        for counted in ("0", "1"):
            with self.subTest(counted):
                process = self.start("track_quiet", "mapper", preload=[self.library, PROGRAMS / "libtrack_mapper.so"],
                                     settings={"MEMOIR_TRACK_MMAP": counted})
                self.assertEqual(process.wait(), 0, process.err.lines)

    def test_child_forked_while_a_book_is_made_keeps_nothing_of_it(self):
        for stacks in ("off", "all"):
            with self.subTest(stacks):
                process = self.start("track_crossing", settings={"MEMOIR_STACKS": stacks})
                self.assertEqual(process.wait(), 0, process.err.lines)

    def test_operators_of_the_program_stay_in_use(self):
        process = self.start("track_replaced")
        self.assertEqual(process.wait(), 0, process.err.lines)

    def test_valgrind_has_no_complaints(self):
        if not shutil.which("valgrind"):
            self.skipTest("valgrind is not installed")
        process = self.start_command(["valgrind", "-q", "--error-exitcode=9", "/bin/true"])
        self.assertEqual(process.wait(), 0, process.err.lines)


class Beside(TrackTest):
    """Small blocks of glibc's, whose word is not in them."""

    def run_small(self, *arguments, settings=None, **options):
        process = self.start("track_small", *arguments, settings=settings, **options)
        told = process.told("end")
        book = self.book(process.pid)
        self.assert_same(book, told)
        self.assertEqual(self.losses(book), {})
        process.go_on()
        child = process.told("child")
        book = self.book(child["pid"])
        self.assert_same(book, child)
        self.assertEqual(self.losses(book), {})
        process.go_on()
        self.assert_same(self.book(process.pid), process.told("parent"))
        process.go_on()
        self.assertEqual(process.wait(), 0, process.err.lines)

    def test_small_blocks_are_exact(self):
        for settings in ({"MEMOIR_STACKS": "off"}, {"MEMOIR_STACKS": "all"}, {"MEMOIR_SAMPLE_BYTES": "500"}):
            with self.subTest(settings):
                self.run_small(settings=settings)

    def test_all_threads_share_the_heap(self):
        self.run_small(settings={"MALLOC_ARENA_MAX": "1"})

    def test_the_array_grows_with_the_heap_where_it_is_worth_it(self):
        for heap in ("dense", "sparse"):
            with self.subTest(heap):
                self.run_small(heap)

    def test_without_address_space_they_carry_trailers(self):
        limit = (64 << 30, resource.RLIM_INFINITY)
        self.run_small(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit))


class Threads(TrackTest):
    def test_threads_free_what_others_allocated_and_allocate_while_they_end(self):
        process = self.start("track_threads")
        for step in ("exchange", "ends", "crowd"):
            told = process.told(step)
            book = self.book(process.pid)
            self.assert_same(book, told)
            self.assertEqual(self.losses(book), {})
            process.go_on()
        self.assertEqual(process.wait(), 0, process.err.lines)

    def test_what_a_thread_frees_of_another_s_counts_for_the_peak(self):
        process = self.start("track_threads", "relay")
        told = process.told("relay")
        book = self.book(process.pid)
        self.assert_same(book, told)
        peak = self.heap(book)[1].peak_bytes  # of 102 MB, 0.6 MB lived at a time
        self.assertGreater(peak, 400 << 10)
        self.assertLess(peak, 4 << 20)
        process.go_on()
        self.assertEqual(process.wait(), 0, process.err.lines)

    def test_one_byte_in_a_mebibyte_has_its_stack_taken(self):
        process = self.start("track_threads", "relay")
        process.told("relay")
        estimate = max(s.alloc_blocks for s in self.book(process.pid).sites() if s.sampled)
        self.assertEqual(estimate % 525, 0)  # what one block of 2,000 bytes stands for
        self.assertTrue(20000 < estimate < 82000, estimate)  # of 51,200: six times the mean error of 98 samples
        process.go_on()
        self.assertEqual(process.wait(), 0, process.err.lines)


class Life(TrackTest):
    """What may happen to a process."""

    def child_has_its_own_book(self, how):
        process = self.start("track_life", how)
        process.told("before")
        before = self.heap(self.book(process.pid))[1]
        process.go_on()
        told = process.told("child")
        parent, child = self.book(process.pid), self.book(told["pid"])
        self.assert_same(child, told)
        account = self.heap(child)[0]
        self.assertTrue(child.identity.compat & COMPAT_FORK_CHILD)
        self.assertEqual(account.inherited_bytes, before.live_bytes - 50 * 1000)
        self.assertEqual(account.inherited_blocks, before.live_blocks - 50)
        self.assertEqual(self.losses(child), {})
        self.assertEqual(self.heap(parent)[1], before)
        process.go_on()
        told = process.told("parent")
        self.assert_same(self.book(process.pid), told)
        process.go_on()
        self.assertEqual(process.wait(), 0, process.err.lines)

    def test_child_has_its_own_book(self):
        self.child_has_its_own_book("fork")

    def test_child_that_no_handler_was_told_of_has_its_own_book(self):
        self.child_has_its_own_book("clone")

    def test_vfork_and_exec_leave_the_parent_alone(self):
        process = self.start("track_life", "vfork")
        told = process.told("end")
        self.assert_same(self.book(process.pid), told)
        process.go_on()
        self.assertEqual(process.wait(), 0, process.err.lines)

    def test_each_image_starts_afresh(self):
        process = self.start("track_life", "exec", "2")
        for image in range(3):
            told = process.told("image", image + 1)
            alive = [b for b in self.books(process.pid) if b.writer_alive()]
            self.assertEqual(len(alive), 1)
            self.assert_same(alive[0], told)
            process.go_on()
        self.assertEqual(process.wait(), 0, process.err.lines)

    def test_suspended_process_counts_frees_and_nothing_else(self):
        process = self.start("track_life", "suspend")
        told = process.told("counted")
        self.assert_same(self.book(process.pid), told)
        self.set_flags(process.pid, 2)
        process.go_on()
        told = process.told("suspended")
        book = self.book(process.pid)
        self.assert_same(book, told)
        self.assertGreaterEqual(self.losses(book)[SUSPENDED], 100)
        self.set_flags(process.pid, 0)
        process.go_on()
        told = process.told("resumed")
        book = self.book(process.pid)
        self.assert_same(book, told)
        self.assertEqual(self.losses(book)[UNKNOWN_FREE], 100)
        process.go_on()
        self.assertEqual(process.wait(), 0, process.err.lines)

    def test_blocks_of_others_pass_unharmed(self):
        process = self.start("track_life", "foreign")
        told = process.told("end")
        book = self.book(process.pid)
        self.assert_same(book, told)
        self.assertEqual(self.losses(book), {UNKNOWN_FREE: 100})
        process.go_on()
        self.assertEqual(process.wait(), 0, process.err.lines)

    def test_blocks_of_others_that_look_like_ours_keep_their_content(self):
        for stacks in ("off", "all"):
            with self.subTest(stacks):
                process = self.start("track_life", "disguised", settings={"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
                                                                          "MEMOIR_STACKS": stacks})
                told = process.told("end")
                self.assert_same(self.book(process.pid), told)
                process.go_on()
                self.assertEqual(process.wait(), 0, process.err.lines)

    def test_libraries_that_come_and_go_keep_their_counts_apart(self):
        for one, other in (("track_one", "track_other"), ("track_bare_one", "track_bare_other")):
            with self.subTest(one=one):
                self.come_and_go(PROGRAMS / f"lib{one}.so", PROGRAMS / f"lib{other}.so")

    def come_and_go(self, one, other):
        process = self.start("track_life", "plugins", one, other)
        told = process.told("end")
        book = self.book(process.pid)
        self.assert_same(book, told)
        counts = {}
        for site in (s for s in book.sites() if not s.sampled):
            path = site.frames[0].module.path if site.frames and site.frames[0].module else None
            counts[path] = counts.get(path, 0) + site.alloc_bytes
        self.assertEqual(counts[str(one)], 20 * 10 * 30)
        self.assertEqual(counts[str(other)], 20 * 10 * 70)
        process.go_on()
        self.assertEqual(process.wait(), 0, process.err.lines)

    def test_a_library_without_build_id_costs_what_others_do(self):
        done = subprocess.run([PROGRAMS / "track_life", "plugin_costs", PROGRAMS / "libtrack_one.so",
                               PROGRAMS / "libtrack_bare_one.so"], env=self.environment(), check=True, capture_output=True, text=True)
        usual, without = (float(word) for word in done.stdout.split())
        self.assertLess(without, 4 * usual)

    def test_calls_before_and_after_main_count(self):
        command = f"MEMOIR_KEEP=$$ exec {PROGRAMS / 'track_life'} late"
        process = self.start_command(["/bin/sh", "-c", command])
        self.assertEqual(process.wait(), 0, process.err.lines)
        told = process.told("late")
        book = self.book(told["pid"])
        self.assert_same(book, told)
        self.assertEqual(book.status().state, 2)

    def test_killed_process_leaves_its_book(self):
        process = self.start("track_stacks")
        told = process.told("end")
        process.kill()
        self.assertEqual(process.wait(), -signal.SIGKILL)
        book = self.book(process.pid)
        self.assertFalse(book.writer_alive())
        self.assert_same(book, told)

    def test_double_free_is_the_allocator_s_to_judge(self):
        self.assertEqual(self.start("track_life", "twice", preload=[]).wait(), -signal.SIGABRT)
        self.assertEqual(self.start("track_life", "twice").wait(), -signal.SIGABRT)

    def test_small_process_leaves_nothing(self):
        for _ in range(5):
            subprocess.run([PROGRAMS / "track_life", "nothing"], env=self.environment(), check=True)
        self.assertEqual(list(self.dir.iterdir()), [])  # not even a folder

    def test_switched_off_it_counts_nothing(self):
        process = self.start("track_stacks", settings={"MEMOIR_OFF": "1"})
        process.told("end")
        self.assertEqual(self.books(), [])
        process.go_on()
        process.told("freed")
        process.go_on()
        self.assertEqual(process.wait(), 0, process.err.lines)

    def test_without_a_place_for_books_the_program_runs(self):
        process = self.start("track_stacks", settings={"MEMOIR_DIR": "/proc/nowhere"})
        process.told("end")
        process.go_on()
        process.told("freed")
        process.go_on()
        self.assertEqual(process.wait(), 0, process.err.lines)


class Signals(TrackTest):
    BUMP = PROGRAMS / "libtrack_bump.so"

    def test_handler_that_allocates_loses_nothing(self):
        process = self.start("track_signals", "handler", preload=[self.library, self.BUMP])
        told = process.told("storm")
        book = self.book(process.pid)
        _account, totals = self.heap(book)
        sites, own = [s for s in book.sites() if not s.sampled], self.own_sites(book)
        for name in ("alloc_bytes", "alloc_blocks", "freed_bytes", "freed_blocks"):
            # Inside a slow call a handler's block counts at no site, but in the account.
            nowhere = getattr(totals, name) - sum(getattr(s, name) for s in sites)
            self.assertEqual(sum(getattr(s, name) for s in own) + nowhere, told[name], name)
        self.assertEqual(self.losses(book), {})

    def test_handler_that_jumps_out_of_a_call_does_no_harm(self):
        process = self.start("track_signals", "jump", preload=[self.library, self.BUMP])
        told = process.told("storm")
        before = self.counts(self.book(process.pid))
        process.go_on()
        after = process.told("calm")
        book = self.book(process.pid)
        for name, value in self.counts(book).items():
            self.assertEqual(value - before[name], after[name] - told[name], name)
        self.assertLessEqual(set(self.losses(book)), OF_JUMPS)
        process.go_on()
        self.assertEqual(process.wait(), 0, process.err.lines)

    def test_handler_that_forks_inside_the_allocator(self):
        for settings in ({}, {"MEMOIR_STACKS": "all"}, {"MEMOIR_SAMPLE_BYTES": "1000"}):
            with self.subTest(settings):
                process = self.start("track_forking", settings=settings)
                self.assertEqual(process.wait(), 0, process.out.lines)


class Stacks(TrackTest):
    MIB = 1 << 20

    def ways(self, book, sites):
        """Live and allocated bytes by the name of the function that called `allocate`."""
        names = self.functions()
        sums = {}
        for site in sites:
            if len(site.frames) > 1 and site.frames[1].module and not site.frames[1].module.path:
                name = names(site.frames[1].offset - 1)
                live, alloc = sums.get(name, (0, 0))
                sums[name] = live + site.live_bytes, alloc + site.alloc_bytes
        return sums

    @staticmethod
    def functions():
        listing = subprocess.run(["nm", "-S", "--defined-only", PROGRAMS / "track_stacks"], capture_output=True,
                                 text=True, check=True).stdout
        spans = []
        for line in listing.splitlines():
            words = line.split()
            if len(words) == 4 and words[2] in "tT":
                spans.append((int(words[0], 16), int(words[0], 16) + int(words[1], 16), words[3]))
        return lambda at: next((name for start, end, name in spans if start <= at < end), None)

    def test_sampled_stacks_estimate_what_is_exact_at_the_caller(self):
        process = self.start("track_stacks", settings={"MEMOIR_SAMPLE_BYTES": "4096"})
        told = process.told("end")
        book = self.book(process.pid)
        self.assert_same(book, told)  # sampling changes no count
        sampled = [s for s in book.sites() if s.sampled]
        ways = self.ways(book, sampled)
        for name, live, alloc in (("large_way", 24, 24), ("small_way", 6, 6), ("passing_way", 0, 30)):
            # Some thousand samples each: a deviation of 15 % is ten times the usual one.
            self.assertAlmostEqual(ways[name][0] / self.MIB, live, delta=live * 0.15, msg=name)
            self.assertAlmostEqual(ways[name][1] / self.MIB, alloc, delta=alloc * 0.15, msg=name)
        blocks, exact = book.blocks()
        numbers = {s.number for s in sampled}
        self.assertTrue(exact and blocks and all(b.site in numbers for b in blocks))
        process.go_on()
        told = process.told("freed")
        book = self.book(process.pid)
        self.assert_same(book, told)
        left = self.ways(book, [s for s in book.sites() if s.sampled])
        self.assertEqual([left[n][0] for n in ("large_way", "small_way", "passing_way")], [0, 0, 0])
        self.assertEqual(self.losses(book), {})

    def test_all_stacks_are_exact(self):
        process = self.start("track_stacks", settings={"MEMOIR_STACKS": "all"})
        told = process.told("end")
        book = self.book(process.pid)
        self.assert_same(book, told)
        ways = self.ways(book, book.sites())
        self.assertEqual([ways[n] for n in ("large_way", "small_way", "passing_way")],
                         [(24 * self.MIB, 24 * self.MIB), (6 * self.MIB, 6 * self.MIB), (0, 30 * self.MIB)])
        self.assertFalse(any(s.sampled for s in book.sites()))
        process.go_on()
        told = process.told("freed")
        self.assert_same(self.book(process.pid), told)

    def test_without_stacks_every_site_is_a_caller(self):
        process = self.start("track_stacks", settings={"MEMOIR_STACKS": "off", "MEMOIR_SAMPLE_BYTES": "4096"})
        told = process.told("end")
        book = self.book(process.pid)
        self.assert_same(book, told)
        self.assertTrue(all(len(s.frames) == 1 and not s.sampled for s in book.sites()))


class Maps(TrackTest):
    MAPPED = 2

    def test_mappings_that_are_cut_and_moved_are_known_by_range(self):
        process = self.start("track_maps", settings={"MEMOIR_TRACK_MMAP": "1"})
        process.told("end")
        told = {(r["start"], r["bytes"]) for r in (process.told("range", n + 1) for n in range(9))}
        book = self.book(process.pid)
        account = next(a for a in book.accounts() if a.space == self.MAPPED)
        blocks, exact = book.blocks()
        mapped = [b for b in blocks if b.account == account.record]
        sites = {s.number: s for s in book.sites()}
        own = {(b.id, b.bytes) for b in mapped if not sites[b.site].frames[0].module.path}
        self.assertTrue(exact)
        self.assertEqual(own, told)
        totals = book.totals()[account.record]
        self.assertEqual((totals.live_bytes, totals.live_blocks), (sum(b.bytes for b in mapped), len(mapped)))
        self.assertEqual(self.losses(book), {})
        process.go_on()
        self.assertEqual(process.wait(), 0, process.err.lines)

    def test_mappings_are_left_alone_unless_asked_for(self):
        process = self.start("track_maps", settings={"MEMOIR_KEEP": "0"})
        process.told("end")
        self.assertFalse([a for b in self.books() for a in b.accounts() if a.space == self.MAPPED])


if __name__ == "__main__":
    unittest.main()
