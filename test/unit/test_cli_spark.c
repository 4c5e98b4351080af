/* Charts of one line. */
#include <string.h>

#include "base/buffer.h"
#include "check.h"
#include "cli/spark.h"

static void assert_chart(bool utf8, const struct spark_point *points, size_t n, uint64_t top,
                         const char *chart)
{
    struct buffer out = BUFFER_INIT(1024);
    spark_append(&out, utf8, points, n, top);
    assert_string_equal(buffer_string(&out), chart);
    buffer_release(&out);
}

static void height_follows_the_value(void **state)
{
    const struct spark_point points[] = {{true, 0},  {true, 1},  {true, 20}, {true, 40}, {true, 60},
                                         {true, 75}, {true, 90}, {true, 99}, {true, 100}};
    assert_chart(true, points, 9, 100, "▁▂▃▄▅▆▇▇█");
    assert_chart(false, points, 9, 100, "_.:-=+**#");
}

static void gaps_are_blank_and_nothing_is_the_lowest(void **state)
{
    const struct spark_point points[] = {{false, 0}, {true, 0}, {false, 9}, {true, 5}};
    assert_chart(true, points, 4, 5, " ▁ █");
    assert_chart(false, points, 4, 5, " _ #");
    assert_chart(false, points, 0, 0, "");
}

static void smallest_value_is_seen_and_the_largest_does_not_overflow(void **state)
{
    const struct spark_point points[] = {{true, 1}, {true, UINT64_MAX - 1}, {true, UINT64_MAX}};
    assert_chart(false, points, 3, UINT64_MAX, ".*#");
    /* More than the top is drawn as the top. */
    const struct spark_point more[] = {{true, 7}};
    assert_chart(false, more, 1, 3, "#");
    assert_chart(false, more, 1, 0, "_");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(height_follows_the_value),
        cmocka_unit_test(gaps_are_blank_and_nothing_is_the_lowest),
        cmocka_unit_test(smallest_value_is_seen_and_the_largest_does_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
