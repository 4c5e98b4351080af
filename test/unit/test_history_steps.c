/* The step of an answer, and which tier each step comes from, for files whose tiers have parts of their own. */
#include "history_file.h"

enum { T0 = FILE_T0 };

struct put {
    unsigned tier;
    int at_s; /* from T0 */
    uint64_t last, max;
};

struct expected {
    int at_s; /* start of the step, from T0 */
    uint64_t last, max;
    uint32_t offset_s;
};

struct steps_case {
    const char *name;
    struct put put[8];
    int since, until;
    uint64_t step, got_step;
    int from, to; /* of the answer */
    struct expected points[8];
};

#define END       \
    {             \
        .last = 0 \
    }
#define R FILE_RECENT

static const struct steps_case steps_cases[] = {
    {"seconds in steps of a second",
     {{0, 0, 5, 5}, {0, 1, 7, 7}, {0, 119, 9, 9}, {R, 120, 4, 4}},
     0,
     122,
     1,
     1,
     0,
     122,
     {{0, 5, 5, 0}, {1, 7, 7, 0}, {119, 9, 9, 0}, {120, 4, 4, 0}}},
    {"the last and the largest of a step, whichever came first",
     {{0, 10, 90, 90}, {0, 14, 20, 20}, {0, 25, 30, 30}, {0, 27, 80, 80}},
     0,
     30,
     10,
     10,
     0,
     30,
     {{10, 20, 90, 4}, {20, 80, 80, 7}}},
    {"both ends are moved to whole steps",
     {{0, 10, 1, 1}, {0, 19, 2, 2}, {0, 30, 3, 3}, {0, 40, 4, 4}},
     12,
     31,
     10,
     10,
     10,
     40,
     {{10, 2, 2, 9}, {30, 3, 3, 0}}},
    {"a point just before and one just after the time are out of it",
     {{0, 9, 1, 1}, {0, 10, 2, 2}, {0, 19, 3, 3}, {0, 20, 4, 4}},
     10,
     20,
     10,
     10,
     10,
     20,
     {{10, 3, 3, 9}}},
    {"so are those that are not closed yet",
     {{R, 9, 1, 1}, {R, 10, 2, 2}, {R, 19, 3, 3}, {R, 20, 4, 4}},
     10,
     20,
     10,
     10,
     10,
     20,
     {{10, 3, 3, 9}}},
    {"a window that ends before the time and one that begins after it",
     {{0, 119, 1, 1}, {0, 240, 2, 2}},
     120,
     240,
     1,
     1,
     120,
     240,
     {END}},
    {"rows that are not closed, of windows before, in and after the time",
     {{R, 119, 1, 1}, {R, 120, 2, 2}, {R, 239, 3, 3}, {R, 240, 4, 4}},
     120,
     240,
     10,
     10,
     120,
     240,
     {{120, 2, 2, 0}, {230, 3, 3, 9}}},
    {"only minutes are left: the step becomes a minute",
     {{2, 0, 5, 6}, {2, 60, 7, 9}},
     0,
     120,
     1,
     60,
     0,
     120,
     {{0, 5, 6, 0}, {60, 7, 9, 0}}},
    {"and a longer one a multiple of it",
     {{2, 0, 5, 6}, {2, 60, 7, 9}},
     0,
     200,
     90,
     120,
     0,
     240,
     {{0, 7, 9, 60}}},
    {"a multiple stays", {{2, 0, 5, 6}, {2, 60, 9, 9}}, 0, 120, 120, 120, 0, 120, {{0, 9, 9, 60}}},
    {"only tens are left",
     {{1, 0, 5, 6}, {1, 10, 7, 9}},
     0,
     20,
     1,
     10,
     0,
     20,
     {{0, 5, 6, 0}, {10, 7, 9, 0}}},
    {"of tens and minutes the coarser ones decide",
     {{2, 0, 5, 6}, {1, 7200, 7, 9}},
     0,
     7260,
     15,
     60,
     0,
     7260,
     {{0, 5, 6, 0}, {7200, 7, 9, 0}}},
    {"minutes out of the time coarsen nothing: they end where it begins",
     {{2, 60, 5, 6}, {R, 7200, 7, 7}},
     120,
     7210,
     10,
     10,
     120,
     7210,
     {{7200, 7, 7, 0}}},
    {"the minute in which it begins counts",
     {{2, 60, 5, 6}, {R, 7200, 7, 7}},
     119,
     7210,
     10,
     60,
     60,
     7260,
     {{60, 5, 6, 0}, {7200, 7, 7, 0}}},
    {"they begin where it ends",
     {{R, 0, 7, 7}, {2, 60, 5, 6}},
     0,
     60,
     10,
     10,
     0,
     60,
     {{0, 7, 7, 0}}},
    {"minutes that finer tiers have as well coarsen nothing",
     {{2, 6000, 50, 60}, {0, 6000, 7, 7}, {0, 6010, 8, 8}},
     6000,
     6020,
     10,
     10,
     6000,
     6020,
     {{6000, 7, 7, 0}, {6010, 8, 8, 0}}},
    {"nor do those that are only in rows not closed",
     {{2, 6000, 50, 60}, {R, 6000, 7, 7}},
     5900,
     6010,
     10,
     10,
     5900,
     6010,
     {{6000, 7, 7, 0}}},
    {"minutes before the first window of seconds do",
     {{2, 5940, 50, 60}, {2, 6000, 7, 8}, {0, 6000, 7, 7}},
     5900,
     6010,
     10,
     60,
     5880,
     6060,
     {{5940, 50, 60, 0}, {6000, 7, 8, 0}}},
    {"tens before the first window of seconds do",
     {{1, 5990, 50, 60}, {0, 6000, 7, 7}},
     5900,
     6010,
     5,
     10,
     5900,
     6010,
     {{5990, 50, 60, 0}, {6000, 7, 7, 0}}},
    {"where the coarse tier has it, it is read, and not the finer one",
     {{2, 0, 50, 60}, {1, 0, 7, 7}, {0, 0, 8, 8}},
     0,
     60,
     60,
     60,
     0,
     60,
     {{0, 50, 60, 0}}},
    {"where it has nothing yet, finer ones fill in",
     {{2, 7140, 1, 2}, {1, 7200, 3, 4}, {1, 8390, 5, 6}, {0, 8400, 7, 7}, {R, 8520, 9, 9}},
     7140,
     8580,
     60,
     60,
     7140,
     8580,
     {{7140, 1, 2, 0}, {7200, 3, 4, 0}, {8340, 5, 6, 50}, {8400, 7, 7, 0}, {8520, 9, 9, 0}}},
    {"a step longer than a window goes over several",
     {{0, 0, 9, 9}, {0, 150, 3, 3}, {0, 239, 4, 4}, {R, 240, 8, 8}},
     0,
     300,
     300,
     300,
     0,
     300,
     {{0, 8, 9, 240}}},
    {"where it has no more, finer ones fill in",
     {{0, 0, 9, 9}, {2, 7200, 3, 4}},
     0,
     7260,
     60,
     60,
     0,
     7260,
     {{0, 9, 9, 0}, {7200, 3, 4, 0}}},
    {"rows that are not closed, of several windows",
     {{R, 0, 9, 9}, {R, 120, 3, 3}, {R, 600, 4, 4}},
     0,
     720,
     60,
     60,
     0,
     720,
     {{0, 9, 9, 0}, {120, 3, 3, 0}, {600, 4, 4, 0}}},
    {"a hole between windows",
     {{0, 0, 9, 9}, {0, 600, 3, 3}},
     0,
     720,
     120,
     120,
     0,
     720,
     {{0, 9, 9, 0}, {600, 3, 3, 0}}},
};

