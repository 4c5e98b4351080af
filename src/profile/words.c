/* See words.h. */
#include "profile/words.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "profile/headline.h"
#include "profile/names.h"
#include "site/short_name.h"

enum { TEXT_MAX = 1 << 16, ISO_TIME_MAX = 40 };

/* ---- words ---- */

void words_frame(const struct profile *p, uint32_t frame, size_t line, struct buffer *out)
{
    char text[PROFILE_LABEL_MAX], name[SHORT_NAME_MAX];
    bool script = p->modules[p->frames[frame].module].kind == PROFILE_MODULE_SCRIPT;
    const char *place = profile_place(p, frame, line, text);
    if (*place)
        buffer_printf(out, "%s %s", place, script ? "in " : "");
    const char *function = profile_function(p, frame, line, text);
    buffer_append_str(out, script ? function : short_name(function, name));
}

size_t words_lines(const struct profile *p, uint32_t frame)
{
    size_t n = p->frames[frame].n_lines;
    return n ? n : 1;
}

static void append_calls(const struct row *row, bool utf8, struct buffer *out)
{
    for (size_t i = 0; i < row->n_frames; i++)
        for (size_t k = 0; k < words_lines(row->profile, row->frames[i]); k++) {
            if (i || k)
                buffer_append_str(out, utf8 ? " \xe2\x86\x90 " : " < ");
            words_frame(row->profile, row->frames[i], k, out);
        }
    if (row->cut)
        buffer_append_str(out, " ...");
}

void words_device(const struct profile *p, const struct profile_account *a, struct buffer *out)
{
    if (!a->has_device)
        buffer_append_str(out, "host");
    else if (a->ordinal >= 0)
        buffer_printf(out, "%d %s", a->ordinal, profile_text(p, a->device_name));
    else
        buffer_append_str(out, profile_text(p, a->device_name));
}

void words_site(const struct row *row, enum rows_by by, bool utf8, struct buffer *out)
{
    const struct profile *p = row->profile;
    const struct profile_account *a = &p->accounts[row->account];
    char text[PROFILE_LABEL_MAX], name[SHORT_NAME_MAX];
    if (by == ROWS_BY_SPACE) {
        buffer_append_str(out, profile_text(p, a->name));
        return;
    }
    if (by == ROWS_BY_DEVICE) {
        words_device(p, a, out);
        return;
    }
    if (!row->frames) {
        buffer_append_str(out, "[unknown]");
        return;
    }
    uint32_t frame = row->frames[0];
    const struct profile_frame *f = &p->frames[frame];
    const struct profile_line *line =
        f->n_lines ? &p->lines[f->first_line + headline_line(p, frame)] : NULL;
    const char *path = profile_module_path(p, frame);
    switch (by) {
    case ROWS_BY_STACK:
        append_calls(row, utf8, out);
        break;
    case ROWS_BY_FUNCTION:
        buffer_append_str(
            out, short_name(profile_function(p, frame, headline_line(p, frame), text), name));
        break;
    case ROWS_BY_FILE:
        if (line && line->file)
            buffer_append_str(out, profile_text(p, line->file));
        else
            buffer_printf(out, "[%s]", *path ? profile_base_name(path) : "unknown");
        break;
    case ROWS_BY_MODULE:
        buffer_append_str(out, *path ? path : "[unknown]");
        break;
    default:
        words_frame(p, frame, headline_line(p, frame), out);
    }
}

void words_via(const struct row *row, enum rows_by by, struct buffer *out)
{
    if (row->frames && by == ROWS_BY_CALLER)
        headline_via(row->profile, row->frames - row->inside, row->inside + (size_t)1, out);
}

void words_folded(const struct row *row, struct buffer *out)
{
    char text[PROFILE_LABEL_MAX];
    for (size_t i = row->n_frames; i-- > 0;)
        for (size_t k = words_lines(row->profile, row->frames[i]); k-- > 0;) {
            if (out->len)
                buffer_append_char(out, ';');
            buffer_append_str(out, profile_function(row->profile, row->frames[i], k, text));
        }
}

/* ---- JSON ---- */

static void field_text(struct json *json, const char *key, const char *text)
{
    json_field_string(json, key, text && *text ? text : NULL);
}

