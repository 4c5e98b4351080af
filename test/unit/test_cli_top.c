/* The rows of `memoir top`: filter, order, tree, columns; and the line that is typed. */
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "check.h"
#include "cli/top_columns.h"
#include "cli/top_rows.h"
#include "cli/tui.h"
#include "cli/tui_input.h"
#include "ledger/host.h"

enum { ROWS_MAX = 64 };

static struct top_row storage[ROWS_MAX];
static size_t order[ROWS_MAX];
static struct top_rows rows;
static struct top_wish wish;

static int setup(void **unused)
{
    setlocale(LC_CTYPE, "C.UTF-8");
    memset(storage, 0, sizeof(storage));
    rows = (struct top_rows){.rows = storage, .order = order, .room = ROWS_MAX, .looks = 1};
    wish = (struct top_wish){.sort = TOP_COLUMN_RSS};
    return 0;
}

/* Rows come by pid. A negative rss is not known. */
static struct top_row *add(pid_t pid, pid_t parent, const char *name, int64_t rss)
{
    struct top_row *row = &storage[rows.n++];
    *row = (struct top_row){
        .pid = pid,
        .parent = parent,
        .start_ticks = (uint64_t)pid,
        .has_uid = true,
        .user = "ann",
        .name = name,
        .command = "",
        .state = 'S',
    };
    if (rss >= 0) {
        row->own.known = 1u << TOP_RSS;
        row->own.value[TOP_RSS] = rss;
    }
    return row;
}

/* "3 1 2": the pids in the order shown. */
static const char *shown(void)
{
    static char text[512];
    size_t len = 0;
    text[0] = '\0';
    assert_int_equal(top_arrange(&rows, &wish), 0);
    for (size_t i = 0; i < rows.shown; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%d", i ? " " : "",
                                (int)rows.rows[rows.order[i]].pid);
    return text;
}

static const struct top_row *row(pid_t pid)
{
    for (size_t i = 0; i < rows.n; i++)
        if (storage[i].pid == pid)
            return &storage[i];
    fail();
    return NULL;
}

/* ---- order ---- */

static void large_ones_come_first_and_equal_ones_stay_by_pid(void **unused)
{
    add(1, 0, "a", 10);
    add(2, 0, "b", 30);
    add(3, 0, "c", 10);
    add(4, 0, "d", 20);
    add(5, 0, "e", 10);
    assert_string_equal(shown(), "2 4 1 3 5");
    wish.ascending = true;
    assert_string_equal(shown(), "1 3 5 4 2");
}

static void what_is_not_known_comes_last_in_either_order(void **unused)
{
    add(1, 0, "a", -1);
    add(2, 0, "b", 0);
    add(3, 0, "c", 5);
    assert_string_equal(shown(), "3 2 1");
    wish.ascending = true;
    assert_string_equal(shown(), "2 3 1");
    wish.sort = TOP_COLUMN_JOB; /* nobody has one: the larger first */
    assert_string_equal(shown(), "3 2 1");
}

static void rates_are_sorted_with_their_sign(void **unused)
{
    static const int64_t rates[] = {-500, 20, 0, -1};
    for (int i = 0; i < 4; i++) {
        struct top_row *r = add(i + 1, 0, "x", 1);
        r->own.known |= 1u << TOP_RATE_10S;
        r->own.value[TOP_RATE_10S] = rates[i];
    }
    wish.sort = TOP_COLUMN_RATE_10S;
    assert_string_equal(shown(), "2 3 4 1");
}

static void names_are_sorted_whatever_their_case(void **unused)
{
    add(1, 0, "beta", 1);
    add(2, 0, "Alpha", 1);
    add(3, 0, "gamma", 1);
    wish.sort = TOP_COLUMN_PROGRAM;
    wish.ascending = top_column_ascends(TOP_COLUMN_PROGRAM);
    assert_string_equal(shown(), "2 1 3");
    wish.ascending = false;
    assert_string_equal(shown(), "3 1 2");
}

/* ---- filter ---- */

static void a_filter_looks_at_program_user_command_and_pid(void **unused)
{
    add(1234, 0, "server", 1)->user = "bob";
    add(2000, 0, "worker", 2)->command = "worker --of Server 7";
    add(3000, 0, "other", 3);
    snprintf(wish.filter, sizeof(wish.filter), "SERVER");
    assert_string_equal(shown(), "2000 1234");
    snprintf(wish.filter, sizeof(wish.filter), "bo");
    assert_string_equal(shown(), "1234");
    snprintf(wish.filter, sizeof(wish.filter), "12");
    assert_string_equal(shown(), "1234");
    snprintf(wish.filter, sizeof(wish.filter), "34"); /* pids match from their start */
    assert_string_equal(shown(), "");
}

