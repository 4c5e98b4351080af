/* Every table: the partial results of three machines, however they are merged and whether they travelled or not, are the result
 * of all three looked at in one go. And views ask what they say. */
#include "host_tree.h"
#include "ledger_world.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "daemon/events.h"
#include "daemon/events_table.h"
#include "daemon/tables.h"
#include "explain/explain.h"
#include "explain/table.h"
#include "history/table.h"
#include "history_fixture.h"
#include "ledger/cgroups.h"
#include "ledger/driver.h"
#include "ledger/host.h"
#include "ledger/leaks.h"
#include "nvml/facts.h"
#include "profile/suspects.h"
#include "profile/tables.h"
#include "query/query.h"
#include "query/retired_source.h"
#include "query/view.h"

enum { MACHINES = 3, SHOW_MAX = 2048, COLUMNS_AT_ONCE = 40 };

struct machine {
    struct world *books;
    char root[64], name[16];
    struct host *host;
    struct cgroups *cgroups;
    struct query_exited exited[2];
    char state[80];
    struct retired_files retired;
    struct events_world events;
    char past[96];
    struct history_world history;
    struct explain_subject subject;
    struct explain_world explain;
    struct leak leak;
    struct suspects suspects;
    struct query_world world;
};

static struct machine machines[MACHINES];

static void make_books(struct machine *m, unsigned i)
{
    void *state = NULL;
    assert_int_equal(setup(&state), 0);
    m->books = state;
    struct book_builder b;
    book_begin(m->books, &b, "1.book", BOOK_SOURCE_CLIENT);
    builder_sample(&b, b.fd);
    b.h.pid = getpid();
    b.h.pid_ns = m->books->pid_ns;
    b.h.start_ticks = m->books->self.start_ticks;
    b.h.uid = geteuid();
    builder_publish(&b);
    struct ledger_book *book = add(m->books, "1.book");
    ledger_update_state(m->books->ledger, book->process);
    ledger_update_facts(m->books->ledger, book->process);
    ledger_refresh(m->books->ledger);
    struct nvml_facts facts = {.n_devices = 1, .n_processes = 1, .driver = "1.2"};
    facts.memory = calloc(1, sizeof(struct nvml_device) + sizeof(struct nvml_process));
    facts.devices = facts.memory;
    facts.processes = (struct nvml_process *)(facts.devices + 1);
    facts.devices[0] =
        (struct nvml_device){.mig_index = -1,
                             .valid = NVML_HAS_TOTAL | NVML_HAS_USED | NVML_HAS_PROCESSES,
                             .total_bytes = 1000000 * (i + 1),
                             .used_bytes = 700 * (i + 1)};
    snprintf(facts.devices[0].uuid, sizeof(facts.devices[0].uuid), "GPU-%u", i);
    snprintf(facts.devices[0].name, sizeof(facts.devices[0].name), "H200");
    facts.processes[0] = (struct nvml_process){
        .pid = (uint32_t)getpid(), .is_here = true, .has_used = true, .used_bytes = 300 + i};
    assert_int_equal(ledger_driver_set(m->books->ledger, &facts), 0);
    const struct ledger_process *p = book->process;
    m->leak = (struct leak){.process = p,
                            .account = &p->accounts[0],
                            .book = book,
                            .site = 1,
                            .key = 77,
                            .live_bytes = 1000 * (i + 1),
                            .live_blocks = i + 1,
                            .left_ns = UINT64_MAX};
    m->leak.result.verdict = DETECT_GROWING;
    m->leak.result.confidence = 0.5;
    m->leak.result.bytes_per_s = 10 * (i + 1);
    assert_int_equal(suspects_from(&(struct leaks){.rows = &m->leak, .n = 1}, &m->suspects), 0);
}

