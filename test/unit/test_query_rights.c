/* Who may see which rows and columns, however a question is asked: as a result or row by row. */
#include "query_fixture.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

enum { NOBODY = 0, ALICE = 1001, BOB = 1002 };

/* Whose row it is says `owner`; rows of NOBODY are everybody's. Those that are not tame are unusual. */
static const struct pet pets[] = {
    {"Ada", "cat", 1, 1, 1, 4, ALICE, true},  {"Bo", "dog", 2, 2, 1, 4, BOB, true},
    {"Cy", "fish", 4, 4, 1, 4, NOBODY, true}, {"Di", "cat", 8, 8, 1, 4, ALICE, false},
    {"Ed", "dog", 16, 16, 1, 4, BOB, false},
};

static int scan_error;
static bool scan_incomplete;
static uint64_t scan_deadline_ns;
static size_t scan_skipped;

static int scan(struct query_scan *s)
{
    scan_skipped = 0;
    scan_deadline_ns = s->deadline_ns;
    for (size_t i = 0; i < ARRAY_LEN(pets); i++) {
        struct query_row row = {.custom = &pets[i]};
        if (!s->may_match(s, &row)) {
            scan_skipped++;
            continue;
        }
        int r = s->each(s, &row);
        if (r < 0)
            return r;
    }
    s->incomplete = scan_incomplete;
    return scan_error;
}

static bool owner(const struct query_row *row, uint32_t *ret_uid)
{
    *ret_uid = pet_of(row)->owner;
    return pet_of(row)->owner != NOBODY;
}

static bool usual(const struct query_row *row)
{
    return pet_of(row)->tame;
}

static const struct query_table public_rows = {.name = "pets",
                                               .help = "pets",
                                               .columns = pet_columns,
                                               .show = "name",
                                               .show_by = "count",
                                               .sort = "name",
                                               .scan = scan,
                                               .owner = owner,
                                               .usual = usual,
                                               .unusual_by = "tame"};

static int note_name(const struct query_row *row, const struct query_value *values, void *context)
{
    char *names = context;
    const struct query_value *secret = &values[1];
    strcat(names, *names ? " " : "");
    strcat(names, pet_of(row)->name);
    if (secret->state & QUERY_KNOWN)
        strcat(names, "!");
    return 0;
}

/* Names of the rows, each with ! where the private column is shown too. */
static void check(bool private_rows, const struct query_world *world, const char *where,
                  const char *expected)
{
    struct query_table table = public_rows;
    struct query_spec spec = {.show = "name,secret", .sort = "name", .where = where};
    struct query *query = NULL;
    struct query_error error;
    struct query_result *result = NULL;
    char names[100] = "", rows[100] = "";
    table.private_rows = private_rows;
    assert_int_equal(query_new_over(&table, &spec, &query, &error), 0);
    assert_int_equal(query_result_new(query, 0, &result), 0);
    assert_int_equal(query_each(query, world, note_name, names), 0);
    assert_string_equal(names, expected);
    assert_int_equal(query_run(query, world, result), 0);
    assert_int_equal(query_result_finish(result), 0);
    for (size_t i = 0; i < query_result_rows(result); i++) {
        strcat(rows, i ? " " : "");
        strcat(rows, query_result_value(result, i, 0).text);
        strcat(rows, query_result_value(result, i, 1).state & QUERY_KNOWN ? "!" : "");
    }
    assert_string_equal(rows, expected);
    query_result_free(result);
    query_free(query);
}

static const struct query_world root = {.sees_all = true}, alice = {.viewer_uid = ALICE},
                                bob = {.viewer_uid = BOB}, stranger = {.viewer_uid = 5000};

static void private_columns_are_their_owners(void **unused)
{
    check(false, &root, NULL, "Ada! Bo! Cy!");
    check(false, &alice, NULL, "Ada! Bo Cy!");
    check(false, &bob, NULL, "Ada Bo! Cy!");
    check(false, &stranger, NULL, "Ada Bo Cy!");
}

static void private_rows_are_their_owners(void **unused)
{
    check(true, &root, NULL, "Ada! Bo! Cy!");
    check(true, &alice, NULL, "Ada! Cy!");
    check(true, &bob, NULL, "Bo! Cy!");
    check(true, &stranger, NULL, "Cy!");
}

/* A filter on what one may not see finds nothing out. */
static void filters_tell_nothing_about_private_columns(void **unused)
{
    check(false, &root, "secret=Ada", "Ada!");
    check(false, &alice, "secret=Ada", "Ada!");
    check(false, &bob, "secret=Ada", "");
    check(false, &bob, "not secret=Ada", "Bo! Cy!");
    check(true, &bob, "name~*", "Bo! Cy!");
}

static void unusual_rows_come_where_they_are_asked_for(void **unused)
{
    check(false, &alice, "tame=no", "Di! Ed");
    check(true, &alice, "tame=no", "Di!");
    check(true, &alice, "tame=no or tame", "Ada! Cy! Di!");
    check(true, &root, "name~d", "Ada!");
}

