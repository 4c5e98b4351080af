/* Questions to memoird: which are kept ready, what they may take, who waits, and who may see what. */
#include "daemon/asking.h"

#include <errno.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "daemon/behalf_internal.h"
#include "daemon/daemon.h"
#include "daemon/hosts.h"
#include "daemon/server.h"
#include "daemon/tables.h"
#include "daemon/turns.h"
#include "ledger_world.h"
#include "query/exit_file.h"
#include "query/result.h"

enum { OTHER_USER = 4711 };

static struct {
    struct world *world;
    struct daemon daemon;
    struct server server;
    struct behalf_table behalf;
} f;

static int asking_setup(void **state)
{
    assert_int_equal(setup(state), 0);
    f.world = *state;
    f.daemon = (struct daemon){.ledger = f.world->ledger, .behalf = &f.behalf, .server = &f.server};
    f.server = (struct server){.daemon = &f.daemon};
    return asking_new(&f.daemon, &f.daemon.asking);
}

static int asking_teardown(void **state)
{
    asking_free(f.daemon.asking);
    asking_free(NULL);
    return teardown(state);
}

static struct asked *prepare(const struct query_spec *spec)
{
    struct asked *asked = NULL;
    struct query_error error = {0};
    if (asking_prepare(f.daemon.asking, spec, &asked, &error) < 0)
        fail_msg("%s", error.text);
    return asked;
}

/* ---- kept questions ---- */

static void an_answer_has_so_many_rows_at_most(void **state)
{
    static const uint64_t cases[][2] = {{0, ASKING_ROWS_MAX},
                                        {1, 1},
                                        {ASKING_ROWS_MAX - 1, ASKING_ROWS_MAX - 1},
                                        {ASKING_ROWS_MAX, ASKING_ROWS_MAX},
                                        {ASKING_ROWS_MAX + 1, ASKING_ROWS_MAX},
                                        {UINT64_MAX, ASKING_ROWS_MAX}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(asking_limit(cases[i][0]), cases[i][1]);
        const struct asked *asked = prepare(&(struct query_spec){.limit = cases[i][0]});
        assert_int_equal(query_spec_of(asked->query)->limit, cases[i][1]);
        assert_string_equal(query_spec_of(asked->query)->table, query_tables()[0]->name);
    }
}

static void a_question_is_the_same_in_all_its_parts(void **state)
{
    static const struct query_spec specs[] = {
        {.table = "processes", .by = "user", .where = "pid>1", .show = "count", .sort = "count"},
        {.table = "accounts", .by = "user", .where = "pid>1", .show = "count", .sort = "count"},
        {.table = "processes", .by = "uid", .where = "pid>1", .show = "count", .sort = "count"},
        {.table = "processes", .by = "user", .where = "pid>2", .show = "count", .sort = "count"},
        {.table = "processes",
         .by = "user",
         .where = "pid>1",
         .show = "count,pid",
         .sort = "count"},
        {.table = "processes", .by = "user", .where = "pid>1", .show = "count", .sort = "-count"},
        {.table = "processes",
         .by = "user",
         .where = "pid>1",
         .show = "count",
         .sort = "count",
         .limit = 5},
        {.table = "processes",
         .by = "user",
         .where = "pid>1",
         .show = "count",
         .sort = "count",
         .limit = 5,
         .others = true},
        {.table = "processes",
         .by = "user",
         .where = "pid>1",
         .show = "count",
         .sort = "count",
         .lenient = true},
        {.table = "processes", .where = "pid>1"},
        {.table = "processes"},
    };
    enum { N = sizeof(specs) / sizeof(*specs) };
    struct asked *asked[N];
    for (size_t i = 0; i < N; i++) {
        asked[i] = prepare(&specs[i]);
        for (size_t k = 0; k < i; k++)
            assert_ptr_not_equal(asked[i], asked[k]);
    }
    for (size_t i = N; i-- > 0;)
        assert_ptr_equal(prepare(&specs[i]), asked[i]);
    /* What is not said is empty, and the first table is the usual one. */
    assert_ptr_equal(prepare(&(struct query_spec){.table = "", .by = "", .where = "", .show = ""}),
                     asked[N - 1]);
}

static struct asked *numbered(uint64_t number)
{
    return prepare(&(struct query_spec){.limit = number});
}

static void the_question_that_was_asked_longest_ago_gives_way(void **state)
{
    struct asked *asked[ASKING_KEPT + 1];
    for (uint64_t i = 1; i <= ASKING_KEPT; i++)
        asked[i] = numbered(i);
    assert_ptr_equal(numbered(1), asked[1]); /* used again */
    assert_ptr_equal(numbered(100), asked[2]);
    assert_ptr_equal(numbered(1), asked[1]);
    assert_ptr_equal(numbered(2), asked[3]);
    /* An invalid one takes nobody's place. */
    struct asked *none = NULL;
    struct query_error error = {0};
    assert_int_equal(
        asking_prepare(f.daemon.asking, &(struct query_spec){.show = "nonsense"}, &none, &error),
        -EINVAL);
    assert_true(!none && error.text[0]);
    for (uint64_t i = 4; i <= ASKING_KEPT; i++)
        assert_ptr_equal(numbered(i), asked[i]);
    assert_ptr_equal(numbered(100), asked[2]);
}

