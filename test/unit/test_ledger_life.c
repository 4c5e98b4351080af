/* Is a process alive, and which row of the process table is it: each question has one answer. */
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

#include "host_tree.h"
#include "ledger/host.h"
#include "ledger/host_books.h"
#include "ledger_world.h"

#include "ledger/rows.h"

#define STATES ((enum ledger_state)(LEDGER_UNKNOWN + 1))

static const struct {
    bool exists, holds, reachable;
} expected[STATES] = {
    [LEDGER_RUNNING] = {true, true, true},     [LEDGER_STOPPED] = {true, true, true},
    [LEDGER_CLOSED] = {true, false, true},     [LEDGER_EXITED] = {false, false, false},
    [LEDGER_REPLACED] = {false, false, false}, [LEDGER_UNKNOWN] = {false, true, false},
};

static struct ledger_process process(enum ledger_state state)
{
    return (struct ledger_process){
        .state = state, .valid = LEDGER_HAS_PID, .pid = 10, .start_ticks = 5, .pid_proved = true};
}

static void every_state_has_one_meaning(void **state)
{
    for (enum ledger_state s = 0; s < STATES; s++) {
        struct ledger_process p = process(s);
        assert_int_equal(ledger_process_exists(&p), expected[s].exists);
        assert_int_equal(ledger_process_holds(&p), expected[s].holds);
        assert_int_equal(ledger_process_reachable(&p), expected[s].reachable);
        assert_int_equal(ledger_process_stopped(&p), s == LEDGER_STOPPED);
        assert_int_equal(ledger_process_replaced(&p), s == LEDGER_REPLACED);
    }
}

static void process_of_another_machine_counts_but_cannot_be_probed(void **state)
{
    for (enum ledger_state s = 0; s < STATES; s++) {
        struct ledger_process p = process(s);
        strcpy(p.host, "other");
        assert_int_equal(ledger_process_exists(&p), expected[s].exists);
        assert_int_equal(ledger_process_holds(&p), expected[s].holds);
        assert_false(ledger_process_reachable(&p));
    }
}

static void pid_that_is_not_proved_is_not_probed(void **state)
{
    struct ledger_process p = process(LEDGER_RUNNING);
    p.pid_proved = false;
    assert_false(ledger_process_reachable(&p));
    p.start_ticks = 0; /* its book tells none: the ledger proved the owner of the PID */
    assert_true(ledger_process_reachable(&p));
    p.valid = 0;
    assert_false(ledger_process_reachable(&p));
    p = process(LEDGER_RUNNING);
    p.pid = 0;
    assert_false(ledger_process_reachable(&p));
}

/* ---- what the lock, the owner and /proc tell together ---- */

static struct ledger_process *process_of(struct world *w, struct book_builder *b, const char *name)
{
    builder_publish(b);
    return add(w, name)->process;
}

/* A process that waits until end_child(). `pid` 0: any PID. */
static pid_t start_child(pid_t pid)
{
    struct clone_args args = {
        .exit_signal = SIGCHLD, .set_tid = pid ? (uintptr_t)&pid : 0, .set_tid_size = pid ? 1 : 0};
    pid_t child = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves it behind */
        pause();
        _exit(0);
    }
    assert_true(child > 0);
    return child;
}

