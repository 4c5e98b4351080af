/* Blocks of others' slabs on their way: kept by class, and handed over. */
#include "malloc/strays.h"

#include "check.h"

enum { BYTES = 64, BLOCKS = SLICE_BYTES / BYTES };

static char memory[SLICE_BYTES] __attribute__((aligned(BYTES)));

static void *block_of(unsigned number)
{
    return memory + (size_t)number * BYTES;
}

/* How many are kept: at least two, whatever their size, and not more than is said. */
static void few_are_kept(void **unused)
{
    for (unsigned class = 0; class < SIZE_CLASSES; class ++) {
        uint32_t bytes = size_of_class(class), n = 1;
        struct strays strays = {0};
        while (!strays_add(&strays, block_of(n % BLOCKS), bytes))
            n++;
        assert_in_range(n, 2, STRAYS_MOST);
        assert_true(n == 2 || n == STRAYS_MOST || (n - 1) * bytes < STRAYS_BYTES);
        assert_int_equal(strays.n, n);
    }
}

static void all_are_taken_in_order(void **unused)
{
    for (unsigned n = 1; n <= STRAYS_MOST; n++) {
        struct strays strays = {0};
        for (unsigned i = 0; i < n; i++)
            strays_add(&strays, block_of(i), BYTES);
        struct slab_list all = strays_take(&strays);
        assert_null(strays.first);
        assert_int_equal(strays.n, 0);
        assert_int_equal(all.n, n);
        assert_ptr_equal(all.last, block_of(0));
        void *block = all.first;
        for (unsigned i = n; i-- > 0; block = *(void **)block)
            assert_ptr_equal(block, block_of(i));
        assert_null(block);
    }
}

/* Another thread was about to count its last one when this process was forked. */
static void those_that_were_not_counted_yet_are_taken(void **unused)
{
    struct strays strays = {0};
    for (unsigned i = 0; i < 3; i++)
        strays_add(&strays, block_of(i), BYTES);
    strays.n--;
    assert_int_equal(strays_take(&strays).n, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_are_kept),
        cmocka_unit_test(all_are_taken_in_order),
        cmocka_unit_test(those_that_were_not_counted_yet_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
