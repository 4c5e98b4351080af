/* Verdicts over series. See detect.h. */
#include "ledger/detect.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"

/* Thresholds. Each was set from what it has to tell apart, then tried on the series of test_detect_corpus. */

/* One-sided: 2 % of steady series reach it by chance. Below it nothing is called growth. */
#define TREND_Z 2.0
/* 1 in 2,000; asked for before the word leak is used. */
#define LEAK_Z 3.3
/* Student's t of the steps between marks, 17 of them: 1 in 700 random walks. A queue that wanders has steps in
 * both directions, and its mean step is small against their spread. Not asked where nothing is freed, since what
 * is never freed cannot wander. */
#define DRIFT_T 3.5
/* Of what was allocated; less is taken for nothing: a byte freed at the start must not make a leak a queue. */
#define FREES_SOME 0.01
/* A rise that is more than this part of all rises is looked at by itself, as one event. */
#define JUMP_SHARE 0.5
/* A leak comes again and again: so many rises at least, and none with more than this part of the whole. */
#define RISES_MIN  5
#define RISE_SHARE 0.4
/* Steps smaller than this part of the mean one are no rises: noise on a plateau. */
#define RISE_OF_MEAN 0.3
/* Marks that fall by more than this part of what they rise are teeth. */
#define TEETH_SHARE 0.25
/* Where it rose in half of the parts of the time or more, a steady growth gives the last sixth 0.18 of the whole, and
 * the last third 0.35. */
#define ALWAYS_SHARE     0.85
#define LAST_SIXTH_SHARE 0.03
#define LAST_THIRD_SHARE 0.1
/* Nothing was allocated for the last 8 % of the time, and three times as long as ever before. */
#define PAUSE_SHARE 0.08
#define PAUSE_TIMES 3.0
/* A cache that is full frees what it allocates, and did not before. */
#define FULL_FREES  0.85
#define FULL_BEFORE 0.3
/* Growth in six segments: of 15 pairs 13 or more must fall (3 % by chance), and the last two segments have less
 * than this part of the first two. */
#define SEGMENTS     6
#define SLOWING_S    (-11.0)
#define SLOWING_RATE 0.6
/* More is going on: the rate of allocation rises with time, and what is held follows it rather than time. */
#define LOAD_FREES   0.5
#define LOAD_RISES   0.3
#define LOAD_ALONE   0.9
#define LOAD_PARTIAL 0.85
/* Before the watch: it freed a fifth of what it took or more, and keeps twice as much of it now, or frees not a tenth of
 * that share; or it grew twice as fast. The first is told by the counters, and holds until we have seen it allocate more than
 * before: what a collector waits for is work, not time. The last is told by the age of the site, too, and holds until we
 * have watched for longer than that. */
#define PAST_FREES      0.2
#define PAST_KEEPS      2.0
#define PAST_FREES_LESS 0.1
#define PAST_SLOWER     0.5
#define PAST_NS         (600 * NS_PER_S)
/* Fewer blocks than this are no trend. */
#define BLOCKS_MIN 4
/* What goes away at once, in all points or in a longer horizon, against the growth: from this part on the growth may
 * as well be the rise of a tooth. So a leak shows once it is twice as large as what comes and goes. */
#define FALL_SHARE 0.5
/* It frees this part of what it allocates or more, but in less than two of three parts of the time: then the lowest level
 * of a part is not what is left when garbage has been collected. A server on a busy machine takes long to make as much
 * as its collector waits for. What frees less, in bulk or not, keeps nearly all. */
#define BULK_FREES  0.2
#define DENSE_SHARE 0.66

/* Confidence of growth that may have an ordinary reason: that it grows is 98 % certain (TREND_Z), why is not. */
#define GROWING_SURE 0.95

/* A fall of this part of what is held, at once, is a collector's work, and not one buffer that went. */
#define FELL_SHARE 0.05
/* And of so many bytes, where little is held. */
#define FELL_MIN 65536

/* The low-water marks of one horizon. Figures are relative to the first point, so that what is held all the while
 * does not matter. */
