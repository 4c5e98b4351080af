/* Atomic helpers: what each returns, and that no update is lost between threads. */
#include "base/atomic.h"

#include <pthread.h>

#include "check.h"

static void add_relaxed_adds_to_any_width(void **unused)
{
    uint32_t small = 7;
    uint64_t large = UINT64_MAX - 1;
    add_relaxed(&small, 3);
    add_relaxed(&large, 1);
    assert_int_equal(load_relaxed(&small), 10);
    assert_true(load_relaxed(&large) == UINT64_MAX);
    sub_relaxed(&small, 10);
    assert_int_equal(small, 0);
}

static void failed_cas_tells_what_was_there(void **unused)
{
    uint64_t word = 5, expected = 4;
    assert_false(cas_acquire(&word, &expected, 9));
    assert_int_equal(expected, 5);
    assert_true(cas_acq_rel(&word, &expected, 9));
    assert_int_equal(load_acquire(&word), 9);
}

static void pointers_are_exchanged(void **unused)
{
    int a, b;
    int *p = &a;
    assert_ptr_equal(exchange_acq_rel(&p, &b), &a);
    assert_ptr_equal(load_acquire(&p), &b);
}

static void arguments_are_evaluated_once(void **unused)
{
    uint64_t words[2] = {0};
    uint64_t *p = words;
    add_relaxed(p++, 1);
    assert_ptr_equal(p, words + 1);
    max_relaxed(p++, 4);
    assert_ptr_equal(p, words + 2);
    assert_int_equal(words[1], 4);
}

#define THREADS 4
#define ROUNDS  20000

static struct {
    uint64_t sum;  /* all threads add */
    uint64_t peak; /* all threads raise */
    uint32_t lock; /* 1 while held: acquire to take, release to give */
    uint64_t guarded;
} shared;

static void *hammer(void *arg)
{
    uint64_t me = (uintptr_t)arg;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        fetch_add_relaxed(&shared.sum, 1);
        max_relaxed(&shared.peak, i * THREADS + me);
        while (exchange_acquire(&shared.lock, 1))
            cpu_relax();
        shared.guarded++;
        store_release(&shared.lock, 0);
    }
    return NULL;
}

static void no_update_is_lost_between_threads(void **unused)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hammer, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(shared.sum, THREADS * ROUNDS);
    assert_int_equal(shared.guarded, THREADS * ROUNDS);
    assert_int_equal(shared.peak, THREADS * ROUNDS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add_relaxed_adds_to_any_width),
        cmocka_unit_test(failed_cas_tells_what_was_there),
        cmocka_unit_test(pointers_are_exchanged),
        cmocka_unit_test(arguments_are_evaluated_once),
        cmocka_unit_test(no_update_is_lost_between_threads),
    };
    return cmocka_run_group_tests_name("atomic", tests, NULL, NULL);
}
