/* The ledger over books composed by hand, in a directory of their own in memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "book_builder.h"
#include "check.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"

struct world {
    char dir[64], place[96];
    int dirfd;
    struct ledger *ledger;
    struct proc_stat self;
    uint64_t pid_ns;
    uint8_t boot_id[16];
    int fds[16]; /* of books, closed at the end */
    size_t n_fds;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    strcpy(w->dir, "/dev/shm/memoir-ledger-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->place, sizeof(w->place), "%s/%u", w->dir, geteuid());
    assert_int_equal(mkdir(w->place, 0700), 0);
    w->dirfd = open(w->place, O_RDONLY | O_DIRECTORY);
    assert_true(w->dirfd >= 0);
    assert_int_equal(proc_stat_read(getpid(), &w->self), 0);
    assert_int_equal(proc_pid_ns(getpid(), &w->pid_ns), 0);
    assert_int_equal(proc_boot_id(w->boot_id), 0);
    assert_int_equal(ledger_new(NULL, &w->ledger), 0);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    ledger_free(w->ledger);
    for (size_t i = 0; i < w->n_fds; i++)
        close(w->fds[i]);
    close(w->dirfd);
    char command[160];
    snprintf(command, sizeof(command), "rm -rf %s", w->dir);
    assert_int_equal(system(command), 0);
    free(w);
    return 0;
}