static void check_points(const struct steps_case *c, const struct read_result *result)
{
    size_t n = 0;
    for (size_t i = 0; i < result->n_steps; i++) {
        const struct read_point *point =
            result->n_lines ? &result->lines[0].points[i] : &(struct read_point){0};
        const struct expected *e = &c->points[n];
        int at_s = (int)(result->since_s + i * result->step_s - T0);
        bool there = e->last && e->at_s == at_s;
        if (there != point->present)
            fail_msg("%s: step at %d: %s", c->name, at_s, there ? "no value" : "a value");
        if (!there)
            continue;
        if (point->last != e->last || point->max != e->max || point->offset_s != e->offset_s)
            fail_msg("%s: step at %d: %d, %d, %d", c->name, at_s, (int)point->last, (int)point->max,
                     (int)point->offset_s);
        n++;
    }
    if (c->points[n].last)
        fail_msg("%s: no step at %d", c->name, c->points[n].at_s);
}

/* The figures of a line are those of its points. */
static void check_line(const struct steps_case *c, const struct read_line *line)
{
    uint64_t min = UINT64_MAX, max = 0;
    const struct expected *e = c->points;
    for (; e->last; e++) {
        min = e->last < min ? e->last : min;
        max = e->max > max ? e->max : max;
    }
    assert_true(line->any);
    assert_int_equal(line->min, min);
    assert_int_equal(line->max, max);
    assert_int_equal(line->last, e[-1].last);
    assert_int_equal(line->last_s, T0 + (uint64_t)e[-1].at_s + e[-1].offset_s);
}

