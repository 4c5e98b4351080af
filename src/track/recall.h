/*
 * recall.h: the sites of stacks that were seen before, without walking them again.
 *
 * Programs allocate in loops: the same callers at the same places of the stack, over and over. A stack that was
 * walked is kept with the place of every return address; if these places hold the same addresses now, it is the
 * same stack, and a few loads tell so. Not for stacks with frames of an interpreter, whose lines change while
 * its C stack stays.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct track_thread;

enum {
    RECALL_FRAMES_MAX = 30, /* deeper stacks are walked every time */
    RECALL_WAYS = 4,
    RECALL_BITS = 9,
    RECALL_SETS = 1 << RECALL_BITS,
};

struct recall_entry {
    uintptr_t first; /* place of the first return address; 0: empty */
    uint32_t closes; /* of track_closes: other code may be at these addresses since */
    uint32_t site;
    uint32_t n;
    uint32_t at[RECALL_FRAMES_MAX]; /* places, in words from the first */
    uintptr_t pcs[RECALL_FRAMES_MAX];
};

struct recall {
    uint32_t next; /* way to give up next */
    struct recall_entry set[RECALL_SETS][RECALL_WAYS];
};

/* The site of this thread's stack, whose innermost return address is `caller`. Inside (track_enter). */
uint32_t recall_site(struct track_thread *t, uintptr_t caller);

/* Was the program started with an interpreter of Python in it? Asks the loader's lists, not dlsym(): that leaves an error
 * for the program's next dlerror() where it finds nothing. */
bool recall_interpreter(void);
