/* chained.c: threads whose default is a chain of the program's own, where that meets the rest of the allocator. */
#include <dlfcn.h>
#include <memoir/malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cases.h"

enum { KEYS = 40 /* more than a thread has room for without malloc() */, PATIENCE_S = 30 };

static _Alignas(16) char room[1 << 20];

static struct memoir_chain *chain_make(void)
{
    struct memoir_chain_options options = {
        .struct_size = sizeof(options), .flags = MEMOIR_CHAIN_THREAD_SAFE | MEMOIR_CHAIN_REGISTER};
    struct memoir_chain *chain;
    MUST(memoir_chain_init(room, sizeof(room), &options, &chain) == 0);
    return chain;
}

/* Before the allocator makes its own, as libraries do that a program begins with. */
static void keys_make(int argc, char **argv, char **envp)
{
    pthread_key_t key;
    for (int i = 0; i < KEYS; i++)
        pthread_key_create(&key, NULL);
}

__attribute__((section(".preinit_array"), used)) static void (*keys_made)(int, char **,
                                                                          char **) = keys_make;

static void *reset_first(void *context)
{
    struct memoir_chain *chain = context;
    MUST(memoir_chain_set_default(chain) == NULL);
    MUST(memoir_chain_reset(chain) == 0);
    MUST(memoir_chain_default() == chain);
    MUST(memoir_chain_find(malloc(100)) == chain);
    return NULL;
}

/* Whoever accounts has not met the thread yet, and hears of the end of all blocks while the chain is locked. So it must need no memory to
 * remember him, which would be of this very chain: though all keys are taken for which the C library has room in a thread. */
static void a_thread_resets_its_default_before_anything_else(void)
{
    pthread_t id;
    struct memoir_chain *chain = chain_make();
    for (int i = 0; i < 100; i++)
        MUST(memoir_chain_alloc(chain, 100));
    MUST(pthread_create(&id, NULL, reset_first, chain) == 0);
    MUST(pthread_join(id, NULL) == 0);
}

static sem_t begin, begun, more, had_more;
static bool prepared;

static void *allocate_twice(void *unused)
{
    sem_wait(&begin);
    free(malloc(100));
    sem_post(&begun);
    sem_wait(&more);
    for (int i = 0; i < 3000; i++) /* the source's lock is needed */
        MUST(malloc(2000));
    sem_post(&had_more);
    return unused;
}

/* As that of a library that waits until its thread is at a good place. */
static void wait_for_thread(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    sem_post(&more);
    prepared = sem_timedwait(&had_more, &until) == 0;
}

/* Fork handlers of ours have to be there before the second thread is, though the first one needs no heap to make it: and so before those that
 * others register then, by whichever way. */
static void a_program_whose_first_thread_has_a_chain_forks(void)
{
    pthread_t id;
    struct memoir_chain *chain = chain_make();
    MUST(memoir_chain_set_default(chain) == NULL);
    MUST(sem_init(&begin, 0, 0) == 0 && sem_init(&begun, 0, 0) == 0 && sem_init(&more, 0, 0) == 0 &&
         sem_init(&had_more, 0, 0) == 0);
    MUST(pthread_create(&id, NULL, allocate_twice, NULL) == 0);
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    int (*add)(void (*)(void), void (*)(void), void (*)(void), void *) = NULL;
    if (libc)
        *(void **)&add = dlsym(libc, "__register_atfork");
    if (!add)
        case_skip("the C library has no __register_atfork");
    MUST(add(wait_for_thread, NULL, NULL, NULL) == 0);
    sem_post(&begin);
    sem_wait(&begun);
    pid_t child = case_fork();
    if (child == 0) {
        free(malloc(100));
        MUST(malloc(3 << 20));
        _exit(0);
    }
    case_reap(child);
    MUST(prepared);
    MUST(pthread_join(id, NULL) == 0);
}

#define CASE(name)  \
    {               \
#name, name \
    }

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        CASE(a_thread_resets_its_default_before_anything_else),
        CASE(a_program_whose_first_thread_has_a_chain_forks),
    };
    return cases_main(argc, argv, cases, COUNT_OF(cases));
}
