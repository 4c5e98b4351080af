/* Chains that grow by a source: when they ask, what they give back, what they do when it fails. */
#include "chain_fixture.h"

#include <stdbool.h>

enum { ROOM = 4096, BUFFER = 16 * 1024, BUFFERS_MAX = 64 };
static char room[ROOM] __attribute__((aligned(16)));

/* A source that counts, and fails when told to. */
struct tap {
    int live, requests, given_back;
    int fail_at; /* the n-th request from now fails; -1: none */
    size_t skew_address, skew_bytes;
    struct {
        void *buffer;
        size_t bytes;
    } buffers[BUFFERS_MAX];
    struct memoir_chain *look_at; /* during calls: they come without the lock */
};

static void *tap_request(void *user, size_t bytes, size_t *ret_bytes)
{
    struct tap *t = user;
    t->requests++;
    if (t->look_at)
        stats_of(t->look_at);
    if (t->fail_at >= 0 && t->fail_at-- == 0)
        return NULL;
    size_t give = bytes < BUFFER ? BUFFER : (bytes + 15) & ~(size_t)15;
    char *p = aligned_alloc(16, give + 16);
    assert_non_null(p);
    for (int i = 0; i < BUFFERS_MAX; i++)
        if (!t->buffers[i].buffer) {
            t->buffers[i].buffer = p + t->skew_address;
            t->buffers[i].bytes = *ret_bytes = give - t->skew_bytes;
            t->live++;
            return p + t->skew_address;
        }
    fail_msg("too many buffers");
    return NULL;
}

static void tap_give_back(void *user, void *buffer, size_t bytes)
{
    struct tap *t = user;
    t->given_back++;
    if (t->look_at)
        stats_of(t->look_at);
    for (int i = 0; i < BUFFERS_MAX; i++)
        if (t->buffers[i].buffer == buffer) {
            assert_int_equal(t->buffers[i].bytes, bytes);
            t->buffers[i].buffer = NULL;
            t->live--;
            memset(buffer, 0xee, bytes);
            free((char *)buffer - t->skew_address);
            return;
        }
    fail_msg("a buffer was given back that is none");
}

static int chain_with(struct tap *t, void *buffer, size_t bytes, unsigned flags,
                      struct memoir_chain **ret)
{
    struct memoir_chain_options options = {
        .struct_size = sizeof(options),
        .flags = flags,
        .request = tap_request,
        .give_back = tap_give_back,
        .user = t,
    };
    return memoir_chain_init(buffer, bytes, &options, ret);
}

static void a_full_chain_asks_for_more(void **state)
{
    struct tap t = {.fail_at = -1};
    struct memoir_chain *chain;
    assert_int_equal(chain_with(&t, room, ROOM, 0, &chain), 0);
    assert_non_null(memoir_chain_alloc(chain, 100));
    assert_int_equal(t.requests, 0);
    assert_non_null(memoir_chain_alloc(chain, ROOM));
    assert_int_equal(t.live, 1);
    assert_non_null(memoir_chain_alloc(chain, 10 * BUFFER));
    assert_non_null(memoir_chain_aligned(chain, 65536, 5 * BUFFER));
    assert_int_equal(t.live, 3);
    assert_whole(chain);
    assert_int_equal(stats_of(chain).buffers, 4);
    assert_int_equal(memoir_chain_destroy(chain), 0);
    assert_int_equal(t.live, 0);
}

static void one_empty_buffer_is_kept_and_others_go_back(void **state)
{
    struct tap t = {.fail_at = -1};
    struct memoir_chain *chain;
    void *p[6];
    assert_int_equal(chain_with(&t, room, ROOM, 0, &chain), 0);
    for (int i = 0; i < 6; i++)
        assert_non_null(p[i] = memoir_chain_alloc(chain, BUFFER - 200));
    assert_int_equal(t.live, 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(memoir_chain_free(chain, p[i]), 0);
        assert_whole(chain);
    }
    assert_int_equal(t.live, 1);
    /* Allocating and freeing at the edge does not go to the source each time. */
    int requests = t.requests, given_back = t.given_back;
    for (int i = 0; i < 100; i++)
        memoir_chain_free(chain, memoir_chain_alloc(chain, BUFFER - 200));
    assert_int_equal(t.requests, requests);
    assert_int_equal(t.given_back, given_back);
    assert_int_equal(memoir_chain_reset(chain), 0);
    assert_int_equal(t.live, 0);
    assert_whole(chain);
    assert_int_equal(memoir_chain_destroy(chain), 0);
}

