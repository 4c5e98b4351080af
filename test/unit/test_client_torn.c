/* Reports that are interrupted or never end: signal storms, longjmp(), fork in a handler. Totals stay
 * exact, or say what was lost. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

#include "client_fixture.h"

enum { DRAM = MEMOIR_SPACE_DRAM, HEAP = MEMOIR_SPACE_HEAP, STORM_MS = 300 };

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void on_signal(int number, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags | SA_RESTART};
    EXPECT(sigaction(number, &action, NULL) == 0);
}

/* SIGALRM every 50 us at first, then as fast as it goes: timers of the process, no thread. */
static void storm(int which)
{
    struct itimerval often = {{0, 50}, {0, 50}};
    EXPECT(setitimer(which, &often, NULL) == 0);
}

static void calm(int which)
{
    EXPECT(setitimer(which, &(struct itimerval){{0}}, NULL) == 0);
}

static int gpu;
static volatile uint64_t handled, deferred_id;

/* Blocks of the handler live in the upper half of the ids. */
static void report_in_handler(int number)
{
    uint64_t id = (UINT64_C(1) << 62) + ((uint64_t)number << 40) + handled++;
    memoir_alloc(gpu, DRAM, id, 3);
    memoir_free(gpu, DRAM, id);
    memoir_tag_push("handler");
    memoir_tag_pop();
}

static void storms(void)
{
    gpu = declare(0);
    uint64_t reported = 0, freed = 0, end = now_ns() + STORM_MS * UINT64_C(1000000);
    on_signal(SIGALRM, report_in_handler, 0);
    on_signal(SIGPROF, report_in_handler, SA_NODEFER); /* interrupts even itself */
    storm(ITIMER_REAL);
    storm(ITIMER_PROF);
    for (uint64_t i = 0; now_ns() < end; i++) {
        for (uint64_t k = 0; k < 64; k++) {
            memoir_alloc(gpu, DRAM, i * 64 + k + 1, 7);
            reported++;
            if (k % 4) {
                memoir_free(gpu, DRAM, i * 64 + k + 1);
                freed++;
            }
        }
    }
    calm(ITIMER_REAL);
    calm(ITIMER_PROF);
    EXPECT(handled > 100);
    uint64_t reentry = lost_by(BOOK_LOSS_REENTRY), unknown = lost_by(BOOK_LOSS_UNKNOWN_FREE);
    struct memoir_totals t = totals_of(gpu, DRAM);
    fprintf(stderr, "# %llu reports, %llu from handlers, %llu lost\n", (unsigned long long)reported,
            (unsigned long long)handled * 2, (unsigned long long)reentry);
    EXPECT_EQUAL(lost_by(BOOK_LOSS_TORN), 0); /* nothing was torn, only interrupted */
    EXPECT(t.alloc_blocks <= reported + handled);
    EXPECT(t.alloc_blocks + reentry >= reported + handled);
    EXPECT(t.freed_blocks + reentry + unknown >= freed + handled);
    if (reentry + unknown == 0) {
        EXPECT_EQUAL(t.alloc_blocks, reported + handled);
        EXPECT_EQUAL(t.live_bytes, (reported - freed) * 7);
    }
}

static void reports_from_handlers_count(void **unused)
{
    in_child(storms, 0);
}

/* ---- longjmp ---- */

static sigjmp_buf target;
static volatile int jumps;

static void jump(int number)
{
    (void)number;
    jumps++;
    siglongjmp(target, 1);
}

__attribute__((noinline)) static void report_deep(int depth, uint64_t id)
{
    volatile char room[200];
    room[0] = (char)depth;
    if (depth > 0)
        report_deep(depth - 1, id);
    else
        memoir_alloc(gpu, DRAM, id, 10);
    if (depth == 0 && id % 64)
        memoir_free(gpu, DRAM, id);
    (void)room[0];
}

static volatile uint64_t begun, done;

static void report_until_torn(int depth)
{
    for (int i = 0; i < 1000000; i++) {
        begun++;
        report_deep(depth, begun);
        done++;
    }
}

