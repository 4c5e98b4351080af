/* Small blocks that were freed and wait in bins: reused at once, merged when needed, never handed out twice. */
#include "chain_fixture.h"

#include <stdbool.h>

#include "malloc/chain_bin.h"

enum { ROOM = 64 * 1024, LARGE = 32 << 20, SMALL_MAX = 1016 };
static char room[ROOM] __attribute__((aligned(16)));

static void a_freed_small_block_serves_the_next_of_its_size(void **state)
{
    for (int kind = 0; kind < 3; kind++) {
        struct memoir_chain *chain = chain_over(room, ROOM, (unsigned)kind);
        for (size_t bytes = 0; bytes <= SMALL_MAX; bytes += 31) {
            void *wall = memoir_chain_alloc(chain, 40), *p = memoir_chain_alloc(chain, bytes),
                 *q = memoir_chain_alloc(chain, bytes), *other = memoir_chain_alloc(chain, 40);
            assert_int_equal(memoir_chain_free(chain, p), 0);
            assert_int_equal(memoir_chain_free(chain, q), 0);
            assert_true(stats_of(chain).binned_bytes >= 2 * bytes);
            assert_ptr_equal(memoir_chain_alloc(chain, bytes), q); /* the last one first */
            assert_ptr_equal(memoir_chain_calloc(chain, 1, bytes), p);
            assert_int_equal(stats_of(chain).binned_bytes, 0);
            void *all[] = {wall, p, q, other};
            for (int i = 0; i < 4; i++)
                assert_int_equal(memoir_chain_free(chain, all[i]), 0);
            assert_whole(chain);
            assert_int_equal(memoir_chain_drain(chain), 0);
            assert_int_equal(stats_of(chain).binned_bytes, 0);
            assert_whole(chain);
        }
        assert_int_equal(memoir_chain_destroy(chain), 0);
    }
}

static void larger_blocks_are_merged_at_once(void **state)
{
    struct memoir_chain *chain = chain_over(room, ROOM, 0);
    void *p = memoir_chain_alloc(chain, SMALL_MAX + 1), *wall = memoir_chain_alloc(chain, 1);
    assert_int_equal(memoir_chain_free(chain, p), 0);
    assert_int_equal(stats_of(chain).binned_bytes, 0);
    assert_int_equal(memoir_chain_free(chain, wall), 0);
}

/* An eighth of the chain, a mebibyte at most: also when a burst of blocks is freed. */
static void bins_hold_no_more_than_their_share(void **state)
{
    enum { MANY = 60000 };
    static void *blocks[MANY];
    static const struct {
        size_t bytes;
        int blocks;
        uint64_t most;
    } shapes[] = {{ROOM, 400, ROOM / 8}, {LARGE, MANY, 1 << 20}};
    char *large = malloc(LARGE);
    for (int shape = 0; shape < 2; shape++) {
        struct memoir_chain *chain =
            chain_over(shape ? large : room, shapes[shape].bytes, MEMOIR_CHAIN_THREAD_SAFE);
        uint64_t most = 0;
        for (int i = 0; i < shapes[shape].blocks; i++)
            assert_non_null(blocks[i] = memoir_chain_alloc(chain, (size_t)(20 + i % 90)));
        for (int i = 0; i < shapes[shape].blocks; i++) {
            assert_int_equal(memoir_chain_free(chain, blocks[i]), 0);
            uint64_t binned = chain->carved_bytes - chain->used_bytes;
            assert_true(binned <= shapes[shape].most);
            most = binned > most ? binned : most;
        }
        assert_true(most > shapes[shape].most / 2); /* they are used, too */
        assert_whole(chain);
        assert_int_equal(stats_of(chain).free_blocks, 1); /* as soon as all is merged */
        assert_int_equal(memoir_chain_destroy(chain), 0);
    }
    free(large);
}

