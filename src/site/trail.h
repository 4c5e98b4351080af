/* The stack of a thread, walked only as far as it changed.
 *
 * A walk by call frame information is a chain of reads: from (pc, sp, frame pointer) of a frame the tables of the
 * code at pc tell where its return address lies, and so on. So a walk comes out the same as an earlier one if it
 * starts in the same state and all words that it read are the same: these are the trail's checks, one for each
 * return address, and one more where a frame pointer is needed that was saved on the stack. They are compared in
 * a nanosecond or two for three frames. And a walk that arrives in a frame where an earlier one has been, whose
 * checks further out hold, goes on like that one: only the frames inside of it are walked.
 *
 * Nothing else is taken for granted, neither that a stack which has the same innermost frames is the same further
 * out, nor that a return address found where one was is still in use: what a frame's place follows from is checked.
 * Functions with frames of varying size (alloca), longjmp(), exceptions and stacks that come back at the same place are
 * therefore no special cases.
 *
 * Only complete walks over plain rules on the thread's own stack leave a trail. Others (signal frames, stacks of
 * coroutines, generated code, modules that cannot be told apart) are an error here, and a matter for unwind.h.
 *
 * What the tables say holds until a library is unloaded. The caller has to know of that, and to call trail_forget().
 *
 * A struct trail is one thread's and one call's at a time. It is in order at any moment: who is torn out of a call by
 * longjmp() leaves a trail that is whole or empty. Async-signal-safe; nothing is allocated; errno is kept. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"
#include "site/stack.h"
#include "site/unwind.h"

enum {
    TRAIL_FRAMES_MAX = 512, /* a deeper stack leaves none */
    TRAIL_CHECKS_MAX = 2 * TRAIL_FRAMES_MAX,
};

/* A word of the stack that a walk read and that decided where it went. */
struct trail_check {
    uintptr_t at, value;
};

struct trail_frame {
    uintptr_t pc, sp;    /* as in unwind_stack_places() */
    uintptr_t fp;        /* the frame register in this frame, if */
    bool fp_used;        /* the walk needed it, here or further out */
    uint32_t checks;     /* checks of this frame and all further out: the first so many */
    uint32_t tag;        /* the user's: 0 in a new frame, and kept with it */
    uint64_t code_hash;  /* of all pcs from here on outwards */
    uint64_t place_hash; /* of pc, sp, and fp where it is used, from here on outwards */
};

/* A frame that a walk passes, before it is part of the trail. */
struct trail_step {
    uintptr_t pc, sp, fp;
    struct trail_check back;  /* the return address; at 0: none, the outermost frame */
    struct trail_check saved; /* the caller's frame pointer, if it was saved here */
    struct trail_check base;  /* where the frame is, if the stack tells it */
    bool fp_used, saved_used;
};

/* Zeroed memory is an empty trail. */
struct trail {
    uintptr_t top;                               /* of the stack it lies on: stack_own_top() */
    uint32_t n;                                  /* frames */
    struct trail_frame frames[TRAIL_FRAMES_MAX]; /* the outermost first */
    struct trail_check checks[TRAIL_CHECKS_MAX];
    struct trail_step steps[TRAIL_FRAMES_MAX]; /* the innermost first; only while it is walked */
};

/* Walk the stack of this thread from `from` on, whose skip is 0. Afterwards the trail has all its frames; *ret_kept of
 * them, the outermost ones, are those that it had before. 0; else the trail may have lost frames, or all:
 * -ENOTSUP, -ENOENT: this stack leaves no trail; -E2BIG: it is too deep. */
int trail_walk(struct trail *trail, struct unwind_cache *cache, const struct unwind_state *from,
               uint32_t *ret_kept);

static inline void trail_forget(struct trail *trail)
{
    trail->n = 0;
}

/* Do these hold? All must lie on this thread's own stack, above its stack pointer. Without a branch for each. */
__attribute__((no_sanitize("address", "thread", "undefined"))) static inline bool trail_hold(
    const struct trail_check *checks, uint32_t n)
{
    uintptr_t wrong = 0;
    for (uint32_t i = 0; i < n; i++)
        wrong |= *(const volatile uintptr_t *)checks[i].at ^ checks[i].value;
    return wrong == 0;
}