static void end_child(pid_t child)
{
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static struct ledger_process *own_process(struct world *w)
{
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    account_add(&b, MEMOIR_SPACE_HEAP, BOOK_RECORD_NONE, 1, 100);
    builder_publish(&b);
    struct ledger_process *p = add(w, "a.book")->process;
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
    return p;
}

/* Something else holds the lock, for example a child that kept the mapping. */
static void process_that_ended_before_the_first_look_has_exited(void **state)
{
    struct world *w = *state;
    pid_t child = start_child(0);
    end_child(child);
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    b.h.pid = child;
    assert_int_equal(ledger_update_state(w->ledger, process_of(w, &b, "a.book")), LEDGER_EXITED);
}

static void without_namespace_only_the_lock_tells_the_end_and_the_pid_goes_at_once(void **state)
{
    struct world *w = *state;
    pid_t child = start_child(0);
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    b.h.pid = child;
    b.h.pid_ns = 0;
    b.h.start_ticks = 0;
    struct ledger_process *p = process_of(w, &b, "a.book");
    ledger_refresh_process(w->ledger, p);
    for (int look = 0; look < 2; look++) {
        assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
        assert_true(p->valid & LEDGER_HAS_PID);
        assert_false(p->pid_proved); /* no book tells when it started */
    }
    end_child(child);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
    assert_int_equal(p->valid, LEDGER_HAS_FIGURES);
    assert_int_equal(p->pid, 0);
    assert_int_equal(flock(b.fd, LOCK_UN), 0);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_EXITED);
}

static void process_that_was_proved_has_exited_when_its_pid_is_gone(void **state)
{
    struct world *w = *state;
    pid_t child = start_child(0);
    struct proc_stat stat;
    assert_int_equal(proc_stat_read(child, &stat), 0);
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    b.h.pid = child;
    b.h.pid_ns = 0;
    b.h.start_ticks = stat.start_ticks;
    struct ledger_process *p = process_of(w, &b, "a.book");
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
    assert_true(p->pid_proved);
    end_child(child);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_EXITED);
}

static void pid_that_is_used_again_ends_the_first_process(void **state)
{
    struct world *w = *state;
    if (geteuid() != 0)
        skip();
    pid_t child = start_child(0);
    struct proc_stat first, now;
    assert_int_equal(proc_stat_read(child, &first), 0);
    struct book_builder b, started;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    b.h.pid = child;
    b.h.start_ticks = 0;
    struct ledger_process *p = process_of(w, &b, "a.book");
    book_begin(w, &started, "b.book", BOOK_SOURCE_CLIENT);
    started.h.pid = child;
    started.h.start_ticks = first.start_ticks;
    started.h.exec_id++;
    struct ledger_process *q = process_of(w, &started, "b.book");
    assert_ptr_not_equal(p, q);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
    assert_int_equal(ledger_update_state(w->ledger, q), LEDGER_RUNNING);
    assert_true(ledger_process_reachable(q));
    end_child(child);
    do { /* start times count ticks */
        struct timespec tick = {.tv_nsec = 10000000};
        nanosleep(&tick, NULL);
        assert_int_equal(start_child(child), child);
        assert_int_equal(proc_stat_read(child, &now), 0);
        end_child(child);
    } while (proc_same_start(now.start_ticks, first.start_ticks));
    assert_int_equal(start_child(child), child);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_EXITED);
    assert_false(ledger_process_reachable(p));
    /* With a start time of its own a held lock is life, perhaps in another time namespace. */
    assert_int_equal(ledger_update_state(w->ledger, q), LEDGER_RUNNING);
    assert_false(ledger_process_reachable(q));
    end_child(child);
}

static void pid_with_another_start_is_told_but_not_probed(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    b.h.start_ticks += 12345; /* a time namespace shifts it */
    struct ledger_process *p = process_of(w, &b, "a.book");
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
    assert_true(p->valid & LEDGER_HAS_PID);
    assert_int_equal(p->pid, getpid());
    assert_false(ledger_process_reachable(p));
}

