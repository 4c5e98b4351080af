/* first.c: the first blocks of a program, which lie side by side (src/malloc/nursery.h), in every kind of program: they must be
 * known for what they are, whoever frees them and whenever, wherever the kernel has put the program. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

enum { BLOCKS = 60 };

static unsigned char *blocks[BLOCKS];

static size_t bytes_of(int i)
{
    return (size_t)(i * i * 7 % 900) + 1;
}

static void fill(void)
{
    for (int i = 0; i < BLOCKS; i++) {
        MUST((blocks[i] = malloc(bytes_of(i))));
        MUST((uintptr_t)blocks[i] % 16 == 0 && malloc_usable_size(blocks[i]) >= bytes_of(i));
        memset(blocks[i], i, bytes_of(i));
    }
}

static void check_and_free(int from, int step)
{
    for (int i = from; i < BLOCKS; i += step) {
        for (size_t k = 0; k < bytes_of(i); k++)
            MUST_SAY(blocks[i][k] == i, "byte %zu of block %d", k, i);
        free(blocks[i]);
        blocks[i] = NULL;
    }
}

/* So much that nobody's first blocks are left to give. */
static void grow_up(void)
{
    static void *more[3000];
    for (size_t i = 0; i < COUNT_OF(more); i++)
        MUST((more[i] = malloc(i % 700)));
    for (size_t i = 0; i < COUNT_OF(more); i++)
        free(more[i]);
    void *huge[20];
    for (size_t i = 0; i < COUNT_OF(huge); i++)
        MUST((huge[i] = malloc((1 << 20) + i * 200000)));
    for (size_t i = 0; i < COUNT_OF(huge); i++)
        free(huge[i]);
}

static void first_blocks_are_freed_at_once(void)
{
    for (int round = 0; round < 10; round++) {
        fill();
        check_and_free(0, 2);
        check_and_free(1, 2);
    }
}

static void first_blocks_outlive_many_others(void)
{
    fill();
    grow_up();
    check_and_free(0, 3);
    grow_up();
    check_and_free(1, 3);
    check_and_free(2, 3);
}

/* A program that has a mapping of ours beside it. */
static void first_blocks_lie_beside_huge_ones(void)
{
    fill();
    void *huge[200];
    for (size_t i = 0; i < COUNT_OF(huge); i++)
        MUST((huge[i] = malloc((1 << 20) + 5000 * i)));
    for (int i = 0; i < BLOCKS; i++)
        MUST(malloc_usable_size(blocks[i]) >= bytes_of(i) &&
             malloc_usable_size(blocks[i]) < bytes_of(i) + 1024);
    check_and_free(0, 1);
    for (size_t i = 0; i < COUNT_OF(huge); i++)
        free(huge[i]);
}

static void first_blocks_are_zero_where_asked(void)
{
    fill();
    check_and_free(0, 1);
    for (int i = 0; i < BLOCKS; i++) {
        unsigned char *p = calloc(1, bytes_of(i));
        MUST(p);
        for (size_t k = 0; k < bytes_of(i); k++)
            MUST(p[k] == 0);
        free(p);
    }
}

static void first_blocks_are_aligned_as_asked(void)
{
    for (size_t align = 16; align <= 65536; align *= 2) {
        void *p = NULL;
        MUST(posix_memalign(&p, align, 100) == 0 && (uintptr_t)p % align == 0);
        memset(p, 1, 100);
        MUST(malloc_usable_size(p) >= 100);
        free(p);
    }
}

/* Longer and longer, out of where they began. */
static void first_blocks_grow(void)
{
    fill();
    for (int i = 0; i < BLOCKS; i += 5) {
        for (size_t had = bytes_of(i), bytes; had < 3 << 20; had = bytes) {
            bytes = had * 3 / 2 + 10;
            unsigned char *p = realloc(blocks[i], bytes);
            MUST(p && malloc_usable_size(p) >= bytes);
            for (size_t k = 0; k < had; k++)
                MUST(p[k] == i);
            memset(p, i, bytes);
            blocks[i] = p;
        }
    }
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = realloc(blocks[i], 1);
        MUST(blocks[i] && blocks[i][0] == i);
        free(blocks[i]);
    }
}

static void *free_odd(void *unused)
{
    check_and_free(1, 2);
    void *own = malloc(100);
    MUST(own);
    free(own);
    return unused;
}

static void another_thread_frees_first_blocks(void)
{
    pthread_t id;
    fill();
    MUST(pthread_create(&id, NULL, free_odd, NULL) == 0);
    check_and_free(0, 2);
    MUST(pthread_join(id, NULL) == 0);
    fill();
    check_and_free(0, 1);
    grow_up();
}