/* An answer of many rows gives its memory back; the question stays ready. */
static void large_answers_are_not_kept(void **state)
{
    const struct query_spec spec = {.show = "pid"};
    for (size_t more = 0; more < 2; more++) {
        struct asked *asked = prepare(&spec);
        assert_int_equal(query_result_matched(asked->result), 0); /* the last answer is gone */
        for (size_t i = 0; i < ASKING_KEPT_ROWS + more; i++) {
            struct cell cells[QUERY_OUTPUTS_MAX] = {{.number = i, .state = QUERY_KNOWN}};
            assert_int_equal(result_add_cells(asked->result, cells), 0);
        }
        struct query *query = asked->query;
        asking_done(asked);
        assert_int_equal(asked->result == NULL, more);
        assert_ptr_equal(prepare(&spec)->query, query);
        assert_non_null(asked->result);
    }
}

/* ---- turns ---- */

static void costly_tables_wait_after_costly_answers(void **state)
{
    const struct query_table *sites = query_table_find("sites"),
                             *processes = query_table_find("processes");
    struct turn turn = {0};
    assert_true(sites->costly && !processes->costly);
    /* Without a table of processes there is nothing to wait for. */
    assert_int_equal(asking_wait(f.daemon.asking, query_table_find("cgroups"), &turn, OTHER_USER),
                     0);
    assert_int_equal(asking_wait(f.daemon.asking, sites, &turn, OTHER_USER), 0);
    asking_costs(f.daemon.asking, clock_monotonic_ns()); /* next to nothing: no rest */
    assert_int_equal(asking_wait(f.daemon.asking, sites, &turn, OTHER_USER), 0);
    asking_costs(f.daemon.asking, clock_monotonic_ns() - 100 * NS_PER_S);
    assert_true(asking_wait(f.daemon.asking, sites, &turn, OTHER_USER) > 0);
    assert_true(turn.waiting);
    struct turn other = {0};
    assert_int_equal(asking_wait(f.daemon.asking, processes, &other, OTHER_USER), 0);
    assert_int_equal(asking_wait(f.daemon.asking, NULL, &other, OTHER_USER), 0);
    assert_false(other.waiting);
    asking_leave(f.daemon.asking, &turn);
    assert_false(turn.waiting);
}

/* ---- answers ---- */

static size_t rows_for(const char *table, const struct asking_viewer *viewer, int expected)
{
    struct asked *asked = prepare(&(struct query_spec){
        .table = table, .where = strcmp(table, "explain") == 0 ? "pid=1" : NULL});
    assert_int_equal(asking_run(f.daemon.asking, asked, viewer), expected);
    return query_result_rows(asked->result);
}

/* Blocks are details: their owner and who sees all may see them. */
static void details_are_for_their_owner_and_for_who_sees_all(void **state)
{
    struct book_builder b;
    book_begin(f.world, &b, "1.book", BOOK_SOURCE_CLIENT);
    uint32_t heap = account_add(&b, MEMOIR_SPACE_HEAP, BOOK_DEVICE_HOST, 2, 30);
    builder_block(&b, 0, 0x1000, 10, 0, heap, 0, 1);
    builder_block(&b, 1, 0x2000, 20, 0, heap, 0, 1);
    builder_publish(&b);
    struct ledger_process *process = add(f.world, "1.book")->process;
    ledger_update_state(f.world->ledger, process);
    process->uid = 5001;
    static const struct {
        struct asking_viewer viewer;
        bool sees;
    } cases[] = {
        {{.sees_all = true, .uid = OTHER_USER}, true},
        {{.uid = 5001}, true},
        {{.uid = OTHER_USER}, false},
        {{.uid = 0}, false}, /* whether it is root is for the caller to say */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(asking_may_see(&cases[i].viewer, 5001), cases[i].sees);
        assert_int_equal(rows_for("buffers", &cases[i].viewer, 0), cases[i].sees ? 2 : 0);
        assert_int_equal(rows_for("processes", &cases[i].viewer, 0), 1); /* totals are for all */
    }
}

static void what_memoird_does_not_have_is_an_error(void **state)
{
    static const struct asking_viewer root = {.sees_all = true};
    assert_int_equal(rows_for("host", &root, -ENODEV), 0);
    assert_int_equal(rows_for("history", &root, -EOPNOTSUPP), 0);
    assert_int_equal(rows_for("explain", &root, -EOPNOTSUPP), 0);
    assert_int_equal(rows_for("cgroups", &root, 0), 0); /* none are known */
}

