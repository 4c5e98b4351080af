/* load_shared.c: loads in which blocks go from thread to thread, or threads come and go. */
#include "load.h"

#include <string.h>

enum { BATCH = 512 };

/* ---- cross-thread free: what one allocates another frees ---- */

struct crossing {
    struct queue *queue;
    uint64_t blocks, seed;
    int gives;
};

static void *cross(void *argument)
{
    struct crossing *self = argument;
    uint64_t state = self->seed;
    for (uint64_t done = 0; done < self->blocks; done += BATCH) {
        void **batch = self->gives ? block_new(BATCH * sizeof(*batch)) : queue_take(self->queue);
        for (int i = 0; i < BATCH; i++) {
            if (self->gives)
                batch[i] = block_new(size_small(&state));
            else
                free(batch[i]);
        }
        if (self->gives)
            queue_put(self->queue, batch);
        else
            free(batch);
    }
    return NULL;
}

/* So many threads that allocate, and as many that free. */
static void run_cross(uint64_t work, int threads)
{
    struct queue queue;
    struct crossing all[THREADS_MAX];
    queue_init(&queue);
    threads = threads > THREADS_MAX / 2 ? THREADS_MAX / 2 : threads;
    for (int i = 0; i < 2 * threads; i++)
        all[i] = (struct crossing){&queue, work / (uint64_t)threads, random_seed(i), i % 2 == 0};
    threads_run(2 * threads, cross, all, sizeof(all[0]));
}

/* ---- a server: random replacement, and each thread hands its blocks to a successor ---- */

enum { LANE_BLOCKS = 1000, GENERATIONS = 20 };

struct lane {
    void *blocks[LANE_BLOCKS];
    uint64_t replacements, state;
    int generation;
    pthread_mutex_t *mutex;
    pthread_cond_t *ended;
    int *running;
};

static void *serve(void *argument)
{
    struct lane *lane = argument;
    for (uint64_t i = 0; i < lane->replacements; i++) {
        void **slot = &lane->blocks[random_range(&lane->state, 0, LANE_BLOCKS - 1)];
        free(*slot);
        *slot = block_new(random_range(&lane->state, 8, 1000));
    }
    pthread_t next;
    if (++lane->generation < GENERATIONS) {
        if (pthread_create(&next, NULL, serve, lane) != 0)
            abort();
        pthread_detach(next);
        return NULL;
    }
    pthread_mutex_lock(lane->mutex);
    --*lane->running;
    pthread_cond_signal(lane->ended);
    pthread_mutex_unlock(lane->mutex);
    return NULL;
}

static void run_server(uint64_t work, int threads)
{
    static struct lane lanes[THREADS_MAX];
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
    static int running;
    running = threads;
    for (int i = 0; i < threads; i++) {
        struct lane *lane = &lanes[i];
        lane->state = random_seed(i);
        for (int b = 0; b < LANE_BLOCKS; b++)
            lane->blocks[b] = block_new(random_range(&lane->state, 8, 1000));
        lane->replacements = work / (uint64_t)threads / GENERATIONS;
        lane->mutex = &mutex;
        lane->ended = &ended;
        lane->running = &running;
    }
    for (int i = 0; i < threads; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, serve, &lanes[i]) != 0)
            abort();
        pthread_detach(id);
    }
    pthread_mutex_lock(&mutex);
    while (running > 0)
        pthread_cond_wait(&ended, &mutex);
    pthread_mutex_unlock(&mutex);
}

/* ---- producer, worker, consumer: messages with a payload, changed on the way ---- */

struct message {
    size_t bytes;
    unsigned char *text;
};

struct stage {
    struct queue *from, *to;
    uint64_t batches;
};

static void *stage(void *argument)
{
    struct stage *self = argument;
    uint64_t state = random_seed(self->from ? 1 : 0);
    for (uint64_t n = 0; n < self->batches; n++) {
        struct message **batch =
            self->from ? queue_take(self->from) : block_new(BATCH * sizeof(*batch));
        for (int i = 0; i < BATCH; i++) {
            if (!self->from) {
                size_t bytes = 8 + random_next(&state) % 1000;
                batch[i] = block_new(sizeof(*batch[i]));
                *batch[i] = (struct message){bytes, block_new(bytes)};
            } else if (self->to) { /* answers with another payload */
                size_t bytes = batch[i]->bytes / 2 + 1;
                unsigned char *text = block_new(bytes);
                memcpy(text, batch[i]->text, bytes < batch[i]->bytes ? bytes : batch[i]->bytes);
                free(batch[i]->text);
                *batch[i] = (struct message){bytes, text};
            } else {
                free(batch[i]->text);
                free(batch[i]);
            }
        }
        if (self->to)
            queue_put(self->to, batch);
        else
            free(batch);
    }
    return NULL;
}

