/* Targets, routes and arguments: what is understood, what is refused, and that one question has one key. */
#include "http/target.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static int parse(const char *raw, struct target *target)
{
    const char *error = NULL;
    int r = target_parse(raw, target, &error);
    if (r < 0)
        assert_non_null(error);
    return r;
}

static void a_target_is_decoded(void **state)
{
    struct target t;
    assert_int_equal(parse("/api/v1/q%75ery?where=rss%3e1M+and&by=a%2Cb&x&y=&&", &t), 0);
    assert_string_equal(t.path, "/api/v1/query");
    assert_int_equal(t.n_pairs, 4);
    assert_string_equal(t.pairs[0].name, "where");
    assert_string_equal(t.pairs[0].value, "rss>1M and");
    assert_string_equal(t.pairs[1].value, "a,b");
    assert_string_equal(t.pairs[2].name, "x");
    assert_null(t.pairs[2].value);
    assert_string_equal(t.pairs[3].value, "");
    target_release(&t);
    assert_int_equal(parse("/a+b", &t), 0); /* a plus is a space in arguments only */
    assert_string_equal(t.path, "/a+b");
    target_release(&t);
    assert_int_equal(parse("/...", &t), 0);
    target_release(&t);
}

static void what_wants_out_of_the_tree_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "a",
        "http://x/",
        "*",
        "/..",
        "/../etc/passwd",
        "/a/../b",
        "/a/..",
        "/%2e%2e/x",
        "/.%2E/x",
        "/a/%2e/b",
        "/.",
        "/%2e",
        "/..%2f..%2fetc",
        "/a\\..",
        "/a%5c..",
        "/%00",
        "/a%0d%0aX:1",
        "/a?b=%00",
        "/a?b=%0a",
        "/a?%0d=1",
        "/a%7f",
        "/%",
        "/%4",
        "/%zz",
        "/a?b=%",
        "/a?b=%g1",
        "/a\tb",
        "/%2e%2e",
        "/a/b/../..",
        "/%2E%2E%2Fx",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct target t;
        if (parse(bad[i], &t) != -EINVAL)
            fail_msg("'%s' was taken", bad[i]);
    }
}

static void limits_hold(void **state)
{
    struct target t;
    char *text = malloc(HTTP_TARGET_MAX + 2);
    memset(text, 'a', HTTP_TARGET_MAX + 1);
    text[0] = '/';
    text[HTTP_TARGET_MAX + 1] = '\0';
    assert_int_equal(parse(text, &t), -E2BIG);
    text[HTTP_TARGET_MAX] = '\0';
    assert_int_equal(parse(text, &t), 0);
    target_release(&t);
    strcpy(text, "/?");
    for (int i = 0; i < TARGET_PAIRS_MAX; i++)
        strcat(text, "a&");
    assert_int_equal(parse(text, &t), 0);
    target_release(&t);
    strcat(text, "b");
    assert_int_equal(parse(text, &t), -E2BIG);
    free(text);
}

/* ---- routes ---- */

static const struct http_param sites_params[] = {
    {.name = "pid", .in = HTTP_IN_PATH, .kind = HTTP_NUMBER, .min = 1, .max = 4194304},
    {.name = "limit", .in = HTTP_IN_QUERY, .kind = HTTP_NUMBER, .max = 100},
    {.name = "shape", .in = HTTP_IN_QUERY, .kind = HTTP_WORD, .words = "objects|arrays"},
    {.name = "all", .in = HTTP_IN_QUERY, .kind = HTTP_YES},
    {.name = "where", .in = HTTP_IN_QUERY, .kind = HTTP_TEXT, .max = 8},
    {0},
};
static const struct http_param need_params[] = {
    {.name = "code", .in = HTTP_IN_QUERY, .kind = HTTP_TEXT, .required = true},
    {0},
};
static const struct http_route table[] = {
    {.method = "GET", .path = "/p", .name = "list"},
    {.method = "GET", .path = "/p/{pid}/sites", .name = "sites", .params = sites_params},
    {.method = "POST", .path = "/p/{pid}/sites", .name = "change", .params = sites_params},
    {.method = "GET", .path = "/login", .name = "login", .params = need_params},
};
enum { N_ROUTES = sizeof(table) / sizeof(*table) };
static const struct http_route *routes[N_ROUTES] = {&table[0], &table[1], &table[2], &table[3]};

static struct router *router(void)
{
    struct router *made = NULL;
    assert_int_equal(router_new(routes, N_ROUTES, &made), 0);
    return made;
}

static void a_path_finds_its_route_or_its_methods(void **state)
{
    struct router *r = router();
    struct route_match m;
    router_match(r, "GET", "/p", &m);
    assert_ptr_equal(m.route, &table[0]);
    router_match(r, "HEAD", "/p", &m);
    assert_ptr_equal(m.route, &table[0]);
    router_match(r, "GET", "/p/47/sites", &m);
    assert_ptr_equal(m.route, &table[1]);
    assert_true(m.lens[0] == 2 && memcmp(m.values[0], "47", 2) == 0);
    router_match(r, "POST", "/p/47/sites", &m);
    assert_ptr_equal(m.route, &table[2]);
    router_match(r, "DELETE", "/p/47/sites", &m);
    assert_null(m.route);
    assert_string_equal(m.allow, "GET, HEAD, POST");
    static const char *const none[] = {"/",           "/p/",          "/p/1", "/p//sites",
                                       "/p/1/sites/", "/p/1/2/sites", "/px"};
    for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++) {
        router_match(r, "GET", none[i], &m);
        assert_null(m.route);
        assert_string_equal(m.allow, "");
    }
    router_free(r);
}

