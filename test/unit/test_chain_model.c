/* Random operations on random chains, against a model that knows what every block must hold. */
#include "chain_fixture.h"

#include <stdbool.h>

enum { SLOTS = 200, CHAINS = 120, STEPS = 1500, GUARD = 64, REFILLS = 4 };

struct slot {
    unsigned char *p;
    size_t bytes;
    unsigned char fill;
};

struct world {
    struct dice dice;
    struct memoir_chain *chain;
    struct slot slots[SLOTS];
    size_t live;
    unsigned char *buffers[1 + REFILLS];
    size_t sizes[1 + REFILLS];
    int n_buffers;
    bool shared;
    int source_live; /* buffers that the source has given */
    int source_refuses;
    size_t largest; /* of the sizes asked for */
};

/* A buffer with a margin on both sides that nobody may touch, at any alignment. */
static unsigned char *buffer_new(struct world *w, size_t bytes)
{
    unsigned char *raw = malloc(bytes + 2 * GUARD + 16);
    assert_non_null(raw);
    memset(raw, 0xa5, bytes + 2 * GUARD + 16);
    w->buffers[w->n_buffers] = raw + GUARD + dice_below(&w->dice, 16);
    w->sizes[w->n_buffers] = bytes;
    return w->buffers[w->n_buffers++];
}

static void buffers_free(struct world *w)
{
    for (int i = 0; i < w->n_buffers; i++) {
        unsigned char *start = w->buffers[i], *end = start + w->sizes[i];
        for (int j = 1; j <= GUARD / 2; j++) {
            assert_int_equal(start[-j], 0xa5);
            assert_int_equal(end[j - 1], 0xa5);
        }
        free((void *)(((uintptr_t)start - GUARD) & ~(uintptr_t)15));
    }
}

static void *request(void *user, size_t bytes, size_t *ret_bytes)
{
    struct world *w = user;
    if (w->source_refuses && dice_below(&w->dice, 3) == 0)
        return NULL;
    size_t give = (bytes + dice_below(&w->dice, 8192) + 15) & ~(size_t)15;
    void *p = aligned_alloc(16, give);
    assert_non_null(p);
    memset(p, (int)dice_below(&w->dice, 256), give);
    *ret_bytes = give;
    w->source_live++;
    return p;
}

static void give_back(void *user, void *buffer, size_t bytes)
{
    struct world *w = user;
    memset(buffer, 0xdd, bytes); /* nobody may look there any more */
    free(buffer);
    w->source_live--;
}

static void fill(struct slot *s)
{
    memset(s->p, s->fill, s->bytes);
}

static void check_fill(const struct slot *s, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (s->p[i] != s->fill)
            fail_msg("byte %zu of a block of %zu changed", i, s->bytes);
}

static size_t size_some(struct world *w)
{
    switch (dice_below(&w->dice, 8)) {
    case 0:
        return 0;
    case 1:
        return dice_below(&w->dice, w->largest);
    case 2:
        return dice_below(&w->dice, w->largest / 8 + 1);
    default:
        return dice_below(&w->dice, 300);
    }
}

static void settle(struct world *w, struct slot *s, void *p, size_t bytes)
{
    assert_int_equal((uintptr_t)p % 16, 0);
    assert_true(memoir_chain_usable_size(w->chain, p) >= bytes);
    *s = (struct slot){.p = p, .bytes = bytes, .fill = (unsigned char)dice_next(&w->dice)};
    fill(s);
    w->live++;
}

/* NULL is right only when no free block is large enough. */
static void check_refusal(struct world *w, size_t bytes, bool exact)
{
    assert_int_equal(errno, ENOMEM);
    if (exact && !w->source_live)
        assert_true(stats_of(w->chain).free_bytes_largest < bytes ||
                    stats_of(w->chain).free_bytes_largest == 0);
}

static void step_alloc(struct world *w, struct slot *s)
{
    size_t bytes = size_some(w);
    int way = (int)dice_below(&w->dice, 4);
    size_t alignment = (size_t)1 << dice_below(&w->dice, 11);
    void *p = way == 0   ? memoir_chain_calloc(w->chain, 1, bytes)
              : way == 1 ? memoir_chain_aligned(w->chain, alignment, bytes)
                         : memoir_chain_alloc(w->chain, bytes);
    if (!p) {
        check_refusal(w, bytes, way != 1);
        return;
    }
    if (way == 0)
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(((char *)p)[i], 0);
    if (way == 1)
        assert_int_equal((uintptr_t)p % alignment, 0);
    settle(w, s, p, bytes);
}

static void step_free(struct world *w, struct slot *s)
{
    check_fill(s, s->bytes);
    int r = dice_below(&w->dice, 3) ? memoir_chain_free(w->chain, s->p)
                                    : memoir_chain_remote_free(w->chain, s->p);
    assert_int_equal(r, 0);
    s->p = NULL;
    w->live--;
}

static void step_realloc(struct world *w, struct slot *s)
{
    size_t bytes = 1 + size_some(w);
    struct slot old = *s;
    void *p = memoir_chain_realloc(w->chain, s->p, bytes);
    if (!p) {
        assert_int_equal(errno, ENOMEM);
        check_fill(s, s->bytes);
        return;
    }
    s->p = p;
    check_fill(s, old.bytes < bytes ? old.bytes : bytes);
    w->live--;
    settle(w, s, p, bytes);
}

