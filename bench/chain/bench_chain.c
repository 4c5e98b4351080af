/*
 * bench_chain.c: what a pair of alloc and free costs, by kind of chain, against malloc.
 *
 * Usage: bench_chain [FILE]
 *
 * 1,024 slots; each round frees the block of a random slot and allocates another, of 16 to 511 bytes
 * (small) or 16 to 8,191 (mixed), always the same sequence. All kinds take part in every round, in
 * turn, so that noise meets all of them. Prints the median and the minimum of nanoseconds of CPU time of a
 * pair, the loop itself included; all rounds go to FILE as kind,load,round,ns.
 */
#include <memoir/malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "malloc/thread.h"

/* Chains alone: malloc() is that of the C library here. */
__thread void *thread_chain;
void heap_fast_set(void)
{
}

enum { SLOTS = 1024, PAIRS = 200000, ROUNDS = 41, ROOM = 32 << 20 };

struct kind {
    const char *name;
    int flags; /* -1: malloc */
    struct memoir_chain *chain;
    double ns[2][ROUNDS];
};

static struct kind kinds[] = {
    {.name = "glibc malloc", .flags = -1},
    {.name = "chain of one thread", .flags = 0},
    {.name = "thread-safe chain", .flags = MEMOIR_CHAIN_THREAD_SAFE},
    {.name = "shared chain", .flags = MEMOIR_CHAIN_SHARED},
    {.name = "chain that aborts", .flags = MEMOIR_CHAIN_ABORT},
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static const struct {
    const char *name;
    unsigned largest;
} loads[2] = {{"small", 511}, {"mixed", 8191}};

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static double round_ns(struct memoir_chain *chain, unsigned largest)
{
    static void *slots[SLOTS];
    uint64_t state = 88172645463325252, begun = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < PAIRS; i++) {
        uint64_t random = next(&state);
        void **slot = &slots[random % SLOTS];
        size_t bytes = 16 + (random >> 32) % (largest - 15);
        if (chain) {
            memoir_chain_free(chain, *slot);
            *slot = memoir_chain_alloc(chain, bytes);
        } else {
            free(*slot);
            *slot = malloc(bytes);
        }
        if (!*slot)
            abort();
        *(volatile char *)*slot = 1;
    }
    double ns = (double)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun) / PAIRS;
    for (int i = 0; i < SLOTS; i++) {
        if (chain)
            memoir_chain_free(chain, slots[i]);
        else
            free(slots[i]);
        slots[i] = NULL;
    }
    return ns;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    FILE *out = argc > 1 ? fopen(argv[1], "w") : NULL;
    for (int k = 0; k < KINDS; k++) {
        if (kinds[k].flags < 0)
            continue;
        void *room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        struct memoir_chain_options options = {.struct_size = sizeof(options),
                                               .flags = (unsigned)kinds[k].flags};
        if (room == MAP_FAILED || memoir_chain_init(room, ROOM, &options, &kinds[k].chain) < 0)
            return 1;
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int load = 0; load < 2; load++)
            for (int k = 0; k < KINDS; k++) {
                double ns = round_ns(kinds[k].chain, loads[load].largest);
                kinds[k].ns[load][round] = ns;
                if (out)
                    fprintf(out, "%s,%s,%d,%.2f\n", kinds[k].name, loads[load].name, round, ns);
            }
    printf("%-22s %20s %20s\n", "ns a pair, median", loads[0].name, loads[1].name);
    for (int k = 0; k < KINDS; k++) {
        for (int load = 0; load < 2; load++)
            qsort(kinds[k].ns[load], ROUNDS, sizeof(double), by_value);
        printf("%-22s", kinds[k].name);
        for (int load = 0; load < 2; load++)
            printf(" %9.1f min %6.1f", kinds[k].ns[load][ROUNDS / 2], kinds[k].ns[load][0]);
        printf("\n");
    }
    return out && fclose(out) != 0;
}
