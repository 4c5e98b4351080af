/* The ledger over books composed by hand: devices, life and death, refusals. */
#include <linux/capability.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "ledger_world.h"

/* ---- devices ---- */

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
        device_put(&b[i], i, "Y", "", "0000:81:00.0", 0, 20);
        device_put(&b[i], 5, "Z", "", "", 50, 30);
        device_put(&b[i], 6 + i, "Z", "", "", 50, 40);
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

/* Not everybody can tell everything about a device. */
static void device_is_the_same_by_what_both_tell(void **state)
{
    struct world *w = *state;
    static const struct {
        int32_t ordinal;
        const char *name, *uid, *bus;
        uint32_t row;
    } told[] = {
        {0, "H200", "", "", 0},                  /* a name alone */
        {0, "H200", "GPU-1", "", 0},             /* which may be this one; now it has a uid */
        {3, "H200", "GPU-1", "0000:81:00.0", 0}, /* and a bus */
        {4, "other", "", "0000:81:00.0", 0},     /* which is enough where there is no uid */
        {0, "H200", "GPU-2", "", 1},             /* two uids are two devices */
        {3, "H200", "GPU-3", "0000:81:00.0", 2}, /* whatever else is equal */
        {0, "H200", "", "0000:99:00.0", 1},      /* not the first, which has another bus */
        {1, "H200", "", "", 3},
    };
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        struct book_builder b;
        char name[16];
        snprintf(name, sizeof(name), "%zu.book", i);
        book_begin(w, &b, name, BOOK_SOURCE_CLIENT);
        b.h.exec_id = i + 1;
        device_put(&b, told[i].ordinal, told[i].name, told[i].uid, told[i].bus, 0, 10);
        builder_publish(&b);
        struct ledger_process *p = add(w, name)->process;
        ledger_refresh_process(w->ledger, p);
        assert_int_equal(p->n_accounts, 1);
        assert_int_equal(p->accounts[0].device->index, told[i].row);
    }
    size_t n;
    struct ledger_device *const *devices = ledger_devices(w->ledger, &n);
    assert_int_equal(n, 4);
    assert_string_equal(devices[0]->uid, "GPU-1");
    assert_string_equal(devices[0]->bus, "0000:81:00.0");
    assert_string_equal(devices[1]->bus, "0000:99:00.0");
}

/* A socket knows the board, a region the chip, a preload neither: but all three its number. */
static void tenstorrents_devices_merge_by_number_where_no_board_is_named(void **state)
{
    struct world *w = *state;
    static const struct {
        int32_t ordinal;
        const char *name, *uid;
        uint32_t row;
    } told[] = {
        {0, "Tenstorrent", "", 0}, {0, "Blackhole", "", 0},       {0, "Tenstorrent", "tt-7", 0},
        {1, "Tenstorrent", "", 1}, {0, "Tenstorrent", "tt-8", 2}, {0, "Wormhole_B0", "", 2},
        {0, "Blackhole", "", 0},   {2, "Wormhole_B0", "tt-9", 3}, {2, "Tenstorrent", "", 3},
    };
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        struct book_builder b;
        char name[16];
        snprintf(name, sizeof(name), "%zu.book", i);
        book_begin(w, &b, name, BOOK_SOURCE_CLIENT);
        b.h.exec_id = i + 1;
        device_put_kind(&b, MEMOIR_DEVICE_NPU, told[i].ordinal, told[i].name, told[i].uid, "", 0,
                        1);
        builder_publish(&b);
        struct ledger_process *p = add(w, name)->process;
        ledger_refresh_process(w->ledger, p);
        assert_int_equal(p->accounts[0].device->index, told[i].row);
    }
    size_t n;
    struct ledger_device *const *devices = ledger_devices(w->ledger, &n);
    assert_int_equal(n, 4);
    assert_string_equal(devices[0]->name, "Blackhole");
    assert_string_equal(devices[0]->uid, "tt-7");
    assert_string_equal(devices[1]->name, "Tenstorrent");
    while (ledger_books(w->ledger).n > 0)
        ledger_book_remove(w->ledger, ledger_books(w->ledger).books[0]);
    ledger_devices(w->ledger, &n);
    assert_int_equal(n, 0);
}

