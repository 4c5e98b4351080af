/*
 * A shared chain whose words somebody forged, with seals that are right: whoever maps the segment knows its key.
 *
 * Calls may fail or give nonsense blocks of the segment, but no call crashes, hangs, or writes outside: the mapping
 * lies between pages that nobody may touch, and shorter than its pages are, with bytes behind it that must stay.
 */
#include "chain_fixture.h"

#include <linux/futex.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "malloc/chain_mapped.h"

enum {
    PAGE = 4096,
    SEGMENT = 4 * PAGE - 208, /* the chain; what is left of the page stays untouched */
    ROUNDS = 4000,
    HELD = 24,
    PATIENCE_S = 300,
};

struct place {
    char *base;
    struct memoir_chain *chain;
};

/* Where what is, by words that were not forged yet. */
struct plan {
    uint64_t *map, *heads;
    struct region *first;
    struct chain_shared *shared;
    unsigned lists, bins;
};

static char *map_guarded(int fd)
{
    char *around = mmap(NULL, 6 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(around, MAP_FAILED);
    char *base =
        mmap(around + PAGE, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    assert_ptr_equal(base, around + PAGE);
    return base;
}

static void unmap_guarded(char *base)
{
    munmap(base - PAGE, 6 * PAGE);
}

/* Any block of the chain, or none. */
static int pick(void *user, void *block, size_t bytes, int used)
{
    void **picked = user;
    struct dice *dice = picked[1];
    if (dice_below(dice, 4) == 0) {
        picked[0] = block;
        return 1;
    }
    return 0;
}

static uint64_t *some_header(struct memoir_chain *c, const struct plan *plan, struct dice *dice)
{
    void *picked[2] = {NULL, dice};
    memoir_chain_walk(c, pick, picked);
    return picked[0] ? block_of(picked[0]) : region_first(plan->first);
}

static uint64_t some_value(struct dice *dice)
{
    switch (dice_below(dice, 5)) {
    case 0:
        return dice_below(dice, SEGMENT + PAGE);
    case 1:
        return (dice_below(dice, SEGMENT) & ~UINT64_C(15)) | 8;
    case 2:
        return SEGMENT - 8 * dice_below(dice, 8);
    case 3:
        return dice_next(dice);
    default:
        return (dice_below(dice, 2) ? (uint64_t)0 : CHAIN_VALUE_MASK) - 16 * dice_below(dice, 300);
    }
}

/* One word, sealed where it is one that has a seal. */
static void forge(struct memoir_chain *c, const struct plan *plan, struct dice *dice)
{
    uint64_t *b = some_header(c, plan, dice), value = some_value(dice);
    uint64_t *words[] = {
        &c->low,
        &c->span,
        &c->remote,
        &c->total_bytes,
        &c->used_bytes,
        &c->map_top,
        &c->frees,
        &c->seal,
        &c->carved_bytes,
        plan->map,
        &c->bins[0],
        &c->bins[dice_below(dice, plan->bins)],
        (uint64_t *)&c->flags,
        (uint64_t *)&c->lock,
        (uint64_t *)&c->state,
    };
    switch (dice_below(dice, 8)) {
    case 0:
        word_put(c, b, (value & CHAIN_VALUE_MASK & ~UINT64_C(15)) | dice_below(dice, 16));
        break;
    case 1:
        word_put(c, b, ((32 + 16 * dice_below(dice, 70)) & ~UINT64_C(15)) | dice_below(dice, 16));
        break;
    case 2:
        word_put(c, &b[1 + dice_below(dice, 2)], value & CHAIN_VALUE_MASK);
        break;
    case 3:
        b[1] = value ^ c->seal; /* of a bin */
        break;
    case 4:
        word_put(c, &plan->heads[dice_below(dice, plan->lists)], value & CHAIN_VALUE_MASK);
        break;
    case 5:
        word_put_by(c, c->key, &plan->first->bytes + dice_below(dice, 3), value & CHAIN_VALUE_MASK);
        break;
    case 6:
        /* Held by somebody who died; by one who lives, all would wait for that one. */
        plan->shared->lock = (uint32_t)value | FUTEX_OWNER_DIED;
        break;
    default:
        *words[dice_below(dice, sizeof(words) / sizeof(words[0]))] = value;
        break;
    }
}

/* What a process does that knows nothing of it. */
static void work(struct memoir_chain *c, struct dice *dice, void **held)
{
    void **at = &held[dice_below(dice, HELD)];
    switch (dice_below(dice, 12)) {
    case 0:
        memoir_chain_check(c, NULL);
        break;
    case 1:
        memoir_chain_drain(c);
        break;
    case 2:
        if (dice_below(dice, 4) == 0)
            memoir_chain_repair(c);
        break;
    case 3:
        memoir_chain_remote_free(c, *at);
        *at = NULL;
        break;
    case 4:
        memoir_chain_usable_size(c, *at);
        break;
    case 5:
        *at = memoir_chain_aligned(c, 64, dice_below(dice, 500));
        break;
    case 6: {
        void *p = *at ? memoir_chain_realloc(c, *at, 1 + dice_below(dice, 900)) : NULL;
        *at = p ? p : *at;
        break;
    }
    case 7: {
        struct memoir_chain_stats stats = {.struct_size = sizeof(stats)};
        memoir_chain_stats(c, &stats);
        break;
    }
    case 8:
    case 9:
        memoir_chain_free(c, *at);
        *at = NULL;
        break;
    default: {
        size_t bytes = dice_below(dice, 600);
        /* Every byte of it may be written. */
        if ((*at = memoir_chain_alloc(c, bytes)))
            memset(*at, (int)dice_next(dice), bytes);
        break;
    }
    }
}

/* What lies behind the chain in its last page. */
static bool is_untouched(const char *base)
{
    for (size_t i = SEGMENT; i < 4 * PAGE; i++)
        if (base[i] != 0x77)
            return false;
    return true;
}

static void round_of(uint64_t seed, int fd)
{
    struct dice dice = {seed};
    void *held[HELD] = {0};
    struct place maker = {.base = map_guarded(fd)}, user = {.base = map_guarded(fd)};
    memset(maker.base, 0x77, 4 * PAGE);
    maker.chain = chain_over(maker.base, SEGMENT, MEMOIR_CHAIN_SHARED);
    bool attached = dice_below(&dice, 2); /* before, or to what was forged */
    if (attached)
        assert_int_equal(memoir_chain_attach(user.base, SEGMENT, 0, &user.chain), 0);
    for (int i = 0; i < 60; i++)
        work(maker.chain, &dice, held);
    for (int i = 0; i < HELD; i++)
        if (held[i])
            held[i] = user.base + ((char *)held[i] - maker.base);
    struct memoir_chain *forged = maker.chain;
    struct plan plan = {
        .map = chain_map(forged),
        .heads = chain_heads(forged),
        .first = chain_first_region(forged),
        .shared = chain_shared(forged),
        .lists = chain_lists(forged),
        .bins = chain_bins(forged),
    };
    for (int i = 1 + (int)dice_below(&dice, 4); i > 0; i--) {
        forge(forged, &plan, &dice);
        if (!attached && dice_below(&dice, 2)) /* so that attaching finds no fault with it */
            forged->constants = chain_constants(forged);
    }
    if (attached || memoir_chain_attach(user.base, SEGMENT, 0, &user.chain) == 0) {
        for (int i = 0; i < 60; i++)
            work(user.chain, &dice, held);
        memoir_chain_reset(user.chain);
        for (int i = 0; i < 10; i++)
            work(user.chain, &dice, held);
    }
    if (!is_untouched(maker.base))
        _exit(3);
    /* Unmapped without a word: what is mapped there next must not be taken for them. */
    mapped_remove((struct memoir_chain *)maker.base);
    mapped_remove((struct memoir_chain *)user.base);
    unmap_guarded(maker.base);
    unmap_guarded(user.base);
}

static void forged_words_never_lead_out_of_the_segment(void **state)
{
    uint64_t seed = dice_seed();
    int *round = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status, fd = memfd_create("chain", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, 4 * PAGE) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        for (; *round < ROUNDS; ++*round) {
            alarm(PATIENCE_S);
            round_of(seed + (uint64_t)*round, fd);
        }
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status != 0)
        fail_msg("round %d ended with status %#x", *round, (unsigned)status);
    close(fd);
}

/* A chain that was attached to keeps its kind and its limits, whatever its words say later. */
static void words_about_the_kind_are_not_believed(void **state)
{
    int fd = memfd_create("chain", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, 4 * PAGE) == 0);
    char *base = map_guarded(fd);
    struct memoir_chain *c = chain_over(base, SEGMENT, MEMOIR_CHAIN_SHARED), old = *c;
    static const struct {
        size_t at;
        uint32_t flip;
        int error;
    } lies[] = {
        {offsetof(struct memoir_chain, flags), MEMOIR_CHAIN_SHARED, EUCLEAN},
        {offsetof(struct memoir_chain, flags), CHAIN_HAS_SOURCE, EUCLEAN},
        {offsetof(struct memoir_chain, flags), 3, EUCLEAN},
        {offsetof(struct memoir_chain, flags), 1 << CHAIN_LISTS_SHIFT, EUCLEAN},
        {offsetof(struct memoir_chain, low), 1, ENOSPC},
        {offsetof(struct memoir_chain, span), 1 << 20, ENOSPC},
    };
    void *p = memoir_chain_alloc(c, 40);
    assert_non_null(p);
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        uint32_t *word = (uint32_t *)(base + lies[i].at);
        *word ^= lies[i].flip;
        errno = 0;
        assert_null(memoir_chain_alloc(c, 40));
        assert_int_equal(errno, lies[i].error);
        assert_int_equal(memoir_chain_free(c, p), -lies[i].error);
        assert_int_equal(memoir_chain_remote_free(c, p), -lies[i].error);
        assert_int_equal(memoir_chain_usable_size(c, p), 0);
        assert_int_equal(memoir_chain_check(c, NULL), -lies[i].error);
        assert_int_equal(memoir_chain_reset(c), -lies[i].error);
        *word ^= lies[i].flip;
        assert_whole(c);
    }
    assert_int_equal(old.flags, c->flags);
    /* A queue of addresses is for private chains. */
    c->remote = (uint64_t)(uintptr_t)-4096;
    assert_int_equal(memoir_chain_free(c, p), 0);
    assert_int_equal(memoir_chain_drain(c), 0);
    assert_whole(c);
    unmap_guarded(base);
    close(fd);
}

