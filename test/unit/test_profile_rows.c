/* Sites put together at one moment and compared at two. */
#include "profile/rows.h"

#include "profile/names.h"
#include "profile_fixture.h"

static struct rows take(struct profile *now, struct profile *before, enum rows_by by,
                        uint32_t space)
{
    struct rows rows = {0};
    struct rows_filter filter = {.by = by, .space = space};
    profile_keys(now, before);
    if (before) {
        profile_keys(before, now);
        assert_int_equal(rows_add(&rows, before, &filter, true), 0);
    }
    assert_int_equal(rows_add(&rows, now, &filter, false), 0);
    rows_sort(&rows, ROWS_LIVE, before != NULL);
    return rows;
}

static const char *function_of(const struct row *row)
{
    static char text[PROFILE_LABEL_MAX];
    return profile_function(row->profile, row->frames[0], 0, text);
}

static void callers_are_put_together_in_each_kind_of_memory(void **state)
{
    struct profile *p = fixture_program("build", 0);
    struct rows rows = take(p, NULL, ROWS_BY_CALLER, 0);
    assert_int_equal(rows.n, 3);
    assert_string_equal(function_of(&rows.list[0]), "right");
    assert_int_equal(rows.list[0].now.live_bytes, 4096);
    assert_string_equal(function_of(&rows.list[1]), "ask");
    assert_int_equal(rows.list[1].now.live_bytes, 1500);
    assert_int_equal(rows.list[1].now.live_blocks, 3);
    assert_int_equal(rows.list[1].now.alloc_bytes, 3500);
    assert_int_equal(rows.list[1].now.alloc_blocks, 6);
    assert_int_equal(rows.list[1].sites, 2);
    assert_int_equal(rows.list[1].first_seen_ns, 90);
    assert_int_equal(rows.list[1].n_frames, 4); /* the larger of its stacks speaks for it */
    assert_int_equal(rows.now.live_bytes, profile_total(p).live_bytes);
    rows_release(&rows);
    profile_free(p);
}

static void who_asked_is_the_line_of_the_script(void **state)
{
    struct profile *p = profile_new();
    uint32_t library = fixture_module(p, "/usr/bin/python3", "id");
    uint32_t script = profile_add_module(
        p, &(struct profile_module){.kind = PROFILE_MODULE_SCRIPT,
                                    .path = profile_add_string(p, "/srv/train.py")});
    uint32_t append = fixture_frame(p, library, 1, "list_append", NULL, 0);
    uint32_t resize = fixture_frame(p, library, 2, "dict_resize", NULL, 0);
    uint32_t load = fixture_frame(p, script, 3, "load", "/srv/train.py", 41);
    uint32_t main_line = fixture_frame(p, script, 4, "<module>", "/srv/train.py", 90);
    uint32_t heap = fixture_heap(p);
    fixture_site(p, (struct fixture_site){heap, 0, 10, 1, 10, 1, 0, {append, load, main_line}, 3});
    fixture_site(p, (struct fixture_site){heap, 0, 30, 1, 30, 1, 0, {resize, load, main_line}, 3});
    fixture_site(p, (struct fixture_site){heap, 0, 5, 1, 5, 1, 0, {append}, 1});
    struct rows rows = take(p, NULL, ROWS_BY_CALLER, 0);
    assert_int_equal(rows.n, 2);
    assert_string_equal(function_of(&rows.list[0]), "load");
    assert_int_equal(rows.list[0].now.live_bytes, 40);
    assert_int_equal(rows.list[0].n_frames, 2);
    assert_string_equal(function_of(&rows.list[1]), "list_append");
    rows_release(&rows);
    rows = take(p, NULL, ROWS_BY_STACK, 0);
    assert_int_equal(rows.n, 3);
    assert_string_equal(function_of(&rows.list[0]), "dict_resize"); /* stacks are whole */
    rows_release(&rows);
    profile_free(p);
}

/* The interpreter's exact figure is divided among the lines that sampling found it at work for; callers without
 * such lines stay exact. */
