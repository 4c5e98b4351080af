/* Deaths. See reaper.h. */
#include "daemon/reaper.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "book/control.h"
#include "daemon/cause.h"
#include "daemon/daemon.h"
#include "daemon/events.h"
#include "daemon/loop.h"
#include "daemon/native.h"
#include "daemon/retire.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"
#include "ledger/subject.h"

TAILQ_HEAD(waiting, watched);

struct reaper {
    struct loop_source *work; /* deferred: those that wait */
    struct waiting died;      /* a pidfd told of their end: they come first */
    struct waiting found;
    uint64_t spent_ns;        /* on retirements in this turn */
    struct book_watcher self; /* what goes into the control pages */
    size_t next;              /* where the next tick goes on */
    size_t polled;            /* processes without a pidfd */
    bool said_polling;
};

/* ledger_process.user_data */
struct watched {
    struct daemon *daemon;
    struct ledger_process *process;
    int pidfd; /* -1: polled */
    struct loop_source *source;
    bool seen_alive;
    bool died;          /* the pidfd said so */
    struct cause cause; /* with `died` or `waiting` */
    bool waiting;       /* for its turn to be retired */
    TAILQ_ENTRY(watched) link;
};

/* ---- each in its turn ----
 * What one death costs is bounded, but any user may leave many of them: after REAPER_TURN_MS the others wait
 * until everything else had its turn. */

static struct waiting *queue_of(struct reaper *reaper, const struct watched *w)
{
    return w->died ? &reaper->died : &reaper->found;
}

static void wait_end(struct reaper *reaper, struct watched *w)
{
    if (w->waiting)
        TAILQ_REMOVE(queue_of(reaper, w), w, link);
    w->waiting = false;
}

static bool retire_now(struct daemon *daemon, struct ledger_process *p, struct cause cause,
                       bool witnessed)
{
    uint64_t start = clock_monotonic_ns();
    bool done = retire_process(daemon, p, cause, witnessed);
    daemon->reaper->spent_ns += clock_monotonic_ns() - start;
    loop_defer(daemon->reaper->work); /* at the end of the turn the time begins anew */
    return done;
}

/* True when it is retired, or will be. */
static bool retire_in_turn(struct daemon *daemon, struct ledger_process *p, struct cause cause)
{
    struct reaper *reaper = daemon->reaper;
    struct watched *w = p->user_data;
    if (w && w->waiting)
        return true;
    if (!w || reaper->spent_ns < REAPER_TURN_MS * NS_PER_MS)
        return retire_now(daemon, p, cause, w && w->died);
    w->cause = cause;
    w->waiting = true;
    TAILQ_INSERT_TAIL(queue_of(reaper, w), w, link);
    loop_defer(reaper->work);
    return true;
}

static void on_work(void *context)
{
    struct daemon *daemon = context;
    struct reaper *reaper = daemon->reaper;
    reaper->spent_ns = 0;
    while (reaper->spent_ns < REAPER_TURN_MS * NS_PER_MS) {
        struct watched *w = TAILQ_FIRST(&reaper->died);
        if (!w)
            w = TAILQ_FIRST(&reaper->found);
        if (!w)
            return;
        wait_end(reaper, w);
        /* If a book is in use, the ticks try again. */
        (void)retire_now(daemon, w->process, w->cause, w->died);
    }
    loop_defer(reaper->work);
}

/* ---- begin and end ---- */

int reaper_new(struct daemon *daemon, struct reaper **ret_reaper)
{
    struct reaper *reaper = calloc(1, sizeof(*reaper));
    if (!reaper)
        return -ENOMEM;
    int r = ledger_watcher_self(&reaper->self);
    if (r < 0) {
        free(reaper);
        return r;
    }
    reaper->self.flags = BOOK_CONTROL_WATCHED;
    TAILQ_INIT(&reaper->died);
    TAILQ_INIT(&reaper->found);
    r = loop_add_deferred(daemon->loop, on_work, daemon, &reaper->work);
    if (r < 0) {
        free(reaper);
        return r;
    }
    *ret_reaper = reaper;
    return 0;
}

void reaper_free(struct reaper *reaper)
{
    if (!reaper)
        return;
    loop_source_free(reaper->work);
    free(reaper);
}

bool reaper_polls(const struct ledger_process *process)
{
    const struct watched *w = process->user_data;
    return !w || w->pidfd < 0;
}

size_t reaper_polled(const struct reaper *reaper)
{
    return reaper->polled;
}

void reaper_forget(struct daemon *daemon, struct ledger_process *process)
{
    struct watched *w = process->user_data;
    if (!w)
        return;
    process->user_data = NULL;
    wait_end(daemon->reaper, w);
    loop_source_free(w->source);
    if (w->pidfd >= 0)
        close(w->pidfd);
    else
        daemon->reaper->polled--;
    free(w);
}