/* A book about this very process, whose lock is held as its writer would. */
static void book_begin(struct world *w, struct book_builder *b, const char *name, uint32_t source)
{
    int fd = openat(w->dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    w->fds[w->n_fds++] = fd;
    assert_int_equal(flock(fd, LOCK_EX), 0);
    builder_init(b, fd);
    b->h.source = source;
    b->h.pid = getpid();
    b->h.pid_ns = w->pid_ns;
    b->h.start_ticks = w->self.start_ticks;
    b->h.uid = geteuid();
    memcpy(b->h.boot_id, w->boot_id, sizeof(b->h.boot_id));
}

static void count(struct book_builder *b, uint32_t account, uint64_t blocks, uint64_t bytes)
{
    struct book_counters counters = {.alloc_blocks = blocks, .alloc_bytes = bytes};
    uint64_t at = builder_common_offset(b, account);
    assert_int_equal(pwrite(b->fd, &counters, sizeof(counters), (off_t)at), sizeof(counters));
}

static uint32_t account_add(struct book_builder *b, uint32_t space, uint32_t device,
                            uint64_t blocks, uint64_t bytes)
{
    uint32_t account = builder_account(b, space, device, "space");
    count(b, account, blocks, bytes);
    return account;
}

static int try_add(struct world *w, const char *name, struct ledger_book **ret_book)
{
    struct ledger_where where = {
        .dirfd = w->dirfd, .name = name, .fd = -1, .uid = geteuid(), .place = w->place};
    return ledger_book_add(w->ledger, &where, ret_book);
}

static struct ledger_book *add(struct world *w, const char *name)
{
    struct ledger_book *book = NULL;
    assert_int_equal(try_add(w, name, &book), 0);
    return book;
}

static uint64_t live(struct world *w, struct ledger_process *p, uint32_t space)
{
    uint64_t bytes = 0;
    ledger_refresh_process(w->ledger, p);
    assert_true(ledger_process_sum(p, space, NULL, &bytes, NULL));
    return bytes;
}

/* ---- joining ---- */

static void first_source_that_ever_counted_wins(void **state)
{
    struct world *w = *state;
    struct book_builder client, observer;
    book_begin(w, &client, "a.book", BOOK_SOURCE_CLIENT);
    uint32_t mine =
        account_add(&client, MEMOIR_SPACE_DRAM, builder_device(&client, 1, 0, "GPU"), 0, 0);
    builder_publish(&client);
    book_begin(w, &observer, "b.book", BOOK_SOURCE_OBSERVER);
    account_add(&observer, MEMOIR_SPACE_DRAM, builder_device(&observer, 1, 0, "GPU"), 3, 3000);
    builder_publish(&observer);
    struct ledger_process *p = add(w, "b.book")->process;
    assert_ptr_equal(add(w, "a.book")->process, p);
    assert_int_equal(p->n_books, 2);

    assert_int_equal(live(w, p, MEMOIR_SPACE_DRAM), 3000);
    assert_int_equal(p->n_accounts, 1);
    assert_int_equal(p->accounts[0].source, BOOK_SOURCE_OBSERVER);
    count(&client, mine, 1, 500);
    assert_int_equal(live(w, p, MEMOIR_SPACE_DRAM), 500);
    assert_int_equal(p->accounts[0].source, BOOK_SOURCE_CLIENT);
}

static void heap_belongs_to_who_allocates(void **state)
{
    struct world *w = *state;
    static const uint32_t order[] = {BOOK_SOURCE_CLIENT, BOOK_SOURCE_OBSERVER, BOOK_SOURCE_TRACK,
                                     BOOK_SOURCE_MALLOC};
    struct ledger_process *p = NULL;
    for (size_t i = 0; i < 4; i++) {
        struct book_builder b;
        char name[16];
        snprintf(name, sizeof(name), "%zu.book", i);
        book_begin(w, &b, name, order[i]);
        account_add(&b, MEMOIR_SPACE_HEAP, BOOK_DEVICE_HOST, 1, 100 + i);
        builder_publish(&b);
        p = add(w, name)->process;
        /* Each one that comes knows better than those before. */
        assert_int_equal(live(w, p, MEMOIR_SPACE_HEAP), 100 + i);
        assert_int_equal(p->accounts[0].source, order[i]);
    }
    assert_int_equal(p->n_accounts, 1);
}

static void accounts_are_found_when_they_appear(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    builder_publish(&b);
    struct ledger_process *p = add(w, "a.book")->process;
    ledger_refresh(w->ledger);
    assert_int_equal(p->n_accounts, 0);
    assert_false(ledger_process_sum(p, 0, NULL, NULL, NULL));
    uint32_t gpu = builder_device(&b, 1, 0, "GPU");
    uint32_t l1 = account_add(&b, MEMOIR_SPACE_L1, gpu, 2, 20);
    account_add(&b, MEMOIR_SPACE_PINNED, BOOK_DEVICE_HOST, 1, 7);
    assert_int_equal(live(w, p, MEMOIR_SPACE_L1), 20);
    assert_int_equal(p->n_accounts, 2);
    assert_null(p->accounts[0].device); /* the host comes first */
    assert_string_equal(p->accounts[1].device->name, "GPU");
    assert_int_equal(ledger_account_record(p, 1, p->books[0]), l1);
    assert_int_equal(ledger_account_record(p, 9, p->books[0]), -ENOENT);
}

/* ---- devices ---- */

static void device_put(struct book_builder *b, int32_t ordinal, const char *name, const char *uid,
                       const char *bus, uint64_t capacity, uint64_t bytes)
{
    struct book_device device = {.type = BOOK_RECORD_DEVICE, .kind = 1, .ordinal = ordinal};
    strcpy(device.name, name);
    strcpy(device.uid, uid);
    strcpy(device.bus, bus);
    uint32_t record = (uint32_t)builder_add(b, BOOK_SECTION_REGISTRY, &device, sizeof(device));
    struct book_account account = {.type = BOOK_RECORD_ACCOUNT,
                                   .space = MEMOIR_SPACE_DRAM,
                                   .device = record,
                                   .capacity = capacity,
                                   .name = "dram"};
    uint32_t at = (uint32_t)builder_add(b, BOOK_SECTION_REGISTRY, &account, sizeof(account));
    count(b, at, 1, bytes);
}

static void devices_merge_by_their_strongest_name(void **state)
{
    struct world *w = *state;
    struct book_builder b[2];
    for (int i = 0; i < 2; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d.book", i);
        book_begin(w, &b[i], name, BOOK_SOURCE_CLIENT);
        b[i].h.exec_id = (uint64_t)i + 1; /* two processes, as far as books go */
        device_put(&b[i], i, "X", "GPU-1", "", 1000 + (uint64_t)i, 10);
        device_put(&b[i], i, "X", "", "0000:81:00.0", 0, 20);
        device_put(&b[i], 5, "X", "", "", 50, 30);
        device_put(&b[i], 6 + i, "X", "", "", 50, 40);
        builder_publish(&b[i]);
        struct ledger_book *book = add(w, name);
        ledger_update_state(w->ledger, book->process);
        assert_int_equal(book->process->state, LEDGER_RUNNING);
    }
    ledger_refresh(w->ledger);
    size_t n;
    struct ledger_device *const *devices = ledger_devices(w->ledger, &n);
    assert_int_equal(n, 5);
    assert_string_equal(devices[0]->uid, "GPU-1");
    assert_int_equal(devices[0]->spaces[MEMOIR_SPACE_DRAM].used, 20);
    assert_int_equal(devices[0]->spaces[MEMOIR_SPACE_DRAM].capacity, 1001);
    assert_int_equal(devices[0]->processes, 2);
    assert_int_equal(devices[1]->spaces[MEMOIR_SPACE_DRAM].used, 40);
    assert_int_equal(devices[2]->spaces[MEMOIR_SPACE_DRAM].used, 60);
    assert_int_equal(devices[3]->spaces[MEMOIR_SPACE_DRAM].used, 40);

    /* A device goes with the last book that tells of it. */
    ledger_book_remove(w->ledger, ledger_books(w->ledger).books[0]);
    ledger_refresh(w->ledger);
    ledger_devices(w->ledger, &n);
    assert_int_equal(n, 4);
    ledger_book_remove(w->ledger, ledger_books(w->ledger).books[0]);
    ledger_devices(w->ledger, &n);
    assert_int_equal(n, 0);
}

static void what_the_dead_held_is_not_in_use(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    b.h.start_ticks++; /* another process had our pid */
    device_put(&b, 0, "X", "GPU-1", "", 1000, 10);
    builder_publish(&b);
    struct ledger_process *p = add(w, "a.book")->process;
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_EXITED);
    assert_int_equal(live(w, p, MEMOIR_SPACE_DRAM), 10);
    ledger_refresh(w->ledger);
    size_t n;
    struct ledger_device *const *devices = ledger_devices(w->ledger, &n);
    assert_int_equal(n, 1);
    assert_int_equal(devices[0]->spaces[MEMOIR_SPACE_DRAM].used, 0);
    assert_int_equal(devices[0]->processes, 0);
}

