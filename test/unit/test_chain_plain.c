/* Chains behind malloc() and free(), with the allocator itself in this program. */
#include "check.h"

#include <errno.h>
#include <malloc.h>
#include <memoir/malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"

enum { ROOM = 1 << 20 };
static char *room;

/* A compiler that knows malloc() and free() takes pairs of them away. */
static void *(*volatile some_malloc)(size_t) = malloc;
static void (*volatile some_free)(void *) = free;
static void *(*volatile some_realloc)(void *, size_t) = realloc;

static int make(void **state)
{
    room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return room == MAP_FAILED;
}

static int unmake(void **state)
{
    return munmap(room, ROOM);
}

static struct memoir_chain *registered(size_t bytes, unsigned flags)
{
    struct memoir_chain_options options = {.struct_size = sizeof(options),
                                           .flags = flags | MEMOIR_CHAIN_REGISTER};
    struct memoir_chain *chain = NULL;
    assert_int_equal(memoir_chain_init(room, bytes, &options, &chain), 0);
    return chain;
}

static uint64_t used_blocks(struct memoir_chain *chain)
{
    struct memoir_chain_stats stats = {.struct_size = sizeof(stats)};
    assert_int_equal(memoir_chain_stats(chain, &stats), 0);
    assert_int_equal(memoir_chain_check(chain, NULL), 0);
    return stats.used_blocks;
}

static bool is_inside(const void *p)
{
    return (const char *)p >= room && (const char *)p < room + ROOM;
}

static void free_realloc_and_usable_size_find_the_chain(void **state)
{
    struct memoir_chain *chain = registered(ROOM, 0);
    char *p = memoir_chain_alloc(chain, 100);
    assert_ptr_equal(memoir_chain_find(p + 50), chain);
    assert_null(memoir_chain_find(room + ROOM));
    assert_int_equal(malloc_usable_size(p), memoir_chain_usable_size(chain, p));
    memset(p, 3, 100);
    char *wall = memoir_chain_alloc(chain, 10);
    p = some_realloc(p, 5000);
    assert_true(is_inside(p));
    for (int i = 0; i < 100; i++)
        assert_int_equal(p[i], 3);
    errno = 77;
    some_free(p);
    some_free(wall);
    assert_int_equal(errno, 77);
    assert_int_equal(used_blocks(chain), 0);
    assert_int_equal(memoir_chain_destroy(chain), 0);
    assert_null(memoir_chain_find(room + 5000));
}

static void a_block_that_outgrows_its_chain_moves_to_the_heap(void **state)
{
    struct memoir_chain *chain = registered(8192, 0);
    char *p = memoir_chain_alloc(chain, 100);
    memset(p, 9, 100);
    p = some_realloc(p, 100000);
    assert_non_null(p);
    assert_false(is_inside(p));
    assert_int_equal(p[99], 9);
    assert_int_equal(used_blocks(chain), 0);
    some_free(p);
    assert_int_equal(memoir_chain_destroy(chain), 0);

    chain = registered(8192, MEMOIR_CHAIN_NO_FALLBACK);
    p = memoir_chain_alloc(chain, 100);
    p[0] = 9;
    errno = 0;
    assert_null(some_realloc(p, 100000));
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(p[0], 9);
    some_free(p);
    assert_int_equal(used_blocks(chain), 0);
    assert_int_equal(memoir_chain_destroy(chain), 0);
}

static void segments_with_a_chain_on_each_side_are_told_apart(void **state)
{
    struct memoir_chain_options options = {.struct_size = sizeof(options),
                                           .flags = MEMOIR_CHAIN_REGISTER};
    struct memoir_chain *chains[16];
    void *blocks[16];
    for (int i = 0; i < 16; i++) {
        assert_int_equal(memoir_chain_init(room + i * 1000, 1000, &options, &chains[i]), 0);
        assert_non_null(blocks[i] = memoir_chain_alloc(chains[i], 50));
    }
    assert_int_equal(memoir_chain_init(room + 500, 1000, &options, &chains[0]), -EBUSY);
    for (int i = 0; i < 16; i++)
        assert_ptr_equal(memoir_chain_find(blocks[i]), chains[i]);
    for (int i = 0; i < 16; i++) {
        some_free(blocks[i]);
        assert_int_equal(used_blocks(chains[i]), 0);
        assert_int_equal(memoir_chain_destroy(chains[i]), 0);
    }
}

