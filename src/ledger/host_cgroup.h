/* The cgroups of a machine's processes: one row for each path, with its limit and headroom. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ledger/host.h"

struct host_cgroups;

/* `root`: where cgroups are mounted. Borrowed for good. */
int host_cgroups_new(const char *root, struct host_cgroups **ret_cgroups);
void host_cgroups_free(struct host_cgroups *cgroups); /* NULL is fine */

/* The row of a path, which the caller holds until he gives it back; NULL past HOST_CGROUPS_MAX or without
 * memory. */
const struct host_cgroup *host_cgroup_ref(struct host_cgroups *cgroups, const char *path, bool v1);
void host_cgroup_unref(struct host_cgroups *cgroups, const struct host_cgroup *cgroup);

/* Read figures of those that are older than `age_ns`, `max` of them at most: 15 µs each. */
void host_cgroups_refresh(struct host_cgroups *cgroups, uint64_t now_ns, uint64_t age_ns,
                          size_t max);