static void the_first_buffer_may_be_the_sources(void **state)
{
    struct tap t = {.fail_at = -1};
    struct memoir_chain *chain = NULL;
    assert_int_equal(chain_with(&t, NULL, 0, 0, &chain), 0);
    assert_int_equal(t.live, 1);
    assert_non_null(memoir_chain_alloc(chain, 100));
    assert_int_equal(memoir_chain_reset(chain), 0);
    assert_int_equal(t.live, 1); /* the chain itself lies there */
    assert_int_equal(memoir_chain_destroy(chain), 0);
    assert_int_equal(t.live, 0);

    t.fail_at = 0;
    chain = NULL;
    assert_int_equal(chain_with(&t, NULL, 0, 0, &chain), -ENOMEM);
    assert_null(chain);
    assert_int_equal(chain_with(&t, NULL, 0, MEMOIR_CHAIN_SHARED, &chain), -EINVAL);
}

static void buffers_that_cannot_be_used_go_back(void **state)
{
    for (int which = 0; which < 2; which++) {
        struct tap t = {.fail_at = -1};
        struct memoir_chain *chain;
        assert_int_equal(chain_with(&t, room, ROOM, 0, &chain), 0);
        t.skew_address = which == 0 ? 8 : 0;
        t.skew_bytes = which == 1 ? 8 : 0;
        errno = 0;
        assert_null(memoir_chain_alloc(chain, ROOM));
        assert_int_equal(errno, ENOMEM);
        assert_int_equal(t.live, 0);
        assert_int_equal(stats_of(chain).failures, 1);
        assert_whole(chain);
    }
}

static void the_source_is_called_without_the_lock(void **state)
{
    struct tap t = {.fail_at = -1};
    struct memoir_chain *chain;
    assert_int_equal(chain_with(&t, room, ROOM, MEMOIR_CHAIN_THREAD_SAFE, &chain), 0);
    t.look_at = chain;
    void *p = memoir_chain_alloc(chain, BUFFER - 200), *q = memoir_chain_alloc(chain, BUFFER - 200);
    assert_int_equal(memoir_chain_free(chain, p), 0);
    assert_int_equal(memoir_chain_free(chain, q), 0);
    assert_int_equal(t.given_back, 1);
    t.look_at = NULL;
    assert_int_equal(memoir_chain_destroy(chain), 0);
}

/* The n-th request fails, for every n: calls fail one by one, what was there stays. */
static void every_failure_of_the_source_is_survived(void **state)
{
    bool failed = true;
    for (int nth = 0; failed; nth++) {
        struct tap t = {.fail_at = nth};
        struct memoir_chain *chain;
        char *p[20];
        size_t bytes[20];
        int refused = 0;
        assert_int_equal(chain_with(&t, room, ROOM, 0, &chain), 0);
        for (int i = 0; i < 20; i++) {
            bytes[i] = (size_t)(500 + i * 700);
            p[i] = memoir_chain_alloc(chain, bytes[i]);
            if (p[i])
                memset(p[i], i, bytes[i]);
            else
                refused++;
            char *more = p[i] ? memoir_chain_realloc(chain, p[i], bytes[i] + 3000) : NULL;
            if (more)
                p[i] = more;
            else if (p[i])
                refused++;
            assert_whole(chain);
        }
        failed = t.fail_at < 0 && refused;
        assert_true(refused <= 1);
        for (int i = 0; i < 20; i++) {
            for (size_t j = 0; p[i] && j < bytes[i]; j++)
                assert_int_equal(p[i][j], i);
            assert_int_equal(memoir_chain_free(chain, p[i]), 0);
        }
        assert_whole(chain);
        assert_int_equal(memoir_chain_destroy(chain), 0);
        assert_int_equal(t.live, 0);
    }
}

/* Frees of other threads may empty buffers, too. */
static void drained_blocks_empty_buffers(void **state)
{
    struct tap t = {.fail_at = -1};
    struct memoir_chain *chain;
    void *p[5];
    assert_int_equal(chain_with(&t, room, ROOM, 0, &chain), 0);
    for (int i = 0; i < 5; i++)
        p[i] = memoir_chain_alloc(chain, BUFFER - 200);
    for (int i = 0; i < 5; i++)
        assert_int_equal(memoir_chain_remote_free(chain, p[i]), 0);
    assert_int_equal(t.live, 5);
    assert_int_equal(memoir_chain_drain(chain), 5);
    assert_int_equal(t.live, 1);
    assert_int_equal(memoir_chain_destroy(chain), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_chain_asks_for_more),
        cmocka_unit_test(one_empty_buffer_is_kept_and_others_go_back),
        cmocka_unit_test(the_first_buffer_may_be_the_sources),
        cmocka_unit_test(buffers_that_cannot_be_used_go_back),
        cmocka_unit_test(the_source_is_called_without_the_lock),
        cmocka_unit_test(every_failure_of_the_source_is_survived),
        cmocka_unit_test(drained_blocks_empty_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