static void refills_are_found_too(void **state)
{
    struct memoir_chain *chain = registered(4096, 0);
    assert_int_equal(memoir_chain_refill(chain, room + 8192, 8192), 0);
    assert_int_equal(memoir_chain_refill(chain, room + 8192, 8192), -EBUSY);
    void *p = memoir_chain_alloc(chain, 6000);
    assert_ptr_equal(memoir_chain_find(p), chain);
    assert_null(memoir_chain_find(room + 5000));
    some_free(p);
    assert_int_equal(used_blocks(chain), 0);
    assert_int_equal(memoir_chain_destroy(chain), 0);
}

static void memory_of_malloc_cannot_be_registered(void **state)
{
    struct memoir_chain_options options = {.struct_size = sizeof(options),
                                           .flags = MEMOIR_CHAIN_REGISTER};
    struct memoir_chain *chain;
    void *small = some_malloc(4096);
    assert_int_equal(memoir_chain_init(small, 4096, &options, &chain), -EBUSY);
    options.flags = 0;
    assert_int_equal(memoir_chain_init(small, 4096, &options, &chain), 0); /* but it can be used */
    some_free(small);

    /* A block with a mapping of its own: the chain's blocks are found in it. */
    void *large = some_malloc(8 << 20);
    options.flags = MEMOIR_CHAIN_REGISTER;
    assert_int_equal(memoir_chain_init(large, 8 << 20, &options, &chain), 0);
    for (int i = 0; i < 3; i++) {
        void *p = memoir_chain_alloc(chain, 2 << 20);
        assert_non_null(p);
        some_free(p);
    }
    assert_int_equal(used_blocks(chain), 0);
    assert_int_equal(memoir_chain_destroy(chain), 0);
    some_free(large);
}

/* ---- the default ---- */

static void malloc_serves_from_the_default_chain(void **state)
{
    struct memoir_chain *chain = registered(ROOM, 0);
    assert_null(memoir_chain_default());
    assert_null(memoir_chain_set_default(chain));
    void *p[7];
    p[0] = some_malloc(100);
    p[1] = calloc(10, 10);
    p[2] = aligned_alloc(256, 512);
    p[3] = strdup("a word");
    p[4] = some_realloc(NULL, 1000);
    p[5] = some_malloc(0);
    assert_int_equal(posix_memalign(&p[6], 64, 100), 0);
    struct memoir_chain *old = memoir_chain_set_default(NULL);
    assert_ptr_equal(old, chain);
    void *outside = some_malloc(100);
    assert_false(is_inside(outside));
    for (int i = 0; i < 7; i++)
        assert_true(is_inside(p[i]));
    for (int i = 0; i < 100; i++)
        assert_int_equal(((char *)p[1])[i], 0);
    assert_int_equal((uintptr_t)p[2] % 256, 0);
    for (int i = 0; i < 7; i++)
        some_free(p[i]);
    assert_int_equal(used_blocks(chain), 0);
    memoir_chain_restore_default(old);
    some_free(outside); /* of the heap, whatever the default is */
    memoir_chain_restore_default(NULL);
    assert_int_equal(memoir_chain_destroy(chain), 0);
}

static void defaults_nest(void **state)
{
    struct memoir_chain_options options = {.struct_size = sizeof(options),
                                           .flags = MEMOIR_CHAIN_REGISTER};
    struct memoir_chain *a, *b, *unregistered;
    assert_int_equal(memoir_chain_init(room, 10000, &options, &a), 0);
    assert_int_equal(memoir_chain_init(room + 10000, 10000, &options, &b), 0);
    assert_int_equal(memoir_chain_init(room + 20000, 10000, NULL, &unregistered), 0);
    struct memoir_chain *first = memoir_chain_set_default(a);
    struct memoir_chain *second = memoir_chain_set_default(b);
    errno = 0;
    struct memoir_chain *third = memoir_chain_set_default(unregistered);
    assert_ptr_equal(third, MEMOIR_CHAIN_FAILED);
    assert_int_equal(errno, EINVAL);
    assert_ptr_equal(memoir_chain_default(), b);
    memoir_chain_restore_default(third); /* nothing */
    assert_ptr_equal(memoir_chain_default(), b);
    memoir_chain_restore_default(second);
    assert_ptr_equal(memoir_chain_default(), a);
    memoir_chain_restore_default(first);
    assert_null(memoir_chain_default());
    assert_int_equal(memoir_chain_destroy(a), 0);
    assert_int_equal(memoir_chain_destroy(b), 0);
}

