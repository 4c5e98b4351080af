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
    {.show = "name,trend,meals,path", .sort = "-trend,name"},
    {.by = "kind", .show = "trend,avg(trend),max(trend),meals,max(meals),any(name),any(path),path"},
    {.by = "path", .show = "min(meals),any(meals),any(trend),same(trend)", .where = "trend>-100kB"},
    {.show = "name,weight,full,trend,meals", .sort = "-weight", .limit = 7, .others = true},
    {.by = "name", .show = "weight,avg(age),trend", .limit = 2, .others = true},
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

/* The bytes of a partial answer over these pets, for buffer_release(). */
static struct buffer partial_of(const struct query_spec *spec, const struct pet *pets, size_t n)
{
    struct query *query = pet_query(spec);
    struct query_result *result = new_result(query);
    struct buffer bytes = BUFFER_INIT(64 << 20);
    pets_add(result, pets, n);
    assert_int_equal(query_partial_write(result, &bytes), 0);
    query_result_free(result);
    query_free(query);
    return bytes;
}

/* Whatever byte of it is another, or missing: it is refused as a whole, or read to a result that can be written again. */
static void damaged_bytes_add_nothing_or_make_sense(void **unused)
{
    struct pet pets[20];
    random_pets(pets, ARRAY_LEN(pets));
    for (size_t s = 0; s < ARRAY_LEN(specs); s++) {
        struct buffer bytes = partial_of(&specs[s], pets, ARRAY_LEN(pets));
        struct query *query = pet_query(&specs[s]);
        size_t taken = 0;
        for (size_t i = 0; i < bytes.len * 3; i++) {
            struct query_result *result = new_result(query);
            struct buffer again = BUFFER_INIT(64 << 20);
            char old = bytes.data[i / 3];
            size_t len = i % 3 == 2 ? i / 3 : bytes.len;
            if (i % 3 != 2)
                bytes.data[i / 3] =
                    (char)(i % 3 ? (uint64_t)old ^ 1u << random_below(8) : random_below(256));
            int r = query_partial_read(result, bytes.data, len);
            assert_true(r == 0 || r == -EINVAL);
            if (r < 0) {
                assert_int_equal(query_result_matched(result), 0);
                assert_false(query_result_incomplete(result));
            } else {
                free(result_text(result));
                assert_int_equal(query_partial_write(result, &again), 0);
                taken++;
            }
            assert_true(r < 0 || len == bytes.len); /* what is cut short never makes sense */
            bytes.data[i / 3] = old;
            buffer_release(&again);
            query_result_free(result);
        }
        assert_true(taken > 0 && taken < bytes.len * 3);
        buffer_release(&bytes);
        query_free(query);
    }
}

static void answers_to_another_question_are_refused(void **unused)
{
    struct pet pet = {.name = "Tom", .kind = "cat", .weight = 5};
    static const struct query_spec asked = {.by = "kind", .where = "weight>1", .show = "weight"};
    static const struct query_spec other[] = {
        {.by = "kind", .where = "weight>2", .show = "weight"},
        {.by = "name", .where = "weight>1", .show = "weight"},
        {.by = "kind,name", .where = "weight>1", .show = "weight"},
        {.where = "weight>1", .show = "kind,weight"},
        {.by = "kind", .where = "weight>1", .show = "weight", .others = true},
    };
    struct query *query = pet_query(&asked);
    struct query_result *result = new_result(query);
    for (size_t i = 0; i < ARRAY_LEN(other); i++) {
        struct buffer bytes = partial_of(&other[i], &pet, 1);
        assert_int_equal(query_partial_read(result, bytes.data, bytes.len), -EINVAL);
        assert_int_equal(query_result_matched(result), 0);
        buffer_release(&bytes);
    }
    query_result_free(result);
    query_free(query);
}