struct marks {
    unsigned n;
    double time[DETECT_WINDOWS]; /* seconds */
    double bytes[DETECT_WINDOWS], blocks[DETECT_WINDOWS];
    double allocs[DETECT_WINDOWS], frees[DETECT_WINDOWS]; /* bytes, within the window */
    double lasts[DETECT_WINDOWS];                         /* time of its last point */
};

/* What the marks tell. */
struct shape {
    double up, down;            /* sums of steps */
    double largest;             /* step */
    unsigned jump;              /* the mark that it led to; 0: no step is up */
    unsigned rises, pause, gap; /* steps up; steps since the last one; most steps between two */
    unsigned last_rise;         /* the mark that it led to */
    double t;                   /* Student's, of the steps; infinite where all are the same */
};

struct horizon {
    const struct detect_point *points;
    size_t n;
    double span_s;
    bool empty; /* all blocks have no bytes: each counts as one */
    struct marks marks;
    struct shape shape;
    double allocs, frees; /* bytes */
    double fall;          /* the most that it went down, over all points */
};

static double seconds(uint64_t ns)
{
    return (double)ns / (double)NS_PER_S;
}

/* Books may lie: their figures may be as large as 64 bits allow, and differences even larger. */
static int64_t whole(double value)
{
    return (int64_t)fmax(-9e18, fmin(value, 9e18));
}

static double gained(uint64_t now, uint64_t then)
{
    return (double)(int64_t)(now - then);
}

/* What is judged: bytes, or blocks where they have none. */
static uint64_t taken(const struct horizon *h, const struct detect_point *p)
{
    return h->empty ? p->alloc_blocks : p->alloc_bytes;
}

static uint64_t given_back(const struct horizon *h, const struct detect_point *p)
{
    return h->empty ? p->freed_blocks : p->freed_bytes;
}

static uint64_t held(const struct horizon *h, const struct detect_point *p)
{
    return h->empty ? detect_live_blocks(p) : detect_live_bytes(p);
}

/* ---- marks ---- */

static void marks_take(struct horizon *h)
{
    const struct detect_point *first = &h->points[0];
    struct marks *m = &h->marks;
    uint64_t span_ns = h->points[h->n - 1].time_ns - first->time_ns;
    const struct detect_point *before = first; /* the last point of the window before */
    size_t i = 0;
    for (unsigned w = 0; w < DETECT_WINDOWS; w++) {
        const struct detect_point *low = NULL, *last = NULL;
        double blocks = INFINITY;
        uint64_t until_ns = /* of the window, from the first point on */
            (uint64_t)(((unsigned __int128)(span_ns + 1) * (w + 1) + DETECT_WINDOWS - 1) /
                       DETECT_WINDOWS);
        for (; i < h->n; i++) {
            const struct detect_point *p = &h->points[i];
            if (p->time_ns - first->time_ns >= until_ns)
                break;
            if (!low || held(h, p) < held(h, low))
                low = p;
            blocks = fmin(blocks, gained(detect_live_blocks(p), detect_live_blocks(first)));
            last = p;
        }
        if (!low)
            continue;
        m->time[m->n] = seconds(low->time_ns - first->time_ns);
        m->bytes[m->n] = gained(held(h, low), held(h, first));
        m->blocks[m->n] = blocks;
        m->allocs[m->n] = gained(taken(h, last), taken(h, before));
        m->frees[m->n] = gained(given_back(h, last), given_back(h, before));
        m->lasts[m->n] = seconds(last->time_ns - first->time_ns);
        m->n++;
        before = last;
    }
}