static void a_full_default_falls_back_or_fails_as_set(void **state)
{
    struct memoir_chain *chain = registered(4096, 0);
    memoir_chain_set_default(chain);
    errno = 55;
    void *p = some_malloc(10000);
    int error = errno;
    memoir_chain_restore_default(NULL);
    assert_non_null(p);
    assert_false(is_inside(p));
    assert_int_equal(error, 55);
    some_free(p);
    assert_int_equal(memoir_chain_destroy(chain), 0);

    chain = registered(4096, MEMOIR_CHAIN_NO_FALLBACK);
    memoir_chain_set_default(chain);
    errno = 0;
    p = some_malloc(10000);
    error = errno;
    memoir_chain_restore_default(NULL);
    assert_null(p);
    assert_int_equal(error, ENOMEM);
    assert_int_equal(memoir_chain_destroy(chain), 0);
}

static void destroying_the_own_default_ends_it(void **state)
{
    struct memoir_chain *chain = registered(ROOM, 0);
    memoir_chain_set_default(chain);
    some_malloc(100);
    assert_int_equal(memoir_chain_destroy(chain), 0);
    assert_null(memoir_chain_default());
    void *p = some_malloc(100);
    assert_false(is_inside(p));
    some_free(p);
}

/* ---- threads ---- */

struct handed {
    struct memoir_chain *chain;
    char *block, *grown;
    bool default_was_none, served_outside;
    uint32_t go; /* atomic: the first thread has set its default */
};

static void *other_thread(void *user)
{
    struct handed *h = user;
    while (!load_acquire(&h->go))
        usleep(100);
    h->default_was_none = memoir_chain_default() == NULL;
    void *own = some_malloc(100);
    h->served_outside = !is_inside(own);
    some_free(own);
    h->grown = some_realloc(h->grown, 3000); /* not in place: the chain is not this thread's */
    some_free(h->block);
    return NULL;
}

static void other_threads_free_by_the_queue_and_have_no_default(void **state)
{
    struct memoir_chain *chain = registered(ROOM, 0);
    struct handed h = {.chain = chain};
    pthread_t thread;
    h.block = memoir_chain_alloc(chain, 50);
    h.grown = memoir_chain_alloc(chain, 50);
    memset(h.grown, 4, 50);
    /* The C library keeps what it allocates for a thread: not in a chain that ends before. */
    assert_int_equal(pthread_create(&thread, NULL, other_thread, &h), 0);
    memoir_chain_set_default(chain);
    store_release(&h.go, 1);
    pthread_join(thread, NULL);
    memoir_chain_restore_default(NULL);
    assert_true(h.default_was_none && h.served_outside);
    assert_false(is_inside(h.grown));
    assert_int_equal(h.grown[49], 4);
    some_free(h.grown);
    assert_true(memoir_chain_drain(chain) >= 0);
    assert_int_equal(memoir_chain_check(chain, NULL), 0);
    memoir_chain_destroy(chain);
}

struct left {
    struct memoir_chain *chain;
    void *block;
};

static void *make_and_end(void *user)
{
    struct left *l = user;
    l->chain = registered(ROOM, 0);
    l->block = memoir_chain_alloc(l->chain, 100);
    return NULL;
}

static void a_chain_outlives_its_owner_and_can_be_adopted(void **state)
{
    struct left l = {0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, make_and_end, &l), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    some_free(l.block); /* queued: the owner was another */
    assert_int_equal(used_blocks(l.chain), 1);
    assert_int_equal(memoir_chain_adopt(l.chain), 0);
    assert_int_equal(memoir_chain_drain(l.chain), 1);
    void *p = memoir_chain_alloc(l.chain, 100);
    some_free(p); /* at once: it is ours now */
    assert_int_equal(used_blocks(l.chain), 0);
    assert_int_equal(memoir_chain_destroy(l.chain), 0);
}

static void *end_with_a_default(void *user)
{
    memoir_chain_set_default(user);
    char *p = some_malloc(123);
    strcpy(p, "stays");
    return p;
}

static void a_thread_may_end_with_its_default_set(void **state)
{
    struct memoir_chain *chain = registered(ROOM, MEMOIR_CHAIN_THREAD_SAFE);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        void *p;
        assert_int_equal(pthread_create(&thread, NULL, end_with_a_default, chain), 0);
        assert_int_equal(pthread_join(thread, &p), 0);
        assert_true(is_inside(p));
        assert_string_equal(p, "stays");
        some_free(p);
    }
    assert_int_equal(memoir_chain_check(chain, NULL), 0);
    memoir_chain_destroy(chain);
}

/* ---- fork, and what free() does with the rest ---- */