static void field_time(struct json *json, const char *key, uint64_t real_ns)
{
    char text[ISO_TIME_MAX], whole[ISO_TIME_MAX + 8];
    time_t seconds = (time_t)(real_ns / NS_PER_S);
    struct tm tm;
    if (!real_ns || !gmtime_r(&seconds, &tm) || !strftime(text, sizeof(text), "%FT%T", &tm)) {
        json_field_null(json, key);
        return;
    }
    snprintf(whole, sizeof(whole), "%s.%03uZ", text, (unsigned)(real_ns % NS_PER_S / NS_PER_MS));
    json_field_string(json, key, whole);
}

static void field_known(struct json *json, const char *key, bool known, uint64_t number)
{
    if (known)
        json_field_u64(json, key, number);
    else
        json_field_null(json, key);
}

static uint64_t per_second(uint64_t n, uint64_t ns)
{
    return (uint64_t)((unsigned __int128)n * NS_PER_S / ns);
}

static uint64_t grown(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0;
}

static void json_rates(const struct row *row, uint64_t ns, struct json *json)
{
    const struct profile_figures *now = &row->now, *before = &row->before;
    if (!ns) {
        json_field_null(json, "growth");
        json_field_null(json, "allocated_rate");
        json_field_null(json, "calls_rate");
        return;
    }
    int64_t change = rows_change(now->live_bytes, before->live_bytes);
    uint64_t size = per_second(change < 0 ? -(uint64_t)change : (uint64_t)change, ns);
    json_field_i64(json, "growth", change < 0 ? -(int64_t)size : (int64_t)size);
    json_field_u64(json, "allocated_rate",
                   per_second(grown(now->alloc_bytes, before->alloc_bytes), ns));
    json_field_u64(json, "calls_rate",
                   per_second(grown(now->alloc_blocks, before->alloc_blocks), ns));
}

static void json_figures(const struct profile *p, const struct rows *rows, const struct row *row,
                         const struct words_json *o, struct json *json)
{
    const struct profile_figures *f = &row->now;
    uint64_t value = rows_value(f, o->measure), all = rows_value(&rows->now, o->measure);
    json_field_u64(json, "bytes", f->live_bytes);
    json_key(json, "percent");
    if (all)
        json_double(json, (double)(uint64_t)((unsigned __int128)value * 10000 / all) / 100);
    else
        json_null(json);
    json_field_u64(json, "blocks", f->live_blocks);
    json_field_u64(json, "allocated", f->alloc_bytes);
    json_field_u64(json, "allocated_blocks", f->alloc_blocks);
    json_rates(row, o->rate_ns, json);
    json_key(json, "age");
    if (row->first_seen_ns)
        json_double(json, (double)(grown(p->taken_real_ns, row->first_seen_ns) / NS_PER_MS) / 1000);
    else
        json_null(json);
    field_time(json, "first_seen", row->first_seen_ns);
    json_field_u64(json, "call_sites", row->sites);
}

static void json_place(const struct row *row, enum rows_by by, struct json *json)
{
    const struct profile *p = row->profile;
    const struct profile_account *a = &p->accounts[row->account];
    bool device = by != ROWS_BY_SPACE && a->has_device;
    field_text(json, "space", by != ROWS_BY_DEVICE ? profile_text(p, a->name) : NULL);
    field_known(json, "ordinal", device && a->ordinal >= 0, (uint64_t)a->ordinal);
    json_field_string(json, "device_name", device ? profile_text(p, a->device_name) : NULL);
    field_text(json, "device_uid", device ? profile_text(p, a->device_uid) : NULL);
}

/* What a row of this kind has in common: a row by file has no one function. */
static void json_code(const struct row *row, enum rows_by by, struct json *json)
{
    const struct profile *p = row->profile;
    bool code = row->frames && by < ROWS_BY_SPACE;
    uint32_t frame = code ? row_headline(row, by) : 0;
    const struct profile_frame *f = code ? &p->frames[frame] : NULL;
    const struct profile_line *line =
        f && f->n_lines ? &p->lines[f->first_line + headline_line(p, frame)] : NULL;
    const char *path = code ? profile_module_path(p, frame) : "";
    MEMOIR_CLEANUP(buffer_release)
    struct buffer address = BUFFER_INIT(PROFILE_STRING_MAX + 32);
    field_text(json, "function",
               line && line->function && by <= ROWS_BY_FUNCTION ? profile_text(p, line->function)
                                                                : NULL);
    field_text(json, "source_file",
               line && line->file && (by <= ROWS_BY_STACK || by == ROWS_BY_FILE)
                   ? profile_text(p, line->file)
                   : NULL);
    field_known(json, "line", line && line->line && by <= ROWS_BY_STACK, line ? line->line : 0);
    field_text(json, "module", by != ROWS_BY_FILE ? path : NULL);
    if (*path && by <= ROWS_BY_STACK)
        buffer_printf(&address, "%s+0x%" PRIx64, path, f->offset);
    field_text(json, "frame", buffer_string(&address));
}

