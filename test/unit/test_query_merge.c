/* Partial results: whatever rows are in which part, and however parts are merged or sent, the answer is
 * that of one pass. */
#include "fault.h"
#include "query/partial.h"
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
    {.show = "name,speed,owner", .sort = "-speed", .limit = 3, .others = true},
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
    /* It stays known that something is missing, whatever comes after it, and under whatever name it came. */
    bytes = partial_of(&(struct query_spec){.by = "kind", .show = "weight,age,count(tame),count"},
                       &pet, 1);
    assert_int_equal(query_partial_read_from(result, bytes.data, bytes.len,
                                             &(struct query_partial_from){.node = "node"}),
                     0);
    assert_true(query_result_missing(result, 2));
    assert_true(query_result_missing(result, 3));
    assert_false(query_result_missing(result, 1));
    buffer_release(&bytes);
    /* Also when the merged answer is sent on. */
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

/* ---- what another machine may send ---- */

/* One lie each; SOUND has none. */
enum lie {
    SOUND,
    MAGIC,
    VERSION,
    TABLE,
    WHERE,
    OTHERS,
    VIEWER,
    NO_COLUMNS,
    MORE_KEYS,
    KIND,
    FLAGS,
    OTHERS_NOT_ASKED_FOR,
    ROWS_THAT_ARE_NOT_THERE,
    STATE,
    KEY_WITH_MARKS,
    KEY_UNKNOWN,
    KEY_NOT_UTF8,
    COUNT_UNKNOWN,
    COUNT_MIXED,
    COUNT_WITH_PER,
    SAME_MIXED_AND_KNOWN,
    PART_WITHOUT_WHOLE,
    AVERAGE_WITHOUT_COUNT,
    AVERAGE_OF_TOO_MANY,
    PART_OF_TOO_MUCH,
    SAME_MIXED_WITH_MARKS,
    YES_OF_TWO,
    POINTS_AT_ONE_MOMENT,
    POINTS_BACKWARDS,
    POINTS_THAT_ARE_NOT_THERE,
    TRAILING_BYTE,
    OTHERS_MIXED_AND_KNOWN,
    OTHERS_PART_OF_NOTHING,
    OTHERS_AVERAGE_OF_TOO_MANY,
    OTHERS_COUNT_WITH_PER,
    LIES
};

static void forge_text(struct buffer *to, const char *text)
{
    varint_put(to, strlen(text));
    buffer_append(to, text, strlen(text));
}

/* A cell: state and marks, then the number, and what it is of. */
static void forge_cell(struct buffer *to, unsigned state, uint64_t number, uint64_t per)
{
    buffer_append_char(to, (char)(state | (per ? PARTIAL_PER : 0)));
    if (state & QUERY_KNOWN)
        varint_put(to, number);
    if (per)
        varint_put(to, per);
}

static void forge_row(struct buffer *to, enum lie lie)
{
    unsigned marks = QUERY_ESTIMATE << PARTIAL_MARKS_SHIFT;
    buffer_append_char(to, (char)(lie == KEY_WITH_MARKS ? QUERY_KNOWN | marks
                                  : lie == KEY_UNKNOWN  ? QUERY_KNOWN | QUERY_UNKNOWN
                                  : lie == STATE        ? QUERY_KNOWN | 0x80
                                                        : QUERY_KNOWN));
    forge_text(to, lie == KEY_NOT_UTF8 ? "c\xff" : "cat");
    forge_cell(to,
               lie == COUNT_UNKNOWN ? QUERY_UNKNOWN
               : lie == COUNT_MIXED ? QUERY_MIXED
                                    : QUERY_KNOWN,
               3, lie == COUNT_WITH_PER ? 2 : 0);
    forge_cell(to,
               lie == SAME_MIXED_AND_KNOWN    ? QUERY_MIXED | QUERY_KNOWN
               : lie == SAME_MIXED_WITH_MARKS ? QUERY_MIXED | marks
                                              : QUERY_MIXED,
               1, 0);
    forge_cell(to, QUERY_KNOWN, 1,
               lie == PART_WITHOUT_WHOLE ? 0
               : lie == PART_OF_TOO_MUCH ? (uint64_t)INT64_MAX + 1
                                         : 4);
    forge_cell(to, QUERY_KNOWN, 30 * NS_PER_S,
               lie == AVERAGE_WITHOUT_COUNT ? 0
               : lie == AVERAGE_OF_TOO_MANY ? (uint64_t)INT64_MAX + 1
                                            : 3);
    forge_cell(to, QUERY_KNOWN, lie == YES_OF_TWO ? 2 : 1, 0);
    buffer_append_char(to, QUERY_KNOWN);
    varint_put(to, lie == POINTS_THAT_ARE_NOT_THERE ? UINT64_C(1) << 60 : 2);
    varint_put(to, 1000);
    varint_put(to, 5);
    varint_put(to, lie == POINTS_AT_ONE_MOMENT ? 0 : lie == POINTS_BACKWARDS ? UINT64_MAX : 10);
    varint_put(to, 6);
}