static void what_the_dead_held_is_not_in_use(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    b.h.start_ticks += 100; /* another process had our pid */
    device_put(&b, 0, "X", "GPU-1", "", 1000, 10);
    builder_publish(&b);
    assert_int_equal(flock(b.fd, LOCK_UN), 0);
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

/* What a client said to the daemon may end in order long before the client does. */
static void one_closed_book_does_not_close_the_process(void **state)
{
    struct world *w = *state;
    struct book_builder own, other, behalf;
    book_begin(w, &behalf, "b.book", BOOK_SOURCE_SOCKET);
    behalf.h.compat = BOOK_COMPAT_ON_BEHALF;
    behalf.h.state = BOOK_STATE_CLOSED;
    builder_publish(&behalf);
    struct ledger_process *p = add(w, "b.book")->process;
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_CLOSED); /* nobody else speaks */

    book_begin(w, &own, "a.book", BOOK_SOURCE_CLIENT);
    device_put(&own, 0, "GPU", "u", "", 1000, 300);
    assert_ptr_equal(one_process(w, &own), p);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
    ledger_refresh(w->ledger);
    assert_int_equal(p->accounts[0].device->spaces[MEMOIR_SPACE_DRAM].used, 300);

    book_begin(w, &other, "c.book", BOOK_SOURCE_CLIENT); /* a copy of the library, unloaded */
    other.h.state = BOOK_STATE_CLOSED;
    builder_publish(&other);
    assert_ptr_equal(add(w, "c.book")->process, p);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
    own.h.state = BOOK_STATE_CLOSED;
    builder_header(&own);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_CLOSED);
}

/* A daemon died and left its book open; the next one went on in another, and closed that. */
static void book_that_does_not_count_keeps_nothing_open(void **state)
{
    struct world *w = *state;
    struct book_builder b[2];
    struct ledger_process *p = NULL;
    for (int i = 0; i < 2; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d.book", i);
        book_begin(w, &b[i], name, BOOK_SOURCE_SOCKET);
        b[i].h.compat = BOOK_COMPAT_ON_BEHALF;
        b[i].h.state = i == 0 ? BOOK_STATE_OPEN : BOOK_STATE_CLOSED;
        builder_publish(&b[i]);
        p = add(w, name)->process;
    }
    assert_int_equal(flock(b[0].fd, LOCK_UN), 0);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_CLOSED);
    assert_int_equal(flock(b[0].fd, LOCK_EX), 0);
    assert_int_equal(flock(b[1].fd, LOCK_UN), 0);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
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

/* Containers have a boot id of their own, time namespaces shift start times: neither is death. */
static void held_lock_is_life_whatever_else_differs(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    b.h.boot_id[3] ^= 1;
    struct ledger_process *p = one_process(w, &b);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
    assert_true(p->pid_proved);
    ledger_update_facts(w->ledger, p);
    assert_true(p->valid & LEDGER_HAS_RSS);
    ledger_book_remove(w->ledger, p->books[0]);

    b.h.start_ticks += 12345;
    builder_header(&b);
    p = add(w, "a.book")->process;
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
    assert_false(p->pid_proved);
    ledger_update_facts(w->ledger, p);
    assert_false(p->valid & LEDGER_HAS_RSS); /* it may be another's */
    assert_int_equal(flock(b.fd, LOCK_UN), 0);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_EXITED);
}

static void book_on_behalf_goes_by_the_start_time(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_OBSERVER);
    b.h.compat = BOOK_COMPAT_ON_BEHALF;
    struct ledger_process *p = one_process(w, &b);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
    assert_int_equal(flock(b.fd, LOCK_UN), 0); /* the daemon's, not the process's */
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
    assert_int_equal(flock(b.fd, LOCK_EX), 0);
    ledger_book_remove(w->ledger, p->books[0]);
    b.h.start_ticks += 12345;
    builder_header(&b);
    p = add(w, "a.book")->process;
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_EXITED);
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
    /* Its lock is held: by a child, then, that kept the mapping. */
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

