/* Chains over buffers: what the header promises, one by one. */
#include "chain_fixture.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "malloc/chain.h"

enum { ROOM = 64 * 1024 };
static char room[ROOM] __attribute__((aligned(16)));

static void smallest_buffer_serves_at_any_alignment(void **state)
{
    char buffer[MEMOIR_CHAIN_BYTES_MIN + 16] __attribute__((aligned(16)));
    for (int shift = 0; shift < 16; shift++) {
        memset(buffer, 0x5a, sizeof(buffer));
        struct memoir_chain *chain = chain_over(buffer + shift, MEMOIR_CHAIN_BYTES_MIN, 0);
        char *p = memoir_chain_alloc(chain, 24);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        assert_true(p > buffer + shift && p + 24 <= buffer + shift + MEMOIR_CHAIN_BYTES_MIN);
        memset(p, 1, 24);
        assert_whole(chain);
        assert_int_equal(memoir_chain_free(chain, p), 0);
        assert_whole(chain);
        assert_int_equal(memoir_chain_destroy(chain), 0);
        for (int i = 0; i < shift; i++)
            assert_int_equal(buffer[i], 0x5a);
        for (size_t i = (size_t)shift + MEMOIR_CHAIN_BYTES_MIN; i < sizeof(buffer); i++)
            assert_int_equal(buffer[i], 0x5a);
    }
}

static void arguments_that_make_no_sense_are_refused(void **state)
{
    struct memoir_chain *chain = (void *)1;
    struct memoir_chain_options options = {.struct_size = sizeof(options), .flags = 1u << 14};
    assert_int_equal(memoir_chain_init(room, MEMOIR_CHAIN_BYTES_MIN - 1, NULL, &chain), -ENOSPC);
    assert_int_equal(memoir_chain_init(NULL, ROOM, NULL, &chain), -EINVAL);
    assert_int_equal(memoir_chain_init(room, SIZE_MAX, NULL, &chain), -EINVAL);
    assert_int_equal(memoir_chain_init(room, ROOM, &options, &chain), -EINVAL);
    options = (struct memoir_chain_options){.struct_size = 3};
    assert_int_equal(memoir_chain_init(room, ROOM, &options, &chain), -EINVAL);
    assert_ptr_equal(chain, (void *)1);

    chain = chain_over(room, ROOM, 0);
    errno = 0;
    assert_null(memoir_chain_aligned(chain, 24, 8));
    assert_int_equal(errno, EINVAL);
    errno = 0;
    assert_null(memoir_chain_calloc(chain, SIZE_MAX / 2, 3));
    assert_int_equal(errno, ENOMEM);
    errno = 0;
    assert_null(memoir_chain_alloc(chain, SIZE_MAX));
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(memoir_chain_refill(chain, NULL, 4096), -EINVAL);
    assert_int_equal(memoir_chain_refill(chain, room, 4), -ENOSPC);
    assert_int_equal(memoir_chain_detach(chain), -EINVAL);
    assert_int_equal(memoir_chain_free(NULL, room), -EINVAL);
    assert_int_equal(memoir_chain_free(chain, NULL), 0);
    assert_whole(chain);
}

/* Unknown fields of a later version: fine when 0. */
static void options_of_a_later_version_are_taken_when_unset(void **state)
{
    struct {
        struct memoir_chain_options options;
        uint64_t later;
    } o = {.options = {.struct_size = sizeof(o)}};
    struct memoir_chain *chain;
    assert_int_equal(memoir_chain_init(room, ROOM, &o.options, &chain), 0);
    o.later = 1;
    assert_int_equal(memoir_chain_init(room, ROOM, &o.options, &chain), -EINVAL);
}

static void all_bytes_come_back(void **state)
{
    struct memoir_chain *chain = chain_over(room, ROOM, 0);
    void *blocks[64];
    uint64_t largest = stats_of(chain).free_bytes_largest;
    for (int order = 0; order < 3; order++) {
        for (int i = 0; i < 64; i++)
            assert_non_null(blocks[i] = memoir_chain_alloc(chain, (size_t)(i * 13)));
        for (int i = 0; i < 64; i++) {
            int at = order == 0 ? i : order == 1 ? 63 - i : i * 37 % 64;
            assert_int_equal(memoir_chain_free(chain, blocks[at]), 0);
            assert_whole(chain);
        }
        struct memoir_chain_stats s = stats_of(chain);
        assert_int_equal(s.used_bytes, 0);
        assert_int_equal(s.free_blocks, 1);
        assert_int_equal(s.free_bytes_largest, largest);
    }
    void *all = memoir_chain_alloc(chain, largest);
    assert_non_null(all);
    assert_null(memoir_chain_alloc(chain, 1));
    assert_int_equal(stats_of(chain).failures, 1);
    assert_int_equal(memoir_chain_free(chain, all), 0);
}

