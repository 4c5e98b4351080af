/* What changed between two looks. See changes.h. */
#include "ledger/changes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "ledger/blockset.h"
#include "ledger/index.h"

/* One (device, space) of a process. `told` is the sum of all changes told, in the counters' own terms. */
struct tally {
    struct change_place *place;
    uint32_t space;
    uint64_t told_came, told_came_bytes, told_went, told_went_bytes;
    struct book_totals last;         /* counters of the last look */
    struct book_totals settled;      /* of the one before */
    bool tableless;                  /* its source tells figures and no blocks */
    uint64_t missing_ns;             /* since then more came than was found; 0: it did not */
    uint64_t missing, missing_bytes; /* the least of it since then */
};

struct snapshot {
    struct index_node node;
    struct change_process about;
    uint64_t start_ticks, exec_id, pid_ns, book_ns; /* with about.book_pid: who it is */
    uint64_t seen;                                  /* number of the last look that had it */
    bool gone;                                      /* was told, its book is still there */
    bool pending; /* look at its blocks again, whatever the counters say */
    struct tally *tallies;
    size_t n_tallies;
    struct blockset blocks;
    struct {
        uint64_t dev, ino;
    } books[LEDGER_BOOKS_PER_PROCESS_MAX]; /* numbers for block owners */
    size_t n_books;
};

struct event {
    struct blockset_entry block;
    uint32_t tally;
    const struct ledger_book *book;
};

struct events {
    struct event *events;
    size_t n, room;
};

struct changes {
    struct index snapshots;
    uint64_t looks;
    struct change_place **places; /* each on its own: tallies point to them */
    size_t n_places, room_places;
    struct change_place **of_device; /* by ledger_device.index, in the look under way */
    struct change_place *host;
    struct events came, went; /* of the process at hand; kept for their memory */
    int (*each)(const struct change *change, void *context);
    void *context;
};

/* A block's owner within its process: which book, and which registry record there. A daemon that comes after
 * another copies the book that it finds, so blocks in books on somebody's behalf are the same if they are
 * of one source and one account: there it is which source, and which tally. */
#define OWNER(book, record) ((uint32_t)(book) << 16 | (record))
#define OWNER_ON_BEHALF     (UINT32_C(1) << 31)
_Static_assert(BOOK_RECORDS_MAX <= 1 << 16, "a record fits into an owner");
_Static_assert((int)LEDGER_ACCOUNTS_MAX <= 1 << 16, "a tally fits into an owner");

/* In such a copy times are rounded anew: so far may two be apart and mean the same block. */
enum {
    COPY_TOLERANCE_MS = 40,
    MISSING_MS = 1000, /* a block that is counted and not entered for so long never will be */
};

/* ---- places ---- */

static bool same_place(const struct change_place *place, const struct ledger_device *device)
{
    if (!device)
        return place->host;
    return !place->host && place->ordinal == device->ordinal &&
           strcmp(place->uid, device->uid) == 0 && strcmp(place->bus, device->bus) == 0 &&
           strcmp(place->name, device->name) == 0 && strcmp(place->machine, device->host) == 0;
}

/* NULL without memory. */
static struct change_place *place_of(struct changes *c, const struct ledger_device *device)
{
    for (size_t i = 0; i < c->n_places; i++)
        if (same_place(c->places[i], device))
            return c->places[i];
    if (c->n_places == c->room_places) {
        size_t room = c->room_places ? c->room_places * 2 : 8;
        struct change_place **places = reallocarray(c->places, room, sizeof(struct change_place *));
        if (!places)
            return NULL;
        c->places = places;
        c->room_places = room;
    }
    struct change_place *place = calloc(1, sizeof(*place));
    if (!place)
        return NULL;
    place->host = !device;
    if (device) {
        place->ordinal = device->ordinal;
        memcpy(place->name, device->name, sizeof(place->name));
        memcpy(place->uid, device->uid, sizeof(place->uid));
        memcpy(place->bus, device->bus, sizeof(place->bus));
        memcpy(place->machine, device->host, sizeof(place->machine));
    }
    c->places[c->n_places++] = place;
    return place;
}

