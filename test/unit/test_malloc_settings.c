/* What MEMOIR_MALLOC may say, and what is made of nonsense. */
#include "malloc/settings.h"

#include <stdio.h>
#include <string.h>

#include "check.h"

static struct malloc_settings parsed(const char *text, const char **ret_bad)
{
    struct malloc_settings s = {.pressure = PRESSURE_SET_AUTO, .keep_bytes = SETTING_AUTO};
    settings_parse(&s, text, ret_bad);
    return s;
}

static void names_numbers_and_units(void **unused)
{
    const char *bad;
    struct malloc_settings s = parsed("account=1,keep=64M,limit=2g,pressure=high,thp=never", &bad);
    assert_null(bad);
    assert_int_equal(s.account, 1);
    assert_int_equal(s.keep_bytes, 64 << 20);
    assert_int_equal(s.limit_bytes, UINT64_C(2) << 30);
    assert_int_equal(s.pressure, PRESSURE_SET_HIGH);
    assert_int_equal(s.thp, THP_NEVER);
    s = parsed("keep=auto", &bad);
    assert_null(bad);
    assert_true(s.keep_bytes == SETTING_AUTO);
    s = parsed("keep=1M,limit=1M,quarantine=1M,keep=auto,limit=auto,quarantine=auto", &bad);
    assert_null(bad);
    assert_true(s.keep_bytes == SETTING_AUTO);
    assert_int_equal(s.limit_bytes, 0);
    assert_int_equal(s.quarantine_bytes, 4 << 20); /* not all that is ever freed */
}

static void nonsense_is_pointed_at_and_the_rest_holds(void **unused)
{
    static const char *const nonsense[] = {
        "account",
        "account=",
        "account=2",
        "account=1x",
        "keep=K",
        "keep=1Q",
        "keep=-1",
        "keep=99999999999G",
        "pressure=much",
        "pressure=",
        "harden=9",
        "=1",
        "accoun=1",
        "account=auto",
        "harden= 1",
        "range=24T",
        "range=",
        "range=0x",
        "range=0xg",
        "range=1000",
        "range=0x11112222333344445",
        "range=0xffffffffffffffff",
        "slot=1048577",
        "slot=0x1",
    };
    for (size_t i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++) {
        char text[128];
        const char *bad = NULL;
        snprintf(text, sizeof(text), "zero_free=1,%s,harden=1", nonsense[i]);
        struct malloc_settings s = parsed(text, &bad);
        assert_ptr_equal(bad, text + strlen("zero_free=1,"));
        assert_int_equal(s.zero_free, 1);
        assert_int_equal(s.harden, 1);
        assert_int_equal(s.account, 0);
    }
}

static void addresses_are_hexadecimal(void **unused)
{
    const char *bad;
    struct malloc_settings s = parsed("range=0x1F0000aB0000,range_bytes=4g,slot=7,slots=9", &bad);
    assert_null(bad);
    assert_true(s.range_base == UINT64_C(0x1f0000ab0000));
    assert_true(s.range_bytes == UINT64_C(4) << 30);
    assert_int_equal(s.slot, 7);
    assert_int_equal(s.slots, 9);
    s = parsed("range=0x1000,range=0", &bad);
    assert_true(!bad && s.range_base == 0);
    s = parsed("range=auto,range_bytes=1M,range_bytes=auto", &bad);
    assert_true(!bad && s.range_base == SETTING_AUTO);
    assert_true(s.range_bytes == UINT64_C(64) << 30);
}

static void empty_parts_are_nothing(void **unused)
{
    const char *bad;
    struct malloc_settings s = parsed(",,account=1,,", &bad);
    assert_null(bad);
    assert_int_equal(s.account, 1);
    parsed("", &bad);
    assert_null(bad);
}

/* Every setting has a name and a line of help, and no two have the same. */
static void the_table_is_whole(void **unused)
{
    for (size_t i = 0; i < settings_count; i++) {
        assert_true(strlen(settings_table[i].name) > 0 && strlen(settings_table[i].help) > 10);
        assert_true(settings_table[i].offset + sizeof(uint64_t) <= sizeof(struct malloc_settings));
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(settings_table[i].name, settings_table[j].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_numbers_and_units),
        cmocka_unit_test(nonsense_is_pointed_at_and_the_rest_holds),
        cmocka_unit_test(addresses_are_hexadecimal),
        cmocka_unit_test(empty_parts_are_nothing),
        cmocka_unit_test(the_table_is_whole),
    };
    return cmocka_run_group_tests_name("malloc_settings", tests, NULL, NULL);
}
