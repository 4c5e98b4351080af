/* dump_build.h: make a history out of what a dump says, part by part. Shared by the readers of both formats.
 *
 * Order: holders before blocks and timeline lines; sites at any time. Each call returns 0, -ENOMEM, -E2BIG, or -EBADMSG if the
 * part cannot be in a dump. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "trace/history_internal.h"

enum { DUMP_MOMENTS_MAX = 4096 }; /* of one block */

struct dump_builder {
    struct trace_history *history;
    uint32_t *slots; /* of the blocks, in the order of the dump */
    size_t n_slots, cap_slots;
};

int dump_builder_init(struct dump_builder *b);
void dump_builder_release(struct dump_builder *b); /* frees the history if it was not taken */

/* Append; the first gets number 1. */
int dump_builder_holder(struct dump_builder *b, const struct trace_holder *holder);
int dump_builder_copier(struct dump_builder *b, const struct trace_copier *copier);
int dump_builder_failure(struct dump_builder *b, const struct trace_failure *failure);
int dump_builder_gap(struct dump_builder *b, const struct trace_gap *gap);

/* `holder` is its number. The n_moments of `moments` are those without the allocation and the end, and are copied; `all` is how many
 * there were. */
int dump_builder_block(struct dump_builder *b, const struct trace_block *block, uint32_t holder,
                       bool has_activity, uint64_t all, const struct trace_moment *moments,
                       size_t n_moments);

/* Set start, step and slots first (n_slots may be 0). */
int dump_builder_timeline(struct dump_builder *b, uint64_t start_ns, uint64_t step_ns,
                          uint64_t n_slots);
/* `holder` 0 is the line of all others, UINT32_MAX that of the device. */
int dump_builder_line(struct dump_builder *b, uint32_t holder, const uint64_t *last,
                      const uint64_t *peak);

/* Link everything. Gives the history. */
int dump_builder_finish(struct dump_builder *b, struct trace_history **ret_history);
