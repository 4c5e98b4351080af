/* Failed allocations, and who held what at that moment. See history.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "trace/history_internal.h"

enum { REPEAT_NS = 1000000 }; /* the same failure again within this is counted, not kept */

/* Keep the largest holders, largest first. */
static void holder_insert(struct trace_failure *f, const struct trace_holder *sums)
{
    uint32_t at = f->n_holders;
    while (at > 0 && f->holders[at - 1].bytes < sums->live_bytes)
        at--;
    if (at == TRACE_FAILURE_HOLDERS)
        return;
    if (f->n_holders < TRACE_FAILURE_HOLDERS)
        f->n_holders++;
    memmove(f->holders + at + 1, f->holders + at, (f->n_holders - 1 - at) * sizeof(f->holders[0]));
    f->holders[at] = (struct trace_failure_holder){
        .site = sums->site,
        .space = sums->space,
        .class = sums->class,
        .bytes = sums->live_bytes,
        .blocks = sums->live_blocks,
    };
}

static void snapshot(const struct trace_history *h, struct trace_failure *f)
{
    bool of_device = space_of_device(f->space);
    for (uint32_t i = 1; i < h->holders.holders.n; i++) {
        const struct trace_holder *sums = &holders_get(&h->holders, i)->sums;
        if (sums->live_bytes == 0 || sums->class != TRACE_CLASS_OWN ||
            space_of_device(sums->space) != of_device ||
            (of_device && f->device >= 0 && sums->device != f->device))
            continue;
        f->held_bytes += sums->live_bytes;
        f->held_blocks += sums->live_blocks;
        holder_insert(f, sums);
    }
}

void history_failed(struct trace_history *h, const struct trace_event *e)
{
    uint32_t number = holders_number(&h->holders, e->site, e->device, e->space, TRACE_CLASS_OWN);
    struct trace_holder *sums = &holders_get(&h->holders, number)->sums;
    sums->failures++;
    sum_add(&sums->failed_bytes, e->size);
    h->totals.failures++;
    struct trace_failure *last =
        h->n_failures ? h->failures[h->n_failures % TRACE_FAILURES_MAX] : NULL;
    if (last && last->site == e->site && last->device == e->device && last->result == e->result &&
        last->size == e->size && h->now_ns - last->time_ns < REPEAT_NS) {
        last->repeats++;
        return;
    }
    struct trace_failure **place = &h->failures[(h->n_failures + 1) % TRACE_FAILURES_MAX];
    if (!*place)
        *place = malloc(sizeof(**place));
    if (!*place)
        return; /* `failures` counts it */
    **place = (struct trace_failure){
        .number = ++h->n_failures,
        .time_ns = h->now_ns,
        .size = e->size,
        .call = e->call,
        .site = e->site,
        .result = e->result,
        .device = e->device,
        .tid = e->tid,
        .function = e->function,
        .space = e->space,
        .out_of_memory = e->result == TRACE_RESULT_OUT_OF_MEMORY,
    };
    h->failure_told = false;
    if ((*place)->out_of_memory)
        snapshot(h, *place);
}

int trace_history_failure_context(struct trace_history *h, uint64_t capacity_bytes,
                                  uint64_t used_bytes, const struct trace_failure_other *others,
                                  size_t n)
{
    history_enter(h);
    struct trace_failure *f =
        h->n_failures && !h->failure_told ? h->failures[h->n_failures % TRACE_FAILURES_MAX] : NULL;
    if (f) {
        f->capacity_bytes = capacity_bytes;
        f->used_bytes = used_bytes;
        f->n_others = (uint32_t)(n < TRACE_FAILURE_OTHERS ? n : TRACE_FAILURE_OTHERS);
        memcpy(f->others, others, f->n_others * sizeof(*others));
        for (uint32_t i = 0; i < f->n_others; i++)
            f->others[i].name[TRACE_NAME_MAX - 1] = '\0';
        h->failure_told = true;
    }
    history_leave(h);
    return f ? 0 : -ENOENT;
}

size_t trace_history_failures(struct trace_history *h, struct trace_failure *failures, size_t n)
{
    size_t stored = 0;
    history_enter(h);
    uint64_t kept = h->n_failures < TRACE_FAILURES_MAX ? h->n_failures : TRACE_FAILURES_MAX;
    for (uint64_t number = h->n_failures - (kept < n ? kept : n) + 1; number <= h->n_failures;
         number++)
        if (h->failures[number % TRACE_FAILURES_MAX])
            failures[stored++] = *h->failures[number % TRACE_FAILURES_MAX];
    history_leave(h);
    return stored;
}
