/* Records of ended processes as rows and lines. */
#include "daemon/native_exited.h"

#include <errno.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/sum.h"
#include "daemon/cause.h"
#include "daemon/retired.h"
#include "daemon/users.h"
#include "query/query.h"
#include "query/retired_lines.h"

enum { LINE_MAX_BYTES = 4 << 20 };

typedef char cause_buffer[CAUSE_TEXT_MAX];

static const char *kind_of(struct cause cause)
{
    switch (cause.kind) {
    case CAUSE_EXITED:
        return "code";
    case CAUSE_KILLED:
        return cause.oom ? "oom" : "signal";
    case CAUSE_EXEC:
        return "exec";
    default:
        return "unknown";
    }
}

static const char *text_or_null(const char *text)
{
    return text[0] ? text : NULL;
}

static void row_fill(const struct retired_process *p, const struct users *users, char *cause,
                     struct query_exited *row)
{
    *row = (struct query_exited){
        .program = text_or_null(p->name),
        .command = text_or_null(p->command),
        .exe = text_or_null(p->exe),
        .user = users_name(users, p->uid),
        .node = text_or_null(p->host),
        .cause = cause_text(p->cause, cause),
        .kind = kind_of(p->cause),
        .core = p->cause.core,
        .oom = p->cause.oom,
        .cgroup = text_or_null(p->cgroup),
        .has_book = true,
        .has_exit = p->exit_seen,
        .parent = (uint64_t)p->parent,
        .peak_rss = p->peak_rss_bytes,
        .cpu_ns = p->cpu_ns,
        .pid = (uint64_t)(p->pid > 0 ? p->pid : p->book_pid),
        .uid = p->uid,
        .start_ns = p->start_realtime_ns,
        .end_ns = p->end_realtime_ns,
        .has_exit_code = p->cause.kind == CAUSE_EXITED,
        .has_signal = p->cause.kind == CAUSE_KILLED,
        .figures_incomplete = !p->figures_complete,
    };
    if (row->has_exit_code)
        row->exit_code = p->cause.value;
    if (row->has_signal)
        row->signal = p->cause.value;
    for (size_t i = 0; i < BOOK_LOSSES_MAX; i++)
        sum_add(&row->losses, p->losses[i]);
    for (size_t i = 0; i < p->n_accounts; i++) {
        const struct retired_account *a = &p->accounts[i];
        query_exited_add_account(row, a->space, a->totals.live_bytes, a->totals.live_blocks,
                                 a->totals.peak_bytes);
        query_exited_mark_account(row, a->space, a->sampled, a->partial);
    }
}

int native_exited_read(const struct retired *retired, const struct exit_file *file,
                       const struct users *users, struct query_exited_list *ret_exited)
{
    size_t n = retired_count(retired);
    MEMOIR_CLEANUP(freep)
    struct query_exited *rows = calloc(n ? n : 1, sizeof(*rows));
    MEMOIR_CLEANUP(freep)
    cause_buffer *causes = calloc(n ? n : 1, sizeof(*causes));
    if (!rows || !causes)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        row_fill(retired_get(retired, i), users, causes[i], &rows[i]);
    int r = query_exited_join(rows, n, file, ret_exited);
    if (r < 0)
        return r;
    ret_exited->file = MEMOIR_TAKE(causes); /* theirs are copied, ours borrowed */
    return 0;
}

int native_exited_lines_read(const struct retired_source *source, retired_line_fn *each,
                             void *context, size_t *ret_skipped)
{
    const struct native_exited_lines *lines = (const struct native_exited_lines *)source;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(LINE_MAX_BYTES);
    size_t n = retired_count(lines->retired);
    int r = 0;
    *ret_skipped = 0;
    for (size_t i = 0; i < n && r >= 0; i++) {
        const struct retired_process *process = retired_get(lines->retired, i);
        if (!process->n_blocks)
            continue;
        buffer_reset(&text);
        r = retired_json(process, &text);
        json_t *line = r < 0 ? NULL : retired_line_parse(text.data, text.len);
        *ret_skipped += !line;
        r = line ? each(line, context) : 0;
        json_decref(line);
    }
    return r < 0 ? r : 0;
}
