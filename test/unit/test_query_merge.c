/* Partial results: whatever rows are in which part, and however parts are merged or sent, the answer is
 * that of one pass. */
#include "fault.h"
#include "query_fixture.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

enum { PETS_MAX = 4000, PARTS_MAX = 9, ROUNDS = 40 };

static uint64_t random_state = 88172645463325252u;

static uint64_t random_below(uint64_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % n;
}

static void random_pets(struct pet *pets, size_t n)
{
    static const char *const names[] = {"Tom",  "Rex", "Ada",         "",
                                        "\xff", "Zoë", "bad\xc3name", "Tom\xed\xa0\x80"};
    static const char *const kinds[] = {"cat", "dog", "fish", NULL};
    for (size_t i = 0; i < n; i++) {
        uint64_t weight = random_below(50);
        pets[i] = (struct pet){
            .name = names[random_below(ARRAY_LEN(names))],
            .kind = kinds[random_below(ARRAY_LEN(kinds))],
            .weight = weight == 0   ? PET_UNKNOWN
                      : weight == 1 ? PET_NONE
                      : weight == 2 ? UINT64_MAX / 3
                                    : weight * 1000,
            .age_s = random_below(1000),
            .eaten = random_below(5),
            .bowl = random_below(4) * 2,
            .owner = (uint32_t)random_below(3),
            .tame = random_below(2),
        };
    }
}

static const struct query_spec specs[] = {
    {.show = "name,kind,weight,age,full,tame,owner", .sort = "name"},
    {.show = "name,weight", .sort = "-weight", .limit = 7},
    {.show = "kind", .sort = "full,-age", .limit = 3},
    {.by = "kind", .show = "count,weight,age,full,owner,name,tame"},
    {.by = "name,owner", .show = "sum(weight),max(weight),min(weight),avg(age)", .limit = 5},
    {.by = "full", .show = "count(weight),max(name),min(name),max(full),same(kind)"},
    {.show = "count,sum(weight),avg(weight),sum(tame)", .where = "name~o or weight>20kB"},
    {.by = "weight", .show = "count", .sort = "count,weight"},
};

static struct query_result *new_result(const struct query *query)
{
    struct query_result *result = NULL;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    return result;
}

/* `from` into `into`, directly or as it would travel. */
static void merge(struct query_result *into, struct query_result *from)
{
    if (random_below(2)) {
        assert_int_equal(query_result_merge(into, from), 0);
    } else {
        struct buffer text = BUFFER_INIT(64 << 20);
        assert_int_equal(query_partial_write(from, &text), 0);
        assert_int_equal(query_partial_read(into, text.data, text.len), 0);
        buffer_release(&text);
    }
    query_result_free(from);
}

static char *answer_by_parts(const struct query *query, const struct pet *pets, size_t n)
{
    struct query_result *parts[PARTS_MAX];
    size_t n_parts = 1 + random_below(PARTS_MAX);
    for (size_t i = 0; i < n_parts; i++)
        parts[i] = new_result(query);
    for (size_t i = 0; i < n; i++)
        pets_add(parts[random_below(n_parts)], &pets[i], 1);
    while (n_parts > 1) {
        size_t from = random_below(n_parts);
        struct query_result *taken = parts[from];
        parts[from] = parts[--n_parts];
        if (random_below(4) == 0) /* a part may have been looked at before */
            assert_int_equal(query_result_finish(taken), 0);
        merge(parts[random_below(n_parts)], taken);
    }
    char *text = result_text(parts[0]);
    query_result_free(parts[0]);
    return text;
}

static void any_split_and_any_order_of_merges_gives_the_same(void **unused)
{
    static struct pet pets[PETS_MAX];
    for (size_t s = 0; s < ARRAY_LEN(specs); s++) {
        struct query *query = pet_query(&specs[s]);
        for (int round = 0; round < ROUNDS; round++) {
            size_t n = random_below(round % 8 == 0 ? PETS_MAX : 60);
            random_pets(pets, n);
            struct query_result *whole = new_result(query);
            pets_add(whole, pets, n);
            char *expected = result_text(whole);
            char *text = answer_by_parts(query, pets, n);
            assert_string_equal(text, expected);
            free(text);
            free(expected);
            query_result_free(whole);
        }
        query_free(query);
    }
}

static void results_of_other_queries_are_refused(void **unused)
{
    struct query *a = pet_query(&specs[0]), *b = pet_query(&specs[3]);
    struct query_result *x = new_result(a), *y = new_result(b);
    assert_int_equal(query_result_merge(x, y), -EINVAL);
    assert_int_equal(query_result_merge(x, x), -EINVAL);
    struct buffer text = BUFFER_INIT(1 << 20);
    assert_int_equal(query_partial_write(y, &text), 0);
    assert_int_equal(query_partial_read(x, text.data, text.len), -EINVAL);
    buffer_release(&text);
    query_result_free(x);
    query_result_free(y);
    query_free(a);
    query_free(b);
}

#define HEAD                                                                                           \
    "{\"schema\":\"memoir.partial/1\",\"table\":\"pets\",\"keys\":1,\"columns\":[\"kind\",\"weight\"," \
    "\"avg(age)\",\"count\",\"owner\"],\"pruned\":0,\"left_out\":0,\"rows\":["

