/* What history notes of processes without a book, from the real process table. See test_history_host_fill.c for the
 * rules. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "check.h"
#include "daemon/history_host.h"
#include "daemon/hosts.h"
#include "history/sample.h"
#include "host_tree.h"
#include "ledger/host.h"
#include "ledger/proc.h"

enum { CHILDREN = 6 };
static pid_t children[CHILDREN];
static struct hosts *hosts;
static struct history_host *host;

/* Sizes rise with the number. */
static void child_run(int number, int ready)
{
    size_t size = (size_t)(number + 1) << 22;
    char *memory = malloc(size);
    if (memory)
        memset(memory, 1, size);
    __asm__ volatile("" ::"r"(memory)
                     : "memory"); /* the compiler must not see that nobody reads it */
    (void)!write(ready, "x", 1);
    for (;;)
        pause();
}

static int setup(void **state)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        if (children[i] == 0)
            child_run(i, ready[1]);
        assert_int_equal(read(ready[0], &byte, 1), 1);
    }
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(hosts_new(false, 0, &hosts), 0);
    assert_int_equal(history_host_new(hosts, clock_monotonic_ns(), &host), 0);
    return 0;
}

static int teardown(void **state)
{
    history_host_free(host);
    hosts_free(hosts);
    for (int i = 0; i < CHILDREN; i++) {
        kill(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
    }
    return 0;
}

/* Only our children are large, named and old enough: for the others of the machine the program is unknown. */
static void name_children(void)
{
    const struct host *table = hosts_lock(hosts);
    assert_non_null(table);
    size_t n;
    struct host_process *const *rows = host_processes(table, &n);
    for (size_t i = 0; i < n; i++) {
        rows[i]->valid &= ~(uint32_t)HOST_HAS_COMMAND;
        for (int k = 0; k < CHILDREN; k++)
            if (rows[i]->pid == children[k])
                rows[i]->valid |= HOST_HAS_COMMAND;
    }
    hosts_unlock(hosts);
}

static struct sample picture(uint64_t later_ns, size_t processes_max, uint64_t per_user_max)
{
    struct sample sample;
    sample_init(&sample);
    sample_reset(&sample, clock_real_ns() + later_ns);
    sample_totals(&sample);
    name_children();
    history_host_fill(host, &sample, processes_max, per_user_max);
    return sample;
}

static bool has(const struct sample *sample, pid_t pid)
{
    for (size_t i = 0; i < sample->n_processes; i++)
        if (sample->processes[i].pid == pid)
            return true;
    return false;
}

static void the_largest_are_noted(void **state)
{
    struct sample sample = picture(10 * NS_PER_S, 2, 1000);
    assert_int_equal(sample.n_processes, 2);
    assert_true(has(&sample, children[CHILDREN - 1]));
    assert_true(has(&sample, children[CHILDREN - 2]));
    for (size_t i = 0; i < 2; i++) {
        assert_true(sample.processes[i].has_rss && sample.processes[i].bookless);
        assert_false(sample.processes[i].has_pss); /* nobody was probed */
        assert_true(sample.processes[i].rss_bytes > 4 << 20);
        assert_true(sample.processes[i].program[0]);
        assert_int_equal(sample.processes[i].uid, geteuid());
        assert_true(sample.processes[i].start_ticks > 0);
        assert_true(sample.processes[i].began_ns <= clock_real_ns());
    }
    sample_release(&sample);
}

static void who_was_born_just_now_is_left_out(void **state)
{
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    pid_t old = children[0];
    children[0] = child; /* named, and in a table that is read anew */
    const struct host *table = hosts_lock(hosts);
    assert_int_equal(host_refresh((struct host *)table), 0);
    hosts_unlock(hosts);
    struct sample sample = picture(0, 100, 1000);
    assert_false(has(&sample, child));
    sample_release(&sample);
    sample = picture(10 * NS_PER_S, 100, 1000);
    assert_true(has(&sample, child));
    sample_release(&sample);
    children[0] = old;
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void processes_of_the_picture_get_their_sizes(void **state)
{
    struct proc_stat stat;
    struct sample sample;
    assert_int_equal(proc_stat_read(children[1], &stat), 0);
    sample_init(&sample);
    sample_reset(&sample, clock_real_ns() + 10 * NS_PER_S);
    for (int i = 0; i < 2; i++) { /* the second one's pid is another process's by now */
        struct sample_process *p = sample_add_process(&sample);
        p->pid = children[1];
        p->start_ticks = stat.start_ticks + (i ? 1000 : 0);
        p->claim = (struct host_claim){.start_ticks = p->start_ticks, .pid = p->pid};
    }
    sample_totals(&sample);
    name_children();
    history_host_fill(host, &sample, 100, 1000);
    assert_true(sample.processes[0].has_rss && !sample.processes[0].bookless);
    assert_true(sample.processes[0].rss_bytes > 4 << 20);
    assert_false(sample.processes[1].has_rss);
    assert_int_equal(sample.n_processes, 2 + CHILDREN - 1); /* it is there once */
    sample_release(&sample);
}

static void the_machine_is_there_with_parts_that_add_up(void **state)
{
    struct sample sample = picture(0, 0, 1000);
    uint64_t total = 0, sum = 0, parts = 0;
    unsigned pressures = 0;
    for (size_t i = 0; i < sample.n_values; i++) {
        if (sample.values[i].metric == HISTORY_PRESSURE) {
            assert_in_range(sample.values[i].value, 0, 10000);
            pressures += sample.values[i].space == HISTORY_PRESSURE_SOME ? 1 : 2;
            continue;
        }
        assert_int_equal(sample.values[i].metric, HISTORY_SYSTEM);
        if (sample.values[i].space == HISTORY_SYSTEM_TOTAL)
            total = sample.values[i].value;
        if (sample.values[i].space >= HISTORY_SYSTEM_PARTS) {
            uint32_t part = sample.values[i].space - HISTORY_SYSTEM_PARTS;
            assert_true(part < HOST_PARTS);
            assert_false(parts >> part & 1); /* each is there once */
            parts |= UINT64_C(1) << part;
            sum += sample.values[i].value;
        }
    }
    assert_true(total > 0);
    assert_true(sum >= total);
    assert_int_equal(parts, (UINT64_C(1) << HOST_PARTS) - 1);
    char line[64] = "";
    FILE *psi = fopen("/proc/pressure/memory", "re");
    bool measured = psi && fgets(line, sizeof(line), psi);
    assert_int_equal(pressures, measured ? 3 : 0); /* some and full, or neither */
    if (psi)
        fclose(psi);
    sample_release(&sample);
}

/* ---- the machine, by files ---- */

static int tree_setup(void **state)
{
    tree_make();
    return 0;
}

static int tree_teardown(void **state)
{
    tree_remove();
    return 0;
}

/* What is noted of a machine whose /proc is the tree. */
static struct sample picture_of_tree(void)
{
    struct host *table;
    struct history_host *own;
    struct sample sample;
    assert_int_equal(
        host_new(&(struct host_options){.proc = tree_root, .cgroups = tree_root}, &table), 0);
    assert_int_equal(host_refresh(table), 0);
    assert_int_equal(history_host_new(NULL, 0, &own), 0);
    sample_init(&sample);
    sample_reset(&sample, NS_PER_S);
    sample_totals(&sample);
    history_host_fill_from(own, table, 0, &sample, 0, 0);
    history_host_free(own);
    host_free(table);
    return sample;
}

/* "space:value" of each value of the machine with this metric. */
static const char *machine(uint16_t metric)
{
    static char text[1024];
    struct sample sample;
    size_t len = 0;
    text[0] = '\0';
    sample = picture_of_tree();
    for (size_t i = 0; i < sample.n_values; i++) {
        const struct sample_value *v = &sample.values[i];
        assert_int_equal(v->device, 0);
        if (v->metric == metric && v->space < HISTORY_SYSTEM_PARTS)
            len += (size_t)snprintf(text + len, sizeof(text) - len, " %u:%llu", v->space,
                                    (unsigned long long)v->value);
    }
    sample_release(&sample);
    return text;
}

static const char *expected(const char *format, ...)
{
    static char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return text;
}

#define MEMORY "MemTotal: 1000 kB\nMemFree: 300 kB\nBuffers: 7 kB\nCached: 50 kB\n"
static void the_machine_has_what_meminfo_has(void **state)
{
    tree_printf("meminfo", MEMORY "MemAvailable: 400 kB\nSwapTotal: 90 kB\nSwapFree: 20 kB\n");
    assert_string_equal(machine(HISTORY_SYSTEM),
                        expected(" %d:%d %d:%d %d:%d %d:%d", HISTORY_SYSTEM_TOTAL, 1000 << 10,
                                 HISTORY_SYSTEM_AVAILABLE, 400 << 10, HISTORY_SYSTEM_USED,
                                 600 << 10, HISTORY_SYSTEM_SWAP, 70 << 10));
    tree_printf("meminfo", MEMORY "SwapTotal: 0 kB\nSwapFree: 0 kB\n");
    assert_string_equal(machine(HISTORY_SYSTEM),
                        expected(" %d:%d", HISTORY_SYSTEM_TOTAL, 1000 << 10));
    tree_printf("meminfo", "MemFree: 300 kB\n");
    assert_string_equal(machine(HISTORY_SYSTEM), "");
    assert_string_equal(machine(HISTORY_PRESSURE), "");
    tree_printf("pressure/memory", "some avg10=1.25 avg60=0.00 avg300=0.00 total=0\n"
                                   "full avg10=0.50 avg60=0.00 avg300=0.00 total=0\n");
    assert_string_equal(machine(HISTORY_PRESSURE),
                        expected(" %d:125 %d:50", HISTORY_PRESSURE_SOME, HISTORY_PRESSURE_FULL));
}

static void the_parts_of_the_machine_are_each_there_once(void **state)
{
    struct sample sample;
    uint64_t sum = 0;
    size_t parts = 0;
    tree_printf("meminfo", MEMORY "AnonPages: 100 kB\n");
    sample = picture_of_tree();
    for (size_t i = 0; i < sample.n_values; i++) {
        const struct sample_value *v = &sample.values[i];
        if (v->metric != HISTORY_SYSTEM || v->space < HISTORY_SYSTEM_PARTS)
            continue;
        assert_int_equal(v->space, HISTORY_SYSTEM_PARTS + parts);
        assert_int_equal(v->value, parts == HOST_PART_ANON      ? 100 << 10
                                   : parts == HOST_PART_CACHE   ? 50 << 10
                                   : parts == HOST_PART_BUFFERS ? 7 << 10
                                   : parts == HOST_PART_FREE    ? 300 << 10
                                   : parts == HOST_PART_REST    ? 543 << 10
                                                                : 0);
        sum += v->value;
        parts++;
    }
    assert_int_equal(parts, HOST_PARTS);
    assert_int_equal(sum, 1000 << 10);
    sample_release(&sample);
}

static void *is_ready(void *context)
{
    return hosts_ready(context) ? context : NULL;
}

/* A loop that answers others cannot wait for somebody who looks at ten thousand processes. */
static void who_must_not_wait_is_told_so(void **state)
{
    enum { PATIENCE_MS = 60000, STEP_MS = 5 };
    struct hosts *others;
    pthread_t thread;
    void *ready;
    assert_int_equal(hosts_new(false, 0, &others), 0);
    assert_false(hosts_ready(others)); /* nobody has looked yet: now the thread does */
    bool looked = false;               /* each time it may be at it just then */
    for (int ms = 0; !looked && ms < PATIENCE_MS; ms += STEP_MS) {
        usleep(STEP_MS * 1000);
        looked = hosts_ready(others);
    }
    assert_true(looked);
    assert_non_null(hosts_lock(others));
    assert_int_equal(pthread_create(&thread, NULL, is_ready, others), 0);
    assert_int_equal(pthread_join(thread, &ready), 0);
    assert_null(ready);
    hosts_unlock(others);
    hosts_free(others);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_are_noted),
        cmocka_unit_test(who_was_born_just_now_is_left_out),
        cmocka_unit_test(processes_of_the_picture_get_their_sizes),
        cmocka_unit_test(the_machine_is_there_with_parts_that_add_up),
        cmocka_unit_test_setup_teardown(the_machine_has_what_meminfo_has, tree_setup,
                                        tree_teardown),
        cmocka_unit_test_setup_teardown(the_parts_of_the_machine_are_each_there_once, tree_setup,
                                        tree_teardown),
        cmocka_unit_test(who_must_not_wait_is_told_so),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
