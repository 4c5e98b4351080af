/* The watch over a resident size. See leaks_resident.h. */
#include "cli/leaks_resident.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/procfs.h"
#include "cli/leaks_watch.h"
#include "cli/suspects.h"
#include "explain/explain.h"
#include "explain/outside.h"
#include "ledger/headroom.h"
#include "ledger/proc.h"

enum { TEXT_MAX = 4096, LINE_MAX = 256 };

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

static void row_fill(struct suspect *s, pid_t pid, const struct detect_point *points, size_t n,
                     const struct detect_result *r)
{
    struct headroom headroom = headroom_of(pid);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer why = BUFFER_INIT(TEXT_MAX);
    detect_explain(r, &why);
    *s = (struct suspect){
        .pid = (uint64_t)pid,
        .uid = UINT32_MAX,
        .program = comm_of(pid),
        .ordinal = -1,
        .space = strdup("resident"),
        .verdict = r->verdict,
        .reason = strdup(detect_reason_word(r->reason)),
        .why = buffer_take(&why),
        .confidence = r->confidence,
        .bytes_per_s = r->bytes_per_s,
        .ever_freed = -1,
        .live_bytes = points[n - 1].alloc_bytes,
        .span_ns = r->span_ns,
        .growing_ns = r->since_ns ? points[n - 1].time_ns - r->since_ns : 0,
        .left_ns = UINT64_MAX,
        .n_spark = LEAK_SPARK,
        .resident = true,
    };
    for (unsigned i = 0; i < LEAK_SPARK; i++)
        s->spark[i] = points[(n - 1) * (i + 1) / LEAK_SPARK].alloc_bytes;
    if (r->verdict == DETECT_GROWING && r->bytes_per_s > 0 && headroom.kind != HEADROOM_UNKNOWN) {
        double left_ns = (double)headroom.bytes / r->bytes_per_s * (double)NS_PER_S;
        s->limit = strdup(headroom_word(headroom.kind));
        s->limit_bytes = headroom.limit_bytes;
        s->left_ns = left_ns < (double)UINT64_MAX / 2 ? (uint64_t)left_ns : UINT64_MAX;
    }
}

/* What of it grew, by an explanation before and after. */
static void row_name(struct suspect *s, const struct explain *before, uint64_t span_ns)
{
    static const char heap_advice[] =
        "start it with 'memoir run', or attach to it, to see which lines hold it";
    struct outside_verdict v;
    char *why = NULL;
    MEMOIR_CLEANUP(freep)
    struct explain *after = calloc(1, sizeof(*after));
    if (!after || !before->rss_bytes || s->verdict != DETECT_GROWING ||
        explain_take_apart((pid_t)s->pid, getuid(), OUTSIDE_EXPLAIN_MS, after) < 0)
        return;
    outside_compare(before, after, span_ns, &v);
    bool heap = v.heap_per_s * 2 > v.rss_per_s;
    const char *name = heap ? "heap of malloc" : v.name, *advice = heap ? heap_advice : v.advice;
    if (!*name || asprintf(&why, "%s Most of what grew is %s%s%s.", s->why ? s->why : "", name,
                           advice ? "; " : "", advice ? advice : "") < 0)
        return;
    s->site = strdup(name);
    free(s->why);
    s->why = why;
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
    row_fill(row, pid, points, n, &r);
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
