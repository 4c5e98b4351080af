/* Line tables of CPython, as its compiler wrote them (the bytes are those of real functions), and bytes that
 * are none. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "site/python_layout.h"
#include "site/python_lines.h"

/* Behind the table lies nothing that may be read: sanitizers look. */
static uint32_t line_in(unsigned kind, const void *bytes, size_t len, int64_t at, uint32_t first)
{
    uint8_t *table = malloc(len ? len : 1);
    assert_non_null(table);
    memcpy(table, bytes, len);
    size_t used = SIZE_MAX;
    uint32_t line = python_line(kind, table, len, at, first, &used);
    assert_true(used <= len);
    /* What decides is what was used: cut there, the answer is the same. */
    size_t again;
    assert_int_equal(python_line(kind, table, used, at, first, &again), line);
    free(table);
    return line;
}

#define LINE(kind, bytes, at, first) line_in(kind, bytes, sizeof(bytes) - 1, at, first)

/* def f(a): / x = 1 / y = 2 / return (x + / y), beginning at line 10 */
static void pairs_of_3_9_hold_from_where_they_are_reached(void **unused)
{
    static const char table[] = "\x00\x01\x04\x01\x04\x01\x02\x01\xff\x00\x05\xff";
    const unsigned kind = PYTHON_LINES_PAIRS;
    assert_int_equal(LINE(kind, table, 0, 10), 11);
    assert_int_equal(LINE(kind, table, 3, 10), 11);
    assert_int_equal(LINE(kind, table, 4, 10), 12);
    assert_int_equal(LINE(kind, table, 8, 10), 13);
    assert_int_equal(LINE(kind, table, 10, 10), 14);
    assert_int_equal(LINE(kind, table, 10 + 254, 10), 14);
    assert_int_equal(LINE(kind, table, 10 + 255 + 5, 10), 13); /* a line before */
    assert_int_equal(LINE(kind, table, -1, 10), 10);
    assert_int_equal(LINE(kind, "", 4, 10), 10);
}

static void ranges_of_3_10_change_the_line_first(void **unused)
{
    static const char table[] = "\x04\x01\x04\x01\x02\x01\x02\x80\x04\xff";
    const unsigned kind = PYTHON_LINES_RANGES;
    assert_int_equal(LINE(kind, table, 0, 10), 11);
    assert_int_equal(LINE(kind, table, 6, 10), 12);
    assert_int_equal(LINE(kind, table, 8, 10), 13);
    assert_int_equal(LINE(kind, table, 10, 10), 13); /* has no line: the last one */
    assert_int_equal(LINE(kind, table, 12, 10), 12);
    assert_int_equal(LINE(kind, table, -2, 10), 10);
}

static void locations_of_3_11_are_of_five_forms(void **unused)
{
    static const char table[] = "\x80\x00"                 /* 1 unit, same line, short */
                                "\xd9\x04\x05"             /* 2 units, one line on */
                                "\xe0\x0a\x02"             /* 1 unit, two lines on */
                                "\xe8\x03"                 /* 1 unit, no columns: one line back */
                                "\xf0\x48\x03\x01\x05\x07" /* 1 unit, long: 100 lines on */
                                "\xf8"                     /* 1 unit without a line */
                                "\x80\x00";
    const unsigned kind = PYTHON_LINES_LOCATIONS;
    assert_int_equal(LINE(kind, table, 0, 10), 10);
    assert_int_equal(LINE(kind, table, 2, 10), 11);
    assert_int_equal(LINE(kind, table, 4, 10), 11);
    assert_int_equal(LINE(kind, table, 6, 10), 13);
    assert_int_equal(LINE(kind, table, 8, 10), 12);
    assert_int_equal(LINE(kind, table, 10, 10), 112);
    assert_int_equal(LINE(kind, table, 12, 10), 112);
    assert_int_equal(LINE(kind, table, 14, 10), 112);
    assert_int_equal(LINE(kind, table, -2, 10), 10);
}

static void garbage_ends_the_search(void **unused)
{
    uint8_t bytes[64];
    uint32_t state = 1;
    for (int round = 0; round < 100000; round++) {
        size_t len = round % sizeof(bytes);
        for (size_t i = 0; i < len; i++)
            bytes[i] = (uint8_t)((state = state * 1664525 + 1013904223) >> 24);
        line_in(round % 3, bytes, len, (int64_t)(state % 300) - 2, 1);
    }
    static const uint8_t endless[32] = {0xe8, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f};
    line_in(PYTHON_LINES_LOCATIONS, endless, sizeof(endless), 1000, 1);
}

static void layouts_are_found_by_version_or_by_size(void **unused)
{
    assert_int_equal(python_layout_of(0x030b02f0)->version, 0x030b);
    assert_int_equal(python_layout_of(0x030d00a1)->version, 0x030d);
    assert_null(python_layout_of(0x030e0000)); /* no guess */
    assert_null(python_layout_of(0x02070000));
    assert_int_equal(python_layout_sized(656)->version, 0x0309);
    assert_null(python_layout_sized(657));
    assert_null(python_layout_sized(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_of_3_9_hold_from_where_they_are_reached),
        cmocka_unit_test(ranges_of_3_10_change_the_line_first),
        cmocka_unit_test(locations_of_3_11_are_of_five_forms),
        cmocka_unit_test(garbage_ends_the_search),
        cmocka_unit_test(layouts_are_found_by_version_or_by_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