static void what_lies_in_bins_serves_larger_blocks(void **state)
{
    struct memoir_chain *chain = chain_over(room, ROOM, 0);
    uint64_t largest = stats_of(chain).free_bytes_largest;
    void *blocks[200];
    for (int i = 0; i < 200; i++)
        assert_non_null(blocks[i] = memoir_chain_alloc(chain, 24));
    for (int i = 0; i < 200; i++)
        assert_int_equal(memoir_chain_free(chain, blocks[i]), 0);
    assert_true(stats_of(chain).binned_bytes > 0);
    assert_int_equal(stats_of(chain).free_bytes_largest, largest);
    void *all = memoir_chain_alloc(chain, largest);
    assert_non_null(all);
    assert_int_equal(stats_of(chain).failures, 0);
    assert_int_equal(memoir_chain_free(chain, all), 0);
    assert_non_null(memoir_chain_aligned(chain, 4096, ROOM / 2)); /* the same for aligned ones */
    assert_whole(chain);
}

/* Nothing else is free: a block grows into a neighbour that lies in a bin. */
static void realloc_grows_into_a_neighbour_in_a_bin(void **state)
{
    struct memoir_chain *chain = chain_over(room, 4096, 0);
    char *p = memoir_chain_alloc(chain, 100), *q = memoir_chain_alloc(chain, 100), *rest;
    size_t room_left = stats_of(chain).free_bytes_largest;
    assert_non_null(rest = memoir_chain_alloc(chain, room_left));
    memset(p, 5, 100);
    assert_int_equal(memoir_chain_free(chain, q), 0);
    assert_ptr_equal(memoir_chain_realloc(chain, p, 180), p);
    for (int i = 0; i < 100; i++)
        assert_int_equal(p[i], 5);
    errno = 0;
    assert_null(memoir_chain_realloc(chain, p, 1000));
    assert_int_equal(errno, ENOMEM);
    assert_whole(chain);
}

static void a_second_free_finds_the_block_in_its_bin(void **state)
{
    for (unsigned flags = 0; flags < 2; flags++) {
        struct memoir_chain *chain = chain_over(room, ROOM, flags);
        void *p = memoir_chain_alloc(chain, 50), *q = memoir_chain_alloc(chain, 50);
        assert_int_equal(memoir_chain_free(chain, p), 0);
        assert_int_equal(memoir_chain_free(chain, p), -EALREADY);
        assert_int_equal(memoir_chain_free(chain, q), 0);
        assert_int_equal(memoir_chain_free(chain, p), -EALREADY);
        assert_int_equal(memoir_chain_remote_free(chain, p), -EALREADY);
        assert_int_equal(memoir_chain_usable_size(chain, p), 0);
        errno = 0;
        assert_null(memoir_chain_realloc(chain, p, 10));
        assert_int_equal(errno, EALREADY);
        assert_whole(chain);
        assert_int_equal(stats_of(chain).bad_frees, 4);
        assert_ptr_equal(memoir_chain_alloc(chain, 50), q);
        assert_ptr_equal(memoir_chain_alloc(chain, 50), p);
        assert_ptr_not_equal(memoir_chain_alloc(chain, 50), p);
    }
}

/* The link in a freed block, with all that programs write there: found before it is followed. */
static void a_write_into_a_block_in_a_bin_is_found_and_mended(void **state)
{
    static const uint64_t written[] = {0, 1, 0x4141414141414141, UINT64_MAX};
    for (int i = 0; i < 4; i++) {
        struct memoir_chain *chain = chain_over(room, ROOM, 0);
        uint64_t *p[3];
        for (int j = 0; j < 3; j++)
            assert_non_null(p[j] = memoir_chain_alloc(chain, 40));
        for (int j = 0; j < 3; j++)
            assert_int_equal(memoir_chain_free(chain, p[j]), 0);
        p[2][0] = written[i];
        assert_int_equal(memoir_chain_check(chain, NULL), -EUCLEAN);
        errno = 0;
        assert_null(memoir_chain_alloc(chain, 40));
        assert_int_equal(errno, EUCLEAN);
        assert_int_equal(memoir_chain_repair(chain), 0);
        assert_whole(chain);
        assert_int_equal(stats_of(chain).used_blocks, 0);
        assert_non_null(memoir_chain_alloc(chain, 40));
    }
}