static void its_own_command_line_does_not_match(void **unused)
{
    struct top_row *self = add(7, 0, "memoir", 1);
    self->self = true;
    self->command = "memoir top --filter redis";
    snprintf(wish.filter, sizeof(wish.filter), "redis");
    assert_string_equal(shown(), "");
}

static void kernel_threads_and_other_users_are_left_out(void **unused)
{
    add(1, 0, "init", 5)->uid = 0;
    add(2, 0, "kthreadd", -1)->kernel = true;
    add(3, 1, "shell", 6)->uid = 1000;
    assert_string_equal(shown(), "3 1");
    wish.kernel = true;
    assert_string_equal(shown(), "3 1 2");
    wish.by_uid = true;
    wish.uid = 1000;
    assert_string_equal(shown(), "3");
    storage[2].has_uid = false;
    assert_string_equal(shown(), "");
}

/* ---- tree ---- */

static void a_tree_adds_up_families_and_sorts_by_them(void **unused)
{
    add(1, 0, "init", 1);
    add(2, 1, "small", 50);
    add(3, 1, "head", 10);
    add(4, 3, "child", 40);
    add(5, 3, "child", 60);
    wish.tree = true;
    assert_string_equal(shown(), "1 3 5 4 2"); /* head's family has 110 */
    assert_int_equal(row(1)->sum.value[TOP_RSS], 161);
    assert_int_equal(row(3)->sum.value[TOP_RSS], 110);
    assert_int_equal(row(3)->own.value[TOP_RSS], 10);
    assert_int_equal(row(1)->below, 4);
    assert_int_equal(row(5)->depth, 2);
    assert_true(row(3)->more >> 1 & 1);  /* 2 follows at its depth */
    assert_false(row(2)->more >> 1 & 1); /* nobody does */
    assert_true(row(4)->more >> 1 & 1);  /* the line of head's siblings passes it */
    assert_false(row(4)->more >> 2 & 1);
}

static void a_sum_tells_that_a_part_is_missing(void **unused)
{
    add(1, 0, "init", 1);
    add(2, 1, "known", 5);
    add(3, 1, "hidden", -1);
    add(4, 0, "kthreadd", -1)->kernel = true;
    add(5, 4, "kworker", -1)->kernel = true;
    wish.tree = true;
    shown();
    assert_int_equal(row(1)->sum.value[TOP_RSS], 6);
    assert_true(row(1)->sum.partial >> TOP_RSS & 1);
    assert_false(row(1)->sum.partial >> TOP_HEAP &
                 1); /* without books there is no sum to lack one */
    assert_false(row(2)->sum.partial >> TOP_RSS & 1);
    assert_false(row(4)->sum.partial >> TOP_RSS & 1);
}

static void a_folded_row_stands_for_its_family(void **unused)
{
    static const pid_t folded[] = {2, 3};
    add(1, 0, "init", 1);
    add(2, 1, "leaf", 3);
    add(3, 1, "head", 10);
    add(4, 3, "child", 40);
    wish.tree = true;
    wish.folded = folded;
    wish.n_folded = 2;
    assert_string_equal(shown(), "1 3 2");
    assert_true(row(3)->folded);
    assert_int_equal(top_row_figures(row(3))->value[TOP_RSS], 50);
    assert_false(row(2)->folded); /* it has nobody to hide */
    assert_int_equal(top_row_figures(row(1))->value[TOP_RSS], 1);
    wish.tree = false;
    shown();
    assert_int_equal(top_row_figures(row(3))->value[TOP_RSS], 10);
}

static void a_filtered_tree_keeps_the_way_to_what_is_found(void **unused)
{
    add(1, 0, "init", 1);
    add(2, 1, "shell", 1);
    add(3, 2, "redis", 1);
    add(4, 1, "other", 1);
    wish.tree = true;
    snprintf(wish.filter, sizeof(wish.filter), "redis");
    assert_string_equal(shown(), "1 2 3");
    assert_true(row(1)->context && row(2)->context);
    assert_false(row(3)->context);
}

