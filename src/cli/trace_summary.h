/* trace_summary.h: the summary at the end of `memoir trace run`, and of `memoir trace load`. */
#ifndef MEMOIR_CLI_TRACE_SUMMARY_H
#define MEMOIR_CLI_TRACE_SUMMARY_H

#include <stdbool.h>
#include <stdint.h>

struct buffer;
struct term;
struct trace_history;
struct trace_source;

enum { TRACE_SPACES = 32 };

struct trace_space {
    uint64_t live_bytes, live_blocks;
    uint64_t allocated_bytes, allocated_blocks;
    uint64_t exit_bytes, exit_blocks; /* ended with the process only */
    uint64_t peak_bytes;
    uint64_t holders;
    bool about; /* the peak is an upper bound */
};

struct trace_spaces {
    struct trace_space space[TRACE_SPACES]; /* by enum memoir_space */
};

/* Sums of what the process allocated itself, and of registered memory. */
void trace_spaces_read(struct trace_history *history, struct trace_spaces *ret_spaces);

void trace_summary(struct trace_source *source, const struct term *term, struct buffer *out);

#endif
