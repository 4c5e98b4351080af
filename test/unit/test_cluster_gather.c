/* A question to several nodes on virtual time: who is waited for, for how long, and what the answer says. */
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "check.h"
#include "cluster/gather.h"
#include "query/query.h"

#define MS(n) ((uint64_t)(n)*NS_PER_MS)
enum { NODES = 3 };

static const char *const ids[NODES] = {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                       "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
                                       "cccccccccccccccccccccccccccccccc"};

/* ---- a table of what programs hold ---- */

struct item {
    const char *node, *program;
    uint64_t rss;
};

static void get_node(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    query_set_text(ret, ((const struct item *)row->custom)->node);
}
static void get_program(const struct query_world *world, const struct query_row *row,
                        const struct query_field *field, struct query_value *ret)
{
    query_set_text(ret, ((const struct item *)row->custom)->program);
}
static void get_rss(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, ((const struct item *)row->custom)->rss);
}

static const struct query_column new_columns[] = {
    {"node", "machine", QUERY_TEXT, .get = get_node},
    {"program", "program", QUERY_TEXT, .get = get_program},
    {"rss", "bytes", QUERY_BYTES, .get = get_rss},
    QUERY_COLUMN_NODES,
    {"heat", "bytes that the last version did not know", QUERY_BYTES, .get = get_rss},
    {0},
};
static const struct query_column old_columns[] = {
    {"node", "machine", QUERY_TEXT, .get = get_node},
    {"program", "program", QUERY_TEXT, .get = get_program},
    {"rss", "bytes", QUERY_BYTES, .get = get_rss},
    {0},
};
static const struct query_table new_table = {
    .name = "items", .columns = new_columns, .show = "program,rss", .sort = "-rss"};
static const struct query_table old_table = {
    .name = "items", .columns = old_columns, .show = "program,rss", .sort = "-rss"};

static struct query *ask(const struct query_table *table, const char *by, const char *show,
                         const char *sort)
{
    struct query *query = NULL;
    struct query_error error;
    struct query_spec spec = {.by = by, .show = show, .sort = sort, .lenient = table == &old_table};
    if (query_new_over(table, &spec, &query, &error) < 0)
        fail_msg("%s", error.text);
    return query;
}

