/* Is this memory leaking? A verdict over the figures of one call site, watched for some time.
 *
 * Pure functions: points in, a verdict with its evidence out; no clock, no files, no memory. The word "leak" is
 * used only for growth that passes every test below, all others of which have an ordinary explanation:
 *
 *   one-off      it took memory once, or a few times, and kept it
 *   stopped      it grew, and has stopped: a warm-up, a buffer or cache that is full
 *   slowing      it grows ever more slowly: a warm-up, a cache that finds most of what it needs
 *   teeth        what it gains it gives back: garbage collection, batches
 *   load         it holds more because more is going on
 *   drift        it wanders, and happens to be higher now
 *   one block    it has as many blocks as before, and these are larger: a buffer that grows
 *   bursts       it has given back as much at once before, here or in another process of the program: a garbage
 *                collector at work
 *   waits        its blocks are freed by a garbage collector, which has not collected any since it was watched
 *   frees late   it has freed in bulk before, and was watched for too short a time to see it again
 *   slower now   it grew faster before it was watched
 *
 * How: the time is cut into DETECT_WINDOWS equal parts, and only the lowest level of each part counts, so that
 * what comes and goes within a part is not seen at all. Over these low-water marks: Mann-Kendall's test (with ties)
 * for a trend, Theil-Sen's slope for the rate, and the tests of shape above. A series that is much longer than
 * what is needed is judged over several horizons; doc/leaks.md tells how they are combined, what the method cannot know,
 * and how often it errs on the series of test_detect_corpus.
 *
 * The verdict is the same when all sizes are multiplied, when time is shifted, and when a constant is held all the
 * while. About 5 µs a horizon of 120 points. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buffer;

enum {
    DETECT_WINDOWS = 18, /* six segments of three: enough for a trend, few enough for 36 points */
    DETECT_POINTS_MIN = 36,  /* two in each: below that a low-water mark is a single look */
    DETECT_WINDOWS_MIN = 15, /* that have a point at all: the daemon may have been away */
    DETECT_AGES = 8,
};
#define DETECT_NEEDS_NS UINT64_C(30000000000) /* what memoir leaks watches for by default */

/* The counters of a site at one moment. Both kinds only grow; freed is at most allocated. Bytes are judged, and blocks where
 * none of them has any: each of those costs its allocator some. */
struct detect_point {
    uint64_t time_ns; /* CLOCK_MONOTONIC; later than that of the point before */
    uint64_t alloc_bytes, freed_bytes;
    uint64_t alloc_blocks, freed_blocks;
};

static inline uint64_t detect_live_bytes(const struct detect_point *point)
{
    return point->alloc_bytes - point->freed_bytes;
}
static inline uint64_t detect_live_blocks(const struct detect_point *point)
{
    return point->alloc_blocks - point->freed_blocks;
}

enum detect_verdict {
    DETECT_UNKNOWN, /* not watched for long enough */
    DETECT_STEADY,  /* does not grow */
    DETECT_WARMING, /* grew, and has stopped or is about to */
    DETECT_GROWING, /* grows, which may have an ordinary reason */
    DETECT_LEAK,    /* grows, and none of the ordinary reasons fits */
    DETECT_VERDICTS,
};

/* What the verdict rests on. */
enum detect_reason {
    DETECT_TOO_SHORT,
    DETECT_TOO_FEW, /* points */
    DETECT_IDLE,    /* nothing was allocated or freed */
    DETECT_CHURN,   /* allocates and frees, about as much */
    DETECT_SHRINKS,
    DETECT_ONE_OFF,
    DETECT_STOPPED,
    DETECT_SLOWING,
    DETECT_TEETH,
    DETECT_LOAD,
    DETECT_DRIFT,
    DETECT_ONE_BLOCK,
    DETECT_BURSTS,
    DETECT_WAITS,
    DETECT_FREES_LATE,
    DETECT_SLOWER_NOW,
    DETECT_LEVEL_ONLY, /* only the level is known, such as a process's resident size */
    DETECT_SUSTAINED,  /* a leak */
    DETECT_REASONS,
};

/* Live bytes of the site by when they were allocated: equal parts of the time from the first block of the site to
 * the last point, the oldest first. */
struct detect_ages {
    uint64_t bytes[DETECT_AGES];
};

struct detect_options {
    uint64_t needs_ns;    /* below it the verdict is UNKNOWN; 0: DETECT_NEEDS_NS */
    uint64_t site_age_ns; /* since its first block, at the last point; 0: not known */
    bool
        collected; /* a garbage collector frees its blocks: a leak only once one was seen at work */
    bool level_only; /* freed_* are 0 and blocks are not known: never more than GROWING */
    const struct detect_ages *ages; /* NULL: not known */
};

struct detect_result {
    enum detect_verdict verdict;
    enum detect_reason reason;
    double confidence; /* of the verdict, 0 to 1; 0 with UNKNOWN */

    /* Over the horizon that the verdict is about. */
    uint64_t span_ns, needs_ns;
    double bytes_per_s, blocks_per_s; /* of the low-water marks; may be below 0 */
    int64_t grown_bytes, grown_blocks;
    unsigned windows, rises; /* parts of the time, and those in which it rose */
    double z;                /* of Mann-Kendall's test */
    uint64_t since_ns;       /* time of the point from which on it grows */
    uint64_t quiet_ns;       /* STOPPED, ONE_OFF: since then */
    double rate_then;        /* SLOWING, SLOWER_NOW: bytes/s before */
    uint64_t fall_bytes;     /* TEETH: the largest fall of the marks */
    /* of what was allocated in this time, as much was freed; below 0: nothing was */
    double freed_share;
    /* of all that was ever allocated, freed by now; below 0: nothing was, or not known */
    double ever_freed;
    /* all its blocks have no bytes: the verdict, rate_then and fall_bytes are about blocks */
    bool empty;
    bool elsewhere; /* BURSTS: another process has given it back, not this one */
    bool ages_even; /* live blocks are of all ages, so the growth is older than our watch */
};

/* `points` are in the order of time. `options` may be NULL. */
void detect_judge(const struct detect_point *points, size_t n, const struct detect_options *options,
                  struct detect_result *ret_result);

/* Has it ever given back a good part of what it held, at once? */
bool detect_fell(const struct detect_point *points, size_t n);

/* Take a leak back: it has not fallen so here, but in another process of the same program. */
void detect_fell_elsewhere(struct detect_result *result);

/* A rate for people and tables: whole bytes or blocks a minute, 0 for what shrinks. */
uint64_t detect_per_minute(double per_s);

const char *detect_verdict_word(
    enum detect_verdict verdict);                          /* "leak", "growing", "warming up" ... */
const char *detect_reason_word(enum detect_reason reason); /* "sustained", "one-off" ... */

/* One sentence for people that tells why, with its full stop. */
void detect_explain(const struct detect_result *result, struct buffer *out);

/* ---- statistics, for tests ---- */

/* Mann-Kendall's z of values in the order of time, corrected for ties; 0 for fewer than 3. */
double detect_mann_kendall(const double *values, size_t n);

/* The median of the slopes of all pairs; n <= DETECT_WINDOWS; times differ. */
double detect_theil_sen(const double *times, const double *values, size_t n);