static void same_file_is_one_book(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    struct ledger_book *book = NULL, *again = NULL;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    builder_publish(&b);
    book = add(w, "a.book");
    assert_int_equal(try_add(w, "a.book", &again), -EEXIST);
    assert_ptr_equal(again, book);
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

static int add_for(struct world *w, const char *name, uint32_t payer)
{
    struct ledger_book *book;
    struct ledger_where where = {.dirfd = w->dirfd,
                                 .name = name,
                                 .fd = -1,
                                 .uid = geteuid(),
                                 .place = w->place,
                                 .has_payer = true,
                                 .payer = payer};
    return ledger_book_add(w->ledger, &where, &book);
}

static void book_with_two_names_does_not_count(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    builder_publish(&b);
    assert_int_equal(linkat(w->dirfd, "a.book", w->dirfd, "b.book", 0), 0);
    assert_int_equal(add_for(w, "a.book", 1), -EMLINK);
    assert_int_equal(ledger_problem_count(w->ledger, LEDGER_PROBLEM_BAD), 1);
    assert_int_equal(unlinkat(w->dirfd, "b.book", 0), 0);
    assert_int_equal(add_for(w, "a.book", 1), 0);
}

static void user_may_have_only_so_much_mapped(void **state)
{
    struct world *w = *state;
    ledger_free(w->ledger);
    struct ledger_options options = {.mapped_per_uid_max = 256 << 10};
    assert_int_equal(ledger_new(&options, &w->ledger), 0);
    struct book_builder b;
    book_begin(w, &b, "grows.book", BOOK_SOURCE_CLIENT);
    account_add(&b, MEMOIR_SPACE_HEAP, 0, 1, 100);
    builder_publish(&b);
    assert_int_equal(add_for(w, "grows.book", 4242), 0);
    struct ledger_process *p = ledger_books(w->ledger).books[0]->process;
    assert_int_equal(live(w, p, MEMOIR_SPACE_HEAP), 100);
    /* Real pages, too many of them. */
    for (int i = 0; i < 100; i++)
        builder_counter_page(&b, BOOK_COUNTERS_ACCOUNTS, 1);
    ledger_refresh_process(w->ledger, p);
    assert_false(p->valid & LEDGER_HAS_FIGURES);
    assert_int_equal(ledger_books(w->ledger).books[0]->error, -EDQUOT);
    assert_int_equal(ledger_problem_count(w->ledger, LEDGER_PROBLEM_LIMIT), 1);
    /* Another one is refused to him, and not to others. */
    book_begin(w, &b, "large.book", BOOK_SOURCE_MALLOC);
    for (int i = 0; i < 50; i++)
        builder_counter_page(&b, BOOK_COUNTERS_ACCOUNTS, 1);
    builder_publish(&b);
    book_begin(w, &b, "more.book", BOOK_SOURCE_TRACK);
    for (int i = 0; i < 50; i++)
        builder_counter_page(&b, BOOK_COUNTERS_ACCOUNTS, 1);
    builder_publish(&b);
    assert_int_equal(add_for(w, "large.book", 4242), 0);
    assert_int_equal(add_for(w, "more.book", 4242), -EDQUOT);
    assert_int_equal(add_for(w, "more.book", 4243), 0);
}

static void roots_file_in_a_users_place_does_not_count(void **state)
{
    struct world *w = *state;
    if (geteuid() != 0)
        skip();
    struct book_builder b;
    struct ledger_book *book;
    struct ledger_where where = {
        .dirfd = w->dirfd, .name = "a.book", .fd = -1, .uid = 4242, .place = w->place};
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    builder_publish(&b);
    assert_int_equal(ledger_book_add(w->ledger, &where, &book), -EPERM);
    b.h.compat |= BOOK_COMPAT_ON_BEHALF;
    builder_header(&b);
    builder_publish(&b);
    assert_int_equal(ledger_book_add(w->ledger, &where, &book), 0);
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

/* ---- whose process it is ---- */

enum { FORGER = 1234 };

/* A process that changes its user at each byte that it is sent. */
struct other {
    pid_t pid;
    int fd;
};

static void other_step(const struct other *other)
{
    char byte = 'x';
    assert_int_equal(write(other->fd, &byte, 1), 1);
    assert_int_equal(read(other->fd, &byte, 1), 1);
}

/* `set_tid` 0: any PID. It starts as root, and then has the uids in turn. */
static struct other other_start(pid_t set_tid, const uid_t (*uids)[3], size_t n)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    struct clone_args args = {.exit_signal = SIGCHLD,
                              .set_tid = set_tid ? (uintptr_t)&set_tid : 0,
                              .set_tid_size = set_tid ? 1 : 0};
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0) {
        char byte;
        close(pair[0]);
        prctl(PR_SET_KEEPCAPS, 1);
        for (size_t i = 0; read(pair[1], &byte, 1) == 1; i++) {
            if (i < n && setresuid(uids[i][0], uids[i][1], uids[i][2]) < 0)
                _exit(1);
            struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
            struct __user_cap_data_struct data[2] = {0};
            syscall(SYS_capget, &header, data);
            data[0].effective = data[0].permitted; /* so that it can go on */
            syscall(SYS_capset, &header, data);
            (void)!write(pair[1], &byte, 1);
        }
        _exit(0);
    }
    close(pair[1]);
    assert_true(pid > 0);
    return (struct other){pid, pair[0]};
}