/* What the rows that it dropped add up to. */
static void forge_others(struct buffer *to, enum lie lie)
{
    buffer_append_char(to, QUERY_MIXED); /* their kinds, which no row may have */
    forge_cell(to, QUERY_KNOWN, 30, lie == OTHERS_COUNT_WITH_PER ? 2 : 0);
    forge_cell(to, lie == OTHERS_MIXED_AND_KNOWN ? QUERY_MIXED | QUERY_KNOWN : QUERY_MIXED, 1, 0);
    forge_cell(to, QUERY_KNOWN, 1, lie == OTHERS_PART_OF_NOTHING ? 0 : 8);
    forge_cell(to, QUERY_KNOWN, 60 * NS_PER_S,
               lie == OTHERS_AVERAGE_OF_TOO_MANY ? (uint64_t)INT64_MAX + 1 : 30);
    forge_cell(to, QUERY_KNOWN, 1, 0);
    forge_cell(to, QUERY_UNKNOWN, 0, 0);
}

/* `pruned` rows are not sent; 0: others are not asked for. */
static void forge_part(struct buffer *to, enum lie lie, uint64_t pruned)
{
    static const struct {
        const char *name;
        uint64_t kind;
    } columns[] = {{"kind", QUERY_TEXT},    {"count", QUERY_NUMBER},
                   {"owner", QUERY_NUMBER}, {"full", QUERY_PERCENT},
                   {"avg(age)", QUERY_AGE}, {"max(tame)", QUERY_YES},
                   {"meals", QUERY_POINTS}, {"future", (QUERY_FRAMES + 1) - 1}};
    buffer_append(to, lie == MAGIC ? "MPX" : PARTIAL_MAGIC, 3);
    buffer_append_char(to, (char)(PARTIAL_VERSION + (lie == VERSION)));
    forge_text(to, lie == TABLE ? "cars" : "pets");
    forge_text(to, "kind");
    forge_text(to, lie == WHERE ? "tame" : "");
    forge_text(to, "");
    forge_text(to, "");
    varint_put(to, pruned ? 1 : 0);
    varint_put(to, lie == OTHERS ? 2 : pruned > 0);
    forge_text(to, "n");
    varint_put(to, (uint64_t)UINT32_MAX + 1 + (lie == VIEWER));
    varint_put(to, 7);
    varint_put(to, lie == MORE_KEYS ? 2 : 1);
    varint_put(to, lie == NO_COLUMNS ? 0 : 7);
    for (size_t i = 0; i < 7; i++) {
        forge_text(to, columns[i].name);
        varint_put(to, i == 1 && lie == KIND ? (QUERY_FRAMES + 1) : columns[i].kind);
    }
    varint_put(to, pruned);
    varint_put(to, 0);
    varint_put(to, lie == FLAGS ? PARTIAL_INCOMPLETE + 1 : 0);
    varint_put(to, 0);
    bool others = pruned > 0 || lie == OTHERS_NOT_ASKED_FOR;
    varint_put(to, others);
    if (others)
        forge_others(to, lie);
    varint_put(to, lie == ROWS_THAT_ARE_NOT_THERE ? UINT64_C(1) << 50 : 1);
    forge_row(to, lie);
    if (lie == TRAILING_BYTE)
        buffer_append_char(to, 0);
}

static void a_part_with_a_lie_is_refused_as_a_whole(void **unused)
{
    struct query *query = pet_query(
        &(struct query_spec){.by = "kind", .show = "count,owner,full,avg(age),max(tame),meals"});
    for (enum lie lie = SOUND; lie < OTHERS_MIXED_AND_KNOWN; lie++) {
        struct query_result *result = new_result(query);
        struct buffer bytes = BUFFER_INIT(1 << 16);
        forge_part(&bytes, lie, 0);
        int r = query_partial_read(result, bytes.data, bytes.len);
        if (r != (lie == SOUND ? 0 : -EINVAL))
            fail_msg("lie %d gives %d", lie, r);
        char *text = result_text(result);
        if (lie == SOUND)
            assert_non_null(strstr(text, "{\"kind\":\"cat\",\"count\":3,\"owner\":null,"
                                         "\"full\":25,\"avg(age)\":10,\"max(tame)\":true,"));
        else
            assert_int_equal(query_result_matched(result), 0);
        free(text);
        buffer_release(&bytes);
        query_result_free(result);
    }
    query_free(query);
}

