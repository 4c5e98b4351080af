/* The detector's parts: statistics, what the past of a site changes, words. Whether it is right in general is the matter of
 * test_detect_corpus. */
#include "ledger/detect.h"

#include "check.h"

#include <math.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"

enum { LOOKS = 121, MIB = 1 << 20 };

static struct detect_point points[2000];

/* cmocka compares floats only. */
static void check_near(double is, double wanted, double off)
{
    if (!(fabs(is - wanted) <= off))
        fail_msg("%.17g instead of %.17g", is, wanted);
}

/* A level that rises by `step` bytes each quarter of a second, and is never freed. */
static void linear(size_t n, uint64_t step)
{
    memset(points, 0, sizeof(points));
    for (size_t i = 0; i < n; i++)
        points[i] = (struct detect_point){
            .time_ns = NS_PER_S + i * NS_PER_S / 4,
            .alloc_bytes = i * step,
            .alloc_blocks = i,
        };
}

static struct detect_result judge(size_t n, const struct detect_options *options)
{
    struct detect_result r;
    detect_judge(points, n, options, &r);
    return r;
}

static void check_words(const struct detect_result *r, const char *words)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(4096);
    detect_explain(r, &text);
    assert_string_equal(buffer_string(&text), words);
}

static void blocks_without_bytes_are_judged_by_their_number(void **state)
{
    linear(LOOKS, 0);
    struct detect_result r = judge(LOOKS, NULL);
    assert_int_equal(r.verdict, DETECT_LEAK);
    assert_int_equal(r.grown_bytes, 0);
    check_near(r.bytes_per_s, 0, 0);
    check_near(r.blocks_per_s, 4, 0.01);
    check_words(&r,
                "rose by 114 blocks of no bytes in 30.0 s, in 17 of 17 intervals, without slowing; "
                "nothing was freed.");
    for (size_t i = 0; i < LOOKS; i++)
        points[i].freed_blocks = points[i].alloc_blocks; /* they come and go */
    r = judge(LOOKS, NULL);
    assert_int_equal(r.verdict, DETECT_STEADY);
    linear(LOOKS, 0);
    for (size_t i = 0; i < LOOKS; i++)
        points[i].alloc_blocks = 7; /* or stay */
    assert_int_equal(judge(LOOKS, NULL).verdict, DETECT_STEADY);
}

/* ---- statistics ---- */

