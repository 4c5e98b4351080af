/*
 * sample.h: stacks, of some blocks or of all.
 *
 * Of the bytes that a thread allocates every one is as likely as another to be the one at which it looks: the
 * distances between samples are exponentially distributed around MEMOIR_SAMPLE_BYTES. A block of n bytes is
 * hit with probability p = 1 - exp(-n / mean), so that one which is stands for n / p bytes in 1 / p blocks. These
 * estimates are counted at a site of their own, the whole stack, in no sum with the exact ones; the block
 * itself goes into the book's table of blocks, so that there is one to look at.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "track/track.h"

/* Take this thread's stack, less our own frames, and give its site in the book: BOOK_SITE_NONE if that cannot
 * be. `flags` is 0 or BOOK_SITE_SAMPLED. Inside (track_enter). */
uint32_t sample_stack_site(struct track_thread *t, uint32_t flags);

/* From where to where this library is mapped: always the same. */
void sample_own_code(uintptr_t *ret_start, uintptr_t *ret_end);

/* Bytes until this thread's next sample; very many if stacks are not sampled. */
int64_t sample_distance(struct track_thread *t);

/* The same for another mean, and that of sites that are suspected to leak. */
int64_t sample_distance_of(struct track_thread *t, uint64_t mean);
uint64_t sample_close_bytes(void);

/* A block was hit: count its stack, and enter it; `close`: by the samples of a site that is suspected to leak. False: it could not be entered, and does not count.
 * Inside. */
bool sample_alloc(struct track_thread *t, void *block, size_t bytes, bool close);

/* A sampled block is gone. Inside. */
void sample_free(struct track_thread *t, const void *block);

/* What a block that was hit stands for. */
struct sample_weight {
    uint64_t bytes, blocks;
};
struct sample_weight sample_weigh(uint64_t bytes, uint64_t mean);

/* The two functions of the mathematician that this needs, without his library: right to 1 in 10,000. */
double sample_log(double x);       /* natural, of a positive number */
double sample_exp_minus(double x); /* exp(-x), x >= 0 */
