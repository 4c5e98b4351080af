/* Trailers: what is written is read again, by who knows the block and by who does not; nothing else is. */
#include "book/trailer.h"

#include <string.h>

#include "base/hash.h"
#include "check.h"

static const struct book_trailer_key key = {.key = UINT64_C(0x123456789abcdef1), .generation = 3};

/* A block of `usable` bytes in memory of our own, with a trailer. */
static uint64_t memory[8192];

static uint64_t *put(uint64_t usable, uint64_t bytes, uint32_t site, uint32_t time, bool sampled)
{
    memset(memory, 0x5a, sizeof(memory));
    uint64_t start = (uintptr_t)&memory[2], at = book_trailer_place(start, usable);
    book_trailer_write((uint64_t *)at, key, at, start, bytes, site, time, sampled);
    return (uint64_t *)at;
}

static void what_is_written_is_read(void **state)
{
    for (uint64_t bytes = 0; bytes < 20000; bytes += bytes < 300 ? 1 : 191)
        for (uint64_t slack = 0; slack < 20000; slack = slack * 5 / 2 + 8) {
            uint64_t usable = book_trailer_request(bytes) + slack;
            uint64_t *words = put(usable, bytes, (uint32_t)bytes * 7 % (1 << 20), 12345, slack > 8);
            struct book_trailer t = {0};
            uint64_t start = (uintptr_t)&memory[2], at = (uintptr_t)words;
            assert_true(at + 16 <= start + usable && at >= start + bytes);
            assert_int_equal(book_trailer_check(key, start, at, words), 0);
            assert_true(book_trailer_read(key, at, words, start, &t));
            assert_int_equal(t.start, start);
            assert_int_equal(t.bytes, bytes);
            assert_int_equal(t.site, bytes * 7 % (1 << 20));
            assert_int_equal(t.time, 12345);
            assert_int_equal(t.sampled, slack > 8);
            assert_false(t.inherited);
            /* What the program may use holds all that it asked for, and no word of ours. */
            uint64_t own = book_trailer_usable(start, at, bytes);
            assert_in_range(own, bytes, at - start);
            memset(&memory[2], 0xff, own);
            assert_true(book_trailer_read(key, at, words, start, &t) && t.start == start);
        }
}

static void extremes_are_kept(void **state)
{
    uint64_t at = UINT64_C(0x7ffffffff000), words[3] = {0};
    book_trailer_write(&words[1], key, at, at - BOOK_TRAILER_SIZE_MAX - 1, BOOK_TRAILER_SIZE_MAX,
                       (1 << 20) - 1, BOOK_TRAILER_TIME_MAX, true);
    struct book_trailer t = {0};
    assert_true(book_trailer_read(key, at, &words[1], 0, &t));
    assert_int_equal(t.bytes, BOOK_TRAILER_SIZE_MAX);
    assert_int_equal(t.site, (1 << 20) - 1);
    assert_int_equal(t.time, BOOK_TRAILER_TIME_MAX);
    assert_true(t.sampled);
}

static void a_block_that_begins_before_its_mapping_is_none(void **state)
{
    uint64_t *words = put(book_trailer_request(1000), 1000, 1, 1, false);
    struct book_trailer t = {0};
    assert_true(book_trailer_read(key, (uintptr_t)words, words, (uintptr_t)&memory[2], &t));
    assert_false(book_trailer_read(key, (uintptr_t)words, words, (uintptr_t)&memory[3], &t));
}

static void another_place_size_or_key_does_not_fit(void **state)
{
    uint64_t *words = put(book_trailer_request(100), 100, 9, 5, false);
    uint64_t start = (uintptr_t)&memory[2], at = (uintptr_t)words,
             copy[3] = {0, words[0], words[1]};
    struct book_trailer t = {0};
    assert_false(book_trailer_read(key, at + 8, &copy[1], 0, &t));
    assert_int_equal(book_trailer_check(key, start, at + 16, &copy[1]), -1);
    assert_int_equal(book_trailer_check(key, start + 16, at, &copy[1]), -1);
    struct book_trailer_key other = {.key = key.key + 1, .generation = key.generation};
    assert_false(book_trailer_read(other, at, &copy[1], 0, &t));
    for (int bit = 0; bit < 128; bit++) {
        copy[1 + bit / 64] ^= UINT64_C(1) << bit % 64;
        assert_false(book_trailer_read(key, at, &copy[1], 0, &t) && !t.inherited);
        copy[1 + bit / 64] ^= UINT64_C(1) << bit % 64;
    }
}

static void a_child_knows_its_own_blocks_from_inherited_ones(void **state)
{
    uint64_t *words = put(book_trailer_request(77), 77, 4, 4, false);
    uint64_t at = (uintptr_t)words;
    struct book_trailer t = {0};
    for (uint32_t forks = 1; forks < 4; forks++) {
        struct book_trailer_key child = {.key = key.key, .generation = key.generation + forks};
        assert_true(book_trailer_read(child, at, words, 0, &t));
        assert_true(t.inherited);
        assert_int_equal(t.ancestors, forks);
        assert_int_equal(t.bytes, 77);
    }
    struct book_trailer_key parent = {.key = key.key, .generation = key.generation - 1};
    assert_false(book_trailer_read(parent, at, words, 0, &t)); /* it is not of the future */
}

static void zeros_and_garbage_are_no_trailers(void **state)
{
    struct book_trailer t = {0};
    uint64_t words[3] = {0}, random = 42;
    for (uint64_t at = 0; at < UINT64_C(1) << 22; at++)
        assert_false(book_trailer_read(key, at * 8, &words[1], 0, &t));
    /* A block that says nothing but zeros is told apart from empty memory. */
    uint64_t *nothing = put(16, 0, 0, 0, false);
    assert_true(book_trailer_read(key, (uintptr_t)nothing, nothing, 0, &t));
    unsigned passed = 0;
    for (int i = 0; i < 1 << 22; i++) {
        random = hash_mix(random + HASH_K0);
        words[1] = random;
        words[2] = hash_mix(random);
        passed += book_trailer_read(key, random & 0x7ffffffffff8, &words[1], 0, &t);
    }
    assert_in_range(passed, 0, 1); /* about 0.05 expected, and the sequence is always the same */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(extremes_are_kept),
        cmocka_unit_test(a_block_that_begins_before_its_mapping_is_none),
        cmocka_unit_test(another_place_size_or_key_does_not_fit),
        cmocka_unit_test(a_child_knows_its_own_blocks_from_inherited_ones),
        cmocka_unit_test(zeros_and_garbage_are_no_trailers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
