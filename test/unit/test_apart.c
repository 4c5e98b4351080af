/* Work in a child that may hang, die, or say more than was expected. */
#include "base/apart.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "check.h"

enum { LATE_MS = 300, LONG_MS = 120000 }; /* soon; and never, but for a machine under load */

static const struct apart_options patient = {.all_ms = LONG_MS};

static void no_child_is_left(void)
{
    while (waitpid(-1, NULL, 0) > 0) /* one that lives holds us up here */
        ;
    assert_int_equal(errno, ECHILD);
}

static int say(struct buffer *out, void *context)
{
    return buffer_append_str(out, context);
}

static void what_it_found_comes_back(void **unused)
{
    struct buffer out = BUFFER_INIT(100);
    buffer_append_str(&out, "here: ");
    assert_int_equal(apart_run(say, (void *)"found", &patient, &out), 0);
    assert_string_equal(out.data, "here: found");
    no_child_is_left();
    buffer_release(&out);
}

static int die_silently(struct buffer *out, void *context)
{
    _exit(0);
}

static void who_ignores_the_ends_of_children_is_told_all_the_same(void **unused)
{
    struct buffer out = BUFFER_INIT(100);
    signal(SIGCHLD, SIG_IGN);
    assert_int_equal(apart_run(say, (void *)"found", &patient, &out), 0);
    assert_string_equal(out.data, "found");
    assert_int_equal(apart_run(die_silently, NULL, &patient, &out), -ECHILD);
    assert_string_equal(out.data, "found");
    signal(SIGCHLD, SIG_DFL);
    buffer_release(&out);
}

static int say_much(struct buffer *out, void *context)
{
    size_t n = *(const size_t *)context;
    char *room = buffer_reserve(out, n);
    if (!room)
        return out->error;
    for (size_t i = 0; i < n; i++)
        room[i] = (char)(i * 31 >> 8);
    buffer_commit(out, n);
    return 0;
}

static void much_comes_back_whole_up_to_the_limit(void **unused)
{
    for (size_t n = 1; n <= 8 << 20; n = n < 1000 ? n * 7 : n * 3) {
        struct buffer out = BUFFER_INIT(n);
        assert_int_equal(apart_run(say_much, &n, &patient, &out), 0);
        assert_int_equal(out.len, n);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(out.data[i], (char)(i * 31 >> 8));
        buffer_release(&out);
    }
}

static void more_than_fits_is_an_error_and_leaves_what_was_there(void **unused)
{
    struct buffer out = BUFFER_INIT(1000);
    size_t n = 1000;
    buffer_append_str(&out, "before");
    assert_int_equal(apart_run(say_much, &n, &patient, &out), -ENOBUFS);
    assert_string_equal(out.data, "before");
    assert_int_equal(buffer_append_str(&out, " and after"), 0);
    no_child_is_left();
    buffer_release(&out);
}

static int half_way(struct buffer *out, void *context)
{
    buffer_append_str(out, "half");
    return *(const int *)context;
}

static void its_error_comes_back_alone(void **unused)
{
    struct buffer out = BUFFER_INIT(100);
    int error = -ENOENT;
    assert_int_equal(apart_run(half_way, &error, &patient, &out), -ENOENT);
    assert_int_equal(out.len, 0);
    buffer_release(&out);
}

static int die(struct buffer *out, void *context)
{
    buffer_append_str(out, "half");
    raise(SIGKILL);
    return 0;
}

static void one_that_dies_is_told(void **unused)
{
    struct buffer out = BUFFER_INIT(100);
    assert_int_equal(apart_run(die, NULL, &patient, &out), -ECHILD);
    assert_int_equal(out.len, 0);
    no_child_is_left();
}

static int hang(struct buffer *out, void *context)
{
    while (pause())
        ;
    return 0;
}

static void one_that_hangs_is_killed(void **unused)
{
    struct buffer out = BUFFER_INIT(100);
    struct apart_options all = {.all_ms = LATE_MS}, silent = {.silent_ms = LATE_MS};
    for (int i = 0; i < 2 * APART_OWNER_MAX; i++)
        assert_int_equal(apart_run(hang, NULL, i % 2 ? &all : &silent, &out), -ETIME);
    no_child_is_left();
}

/* Tell that it is there, and wait until nobody holds the other end of the pipe. */
struct holding {
    int there[2], until[2];
};

static int hold(struct buffer *out, void *context)
{
    const struct holding *h = context;
    char byte = 0;
    close(h->until[1]);
    return write(h->there[1], &byte, 1) == 1 && read(h->until[0], &byte, 1) == 0 ? 0 : -EIO;
}

static void *run_hold(void *context)
{
    struct buffer out = BUFFER_INIT(100);
    struct apart_options options = {.all_ms = LONG_MS, .owner = 1, .keep_files = true};
    intptr_t r = apart_run(hold, context, &options, &out);
    buffer_release(&out);
    return (void *)r;
}

/* Whoever makes memory hang: others are served. */
static void an_owner_has_places_of_his_own(void **unused)
{
    pthread_t threads[APART_OWNER_MAX];
    struct buffer out = BUFFER_INIT(100);
    struct apart_options one = {.all_ms = LONG_MS, .owner = 1}, other = {.all_ms = LONG_MS};
    struct holding h;
    char byte;
    assert_true(pipe(h.there) == 0 && pipe(h.until) == 0);
    for (int i = 0; i < APART_OWNER_MAX; i++) {
        assert_int_equal(apart_run(say, (void *)"", &one, &out), 0);
        assert_int_equal(pthread_create(&threads[i], NULL, run_hold, &h), 0);
        assert_int_equal(read(h.there[0], &byte, 1), 1);
    }
    assert_int_equal(apart_run(say, (void *)"", &one, &out), -EBUSY);
    assert_int_equal(apart_run(say, (void *)"other", &other, &out), 0);
    assert_string_equal(out.data, "other");
    close(h.until[1]);
    for (int i = 0; i < APART_OWNER_MAX; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_null(result);
    }
    assert_int_equal(apart_run(say, (void *)"", &one, &out), 0);
    close(h.until[0]);
    close(h.there[0]);
    close(h.there[1]);
    no_child_is_left();
    buffer_release(&out);
}

