/* pprof's Profile: see export.h. The message is described by profile.proto of google/pprof; numbers of its
 * fields stand below. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "base/version.h"
#include "profile/export.h"
#include "profile/labels.h"
#include "profile/protobuf.h"
#include "profile/stacks.h"

enum {
    PROFILE_SAMPLE_TYPE = 1,
    PROFILE_SAMPLE = 2,
    PROFILE_MAPPING = 3,
    PROFILE_LOCATION = 4,
    PROFILE_FUNCTION = 5,
    PROFILE_STRING_TABLE = 6,
    PROFILE_TIME_NANOS = 9,
    PROFILE_PERIOD_TYPE = 11,
    PROFILE_PERIOD = 12,
    PROFILE_COMMENT = 13,
    PROFILE_DEFAULT_SAMPLE_TYPE = 14,

    VALUE_TYPE_TYPE = 1,
    VALUE_TYPE_UNIT = 2,

    SAMPLE_LOCATION_ID = 1,
    SAMPLE_VALUE = 2,
    SAMPLE_LABEL = 3,

    LABEL_KEY = 1,
    LABEL_STR = 2,

    MAPPING_ID = 1,
    MAPPING_MEMORY_START = 2,
    MAPPING_MEMORY_LIMIT = 3,
    MAPPING_FILENAME = 5,
    MAPPING_BUILD_ID = 6,
    MAPPING_HAS_FUNCTIONS = 7,
    MAPPING_HAS_FILENAMES = 8,
    MAPPING_HAS_LINE_NUMBERS = 9,
    MAPPING_HAS_INLINE_FRAMES = 10,

    LOCATION_ID = 1,
    LOCATION_MAPPING_ID = 2,
    LOCATION_ADDRESS = 3,
    LOCATION_LINE = 4,

    LINE_FUNCTION_ID = 1,
    LINE_LINE = 2,

    FUNCTION_ID = 1,
    FUNCTION_NAME = 2,
    FUNCTION_SYSTEM_NAME = 3,
    FUNCTION_FILENAME = 4,
};

enum { MESSAGE_MAX = 1 << 20, LEVEL = 6, GZIP_WINDOW = 15 + 16, PIECE = 1 << 16 };

/* Words that the message needs beyond those of the profile. */
enum word {
    WORD_ALLOC_OBJECTS,
    WORD_ALLOC_SPACE,
    WORD_INUSE_OBJECTS,
    WORD_INUSE_SPACE,
    WORD_COUNT,
    WORD_BYTES,
    WORD_SPACE,
    WORD_DEVICE,
    WORD_ESTIMATE,
    WORD_YES,
    WORD_COMMENT,
    WORDS,
};

struct pprof {
    struct profile *profile;
    struct labels labels;
    struct stacks stacks;
    profile_string words[WORDS];
    profile_string *build_ids; /* by module */
    uint32_t *strings;         /* numbers in the string table, by place in the profile's pool */
    struct numbers by_function;
    struct profile_line *functions; /* by id - 1 */
    size_t n_functions;
    struct buffer message, inner; /* parts under way */
    struct buffer out;
};

static void pprof_release(struct pprof *x)
{
    labels_release(&x->labels);
    stacks_release(&x->stacks);
    free(x->build_ids);
    free(x->strings);
    numbers_release(&x->by_function);
    free(x->functions);
    buffer_release(&x->message);
    buffer_release(&x->inner);
    buffer_release(&x->out);
}

static uint64_t string_of(const struct pprof *x, profile_string string)
{
    return x->strings[string];
}

/* ---- words first: the table of strings must be whole before anything refers to it ---- */

static int add_words(struct pprof *x)
{
    static const char *const words[WORDS] = {
        [WORD_ALLOC_OBJECTS] = "alloc_objects",
        [WORD_ALLOC_SPACE] = "alloc_space",
        [WORD_INUSE_OBJECTS] = "inuse_objects",
        [WORD_INUSE_SPACE] = "inuse_space",
        [WORD_COUNT] = "count",
        [WORD_BYTES] = "bytes",
        [WORD_SPACE] = "space",
        [WORD_DEVICE] = "device",
        [WORD_ESTIMATE] = "estimate",
        [WORD_YES] = "yes",
        [WORD_COMMENT] = ("memoir " MEMOIR_VERSION),
    };
    struct profile *p = x->profile;
    for (size_t i = 0; i < WORDS; i++)
        x->words[i] = profile_add_string(p, words[i]);
    x->build_ids = calloc(p->n_modules + 1, sizeof(*x->build_ids));
    if (!x->build_ids)
        return -ENOMEM;
    for (size_t i = 0; i < p->n_modules; i++) {
        char text[2 * PROFILE_BUILD_ID_MAX + 1] = "";
        for (size_t k = 0; k < p->modules[i].build_id_len; k++)
            snprintf(text + 2 * k, 3, "%02x", p->modules[i].build_id[k]);
        x->build_ids[i] = profile_add_string(p, text);
    }
    return profile_error(p);
}

