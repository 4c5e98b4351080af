/*
 * top_print.h: one picture of all processes, for pipes and programs.
 */
#ifndef MEMOIR_CLI_TOP_PRINT_H
#define MEMOIR_CLI_TOP_PRINT_H

#include <stdbool.h>
#include <stddef.h>

struct buffer;
struct term;
struct top_source;
struct top_wish;

struct top_style {
    bool header;
    size_t limit; /* rows; 0: all */
};

/* The rows that `wish` asks for. ret_rows says how many there are. 0 or -errno. */
int top_print(struct top_source *source, const struct top_wish *wish, const struct top_style *style,
              const struct term *term, struct buffer *out, size_t *ret_rows);

#endif
