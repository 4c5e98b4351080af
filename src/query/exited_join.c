/* Two sources of one story: the books of the dead, and what the kernel told of each end.
 *
 * A process is the same when its pid is and it was started at the same time. A book knows that to a tick of
 * 10 ms, and both are told as times of day, which jump when the clock is set; a pid is not used again within
 * SAME_START_NS. An image that exec replaced has the same pid and start as the one that ended: it keeps its
 * own row and its own cause. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/hash.h"
#include "query/arena.h"
#include "query/exit_file.h"
#include "query/query.h"

#define SAME_START_NS NS_PER_S

struct join {
    struct query_exited_list list;
    struct arena texts;
    uint32_t *heads, *nexts; /* rows with books by pid; UINT32_MAX ends a chain */
    size_t mask;
    int error;
};

static const char *kind_of(int status, bool oom)
{
    return WIFEXITED(status) ? "code" : oom ? "oom" : "signal";
}

static void cause_set(struct join *join, struct query_exited *row, int status, bool oom)
{
    char text[EXIT_CAUSE_TEXT_MAX];
    exit_status_text(status, oom, text);
    row->cause = arena_text(&join->texts, text, strlen(text));
    if (!row->cause)
        join->error = -ENOMEM;
    row->kind = kind_of(status, oom);
    row->core = WIFSIGNALED(status) && WCOREDUMP(status);
    row->oom = oom;
    row->has_exit_code = WIFEXITED(status);
    row->exit_code = row->has_exit_code ? WEXITSTATUS(status) : 0;
    row->has_signal = WIFSIGNALED(status);
    row->signal = row->has_signal ? WTERMSIG(status) : 0;
}

static int index_rows(struct join *join, size_t n)
{
    size_t size = 64;
    while (size < 2 * n)
        size *= 2;
    join->mask = size - 1;
    join->heads = malloc(size * sizeof(*join->heads));
    join->nexts = malloc((n ? n : 1) * sizeof(*join->nexts));
    if (!join->heads || !join->nexts)
        return -ENOMEM;
    memset(join->heads, 0xff, size * sizeof(*join->heads));
    for (size_t i = 0; i < n; i++) {
        uint32_t *head = &join->heads[hash_mix(join->list.rows[i].pid) & join->mask];
        join->nexts[i] = *head;
        *head = (uint32_t)i;
    }
    return 0;
}

static struct query_exited *find(struct join *join, const struct exit_record *record)
{
    uint64_t pid = (uint64_t)(uint32_t)record->pid;
    for (uint32_t i = join->heads[hash_mix(pid) & join->mask]; i != UINT32_MAX;
         i = join->nexts[i]) {
        struct query_exited *row = &join->list.rows[i];
        uint64_t apart = row->start_ns > record->start_ns ? row->start_ns - record->start_ns
                                                          : record->start_ns - row->start_ns;
        bool image = row->kind && strcmp(row->kind, "exec") == 0;
        if (row->pid == pid && row->start_ns && apart < SAME_START_NS && !image)
            return row;
    }
    return NULL;
}

static void record_add(struct join *join, const struct exit_record *record)
{
    struct query_exited *row = find(join, record);
    if (!row) {
        row = &join->list.rows[join->list.n++];
        *row = (struct query_exited){
            .program = record->program,
            .pid = (uint64_t)(uint32_t)record->pid,
            .uid = record->uid,
            .start_ns = record->start_ns,
        };
    }
    row->has_exit = true;
    row->sequence = record->sequence;
    row->end_ns = record->end_ns;
    row->parent = (uint64_t)(uint32_t)record->parent;
    row->peak_rss = record->peak_bytes;
    row->peak_estimate = record->flags & EXIT_RECORD_PEAK_FORK;
    row->cpu_ns = record->cpu_ns;
    row->cgroup = record->cgroup;
    cause_set(join, row, record->status, record->flags & EXIT_RECORD_OOM);
}

static void sum_add_row(struct join *join, const struct exit_sum *sum)
{
    struct query_exited *row = &join->list.rows[join->list.n++];
    *row = (struct query_exited){
        .program = sum->program,
        .uid = sum->uid,
        .start_ns = sum->start_ns,
        .end_ns = sum->end_ns,
        .has_exit = true,
        .peak_rss = sum->peak_bytes,
        .peak_estimate = sum->flags & EXIT_RECORD_PEAK_FORK,
        .cpu_ns = sum->cpu_ns,
        .processes = sum->count,
        .lived_ns = sum->lived_ns,
    };
    cause_set(join, row, sum->status, sum->flags & EXIT_RECORD_OOM);
}

static int fill(struct join *join, const struct query_exited *rows, size_t n,
                const struct exit_file *file)
{
    size_t room = n + (file ? EXIT_FILE_SLOTS + EXIT_FILE_SUMS : 0);
    join->list.rows = malloc((room ? room : 1) * sizeof(*rows));
    if (!join->list.rows)
        return -ENOMEM;
    if (n)
        memcpy(join->list.rows, rows, n * sizeof(*rows));
    join->list.n = n;
    if (!file)
        return 0;
    int r = index_rows(join, n);
    if (r < 0)
        return r;
    for (size_t i = 0; i < EXIT_FILE_SLOTS; i++)
        if (file->records[i].sequence)
            record_add(join, &file->records[i]);
    for (size_t i = 0; i < EXIT_FILE_SUMS; i++)
        if (file->sums[i].count)
            sum_add_row(join, &file->sums[i]);
    return join->error;
}

int query_exited_join(const struct query_exited *rows, size_t n, const struct exit_file *file,
                      struct query_exited_list *ret_list)
{
    struct join join = {0};
    int r = n < UINT32_MAX ? fill(&join, rows, n, file) : -ENOMEM;
    free(join.heads);
    free(join.nexts);
    struct arena *texts = r == 0 ? malloc(sizeof(*texts)) : NULL;
    if (!texts) {
        arena_release(&join.texts);
        free(join.list.rows);
        return r < 0 ? r : -ENOMEM;
    }
    *texts = join.texts;
    *ret_list = join.list;
    ret_list->texts = texts;
    return 0;
}
