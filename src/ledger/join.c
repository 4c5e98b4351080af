/* A process may be accounted by several sources at once: its allocator, its own reports, probes. What
 * two of them see must not count twice, so for every (space, device) one source wins: the first in the
 * order below that has ever counted something there.
 *
 * The order: who does the work knows best. For heap and mappings that is the allocator, then the
 * wrapper around it, then the probes; a program that reports heap by itself tells only of a part. For
 * devices and pinned memory it is the program itself, then a shim around its driver, then what it says
 * over a socket, then the probes, then a region that other programs keep. Transfers are chosen by
 * themselves: who counts the allocations need not see them.
 *
 * Within one source everything that the process wrote itself adds up: two copies of a library have two
 * books, and a book may have several accounts for one (space, device). Of books that daemons wrote on its
 * behalf one counts, since a daemon that came after another began anew: the one that is being written,
 * else the youngest. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/sum.h"
#include "ledger/rows.h"

enum { SOURCES = BOOK_SOURCE_ATTACH + 1, RANK_UNKNOWN = SOURCES };

static const uint8_t host_rank[SOURCES] = {
    [0] = RANK_UNKNOWN,       [BOOK_SOURCE_MALLOC] = 0,   [BOOK_SOURCE_TRACK] = 1,
    [BOOK_SOURCE_ATTACH] = 2, [BOOK_SOURCE_OBSERVER] = 3, [BOOK_SOURCE_CLIENT] = 4,
    [BOOK_SOURCE_CUDA] = 5,   [BOOK_SOURCE_SOCKET] = 6,   [BOOK_SOURCE_REGION] = 7,
};

static const uint8_t device_rank[SOURCES] = {
    [0] = RANK_UNKNOWN,       [BOOK_SOURCE_CLIENT] = 0,   [BOOK_SOURCE_CUDA] = 1,
    [BOOK_SOURCE_SOCKET] = 2, [BOOK_SOURCE_OBSERVER] = 3, [BOOK_SOURCE_REGION] = 4,
    [BOOK_SOURCE_MALLOC] = 5, [BOOK_SOURCE_TRACK] = 6,    [BOOK_SOURCE_ATTACH] = 7,
};

/* What a process wrote itself comes before what was written for it by the same source. Sources of later
 * versions stay apart from each other. */
static uint32_t rank_in(const uint8_t ranks[SOURCES], const struct book_identity *id)
{
    uint32_t source = id->source;
    uint32_t rank = source < SOURCES ? ranks[source] : RANK_UNKNOWN + source % UINT16_MAX;
    return rank * 2 + (id->compat & BOOK_COMPAT_ON_BEHALF ? 1 : 0);
}

static uint32_t rank_of(uint32_t space, const struct book_identity *id)
{
    bool host =
        space == MEMOIR_SPACE_HEAP || space == MEMOIR_SPACE_MAPPED || space == MEMOIR_SPACE_CHAIN;
    return rank_in(host ? host_rank : device_rank, id);
}

