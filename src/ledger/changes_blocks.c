/* Blocks of a process, compared with those of the last look. See changes.h. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "ledger/changes_rows.h"

/* A block's owner within its process: which book, and which registry record there. A daemon that comes after
 * another copies the book that it finds, so blocks in books on somebody's behalf are the same if they are
 * of one source and one account: there it is which source, and which tally. */
#define OWNER(book, record) ((uint32_t)(book) << 16 | (record))
#define OWNER_ON_BEHALF     (UINT32_C(1) << 31)
_Static_assert(BOOK_RECORDS_MAX <= 1 << 16, "a record fits into an owner");
_Static_assert((int)LEDGER_ACCOUNTS_MAX <= 1 << 16, "a tally fits into an owner");

/* In such a copy times are rounded anew: so far may two be apart and mean the same block. */
enum { COPY_TOLERANCE_MS = 40 };

static int events_add(struct events *events, const struct blockset_entry *block, uint32_t tally,
                      const struct ledger_book *book)
{
    if (events->n == events->room) {
        size_t room = events->room ? events->room * 2 : 256;
        struct event *grown = reallocarray(events->events, room, sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        events->events = grown;
        events->room = room;
    }
    events->events[events->n++] = (struct event){*block, tally, book};
    return 0;
}

struct scan {
    struct changes *changes;
    struct snapshot *snapshot;
    const struct ledger_book *book;
    uint32_t book_number;
    uint32_t on_behalf;      /* owner without the tally; 0: its process wrote the book */
    const uint32_t *tallies; /* by account of the process */
    uint32_t accounts[BOOK_RECORDS_MAX];            /* of the process, by record of the book */
    uint32_t *owners[LEDGER_BOOKS_PER_PROCESS_MAX]; /* by book: tally by record, for those gone */
    const struct ledger_book *books[LEDGER_BOOKS_PER_PROCESS_MAX];
};

static int each_block(const struct book_block_view *block, void *context)
{
    struct scan *scan = context;
    uint32_t account =
        block->account < BOOK_RECORDS_MAX ? scan->accounts[block->account] : UINT32_MAX;
    uint32_t tally = account != UINT32_MAX ? scan->tallies[account] : UINT32_MAX;
    if (tally == UINT32_MAX)
        return 0; /* another source counts there */
    struct blockset_entry entry = {
        .id = block->id,
        .bytes = block->bytes,
        .time_ns = block->time_ns,
        .owner =
            scan->on_behalf ? scan->on_behalf | tally : OWNER(scan->book_number, block->account),
        .tag = block->tag,
    };
    struct blockset_entry old;
    int r = blockset_put(&scan->snapshot->blocks, &entry, CHANGES_BLOCKS_MAX,
                         scan->on_behalf ? COPY_TOLERANCE_MS * NS_PER_MS : 0, &old);
    if (r == -ENOSPC)
        return 0; /* its counters speak for it */
    if (r < 0)
        return r;
    int failed = 0;
    if (r == BLOCKSET_REPLACED)
        failed = events_add(&scan->changes->went, &old, tally, scan->book);
    if (r == BLOCKSET_REPLACED || r == BLOCKSET_NEW)
        failed |= events_add(&scan->changes->came, &entry, tally, scan->book);
    return failed ? -ENOMEM : 0;
}

/* The tally of a block that is gone, by what its owner was when it came. A book that is gone as well has
 * none: its process restarts its counters then. */
static int each_gone(const struct blockset_entry *block, void *context)
{
    struct scan *scan = context;
    uint32_t book = block->owner >> 16, record = block->owner & 0xffff;
    if (block->owner & OWNER_ON_BEHALF)
        return events_add(&scan->changes->went, block, record, NULL);
    uint32_t tally = scan->owners[book] ? scan->owners[book][record] : UINT32_MAX;
    if (tally == UINT32_MAX)
        return 0;
    return events_add(&scan->changes->went, block, tally, scan->books[book]);
}

static ssize_t book_number(struct snapshot *s, const struct ledger_book *book)
{
    for (size_t i = 0; i < s->n_books; i++)
        if (s->books[i].dev == book->identity->st_dev && s->books[i].ino == book->identity->st_ino)
            return (ssize_t)i;
    if (s->n_books == LEDGER_BOOKS_PER_PROCESS_MAX)
        return -ENOSPC; /* so many came and went: its counters speak for it */
    s->books[s->n_books].dev = book->identity->st_dev;
    s->books[s->n_books].ino = book->identity->st_ino;
    return (ssize_t)s->n_books++;
}

/* Whose its records are now, for blocks that are gone. 1; 0 when the book has no number; -ENOMEM. */
static int book_owners(struct scan *scan, const struct ledger_book *book)
{
    ssize_t number = book_number(scan->snapshot, book);
    if (number < 0)
        return 0;
    uint32_t *owners = calloc(BOOK_RECORDS_MAX, sizeof(*owners));
    if (!owners)
        return -ENOMEM;
    for (size_t i = 0; i < BOOK_RECORDS_MAX; i++)
        owners[i] = scan->accounts[i] != UINT32_MAX ? scan->tallies[scan->accounts[i]] : UINT32_MAX;
    free(scan->owners[number]);
    scan->owners[number] = owners;
    scan->books[number] = book;
    scan->book_number = (uint32_t)number;
    return 1;
}

/* 1 when the picture is whole, 0 when it is not, or -ENOMEM. */
static int book_blocks(struct scan *scan, const struct ledger_book *book)
{
    bool on_behalf = book->identity->compat & BOOK_COMPAT_ON_BEHALF;
    scan->book = book;
    scan->on_behalf = on_behalf ? OWNER_ON_BEHALF | (book->identity->source & 0xfff) << 16 : 0;
    ledger_book_accounts(book, scan->accounts);
    if (!on_behalf) {
        int r = book_owners(scan, book);
        if (r <= 0)
            return r < 0 ? r : 1;
    }
    MEMOIR_CLEANUP(closep)
    int fd = ledger_book_open(book);
    if (fd < 0)
        return 0; /* gone in this moment: what it held is told when it is missed */
    bool exact = false;
    struct book_scan_limits limits = {
        .deadline_ns = clock_monotonic_ns() + CHANGES_SCAN_MS * NS_PER_MS,
    };
    int r = book_reader_blocks_within(book->reader, fd, &limits, each_block, scan, &exact);
    if (r == -ENOMEM)
        return r;
    return r == 0 && exact;
}

static int by_time(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    if (x->block.time_ns != y->block.time_ns)
        return x->block.time_ns < y->block.time_ns ? -1 : 1;
    return (x->block.id > y->block.id) - (x->block.id < y->block.id);
}

/* Read the blocks of a process and put what came and went into the lists. 1 when that is all of it. */
int changes_blocks(struct changes *c, struct snapshot *s, const struct ledger_process *p,
                   const uint32_t *tallies)
{
    struct scan *scan = calloc(1, sizeof(*scan));
    if (!scan)
        return -ENOMEM;
    *scan = (struct scan){.changes = c, .snapshot = s, .tallies = tallies};
    c->came.n = c->went.n = 0;
    int r = 1;
    bool whole = true;
    blockset_begin(&s->blocks);
    for (size_t i = 0; i < p->n_books && r >= 0; i++) {
        r = book_blocks(scan, p->books[i]);
        whole &= r == 1;
    }
    /* Those that are missing in half a picture may still be there. */
    if (r >= 0 && whole)
        r = blockset_sweep(&s->blocks, each_gone, scan);
    for (size_t i = 0; i < LEDGER_BOOKS_PER_PROCESS_MAX; i++)
        free(scan->owners[i]);
    free(scan);
    if (r < 0)
        return r;
    if (c->came.n)
        qsort(c->came.events, c->came.n, sizeof(*c->came.events), by_time);
    if (c->went.n)
        qsort(c->went.events, c->went.n, sizeof(*c->went.events), by_time);
    return whole;
}