static void shape_take(const struct marks *m, struct shape *s)
{
    double squares = 0, mean = (m->bytes[m->n - 1] - m->bytes[0]) / (m->n - 1);
    unsigned steps = m->n - 1;
    *s = (struct shape){0};
    for (unsigned i = 0; i < steps; i++) {
        double step = m->bytes[i + 1] - m->bytes[i];
        s->up += fmax(step, 0);
        s->down += fmax(-step, 0);
        squares += (step - mean) * (step - mean);
        if (step > s->largest) {
            s->largest = step;
            s->jump = i + 1;
        }
    }
    for (unsigned i = 0; i < steps; i++) {
        if (m->bytes[i + 1] - m->bytes[i] <= RISE_OF_MEAN * s->up / steps) {
            s->pause++;
            continue;
        }
        if (s->rises++ && s->pause > s->gap)
            s->gap = s->pause;
        s->pause = 0;
        s->last_rise = i + 1;
    }
    s->t = mean / sqrt(squares / (steps - 1) / steps);
}

/* ---- tests of shape: each is an ordinary reason for growth ---- */

/* Take the largest rise out of the marks. */
static void jump_remove(struct marks *m, const struct shape *s)
{
    for (unsigned k = s->jump; k < m->n; k++)
        m->bytes[k] -= s->largest;
}

/* Has it stopped to allocate? Looks at all points, so that it is seen sooner than by the marks. */
static bool allocation_paused(const struct horizon *h)
{
    double last = 0, longest = 0, end = seconds(h->points[h->n - 1].time_ns - h->points[0].time_ns);
    for (size_t i = 1; i < h->n; i++) {
        if (taken(h, &h->points[i]) == taken(h, &h->points[i - 1]))
            continue;
        double now = seconds(h->points[i].time_ns - h->points[0].time_ns);
        longest = fmax(longest, now - last);
        last = now;
    }
    double pause = end - last;
    return pause > PAUSE_SHARE * end && pause > PAUSE_TIMES * longest;
}

/* The most that it went down from any earlier level. */
static double fall(const struct horizon *h)
{
    uint64_t high = 0;
    double most = 0;
    for (size_t i = 0; i < h->n; i++) {
        uint64_t live = held(h, &h->points[i]);
        if (live > high)
            high = live;
        most = fmax(most, gained(high, live));
    }
    return most;
}

bool detect_fell(const struct detect_point *points, size_t n)
{
    uint64_t high = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t live = detect_live_bytes(&points[i]);
        high = live > high ? live : high;
        if (high - live >= FELL_MIN && gained(high, live) >= FELL_SHARE * (double)high)
            return true;
    }
    return false;
}

/* Does it free more seldom than there are marks? */
static bool frees_in_bulk(const struct horizon *h)
{
    const struct marks *m = &h->marks;
    unsigned some = 0;
    for (unsigned i = 0; i < m->n; i++)
        some += m->frees[i] > 0;
    return h->frees >= BULK_FREES * h->allocs && some < DENSE_SHARE * m->n;
}

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : -1;
}

/* Allocates as before, and has begun to free as much. */
static bool frees_started(const struct marks *m)
{
    double allocs = 0, frees = 0, allocs_last = m->allocs[m->n - 1];
    for (unsigned i = 0; i < m->n * 2 / 3; i++) {
        allocs += m->allocs[i];
        frees += m->frees[i];
    }
    return allocs_last > 0 && m->frees[m->n - 1] >= FULL_FREES * allocs_last &&
           frees <= FULL_BEFORE * allocs;
}

static bool has_stopped(const struct horizon *h)
{
    const struct marks *m = &h->marks;
    const struct shape *s = &h->shape;
    double whole = m->bytes[m->n - 1] - m->bytes[0];
    if (s->pause > s->gap + 1 + s->gap / 2)
        return true;
    if (s->rises >= m->n / 2) {
        double sixth = m->bytes[m->n - 1] - m->bytes[m->n - 1 - m->n / 6];
        double third = m->bytes[m->n - 1] - m->bytes[m->n - 1 - m->n / 3];
        if (sixth <= LAST_SIXTH_SHARE * whole || third <= LAST_THIRD_SHARE * whole)
            return true;
    }
    return allocation_paused(h) || frees_started(m);
}

