/* System calls that hang cost their deadline and no more. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "check.h"
#include "observe/deadline.h"
#include "observe/remote_memory.h"

enum { USER = 1000, OTHER = 1001 };

/* Reads a byte from a pipe, however long that takes. */
struct waiting {
    struct deadline_job job;
    int fd;
    char byte;
};

static void wait_run(struct deadline_job *job)
{
    struct waiting *w = (struct waiting *)job;
    while (read(w->fd, &w->byte, 1) < 0 && errno == EINTR)
        ;
}

static struct waiting *waiting_new(int fd)
{
    struct waiting *w = calloc(1, sizeof(*w));
    w->job.run = wait_run;
    w->fd = fd;
    return w;
}

static void what_hangs_is_left_behind_and_others_go_on(void **state)
{
    int hangs[2], works[2];
    struct deadline *d;
    assert_int_equal(pipe(hangs) | pipe(works), 0);
    assert_int_equal(deadline_new(&d), 0);
    for (int i = 0; i < DEADLINE_OWNER_MAX; i++) {
        uint64_t from = clock_monotonic_ns();
        assert_int_equal(deadline_run(d, USER, &waiting_new(hangs[0])->job), -ETIME);
        assert_true(clock_monotonic_ns() - from >= DEADLINE_MS * NS_PER_MS);
    }
    assert_int_equal(deadline_lost(d), DEADLINE_OWNER_MAX);
    /* That user is refused, at once; another one is served. */
    struct waiting *w = waiting_new(works[0]);
    assert_int_equal(deadline_run(d, USER, &w->job), -EBUSY);
    assert_int_equal(write(works[1], "a", 1), 1);
    assert_int_equal(deadline_run(d, OTHER, &w->job), 0);
    assert_int_equal(w->byte, 'a');
    /* Who comes back ends, and makes room. */
    assert_int_equal(write(hangs[1], "xy", DEADLINE_OWNER_MAX), DEADLINE_OWNER_MAX);
    while (deadline_lost(d) > 0)
        usleep(1000);
    assert_int_equal(write(works[1], "b", 1), 1);
    assert_int_equal(deadline_run(d, USER, &w->job), 0);
    assert_int_equal(w->byte, 'b');
    free(w);
    deadline_free(d);
    for (int i = 0; i < 2; i++) {
        close(hangs[i]);
        close(works[i]);
    }
}

static void freeing_waits_for_nobody(void **state)
{
    int hangs[2];
    struct deadline *d;
    assert_int_equal(pipe(hangs), 0);
    assert_int_equal(deadline_new(&d), 0);
    assert_int_equal(deadline_run(d, USER, &waiting_new(hangs[0])->job), -ETIME);
    deadline_free(d);
    /* The worker ends afterwards; a sanitizer sees what it touches then. */
    assert_int_equal(write(hangs[1], "x", 1), 1);
    close(hangs[1]);
}

/* A child whose page nobody ever fills. */
static pid_t child_hanging(char **ret_page, char *plain)
{
    int done[2];
    char byte = 0;
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(pipe(done), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* whatever fails here */
        int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
        struct uffdio_api api = {.api = UFFD_API};
        struct uffdio_register range = {.range = {(uintptr_t)page, 4096},
                                        .mode = UFFDIO_REGISTER_MODE_MISSING};
        bool works =
            fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0 && ioctl(fd, UFFDIO_REGISTER, &range) == 0;
        (void)!write(done[1], works ? "y" : "n", 1);
        for (;;)
            pause();
    }
    assert_int_equal(read(done[0], &byte, 1), 1);
    close(done[0]);
    close(done[1]);
    *ret_page = page;
    if (byte == 'y')
        return pid;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return -1;
}

static void memory_that_nobody_fills_does_not_hold_us(void **state)
{
    static char plain[] = "plain";
    char *page, a[6] = "", b[6] = "";
    struct deadline *d;
    assert_int_equal(deadline_new(&d), 0);
    pid_t pid = child_hanging(&page, plain);
    if (pid < 0) {
        deadline_free(d);
        skip();
    }
    struct remote_memory memory = {.pid = pid, .deadline = d, .owner = USER};
    struct remote_piece pieces[] = {
        {.address = (uintptr_t)plain, .to = a, .bytes = 6},
        {.address = 8, .to = b, .bytes = 6}, /* nothing is there */
        {.address = (uintptr_t)plain, .to = b, .bytes = 6},
    };
    remote_memory_read(&memory, pieces, 3);
    assert_true(pieces[0].done && !pieces[1].done && pieces[2].done);
    assert_string_equal(a, plain);
    assert_string_equal(b, plain);
    pieces[1].address = (uintptr_t)page;
    remote_memory_read(&memory, pieces, 3);
    assert_false(pieces[1].done);
    assert_true(memory.stuck);
    uint64_t from = clock_monotonic_ns();
    remote_memory_read(&memory, pieces, 3); /* not again */
    assert_true(clock_monotonic_ns() - from < DEADLINE_MS * NS_PER_MS);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    while (deadline_lost(d) > 0)
        usleep(1000);
    deadline_free(d);
    munmap(page, 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_hangs_is_left_behind_and_others_go_on),
        cmocka_unit_test(freeing_waits_for_nobody),
        cmocka_unit_test(memory_that_nobody_fills_does_not_hold_us),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
