/* The table of kept ranges: nothing is lost, nothing is handed out twice, ranges join and are cut. */
#include "malloc/huge_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "malloc/map.h"

#define UNIT MAP_UNIT_BYTES
#define PAGE ((size_t)4096)

static char *const base = (char *)(uintptr_t)(64 * UNIT);

static struct huge_range range(size_t unit, size_t bytes, uint64_t when)
{
    return (struct huge_range){.at = base + unit * UNIT, .bytes = bytes, .freed_ns = when};
}

static void put(struct huge_cache *c, struct huge_range r)
{
    struct huge_range evicted;
    assert_false(huge_cache_put(c, r, &evicted));
}

static void ranges_that_touch_are_joined(void **unused)
{
    struct huge_cache c = {0};
    struct huge_range r;
    put(&c, range(0, UNIT, 1));
    put(&c, range(2, UNIT + PAGE, 9));
    put(&c, range(1, UNIT, 3)); /* closes the gap */
    assert_int_equal(c.n, 1);
    assert_int_equal(c.bytes, 3 * UNIT + PAGE);
    assert_true(huge_cache_take(&c, 3 * UNIT, 0, UNIT, &r));
    assert_ptr_equal(r.at, base);
    assert_int_equal(r.bytes, 3 * UNIT);
    assert_int_equal(r.freed_ns, 9);
    assert_int_equal(c.bytes, PAGE);
}

/* Whole ones first, of these the oldest; then what is left of one, the most of it first; never with a page before it. */
static void units_are_taken_one_by_one(void **unused)
{
    struct huge_cache c = {0};
    struct huge_range r = range(20, 2 * UNIT, 1);
    r.lead = PAGE;
    put(&c, r);
    put(&c, range(0, UNIT + PAGE, 7));
    put(&c, range(4, 2 * UNIT + 5 * PAGE, 3));
    static const struct {
        size_t unit, bytes;
    } expected[] = {{4, UNIT}, {5, UNIT}, {0, UNIT}, {6, 5 * PAGE}, {1, PAGE}};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        assert_true(huge_cache_take_unit(&c, &r));
        assert_ptr_equal(r.at, base + expected[i].unit * UNIT);
        assert_int_equal(r.bytes, expected[i].bytes);
        assert_int_equal(r.lead, 0);
    }
    assert_false(huge_cache_take_unit(&c, &r));
    assert_int_equal(c.bytes, 2 * UNIT);
}

static void page_before_a_range_keeps_others_off(void **unused)
{
    struct huge_cache c = {0};
    struct huge_range r = range(1, UNIT, 1);
    put(&c, range(0, UNIT - PAGE, 1));
    r.lead = PAGE;
    put(&c, r);
    put(&c, range(2, UNIT, 1));
    assert_int_equal(c.n, 2);
    assert_false(huge_cache_take(&c, UNIT, PAGE, 4 * UNIT, &r)); /* not aligned so far */
    assert_true(huge_cache_take(&c, UNIT, PAGE, UNIT, &r));
    assert_ptr_equal(r.at, base + UNIT);
    assert_int_equal(r.lead, PAGE);
    assert_false(huge_cache_take(&c, UNIT, PAGE, UNIT, &r)); /* what was cut off has none */
    assert_true(huge_cache_take(&c, UNIT, 0, UNIT, &r));
    assert_ptr_equal(r.at, base + 2 * UNIT);
    assert_int_equal(r.lead, 0);
}

static void best_fit_leaves_large_ranges_whole(void **unused)
{
    struct huge_cache c = {0};
    struct huge_range r;
    put(&c, range(0, 9 * UNIT, 1));
    put(&c, range(10, 3 * UNIT, 1));
    put(&c, range(20, 5 * UNIT, 1));
    assert_true(huge_cache_take(&c, 2 * UNIT + 1, 0, UNIT, &r));
    assert_ptr_equal(r.at, base + 10 * UNIT);
    assert_true(huge_cache_take_largest(&c, 9 * UNIT, &r));
    assert_ptr_equal(r.at, base);
    assert_false(huge_cache_take_largest(&c, 5 * UNIT + 1, &r));
    assert_int_equal(c.bytes, 5 * UNIT);
}

static void oldest_go_first(void **unused)
{
    struct huge_cache c = {0};
    struct huge_range r;
    for (unsigned i = 0; i < HUGE_CACHE_RANGES; i++)
        put(&c, range(2 * i, UNIT, 1000 - i));
    assert_true(huge_cache_put(&c, range(500, UNIT, 1), &r));
    assert_int_equal(r.freed_ns, 1001 - HUGE_CACHE_RANGES);
    assert_int_equal(c.n, HUGE_CACHE_RANGES);
    assert_true(huge_cache_take_old(&c, 2, SIZE_MAX, &r));
    assert_ptr_equal(r.at, base + 500 * UNIT);
    assert_false(huge_cache_take_old(&c, 2, SIZE_MAX, &r));
    assert_true(huge_cache_take_old(&c, UINT64_MAX, SIZE_MAX, &r));
    assert_int_equal(r.freed_ns, 1002 - HUGE_CACHE_RANGES);
}

