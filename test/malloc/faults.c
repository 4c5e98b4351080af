/* faults.c: every n-th system call of the allocator fails, of one kind or of all, while blocks of all sizes come and go.
 *
 * A program may only see NULL with ENOMEM. What is live holds its contents, a realloc that failed leaves its block as it was, and
 * when the kernel gives memory again, so does malloc. */
#define OS_FAULTS
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "cases.h"
#include "malloc/os.h"

enum {
    SLOTS = 64,
    STEPS = 1500,
    THREADS = 3,
    MAILBOXES = 32,
    KINDS = OS_CALL_PROTECT + 1,
    PAGE = 4096
};

static bool (**fault)(enum os_call);
static _Atomic uint32_t kinds, every, calls, failed;

static bool fails(enum os_call call)
{
    if (!(atomic_load(&kinds) >> call & 1) || atomic_fetch_add(&calls, 1) % every != every - 1)
        return false;
    atomic_fetch_add(&failed, 1);
    return true;
}

static void faults_find(void)
{
    fault = dlsym(RTLD_DEFAULT, "os_fault");
    if (!fault)
        case_skip("the allocator was not built with faults");
}

static void faults_on(uint32_t of_kinds, uint32_t n)
{
    atomic_store(&kinds, of_kinds);
    atomic_store(&every, n);
    atomic_store(&calls, 0);
    *fault = fails;
}

static void faults_off(void)
{
    *fault = NULL;
}

/* ---- the model ---- */

struct block {
    unsigned char *at;
    size_t bytes;
    unsigned char stamp;
};

/* Small ones whole, of large ones a byte in every page, and the last. */
static size_t stride(size_t bytes)
{
    return bytes <= 4 * PAGE ? 1 : PAGE;
}

static void fill(const struct block *b)
{
    for (size_t i = 0; i < b->bytes; i += stride(b->bytes))
        b->at[i] = b->stamp;
    if (b->bytes)
        b->at[b->bytes - 1] = b->stamp;
}

static void check(const unsigned char *at, size_t bytes, size_t step, unsigned char value,
                  const char *what)
{
    for (size_t i = 0; i < bytes; i += step)
        MUST_SAY(at[i] == value, "%s: byte %zu of %zu is %#x, not %#x; every %u of %#x", what, i,
                 bytes, at[i], value, atomic_load(&every), atomic_load(&kinds));
}

static size_t some_size(uint64_t *random)
{
    uint64_t r = case_random(random), more = r >> 16;
    switch (r % 8) {
    case 0:
        return more % 17;
    case 1:
    case 2:
    case 3:
        return more % 1024;
    case 4:
        return more % (32 << 10);
    case 5:
        return more % (200 << 10);
    case 6:
        return more % (1200 << 10);
    default:
        return (1 << 20) + more % (6 << 20);
    }
}

/* NULL: the kernel gave nothing. */
static void *some_block(uint64_t *random, size_t bytes)
{
    static const size_t aligns[] = {16, 64, 4096, 16384, 1 << 20, 2 << 20, 8 << 20};
    uint64_t r = case_random(random);
    void *at = NULL;
    size_t align = 1;
    errno = 0;
    switch (r % 6) {
    case 0:
        at = calloc(1, bytes);
        if (at)
            check(at, bytes, stride(bytes), 0, "calloc");
        break;
    case 1:
        align = aligns[r / 8 % COUNT_OF(aligns)];
        at = memalign(align, bytes);
        break;
    default:
        at = malloc(bytes);
    }
    MUST_SAY(at || errno == ENOMEM, "NULL with errno %d", errno);
    MUST(((uintptr_t)at & (align - 1)) == 0);
    return at;
}

static void change_size(struct block *b, size_t bytes)
{
    errno = 0;
    if (bytes == 0)
        bytes = 1;
    unsigned char *at = realloc(b->at, bytes);
    size_t stays = at && bytes < b->bytes ? bytes : b->bytes;
    MUST_SAY(at || errno == ENOMEM, "NULL with errno %d", errno);
    check(at ? at : b->at, stays ? stays - 1 : 0, stride(b->bytes), b->stamp, "realloc");
    if (!at)
        return;
    b->at = at;
    b->bytes = bytes;
    fill(b);
}

static void drop(struct block *b)
{
    check(b->at, b->bytes, stride(b->bytes), b->stamp, "free");
    errno = 77;
    free(b->at);
    MUST(errno == 77);
    b->at = NULL;
}

static struct block mailboxes[MAILBOXES];
static pthread_mutex_t mailbox_lock = PTHREAD_MUTEX_INITIALIZER;

static void swap_with_mailbox(struct block *b, uint64_t r)
{
    struct block *box = &mailboxes[r % MAILBOXES], old;
    pthread_mutex_lock(&mailbox_lock);
    old = *box;
    *box = *b;
    *b = old;
    pthread_mutex_unlock(&mailbox_lock);
}