static void on_death(void *context, uint32_t events)
{
    struct watched *w = context;
    struct daemon *daemon = w->daemon;
    struct ledger_process *p = w->process;
    loop_source_free(w->source); /* it would go on telling */
    w->source = NULL;
    wait_end(daemon->reaper, w); /* among those that were unknown before */
    w->died = true;
    w->cause = cause_read(w->pidfd, p->pid, p->start_ticks);
    (void)retire_in_turn(daemon, p, w->cause); /* if a book is in use, the ticks try again */
}

enum { SMALL_LIMIT = 4096 };

/* Books must still be opened, and clients be served, when every process has its pidfd, so the last
 * descriptors are not for those. */
static int pidfd_get(pid_t pid)
{
    struct rlimit limit;
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0)
        return -errno;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        rlim_t spare = limit.rlim_cur / REAPER_SPARE_SHARE;
        if (spare > REAPER_SPARE_FDS_MAX)
            spare = REAPER_SPARE_FDS_MAX;
        if (limit.rlim_cur < SMALL_LIMIT)
            spare = limit.rlim_cur / 4 < REAPER_SPARE_FDS ? limit.rlim_cur / 4 : REAPER_SPARE_FDS;
        if ((rlim_t)pidfd >= limit.rlim_cur - spare) {
            close(pidfd);
            return -EMFILE;
        }
    }
    return pidfd;
}

/* From now on deaths come by themselves, if there is a pid and a descriptor to be had. */
static struct watched *watch_process(struct daemon *daemon, struct ledger_process *p)
{
    struct watched *w = calloc(1, sizeof(*w));
    if (!w)
        return NULL;
    *w = (struct watched){.daemon = daemon, .process = p, .pidfd = -1};
    int r = p->valid & LEDGER_HAS_PID ? pidfd_get(p->pid) : -ESRCH;
    if (r >= 0) {
        w->pidfd = r;
        r = loop_add_fd(daemon->loop, w->pidfd, EPOLLIN, on_death, w, &w->source);
        if (r < 0) {
            close(w->pidfd);
            w->pidfd = -1;
        }
    }
    if (r < 0) {
        daemon->reaper->polled++;
        if (r != -ESRCH && !daemon->reaper->said_polling) {
            log_warn("cannot get a pidfd: %s, looking for the death of some processes only at each "
                     "refresh",
                     strerror(-r));
            daemon->reaper->said_polling = true;
        }
    }
    p->user_data = w;
    native_process_came(daemon->native, p);
    events_process_came(daemon->events, p);
    return w;
}

/* A pid that has another start time is not known to be the book's process, whose lock may yet say that it
 * lives: its end would say nothing. */
static void pidfd_doubt(struct daemon *daemon, struct ledger_process *p)
{
    struct watched *w = p->user_data;
    if (!w || w->pidfd < 0 || w->died || p->pid_proved)
        return;
    loop_source_free(w->source);
    w->source = NULL;
    close(w->pidfd);
    w->pidfd = -1;
    daemon->reaper->polled++;
}

/* Does its lock tell whether its writer is still there? Not one that others write, nor one whose name is gone:
 * the next image of a process removes those of earlier ones that no daemon has marked yet, and we may have
 * just begun with it. */
static bool lock_tells(const struct ledger_book *book)
{
    return !(book->identity->compat & BOOK_COMPAT_ON_BEHALF) &&
           (book->dirfd < 0 || ledger_book_check(book) != -ENOENT);
}

/* Has another image taken the place of the one that its books tell of? Where no lock tells, nothing else does:
 * the socket of one that only others write about may outlive exec. */
static bool was_replaced(const struct ledger_process *p)
{
    struct proc_stat stat;
    if (!(p->valid & LEDGER_HAS_PID) || !p->pid_proved || p->exec_id == 0 || p->host[0])
        return false;
    for (size_t i = 0; i < p->n_books; i++)
        if (lock_tells(p->books[i]))
            return false;
    uint64_t exec_id = subject_exec_id(p->pid);
    return exec_id != 0 && exec_id != p->exec_id && proc_stat_read(p->pid, &stat) == 0 &&
           proc_same_start(stat.start_ticks, p->start_ticks);
}

/* Retire the process if its state says so, and its books are not in use. */
static bool retire_if_over(struct daemon *daemon, struct ledger_process *p)
{
    struct watched *w = p->user_data;
    struct cause cause = {CAUSE_UNKNOWN, 0};
    if (w && w->died)
        return retire_in_turn(daemon, p, w->cause);
    bool maybe_there = ledger_process_exists(p) || ledger_process_holds(p);
    if (ledger_process_replaced(p) || (maybe_there && was_replaced(p))) {
        cause.kind = CAUSE_EXEC;
    } else if (maybe_there) {
        return false;
    } else {
        if (p->valid & LEDGER_HAS_PID)
            cause = cause_read(w ? w->pidfd : -1, p->pid, p->start_ticks);
        if (cause.kind == CAUSE_UNKNOWN && w && !w->seen_alive)
            cause.kind = CAUSE_FOUND;
    }
    return retire_in_turn(daemon, p, cause);
}

