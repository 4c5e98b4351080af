/*
 * reader_peak.c: what each site held when its account was at its peak.
 *
 * A writer writes that down when the account has fallen below its peak (peak.h). Until then what the sites hold now is
 * what they held at the peak, within the error that the book states. So of the two, what was written down and what is
 * now, the one is taken whose sum is nearer to the peak; and none if both are further from it than the error.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "book/guard.h"
#include "book/reader_internal.h"

enum {
    TRIES = 3,           /* while the writer writes down another peak */
    ERROR_LEAST = 65536, /* of books that state less: see peak.h */
};

/* Where the figures of an account's sites come from. */
enum from {
    FROM_NOWHERE,
    FROM_NOW,   /* they are at their peak */
    FROM_SET_0, /* what was written down */
    FROM_SET_1,
};

struct at_peak {
    const struct book_reader *reader;
    const struct book_totals *totals; /* by account */
    struct book_sites *sites;
    uint8_t from[BOOK_RECORDS_MAX]; /* enum from, by record */
    uint32_t seq[BOOK_RECORDS_MAX];
    bool changed;
};

static const struct book_account *account_at(const struct book_reader *reader, size_t i)
{
    const struct book_shards *shards = &reader->shards[i];
    return (const void *)((const char *)reader->parts[shards->first] -
                          offsetof(struct book_account, common));
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

static enum from choose(const struct book_account *account, const struct book_totals *totals,
                        uint64_t error, uint32_t seq)
{
    uint64_t saved = load_relaxed(&account->at_peak_bytes), peak = totals->peak_bytes;
    uint64_t off_now = distance(totals->live_bytes, peak);
    uint64_t off = seq ? distance(saved, peak) : UINT64_MAX;
    if ((off < off_now ? off : off_now) > error)
        return FROM_NOWHERE;
    return off_now <= off ? FROM_NOW : seq % 2 ? FROM_SET_1 : FROM_SET_0;
}

static void sites_from_now(struct at_peak *a)
{
    for (size_t i = 0; i < a->sites->n_sites; i++) {
        const struct book_site_counters *c = &a->sites->counters[i];
        struct book_site_held *to = &a->sites->at_peak[i];
        int64_t bytes = (int64_t)(c->alloc_bytes - c->freed_bytes);
        int64_t blocks = (int64_t)(c->alloc_blocks - c->freed_blocks);
        bool now = a->from[a->sites->sites[i].account] == FROM_NOW;
        bool nowhere = a->from[a->sites->sites[i].account] == FROM_NOWHERE;
        to->bytes = nowhere ? BOOK_SITES_AT_PEAK_UNKNOWN : now && bytes > 0 ? (uint64_t)bytes : 0;
        to->blocks = nowhere             ? BOOK_SITES_AT_PEAK_UNKNOWN
                     : now && blocks > 0 ? (uint64_t)blocks
                                         : 0;
    }
}

static void sites_from_page(struct at_peak *a, uint64_t first, const struct book_site_peak *page)
{
    for (size_t k = 0; k < BOOK_SITES_PER_PAGE && first + k < a->sites->n_sites; k++) {
        unsigned from = a->from[a->sites->sites[first + k].account];
        if (from < FROM_SET_0)
            continue;
        int64_t bytes = (int64_t)load_relaxed(&page[k].set[from - FROM_SET_0].bytes);
        int64_t blocks = (int64_t)load_relaxed(&page[k].set[from - FROM_SET_0].blocks);
        a->sites->at_peak[first + k] = (struct book_site_held){
            bytes > 0 ? (uint64_t)bytes : 0,
            blocks > 0 ? (uint64_t)blocks : 0,
        };
    }
}

static int read_guarded(void *context)
{
    struct at_peak *a = context;
    const struct book_reader *reader = a->reader;
    const struct book_header *h = (const void *)reader->header.base;
    uint64_t error = load_relaxed(&h->peak_error);
    error = error > ERROR_LEAST ? error : ERROR_LEAST;
    for (size_t i = 0; i < reader->n_accounts; i++) {
        const struct book_account *account = account_at(reader, i);
        uint32_t record = reader->accounts[i].record;
        a->seq[record] = load_acquire(&account->at_peak_seq);
        a->from[record] = choose(account, &a->totals[i], error, a->seq[record]);
    }
    sites_from_now(a);
    size_t step = reader->shape[BOOK_SECTION_COUNTERS].entry_size;
    for (uint32_t p = 0; p < reader->pages; p++)
        if (reader->page_list[p].what == BOOK_COUNTERS_PEAK_SITES)
            sites_from_page(a, reader->page_list[p].first,
                            (const void *)(reader->counters.base + p * step));
    fence_acquire();
    a->changed = false;
    for (size_t i = 0; i < reader->n_accounts; i++)
        a->changed |=
            load_acquire(&account_at(reader, i)->at_peak_seq) != a->seq[reader->accounts[i].record];
    return 0;
}

int book_reader_at_peak(struct book_reader *reader, struct book_sites *sites)
{
    MEMOIR_CLEANUP(freep)
    struct book_totals *totals = calloc(reader->n_accounts + 1, sizeof(*totals));
    MEMOIR_CLEANUP(freep)
    struct at_peak *a = calloc(1, sizeof(*a));
    sites->at_peak = calloc(sites->n_sites + 1, sizeof(sites->at_peak[0]));
    if (!totals || !a || !sites->at_peak)
        return -ENOMEM;
    a->reader = reader;
    a->totals = totals;
    a->sites = sites;
    int r = 0;
    for (int i = 0; i < TRIES && r == 0 && (i == 0 || a->changed); i++) {
        r = book_reader_totals_all(reader, totals, reader->n_accounts);
        if (r == 0)
            r = book_guard_run(read_guarded, a);
    }
    return r;
}
