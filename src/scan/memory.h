/* Inside scan: the memory of the process, where there is any. A mapping may be a thousand times larger than
 * what was ever touched, so the kernel is asked for the pages that exist: for stretches of them (since Linux 6.7), which takes no longer
 * for a terabyte of nothing, or else for one after the other (2 s for 2.5 TiB). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    SCAN_WINDOW = 1 << 20,        /* bytes read at a time */
    SCAN_WINDOW_BEFORE = 1 << 11, /* room before them, for what was read before */
};

/* Mappings beyond this are address space, not memory: to ask for their pages one by one would take seconds. */
#define SCAN_MAPPING_MAX (UINT64_C(4) << 40)

struct scan_memory {
    pid_t pid;
    int pagemap; /* -1: pages are taken to be there */
    int file;    /* /proc/PID/mem, for who may not read by PID; 0: none. Not closed by us */
    int own_file; /* the same, opened by us for pages that the process may not read itself; -1: none */
    uint64_t page;
    uint64_t *entries; /* of pagemap */
    uint8_t *window;   /* SCAN_WINDOW_BEFORE and SCAN_WINDOW bytes */
    uint64_t unread;   /* bytes that could not be read: those who have to read them count */
    bool one_by_one;   /* the kernel tells of no stretches */
    /* CLOCK_MONOTONIC: scan_memory_runs() ends by then, with -ETIME; 0: none */
    uint64_t deadline_ns;
};

int scan_memory_open(struct scan_memory *memory, pid_t pid);
void scan_memory_close(struct scan_memory *memory);

/* May all of a mapping of that size be looked at? */
static inline bool scan_memory_may(const struct scan_memory *memory, uint64_t bytes)
{
    return bytes <= SCAN_MAPPING_MAX || !memory->one_by_one;
}

/* Call `each` for every stretch of existing pages in [start, end), cut to it, until it returns non-zero. It must
 * not ask for runs itself. Where the kernel stops telling of stretches on the way, more than SCAN_MAPPING_MAX of the
 * rest counts as unread. */
int scan_memory_runs(struct scan_memory *memory, uint64_t start, uint64_t end,
                     int (*each)(void *context, uint64_t start, uint64_t end), void *context);

/* The same for pages that are no longer those of their file: written in a private mapping. */
int scan_memory_runs_altered(struct scan_memory *memory, uint64_t start, uint64_t end,
                             int (*each)(void *context, uint64_t start, uint64_t end),
                             void *context);

/* Read up to `len` bytes: how many, from the first on. Pages that the process has protected from itself are read, too. */
size_t scan_memory_read(struct scan_memory *memory, uint64_t address, void *out, size_t len);

/* The same, less what the process may not read itself: there may be no memory yet. */
size_t scan_memory_peek(struct scan_memory *memory, uint64_t address, void *out, size_t len);

/* After scan_memory_read() gave less than was asked for: count the page in question as unread. Gives where the next one begins. */
uint64_t scan_memory_skip(struct scan_memory *memory, uint64_t address);

/* scan_memory_peek() for many places at once, one after the other into `out`: all of them, or false. */
struct iovec;
bool scan_memory_read_many(struct scan_memory *memory, const struct iovec *places, size_t n,
                           void *out, size_t len);
