/* The protocol of a slab's remote word with real threads: for TSan, which sees an order of memory that is too weak, and for the
 * rest, which runs faster than any schedule that one can write down. All orders of few steps: test_slab_interleave.c. */
#include "malloc/slab.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "malloc/source.h"

enum {
    THREADS = 4,
    SLABS = 48,
    SLOTS = 96, /* where blocks change hands */
    STAMPS = 8,
#if defined(UNDER_TSAN)
    ROUNDS = 60000,
#else
    ROUNDS = 250000,
#endif
};

static struct source source;
static char *macro_memory;
static unsigned class;

/* Slabs that nobody has. */
static pthread_mutex_t unused_lock = PTHREAD_MUTEX_INITIALIZER;
static struct slab *unused_slabs[SLABS];
static unsigned n_unused;

static uint64_t *slots[SLOTS]; /* atomic */
static uint32_t wrong;         /* atomic */

void source_pool_link(struct source *s, struct slab *slab)
{
    slab->next = s->pool[slab->class];
    slab->prev = NULL;
    if (slab->next)
        slab->next->prev = slab;
    s->pool[slab->class] = slab;
}

void source_pool_unlink(struct source *s, struct slab *slab)
{
    *(slab->prev ? &slab->prev->next : &s->pool[slab->class]) = slab->next;
    if (slab->next)
        slab->next->prev = slab->prev;
}

void spread_waited(struct source *s)
{
}

struct actor {
    struct slab *own[SLABS];
    unsigned n_own;
    unsigned seed;
    struct heap *heap;
};

static void expect(bool condition)
{
    if (!condition)
        fetch_add_relaxed(&wrong, 1);
}

static void give(struct slab *s)
{
    store_relaxed(&s->owner, NULL);
    pthread_mutex_lock(&unused_lock);
    expect(n_unused < SLABS);
    unused_slabs[n_unused++ % SLABS] = s;
    pthread_mutex_unlock(&unused_lock);
}

static struct slab *take(void)
{
    pthread_mutex_lock(&unused_lock);
    struct slab *s = n_unused > 0 ? unused_slabs[--n_unused] : NULL;
    pthread_mutex_unlock(&unused_lock);
    return s;
}

static void leave(struct actor *a, unsigned i)
{
    struct slab *s = a->own[i];
    a->own[i] = a->own[--a->n_own];
    slab_collect(s);
    if (s->used == 0 || slab_leave(&source, s) == SLAB_EMPTY)
        give(s);
}

static void own(struct actor *a, struct slab *s)
{
    expect(a->n_own < SLABS);
    a->own[a->n_own++ % SLABS] = s;
    if (a->n_own > 3)
        leave(a, 0);
}

static uint64_t *alloc(struct actor *a)
{
    struct slab *s = NULL;
    while (a->n_own > 0) {
        s = a->own[a->n_own - 1];
        if (s->free || slab_collect(s) || slab_carve(s))
            break;
        a->n_own--;
        if (!slab_let_go(s))
            a->n_own++;
        s = NULL;
    }
    if (!s) {
        s = slab_adopt(&source, class, a->heap);
        if (!s && (s = take()) != NULL)
            slab_begin(s, class, a->heap);
        if (!s)
            return NULL;
        own(a, s);
        if (!s->free && !slab_carve(s)) {
            expect(false);
            return NULL;
        }
    }
    uint64_t *block = s->free;
    s->free = *(void **)block;
    s->used++;
    return block;
}

static void hand_over(struct actor *a, struct slab *s, const struct slab_list *list)
{
    switch (slab_free(&source, s, list, a->n_own > 0, false, a->heap)) {
    case SLAB_DONE:
        break;
    case SLAB_CLAIMED:
        own(a, s);
        break;
    case SLAB_EMPTY:
        give(s);
        break;
    }
}