static void run_pipe(uint64_t work, int threads)
{
    struct queue first, second;
    queue_init(&first);
    queue_init(&second);
    uint64_t batches = work / BATCH + 1;
    struct stage stages[] = {
        {NULL, &first, batches}, {&first, &second, batches}, {&second, NULL, batches}};
    threads_run(3, stage, stages, sizeof(stages[0]));
}

/* ---- threads that come and go, and leave blocks behind for others ---- */

enum { VISIT_BLOCKS = 400 };

struct visit {
    void *blocks[VISIT_BLOCKS], *left[VISIT_BLOCKS / 4];
    uint64_t seed;
};

static void *visit(void *argument)
{
    struct visit *self = argument;
    uint64_t state = self->seed;
    for (int i = 0; i < VISIT_BLOCKS / 4; i++)
        free(self->left[i]);
    for (int round = 0; round < 4; round++)
        for (int i = 0; i < VISIT_BLOCKS; i++) {
            size_t at = random_range(&state, 0, VISIT_BLOCKS - 1);
            free(self->blocks[at]);
            self->blocks[at] = block_new(size_realistic(&state));
        }
    for (int i = VISIT_BLOCKS / 4; i < VISIT_BLOCKS; i++) {
        free(self->blocks[i]);
        self->blocks[i] = NULL;
    }
    return NULL;
}

static void run_churn(uint64_t work, int threads)
{
    static struct visit visits[THREADS_MAX];
    for (uint64_t wave = 0; wave < work; wave++) {
        for (int i = 0; i < threads; i++) {
            struct visit *next = &visits[(i + 1) % threads];
            visits[i].seed = random_seed((int)wave * threads + i);
            for (int b = 0; b < VISIT_BLOCKS / 4; b++) { /* what a neighbour left */
                visits[i].left[b] = next->blocks[b];
                next->blocks[b] = NULL;
            }
        }
        threads_run(threads, visit, visits, sizeof(visits[0]));
    }
}

/* ---- many threads, each with its own blocks, sizes rarer the larger ---- */

static void *own(void *argument)
{
    enum { SLOTS = 1024 };
    uint64_t *self = argument, state = self[1];
    void **slots = calloc(SLOTS, sizeof(*slots));
    if (!slots)
        abort();
    for (uint64_t i = 0; i < self[0]; i++) {
        uint64_t random = random_next(&state);
        size_t at = random % SLOTS, up = (random >> 32) % 14;
        up = up > (random >> 40) % 14 ? (random >> 40) % 14 : up; /* the smaller of two */
        free(slots[at]);
        slots[at] = block_new(random_range(&state, (size_t)4 << up, (size_t)8 << up));
    }
    for (int i = 0; i < SLOTS; i++)
        free(slots[i]);
    free(slots);
    return NULL;
}

static void run_own(uint64_t work, int threads)
{
    uint64_t arguments[THREADS_MAX][2];
    for (int i = 0; i < threads; i++) {
        arguments[i][0] = work / (uint64_t)threads;
        arguments[i][1] = random_seed(i);
    }
    threads_run(threads, own, arguments, sizeof(arguments[0]));
}

/* ---- false sharing: neighbours on a cache line that different threads write ---- */

struct writer {
    volatile unsigned char *first; /* what the main thread allocated, or NULL */
    uint64_t rounds;
};

static void *scribble(void *argument)
{
    enum { BYTES = 8, WRITES = 200 };
    struct writer *self = argument;
    volatile unsigned char *block = self->first;
    for (uint64_t i = 0; i < self->rounds; i++) {
        if (!block)
            block = block_new(BYTES);
        for (int w = 0; w < WRITES; w++)
            block[w % BYTES]++;
        free((void *)(uintptr_t)block);
        block = NULL;
    }
    return NULL;
}

static void scribble_all(uint64_t work, int threads, int given)
{
    struct writer writers[THREADS_MAX];
    for (int i = 0; i < threads; i++)
        writers[i] = (struct writer){given ? block_new(8) : NULL, work / (uint64_t)threads};
    threads_run(threads, scribble, writers, sizeof(writers[0]));
}

static void run_thrash(uint64_t work, int threads)
{
    scribble_all(work, threads, 0);
}

static void run_scratch(uint64_t work, int threads)
{
    scribble_all(work, threads, 1);
}

const struct load loads_shared[] = {
    {"cross", "so many threads allocate, as many others free, in batches of 512", 2, 6000000,
     run_cross},
    {"server", "random replacement; each thread hands its blocks to a successor", 2, 18000000,
     run_server},
    {"pipe", "producer, worker and consumer of messages", 3, 1500000, run_pipe},
    {"churn", "waves of short-lived threads that leave blocks to each other", 16, 100, run_churn},
    {"own", "threads with 1,024 blocks of 4 bytes to 64 KiB each", 4, 10000000, run_own},
    {"thrash", "threads write blocks of 8 bytes of their own", 2, 4000000, run_thrash},
    {"scratch", "threads write, free and write anew blocks of 8 bytes that one thread gave them", 2,
     4000000, run_scratch},
    {0},
};
