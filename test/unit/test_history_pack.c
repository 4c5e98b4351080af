/* Packed chunks: whatever goes in comes out, and bytes that are no chunk do no harm. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "history/pack.h"

static uint64_t random_state = UINT64_C(0x2545f4914f6cdd1d);

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static uint64_t random_below(uint64_t n)
{
    return random_next() % n;
}

/* Ways in which values of real and unreal programs move. */
static uint64_t move(unsigned way, unsigned i, uint64_t value)
{
    switch (way) {
    case 0:
        return value; /* never */
    case 1:
        return value + 4096; /* a leak */
    case 2:
        return value + (random_below(200) - 100) * 4096; /* pages, also below 0, and so around */
    case 3:
        return random_below(10) ? value : value + (random_below(1000) << 20); /* rarely, much */
    case 4:
        return random_next(); /* anything */
    case 5:
        return i % 2 ? UINT64_MAX : 0; /* as far as it goes */
    case 6:
        return random_next() >> random_below(64); /* all sizes */
    case 7:
        return random_below(2); /* a bit */
    default:
        return value + random_below(3) - 1;
    }
}

enum { WAYS = 9 };

static void points_make(struct pack_points *points, unsigned way, unsigned gaps, bool has_max)
{
    uint64_t value = random_next() >> random_below(64);
    points->n = 0;
    points->has_max = has_max;
    unsigned wanted = 1 + (unsigned)random_below(PACK_SLOTS_MAX);
    unsigned slot = (unsigned)random_below(PACK_SLOTS_MAX);
    slot = random_below(2) ? 0 : slot;
    for (unsigned i = 0; i < wanted && slot < PACK_SLOTS_MAX; i++) {
        value = move(way, i, value);
        points->slot[points->n] = (uint8_t)slot;
        points->last[points->n] = value;
        points->max[points->n] = value;
        if (has_max && value < UINT64_MAX / 2 && random_below(3) == 0)
            points->max[points->n] += random_below(1 << 20);
        points->n++;
        slot += gaps == 0 ? 1 : gaps == 1 ? 5 : 1 + (unsigned)random_below(4);
    }
}

static void assert_same(const struct pack_points *a, const struct pack_points *b)
{
    assert_int_equal(a->n, b->n);
    for (unsigned i = 0; i < a->n; i++) {
        assert_int_equal(a->slot[i], b->slot[i]);
        assert_true(a->last[i] == b->last[i]);
        assert_true((a->has_max ? a->max[i] : a->last[i]) == b->max[i]);
    }
}

static void what_goes_in_comes_out(void **state)
{
    for (int round = 0; round < 20000; round++) {
        struct pack_points points, back;
        uint8_t bytes[PACK_BYTES_MAX];
        points_make(&points, (unsigned)round % WAYS, (unsigned)random_below(3), random_below(2));
        size_t len = pack_encode(&points, bytes);
        assert_in_range(len, 3, PACK_BYTES_MAX);
        /* An exact copy, so that a sanitizer sees a look past the end. */
        uint8_t *exact = malloc(len);
        memcpy(exact, bytes, len);
        assert_int_equal(pack_decode(exact, len, &back), 0);
        assert_same(&points, &back);
        free(exact);
    }
}

static size_t length_of(unsigned n, uint64_t (*value)(unsigned i))
{
    struct pack_points points = {.n = n};
    uint8_t bytes[PACK_BYTES_MAX];
    for (unsigned i = 0; i < n; i++) {
        points.slot[i] = (uint8_t)i;
        points.last[i] = value(i);
    }
    return pack_encode(&points, bytes);
}

static uint64_t unchanged(unsigned i)
{
    return UINT64_C(123456789) << 12;
}

static uint64_t leaking(unsigned i)
{
    return (UINT64_C(1000000) + 77 * i) << 12;
}

static uint64_t noisy(unsigned i)
{
    return (1000000 + random_below(64)) << 12;
}

static uint64_t one_jump(unsigned i)
{
    return (1000000 + (i > 60) * (UINT64_C(1) << 20) + random_below(64)) << 12;
}

static void chunks_are_small(void **state)
{
    assert_in_range(length_of(PACK_SLOTS_MAX, unchanged), 3, 16);
    assert_in_range(length_of(PACK_SLOTS_MAX, leaking), 3, 20);
    assert_in_range(length_of(PACK_SLOTS_MAX, noisy), 60, PACK_SLOTS_MAX + 8);
    /* One large step does not spoil what comes after it. */
    assert_in_range(length_of(PACK_SLOTS_MAX, one_jump), 60, PACK_SLOTS_MAX + 16);
}

/* Whatever decodes keeps the promises of the header. */
static void assert_promises(const struct pack_points *points)
{
    assert_in_range(points->n, 1, PACK_SLOTS_MAX);
    for (unsigned i = 0; i < points->n; i++) {
        assert_true(points->slot[i] < PACK_SLOTS_MAX);
        assert_true(i == 0 || points->slot[i] > points->slot[i - 1]);
        assert_true(points->max[i] >= points->last[i]);
    }
}

static void garbage_is_refused_or_keeps_the_promises(void **state)
{
    unsigned refused = 0;
    for (int round = 0; round < 50000; round++) {
        size_t len = random_below(200);
        uint8_t *bytes = malloc(len ? len : 1);
        struct pack_points points;
        for (size_t i = 0; i < len; i++)
            bytes[i] = (uint8_t)random_next();
        if (len && random_below(2))
            bytes[0] = (uint8_t)(1 << 4 | random_below(4)); /* a good beginning */
        int r = pack_decode(bytes, len, &points);
        assert_true(r == 0 || r == -EBADMSG);
        refused += r < 0;
        if (r == 0)
            assert_promises(&points);
        free(bytes);
    }
    assert_true(refused > 25000);
}

static void every_cut_is_refused(void **state)
{
    for (int round = 0; round < 300; round++) {
        struct pack_points points, back;
        uint8_t bytes[PACK_BYTES_MAX];
        points_make(&points, (unsigned)round % WAYS, (unsigned)random_below(3), true);
        size_t len = pack_encode(&points, bytes);
        for (size_t cut = 0; cut < len; cut++) {
            back.n = 77;
            uint8_t *exact = malloc(cut ? cut : 1);
            memcpy(exact, bytes, cut);
            assert_int_equal(pack_decode(exact, cut, &back), -EBADMSG);
            assert_int_equal(back.n, 77); /* results change on success only */
            free(exact);
        }
    }
}

static void flipped_bits_do_no_harm(void **state)
{
    for (int round = 0; round < 20000; round++) {
        struct pack_points points, back;
        uint8_t bytes[PACK_BYTES_MAX];
        points_make(&points, (unsigned)round % WAYS, (unsigned)random_below(3), true);
        size_t len = pack_encode(&points, bytes);
        for (unsigned flips = 0; flips < 3; flips++)
            bytes[random_below(len)] ^= (uint8_t)(1 << random_below(8));
        if (pack_decode(bytes, len, &back) == 0)
            assert_promises(&back);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_goes_in_comes_out),
        cmocka_unit_test(chunks_are_small),
        cmocka_unit_test(garbage_is_refused_or_keeps_the_promises),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(flipped_bits_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
