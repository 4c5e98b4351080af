/* The process table, over a /proc of its own and over the real one. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "host_tree.h"
#include "ledger/host.h"
#include "ledger/host_rows.h"
#include "ledger/proc.h"

enum { KERNEL_THREAD = 0x00200000 };

static uint64_t now_ns;

static uint64_t now(void)
{
    return now_ns;
}

static int tree_setup(void **state)
{
    tree_make();
    now_ns = 1000 * NS_PER_S;
    return 0;
}

static int tree_teardown(void **state)
{
    tree_remove();
    return 0;
}

static struct host *tree_host(size_t files_max)
{
    struct host *host;
    static char cgroups[128];
    snprintf(cgroups, sizeof(cgroups), "%s/cgroups", tree_root);
    assert_int_equal(host_new(&(struct host_options){.proc = tree_root,
                                                     .cgroups = cgroups,
                                                     .files_max = files_max,
                                                     .now_ns = now},
                              &host),
                     0);
    return host;
}

static struct host_process *row(struct host *host, pid_t pid)
{
    struct host_process *p = host_process_find(host, pid);
    assert_non_null(p);
    return p;
}

/* ---- cheap fields ---- */

static void every_process_is_there_with_its_fields(void **state)
{
    tree_process(&(struct tree_process){.pid = 30, .start = 7, .rss_pages = 50, .uid = 1000});
    tree_process(&(struct tree_process){.pid = 2, .comm = "kthreadd", .flags = KERNEL_THREAD});
    tree_printf("loadavgx", "no process");
    struct host *host = tree_host(0);
    assert_int_equal(host_refresh(host), 0);
    size_t n;
    struct host_process *const *rows = host_processes(host, &n);
    assert_int_equal(n, 2);
    assert_int_equal(rows[0]->pid, 2);
    assert_int_equal(rows[1]->pid, 30);
    const struct host_process *p = rows[1];
    assert_int_equal(p->valid & (HOST_HAS_MEMORY | HOST_HAS_STAT | HOST_HAS_STATUS |
                                 HOST_HAS_PARTS | HOST_HAS_PEAK | HOST_HAS_PSS),
                     HOST_HAS_MEMORY | HOST_HAS_STAT | HOST_HAS_STATUS | HOST_HAS_PARTS |
                         HOST_HAS_PEAK);
    assert_int_equal(p->rss_bytes, 50 * host->page_bytes);
    assert_int_equal(p->vms_bytes, 150 * host->page_bytes);
    assert_int_equal(p->swap_bytes, 500 * 1024);
    assert_int_equal(p->lib_bytes, 400 * 1024);
    assert_int_equal(p->peak_bytes, 400 * 1024);
    assert_int_equal(p->minor_faults, 11);
    assert_int_equal(p->major_faults, 22);
    assert_int_equal(p->threads, 3);
    assert_int_equal(p->uid, 1000);
    assert_int_equal(p->state, 'S');
    assert_string_equal(p->name, "worker");
    assert_true(rows[0]->kernel);
    assert_false(rows[0]->valid & HOST_HAS_MEMORY);
    assert_int_equal(host_tracked_of(rows[0], NULL), HOST_TRACKED_KERNEL);
    host_free(host);
}

static void details_are_read_where_memory_changed(void **state)
{
    struct tree_process p = {.pid = 30, .start = 7, .rss_pages = 50};
    tree_process(&p);
    struct host *host = tree_host(0);
    assert_int_equal(host_refresh(host), 0);
    uint64_t first = row(host, 30)->details_ns;
    now_ns += NS_PER_S;
    p.uid = 5; /* nothing in statm */
    tree_process(&p);
    assert_int_equal(host_refresh(host), 0);
    assert_int_equal(row(host, 30)->details_ns, first);
    assert_int_equal(row(host, 30)->uid, 0);
    p.rss_pages = 60;
    tree_process(&p);
    assert_int_equal(host_refresh(host), 0);
    assert_true(row(host, 30)->details_ns > first);
    assert_int_equal(row(host, 30)->uid, 5);
    assert_int_equal(row(host, 30)->rss_bytes, 60 * host->page_bytes);
    p.uid = 6;
    tree_process(&p);
    for (int i = 0; i < HOST_TURN * 4; i++) /* in turn, whatever statm says */
        assert_int_equal(host_refresh(host), 0);
    assert_int_equal(row(host, 30)->uid, 6);
    host_free(host);
}

static void who_ends_is_gone_and_who_comes_is_there(void **state)
{
    for (int i = 1; i <= 300; i++)
        tree_process(&(struct tree_process){.pid = i * 3, .start = 7, .rss_pages = 50});
    struct host *host = tree_host(100);
    assert_int_equal(host_refresh(host), 0);
    assert_true(host->files <= 100);
    for (int i = 1; i <= 300; i += 2)
        tree_process_end(i * 3);
    tree_process(&(struct tree_process){.pid = 1, .start = 9, .rss_pages = 1});
    assert_int_equal(host_refresh(host), 0);
    size_t n;
    struct host_process *const *rows = host_processes(host, &n);
    assert_int_equal(n, 151);
    assert_int_equal(rows[0]->pid, 1);
    for (size_t i = 1; i < n; i++)
        assert_int_equal(rows[i]->pid, 6 * i);
    assert_null(host_process_find(host, 3));
    host_free(host);
}

