/*
 * pressure_source.h: what the kernel tells about memory that becomes scarce.
 *
 * For memoird, and for allocators without one: so neither malloc nor stdio, little stack, no descriptor that stays, no
 * cancellation point, usable in a signal handler. errno is not kept. Texts are bounded and nothing in them is trusted:
 * /proc may be anything in a container.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "book/pressure.h"

struct lines; /* lines.h */

/* ---- texts ---- */

/* One line of /proc/pressure/memory: the share of the last 10, 60 and 300 s in which some program waited for memory, or
 * all of them did, in hundredths of a per cent; and the whole time since the boot. */
struct pressure_stall {
    uint32_t avg10, avg60, avg300;
    uint64_t total_us;
};

/* /proc/pressure/memory. False: invalid, and nothing is changed. */
bool pressure_parse_stall(struct lines *text, struct pressure_stall *ret_some,
                          struct pressure_stall *ret_full);

/* /proc/meminfo, of which the inputs of a level are taken. False: invalid, and nothing is changed. */
bool pressure_parse_meminfo(struct lines *text, struct pressure_inputs *in);

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
