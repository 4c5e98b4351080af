/* A trace as JSON. See api_trace_json.h. */
#include "daemon/api_trace_json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memoir/memoir.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/units.h"
#include "daemon/traces.h"
#include "ledger/ledger.h"
#include "query/query.h"
#include "trace/waste.h"

/* ---- parts ---- */

static uint64_t real_ns(const struct trace_view *v, uint64_t time_ns)
{
    return v->identity.start_real_ns + (time_ns - v->identity.start_ns);
}

/* Null: it did not happen. */
static void moment_json(const struct trace_view *v, const char *key, uint64_t time_ns,
                        struct json *json)
{
    char text[QUERY_TIME_TEXT_MAX];
    json_field_string(json, key, time_ns ? query_time_text(text, real_ns(v, time_ns)) : NULL);
}

static void site_json(struct trace_view *v, const char *key, uint32_t site, struct json *json)
{
    json_key(json, key);
    if (!site || site > v->last_site) {
        json_null(json);
        return;
    }
    v->used[site / 8] |= (uint8_t)(1u << site % 8);
    json_u64(json, site);
}

static void flow_json(const char *key, const struct trace_flow *flow, struct json *json)
{
    json_key(json, key);
    json_object_begin(json);
    json_field_u64(json, "copies", flow->copies);
    json_field_u64(json, "bytes", flow->bytes);
    json_object_end(json);
}

static void flows_json(const struct trace_flow flow[static TRACE_DIRECTIONS], struct json *json)
{
    for (size_t i = 0; i < TRACE_DIRECTIONS; i++)
        flow_json(traces_directions[i], &flow[i], json);
}

static const char *space_word(uint8_t space, uint8_t class)
{
    if (class == TRACE_CLASS_REGISTERED)
        return ledger_space_name(MEMOIR_SPACE_REGISTERED);
    if (class == TRACE_CLASS_SYSTEM || class == TRACE_CLASS_IMPLICIT)
        return space >= MEMOIR_SPACE_DRAM ? ledger_space_name(space) : "host";
    return space ? ledger_space_name(space) : NULL;
}

static void device_json(int32_t device, struct json *json)
{
    json_key(json, "ordinal");
    if (device >= 0)
        json_i64(json, device);
    else
        json_null(json);
}

static void known_json(const char *key, bool known, uint64_t value, struct json *json)
{
    json_key(json, key);
    known ? json_u64(json, value) : json_null(json);
}

static void place_json(struct trace_view *v, uint32_t site, uint8_t space, uint8_t class,
                       struct json *json)
{
    site_json(v, "site", site, json);
    json_field_string(json, "space", space_word(space, class));
}

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

/* ---- totals ---- */

static void totals_json(const struct trace_view *v, const struct trace_totals *t, struct json *json)
{
    json_key(json, "totals");
    json_object_begin(json);
    json_field_u64(json, "events", t->events);
    json_field_u64(json, "blocks", t->live_blocks);
    json_field_u64(json, "bytes", t->live_bytes);
    json_field_u64(json, "peak", t->peak_bytes);
    json_field_u64(json, "device", t->device_bytes);
    json_field_u64(json, "device_peak", t->device_peak_bytes);
    json_field_u64(json, "allocated_blocks", t->allocated_blocks);
    json_field_u64(json, "allocated", t->allocated_bytes);
    json_field_u64(json, "freed_blocks", t->freed_blocks);
    json_field_u64(json, "freed", t->freed_bytes);
    json_key(json, "copies");
    json_object_begin(json);
    flows_json(t->flow, json);
    json_object_end(json);
    flow_json("pageable", &t->pageable, json);
    json_field_double(json, "pageable_saving", seconds(waste_saving_ns(NULL, t->pageable.bytes)));
    flow_json("repeated", &(struct trace_flow){t->repeated, t->repeated_bytes}, json);
    json_field_u64(json, "failures", t->failures);
    json_field_u64(json, "faults", t->system[TRACE_SYSTEM_FAULT]);
    moment_json(v, "ended", t->exit_ns, json);
    json_object_end(json);
}