static void make_host(struct machine *m, unsigned i)
{
    char cgroups[128];
    tree_make();
    snprintf(m->root, sizeof(m->root), "%s", tree_root);
    snprintf(cgroups, sizeof(cgroups), "%s/cgroups", tree_root);
    for (int pid = 10; pid < 13; pid++)
        tree_process(&(struct tree_process){
            .pid = pid, .start = 1, .rss_pages = 100 * (i + 1), .uid = 1000 + (unsigned)pid % 2});
    tree_printf("10/smaps_rollup", "Pss: 40 kB\nPrivate_Clean: 2 kB\nPrivate_Dirty: %u kB\n", i);
    tree_printf("10/cgroup", "0::/a\n");
    tree_printf("meminfo", "MemTotal: %u kB\nMemFree: 10 kB\nMemAvailable: 40 kB\n", 100 * (i + 1));
    tree_printf("cgroups/cgroup.controllers", "cpu memory pids\n");
    tree_printf("cgroups/a/memory.current", "%u\n", 1000 * (i + 1));
    tree_printf("cgroups/a/memory.max", "9000\n");
    tree_printf("cgroups/a/memory.stat", "anon 100\nfile 200\ninactive_file 7\n");
    tree_printf("cgroups/a/cgroup.procs", "10\n");
    assert_int_equal(
        host_new(&(struct host_options){.proc = tree_root, .cgroups = cgroups}, &m->host), 0);
    assert_int_equal(host_refresh(m->host), 0);
    assert_true(host_refine(m->host, 100 * NS_PER_S));
    assert_int_equal(cgroups_new(cgroups, &m->cgroups), 0);
    while (cgroups_read(m->cgroups, UINT64_MAX) == 0)
        ;
}

/* What memoird remembers of the blocks of a process that ended; and a line that is none. */
static void make_retired(struct machine *m, unsigned i)
{
    tree_printf(
        "state/retired.jsonl",
        "{\"pid\":%u,\"uid\":1000,\"name\":\"train\",\"cause\":\"killed by SIGKILL\",\"start\":3,\"end\":%u,"
        "\"devices\":[{\"ordinal\":0,\"name\":\"H200\",\"uid\":\"GPU-%u\"}],"
        "\"accounts\":[{\"space\":\"heap\"},{\"space\":\"dram\",\"device\":0}],"
        "\"blocks\":[{\"id\":\"0x1\",\"bytes\":%u,\"account\":1,\"age_s\":2.5,\"tag\":\"w\",\"site\":0,"
        "\"moves\":2},{\"id\":\"0x2\",\"bytes\":5,\"account\":0,\"site\":1},{\"account\":9,\"site\":9}],"
        "\"sites\":[{\"frames\":[\"/bin/train+0x1f\"]},{\"frames\":[\"/bin/python3+0x1\","
        "\"/home/ann/a:b.py:7 in load\"]}]}\n[1]\n",
        100 + i, 5 + i, i, 1000 * (i + 1));
    snprintf(m->state, sizeof(m->state), "%s/state", m->root);
    m->retired = (struct retired_files){{retired_files_read}, m->state};
}

static void make_events(struct machine *m, unsigned i)
{
    struct events *events;
    assert_int_equal(events_new(&events), 0);
    events_add(events, &(struct event){.kind = EVENT_DEVICE, .text = "a card"});
    events_add(events, &(struct event){.kind = EVENT_KILLED,
                                       .pid = 100 + (int)i,
                                       .uid = 1000 + i,
                                       .has_bytes = true,
                                       .bytes = 5,
                                       .program = "train"});
    m->events.events = events;
}

static void make_history(struct machine *m, unsigned i)
{
    snprintf(m->past, sizeof(m->past), "%s/history.db", m->root);
    fixture_record(m->past, i);
    m->history = (struct history_world){.path = m->past,
                                        .since_s = FIXTURE_T0,
                                        .until_s = FIXTURE_T0 + FIXTURE_SECONDS,
                                        .step_s = 10};
}

enum { EXPLAINED = 77 };

