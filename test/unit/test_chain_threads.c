/* Chains that threads share: by a lock, or by the queue of remote frees. */
#include "chain_fixture.h"

#include <pthread.h>
#include <sched.h>

#include "base/atomic.h"

enum { THREADS = 4, STEPS = 8000, HELD = 40, ROOM = 1 << 18, HANDED = 8000 };
static char room[ROOM] __attribute__((aligned(64)));

struct worker {
    struct memoir_chain *chain;
    uint64_t seed;
    unsigned char mark;
};

static void *work(void *user)
{
    struct worker *w = user;
    struct dice dice = {w->seed};
    unsigned char *held[HELD] = {0};
    for (int step = 0; step < STEPS; step++) {
        unsigned char **slot = &held[dice_below(&dice, HELD)];
        size_t bytes = 1 + dice_below(&dice, 900);
        if (*slot) {
            size_t usable = memoir_chain_usable_size(w->chain, *slot);
            assert_true(usable > 0 && (*slot)[0] == w->mark && (*slot)[usable - 1] == w->mark);
            if (dice_below(&dice, 3) == 0) {
                unsigned char *p = memoir_chain_realloc(w->chain, *slot, bytes);
                if (p) {
                    assert_int_equal(p[0], w->mark);
                    memset(p, w->mark, memoir_chain_usable_size(w->chain, p));
                    *slot = p;
                }
                continue;
            }
            int r = dice_below(&dice, 2) ? memoir_chain_free(w->chain, *slot)
                                         : memoir_chain_remote_free(w->chain, *slot);
            assert_int_equal(r, 0);
            *slot = NULL;
        } else if ((*slot = memoir_chain_alloc(w->chain, bytes))) {
            memset(*slot, w->mark, memoir_chain_usable_size(w->chain, *slot));
        }
        if (step % 1000 == 0)
            assert_whole(w->chain);
    }
    for (int i = 0; i < HELD; i++)
        assert_int_equal(memoir_chain_free(w->chain, held[i]), 0);
    return NULL;
}

static void work_together(unsigned flags)
{
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    uint64_t seed = dice_seed();
    struct memoir_chain *chain = chain_over(room, ROOM, flags);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){chain, seed + (uint64_t)i, (unsigned char)(i + 1)};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_whole(chain);
    assert_int_equal(stats_of(chain).used_blocks, 0);
    assert_int_equal(stats_of(chain).recoveries, 0);
}

static void threads_share_a_private_chain(void **state)
{
    work_together(MEMOIR_CHAIN_THREAD_SAFE);
}

static void threads_share_a_shared_chain(void **state)
{
    work_together(MEMOIR_CHAIN_SHARED);
}

/* ---- remote frees ---- */

struct handing {
    struct memoir_chain *chain;
    void *mailbox[16]; /* atomic: the owner fills what is NULL, others empty it */
    uint32_t done;
};

static void *take_and_free(void *user)
{
    struct handing *h = user;
    for (;;) {
        uint32_t done = load_acquire(&h->done);
        int found = 0;
        for (int i = 0; i < 16; i++) {
            char *p = exchange_acq_rel(&h->mailbox[i], NULL);
            if (!p)
                continue;
            found = 1;
            assert_int_equal(p[0], 'm');
            assert_int_equal(memoir_chain_remote_free(h->chain, p), 0);
        }
        if (done && !found)
            return NULL;
        if (!found)
            sched_yield();
    }
}

static void remote_frees_are_reused_by_the_owner(void **state)
{
    static char small[16 * 1024];
    struct handing h = {.chain = chain_over(small, sizeof(small), 0)};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_free, &h), 0);
    /* Far more than the chain holds at once: the queue must come back. */
    for (int n = 0; n < HANDED;) {
        char *p = memoir_chain_alloc(h.chain, 500);
        if (!p) {
            sched_yield();
            continue;
        }
        p[0] = 'm';
        void *none = NULL;
        if (cas_acq_rel(&h.mailbox[n % 16], &none, p))
            n++;
        else {
            assert_int_equal(memoir_chain_free(h.chain, p), 0);
            sched_yield();
        }
    }
    store_release(&h.done, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_true(memoir_chain_drain(h.chain) >= 0);
    assert_whole(h.chain);
    assert_int_equal(stats_of(h.chain).used_blocks, 0);
}

static void a_block_queued_twice_is_refused(void **state)
{
    struct memoir_chain *chain = chain_over(room, ROOM, 0);
    void *p = memoir_chain_alloc(chain, 10), *q = memoir_chain_alloc(chain, 10);
    assert_int_equal(memoir_chain_remote_free(chain, p), 0);
    assert_int_equal(memoir_chain_remote_free(chain, p), -EALREADY);
    assert_int_equal(stats_of(chain).used_blocks, 2); /* looking does not drain */
    assert_int_equal(memoir_chain_drain(chain), 1);
    assert_int_equal(memoir_chain_remote_free(chain, q), 0);
    int r = memoir_chain_free(chain, q); /* drained first, so free already */
    assert_true(r == -EALREADY || r == -EFAULT);
    assert_whole(chain);
    assert_int_equal(stats_of(chain).used_blocks, 0);
    /* Used again, it may be queued again. */
    p = memoir_chain_alloc(chain, 10);
    assert_int_equal(memoir_chain_remote_free(chain, p), 0);
}

static void an_overwritten_queue_is_not_followed(void **state)
{
    struct memoir_chain *chain = chain_over(room, ROOM, 0);
    uint64_t *p = memoir_chain_alloc(chain, 24);
    assert_int_equal(memoir_chain_remote_free(chain, p), 0);
    p[0] = 0x4141414141414141;
    assert_int_equal(memoir_chain_drain(chain), -EUCLEAN);
    assert_int_equal(memoir_chain_repair(chain), 0); /* the block is lost, the chain is not */
    assert_whole(chain);
    assert_non_null(memoir_chain_alloc(chain, 24));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_a_private_chain),
        cmocka_unit_test(threads_share_a_shared_chain),
        cmocka_unit_test(remote_frees_are_reused_by_the_owner),
        cmocka_unit_test(a_block_queued_twice_is_refused),
        cmocka_unit_test(an_overwritten_queue_is_not_followed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
