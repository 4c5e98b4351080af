/*
 * touch.h: first touch of fresh memory, ahead of a program that fills it in order.
 *
 * Touching fresh memory is the largest cost of large allocations, and the kernel does it with the
 * one thread that writes. When a program demonstrably fills a large fresh block from its beginning,
 * helper threads (crew.h) let the kernel make the pages that come next. The contents of memory do
 * not change by that, only when it becomes resident; so the worst that a wrong guess does is to
 * make TOUCH_AHEAD resident too early.
 *
 * A block is watched from its allocation. When its first TOUCH_FIRST bytes do not become resident
 * in order within TOUCH_START_MS, it is left alone for good. Where an earlier block of the same call
 * site was filled to its end, the first TOUCH_AHEAD are touched at once. From then on there are two
 * kinds of evidence for how far the program has come: bytes that are not zero any more, looked at
 * once in each TOUCH_WINDOW; and the page behind what was touched, which only the program makes
 * resident. When neither moves for TOUCH_STALL_MS, the block is left alone, and its site is not
 * trusted any more.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TOUCH_MIN = 8 << 20,  /* smaller blocks are not watched */
    TOUCH_PAGE = 2 << 20, /* what is touched at once: a huge page */
    TOUCH_WINDOW = 4 << 20,
    TOUCH_AHEAD = 32 << 20,       /* resident ahead of the program at most */
    TOUCH_FIRST = 2 * TOUCH_PAGE, /* the program fills these by itself */
    TOUCH_START_MS = 50,
    TOUCH_STALL_MS = 20,
    TOUCH_THREADS = 4,       /* a processor fills pages half as fast as it writes to them */
    TOUCH_SITES = 4096,      /* call sites that can be trusted; others never are */
    TOUCH_SPARE = 256 << 20, /* memory that must be left beyond the block */
};

/* A block of fresh memory was served, on a thread that has a CUDA context. Watches it if no other
 * block is watched, there is a CPU to spare and `headroom_bytes` is enough. `site`: number of its
 * call site (callsite.h). Never blocks. */
void touch_watch(void *block, uint64_t bytes, uint32_t site, uint64_t headroom_bytes);

/* The block is freed or moved: stop touching it. Returns at once. */
void touch_stop(const void *block);

/* In a child of fork. */
void touch_forget(void);

/* ---- the decision, pure ---- */

/* Is the block filled in order? `first`: which of the huge pages of TOUCH_FIRST are filled, a bit
 * for each; `places`: which of 64 places in it, in order, are resident. */
bool touch_in_order(unsigned first, uint64_t places);
/* May it still turn out so? Not when a place is resident behind one that is not. */
bool touch_is_prefix(uint64_t places);

/* The end of what may be touched when the program has written `front` bytes of a block of `bytes`:
 * whole huge pages. */
uint64_t touch_until(uint64_t front, uint64_t bytes);
