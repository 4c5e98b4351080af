/* A result that is used again, merged, or given texts that are not UTF-8. */
#include "query_fixture.h"

#include "query/result.h"

static const struct pet pets[] = {
    {.name = "Tom", .kind = "cat", .weight = 5000, .owner = 1},
    {.name = "Rex", .kind = "dog", .weight = 30000, .owner = 1},
    {.name = "Bo", .kind = "dog", .weight = 20000, .owner = 2},
};

static struct query_result *new_result(struct query *query)
{
    struct query_result *result = NULL;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    return result;
}

static char *finished(struct query_result *result)
{
    assert_int_equal(query_result_finish(result), 0);
    return rows_text(result);
}

/* ---- used again ---- */

static void a_result_that_is_reset_is_like_a_new_one(void **unused)
{
    struct query *query = pet_query(&(struct query_spec){
        .by = "kind", .show = "count,weight", .sort = "kind", .limit = 1, .others = true});
    struct query_result *result = new_result(query), *fresh = new_result(query);
    pets_add(result, pets, 3);
    result_add_origin(result, &(struct query_origin){.node = "n", .viewer_uid = 7, .time_ns = 9});
    free(finished(result));
    result->incomplete = true;
    result->missing = 3;
    result->pruned = result->left_out = 5;
    query_result_reset(result);
    assert_int_equal(query_result_rows(result), 0);
    assert_int_equal(query_result_matched(result), 0);
    assert_false(query_result_incomplete(result));
    assert_int_equal(result->missing, 0);
    assert_false(result->has_origin);
    assert_string_equal(query_result_origin(result)->node, "");
    assert_int_equal(query_result_origin(result)->time_ns, 0);
    assert_int_equal(query_result_others(result), 0);
    assert_null(result->others);
    /* Groups of before are gone, too. */
    pets_add(result, pets, 2);
    pets_add(fresh, pets, 2);
    char *again = finished(result), *first = finished(fresh);
    assert_string_equal(again, first);
    assert_int_equal(query_result_others(result), 1);
    free(again);
    free(first);
    query_result_free(result);
    query_result_free(fresh);
    query_free(query);
}

static void more_rows_than_fit_a_number_are_not_asked_for(void **unused)
{
    static const struct {
        size_t asked, given;
    } rows[] = {
        {0, QUERY_ROWS_MAX},
        {1, 1},
        {UINT32_MAX - 2, UINT32_MAX - 2},
        {UINT32_MAX - 1, QUERY_ROWS_MAX},
        {SIZE_MAX, QUERY_ROWS_MAX},
    };
    struct query *query = pet_query(&(struct query_spec){.show = "name"});
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct query_result *result = NULL;
        assert_int_equal(query_result_new(query, rows[i].asked, &result), 0);
        assert_int_equal(result->rows_max, rows[i].given);
        query_result_free(result);
    }
    query_free(query);
}

/* Many groups, each of which comes again after all others. */
static void groups_are_found_again_however_many_there_are(void **unused)
{
    enum { GROUPS = 1000 };
    struct query *query =
        pet_query(&(struct query_spec){.by = "name", .show = "count", .sort = "name"});
    struct query_result *result = new_result(query);
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < GROUPS; i++) {
            char name[16];
            snprintf(name, sizeof(name), "n%d", i);
            pets_add(result, &(struct pet){.name = name}, 1);
        }
    assert_int_equal(query_result_finish(result), 0);
    assert_int_equal(query_result_rows(result), GROUPS);
    for (size_t i = 0; i < GROUPS; i++)
        assert_int_equal(query_result_value(result, i, 1).number, 3);
    query_result_free(result);
    query_free(query);
}

/* Rows that are added after an answer was finished may drop some of it. */
static void an_answer_that_was_cut_again_must_be_finished_again(void **unused)
{
    struct query *query =
        pet_query(&(struct query_spec){.show = "name,weight", .sort = "-weight", .limit = 2});
    struct query_result *result = new_result(query);
    pets_add(result, pets, 3);
    free(finished(result));
    assert_int_equal(query_result_rows(result), 2);
    for (uint64_t i = 0; i < 3000; i++)
        pets_add(result, &(struct pet){.name = "many", .weight = i}, 1);
    assert_int_equal(query_result_rows(result), 0);
    char *text = finished(result);
    assert_string_equal(text, "[{\"name\":\"Rex\",\"weight\":30000},"
                              "{\"name\":\"Bo\",\"weight\":20000}]");
    assert_int_equal(query_result_matched(result), 3003);
    free(text);
    query_result_free(result);
    query_free(query);
}

