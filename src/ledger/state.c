/* Who a book is about, and whether he lives.
 *
 * Three things tell. The pid with its start time: gone, or another start time, is death. A zombie all
 * of whose threads ended is dead as well. And the lock that a writer holds through its mapping: free
 * while the pid lives on means that the program was replaced by exec. EPERM, or our own lack of
 * descriptors, tell nothing, and then the state stays what it was. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "ledger/proc.h"
#include "ledger/rows.h"

enum life { LIFE_UNKNOWN, LIFE_ALIVE, LIFE_DYING, LIFE_DEAD };

static bool all_zero(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i])
            return false;
    return true;
}

/* A book of another boot is about nobody that lives. Zero is "could not be read": no reason to doubt. */
static bool other_boot(const struct ledger *ledger, const uint8_t boot_id[16])
{
    return !all_zero(boot_id, 16) && !all_zero(ledger->boot_id, 16) &&
           memcmp(boot_id, ledger->boot_id, 16) != 0;
}

pid_t ledger_resolve_pid(struct ledger *ledger, const struct book_row *book)
{
    const struct book_identity *id = book->b.identity;
    if (id->compat & BOOK_COMPAT_REMOTE || other_boot(ledger, id->boot_id))
        return 0;
    if (id->pid_ns == 0 || ledger->own_pid_ns == 0 || id->pid_ns == ledger->own_pid_ns)
        return id->pid;
    struct proc_stat stat;
    if (book->hint_pid && proc_stat_read(book->hint_pid, &stat) == 0 &&
        stat.start_ticks == id->start_ticks)
        return book->hint_pid;
    return pidns_find(ledger->pidns, id->pid_ns, id->pid, id->start_ticks);
}

/* What /proc says about the process that the book names. */
static enum life process_life(struct ledger *ledger, struct process_row *row)
{
    struct ledger_process *p = &row->p;
    if (other_boot(ledger, row->boot_id))
        return LIFE_DEAD;
    if (!(p->valid & LEDGER_HAS_PID)) {
        pid_t pid = p->n_books ? ledger_resolve_pid(ledger, book_row(p->books[0])) : 0;
        if (pid == 0)
            return LIFE_UNKNOWN;
        p->pid = pid;
        p->valid |= LEDGER_HAS_PID;
    }
    struct proc_stat stat;
    int r = proc_stat_read(p->pid, &stat);
    if (r == -ESRCH)
        return LIFE_DEAD;
    if (r < 0)
        return LIFE_UNKNOWN;
    if (p->start_ticks != 0 && stat.start_ticks != p->start_ticks)
        return LIFE_DEAD; /* the pid was given to somebody else */
    if (stat.dead)
        return LIFE_DEAD;
    return stat.exiting ? LIFE_DYING : LIFE_ALIVE;
}

struct locks {
    size_t own, held, free, gone; /* books written by the process itself; gone: without a name */
    size_t behalf_held;
    bool closed, stopped;
    uint32_t stop_reason;
};

static int book_lock(const struct ledger_book *book)
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
        if (book_lock(process->books[i]) != 0)
            return false;
    }
    return own > 0;
}

static struct locks locks_look(const struct ledger_process *p)
{
    struct locks locks = {0};
    for (size_t i = 0; i < p->n_books; i++) {
        const struct ledger_book *book = p->books[i];
        int r = book_lock(book);
        struct book_status status;
        if (book_reader_status(book->reader, &status) == 0) {
            locks.closed |= status.state == BOOK_STATE_CLOSED;
            if (status.state == BOOK_STATE_STOPPED) {
                locks.stopped = true;
                locks.stop_reason = status.stop_reason;
            }
        }
        if (book->identity->compat & BOOK_COMPAT_ON_BEHALF) {
            locks.behalf_held += r == 1;
            continue;
        }
        locks.own++;
        locks.held += r == 1;
        locks.free += r == 0;
        locks.gone += r == -ENOENT; /* somebody removed it; other errors tell nothing */
    }
    return locks;
}

static enum ledger_state judge(const struct ledger_process *p, enum life life,
                               const struct locks *locks)
{
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
        return locks->stopped ? LEDGER_STOPPED : LEDGER_RUNNING;
    case LIFE_UNKNOWN:
        break;
    }
    if (locks->held > 0 || (p->host[0] && locks->behalf_held > 0))
        return locks->stopped ? LEDGER_STOPPED : LEDGER_RUNNING;
    if (locks->own > 0 && locks->free + locks->gone == locks->own)
        return LEDGER_EXITED;
    return LEDGER_UNKNOWN;
}

enum ledger_state ledger_update_state(struct ledger *ledger, struct ledger_process *process)
{
    enum life life = process_life(ledger, process_row(process));
    struct locks locks = locks_look(process);
    process->state = judge(process, life, &locks);
    process->stop_reason = process->state == LEDGER_STOPPED ? locks.stop_reason : BOOK_STOP_NONE;
    return process->state;
}

void ledger_update_facts(struct ledger *ledger, struct ledger_process *process)
{
    process->valid &= ~(uint32_t)(LEDGER_HAS_RSS | LEDGER_HAS_THREADS);
    bool lives = process->state == LEDGER_RUNNING || process->state == LEDGER_STOPPED ||
                 process->state == LEDGER_CLOSED;
    if (!lives || !(process->valid & LEDGER_HAS_PID))
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
