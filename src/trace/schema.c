/* Tables of fields, and what is done with them. See schema.h. */
#include "trace/schema.h"

#include <assert.h>
#include <string.h>

#include "base/buffer.h"
#include "base/json.h"
#include "base/json_read.h"
#include "base/varint.h"
#include "trace/history.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const char *const kind_words[] = {"none", "alloc", "free",     "restore", "failed",
                                         "copy", "set",   "prefetch", "reset",   "system",
                                         "gap",  "exit",  "found"};
static const char *const direction_words[] = {"unknown", "to_device", "from_device", "on_device",
                                              "on_host"};
static const char *const system_words[] = {"none",  "fault",  "reclaim", "migrate", "huge",
                                           "split", "advise", "lock",    "unlock",  "oom"};
static const char *const state_words[] = {NULL, "allocated", "freed", "unknown"};
static const char *const end_words[] = {"none", "free", "reset", "exit", "lost"};
static const char *const class_words[] = {"own",    "shared",   "registered", "virtual",
                                          "system", "implicit", "graph"};
static const char *const space_words[] = {
    [0] = "unknown", [1] = "heap",  [2] = "mapped",  [3] = "pinned",  [4] = "managed",
    [5] = "shared",  [6] = "chain", [16] = "dram",   [17] = "l1",     [18] = "l1_small",
    [19] = "trace",  [20] = "cb",   [21] = "kernel", [22] = "system",
};
static_assert(COUNT(direction_words) == TRACE_DIRECTIONS &&
                  COUNT(system_words) == TRACE_SYSTEM_KINDS && COUNT(class_words) == TRACE_CLASSES,
              "every value has a word");

#define FIELD(record, member, kind)                                             \
    {                                                                           \
        .name = #member, .offset = offsetof(struct record, member), .count = 1, \
        .type = SCHEMA_##kind                                                   \
    }
#define ALWAYS(record, member, kind)                                            \
    {                                                                           \
        .name = #member, .offset = offsetof(struct record, member), .count = 1, \
        .type = SCHEMA_##kind, .always = true                                   \
    }
#define TEXT(record, member)                                                    \
    {                                                                           \
        .name = #member, .offset = offsetof(struct record, member), .count = 1, \
        .type = SCHEMA_TEXT, .size = sizeof(((struct record *)0)->member)       \
    }
#define WORD(record, member, table)                                                  \
    {                                                                                \
        .name = #member, .offset = offsetof(struct record, member), .count = 1,      \
        .type = SCHEMA_WORD, .words = table, .n_words = COUNT(table), .always = true \
    }
#define ARRAY(record, member, kind, table)                                                 \
    {                                                                                      \
        .name = #member, .offset = offsetof(struct record, member), .count = COUNT(table), \
        .type = SCHEMA_##kind, .words = table, .n_words = COUNT(table)                     \
    }
#define SCHEMA(name) const struct schema schema_##name = {name##_fields, COUNT(name##_fields)}

static const struct schema_field identity_fields[] = {
    ALWAYS(trace_identity, pid, I32),
    ALWAYS(trace_identity, uid, U32),
    FIELD(trace_identity, start_ticks, U64),
    FIELD(trace_identity, start_ns, U64),
    FIELD(trace_identity, start_real_ns, U64),
    TEXT(trace_identity, name),
    TEXT(trace_identity, host),
};
SCHEMA(identity);

