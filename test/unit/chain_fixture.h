/* What the tests of chains share: numbers from a printed seed, and a check that says what is wrong. */
#pragma once

#include "check.h"

#include <errno.h>
#include <memoir/malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "malloc/thread.h"

/* Chains alone, without the allocator behind them. */
__thread void *thread_chain;
void heap_fast_set(void)
{
}

struct dice {
    uint64_t state;
};

static inline uint64_t dice_next(struct dice *d)
{
    uint64_t z = d->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline uint64_t dice_below(struct dice *d, uint64_t n)
{
    return dice_next(d) % n;
}

/* The seed of a test: from CHAIN_SEED, or of this moment; told, so that a failure can be repeated. */
static inline uint64_t dice_seed(void)
{
    const char *given = getenv("CHAIN_SEED");
    uint64_t seed =
        given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL) * 1000003 + (uint64_t)clock();
    print_message("# CHAIN_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static inline void assert_whole(struct memoir_chain *chain)
{
    const char *what = NULL;
    if (memoir_chain_check(chain, &what) != 0)
        fail_msg("the chain is damaged: %s", what ? what : "(it cannot be looked at)");
}

static inline struct memoir_chain_stats stats_of(struct memoir_chain *chain)
{
    struct memoir_chain_stats s = {.struct_size = sizeof(s)};
    assert_int_equal(memoir_chain_stats(chain, &s), 0);
    return s;
}

static inline struct memoir_chain *chain_over(void *buffer, size_t bytes, unsigned flags)
{
    struct memoir_chain_options options = {.struct_size = sizeof(options), .flags = flags};
    struct memoir_chain *chain = NULL;
    assert_int_equal(memoir_chain_init(buffer, bytes, &options, &chain), 0);
    assert_non_null(chain);
    return chain;
}
