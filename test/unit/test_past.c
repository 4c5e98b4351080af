/* Tables as they were, and which questions have a past. */
#include "history/past.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buffer.h"
#include "history/table.h"
#include "history_fixture.h"
#include "ledger/proc.h"
#include "query/query.h"

static char path[64];

static int setup(void **state)
{
    snprintf(path, sizeof(path), "/dev/shm/memoir-past-%d.db", (int)getpid());
    fixture_record(path, 1);
    return past_tables_register();
}

static int teardown(void **state)
{
    char other[80];
    for (const char *const *end = (const char *const[]){"", "-wal", "-shm", NULL}; *end; end++) {
        snprintf(other, sizeof(other), "%s%s", path, *end);
        (void)unlink(other);
    }
    return 0;
}

static const char *user_name(uint32_t uid, void *context)
{
    return uid == 1000 ? "ann" : NULL;
}

static void check(const struct query_spec *spec, struct past_window window, uint64_t step_s,
                  const char *expected)
{
    struct query *query = NULL;
    struct query_error error = {0};
    struct query_result *result = NULL;
    struct history_world history = {.path = path,
                                    .since_s = window.since_s,
                                    .until_s = window.until_s,
                                    .step_s = window.step_s};
    struct query_world world = {
        .history = &history, .sees_all = true, .node = "here", .user_name = user_name};
    struct buffer out = BUFFER_INIT(1 << 20);
    if (query_new(spec, &query, &error) < 0)
        fail_msg("%s", error.text);
    assert_int_equal(query_result_new(query, 0, &result), 0);
    assert_int_equal(query_run(query, &world, result), 0);
    assert_int_equal(query_result_finish(result), 0);
    assert_int_equal(history.read_step_s, step_s);
    assert_int_equal(query_result_lines(result, &out), 0);
    assert_string_equal(buffer_string(&out), expected);
    buffer_release(&out);
    query_result_free(result);
    query_free(query);
}

static void a_moment_is_the_step_that_it_lies_in(void **state)
{
    struct past_window window = past_at(FIXTURE_T0 + FIXTURE_GAP_S);
    assert_int_equal(window.since_s, FIXTURE_T0 + 20);
    assert_int_equal(window.until_s, FIXTURE_T0 + 30);
    check(
        &(struct query_spec){
            .table = "host_past",
            .show = "pid,program,user,node,start,rss,peak_rss,pss,heap,registered,host,"
                    "device,device.dram,device.system,blocks"},
        window, 10,
        "{\"pid\":2001,\"program\":\"serve\",\"user\":\"1001\",\"node\":\"here\",\"start\":\"2027-01-15T07:58:20.000Z\",\"rss\":2012900,"
        "\"peak_rss\":2012900,\"pss\":1000,\"heap\":null,\"registered\":null,\"host\":null,\"device\":null,"
        "\"device.dram\":null,\"device.system\":null,\"blocks\":null}\n"
        "{\"pid\":2000,\"program\":\"train\",\"user\":\"ann\",\"node\":\"here\",\"start\":\"2027-01-15T07:58:20.000Z\",\"rss\":2002900,"
        "\"peak_rss\":2002900,\"pss\":1000,\"heap\":3029,\"registered\":70,\"host\":3029,\"device\":8000,"
        "\"device.dram\":8000,\"device.system\":9,\"blocks\":12}\n");
    check(&(struct query_spec){.table = "processes_past", .show = "pid,heap,device"}, window, 10,
          "{\"pid\":2000,\"heap\":3029,\"device\":8000}\n");
    check(
        &(struct query_spec){.table = "system_past",
                             .show = "node,total,used,available,anon,pressure,stall"},
        window, 10,
        "{\"node\":\"here\",\"total\":2000000,\"used\":600029,\"available\":null,\"anon\":77,\"pressure\":12.34,"
        "\"stall\":null}\n");
    check(
        &(struct query_spec){.table = "devices_past",
                             .show =
                                 "device,device_id,space,used,peak,free,capacity,percent,blocks"},
        window, 10,
        "{\"device\":\"0 H200\",\"device_id\":\"GPU-1\",\"space\":\"dram\",\"used\":8000,\"peak\":8000,\"free\":92000,"
        "\"capacity\":100000,\"percent\":8,\"blocks\":2}\n");
}

