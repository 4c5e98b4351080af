/* waste.h: copies and memory of a history that need not be. Pure reading.
 *
 * What pinning saves is an estimate. The driver copies pageable memory in pieces through a
 * pinned buffer of its own, on the CPU; pinned memory is read by the device itself. The saved
 * time is the difference of two rates, which are what an H200 on PCIe 5 reached with copies of
 * 16 MB; views tell them beside the estimate. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "trace/history.h"

#define WASTE_PAGEABLE_RATE UINT64_C(10000000000) /* bytes in a second */
#define WASTE_PINNED_RATE   UINT64_C(50000000000)

struct waste_rates {
    uint64_t pageable, pinned; /* bytes in a second; not 0 */
};

/* Nanoseconds that copies of so many bytes from and to pageable memory would take less if it
 * were pinned; 0 if pinned memory is not faster. `rates` NULL: the rates above. */
uint64_t waste_saving_ns(const struct waste_rates *rates, uint64_t pageable_bytes);

/* Bytes that a line moved over the bus, or may have: to and from devices, and of unknown
 * direction. */
uint64_t waste_bus_bytes(const struct trace_flow flow[static TRACE_DIRECTIONS]);

/* The k lines that moved most over the bus, most first: how many; *ret_copiers is for free().
 * -ENOMEM. */
ptrdiff_t waste_copiers(struct trace_history *history, size_t k, struct trace_copier **ret_copiers);

/* The k lines that copied most bytes of pageable memory, the same way. */
ptrdiff_t waste_pageable(struct trace_history *history, size_t k,
                         struct trace_copier **ret_copiers);

/* Allocations of one line, space and class that were never copied, set or prefetched. */
struct waste_uncopied {
    uint32_t site;
    uint8_t space, class;
    uint64_t blocks, bytes; /* of blocks that are still kept, live or not */
    uint64_t live_bytes;
};
/* The k with most bytes. */
ptrdiff_t waste_uncopied(struct trace_history *history, size_t k, struct waste_uncopied **ret_rows);

/* A range of a block that copies in one direction read again and again. The side that is written
 * is left out: it may get other bytes each time. */
struct waste_repeat {
    struct trace_block block;
    struct trace_repeat repeat;
    uint64_t bytes; /* that all copies but the first moved */
};
/* The k that moved most bytes. */
ptrdiff_t waste_repeats(struct trace_history *history, size_t k, struct waste_repeat **ret_rows);

/* The line that made most of the copies of a block among those that are kept; 0: not known. */
uint32_t waste_copy_site(struct trace_history *history, const struct trace_block *block);
