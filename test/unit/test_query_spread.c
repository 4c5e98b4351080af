/* Which node is the outlier of a program. */
#include <errno.h>
#include <string.h>

#include "check.h"

#include "base/buffer.h"
#include "base/json.h"
#include "query/query.h"
#include "query/spread.h"

#define MB (UINT64_C(1) << 20)

enum { NODES_MAX = 8 };
static struct spread_node nodes[NODES_MAX];
static struct spread_program program;

static void begin(void)
{
    memset(nodes, 0, sizeof(nodes));
    program = (struct spread_program){.program = "shop", .nodes = nodes};
}

static void add(const char *name, uint64_t value, uint64_t processes, double steady)
{
    nodes[program.n++] = (struct spread_node){.node = name,
                                              .value = value,
                                              .processes = processes,
                                              .has_steady = steady >= 0,
                                              .steady = steady};
}

static enum spread_odd odd_of(const char *name)
{
    for (size_t i = 0; i < program.n; i++)
        if (strcmp(nodes[i].node, name) == 0)
            return nodes[i].odd;
    fail_msg("no node %s", name);
    return SPREAD_USUAL;
}

static void a_leak_on_one_node_is_found_by_its_growth(void **state)
{
    char why[SPREAD_WHY_MAX];
    begin();
    add("a", 5 * MB, 1, 0);
    add("b", 5 * MB, 1, 50000);
    add("c", 5 * MB, 1, 0);
    spread_judge(&program);
    assert_int_equal(program.n_odd, 1);
    assert_string_equal(nodes[0].node, "b");
    assert_int_equal(nodes[0].odd, SPREAD_GROWS);
    assert_string_equal(spread_why(&nodes[0], why), "grows by 50.0 kB/s, 0 B/s on other nodes");
    assert_string_equal(spread_why(&nodes[1], why), "");
}

static void a_program_that_grows_everywhere_has_no_outlier(void **state)
{
    begin();
    add("a", 5 * MB, 1, 40000);
    add("b", 5 * MB, 1, 55000);
    add("c", 5 * MB, 1, 50000);
    spread_judge(&program);
    assert_int_equal(program.n_odd, 0);
}

static void a_node_may_tell_any_figure(void **state)
{
    char why[SPREAD_WHY_MAX];
    begin();
    add("a", 5 * MB, 1, -1);
    add("b", UINT64_MAX, 1, -1);
    add("c", 5 * MB, 1, -1);
    spread_judge(&program);
    assert_int_equal(odd_of("b"), SPREAD_MORE);
    assert_null(strstr(spread_why(&nodes[0], why), "holds 0 B"));
}

static void two_nodes_cannot_tell_which_is_odd(void **state)
{
    begin();
    add("a", 5 * MB, 1, 0);
    add("b", 500 * MB, 1, 1e6);
    spread_judge(&program);
    assert_int_equal(program.n_odd, 0);
    /* Nor can three, while one of them was not watched for long enough. */
    add("c", 5 * MB, 1, -1);
    spread_judge(&program);
    assert_int_equal(odd_of("b"), SPREAD_MORE);
}

static void small_and_slow_differences_are_left_alone(void **state)
{
    begin();
    add("a", 18 * MB, 1, 0);
    add("b", 18 * MB, 1, 4000);
    add("c", 30 * MB, 1, 0); /* the node whose page is open */
    spread_judge(&program);
    assert_int_equal(program.n_odd, 0);
}

static void nodes_that_do_the_same_never_hold_the_same(void **state)
{
    begin();
    add("a", 100 * MB, 1, 100000);
    add("b", 101 * MB, 1, 101000);
    add("c", 149 * MB, 1, 149000);
    spread_judge(&program);
    assert_int_equal(program.n_odd, 0);
    nodes[0].value = 152 * MB; /* the largest comes first */
    spread_judge(&program);
    assert_int_equal(program.n_odd, 1);
    assert_int_equal(odd_of("c"), SPREAD_MORE);
}

static void levels_are_compared_by_process(void **state)
{
    begin();
    add("a", 400 * MB, 4, 0);
    add("b", 100 * MB, 1, 0);
    add("c", 100 * MB, 1, 0);
    add("d", 290 * MB, 1, 0);
    add("e", 20 * MB, 1, 0);
    spread_judge(&program);
    assert_int_equal(program.n_odd, 2);
    assert_int_equal(odd_of("a"), SPREAD_USUAL);
    assert_int_equal(odd_of("d"), SPREAD_MORE);
    assert_int_equal(odd_of("e"), SPREAD_LESS);
}

static void one_odd_node_does_not_hide_another(void **state)
{
    begin();
    add("a", 100 * MB, 1, 0);
    add("b", 100 * MB, 1, 1e9);
    add("c", 100 * MB, 1, 20000);
    add("d", 100 * MB, 1, 0);
    add("e", 100 * MB, 1, 0);
    spread_judge(&program);
    assert_int_equal(program.n_odd, 2);
    assert_int_equal(odd_of("b"), SPREAD_GROWS);
    assert_int_equal(odd_of("c"), SPREAD_GROWS);
}

static void nothing_is_nothing(void **state)
{
    begin();
    spread_judge(&program);
    assert_int_equal(program.n_odd, 0);
    struct query_spec spec;
    char show[SPREAD_SHOW_MAX];
    struct query_error error;
    struct query *query, *other;
    struct query_result *result;
    struct spread *spread;
    spread_spec("rss", NULL, show, &spec);
    assert_int_equal(query_new(&spec, &query, &error), 0);
    assert_int_equal(query_result_new(query, 0, &result), 0);
    assert_int_equal(query_result_finish(result), 0);
    assert_int_equal(spread_new(result, query, &spread), 0);
    assert_int_equal(spread->n, 0);
    spread_free(spread);
    query_result_free(result);
    query_free(query);
    assert_int_equal(query_new(&(struct query_spec){.table = "host"}, &other, &error), 0);
    assert_int_equal(query_result_new(other, 0, &result), 0);
    assert_int_equal(spread_new(result, other, &spread), -EINVAL);
    query_result_free(result);
    query_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leak_on_one_node_is_found_by_its_growth),
        cmocka_unit_test(a_program_that_grows_everywhere_has_no_outlier),
        cmocka_unit_test(a_node_may_tell_any_figure),
        cmocka_unit_test(two_nodes_cannot_tell_which_is_odd),
        cmocka_unit_test(small_and_slow_differences_are_left_alone),
        cmocka_unit_test(nodes_that_do_the_same_never_hold_the_same),
        cmocka_unit_test(levels_are_compared_by_process),
        cmocka_unit_test(one_odd_node_does_not_hide_another),
        cmocka_unit_test(nothing_is_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