void words_json_row(const struct profile *p, const struct rows *rows, const struct row *row,
                    const struct words_json *o, struct json *json)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(TEXT_MAX);
    json_figures(p, rows, row, o, json);
    json_place(row, o->by, json);
    words_site(row, o->by, true, &text);
    json_field_string(json, "site", buffer_string(&text));
    buffer_reset(&text);
    words_via(row, o->by, &text);
    field_text(json, "via", buffer_string(&text));
    json_code(row, o->by, json);
    json_field_bool(json, "estimated", row->estimate);
    buffer_reset(&text);
    bool stack = row->frames && (o->by == ROWS_BY_STACK || o->stacks);
    if (stack)
        words_folded(row, &text);
    json_field_string(json, "stack", stack ? buffer_string(&text) : NULL);
}

void words_json_frames(const struct row *row, struct json *json)
{
    const struct profile *p = row->profile;
    json_key(json, "frames");
    json_array_begin(json);
    for (size_t i = 0; row->frames && i < row->n_frames; i++)
        for (size_t k = 0; k < words_lines(p, row->frames[i]); k++) {
            const struct profile_frame *f = &p->frames[row->frames[i]];
            const struct profile_line *line = k < f->n_lines ? &p->lines[f->first_line + k] : NULL;
            json_object_begin(json);
            json_field_string(json, "function",
                              line && line->function ? profile_text(p, line->function) : NULL);
            json_field_string(json, "source_file",
                              line && line->file ? profile_text(p, line->file) : NULL);
            field_known(json, "line", line && line->line, line ? line->line : 0);
            field_text(json, "module", profile_module_path(p, row->frames[i]));
            json_field_u64(json, "offset", f->offset);
            json_field_bool(json, "inlined", k + 1 < words_lines(p, row->frames[i]));
            json_object_end(json);
        }
    json_array_end(json);
}

void words_json_head(const struct profile *p, const struct rows *rows, const struct words_json *o,
                     struct json *json)
{
    json_key(json, "pid");
    if (p->pid)
        json_i64(json, p->pid);
    else
        json_null(json);
    json_field_string(json, "program", profile_text(p, p->program));
    json_field_u64(json, "processes", p->processes);
    field_time(json, "taken", p->taken_real_ns);
    json_field_string(json, "by", rows_by_words[o->by]);
    json_field_bool(json, "at_peak", p->at_peak);
    json_field_u64(json, "matched", rows->n);
    json_field_u64(json, "bytes", rows->now.live_bytes);
    json_field_u64(json, "blocks", rows->now.live_blocks);
    json_field_u64(json, "allocated", rows->now.alloc_bytes);
    json_field_u64(json, "allocated_blocks", rows->now.alloc_blocks);
    json_field_u64(json, "bytes_estimated", rows->estimated.live_bytes);
    field_known(json, "accounted", !o->diff && !o->filtered, p->accounted.live_bytes);
    json_key(json, "interval");
    if (o->rate_ns)
        json_double(json, (double)o->rate_ns / 1e9);
    else
        json_null(json);
}

void words_json_rows(const struct profile *p, const struct rows *rows, const struct words_json *o,
                     struct json *json)
{
    words_json_head(p, rows, o, json);
    json_key(json, "sites");
    json_array_begin(json);
    for (size_t i = 0; i < rows->n && i < o->top; i++) {
        json_object_begin(json);
        words_json_row(p, rows, &rows->list[i], o, json);
        if (o->stacks || o->by == ROWS_BY_STACK)
            words_json_frames(&rows->list[i], json);
        json_object_end(json);
    }
    json_array_end(json);
}