static void losses_json(const struct trace_totals *t, struct json *json)
{
    const struct {
        const char *name;
        uint64_t n;
    } all[] = {
        {"gaps", t->gaps},
        {"gap_events", t->gap_events},
        {"folded_blocks", t->folded_blocks},
        {"unkept_blocks", t->unkept_blocks},
        {"unkept_moments", t->unkept_moments},
        {"unknown_frees", t->unknown_frees},
        {"unknown_sides", t->unknown_sides},
        {"superseded", t->superseded},
        {"unkept_holders", t->unkept_holders},
        {"failed_copies", t->failed_copies},
        {"invalid", t->invalid},
    };
    json_key(json, "losses");
    json_object_begin(json);
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        json_field_u64(json, all[i].name, all[i].n);
    json_object_end(json);
}

/* ---- blocks ---- */

static void block_json(struct trace_view *v, const struct trace_block *b, struct json *json)
{
    char address[24];
    snprintf(address, sizeof(address), "0x%" PRIx64, b->address);
    json_object_begin(json);
    json_field_string(json, "address", address);
    json_field_u64(json, "size", b->size);
    place_json(v, b->site, b->space, b->class, json);
    site_json(v, "copy_site", waste_copy_site(v->history, b), json);
    device_json(b->device, json);
    json_field_string(json, "state", trace_block_state(b));
    moment_json(v, "start", b->start_ns, json);
    moment_json(v, "ended", b->end_ns, json);
    moment_json(v, "first_copy", b->first_copy_ns, json);
    moment_json(v, "last_copy", b->last_copy_ns, json);
    json_field_u64(json, "copies", trace_block_value(b, TRACE_BY_COUNT));
    json_field_u64(json, "bytes", trace_block_value(b, TRACE_BY_BYTES));
    flow_json("to_device", &b->flow[TRACE_TO_DEVICE], json);
    flow_json("from_device", &b->flow[TRACE_FROM_DEVICE], json);
    flow_json("pageable", &b->pageable, json);
    flow_json("repeated", &(struct trace_flow){b->repeated, b->repeated_bytes}, json);
    json_field_u64(json, "faults", b->system[TRACE_SYSTEM_FAULT]);
    json_field_u64(json, "faults_before_copy", b->system_early[TRACE_SYSTEM_FAULT]);
    json_object_end(json);
}

/* Of cold blocks only those that live: what a program could give back. */
static int blocks_json(struct trace_view *v, const char *key, bool hot, struct json *json)
{
    struct trace_filter filter = {.device = -1, .active = !hot, .min = hot ? 1 : 0};
    MEMOIR_CLEANUP(freep)
    struct trace_block *blocks = calloc(v->k, sizeof(*blocks));
    if (!hot)
        filter.classes = 1u << TRACE_CLASS_OWN | 1u << TRACE_CLASS_REGISTERED;
    ptrdiff_t n = !blocks ? -ENOMEM
                  : hot   ? trace_history_hot(v->history, v->by, &filter, blocks, v->k)
                          : trace_history_cold(v->history, v->by, &filter, blocks, v->k);
    if (n < 0)
        return (int)n;
    json_key(json, key);
    json_array_begin(json);
    for (ptrdiff_t i = 0; i < n; i++)
        block_json(v, &blocks[i], json);
    json_array_end(json);
    return 0;
}

/* ---- waste ---- */

static int copiers_json(struct trace_view *v, struct json *json)
{
    MEMOIR_CLEANUP(freep)
    struct trace_copier *rows = NULL;
    ptrdiff_t n = waste_copiers(v->history, v->k, &rows);
    if (n < 0)
        return (int)n;
    json_key(json, "copiers");
    json_array_begin(json);
    for (ptrdiff_t i = 0; i < n; i++) {
        json_object_begin(json);
        site_json(v, "site", rows[i].site, json);
        flows_json(rows[i].flow, json);
        flow_json("pageable", &rows[i].pageable, json);
        flow_json("async", &rows[i].async, json);
        flow_json("repeated", &(struct trace_flow){rows[i].repeated, rows[i].repeated_bytes}, json);
        json_field_double(json, "saving", seconds(waste_saving_ns(NULL, rows[i].pageable.bytes)));
        json_object_end(json);
    }
    json_array_end(json);
    json_key(json, "assumed");
    json_object_begin(json);
    json_field_u64(json, "pageable_rate", WASTE_PAGEABLE_RATE);
    json_field_u64(json, "pinned_rate", WASTE_PINNED_RATE);
    json_object_end(json);
    return 0;
}