/* Is each rise smaller than the one before? For growth in a few steps, which segments see badly. */
static bool rises_shrink(const struct marks *m)
{
    double steps[DETECT_WINDOWS], first = 0, last = 0;
    unsigned n = 0;
    for (unsigned i = 0; i + 1 < m->n; i++)
        if (m->bytes[i + 1] > m->bytes[i])
            steps[n++] = m->bytes[i + 1] - m->bytes[i];
    for (unsigned i = 0; i < n / 3; i++) {
        first += steps[i];
        last += steps[n - 1 - i];
    }
    return detect_mann_kendall(steps, n) <= -TREND_Z && last < SLOWING_RATE * first;
}

static bool is_slowing(const struct marks *m, double *ret_then)
{
    double rates[SEGMENTS], score = 0;
    for (unsigned k = 0; k < SEGMENTS; k++) {
        unsigned from = k * (m->n - 1) / SEGMENTS, to = (k + 1) * (m->n - 1) / SEGMENTS;
        rates[k] = (m->bytes[to] - m->bytes[from]) / (m->time[to] - m->time[from]);
    }
    for (unsigned i = 0; i < SEGMENTS; i++)
        for (unsigned k = i + 1; k < SEGMENTS; k++)
            score += (rates[k] > rates[i]) - (rates[k] < rates[i]);
    *ret_then = (rates[0] + rates[1]) / 2;
    return (score <= SLOWING_S &&
            rates[SEGMENTS - 1] + rates[SEGMENTS - 2] < SLOWING_RATE * (rates[0] + rates[1])) ||
           rises_shrink(m);
}

/* NaN if all of one are the same. */
static double correlation(const double *x, const double *y, unsigned n)
{
    double sx = 0, sy = 0, sxx = 0, syy = 0, sxy = 0;
    for (unsigned i = 0; i < n; i++) {
        sx += x[i];
        sy += y[i];
    }
    for (unsigned i = 0; i < n; i++) {
        double dx = x[i] - sx / n, dy = y[i] - sy / n;
        sxx += dx * dx;
        syy += dy * dy;
        sxy += dx * dy;
    }
    return sxy / sqrt(sxx * syy);
}

/* Does what is held follow the rate of allocation rather than time? */
static bool follows_load(const struct horizon *h)
{
    const struct marks *m = &h->marks;
    double rates[DETECT_WINDOWS];
    if (h->frees < LOAD_FREES * h->allocs)
        return false;
    for (unsigned i = 0; i < m->n; i++) {
        double took = m->lasts[i] - (i ? m->lasts[i - 1] : 0);
        rates[i] = took > 0 ? m->allocs[i] / took : 0;
    }
    double rate_time = correlation(rates, m->time, m->n);
    double held_time = correlation(m->bytes, m->time, m->n);
    double held_rate = correlation(m->bytes, rates, m->n);
    if (!(rate_time >= LOAD_RISES)) /* or NaN: it allocates at the same rate all the time */
        return false;
    double rest = (1 - held_rate * held_rate) * (1 - rate_time * rate_time);
    return held_rate >= LOAD_ALONE || rest <= 0 ||
           (held_time - held_rate * rate_time) / sqrt(rest) < LOAD_PARTIAL;
}

/* ---- what was before the watch ---- */

static bool past_counts(const struct detect_result *r, const struct detect_options *o)
{
    return o->site_age_ns > r->span_ns && r->span_ns < PAST_NS;
}

static bool freed_late(const struct horizon *h)
{
    const struct detect_point *first = &h->points[0];
    double allocs = (double)taken(h, first), frees = (double)given_back(h, first);
    if (allocs < h->allocs || frees < PAST_FREES * allocs)
        return false;
    return h->frees / h->allocs < PAST_FREES_LESS * frees / allocs ||
           (h->allocs - h->frees) / h->allocs > PAST_KEEPS * (allocs - frees) / allocs;
}

static bool was_faster(const struct horizon *h, const struct detect_options *o, double rate,
                       double *ret_then)
{
    double before_s = seconds(o->site_age_ns) - h->span_s;
    if (before_s <= h->span_s)
        return false;
    *ret_then = (double)held(h, &h->points[0]) / before_s;
    return rate < PAST_SLOWER * *ret_then;
}

