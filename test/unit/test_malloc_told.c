/* What a hardened program's message is made of: lines without stdio, stacks by number, the last large blocks that were freed. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "malloc/depot.h"
#include "malloc/gone.h"
#include "malloc/line.h"
#include "site/arch.h"

/* What one line_write() sends. */
static void written(struct line *l, char *text, size_t bytes)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    line_write(l, ends[1]);
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; (got = read(ends[0], text + n, bytes - 1 - n)) > 0;)
        n += (size_t)got;
    text[n] = 0;
    close(ends[0]);
}

static void a_line_has_text_and_numbers(void **state)
{
    struct line l = {.length = 0};
    char text[256];
    line_text(&l, "a ");
    line_number(&l, 0);
    line_text(&l, " ");
    line_number(&l, UINT64_MAX);
    line_text(&l, " ");
    line_hex(&l, 0);
    line_text(&l, " ");
    line_hex(&l, 0x1f00);
    written(&l, text, sizeof(text));
    assert_string_equal(text, "a 0 18446744073709551615 0x0 0x1f00\n");
    assert_int_equal(l.length, 0);
}

static void what_does_not_fit_is_cut_and_still_ends_the_line(void **state)
{
    struct line l = {.length = 0};
    static char text[2 * LINE_BYTES];
    for (int i = 0; i < LINE_BYTES; i++)
        line_text(&l, "xyz");
    written(&l, text, sizeof(text));
    assert_int_equal(strlen(text), LINE_BYTES);
    assert_int_equal(text[LINE_BYTES - 1], '\n');
    assert_int_equal(text[LINE_BYTES - 2], "xyz"[(LINE_BYTES - 2) % 3]);
}

static void writing_keeps_errno(void **state)
{
    struct line l = {.length = 0};
    line_text(&l, "nobody reads this");
    errno = ERANGE;
    line_write(&l, -1);
    assert_int_equal(errno, ERANGE);
}

/* ---- stacks ---- */

__attribute__((noinline)) static uint32_t add_here(void)
{
    struct unwind_state from = UNWIND_STATE_CALLER();
    return depot_add(&from);
}

__attribute__((noinline)) static uint32_t add_elsewhere(void)
{
    uint32_t number = add_here();
    __asm__ volatile("" : "+r"(number));
    return number;
}

/* One call in a loop stays one: it would have several return addresses otherwise. */
#ifdef __clang__
#define AS_WRITTEN __attribute__((noinline, optnone))
#else
#define AS_WRITTEN __attribute__((noinline, optimize("O0")))
#endif

AS_WRITTEN static void a_stack_has_the_same_number_each_time(void **state)
{
    uint32_t numbers[3];
    for (int i = 0; i < 3; i++)
        numbers[i] = add_here();
    uint32_t other = add_elsewhere();
    assert_int_not_equal(numbers[0], 0);
    assert_int_equal(numbers[0], numbers[2]);
    assert_int_not_equal(numbers[0], other);
    const struct depot_stack *s = depot_get(numbers[0]), *o = depot_get(other);
    assert_non_null(s);
    assert_non_null(o);
    assert_true(s->n > 1 && s->n <= DEPOT_FRAMES);
    assert_int_equal(s->pcs[1], o->pcs[2]); /* both were called by who called this */
}

static void a_number_that_is_none_has_no_stack(void **state)
{
    assert_null(depot_get(0));
    assert_null(depot_get(DEPOT_STACKS + 1));
    assert_null(depot_get(UINT32_MAX));
}

AS_WRITTEN static void *add_many(void *numbers)
{
    for (int i = 0; i < 1000; i++)
        ((uint32_t *)numbers)[i] = i % 2 ? add_here() : add_elsewhere();
    return NULL;
}

static void threads_agree_on_numbers(void **state)
{
    static uint32_t numbers[4][1000];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, numbers[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++)
        assert_memory_equal(numbers[i], numbers[0], sizeof(numbers[0]));
}

/* ---- the last that were freed ---- */

static void the_last_free_of_an_address_counts(void **state)
{
    static char places[GONE_BLOCKS + 1];
    struct gone found;
    assert_false(gone_find(&places[0], &found));
    gone_add(&(struct gone){&places[0], 1, 10, 20});
    gone_add(&(struct gone){&places[1], 2, 11, 21});
    gone_add(&(struct gone){&places[0], 3, 12, 22});
    assert_true(gone_find(&places[0], &found));
    assert_int_equal(found.bytes, 3);
    assert_int_equal(found.alloc_stack, 12);
    assert_int_equal(found.free_stack, 22);
    for (int i = 1; i <= GONE_BLOCKS; i++)
        gone_add(&(struct gone){&places[i], 4, 0, 0});
    assert_false(gone_find(&places[0], &found)); /* forgotten by now */
    assert_true(gone_find(&places[1], &found));
    assert_false(gone_find(NULL, &found));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_has_text_and_numbers),
        cmocka_unit_test(what_does_not_fit_is_cut_and_still_ends_the_line),
        cmocka_unit_test(writing_keeps_errno),
        cmocka_unit_test(a_stack_has_the_same_number_each_time),
        cmocka_unit_test(a_number_that_is_none_has_no_stack),
        cmocka_unit_test(threads_agree_on_numbers),
        cmocka_unit_test(the_last_free_of_an_address_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
