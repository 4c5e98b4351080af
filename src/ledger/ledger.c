/* The tables: books come and go, each belongs to a process row, and figures are read into the rows. */
#include "ledger/ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/accountable.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/sum.h"
#include "ledger/driver.h"
#include "ledger/name.h"
#include "ledger/proc.h"
#include "ledger/region_holder.h"
#include "ledger/region_set.h"
#include "ledger/rows.h"

int ledger_new(const struct ledger_options *options, struct ledger **ret_ledger)
{
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = calloc(1, sizeof(*ledger));
    if (!ledger)
        return -ENOMEM;
    if (options)
        ledger->options = *options;
    if (ledger->options.books_max == 0)
        ledger->options.books_max = LEDGER_BOOKS_MAX;
    if (ledger->options.books_per_uid_max == 0)
        ledger->options.books_per_uid_max = LEDGER_BOOKS_PER_UID_MAX;
    if (ledger->options.mapped_per_uid_max == 0)
        ledger->options.mapped_per_uid_max = LEDGER_MAPPED_PER_UID_MAX;
    if (getrandom(&ledger->seed, sizeof(ledger->seed), GRND_NONBLOCK) < 0)
        ledger->seed = clock_monotonic_ns(); /* early at boot: better than a constant */
    int r = pidns_map_new(&ledger->pidns);
    if (r < 0)
        return r;
    if (ledger->options.regions_dir)
        r = region_set_new(ledger->options.regions_dir, &ledger->regions);
    if (r < 0)
        return r;
    ledger->options.regions_dir = NULL; /* the caller's; the set has a copy */
    /* Unknown stays 0, and then nothing is compared with it. */
    (void)proc_pid_ns(getpid(), &ledger->own_pid_ns);
    *ret_ledger = MEMOIR_TAKE(ledger);
    return 0;
}

void ledger_free(struct ledger *ledger)
{
    if (!ledger)
        return;
    while (ledger->n_books > 0)
        ledger_book_remove(ledger, ledger->books[ledger->n_books - 1]);
    ledger_driver_clear(ledger);
    region_set_free(ledger->regions);
    index_release(&ledger->books_by_file);
    index_release(&ledger->processes_by_identity);
    index_release(&ledger->processes_by_pid);
    index_release(&ledger->devices_by_uid);
    index_release(&ledger->devices_by_bus);
    index_release(&ledger->devices_by_name);
    for (size_t i = 0; i < ledger->n_dirfds; i++)
        close(ledger->dirfds[i]);
    free(ledger->dirfds);
    free(ledger->books);
    free(ledger->processes);
    free(ledger->devices);
    free(ledger->uids);
    free(ledger->problems);
    pidns_map_free(ledger->pidns);
    free(ledger);
}

void ledger_freep(struct ledger **ledger)
{
    ledger_free(*ledger);
}

/* ---- lookups ---- */

static uint64_t file_hash(const struct ledger *ledger, uint64_t dev, uint64_t ino)
{
    return hash_combine(hash_combine(ledger->seed, dev), ino);
}

struct ledger_book *ledger_book_find(const struct ledger *ledger, uint64_t dev, uint64_t ino)
{
    uint64_t hash = file_hash(ledger, dev, ino);
    for (struct index_node *node = index_first(&ledger->books_by_file, hash); node;
         node = index_next(node->next, hash)) {
        struct book_row *row = index_row(node, struct book_row, by_file);
        if (row->b.identity->st_dev == dev && row->b.identity->st_ino == ino)
            return &row->b;
    }
    return NULL;
}

struct ledger_books ledger_books(const struct ledger *ledger)
{
    return (struct ledger_books){ledger->books, ledger->n_books};
}

struct ledger_process *const *ledger_processes(const struct ledger *ledger, size_t *ret_n)
{
    *ret_n = ledger->n_processes;
    return ledger->processes;
}

/* By the only thing that every book of a process has; and by the PID that we see. */
static uint64_t pid_hash(const struct ledger *ledger, pid_t pid)
{
    return hash_combine(ledger->seed, (uint32_t)pid);
}

