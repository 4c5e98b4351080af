/* The table `history`: the same figures as the reader has, and parts of several machines that add up whatever the order
 * in which they come. */
#include "history/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memoir/memoir.h>
#include <sqlite3.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "check.h"
#include "history/read.h"
#include "history/recorder.h"
#include "history/store.h"
#include "history_file.h"
#include "query/query.h"

enum { T0 = 1800000000 - 1800000000 % 7200, NODES = 3, SECONDS = 150, PROCESSES = 4 };

static char dir[64];

static void path_of(unsigned node, char path[static 128])
{
    snprintf(path, 128, "%s/%u.db", dir, node);
}

static uint64_t rss_of(unsigned node, unsigned p, uint64_t s)
{
    return (node + 1) * 1000000 + p * 10000 + s % 7 * 100;
}

/* Questions are about processes: the host's sum of resident sizes is one row on each machine, and one in the joined
 * file. One second of the processes of some nodes: bit `n` of `nodes` is node n. Each node misses seconds of its own. */
static void second(struct sample *sample, unsigned nodes, uint64_t s)
{
    sample_reset(sample, (T0 + s) * NS_PER_S);
    for (unsigned node = 0; node < NODES; node++)
        for (unsigned p = 0; nodes >> node & 1 && s % 11 != node && p < PROCESSES; p++) {
            struct sample_process *process = sample_add_process(sample);
            process->pid = (pid_t)(1000 * (node + 1) + p);
            process->start_ticks = p + 1;
            process->began_ns = T0 * NS_PER_S;
            process->uid = 100 + p % 2;
            process->has_rss = true;
            process->rss_bytes = rss_of(node, p, s);
            strcpy(process->program, p % 3 ? "train" : "serve");
        }
    sample_totals(sample);
}

static void record(const char *path, unsigned nodes)
{
    struct store_limits limits = {UINT64_C(1) << 30, {3600, 86400, 30 * 86400}};
    struct store *store = NULL;
    struct recorder *recorder = NULL;
    struct sample sample;
    sample_init(&sample);
    assert_int_equal(store_open(path, &limits, &store), 0);
    assert_int_equal(recorder_new(1, 10, &recorder), 0);
    for (uint64_t s = 0; s < SECONDS; s++) {
        second(&sample, nodes, s);
        int r = recorder_add(recorder, &sample);
        if (r == -EAGAIN && (r = recorder_flush(recorder, store, T0 + s)) == 0)
            r = recorder_add(recorder, &sample);
        assert_int_equal(r, 0);
    }
    assert_int_equal(recorder_flush(recorder, store, T0 + SECONDS), 0);
    recorder_free(recorder);
    store_free(store);
    sample_release(&sample);
}

static int setup(void **state)
{
    char path[128];
    strcpy(dir, "/dev/shm/memoir-table-XXXXXX");
    assert_non_null(mkdtemp(dir));
    for (unsigned node = 0; node < NODES; node++) {
        path_of(node, path);
        record(path, 1u << node);
    }
    path_of(NODES, path);
    record(path, (1u << NODES) - 1);
    return query_table_register(&history_table);
}

static int teardown(void **state)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command);
}

static struct query *question(const char *by, const char *where, const char *show, const char *sort)
{
    struct query *query = NULL;
    struct query_error error = {0};
    struct query_spec spec = {
        .table = "history", .by = by, .where = where, .show = show, .sort = sort};
    if (query_new(&spec, &query, &error) < 0)
        fail_msg("%s", error.text);
    return query;
}

static struct query_result *ask(const struct query *query, unsigned node, uint64_t step_s)
{
    char path[128];
    path_of(node, path);
    struct history_world history = {
        .path = path, .since_s = T0, .until_s = T0 + SECONDS, .step_s = step_s};
    struct query_world world = {.history = &history, .sees_all = true, .node = "n"};
    struct query_result *result = NULL;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    assert_int_equal(query_run(query, &world, result), 0);
    assert_int_equal(history.read_step_s, step_s);
    return result;
}

