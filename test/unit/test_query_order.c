/* The order of rows: cell by cell as cell_compare() has it, however many rows there are and however much
 * they share. */
#include "query/result.h"
#include "query_fixture.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

enum { PETS_MAX = 3000, NAME_MAX_BYTES = 96, ROUNDS = 60 };

static uint64_t random_state = 88172645463325252u;

static uint64_t random_below(uint64_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % n;
}

/* Names that differ in any byte, in their length, or not at all. */
static void random_name(char name[static NAME_MAX_BYTES])
{
    size_t len = random_below(4) ? random_below(NAME_MAX_BYTES) : random_below(10);
    memset(name, 'm', len);
    name[len] = '\0';
    if (len && random_below(3))
        name[random_below(len)] = (char)('k' + random_below(4));
}

static void random_pets(struct pet *pets, char (*names)[NAME_MAX_BYTES], size_t n, size_t n_names)
{
    static const char *const kinds[] = {"cat", "dog", "dogfish", "dogfishes", NULL};
    static const uint64_t weights[] = {
        0,        1,           255,          256,         65536, 1 << 24, UINT64_MAX / 3,
        PET_NONE, PET_UNKNOWN, PET_NONE - 1, PET_NONE - 2};
    for (size_t i = 0; i < n_names; i++)
        random_name(names[i]);
    for (size_t i = 0; i < n; i++)
        pets[i] = (struct pet){
            .name = random_below(20) ? names[random_below(n_names)] : NULL,
            .kind = kinds[random_below(ARRAY_LEN(kinds))],
            .weight = random_below(2) ? weights[random_below(ARRAY_LEN(weights))]
                                      : random_below(UINT64_C(1) << random_below(60)),
            .age_s = random_below(900),
            .eaten = random_below(5),
            .bowl = random_below(4) * 2,
            .owner = (uint32_t)random_below(3),
            .tame = random_below(2),
        };
}

static int compare(const struct query *q, const struct cell *a, const struct cell *b)
{
    int order = 0;
    for (size_t i = 0; i < q->n_sorts && !order; i++) {
        size_t o = q->sorts[i].output;
        order = cell_compare(&q->outputs[o], &a[o], &b[o], q->sorts[i].descending);
    }
    for (size_t o = 0; o < q->n_outputs && !order; o++)
        order = cell_compare(&q->outputs[o], &a[o], &b[o], false);
    return order;
}

static void check_order(const struct query_result *result)
{
    const struct query *q = result->query;
    static bool seen[PETS_MAX];
    memset(seen, 0, sizeof(seen));
    assert_int_equal(result->n_order, result->n_rows);
    for (size_t i = 0; i < result->n_order; i++) {
        uint32_t row = result->order[i];
        assert_true(row < result->n_rows && !seen[row]);
        seen[row] = true;
        if (i > 0)
            assert_true(compare(q, result->cells + result->order[i - 1] * q->n_outputs,
                                result->cells + row * q->n_outputs) <= 0);
    }
}

static const struct query_spec specs[] = {
    {.show = "weight,name", .sort = "weight"},
    {.show = "weight,name", .sort = "-weight"},
    {.show = "name,age", .sort = "name"},
    {.show = "age,name", .sort = "-name,tame"},
    {.show = "kind,weight,name", .sort = "-kind,owner,-weight"},
    {.show = "age", .sort = "tame,-owner,trend"},
    {.show = "tame,owner,kind"}, /* many rows that nothing tells apart */
    {.show = "guess,full,name", .sort = "-guess,full"},
    {.show = "name", .sort = "-full,-trend"},
    {.show = "kind", .sort = "meals,-path,-meals"},
    {.by = "name,kind", .show = "avg(age),weight,any(name)", .sort = "-avg(age),-weight"},
    {.by = "weight", .show = "avg(trend),count", .sort = "-count,avg(trend)"},
};

static void rows_come_in_the_order_of_their_cells(void **unused)
{
    static struct pet pets[PETS_MAX];
    static char names[PETS_MAX][NAME_MAX_BYTES];
    for (size_t s = 0; s < ARRAY_LEN(specs); s++) {
        struct query *query = pet_query(&specs[s]);
        for (int round = 0; round < ROUNDS; round++) {
            struct query_result *result = NULL;
            size_t n = random_below(round % 4 == 0 ? PETS_MAX : 80);
            random_pets(pets, names, n, 1 + random_below(round % 3 ? 12 : PETS_MAX));
            assert_int_equal(query_result_new(query, 0, &result), 0);
            pets_add(result, pets, n);
            assert_int_equal(query_result_finish(result), 0);
            check_order(result);
            query_result_free(result);
        }
        query_free(query);
    }
}

/* Bytes of points are no text: a time may have only ones. */
static void points_with_any_bytes_are_sorted(void **unused)
{
    struct query *query = pet_query(&(struct query_spec){.show = "meals", .sort = "meals"});
    struct query_result *result = NULL;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    static struct query_point points[100];
    for (size_t i = 0; i < ARRAY_LEN(points); i++) {
        points[i] = (struct query_point){UINT64_MAX - random_below(3) * (UINT64_C(1) << 56),
                                         UINT64_MAX - random_below(3)};
        struct cell cell = {
            .text = (const char *)&points[i], .len = sizeof(points[i]), .state = QUERY_KNOWN};
        assert_int_equal(result_add_cells(result, &cell), 0);
    }
    assert_int_equal(query_result_finish(result), 0);
    check_order(result);
    query_result_free(result);
    query_free(query);
}

