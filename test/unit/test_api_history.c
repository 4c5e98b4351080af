/* Ranges of the history as the HTTP API has them: moments and steps. */
#include "daemon/api_history.h"

#include <errno.h>

#include "check.h"
#include "history/read.h"

enum { NOW = 1790000000 };

static void moments_are_seconds_or_times_before_now(void **unused)
{
    static const struct {
        const char *text;
        uint64_t s;
    } good[] = {
        {"now", NOW},
        {"0", 0},
        {"1789999999", 1789999999},
        {"1789999999.75", 1789999999},
        {"-1h", NOW - 3600},
        {"-90", NOW - 90},
        {"-1h30m", NOW - 5400},
        {"-2d", NOW - 2 * 86400},
        {"-60000w", 0}, /* before 1970 */
    };
    static const char *const bad[] = {"",     "-",  "yesterday", "1h",     "-1x",
                                      "--1h", "-h", "1 2",       "-1h-1h", "1.5x",
                                      " 1",   "+1", "1e9",       "0x10",   "-1.5h"};
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        uint64_t s = 1;
        if (history_moment(good[i].text, NOW, &s) != 0 || s != good[i].s)
            fail_msg("'%s' is %llu", good[i].text, (unsigned long long)s);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        uint64_t s;
        if (history_moment(bad[i], NOW, &s) == 0)
            fail_msg("'%s' should make no sense", bad[i]);
    }
    uint64_t s;
    assert_int_equal(history_moment("99999999999999999999", NOW, &s), -ERANGE);
}

static void steps_are_of_a_usual_length_and_few_enough(void **unused)
{
    assert_int_equal(read_step(60, 300), 1);
    assert_int_equal(read_step(3600, 300), 20);
    assert_int_equal(read_step(86400, 300), 300);
    assert_int_equal(read_step(1, 1), 1);
    /* Years are cut into whole days, and no more of them than are needed. */
    assert_int_equal(read_step(UINT64_C(300) * 86400, 300), 86400);
    assert_int_equal(read_step(UINT64_C(300) * 86400 + 1, 300), 2 * 86400);
    assert_int_equal(read_step(UINT64_C(900) * 86400, 300), 3 * 86400);
    assert_int_equal(read_step(UINT64_C(901) * 86400, 300), 4 * 86400);
    assert_int_equal(read_step(UINT64_C(10) * 86400, 0), 10 * 86400);
    for (uint64_t range = 1; range < UINT64_C(4000000000); range = range * 3 + 1)
        for (uint64_t points = 1; points <= 5000; points *= 10)
            assert_true((range + read_step(range, points) - 1) / read_step(range, points) <=
                        points);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moments_are_seconds_or_times_before_now),
        cmocka_unit_test(steps_are_of_a_usual_length_and_few_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
