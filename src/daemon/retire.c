/* The end of a process.
 *
 * Order matters: the record goes to the file before the book goes, so that a daemon killed in between
 * leaves a book to retire again rather than nothing; the line comes last, so that who sees it finds
 * everything done. No symbols are looked up here; sites are kept as
 * modules and offsets. */
#include "daemon/retire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/sum.h"
#include "daemon/allowance.h"
#include "daemon/behalf.h"
#include "daemon/daemon.h"
#include "daemon/events.h"
#include "daemon/exit_watch.h"
#include "daemon/line.h"
#include "daemon/native.h"
#include "daemon/reaper.h"
#include "daemon/retired.h"
#include "daemon/server.h"
#include "daemon/topblocks.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"
#include "query/exit_file.h"

enum {
    LINE_MAX_BYTES = 1024,
    TEXT_MAX = 1 << 20, /* tags and frames of one record */
    FRAMES_MAX = 32,    /* of one site in a record */
};

/* ---- accounts ---- */

static int32_t device_index(struct retired_process *r, const struct ledger_device *device,
                            const struct ledger_device **seen)
{
    if (!device)
        return -1;
    for (size_t i = 0; i < r->n_devices; i++)
        if (seen[i] == device)
            return (int32_t)i;
    seen[r->n_devices] = device;
    struct retired_device *d = &r->devices[r->n_devices];
    d->kind = device->kind;
    d->ordinal = device->ordinal;
    memcpy(d->name, device->name, sizeof(d->name));
    memcpy(d->uid, device->uid, sizeof(d->uid));
    memcpy(d->bus, device->bus, sizeof(d->bus));
    return (int32_t)r->n_devices++;
}

static int accounts_take(const struct ledger_process *p, struct retired_process *r)
{
    if (p->n_accounts == 0)
        return 0;
    MEMOIR_CLEANUP(freep)
    const struct ledger_device **seen = calloc(p->n_accounts, sizeof(*seen));
    r->accounts = calloc(p->n_accounts, sizeof(*r->accounts));
    r->devices = calloc(p->n_accounts, sizeof(*r->devices));
    if (!seen || !r->accounts || !r->devices)
        return -ENOMEM;
    /* One for one with the ledger's, so that blocks can name them by the same number. */
    for (size_t i = 0; i < p->n_accounts; i++) {
        const struct ledger_account *from = &p->accounts[i];
        struct retired_account *to = &r->accounts[i];
        to->space = from->space;
        to->source = from->source;
        to->device = device_index(r, from->device, seen);
        to->partial = from->partial;
        to->sampled = from->sampled;
        memcpy(to->name, from->name, sizeof(to->name));
        if (from->valid)
            to->totals = from->totals;
    }
    r->n_accounts = p->n_accounts;
    return 0;
}

/* ---- blocks ---- */

struct found {
    uint64_t blocks, bytes;
};

struct collect {
    struct top_blocks *top;
    struct ledger_book *book;
    uint32_t *accounts; /* of the process, by registry record; UINT32_MAX: another source counts */
    uint64_t bytes_min; /* smaller ones are not among the largest any more */
};

/* One that may be among the largest; all are added up by the reader. */
static int each_block(const struct book_block_view *view, void *context)
{
    struct collect *c = context;
    if (view->account >= BOOK_RECORDS_MAX || c->accounts[view->account] == UINT32_MAX)
        return 0;
    top_blocks_add(c->top, &(struct top_block){*view, c->book, c->accounts[view->account]});
    c->bytes_min = top_blocks_min(c->top);
    return 0;
}

static void tally_take(const struct book_tally *tally, const uint32_t *accounts,
                       struct found *found)
{
    for (uint32_t i = 0; i < BOOK_RECORDS_MAX; i++) {
        if (tally[i].blocks == 0 || accounts[i] == UINT32_MAX)
            continue;
        found[accounts[i]].blocks += tally[i].blocks;
        sum_add(&found[accounts[i]].bytes, tally[i].bytes);
    }
}

