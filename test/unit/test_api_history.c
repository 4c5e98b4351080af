/* Ranges of the history as the HTTP API has them: moments, steps, and which process a PID means. */
#include "daemon/api_history.h"

#include <errno.h>
#include <string.h>

#include "base/buffer.h"
#include "base/json.h"
#include "check.h"
#include "history/read.h"
#include <memoir/memoir.h>

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
    for (uint64_t range = 1; range < UINT64_C(4000000000); range = range * 3 + 1)
        for (uint64_t points = 1; points <= 5000; points *= 10)
            assert_true((range + read_step(range, points) - 1) / read_step(range, points) <=
                        points + 1);
}

static void check(const struct read_result *result, uint64_t start_s, const char *expected)
{
    struct read_line lines[8];
    struct read_result copy = *result;
    memcpy(lines, result->lines, result->n_lines * sizeof(*lines));
    copy.lines = lines;
    struct buffer out = BUFFER_INIT(1 << 16);
    struct json json;
    json_init(&json, &out);
    json_object_begin(&json);
    read_choose_process(&copy, start_s);
    history_json(&copy, "here", &json);
    json_object_end(&json);
    assert_int_equal(json_finish(&json), 0);
    assert_string_equal(buffer_string(&out), expected);
    buffer_release(&out);
}

static void of_two_processes_with_one_pid_one_is_told(void **unused)
{
    struct read_point points[][2] = {{{true, 10, 12}, {false, 0, 0}},
                                     {{false, 0, 0}, {true, 7, 9}},
                                     {{true, 1, 1}, {true, 2, 2}}};
    struct read_line lines[] = {
        {.began_s = 100, .start_ticks = 1, .points = points[0]},
        {.began_s = 200, .start_ticks = 2, .points = points[1]},
        {.began_s = 200,
         .start_ticks = 2,
         .on_device = true,
         .ordinal = 1,
         .device = "Card",
         .space = MEMOIR_SPACE_DRAM,
         .points = points[2]},
    };
    struct read_result result = {.since_s = 1000,
                                 .until_s = 1020,
                                 .step_s = 10,
                                 .n_steps = 2,
                                 .lines = lines,
                                 .n_lines = 3,
                                 .oldest_s = 50};
    static const char last[] =
        "{\"from\":1000,\"to\":1020,\"step\":10,\"t\":[1000,1010],\"series\":["
        "{\"name\":\"rss\",\"kind\":\"bytes\",\"last\":[null,7],\"max\":[null,9]},"
        "{\"name\":\"device.1.dram\",\"kind\":\"bytes\",\"ordinal\":1,\"device\":\"Card\","
        "\"device_id\":\"1 Card@here\",\"space\":\"dram\",\"last\":[1,2],\"max\":[1,2]}],\"oldest\":50,\"damaged\":0}";
    static const char first[] =
        "{\"from\":1000,\"to\":1020,\"step\":10,\"t\":[1000,1010],\"series\":["
        "{\"name\":\"rss\",\"kind\":\"bytes\",\"last\":[10,null],\"max\":[12,null]}],"
        "\"oldest\":50,\"damaged\":0}";
    check(&result, 0, last);
    check(&result, 199, last);
    check(&result, 101, first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moments_are_seconds_or_times_before_now),
        cmocka_unit_test(steps_are_of_a_usual_length_and_few_enough),
        cmocka_unit_test(of_two_processes_with_one_pid_one_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