static char *text_of(struct query_result *result)
{
    struct buffer out = BUFFER_INIT(16 << 20);
    assert_int_equal(query_result_finish(result), 0);
    assert_int_equal(query_result_lines(result, &out), 0);
    char *text = strdup(buffer_string(&out));
    buffer_release(&out);
    return text;
}

static const struct {
    const char *by, *where, *show, *sort;
} questions[] = {
    {"user", "of=process", "count,end,max,min,points,peaks", "user"},
    {"program,series", "of=process", "count,points", "program,series"},
    {NULL, "of=process and series=rss", "pid,program,last,points", "pid"},
    {NULL, "of=process and max>2MB", "pid,series,max,steps", "-max,pid"},
    {"of", "of=process", "count,any(program),max(points)", "of"},
};

static void parts_of_three_machines_merge_to_the_joined_one(void **state)
{
    static const unsigned orders[][NODES] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}};
    for (size_t q = 0; q < sizeof(questions) / sizeof(*questions); q++)
        for (uint64_t step_s = 1; step_s <= 60; step_s = step_s == 1 ? 10 : step_s * 6) {
            struct query *query =
                question(questions[q].by, questions[q].where, questions[q].show, questions[q].sort);
            struct query_result *whole = ask(query, NODES, step_s);
            char *expected = text_of(whole);
            for (size_t o = 0; o < sizeof(orders) / sizeof(*orders); o++) {
                struct query_result *into = NULL;
                assert_int_equal(query_result_new(query, 0, &into), 0);
                for (unsigned i = 0; i < NODES; i++) {
                    struct buffer bytes = BUFFER_INIT(16 << 20);
                    struct query_result *part = ask(query, orders[o][i], step_s);
                    assert_int_equal(query_partial_write(part, &bytes), 0);
                    assert_int_equal(query_partial_read(into, bytes.data, bytes.len), 0);
                    query_result_free(part);
                    buffer_release(&bytes);
                }
                char *got = text_of(into);
                assert_string_equal(got, expected);
                free(got);
                query_result_free(into);
            }
            free(expected);
            query_result_free(whole);
            query_free(query);
        }
}

static void rows_have_what_the_reader_has(void **state)
{
    char path[128];
    path_of(1, path);
    struct read_query reading = {
        .since_s = T0, .until_s = T0 + SECONDS, .step_s = 10, .by = READ_BY_PROCESS};
    struct read_result lines = {0};
    assert_int_equal(read_history(path, &reading, &lines), 0);
    struct query *query =
        question(NULL, "of=process and series=rss", "pid,max,last,points,peaks,user", "pid");
    struct query_result *result = ask(query, 1, 10);
    assert_int_equal(query_result_finish(result), 0);
    assert_int_equal(query_result_rows(result), PROCESSES);
    for (size_t i = 0; i < PROCESSES; i++) {
        const struct read_line *line = NULL;
        for (size_t k = 0; k < lines.n_lines; k++)
            if ((uint64_t)lines.lines[k].pid == query_result_value(result, i, 0).number)
                line = &lines.lines[k];
        assert_non_null(line);
        assert_int_equal(query_result_value(result, i, 1).number, line->max);
        assert_int_equal(query_result_value(result, i, 2).number, line->last);
        struct query_value points = query_result_value(result, i, 3),
                           peaks = query_result_value(result, i, 4);
        size_t n = 0;
        for (size_t k = 0; k < lines.n_steps; k++) {
            if (!line->points[k].present)
                continue;
            assert_int_equal(query_point(&points, n).time_ns,
                             (lines.since_s + k * lines.step_s) * NS_PER_S);
            assert_int_equal(query_point(&points, n).value, line->points[k].last);
            assert_int_equal(query_point(&peaks, n++).value, line->points[k].max);
        }
        assert_int_equal(query_points(&points), n);
    }
    query_result_free(result);
    query_free(query);
    read_release(&lines);
}

