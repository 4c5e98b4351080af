/* Tables as text, CSV and JSON. */
#include "cli/table.h"

#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "check.h"

enum { ID, NAME, BYTES, AGE, TIME, NOTE, SECRET, SURE };

static const struct column columns[] = {
    [ID] = {"id", "ID", "h", COLUMN_NUMBER},
    [NAME] = {"name", "NAME", "h", COLUMN_TEXT, COLUMN_STRETCH},
    [BYTES] = {"live_bytes", "LIVE", "h", COLUMN_BYTES},
    [AGE] = {"age_seconds", "AGE", "h", COLUMN_AGE, 0, 9},
    [TIME] = {"started", NULL, "h", COLUMN_TIME, COLUMN_EXPORT_ONLY},
    [NOTE] = {"note", "NOTE", "h", COLUMN_TEXT, COLUMN_HIDE_EMPTY},
    [SECRET] = {"secret", NULL, "h", COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    [SURE] = {"sure", "SURE", "h", COLUMN_YES, COLUMN_HIDE_EMPTY},
    {0},
};

static struct table table;
static struct buffer out;

static int setup(void **unused)
{
    setlocale(LC_CTYPE, "C.UTF-8");
    table_init(&table, columns);
    buffer_init(&out, 1 << 20);
    return 0;
}

static int teardown(void **unused)
{
    table_release(&table);
    buffer_release(&out);
    return 0;
}

static void add(uint64_t id, const char *name, uint64_t bytes)
{
    table_row(&table);
    table_set_number(&table, ID, id);
    table_set_text(&table, NAME, name);
    table_set_number(&table, BYTES, bytes);
}

static const char *printed(unsigned width)
{
    struct term term = {.utf8 = true, .width = width};
    struct table_layout layout = {.header = true};
    buffer_reset(&out);
    assert_int_equal(table_print(&table, &layout, &term, &out), 0);
    return buffer_string(&out);
}

static void columns_align_and_absent_values_are_dashes(void **unused)
{
    add(7, "a", 25500000);
    add(123456, "longer", 0);
    table_row(&table);
    assert_string_equal(printed(0), "    ID  NAME       LIVE  AGE\n"
                                    "     7  a       25.5 MB    -\n"
                                    "123456  longer      0 B    -\n"
                                    "     -  -             -    -\n");
}

static void ages_are_told_in_whole_seconds(void **unused)
{
    static const struct {
        uint64_t ns;
        const char *text;
    } cases[] = {
        {0, "0s"},
        {999 * NS_PER_MS, "0s"},
        {59 * NS_PER_S, "59s"},
        {252 * NS_PER_S, "4m12s"},
        {5 * 3600 * NS_PER_S, "5h"},
    };
    add(1, "a", 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        table_set_number(&table, AGE, cases[i].ns);
        assert_non_null(strstr(printed(0), cases[i].text));
    }
}

static void wide_characters_keep_the_columns_aligned(void **unused)
{
    add(1, "日本", 1);
    add(2, "é", 1); /* one letter and a combining accent */
    assert_string_equal(printed(0), "ID  NAME  LIVE  AGE\n"
                                    " 1  日本   1 B    -\n"
                                    " 2  é      1 B    -\n");
}

static void long_text_is_cut_where_room_is_short(void **unused)
{
    add(1, "a-very-long-name-of-a-program", 1000000);
    assert_string_equal(printed(34), "ID  NAME                 LIVE  AGE\n"
                                     " 1  a-very-long-name…  1.0 MB    -\n");
}

static void columns_give_way_by_rank(void **unused)
{
    add(1, "a-very-long-name-of-a-program", 1000000);
    table_set_number(&table, AGE, NS_PER_S);
    /* AGE has a rank, the others stay. */
    assert_string_equal(printed(24), "ID  NAME            LIVE\n"
                                     " 1  a-very-long…  1.0 MB\n");
}

static void columns_are_hidden_or_shown_as_they_say(void **unused)
{
    add(1, "a", 1);
    table_set_text(&table, NOTE, "");
    table_set_number(&table, SECRET, 5);
    assert_null(strstr(printed(0), "NOTE"));
    table_set_text(&table, NOTE, "!");
    assert_non_null(strstr(printed(0), "NOTE"));
    assert_null(strstr(printed(0), "5"));
}

static void control_characters_never_reach_the_terminal(void **unused)
{
    add(1, "\033[31mred\n\x7f\xff\xc2\x9b\xe2\x80\xae",
        1); /* CSI of 8 bits, right-to-left override */
    const char *text = printed(0);
    assert_non_null(strstr(text, "?[31mred?????"));
    assert_null(strchr(text, '\033'));
    assert_null(strstr(text, "\xc2\x9b"));

    struct table_layout layout = {.header = false};
    buffer_reset(&out);
    assert_int_equal(table_print_csv(&table, &layout, &out), 0);
    assert_null(strchr(buffer_string(&out), '\033'));
    assert_null(strstr(buffer_string(&out), "\xc2\x9b"));
    assert_null(strstr(buffer_string(&out), "\xe2\x80\xae"));
}

static void without_utf8_only_ascii_is_printed(void **unused)
{
    struct term term = {.utf8 = false, .width = 30};
    struct table_layout layout = {.header = false};
    add(1, "日本-and-more-and-more-and-more", 1);
    assert_int_equal(table_print(&table, &layout, &term, &out), 0);
    for (const char *p = buffer_string(&out); *p; p++)
        assert_true((unsigned char)*p < 0x80);
}

static void styles_take_no_room(void **unused)
{
    struct term term = {.utf8 = true, .color = true};
    struct table_layout layout = {.header = false};
    add(1, "a", 1);
    table_set_style(&table, NAME, STYLE_BAD);
    add(2, "bb", 1);
    assert_int_equal(table_print(&table, &layout, &term, &out), 0);
    assert_string_equal(buffer_string(&out), "1  \033[1;31ma\033[0m   1 B  -\n2  bb  1 B  -\n");
}

static void figures_that_are_not_exact_are_marked(void **unused)
{
    struct term term = {.utf8 = true};
    struct table_layout layout = {0};
    add(1, "a", 25500000);
    table_set_marks(&table, BYTES, TABLE_MARK_ESTIMATE);
    table_set_number(&table, SURE, 0);
    add(2, "b", 25500000);
    table_set_marks(&table, BYTES, TABLE_MARK_AT_LEAST);
    table_set_number(&table, SURE, 1);
    add(3, "c", 25500000);
    assert_int_equal(table_print(&table, &layout, &term, &out), 0);
    assert_string_equal(buffer_string(&out), "1  a  ~25.5 MB  -   no\n"
                                             "2  b  25.5 MB+  -  yes\n"
                                             "3  c   25.5 MB  -    -\n");
}

static void csv_follows_rfc_4180(void **unused)
{
    struct table_layout layout = {.header = true};
    add(1, "plain", 10);
    table_set_number(&table, AGE, 1500 * NS_PER_MS);
    table_set_number(&table, TIME, UINT64_C(1767225600) * NS_PER_S + 123 * NS_PER_MS);
    table_set_number(&table, SURE, 1);
    add(2, "comma, \"quote\"\r\nline", 20);
    assert_int_equal(table_print_csv(&table, &layout, &out), 0);
    assert_string_equal(buffer_string(&out),
                        "id,name,live_bytes,age_seconds,started,note,secret,sure\r\n"
                        "1,plain,10,1.500,2026-01-01T00:00:00.123Z,,,true\r\n"
                        "2,\"comma, \"\"quote\"\"??line\",20,,,,,\r\n");
}

static void json_has_null_for_what_is_not_known(void **unused)
{
    struct json json;
    add(1, "\"x\"", 10);
    table_set_number(&table, AGE, 1500 * NS_PER_MS);
    table_set_number(&table, SURE, 0);
    json_init(&json, &out);
    json_object_begin(&json);
    table_json_row(&table, 0, 0, &json);
    json_object_end(&json);
    assert_int_equal(json_finish(&json), 0);
    assert_string_equal(buffer_string(&out),
                        "{\"id\":1,\"name\":\"\\\"x\\\"\",\"live_bytes\":10,\"age_seconds\":1.5,"
                        "\"started\":null,\"note\":null,\"secret\":null,\"sure\":false}");
}

static void sorting_puts_large_first_and_absent_last(void **unused)
{
    static const struct {
        const char *key;
        size_t order[4];
    } cases[] = {
        {"live_bytes", {1, 0, 2, 3}}, {"LIVE", {1, 0, 2, 3}}, {"+live", {2, 0, 1, 3}},
        {"-live", {1, 0, 2, 3}},      {"name", {2, 1, 0, 3}}, {"-name", {0, 1, 2, 3}},
    };
    add(1, "c", 10);
    add(2, "b", 30);
    add(3, "a", 5);
    table_row(&table);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct table_sort sort;
        size_t *order = NULL;
        assert_int_equal(table_sort_parse(columns, cases[i].key, &sort), 0);
        assert_int_equal(table_sort(&table, &sort, &order), 0);
        assert_memory_equal(order, cases[i].order, sizeof(cases[i].order));
        free(order);
    }
    struct table_sort sort;
    assert_int_equal(table_sort_parse(columns, "nothing", &sort), -ENOENT);
    assert_int_equal(table_sort_parse(columns, "-", &sort), -ENOENT);
    assert_int_equal(table_sort_parse(columns, "", &sort), -ENOENT);
}

