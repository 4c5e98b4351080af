/* The watch over a resident size. See leaks_resident.h. */
#include "cli/leaks_resident.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/procfs.h"
#include "cli/leaks_watch.h"
#include "cli/suspects.h"
#include "explain/climb.h"
#include "explain/explain.h"
#include "explain/outside.h"
#include "ledger/proc.h"

enum { LINE_MAX = 256 };

/* The second number of statm, in pages. */
static int resident_read(int fd, uint64_t *ret_bytes)
{
    char text[LINE_MAX];
    struct procfs_statm statm;
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    if (n <= 0)
        return -ESRCH;
    text[n] = '\0';
    if (!procfs_statm_parse(text, &statm))
        return -ESRCH;
    *ret_bytes = statm.rss * (uint64_t)sysconf(_SC_PAGESIZE);
    return 0;
}

/* Looks until the time is over; how many points there are. */
static size_t points_take(const struct leaks_watch *watch, int fd, struct detect_point *points,
                          size_t max)
{
    uint64_t begin_ns = clock_monotonic_ns();
    size_t n = 0;
    while (n < max) {
        struct detect_point *p = &points[n];
        *p = (struct detect_point){.time_ns = clock_monotonic_ns()};
        if (resident_read(fd, &p->alloc_bytes) < 0)
            break;
        n++;
        if (p->time_ns - begin_ns >= watch->for_ns)
            break;
        uint64_t due_ns = begin_ns + n * watch->interval_ns;
        struct timespec until = {(time_t)(due_ns / NS_PER_S), (long)(due_ns % NS_PER_S)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
            ;
    }
    return n;
}

static char *comm_of(pid_t pid)
{
    char comm[PROC_COMM_MAX];
    return proc_comm_read(pid, comm) == 0 ? strdup(comm) : NULL;
}

/* What of it grew, by an explanation before and after. */
static void row_name(struct suspect *s, const struct explain *before, uint64_t span_ns)
{
    struct outside_verdict v;
    MEMOIR_CLEANUP(freep)
    struct explain *after = calloc(1, sizeof(*after));
    if (!after || !before->rss_bytes || s->verdict != DETECT_GROWING ||
        explain_take_apart((pid_t)s->pid, getuid(), OUTSIDE_EXPLAIN_MS, after) < 0)
        return;
    outside_compare(before, after, span_ns, &v);
    outside_verdict_all(&v);
    climb_name(s, &v);
}

int leaks_resident(const struct leaks_watch *watch, pid_t pid, struct suspects *ret_suspects)
{
    MEMOIR_CLEANUP(freep)
    struct explain *before = calloc(1, sizeof(*before));
    if (before && explain_take_apart(pid, getuid(), OUTSIDE_EXPLAIN_MS, before) < 0)
        before->rss_bytes = 0;
    size_t max = (size_t)(watch->for_ns / watch->interval_ns) + 16;
    MEMOIR_CLEANUP(freep)
    struct detect_point *points = calloc(max, sizeof(*points));
    struct suspect *row = calloc(1, sizeof(*row));
    MEMOIR_CLEANUP(closep)
    int fd = proc_file_open("/proc", pid, "statm");
    size_t n = points && row && fd >= 0 ? points_take(watch, fd, points, max) : 0;
    if (n == 0) {
        free(row);
        return points && row ? -ESRCH : -ENOMEM;
    }
    struct detect_result r;
    detect_judge(points, n,
                 &(struct detect_options){.needs_ns = watch->needs_ns, .level_only = true}, &r);
    climb_row(row, pid, points, n, &r);
    row->program = comm_of(pid);
    if (before)
        row_name(row, before, points[n - 1].time_ns - points[0].time_ns);
    *ret_suspects = (struct suspects){
        .rows = row,
        .n = 1,
        .processes = 1,
        .sites = 1,
        .span_ns = r.span_ns,
        .resident = true,
    };
    ret_suspects->verdicts[r.verdict] = 1;
    return 0;
}
