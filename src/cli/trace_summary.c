/* What a traced program did, in some lines. See trace_summary.h. */
#include "cli/trace_summary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <memoir/memoir.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/units.h"
#include "cli/table.h"
#include "cli/trace.h"
#include "cli/trace_hot.h"
#include "cli/trace_oom.h"
#include "trace/waste.h"

enum { HOT_ROWS = 5, PAGEABLE_ROWS = 5, UNCOPIED_ROWS = 3, BATCH = 64 };

/* Peaks of holders were reached at different times, so their sum is an upper bound; the timeline has a closer one, and a lower
 * bound: what was held together at the end of some slot. */
static void peaks_read(struct trace_history *history, struct trace_spaces *spaces)
{
    struct trace_timeline timeline;
    struct trace_totals totals = trace_history_totals(history);
    uint64_t upper[TRACE_SPACES] = {0}, lower[TRACE_SPACES] = {0};
    if (trace_history_timeline(history, &timeline) < 0)
        return;
    for (size_t slot = 0; slot < timeline.n_slots; slot++) {
        uint64_t peak[TRACE_SPACES] = {0}, last[TRACE_SPACES] = {0};
        for (size_t i = 0; i < timeline.n_lines; i++) {
            const struct trace_timeline_line *line = &timeline.lines[i];
            if (line->other) /* of several spaces: nothing can be said */
                memset(upper, 0xff, sizeof(upper));
            else if (line->space < TRACE_SPACES) {
                peak[line->space] += line->peak[slot];
                last[line->space] += line->last[slot];
            }
        }
        for (size_t i = 0; i < TRACE_SPACES; i++) {
            if (peak[i] > upper[i])
                upper[i] = peak[i];
            if (last[i] > lower[i])
                lower[i] = last[i];
        }
    }
    trace_timeline_release(&timeline);
    for (size_t i = 0; i < TRACE_SPACES; i++) {
        struct trace_space *s = &spaces->space[i];
        if (upper[i] && upper[i] < s->peak_bytes)
            s->peak_bytes = upper[i];
        s->about &= lower[i] != s->peak_bytes;
    }
    struct trace_space *device = &spaces->space[MEMOIR_SPACE_DRAM];
    if (!spaces->space[MEMOIR_SPACE_MANAGED].allocated_blocks && device->allocated_blocks) {
        device->peak_bytes = totals.device_peak_bytes; /* counted, not estimated */
        device->about = false;
    }
}

void trace_spaces_read(struct trace_history *history, struct trace_spaces *ret_spaces)
{
    struct trace_holder holders[BATCH];
    uint64_t cursor = 0;
    size_t n;
    *ret_spaces = (struct trace_spaces){0};
    while ((n = trace_history_holders(history, &cursor, holders, BATCH)) > 0)
        for (size_t i = 0; i < n; i++) {
            const struct trace_holder *h = &holders[i];
            bool counts = h->class == TRACE_CLASS_OWN || h->class == TRACE_CLASS_REGISTERED;
            if (!counts || h->space >= TRACE_SPACES)
                continue;
            struct trace_space *s = &ret_spaces->space[h->space];
            s->live_bytes += h->live_bytes;
            s->live_blocks += h->live_blocks;
            s->allocated_bytes += h->allocated_bytes;
            s->allocated_blocks += h->allocated_blocks;
            s->exit_bytes += h->exit_bytes;
            s->exit_blocks += h->exit_blocks;
            s->peak_bytes += h->peak_bytes;
            s->about = ++s->holders > 1;
        }
    peaks_read(history, ret_spaces);
}

