/* The ring of events: numbers, what is left out, who may see what. */
#include "daemon/events.h"

#include <memoir/memoir.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "check.h"
#include "daemon/asking.h"
#include "daemon/events_table.h"
#include "daemon/retired.h"
#include "query/exit_file.h"
#include "query/query.h"

enum { ANN = 1000, BOB = 1001 };
static const struct asking_viewer ann = {.uid = ANN}, bob = {.uid = BOB}, root = {.sees_all = true};

static struct events *make(void)
{
    struct events *events;
    assert_int_equal(events_new(&events), 0);
    return events;
}

static uint64_t leak(struct events *events, uint32_t uid)
{
    return events_add(events, &(struct event){.kind = EVENT_LEAK, .uid = uid, .is_private = true});
}

static void the_last_ones_are_kept_and_come_oldest_first(void **unused)
{
    struct events *events = make();
    const struct event *got[2 * EVENTS_KEPT];
    assert_int_equal(events_last(events), 0);
    uint64_t first = leak(events, ANN), last = first;
    for (int i = 1; i < EVENTS_KEPT + 10; i++) {
        uint64_t id = leak(events, ANN);
        assert_int_equal(id, last + 1);
        last = id;
    }
    assert_int_equal(events_last(events), last);
    assert_int_equal(events_read(events, &ann, 0, got, 2 * EVENTS_KEPT), EVENTS_KEPT);
    assert_int_equal(got[0]->id, first + 10);
    assert_int_equal(got[EVENTS_KEPT - 1]->id, last);
    assert_int_equal(events_read(events, &ann, last - 3, got, 100), 3);
    assert_int_equal(got[0]->id, last - 2);
    assert_int_equal(events_read(events, &ann, 0, got, 2), 2); /* of many the last ones */
    assert_int_equal(got[0]->id, last - 1);
    assert_int_equal(events_read(events, &ann, last, got, 2), 0);
    assert_int_equal(events_read(events, &ann, UINT64_MAX, got, 2), 0);
    events_free(events);
}

static void private_ones_are_for_their_user(void **unused)
{
    struct events *events = make();
    const struct event *got[8];
    leak(events, ANN);
    leak(events, BOB);
    events_add(events, &(struct event){.kind = EVENT_DEVICE});
    assert_int_equal(events_read(events, &ann, 0, got, 8), 2);
    assert_int_equal(got[0]->uid, ANN);
    assert_int_equal(events_read(events, &bob, 0, got, 8), 2);
    assert_int_equal(got[0]->uid, BOB);
    assert_int_equal(events_read(events, &root, 0, got, 8), 3);
    events_free(events);
}

static void a_storm_of_short_processes_leaves_room_for_what_matters(void **unused)
{
    struct events *events = make();
    const struct event *got[EVENTS_KEPT];
    leak(events, ANN);
    for (int i = 0; i < 50 * EVENTS_KEPT; i++)
        events_process_went(
            events, &(struct retired_process){.pid = i, .cause = {CAUSE_EXITED, 0, false, false}},
            "line");
    assert_true(events_left_out(events) > 40 * EVENTS_KEPT);
    size_t n = events_read(events, &ann, 0, got, EVENTS_KEPT);
    assert_true(n > EVENTS_AT_ONCE);
    assert_int_equal(got[0]->kind, EVENT_LEAK);
    events_free(events);
}

static void hear(const struct event *event, void *context)
{
    *(uint64_t *)context = event->id;
}