/* A head that leads to another block of the same bin, to one of another, to a live one, into nowhere. */
static void a_wrong_head_hands_no_block_out_twice(void **state)
{
    struct dice dice = {dice_seed()};
    for (int round = 0; round < 2000; round++) {
        struct memoir_chain *chain = chain_over(room, 16 * 1024, 0);
        void *held[40], *got[40];
        int n = 0, live = 0;
        for (int i = 0; i < 40; i++)
            assert_non_null(held[i] = memoir_chain_alloc(chain, 16 * (1 + dice_below(&dice, 4))));
        for (int i = 0; i < 40; i++)
            if (dice_below(&dice, 2)) {
                assert_int_equal(memoir_chain_free(chain, held[i]), 0);
                held[i] = NULL;
            }
        uint64_t to = (uint64_t)((char *)room - (char *)chain) + dice_below(&dice, 16 * 1024);
        chain->bins[dice_below(&dice, 4)] = dice_below(&dice, 2) ? to : (to & ~UINT64_C(15)) | 8;
        while (n < 40 && (got[n] = memoir_chain_alloc(chain, 16 * (1 + dice_below(&dice, 4)))))
            n++;
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < i; j++)
                assert_ptr_not_equal(got[i], got[j]);
            for (int j = 0; j < 40; j++)
                assert_true(!held[j] || held[j] != got[i]);
        }
        for (int i = 0; i < 40; i++)
            live += held[i] != NULL;
        assert_int_equal(memoir_chain_repair(chain), 0);
        assert_whole(chain);
        assert_int_equal(stats_of(chain).used_blocks, live + n);
    }
}

static void blocks_that_their_bin_lost_are_found(void **state)
{
    struct memoir_chain *chain = chain_over(room, ROOM, 0);
    void *p = memoir_chain_alloc(chain, 40), *wall = memoir_chain_alloc(chain, 400);
    const char *what = NULL;
    assert_int_equal(memoir_chain_free(chain, p), 0);
    chain->bins[bin_of_payload(40)] = 0;
    assert_int_equal(memoir_chain_check(chain, &what), -EUCLEAN);
    assert_string_equal(what, "a block of a bin is not in it");
    assert_int_equal(memoir_chain_repair(chain), 0);
    assert_whole(chain);
    assert_int_equal(memoir_chain_free(chain, wall), 0);
}

static int count(void *user, void *block, size_t bytes, int used)
{
    int *figures = user;
    figures[used ? 1 : 0]++;
    return 0;
}

static void walks_show_blocks_in_bins_as_free(void **state)
{
    struct memoir_chain *chain = chain_over(room, ROOM, 0);
    void *p[10];
    int figures[2] = {0};
    for (int i = 0; i < 10; i++)
        p[i] = memoir_chain_alloc(chain, 60);
    for (int i = 0; i < 10; i += 2)
        assert_int_equal(memoir_chain_free(chain, p[i]), 0);
    assert_int_equal(memoir_chain_walk(chain, count, figures), 0);
    assert_int_equal(figures[1], 5);
    assert_int_equal(figures[0], 6); /* with the rest of the buffer */
    assert_int_equal(stats_of(chain).used_blocks, 5);
    assert_int_equal(memoir_chain_reset(chain), 0);
    assert_int_equal(stats_of(chain).binned_bytes, 0);
    assert_whole(chain);
}

