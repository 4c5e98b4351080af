/*
 * node.h: memory of the node that a thread runs on.
 *
 * On a machine with several NUMA nodes there is a source (source.h) for each, or several (spread.h), whose macro-blocks ask the kernel for memory of that node. A
 * heap takes its slabs from the source of the node on which its thread began, or, as the setting numa=follow has it, of the one on
 * which the thread is when it needs the next slab. A slab stays with its node: whoever frees into it, it goes back there.
 * The kernel is told a preference, not an order: a full node is no reason to end a program. A process whose memory policy was set from
 * outside (numactl) has one source and is not interfered with.
 *
 * On one node, or with numa=off, none of this is looked at: one test of a constant where a slab is needed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "malloc/heap.h"
#include "malloc/settings.h"
#include "malloc/spread.h"

enum { NODE_MAX = 64 };

/* Sources are separate. Set once, before the first block. */
extern bool node_many __attribute__((visibility("hidden")));
/* Huge blocks have been bound: their memory must be freed from that when they are. */
extern bool node_bound __attribute__((visibility("hidden")));

/* The settings are known: find out which nodes this process may have. One system call on a machine with one. */
void node_begin(void);

/* Nodes this process may have memory of, as bits. */
uint64_t node_mask(void);

/* Of the processor that the thread runs on just now. 20 ns. */
unsigned node_here(void);

/* The heap's thread begins, or needs a slab: where from? */
void node_heap_place(struct heap *h);
void node_follow(struct heap *h);

static inline void node_heap_begin(struct heap *h)
{
    if (unlikely(node_many))
        node_heap_place(h);
    if (unlikely(malloc_settings.sources > 1))
        spread(h);
}

static inline struct source *heap_source(struct heap *h)
{
    if (unlikely(node_many))
        node_follow(h);
    spread_look(h);
    return h->source;
}

/* Prefer memory of that node for whole pages of the range, for those that are there already too. */
void node_prefer(void *p, size_t bytes, unsigned node);

/* A huge block is freed; with node_bound only. */
void node_unbind(void *p, size_t bytes);

/* Around fork. */
void node_fork_prepare(void);
void node_fork_done(bool child);
