/* Lanes of worker threads: order, turns of users, a full queue, and what becomes of chores at the end. */
#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/chores.h"

struct log {
    sem_t begin, done;
    int order[2 * CHORES_WAITING_MAX];
    atomic_size_t n;
    size_t dropped;
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

static int add_of(struct chores *chores, uint32_t user, chore_fn *fn, struct log *log, int number)
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
    assert_int_equal(chores_new("test-chores", 1, &chores), 0);
    for (int i = 0; i < CHORES_USER_MAX; i++)
        assert_int_equal(add(chores, run, &log, i), 0);
    for (int i = 0; i < CHORES_USER_MAX; i++)
        sem_wait(&log.done);
    for (int i = 0; i < CHORES_USER_MAX; i++)
        assert_int_equal(log.order[i], i);
    chores_free(chores);
    assert_int_equal(log.dropped, 0);
}

/* Many users may each have a few, and one user some more. */
static void what_does_not_fit_is_refused_and_what_waits_at_the_end_is_dropped(void **unused)
{
    struct chores *chores;
    struct log log;
    size_t n = 0;
    log_init(&log);
    assert_int_equal(chores_new("test-chores", 1, &chores), 0);
    assert_int_equal(add(chores, run_slowly, &log, 0), 0);
    sem_wait(&log.done); /* it is at work: the queue is empty */
    for (int i = 0; i < CHORES_USER_MAX; i++, n++)
        assert_int_equal(add_of(chores, 1, run, &log, i), 0);
    assert_int_equal(add_of(chores, 1, run, &log, 0), -EBUSY);
    for (unsigned user = 2; n < CHORES_WAITING_MAX / 2; user++, n++)
        assert_int_equal(add_of(chores, user, run, &log, 0), 0);
    for (int i = 0; i < CHORES_USER_FEW; i++, n++)
        assert_int_equal(add_of(chores, 10000, run, &log, 0), 0);
    assert_int_equal(add_of(chores, 10000, run, &log, 0), -EBUSY);
    for (unsigned user = 20000; n < CHORES_WAITING_MAX; user++, n++)
        assert_int_equal(add_of(chores, user, run, &log, 0), 0);
    assert_int_equal(chores_waiting(chores), CHORES_WAITING_MAX);
    assert_int_equal(add_of(chores, 30000, run, &log, 0), -EBUSY);
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
    assert_int_equal(chores_new("test-chores", 1, &chores), 0);
    assert_int_equal(add_of(chores, 9, run_slowly, &log, 0), 0);
    sem_wait(&log.done);
    for (int i = 0; i < 3; i++)
        assert_int_equal(add_of(chores, 0, run, &log, i), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(add_of(chores, 1, run, &log, 100 + i), 0);
    assert_int_equal(add_of(chores, UINT32_MAX, run, &log, 200), 0);
    sem_post(&log.begin);
    for (int i = 0; i < 6; i++)
        sem_wait(&log.done);
    assert_memory_equal(log.order, wanted, sizeof(wanted));
    chores_free(chores);
}

/* ---- lanes ---- */

enum { USERS = 5, EACH = 30 };

struct crowd {
    atomic_int running[USERS], next[USERS], together, most, wrong;
    sem_t done;
};

struct turn {
    struct crowd *crowd;
    int user, number;
};

/* A chore that would notice another one of its user beside it, or before its time. */
static void turn_run(void *context)
{
    struct turn *turn = context;
    struct crowd *crowd = turn->crowd;
    int together = atomic_fetch_add(&crowd->together, 1) + 1, most = atomic_load(&crowd->most);
    while (together > most && !atomic_compare_exchange_weak(&crowd->most, &most, together))
        ;
    if (atomic_fetch_add(&crowd->running[turn->user], 1) != 0 ||
        atomic_fetch_add(&crowd->next[turn->user], 1) != turn->number)
        atomic_fetch_add(&crowd->wrong, 1);
    usleep(200);
    atomic_fetch_sub(&crowd->running[turn->user], 1);
    atomic_fetch_sub(&crowd->together, 1);
    sem_post(&crowd->done);
    free(turn);
}

static void users_run_beside_each_other_each_with_one_chore_at_a_time(void **unused)
{
    struct chores *chores;
    struct crowd crowd = {0};
    sem_init(&crowd.done, 0, 0);
    assert_int_equal(chores_new("test-chores", 4, &chores), 0);
    for (int i = 0; i < USERS * EACH; i++) {
        struct turn *turn = malloc(sizeof(*turn));
        assert_non_null(turn);
        *turn = (struct turn){&crowd, i % USERS, i / USERS};
        assert_int_equal(chores_add(chores, 1000 + turn->user, turn_run, free, turn), 0);
    }
    for (int i = 0; i < USERS * EACH; i++)
        sem_wait(&crowd.done);
    chores_free(chores);
    assert_int_equal(crowd.wrong, 0);
    assert_in_range(crowd.most, 2, 4);
}

/* Chores that wait for something which a user controls. */
static void user_whose_chore_hangs_delays_no_other(void **unused)
{
    struct chores *chores;
    struct log hung, log;
    log_init(&hung);
    log_init(&log);
    assert_int_equal(chores_new("test-chores", 2, &chores), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(add_of(chores, 1, run_slowly, &hung, i), 0);
    sem_wait(&hung.done);
    for (int i = 0; i < 10; i++)
        assert_int_equal(add_of(chores, 2, run, &log, i), 0);
    for (int i = 0; i < 10; i++)
        sem_wait(&log.done);
    assert_int_equal(chores_waiting(chores), 2); /* the user's own wait for the first */
    assert_int_equal(sem_trywait(&hung.done), -1);
    for (int i = 0; i < 3; i++)
        sem_post(&hung.begin);
    sem_wait(&hung.done);
    sem_wait(&hung.done);
    chores_free(chores);
}

static void root_may_have_two_at_a_time(void **unused)
{
    struct chores *chores;
    struct log hung;
    log_init(&hung);
    assert_int_equal(chores_new("test-chores", 4, &chores), 0);
    for (int i = 0; i < CHORES_ROOT_MAX + 1; i++)
        assert_int_equal(add_of(chores, CHORES_ROOT, run_slowly, &hung, i), 0);
    for (int i = 0; i < CHORES_ROOT_MAX; i++)
        sem_wait(&hung.done);
    assert_int_equal(chores_waiting(chores), 1);
    for (int i = 0; i < CHORES_ROOT_MAX + 1; i++)
        sem_post(&hung.begin);
    sem_wait(&hung.done);
    chores_free(chores);
}

static void run_long(void *context)
{
    struct job *job = context;
    usleep((CHORES_SLOW_MS + 500) * 1000);
    sem_post(&job->log->done);
    free(job);
}

/* Of four lanes, two are left for users who took little time lately. */
static void slow_users_share_half_of_the_lanes(void **unused)
{
    struct chores *chores;
    struct log slow, log;
    log_init(&slow);
    log_init(&log);
    assert_int_equal(chores_new("test-chores", 4, &chores), 0);
    for (uint32_t user = 1; user <= 4; user++)
        assert_int_equal(add_of(chores, user, run_long, &slow, 0), 0);
    for (int i = 0; i < 4; i++)
        sem_wait(&slow.done);
    for (uint32_t user = 1; user <= 4; user++)
        assert_int_equal(add_of(chores, user, run_slowly, &slow, 0), 0);
    sem_wait(&slow.done);
    sem_wait(&slow.done);
    for (uint32_t user = 5; user <= 14; user++)
        assert_int_equal(add_of(chores, user, run, &log, 0), 0);
    for (int i = 0; i < 10; i++)
        sem_wait(&log.done);
    assert_int_equal(chores_waiting(chores), 2);
    assert_int_equal(sem_trywait(&slow.done), -1);
    for (int i = 0; i < 4; i++)
        sem_post(&slow.begin);
    sem_wait(&slow.done);
    sem_wait(&slow.done);
    chores_free(chores);
}

static void *release_later(void *context)
{
    struct log *log = context;
    for (int i = 0; i < 3; i++)
        sem_wait(&log->done);
    for (int i = 0; i < 3; i++)
        sem_post(&log->begin);
    return NULL;
}

static void end_waits_for_what_runs_in_all_lanes(void **unused)
{
    struct chores *chores;
    struct log log;
    pthread_t thread;
    log_init(&log);
    assert_int_equal(chores_new("test-chores", 3, &chores), 0);
    for (uint32_t user = 1; user <= 3; user++) {
        assert_int_equal(add_of(chores, user, run_slowly, &log, 0), 0);
        assert_int_equal(add_of(chores, user, run, &log, 0), 0);
    }
    while (chores_waiting(chores) > 3)
        sched_yield();
    assert_int_equal(pthread_create(&thread, NULL, release_later, &log), 0);
    chores_free(chores);
    pthread_join(thread, NULL);
    assert_int_equal(log.n + log.dropped, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chores_are_done_in_the_order_in_which_they_came),
        cmocka_unit_test(users_take_turns),
        cmocka_unit_test(users_run_beside_each_other_each_with_one_chore_at_a_time),
        cmocka_unit_test(user_whose_chore_hangs_delays_no_other),
        cmocka_unit_test(root_may_have_two_at_a_time),
        cmocka_unit_test(slow_users_share_half_of_the_lanes),
        cmocka_unit_test(end_waits_for_what_runs_in_all_lanes),
        cmocka_unit_test(what_does_not_fit_is_refused_and_what_waits_at_the_end_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
