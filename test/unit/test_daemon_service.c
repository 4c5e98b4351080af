/* The lock of which only one memoird has hold, while others sweep the folder. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "daemon/service.h"

enum { SWEEPERS = 2, LOCKS = 20000 };

static char folder[64];
static int folder_fd = -1;

static int setup(void **state)
{
    strcpy(folder, "/tmp/memoir-service-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return folder_fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
    unlinkat(folder_fd, "books.lock", 0);
    close(folder_fd);
    return rmdir(folder);
}

static pid_t start_sweeper(void)
{
    pid_t pid = fork();
    if (pid == 0)
        for (;;)
            service_lock_sweep(folder, "books");
    assert_true(pid > 0);
    return pid;
}

static void the_holder_is_told(void **state)
{
    pid_t holder = 0;
    int fd = service_lock(folder_fd, "books.lock", &holder);
    assert_true(fd >= 0);
    assert_int_equal(service_lock(folder_fd, "books.lock", &holder), -EBUSY);
    assert_int_equal(holder, getpid());
    service_lock_sweep(folder, "books"); /* it is held: stays */
    assert_int_equal(faccessat(folder_fd, "books.lock", F_OK, 0), 0);
    close(fd);
    service_lock_sweep(folder, "books");
    assert_int_equal(faccessat(folder_fd, "books.lock", F_OK, 0), -1);
}

static void what_others_put_there_is_replaced(void **state)
{
    pid_t holder = 0;
    assert_int_equal(symlinkat("/etc/passwd", folder_fd, "books.lock"), 0);
    int fd = service_lock(folder_fd, "books.lock", &holder);
    assert_true(fd >= 0);
    struct stat st;
    assert_int_equal(fstatat(folder_fd, "books.lock", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_true(S_ISREG(st.st_mode));
    close(fd);
}

/* Between opening the file and locking it, a sweep may take its name away: try again, nothing else is wrong. */
static void sweeps_beside_us_are_no_error(void **state)
{
    pid_t sweepers[SWEEPERS];
    int taken = 0, wrong = 0, lost = 0;
    for (int i = 0; i < SWEEPERS; i++)
        sweepers[i] = start_sweeper();
    for (int i = 0; i < LOCKS; i++) {
        pid_t holder = 0, second = 0;
        int fd = service_lock(folder_fd, "books.lock", &holder);
        if (fd < 0) {
            wrong += fd != -EBUSY;
            continue;
        }
        taken++;
        lost += service_lock(folder_fd, "books.lock", &second) != -EBUSY; /* ours, by its name */
        close(fd);
    }
    for (int i = 0; i < SWEEPERS; i++) {
        kill(sweepers[i], SIGKILL);
        waitpid(sweepers[i], NULL, 0);
    }
    assert_int_equal(wrong, 0);
    assert_int_equal(lost, 0);
    assert_true(taken > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_holder_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(what_others_put_there_is_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(sweeps_beside_us_are_no_error, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
