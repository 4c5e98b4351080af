/* Limits of partial results from other machines: lengths, numbers of points, and how many rows they claim to have. */
#include <errno.h>

#include "query/partial.h"
#include "query_fixture.h"

static void put_text(struct buffer *to, const char *text)
{
    varint_put(to, strlen(text));
    buffer_append(to, text, strlen(text));
}

struct column {
    const char *name;
    uint64_t kind;
};

/* All up to the number of counters. */
static void put_question(struct buffer *to, const char *table, uint64_t keys,
                         const struct column columns[2], uint64_t limit, bool others)
{
    buffer_append(to, PARTIAL_MAGIC, 3);
    buffer_append_char(to, PARTIAL_VERSION);
    put_text(to, table);
    for (int i = 0; i < 4; i++)
        put_text(to, "");
    varint_put(to, limit);
    varint_put(to, others);
    put_text(to, "liar");
    varint_put(to, 0);
    varint_put(to, 7);
    varint_put(to, keys);
    varint_put(to, 2);
    for (size_t i = 0; i < 2; i++) {
        put_text(to, columns[i].name);
        varint_put(to, columns[i].kind);
    }
}

/* All up to the number of rows. */
static void put_head_of(struct buffer *to, const struct column columns[2], uint64_t limit,
                        uint64_t pruned, uint64_t missing)
{
    put_question(to, "pets", 0, columns, limit, false);
    varint_put(to, pruned);
    varint_put(to, 0);
    varint_put(to, 0);
    varint_put(to, missing);
    varint_put(to, 0);
}

static void put_head(struct buffer *to, uint64_t limit, uint64_t pruned)
{
    static const struct column columns[] = {{"meals", QUERY_POINTS}, {"weight", QUERY_BYTES}};
    put_head_of(to, columns, limit, pruned, 0);
}

/* A row with `points` of which `there` are in the bytes. */
static void put_row(struct buffer *to, uint64_t points, uint64_t there)
{
    buffer_append_char(to, QUERY_KNOWN);
    varint_put(to, points);
    for (uint64_t i = 0; i < there; i++) {
        varint_put(to, 1);
        varint_put(to, i);
    }
    buffer_append_char(to, QUERY_KNOWN);
    varint_put(to, 5);
}

struct answer {
    struct query *query;
    struct query_result *result;
    int r;
};

static struct answer read_part_of(const struct buffer *bytes, const char *show, uint64_t limit)
{
    struct answer a = {.query = pet_query(&(struct query_spec){.show = show, .limit = limit})};
    assert_int_equal(query_result_new(a.query, 0, &a.result), 0);
    a.r = query_partial_read(a.result, bytes->data, bytes->len);
    return a;
}

static struct answer read_part(const struct buffer *bytes, uint64_t limit)
{
    return read_part_of(bytes, "meals,weight", limit);
}

static void release(struct answer *a)
{
    query_result_free(a->result);
    query_free(a->query);
}

