/* memoird's tree of cgroups: read by the process table's thread, a slice at a time, while there are questions; answered
 * from the last look that was whole. A look takes 1 part in CGROUP_TABLE_SHARE of a processor: with thousands of cgroups,
 * looks come less often, and each says how old it is. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cgroup_table;
struct cgroups;

enum {
    CGROUP_TABLE_SHARE = 50,
    CGROUP_TABLE_SLICE_MS = 50,   /* of CPU, before the thread looks for what else is due */
    CGROUP_TABLE_REST_MAX_S = 60, /* between two looks, whatever they cost */
    CGROUP_TABLE_WANTED_S = 30,   /* looks go on for so long after a question */
    CGROUP_TABLE_STALE_MS = 3000, /* past the moment when the next look should have been */
};

/* `root` as in cgroups_new(), borrowed for good. */
int cgroup_table_new(const char *root, struct cgroup_table **ret_table);
void cgroup_table_free(struct cgroup_table *table); /* NULL is fine */

/* The thread: when it should do something next (CLOCK_MONOTONIC), UINT64_MAX without questions; and that. */
uint64_t cgroup_table_due_ns(struct cgroup_table *table, uint64_t now_ns);
void cgroup_table_turn(struct cgroup_table *table);

/* Other threads: a question came; is there a look that is fresh enough? Also true when there are no cgroups. */
bool cgroup_table_ready(struct cgroup_table *table);

/* The last whole look, for no longer than it takes to read it; NULL, and nothing is locked, when there is none. */
const struct cgroups *cgroup_table_lock(struct cgroup_table *table);
void cgroup_table_unlock(struct cgroup_table *table);