/* A book from another PID namespace: who maps it is the process, if it started when the book says so. */
static void process_that_maps_a_book_has_its_pid(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    for (int shifted = 0; shifted < 2; shifted++) {
        char name[16];
        snprintf(name, sizeof(name), "%d.book", shifted);
        book_begin(w, &b, name, BOOK_SOURCE_CLIENT);
        b.h.pid_ns = w->pid_ns + 1;
        b.h.pid = 7;
        b.h.start_ticks += shifted ? 12345 : 0;
        builder_publish(&b);
        struct ledger_where where = {.dirfd = w->dirfd,
                                     .name = name,
                                     .fd = -1,
                                     .uid = geteuid(),
                                     .hint_pid = getpid(),
                                     .place = w->place};
        struct ledger_book *book;
        assert_int_equal(ledger_book_add(w->ledger, &where, &book), 0);
        pid_t pid = ledger_resolve_pid(w->ledger, book_row(book));
        if (shifted)
            assert_true(pid <= 0);
        else
            assert_int_equal(pid, getpid());
        book_row(book)->hint_pid = 0;
        assert_true(ledger_resolve_pid(w->ledger, book_row(book)) <= 0);
        book_row(book)->hint_pid = 1 << 29; /* gone */
        assert_true(ledger_resolve_pid(w->ledger, book_row(book)) <= 0);
    }
}

/* A PID that was not known is found later, and nothing else is forgotten. */
static void pid_is_found_again(void **state)
{
    struct world *w = *state;
    struct ledger_process *p = own_process(w);
    ledger_update_state(w->ledger, p);
    uint32_t valid = p->valid;
    assert_true(valid & LEDGER_HAS_PID);
    assert_true(valid & ~(uint32_t)LEDGER_HAS_PID);
    p->valid &= ~(uint32_t)LEDGER_HAS_PID;
    p->pid = 0;
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
    assert_int_equal(p->valid, valid);
    assert_int_equal(p->pid, getpid());
}

/* That nobody has a PID tells something only where PIDs mean the same. */
static void pid_that_is_gone_tells_nothing_about_another_namespace(void **state)
{
    struct world *w = *state;
    struct ledger_process *p = own_process(w);
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        p->pid = 1 << 29;
        p->valid |= LEDGER_HAS_PID;
        p->pid_proved = false;
        p->pid_ns = w->pid_ns + (uint64_t)elsewhere;
        assert_int_equal(ledger_update_state(w->ledger, p) == LEDGER_EXITED, !elsewhere);
    }
}

/* An owner whose claim does not hold any more loses the trust for good. */
static void trust_is_lost_with_the_owner(void **state)
{
    struct world *w = *state;
    struct ledger_process *p = own_process(w);
    struct process_row *row = process_row(p);
    row->trusted = true;
    ledger_update_state(w->ledger, p);
    assert_true(row->trusted);
    if (geteuid() != 0)
        skip();
    struct book_identity *id = (struct book_identity *)(uintptr_t)p->books[0]->identity;
    uint32_t owner = id->st_uid;
    id->st_uid = 1234;
    ledger_update_state(w->ledger, p);
    assert_false(row->trusted);
    id->st_uid = owner;
    ledger_update_state(w->ledger, p);
    assert_false(row->trusted);
}

static void pid_of_another_user_is_not_told(void **state)
{
    struct world *w = *state;
    if (geteuid() != 0)
        skip();
    struct book_builder b;
    book_begin(w, &b, "a.book", BOOK_SOURCE_CLIENT);
    b.h.start_ticks += 12345;
    builder_publish(&b);
    assert_int_equal(fchownat(w->dirfd, "a.book", 1234, 1234, 0), 0);
    struct ledger_where where = {
        .dirfd = w->dirfd, .name = "a.book", .fd = -1, .uid = 1234, .place = w->place};
    struct ledger_book *book;
    assert_int_equal(ledger_book_add(w->ledger, &where, &book), 0);
    assert_int_equal(flock(b.fd, LOCK_UN), 0);
    assert_int_equal(ledger_update_state(w->ledger, book->process), LEDGER_EXITED);
    assert_false(book->process->valid & LEDGER_HAS_PID);
    assert_int_equal(book->process->pid, 0);
}

