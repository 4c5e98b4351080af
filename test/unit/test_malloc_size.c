/* Size classes: what was asked for fits, little is wasted, and every alignment has a class. */
#include "malloc/size.h"

#include "check.h"
#include "malloc/macro.h"
#include "malloc/words.h"

static void every_size_fits_its_class_and_not_the_one_below(void **unused)
{
    for (size_t bytes = 0; bytes <= SIZE_SMALL_MAX; bytes++) {
        unsigned class = size_class(bytes);
        assert_true(class < SIZE_CLASSES);
        assert_true(size_of_class(class) >= bytes);
        if (class > 0)
            assert_true(size_of_class(class - 1) < bytes);
    }
    assert_int_equal(size_of_class(SIZE_CLASSES - 1), SIZE_SMALL_MAX);
}

static void blocks_begin_at_multiples_of_their_size_alone(void **unused)
{
    for (unsigned class = 0; class < SIZE_CLASSES; class ++)
        for (uint32_t distance = 0; distance < 1u << 18; distance++)
            if (!!size_divides(class, distance) != (distance % size_of_class(class) == 0))
                fail_msg("class %u, distance %u", class, distance);
}

static void little_is_wasted(void **unused)
{
    for (size_t bytes = SIZE_FINE_MAX + 1; bytes <= SIZE_SMALL_MAX; bytes++)
        assert_true(size_of_class(size_class(bytes)) - bytes < bytes / 7 + 1);
    for (unsigned class = 0; class < SIZE_CLASSES; class ++) {
        size_t slab = (size_t)size_slices[class] * SLICE_BYTES, each = size_of_class(class);
        assert_true(size_slices[class] >= 1 && size_slices[class] <= 3);
        assert_true(slab / each >= 3);
        assert_true(slab % each <= slab / 6); /* of address space: it is never touched */
    }
}

/* SQLite's pages have 4,368 bytes and its small ones 1,032; many programs have 8 or 16 more than a power of two. What counts is the
 * share of its slab that such a block takes. */
static void a_power_of_two_and_a_header_take_little_more(void **unused)
{
    for (size_t power = 1024; power <= 4096; power *= 2)
        for (size_t bytes = power + 8; bytes <= power + power / 16; bytes += 8) {
            unsigned class = size_class(bytes);
            size_t slab = (size_t)size_slices[class] * SLICE_BYTES;
            assert_true(slab / (slab / size_of_class(class)) <= power + power / 10);
        }
    unsigned class = size_class(4368);
    size_t slab = (size_t)size_slices[class] * SLICE_BYTES;
    assert_true(slab / (slab / size_of_class(class)) <= 4368 + 4368 / 40);
}

static void sizes_are_multiples_of_16_and_powers_of_two_are_classes(void **unused)
{
    for (unsigned class = 0; class < SIZE_CLASSES; class ++)
        assert_int_equal(size_of_class(class) % SIZE_STEP, 0);
    for (size_t power = SIZE_STEP; power <= SIZE_SMALL_MAX; power *= 2)
        assert_int_equal(size_of_class(size_class(power)), power);
}

static void larger_ones_are_whole_cache_lines(void **unused)
{
    assert_int_equal(size_of_class(SIZE_DIRECT_CLASSES - 1), SIZE_DIRECT_MAX);
    for (unsigned class = SIZE_DIRECT_CLASSES; class < SIZE_CLASSES; class ++)
        assert_int_equal(size_of_class(class) % SIZE_LINE, 0);
}

/* So that a block of the other class serves the same alignments, and is at most twice as large, or a cache line. */
static void a_class_shares_slabs_of_the_next_power_of_two_or_none(void **unused)
{
    for (unsigned class = 0; class < SIZE_CLASSES; class ++) {
        unsigned shared = size_shared[class];
        size_t bytes = size_of_class(class), more = size_of_class(shared);
        assert_true(shared < SIZE_CLASSES && size_shared[shared] == shared);
        if (shared != class)
            assert_true((more & (more - 1)) == 0 && more > bytes &&
                        (more / 2 < bytes || more == SIZE_LINE));
        else
            assert_true(bytes > 8192 || (bytes & (bytes - 1)) == 0);
        size_t least = class > 0 ? size_of_class(class - 1) + 1 : 0;
        assert_true(more - least <= WORD_SLACK_MAX || class >= SIZE_DIRECT_CLASSES); /* account.c */
    }
}

static void classes_that_share_are_right_before_whose_slabs_they_are(void **unused)
{
    for (unsigned class = 0; class < SIZE_CLASSES; class ++) {
        assert_true(size_sharers[class] <= class);
        for (unsigned other = 0; other < SIZE_CLASSES; other++) {
            bool before = other < class && other >= class - size_sharers[class];
            assert_int_equal(before, other != class && size_shared[other] == class);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_fits_its_class_and_not_the_one_below),
        cmocka_unit_test(blocks_begin_at_multiples_of_their_size_alone),
        cmocka_unit_test(little_is_wasted),
        cmocka_unit_test(a_power_of_two_and_a_header_take_little_more),
        cmocka_unit_test(sizes_are_multiples_of_16_and_powers_of_two_are_classes),
        cmocka_unit_test(larger_ones_are_whole_cache_lines),
        cmocka_unit_test(a_class_shares_slabs_of_the_next_power_of_two_or_none),
        cmocka_unit_test(classes_that_share_are_right_before_whose_slabs_they_are),
    };
    return cmocka_run_group_tests_name("malloc_size", tests, NULL, NULL);
}