static void a_pid_that_is_reused_is_another_process(void **state)
{
    struct tree_process p = {.pid = 30, .start = 7, .rss_pages = 50};
    tree_process(&(struct tree_process){.pid = 20, .start = 7, .rss_pages = 50});
    struct host *host = tree_host(1);
    assert_int_equal(host_refresh(host), 0);
    tree_process(&p);
    assert_int_equal(host_refresh(host), 0);
    assert_int_equal(host_row(row(host, 30))->statm_fd, -1); /* its start time has to tell */
    row(host, 30)->user_data = host;
    p.start = 8;
    tree_process(&p);
    tree_write("20/statm", "", 0); /* what a descriptor reads once its process is gone */
    row(host, 20)->user_data = host;
    assert_int_equal(host_refresh(host), 0);
    assert_int_equal(row(host, 30)->start_ticks, 8);
    assert_null(row(host, 30)->user_data);
    assert_null(host_process_find(host, 20)); /* nor has who came instead any memory yet */
    tree_process(&(struct tree_process){.pid = 20, .start = 9, .rss_pages = 50});
    assert_int_equal(host_refresh(host), 0);
    assert_int_equal(row(host, 20)->start_ticks, 9);
    assert_null(row(host, 20)->user_data);
    host_free(host);
}

static void pids_since_the_last_look_are_tried_without_a_listing(void **state)
{
    tree_process(&(struct tree_process){.pid = 30, .start = 7, .rss_pages = 50});
    tree_printf("loadavg", "0.1 0.2 0.3 1/100 30\n");
    struct host *host = tree_host(0);
    assert_int_equal(host_refresh(host), 0);
    assert_int_equal(host_refresh(host), 0);
    tree_process(&(struct tree_process){.pid = 32, .start = 8, .rss_pages = 50});
    tree_process(&(struct tree_process){.pid = 5, .start = 8, .rss_pages = 50});
    tree_printf("loadavg", "0.1 0.2 0.3 1/100 40\n");
    assert_int_equal(host_refresh(host), 0);
    assert_non_null(host_process_find(host, 32));
    assert_null(host_process_find(host, 5)); /* a pid of choice waits for the next listing */
    for (int i = 0; i < 16; i++)
        assert_int_equal(host_refresh(host), 0);
    assert_non_null(host_process_find(host, 5));
    tree_process(&(struct tree_process){.pid = 41, .start = 8, .rss_pages = 50});
    tree_printf("41/status", "Name:\tx\nTgid:\t32\nUid:\t0\t0\t0\t0\n");
    tree_printf("loadavg", "0.1 0.2 0.3 1/100 41\n");
    assert_int_equal(host_refresh(host), 0);
    assert_null(host_process_find(host, 41)); /* a thread */
    host_free(host);
}

static void a_proc_of_another_namespace_is_listed_each_time(void **state)
{
    char self[128];
    snprintf(self, sizeof(self), "%s/self", tree_root);
    assert_int_equal(symlink("1", self), 0);
    tree_process(&(struct tree_process){.pid = 30, .start = 7, .rss_pages = 50});
    tree_printf("loadavg", "0.1 0.2 0.3 1/100 30\n");
    struct host *host = tree_host(0);
    assert_int_equal(host_refresh(host), 0);
    assert_int_equal(host_refresh(host), 0);
    tree_process(&(struct tree_process){.pid = 5, .start = 8, .rss_pages = 50});
    assert_int_equal(host_refresh(host), 0);
    assert_non_null(host_process_find(host, 5));
    host_free(host);
}

/* ---- rates ---- */

/* ---- marks ---- */

struct told {
    struct host_mark marks[4];
    size_t n;
    int error;
};

static int tell(void *context, const struct host_mark **ret_marks, size_t *ret_n)
{
    const struct told *told = context;
    if (told->error)
        return told->error;
    *ret_marks = told->marks;
    *ret_n = told->n;
    return 0;
}

static void grow(int pid, unsigned long rss_pages)
{
    tree_process(&(struct tree_process){.pid = pid, .start = 7, .rss_pages = rss_pages});
}

static void only_who_has_another_mark_is_asked(void **state)
{
    struct told told = {.marks = {{.pid = 30, .mark = 1}, {.pid = 31, .mark = 1}}, .n = 2};
    grow(30, 50);
    grow(31, 50);
    struct host *host = tree_host(0);
    uint64_t page = host->page_bytes;
    host_set_marks(host, tell, &told);
    assert_int_equal(host_refresh(host), 0);
    assert_int_equal(host_refresh(host), 0); /* now each has a mark */
    grow(30, 60);
    grow(31, 60);
    told.marks[1].mark = 2;
    assert_int_equal(host_refresh(host), 0);
    assert_int_equal(row(host, 30)->rss_bytes, 50 * page); /* nobody looked */
    assert_int_equal(row(host, 31)->rss_bytes, 60 * page);
    /* Without marks, and for who has none, everything is as it would be without. */
    told.marks[0].mark = 0;
    assert_int_equal(host_refresh(host), 0);
    assert_int_equal(row(host, 30)->rss_bytes, 60 * page);
    told.marks[0].mark = 1;
    assert_int_equal(host_refresh(host), 0);
    grow(30, 70);
    told.error = -EPERM;
    assert_int_equal(host_refresh(host), 0);
    assert_int_equal(row(host, 30)->rss_bytes, 70 * page);
    /* A mark that is wrong is found out in turn. */
    told.error = 0;
    assert_int_equal(host_refresh(host), 0);
    grow(30, 80);
    for (int i = 0; i < HOST_TURN; i++)
        assert_int_equal(host_refresh(host), 0);
    assert_int_equal(row(host, 30)->rss_bytes, 80 * page);
    host_free(host);
}