static const struct column change_columns[] = {
    {"blocks_change", "BLOCKS", "h", COLUMN_CHANGE},
    {"bytes_change", "BYTES", "h", COLUMN_CHANGE_BYTES},
    {0},
};

static void changes_have_a_sign(void **unused)
{
    static const int64_t changes[] = {-25500000, 7, 0, INT64_MIN};
    struct term term = {.utf8 = true};
    struct table_layout layout = {.header = false};
    struct table t;
    table_init(&t, change_columns);
    for (size_t i = 0; i < 4; i++) {
        table_row(&t);
        table_set_change(&t, 0, changes[i]);
        table_set_change(&t, 1, changes[i]);
    }
    assert_int_equal(table_print(&t, &layout, &term, &out), 0);
    assert_non_null(strstr(buffer_string(&out), "-25500000  -25.5 MB\n"));
    assert_non_null(strstr(buffer_string(&out), " +7      +7 B\n"));
    assert_non_null(strstr(buffer_string(&out), " 0       0 B\n"));
    assert_non_null(strstr(buffer_string(&out), "-9223372036854775808   -9.2 EB\n"));
    buffer_reset(&out);
    assert_int_equal(table_print_csv(&t, &layout, &out), 0);
    assert_string_equal(buffer_string(&out), "-25500000,-25500000\r\n7,7\r\n0,0\r\n"
                                             "-9223372036854775808,-9223372036854775808\r\n");
    buffer_reset(&out);
    struct json json;
    json_init(&json, &out);
    json_object_begin(&json);
    table_json_row(&t, 0, 0, &json);
    json_object_end(&json);
    assert_int_equal(json_finish(&json), 0);
    assert_string_equal(buffer_string(&out),
                        "{\"blocks_change\":-25500000,\"bytes_change\":-25500000}");
    struct table_sort sort = {.column = 0, .descending = true};
    static const size_t expected[] = {1, 2, 0, 3};
    size_t *order = NULL;
    assert_int_equal(table_sort(&t, &sort, &order), 0);
    assert_memory_equal(order, expected, sizeof(expected));
    free(order);
    table_release(&t);
}

