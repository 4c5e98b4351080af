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

/* Does the path lead out of the cgroups that we can see? The process is then of another cgroup namespace. */
bool cgroup_path_outside(const char *path);

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

/* A number of version 1 or 2 as a limit: UINT64_MAX if it means that there is none. */
uint64_t cgroup_limit(uint64_t number);

/* The directory of a cgroup: "/sys/fs/cgroup", "/memory" for version 1, and its path. The length of all but the path, or
 * -ENAMETOOLONG. `path` may lie in `ret_folder`, behind its first CGROUP_ROOT_MAX bytes. */
int cgroup_folder(const char *root, bool v1, const char *path, char *ret_folder, size_t size);

/* Read the cgroup of `folder` and all above it, since a limit above counts as well; `top` is what cgroup_folder()
 * returned. `each` gets those that have a limit. `folder` is shortened to its first `top` bytes on the way. Returns the
 * first error but -ENOENT, after all were read. */
int cgroup_memory_each(char *folder, size_t top, bool v1,
                       void (*each)(const struct cgroup_memory *memory, void *context),
                       void *context);
