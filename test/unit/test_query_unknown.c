/* What a row does not tell is unknown, not absent: sums over it are at least so much. Columns are asked one by one, over rows
 * made by hand. */
#include <stdarg.h>

#include "ledger_world.h"

#include "base/clock.h"
#include "host_tree.h"
#include "ledger/driver.h"
#include "ledger/host.h"
#include "nvml/facts.h"
#include "profile/suspects.h"
#include "profile/tables.h"
#include "query/plan.h"
#include "query/query.h"

static const struct query_column *column(const struct query_table *table, const char *name)
{
    for (const struct query_column *c = table->columns; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    fail_msg("no column %s", name);
    return NULL;
}

static struct query_value value_of(const struct query_table *table, const char *name,
                                   const struct query_world *world, struct query_row row)
{
    const struct query_column *c = column(table, name);
    struct query_field field = {.column = c, .ordinal = -1};
    struct query_value value = {0};
    c->get(world, &row, &field, &value);
    return value;
}

/* All of these columns are in this state. */
static void check_states(const struct query_table *table, const struct query_world *world,
                         struct query_row row, unsigned expected, const char *const names[])
{
    for (size_t i = 0; names[i]; i++)
        if (value_of(table, names[i], world, row).state != expected)
            fail_msg("%s is in state %u, not %u", names[i],
                     value_of(table, names[i], world, row).state, expected);
}

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

static void check_text(struct query_value value, const char *text)
{
    assert_int_equal(value.state, QUERY_KNOWN);
    assert_int_equal(value.len, strlen(text));
    assert_memory_equal(value.text, text, value.len);
}

/* ---- processes with a book ---- */

static void a_process_that_tells_nothing_is_unknown(void **state)
{
    struct query_world world = {.sees_all = true};
    char none[] = "";
    struct ledger_process process = {.exe = none, .command = none, .pid = 77, .threads = 7};
    struct query_row row = {.process = &process};
    check_states(&query_table_processes, &world, row, QUERY_UNKNOWN,
                 NAMES("pid", "command", "exe", "start", "rss", "vms", "shared", "threads"));
    check_states(&query_table_processes, &world, row, 0,
                 NAMES("device", "heap", "blocks", "other"));
    check_states(&query_table_processes, &world, row, QUERY_KNOWN,
                 NAMES("uid", "age", "losses", "book_size", "holds"));
}

/* Accounts of which one could not be read, in any order. */
static void figures_of_accounts_that_cannot_be_read_are_at_least(void **state)
{
    struct query_world world = {.sees_all = true};
    struct ledger_account accounts[3] = {
        {.space = MEMOIR_SPACE_HEAP, .valid = true, .sampled = true, .totals.live_bytes = 5},
        {.space = MEMOIR_SPACE_HEAP, .valid = false, .totals.live_bytes = 100},
        {.space = MEMOIR_SPACE_HEAP, .valid = true, .partial = true, .totals.live_bytes = 7},
    };
    struct ledger_process process = {.name = "", .accounts = accounts, .n_accounts = 3};
    for (int turn = 0; turn < 3; turn++) {
        struct query_value heap = value_of(&query_table_processes, "heap", &world,
                                           (struct query_row){.process = &process});
        assert_int_equal(heap.number, 12);
        assert_int_equal(heap.state, QUERY_KNOWN | QUERY_UNKNOWN);
        assert_int_equal(heap.marks, QUERY_ESTIMATE | QUERY_AT_LEAST);
        struct ledger_account first = accounts[0];
        memmove(accounts, accounts + 1, 2 * sizeof(first));
        accounts[2] = first;
    }
    process.n_accounts = 1;
    accounts[0].valid = false;
    assert_int_equal(
        value_of(&query_table_processes, "heap", &world, (struct query_row){.process = &process})
            .state,
        QUERY_UNKNOWN);
}

static void sums_beyond_all_numbers_are_at_least_the_largest(void **state)
{
    struct query_world world = {.sees_all = true};
    struct ledger_account accounts[2] = {
        {.space = MEMOIR_SPACE_HEAP,
         .valid = true,
         .sampled = true,
         .totals.live_bytes = UINT64_MAX},
        {.space = MEMOIR_SPACE_HEAP, .valid = true, .totals.live_bytes = 2},
    };
    struct ledger_process process = {.name = "", .accounts = accounts, .n_accounts = 2};
    struct query_value heap =
        value_of(&query_table_processes, "heap", &world, (struct query_row){.process = &process});
    assert_true(heap.number == UINT64_MAX);
    assert_int_equal(heap.marks, QUERY_ESTIMATE | QUERY_AT_LEAST);
}

static void a_device_column_is_named_by_its_number_and_space(void **state)
{
    static const struct {
        const char *name;
        int32_t ordinal; /* -1: no such column */
        uint32_t space;
    } names[] = {
        {"device.0", 0, 0},
        {"device.12", 12, 0},
        {"device.305.dram", 305, MEMOIR_SPACE_DRAM},
        {"device.123456", 123456, 0},
        {"device.7.system", 7, MEMOIR_SPACE_SYSTEM},
        {"device.7.space-31", 7, MEMOIR_SPACE_MAX},
        {"device", -1, 0},
        {"device.", -1, 0},
        {"device.x", -1, 0},
        {"device.1x", -1, 0},
        {"device.1xdram", -1, 0},
        {"device.1:", -1, 0},
        {"device./1", -1, 0},
        {"device..dram", -1, 0},
        {"device.1.", -1, 0},
        {"device.1.heap", -1, 0}, /* memory of the host has no device */
        {"device.1.nothing", -1, 0},
        {"device.1234567", -1, 0},
        {"devices.1", -1, 0},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct query_field field = {0};
        /* What stands behind the name does not belong to it. */
        char text[32];
        snprintf(text, sizeof(text), "%s5.l1", names[i].name);
        bool found = query_table_processes.resolve(text, strlen(names[i].name), &field);
        assert_int_equal(found, names[i].ordinal >= 0);
        if (!found)
            continue;
        assert_string_equal(field.column->name, "device");
        assert_int_equal(field.ordinal, names[i].ordinal);
        assert_int_equal(field.space, names[i].space);
    }
}

/* ---- what a driver counts ---- */

static void told(struct world *w, size_t n_processes, const struct nvml_process *processes)
{
    static const struct nvml_device gpu = {.mig_index = -1,
                                           .valid = NVML_HAS_TOTAL | NVML_HAS_PROCESSES,
                                           .total_bytes = 1000000,
                                           .uuid = "GPU-aa",
                                           .bus = "0000:1b:00.0"};
    struct nvml_facts facts = {.n_devices = 2, .n_processes = n_processes};
    facts.memory = calloc(1, 2 * sizeof(gpu) + n_processes * sizeof(*processes) + 1);
    assert_non_null(facts.memory);
    facts.devices = facts.memory;
    facts.processes = (struct nvml_process *)(facts.devices + 2);
    facts.devices[0] = facts.devices[1] = gpu;
    strcpy(facts.devices[1].uuid, "GPU-bb");
    strcpy(facts.devices[1].bus, "0000:1c:00.0");
    memcpy(facts.processes, processes, n_processes * sizeof(*processes));
    assert_int_equal(ledger_driver_set(w->ledger, &facts), 0);
}

static void check_driver(struct world *w, struct query_row row, unsigned expected, uint64_t bytes,
                         unsigned marks)
{
    struct query_world world = {.ledger = w->ledger, .sees_all = true};
    struct query_value value = value_of(&query_table_host, "device.driver", &world, row);
    assert_int_equal(value.state, expected);
    assert_int_equal(value.number, bytes);
    assert_int_equal(value.marks, marks);
}

static void bytes_that_the_driver_does_not_tell_are_unknown(void **state)
{
    struct world *w = *state;
    told(w, 4,
         (struct nvml_process[]){
             {.pid = 5, .device = 0, .has_used = 1, .used_bytes = 300, .is_here = 1},
             {.pid = 6, .device = 0, .is_here = 1},
             {.pid = 7, .device = 0, .has_used = 1, .used_bytes = 40, .is_here = 1},
             {.pid = 7, .device = 1, .is_here = 1}});
    struct ledger_process process = {.name = "", .valid = LEDGER_HAS_PID, .pid = 5};
    struct host_process host = {.pid = 7};
    check_driver(w, (struct query_row){.process = &process}, QUERY_KNOWN, 300, 0);
    process.pid = 6;
    check_driver(w, (struct query_row){.process = &process}, QUERY_UNKNOWN, 0, 0);
    process.pid = 7;
    check_driver(w, (struct query_row){.process = &process}, QUERY_KNOWN | QUERY_UNKNOWN, 40,
                 QUERY_AT_LEAST);
    process.pid = 8;
    check_driver(w, (struct query_row){.process = &process}, 0, 0, 0);
    /* The row of the process table has the PID; a book may be without, or of another machine. */
    process.valid = 0;
    process.pid = 5;
    check_driver(w, (struct query_row){.process = &process}, 0, 0, 0);
    check_driver(w, (struct query_row){.process = &process, .host = &host},
                 QUERY_KNOWN | QUERY_UNKNOWN, 40, QUERY_AT_LEAST);
    process.valid = LEDGER_HAS_PID;
    strcpy(process.host, "elsewhere");
    check_driver(w, (struct query_row){.process = &process}, 0, 0, 0);
}

/* ---- all processes ---- */

static struct host *host;

static int host_setup(void **state)
{
    tree_make();
    tree_process(&(struct tree_process){.pid = 10, .start = 1, .rss_pages = 100, .uid = 1000});
    assert_int_equal(host_new(&(struct host_options){.proc = tree_root}, &host), 0);
    assert_int_equal(host_refresh(host), 0);
    return 0;
}

static int host_teardown(void **state)
{
    host_free(host);
    tree_remove();
    return 0;
}

static void what_may_not_be_read_of_a_process_is_unknown(void **state)
{
    struct query_world world = {.sees_all = true, .host = host};
    size_t n;
    struct ledger_process process = {.name = ""};
    struct host_process *const *rows = host_processes(host, &n);
    assert_int_equal(n, 1);
    struct host_process *p = rows[0]; /* rates and families are found by their row */
    p->valid = 0;
    p->cgroup = NULL;
    struct query_row row = {.process = &process, .host = p};
    check_states(&query_table_host, &world, row, QUERY_UNKNOWN,
                 NAMES("user", "uid", "start", "age", "rss", "pss", "pss_age", "swap", "peak_rss",
                       "growth", "growth_1m", "growth_steady", "command", "exe", "container", "pod",
                       "threads", "cgroup", "cgroup_limit", "cgroup_used"));
    check_states(&query_table_host, &world, row, 0, NAMES("job", "rank", "book_size", "device"));
    p->kernel = true; /* has none of this */
    check_states(&query_table_host, &world, row, 0,
                 NAMES("start", "rss", "pss", "growth", "growth_steady", "command", "exe",
                       "container", "tree"));
    p->kernel = false;
    p->valid = HOST_HAS_CGROUP; /* a process without a container is in none */
    check_states(&query_table_host, &world, row, 0, NAMES("container", "pod"));
    check_states(&query_table_host, &world, row, QUERY_UNKNOWN, NAMES("command", "exe"));
}

static const char *name_of(uint32_t uid, void *context)
{
    return uid == 1000 ? "alice" : NULL;
}

static void users_have_the_best_name_that_is_known(void **state)
{
    struct query_world world = {.sees_all = true, .host = host};
    struct host_process p = {.uid = 1000, .valid = HOST_HAS_STATUS | HOST_HAS_USER};
    strcpy(p.user, "bob");
    struct query_row row = {.host = &p};
    check_text(value_of(&query_table_host, "user", &world, row), "bob");
    p.valid = HOST_HAS_STATUS;
    strcpy(p.user, "1000");
    check_text(value_of(&query_table_host, "user", &world, row), "1000");
    world.user_name = name_of;
    check_text(value_of(&query_table_host, "user", &world, row), "alice");
    p.valid = HOST_HAS_STATUS | HOST_HAS_USER;
    strcpy(p.user, "bob");
    check_text(value_of(&query_table_host, "user", &world, row), "bob");
    p = (struct host_process){.uid = 1001, .valid = HOST_HAS_STATUS};
    check_text(value_of(&query_table_host, "user", &world, row), "1001");
}

static void ages_of_figures_are_since_their_reading(void **state)
{
    struct query_world world = {.sees_all = true, .host = host};
    uint64_t now_ns = host_time_ns(host);
    struct host_process p = {
        .valid = HOST_HAS_PSS | HOST_HAS_STAT, .pss_ns = now_ns - 5, .details_ns = now_ns - 3};
    struct query_row row = {.host = &p};
    struct query_value age = value_of(&query_table_host, "pss_age", &world, row);
    assert_int_equal(age.state, QUERY_KNOWN);
    assert_int_equal(age.number, 5);
    assert_int_equal(value_of(&query_table_host, "details_age", &world, row).number, 3);
    p.pss_ns = now_ns + 7; /* read after the round began */
    assert_int_equal(value_of(&query_table_host, "pss_age", &world, row).number, 0);
}

/* What a process and its children hold. */
static void a_tree_with_a_process_that_cannot_be_read_is_at_least(void **state)
{
    struct query_world world = {.sees_all = true, .host = host};
    for (int hidden = 0; hidden < 2; hidden++) {
        tree_process(&(struct tree_process){
            .pid = 11, .start = 1, .rss_pages = 50, .uid = 1000, .parent = 10});
        if (hidden)
            tree_printf("11/statm", "0 0 0 0 0 0 0\n");
        struct host *fresh = NULL;
        assert_int_equal(host_new(&(struct host_options){.proc = tree_root}, &fresh), 0);
        assert_int_equal(host_refresh(fresh), 0);
        world.host = fresh;
        size_t n;
        struct host_process *const *rows = host_processes(fresh, &n);
        struct query_value tree =
            value_of(&query_table_host, "tree", &world, (struct query_row){.host = rows[0]});
        assert_int_equal(rows[0]->pid, 10);
        assert_int_equal(tree.state, QUERY_KNOWN);
        assert_int_equal(tree.number, (hidden ? 100 : 150) * 4096);
        assert_int_equal(tree.marks, hidden ? QUERY_AT_LEAST : 0);
        host_free(fresh);
    }
}

/* ---- suspects ---- */

static void what_is_not_known_of_a_suspect_is_unknown(void **state)
{
    struct query_world world = {.sees_all = true};
    struct suspect s = {.uid = UINT32_MAX, .ordinal = -1, .left_ns = UINT64_MAX, .ever_freed = -1};
    struct query_row row = {.custom = &s};
    check_states(&profile_table_leaks, &world, row, QUERY_UNKNOWN,
                 NAMES("site", "function", "source_file", "frame", "growth", "growth_blocks",
                       "confidence", "freed_share"));
    check_states(&profile_table_leaks, &world, row, 0,
                 NAMES("program", "user", "device", "limit_kind", "limit", "limit_in", "via", "why",
                       "key", "line", "stack", "samples", "trend", "examples", "pid", "uid",
                       "growing"));
    /* Growth of a resident size has no place, and no blocks. */
    s.resident = true;
    s.verdict = DETECT_GROWING;
    s.blocks_per_s = 5;
    check_states(&profile_table_leaks, &world, row, 0,
                 NAMES("site", "blocks", "growth_blocks", "site_number", "book_inode"));
    check_states(&profile_table_leaks, &world, row, QUERY_KNOWN,
                 NAMES("growth", "growing", "bytes", "level"));
    s.resident = false;
    check_states(&profile_table_leaks, &world, row, QUERY_KNOWN, NAMES("growth_blocks", "blocks"));
}

static void a_suspect_has_the_name_of_who_watched(void **state)
{
    struct suspects suspects = {.daemon = true};
    struct suspect s = {0};
    struct query_world world = {.sees_all = true};
    struct query_row row = {.custom = &s};
    check_text(value_of(&profile_table_leaks, "watcher", &world, row), "memoir");
    world.suspects = &suspects;
    check_text(value_of(&profile_table_leaks, "watcher", &world, row), "memoird");
    suspects.daemon = false;
    check_text(value_of(&profile_table_leaks, "watcher", &world, row), "memoir");
}

static void stacks_and_blocks_of_a_suspect_come_whole(void **state)
{
    struct suspect s = {.stack = {(char[]){"inner"}, (char[]){"middle"}, (char[]){"outer"}},
                        .n_stack = 3,
                        .n_blocks = 3,
                        .blocks = {{1, 10, NS_PER_S}, {2, 20, NS_PER_S}, {3, 30, NS_PER_S}},
                        .n_points = 0};
    struct query_world world = {.sees_all = true, .now_real_ns = 100 * NS_PER_S};
    struct query_row row = {.custom = &s};
    check_text(value_of(&profile_table_leaks, "stack", &world, row), "outer\nmiddle\ninner");
    check_text(value_of(&profile_table_leaks, "examples", &world, row),
               "0x1 10 1.000\n0x2 20 1.000\n0x3 30 1.000");
}

static void a_stack_of_very_long_names_is_cut(void **state)
{
    enum { LONG = 12000, ROOM = 32 << 10 };
    static char names[4][LONG];
    struct suspect s = {.n_stack = 4};
    struct query_world world = {.sees_all = true};
    for (int i = 0; i < 4; i++) {
        memset(names[i], 'a' + i, LONG - 1);
        s.stack[i] = names[i];
    }
    struct query_value stack =
        value_of(&profile_table_leaks, "stack", &world, (struct query_row){.custom = &s});
    assert_int_equal(stack.state, QUERY_KNOWN);
    assert_int_equal(stack.len, ROOM - 1);
    assert_int_equal(stack.text[0], 'd');
    assert_int_equal(stack.text[ROOM - 2], 'b');
}

static void a_series_needs_no_small_chart(void **state)
{
    struct suspect_point points[] = {{5, 50}, {6, 60}};
    struct suspect s = {.points = points, .n_points = 2};
    struct query_world world = {.sees_all = true};
    struct query_value trend =
        value_of(&profile_table_leaks, "trend", &world, (struct query_row){.custom = &s});
    assert_int_equal(trend.state, QUERY_KNOWN);
    assert_int_equal(query_point(&trend, 1).time_ns, 6);
    assert_int_equal(query_point(&trend, 1).value, 60);
}

static int stop_at_second(struct query_scan *scan, const struct query_row *row)
{
    return ++*(int *)scan->world->context == 2 ? -ENOMEM : 0;
}

static void rows_end_with_the_first_that_fails(void **state)
{
    int calls = 0;
    struct suspect rows[3] = {0};
    struct suspects suspects = {.rows = rows, .n = 3, .incomplete = true};
    struct query_world world = {.suspects = &suspects, .context = &calls};
    struct query_scan scan = {.each = stop_at_second, .world = &world};
    assert_int_equal(profile_table_leaks.scan(&scan), -ENOMEM);
    assert_int_equal(calls, 2);
    assert_true(scan.incomplete);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_that_tells_nothing_is_unknown),
        cmocka_unit_test(figures_of_accounts_that_cannot_be_read_are_at_least),
        cmocka_unit_test(sums_beyond_all_numbers_are_at_least_the_largest),
        cmocka_unit_test(a_device_column_is_named_by_its_number_and_space),
        cmocka_unit_test_setup_teardown(bytes_that_the_driver_does_not_tell_are_unknown, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_may_not_be_read_of_a_process_is_unknown, host_setup,
                                        host_teardown),
        cmocka_unit_test_setup_teardown(users_have_the_best_name_that_is_known, host_setup,
                                        host_teardown),
        cmocka_unit_test_setup_teardown(ages_of_figures_are_since_their_reading, host_setup,
                                        host_teardown),
        cmocka_unit_test(what_is_not_known_of_a_suspect_is_unknown),
        cmocka_unit_test(a_suspect_has_the_name_of_who_watched),
        cmocka_unit_test(stacks_and_blocks_of_a_suspect_come_whole),
        cmocka_unit_test(a_stack_of_very_long_names_is_cut),
        cmocka_unit_test(a_series_needs_no_small_chart),
        cmocka_unit_test(rows_end_with_the_first_that_fails),
        cmocka_unit_test_setup_teardown(a_tree_with_a_process_that_cannot_be_read_is_at_least,
                                        host_setup, host_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
