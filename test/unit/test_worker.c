/* Threads beside the loop: they begin, wait, are woken and end, and share what the lock is for. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/worker.h"
#include "check.h"
#include "daemon/chores.h"

enum { ROUNDS = 2000 };

struct counter {
    struct worker worker;
    uint64_t wanted, done; /* locked */
    uint64_t waits;        /* the thread's */
    char name[16];
    bool blocked; /* every signal is */
};

static void count(void *context)
{
    struct counter *c = context;
    sigset_t mask;
    sigemptyset(&mask);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    worker_lock(&c->worker);
    c->blocked = sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGCHLD) == 1;
    pthread_getname_np(pthread_self(), c->name, sizeof(c->name));
    while (!c->worker.stop || c->done < c->wanted) {
        if (c->done < c->wanted) {
            c->done++;
            continue;
        }
        c->waits++;
        worker_wait(&c->worker, UINT64_MAX);
    }
    worker_unlock(&c->worker);
}

static void what_is_asked_for_is_done_and_it_ends(void **state)
{
    struct counter c = {0};
    assert_int_equal(worker_start(&c.worker, "counter", 1, count, &c), 0);
    for (int i = 0; i < ROUNDS; i++) {
        worker_lock(&c.worker);
        c.wanted++;
        worker_wake(&c.worker);
        worker_unlock(&c.worker);
    }
    worker_stop(&c.worker);
    assert_int_equal(c.done, ROUNDS);
    assert_true(c.blocked); /* signals are the loop's */
    assert_string_equal(c.name, "counter");
    worker_stop(&c.worker); /* again is fine */
}

static void one_that_never_began_can_be_ended(void **state)
{
    struct worker worker = {0};
    worker_stop(&worker);
}

static void tick(void *context)
{
    struct counter *c = context;
    worker_lock(&c->worker);
    while (!c->worker.stop) {
        worker_wait(&c->worker, clock_monotonic_ns() + NS_PER_MS);
        c->done++;
    }
    worker_unlock(&c->worker);
}

static void a_wait_ends_with_its_time(void **state)
{
    struct counter c = {0};
    uint64_t done = 0;
    assert_int_equal(worker_start(&c.worker, "ticks", 0, tick, &c), 0);
    while (done < 5) {
        if (worker_try_lock(&c.worker)) {
            done = c.done;
            worker_unlock(&c.worker);
        }
        usleep(500);
    }
    worker_stop(&c.worker);
}

/* ---- chores ---- */

static uint64_t ran, dropped;

static void run_chore(void *context)
{
    __atomic_add_fetch(&ran, *(uint64_t *)context, __ATOMIC_RELAXED);
    free(context);
}

static void drop_chore(void *context)
{
    __atomic_add_fetch(&dropped, *(uint64_t *)context, __ATOMIC_RELAXED);
    free(context);
}

static void every_chore_is_run_or_dropped(void **state)
{
    struct chores *chores;
    uint64_t added = 0, refused = 0;
    assert_int_equal(chores_new("chores", 3, &chores), 0);
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        uint64_t *context = malloc(sizeof(*context));
        assert_non_null(context);
        *context = i;
        if (chores_add(chores, (uint32_t)(i % 5), run_chore, drop_chore, context) == 0) {
            added += i;
        } else {
            refused++;
            free(context);
        }
        assert_true(chores_waiting(chores) <= CHORES_WAITING_MAX);
    }
    chores_free(chores);
    assert_int_equal(ran + dropped, added);
    assert_true(refused < ROUNDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_asked_for_is_done_and_it_ends),
        cmocka_unit_test(one_that_never_began_can_be_ended),
        cmocka_unit_test(a_wait_ends_with_its_time),
        cmocka_unit_test(every_chore_is_run_or_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
