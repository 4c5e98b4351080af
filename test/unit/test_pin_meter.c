/* What the pinning library reads of the machine: known also when the program has no descriptor left, and the program sees none of ours. */
#include "pin/meter.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "check.h"
#include "pin/crew.h"
#include "pin/manager.h"

enum { DESCRIPTORS = 128, READINGS = 500, PATIENCE_MS = 60000 /* on a busy machine, too */ };

/* Of the manager, what the crew needs. */
__thread bool pin_inside;

uint64_t pin_now_ns(void)
{
    return clock_monotonic_ns();
}

static uint64_t read_again(void)
{
    uint64_t headroom = 0;
    meter_age_for_test(PATIENCE_MS);
    assert_true(meter_headroom(&headroom));
    return headroom;
}

/* No number below DESCRIPTORS is free; what was opened for it, to be closed. */
struct full {
    struct rlimit before;
    int fds[DESCRIPTORS];
    size_t n;
};

static void table_fill(struct full *f)
{
    int fd;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &f->before), 0);
    struct rlimit low = {DESCRIPTORS, f->before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    f->n = 0;
    while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        f->fds[f->n++] = fd;
    assert_int_equal(errno, EMFILE);
    assert_true(f->n > 0);
}

static void table_empty(struct full *f)
{
    while (f->n > 0)
        close(f->fds[--f->n]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &f->before), 0);
}

static uint64_t total_bytes(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void a_program_without_a_free_descriptor_has_a_headroom(void **state)
{
    struct full f;
    table_fill(&f);
    errno = 77;
    uint64_t headroom = read_again();
    assert_int_equal(errno, 77);
    assert_true(headroom > 0 && headroom <= total_bytes());
    assert_true(meter_cpus() >= 1);
    /* Nor was a place taken in the end. */
    assert_int_equal(open("/dev/null", O_RDONLY | O_CLOEXEC), -1);
    table_empty(&f);
    assert_false(meter_was_visible_for_test());
}

struct user {
    int number; /* the only free one */
    uint32_t stop;
    uint64_t opened, wrong;
};

/* A thread that uses the last free number all the time. */
static void *last_use(void *argument)
{
    struct user *u = argument;
    while (!load_acquire(&u->stop)) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        u->wrong += fd != u->number;
        u->opened++;
        if (fd >= 0)
            close(fd);
    }
    return NULL;
}

static void a_thread_that_uses_the_last_descriptor_never_misses_it(void **state)
{
    struct full f;
    pthread_t thread;
    table_fill(&f);
    struct user u = {.number = f.fds[--f.n]};
    close(u.number);
    assert_int_equal(pthread_create(&thread, NULL, last_use, &u), 0);
    for (int i = 0; i < READINGS; i++)
        assert_true(read_again() > 0);
    store_release(&u.stop, 1);
    pthread_join(thread, NULL);
    table_empty(&f);
    assert_true(u.opened > 0);
    assert_int_equal(u.wrong, 0);
    assert_false(meter_was_visible_for_test());
}

/* In a process whose helper begins with the descriptors that there are now. */
static int with_a_fresh_helper(bool (*check)(void))
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        crew_forget();
        meter_forget();
        _exit(check() ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static bool pipe_ends(void)
{
    int ends[2];
    uint64_t headroom;
    if (pipe(ends) < 0)
        return false;
    meter_age_for_test(PATIENCE_MS);
    if (!meter_headroom(&headroom) || meter_was_visible_for_test())
        return false;
    close(ends[1]);
    struct pollfd end = {.fd = ends[0], .events = POLLIN};
    /* A helper without work lives for 1000 ms. */
    return poll(&end, 1, 500) == 1 && end.revents & POLLHUP;
}

/* It has no copy of the program's descriptors. */
static void the_end_of_a_pipe_is_seen_while_the_helper_lives(void **state)
{
    assert_int_equal(with_a_fresh_helper(pipe_ends), 0);
}

/* A lock of fcntl() belongs to the table of descriptors. */
static bool lock_stays(void)
{
    char path[] = "/tmp/memoir-meter-XXXXXX";
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    uint64_t headroom;
    int status = -1, fd = mkstemp(path);
    if (fd < 0 || unlink(path) < 0 || fcntl(fd, F_SETLK, &whole) < 0)
        return false;
    meter_age_for_test(PATIENCE_MS);
    if (!meter_headroom(&headroom) || meter_was_visible_for_test())
        return false;
    pid_t child = fork();
    if (child == 0)
        _exit(fcntl(fd, F_SETLK, &whole) < 0 && (errno == EAGAIN || errno == EACCES) ? 0 : 1);
    return waitpid(child, &status, 0) == child && status == 0;
}

static void locks_of_the_program_stay(void **state)
{
    assert_int_equal(with_a_fresh_helper(lock_stays), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_without_a_free_descriptor_has_a_headroom),
        cmocka_unit_test(a_thread_that_uses_the_last_descriptor_never_misses_it),
        cmocka_unit_test(the_end_of_a_pipe_is_seen_while_the_helper_lives),
        cmocka_unit_test(locks_of_the_program_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