static void step_rare(struct world *w)
{
    switch (dice_below(&w->dice, 6)) {
    case 0:
        if (w->n_buffers <= REFILLS) {
            size_t bytes = 128 + dice_below(&w->dice, 20000);
            unsigned char *buffer = buffer_new(w, bytes);
            bool refused = w->shared && buffer < (unsigned char *)w->chain;
            assert_int_equal(memoir_chain_refill(w->chain, buffer, bytes), refused ? -ERANGE : 0);
        }
        break;
    case 1:
        assert_int_equal(memoir_chain_repair(w->chain), 0);
        break;
    case 2:
        assert_true(memoir_chain_drain(w->chain) >= 0);
        break;
    case 3:
        assert_int_equal(memoir_chain_adopt(w->chain), 0);
        break;
    case 4:
        if (dice_below(&w->dice, 4) == 0) {
            assert_int_equal(memoir_chain_reset(w->chain), 0);
            assert_int_equal(w->source_live > 1, 0); /* at most the one that holds the chain */
            memset(w->slots, 0, sizeof(w->slots));
            w->live = 0;
        }
        break;
    default:
        w->source_refuses = !w->source_refuses;
        break;
    }
    assert_whole(w->chain);
}

static void world_make(struct world *w)
{
    static const unsigned flags[] = {0, MEMOIR_CHAIN_THREAD_SAFE, MEMOIR_CHAIN_SHARED,
                                     MEMOIR_CHAIN_ABORT};
    struct memoir_chain_options options = {.struct_size = sizeof(options),
                                           .flags = flags[dice_below(&w->dice, 4)]};
    size_t bytes = 256 + dice_below(&w->dice, (uint64_t)1 << (1 + dice_below(&w->dice, 19)));
    bool sourced = !(options.flags & MEMOIR_CHAIN_SHARED) && dice_below(&w->dice, 3) == 0;
    if (options.flags & MEMOIR_CHAIN_SHARED || sourced)
        bytes += 512;
    if (sourced) {
        options.request = request;
        options.give_back = give_back;
        options.user = w;
    }
    if (dice_below(&w->dice, 2))
        options.expect_bytes = (size_t)1 << dice_below(&w->dice, 30);
    w->largest = bytes;
    w->shared = options.flags & MEMOIR_CHAIN_SHARED;
    void *buffer = sourced && dice_below(&w->dice, 2) ? NULL : buffer_new(w, bytes);
    assert_int_equal(memoir_chain_init(buffer, bytes, &options, &w->chain), 0);
    w->source_refuses = (int)dice_below(&w->dice, 2);
}

static void random_chains_agree_with_the_model(void **state)
{
    uint64_t seed = dice_seed();
    for (int round = 0; round < CHAINS; round++) {
        struct world w = {.dice = {seed + (uint64_t)round}};
        w.source_refuses = 0;
        world_make(&w);
        for (int step = 0; step < STEPS; step++) {
            struct slot *s = &w.slots[dice_below(&w.dice, SLOTS)];
            if (dice_below(&w.dice, 60) == 0)
                step_rare(&w);
            else if (!s->p)
                step_alloc(&w, s);
            else if (dice_below(&w.dice, 3) == 0)
                step_realloc(&w, s);
            else
                step_free(&w, s);
            if (step % 64 == 0)
                assert_whole(w.chain);
        }
        for (int i = 0; i < SLOTS; i++)
            if (w.slots[i].p)
                step_free(&w, &w.slots[i]);
        assert_true(memoir_chain_drain(w.chain) >= 0);
        assert_whole(w.chain);
        struct memoir_chain_stats s = stats_of(w.chain);
        assert_int_equal(s.used_blocks, 0);
        assert_int_equal(s.used_bytes, 0);
        assert_int_equal(s.free_blocks, s.buffers);
        assert_int_equal(s.bad_frees, 0);
        assert_int_equal(memoir_chain_destroy(w.chain), 0);
        assert_int_equal(w.source_live, 0);
        buffers_free(&w);
    }
}

/* Small table, large blocks: they share the last list and are found nevertheless. */
static void blocks_beyond_the_table_are_found(void **state)
{
    static unsigned char first[256], more[1 << 20];
    struct memoir_chain *chain = chain_over(first, sizeof(first), 0);
    assert_int_equal(memoir_chain_refill(chain, more, sizeof(more)), 0);
    void *p[64];
    for (int i = 0; i < 64; i++)
        assert_non_null(p[i] = memoir_chain_alloc(chain, (size_t)(1 + i % 9) * 1500));
    for (int i = 0; i < 64; i += 2)
        assert_int_equal(memoir_chain_free(chain, p[i]), 0);
    for (int i = 0; i < 64; i += 2)
        assert_non_null(p[i] = memoir_chain_alloc(chain, (size_t)(1 + i % 9) * 1500 - 700));
    assert_whole(chain);
    for (int i = 0; i < 64; i++)
        assert_int_equal(memoir_chain_free(chain, p[i]), 0);
    assert_whole(chain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_chains_agree_with_the_model),
        cmocka_unit_test(blocks_beyond_the_table_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