static bool even(const struct detect_ages *ages)
{
    double sum = 0;
    unsigned some = 0;
    for (unsigned i = 0; i < DETECT_AGES; i++)
        sum += (double)ages->bytes[i];
    for (unsigned i = 0; i < DETECT_AGES; i++)
        some += (double)ages->bytes[i] >= sum / DETECT_AGES / 4;
    return sum > 0 && some >= DETECT_AGES - 1;
}

/* ---- one horizon ---- */

static void conclude(struct detect_result *r, enum detect_verdict verdict,
                     enum detect_reason reason)
{
    r->verdict = verdict;
    r->reason = reason;
}

/* The word leak begins at 80 %. What adds to it is time (each doubling of what is needed, up to three), steadiness, that
 * nothing is freed, and that it has been so before we looked. Other verdicts: how unlikely the trend, or the lack of one,
 * is by chance. Never certain: only a scan of the memory proves a leak. */
static double confidence(const struct horizon *h, const struct detect_options *o,
                         const struct detect_result *r)
{
    double longer = log2((double)r->span_ns / (double)r->needs_ns) / 3;
    longer = fmax(0, fmin(longer, 1));
    switch (r->verdict) {
    case DETECT_LEAK:
        return 0.80 + 0.07 * longer + (h->shape.t >= 2 * DRIFT_T ? 0.05 : 0) +
               (h->frees <= FREES_SOME * h->allocs ? 0.04 : 0) +
               (r->ages_even ||
                        (o->site_age_ns > 2 * r->span_ns && r->since_ns == h->points[0].time_ns)
                    ? 0.03
                    : 0);
    case DETECT_GROWING:
        return GROWING_SURE;
    case DETECT_WARMING:
        return 0.7 + 0.2 * longer;
    case DETECT_STEADY:
        return 0.8 + 0.15 * longer;
    default:
        return 0;
    }
}

static uint64_t at(const struct horizon *h, double time_s)
{
    return h->points[0].time_ns + (uint64_t)(time_s * (double)NS_PER_S);
}

/* From when on the marks never fell. */
static uint64_t since(const struct horizon *h)
{
    const struct marks *m = &h->marks;
    unsigned i = m->n - 1;
    while (i > 0 && m->bytes[i] >= m->bytes[i - 1])
        i--;
    while (i + 1 < m->n && m->bytes[i + 1] == m->bytes[i])
        i++;
    return i == 0 ? h->points[0].time_ns : at(h, m->time[i]);
}

/* Growth that no test of shape explained. */
static void judge_leak(struct horizon *h, const struct detect_options *o, struct detect_result *r)
{
    const struct marks *m = &h->marks;
    const struct shape *s = &h->shape;
    bool frees = h->frees > FREES_SOME * h->allocs;
    double blocks = m->blocks[m->n - 1] - m->blocks[0];
    if (o->level_only)
        conclude(r, DETECT_GROWING, DETECT_LEVEL_ONLY);
    else if (h->fall >= FALL_SHARE * (m->bytes[m->n - 1] - m->bytes[0]) || frees_in_bulk(h))
        conclude(r, DETECT_GROWING, DETECT_BURSTS);
    else if (s->rises < RISES_MIN || s->largest > RISE_SHARE * s->up)
        conclude(r, DETECT_GROWING, DETECT_ONE_OFF);
    else if (r->z < LEAK_Z || (frees && s->t < DRIFT_T))
        conclude(r, DETECT_GROWING, DETECT_DRIFT);
    else if (follows_load(h))
        conclude(r, DETECT_GROWING, DETECT_LOAD);
    else if (blocks < BLOCKS_MIN || detect_mann_kendall(m->blocks, m->n) < TREND_Z)
        conclude(r, DETECT_GROWING, DETECT_ONE_BLOCK);
    else if (past_counts(r, o) && freed_late(h))
        conclude(r, DETECT_GROWING, DETECT_FREES_LATE);
    else if (past_counts(r, o) && was_faster(h, o, r->bytes_per_s, &r->rate_then))
        conclude(r, DETECT_GROWING, DETECT_SLOWER_NOW);
    else if (o->collected && !detect_fell(h->points, h->n))
        conclude(r, DETECT_GROWING, DETECT_WAITS);
    else
        conclude(r, DETECT_LEAK, DETECT_SUSTAINED);
}

