/* Ranges of the history as the HTTP API has them: moments, steps, and which process a PID means. */
#include "daemon/api_history.h"

#include <errno.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "check.h"
#include "history/read.h"
#include "history/table.h"
#include "query/query.h"

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

enum { COLUMNS = 10 }; /* of history_layout_show */

struct series {
    const char *series, *measure, *device_name, *device_id, *space;
    uint64_t start_s, ordinal;
    bool numbered;
    struct query_point last[2], max[2];
    size_t n;
};

static void put_text(struct query_value *to, const char *text)
{
    if (text)
        query_set_text(to, text);
}

static void layout_add(struct history_layout *layout, const struct history_world *time,
                       const struct series *s)
{
    struct query_value values[COLUMNS] = {0};
    put_text(&values[0], s->series);
    put_text(&values[1], s->measure);
    if (s->numbered)
        query_set_number(&values[2], s->ordinal);
    put_text(&values[3], s->device_name);
    put_text(&values[4], s->device_id);
    put_text(&values[5], s->space);
    query_set_number(&values[7], s->start_s * NS_PER_S);
    query_set_points(&values[8], s->last, s->n);
    query_set_points(&values[9], s->max, s->n);
    assert_int_equal(history_layout_add(layout, values, time), 0);
}

#define AT(s) ((s)*NS_PER_S)
static const struct series series[] = {
    {"rss", "bytes", .start_s = 100, .last = {{AT(1000), 10}}, .max = {{AT(1000), 12}}, .n = 1},
    {"rss", "bytes", .start_s = 200, .last = {{AT(1010), 7}}, .max = {{AT(1010), 9}}, .n = 1},
    {"dram", "bytes", "Card", "1 Card@here", "dram", .start_s = 200, .ordinal = 1, .numbered = true,
     .last = {{AT(1000), 1}, {AT(1010), 2}}, .max = {{AT(1000), 1}, {AT(1010), 2}}, .n = 2},
    {"pressure", "percent/100", .start_s = 100, .last = {{AT(1000), 1234}},
     .max = {{AT(1000), 1250}}, .n = 1},
};

static void check_rows(const struct series *rows, size_t n, const struct history_world *time,
                       bool of_process, uint64_t start_s, const char *expected)
{
    struct history_layout layout = {.text = BUFFER_INIT(1 << 16)};
    struct buffer out = BUFFER_INIT(1 << 16);
    struct json json;
    for (size_t i = 0; i < n; i++)
        layout_add(&layout, time, &rows[i]);
    json_init(&json, &out);
    json_object_begin(&json);
    history_layout_json(&layout, time, of_process, start_s, &json);
    json_object_end(&json);
    assert_int_equal(json_finish(&json), 0);
    assert_string_equal(buffer_string(&out), expected);
    history_layout_release(&layout);
    buffer_release(&out);
}

static void check(bool of_process, uint64_t start_s, const char *expected)
{
    static const struct history_world time = {
        .from_s = 1000, .to_s = 1020, .read_step_s = 10, .oldest_s = 50, .damaged = 3};
    check_rows(series, sizeof(series) / sizeof(*series), &time, of_process, start_s, expected);
}

#define HEAD  "{\"from\":1000,\"to\":1020,\"step\":10,\"t\":[1000,1010],\"series\":["
#define FIRST "{\"name\":\"rss\",\"kind\":\"bytes\",\"last\":[10,null],\"max\":[12,null]}"
#define SECOND                                                                               \
    "{\"name\":\"rss\",\"kind\":\"bytes\",\"last\":[null,7],\"max\":[null,9]},"              \
    "{\"name\":\"device.1.dram\",\"kind\":\"bytes\",\"ordinal\":1,\"device_name\":\"Card\"," \
    "\"device_id\":\"1 Card@here\",\"space\":\"dram\",\"last\":[1,2],\"max\":[1,2]}"
#define PRESSURE \
    "{\"name\":\"pressure\",\"kind\":\"percent\",\"last\":[12.34,null],\"max\":[12.5,null]}"
#define TAIL "],\"oldest\":50,\"damaged\":3}"

static void of_two_processes_with_one_pid_one_is_told(void **unused)
{
    check(true, 0, HEAD SECOND TAIL);
    check(true, 199, HEAD SECOND TAIL);
    check(true, 101, HEAD FIRST "," PRESSURE TAIL);
    check(true, 100, HEAD FIRST "," PRESSURE TAIL);
    check(true, 200, HEAD SECOND TAIL);
    check(true, 151, HEAD SECOND TAIL);
    check(true, 150, HEAD FIRST "," PRESSURE TAIL); /* as near: the first */
}

static void rows_share_one_list_of_times(void **unused)
{
    check(false, 0, HEAD FIRST "," SECOND "," PRESSURE TAIL);
}

/* A device may have no number, a number may be of no device, and only one measure is a percentage. */
static void rows_are_called_by_what_is_known_of_them(void **unused)
{
    static const struct history_world time = {.from_s = 0, .to_s = 20, .read_step_s = 10};
    static const struct series rows[] = {
        {"dram", "bytes", "Card", "GPU-1", "dram"},
        {"heap", "bytes", .ordinal = 3, .numbered = true, .last = {{0, 7}}, .max = {{0, 8}},
         .n = 1},
        {"a", "percent/1xx", .last = {{AT(10), 50}}, .max = {{AT(10), 50}}, .n = 1},
        {"b", "percent/1000", .last = {{AT(10), 50}}, .max = {{AT(10), 50}}, .n = 1},
        {"c", NULL},
    };
    check_rows(rows, sizeof(rows) / sizeof(*rows), &time, false, 0,
               "{\"from\":0,\"to\":20,\"step\":10,\"t\":[0,10],\"series\":["
               "{\"name\":\"dram\",\"kind\":\"bytes\",\"device_name\":\"Card\","
               "\"device_id\":\"GPU-1\",\"space\":\"dram\",\"last\":[null,null],"
               "\"max\":[null,null]},"
               "{\"name\":\"heap\",\"kind\":\"bytes\",\"last\":[7,null],\"max\":[8,null]},"
               "{\"name\":\"a\",\"kind\":\"bytes\",\"last\":[null,50],\"max\":[null,50]},"
               "{\"name\":\"b\",\"kind\":\"bytes\",\"last\":[null,50],\"max\":[null,50]},"
               "{\"name\":\"c\",\"kind\":\"bytes\",\"last\":[null,null],\"max\":[null,null]}"
               "],\"oldest\":null,\"damaged\":0}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moments_are_seconds_or_times_before_now),
        cmocka_unit_test(steps_are_of_a_usual_length_and_few_enough),
        cmocka_unit_test(of_two_processes_with_one_pid_one_is_told),
        cmocka_unit_test(rows_share_one_list_of_times),
        cmocka_unit_test(rows_are_called_by_what_is_known_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