static int beat_for_long(struct buffer *out, void *context)
{
    uint64_t until_ns = clock_monotonic_ns() + *(const uint64_t *)context;
    while (clock_monotonic_ns() < until_ns) {
        usleep(1000);
        apart_beat();
    }
    return buffer_append_str(out, "done");
}

static void one_that_goes_on_may_take_its_time(void **unused)
{
    struct buffer out = BUFFER_INIT(100);
    uint64_t ns = 5 * NS_PER_S;
    assert_int_equal(
        apart_run(beat_for_long, &ns, &(struct apart_options){.silent_ms = 3000}, &out), 0);
    assert_string_equal(out.data, "done");
    buffer_release(&out);
    apart_beat(); /* nobody listens */
}

static int list_descriptors(struct buffer *out, void *context)
{
    for (int fd = 0; fd < 256; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            buffer_append_char(out, (char)fd);
    char path[64];
    ssize_t n = readlink("/proc/self/fd/1", path, sizeof(path));
    return buffer_append(out, path, n > 0 ? (size_t)n : 0);
}

static void it_holds_no_descriptor_of_ours(void **unused)
{
    struct buffer out = BUFFER_INIT(1000);
    int fd = open("/dev/zero", O_RDONLY), far = fcntl(fd, F_DUPFD, 200);
    assert_true(fd >= 0 && far >= 200);
    assert_int_equal(apart_run(list_descriptors, NULL, &patient, &out), 0);
    assert_int_equal(out.len, 4 + strlen("/dev/null"));
    assert_memory_equal(out.data, "\0\1\2\3/dev/null", 4 + strlen("/dev/null"));
    close(fd);
    close(far);
    buffer_release(&out);
}

static int say_group(struct buffer *out, void *context)
{
    return buffer_append_str(out, getpgrp() == getpid() ? "own" : "its parent's");
}

static void signals_of_the_terminal_do_not_reach_it(void **unused)
{
    struct buffer out = BUFFER_INIT(100);
    assert_int_equal(apart_run(say_group, NULL, &patient, &out), 0);
    assert_string_equal(out.data, "own");
    buffer_release(&out);
}

static int call_and_wait(struct buffer *out, void *context)
{
    if (write(*(const int *)context, "", 1) == 1)
        pause();
    return 0;
}

static void it_ends_with_who_asked(void **unused)
{
    struct apart_options options = {.all_ms = LONG_MS, .keep_files = true};
    struct buffer out = BUFFER_INIT(100);
    int fds[2];
    char byte;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        apart_run(call_and_wait, &fds[1], &options, &out);
        _exit(0);
    }
    close(fds[1]);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    kill(pid, SIGKILL);
    assert_int_equal(read(fds[0], &byte, 1), 0); /* nobody has the other end any more */
    close(fds[0]);
    no_child_is_left();
}

/* ---- memory that never comes ---- */

struct absent {
    pid_t pid;
    void *page;
};

static int read_absent(struct buffer *out, void *context)
{
    const struct absent *absent = context;
    char word[8];
    struct iovec local = {word, sizeof(word)}, remote = {absent->page, sizeof(word)};
    ssize_t n = process_vm_readv(absent->pid, &local, 1, &remote, 1, 0);
    return n < 0 ? -errno : buffer_append(out, word, (size_t)n);
}

static void memory_that_never_comes_holds_nobody_up(void **unused)
{
    struct buffer out = BUFFER_INIT(100);
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0)
        skip();
    struct absent absent = {.pid = getpid()};
    absent.page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register wanted = {.range = {(uintptr_t)absent.page, 4096},
                                     .mode = UFFDIO_REGISTER_MODE_MISSING};
    assert_int_equal(ioctl(fd, UFFDIO_REGISTER, &wanted), 0);
    for (int i = 0; i < APART_OWNER_MAX + 2; i++)
        assert_int_equal(
            apart_run(read_absent, &absent, &(struct apart_options){.all_ms = LATE_MS}, &out),
            -ETIME);
    no_child_is_left();
    close(fd);
    munmap(absent.page, 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_it_found_comes_back),
        cmocka_unit_test(who_ignores_the_ends_of_children_is_told_all_the_same),
        cmocka_unit_test(much_comes_back_whole_up_to_the_limit),
        cmocka_unit_test(more_than_fits_is_an_error_and_leaves_what_was_there),
        cmocka_unit_test(its_error_comes_back_alone),
        cmocka_unit_test(one_that_dies_is_told),
        cmocka_unit_test(one_that_hangs_is_killed),
        cmocka_unit_test(an_owner_has_places_of_his_own),
        cmocka_unit_test(one_that_goes_on_may_take_its_time),
        cmocka_unit_test(it_holds_no_descriptor_of_ours),
        cmocka_unit_test(signals_of_the_terminal_do_not_reach_it),
        cmocka_unit_test(it_ends_with_who_asked),
        cmocka_unit_test(memory_that_never_comes_holds_nobody_up),
    };
    return cmocka_run_group_tests_name("apart", tests, NULL, NULL);
}
