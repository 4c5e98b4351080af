/* Parsers of what /proc and cgroups say, beyond the formats of base/procfs.h. Pure functions over text that ends with a 0: names in it are any
 * bytes that a stranger chose, so everything is bounded and nothing is trusted. -EBADMSG when a text makes no
 * sense; outputs change on success only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct host_system;

struct host_status {
    uint32_t uid;
    pid_t group; /* whose thread it is: /proc has names for all, though it lists processes only */
    bool has_parts, has_peak;
    uint64_t anon, file, shmem, lib, swap, peak; /* bytes */
};
int host_parse_status(const char *text, struct host_status *ret_status);

struct host_rollup {
    uint64_t pss, uss, dirty; /* bytes */
};
int host_parse_rollup(const char *text, struct host_rollup *ret_rollup);

int host_parse_meminfo(const char *text, struct host_system *system);

/* Path of the cgroup whose memory limits count: v1's memory controller, else v2's. `ret_v1` says which. */
int host_parse_cgroup(const char *text, char *ret_path, size_t size, bool *ret_v1);

/* What the path tells; "" where it tells nothing. */
void host_cgroup_words(const char *path, char *ret_container, char *ret_pod, char *ret_job,
                       size_t size);

/* What an environment tells. `text` is `len` bytes, variables end with a 0; the last one may be cut. */
struct host_environment {
    bool has_rank, tracker; /* tracker: libmemoir-track or libmemoir-malloc is in LD_PRELOAD */
    uint32_t rank;
    char job[64]; /* "" when there is none */
};
void host_parse_environ(const char *text, size_t len, struct host_environment *ret_environment);