static void time_of_interruptions_is_not_counted_for_tables_in_memory(void **state)
{
    assert_int_equal(asking_cost(0, 900000, 5), 900000);
    assert_int_equal(asking_cost(QUERY_NEEDS_HOST, 900000, 5), 5);
    assert_int_equal(asking_cost(QUERY_NEEDS_HOST, ASKING_SHORT_NS, 5), 5);
    assert_int_equal(asking_cost(QUERY_NEEDS_HOST, ASKING_SHORT_NS - 1, 5), ASKING_SHORT_NS - 1);
    assert_int_equal(asking_cost(QUERY_NEEDS_FACTS, ASKING_SHORT_NS, 5), ASKING_SHORT_NS);
}

static struct ledger_process *process_add(void)
{
    struct book_builder b;
    book_begin(f.world, &b, "1.book", BOOK_SOURCE_CLIENT);
    (void)account_add(&b, MEMOIR_SPACE_HEAP, BOOK_DEVICE_HOST, 2, 30);
    builder_publish(&b);
    struct ledger_process *process = add(f.world, "1.book")->process;
    ledger_update_state(f.world->ledger, process);
    return process;
}

static void users_have_their_names(void **state)
{
    static const struct asking_viewer root = {.sees_all = true};
    process_add()->uid = 0;
    struct asked *asked = prepare(&(struct query_spec){.table = "processes", .show = "user"});
    assert_int_equal(asking_run(f.daemon.asking, asked, &root), 0);
    assert_string_equal(query_result_value(asked->result, 0, 0).text, "root");
}

/* Has a question the facts of /proc read again? */
static bool reads_facts(struct ledger_process *process, uint64_t refresh_ns)
{
    static const struct asking_viewer root = {.sees_all = true};
    f.daemon.config.refresh_ns = refresh_ns;
    process->valid &= ~(uint32_t)LEDGER_HAS_RSS;
    struct asked *asked = prepare(&(struct query_spec){.table = "processes", .show = "pid,rss"});
    assert_int_equal(asking_run(f.daemon.asking, asked, &root), 0);
    return process->valid & LEDGER_HAS_RSS;
}

static void facts_of_processes_are_read_as_often_as_figures(void **state)
{
    struct ledger_process *process = process_add();
    uint64_t half_ns = clock_monotonic_ns() / 2;
    assert_false(reads_facts(process, UINT64_MAX));
    assert_true(reads_facts(process, half_ns)); /* never yet */
    assert_false(reads_facts(process, half_ns));
    assert_true(reads_facts(process, 0));
}

/* The table of processes is given back after each question: its thread and the next question need it. */
static void the_table_of_processes_is_asked_again_and_again(void **state)
{
    enum { PATIENCE_MS = 60000, STEP_MS = 5 };
    static const struct asking_viewer patient = {.sees_all = true};
    static const char *const tables[] = {"host", "cgroups", "host"};
    struct turn turn = {0};
    assert_int_equal(hosts_new(false, 0, &f.daemon.hosts), 0);
    /* Nobody has looked yet, which only matters to who needs it. */
    const struct query_table *table = query_table_find("processes");
    assert_int_equal(asking_wait(f.daemon.asking, table, &turn, 0), 0);
    table = query_table_find("host");
    assert_int_equal(asking_wait(f.daemon.asking, table, &turn, 0),
                     ASKING_HOST_WAIT_MS * NS_PER_MS);
    int ms = 0;
    for (size_t i = 0; i < 3; i++) {
        table = query_table_find(tables[i]);
        for (; asking_wait(f.daemon.asking, table, &turn, 0) && ms < PATIENCE_MS; ms += STEP_MS)
            usleep(STEP_MS * 1000);
        asking_leave(f.daemon.asking, &turn);
        size_t rows = rows_for(tables[i], &patient, 0);
        assert_true(rows > 0 || i == 1); /* there may be no cgroups */
    }
    assert_true(ms < PATIENCE_MS);
    hosts_free(f.daemon.hosts);
    f.daemon.hosts = NULL;
}

/* Does a question after a report have all figures read again? server_refresh() does not, since that takes long here. */
static bool asks_for_new_figures(bool report)
{
    static const struct asking_viewer root = {.sees_all = true};
    f.server.changed = false;
    f.server.refreshed_ns = clock_monotonic_ns();
    f.server.figures.reports += report;
    (void)rows_for("processes", &root, 0);
    return f.server.changed;
}

/* A report is seen by the next question where reading all figures is cheap. The cost that is expected rises slowly, since one
 * read may have been interrupted, and falls at once. */
