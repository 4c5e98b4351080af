/* Bars: honest at both ends, stacked without gaps, in Unicode and in ASCII. */
#include "cli/bar.h"

#include <locale.h>
#include <string.h>

#include "base/buffer.h"
#include "check.h"

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

static const char *bar(const struct term *term, uint64_t used, uint64_t capacity, unsigned columns)
{
    buffer_reset(&out);
    bar_append(term, &out, used, capacity, columns);
    return buffer_string(&out);
}

static void bars_show_the_share(void **unused)
{
    assert_string_equal(bar(&ascii, 0, 100, 10), "..........");
    assert_string_equal(bar(&ascii, 50, 100, 10), "#####.....");
    assert_string_equal(bar(&ascii, 100, 100, 10), "##########");
    assert_string_equal(bar(&utf8, 50, 100, 4), "██░░");
    assert_string_equal(bar(&utf8, 9, 32, 4), "█▏░░");
}

static void what_is_used_is_seen_and_what_is_not_full_is_not_full(void **unused)
{
    assert_string_equal(bar(&ascii, 1, UINT64_MAX, 10), "#.........");
    assert_string_equal(bar(&ascii, UINT64_MAX - 1, UINT64_MAX, 10), "#########.");
    assert_string_equal(bar(&ascii, 9999, 10000, 10), "#########.");
    assert_string_equal(bar(&utf8, 1, 100000, 3), "▏░░");
    assert_string_equal(bar(&utf8, 99999, 100000, 3), "██▉");
    assert_string_equal(bar(&ascii, 300, 100, 10), "##########");
}

static void every_bar_has_its_width(void **unused)
{
    for (unsigned columns = 1; columns < 40; columns++)
        for (uint64_t used = 0; used <= 200; used++) {
            assert_int_equal(term_columns(&utf8, bar(&utf8, used, 150, columns)), columns);
            assert_int_equal(strlen(bar(&ascii, used, 150, columns)), columns);
        }
}

static void styles_change_at_75_and_90_percent(void **unused)
{
    assert_int_equal(bar_style(7499, 10000), STYLE_GOOD);
    assert_int_equal(bar_style(7500, 10000), STYLE_WARN);
    assert_int_equal(bar_style(8999, 10000), STYLE_WARN);
    assert_int_equal(bar_style(9000, 10000), STYLE_BAD);
    assert_int_equal(bar_style(20000, 10000), STYLE_BAD);
    assert_int_equal(bar_style(5, 0), STYLE_PLAIN);
}

static void percents_do_not_claim_what_is_not(void **unused)
{
    char text[BAR_PERCENT_MAX];
    assert_string_equal(bar_percent(text, 0, 100), "0.0 %");
    assert_string_equal(bar_percent(text, 1, 1000000), "<0.1 %");
    assert_string_equal(bar_percent(text, 664, 1000), "66.4 %");
    assert_string_equal(bar_percent(text, 999999, 1000000), "99.9 %");
    assert_string_equal(bar_percent(text, 100, 100), "100.0 %");
    assert_string_equal(bar_percent(text, 150, 100), "150.0 %");
    assert_string_equal(bar_percent(text, 5, 0), "-");
}

static void stacks_have_no_gap_and_the_length_of_the_sum(void **unused)
{
    struct bar_part parts[3] = {{.value = 30}, {.value = 20}, {.value = 10}};
    bar_divide(parts, 3, 100, 20);
    buffer_reset(&out);
    bar_append_stack(&ascii, &out, parts, 3, 100, 20);
    assert_string_equal(buffer_string(&out), "######====++........");
    for (unsigned columns = 1; columns < 50; columns++) {
        struct bar_part odd[4] = {{.value = 1}, {.value = 70}, {.value = 0}, {.value = 13}};
        bar_divide(odd, 4, 100, columns);
        unsigned at = 0;
        for (int i = 0; i < 4; i++) {
            assert_int_equal(odd[i].start, at);
            at += odd[i].cells;
        }
        buffer_reset(&out);
        bar_append_stack(&ascii, &out, odd, 4, 100, columns);
        assert_int_equal(out.len, columns);
    }
}

static void parts_stand_where_they_are_in_the_stack(void **unused)
{
    struct bar_part parts[3] = {{.value = 300}, {.value = 200}, {.value = 1}};
    bar_divide(parts, 3, 1000, 20);
    buffer_reset(&out);
    bar_append_part(&ascii, &out, parts, 1, 20);
    assert_string_equal(buffer_string(&out), "      ====");
    buffer_reset(&out);
    bar_append_part(&ascii, &out, parts, 2, 20);
    assert_string_equal(buffer_string(&out), "          '");
}

static void styles_end_where_they_began(void **unused)
{
    struct term color = {.color = true};
    assert_string_equal(bar(&color, 95, 100, 4), "\033[1;31m###\033[0m\033[2m.\033[0m");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bars_show_the_share),
        cmocka_unit_test(what_is_used_is_seen_and_what_is_not_full_is_not_full),
        cmocka_unit_test(every_bar_has_its_width),
        cmocka_unit_test(styles_change_at_75_and_90_percent),
        cmocka_unit_test(percents_do_not_claim_what_is_not),
        cmocka_unit_test(stacks_have_no_gap_and_the_length_of_the_sum),
        cmocka_unit_test(parts_stand_where_they_are_in_the_stack),
        cmocka_unit_test(styles_end_where_they_began),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
