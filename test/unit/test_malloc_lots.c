/* Memory for words: arrays are nobody else's and empty, serve again, and go back to the kernel with the last one of their part. */
#include "malloc/lots.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "malloc/os.h"

#include "check.h"

enum { LARGE = 6156, PER_PART = LOT_PART_BYTES / 6160, MANY = 4 * LOT_PARTS * PER_PART };

static size_t resident_bytes(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 0;
    unsigned char pages[LOT_BYTES / OS_PAGE_BYTES];
    for (struct words_lot *lot = words_lots; lot; lot = lot->next) {
        assert_int_equal(mincore(lot, LOT_BYTES, pages), 0);
        for (size_t i = 0; i < LOT_BYTES / page; i++)
            n += pages[i] & 1;
    }
    return n * page;
}

static unsigned lots_n(void)
{
    unsigned n = 0;
    for (struct words_lot *lot = words_lots; lot; lot = lot->next)
        n++;
    return n;
}

/* The pages of their headers, which stay. */
static size_t headers_bytes(void)
{
    return lots_n() * os_page_bytes();
}

static bool is_zero(const void *array, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const char *)array)[i])
            return false;
    return true;
}

/* One that is empty, and whole: whoever has it writes all of it. */
static void *take(size_t bytes)
{
    char *array = lots_take(bytes);
    assert_non_null(array);
    assert_true(is_zero(array, bytes));
    memset(array, 0xff, bytes);
    return array;
}

static void give(void *array, size_t bytes)
{
    memset(array, 0, bytes);
    lots_give(array, bytes);
}

static void most_goes_back_at_once_and_the_rest_when_asked(void **state)
{
    static void *arrays[MANY];
    for (unsigned i = 0; i < MANY; i++)
        arrays[i] = take(LARGE);
    unsigned lots = lots_n();
    assert_true(resident_bytes() >= (size_t)MANY * LARGE);
    for (unsigned i = 0; i < MANY; i++)
        give(arrays[i], LARGE);
    /* Two parts, one that was used last, and the headers' pages. */
    assert_true(resident_bytes() <= 3 * LOT_PART_BYTES + headers_bytes());
    assert_true(lots_trim());
    assert_true(resident_bytes() <= headers_bytes());
    assert_false(lots_trim());
    /* They serve again: empty, whatever is cut from them now, and without further lots. */
    for (unsigned i = 0; i < MANY; i++)
        arrays[i] = take(LARGE - 16 * (i % 3));
    assert_int_equal(lots_n(), lots);
    for (unsigned i = 0; i < MANY; i++)
        give(arrays[i], LARGE - 16 * (i % 3));
    lots_trim();
}

/* One array in each part is in use. */
static void what_is_in_use_stays(void **state)
{
    static unsigned char *arrays[MANY];
    for (unsigned i = 0; i < MANY; i++)
        memset(arrays[i] = take(LARGE), (int)(i % 251), LARGE);
    for (unsigned i = 0; i < MANY; i++)
        if (i % PER_PART != 3)
            give(arrays[i], LARGE);
    lots_trim();
    for (unsigned i = 3; i < MANY; i += PER_PART)
        for (unsigned k = 0; k < LARGE; k++)
            assert_int_equal(arrays[i][k], i % 251);
    for (unsigned i = 0; i < MANY; i++)
        if (i % PER_PART != 3)
            arrays[i] = take(LARGE);
    for (unsigned i = 0; i < MANY; i++)
        give(arrays[i], LARGE);
    assert_true(lots_trim());
    assert_true(resident_bytes() <= headers_bytes());
}

/* Of all sizes, in any order. */
static void arrays_of_all_sizes_are_apart(void **state)
{
    enum { SLOTS = 600, ROUNDS = 60000 };
    static struct {
        unsigned char *array;
        size_t bytes;
    } slots[SLOTS];
    const char *seed = getenv("TEST_SEED");
    uint64_t random = seed ? strtoull(seed, NULL, 0) : (uint64_t)(uintptr_t)&random | 1;
    print_message("# TEST_SEED=%#llx\n", (unsigned long long)random);
    for (unsigned i = 0; i < ROUNDS; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        unsigned at = (unsigned)(random % SLOTS);
        if (slots[at].array) {
            for (size_t k = 0; k < slots[at].bytes; k++)
                assert_int_equal(slots[at].array[k], at % 251 + 1);
            give(slots[at].array, slots[at].bytes);
            slots[at].array = NULL;
        }
        if (random >> 32 & 3) {
            slots[at].bytes = 1 + (random >> 40) % (random >> 36 & 1 ? LOT_ARRAY_MAX : 100);
            memset(slots[at].array = take(slots[at].bytes), (int)(at % 251 + 1), slots[at].bytes);
        }
        if (i % 5000 == 0)
            lots_trim();
    }
    for (unsigned at = 0; at < SLOTS; at++)
        if (slots[at].array)
            give(slots[at].array, slots[at].bytes);
    lots_trim();
    assert_true(resident_bytes() <= headers_bytes());
    assert_null(lots_take(LOT_ARRAY_MAX + 1));
}

