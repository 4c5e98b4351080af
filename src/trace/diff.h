/* diff.h: what changed from one history to another: two dumps of one process, or of two runs of a program.
 *
 * Holders are compared by the key of their call site, space, device and class, which mean the same in every run; sites without a key
 * by their number. Blocks are compared if both histories are of the same process (same PID and start): one is the same block
 * if its address, call number and start are equal. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/history.h"

enum trace_change {
    TRACE_CHANGE_SAME = 0,
    TRACE_CHANGE_NEW = 1,    /* only in the second */
    TRACE_CHANGE_GONE = 2,   /* only in the first */
    TRACE_CHANGE_GROWN = 3,  /* holds more live bytes in the second */
    TRACE_CHANGE_SHRUNK = 4, /* holds less */
    TRACE_CHANGE_BUSIER = 5, /* holds as much, and was copied more */
    TRACE_CHANGE_CALMER = 6, /* holds as much, and was copied less */
    TRACE_CHANGES = 7,
};

struct trace_diff_row {
    uint64_t key;                     /* of the site; 0: not known */
    uint32_t before_site, after_site; /* numbers in their histories; 0: none */
    int32_t device;
    uint8_t space, class;
    uint8_t change;                           /* enum trace_change */
    struct trace_holder before, after;        /* zeroes where there is none */
    int64_t live_bytes, copies, copied_bytes; /* after - before */
};

struct trace_diff {
    struct trace_diff_row *rows; /* largest change of live bytes first, then of copied bytes */
    size_t n_rows;
    bool same_process; /* blocks were compared */
    uint64_t blocks
        [TRACE_CHANGES]; /* how many blocks became what: NEW, GONE (ended or folded), BUSIER, SAME */
    int64_t live_bytes, copied_bytes, failures; /* of the whole process: after - before */
};

/* Reads both, which may be live. -ENOMEM. */
int trace_diff_new(struct trace_history *before, struct trace_history *after,
                   struct trace_diff **ret_diff);
void trace_diff_free(struct trace_diff *diff); /* NULL is fine */

const char *trace_change_word(enum trace_change change);
