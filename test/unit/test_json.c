/* The JSON writer: commas, escapes, numbers, errors. */
#include "base/json.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "check.h"

#define DOCUMENT_MAX 4096

struct fixture {
    struct buffer out;
    struct json j;
};

static int setup(void **state)
{
    static struct fixture f;
    f.out = BUFFER_INIT(DOCUMENT_MAX);
    json_init(&f.j, &f.out);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    buffer_release(&f->out);
    return 0;
}

#define assert_document(f, text)                             \
    do {                                                     \
        assert_int_equal(json_finish(&(f)->j), 0);           \
        assert_string_equal(buffer_string(&(f)->out), text); \
    } while (0)

static void containers_nest_with_commas_in_place(void **state)
{
    struct fixture *f = *state;
    json_object_begin(&f->j);
    json_field_u64(&f->j, "a", 1);
    json_key(&f->j, "b");
    json_array_begin(&f->j);
    json_array_begin(&f->j);
    json_array_end(&f->j);
    json_object_begin(&f->j);
    json_object_end(&f->j);
    json_bool(&f->j, true);
    json_null(&f->j);
    json_array_end(&f->j);
    json_field_string(&f->j, "c", "x");
    json_field_bool(&f->j, "d", false);
    json_field_null(&f->j, "e");
    json_field_string(&f->j, "f", NULL);
    json_object_end(&f->j);
    assert_document(
        f, "{\"a\":1,\"b\":[[],{},true,null],\"c\":\"x\",\"d\":false,\"e\":null,\"f\":null}");
}

static void integers_keep_every_digit(void **state)
{
    struct fixture *f = *state;
    json_array_begin(&f->j);
    json_u64(&f->j, 0);
    json_u64(&f->j, UINT64_MAX);
    json_i64(&f->j, INT64_MIN);
    json_i64(&f->j, -7);
    json_array_end(&f->j);
    assert_document(f, "[0,18446744073709551615,-9223372036854775808,-7]");
}

static void doubles_are_short_and_exact(void **state)
{
    struct fixture *f = *state;
    json_array_begin(&f->j);
    json_double(&f->j, 0.1);
    json_double(&f->j, 25);
    json_double(&f->j, -1e300);
    json_double(&f->j, 1.0 / 3);
    json_double(&f->j, -0.0);
    json_double(&f->j, 5e-324);
    json_double(&f->j, 4294967296.0);
    json_array_end(&f->j);
    assert_document(f, "[0.1,25,-1e+300,0.3333333333333333,-0,4.94065645841247e-324,4294967296]");
}

static void values_that_json_lacks_are_null(void **state)
{
    struct fixture *f = *state;
    json_array_begin(&f->j);
    json_double(&f->j, NAN);
    json_double(&f->j, INFINITY);
    json_double(&f->j, -INFINITY);
    json_array_end(&f->j);
    assert_document(f, "[null,null,null]");
}

/* A locale with a decimal comma, made on the spot where the system has none. */
static bool set_comma_locale(void)
{
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8"))
        return true;
    char dir[] = "/tmp/memoir-test-json-XXXXXX", command[256];
    if (!mkdtemp(dir))
        return false;
    snprintf(command, sizeof(command),
             "localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' >/dev/null 2>&1", dir);
    bool made = system(command) == 0 && setenv("LOCPATH", dir, 1) == 0 &&
                setlocale(LC_NUMERIC, "de_DE.UTF-8");
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    return system(command) == 0 && made;
}

static void decimal_point_is_a_dot_in_every_locale(void **state)
{
    struct fixture *f = *state;
    if (!set_comma_locale())
        skip();
    char comma[8];
    snprintf(comma, sizeof(comma), "%g", 1.5);
    assert_string_equal(comma, "1,5");
    json_double(&f->j, 1.5);
    setlocale(LC_NUMERIC, "C");
    assert_document(f, "1.5");
}

static void control_bytes_and_quotes_are_escaped(void **state)
{
    struct fixture *f = *state;
    json_string_n(&f->j, "a\"\\/\b\f\n\r\t\x01\x1f\x7f\0z", 14);
    assert_document(f, "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f\\u0000z\"");
}

/* U+0080 to U+009F: a terminal takes U+009B for ESC [. */
static void upper_controls_are_escaped(void **state)
{
    struct fixture *f = *state;
    json_string(&f->j, "a\xc2\x80\xc2\x9b\xc2\x9f\xc2\xa0z");
    assert_document(f, "\"a\\u0080\\u009b\\u009f\xc2\xa0z\"");
}

static void valid_utf8_passes(void **state)
{
    struct fixture *f = *state;
    json_string(&f->j, "é€😀\xf4\x8f\xbf\xbf");
    assert_document(f, "\"é€😀\xf4\x8f\xbf\xbf\"");
}