static void judge_growth(struct horizon *h, const struct detect_options *o, struct detect_result *r)
{
    struct marks *m = &h->marks;
    struct shape *s = &h->shape;
    if (s->largest >= JUMP_SHARE * s->up) {
        struct shape before = *s;
        jump_remove(m, s);
        shape_take(m, s);
        r->z = detect_mann_kendall(m->bytes, m->n);
        if (r->z < TREND_Z || s->up < 0.1 * before.largest) {
            r->quiet_ns = at(h, h->span_s) - at(h, m->time[before.jump]);
            conclude(r, DETECT_STEADY, DETECT_ONE_OFF);
            return;
        }
    }
    if (s->down > TEETH_SHARE * s->up) {
        bool more = r->z >= LEAK_Z && s->up > 2 * s->down;
        conclude(r, more ? DETECT_GROWING : DETECT_STEADY, DETECT_TEETH);
    } else if (has_stopped(h)) {
        (void)is_slowing(m, &r->rate_then);
        r->quiet_ns = at(h, h->span_s) - at(h, m->time[s->last_rise]);
        conclude(r, DETECT_WARMING, DETECT_STOPPED);
    } else if (is_slowing(m, &r->rate_then)) {
        conclude(r, DETECT_WARMING, DETECT_SLOWING);
    } else {
        judge_leak(h, o, r);
    }
}

static void judge_horizon(const struct detect_point *points, size_t n,
                          const struct detect_options *o, struct detect_result *r)
{
    const struct detect_point *first = &points[0], *last = &points[n - 1];
    struct horizon h = {
        .points = points,
        .n = n,
        .span_s = seconds(last->time_ns - first->time_ns),
        .empty = last->alloc_bytes == 0 && last->alloc_blocks > 0,
    };
    *r = (struct detect_result){
        .span_ns = last->time_ns - first->time_ns, .needs_ns = o->needs_ns, .empty = h.empty};
    h.allocs = gained(taken(&h, last), taken(&h, first));
    h.frees = gained(given_back(&h, last), given_back(&h, first));
    r->freed_share = o->level_only ? -1 : share(h.frees, h.allocs);
    r->ever_freed =
        o->level_only ? -1 : share((double)given_back(&h, last), (double)taken(&h, last));
    h.fall = fall(&h);
    r->fall_bytes = (uint64_t)h.fall;
    marks_take(&h);
    if (h.marks.n < DETECT_WINDOWS_MIN) {
        conclude(r, DETECT_UNKNOWN, DETECT_TOO_FEW);
        return;
    }
    shape_take(&h.marks, &h.shape);
    r->z = detect_mann_kendall(h.marks.bytes, h.marks.n);
    r->bytes_per_s = detect_theil_sen(h.marks.time, h.marks.bytes, h.marks.n);
    r->blocks_per_s = detect_theil_sen(h.marks.time, h.marks.blocks, h.marks.n);
    r->grown_bytes = whole(h.marks.bytes[h.marks.n - 1] - h.marks.bytes[0]);
    r->grown_blocks = whole(h.marks.blocks[h.marks.n - 1] - h.marks.blocks[0]);
    r->since_ns = since(&h);
    r->ages_even = o->ages && even(o->ages);
    if (h.allocs == 0 && h.frees == 0)
        conclude(r, DETECT_STEADY, DETECT_IDLE);
    else if (r->z >= TREND_Z && r->grown_bytes > 0)
        judge_growth(&h, o, r);
    else
        conclude(r, DETECT_STEADY, r->z <= -TREND_Z ? DETECT_SHRINKS : DETECT_CHURN);
    r->windows = h.marks.n;
    r->rises = h.shape.rises;
    r->confidence = confidence(&h, o, r);
}