/* What had ended before the end of the time is in no sum of what there was then. */
static void what_ended_is_not_there_at_the_end(void **state)
{
    struct query *query = question(NULL, "of=process", "pid,last,end", "pid");
    struct query_result *result = ask(query, 0, 1);
    assert_int_equal(query_result_finish(result), 0);
    for (size_t i = 0; i < query_result_rows(result); i++)
        assert_int_equal(query_result_value(result, i, 2).number,
                         query_result_value(result, i, 1).number);
    query_result_free(result);
    query_free(query);
    char path[128];
    snprintf(path, sizeof(path), "%s/ended.db", dir);
    struct store_limits limits = {UINT64_C(1) << 30, {3600, 86400, 30 * 86400}};
    struct store *store = NULL;
    struct recorder *recorder = NULL;
    struct sample sample;
    sample_init(&sample);
    assert_int_equal(store_open(path, &limits, &store), 0);
    assert_int_equal(recorder_new(1, 60, &recorder), 0);
    for (uint64_t s = 0; s < 20; s++) { /* node 1 ends after ten seconds */
        second(&sample, s < 10 ? 1u << 0 | 1u << 1 : 1u << 0, s == 11 ? 12 : s);
        assert_int_equal(recorder_add(recorder, &sample), 0);
    }
    assert_int_equal(recorder_flush(recorder, store, T0 + 20), 0);
    struct history_world history = {.path = path, .since_s = T0, .until_s = T0 + 60, .step_s = 1};
    struct query_world world = {.history = &history, .sees_all = true, .node = "n"};
    query = question("of", "of=process", "count,end", NULL);
    assert_int_equal(query_result_new(query, 0, &result), 0);
    assert_int_equal(query_run(query, &world, result), 0);
    assert_int_equal(query_result_finish(result), 0);
    assert_int_equal(query_result_value(result, 0, 1).number, 2 * PROCESSES);
    uint64_t expected = 0;
    for (unsigned p = 0; p < PROCESSES; p++)
        expected += rss_of(0, p, 19);
    assert_int_equal(query_result_value(result, 0, 2).number, expected);
    query_result_free(result);
    query_free(query);
    recorder_free(recorder);
    store_free(store);
    sample_release(&sample);
}

/* ---- a row of each kind ---- */

static const char *name_of(uint32_t uid, void *context)
{
    return uid == 1000 ? "alice" : NULL;
}

/* Two processes, a device with a known size, the host, the machine and its memory pressure, at T0 and T0 + 1. */
static void record_kinds(const char *path)
{
    struct store_limits limits = {UINT64_C(1) << 30, {3600, 86400, 30 * 86400}};
    struct store *store = NULL;
    struct recorder *recorder = NULL;
    struct sample sample;
    sample_init(&sample);
    assert_int_equal(store_open(path, &limits, &store), 0);
    assert_int_equal(recorder_new(1, 60, &recorder), 0);
    for (uint64_t s = 0; s < 2; s++) {
        sample_reset(&sample, (T0 + s) * NS_PER_S);
        struct sample_device *device = sample_add_device(&sample);
        device->ordinal = 2;
        strcpy(device->name, "card");
        strcpy(device->bus, "0000:01:00.0");
        for (uint32_t p = 0; p < 2; p++) {
            struct sample_process *process = sample_add_process(&sample);
            process->pid = (pid_t)(100 + p);
            process->start_ticks = 5;
            process->began_ns = (T0 - 60) * NS_PER_S;
            process->uid = 1000 + p;
            strcpy(process->program, "shop");
            sample_add_value(&sample, 1, MEMOIR_SPACE_DRAM, HISTORY_BYTES, 1000 + p + s);
            sample_add_value(&sample, 0, MEMOIR_SPACE_HEAP, HISTORY_BLOCKS, 7 + p);
        }
        sample_totals(&sample);
        sample_add_value(&sample, 1, MEMOIR_SPACE_DRAM, HISTORY_BYTES, 2001 + 2 * s);
        sample_add_value(&sample, 1, MEMOIR_SPACE_DRAM, HISTORY_CAPACITY, 9000);
        sample_add_value(&sample, 0, MEMOIR_SPACE_HEAP, HISTORY_BYTES, 50 + s);
        sample_add_value(&sample, 0, HISTORY_SYSTEM_USED, HISTORY_SYSTEM, 400 + s);
        sample_add_value(&sample, 0, HISTORY_PRESSURE_SOME, HISTORY_PRESSURE, 30 + s);
        assert_int_equal(recorder_add(recorder, &sample), 0);
    }
    assert_int_equal(recorder_flush(recorder, store, T0 + 2), 0);
    recorder_free(recorder);
    store_free(store);
    sample_release(&sample);
}

