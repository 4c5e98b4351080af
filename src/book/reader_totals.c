/*
 * reader_totals.c: add up an account's shards.
 *
 * A block may be allocated in one shard and freed in another. All freed counters are read before
 * the first allocated one, so whatever was freed is also found allocated and live is never negative
 * in an honest book; in others it stops at 0.
 *
 * A shard may appear while we read: its block, freed in a shard that we know, would be found freed and
 * not allocated. So the number of counter pages is looked at again afterwards. If some came meanwhile,
 * all freed counters are read again, then the new pages are looked up, and then the allocated counters
 * are read, those of the new pages included.
 */
#include <errno.h>

#include "base/atomic.h"
#include "book/guard.h"
#include "book/reader_internal.h"

struct totals_call {
    const struct book_reader *reader;
    struct book_totals *totals;
    size_t first, n; /* accounts */
    bool behind;     /* pages came meanwhile */
};

/* The figures that the second pass goes on from; the others are 0. */
static inline struct book_totals freed_sum(const struct book_reader *reader, size_t index)
{
    const struct book_shards *shards = &reader->shards[index];
    const struct book_counters *const *parts = reader->parts + shards->first;
    struct book_totals sum = {0};
    for (size_t i = 0; i < shards->n; i++) {
        sum.freed_bytes += load_acquire(&parts[i]->freed_bytes);
        sum.freed_blocks += load_acquire(&parts[i]->freed_blocks);
        sum.freed_served += load_acquire(&parts[i]->freed_served);
    }
    return sum;
}

/* Counters of years of samples may wrap, and their difference is right even so. */
static inline uint64_t live(uint64_t alloc, uint64_t freed)
{
    int64_t difference = (int64_t)(alloc - freed);
    return difference > 0 ? (uint64_t)difference : 0;
}

static inline struct book_totals alloc_sum(const struct book_reader *reader, size_t index,
                                           struct book_totals sum)
{
    const struct book_shards *shards = &reader->shards[index];
    const struct book_counters *const *parts = reader->parts + shards->first;
    for (size_t i = 0; i < shards->n; i++) {
        sum.alloc_bytes += load_acquire(&parts[i]->alloc_bytes);
        sum.alloc_blocks += load_acquire(&parts[i]->alloc_blocks);
        sum.alloc_served += load_acquire(&parts[i]->alloc_served);
        sum.reallocs += load_relaxed(&parts[i]->reallocs);
        sum.moved_in_bytes += load_relaxed(&parts[i]->moved_in_bytes);
        sum.moved_in += load_relaxed(&parts[i]->moved_in);
        sum.moved_out_bytes += load_relaxed(&parts[i]->moved_out_bytes);
        sum.moved_out += load_relaxed(&parts[i]->moved_out);
    }
    /* The first part is the shard in the account's own record. */
    const struct book_account *account =
        (const void *)((const char *)parts[0] - offsetof(struct book_account, common));
    sum.peak_bytes = load_relaxed(&account->peak_bytes);

    sum.live_bytes = live(sum.alloc_bytes, sum.freed_bytes);
    sum.live_blocks = live(sum.alloc_blocks, sum.freed_blocks);
    if (sum.peak_bytes < sum.live_bytes)
        sum.peak_bytes = sum.live_bytes;
    return sum;
}

static int totals_guarded(void *context)
{
    struct totals_call *c = context;
    for (size_t i = 0; i < c->n; i++)
        c->totals[i] = alloc_sum(c->reader, c->first + i, freed_sum(c->reader, c->first + i));
    c->behind = book_reader_pages_behind(c->reader);
    return 0;
}

static int freed_guarded(void *context)
{
    struct totals_call *c = context;
    for (size_t i = 0; i < c->n; i++)
        c->totals[i] = freed_sum(c->reader, c->first + i);
    return 0;
}

static int alloc_guarded(void *context)
{
    struct totals_call *c = context;
    for (size_t i = 0; i < c->n; i++)
        c->totals[i] = alloc_sum(c->reader, c->first + i, c->totals[i]);
    return 0;
}

static int totals_run(struct book_reader *reader, struct totals_call *c)
{
    int r = book_guard_run(totals_guarded, c);
    if (r < 0 || !c->behind)
        return r;
    r = book_guard_run(freed_guarded, c);
    if (r == 0)
        r = book_reader_pages_refresh(reader);
    return r < 0 ? r : book_guard_run(alloc_guarded, c);
}

int book_reader_totals(struct book_reader *reader, size_t index, struct book_totals *ret_totals)
{
    if (reader->stale)
        return -ESTALE; /* the last refresh failed; the lists are of no use */
    if (index >= reader->n_accounts)
        return -EINVAL;
    struct book_totals totals;
    struct totals_call c = {.reader = reader, .totals = &totals, .first = index, .n = 1};
    int r = totals_run(reader, &c);
    if (r < 0)
        return r;
    *ret_totals = totals;
    return 0;
}

int book_reader_totals_all(struct book_reader *reader, struct book_totals *ret_totals, size_t n)
{
    if (reader->stale)
        return -ESTALE;
    if (n != reader->n_accounts)
        return -EINVAL;
    struct totals_call c = {.reader = reader, .totals = ret_totals, .first = 0, .n = n};
    return totals_run(reader, &c);
}

static int same_guarded(void *context)
{
    struct totals_call *c = context;
    if (book_reader_behind((struct book_reader *)c->reader))
        return 1;
    return totals_guarded(context);
}

int book_reader_totals_same(struct book_reader *reader, struct book_totals *ret_totals, size_t n)
{
    if (reader->stale || n != reader->n_accounts)
        return 1;
    struct totals_call c = {.reader = reader, .totals = ret_totals, .first = 0, .n = n};
    int r = book_guard_run(same_guarded, &c);
    return r == 0 && c.behind ? 1 : r;
}
