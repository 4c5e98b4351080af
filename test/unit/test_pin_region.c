/* Memory of the pinning library's own: extents are found, reused, split and merged; registered ones
 * stay whole. */
#include "pin/region.h"

#include <string.h>

#include "check.h"

enum { MIB = 1 << 20, KIB = 1 << 10 };

static struct region *region;

static int begin(void **unused)
{
    region = region_table(sizeof(*region));
    return region ? region_init(region) : -1;
}

static struct extent *take(uint64_t size)
{
    struct extent *e = region_take(region, size, 1, true);
    assert_non_null(e);
    assert_true(e->bytes >= size && e->size == size);
    return e;
}

static void every_address_of_an_extent_leads_to_it(void **unused)
{
    const uint64_t sizes[] = {256 * KIB, 300 * KIB, 4 * MIB, 4 * MIB + 1, 64 * MIB};
    struct extent *e[5];
    for (unsigned i = 0; i < 5; i++)
        e[i] = take(sizes[i]);
    for (unsigned i = 0; i < 5; i++) {
        for (uint64_t at = 0; at < sizes[i]; at += 64 * KIB)
            assert_ptr_equal(region_find(region, (char *)e[i]->start + at), e[i]);
        assert_true(region_has(region, (char *)e[i]->start + sizes[i] - 1));
        memset((void *)e[i]->start, 1, 100);
        if (sizes[i] >= REGION_LARGE_MIN)
            assert_int_equal(e[i]->start % REGION_LARGE_UNIT, 0);
    }
    int here;
    assert_null(region_find(region, &here));
    assert_false(region_has(region, &here));
    assert_int_equal(region->live_blocks, 5);
    for (unsigned i = 0; i < 5; i++)
        region_give(region, e[i], 1);
    assert_int_equal(region->live_bytes, 0);
}

static void freed_memory_is_used_again_while_it_is_warm(void **unused)
{
    struct extent *e = take(8 * MIB);
    uintptr_t start = e->start;
    memset((void *)start, 7, 8 * MIB);
    region_give(region, e, 1);
    assert_true(region->warm_bytes >= 8 * MIB);
    e = take(8 * MIB);
    assert_int_equal(e->start, start);
    assert_int_equal(((char *)start)[MIB], 7);
    assert_true(e->touched >= 8 * MIB);
    region_give(region, e, 2);
    region_purge(region, 0);
    assert_int_equal(region->warm_bytes, 0);
    e = take(8 * MIB);
    assert_int_equal(e->touched, 0);
    assert_int_equal(((char *)e->start)[MIB], 0);
    region_give(region, e, 3);
}

static void free_neighbours_merge_and_large_ones_are_split(void **unused)
{
    struct extent *a = take(16 * MIB), *b = take(16 * MIB), *c = take(16 * MIB),
                  *wall = take(4 * MIB);
    uintptr_t start = a->start;
    assert_int_equal(b->start, start + 16 * MIB);
    region_give(region, a, 1);
    region_give(region, c, 1);
    region_give(region, b, 1);
    assert_int_equal(region->warm_bytes, 48 * MIB);
    struct extent *whole = take(48 * MIB);
    assert_int_equal(whole->start, start);
    region_give(region, whole, 2);
    struct extent *part = take(10 * MIB);
    assert_int_equal(part->start, start);
    assert_int_equal(part->bytes, 10 * MIB);
    struct extent *rest = take(38 * MIB);
    assert_int_equal(rest->start, start + 10 * MIB);
    region_give(region, part, 3);
    region_give(region, rest, 3);
    region_give(region, wall, 3);
}

