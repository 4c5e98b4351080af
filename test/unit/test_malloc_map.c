/* What lies where: near, far, on both sides of the border between them, and what is told of addresses that are nobody's. */
#include "malloc/map.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { THREADS = 4, UNITS = 4096 };

static const void *unit_at(uintptr_t unit)
{
    return (const void *)(unit << MAP_UNIT_SHIFT);
}

static const uintptr_t units_all = (uintptr_t)1 << (MAP_TOP_SHIFT + MAP_LEAF_SHIFT);

/* Each in a process of its own: what is near is decided once. */
static void apart(void (*test)(void))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        test();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void first_is(uintptr_t unit)
{
    assert_int_equal(map_kind(unit_at(unit)), MAP_NONE);
    assert_true(map_set(unit_at(unit), 1, MAP_MACRO));
    assert_true(map_near_from != 0);
    assert_true(map_near_unit(unit_at(unit)) < MAP_NEAR_UNITS);
    assert_true(map_is_near_macro(unit_at(unit)));
    assert_int_equal(map_kind(unit_at(unit)), MAP_MACRO);
}

/* A run of units is told and forgotten, and its neighbours are nothing. */
static void told(uintptr_t unit, size_t n)
{
    assert_true(map_set(unit_at(unit), n << MAP_UNIT_SHIFT, MAP_MACRO));
    for (uintptr_t u = unit; u < unit + n; u++) {
        assert_int_equal(map_kind((const char *)unit_at(u) + MAP_UNIT_BYTES - 1), MAP_MACRO);
        assert_int_equal(map_is_near_macro(unit_at(u)), map_near_unit(unit_at(u)) < MAP_NEAR_UNITS);
    }
    assert_int_equal(map_kind(unit_at(unit - 1)), MAP_NONE);
    assert_int_equal(map_kind(unit_at(unit + n)), MAP_NONE);
    assert_true(map_set(unit_at(unit), n << MAP_UNIT_SHIFT, MAP_NONE));
    for (uintptr_t u = unit; u < unit + n; u++)
        assert_int_equal(map_kind(unit_at(u)), MAP_NONE);
}

static void high(void)
{
    first_is(units_all - 5000);
    uintptr_t from = map_near_from >> MAP_UNIT_SHIFT, to = from + MAP_NEAR_UNITS;
    told(from, 3);
    told(to - 3, 3);
    told(from - 3, 6); /* half of it is far */
    told(to - 3, 6);
    told(from - (1 << MAP_LEAF_SHIFT) - 2, 4); /* in two leaves */
    told(2, 1);
    told(units_all - 3, 2);
    assert_int_equal(map_kind(unit_at(units_all - 5000)), MAP_MACRO);
}

static void low(void)
{
    first_is(3);
    told(1, 1);
    told(units_all - 5000, 2);
    told(MAP_NEAR_UNITS - 1, 4);
    assert_int_equal(map_kind(unit_at(3)), MAP_MACRO);
}

/* What only looks is not let down, whatever address it has. */
static void nobodys(void)
{
    for (int set = 0; set < 2; set++) {
        for (unsigned bit = 0; bit < 64; bit++) {
            const void *address = (const void *)((uintptr_t)1 << bit);
            assert_int_equal(map_kind(address), MAP_NONE);
            assert_false(map_is_near_macro(address));
        }
        assert_int_equal(map_kind(NULL), MAP_NONE);
        assert_int_equal(map_kind((const void *)UINTPTR_MAX), MAP_NONE);
        assert_true(map_set(unit_at(units_all - 7), 1, MAP_HUGE));
    }
    assert_false(map_set(unit_at(units_all), 1, MAP_HUGE));
    assert_false(map_set(unit_at(units_all - 1), MAP_UNIT_BYTES + 1, MAP_HUGE));
    assert_int_equal(map_kind(unit_at(units_all - 1)), MAP_NONE);
}

/* ---- all at once, from the very first ---- */

static pthread_barrier_t barrier;

static void *tell(void *argument)
{
    uintptr_t at = (uintptr_t)argument;
    pthread_barrier_wait(&barrier);
    for (uintptr_t i = 0; i < UNITS; i++) {
        const void *address = unit_at(at + i * THREADS);
        if (!map_set(address, 1, MAP_HUGE) || map_kind(address) != MAP_HUGE)
            return argument;
    }
    return NULL;
}

static void together(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    uintptr_t base = units_all / 2;
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, tell,
                                        (void *)(base + i + i % 2 * 4 * MAP_NEAR_UNITS)),
                         0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    for (uintptr_t i = 0; i < (uintptr_t)UNITS * THREADS; i++)
        assert_int_equal(map_kind(unit_at(base + i)) == MAP_HUGE, i % 2 == 0);
}

static void test_high(void **state)
{
    (void)state;
    apart(high);
}

static void test_low(void **state)
{
    (void)state;
    apart(low);
}

static void test_nobodys(void **state)
{
    (void)state;
    apart(nobodys);
}

static void test_together(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        apart(together);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_high),
        cmocka_unit_test(test_low),
        cmocka_unit_test(test_nobodys),
        cmocka_unit_test(test_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
