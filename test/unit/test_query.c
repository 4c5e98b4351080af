/* The query core over a small table: words, filters, groups, order, errors, who may see what. */
#include "query/view.h"
#include "query_fixture.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

static const struct pet pets[] = {
    {"Tom", "cat", 4000, 300, 1, 4, 1, true},      {"Rex", "dog", 30000, 7200, 3, 4, 1, false},
    {"Ada", "cat", 5000, 60, 2, 2, 2, true},       {"Bo", "dog", PET_UNKNOWN, 10, 0, 0, 2, true},
    {"Nemo", "fish", PET_NONE, 5, 0, 8, 2, false},
};

/* `spec` over the pets gives these rows. */
static void check_rows(struct query_spec spec, const char *expected)
{
    struct query *query = pet_query(&spec);
    struct query_result *result;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    pets_add(result, pets, ARRAY_LEN(pets));
    char *rows = rows_text(result);
    assert_string_equal(rows, expected);
    free(rows);
    query_result_free(result);
    query_free(query);
}

/* The names of pets that match. */
static void check_where(const char *where, const char *expected)
{
    struct query_spec spec = {.where = where, .show = "name", .sort = "name"};
    struct query *query = pet_query(&spec);
    struct query_result *result;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    pets_add(result, pets, ARRAY_LEN(pets));
    assert_int_equal(query_result_finish(result), 0);
    char names[256] = "";
    for (size_t i = 0; i < query_result_rows(result); i++) {
        strcat(names, i ? " " : "");
        strcat(names, query_result_value(result, i, 0).text);
    }
    if (strcmp(names, expected) != 0)
        fail_msg("%s gives '%s', not '%s'", where, names, expected);
    query_result_free(result);
    query_free(query);
}

static void rows_come_with_the_usual_columns_in_the_usual_order(void **unused)
{
    check_rows((struct query_spec){.limit = 2},
               "[{\"name\":\"Ada\",\"kind\":\"cat\",\"weight\":5000},"
               "{\"name\":\"Bo\",\"kind\":\"dog\",\"weight\":null}]");
}

static void single_rows_keep_the_marks_of_their_values(void **unused)
{
    struct query_spec spec = {.show = "name,guess,weight", .sort = "name", .limit = 2};
    check_rows(spec, "[{\"name\":\"Ada\",\"guess\":5000,\"weight\":5000,\"estimate\":[\"guess\"]},"
                     "{\"name\":\"Bo\",\"guess\":null,\"weight\":null}]");
}

