/* Bytes as text and back. */
#include <errno.h>
#include <string.h>

#include "base/base64.h"
#include "base/buffer.h"
#include "check.h"

static void known_texts(void **state)
{
    static const struct {
        const char *bytes, *text;
    } rows[] = {{"", ""},        {"f", "Zg=="},          {"fo", "Zm8="},
                {"foo", "Zm9v"}, {"foobar", "Zm9vYmFy"}, {"\xff\xfe\xfd", "//79"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buffer text = BUFFER_INIT(1000), back = BUFFER_INIT(1000);
        assert_int_equal(base64_append(&text, rows[i].bytes, strlen(rows[i].bytes)), 0);
        assert_string_equal(buffer_string(&text), rows[i].text);
        assert_int_equal(base64_decode(&back, text.data, text.len), 0);
        assert_string_equal(buffer_string(&back), rows[i].bytes);
        buffer_release(&text);
        buffer_release(&back);
    }
}

static void other_texts_are_refused(void **state)
{
    static const char *const rows[] = {
        "Z", "Zg=", "Zg", "Zh==", "Zm9=", "Z===", "====", "Zg==Zg==", "Zm9 ", "Zm\n8"};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buffer back = BUFFER_INIT(1000);
        assert_int_equal(base64_decode(&back, rows[i], strlen(rows[i])), -EINVAL);
        buffer_release(&back);
    }
    struct buffer small = BUFFER_INIT(3);
    assert_int_equal(base64_append(&small, "abc", 3), -ENOBUFS);
    buffer_release(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_texts),
        cmocka_unit_test(other_texts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
