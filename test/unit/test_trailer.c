/* Trailers: what is written is read again, by who knows the block and by who does not; nothing else is. */
#include "book/trailer.h"

#include <string.h>

#include "base/hash.h"
#include "check.h"

static const struct book_trailer_key key = {.key = UINT64_C(0x123456789abcdef1), .generation = 3};

/* A block of `usable` bytes in memory of our own, with a trailer; its last word. */
static uint64_t memory[8192];

static uint64_t *put(uint64_t usable, uint64_t bytes, uint32_t site, uint32_t time, bool sampled)
{
    memset(memory, 0x5a, sizeof(memory));
    uint64_t start = (uintptr_t)&memory[2], at = book_trailer_place(start, usable);
    assert_true(book_trailer_write((uint64_t *)at, key, at, start, bytes, site, time, sampled));
    return (uint64_t *)at;
}

static void what_is_written_is_read(void **state)
{
    for (uint64_t bytes = 0; bytes < 20000; bytes += bytes < 1100 ? 1 : 191)
        for (uint64_t slack = 0; slack < 20000; slack = slack * 5 / 2 + 8) {
            uint64_t usable = book_trailer_request(bytes) + slack;
            uint32_t site = (uint32_t)bytes * 7 % (slack < 8 ? 1 << 14 : 1 << 20);
            uint64_t *last = put(usable, bytes, site, 1234, slack > 8);
            struct book_trailer t = {0};
            uint64_t start = (uintptr_t)&memory[2], at = (uintptr_t)last;
            assert_true(at + 8 <= start + usable && at >= start + bytes);
            assert_int_equal(book_trailer_check(key, start, at, last, &t), 0);
            assert_true(book_trailer_read(key, at, last, start, &t));
            assert_int_equal(t.start, start);
            assert_int_equal(t.bytes, bytes);
            assert_int_equal(t.site, site);
            assert_int_equal(t.time, 1234);
            assert_int_equal(t.sampled, slack > 8);
            if (bytes <= BOOK_TRAILER_SHORT_MAX || bytes > BOOK_TRAILER_SHORT_EXTENT_MAX)
                assert_int_equal(t.is_short,
                                 slack <= 8 && bytes <= BOOK_TRAILER_SHORT_MAX && site < 1 << 14);
            assert_false(t.inherited);
            /* What the program may use holds all that it asked for, and no word of ours. */
            assert_in_range(t.usable, bytes, at - start);
            memset(&memory[2], 0xff, t.usable);
            assert_true(book_trailer_read(key, at, last, start, &t) && t.start == start);
        }
}