static void a_list_has_so_many_points_at_most_and_all_that_it_claims(void **unused)
{
    static const struct {
        uint64_t points, there;
        int r;
    } cases[] = {
        {0, 0, 0},
        {1, 1, 0},
        {QUERY_POINTS_MAX, QUERY_POINTS_MAX, 0},
        {QUERY_POINTS_MAX + 1, QUERY_POINTS_MAX + 1, -EINVAL},
        {2, 1, -EINVAL},
        {3, 1, -EINVAL},
        {QUERY_POINTS_MAX, 10, -EINVAL},
        {UINT64_MAX, 10, -EINVAL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct buffer bytes = BUFFER_INIT(4 << 20);
        put_head(&bytes, 0, 0);
        varint_put(&bytes, 1);
        put_row(&bytes, cases[i].points, cases[i].there);
        struct answer a = read_part(&bytes, 0);
        assert_int_equal(a.r, cases[i].r);
        assert_int_equal(query_result_matched(a.result), cases[i].r == 0);
        release(&a);
        buffer_release(&bytes);
    }
}

static void rows_are_as_many_as_claimed(void **unused)
{
    static const struct {
        uint64_t rows, there;
        int r;
    } cases[] = {{0, 0, 0}, {2, 2, 0}, {3, 2, -EINVAL}, {1, 2, -EINVAL}, {UINT64_MAX, 2, -EINVAL}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct buffer bytes = BUFFER_INIT(1 << 16);
        put_head(&bytes, 0, 0);
        varint_put(&bytes, cases[i].rows);
        for (uint64_t k = 0; k < cases[i].there; k++)
            put_row(&bytes, 1, 1);
        struct answer a = read_part(&bytes, 0);
        assert_int_equal(a.r, cases[i].r);
        assert_int_equal(query_result_matched(a.result), cases[i].r ? 0 : cases[i].there);
        release(&a);
        buffer_release(&bytes);
    }
}

/* A part that stops anywhere is refused, and adds nothing. */
static void a_part_that_stops_early_is_refused(void **unused)
{
    struct buffer bytes = BUFFER_INIT(1 << 16);
    put_head(&bytes, 0, 3);
    varint_put(&bytes, 2);
    put_row(&bytes, 2, 2);
    put_row(&bytes, 1, 1);
    size_t whole = bytes.len;
    for (size_t len = 0; len <= whole; len++) {
        /* A copy of its own, so that a sanitizer sees a read past it. */
        char *copy = malloc(len + 1);
        memcpy(copy, bytes.data, len);
        struct buffer cut = {.data = copy, .len = len};
        struct answer a = read_part(&cut, 0);
        assert_int_equal(a.r, len == whole ? 0 : -EINVAL);
        assert_int_equal(query_result_matched(a.result), len == whole ? 5 : 0);
        release(&a);
        struct query_partial_head *head = NULL;
        (void)query_partial_head(copy, len, &head);
        free(head);
        free(copy);
    }
    buffer_release(&bytes);
}

/* Columns are told apart by name and kind; of two that are the same the first counts. */
static void columns_of_a_part_are_ours_or_are_left_out(void **unused)
{
    static const struct {
        struct column columns[2];
        uint64_t missing; /* of its columns, what parts that were merged into it lacked */
        uint64_t ours;    /* of our one column, likewise */
        const char *rows;
    } cases[] = {
        {{{"weight", QUERY_BYTES}, {"weight", QUERY_BYTES}}, 0, 0, "[{\"weight\":5}]"},
        {{{"weight", QUERY_NUMBER}, {"weight", QUERY_BYTES}}, 0, 0, "[{\"weight\":7}]"},
        {{{"other", QUERY_BYTES}, {"weight", QUERY_BYTES}}, 0, 0, "[{\"weight\":7}]"},
        {{{"other", QUERY_BYTES}, {"weight", QUERY_BYTES}}, 1, 0, "[{\"weight\":7}]"},
        {{{"other", QUERY_BYTES}, {"weight", QUERY_BYTES}}, 2, 1, "[{\"weight\":7}]"},
        {{{"weight", QUERY_BYTES}, {"other", QUERY_BYTES}}, 1, 1, "[{\"weight\":5}]"},
        {{{"other", QUERY_BYTES}, {"another", QUERY_BYTES}}, 0, 1, "[{\"weight\":null}]"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct buffer bytes = BUFFER_INIT(1 << 16);
        put_head_of(&bytes, cases[i].columns, 0, 0, cases[i].missing);
        varint_put(&bytes, 1);
        for (uint64_t value = 5; value < 9; value += 2) {
            buffer_append_char(&bytes, QUERY_KNOWN);
            varint_put(&bytes, value);
        }
        struct answer a = read_part_of(&bytes, "weight", 0);
        assert_int_equal(a.r, 0);
        /* The second column is hidden, to sort by. */
        assert_int_equal(a.result->missing & ~UINT64_C(2), cases[i].ours);
        char *text = rows_text(a.result);
        assert_string_equal(text, cases[i].rows);
        free(text);
        release(&a);
        buffer_release(&bytes);
    }
}

/* Only a group can have several values in one cell. */
static void a_single_row_is_not_mixed(void **unused)
{
    static const struct column columns[2] = {{"owner", QUERY_NUMBER}, {"weight", QUERY_BYTES}};
    static const struct {
        char state;
        int r;
    } cases[] = {
        {QUERY_UNKNOWN, 0}, {QUERY_MIXED, -EINVAL}, {QUERY_MIXED | QUERY_UNKNOWN, -EINVAL}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct buffer bytes = BUFFER_INIT(1 << 16);
        put_head_of(&bytes, columns, 0, 0, 0);
        varint_put(&bytes, 1);
        buffer_append_char(&bytes, cases[i].state);
        buffer_append_char(&bytes, 0);
        struct answer a = read_part_of(&bytes, "owner,weight", 0);
        assert_int_equal(a.r, cases[i].r);
        release(&a);
        buffer_release(&bytes);
    }
}

/* A node is called what the reader calls it, whatever its bytes say; a cell that tells of none stays so. */
static void a_part_is_of_the_node_that_it_came_from(void **unused)
{
    static const struct column columns[][2] = {{{"node", QUERY_TEXT}, {"total", QUERY_BYTES}},
                                               {{"node", QUERY_TEXT}, {"count", QUERY_NUMBER}}};
    static const struct {
        const char *from, *rows[2];
    } cases[] = {
        {NULL,
         {"[{\"node\":\"liar\",\"total\":5},{\"node\":null,\"total\":5}]",
          "[{\"node\":\"liar\",\"count\":5},{\"node\":null,\"count\":5}]"}},
        {"honest machine",
         {"[{\"node\":\"honest machine\",\"total\":5},{\"node\":null,\"total\":5}]",
          "[{\"node\":\"honest machine\",\"count\":5},{\"node\":null,\"count\":5}]"}},
    };
    for (size_t i = 0; i < 4; i++) {
        size_t grouped = i % 2;
        struct query_spec spec = {.table = "system",
                                  .by = grouped ? "node" : NULL,
                                  .show = grouped ? "count" : "node,total",
                                  .sort = "node"};
        struct query_error error;
        struct answer a = {0};
        struct buffer bytes = BUFFER_INIT(1 << 16);
        put_question(&bytes, "system", grouped, columns[grouped], 0, false);
        for (int k = 0; k < 5; k++) /* counters and others */
            varint_put(&bytes, 0);
        varint_put(&bytes, 2);
        for (int k = 0; k < 2; k++) {
            buffer_append_char(&bytes, k ? 0 : QUERY_KNOWN);
            if (!k)
                put_text(&bytes, "liar");
            buffer_append_char(&bytes, QUERY_KNOWN);
            varint_put(&bytes, 5);
        }
        uint64_t missing = 8;
        assert_int_equal(query_new(&spec, &a.query, &error), 0);
        assert_int_equal(query_result_new(a.query, 0, &a.result), 0);
        struct query_partial_from from = {.node = cases[i / 2].from, .ret_missing = &missing};
        assert_int_equal(query_partial_read_from(a.result, bytes.data, bytes.len, &from), 0);
        assert_string_equal(query_result_origin(a.result)->node, from.node ? from.node : "liar");
        assert_true(query_result_origin(a.result)->sees_all);
        assert_int_equal(query_result_origin(a.result)->time_ns, 7);
        assert_int_equal(missing, 8); /* nothing is missing here; what was is kept */
        char *text = rows_text(a.result);
        assert_string_equal(text, cases[i / 2].rows[grouped]);
        free(text);
        release(&a);
        buffer_release(&bytes);
    }
}

/* What a part does not count is not known: that is not 0. */
static void a_count_that_a_part_lacks_is_not_known(void **unused)
{
    static const struct column columns[2] = {{"kind", QUERY_TEXT}, {"future", QUERY_BYTES}};
    struct buffer bytes = BUFFER_INIT(1 << 16);
    put_question(&bytes, "pets", 1, columns, 0, false);
    for (int i = 0; i < 5; i++)
        varint_put(&bytes, 0);
    varint_put(&bytes, 1);
    buffer_append_char(&bytes, QUERY_KNOWN);
    put_text(&bytes, "cat");
    buffer_append_char(&bytes, 0);
    struct answer a = {.query = pet_query(&(struct query_spec){.by = "kind", .show = "count"})};
    assert_int_equal(query_result_new(a.query, 0, &a.result), 0);
    assert_int_equal(query_partial_read(a.result, bytes.data, bytes.len), 0);
    char *text = rows_text(a.result);
    assert_string_equal(text, "[{\"kind\":\"cat\",\"count\":null}]");
    free(text);
    assert_true(query_result_missing(a.result, 1));
    release(&a);
    buffer_release(&bytes);
}

/* Rows that a part dropped add up to what is known of them. */
static void others_of_a_part_may_be_unknown(void **unused)
{
    static const struct column columns[2] = {{"weight", QUERY_BYTES}, {"full", QUERY_PERCENT}};
    static const struct {
        unsigned state;
        uint64_t per;
        int r;
    } cases[] = {{QUERY_UNKNOWN, 0, 0},
                 {QUERY_UNKNOWN, 4, -EINVAL},
                 {QUERY_KNOWN, 4, 0},
                 {QUERY_KNOWN, 0, -EINVAL}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct buffer bytes = BUFFER_INIT(1 << 16);
        put_question(&bytes, "pets", 0, columns, 1, true);
        varint_put(&bytes, 3); /* dropped */
        for (int k = 0; k < 3; k++)
            varint_put(&bytes, 0);
        varint_put(&bytes, 1); /* others */
        buffer_append_char(&bytes, QUERY_KNOWN);
        varint_put(&bytes, 30);
        buffer_append_char(&bytes, (char)(cases[i].state | (cases[i].per ? PARTIAL_PER : 0)));
        if (cases[i].state & QUERY_KNOWN)
            varint_put(&bytes, 1);
        if (cases[i].per)
            varint_put(&bytes, cases[i].per);
        varint_put(&bytes, 0); /* rows */
        struct answer a = {
            .query = pet_query(&(struct query_spec){
                .show = "weight,full", .sort = "-weight", .limit = 1, .others = true})};
        assert_int_equal(query_result_new(a.query, 0, &a.result), 0);
        assert_int_equal(query_partial_read(a.result, bytes.data, bytes.len), cases[i].r);
        assert_int_equal(query_result_matched(a.result), cases[i].r ? 0 : 3);
        release(&a);
        buffer_release(&bytes);
    }
}

/* Rows that a part dropped are missed where more were asked for than it sent. */
static void a_cut_part_is_incomplete_where_more_is_asked_for(void **unused)
{
    static const struct {
        uint64_t sent, pruned, asked;
        bool incomplete;
    } cases[] = {
        {1, 0, 0, false}, {1, 3, 0, true},  {1, 3, 1, false},
        {1, 3, 2, true},  {2, 3, 1, false}, {0, 3, 1, true}, /* it does not say how many it sent */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct buffer bytes = BUFFER_INIT(1 << 16);
        put_head(&bytes, cases[i].sent, cases[i].pruned);
        varint_put(&bytes, 1);
        put_row(&bytes, 1, 1);
        struct answer a = read_part(&bytes, cases[i].asked);
        assert_int_equal(a.r, 0);
        assert_int_equal(query_result_incomplete(a.result), cases[i].incomplete);
        release(&a);
        buffer_release(&bytes);
    }
}

static void a_part_that_is_too_long_is_not_looked_at(void **unused)
{
    struct answer a =
        read_part(&(struct buffer){.data = (char *)1, .len = QUERY_PARTIAL_MAX + 1}, 0);
    assert_int_equal(a.r, -EINVAL);
    release(&a);
    struct query_partial_head *head = NULL;
    assert_int_equal(query_partial_head((char *)1, (size_t)QUERY_PARTIAL_MAX + 1, &head), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_has_so_many_points_at_most_and_all_that_it_claims),
        cmocka_unit_test(rows_are_as_many_as_claimed),
        cmocka_unit_test(a_part_that_stops_early_is_refused),
        cmocka_unit_test(columns_of_a_part_are_ours_or_are_left_out),
        cmocka_unit_test(a_single_row_is_not_mixed),
        cmocka_unit_test(a_part_is_of_the_node_that_it_came_from),
        cmocka_unit_test(a_count_that_a_part_lacks_is_not_known),
        cmocka_unit_test(others_of_a_part_may_be_unknown),
        cmocka_unit_test(a_cut_part_is_incomplete_where_more_is_asked_for),
        cmocka_unit_test(a_part_that_is_too_long_is_not_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