static void blocks_freed_by_others_go_into_bins(void **state)
{
    struct memoir_chain *chain = chain_over(room, ROOM, 0);
    void *p = memoir_chain_alloc(chain, 60), *wall = memoir_chain_alloc(chain, 60);
    assert_int_equal(memoir_chain_remote_free(chain, p), 0);
    assert_ptr_equal(memoir_chain_alloc(chain, 60), p); /* which also emptied the queue */
    assert_int_equal(memoir_chain_free(chain, wall), 0);
    assert_whole(chain);
}

static void chains_too_small_for_bins_do_without(void **state)
{
    struct memoir_chain *chain = chain_over(room, MEMOIR_CHAIN_BYTES_MIN, 0);
    void *p = memoir_chain_alloc(chain, 1);
    assert_int_equal(memoir_chain_free(chain, p), 0);
    assert_int_equal(stats_of(chain).binned_bytes, 0);
    assert_ptr_equal(memoir_chain_alloc(chain, 24), p);
    assert_whole(chain);
}

/* ---- a source ---- */

static int buffers_live;

static void *request(void *user, size_t bytes, size_t *ret_bytes)
{
    *ret_bytes = bytes < 4096 ? 4096 : (bytes + 15) & ~(size_t)15;
    buffers_live++;
    return aligned_alloc(16, *ret_bytes);
}

static void give_back(void *user, void *buffer, size_t bytes)
{
    memset(buffer, 0xee, bytes);
    free(buffer);
    buffers_live--;
}

/* Blocks in bins must not keep buffers that are otherwise empty. */
static void an_empty_chain_gives_its_buffers_back(void **state)
{
    struct memoir_chain_options options = {
        .struct_size = sizeof(options), .request = request, .give_back = give_back};
    for (options.flags = 0; options.flags < 2; options.flags++) {
        struct memoir_chain *chain;
        void *p[1000], *last;
        assert_int_equal(memoir_chain_init(room, 16 * 1024, &options, &chain), 0);
        for (int i = 0; i < 1000; i++)
            assert_non_null(p[i] = memoir_chain_alloc(chain, (size_t)(10 + i % 200)));
        assert_true(buffers_live > 10);
        for (int i = 0; i < 1000; i++)
            assert_int_equal(memoir_chain_free(chain, p[i]), 0);
        assert_true(buffers_live <= 1);
        assert_whole(chain);

        /* While one block lives, asking for it does. */
        for (int i = 0; i < 1000; i++)
            assert_non_null(p[i] = memoir_chain_alloc(chain, 100));
        assert_non_null(last = memoir_chain_alloc(chain, 100));
        for (int i = 0; i < 1000; i++)
            assert_int_equal(memoir_chain_free(chain, p[i]), 0);
        assert_int_equal(memoir_chain_drain(chain), 0);
        assert_true(buffers_live <= 2);
        assert_int_equal(memoir_chain_free(chain, last), 0);
        assert_int_equal(memoir_chain_destroy(chain), 0);
        assert_int_equal(buffers_live, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_freed_small_block_serves_the_next_of_its_size),
        cmocka_unit_test(larger_blocks_are_merged_at_once),
        cmocka_unit_test(bins_hold_no_more_than_their_share),
        cmocka_unit_test(what_lies_in_bins_serves_larger_blocks),
        cmocka_unit_test(realloc_grows_into_a_neighbour_in_a_bin),
        cmocka_unit_test(a_second_free_finds_the_block_in_its_bin),
        cmocka_unit_test(a_write_into_a_block_in_a_bin_is_found_and_mended),
        cmocka_unit_test(a_wrong_head_hands_no_block_out_twice),
        cmocka_unit_test(blocks_that_their_bin_lost_are_found),
        cmocka_unit_test(walks_show_blocks_in_bins_as_free),
        cmocka_unit_test(blocks_freed_by_others_go_into_bins),
        cmocka_unit_test(chains_too_small_for_bins_do_without),
        cmocka_unit_test(an_empty_chain_gives_its_buffers_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
