/*
 * log_line.h: one change as a line for people. For programs there are rows: log_table.h.
 */
#ifndef MEMOIR_CLI_LOG_LINE_H
#define MEMOIR_CLI_LOG_LINE_H

#include <stdint.h>

#include "cli/term.h"

struct buffer;
struct change;

/* What a line needs besides the change itself. */
struct log_facts {
    uint64_t real_ns;  /* when it was seen */
    const char *tag;   /* or NULL */
    const char *cause; /* how its process ended, or NULL */
};

/* Append the line, with its end. */
void log_line(const struct change *change, const struct log_facts *facts, const struct term *term,
              struct buffer *out);

#endif