static void check_kind(const char *where, const char *show, uint64_t step_s, uint32_t viewer,
                       const char *expected)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/kinds.db", dir);
    struct history_world history = {
        .path = path, .since_s = T0 + 1, .until_s = T0 + 12, .step_s = step_s};
    struct query_world world = {.history = &history,
                                .sees_all = !viewer,
                                .viewer_uid = viewer,
                                .node = "n",
                                .user_name = name_of};
    struct query *query = question(NULL, where, show, "+pid");
    struct query_result *result = NULL;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    assert_int_equal(query_run(query, &world, result), 0);
    /* The time is answered in whole steps since 1970. */
    assert_int_equal(history.from_s, (T0 + 1) / step_s * step_s);
    assert_int_equal(history.to_s, step_s == 1 ? T0 + 12 : T0 + 20);
    assert_int_equal(history.read_step_s, step_s);
    char *text = text_of(result);
    assert_string_equal(text, expected);
    free(text);
    query_result_free(result);
    query_free(query);
}

static void every_kind_of_series_has_its_names_and_figures(void **state)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/kinds.db", dir);
    record_kinds(path);
    static const char names[] = "of,series,measure,program,user,uid,pid,node";
    check_kind(
        "of=process and measure=bytes", names, 10, 0,
        "{\"of\":\"process\",\"series\":\"dram\",\"measure\":\"bytes\",\"program\":\"shop\",\"user\":\"alice\",\"uid\":1000,\"pid\":100,\"node\":\"n\"}\n"
        "{\"of\":\"process\",\"series\":\"dram\",\"measure\":\"bytes\",\"program\":\"shop\",\"user\":\"1001\",\"uid\":1001,\"pid\":101,\"node\":\"n\"}\n");
    check_kind(
        "of=process and measure=blocks", names, 10, 0,
        "{\"of\":\"process\",\"series\":\"heap\",\"measure\":\"blocks\",\"program\":\"shop\",\"user\":\"alice\",\"uid\":1000,\"pid\":100,\"node\":\"n\"}\n"
        "{\"of\":\"process\",\"series\":\"heap\",\"measure\":\"blocks\",\"program\":\"shop\",\"user\":\"1001\",\"uid\":1001,\"pid\":101,\"node\":\"n\"}\n");
    check_kind(
        "of=device", names, 10, 0,
        "{\"of\":\"device\",\"series\":\"dram\",\"measure\":\"bytes\",\"program\":null,\"user\":null,\"uid\":null,\"pid\":null,\"node\":\"n\"}\n");
    check_kind(
        "of=host", names, 10, 0,
        "{\"of\":\"host\",\"series\":\"heap\",\"measure\":\"bytes\",\"program\":null,\"user\":null,\"uid\":null,\"pid\":null,\"node\":\"n\"}\n");
    check_kind(
        "of=system", names, 10, 0,
        "{\"of\":\"system\",\"series\":\"pressure\",\"measure\":\"percent/100\",\"program\":null,\"user\":null,\"uid\":null,\"pid\":null,\"node\":\"n\"}\n"
        "{\"of\":\"system\",\"series\":\"used\",\"measure\":\"bytes\",\"program\":null,\"user\":null,\"uid\":null,\"pid\":null,\"node\":\"n\"}\n");
    check_kind(
        "of=device",
        "device_id,device_name,device_bus,ordinal,space,capacity,min,max,last,end,steps", 10, 0,
        "{\"device_id\":\"0000:01:00.0@n\",\"device_name\":\"card\",\"device_bus\":\"0000:01:00.0\",\"ordinal\":2,\"space\":\"dram\",\"capacity\":9000,\"min\":2003,\"max\":2003,\"last\":2003,\"end\":2003,\"steps\":1}\n");
    check_kind("of=system", "series,space,ordinal", 10, 0,
               "{\"series\":\"pressure\",\"space\":null,\"ordinal\":null}\n"
               "{\"series\":\"used\",\"space\":null,\"ordinal\":null}\n");
    check_kind("of=process and measure=blocks and pid=100", "series,space,ordinal", 10, 0,
               "{\"series\":\"heap\",\"space\":\"heap\",\"ordinal\":null}\n");
    check_kind("of=device", "min,max,last,steps", 1, 0,
               "{\"min\":2003,\"max\":2003,\"last\":2003,\"steps\":1}\n");
    check_kind(
        "of=host", "device_id,device_name,device_bus,ordinal,space,capacity,last", 10, 0,
        "{\"device_id\":null,\"device_name\":null,\"device_bus\":null,\"ordinal\":null,\"space\":\"heap\",\"capacity\":null,\"last\":51}\n");
    check_kind(
        "of=process and measure=bytes", "pid,start,last_time,last", 10, 0,
        "{\"pid\":100,\"start\":\"2027-01-15T07:59:00.000Z\",\"last_time\":\"2027-01-15T08:00:01.000Z\",\"last\":1001}\n"
        "{\"pid\":101,\"start\":\"2027-01-15T07:59:00.000Z\",\"last_time\":\"2027-01-15T08:00:01.000Z\",\"last\":1002}\n");
    check_kind("of=system and measure=\"percent/100\"", "series,last", 10, 0,
               "{\"series\":\"pressure\",\"last\":31}\n");
    check_kind("of=system and measure=bytes", "series,last", 10, 0,
               "{\"series\":\"used\",\"last\":401}\n");
    check_kind("measure=\"percent/100\" and of!=system", "series,last", 10, 0, "");
    check_kind("of=process and measure=bytes", "pid,last", 10, 1001,
               "{\"pid\":100,\"last\":1001}\n"
               "{\"pid\":101,\"last\":1002}\n");
}