void detect_fell_elsewhere(struct detect_result *r)
{
    conclude(r, DETECT_GROWING, DETECT_BURSTS);
    r->elsewhere = true;
    r->confidence = GROWING_SURE;
}

/* ---- several horizons ---- */

/* Shorter ones than all that is there: so many times what is needed. By default 2 min, 10 min, 1 h, 6 h. */
static const uint64_t shorter[] = {4, 20, 120, 720};
enum { HORIZONS_MAX = sizeof(shorter) / sizeof(*shorter) + 1 };

/* Longer horizons know better whether growth goes away again or ends; shorter ones see what is new. So the
 * longest that finds a leak counts, unless a longer one saw as much go away, or that this is only the end of a larger
 * growth: then that one counts. */
static size_t combine(struct detect_result *results, size_t n)
{
    size_t leak = n, growing = n, known = n;
    for (size_t i = 0; i < n; i++) { /* the longest is first */
        if (results[i].verdict == DETECT_LEAK && leak == n)
            leak = i;
        if (results[i].verdict == DETECT_GROWING && growing == n)
            growing = i;
        if (results[i].verdict != DETECT_UNKNOWN && known == n)
            known = i;
    }
    if (leak == n)
        return growing != n ? growing : known != n ? known : 0;
    for (size_t i = 0; i < leak; i++) {
        bool fell = (double)results[i].fall_bytes >= FALL_SHARE * (double)results[leak].grown_bytes;
        if (results[i].verdict == DETECT_WARMING &&
            results[leak].bytes_per_s < SLOWING_RATE * results[i].rate_then)
            return i;
        if (!fell)
            continue;
        conclude(&results[leak], DETECT_GROWING, DETECT_BURSTS);
        results[leak].fall_bytes = results[i].fall_bytes;
        results[leak].confidence = GROWING_SURE;
        return leak;
    }
    /* What rose all the time and does no more has ended; what comes in steps may only be between two. */
    for (size_t i = leak + 1; i < n; i++)
        if (results[i].reason == DETECT_STOPPED &&
            results[leak].rises >= ALWAYS_SHARE * (results[leak].windows - 1))
            return i;
    return leak;
}

/* The first point that is within `span_ns` of the last. */
static size_t from(const struct detect_point *points, size_t n, uint64_t span_ns)
{
    size_t low = 0, high = n - 1;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (points[n - 1].time_ns - points[middle].time_ns > span_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void detect_judge(const struct detect_point *points, size_t n, const struct detect_options *options,
                  struct detect_result *ret_result)
{
    struct detect_options o = options ? *options : (struct detect_options){0};
    struct detect_result results[HORIZONS_MAX];
    size_t count = 0;
    if (!o.needs_ns)
        o.needs_ns = DETECT_NEEDS_NS;
    uint64_t span_ns = n ? points[n - 1].time_ns - points[0].time_ns : 0;
    if (n < DETECT_POINTS_MIN || span_ns < o.needs_ns) {
        *ret_result = (struct detect_result){
            .span_ns = span_ns,
            .needs_ns = o.needs_ns,
            .freed_share = -1,
            .ever_freed = n && !o.level_only ? share((double)points[n - 1].freed_bytes,
                                                     (double)points[n - 1].alloc_bytes)
                                             : -1,
            .reason = span_ns < o.needs_ns ? DETECT_TOO_SHORT : DETECT_TOO_FEW,
        };
        return;
    }
    judge_horizon(points, n, &o, &results[count++]);
    for (size_t i = sizeof(shorter) / sizeof(*shorter); i-- > 0;) {
        uint64_t horizon_ns = shorter[i] * o.needs_ns;
        if (horizon_ns > span_ns / 5 * 4)
            continue;
        size_t first = from(points, n, horizon_ns);
        if (n - first >= DETECT_POINTS_MIN)
            judge_horizon(points + first, n - first, &o, &results[count++]);
    }
    *ret_result = results[combine(results, count)];
    if (ret_result->empty)
        ret_result->grown_bytes = 0, ret_result->bytes_per_s = 0;
}
