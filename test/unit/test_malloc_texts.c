/* The shared library's own functions on text, here under other names, do what the C library's do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

void *own_memchr(const void *bytes, int wanted, size_t n);
void *own_memrchr(const void *bytes, int wanted, size_t n);
void *own_memmem(const void *bytes, size_t n, const void *wanted, size_t length);
int own_strncmp(const char *a, const char *b, size_t n);
int own_strcmp(const char *a, const char *b);
char *own_strchr(const char *text, int wanted);
char *own_strrchr(const char *text, int wanted);
char *own_strstr(const char *text, const char *wanted);
size_t own_strcspn(const char *text, const char *ends);
char *own_secure_getenv(const char *name);

enum { ROUNDS = 50000, TEXT_MAX = 24 };

/* Of few letters, so that there is something to find; one of them is negative as a char. */
static size_t text_make(char *text, size_t max, unsigned *seed)
{
    size_t n = (size_t)rand_r(seed) % (max + 1);
    for (size_t i = 0; i < n; i++)
        text[i] = "ab/\xe4"[rand_r(seed) % 4];
    text[n] = '\0';
    return n;
}

static int sign(int value)
{
    return (value > 0) - (value < 0);
}

static void they_agree_with_the_c_librarys(void **unused)
{
    const char *given = getenv("MEMOIR_SEED");
    unsigned seed = given ? (unsigned)atoi(given) : (unsigned)(uintptr_t)&seed >> 4;
    printf("# MEMOIR_SEED=%u\n", seed);
    for (int round = 0; round < ROUNDS; round++) {
        char a[TEXT_MAX + 1], b[TEXT_MAX + 1];
        size_t n = text_make(a, TEXT_MAX, &seed), m = text_make(b, rand_r(&seed) % 4, &seed);
        int c = "ab/\xe4\0"[rand_r(&seed) % 5];
        size_t part = n ? (size_t)rand_r(&seed) % n : 0;
        assert_ptr_equal(own_memchr(a, c, part), memchr(a, c, part));
        assert_ptr_equal(own_memrchr(a, c, part), memrchr(a, c, part));
        assert_ptr_equal(own_memmem(a, part, b, m), memmem(a, part, b, m));
        assert_ptr_equal(own_strchr(a, c), strchr(a, c));
        assert_ptr_equal(own_strrchr(a, c), strrchr(a, c));
        assert_ptr_equal(own_strstr(a, b), strstr(a, b));
        assert_int_equal(own_strcspn(a, b), strcspn(a, b));
        if (round % 2)
            memcpy(b, a, n + 1);
        b[part] = round % 4 == 1 ? 'a' : b[part];
        assert_int_equal(sign(own_strcmp(a, b)), sign(strcmp(a, b)));
        assert_int_equal(sign(own_strncmp(a, b, part)), sign(strncmp(a, b, part)));
    }
}

static void a_variable_is_found_by_its_whole_name(void **unused)
{
    setenv("MEMOIR_TEXTS_LONGER", "other", 1);
    assert_null(own_secure_getenv("MEMOIR_TEXTS"));
    setenv("MEMOIR_TEXTS", "value", 1);
    assert_string_equal(own_secure_getenv("MEMOIR_TEXTS"), "value");
    assert_string_equal(own_secure_getenv("MEMOIR_TEXTS_LONGER"), "other");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_agree_with_the_c_librarys),
        cmocka_unit_test(a_variable_is_found_by_its_whole_name),
    };
    return cmocka_run_group_tests_name("malloc_texts", tests, NULL, NULL);
}