static void parents_that_cannot_be_are_none(void **unused)
{
    add(1, 2, "a", 1)->start_ticks = 5; /* a ring */
    add(2, 3, "b", 1)->start_ticks = 5;
    add(3, 1, "c", 1)->start_ticks = 5;
    add(4, 4, "own parent", 1);
    add(5, 6, "older than its parent", 1);
    add(6, 99, "orphan", 1);
    wish.tree = true;
    shown();
    assert_int_equal(rows.shown, 6);
    assert_int_equal(row(5)->depth, 0);
    assert_int_equal(row(4)->depth, 0);
    assert_int_equal(row(1)->depth + row(2)->depth + row(3)->depth, 0 + 1 + 2);
}

static void deep_trees_are_shown_whole(void **unused)
{
    for (pid_t pid = 1; pid <= ROWS_MAX; pid++)
        add(pid, pid - 1, "link", 1);
    wish.tree = true;
    shown();
    assert_int_equal(rows.shown, ROWS_MAX);
    assert_int_equal(row(ROWS_MAX)->depth, ROWS_MAX - 1);
    assert_int_equal(row(1)->sum.value[TOP_RSS], ROWS_MAX);
}

/* ---- columns ---- */

static unsigned columns_of(const char *text, size_t len)
{
    struct term term = {.utf8 = true};
    char line[4096];
    snprintf(line, sizeof(line), "%.*s", (int)len, text);
    return term_columns(&term, line);
}

static void every_line_is_as_wide_as_the_screen(void **unused)
{
    struct term term = {.utf8 = true};
    struct top_row *r =
        add(1234567, 1, "a program with a very long name and \xe6\xbc\xa2\xe5\xad\x97", 123456789);
    r->command =
        "\x1b[31m and \xff\n\xe6\xbc\xa2\xe5\xad\x97 and more words than any screen could ever show at once";
    r->depth = 40;
    r->own.known = (1u << TOP_FIGURES) - 1;
    for (int f = 0; f < TOP_FIGURES; f++)
        r->own.value[f] = INT64_C(999949) << f;
    add(1234568, 1, "b", -1);
    wish.tree = true;
    shown();
    struct buffer out = BUFFER_INIT(65536);
    for (unsigned width = 21; width < 400; width += 7) {
        struct top_layout layout;
        top_layout_make(&rows, ~UINT64_C(0) >> (64 - TOP_COLUMNS), true, width, &layout);
        struct top_cells cells = {.term = &term, .looks = 1, .tree = true};
        term.width = width;
        unsigned last = layout.start[layout.n - 1] + layout.width[layout.n - 1];
        assert_true(last <= width);
        buffer_reset(&out);
        top_heading_append(&term, &layout, TOP_COLUMN_RSS, false, &out);
        assert_int_equal(columns_of(buffer_string(&out), out.len), last);
        for (size_t i = 0; i < rows.shown; i++) {
            buffer_reset(&out);
            top_row_append(&cells, &layout, &rows.rows[rows.order[i]], &out);
            assert_int_equal(columns_of(buffer_string(&out), out.len), last);
            assert_null(strpbrk(buffer_string(&out), "\033\n\xff"));
        }
    }
    buffer_release(&out);
}

static bool has(const struct top_layout *layout, enum top_column column)
{
    for (size_t i = 0; i < layout->n; i++)
        if (layout->column[i] == column)
            return true;
    return false;
}

static void columns_without_anything_to_say_leave_their_room_to_others(void **unused)
{
    struct top_layout layout;
    struct top_row *r = add(1, 0, "a", 1);
    top_layout_make(&rows, top_columns_default, false, 200, &layout);
    assert_false(has(&layout, TOP_COLUMN_HEAP));
    assert_false(has(&layout, TOP_COLUMN_SWAP));
    r->own.known |=
        1u << TOP_HEAP | 1u << TOP_SWAP; /* a heap of 0 is worth a column, no swap is not */
    top_layout_make(&rows, top_columns_default, false, 200, &layout);
    assert_true(has(&layout, TOP_COLUMN_HEAP));
    assert_false(has(&layout, TOP_COLUMN_SWAP));
    top_layout_make(&rows, top_columns_default, false, 30, &layout);
    assert_true(has(&layout, TOP_COLUMN_PID) && has(&layout, TOP_COLUMN_PROGRAM) &&
                has(&layout, TOP_COLUMN_RSS));
    assert_false(has(&layout, TOP_COLUMN_COMMAND));
}

