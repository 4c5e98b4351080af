/* The addresses that the stand-in driver gives out. */
#include "standin/arena.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

#define MIB    (1ul << 20)
#define BLOCKS 300

static void opened(struct arena *a, size_t size)
{
    memset(a, 0, sizeof(*a));
    assert_int_equal(arena_open(a, size, ARENA_ANYWHERE, 0, "test"), 0);
}

static void blocks_never_overlap(void **state)
{
    struct arena a;
    struct {
        uint64_t address;
        size_t size;
    } block[BLOCKS] = {0};

    opened(&a, 256 * MIB);
    srand(1);
    for (int round = 0; round < 20000; round++) {
        int i = rand() % BLOCKS;
        if (block[i].address) {
            assert_int_equal(*(int *)block[i].address, i); /* nobody else wrote there */
            arena_give(&a, block[i].address, block[i].size);
            block[i].address = 0;
            continue;
        }
        block[i].size = rand() % 8 ? 4 + (size_t)rand() % 100000 : (size_t)rand() % (4 * MIB) + MIB;
        block[i].address = arena_take(&a, block[i].size);
        if (!block[i].address)
            continue;
        uint64_t alignment = block[i].size < ARENA_SMALL ? ARENA_UNIT : ARENA_CHUNK;
        assert_int_equal(block[i].address % alignment, 0);
        for (int j = 0; j < BLOCKS; j++)
            assert_true(j == i || !block[j].address ||
                        block[j].address + block[j].size <= block[i].address ||
                        block[i].address + block[i].size <= block[j].address);
        *(int *)block[i].address = i;
    }
    for (int i = 0; i < BLOCKS; i++)
        if (block[i].address)
            arena_give(&a, block[i].address, block[i].size);
}

static void all_memory_can_be_taken_again(void **state)
{
    struct arena a;
    uint64_t address[32];

    opened(&a, 64 * MIB);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 32; i++)
            assert_true((address[i] = arena_take(&a, 2 * MIB)) != 0);
        assert_int_equal(arena_take(&a, 1), 0);
        assert_int_equal(arena_used(&a), 64 * MIB);
        for (int i = 0; i < 32; i++)
            arena_give(&a, address[i], 2 * MIB);
        assert_int_equal(arena_used(&a), 0);
    }
}

static void empty_slabs_serve_large_blocks(void **state)
{
    struct arena a;
    uint64_t small, large;

    opened(&a, 4 * MIB);
    assert_true((small = arena_take(&a, 1000)) != 0);
    arena_give(&a, small, 1000);
    assert_true((large = arena_take(&a, 4 * MIB)) != 0);
    arena_give(&a, large, 4 * MIB);
    assert_true(arena_take(&a, 1000) != 0);
}

static void sizes_that_cannot_be_are_refused(void **state)
{
    struct arena a;

    opened(&a, 4 * MIB);
    assert_int_equal(arena_take(&a, 0), 0);
    assert_int_equal(arena_take(&a, 4 * MIB + 1), 0);
    assert_int_equal(arena_take(&a, SIZE_MAX), 0);
    assert_int_equal(arena_take_at(&a, a.base + 2 * MIB, 4 * MIB), 0);
    assert_int_equal(arena_take_at(&a, a.base + 4096, 2 * MIB), 0);
    assert_int_equal(arena_take_at(&a, a.base + 2 * MIB, 2 * MIB), a.base + 2 * MIB);
    assert_int_equal(arena_take_at(&a, a.base + 2 * MIB, 2 * MIB), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_never_overlap),
        cmocka_unit_test(all_memory_can_be_taken_again),
        cmocka_unit_test(empty_slabs_serve_large_blocks),
        cmocka_unit_test(sizes_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
