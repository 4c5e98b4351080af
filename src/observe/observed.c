/* A traced process: what records do to its book and its history. See observed.h. */
#include "observe/observed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memoir/memoir.h>

#include "base/clock.h"
#include "base/log.h"
#include "ledger/proc.h"
#include "observe/kernel.h"
#include "observe/observed_internal.h"
#include "observe/probe_table.h"
#include "trace/stream.h"

/* ---- life ---- */

static void identity_fill(const struct observed *o, struct trace_identity *ret_identity)
{
    struct proc_stat stat = {0};
    proc_stat_read(o->pid, &stat);
    *ret_identity = (struct trace_identity){
        .pid = o->pid,
        .uid = o->uid,
        .start_ticks = stat.start_ticks,
        .start_ns = clock_monotonic_ns(),
        .start_real_ns = clock_real_ns(),
    };
    char comm[PROC_COMM_MAX];
    if (proc_comm_read(o->pid, comm) == 0)
        snprintf(ret_identity->name, sizeof(ret_identity->name), "%s", comm);
}

int observed_new(const struct observed_options *options, pid_t pid,
                 const struct wire_process *process, struct observed **ret_observed)
{
    struct trace_identity identity;
    struct observed *o = calloc(1, sizeof(*o));
    if (!o)
        return -ENOMEM;
    o->options = *options;
    o->pid = pid;
    o->uid = process->uid;
    o->generation = process->generation;
    o->start_ns = process->start_ns;
    identity_fill(o, &identity);
    int r = trace_history_new(&identity, NULL, &o->history);
    if (r < 0) {
        free(o);
        return r;
    }
    if (!options->no_book) {
        r = observed_book_open(o);
        if (r < 0)
            log_warn("cannot make a book for process %d (%s): %s, only its history is kept", pid,
                     identity.name, strerror(-r));
    }
    r = stack_process_new(options->stacks, pid, &o->stacks);
    if (r < 0)
        log_info("call sites of process %d (%s) cannot be told: %s", pid, identity.name,
                 strerror(-r));
    observed_python_follow(o);
    observed_use_wanted(o);
    if (options->stream)
        trace_stream_process(options->stream, &identity);
    *ret_observed = o;
    return 0;
}

void observed_free(struct observed *o, bool leave)
{
    if (!o)
        return;
    process_book_close(&o->book, leave ? PROCESS_BOOK_STAYS : PROCESS_BOOK_GOES);
    trace_history_free(o->history);
    live_release(&o->live);
    observed_sites_release(o);
    stack_process_free(o->stacks);
    free(o);
}

pid_t observed_pid(const struct observed *o)
{
    return o->pid;
}

uint32_t observed_uid(const struct observed *o)
{
    return o->uid;
}

uint32_t observed_generation(const struct observed *o)
{
    return o->generation;
}

bool *observed_look_due(struct observed *o)
{
    return &o->look_due;
}

struct trace_history *observed_history(struct observed *o)
{
    return o->history;
}

/* ---- events ---- */

static int32_t device_of(const struct observed *o, uint64_t context)
{
    for (size_t i = 0; i < o->n_contexts; i++)
        if (o->contexts[i].context == context)
            return o->contexts[i].device;
    return -1;
}

static void context_made(struct observed *o, uint64_t context, int32_t device)
{
    for (size_t i = 0; i < o->n_contexts; i++)
        if (o->contexts[i].context == context) {
            o->contexts[i].device = device;
            return;
        }
    if (o->n_contexts < OBSERVED_CONTEXTS_MAX)
        o->contexts[o->n_contexts++] = (struct observed_context){context, device};
    else /* the oldest have most likely ended */
        o->contexts[o->next_context++ % OBSERVED_CONTEXTS_MAX] =
            (struct observed_context){context, device};
}

void observed_tell(struct observed *o, const struct trace_event *event)
{
    trace_history_event(o->history, event);
    if (o->options.stream)
        trace_stream_event(o->options.stream, event);
}

