/* What may leak, as one table: rates a second, shares from 0 to 1, times in seconds, and nothing that is not known as 0. */
#include "base/clock.h"
#include "ledger/ledger.h"
#include "profile/suspects.h"
#include "profile/tables.h"
#include "query_fixture.h"
#include <memoir/memoir.h>

static char program[] = "shop", user[] = "alice", host_word[] = "host", heap[] = "heap",
            sustained[] = "sustained", cgroup[] = "cgroup", site[] = "cart.c:12 cart_add",
            frame[] = "/usr/bin/shop+0x12", inner[] = "cart_add", outer[] = "main";

/* A leak of which all is known. */
static struct suspect leak(void)
{
    return (struct suspect){
        .pid = 10,
        .uid = 1000,
        .program = program,
        .user = user,
        .device = host_word,
        .ordinal = -1,
        .space = heap,
        .verdict = DETECT_LEAK,
        .reason = sustained,
        .confidence = 0.875,
        .bytes_per_s = 1500.5,
        .blocks_per_s = 2.25,
        .ever_freed = 0.25,
        .live_bytes = 4096,
        .live_blocks = 64,
        .span_ns = 120 * NS_PER_S,
        .growing_ns = 60 * NS_PER_S,
        .left_ns = 3600 * NS_PER_S,
        .limit_bytes = 1 << 20,
        .limit = cgroup,
        .spark = {10, 20, 30, 40},
        .n_spark = 4,
        .site_number = 7,
        .book_ino = 9,
        .key = 0xabc,
        .frame = frame,
        .site = site,
        .line = 12,
        .stack = {inner, outer},
        .n_stack = 2,
        .stack_samples = 3,
        .samples = 4,
        .blocks = {{0x10, 100, 1500 * NS_PER_MS}, {0x20, 200, 500 * NS_PER_MS}},
        .n_blocks = 2,
    };
}

/* The rows of a question about these suspects, for free(). */
static char *ask(struct suspect *rows, size_t n, const char *show, const char *where,
                 const struct query_world *viewer)
{
    struct suspects suspects = {.rows = rows, .n = n, .daemon = true};
    struct query_world world = *viewer;
    struct query_spec spec = {.show = show, .where = where};
    struct query_error error;
    struct query *query = NULL;
    struct query_result *result = NULL;
    world.suspects = &suspects;
    world.node = "n";
    world.now_real_ns = 1000 * NS_PER_S;
    if (query_new_over(&profile_table_leaks, &spec, &query, &error) < 0)
        fail_msg("%s", error.text);
    assert_int_equal(query_result_new(query, 0, &result), 0);
    assert_int_equal(query_run(query, &world, result), 0);
    char *text = rows_text(result);
    query_result_free(result);
    query_free(query);
    return text;
}

static void check(struct suspect row, const char *show, const char *expected)
{
    /* The column level asks for rows that are no suspects, too. */
    char *text = ask(&row, 1, show, "level>=0", &(struct query_world){.sees_all = true});
    assert_string_equal(text, expected);
    free(text);
}

static void figures_have_the_units_of_the_vocabulary(void **unused)
{
    check(leak(), "growth,growth_blocks,confidence,freed_share",
          "[{\"growth\":1500.5,\"growth_blocks\":2.25,\"confidence\":0.875,\"freed_share\":0.25}]");
    check(leak(), "watched,growing,limit_in",
          "[{\"watched\":120,\"growing\":60,\"limit_in\":3600}]");
    check(leak(), "pid,uid,ordinal,bytes,blocks,limit,limit_kind,line,site_number,book_inode",
          "[{\"pid\":10,\"uid\":1000,\"ordinal\":null,\"bytes\":4096,\"blocks\":64,"
          "\"limit\":1048576,\"limit_kind\":\"cgroup\",\"line\":12,\"site_number\":7,"
          "\"book_inode\":9}]");
    check(leak(), "program,user,device,space,verdict,reason,watcher,node,stack_samples,samples",
          "[{\"program\":\"shop\",\"user\":\"alice\",\"device\":\"host\",\"space\":\"heap\","
          "\"verdict\":\"leak\",\"reason\":\"sustained\",\"watcher\":\"memoird\",\"node\":\"n\","
          "\"stack_samples\":3,\"samples\":4}]");
}

static void places_are_told_as_well_as_they_are_known(void **unused)
{
    struct suspect row = leak();
    check(row, "site,key,stack",
          "[{\"site\":\"cart.c:12 cart_add\",\"key\":\"0000000000000abc\","
          "\"stack\":[\"main\",\"cart_add\"]}]");
    row.site = NULL;
    check(row, "site", "[{\"site\":\"shop+0x12\"}]");
    row.frame = cgroup; /* without a folder */
    check(row, "site", "[{\"site\":\"cgroup\"}]");
    row.frame = NULL;
    row.key = 0;
    row.n_stack = 0;
    check(row, "site,key,stack", "[{\"site\":null,\"key\":null,\"stack\":null}]");
    check(leak(), "examples", "[{\"examples\":[\"0x10 100 1.500\",\"0x20 200 0.500\"]}]");
}

