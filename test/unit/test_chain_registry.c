/* The table of registered segments: exact, sorted, and readable while it changes. */
#include "chain_fixture.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/atomic.h"
#include "malloc/chain_registry.h"
#include "malloc/os.h"

enum { MANY = 500, READERS = 3, CHANGES = 3000, STEP = 4096 };

/* Addresses only: nobody looks behind them. */
static void *place(uint64_t i)
{
    return (void *)(uintptr_t)(0x100000000 + i * STEP);
}

static struct memoir_chain *owner(uint64_t i)
{
    return (struct memoir_chain *)(uintptr_t)(0x500000000 + i * 64);
}

/* All system calls from the n-th on fail, for every n. Comes first: what is mapped stays. */
static int calls_left;

static bool fail_from_the_nth_on(enum os_call call)
{
    return calls_left-- <= 0;
}

static void no_memory_for_the_table_is_an_error_and_not_the_end(void **state)
{
    static char room[4096];
    struct memoir_chain_options options = {.struct_size = sizeof(options),
                                           .flags = MEMOIR_CHAIN_REGISTER};
    struct memoir_chain *chain = NULL;
    int refused = 0, r;
    for (int nth = 0;; nth++) {
        calls_left = nth;
        os_fault = fail_from_the_nth_on;
        r = memoir_chain_init(room, sizeof(room), &options, &chain);
        os_fault = NULL;
        if (r == 0)
            break;
        assert_int_equal(r, -ENOMEM);
        assert_null(chain);
        assert_int_equal(registry_count, 0);
        refused++;
    }
    assert_true(refused >= 2); /* the second copy of the table, too */
    assert_ptr_equal(memoir_chain_find(room + 2000), chain);
    assert_non_null(memoir_chain_alloc(chain, 10));
    assert_int_equal(memoir_chain_destroy(chain), 0);
    assert_null(memoir_chain_find(room + 2000));
}

static void addresses_lead_to_their_segment_and_no_other(void **state)
{
    struct dice dice = {dice_seed()};
    bool entered[MANY] = {0};
    for (int step = 0; step < 4000; step++) {
        uint64_t i = dice_below(&dice, MANY), at = dice_below(&dice, MANY);
        if (entered[i])
            registry_remove(place(i));
        else
            assert_int_equal(registry_add(place(i), STEP / 2, owner(i)), 0);
        entered[i] = !entered[i];
        char *p = place(at);
        struct memoir_chain *expected = entered[at] ? owner(at) : NULL;
        assert_ptr_equal(registry_find(p), expected);
        assert_ptr_equal(registry_find(p + STEP / 2 - 1), expected);
        assert_null(registry_find(p + STEP / 2));
        assert_null(registry_find(p - 1));
    }
    for (uint64_t i = 0; i < MANY; i++)
        registry_remove_chain(owner(i));
    assert_int_equal(registry_count, 0);
}

static void what_overlaps_is_refused(void **state)
{
    char *p = place(7);
    assert_int_equal(registry_add(p, 1000, owner(1)), 0);
    assert_int_equal(registry_add(p, 1000, owner(2)), -EBUSY);
    assert_int_equal(registry_add(p - 10, 11, owner(2)), -EBUSY);
    assert_int_equal(registry_add(p + 999, 10, owner(2)), -EBUSY);
    assert_int_equal(registry_add(p - 10, 2000, owner(2)), -EBUSY);
    assert_int_equal(registry_add(p - 10, 2000, owner(1)), -EBUSY);
    assert_int_equal(registry_add(p + 10, 20, owner(1)), 1); /* part of it */
    assert_int_equal(registry_add(p + 1000, 10, owner(2)), 0);
    assert_int_equal(registry_add(p - 10, 10, owner(2)), 0);
    assert_int_equal(registry_count, 3);
    registry_remove_chain(owner(2));
    assert_int_equal(registry_count, 1);
    registry_remove_chain(owner(1));
}

static void entries_may_come_in_any_order(void **state)
{
    for (uint64_t n = 0; n < 300; n++)
        assert_int_equal(registry_add(place(n % 2 ? 1000 - n : n), 16, owner(n)), 0);
    for (uint64_t n = 0; n < 300; n++)
        assert_ptr_equal(registry_find(place(n % 2 ? 1000 - n : n)), owner(n));
    for (uint64_t n = 0; n < 300; n++)
        registry_remove_chain(owner(n));
    assert_int_equal(registry_count, 0);
}

/* ---- readers beside a writer ---- */

static uint32_t stop;

/* Number 100 stays all the time; the others come and go. */
static void *read_on(void *user)
{
    struct dice dice = {(uint64_t)(uintptr_t)user};
    uint64_t looks = 0;
    while (!load_acquire(&stop)) {
        uint64_t i = dice_below(&dice, 200);
        struct memoir_chain *found = registry_find((char *)place(i) + dice_below(&dice, 16));
        assert_true(found == owner(i) || (found == NULL && i != 100));
        looks++;
    }
    return (void *)(uintptr_t)looks;
}

static void readers_always_find_what_is_there(void **state)
{
    struct dice dice = {dice_seed()};
    pthread_t readers[READERS];
    bool entered[200] = {0};
    assert_int_equal(registry_add(place(100), 16, owner(100)), 0);
    store_release(&stop, 0);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_on, (void *)(uintptr_t)(i + 1)), 0);
    for (int change = 0; change < CHANGES; change++) {
        uint64_t i = dice_below(&dice, 200);
        if (i == 100)
            continue;
        if (entered[i])
            registry_remove(place(i));
        else
            assert_int_equal(registry_add(place(i), 16, owner(i)), 0);
        entered[i] = !entered[i];
    }
    store_release(&stop, 1);
    for (int i = 0; i < READERS; i++)
        pthread_join(readers[i], NULL);
    for (uint64_t i = 0; i < 200; i++)
        registry_remove(place(i));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_memory_for_the_table_is_an_error_and_not_the_end),
        cmocka_unit_test(addresses_lead_to_their_segment_and_no_other),
        cmocka_unit_test(what_overlaps_is_refused),
        cmocka_unit_test(entries_may_come_in_any_order),
        cmocka_unit_test(readers_always_find_what_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
