"""Accounting inside libmemoir-malloc: what it counts is what the program asked for, as libmemoir-track counts it."""

import unittest

import test_track
from track_support import BUILD, SOURCE_MALLOC

MALLOC = BUILD / "src/malloc/libmemoir-malloc.so"


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


if __name__ == "__main__":
    unittest.main()