static void marks_tell_who_was_born(void **state)
{
    struct told told = {.marks = {{.pid = 30, .mark = 1}}, .n = 1};
    grow(30, 50);
    struct host *host = tree_host(0);
    host_set_marks(host, tell, &told);
    assert_int_equal(host_refresh(host), 0);
    grow(20, 50);
    grow(40, 50);
    grow(50, 50);
    told = (struct told){.marks = {{.pid = 20, .mark = 1},
                                   {.pid = 30, .mark = 1},
                                   {.pid = 40},
                                   {.pid = 45, .mark = 9}}, /* gone before anybody looked */
                         .n = 4};
    assert_int_equal(host_refresh(host), 0);
    size_t n;
    struct host_process *const *rows = host_processes(host, &n);
    assert_int_equal(n, 3);
    assert_int_equal(rows[0]->pid, 20);
    assert_int_equal(rows[1]->pid, 30);
    assert_int_equal(rows[2]->pid, 40);
    assert_null(host_process_find(host, 50)); /* nothing was listed */
    host_free(host);
}

/* ---- time ---- */

/* A process table that is refreshed at given moments. */
struct rates {
    struct host host;
    struct host_row row;
};

static void rates_refresh(struct rates *r, double seconds, uint64_t pages)
{
    host_windows_init(&r->host);
    r->host.time_ns = (uint64_t)llround(seconds * 1000) * (NS_PER_S / 1000);
    host_ticks_advance(&r->host);
    r->row.p.valid = HOST_HAS_MEMORY;
    r->row.p.rss_bytes = pages * r->host.page_bytes;
}

/* Pages per second, or -1: not known. */
static double rates_of(const struct rates *r, enum host_window window)
{
    double bytes;
    return host_rate(&r->host, &r->row.p, window, &bytes) ? bytes / r->host.page_bytes : -1;
}

static void rate_is_that_of_the_latest_figure_that_is_old_enough(void **state)
{
    struct rates r = {.host.page_bytes = 4096};
    for (int i = 0; i <= 40; i++) { /* each 0.9 s, which is a step of the shortest window */
        rates_refresh(&r, 100 + i * 0.9, 1000 + (uint64_t)(i * i));
        if (i == 0)
            host_ring_start(&r.host, &r.row);
        host_ring_note(&r.host, &r.row);
        /* 9.9 s ago are 11 steps, and less than 9.5 s are not enough. */
        double expected = i < 11 ? -1 : (i * i - (i - 11) * (i - 11)) / 9.9;
        assert_true(fabs(rates_of(&r, HOST_10S) - expected) < 1e-6);
        assert_true(rates_of(&r, HOST_1MIN) == -1);
    }
    rates_refresh(&r, 100 + 40 * 0.9 + 0.899, 0); /* too early for another step */
    assert_false(r.host.ticks[HOST_10S].now);
    rates_refresh(&r, 100 + 40 * 0.9 + 0.9, 0);
    assert_true(r.host.ticks[HOST_10S].now);
    assert_false(r.host.ticks[HOST_10MIN].now);
}

