/* The JSON reader: what it takes, what it refuses, and where it says the fault is. */
#include "base/json_read.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* On the heap and without a NUL, so that ASan sees a look past the end. */
static struct json_read reader(const char *text, size_t len, char **ret_copy)
{
    struct json_read r;
    *ret_copy = malloc(len ? len : 1);
    assert_non_null(*ret_copy);
    memcpy(*ret_copy, text, len);
    json_read_init(&r, *ret_copy, len);
    return r;
}

static int skip_all(const char *text, size_t len, size_t *ret_where)
{
    char *copy;
    struct json_read r = reader(text, len, &copy);
    json_read_skip(&r);
    int result = json_read_finish(&r);
    *ret_where = json_read_where(&r);
    assert_int_equal(result < 0, json_read_error(&r) != NULL);
    free(copy);
    return result;
}

static void valid_documents_are_taken_whole(void **state)
{
    static const char *const texts[] = {
        "{}",
        "[]",
        " [ ] ",
        "0",
        "-0",
        "-1",
        "1.5e-3",
        "1E+2",
        "true",
        "false",
        "null",
        "\"\"",
        "\"a\\u00e9\\n\\/\"",
        "\"\\ud83d\\ude00\"",
        "{\"a\":[1,{\"b\":[]}],\"c\":{}}\r\n",
        "[[],[[]],{}]",
        "\"\xf0\x9f\x98\x80\"",
        "\"longer than eight bytes, and more of it\"",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        size_t where;
        if (skip_all(texts[i], strlen(texts[i]), &where) < 0)
            fail_msg("refused: %s (at %zu)", texts[i], where);
    }
}

