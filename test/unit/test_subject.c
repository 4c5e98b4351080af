/* Who a process is, from outside: the same as it says itself. */
#include "ledger/subject.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "book/identity.h"
#include "book/layout.h"
#include "check.h"
#include "ledger/proc.h"

/* Words of a command line, which exec wants to be able to change. */
static char *self_path;
static char word_child[] = "child", word_setarch[] = "setarch", word_off[] = "-R",
            loader[] = "/lib64/ld-linux-x86-64.so.2";

/* A program that says its number, waits, and calls exec once more if it is told to. */
static int child_main(void)
{
    char word;
    uint64_t id = book_exec_id();
    if (write(1, &id, sizeof(id)) != sizeof(id) || read(0, &word, 1) != 1)
        return 1;
    if (word == 'x')
        execl("/proc/self/exe", "again", "child", NULL);
    return 0;
}

struct child {
    pid_t pid;
    int in, out;
};

static struct child start(char *const *command)
{
    int in[2], out[2];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        execvp(command[0], command);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    return (struct child){pid, in[1], out[0]};
}

static uint64_t says(const struct child *child)
{
    uint64_t id = 0;
    assert_int_equal(read(child->out, &id, sizeof(id)), sizeof(id));
    return id;
}

static void end(struct child *child)
{
    close(child->in);
    close(child->out);
    waitpid(child->pid, NULL, 0);
}

static void an_image_has_one_number_from_inside_and_outside(void **state)
{
    char *const commands[][5] = {
        {self_path, word_child, NULL},
        {word_setarch, word_off, self_path, word_child, NULL},
        {loader, self_path, word_child, NULL}, /* changes the vector on the stack */
    };
    assert_int_equal(subject_exec_id(getpid()), book_exec_id());
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (commands[i][0] == loader && access(loader, X_OK) < 0)
            continue;
        struct child child = start(commands[i]);
        uint64_t id = says(&child);
        assert_int_not_equal(id, 0);
        assert_int_not_equal(id, book_exec_id());
        assert_int_equal(subject_exec_id(child.pid), id);
        end(&child);
    }
}

static void exec_gives_another_number_and_fork_does_not(void **state)
{
    struct child child = start((char *const[]){self_path, word_child, NULL});
    uint64_t first = says(&child);
    assert_int_equal(write(child.in, "x", 1), 1);
    uint64_t second = says(&child);
    assert_int_not_equal(first, second);
    assert_int_equal(subject_exec_id(child.pid), second);
    end(&child);
    pid_t twin = fork();
    if (twin == 0)
        _exit(book_exec_id() == subject_exec_id(getppid()) ? 0 : 1);
    int status;
    waitpid(twin, &status, 0);
    assert_int_equal(status, 0);
}

static void nobody_has_no_number(void **state)
{
    assert_int_equal(subject_exec_id(0x7ffffff0), 0);
    assert_int_equal(book_exec_id_of(NULL, 0), 0);
    struct book_auxv without[] = {{9, 4711}, {0, 0}, {25, 4711}}; /* behind the end */
    assert_int_equal(book_exec_id_of(without, 3), 0);
}

static void subject_is_described_as_it_describes_itself(void **state)
{
    struct book_header header = {0};
    uint8_t boot[sizeof(header.boot_id)];
    struct stat st;
    assert_int_equal(subject_read(getpid(), geteuid(), &header), 0);
    assert_int_equal(header.pid, getpid());
    assert_int_equal(header.uid, geteuid());
    assert_int_equal(stat("/proc/self/ns/pid", &st), 0);
    assert_int_equal(header.pid_ns, st.st_ino);
    assert_int_equal(stat("/proc/self/ns/time", &st), 0);
    assert_int_equal(header.time_ns, st.st_ino);
    assert_int_equal(header.exec_id, book_exec_id());
    assert_string_equal(header.comm, "test_subject");
    assert_string_equal(header.exe, self_path);
    book_boot_id(boot);
    assert_memory_equal(header.boot_id, boot, sizeof(boot));
    struct proc_stat now;
    assert_int_equal(proc_stat_read(getpid(), &now), 0);
    assert_int_equal(header.start_ticks, now.start_ticks);
}