static void rate_after_a_pause_is_not_that_of_another_window(void **state)
{
    static const struct {
        double pause, rate;
    } cases[] = {{9.4, -1}, {9.5, 50 / 9.5}, {10, 5}, {15, 50.0 / 15}, {15.001, -1}, {100, -1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct rates r = {.host.page_bytes = 4096};
        rates_refresh(&r, 1000, 100);
        host_ring_start(&r.host, &r.row);
        host_ring_note(&r.host, &r.row);
        rates_refresh(&r, 1000 + cases[i].pause, 150);
        host_ring_note(&r.host, &r.row);
        assert_true(fabs(rates_of(&r, HOST_10S) - cases[i].rate) < 1e-6);
    }
}

/* Slots of the ring from before its start hold nothing, or what another process had. */
static void rate_of_a_new_process_waits_for_its_own_figures(void **state)
{
    for (int between = 0; between < 2; between++) { /* it appears in a step, or between two */
        struct rates r = {.host.page_bytes = 4096};
        int second = 0;
        for (; second < 20; second++)
            rates_refresh(&r, 1000 + second, 100);
        if (between)
            rates_refresh(&r, 1000 + second - 0.5, 100);
        host_ring_start(&r.host, &r.row);
        host_ring_note(&r.host, &r.row);
        for (int i = 1; i < 30; i++) {
            rates_refresh(&r, 1000 + second - 1 + i, 100 + (uint64_t)i);
            host_ring_note(&r.host, &r.row);
            double rate = rates_of(&r, HOST_10S);
            if (i <= 9 + between)
                assert_true(rate == -1);
            if (i > 10 + between)
                assert_true(fabs(rate - 1) < 1e-6);
        }
    }
}

static void rate_needs_memory_at_both_ends(void **state)
{
    struct rates r = {.host.page_bytes = 4096};
    rates_refresh(&r, 1000, 100);
    host_ring_start(&r.host, &r.row);
    r.row.p.valid = 0; /* not readable then */
    host_ring_note(&r.host, &r.row);
    rates_refresh(&r, 1001, UINT64_C(1) << 40); /* more pages than a slot can hold */
    host_ring_note(&r.host, &r.row);
    rates_refresh(&r, 1010, 100);
    assert_true(rates_of(&r, HOST_10S) == -1);
    rates_refresh(&r, 1011, 100);
    assert_true(rates_of(&r, HOST_10S) == -1);
    r = (struct rates){.host.page_bytes = 4096};
    rates_refresh(&r, 1000, 100);
    host_ring_start(&r.host, &r.row);
    host_ring_note(&r.host, &r.row);
    rates_refresh(&r, 1010, 80);
    assert_true(rates_of(&r, HOST_10S) == -2);
    r.row.p.valid = 0;
    double bytes = 7;
    assert_false(host_rate(&r.host, &r.row.p, HOST_10S, &bytes));
    assert_true(bytes == 7);
}

static void rates_are_absent_until_time_has_passed(void **state)
{
    struct tree_process p = {.pid = 30, .start = 7, .rss_pages = 100};
    tree_process(&p);
    struct host *host = tree_host(0);
    double rate;
    for (int second = 0; second <= 70; second++) {
        p.rss_pages = 100 + (unsigned)second * 10;
        tree_process(&p);
        assert_int_equal(host_refresh(host), 0);
        bool has = host_rate(host, row(host, 30), HOST_10S, &rate);
        assert_int_equal(has, second >= 10);
        if (has)
            assert_true(rate == 10.0 * host->page_bytes);
        assert_int_equal(host_rate(host, row(host, 30), HOST_1MIN, &rate), second >= 57);
        assert_false(host_rate(host, row(host, 30), HOST_10MIN, &rate));
        now_ns += NS_PER_S;
    }
    p.rss_pages = 10;
    tree_process(&p);
    assert_int_equal(host_refresh(host), 0);
    assert_true(host_rate(host, row(host, 30), HOST_10S, &rate));
    assert_true(rate < 0);
    now_ns += 100 * NS_PER_S; /* nobody looked for long: what was before tells of another window */
    assert_int_equal(host_refresh(host), 0);
    assert_false(host_rate(host, row(host, 30), HOST_10S, &rate));
    tree_process(&(struct tree_process){.pid = 31, .start = 7, .rss_pages = 100});
    assert_int_equal(host_refresh(host), 0);
    assert_false(host_rate(host, row(host, 31), HOST_1MIN, &rate));
    host_free(host);
}

/* A leak grows in each third of the window; a burst does not. */
static void only_growth_that_lasts_is_steady(void **state)
{
    struct tree_process leak = {.pid = 30, .start = 7, .rss_pages = 100};
    struct tree_process burst = {.pid = 31, .start = 7, .rss_pages = 100};
    struct tree_process rests = {.pid = 32, .start = 7, .rss_pages = 100}; /* in the middle */
    struct host *host = tree_host(0);
    double rate;
    for (int second = 0; second <= 40; second++) {
        leak.rss_pages = 100 + (unsigned)second * 10;
        burst.rss_pages = second < 35 ? 100 : 5000;
        tree_process(&leak);
        tree_process(&burst);
        rests.rss_pages += second % 30 < 10 || second % 30 >= 22 ? 10 : 0;
        tree_process(&rests);
        assert_int_equal(host_refresh(host), 0);
        assert_int_equal(host_steady(host, row(host, 32), &rate), second >= 29);
        assert_true(second != 30 || rate == 0);
        assert_int_equal(host_steady(host, row(host, 30), &rate), second >= 29);
        assert_true(second < 29 || rate == 10.0 * host->page_bytes);
        assert_int_equal(host_steady(host, row(host, 31), &rate), second >= 29);
        assert_true(second < 29 || rate == 0);
        now_ns += NS_PER_S;
    }
    host_set_steady(host, 3 * NS_PER_S);
    for (int second = 0; second <= 5; second++) {
        leak.rss_pages += 5;
        tree_process(&leak);
        assert_int_equal(host_refresh(host), 0);
        assert_int_equal(host_steady(host, row(host, 30), &rate), second >= 3);
        now_ns += NS_PER_S;
    }
    assert_true(rate == 5.0 * host->page_bytes);
    now_ns += 100 * NS_PER_S;
    assert_int_equal(host_refresh(host), 0);
    assert_false(host_steady(host, row(host, 30), &rate));
    host_free(host);
}

/* Each third has a figure of its own, at most half a window older than its beginning. */
static void steady_growth_needs_a_figure_of_each_third(void **state)
{
    static const struct {
        double ages[4]; /* of the figures, in seconds; 0 ends them */
        double rate;
    } cases[] = {
        {{30, 20, 10}, 1},
        {{28.5, 19, 9.5}, 1},
        {{28.4, 19, 9.5}, -1},
        {{28.5, 18.9, 9.5}, -1},
        {{28.5, 19, 9.4}, -1},
        {{45, 28.4, 18.9}, 1},
        {{45.001, 20, 10}, -1},
        {{50, 20, 10}, -1},
        {{45, 35, 25}, -1}, /* one figure for two thirds */
        {{30, 21}, -1},
        {{45, 20}, -1},
        {{30}, -1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct rates r = {.host.page_bytes = 4096};
        double bytes = -1;
        for (size_t k = 0; cases[i].ages[k] > 0; k++) {
            double at = 1000 - cases[i].ages[k];
            rates_refresh(&r, at, (uint64_t)llround(at * 1000));
            if (k == 0)
                host_ring_start(&r.host, &r.row);
            host_ring_note(&r.host, &r.row);
        }
        rates_refresh(&r, 1000, 1000 * 1000);
        host_ring_note(&r.host, &r.row);
        bool known = host_steady(&r.host, &r.row.p, &bytes);
        if (known != (cases[i].rate > 0) || (known && fabs(bytes / 4096 / 1000 - 1) > 1e-6))
            fail_msg("case %zu: %g", i, bytes);
    }
}

/* A machine that has just started has a first figure in every window. */
static void the_first_figure_does_not_wait_for_the_clock(void **state)
{
    struct rates r = {.host.page_bytes = 4096};
    rates_refresh(&r, 0.001, 1);
    for (int w = 0; w < HOST_WINDOWS; w++)
        assert_true(r.host.ticks[w].now && r.host.ticks[w].n == 1);
    rates_refresh(&r, 0.002, 1);
    for (int w = 0; w < HOST_WINDOWS; w++)
        assert_true(!r.host.ticks[w].now && r.host.ticks[w].n == 1);
}

/* ---- costly fields ---- */

#define ROLLUP "Pss: %d kB\nShared_Dirty: 1 kB\nPrivate_Clean: 2 kB\nPrivate_Dirty: 3 kB\n"

/* Its row is its real user's, who could not read it. */
static void environment_of_a_set_uid_program_is_not_told(void **state)
{
    static const char *const ids[] = {
        "Uid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\n", "Uid:\t7\t0\t0\t0\nGid:\t8\t8\t8\t8\n",
        "Uid:\t7\t7\t0\t7\nGid:\t8\t8\t8\t8\n", "Uid:\t7\t7\t7\t7\nGid:\t8\t9\t9\t9\n"};
    for (int i = 0; i < 4; i++) {
        char name[32];
        tree_process(&(struct tree_process){.pid = 30 + i, .start = 7, .rss_pages = 50});
        snprintf(name, sizeof(name), "%d/environ", 30 + i);
        tree_write(name, "SLURM_JOB_ID=99\0SLURM_PROCID=4\0", 31);
        snprintf(name, sizeof(name), "%d/status", 30 + i);
        tree_printf(name, "Name:\tworker\n%sVmHWM:\t1 kB\n", ids[i]);
    }
    struct host *host = tree_host(0);
    assert_int_equal(host_refresh(host), 0);
    assert_true(host_refine(host, 10 * NS_PER_S));
    for (int i = 0; i < 4; i++)
        assert_int_equal(row(host, 30 + i)->valid & (HOST_HAS_JOB | HOST_HAS_RANK),
                         i == 0 ? HOST_HAS_JOB | HOST_HAS_RANK : 0);
    host_free(host);
}

static void costly_fields_come_by_probes(void **state)
{
    tree_process(&(struct tree_process){.pid = 30, .start = 7, .rss_pages = 50});
    tree_printf("30/smaps_rollup", ROLLUP, 77);
    tree_printf("30/oom_score", "666\n");
    tree_write("30/cmdline", "/usr/bin/python3\0train.py\0", 26);
    tree_write("30/environ", "SLURM_JOB_ID=99\0SLURM_PROCID=4\0", 31);
    tree_printf("30/cgroup", "0::/slurm/job_12/step_0\n");
    tree_printf("cgroups/slurm/job_12/memory.max", "1000000\n");
    tree_printf("cgroups/slurm/job_12/memory.current", "400000\n");
    tree_printf("cgroups/slurm/job_12/step_0/memory.max", "max\n");
    tree_printf("cgroups/slurm/job_12/step_0/memory.current", "300000\n");
    tree_process(
        &(struct tree_process){.pid = 31, .start = 7, .rss_pages = 50}); /* may not be read */
    struct host *host = tree_host(0);
    assert_int_equal(host_refresh(host), 0);
    assert_true(host_refine(host, 10 * NS_PER_S));
    const struct host_process *p = row(host, 30);
    assert_int_equal(p->valid & (HOST_HAS_PSS | HOST_HAS_OOM | HOST_HAS_COMMAND | HOST_HAS_CGROUP |
                                 HOST_HAS_JOB | HOST_HAS_RANK),
                     HOST_HAS_PSS | HOST_HAS_OOM | HOST_HAS_COMMAND | HOST_HAS_CGROUP |
                         HOST_HAS_JOB | HOST_HAS_RANK);
    assert_int_equal(p->pss_bytes, 77 * 1024);
    assert_int_equal(p->uss_bytes, 5 * 1024);
    assert_int_equal(p->dirty_bytes, 4 * 1024);
    assert_int_equal(p->oom_score, 666);
    assert_string_equal(p->command, "/usr/bin/python3 train.py");
    assert_string_equal(p->name, "train.py");
    assert_string_equal(p->job, "12"); /* the cgroup's: an environment is the user's own word */
    assert_false(p->job_private);
    assert_int_equal(p->rank, 4);
    assert_true(p->pss_ns > 0);
    assert_int_equal(host_refresh(host), 0);
    p = row(host, 30);
    assert_true(p->cgroup->known && p->cgroup->limited);
    assert_int_equal(p->cgroup->limit_bytes, 1000000);
    assert_int_equal(p->cgroup->headroom_bytes, 600000);
    assert_int_equal(p->cgroup->used_bytes, 300000);
    assert_int_equal(row(host, 31)->valid & (HOST_HAS_PSS | HOST_HAS_OOM | HOST_HAS_COMMAND |
                                             HOST_HAS_CGROUP | HOST_HAS_JOB | HOST_HAS_TRACKED),
                     0);
    assert_int_equal(host_tracked_of(row(host, 31), NULL), HOST_TRACKED_UNKNOWN);
    assert_true(host_refine(host, 10 * NS_PER_S)); /* nothing changed: nobody is asked again */
    host_free(host);
}

static void the_largest_and_the_changed_come_first(void **state)
{
    struct tree_process small = {.pid = 30, .start = 7, .rss_pages = 1000};
    struct tree_process large = {.pid = 31, .start = 7, .rss_pages = 900000};
    tree_process(&small);
    tree_process(&large);
    struct host *host = tree_host(0);
    struct host_todo todo;
    const struct host_probe nothing = {.valid = HOST_HAS_PSS};
    assert_int_equal(host_refresh(host), 0);
    const pid_t order[] = {31, 30, 31, 30}; /* what they are, then their sizes */
    for (int i = 0; i < 4; i++) {
        assert_true(host_probe_next(host, &todo));
        assert_int_equal(todo.pid, order[i]);
        assert_int_equal(!!(todo.kinds & HOST_PROBE_SIZES), i >= 2);
        host_probe_done(host, &todo, 0, &nothing);
    }
    assert_false(host_probe_next(host, &todo));
    small.rss_pages += 5000;
    large.rss_pages += 10;
    tree_process(&small);
    tree_process(&large);
    now_ns += 5 * NS_PER_S;
    assert_int_equal(host_refresh(host), 0);
    assert_true(host_probe_next(host, &todo));
    assert_int_equal(todo.pid, 30);
    host_probe_done(host, &todo, -ETIMEDOUT, NULL);
    assert_true(host_probe_next(host, &todo));
    assert_int_equal(todo.pid, 31);
    host_probe_done(host, &todo, 0, &nothing);
    small.rss_pages += 5000;
    tree_process(&small);
    now_ns += NS_PER_S;
    assert_int_equal(host_refresh(host), 0);
    assert_false(host_probe_next(host, &todo)); /* who did not answer is left alone */
    host_free(host);
}

/* Nothing of it changes, so its sizes would be kept for two minutes. */
static void a_process_that_is_looked_at_is_measured_again_and_again(void **state)
{
    tree_process(&(struct tree_process){.pid = 30, .start = 7, .rss_pages = 1000});
    tree_process(&(struct tree_process){.pid = 31, .start = 7, .rss_pages = 900000});
    struct host *host = tree_host(0);
    struct host_todo todo;
    const struct host_probe sizes = {.valid = HOST_HAS_PSS, .cpu_ns = NS_PER_MS};
    assert_int_equal(host_refresh(host), 0);
    while (host_probe_next(host, &todo))
        host_probe_done(host, &todo, 0, &sizes);
    for (int i = 0; i < 4; i++) {
        host_watch(host, 30);
        assert_false(host_probe_next(host, &todo)); /* it was measured just now */
        now_ns += HOST_WATCHED_EACH_S * NS_PER_S;
        assert_int_equal(host_refresh(host), 0);
        host_watch(host, 30);
        assert_true(host_probe_next(host, &todo));
        assert_int_equal(todo.pid, 30);
        assert_true(todo.kinds & HOST_PROBE_SIZES);
        host_probe_done(host, &todo, 0, &sizes);
        assert_false(host_probe_next(host, &todo));
    }
    now_ns += 2 * HOST_WATCHED_S * NS_PER_S;
    assert_int_equal(host_refresh(host), 0);
    assert_false(host_probe_next(host, &todo)); /* nobody looks any more */
    host_watch(host, 4711);                     /* not there: nothing happens */
    host_free(host);
}

/* One whose sizes take a tenth of a second each time is measured every 20 s. */
static void looking_at_a_large_process_stays_within_a_share_of_a_processor(void **state)
{
    tree_process(&(struct tree_process){.pid = 30, .start = 7, .rss_pages = 1000});
    struct host *host = tree_host(0);
    struct host_todo todo;
    const struct host_probe sizes = {.valid = HOST_HAS_PSS, .cpu_ns = 100 * NS_PER_MS};
    assert_int_equal(host_refresh(host), 0);
    while (host_probe_next(host, &todo))
        host_probe_done(host, &todo, 0, &sizes);
    unsigned measured = 0;
    for (int s = 0; s < 60; s++) {
        now_ns += NS_PER_S;
        assert_int_equal(host_refresh(host), 0);
        host_watch(host, 30);
        if (host_probe_next(host, &todo)) {
            host_probe_done(host, &todo, 0, &sizes);
            measured++;
        }
    }
    assert_int_equal(measured, 3);
    host_free(host);
}

static void what_comes_late_is_about_nobody_else(void **state)
{
    tree_process(&(struct tree_process){.pid = 30, .start = 7, .rss_pages = 50});
    struct host *host = tree_host(0);
    assert_int_equal(host_refresh(host), 0);
    struct host_todo todo;
    assert_true(host_probe_next(host, &todo));
    todo.start_ticks = 6;
    struct host_probe probe = {.valid = HOST_HAS_PSS | HOST_HAS_COMMAND, .command = "x"};
    host_probe_done(host, &todo, 0, &probe);
    assert_false(row(host, 30)->valid & (HOST_HAS_PSS | HOST_HAS_COMMAND));
    host_free(host);
}

/* A pid that is another process's by the time that it is probed. */
static void who_has_gone_gets_nothing_of_his_successor(void **state)
{
    tree_process(&(struct tree_process){.pid = 30, .start = 7, .rss_pages = 50});
    struct host *host = tree_host(0);
    assert_int_equal(host_refresh(host), 0);
    struct host_todo todo;
    assert_true(host_probe_next(host, &todo));
    tree_write("30/statm", "", 0); /* what the kernel gives to who kept the descriptor */
    struct host_probe probe = {.valid = HOST_HAS_PSS | HOST_HAS_COMMAND, .command = "x"};
    host_probe_done(host, &todo, 0, &probe);
    assert_false(row(host, 30)->valid & (HOST_HAS_PSS | HOST_HAS_COMMAND));
    assert_false(host_probe_next(host, &todo)); /* else it is asked about until the next refresh */
    host_free(host);
}

static void who_leaves_a_job_is_in_none(void **state)
{
    tree_process(&(struct tree_process){.pid = 30, .start = 7, .rss_pages = 50});
    struct host *host = tree_host(0);
    assert_int_equal(host_refresh(host), 0);
    struct host_todo todo;
    assert_true(host_probe_next(host, &todo));
    struct host_probe probe = {.valid = HOST_HAS_CGROUP, .cgroup = "/slurm/uid_1/job_12"};
    host_probe_done(host, &todo, 0, &probe);
    assert_true(row(host, 30)->valid & HOST_HAS_JOB);
    assert_string_equal(row(host, 30)->job, "12");
    strcpy(probe.cgroup, "/system.slice");
    todo.kinds = HOST_PROBE_CGROUP;
    host_probe_done(host, &todo, 0, &probe);
    assert_false(row(host, 30)->valid & HOST_HAS_JOB);
    host_free(host);
}

static void cgroups_of_version_1_have_their_own_files(void **state)
{
    tree_process(&(struct tree_process){.pid = 30, .start = 7, .rss_pages = 50});
    tree_printf("30/cgroup", "4:memory:/a/b\n0::/x\n");
    tree_printf("cgroups/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
    tree_printf("cgroups/memory/a/b/memory.usage_in_bytes", "100\n");
    tree_printf("cgroups/memory/a/memory.limit_in_bytes", "5000\n");
    tree_printf("cgroups/memory/a/memory.usage_in_bytes", "6000\n");
    struct host *host = tree_host(0);
    assert_int_equal(host_refresh(host), 0);
    assert_true(host_refine(host, 10 * NS_PER_S));
    assert_int_equal(host_refresh(host), 0);
    const struct host_cgroup *cgroup = row(host, 30)->cgroup;
    assert_non_null(cgroup);
    assert_string_equal(cgroup->path, "/a/b");
    assert_true(cgroup->known && cgroup->limited && cgroup->has_used);
    assert_int_equal(cgroup->limit_bytes, 5000);
    assert_int_equal(cgroup->headroom_bytes, 0);
    assert_int_equal(cgroup->used_bytes, 100);
    host_free(host);
}

static void a_path_of_cgroups_leads_nowhere_else(void **state)
{
    tree_process(&(struct tree_process){.pid = 30, .start = 7, .rss_pages = 50});
    tree_printf("30/cgroup", "0::/../secret\n");
    tree_printf("cgroups/x", "x");
    tree_printf("secret/memory.max", "1\n");
    tree_printf("secret/memory.current", "1\n");
    struct host *host = tree_host(0);
    assert_int_equal(host_refresh(host), 0);
    assert_true(host_refine(host, 10 * NS_PER_S));
    assert_int_equal(host_refresh(host), 0);
    assert_non_null(row(host, 30)->cgroup);
    assert_false(row(host, 30)->cgroup->known);
    host_free(host);
}

static void huge_and_hostile_texts_are_cut(void **state)
{
    static char huge[600 << 10];
    memset(huge, 'x', sizeof(huge));
    tree_process(
        &(struct tree_process){.pid = 30, .start = 7, .rss_pages = 50, .comm = "a)\n(\x1b[2J"});
    tree_write("30/cmdline", huge, sizeof(huge));
    tree_write("30/environ", huge, sizeof(huge));
    tree_write("30/cgroup", huge, sizeof(huge));
    tree_write("30/smaps_rollup", huge, sizeof(huge));
    tree_process(&(struct tree_process){.pid = 31, .start = 7, .rss_pages = 50});
    tree_write("31/stat", huge, sizeof(huge));
    tree_write("31/status", huge, sizeof(huge));
    tree_process(&(struct tree_process){.pid = 32, .start = 7, .rss_pages = 50});
    tree_write("32/statm", huge, sizeof(huge));
    struct host *host = tree_host(0);
    assert_int_equal(host_refresh(host), 0);
    (void)host_refine(host, 10 * NS_PER_S);
    assert_int_equal(host_refresh(host), 0);
    assert_int_equal(strlen(row(host, 30)->command), HOST_COMMAND_MAX - 1);
    assert_string_equal(row(host, 30)->comm, "a)\n(\x1b[2J");
    assert_false(row(host, 30)->valid & (HOST_HAS_CGROUP | HOST_HAS_PSS | HOST_HAS_JOB));
    assert_false(row(host, 31)->valid & (HOST_HAS_STAT | HOST_HAS_STATUS));
    assert_false(row(host, 32)->valid & HOST_HAS_MEMORY);
    host_free(host);
}

/* ---- the machine ---- */

static void the_machine_is_read_with_each_refresh(void **state)
{
    tree_printf("meminfo",
                "MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable: 2 kB\nBuffers: 1 kB\nCached: 1 kB\n");
    struct host *host = tree_host(0);
    assert_int_equal(host_refresh(host), 0);
    assert_int_equal(host_system(host)->valid, HOST_HAS_TOTAL | HOST_HAS_AVAILABLE);
    assert_int_equal(host_system(host)->total_bytes, 9 * 1024);
    tree_printf("meminfo", "nonsense\n");
    assert_int_equal(host_refresh(host), 0);
    assert_int_equal(host_system(host)->valid, 0);
    host_free(host);
}

/* ---- the real one ---- */

static void a_child_that_grows_is_seen_to_grow(void **state)
{
    enum { GROWTH = 64 << 20 };
    int go[2], done[2];
    char byte;
    assert_int_equal(pipe(go), 0);
    assert_int_equal(pipe(done), 0);
    pid_t child = fork();
    if (child == 0) {
        char *memory =
            mmap(NULL, GROWTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (read(go[0], &byte, 1) == 1 && memory != MAP_FAILED) {
            memset(memory, 1, GROWTH);
            (void)!write(done[1], "x", 1);
        }
        pause();
        _exit(0);
    }
    struct host *host;
    assert_int_equal(host_new(&(struct host_options){.user_names = true, .now_ns = now}, &host), 0);
    assert_int_equal(host_refresh(host), 0);
    uint64_t before = row(host, child)->rss_bytes;
    now_ns += 10 * NS_PER_S;
    assert_int_equal(write(go[1], "x", 1), 1);
    assert_int_equal(read(done[0], &byte, 1), 1);
    assert_int_equal(host_refresh(host), 0);
    double rate;
    struct proc_stat stat;
    const struct host_process *p = row(host, child);
    assert_true(p->rss_bytes >= before + GROWTH / 2);
    assert_true(host_rate(host, p, HOST_10S, &rate));
    assert_true(rate > GROWTH / 2 / 10.0);
    assert_int_equal(proc_stat_read(child, &stat), 0);
    assert_int_equal(p->start_ticks, stat.start_ticks); /* as the books have it */
    assert_int_equal(p->parent_pid, getpid());
    assert_int_equal(p->uid, getuid());
    struct host_probe probe;
    assert_int_equal(host_probe_read(NULL, child, HOST_PROBE_SIZES | HOST_PROBE_COMMAND, &probe),
                     0);
    assert_true(probe.valid & HOST_HAS_COMMAND);
    if (probe.valid & HOST_HAS_PSS)
        assert_true(probe.uss_bytes >= GROWTH / 2);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(host_refresh(host), 0);
    assert_null(host_process_find(host, child));
    assert_int_equal(host_probe_read(NULL, child, HOST_PROBE_SIZES, &probe), -ESRCH);
    for (int i = 0; i < 4; i++) {
        close(i < 2 ? go[i] : done[i - 2]);
    }
    host_free(host);
}

#define TREE_TEST(name) cmocka_unit_test_setup_teardown(name, tree_setup, tree_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TREE_TEST(every_process_is_there_with_its_fields),
        TREE_TEST(details_are_read_where_memory_changed),
        TREE_TEST(who_ends_is_gone_and_who_comes_is_there),
        TREE_TEST(a_pid_that_is_reused_is_another_process),
        TREE_TEST(pids_since_the_last_look_are_tried_without_a_listing),
        TREE_TEST(a_proc_of_another_namespace_is_listed_each_time),
        TREE_TEST(only_who_has_another_mark_is_asked),
        TREE_TEST(marks_tell_who_was_born),
        cmocka_unit_test(rate_is_that_of_the_latest_figure_that_is_old_enough),
        cmocka_unit_test(rate_after_a_pause_is_not_that_of_another_window),
        cmocka_unit_test(rate_of_a_new_process_waits_for_its_own_figures),
        cmocka_unit_test(rate_needs_memory_at_both_ends),
        TREE_TEST(rates_are_absent_until_time_has_passed),
        TREE_TEST(only_growth_that_lasts_is_steady),
        TREE_TEST(steady_growth_needs_a_figure_of_each_third),
        TREE_TEST(the_first_figure_does_not_wait_for_the_clock),
        TREE_TEST(costly_fields_come_by_probes),
        TREE_TEST(environment_of_a_set_uid_program_is_not_told),
        TREE_TEST(the_largest_and_the_changed_come_first),
        TREE_TEST(a_process_that_is_looked_at_is_measured_again_and_again),
        TREE_TEST(looking_at_a_large_process_stays_within_a_share_of_a_processor),
        TREE_TEST(what_comes_late_is_about_nobody_else),
        TREE_TEST(who_has_gone_gets_nothing_of_his_successor),
        TREE_TEST(who_leaves_a_job_is_in_none),
        TREE_TEST(cgroups_of_version_1_have_their_own_files),
        TREE_TEST(a_path_of_cgroups_leads_nowhere_else),
        TREE_TEST(huge_and_hostile_texts_are_cut),
        TREE_TEST(the_machine_is_read_with_each_refresh),
        cmocka_unit_test(a_child_that_grows_is_seen_to_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