void ledger_process_pid_set(struct ledger *ledger, struct process_row *row, pid_t pid)
{
    if (row->p.valid & LEDGER_HAS_PID)
        index_remove(&ledger->processes_by_pid, &row->by_pid);
    row->p.pid = pid;
    row->p.valid &= ~(uint32_t)LEDGER_HAS_PID;
    if (pid <= 0)
        return;
    row->p.valid |= LEDGER_HAS_PID;
    (void)index_reserve(&ledger->processes_by_pid); /* without more room the chains get longer */
    index_insert(&ledger->processes_by_pid, &row->by_pid, pid_hash(ledger, pid));
}

struct ledger_process *ledger_process_find(const struct ledger *ledger, pid_t pid)
{
    struct ledger_process *found = NULL;
    uint64_t hash = pid_hash(ledger, pid);
    for (struct index_node *node = index_first(&ledger->processes_by_pid, hash); node;
         node = index_next(node->next, hash)) {
        struct ledger_process *p = &index_row(node, struct process_row, by_pid)->p;
        if (p->pid == pid && (!found || ledger_process_before(p, found)))
            found = p;
    }
    return found;
}

bool ledger_process_sum(const struct ledger_process *process, uint32_t space,
                        const struct ledger_device *device, uint64_t *ret_bytes,
                        uint64_t *ret_blocks)
{
    bool known = false, all = true;
    uint64_t bytes = 0, blocks = 0;
    for (size_t i = 0; i < process->n_accounts; i++) {
        const struct ledger_account *account = &process->accounts[i];
        if ((space != 0 && account->space != space) || (device && account->device != device))
            continue;
        known = true;
        if (!account->valid) {
            all = false;
            continue;
        }
        sum_add(&bytes, account->totals.live_bytes);
        sum_add(&blocks, account->totals.live_blocks);
    }
    if (ret_bytes)
        *ret_bytes = bytes;
    if (ret_blocks)
        *ret_blocks = blocks;
    return known && all;
}

/* ---- whose book is it ---- */

/* Whose a book is: its owner's, unless root's daemon wrote it for somebody. */
static uint32_t subject_uid(const struct book_identity *id)
{
    return id->st_uid == 0 && id->compat & BOOK_COMPAT_ON_BEHALF ? id->uid : id->st_uid;
}

struct ledger_process *ledger_process_next(const struct ledger *ledger, pid_t book_pid,
                                           const struct ledger_process *after)
{
    uint64_t hash = pid_hash(ledger, book_pid);
    struct index_node *node =
        after ? index_next(((const struct process_row *)after)->by_identity.next, hash)
              : index_first(&ledger->processes_by_identity, hash);
    for (; node; node = index_next(node->next, hash)) {
        struct process_row *row = index_row(node, struct process_row, by_identity);
        if (row->p.book_pid == book_pid)
            return &row->p;
    }
    return NULL;
}

/* 0 is "could not be read", and then nothing speaks against it. */
static bool same_or_unknown(uint64_t a, uint64_t b)
{
    return a == b || a == 0 || b == 0;
}

static bool boot_known(const uint8_t boot_id[16])
{
    static const uint8_t zero[16];
    return memcmp(boot_id, zero, sizeof(zero)) != 0;
}

/* The kernel puts images where nobody can guess, so exec_id is a proof as well: who knows it wrote the
 * other book, too, or may look into the process. So a book that was made before the process gave up root, or where its boot id was hidden,
 * is the same process's. Without it the owners have to be the same, or both certainly his. */
static bool same_process(const struct process_row *row, const struct book_identity *id,
                         bool trusted)
{
    const struct ledger_process *p = &row->p;
    const char *host = id->compat & BOOK_COMPAT_REMOTE ? id->host : "";
    bool one_image = same_or_unknown(p->exec_id, id->exec_id) &&
                     same_or_unknown(row->exec_random, id->exec_random);
    bool same_image = one_image && p->exec_id == id->exec_id && id->exec_id != 0;
    bool start = p->start_ticks == 0 || id->start_ticks == 0 ||
                 proc_same_start(p->start_ticks, id->start_ticks);
    bool boot = !boot_known(row->boot_id) || !boot_known(id->boot_id) ||
                memcmp(row->boot_id, id->boot_id, sizeof(row->boot_id)) == 0;
    return p->book_pid == id->pid && strcmp(p->host, host) == 0 && start &&
           same_or_unknown(p->pid_ns, id->pid_ns) && one_image && (boot || same_image) &&
           (p->uid == subject_uid(id) || same_image || (trusted && row->trusted));
}