/* A device that programs have no number for, and the resident size, which is of no space. */
static void what_a_series_has_not_is_absent(void **state)
{
    char path[128];
    sqlite3 *db = NULL;
    snprintf(path, sizeof(path), "%s/numberless.db", dir);
    record_kinds(path);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db,
                     "UPDATE device SET ordinal=-1; UPDATE series SET metric=1, space=0 "
                     "WHERE process=0 AND device=0 AND metric=2",
                     NULL, NULL, NULL),
        SQLITE_OK);
    sqlite3_close(db);
    struct history_world history = {
        .path = path, .since_s = T0 + 1, .until_s = T0 + 12, .step_s = 10};
    struct query_world world = {.history = &history, .sees_all = true, .node = "n"};
    static const struct {
        const char *where, *expected;
    } cases[] = {
        {"of=device", "{\"series\":\"dram\",\"ordinal\":null,\"space\":\"dram\",\"last\":2003}\n"},
        {"of=host", "{\"series\":\"rss\",\"ordinal\":null,\"space\":null,\"last\":51}\n"}};
    for (size_t i = 0; i < 2; i++) {
        struct query *query = question(NULL, cases[i].where, "series,ordinal,space,last", NULL);
        struct query_result *result = NULL;
        assert_int_equal(query_result_new(query, 0, &result), 0);
        assert_int_equal(query_run(query, &world, result), 0);
        char *text = text_of(result);
        assert_string_equal(text, cases[i].expected);
        free(text);
        query_result_free(result);
        query_free(query);
    }
}