/* The bytes that a node sends which has `n` items. */
static struct buffer partial(const struct query_table *table, const char *by, const char *show,
                             const char *sort, const struct item *items, size_t n)
{
    struct buffer out = BUFFER_INIT(1 << 20);
    struct query *query = ask(table, by, show, sort);
    struct query_result *result = NULL;
    struct query_world world = {.sees_all = true, .node = "liar", .now_real_ns = 1};
    assert_int_equal(query_result_new(query, 0, &result), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(query_result_add(result, &world, &(struct query_row){.custom = &items[i]}),
                         1);
    assert_int_equal(query_result_finish(result), 0);
    assert_int_equal(query_partial_write(result, &out), 0);
    query_result_free(result);
    query_free(query);
    return out;
}

/* ---- a question that is out ---- */

static struct gather *begin(const char *by, const char *show, const char *sort,
                            enum member_state third)
{
    struct gather *g = NULL;
    struct gather_options options = {
        .nonce = {1, 2}, .query = ask(&new_table, by, show, sort), .now_ns = MS(1000)};
    assert_int_equal(gather_new(&options, &g), 0);
    for (int i = 0; i < NODES; i++) {
        struct member m = {.state = i == 2 ? third : MEMBER_ALIVE, .since_ns = MS(1)};
        snprintf(m.id, sizeof(m.id), "%s", ids[i]);
        snprintf(m.name, sizeof(m.name), "node%d", i);
        snprintf(m.version, sizeof(m.version), "1.%d", i);
        m.clock_offset_ns = i == 1 ? 5 * (int64_t)NS_PER_S : 1000;
        assert_int_equal(gather_expect(g, &m, MS(1000)), 0);
    }
    return g;
}

static bool reply(struct gather *g, int node, const struct buffer *bytes, uint64_t now_ns)
{
    return gather_reply(g, ids[node],
                        &(struct message_reply){.parts = 1,
                                                .body = (const uint8_t *)bytes->data,
                                                .body_len = bytes->len},
                        now_ns);
}

static const struct gather_node *node(const struct gather *g, int which)
{
    size_t n;
    const struct gather_node *nodes = gather_nodes(g, &n);
    assert_int_equal(n, NODES);
    return &nodes[which];
}

static const struct item items[] = {{"liar", "train", 100}, {"liar", "shell", 5}};

static void all_answers_end_it_at_once(void **state)
{
    struct gather *g = begin("program", "rss", NULL, MEMBER_ALIVE);
    struct buffer bytes = partial(&new_table, "program", "rss", NULL, items, 2);
    uint64_t next = 0;
    for (int i = 0; i < NODES; i++) {
        assert_false(gather_tick(g, MS(1001), &next));
        assert_int_equal(next, MS(1000 + GATHER_STALL_MS));
        assert_true(reply(g, i, &bytes, MS(1001)));
    }
    assert_true(gather_tick(g, MS(1001), &next));
    assert_int_equal(gather_finish(g), 0);
    assert_int_equal(gather_answered(g), NODES);
    assert_int_equal(query_result_rows(gather_result(g)), 2);
    assert_int_equal(query_result_value(gather_result(g), 0, 1).number, 300);
    buffer_release(&bytes);
    gather_free(g);
}

static void a_node_without_a_sign_of_life_costs_the_stall_only(void **state)
{
    struct gather *g = begin("program", "rss", NULL, MEMBER_ALIVE);
    struct buffer bytes = partial(&new_table, "program", "rss", NULL, items, 2);
    uint64_t next = 0;
    reply(g, 0, &bytes, MS(1001));
    reply(g, 1, &bytes, MS(1001));
    assert_false(gather_tick(g, MS(1000 + GATHER_STALL_MS) - 1, &next));
    assert_true(gather_tick(g, MS(1000 + GATHER_STALL_MS), &next));
    assert_int_equal(gather_answered(g), 2);
    assert_int_equal(node(g, 2)->state, GATHER_MISSING);
    assert_string_equal(node(g, 2)->why, "no sign of life");
    buffer_release(&bytes);
    gather_free(g);
}

static void while_answers_keep_coming_it_waits(void **state)
{
    struct gather *g = begin("program", "rss", NULL, MEMBER_ALIVE);
    struct buffer bytes = partial(&new_table, "program", "rss", NULL, items, 2);
    uint64_t next = 0;
    reply(g, 0, &bytes, MS(1000 + GATHER_STALL_MS - 5));
    assert_false(gather_tick(g, MS(1000 + GATHER_STALL_MS), &next));
    assert_int_equal(next, MS(1000 + GATHER_STALL_MS - 5 + GATHER_FLOW_MS));
    reply(g, 1, &bytes, next - 1);
    assert_false(gather_tick(g, next, &next));
    assert_true(gather_tick(g, next, &next));
    assert_int_equal(gather_answered(g), 2);
    buffer_release(&bytes);
    gather_free(g);
}

/* Many answers that are late together mean congestion. */
static void a_crowd_that_waits_has_more_time(void **state)
{
    struct gather *g = begin("program", "rss", NULL, MEMBER_ALIVE);
    struct buffer bytes = partial(&new_table, "program", "rss", NULL, items, 2);
    uint64_t next = 0;
    char id[SUBJECT_ID_CHARS + 1];
    for (int i = 0; i < GATHER_CROWD + 1; i++) {
        struct member m = {.state = MEMBER_ALIVE, .name = "x", .version = "1"};
        snprintf(m.id, sizeof(m.id), "%032x", i);
        assert_int_equal(gather_expect(g, &m, MS(1000)), 0);
    }
    reply(g, 0, &bytes, MS(1090));
    assert_false(gather_tick(g, MS(1090 + GATHER_STALL_MS), &next));
    assert_int_equal(next, MS(1000 + GATHER_CROWD_MS));
    reply(g, 1, &bytes, next - 1);
    reply(g, 2, &bytes, next - 1);
    assert_false(gather_tick(g, next + MS(GATHER_STALL_MS) - 2, &next));
    assert_int_equal(next, MS(1000 + GATHER_CROWD_MS + GATHER_STALL_MS) - 1);
    /* One more comes: the rest is no crowd any more. */
    snprintf(id, sizeof(id), "%032x", 0);
    (void)gather_refuse(g, id, "busy");
    assert_true(gather_tick(g, next - 1, &next));
    buffer_release(&bytes);
    gather_free(g);
}

static void one_that_works_has_until_the_deadline(void **state)
{
    struct gather *g = begin("program", "rss", NULL, MEMBER_ALIVE);
    struct buffer bytes = partial(&new_table, "program", "rss", NULL, items, 2);
    uint64_t next = 0;
    reply(g, 0, &bytes, MS(1001));
    reply(g, 1, &bytes, MS(1001));
    assert_true(gather_ack(g, ids[2]));
    assert_false(gather_tick(g, MS(1500), &next));
    assert_int_equal(next, MS(1000 + GATHER_DEADLINE_MS));
    assert_true(reply(g, 2, &bytes, MS(2500)));
    assert_true(gather_tick(g, MS(2500), &next));
    assert_int_equal(gather_answered(g), NODES);
    gather_free(g);

    g = begin("program", "rss", NULL, MEMBER_ALIVE);
    assert_true(gather_ack(g, ids[2]));
    assert_false(gather_tick(g, MS(1000 + GATHER_DEADLINE_MS) - 1, &next));
    assert_true(gather_tick(g, MS(1000 + GATHER_DEADLINE_MS), &next));
    assert_string_equal(node(g, 2)->why, "not ready in time");
    buffer_release(&bytes);
    gather_free(g);
}

static void the_unreachable_are_named_and_not_waited_for(void **state)
{
    struct gather *g = begin("program", "rss", NULL, MEMBER_UNREACHABLE);
    struct buffer bytes = partial(&new_table, "program", "rss", NULL, items, 2);
    uint64_t next = 0;
    reply(g, 0, &bytes, MS(1001));
    reply(g, 1, &bytes, MS(1001));
    assert_true(gather_tick(g, MS(1001), &next));
    assert_int_equal(node(g, 2)->state, GATHER_MISSING);
    gather_free(g);
    /* But if it answers all the same, it counts. */
    g = begin("program", "rss", NULL, MEMBER_UNREACHABLE);
    assert_true(reply(g, 2, &bytes, MS(1001)));
    assert_int_equal(gather_answered(g), 1);
    buffer_release(&bytes);
    gather_free(g);
}

static void a_second_answer_and_a_stranger_s_are_ignored(void **state)
{
    struct gather *g = begin("program", "rss", NULL, MEMBER_ALIVE);
    struct buffer bytes = partial(&new_table, "program", "rss", NULL, items, 2);
    assert_true(reply(g, 0, &bytes, MS(1001)));
    assert_false(reply(g, 0, &bytes, MS(1002)));
    struct message_reply same = {
        .parts = 1, .body = (const uint8_t *)bytes.data, .body_len = bytes.len};
    assert_false(gather_reply(g, "dddddddddddddddddddddddddddddddd", &same, MS(1002)));
    assert_int_equal(gather_finish(g), 0);
    assert_int_equal(query_result_value(gather_result(g), 0, 1).number, 100);
    buffer_release(&bytes);
    gather_free(g);
}

static void an_invalid_answer_adds_nothing_and_is_said(void **state)
{
    struct gather *g = begin("program", "rss", NULL, MEMBER_ALIVE);
    struct buffer bytes = partial(&new_table, "program", "rss", NULL, items, 2);
    struct buffer other = partial(&new_table, "program", "rss,heat", NULL, items, 2);
    bytes.len--; /* cut */
    assert_true(reply(g, 0, &bytes, MS(1001)));
    assert_true(node(g, 0)->rejected);
    assert_int_equal(node(g, 0)->state, GATHER_MISSING);
    bytes.len++;
    assert_false(reply(g, 0, &bytes, MS(1002))); /* it had its chance */
    struct buffer keys = partial(&new_table, "node", "rss", NULL, items, 2);
    assert_true(reply(g, 1, &keys, MS(1002))); /* other groups */
    assert_true(node(g, 1)->rejected);
    assert_true(reply(g, 2, &other, MS(1002))); /* a column more than asked for is skipped */
    assert_int_equal(node(g, 2)->state, GATHER_ANSWERED);
    assert_int_equal(gather_finish(g), 0);
    assert_int_equal(query_result_value(gather_result(g), 0, 1).number, 100);
    buffer_release(&bytes);
    buffer_release(&other);
    buffer_release(&keys);
    gather_free(g);
}

static void a_node_cannot_speak_for_another(void **state)
{
    struct gather *g = begin("node", "rss", NULL, MEMBER_ALIVE);
    static const struct item lies[] = {{"node0", "train", 7}};
    struct buffer bytes = partial(&new_table, "node", "rss", NULL, lies, 1);
    assert_true(reply(g, 1, &bytes, MS(1001)));
    assert_int_equal(gather_finish(g), 0);
    assert_int_equal(query_result_rows(gather_result(g)), 1);
    assert_string_equal(query_result_value(gather_result(g), 0, 0).text, "node1");
    buffer_release(&bytes);
    gather_free(g);
}

static void groups_count_their_nodes(void **state)
{
    static const struct item many[] = {{"x", "train", 1}, {"x", "train", 1}, {"x", "shell", 1}};
    struct gather *g = begin("program", "nodes,count", NULL, MEMBER_ALIVE);
    struct buffer two = partial(&new_table, "program", "nodes,count", NULL, many, 3);
    struct buffer one = partial(&new_table, "program", "nodes,count", NULL, many, 2);
    assert_true(reply(g, 0, &two, MS(1001)));
    assert_true(reply(g, 1, &one, MS(1001)));
    assert_true(reply(g, 2, &one, MS(1001)));
    assert_int_equal(gather_finish(g), 0);
    assert_int_equal(query_result_rows(gather_result(g)), 2);
    assert_string_equal(query_result_value(gather_result(g), 0, 0).text, "train");
    assert_int_equal(query_result_value(gather_result(g), 0, 1).number, 3);
    assert_int_equal(query_result_value(gather_result(g), 0, 2).number, 6);
    assert_int_equal(query_result_value(gather_result(g), 1, 1).number, 1);
    buffer_release(&two);
    buffer_release(&one);
    gather_free(g);
}

static char *summary(const struct gather *g)
{
    struct buffer out = BUFFER_INIT(1 << 16);
    struct json json;
    json_init(&json, &out);
    gather_json(g, &json);
    assert_int_equal(json_finish(&json), 0);
    return buffer_take(&out);
}

static void an_older_version_answers_without_what_it_lacks(void **state)
{
    struct gather *g = begin("program", "rss,heat", "-heat", MEMBER_ALIVE);
    struct buffer fresh = partial(&new_table, "program", "rss,heat", "-heat", items, 2);
    struct buffer old = partial(&old_table, "program", "rss,heat", "-heat", items, 2);
    uint64_t next;
    assert_true(reply(g, 0, &fresh, MS(1001)));
    assert_true(reply(g, 2, &old, MS(1001)));
    assert_true(gather_refuse(g, ids[1], "no such table"));
    assert_true(gather_tick(g, MS(1001), &next));
    assert_int_equal(gather_finish(g), 0);
    assert_int_equal(query_result_value(gather_result(g), 0, 1).number, 200);
    struct query_value heat = query_result_value(gather_result(g), 0, 2);
    assert_int_equal(heat.number, 100);
    assert_true(heat.marks & QUERY_AT_LEAST);
    char *text = summary(g);
    assert_non_null(strstr(text, "\"lacking\":[{\"node\":\"node2\",\"version\":\"1.2\","
                                 "\"columns\":[\"heat\"]}]"));
    assert_non_null(strstr(text, "\"why\":\"no such table\""));
    assert_non_null(strstr(text, "\"clocks\":[{\"node\":\"node1\",\"clock_offset\":5"));
    assert_non_null(strstr(text, "\"expected\":3,\"answered\":2"));
    free(text);
    buffer_release(&fresh);
    buffer_release(&old);
    gather_free(g);
}

static void parts_are_put_together(void **state)
{
    struct gather *g = begin("program", "rss", NULL, MEMBER_ALIVE);
    struct buffer bytes = partial(&new_table, "program", "rss", NULL, items, 2);
    const uint8_t *data = (const uint8_t *)bytes.data;
    struct message_reply first = {.part = 0, .parts = 2, .body = data, .body_len = 10};
    struct message_reply second = {
        .part = 1, .parts = 2, .body = data + 10, .body_len = bytes.len - 10};
    assert_true(gather_reply(g, ids[0], &first, MS(1001)));
    assert_int_equal(node(g, 0)->state, GATHER_WORKING);
    assert_true(gather_reply(g, ids[0], &second, MS(1002)));
    assert_int_equal(node(g, 0)->state, GATHER_ANSWERED);
    assert_true(gather_reply(g, ids[1], &second, MS(1002))); /* out of order */
    assert_true(node(g, 1)->rejected);
    buffer_release(&bytes);
    gather_free(g);
}

static void without_a_server_only_we_answer(void **state)
{
    struct gather *g = begin("program", "rss", NULL, MEMBER_ALIVE);
    struct buffer bytes = partial(&new_table, "program", "rss", NULL, items, 2);
    uint64_t next;
    gather_unsent(g, ids[0], "no connection");
    assert_true(reply(g, 0, &bytes, MS(1001)));
    assert_true(gather_tick(g, MS(1001), &next));
    assert_int_equal(gather_answered(g), 1);
    assert_string_equal(node(g, 2)->why, "no connection");
    buffer_release(&bytes);
    gather_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_answers_end_it_at_once),
        cmocka_unit_test(a_node_without_a_sign_of_life_costs_the_stall_only),
        cmocka_unit_test(while_answers_keep_coming_it_waits),
        cmocka_unit_test(a_crowd_that_waits_has_more_time),
        cmocka_unit_test(one_that_works_has_until_the_deadline),
        cmocka_unit_test(the_unreachable_are_named_and_not_waited_for),
        cmocka_unit_test(a_second_answer_and_a_stranger_s_are_ignored),
        cmocka_unit_test(an_invalid_answer_adds_nothing_and_is_said),
        cmocka_unit_test(a_node_cannot_speak_for_another),
        cmocka_unit_test(groups_count_their_nodes),
        cmocka_unit_test(an_older_version_answers_without_what_it_lacks),
        cmocka_unit_test(parts_are_put_together),
        cmocka_unit_test(without_a_server_only_we_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
