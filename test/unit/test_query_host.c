/* The tables of the machine: all processes, who may see what of them, and the machine itself. */
#include <errno.h>

#include "base/clock.h"
#include "host_tree.h"
#include "ledger/host.h"
#include "query/query.h"

static struct host *host;

/* Two of user 1000, one that may not be looked at, and a thread of the kernel. */
static int setup(void **state)
{
    static char cgroups[128];
    tree_make();
    snprintf(cgroups, sizeof(cgroups), "%s/cgroups", tree_root);
    tree_process(&(struct tree_process){.pid = 10, .start = 1, .rss_pages = 100, .uid = 1000});
    tree_printf("10/smaps_rollup",
                "Pss: 40 kB\nShared_Dirty: 1 kB\nPrivate_Clean: 2 kB\nPrivate_Dirty: 3 kB\n");
    tree_write("10/cmdline", "/bin/secret\0word\0", 17);
    tree_write("10/environ", "SLURM_JOB_ID=7\0SLURM_PROCID=3\0", 30);
    tree_printf("10/cgroup", "0::/a\n");
    tree_process(&(struct tree_process){.pid = 11, .start = 1, .rss_pages = 50, .uid = 1000});
    tree_printf("11/cgroup", "0::/slurm/job_9\n");
    tree_process(&(struct tree_process){.pid = 12, .start = 1, .rss_pages = 10, .uid = 1001});
    tree_process(&(struct tree_process){.pid = 2, .start = 1, .flags = 0x00200000});
    tree_printf("meminfo",
                "MemTotal: 100 kB\nMemFree: 10 kB\nMemAvailable: 40 kB\nBuffers: 5 kB\n"
                "Cached: 30 kB\nShmem: 7 kB\nAnonPages: 20 kB\nSlab: 8 kB\nSReclaimable: 6 kB\n"
                "SUnreclaim: 2 kB\nKernelStack: 1 kB\nPageTables: 3 kB\nPercpu: 4 kB\n");
    tree_printf("pressure/memory", "some avg10=1.50 avg60=0.00 avg300=0.00 total=1\n"
                                   "full avg10=0.00 avg60=0.00 avg300=0.00 total=1\n");
    assert_int_equal(host_new(&(struct host_options){.proc = tree_root, .cgroups = cgroups}, &host),
                     0);
    assert_int_equal(host_refresh(host), 0);
    assert_true(host_refine(host, 100 * NS_PER_S));
    return 0;
}

static int teardown(void **state)
{
    host_free(host);
    tree_remove();
    return 0;
}

struct answer {
    struct query *query;
    struct query_result *result;
};

static struct answer ask(const struct query_spec *spec, bool sees_all, uint32_t viewer)
{
    struct answer answer;
    struct query_error error;
    assert_int_equal(query_new(spec, &answer.query, &error), 0);
    assert_int_equal(query_result_new(answer.query, 0, &answer.result), 0);
    assert_int_equal(
        query_run(answer.query,
                  &(struct query_world){
                      .host = host, .sees_all = sees_all, .viewer_uid = viewer, .node = "here"},
                  answer.result),
        0);
    assert_int_equal(query_result_finish(answer.result), 0);
    return answer;
}

static struct query_value value(const struct answer *answer, size_t row, size_t column)
{
    return query_result_value(answer->result, row, column);
}

static void release(struct answer *answer)
{
    query_result_free(answer->result);
    query_free(answer->query);
}

static void processes_without_a_book_have_rows(void **state)
{
    struct answer a =
        ask(&(struct query_spec){.table = "host", .show = "pid,rss,heap,pss"}, true, 0);
    assert_int_equal(query_result_rows(a.result), 3); /* the kernel's hold nothing */
    assert_int_equal(value(&a, 0, 0).number, 10);
    assert_int_equal(value(&a, 0, 1).number, 100 * sysconf(_SC_PAGESIZE));
    assert_int_equal(value(&a, 0, 2).state, 0);
    assert_int_equal(value(&a, 0, 3).number, 40 * 1024);
    assert_int_equal(value(&a, 1, 3).state, QUERY_UNKNOWN); /* never 0 */
    release(&a);
    a = ask(&(struct query_spec){.table = "host", .where = "kernel_thread", .show = "pid,rss"},
            true, 0);
    assert_int_equal(query_result_rows(a.result), 1);
    assert_int_equal(value(&a, 0, 1).state, 0);
    release(&a);
}