/* "  device memory      peak 1.2 GB in 310 allocations, 96.0 MB in 1 never freed" */
static void space_line(const struct term *term, struct buffer *out, const char *name,
                       const struct trace_space *s)
{
    char peak[UNITS_TEXT_MAX], count[UNITS_TEXT_MAX], left[UNITS_TEXT_MAX], lefts[UNITS_TEXT_MAX];
    uint64_t bytes = s->live_bytes + s->exit_bytes, blocks = s->live_blocks + s->exit_blocks;
    if (!s->allocated_blocks)
        return;
    buffer_printf(out, "  %-12s peak %s%s, %s allocation%s", name, s->about ? "at most " : "",
                  trace_bytes(peak, s->peak_bytes), units_format_count(count, s->allocated_blocks),
                  s->allocated_blocks == 1 ? "" : "s");
    if (blocks)
        buffer_printf(out, "; %s%s in %s never freed%s", term_style(term, STYLE_DIM),
                      trace_bytes(left, bytes), units_format_count(lefts, blocks),
                      term_plain(term, STYLE_DIM));
    buffer_append_char(out, '\n');
}

/* Memory of graphs: in no figure of device memory, since it is there only while a launch has it. */
static void graphs_line(struct trace_history *history, struct buffer *out)
{
    struct trace_holder holders[BATCH];
    uint64_t cursor = 0, bytes = 0, blocks = 0;
    char text[UNITS_TEXT_MAX], count[UNITS_TEXT_MAX];
    size_t n;
    while ((n = trace_history_holders(history, &cursor, holders, BATCH)) > 0)
        for (size_t i = 0; i < n; i++)
            if (holders[i].class == TRACE_CLASS_GRAPH) {
                bytes += holders[i].allocated_bytes;
                blocks += holders[i].allocated_blocks;
            }
    if (blocks)
        buffer_printf(out, "  %-12s %s in %s allocation%s recorded; launches are not observed\n",
                      "CUDA graphs", trace_bytes(text, bytes), units_format_count(count, blocks),
                      blocks == 1 ? "" : "s");
}

static void flow_line(struct buffer *out, const char *name, const struct trace_flow *flow,
                      const char *more)
{
    char count[UNITS_TEXT_MAX], bytes[UNITS_TEXT_MAX];
    if (flow->copies)
        buffer_printf(out, "  %-12s %s in %s cop%s%s\n", name, trace_bytes(bytes, flow->bytes),
                      units_format_count(count, flow->copies), flow->copies == 1 ? "y" : "ies",
                      more);
}

static void head(struct trace_source *source, const struct term *term, struct buffer *out)
{
    struct trace_totals totals = trace_history_totals(source->history);
    struct trace_spaces spaces;
    char text[UNITS_TEXT_MAX], more[96] = "";
    trace_spaces_read(source->history, &spaces);
    space_line(term, out, "device", &spaces.space[MEMOIR_SPACE_DRAM]);
    space_line(term, out, "pinned", &spaces.space[MEMOIR_SPACE_PINNED]);
    space_line(term, out, "managed", &spaces.space[MEMOIR_SPACE_MANAGED]);
    space_line(term, out, "registered", &spaces.space[MEMOIR_SPACE_REGISTERED]);
    graphs_line(source->history, out);
    flow_line(out, "to device", &totals.flow[TRACE_TO_DEVICE], "");
    flow_line(out, "from device", &totals.flow[TRACE_FROM_DEVICE], "");
    flow_line(out, "on device", &totals.flow[TRACE_ON_DEVICE], "");
    flow_line(out, "unknown way", &totals.flow[TRACE_DIRECTION_UNKNOWN], "");
    if (totals.repeated)
        snprintf(more, sizeof(more), " of ranges that were copied before");
    flow_line(out, "repeated", &(struct trace_flow){totals.repeated, totals.repeated_bytes}, more);
    if (totals.failures)
        buffer_printf(out, "  %-12s %s failed allocation%s\n", "failures",
                      units_format_count(text, totals.failures), totals.failures == 1 ? "" : "s");
    if (totals.gap_events)
        buffer_printf(
            out, "  %-12s %s events in %" PRIu64 " gap%s: totals have them, histories do not\n",
            "lost", units_format_count(text, totals.gap_events), totals.gaps,
            totals.gaps == 1 ? "" : "s");
}