static int repeats_json(struct trace_view *v, struct json *json)
{
    MEMOIR_CLEANUP(freep)
    struct waste_repeat *rows = NULL;
    char address[24];
    ptrdiff_t n = waste_repeats(v->history, v->k, &rows);
    if (n < 0)
        return (int)n;
    json_key(json, "repeats");
    json_array_begin(json);
    for (ptrdiff_t i = 0; i < n; i++) {
        const struct trace_block *b = &rows[i].block;
        snprintf(address, sizeof(address), "0x%" PRIx64, b->address);
        json_object_begin(json);
        json_field_string(json, "address", address);
        place_json(v, b->site, b->space, b->class, json);
        site_json(v, "copy_site", waste_copy_site(v->history, b), json);
        json_field_u64(json, "offset", rows[i].repeat.offset);
        json_field_u64(json, "size", rows[i].repeat.size);
        json_field_string(json, "direction",
                          traces_directions[rows[i].repeat.direction % TRACE_DIRECTIONS]);
        json_field_u64(json, "copies", rows[i].repeat.copies);
        json_field_u64(json, "bytes", rows[i].bytes);
        json_object_end(json);
    }
    json_array_end(json);
    return 0;
}

static int uncopied_json(struct trace_view *v, struct json *json)
{
    MEMOIR_CLEANUP(freep)
    struct waste_uncopied *rows = NULL;
    ptrdiff_t n = waste_uncopied(v->history, v->k, &rows);
    if (n < 0)
        return (int)n;
    json_key(json, "never_copied");
    json_array_begin(json);
    for (ptrdiff_t i = 0; i < n; i++) {
        json_object_begin(json);
        place_json(v, rows[i].site, rows[i].space, rows[i].class, json);
        json_field_u64(json, "blocks", rows[i].blocks);
        json_field_u64(json, "bytes", rows[i].bytes);
        json_field_u64(json, "live", rows[i].live_bytes);
        json_object_end(json);
    }
    json_array_end(json);
    return 0;
}

/* ---- failures ---- */

static const char *size_text(char text[static UNITS_TEXT_MAX], uint64_t bytes)
{
    return units_format_bytes(text, bytes, UNITS_DECIMAL);
}

static void holders_words(struct trace_view *v, const struct trace_failure *f, struct buffer *out)
{
    enum { TOLD = 3 };
    char size[UNITS_TEXT_MAX], line[TRACE_NAMES_TEXT_MAX];
    uint32_t n = f->n_holders < TOLD ? f->n_holders : TOLD;
    for (uint32_t i = 0; i < n; i++)
        buffer_printf(out, "%s%s by %s", i ? ", " : " (", size_text(size, f->holders[i].bytes),
                      trace_names_label(&v->names, f->holders[i].site, line));
    if (f->n_holders > n)
        buffer_printf(out, " and others");
    if (n)
        buffer_append_char(out, ')');
}

/* "train (PID 7) asked for 20.0 GB on device 0 at train.py:41 in load, and the driver was out of memory: it held 61.0 GB itself
 * (40.0 GB by ...); other (PID 8) held 12.0 GB; 79.0 GB of 80.0 GB were in use." */
static void failure_sentence(struct trace_view *v, const struct trace_failure *f,
                             struct buffer *out)
{
    char size[UNITS_TEXT_MAX], more[UNITS_TEXT_MAX], line[TRACE_NAMES_TEXT_MAX];
    buffer_printf(out, "%s (PID %d) asked for %s", v->identity.name, (int)v->identity.pid,
                  size_text(size, f->size));
    if (f->space >= MEMOIR_SPACE_DRAM && f->device >= 0)
        buffer_printf(out, " on device %d", f->device);
    else if (f->space)
        buffer_printf(out, " of %s memory", ledger_space_name(f->space));
    buffer_printf(out, " at %s, and ", trace_names_label(&v->names, f->site, line));
    if (!f->out_of_memory) {
        buffer_printf(out, "the driver refused it with error %d.", f->result);
        return;
    }
    buffer_printf(out, "the driver was out of memory: it held %s itself",
                  size_text(size, f->held_bytes));
    holders_words(v, f, out);
    for (uint32_t i = 0; i < f->n_others && i < 3; i++)
        buffer_printf(out, "; %s (PID %d) held %s", f->others[i].name, (int)f->others[i].pid,
                      size_text(size, f->others[i].bytes));
    if (f->capacity_bytes)
        buffer_printf(out, "; %s of %s were in use", size_text(size, f->used_bytes),
                      size_text(more, f->capacity_bytes));
    buffer_append_char(out, '.');
}

