/* Moments as people say them. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "check.h"
#include "cli/when.h"

/* 2026-11-15 12:34:56 UTC, a Sunday. */
enum { NOW = 1794746096, DAY = 86400 };

static void assert_when(const char *text, uint64_t expected)
{
    uint64_t s = 0;
    assert_int_equal(when_parse(text, NOW, &s), 0);
    assert_int_equal(s, expected);
}

static int setup(void **state)
{
    setenv("TZ", "UTC", 1);
    tzset();
    return 0;
}

static void durations_are_ago(void **state)
{
    assert_when("90s", NOW - 90);
    assert_when("1h30m", NOW - 5400);
    assert_when("7d", NOW - 7 * DAY);
    assert_when("0", NOW);
}

static void words_and_numbers(void **state)
{
    assert_when("now", NOW);
    assert_when("today", NOW - NOW % DAY);
    assert_when("yesterday", NOW - NOW % DAY - DAY);
    assert_when("@1700000000", 1700000000);
}

static void clock_is_today_or_else_yesterday(void **state)
{
    uint64_t midnight = NOW - NOW % DAY;
    assert_when("12:30", midnight + 12 * 3600 + 30 * 60);
    assert_when("12:30:15", midnight + 12 * 3600 + 30 * 60 + 15);
    assert_when("23:00", midnight - DAY + 23 * 3600);
}

static void dates_in_all_forms(void **state)
{
    uint64_t midnight = NOW - NOW % DAY;
    assert_when("2026-11-15", midnight);
    assert_when("2026-11-14 10:00", midnight - 14 * 3600);
    assert_when("2026-11-14T10:00:07", midnight - 14 * 3600 + 7);
}

static void local_time_counts(void **state)
{
    setenv("TZ", "EST5", 1);
    tzset();
    assert_when("2026-11-15 07:34:56", NOW);
    assert_when("07:34", NOW - 56);
    assert_when("2026-11-15T12:34:56Z", NOW); /* but for UTC, which JSON documents have */
    assert_when("2026-11-15T12:34:56.789Z", NOW);
    setup(NULL);
}

static void nonsense_is_refused(void **state)
{
    static const char *const texts[] = {"",
                                        "soon",
                                        "5",
                                        "1x",
                                        "25:00",
                                        "12:3x",
                                        "@",
                                        "@1x",
                                        "12:",
                                        "2026-13-01",
                                        "2026-1-1-1",
                                        "-1h",
                                        "1h -",
                                        "@-5",
                                        "noon ",
                                        "2026-11-15Z",
                                        "2026-11-15T12:34:56.Z",
                                        "2026-11-15T12:34:56Zulu"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        uint64_t s = 42;
        assert_int_equal(when_parse(texts[i], NOW, &s), -EINVAL);
        assert_int_equal(s, 42);
    }
    uint64_t s = 42;
    assert_int_equal(when_parse("3000w", NOW, &s), -ERANGE);
    assert_int_equal(when_parse("@99999999999999999999", NOW, &s), -ERANGE);
    assert_int_equal(s, 42);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_are_ago),
        cmocka_unit_test(words_and_numbers),
        cmocka_unit_test(clock_is_today_or_else_yesterday),
        cmocka_unit_test(dates_in_all_forms),
        cmocka_unit_test(local_time_counts),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