static void blocks_cost_eight_bytes(void **state)
{
    struct memoir_chain *chain = chain_over(room, ROOM, 0);
    for (size_t bytes = 0; bytes < 600; bytes++) {
        uint64_t before = stats_of(chain).used_bytes;
        void *p = memoir_chain_alloc(chain, bytes);
        size_t usable = memoir_chain_usable_size(chain, p);
        assert_true(usable >= bytes && usable < (bytes < 24 ? 25 : bytes + 16));
        assert_int_equal(stats_of(chain).used_bytes - before, usable + 8);
        memoir_chain_free(chain, p);
    }
}

static void calloc_clears_what_was_used(void **state)
{
    struct memoir_chain *chain = chain_over(room, ROOM, 0);
    unsigned char *p = memoir_chain_alloc(chain, 1000);
    memset(p, 0xff, 1000);
    memoir_chain_free(chain, p);
    p = memoir_chain_calloc(chain, 10, 100);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(p[i], 0);
}

static void alignments_hold_and_the_gap_is_used(void **state)
{
    struct memoir_chain *chain = chain_over(room, ROOM, 0);
    for (size_t alignment = 1; alignment <= 8192; alignment *= 2) {
        void *p[4];
        for (int i = 0; i < 4; i++) {
            assert_non_null(p[i] = memoir_chain_aligned(chain, alignment, 40));
            assert_int_equal((uintptr_t)p[i] % alignment, 0);
            assert_whole(chain);
        }
        for (int i = 0; i < 4; i++)
            assert_int_equal(memoir_chain_free(chain, p[i]), 0);
        assert_int_equal(stats_of(chain).free_blocks, 1);
    }
}

static void realloc_stays_where_there_is_room(void **state)
{
    struct memoir_chain *chain = chain_over(room, ROOM, 0);
    char *p = memoir_chain_realloc(chain, NULL, 100), *q;
    memset(p, 7, 100);
    assert_ptr_equal(memoir_chain_realloc(chain, p, 5000), p); /* the rest of the buffer is free */
    assert_ptr_equal(memoir_chain_realloc(chain, p, 50), p);
    assert_whole(chain);
    q = memoir_chain_alloc(chain, 10);
    assert_true(q < p + 200);
    char *moved = memoir_chain_realloc(chain, p, 3000);
    assert_ptr_not_equal(moved, p);
    for (int i = 0; i < 50; i++)
        assert_int_equal(moved[i], 7);
    assert_whole(chain);
    assert_null(memoir_chain_realloc(chain, moved, ROOM * 2));
    assert_int_equal(moved[0], 7); /* as before */
    assert_null(memoir_chain_realloc(chain, moved, 0));
    memoir_chain_free(chain, q);
    assert_int_equal(stats_of(chain).used_blocks, 0);
}

static void refill_adds_room_before_and_behind(void **state)
{
    static char three[3][8192];
    struct memoir_chain *chain = chain_over(three[1], sizeof(three[1]), 0);
    assert_null(memoir_chain_alloc(chain, 8000));
    assert_int_equal(memoir_chain_refill(chain, three[0] + 3, sizeof(three[0]) - 3), 0);
    assert_int_equal(memoir_chain_refill(chain, three[2], sizeof(three[2])), 0);
    assert_whole(chain);
    char *a = memoir_chain_alloc(chain, 8000), *b = memoir_chain_alloc(chain, 8000);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(memoir_chain_alloc(chain, 8000));
    assert_int_equal(stats_of(chain).buffers, 3);
    assert_int_equal(memoir_chain_free(chain, a), 0);
    assert_int_equal(memoir_chain_free(chain, b), 0);
    assert_whole(chain);
    assert_int_equal(memoir_chain_reset(chain), 0);
    assert_int_equal(stats_of(chain).buffers, 3); /* the caller's buffers stay */
}