/* ---- life ---- */

static struct ledger_process *one_process(struct world *w, struct book_builder *b)
{
    builder_publish(b);
    return add(w, "a.book")->process;
}

static void lock_and_pid_tell_the_state(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    struct ledger_process *p = one_process(w, &b);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
    assert_true(p->valid & LEDGER_HAS_PID);
    assert_int_equal(p->pid, getpid());
    assert_false(ledger_writers_gone(p));

    b.h.state = BOOK_STATE_STOPPED;
    b.h.stop_reason = BOOK_STOP_FULL;
    builder_header(&b);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_STOPPED);
    assert_int_equal(p->stop_reason, BOOK_STOP_FULL);
    b.h.state = BOOK_STATE_OPEN;
    builder_header(&b);

    assert_int_equal(flock(b.fd, LOCK_UN), 0);
    assert_true(ledger_writers_gone(p));
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_REPLACED);

    b.h.state = BOOK_STATE_CLOSED;
    builder_header(&b);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_CLOSED);
}

static void removed_name_is_no_exec(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    struct ledger_process *p = one_process(w, &b);
    assert_int_equal(ledger_book_check(p->books[0]), 0);
    assert_int_equal(unlinkat(w->dirfd, "a.book", 0), 0);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
    assert_int_equal(ledger_book_check(p->books[0]), -ENOENT);
    assert_int_equal(ledger_book_open(p->books[0]), -ENOENT);
}

static void book_of_another_boot_is_of_nobody_alive(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    b.h.boot_id[3] ^= 1;
    assert_int_equal(ledger_update_state(w->ledger, one_process(w, &b)), LEDGER_EXITED);
}

static void zombie_is_dead(void **state)
{
    struct world *w = *state;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    struct proc_stat stat;
    assert_int_equal(proc_stat_read(child, &stat), 0);
    assert_true(stat.dead);
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    b.h.pid = child;
    b.h.start_ticks = stat.start_ticks;
    struct ledger_process *p = one_process(w, &b);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_EXITED);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_EXITED);
    ledger_update_facts(w->ledger, p);
    assert_false(p->valid & LEDGER_HAS_RSS);
}

static void pid_of_an_unknown_namespace_stays_unknown(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    b.h.pid_ns = 12345;
    struct ledger_process *p = one_process(w, &b);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING); /* its lock is held */
    assert_false(p->valid & LEDGER_HAS_PID);
    assert_true(p->foreign_ns);
    assert_int_equal(flock(b.fd, LOCK_UN), 0);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_EXITED);
}