/* Nothing else is known about a process of a namespace that cannot be seen from here. */
static void process_has_exited_when_none_of_its_books_has_a_writer(void **state)
{
    struct world *w = *state;
    struct book_builder b[3];
    struct ledger_process *p = NULL;
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d.book", i);
        book_begin(w, &b[i], name, BOOK_SOURCE_CLIENT);
        b[i].h.pid_ns = 12345;
        p = process_of(w, &b[i], name);
    }
    assert_int_equal(p->n_books, 3);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
    assert_int_equal(unlinkat(w->dirfd, "0.book", 0), 0);
    assert_int_equal(unlinkat(w->dirfd, "1.book", 0), 0);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
    assert_int_equal(flock(b[2].fd, LOCK_UN), 0);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_EXITED);
    assert_int_equal(unlinkat(w->dirfd, "2.book", 0), 0);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_EXITED);
    assert_int_equal(mkdirat(w->dirfd, "1.book", 0700), 0); /* no book: says nothing */
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_UNKNOWN);
}

static void one_writer_is_enough_to_live(void **state)
{
    struct world *w = *state;
    struct book_builder b[2], old[2];
    struct ledger_process *p = NULL, *replaced = NULL;
    for (int i = 0; i < 2; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d.book", i);
        book_begin(w, &b[i], name, BOOK_SOURCE_CLIENT);
        b[i].h.pid_ns = 12345;
        p = process_of(w, &b[i], name);
        snprintf(name, sizeof(name), "old%d.book", i);
        book_begin(w, &old[i], name, BOOK_SOURCE_CLIENT);
        replaced = process_of(w, &old[i], name);
        assert_int_equal(flock(old[i].fd, LOCK_UN), 0);
    }
    /* Two books without a writer, and the PID goes on: an exec that keeps no book. */
    assert_int_equal(ledger_update_state(w->ledger, replaced), LEDGER_REPLACED);
    assert_int_equal(flock(b[1].fd, LOCK_UN), 0);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
    assert_int_equal(flock(b[0].fd, LOCK_UN), 0);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_EXITED);
    assert_int_equal(flock(b[1].fd, LOCK_EX), 0);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
}

static void lock_of_a_book_on_behalf_tells_about_other_machines_only(void **state)
{
    struct world *w = *state;
    struct book_builder b[2];
    for (int remote = 0; remote < 2; remote++) {
        const char *name = remote ? "r.book" : "l.book";
        book_begin(w, &b[remote], name, BOOK_SOURCE_SOCKET);
        b[remote].h.compat = BOOK_COMPAT_ON_BEHALF | (remote ? BOOK_COMPAT_REMOTE : 0);
        b[remote].h.pid_ns = 12345;
        strcpy(b[remote].h.host, remote ? "other" : "");
        struct ledger_process *p = process_of(w, &b[remote], name);
        assert_int_equal(ledger_update_state(w->ledger, p),
                         remote ? LEDGER_RUNNING : LEDGER_UNKNOWN);
        assert_int_equal(flock(b[remote].fd, LOCK_UN), 0);
        assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_UNKNOWN);
        assert_false(p->valid & LEDGER_HAS_PID);
    }
    /* Another daemon's, which is being written, then one that is not. */
    struct book_builder more[2];
    struct ledger_process *p = NULL;
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "s.book" : "t.book";
        book_begin(w, &more[i], name, BOOK_SOURCE_SOCKET);
        more[i].h.compat = BOOK_COMPAT_ON_BEHALF | BOOK_COMPAT_REMOTE;
        more[i].h.exec_id += 7;
        strcpy(more[i].h.host, "third");
        p = process_of(w, &more[i], name);
    }
    assert_int_equal(p->n_books, 2);
    assert_int_equal(flock(more[1].fd, LOCK_UN), 0);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_RUNNING);
}