static void what_is_not_known_is_absent(void **unused)
{
    struct suspect row = leak();
    row.pid = 0;
    row.uid = UINT32_MAX;
    row.ordinal = 0; /* a device's number, and known */
    row.left_ns = UINT64_MAX;
    row.limit = NULL;
    row.line = 0;
    row.samples = 0;
    row.ever_freed = -1;
    check(row, "pid,uid,ordinal,limit_in,limit,line,stack_samples,samples,freed_share",
          "[{\"pid\":null,\"uid\":null,\"ordinal\":0,\"limit_in\":null,\"limit\":null,"
          "\"line\":null,\"stack_samples\":null,\"samples\":null,\"freed_share\":null}]");
    row.verdict = DETECT_UNKNOWN;
    check(row, "growth,growth_blocks,confidence,growing",
          "[{\"growth\":null,\"growth_blocks\":null,\"confidence\":null,\"growing\":null}]");
    row.ever_freed = 0;
    check(row, "freed_share", "[{\"freed_share\":0}]");
    row.verdict = DETECT_STEADY; /* its slope is noise */
    check(row, "growth,growth_blocks,confidence,growing",
          "[{\"growth\":0,\"growth_blocks\":0,\"confidence\":0.875,\"growing\":null}]");
    row.verdict = DETECT_GROWING;
    check(row, "growth,growing", "[{\"growth\":1500.5,\"growing\":60}]");
    row.bytes_per_s = -3;
    check(row, "growth", "[{\"growth\":-3}]");
    row.resident = true; /* of a process without a book: no blocks and no place */
    row.frame = row.site = NULL;
    check(row, "bytes,blocks,site,site_number,book_inode,growth_blocks",
          "[{\"bytes\":4096,\"blocks\":null,\"site\":null,\"site_number\":null,"
          "\"book_inode\":null,\"growth_blocks\":null}]");
}

static void trend_is_the_series_or_the_small_chart(void **unused)
{
    struct suspect row = leak();
    char *text = ask(&row, 1, "trend", NULL, &(struct query_world){.sees_all = true});
    /* Four points over the 120 s until now, which is 1000 s after 1970. */
    assert_non_null(strstr(text, "[910,10]"));
    assert_non_null(strstr(text, "[940,20]"));
    assert_non_null(strstr(text, "[970,30]"));
    assert_non_null(strstr(text, "[1000,40]"));
    free(text);
    struct suspect_point points[] = {{500 * NS_PER_S, 1}, {600 * NS_PER_S, 2}};
    row.points = points;
    row.n_points = 2;
    check(row, "trend", "[{\"trend\":[[500,1],[600,2]]}]");
    row.n_points = row.n_spark = 0;
    check(row, "trend", "[{\"trend\":null}]");
}

static void suspects_are_what_grows_and_their_owners(void **unused)
{
    struct suspect rows[6];
    for (size_t i = 0; i < 6; i++) {
        rows[i] = leak();
        rows[i].pid = i;
        rows[i].verdict = i < DETECT_VERDICTS ? (enum detect_verdict)i : DETECT_STEADY;
    }
    rows[0].pid = 100;
    rows[5].resident = true;
    rows[4].uid = 2000;
    const struct query_world root = {.sees_all = true}, owner = {.viewer_uid = 1000},
                             other = {.viewer_uid = 3000};
    char *text = ask(rows, 6, "pid,verdict", NULL, &root);
    assert_string_equal(text, "[{\"pid\":4,\"verdict\":\"leak\"},"
                              "{\"pid\":3,\"verdict\":\"growing\"},"
                              "{\"pid\":5,\"verdict\":\"steady\"}]");
    free(text);
    text = ask(rows, 6, "pid", NULL, &owner);
    assert_string_equal(text, "[{\"pid\":3},{\"pid\":5}]");
    free(text);
    text = ask(rows, 6, "pid", "level<1", &owner);
    assert_string_equal(text, "[{\"pid\":100}]");
    free(text);
    text = ask(rows, 6, "pid", NULL, &other);
    assert_string_equal(text, "[]");
    free(text);
}

static void a_watch_that_was_cut_short_is_incomplete(void **unused)
{
    struct query_error error;
    struct query *query = NULL;
    struct query_spec spec = {.show = "pid"};
    assert_int_equal(query_new_over(&profile_table_leaks, &spec, &query, &error), 0);
    for (int cut = 0; cut < 3; cut++) {
        struct suspects suspects = {.incomplete = cut == 1};
        struct query_world world = {.sees_all = true, .suspects = cut == 2 ? NULL : &suspects};
        struct query_result *result = NULL;
        assert_int_equal(query_result_new(query, 0, &result), 0);
        assert_int_equal(query_run(query, &world, result), 0);
        assert_int_equal(query_result_incomplete(result), cut == 1);
        query_result_free(result);
    }
    query_free(query);
}

/* ---- rows of a watch ---- */