static void images_of_one_pid_are_two_rows(void **state)
{
    struct world *w = *state;
    struct book_builder b[2];
    book_begin(w, &b[0], "a.book", BOOK_SOURCE_CLIENT);
    builder_publish(&b[0]);
    book_begin(w, &b[1], "b.book", BOOK_SOURCE_CLIENT);
    b[1].h.exec_id++;
    builder_publish(&b[1]);
    struct ledger_process *old = add(w, "a.book")->process, *new = add(w, "b.book")->process;
    assert_ptr_not_equal(old, new);
    assert_int_equal(flock(b[0].fd, LOCK_UN), 0);
    assert_int_equal(ledger_update_state(w->ledger, old), LEDGER_REPLACED);
    assert_int_equal(ledger_update_state(w->ledger, new), LEDGER_RUNNING);
    assert_ptr_equal(ledger_process_find(w->ledger, getpid()), new);
}

/* ---- refusals ---- */

static void same_file_and_second_book_of_a_source(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    struct ledger_book *book = NULL, *again = NULL;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    builder_publish(&b);
    book = add(w, "a.book");
    assert_int_equal(try_add(w, "a.book", &again), -EEXIST);
    assert_ptr_equal(again, book);
    book_begin(w, &b, "b.book", BOOK_SOURCE_CLIENT);
    builder_publish(&b);
    assert_int_equal(try_add(w, "b.book", &again), -EALREADY);
    assert_int_equal(ledger_problem_count(w->ledger, LEDGER_PROBLEM_DUPLICATE), 1);
    assert_int_equal(try_add(w, "none.book", &again), -ENOENT);
    assert_int_equal(ledger_books(w->ledger).n, 1);
}

static void limits_refuse_and_say_so(void **state)
{
    struct world *w = *state;
    ledger_free(w->ledger);
    assert_int_equal(ledger_new(&(struct ledger_options){.books_max = 2}, &w->ledger), 0);
    for (int i = 0; i < 3; i++) {
        struct book_builder b;
        struct ledger_book *book;
        char name[16];
        snprintf(name, sizeof(name), "%d.book", i);
        book_begin(w, &b, name, BOOK_SOURCE_CLIENT);
        b.h.exec_id = (uint64_t)i + 1;
        builder_publish(&b);
        assert_int_equal(try_add(w, name, &book), i < 2 ? 0 : -EDQUOT);
    }
    size_t n;
    const struct ledger_problem *problems = ledger_problems(w->ledger, &n);
    assert_int_equal(n, 1);
    assert_int_equal(problems[0].kind, LEDGER_PROBLEM_LIMIT);
    assert_non_null(strstr(problems[0].where, "/2.book"));
}

static void books_that_are_none(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    struct ledger_book *book;
    book_begin(w, &b, "unready.book", BOOK_SOURCE_CLIENT);
    builder_header(&b); /* without its magic */
    assert_int_equal(try_add(w, "unready.book", &book), -EAGAIN);
    book_begin(w, &b, "bad.book", BOOK_SOURCE_CLIENT);
    b.h.sections[0].offset = UINT64_MAX;
    builder_publish(&b);
    assert_true(try_add(w, "bad.book", &book) < 0);
    assert_int_equal(symlinkat("unready.book", w->dirfd, "link.book"), 0);
    assert_true(try_add(w, "link.book", &book) < 0);
    assert_int_equal(ledger_books(w->ledger).n, 0);
    assert_int_equal(ledger_problem_count(w->ledger, LEDGER_PROBLEM_BAD), 1);
    assert_int_equal(ledger_problem_count(w->ledger, LEDGER_PROBLEM_UNREADABLE), 1);
}

static void owner_must_be_the_processs_own(void **state)
{
    struct world *w = *state;
    if (geteuid() != 0)
        skip();
    struct book_builder b;
    struct ledger_book *book;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    builder_publish(&b);
    assert_int_equal(fchownat(w->dirfd, "a.book", 1234, 1234, 0), 0);
    struct ledger_where where = {
        .dirfd = w->dirfd, .name = "a.book", .fd = -1, .uid = 1234, .place = w->place};
    /* 1234 speaks for a living process of root. */
    assert_int_equal(ledger_book_add(w->ledger, &where, &book), -EPERM);
    assert_int_equal(ledger_problem_count(w->ledger, LEDGER_PROBLEM_OWNER), 1);
    /* In the place of somebody else. */
    where.uid = 4321;
    assert_int_equal(ledger_book_add(w->ledger, &where, &book), -EPERM);
}

