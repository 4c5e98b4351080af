/* history_internal.h: a history from inside. Everything but the queue is only touched by the thread that has the lock. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include <memoir/memoir.h>

#include "base/hash.h"
#include "base/sum.h"
#include "trace/history.h"
#include "trace/holders.h"
#include "trace/order.h"
#include "trace/pool.h"
#include "trace/ranges.h"
#include "trace/timeline.h"

enum { QUEUE_CHUNK = 1024, CONTEXTS_MIN = 16, NEAR = 4096 };

struct queue_chunk {
    uint32_t filled; /* the feeder stores (release), the holder of the lock loads (acquire) */
    struct queue_chunk *next; /* the same */
    struct trace_event events[QUEUE_CHUNK];
};

/* Events that came while a reader had the lock. */
struct queue {
    struct queue_chunk *head; /* holder of the lock */
    uint32_t taken;           /* of `head`; holder of the lock */
    struct queue_chunk *tail; /* feeder */
    uint64_t pushed;          /* feeder stores (release), any loads */
    uint64_t applied;         /* holder of the lock stores, any loads */
};

struct context {
    uint64_t handle;
    uint32_t first; /* its active blocks */
    uint32_t used;
};

/* A block of the first layer serves all its addresses. One of another layer may be hidden in part, so it serves only the
 * address that found it, and only until a block is added that may hide it. */
struct near {
    uint64_t address;
    uint32_t slot, epoch;
};

struct trace_history {
    pthread_mutex_t lock;
    struct queue queue;
    bool frozen; /* constant once the history is given to its readers */

    struct trace_identity identity;
    struct trace_limits limits;
    struct trace_sites *sites; /* has its own rules for threads */

    struct trace_pool pool;
    struct trace_hash hash[LAYERS];
    struct trace_ranges ranges[LAYERS_OF_RANGES];
    struct trace_order active[ORDERS], ended[ORDERS];
    struct trace_link ended_ages, implicit_ages; /* prev: the oldest; next: the latest */
    uint32_t n_active, n_ended, n_implicit;
    struct near near[NEAR]; /* blocks that contained an address lately, by its page */
    uint32_t epoch;         /* grows with each block that may hide one of a higher layer */

    struct context *contexts; /* open addressing; never shrinks while blocks live */
    uint32_t n_contexts, cap_contexts;
    uint32_t n_unlisted; /* active blocks in no list of a context */

    struct trace_holders holders;
    struct timeline timeline;
    struct trace_totals totals;
    uint64_t now_ns;
    uint64_t n_activities;
    uint64_t moments; /* room for them that is allocated */
    uint32_t random;

    struct trace_gap gaps[TRACE_GAPS_MAX]; /* number n, from 0, at n % TRACE_GAPS_MAX */
    uint64_t n_gaps;                       /* only while a dump is loaded: those that came */
    struct trace_failure *failures[TRACE_FAILURES_MAX]; /* number n at n % TRACE_FAILURES_MAX */
    uint64_t n_failures;
    bool failure_told;
};

/* ---- the lock (history.c) ---- */

/* Take the lock as a reader; all that was fed before is applied. */
void history_enter(struct trace_history *h);
void history_leave(struct trace_history *h);

/* ---- blocks (history_block.c) ---- */

/* Make an active block of what the event tells; 0: not kept (its holder has it in its sums). */
uint32_t history_block_begin(struct trace_history *h, const struct trace_event *e,
                             enum trace_layer layer, bool found);
void history_block_end(struct trace_history *h, uint32_t slot, enum trace_end end);
/* Put a block where active ones are. False: no memory. */
bool history_block_activate(struct trace_history *h, uint32_t slot);
/* End an active block and forget it at once. */
void history_block_drop(struct trace_history *h, uint32_t slot, enum trace_end end);
/* Forget an ended block. */
void history_block_fold(struct trace_history *h, uint32_t slot);
/* The active block that contains the address, or 0. */
uint32_t history_block_find(struct trace_history *h, uint64_t address);
uint64_t history_block_value(const struct trace_slot *s, enum trace_by by);
enum trace_layer history_layer(uint32_t flags);

void history_alloc(struct trace_history *h, const struct trace_event *e);
void history_free_event(struct trace_history *h, const struct trace_event *e);
void history_restore(struct trace_history *h, const struct trace_event *e);
void history_reset(struct trace_history *h, const struct trace_event *e);
void history_exit(struct trace_history *h, const struct trace_event *e);

void history_age_add(struct trace_history *h, struct trace_link *list, uint32_t slot);
void history_age_remove(struct trace_history *h, struct trace_link *list, uint32_t slot);

/* ---- what happens to blocks (history_copy.c) ---- */

void history_copy(struct trace_history *h, const struct trace_event *e);
void history_touch(struct trace_history *h, const struct trace_event *e); /* set, prefetch */
void history_system(struct trace_history *h, const struct trace_event *e);
/* NULL: no memory. */
struct trace_activity *history_activity(struct trace_history *h, uint32_t slot);

/* ---- failures (history_failure.c) ---- */

void history_failed(struct trace_history *h, const struct trace_event *e);

/* ---- reading (history_read.c) ---- */

void history_block_copy(const struct trace_history *h, uint32_t slot,
                        struct trace_block *ret_block);
/* Moments of a block, its allocation and end included, from the oldest that is kept. */
size_t history_moments_copy(const struct trace_history *h, uint32_t slot,
                            struct trace_moment *moments, size_t n);

/* Totals with what is counted elsewhere. */
void history_totals_fill(const struct trace_history *h, struct trace_totals *t);

static inline struct near *history_near(struct trace_history *h, uint64_t address)
{
    return &h->near[hash_mix(address >> 12) & (NEAR - 1)];
}

static inline bool space_of_device(uint8_t space)
{
    return space >= MEMOIR_SPACE_DRAM || space == MEMOIR_SPACE_MANAGED;
}
