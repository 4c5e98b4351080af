/* What reporting costs the program that reports.
 *
 * Usage: bench_book_report pairs mixed|small LIVE PAIRS REPETITIONS
 *        bench_book_report threads mixed|small THREADS LIVE PAIRS REPETITIONS
 *
 * Steady state: LIVE buffers, of which a random one is freed and a new one with a random 64-bit id
 * reported, over and over. Which one goes and which comes is decided before the clock starts and written
 * down in the order of use: the loop then reads its ids as a stream, and the cache misses that are
 * measured are the library's own. The loop has SITES calls of each kind, so as many call sites: one
 * alone would keep its counters in one cache line. Sizes are mixed, 256 B to 1 MB; `small` ones show what
 * the large ones cost, since bytes beyond a threshold are brought into the peak at once.
 *
 * The same loop with empty functions runs right after each repetition, over the same ids: the share of
 * the harness. `threads` also reads the process's own totals, which its threads' pages add up to. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memoir/memoir.h>

#include "empty.h"
#include "harness.h"

enum { SITES = 8, THREADS_MAX = 16, TOTALS_READS = 200000 };

struct step {
    uint64_t free_id, alloc_id, alloc_bytes;
};

struct work {
    unsigned number;
    uint64_t random, live, pairs;
    uint64_t *ids;
    struct step *steps;
    uint64_t begin_ns, end_ns;
};

static int device;
static bool small; /* sizes: 256 to 511 bytes, or 256 B to 1 MB */

static uint64_t size_of(uint64_t id)
{
    return small ? 256 + (id & 255) : bench_size(id);
}

/* One step for each of the SITES calls; a macro, so that the two loops differ in nothing but the name
 * of what they call. */
#define STEP(alloc, free, step)                                                    \
    do {                                                                           \
        (free)(device, MEMOIR_SPACE_DRAM, (step)->free_id);                        \
        (alloc)(device, MEMOIR_SPACE_DRAM, (step)->alloc_id, (step)->alloc_bytes); \
    } while (0)
#define LOOP(name, alloc, free)                                                         \
    static __attribute__((noinline)) void name(const struct step *step, uint64_t pairs) \
    {                                                                                   \
        for (const struct step *end = step + pairs; step < end; step += SITES) {        \
            STEP(alloc, free, &step[0]);                                                \
            STEP(alloc, free, &step[1]);                                                \
            STEP(alloc, free, &step[2]);                                                \
            STEP(alloc, free, &step[3]);                                                \
            STEP(alloc, free, &step[4]);                                                \
            STEP(alloc, free, &step[5]);                                                \
            STEP(alloc, free, &step[6]);                                                \
            STEP(alloc, free, &step[7]);                                                \
        }                                                                               \
    }
LOOP(loop_memoir, memoir_alloc, memoir_free)
LOOP(loop_empty, empty_alloc, empty_free)

static void work_init(struct work *w, unsigned number, uint64_t live, uint64_t pairs)
{
    *w =
        (struct work){.number = number, .live = live, .pairs = (pairs + SITES - 1) / SITES * SITES};
    w->random = (uint64_t)number << 56;
    w->ids = calloc(live, sizeof(*w->ids));
    w->steps = calloc(w->pairs, sizeof(*w->steps));
    if (!w->ids || !w->steps)
        bench_fail("out of memory");
}

static void work_release(struct work *w)
{
    free(w->ids);
    free(w->steps);
}

static void fill(struct work *w)
{
    for (uint64_t i = 0; i < w->live; i++) {
        w->ids[i] = bench_random(&w->random);
        memoir_alloc(device, MEMOIR_SPACE_DRAM, w->ids[i], size_of(w->ids[i]));
    }
}

/* Decide what the next loop does. */
static void plan(struct work *w)
{
    for (uint64_t i = 0; i < w->pairs; i++) {
        uint64_t *slot =
            &w->ids[(uint64_t)((unsigned __int128)bench_random(&w->random) * w->live >> 64)];
        w->steps[i].free_id = *slot;
        w->steps[i].alloc_id = bench_random(&w->random);
        w->steps[i].alloc_bytes = size_of(w->steps[i].alloc_id);
        *slot = w->steps[i].alloc_id;
    }
}

static double loop_ns(void (*loop)(const struct step *, uint64_t), const struct work *w)
{
    uint64_t begin = bench_now_ns();
    loop(w->steps, w->pairs);
    return (double)(bench_now_ns() - begin) / (double)w->pairs;
}

/* A fast library that forgot half of it would be no use: nothing is lost, everything is there. */
static void check(uint64_t live)
{
    struct memoir_totals totals = {.struct_size = sizeof(totals)};
    struct memoir_status status = {.struct_size = sizeof(status)};
    if (memoir_status(&status) < 0 || status.state != MEMOIR_STATE_OPEN || status.lost != 0)
        bench_fail("not accounting: %s, %llu reports lost", status.reason,
                   (unsigned long long)status.lost);
    if (memoir_totals(device, MEMOIR_SPACE_DRAM, &totals) < 0 || totals.live_blocks != live)
        bench_fail("%llu blocks live by the book, %llu in truth",
                   (unsigned long long)totals.live_blocks, (unsigned long long)live);
}

