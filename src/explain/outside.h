/* Growth of a process's RSS, and what of it is outside malloc.
 *
 * The RSS is looked at regularly and judged by the detector (ledger/detect.h), which calls it growing at most: whether
 * anything is freed is not known. What grows is told by two explanations, an early one and a late one. So a leak in a
 * runtime's own heap is told, although no call site holds it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "explain/explain.h"
#include "ledger/detect.h"

struct buffer;
struct suspect;

enum {
    OUTSIDE_POINTS = 240, /* beyond it every second one is dropped */
    OUTSIDE_EXPLAIN_MS = 1000,
    OUTSIDE_EXIT_SHARE = 8, /* an exit may take one part in so many of the time */
    OUTSIDE_SHARE = 50,     /* an explanation may take one part in so many of the time */
};
#define OUTSIDE_INTERVAL_NS UINT64_C(250000000)

struct outside {
    pid_t pid;
    uint64_t needs_ns; /* of the detector; 0: its own */
    uint64_t begin_ns, next_ns, interval_ns;
    uint64_t explain_ns; /* not before */
    struct detect_point points[OUTSIDE_POINTS];
    size_t n;
    struct explain *first, *last; /* NULL: none yet; `last` is the one with the largest RSS */
    uint64_t first_ns, last_ns;   /* when they were taken, since the beginning */
};

struct outside_verdict {
    bool grows;
    double rss_per_s, heap_per_s; /* bytes; the heap with its slack */
    char name[EXPLAIN_NAME_MAX];  /* the part outside malloc that grew most; "": none did */
    enum explain_kind kind;       /* of that part */
    const char *advice;           /* what to do to see more; NULL: nothing is known */
};

/* What of this process is resident outside malloc, in one word: the largest part that is neither malloc's nor a
 * file's, with advice; "": there is none. */
void outside_largest(const struct explain *explain, struct outside_verdict *ret_verdict);

/* Put that into a row of growth outside malloc. Without memory it stays as it is. */
void outside_name(const struct explain *explain, struct suspect *suspect);

void outside_init(struct outside *growth, pid_t pid, uint64_t now_ns);
void outside_release(struct outside *growth);

/* Look, if it is time to; -ESRCH when the process is gone. Takes microseconds, and up to OUTSIDE_EXPLAIN_MS when the RSS has grown
 * by a tenth since the last explanation. */
int outside_look(struct outside *growth, uint64_t now_ns);

/* The same without explanations, for a caller that has them taken elsewhere: outside_due() tells when, and outside_explained() brings
 * one that was begun at `begin_ns` and took `cost_ns`; the watch takes it over. */
int outside_note(struct outside *growth, uint64_t now_ns);
bool outside_due(const struct outside *growth, uint64_t now_ns);
void outside_explained(struct outside *growth, struct explain *explain, uint64_t begin_ns,
                       uint64_t cost_ns);

/* The process has ended by itself: what it gave back last, in at most an eighth of the time, is no end of its growth. Interpreters
 * free all that they have when they exit. */
void outside_ended(struct outside *growth);

/* The growth of `b` over `a`, in `span_ns`: what both explain. */
void outside_compare(const struct explain *a, const struct explain *b, uint64_t span_ns,
                     struct outside_verdict *ret_verdict);

/* grows is set where the detector says so, and most of it is outside malloc. */
void outside_judge(const struct outside *growth, struct outside_verdict *ret_verdict);

/* The same for a process without a book, whose growth in malloc has no other verdict: then the part is the heap. */
void outside_judge_all(const struct outside *growth, struct outside_verdict *ret_verdict);
/* For outside_compare(): most of what grew is malloc's. */
void outside_verdict_all(struct outside_verdict *verdict);

/* "RSS grows by 15.0 MB/min, 0.2 MB/min of it in the heap; growing part: CPython arenas (pymalloc); ...", without full stop. */
void outside_tell(const struct outside_verdict *verdict, struct buffer *out);