/* enum trace_flags of a block. */
static uint32_t block_flags(uint8_t class, uint8_t flags)
{
    return (flags & WIRE_FUNCTION_ASYNC ? TRACE_FLAG_ASYNC : 0) |
           (flags & WIRE_FUNCTION_POOL ? TRACE_FLAG_POOL : 0) |
           (flags & WIRE_FUNCTION_SHARED ? TRACE_FLAG_SHARED : 0) |
           (class == WIRE_REGISTERED ? TRACE_FLAG_REGISTERED : 0) |
           (class == WIRE_MAPPING ? TRACE_FLAG_VIRTUAL : 0) |
           (class == WIRE_GRAPH ? TRACE_FLAG_GRAPH : 0) |
           (class == WIRE_HANDLE || class == WIRE_ARRAY ? TRACE_FLAG_HANDLE : 0);
}

/* A mapping's context is its handle, that of memory of a graph the group that it belongs to. */
static int32_t event_device(const struct observed *o, const struct wire_event *w)
{
    if (w->class == WIRE_MAPPING)
        return -1;
    return device_of(o, w->class == WIRE_GRAPH ? w->source : w->context);
}

static void event_begin(const struct observed *o, const struct wire_event *w, uint16_t kind,
                        struct trace_event *e)
{
    *e = (struct trace_event){
        .time_ns = w->time_ns,
        .address = w->address,
        .size = w->size,
        .source = w->class == WIRE_GRAPH ? 0 : w->source,
        .call = w->call,
        .context = w->class == WIRE_HANDLE ? 0 : w->context, /* physical memory outlives contexts */
        .pid = o->pid,
        .tid = (int32_t)w->tid,
        .kind = kind,
        .function = w->function,
        .result = w->result,
        .device = event_device(o, w),
        .space = w->space,
        .direction = w->direction,
    };
}

static uint8_t function_flags(uint16_t function)
{
    const struct probe_function *f = probe_function_get(function);
    return f ? f->wire.flags : 0;
}

static struct live_block *freed_slot(struct observed *o, uint8_t class, uint64_t address)
{
    return &o->freed[(address >> 9 ^ address >> 21 ^ class) % OBSERVED_FREED];
}

static void block_end(struct observed *o, struct live_block *block)
{
    observed_book_free(o, block);
    o->changes++;
    *freed_slot(o, block->class, block->address) = *block;
    live_remove(&o->live, block);
}

static void block_begin(struct observed *o, const struct trace_event *e, uint8_t class,
                        uint8_t flags)
{
    struct live_block *old = live_get(&o->live, class, e->address);
    if (old)
        block_end(o, old);
    struct live_block *block = live_add(&o->live, class, e->address);
    if (!block)
        return;
    block->size = e->size ? e->size : 1;
    block->context = e->context;
    block->time_ns = e->time_ns;
    block->site = e->site;
    block->space = e->space;
    block->flags = flags;
    block->device = e->device;
    block->account = observed_account(o, class, e->space, flags, e->device);
    block->seen = true;
    o->changes++;
    observed_book_alloc(o, block);
}

static void on_alloc(struct observed *o, const struct wire_event *w)
{
    struct trace_event e;
    uint8_t flags = function_flags(w->function);
    event_begin(o, w, TRACE_ALLOC, &e);
    e.site = observed_site_of(o, w);
    e.flags = block_flags(w->class, flags);
    if (!(w->flags & WIRE_EVENT_UNKEPT))
        block_begin(o, &e, w->class, flags);
    observed_tell(o, &e);
}

static void on_free(struct observed *o, const struct wire_event *w)
{
    struct trace_event e;
    event_begin(o, w, TRACE_FREE, &e);
    struct live_block *block = live_get(&o->live, w->class, w->address);
    uint8_t flags = block ? block->flags : 0;
    e.flags = block_flags(w->class, flags);
    if (block)
        block_end(o, block);
    observed_tell(o, &e);
}

static void on_restore(struct observed *o, const struct wire_event *w)
{
    struct trace_event e;
    event_begin(o, w, TRACE_RESTORE, &e);
    const struct live_block *freed = freed_slot(o, w->class, w->address);
    bool known = freed->address == w->address && freed->class == w->class && freed->size;
    uint8_t flags = known ? freed->flags : 0;
    e.site = known ? freed->site : 0;
    e.flags = block_flags(w->class, flags);
    block_begin(o, &e, w->class, flags);
    observed_tell(o, &e);
}

/* ---- copies ---- */

static bool is_device(const struct live_block *block)
{
    return block && (block->space >= MEMOIR_SPACE_DRAM || block->class == WIRE_MAPPING);
}