static void mann_kendall_is_that_of_the_textbook(void **state)
{
    const double up[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    const double down[] = {10, 9, 8, 7, 6, 5, 4, 3, 2, 1};
    const double flat[] = {5, 5, 5, 5, 5};
    check_near(detect_mann_kendall(up, 10), 44 / sqrt(125), 1e-9);
    check_near(detect_mann_kendall(down, 10), -44 / sqrt(125), 1e-9);
    check_near(detect_mann_kendall(flat, 5), 0, 0);
    check_near(detect_mann_kendall(up, 2), 0, 0);
    check_near(detect_mann_kendall(up, 3), 2 / sqrt(66 / 18.0), 1e-9);
    const double both[] = {1, 2, 1, 2, 1}; /* as many pairs rise as fall */
    check_near(detect_mann_kendall(both, 5), 0, 0);
}

static void ties_lower_the_variance(void **state)
{
    const double steps[] = {1, 1, 1, 2, 2, 2};
    /* S = 9; (6*5*17 - 2*3*2*11)/18 = 21 */
    check_near(detect_mann_kendall(steps, 6), 8 / sqrt(21), 1e-9);
}

static void theil_sen_ignores_a_wild_value(void **state)
{
    const double times[] = {0, 1, 2, 3, 4, 5, 6, 7};
    const double values[] = {0, 2, 4, 600, 8, 10, 12, 14};
    check_near(detect_theil_sen(times, values, 8), 2, 1e-9);
}

/* Against the plain definition, for all numbers of pairs and many orders. */
static void theil_sen_is_the_median_of_all_slopes(void **state)
{
    uint64_t random = 7;
    for (int round = 0; round < 500; round++) {
        double times[DETECT_WINDOWS], values[DETECT_WINDOWS],
            slopes[DETECT_WINDOWS * DETECT_WINDOWS];
        size_t n = 2 + (size_t)round % (DETECT_WINDOWS - 1), count = 0;
        for (size_t i = 0; i < n; i++) {
            random = hash_mix(random + HASH_K0);
            times[i] = (double)i;
            values[i] = (double)(random % 10); /* many ties */
        }
        for (size_t i = 0; i < n; i++)
            for (size_t k = i + 1; k < n; k++)
                slopes[count++] = (values[k] - values[i]) / (times[k] - times[i]);
        for (size_t i = 0; i < count; i++)
            for (size_t k = i + 1; k < count; k++)
                if (slopes[k] < slopes[i]) {
                    double kept = slopes[i];
                    slopes[i] = slopes[k];
                    slopes[k] = kept;
                }
        check_near(detect_theil_sen(times, values, n),
                   (slopes[(count - 1) / 2] + slopes[count / 2]) / 2, 1e-12);
    }
}

/* ---- verdicts ---- */

static void a_leak_has_its_rate_and_its_beginning(void **state)
{
    linear(LOOKS, MIB);
    struct detect_result r = judge(LOOKS, NULL);
    assert_int_equal(r.verdict, DETECT_LEAK);
    check_near(r.bytes_per_s, 4.0 * MIB, 1000);
    check_near(r.blocks_per_s, 4, 0.01);
    assert_true(r.confidence >= 0.8 && r.confidence < 1);
    assert_int_equal(r.since_ns, points[0].time_ns);
    check_near(r.freed_share, 0, 0);
    check_words(&r,
                "rose by 119.5 MB in 30.0 s, in 17 of 17 intervals, without slowing; nothing was "
                "freed.");
}

static void too_short_a_watch_tells_what_it_needs(void **state)
{
    linear(LOOKS, MIB);
    struct detect_result r = judge(49, NULL);
    assert_int_equal(r.verdict, DETECT_UNKNOWN);
    assert_int_equal(r.reason, DETECT_TOO_SHORT);
    check_words(&r, "watched 12.0 s, needs 30.0 s.");
    r = judge(0, NULL);
    assert_int_equal(r.verdict, DETECT_UNKNOWN);
    r = judge(1, NULL);
    assert_int_equal(r.verdict, DETECT_UNKNOWN);
}

static void few_looks_are_no_evidence(void **state)
{
    linear(DETECT_POINTS_MIN - 1, MIB);
    for (size_t i = 0; i < DETECT_POINTS_MIN; i++)
        points[i].time_ns = i * NS_PER_S;
    struct detect_result r = judge(DETECT_POINTS_MIN - 1, NULL);
    assert_int_equal(r.verdict, DETECT_UNKNOWN);
    assert_int_equal(r.reason, DETECT_TOO_FEW);
}

static void a_gap_in_the_watch_is_no_evidence(void **state)
{
    linear(LOOKS, MIB);
    for (size_t i = 40; i < LOOKS; i++)
        points[i].time_ns += 60 * NS_PER_S;
    struct detect_result r = judge(LOOKS, NULL);
    assert_int_equal(r.verdict, DETECT_UNKNOWN);
    assert_int_equal(r.reason, DETECT_TOO_FEW);
}

static void confidence_grows_with_time(void **state)
{
    linear(1600, MIB);
    struct detect_result shorter = judge(LOOKS, NULL), longer = judge(1600, NULL);
    assert_int_equal(longer.verdict, DETECT_LEAK);
    assert_true(longer.confidence > shorter.confidence);
}

/* It has freed most of what it ever took, and nothing while we looked: a collector that will come again. */
static void bulk_frees_of_the_past_speak_against_a_leak(void **state)
{
    struct detect_options options = {.site_age_ns = 3600 * NS_PER_S};
    linear(LOOKS, MIB);
    for (size_t i = 0; i < LOOKS; i++) {
        points[i].alloc_bytes += 1000000 * (uint64_t)MIB;
        points[i].freed_bytes += 999900 * (uint64_t)MIB;
    }
    struct detect_result r = judge(LOOKS, &options);
    assert_int_equal(r.verdict, DETECT_GROWING);
    assert_int_equal(r.reason, DETECT_FREES_LATE);
    /* Where it kept as much before as it does now, it is a leak. */
    for (size_t i = 0; i < LOOKS; i++)
        points[i].freed_bytes = 0;
    options.site_age_ns = 250000 * NS_PER_S;
    assert_int_equal(judge(LOOKS, &options).verdict, DETECT_LEAK);
}

/* A server whose garbage was collected a few times, and is asked so seldom now that this did not happen again: what it allocates tells
 * whether it had the occasion, not the time that went by. */
static void slow_progress_is_no_leak(void **state)
{
    struct detect_options options = {.site_age_ns = 35 * NS_PER_S}; /* much of it was before */
    enum { BEFORE = 2 * LOOKS };
    for (uint64_t freed = 0; freed <= BEFORE; freed += 6) {
        linear(LOOKS, MIB);
        for (size_t i = 0; i < LOOKS; i++) {
            points[i].alloc_bytes += BEFORE * (uint64_t)MIB;
            points[i].freed_bytes += freed * (uint64_t)MIB;
        }
        struct detect_result r = judge(LOOKS, &options);
        bool much = 5 * freed >= BEFORE; /* less is what a leak may free, too */
        assert_int_equal(r.verdict, much ? DETECT_GROWING : DETECT_LEAK);
        assert_int_equal(r.reason, much ? DETECT_FREES_LATE : DETECT_SUSTAINED);
    }
    /* It frees as it did before, or it has allocated more than before: then it had the occasion. */
    for (size_t i = 0; i < LOOKS; i++)
        points[i].freed_bytes = points[i].alloc_bytes / 10;
    assert_int_equal(judge(LOOKS, &options).verdict, DETECT_LEAK);
    linear(LOOKS, MIB);
    for (size_t i = 0; i < LOOKS; i++) {
        points[i].alloc_bytes += LOOKS / 2 * (uint64_t)MIB;
        points[i].freed_bytes += LOOKS / 4 * (uint64_t)MIB;
    }
    assert_int_equal(judge(LOOKS, &options).verdict, DETECT_LEAK);
}

/* Garbage that is collected in few parts of the time: what is left of it then is not known of the others. */
static void growth_between_a_few_bulk_frees_is_no_leak(void **state)
{
    enum { ENOUGH = 12 };
    for (size_t bulks = 1; bulks <= DETECT_WINDOWS; bulks++) {
        linear(LOOKS, MIB);
        for (size_t i = 0; i < LOOKS; i++)
            points[i].freed_bytes = LOOKS * MIB / 4 / bulks * (i * bulks / LOOKS + (i > 0));
        struct detect_result r = judge(LOOKS, NULL);
        assert_int_equal(r.verdict, bulks < ENOUGH ? DETECT_GROWING : DETECT_LEAK);
        assert_int_equal(r.reason, bulks < ENOUGH ? DETECT_BURSTS : DETECT_SUSTAINED);
    }
}

/* Buffers that a garbage collector frees: growth before its first collection says nothing. */
static void growth_of_collected_memory_waits_for_a_collection(void **state)
{
    struct detect_options options = {.collected = true};
    linear(LOOKS, MIB);
    struct detect_result r = judge(LOOKS, &options);
    assert_int_equal(r.verdict, DETECT_GROWING);
    assert_int_equal(r.reason, DETECT_WAITS);
    assert_false(detect_fell(points, LOOKS));
    assert_int_equal(judge(LOOKS, NULL).verdict, DETECT_LEAK);
    /* One small buffer that goes is no collection, a tenth of all is: what grows on then is a leak. */
    for (size_t i = LOOKS / 4; i < LOOKS; i++)
        points[i].freed_bytes = MIB / 4;
    assert_int_equal(judge(LOOKS, &options).reason, DETECT_WAITS);
    for (size_t i = LOOKS / 4; i < LOOKS; i++)
        points[i].freed_bytes = LOOKS / 8 * (uint64_t)MIB;
    assert_true(detect_fell(points, LOOKS));
    r = judge(LOOKS, &options);
    assert_int_equal(r.verdict, DETECT_LEAK);
    /* Of a leak here that has fallen in another process. */
    detect_fell_elsewhere(&r);
    assert_int_equal(r.verdict, DETECT_GROWING);
    assert_int_equal(r.reason, DETECT_BURSTS);
    assert_true(r.confidence > 0.5);
}

/* A minute in the life of a site that frees a share of what it allocates, in hundredths, all at once every so many seconds. */
static struct detect_result judge_bulks(unsigned freed_share, unsigned period_s)
{
    enum { BEFORE_S = 1830, BLOCKS_PER_S = 40, N = 2 * LOOKS };
    struct detect_options options = {.site_age_ns = (BEFORE_S + 61) * NS_PER_S};
    for (size_t i = 0; i < N; i++) {
        uint64_t quarters = 4 * BEFORE_S + 1 + i, bulks = quarters / 4 / period_s;
        uint64_t freed = bulks * period_s * BLOCKS_PER_S * freed_share / 100;
        uint64_t taken = quarters * BLOCKS_PER_S / 4;
        points[i] = (struct detect_point){
            .time_ns = quarters * NS_PER_S / 4,
            .alloc_bytes = taken * 4096,
            .alloc_blocks = taken,
            .freed_bytes = freed * 4096,
            .freed_blocks = freed,
        };
    }
    return judge(N, &options);
}

/* Who keeps nearly all leaks, however the rest is freed; of who frees most we know only when the next bulk has gone. */
static void a_leak_may_free_some_in_bulk(void **state)
{
    static const unsigned periods_s[] = {2, 5, 10, 20, 60, 600};
    for (size_t i = 0; i < sizeof(periods_s) / sizeof(*periods_s); i++) {
        for (unsigned share = 0; share <= 10; share++)
            assert_int_equal(judge_bulks(share, periods_s[i]).verdict, DETECT_LEAK);
        for (unsigned share = 50; share <= 100 && periods_s[i] >= 10; share += 5)
            assert_int_not_equal(judge_bulks(share, periods_s[i]).verdict, DETECT_LEAK);
    }
    assert_int_equal(judge_bulks(60, 20).verdict, DETECT_GROWING);
    assert_int_equal(judge_bulks(60, 600).verdict, DETECT_GROWING);
}

static void growth_that_was_faster_before_may_be_a_warm_up(void **state)
{
    struct detect_options options = {.site_age_ns = 100 * NS_PER_S};
    linear(LOOKS, MIB);
    for (size_t i = 0; i < LOOKS; i++)
        points[i].alloc_bytes += 10000 * (uint64_t)MIB;
    struct detect_result r = judge(LOOKS, &options);
    assert_int_equal(r.verdict, DETECT_GROWING);
    assert_int_equal(r.reason, DETECT_SLOWER_NOW);
    options.site_age_ns = 40 * NS_PER_S; /* we saw most of its life */
    assert_int_equal(judge(LOOKS, &options).verdict, DETECT_LEAK);
}

static void blocks_of_all_ages_add_to_the_evidence(void **state)
{
    struct detect_ages even = {{5, 5, 5, 5, 5, 5, 5, 5}}, young = {{0, 0, 0, 0, 0, 0, 0, 40}};
    linear(LOOKS, MIB);
    struct detect_result r = judge(LOOKS, &(struct detect_options){.ages = &even});
    struct detect_result other = judge(LOOKS, &(struct detect_options){.ages = &young});
    assert_true(r.ages_even);
    assert_false(other.ages_even);
    assert_true(r.confidence > other.confidence);
}

static void a_level_alone_is_never_called_a_leak(void **state)
{
    linear(LOOKS, MIB);
    struct detect_result r = judge(LOOKS, &(struct detect_options){.level_only = true});
    assert_int_equal(r.verdict, DETECT_GROWING);
    assert_int_equal(r.reason, DETECT_LEVEL_ONLY);
    assert_true(r.ever_freed < 0);
}

/* It gave back as much just when we began to look: what rises since may be the next tooth. */
static void a_fall_at_the_start_speaks_against_a_leak(void **state)
{
    linear(LOOKS, MIB);
    for (size_t i = 0; i < LOOKS; i++) {
        points[i].alloc_bytes += 100 * (uint64_t)MIB;
        points[i].alloc_blocks += 100;
        if (i >= 4) {
            points[i].freed_bytes = 100 * (uint64_t)MIB;
            points[i].freed_blocks = 100;
        }
    }
    struct detect_result r = judge(LOOKS, NULL);
    assert_int_equal(r.verdict, DETECT_GROWING);
    assert_int_equal(r.reason, DETECT_BURSTS);
}

/* An hour of teeth, and we look at the last minutes, in which one rises. */
static void a_long_watch_knows_that_growth_goes_away(void **state)
{
    for (size_t i = 0; i < 1800; i++) {
        uint64_t teeth = i / 400;
        points[i] = (struct detect_point){
            .time_ns = i * 2 * NS_PER_S,
            .alloc_bytes = i * MIB + 1,
            .freed_bytes = teeth * 400 * (uint64_t)MIB,
            .alloc_blocks = i + 1,
            .freed_blocks = teeth * 400,
        };
    }
    struct detect_result r = judge(1800, NULL);
    assert_int_not_equal(r.verdict, DETECT_LEAK);
    /* Those minutes by themselves look like a leak. */
    struct detect_result last;
    detect_judge(points + 1610, 180, NULL, &last);
    assert_int_equal(last.verdict, DETECT_LEAK);
}

static void a_new_leak_shows_in_a_long_steady_series(void **state)
{
    for (size_t i = 0; i < 1800; i++) {
        uint64_t grown = i < 1500 ? 0 : (i - 1500) * MIB;
        points[i] = (struct detect_point){
            .time_ns = i * 2 * NS_PER_S,
            .alloc_bytes = 1000 * (uint64_t)MIB + grown,
            .alloc_blocks = 1000 + grown / MIB,
        };
    }
    struct detect_result r = judge(1800, NULL);
    assert_int_equal(r.verdict, DETECT_LEAK);
    check_near(r.bytes_per_s, MIB / 2, MIB / 50);
    assert_true(r.span_ns <= 600 * NS_PER_S);
}

/* Books may lie: any counters give a verdict, and words for it. */
static void any_figures_give_a_verdict(void **state)
{
    uint64_t random = 11;
    for (int round = 0; round < 3000; round++) {
        uint64_t time_ns = 0;
        size_t n = (size_t)round % 400;
        for (size_t i = 0; i < n; i++) {
            uint64_t v[5];
            for (int k = 0; k < 5; k++) {
                random = hash_mix(random + HASH_K0);
                v[k] = random >> (round * 7 + k) % 64;
            }
            time_ns += 1 + v[0] % (UINT64_C(1) << (20 + round % 25));
            points[i] = (struct detect_point){time_ns, v[1], v[2] < v[1] ? v[2] : v[1], v[3],
                                              v[4] < v[3] ? v[4] : v[3]};
            if (round % 3 == 0 && i > 0)
                points[i].alloc_bytes = points[i - 1].alloc_bytes + v[1] / 1000;
        }
        struct detect_ages ages = {{random, UINT64_MAX}};
        struct detect_options options = {
            .site_age_ns = random, .ages = &ages, .level_only = round % 5 == 0};
        struct detect_result r = judge(n, &options);
        assert_true(r.verdict < DETECT_VERDICTS && r.reason < DETECT_REASONS);
        assert_true(r.confidence >= 0 && r.confidence < 1);
        MEMOIR_CLEANUP(buffer_release)
        struct buffer text = BUFFER_INIT(4096);
        detect_explain(&r, &text);
        assert_int_equal(text.error, 0);
        (void)detect_per_minute(r.bytes_per_s);
    }
}

static void every_verdict_and_reason_has_words(void **state)
{
    for (int v = 0; v < DETECT_VERDICTS; v++)
        assert_true(strlen(detect_verdict_word((enum detect_verdict)v)) > 1);
    for (int i = 0; i < DETECT_REASONS; i++) {
        assert_true(strlen(detect_reason_word((enum detect_reason)i)) > 1);
        for (int v = 0; v < DETECT_VERDICTS; v++) {
            struct detect_result r = {.verdict = (enum detect_verdict)v,
                                      .reason = (enum detect_reason)i,
                                      .needs_ns = 30 * NS_PER_S,
                                      .grown_bytes = -5};
            MEMOIR_CLEANUP(buffer_release)
            struct buffer text = BUFFER_INIT(4096);
            detect_explain(&r, &text);
            assert_true(text.len > 10 && text.data[text.len - 1] == '.');
        }
    }
}

/* ---- words ---- */

static void verdicts_are_explained_with_their_figures(void **unused)
{
    static const struct {
        struct detect_result result;
        const char *text;
    } cases[] = {
        {{.reason = DETECT_TOO_SHORT, .needs_ns = 120 * NS_PER_S}, "watched 1m, needs 2m."},
        {{.reason = DETECT_TOO_FEW}, "too few looks in 1m."},
        {{DETECT_STEADY, DETECT_IDLE}, "nothing changed in 1m."},
        {{DETECT_STEADY, DETECT_SHRINKS}, "it holds less than 1m ago."},
        {{DETECT_STEADY, DETECT_ONE_OFF, .quiet_ns = 30 * NS_PER_S},
         "it took memory once, and has not grown in the 30.0 s since."},
        {{DETECT_STEADY, DETECT_TEETH, .fall_bytes = 5000},
         "what it gains it gives back: the largest fall in 1m was 5.0 kB."},
        {{DETECT_STEADY, DETECT_CHURN, .freed_share = 0.5},
         "no growth in 1m: 50 % of what it allocated was freed."},
        {{DETECT_STEADY, DETECT_CHURN, .freed_share = 0.9999},
         "no growth in 1m: 99.99 % of what it allocated was freed."},
        {{DETECT_STEADY, DETECT_CHURN, .freed_share = 0}, "no growth in 1m: nothing was freed."},
        {{DETECT_STEADY, DETECT_CHURN, .freed_share = -1}, "no growth in 1m."},
        {{DETECT_LEAK, DETECT_SUSTAINED, .freed_share = 0.25},
         "rose by 2.0 kB in 1m, in 3 of 4 intervals, without slowing; 25 % of what it allocated was "
         "freed."},
        {{DETECT_LEAK, DETECT_SUSTAINED, .freed_share = 0, .ages_even = true},
         "rose by 2.0 kB in 1m, in 3 of 4 intervals, without slowing; nothing was freed, and live "
         "blocks are of all ages."},
        {{DETECT_WARMING, DETECT_STOPPED, .quiet_ns = 30 * NS_PER_S},
         "rose by 2.0 kB in 1m, in 3 of 4 intervals, and stopped 30.0 s ago: a warm-up, or a cache "
         "that is full."},
        {{DETECT_WARMING, DETECT_SLOWING, .rate_then = 100},
         "rose by 2.0 kB in 1m, in 3 of 4 intervals, ever more slowly (6.0 kB/min at first): a "
         "warm-up, or a cache that fills."},
        {{DETECT_GROWING, DETECT_TEETH, .fall_bytes = 5000},
         "rose by 2.0 kB in 1m, in 3 of 4 intervals, but it has given back 5.0 kB at once before."},
        {{DETECT_GROWING, DETECT_BURSTS, .fall_bytes = 5000},
         "rose by 2.0 kB in 1m, in 3 of 4 intervals, but it has given back 5.0 kB at once before: "
         "collected in bursts."},
        {{DETECT_GROWING, DETECT_BURSTS, .elsewhere = true},
         "rose by 2.0 kB in 1m, in 3 of 4 intervals, but another process of this program has given "
         "such memory back at once: collected in bursts."},
        {{DETECT_GROWING, DETECT_WAITS},
         "rose by 2.0 kB in 1m, in 3 of 4 intervals; such memory is freed when garbage is collected, "
         "which was not seen yet: waiting for the first collection."},
        {{DETECT_GROWING, DETECT_FREES_LATE, .ever_freed = 0.75},
         "rose by 2.0 kB in 1m, in 3 of 4 intervals, but it has freed 75 % of all it ever took: it "
         "may free in bulk, later."},
        {{DETECT_GROWING, DETECT_SLOWER_NOW, .rate_then = 1000},
         "rose by 2.0 kB in 1m, in 3 of 4 intervals, but grew by 60.0 kB/min before: it may be "
         "warming up."},
        {{DETECT_GROWING, DETECT_ONE_OFF},
         "rose by 2.0 kB in 1m, in 3 of 4 intervals: a few large steps, too few to tell."},
        {{DETECT_GROWING, DETECT_LOAD},
         "rose by 2.0 kB in 1m, in 3 of 4 intervals, as it allocates more and more: it may only be "
         "busier."},
        {{DETECT_GROWING, DETECT_DRIFT},
         "rose by 2.0 kB in 1m, in 3 of 4 intervals, which is within what it wanders by itself."},
        {{DETECT_GROWING, DETECT_ONE_BLOCK},
         "rose by 2.0 kB in 1m, in 3 of 4 intervals, but the number of blocks did not: a buffer that "
         "grows."},
        {{DETECT_GROWING, DETECT_LEVEL_ONLY},
         "rose by 2.0 kB in 1m, in 3 of 4 intervals; whether anything of it is freed is not known."},
        {{DETECT_LEAK, DETECT_SUSTAINED, .freed_share = -1, .empty = true, .grown_blocks = 1},
         "rose by 1 block of no bytes in 1m, in 3 of 4 intervals, without slowing."},
        {{DETECT_LEAK, DETECT_SUSTAINED, .freed_share = -1, .empty = true, .grown_blocks = 1234},
         "rose by 1,234 blocks of no bytes in 1m, in 3 of 4 intervals, without slowing."},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct detect_result r = cases[i].result;
        struct buffer text = BUFFER_INIT(1000);
        r.span_ns = 60 * NS_PER_S;
        r.grown_bytes = 2000;
        r.windows = 5;
        r.rises = 3;
        detect_explain(&r, &text);
        assert_string_equal(buffer_string(&text), cases[i].text);
        buffer_release(&text);
    }
}

static void unknown_numbers_have_no_word(void **unused)
{
    assert_string_equal(detect_verdict_word(DETECT_VERDICTS), "?");
    assert_string_equal(detect_reason_word(DETECT_REASONS), "?");
}

static void rates_a_minute_are_rounded_and_never_negative(void **unused)
{
    assert_int_equal(detect_per_minute(1), 60);
    assert_int_equal(detect_per_minute(0.01), 1); /* 0.6 */
    assert_int_equal(detect_per_minute(0.008), 0);
    assert_int_equal(detect_per_minute(0.025), 2); /* 1.5 */
    assert_int_equal(detect_per_minute(0), 0);
    assert_int_equal(detect_per_minute(-5), 0);
    assert_int_equal(detect_per_minute(1e300), UINT64_MAX / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdicts_are_explained_with_their_figures),
        cmocka_unit_test(unknown_numbers_have_no_word),
        cmocka_unit_test(rates_a_minute_are_rounded_and_never_negative),
        cmocka_unit_test(blocks_without_bytes_are_judged_by_their_number),
        cmocka_unit_test(mann_kendall_is_that_of_the_textbook),
        cmocka_unit_test(ties_lower_the_variance),
        cmocka_unit_test(theil_sen_ignores_a_wild_value),
        cmocka_unit_test(theil_sen_is_the_median_of_all_slopes),
        cmocka_unit_test(a_leak_has_its_rate_and_its_beginning),
        cmocka_unit_test(too_short_a_watch_tells_what_it_needs),
        cmocka_unit_test(few_looks_are_no_evidence),
        cmocka_unit_test(a_gap_in_the_watch_is_no_evidence),
        cmocka_unit_test(confidence_grows_with_time),
        cmocka_unit_test(bulk_frees_of_the_past_speak_against_a_leak),
        cmocka_unit_test(slow_progress_is_no_leak),
        cmocka_unit_test(growth_between_a_few_bulk_frees_is_no_leak),
        cmocka_unit_test(a_leak_may_free_some_in_bulk),
        cmocka_unit_test(growth_that_was_faster_before_may_be_a_warm_up),
        cmocka_unit_test(blocks_of_all_ages_add_to_the_evidence),
        cmocka_unit_test(a_level_alone_is_never_called_a_leak),
        cmocka_unit_test(a_fall_at_the_start_speaks_against_a_leak),
        cmocka_unit_test(a_long_watch_knows_that_growth_goes_away),
        cmocka_unit_test(a_new_leak_shows_in_a_long_steady_series),
        cmocka_unit_test(growth_of_collected_memory_waits_for_a_collection),
        cmocka_unit_test(any_figures_give_a_verdict),
        cmocka_unit_test(every_verdict_and_reason_has_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
