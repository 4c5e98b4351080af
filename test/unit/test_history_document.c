/* The document of history: each series with the names that it has, and an array of values over one list of times. */
#include "history/document.h"

#include <errno.h>
#include <string.h>

#include <memoir/memoir.h>

#include "base/clock.h"
#include "check.h"
#include "history/read.h"
#include "history/table.h"
#include "history_fixture.h"
#include "query/query.h"

enum { TEXT_MAX = 1 << 20 };

static const char *name_of(uint32_t uid, void *context)
{
    return uid == 1000 ? "alice" : NULL;
}

/* The fields between "series" and "oldest"; the rest is compared with `head` and `tail`. */
static void check_document(struct history_world *history, uint32_t viewer, const char *where,
                           const char *expected)
{
    struct query_world world = {.history = history,
                                .sees_all = !viewer,
                                .viewer_uid = viewer,
                                .node = "here",
                                .user_name = name_of};
    struct query_spec spec = {
        .table = history_table.name, .where = where, .show = history_document_show};
    struct query *query = NULL;
    struct query_error error;
    struct history_document document;
    struct buffer out = BUFFER_INIT(TEXT_MAX);
    struct json json;
    assert_int_equal(query_new(&spec, &query, &error), 0);
    history_document_init(&document, TEXT_MAX);
    assert_int_equal(history_document_fill(&document, query, &world), 0);
    json_init(&json, &out);
    json_object_begin(&json);
    history_document_json(&document, &world, &json);
    json_object_end(&json);
    assert_int_equal(json_finish(&json), 0);
    assert_string_equal(buffer_string(&out), expected);
    buffer_release(&out);
    history_document_release(&document);
    query_free(query);
}

#define HEAD   "{\"from\":1000,\"to\":1030,\"step\":10,\"t\":[1000,1010,1020],\"series\":["
#define TAIL   "],\"oldest\":50,\"damaged\":3}"
#define VALUES "\"last\":[null,5,7],\"max\":[null,6,9]}"

/* One line with two values, as a reading by `by`. */
static void check_line(enum read_by by, bool blocks, const struct read_line *line,
                       const char *expected)
{
    struct read_point points[] = {{0}, {true, 9, 5, 6}, {true, 9, 7, 9}};
    struct read_line lines[] = {*line};
    struct read_result result = {.by = by,
                                 .since_s = 1000,
                                 .until_s = 1030,
                                 .step_s = 10,
                                 .n_steps = 3,
                                 .lines = lines,
                                 .n_lines = 1,
                                 .oldest_s = 50,
                                 .damaged = 3};
    lines[0].points = points;
    lines[0].last_s = 1029;
    struct history_world history = history_of_reading(&result, blocks);
    struct buffer text = BUFFER_INIT(TEXT_MAX);
    buffer_printf(&text, HEAD "%s" TAIL, expected);
    check_document(&history, 0, NULL, buffer_string(&text));
    buffer_release(&text);
}

static void a_series_has_the_names_that_its_group_leaves(void **unused)
{
    struct read_line line = {.pid = 7,
                             .began_s = 86400,
                             .uid = 1000,
                             .program = "train",
                             .processes = 1,
                             .space = MEMOIR_SPACE_HEAP};
    check_line(READ_BY_PROCESS, false, &line,
               "{\"name\":\"heap\",\"kind\":\"bytes\",\"pid\":7,"
               "\"start\":\"1970-01-02T00:00:00.000Z\",\"user\":\"alice\",\"uid\":1000,"
               "\"program\":\"train\"," VALUES);
    line = (struct read_line){.pid = 7, .uid = 1001, .processes = 1, .node = "far"};
    check_line(READ_BY_PROCESS, true, &line,
               "{\"name\":\"all\",\"kind\":\"number\",\"pid\":7,\"user\":\"1001\",\"uid\":1001,"
               "\"node\":\"far\"," VALUES);
    line = (struct read_line){.uid = 1000, .processes = 12};
    check_line(READ_BY_USER, false, &line,
               "{\"name\":\"rss\",\"kind\":\"bytes\",\"user\":\"alice\",\"uid\":1000,"
               "\"processes\":12," VALUES);
    line = (struct read_line){.program = "train", .processes = 2, .what = READ_PSS};
    check_line(
        READ_BY_PROGRAM, false, &line,
        "{\"name\":\"pss\",\"kind\":\"bytes\",\"program\":\"train\",\"processes\":2," VALUES);
}

static void a_series_of_a_device_has_its_identity(void **unused)
{
    struct read_line line = {.on_device = true,
                             .ordinal = 3,
                             .device = "Card",
                             .bus = "0000:01:00.0",
                             .space = MEMOIR_SPACE_DRAM,
                             .has_capacity = true,
                             .capacity = 100};
    check_line(READ_BY_DEVICE, false, &line,
               "{\"name\":\"device.3.dram\",\"kind\":\"bytes\",\"ordinal\":3,"
               "\"device_name\":\"Card\",\"device_id\":\"0000:01:00.0@here\",\"space\":\"dram\","
               "\"capacity\":100," VALUES);
    line = (struct read_line){
        .on_device = true, .ordinal = -1, .device_uid = "UID", .space = MEMOIR_SPACE_L1};
    check_line(
        READ_BY_DEVICE, true, &line,
        "{\"name\":\"l1\",\"kind\":\"number\",\"device_id\":\"UID\",\"space\":\"l1\"," VALUES);
    line = (struct read_line){.space = MEMOIR_SPACE_HEAP}; /* of the host */
    check_line(READ_BY_DEVICE, false, &line, "{\"name\":\"heap\",\"kind\":\"bytes\"," VALUES);
}

