/* Resident sizes: right for who lives, absent for who does not, with and without descriptors to spare. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "daemon/rss.h"
#include "history/sample.h"
#include "ledger/proc.h"

static struct sample_process *add(struct sample *sample, pid_t pid)
{
    struct proc_stat stat;
    struct sample_process *p = sample_add_process(sample);
    assert_int_equal(proc_stat_read(pid, &stat), 0);
    p->pid = pid;
    p->start_ticks = stat.start_ticks;
    p->pid_proved = true;
    return p;
}

static int lowest_free(void)
{
    int fd = open("/dev/null", O_RDONLY);
    close(fd);
    return fd;
}

static pid_t sleeper(void)
{
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    assert_true(child > 0);
    return child;
}

static void end(pid_t child)
{
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void living_processes_have_one_and_their_descriptors_go_with_them(void **state)
{
    struct rss *rss;
    struct sample sample;
    sample_init(&sample);
    assert_int_equal(rss_new(&rss), 0);
    int before = lowest_free();
    pid_t child = sleeper();
    struct sample_process gone = {0};
    for (int round = 0; round < 5; round++) {
        sample_reset(&sample, 0);
        add(&sample, getpid());
        if (round < 3)
            gone = *add(&sample, child);
        else
            *sample_add_process(&sample) = gone; /* dead, though the picture still has it */
        if (round == 3)
            end(child);
        rss_fill(rss, &sample);
        assert_true(sample.processes[0].has_rss);
        assert_in_range(sample.processes[0].rss_bytes, 100000, UINT32_MAX);
        assert_int_equal(sample.processes[1].has_rss, round < 3);
        assert_in_range(lowest_free(), before, before + 2);
    }
    sample_reset(&sample, 0);
    rss_fill(rss, &sample); /* nobody is left */
    assert_int_equal(lowest_free(), before);
    rss_free(rss);
    sample_release(&sample);
}

static void another_process_with_the_same_pid_is_not_taken_for_it(void **state)
{
    struct rss *rss;
    struct sample sample;
    sample_init(&sample);
    assert_int_equal(rss_new(&rss), 0);
    sample_reset(&sample, 0);
    add(&sample, getpid())->start_ticks -= 100;
    rss_fill(rss, &sample);
    assert_false(sample.processes[0].has_rss);
    rss_free(rss);
    sample_release(&sample);
}

static void without_descriptors_everybody_gets_his_turn(void **state)
{
    enum { CHILDREN = 8 };
    struct rss *rss;
    struct sample sample;
    struct rlimit before, small;
    pid_t children[CHILDREN];
    getrlimit(RLIMIT_NOFILE, &before);
    small = (struct rlimit){24, before.rlim_max}; /* the lowest three are taken already */
    sample_init(&sample);
    for (int i = 0; i < CHILDREN; i++)
        children[i] = sleeper();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
    assert_int_equal(rss_new(&rss), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    int lowest = lowest_free();
    for (int round = 0; round < 3; round++) {
        sample_reset(&sample, 0);
        for (int i = 0; i < CHILDREN; i++)
            add(&sample, children[i]);
        rss_fill(rss, &sample);
        for (int i = 0; i < CHILDREN; i++) {
            assert_true(sample.processes[i].has_rss);
            assert_in_range(sample.processes[i].rss_bytes, 10000, UINT32_MAX);
        }
        assert_int_equal(lowest_free(), lowest);
    }
    for (int i = 0; i < CHILDREN; i++)
        end(children[i]);
    rss_fill(rss, &sample);
    for (int i = 0; i < CHILDREN; i++)
        assert_false(sample.processes[i].has_rss);
    rss_free(rss);
    sample_release(&sample);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(living_processes_have_one_and_their_descriptors_go_with_them),
        cmocka_unit_test(another_process_with_the_same_pid_is_not_taken_for_it),
        cmocka_unit_test(without_descriptors_everybody_gets_his_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