static int take_explain(const struct explain_subject *subject, struct explain *ret,
                        struct explain_sites *ret_sites, void *context)
{
    const struct machine *m = context;
    uint64_t bytes = 1000 * (uint64_t)(m - machines + 1);
    *ret = (struct explain){.pid = subject->pid, .n_parts = 2, .rss_bytes = bytes + 10};
    ret->parts[0] = (struct explain_part){.kind = EXPLAIN_HEAP, .bytes = bytes, .mappings = 2};
    ret->parts[1] = (struct explain_part){
        .kind = EXPLAIN_FILE, .marks = EXPLAIN_ESTIMATE, .bytes = 10, .mappings = 1};
    strcpy(ret->parts[0].name, "glibc");
    strcpy(ret->parts[1].name, m->name);
    return 0;
}

static void make_explain(struct machine *m)
{
    m->subject =
        (struct explain_subject){.pid = EXPLAINED, .uid = 1000, .program = "train", .user = "ann"};
    m->explain = (struct explain_world){&m->subject, 1, take_explain, m};
}

static int make_machines(void **state)
{
    for (unsigned i = 0; i < MACHINES; i++) {
        struct machine *m = &machines[i];
        snprintf(m->name, sizeof(m->name), "node%u", i);
        make_books(m, i);
        make_host(m, i);
        make_retired(m, i);
        make_events(m, i);
        make_history(m, i);
        make_explain(m);
        m->exited[0] = (struct query_exited){.program = "train",
                                             .user = "ann",
                                             .cause = "exited with 0",
                                             .kind = "code",
                                             .pid = 100 + i,
                                             .uid = 1000,
                                             .end_ns = 5 * NS_PER_S,
                                             .has_exit_code = true,
                                             .peak_rss = 4096 * (i + 1),
                                             .has_exit = true};
        m->exited[1] =
            (struct query_exited){.program = "infer", .pid = 7, .uid = 1001, .end_ns = 9};
        query_exited_add_account(&m->exited[0], MEMOIR_SPACE_HEAP, 1000 * (i + 1), i, 9000);
        m->world = (struct query_world){.ledger = m->books->ledger,
                                        .exited = m->exited,
                                        .n_exited = 2,
                                        .suspects = &m->suspects,
                                        .host = m->host,
                                        .cgroups = m->cgroups,
                                        .retired = &m->retired.source,
                                        .events = &m->events,
                                        .history = &m->history,
                                        .explain = &m->explain,
                                        .sees_all = true,
                                        .node = m->name,
                                        .now_real_ns = 1900000000 * NS_PER_S};
    }
    return 0;
}

static int free_machines(void **state)
{
    for (unsigned i = 0; i < MACHINES; i++) {
        void *books = machines[i].books;
        host_free(machines[i].host);
        suspects_release(&machines[i].suspects);
        events_free((struct events *)machines[i].events.events);
        cgroups_free(machines[i].cgroups);
        snprintf(tree_root, sizeof(tree_root), "%s", machines[i].root);
        tree_remove();
        teardown(&books);
    }
    return 0;
}

static char *answer(struct query_result *result)
{
    struct buffer out = BUFFER_INIT(16 << 20);
    struct json json;
    assert_int_equal(query_result_finish(result), 0);
    json_init(&json, &out);
    json_object_begin(&json);
    query_result_json(result, &json);
    json_object_end(&json);
    assert_int_equal(json_finish(&json), 0);
    return buffer_take(&out);
}

static struct query_result *run(const struct query *query, const struct query_world *world,
                                struct query_result *into)
{
    if (!into)
        assert_int_equal(query_result_new(query, 0, &into), 0);
    if (world)
        assert_int_equal(query_run(query, world, into), 0);
    return into;
}

