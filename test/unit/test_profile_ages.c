/* Blocks by age and size. */
#include "profile/ages.h"

#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "check.h"

static void blocks_fall_where_their_age_and_size_begin(void **unused)
{
    struct ages ages = {0};
    ages_add(&ages, 0, 0);
    ages_add(&ages, NS_PER_S - 1, 31);
    ages_add(&ages, NS_PER_S, 32);
    ages_add(&ages, 4 * NS_PER_S, 63);
    ages_add(&ages, UINT64_MAX, UINT64_MAX);
    assert_int_equal(ages.blocks[0][0], 2);
    assert_int_equal(ages.bytes[0][0], 31);
    assert_int_equal(ages.blocks[1][1], 2);
    assert_int_equal(ages.bytes[1][1], 95);
    assert_int_equal(ages.blocks[AGES_ROWS - 1][AGES_COLUMNS - 1], 1);
    ages_add(&ages, UINT64_MAX, 1); /* who lies about sizes makes no sum small */
    assert_int_equal(ages.all_bytes, UINT64_MAX);
    assert_int_equal(ages.all_blocks, 6);
}

static void bounds_grow(void **unused)
{
    assert_int_equal(ages_begin_s[0], 0);
    assert_int_equal(ages_begin_bytes[0], 0);
    for (int i = 1; i < AGES_ROWS; i++)
        assert_true(ages_begin_s[i] > ages_begin_s[i - 1]);
    for (int i = 1; i < AGES_COLUMNS; i++)
        assert_true(ages_begin_bytes[i] > ages_begin_bytes[i - 1]);
}

static void as_json_rows_are_ages(void **unused)
{
    struct ages ages = {0};
    struct buffer out = BUFFER_INIT(1 << 16);
    struct json json;
    ages_add(&ages, 2 * NS_PER_S, 40);
    json_init(&json, &out);
    json_object_begin(&json);
    ages_json(&ages, &json);
    json_object_end(&json);
    assert_int_equal(json_finish(&json), 0);
    assert_non_null(strstr(buffer_string(&out), "\"ages\":[0,1,5,"));
    assert_non_null(
        strstr(buffer_string(&out), "\"blocks\":[[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],[0,1,0,0,"));
    assert_non_null(strstr(buffer_string(&out), "\"live_blocks\":1,\"live\":40}"));
    buffer_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_fall_where_their_age_and_size_begin),
        cmocka_unit_test(bounds_grow),
        cmocka_unit_test(as_json_rows_are_ages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
