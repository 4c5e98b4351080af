/*
 * query_print.h: answers of the query core as the commands print them.
 */
#ifndef MEMOIR_CLI_QUERY_PRINT_H
#define MEMOIR_CLI_QUERY_PRINT_H

#include <stdbool.h>

#include "cli/table.h"

struct buffer;
struct query;
struct query_result;
struct query_table;

enum query_format {
    QUERY_FORMAT_TEXT,
    QUERY_FORMAT_JSON,
    QUERY_FORMAT_CSV,
    QUERY_FORMAT_LINES, /* a JSON object for each row */
};

struct query_style {
    enum query_format format;
    bool header;
    bool fit;  /* where room is short, columns may go: nobody asked for them by name */
    bool fine; /* ages below a minute with a fraction: "1.3 ms" */
    enum table_units units;
    const char *schema;           /* of JSON; NULL: "memoir.query/1" */
    const struct buffer *cluster; /* the JSON member "cluster": who answered; NULL: none */
};

/* A finished result. 0 or -errno. */
int query_print(const struct query_result *result, const struct query *query,
                const struct query_style *style, const struct term *term, struct buffer *out);

/* The columns of one table, or of all (NULL), with what they are. 0 or -errno. */
int query_print_columns(const struct query_table *table, const struct query_style *style,
                        const struct term *term, struct buffer *out);

#endif
