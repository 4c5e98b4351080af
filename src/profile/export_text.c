/* Folded stacks and speedscope's JSON. See export.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/version.h"
#include "profile/export.h"
#include "profile/labels.h"
#include "profile/stacks.h"

static bool wanted(const struct profile *p, const struct export_options *o, const struct stack *s)
{
    return !o->space || p->accounts[s->account].space == o->space;
}

/* ---- folded ---- */

/* The format gives ; and line ends a meaning. */
static void folded_name(struct buffer *out, const char *name)
{
    for (; *name; name++)
        buffer_append_char(out, *name == ';'                                   ? ':'
                                : (unsigned char)*name < 0x20 || *name == 0x7f ? '?'
                                                                               : *name);
}

static void folded_stack(const struct profile *p, const struct labels *labels,
                         const struct stack *s, uint64_t value, struct buffer *out)
{
    bool first = true;
    for (size_t i = s->n_frames; i-- > 0;) {
        uint32_t begin = labels->first[s->frames[i]];
        for (uint32_t k = labels->first[s->frames[i] + 1]; k-- > begin;) {
            if (!first)
                buffer_append_char(out, ';');
            folded_name(out, profile_text(p, labels->list[k].function));
            first = false;
        }
    }
    if (first)
        buffer_append_str(out, "[unknown]");
    buffer_printf(out, " %llu\n", (unsigned long long)value);
}

int export_folded(struct profile *p, const struct export_options *o, struct buffer *out)
{
    MEMOIR_CLEANUP(labels_release)
    struct labels labels = {0};
    MEMOIR_CLEANUP(stacks_release)
    struct stacks stacks = {0};
    int r = labels_take(p, &labels);
    if (r == 0)
        r = stacks_take(p, &stacks);
    if (r < 0)
        return r;
    for (size_t i = 0; i < stacks.n; i++) {
        uint64_t value = rows_value(&stacks.list[i].figures, o->measure);
        if (value && wanted(p, o, &stacks.list[i]))
            folded_stack(p, &labels, &stacks.list[i], value, out);
    }
    return out->error;
}

/* ---- speedscope ---- */

/* Its frames are functions in files: the lines of each by number. */
struct scope {
    struct profile *profile;
    struct labels labels;
    struct stacks stacks;
    const struct export_options *options;
    struct numbers by_function;
    uint32_t *frames;                  /* by number of a label */
    const struct profile_line **shown; /* by number of a frame of speedscope */
    size_t n;
};

static void scope_release(struct scope *s)
{
    labels_release(&s->labels);
    stacks_release(&s->stacks);
    numbers_release(&s->by_function);
    free(s->frames);
    free(s->shown);
}

static int scope_number(struct scope *s)
{
    size_t n = s->labels.first[s->profile->n_frames];
    s->frames = calloc(n + 1, sizeof(*s->frames));
    s->shown = calloc(n + 1, sizeof(*s->shown));
    if (!s->frames || !s->shown)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct profile_line *line = &s->labels.list[i];
        struct numbers_walk walk;
        uint64_t hash = hash_combine(hash_combine(s->profile->seed, line->function), line->file);
        uint32_t k = numbers_first(&s->by_function, hash, &walk);
        while (k != NUMBERS_NONE &&
               (s->shown[k]->function != line->function || s->shown[k]->file != line->file))
            k = numbers_next(&s->by_function, &walk);
        if (k == NUMBERS_NONE) {
            k = (uint32_t)s->n;
            s->shown[s->n++] = line;
            if (numbers_add(&s->by_function, hash, k) < 0)
                return -ENOMEM;
        }
        s->frames[i] = k;
    }
    return 0;
}

static void scope_frames(const struct scope *s, struct json *json)
{
    json_key(json, "shared");
    json_object_begin(json);
    json_key(json, "frames");
    json_array_begin(json);
    for (size_t i = 0; i < s->n; i++) {
        json_object_begin(json);
        json_field_string(json, "name", profile_text(s->profile, s->shown[i]->function));
        if (s->shown[i]->file)
            json_field_string(json, "file", profile_text(s->profile, s->shown[i]->file));
        json_object_end(json);
    }
    json_array_end(json);
    json_object_end(json);
}

static void scope_sample(const struct scope *s, const struct stack *stack, struct json *json)
{
    json_array_begin(json);
    for (size_t i = stack->n_frames; i-- > 0;) {
        uint32_t begin = s->labels.first[stack->frames[i]];
        for (uint32_t k = s->labels.first[stack->frames[i] + 1]; k-- > begin;)
            json_u64(json, s->frames[k]);
    }
    json_array_end(json);
}

static uint64_t part(const struct profile_figures *f, int which)
{
    const uint64_t parts[] = {f->live_bytes, f->alloc_bytes, f->live_blocks, f->alloc_blocks};
    return parts[which];
}

static void scope_profile(const struct scope *s, int which, struct json *json)
{
    static const char *const names[] = {"live bytes", "allocated bytes", "live blocks",
                                        "allocated blocks"};
    uint64_t sum = 0;
    json_object_begin(json);
    json_field_string(json, "type", "sampled");
    json_field_string(json, "name", names[which]);
    json_field_string(json, "unit", which < 2 ? "bytes" : "none");
    json_key(json, "samples");
    json_array_begin(json);
    for (size_t i = 0; i < s->stacks.n; i++)
        if (wanted(s->profile, s->options, &s->stacks.list[i]) &&
            part(&s->stacks.list[i].figures, which))
            scope_sample(s, &s->stacks.list[i], json);
    json_array_end(json);
    json_key(json, "weights");
    json_array_begin(json);
    for (size_t i = 0; i < s->stacks.n; i++) {
        uint64_t value = part(&s->stacks.list[i].figures, which);
        if (!wanted(s->profile, s->options, &s->stacks.list[i]) || !value)
            continue;
        json_u64(json, value);
        if (__builtin_add_overflow(sum, value, &sum))
            sum = UINT64_MAX;
    }
    json_array_end(json);
    json_field_u64(json, "startValue", 0);
    json_field_u64(json, "endValue", sum);
    json_object_end(json);
}

int export_speedscope(struct profile *p, const struct export_options *o, struct buffer *out)
{
    static const int active[] = {[ROWS_LIVE] = 0, [ROWS_ALLOCATED] = 1, [ROWS_BLOCKS] = 2};
    MEMOIR_CLEANUP(scope_release)
    struct scope s = {.profile = p, .options = o};
    int r = labels_take(p, &s.labels);
    if (r == 0)
        r = stacks_take(p, &s.stacks);
    if (r == 0)
        r = scope_number(&s);
    if (r < 0)
        return r;
    struct json json;
    json_init(&json, out);
    json_object_begin(&json);
    json_field_string(&json, "$schema", "https://www.speedscope.app/file-format-schema.json");
    json_field_string(&json, "exporter", "memoir " MEMOIR_VERSION);
    json_field_string(&json, "name", profile_text(p, p->program));
    json_field_u64(&json, "activeProfileIndex", (uint64_t)active[o->measure]);
    scope_frames(&s, &json);
    json_key(&json, "profiles");
    json_array_begin(&json);
    for (int which = 0; which < 4; which++)
        scope_profile(&s, which, &json);
    json_array_end(&json);
    json_object_end(&json);
    buffer_append_char(out, '\n');
    return json_finish(&json);
}
