/* Which sizes history notes, over a process table of files and a clock of its own. */
#include <signal.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "daemon/history_host.h"
#include "history/sample.h"
#include "history/tier.h"
#include "host_tree.h"
#include "ledger/host.h"
#include "ledger/proc.h"

enum { KERNEL_THREAD = 0x00200000, MANY = 1000, PER_USER = 1000 };
#define BEGAN   (1000 * NS_PER_S)       /* CLOCK_MONOTONIC of the start */
#define REAL    (1700000000 * NS_PER_S) /* since 1970 */
#define STARTED (REAL - 100 * NS_PER_S) /* of the processes */

static struct host *table;
static struct history_host *host;
static uint64_t now_ns;

static int setup(void **state)
{
    tree_make();
    table = NULL;
    now_ns = BEGAN;
    assert_int_equal(history_host_new(NULL, BEGAN, &host), 0);
    return 0;
}

static int teardown(void **state)
{
    history_host_free(host);
    history_host_free(NULL);
    host_free(table);
    tree_remove();
    return 0;
}

struct process {
    pid_t pid;
    unsigned long pages;
    unsigned uid;
};

static struct host_process *row(pid_t pid)
{
    struct host_process *p = host_process_find(table, pid);
    assert_non_null(p);
    return p;
}

/* A table of processes that are old and named. */
static void table_make(const struct process *processes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tree_process(&(struct tree_process){.pid = processes[i].pid,
                                            .start = 7,
                                            .rss_pages = processes[i].pages,
                                            .uid = processes[i].uid});
    assert_int_equal(
        host_new(&(struct host_options){.proc = tree_root, .cgroups = tree_root}, &table), 0);
    assert_int_equal(host_refresh(table), 0);
    for (size_t i = 0; i < n; i++) {
        row(processes[i].pid)->start_realtime_ns = STARTED;
        row(processes[i].pid)->valid |= HOST_HAS_COMMAND;
    }
}

/* As if there had been no picture yet. */
static void forget(const struct process *processes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        row(processes[i].pid)->user_data = NULL;
}

/* A new picture, without processes yet. */
static void begin(struct sample *sample)
{
    sample_reset(sample, REAL);
    sample_totals(sample);
}

static void complete(struct sample *sample, size_t processes_max, uint64_t per_user_max)
{
    now_ns += NS_PER_S;
    sample->left_out = 0;
    history_host_fill_from(host, table, now_ns, sample, processes_max, per_user_max);
}

static const struct sample_process *find(const struct sample *sample, pid_t pid)
{
    for (size_t i = 0; i < sample->n_processes; i++)
        if (sample->processes[i].pid == pid)
            return &sample->processes[i];
    return NULL;
}

/* The PIDs of a picture in their order, " 30 31". */
static const char *pids(const struct sample *sample)
{
    static char text[256];
    size_t len = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sample->n_processes; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, " %d", sample->processes[i].pid);
    return text;
}

static const char *noted_with(size_t processes_max, uint64_t per_user_max)
{
    struct sample sample;
    sample_init(&sample);
    begin(&sample);
    complete(&sample, processes_max, per_user_max);
    const char *text = pids(&sample);
    sample_release(&sample);
    return text;
}

static const char *noted(size_t processes_max)
{
    return noted_with(processes_max, PER_USER);
}

/* ---- which processes ---- */

static void a_noted_process_is_told_as_the_table_has_it(void **state)
{
    struct sample sample;
    table_make(&(struct process){30, 50, 1234}, 1);
    row(30)->start_ticks = 77;
    sample_init(&sample);
    begin(&sample);
    complete(&sample, MANY, PER_USER);
    assert_int_equal(sample.n_processes, 1);
    const struct sample_process *p = &sample.processes[0];
    assert_int_equal(p->pid, 30);
    assert_int_equal(p->uid, 1234);
    assert_int_equal(p->start_ticks, 77);
    assert_int_equal(p->began_ns, STARTED);
    assert_string_equal(p->program, "worker");
    assert_true(p->bookless && p->has_rss && !p->has_pss);
    assert_int_equal(p->rss_bytes, 50 * (uint64_t)sysconf(_SC_PAGESIZE));
    assert_int_equal(p->n_values, 0);
    assert_int_equal(sample.left_out, 0);
    sample_release(&sample);
}

static void the_largest_are_noted_and_of_equals_the_lowest_pids(void **state)
{
    static const struct process processes[] = {
        {30, 10, 0}, {31, 50, 0}, {32, 20, 0}, {33, 50, 0}, {34, 20, 0}, {35, 20, 0},
    };
    static const struct {
        size_t max;
        const char *pids;
    } cases[] = {
        {1, " 31"},
        {2, " 31 33"},
        {3, " 31 33 32"},
        {4, " 31 33 32 34"},
        {5, " 31 33 32 34 35"},
        {6, " 30 31 32 33 34 35"},
        {7, " 30 31 32 33 34 35"},
        {0, ""},
    };
    table_make(processes, 6);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        forget(processes, 6);
        assert_string_equal(noted(cases[i].max), cases[i].pids);
    }
}