/* What a scan costs is the pages that the file has, whatever its header says: holes are skipped. A file
 * with another name would have us do it again and again. */
static bool worth_reading(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && (uint64_t)st.st_blocks * 512 <= RETIRE_BOOK_BYTES_MAX &&
           st.st_nlink <= 1;
}

static void blocks_collect(struct ledger_book *book, int fd, uint64_t deadline_ns,
                           struct top_blocks *top, struct found *found, struct retired_process *r)
{
    uint32_t accounts[BOOK_RECORDS_MAX];
    MEMOIR_CLEANUP(freep)
    struct book_tally *tally =
        fd >= 0 && worth_reading(fd) ? calloc(BOOK_RECORDS_MAX, sizeof(*tally)) : NULL;
    if (!tally) {
        r->blocks_complete = false;
        return;
    }
    ledger_book_accounts(book, accounts);
    struct collect c = {
        .top = top, .book = book, .accounts = accounts, .bytes_min = top_blocks_min(top)};
    struct book_scan_limits limits = {.deadline_ns = deadline_ns,
                                      .held_max = RETIRE_HELD_MAX,
                                      .tries = 1,
                                      .tally = tally,
                                      .bytes_min = &c.bytes_min};
    bool exact = false;
    if (book_reader_blocks_within(book->reader, fd, &limits, each_block, &c, &exact) < 0 || !exact)
        r->blocks_complete = false;
    tally_take(tally, accounts, found);
}

/* A book need not list every block that it counts: who samples has few, a region has none, and one that
 * was full lost some. */
static bool all_found(const struct retired_process *r, const struct found *found)
{
    for (size_t i = 0; i < r->n_accounts; i++)
        if (found[i].blocks != r->accounts[i].totals.live_blocks ||
            found[i].bytes != r->accounts[i].totals.live_bytes)
            return false;
    return true;
}

/* ---- sites and tags of the blocks that were kept ---- */

/* A stranger's path must not hold what ends a frame or a record here. */
static void path_write(const char *path, struct buffer *text)
{
    for (; *path; path++)
        buffer_append_char(text, (unsigned char)*path < ' ' ? '?' : *path);
}

static void frames_write(const struct book_sites *sites, const struct book_site *site,
                         const char *exe, struct buffer *text)
{
    for (uint32_t i = 0; i < site->frames && i < FRAMES_MAX; i++) {
        uint64_t frame = sites->frames[site->first_frame + i];
        const struct book_module *module = book_sites_module(sites, frame);
        if (i > 0)
            buffer_append_char(text, '\n');
        const struct book_script *script = book_sites_script(sites, frame);
        if (script) {
            path_write(script->file, text);
            buffer_printf(text, ":%u in ", BOOK_FRAME_LINE(frame));
            path_write(script->function, text);
            continue;
        }
        if (!module && BOOK_FRAME_MODULE(frame) != BOOK_MODULE_NONE) {
            buffer_append_char(text, '?'); /* of a sort that this version does not know */
            continue;
        }
        if (module) {
            path_write(module->path[0] ? module->path : exe, text);
            buffer_append_char(text, '+');
        }
        buffer_printf(text, "0x%" PRIx64, (uint64_t)BOOK_FRAME_OFFSET(frame));
    }
    buffer_append_char(text, '\0');
}

/* What the kept blocks of one book say in numbers, as text of the record. Equal sites are one. */
static void words_take(const struct top_blocks *top, const struct ledger_book *book,
                       const struct book_sites *sites, struct retired_process *r,
                       struct buffer *text)
{
    size_t first_site = r->n_sites;
    for (size_t i = 0; i < top->n; i++) {
        const struct top_block *from = &top->blocks[i];
        struct retired_block *to = &r->blocks[i];
        if (from->book != book)
            continue;
        if (from->view.tag > 0 && from->view.tag < sites->n_tags) {
            to->tag = (int32_t)text->len;
            buffer_append_str(text, sites->tags[from->view.tag].name);
            buffer_append_char(text, '\0');
        }
        if (from->view.site == BOOK_SITE_NONE || from->view.site >= sites->n_sites)
            continue;
        const struct book_site *site = &sites->sites[from->view.site];
        for (size_t k = first_site; k < r->n_sites && to->site < 0; k++)
            if (r->sites[k].key == site->key)
                to->site = (int32_t)k;
        if (to->site >= 0)
            continue;
        to->site = (int32_t)r->n_sites;
        r->sites[r->n_sites++] = (struct retired_site){site->key, (int32_t)text->len};
        frames_write(sites, site, r->exe, text);
    }
}

