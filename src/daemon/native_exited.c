/* Records of the dead as rows. */
#include "daemon/native_exited.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/sum.h"
#include "daemon/cause.h"
#include "daemon/retired.h"
#include "daemon/users.h"
#include "query/query.h"

static_assert(sizeof(((struct native_exited *)0)->causes[0]) == CAUSE_TEXT_MAX, "text of a cause");

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

int native_exited_read(const struct retired *retired, const struct users *users,
                       struct native_exited *ret_exited)
{
    size_t n = retired_count(retired);
    struct native_exited exited = {
        .rows = calloc(n ? n : 1, sizeof(*exited.rows)),
        .n = n,
        .causes = calloc(n ? n : 1, sizeof(*exited.causes)),
    };
    if (!exited.rows || !exited.causes) {
        native_exited_release(&exited);
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++)
        row_fill(retired_get(retired, i), users, exited.causes[i], &exited.rows[i]);
    *ret_exited = exited;
    return 0;
}

void native_exited_release(struct native_exited *exited)
{
    free(exited->rows);
    free(exited->causes);
    *exited = (struct native_exited){0};
}
