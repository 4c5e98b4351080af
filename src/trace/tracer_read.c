/* Questions to traces, and dumps of them, through <memoir/tracer.h>. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "trace/diff.h"
#include "trace/dump.h"
#include "trace/tracer.h"
#include "trace/tracer_public.h"

static_assert(sizeof(struct memoir_trace_flow) == sizeof(struct trace_flow), "the same in both");
static_assert((int)MEMOIR_TRACE_DIRECTIONS == (int)TRACE_DIRECTIONS && TRACE_SYSTEM_KINDS == 10,
              "the same in both");
static_assert((int)MEMOIR_TRACE_FOUND == (int)TRACE_FOUND &&
                  (int)MEMOIR_TRACE_ON_HOST == (int)TRACE_ON_HOST,
              "the same in both");
static_assert((int)MEMOIR_TRACE_STATE_UNKNOWN == (int)TRACE_STATE_UNKNOWN &&
                  (int)MEMOIR_TRACE_CALMER == (int)TRACE_CHANGE_CALMER,
              "the same in both");

static struct memoir_trace_flow flow_of(struct trace_flow f)
{
    return (struct memoir_trace_flow){f.copies, f.bytes};
}

/* ---- dumps ---- */

static int loaded(int r, struct trace_history *history, struct memoir_trace **ret_trace)
{
    if (r < 0)
        return r;
    struct memoir_trace *trace = calloc(1, sizeof(*trace));
    if (!trace) {
        trace_history_free(history);
        return -ENOMEM;
    }
    *trace = (struct memoir_trace){
        .history = history, .pid = trace_history_identity(history).pid, .loaded = true};
    *ret_trace = trace;
    return 0;
}

int memoir_trace_load(const char *path, struct memoir_trace **ret_trace)
{
    struct trace_history *history = NULL;
    int r = trace_dump_load(path, &history);
    return loaded(r, history, ret_trace);
}

int memoir_trace_load_bytes(const void *data, size_t len, struct memoir_trace **ret_trace)
{
    struct trace_history *history = NULL;
    int r = trace_dump_decode(data, len, &history);
    return loaded(r, history, ret_trace);
}

void memoir_trace_free(struct memoir_trace *trace)
{
    if (!trace || !trace->loaded)
        return;
    trace_history_free(trace->history);
    free(trace);
}

int memoir_trace_save(struct memoir_trace *trace, int format, const char *path)
{
    if (!trace || (format != MEMOIR_TRACE_BINARY && format != MEMOIR_TRACE_JSON))
        return -EINVAL;
    return trace_dump_save(trace->history, (enum trace_dump_format)format, path);
}

int memoir_trace_write(struct memoir_trace *trace, int format, int fd)
{
    if (!trace || (format != MEMOIR_TRACE_BINARY && format != MEMOIR_TRACE_JSON))
        return -EINVAL;
    return trace_dump_write(trace->history, (enum trace_dump_format)format, fd);
}

/* ---- the whole ---- */

int memoir_trace_totals(struct memoir_trace *trace, struct memoir_trace_totals *ret_totals)
{
    if (!trace)
        return -EINVAL;
    struct trace_totals t = trace_history_totals(trace->history);
    struct trace_identity id = trace_history_identity(trace->history);
    struct memoir_trace_totals out = {
        .pid = id.pid,
        .uid = id.uid,
        .start_ticks = id.start_ticks,
        .events = t.events,
        .first_ns = t.first_ns,
        .last_ns = t.last_ns,
        .live_blocks = t.live_blocks,
        .live_bytes = t.live_bytes,
        .peak_bytes = t.peak_bytes,
        .device_bytes = t.device_bytes,
        .device_peak_bytes = t.device_peak_bytes,
        .allocated_blocks = t.allocated_blocks,
        .allocated_bytes = t.allocated_bytes,
        .freed_blocks = t.freed_blocks,
        .freed_bytes = t.freed_bytes,
        .pageable = flow_of(t.pageable),
        .repeated = t.repeated,
        .repeated_bytes = t.repeated_bytes,
        .failures = t.failures,
        .gaps = t.gaps,
        .gap_events = t.gap_events,
        .lost = t.gap_events + t.folded_blocks + t.folded_implicit + t.unkept_blocks +
                t.unkept_moments + t.unkept_holders + t.invalid,
        .exit_ns = t.exit_ns,
        .memory_bytes = t.memory_bytes,
    };
    memcpy(out.name, id.name, sizeof(out.name));
    memcpy(out.flow, t.flow, sizeof(out.flow));
    return public_give(ret_totals, &out, sizeof(out));
}

/* ---- blocks ---- */

