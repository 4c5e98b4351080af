/* threads.c: threads that come and go by the thousand, die with memory in their hands, allocate while they end, have
 * small stacks, and pass blocks on. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "churn.h"

enum { SHORT_LIVES = 2000, AT_ONCE = 400 };

static unsigned char *left_behind[SHORT_LIVES];

/* Frees what an earlier one left, and leaves something itself. */
static void *short_life(void *number)
{
    size_t self = (size_t)number;
    uint64_t random = self;
    unsigned char *kept[20];
    for (size_t i = 0; i < COUNT_OF(kept); i++)
        kept[i] = churn_new(case_random(&random) % 2000);
    for (size_t i = 0; i < COUNT_OF(kept); i++)
        churn_free(kept[i]);
    if (self >= 100)
        churn_free(left_behind[self - 100]);
    left_behind[self] = churn_new(case_random(&random) % (self % 50 ? 500 : 1 << 20));
    return NULL;
}

static void two_thousand_short_threads(void)
{
    enum { GROUP = 10 };
    pthread_t ids[GROUP];
    for (size_t i = 0; i < SHORT_LIVES; i += GROUP) {
        for (size_t k = 0; k < GROUP; k++)
            MUST(pthread_create(&ids[k], NULL, short_life, (void *)(i + k)) == 0);
        for (size_t k = 0; k < GROUP; k++)
            MUST(pthread_join(ids[k], NULL) == 0);
    }
    for (size_t i = SHORT_LIVES - 100; i < SHORT_LIVES; i++)
        churn_free(left_behind[i]);
}

static pthread_barrier_t barrier;
static void *one_of_many(void *number)
{
    unsigned char *block = churn_new((size_t)number % 3000), *other = churn_new(64);
    pthread_barrier_wait(&barrier);
    churn_free(block);
    block = churn_new(100);
    pthread_barrier_wait(&barrier);
    churn_free(block);
    churn_free(other);
    return NULL;
}

static void hundreds_of_threads_at_once(void)
{
    static pthread_t ids[AT_ONCE];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 << 10);
    pthread_barrier_init(&barrier, NULL, AT_ONCE);
    for (size_t i = 0; i < AT_ONCE; i++)
        MUST(pthread_create(&ids[i], &attributes, one_of_many, (void *)i) == 0);
    for (size_t i = 0; i < AT_ONCE; i++)
        MUST(pthread_join(ids[i], NULL) == 0);
}

/* Round after round, also when the allocator's own destructor has run already. */
static pthread_key_t keys[3];
static _Atomic int destroyed;
static void destructor(void *value)
{
    unsigned char *block = value;
    size_t bytes;
    memcpy(&bytes, block, sizeof(bytes));
    churn_free(block);
    churn_free(churn_new(300));
    churn_free(churn_new(200000));
    atomic_fetch_add(&destroyed, 1);
    if (bytes > 200)
        pthread_setspecific(keys[bytes % 3], churn_new(bytes - 60));
}

static void *with_keys(void *unused)
{
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        pthread_setspecific(keys[i], churn_new(400));
    return unused;
}

static void destructors_of_keys_allocate(void)
{
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        MUST(pthread_key_create(&keys[i], destructor) == 0);
    for (int i = 0; i < 200; i++) {
        pthread_t id;
        MUST(pthread_create(&id, NULL, with_keys, NULL) == 0);
        MUST(pthread_join(id, NULL) == 0);
    }
    MUST(destroyed >= 600);
}

/* A thread that never allocated frees, and ends. */
static void *only_frees(void *block)
{
    free(block);
    return NULL;
}

static void threads_that_only_free(void)
{
    uint64_t random = 3;
    for (int i = 0; i < 300; i++) {
        pthread_t id;
        MUST(pthread_create(&id, NULL, only_frees, churn_new(churn_size(&random))) == 0);
        MUST(pthread_join(id, NULL) == 0);
    }
}

static sem_t gone;
static void *detached(void *unused)
{
    uint64_t random = (uintptr_t)&random;
    for (int i = 0; i < 30; i++)
        churn_free(churn_new(churn_size(&random)));
    churn_free(atomic_exchange(&churn_shared[case_random(&random) % CHURN_SHARED], churn_new(77)));
    sem_post(&gone);
    return unused;
}

static void *cancelled(void *unused)
{
    for (;;) {
        churn_free(churn_new(1000));
        pthread_testcancel();
    }
    return unused;
}

static void detached_and_cancelled_threads(void)
{
    sem_init(&gone, 0, 0);
    for (int i = 0; i < 100; i++) {
        pthread_t id;
        MUST(pthread_create(&id, NULL, detached, NULL) == 0 && pthread_detach(id) == 0);
        MUST(pthread_create(&id, NULL, cancelled, NULL) == 0);
        MUST(pthread_cancel(id) == 0 && pthread_join(id, NULL) == 0);
    }
    for (int i = 0; i < 100; i++)
        while (sem_wait(&gone) != 0)
            MUST(errno == EINTR);
}