static void a_large_limit_keeps_the_first_of_many(void **unused)
{
    enum { LIMIT = 3000, ROWS = 8000 };
    struct query *query =
        pet_query(&(struct query_spec){.show = "weight", .sort = "-weight", .limit = LIMIT});
    struct query_result *result = new_result(query);
    for (uint64_t i = 0; i < ROWS; i++)
        pets_add(result, &(struct pet){.weight = i * 7919 % ROWS}, 1);
    assert_int_equal(query_result_finish(result), 0);
    assert_int_equal(query_result_rows(result), LIMIT);
    for (size_t i = 0; i < LIMIT; i++)
        assert_int_equal(query_result_value(result, i, 0).number, ROWS - 1 - i);
    query_result_free(result);
    query_free(query);
}

/* ---- merged ---- */

static void what_a_part_lacks_the_whole_lacks(void **unused)
{
    struct query *query = pet_query(&(struct query_spec){.show = "name,weight"});
    for (int from_lacks = 0; from_lacks < 2; from_lacks++) {
        struct query_result *into = new_result(query), *from = new_result(query);
        (from_lacks ? from : into)->incomplete = true;
        into->missing = 1;
        from->missing = 2;
        into->left_out = 4;
        from->left_out = 5;
        pets_add(from, pets, 1);
        assert_int_equal(query_result_merge(into, from), 0);
        assert_true(query_result_incomplete(into));
        assert_int_equal(into->missing, 3);
        assert_int_equal(query_result_left_out(into), 9);
        assert_int_equal(query_result_matched(into), 10);
        query_result_free(into);
        query_result_free(from);
    }
    query_free(query);
}

/* Once something is missing, it stays so, whatever is added. */
static void what_is_incomplete_stays_so(void **unused)
{
    struct query *query = pet_query(&(struct query_spec){.show = "name"});
    struct query_result *into = new_result(query), *part = new_result(query);
    struct buffer bytes = BUFFER_INIT(1 << 16);
    pets_add(part, pets, 2);
    assert_int_equal(query_result_finish(part), 0);
    assert_int_equal(query_partial_write(part, &bytes), 0);
    assert_int_equal(query_partial_read(into, bytes.data, bytes.len), 0);
    assert_false(query_result_incomplete(into));
    into->incomplete = true;
    assert_int_equal(query_partial_read(into, bytes.data, bytes.len), 0);
    assert_true(query_result_incomplete(into));
    buffer_release(&bytes);
    query_result_free(into);
    query_result_free(part);
    query_free(query);

    struct query_error error;
    assert_int_equal(query_new(&(struct query_spec){.table = "processes"}, &query, &error), 0);
    struct query_result *result = new_result(query);
    assert_int_equal(query_run(query, &(struct query_world){.sees_all = true}, result), 0);
    assert_false(query_result_incomplete(result));
    result->incomplete = true;
    assert_int_equal(query_run(query, &(struct query_world){.sees_all = true}, result), 0);
    assert_true(query_result_incomplete(result));
    query_result_free(result);
    query_free(query);
}

/* A part with a smaller limit lacks something only if its limit dropped rows. */
static void a_part_lacks_only_what_its_limit_dropped(void **unused)
{
    struct query *wide =
        pet_query(&(struct query_spec){.show = "name", .sort = "name", .limit = 5});
    struct query *narrow =
        pet_query(&(struct query_spec){.show = "name", .sort = "name", .limit = 2});
    for (size_t n = 1; n <= 3; n++) {
        struct query_result *into = new_result(wide), *part = new_result(narrow);
        struct buffer bytes = BUFFER_INIT(1 << 16);
        pets_add(part, pets, n);
        assert_int_equal(query_result_finish(part), 0);
        assert_int_equal(query_result_trim(part), 0);
        assert_int_equal(query_partial_write(part, &bytes), 0);
        assert_int_equal(query_partial_read(into, bytes.data, bytes.len), 0);
        assert_int_equal(query_result_incomplete(into), n == 3);
        assert_int_equal(query_result_matched(into), n);
        buffer_release(&bytes);
        query_result_free(into);
        query_result_free(part);
    }
    query_free(wide);
    query_free(narrow);
}

