/*
 * log_line.h: one change as a line: for people, as CSV or as JSON.
 */
#ifndef MEMOIR_CLI_LOG_LINE_H
#define MEMOIR_CLI_LOG_LINE_H

#include <stdint.h>

#include "cli/table.h"
#include "cli/term.h"

struct buffer;
struct change;

enum log_format { LOG_TEXT, LOG_CSV, LOG_JSON };

/* What a line needs besides the change itself. */
struct log_facts {
    uint64_t real_ns;  /* when it was seen */
    const char *tag;   /* or NULL */
    const char *cause; /* how its process ended, or NULL */
};

extern const struct column log_columns[];

/* Append the line, with its end. `table` is one of log_columns for the caller to keep; its rows are
 * replaced. Returns 0 or -errno. */
int log_line(const struct change *change, const struct log_facts *facts, enum log_format format,
             const struct term *term, struct table *table, struct buffer *out);

#endif
