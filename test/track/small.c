/* small.c [HEAP]: blocks of the sizes that have their word beside, in every way that they come and go: bytes written to the very
 * end, grown and shrunk across the limit, freed by other threads, of threads with arenas of their own, and inherited. Before that
 * it fills some 30 MB of heap with small blocks only (`dense`), which is worth an array for all of them, or with few of them among
 * larger ones (`sparse`), which is not. */
#include <malloc.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>

#include "own.h"

enum {
    BLOCKS = 3000,
    THREADS = 3,
    ROUNDS = 6,
    BYTES_MAX = 72,
    LARGER_MAX = 1100, /* of every fifth: from 985 bytes on they have trailers */
    FILL = 600000,
};

struct mine {
    unsigned char *block[BLOCKS];
    size_t bytes[BLOCKS];
};
static struct mine mine[THREADS + 1];

static size_t size_of(size_t i, size_t round)
{
    return i % 5 ? (i * 7 + round * 13) % (BYTES_MAX + 1) : (i * 37 + round * 211) % LARGER_MAX;
}

static unsigned char mark_of(size_t i, size_t bytes)
{
    return (unsigned char)(i * 31 + bytes);
}

/* All of what malloc_usable_size() says is the program's. */
static void filled(struct mine *m, size_t i, unsigned char *block, size_t bytes)
{
    MUST(block && malloc_usable_size(block) >= bytes);
    memset(block, mark_of(i, bytes), malloc_usable_size(block));
    m->block[i] = block;
    m->bytes[i] = bytes;
}

static void got(struct mine *m, size_t i, size_t bytes)
{
    filled(m, i, i % 3 ? malloc(bytes) : calloc(1, bytes), bytes);
    own_got(bytes);
}

static void gave(struct mine *m, size_t i)
{
    for (size_t k = 0; k < m->bytes[i]; k++)
        MUST(m->block[i][k] == mark_of(i, m->bytes[i]));
    own_gave(m->bytes[i]);
    free(m->block[i]);
    m->block[i] = NULL;
}

/* realloc() is a free and an allocation. Not to 0 bytes, which is another thing. */
static void resized(struct mine *m, size_t i, size_t bytes)
{
    size_t old = m->bytes[i], kept = old < bytes ? old : bytes;
    unsigned char *block = realloc(m->block[i], bytes);
    for (size_t k = 0; k < kept; k++)
        MUST(block[k] == mark_of(i, old));
    own_gave(old);
    own_got(bytes);
    filled(m, i, block, bytes);
}

static void *churn(void *of)
{
    struct mine *m = of;
    for (size_t i = 0; i < BLOCKS; i++)
        got(m, i, size_of(i, 0));
    for (size_t round = 1; round <= ROUNDS; round++)
        for (size_t i = 0; i < BLOCKS; i++)
            if (i % 4 == round % 4) {
                gave(m, i);
                got(m, i, size_of(i, round));
            } else if (i % 4 == (round + 1) % 4) {
                resized(m, i, size_of(i, round) + 1);
            }
    return NULL;
}

static void freed(struct mine *m, size_t step)
{
    for (size_t i = 0; i < BLOCKS; i += step)
        if (m->block[i])
            gave(m, i);
}

/* Every other one is freed again, so that later blocks lie among the rest. */
static void fill(bool dense)
{
    static unsigned char *block[FILL];
    size_t n = dense ? FILL : FILL / 8;
    for (size_t i = 0; i < n; i++) {
        size_t bytes = dense || i % 4 == 0 ? 24 + i % 3 * 16 : 600;
        block[i] = malloc(bytes);
        MUST(block[i]);
        own_got(bytes);
        memset(block[i], 1, bytes);
    }
    for (size_t i = 0; i < n; i += 2) {
        own_gave(dense || i % 4 == 0 ? 24 + i % 3 * 16 : 600);
        free(block[i]);
    }
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    if (argc > 1)
        fill(strcmp(argv[1], "dense") == 0);
    churn(&mine[THREADS]);
    for (size_t i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, churn, &mine[i]) == 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < THREADS; i++)
        freed(&mine[i],
              2); /* of others, into this thread's cache: they are the next that it gets */
    freed(&mine[THREADS], 3);
    churn(&mine[THREADS - 1]);
    own_say("end");
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        freed(&mine[1], 1); /* inherited: not its own */
        own_alloc_bytes = own_alloc_blocks = own_freed_bytes = own_freed_blocks = 0;
        churn(&mine[0]); /* what its parent left there is leaked */
        own_say("child");
        _exit(0);
    }
    int status = 0;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    own_say("parent");
    return 0;
}
