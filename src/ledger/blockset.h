/* A set of blocks that is compared with a newer picture of itself: each block of the picture is put in,
 * which tells whether it was there; then those that were not put in again are swept out.
 *
 * Chains over one array of entries: no allocation per block, and entries are found by number. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct blockset_entry {
    uint64_t id, bytes, time_ns;
    uint32_t owner; /* the caller's: with `id` it names the block */
    uint32_t tag;
    uint32_t next;  /* entry number + 1 in its chain, or in the list of free ones; 0 ends */
    uint32_t round; /* in which it was put in last; 0: free */
};

struct blockset {
    struct blockset_entry *entries;
    size_t n_entries, room; /* n_entries: used or in the list of free ones */
    size_t n;               /* in the set */
    uint32_t *buckets;      /* entry number + 1; as many as a power of two, or NULL */
    size_t n_buckets;
    uint32_t free;  /* entry number + 1 */
    uint32_t round; /* of the picture being put in */
};

enum blockset_result {
    BLOCKSET_SAME,     /* was there, equal in size and time */
    BLOCKSET_NEW,      /* was not there */
    BLOCKSET_REPLACED, /* another one was there under this name: ret_old is it */
    BLOCKSET_AGAIN,    /* was put in before, in this round: nothing changed */
};

void blockset_release(struct blockset *set);

/* Begin a new picture. */
void blockset_begin(struct blockset *set);

/* Put a block into the picture; times that are no more than `tolerance_ns` apart are the same. enum
 * blockset_result; -ENOSPC when there are `max` already and it is not
 * among them; -ENOMEM. */
int blockset_put(struct blockset *set, const struct blockset_entry *block, size_t max,
                 uint64_t tolerance_ns, struct blockset_entry *ret_old);

/* Take out all that were not put in since blockset_begin(), and tell of each. A non-zero answer ends it
 * and is returned. */
int blockset_sweep(struct blockset *set,
                   int (*each)(const struct blockset_entry *gone, void *context), void *context);