static void figures_of_a_book_cut_short_are_absent(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    account_add(&b, MEMOIR_SPACE_HEAP, BOOK_DEVICE_HOST, 1, 100);
    struct ledger_process *p = one_process(w, &b);
    assert_int_equal(live(w, p, MEMOIR_SPACE_HEAP), 100);
    assert_true(p->valid & LEDGER_HAS_FIGURES);
    assert_int_equal(ftruncate(b.fd, 0), 0);
    ledger_refresh_process(w->ledger, p);
    assert_false(p->valid & LEDGER_HAS_FIGURES);
    assert_false(ledger_process_sum(p, MEMOIR_SPACE_HEAP, NULL, NULL, NULL));
}

static void round_in_pieces_reads_all(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 10; i++) {
        struct book_builder b;
        char name[16];
        snprintf(name, sizeof(name), "%d.book", i);
        book_begin(w, &b, name, BOOK_SOURCE_CLIENT);
        b.h.exec_id = (uint64_t)i + 1;
        device_put(&b, 0, "X", "GPU-1", "", 1000, 10);
        builder_publish(&b);
        ledger_update_state(w->ledger, add(w, name)->process);
    }
    int pieces = 1;
    while (!ledger_refresh_some(w->ledger, 1)) /* one process each */
        pieces++;
    assert_in_range(pieces, 2, 11);
    size_t n;
    struct ledger_device *const *devices = ledger_devices(w->ledger, &n);
    assert_int_equal(n, 1);
    assert_int_equal(devices[0]->spaces[MEMOIR_SPACE_DRAM].used, 100);
    assert_int_equal(devices[0]->processes, 10);
}

/* ---- one picture ---- */

static void scan_sees_processes_facts_and_problems(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    book_begin(w, &b, "1-1-1-a.book", BOOK_SOURCE_CLIENT);
    account_add(&b, MEMOIR_SPACE_HEAP, BOOK_DEVICE_HOST, 1, 100);
    builder_publish(&b);
    book_begin(w, &b, "1-1-1-b.book", BOOK_SOURCE_CLIENT);
    assert_int_equal(write(b.fd, "nonsense", 8), 8);
    struct ledger *ledger = NULL;
    assert_int_equal(ledger_scan(w->dir, &ledger), 0);
    size_t n;
    struct ledger_process *const *all = ledger_processes(ledger, &n);
    assert_int_equal(n, 1);
    assert_int_equal(all[0]->state, LEDGER_RUNNING);
    assert_string_equal(all[0]->name, "train.py");
    assert_true(all[0]->valid & LEDGER_HAS_RSS);
    assert_true(all[0]->rss_bytes > 0 && all[0]->vms_bytes >= all[0]->rss_bytes);
    assert_true(all[0]->valid & LEDGER_HAS_USER);
    assert_int_equal(all[0]->accounts[0].totals.live_bytes, 100);
    ledger_problems(ledger, &n);
    assert_int_equal(n, 1);
    ledger_free(ledger);
}

int main(void)
{
#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        WORLD_TEST(first_source_that_ever_counted_wins),
        WORLD_TEST(heap_belongs_to_who_allocates),
        WORLD_TEST(accounts_are_found_when_they_appear),
        WORLD_TEST(devices_merge_by_their_strongest_name),
        WORLD_TEST(what_the_dead_held_is_not_in_use),
        WORLD_TEST(lock_and_pid_tell_the_state),
        WORLD_TEST(removed_name_is_no_exec),
        WORLD_TEST(book_of_another_boot_is_of_nobody_alive),
        WORLD_TEST(zombie_is_dead),
        WORLD_TEST(pid_of_an_unknown_namespace_stays_unknown),
        WORLD_TEST(images_of_one_pid_are_two_rows),
        WORLD_TEST(same_file_and_second_book_of_a_source),
        WORLD_TEST(limits_refuse_and_say_so),
        WORLD_TEST(books_that_are_none),
        WORLD_TEST(owner_must_be_the_processs_own),
        WORLD_TEST(figures_of_a_book_cut_short_are_absent),
        WORLD_TEST(round_in_pieces_reads_all),
        WORLD_TEST(scan_sees_processes_facts_and_problems),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