static void pressure_is_in_percent(void **unused)
{
    struct read_line line = {.what = READ_PRESSURE, .space = HISTORY_PRESSURE_SOME};
    check_line(READ_BY_DEVICE, false, &line,
               "{\"name\":\"pressure\",\"kind\":\"percent\",\"last\":[null,0.05,0.07],"
               "\"max\":[null,0.06,0.09]}");
    line = (struct read_line){.what = READ_SYSTEM, .space = HISTORY_SYSTEM_TOTAL};
    check_line(READ_BY_DEVICE, false, &line, "{\"name\":\"total\",\"kind\":\"bytes\"," VALUES);
}

/* A series has its own points only, not those that are left of the one before. */
static void series_of_different_length_share_the_times(void **unused)
{
    struct read_point all[] = {{true, 0, 1, 2}, {true, 0, 3, 4}, {true, 0, 5, 6}},
                      first[] = {{true, 0, 7, 8}, {0}, {0}}, last[] = {{0}, {0}, {true, 0, 9, 10}};
    struct read_line lines[] = {{.points = all}, {.points = first}, {.points = last}};
    struct read_result result = {
        .until_s = 30, .step_s = 10, .n_steps = 3, .lines = lines, .n_lines = 3};
    struct history_world history = history_of_reading(&result, false);
    check_document(&history, 0, NULL,
                   "{\"from\":0,\"to\":30,\"step\":10,\"t\":[0,10,20],\"series\":["
                   "{\"name\":\"rss\",\"kind\":\"bytes\",\"last\":[1,3,5],\"max\":[2,4,6]},"
                   "{\"name\":\"rss\",\"kind\":\"bytes\",\"last\":[7,null,null],"
                   "\"max\":[8,null,null]},"
                   "{\"name\":\"rss\",\"kind\":\"bytes\",\"last\":[null,null,9],"
                   "\"max\":[null,null,10]}],\"oldest\":null,\"damaged\":0}");
}

static void nothing_is_a_document_too(void **unused)
{
    struct history_world history = {
        .path = "/dev/shm/memoir-no-such-file", .since_s = 13, .until_s = 31, .step_s = 10};
    check_document(&history, 0, NULL,
                   "{\"from\":10,\"to\":40,\"step\":10,\"t\":[10,20,30],\"series\":[],"
                   "\"oldest\":null,\"damaged\":0}");
}

/* ---- from a file ---- */

#define T0 "1800000000"
static_assert(FIXTURE_T0 == 1800000000, "of the texts");

static void series_that_are_asked_for_are_read(void **unused)
{
    char dir[] = "/dev/shm/memoir-document-XXXXXX", path[64], command[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/history.db", dir);
    fixture_record(path, 0);
    struct history_world history = {
        .path = path, .since_s = FIXTURE_T0, .until_s = FIXTURE_T0 + 2, .step_s = 1, .pid = 1001};
    static const char head[] =
        "{\"from\":" T0 ",\"to\":1800000002,\"step\":1,\"t\":[" T0 ",1800000001],\"series\":[",
                      tail[] = "],\"oldest\":" T0 ",\"damaged\":0}";
    static const char rss[] =
        "{\"name\":\"rss\",\"kind\":\"bytes\",\"pid\":1001,"
        "\"start\":\"2027-01-15T07:58:20.000Z\",\"user\":\"1001\","
        "\"uid\":1001,%s\"last\":[1010000,1010100],\"max\":[1010000,1010100]}";
    static const struct {
        uint32_t viewer;
        const char *program;
    } cases[] = {{0, "\"program\":\"serve\","},
                 {1001, "\"program\":\"serve\","},
                 {1002, ""}}; /* the name of a process that ended is its owner's */
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct buffer text = BUFFER_INIT(TEXT_MAX);
        buffer_append_str(&text, head);
        buffer_printf(&text, rss, cases[i].program);
        buffer_append_str(&text, tail);
        check_document(&history, cases[i].viewer, "of=process and series=rss and pid=1001",
                       buffer_string(&text));
        buffer_release(&text);
    }
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

static void a_document_past_its_limit_is_an_error(void **unused)
{
    struct read_line line = {.points = (struct read_point[]){{0}}};
    struct read_result result = {
        .until_s = 10, .step_s = 10, .n_steps = 1, .lines = &line, .n_lines = 1};
    struct history_world history = history_of_reading(&result, false);
    struct query_world world = {.history = &history, .sees_all = true};
    struct query_spec spec = {.table = history_table.name, .show = history_document_show};
    struct query *query = NULL;
    struct query_error error;
    assert_int_equal(query_new(&spec, &query, &error), 0);
    static const char whole[] =
        "[{\"name\":\"rss\",\"kind\":\"bytes\",\"last\":[null],\"max\":[null]}]";
    for (size_t limit = 1; limit <= strlen(whole); limit++) {
        struct history_document document;
        history_document_init(&document, limit);
        assert_int_equal(history_document_fill(&document, query, &world),
                         limit < strlen(whole) ? -ENOBUFS : 0);
        if (limit == strlen(whole))
            assert_string_equal(buffer_string(&document.text), whole);
        history_document_release(&document);
    }
    query_free(query);
}

static int setup(void **state)
{
    return query_table_register(&history_table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_series_has_the_names_that_its_group_leaves),
        cmocka_unit_test(a_series_of_a_device_has_its_identity),
        cmocka_unit_test(pressure_is_in_percent),
        cmocka_unit_test(series_of_different_length_share_the_times),
        cmocka_unit_test(nothing_is_a_document_too),
        cmocka_unit_test(series_that_are_asked_for_are_read),
        cmocka_unit_test(a_document_past_its_limit_is_an_error),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
