/* The growable buffer: limits, sticky errors, and every allocation failing once. */
#include "base/buffer.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "fault.h"

static void empty_buffer_reads_as_empty_string(void **unused)
{
    struct buffer b = BUFFER_INIT(10);
    assert_string_equal(buffer_string(&b), "");
    buffer_release(&b);
}

static void appends_are_joined(void **unused)
{
    struct buffer b = BUFFER_INIT(1 << 20);
    assert_int_equal(buffer_append_str(&b, "ab"), 0);
    assert_int_equal(buffer_append_char(&b, 'c'), 0);
    assert_int_equal(buffer_printf(&b, "-%d-%s", 42, "x"), 0);
    assert_int_equal(buffer_append(&b, "\0y", 2), 0);
    assert_int_equal(b.len, 10);
    assert_memory_equal(b.data, "abc-42-x\0y", 11);
    buffer_release(&b);
}

static void append_past_the_limit_changes_nothing_and_sticks(void **unused)
{
    struct buffer b = BUFFER_INIT(5);
    assert_int_equal(buffer_append_str(&b, "abc"), 0);
    assert_int_equal(buffer_append_str(&b, "def"), -ENOBUFS);
    assert_string_equal(buffer_string(&b), "abc");
    assert_int_equal(buffer_append_char(&b, 'd'), -ENOBUFS);
    assert_int_equal(buffer_printf(&b, "d"), -ENOBUFS);
    assert_null(buffer_reserve(&b, 0));
    assert_null(buffer_take(&b));
    buffer_reset(&b);
    assert_int_equal(buffer_append_str(&b, "12345"), 0);
    assert_string_equal(buffer_string(&b), "12345");
    buffer_release(&b);
}

static void printf_past_the_limit_leaves_no_trace(void **unused)
{
    struct buffer b = BUFFER_INIT(100);
    buffer_append_str(&b, "keep");
    assert_int_equal(buffer_printf(&b, "%0200d", 1), -ENOBUFS);
    assert_string_equal(buffer_string(&b), "keep");
    buffer_release(&b);
}

static void printf_fills_up_to_the_limit(void **unused)
{
    struct buffer b = BUFFER_INIT(300);
    assert_int_equal(buffer_printf(&b, "%0300d", 7), 0);
    assert_int_equal(b.len, 300);
    assert_int_equal(strlen(b.data), 300);
    assert_int_equal(b.cap, 301);
    buffer_release(&b);
}

static void huge_lengths_do_not_wrap(void **unused)
{
    struct buffer b = BUFFER_INIT((size_t)-1);
    buffer_append_str(&b, "x");
    assert_null(buffer_reserve(&b, (size_t)-2));
    assert_int_equal(b.error, -ENOBUFS);
    buffer_release(&b);
}

static void take_gives_the_memory_away(void **unused)
{
    struct buffer b = BUFFER_INIT(100);
    buffer_append_str(&b, "mine");
    char *s = buffer_take(&b);
    assert_string_equal(s, "mine");
    assert_null(b.data);
    free(s);
    s = buffer_take(&b);
    assert_string_equal(s, "");
    free(s);
}

/* Who keeps what he took counts its length: the room behind it is not his. */
static void what_is_taken_holds_little_more_than_its_length(void **unused)
{
    for (size_t len = 0; len < 100000; len += 1 + len / 3) {
        struct buffer b = BUFFER_INIT(1 << 24);
        buffer_expect(&b, 1 << 20);
        assert_true(b.cap > 1 << 20);
        while (b.len < len)
            buffer_append_char(&b, 'x');
        char *s = buffer_take(&b);
        assert_int_equal(strlen(s), len);
        assert_true(malloc_usable_size(s) <= 2 * (len + 1) + 4096); /* a large block is of pages */
        free(s);
    }
}

static void what_is_taken_is_whole_without_memory_to_shrink_it(void **unused)
{
    for (int nth = 0; fault_arm(nth); nth++) {
        struct buffer b = BUFFER_INIT(1 << 20);
        buffer_append_str(&b, "a few bytes of many");
        char *s = buffer_take(&b);
        fault_disarm();
        assert_true(s || fault_fired());
        if (s)
            assert_string_equal(s, "a few bytes of many");
        assert_true(!s == (b.error == -ENOMEM));
        free(s);
        buffer_release(&b);
    }
}

static void what_is_expected_may_not_come_or_not_fit(void **unused)
{
    struct buffer b = BUFFER_INIT(1000);
    buffer_expect(&b, 1001);
    assert_int_equal(b.error, 0);
    assert_int_equal(b.cap, 0);
    buffer_expect(&b, 1000);
    assert_int_equal(b.cap, 1001);
    assert_int_equal(b.len, 0);
    buffer_release(&b);
    fault_arm(0);
    buffer_expect(&b, 1000);
    fault_disarm();
    assert_true(fault_fired());
    assert_int_equal(b.error, 0); /* nobody needs it yet */
    assert_int_equal(buffer_append_str(&b, "there"), 0);
    assert_int_equal(buffer_printf(&b, "%02000d", 0), -ENOBUFS);
    buffer_expect(&b, 10);
    assert_int_equal(b.error, -ENOBUFS); /* what was an error before stays one */
    buffer_release(&b);
}

static int write_document(struct buffer *b)
{
    for (int i = 0; i < 500; i++)
        buffer_printf(b, "line %d\n", i);
    return b->error;
}

static void any_allocation_may_fail(void **unused)
{
    for (int nth = 0; fault_arm(nth); nth++) {
        struct buffer b = BUFFER_INIT(1 << 20);
        int r = write_document(&b);
        assert_true(r == 0 || (r == -ENOMEM && fault_fired()));
        buffer_release(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_buffer_reads_as_empty_string),
        cmocka_unit_test(appends_are_joined),
        cmocka_unit_test(append_past_the_limit_changes_nothing_and_sticks),
        cmocka_unit_test(printf_past_the_limit_leaves_no_trace),
        cmocka_unit_test(printf_fills_up_to_the_limit),
        cmocka_unit_test(huge_lengths_do_not_wrap),
        cmocka_unit_test(take_gives_the_memory_away),
        cmocka_unit_test(what_is_taken_holds_little_more_than_its_length),
        cmocka_unit_test(what_is_taken_is_whole_without_memory_to_shrink_it),
        cmocka_unit_test(what_is_expected_may_not_come_or_not_fit),
        cmocka_unit_test(any_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("buffer", tests, NULL, NULL);
}
