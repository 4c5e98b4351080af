/* The first blocks of a process: side by side, found by first fit, and freed by anybody. */
#include "malloc/nursery.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/single_threaded.h>

#include "check.h"
#include "malloc/os.h"

enum { FIRST_OFFSET = NURSERY_FIRST * NURSERY_STEP, LAST_BLOCKS = 24 };

/* A fresh one. Sanitizers have threads of their own, which do not come here. */
static int fresh(void **unused)
{
    memset(&nursery_region, 0, sizeof(nursery_region));
    __libc_single_threaded = 1;
    return 0;
}

static char *take(size_t bytes)
{
    char *p = nursery_alloc(bytes, 1);
    assert_non_null(p);
    assert_true(nursery_has(p) && (uintptr_t)p % NURSERY_STEP == 0);
    assert_true(nursery_usable(p) >= (bytes ? bytes : 1));
    memset(p, (int)bytes, bytes);
    return p;
}

static void give(char *p)
{
    assert_true(nursery_free(p));
    assert_int_equal(nursery_check(), 0);
}

static uint64_t count(void)
{
    uint64_t bytes;
    return nursery_count(&bytes);
}

static void blocks_lie_side_by_side(void **unused)
{
    char *a = take(1), *b = take(100), *c = take(0), *d = take(16);
    assert_ptr_equal(a, nursery_region.bytes + FIRST_OFFSET);
    assert_ptr_equal(b, a + 16);
    assert_ptr_equal(c, b + 112);
    assert_ptr_equal(d, c + 16);
    assert_int_equal(nursery_usable(a), 16);
    assert_int_equal(nursery_usable(b), 112);
    uint64_t bytes;
    assert_int_equal(nursery_count(&bytes), 4);
    assert_int_equal(bytes, 160);
}

static void what_is_freed_is_used_again(void **unused)
{
    char *a = take(64), *b = take(64), *c = take(64), *d = take(64);
    give(b);
    assert_ptr_equal(take(64), b);
    give(b);
    give(c); /* the two are one now */
    assert_ptr_equal(take(128), b);
    give(b);
    assert_ptr_equal(take(32), b); /* and what is left of it is free */
    assert_ptr_equal(take(96), b + 32);
    give(a);
    give(d);
    assert_int_equal(count(), 2);
}

static void the_last_block_makes_room_for_any(void **unused)
{
    char *a = take(64), *b = take(64), *c = take(64);
    give(b);
    give(c);
    assert_ptr_equal(take(10000), b);
    give(b);
    give(a);
    assert_int_equal(count(), 0);
    assert_int_equal(nursery_region.now.end, NURSERY_FIRST);
    assert_ptr_equal(take(5000), a);
}

static void alignments_hold_and_waste_nothing(void **unused)
{
    char *last = take(16);
    for (size_t align = 32; align <= 4096; align *= 2) {
        char *p = nursery_alloc(20, align);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % align, 0);
        assert_int_equal(nursery_usable(p), 32);
        assert_int_equal(nursery_check(), 0);
        last = p;
    }
    assert_true(take(1000) < last); /* what was left out is used */
    assert_null(nursery_alloc(20, 8192));
    assert_false(nursery_is_closed());
}

static void only_starts_of_blocks_can_be_freed(void **unused)
{
    char *a = take(64), *b = take(64), outside;
    assert_false(nursery_free(a + 16));
    assert_false(nursery_free(a + 8));
    assert_false(nursery_free(b + 64));
    assert_false(nursery_free(nursery_region.bytes));
    assert_false(nursery_free(&outside) || nursery_usable(&outside));
    give(a);
    assert_false(nursery_free(a)); /* twice */
    assert_int_equal(nursery_usable(a), 0);
    nursery_close();
    give(b);
    assert_false(nursery_free(b));
    assert_int_equal(count(), 0);
}