static void failure_json(struct trace_view *v, const struct trace_failure *f, struct json *json)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer words = BUFFER_INIT(8192);
    failure_sentence(v, f, &words);
    json_object_begin(json);
    moment_json(v, "t", f->time_ns, json);
    json_field_string(json, "text", buffer_string(&words));
    json_field_u64(json, "size", f->size);
    json_field_i64(json, "result", f->result);
    json_field_bool(json, "out_of_memory", f->out_of_memory);
    json_field_u64(json, "times", f->repeats + 1);
    place_json(v, f->site, f->space, TRACE_CLASS_OWN, json);
    device_json(f->device, json);
    json_field_u64(json, "held", f->held_bytes);
    json_field_u64(json, "held_blocks", f->held_blocks);
    known_json("capacity", f->capacity_bytes != 0, f->capacity_bytes, json);
    known_json("used", f->capacity_bytes != 0, f->used_bytes, json);
    json_key(json, "holders");
    json_array_begin(json);
    for (uint32_t i = 0; i < f->n_holders; i++) {
        json_object_begin(json);
        place_json(v, f->holders[i].site, f->holders[i].space, f->holders[i].class, json);
        json_field_u64(json, "bytes", f->holders[i].bytes);
        json_field_u64(json, "blocks", f->holders[i].blocks);
        json_object_end(json);
    }
    json_array_end(json);
    json_key(json, "others");
    json_array_begin(json);
    for (uint32_t i = 0; i < f->n_others; i++) {
        json_object_begin(json);
        json_field_i64(json, "pid", f->others[i].pid);
        json_field_string(json, "program", f->others[i].name);
        json_field_u64(json, "bytes", f->others[i].bytes);
        json_object_end(json);
    }
    json_array_end(json);
    json_object_end(json);
}

static int failures_json(struct trace_view *v, struct json *json)
{
    MEMOIR_CLEANUP(freep)
    struct trace_failure *all = calloc(TRACE_FAILURES_MAX, sizeof(*all));
    if (!all)
        return -ENOMEM;
    size_t n = trace_history_failures(v->history, all, TRACE_FAILURES_MAX);
    size_t first = n > TRACE_JSON_FAILURES ? n - TRACE_JSON_FAILURES : 0;
    json_key(json, "failures");
    json_array_begin(json);
    for (size_t i = n; i-- > first;) /* newest first */
        failure_json(v, &all[i], json);
    json_array_end(json);
    return 0;
}

static void gaps_json(struct trace_view *v, struct json *json)
{
    struct trace_gap gaps[TRACE_GAPS_MAX];
    size_t n = trace_history_gaps(v->history, gaps, TRACE_GAPS_MAX);
    json_key(json, "gaps");
    json_array_begin(json);
    for (size_t i = 0; i < n; i++) {
        json_object_begin(json);
        moment_json(v, "t", gaps[i].time_ns, json);
        json_field_u64(json, "events", gaps[i].lost);
        json_object_end(json);
    }
    json_array_end(json);
}

/* ---- timeline ---- */

static bool on_device(uint8_t space)
{
    return space >= MEMOIR_SPACE_DRAM || space == MEMOIR_SPACE_MANAGED;
}

static void values_json(const uint64_t *values, size_t n, struct json *json)
{
    json_array_begin(json);
    for (size_t i = 0; i < n; i++)
        json_u64(json, values[i]);
    json_array_end(json);
}

static void line_begin(const char *group, bool other, struct json *json)
{
    json_object_begin(json);
    json_field_string(json, "group", group);
    json_field_bool(json, "other", other);
}