/* Another version of us does not know a column, or knows it as something else. */
static void columns_that_a_part_lacks_are_not_known(void **unused)
{
    struct pet pet = {.name = "Tom", .kind = "cat", .weight = 5, .age_s = 3};
    struct query *query =
        pet_query(&(struct query_spec){.by = "kind", .show = "weight,age,count(tame),count"});
    struct query_result *result = new_result(query);
    pets_add(result, &pet, 1);
    struct buffer bytes = partial_of(
        &(struct query_spec){
            .by = "kind", .show = "owner,nothing,sum(none),weight,count", .lenient = true},
        &pet, 1);
    assert_int_equal(query_partial_read(result, bytes.data, bytes.len), 0);
    char *text = result_text(result);
    assert_non_null(strstr(text, "\"missing\":[\"age\",\"count(tame)\"]"));
    assert_non_null(strstr(text, "{\"kind\":\"cat\",\"weight\":10,\"age\":3,\"count(tame)\":1,"
                                 "\"count\":2,\"at_least\":[\"age\",\"count(tame)\"]}"));
    free(text);
    buffer_release(&bytes);
    /* It stays known that something is missing when the merged answer is sent on. */
    struct query_result *next = new_result(query);
    assert_int_equal(query_partial_write(result, &bytes), 0);
    assert_int_equal(query_partial_read(next, bytes.data, bytes.len), 0);
    assert_true(query_result_missing(next, 2));
    assert_false(query_result_missing(next, 1));
    buffer_release(&bytes);
    query_result_free(next);
    query_result_free(result);
    query_free(query);
}

static void a_part_says_what_it_answers_and_where_it_comes_from(void **unused)
{
    struct query *query = NULL;
    struct query_error error;
    struct query_spec spec = {.table = "exited",
                              .by = "user",
                              .where = "pid>1",
                              .sort = "count",
                              .show = "count",
                              .limit = 3};
    assert_int_equal(query_new(&spec, &query, &error), 0);
    struct query_result *result = new_result(query);
    struct query_world world = {.node = "here", .viewer_uid = 1000, .now_real_ns = 77};
    assert_int_equal(query_run(query, &world, result), 0);
    struct buffer bytes = BUFFER_INIT(1 << 20);
    struct query_partial_head *head = NULL;
    assert_int_equal(query_partial_write(result, &bytes), 0);
    assert_int_equal(query_partial_head(bytes.data, bytes.len, &head), 0);
    assert_string_equal(head->spec.table, "exited");
    assert_string_equal(head->spec.by, "user");
    assert_string_equal(head->spec.where, "pid>1");
    assert_string_equal(head->spec.show, "count");
    assert_string_equal(head->spec.sort, "count");
    assert_int_equal(head->spec.limit, 3);
    assert_string_equal(head->origin.node, "here");
    assert_false(head->origin.sees_all);
    assert_int_equal(head->origin.viewer_uid, 1000);
    assert_int_equal(head->origin.time_ns, 77);
    free(head);
    struct query_result *whole = new_result(query);
    assert_int_equal(query_partial_read(whole, bytes.data, bytes.len), 0);
    assert_string_equal(query_result_origin(whole)->node, "here");
    world.node = "there";
    world.now_real_ns = 70;
    assert_int_equal(query_run(query, &world, whole), 0);
    assert_string_equal(query_result_origin(whole)->node, "");
    assert_int_equal(query_result_origin(whole)->time_ns, 70);
    for (size_t len = 0; len < bytes.len; len++) {
        head = NULL;
        int r = query_partial_head(bytes.data, len, &head);
        assert_true(r == 0 || r == -EINVAL);
        free(head);
    }
    buffer_release(&bytes);
    query_result_free(result);
    query_result_free(whole);
    query_free(query);
}

/* A machine that may send few rows only says that there were more. */
static void a_part_that_was_cut_is_incomplete(void **unused)
{
    static struct pet pets[3000];
    random_pets(pets, ARRAY_LEN(pets));
    struct buffer cut = partial_of(&(struct query_spec){.show = "age", .sort = "age", .limit = 5},
                                   pets, ARRAY_LEN(pets));
    static const struct {
        uint64_t limit;
        bool incomplete;
    } rows[] = {{0, true}, {6, true}, {5, false}, {2, false}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct query *query =
            pet_query(&(struct query_spec){.show = "age", .sort = "age", .limit = rows[i].limit});
        struct query_result *result = new_result(query);
        assert_int_equal(query_partial_read(result, cut.data, cut.len), 0);
        assert_int_equal(query_result_incomplete(result), rows[i].incomplete);
        assert_int_equal(query_result_matched(result), ARRAY_LEN(pets));
        query_result_free(result);
        query_free(query);
    }
    buffer_release(&cut);
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
        cmocka_unit_test(damaged_bytes_add_nothing_or_make_sense),
        cmocka_unit_test(answers_to_another_question_are_refused),
        cmocka_unit_test(columns_that_a_part_lacks_are_not_known),
        cmocka_unit_test(a_part_says_what_it_answers_and_where_it_comes_from),
        cmocka_unit_test(a_part_that_was_cut_is_incomplete),
        cmocka_unit_test(a_failing_allocation_is_an_error_or_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