static struct memoir_trace_block block_of(const struct trace_block *b)
{
    struct memoir_trace_block out = {
        .id = b->id,
        .address = b->address,
        .size = b->size,
        .context = b->context,
        .call = b->call,
        .start_ns = b->start_ns,
        .end_ns = b->end_ns,
        .site = b->site,
        .flags = b->flags,
        .device = b->device,
        .tid = b->tid,
        .space = b->space,
        .state = b->state,
        .end = b->end,
        .owner = b->class,
        .active = b->active,
        .found = b->found,
        .read = flow_of(b->read),
        .written = flow_of(b->written),
        .pageable = flow_of(b->pageable),
        .sets = flow_of(b->sets),
        .prefetches = flow_of(b->prefetches),
        .first_copy_ns = b->first_copy_ns,
        .last_copy_ns = b->last_copy_ns,
        .repeated = b->repeated,
        .repeated_bytes = b->repeated_bytes,
        .moments = b->moments,
        .moments_kept = b->moments_kept,
    };
    memcpy(out.flow, b->flow, sizeof(out.flow));
    memcpy(out.system, b->system, sizeof(out.system));
    memcpy(out.system_early, b->system_early, sizeof(out.system_early));
    return out;
}

int memoir_trace_find(struct memoir_trace *trace, uint64_t address,
                      struct memoir_trace_block *ret_block)
{
    struct trace_block b;
    if (!trace || !public_size(ret_block))
        return -EINVAL;
    int r = trace_history_find(trace->history, address, &b);
    if (r < 0)
        return r;
    struct memoir_trace_block out = block_of(&b);
    return public_give(ret_block, &out, sizeof(out));
}

/* Room for n blocks of ours, which are then given to the caller; NULL and *error when that cannot be. */
static struct trace_block *room(struct memoir_trace *trace, const void *blocks, size_t n,
                                ptrdiff_t *error)
{
    struct trace_block *b = NULL;
    if (!trace || (n > 0 && !public_size(blocks)))
        *error = -EINVAL;
    else if (!(b = calloc(n + 1, sizeof(*b))))
        *error = -ENOMEM;
    return b;
}

static ptrdiff_t give_blocks(struct memoir_trace_block *blocks, struct trace_block *from,
                             ptrdiff_t count, size_t n)
{
    size_t stride = public_size(blocks);
    for (size_t i = 0; i < n && (ptrdiff_t)i < count; i++) {
        struct memoir_trace_block out = block_of(&from[i]);
        public_put(blocks, stride, i, &out, sizeof(out));
    }
    free(from);
    return count;
}

ptrdiff_t memoir_trace_at(struct memoir_trace *trace, uint64_t address,
                          struct memoir_trace_block *blocks, size_t n)
{
    ptrdiff_t error = 0;
    struct trace_block *b = room(trace, blocks, n, &error);
    return b ? give_blocks(blocks, b, (ptrdiff_t)trace_history_at(trace->history, address, b, n), n)
             : error;
}

static bool filter_of(const struct memoir_trace_query *query, struct trace_filter *filter,
                      enum trace_by *by)
{
    struct memoir_trace_query q = {0};
    if (query && !public_take(&q, sizeof(q), query))
        return false;
    *by = q.by ? TRACE_BY_BYTES : TRACE_BY_COUNT;
    *filter = (struct trace_filter){
        .active = q.active,
        .ended = q.ended,
        .space = (uint8_t)q.space,
        .by_device = q.by_device,
        .device = q.device,
        .min = q.min,
        .max = q.max,
    };
    return q.by >= 0 && q.by <= 1 && q.space >= 0 && q.space <= UINT8_MAX;
}

static ptrdiff_t ranked(struct memoir_trace *trace, const struct memoir_trace_query *query,
                        struct memoir_trace_block *blocks, size_t k, bool hot)
{
    struct trace_filter filter;
    enum trace_by by;
    ptrdiff_t error = 0;
    if (!filter_of(query, &filter, &by))
        return -EINVAL;
    struct trace_block *b = room(trace, blocks, k, &error);
    if (!b)
        return error;
    ptrdiff_t n = hot ? trace_history_hot(trace->history, by, &filter, b, k)
                      : trace_history_cold(trace->history, by, &filter, b, k);
    return give_blocks(blocks, b, n, k);
}

ptrdiff_t memoir_trace_hot(struct memoir_trace *trace, const struct memoir_trace_query *query,
                           struct memoir_trace_block *blocks, size_t k)
{
    return ranked(trace, query, blocks, k, true);
}

ptrdiff_t memoir_trace_cold(struct memoir_trace *trace, const struct memoir_trace_query *query,
                            struct memoir_trace_block *blocks, size_t k)
{
    return ranked(trace, query, blocks, k, false);
}

ptrdiff_t memoir_trace_blocks(struct memoir_trace *trace, const struct memoir_trace_query *query,
                              uint64_t *cursor, struct memoir_trace_block *blocks, size_t n)
{
    struct trace_filter filter;
    enum trace_by by;
    ptrdiff_t error = 0;
    if (!cursor || !filter_of(query, &filter, &by))
        return -EINVAL;
    struct trace_block *b = room(trace, blocks, n, &error);
    return b ? give_blocks(blocks, b,
                           (ptrdiff_t)trace_history_blocks(trace->history, &filter, cursor, b, n),
                           n)
             : error;
}

