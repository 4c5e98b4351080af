/* A strict JSON reader over bytes that a stranger sent: it pulls one value at a time, allocates nothing,
 * copies nothing, and never looks past the end.
 *
 *     struct json_read r;
 *     struct json_text key;
 *     json_read_init(&r, line, len);
 *     json_read_object(&r);
 *     while (json_read_key(&r, &key))
 *         if (json_text_is(&key, "pid"))
 *             json_read_u64(&r, &pid);
 *         else
 *             json_read_skip(&r);
 *     if (json_read_finish(&r) < 0)
 *         ... json_read_error(&r), json_read_where(&r)
 *
 * Errors stick: after the first one every call returns false, loops over keys and items end, and only
 * the end is checked. Strict means RFC 8259: no comments, no trailing commas, no leading zeros, no bare
 * control bytes, valid UTF-8, paired surrogates. About 2 ns a byte. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    JSON_READ_DEPTH_MAX = 32,  /* open containers */
    JSON_READ_NUMBER_MAX = 64, /* bytes of one number */
};

enum json_type {
    JSON_NOTHING, /* no value here: the end, or an error */
    JSON_OBJECT,
    JSON_ARRAY,
    JSON_STRING,
    JSON_NUMBER,
    JSON_TRUE,
    JSON_FALSE,
    JSON_NULL,
};

struct json_read {
    const char *start, *at, *end; /* borrowed */
    const char *error;            /* what is wrong at `at`, or NULL */
    uint32_t objects;             /* bit d: the container at depth d is an object */
    uint32_t filled;              /* bit d: it has an item already */
    unsigned depth;
};

/* A string as it stands between its quotes, checked. Good while the bytes that were read are. */
struct json_text {
    const char *data;
    size_t len;
    bool escaped; /* has backslashes: json_text_copy() decodes them */
};

/* Integers are exact; what does not fit in 64 bits, or has a fraction or an exponent, is a double. */
struct json_number {
    enum { JSON_U64, JSON_I64, JSON_DOUBLE } kind; /* I64: below zero */
    uint64_t u;
    int64_t i;
    double d; /* always */
};

/* The reader borrows `text`. */
void json_read_init(struct json_read *r, const char *text, size_t len);

/* 0 when one whole value was read and nothing but white space is left, else -EBADMSG. */
int json_read_finish(struct json_read *r);

/* The first error for people ("expected a string"), or NULL; and the byte where it is, from 0. */
const char *json_read_error(const struct json_read *r);
size_t json_read_where(const struct json_read *r);

/* Make the caller's own complaint about the last value the error. Always false. */
bool json_read_fail(struct json_read *r, const char *error);

/* What comes next, without taking it. */
enum json_type json_read_peek(struct json_read *r);

/* Step into a container; then key() or item() before each value, until it returns false: the container
 * has ended and is left, or there was an error. */
bool json_read_object(struct json_read *r);
bool json_read_key(struct json_read *r, struct json_text *ret_key);
bool json_read_array(struct json_read *r);
bool json_read_item(struct json_read *r);

/* Take one value of this type; any other is an error. */
bool json_read_string(struct json_read *r, struct json_text *ret_text);
bool json_read_number(struct json_read *r, struct json_number *ret_number);
bool json_read_u64(struct json_read *r, uint64_t *ret_value); /* a whole number from 0 to 2^64-1 */
bool json_read_i64(struct json_read *r, int64_t *ret_value);
bool json_read_bool(struct json_read *r, bool *ret_value);
bool json_read_null(struct json_read *r);

/* Take any value with all that is in it; it is checked as strictly. */
bool json_read_skip(struct json_read *r);

/* Does the text, decoded, equal `word`? */
bool json_text_is(const struct json_text *text, const char *word);

/* Decode into `buffer` and end it with NUL. The length, or -ENOBUFS when it does not fit; a NUL inside
 * the text, which no C string can hold, is -EINVAL. */
int64_t json_text_copy(const struct json_text *text, char *buffer, size_t size);