/* Of several that it may be, which only a book that knows little of its process can have, the one with
 * the same image, else the youngest. */
static struct process_row *process_find(const struct ledger *ledger, const struct book_identity *id,
                                        bool trusted)
{
    struct process_row *found = NULL;
    uint64_t hash = pid_hash(ledger, id->pid);
    for (struct index_node *node = index_first(&ledger->processes_by_identity, hash); node;
         node = index_next(node->next, hash)) {
        struct process_row *row = index_row(node, struct process_row, by_identity);
        if (!same_process(row, id, trusted))
            continue;
        if (row->p.exec_id == id->exec_id && row->p.start_ticks == id->start_ticks &&
            row->p.pid_ns == id->pid_ns)
            return row;
        if (!found || row->p.book_realtime_ns > found->p.book_realtime_ns)
            found = row;
    }
    return found;
}

/* May the owner of this file speak for that process? 0, or -EPERM when the process lives and one of its
 * uids is another user's. Nothing can be proved about a process that is absent: its book is taken, but
 * ret_trusted stays false, books of other owners stay apart from it, and ledger_update_state() proves
 * the owner again before the row gets a PID. A process with capabilities that the owner lacks counts, too,
 * without being trusted. */
static int owner_check(struct ledger *ledger, struct book_row *book, uint32_t place_uid,
                       pid_t *ret_pid, bool *ret_trusted)
{
    const struct book_identity *id = book->b.identity;
    *ret_pid = ledger_resolve_pid(ledger, book);
    *ret_trusted = id->st_uid == 0;
    /* Somebody may have found a way to put a book of root's where his own should be. */
    if (id->st_uid == 0)
        return place_uid == 0 || id->compat & BOOK_COMPAT_ON_BEHALF ? 0 : -EPERM;
    if (id->st_uid != place_uid)
        return -EPERM;
    struct proc_stat stat;
    struct proc_ids ids;
    if (*ret_pid <= 0 || proc_stat_read(*ret_pid, &stat) < 0 ||
        (id->start_ticks != 0 && !proc_same_start(stat.start_ticks, id->start_ticks)) ||
        stat.dead || proc_ids_read(*ret_pid, &ids) < 0)
        return 0;
    enum proc_claim claim = proc_claim(*ret_pid, &ids, id->st_uid);
    *ret_trusted = claim == PROC_CLAIM_OWN;
    return claim == PROC_CLAIM_NONE ? -EPERM : 0;
}

static void user_name(struct ledger *ledger, struct ledger_process *p)
{
    struct passwd *pw = ledger->options.user_names ? getpwuid(p->uid) : NULL;
    if (!pw)
        return;
    snprintf(p->user, sizeof(p->user), "%s", pw->pw_name);
    p->valid |= LEDGER_HAS_USER;
}

static void start_learn(struct ledger_process *p, uint64_t start_ticks)
{
    p->start_ticks = start_ticks;
    if (start_ticks == 0 || p->host[0])
        return;
    p->start_realtime_ns = proc_ticks_realtime_ns(start_ticks);
    p->valid |= LEDGER_HAS_START;
}

static void row_free(struct process_row *row)
{
    free(row->p.exe);
    free(row->p.command);
    free(row);
}

static int process_new(struct ledger *ledger, const struct book_identity *id, pid_t pid,
                       struct process_row **ret_row)
{
    if (ledger->n_processes == ledger->room_processes) {
        size_t room = ledger->room_processes ? ledger->room_processes * 2 : 64;
        struct ledger_process **rows = realloc(ledger->processes, room * sizeof(*rows));
        if (!rows)
            return -ENOMEM;
        ledger->processes = rows;
        ledger->room_processes = room;
    }
    struct process_row *row = calloc(1, sizeof(*row));
    if (!row)
        return -ENOMEM;
    struct ledger_process *p = &row->p;
    p->exe = strdup(id->exe);
    p->command = strdup(id->command);
    if (!p->exe || !p->command || index_reserve(&ledger->processes_by_identity) < 0 ||
        index_reserve(&ledger->processes_by_pid) < 0) {
        row_free(row);
        return -ENOMEM;
    }
    memcpy(row->boot_id, id->boot_id, sizeof(row->boot_id));
    p->state = LEDGER_UNKNOWN;
    p->book_pid = id->pid;
    p->parent_pid = id->parent_pid;
    p->pid_ns = id->pid_ns;
    p->foreign_ns = id->pid_ns && ledger->own_pid_ns && id->pid_ns != ledger->own_pid_ns;
    p->exec_id = id->exec_id;
    p->uid = subject_uid(id);
    p->book_realtime_ns = id->created_realtime_ns;
    if (id->compat & BOOK_COMPAT_REMOTE)
        memcpy(p->host, id->host, sizeof(p->host));
    start_learn(p, id->start_ticks);
    ledger_process_pid_set(ledger, row, pid);
    memcpy(p->comm, id->comm, sizeof(p->comm));
    ledger_name(p->exe, p->comm, p->command, p->name, sizeof(p->name));
    user_name(ledger, p);
    row->slot = ledger->n_processes;
    ledger->processes[ledger->n_processes++] = p;
    index_insert(&ledger->processes_by_identity, &row->by_identity, pid_hash(ledger, id->pid));
    *ret_row = row;
    return 0;
}