/* Of a copy whose call does not say: by what is known of its two sides. */
static uint8_t direction_of(const struct live_block *to, const struct live_block *from)
{
    if (is_device(to))
        return is_device(from) ? TRACE_ON_DEVICE : TRACE_TO_DEVICE;
    if (is_device(from))
        return TRACE_FROM_DEVICE;
    return to || from ? TRACE_ON_HOST : TRACE_DIRECTION_UNKNOWN;
}

static void on_copy(struct observed *o, const struct wire_event *w)
{
    struct trace_event e;
    event_begin(o, w, TRACE_COPY, &e);
    e.site = observed_site_of(o, w);
    const struct live_block *to = w->address ? live_at(&o->live, w->address) : NULL;
    const struct live_block *from = w->source ? live_at(&o->live, w->source) : NULL;
    if (e.direction == TRACE_DIRECTION_UNKNOWN)
        e.direction = direction_of(to, from);
    /* A host side in no block that was pinned or registered. */
    const struct live_block *host = e.direction == TRACE_TO_DEVICE ? from : to;
    bool crosses = e.direction == TRACE_TO_DEVICE || e.direction == TRACE_FROM_DEVICE;
    e.flags = (w->async ? TRACE_FLAG_ASYNC : 0) | (crosses && !host ? TRACE_FLAG_PAGEABLE : 0);
    if (crosses)
        observed_faults_of(o, e.direction == TRACE_TO_DEVICE ? w->source : w->address, w->size,
                           w->time_ns);
    if (to)
        observed_book_transfer(o, to, w->size, true, w->time_ns);
    if (from)
        observed_book_transfer(o, from, w->size, false, w->time_ns);
    observed_tell(o, &e);
}

/* ---- contexts ---- */

struct reset {
    struct observed *o;
    uint64_t context;
};

static void block_reset(void *context, struct live_block *block)
{
    const struct reset *r = context;
    if (block->context == r->context && block->class != WIRE_MAPPING && block->class != WIRE_HANDLE)
        block_end(r->o, block);
}

static void on_reset(struct observed *o, const struct wire_event *w)
{
    struct trace_event e;
    struct reset r = {o, w->context};
    live_each(&o->live, block_reset, &r);
    observed_use_ended(o, device_of(o, w->context));
    event_begin(o, w, TRACE_RESET, &e);
    observed_tell(o, &e);
}

static void on_other(struct observed *o, const struct wire_event *w)
{
    struct trace_event e;
    event_begin(o, w, w->kind, &e);
    if (w->kind == TRACE_FAILED)
        e.site = observed_site_of(o, w);
    observed_tell(o, &e);
}

void observed_copy(struct observed *o, const struct wire_copy *c)
{
    const struct wire_event w = {
        .record = WIRE_RECORD_EVENT,
        .kind = TRACE_COPY,
        .pid = c->pid,
        .tid = c->tid,
        .generation = c->generation,
        .time_ns = c->time_ns,
        .address = c->address,
        .size = c->size,
        .source = c->source,
        .call = c->call,
        .context = c->context,
        .site = c->site,
        .function = c->function,
        .device = -1,
        .direction = c->direction,
        .async = c->async,
        .has_stack = c->has_stack,
    };
    on_copy(o, &w);
}

void observed_event(struct observed *o, const struct wire_event *w)
{
    if (w->class == WIRE_SYSTEM) {
        observed_system_event(o, w);
        return;
    }
    switch (w->kind) {
    case TRACE_ALLOC:
        on_alloc(o, w);
        break;
    case TRACE_FREE:
        on_free(o, w);
        break;
    case TRACE_RESTORE:
        on_restore(o, w);
        break;
    case TRACE_RESET:
        on_reset(o, w);
        break;
    case TRACE_FAILED:
    case TRACE_SET:
    case TRACE_PREFETCH:
        on_other(o, w);
        break;
    case TRACE_NONE:
        observed_python_follow(o);
        if (w->flags & WIRE_EVENT_UUID)
            observed_device_uuid(o, w->device, w->uuid);
        else if (w->context) {
            context_made(o, w->context, w->device);
            observed_use_wanted(o);
        }
        break;
    default:
        break;
    }
}

