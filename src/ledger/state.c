/* Who a book is about, and whether he lives.
 *
 * First comes the lock that a writer holds through its mapping. A book that a process wrote itself and
 * whose lock is held is a living process's: containers put a boot id of their own in place of the
 * machine's, time namespaces shift start times, and neither says anything about death. A lock that is
 * free is proof that the writer is gone.
 *
 * Then /proc. A pid that is gone, or a zombie all of whose threads ended, is death, even though a child
 * made by a bare clone system call may keep the mapping and the lock: it is no writer. A pid with
 * another start time is death where no lock speaks against it. A lock that is free while the pid lives
 * on means that the program was replaced by exec. EPERM, or our own lack of descriptors, tell nothing,
 * and then the state stays what it was. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "book/control.h"
#include "ledger/proc.h"
#include "ledger/rows.h"

enum life {
    LIFE_UNKNOWN,
    LIFE_ALIVE,
    LIFE_DYING,
    LIFE_DEAD,  /* nobody has the pid, and it was in our own namespace or was proved before */
    LIFE_OTHER, /* the pid has another start time: somebody else's, or the book's is shifted */
};

pid_t ledger_resolve_pid(struct ledger *ledger, const struct book_row *book)
{
    const struct book_identity *id = book->b.identity;
    if (id->compat & BOOK_COMPAT_REMOTE)
        return 0;
    if (id->pid_ns == 0 || ledger->own_pid_ns == 0 || id->pid_ns == ledger->own_pid_ns)
        return id->pid;
    struct proc_stat stat;
    if (book->hint_pid && proc_stat_read(book->hint_pid, &stat) == 0 &&
        proc_same_start(stat.start_ticks, id->start_ticks))
        return book->hint_pid;
    return pidns_find(ledger->pidns, id->pid_ns, id->pid, id->start_ticks);
}

/* /proc may hide processes of others (hidepid); signals tell them apart from those that are gone. */
static enum life missing_life(const struct ledger *ledger, const struct ledger_process *p)
{
    bool ours = p->pid_proved || (p->pid_ns != 0 && p->pid_ns == ledger->own_pid_ns);
    return ours && kill(p->pid, 0) < 0 && errno == ESRCH ? LIFE_DEAD : LIFE_UNKNOWN;
}

/* May the owners of all its books speak for the process that has its PID now? PROC_CLAIM_NONE if one may
 * not; -errno if nothing could be read. Root's books need no proof. */
static int owners_claim(const struct ledger_process *p)
{
    struct proc_ids ids;
    bool read = false;
    enum proc_claim least = PROC_CLAIM_OWN;
    for (size_t i = 0; i < p->n_books; i++) {
        uint32_t uid = p->books[i]->identity->st_uid;
        if (uid == 0)
            continue;
        int r = read ? 0 : proc_ids_read(p->pid, &ids);
        if (r < 0)
            return r;
        read = true;
        enum proc_claim claim = proc_claim(p->pid, &ids, uid);
        if (claim < least)
            least = claim;
    }
    return (int)least;
}

/* Prove the owner against the process that has the PID now. Anybody can write a PID that is not in use
 * yet, or guess a start time, so what was not refused when the book came may have to be refused later.
 * LIFE_ALIVE: proved. */
static enum life owner_prove(struct process_row *row, const struct proc_stat *stat)
{
    struct ledger_process *p = &row->p;
    int claim = owners_claim(p);
    if (claim < 0) {
        if (claim == -ESRCH)
            row->owner_proved = false;
        return LIFE_UNKNOWN;
    }
    row->owner_proved = claim != PROC_CLAIM_NONE;
    row->owner_refused = claim == PROC_CLAIM_NONE;
    row->trusted &= claim == PROC_CLAIM_OWN;
    if (row->owner_proved) {
        row->proved_start = stat->start_ticks;
        return LIFE_ALIVE;
    }
    /* One that was proved before changed its user, and its lock tells whether the book's writer lives. */
    bool before = row->proved_start != 0 && proc_same_start(row->proved_start, stat->start_ticks);
    return before ? LIFE_OTHER : LIFE_DEAD;
}