static const struct schema_field totals_fields[] = {
    ALWAYS(trace_totals, events, U64),
    FIELD(trace_totals, first_ns, U64),
    FIELD(trace_totals, last_ns, U64),
    ALWAYS(trace_totals, live_blocks, U64),
    ALWAYS(trace_totals, live_bytes, U64),
    FIELD(trace_totals, peak_bytes, U64),
    FIELD(trace_totals, device_bytes, U64),
    FIELD(trace_totals, device_peak_bytes, U64),
    FIELD(trace_totals, allocated_blocks, U64),
    FIELD(trace_totals, allocated_bytes, U64),
    FIELD(trace_totals, freed_blocks, U64),
    FIELD(trace_totals, freed_bytes, U64),
    ARRAY(trace_totals, flow, FLOW, direction_words),
    FIELD(trace_totals, pageable, FLOW),
    FIELD(trace_totals, repeated, U64),
    FIELD(trace_totals, repeated_bytes, U64),
    FIELD(trace_totals, failures, U64),
    ARRAY(trace_totals, system, U64, system_words),
    FIELD(trace_totals, exit_ns, U64),
    FIELD(trace_totals, exit_result, I32),
    FIELD(trace_totals, kept_blocks, U64),
    FIELD(trace_totals, active_blocks, U64),
    FIELD(trace_totals, implicit_blocks, U64),
    FIELD(trace_totals, holders, U64),
    FIELD(trace_totals, sites, U64),
    FIELD(trace_totals, gaps, U64),
    FIELD(trace_totals, gap_events, U64),
    FIELD(trace_totals, folded_blocks, U64),
    FIELD(trace_totals, folded_implicit, U64),
    FIELD(trace_totals, merged_implicit, U64),
    FIELD(trace_totals, unkept_blocks, U64),
    FIELD(trace_totals, unkept_moments, U64),
    FIELD(trace_totals, unknown_frees, U64),
    FIELD(trace_totals, unknown_restores, U64),
    FIELD(trace_totals, unknown_sides, U64),
    FIELD(trace_totals, superseded, U64),
    FIELD(trace_totals, unkept_holders, U64),
    FIELD(trace_totals, invalid, U64),
    FIELD(trace_totals, failed_copies, U64),
    FIELD(trace_totals, late, U64),
    FIELD(trace_totals, waits, U64),
};
SCHEMA(totals);

static const struct schema_field block_fields[] = {
    ALWAYS(trace_block, address, U64),     ALWAYS(trace_block, size, U64),
    WORD(trace_block, state, state_words), WORD(trace_block, class, class_words),
    WORD(trace_block, space, space_words), ALWAYS(trace_block, device, I32),
    FIELD(trace_block, active, BOOL),      FIELD(trace_block, found, BOOL),
    FIELD(trace_block, context, U64),      FIELD(trace_block, call, U64),
    FIELD(trace_block, start_ns, U64),     FIELD(trace_block, end_ns, U64),
    WORD(trace_block, end, end_words),     FIELD(trace_block, site, U32),
    FIELD(trace_block, tid, I32),          FIELD(trace_block, flags, U32),
    FIELD(trace_block, function, U16),
};
SCHEMA(block);

static const struct schema_field activity_fields[] = {
    ARRAY(trace_block, flow, FLOW, direction_words),
    FIELD(trace_block, read, FLOW),
    FIELD(trace_block, written, FLOW),
    FIELD(trace_block, pageable, FLOW),
    FIELD(trace_block, sets, FLOW),
    FIELD(trace_block, prefetches, FLOW),
    FIELD(trace_block, first_copy_ns, U64),
    FIELD(trace_block, last_copy_ns, U64),
    FIELD(trace_block, repeated, U64),
    FIELD(trace_block, repeated_bytes, U64),
    ARRAY(trace_block, system, U64, system_words),
    ARRAY(trace_block, system_early, U64, system_words),
};
SCHEMA(activity);

static const struct schema_field repeat_fields[] = {
    ALWAYS(trace_repeat, offset, U64),
    ALWAYS(trace_repeat, size, U64),
    ALWAYS(trace_repeat, copies, U64),
    WORD(trace_repeat, direction, direction_words),
};
SCHEMA(repeat);

static const struct schema_field moment_fields[] = {
    ALWAYS(trace_moment, time_ns, U64),
    WORD(trace_moment, kind, kind_words),
    WORD(trace_moment, direction, direction_words),
    FIELD(trace_moment, offset, U64),
    ALWAYS(trace_moment, size, U64),
    FIELD(trace_moment, peer, U64),
    FIELD(trace_moment, call, U64),
    FIELD(trace_moment, site, U32),
    FIELD(trace_moment, tid, I32),
    FIELD(trace_moment, result, I32),
    WORD(trace_moment, detail, system_words),
    FIELD(trace_moment, flags, U8),
};
SCHEMA(moment);