static void a_merged_result_has_the_rights_and_the_time_of_the_least(void **unused)
{
    struct query *query = pet_query(&(struct query_spec){.show = "name"});
    struct query_result *result = new_result(query);
    const struct query_origin *origin = query_result_origin(result);
    result_add_origin(result, &(struct query_origin){
                                  .node = "a", .sees_all = true, .viewer_uid = 0, .time_ns = 50});
    result_add_origin(result, &(struct query_origin){
                                  .node = "a", .sees_all = true, .viewer_uid = 0, .time_ns = 70});
    assert_string_equal(origin->node, "a");
    assert_true(origin->sees_all);
    assert_int_equal(origin->time_ns, 50);
    result_add_origin(result,
                      &(struct query_origin){.node = "b", .viewer_uid = 1000, .time_ns = 40});
    assert_string_equal(origin->node, "");
    assert_false(origin->sees_all);
    assert_int_equal(origin->viewer_uid, 1000);
    assert_int_equal(origin->time_ns, 40);
    result_add_origin(result, &(struct query_origin){.sees_all = true, .time_ns = 60});
    assert_false(origin->sees_all);
    assert_int_equal(origin->viewer_uid, 1000);
    query_result_free(result);
    query_free(query);
}

/* ---- texts ---- */

#define FFFD "\xef\xbf\xbd"

static const struct {
    const char *text, *clean;
} texts[] = {
    {"", ""},
    {"plain", "plain"},
    {"12345678", "12345678"},
    {"Zo\xc3\xab", "Zo\xc3\xab"},
    {"12345678Zo\xc3\xab", "12345678Zo\xc3\xab"},
    {"Zo\xc3\xab 12345678", "Zo\xc3\xab 12345678"},
    {"\xff", FFFD},
    {"a\xff", "a" FFFD},
    {"\xff"
     "b",
     FFFD "b"},
    {"12345678\xff", "12345678" FFFD},
    {"12345678\xff"
     "2345678",
     "12345678" FFFD "2345678"},
    {"1234567812345678\xff"
     "2345678",
     "1234567812345678" FFFD "2345678"},
    {"\xc3\xab\xff\xc3\xab", "\xc3\xab" FFFD "\xc3\xab"},
    {"end\xc3", "end" FFFD},
    {"\xff\xfe", FFFD FFFD},
    {"Tom\xed\xa0\x80", "Tom" FFFD FFFD FFFD},
};

static void check_texts(const struct query_spec *spec)
{
    struct query *query = pet_query(spec);
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        struct query_result *result = new_result(query);
        pets_add(result, &(struct pet){.name = texts[i].text, .kind = "cat"}, 1);
        pets_add(result, &(struct pet){.name = texts[i].text, .kind = NULL}, 1);
        assert_int_equal(query_result_finish(result), 0);
        assert_int_equal(query_result_rows(result), spec->by ? 1 : 2);
        struct query_value name = query_result_value(result, 0, 0);
        assert_int_equal(name.len, strlen(texts[i].clean));
        assert_memory_equal(name.text, texts[i].clean, name.len);
        query_result_free(result);
    }
    query_free(query);
}

static void bytes_that_are_no_utf8_are_replaced(void **unused)
{
    check_texts(&(struct query_spec){.show = "name,kind", .sort = "name"});
    check_texts(&(struct query_spec){.by = "name", .show = "count,any(kind)", .sort = "name"});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_result_that_is_reset_is_like_a_new_one),
        cmocka_unit_test(more_rows_than_fit_a_number_are_not_asked_for),
        cmocka_unit_test(groups_are_found_again_however_many_there_are),
        cmocka_unit_test(an_answer_that_was_cut_again_must_be_finished_again),
        cmocka_unit_test(a_large_limit_keeps_the_first_of_many),
        cmocka_unit_test(what_a_part_lacks_the_whole_lacks),
        cmocka_unit_test(what_is_incomplete_stays_so),
        cmocka_unit_test(a_part_lacks_only_what_its_limit_dropped),
        cmocka_unit_test(a_merged_result_has_the_rights_and_the_time_of_the_least),
        cmocka_unit_test(bytes_that_are_no_utf8_are_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