/* What /proc says about the process that the book names. */
static enum life process_life(struct ledger *ledger, struct process_row *row)
{
    struct ledger_process *p = &row->p;
    if (!(p->valid & LEDGER_HAS_PID)) {
        pid_t pid = p->n_books ? ledger_resolve_pid(ledger, book_row(p->books[0])) : 0;
        if (pid <= 0)
            return LIFE_UNKNOWN;
        ledger_process_pid_set(ledger, row, pid);
    }
    struct proc_stat stat;
    int r = proc_stat_read(p->pid, &stat);
    if (r == -ESRCH) {
        row->owner_proved = false;
        return missing_life(ledger, p);
    }
    if (r < 0)
        return LIFE_UNKNOWN;
    /* The start time that was proved stands in for one that no book tells. */
    if (p->start_ticks == 0 && row->proved_start != 0 &&
        !proc_same_start(stat.start_ticks, row->proved_start)) {
        row->owner_proved = false;
        return LIFE_DEAD;
    }
    if (p->start_ticks != 0 && !proc_same_start(stat.start_ticks, p->start_ticks)) {
        int claim = owners_claim(p);
        p->pid_proved = false;
        row->owner_proved = claim > PROC_CLAIM_NONE;
        row->owner_refused = claim == PROC_CLAIM_NONE;
        return LIFE_OTHER;
    }
    enum life life = owner_prove(row, &stat);
    if (life == LIFE_UNKNOWN)
        return life;
    p->pid_proved = p->start_ticks != 0 && life == LIFE_ALIVE;
    if (life != LIFE_ALIVE)
        return life;
    if (stat.dead)
        return p->pid_proved ? LIFE_DEAD : LIFE_UNKNOWN;
    return stat.exiting ? LIFE_DYING : LIFE_ALIVE;
}

struct locks {
    size_t own, held, free, gone; /* books written by the process itself; gone: without a name */
    size_t behalf_held;
    bool closed; /* every book that counts was ended in order */
    bool stopped;
    uint32_t stop_reason;
};

int ledger_book_lock(const struct ledger_book *book)
{
    return book->fd >= 0 ? book_writer_alive_fd(book->fd)
                         : book_writer_alive(book->dirfd, book->name);
}

bool ledger_writers_gone(const struct ledger_process *process)
{
    size_t own = 0;
    for (size_t i = 0; i < process->n_books; i++) {
        if (process->books[i]->identity->compat & BOOK_COMPAT_ON_BEHALF)
            continue;
        own++;
        if (ledger_book_lock(process->books[i]) != 0)
            return false;
    }
    return own > 0;
}

/* Has every writer ended his book in order? A book that is closed tells about its own writer: a library
 * that was unloaded, or a daemon that a client said farewell to, while the process goes on with another
 * one. What the process wrote itself comes first; others speak for one that wrote nothing. */
static bool all_closed(const struct ledger_process *p, size_t own)
{
    size_t counted = 0, closed = 0;
    for (size_t i = 0; i < p->n_books; i++) {
        const struct ledger_book *book = p->books[i];
        bool on_behalf = book->identity->compat & BOOK_COMPAT_ON_BEHALF;
        struct book_status status;
        if (on_behalf && (own > 0 || ledger_book_passed_over(process_row(p), book_row(book))))
            continue;
        counted++;
        closed +=
            book_reader_status(book->reader, &status) == 0 && status.state == BOOK_STATE_CLOSED;
    }
    return counted > 0 && closed == counted;
}

static struct locks locks_look(const struct ledger_process *p)
{
    struct locks locks = {0};
    bool closed = false;
    for (size_t i = 0; i < p->n_books; i++) {
        const struct ledger_book *book = p->books[i];
        int r = ledger_book_lock(book);
        struct book_status status;
        if (book_reader_status(book->reader, &status) == 0) {
            closed |= status.state == BOOK_STATE_CLOSED;
            if (status.state == BOOK_STATE_STOPPED) {
                locks.stopped = true;
                locks.stop_reason = status.stop_reason;
            }
        }
        if (book->identity->compat & BOOK_COMPAT_ON_BEHALF) {
            locks.behalf_held += r == 1;
            if (r >= 0)
                ledger_book_note_lock(book_row(book), r == 1);
            continue;
        }
        locks.own++;
        locks.held += r == 1;
        locks.free += r == 0;
        locks.gone += r == -ENOENT; /* somebody removed it; other errors tell nothing */
    }
    locks.closed = closed && all_closed(p, locks.own);
    return locks;
}

