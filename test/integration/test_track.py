"""libmemoir-track: what it counts is what the program asked for, over every allocator and from every thread."""

import unittest

from track_support import ALLOCATORS, TRACK, TrackTest, library


class Calls(TrackTest):
    def over(self, program, allocator):
        preload = [TRACK]
        if ALLOCATORS[allocator]:
            path = library(ALLOCATORS[allocator])
            if not path:
                self.skipTest(f"{ALLOCATORS[allocator]} is not installed")
            preload.append(path)
        process = self.start(program, allocator, preload=preload)
        told = process.told("end")
        book = self.book(process.pid)
        self.assert_same(book, told)
        self.assertEqual(self.losses(book), {})
        process.go_on()
        self.assertEqual(process.wait(), 0, process.err.lines)
        self.assertEqual(self.books(), [])  # a clean end leaves nothing

    def test_every_call_counts_over_glibc(self):
        self.over("track_calls", "glibc")

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


if __name__ == "__main__":
    unittest.main()