/* What a layout that keeps its own rows gets is what a result would have, in the order of the table. */
struct seen {
    uint64_t pids[8], rss[8];
    const char *commands[8];
    size_t n, stop_after;
};

static int see(const struct query_row *row, const struct query_value *values, void *context)
{
    struct seen *seen = context;
    assert_int_equal(values[0].number, row->host->pid);
    seen->pids[seen->n] = values[0].number;
    seen->rss[seen->n] = values[1].number;
    seen->commands[seen->n] = values[2].state & QUERY_KNOWN ? values[2].text : NULL;
    return ++seen->n == seen->stop_after ? 7 : 0;
}

static struct seen each(const struct query_spec *spec, bool sees_all, uint32_t viewer, size_t stop,
                        int expected)
{
    struct query *query;
    struct query_error error;
    struct seen seen = {.stop_after = stop};
    struct query_world world = {.host = host, .sees_all = sees_all, .viewer_uid = viewer};
    assert_int_equal(query_new(spec, &query, &error), 0);
    assert_int_equal(query_each(query, &world, see, &seen), expected);
    query_free(query);
    return seen;
}

static void each_row_is_seen_with_its_values_and_rights(void **state)
{
    struct query_spec spec = {.table = "host",
                              .where = "rss>60kB",
                              .show = "pid,rss,command",
                              .sort = "-pid",
                              .limit = 1};
    struct seen all = each(&spec, true, 0, 0, 0);
    assert_int_equal(all.n, 2); /* no limit, no order but the table's */
    assert_int_equal(all.pids[0], 10);
    assert_int_equal(all.pids[1], 11);
    assert_int_equal(all.rss[0], 100 * sysconf(_SC_PAGESIZE));
    assert_string_equal(all.commands[0], "/bin/secret word");
    struct seen others = each(&spec, false, 1001, 0, 0);
    assert_int_equal(others.n, 2);
    assert_null(others.commands[0]); /* another user's */
    assert_int_equal(each(&spec, true, 0, 1, 7).n, 1);
    spec.by = "uid";
    spec.show = "count";
    spec.sort = NULL;
    assert_int_equal(each(&spec, true, 0, 0, -EINVAL).n, 0);
}

/* A table without a scan gets its rows one by one; and a result belongs to its query. */
static void a_run_needs_rows_and_its_own_result(void **state)
{
    struct query_table bare = *query_table_find("host");
    struct query_world world = {.host = host, .sees_all = true};
    struct query *query, *other;
    struct query_result *result;
    struct query_error error;
    struct seen seen = {0};
    bare.scan = NULL;
    struct query_spec spec = {.table = "host", .show = "pid,rss,command"};
    assert_int_equal(query_new_over(&bare, &spec, &query, &error), 0);
    assert_int_equal(query_new(&spec, &other, &error), 0);
    assert_int_equal(query_result_new(query, 0, &result), 0);
    assert_int_equal(query_run(query, &world, result), -EINVAL);
    assert_int_equal(query_run(other, &world, result), -EINVAL);
    assert_int_equal(query_each(query, &world, see, &seen), -EINVAL);
    assert_int_equal(seen.n, 0);
    query_result_free(result);
    query_free(query);
    query_free(other);
}

