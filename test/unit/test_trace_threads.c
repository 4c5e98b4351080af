/* Readers beside the feeder: each sees one consistent moment with all that was fed before its call, and nothing is lost. */
#include <pthread.h>

#include "base/atomic.h"
#include "base/buffer.h"
#include "trace/dump.h"
#include "trace_fixture.h"

enum { READERS = 3, BLOCKS = 50, BATCH = 64 };

#ifdef UNDER_TSAN
enum { ROUNDS = 2000 };
#else
enum { ROUNDS = 20000 };
#endif

struct world {
    struct trace_history *h;
    uint64_t fed; /* events; feeder stores after they were fed */
    bool stop;
    uint64_t reads;
    const char *problem;
};

static void expect(struct world *w, bool yes, const char *problem)
{
    if (!yes)
        store_relaxed(&w->problem, problem);
}

/* In each batch the same number of bytes is allocated and freed, and each copy goes to a live block. */
static void *read_on(void *arg)
{
    struct world *w = arg;
    struct trace_block *blocks = calloc(BLOCKS, sizeof(*blocks));
    for (unsigned i = 0; !load_relaxed(&w->stop); i++) {
        uint64_t fed = load_acquire(&w->fed);
        struct trace_totals t = trace_history_totals(w->h);
        expect(w, t.events >= fed, "an event that was fed is missing");
        expect(w, t.allocated_blocks == t.live_blocks + t.freed_blocks,
               "sums of different moments");
        ptrdiff_t n = trace_history_hot(w->h, TRACE_BY_COUNT, NULL, blocks, BLOCKS);
        for (ptrdiff_t k = 1; k < n; k++)
            expect(w,
                   trace_block_value(&blocks[k - 1], TRACE_BY_COUNT) >=
                       trace_block_value(&blocks[k], TRACE_BY_COUNT),
                   "order");
        struct trace_block b;
        struct trace_moment m[8];
        if (trace_history_find(w->h, DEVICE_AT + i % BLOCKS * 65536 + 5, &b) == 0) {
            expect(w, b.flow[TRACE_TO_DEVICE].copies == b.written.copies, "a torn block");
            ptrdiff_t k = trace_history_moments(w->h, b.id, m, 8);
            for (ptrdiff_t j = 1; j < k; j++)
                expect(w, m[j - 1].time_ns <= m[j].time_ns, "moments out of order");
        }
        if (i % 64 == 0) {
            struct buffer out = BUFFER_INIT(64 << 20);
            struct trace_history *back = NULL;
            expect(w, trace_dump_encode(w->h, TRACE_DUMP_BINARY, &out) == 0, "dump");
            expect(w,
                   trace_dump_decode(out.data, out.len, &back) == 0 &&
                       trace_history_check(back) == 0,
                   "a dump of two moments");
            trace_history_free(back);
            buffer_release(&out);
        }
        const struct trace_site *site = trace_sites_get(trace_history_sites(w->h), i % 100 + 1);
        const struct trace_line *lines;
        if (site)
            for (unsigned k = 0; k < site->n_frames; k++)
                if (trace_frame_lines(&site->frames[k], &lines) > 0)
                    expect(w, lines[0].line == site->number, "a torn site");
        if (site && site->n_frames && i % 5 == 0)
            trace_sites_name(trace_history_sites(w->h), site->number, 0,
                             &(struct trace_line){"f", "g", site->number}, 1);
        fetch_add_relaxed(&w->reads, 1);
    }
    free(blocks);
    return NULL;
}

static size_t batch_make(uint64_t round, struct trace_event *batch)
{
    size_t n = 0;
    uint64_t at = DEVICE_AT + round % BLOCKS * 65536, now = 1 + round * 1000;
    batch[n++] = event_of(TRACE_FREE, now, at, 0);
    batch[n++] = event_of(TRACE_ALLOC, now, at, 65536);
    while (n < BATCH) {
        batch[n] = event_of(TRACE_COPY, now + n, at + n, 100);
        batch[n].direction = TRACE_TO_DEVICE;
        batch[n].source = 0;
        n++;
    }
    return n;
}

static void readers_see_one_moment_and_everything_before_it(void **state)
{
    (void)state;
    struct world w = {.h = history_with(&(struct trace_limits){.ended = 100, .moments = 8})};
    pthread_t threads[READERS];
    struct trace_event batch[BATCH];
    for (unsigned i = 0; i < READERS; i++)
        pthread_create(&threads[i], NULL, read_on, &w);
    uint64_t fed = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        size_t n = batch_make(round, batch);
        if (round < 100) {
            struct trace_module module = {.path = "/lib/x.so"};
            struct trace_frame frame = {.module = &module, .offset = round};
            struct trace_site site = {
                .number = (uint32_t)round + 1, .n_frames = 1, .frames = &frame};
            assert_int_equal(trace_sites_define(trace_history_sites(w.h), &site), 0);
        }
        if (round % 2) {
            trace_history_events(w.h, batch, n);
        } else {
            for (size_t i = 0; i < n; i++)
                trace_history_event(w.h, &batch[i]);
        }
        fed += n;
        store_release(&w.fed, fed);
    }
    store_relaxed(&w.stop, true);
    for (unsigned i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    if (w.problem)
        fail_msg("%s", w.problem);
    struct trace_totals t = trace_history_totals(w.h);
    assert_int_equal(t.events, (uint64_t)ROUNDS * BATCH);
    assert_int_equal(t.flow[TRACE_TO_DEVICE].copies, (uint64_t)ROUNDS * (BATCH - 2));
    assert_int_equal(t.live_blocks, BLOCKS);
    assert_true(w.reads > 0);
    assert_int_equal(trace_history_check(w.h), 0);
    trace_history_free(w.h);
}

/* The feeder never waits for a reader that stays: events are queued, and the reader's successor sees them all. */
struct stay {
    struct trace_history *h;
    pthread_barrier_t inside, leave;
};

static struct stay stay;

/* A buffer's limit is reached inside the lock; too little time to be sure. So the test holds the lock as a reader does. */
#include "trace/history_internal.h"

static void *stay_inside(void *arg)
{
    (void)arg;
    history_enter(stay.h);
    pthread_barrier_wait(&stay.inside);
    pthread_barrier_wait(&stay.leave);
    history_leave(stay.h);
    return NULL;
}

static void a_reader_that_stays_does_not_stop_the_feeder(void **state)
{
    (void)state;
    enum { EVENTS = 5000 };
    pthread_t thread;
    stay.h = history_with(NULL);
    pthread_barrier_init(&stay.inside, NULL, 2);
    pthread_barrier_init(&stay.leave, NULL, 2);
    pthread_create(&thread, NULL, stay_inside, NULL);
    pthread_barrier_wait(&stay.inside);
    for (uint64_t i = 0; i < EVENTS; i++)
        alloc_at(stay.h, i + 1, DEVICE_AT + i * 4096, 4096, 1); /* would hang if it waited */
    pthread_barrier_wait(&stay.leave);
    struct trace_totals t = trace_history_totals(stay.h);
    assert_int_equal(t.live_blocks, EVENTS);
    assert_int_equal(t.waits, 0);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&stay.inside);
    pthread_barrier_destroy(&stay.leave);
    trace_history_free(stay.h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_see_one_moment_and_everything_before_it),
        cmocka_unit_test(a_reader_that_stays_does_not_stop_the_feeder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
