/* What is to be said of a process apart from its figures. */
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/sum.h"
#include "book/control.h"
#include "ledger/ledger.h"
#include "query/table_process.h"

enum { NOTES_MAX = 512 };

static const char *stop_reason(uint32_t reason)
{
    switch (reason) {
    case BOOK_STOP_ASKED:
        return "stopped because it was asked to";
    case BOOK_STOP_FULL:
        return "stopped: no room for its book";
    default:
        return "stopped, no reason told";
    }
}

void process_notes(const struct query_world *world, const struct query_row *row,
                   const struct query_field *field, struct query_value *ret)
{
    static _Thread_local char notes[NOTES_MAX];
    const struct ledger_process *p = row->process;
    uint64_t all = 0, asked = p->losses[BOOK_LOSS_SUSPENDED];
    for (size_t i = 0; i < BOOK_LOSSES_MAX; i++)
        sum_add(&all, p->losses[i]);
    uint64_t lost = all - asked;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(NOTES_MAX - 1);
    if (ledger_process_stopped(p))
        buffer_printf(&text, "; %s", stop_reason(p->stop_reason));
    if (lost)
        buffer_printf(&text, "; %llu report%s lost", (unsigned long long)lost,
                      lost == 1 ? "" : "s");
    if (asked)
        buffer_printf(&text, "; %llu uncounted while suspended", (unsigned long long)asked);
    if (p->left_out)
        buffer_printf(&text, "; %zu account%s left out", p->left_out, p->left_out == 1 ? "" : "s");
    if (p->foreign_ns)
        buffer_printf(&text, "; pid %d in its namespace", (int)p->book_pid);
    if (*p->host)
        buffer_printf(&text, "; on %s", p->host);
    if (!text.len)
        return;
    snprintf(notes, sizeof(notes), "%s", buffer_string(&text) + 2);
    query_set_text(ret, notes);
}

void process_watchers(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, struct query_value *ret)
{
    static _Thread_local char text[64];
    const struct ledger_process *p = row->process;
    pid_t pids[BOOK_WATCHERS] = {0};
    for (size_t i = 0; i < p->n_books; i++) {
        struct book_watcher watchers[BOOK_WATCHERS];
        if (ledger_book_watchers(world->ledger, p->books[i], watchers) < 0)
            continue;
        for (size_t k = 0; k < BOOK_WATCHERS; k++)
            if (watchers[k].flags & BOOK_CONTROL_WATCHED)
                pids[k] = watchers[k].pid;
    }
    text[0] = '\0';
    if (pids[BOOK_WATCHER_ROOT])
        snprintf(text, sizeof(text), "root:%d", (int)pids[BOOK_WATCHER_ROOT]);
    if (pids[BOOK_WATCHER_USER])
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%suser:%d", *text ? ", " : "",
                 (int)pids[BOOK_WATCHER_USER]);
    if (*text)
        query_set_text(ret, text);
}