static void live(uint64_t seed, int steps)
{
    struct block blocks[SLOTS] = {0};
    uint64_t random = seed;
    for (int i = 0; i < steps; i++) {
        uint64_t r = case_random(&random);
        struct block *b = &blocks[r % SLOTS];
        if (r / SLOTS % 64 == 0) {
            malloc_trim(0);
        } else if (r / SLOTS % 8 == 1) {
            swap_with_mailbox(b, r >> 32);
        } else if (!b->at) {
            size_t bytes = some_size(&random);
            b->at = some_block(&random, bytes);
            b->bytes = bytes;
            b->stamp = (unsigned char)(r >> 40);
            if (b->at)
                fill(b);
        } else if (r / SLOTS % 8 < 4) {
            change_size(b, some_size(&random));
        } else {
            drop(b);
        }
    }
    for (int i = 0; i < SLOTS; i++)
        if (blocks[i].at)
            drop(&blocks[i]);
}

static void mailboxes_empty(void)
{
    for (int i = 0; i < MAILBOXES; i++)
        if (mailboxes[i].at)
            drop(&mailboxes[i]);
}

/* Memory that was not to be had for a moment is to be had again. */
static void recovers(void)
{
    faults_off();
    mailboxes_empty();
    for (size_t bytes = 1; bytes <= 16 << 20; bytes = bytes * 3 + 1) {
        void *p = malloc(bytes), *q = calloc(1, bytes);
        MUST_SAY(p && q, "no %zu bytes although the kernel has them", bytes);
        free(p);
        free(q);
    }
}

/* ---- cases ---- */

static void one_thread_survives_every_call_failing(void)
{
    static const uint32_t steps[] = {1, 2, 3, 7, 20};
    faults_find();
    for (uint32_t kind = 0; kind <= KINDS; kind++)
        for (size_t i = 0; i < COUNT_OF(steps); i++) {
            faults_on(kind < KINDS ? 1u << kind : (1u << KINDS) - 1, steps[i]);
            live(kind * 100 + i, STEPS / 10);
            recovers();
        }
    MUST(atomic_load(&failed) > 100);
}

static void *thread_life(void *arg)
{
    live((uintptr_t)arg, STEPS / 8);
    return NULL;
}

static void threads_survive_every_call_failing(void)
{
    faults_find();
    for (uint32_t round = 0; round < 10; round++) {
        pthread_t threads[THREADS];
        for (uintptr_t i = 0; i < THREADS; i++)
            MUST(pthread_create(&threads[i], NULL, thread_life, (void *)(round * 10 + i)) == 0);
        faults_on(round % 2 ? (1u << KINDS) - 1 : 1u << round / 2, 2 + round);
        for (int i = 0; i < THREADS; i++)
            MUST(pthread_join(threads[i], NULL) == 0);
        recovers();
    }
}

static void *short_life(void *arg)
{
    for (int i = 0; i < 20; i++) {
        errno = 0;
        char *p = malloc(10 + (size_t)i * 400);
        MUST(p || errno == ENOMEM);
        if (p)
            p[0] = 1;
        free(p);
    }
    return NULL;
}

/* A thread that gets no heap of its own must still be served, or told. */
static void threads_begin_and_end_without_memory(void)
{
    faults_find();
    for (int round = 0; round < 40; round++) {
        pthread_t threads[8];
        faults_on(1u << OS_CALL_MAP, round < 20 ? 1 : 2);
        int n = 0;
        while (n < 8 && pthread_create(&threads[n], NULL, short_life, NULL) == 0)
            n++;
        for (int i = 0; i < n; i++)
            MUST(pthread_join(threads[i], NULL) == 0);
        recovers();
    }
}

static void child_of_fork_survives_every_call_failing(void)
{
    faults_find();
    for (uint32_t round = 0; round < 5; round++) {
        faults_on((1u << KINDS) - 1, 2 + round);
        struct block kept = {malloc(3 << 20), 3 << 20, 9};
        if (kept.at)
            fill(&kept);
        pid_t child = case_fork();
        if (child == 0) {
            live(round, STEPS / 10);
            if (kept.at)
                drop(&kept);
            recovers();
            _exit(0);
        }
        case_reap(child);
        if (kept.at)
            drop(&kept);
        recovers();
    }
}

