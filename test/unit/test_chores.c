/* The worker thread: order, a full queue, and what becomes of chores at the end. */
#include "check.h"

#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>

#include "daemon/chores.h"

struct log {
    sem_t begin, done;
    int order[2 * CHORES_WAITING_MAX];
    size_t n, dropped;
};

struct job {
    struct log *log;
    int number;
};

static void run(void *context)
{
    struct job *job = context;
    job->log->order[job->log->n++] = job->number;
    sem_post(&job->log->done);
    free(job);
}

/* Stays until it is told to go on. */
static void run_slowly(void *context)
{
    struct job *job = context;
    sem_post(&job->log->done);
    sem_wait(&job->log->begin);
    free(job);
}

static void drop(void *context)
{
    struct job *job = context;
    job->log->dropped++;
    free(job);
}

static int add_of(struct chores *chores, unsigned user, chore_fn *fn, struct log *log, int number)
{
    struct job *job = malloc(sizeof(*job));
    assert_non_null(job);
    *job = (struct job){log, number};
    int r = chores_add(chores, user, fn, drop, job);
    if (r < 0)
        free(job);
    return r;
}

static int add(struct chores *chores, chore_fn *fn, struct log *log, int number)
{
    return add_of(chores, 0, fn, log, number);
}

static void log_init(struct log *log)
{
    *log = (struct log){0};
    sem_init(&log->begin, 0, 0);
    sem_init(&log->done, 0, 0);
}

static void chores_are_done_in_the_order_in_which_they_came(void **unused)
{
    struct chores *chores;
    struct log log;
    log_init(&log);
    assert_int_equal(chores_new("test-chores", &chores), 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(add(chores, run, &log, i), 0);
    for (int i = 0; i < 100; i++)
        sem_wait(&log.done);
    for (int i = 0; i < 100; i++)
        assert_int_equal(log.order[i], i);
    chores_free(chores);
    assert_int_equal(log.dropped, 0);
}

static void what_does_not_fit_is_refused_and_what_waits_at_the_end_is_dropped(void **unused)
{
    struct chores *chores;
    struct log log;
    log_init(&log);
    assert_int_equal(chores_new("test-chores", &chores), 0);
    assert_int_equal(add(chores, run_slowly, &log, 0), 0);
    sem_wait(&log.done); /* it is at work: the queue is empty */
    for (int i = 0; i < CHORES_WAITING_MAX; i++)
        assert_int_equal(add(chores, run, &log, i), 0);
    assert_int_equal(chores_waiting(chores), CHORES_WAITING_MAX);
    assert_int_equal(add(chores, run, &log, 0), -EBUSY);
    sem_post(&log.begin);
    chores_free(chores);
    assert_int_equal(log.n + log.dropped, CHORES_WAITING_MAX);
}

static void users_take_turns(void **unused)
{
    static const int wanted[] = {0, 100, 200, 1, 101, 2};
    struct chores *chores;
    struct log log;
    log_init(&log);
    assert_int_equal(chores_new("test-chores", &chores), 0);
    assert_int_equal(add_of(chores, 9, run_slowly, &log, 0), 0);
    sem_wait(&log.done);
    for (int i = 0; i < 3; i++)
        assert_int_equal(add_of(chores, 0, run, &log, i), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(add_of(chores, 1, run, &log, 100 + i), 0);
    assert_int_equal(add_of(chores, CHORES_USERS - 1, run, &log, 200), 0);
    sem_post(&log.begin);
    for (int i = 0; i < 6; i++)
        sem_wait(&log.done);
    assert_memory_equal(log.order, wanted, sizeof(wanted));
    chores_free(chores);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chores_are_done_in_the_order_in_which_they_came),
        cmocka_unit_test(users_take_turns),
        cmocka_unit_test(what_does_not_fit_is_refused_and_what_waits_at_the_end_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
