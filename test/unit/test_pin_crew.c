/* The helper threads of the pinning library: each piece of work that was accepted runs once, with its
 * own argument. */
#include "pin/crew.h"

#include <pthread.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "check.h"
#include "pin/manager.h"

enum { ROUNDS = 200000, STARTERS = 2, LIMIT_S = 3, PATIENCE_S = 20 };

/* Of the manager, what the crew needs. */
__thread bool pin_inside;

uint64_t pin_now_ns(void)
{
    return clock_monotonic_ns();
}

struct task {
    uint32_t ran;
};

struct starter {
    pthread_t thread;
    uint64_t started, lost, twice;
    struct task tasks[ROUNDS];
};

static void run(void *argument)
{
    struct task *task = argument;
    fetch_add_acq_rel(&task->ran, 1);
}

/* Tasks one after the other, as copies come: a helper that has just finished one looks for the next
 * while it is handed over. */
static void *start(void *argument)
{
    struct starter *s = argument;
    struct task *tasks = s->tasks;
    uint64_t begin = clock_monotonic_ns();
    for (unsigned i = 0; i < ROUNDS && clock_monotonic_ns() - begin < LIMIT_S * NS_PER_S; i++) {
        if (!crew_start(run, &tasks[i]))
            continue;
        s->started++;
        uint64_t until = clock_monotonic_ns() + PATIENCE_S * NS_PER_S;
        while (!load_acquire(&tasks[i].ran) && clock_monotonic_ns() < until)
            cpu_relax();
        if (!load_acquire(&tasks[i].ran)) {
            s->lost++;
            break;
        }
    }
    for (unsigned i = 0; i < ROUNDS; i++)
        s->twice += load_acquire(&tasks[i].ran) > 1;
    return NULL;
}

static void each_task_runs_once(void **unused)
{
    static struct starter starters[STARTERS];
    for (unsigned i = 0; i < STARTERS; i++)
        assert_int_equal(pthread_create(&starters[i].thread, NULL, start, &starters[i]), 0);
    for (unsigned i = 0; i < STARTERS; i++) {
        pthread_join(starters[i].thread, NULL);
        assert_true(starters[i].started > 0);
        assert_int_equal(starters[i].lost, 0);
        assert_int_equal(starters[i].twice, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_task_runs_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