/* Runs that a heap keeps for the next large block serve small ones before malloc fails. */
static void what_is_kept_is_given_out_before_malloc_fails(void)
{
    enum { LARGE = 500 << 10, SMALL = 3000 };
    char *large[9], *small;
    const char *settings = getenv("MEMOIR_MALLOC");
    bool first = false, second = false;
    faults_find();
    if (settings && *settings) /* freed blocks wait in quarantine */
        case_skip("of the plain allocator");
    for (size_t i = 0; i < COUNT_OF(large); i++)
        MUST((large[i] = malloc(LARGE)));
    faults_on(1u << OS_CALL_MAP, 1);
    free(large[0]);
    free(large[4]);
    while ((small = malloc(SMALL)) != NULL) {
        first |= small >= large[0] && small < large[0] + LARGE;
        second |= small >= large[4] && small < large[4] + LARGE;
    }
    MUST(first && second);
    recovers();
}

/* ---- a thread that asks the kernel to take memory, while another forks ---- */

static sem_t purge_begun, purge_goes_on;
static _Atomic bool purge_waits;

static bool wait_in_purge(enum os_call call)
{
    if (call == OS_CALL_ADVISE && atomic_exchange(&purge_waits, false)) {
        sem_post(&purge_begun);
        while (sem_wait(&purge_goes_on) != 0)
            ;
    }
    return false;
}

static void *purge_all(void *unused)
{
    malloc_trim(0);
    return unused;
}

/* The memory that is free begins where a longer run began, in the middle of which another block has been put. */
static void *run_in_an_older_one(unsigned char **ret_older)
{
    enum { ALIGN = 512 << 10, LONG = 800 << 10, SHORT = 40 << 10 };
    unsigned char *longer = malloc(LONG);
    while ((uintptr_t)longer % ALIGN < PAGE)
        longer = malloc(LONG);
    memset(longer, 1, LONG);
    *ret_older = longer;
    free(longer);
    unsigned char *inside = memalign(ALIGN, SHORT);
    for (int i = 0; i < 50 && !(inside > longer && inside < longer + LONG); i++)
        inside = memalign(ALIGN, SHORT); /* there was room elsewhere */
    if (!(inside > longer && inside < longer + LONG))
        case_skip("blocks lie otherwise");
    memset(inside, 7, SHORT);
    return inside;
}

static void purged_meanwhile(pid_t (*fork_so)(void))
{
    int (*whole)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "memoir_malloc_check");
    const char *settings = getenv("MEMOIR_MALLOC");
    pthread_t purger;
    struct block inside = {.bytes = 40 << 10, .stamp = 7};
    unsigned char *older;
    faults_find();
    if (settings && *settings) /* other blocks are in between */
        case_skip("of the plain allocator");
    inside.at = run_in_an_older_one(&older);
    sem_init(&purge_begun, 0, 0);
    sem_init(&purge_goes_on, 0, 0);
    atomic_store(&purge_waits, true);
    *fault = wait_in_purge;
    MUST(pthread_create(&purger, NULL, purge_all, NULL) == 0);
    while (sem_wait(&purge_begun) != 0)
        ;
    pid_t child = fork_so();
    MUST(child >= 0);
    if (child == 0) {
        alarm(CASE_SECONDS / 2);
        live(1, STEPS / 4);
        MUST(whole(2) == 0);
        drop(&inside);
        size_t before = case_resident();
        void *blocks[200];
        for (size_t i = 0; i < COUNT_OF(blocks); i++) {
            MUST((blocks[i] = malloc(600 << 10)));
            memset(blocks[i], 1, 600 << 10);
        }
        for (size_t i = 0; i < COUNT_OF(blocks); i++)
            free(blocks[i]);
        malloc_trim(0);
        MUST_SAY(case_resident() < before + (30 << 20), "%zu KiB stay, there were %zu",
                 case_resident() >> 10, before >> 10);
        MUST(whole(2) == 0);
        _exit(0);
    }
    case_reap(child);
    sem_post(&purge_goes_on);
    MUST(pthread_join(purger, NULL) == 0);
    faults_off();
    drop(&inside);
    MUST(whole(2) == 0);
}

static void fork_while_memory_is_given_back(void)
{
    purged_meanwhile(case_fork);
}

static void bare_fork_while_memory_is_given_back(void)
{
    purged_meanwhile(_Fork);
}

static const struct test_case cases[] = {
    {"one_thread_survives_every_call_failing", one_thread_survives_every_call_failing},
    {"threads_survive_every_call_failing", threads_survive_every_call_failing},
    {"threads_begin_and_end_without_memory", threads_begin_and_end_without_memory},
    {"child_of_fork_survives_every_call_failing", child_of_fork_survives_every_call_failing},
    {"what_is_kept_is_given_out_before_malloc_fails",
     what_is_kept_is_given_out_before_malloc_fails},
    {"fork_while_memory_is_given_back", fork_while_memory_is_given_back},
    {"bare_fork_while_memory_is_given_back", bare_fork_while_memory_is_given_back},
};

int main(int argc, char **argv)
{
    return cases_main(argc, argv, cases, COUNT_OF(cases));
}