static void a_child_keeps_default_and_blocks(void **state)
{
    struct memoir_chain *chain = registered(ROOM, 0);
    int status;
    memoir_chain_set_default(chain);
    char *p = some_malloc(100);
    p[0] = 1;
    pid_t pid = fork();
    if (pid == 0) {
        char *q = some_malloc(100);
        bool good = memoir_chain_default() == chain && is_inside(q) && p[0] == 1;
        some_free(p);
        some_free(q);
        _exit(good && memoir_chain_check(chain, NULL) == 0 ? 0 : 1);
    }
    memoir_chain_restore_default(NULL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(p[0], 1); /* the child's frees were its own */
    some_free(p);
    assert_int_equal(used_blocks(chain), 0);
    memoir_chain_destroy(chain);
}

static int child_frees(void *block)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(1);
        some_free(block);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static void a_free_into_a_destroyed_chain_ends_the_program(void **state)
{
    struct memoir_chain *chain = registered(ROOM, 0);
    void *p = memoir_chain_alloc(chain, 100);
    assert_int_equal(memoir_chain_destroy(chain), 0);
    assert_int_equal(child_frees(p), SIGABRT);
}

static void bad_frees_are_counted_or_end_the_program_as_set(void **state)
{
    struct memoir_chain_stats stats = {.struct_size = sizeof(stats)};
    struct memoir_chain *chain = registered(ROOM, 0);
    char *p = memoir_chain_alloc(chain, 100);
    some_free(p + 16);
    some_free(p);
    some_free(p);
    assert_null(some_realloc(p, 10));
    assert_int_equal(memoir_chain_stats(chain, &stats), 0);
    assert_int_equal(stats.bad_frees, 2);
    assert_int_equal(used_blocks(chain), 0);
    assert_int_equal(memoir_chain_destroy(chain), 0);

    chain = registered(ROOM, MEMOIR_CHAIN_ABORT);
    p = memoir_chain_alloc(chain, 100);
    assert_int_equal(child_frees(p), 0);
    assert_int_equal(child_frees(p + 16), SIGABRT);
    some_free(p);
    assert_int_equal(memoir_chain_destroy(chain), 0);
}

/* ---- a source that itself allocates ---- */

static void *request(void *user, size_t bytes, size_t *ret_bytes)
{
    int *calls = user;
    void *own = some_malloc(50); /* not from the chain that waits for us */
    if (!is_inside(own))
        ++*calls;
    some_free(own);
    *ret_bytes = (bytes + 65535) & ~(size_t)65535;
    void *p = mmap(NULL, *ret_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void give_back(void *user, void *buffer, size_t bytes)
{
    munmap(buffer, bytes);
}

static void a_growing_default_registers_what_it_gets(void **state)
{
    int calls = 0;
    struct memoir_chain_options options = {
        .struct_size = sizeof(options),
        .flags = MEMOIR_CHAIN_REGISTER,
        .request = request,
        .give_back = give_back,
        .user = &calls,
    };
    struct memoir_chain *chain;
    void *p[20];
    assert_int_equal(memoir_chain_init(room, 4096, &options, &chain), 0);
    memoir_chain_set_default(chain);
    for (int i = 0; i < 20; i++)
        p[i] = some_malloc(50000);
    memoir_chain_restore_default(NULL);
    for (int i = 0; i < 20; i++) {
        assert_ptr_equal(memoir_chain_find(p[i]), chain);
        some_free(p[i]);
    }
    assert_int_equal(calls, 20);
    assert_int_equal(used_blocks(chain), 0);
    assert_int_equal(memoir_chain_destroy(chain), 0);
    assert_null(memoir_chain_find(p[0]));
}

int main(void)
{
#define WITH_ROOM(test) cmocka_unit_test_setup_teardown(test, make, unmake)
    const struct CMUnitTest tests[] = {
        WITH_ROOM(free_realloc_and_usable_size_find_the_chain),
        WITH_ROOM(a_block_that_outgrows_its_chain_moves_to_the_heap),
        WITH_ROOM(segments_with_a_chain_on_each_side_are_told_apart),
        WITH_ROOM(refills_are_found_too),
        WITH_ROOM(memory_of_malloc_cannot_be_registered),
        WITH_ROOM(malloc_serves_from_the_default_chain),
        WITH_ROOM(defaults_nest),
        WITH_ROOM(a_full_default_falls_back_or_fails_as_set),
        WITH_ROOM(destroying_the_own_default_ends_it),
        WITH_ROOM(other_threads_free_by_the_queue_and_have_no_default),
        WITH_ROOM(a_chain_outlives_its_owner_and_can_be_adopted),
        WITH_ROOM(a_thread_may_end_with_its_default_set),
        WITH_ROOM(a_child_keeps_default_and_blocks),
        WITH_ROOM(a_free_into_a_destroyed_chain_ends_the_program),
        WITH_ROOM(bad_frees_are_counted_or_end_the_program_as_set),
        WITH_ROOM(a_growing_default_registers_what_it_gets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
