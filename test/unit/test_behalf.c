/* Books on behalf of others: their life, and what a daemon after ours makes of them. */
#include "daemon/behalf.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "book/reader.h"
#include "check.h"
#include "daemon/allowance.h"
#include "daemon/daemon.h"
#include "daemon/loop.h"
#include "daemon/reaper.h"
#include "daemon/retired.h"
#include "daemon/server.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"

struct world {
    char dir[64];
    struct daemon daemon;
    struct server server;
};

/* What of a daemon books need; no sockets, no watch. */
static void daemon_begin(struct world *w)
{
    struct daemon *d = &w->daemon;
    *d = (struct daemon){.state_fd = -1, .lock_fds = {-1, -1}};
    d->config.dir = w->dir;
    d->config.buffers_per_client_max = 1000000;
    d->config.remote_expire_ns = 50 * NS_PER_MS;
    d->config.retired_blocks = 10;
    d->state_path = (char *)"none";
    d->server = &w->server;
    w->server = (struct server){.daemon = d};
    assert_int_equal(book_guard_install(), 0);
    assert_int_equal(loop_new(&d->loop), 0);
    assert_int_equal(ledger_new(NULL, &d->ledger), 0);
    assert_int_equal(retired_new(-1, 100, 0, &d->retired), 0);
    assert_int_equal(allowance_new(1000, NS_PER_S, &d->retire_share), 0);
    assert_int_equal(reaper_new(d, &d->reaper), 0);
    assert_int_equal(behalf_table_new(d, &d->behalf), 0);
}

static void daemon_end(struct world *w)
{
    struct daemon *d = &w->daemon;
    reaper_release_books(d);
    behalf_table_free(d->behalf);
    ledger_free(d->ledger);
    reaper_free(d->reaper);
    loop_free(d->loop);
    retired_free(d->retired);
    allowance_free(d->retire_share);
}