static void run_pairs(uint64_t live, uint64_t pairs, uint64_t repetitions)
{
    struct work w;
    bench_pin(1); /* interrupts tend to come to the first CPU */
    work_init(&w, 0, live, pairs);
    fill(&w);
    /* The first round warms up, and lets the table reach the size that churn needs. */
    for (uint64_t i = 0; i <= repetitions; i++) {
        plan(&w);
        bench_quiet_begin();
        double raw = loop_ns(loop_memoir, &w), harness = loop_ns(loop_empty, &w);
        bench_quiet_end();
        if (i > 0)
            printf(
                "{\"sizes\":\"%s\",\"live\":%llu,\"repetition\":%llu,\"pairs\":%llu,\"raw_ns\":%.3f,"
                "\"harness_ns\":%.3f}\n",
                small ? "small" : "mixed", (unsigned long long)live, (unsigned long long)i,
                (unsigned long long)w.pairs, raw, harness);
    }
    check(live);
    work_release(&w);
}

/* ---- threads ---- */

static pthread_barrier_t barrier;
static atomic_bool ended;
static atomic_uint ready; /* threads that came to the start, over all rounds */
static unsigned threads_n;

static void *thread_main(void *context)
{
    struct work *w = context;
    bench_pin(w->number);
    fill(w);
    for (unsigned together = threads_n;; together += threads_n) {
        pthread_barrier_wait(&barrier);
        if (ended)
            return NULL;
        plan(w);
        bench_quiet_begin();
        /* Wait awake: waking takes longer than a thousand reports. */
        atomic_fetch_add(&ready, 1);
        while (atomic_load(&ready) < together)
            ;
        w->begin_ns = bench_now_ns();
        loop_memoir(w->steps, w->pairs);
        w->end_ns = bench_now_ns();
        bench_quiet_end();
        pthread_barrier_wait(&barrier);
    }
}

static void measure_totals(uint64_t repetition)
{
    struct memoir_totals totals = {.struct_size = sizeof(totals)};
    bench_quiet_begin();
    uint64_t begin = bench_now_ns();
    for (int i = 0; i < TOTALS_READS; i++)
        memoir_totals(device, MEMOIR_SPACE_DRAM, &totals);
    double ns = (double)(bench_now_ns() - begin) / TOTALS_READS;
    bench_quiet_end();
    printf("{\"repetition\":%llu,\"totals_ns\":%.3f}\n", (unsigned long long)repetition, ns);
}

static void measure_threads(const struct work *works, unsigned threads, uint64_t repetition)
{
    uint64_t begin = UINT64_MAX, end = 0, reports = 0;
    for (unsigned t = 0; t < threads; t++) {
        begin = works[t].begin_ns < begin ? works[t].begin_ns : begin;
        end = works[t].end_ns > end ? works[t].end_ns : end;
        reports += works[t].pairs * 2;
    }
    printf("{\"sizes\":\"%s\",\"threads\":%u,\"repetition\":%llu,\"reports\":%llu,\"ns\":%llu,"
           "\"per_second\":%.0f}\n",
           small ? "small" : "mixed", threads, (unsigned long long)repetition,
           (unsigned long long)reports, (unsigned long long)(end - begin),
           (double)reports * 1e9 / (double)(end - begin));
}

static void run_threads(unsigned threads, uint64_t live, uint64_t pairs, uint64_t repetitions)
{
    struct work works[THREADS_MAX];
    pthread_t ids[THREADS_MAX];
    if (threads < 1 || threads > THREADS_MAX || threads > bench_cpus())
        bench_fail("cannot run %u threads at once here", threads);
    live = live / threads * threads;
    threads_n = threads;
    pthread_barrier_init(&barrier, NULL, threads + 1);
    for (unsigned t = 0; t < threads; t++) {
        work_init(&works[t], t, live / threads, pairs);
        if (pthread_create(&ids[t], NULL, thread_main, &works[t]) != 0)
            bench_fail("cannot start a thread");
    }
    for (uint64_t i = 0; i <= repetitions; i++) {
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        if (i > 0)
            measure_threads(works, threads, i);
    }
    for (uint64_t i = 1; i <= repetitions; i++)
        measure_totals(i);
    check(live);
    ended = true;
    pthread_barrier_wait(&barrier);
    for (unsigned t = 0; t < threads; t++) {
        pthread_join(ids[t], NULL);
        work_release(&works[t]);
    }
}

int main(int argc, char **argv)
{
    device = bench_device(0);
    small = strcmp(argv[argc > 2 ? 2 : 0], "small") == 0;
    if (argc == 6 && strcmp(argv[1], "pairs") == 0)
        run_pairs(bench_number(argv[3]), bench_number(argv[4]), bench_number(argv[5]));
    else if (argc == 7 && strcmp(argv[1], "threads") == 0)
        run_threads((unsigned)bench_number(argv[3]), bench_number(argv[4]), bench_number(argv[5]),
                    bench_number(argv[6]));
    else
        bench_fail("usage: bench_book_report pairs mixed|small LIVE PAIRS REPETITIONS | "
                   "threads mixed|small THREADS LIVE PAIRS REPETITIONS");
    return 0;
}
