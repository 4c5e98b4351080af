/* What an event costs the thread that feeds a history, alone and beside readers.
 *
 * Usage: bench_trace [EVENTS]
 *
 * Prints CSV: load, live blocks, readers, events, events per second, nanoseconds per event, questions answered per second. */
#include <memoir/memoir.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "trace/history.h"

enum { BATCH = 256, READERS_MAX = 2, SITES = 200, HOT = 100 };

struct bench {
    struct trace_history *history;
    bool stop;
    uint64_t answers[READERS_MAX];
};

struct reader {
    struct bench *bench;
    unsigned number;
};

static uint64_t state = 88172645463325252u;

static uint64_t random_next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void *read_on(void *arg)
{
    struct reader *r = arg;
    struct trace_block *blocks = calloc(HOT, sizeof(*blocks));
    while (!load_relaxed(&r->bench->stop)) {
        trace_history_hot(r->bench->history, TRACE_BY_BYTES, NULL, blocks, HOT);
        fetch_add_relaxed(&r->bench->answers[r->number], 1);
    }
    free(blocks);
    return NULL;
}

#define BLOCK_BYTES UINT64_C(0x100000)
#define DEVICE      UINT64_C(0x7f0000000000)
#define PINNED      UINT64_C(0x200000000000)

static struct trace_event block_event(uint16_t kind, uint64_t i, uint64_t time_ns)
{
    return (struct trace_event){
        .time_ns = time_ns,
        .address = DEVICE + i * BLOCK_BYTES,
        .size = BLOCK_BYTES,
        .context = 1,
        .call = time_ns,
        .site = (uint32_t)(i % SITES) + 1,
        .kind = kind,
        .space = MEMOIR_SPACE_DRAM,
    };
}

/* Which blocks copies go to, and whether blocks come and go. */
enum load { LOAD_FEW, LOAD_ALL, LOAD_INSIDE, LOAD_PAGEABLE, LOAD_CHURN };
static const char *const load_names[] = {"copy-few", "copy-all", "copy-inside", "copy-pageable",
                                         "alloc-free"};

static size_t make(enum load load, uint64_t live, uint64_t *time_ns, struct trace_event *e)
{
    uint64_t i = load == LOAD_FEW ? random_next() % 64 : random_next() % live;
    *time_ns += 10000;
    if (load == LOAD_CHURN) {
        e[0] = block_event(TRACE_FREE, i, *time_ns);
        e[1] = block_event(TRACE_ALLOC, i, *time_ns);
        return 2;
    }
    e[0] = block_event(TRACE_COPY, i, *time_ns);
    e[0].size = 4096;
    e[0].direction = TRACE_TO_DEVICE;
    e[0].source = PINNED + (i % 64) * BLOCK_BYTES;
    if (load == LOAD_INSIDE)
        e[0].address += random_next() % (BLOCK_BYTES - 4096);
    if (load == LOAD_PAGEABLE) {
        e[0].source = UINT64_C(0x5500000000) + random_next() % 4096 * 65536;
        e[0].flags = TRACE_FLAG_PAGEABLE;
    }
    return 1;
}

static void run(enum load load, uint64_t live, unsigned readers, uint64_t events)
{
    struct bench b = {0};
    struct trace_identity identity = {.pid = 1};
    struct trace_event *batch = calloc(BATCH + 1, sizeof(*batch));
    uint64_t time_ns = 1000000;
    if (trace_history_new(&identity, NULL, &b.history) < 0 || !batch)
        exit(1);
    for (uint64_t i = 0; i < 64; i++) {
        struct trace_event e = block_event(TRACE_ALLOC, i, ++time_ns);
        e.address = PINNED + i * BLOCK_BYTES;
        e.space = MEMOIR_SPACE_PINNED;
        trace_history_event(b.history, &e);
    }
    for (uint64_t i = 0; i < live; i++) {
        struct trace_event e = block_event(TRACE_ALLOC, i, ++time_ns);
        trace_history_event(b.history, &e);
    }
    pthread_t threads[READERS_MAX];
    struct reader arguments[READERS_MAX];
    for (unsigned i = 0; i < readers; i++) {
        arguments[i] = (struct reader){&b, i};
        pthread_create(&threads[i], NULL, read_on, &arguments[i]);
    }
    uint64_t spent = 0, wall = clock_monotonic_ns();
    for (uint64_t done = 0; done < events;) {
        size_t n = 0;
        while (n < BATCH)
            n += make(load, live, &time_ns, batch + n);
        uint64_t before = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        trace_history_events(b.history, batch, n);
        spent += clock_ns(CLOCK_THREAD_CPUTIME_ID) - before;
        done += n;
    }
    wall = clock_monotonic_ns() - wall;
    store_relaxed(&b.stop, true);
    uint64_t answers = 0;
    for (unsigned i = 0; i < readers; i++) {
        pthread_join(threads[i], NULL);
        answers += b.answers[i];
    }
    printf("%s,%llu,%u,%llu,%.0f,%.1f,%.0f\n", load_names[load], (unsigned long long)live, readers,
           (unsigned long long)events, (double)events * 1e9 / (double)spent,
           (double)spent / (double)events, (double)answers * 1e9 / (double)wall);
    fflush(stdout);
    free(batch);
    trace_history_free(b.history);
}

int main(int argc, char **argv)
{
    uint64_t events = argc > 1 ? strtoull(argv[1], NULL, 10) : 4000000;
    puts("load,live_blocks,readers,events,events_per_s,ns_per_event,answers_per_s");
    for (unsigned load = LOAD_FEW; load <= LOAD_CHURN; load++)
        for (uint64_t live = 1000; live <= 1000000; live *= 1000)
            run(load, live, 0, events);
    for (unsigned readers = 1; readers <= READERS_MAX; readers++)
        run(LOAD_FEW, 1000, readers, events);
    return 0;
}
