/* memoird's process table and tree of cgroups: several threads ask while the table's own refreshes. */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "check.h"
#include "daemon/cgroup_table.h"
#include "daemon/hosts.h"
#include "host_tree.h"
#include "ledger/cgroups.h"
#include "ledger/host.h"

enum { ASKERS = 3, PATIENCE_S = 60 };

static struct hosts *hosts;

static int group_setup(void **state)
{
    int r = hosts_new(false, 0, &hosts); /* nobody is probed */
    if (r == 0)
        hosts_allow_marks(hosts);
    return r;
}

static int group_teardown(void **state)
{
    hosts_free(hosts);
    return 0;
}

static bool is_over(uint64_t begin_ns)
{
    return clock_monotonic_ns() - begin_ns > PATIENCE_S * NS_PER_S;
}

static bool finds_itself(const struct host *host)
{
    const struct host_process *self = host_process_find(host, getpid());
    return self && self->valid & HOST_HAS_MEMORY && self->rss_bytes > 0;
}

/* As the loop does: it never waits. */
static void who_must_not_wait_gets_it_soon(void **state)
{
    uint64_t begin = clock_monotonic_ns();
    while (!hosts_ready(hosts)) {
        assert_false(is_over(begin));
        usleep(1000);
    }
    const struct host *host = hosts_lock(hosts);
    assert_non_null(host);
    assert_true(finds_itself(host));
    hosts_unlock(hosts);
}

static void *ask_again_and_again(void *context)
{
    size_t *found = context;
    for (int i = 0; i < 200; i++) {
        const struct host *host = i % 3 == 0   ? hosts_lock(hosts)
                                  : i % 3 == 1 ? hosts_lock_idle(hosts)
                                               : hosts_peek(hosts);
        if (host) {
            size_t n;
            (void)host_processes(host, &n);
            *found += n > 0 && host_time_ns(host) > 0 && finds_itself(host);
            hosts_unlock(hosts);
        }
        if (i % 10 == 0)
            hosts_set_share(hosts, 0);
        if (hosts_cgroups_ready(hosts)) {
            const struct cgroups *cgroups = hosts_cgroups_lock(hosts);
            size_t n = 0;
            const struct cgroup *rows = cgroups ? cgroups_rows(cgroups, &n) : NULL;
            if (n > 0 && rows[0].depth != 0)
                *found = 0;
            if (cgroups)
                hosts_cgroups_unlock(hosts);
        }
        usleep(1000);
    }
    return NULL;
}

static void all_who_ask_at_once_get_it(void **state)
{
    pthread_t threads[ASKERS];
    size_t found[ASKERS] = {0};
    for (int i = 0; i < ASKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_again_and_again, &found[i]), 0);
    for (int i = 0; i < ASKERS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < ASKERS; i++)
        assert_true(found[i] > 0);
}

static void it_ends_whatever_is_under_way(void **state)
{
    for (int i = 0; i < 10; i++) {
        struct hosts *short_lived;
        assert_int_equal(hosts_new(i % 2, 0, &short_lived), 0);
        (void)hosts_ready(short_lived);
        (void)hosts_cgroups_ready(short_lived);
        usleep((unsigned)i * 300);
        hosts_free(short_lived);
    }
}

/* ---- cgroups alone ---- */

static void a_look_is_there_when_it_is_whole(void **state)
{
    struct cgroup_table *table;
    tree_make();
    tree_printf("cgroup.controllers", "memory\n");
    tree_printf("a/memory.current", "4711\n");
    assert_int_equal(cgroup_table_new(tree_root, &table), 0);
    uint64_t now = clock_monotonic_ns();
    assert_true(cgroup_table_due_ns(table, now) == UINT64_MAX); /* nobody has asked */
    assert_null(cgroup_table_lock(table));
    assert_false(cgroup_table_ready(table));
    now = clock_monotonic_ns();
    assert_true(cgroup_table_due_ns(table, now) <= now);
    bool ready = false;
    for (int i = 0; i < 100 && !ready; i++) {
        cgroup_table_turn(table);
        ready = cgroup_table_ready(table);
    }
    assert_true(ready);
    size_t n;
    const struct cgroups *cgroups = cgroup_table_lock(table);
    assert_non_null(cgroups);
    const struct cgroup *rows = cgroups_rows(cgroups, &n);
    assert_int_equal(n, 2);
    assert_int_equal(rows[1].figures[CGROUP_CURRENT], 4711);
    cgroup_table_unlock(table);
    assert_true(cgroup_table_due_ns(table, now) >= now + NS_PER_S); /* it rests first */
    now = clock_monotonic_ns();
    assert_true(cgroup_table_due_ns(table, now + CGROUP_TABLE_WANTED_S * NS_PER_S + NS_PER_S) ==
                UINT64_MAX);
    cgroup_table_free(table);
    tree_remove();
}

static void a_machine_without_cgroups_is_no_reason_to_wait(void **state)
{
    struct cgroup_table *table;
    tree_make();
    assert_int_equal(cgroup_table_new(tree_root, &table), 0);
    assert_false(cgroup_table_ready(table));
    bool ready = false;
    for (int i = 0; i < 100 && !ready; i++) {
        cgroup_table_turn(table);
        ready = cgroup_table_ready(table);
    }
    assert_true(ready);
    assert_null(cgroup_table_lock(table));
    cgroup_table_free(table);
    tree_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_must_not_wait_gets_it_soon),
        cmocka_unit_test(all_who_ask_at_once_get_it),
        cmocka_unit_test(it_ends_whatever_is_under_way),
        cmocka_unit_test(a_look_is_there_when_it_is_whole),
        cmocka_unit_test(a_machine_without_cgroups_is_no_reason_to_wait),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
