/* The limits of the detector, one by one: a series that just reaches one, and one that just does not. Most series have two
 * looks in each of the 18 parts of the time, a second apart, so that one horizon sees all of them. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "ledger/detect.h"

enum { PARTS = DETECT_WINDOWS, LOOKS = 2 * PARTS, STEPS = PARTS - 1, UNIT = 1 << 20 };
#define SPAN_NS ((LOOKS - 1) * NS_PER_S)

static struct detect_point points[800];

static void check_near(double is, double wanted)
{
    if (!(fabs(is - wanted) <= 1e-9 * fmax(1, fabs(wanted))))
        fail_msg("%.17g instead of %.17g", is, wanted);
}

static struct detect_result judge_with(const struct detect_options *options)
{
    struct detect_result r;
    detect_judge(points, LOOKS, options, &r);
    return r;
}

static void check_is(struct detect_result r, enum detect_verdict verdict, enum detect_reason reason)
{
    if (r.verdict != verdict || r.reason != reason)
        fail_msg("%s, %s instead of %s, %s", detect_verdict_word(r.verdict),
                 detect_reason_word(r.reason), detect_verdict_word(verdict),
                 detect_reason_word(reason));
}

static void check(enum detect_verdict verdict, enum detect_reason reason)
{
    check_is(judge_with(NULL), verdict, reason);
}

/* What it took and freed before the watch (the first), and before the first look of each later part, in units. */
static void series(const unsigned taken[PARTS], const unsigned freed[PARTS])
{
    uint64_t all = 0, gone = 0;
    for (size_t i = 0; i < LOOKS; i++) {
        if (i % 2 == 0) {
            all += taken[i / 2];
            gone += freed[i / 2];
        }
        points[i] = (struct detect_point){(1 + i) * NS_PER_S, all * UNIT, gone * UNIT, all, gone};
    }
}

/* By how much the level rises, or falls, from part to part. */
static void steps(const int by[STEPS])
{
    unsigned taken[PARTS] = {1000}, freed[PARTS] = {0};
    for (size_t i = 0; i < STEPS; i++) {
        taken[i + 1] = by[i] > 0 ? (unsigned)by[i] : 0;
        freed[i + 1] = by[i] < 0 ? (unsigned)-by[i] : 0;
    }
    series(taken, freed);
}

/* Takes and frees as much in each part. */
static void evenly(unsigned before_taken, unsigned before_freed, unsigned taken, unsigned freed)
{
    unsigned all[PARTS] = {before_taken}, gone[PARTS] = {before_freed};
    for (size_t i = 1; i < PARTS; i++) {
        all[i] = taken;
        gone[i] = freed;
    }
    series(all, gone);
}

/* ---- how long and how often ---- */

static void thirty_seconds_and_36_looks_are_enough(void **state)
{
    evenly(0, 0, 10, 0);
    for (size_t i = 0; i < LOOKS; i++)
        points[i].time_ns = NS_PER_S + i * 30 * NS_PER_S / (LOOKS - 1);
    check(DETECT_LEAK, DETECT_SUSTAINED);
    points[LOOKS - 1].time_ns--;
    check(DETECT_UNKNOWN, DETECT_TOO_SHORT);
    struct detect_result r;
    points[LOOKS - 2].time_ns = points[LOOKS - 1].time_ns + 1;
    detect_judge(points, LOOKS - 1, NULL, &r);
    check_is(r, DETECT_UNKNOWN, DETECT_TOO_FEW);
    assert_int_equal(r.needs_ns, DETECT_NEEDS_NS);
}

/* What is known before the watch is long enough: what was ever freed, and nothing of the time itself. */
static void a_short_watch_knows_what_was_ever_freed(void **state)
{
    evenly(800, 200, 10, 10);
    struct detect_result r;
    detect_judge(points, 3, NULL, &r);
    check_is(r, DETECT_UNKNOWN, DETECT_TOO_SHORT);
    assert_int_equal(r.span_ns, 2 * NS_PER_S);
    check_near(r.ever_freed, 210.0 / 810);
    check_near(r.freed_share, -1);
    check_near(r.confidence, 0);
    detect_judge(points, 3, &(struct detect_options){.level_only = true}, &r);
    check_near(r.ever_freed, -1);
    detect_judge(points, 0, NULL, &r);
    check_near(r.ever_freed, -1);
    assert_int_equal(r.span_ns, 0);
}

/* Looks only in so many parts of the time. */
static struct detect_result judge_parts(unsigned n)
{
    struct detect_point kept[3 * PARTS];
    struct detect_result r;
    size_t count = 0;
    for (uint64_t part = 0; part < PARTS; part++)
        for (uint64_t i = 0; i < 3 && (part < n - 1 || part == PARTS - 1); i++) {
            uint64_t time = 3 * part + i;
            kept[count++] = (struct detect_point){(1 + time) * NS_PER_S, time * UNIT, 0, time, 0};
        }
    detect_judge(kept, count, NULL, &r);
    return r;
}

