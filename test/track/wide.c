/* wide.c: more callers than a short trailer can number, and small blocks that go from thread to thread, by a program
 * that counts. What is in a block must stay there, whatever is kept behind it. */
#include <malloc.h>
#include <stdbool.h>
#include <string.h>

#include "own.h"

enum {
    CALLERS = 18000,
    STUB_BYTES = 16,
    THREADS = 4,
    SLOTS = 256,
    ROUNDS = 20000,
    PEAK_BYTES = 64 << 20,
};

/* Each calls its second argument with the first, and is a place of its own. */
#if defined(__x86_64__)
__asm__(".text\n.balign 16\nstubs:\n.rept 18000\n"
        "sub $8, %rsp\ncall *%rsi\nadd $8, %rsp\nret\n.balign 16\n.endr\n");
#elif defined(__aarch64__)
__asm__(".text\n.balign 16\nstubs:\n.rept 18000\n"
        "stp x29, x30, [sp, #-16]!\nblr x1\nldp x29, x30, [sp], #16\nret\n.endr\n");
#endif
extern char stubs[];

struct block {
    unsigned char *at;
    size_t bytes;
};
static struct block held[CALLERS];

static void *call(int stub, size_t bytes)
{
    void *(*of)(size_t, void *(*)(size_t)) =
        (void *(*)(size_t, void *(*)(size_t)))(uintptr_t)(stubs + (size_t)stub * STUB_BYTES);
    return of(bytes, malloc);
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

int main(void)
{
    pthread_t threads[THREADS];
    many_callers();
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
