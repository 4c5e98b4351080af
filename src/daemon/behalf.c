/* Books on behalf of others: their life. See behalf.h; behalf_report.c has what is written into them. */
#include "daemon/behalf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "daemon/behalf_internal.h"
#include "daemon/commands.h"
#include "daemon/daemon.h"
#include "daemon/loop.h"
#include "daemon/reaper.h"
#include "daemon/retire.h"
#include "daemon/server.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"
#include "ledger/subject.h"

enum { IDLE_ROUND_MS = BEHALF_IDLE_MS / 2, WRITER_ALIGN = 64, SUSPECT_MS = 2, SUSPECT_LOOKS = 20 };

#define TOKEN_PAYERS (UINT32_C(1) << 31)

/* ---- one by one ---- */

static uint64_t subject_hash(const struct behalf_subject *s)
{
    uint64_t hash = hash_combine(s->source, (uint32_t)s->pid);
    if (s->host)
        hash = hash_combine(hash_string(s->host, hash), s->start_ticks);
    return hash;
}

static bool is_subject(const struct behalf *b, const struct behalf_subject *s, uint64_t hash)
{
    if (b->hash != hash || b->source != s->source)
        return false;
    if (!s->host)
        return b->pid == s->pid;
    return b->pid == 0 && b->remote_pid == s->pid && b->start_ticks == s->start_ticks &&
           b->uid == s->uid &&
           strncmp(b->w->header->host, s->host, sizeof(b->w->header->host) - 1) == 0;
}

static struct behalf *find(struct behalf_table *table, const struct behalf_subject *s,
                           uint64_t hash)
{
    struct behalf *b;
    LIST_FOREACH(b, &table->buckets[hash % BEHALF_BUCKETS], bucket)
    {
        if (is_subject(b, s, hash))
            return b;
    }
    return NULL;
}

static void writer_free(struct behalf *b)
{
    if (!b->w)
        return;
    book_writer_forget(b->w);
    free(b->w);
    b->w = NULL;
}

/* The book is retired, or never came to be: only references are left. */
static void let_go(struct behalf *b)
{
    if (b->dirty)
        LIST_REMOVE(b, dirty_link);
    b->dirty = false;
    if (b->w) {
        LIST_REMOVE(b, bucket);
        LIST_REMOVE(b, link);
        b->table->n--;
    }
    writer_free(b);
    behalf_place_count(b->place, b, 0);
    behalf_place_unref(b->place);
    b->place = NULL;
    if (b->book)
        b->book->user_data = NULL;
    b->book = NULL;
    if (b->refs == 0)
        free(b);
}

void behalf_book_gone(struct ledger_book *book)
{
    struct behalf *b = book->user_data;
    if (b)
        let_go(b);
}

/* ---- making one ---- */

static void text_set(char *to, size_t size, const char *text)
{
    if (text)
        snprintf(to, size, "%s", text);
}

static int identity_fill(struct behalf *b, const struct behalf_subject *s)
{
    struct book_header *header = b->w->header;
    int r = 0;
    if (!s->host) {
        /* First, so that what is checked then is true of it as well. */
        commands_read(b->table->daemon->commands, s->pid, header->command, sizeof(header->command));
        r = subject_read(s->pid, s->speaker, header);
        if (r >= 0 && s->start_ticks && header->start_ticks != s->start_ticks)
            r = -ESRCH; /* another one with the same pid */
    } else {
        header->compat |= BOOK_COMPAT_REMOTE;
        header->pid = s->pid;
        header->start_ticks = s->start_ticks;
        header->exec_id = s->exec_id;
        header->uid = s->uid;
        text_set(header->host, sizeof(header->host), s->host);
        text_set(header->comm, sizeof(header->comm), s->comm);
        text_set(header->exe, sizeof(header->exe), s->exe);
        text_set(header->command, sizeof(header->command), s->command);
    }
    if (r < 0)
        return r;
    header->writer_pid = getpid();
    header->created_realtime_ns = clock_real_ns();
    header->created_monotonic_ns = proc_monotonic_ns();
    b->w->created_ns = clock_monotonic_coarse_ns();
    b->start_ticks = header->start_ticks;
    b->exec_id = header->exec_id;
    b->uid = header->uid;
    /* The owner of the file speaks for the process, and a user is not trusted about the processes of another. */
    return geteuid() != 0 && b->uid != geteuid() ? -EPERM : 0;
}