static void title(const struct term *term, struct buffer *out, const char *text)
{
    buffer_printf(out, "%s%s%s\n", term_style(term, STYLE_TITLE), text,
                  term_plain(term, STYLE_TITLE));
}

static void hottest(struct trace_source *source, const struct term *term, struct buffer *out)
{
    struct trace_block blocks[HOT_ROWS];
    struct trace_filter filter = {.device = -1, .min = 1};
    MEMOIR_CLEANUP(table_release)
    struct table table;
    trace_hot_table(&table);
    ptrdiff_t n = trace_history_hot(source->history, TRACE_BY_BYTES, &filter, blocks, HOT_ROWS);
    for (ptrdiff_t i = 0; i < n; i++)
        trace_hot_row(source, &table, &blocks[i], trace_now_ns(source));
    if (n <= 0)
        return;
    title(term, out, "Hottest buffers");
    trace_hot_text(&table, &(struct table_layout){.header = true}, term, out);
}

static void pageable(struct trace_source *source, const struct term *term, struct buffer *out)
{
    struct trace_copier *copiers = NULL;
    ptrdiff_t n = waste_pageable(source->history, PAGEABLE_ROWS, &copiers);
    uint64_t bytes = trace_history_totals(source->history).pageable.bytes;
    char label[TRACE_LABEL_MAX], text[UNITS_TEXT_MAX], count[UNITS_TEXT_MAX], time[UNITS_TEXT_MAX];
    if (n > 0) {
        title(term, out, "Copies from and to pageable memory");
        buffer_printf(out, "  pinned memory would save about %s (estimate)\n",
                      units_format_duration(time, waste_saving_ns(NULL, bytes)));
    }
    for (ptrdiff_t i = 0; i < n; i++) {
        buffer_append_str(out, "  ");
        term_append(term, out, trace_names_label(source->names, copiers[i].site, label), 0);
        buffer_printf(out, ": %s in %s copies\n", trace_bytes(text, copiers[i].pageable.bytes),
                      units_format_count(count, copiers[i].pageable.copies));
    }
    free(copiers);
}

static void uncopied(struct trace_source *source, const struct term *term, struct buffer *out)
{
    struct waste_uncopied *rows = NULL;
    ptrdiff_t n = waste_uncopied(source->history, UNCOPIED_ROWS, &rows);
    char label[TRACE_LABEL_MAX], text[UNITS_TEXT_MAX], count[UNITS_TEXT_MAX];
    if (n > 0)
        title(term, out, "Allocations never copied over the bus");
    for (ptrdiff_t i = 0; i < n; i++) {
        buffer_append_str(out, "  ");
        term_append(term, out, trace_names_label(source->names, rows[i].site, label), 0);
        buffer_printf(out, ": %s in %s allocation%s (%s)\n", trace_bytes(text, rows[i].bytes),
                      units_format_count(count, rows[i].blocks), rows[i].blocks == 1 ? "" : "s",
                      trace_space_name(rows[i].space));
    }
    free(rows);
}

void trace_summary(struct trace_source *source, const struct term *term, struct buffer *out)
{
    struct trace_failure *failure = malloc(sizeof(*failure));
    buffer_append_str(out, term_style(term, STYLE_TITLE));
    buffer_append_str(out, "CUDA memory of ");
    term_append(term, out, source->who, 0);
    buffer_printf(out, "%s\n", term_plain(term, STYLE_TITLE));
    head(source, term, out);
    hottest(source, term, out);
    pageable(source, term, out);
    uncopied(source, term, out);
    if (failure && trace_oom_last(source->history, failure) == 0) {
        MEMOIR_CLEANUP(buffer_release)
        struct buffer sentence = BUFFER_INIT(1 << 16);
        title(term, out, "Out of memory");
        trace_oom_sentence(source, failure, &sentence);
        buffer_append_str(out, "  ");
        term_append(term, out, buffer_string(&sentence), 0);
        buffer_append_char(out, '\n');
    }
    free(failure);
}