static int blocks_take(struct ledger_process *p, const int *fds, struct top_blocks *top,
                       struct retired_process *r)
{
    if (top->n == 0)
        return 0;
    top_blocks_sort(top);
    uint64_t now = proc_monotonic_ns();
    r->blocks = calloc(top->n, sizeof(*r->blocks));
    r->sites = calloc(top->n, sizeof(*r->sites));
    if (!r->blocks || !r->sites)
        return -ENOMEM;
    for (size_t i = 0; i < top->n; i++) {
        const struct top_block *from = &top->blocks[i];
        r->blocks[i] = (struct retired_block){
            .id = from->view.id,
            .bytes = from->view.bytes,
            .age_ns = now > from->view.time_ns ? now - from->view.time_ns : 0,
            .account = from->account,
            .site = -1,
            .tag = -1,
            .moves = from->view.moves,
        };
    }
    r->n_blocks = top->n;
    struct buffer text = BUFFER_INIT(TEXT_MAX);
    for (size_t i = 0; i < p->n_books; i++) {
        struct book_sites sites = {0};
        uint64_t bytes;
        if (fds[i] < 0 || book_reader_sites_bytes(p->books[i]->reader, fds[i], &bytes) < 0 ||
            bytes > RETIRE_SITES_BYTES_MAX ||
            book_reader_sites(p->books[i]->reader, fds[i], &sites) < 0)
            continue;
        words_take(top, p->books[i], &sites, r, &text);
        book_sites_release(&sites);
    }
    int error = text.error;
    r->text_len = text.len;
    r->text = buffer_take(&text);
    buffer_release(&text);
    if (error < 0 || !r->text) {
        /* Past TEXT_MAX or out of memory: the blocks stay, without words. */
        for (size_t i = 0; i < r->n_blocks; i++)
            r->blocks[i].site = r->blocks[i].tag = -1;
        r->n_sites = 0;
    }
    return 0;
}

/* ---- all together ---- */

static void identity_take(const struct ledger_process *p, struct cause cause,
                          struct retired_process *r)
{
    r->pid = p->valid & LEDGER_HAS_PID ? p->pid : 0;
    r->book_pid = p->book_pid;
    r->pid_ns = p->pid_ns;
    r->uid = p->uid;
    r->cause = cause;
    r->start_realtime_ns = p->valid & LEDGER_HAS_START ? p->start_realtime_ns : 0;
    r->end_realtime_ns = clock_real_ns();
    memcpy(r->name, p->name, sizeof(r->name));
    memcpy(r->comm, p->comm, sizeof(r->comm));
    snprintf(r->exe, sizeof(r->exe), "%s", p->exe);
    snprintf(r->command, sizeof(r->command), "%s", p->command);
    memcpy(r->host, p->host, sizeof(r->host));
    memcpy(r->losses, p->losses, sizeof(r->losses));
    r->figures_complete = p->valid & LEDGER_HAS_FIGURES;
    r->blocks_complete = true;
}

/* What the kernel told of the end of this very process, if it did. A program that exec replaced did not end
 * with it, and who is on another machine is unknown to this kernel. */
static void exit_take(struct daemon *daemon, const struct ledger_process *p,
                      struct retired_process *r)
{
    if (!(p->valid & LEDGER_HAS_PID) || r->cause.kind == CAUSE_EXEC ||
        r->cause.kind == CAUSE_DISCONNECTED || p->host[0])
        return;
    const struct exit_record *exit = exit_watch_find(daemon->exits, p->pid, p->start_ticks);
    if (!exit)
        return;
    r->cause = cause_of_status(exit->status);
    r->cause.oom = exit->flags & EXIT_RECORD_OOM;
    r->exit_seen = true;
    r->end_realtime_ns = exit->end_ns;
    r->parent = exit->parent;
    r->peak_rss_bytes = exit->peak_bytes;
    r->cpu_ns = exit->cpu_ns;
    memcpy(r->cgroup, exit->cgroup, sizeof(r->cgroup));
}