#define FFFD "\xef\xbf\xbd"

static void invalid_utf8_is_replaced_byte_by_byte(void **state)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"\x80", FFFD},                            /* stray continuation */
        {"a\xc3", "a" FFFD},                       /* cut at the end */
        {"\xc3(", FFFD "("},                       /* cut in the middle */
        {"\xc0\xaf", FFFD FFFD},                   /* overlong slash */
        {"\xe0\x9f\xbf", FFFD FFFD FFFD},          /* overlong */
        {"\xed\xa0\x80", FFFD FFFD FFFD},          /* surrogate */
        {"\xf4\x90\x80\x80", FFFD FFFD FFFD FFFD}, /* past U+10FFFF */
        {"\xff\xfe", FFFD FFFD},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        buffer_reset(&f->out);
        assert_int_equal(json_quote(&f->out, cases[i].in, strlen(cases[i].in)), 0);
        char expected[64];
        snprintf(expected, sizeof(expected), "\"%s\"", cases[i].out);
        assert_string_equal(buffer_string(&f->out), expected);
    }
}

static void document_past_the_limit_is_an_error(void **state)
{
    struct fixture *f = *state;
    json_array_begin(&f->j);
    for (int i = 0; i < DOCUMENT_MAX; i++)
        json_u64(&f->j, 1);
    json_array_end(&f->j);
    assert_int_equal(json_finish(&f->j), -ENOBUFS);
}

static void nesting_too_deep_is_an_error(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < JSON_DEPTH_MAX + 1; i++)
        json_array_begin(&f->j);
    for (int i = 0; i < JSON_DEPTH_MAX + 1; i++)
        json_array_end(&f->j);
    assert_int_equal(json_finish(&f->j), -EOVERFLOW);
}

static void deepest_nesting_is_written(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < JSON_DEPTH_MAX; i++)
        json_array_begin(&f->j);
    json_u64(&f->j, 1);
    for (int i = 0; i < JSON_DEPTH_MAX; i++)
        json_array_end(&f->j);
    assert_int_equal(json_finish(&f->j), 0);
    assert_int_equal(f->out.len, 2 * JSON_DEPTH_MAX + 1);
}

static void check_digits(uint64_t number)
{
    char text[JSON_DIGITS_MAX + 1], expected[32];
    memset(text, 'x', sizeof(text));
    size_t len = json_digits(text, number);
    assert_int_equal(len, snprintf(expected, sizeof(expected), "%" PRIu64, number));
    assert_memory_equal(text, expected, len);
    assert_int_equal(text[JSON_DIGITS_MAX], 'x'); /* and not a byte behind what they may take */
}

static void numbers_of_every_length_have_their_digits(void **state)
{
    for (uint64_t power = 1;; power *= 10) {
        for (uint64_t near = 0; near < 3; near++) {
            check_digits(power - near);
            check_digits(power + near);
        }
        if (power > UINT64_MAX / 10)
            break;
    }
    for (unsigned bit = 0; bit < 64; bit++) {
        check_digits(UINT64_C(1) << bit);
        check_digits((UINT64_C(1) << bit) - 1);
    }
    check_digits(UINT64_MAX);
}

/* Of every length, with any byte at any place. */
static void plain_strings_are_told_from_others(void **state)
{
    for (size_t len = 0; len < 40; len++) {
        char s[40] = "", text[48];
        for (size_t i = 0; i < len; i++)
            s[i] = (char)('A' + i % 26);
        memset(text, 'x', sizeof(text));
        assert_int_equal(json_plain(text, s, len), len + 2);
        assert_true(text[0] == '"' && text[len + 1] == '"' && text[len + 2] == 'x');
        assert_memory_equal(text + 1, s, len);
        for (size_t at = 0; at < len; at++) {
            char was = s[at];
            for (unsigned c = 0; c < 256; c++) {
                bool plain = c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
                s[at] = (char)c;
                assert_int_equal(json_plain(text, s, len), plain ? len + 2 : 0);
            }
            s[at] = was;
        }
    }
}

#define json_test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        json_test(containers_nest_with_commas_in_place),
        json_test(integers_keep_every_digit),
        json_test(doubles_are_short_and_exact),
        json_test(values_that_json_lacks_are_null),
        json_test(decimal_point_is_a_dot_in_every_locale),
        json_test(control_bytes_and_quotes_are_escaped),
        json_test(upper_controls_are_escaped),
        json_test(valid_utf8_passes),
        json_test(invalid_utf8_is_replaced_byte_by_byte),
        json_test(document_past_the_limit_is_an_error),
        json_test(nesting_too_deep_is_an_error),
        json_test(deepest_nesting_is_written),
        json_test(numbers_of_every_length_have_their_digits),
        json_test(plain_strings_are_told_from_others),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