/* Root may report for every process, a user for its own, and nobody for one that is gone. */
static void user_speaks_for_its_own_processes_only(void **state)
{
    struct book_header header = {0};
    if (geteuid() != 0)
        skip();
    struct child child = start((char *const[]){self_path, word_child, NULL});
    says(&child);
    assert_int_equal(subject_read(child.pid, 0, &header), 0);
    assert_int_equal(subject_read(child.pid, 1234, &header), -EPERM);
    pid_t other = fork();
    if (other == 0) {
        if (setresuid(1234, 1234, 1234) < 0)
            _exit(1);
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves it behind */
        pause();
        _exit(0);
    }
    struct proc_ids ids = {0};
    while (ids.effective_uid != 1234) {
        assert_int_equal(waitpid(other, NULL, WNOHANG), 0); /* it lives */
        assert_int_equal(proc_ids_read(other, &ids), 0);
    }
    assert_int_equal(subject_read(other, 1234, &header), 0);
    assert_int_equal(header.uid, 1234);
    assert_int_equal(subject_read(other, 1235, &header), -EPERM);
    assert_int_equal(subject_read(other, 0, &header), 0);
    assert_int_equal(kill(other, SIGKILL), 0);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)other, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(subject_read(other, 0, &header), -ESRCH);
    assert_int_equal(waitpid(other, NULL, 0), other);
    assert_int_equal(subject_read(other, 0, &header), -ESRCH);
    end(&child);
}

/* Its book names the process as it sees itself. */
static void subject_in_a_container_has_the_pid_that_it_knows(void **state)
{
    int report[2];
    pid_t inner = 0;
    struct book_header header = {0};
    if (geteuid() != 0)
        skip();
    assert_int_equal(pipe(report), 0);
    pid_t outer = fork();
    if (outer == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (unshare(CLONE_NEWPID) < 0)
            _exit(1);
        inner = fork();
        if (inner == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            pause();
            _exit(0);
        }
        (void)!write(report[1], &inner, sizeof(inner));
        waitpid(inner, NULL, 0);
        _exit(0);
    }
    close(report[1]);
    bool known = read(report[0], &inner, sizeof(inner)) == sizeof(inner);
    close(report[0]);
    if (known) {
        assert_int_equal(subject_read(inner, 0, &header), 0);
        assert_int_equal(header.pid, 1);
        assert_int_equal(kill(inner, SIGKILL), 0);
    }
    assert_int_equal(waitpid(outer, NULL, 0), outer);
    if (!known)
        skip(); /* no namespaces here */
}

static void ticks_are_counted_whether_or_not_it_is_said_how_long_they_are(void **state)
{
    const int64_t ns = INT64_C(3000000000);
    assert_int_equal(book_ticks_of(ns, 100), 300);
    assert_int_equal(book_ticks_of(-ns, 250), -750);
    assert_int_equal(book_ticks_of(ns, 0), 300);
    assert_int_equal(book_ticks_of(ns, UINT64_MAX), 300);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "child") == 0)
        return child_main();
    self_path = realpath("/proc/self/exe", NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_image_has_one_number_from_inside_and_outside),
        cmocka_unit_test(exec_gives_another_number_and_fork_does_not),
        cmocka_unit_test(nobody_has_no_number),
        cmocka_unit_test(subject_is_described_as_it_describes_itself),
        cmocka_unit_test(user_speaks_for_its_own_processes_only),
        cmocka_unit_test(subject_in_a_container_has_the_pid_that_it_knows),
        cmocka_unit_test(ticks_are_counted_whether_or_not_it_is_said_how_long_they_are),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(self_path);
    return failed;
}