/* What this book knows and those before it did not. */
static void process_learn(struct ledger *ledger, struct process_row *row,
                          const struct book_identity *id, bool trusted)
{
    struct ledger_process *p = &row->p;
    row->trusted |= trusted;
    if (!boot_known(row->boot_id))
        memcpy(row->boot_id, id->boot_id, sizeof(row->boot_id));
    if (p->exec_id == 0)
        p->exec_id = id->exec_id;
    if (row->exec_random == 0)
        row->exec_random = id->exec_random;
    if (p->pid_ns == 0) {
        p->pid_ns = id->pid_ns;
        p->foreign_ns = id->pid_ns && ledger->own_pid_ns && id->pid_ns != ledger->own_pid_ns;
    }
    if (p->start_ticks == 0)
        start_learn(p, id->start_ticks);
    if (p->uid == 0 && subject_uid(id) != 0) { /* it gave up root after its first book */
        p->uid = subject_uid(id);
        p->valid &= ~(uint32_t)LEDGER_HAS_USER;
        user_name(ledger, p);
        for (size_t i = 0; i < row->n_parts; i++) /* its claims are no longer root's */
            if (row->parts[i].device)
                device_row(row->parts[i].device)->claims_changed = true;
    }
}

static void process_remove(struct ledger *ledger, struct process_row *row)
{
    struct ledger_process *last = ledger->processes[--ledger->n_processes];
    ledger->processes[row->slot] = last;
    process_row(last)->slot = row->slot;
    index_remove(&ledger->processes_by_identity, &row->by_identity);
    ledger_process_pid_set(ledger, row, 0);
    if (row->slow)
        ledger->uids[row->slow_payer].slow--;
    ledger_join_release(row);
    row_free(row);
}

/* ---- limits ---- */

struct uid_row *ledger_uid(struct ledger *ledger, uint32_t uid)
{
    for (size_t i = 0; i < ledger->n_uids; i++)
        if (ledger->uids[i].uid == uid)
            return &ledger->uids[i];
    struct uid_row *uids = realloc(ledger->uids, (ledger->n_uids + 1) * sizeof(*uids));
    if (!uids)
        return NULL;
    ledger->uids = uids;
    uids[ledger->n_uids] = (struct uid_row){.uid = uid, .maps_left = REGION_MAPS_BYTES_MAX};
    return &uids[ledger->n_uids++];
}

static int limits_check(struct ledger *ledger, uint32_t uid, const struct ledger_book *replaces)
{
    struct uid_row *row = ledger_uid(ledger, uid);
    if (!row)
        return -ENOMEM;
    bool same_payer = replaces && &ledger->uids[book_row(replaces)->payer] == row;
    size_t books = ledger->n_books - (replaces != NULL), his = row->books - same_payer;
    if (books >= ledger->options.books_max ||
        (uid != 0 && his >= ledger->options.books_per_uid_max))
        return -EDQUOT;
    return 0;
}

static bool mapped_fits(const struct ledger *ledger, const struct book_row *book,
                        const struct ledger_book *replaces)
{
    const struct uid_row *payer = &ledger->uids[book->payer];
    bool same_payer = replaces && book_row(replaces)->payer == book->payer;
    size_t mapped = payer->mapped - (same_payer ? book_row(replaces)->mapped : 0);
    return payer->uid == 0 ||
           mapped + book_reader_mapped(book->b.reader) <= ledger->options.mapped_per_uid_max;
}

