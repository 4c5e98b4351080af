/* Partial results as bytes, for the cluster: smaller and about thirty times faster to read than the JSON
 * of query_partial_write(), with the same meaning (bench/results/cluster has the figures).
 *
 * Columns travel by name, and every cell says what it is, so that nodes of different versions understand
 * each other: a column that the sender lacks is unknown in the reader's result, one that the reader did
 * not ask for is skipped. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buffer;
struct query_result;
struct query_spec;

enum {
    QUERY_WIRE_VERSION = 1,
    QUERY_WIRE_ROWS_MAX = 200000, /* of one partial result */
};

/* Everything that a finished result holds. Rows beyond the limit of a query without groups are counted,
 * not sent. 0 or the buffer's error. */
int query_wire_write(const struct query_result *result, struct buffer *out);

/* Whose bytes they are. */
struct query_wire_from {
    const char *node;    /* goes into the column `node`, whatever the bytes say; NULL: as they say */
    uint64_t *ret_lacks; /* bit of each output that the sender does not have; may be NULL */
};

/* Add such bytes to `into`. They are untrusted: -EBADMSG when they are malformed or answer another
 * query, and then nothing was added; -ENOMEM. */
int query_wire_read(struct query_result *into, const void *bytes, size_t len,
                    const struct query_wire_from *from);

/* The question of `result` in words that do not depend on the defaults of this version: every column is
 * named. Appends five texts, each ended by NUL: table, by, where, show, sort. `where` is copied from
 * `spec`. 0 or the buffer's error. */
struct query;
int query_wire_spec(const struct query *query, const struct query_spec *spec, struct buffer *out);