static void a_time_has_rows_for_each_step_that_was_recorded(void **state)
{
    struct past_window seconds = {FIXTURE_T0 + FIXTURE_GAP_S - 1, FIXTURE_T0 + FIXTURE_GAP_S + 2,
                                  1};
    check(&(struct query_spec){.table = "system_past", .show = "time,used"}, seconds, 1,
          "{\"time\":\"2027-01-15T08:00:24.000Z\",\"used\":600024}\n"
          "{\"time\":\"2027-01-15T08:00:26.000Z\",\"used\":600026}\n");
    struct past_window all = {FIXTURE_T0 + 3, FIXTURE_T0 + 60, 20};
    check(
        &(struct query_spec){
            .table = "host_past", .by = "time", .show = "rss,count,nodes", .sort = "+time"},
        all, 20,
        "{\"time\":\"2027-01-15T08:00:00.000Z\",\"rss\":4013800,\"count\":2,\"nodes\":1}\n"
        "{\"time\":\"2027-01-15T08:00:20.000Z\",\"rss\":4017800,\"count\":2,\"nodes\":1}\n"
        "{\"time\":\"2027-01-15T08:00:40.000Z\",\"rss\":4018800,\"count\":2,\"nodes\":1}\n");
}

static void a_process_that_ended_within_a_step_is_not_in_its_sum(void **state)
{
    char before[sizeof(path)];
    memcpy(before, path, sizeof(path));
    snprintf(path, sizeof(path), "/dev/shm/memoir-visit-%d.db", (int)getpid());
    fixture_record_visit(path, 1, true);
    struct query_spec sums = {.table = "host_past", .by = "time", .show = "rss,count"};
    check(&sums, past_at(FIXTURE_T0), 10,
          "{\"time\":\"2027-01-15T08:00:00.000Z\",\"rss\":4011800,\"count\":2}\n");
    struct past_window while_there = {FIXTURE_T0, FIXTURE_T0 + 5, 5};
    check(&sums, while_there, 5,
          "{\"time\":\"2027-01-15T08:00:00.000Z\",\"rss\":6031200,\"count\":3}\n");
    teardown(NULL);
    memcpy(path, before, sizeof(path));
}

/* Records two processes of user 1001: this one, which runs, and one that ended. */
static void rights_record(void)
{
    struct store_limits limits = {UINT64_C(1) << 30, {3600, 86400, 30 * 86400}};
    struct store *store = NULL;
    struct recorder *recorder = NULL;
    struct proc_stat self;
    struct sample sample;
    assert_int_equal(proc_stat_read(getpid(), &self), 0);
    sample_init(&sample);
    assert_int_equal(store_open(path, &limits, &store), 0);
    assert_int_equal(recorder_new(history_boot(), 10, &recorder), 0);
    sample_reset(&sample, FIXTURE_T0 * NS_PER_S);
    for (int ended = 0; ended < 3; ended++) { /* 1: another start; 2: no such PID */
        struct sample_process *p = sample_add_process(&sample);
        p->pid = ended == 2 ? 4194304 + 7 : getpid();
        p->start_ticks = self.start_ticks + (ended == 1 ? 1000 : 0);
        p->uid = 1001;
        p->has_rss = true;
        p->rss_bytes = 1000 + (uint64_t)ended;
        strcpy(p->program, ended ? "secret" : "public");
    }
    sample_totals(&sample);
    assert_int_equal(recorder_add(recorder, &sample), 0);
    assert_int_equal(recorder_flush(recorder, store, FIXTURE_T0 + 1), 0);
    recorder_free(recorder);
    store_free(store);
    sample_release(&sample);
}

static void check_seen(struct query_spec spec, bool sees_all, uint32_t viewer, const char *expected)
{
    struct query *query = NULL;
    struct query_error error = {0};
    struct query_result *result = NULL;
    struct history_world history = {
        .path = path, .since_s = FIXTURE_T0, .until_s = FIXTURE_T0 + 10, .step_s = 10};
    struct query_world world = {
        .history = &history, .sees_all = sees_all, .viewer_uid = viewer, .node = "here"};
    struct buffer out = BUFFER_INIT(1 << 20);
    if (query_new(&spec, &query, &error) < 0)
        fail_msg("%s", error.text);
    assert_int_equal(query_result_new(query, 0, &result), 0);
    assert_int_equal(query_run(query, &world, result), 0);
    assert_int_equal(query_result_finish(result), 0);
    assert_int_equal(query_result_lines(result, &out), 0);
    assert_string_equal(buffer_string(&out), expected);
    buffer_release(&out);
    query_result_free(result);
    query_free(query);
}