static void a_world_without_history_has_no_rows(void **state)
{
    struct query *query = question(NULL, NULL, NULL, NULL);
    struct query_result *result = NULL;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    assert_int_equal(query_run(query, &(struct query_world){.sees_all = true}, result), 0);
    struct history_world history = {
        .path = "/dev/shm/memoir-no-such-file", .since_s = 13, .until_s = 40, .step_s = 10};
    struct query_world world = {.history = &history, .sees_all = true};
    assert_int_equal(query_run(query, &world, result), 0);
    assert_int_equal(history.from_s, 10);
    assert_int_equal(history.to_s, 40);
    assert_int_equal(history.oldest_s, 0);
    history.step_s = 0; /* seconds */
    assert_int_equal(query_run(query, &world, result), 0);
    assert_int_equal(history.read_step_s, 1);
    assert_int_equal(history.from_s, 13);
    assert_int_equal(query_result_finish(result), 0);
    assert_int_equal(query_result_rows(result), 0);
    query_result_free(result);
    query_free(query);
}

/* ---- the step of an answer ---- */

enum { LONG_S = 4 * 3600, LATE_S = 120 };

/* Four hours, of which only the last minutes are kept in seconds. The machine was recorded all the time; blocks of process
 * 501 and a device only in the first minutes, bytes of process 500 and of the host's heap only in the last. */
static void record_long(const char *path)
{
    struct store_limits limits = {UINT64_C(1) << 30, {600, 1200, 30 * 86400}};
    struct store *store = NULL;
    struct recorder *recorder = NULL;
    struct sample sample;
    sample_init(&sample);
    assert_int_equal(store_open(path, &limits, &store), 0);
    assert_int_equal(recorder_new(1, 10, &recorder), 0);
    for (uint64_t s = 0; s <= LONG_S; s += s < LONG_S - LATE_S ? 20 : 1) {
        bool early = s < 600, late = s >= LONG_S - LATE_S;
        sample_reset(&sample, (T0 + s) * NS_PER_S);
        strcpy(sample_add_device(&sample)->bus, "0000:01:00.0");
        if (early || late) {
            struct sample_process *process = sample_add_process(&sample);
            process->pid = late ? 500 : 501;
            process->start_ticks = 5;
            process->began_ns = T0 * NS_PER_S;
            if (late)
                sample_add_value(&sample, 0, MEMOIR_SPACE_HEAP, HISTORY_BYTES, 1000);
            else
                sample_add_value(&sample, 0, MEMOIR_SPACE_HEAP, HISTORY_BLOCKS, 7);
        }
        sample_totals(&sample);
        if (early)
            sample_add_value(&sample, 1, MEMOIR_SPACE_DRAM, HISTORY_BYTES, 50);
        if (late)
            sample_add_value(&sample, 0, MEMOIR_SPACE_HEAP, HISTORY_BYTES, 1000);
        sample_add_value(&sample, 0, HISTORY_SYSTEM_USED, HISTORY_SYSTEM, 400);
        int r = recorder_add(recorder, &sample);
        if (r == -EAGAIN && (r = recorder_flush(recorder, store, T0 + s)) == 0)
            r = recorder_add(recorder, &sample);
        assert_int_equal(r, 0);
    }
    assert_int_equal(recorder_flush(recorder, store, T0 + LONG_S + 1), 0);
    recorder_free(recorder);
    store_free(store);
    sample_release(&sample);
}

static void check_step(const char *path, const char *where, int64_t pid, uint64_t step_s,
                       size_t rows)
{
    struct history_world history = {.path = path,
                                    .since_s = T0 + 30,
                                    .until_s = T0 + LONG_S + 1,
                                    .step_s = 1,
                                    .pid = pid,
                                    .from_s = 77,
                                    .pid_known = true,
                                    .damaged = 5};
    struct query_world world = {.history = &history, .sees_all = true, .node = "n"};
    struct query *query = question(NULL, where, "series,points", "series");
    struct query_result *result = NULL;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    assert_int_equal(query_run(query, &world, result), 0);
    assert_int_equal(query_result_finish(result), 0);
    if (history.read_step_s != step_s)
        fail_msg("%s: step %d", where, (int)history.read_step_s);
    assert_int_equal(query_result_rows(result), rows);
    assert_false(query_result_incomplete(result));
    assert_int_equal(history.damaged, 0);
    assert_int_equal(history.from_s, (T0 + 30) / step_s * step_s);
    assert_int_equal(history.to_s, (T0 + LONG_S + step_s) / step_s * step_s);
    assert_true(history.oldest_s > 0 && history.oldest_s <= T0);
    assert_int_equal(history.pid_known, pid == 500);
    for (size_t i = 0; i < rows; i++) {
        struct query_value points = query_result_value(result, i, 1);
        size_t n = points.len / sizeof(struct query_point);
        assert_true(n > 0);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(query_point(&points, k).time_ns % (step_s * NS_PER_S), 0);
    }
    query_result_free(result);
    query_free(query);
}

