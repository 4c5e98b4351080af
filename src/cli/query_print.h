/*
 * query_print.h: answers of the query core as the commands print them.
 */
#ifndef MEMOIR_CLI_QUERY_PRINT_H
#define MEMOIR_CLI_QUERY_PRINT_H

#include <stdbool.h>

#include "cli/table.h"
#include "query/query.h"

struct buffer;
struct query_hint;

enum query_format {
    QUERY_FORMAT_TEXT,
    QUERY_FORMAT_JSON,
    QUERY_FORMAT_CSV,
    QUERY_FORMAT_LINES, /* a JSON object for each row */
};

struct query_style {
    enum query_format format;
    bool header;
    bool fit;  /* where room is short, columns may be dropped: none was named in --show */
    bool fine; /* ages below a minute with a fraction: "1.3 ms" */
    enum table_units units;
    const struct buffer *cluster; /* the JSON member "cluster": who answered; NULL: none */
    /* How columns look, by name; ended by one without. NULL: as their kind. */
    const struct query_hint *hints;
    /* Colours for the last row of the table; NULL: none. */
    void (*paint)(struct table *table, const struct query_result *result, size_t row);
};

/* How a column looks in a layout. */
struct query_hint {
    const char *name;   /* as the question has it */
    const char *title;  /* NULL: the name in capital letters */
    unsigned flags;     /* enum column_flags */
    unsigned char rank; /* see struct column; 0: it stays */
};

/* An answer as a table, for layouts that do more than print it. It owns all that `table` points to, and so may
 * outlive the query and the result. */
struct query_sheet {
    struct table table;
    struct column columns[QUERY_OUTPUTS_MAX + 1];
    char keys[QUERY_OUTPUTS_MAX][QUERY_NAME_MAX];
    char titles[QUERY_OUTPUTS_MAX][QUERY_NAME_MAX];
};

/* For query_sheet_free(). 0 or -ENOMEM. */
int query_sheet_new(const struct query_result *result, const struct query *query,
                    const struct query_style *style, struct query_sheet **ret_sheet);
void query_sheet_free(struct query_sheet *sheet); /* NULL is fine */
void query_sheet_freep(struct query_sheet **sheet);

/* A finished result. 0 or -errno. */
int query_print(const struct query_result *result, const struct query *query,
                const struct query_style *style, const struct term *term, struct buffer *out);

/* The columns of one table, or of all (NULL), with what they are. 0 or -errno. */
int query_print_columns(const struct query_table *table, const struct query_style *style,
                        const struct term *term, struct buffer *out);

#endif
