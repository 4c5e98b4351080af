/* load_stress.c: loads that try to upset an allocator: patterns of frees that leave holes, exchanged blocks, many threads. */
#include "load.h"

#include <sched.h>
#include <stdatomic.h>

/* ---- rounds of sizes: of each size some stay, some go in order, some go backwards ---- */

struct sizes {
    uint64_t rounds, seed;
};

static void *sizes(void *argument)
{
    enum { LIVE = 8192, RUN = 64, SIZE_MAX_BYTES = 1000 };
    struct sizes *self = argument;
    uint64_t state = self->seed;
    void **live = calloc(LIVE, sizeof(*live));
    if (!live)
        abort();
    size_t at = 0;
    for (uint64_t round = 0; round < self->rounds; round++) {
        size_t bytes = random_range(&state, 1, SIZE_MAX_BYTES);
        void *run[RUN];
        for (int i = 0; i < RUN; i++)
            run[i] = block_new(bytes + (size_t)(i % 4) * 8);
        for (int i = 0; i < RUN / 4; i++) /* the young ones, in order */
            free(run[i]);
        for (int i = RUN - 1; i >= RUN / 2; i--) /* and backwards */
            free(run[i]);
        for (int i = RUN / 4; i < RUN / 2; i++) { /* the rest lives for a while */
            free(live[at]);
            live[at] = run[i];
            at = (at + 1 + (size_t)(i % 3)) % LIVE;
        }
    }
    for (size_t i = 0; i < LIVE; i++)
        free(live[i]);
    free(live);
    return NULL;
}

static void run_sizes(uint64_t work, int threads)
{
    struct sizes all[THREADS_MAX];
    for (int i = 0; i < threads; i++)
        all[i] = (struct sizes){work / (uint64_t)threads, random_seed(i)};
    threads_run(threads, sizes, all, sizeof(all[0]));
}

/* ---- exchange: threads of several generations swap blocks of all sizes through a common table ---- */

enum { EXCHANGE = 1000, KEPT = 2000 };

static _Atomic(void *) exchange[EXCHANGE];

static size_t size_stress(uint64_t *state)
{
    uint64_t random = random_next(state);
    size_t words = 1 + (random >> 20) % 16;
    if (random % 256 == 0)
        words *= 2000;
    else if (random % 16 == 0)
        words *= 50;
    else if (random % 4 == 0)
        words *= 5;
    return words * 8;
}

static void *stress(void *argument)
{
    struct sizes *self = argument;
    uint64_t state = self->seed;
    void **kept = calloc(KEPT, sizeof(*kept));
    if (!kept)
        abort();
    for (uint64_t i = 0; i < self->rounds; i++) {
        size_t at = random_range(&state, 0, KEPT - 1);
        switch (random_next(&state) >> 16 & 7) {
        case 0: /* give, and take what another gave */
            kept[at] = atomic_exchange(&exchange[random_range(&state, 0, EXCHANGE - 1)], kept[at]);
            break;
        case 1:
        case 2:
            free(kept[at]);
            kept[at] = NULL;
            break;
        default:
            free(kept[at]);
            kept[at] = block_new(size_stress(&state));
        }
    }
    for (size_t i = 0; i < KEPT; i++)
        free(kept[i]);
    free(kept);
    return NULL;
}

static void run_stress(uint64_t work, int threads)
{
    enum { GENERATIONS = 25 };
    struct sizes all[THREADS_MAX];
    for (int generation = 0; generation < GENERATIONS; generation++) {
        for (int i = 0; i < threads; i++)
            all[i] = (struct sizes){work / (uint64_t)threads / GENERATIONS,
                                    random_seed(generation * threads + i)};
        threads_run(threads, stress, all, sizeof(all[0]));
        for (int i = generation % 2; i < EXCHANGE; i += 2)
            free(atomic_exchange(&exchange[i], NULL));
    }
    for (int i = 0; i < EXCHANGE; i++)
        free(atomic_exchange(&exchange[i], NULL));
}

/* ---- neighbours: each thread keeps some, and sends chains of blocks to the next thread ---- */

struct parcel {
    struct parcel *next;
};

struct neighbour {
    _Atomic(struct parcel *) inbox;
    atomic_int waiting; /* chains in the inbox, or a few more */
    struct neighbour *next;
    uint64_t rounds, seed;
    atomic_int ended;
    char pad[64];
};

static void parcels_free(struct parcel *parcel)
{
    while (parcel) {
        struct parcel *next = parcel->next;
        free(parcel);
        parcel = next;
    }
}

static void unpack(struct neighbour *self)
{
    atomic_store(&self->waiting, 0);
    parcels_free(atomic_exchange(&self->inbox, NULL));
}

/* Waits while the next one has enough; what nobody would unpack any more is freed here. */
static void send(struct neighbour *self, struct parcel *first, struct parcel *last)
{
    enum { WAITING_MAX = 8 };
    struct neighbour *next = self->next;
    while (atomic_load(&next->waiting) >= WAITING_MAX && !atomic_load(&next->ended)) {
        unpack(self); /* all may be waiting in a ring */
        sched_yield();
    }
    if (atomic_load(&next->ended)) {
        parcels_free(first);
        return;
    }
    atomic_fetch_add(&next->waiting, 1);
    last->next = atomic_load(&next->inbox);
    while (!atomic_compare_exchange_weak(&next->inbox, &last->next, first))
        ;
}

static void *neighbour(void *argument)
{
    enum { SLOTS = 4096, SENT = 64, BYTES_MAX = 8000 };
    struct neighbour *self = argument;
    uint64_t state = self->seed;
    void **slots = calloc(SLOTS, sizeof(*slots));
    if (!slots)
        abort();
    for (uint64_t round = 0; round < self->rounds; round++) {
        for (int i = 0; i < SENT; i++) {
            void **slot = &slots[random_range(&state, 0, SLOTS - 1)];
            free(*slot);
            *slot = block_new(
                random_range(&state, 16, (uint64_t)BYTES_MAX >> (random_next(&state) >> 30 & 7)));
        }
        struct parcel *first = NULL, *last = NULL;
        for (int i = 0; i < SENT; i++) {
            struct parcel *parcel =
                block_new(random_range(&state, 16, (uint64_t)BYTES_MAX >> (i & 7)));
            parcel->next = first;
            last = last ? last : parcel;
            first = parcel;
        }
        send(self, first, last);
        unpack(self);
    }
    atomic_store(&self->ended, 1);
    for (size_t i = 0; i < SLOTS; i++)
        free(slots[i]);
    free(slots);
    return NULL;
}

static void run_neighbours(uint64_t work, int threads)
{
    static struct neighbour all[THREADS_MAX];
    for (int i = 0; i < threads; i++) {
        all[i].next = &all[(i + 1) % threads];
        all[i].rounds = work / (uint64_t)threads;
        all[i].seed = random_seed(i);
    }
    threads_run(threads, neighbour, all, sizeof(all[0]));
    for (int i = 0; i < threads; i++)
        unpack(&all[i]);
}

const struct load loads_stress[] = {
    {"sizes", "runs of one size after another of which a part stays", 1, 250000, run_sizes},
    {"stress", "threads of 25 generations exchange blocks of 8 bytes to 256 KiB", 4, 9000000,
     run_stress},
    {"neighbours", "threads keep blocks up to 8 kB and send others to the next thread", 4, 50000,
     run_neighbours},
    {0},
};