/* A chart is as fine as what it shows was kept, and series beside each other have the same steps. */
static void an_answer_has_the_step_of_the_coarsest_series_in_it(void **state)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/long.db", dir);
    record_long(path);
    check_step(path, "of=system", 0, 60, 1);
    check_step(path, "of=device", 0, 60, 1);
    check_step(path, "of=process and measure=blocks", 0, 60, 1);
    check_step(path, "of=process and measure=bytes", 0, 1, 1);
    check_step(path, "of=process", 0, 60, 2);
    check_step(path, "of=process and measure=bytes or of=system", 0, 60, 2);
    /* Processes that are not asked for coarsen nothing. */
    check_step(path, "of=process", 500, 1, 1);
    check_step(path, "of=process", 502, 1, 0);
}

static void a_device_has_its_number_and_each_step_its_node(void **state)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/numbers.db", dir);
    record_long(path);
    struct history_world history = {
        .path = path, .since_s = T0, .until_s = T0 + LONG_S, .step_s = 60};
    struct query_world world = {.history = &history, .sees_all = true, .node = "n"};
    struct query *query = question(NULL, "of=device", "ordinal,step_nodes,points,space", "series");
    struct query_result *result = NULL;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    assert_int_equal(query_run(query, &world, result), 0);
    assert_int_equal(query_result_finish(result), 0);
    assert_int_equal(query_result_rows(result), 1);
    struct query_value ordinal = query_result_value(result, 0, 0);
    assert_int_equal(ordinal.state, QUERY_KNOWN);
    assert_int_equal(ordinal.number, 0);
    struct query_value nodes = query_result_value(result, 0, 1),
                       points = query_result_value(result, 0, 2);
    size_t n = nodes.len / sizeof(struct query_point);
    assert_true(n > 1 && points.len == nodes.len);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(query_point(&nodes, i).value, 1);
        assert_int_equal(query_point(&nodes, i).time_ns, query_point(&points, i).time_ns);
    }
    assert_int_equal(query_point(&points, 0).value, 50);
    query_result_free(result);
    query_free(query);
}

/* Processes have too many points for one answer. Their blocks, which are read after that, would fit. */
static void an_error_of_one_scope_is_one_of_the_answer(void **state)
{
    void *opened = NULL;
    file_setup(&opened);
    struct file *f = opened;
    for (int i = 0; i <= READ_POINTS_MAX / READ_STEPS_MAX; i++)
        file_series(f, file_process(f, (struct file_process){.pid = 100 + i}), 0, 0, HISTORY_RSS);
    struct history_world history = {
        .path = f->path, .since_s = T0, .until_s = T0 + READ_STEPS_MAX, .step_s = 1};
    struct query_world world = {.history = &history, .sees_all = true, .node = "n"};
    static const struct {
        const char *where;
        int r;
    } cases[] = {{"of=process", -E2BIG}, {"measure=blocks", 0}, {"of=system", 0}, {NULL, -E2BIG}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct query *query = question(NULL, cases[i].where, "series", "series");
        struct query_result *result = NULL;
        assert_int_equal(query_result_new(query, 0, &result), 0);
        assert_int_equal(query_run(query, &world, result), cases[i].r);
        query_result_free(result);
        query_free(query);
    }
    file_run(f, "UPDATE tier SET closed=-1");
    struct query *query = question(NULL, NULL, "series", "series");
    struct query_result *result = NULL;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    assert_int_equal(query_run(query, &world, result), -EBADMSG);
    query_result_free(result);
    query_free(query);
    file_teardown(&opened);
}