static bool is_predecessor(const struct behalf *b, const struct ledger_book *book)
{
    const struct book_identity *id = book->identity;
    const struct book_header *header = b->w->header;
    return !book->user_data && id->source == b->source && id->compat & BOOK_COMPAT_ON_BEHALF &&
           id->st_uid == geteuid() && book->dirfd >= 0 && id->pid == header->pid &&
           id->start_ticks == header->start_ticks && id->pid_ns == header->pid_ns &&
           (id->exec_id == header->exec_id || id->exec_id == 0 || header->exec_id == 0) &&
           (id->compat & BOOK_COMPAT_REMOTE) == (header->compat & BOOK_COMPAT_REMOTE) &&
           strcmp(id->host, header->host) == 0;
}

/* The book that a daemon before us wrote about the same process. */
static struct ledger_book *predecessor(const struct behalf *b)
{
    const struct ledger *ledger = b->table->daemon->ledger;
    struct ledger_process *p = NULL;
    while ((p = ledger_process_next(ledger, b->w->header->pid, p)))
        for (size_t k = 0; k < p->n_books; k++)
            if (is_predecessor(b, p->books[k]))
                return p->books[k];
    return NULL;
}

static void predecessor_forget(struct daemon *daemon, struct ledger_book *old)
{
    if (old->process->n_books == 1)
        reaper_forget(daemon, old->process); /* its row goes with its last book */
    ledger_book_remove(daemon->ledger, old);
    daemon->server->figures.adopted_books++;
}

static void predecessor_remove(struct daemon *daemon, struct ledger_book *old)
{
    if (ledger_book_check(old) == 0 && unlinkat(old->dirfd, old->name, 0) < 0)
        log_warn("cannot remove book '%s', which another one took the place of: %m", old->path);
    predecessor_forget(daemon, old);
}

/* Where there is no room for two, the new book takes the pages of the old one, which has been read. */
static int publish_over(struct behalf *b, uint32_t uid, const struct ledger_book *old)
{
    struct stat there;
    int r = behalf_place_get(b->table, uid, false, &b->place);
    if (r < 0)
        return r;
    MEMOIR_CLEANUP(closep)
    int fd = openat(b->place->dirfd, old->name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &there) < 0)
        return -errno;
    if (there.st_dev != old->identity->st_dev || there.st_ino != old->identity->st_ino ||
        there.st_uid != geteuid())
        return -ENOSPC; /* it lies elsewhere */
    return book_writer_publish_over(b->w, fd, old->name);
}

/* `old` (may be NULL) is NULL afterwards if its file was used. */
static int publish(struct behalf *b, struct ledger_book **old)
{
    struct behalf_table *table = b->table;
    uint32_t uid = geteuid() == 0 ? b->uid : geteuid();
    int r = behalf_place_get(table, uid, false, &b->place);
    if (r >= 0)
        r = book_writer_publish_at(b->w, b->place->dirfd);
    if (r == -ENOENT) { /* the directory was removed */
        b->place = NULL;
        r = behalf_place_get(table, uid, true, &b->place);
        if (r >= 0)
            r = book_writer_publish_at(b->w, b->place->dirfd);
    }
    bool over = r == -ENOSPC && *old;
    if (over)
        r = publish_over(b, uid, *old);
    if (r < 0) {
        b->place = NULL;
        return r == -EAGAIN ? -EBUSY : r;
    }
    if (over) {
        predecessor_forget(table->daemon, *old);
        *old = NULL;
    }
    b->place->books++;
    behalf_place_count(b->place, b, b->w->table.shard[0].pages);
    struct ledger_where where = {
        .dirfd = b->place->dirfd,
        .name = b->w->name,
        .fd = -1,
        .hint_pid = b->pid,
        .uid = uid,
        .has_payer = true,
        .payer = b->payer,
        .place = b->place->path,
        .replaces = *old,
    };
    r = ledger_book_add(table->daemon->ledger, &where, &b->book);
    if (r < 0) {
        if (!over) /* else it is all there is: it stays for the next search */
            unlinkat(b->place->dirfd, b->w->name, 0);
        b->book = NULL;
        return r;
    }
    b->book->user_data = b;
    return 0;
}

