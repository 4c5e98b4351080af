/* A ledger that keeps itself up to date, over books of real children. */
#include "ledger/follow.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "check.h"
#include "ledger/ledger.h"

static char root[64], place[96];
static struct follow *follow;

static int enter(void **unused)
{
    strcpy(root, "/dev/shm/memoir-test-follow-XXXXXX");
    if (!mkdtemp(root) || setenv("MEMOIR_DIR", root, 1) < 0)
        return -1;
    snprintf(place, sizeof(place), "%s/%u", root, (unsigned)getuid());
    return follow_new(root, &follow);
}

static int leave(void **unused)
{
    char command[128];
    follow_free(follow);
    follow = NULL;
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command) == 0 ? 0 : -1;
}

/* A child that holds one block. */
static pid_t child_start(void)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int device = memoir_device(&(struct memoir_device_options){
            .struct_size = sizeof(struct memoir_device_options),
            .kind = MEMOIR_DEVICE_SIMULATED,
            .name = "D",
        });
        memoir_alloc(device, MEMOIR_SPACE_DRAM, 1, 3000);
        if (write(ready[1], "", 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void child_kill(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static struct ledger_process *look_for(pid_t pid)
{
    assert_int_equal(follow_look(follow, true), 0);
    return ledger_process_find(follow_ledger(follow), pid);
}

/* A book that took long to read waits for its turn, on a busy machine. */
static void expect_used(uint64_t bytes)
{
    uint64_t used = UINT64_MAX;
    for (int i = 0; i < 1000 && used != bytes; i++) {
        size_t n;
        assert_int_equal(follow_look(follow, false), 0);
        struct ledger_device *const *devices = ledger_devices(follow_ledger(follow), &n);
        used = n ? devices[0]->spaces[MEMOIR_SPACE_DRAM].used : 0;
        usleep(i ? 1000 : 0);
    }
    assert_int_equal(used, bytes);
}

static size_t processes(void)
{
    size_t n;
    ledger_processes(follow_ledger(follow), &n);
    return n;
}

static void books_come_and_figures_follow(void **unused)
{
    assert_int_equal(follow_look(follow, false), 0);
    assert_int_equal(processes(), 0);
    pid_t first = child_start(), second = child_start();
    struct ledger_process *p = look_for(first);
    assert_non_null(p);
    assert_int_equal(p->state, LEDGER_RUNNING);
    assert_true(p->valid & LEDGER_HAS_RSS);
    assert_int_equal(processes(), 2);
    struct ledger_process *same = look_for(first);
    assert_ptr_equal(p, same); /* known books are kept */
    expect_used(6000);
    child_kill(first);
    child_kill(second);
}

static void the_dead_are_seen_at_the_next_look(void **unused)
{
    pid_t pid = child_start();
    assert_int_equal(look_for(pid)->state, LEDGER_RUNNING);
    child_kill(pid);
    assert_int_equal(look_for(pid)->state, LEDGER_EXITED);
    expect_used(0);
}

static void a_name_that_is_gone_takes_its_process_along(void **unused)
{
    pid_t pid = child_start(), other = child_start();
    struct ledger_process *p = look_for(pid);
    assert_int_equal(unlinkat(p->books[0]->dirfd, p->books[0]->name, 0), 0);
    assert_null(look_for(pid));
    assert_int_equal(processes(), 1);
    child_kill(pid);
    child_kill(other);
}

static void what_is_no_book_is_looked_at_once(void **unused)
{
    pid_t pid = child_start();
    char path[160], junk[5000];
    memset(junk, 'x', sizeof(junk));
    snprintf(path, sizeof(path), "%s/1-2-client-abcdef.book", place);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, junk, sizeof(junk)), sizeof(junk));
    close(fd);
    for (int i = 0; i < 5; i++)
        assert_non_null(look_for(pid));
    assert_int_equal(processes(), 1);
    assert_int_equal(ledger_problem_count(follow_ledger(follow), LEDGER_PROBLEM_BAD), 1);
    child_kill(pid);
}

static void a_directory_that_is_made_again_is_another_one(void **unused)
{
    pid_t pid = child_start();
    assert_non_null(look_for(pid));
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", place);
    assert_int_equal(system(command), 0);
    assert_null(look_for(pid));
    pid_t next = child_start();
    assert_non_null(look_for(next));
    assert_int_equal(processes(), 1);
    child_kill(pid);
    child_kill(next);
}

static int descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void directories_that_come_and_go_keep_no_descriptor(void **unused)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", place);
    assert_int_equal(follow_look(follow, false), 0);
    int before = descriptors();
    for (int i = 0; i < 10; i++) {
        pid_t pid = child_start();
        assert_non_null(look_for(pid));
        child_kill(pid);
        assert_int_equal(system(command), 0);
    }
    assert_int_equal(follow_look(follow, false), 0);
    assert_int_equal(descriptors(), before);
}

static void nobody_watches_without_a_daemon(void **unused)
{
    pid_t pid = child_start();
    assert_non_null(look_for(pid));
    assert_false(follow_watched(follow));
    child_kill(pid);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, enter, leave)
    const struct CMUnitTest tests[] = {
        TEST(books_come_and_figures_follow),
        TEST(the_dead_are_seen_at_the_next_look),
        TEST(a_name_that_is_gone_takes_its_process_along),
        TEST(what_is_no_book_is_looked_at_once),
        TEST(a_directory_that_is_made_again_is_another_one),
        TEST(directories_that_come_and_go_keep_no_descriptor),
        TEST(nobody_watches_without_a_daemon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