static void routes_that_make_no_sense_are_our_fault(void **state)
{
    static const struct http_route odd = {
        .method = "GET", .path = "/{none}", .params = need_params};
    const struct http_route *list[] = {&odd};
    struct router *made = NULL;
    assert_int_equal(router_new(list, 1, &made), -EINVAL);
}

/* Arguments of a GET of `raw`, or -EINVAL with the complaint in `error`. */
static int arguments(struct router *r, const char *raw, struct arguments *ret_arguments,
                     char *error)
{
    struct target t;
    struct route_match m;
    assert_int_equal(parse(raw, &t), 0);
    router_match(r, "GET", t.path, &m);
    assert_non_null(m.route);
    int result = arguments_read(&m, &t, ret_arguments, error);
    target_release(&t);
    return result;
}

static void arguments_are_checked_by_the_table(void **state)
{
    struct router *r = router();
    struct arguments a;
    char error[ARGUMENT_ERROR_MAX];
    assert_int_equal(arguments(r, "/p/12/sites?all&shape=arrays&limit=100&where=a%26b", &a, error),
                     0);
    assert_int_equal(a.numbers[0], 12);
    assert_int_equal(a.numbers[1], 100);
    assert_string_equal(a.values[2], "arrays");
    assert_int_equal(a.numbers[3], 1);
    assert_string_equal(a.values[4], "a&b");
    struct arguments copy;
    assert_int_equal(arguments_copy(&a, &copy), 0);
    arguments_release(&a);
    assert_string_equal(copy.values[4], "a&b");
    arguments_release(&copy);
    assert_int_equal(arguments(r, "/p/12/sites", &a, error), 0);
    assert_null(a.values[1]);
    arguments_release(&a);
    static const struct {
        const char *raw, *complaint;
    } bad[] = {
        {"/p/x/sites", "pid"},
        {"/p/0/sites", "pid"},
        {"/p/4194305/sites", "pid"},
        {"/p/-1/sites", "pid"},
        {"/p/1/sites?limit=", "limit"},
        {"/p/1/sites?limit", "limit"},
        {"/p/1/sites?limit=101", "limit"},
        {"/p/1/sites?limit=1e2", "limit"},
        {"/p/1/sites?limit=99999999999999999999999", "limit"},
        {"/p/1/sites?limit=1&limit=1", "twice"},
        {"/p/1/sites?shape=array", "shape"},
        {"/p/1/sites?shape=objects%7Carrays", "shape"},
        {"/p/1/sites?shape=", "shape"},
        {"/p/1/sites?all=maybe", "all"},
        {"/p/1/sites?where=123456789", "where"},
        {"/p/1/sites?pid=2", "pid"},
        {"/p/1/sites?nothing=2", "nothing"},
        {"/p/1/sites?%22=2", "no argument"},
        {"/login", "code"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        assert_int_equal(arguments(r, bad[i].raw, &a, error), -EINVAL);
        if (!strstr(error, bad[i].complaint))
            fail_msg("%s: %s", bad[i].raw, error);
    }
    router_free(r);
}

static void the_same_question_has_the_same_key_and_another_has_not(void **state)
{
    static const char *const raws[] = {
        "/p/1/sites?limit=1&where=a", "/p/1/sites?where=%61&limit=1", /* these two are the same */
        "/p/1/sites?limit=1",         "/p/1/sites?where=a",
        "/p/1/sites?limit=1&where=",  "/p/11/sites?where=a",
        "/p/1/sites?all=no",          "/p/1/sites?all=yes",
    };
    enum { N = sizeof(raws) / sizeof(*raws) };
    char *keys[N], error[ARGUMENT_ERROR_MAX];
    size_t lens[N];
    struct router *r = router();
    for (size_t i = 0; i < N; i++) {
        struct arguments a;
        assert_int_equal(arguments(r, raws[i], &a, error), 0);
        assert_int_equal(arguments_key(&a, &keys[i], &lens[i]), 0);
        arguments_release(&a);
    }
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < i; k++) {
            bool same = lens[i] == lens[k] && memcmp(keys[i], keys[k], lens[i]) == 0;
            assert_int_equal(same, i == 1 && k == 0);
        }
    for (size_t i = 0; i < N; i++)
        free(keys[i]);
    router_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_target_is_decoded),
        cmocka_unit_test(what_wants_out_of_the_tree_is_refused),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(a_path_finds_its_route_or_its_methods),
        cmocka_unit_test(routes_that_make_no_sense_are_our_fault),
        cmocka_unit_test(arguments_are_checked_by_the_table),
        cmocka_unit_test(the_same_question_has_the_same_key_and_another_has_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