/* In whose limits its book counts: a user's, or for one of another machine those of the token, since many
 * tokens may stand for one user, or for none. Uids from TOKEN_PAYERS on belong to no user. */
static uint32_t payer_of(const struct behalf *b, const struct behalf_subject *s)
{
    if (s->token)
        return TOKEN_PAYERS | (uint32_t)(hash_string(s->token, 0) % (TOKEN_PAYERS - 2));
    return geteuid() == 0 ? b->uid : geteuid();
}

static int writer_make(struct behalf *b, const struct behalf_subject *s)
{
    static_assert(WRITER_ALIGN >= _Alignof(struct book_writer), "alignment of a writer");
    size_t bytes = (BOOK_WRITER_BARE_BYTES + WRITER_ALIGN - 1) / WRITER_ALIGN * WRITER_ALIGN;
    b->w = aligned_alloc(WRITER_ALIGN, bytes);
    if (!b->w)
        return -ENOMEM;
    memset(b->w, 0, bytes);
    int r = book_writer_init(
        b->w, &(struct book_writer_options){.source = s->source, .on_behalf = true, .bare = true});
    if (r >= 0)
        r = identity_fill(b, s);
    b->payer = payer_of(b, s);
    return r;
}

/* What was reported before is worth waiting for, unless it can never be read. */
static bool is_passing(int error)
{
    static const int passing[] = {EBUSY,  EAGAIN, EINTR,  ENOMEM, EMFILE,
                                  ENFILE, ENOSPC, EDQUOT, ETIME};
    for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++)
        if (error == -passing[i])
            return true;
    return false;
}

/* Copy what a daemon before us wrote, if there is anything: ret_old is then to be removed, once its successor
 * is published. */
static int take_over(struct behalf *b, const struct behalf_subject *s, struct ledger_book **ret_old)
{
    struct ledger_book *old = predecessor(b);
    int r = old ? behalf_adopt(b, old) : 0;
    if (r >= 0) {
        *ret_old = old;
        return 0;
    }
    bool passing = is_passing(r);
    if (server_may_say(&b->table->said_ns))
        log_warn("cannot take over book '%s': %s, %s", old->path, strerror(-r),
                 passing ? "its process has to wait" : "beginning anew");
    if (passing)
        return -EBUSY;
    writer_free(b); /* half of it must not stay */
    return writer_make(b, s);
}

static int make(struct behalf_table *table, const struct behalf_subject *s, uint64_t hash,
                struct behalf **ret_behalf)
{
    struct behalf *b = calloc(1, sizeof(*b));
    if (!b)
        return -ENOMEM;
    b->table = table;
    b->source = s->source;
    b->pid = s->host ? 0 : s->pid;
    b->remote_pid = s->host ? s->pid : 0;
    b->hash = hash;
    b->active = true;
    struct ledger_book *old = NULL;
    int r = writer_make(b, s);
    if (r >= 0)
        r = take_over(b, s, &old);
    if (r >= 0)
        r = publish(b, &old);
    if (r < 0) {
        writer_free(b);
        behalf_place_count(b->place, b, 0);
        behalf_place_unref(b->place);
        free(b);
        return r;
    }
    LIST_INSERT_HEAD(&table->buckets[hash % BEHALF_BUCKETS], b, bucket);
    LIST_INSERT_HEAD(&table->all, b, link);
    table->n++;
    if (old)
        predecessor_remove(table->daemon, old);
    b->refs++; /* it may be retired at once */
    reaper_add(table->daemon, b->book);
    b->refs--;
    if (!b->book) {
        free(b);
        return -ESRCH;
    }
    *ret_behalf = b;
    return 0;
}