static const struct schema_field holder_fields[] = {
    ALWAYS(trace_holder, site, U32),
    ALWAYS(trace_holder, device, I32),
    WORD(trace_holder, space, space_words),
    WORD(trace_holder, class, class_words),
    FIELD(trace_holder, allocated_blocks, U64),
    FIELD(trace_holder, allocated_bytes, U64),
    ALWAYS(trace_holder, live_blocks, U64),
    ALWAYS(trace_holder, live_bytes, U64),
    FIELD(trace_holder, freed_blocks, U64),
    FIELD(trace_holder, freed_bytes, U64),
    FIELD(trace_holder, lost_blocks, U64),
    FIELD(trace_holder, lost_bytes, U64),
    FIELD(trace_holder, exit_blocks, U64),
    FIELD(trace_holder, exit_bytes, U64),
    FIELD(trace_holder, found_blocks, U64),
    FIELD(trace_holder, found_bytes, U64),
    FIELD(trace_holder, peak_bytes, U64),
    FIELD(trace_holder, failures, U64),
    FIELD(trace_holder, failed_bytes, U64),
    ARRAY(trace_holder, flow, FLOW, direction_words),
    FIELD(trace_holder, pageable, FLOW),
    FIELD(trace_holder, repeated, U64),
    FIELD(trace_holder, repeated_bytes, U64),
    FIELD(trace_holder, never_copied_blocks, U64),
    FIELD(trace_holder, folded_blocks, U64),
};
SCHEMA(holder);

static const struct schema_field copier_fields[] = {
    ALWAYS(trace_copier, site, U32),     ARRAY(trace_copier, flow, FLOW, direction_words),
    FIELD(trace_copier, pageable, FLOW), FIELD(trace_copier, async, FLOW),
    FIELD(trace_copier, sets, FLOW),     FIELD(trace_copier, prefetches, FLOW),
    FIELD(trace_copier, repeated, U64),  FIELD(trace_copier, repeated_bytes, U64),
    FIELD(trace_copier, first_ns, U64),  FIELD(trace_copier, last_ns, U64),
};
SCHEMA(copier);

static const struct schema_field gap_fields[] = {
    ALWAYS(trace_gap, time_ns, U64),
    ALWAYS(trace_gap, lost, U64),
};
SCHEMA(gap);

static const struct schema_field failure_fields[] = {
    ALWAYS(trace_failure, number, U64),        ALWAYS(trace_failure, time_ns, U64),
    ALWAYS(trace_failure, size, U64),          FIELD(trace_failure, call, U64),
    FIELD(trace_failure, site, U32),           ALWAYS(trace_failure, result, I32),
    ALWAYS(trace_failure, device, I32),        FIELD(trace_failure, tid, I32),
    FIELD(trace_failure, function, U16),       WORD(trace_failure, space, space_words),
    FIELD(trace_failure, out_of_memory, BOOL), FIELD(trace_failure, repeats, U64),
    FIELD(trace_failure, held_bytes, U64),     FIELD(trace_failure, held_blocks, U64),
    FIELD(trace_failure, capacity_bytes, U64), FIELD(trace_failure, used_bytes, U64),
};
SCHEMA(failure);

static const struct schema_field failure_holder_fields[] = {
    ALWAYS(trace_failure_holder, site, U32),        WORD(trace_failure_holder, space, space_words),
    WORD(trace_failure_holder, class, class_words), ALWAYS(trace_failure_holder, bytes, U64),
    ALWAYS(trace_failure_holder, blocks, U64),
};
SCHEMA(failure_holder);

static const struct schema_field failure_other_fields[] = {
    ALWAYS(trace_failure_other, pid, I32),
    TEXT(trace_failure_other, name),
    ALWAYS(trace_failure_other, bytes, U64),
};
SCHEMA(failure_other);

/* ---- one value ---- */

uint64_t schema_zigzag(int64_t v)
{
    return (uint64_t)v << 1 ^ (uint64_t)(v >> 63);
}

int64_t schema_unzigzag(uint64_t v)
{
    return (int64_t)(v >> 1 ^ (0 - (v & 1)));
}

static size_t type_bytes(const struct schema_field *f)
{
    static const uint8_t bytes[] = {1, 2, 4, 4, 8, sizeof(bool), 1, sizeof(struct trace_flow), 0};
    return f->type == SCHEMA_TEXT ? f->size : bytes[f->type];
}

/* Integers as they are stored: signed ones in two's complement. */
static uint64_t value_get(const struct schema_field *f, const char *at)
{
    switch (type_bytes(f)) {
    case 1:
        return *(const uint8_t *)at;
    case 2:
        return *(const uint16_t *)(const void *)at;
    case 4:
        return f->type == SCHEMA_I32 ? (uint64_t)(int64_t) * (const int32_t *)(const void *)at
                                     : *(const uint32_t *)(const void *)at;
    default:
        return *(const uint64_t *)(const void *)at;
    }
}

