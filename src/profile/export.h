/* Profiles for other tools. Stacks are those of stacks.h: their figures add up to the exact ones. */
#pragma once

#include <stdint.h>

#include "profile/rows.h"

struct buffer;
struct profile;

enum { EXPORT_MAX = 1 << 30 }; /* bytes of one document: a limit for buffers that take it */

struct export_options {
    enum rows_measure measure; /* of folded stacks; what the others show first */
    uint32_t space;            /* enum memoir_space; 0: any */
};

/* All add names to the profile's strings and append to `out`. 0 or -errno. */

/* The message Profile of pprof, gzipped: samples with alloc_objects, alloc_space, inuse_objects and
 * inuse_space and labels for space, device and estimates; mappings with build-ids. */
int export_pprof(struct profile *profile, const struct export_options *options, struct buffer *out);

/* A line for each stack: "main;load;malloc_wrapper 4096". Stacks that have nothing are left out. */
int export_folded(struct profile *profile, const struct export_options *options,
                  struct buffer *out);

/* speedscope's JSON: a sampled profile for each of live bytes, live blocks, allocated bytes and allocated
 * blocks. */
int export_speedscope(struct profile *profile, const struct export_options *options,
                      struct buffer *out);