/* It would be functions of somebody else's that are called. */
static void a_shared_chain_with_a_source_is_not_attached_to(void **state)
{
    int fd = memfd_create("chain", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, 4 * PAGE) == 0);
    char *base = map_guarded(fd), *again = map_guarded(fd);
    struct memoir_chain *c = chain_over(base, SEGMENT, MEMOIR_CHAIN_SHARED), *attached;
    c->flags |= CHAIN_HAS_SOURCE;
    c->constants = chain_constants(c);
    assert_int_equal(memoir_chain_attach(again, SEGMENT, 0, &attached), -EINVAL);
    unmap_guarded(base);
    unmap_guarded(again);
    close(fd);
}

static void a_process_that_has_not_attached_is_refused(void **state)
{
    int fd = memfd_create("chain", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, 4 * PAGE) == 0);
    char *base = map_guarded(fd), *again = map_guarded(fd);
    struct memoir_chain *c = chain_over(base, SEGMENT, MEMOIR_CHAIN_SHARED), *attached;
    errno = 0;
    assert_null(memoir_chain_alloc((struct memoir_chain *)again, 10));
    assert_int_equal(errno, EINVAL);
    assert_int_equal(memoir_chain_attach(again, SEGMENT, 0, &attached), 0);
    assert_non_null(memoir_chain_alloc(attached, 10));
    assert_int_equal(memoir_chain_detach(attached), 0);
    assert_int_equal(memoir_chain_free(attached, again), -EINVAL);
    assert_int_equal(memoir_chain_detach(attached), -EINVAL);

    /* A private chain in the place of a shared one that was unmapped without a word. */
    assert_int_equal(memoir_chain_attach(again, SEGMENT, 0, &attached), 0);
    assert_ptr_not_equal(mmap(again, 4 * PAGE, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                         MAP_FAILED);
    attached = chain_over(again, SEGMENT, 0);
    assert_non_null(memoir_chain_alloc(attached, 10));
    assert_whole(attached);
    assert_int_equal(memoir_chain_destroy(attached), 0);
    assert_whole(c);
    unmap_guarded(base);
    unmap_guarded(again);
    close(fd);
}