static void own_book_that_is_closed_closes_the_process(void **state)
{
    struct world *w = *state;
    struct book_builder own, behalf;
    book_begin(w, &own, "a.book", BOOK_SOURCE_CLIENT);
    own.h.state = BOOK_STATE_CLOSED;
    struct ledger_process *p = process_of(w, &own, "a.book");
    book_begin(w, &behalf, "b.book", BOOK_SOURCE_SOCKET);
    behalf.h.compat = BOOK_COMPAT_ON_BEHALF;
    assert_ptr_equal(process_of(w, &behalf, "b.book"), p);
    assert_int_equal(ledger_update_state(w->ledger, p), LEDGER_CLOSED);
}

static void memory_and_threads_of_a_living_process_are_told(void **state)
{
    struct world *w = *state;
    struct proc_memory memory;
    struct ledger_process *p = own_process(w);
    uint32_t before = p->valid & ~(uint32_t)(LEDGER_HAS_RSS | LEDGER_HAS_THREADS);
    ledger_update_facts(w->ledger, p);
    assert_int_equal(p->valid, before | LEDGER_HAS_RSS | LEDGER_HAS_THREADS);
    assert_int_equal(proc_memory_read(getpid(), &memory), 0);
    assert_true(p->valid & LEDGER_HAS_RSS);
    assert_true(p->valid & LEDGER_HAS_THREADS);
    assert_true(p->vms_bytes > memory.vms_bytes / 2 && p->vms_bytes < memory.vms_bytes * 2);
    assert_true(p->rss_bytes > memory.rss_bytes / 2 && p->rss_bytes < memory.rss_bytes * 2);
    assert_true(p->shared_bytes > memory.shared_bytes / 2 && p->shared_bytes < p->rss_bytes * 2);
    assert_int_equal(p->threads, 1);
    uint32_t valid = p->valid;
    p->pid_proved = false;
    ledger_update_facts(w->ledger, p);
    assert_int_equal(p->valid, valid & ~(uint32_t)(LEDGER_HAS_RSS | LEDGER_HAS_THREADS));
}

static void watcher_names_itself_so_that_its_end_is_noticed(void **state)
{
    struct world *w = *state;
    struct book_watcher self;
    assert_int_equal(ledger_watcher_self(&self), 0);
    assert_int_equal(self.pid, getpid());
    assert_int_equal(self.start_ticks, w->self.start_ticks);
    assert_int_equal(self.pid_ns, w->pid_ns);
}

/* ---- the join ---- */

static struct host *host;

static int join_setup(void **state)
{
    setup(state);
    struct world *w = *state;
    tree_make();
    tree_process(&(struct tree_process){.pid = 1, .start = 1, .rss_pages = 1});
    tree_process(&(struct tree_process){
        .pid = getpid(), .start = w->self.start_ticks, .rss_pages = 100, .uid = geteuid()});
    tree_process(&(struct tree_process){.pid = 4194303, .start = 1, .rss_pages = 1});
    assert_int_equal(host_new(&(struct host_options){.proc = tree_root}, &host), 0);
    assert_int_equal(host_refresh(host), 0);
    return 0;
}

static int join_teardown(void **state)
{
    host_free(host);
    tree_remove();
    return teardown(state);
}

/* How many rows have books; that of this process has `p`, or none. */
static bool joined(const struct world *w, const struct ledger_process *p)
{
    const struct ledger_process **books;
    size_t n, found = 0;
    struct host_process *const *rows = host_processes(host, &n);
    assert_int_equal(n, 3);
    assert_int_equal(host_books_join(host, w->ledger, &books), 0);
    for (size_t i = 0; i < n; i++) {
        if (!books[i])
            continue;
        assert_int_equal(rows[i]->pid, getpid());
        assert_ptr_equal(books[i], p);
        found++;
    }
    free(books);
    return found > 0;
}