static enum ledger_state judge(const struct ledger_process *p, enum life life,
                               const struct locks *locks)
{
    enum ledger_state lives = locks->stopped ? LEDGER_STOPPED : LEDGER_RUNNING;
    bool all_free = locks->own > 0 && locks->free == locks->own;
    switch (life) {
    case LIFE_DEAD:
        return LEDGER_EXITED;
    case LIFE_DYING:
    case LIFE_ALIVE:
        if (locks->closed)
            return LEDGER_CLOSED;
        /* Who is dying has given up its memory already; its pidfd will tell. */
        if (all_free && life == LIFE_ALIVE)
            return LEDGER_REPLACED;
        return lives;
    case LIFE_OTHER:
        if (locks->own == 0)
            return LEDGER_EXITED; /* the daemon that wrote it read the start time as we do */
        break;
    case LIFE_UNKNOWN:
        break;
    }
    if (locks->held > 0 || (p->host[0] && locks->behalf_held > 0))
        return lives;
    if (locks->own > 0 && locks->free + locks->gone == locks->own)
        return LEDGER_EXITED;
    return LEDGER_UNKNOWN;
}

enum ledger_state ledger_update_state(struct ledger *ledger, struct ledger_process *process)
{
    enum life life = process_life(ledger, process_row(process));
    struct locks locks = locks_look(process);
    process->state = judge(process, life, &locks);
    /* A PID that another user's process has, or may have by the next look, is not this row's. */
    struct process_row *row = process_row(process);
    bool unproved = ledger_process_exists(process) && !row->owner_proved;
    if (process->valid & LEDGER_HAS_PID && (row->owner_refused || unproved))
        ledger_process_pid_set(ledger, row, 0);
    process->stop_reason = ledger_process_stopped(process) ? locks.stop_reason : BOOK_STOP_NONE;
    return process->state;
}

void ledger_update_facts(struct ledger *ledger, struct ledger_process *process)
{
    process->valid &= ~(uint32_t)(LEDGER_HAS_RSS | LEDGER_HAS_THREADS);
    if (!ledger_process_reachable(process))
        return; /* figures of a pid that is another program's by now would mislead */
    struct proc_memory memory;
    if (proc_memory_read(process->pid, &memory) == 0) {
        process->rss_bytes = memory.rss_bytes;
        process->vms_bytes = memory.vms_bytes;
        process->shared_bytes = memory.shared_bytes;
        process->valid |= LEDGER_HAS_RSS;
    }
    struct proc_stat stat;
    if (proc_stat_read(process->pid, &stat) == 0) {
        process->threads = stat.threads;
        process->valid |= LEDGER_HAS_THREADS;
    }
}

/* ---- watchers ---- */

static bool watcher_lives(const struct ledger *ledger, const struct book_watcher *watcher)
{
    if (watcher->pid <= 0)
        return false;
    if (watcher->pid_ns == 0 || watcher->pid_ns != ledger->own_pid_ns)
        return true; /* cannot be looked up from here */
    struct proc_stat stat;
    if (proc_stat_read(watcher->pid, &stat) == 0)
        return !stat.dead && (watcher->start_ticks == 0 ||
                              proc_same_start(stat.start_ticks, watcher->start_ticks));
    return kill(watcher->pid, 0) == 0 || errno == EPERM;
}

int ledger_book_watchers(const struct ledger *ledger, const struct ledger_book *book,
                         struct book_watcher ret_watchers[BOOK_WATCHERS])
{
    MEMOIR_CLEANUP(closep)
    int fd = ledger_book_open(book);
    if (fd < 0)
        return fd;
    struct book_control control;
    int r = book_control_read(book->reader, fd, &control);
    if (r < 0)
        return r;
    for (size_t i = 0; i < BOOK_WATCHERS; i++)
        ret_watchers[i] = watcher_lives(ledger, &control.watchers[i]) ? control.watchers[i]
                                                                      : (struct book_watcher){0};
    return 0;
}

int ledger_watcher_self(struct book_watcher *ret_watcher)
{
    struct proc_stat stat;
    struct book_watcher watcher = {.pid = getpid()};
    int r = proc_stat_read(watcher.pid, &stat);
    if (r < 0)
        return r;
    watcher.start_ticks = stat.start_ticks;
    (void)proc_pid_ns(watcher.pid, &watcher.pid_ns); /* 0: nobody looks the pid up */
    *ret_watcher = watcher;
    return 0;
}