/* ---- books ---- */

static void book_free(struct ledger *ledger, struct book_row *row)
{
    ledger_book_release_devices(ledger, row);
    book_reader_free(row->b.reader);
    free(row->totals);
    if (row->b.fd >= 0)
        close(row->b.fd);
    free(row);
}

static uint32_t payer_of(const struct ledger_where *where)
{
    return accountable_uid(where->has_payer ? where->payer : where->uid);
}

static bool has_one_name(const struct ledger_where *where, const char *name)
{
    struct stat st;
    int r = where->dirfd >= 0 ? fstatat(where->dirfd, name, &st, AT_SYMLINK_NOFOLLOW)
                              : fstat(where->fd, &st);
    return r < 0 || st.st_nlink <= 1; /* what is wrong with the others, opening them tells */
}

/* Open the file and make a row of it that belongs to nobody yet. */
static int book_open(struct ledger *ledger, const struct ledger_where *where,
                     struct book_row **ret_row)
{
    struct uid_row *payer = ledger_uid(ledger, payer_of(where));
    struct book_row *row = payer ? calloc(1, sizeof(*row)) : NULL;
    if (!row)
        return -ENOMEM;
    row->b.fd = -1;
    row->b.dirfd = where->dirfd;
    row->b.place_uid = where->uid;
    row->hint_pid = where->hint_pid;
    row->payer = (size_t)(payer - ledger->uids);
    const char *name = where->name ? where->name : "";
    snprintf(row->b.name, sizeof(row->b.name), "%s", name);
    snprintf(row->b.path, sizeof(row->b.path), "%s%s%s", where->place ? where->place : "",
             *name ? "/" : "", name);
    int r;
    if (!has_one_name(where, name)) {
        r = -EMLINK;
    } else if (where->dirfd >= 0) {
        r = strlen(name) < sizeof(row->b.name)
                ? book_reader_open(where->dirfd, name, &row->b.reader)
                : -ENAMETOOLONG;
    } else {
        r = book_reader_open_fd(where->fd, &row->b.reader);
        if (r >= 0)
            row->b.fd = fcntl(where->fd, F_DUPFD_CLOEXEC, 3); /* -1: then no blocks after death */
    }
    if (r < 0) {
        book_free(ledger, row);
        return r;
    }
    row->b.identity = book_reader_identity(row->b.reader);
    *ret_row = row;
    return 0;
}

/* Put the row into the tables. Nothing is changed on failure. */
static int book_enter(struct ledger *ledger, struct book_row *row, pid_t pid, bool trusted,
                      const struct ledger_book *replaces)
{
    const struct book_identity *id = row->b.identity;
    struct process_row *process = process_find(ledger, id, trusted);
    if ((process && process->p.n_books == LEDGER_BOOKS_PER_PROCESS_MAX) ||
        !mapped_fits(ledger, row, replaces))
        return -EDQUOT;
    if (ledger->n_books == ledger->room_books) {
        size_t room = ledger->room_books ? ledger->room_books * 2 : 64;
        struct ledger_book **books = realloc(ledger->books, room * sizeof(*books));
        if (!books)
            return -ENOMEM;
        ledger->books = books;
        ledger->room_books = room;
    }
    int r = index_reserve(&ledger->books_by_file);
    if (r >= 0 && !process)
        r = process_new(ledger, id, pid, &process);
    if (r < 0)
        return r;
    process_learn(ledger, process, id, trusted);
    if (id->compat & BOOK_COMPAT_ON_BEHALF)
        row->lock_held = ledger_book_lock(&row->b) == 1;
    row->b.process = &process->p;
    row->slot = ledger->n_books;
    ledger->books[ledger->n_books++] = &row->b;
    index_insert(&ledger->books_by_file, &row->by_file, file_hash(ledger, id->st_dev, id->st_ino));
    process->p.books[process->p.n_books++] = &row->b;
    process->joined = false;
    row->mapped = book_reader_mapped(row->b.reader);
    ledger->uids[row->payer].books++;
    ledger->uids[row->payer].mapped += row->mapped;
    return 0;
}