static void filters_compare_in_the_units_of_the_column(void **unused)
{
    static const struct {
        const char *where, *names;
    } cases[] = {
        {"", "Ada Bo Nemo Rex Tom"},
        {"kind=cat", "Ada Tom"},
        {"kind == 'cat'", "Ada Tom"},
        {"kind!=cat", "Bo Nemo Rex"},
        {"name ~ o", "Bo Nemo Tom"},
        {"name ~ O", "Bo Nemo Tom"},
        {"name ~ *o", "Bo Nemo"},
        {"name ~ ?o*", "Bo Tom"},
        {"name !~ o", "Ada Rex"},
        {"name < C", "Ada Bo"},
        {"weight>4K", "Ada Rex"},
        {"weight>=4kB", "Ada Rex Tom"},
        {"weight<=4kB", "Tom"},
        {"weight=30kB", "Rex"},
        {"age>1m", "Rex Tom"},
        {"age>=60", "Ada Rex Tom"},
        {"age>1.5h", "Rex"},
        {"full>50%", "Ada Rex"},
        {"full=75", "Rex"},
        {"full<25.1%", "Nemo Tom"},
        {"weight >= 4 kB", "Ada Rex Tom"}, /* as figures are shown */
        {"weight >= 0.004 MB and tame", "Ada Tom"},
        {"(age > 1.5 h), full > 50.0 %", "Rex"},
        {"age > 1 m or full = 75 %", "Rex Tom"},
        {"tame", "Ada Bo Tom"},
        {"tame=no", "Nemo Rex"},
        {"not tame", "Nemo Rex"},
        {"owner=2", "Ada Bo Nemo"},
        {"kind=cat and owner=1", "Tom"},
        {"kind=cat or owner=1", "Ada Rex Tom"},
        {"kind=cat or kind=dog and owner=2", "Ada Bo Tom"},
        {"(kind=cat or kind=dog) and owner=2", "Ada Bo"},
        {"kind=cat or kind=dog, owner=2", "Ada Bo"},
        {"NOT (kind=cat OR kind=dog)", "Nemo"},
        {"not not kind=fish", "Nemo"},
        {"name=\"Tom\"", "Tom"},
        {"name='T\\om'", "Tom"},
        {"name='and' or name=Bo", "Bo"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_where(cases[i].where, cases[i].names);
}

static void absent_values_are_neither_small_nor_large(void **unused)
{
    check_where("weight<1TB", "Ada Rex Tom");
    check_where("weight>=0", "Ada Rex Tom");
    check_where("not weight>10K", "Ada Tom");
    check_where("weight=none", "Bo Nemo");
    check_where("weight!=none", "Ada Rex Tom");
    check_where("weight>10K or tame", "Ada Bo Rex Tom");
    check_where("weight>10K and not weight>10K", "");
}

static void groups_combine_by_the_kind_of_the_column(void **unused)
{
    check_rows((struct query_spec){.by = "kind", .show = "count,weight,age,full,owner"},
               "[{\"kind\":\"cat\",\"count\":2,\"weight\":9000,\"age\":300,\"full\":50,"
               "\"owner\":null},"
               "{\"kind\":\"dog\",\"count\":2,\"weight\":30000,\"age\":7200,\"full\":75,"
               "\"owner\":null,\"at_least\":[\"weight\"]},"
               "{\"kind\":\"fish\",\"count\":1,\"weight\":null,\"age\":5,\"full\":0,\"owner\":2}]");
}

static void aggregates_can_be_named(void **unused)
{
    check_rows(
        (struct query_spec){.show =
                                "count,count(weight),sum(weight),min(weight),max(weight),avg(age),"
                                "max(name),sum(tame),max(full)",
                            .where = "kind!=dog or weight!=none"},
        "[{\"count\":4,\"count(weight)\":3,\"sum(weight)\":39000,\"min(weight)\":4000,"
        "\"max(weight)\":30000,\"avg(age)\":1891.25,\"max(name)\":\"Tom\",\"sum(tame)\":2,"
        "\"max(full)\":100}]");
}

static void without_an_absent_row_a_sum_is_exact(void **unused)
{
    /* Nemo has no weight, which is not the same as one that nobody knows. */
    check_rows((struct query_spec){.show = "sum(weight)", .where = "name!=Bo"},
               "[{\"sum(weight)\":39000}]");
    check_rows((struct query_spec){.show = "sum(weight)"},
               "[{\"sum(weight)\":39000,\"at_least\":[\"sum(weight)\"]}]");
    check_rows((struct query_spec){.show = "avg(weight)"},
               "[{\"avg(weight)\":13000,\"estimate\":[\"avg(weight)\"]}]");
}

static void order_is_by_keys_then_absent_ones_last(void **unused)
{
    check_rows((struct query_spec){.show = "name", .sort = "-weight,name"},
               "[{\"name\":\"Rex\"},{\"name\":\"Ada\"},{\"name\":\"Tom\"},{\"name\":\"Nemo\"},"
               "{\"name\":\"Bo\"}]");
    check_rows((struct query_spec){.show = "name", .sort = "+weight,-name"},
               "[{\"name\":\"Tom\"},{\"name\":\"Ada\"},{\"name\":\"Rex\"},{\"name\":\"Nemo\"},"
               "{\"name\":\"Bo\"}]");
    check_rows((struct query_spec){.by = "kind", .show = "count", .sort = "max(age)", .limit = 1},
               "[{\"kind\":\"dog\",\"count\":2}]");
    check_rows((struct query_spec){.show = "name", .sort = "full", .limit = 2},
               "[{\"name\":\"Ada\"},{\"name\":\"Rex\"}]");
}

static void groups_have_several_keys(void **unused)
{
    check_rows(
        (struct query_spec){.by = "owner, kind", .show = "count", .sort = "owner,kind"},
        "[{\"owner\":2,\"kind\":\"cat\",\"count\":1},{\"owner\":2,\"kind\":\"dog\",\"count\":"
        "1},{\"owner\":2,\"kind\":\"fish\",\"count\":1},{\"owner\":1,\"kind\":\"cat\","
        "\"count\":1},{\"owner\":1,\"kind\":\"dog\",\"count\":1}]");
}

/* ---- rows that a limit cuts off ---- */

static void rows_behind_the_limit_add_up(void **unused)
{
    struct query *query = pet_query(&(struct query_spec){
        .by = "kind", .show = "count,weight,avg(age)", .sort = "kind", .limit = 1, .others = true});
    struct query_result *result;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    assert_int_equal(query_result_other(result, 1).state, 0);
    pets_add(result, pets, ARRAY_LEN(pets));
    for (int again = 0; again < 2; again++) { /* as often as it is finished */
        assert_int_equal(query_result_finish(result), 0);
        assert_int_equal(query_result_others(result), 2); /* dogs and a fish */
        assert_int_equal(query_result_other(result, 1).number, 3);
        struct query_value weight = query_result_other(result, 2);
        assert_int_equal(weight.number, 30000);
        assert_true(weight.marks & QUERY_AT_LEAST); /* nobody knows Bo's */
        assert_int_equal(query_result_other(result, 3).number, (7200 + 10 + 5) / 3 * NS_PER_S);
    }
    /* The next answer begins with nothing. */
    query_result_reset(result);
    pets_add(result, pets, 1);
    assert_int_equal(query_result_finish(result), 0);
    assert_int_equal(query_result_others(result), 0);
    assert_int_equal(query_result_other(result, 1).state, 0);
    query_result_free(result);
    query_free(query);
}

static void average_of_rows_behind_the_limit_counts_each_once(void **unused)
{
    struct query *query = pet_query(&(struct query_spec){
        .show = "name,speed,weight,full", .sort = "-name", .limit = 1, .others = true});
    struct query_result *result;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    pets_add(result, pets, ARRAY_LEN(pets));
    assert_int_equal(query_result_finish(result), 0);
    assert_int_equal(query_result_others(result), 4); /* all but Tom; Bo has no speed */
    assert_int_equal(query_result_other(result, 1).number, (7200 + 60 + 5 + 1) / 3);
    assert_int_equal(query_result_other(result, 2).number, 35000);
    assert_int_equal(query_result_other(result, 2).per, 0);
    assert_int_equal(query_result_other(result, 3).number, 3 + 2);
    assert_int_equal(query_result_other(result, 3).per, 4 + 2 + 8);
    query_result_free(result);
    query_free(query);
}

/* Rows are dropped on the way when there are many; what they add up to stays exact. */
static void many_rows_behind_the_limit_add_up(void **unused)
{
    static struct pet many[5000];
    uint64_t all = 0, tops = 0;
    for (size_t i = 0; i < ARRAY_LEN(many); i++) {
        many[i] = (struct pet){"Tom", "cat", i * 7919 % 5000, 1, 1, 4, 1, true};
        all += many[i].weight;
    }
    for (int others = 0; others < 2; others++) {
        struct query *query = pet_query(&(struct query_spec){
            .show = "name,weight", .sort = "-weight", .limit = 3, .others = others});
        struct query_result *result;
        assert_int_equal(query_result_new(query, 0, &result), 0);
        pets_add(result, many, ARRAY_LEN(many));
        assert_int_equal(query_result_finish(result), 0);
        assert_int_equal(query_result_rows(result), 3);
        for (size_t i = 0; i < 3 && others; i++)
            tops += query_result_value(result, i, 1).number;
        assert_int_equal(query_result_others(result), others ? ARRAY_LEN(many) - 3 : 0);
        assert_int_equal(query_result_other(result, 1).number, others ? all - tops : 0);
        query_result_free(result);
        query_free(query);
    }
}

/* ---- views ---- */

static struct query_spec view_spec(const char *where, const struct query_spec *asked,
                                   struct buffer *text)
{
    const struct query_view view = {
        .name = "v", .table = "pets", .where = where, .show = "name,age", .sort = "-age"};
    struct query_spec spec = {0};
    assert_int_equal(query_view_spec(&view, asked, text, &spec), 0);
    assert_string_equal(spec.table, "pets");
    return spec;
}

static void user_of_a_view_narrows_its_rows_and_replaces_the_rest(void **unused)
{
    struct buffer text = BUFFER_INIT(1000);
    struct query_spec spec = view_spec("tame", &(struct query_spec){.show = "", .limit = 7}, &text);
    assert_string_equal(spec.where, "tame");
    assert_string_equal(spec.show, "name,age");
    assert_string_equal(spec.sort, "-age");
    assert_int_equal(spec.limit, 7);
    spec = view_spec(
        "tame or age>1m",
        &(struct query_spec){.where = "owner=1 or owner=2", .show = "kind", .sort = "kind"}, &text);
    assert_string_equal(spec.where, "(tame or age>1m) and (owner=1 or owner=2)");
    assert_string_equal(spec.show, "kind");
    assert_string_equal(spec.sort, "kind");
    spec = view_spec(NULL, &(struct query_spec){.where = "tame"}, &text);
    assert_string_equal(spec.where, "tame");
    spec = view_spec(NULL, &(struct query_spec){.where = ""}, &text);
    assert_null(spec.where);
    /* Groups show and sort by what the table has for groups, unless they say it. */
    spec = view_spec(NULL, &(struct query_spec){.by = "kind"}, &text);
    assert_null(spec.show);
    assert_null(spec.sort);
    spec = view_spec(NULL, &(struct query_spec){.by = "kind", .show = "count", .sort = "count"},
                     &text);
    assert_string_equal(spec.show, "count");
    assert_string_equal(spec.sort, "count");
    buffer_release(&text);
}

static void views_are_found_by_command_and_by_route(void **unused)
{
    size_t commands = 0, routes = 0;
    for (const struct query_view *v = query_views(); v->name || v->route; v++) {
        if (v->name)
            assert_ptr_equal(query_view_find(v->name), v);
        if (v->route)
            assert_ptr_equal(query_view_route(v->route), v);
        commands += v->name != NULL;
        routes += v->route != NULL;
    }
    assert_true(commands >= 7 && routes > commands);
    assert_ptr_equal(query_view_find("top"), query_view_route("processes"));
    assert_null(query_view_find("processes"));
    assert_null(query_view_route("top"));
    assert_null(query_view_find("nothing"));
}

static void others_private_columns_are_absent_for_filters_too(void **unused)
{
    struct query_spec spec = {.show = "name,secret", .where = "secret!=Ada", .sort = "name"};
    struct query *query = pet_query(&spec);
    struct query_result *result;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    struct query_world world = {.viewer_uid = 2};
    for (size_t i = 0; i < ARRAY_LEN(pets); i++)
        query_result_add(result, &world, &(struct query_row){.custom = &pets[i]});
    char *rows = rows_text(result);
    assert_string_equal(rows, "[{\"name\":\"Bo\",\"secret\":\"Bo\"},"
                              "{\"name\":\"Nemo\",\"secret\":\"Nemo\"}]");
    free(rows);
    query_result_free(result);
    query_free(query);
}

static void mistakes_are_pointed_at(void **unused)
{
    static const struct {
        struct query_spec spec;
        const char *part;
        size_t at, len;
        const char *text;
    } cases[] = {
        {{.where = "kind=cat and wieght>1"}, "where", 13, 6, "did you mean 'weight'?"},
        {{.where = "weight>heavy"}, "where", 7, 5, "a size (1.5GB, 64K)"},
        {{.where = "weight>99999999999999999999"}, "where", 7, 20, "too large"},
        {{.where = "weight>99999999999 GB"}, "where", 7, 11, "too large"},
        {{.where = "weight = 150 000"}, "where", 13, 3, "expected 'and', 'or' or the end"},
        {{.where = "weight > 1 5"}, "where", 11, 1, "expected 'and', 'or' or the end"},
        {{.where = "age > 1 2"}, "where", 8, 1, "expected 'and', 'or' or the end"},
        {{.where = "full > 7 .5"}, "where", 9, 2, "expected 'and', 'or' or the end"},
        {{.where = "weight ~ 1"}, "where", 7, 1, "~ looks into texts"},
        {{.where = "weight"}, "where", 6, 1, "has to be compared"},
        {{.where = "kind="}, "where", 5, 1, "expected a text"},
        {{.where = "(kind=cat"}, "where", 0, 1, "never closed"},
        {{.where = "kind=cat)"}, "where", 8, 1, "closes nothing"},
        {{.where = "kind='cat"}, "where", 5, 4, "quote is never closed"},
        {{.where = "kind=cat tame"}, "where", 9, 4, "expected 'and', 'or' or the end"},
        {{.where = "kind=cat and"}, "where", 12, 1, "expected a column, found the end"},
        {{.where = "kind=cat,"}, "where", 9, 1, "expected a column, found the end"},
        {{.where = "!tame"}, "where", 0, 1, "write not"},
        {{.where = "=cat"}, "where", 0, 1, "expected a column"},
        {{.by = "kin"}, "by", 0, 3, "did you mean 'kind'?"},
        {{.by = "max(age)"}, "by", 0, 8, "plain columns"},
        {{.show = "name,,kind"}, "show", 5, 1, "missing"},
        {{.show = "name, mux(age)"}, "show", 6, 3, "no way to combine"},
        {{.show = "sum(name)"}, "show", 0, 9, "cannot be added up"},
        {{.show = "sum(owner)"}, "show", 0, 10, "cannot be added up"},
        {{.show = "max(age"}, "show", 3, 4, "never closed"},
        {{.sort = "name,-hight"}, "sort", 6, 5, "no column 'hight'"},
        {{.sort = "count"}, "sort", 0, 5, "nothing to combine"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct query *query = NULL;
        struct query_error error;
        assert_int_equal(query_new_over(&pet_table, &cases[i].spec, &query, &error), -EINVAL);
        assert_null(query);
        if (!strstr(error.text, cases[i].text))
            fail_msg("'%s' does not say '%s'", error.text, cases[i].text);
        assert_string_equal(error.part, cases[i].part);
        if (error.at != cases[i].at || error.len != cases[i].len)
            fail_msg("'%s' is at %zu+%zu, not at %zu+%zu", error.text, error.at, error.len,
                     cases[i].at, cases[i].len);
    }
}

static void errors_print_with_a_mark_below(void **unused)
{
    struct query_spec spec = {.table = "processes", .where = "user=ann and rsss>1"};
    struct query *query = NULL;
    struct query_error error;
    assert_int_equal(query_new(&spec, &query, &error), -EINVAL);
    struct buffer out = BUFFER_INIT(4096);
    assert_int_equal(query_error_print(&error, &spec, &out), 0);
    assert_string_equal(buffer_string(&out),
                        "the table processes has no column 'rsss', did you mean 'rss'?\n"
                        "  where: user=ann and rsss>1\n"
                        "                      ^^^^");
    buffer_release(&out);
}

/* As long as they may be: 128 tests and 127 times "or", of which the last one counts. */
static void long_expressions_lose_none_of_their_parts(void **unused)
{
    char text[QUERY_TEXT_MAX] = "";
    for (int i = 0; i < QUERY_NODES_MAX / 2 - 1; i++)
        strcat(text, "name=nobody or ");
    strcat(text, "kind=dog");
    check_where(text, "Bo Rex");
}

static void long_and_deep_expressions_are_refused(void **unused)
{
    struct query *query = NULL;
    struct query_error error;
    char text[QUERY_TEXT_MAX + 2];
    memset(text, '(', 100);
    strcpy(text + 100, "tame");
    assert_int_equal(
        query_new_over(&pet_table, &(struct query_spec){.where = text}, &query, &error), -EINVAL);
    assert_non_null(strstr(error.text, "too deep"));
    text[0] = '\0';
    for (int i = 0; i < 400; i++)
        strcat(text, i ? ",tame" : "tame");
    assert_int_equal(
        query_new_over(&pet_table, &(struct query_spec){.where = text}, &query, &error), -EINVAL);
    assert_non_null(strstr(error.text, "too long"));
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(
        query_new_over(&pet_table, &(struct query_spec){.where = text}, &query, &error), -EINVAL);
    assert_int_equal(query_new(&(struct query_spec){.table = text}, &query, &error), -EINVAL);
}

static void patterns_take_no_more_than_the_product_of_lengths(void **unused)
{
    char name[4001], pattern[2001];
    memset(name, 'a', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    for (size_t i = 0; i < sizeof(pattern) - 1; i++)
        pattern[i] = i % 2 ? 'a' : '*';
    pattern[sizeof(pattern) - 1] = '\0';
    pattern[sizeof(pattern) - 2] = 'b';
    char where[2100];
    snprintf(where, sizeof(where), "name ~ %s", pattern);
    struct query *query = pet_query(&(struct query_spec){.where = where});
    struct query_result *result;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    uint64_t begin = clock_monotonic_ns();
    pets_add(result, &(struct pet){.name = name}, 1);
    assert_true(clock_monotonic_ns() - begin < 5 * NS_PER_S);
    query_result_free(result);
    query_free(query);
}

static void sums_that_do_not_fit_stay_at_the_most(void **unused)
{
    const struct pet heavy[] = {{"a", "x", UINT64_MAX - 5}, {"b", "x", 100}, {"c", "x", 7}};
    struct query *query = pet_query(&(struct query_spec){.show = "sum(weight)"});
    struct query_result *result;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    pets_add(result, heavy, 3);
    char *rows = rows_text(result);
    assert_string_equal(rows,
                        "[{\"sum(weight)\":18446744073709551615,\"at_least\":[\"sum(weight)\"]}]");
    free(rows);
    query_result_free(result);
    query_free(query);
}

static void rows_beyond_the_limit_of_memory_are_counted(void **unused)
{
    struct query *query = pet_query(&(struct query_spec){.show = "name"});
    struct query_result *result;
    assert_int_equal(query_result_new(query, 3, &result), 0);
    pets_add(result, pets, ARRAY_LEN(pets));
    assert_int_equal(query_result_finish(result), 0);
    assert_int_equal(query_result_rows(result), 3);
    assert_int_equal(query_result_left_out(result), 2);
    assert_int_equal(query_result_matched(result), 5);
    query_result_reset(result);
    pets_add(result, pets, 1);
    assert_int_equal(query_result_finish(result), 0);
    assert_int_equal(query_result_rows(result), 1);
    assert_int_equal(query_result_left_out(result), 0);
    query_result_free(result);
    query_free(query);
}

static void a_limit_keeps_the_first_of_many_and_counts_the_rest(void **unused)
{
    struct query *query =
        pet_query(&(struct query_spec){.show = "name,weight", .sort = "-weight", .limit = 2});
    struct query_result *result;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    for (uint64_t i = 0; i < 5000; i++) {
        char name[16];
        uint64_t weight = i * 7919 % 5000;
        snprintf(name, sizeof(name), "n%d", (int)weight);
        pets_add(result, &(struct pet){.name = name, .weight = weight}, 1);
    }
    char *text = result_text(result);
    assert_non_null(strstr(text, "\"rows\":[{\"name\":\"n4999\",\"weight\":4999},"
                                 "{\"name\":\"n4998\",\"weight\":4998}],\"matched\":5000}"));
    free(text);
    query_result_free(result);
    query_free(query);
}

static void times_are_those_of_the_calendar(void **unused)
{
    check_rows((struct query_spec){.show = "name,born"},
               "[{\"name\":\"Ada\",\"born\":\"1971-11-26T10:43:00.007Z\"},"
               "{\"name\":\"Bo\",\"born\":\"1970-04-26T17:47:10.007Z\"},"
               "{\"name\":\"Nemo\",\"born\":\"1970-02-27T20:53:35.007Z\"},"
               "{\"name\":\"Rex\",\"born\":\"2198-02-27T14:00:00.007Z\"},"
               "{\"name\":\"Tom\",\"born\":\"1979-07-05T05:35:00.007Z\"}]");
}

/* `spec` over the pets gives this as arrays, from the rows on. */
static void check_arrays(struct query_spec spec, const char *expected)
{
    struct query *query = pet_query(&spec);
    struct query_result *result;
    struct buffer out = BUFFER_INIT(1 << 20);
    struct json json;
    assert_int_equal(query_result_new(query, 0, &result), 0);
    pets_add(result, pets, ARRAY_LEN(pets));
    assert_int_equal(query_result_finish(result), 0);
    json_init(&json, &out);
    json_object_begin(&json);
    query_result_arrays(result, &json);
    json_object_end(&json);
    assert_int_equal(json_finish(&json), 0);
    assert_string_equal(strstr(buffer_string(&out), "\"rows\":"), expected);
    buffer_release(&out);
    query_result_free(result);
    query_free(query);
}

static void arrays_have_the_same_values_and_tell_which_cells_are_marked(void **unused)
{
    check_arrays((struct query_spec){.show = "name,weight,tame,full,age,kind", .limit = 2},
                 "\"rows\":[[\"Ada\",5000,true,100,60,\"cat\"],[\"Bo\",null,true,null,10,\"dog\"]],"
                 "\"matched\":5}");
    check_arrays((struct query_spec){.show = "name,guess", .sort = "name", .limit = 2},
                 "\"rows\":[[\"Ada\",5000],[\"Bo\",null]],\"estimate\":[[0,1]],\"matched\":5}");
    check_arrays((struct query_spec){.by = "kind", .show = "weight,avg(weight)", .sort = "kind"},
                 "\"rows\":[[\"cat\",9000,4500],[\"dog\",30000,30000],[\"fish\",null,null]],"
                 "\"at_least\":[[1,1]],\"estimate\":[[1,2]],\"matched\":3}");
}

/* ---- room for rows ---- */

enum { WIDEST = 12 * 4, FILLS = 8192 };

/* Nothing but names. */
#define NAME(letter)                                                              \
    {                                                                             \
        .name = (letter), .help = "its name", .kind = QUERY_TEXT, .get = pet_name \
    }
static const struct query_column wide_columns[] = {
    NAME("a"), NAME("b"), NAME("c"), NAME("d"), NAME("e"), NAME("f"), NAME("g"),
    NAME("h"), NAME("i"), NAME("j"), NAME("k"), NAME("l"), {0},
};
static const struct query_table wide_table = {
    .name = "wide", .help = "", .columns = wide_columns, .show = "a", .show_by = "a", .sort = "a"};

/* A finished result of one row, `columns` wide. */
static void wide_row(const struct pet *pet, size_t columns, struct query **ret_query,
                     struct query_result **ret_result)
{
    static const char *const forms[] = {"%s%s", "%smax(%s)", "%smin(%s)", "%ssame(%s)"};
    char show[1024] = "";
    for (size_t c = 0, len = 0; c < columns; c++)
        len += (size_t)snprintf(show + len, sizeof(show) - len, forms[c / 12], c ? "," : "",
                                wide_columns[c % 12].name);
    struct query_error error;
    if (query_new_over(&wide_table, &(struct query_spec){.show = show}, ret_query, &error) < 0)
        fail_msg("%s", error.text);
    assert_int_equal(query_result_new(*ret_query, 0, ret_result), 0);
    pets_add(*ret_result, pet, 1);
    assert_int_equal(query_result_finish(*ret_result), 0);
}

static int put_answer(const struct query_result *result, bool arrays, size_t fill,
                      struct buffer *out)
{
    static char filling[FILLS];
    struct json json;
    memset(filling, 'p', sizeof(filling));
    json_init(&json, out);
    json_object_begin(&json);
    json_key(&json, "filling");
    json_string_n(&json, filling, fill);
    (arrays ? query_result_arrays : query_result_json)(result, &json);
    json_object_end(&json);
    return json_finish(&json);
}

/* The longest texts that are copied without a look at the room, wherever in the buffer the row begins. */
static void a_row_of_long_texts_has_room_in_any_buffer(void **unused)
{
    const struct pet pet = {.name =
                                "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"};
    assert_int_equal(strlen(pet.name), 62);
    static const size_t columns[] = {1, 2, 12, 17, 18, 19, 24, 33, WIDEST};
    for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++)
        for (int arrays = 0; arrays < 2; arrays++) {
            struct query *query;
            struct query_result *result;
            wide_row(&pet, columns[i], &query, &result);
            size_t plain = 0;
            for (size_t fill = 0; fill < FILLS; fill++) {
                struct buffer out = BUFFER_INIT(1 << 20);
                assert_int_equal(put_answer(result, arrays, fill, &out), 0);
                if (fill == 0)
                    plain = out.len;
                assert_int_equal(out.len, plain + fill);
                assert_true(out.len < out.cap);
                buffer_release(&out);
            }
            query_result_free(result);
            query_free(query);
        }
}

/* An answer that is as long as the limit is given, whatever its values could have taken; none that is longer. */
static void an_answer_may_be_as_long_as_the_limit(void **unused)
{
    const struct pet all[] = {
        {.name = "a"}, {.name = "quote \" and \n"}, {.name = ""}, {.name = NULL}};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        for (int arrays = 0; arrays < 2; arrays++) {
            struct query *query;
            struct query_result *result;
            wide_row(&all[i], WIDEST, &query, &result);
            struct buffer whole = BUFFER_INIT(1 << 20);
            assert_int_equal(put_answer(result, arrays, 0, &whole), 0);
            struct buffer out = BUFFER_INIT(whole.len);
            assert_int_equal(put_answer(result, arrays, 0, &out), 0);
            assert_string_equal(buffer_string(&out), buffer_string(&whole));
            buffer_release(&out);
            for (size_t limit = 0; limit < whole.len; limit++) {
                out = BUFFER_INIT(limit);
                assert_int_equal(put_answer(result, arrays, 0, &out), -ENOBUFS);
                buffer_release(&out);
            }
            buffer_release(&whole);
            query_result_free(result);
            query_free(query);
        }
}

/* Tables that are costly by row want their rows named by one figure. */
static void rows_are_named_one_by_one_where_a_table_wants_it(void **state)
{
    static const struct {
        const char *where, *named; /* NULL: refused */
    } cases[] = {
        {"owner=1", "1"},
        {"owner=2 and tame", "2"},
        {"tame and (owner=2 or owner=1)", "2 1"},
        {"owner=2 or owner=2, weight>1", "2"},
        {"(owner=1 or tame) and owner=3", "3"},
        {"", NULL},
        {"tame", NULL},
        {"owner=1 or tame", NULL},
        {"owner>1", NULL},
        {"owner!=1", NULL},
        {"not owner=1", NULL},
        {"owner=none", NULL},
        {"owner=owner", NULL},
        {"owner=1 or owner=2 or owner=3 or owner=4 or owner=5 or owner=6 or owner=7 or owner=8 or owner=9 or "
         "owner=10 or owner=11 or owner=12 or owner=13 or owner=14 or owner=15 or owner=16 or owner=17",
         NULL},
    };
    struct query_table table = pet_table;
    table.named_by = "owner";
    table.named_why = "pets are shy";
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct query_spec spec = {.where = cases[i].where};
        struct query *query = NULL;
        struct query_error error;
        uint64_t values[QUERY_NAMED_MAX];
        size_t n = 0;
        char named[256] = "";
        int r = query_new_over(&table, &spec, &query, &error);
        assert_int_equal(r, cases[i].named ? 0 : -EINVAL);
        if (r < 0) {
            assert_string_equal(error.part, "where");
            assert_non_null(strstr(error.text, "owner"));
            continue;
        }
        assert_int_equal(query_named(query, values, QUERY_NAMED_MAX, &n), 0);
        for (size_t k = 0, used = 0; k < n; k++)
            used += (size_t)snprintf(named + used, sizeof(named) - used, "%s%d", k ? " " : "",
                                     (int)values[k]);
        assert_string_equal(named, cases[i].named);
        query_free(query);
    }
}

/* A value that comes from a user stays one value, whatever it contains. */
static void texts_in_expressions_are_quoted(void **state)
{
    struct buffer where = BUFFER_INIT(1000);
    query_where_text(&where, "kind", "=", "cat");
    query_where_text(&where, "name", "=", "a\" or name=\"\\");
    assert_string_equal(buffer_string(&where), "kind=\"cat\" and name=\"a\\\" or name=\\\"\\\\\"");
    check_where(buffer_string(&where), "");
    buffer_release(&where);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_named_one_by_one_where_a_table_wants_it),
        cmocka_unit_test(rows_come_with_the_usual_columns_in_the_usual_order),
        cmocka_unit_test(single_rows_keep_the_marks_of_their_values),
        cmocka_unit_test(filters_compare_in_the_units_of_the_column),
        cmocka_unit_test(absent_values_are_neither_small_nor_large),
        cmocka_unit_test(groups_combine_by_the_kind_of_the_column),
        cmocka_unit_test(aggregates_can_be_named),
        cmocka_unit_test(without_an_absent_row_a_sum_is_exact),
        cmocka_unit_test(order_is_by_keys_then_absent_ones_last),
        cmocka_unit_test(groups_have_several_keys),
        cmocka_unit_test(rows_behind_the_limit_add_up),
        cmocka_unit_test(average_of_rows_behind_the_limit_counts_each_once),
        cmocka_unit_test(many_rows_behind_the_limit_add_up),
        cmocka_unit_test(user_of_a_view_narrows_its_rows_and_replaces_the_rest),
        cmocka_unit_test(views_are_found_by_command_and_by_route),
        cmocka_unit_test(others_private_columns_are_absent_for_filters_too),
        cmocka_unit_test(mistakes_are_pointed_at),
        cmocka_unit_test(errors_print_with_a_mark_below),
        cmocka_unit_test(long_expressions_lose_none_of_their_parts),
        cmocka_unit_test(long_and_deep_expressions_are_refused),
        cmocka_unit_test(patterns_take_no_more_than_the_product_of_lengths),
        cmocka_unit_test(sums_that_do_not_fit_stay_at_the_most),
        cmocka_unit_test(rows_beyond_the_limit_of_memory_are_counted),
        cmocka_unit_test(a_limit_keeps_the_first_of_many_and_counts_the_rest),
        cmocka_unit_test(times_are_those_of_the_calendar),
        cmocka_unit_test(arrays_have_the_same_values_and_tell_which_cells_are_marked),
        cmocka_unit_test(a_row_of_long_texts_has_room_in_any_buffer),
        cmocka_unit_test(an_answer_may_be_as_long_as_the_limit),
        cmocka_unit_test(texts_in_expressions_are_quoted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