/* One that is in stays until another one has more than twice as much, so that two do not take turns. */
static void one_that_is_noted_must_be_passed_by_far(void **state)
{
    static const struct process processes[] = {{30, 100, 0}, {31, 90, 0}};
    table_make(processes, 2);
    uint64_t size = row(30)->rss_bytes;
    assert_string_equal(noted(1), " 30");
    row(31)->rss_bytes = 2 * size;
    assert_string_equal(noted(1), " 30"); /* equal: the lower PID */
    row(31)->rss_bytes++;
    assert_string_equal(noted(1), " 31");
    row(30)->rss_bytes = 4 * size;
    assert_string_equal(noted(1), " 31");
    row(30)->rss_bytes += 4;
    assert_string_equal(noted(1), " 30");
    /* A picture of none ends no preference, one without it does. */
    row(31)->rss_bytes = 5 * size;
    assert_string_equal(noted(0), "");
    assert_string_equal(noted(1), " 30");
    row(30)->valid &= ~(uint32_t)HOST_HAS_MEMORY;
    assert_string_equal(noted(1), " 31");
}

struct change {
    uint32_t lost; /* bits of `valid` */
    bool kernel;
    uint64_t started_ns;
    bool expected;
};

static void young_unknown_and_kernel_processes_are_left_out(void **state)
{
    static const uint64_t age_ns = HISTORY_HOST_AGE_S * NS_PER_S;
    const struct change cases[] = {
        {0, false, STARTED, true},
        {HOST_HAS_MEMORY, false, STARTED, false},
        {HOST_HAS_STAT, false, STARTED, false},
        {HOST_HAS_STATUS, false, STARTED, false},
        {HOST_HAS_PARTS | HOST_HAS_PEAK, false, STARTED, true},
        {0, true, STARTED, false},
        {0, false, REAL, false},
        {0, false, REAL + NS_PER_S, false}, /* the clock was set back */
        {0, false, REAL - age_ns + 1, false},
        {0, false, REAL - age_ns, true},
        {HOST_HAS_COMMAND, false, STARTED, false}, /* its program is not known yet */
    };
    table_make(&(struct process){30, 50, 0}, 1);
    struct host_process *p = row(30);
    uint32_t valid = p->valid;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        p->valid = valid & ~cases[i].lost;
        p->kernel = cases[i].kernel;
        p->start_realtime_ns = cases[i].started_ns;
        assert_string_equal(noted(MANY), cases[i].expected ? " 30" : "");
    }
}

static void a_program_without_a_name_is_noted_after_a_while(void **state)
{
    static const uint64_t wait_ns = HISTORY_HOST_NAME_S * NS_PER_S;
    table_make(&(struct process){30, 50, 0}, 1);
    row(30)->valid &= ~(uint32_t)HOST_HAS_COMMAND;
    now_ns = BEGAN + wait_ns - NS_PER_S - 1;
    assert_string_equal(noted(MANY), "");
    now_ns = BEGAN + wait_ns - NS_PER_S;
    assert_string_equal(noted(MANY), " 30");
}

static void table_may_grow(void **state)
{
    static struct process processes[200];
    struct sample sample;
    for (int i = 0; i < 200; i++)
        processes[i] = (struct process){1000 + i, 10 + (unsigned)i, 0};
    table_make(processes, 3);
    assert_string_equal(noted(2), " 1002 1001");
    host_free(table);
    table_make(processes, 200);
    sample_init(&sample);
    begin(&sample);
    complete(&sample, 150, PER_USER);
    assert_int_equal(sample.n_processes, 150);
    assert_int_equal(sample.processes[0].pid, 1199);
    assert_int_equal(sample.processes[149].pid, 1050);
    sample_release(&sample);
}

/* ---- limits ---- */

static void users_have_a_share_and_the_next_ones_get_a_place(void **state)
{
    static const struct process processes[] = {
        {30, 90, 5001}, {31, 80, 5001}, {32, 70, 5001}, {33, 60, 5002}, {34, 50, 0}, {35, 40, 0},
    };
    static const struct {
        size_t max;
        uint64_t per_user;
        const char *pids;
        uint64_t left_out;
    } cases[] = {
        {6, 6, " 30 31 32 33 34 35", 0}, {6, 5, " 30 31 33 34 35", 2}, {6, 4, " 30 31 33 34 35", 2},
        {6, 3, " 30 33 34 35", 4},       {6, 1, " 34 35", 8}, /* root has no limit */
        {4, 2, " 30 33 34 35", 4}, /* a process past its user's share takes no place of others */
        {3, 2, " 30 33 34", 4},          {2, 2, " 30 33", 4},          {1, 2, " 30", 0},
    };
    table_make(processes, 6);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct sample sample;
        forget(processes, 6);
        sample_init(&sample);
        begin(&sample);
        complete(&sample, cases[i].max, cases[i].per_user);
        assert_string_equal(pids(&sample), cases[i].pids);
        assert_int_equal(sample.left_out, cases[i].left_out);
        sample_release(&sample);
    }
}

