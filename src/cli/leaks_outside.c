/* See leaks_outside.h. */
#include "cli/leaks_outside.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "cli/term.h"
#include "explain/outside.h"
#include "profile/suspects.h"

enum { LINE_BYTES_MAX = 4096 };

struct leaks_outside {
    struct outside watch; /* the thread's, until it has ended */
    atomic_bool stop;
    pthread_t thread;
};

static void *thread_run(void *context)
{
    struct leaks_outside *o = context;
    while (!atomic_load(&o->stop) && outside_look(&o->watch, clock_monotonic_ns()) == 0)
        nanosleep(&(struct timespec){.tv_nsec = OUTSIDE_INTERVAL_NS}, NULL);
    return NULL;
}

struct leaks_outside *leaks_outside_start(pid_t pid, uint64_t needs_ns)
{
    struct leaks_outside *o = pid > 0 ? calloc(1, sizeof(*o)) : NULL;
    if (!o)
        return NULL;
    outside_init(&o->watch, pid, clock_monotonic_ns());
    o->watch.needs_ns = needs_ns;
    if (pthread_create(&o->thread, NULL, thread_run, o) != 0) {
        free(o);
        return NULL;
    }
    return o;
}

void leaks_outside_name(struct suspects *suspects)
{
    MEMOIR_CLEANUP(freep)
    struct explain *e = calloc(1, sizeof(*e));
    for (size_t i = 0; e && i < suspects->n; i++) {
        struct suspect *s = &suspects->rows[i];
        if (s->outside && !s->site && s->pid &&
            explain_take_apart((pid_t)s->pid, getuid(), OUTSIDE_EXPLAIN_MS, e) == 0)
            outside_name(e, s);
    }
}

void leaks_outside_tell(struct leaks_outside *o)
{
    struct outside_verdict verdict;
    if (!o)
        return;
    atomic_store(&o->stop, true);
    pthread_join(o->thread, NULL);
    outside_judge(&o->watch, &verdict);
    if (verdict.grows) {
        struct term term;
        MEMOIR_CLEANUP(buffer_release)
        struct buffer text = BUFFER_INIT(LINE_BYTES_MAX), line = BUFFER_INIT(LINE_BYTES_MAX);
        term_init(&term, STDERR_FILENO, TERM_COLOR_NEVER);
        outside_tell(&verdict, &text);
        buffer_append_str(&line, "memoir: ");
        term_append(&term, &line, buffer_string(&text), 0);
        buffer_append_char(&line, '\n');
        fs_write_all(STDERR_FILENO, buffer_string(&line), line.len);
        buffer_release(&text);
    }
    outside_release(&o->watch);
    free(o);
}