static void a_report_is_seen_at_once_where_that_is_cheap(void **state)
{
    enum { LONG_S = 600 };
    static const struct asking_viewer root = {.sees_all = true};
    f.server.refresh_cost_ns = f.server.refresh_cost_before_ns = LONG_S * NS_PER_S;
    for (int i = 0; i < 5; i++) {
        assert_false(asks_for_new_figures(false));
        assert_true(asks_for_new_figures(true));
    }
    for (int i = 0; i < 20; i++)
        (void)asks_for_new_figures(true);
    assert_false(asks_for_new_figures(true)); /* it does take long */
    f.server.refresh_cost_ns = f.server.refresh_cost_before_ns = f.server.refreshed_ns = 0;
    (void)rows_for("processes", &root, 0); /* now they are read, which takes microseconds */
    assert_true(f.server.refreshed_ns > 0);
    f.server.refresh_cost_ns = f.server.refresh_cost_before_ns = LONG_S * NS_PER_S;
    assert_true(asks_for_new_figures(true));
}

/* ---- whether ends are seen ---- */

static void check_exits(const struct exit_file_header *header, const char *expected)
{
    struct buffer out = BUFFER_INIT(1 << 12);
    struct json json;
    json_init(&json, &out);
    json_object_begin(&json);
    asking_exit_state_json(header, &json);
    json_object_end(&json);
    assert_int_equal(json_finish(&json), 0);
    assert_string_equal(buffer_string(&out), expected);
    buffer_release(&out);
}

static void the_state_of_the_watch_is_told(void **state)
{
    struct exit_file_header h = {
        .state = EXIT_WATCH_ON, .since_ns = 5250 * NS_PER_MS, .seen = 7, .lost = 2, .forgotten = 1};
    check_exits(NULL, "{\"exits\":{\"state\":\"off\"}}");
    check_exits(&h, "{\"exits\":{\"state\":\"on\",\"since\":5.25,\"seen\":7,\"lost\":2,"
                    "\"forgotten\":1}}");
    h.gap_from_ns = 1500 * NS_PER_MS;
    h.gap_to_ns = 2500 * NS_PER_MS + 999; /* below a millisecond: cut off */
    h.state = EXIT_WATCH_CANNOT;
    strcpy(h.why, "no BPF");
    check_exits(&h, "{\"exits\":{\"state\":\"failed\",\"why\":\"no BPF\",\"seen\":7,\"lost\":2,"
                    "\"forgotten\":1,\"gap_from\":1.5,\"gap_to\":2.5}}");
    h.gap_to_ns = 0;
    h.state = EXIT_WATCH_NEVER;
    check_exits(&h, "{\"exits\":{\"state\":\"off\",\"seen\":7,\"lost\":2,\"forgotten\":1}}");
    h.state = 99; /* of a newer version */
    check_exits(&h, "{\"exits\":{\"state\":\"off\",\"seen\":7,\"lost\":2,\"forgotten\":1}}");
}

static void only_answers_about_ends_tell_it(void **state)
{
    static const char *const tables[] = {"processes", "exited"};
    for (size_t i = 0; i < 2; i++) {
        struct buffer out = BUFFER_INIT(1 << 12);
        struct json json;
        struct asked *asked = prepare(&(struct query_spec){.table = tables[i]});
        json_init(&json, &out);
        json_object_begin(&json);
        asking_exits_json(f.daemon.asking, asked, &json);
        json_object_end(&json);
        assert_int_equal(json_finish(&json), 0);
        assert_string_equal(buffer_string(&out), i ? "{\"exits\":{\"state\":\"off\"}}" : "{}");
        buffer_release(&out);
    }
}

int main(void)
{
#define ASKING_TEST(name) cmocka_unit_test_setup_teardown(name, asking_setup, asking_teardown)
    const struct CMUnitTest tests[] = {
        ASKING_TEST(an_answer_has_so_many_rows_at_most),
        ASKING_TEST(a_question_is_the_same_in_all_its_parts),
        ASKING_TEST(the_question_that_was_asked_longest_ago_gives_way),
        ASKING_TEST(large_answers_are_not_kept),
        ASKING_TEST(costly_tables_wait_after_costly_answers),
        ASKING_TEST(details_are_for_their_owner_and_for_who_sees_all),
        ASKING_TEST(what_memoird_does_not_have_is_an_error),
        ASKING_TEST(a_report_is_seen_at_once_where_that_is_cheap),
        cmocka_unit_test(time_of_interruptions_is_not_counted_for_tables_in_memory),
        ASKING_TEST(users_have_their_names),
        ASKING_TEST(facts_of_processes_are_read_as_often_as_figures),
        ASKING_TEST(the_table_of_processes_is_asked_again_and_again),
        cmocka_unit_test(the_state_of_the_watch_is_told),
        ASKING_TEST(only_answers_about_ends_tell_it),
    };
    (void)tables_register();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