static void fifteen_parts_of_eighteen_are_enough(void **state)
{
    struct detect_result r = judge_parts(DETECT_WINDOWS_MIN);
    check_is(r, DETECT_LEAK, DETECT_SUSTAINED);
    assert_int_equal(r.windows, 15);
    assert_int_equal(r.rises, 14);
    check_is(judge_parts(DETECT_WINDOWS_MIN - 1), DETECT_UNKNOWN, DETECT_TOO_FEW);
}

/* A look on the border of two parts belongs to the later one. */
static void parts_begin_with_their_border(void **state)
{
    for (size_t i = 0; i < LOOKS; i++)
        points[i] =
            (struct detect_point){(1 + i) * NS_PER_S, (i + 1) / 2 * UNIT, 0, (i + 1) / 2, 0};
    points[LOOKS - 1].time_ns += NS_PER_S - 1;
    struct detect_result r = judge_with(NULL);
    assert_int_equal(r.grown_bytes, STEPS * UNIT);
    check_near(r.blocks_per_s, 0.5);
}

/* ---- is there a trend ---- */

static void a_trend_begins_at_two_deviations(void **state)
{
    static const unsigned up[PARTS] = {0, 2, 2, 1, 5, 2, 2, 0, 4, 2, 2, 4, 3, 2, 5, 2, 3, 4};
    unsigned taken[PARTS] = {0}, freed[PARTS] = {0};
    for (int down = 0; down < 2; down++) {
        for (size_t i = 0; i < PARTS; i++) {
            unsigned level = down ? 9 - up[i] : up[i];
            unsigned before = i == 0 ? 0 : down ? 9 - up[i - 1] : up[i - 1];
            taken[i] = level > before ? level - before : 0;
            freed[i] = level < before ? before - level : 0;
        }
        series(taken, freed);
        struct detect_result r = judge_with(NULL);
        assert_true(r.z == (down ? -2.0 : 2.0));
        check_is(r, DETECT_STEADY, down ? DETECT_SHRINKS : DETECT_TEETH);
    }
}

/* A level that falls a little and then rises is a leak only if it rose for most of the time. */
static void a_leak_needs_more_of_a_trend(void **state)
{
    int by[STEPS];
    for (int falls = 7; falls <= 8; falls++) {
        for (int i = 0; i < STEPS; i++)
            by[i] = i < falls ? -1 : 100;
        steps(by);
        struct detect_result r = judge_with(NULL);
        assert_int_equal(r.z >= 3.3, falls == 7);
        if (falls == 7)
            check_is(r, DETECT_LEAK, DETECT_SUSTAINED);
        else
            check_is(r, DETECT_GROWING, DETECT_DRIFT);
        assert_int_equal(r.since_ns, (1 + 2 * (uint64_t)falls) * NS_PER_S);
    }
}

static void growth_begins_where_the_level_last_was_flat_or_fell(void **state)
{
    steps((int[STEPS]){0, 0, 0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5});
    assert_int_equal(judge_with(NULL).since_ns, 7 * NS_PER_S);
    steps((int[STEPS]){5, 5, -1, 0, 5, 5, 5, 5, 5, 0, 5, 5, 5, 5, 5, 5, 5});
    assert_int_equal(judge_with(NULL).since_ns, 9 * NS_PER_S);
    steps((int[STEPS]){5, 5, 0, 0, 5, 5, 5, 5, 5, 0, 5, 5, 5, 5, 5, 5, 5});
    assert_int_equal(judge_with(NULL).since_ns, 1 * NS_PER_S);
    steps((int[STEPS]){5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, -1});
    assert_int_equal(judge_with(NULL).since_ns, 35 * NS_PER_S);
    evenly(5, 0, 0, 0);
    check(DETECT_STEADY, DETECT_IDLE);
    assert_int_equal(judge_with(NULL).since_ns, 35 * NS_PER_S);
}

/* ---- ordinary reasons ---- */

