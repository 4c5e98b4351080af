/* What a refresh of the process table costs, as one JSON object: CPU milliseconds of each round.
 *
 * Usage: bench_proc_refresh ROUNDS PAUSE_MS [FILES_MAX [marks]]
 *
 * With `marks`, BPF tells whose memory changed, as in memoird. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/clock.h"
#include "bpf/tasks.h"
#include "ledger/host.h"

_Static_assert(sizeof(struct host_mark) == sizeof(struct task_mark), "one is taken for the other");

static int marks_read(void *context, const struct host_mark **ret_marks, size_t *ret_n)
{
    return tasks_read(context, (const struct task_mark **)ret_marks, ret_n);
}

/* It was asked for, so it has to work. */
static struct tasks *marks_start(struct host *host)
{
    struct tasks *tasks = NULL;
    char why[EXITS_WHY_MAX];
    if (tasks_open(&tasks, why) < 0)
        fprintf(stderr, "bench_proc_refresh: %s\n", why);
    else
        host_set_marks(host, marks_read, tasks);
    return tasks;
}

static uint64_t cpu_ns(void)
{
    return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

/* Processes whose memory, or any detail, this refresh read anew. */
static size_t count_changed(struct host *host, uint64_t *rss, size_t max)
{
    size_t n, changed = 0;
    struct host_process *const *rows = host_processes(host, &n);
    for (size_t i = 0; i < n; i++) {
        size_t at = (size_t)rows[i]->pid % max;
        changed += rss[at] != rows[i]->rss_bytes;
        rss[at] = rows[i]->rss_bytes;
    }
    return changed;
}

int main(int argc, char **argv)
{
    enum { PIDS = 1 << 22, FILES_WANTED = 65536 };
    int rounds = argc > 1 ? atoi(argv[1]) : 10, pause_ms = argc > 2 ? atoi(argv[2]) : 1000;
    /* As memoird does; only root may raise the second. */
    struct rlimit limit = {FILES_WANTED, FILES_WANTED};
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    struct host_options options = {.files_max = argc > 3 ? (size_t)atoi(argv[3]) : 0};
    uint64_t *rss = calloc(PIDS, sizeof(*rss));
    struct host *host;
    int r = rss ? host_new(&options, &host) : -1;
    bool with_marks = argc > 4 && strcmp(argv[4], "marks") == 0;
    struct tasks *tasks = r == 0 && with_marks ? marks_start(host) : NULL;
    if (with_marks && !tasks)
        return 1;
    uint64_t began = cpu_ns();
    if (r == 0)
        r = host_refresh(host);
    if (r < 0) {
        fprintf(stderr, "bench_proc_refresh: %s\n", strerror(-r));
        return 1;
    }
    size_t n;
    (void)host_processes(host, &n);
    printf("{\"processes\": %zu, \"first_ms\": %.4f, \"rounds\": [", n,
           (double)(cpu_ns() - began) / 1e6);
    count_changed(host, rss, PIDS);
    for (int i = 0; i < rounds; i++) {
        struct timespec pause = {pause_ms / 1000, pause_ms % 1000 * 1000000L};
        nanosleep(&pause, NULL);
        began = cpu_ns();
        r = host_refresh(host);
        uint64_t took = cpu_ns() - began;
        if (r < 0)
            return 1;
        printf("%s{\"ms\": %.4f, \"changed\": %zu}", i ? ", " : "", (double)took / 1e6,
               count_changed(host, rss, PIDS));
    }
    printf("]}\n");
    host_free(host);
    tasks_free(tasks);
    free(rss);
    return 0;
}
