/* The figures: from mapped books into the rows, without a system call. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/sum.h"
#include "ledger/rows.h"

/* A process whose books take longer than REFRESH_SLOW_NS to read gets one REFRESH_SHARE-th of the time, and
 * so do all such processes of one user together: his giant books must not slow everybody's figures. */
enum {
    REFRESH_SHARE = 100,
    REFRESH_SLOW_NS = 20000,
    CLOCK_EVERY = 16, /* quick processes */
    STATUS_INTERVAL_NS = 100000000,
};

/* Totals of all accounts of a book at once. */
static int book_totals(struct book_row *book)
{
    size_t n;
    book_reader_accounts(book->b.reader, &n);
    if (n > book->room_totals) {
        struct book_totals *totals = realloc(book->totals, n * sizeof(*totals));
        if (!totals)
            return -ENOMEM;
        book->totals = totals;
        book->room_totals = n;
    }
    int r = book_reader_totals_all(book->b.reader, book->totals, n);
    book->totals_valid = r >= 0;
    return r;
}

/* Losses, state and size: nobody needs them as fresh as the totals, and they are other cache lines. */
static void process_status(struct process_row *row, uint64_t now_ns)
{
    struct ledger_process *p = &row->p;
    row->status_ns = now_ns;
    p->peak_error = p->book_bytes = 0;
    memset(p->losses, 0, sizeof(p->losses));
    for (size_t i = 0; i < p->n_books; i++) {
        struct ledger_book *book = p->books[i];
        (void)book_reader_status(book->reader, &book->status); /* on failure the last one stays */
        for (size_t k = 0; k < BOOK_LOSSES_MAX; k++)
            sum_add(&p->losses[k], book->status.losses[k]);
        sum_add(&p->book_bytes, book->status.file_bytes);
        if (book->status.peak_error > p->peak_error)
            p->peak_error = book->status.peak_error;
    }
}

/* What the book may map: what it has, and what is left to its user. */
static void mapped_allow(const struct ledger *ledger, const struct book_row *book)
{
    const struct uid_row *payer = &ledger->uids[book->payer];
    size_t max = ledger->options.mapped_per_uid_max;
    size_t left = max > payer->mapped ? max - payer->mapped : 0;
    book_reader_set_mapped_max(book->b.reader, payer->uid == 0 ? 0 : book->mapped + left);
}

static void mapped_count(struct ledger *ledger, struct book_row *book)
{
    size_t mapped = book_reader_mapped(book->b.reader);
    ledger->uids[book->payer].mapped += mapped - book->mapped;
    book->mapped = mapped;
}

static void refusal_note(struct ledger *ledger, const struct ledger_book *book, int error)
{
    if (error == book->error)
        return;
    if (error == -EDQUOT)
        ledger_problem_add(ledger, LEDGER_PROBLEM_LIMIT, error, book->place_uid, book->path, "",
                           "its user's books may map no more");
    else if (error == -ENODATA)
        ledger_problem_add(ledger, LEDGER_PROBLEM_BAD, error, book->place_uid, book->path, "",
                           "it has no pages where it says that figures are");
}

/* The book may have new devices, accounts or pages; then its process is joined anew. */
static int book_refresh(struct ledger *ledger, struct book_row *book)
{
    mapped_allow(ledger, book);
    int r = book_reader_refresh(book->b.reader);
    book->totals_valid = false;
    if (r >= 0)
        r = book_totals(book);
    mapped_count(ledger, book);
    if (r < 0)
        refusal_note(ledger, &book->b, r);
    size_t devices, accounts;
    book_reader_devices(book->b.reader, &devices);
    book->views = book_reader_accounts(book->b.reader, &accounts);
    if (devices != book->n_devices || accounts != book->n_accounts)
        process_row(book->b.process)->joined = false;
    return r;
}

static void process_refresh(struct ledger *ledger, struct process_row *row)
{
    struct ledger_process *p = &row->p;
    bool failed = false;
    for (size_t i = 0; i < p->n_books; i++) {
        struct book_row *book = book_row(p->books[i]);
        /* Nearly always there is nothing new but the figures. */
        if (book->totals_valid && book->n_accounts <= book->room_totals &&
            book_reader_totals_same(book->b.reader, book->totals, book->n_accounts) == 0)
            continue;
        int r = book_refresh(ledger, book);
        book->b.error = r < 0 ? r : 0;
        failed |= r < 0;
    }
    if (!row->joined && ledger_join(ledger, row) < 0) {
        ledger_join_release(row); /* no memory: nothing is shown rather than a part */
        failed = true;
    }
    ledger_join_totals(row);
    if (failed)
        p->valid &= ~(uint32_t)LEDGER_HAS_FIGURES;
}