static void lies_of_strangers_add_nothing(void **unused)
{
    static const char *const rows[] = {
        "[\"cat\",1,{\"value\":1,\"per\":1,\"state\":1,\"marks\":0},1]",
        "[\"cat\",1,{\"value\":1,\"per\":0,\"state\":1,\"marks\":0},1,1]",
        "[\"cat\",1,5,1,1]",
        "[\"cat\",-1,null,1,1]",
        "[\"cat\",\"-1\",null,1,1]",
        "[\"cat\",\"99999999999999999999\",null,1,1]",
        "[\"cat\",1.5,null,1,1]",
        "[\"cat\",1,null,null,1]",
        "[7,1,null,1,1]",
        "[\"cat\",{\"value\":1,\"per\":3,\"state\":1,\"marks\":0},null,1,1]",
        "[\"cat\",{\"value\":1,\"per\":0,\"state\":9,\"marks\":0},null,1,1]",
        "[\"cat\",{\"value\":1,\"per\":0,\"state\":1,\"marks\":4},null,1,1]",
        "[\"cat\",{\"value\":1,\"per\":0,\"state\":5,\"marks\":0},null,1,1]",
        "[\"cat\",{\"state\":4,\"marks\":0},null,1,1]",
        "[{\"value\":\"cat\",\"per\":0,\"state\":3,\"marks\":0},1,null,1,1]",
        "[\"cat\",1,null,1,1],7",
    };
    struct query *query =
        pet_query(&(struct query_spec){.by = "kind", .show = "weight,avg(age),count,owner"});
    struct query_result *result = new_result(query);
    char text[2048];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        /* A good row before it must not stay. */
        int n = snprintf(text, sizeof(text),
                         HEAD "[\"dog\",1,null,1,{\"state\":4,\"marks\":0}],%s]}", rows[i]);
        if (query_partial_read(result, text, (size_t)n) != -EINVAL)
            fail_msg("taken: %s", rows[i]);
        assert_int_equal(query_result_matched(result), 0);
    }
    int n = snprintf(text, sizeof(text), HEAD "[\"dog\",1,null,1,{\"state\":4,\"marks\":0}]]}");
    assert_int_equal(query_partial_read(result, text, (size_t)n), 0);
    assert_int_equal(query_result_matched(result), 1);
    assert_int_equal(query_partial_read(result, text, (size_t)n - 1), -EINVAL);
    assert_int_equal(query_partial_read(result, "[]", 2), -EINVAL);
    assert_int_equal(query_partial_read(result, "", 0), -EINVAL);
    query_result_free(result);
    query_free(query);
}

/* Parse, add, merge, send and finish once. 0 and the answer for free(), or the first error. */
static int round_trip(const struct query_spec *spec, const struct pet *pets, size_t n,
                      char **ret_answer)
{
    struct query *query = NULL;
    struct query_error error;
    struct query_result *a = NULL, *b = NULL;
    struct buffer text = BUFFER_INIT(1 << 20);
    int r = query_new_over(&pet_table, spec, &query, &error);
    if (r == 0)
        r = query_result_new(query, 0, &a);
    if (r == 0)
        r = query_result_new(query, 0, &b);
    for (size_t i = 0; i < n && r == 0; i++) {
        r = query_result_add(i % 2 ? a : b, &pet_world, &(struct query_row){.custom = &pets[i]});
        r = r < 0 ? r : 0;
    }
    if (r == 0)
        r = query_result_merge(a, b);
    if (r == 0)
        r = query_partial_write(b, &text);
    if (r == 0)
        r = query_partial_read(a, text.data, text.len);
    if (r == 0)
        r = query_result_finish(a);
    struct json json;
    buffer_reset(&text);
    json_init(&json, &text);
    json_object_begin(&json);
    if (r == 0)
        query_result_json(a, &json);
    json_object_end(&json);
    if (r == 0)
        r = json_finish(&json);
    if (r == 0)
        *ret_answer = buffer_take(&text);
    buffer_release(&text);
    query_result_free(a);
    query_result_free(b);
    query_free(query);
    return r;
}

static void a_failing_allocation_is_an_error_or_changes_nothing(void **unused)
{
    struct pet pets[200];
    random_pets(pets, ARRAY_LEN(pets));
    for (size_t s = 0; s < ARRAY_LEN(specs); s++) {
        char *expected = NULL;
        assert_int_equal(round_trip(&specs[s], pets, ARRAY_LEN(pets), &expected), 0);
        for (int nth = 0; fault_arm(nth); nth++) {
            char *answer = NULL;
            int r = round_trip(&specs[s], pets, ARRAY_LEN(pets), &answer);
            fault_disarm();
            if (r == 0)
                assert_string_equal(answer, expected);
            else
                assert_true(r == -ENOMEM && fault_fired());
            free(answer);
        }
        free(expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_split_and_any_order_of_merges_gives_the_same),
        cmocka_unit_test(results_of_other_queries_are_refused),
        cmocka_unit_test(lies_of_strangers_add_nothing),
        cmocka_unit_test(a_failing_allocation_is_an_error_or_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