/* Is it still the process, and the image, that the book is about? */
static bool is_current(const struct behalf *b, struct cause *ret_cause)
{
    struct proc_stat stat;
    *ret_cause = (struct cause){CAUSE_UNKNOWN, 0};
    if (b->pid == 0)
        return true;
    int r = proc_stat_read(b->pid, &stat);
    if (r == -ESRCH || (r >= 0 && stat.start_ticks != b->start_ticks))
        return false;
    uint64_t exec_id = subject_exec_id(b->pid);
    *ret_cause = (struct cause){CAUSE_EXEC, 0};
    return exec_id == 0 || b->exec_id == 0 || exec_id == b->exec_id;
}

/* Is the process of a book, which still runs, the one that is meant? */
static int subject_check(const struct behalf *b, const struct behalf_subject *s)
{
    if (s->host)
        return 0;
    if (s->start_ticks && s->start_ticks != b->start_ticks)
        return -ESRCH;
    return s->speaker && s->speaker != b->uid ? -EPERM : 0;
}

int behalf_get(struct daemon *daemon, const struct behalf_subject *subject,
               struct behalf **ret_behalf)
{
    struct behalf_table *table = daemon->behalf;
    uint64_t hash = subject_hash(subject);
    struct behalf *b = find(table, subject, hash);
    struct cause cause;
    if (b && !is_current(b, &cause)) {
        if (!retire_process(daemon, b->book->process, cause, true)) /* takes b away */
            return -EBUSY;
        b = NULL;
    }
    int r = b ? subject_check(b, subject) : make(table, subject, hash, &b);
    if (r < 0)
        return r;
    b->refs++;
    b->expire_ns = 0;
    *ret_behalf = b;
    return 0;
}

/* One timer for all: the one that is due first sets it. */
static void expire_arm(struct behalf_table *table, uint64_t now_ns, uint64_t due_ns)
{
    if (table->expire_due_ns && table->expire_due_ns <= due_ns)
        return;
    table->expire_due_ns = due_ns;
    loop_timer_set(table->expire_timer, due_ns > now_ns ? due_ns - now_ns : 1, 0);
}

void behalf_unref(struct behalf *b)
{
    if (!b || --b->refs > 0)
        return;
    if (!b->book) {
        free(b);
        return;
    }
    struct daemon *daemon = b->table->daemon;
    struct cause cause;
    if (b->pid == 0) {
        uint64_t now = clock_monotonic_ns();
        b->expire_ns = now + daemon->config.remote_expire_ns;
        expire_arm(b->table, now, b->expire_ns);
    } else if (!is_current(b, &cause) && cause.kind == CAUSE_EXEC) {
        /* Its memory went with exec; the socket was closed by it. Deaths are the reaper's. */
        (void)retire_process(daemon, b->book->process, cause, true);
    } else if (reaper_polls(b->book->process)) {
        b->suspect = SUSPECT_LOOKS;
        loop_timer_set(b->table->suspect_timer, SUSPECT_MS * NS_PER_MS, 0);
    }
}

bool behalf_alive(const struct behalf *b)
{
    return b->book != NULL;
}

pid_t behalf_pid(const struct behalf *b)
{
    return b->pid;
}

uint32_t behalf_uid(const struct behalf *b)
{
    return b->uid;
}

struct ledger_book *behalf_book(const struct behalf *b)
{
    return b->book;
}

/* ---- timers ---- */

/* Pages of a book that rests stay in the page cache, not in our tables. */
static void on_idle(void *context)
{
    struct behalf_table *table = context;
    struct behalf *b;
    LIST_FOREACH(b, &table->all, link)
    {
        if (b->active) {
            b->active = false;
            b->idle_rounds = 0;
        } else if (b->idle_rounds < 2 && ++b->idle_rounds == 2) {
            (void)madvise(b->w->header, b->w->map_bytes, MADV_DONTNEED);
        }
    }
}

