/* Every range and every width of a chart, against every tier, at any time after memoird began: a step of the
 * answer has a value exactly if something was recorded in it, and the value is the one recorded. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "check.h"
#include "history/read.h"
#include "history/recorder.h"
#include "history/store.h"

enum {
    LONGEST_S = 6 * 3600,
    FLUSH_S = 10,
    DAY_S = 86400,
    T0 = 1800000000 - 1800000000 % 7200, /* a window of the coarsest tier begins */
};

struct world {
    char dir[64], path[128];
    struct store *store;
    struct recorder *recorder;
    struct sample sample;
    uint64_t first_s;             /* of `recorded` */
    bool recorded[LONGEST_S + 1]; /* by second: there was a picture */
    uint64_t random;
};

static uint64_t random_below(struct world *w, uint64_t n)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (w->random >> 33) % n;
}

/* What the machine had available in that second; every seventh is a peak. */
static uint64_t held(uint64_t time_s)
{
    return 1000000 + time_s % 997 * 64 + (time_s % 7 == 3 ? 500000 : 0);
}

static void world_open(struct world *w, uint64_t seed, const uint64_t keep_s[static HISTORY_TIERS])
{
    struct store_limits limits = {UINT64_C(1) << 30, {keep_s[0], keep_s[1], keep_s[2]}};
    memset(w, 0, sizeof(*w));
    w->random = seed;
    strcpy(w->dir, "/dev/shm/memoir-tiers-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->path, sizeof(w->path), "%s/%s", w->dir, HISTORY_FILE);
    sample_init(&w->sample);
    assert_int_equal(store_open(w->path, &limits, &w->store), 0);
    assert_int_equal(recorder_new(1, FLUSH_S, &w->recorder), 0);
}

static void world_close(struct world *w)
{
    char command[128];
    recorder_free(w->recorder);
    store_free(w->store);
    sample_release(&w->sample);
    snprintf(command, sizeof(command), "rm -rf %s", w->dir);
    assert_int_equal(system(command), 0);
}

static void flush(struct world *w, uint64_t now_s)
{
    assert_int_equal(recorder_flush(w->recorder, w->store, now_s), 0);
}

static void record(struct world *w, uint64_t time_s)
{
    sample_reset(&w->sample, time_s * NS_PER_S);
    sample_totals(&w->sample);
    sample_add_value(&w->sample, 0, HISTORY_SYSTEM_AVAILABLE, HISTORY_SYSTEM, held(time_s));
    int r = recorder_add(w->recorder, &w->sample);
    if (r == -EAGAIN) {
        flush(w, time_s);
        r = recorder_add(w->recorder, &w->sample);
    }
    assert_int_equal(r, 0);
    w->recorded[time_s - w->first_s] = true;
}

static bool known_at(const struct world *w, uint64_t time_s)
{
    return time_s >= w->first_s && time_s - w->first_s <= LONGEST_S &&
           w->recorded[time_s - w->first_s];
}

/* Compare one step of the answer with what was recorded in it. */
static void check_step(const struct world *w, const struct read_result *result, size_t i)
{
    uint64_t from_s = result->since_s + i * result->step_s, last = 0, max = 0;
    bool any = false;
    for (uint64_t s = from_s; s < from_s + result->step_s; s++) {
        if (!known_at(w, s))
            continue;
        any = true;
        last = held(s);
        max = last > max ? last : max;
    }
    const struct read_point *point = result->n_lines ? &result->lines[0].points[i] : NULL;
    if (any != (point && point->present))
        fail_msg("step of %u s at T0+%d: %s", (unsigned)result->step_s, (int)(from_s - T0),
                 any ? "a gap where something was recorded" : "a value where nothing was");
    if (any && (point->last != last || point->max != max))
        fail_msg("step of %u s at T0+%d: not what was recorded", (unsigned)result->step_s,
                 (int)(from_s - T0));
}

static struct read_result ask(const struct world *w, uint64_t now_s, uint64_t range_s,
                              uint64_t points)
{
    struct read_query query = {.since_s = now_s - range_s,
                               .until_s = now_s + 1,
                               .step_s = read_step(range_s + 1, points),
                               .system = true};
    struct read_result result = {0};
    assert_int_equal(read_history(w->path, &query, &result), 0);
    assert_int_equal(result.damaged, 0);
    assert_true(result.step_s >= query.step_s);
    assert_int_equal(result.since_s % result.step_s, 0);
    assert_int_equal(result.until_s % result.step_s, 0);
    assert_true(result.since_s <= query.since_s && result.until_s >= query.until_s);
    assert_true(result.since_s + result.step_s > query.since_s);
    return result;
}

static const uint64_t ranges_s[] = {60,   300,   600,   1800,  3600,      7200,
                                    5000, 21600, 43200, DAY_S, 7 * DAY_S, 30 * DAY_S};
static const uint64_t widths[] = {20, 63, 120, 300, 360, 720, 1500, 5000};

static void check_all(const struct world *w, uint64_t now_s)
{
    for (size_t r = 0; r < sizeof(ranges_s) / sizeof(*ranges_s); r++) {
        for (size_t k = 0; k < sizeof(widths) / sizeof(*widths); k++) {
            struct read_result result = ask(w, now_s, ranges_s[r], widths[k]);
            for (size_t i = 0; i < result.n_steps; i++)
                check_step(w, &result, i);
            read_release(&result);
        }
    }
}

/* Seconds for about as long as the shortest, tens for an hour: all tiers have a part of their own within hours. */
static const uint64_t keep_short[HISTORY_TIERS] = {600, 3600, 30 * DAY_S};
static const uint64_t keep_usual[HISTORY_TIERS] = {3600, DAY_S, 30 * DAY_S};

static void one_life(uint64_t seed, const uint64_t keep_s[static HISTORY_TIERS])
{
    struct world *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    world_open(w, seed, keep_s);
    w->first_s = T0 + random_below(w, 7200);
    uint64_t end_s = w->first_s + 3600 + random_below(w, LONGEST_S - 3600);
    uint64_t check_s = w->first_s + random_below(w, 2000);
    uint64_t down_s = w->first_s + random_below(w, LONGEST_S), up_s = down_s;
    up_s += random_below(w, 4000);
    for (uint64_t s = w->first_s; s < end_s; s++) {
        bool lost = random_below(w, 500) == 0;
        if ((s < down_s || s >= up_s) && !lost)
            record(w, s);
        if (s < check_s)
            continue;
        flush(w, s);
        check_all(w, s);
        check_s = s + 600 + random_below(w, 3000);
    }
    world_close(w);
    free(w);
}

static void a_step_has_a_value_exactly_where_something_was_recorded(void **unused)
{
    for (uint64_t seed = 1; seed <= 6; seed++)
        one_life(seed, seed % 2 ? keep_short : keep_usual);
}

/* memoird begins half an hour before a window of the coarsest tier ends. When that window is closed, the chart of the
 * last hour must still come from the seconds that are there. */
static void a_coarse_window_that_closes_does_not_empty_the_chart(void **unused)
{
    struct world *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    world_open(w, 1, keep_usual);
    w->first_s = T0 + 7200 - 1800;
    for (uint64_t s = w->first_s; s < T0 + 7200 + 300; s++)
        record(w, s);
    uint64_t now_s = T0 + 7200 + 299;
    flush(w, now_s);
    struct read_result result = ask(w, now_s, 3600, 720);
    assert_int_equal(result.step_s, 10); /* usual: 1, 2, 5, 10 ... */
    for (size_t i = 0; i < result.n_steps; i++)
        check_step(w, &result, i);
    read_release(&result);
    result = ask(w, now_s, 3600, 3700);
    assert_int_equal(result.step_s, 1);
    for (size_t i = 0; i < result.n_steps; i++)
        check_step(w, &result, i);
    read_release(&result);
    world_close(w);
    free(w);
}

/* What only minutes remain of is answered in minutes, whatever step was asked for. */
static void a_step_finer_than_what_is_kept_becomes_that_of_the_tier(void **unused)
{
    static const uint64_t asked[] = {1, 7, 10, 25, 60, 90}, got[] = {60, 60, 60, 60, 60, 120};
    struct world *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    world_open(w, 1, keep_short);
    w->first_s = T0 + 3000;
    for (uint64_t s = w->first_s; s < w->first_s + 5 * 3600; s++)
        record(w, s);
    uint64_t now_s = w->first_s + 5 * 3600;
    flush(w, now_s);
    for (size_t i = 0; i < sizeof(asked) / sizeof(*asked); i++) {
        struct read_query query = {.since_s = w->first_s,
                                   .until_s = w->first_s + 1200,
                                   .step_s = asked[i],
                                   .system = true};
        struct read_result result = {0};
        assert_int_equal(read_history(w->path, &query, &result), 0);
        assert_int_equal(result.step_s, got[i]);
        for (size_t k = 0; k < result.n_steps; k++)
            check_step(w, &result, k);
        read_release(&result);
    }
    world_close(w);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_coarse_window_that_closes_does_not_empty_the_chart),
        cmocka_unit_test(a_step_finer_than_what_is_kept_becomes_that_of_the_tier),
        cmocka_unit_test(a_step_has_a_value_exactly_where_something_was_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