static const struct column rate_columns[] = {
    {"growth_blocks", "BLOCKS", "h", COLUMN_RATE},
    {"growth", "GROWTH", "h", COLUMN_RATE_BYTES},
    {0},
};

static void rates_are_a_second(void **unused)
{
    static const int64_t rates[] = {-25500000, 7, 0};
    struct term term = {.utf8 = true};
    struct table_layout layout = {.header = false};
    struct table t;
    table_init(&t, rate_columns);
    for (size_t i = 0; i < 3; i++) {
        table_row(&t);
        table_set_change(&t, 0, rates[i]);
        table_set_change(&t, 1, rates[i]);
    }
    assert_int_equal(table_print(&t, &layout, &term, &out), 0);
    assert_non_null(strstr(buffer_string(&out), "-25500000/s  -25.5 MB/s\n"));
    assert_non_null(strstr(buffer_string(&out), " +7/s      +7 B/s\n"));
    assert_non_null(strstr(buffer_string(&out), " 0         0 B\n"));
    buffer_reset(&out);
    assert_int_equal(table_print_csv(&t, &layout, &out), 0);
    assert_string_equal(buffer_string(&out), "-25500000,-25500000\r\n7,7\r\n0,0\r\n");
    table_release(&t);
}

static const struct column wide_columns[] = {
    {"other", "OTHER", "h", COLUMN_TEXT, COLUMN_STRETCH, 9},
    {"site", "SITE", "h", COLUMN_TEXT, COLUMN_STRETCH | COLUMN_WIDE},
    {0},
};