void ledger_refresh_process(struct ledger *ledger, struct ledger_process *process)
{
    process_status(process_row(process), clock_monotonic_ns());
    process_refresh(ledger, process_row(process));
}

static void devices_sum(struct ledger *ledger)
{
    for (size_t i = 0; i < ledger->n_devices; i++) {
        struct ledger_device *d = ledger->devices[i];
        d->processes = 0;
        for (uint32_t told = device_row(d)->told; told; told &= told - 1) {
            struct ledger_capacity *c = &d->spaces[__builtin_ctz(told)];
            c->used = c->blocks = 0;
            c->sampled = c->partial = false;
        }
    }
    for (size_t i = 0; i < ledger->n_processes; i++) {
        const struct ledger_process *p = ledger->processes[i];
        if (!ledger_process_holds(p))
            continue;
        const struct ledger_device *counted = NULL;
        for (size_t k = 0; k < p->n_accounts; k++) {
            const struct ledger_account *account = &p->accounts[k];
            if (!account->device || !account->valid)
                continue;
            struct ledger_capacity *c = &account->device->spaces[account->space];
            sum_add(&c->used, account->totals.live_bytes);
            sum_add(&c->blocks, account->totals.live_blocks);
            if (account->sampled || account->partial) {
                c->sampled |= account->sampled;
                c->partial |= account->partial;
            }
            /* Accounts are sorted by device. Some sources know bytes only. */
            if ((account->totals.live_blocks | account->totals.live_bytes) > 0 &&
                counted != account->device) {
                account->device->processes++;
                counted = account->device;
            }
        }
    }
}

/* Looking at the clock costs as much as a small book, so processes that were quick before share one look.
 * If they took long this time, each is timed alone until it is quick again. */
static uint64_t group_end(struct ledger *ledger, size_t first, size_t end, uint64_t begin_ns)
{
    uint64_t now = clock_monotonic_ns();
    for (size_t i = first; now - begin_ns > REFRESH_SLOW_NS && i < end; i++)
        process_row(ledger->processes[i])->quick = false;
    return now;
}

static void slow_set(struct ledger *ledger, struct process_row *row, bool slow)
{
    if (slow && !row->slow) {
        row->slow_payer = book_row(row->p.books[0])->payer;
        ledger->uids[row->slow_payer].slow++;
    } else if (!slow && row->slow) {
        ledger->uids[row->slow_payer].slow--;
    }
    row->slow = slow;
    row->quick = !slow;
}

static uint64_t alone_end(struct ledger *ledger, struct process_row *row, uint64_t begin_ns)
{
    uint64_t now = clock_monotonic_ns();
    /* Once may be the scheduler's doing, twice in a row is the book's. */
    bool slow = now - begin_ns > REFRESH_SLOW_NS;
    row->next_refresh_ns = 0;
    if (slow && row->slow)
        row->next_refresh_ns =
            now + (now - begin_ns) * REFRESH_SHARE * ledger->uids[row->slow_payer].slow;
    slow_set(ledger, row, slow);
    return now;
}

bool ledger_refresh_some(struct ledger *ledger, uint64_t budget_ns)
{
    uint64_t now = clock_monotonic_ns(), end = now + budget_ns;
    size_t first = ledger->refreshed; /* of those that share a look at the clock */
    for (; ledger->refreshed < ledger->n_processes; ledger->refreshed++) {
        struct process_row *row = process_row(ledger->processes[ledger->refreshed]);
        if (row->next_refresh_ns > now)
            continue;
        if (ledger->refreshed - first >= CLOCK_EVERY ||
            (!row->quick && ledger->refreshed > first)) {
            now = group_end(ledger, first, ledger->refreshed, now);
            first = ledger->refreshed;
        }
        if (budget_ns && now >= end)
            return false;
        if (now - row->status_ns >= STATUS_INTERVAL_NS)
            process_status(row, now);
        process_refresh(ledger, row);
        if (!row->quick) {
            now = alone_end(ledger, row, now);
            first = ledger->refreshed + 1;
        }
    }
    group_end(ledger, first, ledger->refreshed, now);
    ledger->refreshed = 0;
    devices_sum(ledger);
    ledger_capacities(ledger);
    return true;
}

void ledger_refresh(struct ledger *ledger)
{
    ledger->refreshed = 0;
    ledger_refresh_some(ledger, 0);
}