static void deaths_are_of_their_kind_and_heard_at_once(void **unused)
{
    static const struct {
        struct cause cause;
        enum event_kind kind;
    } cases[] = {
        {{CAUSE_EXITED, 3, false, false}, EVENT_WENT},
        {{CAUSE_KILLED, 9, false, false}, EVENT_KILLED},
        {{CAUSE_KILLED, SIGPIPE, false, false}, EVENT_WENT},
        {{CAUSE_KILLED, SIGINT, false, false}, EVENT_WENT},
        {{CAUSE_KILLED, SIGHUP, false, false}, EVENT_WENT},
        {{CAUSE_KILLED, 9, false, true}, EVENT_OOM},
        {{CAUSE_EXEC, 0, false, false}, EVENT_WENT},
    };
    struct events *events = make();
    const struct event *got[8];
    uint64_t heard = 0;
    events_listen(events, hear, &heard);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct retired_account accounts[] = {
            {.totals.live_bytes = 30},
            {.totals.live_bytes = 12},
            {.space = MEMOIR_SPACE_CHAIN, .totals.live_bytes = 1000}, /* in those that count */
        };
        struct retired_process p = {
            .pid = 7, .cause = cases[i].cause, .accounts = accounts, .n_accounts = 3};
        events_process_went(events, &p, "it is gone");
        assert_int_equal(heard, events_last(events));
        assert_int_equal(events_read(events, &root, heard - 1, got, 8), 1);
        assert_int_equal(got[0]->kind, cases[i].kind);
        assert_int_equal(got[0]->bytes, 42);
    }
    /* Of those without a book only the killed ones are news. */
    events_process_ended(events, &(struct exit_record){.pid = 8, .status = 0});
    static const int ordinary[] = {SIGINT, SIGHUP, SIGPIPE};
    for (size_t i = 0; i < sizeof(ordinary) / sizeof(*ordinary); i++)
        events_process_ended(events, &(struct exit_record){.pid = 8, .status = ordinary[i]});
    assert_int_equal(events_read(events, &root, heard, got, 8), 0);
    events_process_ended(events, &(struct exit_record){.pid = 8, .status = 9, .program = "x"});
    assert_int_equal(events_read(events, &root, 0, got, 1), 1);
    assert_int_equal(got[0]->kind, EVENT_KILLED);
    assert_non_null(strstr(got[0]->text, "x (PID 8): killed by SIGKILL"));
    events_free(events);
}

/* One event as a row of the table, as the viewer may see it. */
static void row_of(const struct event *event, const struct asking_viewer *viewer,
                   struct buffer *out)
{
    struct query *query;
    struct query_result *result;
    struct query_error error;
    struct events_world events = {.one = event};
    struct query_world world = {
        .events = &events, .sees_all = viewer->sees_all, .viewer_uid = viewer->uid, .node = "here"};
    struct query_spec spec = {.table = "events",
                              .show = "seq,time,kind,pid,program,user,uid,bytes,message"};
    assert_int_equal(query_new(&spec, &query, &error), 0);
    assert_int_equal(query_result_new(query, 0, &result), 0);
    assert_int_equal(query_run(query, &world, result), 0);
    assert_int_equal(query_result_finish(result), 0);
    assert_int_equal(query_result_lines(result, out), 0);
    query_result_free(result);
    query_free(query);
}

static void what_is_not_known_of_an_event_is_null(void **unused)
{
    struct event event = {.id = 5, .real_ns = 7000000, .kind = EVENT_DEVICE, .text = "a \"card\""};
    struct buffer out = BUFFER_INIT(4096);
    row_of(&event, &root, &out);
    assert_string_equal(buffer_string(&out),
                        "{\"seq\":5,\"time\":\"1970-01-01T00:00:00.007Z\",\"kind\":\"device\","
                        "\"pid\":null,\"program\":null,\"user\":null,\"uid\":null,\"bytes\":null,"
                        "\"message\":\"a \\\"card\\\"\"}\n");
    buffer_release(&out);
}

static void others_hear_that_a_process_ended_not_how(void **unused)
{
    struct event event = {.id = 5,
                          .real_ns = 7000000,
                          .kind = EVENT_OOM,
                          .pid = 42,
                          .uid = ANN,
                          .has_bytes = true,
                          .bytes = 9,
                          .program = "secret",
                          .text = "secret (PID 42): out of memory"};
    struct buffer out = BUFFER_INIT(4096);
    assert_true(event_visible(&event, &bob) && !event_detailed(&event, &bob));
    assert_true(event_detailed(&event, &ann) && event_detailed(&event, &root));
    row_of(&event, &bob, &out);
    assert_null(strstr(buffer_string(&out), "secret"));
    assert_null(strstr(buffer_string(&out), "oom"));
    assert_non_null(strstr(buffer_string(&out), "\"kind\":\"went\",\"pid\":42,\"program\":null"));
    buffer_reset(&out);
    event.is_private = true; /* not even that it happened */
    row_of(&event, &bob, &out);
    assert_int_equal(out.len, 0);
    row_of(&event, &ann, &out);
    assert_non_null(
        strstr(buffer_string(&out), "\"kind\":\"oom\",\"pid\":42,\"program\":\"secret\""));
    buffer_release(&out);
}

int main(void)
{
    assert_int_equal(query_table_register(&events_table), 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_ones_are_kept_and_come_oldest_first),
        cmocka_unit_test(private_ones_are_for_their_user),
        cmocka_unit_test(a_storm_of_short_processes_leaves_room_for_what_matters),
        cmocka_unit_test(deaths_are_of_their_kind_and_heard_at_once),
        cmocka_unit_test(what_is_not_known_of_an_event_is_null),
        cmocka_unit_test(others_hear_that_a_process_ended_not_how),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
