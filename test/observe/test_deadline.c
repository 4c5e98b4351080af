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
    struct remote_memory memory = {.pid = pid, .deadline = d, .owner = USER, .file_uid = geteuid()};
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

/* A process of a user's, which becomes one that its user may not trace, as by executing a set-uid program. */
static void memory_of_what_its_user_may_not_trace_is_not_read(void **state)
{
    enum { NOBODY = 65534 };
    struct remote_memory memory;
    struct deadline *d;
    int to_child[2], from_child[2];
    char byte;
    uint64_t secret = 42, got = 0;
    if (geteuid() != 0)
        skip();
    assert_int_equal(pipe(to_child) | pipe(from_child), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0 ||
            prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) /* which a change of the user clears */
            _exit(1);
        for (unsigned long may = 1;; may = 0)
            if (prctl(PR_SET_DUMPABLE, may, 0, 0, 0) < 0 || write(from_child[1], "", 1) != 1 ||
                read(to_child[0], &byte, 1) != 1)
                _exit(1);
    }
    assert_int_equal(read(from_child[0], &byte, 1), 1);
    assert_int_equal(deadline_new(&d), 0);
    remote_memory_init(&memory, pid, d);
    assert_true(remote_read_one(remote_memory_read, &memory, (uintptr_t)&secret, &got, 8));
    assert_int_equal(got, 42);
    assert_int_equal(write(to_child[1], "", 1), 1);
    assert_int_equal(read(from_child[0], &byte, 1), 1);
    assert_false(remote_read_one(remote_memory_read, &memory, (uintptr_t)&secret, &got, 8));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    deadline_free(d);
}

/* A server that starts as root and becomes a user: it is read on, as that user's. */
static void memory_of_root_that_becomes_a_users_is_read_as_that_users(void **state)
{
    enum { NOBODY = 65534 };
    struct remote_memory memory;
    struct deadline *d;
    int to_child[2], from_child[2];
    char byte;
    uint64_t word = 42, got = 0;
    if (geteuid() != 0)
        skip();
    assert_int_equal(pipe(to_child) | pipe(from_child), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (write(from_child[1], "", 1) != 1 || read(to_child[0], &byte, 1) != 1 ||
            setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0 ||
            prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 ||
            write(from_child[1], "", 1) != 1 || read(to_child[0], &byte, 1) != 1)
            _exit(1);
    }
    assert_int_equal(read(from_child[0], &byte, 1), 1);
    assert_int_equal(deadline_new(&d), 0);
    remote_memory_init(&memory, pid, d);
    assert_true(remote_read_one(remote_memory_read, &memory, (uintptr_t)&word, &got, 8));
    assert_int_equal(memory.owner, 0);
    assert_null(memory.deadline);
    assert_int_equal(write(to_child[1], "", 1), 1);
    assert_int_equal(read(from_child[0], &byte, 1), 1);
    assert_false(remote_read_one(remote_memory_read, &memory, (uintptr_t)&word, &got, 8));
    assert_true(remote_read_one(remote_memory_read, &memory, (uintptr_t)&word, &got, 8));
    assert_int_equal(memory.owner, NOBODY);
    assert_ptr_equal(memory.deadline, d);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    deadline_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_hangs_is_left_behind_and_others_go_on),
        cmocka_unit_test(freeing_waits_for_nobody),
        cmocka_unit_test(memory_that_nobody_fills_does_not_hold_us),
        cmocka_unit_test(memory_of_what_its_user_may_not_trace_is_not_read),
        cmocka_unit_test(memory_of_root_that_becomes_a_users_is_read_as_that_users),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
