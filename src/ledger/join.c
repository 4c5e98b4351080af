/* A process may be accounted by several sources at once: its allocator, its own reports, probes. What
 * two of them see must not count twice, so for every (space, device) one source wins: the first in the
 * order below that has ever counted something there.
 *
 * The order: who does the work knows best. For heap and mappings that is the allocator, then the
 * wrapper around it, then the probes; a program that reports heap by itself tells only of a part. For
 * devices and pinned memory it is the program itself, then what it says over a socket, then the
 * probes, then a region that other programs keep. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ledger/rows.h"

enum { SOURCES = BOOK_SOURCE_REGION + 1 };

static const uint8_t host_rank[SOURCES] = {
    [0] = 6,
    [BOOK_SOURCE_MALLOC] = 0,
    [BOOK_SOURCE_TRACK] = 1,
    [BOOK_SOURCE_OBSERVER] = 2,
    [BOOK_SOURCE_CLIENT] = 3,
    [BOOK_SOURCE_SOCKET] = 4,
    [BOOK_SOURCE_REGION] = 5,
};

static const uint8_t device_rank[SOURCES] = {
    [0] = 6,
    [BOOK_SOURCE_CLIENT] = 0,
    [BOOK_SOURCE_SOCKET] = 1,
    [BOOK_SOURCE_OBSERVER] = 2,
    [BOOK_SOURCE_REGION] = 3,
    [BOOK_SOURCE_MALLOC] = 4,
    [BOOK_SOURCE_TRACK] = 5,
};

static uint32_t rank_of(uint32_t space, uint32_t source)
{
    bool host = space == MEMOIR_SPACE_HEAP || space == MEMOIR_SPACE_MAPPED;
    return (host ? host_rank : device_rank)[source < SOURCES ? source : 0];
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
    free(row->parts);
    free(row->first_part);
    free(row->p.accounts);
    row->parts = NULL;
    row->first_part = NULL;
    row->p.accounts = NULL;
    row->n_parts = row->p.n_accounts = 0;
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

static size_t book_add_parts(struct book_row *book, struct part *parts)
{
    size_t n, added = 0;
    const struct book_account_view *views = book_reader_accounts(book->b.reader, &n);
    if (n > book->n_accounts)
        n = book->n_accounts; /* as many as there is room for */
    for (size_t i = 0; i < n; i++) {
        struct ledger_device *device = NULL;
        if (views[i].space == 0 || views[i].space > MEMOIR_SPACE_MAX)
            continue;
        if (views[i].device != BOOK_DEVICE_HOST) {
            if (views[i].device >= book->n_records || !book->devices[views[i].device])
                continue; /* a device that the book never told of, or past LEDGER_DEVICES_MAX */
            device = book->devices[views[i].device];
        }
        parts[added++] = (struct part){
            .book = book,
            .index = i,
            .device = device,
            .space = views[i].space,
            .rank = rank_of(views[i].space, book->b.identity->source),
        };
    }
    return added;
}

/* Tell the device how large its spaces are. */
static void note_capacity(const struct part *part, const struct book_account_view *view)
{
    if (!part->device)
        return;
    struct ledger_capacity *c = &part->device->spaces[part->space];
    if (c->space == 0)
        memcpy(c->name, view->name, sizeof(c->name));
    c->space = part->space;
    device_row(part->device)->told |= UINT32_C(1) << part->space;
    if (view->capacity > c->capacity)
        c->capacity = view->capacity;
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
        const struct part *part = &row->parts[i];
        size_t unused;
        const struct book_account_view *view =
            &book_reader_accounts(part->book->b.reader, &unused)[part->index];
        note_capacity(part, view);
        if (i > 0 && same_account(part, &row->parts[i - 1]))
            continue;
        if (n == LEDGER_ACCOUNTS_MAX) {
            row->p.left_out += row->n_parts - i;
            row->n_parts = i;
            break;
        }
        first[n] = i;
        accounts[n] = (struct ledger_account){.space = part->space, .device = part->device};
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
    for (size_t i = 0; i < row->p.n_books; i++)
        row->n_parts += book_add_parts(book_row(row->p.books[i]), row->parts + row->n_parts);
    row->p.left_out = room - row->n_parts;
    qsort(row->parts, row->n_parts, sizeof(*row->parts), part_compare);
    int r = make_accounts(row);
    if (r < 0)
        return r;
    row->joined = true;
    return 0;
}

void ledger_join_totals(struct process_row *row)
{
    row->p.valid |= LEDGER_HAS_FIGURES;
    for (size_t a = 0; a < row->p.n_accounts; a++) {
        struct ledger_account *account = &row->p.accounts[a];
        bool found = false, all = true;
        for (size_t i = row->first_part[a]; i < row->first_part[a + 1]; i++) {
            const struct part *part = &row->parts[i];
            if (!part->book->totals_valid) {
                all = false;
                continue;
            }
            const struct book_totals *totals = &part->book->totals[part->index];
            if (found && totals->alloc_blocks == 0)
                continue;
            size_t n;
            const struct book_account_view *view =
                &book_reader_accounts(part->book->b.reader, &n)[part->index];
            account->totals = *totals;
            account->source = part->book->b.identity->source;
            account->inherited_bytes = view->inherited_bytes;
            if (account->capacity != view->capacity) { /* told again */
                account->capacity = view->capacity;
                note_capacity(part, view);
            }
            found = true;
            if (totals->alloc_blocks > 0)
                break; /* it counts, so it wins */
        }
        account->valid = found;
        if (!found || !all)
            row->p.valid &= ~(uint32_t)LEDGER_HAS_FIGURES;
    }
}

int ledger_account_record(const struct ledger_process *process, size_t i,
                          const struct ledger_book *book)
{
    const struct process_row *row = process_row(process);
    if (i >= process->n_accounts || process->accounts[i].source != book->identity->source)
        return -ENOENT;
    for (size_t k = row->first_part[i]; k < row->first_part[i + 1]; k++)
        if (&row->parts[k].book->b == book) {
            size_t n;
            return (int)book_reader_accounts(book->reader, &n)[row->parts[k].index].record;
        }
    return -ENOENT;
}