static void registered_memory_stays_whole_and_goes_to_requests_of_its_size(void **unused)
{
    struct extent *e = take(32 * MIB), *next = take(32 * MIB);
    uintptr_t start = e->start;
    e->registered_bytes = 32 * MIB;
    region_give(region, e, 1);
    region_give(region, next, 1);
    assert_int_equal(region->idle_bytes, 32 * MIB);
    assert_true(region_has_pinned(region, 30 * MIB));
    assert_false(region_has_pinned(region, 33 * MIB)); /* not all of it would be registered */
    assert_false(region_has_pinned(region, 16 * MIB)); /* half of it would be wasted */
    struct extent *small = take(16 * MIB);
    assert_int_not_equal(small->start, start);
    struct extent *plain = region_take(region, 32 * MIB, 1, false);
    assert_int_equal(plain->registered_bytes, 0);
    struct extent *again = take(30 * MIB);
    assert_int_equal(again->start, start);
    assert_int_equal(region->idle_bytes, 0);
    region_give(region, again, 2);
    assert_ptr_equal(region_idle_oldest(region), e);
    region_purge(region, 0); /* leaves it alone */
    assert_int_equal(region->idle_bytes, 32 * MIB);
    region_detach(region, e);
    e->registered_bytes = 0;
    region_attach(region, e);
    assert_int_equal(region->idle_bytes, 0);
    assert_null(region_idle_oldest(region));
    region_give(region, small, 3);
    region_give(region, plain, 3);
}

static void pages_move_without_being_copied(void **unused)
{
    struct extent *from = take(8 * MIB), *to = take(64 * MIB);
    memset((void *)from->start, 9, 8 * MIB);
    region_move(from, to, 8 * MIB);
    for (uint64_t at = 0; at < 8 * MIB; at += 4096)
        assert_int_equal(((char *)to->start)[at], 9);
    assert_int_equal(((char *)to->start)[8 * MIB], 0);
    memset((void *)from->start, 3, 8 * MIB); /* still ours to use */
    assert_int_equal(((char *)to->start)[0], 9);
    region_give(region, from, 1);
    region_give(region, to, 1);
}

/* Random lives; each block keeps what was written to it, and blocks never overlap. */
static void random_lives_keep_their_bytes(void **unused)
{
    struct extent *live[64] = {0};
    unsigned state = 1;
    for (unsigned n = 0; n < 20000; n++) {
        state = state * 1103515245 + 12345;
        unsigned k = state >> 16 & 63;
        if (live[k]) {
            struct extent *e = live[k];
            uint64_t last = e->size - 8;
            assert_int_equal(*(uint64_t *)e->start, e->start ^ k);
            assert_int_equal(*(uint64_t *)(e->start + (last & ~UINT64_C(7))), e->start + k);
            assert_ptr_equal(region_find(region, (void *)(e->start + last)), e);
            if (state >> 24 & 1)
                e->registered_bytes =
                    e->registered_bytes ? e->registered_bytes : region_pages(e->size);
            region_give(region, e, n);
            live[k] = NULL;
            if ((n & 255) == 0)
                region_purge(region, 16 * MIB);
            struct extent *idle = (n & 63) == 0 ? region_idle_oldest(region) : NULL;
            if (idle) {
                region_detach(region, idle);
                idle->registered_bytes = 0;
                region_attach(region, idle);
            }
        } else {
            uint64_t size =
                ((state >> 8 & 127) + 1) * 65536 * (1 + (state >> 22 & 3)) - (state >> 3 & 4095);
            live[k] = take(size);
            *(uint64_t *)live[k]->start = live[k]->start ^ k;
            *(uint64_t *)(live[k]->start + ((size - 8) & ~UINT64_C(7))) = live[k]->start + k;
        }
    }
    uint64_t bytes = 0;
    for (unsigned k = 0; k < 64; k++)
        bytes += live[k] ? live[k]->size : 0;
    assert_int_equal(region->live_bytes, bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_address_of_an_extent_leads_to_it, begin),
        cmocka_unit_test_setup(freed_memory_is_used_again_while_it_is_warm, begin),
        cmocka_unit_test_setup(free_neighbours_merge_and_large_ones_are_split, begin),
        cmocka_unit_test_setup(registered_memory_stays_whole_and_goes_to_requests_of_its_size,
                               begin),
        cmocka_unit_test_setup(pages_move_without_being_copied, begin),
        cmocka_unit_test_setup(random_lives_keep_their_bytes, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