/* In two orders, of which one travels. */
static void check_merges(const struct query_spec *asked, bool sees_all, uint64_t *rows)
{
    struct query *query = NULL;
    struct query_error error;
    struct query_spec spec = *asked;
    if (query_table_find(spec.table)->named_by) /* its processes have to be named */
        spec.where = "pid=77 or pid=78";
    if (query_new(&spec, &query, &error) < 0)
        fail_msg("%s: %s", spec.table, error.text);
    struct query_result *whole = run(query, NULL, NULL), *merged = run(query, NULL, NULL),
                        *sent = run(query, NULL, NULL);
    for (unsigned i = 0; i < MACHINES; i++) {
        unsigned back = MACHINES - 1 - i;
        struct query_world world = machines[i].world, other = machines[back].world;
        world.sees_all = other.sees_all = sees_all;
        world.viewer_uid = other.viewer_uid = 1000;
        struct query_result *part = run(query, &world, NULL), *bytes = run(query, &other, NULL);
        struct buffer text = BUFFER_INIT(16 << 20);
        run(query, &world, whole);
        assert_int_equal(query_result_merge(merged, part), 0);
        assert_int_equal(query_partial_write(bytes, &text), 0);
        assert_int_equal(query_partial_read(sent, text.data, text.len), 0);
        buffer_release(&text);
        query_result_free(part);
        query_result_free(bytes);
    }
    char *expected = answer(whole), *once = answer(merged), *twice = answer(sent);
    assert_string_equal(once, expected);
    assert_string_equal(twice, expected);
    *rows += query_result_matched(whole);
    free(expected);
    free(once);
    free(twice);
    query_result_free(whole);
    query_result_free(merged);
    query_result_free(sent);
    query_free(query);
}

/* Ages of blocks and of what is known of cgroups are read from the clock: two looks differ. */
static bool stands_still(const struct query_table *table, const struct query_column *column)
{
    return !(table->needs & (QUERY_NEEDS_BLOCKS | QUERY_NEEDS_CGROUPS) &&
             column->kind == QUERY_AGE);
}

static const struct query_column *some_columns(const struct query_table *table,
                                               const struct query_column *from,
                                               const char *aggregate, char *show)
{
    size_t len = 0, n = 0;
    for (show[0] = '\0'; from->name && n < COLUMNS_AT_ONCE; from++) {
        if (!stands_still(table, from))
            continue;
        len += (size_t)snprintf(show + len, SHOW_MAX - len, "%s%s%s%s%s", n ? "," : "",
                                aggregate ? aggregate : "", aggregate ? "(" : "", from->name,
                                aggregate ? ")" : "");
        n++;
        assert_true(len < SHOW_MAX);
    }
    return from;
}

/* Rows by node, not by ages, which the usual order of some tables looks at. */
static void check_table(const struct query_table *table, bool sees_all)
{
    char show[SHOW_MAX];
    uint64_t rows = 0;
    for (const struct query_column *at = table->columns; at->name;) {
        const struct query_column *first = at;
        at = some_columns(table, first, NULL, show);
        check_merges(&(struct query_spec){.table = table->name, .show = show, .sort = "node"},
                     sees_all, &rows);
        check_merges(
            &(struct query_spec){
                .table = table->name, .show = show, .sort = "node", .limit = 1, .others = true},
            sees_all, &rows);
        check_merges(&(struct query_spec){.table = table->name, .by = "node", .show = show},
                     sees_all, &rows);
        for (const struct query_column *c = table->columns; c->name; c++)
            if (c->kind == QUERY_TEXT)
                check_merges(
                    &(struct query_spec){.table = table->name, .by = c->name, .show = show},
                    sees_all, &rows);
        static const char *const aggregates[] = {"max", "min", "any", "count", "same"};
        for (size_t a = 0; a < sizeof(aggregates) / sizeof(aggregates[0]); a++) {
            some_columns(table, first, aggregates[a], show);
            check_merges(&(struct query_spec){.table = table->name, .show = show}, sees_all, &rows);
        }
    }
    if (rows == 0)
        fail_msg("the three machines have no row of the table %s", table->name);
}