static void other_end(const struct other *other)
{
    close(other->fd);
    assert_int_equal(waitpid(other->pid, NULL, 0), other->pid);
}

/* A book that FORGER owns about some process, with a held lock. */
static int forge(struct world *w, const char *name, pid_t pid, uint64_t pid_ns, uint64_t start,
                 struct ledger_book **ret_book)
{
    struct book_builder b;
    book_begin(w, &b, name, BOOK_SOURCE_CLIENT);
    b.h.pid = pid;
    b.h.pid_ns = pid_ns;
    b.h.start_ticks = start;
    account_add(&b, MEMOIR_SPACE_HEAP, BOOK_DEVICE_HOST, 1, 100);
    builder_publish(&b);
    assert_int_equal(fchownat(w->dirfd, name, FORGER, FORGER, 0), 0);
    struct ledger_where where = {
        .dirfd = w->dirfd, .name = name, .fd = -1, .uid = FORGER, .place = w->place};
    return ledger_book_add(w->ledger, &where, ret_book);
}

static void set_uid_process_is_not_its_callers(void **state)
{
    struct world *w = *state;
    static const uid_t uids[][3] = {
        {FORGER, 0, 0}, {0, FORGER, 0}, {0, 0, FORGER}, {FORGER, FORGER, 0}, {FORGER, 0, FORGER}};
    if (geteuid() != 0)
        skip();
    struct other other = other_start(0, uids, sizeof(uids) / sizeof(*uids));
    struct proc_stat stat;
    assert_int_equal(proc_stat_read(other.pid, &stat), 0);
    for (size_t i = 0; i < sizeof(uids) / sizeof(*uids); i++) {
        struct ledger_book *book;
        char name[16];
        snprintf(name, sizeof(name), "%zu.book", i);
        other_step(&other);
        assert_int_equal(forge(w, name, other.pid, w->pid_ns, stat.start_ticks, &book), -EPERM);
    }
    other_end(&other);
}

static void process_with_capabilities_is_only_its_users(void **state)
{
    struct proc_ids ids;
    static const uid_t uids[][3] = {{FORGER, FORGER, FORGER}};
    if (geteuid() != 0)
        skip();
    struct other other = other_start(0, uids, 1);
    other_step(&other);
    assert_int_equal(proc_ids_read(other.pid, &ids), 0);
    assert_int_not_equal(ids.permitted, 0);
    assert_int_equal(proc_claim(other.pid, &ids, FORGER), PROC_CLAIM_USER);
    ids.permitted = 0;
    assert_int_equal(proc_claim(other.pid, &ids, FORGER), PROC_CLAIM_OWN);
    assert_int_equal(proc_claim(other.pid, &ids, FORGER + 1), PROC_CLAIM_NONE);
    ids.fs_uid = 0;
    assert_int_equal(proc_claim(other.pid, &ids, FORGER), PROC_CLAIM_NONE);
    other_end(&other);
}