static void only_as_much_goes_as_must(void **unused)
{
    struct huge_cache c = {0};
    struct huge_range r;
    put(&c, range(0, 5 * UNIT + PAGE, 1));
    assert_true(huge_cache_take_old(&c, 2, UNIT, &r));
    assert_ptr_equal(r.at, base + 4 * UNIT);
    assert_int_equal(r.bytes, UNIT + PAGE);
    assert_int_equal(c.bytes, 4 * UNIT);
    assert_true(huge_cache_take_old(&c, 2, 4 * UNIT, &r));
    assert_int_equal(r.bytes, 4 * UNIT);
    assert_int_equal(c.n, 0);
}

static void place_is_found_where_a_range_begins(void **unused)
{
    struct huge_cache c = {0};
    struct huge_range r;
    put(&c, range(3, 4 * UNIT, 1));
    assert_false(huge_cache_take_at(&c, base + 4 * UNIT, UNIT, &r));
    assert_true(huge_cache_take_at(&c, base + 3 * UNIT, UNIT + 1, &r));
    assert_int_equal(r.bytes, 2 * UNIT);
    assert_true(huge_cache_take_at(&c, base + 5 * UNIT, 3 * UNIT, &r));
    assert_int_equal(r.bytes, 2 * UNIT); /* there is no more */
    assert_int_equal(c.n, 0);
}

/* A model with a byte for each page: 1 where the table has it. */
enum { UNITS = 96 };
static unsigned char model[UNITS * 512];

static void mark(const struct huge_range *r, unsigned char from, unsigned char to)
{
    size_t first = (size_t)(r->at - base) / PAGE;
    assert_int_equal((uintptr_t)r->at % UNIT, 0);
    for (size_t i = first; i < first + r->bytes / PAGE; i++) {
        assert_int_equal(model[i], from);
        model[i] = to;
    }
}

static void table_agrees_with_a_model(void **unused)
{
    unsigned seed = getenv("MEMOIR_TEST_SEED") ? (unsigned)atoi(getenv("MEMOIR_TEST_SEED")) : 4711;
    print_message("seed %u\n", seed);
    struct huge_cache c = {0};
    for (int step = 0; step < 20000; step++) {
        struct huge_range r = {0};
        size_t bytes = PAGE * (1 + (size_t)rand_r(&seed) % 3000);
        bool got = false;
        switch (rand_r(&seed) % 9) {
        case 8:
            got = c.n && huge_cache_take_at(&c, c.ranges[0].at, bytes, &r);
            assert_true(r.bytes < bytes + UNIT);
            break;
        case 0:
            got = huge_cache_take(&c, bytes, 0, UNIT, &r);
            assert_true(!got || (r.bytes >= bytes && r.bytes < bytes + UNIT));
            break;
        case 1:
            got = huge_cache_take_largest(&c, bytes, &r);
            break;
        case 2:
            got = huge_cache_take_old(&c, (uint64_t)step / 2, bytes, &r);
            break;
        default: { /* a free place, if this is one */
            size_t unit = (size_t)rand_r(&seed) % UNITS, pages = 0;
            size_t want = rand_r(&seed) % 2 ? bytes / PAGE : (bytes / PAGE + 511) / 512 * 512;
            while (unit * 512 + pages < sizeof model && !model[unit * 512 + pages] && pages < want)
                pages++;
            if (pages == 0)
                break;
            r = range(unit, pages * PAGE, (uint64_t)step);
            mark(&r, 0, 1);
            got = huge_cache_put(&c, r, &r);
        }
        }
        if (got)
            mark(&r, 1, 0);
        size_t there = 0;
        for (size_t i = 0; i < sizeof model; i++)
            there += step % 16 == 0 && model[i];
        if (step % 16 == 0)
            assert_int_equal(c.bytes, there * PAGE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_that_touch_are_joined),
        cmocka_unit_test(units_are_taken_one_by_one),
        cmocka_unit_test(page_before_a_range_keeps_others_off),
        cmocka_unit_test(best_fit_leaves_large_ranges_whole),
        cmocka_unit_test(oldest_go_first),
        cmocka_unit_test(only_as_much_goes_as_must),
        cmocka_unit_test(place_is_found_where_a_range_begins),
        cmocka_unit_test(table_agrees_with_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