static void lines_of_scripts_are_found_by_samples(void **state)
{
    struct profile *p = profile_new();
    uint32_t library = fixture_module(p, "/usr/bin/python3", "id");
    uint32_t script = profile_add_module(
        p, &(struct profile_module){.kind = PROFILE_MODULE_SCRIPT,
                                    .path = profile_add_string(p, "/srv/train.py")});
    uint32_t append = fixture_frame(p, library, 1, "list_append", NULL, 0);
    uint32_t intern = fixture_frame(p, library, 2, "intern", NULL, 0);
    uint32_t eval = fixture_frame(p, library, 9, "eval", NULL, 0);
    uint32_t load = fixture_frame(p, script, 3, "load", "/srv/train.py", 41);
    uint32_t save = fixture_frame(p, script, 4, "save", "/srv/train.py", 90);
    uint32_t heap = fixture_heap(p);
    unsigned exact = PROFILE_SITE_CALLER_ONLY, sampled = PROFILE_SITE_SAMPLED;
    fixture_site(p, (struct fixture_site){heap, exact, 1000, 10, 1000, 10, 0, {append}, 1});
    fixture_site(p, (struct fixture_site){heap, exact, 50, 1, 50, 1, 0, {intern}, 1});
    fixture_site(p, (struct fixture_site){heap, sampled, 30, 1, 30, 1, 0, {append, eval, load}, 3});
    fixture_site(p, (struct fixture_site){heap, sampled, 10, 1, 10, 1, 0, {append, eval, save}, 3});
    fixture_site(p, (struct fixture_site){heap, sampled, 7, 1, 7, 1, 0, {intern, eval}, 2});
    for (int by = ROWS_BY_CALLER; by <= ROWS_BY_FUNCTION; by += ROWS_BY_FUNCTION) {
        struct rows rows = take(p, NULL, (enum rows_by)by, 0);
        assert_int_equal(rows.n, 3);
        assert_string_equal(function_of(&rows.list[0]), "load");
        assert_int_equal(rows.list[0].now.live_bytes, 750);
        assert_true(rows.list[0].estimate);
        assert_string_equal(function_of(&rows.list[1]), "save");
        assert_string_equal(function_of(&rows.list[2]), "intern");
        assert_false(rows.list[2].estimate);
        assert_int_equal(rows.now.live_bytes, 1050);
        assert_int_equal(rows.estimated.live_bytes, 1000);
        rows_release(&rows);
    }
    profile_free(p);
}

static void every_grouping_has_the_same_sum(void **state)
{
    static const size_t counts[] = {3, 4, 3, 3, 2, 2, 2};
    struct profile *p = fixture_program("build", 0);
    for (int by = ROWS_BY_CALLER; by <= ROWS_BY_DEVICE; by++) {
        struct rows rows = take(p, NULL, (enum rows_by)by, 0);
        struct profile_figures sum = {0};
        for (size_t i = 0; i < rows.n; i++)
            profile_figures_add(&sum, &rows.list[i].now);
        assert_int_equal(rows.n, counts[by]);
        assert_int_equal(sum.live_bytes, 5596);
        assert_int_equal(sum.live_blocks, 4);
        assert_int_equal(sum.alloc_bytes, 12392);
        assert_int_equal(sum.alloc_blocks, 15);
        rows_release(&rows);
    }
    profile_free(p);
}

static void one_kind_of_memory_can_be_asked_for(void **state)
{
    struct profile *p = fixture_program("build", 0);
    struct rows rows = take(p, NULL, ROWS_BY_CALLER, MEMOIR_SPACE_DRAM);
    assert_int_equal(rows.n, 1);
    assert_int_equal(rows.now.live_bytes, 4096);
    rows_release(&rows);
    profile_free(p);
}

static void the_measure_decides_the_order(void **state)
{
    struct profile *p = fixture_program("build", 0);
    struct rows rows = take(p, NULL, ROWS_BY_STACK, MEMOIR_SPACE_HEAP);
    assert_int_equal(rows.list[0].now.live_bytes, 1000);
    assert_int_equal(rows.list[2].now.live_bytes, 0);
    rows_sort(&rows, ROWS_ALLOCATED, false);
    assert_int_equal(rows.list[1].now.alloc_bytes, 700);
    rows_sort(&rows, ROWS_BLOCKS, false);
    assert_int_equal(rows.list[0].now.live_blocks, 2);
    rows_min(&rows, ROWS_BLOCKS, false, 2);
    assert_int_equal(rows.n, 1);
    rows_release(&rows);
    profile_free(p);
}