/* Strings there are UTF-8; what is none in ours, which are strangers', is replaced. */
static void put_text(struct pprof *x, const char *text)
{
    while (*text) {
        size_t n = utf8_sequence(text, strnlen(text, 4));
        buffer_append(&x->message, n ? text : "?", n ? n : 1);
        text += n ? n : 1;
    }
    protobuf_message(&x->out, PROFILE_STRING_TABLE, &x->message);
}

static int put_strings(struct pprof *x)
{
    const struct profile *p = x->profile;
    uint32_t n = 0;
    x->strings = calloc(p->n_strings + 1, sizeof(*x->strings));
    if (!x->strings)
        return -ENOMEM;
    for (size_t at = 0; at < p->n_strings; at += strlen(p->strings + at) + 1) {
        x->strings[at] = n++;
        put_text(x, p->strings + at);
    }
    return 0;
}

/* ---- parts ---- */

static void put_value_type(struct pprof *x, unsigned field, enum word type, enum word unit)
{
    protobuf_number(&x->message, VALUE_TYPE_TYPE, string_of(x, x->words[type]));
    protobuf_number(&x->message, VALUE_TYPE_UNIT, string_of(x, x->words[unit]));
    protobuf_message(&x->out, field, &x->message);
}

/* Id 0 means none, so that ids are numbers plus 1. */
static void put_mappings(struct pprof *x)
{
    const struct profile *p = x->profile;
    for (size_t i = 0; i < p->n_modules; i++) {
        const struct profile_module *m = &p->modules[i];
        if (m->kind != PROFILE_MODULE_FILE)
            continue;
        protobuf_number(&x->message, MAPPING_ID, i + 1);
        protobuf_number(&x->message, MAPPING_MEMORY_START, m->map_start);
        protobuf_number(&x->message, MAPPING_MEMORY_LIMIT, m->map_end);
        protobuf_number(&x->message, MAPPING_FILENAME, string_of(x, m->path));
        protobuf_number(&x->message, MAPPING_BUILD_ID, string_of(x, x->build_ids[i]));
        /* All that could be known is in it: no other tool need look for more. */
        protobuf_number(&x->message, MAPPING_HAS_FUNCTIONS, 1);
        protobuf_number(&x->message, MAPPING_HAS_FILENAMES, 1);
        protobuf_number(&x->message, MAPPING_HAS_LINE_NUMBERS, 1);
        protobuf_number(&x->message, MAPPING_HAS_INLINE_FRAMES, 1);
        protobuf_message(&x->out, PROFILE_MAPPING, &x->message);
    }
}

static uint64_t function_id(struct pprof *x, const struct profile_line *line)
{
    struct numbers_walk walk;
    uint64_t hash = hash_combine(hash_combine(x->profile->seed, line->function), line->file);
    for (uint32_t n = numbers_first(&x->by_function, hash, &walk); n != NUMBERS_NONE;
         n = numbers_next(&x->by_function, &walk))
        if (x->functions[n].function == line->function && x->functions[n].file == line->file)
            return (uint64_t)n + 1;
    if (numbers_add(&x->by_function, hash, (uint32_t)x->n_functions) < 0)
        x->out.error = -ENOMEM;
    x->functions[x->n_functions++] = *line;
    return x->n_functions;
}

static void put_locations(struct pprof *x)
{
    const struct profile *p = x->profile;
    for (size_t i = 0; i < p->n_frames; i++) {
        const struct profile_frame *f = &p->frames[i];
        const struct profile_module *m = &p->modules[f->module];
        bool file = m->kind == PROFILE_MODULE_FILE;
        protobuf_number(&x->message, LOCATION_ID, i + 1);
        protobuf_number(&x->message, LOCATION_MAPPING_ID, file ? f->module + UINT64_C(1) : 0);
        protobuf_number(&x->message, LOCATION_ADDRESS, file ? f->offset + m->bias : f->offset);
        for (uint32_t k = x->labels.first[i]; k < x->labels.first[i + 1]; k++) {
            protobuf_number(&x->inner, LINE_FUNCTION_ID, function_id(x, &x->labels.list[k]));
            protobuf_number(&x->inner, LINE_LINE, x->labels.list[k].line);
            protobuf_message(&x->message, LOCATION_LINE, &x->inner);
        }
        protobuf_message(&x->out, PROFILE_LOCATION, &x->message);
    }
}

static void put_functions(struct pprof *x)
{
    for (size_t i = 0; i < x->n_functions; i++) {
        uint64_t name = string_of(x, x->functions[i].function);
        protobuf_number(&x->message, FUNCTION_ID, i + 1);
        protobuf_number(&x->message, FUNCTION_NAME, name);
        protobuf_number(&x->message, FUNCTION_SYSTEM_NAME, name);
        protobuf_number(&x->message, FUNCTION_FILENAME, string_of(x, x->functions[i].file));
        protobuf_message(&x->out, PROFILE_FUNCTION, &x->message);
    }
}