/* As the next daemon's search would find the books that the last one left. */
static void books_find(struct world *w)
{
    char place[128], command[256];
    snprintf(place, sizeof(place), "%s/%u", w->dir, geteuid());
    static int dirfd = -1; /* must outlive the ledger's books */
    if (dirfd >= 0)
        close(dirfd);
    dirfd = open(place, O_RDONLY | O_DIRECTORY);
    assert_true(dirfd >= 0);
    snprintf(command, sizeof(command), "ls %s", place);
    FILE *names = popen(command, "r");
    char name[128];
    while (fgets(name, sizeof(name), names)) {
        name[strcspn(name, "\n")] = '\0';
        struct ledger_where where = {
            .dirfd = dirfd, .name = name, .fd = -1, .uid = geteuid(), .place = place};
        struct ledger_book *book;
        assert_int_equal(ledger_book_add(w->daemon.ledger, &where, &book), 0);
        reaper_add(&w->daemon, book);
    }
    pclose(names);
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    strcpy(w->dir, "/dev/shm/memoir-behalf-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    daemon_begin(w);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    daemon_end(w);
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", w->dir);
    assert_int_equal(system(command), 0);
    free(w);
    return 0;
}

static size_t files(const struct world *w)
{
    char command[160];
    size_t n = 0;
    snprintf(command, sizeof(command), "ls %s/*/*.book 2>/dev/null | wc -l", w->dir);
    FILE *out = popen(command, "r");
    assert_int_equal(fscanf(out, "%zu", &n), 1);
    pclose(out);
    return n;
}

static pid_t sleeper(void)
{
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    return child;
}

static void end(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static struct behalf *get(struct world *w, pid_t pid)
{
    struct behalf *b = NULL;
    struct behalf_subject subject = {.source = BOOK_SOURCE_SOCKET, .pid = pid};
    assert_int_equal(behalf_get(&w->daemon, &subject, &b), 0);
    return b;
}

static int device(struct behalf *b)
{
    struct memoir_capacity capacity = {MEMOIR_SPACE_DRAM, 1 << 30};
    return behalf_device(b, &(struct behalf_device){.kind = MEMOIR_DEVICE_NPU,
                                                    .ordinal = 2,
                                                    .name = "chip",
                                                    .uid = "asic-7",
                                                    .capacity = &capacity,
                                                    .n_capacity = 1});
}

static uint32_t account(struct behalf *b, int space)
{
    int number = behalf_account(b, device(b), space);
    assert_true(number > 0);
    return (uint32_t)number;
}

static struct behalf_figures figures(struct behalf *b, uint32_t number)
{
    struct behalf_figures f;
    assert_int_equal(behalf_figures(b, number, &f), 0);
    return f;
}

static void the_ledger_sees_what_is_reported(void **state)
{
    struct world *w = *state;
    struct behalf *b = get(w, getpid());
    uint32_t dram = account(b, MEMOIR_SPACE_DRAM);
    assert_int_equal(behalf_alloc(b, dram, 1, 100, 0), 0);
    assert_int_equal(behalf_alloc(b, dram, 2, 200, 0), 0);
    uint64_t bytes = 0;
    assert_int_equal(behalf_free(b, dram, 1, &bytes), 0);
    assert_int_equal(bytes, 100);
    assert_int_equal(behalf_free(b, dram, 1, NULL), -ENOENT);
    assert_int_equal(behalf_losses(b, BOOK_LOSS_UNKNOWN_FREE), 1);
    assert_int_equal(figures(b, dram).live_bytes, 200);
    assert_int_equal(figures(b, dram).peak_bytes, 300);
    assert_int_equal(figures(b, dram).capacity, 1 << 30);
    ledger_refresh(w->daemon.ledger);
    struct ledger_process *p = ledger_process_find(w->daemon.ledger, getpid());
    assert_non_null(p);
    assert_int_equal(p->n_accounts, 1);
    assert_int_equal(p->accounts[0].totals.live_bytes, 200);
    assert_int_equal(p->accounts[0].totals.peak_bytes, 300);
    assert_true(p->accounts[0].on_behalf);
    assert_int_equal(p->uid, geteuid());
    /* The same process again is the same book. */
    struct behalf *again = get(w, getpid());
    assert_ptr_equal(again, b);
    assert_int_equal(files(w), 1);
    behalf_unref(again);
    behalf_unref(b);
}

static void nonsense_is_refused_and_counted(void **state)
{
    struct world *w = *state;
    struct behalf *b = get(w, getpid());
    uint32_t dram = account(b, MEMOIR_SPACE_DRAM);
    assert_int_equal(behalf_alloc(b, dram, 1, UINT64_C(1) << 48, 0), -EINVAL);
    assert_int_equal(behalf_alloc(b, 0, 1, 1, 0), -EINVAL);
    assert_int_equal(behalf_alloc(b, 4000, 1, 1, 0), -EINVAL);
    assert_int_equal(behalf_alloc(b, (uint32_t)device(b), 1, 1, 0), -EINVAL); /* no account */
    assert_int_equal(behalf_account(b, 99, MEMOIR_SPACE_DRAM), -EINVAL);
    assert_int_equal(behalf_account(b, 0, 77), -EINVAL);
    assert_int_equal(behalf_losses(b, BOOK_LOSS_BAD_ARGUMENT), 6);
    w->daemon.config.buffers_per_client_max = 2;
    assert_int_equal(behalf_alloc(b, dram, 1, 1, 0), 0);
    assert_int_equal(behalf_alloc(b, dram, 2, 1, 0), 0);
    assert_int_equal(behalf_alloc(b, dram, 3, 1, 0), -EDQUOT);
    assert_int_equal(behalf_losses(b, BOOK_LOSS_LIMIT), 1);
    assert_int_equal(figures(b, dram).live_blocks, 2);
    behalf_unref(b);
}

static void nobody_has_no_book(void **state)
{
    struct world *w = *state;
    struct behalf *b = NULL;
    pid_t child = sleeper();
    end(child);
    struct behalf_subject subject = {.source = BOOK_SOURCE_SOCKET, .pid = child};
    assert_int_equal(behalf_get(&w->daemon, &subject, &b), -ESRCH);
    assert_int_equal(files(w), 0);
}

/* Who spoke of a process may mean one that is gone, whose pid is another's. */
static void another_process_with_that_pid_is_not_written_for(void **state)
{
    struct world *w = *state;
    struct behalf *b = NULL, *held;
    struct proc_stat stat;
    assert_int_equal(proc_stat_read(getpid(), &stat), 0);
    struct behalf_subject subject = {
        .source = BOOK_SOURCE_SOCKET, .pid = getpid(), .start_ticks = stat.start_ticks - 1};
    assert_int_equal(behalf_get(&w->daemon, &subject, &b), -ESRCH);
    assert_int_equal(files(w), 0);
    held = get(w, getpid());
    assert_int_equal(behalf_get(&w->daemon, &subject, &b), -ESRCH);
    subject.start_ticks = stat.start_ticks;
    assert_int_equal(behalf_get(&w->daemon, &subject, &b), 0);
    assert_ptr_equal(b, held);
    behalf_unref(b);
    behalf_unref(held);
}

static void a_user_does_not_get_a_book_of_another(void **state)
{
    struct world *w = *state;
    struct behalf *b = NULL, *held;
    struct behalf_subject subject = {
        .source = BOOK_SOURCE_SOCKET, .pid = getpid(), .speaker = geteuid() + 4711};
    assert_int_equal(behalf_get(&w->daemon, &subject, &b), -EPERM);
    held = get(w, getpid());
    assert_int_equal(behalf_get(&w->daemon, &subject, &b), -EPERM);
    behalf_unref(held);
}

static int count_block(const struct book_block_view *view, void *context)
{
    uint64_t *sum = context;
    sum[0]++;
    sum[1] += view->bytes;
    sum[2] += view->tag > 0;
    return 0;
}

static void blocks_sum(struct behalf *b, uint64_t sum[3])
{
    int fd = ledger_book_open(behalf_book(b));
    memset(sum, 0, 3 * sizeof(*sum));
    assert_int_equal(book_reader_refresh(behalf_book(b)->reader), 0);
    assert_int_equal(book_reader_blocks(behalf_book(b)->reader, fd, count_block, sum, NULL), 0);
    close(fd);
}

/* A daemon ends, or is killed, and another one comes: figures, ages, tags, losses and sessions stay. */
static void the_next_daemon_takes_over(void **state)
{
    struct world *w = *state;
    pid_t child = sleeper();
    struct behalf *b = get(w, child);
    uint32_t dram = account(b, MEMOIR_SPACE_DRAM), l1 = account(b, MEMOIR_SPACE_L1);
    uint32_t tag = behalf_tag(b, "weights");
    for (uint64_t id = 1; id <= 5000; id++)
        assert_int_equal(behalf_alloc(b, dram, id, id, id % 2 ? tag : 0), 0);
    for (uint64_t id = 1; id <= 1000; id++)
        assert_int_equal(behalf_free(b, dram, id, NULL), 0);
    assert_int_equal(behalf_alloc(b, l1, 7, 77, 0), 0);
    assert_int_equal(behalf_transfer(b, dram, 2000, 64, true), 0);
    assert_int_equal(behalf_free(b, l1, 8, NULL), -ENOENT);
    behalf_session_applied(b, 4711, 42);
    struct behalf_figures before = figures(b, dram);
    behalf_unref(b);
    daemon_end(w);
    assert_int_equal(files(w), 1);

    daemon_begin(w);
    books_find(w);
    ledger_refresh(w->daemon.ledger);
    struct ledger_process *p = ledger_process_find(w->daemon.ledger, child);
    assert_non_null(p); /* it counts before anybody reports again */
    assert_int_equal(p->accounts[0].totals.live_bytes, before.live_bytes);

    b = get(w, child);
    assert_int_equal(w->server.figures.adopted_books, 1);
    assert_int_equal(files(w), 1);
    assert_int_equal(behalf_session_seq(b, 4711), 42);
    assert_int_equal(behalf_session_seq(b, 4712), 0);
    assert_int_equal(behalf_losses(b, BOOK_LOSS_UNKNOWN_FREE), 1);
    dram = account(b, MEMOIR_SPACE_DRAM);
    struct behalf_figures after = figures(b, dram);
    assert_memory_equal(&after, &before, sizeof(after));
    assert_int_equal(behalf_blocks(b), 4001);
    uint64_t sum[3];
    blocks_sum(b, sum);
    assert_int_equal(sum[0], 4001);
    assert_int_equal(sum[1], before.live_bytes + 77);
    assert_int_equal(sum[2], 2000);
    p = ledger_process_find(w->daemon.ledger, child);
    assert_int_equal(p->n_books, 1);
    for (uint64_t id = 1001; id <= 5000; id++)
        assert_int_equal(behalf_free(b, dram, id, NULL), 0);
    assert_int_equal(figures(b, dram).live_bytes, 0);
    behalf_unref(b);
    end(child);
}

/* The first book that there is, for who may do no more than read it. */
static int book_open(const struct world *w, int flags)
{
    char command[160], path[256] = "";
    snprintf(command, sizeof(command), "ls %s/*/*.book", w->dir);
    FILE *out = popen(command, "r");
    assert_int_equal(fscanf(out, "%255s", path), 1);
    pclose(out);
    int fd = open(path, flags | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

/* With room for one book only, which would keep the process's figures as they were for good. */
static void a_full_tmpfs_does_not_stop_a_take_over(void **state)
{
    struct world *w = *state;
    char options[64];
    struct statvfs used;
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", w->dir, "tmpfs", 0, "size=16m,mode=0755") < 0)
        skip();
    pid_t child = sleeper();
    struct behalf *b = get(w, child);
    uint32_t dram = account(b, MEMOIR_SPACE_DRAM), tag = behalf_tag(b, "weights");
    for (uint64_t id = 1; id <= 60000; id++)
        assert_int_equal(behalf_alloc(b, dram, id, id, id % 2 ? tag : 0), 0);
    for (uint64_t id = 1; id <= 50000; id++)
        assert_int_equal(behalf_free(b, dram, id, NULL), 0);
    assert_int_equal(behalf_transfer(b, dram, 55000, 64, true), 0);
    behalf_session_applied(b, 4711, 42);
    struct behalf_figures before = figures(b, dram);
    behalf_unref(b);
    daemon_end(w);
    assert_int_equal(statvfs(w->dir, &used), 0);
    snprintf(options, sizeof(options), "size=%llu,mode=0755",
             (unsigned long long)((used.f_blocks - used.f_bfree + 2) * used.f_frsize));
    assert_int_equal(mount("none", w->dir, "tmpfs", MS_REMOUNT, options), 0);

    daemon_begin(w);
    books_find(w);
    b = get(w, child);
    assert_int_equal(w->server.figures.adopted_books, 1);
    assert_int_equal(files(w), 1);
    assert_int_equal(behalf_session_seq(b, 4711), 42);
    dram = account(b, MEMOIR_SPACE_DRAM);
    struct behalf_figures after = figures(b, dram);
    assert_memory_equal(&after, &before, sizeof(after));
    uint64_t sum[3];
    blocks_sum(b, sum);
    assert_int_equal(sum[0], 10000);
    assert_int_equal(sum[1], before.live_bytes);
    assert_int_equal(sum[2], 5000);
    /* There are pages to go on with, since the old one had more. */
    for (uint64_t id = 1; id <= 20000; id++)
        assert_int_equal(behalf_alloc(b, dram, id, 1, 0), 0);
    blocks_sum(b, sum);
    assert_int_equal(sum[0], 30000);
    for (uint64_t id = 1; id <= 60000; id++)
        assert_int_equal(behalf_free(b, dram, id, NULL), id > 20000 && id <= 50000 ? -ENOENT : 0);
    assert_int_equal(figures(b, dram).live_bytes, 0);
    blocks_sum(b, sum);
    assert_int_equal(sum[0], 0); /* nothing of the old one is left in pages that came later */
    behalf_unref(b);
    end(child);
    assert_int_equal(umount2(w->dir, MNT_DETACH), 0);
}

/* A daemon wrote 100 blocks about `child` and is gone. */
static void leave_a_book(struct world *w, pid_t child, pid_t writer)
{
    struct behalf *b = get(w, child);
    uint32_t dram = account(b, MEMOIR_SPACE_DRAM);
    for (uint64_t id = 1; id <= 100; id++)
        assert_int_equal(behalf_alloc(b, dram, id, 10, 0), 0);
    behalf_unref(b);
    daemon_end(w);
    int fd = book_open(w, O_RDWR);
    int32_t pid = writer;
    assert_int_equal(pwrite(fd, &pid, sizeof(pid), offsetof(struct book_header, writer_pid)), 4);
    close(fd);
    daemon_begin(w);
}

static void who_reads_a_book_does_not_keep_it_from_being_taken_over(void **state)
{
    struct world *w = *state;
    pid_t child = sleeper(), gone = sleeper();
    end(gone);
    for (int lock = LOCK_SH; lock <= LOCK_EX; lock++) {
        leave_a_book(w, child, gone);
        int fd = book_open(w, O_RDONLY);
        assert_int_equal(flock(fd, lock), 0);
        books_find(w);
        struct behalf *b = get(w, child);
        assert_int_equal(w->server.figures.adopted_books, 1);
        assert_int_equal(behalf_blocks(b), 100);
        assert_int_equal(files(w), 1);
        behalf_unref(b);
        close(fd);
        daemon_end(w);
        daemon_begin(w);
        books_find(w);
    }
    end(child);
}

static void nothing_is_lost_while_another_daemon_lives(void **state)
{
    struct world *w = *state;
    pid_t child = sleeper(), other = sleeper();
    leave_a_book(w, child, other);
    int fd = book_open(w, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    books_find(w);
    struct behalf *b = NULL;
    struct behalf_subject subject = {.source = BOOK_SOURCE_SOCKET, .pid = child};
    assert_int_equal(behalf_get(&w->daemon, &subject, &b), -EBUSY);
    assert_int_equal(files(w), 1);
    close(fd);
    b = get(w, child);
    assert_int_equal(behalf_blocks(b), 100);
    behalf_unref(b);
    end(child);
    end(other);
}

static void stop(void *context)
{
    loop_stop(context);
}

static void run_for(struct world *w, uint64_t ns)
{
    struct loop_source *timer;
    assert_int_equal(loop_add_timer(w->daemon.loop, stop, w->daemon.loop, &timer), 0);
    assert_int_equal(loop_timer_set(timer, ns, 0), 0);
    assert_int_equal(loop_run(w->daemon.loop), 0);
    loop_source_free(timer);
}

static void death_ends_a_book_though_it_is_held(void **state)
{
    struct world *w = *state;
    pid_t child = sleeper();
    struct behalf *b = get(w, child);
    uint32_t dram = account(b, MEMOIR_SPACE_DRAM);
    assert_int_equal(behalf_alloc(b, dram, 1, 100, 0), 0);
    end(child);
    for (int i = 0; i < 500 && behalf_alive(b); i++)
        run_for(w, 10 * NS_PER_MS);
    assert_false(behalf_alive(b));
    assert_int_equal(files(w), 0);
    assert_int_equal(behalf_alloc(b, dram, 2, 100, 0), -ESRCH); /* does nothing */
    assert_int_equal(behalf_blocks(b), 0);
    behalf_unref(b);
    assert_int_equal(retired_total(w->daemon.retired), 1);
}

static struct behalf *get_remote(struct world *w, const char *host, pid_t pid)
{
    struct behalf *b = NULL;
    struct behalf_subject subject = {.source = BOOK_SOURCE_SOCKET,
                                     .pid = pid,
                                     .host = host,
                                     .uid = geteuid(),
                                     .start_ticks = 5,
                                     .comm = "far"};
    assert_int_equal(behalf_get(&w->daemon, &subject, &b), 0);
    return b;
}

static void processes_of_other_machines_expire(void **state)
{
    struct world *w = *state;
    struct behalf *b = get_remote(w, "10.0.0.1", getpid()), *other;
    assert_int_equal(behalf_alloc(b, account(b, MEMOIR_SPACE_DRAM), 1, 100, 0), 0);
    /* The same number elsewhere is somebody else; a number of ours is, too. */
    other = get_remote(w, "10.0.0.2", getpid());
    assert_ptr_not_equal(other, b);
    behalf_unref(other);
    behalf_unref(b);
    b = get_remote(w, "10.0.0.1", getpid()); /* came back in time */
    assert_int_equal(behalf_blocks(b), 1);
    run_for(w, 200 * NS_PER_MS);
    assert_true(behalf_alive(b));
    assert_int_equal(w->server.figures.expired_books, 1); /* the other one did not */
    behalf_unref(b);
    for (int i = 0; i < 100 && files(w) > 0; i++)
        run_for(w, 20 * NS_PER_MS);
    assert_int_equal(files(w), 0);
    assert_int_equal(w->server.figures.expired_books, 2);
}

static void those_that_a_dead_daemon_left_expire_too(void **state)
{
    struct world *w = *state;
    struct behalf *b = get_remote(w, "10.0.0.1", 77);
    assert_int_equal(behalf_alloc(b, account(b, MEMOIR_SPACE_DRAM), 1, 100, 0), 0);
    behalf_unref(b);
    daemon_end(w);
    daemon_begin(w);
    books_find(w);
    assert_int_equal(files(w), 1);
    for (int i = 0; i < 100 && files(w) > 0; i++)
        run_for(w, 20 * NS_PER_MS);
    assert_int_equal(files(w), 0);
}

static void everything_can_be_dropped_at_once(void **state)
{
    struct world *w = *state;
    struct behalf *b = get(w, getpid());
    uint32_t dram = account(b, MEMOIR_SPACE_DRAM);
    for (uint64_t id = 1; id <= 3000; id++)
        assert_int_equal(behalf_alloc(b, dram, id, 10, 0), 0);
    behalf_drop(b);
    assert_int_equal(behalf_blocks(b), 0);
    assert_int_equal(figures(b, dram).live_bytes, 0);
    assert_int_equal(figures(b, dram).freed_blocks, 3000);
    behalf_unref(b);
}

#define WORLD_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(the_ledger_sees_what_is_reported),
        WORLD_TEST(nonsense_is_refused_and_counted),
        WORLD_TEST(nobody_has_no_book),
        WORLD_TEST(another_process_with_that_pid_is_not_written_for),
        WORLD_TEST(a_user_does_not_get_a_book_of_another),
        WORLD_TEST(the_next_daemon_takes_over),
        WORLD_TEST(a_full_tmpfs_does_not_stop_a_take_over),
        WORLD_TEST(who_reads_a_book_does_not_keep_it_from_being_taken_over),
        WORLD_TEST(nothing_is_lost_while_another_daemon_lives),
        WORLD_TEST(death_ends_a_book_though_it_is_held),
        WORLD_TEST(processes_of_other_machines_expire),
        WORLD_TEST(those_that_a_dead_daemon_left_expire_too),
        WORLD_TEST(everything_can_be_dropped_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