static void books_join_the_row_of_their_process_only(void **state)
{
    struct world *w = *state;
    struct ledger_process *p = own_process(w);
    assert_true(joined(w, p));
    for (enum ledger_state s = 0; s < STATES; s++) {
        p->state = s;
        assert_int_equal(joined(w, p), expected[s].holds && expected[s].reachable);
    }
    p->state = LEDGER_RUNNING;
    p->start_ticks += 2; /* the PID is another process's by now */
    assert_false(joined(w, p));
    p->start_ticks = 0;
    assert_true(joined(w, p));
    p->pid = getpid() + 1; /* there is no such row */
    assert_false(joined(w, p));
    p->pid = 4194304 + 1; /* past the last one */
    assert_false(joined(w, p));
}

/* Before an exec the process kept a book, too; the one that runs is the row's. */
static void running_image_joins_before_others_of_its_pid(void **state)
{
    struct world *w = *state;
    struct ledger_process *images[2];
    images[0] = own_process(w);
    struct book_builder b;
    book_begin(w, &b, "b.book", BOOK_SOURCE_CLIENT);
    b.h.exec_id++;
    images[1] = process_of(w, &b, "b.book");
    for (int runs = 0; runs < 2; runs++) {
        ledger_update_state(w->ledger, images[0]);
        ledger_update_state(w->ledger, images[1]);
        images[!runs]->state = LEDGER_STOPPED;
        assert_true(joined(w, images[runs]));
    }
}

/* Of two in the same state, the one whose owner was proved counts, in whatever order they came. */
static void trusted_image_joins_before_one_that_is_not(void **state)
{
    struct world *w = *state;
    struct ledger_process *images[2];
    images[0] = own_process(w);
    struct book_builder b;
    book_begin(w, &b, "b.book", BOOK_SOURCE_CLIENT);
    b.h.exec_id++;
    images[1] = process_of(w, &b, "b.book");
    for (int trusted = 0; trusted < 2; trusted++) {
        for (int i = 0; i < 2; i++) {
            ledger_update_state(w->ledger, images[i]);
            images[i]->state = LEDGER_RUNNING;
            process_row(images[i])->trusted = i == trusted;
        }
        assert_true(joined(w, images[trusted]));
        assert_true(ledger_process_before(images[trusted], images[!trusted]));
        assert_false(ledger_process_before(images[!trusted], images[trusted]));
        assert_false(ledger_process_before(images[trusted], images[trusted]));
        /* But what runs counts before what does not. */
        images[trusted]->state = LEDGER_STOPPED;
        assert_true(joined(w, images[!trusted]));
    }
}

/* Claims find their rows in any order, and of several for a row the first in precedence stays. */
static void claims_find_their_rows_in_any_order(void **state)
{
    enum { ROWS = 37 };
    struct host_join join = {0};
    for (int i = 0; i < ROWS; i++)
        tree_process(&(struct tree_process){.pid = 5000000 + 3 * i, .start = 7, .rss_pages = 1});
    struct host *many = NULL;
    assert_int_equal(host_new(&(struct host_options){.proc = tree_root}, &many), 0);
    assert_int_equal(host_refresh(many), 0);
    for (uint64_t order = 1; order < ROWS; order++) { /* ROWS is a prime: each visits all rows */
        assert_int_equal(host_join_begin(&join, many), 0);
        for (uint32_t i = 0; i < ROWS; i++) {
            uint32_t number = (uint32_t)(i * order % ROWS);
            pid_t pid = 5000000 + 3 * (pid_t)number;
            assert_false(host_join_add(&join, &(struct host_claim){7, pid + 1, 0}, 999));
            assert_true(host_join_add(&join, &(struct host_claim){7, pid, 5}, number));
            assert_true(host_join_add(&join, &(struct host_claim){7, pid, 5}, 998));
            assert_true(host_join_add(&join, &(struct host_claim){7, pid, 6}, 997));
            if (number % 2)
                assert_true(host_join_add(&join, &(struct host_claim){7, pid, 4}, 100 + number));
        }
        size_t found = 0;
        for (size_t k = 0; k < join.n_rows; k++) {
            if (join.rows[k]->pid < 5000000)
                continue;
            uint32_t number = (uint32_t)(join.rows[k]->pid - 5000000) / 3;
            assert_int_equal(join.joined[k].claim, number % 2 ? 100 + number : number);
            found++;
        }
        assert_int_equal(found, ROWS);
    }
    host_join_release(&join);
    assert_null(join.joined);
    assert_int_equal(join.cap_rows, 0);
    host_free(many);
}

