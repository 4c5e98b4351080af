/*
 * stage.h: large copies of memory that is not pinned, through a small ring that is.
 *
 * The driver copies pageable memory through buffers of its own with one thread, at a fraction of
 * the speed of the bus. Here several threads copy between the program's memory and the ring, piece
 * by piece, while the bus moves the pieces before. The cost model decides: only where the
 * calibration has measured that staging is faster, with as many threads as were fastest among those
 * that the process may use.
 *
 * The call keeps its meaning. Its first STAGE_PROBE bytes are copied by the program's own call, so
 * that whatever the driver refuses (a capture that is under way, an invalid context) it refuses as
 * ever. The pieces follow in the same stream, and all of them have arrived when the call returns.
 * When anything fails, the program's call is made for the whole range, which gives the driver's own
 * result. One copy is staged at a time; others that come meanwhile are made by the driver.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pin/cost.h"
#include "pin/driver.h"

enum {
    STAGE_PIECE = 512 << 10, /* the bus moves one in 10 us, a processor copies one in 60 */
    STAGE_SLOTS = 16, /* pieces of the ring: 8 MiB, taken from what may be leased (manager.h) */
    STAGE_PROBE = 64 << 10,
};

struct stage {
    char *host;
    CUdeviceptr device;
    uint64_t bytes; /* without the probe */
    enum pin_direction to;
    CUstream stream;
    bool per_thread;
    unsigned threads; /* that copy, the caller included */
    /* Of pieces, counted from 1; any thread of the copy. */
    uint32_t pieces, claimed, copied;
    uint32_t filled[STAGE_SLOTS]; /* the piece whose bytes are in this slot */
    uint32_t empty[STAGE_SLOTS];  /* the last piece whose bytes are no longer needed there */
    uint32_t stop, helpers;
    uint64_t first_ns; /* when the bus had moved the first piece; the caller */
};

/* May this copy be staged? Takes the ring until stage_end(). False: it is busy, cannot be
 * registered, or the device's side is not one plain allocation of the current context; nothing was
 * done. `host` is the whole range, of which the caller copies the first STAGE_PROBE bytes itself. */
bool stage_begin(struct stage *stage, void *host, CUdeviceptr device, uint64_t bytes,
                 enum pin_direction to, CUstream stream, bool per_thread, unsigned threads);
/* Copy the rest. False: a call failed; the range has to be copied by other means. */
bool stage_run(struct stage *stage);
void stage_end(struct stage *stage);

/* Does the driver take all of this host memory for pageable, and is it mapped? */
bool stage_is_pageable(const void *host, uint64_t bytes);

/* Unregister the ring, until a copy is staged: after a calibration. */
void stage_release(void);

/* The current context goes: what was made in it is gone. */
void stage_context_gone(void);
/* In a child of fork. */
void stage_forget(void);