static void check_case(struct file *f, const struct steps_case *c)
{
    uint64_t step_s = 0;
    file_run(f, "DELETE FROM chunk0; DELETE FROM chunk1; DELETE FROM chunk2; DELETE FROM recent; "
                "DELETE FROM series; UPDATE tier SET closed=0");
    int64_t series = file_series(f, 0, 0, HISTORY_SYSTEM_USED, HISTORY_SYSTEM);
    for (const struct put *put = c->put; put->last; put++)
        file_put(f, put->tier, series, (uint64_t)(T0 + put->at_s), put->last, put->max);
    struct read_query query = {.since_s = (uint64_t)(T0 + c->since),
                               .until_s = (uint64_t)(T0 + c->until),
                               .step_s = c->step,
                               .system = true};
    struct read_result result = {0};
    assert_int_equal(read_history(f->path, &query, &result), 0);
    assert_int_equal(read_history_step(f->path, &query, &step_s), 0);
    if (result.step_s != c->got_step || step_s != c->got_step)
        fail_msg("%s: step %d and %d", c->name, (int)result.step_s, (int)step_s);
    if (result.since_s != (uint64_t)(T0 + c->from) || result.until_s != (uint64_t)(T0 + c->to))
        fail_msg("%s: from %d to %d", c->name, (int)(result.since_s - T0),
                 (int)(result.until_s - T0));
    assert_int_equal(result.n_steps, (c->to - c->from) / (int)c->got_step);
    assert_int_equal(result.n_lines, c->points[0].last != 0);
    assert_int_equal(result.damaged, 0);
    check_points(c, &result);
    if (result.n_lines)
        check_line(c, &result.lines[0]);
    read_release(&result);
    assert_null(result.lines);
}

static void steps_come_from_the_tier_that_has_them(void **state)
{
    for (size_t i = 0; i < sizeof(steps_cases) / sizeof(*steps_cases); i++)
        check_case(*state, &steps_cases[i]);
}

/* ---- what a file has ---- */

static struct read_result ask(struct file *f, struct read_query query)
{
    struct read_result result = {0};
    assert_int_equal(read_history(f->path, &query, &result), 0);
    return result;
}

static uint64_t oldest(struct file *f)
{
    struct read_result result =
        ask(f, (struct read_query){.since_s = T0, .until_s = T0 + 10, .step_s = 1});
    uint64_t oldest_s = result.oldest_s;
    read_release(&result);
    return oldest_s;
}

static void oldest_is_the_begin_of_the_oldest_window_of_any_tier(void **state)
{
    struct file *f = *state;
    assert_int_equal(oldest(f), 0);
    file_put(f, FILE_RECENT, 1, T0 + 250, 1, 1);
    assert_int_equal(oldest(f), T0 + 240);
    for (unsigned tier = 0; tier < HISTORY_TIERS; tier++) {
        file_put(f, tier, 1, T0 - 5, 1, 1);
        assert_int_equal(oldest(f), T0 - history_window_s(tier));
    }
    file_run(f, "DELETE FROM recent; DELETE FROM chunk1; DELETE FROM chunk2");
    assert_int_equal(oldest(f), T0 - 120);
    file_put(f, 2, 1, T0 + 7201, 1, 1);
    assert_int_equal(oldest(f), T0 - 120);
}