static void claim_joins_the_row_of_its_pid_and_start(void **state)
{
    struct world *w = *state;
    const uint64_t start = w->self.start_ticks;
    const struct {
        struct host_claim claim;
        bool found;
    } cases[] = {
        {{start, getpid(), 0}, true},      {{start + 1, getpid(), 0}, true}, /* a tick's rounding */
        {{start + 2, getpid(), 0}, false}, {{0, getpid(), 0}, true},
        {{0, getpid() + 1, 0}, false},     {{0, 0, 0}, false},
    };
    struct host_join join = {0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(host_join_begin(&join, host), 0);
        assert_int_equal(host_join_add(&join, &cases[i].claim, 7), cases[i].found);
        for (size_t k = 0; k < join.n_rows; k++)
            assert_int_equal(join.joined[k].claim,
                             cases[i].found && join.rows[k]->pid == getpid() ? 7 : HOST_JOIN_NONE);
    }
    host_join_release(&join);
}

static void no_books_join_no_row(void **state)
{
    const struct ledger_process **books;
    assert_int_equal(host_books_join(host, NULL, &books), 0);
    assert_null(books[0]);
    free(books);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_state_has_one_meaning),
        cmocka_unit_test(process_of_another_machine_counts_but_cannot_be_probed),
        cmocka_unit_test(pid_that_is_not_proved_is_not_probed),
        WORLD_TEST(process_that_maps_a_book_has_its_pid),
        WORLD_TEST(pid_is_found_again),
        WORLD_TEST(pid_that_is_gone_tells_nothing_about_another_namespace),
        WORLD_TEST(trust_is_lost_with_the_owner),
        WORLD_TEST(process_that_ended_before_the_first_look_has_exited),
        WORLD_TEST(without_namespace_only_the_lock_tells_the_end_and_the_pid_goes_at_once),
        WORLD_TEST(process_that_was_proved_has_exited_when_its_pid_is_gone),
        WORLD_TEST(pid_that_is_used_again_ends_the_first_process),
        WORLD_TEST(pid_with_another_start_is_told_but_not_probed),
        WORLD_TEST(pid_of_another_user_is_not_told),
        WORLD_TEST(process_has_exited_when_none_of_its_books_has_a_writer),
        WORLD_TEST(one_writer_is_enough_to_live),
        WORLD_TEST(lock_of_a_book_on_behalf_tells_about_other_machines_only),
        WORLD_TEST(own_book_that_is_closed_closes_the_process),
        WORLD_TEST(memory_and_threads_of_a_living_process_are_told),
        WORLD_TEST(watcher_names_itself_so_that_its_end_is_noticed),
        cmocka_unit_test_setup_teardown(books_join_the_row_of_their_process_only, join_setup,
                                        join_teardown),
        cmocka_unit_test_setup_teardown(running_image_joins_before_others_of_its_pid, join_setup,
                                        join_teardown),
        cmocka_unit_test_setup_teardown(trusted_image_joins_before_one_that_is_not, join_setup,
                                        join_teardown),
        cmocka_unit_test_setup_teardown(claims_find_their_rows_in_any_order, join_setup,
                                        join_teardown),
        cmocka_unit_test_setup_teardown(claim_joins_the_row_of_its_pid_and_start, join_setup,
                                        join_teardown),
        cmocka_unit_test_setup_teardown(no_books_join_no_row, join_setup, join_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