static void addresses_lead_to_their_block(void **unused)
{
    char *a = take(64), *b = take(64), *c = take(16);
    assert_ptr_equal(nursery_around(a + 63), a);
    assert_ptr_equal(nursery_around(b), b);
    give(b);
    assert_null(nursery_around(b + 1));
    assert_ptr_equal(nursery_around(c + 15), c);
    assert_null(nursery_around(c + 16));
    assert_null(nursery_around(nursery_region.bytes + 1));
    assert_null(nursery_around((char *)&nursery_region + NURSERY_BYTES));
}

static void it_closes_after_so_many_calls(void **unused)
{
    for (int i = 0; i < NURSERY_CALLS; i++)
        give(take(100));
    assert_false(nursery_is_closed());
    assert_null(nursery_alloc(1, 1));
    assert_true(nursery_is_closed());
}

static void it_closes_when_it_is_full(void **unused)
{
    int n = 0;
    for (; nursery_alloc(4096, 1); n++)
        assert_int_equal(nursery_check(), 0);
    assert_int_equal(n, (NURSERY_PLACES * NURSERY_STEP - FIRST_OFFSET) / 4096);
    assert_true(nursery_is_closed());
    assert_null(nursery_alloc(1, 1));
}

static void large_blocks_are_for_others_and_close_nothing(void **unused)
{
    assert_null(nursery_alloc(NURSERY_BLOCK_MAX + 1, 1));
    assert_null(nursery_alloc((size_t)PTRDIFF_MAX, 1));
    assert_false(nursery_is_closed());
    take(NURSERY_BLOCK_MAX);
}

static void many_small_holes_do_not_hold_anybody_up(void **unused)
{
    char *blocks[400];
    for (int i = 0; i < 400; i++)
        blocks[i] = take(16);
    for (int i = 0; i < 400; i += 2)
        give(blocks[i]);
    assert_ptr_equal(take(32), blocks[399] + 16);
    assert_ptr_equal(take(16), blocks[0]);
}

static void a_second_thread_closes_it(void **unused)
{
    char *a = take(64);
    __libc_single_threaded = 0;
    assert_null(nursery_alloc(64, 1));
    __libc_single_threaded = 1;
    assert_null(nursery_alloc(64, 1));
    give(a);
}

static bool is_resident(const char *page)
{
    unsigned char there;
    assert_int_equal(mincore((void *)(uintptr_t)page, 1, &there), 0);
    return there & 1;
}

static void a_page_goes_back_with_its_last_block(void **unused)
{
    char *start = nursery_region.bytes + FIRST_OFFSET;
    size_t bytes = os_page_bytes(), rest = bytes - 64 - 2000;
    char *page = (char *)os_page_up((uintptr_t)start + 4096);
    take((size_t)(page - start) - 64); /* all before a page but 64 bytes */
    char *over = take(128), *a = take(2000), *b = take(rest), *c = take(bytes), *d = take(16);
    assert_ptr_equal(b + rest, page + bytes);
    nursery_close();
    give(a);
    give(over);
    assert_true(is_resident(page));
    assert_int_equal(b[2000], (char)rest);
    give(b);
    assert_int_equal(b[2000], 0); /* read as zero: it went back */
    give(c);
    assert_int_equal(c[100], 0);
    d[0] = 7;
    give(d);
    assert_int_equal(d[0], 0);
}

/* Whose bits lie behind the last of them. */
static void pages_go_back_but_that_of_the_bits(void **unused)
{
    char *blocks[NURSERY_BYTES / 1024], *p;
    int n = 0;
    while ((p = nursery_alloc(1024, 1)) != NULL) {
        memset(p, 1, 1024);
        blocks[n++] = p;
    }
    assert_true(blocks[n - 1] + 2048 > (char *)nursery_region.far);
    while (n-- > 0) {
        assert_int_equal(nursery_usable(blocks[n]), 1024);
        give(blocks[n]);
        assert_false(nursery_free(blocks[n]));
        assert_int_equal(count(), n);
    }
}

static void *free_all(void *blocks)
{
    int *done = malloc(sizeof(*done));
    *done = 0;
    for (int i = 0; i < 300; i++)
        *done += nursery_free(((char **)blocks)[i]);
    return done;
}

