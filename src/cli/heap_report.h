/*
 * heap_report.h: what memoir's allocator in a process holds, as tables, text and JSON.
 */
#ifndef MEMOIR_CLI_HEAP_REPORT_H
#define MEMOIR_CLI_HEAP_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/table.h"

struct buffer;
struct scan_heap;

extern const struct column heap_class_columns[], heap_chain_columns[];

/* What sums come to, and what the book of the process adds. */
struct heap_sums {
    char name[64]; /* as other views call it; "" where it keeps no book */
    uint64_t small_used, small_free, uncut, remote_blocks, remote_bytes, slabs;
    uint64_t used, kept, metadata;
    bool accounted;
    uint64_t asked_bytes, asked_blocks;
    uint64_t user_bytes, user_blocks; /* in chains of the program's own */
};

/* Sort its chains, those that hold the most first, and sum up. What it is called and what was asked for is in the book of the process, if it
 * keeps one in `dir` (NULL: the usual places). */
void heap_report_sum(struct scan_heap *heap, const char *dir, pid_t pid,
                     struct heap_sums *ret_sums);

struct heap_look {
    bool all_classes; /* empty ones, too */
    bool all_chains;
    int color; /* enum term_color */
};

/* For people, and for programs. 0 or -errno. */
int heap_report_text(const struct heap_look *look, const struct scan_heap *heap,
                     const struct heap_sums *sums, pid_t pid, struct buffer *out);
int heap_report_json(const struct scan_heap *heap, const struct heap_sums *sums, pid_t pid,
                     struct buffer *out);

#endif
