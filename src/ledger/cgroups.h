/* The tree of memory cgroups of the machine, whether processes are in them or not: v1's memory controller, else v2.
 *
 *     struct cgroups *cgroups;
 *     int r = cgroups_new(NULL, &cgroups);
 *     while (r == 0)
 *         r = cgroups_read(cgroups, 10 * NS_PER_MS);    // 1: the whole tree was read
 *     size_t n;
 *     const struct cgroup *rows = cgroups_rows(cgroups, &n);
 *
 * One look at the tree, which is a constant once it is whole; the next look is a new one. A cgroup takes 50 to 150 µs,
 * most of it the kernel's for memory.stat. Shallow ones are read first, so that whoever makes cgroups of his own, as many
 * and as deep as he likes, uses up his own part of CGROUPS_MAX and not that of the rest. Names are strangers' bytes.
 * Nothing here logs; one thread at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "book/cgroup.h"

enum {
    CGROUPS_MAX = 16384,
    CGROUPS_PATH_MAX = 2048, /* bytes, with the 0 at the end */
    CGROUPS_DEPTH_MAX = 128,
    CGROUPS_LIST_MAX =
        32 << 20, /* bytes of cgroup.procs: 4 million processes; longer lists are not counted */
};

struct cgroup {
    char *path;       /* "/", "/system.slice/ssh.service" */
    const char *name; /* its last part; "/" of the root */
    uint32_t depth;   /* of the root: 0 */
    uint32_t valid;   /* bits by enum cgroup_figure: known */
    uint32_t none;    /* likewise: there is no such figure, or no limit; in neither: not readable */
    bool cut;         /* some below it were left out, so sums are not known */
    const struct cgroup *parent; /* NULL of the root */
    uint64_t figures[CGROUP_FIGURES];
};

struct cgroups;

/* `root`: where cgroups are mounted; NULL: "/sys/fs/cgroup". -ENOENT when no memory cgroups are there; -errno when it cannot
 * be opened; -ENOMEM. */
int cgroups_new(const char *root, struct cgroups **ret_cgroups);
void cgroups_free(struct cgroups *cgroups); /* NULL is fine */

void cgroups_freep(struct cgroups **cgroups);

/* Go on until all is read (1) or `cpu_ns` of this thread were spent (0), after one cgroup at least. -ENOMEM: only
 * cgroups_free() may follow. */
int cgroups_read(struct cgroups *cgroups, uint64_t cpu_ns);

/* Once it is whole. Every cgroup comes after its parent and before its parent's next child. */
const struct cgroup *cgroups_rows(const struct cgroups *cgroups, size_t *ret_n);
uint64_t cgroups_left_out(const struct cgroups *cgroups); /* past one of the limits */
uint64_t cgroups_time_ns(const struct cgroups *cgroups);  /* CLOCK_MONOTONIC of the start */
