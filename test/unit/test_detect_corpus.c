/* The detector on labelled series: hundreds of leaks and of what is none, generated with noise. What counts is that no
 * series of the second kind is called a leak, and that nearly all of the first are. The table of all classes is
 * printed, so that doc/leaks.md can be checked against it. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "ledger/detect.h"

enum {
    SERIES = 100, /* of each class and length */
    POINTS_MAX = 960,
    LENGTHS = 2,
};

struct world {
    uint64_t random;
    size_t n;
    double block; /* bytes */
    double level[POINTS_MAX], churn[POINTS_MAX];
    struct detect_point points[POINTS_MAX];
    bool one_block;
};

static double uniform(struct world *w, double low, double high)
{
    w->random = hash_mix(w->random + HASH_K0);
    return low + (high - low) * (double)(w->random >> 11) / 9007199254740992.0;
}

static double gauss(struct world *w)
{
    double u = uniform(w, 1e-12, 1), v = uniform(w, 0, 1);
    return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

/* From 0 to 1 over the series. */
static double at(const struct world *w, size_t i)
{
    return (double)i / (double)(w->n - 1);
}

static void noise(struct world *w, double amplitude)
{
    for (size_t i = 0; i < w->n; i++)
        w->level[i] += fabs(gauss(w)) * amplitude;
}

static void churn(struct world *w, double per_look)
{
    for (size_t i = 0; i < w->n; i++)
        w->churn[i] += per_look * uniform(w, 0.5, 1.5);
}

/* Levels and churn become counters, which only grow. */
static void count(struct world *w)
{
    double live = 0;
    struct detect_point p = {.time_ns = 5 * NS_PER_S};
    for (size_t i = 0; i < w->n; i++) {
        double level = fmax(0, w->level[i]), step = level - live;
        double alloc = fmax(step, 0) + w->churn[i], freed = fmax(-step, 0) + w->churn[i];
        p.alloc_bytes += (uint64_t)(alloc / w->block) * (uint64_t)w->block;
        p.alloc_blocks += (uint64_t)(alloc / w->block);
        uint64_t blocks = (uint64_t)(freed / w->block), held = p.alloc_blocks - p.freed_blocks;
        p.freed_blocks += blocks < held ? blocks : held;
        p.freed_bytes = p.freed_blocks * (uint64_t)w->block;
        live = (double)detect_live_bytes(&p);
        p.time_ns += (uint64_t)(uniform(w, 0.22, 0.32) * (double)NS_PER_S);
        w->points[i] = p;
        if (w->one_block) {
            w->points[i].alloc_blocks = i + 2;
            w->points[i].freed_blocks = i + 1;
        }
    }
}

/* ---- leaks ---- */

static void leak_fast(struct world *w)
{
    double rate = uniform(w, 2e8, 5e9);
    for (size_t i = 0; i < w->n; i++)
        w->level[i] = rate * at(w, i);
}

static void leak_slow(struct world *w)
{
    double grown = uniform(w, 2e6, 2e7);
    for (size_t i = 0; i < w->n; i++)
        w->level[i] = 1e8 + grown * at(w, i);
    noise(w, grown * uniform(w, 0.005, 0.03));
    churn(w, grown * uniform(w, 0.1, 2));
}

static void leak_steps(struct world *w)
{
    double steps = floor(uniform(w, 10, 30)), phase = uniform(w, 0, 1);
    for (size_t i = 0; i < w->n; i++)
        w->level[i] = 1e7 * floor(steps * at(w, i) + phase);
}

static void leak_bursts(struct world *w)
{
    double level = 0, bursts = uniform(w, 25, 60);
    for (size_t i = 0; i < w->n; i++) {
        if (uniform(w, 0, 1) < bursts / (double)w->n)
            level += 1e6 * -log(uniform(w, 1e-9, 1));
        w->level[i] = level;
    }
}

/* The load comes and goes, and a part of each request stays. */
static void leak_load(struct world *w)
{
    double waves = uniform(w, 1.5, 5), phase = uniform(w, 0, 1), level = 0,
           kept = uniform(w, 0.05, 1);
    for (size_t i = 0; i < w->n; i++) {
        double load = 1 + 0.8 * sin(2 * M_PI * (waves * at(w, i) + phase));
        level += 4e5 * load * kept;
        w->level[i] = level + 1e6 * load;
        w->churn[i] = 4e5 * load * (1 - kept);
    }
}

/* Garbage is collected, and what is left rises. */
static void leak_collected(struct world *w)
{
    double teeth = uniform(w, 20, 60), phase = uniform(w, 0, 1);
    for (size_t i = 0; i < w->n; i++) {
        double tooth = teeth * at(w, i) + phase;
        w->level[i] = 5e7 + 6e7 * at(w, i) + 2e7 * (tooth - floor(tooth));
    }
    churn(w, 1e6);
}

/* One request in a hundred keeps its block. */
static void leak_share(struct world *w)
{
    double level = 0;
    for (size_t i = 0; i < w->n; i++) {
        for (int k = 0; k < 300; k++)
            level += uniform(w, 0, 1) < 0.01 ? 4096 : 0;
        w->level[i] = 1e6 + level;
        w->churn[i] = 300 * 4096.0;
    }
    noise(w, 8192);
}

static void leak_after_load(struct world *w)
{
    double when = uniform(w, 0.05, 0.6);
    for (size_t i = 0; i < w->n; i++)
        w->level[i] = (at(w, i) > when ? 3e8 : 0) + 4e7 * at(w, i);
}

static void leak_faster(struct world *w)
{
    for (size_t i = 0; i < w->n; i++)
        w->level[i] = 1e8 * (at(w, i) + 0.7 * at(w, i) * at(w, i));
}

/* ---- no leaks ---- */

static void warm_up(struct world *w)
{
    double tau = uniform(w, 0.03, 0.8);
    for (size_t i = 0; i < w->n; i++)
        w->level[i] = 1e8 * (1 - exp(-at(w, i) / tau));
    noise(w, uniform(w, 0, 1e6));
    churn(w, uniform(w, 0, 1e6));
}

static void cache(struct world *w)
{
    double full = uniform(w, 0.15, 0.9);
    for (size_t i = 0; i < w->n; i++) {
        w->level[i] = 1e8 * fmin(1, at(w, i) / full);
        w->churn[i] = at(w, i) < full ? 0 : 1e8 / full / (double)w->n;
    }
    noise(w, uniform(w, 0, 5e5));
}

static void fill(struct world *w)
{
    double full = uniform(w, 0.15, 0.9);
    for (size_t i = 0; i < w->n; i++)
        w->level[i] = 1e8 * fmin(1, at(w, i) / full);
}

static void saw(struct world *w)
{
    double teeth = uniform(w, 1.2, 40), phase = uniform(w, 0, 1);
    for (size_t i = 0; i < w->n; i++) {
        double tooth = teeth * at(w, i) + phase;
        w->level[i] = 3e7 + 6e7 * (tooth - floor(tooth));
    }
    noise(w, uniform(w, 0, 3e6));
}

static void logarithm(struct world *w)
{
    double t0 = uniform(w, 0.005, 0.2);
    for (size_t i = 0; i < w->n; i++)
        w->level[i] = 3e7 * log(1 + at(w, i) / t0);
    noise(w, uniform(w, 0, 3e5));
}

static void batches(struct world *w)
{
    double batch = uniform(w, 1.5, 10), phase = uniform(w, 0, 1);
    for (size_t i = 0; i < w->n; i++) {
        double part = batch * at(w, i) + phase;
        part -= floor(part);
        w->level[i] = 1e7 + (part < 0.8 ? 9e7 * fmin(1, part / 0.5) : 0);
    }
}

static void steady(struct world *w)
{
    for (size_t i = 0; i < w->n; i++)
        w->level[i] = 1e8;
    noise(w, uniform(w, 1e5, 5e7));
    churn(w, uniform(w, 1e5, 1e8));
}

/* A queue that wanders and is drawn back to its mean. */
static void queue(struct world *w)
{
    double tau = uniform(w, 0.02, 1) * (double)w->n, level = 0;
    for (size_t i = 0; i < w->n; i++) {
        level += -level / tau + gauss(w) * 1e6;
        w->level[i] = 2e8 + level;
    }
    churn(w, 5e6);
}

static void few_large(struct world *w)
{
    unsigned n = 1 + (unsigned)uniform(w, 0, 3.999);
    for (unsigned k = 0; k < n; k++) {
        double when = uniform(w, 0, 1), bytes = uniform(w, 1e7, 1e9);
        for (size_t i = 0; i < w->n; i++)
            w->level[i] += at(w, i) >= when ? bytes : 0;
    }
}

/* What is held is in proportion to what is going on. */
static void load(struct world *w)
{
    double waves = uniform(w, 0.3, 6), phase = uniform(w, 0, 1), ramp = uniform(w, 0, 2);
    for (size_t i = 0; i < w->n; i++) {
        double now = 1 + 0.6 * sin(2 * M_PI * (waves * at(w, i) + phase)) + ramp * at(w, i);
        w->level[i] = 4e7 * now * (1 + 0.01 * gauss(w));
        w->churn[i] = 8e6 * now * (1 + 0.01 * gauss(w));
    }
}

static void buffer_grows(struct world *w)
{
    for (size_t i = 0; i < w->n; i++)
        w->level[i] = 1e8 * at(w, i);
    w->one_block = true;
}

/* Modules are loaded one after the other, each smaller than the last. */
static void stairs(struct world *w)
{
    double steps = floor(uniform(w, 4, 12)), level = 0, step = 4e7;
    size_t done = 0;
    for (size_t i = 0; i < w->n; i++) {
        if (floor(steps * at(w, i)) > (double)done) {
            done++;
            level += step;
            step *= 0.7;
        }
        w->level[i] = level;
    }
}

static void idle(struct world *w)
{
    for (size_t i = 0; i < w->n; i++)
        w->level[i] = 1e8;
}

static void shrinks(struct world *w)
{
    for (size_t i = 0; i < w->n; i++)
        w->level[i] = 1e8 - 5e7 * at(w, i);
    noise(w, 1e6);
}

struct class
{
    const char *name;
    void (*make)(struct world *world);
    bool leaks;
};

static const struct class classes[] = {
    {"leak: fast", leak_fast, true},
    {"leak: slow, with churn", leak_slow, true},
    {"leak: steps", leak_steps, true},
    {"leak: bursts", leak_bursts, true},
    {"leak: load that varies", leak_load, true},
    {"leak: under garbage collection", leak_collected, true},
    {"leak: 1 of 100 requests", leak_share, true},
    {"leak: with one large load", leak_after_load, true},
    {"leak: faster and faster", leak_faster, true},
    {"warm-up", warm_up, false},
    {"cache with eviction", cache, false},
    {"fill up to a bound", fill, false},
    {"sawtooth", saw, false},
    {"logarithmic growth", logarithm, false},
    {"batches", batches, false},
    {"steady churn", steady, false},
    {"queue that wanders", queue, false},
    {"a few large blocks", few_large, false},
    {"load that varies", load, false},
    {"one buffer that grows", buffer_grows, false},
    {"stairs that flatten", stairs, false},
    {"idle", idle, false},
    {"shrinks", shrinks, false},
};
enum { CLASSES = sizeof(classes) / sizeof(*classes) };

static void make(struct world *w, const struct class *class, size_t n, uint64_t seed)
{
    memset(w, 0, sizeof(*w));
    w->random = hash_mix(seed + 1);
    w->n = n;
    w->block = floor(uniform(w, 64, 4096));
    class->make(w);
    count(w);
}

static void leaks_are_found_and_nothing_else_is(void **state)
{
    static struct world w;
    static const size_t lengths[LENGTHS] = {120, POINTS_MAX}; /* half a minute, four */
    unsigned leaks = 0, found = 0, others = 0, wrong = 0;
    printf("# %-32s  unknown  steady  warming  growing  leak\n", "class (looks)");
    for (size_t c = 0; c < CLASSES; c++) {
        for (size_t l = 0; l < LENGTHS; l++) {
            unsigned verdicts[DETECT_VERDICTS] = {0};
            for (uint64_t i = 0; i < SERIES; i++) {
                struct detect_result r;
                make(&w, &classes[c], lengths[l], c * 1000003 + l * 10007 + i);
                detect_judge(w.points, w.n, NULL, &r);
                verdicts[r.verdict]++;
                if (classes[c].leaks == (r.verdict == DETECT_LEAK))
                    continue;
                printf("# wrong: %s (%zu, number %u): %s, %s\n", classes[c].name, lengths[l],
                       (unsigned)i, detect_verdict_word(r.verdict), detect_reason_word(r.reason));
            }
            printf("# %-32s %8u %7u %8u %8u %5u   (%zu)\n", classes[c].name, verdicts[0],
                   verdicts[1], verdicts[2], verdicts[3], verdicts[4], lengths[l]);
            *(classes[c].leaks ? &leaks : &others) += SERIES;
            *(classes[c].leaks ? &found : &wrong) += verdicts[DETECT_LEAK];
            if (classes[c].leaks)
                assert_true(verdicts[DETECT_LEAK] * 100 >= SERIES * 70);
        }
    }
    printf("# leaks: %u of %u found; called a leak of %u that are none: %u\n", found, leaks, others,
           wrong);
    assert_int_equal(wrong, 0);
    assert_true(found * 100 >= leaks * 95);
}

/* ---- what must not matter ---- */

static void same_after(void (*change)(struct detect_point *point))
{
    static struct world w;
    for (size_t c = 0; c < CLASSES; c++)
        for (uint64_t i = 0; i < 10; i++) {
            struct detect_result before, after;
            make(&w, &classes[c], 120, c * 7919 + i);
            detect_judge(w.points, w.n, NULL, &before);
            for (size_t k = 0; k < w.n; k++)
                change(&w.points[k]);
            detect_judge(w.points, w.n, NULL, &after);
            assert_int_equal(after.verdict, before.verdict);
            assert_int_equal(after.reason, before.reason);
        }
}

static void times_eight(struct detect_point *p)
{
    p->alloc_bytes *= 8;
    p->freed_bytes *= 8;
}

static void an_hour_later(struct detect_point *p)
{
    p->time_ns += 3600 * NS_PER_S;
}

static void hold_more(struct detect_point *p)
{
    p->alloc_bytes += UINT64_C(1) << 40;
    p->alloc_blocks += 1000000;
}

static void churn_more(struct detect_point *p)
{
    p->alloc_bytes += UINT64_C(1) << 40;
    p->freed_bytes += UINT64_C(1) << 40;
}

static void sizes_do_not_matter(void **state)
{
    same_after(times_eight);
}

static void when_it_was_does_not_matter(void **state)
{
    same_after(an_hour_later);
}

static void what_is_held_all_the_while_does_not_matter(void **state)
{
    same_after(hold_more);
}

static void what_went_before_does_not_matter_while_the_age_is_unknown(void **state)
{
    same_after(churn_more);
}

/* Twice as slow, and asked to be watched for twice as long. */
static void the_scale_of_time_does_not_matter(void **state)
{
    static struct world w;
    for (size_t c = 0; c < CLASSES; c++) {
        struct detect_result before, after;
        struct detect_options options = {.needs_ns = 2 * DETECT_NEEDS_NS};
        make(&w, &classes[c], POINTS_MAX, c * 104729);
        detect_judge(w.points, w.n, NULL, &before);
        for (size_t k = 0; k < w.n; k++)
            w.points[k].time_ns *= 2;
        detect_judge(w.points, w.n, &options, &after);
        assert_int_equal(after.verdict, before.verdict);
        assert_int_equal(after.reason, before.reason);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaks_are_found_and_nothing_else_is),
        cmocka_unit_test(sizes_do_not_matter),
        cmocka_unit_test(when_it_was_does_not_matter),
        cmocka_unit_test(what_is_held_all_the_while_does_not_matter),
        cmocka_unit_test(what_went_before_does_not_matter_while_the_age_is_unknown),
        cmocka_unit_test(the_scale_of_time_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
