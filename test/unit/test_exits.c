/* Exits as the real kernel tells them: nobody is missed, and what does not fit into the ring is counted. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "bpf/exit_event.h"
#include "bpf/exits.h"
#include "check.h"

enum { CHILDREN_MAX = 60000, BATCH = 500, TURN = 256, PATIENCE_S = 30 };

static struct exits *exits;
static unsigned char *ended; /* by pid, ours that were told of */
static uint64_t told;

static void each(const struct exit_event *event, void *context)
{
    told++;
    if (event->pid > 0 && event->pid < 1 << 22)
        ended[event->pid] = 1;
}

static int setup(void **state)
{
    char why[EXITS_WHY_MAX];
    ended = calloc(1 << 22, 1);
    assert_non_null(ended);
    if (exits_open(each, NULL, &exits, why) < 0)
        print_message("no exits here: %s\n", why);
    return 0;
}

static int teardown(void **state)
{
    exits_free(exits);
    free(ended);
    return 0;
}

/* Thousands of them: one that borrows our memory costs the least. */
static pid_t end_one(void)
{
    pid_t pid = vfork();
    if (pid == 0)
        _exit(0);
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return pid;
}

static void read_all(void)
{
    int n;
    while ((n = exits_read(exits, TURN)) == TURN)
        ;
    assert_true(n >= 0);
}

static void every_child_is_told_of(void **state)
{
    pid_t pids[BATCH];
    if (!exits)
        skip();
    for (size_t i = 0; i < BATCH; i++) {
        pids[i] = end_one();
        if (i % 100 == 99)
            read_all();
    }
    /* An exit on another CPU may be half written, and hides what comes after it for a moment. */
    uint64_t begin = clock_monotonic_ns();
    for (size_t i = 0; i < BATCH;) {
        read_all();
        if (ended[pids[i]])
            i++;
        else if (exits_lost(exits))
            skip(); /* others end by the thousand here */
        else
            assert_true(clock_monotonic_ns() - begin < PATIENCE_S * NS_PER_S);
    }
}

static void what_does_not_fit_is_counted(void **state)
{
    uint64_t before = told, children = 0, begin;
    if (!exits)
        skip();
    while (exits_lost(exits) == 0) {
        for (int i = 0; i < BATCH; i++)
            (void)end_one();
        children += BATCH;
        assert_true(children <= CHILDREN_MAX);
    }
    uint64_t lost = exits_lost(exits);
    begin = clock_monotonic_ns();
    do {
        read_all();
        assert_true(clock_monotonic_ns() - begin < PATIENCE_S * NS_PER_S);
    } while (told - before + lost < children);
    assert_true(told > before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_child_is_told_of),
        cmocka_unit_test(what_does_not_fit_is_counted),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