static void release(struct actor *a, uint64_t *block)
{
    struct slab *s = slab_of(block);
    if (load_relaxed(&s->owner) == a->heap) {
        *(void **)block = s->free;
        s->free = block;
        if (--s->used > 0)
            return;
        unsigned i = 0;
        while (i < a->n_own && a->own[i] != s)
            i++;
        expect(i < a->n_own);
        a->own[i] = a->own[--a->n_own];
        give(s);
        return;
    }
    hand_over(a, s, &(struct slab_list){.first = block, .last = block, .n = 1});
}

/* Two blocks: together, if they are of one slab that is not its own. */
static void release_both(struct actor *a, uint64_t *one, uint64_t *other)
{
    struct slab *s = slab_of(one);
    if (slab_of(other) != s || load_relaxed(&s->owner) == a->heap) {
        release(a, one);
        release(a, other);
        return;
    }
    *(void **)one = other;
    hand_over(a, s, &(struct slab_list){.first = one, .last = other, .n = 2});
}

static void stamp(uint64_t *block, uint64_t value)
{
    for (int i = 0; i < STAMPS; i++)
        block[i] = value + (uint64_t)i;
}

static void check_stamp(const uint64_t *block)
{
    for (int i = 1; i < STAMPS; i++)
        expect(block[i] == block[0] + (uint64_t)i);
}

static void *act(void *arg)
{
    struct actor *a = arg;
    for (int round = 0; round < ROUNDS; round++) {
        unsigned r = (unsigned)rand_r(&a->seed);
        uint64_t *block = r % 8 < 5 ? alloc(a) : NULL;
        if (block)
            stamp(block, (uint64_t)r << 20);
        uint64_t **slot = &slots[r / 8 % SLOTS];
        uint64_t *old = exchange_acq_rel(slot, block);
        uint64_t *next = exchange_acq_rel(&slots[(r / 8 + 1) % SLOTS], NULL);
        if (old)
            check_stamp(old);
        if (next)
            check_stamp(next);
        if (old && next)
            release_both(a, old, next);
        else if (old || next)
            release(a, old ? old : next);
        if (r / 1024 % 4 == 0)
            while (a->n_own > 0)
                leave(a, 0);
    }
    while (a->n_own > 0)
        leave(a, 0);
    return NULL;
}

static void nothing_is_lost_or_shared(size_t bytes)
{
    struct actor actors[THREADS] = {0};
    pthread_t threads[THREADS];
    macro_memory = aligned_alloc(MACRO_BYTES, MACRO_BYTES);
    assert_non_null(macro_memory);
    memset(macro_memory, 0, MACRO_SLICES * sizeof(struct slab));
    class = size_class(bytes);
    n_unused = 0;
    memset(slots, 0, sizeof(slots));
    for (unsigned i = 0; i < SLABS; i++) {
        struct slab *s = macro_slab((struct macro *)macro_memory, 1 + i);
        s->slices = 1;
        unused_slabs[n_unused++] = s;
    }
    for (unsigned i = 0; i < THREADS; i++) {
        actors[i].seed = i + 1;
        actors[i].heap = (struct heap *)&actors[i];
        assert_int_equal(pthread_create(&threads[i], NULL, act, &actors[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (unsigned i = 0; i < SLOTS; i++)
        if (slots[i]) {
            check_stamp(slots[i]);
            release(&actors[0], slots[i]);
        }
    while (actors[0].n_own > 0)
        leave(&actors[0], 0);
    assert_int_equal(wrong, 0);
    /* Every slab came back, so no block was lost and none counted twice. */
    assert_int_equal(n_unused, SLABS);
    assert_null(source.pool[class]);
    free(macro_memory);
}

/* Four blocks in a slab: they become full and empty all the time. */
static void nothing_of_small_slabs_is_lost_or_shared_between_threads(void **unused)
{
    nothing_is_lost_or_shared(4096);
}

/* Sixteen: full ones wait until there are two again. */
static void nothing_of_full_slabs_that_wait_is_lost_or_shared(void **unused)
{
    nothing_is_lost_or_shared(1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_of_small_slabs_is_lost_or_shared_between_threads),
        cmocka_unit_test(nothing_of_full_slabs_that_wait_is_lost_or_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
