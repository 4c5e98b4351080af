/* The event loop: sources that fire, free each other and wake each other. */
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "check.h"
#include "daemon/loop.h"

struct world {
    struct loop *loop;
    struct loop_source *source[4];
    int fds[2];
    int calls[4];
};

static int setup(void **state)
{
    static struct world w;
    w = (struct world){0};
    assert_int_equal(loop_new(&w.loop), 0);
    assert_int_equal(pipe(w.fds), 0);
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    loop_free(w->loop);
    close(w->fds[0]);
    close(w->fds[1]);
    return 0;
}

static void stop_after_three(void *context)
{
    struct world *w = context;
    if (++w->calls[0] == 3)
        loop_stop(w->loop);
}

static void timer_repeats(void **state)
{
    struct world *w = *state;
    assert_int_equal(loop_add_timer(w->loop, stop_after_three, w, &w->source[0]), 0);
    uint64_t start = clock_monotonic_ns();
    assert_int_equal(loop_timer_set(w->source[0], NS_PER_MS, NS_PER_MS), 0);
    assert_int_equal(loop_run(w->loop), 0);
    assert_int_equal(w->calls[0], 3);
    assert_true(clock_monotonic_ns() - start >= 3 * NS_PER_MS);
}

static void stop(void *context)
{
    struct world *w = context;
    w->calls[1]++;
    loop_stop(w->loop);
}

static void signal_arrives_in_the_loop(void **state)
{
    struct world *w = *state;
    assert_int_equal(loop_add_signal(w->loop, SIGUSR1, stop, w, &w->source[0]), 0);
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    assert_int_equal(loop_run(w->loop), 0);
    assert_int_equal(w->calls[1], 1);
}

static void *wake_from_thread(void *context)
{
    for (int i = 0; i < 100; i++)
        loop_wake(context);
    return NULL;
}

static void threads_can_wake_it(void **state)
{
    struct world *w = *state;
    pthread_t thread;
    assert_int_equal(loop_add_wake(w->loop, stop, w, &w->source[0]), 0);
    assert_int_equal(pthread_create(&thread, NULL, wake_from_thread, w->source[0]), 0);
    assert_int_equal(loop_run(w->loop), 0);
    pthread_join(thread, NULL);
    assert_int_equal(w->calls[1], 1);
}

static void free_the_other(void *context, uint32_t events)
{
    struct world *w = context;
    w->calls[2]++;
    loop_source_free(w->source[0]);
    loop_source_free(w->source[1]);
    w->source[0] = w->source[1] = NULL;
    loop_stop(w->loop);
}

static void source_freed_in_the_turn_is_not_called(void **state)
{
    struct world *w = *state;
    int other = dup(w->fds[0]);
    assert_int_equal(loop_add_fd(w->loop, w->fds[0], EPOLLIN, free_the_other, w, &w->source[0]), 0);
    assert_int_equal(loop_add_fd(w->loop, other, EPOLLIN, free_the_other, w, &w->source[1]), 0);
    assert_int_equal(write(w->fds[1], "x", 1), 1);
    assert_int_equal(loop_run(w->loop), 0); /* both are ready in the same turn */
    assert_int_equal(w->calls[2], 1);
    close(other);
}

static void piece_of_work(void *context)
{
    struct world *w = context;
    if (++w->calls[0] < 5)
        loop_defer(w->source[0]);
}

static void count_pieces(void *context, uint32_t events)
{
    struct world *w = context;
    w->calls[3] = w->calls[0];
    if (w->calls[0] == 5)
        loop_stop(w->loop);
}

static void deferred_work_lets_others_in_between(void **state)
{
    struct world *w = *state;
    assert_int_equal(loop_add_deferred(w->loop, piece_of_work, w, &w->source[0]), 0);
    assert_int_equal(loop_add_fd(w->loop, w->fds[0], EPOLLIN, count_pieces, w, &w->source[1]), 0);
    assert_int_equal(write(w->fds[1], "x", 1), 1); /* stays readable, so it is called each turn */
    loop_defer(w->source[0]);
    loop_defer(w->source[0]); /* twice is once */
    assert_int_equal(loop_run(w->loop), 0);
    assert_int_equal(w->calls[0], 5);
    assert_int_equal(w->calls[3], 5);
}

int main(void)
{
#define LOOP_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        LOOP_TEST(timer_repeats),
        LOOP_TEST(signal_arrives_in_the_loop),
        LOOP_TEST(threads_can_wake_it),
        LOOP_TEST(source_freed_in_the_turn_is_not_called),
        LOOP_TEST(deferred_work_lets_others_in_between),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
