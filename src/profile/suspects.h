/* What a search for leaks came to, apart from how it is shown: one row for each call site that may leak.
 *
 * Verdicts come from a watch of our own or from memoird; names of functions, stacks and sample blocks are read from the
 * books here in both cases. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ledger/detect.h"
#include "ledger/leaks.h"

struct ledger;
struct site_names;

enum {
    SUSPECT_BLOCKS = 3, /* sample blocks: the oldest, one from the middle, the newest */
    SUSPECT_FRAMES = 24,
    SUSPECT_POINTS_MAX = 400,
    SUSPECT_SAMPLES_MIN =
        3, /* a stack that fewer live samples speak for is not named: it may be chance */
};

/* What it held at one moment. */
struct suspect_point {
    uint64_t time_ns; /* since 1970 */
    uint64_t bytes;
};

struct suspect_block {
    uint64_t id, bytes, age_ns;
};

/* Strings are owned; NULL: not known. */
struct suspect {
    uint64_t pid; /* 0: not known */
    uint32_t uid; /* UINT32_MAX: not known */
    char *program, *user;
    char *device, *device_name, *device_uid; /* a label such as "0 H200", or "host" */
    int32_t ordinal;                         /* below 0: the host's memory */
    char *space;
    enum detect_verdict verdict;
    char *reason, *why;
    double confidence, bytes_per_s, blocks_per_s;
    double ever_freed; /* below 0: not known */
    uint64_t live_bytes, live_blocks;
    uint64_t span_ns;    /* watched */
    uint64_t growing_ns; /* how long it has been growing for, as far as watched */
    uint64_t left_ns;    /* UINT64_MAX: not known */
    uint64_t limit_bytes;
    char *limit; /* "cgroup", "machine", "device" */
    uint64_t spark[LEAK_SPARK];
    unsigned n_spark;
    struct suspect_point *points; /* the whole series, where it was kept; owned */
    size_t n_points;
    uint64_t book_ino; /* where the site is */
    uint32_t site_number;
    uint64_t key; /* the site's, the same in every run; 0: not known */

    /* From the book: suspects_name(). */
    char *site, *via, *frame, *function, *file; /* as of book_site_name */
    uint32_t line;
    char *stack[SUSPECT_FRAMES]; /* innermost first; only where there is more than one frame */
    unsigned n_stack;
    unsigned n_inside; /* of these, how many lie inside of the line that `site` names */
    bool by_samples;   /* the line was found by sampling: another one may have asked for the rest */
    /* Where the stack was found by sampling: how many of the live samples have the line or, where the caller itself is the
     * line, the stack. 0 of 0: it is exact. */
    uint32_t stack_samples, samples;
    struct suspect_block blocks[SUSPECT_BLOCKS];
    unsigned n_blocks;
    bool resident; /* no site, but the resident size of a process without a book */
    /* with resident: of a process with a book, what is resident beyond what it counts; `site` is the part that most of
     * it is (explain/outside.h), where that was looked at */
    bool outside;
};

struct suspects {
    struct suspect *rows;
    size_t n;
    size_t processes, sites;          /* looked at */
    size_t verdicts[DETECT_VERDICTS]; /* of these sites */
    size_t left_out;                  /* sites past a limit */
    uint64_t span_ns;
    bool incomplete;
    bool daemon;   /* memoird watched */
    bool resident; /* the one row is a resident size */
};

void suspects_release(struct suspects *suspects);
void suspect_release(struct suspect *suspect);

/* Take over rows of a watch. */
int suspects_from(const struct leaks *leaks, struct suspects *ret_suspects);

/* The stack of a suspect in words, with the calls compiled into each other. The suspect has none before. A step of
 * suspects_name(). */
struct book_stack;
struct profile;
void suspect_stack(struct suspect *suspect, const struct profile *profile,
                   const struct book_stack *stack);

/* Names and sample blocks of the first `n` rows, from the books of `ledger`. `symbols` may be NULL. What cannot be
 * read stays unknown. */
void suspects_name(struct suspects *suspects, size_t n, const struct ledger *ledger,
                   struct site_names *symbols);
