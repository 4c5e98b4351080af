/* Leaks that were found, and how each went on. See leak_log.h. */
#include "daemon/leak_log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ledger/leaks.h"
#include "ledger/ledger.h"

struct leak_log {
    struct leak_entry entries[LEAK_LOG_MAX];
    size_t n;
};

int leak_log_new(struct leak_log **ret_log)
{
    struct leak_log *log = calloc(1, sizeof(*log));
    if (!log)
        return -ENOMEM;
    *ret_log = log;
    return 0;
}

void leak_log_free(struct leak_log *log)
{
    free(log);
}

const struct leak_entry *leak_log_entries(const struct leak_log *log, size_t *ret_n)
{
    *ret_n = log ? log->n : 0;
    return log ? log->entries : NULL;
}

static struct leak_entry *find(struct leak_log *log, const struct leak *leak)
{
    for (size_t i = 0; i < log->n; i++) {
        struct leak_entry *e = &log->entries[i];
        if (e->site == leak->site && e->ino == leak->book->identity->st_ino &&
            e->dev == leak->book->identity->st_dev)
            return e;
    }
    return NULL;
}

/* The one that was last seen longest ago, among those that have stopped where there are such. */
static struct leak_entry *place(struct leak_log *log)
{
    if (log->n < LEAK_LOG_MAX)
        return &log->entries[log->n++];
    struct leak_entry *oldest = &log->entries[0];
    for (size_t i = 1; i < log->n; i++) {
        struct leak_entry *e = &log->entries[i];
        bool stopped = leak_entry_stopped(e), other = leak_entry_stopped(oldest);
        if (stopped != other ? stopped : e->last_ns < oldest->last_ns)
            oldest = e;
    }
    return oldest;
}

static void begin(struct leak_entry *e, const struct leak *leak, uint64_t now_real_ns)
{
    const struct ledger_process *p = leak->process;
    const char *frame = leak->frame ? strrchr(leak->frame, '/') : NULL;
    frame = frame ? frame + 1 : leak->frame ? leak->frame : "";
    *e = (struct leak_entry){
        .dev = leak->book->identity->st_dev,
        .ino = leak->book->identity->st_ino,
        .site = leak->site,
        .pid = p->valid & LEDGER_HAS_PID ? p->pid : p->book_pid,
        .uid = p->uid,
        .found_ns = now_real_ns,
    };
    snprintf(e->program, sizeof(e->program), "%s", p->name);
    snprintf(e->frame, sizeof(e->frame), "%s", frame);
}

void leak_log_look(struct leak_log *log, const struct leaks *leaks, uint64_t now_real_ns,
                   bool (*has_book)(uint64_t dev, uint64_t ino, void *context),
                   void (*found)(const struct leak_entry *entry, size_t row, void *context),
                   void *context)
{
    for (size_t i = 0; i < leaks->n; i++) {
        const struct leak *leak = &leaks->rows[i];
        if (leak->result.verdict != DETECT_LEAK)
            continue;
        struct leak_entry *e = find(log, leak);
        bool known = e != NULL;
        if (!known) {
            e = place(log);
            begin(e, leak, now_real_ns);
        }
        e->last_ns = now_real_ns;
        e->live_bytes = leak->live_bytes;
        e->quiet = 0;
        e->ended = false;
        if (!known && found)
            found(e, i, context);
    }
    for (size_t i = 0; i < log->n; i++) {
        struct leak_entry *e = &log->entries[i];
        if (e->last_ns == now_real_ns || e->ended)
            continue;
        e->ended = !has_book(e->dev, e->ino, context);
        if (!leaks->incomplete && e->quiet < LEAK_LOG_QUIET_LOOKS)
            e->quiet++;
    }
}