static void a_trailer_is_short_where_it_can_be(void **state)
{
    const struct {
        uint64_t usable, bytes;
        uint32_t site;
        bool sampled, is_short;
    } cases[] = {
        {40, 28, 1, false, true},     {24, 0, 1, false, true},
        {72, 33, 1, false, true},     {72, 32, 1, false, false},
        {1024, 1016, 9, false, true}, {1032, 1016, 9, false, false},
        {72, 40, 16383, false, true}, {72, 40, 16384, false, false},
        {72, 40, 1, true, false},     {65000, 60000, 1, false, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct book_trailer t = {0};
        uint64_t *last = put(cases[i].usable, cases[i].bytes, cases[i].site, 7, cases[i].sampled);
        assert_true(book_trailer_read(key, (uintptr_t)last, last, 0, &t));
        assert_int_equal(t.is_short, cases[i].is_short);
        assert_int_equal(t.bytes, cases[i].bytes);
        assert_int_equal(t.site, cases[i].site);
    }
}

static void what_does_not_fit_is_not_written(void **state)
{
    uint64_t words[4] = {1, 2, 3, 4}, at = 0x10000 + 16;
    assert_false(book_trailer_write(&words[2], key, at, 0x10000, 16, 1 << 14, 1, false));
    assert_false(book_trailer_write(&words[2], key, at, 0x10000, 9, 1, 1, true));
    assert_int_equal(words[0] * 1000 + words[1] * 100 + words[2] * 10 + words[3], 1234);
    assert_true(book_trailer_write(&words[2], key, at, 0x10000, 8, 1, 1, true));
}

static void extremes_are_kept(void **state)
{
    uint64_t at = UINT64_C(0x7ffffffff000), words[3] = {0};
    assert_true(book_trailer_write(&words[2], key, at, at - BOOK_TRAILER_SIZE_MAX - 9,
                                   BOOK_TRAILER_SIZE_MAX, (1 << 20) - 1, BOOK_TRAILER_TIME_MAX,
                                   true));
    struct book_trailer t = {0};
    assert_true(book_trailer_read(key, at, &words[2], 0, &t));
    assert_int_equal(t.bytes, BOOK_TRAILER_SIZE_MAX);
    assert_int_equal(t.site, (1 << 20) - 1);
    assert_int_equal(t.time, BOOK_TRAILER_TIME_MAX);
    assert_true(t.sampled);
    /* The same of a short one. */
    assert_true(book_trailer_write(&words[2], key, at, at - BOOK_TRAILER_SHORT_EXTENT_MAX,
                                   BOOK_TRAILER_SHORT_EXTENT_MAX - 31, (1 << 14) - 1,
                                   BOOK_TRAILER_TIME_MAX, false));
    assert_true(book_trailer_read(key, at, &words[2], 0, &t));
    assert_true(t.is_short);
    assert_int_equal(t.bytes, BOOK_TRAILER_SHORT_EXTENT_MAX - 31);
    assert_int_equal(t.site, (1 << 14) - 1);
    assert_in_range(t.time, BOOK_TRAILER_TIME_MAX / 2048 * 2047, BOOK_TRAILER_TIME_MAX);
}

static void short_times_are_early_by_one_in_2048_at_most(void **state)
{
    uint32_t packed_before = 0;
    for (uint64_t time = 0; time <= BOOK_TRAILER_TIME_MAX; time += time / 5000 + 1) {
        uint32_t packed = book_trailer_time_pack((uint32_t)time);
        uint32_t told = book_trailer_time_unpack(packed);
        assert_in_range(packed, packed_before, (1 << 15) - 1);
        assert_in_range(told, time - time / 2048, time);
        packed_before = packed;
    }
}

static void a_block_that_begins_before_its_mapping_is_none(void **state)
{
    for (uint64_t bytes = 40; bytes < 5000; bytes += 4000) {
        uint64_t *last = put(book_trailer_request(bytes), bytes, 1, 1, false);
        struct book_trailer t = {0};
        assert_true(book_trailer_read(key, (uintptr_t)last, last, (uintptr_t)&memory[2], &t));
        assert_false(book_trailer_read(key, (uintptr_t)last, last, (uintptr_t)&memory[3], &t));
    }
}

static void another_place_size_or_key_does_not_fit(void **state)
{
    for (uint64_t bytes = 100; bytes < 5000; bytes += 4000) {
        uint64_t *last = put(book_trailer_request(bytes), bytes, 9, 5, false);
        uint64_t start = (uintptr_t)&memory[2], at = (uintptr_t)last;
        uint64_t copy[3] = {0, last[-1], last[0]};
        struct book_trailer t = {0};
        bool is_short = bytes < 1000;
        assert_int_equal(book_trailer_check(key, start, at, &copy[2], &t), 0);
        assert_false(book_trailer_read(key, at + 8, &copy[2], 0, &t));
        assert_int_equal(book_trailer_check(key, start, at + 16, &copy[2], &t), -1);
        assert_int_equal(book_trailer_check(key, start + 16, at, &copy[2], &t), -1);
        struct book_trailer_key other = {.key = key.key + 2, .generation = key.generation};
        assert_false(book_trailer_read(other, at, &copy[2], 0, &t));
        for (int bit = is_short ? 64 : 0; bit < 128; bit++) {
            copy[1 + bit / 64] ^= UINT64_C(1) << bit % 64;
            assert_false(book_trailer_read(key, at, &copy[2], 0, &t) && !t.inherited);
            copy[1 + bit / 64] ^= UINT64_C(1) << bit % 64;
        }
    }
}

static void a_child_knows_its_own_blocks_from_inherited_ones(void **state)
{
    for (uint64_t bytes = 77; bytes < 5000; bytes += 4000) {
        uint64_t *last = put(book_trailer_request(bytes), bytes, 4, 4, false);
        uint64_t at = (uintptr_t)last;
        struct book_trailer t = {0};
        for (uint32_t forks = 1; forks < 4; forks++) {
            struct book_trailer_key child = {.key = key.key, .generation = key.generation + forks};
            assert_true(book_trailer_read(child, at, last, 0, &t));
            assert_true(t.inherited);
            assert_int_equal(t.ancestors, forks);
            assert_int_equal(t.bytes, bytes);
        }
        struct book_trailer_key parent = {.key = key.key, .generation = key.generation - 1};
        assert_false(book_trailer_read(parent, at, last, 0, &t)); /* it is not of the future */
    }
}

static void zeros_and_garbage_are_no_trailers(void **state)
{
    struct book_trailer t = {0};
    uint64_t words[3] = {0}, random = 42;
    for (uint64_t at = 0; at < UINT64_C(1) << 22; at++)
        assert_false(book_trailer_read(key, at * 8, &words[2], 0, &t));
    /* A block that says nothing but zeros is told apart from empty memory. */
    uint64_t *nothing = put(16, 0, 0, 0, false);
    assert_true(book_trailer_read(key, (uintptr_t)nothing, nothing, 0, &t));
    words[1] = 0, words[2] = 0;
    unsigned passed_short = 0, passed_long = 0, looked_short = 0;
    for (int i = 0; i < 1 << 24; i++) {
        random = hash_mix(random + HASH_K0);
        words[1] = random;
        words[2] = hash_mix(random);
        bool is_short = words[2] >> 63;
        bool passed = book_trailer_read(key, random & 0x7ffffffffff8, &words[2], 0, &t);
        looked_short += is_short;
        passed_short += passed && is_short;
        passed_long += passed && !is_short;
    }
    /* Once in 2^22 for each of three generations, and once in 2^28; the sequence is always the same. */
    assert_in_range(looked_short, 1 << 22, 1 << 24);
    assert_in_range(passed_short, 0, 20);
    assert_in_range(passed_long, 0, 1);
}

/* Memory often holds one word many times, and words with few bits set. */
static void words_that_repeat_pass_no_more_often(void **state)
{
    struct book_trailer_key own = {.key = key.key, .generation = 1};
    static const uint64_t repeated[] = {
        UINT64_MAX,           UINT64_C(1) << 63,
        0xbff0000000000000,   0x8000000000200000,
        0xc000000000100000,   0xfefefefefefefefe,
        0x8000000000000001,   0xffffffff00000000,
        UINT64_C(0xff) << 56, UINT64_C(0x80c0000000000000),
    };
    unsigned passed = 0;
    for (size_t i = 0; i < sizeof(repeated) / sizeof(repeated[0]); i++)
        for (uint64_t at = 0x555500000000; at < 0x555500000000 + (8 << 20); at += 8) {
            uint64_t words[3] = {0, 0, repeated[i]};
            struct book_trailer t;
            passed += book_trailer_read(own, at, &words[2], 0, &t);
        }
    assert_in_range(passed, 0, 12); /* of 10 million: 2.5 expected */
}

static void words_beside_are_read_as_they_were_written(void **state)
{
    const uint64_t grain = UINT64_C(0x555500000040);
    for (uint32_t i = 0; i < 4096; i++) {
        uint64_t bytes = i % (BOOK_BESIDE_BYTES_MAX + 1), start = grain + i % 2 * 16;
        uint32_t site = i * 255, made = 1 + i % key.generation;
        struct book_trailer_key by = {.key = key.key, .generation = made};
        uint64_t word =
            book_beside_word(by, start, bytes, site, book_trailer_short_stamp(i), i % 5 == 0);
        struct book_trailer t = {0};
        assert_true(book_beside_read(key, word, grain, &t));
        assert_int_equal(t.start, start);
        assert_int_equal(t.bytes, bytes);
        assert_int_equal(t.site, site);
        assert_int_equal(t.time, book_trailer_time_unpack(book_trailer_time_pack(i)));
        assert_int_equal(t.sampled, i % 5 == 0);
        assert_int_equal(t.ancestors, key.generation - made);
        assert_int_equal(t.inherited, made != key.generation);
        /* The owner sees at one glance whether there is anything to it. */
        bool plain = made == key.generation && i % 5;
        assert_int_equal(((uint32_t)word & BOOK_BESIDE_PLAIN_MASK) == key.generation, plain);
        bool usual = plain && site < BOOK_TRAILER_SHORT_SITES;
        assert_int_equal(((uint32_t)word & BOOK_BESIDE_USUAL_MASK) == key.generation, usual);
        assert_int_equal(book_beside_site_of(word), site);
    }
}

static void what_is_no_word_beside_is_not_read(void **state)
{
    struct book_trailer t;
    uint64_t word = book_beside_word(key, 0, 40, 7, 0, false);
    assert_true(book_beside_read(key, word, 0, &t));
    assert_false(book_beside_read(key, 0, 0, &t));
    assert_false(book_beside_read(key, word & ~BOOK_TRAILER_SHORT_MARK, 0, &t));
    assert_false(book_beside_read(key, word - key.generation, 0, &t));
    assert_false(book_beside_read(key, word + 1, 0, &t)); /* of a child */
    assert_false(book_beside_read(key, word | UINT64_C(1023) << BOOK_BESIDE_BYTES_SHIFT, 0, &t));
    assert_true(book_beside_chunk_fits(48 | 5, 40));
    assert_true(book_beside_chunk_fits(64, 0));
    assert_false(book_beside_chunk_fits(48, 41));
    assert_true(book_beside_chunk_fits(992, 984));
    assert_false(book_beside_chunk_fits(1008, 984));
    assert_false(book_beside_chunk_fits(40, 20));
    assert_false(book_beside_chunk_fits(48 | 2, 40)); /* a mapping of its own */
    assert_false(book_beside_chunk_fits(16, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(a_trailer_is_short_where_it_can_be),
        cmocka_unit_test(what_does_not_fit_is_not_written),
        cmocka_unit_test(extremes_are_kept),
        cmocka_unit_test(short_times_are_early_by_one_in_2048_at_most),
        cmocka_unit_test(a_block_that_begins_before_its_mapping_is_none),
        cmocka_unit_test(another_place_size_or_key_does_not_fit),
        cmocka_unit_test(a_child_knows_its_own_blocks_from_inherited_ones),
        cmocka_unit_test(zeros_and_garbage_are_no_trailers),
        cmocka_unit_test(words_that_repeat_pass_no_more_often),
        cmocka_unit_test(words_beside_are_read_as_they_were_written),
        cmocka_unit_test(what_is_no_word_beside_is_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