/* Holders beyond the largest, summed up. NULL: there are none. */
static void rest_json(const char *group, const uint64_t *sum, size_t n, struct json *json)
{
    if (!sum)
        return;
    line_begin(group, true, json);
    json_field_null(json, "site");
    json_field_null(json, "space");
    json_field_null(json, "ordinal");
    json_key(json, "last");
    values_json(sum, n, json);
    json_object_end(json);
}

static void lines_json(struct trace_view *v, const struct trace_timeline *t, bool device,
                       struct json *json)
{
    uint64_t sums[TRACE_TIMELINE_SLOTS] = {0};
    size_t told = 0, max = device ? TRACE_JSON_DEVICE_LINES : TRACE_JSON_HOST_LINES;
    bool rest = false;
    const char *group = device ? "device" : "host";
    for (size_t i = 0; i < t->n_lines; i++) {
        const struct trace_timeline_line *line = &t->lines[i];
        if (line->other || on_device(line->space) != device)
            continue;
        if (told == max) {
            rest = true;
            for (size_t k = 0; k < t->n_slots; k++)
                sums[k] += line->last[k];
            continue;
        }
        told++;
        line_begin(group, false, json);
        place_json(v, line->site, line->space, TRACE_CLASS_OWN, json);
        device_json(line->device, json);
        json_key(json, "last");
        values_json(line->last, t->n_slots, json);
        json_object_end(json);
    }
    rest_json(group, rest ? sums : NULL, t->n_slots, json);
}

static int timeline_json(struct trace_view *v, struct json *json)
{
    struct trace_timeline t;
    int r = trace_history_timeline(v->history, &t);
    if (r < 0)
        return r;
    json_key(json, "timeline");
    json_object_begin(json);
    moment_json(v, "start", t.n_slots ? t.start_ns : 0, json);
    json_field_double(json, "step", seconds(t.step_ns));
    moment_json(v, "now", v->now_ns, json);
    json_key(json, "device_peak");
    values_json(t.device_peak, t.n_slots, json);
    json_key(json, "lines");
    json_array_begin(json);
    lines_json(v, &t, true, json);
    lines_json(v, &t, false, json);
    for (size_t i = 0; i < t.n_lines; i++)
        if (t.lines[i].other)
            rest_json("mixed", t.lines[i].last, t.n_slots, json);
    json_array_end(json);
    json_object_end(json);
    trace_timeline_release(&t);
    return 0;
}

/* ---- all of it ---- */

static void sites_json(struct trace_view *v, struct json *json)
{
    json_key(json, "sites");
    json_array_begin(json);
    for (uint32_t i = 1; i <= v->last_site; i++)
        if (v->used[i / 8] >> i % 8 & 1)
            trace_names_json(&v->names, i, json);
    json_array_end(json);
}

int trace_view_json(struct trace_view *v, struct json *json)
{
    char time[QUERY_TIME_TEXT_MAX];
    struct trace_totals totals = trace_history_totals(v->history);
    v->last_site = trace_sites_last(v->names.sites);
    MEMOIR_CLEANUP(freep)
    uint8_t *used = calloc(v->last_site / 8 + 1, 1);
    v->used = used;
    if (!used)
        return -ENOMEM;
    json_field_i64(json, "pid", v->identity.pid);
    json_field_string(json, "program", v->identity.name);
    json_field_string(json, "traced_since", query_time_text(time, v->identity.start_real_ns));
    json_field_string(json, "by", v->by == TRACE_BY_BYTES ? "bytes" : "count");
    totals_json(v, &totals, json);
    losses_json(&totals, json);
    int r = blocks_json(v, "hot", true, json);
    if (r == 0)
        r = blocks_json(v, "cold", false, json);
    if (r == 0)
        r = copiers_json(v, json);
    if (r == 0)
        r = repeats_json(v, json);
    if (r == 0)
        r = uncopied_json(v, json);
    if (r == 0)
        r = failures_json(v, json);
    gaps_json(v, json);
    if (r == 0)
        r = timeline_json(v, json);
    if (r == 0)
        r = trace_owners_json(v, json);
    sites_json(v, json);
    v->used = NULL;
    return r;
}