static void a_line_of_code_stays_while_others_can_go(void **unused)
{
    struct term term = {.utf8 = true, .width = 40};
    struct table_layout layout = {.header = false};
    struct table t;
    table_init(&t, wide_columns);
    table_row(&t);
    table_set_text(&t, 0, "something else");
    table_set_text(&t, 1, "a_function_of_some_length file.c:1234");
    assert_int_equal(table_print(&t, &layout, &term, &out), 0);
    assert_string_equal(buffer_string(&out), "a_function_of_some_length file.c:1234\n");
    table_release(&t);
}

static void prose_is_wrapped_and_verbatim_lines_stay(void **unused)
{
    term_wrap(&out, "one two three four\nfive\n\n  as   it is\nsix", 2, 12);
    assert_string_equal(buffer_string(&out), "  one two\n  three four\n  five\n\n"
                                             "    as   it is\n  six\n");
}

static void a_figure_stays_with_its_unit(void **unused)
{
    term_wrap(&out, "it has 12 kB, 3 kBs and 4 words", 0, 11);
    assert_string_equal(buffer_string(&out), "it has\n12 kB, 3\nkBs and 4\nwords\n");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* A terminal has little room; what is written into a file may be read on another day. */
static void times_of_this_day_go_without_their_date_on_a_terminal(void **unused)
{
    static const struct column times[] = {{"time", "TIME", "h", COLUMN_TIME}, {0}};
    struct table t;
    struct term term = {.width = 80};
    struct table_layout layout = {0};
    time_t now = (time_t)(clock_real_ns() / NS_PER_S);
    struct tm tm;
    assert_non_null(localtime_r(&now, &tm));
    uint64_t noon_s = (uint64_t)(now - tm.tm_hour * 3600 - tm.tm_min * 60 - tm.tm_sec) + 12 * 3600;
    for (int day = 0; day < 2; day++) { /* the second time one row is of yesterday */
        for (int width = 0; width <= 80; width += 80) {
            term.width = (unsigned)width;
            table_init(&t, times);
            for (int row = 0; row < 2; row++) {
                table_row(&t);
                table_set_number(&t, 0, (noon_s - (row && day ? 86400 : 0)) * NS_PER_S);
            }
            buffer_reset(&out);
            assert_int_equal(table_print(&t, &layout, &term, &out), 0);
            bool with_date = strchr(buffer_string(&out), '-') != NULL;
            assert_int_equal(with_date, width == 0 || day == 1);
            table_release(&t);
        }
    }
}

static void exact_ages_are_exported_to_the_nanosecond(void **unused)
{
    static const struct column ages[] = {
        {"usual", "A", "h", COLUMN_AGE}, {"exact", "B", "h", COLUMN_AGE, COLUMN_EXACT}, {0}};
    struct table t;
    struct table_layout layout = {0};
    struct json json;
    table_init(&t, ages);
    table_row(&t);
    table_set_number(&t, 0, 1500000001);
    table_set_number(&t, 1, 1500000001);
    buffer_reset(&out);
    assert_int_equal(table_print_csv(&t, &layout, &out), 0);
    assert_string_equal(buffer_string(&out), "1.500,1.500000001\r\n");
    buffer_reset(&out);
    json_init(&json, &out);
    json_object_begin(&json);
    table_json_row(&t, 0, 0, &json);
    json_object_end(&json);
    assert_string_equal(buffer_string(&out), "{\"usual\":1.5,\"exact\":1.500000001}");
    table_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(columns_align_and_absent_values_are_dashes),
        TEST(ages_are_told_in_whole_seconds),
        TEST(wide_characters_keep_the_columns_aligned),
        TEST(long_text_is_cut_where_room_is_short),
        TEST(columns_give_way_by_rank),
        TEST(columns_are_hidden_or_shown_as_they_say),
        TEST(control_characters_never_reach_the_terminal),
        TEST(without_utf8_only_ascii_is_printed),
        TEST(styles_take_no_room),
        TEST(figures_that_are_not_exact_are_marked),
        TEST(csv_follows_rfc_4180),
        TEST(json_has_null_for_what_is_not_known),
        TEST(sorting_puts_large_first_and_absent_last),
        TEST(changes_have_a_sign),
        TEST(rates_are_a_second),
        TEST(a_line_of_code_stays_while_others_can_go),
        TEST(prose_is_wrapped_and_verbatim_lines_stay),
        TEST(a_figure_stays_with_its_unit),
        TEST(times_of_this_day_go_without_their_date_on_a_terminal),
        TEST(exact_ages_are_exported_to_the_nanosecond),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
