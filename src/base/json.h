/* A direct JSON writer over a buffer: no tree, no copy of the data, commas and escapes done right.
 *
 *     struct json j;
 *     json_init(&j, &out);
 *     json_object_begin(&j);
 *     json_field_u64(&j, "pid", pid);
 *     json_key(&j, "sites");
 *     json_array_begin(&j);
 *     ...
 *     json_array_end(&j);
 *     json_object_end(&j);
 *     int r = json_finish(&j);
 *
 * Errors stick in the buffer, so only the end is checked. Strings may hold any bytes: what is not
 * valid UTF-8 becomes U+FFFD, one per offending byte, so the document always parses. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buffer;

/* Deeper nesting than this is our bug: it sets -EOVERFLOW. */
#define JSON_DEPTH_MAX 63

struct json {
    struct buffer *out; /* borrowed */
    uint64_t filled;    /* bit d: the container at depth d has an item already */
    uint64_t objects;   /* bit d: the container at depth d is an object */
    size_t start;       /* bytes that `out` held at json_init() */
    unsigned depth;     /* open containers */
    bool after_key;     /* the next value belongs to a key */
};

/* Appends to `out`, which may hold something already (a line of a JSON-lines file, say). */
void json_init(struct json *j, struct buffer *out);

/* 0, or the buffer's error. Asserts that every container was closed. */
int json_finish(struct json *j);

void json_object_begin(struct json *j);
void json_object_end(struct json *j);
void json_array_begin(struct json *j);
void json_array_end(struct json *j);

/* Inside an object: exactly one value follows. */
void json_key(struct json *j, const char *key);

void json_string(struct json *j, const char *s); /* NULL gives null */
void json_string_n(struct json *j, const char *s, size_t len);
void json_u64(struct json *j, uint64_t v);
void json_i64(struct json *j, int64_t v);
void json_double(struct json *j, double v); /* shortest text that reads back the same; NaN and
                                             * infinities, which JSON lacks, give null */
void json_bool(struct json *j, bool v);
void json_null(struct json *j);

/* A value that is JSON already; the caller vouches for it. */
void json_raw(struct json *j, const char *text, size_t len);

/* Key and value in one. */
void json_field_string(struct json *j, const char *key, const char *s);
void json_field_u64(struct json *j, const char *key, uint64_t v);
void json_field_i64(struct json *j, const char *key, int64_t v);
void json_field_double(struct json *j, const char *key, double v);
void json_field_bool(struct json *j, const char *key, bool v);
void json_field_null(struct json *j, const char *key);

/* `len` bytes of `s` as a quoted JSON string, without a writer around it. 0 or the buffer's error. */
int json_quote(struct buffer *out, const char *s, size_t len);

/* The same for a string that needs no escapes, into `to`, which has room for two bytes more than the string; how many. 0:
 * it needs some, and what `to` holds is of no use. */
size_t json_plain(char *to, const char *s, size_t len);

/* The digits of a number into `text`, without a terminator; how many. What is behind them in `text` may change. */
#define JSON_DIGITS_MAX 20
size_t json_digits(char text[static JSON_DIGITS_MAX], uint64_t v);