static void blocks_of_ended_processes_have_their_places(void **state)
{
    struct query *query = NULL;
    struct query_error error;
    struct query_spec spec = {
        .table = "exited_blocks",
        .show = "pid,program,ended,device,device_uid,space,bytes,age,tag,moves,id,site,function,"
                "source_file,line,frame"};
    assert_int_equal(query_new(&spec, &query, &error), 0);
    struct query_result *result = run(query, &machines[1].world, NULL);
    char *text = answer(result);
    assert_non_null(strstr(
        text,
        "{\"pid\":101,\"program\":\"train\",\"ended\":\"1970-01-01T00:00:06.000Z\","
        "\"device\":\"0 H200\",\"device_uid\":\"GPU-1\",\"space\":\"dram\",\"bytes\":2000,"
        "\"age\":2.5,\"tag\":\"w\",\"moves\":2,\"id\":\"0x1\",\"site\":\"train+0x1f\","
        "\"function\":null,\"source_file\":null,\"line\":null,\"frame\":\"/bin/train+0x1f\"}"));
    assert_non_null(strstr(text, "\"site\":\"a:b.py:7 in load\",\"function\":\"load\","
                                 "\"source_file\":\"/home/ann/a:b.py\",\"line\":7,"
                                 "\"frame\":\"/home/ann/a:b.py:7\""));
    assert_true(query_result_incomplete(result)); /* one line of the list is none */
    assert_int_equal(query_result_rows(result), 3);
    free(text);
    query_result_free(result);
    struct query_world other = machines[1].world;
    other.sees_all = false;
    other.viewer_uid = 1001;
    result = run(query, &other, NULL);
    assert_int_equal(query_result_finish(result), 0);
    assert_int_equal(query_result_rows(result), 0); /* another user's */
    query_result_free(result);
    query_free(query);
}

static void every_table_merges(void **state)
{
    for (const struct query_table *const *t = query_tables(); *t; t++) {
        print_message("%s\n", (*t)->name);
        check_table(*t, true);
    }
}

static void every_table_merges_for_one_user(void **state)
{
    char show[SHOW_MAX];
    uint64_t rows = 0;
    for (const struct query_table *const *t = query_tables(); *t; t++) {
        some_columns(*t, (*t)->columns, NULL, show);
        check_merges(&(struct query_spec){.table = (*t)->name, .show = show, .sort = "node"}, false,
                     &rows);
    }
    assert_true(rows > 0);
}

static void views_are_questions_that_make_sense(void **state)
{
    for (const struct query_view *v = query_views(); v->name || v->route; v++) {
        struct buffer where = BUFFER_INIT(8192);
        struct query *query = NULL;
        struct query_error error = {0};
        struct query_spec spec;
        if (!query_table_find(v->table))
            continue; /* a table that a program registers */
        assert_int_equal(query_view_spec(v, &(struct query_spec){0}, &where, &spec), 0);
        if (query_new(&spec, &query, &error) < 0)
            fail_msg("%s: %s", v->route ? v->route : v->name, error.text);
        query_free(query);
        assert_true(!v->name || query_view_find(v->name) == v);
        assert_true(!v->route || query_view_route(v->route) == v);
        assert_true(!v->route || v->summary);
        /* Groups show what the table shows of groups, and a test narrows the view's own. */
        struct query_view own = *v;
        own.where = "node=a";
        assert_int_equal(
            query_view_spec(&own, &(struct query_spec){.by = "node", .where = "node=b or node=c"},
                            &where, &spec),
            0);
        assert_null(spec.show);
        assert_string_equal(spec.where, "(node=a) and (node=b or node=c)");
        buffer_release(&where);
    }
}

int main(void)
{
    assert_int_equal(tables_register(), 0); /* all of memoird's: one without rows here fails */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_ended_processes_have_their_places),
        cmocka_unit_test(every_table_merges),
        cmocka_unit_test(every_table_merges_for_one_user),
        cmocka_unit_test(views_are_questions_that_make_sense),
    };
    return cmocka_run_group_tests(tests, make_machines, free_machines);
}