static void invalid_documents_are_refused_where_they_go_wrong(void **state)
{
    static const struct {
        const char *text;
        size_t where;
    } cases[] = {
        {"", 0},
        {"{", 1},
        {"[1,]", 3},
        {"[1 2]", 3},
        {"{\"a\"}", 4},
        {"{a:1}", 1},
        {"{\"a\":}", 5},
        {"{\"a\":1,}", 7},
        {"01", 0},
        {"-", 0},
        {"1.", 0},
        {"1e", 0},
        {"+1", 0},
        {".5", 0},
        {"tru", 0},
        {"nul", 0},
        {"[1}", 2},
        {"{\"a\":1]", 6},
        {"1 1", 2},
        {"\"a", 2},
        {"\"\\x\"", 1},
        {"\"\\u12g4\"", 1},
        {"\"\\ud800\"", 1},
        {"\"\\udc00\"", 1},
        {"\"\\ud800\\u0041\"", 1},
        {"\"\xc3\"", 1},
        {"\"\xed\xa0\x80\"", 1},
        {"\"\x01\"", 1},
        {"1e999", 0},
        {"\"\\", 1},
        {"// x\n1", 0},
        {"\"12345678\x1f\"", 9},
        {"\"1234567\x80\"", 8},
        {"NaN", 0},
        {"'a'", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        size_t where;
        if (skip_all(cases[i].text, strlen(cases[i].text), &where) == 0)
            fail_msg("taken: %s", cases[i].text);
        if (where != cases[i].where)
            fail_msg("%s: at %zu, not %zu", cases[i].text, where, cases[i].where);
    }
}

static void every_cut_of_a_document_is_refused(void **state)
{
    static const char text[] =
        "{\"a\":[1,-2.5e3,\"x\\u00e9\\ud83d\\ude00 and more\",true,null],\"b\":{}}";
    size_t where;
    for (size_t len = 0; len < sizeof(text) - 1; len++)
        assert_int_equal(skip_all(text, len, &where), -EBADMSG);
    assert_int_equal(skip_all(text, sizeof(text) - 1, &where), 0);
}

static void depth_is_limited(void **state)
{
    char text[2 * JSON_READ_DEPTH_MAX + 2];
    size_t where;
    for (size_t depth = JSON_READ_DEPTH_MAX; depth <= JSON_READ_DEPTH_MAX + 1; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        assert_int_equal(skip_all(text, 2 * depth, &where),
                         depth > JSON_READ_DEPTH_MAX ? -EBADMSG : 0);
    }
}

static struct json_number number_of(const char *text)
{
    struct json_read r;
    struct json_number n = {0};
    json_read_init(&r, text, strlen(text));
    assert_true(json_read_number(&r, &n));
    assert_int_equal(json_read_finish(&r), 0);
    return n;
}

static void integers_are_exact_to_64_bits(void **state)
{
    struct json_number n = number_of("18446744073709551615");
    assert_true(n.kind == JSON_U64 && n.u == UINT64_MAX);
    n = number_of("9007199254740993"); /* not a double */
    assert_true(n.kind == JSON_U64 && n.u == UINT64_C(9007199254740993));
    n = number_of("-9223372036854775808");
    assert_true(n.kind == JSON_I64 && n.i == INT64_MIN);
    n = number_of("18446744073709551616");
    assert_true(n.kind == JSON_DOUBLE && n.d == 18446744073709551616.0);
    n = number_of("-9223372036854775809");
    assert_true(n.kind == JSON_DOUBLE);
    n = number_of("0.1");
    assert_true(n.kind == JSON_DOUBLE && n.d == 0.1);
    n = number_of("1e2");
    assert_true(n.kind == JSON_DOUBLE && n.d == 100.0);
    n = number_of("-0");
    assert_true(n.kind == JSON_U64 && n.u == 0);
}

static void whole_numbers_are_asked_for_strictly(void **state)
{
    static const char *const bad[] = {"-1", "1.0", "1e3", "18446744073709551616", "\"1\"", "null"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct json_read r;
        uint64_t value = 7;
        json_read_init(&r, bad[i], strlen(bad[i]));
        assert_false(json_read_u64(&r, &value));
        assert_int_equal(value, 7);
        assert_int_equal(json_read_where(&r), 0);
    }
    struct json_read r;
    int64_t value;
    json_read_init(&r, "9223372036854775808", 19);
    assert_false(json_read_i64(&r, &value));
}

static void overlong_numbers_are_refused(void **state)
{
    char text[JSON_READ_NUMBER_MAX + 3];
    size_t where;
    memset(text, '1', sizeof(text));
    assert_int_equal(skip_all(text, JSON_READ_NUMBER_MAX, &where), 0);
    assert_int_equal(skip_all(text, JSON_READ_NUMBER_MAX + 1, &where), -EBADMSG);
}

static struct json_text text_of(const char *text)
{
    struct json_read r;
    struct json_text t;
    json_read_init(&r, text, strlen(text));
    assert_true(json_read_string(&r, &t));
    return t;
}

static void texts_are_decoded(void **state)
{
    struct json_text t = text_of("\"a\\t\\\"\\u00e9\\u20ac\\ud83d\\ude00\"");
    char buffer[64];
    static const char decoded[] = "a\t\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80";
    assert_int_equal(json_text_copy(&t, buffer, sizeof(buffer)), sizeof(decoded) - 1);
    assert_string_equal(buffer, decoded);
    assert_true(json_text_is(&t, decoded));
    assert_false(json_text_is(&t, "a\t\""));
    /* Exactly enough, and one too few. */
    assert_int_equal(json_text_copy(&t, buffer, sizeof(decoded)), sizeof(decoded) - 1);
    assert_int_equal(json_text_copy(&t, buffer, sizeof(decoded) - 1), -ENOBUFS);
    t = text_of("\"plain\"");
    assert_int_equal(json_text_copy(&t, buffer, 6), 5);
    assert_int_equal(json_text_copy(&t, buffer, 5), -ENOBUFS);
    assert_int_equal(json_text_copy(&t, buffer, 0), -ENOBUFS);
    assert_true(json_text_is(&t, "plain"));
    assert_false(json_text_is(&t, "plainer"));
    t = text_of("\"a\\u0000b\"");
    assert_int_equal(json_text_copy(&t, buffer, sizeof(buffer)), -EINVAL);
    t = text_of("\"\\u0070lain\"");
    assert_true(json_text_is(&t, "plain"));
}

static void an_object_is_pulled_key_by_key(void **state)
{
    static const char text[] =
        "{\"pid\": 12, \"more\": [1,[2],{\"x\":3}], \"list\":[5,6], \"on\":true}";
    struct json_read r;
    struct json_text key;
    uint64_t pid = 0, sum = 0, item;
    bool on = false;
    json_read_init(&r, text, strlen(text));
    assert_true(json_read_object(&r));
    while (json_read_key(&r, &key)) {
        if (json_text_is(&key, "pid")) {
            json_read_u64(&r, &pid);
        } else if (json_text_is(&key, "list")) {
            json_read_array(&r);
            while (json_read_item(&r))
                if (json_read_u64(&r, &item))
                    sum += item;
        } else if (json_text_is(&key, "on")) {
            json_read_bool(&r, &on);
        } else {
            json_read_skip(&r);
        }
    }
    assert_int_equal(json_read_finish(&r), 0);
    assert_int_equal(pid, 12);
    assert_int_equal(sum, 11);
    assert_true(on);
}

static void errors_stick_and_end_loops(void **state)
{
    struct json_read r;
    struct json_text key;
    uint64_t value;
    json_read_init(&r, "{\"a\":\"x\",\"b\":1}", 15);
    assert_true(json_read_object(&r));
    int keys = 0;
    while (json_read_key(&r, &key)) {
        keys++;
        assert_false(json_read_u64(&r, &value));
    }
    assert_int_equal(keys, 1);
    assert_false(json_read_fail(&r, "a later complaint"));
    assert_string_equal(json_read_error(&r), "expected a number");
    assert_int_equal(json_read_where(&r), 5);
    assert_int_equal(json_read_finish(&r), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_documents_are_taken_whole),
        cmocka_unit_test(invalid_documents_are_refused_where_they_go_wrong),
        cmocka_unit_test(every_cut_of_a_document_is_refused),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(integers_are_exact_to_64_bits),
        cmocka_unit_test(whole_numbers_are_asked_for_strictly),
        cmocka_unit_test(overlong_numbers_are_refused),
        cmocka_unit_test(texts_are_decoded),
        cmocka_unit_test(an_object_is_pulled_key_by_key),
        cmocka_unit_test(errors_stick_and_end_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