/* False: it does not fit. */
static bool value_set(const struct schema_field *f, char *at, uint64_t v)
{
    switch ((enum schema_type)f->type) {
    case SCHEMA_BOOL:
        *(bool *)at = v != 0;
        return v <= 1;
    case SCHEMA_WORD:
        if (v >= f->n_words || !f->words[v])
            return false;
        *(uint8_t *)at = (uint8_t)v;
        return true;
    case SCHEMA_U8:
        *(uint8_t *)at = (uint8_t)v;
        return v <= UINT8_MAX;
    case SCHEMA_U16:
        *(uint16_t *)(void *)at = (uint16_t)v;
        return v <= UINT16_MAX;
    case SCHEMA_U32:
        *(uint32_t *)(void *)at = (uint32_t)v;
        return v <= UINT32_MAX;
    case SCHEMA_I32:
        *(int32_t *)(void *)at = (int32_t)v;
        return (int64_t)v >= INT32_MIN && (int64_t)v <= INT32_MAX;
    default:
        *(uint64_t *)(void *)at = v;
        return true;
    }
}

/* ---- binary ---- */

/* No record has more: about 70 numbers of 10 bytes, and texts of TRACE_NAME_MAX. */
enum { RECORD_BYTES_MAX = 2048 };

static char *number_put(char *to, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        *to++ = (char)(0x80 | (v & 0x7f));
    *to++ = (char)v;
    return to;
}

static char *value_put(const struct schema_field *f, const char *at, char *to)
{
    if (f->type == SCHEMA_TEXT) {
        size_t len = strnlen(at, f->size - 1u);
        to = number_put(to, len);
        memcpy(to, at, len);
        return to + len;
    }
    if (f->type == SCHEMA_FLOW) {
        const struct trace_flow *flow = (const void *)at;
        return number_put(number_put(to, flow->copies), flow->bytes);
    }
    uint64_t v = value_get(f, at);
    /* A word that the table lacks must not make a dump that cannot be read. */
    if (f->type == SCHEMA_WORD && (v >= f->n_words || !f->words[v]))
        v = f->words[0] ? 0 : 1;
    return number_put(to, f->type == SCHEMA_I32 ? schema_zigzag((int64_t)v) : v);
}

void schema_put(const struct schema *schema, const void *record, struct buffer *out)
{
    char *start = buffer_reserve(out, RECORD_BYTES_MAX), *to = start;
    if (!start)
        return;
    for (size_t i = 0; i < schema->n; i++) {
        const struct schema_field *f = &schema->fields[i];
        size_t bytes = type_bytes(f);
        for (unsigned k = 0; k < f->count; k++)
            to = value_put(f, (const char *)record + f->offset + k * bytes, to);
    }
    assert(to - start <= RECORD_BYTES_MAX);
    buffer_commit(out, (size_t)(to - start));
}

void schema_take(const struct schema *schema, struct varint_reader *in, void *record)
{
    for (size_t i = 0; i < schema->n && !in->bad; i++) {
        const struct schema_field *f = &schema->fields[i];
        for (unsigned k = 0; k < f->count; k++) {
            char *at = (char *)record + f->offset + k * type_bytes(f);
            uint64_t v = varint_take(in);
            if (f->type == SCHEMA_TEXT) {
                const uint8_t *text = v < f->size ? varint_bytes(in, v) : NULL;
                if (!text || memchr(text, '\0', v)) {
                    in->bad = true;
                    return;
                }
                memset(at, 0, f->size);
                memcpy(at, text, v);
            } else if (f->type == SCHEMA_FLOW) {
                *(struct trace_flow *)(void *)at = (struct trace_flow){v, varint_take(in)};
            } else if (!value_set(f, at,
                                  f->type == SCHEMA_I32 ? (uint64_t)schema_unzigzag(v) : v)) {
                in->bad = true;
                return;
            }
        }
    }
}

/* ---- JSON ---- */

static bool is_zero(const struct schema_field *f, const void *record)
{
    const char *at = (const char *)record + f->offset;
    for (size_t i = 0; i < f->count * type_bytes(f); i++)
        if (at[i])
            return false;
    return true;
}

static void value_put_json(const struct schema_field *f, const char *at, struct json *j)
{
    const struct trace_flow *flow = (const void *)at;
    uint64_t v = f->type == SCHEMA_TEXT ? 0 : value_get(f, at);
    switch ((enum schema_type)f->type) {
    case SCHEMA_TEXT:
        json_string_n(j, at, strnlen(at, f->size));
        break;
    case SCHEMA_FLOW:
        json_object_begin(j);
        json_field_u64(j, "copies", flow->copies);
        json_field_u64(j, "bytes", flow->bytes);
        json_object_end(j);
        break;
    case SCHEMA_WORD:
        json_string(j, v < f->n_words && f->words[v] ? f->words[v]
                       : f->words[0]                 ? f->words[0]
                                                     : f->words[1]);
        break;
    case SCHEMA_I32:
        json_i64(j, (int64_t)v);
        break;
    case SCHEMA_BOOL:
        json_bool(j, v);
        break;
    default:
        json_u64(j, v);
    }
}