static void table_without_owners_is_everybodys(void **unused)
{
    struct query_table table = public_rows;
    struct query_spec spec = {.show = "name,secret", .sort = "name"};
    struct query *query = NULL;
    struct query_error error;
    char names[100] = "";
    table.owner = NULL;
    table.private_rows = true;
    assert_int_equal(query_new_over(&table, &spec, &query, &error), 0);
    assert_int_equal(query_each(query, &stranger, note_name, names), 0);
    assert_string_equal(names, "Ada! Bo! Cy!");
    query_free(query);
}

static void rule_is_root_or_the_owner(void **unused)
{
    assert_true(query_may_see(true, 5, 6));
    assert_true(query_may_see(false, 5, 5));
    assert_false(query_may_see(false, 5, 6));
    assert_false(query_may_see(false, 0, 6)); /* who sees all is said, not guessed */
    assert_false(query_may_see(false, UINT32_MAX, UINT32_MAX)); /* nobody knows whose it is */
    assert_true(query_may_see(true, UINT32_MAX, UINT32_MAX));
}

static void answer_says_who_asked_where_and_when_and_whether_it_is_whole(void **unused)
{
    struct query *query = NULL;
    struct query_error error;
    struct query_spec spec = {.show = "name"};
    assert_int_equal(query_new_over(&public_rows, &spec, &query, &error), 0);
    static const struct {
        int error;
        bool incomplete, expected;
    } cases[] = {
        {0, false, false}, {0, true, true}, {-ETIME, false, true}, {-ENOMEM, false, false}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct query_result *result = NULL;
        struct query_world world = {
            .viewer_uid = BOB, .node = i % 2 ? "here" : NULL, .now_real_ns = i % 2 ? 7 : 0};
        world.time_max_ns = i % 2 ? NS_PER_S : 0;
        uint64_t before = clock_real_ns(), begin = clock_monotonic_ns();
        scan_error = cases[i].error;
        scan_incomplete = cases[i].incomplete;
        assert_int_equal(query_result_new(query, 0, &result), 0);
        assert_int_equal(query_run(query, &world, result), cases[i].error);
        assert_int_equal(query_result_incomplete(result), cases[i].expected);
        const struct query_origin *origin = query_result_origin(result);
        assert_false(origin->sees_all);
        assert_int_equal(origin->viewer_uid, BOB);
        if (i % 2) {
            assert_string_equal(origin->node, "here");
            assert_int_equal(origin->time_ns, 7);
            assert_true(scan_deadline_ns >= begin + NS_PER_S);
            assert_true(scan_deadline_ns <= clock_monotonic_ns() + NS_PER_S);
        } else {
            char name[QUERY_NAME_MAX] = "";
            assert_int_equal(gethostname(name, sizeof(name) - 1), 0);
            assert_string_equal(origin->node, name);
            assert_true(origin->time_ns >= before && origin->time_ns <= clock_real_ns());
            assert_int_equal(scan_deadline_ns, 0);
        }
        query_result_free(result);
    }
    scan_error = 0;
    scan_incomplete = false;
    query_free(query);
}

/* Rows that cannot match are not looked at any further, which is what makes large tables fast. */
static void tables_are_told_which_rows_cannot_match(void **unused)
{
    struct query *query = NULL;
    struct query_error error;
    struct query_spec spec = {.show = "name,secret", .where = "kind=dog"};
    char names[100] = "";
    assert_int_equal(query_new_over(&public_rows, &spec, &query, &error), 0);
    assert_int_equal(query_each(query, &root, note_name, names), 0);
    assert_string_equal(names, "Bo!");
    assert_true(scan_skipped >= 2); /* the unusual ones, at least */
    query_free(query);
}

static void groups_have_no_single_rows(void **unused)
{
    struct query *grouped = NULL, *other = NULL, *without = NULL;
    struct query_error error;
    struct query_result *result = NULL;
    struct query_spec by = {.by = "kind"}, rows = {.show = "name"};
    char names[100] = "";
    assert_int_equal(query_new_over(&public_rows, &by, &grouped, &error), 0);
    assert_int_equal(query_new_over(&public_rows, &rows, &other, &error), 0);
    assert_int_equal(query_each(grouped, &root, note_name, names), -EINVAL);
    assert_int_equal(query_result_new(grouped, 0, &result), 0);
    assert_int_equal(query_run(other, &root, result), -EINVAL); /* a result of another question */
    query_result_free(result);
    assert_int_equal(query_new_over(&pet_table, &rows, &without, &error), 0);
    assert_int_equal(query_each(without, &root, note_name, names), -EINVAL);
    assert_int_equal(query_result_new(without, 0, &result), 0);
    assert_int_equal(query_run(without, &root, result), -EINVAL); /* its rows come one by one */
    query_result_free(result);
    query_free(grouped);
    query_free(other);
    query_free(without);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(private_columns_are_their_owners),
        cmocka_unit_test(private_rows_are_their_owners),
        cmocka_unit_test(filters_tell_nothing_about_private_columns),
        cmocka_unit_test(unusual_rows_come_where_they_are_asked_for),
        cmocka_unit_test(table_without_owners_is_everybodys),
        cmocka_unit_test(rule_is_root_or_the_owner),
        cmocka_unit_test(answer_says_who_asked_where_and_when_and_whether_it_is_whole),
        cmocka_unit_test(tables_are_told_which_rows_cannot_match),
        cmocka_unit_test(groups_have_no_single_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