/* The least that a thread can have, less what a small program uses of it itself. */
static void *on_small_stack(void *unused)
{
    for (size_t n = 1; n < 20 << 20; n = n * 3 + 1) {
        void *block = malloc(n), *aligned = memalign(n < 4096 ? 256 : 1 << 16, n),
             *zero = calloc(n, 1);
        MUST(block && aligned && zero);
        block = realloc(block, n * 2);
        MUST(block);
        free(aligned);
        free(block);
        free(zero);
    }
    malloc_trim(0);
    return unused;
}

static void small_stacks_are_enough(void)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    MUST(pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN) == 0);
    for (int i = 0; i < 10; i++) {
        pthread_t id;
        MUST(pthread_create(&id, &attributes, on_small_stack, NULL) == 0);
        MUST(pthread_join(id, NULL) == 0);
    }
}

/* One makes, one takes: the classical pipeline, with a bounded queue. */
enum { QUEUE = 128, PASSED = 60000 };
static unsigned char *queue[QUEUE];
static _Atomic size_t put, taken;

static void *consumer(void *unused)
{
    for (size_t i = 0; i < PASSED; i++) {
        while (atomic_load(&put) == i)
            sched_yield();
        churn_free(queue[i % QUEUE]);
        atomic_store(&taken, i + 1);
    }
    return unused;
}

static void one_makes_and_another_frees(void)
{
    pthread_t id;
    uint64_t random = 17;
    MUST(pthread_create(&id, NULL, consumer, NULL) == 0);
    for (size_t i = 0; i < PASSED; i++) {
        while (atomic_load(&taken) + QUEUE <= i)
            sched_yield();
        queue[i % QUEUE] = churn_new(case_random(&random) % 600);
        atomic_store(&put, i + 1);
    }
    MUST(pthread_join(id, NULL) == 0);
}

/* All share one table: each exchange may free anybody's block while its owner allocates. */
static void everybody_frees_everybodys(void)
{
    churn_start();
    uint64_t rounds = atomic_load(&churn_rounds);
    while (atomic_load(&churn_rounds) < rounds + 10000)
        usleep(1000);
    churn_end();
}

/* A library whose constructor, destructor and thread-local data need memory, again and again, also from threads. */
static void *load(void *path)
{
    for (int i = 0; i < 25; i++) {
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        MUST_SAY(library, "%s", dlerror());
        void *(*take)(size_t) = (void *(*)(size_t))(uintptr_t)dlsym(library, "plugin_take");
        int (*count)(void) = (int (*)(void))(uintptr_t)dlsym(library, "plugin_count");
        MUST(take && count && count() > 0);
        void *block = take(1000);
        MUST(block && malloc_usable_size(block) >= 1000);
        MUST(dlclose(library) == 0);
        free(block);
    }
    return NULL;
}

static void libraries_come_and_go(void)
{
    const char *path = getenv("CASE_PLUGIN");
    pthread_t ids[3];
    if (!path || access(path, R_OK) != 0)
        case_skip("no plugin: CASE_PLUGIN is not set");
    churn_start();
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        MUST(pthread_create(&ids[i], NULL, load, (void *)path) == 0);
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        MUST(pthread_join(ids[i], NULL) == 0);
    churn_end();
}

/* Runs no destructor, and so tells nobody. */
static void *end_unseen(void *number)
{
    uint64_t random = (uintptr_t)number;
    for (size_t i = 0; i < 100; i++)
        churn_free(churn_new(case_random(&random) % 3000));
    syscall(SYS_exit, 0);
    return NULL;
}

/* As many at a time as there are processors, or so: what they had is used by those who come after them. */
static void threads_that_end_unseen_leave_nothing(void)
{
    enum { AT_A_TIME = 4, ROUNDS = 300 };
    pthread_t ids[AT_A_TIME];
    size_t before = 0, after;
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < AT_A_TIME; i++)
            MUST(pthread_create(&ids[i], NULL, end_unseen, (void *)i) == 0);
        for (size_t i = 0; i < AT_A_TIME; i++)
            MUST(pthread_join(ids[i], NULL) == 0);
        if (round == ROUNDS / 10)
            before = case_resident();
    }
    after = case_resident();
    MUST_SAY(after < before + (12 << 20), "%zu KiB more are resident after %d threads",
             (after - before) >> 10, AT_A_TIME * (ROUNDS - ROUNDS / 10));
}

int main(int argc, char **argv)
{
#define CASE(name)  \
    {               \
#name, name \
    }
    static const struct test_case cases[] = {
        CASE(two_thousand_short_threads),     CASE(hundreds_of_threads_at_once),
        CASE(destructors_of_keys_allocate),   CASE(threads_that_only_free),
        CASE(detached_and_cancelled_threads), CASE(small_stacks_are_enough),
        CASE(one_makes_and_another_frees),    CASE(everybody_frees_everybodys),
        CASE(libraries_come_and_go),          CASE(threads_that_end_unseen_leave_nothing),
    };
    return cases_main(argc, argv, cases, COUNT_OF(cases));
}