static void put_label(struct pprof *x, enum word key, profile_string value)
{
    protobuf_number(&x->inner, LABEL_KEY, string_of(x, x->words[key]));
    protobuf_number(&x->inner, LABEL_STR, string_of(x, value));
    protobuf_message(&x->message, SAMPLE_LABEL, &x->inner);
}

/* Values are signed there. */
static uint64_t within(uint64_t value)
{
    return value > INT64_MAX ? INT64_MAX : value;
}

static void put_sample(struct pprof *x, const struct stack *s)
{
    const struct profile_account *a = &x->profile->accounts[s->account];
    const struct profile_figures *f = &s->figures;
    const uint64_t values[] = {f->alloc_blocks, f->alloc_bytes, f->live_blocks, f->live_bytes};
    for (size_t i = 0; i < s->n_frames; i++)
        varint_put(&x->inner, s->frames[i] + UINT64_C(1));
    protobuf_message(&x->message, SAMPLE_LOCATION_ID, &x->inner);
    for (size_t i = 0; i < 4; i++)
        varint_put(&x->inner, within(values[i]));
    protobuf_message(&x->message, SAMPLE_VALUE, &x->inner);
    put_label(x, WORD_SPACE, a->name);
    if (a->has_device)
        put_label(x, WORD_DEVICE, a->device_uid ? a->device_uid : a->device_name);
    if (s->estimate)
        put_label(x, WORD_ESTIMATE, x->words[WORD_YES]);
    protobuf_message(&x->out, PROFILE_SAMPLE, &x->message);
}

static int put_all(struct pprof *x, const struct export_options *o)
{
    static const enum word shown[] = {
        [ROWS_LIVE] = WORD_INUSE_SPACE,
        [ROWS_ALLOCATED] = WORD_ALLOC_SPACE,
        [ROWS_BLOCKS] = WORD_INUSE_OBJECTS,
    };
    const struct profile *p = x->profile;
    size_t lines = x->labels.first[p->n_frames];
    x->functions = calloc(lines + 1, sizeof(*x->functions));
    if (!x->functions)
        return -ENOMEM;
    int r = put_strings(x);
    if (r < 0)
        return r;
    put_value_type(x, PROFILE_SAMPLE_TYPE, WORD_ALLOC_OBJECTS, WORD_COUNT);
    put_value_type(x, PROFILE_SAMPLE_TYPE, WORD_ALLOC_SPACE, WORD_BYTES);
    put_value_type(x, PROFILE_SAMPLE_TYPE, WORD_INUSE_OBJECTS, WORD_COUNT);
    put_value_type(x, PROFILE_SAMPLE_TYPE, WORD_INUSE_SPACE, WORD_BYTES);
    for (size_t i = 0; i < x->stacks.n; i++)
        if (!o->space || p->accounts[x->stacks.list[i].account].space == o->space)
            put_sample(x, &x->stacks.list[i]);
    put_mappings(x);
    put_locations(x);
    put_functions(x);
    protobuf_number(&x->out, PROFILE_TIME_NANOS, within(p->taken_real_ns));
    put_value_type(x, PROFILE_PERIOD_TYPE, WORD_SPACE, WORD_BYTES);
    protobuf_number(&x->out, PROFILE_PERIOD, 1); /* every byte counts */
    protobuf_number(&x->out, PROFILE_COMMENT, string_of(x, x->words[WORD_COMMENT]));
    protobuf_number(&x->out, PROFILE_DEFAULT_SAMPLE_TYPE,
                    string_of(x, x->words[shown[o->measure]]));
    return x->out.error;
}

/* ---- packing ---- */

static int gzip(const struct buffer *plain, struct buffer *out)
{
    z_stream z = {0};
    if (deflateInit2(&z, LEVEL, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return -ENOMEM;
    z.next_in = (Bytef *)plain->data;
    z.avail_in = (uInt)plain->len; /* less than EXPORT_MAX */
    int state = Z_OK;
    while (state == Z_OK) {
        char *to = buffer_reserve(out, PIECE);
        if (!to)
            break;
        z.next_out = (Bytef *)to;
        z.avail_out = PIECE;
        state = deflate(&z, Z_FINISH);
        buffer_commit(out, PIECE - z.avail_out);
    }
    deflateEnd(&z);
    return out->error;
}

int export_pprof(struct profile *p, const struct export_options *o, struct buffer *out)
{
    MEMOIR_CLEANUP(pprof_release)
    struct pprof x = {
        .profile = p,
        .message = BUFFER_INIT(MESSAGE_MAX),
        .inner = BUFFER_INIT(MESSAGE_MAX),
        .out = BUFFER_INIT(EXPORT_MAX),
    };
    int r = labels_take(p, &x.labels);
    if (r == 0)
        r = stacks_take(p, &x.stacks);
    if (r == 0)
        r = add_words(&x);
    if (r == 0)
        r = put_all(&x, o);
    return r < 0 ? r : gzip(&x.out, out);
}
