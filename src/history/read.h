/* Reading history: what the values were, between two moments, at steps of some length.
 *
 * Opens the file for reading only: while memoird writes, after it ended, after it was killed. The coarsest tier is
 * used that is fine enough for the steps asked for; where it has nothing (too old, or not rolled up yet) the
 * others fill in. Of each step, `last` is the value at its end and `max` the largest in it, which coarser tiers
 * keep too. Values of several series are added up at each moment of the tier; the sum of their `max` is then the most
 * that it can have been. One thread; errors are -errno: -ENOENT without a file, -EBADMSG when it is none of
 * ours, -E2BIG when it would be too many points. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "history/tier.h"

enum {
    READ_STEPS_MAX = 200000,
    READ_POINTS_MAX = 20000000, /* of all lines */
};

enum read_by { READ_BY_DEVICE, READ_BY_PROCESS, READ_BY_PROGRAM, READ_BY_USER };

struct read_query {
    uint64_t since_s, until_s; /* since 1970; until is not included */
    uint64_t step_s;           /* at least 1; both ends are moved to whole steps */
    enum read_by by;
    bool blocks;         /* blocks instead of bytes */
    int64_t pid;         /* 0: all; this and what follows leaves out what does not match */
    const char *program; /* NULL: all; else its name, with * and ? as in file names */
    bool by_uid;
    uint32_t uid;
    const char *device; /* NULL: all; "host", or a device's number, name, uid or bus address */
    bool by_space;
    uint32_t space; /* enum memoir_space; 0: the resident size, or with */
    bool pss;       /* the proportional one */
    bool system;    /* the machine's memory instead, and nothing else */
};

struct read_point {
    bool present;
    uint64_t last, max;
};

/* What stands for a group of series. */
struct read_line {
    uint32_t processes; /* how many are in it; 0: a sum of the machine's */
    int64_t pid;        /* by process */
    uint64_t began_s;   /* by process; 0: unknown */
    uint32_t uid;       /* by process and by user */
    char program[64];   /* by process and by program */
    char node[64];
    bool on_device; /* else the host's */
    uint32_t kind;
    int32_t ordinal;
    char device[64], device_uid[64], bus[32];
    enum { READ_ACCOUNT, READ_PSS, READ_SYSTEM } what;
    /* enum memoir_space; 0: the resident size, or blocks of all spaces; or, of the machine, enum
     * history_system */
    uint32_t space;
    bool has_capacity;
    uint64_t capacity;
    bool any;                        /* there is at least one point */
    uint64_t min, max, last, last_s; /* min is the least `last` */
    struct read_point *points;       /* read_result.n_steps */
};

struct read_result {
    enum read_by by;
    uint64_t since_s, until_s, step_s;
    size_t n_steps;
    struct read_line *lines; /* those with a point, ordered by device, space, then the rest */
    size_t n_lines;
    struct read_point *points; /* of all lines */
    uint64_t oldest_s;         /* of all that is in the file; 0: nothing */
    uint64_t damaged;          /* chunks that made no sense, left out */
};

/* Costs about 3 us a series and window. */
int read_history(const char *path, const struct read_query *query, struct read_result *ret_result);
void read_release(struct read_result *result);
