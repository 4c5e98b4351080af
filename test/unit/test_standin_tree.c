/* The ordered set in which the stand-in driver keeps blocks and handles. */
#include "standin/tree.h"

#include <stdbool.h>
#include <stdlib.h>

#include "check.h"

#define KEYS 500

static void finds_what_an_array_finds(void **state)
{
    static struct node node[KEYS];
    bool in[KEYS] = {false};
    struct tree t = {NULL, 0};
    size_t count = 0;

    srand(2);
    for (int round = 0; round < 50000; round++) {
        int k = rand() % KEYS;
        node[k].key = (uint64_t)k * 10;
        if (in[k])
            tree_remove(&t, &node[k]);
        else
            tree_insert(&t, &node[k]);
        in[k] = !in[k];
        count += in[k] ? 1 : (size_t)-1;
        assert_int_equal(t.count, count);

        int low = rand() % KEYS, high = low;
        uint64_t key = (uint64_t)low * 10 + 5;
        while (low >= 0 && !in[low])
            low--;
        for (high++; high < KEYS && !in[high]; high++)
            ;
        assert_ptr_equal(tree_floor(&t, key), low >= 0 ? &node[low] : NULL);
        assert_ptr_equal(tree_ceiling(&t, key), high < KEYS ? &node[high] : NULL);
        assert_ptr_equal(tree_find(&t, node[k].key), in[k] ? &node[k] : NULL);
        assert_null(tree_find(&t, key));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_an_array_finds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
