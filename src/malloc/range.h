/*
 * range.h: a heap at fixed addresses.
 *
 * With the setting `range`, everything that blocks lie in comes from one stretch of addresses, which is this process's slot of a
 * plan that many processes share (range_plan.h). It is held from the start, without access, so that nobody else is placed there, and
 * divided between the NUMA nodes, which is where a macro-block or a huge block is looked for first. What is in use is counted by
 * units of 2 MiB, as the address map has them: pages that are mapped in each, and a unit with none can be given out.
 *
 * States: NONE; WAITING (receive=1: the addresses are held, and the heap lies elsewhere until an image is loaded);
 * OPEN (all new memory comes from here). What the heap had before OPEN stays where it is until it is freed, and is not used again.
 *
 * The lock is taken inside of all others. A child that finds it held by a thread that it has not goes on: addresses are counted
 * before they are mapped, and until they are not any more, so at worst some are never used again.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "malloc/range_plan.h"

enum range_state { RANGE_NONE, RANGE_WAITING, RANGE_OPEN };

/* The settings and the nodes are known: hold the addresses, and open the range unless it is to wait. What goes wrong is told on
 * stderr, and the program goes on without. */
void range_begin(void);

/* 0 and the state, or why there is no range although one is wanted (-EINVAL, -EEXIST, -ENOMEM...); -ENOENT: none is wanted. */
int range_state(enum range_state *ret);
/* The same for who saves or loads: -ENOTSUP in a program whose blocks are hardened or accounted. */
int range_state_moved(enum range_state *ret);
const struct range_plan *range_here(void);

/* For an image: addresses for exactly this. False: some are in use, or not ours. os_unmap() gives them back. */
bool range_take_at(void *p, size_t bytes);

/* The node whose part of the range an address is in. */
unsigned range_node(const void *p);

/* Leave all that the heap has to those who still have blocks there, and take new memory from the range. No other thread may be inside
 * of the allocator. */
void range_open(void);

/* range_open.c: what a heap had before is nobody's to give out again. */
void range_retire(void);
