/* Who watches the blocks of chains hears of each one, and of its end, whichever way that comes. */
#include "chain_fixture.h"
#include "malloc/chain_block.h"
#include "malloc/chain_watch.h"

enum { NOTES_MAX = 4096 };

static struct note {
    void *block;
    size_t bytes;
    uintptr_t caller;
} notes[NOTES_MAX];
static size_t n_notes, n_calls;

static struct note *find(const void *block)
{
    for (size_t i = 0; i < n_notes; i++)
        if (notes[i].block == block)
            return &notes[i];
    return NULL;
}

static void add(void *block, size_t bytes, uintptr_t caller)
{
    n_calls++;
    assert_null(find(block));
    assert_true(n_notes < NOTES_MAX);
    notes[n_notes++] = (struct note){block, bytes, caller};
}

static bool drop(void *block, struct chain_note *ret_note)
{
    struct note *n = find(block);
    n_calls++;
    if (!n)
        return false;
    *ret_note = (struct chain_note){n->bytes, n->caller};
    *n = notes[--n_notes];
    return true;
}

static void put_back(void *block, const struct chain_note *note)
{
    add(block, note->size, note->place);
}

static const struct chain_watch watch = {.add = add, .drop = drop, .put_back = put_back};

static int noted(void *user, void *block, size_t bytes, int used)
{
    struct note *n = find(block);
    if (used)
        assert_true(n && n->bytes <= bytes);
    else
        assert_null(n);
    *(size_t *)user += used != 0;
    return 0;
}

/* Exactly the live blocks of this chain are noted. */
static void assert_noted(struct memoir_chain *chain)
{
    size_t live = 0;
    assert_int_equal(memoir_chain_walk(chain, noted, &live), 0);
    assert_int_equal(live, n_notes);
}

static int setup(void **state)
{
    n_notes = n_calls = 0;
    chain_watch_begin(&watch);
    return 0;
}

static struct memoir_chain *make(void *buffer, size_t bytes, unsigned flags)
{
    struct memoir_chain_options options = {.struct_size = sizeof(options), .flags = flags};
    struct memoir_chain *chain;
    assert_int_equal(memoir_chain_init(buffer, bytes, &options, &chain), 0);
    return chain;
}

static _Alignas(16) char room[1 << 18];

static void random_calls(unsigned flags)
{
    enum { SLOTS = 200, ROUNDS = 30000 };
    struct dice dice = {dice_seed() + flags};
    struct memoir_chain *chain = make(room, sizeof(room), flags);
    void *slots[SLOTS] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        void **slot = &slots[dice_below(&dice, SLOTS)];
        size_t bytes = dice_below(&dice, dice_below(&dice, 8) ? 200 : 6000);
        switch (dice_below(&dice, *slot ? 4 : 3)) {
        case 0:
            if (!*slot)
                *slot = memoir_chain_aligned(chain, (size_t)16 << dice_below(&dice, 5), bytes);
            break;
        case 1:
            if (!*slot)
                *slot = memoir_chain_calloc(chain, 1, bytes);
            break;
        case 2: {
            void *moved = memoir_chain_realloc(chain, *slot, bytes + 1);
            *slot = moved ? moved : *slot;
            break;
        }
        default:
            assert_int_equal(dice_below(&dice, 2) ? memoir_chain_free(chain, *slot)
                                                  : memoir_chain_remote_free(chain, *slot),
                             0);
            *slot = NULL;
        }
        if (i % 1000 == 0 && memoir_chain_drain(chain) >= 0)
            assert_noted(chain);
    }
    assert_whole(chain);
    assert_true(n_notes > 0);
    assert_int_equal(memoir_chain_reset(chain), 0);
    assert_int_equal(n_notes, 0);
    assert_non_null(memoir_chain_alloc(chain, 10));
    assert_int_equal(memoir_chain_destroy(chain), 0);
    assert_int_equal(n_notes, 0);
}

static void each_block_is_noted_as_long_as_it_lives(void **state)
{
    random_calls(0);
    random_calls(MEMOIR_CHAIN_THREAD_SAFE);
}

static void who_allocates_for_another_is_not_told(void **state)
{
    struct memoir_chain *chain = make(room, sizeof(room), 0);
    void *a = chain_alloc_by(chain, 10, 1), *b = chain_calloc_by(chain, 20, 2),
         *c = chain_aligned_by(chain, 64, 30, 3);
    assert_int_equal(find(a)->caller, 1);
    assert_int_equal(find(b)->caller, 2);
    assert_int_equal(find(c)->caller, 3);
    assert_ptr_equal(chain_realloc_by(chain, a, 12, 4), a);
    assert_int_equal(find(a)->caller, 4);
    assert_int_equal(find(a)->bytes, 12);
    void *moved = chain_realloc_by(chain, a, 5000, 5);
    assert_ptr_not_equal(moved, a);
    assert_null(find(a));
    assert_int_equal(find(moved)->caller, 5);
    assert_int_equal(find(moved)->bytes, 5000);
    assert_null(chain_realloc_by(chain, moved, sizeof(room), 6)); /* as it was */
    assert_int_equal(find(moved)->caller, 5);
    assert_noted(chain);
    assert_int_equal(memoir_chain_destroy(chain), 0);
}

static void a_free_that_fails_changes_nothing(void **state)
{
    struct memoir_chain *chain = make(room, sizeof(room), 0);
    char *a = memoir_chain_alloc(chain, 2000), *b = memoir_chain_alloc(chain, 2000);
    struct note before = *find(b);
    assert_int_equal(memoir_chain_free(chain, a + 16), -EFAULT);
    assert_int_equal(memoir_chain_free(chain, a), 0);
    assert_true(memoir_chain_free(chain, a) < 0);
    assert_int_equal(n_notes, 1);
    uint64_t header;
    memcpy(&header, b - sizeof(header), sizeof(header));
    memset(b - sizeof(header), 0x5a, sizeof(header));
    assert_true(memoir_chain_free(chain, b) < 0);
    assert_int_equal(n_notes, 1);
    assert_memory_equal(find(b), &before, sizeof(before));
    memcpy(b - sizeof(header), &header, sizeof(header));
    if (memoir_chain_check(chain, NULL) == 0 && memoir_chain_repair(chain) == 0)
        assert_int_equal(memoir_chain_free(chain, b), 0);
    assert_int_equal(memoir_chain_reset(chain), 0);
    assert_int_equal(n_notes, 0);
    assert_int_equal(memoir_chain_destroy(chain), 0);
}

static void shared_chains_are_not_watched(void **state)
{
    struct memoir_chain *chain = make(room, sizeof(room), MEMOIR_CHAIN_SHARED);
    void *a = memoir_chain_alloc(chain, 100), *b = memoir_chain_aligned(chain, 64, 100);
    a = memoir_chain_realloc(chain, a, 300);
    assert_int_equal(memoir_chain_free(chain, a), 0);
    assert_int_equal(memoir_chain_remote_free(chain, b), 0);
    assert_non_null(memoir_chain_alloc(chain, 100));
    assert_int_equal(memoir_chain_destroy(chain), 0);
    assert_int_equal(n_calls, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(each_block_is_noted_as_long_as_it_lives, setup),
        cmocka_unit_test_setup(who_allocates_for_another_is_not_told, setup),
        cmocka_unit_test_setup(a_free_that_fails_changes_nothing, setup),
        cmocka_unit_test_setup(shared_chains_are_not_watched, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
