/*
 * cgroup.h: which cgroup a process is in, and how much memory the cgroup may still take.
 *
 * One answer for all: the limit less what cannot be reclaimed, that is, what the cgroup uses without its inactive page
 * cache. The allocator, memoird and the views use it; see lines.h for what that means for the code here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lines;

enum { CGROUP_ROOT_MAX = 128, CGROUP_FOLDER_MAX = 640 };

/* Of the text of /proc/PID/cgroup, the cgroup whose memory limits count: that of version 1's memory controller, else of
 * version 2. False if none fits into `size` bytes. The path begins with '/'. */
bool cgroup_path_parse(struct lines *text, char *ret_path, size_t size, bool *ret_v1);

/* The same for a process: `proc` is "/proc", `process` "self" or its PID. -ENOENT: it has none that fits. */
int cgroup_path_read(const char *proc, const char *process, char *ret_path, size_t size,
                     bool *ret_v1);

/* Does the path lead out of the cgroups that we can see? The process is then of another cgroup namespace. */
bool cgroup_path_outside(const char *path);

/* Figures of a cgroup and those below it. */
enum cgroup_figure {
    CGROUP_CURRENT,
    CGROUP_PEAK,
    CGROUP_LIMIT, /* its own */
    CGROUP_HIGH,  /* above it the kernel slows its processes down; version 2 only */
    CGROUP_SWAP,
    CGROUP_ANON,
    CGROUP_FILE, /* with SHMEM */
    CGROUP_SHMEM,
    CGROUP_INACTIVE, /* of FILE, what the kernel reclaims first */
    CGROUP_KERNEL,   /* with SLAB */
    CGROUP_SLAB,
    CGROUP_OOM_KILLS,
    CGROUP_FILE_FIGURES, /* those above are in its files, those below need the tree (ledger/cgroups.h) */
    CGROUP_HEADROOM =
        CGROUP_FILE_FIGURES, /* what it, and every one around it, lets it still take */
    CGROUP_PROCESSES,
    CGROUP_OWN_PROCESSES, /* without those below it */
    CGROUP_FIGURES
};
#define CGROUP_BIT(figure)  (UINT32_C(1) << (figure))
#define CGROUP_ALL_IN_FILES (CGROUP_BIT(CGROUP_FILE_FIGURES) - 1)

struct cgroup_figures {
    uint32_t valid; /* CGROUP_BIT()s: known */
    uint32_t none;  /* there is no such figure, or no limit; in neither: not readable */
    uint64_t values[CGROUP_FILE_FIGURES]; /* 0 where not known */
};

/* The only reader of a cgroup's figures: those of `wanted` (CGROUP_BIT()s), each file once. `dir_fd` is the directory of the
 * cgroup. Returns the first error, -ENOENT for a file or a line that is not there, after all were read. */
int cgroup_figures_read(int dir_fd, bool v1, uint32_t wanted, struct cgroup_figures *ret_figures);

struct cgroup_memory {
    uint64_t limit_bytes;    /* UINT64_MAX: none */
    uint64_t used_bytes;     /* with its page cache */
    uint64_t inactive_bytes; /* of these, file pages that the kernel drops first */
};

/* One cgroup: `folder` is its directory, "/sys/fs/cgroup/a". -ENOENT if the memory controller is off there, as it is at
 * the root of version 2. About 20 µs. */
int cgroup_memory_read(const char *folder, bool v1, struct cgroup_memory *ret_memory);

/* How much it may still take; UINT64_MAX without a limit. */
uint64_t cgroup_memory_headroom(const struct cgroup_memory *memory);

/* The directory of a cgroup: "/sys/fs/cgroup", "/memory" for version 1, and its path. The length of all but the path, or
 * -ENAMETOOLONG. `path` may lie in `ret_folder`, behind its first CGROUP_ROOT_MAX bytes. */
int cgroup_folder(const char *root, bool v1, const char *path, char *ret_folder, size_t size);

/* Read the cgroup of `folder` and all above it, since a limit above counts as well; `top` is what cgroup_folder()
 * returned. `each` gets those that have a limit. `folder` is shortened to its first `top` bytes on the way. Returns the
 * first error but -ENOENT, after all were read. */
int cgroup_memory_each(char *folder, size_t top, bool v1,
                       void (*each)(const struct cgroup_memory *memory, void *context),
                       void *context);