/* A part without rows: `n` columns that are called "kind", the first `keys` of which are keys. */
static void forge_head(struct buffer *to, const char *where, size_t where_len, const char *node,
                       uint64_t keys, uint64_t n)
{
    buffer_append(to, PARTIAL_MAGIC, 3);
    buffer_append_char(to, PARTIAL_VERSION);
    forge_text(to, "pets");
    forge_text(to, "");
    varint_put(to, where_len);
    buffer_append(to, where, where_len);
    forge_text(to, "");
    forge_text(to, "");
    varint_put(to, 0);
    varint_put(to, 0);
    forge_text(to, node);
    varint_put(to, 0);
    varint_put(to, 7);
    varint_put(to, keys);
    varint_put(to, n);
    for (uint64_t i = 0; i < n; i++) {
        forge_text(to, "kind");
        varint_put(to, QUERY_TEXT);
    }
    for (int i = 0; i < 6; i++) /* counters and rows */
        varint_put(to, 0);
}

static int forged_read(const struct query_spec *spec, uint64_t keys, uint64_t n)
{
    struct query *query = pet_query(spec);
    struct query_result *result = new_result(query);
    struct buffer bytes = BUFFER_INIT(1 << 20);
    forge_head(&bytes, "", 0, "n", keys, n);
    int r = query_partial_read(result, bytes.data, bytes.len);
    buffer_release(&bytes);
    query_result_free(result);
    query_free(query);
    return r;
}

static void a_part_has_all_keys_and_some_columns(void **unused)
{
    const struct query_spec rows = {.show = "kind"}, one = {.by = "kind", .show = "count"},
                            two = {.by = "kind,name", .show = "count"};
    assert_int_equal(forged_read(&rows, 0, 1), 0);
    assert_int_equal(forged_read(&rows, 0, 0), -EINVAL);
    assert_int_equal(forged_read(&rows, 0, QUERY_OUTPUTS_MAX), 0);
    assert_int_equal(forged_read(&rows, 0, QUERY_OUTPUTS_MAX + 1), -EINVAL);
    assert_int_equal(forged_read(&rows, 1, 1), -EINVAL);
    assert_int_equal(forged_read(&one, 1, 1), 0);
    assert_int_equal(forged_read(&one, 0, 1), -EINVAL);
    assert_int_equal(forged_read(&two, 2, 1), -EINVAL);
}

static void head_of_a_part_is_text_of_limited_length(void **unused)
{
    static char text[QUERY_TEXT_MAX + 1], node[300];
    memset(text, 'x', sizeof(text));
    memset(node, 'n', sizeof(node) - 1);
    static const struct {
        size_t len;
        char last;
        int r;
    } cases[] = {{3, 'x', 0},
                 {3, '\0', -EINVAL},
                 {QUERY_TEXT_MAX, 'x', 0},
                 {QUERY_TEXT_MAX + 1, 'x', -EINVAL}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct query_partial_head *head = NULL;
        struct buffer bytes = BUFFER_INIT(1 << 20);
        text[cases[i].len - 1] = cases[i].last;
        forge_head(&bytes, text, cases[i].len, node, 0, 1);
        assert_int_equal(query_partial_head(bytes.data, bytes.len, &head), cases[i].r);
        text[cases[i].len - 1] = 'x';
        if (head) {
            assert_int_equal(strlen(head->spec.where), cases[i].len);
            assert_int_equal(strlen(head->origin.node), sizeof(head->origin.node) - 1);
            assert_true(head->origin.sees_all);
            assert_int_equal(head->origin.time_ns, 7);
        }
        free(head);
        buffer_release(&bytes);
    }
}