static void children_have_first_blocks_of_their_own(void)
{
    fill();
    for (int i = 0; i < 6; i++) {
        pid_t child = i % 2 ? case_fork() : _Fork();
        MUST(child >= 0);
        if (child == 0) {
            alarm(CASE_SECONDS / 2);
            check_and_free(0, 2);
            if (i % 3 == 0)
                grow_up();
            check_and_free(1, 2);
            fill();
            pthread_t id;
            MUST(pthread_create(&id, NULL, free_odd, NULL) == 0);
            MUST(pthread_join(id, NULL) == 0);
            check_and_free(0, 2);
            _exit(0);
        }
        case_reap(child);
        free(malloc(50));
    }
    check_and_free(0, 1);
}

struct leaver {
    pthread_barrier_t barrier;
    char *kept; /* a block among others that were freed */
};

/* Its blocks come from a slab of blocks twice as large: shared, or since hardening adds as much. */
enum { LEFT_BYTES = 32, LEFT_PAGE = 4096 };

static void *keep_one(void *arg)
{
    struct leaver *l = arg;
    char *some[50];
    for (size_t i = 0; i < COUNT_OF(some); i++)
        MUST((some[i] = malloc(LEFT_BYTES)));
    for (size_t i = 1; i < COUNT_OF(some); i++)
        free(some[i]);
    l->kept = some[0];
    pthread_barrier_wait(&l->barrier);
    pthread_barrier_wait(&l->barrier);
    free(l->kept);
    return NULL;
}

/* A child has not the thread, and uses what is free beside its block. */
static void thread_leaves_to_a_child(void)
{
    struct leaver l;
    pthread_t id;
    pthread_barrier_init(&l.barrier, NULL, 2);
    MUST(pthread_create(&id, NULL, keep_one, &l) == 0);
    pthread_barrier_wait(&l.barrier);
    pid_t child = case_fork();
    if (child == 0) {
        bool beside = false;
        for (int i = 0; i < 40000 && !beside; i++) {
            uintptr_t p = (uintptr_t)malloc(i % 2 ? LEFT_BYTES : 2 * LEFT_BYTES);
            MUST(p);
            beside = p / LEFT_PAGE == (uintptr_t)l.kept / LEFT_PAGE;
        }
        MUST(beside);
        _exit(0);
    }
    case_reap(child);
    pthread_barrier_wait(&l.barrier);
    MUST(pthread_join(id, NULL) == 0);
}

/* Whoever had one thread until then: with a heap or without, and forked or not since it began. */
static void handlers_of_fork_come_with_the_second_thread(void)
{
    for (int i = 0; i < 4; i++) {
        pid_t child = case_fork();
        if (child == 0) {
            if (i % 2)
                grow_up();
            pid_t grandchild = i / 2 ? case_fork() : 0;
            if (grandchild == 0)
                thread_leaves_to_a_child();
            else
                case_reap(grandchild);
            _exit(0);
        }
        case_reap(child);
    }
    grow_up();
    thread_leaves_to_a_child();
}

/* What is no block is told, and ends the program. */
static void dies(void (*crime)(void))
{
    int status;
    pid_t child = case_fork();
    if (child == 0) {
        close(STDERR_FILENO);
        crime();
        _exit(0);
    }
    while (waitpid(child, &status, 0) < 0)
        MUST(errno == EINTR);
    MUST(WIFSIGNALED(status) && WTERMSIG(status) == 6);
}

static void free_inside(void)
{
    char *p = malloc(100);
    free(p + 32);
}

static void *volatile kept;
static void free_twice(void)
{
    kept = malloc(100);
    void *after = malloc(100); /* so that it is not the last one */
    free(kept);
    free(kept);
    free(after);
}

static void crimes_are_told(void)
{
    const char *settings = getenv("MEMOIR_MALLOC");
    if (settings && *settings)
        case_skip("no first blocks of this kind with MEMOIR_MALLOC=%s", settings);
    dies(free_inside);
    dies(free_twice);
}

int main(int argc, char **argv)
{
#define CASE(name)  \
    {               \
#name, name \
    }
    static const struct test_case cases[] = {
        CASE(first_blocks_are_freed_at_once),
        CASE(first_blocks_outlive_many_others),
        CASE(first_blocks_lie_beside_huge_ones),
        CASE(first_blocks_are_zero_where_asked),
        CASE(first_blocks_are_aligned_as_asked),
        CASE(first_blocks_grow),
        CASE(another_thread_frees_first_blocks),
        CASE(children_have_first_blocks_of_their_own),
        CASE(handlers_of_fork_come_with_the_second_thread),
        CASE(crimes_are_told),
    };
    return cases_main(argc, argv, cases, COUNT_OF(cases));
}