static void a_full_picture_counts_what_it_leaves_out(void **state)
{
    static const struct process processes[] = {{30, 90, 0}, {31, 80, 0}, {32, 70, 0}};
    struct sample sample;
    table_make(processes, 3);
    sample_init(&sample);
    sample_reset(&sample, REAL);
    for (size_t i = 0; i < SAMPLE_PROCESSES_MAX - 1; i++)
        assert_non_null(sample_add_process(&sample));
    sample_totals(&sample);
    complete(&sample, MANY, PER_USER);
    assert_int_equal(sample.n_processes, SAMPLE_PROCESSES_MAX);
    assert_int_equal(sample.processes[SAMPLE_PROCESSES_MAX - 1].pid, 30);
    assert_int_equal(sample.left_out, 2 * HISTORY_HOST_VALUES);
    sample_release(&sample);
    row(31)->rss_bytes = 2 * row(30)->rss_bytes - 1; /* only the one that was noted counts twice */
    row(32)->rss_bytes = 1;
    assert_string_equal(noted(1), " 30");
}

/* ---- processes with books ---- */

static struct sample_process *claim_add(struct sample *sample, pid_t pid, uint64_t start,
                                        uint32_t precedence)
{
    struct sample_process *p = sample_add_process(sample);
    p->pid = pid;
    p->claim = (struct host_claim){.start_ticks = start, .pid = pid, .precedence = precedence};
    return p;
}

/* Sizes count once: a process with a book is not among the others, and of two books one has them. */
static void a_process_with_books_has_its_sizes_once(void **state)
{
    static const struct process processes[] = {{30, 90, 0}, {31, 80, 0}};
    table_make(processes, 2);
    uint64_t start = row(30)->start_ticks, size = row(30)->rss_bytes;
    for (uint32_t first = 0; first < 2; first++) {
        struct sample sample;
        sample_init(&sample);
        sample_reset(&sample, REAL);
        for (uint32_t i = 0; i < 2; i++)
            claim_add(&sample, 30, start, i != first);
        sample_totals(&sample);
        complete(&sample, MANY, PER_USER);
        assert_string_equal(pids(&sample), " 30 30 31");
        const struct sample_process *p = sample.processes;
        assert_true(p[first].has_rss && !p[first].bookless);
        assert_int_equal(p[first].rss_bytes, size);
        assert_false(p[!first].has_rss || p[!first].bookless);
        sample_release(&sample);
    }
    row(30)->valid &= ~(uint32_t)HOST_HAS_MEMORY;
    row(30)->valid |= HOST_HAS_PSS;
    row(30)->pss_ns = now_ns;
    struct sample sample;
    sample_init(&sample);
    sample_reset(&sample, REAL);
    const struct sample_process *p = claim_add(&sample, 30, start, 0);
    sample_totals(&sample);
    complete(&sample, 0, PER_USER);
    assert_false(p->has_rss || p->has_pss); /* not readable: absent */
    sample_release(&sample);
}

/* It is one of the others again, and counts once more as large as it is. */
static void a_process_whose_book_is_gone_is_noted_by_its_size(void **state)
{
    static const struct process processes[] = {{30, 90, 0}, {31, 100, 0}};
    struct sample sample;
    table_make(processes, 2);
    sample_init(&sample);
    sample_reset(&sample, REAL);
    claim_add(&sample, 30, row(30)->start_ticks, 0);
    sample_totals(&sample);
    complete(&sample, MANY, PER_USER);
    assert_string_equal(pids(&sample), " 30 31");
    assert_true(sample.processes[1].bookless);
    sample_release(&sample);
    assert_string_equal(noted(1), " 31");
    assert_string_equal(noted(2), " 30 31");
}

