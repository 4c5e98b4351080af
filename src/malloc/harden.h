/*
 * harden.h: blocks that are checked: MEMOIR_MALLOC=harden=1, 2 or 3.
 *
 *   1   A block ends with a record: bytes asked, who allocated it, who freed it, all under a check that is bound to its address; between
 *       the bytes asked and the record lies a canary. free() and realloc() accept only the start of a live block, whole
 *       canary and record included. A block that was freed keeps its record until it is given out again, so a second free is known.
 *   2   Freed blocks are filled and wait in a quarantine of bounded size (quarantine.h); what was written into one meanwhile is
 *       seen when it leaves.
 *   3   Blocks above a page, and one in HARD_SAMPLE of the smaller ones, end at a page that cannot be touched and have another
 *       before them (guard.h): an access out of bounds ends the program where it happens, and so does one after free.
 *
 * A crime ends the program by SIGABRT after one message on stderr that names it, the block and the stacks: see harden_report.c.
 *
 * Level 0 has none of this. Every call comes here only because the thread's fast heap is heap_none (heap.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "malloc/heap.h"

enum {
    HARD_RECORD_BYTES = 24,
    HARD_CANARY_MIN = 8,
    HARD_CANARY_MAX = 256, /* what is written beyond the end begins there */
    HARD_EXTRA = HARD_RECORD_BYTES + HARD_CANARY_MIN,
    HARD_FILL_MAX = 64 << 10, /* bytes of a freed block that are filled and checked */
    HARD_SAMPLE = 64,
    HARD_EARLY_MAX = 256,
};

/* At the end of a block, or in the first page of a guarded one. */
struct hard_record {
    uint64_t check; /* over all but free_stack, with the state; any thread, by compare-and-swap */
    uint64_t bytes; /* asked; constant while the block lives */
    uint32_t alloc_stack; /* depot.h; constant while the block lives */
    uint32_t free_stack;  /* by whoever freed it */
};
_Static_assert(sizeof(struct hard_record) == HARD_RECORD_BYTES, "room for it is asked for");

enum hard_crime {
    HARD_NONE,
    HARD_FOREIGN, /* no memory of ours */
    HARD_INSIDE,  /* not the start of a block */
    HARD_UNUSED, /* where a block could be, but none was given out, or its memory was given back since */
    HARD_TWICE,   /* freed before */
    HARD_OVERRUN, /* the canary behind it was changed */
    HARD_RECORD,  /* the record itself: a long overrun, or one of the block after it */
    HARD_AFTER,   /* written to after it was freed */
};

/* A block of ours, whatever its kind. */
struct hard_block {
    char *start;
    size_t usable; /* of what lies below */
    struct slab *slab;
    struct hard_record *record;
    bool guarded;
};

/* 0 to 3. Set once. */
extern uint32_t hard_level __attribute__((visibility("hidden")));
static_assert(HARD_RECORD_BYTES % sizeof(uint64_t) == 0, "records lie at words");

/* The settings are known. */
void hard_begin(void);

/* A block given out before that: it has no record. Is it one of those? `take`: and not from now on. */
void hard_early_add(void *p);
bool hard_early_is(const void *p, bool take);

/* Before fork, and after it in both processes. */
void hard_fork_prepare(void);
void hard_fork_done(bool child);

/* As the functions of C, but for errno: the caller sets ENOMEM when there is no memory. Not for blocks of user segments. */
void *hard_alloc(size_t bytes, size_t align, bool zero);
void hard_free(void *p);
void *hard_realloc(void *p, size_t bytes);
size_t hard_usable(void *p);

/* What is at an address: HARD_NONE and a block, whose record may be any bytes, or why there is none. With `inside`, a block
 * around the address serves too. */
enum hard_crime hard_find(const void *p, bool inside, struct hard_block *ret);

enum hard_state { HARD_LIVE = 1, HARD_FREED = 2, HARD_DAMAGED = 0 };
enum hard_state hard_state(const struct hard_block *b);

/* A live block's canary; true where there is none to look at. */
bool hard_whole(const struct hard_block *b, const char **ret_where);

/* Is what was filled still so? Of a block in quarantine. */
bool hard_filled(const struct hard_block *b, const char **ret_where);

/* Let a block out of quarantine: back to where it came from. */
void hard_release(const struct hard_block *b);

/* harden_report.c: tell it and end the program. `b` may be NULL. `where` is the address that was damaged. */
_Noreturn void hard_report(enum hard_crime crime, const void *p, const struct hard_block *b,
                           const void *where);