/* Of several processes that had a PID, the one that is meant. */
static void one_process_of_a_pid_can_be_asked_for(void **state)
{
    void *opened = NULL;
    file_setup(&opened);
    struct file *f = opened;
    for (int i = 0; i < 3; i++) {
        int64_t process =
            file_process(f, (struct file_process){.pid = 7, .start = i, .began = T0 + 100 * i + 1});
        file_put(f, 0, file_series(f, process, 0, 0, HISTORY_RSS), T0, (uint64_t)(10 + i), 20);
    }
    static const struct {
        bool one;
        uint64_t start_s;
        const char *expected;
    } cases[] = {
        {false, 0, "{\"last\":10}\n{\"last\":11}\n{\"last\":12}\n"},
        {false, T0 + 100, "{\"last\":10}\n{\"last\":11}\n{\"last\":12}\n"},
        {true, 0, "{\"last\":12}\n"},
        {true, T0 + 110, "{\"last\":11}\n"},
        {true, T0 - 50, "{\"last\":10}\n"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct history_world history = {.path = f->path,
                                        .since_s = T0,
                                        .until_s = T0 + 1,
                                        .step_s = 1,
                                        .pid = 7,
                                        .one_process = cases[i].one,
                                        .start_s = cases[i].start_s};
        struct query_world world = {.history = &history, .sees_all = true, .node = "n"};
        struct query *query = question(NULL, "of=process", "last", "+last");
        struct query_result *result = NULL;
        assert_int_equal(query_result_new(query, 0, &result), 0);
        assert_int_equal(query_run(query, &world, result), 0);
        char *text = text_of(result);
        assert_string_equal(text, cases[i].expected);
        free(text);
        query_result_free(result);
        query_free(query);
    }
    file_teardown(&opened);
}

/* What is damaged is left out, counted over all series that were read, and the answer says so. */
static uint64_t damaged_in(const char *path, const char *where)
{
    struct history_world history = {
        .path = path, .since_s = T0, .until_s = T0 + LONG_S, .step_s = 60};
    struct query_world world = {.history = &history, .sees_all = true, .node = "n"};
    struct query *query = question(NULL, where, "series", "series");
    struct query_result *result = NULL;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    assert_int_equal(query_run(query, &world, result), 0);
    assert_int_equal(query_result_incomplete(result), history.damaged > 0);
    query_result_free(result);
    query_free(query);
    return history.damaged;
}

static void damaged_series_are_counted_in_every_scope(void **state)
{
    char path[128];
    sqlite3 *db = NULL;
    snprintf(path, sizeof(path), "%s/damaged.db", dir);
    record_long(path);
    assert_int_equal(damaged_in(path, "of=system"), 0);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "UPDATE chunk2 SET data=x'ff'", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    uint64_t machine = damaged_in(path, "of=system"), devices = damaged_in(path, "of=device");
    assert_in_range(machine, 1, 1000);
    assert_in_range(devices, 1, 1000);
    assert_int_equal(damaged_in(path, "of=system or of=device"), machine + devices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_three_machines_merge_to_the_joined_one),
        cmocka_unit_test(rows_have_what_the_reader_has),
        cmocka_unit_test(what_ended_is_not_there_at_the_end),
        cmocka_unit_test(every_kind_of_series_has_its_names_and_figures),
        cmocka_unit_test(what_a_series_has_not_is_absent),
        cmocka_unit_test(a_world_without_history_has_no_rows),
        cmocka_unit_test(an_answer_has_the_step_of_the_coarsest_series_in_it),
        cmocka_unit_test(a_device_has_its_number_and_each_step_its_node),
        cmocka_unit_test(damaged_series_are_counted_in_every_scope),
        cmocka_unit_test(an_error_of_one_scope_is_one_of_the_answer),
        cmocka_unit_test(one_process_of_a_pid_can_be_asked_for),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
