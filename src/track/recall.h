/*
 * recall.h: the sites of stacks, where every call has to have one.
 *
 * Programs allocate in loops: the same callers at the same places of the stack, over and over. So a thread keeps the
 * trail of its last walk (trail.h), and a table of stacks that it had before, each with all that the walk to its site
 * depended on: where it began, the words of the stack that it read, and in a process that runs Python the lines
 * that its calls are at. Of a deep stack the table has the innermost part, and the trail the rest. What is in the table is
 * compared with what is there now; only if all of it is the same, it is the same stack.
 *
 * Samples, which are few, use the trail alone.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "site/python.h"
#include "site/trail.h"

struct book_site_counters;
struct track_thread;

enum {
    RECALL_CHECKS = 16, /* an entry's own: the rest of a deeper stack is the trail's */
    RECALL_WAYS = 2,
    RECALL_BITS = 11,
    RECALL_OWN = 4,     /* ways through our own functions that a thread knows, */
    RECALL_CALLERS = 4, /* and callers further out that tell stacks apart */
    RECALL_SETS = 1 << RECALL_BITS,
    RECALL_REST = 64, /* samples that are walked after one that was too deep, or left no trail */
};

struct recall_entry {
    uintptr_t pc; /* where the walk began: see unwind_state; 0: empty */
    uintptr_t sp, fp;
    uintptr_t top;   /* of the stack */
    uint64_t script; /* what Python is at: see recall.c */
    uint64_t outer;  /* place_hash of the outermost frame that is not the entry's own */
    uint32_t closes; /* of track_closes: other code may be at these addresses since */
    uint16_t kept;   /* frames of the trail that belong to the stack; 0: none */
    uint8_t n;       /* checks */
    bool fp_used;
    uint32_t site;
    struct book_site_counters *counters;
    struct trail_check checks[RECALL_CHECKS];
};

/* What counting a block needs. */
struct recall_found {
    struct book_site_counters *counters;
    uint32_t site;
};

struct recall {
    uint64_t uses; /* calls of recall_quickly(): tells one that it was interrupted by another */
    uint32_t next; /* way to give up next */
    uint32_t own[RECALL_OWN]; /* words from where walks begin to the return address of our caller */
    uint32_t own_next;
    uint32_t rest;              /* samples that are to be walked: see RECALL_REST */
    uint32_t closes;            /* of track_closes when the trail was begun */
    uint32_t python_closes;     /* when Python was last seen on this thread's stack, */
    struct trail_check python;  /* a return address into it; at 0: never */
    struct recall_entry *fresh; /* to be completed by recall_keep(); NULL: none */
    uintptr_t fresh_pc;
    struct trail trail;
    struct python_stack calls;         /* of Python */
    uintptr_t stack[TRAIL_FRAMES_MAX]; /* the one that is being entered, innermost first */
    /* of its frames in the book, which are the tags of the trail */
    uint32_t places[TRAIL_FRAMES_MAX];
    struct recall_entry set[RECALL_SETS][RECALL_WAYS];
};

/* Is the stack of this thread, from the function on that calls this, one that is known? Then *ret_found has all that counting
 * needs. Else *ret_from is where to walk from, as long as the caller does not return. `caller` is whoever called us. */
bool recall_quickly(struct track_thread *t, uintptr_t caller, struct recall_found *ret_found,
                    struct unwind_state *ret_from);

/* The site of a stack that is not known, from `from` on; NULL: wherever that is. Inside (track_enter). */
uint32_t recall_site(struct track_thread *t, uintptr_t caller, const struct unwind_state *from);

/* The site of a sampled block (BOOK_SITE_SAMPLED), from the function on that calls this, with what is the same as at the last sample taken
 * over from there. BOOK_SITE_NONE: it has to be walked; scripts and deep stacks are. Inside. */
uint32_t recall_sampled_site(struct track_thread *t);

/* A block was counted at that site: now it can be known from. Inside. */
void recall_keep(struct track_thread *t, uint32_t site);

/* For tests, whose build has it: compare a site with these flags with that of a walk by the tables. Inside, unless `quickly`. */
#ifdef RECALL_VERIFY
void recall_verify(struct track_thread *t, uint32_t site, const struct unwind_state *from,
                   uint32_t flags, bool quickly);
#else
static inline void recall_verify(struct track_thread *t, uint32_t site,
                                 const struct unwind_state *from, uint32_t flags, bool quickly)
{
}
#endif

/* Was the program started with an interpreter of Python in it? Asks the loader's lists, not dlsym(): that leaves an error
 * for the program's next dlerror() where it finds nothing. */
bool recall_interpreter(void);
