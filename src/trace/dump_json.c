/* Dumps as JSON. See dump_json.h.
 *
 * The reader takes the sections in any order, since tools like to sort keys: it first finds where each is. */
#include "trace/dump_json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/json.h"
#include "base/json_read.h"
#include "trace/dump.h"
#include "trace/dump_build.h"
#include "trace/schema.h"

#define FORMAT "memoir-trace"

/* ---- writing ---- */

static void put_hex(struct json *j, const char *key, const uint8_t *bytes, size_t n)
{
    char text[2 * TRACE_BUILD_ID_MAX + 1] = "";
    for (size_t i = 0; i < n; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    json_field_string(j, key, text);
}

static void put_frame(struct json *j, const struct trace_frame *f)
{
    const struct trace_line *lines;
    size_t n = trace_frame_lines(f, &lines);
    json_object_begin(j);
    if (f->module) {
        json_field_string(j, "module", f->module->path);
        if (f->module->build_id_len)
            put_hex(j, "build_id", f->module->build_id, f->module->build_id_len);
    }
    if (f->offset)
        json_field_u64(j, "offset", f->offset);
    if (n > 0) {
        json_key(j, "lines");
        json_array_begin(j);
        for (size_t i = 0; i < n; i++) {
            json_object_begin(j);
            json_field_string(j, "function", lines[i].function);
            json_field_string(j, "file", lines[i].file);
            json_field_u64(j, "line", lines[i].line);
            json_object_end(j);
        }
        json_array_end(j);
    }
    json_object_end(j);
}

static void put_sites(struct json *j, const struct trace_sites *sites)
{
    json_key(j, "sites");
    json_array_begin(j);
    for (uint32_t i = 1, last = trace_sites_last(sites); i <= last; i++) {
        const struct trace_site *site = trace_sites_get(sites, i);
        char key[17];
        if (!site)
            continue;
        snprintf(key, sizeof(key), "%016llx", (unsigned long long)site->key);
        json_object_begin(j);
        json_field_u64(j, "number", site->number);
        json_field_string(j, "key", key);
        if (site->cut)
            json_field_u64(j, "cut", site->cut);
        json_key(j, "frames");
        json_array_begin(j);
        for (unsigned k = 0; k < site->n_frames; k++)
            put_frame(j, &site->frames[k]);
        json_array_end(j);
        json_object_end(j);
    }
    json_array_end(j);
}

static void put_record(struct json *j, const struct schema *schema, const void *record)
{
    json_object_begin(j);
    schema_put_json(schema, record, j);
    json_object_end(j);
}

static void put_sums(struct json *j, const struct trace_history *h)
{
    json_key(j, "holders");
    json_array_begin(j);
    for (uint32_t i = 1; i < h->holders.holders.n; i++)
        put_record(j, &schema_holder, &holders_get(&h->holders, i)->sums);
    json_array_end(j);
    json_key(j, "copiers");
    json_array_begin(j);
    for (uint32_t i = 1; i < h->holders.copiers.n; i++)
        put_record(j, &schema_copier, copiers_get(&h->holders, i));
    json_array_end(j);
}

static void put_failure(struct json *j, const struct trace_failure *f)
{
    json_object_begin(j);
    schema_put_json(&schema_failure, f, j);
    json_key(j, "holders");
    json_array_begin(j);
    for (uint32_t i = 0; i < f->n_holders; i++)
        put_record(j, &schema_failure_holder, &f->holders[i]);
    json_array_end(j);
    json_key(j, "others");
    json_array_begin(j);
    for (uint32_t i = 0; i < f->n_others; i++)
        put_record(j, &schema_failure_other, &f->others[i]);
    json_array_end(j);
    json_object_end(j);
}

static void put_rows(struct json *j, const struct trace_history *h)
{
    uint64_t kept = h->totals.gaps < TRACE_GAPS_MAX ? h->totals.gaps : TRACE_GAPS_MAX;
    json_key(j, "gaps");
    json_array_begin(j);
    for (uint64_t i = h->totals.gaps - kept; i < h->totals.gaps; i++)
        put_record(j, &schema_gap, &h->gaps[i % TRACE_GAPS_MAX]);
    json_array_end(j);
    kept = h->n_failures < TRACE_FAILURES_MAX ? h->n_failures : TRACE_FAILURES_MAX;
    json_key(j, "failures");
    json_array_begin(j);
    for (uint64_t i = h->n_failures - kept + 1; i <= h->n_failures; i++)
        put_failure(j, h->failures[i % TRACE_FAILURES_MAX]);
    json_array_end(j);
}

static void put_line(struct json *j, const struct timeline_line *line, size_t n, uint32_t holder)
{
    json_object_begin(j);
    if (holder != UINT32_MAX)
        json_field_u64(j, "holder", holder);
    json_key(j, "last");
    json_array_begin(j);
    for (size_t i = 0; i < n; i++)
        json_u64(j, line->last[i]);
    json_array_end(j);
    json_key(j, "peak");
    json_array_begin(j);
    for (size_t i = 0; i < n; i++)
        json_u64(j, line->peak[i]);
    json_array_end(j);
    json_object_end(j);
}

static void put_timeline(struct json *j, struct timeline *t)
{
    size_t n = t->start_ns ? t->slot + 1u : 0;
    timeline_fill(t);
    json_key(j, "timeline");
    json_object_begin(j);
    json_field_u64(j, "start_ns", t->start_ns);
    json_field_u64(j, "step_ns", t->step_ns);
    json_field_u64(j, "slots", n);
    json_key(j, "device");
    put_line(j, t->device, n, UINT32_MAX);
    json_key(j, "lines");
    json_array_begin(j);
    for (uint32_t i = 0; i < t->n_lines; i++)
        put_line(j, t->lines[i], n, t->lines[i]->holder);
    json_array_end(j);
    json_object_end(j);
}

static void put_block(struct json *j, const struct trace_history *h, uint32_t slot)
{
    const struct trace_slot *s = pool_slot(&h->pool, slot);
    const struct trace_activity *a = s->activity;
    struct trace_block block;
    history_block_copy(h, slot, &block);
    json_object_begin(j);
    schema_put_json(&schema_block, &block, j);
    json_field_u64(j, "holder", s->holder);
    if (a) {
        schema_put_json(&schema_activity, &block, j);
        json_key(j, "repeats");
        json_array_begin(j);
        for (unsigned i = 0; i < TRACE_REPEATS && block.repeats[i].copies; i++)
            put_record(j, &schema_repeat, &block.repeats[i]);
        json_array_end(j);
        uint64_t kept = a->in_ring < a->ring_cap ? a->in_ring : a->ring_cap;
        json_field_u64(j, "moments_all", a->moments);
        json_key(j, "moments");
        json_array_begin(j);
        for (uint64_t i = a->in_ring - kept; i < a->in_ring; i++)
            put_record(j, &schema_moment, &a->ring[i & (a->ring_cap - 1)]);
        json_array_end(j);
    }
    json_object_end(j);
}

int dump_json_encode(struct trace_history *h, struct buffer *out)
{
    struct json j;
    struct trace_totals totals;
    history_enter(h);
    history_totals_fill(h, &totals);
    json_init(&j, out);
    json_object_begin(&j);
    json_field_string(&j, "format", FORMAT);
    json_field_u64(&j, "version", TRACE_DUMP_VERSION);
    json_key(&j, "process");
    put_record(&j, &schema_identity, &h->identity);
    json_key(&j, "totals");
    put_record(&j, &schema_totals, &totals);
    put_sites(&j, h->sites);
    put_sums(&j, h);
    put_rows(&j, h);
    put_timeline(&j, &h->timeline);
    json_key(&j, "blocks");
    json_array_begin(&j);
    for (uint32_t slot = 1; slot < h->pool.n_slots && !out->error; slot++)
        if (pool_slot(&h->pool, slot)->used)
            put_block(&j, h, slot);
    json_array_end(&j);
    json_object_end(&j);
    history_leave(h);
    return out->error ? out->error : json_finish(&j);
}

/* ---- reading ---- */

enum section {
    S_FORMAT,
    S_VERSION,
    S_PROCESS,
    S_TOTALS,
    S_SITES,
    S_HOLDERS,
    S_COPIERS,
    S_GAPS,
    S_FAILURES,
    S_TIMELINE,
    S_BLOCKS,
    SECTIONS
};
static const char *const section_names[SECTIONS] = {
    "format",  "version", "process",  "totals",   "sites",  "holders",
    "copiers", "gaps",    "failures", "timeline", "blocks",
};

struct decoder {
    struct json_read r;
    struct dump_builder b;
    struct buffer texts; /* of one site; places, not pointers, while it grows */
    struct {
        const char *at;
        size_t len;
    } sections[SECTIONS];
    int error; /* of the builder */
};

static bool fail(struct decoder *d, int error)
{
    if (error < 0 && d->error == 0)
        d->error = error;
    return error < 0 ? json_read_fail(&d->r, "not a history") : true;
}

static int sections_find(struct decoder *d, const char *text, size_t len)
{
    struct json_text key;
    struct json_read *r = &d->r;
    json_read_init(r, text, len);
    json_read_object(r);
    while (json_read_key(r, &key)) {
        const char *at = r->at;
        if (!json_read_skip(r))
            break;
        for (unsigned i = 0; i < SECTIONS; i++)
            if (json_text_is(&key, section_names[i])) {
                d->sections[i].at = at;
                d->sections[i].len = (size_t)(r->at - at);
            }
    }
    return json_read_finish(r);
}

/* Begin a section; false: it is not there. */
static bool section(struct decoder *d, enum section s)
{
    if (!d->sections[s].at)
        return false;
    json_read_init(&d->r, d->sections[s].at, d->sections[s].len);
    return true;
}

static int section_end(struct decoder *d)
{
    int r = json_read_finish(&d->r);
    return d->error ? d->error : r;
}

static void take_record(struct decoder *d, const struct schema *schema, void *record)
{
    struct json_text key;
    json_read_object(&d->r);
    while (json_read_key(&d->r, &key))
        if (!schema_take_json(schema, &key, &d->r, record))
            json_read_skip(&d->r);
}

/* Keep a text of a site; where it begins in `texts`. */
static size_t keep_text(struct decoder *d, const struct json_text *text)
{
    size_t at = d->texts.len;
    char *to = buffer_reserve(&d->texts, text->len + 1);
    int64_t n = to ? json_text_copy(text, to, text->len + 1) : 0;
    if (!to || n < 0)
        fail(d, to ? -EBADMSG : d->texts.error == -ENOBUFS ? -E2BIG : -ENOMEM);
    else
        buffer_commit(&d->texts, (size_t)n + 1);
    return at;
}

/* A site as it is read: pointers are places in `texts` until all is there. */
struct site_room {
    struct trace_frame frames[TRACE_FRAMES_MAX];
    struct trace_module modules[TRACE_FRAMES_MAX];
    struct trace_line lines[TRACE_FRAMES_MAX][TRACE_LINES_MAX];
};

static void take_line(struct decoder *d, struct trace_line *line)
{
    struct json_text key, text;
    uint64_t number = 0;
    size_t function = keep_text(d, &(struct json_text){"", 0, false}), file = function;
    json_read_object(&d->r);
    while (json_read_key(&d->r, &key))
        if (json_text_is(&key, "function") && json_read_string(&d->r, &text))
            function = keep_text(d, &text);
        else if (json_text_is(&key, "file") && json_read_string(&d->r, &text))
            file = keep_text(d, &text);
        else if (json_text_is(&key, "line"))
            json_read_u64(&d->r, &number);
        else
            json_read_skip(&d->r);
    if (number > UINT32_MAX)
        fail(d, -EBADMSG);
    *line = (struct trace_line){(const char *)function, (const char *)file, (uint32_t)number};
}

static void take_build_id(struct decoder *d, struct trace_module *module)
{
    struct json_text text;
    char hex[2 * TRACE_BUILD_ID_MAX + 1];
    if (!json_read_string(&d->r, &text))
        return;
    int64_t len = json_text_copy(&text, hex, sizeof(hex));
    if (len < 0 || len % 2 || strspn(hex, "0123456789abcdef") != (size_t)len) {
        fail(d, -EBADMSG);
        return;
    }
    module->build_id_len = (uint8_t)(len / 2);
    for (int64_t i = 0; i < len / 2; i++) {
        char byte[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        module->build_id[i] = (uint8_t)strtoul(byte, NULL, 16);
    }
}

static void take_frame(struct decoder *d, struct site_room *room, unsigned i)
{
    struct json_text key, text;
    struct trace_frame *f = &room->frames[i];
    bool has_module = false;
    *f = (struct trace_frame){.lines = room->lines[i]};
    room->modules[i] = (struct trace_module){0};
    json_read_object(&d->r);
    while (json_read_key(&d->r, &key)) {
        if (json_text_is(&key, "module") && json_read_string(&d->r, &text)) {
            room->modules[i].path = (const char *)keep_text(d, &text);
            has_module = true;
        } else if (json_text_is(&key, "build_id")) {
            take_build_id(d, &room->modules[i]);
        } else if (json_text_is(&key, "offset")) {
            json_read_u64(&d->r, &f->offset);
        } else if (json_text_is(&key, "lines")) {
            json_read_array(&d->r);
            while (json_read_item(&d->r))
                if (f->n_lines < TRACE_LINES_MAX)
                    take_line(d, &room->lines[i][f->n_lines++]);
                else
                    fail(d, -EBADMSG);
        } else {
            json_read_skip(&d->r);
        }
    }
    f->module = has_module ? &room->modules[i] : NULL;
}

static void take_key(struct decoder *d, uint64_t *ret_key)
{
    struct json_text text;
    char hex[17];
    if (!json_read_string(&d->r, &text))
        return;
    int64_t len = json_text_copy(&text, hex, sizeof(hex));
    if (len != 16 || strspn(hex, "0123456789abcdef") != 16)
        fail(d, -EBADMSG);
    else
        *ret_key = strtoull(hex, NULL, 16);
}

static void take_site(struct decoder *d, struct site_room *room)
{
    struct json_text key;
    uint64_t number = 0, site_key = 0, cut = 0;
    unsigned n = 0;
    buffer_reset(&d->texts);
    json_read_object(&d->r);
    while (json_read_key(&d->r, &key)) {
        if (json_text_is(&key, "number")) {
            json_read_u64(&d->r, &number);
        } else if (json_text_is(&key, "key")) {
            take_key(d, &site_key);
        } else if (json_text_is(&key, "cut")) {
            json_read_u64(&d->r, &cut);
        } else if (json_text_is(&key, "frames")) {
            json_read_array(&d->r);
            while (json_read_item(&d->r))
                if (n < TRACE_FRAMES_MAX)
                    take_frame(d, room, n++);
                else
                    fail(d, -EBADMSG);
        } else {
            json_read_skip(&d->r);
        }
    }
    if (d->r.error || cut > UINT16_MAX || number == 0 || number > TRACE_SITES_MAX) {
        fail(d, -EBADMSG);
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        if (room->frames[i].module)
            room->modules[i].path = d->texts.data + (uintptr_t)room->modules[i].path;
        for (unsigned k = 0; k < room->frames[i].n_lines; k++) {
            struct trace_line *line = &room->lines[i][k];
            line->function = d->texts.data + (uintptr_t)line->function;
            line->file = d->texts.data + (uintptr_t)line->file;
        }
    }
    struct trace_site site = {(uint32_t)number, (uint16_t)n, (uint16_t)cut, site_key, room->frames};
    if (trace_sites_get(d->b.history->sites, site.number)) {
        fail(d, -EBADMSG);
        return;
    }
    int e = trace_sites_define(d->b.history->sites, &site);
    fail(d, e == -ENOSPC ? -E2BIG : e == -EINVAL ? -EBADMSG : e);
}

static int take_sites(struct decoder *d)
{
    if (!section(d, S_SITES))
        return 0;
    struct site_room *room = malloc(sizeof(*room));
    if (!room)
        return -ENOMEM;
    json_read_array(&d->r);
    while (json_read_item(&d->r))
        take_site(d, room);
    free(room);
    return section_end(d);
}

static int take_sums(struct decoder *d)
{
    if (section(d, S_HOLDERS)) {
        json_read_array(&d->r);
        while (json_read_item(&d->r)) {
            struct trace_holder holder = {0};
            take_record(d, &schema_holder, &holder);
            fail(d, d->r.error ? -EBADMSG : dump_builder_holder(&d->b, &holder));
        }
        if (section_end(d) < 0)
            return section_end(d);
    }
    if (section(d, S_COPIERS)) {
        json_read_array(&d->r);
        while (json_read_item(&d->r)) {
            struct trace_copier copier = {0};
            take_record(d, &schema_copier, &copier);
            fail(d, d->r.error ? -EBADMSG : dump_builder_copier(&d->b, &copier));
        }
        return section_end(d);
    }
    return 0;
}

static void take_failure(struct decoder *d)
{
    struct json_text key;
    struct trace_failure f = {0};
    json_read_object(&d->r);
    while (json_read_key(&d->r, &key)) {
        if (json_text_is(&key, "holders")) {
            json_read_array(&d->r);
            while (json_read_item(&d->r))
                if (f.n_holders < TRACE_FAILURE_HOLDERS)
                    take_record(d, &schema_failure_holder, &f.holders[f.n_holders++]);
                else
                    fail(d, -EBADMSG);
        } else if (json_text_is(&key, "others")) {
            json_read_array(&d->r);
            while (json_read_item(&d->r))
                if (f.n_others < TRACE_FAILURE_OTHERS)
                    take_record(d, &schema_failure_other, &f.others[f.n_others++]);
                else
                    fail(d, -EBADMSG);
        } else if (!schema_take_json(&schema_failure, &key, &d->r, &f)) {
            json_read_skip(&d->r);
        }
    }
    fail(d, d->r.error ? -EBADMSG : dump_builder_failure(&d->b, &f));
}

static int take_rows(struct decoder *d)
{
    if (section(d, S_GAPS)) {
        json_read_array(&d->r);
        while (json_read_item(&d->r)) {
            struct trace_gap gap = {0};
            take_record(d, &schema_gap, &gap);
            fail(d, d->r.error ? -EBADMSG : dump_builder_gap(&d->b, &gap));
        }
        if (section_end(d) < 0)
            return section_end(d);
    }
    if (section(d, S_FAILURES)) {
        json_read_array(&d->r);
        while (json_read_item(&d->r))
            take_failure(d);
        return section_end(d);
    }
    return 0;
}

static uint64_t take_numbers(struct decoder *d, uint64_t numbers[static TRACE_TIMELINE_SLOTS])
{
    uint64_t n = 0;
    json_read_array(&d->r);
    while (json_read_item(&d->r))
        if (n < TRACE_TIMELINE_SLOTS)
            json_read_u64(&d->r, &numbers[n++]);
        else
            fail(d, -EBADMSG);
    return n;
}

static void take_timeline_line(struct decoder *d, uint64_t holder)
{
    struct json_text key;
    uint64_t last[TRACE_TIMELINE_SLOTS], peak[TRACE_TIMELINE_SLOTS], n_last = 0, n_peak = 0;
    const struct timeline *t = &d->b.history->timeline;
    json_read_object(&d->r);
    while (json_read_key(&d->r, &key))
        if (json_text_is(&key, "holder") && holder != UINT32_MAX)
            json_read_u64(&d->r, &holder);
        else if (json_text_is(&key, "last"))
            n_last = take_numbers(d, last);
        else if (json_text_is(&key, "peak"))
            n_peak = take_numbers(d, peak);
        else
            json_read_skip(&d->r);
    uint64_t n = t->start_ns ? t->slot + 1u : 0;
    bool bad = d->r.error || n_last != n || n_peak != n || holder > UINT32_MAX;
    fail(d, bad ? -EBADMSG : dump_builder_line(&d->b, (uint32_t)holder, last, peak));
}

/* Twice: the length of the lines may stand behind them. */
static int take_timeline(struct decoder *d)
{
    struct json_text key;
    uint64_t start = 0, step = 1, n = 0;
    if (!section(d, S_TIMELINE))
        return 0;
    json_read_object(&d->r);
    while (json_read_key(&d->r, &key))
        if (json_text_is(&key, "start_ns"))
            json_read_u64(&d->r, &start);
        else if (json_text_is(&key, "step_ns"))
            json_read_u64(&d->r, &step);
        else if (json_text_is(&key, "slots"))
            json_read_u64(&d->r, &n);
        else
            json_read_skip(&d->r);
    int r = section_end(d);
    if (r == 0)
        r = dump_builder_timeline(&d->b, start, step, n);
    if (r < 0)
        return r;
    section(d, S_TIMELINE);
    json_read_object(&d->r);
    while (json_read_key(&d->r, &key)) {
        if (json_text_is(&key, "device")) {
            take_timeline_line(d, UINT32_MAX);
        } else if (json_text_is(&key, "lines")) {
            json_read_array(&d->r);
            while (json_read_item(&d->r))
                take_timeline_line(d, 0);
        } else {
            json_read_skip(&d->r);
        }
    }
    return section_end(d);
}

static void take_block(struct decoder *d, struct trace_moment *moments)
{
    struct json_text key;
    struct trace_block block = {0};
    uint64_t holder = 0, all = 0;
    size_t n = 0, repeats = 0;
    bool has_activity = false;
    json_read_object(&d->r);
    while (json_read_key(&d->r, &key)) {
        if (json_text_is(&key, "holder")) {
            json_read_u64(&d->r, &holder);
        } else if (json_text_is(&key, "moments_all")) {
            json_read_u64(&d->r, &all);
            has_activity = true;
        } else if (json_text_is(&key, "repeats")) {
            json_read_array(&d->r);
            while (json_read_item(&d->r))
                if (repeats < TRACE_REPEATS)
                    take_record(d, &schema_repeat, &block.repeats[repeats++]);
                else
                    fail(d, -EBADMSG);
        } else if (json_text_is(&key, "moments")) {
            json_read_array(&d->r);
            while (json_read_item(&d->r)) {
                if (n == DUMP_MOMENTS_MAX) {
                    fail(d, -EBADMSG);
                    continue;
                }
                moments[n] = (struct trace_moment){0};
                take_record(d, &schema_moment, &moments[n++]);
            }
        } else if (!schema_take_json(&schema_block, &key, &d->r, &block) &&
                   !schema_take_json(&schema_activity, &key, &d->r, &block)) {
            json_read_skip(&d->r);
        }
    }
    for (size_t i = 0; i < repeats; i++)
        if (block.repeats[i].copies < 2 ||
            (i && block.repeats[i].copies > block.repeats[i - 1].copies))
            fail(d, -EBADMSG);
    bool bad = d->r.error || holder > UINT32_MAX;
    fail(d,
         bad ? -EBADMSG
             : dump_builder_block(&d->b, &block, (uint32_t)holder, has_activity, all, moments, n));
}

static int take_blocks(struct decoder *d)
{
    if (!section(d, S_BLOCKS))
        return 0;
    struct trace_moment *moments = malloc(DUMP_MOMENTS_MAX * sizeof(*moments));
    if (!moments)
        return -ENOMEM;
    json_read_array(&d->r);
    while (json_read_item(&d->r))
        take_block(d, moments);
    free(moments);
    return section_end(d);
}

/* Is it one of ours, of this version? */
static int take_format(struct decoder *d)
{
    struct json_text text;
    uint64_t version = 0;
    if (!section(d, S_FORMAT) || !json_read_string(&d->r, &text) || !json_text_is(&text, FORMAT) ||
        !section(d, S_VERSION) || !json_read_u64(&d->r, &version))
        return -EBADMSG;
    return version == TRACE_DUMP_VERSION ? 0 : -EPROTONOSUPPORT;
}

static int take_all(struct decoder *d)
{
    struct trace_history *h = d->b.history;
    int r = take_format(d);
    if (r == 0 && section(d, S_PROCESS)) {
        take_record(d, &schema_identity, &h->identity);
        r = section_end(d);
    }
    if (r == 0 && section(d, S_TOTALS)) {
        take_record(d, &schema_totals, &h->totals);
        r = section_end(d);
    }
    int (*const parts[])(struct decoder *) = {take_sites, take_sums, take_rows, take_timeline,
                                              take_blocks};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && r == 0; i++)
        r = parts[i](d);
    return r;
}

int dump_json_decode(const char *text, size_t len, struct trace_history **ret_history)
{
    struct decoder d = {
        .texts = BUFFER_INIT(2u * TRACE_FRAMES_MAX * TRACE_LINES_MAX * TRACE_STRING_MAX)};
    int r = sections_find(&d, text, len);
    if (r < 0)
        return r;
    r = dump_builder_init(&d.b);
    if (r == 0)
        r = take_all(&d);
    if (r == 0)
        r = dump_builder_finish(&d.b, ret_history);
    dump_builder_release(&d.b);
    buffer_release(&d.texts);
    return r;
}