/* Where there was no descriptor for a pidfd, a connection that closed tells of the end of a process. Its
 * socket goes before it does, so look a few times. */
static void on_suspect(void *context)
{
    struct behalf_table *table = context;
    struct behalf *b, *after;
    bool more = false;
    for (b = LIST_FIRST(&table->all); b; b = after) {
        after = LIST_NEXT(b, link);
        if (b->suspect == 0)
            continue;
        more |= --b->suspect > 0;
        reaper_check(table->daemon, b->book->process); /* may take it away */
    }
    if (more)
        loop_timer_set(table->suspect_timer, SUSPECT_MS * NS_PER_MS, 0);
}

static void expire(struct daemon *daemon, struct ledger_process *process)
{
    struct cause cause = {CAUSE_DISCONNECTED, 0};
    if (retire_process(daemon, process, cause, true))
        daemon->server->figures.expired_books++;
}

/* Books of other machines that the daemon before us wrote, and that no client came back for. */
static void orphans_expire(struct daemon *daemon)
{
    struct ledger_books books = ledger_books(daemon->ledger);
    for (size_t i = books.n; i-- > 0;) {
        struct ledger_book *book = books.books[i];
        const struct book_identity *id = book->identity;
        if (!book->user_data && id->compat & BOOK_COMPAT_REMOTE &&
            id->compat & BOOK_COMPAT_ON_BEHALF && id->st_uid == geteuid() &&
            ledger_book_lock(book) == 0)
            expire(daemon, book->process);
        books = ledger_books(daemon->ledger); /* the last one took its place, and was looked at */
        if (i > books.n)
            i = books.n;
    }
}

static void on_expire(void *context)
{
    struct behalf_table *table = context;
    uint64_t now = clock_monotonic_ns(), next = table->orphans_ns;
    struct behalf *b, *after;
    table->expire_due_ns = 0;
    if (next && next <= now) {
        table->orphans_ns = next = 0;
        orphans_expire(table->daemon);
    }
    for (b = LIST_FIRST(&table->all); b; b = after) {
        after = LIST_NEXT(b, link);
        if (b->expire_ns == 0)
            continue;
        if (b->expire_ns <= now)
            expire(table->daemon, b->book->process);
        else if (next == 0 || b->expire_ns < next)
            next = b->expire_ns;
    }
    if (next)
        expire_arm(table, now, next);
}

/* ---- all of them ---- */

int behalf_table_new(struct daemon *daemon, struct behalf_table **ret_table)
{
    struct behalf_table *table = calloc(1, sizeof(*table));
    if (!table)
        return -ENOMEM;
    table->daemon = daemon;
    table->thread.shard = 1;
    table->thread.exclusive = true;
    table->orphans_ns = clock_monotonic_ns() + daemon->config.remote_expire_ns;
    int r = loop_add_timer(daemon->loop, on_idle, table, &table->idle_timer);
    if (r >= 0)
        r = loop_add_timer(daemon->loop, on_expire, table, &table->expire_timer);
    if (r >= 0)
        r = loop_add_timer(daemon->loop, on_suspect, table, &table->suspect_timer);
    if (r >= 0)
        r = loop_timer_set(table->idle_timer, IDLE_ROUND_MS * NS_PER_MS, IDLE_ROUND_MS * NS_PER_MS);
    if (r >= 0)
        expire_arm(table, clock_monotonic_ns(), table->orphans_ns);
    if (r < 0) {
        behalf_table_free(table);
        return r;
    }
    *ret_table = table;
    return 0;
}

void behalf_table_free(struct behalf_table *table)
{
    if (!table)
        return;
    struct behalf *b;
    while ((b = LIST_FIRST(&table->all)))
        let_go(b);
    behalf_places_free(table);
    loop_source_free(table->idle_timer);
    loop_source_free(table->expire_timer);
    loop_source_free(table->suspect_timer);
    free(table);
}
