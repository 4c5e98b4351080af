/* Size classes: what was asked for fits, little is wasted, and every alignment has a class. */
#include "malloc/size.h"

#include "check.h"
#include "malloc/macro.h"

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

static void little_is_wasted(void **unused)
{
    for (size_t bytes = SIZE_FINE_MAX + 1; bytes <= SIZE_SMALL_MAX; bytes++)
        assert_true(size_of_class(size_class(bytes)) - bytes < bytes / 8 + 1);
    for (unsigned class = 0; class < SIZE_CLASSES; class ++) {
        size_t slab = (size_t)size_slices[class] * SLICE_BYTES, each = size_of_class(class);
        assert_true(size_slices[class] >= 1 && size_slices[class] <= 2);
        assert_true(slab / each >= 3);
        assert_true(slab % each <= slab / 5); /* of address space: it is never touched */
    }
}

static void sizes_are_multiples_of_16_and_powers_of_two_are_classes(void **unused)
{
    for (unsigned class = 0; class < SIZE_CLASSES; class ++)
        assert_int_equal(size_of_class(class) % SIZE_STEP, 0);
    for (size_t power = SIZE_STEP; power <= SIZE_SMALL_MAX; power *= 2)
        assert_int_equal(size_of_class(size_class(power)), power);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_fits_its_class_and_not_the_one_below),
        cmocka_unit_test(little_is_wasted),
        cmocka_unit_test(sizes_are_multiples_of_16_and_powers_of_two_are_classes),
    };
    return cmocka_run_group_tests_name("malloc_size", tests, NULL, NULL);
}