/* As far as it is from static memory to mappings on aarch64. */
static void a_buffer_may_be_far_away(void **state)
{
#if defined(UNDER_TSAN) || defined(UNDER_ASAN)
    skip(); /* they have the addresses in between for themselves */
#endif
    const uintptr_t distance = UINT64_C(86) << 40;
    char *near = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(near, MAP_FAILED);
    char *far = mmap(near - distance, ROOM, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if ((uintptr_t)near <= distance || far == MAP_FAILED)
        skip(); /* as the kernel lays out addresses here */
    assert_ptr_equal(far, near - distance);
    for (int up = 0; up < 2; up++) {
        struct memoir_chain *chain = chain_over(up ? far : near, MEMOIR_CHAIN_BYTES_MIN, 0);
        assert_int_equal(memoir_chain_refill(chain, up ? near : far, ROOM), 0);
        char *p = memoir_chain_alloc(chain, ROOM / 2), *q = memoir_chain_alloc(chain, 24);
        assert_non_null(p);
        assert_non_null(q);
        assert_whole(chain);
        assert_int_equal(memoir_chain_free(chain, p), 0);
        assert_int_equal(memoir_chain_free(chain, q), 0);
        assert_whole(chain);
        assert_int_equal(memoir_chain_refill(chain, (char *)chain + (UINT64_C(1) << 47), ROOM),
                         -ERANGE);
        assert_int_equal(memoir_chain_destroy(chain), 0);
    }
    munmap(near, ROOM);
    munmap(far, ROOM);
}

static void reset_gives_up_all_blocks_at_once(void **state)
{
    struct memoir_chain *chain = chain_over(room, ROOM, 0);
    uint64_t largest = stats_of(chain).free_bytes_largest;
    while (memoir_chain_alloc(chain, 100))
        ;
    assert_int_equal(memoir_chain_reset(chain), 0);
    assert_whole(chain);
    assert_int_equal(stats_of(chain).used_blocks, 0);
    assert_int_equal(stats_of(chain).free_bytes_largest, largest);
}

/* What a reset gave up is no block any more, also where its words still lie about. */
static void blocks_from_before_a_reset_are_none(void **state)
{
    struct memoir_chain *chain = chain_over(room, ROOM, 0);
    void *old[30], *queued = memoir_chain_alloc(chain, 1);
    for (int i = 0; i < 30; i++)
        assert_non_null(old[i] = memoir_chain_alloc(chain, 64));
    assert_int_equal(memoir_chain_remote_free(chain, queued), 0);
    assert_int_equal(memoir_chain_reset(chain), 0);
    for (int i = 0; i < 30; i++) {
        assert_int_equal(memoir_chain_free(chain, old[i]), -EFAULT);
        assert_int_equal(memoir_chain_usable_size(chain, old[i]), 0);
    }
    assert_ptr_equal(memoir_chain_alloc(chain, 1), queued);
    assert_int_equal(memoir_chain_free(chain, queued), 0); /* the mark of the queue is old, too */
    assert_whole(chain);
}

static void a_destroyed_chain_says_so(void **state)
{
    struct memoir_chain *chain = chain_over(room, ROOM, 0);
    void *p = memoir_chain_alloc(chain, 10);
    assert_int_equal(memoir_chain_destroy(chain), 0);
    errno = 0;
    assert_null(memoir_chain_alloc(chain, 10));
    assert_int_equal(errno, EIDRM);
    assert_int_equal(memoir_chain_free(chain, p), -EIDRM);
    assert_int_equal(memoir_chain_destroy(chain), -EIDRM);
    assert_int_equal(memoir_chain_usable_size(chain, p), 0);
}

/* ---- what programs do wrong ---- */

static void a_second_free_is_refused(void **state)
{
    struct memoir_chain *chain = chain_over(room, ROOM, 0);
    /* Merged with a free block before it, behind it, both, none: the header is somewhere else each time. */
    for (int shape = 0; shape < 4; shape++) {
        void *before = memoir_chain_alloc(chain, 100), *p = memoir_chain_alloc(chain, 200),
             *behind = memoir_chain_alloc(chain, 100), *wall = memoir_chain_alloc(chain, 1);
        if (shape & 1)
            memoir_chain_free(chain, before);
        if (shape & 2)
            memoir_chain_free(chain, behind);
        assert_int_equal(memoir_chain_free(chain, p), 0);
        int r = memoir_chain_free(chain, p);
        assert_true(r == -EALREADY || r == -EFAULT);
        assert_int_equal(memoir_chain_remote_free(chain, p), r);
        errno = 0;
        assert_null(memoir_chain_realloc(chain, p, 10));
        assert_int_equal(errno, -r);
        assert_whole(chain);
        assert_int_equal(memoir_chain_free(chain, wall), 0);
        memoir_chain_reset(chain);
    }
    assert_true(stats_of(chain).bad_frees >= 12);
}

static void pointers_that_are_no_blocks_are_refused(void **state)
{
    struct memoir_chain *chain = chain_over(room, ROOM, 0);
    char *p = memoir_chain_alloc(chain, 256);
    memset(p, 0, 256);
    int outside;
    for (int i = 1; i < 256; i++)
        assert_int_equal(memoir_chain_free(chain, p + i), -EFAULT);
    assert_int_equal(memoir_chain_free(chain, &outside), -EFAULT);
    assert_int_equal(memoir_chain_free(chain, room), -EFAULT);
    assert_int_equal(memoir_chain_free(chain, room + ROOM), -EFAULT);
    assert_int_equal(memoir_chain_remote_free(chain, &outside), -EFAULT);
    assert_int_equal(memoir_chain_usable_size(chain, p + 16), 0);
    assert_whole(chain);
    assert_int_equal(memoir_chain_free(chain, p), 0);
}

/* The word after a block is its neighbour's header. */
static void a_write_past_the_end_is_found_by_the_next_free(void **state)
{
    struct memoir_chain *chain = chain_over(room, ROOM, 0);
    char *p = memoir_chain_alloc(chain, 2000), *q = memoir_chain_alloc(chain, 40);
    size_t end = memoir_chain_usable_size(chain, p);
    const char *what = NULL;
    p[end] ^= 1;
    assert_int_equal(memoir_chain_check(chain, &what), -EUCLEAN);
    assert_non_null(what);
    assert_int_equal(memoir_chain_free(chain, p), -EUCLEAN);
    assert_int_equal(memoir_chain_free(chain, q), -ENOTRECOVERABLE);
    errno = 0;
    assert_null(memoir_chain_alloc(chain, 1));
    assert_int_equal(errno, ENOTRECOVERABLE);
    assert_int_equal(memoir_chain_repair(chain), -EUCLEAN);
    p[end] ^= 1; /* as it was: then there is something to mend from */
    assert_int_equal(memoir_chain_repair(chain), 0);
    assert_whole(chain);
    assert_int_equal(memoir_chain_free(chain, p), 0);
    assert_int_equal(memoir_chain_free(chain, q), 0);
    p[end] ^= 1;
    assert_int_equal(memoir_chain_reset(chain), 0);
    assert_whole(chain);
}

/* Links and sizes in free memory follow from headers, which are not touched here. */
static void a_write_after_free_is_found_and_mended(void **state)
{
    struct memoir_chain *chain = chain_over(room, ROOM, 0);
    for (int word = 0; word < 3; word++) {
        uint64_t *p = memoir_chain_alloc(chain, 40), *wall = memoir_chain_alloc(chain, 40);
        memoir_chain_free(chain, p);
        assert_int_equal(memoir_chain_drain(chain),
                         0); /* out of its bin: test_chain_bin.c has those */
        p[word == 2 ? 4 : word] = 0x4141414141414141;
        assert_int_equal(memoir_chain_check(chain, NULL), -EUCLEAN);
        int r = word != 2                            ? memoir_chain_alloc(chain, 40) ? 0 : -errno
                : memoir_chain_free(chain, wall) < 0 ? -EUCLEAN
                                                     : memoir_chain_drain(chain);
        assert_int_equal(r, -EUCLEAN);
        assert_int_equal(memoir_chain_repair(chain), 0);
        assert_whole(chain);
        memoir_chain_reset(chain);
    }
}

/* Any byte of the chain's own words. Whatever happens, it is an error code; no crash, no hang. */
static void overwritten_words_never_lead_astray(void **state)
{
    struct dice dice = {dice_seed()};
    for (int round = 0; round < 3000; round++) {
        size_t bytes = 1024 + dice_below(&dice, 3000);
        struct memoir_chain *chain = chain_over(room, bytes, 0);
        void *p[32] = {0};
        for (int i = 0; i < 20; i++)
            p[i] = memoir_chain_alloc(chain, dice_below(&dice, 90));
        for (int i = 0; i < 20; i += 3)
            memoir_chain_free(chain, p[i]);
        /* Not before the bins: who overwrites flags and counters has no chain any more. */
        enum { BEFORE = sizeof(struct memoir_chain) };
        for (int i = 0; i < 4; i++)
            room[BEFORE + dice_below(&dice, bytes - BEFORE)] ^= (char)(1 + dice_below(&dice, 255));
        for (int i = 0; i < 60; i++) {
            void **at = &p[dice_below(&dice, 32)];
            switch (dice_below(&dice, 5)) {
            case 0:
                memoir_chain_free(chain, *at);
                *at = NULL;
                break;
            case 1:
                *at = memoir_chain_aligned(chain, 64, dice_below(&dice, 200));
                break;
            case 2:
                memoir_chain_realloc(chain, *at, 1 + dice_below(&dice, 200));
                break;
            case 3:
                memoir_chain_check(chain, NULL);
                break;
            default:
                *at = memoir_chain_alloc(chain, dice_below(&dice, 200));
                break;
            }
        }
        memoir_chain_repair(chain);
        memoir_chain_reset(chain);
        memoir_chain_destroy(chain);
    }
}

static int ends_by(void (*crime)(struct memoir_chain *chain))
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(1);
        signal(SIGABRT, SIG_DFL);
        crime(chain_over(room, ROOM, MEMOIR_CHAIN_ABORT));
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void free_twice(struct memoir_chain *chain)
{
    void *p = memoir_chain_alloc(chain, 1);
    memoir_chain_free(chain, p);
    memoir_chain_free(chain, p);
}

static void write_past_the_end(struct memoir_chain *chain)
{
    char *p = memoir_chain_alloc(chain, 24);
    memset(p, 1, 32);
    memoir_chain_free(chain, p);
}

static void nothing_wrong(struct memoir_chain *chain)
{
    memoir_chain_free(chain, memoir_chain_alloc(chain, 24));
}

static void a_chain_that_shall_abort_does(void **state)
{
    assert_int_equal(ends_by(free_twice), SIGABRT);
    assert_int_equal(ends_by(write_past_the_end), SIGABRT);
    assert_int_equal(ends_by(nothing_wrong), 0);
}

static int count(void *user, void *block, size_t bytes, int used)
{
    size_t *figures = user;
    figures[used ? 0 : 1]++;
    figures[2] += bytes + 8;
    return figures[0] == 3 ? 42 : 0;
}

static void walk_visits_every_block_until_told_to_stop(void **state)
{
    struct memoir_chain *chain = chain_over(room, ROOM, 0);
    size_t figures[3] = {0};
    assert_int_equal(memoir_chain_walk(chain, count, figures), 0);
    assert_int_equal(figures[2], stats_of(chain).total_bytes);
    for (int i = 0; i < 5; i++)
        memoir_chain_alloc(chain, 10);
    memset(figures, 0, sizeof(figures));
    assert_int_equal(memoir_chain_walk(chain, count, figures), 42);
    assert_int_equal(figures[0], 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smallest_buffer_serves_at_any_alignment),
        cmocka_unit_test(arguments_that_make_no_sense_are_refused),
        cmocka_unit_test(options_of_a_later_version_are_taken_when_unset),
        cmocka_unit_test(all_bytes_come_back),
        cmocka_unit_test(blocks_cost_eight_bytes),
        cmocka_unit_test(calloc_clears_what_was_used),
        cmocka_unit_test(alignments_hold_and_the_gap_is_used),
        cmocka_unit_test(realloc_stays_where_there_is_room),
        cmocka_unit_test(refill_adds_room_before_and_behind),
        cmocka_unit_test(a_buffer_may_be_far_away),
        cmocka_unit_test(reset_gives_up_all_blocks_at_once),
        cmocka_unit_test(blocks_from_before_a_reset_are_none),
        cmocka_unit_test(a_destroyed_chain_says_so),
        cmocka_unit_test(a_second_free_is_refused),
        cmocka_unit_test(pointers_that_are_no_blocks_are_refused),
        cmocka_unit_test(a_write_past_the_end_is_found_by_the_next_free),
        cmocka_unit_test(a_write_after_free_is_found_and_mended),
        cmocka_unit_test(overwritten_words_never_lead_astray),
        cmocka_unit_test(a_chain_that_shall_abort_does),
        cmocka_unit_test(walk_visits_every_block_until_told_to_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
