/* Many threads: that come and go, more than have counters of their own, cancelled in the middle, and a
 * child whose threads all begin at once. */
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "client_fixture.h"

enum {
    DRAM = MEMOIR_SPACE_DRAM,
    HEAP = MEMOIR_SPACE_HEAP,
#ifdef UNDER_TSAN
    ROUNDS = 200,
    COMING = 120,
    FORKS = 10,
#else
    ROUNDS = 2000,
    COMING = 400,
    FORKS = 40,
#endif
    AT_ONCE = 100,
};

static int gpu;

static void run_threads(size_t n, void *(*body)(void *))
{
    pthread_t threads[AT_ONCE];
    for (size_t i = 0; i < n; i++)
        EXPECT(pthread_create(&threads[i], NULL, body, (void *)(i + 1)) == 0);
    for (size_t i = 0; i < n; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
}

/* ROUNDS blocks of 10 bytes, every second one freed. */
static void *report_some(void *number)
{
    uint64_t base = (uint64_t)(uintptr_t)number << 32;
    memoir_tag_push("thread"); /* not popped: the next one to use the struct must not have it */
    for (uint64_t i = 0; i < ROUNDS; i++) {
        memoir_alloc(gpu, DRAM, base + i, 10);
        if (i % 2)
            memoir_free(gpu, DRAM, base + i);
    }
    return NULL;
}

static void *free_rest(void *number)
{
    uint64_t base = (uint64_t)(uintptr_t)number << 32;
    for (uint64_t i = 0; i < ROUNDS; i += 2)
        memoir_free(gpu, DRAM, base + i);
    return NULL;
}

static int untagged(const struct book_block_view *block, void *context)
{
    return block->tag != 0;
}

static void *report_untagged(void *unused)
{
    for (uint64_t i = 1; i < 10; i++)
        memoir_alloc(0, HEAP, i, 1);
    return NULL;
}

static void come_and_go(void)
{
    gpu = declare(0);
    for (int wave = 0; wave < COMING / 4; wave++) {
        run_threads(4, report_some);
        run_threads(4, free_rest); /* by others */
    }
    uint64_t reports = (uint64_t)COMING * ROUNDS;
    struct memoir_totals t = totals_of(gpu, DRAM);
    EXPECT_EQUAL(t.alloc_blocks, reports);
    EXPECT_EQUAL(t.freed_blocks, reports);
    EXPECT_EQUAL(t.live_bytes, 0);
    EXPECT_EQUAL(status_now().lost, 0);
    EXPECT(status_now().peak_error <= 16 * 65536); /* structs are used again */
    run_threads(4, report_untagged);
    struct own_book book = own_book_open();
    EXPECT(book_reader_blocks(book.reader, book.fd, untagged, NULL, NULL) == 0);
    own_book_close(&book);
}

static void threads_come_and_go(void **unused)
{
    in_child(come_and_go, 0);
}

static pthread_barrier_t barrier;

static void *report_together(void *number)
{
    pthread_barrier_wait(&barrier); /* also the making of client and book is a race */
    report_some(number);
    pthread_barrier_wait(&barrier);
    return free_rest(number);
}

static void at_once(void)
{
    EXPECT(pthread_barrier_init(&barrier, NULL, AT_ONCE) == 0);
    gpu = 1;
    EXPECT_EQUAL(declare(0), gpu);
    run_threads(AT_ONCE, report_together);
    struct memoir_totals t = totals_of(gpu, DRAM);
    EXPECT_EQUAL(t.alloc_blocks, (uint64_t)AT_ONCE * ROUNDS);
    EXPECT_EQUAL(t.alloc_bytes, (uint64_t)AT_ONCE * ROUNDS * 10);
    EXPECT_EQUAL(t.live_blocks, 0);
    EXPECT_EQUAL(status_now().lost, 0);
    struct own_book book = own_book_open();
    uint64_t of_sites = 0;
    for (size_t i = 0; i < book.sites.n_sites; i++)
        of_sites += book.sites.counters[i].alloc_blocks;
    EXPECT_EQUAL(of_sites, (uint64_t)AT_ONCE * ROUNDS);
    own_book_close(&book);
}

static void more_threads_than_shards_count_exactly(void **unused)
{
    in_child(at_once, 0);
}

/* ---- one counts while others look ---- */

static volatile bool stop;

static void *look(void *unused)
{
    uint64_t last = 0;
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        struct memoir_totals t = {.struct_size = sizeof(t)};
        if (memoir_totals(gpu, DRAM, &t) < 0)
            continue;
        EXPECT(t.alloc_blocks >= last && t.freed_blocks <= t.alloc_blocks);
        EXPECT(t.live_blocks <= (uint64_t)AT_ONCE * ROUNDS);
        last = t.alloc_blocks;
        status_now();
    }
    return NULL;
}