/* A sort must not go as deep as texts are long. */
static void long_texts_that_differ_late_are_sorted(void **unused)
{
    enum { LEN = 2 << 20, ROWS = 12 };
    struct query *query = pet_query(&(struct query_spec){.show = "name", .sort = "name"});
    struct query_result *result = NULL;
    char *texts = malloc((size_t)ROWS * LEN);
    memset(texts, 'x', (size_t)ROWS * LEN);
    assert_int_equal(query_result_new(query, 0, &result), 0);
    for (size_t i = 0; i < ROWS; i++) {
        struct cell cell = {.text = texts + i * LEN, .len = LEN, .state = QUERY_KNOWN};
        texts[(i + 1) * LEN - 1] = (char)('a' + i * 7 % ROWS);
        assert_int_equal(result_add_cells(result, &cell), 0);
    }
    assert_int_equal(query_result_finish(result), 0);
    check_order(result);
    query_result_free(result);
    query_free(query);
    free(texts);
}

/* Enough pets for a limit to drop some of them, then one more. */
static void check_first(struct query_result *result, const struct pet *many, const struct pet *one,
                        const char *first)
{
    for (size_t i = 0; i < 2 * RESULT_PRUNE_SLACK; i++)
        pets_add(result, many, 1);
    pets_add(result, one, 1);
    char *rows = rows_text(result);
    assert_memory_equal(rows, first, strlen(first));
    assert_int_equal(query_result_matched(result), 2 * RESULT_PRUNE_SLACK + 1);
    free(rows);
}

static void a_late_row_that_comes_first_is_kept(void **unused)
{
    struct query *query =
        pet_query(&(struct query_spec){.show = "name", .sort = "name", .limit = 3});
    struct query_result *result = NULL;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    /* The byte is beyond the character, and what stands for it is not. */
    check_first(result, &(struct pet){.name = "\xf0\x9f\x90\x88"}, &(struct pet){.name = "\xff"},
                "[{\"name\":\"\xef\xbf\xbd\"}");
    query_result_free(result);
    query_free(query);
}

static void a_result_forgets_what_it_dropped(void **unused)
{
    struct query *query =
        pet_query(&(struct query_spec){.show = "weight", .sort = "-weight", .limit = 3});
    struct query_result *result = NULL;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    check_first(result, &(struct pet){.weight = 500}, &(struct pet){.weight = 501},
                "[{\"weight\":501},{\"weight\":500}");
    query_result_reset(result);
    check_first(result, &(struct pet){.weight = 7}, &(struct pet){.weight = 6},
                "[{\"weight\":7},{\"weight\":7}");
    query_result_free(result);
    query_free(query);
}

/* All pets in one result, or in parts that are merged, each of which may have dropped rows by then. */
static char *answer_text(const struct query *query, const struct pet *pets, size_t n, size_t parts)
{
    struct query_result *result = NULL;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    for (size_t i = 0; i < parts; i++) {
        struct query_result *part = NULL;
        size_t begin = n * i / parts, end = n * (i + 1) / parts;
        assert_int_equal(query_result_new(query, 0, &part), 0);
        pets_add(part, pets + begin, end - begin);
        assert_int_equal(query_result_merge(result, part), 0);
        query_result_free(part);
    }
    if (parts == 0)
        pets_add(result, pets, n);
    char *text = rows_text(result);
    query_result_free(result);
    return text;
}

static void a_limit_gives_the_first_rows_of_all(void **unused)
{
    static struct pet pets[2 * PETS_MAX];
    static char names[2 * PETS_MAX][NAME_MAX_BYTES];
    for (size_t s = 0; s < ARRAY_LEN(specs); s++) {
        struct query_spec spec = specs[s];
        spec.where = s % 2 ? "age<800" : NULL;
        struct query *whole = pet_query(&spec);
        for (size_t parts = 0; parts < 4; parts++) {
            spec.limit = 1 + random_below(parts ? 300 : 5);
            struct query *limited = pet_query(&spec);
            random_pets(pets, names, ARRAY_LEN(pets), 1 + random_below(ARRAY_LEN(pets)));
            char *all = answer_text(whole, pets, ARRAY_LEN(pets), 0);
            char *first = answer_text(limited, pets, ARRAY_LEN(pets), parts);
            size_t len = strlen(first) - 1; /* without the bracket */
            assert_true(len > 1);
            assert_memory_equal(first, all, len);
            assert_true(all[len] == ',' || strcmp(first, all) == 0);
            free(all);
            free(first);
            query_free(limited);
        }
        query_free(whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_in_the_order_of_their_cells),
        cmocka_unit_test(points_with_any_bytes_are_sorted),
        cmocka_unit_test(long_texts_that_differ_late_are_sorted),
        cmocka_unit_test(a_late_row_that_comes_first_is_kept),
        cmocka_unit_test(a_result_forgets_what_it_dropped),
        cmocka_unit_test(a_limit_gives_the_first_rows_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