/* What changed between two profiles of one program is exactly what was changed. */
static void check_diff(struct profile *before, struct profile *now)
{
    now->sites[1].figures.live_bytes += 100000; /* ask by right */
    now->sites[1].figures.alloc_bytes += 100000;
    now->sites[0].figures.live_bytes = 0; /* ask by left */
    struct rows rows = take(now, before, ROWS_BY_STACK, 0);
    assert_int_equal(rows.n, 4);
    assert_string_equal(function_of(&rows.list[0]), "ask");
    assert_int_equal(rows.list[0].now.live_bytes, 100500);
    assert_int_equal(rows.list[0].before.live_bytes, 500);
    assert_int_equal(rows.list[3].now.live_bytes, 0);
    assert_int_equal(rows.list[3].before.live_bytes, 1000);
    for (size_t i = 1; i < 3; i++)
        assert_int_equal(rows.list[i].now.live_bytes, rows.list[i].before.live_bytes);
    rows_min(&rows, ROWS_LIVE, true, 1000);
    assert_int_equal(rows.n, 2);
    rows_release(&rows);
    profile_free(before);
    profile_free(now);
}

static void the_same_build_is_compared_by_its_code(void **state)
{
    struct profile *before = fixture_program("build", 0);
    struct profile *now = fixture_program("build", 0);
    uint32_t frame = profile_stack(now, &now->sites[0])[0];
    now->lines[now->frames[frame].first_line].line = 999; /* names play no part */
    check_diff(before, now);
}

static void another_build_is_compared_by_names(void **state)
{
    check_diff(fixture_program("build-1", 0), fixture_program("build-2", 0x100));
}

static void what_is_only_in_one_of_them_is_there(void **state)
{
    struct profile *before = fixture_program("build", 0), *now = fixture_program("build", 0);
    uint32_t module = fixture_module(now, "/usr/bin/program", "build");
    uint32_t frame = fixture_frame(now, module, 0x9000, "fresh", "/src/new.c", 1);
    fixture_site(now, (struct fixture_site){fixture_heap(now), 0, 9, 1, 9, 1, 1, {frame}, 1});
    struct rows rows = take(now, before, ROWS_BY_CALLER, 0);
    assert_int_equal(rows.n, 4);
    assert_string_equal(function_of(&rows.list[0]), "fresh");
    assert_int_equal(rows.list[0].before.alloc_bytes, 0);
    rows_release(&rows);
    rows = take(before, now, ROWS_BY_CALLER, 0);
    assert_string_equal(function_of(&rows.list[3]), "fresh");
    assert_int_equal(rows.list[3].now.live_bytes, 0);
    assert_int_equal(rows.list[3].before.live_bytes, 9);
    rows_release(&rows);
    profile_free(before);
    profile_free(now);
}

/* Code made at run time moves while it is in use, and no two runs have the same addresses. */
static void code_of_no_file_is_one_row(void **state)
{
    struct profile *p = profile_new(), *other = profile_new();
    for (int i = 0; i < 2; i++) {
        struct profile *q = i ? other : p;
        uint32_t m =
            profile_add_module(q, &(struct profile_module){.kind = PROFILE_MODULE_ADDRESS});
        for (uint32_t k = 0; k < 2; k++)
            fixture_site(
                q, (struct fixture_site){fixture_heap(q),
                                         0,
                                         10,
                                         1,
                                         10,
                                         1,
                                         1,
                                         {profile_add_frame(q, m, 0x7000 + k + 16 * (unsigned)i)},
                                         1});
    }
    struct rows rows = take(p, NULL, ROWS_BY_CALLER, 0);
    assert_int_equal(rows.n, 1);
    rows_release(&rows);
    rows = take(p, other, ROWS_BY_CALLER, 0);
    assert_int_equal(rows.n, 1);
    assert_int_equal(rows.list[0].now.live_bytes, 20);
    assert_int_equal(rows.list[0].before.live_bytes, 20);
    rows_release(&rows);
    profile_free(p);
    profile_free(other);
}

static void changes_stay_within_what_fits(void **state)
{
    assert_true(rows_change(UINT64_MAX, 0) == INT64_MAX);
    assert_true(rows_change(0, UINT64_MAX) == -INT64_MAX);
    assert_int_equal(rows_change(5, 7), -2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callers_are_put_together_in_each_kind_of_memory),
        cmocka_unit_test(who_asked_is_the_line_of_the_script),
        cmocka_unit_test(lines_of_scripts_are_found_by_samples),
        cmocka_unit_test(every_grouping_has_the_same_sum),
        cmocka_unit_test(one_kind_of_memory_can_be_asked_for),
        cmocka_unit_test(the_measure_decides_the_order),
        cmocka_unit_test(the_same_build_is_compared_by_its_code),
        cmocka_unit_test(another_build_is_compared_by_names),
        cmocka_unit_test(what_is_only_in_one_of_them_is_there),
        cmocka_unit_test(code_of_no_file_is_one_row),
        cmocka_unit_test(changes_stay_within_what_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
