/* The archive with our heap under names of its own, beside the malloc() that the program has. */
#include "check.h"

#include <dlfcn.h>
#include <errno.h>
#include <memoir/malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Names that the allocator uses inside: a program may have them as well. */
int lock_take(void);
int heap_alloc_slowly(void);
int lock_take(void)
{
    return 7;
}
int heap_alloc_slowly(void)
{
    return 8;
}

static void *(*volatile libc_malloc)(size_t) = malloc;
static void (*volatile libc_free)(void *) = free;

static bool is_here(void *function)
{
    Dl_info there, here;
    assert_true(dladdr(function, &there) && dladdr((void *)(uintptr_t)is_here, &here));
    return there.dli_fbase == here.dli_fbase;
}

static void names_inside_do_not_meet_those_of_the_program(void **state)
{
    assert_int_equal(lock_take(), 7);
    assert_int_equal(heap_alloc_slowly(), 8);
    memoir_malloc_free(memoir_malloc(10));
}

static void malloc_stays_that_of_the_program(void **state)
{
    bool here = is_here((void *)(uintptr_t)libc_malloc);
#if defined(UNDER_ASAN) || defined(UNDER_TSAN)
    assert_true(here); /* a sanitizer's malloc is in the program itself */
#else
    assert_false(here);
#endif
    char *theirs = libc_malloc(1000), *ours = memoir_malloc(1000);
    memset(theirs, 1, 1000);
    memset(ours, 2, 1000);
    assert_int_equal(theirs[999], 1);
    libc_free(theirs);
    memoir_malloc_free(ours);
}

static void the_family_does_what_the_c_library_does(void **state)
{
    volatile size_t huge = SIZE_MAX;
    memoir_malloc_free(NULL);
    assert_int_equal(memoir_malloc_usable(NULL), 0);
    void *nothing = memoir_malloc(0), *another = memoir_malloc(0);
    assert_non_null(nothing);
    assert_ptr_not_equal(nothing, another);
    memoir_malloc_free(nothing);
    memoir_malloc_free(another);
    errno = 0;
    assert_null(memoir_malloc(huge));
    assert_int_equal(errno, ENOMEM);
    errno = 0;
    assert_null(memoir_malloc_calloc(huge / 2, 3));
    assert_int_equal(errno, ENOMEM);
    errno = 0;
    assert_null(memoir_malloc_aligned(24, 8));
    assert_int_equal(errno, EINVAL);
    for (size_t alignment = 1; alignment <= 1 << 16; alignment *= 2) {
        void *p = memoir_malloc_aligned(alignment, 100);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % alignment, 0);
        assert_true(memoir_malloc_usable(p) >= 100);
        memoir_malloc_free(p);
    }
    char *p = memoir_malloc_calloc(10, 10);
    for (int i = 0; i < 100; i++)
        assert_int_equal(p[i], 0);
    memset(p, 5, 100);
    for (size_t bytes = 200; bytes < 4 << 20; bytes *= 3) {
        p = memoir_malloc_realloc(p, bytes);
        assert_non_null(p);
        assert_int_equal(p[0] + p[99], 10);
    }
    assert_null(memoir_malloc_realloc(p, 0));
    p = memoir_malloc_realloc(NULL, 10);
    assert_non_null(p);
    memoir_malloc_free(p);
}

static void *churn(void *user)
{
    unsigned char *held[64] = {0};
    for (unsigned i = 0; i < 20000; i++) {
        unsigned char **slot = &held[i * 7919 % 64];
        if (*slot)
            assert_int_equal((*slot)[0], (unsigned char)(uintptr_t)slot);
        memoir_malloc_free(*slot);
        *slot = memoir_malloc(1 + i * 31 % 3000);
        (*slot)[0] = (unsigned char)(uintptr_t)slot;
    }
    for (int i = 0; i < 64; i++)
        memoir_malloc_free(held[i]);
    return NULL;
}

static void threads_have_heaps_of_their_own(void **state)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_inside_do_not_meet_those_of_the_program),
        cmocka_unit_test(malloc_stays_that_of_the_program),
        cmocka_unit_test(the_family_does_what_the_c_library_does),
        cmocka_unit_test(threads_have_heaps_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
