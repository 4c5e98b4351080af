/* idle.c: what one thread took and another one frees, while the first does nothing. */
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>

#include "links.h"

enum { ALONE_MIB = 64 };

static struct link *of_main;

/* All of it freed by this thread, and as much taken in another size. */
static void *use_again(void *unused)
{
    give(of_main);
    give(take(ALONE_MIB * MIB, 128));
    return NULL;
}

static size_t used_by_another(void)
{
    pthread_t thread;
    struct rusage before, after;
    MUST(getrusage(RUSAGE_SELF, &before) == 0);
    MUST(pthread_create(&thread, NULL, use_again, NULL) == 0 && pthread_join(thread, NULL) == 0);
    MUST(getrusage(RUSAGE_SELF, &after) == 0);
    return (size_t)(after.ru_maxrss - before.ru_maxrss) << 10;
}

/* What a program took before it had a second thread does not wait for the first one. Full slabs, */
static void what_was_taken_alone_is_used_by_others(void)
{
    of_main = take(ALONE_MIB * MIB, 64);
    size_t more = used_by_another();
    MUST_SAY(more < ALONE_MIB / 2 * MIB, "%zu MiB more", more >> 20);
}

/* and such with a free block. */
static void what_has_holes_is_used_by_others(void)
{
    struct link *list = take(ALONE_MIB * MIB, 64);
    for (struct link *at = list; at && at->next;) {
        for (int i = 0; i < 98 && at->next->next; i++)
            at = at->next;
        struct link *gone = at->next;
        at = at->next = gone->next;
        free(gone);
    }
    of_main = list;
    size_t more = used_by_another();
    MUST_SAY(more < ALONE_MIB / 2 * MIB, "%zu MiB more", more >> 20);
}

enum { POOL_THREADS = 16, POOL_SIZES = 8 };

static struct link *made[POOL_THREADS][POOL_SIZES];
static pthread_barrier_t pool_made, pool_end;

static void *make_and_wait(void *number)
{
    for (size_t i = 0; i < POOL_SIZES; i++)
        made[(uintptr_t)number][i] = take(MIB, 32 * (i + 1));
    pthread_barrier_wait(&pool_made);
    pthread_barrier_wait(&pool_end);
    return NULL;
}

/* Results of a pool of threads, freed elsewhere while these wait for more to do. */
static void threads_that_wait_keep_little(void)
{
    pthread_t threads[POOL_THREADS];
    MUST(pthread_barrier_init(&pool_made, NULL, POOL_THREADS + 1) == 0);
    MUST(pthread_barrier_init(&pool_end, NULL, POOL_THREADS + 1) == 0);
    for (uintptr_t i = 0; i < POOL_THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, make_and_wait, (void *)i) == 0);
    pthread_barrier_wait(&pool_made);
    size_t before = case_resident();
    for (size_t i = 0; i < POOL_THREADS; i++)
        for (size_t k = 0; k < POOL_SIZES; k++)
            give(made[i][k]);
    malloc_trim(0);
    size_t after = case_resident();
    MUST_SAY(after < before / 2, "%zu MiB, then %zu", before >> 20, after >> 20);
    pthread_barrier_wait(&pool_end);
    for (size_t i = 0; i < POOL_THREADS; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
}

int main(int argc, char **argv)
{
#define CASE(name)  \
    {               \
#name, name \
    }
    static const struct test_case cases[] = {
        CASE(what_was_taken_alone_is_used_by_others),
        CASE(what_has_holes_is_used_by_others),
        CASE(threads_that_wait_keep_little),
    };
    return cases_main(argc, argv, cases, COUNT_OF(cases));
}