/* Two parts, each with rows that it did not send: what all of them add up to. */
static void rows_that_parts_dropped_add_up(void **unused)
{
    struct query *query =
        pet_query(&(struct query_spec){.by = "kind",
                                       .show = "count,owner,full,avg(age),max(tame),meals",
                                       .limit = 1,
                                       .others = true});
    for (enum lie lie = SOUND; lie < LIES; lie++) {
        struct query_result *result = new_result(query);
        struct buffer bytes = BUFFER_INIT(1 << 16);
        forge_part(&bytes, SOUND, 5);
        assert_int_equal(query_partial_read(result, bytes.data, bytes.len), 0);
        buffer_reset(&bytes);
        forge_part(&bytes, lie, 7);
        int r = query_partial_read(result, bytes.data, bytes.len);
        bool sound = lie == SOUND || lie == OTHERS_NOT_ASKED_FOR;
        if (r != (sound ? 0 : -EINVAL))
            fail_msg("lie %d gives %d", lie, r);
        assert_int_equal(query_result_finish(result), 0);
        assert_int_equal(query_result_others(result), sound ? 12 : 5);
        assert_int_equal(query_result_other(result, 1).number, sound ? 60 : 30);
        assert_int_equal(query_result_other(result, 2).state & QUERY_KNOWN, 0);
        assert_int_equal(query_result_other(result, 3).number, sound ? 2 : 1);
        assert_int_equal(query_result_other(result, 3).per, sound ? 16 : 8);
        assert_int_equal(query_result_other(result, 4).number, 2 * NS_PER_S);
        /* The same when it is sent on. */
        struct query_result *next = new_result(query);
        buffer_reset(&bytes);
        assert_int_equal(query_partial_write(result, &bytes), 0);
        assert_int_equal(query_partial_read(next, bytes.data, bytes.len), 0);
        char *here = result_text(result), *there = result_text(next);
        assert_string_equal(there, here);
        free(here);
        free(there);
        query_result_free(next);
        buffer_release(&bytes);
        query_result_free(result);
    }
    query_free(query);
}

/* `from` is a result of `query` with `n` pets, of which `max` are kept, as one viewer asked for it on one node. */
static struct query_result *part_of(const struct query *query, size_t n, size_t max,
                                    const char *node, bool sees_all, uint32_t uid, uint64_t time_ns)
{
    static struct pet pets[9];
    struct query_result *result = NULL;
    random_pets(pets, ARRAY_LEN(pets));
    assert_int_equal(query_result_new(query, max, &result), 0);
    pets_add(result, pets, n);
    struct query_origin origin = {.sees_all = sees_all, .viewer_uid = uid, .time_ns = time_ns};
    snprintf(origin.node, sizeof(origin.node), "%s", node);
    result_add_origin(result, &origin);
    return result;
}

static void merged_answer_is_for_who_may_see_the_least(void **unused)
{
    static const struct {
        bool sees_all[2];
        const char *nodes[2];
        uint64_t times[2];
        bool all;
        const char *node;
        uint64_t time;
    } cases[] = {
        {{true, true}, {"a", "a"}, {5, 7}, true, "a", 5},
        {{true, false}, {"a", "b"}, {7, 5}, false, "", 5},
        {{false, true}, {"a", "b"}, {5, 5}, false, "", 5},
        {{false, false}, {"a", "a"}, {9, 8}, false, "a", 8},
    };
    struct query *query = pet_query(&(struct query_spec){.show = "name"});
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (int sent = 0; sent < 2; sent++) { /* directly, or as bytes */
            struct query_result *parts[2], *whole = new_result(query);
            for (size_t k = 0; k < 2; k++) {
                bool all = cases[i].sees_all[k];
                parts[k] = part_of(query, 5 + k, 4, cases[i].nodes[k], all, all ? 0 : 1000,
                                   cases[i].times[k]);
                struct buffer bytes = BUFFER_INIT(1 << 20);
                if (sent) {
                    assert_int_equal(query_partial_write(parts[k], &bytes), 0);
                    assert_int_equal(query_partial_read(whole, bytes.data, bytes.len), 0);
                } else {
                    assert_int_equal(query_result_merge(whole, parts[k]), 0);
                }
                buffer_release(&bytes);
                query_result_free(parts[k]);
            }
            const struct query_origin *origin = query_result_origin(whole);
            assert_int_equal(origin->sees_all, cases[i].all);
            assert_int_equal(origin->viewer_uid, cases[i].all ? 0 : 1000);
            assert_string_equal(origin->node, cases[i].node);
            assert_int_equal(origin->time_ns, cases[i].time);
            /* What did not fit in a part is counted in the whole. */
            assert_int_equal(query_result_left_out(whole), 1 + 2);
            assert_int_equal(query_result_matched(whole), 5 + 6);
            query_result_free(whole);
        }
    }
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
        cmocka_unit_test(a_part_with_a_lie_is_refused_as_a_whole),
        cmocka_unit_test(a_part_has_all_keys_and_some_columns),
        cmocka_unit_test(head_of_a_part_is_text_of_limited_length),
        cmocka_unit_test(rows_that_parts_dropped_add_up),
        cmocka_unit_test(merged_answer_is_for_who_may_see_the_least),
        cmocka_unit_test(a_part_that_was_cut_is_incomplete),
        cmocka_unit_test(a_failing_allocation_is_an_error_or_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
