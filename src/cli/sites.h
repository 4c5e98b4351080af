/*
 * sites.h: rows of `memoir sites` as they look.
 */
#ifndef MEMOIR_CLI_SITES_H
#define MEMOIR_CLI_SITES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/table.h"
#include "cli/term.h"
#include "profile/rows.h"

struct buffer;
struct profile_source;

extern const struct column sites_columns[];      /* of one moment */
extern const struct column sites_diff_columns[]; /* of two */

struct sites_style {
    enum rows_by by;
    enum rows_measure measure;
    bool diff;        /* rows are of two moments, far apart: what changed */
    uint64_t rate_ns; /* of two moments so far apart: how much a second; 0: of one */
    bool stacks;      /* with whole stacks */
    bool header;
    uint64_t now_real_ns; /* ages count until then */
};

/* Rows `0` to `n` as rows of a table of the columns that the style asks for. */
void sites_rows(const struct rows *rows, size_t n, const struct sites_style *style,
                const struct term *term, struct table *table);

/* The first `n` rows with their whole stacks, for people. */
void sites_print_stacks(const struct rows *rows, size_t n, const struct sites_style *style,
                        const struct term *term, struct buffer *out);

const struct column *sites_columns_of(const struct sites_style *style);

#endif
