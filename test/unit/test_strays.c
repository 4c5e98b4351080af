/* Blocks of others' slabs on their way: kept by class, picked by slab. */
#include "malloc/strays.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { SLABS = 3, BYTES = 64 };

static char *memory; /* a macro-block */

static int make_memory(void **unused)
{
    memory = aligned_alloc(MACRO_BYTES, MACRO_BYTES);
    if (memory)
        memset(memory, 0, MACRO_SLICES * sizeof(struct slab));
    return memory ? 0 : -1;
}

static int free_memory(void **unused)
{
    free(memory);
    return 0;
}

static void *block_of(unsigned slab, unsigned number)
{
    return memory + ((size_t)(slab + 1) << SLICE_SHIFT) + (size_t)number * BYTES;
}

/* How many are kept: at least two, whatever their size, and not more than is said. */
static void few_are_kept(void **unused)
{
    for (unsigned class = 0; class < SIZE_CLASSES; class ++) {
        uint32_t bytes = size_of_class(class), n = 1;
        struct strays strays = {0};
        while (!strays_add(&strays, block_of(0, n % (SLICE_BYTES / BYTES)), bytes))
            n++;
        assert_in_range(n, 2, STRAYS_MOST);
        assert_true(n == 2 || n == STRAYS_MOST || (n - 1) * bytes < STRAYS_BYTES);
        assert_int_equal(strays.n, n);
    }
}

static void each_pick_has_all_of_one_slab(void **unused)
{
    static const unsigned char of[] = {0, 1, 0, 0, 2, 1, 2, 0, 1, 1};
    for (unsigned n = 1; n <= sizeof of; n++) {
        struct strays strays = {0};
        unsigned expected[SLABS] = {0}, picks = 0;
        for (unsigned i = 0; i < n; i++) {
            strays_add(&strays, block_of(of[i], i), BYTES);
            expected[of[i]]++;
        }
        for (void *list = strays.first; list; picks++) {
            struct slab *s = slab_of(list);
            struct slab_list picked = strays_pick(&list);
            unsigned slab = slab_slice(s) - 1, seen = 0;
            void *last = NULL;
            for (void *block = picked.first; block; block = *(void **)block, seen++) {
                assert_ptr_equal(slab_of(block), s);
                last = block;
            }
            assert_ptr_equal(picked.last, last);
            assert_int_equal(picked.n, seen);
            assert_int_equal(picked.n, expected[slab]);
            expected[slab] = 0;
        }
        for (unsigned i = 0; i < SLABS; i++)
            assert_int_equal(expected[i], 0);
        assert_in_range(picks, 1, SLABS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_are_kept),
        cmocka_unit_test(each_pick_has_all_of_one_slab),
    };
    return cmocka_run_group_tests(tests, make_memory, free_memory);
}