static void of_several_who_free_one_succeeds(void **unused)
{
    char *blocks[300];
    pthread_t ids[4];
    int sum = 0;
    for (int i = 0; i < 300; i++)
        blocks[i] = take((size_t)(i * 37 % 400));
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, free_all, blocks), 0);
    for (int i = 0; i < 4; i++) {
        void *done;
        assert_int_equal(pthread_join(ids[i], &done), 0);
        sum += *(int *)done;
        free(done);
    }
    assert_int_equal(sum, 300);
    assert_int_equal(count(), 0);
    assert_int_equal(nursery_check(), 0);
}

static void damage_is_found(void **unused)
{
    char *a = take(64);
    uint32_t place = (uint32_t)(a - nursery_region.bytes) / NURSERY_STEP;
    assert_int_equal(nursery_check(), 0);
    nursery_region.now.near[(place + 1) / 64].live |= UINT64_C(1) << (place + 1) % 64;
    assert_int_equal(nursery_check(), place + 1);
    fresh(NULL);
    take(64);
    nursery_region.now.near[0].starts |= 1;
    assert_int_not_equal(nursery_region.now.near[0].starts, 0);
    nursery_region.now.end = NURSERY_PLACES + 1;
    assert_int_equal(nursery_check(), NURSERY_PLACES + 1);
}

/* Against a list: no two blocks overlap, and none changes while others come and go. */
static void blocks_keep_what_is_in_them(void **unused)
{
    const char *given = getenv("MEMOIR_SEED");
    unsigned seed = given ? (unsigned)atoi(given) : (unsigned)(uintptr_t)&seed >> 4;
    printf("# MEMOIR_SEED=%u\n", seed);
    for (int round = 0; round < 200; round++) {
        struct {
            unsigned char *at;
            size_t bytes;
        } kept[LAST_BLOCKS] = {0};
        fresh(NULL);
        for (int step = 0; step < NURSERY_CALLS - LAST_BLOCKS; step++) {
            int i = rand_r(&seed) % LAST_BLOCKS;
            for (size_t k = 0; k < kept[i].bytes; k++)
                assert_int_equal(kept[i].at[k], i + 1);
            if (kept[i].at)
                give((char *)kept[i].at);
            size_t bytes = (size_t)rand_r(&seed) % (rand_r(&seed) % 8 ? 200 : 6000);
            size_t align = rand_r(&seed) % 8 ? 1 : (size_t)16 << rand_r(&seed) % 5;
            kept[i].at = nursery_alloc(bytes, align);
            kept[i].bytes = kept[i].at ? bytes : 0;
            if (kept[i].at)
                memset(kept[i].at, i + 1, bytes);
            else
                assert_true(nursery_is_closed());
        }
        for (int i = 0; i < LAST_BLOCKS; i++)
            if (kept[i].at)
                give((char *)kept[i].at);
        assert_int_equal(count(), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(blocks_lie_side_by_side, fresh),
        cmocka_unit_test_setup(what_is_freed_is_used_again, fresh),
        cmocka_unit_test_setup(the_last_block_makes_room_for_any, fresh),
        cmocka_unit_test_setup(alignments_hold_and_waste_nothing, fresh),
        cmocka_unit_test_setup(only_starts_of_blocks_can_be_freed, fresh),
        cmocka_unit_test_setup(addresses_lead_to_their_block, fresh),
        cmocka_unit_test_setup(it_closes_after_so_many_calls, fresh),
        cmocka_unit_test_setup(it_closes_when_it_is_full, fresh),
        cmocka_unit_test_setup(large_blocks_are_for_others_and_close_nothing, fresh),
        cmocka_unit_test_setup(many_small_holes_do_not_hold_anybody_up, fresh),
        cmocka_unit_test_setup(a_second_thread_closes_it, fresh),
        cmocka_unit_test_setup(a_page_goes_back_with_its_last_block, fresh),
        cmocka_unit_test_setup(pages_go_back_but_that_of_the_bits, fresh),
        cmocka_unit_test_setup(of_several_who_free_one_succeeds, fresh),
        cmocka_unit_test_setup(damage_is_found, fresh),
        cmocka_unit_test_setup(blocks_keep_what_is_in_them, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