ptrdiff_t memoir_trace_moments(struct memoir_trace *trace, uint64_t id,
                               struct memoir_trace_moment *moments, size_t n)
{
    size_t stride = public_size(moments);
    if (!trace || (n > 0 && !stride))
        return -EINVAL;
    struct trace_moment *m = calloc(n + 1, sizeof(*m));
    if (!m)
        return -ENOMEM;
    ptrdiff_t count = trace_history_moments(trace->history, id, m, n);
    for (ptrdiff_t i = 0; i < count; i++) {
        struct memoir_trace_moment out = {
            .time_ns = m[i].time_ns,
            .offset = m[i].offset,
            .size = m[i].size,
            .peer = m[i].peer,
            .call = m[i].call,
            .site = m[i].site,
            .flags = m[i].flags,
            .tid = m[i].tid,
            .result = m[i].result,
            .kind = m[i].kind,
            .direction = m[i].direction,
            .detail = m[i].detail,
        };
        public_put(moments, stride, (size_t)i, &out, sizeof(out));
    }
    free(m);
    return count;
}

/* ---- holders and sites ---- */

ptrdiff_t memoir_trace_holders(struct memoir_trace *trace, uint64_t *cursor,
                               struct memoir_trace_holder *holders, size_t n)
{
    size_t stride = public_size(holders);
    if (!trace || !cursor || (n > 0 && !stride))
        return -EINVAL;
    struct trace_holder *h = calloc(n + 1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    size_t count = trace_history_holders(trace->history, cursor, h, n);
    for (size_t i = 0; i < count; i++) {
        struct memoir_trace_holder out = {
            .site = h[i].site,
            .device = h[i].device,
            .space = h[i].space,
            .owner = h[i].class,
            .allocated_blocks = h[i].allocated_blocks,
            .allocated_bytes = h[i].allocated_bytes,
            .live_blocks = h[i].live_blocks,
            .live_bytes = h[i].live_bytes,
            .freed_blocks = h[i].freed_blocks,
            .freed_bytes = h[i].freed_bytes,
            .peak_bytes = h[i].peak_bytes,
            .failures = h[i].failures,
            .failed_bytes = h[i].failed_bytes,
            .pageable = flow_of(h[i].pageable),
            .repeated = h[i].repeated,
            .repeated_bytes = h[i].repeated_bytes,
            .never_copied_blocks = h[i].never_copied_blocks,
        };
        memcpy(out.flow, h[i].flow, sizeof(out.flow));
        public_put(holders, stride, i, &out, sizeof(out));
    }
    free(h);
    return (ptrdiff_t)count;
}

/* The innermost line of each frame; what is inlined in it comes as frames of its own. */
ptrdiff_t memoir_trace_frames(struct memoir_trace *trace, uint32_t number,
                              struct memoir_trace_frame *frames, size_t n)
{
    size_t stride = public_size(frames), count = 0;
    if (!trace || (n > 0 && !stride))
        return -EINVAL;
    const struct trace_site *site = trace_sites_get(trace_history_sites(trace->history), number);
    if (!site)
        return -ENOENT;
    for (unsigned i = 0; i < site->n_frames; i++) {
        const struct trace_frame *f = &site->frames[i];
        const struct trace_line *lines;
        size_t n_lines = trace_frame_lines(f, &lines);
        for (size_t k = 0; k < (n_lines ? n_lines : 1); k++, count++) {
            struct memoir_trace_frame out = {
                .module = f->module ? f->module->path : "",
                .offset = f->offset,
                .function = n_lines ? lines[k].function : "",
                .file = n_lines ? lines[k].file : "",
                .line = n_lines ? lines[k].line : 0,
            };
            if (count < n)
                public_put(frames, stride, count, &out, sizeof(out));
        }
    }
    return (ptrdiff_t)count;
}

uint64_t memoir_trace_site_key(struct memoir_trace *trace, uint32_t number)
{
    const struct trace_site *site =
        trace ? trace_sites_get(trace_history_sites(trace->history), number) : NULL;
    return site ? site->key : 0;
}

ptrdiff_t memoir_trace_diff(struct memoir_trace *before, struct memoir_trace *after,
                            struct memoir_trace_difference *differences, size_t n)
{
    size_t stride = public_size(differences);
    struct trace_diff *d = NULL;
    if (!before || !after || (n > 0 && !stride))
        return -EINVAL;
    int r = trace_diff_new(before->history, after->history, &d);
    if (r < 0)
        return r;
    for (size_t i = 0; i < d->n_rows && i < n; i++) {
        const struct trace_diff_row *row = &d->rows[i];
        struct memoir_trace_difference out = {
            .key = row->key,
            .before_site = row->before_site,
            .after_site = row->after_site,
            .device = row->device,
            .space = row->space,
            .owner = row->class,
            .change = row->change,
            .live_bytes = row->live_bytes,
            .copies = row->copies,
            .copied_bytes = row->copied_bytes,
        };
        public_put(differences, stride, i, &out, sizeof(out));
    }
    ptrdiff_t count = (ptrdiff_t)d->n_rows;
    trace_diff_free(d);
    return count;
}