static int status_of(struct file *f)
{
    struct read_query query = {.since_s = T0, .until_s = T0 + 10, .step_s = 1, .system = true};
    struct read_result result = {0};
    uint64_t step_s;
    int r = read_history(f->path, &query, &result);
    assert_int_equal(read_history_step(f->path, &query, &step_s), r);
    if (r < 0)
        assert_null(result.lines);
    read_release(&result);
    return r;
}

static void a_tier_that_makes_no_sense_is_an_error(void **state)
{
    struct file *f = *state;
    assert_int_equal(status_of(f), 0);
    for (unsigned tier = 0; tier < HISTORY_TIERS; tier++) {
        static const struct {
            int64_t closed;
            int r;
        } cases[] = {{-1, -EBADMSG},
                     {INT64_MIN, -EBADMSG},
                     {(int64_t)WINDOW_MAX, -EBADMSG},
                     {(int64_t)WINDOW_MAX - 1, 0},
                     {0, 0}};
        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
            file_add(f, "UPDATE tier SET closed=%ld WHERE tier=%u", cases[i].closed, tier);
            assert_int_equal(status_of(f), cases[i].r);
        }
        file_add(f, "UPDATE tier SET step=step+1 WHERE tier=%u", tier);
        assert_int_equal(status_of(f), -EBADMSG);
        file_add(f, "UPDATE tier SET step=step-1 WHERE tier=%u", tier);
        assert_int_equal(status_of(f), 0);
    }
}

/* ---- damage ---- */

static uint64_t damaged(struct file *f, uint64_t step_s, uint64_t got_step_s)
{
    struct read_result result = ask(
        f,
        (struct read_query){.since_s = T0, .until_s = T0 + 7200, .step_s = step_s, .system = true});
    uint64_t n = result.damaged;
    assert_int_equal(result.step_s, got_step_s);
    read_release(&result);
    return n;
}

/* Whether the chunk is met while the step is chosen, while it is read, or both times. */
static void a_damaged_chunk_is_counted_once(void **state)
{
    struct file *f = *state;
    int64_t bad = file_series(f, 0, 0, HISTORY_SYSTEM_USED, HISTORY_SYSTEM);
    int64_t good = file_series(f, 0, 0, HISTORY_SYSTEM_SWAP, HISTORY_SYSTEM);
    file_put(f, 2, bad, T0, 1, 1);
    file_put(f, FILE_RECENT, good, T0 + 7190, 1, 1);
    assert_int_equal(damaged(f, 60, 60), 0);
    file_run(f, "UPDATE chunk2 SET data=x'ff'");
    assert_int_equal(damaged(f, 60, 60), 1);
    assert_int_equal(damaged(f, 1, 1), 1); /* what it had is unknown: it coarsens nothing */
    file_put(f, 2, good, T0, 5, 5);
    assert_int_equal(damaged(f, 60, 60), 1);
    assert_int_equal(damaged(f, 1, 60), 1);
    file_put(f, 1, bad, T0 + 1200, 5, 5);
    file_run(f, "UPDATE chunk1 SET data=x'ff'");
    file_run(f, "UPDATE recent SET data=x'ff'");
    assert_int_equal(damaged(f, 60, 60), 2); /* the row that is not closed */
    file_run(f, "DELETE FROM recent");
    assert_int_equal(damaged(f, 60, 60), 1); /* tens are not read where there are minutes */
    file_add(f, "DELETE FROM chunk2 WHERE id & 0xffffffff = %ld", good);
    assert_int_equal(damaged(f, 1, 1), 2); /* minutes before the tens, and tens */
    file_put(f, FILE_RECENT, good, T0 + 1200, 1, 1);
    assert_int_equal(damaged(f, 1, 1), 1); /* there is something finer in place of the tens */
    file_run(f, "DELETE FROM recent");
    file_put(f, 1, good, T0 + 2400, 1, 1);
    assert_int_equal(damaged(f, 1, 10), 2);
}

