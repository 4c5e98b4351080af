/*
 * timing.h: what copies and registrations would take on a machine with a GPU, in virtual time; and
 * copies of pinned memory that are late.
 *
 * A real driver returns from an asynchronous copy of pinned memory before the bytes have moved.
 * With MEMOIR_STANDIN_LATE=1 the stand-in does so, too: such copies are made when something waits
 * for them. A program that changes its buffer too early then gets wrong bytes.
 */
#pragma once

#include "standin/copy.h"

/* Nanoseconds for `bytes`; Like an H200 with huge pages. */
enum { TIMING_PAGEABLE_RATE = 12, TIMING_PINNED_RATE = 55, TIMING_REGISTER_RATE = 60 };

/* Add what the copy takes. Takes the lock. */
void timing_copy(const struct copy *c, bool dst_device, bool src_device);
void timing_register(uint64_t bytes);
void timing_unregister(uint64_t bytes);

/* False: MEMOIR_STANDIN_MOVE=0, copies only take their time. For tests of decisions. */
bool timing_moves(void);

/* True: the copy is put off. Takes the lock. */
bool timing_late(const struct copy *c);
/* Make all copies that were put off, in their order. Takes the lock. */
void timing_flush(void);