static struct retired_process *record_make(struct daemon *daemon, struct ledger_process *p,
                                           struct cause cause)
{
    struct retired_process *r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    identity_take(p, cause, r);
    exit_take(daemon, p, r);
    if (accounts_take(p, r) < 0)
        r->figures_complete = false;
    int fds[LEDGER_BOOKS_PER_PROCESS_MAX];
    struct top_blocks top;
    uint64_t deadline_ns = clock_monotonic_ns() + RETIRE_SCAN_MS * NS_PER_MS;
    MEMOIR_CLEANUP(freep)
    struct found *found = calloc(p->n_accounts + 1, sizeof(*found));
    int error = top_blocks_init(&top, daemon->config.retired_blocks);
    if (!found)
        error = -ENOMEM;
    for (size_t i = 0; i < p->n_books; i++) {
        fds[i] = error < 0 || top.max == 0 ? -1 : ledger_book_open(p->books[i]);
        blocks_collect(p->books[i], fds[i], deadline_ns, &top, found, r);
    }
    r->blocks_complete &= found && all_found(r, found);
    if (error < 0 || blocks_take(p, fds, &top, r) < 0) {
        r->n_blocks = r->n_sites = 0;
        r->blocks_complete = false;
    }
    top_blocks_release(&top);
    for (size_t i = 0; i < p->n_books; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return r;
}

/* For the log, and for those who subscribed. */
static void line_tell(const struct daemon *daemon, const struct retired_process *r)
{
    struct buffer line = BUFFER_INIT(LINE_MAX_BYTES);
    char text[CAUSE_TEXT_MAX];
    (void)line_write(r, &line);
    /* The text form is for people and stays as short as it is. */
    if (daemon->config.log_format != LOG_FORMAT_JSON) {
        log_info("%s", buffer_string(&line));
    } else if (log_enabled(LOG_LEVEL_INFO)) {
        log_write(LOG_LEVEL_INFO,
                  LOG_FIELDS(LOG_STR("event", "retired"),
                             LOG_I64("pid", r->pid > 0 ? r->pid : r->book_pid),
                             LOG_U64("uid", r->uid), LOG_STR("name", r->name),
                             LOG_STR("cause", cause_text(r->cause, text))),
                  "%s", buffer_string(&line));
    }
    native_process_went(daemon->native, r, buffer_string(&line));
    events_process_went(daemon->events, r, buffer_string(&line));
    buffer_release(&line);
}

/* Is the book in use? Its own writer, then, whatever we were told about it; or another
 * daemon that wrote it on the process's behalf and will remove it. Where the end of the process was
 * witnessed, a lock on what it wrote itself is no writer's: a child made by a bare clone system call keeps
 * the mapping, and the lock with it, until it reports, calls exec or ends. */
static bool book_busy(const struct ledger_book *book, bool witnessed)
{
    const struct book_identity *id = book->identity;
    bool ours = id->compat & BOOK_COMPAT_ON_BEHALF ? id->writer_pid == getpid() : witnessed;
    return !ours && ledger_book_lock(book) == 1;
}

/* Only a file that is this very book, in the directory that was checked to be its owner's. */
static void book_unlink(const struct ledger_book *book, bool witnessed)
{
    if (book->dirfd < 0 || ledger_book_check(book) < 0 || book_busy(book, witnessed))
        return; /* of a container, gone already, or not ours to remove */
    if (unlinkat(book->dirfd, book->name, 0) < 0 && errno != ENOENT)
        log_warn("cannot remove book '%s': %m, it stays until its directory is cleaned",
                 book->path);
}

static void record_keep(struct daemon *daemon, struct retired_process *r)
{
    int error = retired_add(daemon->retired, r);
    if (error < 0 && !daemon->retired_file_failed)
        log_warn("cannot append to retired.jsonl in '%s': %s, keeping the last %" PRIu64
                 " in memory only",
                 daemon->state_path, strerror(-error), daemon->config.retired_keep);
    else if (error >= 0 && daemon->retired_file_failed)
        log_info("retired.jsonl can be written again, %" PRIu64 " lines were lost",
                 retired_lost(daemon->retired));
    daemon->retired_file_failed = error < 0;
}

static void tell_silent(uint32_t uid, uint64_t n, void *context)
{
    log_warn("%" PRIu64
             " processes of uid %u were retired without a line or a record: more than %d "
             "at once, or %d a second",
             n, uid, RETIRE_RECORDS_MAX, RETIRE_RECORDS_MAX / RETIRE_RECORDS_REFILL_S);
}

static void tell_unwritten(uint32_t uid, uint64_t n, void *context)
{
    log_warn("%" PRIu64 " lines about processes of uid %u are not in retired.jsonl: per-user quota "
             "exceeded",
             n, uid);
}

void retire_tell(struct daemon *daemon)
{
    uint64_t now = clock_monotonic_ns();
    allowance_tell(daemon->retire_share, now, tell_silent, NULL);
    retired_tell(daemon->retired, now, tell_unwritten, NULL);
}

/* The line comes after the books are gone, so the record is made, and kept, before. */
static struct retired_process *record_put(struct daemon *daemon, struct ledger_process *p,
                                          struct cause cause)
{
    struct retired_process *r = record_make(daemon, p, cause);
    if (r)
        record_keep(daemon, r); /* takes it, and keeps it until others came after it */
    else
        log_error("out of memory: PID %d (%s) is gone without a record", (int)p->pid, p->name);
    return r;
}

/* Is it known to have ended badly? If the process was reaped before a pidfd could be opened, its exit
 * cause is unknown. */
static bool ended_badly(struct cause cause)
{
    switch (cause.kind) {
    case CAUSE_UNKNOWN:
    case CAUSE_FOUND:
        return false;
    default:
        return cause.kind != CAUSE_EXITED || cause.value != 0;
    }
}

/* Did it take its books away itself and hold nothing? Then there is nothing to tell: it is a trial of memoir
 * doctor, or a program that wants no record. */
static bool left_in_order(const struct ledger_process *p, struct cause cause)
{
    uint64_t bytes = 0, blocks = 0;
    if (ended_badly(cause) || p->n_books == 0)
        return false;
    for (size_t i = 0; i < p->n_books; i++)
        if (p->books[i]->dirfd < 0 || p->books[i]->identity->compat & BOOK_COMPAT_ON_BEHALF ||
            ledger_book_check(p->books[i]) != -ENOENT)
            return false;
    return ledger_process_sum(p, 0, NULL, &bytes, &blocks) && blocks == 0;
}

bool retire_process(struct daemon *daemon, struct ledger_process *p, struct cause cause,
                    bool witnessed)
{
    for (size_t i = 0; i < p->n_books; i++)
        if (book_busy(p->books[i], witnessed))
            return false;
    struct retired_process *r = NULL;
    if (allowance_take(daemon->retire_share, p->uid, 1, clock_monotonic_ns())) {
        ledger_refresh_process(daemon->ledger, p);
        if (!left_in_order(p, cause))
            r = record_put(daemon, p, cause);
    }
    for (size_t i = 0; i < p->n_books; i++)
        book_unlink(p->books[i], witnessed);
    if (r)
        line_tell(daemon, r);
    /* Giving up the mappings frees the pages, which takes longer than all that the line waits for. */
    reaper_forget(daemon, p);
    for (size_t n = p->n_books; n > 0; n--) {
        behalf_book_gone(p->books[0]);
        ledger_book_remove(daemon->ledger, p->books[0]); /* with the last one goes p */
    }
    if (daemon->server)
        server_figures_changed(daemon->server);
    return true;
}