/* Many, with ends in any order: each is known as long as it is attached, and only then. */
static void the_table_of_mapped_chains_forgets_what_is_gone(void **state)
{
    enum { MANY = 3000 };
    struct dice dice = {dice_seed()};
    static bool there[MANY];
    for (int step = 0; step < 40000; step++) {
        unsigned i = (unsigned)dice_below(&dice, MANY);
        const struct memoir_chain *c =
            (const void *)((uintptr_t)0x7000000000 + i * (uintptr_t)PAGE);
        assert_int_equal(mapped_find(c) != NULL, there[i]);
        if (there[i])
            mapped_remove(c);
        else
            assert_int_equal(mapped_add(c, PAGE, 1), 0);
        there[i] = !there[i];
    }
    for (unsigned i = 0; i < MANY; i++) {
        const struct memoir_chain *c =
            (const void *)((uintptr_t)0x7000000000 + i * (uintptr_t)PAGE);
        assert_int_equal(mapped_find(c) != NULL, there[i]);
        mapped_remove(c);
        assert_null(mapped_find(c));
    }
}

/* A block whose header is the last word of the segment, as a stranger may name it. */
static void a_block_behind_the_end_is_not_freed(void **unused)
{
    int fd = memfd_create("chain", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 4 * PAGE), 0);
    char *base = map_guarded(fd);
    struct memoir_chain *c;
    struct memoir_chain_options shared = {.struct_size = sizeof(shared),
                                          .flags = MEMOIR_CHAIN_SHARED};
    assert_int_equal(memoir_chain_init(base, SEGMENT, &shared, &c), 0);
    assert_non_null(memoir_chain_alloc(c, 1000));
    memset(base + SEGMENT, 0x5a, 4 * PAGE - SEGMENT);
    word_put(c, (uint64_t *)(base + SEGMENT - 8), CHAIN_BLOCK_MIN | CHAIN_USED | CHAIN_BEFORE_USED);
    assert_true(memoir_chain_free(c, base + SEGMENT) < 0);
    for (int i = SEGMENT; i < 4 * PAGE; i++)
        assert_int_equal(base[i], 0x5a);
    memoir_chain_destroy(c);
    unmap_guarded(base);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_about_the_kind_are_not_believed),
        cmocka_unit_test(a_shared_chain_with_a_source_is_not_attached_to),
        cmocka_unit_test(a_process_that_has_not_attached_is_refused),
        cmocka_unit_test(the_table_of_mapped_chains_forgets_what_is_gone),
        cmocka_unit_test(a_block_behind_the_end_is_not_freed),
        cmocka_unit_test(forged_words_never_lead_out_of_the_segment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