static void book_of_a_pid_not_in_use_never_becomes_another_users(void **state)
{
    struct world *w = *state;
    struct ledger_book *book;
    if (geteuid() != 0)
        skip();
    /* A PID that is free now and soon another user's; neither namespace nor start time are told. */
    struct other first = other_start(0, NULL, 0);
    other_end(&first);
    assert_int_equal(forge(w, "a.book", first.pid, 0, 0, &book), 0);
    struct ledger_process *p = book->process;
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
    assert_null(ledger_process_find(w->ledger, first.pid));
    struct other second = other_start(first.pid, NULL, 0);
    assert_int_equal(second.pid, first.pid);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_EXITED);
    assert_false(p->pid_proved);
    assert_null(ledger_process_find(w->ledger, first.pid));
    other_end(&second);
}

static void process_that_changes_its_user_leaves_its_row(void **state)
{
    struct world *w = *state;
    static const uid_t uids[][3] = {{FORGER, FORGER, FORGER}, {FORGER, 0, 0}, {4321, 4321, 4321}};
    struct proc_stat stat;
    struct ledger_book *book;
    if (geteuid() != 0)
        skip();
    struct other other = other_start(0, uids, 3);
    other_step(&other);
    assert_int_equal(proc_stat_read(other.pid, &stat), 0);
    assert_int_equal(forge(w, "a.book", other.pid, w->pid_ns, stat.start_ticks, &book), 0);
    struct ledger_process *p = book->process;
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
    assert_true(p->pid_proved);
    assert_ptr_equal(ledger_process_find(w->ledger, other.pid), p);
    for (int i = 0; i < 2; i++) {
        other_step(&other);
        /* The lock is held, so it counts for its owner, without a PID. */
        assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
        assert_false(p->pid_proved);
        assert_null(ledger_process_find(w->ledger, other.pid));
    }
    other_end(&other);
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
    const struct CMUnitTest tests[] = {
        WORLD_TEST(devices_merge_by_their_strongest_name),
        WORLD_TEST(device_is_the_same_by_what_both_tell),
        WORLD_TEST(tenstorrents_devices_merge_by_number_where_no_board_is_named),
        WORLD_TEST(what_the_dead_held_is_not_in_use),
        WORLD_TEST(lock_and_pid_tell_the_state),
        WORLD_TEST(one_closed_book_does_not_close_the_process),
        WORLD_TEST(book_that_does_not_count_keeps_nothing_open),
        WORLD_TEST(removed_name_is_no_exec),
        WORLD_TEST(held_lock_is_life_whatever_else_differs),
        WORLD_TEST(book_on_behalf_goes_by_the_start_time),
        WORLD_TEST(zombie_is_dead),
        WORLD_TEST(pid_of_an_unknown_namespace_stays_unknown),
        WORLD_TEST(images_of_one_pid_are_two_rows),
        WORLD_TEST(same_file_is_one_book),
        WORLD_TEST(limits_refuse_and_say_so),
        WORLD_TEST(book_with_two_names_does_not_count),
        WORLD_TEST(user_may_have_only_so_much_mapped),
        WORLD_TEST(roots_file_in_a_users_place_does_not_count),
        WORLD_TEST(books_that_are_none),
        WORLD_TEST(owner_must_be_the_processs_own),
        WORLD_TEST(set_uid_process_is_not_its_callers),
        WORLD_TEST(process_with_capabilities_is_only_its_users),
        WORLD_TEST(book_of_a_pid_not_in_use_never_becomes_another_users),
        WORLD_TEST(process_that_changes_its_user_leaves_its_row),
        WORLD_TEST(figures_of_a_book_cut_short_are_absent),
        WORLD_TEST(round_in_pieces_reads_all),
        WORLD_TEST(scan_sees_processes_facts_and_problems),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