static void a_tree_sums_descendants(void **state)
{
    long page = sysconf(_SC_PAGESIZE);
    tree_process(
        &(struct tree_process){.pid = 20, .start = 2, .rss_pages = 7, .uid = 1000, .parent = 11});
    tree_process(
        &(struct tree_process){.pid = 21, .start = 3, .rss_pages = 5, .uid = 1000, .parent = 20});
    /* Older than what has the PID of its parent now. */
    tree_process(
        &(struct tree_process){.pid = 22, .start = 1, .rss_pages = 3, .uid = 1000, .parent = 21});
    assert_int_equal(host_refresh(host), 0);
    struct answer a = ask(
        &(struct query_spec){
            .table = "host", .where = "pid=11 or pid>=20", .show = "pid,tree", .sort = "+pid"},
        true, 0);
    static const uint64_t pages[] = {62, 12, 5, 3};
    assert_int_equal(query_result_rows(a.result), 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(value(&a, i, 1).number, pages[i] * (uint64_t)page);
    release(&a);
    tree_process_end(21);
    assert_int_equal(host_refresh(host), 0);
    a = ask(&(struct query_spec){.table = "host", .where = "pid=11", .show = "tree"}, true, 0);
    assert_int_equal(value(&a, 0, 0).number, 57 * (uint64_t)page);
    release(&a);
}

static void sums_say_what_they_lack(void **state)
{
    struct answer a = ask(
        &(struct query_spec){.table = "host", .by = "uid", .show = "count,rss,pss", .sort = "-rss"},
        true, 0);
    assert_int_equal(query_result_rows(a.result), 2);
    assert_int_equal(value(&a, 0, 0).number, 1000);
    assert_int_equal(value(&a, 0, 1).number, 2);
    assert_int_equal(value(&a, 0, 2).marks, 0);
    assert_int_equal(value(&a, 0, 3).number, 40 * 1024);
    assert_int_equal(value(&a, 0, 3).marks, QUERY_AT_LEAST);
    release(&a);
}

static void environments_and_commands_are_for_their_owner(void **state)
{
    struct query_spec spec = {.table = "host", .show = "pid,command,job,rank,rss", .sort = "+pid"};
    struct answer own = ask(&spec, false, 1000), other = ask(&spec, false, 1001);
    assert_string_equal(value(&own, 0, 1).text, "/bin/secret word");
    assert_string_equal(value(&own, 0, 2).text, "7");
    assert_int_equal(value(&own, 0, 3).number, 3);
    for (size_t column = 1; column <= 3; column++)
        assert_int_equal(value(&other, 0, column).state, QUERY_UNKNOWN);
    assert_int_equal(value(&other, 0, 4).state, QUERY_KNOWN);
    assert_string_equal(value(&other, 1, 2).text, "9"); /* a cgroup's name is for all */
    release(&own);
    release(&other);
    struct answer none =
        ask(&(struct query_spec){.table = "host", .where = "job=7", .show = "pid"}, false, 1001);
    assert_int_equal(query_result_rows(none.result), 0);
    release(&none);
}

static void parts_of_the_machine_add_up(void **state)
{
    struct answer a = ask(
        &(struct query_spec){
            .table = "system",
            .show =
                "total,anon,shmem,cache,buffers,slab_reclaimable,slab_unreclaimable,page_tables,"
                "kernel_stacks,percpu,hugetlb,free,unattributed,available,used,pressure,node"},
        true, 0);
    assert_int_equal(query_result_rows(a.result), 1);
    uint64_t sum = 0;
    for (size_t i = 1; i <= 12; i++)
        sum += value(&a, 0, i).number;
    assert_int_equal(sum, value(&a, 0, 0).number);
    assert_int_equal(value(&a, 0, 12).number, 19 * 1024);
    assert_int_equal(value(&a, 0, 13).number, 40 * 1024);
    assert_int_equal(value(&a, 0, 14).number, 60 * 1024);
    struct query_value pressure = value(&a, 0, 15);
    assert_int_equal(query_percent_hundredths(&pressure), 150);
    assert_string_equal(value(&a, 0, 16).text, "here");
    release(&a);
}

static void a_question_says_whether_it_needs_probes(void **state)
{
    static const struct {
        const char *show, *where, *sort;
        bool needs;
    } rows[] = {
        {"pid,rss", NULL, NULL, false}, {"pid,pss", NULL, NULL, true},
        {"pid", "pss>1MB", NULL, true}, {"pid", "rss>1MB and not command~x", NULL, true},
        {"pid", NULL, "-uss", true},    {"pid", "rss>1MB", "-rss", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct answer a = ask(&(struct query_spec){.table = "host",
                                                   .show = rows[i].show,
                                                   .where = rows[i].where,
                                                   .sort = rows[i].sort},
                              true, 0);
        assert_int_equal(!!(query_needs(a.query) & QUERY_NEEDS_PROBES), rows[i].needs);
        release(&a);
    }
}

static void a_column_of_another_table_is_pointed_at(void **state)
{
    struct query *query = NULL;
    struct query_error error;
    assert_int_equal(query_new(&(struct query_spec){.show = "pid,pss"}, &query, &error), -EINVAL);
    assert_string_equal(error.text, "the table processes has no column 'pss', the table host has");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_without_a_book_have_rows),
        cmocka_unit_test(each_row_is_seen_with_its_values_and_rights),
        cmocka_unit_test(sums_say_what_they_lack),
        cmocka_unit_test(environments_and_commands_are_for_their_owner),
        cmocka_unit_test(parts_of_the_machine_add_up),
        cmocka_unit_test(a_question_says_whether_it_needs_probes),
        cmocka_unit_test(a_column_of_another_table_is_pointed_at),
        cmocka_unit_test(a_run_needs_rows_and_its_own_result),
        cmocka_unit_test(a_tree_sums_descendants),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
