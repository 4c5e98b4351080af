/* See events.h. */
#include "daemon/events.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/sum.h"
#include "base/units.h"
#include "daemon/asking.h"
#include "daemon/retired.h"
#include "ledger/ledger.h"
#include "query/exit_file.h"
#include "query/query.h"

struct events {
    struct event ring[EVENTS_KEPT];
    uint64_t first_id, next_id; /* of this run */
    uint64_t left_out;
    double tokens; /* of what is not important */
    uint64_t tokens_ns;
    void (*heard)(const struct event *event, void *context);
    void *context;
};

int events_new(struct events **ret_events)
{
    struct events *events = calloc(1, sizeof(*events));
    if (!events)
        return -ENOMEM;
    /* Milliseconds since 1970: a daemon that follows begins with a larger one, and a page's numbers hold it. */
    events->first_id = events->next_id = clock_real_ns() / NS_PER_MS;
    events->tokens = EVENTS_AT_ONCE;
    events->tokens_ns = clock_monotonic_ns();
    *ret_events = events;
    return 0;
}

void events_free(struct events *events)
{
    free(events);
}

void events_listen(struct events *events, void (*heard)(const struct event *event, void *context),
                   void *context)
{
    events->heard = heard;
    events->context = context;
}

/* ---- adding ---- */

static bool is_ordinary(enum event_kind kind)
{
    return kind == EVENT_CAME || kind == EVENT_WENT || kind == EVENT_KILLED;
}

static bool token_take(struct events *events)
{
    uint64_t now_ns = clock_monotonic_ns();
    events->tokens += (double)(now_ns - events->tokens_ns) / (double)NS_PER_S * EVENTS_PER_SECOND;
    if (events->tokens > EVENTS_AT_ONCE)
        events->tokens = EVENTS_AT_ONCE;
    events->tokens_ns = now_ns;
    if (events->tokens < 1)
        return false;
    events->tokens -= 1;
    return true;
}

uint64_t events_add(struct events *events, const struct event *event)
{
    if (!events)
        return 0;
    if (is_ordinary(event->kind) && !token_take(events)) {
        events->left_out++;
        return 0;
    }
    uint64_t id = events->next_id++;
    struct event *kept = &events->ring[id % EVENTS_KEPT];
    *kept = *event;
    kept->id = id;
    kept->real_ns = clock_real_ns();
    if (events->heard)
        events->heard(kept, events->context);
    return id;
}

static void copy(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from);
}

void events_process_came(struct events *events, const struct ledger_process *p)
{
    if (!events)
        return;
    struct event event = {
        .kind = EVENT_CAME,
        .pid = p->valid & LEDGER_HAS_PID ? p->pid : p->book_pid,
        .uid = p->uid,
    };
    copy(event.program, sizeof(event.program), p->name);
    snprintf(event.text, sizeof(event.text), "%s (PID %d) keeps a book", p->name, (int)event.pid);
    events_add(events, &event);
}

/* How a user, a terminal or a pipe ends a program in the ordinary course of things. */
static bool ends_ordinarily(int signal)
{
    return signal == SIGINT || signal == SIGHUP || signal == SIGPIPE;
}

void events_process_went(struct events *events, const struct retired_process *p, const char *line)
{
    if (!events)
        return;
    struct event event = {
        .kind = p->cause.kind != CAUSE_KILLED     ? EVENT_WENT
                : p->cause.oom                    ? EVENT_OOM
                : ends_ordinarily(p->cause.value) ? EVENT_WENT
                                                  : EVENT_KILLED,
        .pid = p->pid > 0 ? p->pid : p->book_pid,
        .uid = p->uid,
        .has_bytes = true,
    };
    for (size_t i = 0; i < p->n_accounts; i++)
        if (ledger_space_adds(p->accounts[i].space))
            sum_add(&event.bytes, p->accounts[i].totals.live_bytes);
    copy(event.program, sizeof(event.program), p->name);
    copy(event.text, sizeof(event.text), line);
    events_add(events, &event);
}

/* Only those that did not end by themselves, or by their user's hand, are news: `memoir exited` has all. */
void events_process_ended(struct events *events, const struct exit_record *exit)
{
    bool oom = exit->flags & EXIT_RECORD_OOM;
    char cause[EXIT_CAUSE_TEXT_MAX], peak[UNITS_TEXT_MAX];
    if (!events ||
        (!oom && (!WIFSIGNALED(exit->status) || ends_ordinarily(WTERMSIG(exit->status)))))
        return;
    struct event event = {
        .kind = oom ? EVENT_OOM : EVENT_KILLED,
        .pid = exit->pid,
        .uid = exit->uid,
        .has_bytes = exit->peak_bytes > 0,
        .bytes = exit->peak_bytes,
    };
    copy(event.program, sizeof(event.program), exit->program);
    snprintf(event.text, sizeof(event.text), "%s (PID %d): %s; had %s at most", exit->program,
             exit->pid, exit_status_text(exit->status, oom, cause),
             units_format_bytes(peak, exit->peak_bytes, UNITS_DECIMAL));
    events_add(events, &event);
}

/* ---- reading ---- */

bool event_visible(const struct event *event, const struct asking_viewer *viewer)
{
    return !event->is_private || event_detailed(event, viewer);
}

bool event_detailed(const struct event *event, const struct asking_viewer *viewer)
{
    bool of_process = event->pid != 0 || event->is_private;
    return !of_process || query_may_see(viewer->sees_all, viewer->uid, event->uid);
}

size_t events_read(const struct events *events, const struct asking_viewer *viewer, uint64_t after,
                   const struct event **ret_events, size_t limit)
{
    uint64_t oldest = events->next_id - events->first_id > EVENTS_KEPT
                          ? events->next_id - EVENTS_KEPT
                          : events->first_id;
    size_t n = 0;
    /* From the last one back, and then the other way round. */
    for (uint64_t id = events->next_id; id > oldest && id - 1 > after && n < limit; id--) {
        const struct event *event = &events->ring[(id - 1) % EVENTS_KEPT];
        if (event_visible(event, viewer))
            ret_events[n++] = event;
    }
    for (size_t i = 0; i < n / 2; i++) {
        const struct event *event = ret_events[i];
        ret_events[i] = ret_events[n - 1 - i];
        ret_events[n - 1 - i] = event;
    }
    return n;
}

uint64_t events_last(const struct events *events)
{
    return events->next_id > events->first_id ? events->next_id - 1 : 0;
}

uint64_t events_left_out(const struct events *events)
{
    return events->left_out;
}

const char *event_kind_name(enum event_kind kind)
{
    static const char *const names[EVENT_KINDS] = {
        [EVENT_CAME] = "came",         [EVENT_WENT] = "went", [EVENT_KILLED] = "killed",
        [EVENT_OOM] = "oom",           [EVENT_LEAK] = "leak", [EVENT_DEVICE] = "device",
        [EVENT_TRACKING] = "tracking",
    };
    return names[kind];
}

struct event event_reduced(const struct event *event)
{
    struct event reduced = *event;
    bool ended = event->kind == EVENT_KILLED || event->kind == EVENT_OOM;
    reduced.kind = ended ? EVENT_WENT : event->kind;
    reduced.program[0] = '\0';
    snprintf(reduced.text, sizeof(reduced.text), "PID %d of uid %u %s", (int)event->pid,
             (unsigned)event->uid,
             reduced.kind == EVENT_CAME   ? "keeps a book"
             : reduced.kind == EVENT_WENT ? "ended"
                                          : "changed");
    return reduced;
}