static void half_of_all_growth_at_once_is_one_event(void **state)
{
    int by[STEPS] = {1, 1, 1, 1, 15, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    steps(by);
    check(DETECT_GROWING, DETECT_ONE_OFF); /* more than 40 % of the growth */
    by[4] = 16;
    steps(by);
    check(DETECT_LEAK, DETECT_SUSTAINED); /* half of it: the rest is judged by itself */
    by[4] = 160;
    steps(by);
    check(DETECT_LEAK, DETECT_SUSTAINED);
    by[4] = 161; /* the rest is less than a tenth of it */
    steps(by);
    struct detect_result r = judge_with(NULL);
    check_is(r, DETECT_STEADY, DETECT_ONE_OFF);
    assert_int_equal(r.quiet_ns, 25 * NS_PER_S);
}

static void a_jump_among_what_comes_and_goes_is_one_event(void **state)
{
    steps(
        (int[STEPS]){10, -10, 10, -10, 10, -10, 10, -10, 100, 10, -10, 10, -10, 10, -10, 10, -10});
    struct detect_result r = judge_with(NULL);
    check_is(r, DETECT_STEADY, DETECT_ONE_OFF);
    assert_true(fabs(r.z) < 2);
    assert_int_equal(r.quiet_ns, 17 * NS_PER_S);
}

static void one_rise_of_more_than_two_fifths_is_too_much(void **state)
{
    int by[STEPS] = {4, 4, 4, 4, 4, 4, 4, 40, 3, 3, 3, 4, 3, 4, 4, 4, 4};
    steps(by);
    check(DETECT_LEAK, DETECT_SUSTAINED);
    by[7] = 41;
    steps(by);
    check(DETECT_GROWING, DETECT_ONE_OFF);
}

static void a_leak_comes_again_and_again(void **state)
{
    steps((int[STEPS]){0, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0, 9, 0});
    check(DETECT_GROWING, DETECT_ONE_OFF);
    steps((int[STEPS]){0, 0, 9, 0, 0, 9, 0, 0, 9, 0, 0, 9, 0, 0, 9, 0, 0});
    check(DETECT_LEAK, DETECT_SUSTAINED);
    assert_int_equal(judge_with(NULL).rises, 5);
}

static void marks_that_give_back_a_quarter_are_teeth(void **state)
{
    steps((int[STEPS]){1, -1, 2, 1, 1, -1, 2, 1, 1, -1, 2, 1, -1, 1, 1, 1, 1});
    check(DETECT_GROWING, DETECT_BURSTS); /* exactly a quarter */
    steps((int[STEPS]){1, -1, 1, 1, 1, -1, 2, 1, 1, -1, 2, 1, -1, 1, 1, 1, 1});
    check(DETECT_GROWING, DETECT_TEETH);
    /* Twice as much up as down is growth, less is none. */
    steps((int[STEPS]){2, -1, 2, -1, 2, -1, 2, -1, 2, -1, 2, -1, 2, -1, 2, -1, 1});
    check(DETECT_GROWING, DETECT_TEETH);
    steps((int[STEPS]){2, -1, 2, -1, 2, -1, 2, -1, 2, -1, 2, -1, 2, -1, 1, -1, 1});
    check(DETECT_STEADY, DETECT_TEETH);
}

static void growth_has_stopped_after_a_longer_pause_than_before(void **state)
{
    steps((int[STEPS]){5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 0, 0});
    struct detect_result r = judge_with(NULL);
    check_is(r, DETECT_WARMING, DETECT_STOPPED);
    assert_int_equal(r.quiet_ns, 5 * NS_PER_S);
    check_near(r.rate_then, 2.5 * UNIT);
    /* The time before it began is no pause. */
    steps((int[STEPS]){0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 0, 0});
    check(DETECT_WARMING, DETECT_STOPPED);
    steps((int[STEPS]){5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 0});
    check(DETECT_LEAK, DETECT_SUSTAINED);
    /* After pauses of two parts it takes five. */
    steps((int[STEPS]){5, 0, 0, 5, 0, 0, 5, 0, 0, 5, 5, 5, 5, 0, 0, 0, 0});
    check(DETECT_LEAK, DETECT_SUSTAINED);
    steps((int[STEPS]){5, 0, 0, 5, 0, 0, 5, 0, 0, 5, 5, 5, 0, 0, 0, 0, 0});
    check(DETECT_WARMING, DETECT_STOPPED);
}

static void the_last_sixth_and_third_must_have_their_share(void **state)
{
    /* Of 100 units 3 in the last sixth. */
    steps((int[STEPS]){13, 7, 7, 7, 7, 7, 0, 7, 7, 7, 7, 7, 7, 7, 3, 0, 0});
    check(DETECT_WARMING, DETECT_STOPPED);
    steps((int[STEPS]){12, 7, 7, 7, 7, 7, 0, 7, 7, 7, 7, 7, 7, 7, 4, 0, 0});
    check(DETECT_LEAK, DETECT_SUSTAINED);
    steps((int[STEPS]){13, 7, 7, 7, 7, 7, 0, 7, 7, 7, 7, 7, 7, 7, 3, 0, 0});
    for (size_t i = 1; i < LOOKS; i++)
        points[i].freed_bytes += 10 * UNIT; /* before the first mark: still 3 of 100 */
    check(DETECT_WARMING, DETECT_STOPPED);
    /* 10 in the last third. */
    steps((int[STEPS]){9, 9, 8, 8, 8, 8, 8, 8, 8, 8, 8, 2, 2, 2, 2, 2, 0});
    check(DETECT_WARMING, DETECT_STOPPED);
    steps((int[STEPS]){9, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 3, 2, 2, 2, 2, 0});
    check(DETECT_WARMING, DETECT_SLOWING);
}

/* 101 looks a second apart, until when it allocates at each. */
static struct detect_result judge_until(uint64_t until)
{
    struct detect_result r;
    for (uint64_t i = 0; i <= 100; i++) {
        uint64_t units = i < until ? i : until;
        points[i] = (struct detect_point){(1 + i) * NS_PER_S, units * UNIT, 0, units, 0};
    }
    detect_judge(points, 101, NULL, &r);
    return r;
}

static void more_than_8_percent_of_the_time_without_allocation_is_a_stop(void **state)
{
    check_is(judge_until(92), DETECT_LEAK, DETECT_SUSTAINED);
    check_is(judge_until(91), DETECT_WARMING, DETECT_STOPPED);
}

static void a_full_cache_frees_what_it_allocates(void **state)
{
    unsigned taken[PARTS], freed[PARTS] = {0};
    for (size_t i = 0; i < PARTS; i++)
        taken[i] = 20;
    freed[PARTS - 1] = 17; /* 85 % */
    series(taken, freed);
    check(DETECT_WARMING, DETECT_STOPPED);
    freed[PARTS - 1] = 16;
    series(taken, freed);
    check(DETECT_LEAK, DETECT_SUSTAINED);
    /* It did not do so before: 30 % of the first two thirds at most. */
    freed[PARTS - 1] = 17;
    for (size_t i = 1; i < PARTS - 1; i++)
        freed[i] = 6;
    series(taken, freed);
    check(DETECT_WARMING, DETECT_STOPPED);
    freed[11]++;
    series(taken, freed);
    check(DETECT_LEAK, DETECT_SUSTAINED);
}

static void growth_that_falls_below_three_fifths_slows(void **state)
{
    /* From segment to segment: 12 and 8 a part at first, 7 and 5 at last. */
    int by[STEPS] = {12, 12, 8, 8, 8, 8, 8, 7, 8, 7, 7, 3, 9, 9, 5, 5, 5};
    steps(by);
    check(DETECT_LEAK, DETECT_SUSTAINED);
    by[16] = 4;
    steps(by);
    struct detect_result r = judge_with(NULL);
    check_is(r, DETECT_WARMING, DETECT_SLOWING);
    check_near(r.rate_then, 5.0 * UNIT);
    /* From rise to rise. */
    steps((int[STEPS]){3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1});
    check(DETECT_LEAK, DETECT_SUSTAINED);
}

/* What comes and goes may be half of the growth. The level falls within the first part; a little comes and goes in each. */
static void fall_at_first(unsigned by)
{
    evenly(100, 0, 7, 1);
    for (size_t i = 1; i < LOOKS; i++) {
        points[i].freed_bytes += by * (uint64_t)UNIT;
        points[i].freed_blocks += by;
    }
}

static void what_comes_and_goes_must_be_less_than_half_of_the_growth(void **state)
{
    fall_at_first(50); /* of 102 */
    check(DETECT_LEAK, DETECT_SUSTAINED);
    assert_int_equal(judge_with(NULL).grown_bytes, 102 * UNIT);
    assert_int_equal(judge_with(NULL).fall_bytes, 50 * UNIT);
    fall_at_first(51);
    check(DETECT_GROWING, DETECT_BURSTS);
}

static void a_hundredth_freed_is_nothing(void **state)
{
    unsigned taken[PARTS] = {1000}, freed[PARTS] = {0};
    for (size_t i = 2; i < PARTS; i += 3)
        taken[i] = 100; /* 600 in all, so scattered that their mean may be chance */
    freed[9] = 6;
    series(taken, freed);
    struct detect_result r = judge_with(NULL);
    check_is(r, DETECT_LEAK, DETECT_SUSTAINED);
    double longer = log2(35.0 / 30) / 3;
    check_near(r.confidence, 0.8 + 0.07 * longer + 0.04);
    freed[9] = 7;
    series(taken, freed);
    check(DETECT_GROWING, DETECT_DRIFT);
    evenly(0, 0, 100, 1);
    check_near(judge_with(NULL).confidence, 0.8 + 0.07 * longer + 0.05 + 0.04);
    points[LOOKS - 1].freed_bytes += UNIT;
    check_near(judge_with(NULL).confidence, 0.8 + 0.07 * longer + 0.05);
}

static void a_leak_has_more_blocks_and_a_trend_in_them(void **state)
{
    evenly(100, 0, 10, 0);
    for (size_t i = 0; i < LOOKS; i++)
        points[i].alloc_blocks = 100 + i / 8;
    check(DETECT_LEAK, DETECT_SUSTAINED);
    for (size_t i = 0; i < LOOKS; i++)
        points[i].alloc_blocks = 100 + i / 9; /* three */
    check(DETECT_GROWING, DETECT_ONE_BLOCK);
    for (size_t i = 0; i < LOOKS; i++)
        points[i].alloc_blocks = 100 + (i < LOOKS - 2 ? 0 : 10); /* all at last */
    check(DETECT_GROWING, DETECT_ONE_BLOCK);
    for (size_t i = 0; i < LOOKS; i++) { /* 5 more than after the first look */
        points[i].alloc_blocks = 100 + (i < 2 ? 0 : (i - 1) / 6);
        points[i].freed_blocks = i < 1 ? 0 : 3;
    }
    check(DETECT_LEAK, DETECT_SUSTAINED);
}

/* ---- load ---- */

static void half_of_it_freed_may_follow_the_load(void **state)
{
    unsigned taken[PARTS] = {0}, freed[PARTS] = {0};
    for (unsigned i = 1; i < PARTS; i++) {
        taken[i] = 2 * i; /* more and more */
        freed[i] = i;
    }
    series(taken, freed);
    check(DETECT_GROWING, DETECT_LOAD);
    freed[PARTS - 1]--;
    series(taken, freed);
    check(DETECT_LEAK, DETECT_SUSTAINED);
    /* The first part may have a single look. */
    freed[PARTS - 1]++;
    series(taken, freed);
    for (size_t i = 1; i < LOOKS; i++)
        points[i].time_ns += NS_PER_S;
    check(DETECT_GROWING, DETECT_LOAD);
}

/* The rate of allocation is a straight line over time: what is held cannot follow one and not the other. */
static void a_load_that_rises_like_time_cannot_be_told_from_it(void **state)
{
    unsigned taken[PARTS] = {0}, freed[PARTS] = {0};
    double more = 3;
    for (unsigned i = 1; i < PARTS; i++) {
        taken[i] = 400 * i;
        freed[i] = taken[i] - (unsigned)(more *= 1.3);
    }
    series(taken, freed);
    check(DETECT_GROWING, DETECT_LOAD);
}

static void what_is_held_may_follow_the_load_nearly_alone(void **state)
{
    unsigned taken[PARTS] = {0}, freed[PARTS] = {0};
    for (unsigned i = 1; i < PARTS; i++) {
        taken[i] = 100 * i + i * 7 % 5 * 20;
        freed[i] = taken[i] - 10;
    }
    series(taken, freed);
    check(DETECT_GROWING, DETECT_LOAD);
    for (unsigned i = 1; i < PARTS; i++) { /* the same work all the time */
        taken[i] = 1000;
        freed[i] = 990;
    }
    series(taken, freed);
    check(DETECT_LEAK, DETECT_SUSTAINED);
}

/* ---- what was before the watch ---- */

static void check_past(uint64_t age_ns, enum detect_reason reason)
{
    check_is(judge_with(&(struct detect_options){.site_age_ns = age_ns}),
             reason == DETECT_SUSTAINED ? DETECT_LEAK : DETECT_GROWING, reason);
}

static void what_was_freed_before_counts_while_the_watch_is_shorter(void **state)
{
    evenly(1000, 500, 20, 0); /* 340 in the watch */
    check_past(SPAN_NS, DETECT_SUSTAINED);
    check_past(SPAN_NS + 1, DETECT_FREES_LATE);
    for (size_t i = 0; i < LOOKS; i++)
        points[i].time_ns = NS_PER_S + i * 600 * NS_PER_S / (LOOKS - 1);
    check_past(3600 * NS_PER_S, DETECT_SUSTAINED);
    points[LOOKS - 1].time_ns--;
    check_past(3600 * NS_PER_S, DETECT_FREES_LATE);
}

static void what_was_freed_before_counts_if_it_was_enough(void **state)
{
    uint64_t age_ns = SPAN_NS + NS_PER_S;
    evenly(340, 68, 20, 0); /* a fifth, and as much as in the watch */
    check_past(age_ns, DETECT_FREES_LATE);
    evenly(340, 67, 20, 0);
    check_past(age_ns, DETECT_SUSTAINED);
    evenly(339, 68, 20, 0);
    check_past(age_ns, DETECT_SUSTAINED);
    /* A tenth of the share is freed now, which was half. */
    evenly(1000, 500, 20, 1);
    check_past(age_ns, DETECT_SUSTAINED);
    points[LOOKS - 1].freed_bytes -= UNIT;
    check_past(age_ns, DETECT_FREES_LATE);
    /* Twice as much is kept now, which was 40 %. */
    evenly(1000, 600, 20, 4);
    check_past(age_ns, DETECT_SUSTAINED);
    points[LOOKS - 1].freed_bytes -= UNIT;
    check_past(age_ns, DETECT_FREES_LATE);
}

static void growth_may_be_half_as_fast_as_before(void **state)
{
    evenly(1000, 0, 10, 0); /* 1000 in 100 s, and 5 a second now */
    check_past(SPAN_NS + 100 * NS_PER_S, DETECT_SUSTAINED);
    evenly(1001, 0, 10, 0);
    struct detect_options options = {.site_age_ns = SPAN_NS + 100 * NS_PER_S};
    check_near(judge_with(&options).rate_then, 10.01 * UNIT);
    check_past(options.site_age_ns, DETECT_SLOWER_NOW);
    /* Only if it lived longer before the watch than in it, and the watch is short. */
    evenly(100000, 0, 10, 0);
    check_past(2 * SPAN_NS, DETECT_SUSTAINED);
    check_past(2 * SPAN_NS + NS_PER_S, DETECT_SLOWER_NOW);
    for (size_t i = 0; i < LOOKS; i++)
        points[i].time_ns = NS_PER_S + i * 600 * NS_PER_S / (LOOKS - 1);
    check_past(3600 * NS_PER_S, DETECT_SUSTAINED);
}

/* ---- confidence ---- */

static double confidence_of(uint64_t needs_ns, uint64_t age_ns, const struct detect_ages *ages)
{
    struct detect_options options = {needs_ns, age_ns, .ages = ages};
    return judge_with(&options).confidence;
}

static void confidence_grows_up_to_eight_times_the_time_needed(void **state)
{
    evenly(0, 0, 10, 0);
    check_near(confidence_of(SPAN_NS, 0, NULL), 0.89);
    check_near(confidence_of(SPAN_NS / 2, 0, NULL), 0.89 + 0.07 / 3);
    check_near(confidence_of(SPAN_NS / 8, 0, NULL), 0.96);
    check_near(confidence_of(SPAN_NS / 16, 0, NULL), 0.96);
    evenly(10, 0, 0, 0);
    check_near(confidence_of(SPAN_NS, 0, NULL), 0.8);
    check_near(confidence_of(SPAN_NS / 8, 0, NULL), 0.95);
    steps((int[STEPS]){5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 0, 0});
    check_near(confidence_of(SPAN_NS, 0, NULL), 0.7);
    check_near(confidence_of(SPAN_NS / 8, 0, NULL), 0.9);
}

static void evidence_from_before_the_watch_adds_to_the_confidence(void **state)
{
    evenly(0, 0, 10, 0);
    check_near(confidence_of(SPAN_NS, 2 * SPAN_NS, NULL), 0.89);
    check_near(confidence_of(SPAN_NS, 2 * SPAN_NS + 1, NULL), 0.92);
    series((unsigned[PARTS]){0, 0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5},
           (unsigned[PARTS]){0}); /* began in the watch */
    check_near(confidence_of(SPAN_NS, 2 * SPAN_NS + 1, NULL), 0.89);
    /* A quarter of an even share of the bytes, in all ages but one. */
    evenly(0, 0, 10, 0);
    check_near(confidence_of(SPAN_NS, 0, &(struct detect_ages){{1, 1, 1, 1, 1, 1, 26, 0}}), 0.92);
    check_near(confidence_of(SPAN_NS, 0, &(struct detect_ages){{1, 1, 1, 1, 1, 1, 27, 0}}), 0.89);
    check_near(confidence_of(SPAN_NS, 0, &(struct detect_ages){{1, 1, 1, 1, 1, 27, 0, 0}}), 0.89);
    check_near(confidence_of(SPAN_NS, 0, &(struct detect_ages){{0}}), 0.89);
}

static void a_leak_that_fell_elsewhere_says_so(void **state)
{
    evenly(0, 0, 10, 0);
    struct detect_result r = judge_with(NULL);
    assert_false(r.elsewhere);
    detect_fell_elsewhere(&r);
    assert_true(r.elsewhere);
    check_near(r.confidence, 0.95);
}

/* ---- falls ---- */

static bool fell(uint64_t from, uint64_t to)
{
    struct detect_point level[] = {
        {.alloc_bytes = 1}, {.alloc_bytes = from}, {.alloc_bytes = from, .freed_bytes = from - to}};
    return detect_fell(level, 3);
}

static void a_fall_of_a_twentieth_and_64_kib_is_a_collection(void **state)
{
    assert_true(fell(20 * 65536, 19 * 65536));
    assert_false(fell(20 * 65536, 19 * 65536 + 1));
    assert_false(fell(20 * 65536 + 20, 19 * 65536 + 20));
    assert_true(fell(65536, 0));
    assert_false(fell(65535, 0));
}

/* Books may lie. */
static void growth_beyond_all_numbers_stays_within_them(void **state)
{
    static const uint64_t large = UINT64_C(9100000000000000000);
    for (int down = 0; down < 2; down++) {
        for (uint64_t i = 0; i < LOOKS; i++)
            points[i] = (struct detect_point){
                (1 + i) * NS_PER_S, down ? large : large / 35 * i, down ? large / 35 * i : 0,
                down ? large : large / 35 * i, down ? large / 35 * i : 0};
        points[0].freed_blocks = 0;
        struct detect_result r = judge_with(NULL);
        assert_int_equal(r.grown_bytes / 1000000000, (down ? -1 : 1) * INT64_C(8840000000));
    }
}

/* ---- several horizons ---- */

/* So many looks a second apart; `rate` is in units a second of each tenth of the time. */
static struct detect_result judge_tenths(size_t n, const unsigned rate[10])
{
    struct detect_result r;
    uint64_t all = 0;
    for (size_t i = 0; i < n; i++) {
        all += rate[i * 10 / n];
        points[i] =
            (struct detect_point){(1 + i) * NS_PER_S, (1000 + all) * UNIT, 0, 1000 + all, 0};
    }
    detect_judge(points, n, NULL, &r);
    return r;
}

static void after_a_hole_the_last_minutes_are_judged_by_themselves(void **state)
{
    struct detect_result r;
    for (int grows = 0; grows < 2; grows++) {
        for (size_t i = 0; i < 200; i++) {
            uint64_t time = i < 50 ? i : i + 600, units = i < 50 ? 0 : grows ? i : 10 + i % 2;
            points[i] = (struct detect_point){(1 + time) * NS_PER_S, (100 + units) * UNIT, 0,
                                              100 + units, 0};
            if (!grows)
                points[i].freed_bytes = i % 2 * UNIT;
        }
        detect_judge(points, 200, NULL, &r);
        assert_int_equal(r.verdict, grows ? DETECT_LEAK : DETECT_STEADY);
        assert_int_equal(r.span_ns, 149 * NS_PER_S);
    }
}

static void a_slow_rest_of_a_warm_up_is_no_leak(void **state)
{
    struct detect_result r = judge_tenths(300, (unsigned[10]){20, 20, 20, 8, 4, 1, 1, 1, 1, 1});
    assert_int_equal(r.verdict, DETECT_WARMING);
    assert_int_equal(r.span_ns, 299 * NS_PER_S);
    /* It did not grow at first: then the warm-up is not the same growth. */
    r = judge_tenths(600, (unsigned[10]){0, 0, 0, 0, 90, 90, 90, 90, 1, 1});
    assert_int_equal(r.verdict, DETECT_LEAK);
    assert_int_equal(r.span_ns, 120 * NS_PER_S);
}

/* A step, and then growth that would be a leak without it. */
static void a_shorter_horizon_takes_four_fifths_of_the_time_at_most(void **state)
{
    struct detect_result r;
    for (size_t n = 150; n <= 151; n++) { /* 150 s, of which 120 are four fifths */
        uint64_t all = 1000;
        for (size_t i = 0; i < n; i++) {
            all += i == 10 ? 98 : i >= n - 120 ? 1 : 0;
            points[i] = (struct detect_point){(1 + i) * NS_PER_S, all * UNIT, 0, all, 0};
        }
        detect_judge(points, n, NULL, &r);
        assert_int_equal(r.reason, n == 151 ? DETECT_SUSTAINED : DETECT_ONE_OFF);
        assert_int_equal(r.span_ns, (n == 151 ? 120 : 149) * NS_PER_S);
    }
}

static void a_horizon_needs_36_looks_of_its_own(void **state)
{
    struct detect_options options = {.needs_ns = 35 * NS_PER_S}; /* and four times that */
    for (uint64_t every_ns = 4 * NS_PER_S; every_ns <= 4 * NS_PER_S + 1; every_ns++) {
        struct detect_result r;
        uint64_t all = 1000;
        for (size_t i = 0; i < 60; i++) {
            all += i == 5 ? 28 : i >= 25 ? 1 : 0;
            points[i] = (struct detect_point){NS_PER_S + i * every_ns, all * UNIT, 0, all, 0};
        }
        detect_judge(points, 60, &options, &r);
        bool enough = every_ns == 4 * NS_PER_S;
        assert_int_equal(r.reason, enough ? DETECT_SUSTAINED : DETECT_ONE_OFF);
        assert_int_equal(r.span_ns, (enough ? 35 : 59) * every_ns);
    }
}

/* Five minutes; it gives `fall` units back in the first one, and grows by two a second in the last two. */
static struct detect_result judge_after_fall(uint64_t fall)
{
    struct detect_result r;
    for (size_t i = 0; i < 300; i++) {
        uint64_t all = 1000 + (i < 180 ? 0 : 2 * (i - 180)), gone = i < 50 ? 0 : fall;
        points[i] = (struct detect_point){(1 + i) * NS_PER_S, all * UNIT, gone * UNIT, all, gone};
    }
    detect_judge(points, 300, NULL, &r);
    return r;
}

static void a_longer_horizon_that_saw_half_of_it_go_away_counts(void **state)
{
    struct detect_result r = judge_after_fall(80);
    check_is(r, DETECT_LEAK, DETECT_SUSTAINED);
    uint64_t grown = (uint64_t)r.grown_bytes / UNIT;
    assert_true(grown > 100 && grown % 2 == 0);
    check_is(judge_after_fall(grown / 2 - 1), DETECT_LEAK, DETECT_SUSTAINED);
    r = judge_after_fall(grown / 2);
    check_is(r, DETECT_GROWING, DETECT_BURSTS);
    assert_int_equal(r.fall_bytes, grown / 2 * UNIT);
    check_near(r.confidence, 0.95);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thirty_seconds_and_36_looks_are_enough),
        cmocka_unit_test(a_short_watch_knows_what_was_ever_freed),
        cmocka_unit_test(fifteen_parts_of_eighteen_are_enough),
        cmocka_unit_test(parts_begin_with_their_border),
        cmocka_unit_test(a_trend_begins_at_two_deviations),
        cmocka_unit_test(a_leak_needs_more_of_a_trend),
        cmocka_unit_test(growth_begins_where_the_level_last_was_flat_or_fell),
        cmocka_unit_test(half_of_all_growth_at_once_is_one_event),
        cmocka_unit_test(a_jump_among_what_comes_and_goes_is_one_event),
        cmocka_unit_test(one_rise_of_more_than_two_fifths_is_too_much),
        cmocka_unit_test(a_leak_comes_again_and_again),
        cmocka_unit_test(marks_that_give_back_a_quarter_are_teeth),
        cmocka_unit_test(growth_has_stopped_after_a_longer_pause_than_before),
        cmocka_unit_test(the_last_sixth_and_third_must_have_their_share),
        cmocka_unit_test(more_than_8_percent_of_the_time_without_allocation_is_a_stop),
        cmocka_unit_test(a_full_cache_frees_what_it_allocates),
        cmocka_unit_test(growth_that_falls_below_three_fifths_slows),
        cmocka_unit_test(what_comes_and_goes_must_be_less_than_half_of_the_growth),
        cmocka_unit_test(a_hundredth_freed_is_nothing),
        cmocka_unit_test(a_leak_has_more_blocks_and_a_trend_in_them),
        cmocka_unit_test(half_of_it_freed_may_follow_the_load),
        cmocka_unit_test(a_load_that_rises_like_time_cannot_be_told_from_it),
        cmocka_unit_test(what_is_held_may_follow_the_load_nearly_alone),
        cmocka_unit_test(what_was_freed_before_counts_while_the_watch_is_shorter),
        cmocka_unit_test(what_was_freed_before_counts_if_it_was_enough),
        cmocka_unit_test(growth_may_be_half_as_fast_as_before),
        cmocka_unit_test(confidence_grows_up_to_eight_times_the_time_needed),
        cmocka_unit_test(evidence_from_before_the_watch_adds_to_the_confidence),
        cmocka_unit_test(a_leak_that_fell_elsewhere_says_so),
        cmocka_unit_test(a_fall_of_a_twentieth_and_64_kib_is_a_collection),
        cmocka_unit_test(growth_beyond_all_numbers_stays_within_them),
        cmocka_unit_test(after_a_hole_the_last_minutes_are_judged_by_themselves),
        cmocka_unit_test(a_slow_rest_of_a_warm_up_is_no_leak),
        cmocka_unit_test(a_shorter_horizon_takes_four_fifths_of_the_time_at_most),
        cmocka_unit_test(a_horizon_needs_36_looks_of_its_own),
        cmocka_unit_test(a_longer_horizon_that_saw_half_of_it_go_away_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