/* As in the tables host and exited: other users see the name of a program that runs, and not of one that ended. */
static void past_tells_other_users_no_names_that_the_present_does_not(void **state)
{
    char before[sizeof(path)];
    memcpy(before, path, sizeof(path));
    snprintf(path, sizeof(path), "/dev/shm/memoir-rights-%d.db", (int)getpid());
    rights_record();
    struct query_spec rows = {.table = "host_past", .show = "program,rss", .sort = "+rss"};
    static const char all[] = "{\"program\":\"public\",\"rss\":1000}\n"
                              "{\"program\":\"secret\",\"rss\":1001}\n"
                              "{\"program\":\"secret\",\"rss\":1002}\n";
    static const char some[] = "{\"program\":\"public\",\"rss\":1000}\n"
                               "{\"program\":null,\"rss\":1001}\n"
                               "{\"program\":null,\"rss\":1002}\n";
    check_seen(rows, true, 5, all);
    check_seen(rows, false, 1001, all);
    check_seen(rows, false, 1002, some);
    check_seen(rows, false, UINT32_MAX, some);
    rows.where = "program=secret"; /* nor can they be asked for */
    check_seen(rows, false, 1002, "");
    struct query_spec series = {.table = "history",
                                .where = "of=process and series=rss",
                                .show = "program,last",
                                .sort = "+last"};
    check_seen(series, false, 1002,
               "{\"program\":\"public\",\"last\":1000}\n{\"program\":null,\"last\":1001}\n"
               "{\"program\":null,\"last\":1002}\n");
    check_seen(series, false, 1001,
               "{\"program\":\"public\",\"last\":1000}\n{\"program\":\"secret\",\"last\":1001}\n"
               "{\"program\":\"secret\",\"last\":1002}\n");
    teardown(NULL);
    memcpy(path, before, sizeof(path));
}

static void check_spec(struct query_spec spec, struct past_window window, const char *table,
                       const char *by, const char *where)
{
    struct buffer texts = BUFFER_INIT(1 << 16);
    struct query_error error = {0};
    assert_int_equal(past_spec(&spec, &window, &texts, &error), 0);
    assert_string_equal(spec.table ? spec.table : "", table);
    assert_string_equal(spec.by ? spec.by : "", by);
    assert_string_equal(spec.where ? spec.where : "", where);
    assert_string_equal(spec.sort ? spec.sort : "",
                        strstr(by, "time,") || strstr(by, " time") ? "+time" : "");
    buffer_release(&texts);
}

static void questions_about_now_become_questions_about_then(void **state)
{
    struct past_window present = {0}, at = past_at(FIXTURE_T0),
                       hour = {FIXTURE_T0, FIXTURE_T0 + 3600, 60};
    check_spec((struct query_spec){.table = "host", .by = "user"}, present, "host", "user", "");
    check_spec((struct query_spec){.table = "host", .by = "user"}, at, "host_past", "user", "");
    check_spec((struct query_spec){.by = "user"}, hour, "processes_past", "time,user", "");
    check_spec((struct query_spec){.table = "system", .by = "node, time"}, hour, "system_past",
               "node, time", "");
    check_spec((struct query_spec){.table = "devices", .by = "timeless"}, hour, "devices_past",
               "time,timeless", "");
    check_spec((struct query_spec){.table = "history", .where = "of=system"}, hour, "history", "",
               "of=system");
    check_spec(
        (struct query_spec){.table = "exited", .by = "program", .where = "pid=1 or pid=2"}, hour,
        "exited", "program",
        "ended>=2027-01-15T08:00:00.000Z and ended<2027-01-15T09:00:00.000Z, (pid=1 or pid=2)");
    struct query_spec exited = {.table = "exited"};
    struct buffer texts = BUFFER_INIT(1 << 16);
    struct query_error error = {0};
    struct query *query = NULL;
    assert_int_equal(past_spec(&exited, &hour, &texts, &error), 0);
    assert_int_equal(query_new(&exited, &query, &error), 0);
    query_free(query);
    buffer_release(&texts);
}

static void other_tables_refuse_with_a_reason(void **state)
{
    static const char *const tables[] = {"buffers", "sites",         "accounts",
                                         "cgroups", "exited_blocks", "device_processes"};
    struct past_window at = past_at(FIXTURE_T0);
    for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++) {
        struct query_spec spec = {.table = tables[i]};
        struct buffer texts = BUFFER_INIT(1 << 16);
        struct query_error error = {0};
        assert_int_equal(past_spec(&spec, &at, &texts, &error), -EINVAL);
        assert_non_null(strstr(error.text, tables[i]));
        assert_non_null(
            strstr(error.text, "not recorded; that of host, processes, system, devices"));
        assert_string_equal(error.part, "table");
        buffer_release(&texts);
    }
}

static void without_a_file_there_are_no_rows(void **state)
{
    char before[64];
    snprintf(before, sizeof(before), "%s", path);
    snprintf(path, sizeof(path), "/nowhere/history.db");
    check(&(struct query_spec){.table = "host_past"}, past_at(FIXTURE_T0), 10, "");
    check(&(struct query_spec){.table = "devices_past"}, past_at(FIXTURE_T0), 10, "");
    snprintf(path, sizeof(path), "%s", before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_moment_is_the_step_that_it_lies_in),
        cmocka_unit_test(a_time_has_rows_for_each_step_that_was_recorded),
        cmocka_unit_test(a_process_that_ended_within_a_step_is_not_in_its_sum),
        cmocka_unit_test(past_tells_other_users_no_names_that_the_present_does_not),
        cmocka_unit_test(questions_about_now_become_questions_about_then),
        cmocka_unit_test(other_tables_refuse_with_a_reason),
        cmocka_unit_test(without_a_file_there_are_no_rows),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