/* Rows of the ledger come and go; what they mean stays. */
static int places_update(struct changes *c, const struct ledger *ledger)
{
    size_t n;
    struct ledger_device *const *devices = ledger_devices(ledger, &n);
    struct change_place **of_device =
        reallocarray(c->of_device, n + 1, sizeof(struct change_place *));
    if (!of_device)
        return -ENOMEM;
    c->of_device = of_device;
    c->host = place_of(c, NULL);
    for (size_t i = 0; i < n; i++)
        if (!(of_device[i] = place_of(c, devices[i])))
            return -ENOMEM;
    return c->host ? 0 : -ENOMEM;
}

struct change_place *const *changes_places(const struct changes *changes, size_t *ret_n)
{
    *ret_n = changes->n_places;
    return changes->places;
}

/* ---- telling ---- */

static void add(uint64_t *sum, uint64_t came, uint64_t went)
{
    *sum += came;
    *sum = *sum > went ? *sum - went : 0; /* lies must not wrap */
}

static int tell(struct changes *c, const struct change *change)
{
    return c->each ? c->each(change, c->context) : 0;
}

static int tell_block(struct changes *c, const struct snapshot *s, enum change_kind kind,
                      const struct event *event)
{
    struct tally *t = &s->tallies[event->tally];
    const struct blockset_entry *b = &event->block;
    if (kind == CHANGE_ALLOC) {
        t->told_came++;
        t->told_came_bytes += b->bytes;
        add(&t->place->bytes[t->space], b->bytes, 0);
    } else {
        t->told_went++;
        t->told_went_bytes += b->bytes;
        add(&t->place->bytes[t->space], 0, b->bytes);
    }
    return tell(c, &(struct change){
                       .kind = kind,
                       .process = &s->about,
                       .place = t->place,
                       .space = t->space,
                       .id = b->id,
                       .bytes = b->bytes,
                       .time_ns = b->time_ns,
                       .tag = b->tag,
                       .book = event->book,
                   });
}

/* How far the counters are ahead of what was told; 0 when they are behind: the blocks were newer. */
static uint64_t ahead(uint64_t counter, uint64_t told)
{
    return counter > told ? counter - told : 0;
}

static bool moved(const struct book_totals *a, const struct book_totals *b)
{
    return a->alloc_blocks != b->alloc_blocks || a->freed_blocks != b->freed_blocks ||
           a->alloc_bytes != b->alloc_bytes || a->freed_bytes != b->freed_bytes;
}

static int tell_counted(struct changes *c, const struct snapshot *s, struct tally *t,
                        struct change change)
{
    if (!change.came && !change.went && !change.came_bytes && !change.went_bytes)
        return 0;
    change.kind = CHANGE_UNSEEN;
    change.process = &s->about;
    change.place = t->place;
    change.space = t->space;
    t->told_came += change.came;
    t->told_came_bytes += change.came_bytes;
    t->told_went += change.went;
    t->told_went_bytes += change.went_bytes;
    add(&t->place->bytes[t->space], change.came_bytes, change.went_bytes);
    return tell(c, &change);
}

/* What the counters are ahead by, all of it: for books without a table of blocks, and at the end. */
static int tell_rest(struct changes *c, const struct snapshot *s, struct tally *t)
{
    return tell_counted(c, s, t,
                        (struct change){
                            .came = ahead(t->last.alloc_blocks, t->told_came),
                            .came_bytes = ahead(t->last.alloc_bytes, t->told_came_bytes),
                            .went = ahead(t->last.freed_blocks, t->told_went),
                            .went_bytes = ahead(t->last.freed_bytes, t->told_went_bytes),
                        });
}