/* The table is up to some seconds old: a process that it does not have is looked at, if it is the same one. */
static void a_process_that_the_table_lacks_is_looked_at(void **state)
{
    struct proc_stat own;
    struct sample sample;
    table_make(&(struct process){30, 90, 0}, 1);
    pid_t zombie = fork();
    if (zombie == 0)
        _exit(0);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)zombie, &info, WEXITED | WNOWAIT), 0);
    struct proc_stat dead;
    assert_int_equal(proc_stat_read(zombie, &dead), 0);
    assert_int_equal(proc_stat_read(getpid(), &own), 0);
    sample_init(&sample);
    sample_reset(&sample, REAL);
    claim_add(&sample, getpid(), own.start_ticks, 0);
    claim_add(&sample, getpid(), own.start_ticks + 1000, 0); /* another process had this PID */
    claim_add(&sample, zombie, dead.start_ticks, 0);
    claim_add(&sample, INT32_MAX, 7, 0); /* no PID is that large */
    claim_add(&sample, 0, own.start_ticks, 0);
    sample_totals(&sample);
    complete(&sample, 0, PER_USER);
    const struct sample_process *p = sample.processes;
    assert_true(p[0].has_rss && !p[0].has_pss);
    assert_true(p[0].rss_bytes > 100 << 10);
    for (size_t i = 1; i < sample.n_processes; i++) {
        assert_false(p[i].has_rss);
        assert_int_equal(p[i].rss_bytes, 0);
    }
    sample_release(&sample);
    waitpid(zombie, NULL, 0);
}

/* ---- proportional sizes ---- */

static bool has_pss(size_t processes_max, uint64_t claimed_start)
{
    struct sample sample;
    sample_init(&sample);
    sample_reset(&sample, REAL);
    if (claimed_start)
        claim_add(&sample, 30, claimed_start, 0);
    sample_totals(&sample);
    complete(&sample, processes_max, PER_USER);
    const struct sample_process *p = find(&sample, 30);
    bool known = p && p->has_pss;
    assert_true(!known || p->pss_bytes == 12345);
    sample_release(&sample);
    return known;
}

/* A measurement is one point, in the first picture after it: with a book, or without. */
static void a_proportional_size_counts_once(void **state)
{
    table_make(&(struct process){30, 90, 0}, 1);
    struct host_process *p = row(30);
    p->valid |= HOST_HAS_PSS;
    p->pss_bytes = 12345;
    for (int with_book = 0; with_book < 2; with_book++) {
        uint64_t start = with_book ? p->start_ticks : 0;
        p->user_data = NULL;
        p->pss_ns = now_ns;
        assert_true(has_pss(MANY, start));
        assert_false(has_pss(MANY, start));
        assert_false(has_pss(MANY, start));
        p->pss_ns = now_ns; /* exactly when the last picture was taken */
        assert_true(has_pss(MANY, start));
        p->pss_ns = now_ns - 1;
        assert_false(has_pss(MANY, start));
        p->valid &= ~(uint32_t)HOST_HAS_PSS;
        p->pss_ns = now_ns;
        assert_false(has_pss(MANY, start));
        p->valid |= HOST_HAS_PSS;
    }
    /* A process that had a book was in the last picture, too. */
    p->pss_ns = now_ns - 1;
    assert_false(has_pss(MANY, 0));
}

/* In its first picture, a process may have been measured while it was too young for one. */
static void the_first_picture_takes_an_older_measurement(void **state)
{
    static const uint64_t before_ns = HISTORY_HOST_PSS_S * NS_PER_S;
    table_make(&(struct process){30, 90, 0}, 1);
    struct host_process *p = row(30);
    p->valid |= HOST_HAS_PSS;
    p->pss_bytes = 12345;
    p->pss_ns = BEGAN - before_ns;
    assert_true(has_pss(MANY, 0));
    p->user_data = NULL;
    p->pss_ns = now_ns - before_ns - 1;
    assert_false(has_pss(MANY, 0));
}

/* Without a process table, a picture stays as it is. */
static void without_a_table_nothing_is_added(void **state)
{
    struct sample sample;
    sample_init(&sample);
    begin(&sample);
    history_host_fill(host, &sample, MANY, PER_USER);
    assert_int_equal(sample.n_processes + sample.n_values, 0);
    sample_release(&sample);
}

int main(void)
{
#define TREE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TREE_TEST(a_noted_process_is_told_as_the_table_has_it),
        TREE_TEST(the_largest_are_noted_and_of_equals_the_lowest_pids),
        TREE_TEST(one_that_is_noted_must_be_passed_by_far),
        TREE_TEST(young_unknown_and_kernel_processes_are_left_out),
        TREE_TEST(a_program_without_a_name_is_noted_after_a_while),
        TREE_TEST(table_may_grow),
        TREE_TEST(users_have_a_share_and_the_next_ones_get_a_place),
        TREE_TEST(a_full_picture_counts_what_it_leaves_out),
        TREE_TEST(a_process_with_books_has_its_sizes_once),
        TREE_TEST(a_process_whose_book_is_gone_is_noted_by_its_size),
        TREE_TEST(a_process_that_the_table_lacks_is_looked_at),
        TREE_TEST(a_proportional_size_counts_once),
        TREE_TEST(the_first_picture_takes_an_older_measurement),
        TREE_TEST(without_a_table_nothing_is_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
