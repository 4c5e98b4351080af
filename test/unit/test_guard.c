/* The SIGBUS guard: faults of mapped books become errors, everything else stays what it was. */
#include "book/guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* A page that is mapped but not there. */
static volatile char *gone_page(void)
{
    int fd = memfd_create("gone", 0);
    char *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    return page == MAP_FAILED ? NULL : page;
}

static int read_byte(void *context)
{
    return *(volatile char *)context;
}

static int say_42(void *context)
{
    return 42;
}

static int fault_inside(void *context)
{
    int r = book_guard_run(read_byte, context);
    return r == -EIO ? 7 : r;
}

static void fault_becomes_an_error(void **unused)
{
    assert_int_equal(book_guard_install(), 0);
    char *page = (char *)gone_page();
    for (int i = 0; i < 3; i++) /* the signal is not left blocked */
        assert_int_equal(book_guard_run(read_byte, page), -EIO);
    munmap(page, 4096);
}

static void result_is_handed_through(void **unused)
{
    assert_int_equal(book_guard_run(say_42, NULL), 42);
}

static int fault_after_inside(void *context)
{
    book_guard_run(say_42, NULL);
    return read_byte(context);
}

static void guards_nest(void **unused)
{
    assert_int_equal(book_guard_install(), 0);
    char *page = (char *)gone_page();
    assert_int_equal(book_guard_run(fault_inside, page), 7);
    assert_int_equal(book_guard_run(fault_after_inside, page), -EIO);
    assert_int_equal(book_guard_run(read_byte, page), -EIO);
    munmap(page, 4096);
}

static void *fault_often(void *context)
{
    for (int i = 0; i < 1000; i++)
        if (book_guard_run(read_byte, context) != -EIO)
            return context;
    return NULL;
}

static void each_thread_has_its_own_guard(void **unused)
{
    assert_int_equal(book_guard_install(), 0);
    char *page = (char *)gone_page();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, fault_often, page), 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_null(result);
    }
    munmap(page, 4096);
}

static void mask_is_left_alone(void **unused)
{
    sigset_t before, after;
    assert_int_equal(book_guard_install(), 0);
    char *page = (char *)gone_page();
    sigprocmask(SIG_BLOCK, NULL, &before);
    assert_int_equal(book_guard_run(read_byte, page), -EIO);
    sigprocmask(SIG_BLOCK, NULL, &after);
    for (int s = 1; s < 32; s++)
        assert_int_equal(sigismember(&before, s), sigismember(&after, s));
    munmap(page, 4096);
}

/* ---- in children, since they die ---- */

/* How a child ended that ran `fn`. */
static int fate_of(void (*fn)(void))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGBUS, SIG_DFL);
        alarm(60);
        fn();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void fault_outside(void)
{
    book_guard_install();
    (void)*gone_page();
}

static void sent_outside(void)
{
    book_guard_install();
    kill(getpid(), SIGBUS);
}

static int send_it(void *context)
{
    kill(getpid(), SIGBUS);
    return 0;
}

static void sent_inside(void)
{
    book_guard_install();
    book_guard_run(send_it, NULL);
}

static void leave_with_5(int signo)
{
    _exit(5);
}

static void leave_with_6(int signo, siginfo_t *info, void *context)
{
    _exit(info->si_addr ? 6 : 1);
}

static void previous_handler(void)
{
    signal(SIGBUS, leave_with_5);
    book_guard_install();
    (void)*gone_page();
}

static void previous_siginfo_handler(void)
{
    struct sigaction action = {.sa_sigaction = leave_with_6, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
    book_guard_install();
    (void)*gone_page();
}

static void ignored_and_sent(void)
{
    signal(SIGBUS, SIG_IGN);
    book_guard_install();
    kill(getpid(), SIGBUS);
    _exit(8);
}

static void ignored_and_fault(void)
{
    signal(SIGBUS, SIG_IGN);
    book_guard_install();
    (void)*gone_page();
}

static struct sigaction saved;

static void give_back(int signo, siginfo_t *info, void *context)
{
    saved.sa_sigaction(signo, info, context);
}

/* Somebody saved our handler, chains to it, and we come first again. */
static void circle(void)
{
    struct sigaction action = {.sa_sigaction = give_back, .sa_flags = SA_SIGINFO | SA_NODEFER};
    book_guard_install();
    sigaction(SIGBUS, &action, &saved);
    book_guard_install();
    (void)*gone_page();
}

static void signals_that_are_not_ours_keep_their_meaning(void **unused)
{
    assert_int_equal(fate_of(fault_outside), -SIGBUS);
    assert_int_equal(fate_of(sent_outside), -SIGBUS);
    assert_int_equal(fate_of(sent_inside), -SIGBUS);
    assert_int_equal(fate_of(previous_handler), 5);
    assert_int_equal(fate_of(previous_siginfo_handler), 6);
    assert_int_equal(fate_of(ignored_and_sent), 8);
    assert_int_equal(fate_of(ignored_and_fault), -SIGBUS);
    assert_int_equal(fate_of(circle), -SIGBUS);
}

static void taken_place(void)
{
    book_guard_install();
    signal(SIGBUS, leave_with_5);
    book_guard_install();
    if (book_guard_run(read_byte, (void *)gone_page()) != -EIO)
        _exit(1);
    (void)*gone_page(); /* goes to the newcomer */
}

static void handler_set_meanwhile_is_put_second(void **unused)
{
    assert_int_equal(fate_of(taken_place), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_becomes_an_error),
        cmocka_unit_test(result_is_handed_through),
        cmocka_unit_test(guards_nest),
        cmocka_unit_test(each_thread_has_its_own_guard),
        cmocka_unit_test(mask_is_left_alone),
        cmocka_unit_test(signals_that_are_not_ours_keep_their_meaning),
        cmocka_unit_test(handler_set_meanwhile_is_put_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
