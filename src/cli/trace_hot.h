/* trace_hot.h: rows about buffers, for `memoir trace hot` and the summary of `memoir trace run`. */
#ifndef MEMOIR_CLI_TRACE_HOT_H
#define MEMOIR_CLI_TRACE_HOT_H

#include <stddef.h>
#include <stdint.h>

struct table;
struct trace_block;
struct trace_history;
struct trace_source;

/* The line that made most of the copies of the block which are kept, and how many lines there are among them. */
uint32_t trace_hot_copy_site(struct trace_history *history, const struct trace_block *block,
                             size_t *ret_sites);

/* "pinned", "pageable" or "mixed"; NULL: it was not copied over the bus. */
const char *trace_hot_host_side(const struct trace_block *block);

/* A table of buffers, and a row of it. */
void trace_hot_table(struct table *table);
void trace_hot_row(struct trace_source *source, struct table *table,
                   const struct trace_block *block, uint64_t now_ns);

/* Rows for people, as table_print(), with lines of code below the figures where the screen is not wide. */
struct buffer;
struct table_layout;
struct term;
int trace_hot_text(const struct table *table, const struct table_layout *layout,
                   const struct term *term, struct buffer *out);

/* The end of the process, or the last event that the history has. */
uint64_t trace_now_ns(const struct trace_source *source);

#endif
