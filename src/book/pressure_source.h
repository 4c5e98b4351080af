/*
 * pressure_source.h: what the kernel tells about memory that becomes scarce.
 *
 * For memoird, and for allocators without one: so neither malloc nor stdio, little stack, no descriptor that stays, no
 * cancellation point, usable in a signal handler. errno is not kept. Texts are bounded and nothing in them is trusted:
 * /proc may be anything in a container.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "book/pressure.h"

/* ---- texts, line by line ---- */

enum { PRESSURE_CHUNK = 256, PRESSURE_TEXT_MAX = 64 << 10, PRESSURE_PATH_MAX = 512 };

/* Bytes of a file (fd >= 0), or of memory (fd < 0: `n` bytes at `data`). */
struct pressure_text {
    int fd;
    size_t at, n, read; /* in the chunk; read: of the file so far */
    const char *data;
    char chunk[PRESSURE_CHUNK];
};

/* The next line without its end; what does not fit is cut, and `ret_cut` says so. False at the end. */
bool pressure_text_line(struct pressure_text *text, char *line, size_t size, bool *ret_cut);

/* /proc/pressure/memory: sets the averages, and how long some program has waited since the boot. False: no sense in
 * it, and nothing is changed. */
bool pressure_parse_stall(struct pressure_text *text, struct pressure_inputs *in,
                          uint64_t *ret_some_us);
bool pressure_parse_meminfo(struct pressure_text *text, struct pressure_inputs *in);

/* Of /proc/self/cgroup, the cgroup whose memory limits count: that of version 1's memory controller, else of version 2. */
bool pressure_parse_cgroup(struct pressure_text *text, char path[static PRESSURE_PATH_MAX],
                           bool *ret_v1);

/* ---- files ---- */

/* Read below `proc` ("/proc"): memory and stalls, as far as they can be had. About 15 µs. */
void pressure_source_machine(const char *proc, struct pressure_inputs *in, uint64_t *ret_some_us);

/* The limit with the smallest share left of this process's cgroup and of those above it, or, without `own`, of the root of
 * what can be seen: a container's. 10 µs for each of them. */
void pressure_source_cgroup(const char *proc, const char *cgroups, bool own,
                            struct pressure_inputs *in);

/* The share of the time between two looks in which some program waited; 0 where they tell nothing. */
uint32_t pressure_source_share(uint64_t before_us, uint64_t before_ns, uint64_t now_us,
                               uint64_t now_ns);
