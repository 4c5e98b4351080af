/* Charts, and the figures that they are drawn from. */
#include "cli/chart.h"

#include <locale.h>
#include <string.h>

#include "base/buffer.h"
#include "check.h"
#include "cli/samples.h"

static struct buffer out;
static const struct term ascii = {.width = 80};
static const struct term utf8 = {.width = 80, .utf8 = true};

static int setup(void **unused)
{
    setlocale(LC_CTYPE, "C.UTF-8");
    buffer_init(&out, 1 << 16);
    return 0;
}

static int teardown(void **unused)
{
    buffer_release(&out);
    return 0;
}

static const char *row_of(const struct term *term, const double *points, unsigned columns,
                          unsigned rows, unsigned row)
{
    buffer_reset(&out);
    chart_append_row(term, &out, points, columns, rows, row);
    return buffer_string(&out);
}

static void braille_has_two_points_a_column_and_four_dots_a_row(void **unused)
{
    const double points[] = {0, 0.25, 0.5, 0.75, 1, 1, -1, 0};
    assert_string_equal(row_of(&utf8, points, 4, 1, 0), "⢀⣴⣿ ");
    assert_int_equal(chart_density(&utf8), 2);
}

static void rows_stand_on_each_other(void **unused)
{
    const double points[] = {0.5, 1, 0.75, 0.25};
    assert_string_equal(row_of(&utf8, points, 2, 2, 0), "⢸⡄");
    assert_string_equal(row_of(&utf8, points, 2, 2, 1), "⣿⣧");
}

static void ascii_has_one_point_a_column(void **unused)
{
    const double points[] = {0, 0.25, 0.5, 0.75, 1};
    assert_string_equal(row_of(&ascii, points, 5, 2, 0), "   .#");
    assert_string_equal(row_of(&ascii, points, 5, 2, 1), " .###");
    assert_int_equal(chart_density(&ascii), 1);
}

static void what_is_not_zero_shows_and_too_much_is_cut(void **unused)
{
    const double points[] = {0.0001, 7, -1};
    assert_string_equal(row_of(&ascii, points, 3, 1, 0), ".# ");
}

/* ---- samples ---- */

static void points_end_with_the_newest(void **unused)
{
    struct samples s = {0};
    for (uint64_t i = 1; i <= 5; i++) {
        samples_begin(&s);
        samples_put(&s, "a", i * 10, 100);
    }
    double points[7];
    samples_points(&s, samples_find(&s, "a"), 1, points, 7);
    const double wanted[7] = {-1, -1, 10, 20, 30, 40, 50};
    for (int i = 0; i < 7; i++)
        assert_true(points[i] == wanted[i]);
    samples_release(&s);
}

static void gaps_stay_gaps(void **unused)
{
    struct samples s = {0};
    for (uint64_t i = 1; i <= 4; i++) {
        samples_begin(&s);
        if (i != 3)
            samples_put(&s, "a", i, 0);
    }
    double points[4];
    samples_points(&s, samples_find(&s, "a"), 1, points, 4);
    assert_true(points[1] == 2 && points[2] < 0 && points[3] == 4);
    assert_null(samples_find(&s, "b"));
    samples_release(&s);
}

/* A peak must not jump from point to point while time goes on. */
static void a_point_is_the_most_of_its_looks_and_keeps_them(void **unused)
{
    struct samples s = {0};
    double before[3] = {0}, points[3];
    for (uint64_t i = 1; i <= 9; i++) {
        samples_begin(&s);
        samples_put(&s, "a", i == 4 ? 99 : i, 0);
        samples_points(&s, samples_find(&s, "a"), 3, points, 3); /* looks 0-2, 3-5, 6-8 ... */
        if (i == 5)
            memcpy(before, points, sizeof(before));
    }
    assert_true(before[2] == 99 && before[1] == 2);
    assert_true(points[0] == 99 && points[1] == 8 && points[2] == 9);
    samples_release(&s);
}

static void an_hour_is_kept_and_no_more(void **unused)
{
    struct samples s = {0};
    static double points[SAMPLES_KEPT + 10];
    for (uint64_t i = 1; i <= SAMPLES_KEPT + 100; i++) {
        samples_begin(&s);
        samples_put(&s, "a", i, 0);
    }
    samples_points(&s, samples_find(&s, "a"), 1, points, SAMPLES_KEPT + 10);
    assert_true(points[9] < 0 && points[10] == 101);
    assert_true(points[SAMPLES_KEPT + 9] == SAMPLES_KEPT + 100);
    samples_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(braille_has_two_points_a_column_and_four_dots_a_row),
        cmocka_unit_test(rows_stand_on_each_other),
        cmocka_unit_test(ascii_has_one_point_a_column),
        cmocka_unit_test(what_is_not_zero_shows_and_too_much_is_cut),
        cmocka_unit_test(points_end_with_the_newest),
        cmocka_unit_test(gaps_stay_gaps),
        cmocka_unit_test(a_point_is_the_most_of_its_looks_and_keeps_them),
        cmocka_unit_test(an_hour_is_kept_and_no_more),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
