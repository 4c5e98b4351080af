/* trace_waste.h: copies and allocations that may not be needed, from a history. */
#ifndef MEMOIR_CLI_TRACE_WASTE_H
#define MEMOIR_CLI_TRACE_WASTE_H

#include <stddef.h>
#include <stdint.h>

#include "trace/history.h"

/* Lines that copied pageable memory, most bytes first: how many; *ret_copiers is for free(). 0 also without memory. */
size_t trace_waste_pageable(struct trace_history *history, struct trace_copier **ret_copiers);

/* Allocations of one line and space that were never copied over the bus, nor on the device. */
struct trace_uncopied {
    uint32_t site;
    uint8_t space;
    uint64_t blocks, bytes;
};
size_t trace_waste_uncopied(struct trace_history *history, struct trace_uncopied **ret_rows);

/* A range that was read by copies again and again, in one direction. */
struct trace_again {
    struct trace_block block;
    struct trace_repeat repeat;
};
/* The `k` whose repetitions moved most bytes. */
size_t trace_waste_repeats(struct trace_history *history, size_t k, struct trace_again **ret_rows);

#endif
