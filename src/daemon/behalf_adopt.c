/* Going on where a dead daemon stopped.
 *
 * Its book is read as any other and written into a fresh one: so it does not matter how its writer found
 * blocks, or in the middle of what it was killed. The blocks are the truth; counters are made to agree with
 * them. Only books of our own user are taken up: what they say then came from one of us. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "book/bare.h"
#include "book/reader.h"
#include "daemon/behalf_internal.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"

struct adoption {
    struct behalf *b;
    struct book_writer *w;
    const struct book_sites *words;
    uint32_t accounts[BOOK_RECORDS_MAX]; /* registry numbers: old to new, 0: none */
    uint32_t devices[BOOK_RECORDS_MAX];
    uint16_t *tags; /* the same */
    int error;
};

/* Does the daemon that wrote it still live? Its lock is exclusive and goes with it. But any process that can read the
 * book may hold a lock for as long as it likes: a shared one, as readers do, says nothing, and for an
 * exclusive one there has to be a process that could be the writer. */
static bool writer_lives(const struct ledger_book *old, int fd)
{
    struct proc_ids ids;
    pid_t writer = old->identity->writer_pid;
    if (flock(fd, LOCK_SH | LOCK_NB) == 0 || writer == getpid())
        return false;
    int r = proc_ids_read(writer, &ids);
    return r < 0 ? r != -ESRCH : ids.real_uid == old->identity->st_uid;
}

static void devices_copy(struct adoption *a, struct book_reader *reader)
{
    size_t n;
    const struct book_device_view *views = book_reader_devices(reader, &n);
    for (size_t i = 0; i < n; i++) {
        struct book_device device = {.kind = views[i].kind, .ordinal = views[i].ordinal};
        memcpy(device.name, views[i].name, sizeof(device.name));
        memcpy(device.uid, views[i].uid, sizeof(device.uid));
        memcpy(device.bus, views[i].bus, sizeof(device.bus));
        int r = book_device_add(a->w, &a->b->table->thread, &device);
        if (r > 0)
            a->devices[views[i].record] = (uint32_t)r;
    }
}

static int accounts_copy(struct adoption *a, struct book_reader *reader)
{
    size_t n;
    const struct book_account_view *views = book_reader_accounts(reader, &n);
    for (size_t i = 0; i < n; i++) {
        struct book_totals totals;
        uint32_t device = views[i].device == BOOK_DEVICE_HOST ? 0 : a->devices[views[i].device];
        int r = book_account_add(a->w, &a->b->table->thread, views[i].space, device, views[i].name);
        if (r <= 0 || book_reader_totals(reader, i, &totals) < 0)
            return r < 0 ? r : -EIO;
        a->accounts[views[i].record] = (uint32_t)r;
        struct book_account *account = book_account_at(a->w, (uint32_t)r);
        struct book_counters *c = &account->common;
        account->capacity = views[i].capacity;
        account->flags = views[i].flags;
        account->peak_bytes = totals.peak_bytes;
        /* Equal until the blocks come: each then lowers the freed side. */
        c->alloc_bytes = c->freed_bytes = totals.alloc_bytes;
        c->alloc_blocks = c->freed_blocks = totals.alloc_blocks;
        c->reallocs = totals.reallocs;
        c->moved_in_bytes = totals.moved_in_bytes;
        c->moved_in = totals.moved_in;
        c->moved_out_bytes = totals.moved_out_bytes;
        c->moved_out = totals.moved_out;
    }
    return 0;
}

static int tags_copy(struct adoption *a)
{
    a->tags = calloc(a->words->n_tags + 1, sizeof(*a->tags));
    if (!a->tags)
        return -ENOMEM;
    for (size_t i = 1; i < a->words->n_tags; i++) {
        int r = book_tag_add(a->w, &a->b->table->thread, a->words->tags[i].name);
        a->tags[i] = r > 0 ? (uint16_t)r : 0;
    }
    return 0;
}

static int block_copy(const struct book_block_view *view, void *context)
{
    struct adoption *a = context;
    uint32_t account = view->account < BOOK_RECORDS_MAX ? a->accounts[view->account] : 0;
    if (account == 0)
        return 0;
    uint64_t tag = view->tag > 0 && view->tag < a->words->n_tags ? a->tags[view->tag] : 0;
    uint64_t created = a->w->header->created_monotonic_ns;
    uint64_t time = view->time_ns > created ? view->time_ns - created : 0;
    struct book_block old, block = {
                               .id = view->id,
                               .size_tag = view->bytes | tag << BOOK_BLOCK_SIZE_BITS,
                               .place = account | time >> a->w->header->time_shift << 32,
                           };
    int r = table_put(a->w, &a->b->table->thread, &block, &old);
    if (r < 0)
        a->error = r;
    if (r != 0)
        return a->error;
    struct book_counters *c = &book_account_at(a->w, account)->common;
    /* A daemon that was killed between entering a block and counting it leaves one more block. */
    if (c->freed_blocks == 0 || c->freed_bytes < view->bytes) {
        c->alloc_bytes += view->bytes;
        c->alloc_blocks++;
        return 0;
    }
    c->freed_bytes -= view->bytes;
    c->freed_blocks--;
    return 0;
}

static void header_copy(struct adoption *a, const struct ledger_book *old, int fd)
{
    struct book_header *header = a->w->header;
    const struct book_identity *id = old->identity;
    struct book_status status;
    struct book_session sessions[BOOK_SESSIONS_MAX];
    /* Blocks keep their times, so the moment from which these count stays, by both clocks. */
    uint64_t shift = header->created_monotonic_ns - id->created_monotonic_ns;
    header->created_monotonic_ns = id->created_monotonic_ns;
    header->created_realtime_ns = id->created_realtime_ns;
    a->w->created_ns -= shift;
    if (book_reader_status(old->reader, &status) >= 0)
        memcpy(header->losses, status.losses, sizeof(header->losses));
    if (pread(fd, sessions, sizeof(sessions), offsetof(struct book_header, sessions)) ==
        sizeof(sessions))
        memcpy(header->sessions, sessions, sizeof(sessions));
}

int behalf_adopt(struct behalf *b, struct ledger_book *old)
{
    MEMOIR_CLEANUP(closep)
    int fd = ledger_book_open(old);
    if (fd < 0)
        return fd;
    int r = writer_lives(old, fd) ? -EBUSY : book_reader_refresh(old->reader);
    struct book_sites words = {0};
    if (r >= 0)
        r = book_reader_sites(old->reader, fd, &words);
    if (r < 0)
        return r;
    MEMOIR_CLEANUP(freep)
    struct adoption *a = calloc(1, sizeof(*a));
    bool exact = true;
    r = -ENOMEM;
    if (a) {
        a->b = b;
        a->w = b->w;
        a->words = &words;
        header_copy(a, old, fd);
        devices_copy(a, old->reader);
        r = accounts_copy(a, old->reader);
    }
    if (r >= 0)
        r = tags_copy(a);
    if (r >= 0)
        r = book_reader_blocks(old->reader, fd, block_copy, a, &exact);
    if (r >= 0 && a->error < 0)
        r = a->error;
    if (a)
        free(a->tags);
    book_sites_release(&words);
    return r < 0 ? r : 0;
}