/* Tell the writer that a daemon will retire its book, so that it leaves it there at a clean exit. A book of
 * another mount namespace has no name here and cannot be removed from here, so it is not marked: its writer
 * removes it at exit, and its last figures are read through the descriptor that we keep. */
static void book_mark(const struct daemon *daemon, const struct ledger_book *book, bool watched)
{
    if (book->dirfd < 0)
        return;
    int fd = ledger_book_open(book);
    if (fd < 0)
        return;
    int r =
        book_control_write(book->reader, fd, geteuid() == 0 ? BOOK_WATCHER_ROOT : BOOK_WATCHER_USER,
                           watched ? &daemon->reaper->self : NULL);
    if (r < 0)
        log_debug("cannot mark book '%s': %s", book->path, strerror(-r));
    close(fd);
}

/* Other rows with the PID of a new one: earlier images of the process, which are over now, and books that
 * another user wrote for a PID before it was in use. */
static void namesakes_check(struct daemon *daemon, const struct ledger_process *p)
{
    enum { CHECKS_MAX = 16 }; /* the ticks look at the others */
    struct ledger_process *q = ledger_process_next(daemon->ledger, p->book_pid, NULL);
    for (int i = 0; i < CHECKS_MAX && q; i++) {
        struct ledger_process *next = ledger_process_next(daemon->ledger, p->book_pid, q);
        if (q != p)
            reaper_check(daemon, q); /* may remove it */
        q = next;
    }
}

void reaper_add(struct daemon *daemon, struct ledger_book *book)
{
    struct ledger_process *p = book->process;
    bool fresh = !p->user_data;
    if (fresh)
        (void)watch_process(daemon, p); /* without memory the ticks find its death */
    /* After the pidfd is open: a pid that was reused before that is found out here,
     * and from here on cannot be. */
    ledger_update_state(daemon->ledger, p);
    pidfd_doubt(daemon, p);
    if (retire_if_over(daemon, p))
        return;
    struct watched *w = p->user_data;
    if (w)
        w->seen_alive |= ledger_process_exists(p) || ledger_process_replaced(p);
    book_mark(daemon, book, true);
    if (log_enabled(LOG_LEVEL_DEBUG))
        log_debug("watching PID %d (%s) by '%s'", (int)p->pid, p->name, book->path);
    if (fresh)
        namesakes_check(daemon, p);
}

void reaper_check(struct daemon *daemon, struct ledger_process *process)
{
    ledger_update_state(daemon->ledger, process);
    struct watched *w = process->user_data;
    if (retire_if_over(daemon, process))
        return;
    /* A pid that was not known before, or descriptors that are free again. */
    if (w && w->pidfd < 0 && process->pid_proved) {
        bool seen_alive = w->seen_alive;
        reaper_forget(daemon, process);
        w = watch_process(daemon, process);
        if (w)
            w->seen_alive = seen_alive;
        ledger_update_state(daemon->ledger,
                            process); /* still the same, now that it cannot change */
        pidfd_doubt(daemon, process);
    }
}

void reaper_tick(struct daemon *daemon)
{
    struct reaper *reaper = daemon->reaper;
    size_t n;
    struct ledger_process *const *all = ledger_processes(daemon->ledger, &n);
    size_t checks = n < REAPER_CHECKS_MAX ? n : REAPER_CHECKS_MAX;
    for (size_t i = 0; i < checks; i++) {
        all = ledger_processes(daemon->ledger, &n);
        if (n == 0)
            return;
        if (reaper->next >= n)
            reaper->next = 0;
        struct ledger_process *p = all[reaper->next];
        struct watched *w = p->user_data;
        /* A retired row's place is taken by the last one, so stay there for it. */
        if (!w || w->pidfd < 0 || w->died || ledger_writers_gone(p))
            reaper_check(daemon, p);
        else if (was_replaced(p))
            (void)retire_in_turn(daemon, p, (struct cause){CAUSE_EXEC, 0});
        size_t after;
        ledger_processes(daemon->ledger, &after);
        if (after == n)
            reaper->next++;
    }
}

void reaper_release_books(struct daemon *daemon)
{
    struct ledger_books books = ledger_books(daemon->ledger);
    for (size_t i = 0; i < books.n; i++)
        book_mark(daemon, books.books[i], false);
    size_t n;
    struct ledger_process *const *all = ledger_processes(daemon->ledger, &n);
    for (size_t i = 0; i < n; i++)
        reaper_forget(daemon, all[i]);
}