/* ---- limits ---- */

static int status(struct file *f, struct read_query query)
{
    struct read_result result = {0};
    int r = read_history(f->path, &query, &result);
    read_release(&result);
    return r;
}

static void answers_have_a_limit_in_steps_and_in_points(void **state)
{
    struct file *f = *state;
    struct read_query query = {.since_s = T0, .step_s = 1, .by = READ_BY_PROCESS};
    query.until_s = query.since_s + READ_STEPS_MAX;
    assert_int_equal(status(f, query), 0);
    query.until_s++;
    assert_int_equal(status(f, query), -E2BIG);
    query.until_s--;
    for (int i = 0; i < READ_POINTS_MAX / READ_STEPS_MAX; i++)
        file_series(f, file_process(f, (struct file_process){.pid = 100 + i}), 0, 0, HISTORY_RSS);
    assert_int_equal(status(f, query), 0);
    file_series(f, file_process(f, (struct file_process){.pid = 99}), 0, 0, HISTORY_RSS);
    assert_int_equal(status(f, query), -E2BIG);
    query.until_s -= READ_STEPS_MAX / 2;
    assert_int_equal(status(f, query), 0);
}

static void times_make_sense(void **state)
{
    static const struct {
        uint64_t since, until, step;
        int r;
    } cases[] = {
        {T0, T0, 1, -EINVAL},
        {T0 + 1, T0, 1, -EINVAL},
        {T0, T0 + 1, 0, -EINVAL},
        {T0, T0 + 1, 1, 0},
        {0, 1, 1, 0},
        {UINT64_MAX - 2, UINT64_MAX - 1, 1, 0},
        {UINT64_MAX - 2, UINT64_MAX, 1, -EINVAL},
        {UINT64_MAX - 20, UINT64_MAX - 10, 10, 0},
        {UINT64_MAX - 20, UINT64_MAX - 9, 10, -EINVAL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct read_query query = {
            .since_s = cases[i].since, .until_s = cases[i].until, .step_s = cases[i].step};
        assert_int_equal(status(*state, query), cases[i].r);
        uint64_t step_s = 0;
        if (cases[i].until < T0 + 10)
            assert_int_equal(read_history_step(((struct file *)*state)->path, &query, &step_s),
                             cases[i].r);
    }
}

static void usual_steps_are_the_shortest_that_fit(void **unused)
{
    static const uint64_t usual[] = {1,   2,   5,    10,   20,   30,    60,    120,  300,
                                     600, 900, 1800, 3600, 7200, 14400, 43200, 86400};
    for (size_t i = 0; i < sizeof(usual) / sizeof(*usual); i++) {
        assert_int_equal(read_step(usual[i] * 100, 100), usual[i]);
        if (i > 0)
            assert_int_equal(read_step(usual[i - 1] * 100 + 1, 100), usual[i]);
        assert_int_equal(read_step(usual[i] * 99 + 1, 100),
                         i > 0 && usual[i - 1] * 100 > usual[i] * 99 ? usual[i - 1] : usual[i]);
    }
    assert_int_equal(read_step(UINT64_C(8640001), 100), 2 * 86400);
    assert_int_equal(read_step(UINT64_C(2) * 8640000, 100), 2 * 86400);
    assert_int_equal(read_step(UINT64_C(2) * 8640000 + 1, 100), 3 * 86400);
    assert_int_equal(read_step(100000, 0), 2 * 86400);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, file_setup, file_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(steps_come_from_the_tier_that_has_them),
        TEST(oldest_is_the_begin_of_the_oldest_window_of_any_tier),
        TEST(a_tier_that_makes_no_sense_is_an_error),
        TEST(a_damaged_chunk_is_counted_once),
        TEST(answers_have_a_limit_in_steps_and_in_points),
        TEST(times_make_sense),
        cmocka_unit_test(usual_steps_are_the_shortest_that_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
