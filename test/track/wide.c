/* wide.c: more callers than a short trailer can number, and small blocks that go from thread to thread, by a program
 * that counts. What is in a block must stay there, whatever is kept behind it. */
#include <malloc.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "own.h"

enum {
    CALLERS = 18000,
    STUB_BYTES = 16,
    THREADS = 4,
    SLOTS = 256,
    ROUNDS = 20000,
    PEAK_BYTES = 64 << 20,
    KNOWN = 100, /* of the callers, the last */
    KNOWN_ROUNDS = 300,
    HOT = 400,
};

/* Each calls its third argument with the first two, and is a place of its own. */
#if defined(__x86_64__)
__asm__(".text\n.balign 16\nstubs:\n.rept 18000\n"
        "sub $8, %rsp\ncall *%rdx\nadd $8, %rsp\nret\n.balign 16\n.endr\n");
#elif defined(__aarch64__)
__asm__(".text\n.balign 16\nstubs:\n.rept 18000\n"
        "stp x29, x30, [sp, #-16]!\nblr x2\nldp x29, x30, [sp], #16\nret\n.endr\n");
#endif
extern char stubs[];

struct block {
    unsigned char *at;
    size_t bytes;
};
static struct block held[CALLERS];

typedef void *stub_call(uintptr_t first, size_t second, void (*function)(void));

static stub_call *stub(int number)
{
    return (stub_call *)(uintptr_t)(stubs + (size_t)number * STUB_BYTES);
}

static void *call(int number, size_t bytes)
{
    return stub(number)(bytes, 0, (void (*)(void))malloc);
}

static void *call_calloc(int number, size_t bytes)
{
    unsigned char *at = stub(number)(1, bytes, (void (*)(void))calloc);
    for (size_t i = 0; at && i < bytes; i++)
        MUST(at[i] == 0);
    return at;
}

static void *call_realloc(int number, void *old, size_t bytes)
{
    return stub(number)((uintptr_t)old, bytes, (void (*)(void))realloc);
}

static void fill(struct block *block, void *at, size_t bytes)
{
    MUST(at && malloc_usable_size(at) >= bytes);
    own_got(bytes);
    *block = (struct block){at, bytes};
    memset(at, (int)(bytes % 251 + 1), bytes);
}

static void check(const struct block *block)
{
    for (size_t i = 0; i < block->bytes; i++)
        MUST(block->at[i] == block->bytes % 251 + 1);
    MUST(malloc_usable_size(block->at) >= block->bytes);
}

static void drop(struct block *block)
{
    check(block);
    own_gave(block->bytes);
    free(block->at);
    block->at = NULL;
}

/* The last of them have numbers that need a long trailer; the second time their threads know them. */
static void many_callers(void)
{
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < CALLERS; i++)
            fill(&held[i], call(i, (size_t)(i * 7 + round) % 120), (size_t)(i * 7 + round) % 120);
        for (int i = round; i < CALLERS; i += 3) { /* some move */
            check(&held[i]);
            own_gave(held[i].bytes);
            size_t bytes = held[i].bytes * 2 + 1;
            fill(&held[i], realloc(held[i].at, bytes), bytes);
        }
        for (int i = 0; i < CALLERS && round < 2; i++)
            drop(&held[i]);
    }
}

/* Callers that a thread knows, with numbers that need a long trailer or a word beside. */
static void *known_callers(void *unused)
{
    struct block blocks[KNOWN] = {0};
    for (int round = 0; round < KNOWN_ROUNDS; round++)
        for (int i = 0; i < KNOWN; i++) {
            struct block *block = &blocks[i];
            size_t bytes = (size_t)(i * 13 + round * 29) % (round % 7 ? 130 : 1300) + 1;
            int number = CALLERS - KNOWN + i;
            if (block->at && round % 3) {
                check(block);
                own_gave(block->bytes);
                fill(block, call_realloc(number, block->at, bytes), bytes);
                continue;
            }
            if (block->at)
                drop(block);
            fill(block, i % 2 ? call(number, bytes) : call_calloc(number, bytes), bytes);
        }
    for (int i = 0; i < KNOWN; i++)
        drop(&blocks[i]);
    return unused;
}

/* ---- costs ---- */

/* CPU time of a pair of malloc() and free(), from HOT callers in turn: of many looks the least. */
static double pair_ns(const int *callers)
{
    enum { LOOKS = 40, PAIRS = 4000 };
    double least = 1e18;
    for (int look = 0; look < LOOKS; look++) {
        struct timespec before, after;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
        for (int i = 0; i < PAIRS; i++)
            free(call(callers[i % HOT], 40));
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
        double ns =
            (double)(after.tv_sec - before.tv_sec) * 1e9 + (double)(after.tv_nsec - before.tv_nsec);
        least = ns < least ? ns : least;
    }
    return least / PAIRS;
}

/* A few callers, anywhere among all, in a program that had the others before, once each. */
static void costs(void)
{
    int callers[HOT];
    uint64_t random = 88172645463325252u;
    for (int i = 0; i < CALLERS; i++)
        free(call(i, 24));
    for (int i = 0; i < HOT; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        callers[i] = (int)((random >> 33) % CALLERS);
    }
    printf("%.1f\n", pair_ns(callers));
}

/* ---- from thread to thread ---- */

static struct block *slots[SLOTS];

static void *pass_on(void *context)
{
    uint64_t random = (uintptr_t)context * 88172645463325252u + 1;
    for (int i = 0; i < ROUNDS; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        size_t bytes = 16 + random % (random >> 40 & 1 ? 1200 : 100);
        struct block *block = malloc(bytes);
        MUST(block && malloc_usable_size(block) >= bytes);
        own_got(bytes);
        block->at = (unsigned char *)block;
        block->bytes = bytes;
        memset(block + 1, (int)(bytes % 251), bytes - sizeof(*block));
        block = __atomic_exchange_n(&slots[random >> 20 & (SLOTS - 1)], block, __ATOMIC_ACQ_REL);
        if (!block)
            continue;
        MUST(block->at == (unsigned char *)block);
        for (size_t k = sizeof(*block); k < block->bytes; k++)
            MUST(block->at[k] == block->bytes % 251);
        MUST(malloc_usable_size(block) >= block->bytes);
        own_gave(block->bytes);
        free(block);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    if (argc > 1 && strcmp(argv[1], "costs") == 0) {
        costs();
        return 0;
    }
    many_callers();
    known_callers(NULL);
    MUST(pthread_create(&threads[0], NULL, known_callers, NULL) == 0);
    MUST(pthread_join(threads[0], NULL) == 0);
    own_got(PEAK_BYTES); /* here and gone */
    void *large = malloc(PEAK_BYTES);
    MUST(large);
    own_gave(PEAK_BYTES);
    free(large);
    for (uintptr_t i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, pass_on, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    own_say("end");
    return 0;
}
