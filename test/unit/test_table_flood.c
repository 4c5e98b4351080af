/* Threads that flood the table keep their blocks in shards of their own. Whoever looks for a block finds
 * it all the same, and below the flood a block that is reported twice is there once. */
#include <pthread.h>

#include "writer_fixture.h"

enum {
    THREADS = 4,
#ifdef UNDER_TSAN
    EACH = 3 * BOOK_FLOOD,
#else
    EACH = 20 * BOOK_FLOOD,
#endif
};

/* A time that stands still: whether a thread floods depends on nothing but what the test does. */
static uint64_t place_at(uint32_t time)
{
    return (uint64_t)time << 32 | 1; /* account 1 */
}

static struct fixture *published(void)
{
    struct fixture *f = fixture_new(&(struct book_writer_options){.source = BOOK_SOURCE_CLIENT});
    assert_int_equal(book_account_add(&f->w, &f->t, 1, 0, "space"), 1);
    assert_int_equal(book_writer_publish(&f->w), 0);
    return f;
}

static struct book_thread *thread_new(struct fixture *f)
{
    struct book_thread *t = calloc(1, sizeof(*t));
    assert_non_null(t);
    book_thread_init(&f->w, t);
    return t;
}

static uint64_t live(struct fixture *f)
{
    struct book_counters sum;
    uint64_t blocks = 0;
    book_account_sum(&f->w, 1, &sum);
    for (uint32_t s = 0; s < f->w.header->block_shards; s++)
        blocks += f->w.table.shard[s].live;
    assert_int_equal(blocks, sum.alloc_blocks - sum.freed_blocks);
    assert_int_equal(table_check(&f->w), 0);
    return blocks;
}

static uint64_t lost(const struct fixture *f)
{
    uint64_t sum = 0;
    for (int i = 0; i < BOOK_LOSSES_MAX; i++)
        sum += f->w.header->losses[i];
    return sum;
}

static void fill(struct fixture *f, struct book_thread *t, uint32_t time, uint64_t first,
                 uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        book_alloc(&f->w, t, first + i, 10, place_at(time));
}

static void flood_goes_to_the_threads_own_shard(void **unused)
{
    struct fixture *f = published();
    struct book_thread *a = thread_new(f), *b = thread_new(f);
    fill(f, a, 7, 1, BOOK_FLOOD);
    assert_false(f->w.table.scattered);
    fill(f, a, 7, 1 + BOOK_FLOOD, 5000);
    assert_true(f->w.table.scattered);
    assert_true(table_shard_own(&f->w.table, a->shard)->live >= 5000);
    fill(f, a, 8, 100000, 100); /* the next tick is no flood */
    assert_int_equal(live(f), BOOK_FLOOD + 5100);

    for (uint64_t i = 1; i <= BOOK_FLOOD + 5000; i++)
        assert_true(table_move(&f->w, b, 1, i, 9));
    for (uint64_t i = 1; i <= BOOK_FLOOD + 5000; i++)
        book_free(&f->w, b, 1, i);
    assert_int_equal(live(f), 100);
    assert_int_equal(lost(f), 0);
    book_free(&f->w, b, 1, 1);
    assert_int_equal(f->w.header->losses[BOOK_LOSS_UNKNOWN_FREE], 1);
    free(a);
    free(b);
    fixture_free(f);
}

static void report_again_replaces_across_shards(void **unused)
{
    struct fixture *f = published();
    struct book_thread *a = thread_new(f), *b = thread_new(f);
    fill(f, a, 7, 1, BOOK_FLOOD + 1000);
    fill(f, b, 7, 1, 1000 + BOOK_FLOOD / 2);
    /* b reported the first ones of a's once more, some of a's flood not. */
    assert_int_equal(live(f), BOOK_FLOOD + 1000);
    assert_int_equal(f->w.header->losses[BOOK_LOSS_REPLACED], 1000 + BOOK_FLOOD / 2);
    fill(f, a, 8, BOOK_FLOOD + 500, 500); /* its own flood, again */
    assert_int_equal(live(f), BOOK_FLOOD + 1000);
    fill(f, b, 8, BOOK_FLOOD + 500, 500); /* and another's */
    assert_int_equal(live(f), BOOK_FLOOD + 1000);
    for (uint64_t i = 1; i <= BOOK_FLOOD + 1000; i++)
        book_free(&f->w, b, 1, i);
    assert_int_equal(live(f), 0);
    assert_int_equal(f->w.header->losses[BOOK_LOSS_UNKNOWN_FREE], 0);
    free(a);
    free(b);
    fixture_free(f);
}

/* More than one shard can hold goes to the others. */
static void full_shard_of_its_own_is_no_loss(void **unused)
{
    struct fixture *f = published();
    struct book_thread *a = thread_new(f);
    f->w.table.max_pages = 40; /* as if the section were that small */
    uint64_t room = (uint64_t)40 * BOOK_BLOCKS_PER_PAGE;
    fill(f, a, 7, 1, 3 * room);
    assert_int_equal(live(f), 3 * room);
    assert_int_equal(lost(f), 0);
    for (uint64_t i = 1; i <= 3 * room; i++)
        book_free(&f->w, a, 1, i);
    assert_int_equal(live(f), 0);
    free(a);
    fixture_free(f);
}

/* ---- several at once ---- */

struct worker {
    struct fixture *f;
    struct book_thread *t;
    uint64_t first, others; /* ids that it reports, and those that it frees */
    pthread_barrier_t *barrier;
};

static void *worker_run(void *context)
{
    struct worker *w = context;
    fill(w->f, w->t, 7, w->first, EACH);
    for (uint64_t i = 0; i < EACH / 2; i++) /* while others still report */
        book_free(&w->f->w, w->t, 1, w->first + i);
    pthread_barrier_wait(w->barrier);
    for (uint64_t i = EACH / 2; i < EACH; i++)
        book_free(&w->f->w, w->t, 1, w->others + i);
    return NULL;
}

static void threads_free_each_others_floods(void **unused)
{
    struct fixture *f = published();
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (uint64_t i = 0; i < THREADS; i++)
        workers[i] = (struct worker){.f = f,
                                     .t = thread_new(f),
                                     .first = i << 40 | 1,
                                     .others = (i + 1) % THREADS << 40 | 1,
                                     .barrier = &barrier};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, worker_run, &workers[i]), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_true(f->w.table.scattered);
    assert_int_equal(live(f), 0);
    assert_int_equal(lost(f), 0);
    for (int i = 0; i < THREADS; i++)
        free(workers[i].t);
    pthread_barrier_destroy(&barrier);
    fixture_free(f);
}

static void *nothing(void *unused)
{
    return unused;
}

/* The C library then knows of more than one thread. */
static int enter(void **state)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0)
        return -1;
    return fixture_enter(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flood_goes_to_the_threads_own_shard),
        cmocka_unit_test(report_again_replaces_across_shards),
        cmocka_unit_test(full_shard_of_its_own_is_no_loss),
        cmocka_unit_test(threads_free_each_others_floods),
    };
    return cmocka_run_group_tests(tests, enter, fixture_leave);
}
