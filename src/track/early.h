/*
 * early.h: the count of a process's first calls, before there is a book.
 *
 * A static table of callers, entered under one lock, at most as many as calls are counted here. Its
 * numbers become the numbers of sites in the book, so that trailers written now hold then.
 *
 * The lock names its holder by the address of a thread-local variable and the place on its stack, so that
 * a signal handler never waits for the thread that it interrupted, and a holder that was left by
 * longjmp() is found out.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "track/track.h"

enum {
    EARLY_CALLS = 1000,     /* what makes a process worth a book: so many allocations, */
    EARLY_BYTES = 64 << 10, /* or so many bytes */
    EARLY_SITES = EARLY_CALLS + 1,
};

struct early_site {
    uintptr_t caller;
    uint64_t alloc_bytes, alloc_blocks, freed_bytes, freed_blocks;
};

struct early {
    struct book_trailer_key key;
    uint64_t begun_ns; /* CLOCK_MONOTONIC; from here the book's times count */
    uint64_t calls, bytes;
    uint64_t reallocs, unknown_frees, reentries;
    struct track_live inherited;
    uint32_t n_sites; /* [0] stays empty */
    uint16_t index[2048];
    struct early_site site[EARLY_SITES];
};
extern struct early early;

/* Empty, for a process with this key; what it inherited is noted already. */
void early_reset(struct book_trailer_key key, struct track_live inherited);

/* False: this thread holds it already, or nobody gets it. */
bool early_lock(void);
void early_unlock(void);

/* With the lock: number of the site of a caller; BOOK_SITE_NONE when the table is full. */
uint32_t early_site_of(uintptr_t caller);

/* With the lock: would this allocation make the process worth a book? */
bool early_is_over(size_t bytes);

/* With the lock. */
void early_count_alloc(uint32_t site, size_t bytes);
void early_count_free(uint32_t site, size_t bytes);

/* What lives, inherited memory included. */
struct track_live early_live(void);

uint32_t early_time(void);