static void looking(void)
{
    pthread_t looker;
    gpu = 1;
    EXPECT(pthread_create(&looker, NULL, look, NULL) == 0);
    EXPECT_EQUAL(declare(0), gpu);
    for (int i = 0; i < 10; i++) {
        run_threads(4, report_some);
        run_threads(4, free_rest);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    EXPECT(pthread_join(looker, NULL) == 0);
}

static void totals_are_sane_while_threads_report(void **unused)
{
    in_child(looking, 0);
}

/* ---- the peak of several threads ---- */

static void *free_60k(void *unused)
{
    memoir_alloc(gpu, DRAM, 1, 60000);
    memoir_alloc(gpu, DRAM, 2, 60000);
    memoir_free(gpu, DRAM, 1);
    return NULL;
}

static void *report_70k(void *unused)
{
    memoir_alloc(gpu, DRAM, 3, 70000);
    return NULL;
}

/* Each thread keeps what it has not folded yet to itself: a peak may be too low or too high by that. */
static void peaks(void)
{
    gpu = declare(0);
    pthread_t keeper; /* threads that end give their struct to the next: keep them apart */
    EXPECT(pthread_create(&keeper, NULL, free_60k, NULL) == 0);
    EXPECT(pthread_join(keeper, NULL) == 0);
    memoir_alloc(0, HEAP, 1, 1);
    report_70k(NULL);
    struct memoir_totals t = totals_of(gpu, DRAM);
    uint64_t error = status_now().peak_error;
    EXPECT_EQUAL(t.live_bytes, 130000);
    EXPECT(t.peak_bytes >= 130000); /* never less than what lives */
    EXPECT(t.peak_bytes <= 130000 + error);
}

static void peak_of_threads_is_within_the_stated_error(void **unused)
{
    in_child(peaks, 0);
}

/* ---- cancelled ---- */

#define CANCELLED 200
static volatile uint64_t begun[CANCELLED], done[CANCELLED];

static void *report_until_cancelled(void *number)
{
    uint64_t me = (uint64_t)(uintptr_t)number;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (;;) {
        begun[me]++;
        memoir_alloc(gpu, DRAM, me << 32 | begun[me], 10);
        done[me]++;
        memoir_free(gpu, DRAM, me << 32 | begun[me]);
    }
    return NULL;
}

static void cancelling(void)
{
    gpu = declare(0);
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (size_t i = 0; i < CANCELLED; i += 2) {
        pthread_t pair[2];
        for (size_t k = 0; k < 2; k++)
            EXPECT(pthread_create(&pair[k], NULL, report_until_cancelled, (void *)(i + k)) == 0);
        while (done[i] < i % 7 || done[i + 1] < i % 5) /* at different moments */
            sched_yield();
        for (size_t k = 0; k < 2; k++) {
            EXPECT(pthread_cancel(pair[k]) == 0);
            EXPECT(pthread_join(pair[k], NULL) == 0);
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    uint64_t least = 0, most = 0;
    for (size_t i = 0; i < CANCELLED; i++) {
        least += done[i];
        most += begun[i];
    }
    struct memoir_totals t = totals_of(gpu, DRAM);
    EXPECT(t.alloc_blocks >= least && t.alloc_blocks <= most);
    EXPECT(t.live_blocks <= CANCELLED);
    EXPECT(lost_by(BOOK_LOSS_TORN) <= CANCELLED);
    EXPECT_EQUAL(lost_by(BOOK_LOSS_STUCK_LOCK), 0);
    EXPECT(end.tv_sec - start.tv_sec < 20);
    run_threads(4, report_some); /* and all goes on */
    EXPECT_EQUAL(totals_of(gpu, DRAM).alloc_blocks, t.alloc_blocks + 4 * ROUNDS);
}

static void cancelled_threads_leave_no_lock(void **unused)
{
#ifdef UNDER_TSAN
    skip(); /* it delays asynchronous cancellation for ever */
#endif
    in_child(cancelling, 0);
}

/* ---- a child whose threads begin at once ---- */

static void inherit_at_once(void)
{
    gpu = declare(7);
    memoir_alloc(gpu, DRAM, 1, 12345);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0) {
            EXPECT(pthread_barrier_init(&barrier, NULL, 8) == 0);
            run_threads(8, report_together);
            EXPECT_EQUAL(totals_of(gpu, DRAM).alloc_blocks, 8 * ROUNDS);
            EXPECT_EQUAL(status_now().lost, 0);
            struct own_book book = own_book_open();
            size_t n;
            const struct book_account_view *accounts = book_reader_accounts(book.reader, &n);
            EXPECT(n >= 1);
            EXPECT_EQUAL(accounts[0].inherited_bytes, 12345);
            own_book_close(&book);
            exit(0);
        }
        int status = -1;
        EXPECT(waitpid(child, &status, 0) == child && status == 0);
    }
    EXPECT_EQUAL(totals_of(gpu, DRAM).alloc_blocks, 1);
}

static void threads_of_a_child_share_one_heritage(void **unused)
{
    in_child(inherit_at_once, 0);
}

/* ---- the ends of threads and of the process ---- */

static pthread_key_t key;

static void report_at_end(void *value)
{
    memoir_alloc(gpu, DRAM, (uint64_t)(uintptr_t)value, 10);
}

static void *end_with_report(void *number)
{
    pthread_setspecific(key, (void *)((uintptr_t)number + 1000));
    memoir_alloc(gpu, DRAM, (uint64_t)(uintptr_t)number, 10);
    return NULL;
}

static void at_exit(void)
{
    memoir_alloc(gpu, DRAM, 5000, 10);
    EXPECT_EQUAL(totals_of(gpu, DRAM).alloc_blocks, 2 * 40 + 1);
    EXPECT_EQUAL(status_now().lost, 0);
}

static void ends(void)
{
    gpu = declare(0);
    EXPECT(pthread_key_create(&key, report_at_end) == 0);
    for (uintptr_t i = 0; i < 10; i++) {
        pthread_t threads[4];
        for (uintptr_t k = 0; k < 4; k++)
            EXPECT(pthread_create(&threads[k], NULL, end_with_report, (void *)(i * 4 + k + 1)) ==
                   0);
        for (uintptr_t k = 0; k < 4; k++)
            EXPECT(pthread_join(threads[k], NULL) == 0);
    }
    EXPECT_EQUAL(totals_of(gpu, DRAM).live_blocks, 2 * 40);
    EXPECT(atexit(at_exit) == 0);
}

static void reports_at_the_end_of_threads_and_process_count(void **unused)
{
    in_child(ends, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_come_and_go),
        cmocka_unit_test(more_threads_than_shards_count_exactly),
        cmocka_unit_test(totals_are_sane_while_threads_report),
        cmocka_unit_test(peak_of_threads_is_within_the_stated_error),
        cmocka_unit_test(cancelled_threads_leave_no_lock),
        cmocka_unit_test(threads_of_a_child_share_one_heritage),
        cmocka_unit_test(reports_at_the_end_of_threads_and_process_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