static int part_compare(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    int64_t dx = x->device ? (int64_t)x->device->index : -1;
    int64_t dy = y->device ? (int64_t)y->device->index : -1;
    if (dx != dy)
        return dx < dy ? -1 : 1;
    if (x->space != y->space)
        return x->space < y->space ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static bool same_account(const struct part *a, const struct part *b)
{
    return a->device == b->device && a->space == b->space;
}

void ledger_join_release(struct process_row *row)
{
    for (size_t i = 0; i < row->n_parts; i++)
        if (row->parts[i].device && row->parts[i].claimed)
            device_row(row->parts[i].device)->claims_changed = true;
    free(row->parts);
    free(row->first_part);
    free(row->p.accounts);
    row->parts = NULL;
    row->first_part = NULL;
    row->p.accounts = NULL;
    row->n_parts = row->p.n_accounts = 0;
    row->left_out = 0;
    row->joined = false;
}

static void devices_unref(struct ledger *ledger, struct ledger_device **devices, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ledger_device_unref(ledger, devices[i]);
    free(devices);
}

void ledger_book_release_devices(struct ledger *ledger, struct book_row *book)
{
    devices_unref(ledger, book->devices, book->n_records);
    book->devices = NULL;
    book->n_records = 0;
}

/* Which merged device each registry record of the book is. */
static int book_map_devices(struct ledger *ledger, struct book_row *book)
{
    size_t n;
    const struct book_device_view *views = book_reader_devices(book->b.reader, &n);
    struct ledger_device **old = book->devices;
    size_t n_old = book->n_records;
    book->devices = NULL;
    book->n_records = 0;
    uint32_t last = 0;
    for (size_t i = 0; i < n; i++)
        if (views[i].record > last && views[i].record < BOOK_RECORDS_MAX)
            last = views[i].record;
    book->devices = calloc((size_t)last + 1, sizeof(*book->devices));
    book->n_records = book->devices ? (size_t)last + 1 : 0;
    const struct book_identity *id = book->b.identity;
    const char *host = id->compat & BOOK_COMPAT_REMOTE ? id->host : "";
    for (size_t i = 0; i < n; i++)
        if (views[i].record < book->n_records && !book->devices[views[i].record])
            book->devices[views[i].record] = ledger_device_ref(ledger, &views[i], host, id->st_uid);
    /* The new references are there, so rows that go on being used were not freed in between. */
    devices_unref(ledger, old, n_old);
    return book->devices ? 0 : -ENOMEM;
}

void ledger_book_note_lock(struct book_row *book, bool held)
{
    if (book->lock_held != held && book->b.process)
        process_row(book->b.process)->joined = false; /* another one may count from now on */
    book->lock_held = held;
}

static bool counts_before(const struct book_row *a, const struct book_row *b)
{
    const struct book_identity *x = a->b.identity, *y = b->b.identity;
    if (a->lock_held != b->lock_held)
        return a->lock_held;
    if (x->created_realtime_ns != y->created_realtime_ns)
        return x->created_realtime_ns > y->created_realtime_ns;
    return x->st_ino > y->st_ino;
}

bool ledger_book_passed_over(const struct process_row *row, const struct book_row *book)
{
    const struct book_identity *id = book->b.identity;
    for (size_t i = 0; i < row->p.n_books && id->compat & BOOK_COMPAT_ON_BEHALF; i++) {
        const struct book_row *other = book_row(row->p.books[i]);
        if (other != book && other->b.identity->source == id->source &&
            other->b.identity->compat & BOOK_COMPAT_ON_BEHALF && counts_before(other, book))
            return true;
    }
    return false;
}

/* Counts accounts that cannot be told in `left_out`. */
static size_t book_add_parts(struct book_row *book, struct part *parts, size_t *left_out)
{
    size_t n, added = 0;
    const struct book_account_view *views = book_reader_accounts(book->b.reader, &n);
    if (n > book->n_accounts)
        n = book->n_accounts; /* as many as there is room for */
    for (size_t i = 0; i < n; i++) {
        struct ledger_device *device = NULL;
        bool host = views[i].space < MEMOIR_SPACE_DRAM || views[i].device == BOOK_DEVICE_HOST;
        if (!host && views[i].device < book->n_records)
            device = book->devices[views[i].device];
        /* A device that the book never told of, or past LEDGER_DEVICES_MAX. */
        if (views[i].space == 0 || views[i].space > MEMOIR_SPACE_MAX || (!host && !device)) {
            ++*left_out;
            continue;
        }
        parts[added++] = (struct part){
            .book = book,
            .index = i,
            .device = device,
            .space = views[i].space,
            .rank = rank_of(views[i].space, book->b.identity),
            .moves_rank = rank_in(device_rank, book->b.identity),
        };
    }
    return added;
}

/* The process claims that the space is so large. */
static void note_capacity(struct part *part, const struct book_account_view *view)
{
    if (!part->device)
        return;
    struct ledger_capacity *c = &part->device->spaces[part->space];
    if (c->space == 0)
        memcpy(c->name, view->name, sizeof(c->name));
    c->space = part->space;
    device_row(part->device)->told |= UINT32_C(1) << part->space;
    device_row(part->device)->claims_changed |= part->claimed != view->capacity;
    part->claimed = view->capacity;
}

/* Turn runs of parts into accounts. */
static int make_accounts(struct process_row *row)
{
    struct ledger_account *accounts = calloc(row->n_parts + 1, sizeof(*accounts));
    size_t *first = calloc(row->n_parts + 1, sizeof(*first));
    if (!accounts || !first) {
        free(accounts);
        free(first);
        return -ENOMEM;
    }
    size_t n = 0;
    for (size_t i = 0; i < row->n_parts; i++) {
        struct part *part = &row->parts[i];
        size_t unused;
        const struct book_account_view *view =
            &book_reader_accounts(part->book->b.reader, &unused)[part->index];
        note_capacity(part, view);
        if (i > 0 && same_account(part, &row->parts[i - 1]))
            continue;
        if (n == LEDGER_ACCOUNTS_MAX) {
            row->left_out += row->n_parts - i;
            row->n_parts = i;
            break;
        }
        first[n] = i;
        const struct book_identity *id = part->book->b.identity;
        accounts[n] = (struct ledger_account){.space = part->space,
                                              .device = part->device,
                                              .source = id->source,
                                              .on_behalf = id->compat & BOOK_COMPAT_ON_BEHALF};
        memcpy(accounts[n].name, view->name, sizeof(accounts[n].name));
        n++;
    }
    first[n] = row->n_parts;
    row->p.accounts = accounts;
    row->p.n_accounts = n;
    row->first_part = first;
    return 0;
}

int ledger_join(struct ledger *ledger, struct process_row *row)
{
    ledger_join_release(row);
    size_t room = 0;
    for (size_t i = 0; i < row->p.n_books; i++) {
        struct book_row *book = book_row(row->p.books[i]);
        book_reader_devices(book->b.reader, &book->n_devices);
        book_reader_accounts(book->b.reader, &book->n_accounts);
        int r = book_map_devices(ledger, book);
        if (r < 0)
            return r;
        room += book->n_accounts;
    }
    row->parts = calloc(room + 1, sizeof(*row->parts));
    if (!row->parts)
        return -ENOMEM;
    for (size_t i = 0; i < row->p.n_books; i++) {
        struct book_row *book = book_row(row->p.books[i]);
        book->passed_over = ledger_book_passed_over(row, book);
        if (!book->passed_over)
            row->n_parts += book_add_parts(book, row->parts + row->n_parts, &row->left_out);
    }
    qsort(row->parts, row->n_parts, sizeof(*row->parts), part_compare);
    int r = make_accounts(row);
    if (r < 0)
        return r;
    row->joined = true;
    return 0;
}

/* ---- figures ---- */

static void totals_add(struct book_totals *sum, const struct book_totals *t)
{
    sum_add(&sum->live_bytes, t->live_bytes);
    sum_add(&sum->live_blocks, t->live_blocks);
    sum_add(&sum->alloc_bytes, t->alloc_bytes);
    sum_add(&sum->alloc_blocks, t->alloc_blocks);
    sum_add(&sum->freed_bytes, t->freed_bytes);
    sum_add(&sum->freed_blocks, t->freed_blocks);
    sum_add(&sum->alloc_served, t->alloc_served);
    sum_add(&sum->freed_served, t->freed_served);
    sum_add(&sum->reallocs, t->reallocs);
    sum_add(&sum->moved_in_bytes, t->moved_in_bytes);
    sum_add(&sum->moved_in, t->moved_in);
    sum_add(&sum->moved_out_bytes, t->moved_out_bytes);
    sum_add(&sum->moved_out, t->moved_out);
    sum_add(&sum->peak_bytes, t->peak_bytes);
}

/* What one source says about one account: all parts of one rank. */
struct group {
    struct book_totals totals;
    uint64_t capacity, inherited_bytes, inherited_blocks;
    uint32_t flags, source, moves_rank;
    bool on_behalf;
    bool valid; /* every part could be read */
};

/* The group that begins with part `i`; ret_next is where the next one does. */
static struct group group_sum(const struct process_row *row, size_t i, size_t end, size_t *ret_next)
{
    const struct part *first = &row->parts[i];
    struct group g = {.source = first->book->b.identity->source,
                      .moves_rank = first->moves_rank,
                      .on_behalf = first->book->b.identity->compat & BOOK_COMPAT_ON_BEHALF,
                      .valid = true};
    for (; i < end && row->parts[i].rank == first->rank; i++) {
        struct part *part = &row->parts[i];
        if (!part->book->totals_valid) {
            g.valid = false;
            continue;
        }
        const struct book_account_view *view = &part->book->views[part->index];
        totals_add(&g.totals, &part->book->totals[part->index]);
        sum_add(&g.inherited_bytes, view->inherited_bytes);
        sum_add(&g.inherited_blocks, view->inherited_blocks);
        g.flags |= view->flags;
        if (view->capacity > g.capacity)
            g.capacity = view->capacity;
        if (view->capacity != part->claimed)
            note_capacity(part, view); /* told again */
    }
    *ret_next = i;
    return g;
}

static void account_take(struct ledger_account *account, const struct group *g)
{
    account->totals = g->totals;
    account->source = g->source;
    account->on_behalf = g->on_behalf;
    account->capacity = g->capacity;
    account->inherited_bytes = g->inherited_bytes;
    account->inherited_blocks = g->inherited_blocks;
    account->partial = g->flags & BOOK_ACCOUNT_PARTIAL;
    account->sampled = g->flags & BOOK_ACCOUNT_SAMPLED;
}

static void account_take_moves(struct ledger_account *account, const struct group *g)
{
    account->moves_source = g->source;
    account->totals.moved_in_bytes = g->totals.moved_in_bytes;
    account->totals.moved_in = g->totals.moved_in;
    account->totals.moved_out_bytes = g->totals.moved_out_bytes;
    account->totals.moved_out = g->totals.moved_out;
}

/* The same without sums, for the many that are counted in one place only, whose source make_accounts()
 * knew. */
static bool account_totals_alone(struct ledger_account *account, struct part *part)
{
    const struct book_row *book = part->book;
    account->valid = book->totals_valid;
    if (!book->totals_valid)
        return false;
    const struct book_account_view *view = &book->views[part->index];
    account->totals = book->totals[part->index];
    account->moves_source =
        (account->totals.moved_in | account->totals.moved_out) > 0 ? account->source : 0;
    account->inherited_bytes = view->inherited_bytes;
    account->inherited_blocks = view->inherited_blocks;
    account->partial = view->flags & BOOK_ACCOUNT_PARTIAL;
    account->sampled = view->flags & BOOK_ACCOUNT_SAMPLED;
    if (account->capacity != view->capacity) { /* told again */
        account->capacity = view->capacity;
        note_capacity(part, view);
    }
    return true;
}

/* A region that others keep tells bytes, and not how many blocks they are. */
static bool has_counted(const struct book_totals *t)
{
    return t->alloc_blocks > 0 || t->alloc_bytes > 0;
}

/* False if a part of it could not be read. */
static bool account_totals(const struct process_row *row, size_t a)
{
    struct ledger_account *account = &row->p.accounts[a];
    if (row->first_part[a + 1] - row->first_part[a] == 1)
        return account_totals_alone(account, &row->parts[row->first_part[a]]);
    struct group moves = {0};
    bool found = false, counted = false, moved = false, all = true;
    for (size_t i = row->first_part[a], end = row->first_part[a + 1]; i < end;) {
        struct group g = group_sum(row, i, end, &i);
        all &= g.valid;
        if (!g.valid)
            continue;
        if ((g.totals.moved_in | g.totals.moved_out) > 0 &&
            (!moved || g.moves_rank < moves.moves_rank)) {
            moves = g;
            moved = true;
        }
        if (counted || (found && !has_counted(&g.totals)))
            continue;
        account_take(account, &g);
        found = true;
        counted = has_counted(&g.totals); /* then it wins */
    }
    if (found)
        account_take_moves(account, &moves);
    account->valid = found;
    return found && all;
}

void ledger_join_totals(struct process_row *row)
{
    row->p.valid |= LEDGER_HAS_FIGURES;
    for (size_t a = 0; a < row->p.n_accounts; a++)
        if (!account_totals(row, a))
            row->p.valid &= ~(uint32_t)LEDGER_HAS_FIGURES;
    /* What the readers leave out may change without a new account that would have us join again. */
    row->p.left_out = row->left_out;
    for (size_t i = 0; i < row->p.n_books; i++)
        if (!book_row(row->p.books[i])->passed_over)
            row->p.left_out += book_reader_left_out(row->p.books[i]->reader);
}

void ledger_book_accounts(const struct ledger_book *book, uint32_t ret_accounts[BOOK_RECORDS_MAX])
{
    const struct process_row *row = process_row(book->process);
    bool on_behalf = book->identity->compat & BOOK_COMPAT_ON_BEHALF;
    size_t n;
    const struct book_account_view *views = book_reader_accounts(book->reader, &n);
    memset(ret_accounts, 0xff, BOOK_RECORDS_MAX * sizeof(*ret_accounts));
    for (size_t a = 0; a < row->p.n_accounts; a++)
        for (size_t k = row->first_part[a]; k < row->first_part[a + 1]; k++) {
            const struct part *part = &row->parts[k];
            const struct ledger_account *account = &row->p.accounts[a];
            if (&part->book->b == book && account->source == book->identity->source &&
                account->on_behalf == on_behalf && part->index < n &&
                views[part->index].record < BOOK_RECORDS_MAX)
                ret_accounts[views[part->index].record] = (uint32_t)a;
        }
}