/* How much has been missing in every look since the first of them, once that is long enough ago. */
static struct change long_missing(struct tally *t, uint64_t blocks, uint64_t bytes)
{
    struct change change = {0};
    uint64_t now_ns = clock_monotonic_ns();
    if (!blocks && !bytes) {
        t->missing_ns = 0;
        return change;
    }
    if (!t->missing_ns) {
        t->missing_ns = now_ns;
        t->missing = blocks;
        t->missing_bytes = bytes;
    }
    t->missing = blocks < t->missing ? blocks : t->missing;
    t->missing_bytes = bytes < t->missing_bytes ? bytes : t->missing_bytes;
    if (now_ns - t->missing_ns < MISSING_MS * NS_PER_MS)
        return change;
    t->missing_ns = 0;
    change.came = t->missing;
    change.came_bytes = t->missing_bytes;
    return change;
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What came and went unseen. Counters are compared as they were one look ago, since a writer counts a block
 * and then enters it; blocks that are newer than them have been told already and make the differences
 * smaller than they are. So while counters move, that much is told as certainly came and went, less one
 * block, with which what is left of the bytes is told when they stand still: then differences are exact,
 * and what came beyond what went is on its way into the table, unless it stays missing. */
static int tell_unseen(struct changes *c, const struct snapshot *s, struct tally *t)
{
    uint64_t came = ahead(t->settled.alloc_blocks, t->told_came);
    uint64_t came_bytes = ahead(t->settled.alloc_bytes, t->told_came_bytes);
    uint64_t went = ahead(t->settled.freed_blocks, t->told_went);
    uint64_t went_bytes = ahead(t->settled.freed_bytes, t->told_went_bytes);
    uint64_t both = lesser(came, went), both_bytes = lesser(came_bytes, went_bytes);
    struct change change = {0};
    if (t->tableless)
        return tell_rest(c, s, t);
    if (moved(&t->settled, &t->last)) {
        if (both < 2)
            return 0;
        change.came = change.went = both - 1;
        change.came_bytes = change.went_bytes =
            (uint64_t)((unsigned __int128)both_bytes * (both - 1) / both);
        return tell_counted(c, s, t, change);
    }
    change = long_missing(t, ahead(came, went), ahead(came_bytes, went_bytes));
    change.came += both;
    change.came_bytes += both_bytes;
    change.went = went;
    change.went_bytes = went_bytes;
    return tell_counted(c, s, t, change);
}

static int tell_held(struct changes *c, const struct snapshot *s, struct tally *t,
                     enum ledger_state state)
{
    struct change change = {
        .kind = CHANGE_HELD,
        .process = &s->about,
        .place = t->place,
        .space = t->space,
        .bytes = ahead(t->told_came_bytes, t->told_went_bytes),
        .blocks = ahead(t->told_came, t->told_went),
        .state = state,
    };
    add(&t->place->bytes[t->space], 0, change.bytes);
    return change.bytes || change.blocks ? tell(c, &change) : 0;
}

static int tell_gone(struct changes *c, struct snapshot *s, enum ledger_state state)
{
    struct change change = {.kind = CHANGE_GONE, .process = &s->about, .state = state};
    for (size_t i = 0; i < s->n_tallies; i++) {
        int r = tell_rest(c, s, &s->tallies[i]);
        if (r != 0)
            return r;
    }
    for (size_t i = 0; i < s->n_tallies; i++) {
        const struct tally *t = &s->tallies[i];
        change.bytes += ahead(t->told_came_bytes, t->told_went_bytes);
        change.blocks += ahead(t->told_came, t->told_went);
    }
    s->gone = true;
    int r = tell(c, &change);
    for (size_t i = 0; i < s->n_tallies && r == 0; i++)
        r = tell_held(c, s, &s->tallies[i], state);
    return r;
}

/* ---- tallies ---- */

static ssize_t tally_of(struct changes *c, struct snapshot *s, const struct ledger_account *a)
{
    struct change_place *place = a->device ? c->of_device[a->device->index] : c->host;
    for (size_t i = 0; i < s->n_tallies; i++)
        if (s->tallies[i].place == place && s->tallies[i].space == a->space)
            return (ssize_t)i;
    struct tally *tallies = reallocarray(s->tallies, s->n_tallies + 1, sizeof(*tallies));
    if (!tallies)
        return -ENOMEM;
    s->tallies = tallies;
    s->tallies[s->n_tallies] = (struct tally){.place = place, .space = a->space};
    return (ssize_t)s->n_tallies++;
}

/* Counters never go back, unless another source now counts for the account: then what was told before is
 * another story, and this one begins with what is live. */
static void restart(struct tally *t, const struct book_totals *totals)
{
    add(&t->place->bytes[t->space], totals->live_bytes,
        ahead(t->told_came_bytes, t->told_went_bytes));
    t->told_came = totals->alloc_blocks;
    t->told_came_bytes = totals->alloc_bytes;
    t->told_went = totals->freed_blocks;
    t->told_went_bytes = totals->freed_bytes;
    t->settled = *totals;
}

/* New counters of all accounts. 1 when some have moved, 0 or -ENOMEM. Fills ret_tallies, by the number
 * of the process's account. */
static int tallies_update(struct changes *c, struct snapshot *s, const struct ledger_process *p,
                          uint32_t *ret_tallies)
{
    int any = s->pending;
    for (size_t i = 0; i < p->n_accounts; i++) {
        const struct ledger_account *a = &p->accounts[i];
        ret_tallies[i] = UINT32_MAX;
        if (a->space > MEMOIR_SPACE_MAX)
            continue;
        ssize_t at = tally_of(c, s, a);
        if (at < 0)
            return -ENOMEM;
        ret_tallies[i] = (uint32_t)at;
        struct tally *t = &s->tallies[at];
        t->tableless = a->source == BOOK_SOURCE_REGION;
        if (!a->valid || !moved(&t->last, &a->totals))
            continue;
        if (a->totals.alloc_blocks < t->last.alloc_blocks ||
            a->totals.freed_blocks < t->last.freed_blocks)
            restart(t, &a->totals);
        t->last = a->totals;
        any = 1;
    }
    return any;
}

/* ---- blocks ---- */

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

/* 1 when the picture is whole, 0 when it is not, or -ENOMEM. */
static int book_blocks(struct scan *scan, const struct ledger_book *book)
{
    ssize_t number = book_number(scan->snapshot, book);
    if (number < 0)
        return 1;
    scan->book = book;
    scan->book_number = (uint32_t)number;
    scan->on_behalf = book->identity->compat & BOOK_COMPAT_ON_BEHALF
                          ? OWNER_ON_BEHALF | (book->identity->source & 0xfff) << 16
                          : 0;
    ledger_book_accounts(book, scan->accounts);
    uint32_t *owners = calloc(BOOK_RECORDS_MAX, sizeof(*owners));
    if (!owners)
        return -ENOMEM;
    for (size_t i = 0; i < BOOK_RECORDS_MAX; i++)
        owners[i] = scan->accounts[i] != UINT32_MAX ? scan->tallies[scan->accounts[i]] : UINT32_MAX;
    free(scan->owners[number]);
    scan->owners[number] = owners;
    scan->books[number] = book;
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
static int process_blocks(struct changes *c, struct snapshot *s, const struct ledger_process *p,
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

/* ---- processes ---- */

static bool is_gone(const struct ledger_process *p)
{
    return p->state == LEDGER_EXITED || p->state == LEDGER_CLOSED || p->state == LEDGER_REPLACED;
}

static struct snapshot *snapshot_find(struct changes *c, const struct ledger_process *p)
{
    uint64_t hash = hash_combine(p->start_ticks, (uint64_t)p->book_pid);
    for (struct index_node *node = index_first(&c->snapshots, hash); node;
         node = index_next(node->next, hash)) {
        struct snapshot *s = index_row(node, struct snapshot, node);
        /* Its book may have been made anew, by another daemon. */
        bool same_start = p->start_ticks != 0 || s->book_ns == p->book_realtime_ns;
        if (s->about.book_pid == p->book_pid && s->start_ticks == p->start_ticks && same_start &&
            s->exec_id == p->exec_id && s->pid_ns == p->pid_ns)
            return s;
    }
    if (index_reserve(&c->snapshots) < 0)
        return NULL;
    struct snapshot *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->about.book_pid = p->book_pid;
    s->start_ticks = p->start_ticks;
    s->exec_id = p->exec_id;
    s->pid_ns = p->pid_ns;
    s->book_ns = p->book_realtime_ns;
    index_insert(&c->snapshots, &s->node, hash);
    return s;
}

static void snapshot_free(struct snapshot *s)
{
    blockset_release(&s->blocks);
    free(s->tallies);
    free(s);
}

/* What was there when we began is not told, but counts. */
static void begin_quietly(struct snapshot *s)
{
    for (size_t i = 0; i < s->n_tallies; i++)
        restart(&s->tallies[i], &s->tallies[i].last);
}

static int tell_process(struct changes *c, struct snapshot *s, bool whole)
{
    int r = 0;
    s->pending = !whole;
    for (size_t i = 0; i < c->went.n && r == 0; i++)
        r = tell_block(c, s, CHANGE_FREE, &c->went.events[i]);
    for (size_t i = 0; i < c->came.n && r == 0; i++)
        r = tell_block(c, s, CHANGE_ALLOC, &c->came.events[i]);
    for (size_t i = 0; whole && i < s->n_tallies && r == 0; i++) {
        struct tally *t = &s->tallies[i];
        r = tell_unseen(c, s, t);
        s->pending |= moved(&t->settled, &t->last) || t->missing_ns;
        t->settled = t->last;
    }
    return r;
}

static int process_look(struct changes *c, const struct ledger_process *p)
{
    struct snapshot *s = snapshot_find(c, p);
    if (!s)
        return -ENOMEM;
    bool new = s->seen == 0;
    s->seen = c->looks;
    s->about.pid = p->valid & LEDGER_HAS_PID ? p->pid : 0;
    s->about.uid = p->uid;
    s->about.start_realtime_ns = p->valid & LEDGER_HAS_START ? p->start_realtime_ns : 0;
    memcpy(s->about.name, p->name, sizeof(s->about.name));
    memcpy(s->about.user, p->user, sizeof(s->about.user));
    if (s->gone)
        return 0;
    if (new && c->looks > 1) {
        int r = tell(c, &(struct change){.kind = CHANGE_BEGIN, .process = &s->about});
        if (r != 0)
            return r;
    } else if (new &&is_gone(p)) {
        s->gone = true; /* was so before we began */
        return 0;
    }
    MEMOIR_CLEANUP(freep)
    uint32_t *tallies = calloc(p->n_accounts + 1, sizeof(*tallies));
    if (!tallies)
        return -ENOMEM;
    int r = tallies_update(c, s, p, tallies);
    if (r > 0) {
        r = process_blocks(c, s, p, tallies);
        if (r < 0)
            return r;
        if (new && c->looks == 1)
            begin_quietly(s);
        else
            r = tell_process(c, s, r == 1);
    }
    if (r >= 0 && is_gone(p))
        r = tell_gone(c, s, p->state);
    return r > 0 ? 0 : r;
}

static int vanished_look(struct changes *c)
{
    for (size_t i = 0; i < c->snapshots.n_buckets; i++)
        for (struct index_node *node = c->snapshots.buckets[i], *next; node; node = next) {
            struct snapshot *s = index_row(node, struct snapshot, node);
            next = node->next;
            if (s->seen == c->looks)
                continue;
            int r = s->gone ? 0 : tell_gone(c, s, LEDGER_UNKNOWN);
            index_remove(&c->snapshots, node);
            snapshot_free(s);
            if (r != 0)
                return r;
        }
    return 0;
}

int changes_look(struct changes *c, struct ledger *ledger,
                 int (*each)(const struct change *change, void *context), void *context)
{
    size_t n;
    struct ledger_process *const *processes = ledger_processes(ledger, &n);
    c->looks++;
    c->each = each;
    c->context = context;
    int r = places_update(c, ledger);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++) {
        r = process_look(c, processes[i]);
        if (r != 0)
            return r;
    }
    return vanished_look(c);
}

int changes_new(struct changes **ret_changes)
{
    struct changes *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    *ret_changes = c;
    return 0;
}

void changes_free(struct changes *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->snapshots.n_buckets; i++)
        for (struct index_node *node = c->snapshots.buckets[i], *next; node; node = next) {
            next = node->next;
            snapshot_free(index_row(node, struct snapshot, node));
        }
    index_release(&c->snapshots);
    for (size_t i = 0; i < c->n_places; i++)
        free(c->places[i]);
    free(c->places);
    free(c->of_device);
    free(c->came.events);
    free(c->went.events);
    free(c);
}

void changes_freep(struct changes **changes)
{
    changes_free(*changes);
}