static void problem_note(struct ledger *ledger, const struct ledger_where *where, int error,
                         const struct book_identity *id)
{
    static const struct {
        int error;
        enum ledger_problem_kind kind;
        const char *what;
    } table[] = {
        {-EBADMSG, LEDGER_PROBLEM_BAD, "its bytes make no sense"},
        {-EPROTO, LEDGER_PROBLEM_BAD, "its bytes make no sense"},
        {-EPROTONOSUPPORT, LEDGER_PROBLEM_BAD,
         "it is of a version that this program does not know"},
        {-EAGAIN, LEDGER_PROBLEM_NOT_READY, "it is still being made"},
        {-EDQUOT, LEDGER_PROBLEM_LIMIT, "a limit on the books of one user or of all was reached"},
        {-EMLINK, LEDGER_PROBLEM_BAD, "it has more than one name"},
        {-ENODATA, LEDGER_PROBLEM_BAD, "it has no pages where it says that figures are"},
    };
    if (error == -EPERM && id) {
        ledger_problem_add(ledger, LEDGER_PROBLEM_OWNER, error, where->uid, where->place,
                           where->name, "uid %u may not speak for pid %d", id->st_uid,
                           (int)id->pid);
        return;
    }
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
        if (table[i].error == error) {
            ledger_problem_add(ledger, table[i].kind, error, where->uid, where->place, where->name,
                               "%s", table[i].what);
            return;
        }
    ledger_problem_add(ledger, LEDGER_PROBLEM_UNREADABLE, error, where->uid, where->place,
                       where->name, "cannot be read: %s", strerror(-error));
}

int ledger_book_add(struct ledger *ledger, const struct ledger_where *where,
                    struct ledger_book **ret_book)
{
    struct book_row *row = NULL;
    int r = limits_check(ledger, payer_of(where), where->replaces);
    if (r >= 0)
        r = book_open(ledger, where, &row);
    if (r < 0) {
        if (r != -EAGAIN && r != -ENOENT)
            problem_note(ledger, where, r, NULL);
        return r;
    }
    const struct book_identity *id = row->b.identity;
    struct ledger_book *known = ledger_book_find(ledger, id->st_dev, id->st_ino);
    if (known) {
        book_free(ledger, row);
        *ret_book = known;
        return -EEXIST;
    }
    pid_t pid = 0;
    bool trusted = false;
    r = owner_check(ledger, row, where->uid, &pid, &trusted);
    if (r >= 0)
        r = book_enter(ledger, row, pid, trusted, where->replaces);
    if (r < 0) {
        problem_note(ledger, where, r, id);
        book_free(ledger, row);
        return r;
    }
    *ret_book = &row->b;
    return 0;
}

void ledger_book_remove(struct ledger *ledger, struct ledger_book *book)
{
    struct book_row *row = book_row(book);
    struct process_row *process = process_row(book->process);
    struct ledger_book *last = ledger->books[--ledger->n_books];
    ledger->books[row->slot] = last;
    book_row(last)->slot = row->slot;
    index_remove(&ledger->books_by_file, &row->by_file);
    ledger->uids[row->payer].books--;
    ledger->uids[row->payer].mapped -= row->mapped;
    for (size_t i = 0; i < process->p.n_books; i++)
        if (process->p.books[i] == book) {
            process->p.books[i] = process->p.books[--process->p.n_books];
            break;
        }
    /* Accounts point to the book's devices: they go first. */
    ledger_join_release(process);
    book_free(ledger, row);
    if (process->p.n_books == 0)
        process_remove(ledger, process);
}

int ledger_book_check(const struct ledger_book *book)
{
    struct stat st;
    if (book->dirfd < 0)
        return -ENOENT;
    if (fstatat(book->dirfd, book->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    bool same = st.st_dev == book->identity->st_dev && st.st_ino == book->identity->st_ino;
    return same ? 0 : -ENOENT;
}

int ledger_book_open(const struct ledger_book *book)
{
    if (book->dirfd < 0)
        return book->fd < 0 ? -ENOENT : fcntl(book->fd, F_DUPFD_CLOEXEC, 3);
    MEMOIR_CLEANUP(closep)
    int fd = openat(book->dirfd, book->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (st.st_dev != book->identity->st_dev || st.st_ino != book->identity->st_ino)
        return -ENOENT;
    return MEMOIR_TAKE_FD(fd);
}