static bool no_advice(enum os_call call)
{
    return call == OS_CALL_ADVISE;
}

static void where_the_kernel_takes_nothing_arrays_are_empty_all_the_same(void **state)
{
    enum { SOME = 8 * PER_PART };
    static void *arrays[SOME];
    os_fault = no_advice;
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < SOME; i++)
            arrays[i] = take(LARGE - 100 * round);
        for (unsigned i = 0; i < SOME; i++)
            give(arrays[i], LARGE - 100 * round);
        lots_trim();
    }
    os_fault = NULL;
}

/* ---- threads and children ---- */

enum { THREADS = 4 };

static void *take_and_give(void *argument)
{
    enum { SOME = 3 * PER_PART, ROUNDS = 60 };
    void *arrays[SOME];
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < SOME; i++) {
            arrays[i] = lots_take(LARGE);
            if (!arrays[i] || !is_zero(arrays[i], LARGE))
                return argument;
            memset(arrays[i], (int)(uintptr_t)argument, LARGE);
        }
        for (unsigned i = 0; i < SOME; i++) {
            const unsigned char *array = arrays[i];
            if (array[0] != (uintptr_t)argument || array[LARGE - 1] != (uintptr_t)argument)
                return argument;
            give(arrays[i], LARGE);
        }
        if (round % 8 == 0)
            lots_trim();
    }
    return NULL;
}

static void threads_do_not_disturb_each_other(void **state)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
}

static uint32_t stop;

static void *never_idle(void *argument)
{
    while (!load_relaxed(&stop))
        if (take_and_give(argument))
            return argument;
    return NULL;
}

/* No handler runs: the child finds the lock as it is, and perhaps a part that is on its way to the kernel. */
static void a_child_that_is_forked_meanwhile_goes_on(void **state)
{
    enum { CHILDREN = 40 };
#ifdef UNDER_TSAN
    skip(); /* it does not know that a child's memory is another one */
#endif
    pthread_t thread;
    void *kept = take(LARGE), *failed;
    assert_int_equal(pthread_create(&thread, NULL, never_idle, (void *)7), 0);
    for (unsigned i = 0; i < CHILDREN; i++) {
        pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        assert_true(child >= 0);
        if (child == 0) {
            bool right = !take_and_give((void *)9) && ((unsigned char *)kept)[7] == 0xff;
            give(kept, LARGE);
            lots_trim();
            _exit(right ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    store_relaxed(&stop, 1);
    pthread_join(thread, &failed);
    assert_null(failed);
    give(kept, LARGE);
}

/* The lock was held, and so all may have been half changed: no array is lost that a slab has, and none is given out that is not empty. */
static bool begins_anew(void *const *arrays, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (((unsigned char *)arrays[i])[LARGE - 1] != 0xff)
            return false;
        give(arrays[i], LARGE);
        lots_trim();
    }
    return !take_and_give((void *)9);
}

static void a_child_that_finds_the_lock_held_begins_anew(void **state)
{
    enum { SOME = 5 * PER_PART };
    static void *arrays[SOME];
    for (unsigned i = 0; i < SOME; i++)
        arrays[i] = take(LARGE);
    for (unsigned i = SOME / 2; i < SOME; i++)
        give(arrays[i], LARGE);
    lots_fork_prepare();
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(begins_anew(arrays, SOME / 2) ? 0 : 1);
    lots_fork_done(false);
    int status = 1;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
    for (unsigned i = 0; i < SOME / 2; i++)
        give(arrays[i], LARGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(most_goes_back_at_once_and_the_rest_when_asked),
        cmocka_unit_test(what_is_in_use_stays),
        cmocka_unit_test(arrays_of_all_sizes_are_apart),
        cmocka_unit_test(where_the_kernel_takes_nothing_arrays_are_empty_all_the_same),
        cmocka_unit_test(threads_do_not_disturb_each_other),
        cmocka_unit_test(a_child_that_is_forked_meanwhile_goes_on),
        cmocka_unit_test(a_child_that_finds_the_lock_held_begins_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