static void columns_are_named_by_field_or_title(void **unused)
{
    top_column_set set = 0;
    char word[32];
    struct buffer out = BUFFER_INIT(1024);
    assert_int_equal(top_columns_parse("vms,HEAP", &set, word), 0);
    top_columns_format(set, &out);
    assert_string_equal(buffer_string(&out), "pid,program,rss,vms,heap");
    assert_int_equal(top_columns_parse("vms,nonsense,pid", &set, word), -EINVAL);
    assert_string_equal(word, "nonsense");
    assert_int_equal(top_columns_parse("", &set, word), -EINVAL);
    assert_int_equal(top_columns_parse("vms,,pid", &set, word), -EINVAL);
    buffer_release(&out);
}

static void sizes_take_five_columns(void **unused)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0"},           {1, "1B"},           {999, "999B"},        {1000, "1k"},
        {1499, "1k"},       {999499, "999k"},    {999500, "1.00M"},    {1240000, "1.24M"},
        {9994999, "9.99M"}, {9995000, "10.0M"},  {12400000, "12.4M"},  {99949999, "99.9M"},
        {99950000, "100M"}, {999499999, "999M"}, {999500000, "1.00G"}, {UINT64_MAX, "18.4E"},
    };
    char text[TOP_SIZE_MAX];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(top_size(text, cases[i].bytes), cases[i].text);
    assert_string_equal(top_age(text, 99 * NS_PER_S), "99s");
    assert_string_equal(top_age(text, 100 * NS_PER_S), "1m");
    assert_string_equal(top_age(text, 99 * 60 * NS_PER_S), "99m");
    assert_string_equal(top_age(text, 7200 * NS_PER_S), "2h");
    assert_string_equal(top_age(text, 200 * 86400 * NS_PER_S), "200d");
}

static void alarm_is_for_growth_that_fills_the_machine(void **unused)
{
    struct host_system system = {.valid = HOST_HAS_AVAILABLE, .available_bytes = 600000000};
    assert_int_equal(top_rate_style(-5, &system), STYLE_GOOD);
    assert_int_equal(top_rate_style(99999, &system), STYLE_DIM);
    assert_int_equal(top_rate_style(1000000, &system), STYLE_WARN);
    assert_int_equal(top_rate_style(1000001, &system), STYLE_BAD);
    system.valid = 0;
    assert_int_equal(top_rate_style(1000001, &system), STYLE_WARN);
}

/* ---- a line that is typed ---- */

static void keys_write_and_erase_whole_characters(void **unused)
{
    struct tui_input input = {0};
    const char *typed = "one tw\xc3\xbc";
    for (const char *p = typed; *p; p++)
        assert_true(tui_input_key(&input, (unsigned char)*p));
    assert_string_equal(input.text, typed);
    assert_true(tui_input_key(&input, TUI_ERASE));
    assert_string_equal(input.text, "one tw");
    assert_true(tui_input_key(&input, 'w' & 0x1f));
    assert_string_equal(input.text, "one ");
    assert_true(tui_input_key(&input, 'u' & 0x1f));
    assert_true(tui_input_key(&input, TUI_ERASE)); /* of nothing */
    assert_string_equal(input.text, "");
    assert_false(tui_input_key(&input, TUI_UP));
    assert_false(tui_input_key(&input, TUI_ENTER));
    assert_false(tui_input_key(&input, '\t'));
    for (int i = 0; i < 2 * TUI_INPUT_MAX; i++)
        tui_input_key(&input, 'x');
    assert_int_equal(input.len, TUI_INPUT_MAX - 1);
    assert_int_equal(strlen(input.text), input.len);
}

#define T(test) cmocka_unit_test_setup(test, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(large_ones_come_first_and_equal_ones_stay_by_pid),
        T(what_is_not_known_comes_last_in_either_order),
        T(rates_are_sorted_with_their_sign),
        T(names_are_sorted_whatever_their_case),
        T(a_filter_looks_at_program_user_command_and_pid),
        T(its_own_command_line_does_not_match),
        T(kernel_threads_and_other_users_are_left_out),
        T(a_tree_adds_up_families_and_sorts_by_them),
        T(a_sum_tells_that_a_part_is_missing),
        T(a_folded_row_stands_for_its_family),
        T(a_filtered_tree_keeps_the_way_to_what_is_found),
        T(parents_that_cannot_be_are_none),
        T(deep_trees_are_shown_whole),
        T(every_line_is_as_wide_as_the_screen),
        T(columns_without_anything_to_say_leave_their_room_to_others),
        T(columns_are_named_by_field_or_title),
        T(sizes_take_five_columns),
        T(alarm_is_for_growth_that_fills_the_machine),
        T(keys_write_and_erase_whole_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