/* Nothing more is heard of it. */
static void close_with(struct observed *o, enum process_book_end end)
{
    if (o->options.stream)
        trace_stream_ended(o->options.stream, o->pid);
    process_book_close(&o->book, end);
    live_release(&o->live);
    stack_process_free(o->stacks);
    o->stacks = NULL;
}

void observed_exit(struct observed *o)
{
    struct trace_event e = {
        .time_ns = clock_monotonic_ns(), .kind = TRACE_EXIT, .pid = o->pid, .device = -1};
    observed_tell(o, &e);
    close_with(o, o->options.keep_ended ? PROCESS_BOOK_CLOSED : PROCESS_BOOK_GOES);
}

void observed_off(struct observed *o)
{
    close_with(o, PROCESS_BOOK_GOES);
}

/* ---- losses ---- */

bool observed_losses(struct observed *o, const struct wire_process *process)
{
    uint64_t lost = process->lost_events - o->lost_events;
    bool blocks = process->lost_blocks != o->lost_blocks;
    if (lost) {
        struct trace_event e = {.time_ns = clock_monotonic_ns(),
                                .kind = TRACE_GAP,
                                .size = lost,
                                .pid = o->pid,
                                .device = -1};
        observed_tell(o, &e);
    }
    if (o->book.w && blocks)
        o->book.w->header->losses[BOOK_LOSS_LIMIT] += process->lost_blocks - o->lost_blocks;
    o->lost_events = process->lost_events;
    o->lost_blocks = process->lost_blocks;
    if (lost)
        o->drained = false;
    o->stale |= lost > 0;
    return lost > 0;
}

bool observed_compare_due(struct observed *o)
{
    if (!o->stale)
        return false;
    bool due = o->drained && clock_monotonic_ns() - o->compared_ns >= NS_PER_S;
    o->drained = true;
    return due;
}

bool observed_compares(const struct observed *o)
{
    return o->compares;
}

void observed_compare_context(struct observed *o, const struct wire_context_key *key,
                              const struct wire_context *value)
{
    if (key->generation == o->generation && value->device >= 0)
        context_made(o, key->context, value->device);
}

void observed_compare_block(struct observed *o, const struct wire_key *key,
                            const struct wire_block *value)
{
    uint8_t class = (uint8_t)key->class_generation;
    if (key->pid != (uint32_t)o->pid || key->class_generation >> 8 != (o->generation & 0xffffff) ||
        kernel_block_stale(o->options.kernel, key, value))
        return;
    uint32_t site = kernel_site_number(o->options.kernel, value->site);
    struct live_block *block = live_get(&o->live, class, key->address);
    if (block && block->time_ns >= value->time_ns) {
        block->seen = true;
        return;
    }
    struct trace_event e = {
        .time_ns = clock_monotonic_ns(),
        .address = key->address,
        .size = value->size,
        .call = value->call,
        .context = class == WIRE_HANDLE ? 0 : value->context,
        .pid = o->pid,
        .site = site <= o->n_sites ? site : 0,
        .kind = TRACE_FOUND,
        .function = value->function,
        .device = class == WIRE_MAPPING ? -1 : device_of(o, value->context),
        .flags = block_flags(class, value->flags),
        .space = value->space,
    };
    block_begin(o, &e, class, value->flags);
    observed_tell(o, &e);
}

static void unseen_set(void *context, struct live_block *block)
{
    block->seen = false;
}

static void unseen_end(void *context, struct live_block *block)
{
    struct observed *o = context;
    if (block->seen)
        return;
    struct trace_event e = {
        .time_ns = clock_monotonic_ns(),
        .address = block->address,
        .size = block->size,
        .context = block->context,
        .pid = o->pid,
        .kind = TRACE_FREE,
        .device = block->device,
        .flags = block_flags(block->class, block->flags),
        .space = block->space,
    };
    block_end(o, block);
    observed_tell(o, &e);
}

void observed_compare_begin(struct observed *o)
{
    o->compares = true;
    o->stale = o->drained = false;
    live_each(&o->live, unseen_set, NULL);
}

void observed_compare_end(struct observed *o, bool whole)
{
    if (whole)
        live_each(&o->live, unseen_end, o);
    o->compares = false;
    o->stale |= !whole;
    o->compared_ns = clock_monotonic_ns();
}