static void jumping(void)
{
    gpu = declare(0);
    memoir_open(0);
    on_signal(SIGALRM, jump, SA_NODEFER);
    uint64_t end = now_ns() + STORM_MS * UINT64_C(1000000);
    struct itimerval often = {{0, 300}, {0, 300}};
    EXPECT(setitimer(ITIMER_REAL, &often, NULL) == 0);
    sigsetjmp(target, 1);
    while (now_ns() < end)
        report_until_torn(jumps % 3 * 2);
    calm(ITIMER_REAL);
    uint64_t torn = lost_by(BOOK_LOSS_TORN), stuck = lost_by(BOOK_LOSS_STUCK_LOCK);
    uint64_t reentry = lost_by(BOOK_LOSS_REENTRY);
    fprintf(stderr, "# %d jumps, %llu torn\n", jumps, (unsigned long long)torn);
    EXPECT(jumps > 20);
    EXPECT(torn <= (uint64_t)jumps);
    EXPECT_EQUAL(stuck, 0);
    EXPECT_EQUAL(reentry, 0);
    struct memoir_totals t = totals_of(gpu, DRAM);
    EXPECT(t.alloc_blocks >= done && t.alloc_blocks <= begun);
    for (uint64_t i = 0; i < 1000; i++) /* from then on exact, at any depth */
        report_deep((int)i % 8, (UINT64_C(1) << 50) + i);
    EXPECT_EQUAL(totals_of(gpu, DRAM).alloc_blocks, t.alloc_blocks + 1000);
    EXPECT_EQUAL(totals_of(gpu, DRAM).alloc_bytes, t.alloc_bytes + 10000);
}

static void *report_quietly(void *context)
{
    volatile bool *stop = context;
    for (uint64_t i = 1; !*stop; i++) {
        memoir_alloc(0, HEAP, i, 1);
        memoir_free(0, HEAP, i);
        usleep(100);
    }
    return NULL;
}

/* With a second thread locks are taken, and a torn report may hold one. */
static void jumping_beside_a_thread(void)
{
    static volatile bool stop;
    pthread_t thread;
    memoir_open(0);
    sigset_t alarm_only, before;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm_only, &before);
    EXPECT(pthread_create(&thread, NULL, report_quietly, (void *)&stop) == 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    jumping();
    stop = true;
    EXPECT(pthread_join(thread, NULL) == 0);
    struct memoir_totals t = totals_of(0, HEAP);
    EXPECT_EQUAL(t.live_blocks, 0);
}

static void reports_left_by_longjmp_harm_no_others(void **unused)
{
    in_child(jumping, 0);
    in_child(jumping_beside_a_thread, 0);
}

/* ---- fork in the middle of a report ---- */

static volatile int forks, bad_children;

static void fork_in_handler(int number)
{
    (void)number;
    if (forks >= 150)
        return;
    forks++;
    pid_t child = fork();
    if (child == 0) {
        /* Back into the report, which goes on here too. */
        on_signal(SIGALRM, SIG_IGN, 0);
        struct itimerval none = {{0}};
        setitimer(ITIMER_REAL, &none, NULL);
        deferred_id = 1;
        return;
    }
    int status = -1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    bad_children += status != 0;
}

static void forking(void)
{
    gpu = declare(0);
    memoir_open(0);
    on_signal(SIGALRM, fork_in_handler, 0);
    struct itimerval often = {{0, 200}, {0, 200}};
    EXPECT(setitimer(ITIMER_REAL, &often, NULL) == 0);
    uint64_t made = 0;
    while (forks < 150) {
        made++;
        memoir_alloc(gpu, DRAM, made, 7);
        if (made % 2)
            memoir_free(gpu, DRAM, made);
        if (deferred_id) { /* the child: a book of its own with what it inherited */
            for (uint64_t i = 1; i < 100; i++)
                memoir_alloc(gpu, DRAM, (UINT64_C(1) << 50) + i, 1);
            EXPECT(totals_of(gpu, DRAM).alloc_blocks >= 99);
            EXPECT(totals_of(gpu, DRAM).alloc_blocks <= 100);
            exit(0);
        }
    }
    calm(ITIMER_REAL);
    EXPECT_EQUAL(bad_children, 0);
    struct memoir_totals t = totals_of(gpu, DRAM);
    EXPECT_EQUAL(t.alloc_blocks, made);
    EXPECT_EQUAL(t.live_blocks, made / 2);
    EXPECT_EQUAL(status_now().lost, 0);
}

static void fork_in_the_middle_of_a_report_is_no_double_report(void **unused)
{
    in_child(forking, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_from_handlers_count),
        cmocka_unit_test(reports_left_by_longjmp_harm_no_others),
        cmocka_unit_test(fork_in_the_middle_of_a_report_is_no_double_report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
