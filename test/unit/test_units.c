/* Sizes and durations, in tables of text and value. */
#include "base/units.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "check.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

static void sizes_print_with_one_decimal(void **unused)
{
    static const struct {
        uint64_t bytes;
        const char *decimal, *binary;
    } cases[] = {
        {0, "0 B", "0 B"},
        {999, "999 B", "999 B"},
        {1000, "1.0 kB", "1000 B"},
        {1024, "1.0 kB", "1.0 KiB"},
        {1049, "1.0 kB", "1.0 KiB"},
        {1050, "1.1 kB", "1.0 KiB"},
        {25500000, "25.5 MB", "24.3 MiB"},
        {999949, "999.9 kB", "976.5 KiB"},
        {999950, "1.0 MB", "976.5 KiB"},
        {UINT64_MAX, "18.4 EB", "16.0 EiB"},
    };
    char text[UNITS_TEXT_MAX];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_string_equal(units_format_bytes(text, cases[i].bytes, UNITS_DECIMAL),
                            cases[i].decimal);
        assert_string_equal(units_format_bytes(text, cases[i].bytes, UNITS_BINARY),
                            cases[i].binary);
    }
}

static void counts_print_with_commas(void **unused)
{
    static const struct {
        uint64_t n;
        const char *text;
    } cases[] = {
        {0, "0"},
        {999, "999"},
        {1000, "1,000"},
        {12345, "12,345"},
        {123456, "123,456"},
        {1234567, "1,234,567"},
        {UINT64_MAX, "18,446,744,073,709,551,615"},
    };
    char text[UNITS_TEXT_MAX];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        memset(text, 'x', sizeof(text));
        assert_string_equal(units_format_count(text, cases[i].n), cases[i].text);
    }
}

static void durations_print_two_figures(void **unused)
{
    static const struct {
        uint64_t ns;
        const char *text;
    } cases[] = {
        {0, "0 ns"},
        {999, "999 ns"},
        {1000, "1.0 us"},
        {999949, "999.9 us"},
        {999950, "1.0 ms"},
        {3200 * NS_PER_MS, "3.2 s"},
        {59940 * NS_PER_MS, "59.9 s"},
        {59960 * NS_PER_MS, "1m"},
        {252 * NS_PER_S, "4m12s"},
        {3599600 * NS_PER_MS, "1h"},
        {(5 * 3600 + 7 * 60 + 59) * NS_PER_S, "5h7m"},
        {(2 * 86400 + 3 * 3600 + 1) * NS_PER_S, "2d3h"},
        {119500 * NS_PER_MS, "2m"},
        {119499 * NS_PER_MS, "1m59s"},
        {86399 * NS_PER_S, "23h59m"},
        {86400 * NS_PER_S, "1d"},
        {25 * 3600 * NS_PER_S, "1d1h"},
        {UINT64_MAX, "213503d23h"},
    };
    char text[UNITS_TEXT_MAX];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_string_equal(units_format_duration(text, cases[i].ns), cases[i].text);
}

static void sizes_are_read(void **unused)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"0", 0},
        {"4096", 4096},
        {"1b", 1},
        {"64K", 65536},
        {"64k", 65536},
        {"64kB", 64000},
        {"64KiB", 65536},
        {"1 GiB", 1u << 30},
        {"25.5MB", 25500000},
        {"0.5K", 512},
        {"1.0001K", 1024},
        {"1.9999999999999999K", 2047},
        {"15E", UINT64_C(15) << 60},
        {"18446744073709551615", UINT64_MAX},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint64_t bytes = 1;
        assert_int_equal(units_parse_bytes(cases[i].text, &bytes), 0);
        assert_true(bytes == cases[i].bytes);
    }
}

static void durations_are_read(void **unused)
{
    static const struct {
        const char *text;
        uint64_t ns;
    } cases[] = {
        {"0", 0},
        {"10s", 10 * NS_PER_S},
        {"1h", 3600 * NS_PER_S},
        {"1.5h", 5400 * NS_PER_S},
        {"1h30m", 5400 * NS_PER_S},
        {"1h 30min", 5400 * NS_PER_S},
        {"250ms", 250 * NS_PER_MS},
        {"5m", 300 * NS_PER_S},
        {"7us", 7 * NS_PER_US},
        {"2 d", 2 * 86400 * NS_PER_S},
        {"1w", 7 * 86400 * NS_PER_S},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint64_t ns = 1;
        assert_int_equal(units_parse_duration(cases[i].text, &ns), 0);
        assert_true(ns == cases[i].ns);
    }
}

static void nonsense_is_refused_and_changes_nothing(void **unused)
{
    static const struct {
        const char *text;
        int bytes_error, duration_error;
    } cases[] = {
        {"", -EINVAL, -EINVAL},
        {" 1", -EINVAL, -EINVAL},
        {"-1", -EINVAL, -EINVAL},
        {"+1s", -EINVAL, -EINVAL},
        {"1x", -EINVAL, -EINVAL},
        {"1.", -EINVAL, -EINVAL},
        {"1.s", -EINVAL, -EINVAL},
        {".5K", -EINVAL, -EINVAL},
        {"1e3", -EINVAL, -EINVAL},
        {"0x10", -EINVAL, -EINVAL},
        {"K", -EINVAL, -EINVAL},
        {"1KB B", -EINVAL, -EINVAL},
        {"1sx", -EINVAL, -EINVAL},
        {"1s2", -EINVAL, -EINVAL},
        {"18446744073709551616", -ERANGE, -ERANGE},
        {"18446744073709551615E", -ERANGE, -EINVAL},
        {"15.9999999999E", 0, -EINVAL},
        {"16E", -ERANGE, -EINVAL},
        {"700000d", -EINVAL, -ERANGE},
        {"213000d 213000d", -EINVAL, -ERANGE},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint64_t bytes = 77, ns = 77;
        assert_int_equal(units_parse_bytes(cases[i].text, &bytes), cases[i].bytes_error);
        assert_int_equal(units_parse_duration(cases[i].text, &ns), cases[i].duration_error);
        assert_true(cases[i].bytes_error == 0 || bytes == 77);
        assert_true(cases[i].duration_error == 0 || ns == 77);
    }
}

static void bare_number_is_no_duration(void **unused)
{
    uint64_t ns = 77;
    assert_int_equal(units_parse_duration("10", &ns), -EINVAL);
    assert_int_equal(ns, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_print_with_one_decimal),
        cmocka_unit_test(counts_print_with_commas),
        cmocka_unit_test(durations_print_two_figures),
        cmocka_unit_test(sizes_are_read),
        cmocka_unit_test(durations_are_read),
        cmocka_unit_test(nonsense_is_refused_and_changes_nothing),
        cmocka_unit_test(bare_number_is_no_duration),
    };
    return cmocka_run_group_tests_name("units", tests, NULL, NULL);
}
