/* Marks of processes, from the real kernel: where one stays the same, so does what /proc says. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bpf/tasks.h"
#include "check.h"

enum { PAGES = 400, PAGE = 4096 };

static struct tasks *tasks;

static int setup(void **state)
{
    char why[EXITS_WHY_MAX];
    if (tasks_open(&tasks, why) < 0)
        print_message("no marks here: %s\n", why);
    return 0;
}

static int teardown(void **state)
{
    tasks_free(tasks);
    return 0;
}

static uint64_t mark_of(pid_t pid, bool *ret_listed)
{
    const struct task_mark *marks;
    size_t n;
    uint64_t mark = 0;
    bool listed = false;
    assert_int_equal(tasks_read(tasks, &marks, &n), 0);
    for (size_t i = 0; i < n; i++) {
        assert_true(i == 0 || marks[i - 1].pid < marks[i].pid);
        if (marks[i].pid == pid) {
            mark = marks[i].mark;
            listed = true;
        }
    }
    if (ret_listed)
        *ret_listed = listed;
    return mark;
}

static void statm_of(pid_t pid, char text[static 128])
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t n = read(fd, text, 127);
    assert_true(n > 0);
    text[n] = '\0';
    close(fd);
}

/* Touches one more page, or gives one back, for each byte that it gets, and answers. */
static pid_t toucher(int *ret_to, int *ret_from)
{
    int down[2], up[2];
    assert_int_equal(pipe(down), 0);
    assert_int_equal(pipe(up), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(down[1]);
        close(up[0]);
        char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        char word;
        for (size_t at = 0; read(down[0], &word, 1) == 1; at = (at + 1) % PAGES) {
            if (word == '+')
                memory[at * PAGE] = 1;
            else if (word == '-')
                madvise(memory, PAGES * PAGE, MADV_DONTNEED);
            if (write(up[1], &word, 1) != 1)
                break;
        }
        _exit(0);
    }
    close(down[0]);
    close(up[1]);
    *ret_to = down[1];
    *ret_from = up[0];
    return pid;
}

static void step(int to, int from, char word)
{
    assert_int_equal(write(to, &word, 1), 1);
    assert_int_equal(read(from, &word, 1), 1);
}

/* One page is less than what a processor counts for itself before it tells the others. */
static void a_single_page_makes_another_mark(void **state)
{
    int to, from;
    char before[128], after[128];
    if (!tasks)
        skip();
    pid_t pid = toucher(&to, &from);
    step(to, from, '+'); /* and all that a first step touches besides */
    step(to, from, ' ');
    statm_of(pid, before);
    uint64_t mark = mark_of(pid, NULL);
    size_t changes = 0;
    for (int i = 0; i < PAGES; i++) {
        step(to, from, i % 100 == 99 ? '-' : '+');
        uint64_t now = mark_of(pid, NULL);
        statm_of(pid, after);
        assert_true(now != 0);
        /* The promise; unless the kernel took a page from it between these two lines. */
        if (now == mark && strcmp(before, after) != 0)
            assert_true(mark_of(pid, NULL) != now);
        changes += now != mark;
        mark = now;
        memcpy(before, after, sizeof(before));
    }
    assert_true(changes > PAGES / 2); /* and it is worth something */
    /* Who does nothing keeps his mark. The kernel may fold its counters at any time, but not each time. */
    size_t same = 0;
    for (int i = 0; i < 20; i++) {
        uint64_t now = mark_of(pid, NULL);
        same += now == mark;
        mark = now;
    }
    assert_true(same >= 10);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(to);
    close(from);
}

static void who_has_no_memory_is_listed_without_a_mark(void **state)
{
    bool listed;
    siginfo_t info;
    if (!tasks)
        skip();
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0); /* it is a zombie */
    assert_int_equal(mark_of(pid, &listed), 0);
    assert_true(listed);
    waitpid(pid, NULL, 0);
    (void)mark_of(pid, &listed);
    assert_false(listed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_single_page_makes_another_mark),
        cmocka_unit_test(who_has_no_memory_is_listed_without_a_mark),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
