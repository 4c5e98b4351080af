/* schema.h: what dumps hold, as tables. One table serves the binary writer and reader and the JSON writer and reader, so
 * that none can forget a field. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buffer;
struct varint_reader;
struct json;
struct json_read;
struct json_text;

enum schema_type {
    SCHEMA_U8,
    SCHEMA_U16,
    SCHEMA_U32,
    SCHEMA_I32,
    SCHEMA_U64,
    SCHEMA_BOOL,
    SCHEMA_WORD, /* uint8_t that `words` names */
    SCHEMA_FLOW, /* struct trace_flow */
    SCHEMA_TEXT, /* char[size] */
};

struct schema_field {
    const char *name;
    const char *const *words; /* of SCHEMA_WORD; of an array, its indexes. May have holes (NULL) */
    uint16_t n_words;
    uint16_t offset;
    uint16_t size;  /* of SCHEMA_TEXT */
    uint16_t count; /* 1, or the length of an array */
    uint8_t type;   /* enum schema_type */
    bool always;    /* JSON tells it even if it is 0 */
};

struct schema {
    const struct schema_field *fields;
    size_t n;
};

extern const struct schema schema_identity, schema_totals, schema_block, schema_activity,
    schema_repeat, schema_moment, schema_holder, schema_copier, schema_gap, schema_failure,
    schema_failure_holder, schema_failure_other;

void schema_put(const struct schema *schema, const void *record, struct buffer *out);
/* A value that does not fit its field sets in->bad. */
void schema_take(const struct schema *schema, struct varint_reader *in, void *record);

/* The fields of a record inside an open object; those that are 0 are left out. */
void schema_put_json(const struct schema *schema, const void *record, struct json *j);
/* If the key is a field of the record: take its value and return true. */
bool schema_take_json(const struct schema *schema, const struct json_text *key, struct json_read *r,
                      void *record);

uint64_t schema_zigzag(int64_t v);
int64_t schema_unzigzag(uint64_t v);
