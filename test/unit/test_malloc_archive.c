/* The archive that is linked into a program instead of its malloc(). What both archives have is in test_malloc_embed.c. */
#include "check.h"

#include <dlfcn.h>
#include <malloc.h>
#include <memoir/malloc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void *(*volatile some_malloc)(size_t) = malloc;
static void (*volatile some_free)(void *) = free;

static bool is_here(void *function)
{
    Dl_info there, here;
    assert_true(dladdr(function, &there) && dladdr((void *)(uintptr_t)is_here, &here));
    return there.dli_fbase == here.dli_fbase;
}

static void malloc_is_ours(void **state)
{
    assert_true(is_here((void *)(uintptr_t)some_malloc));
    assert_true(is_here((void *)(uintptr_t)some_free));
    char *p = some_malloc(100);
    assert_int_equal(malloc_usable_size(p), memoir_malloc_usable(p));
    some_free(p);
}

/* What a library of the system allocates, we free. */
static void libraries_are_served_too(void **state)
{
    char *p = strdup("a word");
    assert_true(memoir_malloc_usable(p) >= 7);
    assert_string_equal(p, "a word");
    memoir_malloc_free(p);
}

static void it_is_one_heap(void **state)
{
    some_free(memoir_malloc(100));
    memoir_malloc_free(some_malloc(100));
    some_free(memoir_malloc_aligned(4096, 100));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malloc_is_ours),
        cmocka_unit_test(libraries_are_served_too),
        cmocka_unit_test(it_is_one_heap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
