/* An operation that ends at any of its stores leaves a chain that can be mended: the block that it was
 * about is there or is not, all others are as they were. What kill -9 does by chance, store by store. */
#include "chain_fixture.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdlib.h>

#include "malloc/chain.h"

enum { ROOM = 8192, MORE = 1024, BLOCKS = 24, STORES_MAX = 600 };

void (*chain_tear)(void);
static int stores_left;
static jmp_buf torn;

static void tear(void)
{
    if (stores_left-- == 0)
        longjmp(torn, 1);
}

struct scene {
    char room[ROOM], more[MORE];
    struct memoir_chain *chain;
    char *blocks[BLOCKS];
    size_t bytes[BLOCKS];
    int subject; /* the block that the operation is about */
};

static struct scene *scene_make(uint64_t seed)
{
    struct scene *s = aligned_alloc(16, (sizeof(*s) + 15) & ~(size_t)15);
    struct dice dice = {seed};
    assert_non_null(s);
    s->chain = chain_over(s->room, ROOM, 0);
    for (int i = 0; i < BLOCKS; i++) {
        s->bytes[i] = 1 + dice_below(&dice, 200);
        assert_non_null(s->blocks[i] = memoir_chain_alloc(s->chain, s->bytes[i]));
        memset(s->blocks[i], i, s->bytes[i]);
    }
    s->subject = 1 + (int)dice_below(&dice, BLOCKS - 2);
    for (int i = 0; i < BLOCKS; i++)
        if (i != s->subject && dice_below(&dice, 2)) {
            memoir_chain_free(s->chain, s->blocks[i]);
            s->blocks[i] = NULL;
        }
    return s;
}

static void do_alloc(struct scene *s)
{
    memoir_chain_alloc(s->chain, 90);
}

static void do_aligned(struct scene *s)
{
    memoir_chain_aligned(s->chain, 256, 90);
}

static void do_alloc_small(struct scene *s)
{
    memoir_chain_free(s->chain, s->blocks[s->subject]);
    memoir_chain_alloc(s->chain, s->bytes[s->subject]);
}

static void do_drain(struct scene *s)
{
    memoir_chain_drain(s->chain);
}

static void do_free(struct scene *s)
{
    memoir_chain_free(s->chain, s->blocks[s->subject]);
}

static void do_grow(struct scene *s)
{
    memoir_chain_realloc(s->chain, s->blocks[s->subject], s->bytes[s->subject] + 70);
}

static void do_shrink(struct scene *s)
{
    memoir_chain_realloc(s->chain, s->blocks[s->subject], 1);
}

static void do_refill(struct scene *s)
{
    memoir_chain_refill(s->chain, s->more, MORE);
}

static void do_repair(struct scene *s)
{
    memoir_chain_repair(s->chain);
}

static const struct {
    const char *name;
    void (*run)(struct scene *s);
} operations[] = {
    {"alloc", do_alloc},   {"aligned", do_aligned}, {"free", do_free},
    {"grow", do_grow},     {"shrink", do_shrink},   {"refill", do_refill},
    {"repair", do_repair}, {"drain", do_drain},     {"free and alloc", do_alloc_small},
};

/* Blocks that the operation was not about: whole and live. */
static void check_others(struct scene *s)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (!s->blocks[i] || i == s->subject)
            continue;
        assert_true(memoir_chain_usable_size(s->chain, s->blocks[i]) >= s->bytes[i]);
        for (size_t j = 0; j < s->bytes[i]; j++)
            assert_int_equal(s->blocks[i][j], i);
    }
}

/* False: the operation ended before that many stores. */
static bool torn_at(uint64_t seed, void (*run)(struct scene *s), int stores)
{
    struct scene *s = scene_make(seed);
    volatile bool left = true;
    stores_left = stores;
    if (setjmp(torn) == 0) {
        chain_tear = tear;
        run(s);
        left = false;
    }
    chain_tear = NULL;
    /* Mending may be torn as well, and is begun again then. */
    for (volatile int again = 1; left && again < 200; again += 37) {
        stores_left = again;
        if (setjmp(torn) == 0) {
            chain_tear = tear;
            memoir_chain_repair(s->chain);
        }
        chain_tear = NULL;
    }
    assert_int_equal(memoir_chain_repair(s->chain), 0);
    assert_whole(s->chain);
    check_others(s);
    uint64_t blocks = stats_of(s->chain).used_blocks, known = 0;
    for (int i = 0; i < BLOCKS; i++)
        known += s->blocks[i] != NULL;
    assert_true(blocks >= known - 1 && blocks <= known + 1);
    free(s);
    return left;
}

static void every_torn_operation_can_be_mended(void **state)
{
    uint64_t seed = dice_seed();
    for (size_t op = 0; op < sizeof(operations) / sizeof(operations[0]); op++) {
        int most = 0;
        for (uint64_t scene = 0; scene < 40; scene++) {
            int stores = 0;
            while (torn_at(seed + scene, operations[op].run, stores))
                assert_true(++stores < STORES_MAX || operations[op].run == do_repair);
            if (stores > most)
                most = stores;
        }
        print_message("# %s: torn at up to %d stores\n", operations[op].name, most);
        assert_true(most > 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_torn_operation_can_be_mended)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