static void rows_of_a_watch_say_what_was_watched(void **unused)
{
    struct ledger_device device = {.ordinal = 2, .name = "H200", .uid = "GPU-1"};
    struct ledger_account heap_account = {.space = MEMOIR_SPACE_HEAP, .name = "heap"},
                          dram = {.space = MEMOIR_SPACE_DRAM, .device = &device};
    struct ledger_process process = {.valid = LEDGER_HAS_PID | LEDGER_HAS_USER,
                                     .pid = 10,
                                     .uid = 1000,
                                     .user = "alice",
                                     .name = "shop"},
                          nameless = {.uid = 1001, .pid = 11, .name = "shop"};
    struct book_identity identity = {.st_ino = 77};
    struct ledger_book book = {.identity = &identity};
    struct leak rows[] = {
        {.process = &process,
         .account = &heap_account,
         .book = &book,
         .site = 5,
         .key = 0xabc,
         .frame = frame,
         .result = {.verdict = DETECT_LEAK,
                    .confidence = 0.5,
                    .bytes_per_s = 10,
                    .blocks_per_s = 2,
                    .ever_freed = 0.25,
                    .span_ns = 3 * NS_PER_S},
         .live_bytes = 100,
         .live_blocks = 4,
         .growing_ns = 2 * NS_PER_S,
         .spark = {1, 2, 3},
         .n_spark = 3,
         .headroom = {.kind = HEADROOM_CGROUP, .limit_bytes = 1000},
         .left_ns = 9 * NS_PER_S},
        {.process = &nameless, .account = &dram, .book = &book, .left_ns = UINT64_MAX},
        {.process = &process,
         .account = &heap_account,
         .book = &book,
         .outside = true,
         .result = {.verdict = DETECT_GROWING, .ever_freed = 0.5}},
    };
    struct leaks leaks = {.rows = rows,
                          .n = 3,
                          .judged = 50,
                          .verdicts = {1, 2, 3, 4, 5},
                          .span_ns = 8 * NS_PER_S,
                          .incomplete = true};
    struct suspects suspects = {0};
    assert_int_equal(suspects_from(&leaks, &suspects), 0);
    assert_int_equal(suspects.n, 3);
    assert_int_equal(suspects.sites, 50);
    assert_int_equal(suspects.span_ns, 8 * NS_PER_S);
    assert_true(suspects.incomplete);
    assert_memory_equal(suspects.verdicts, leaks.verdicts, sizeof(leaks.verdicts));
    const struct suspect *s = &suspects.rows[0];
    assert_int_equal(s->pid, 10);
    assert_int_equal(s->uid, 1000);
    assert_string_equal(s->program, "shop");
    assert_string_equal(s->user, "alice");
    assert_string_equal(s->device, "host");
    assert_int_equal(s->ordinal, -1);
    assert_string_equal(s->space, "heap");
    assert_int_equal(s->verdict, DETECT_LEAK);
    assert_true(s->confidence == 0.5 && s->bytes_per_s == 10 && s->blocks_per_s == 2);
    assert_true(s->ever_freed == 0.25);
    assert_int_equal(s->live_bytes, 100);
    assert_int_equal(s->live_blocks, 4);
    assert_int_equal(s->span_ns, 3 * NS_PER_S);
    assert_int_equal(s->growing_ns, 2 * NS_PER_S);
    assert_int_equal(s->left_ns, 9 * NS_PER_S);
    assert_int_equal(s->limit_bytes, 1000);
    assert_string_equal(s->limit, "cgroup");
    assert_int_equal(s->n_spark, 3);
    assert_memory_equal(s->spark, rows[0].spark, sizeof(s->spark));
    assert_int_equal(s->book_ino, 77);
    assert_int_equal(s->site_number, 5);
    assert_int_equal(s->key, 0xabc);
    assert_string_equal(s->frame, frame);
    assert_non_null(s->why);
    assert_false(s->resident || s->outside);
    s = &suspects.rows[1];
    assert_int_equal(s->pid, 0); /* not known, whatever the field holds */
    assert_string_equal(s->user, "1001");
    assert_string_equal(s->device, "2 H200");
    assert_string_equal(s->device_name, "H200");
    assert_string_equal(s->device_uid, "GPU-1");
    assert_int_equal(s->ordinal, 2);
    assert_string_equal(s->space, "dram");
    assert_null(s->limit);
    assert_null(s->frame);
    s = &suspects.rows[2]; /* no line of code holds it */
    assert_true(s->resident && s->outside);
    assert_string_equal(s->space, "outside malloc");
    assert_string_equal(s->reason, "outside malloc");
    assert_true(s->ever_freed < 0);
    assert_non_null(strstr(s->why, "no line of code"));
    assert_null(strstr(suspects.rows[0].why, "no line of code"));
    suspects_release(&suspects);
    assert_int_equal(suspects.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_have_the_units_of_the_vocabulary),
        cmocka_unit_test(places_are_told_as_well_as_they_are_known),
        cmocka_unit_test(what_is_not_known_is_absent),
        cmocka_unit_test(trend_is_the_series_or_the_small_chart),
        cmocka_unit_test(suspects_are_what_grows_and_their_owners),
        cmocka_unit_test(a_watch_that_was_cut_short_is_incomplete),
        cmocka_unit_test(rows_of_a_watch_say_what_was_watched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
