/* memoird's watch over the resident size of processes that keep no book of their heap: growth that no call site holds.
 *
 * The table of all processes tells which of them grew since the last look; these are watched one by one (statm, 8 µs a look), and
 * judged by the detector, which calls a resident size growing at most. What grows is told by two explanations of their mappings
 * (explain/outside.h), which cost 15 ms for each GB: an early one and one when the growth has lasted, taken on a thread, one at a
 * time, within CLIMBING_SHARE of a processor's time; a short while ahead of it, so that the first processes need not wait. Growth in mapped files is not told: the kernel takes those pages back when it
 * needs them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct asking_viewer;
struct climbing;
struct daemon;
struct suspects;

enum {
    CLIMBING_MAX = 32,   /* processes watched at a time; what grows beyond them is counted */
    CLIMBING_LOOKS = 60, /* in the time that a verdict needs */
    CLIMBING_INTERVAL_MIN_MS = 10,
    CLIMBING_SCAN = 5,       /* of these, one look at all processes */
    CLIMBING_SHARE = 200,    /* explanations take one part in so many of the time, */
    CLIMBING_AHEAD_MS = 300, /* ahead of it at most so much, */
    CLIMBING_REST =
        10, /* times as long as a late one took, none of its user is explained; more if it happens again */
    CLIMBING_AGAIN = 5,       /* those of one process come again after so many times needs_ns, */
    CLIMBING_EXPLAIN_GB = 16, /* and larger processes get none */
    CLIMBING_STEP = 64 << 10, /* bytes of growth that make a process worth watching */
    CLIMBING_EARLY = 1 << 20, /* of growth before the first explanation, */
    CLIMBING_LATER = 2 << 20, /* and between it and the second */
};

/* A verdict after `needs_ns`. */
int climbing_new(struct daemon *daemon, uint64_t needs_ns, struct climbing **ret_climbing);
void climbing_free(struct climbing *climbing); /* NULL is fine */

/* On the loop: add a row for each process that grows and of which the viewer may see details; all for NULL as viewer. 0 or -ENOMEM.
 * NULL for `climbing` adds none. */
int climbing_suspects(struct climbing *climbing, const struct asking_viewer *viewer,
                      struct suspects *suspects);

struct climbing_facts {
    size_t watched;
    uint64_t left_out; /* processes that grew while CLIMBING_MAX others were watched, each once */
    uint64_t explanations; /* taken since the start, */
    uint64_t explain_ns;   /* in this CPU time */
};
struct climbing_facts climbing_facts(const struct climbing *climbing); /* all 0 for NULL */