void schema_put_json(const struct schema *schema, const void *record, struct json *j)
{
    for (size_t i = 0; i < schema->n; i++) {
        const struct schema_field *f = &schema->fields[i];
        if (!f->always && is_zero(f, record))
            continue;
        json_key(j, f->name);
        if (f->count == 1) {
            value_put_json(f, (const char *)record + f->offset, j);
            continue;
        }
        json_object_begin(j);
        struct schema_field one = *f;
        one.count = 1;
        for (unsigned k = 0; k < f->count; k++) {
            one.offset = (uint16_t)(f->offset + k * type_bytes(f));
            if (is_zero(&one, record))
                continue;
            json_key(j, f->words[k]);
            value_put_json(&one, (const char *)record + one.offset, j);
        }
        json_object_end(j);
    }
}

static bool flow_take_json(struct json_read *r, struct trace_flow *flow)
{
    struct json_text key;
    json_read_object(r);
    while (json_read_key(r, &key))
        if (json_text_is(&key, "copies"))
            json_read_u64(r, &flow->copies);
        else if (json_text_is(&key, "bytes"))
            json_read_u64(r, &flow->bytes);
        else
            json_read_skip(r);
    return true;
}

static bool word_take_json(const struct schema_field *f, struct json_read *r, char *at)
{
    struct json_text text;
    if (!json_read_string(r, &text))
        return true;
    for (unsigned i = 0; i < f->n_words; i++)
        if (f->words[i] && json_text_is(&text, f->words[i])) {
            *(uint8_t *)at = (uint8_t)i;
            return true;
        }
    json_read_fail(r, "unknown word");
    return true;
}

/* A text may have grown: the writer replaces each byte that is not UTF-8 by three. What does not fit is cut. */
static void text_take_json(const struct schema_field *f, const struct json_text *text,
                           struct json_read *r, char *at)
{
    char copy[4 * TRACE_NAME_MAX];
    if (json_text_copy(text, copy, sizeof(copy)) < 0) {
        json_read_fail(r, "text too long");
        return;
    }
    size_t len = strnlen(copy, f->size - 1u);
    while (len > 0 && ((unsigned char)copy[len] & 0xc0) == 0x80) /* not inside a character */
        len--;
    memset(at, 0, f->size);
    memcpy(at, copy, len);
}

static bool value_take_json(const struct schema_field *f, struct json_read *r, char *at)
{
    struct json_text text;
    uint64_t v = 0;
    int64_t i = 0;
    bool b = false;
    switch ((enum schema_type)f->type) {
    case SCHEMA_TEXT:
        if (json_read_string(r, &text))
            text_take_json(f, &text, r, at);
        return true;
    case SCHEMA_FLOW:
        return flow_take_json(r, (struct trace_flow *)(void *)at);
    case SCHEMA_WORD:
        return word_take_json(f, r, at);
    case SCHEMA_I32:
        if (json_read_i64(r, &i) && !value_set(f, at, (uint64_t)i))
            json_read_fail(r, "number out of range");
        return true;
    case SCHEMA_BOOL:
        if (json_read_bool(r, &b))
            value_set(f, at, b);
        return true;
    default:
        if (json_read_u64(r, &v) && !value_set(f, at, v))
            json_read_fail(r, "number out of range");
        return true;
    }
}

bool schema_take_json(const struct schema *schema, const struct json_text *key, struct json_read *r,
                      void *record)
{
    for (size_t i = 0; i < schema->n; i++) {
        const struct schema_field *f = &schema->fields[i];
        if (!json_text_is(key, f->name))
            continue;
        char *at = (char *)record + f->offset;
        if (f->count == 1)
            return value_take_json(f, r, at);
        struct json_text index;
        json_read_object(r);
        while (json_read_key(r, &index)) {
            unsigned k = 0;
            while (k < f->count && !json_text_is(&index, f->words[k]))
                k++;
            if (k < f->count)
                value_take_json(f, r, at + k * type_bytes(f));
            else
                json_read_skip(r);
        }
        return true;
    }
    return false;
}
