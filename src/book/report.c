/*
 * report.c: what one report does to the counters.
 *
 * A thread with pages of its own adds by plain loads and stores; the others share the counters
 * inside the account's record and add atomically. Live bytes are folded into one figure per account
 * only when a thread's change reaches BOOK_FOLD_BYTES, so the peak costs nothing per report and is
 * too low by that much per thread at most.
 */
#include <errno.h>
#include <string.h>

#include "book/lock.h"
#include "book/writer.h"

/* ---- where a thread counts ---- */

/* A fresh counter page for this thread. Hold w->lock. */
static void *page_add(struct book_writer *w, uint32_t shard, uint32_t what, uint32_t first)
{
    struct book_section *index = w->section[BOOK_SECTION_COUNTER_INDEX];
    struct book_section *pages = w->section[BOOK_SECTION_COUNTERS];
    uint64_t number = index->used;
    if (book_section_open(w, BOOK_SECTION_COUNTER_INDEX,
                          (number + 1) * sizeof(struct book_counter_page)) < 0 ||
        book_section_open(w, BOOK_SECTION_COUNTERS, (number + 1) * BOOK_COUNTER_PAGE_BYTES) < 0)
        return NULL;
    struct book_counter_page *entry =
        &((struct book_counter_page *)w->at[BOOK_SECTION_COUNTER_INDEX])[number];
    *entry = (struct book_counter_page){.what = what, .first = first, .shard = shard};
    store_release(&pages->used, number + 1);
    store_release(&index->used, number + 1);
    void *page = w->at[BOOK_SECTION_COUNTERS] + number * BOOK_COUNTER_PAGE_BYTES;
    if (what == BOOK_COUNTERS_ACCOUNTS) {
        uint32_t group = first / BOOK_ACCOUNTS_PER_PAGE;
        uint32_t n = w->n_account_pages[group];
        w->account_pages[group][n] = page;
        store_release(&w->n_account_pages[group], n + 1);
    }
    return page;
}

static void *page_get(struct book_writer *w, struct book_thread *t, uint32_t what, uint32_t first,
                      void **slot)
{
    if (!book_lock_take(w, t, &w->lock))
        return NULL;
    if (!*slot)
        store_release(slot, page_add(w, t->exclusive ? t->shard : 0, what, first));
    book_lock_drop(t, &w->lock);
    return *slot;
}

/* The thread's counters of an account. ret_shared: others add there too. */
static inline struct book_counters *account_counters(struct book_writer *w, struct book_thread *t,
                                                     uint32_t account, bool *ret_shared)
{
    uint32_t number = account / BOOK_ACCOUNTS_PER_PAGE;
    struct book_counters *page = t->account_pages[number];
    *ret_shared = false;
    if (__builtin_expect(page != NULL, 1))
        return &page[account % BOOK_ACCOUNTS_PER_PAGE];
    /* Until the book is published one caller at a time counts, and the record will do. */
    if (!w->single && w->published && t->exclusive)
        page = page_get(w, t, BOOK_COUNTERS_ACCOUNTS, number * BOOK_ACCOUNTS_PER_PAGE,
                        (void **)&t->account_pages[number]);
    if (page)
        return &page[account % BOOK_ACCOUNTS_PER_PAGE];
    *ret_shared = !w->single && w->published;
    return &book_account_at(w, account)->common;
}

/* The pages that several threads may use: all of them until the book is published (one at a time),
 * afterwards those without pages of their own. */
static struct book_site_counters *site_counters_slowly(struct book_writer *w, struct book_thread *t,
                                                       uint32_t site, bool *ret_shared)
{
    uint32_t number = site / BOOK_SITES_PER_PAGE;
    bool own = t->exclusive && w->published && !w->single;
    struct book_thread *owner = own ? t : &w->common;
    struct book_site_counters *page = load_acquire(&owner->site_pages[number]);
    if (!page)
        page = page_get(w, t, BOOK_COUNTERS_SITES, number * BOOK_SITES_PER_PAGE,
                        (void **)&owner->site_pages[number]);
    if (!page) {
        book_lose(w, BOOK_LOSS_COUNTERS_FULL);
        return NULL;
    }
    *ret_shared = !own && w->published && !w->single;
    return &page[site % BOOK_SITES_PER_PAGE];
}

static inline struct book_site_counters *site_counters(struct book_writer *w, struct book_thread *t,
                                                       uint32_t site, bool *ret_shared)
{
    struct book_site_counters *page = t->site_pages[site / BOOK_SITES_PER_PAGE];
    *ret_shared = false;
    if (__builtin_expect(page != NULL, 1))
        return &page[site % BOOK_SITES_PER_PAGE];
    return site_counters_slowly(w, t, site, ret_shared);
}

static inline void add(uint64_t *counter, uint64_t amount, bool shared)
{
    if (__builtin_expect(shared, 0))
        fetch_add_release(counter, amount);
    else
        store_release(counter, *counter + amount);
}

/* ---- the peak ---- */

static void fold(struct book_writer *w, uint32_t account, int64_t delta)
{
    struct book_account *record = book_account_at(w, account);
    int64_t live;
    if (w->single) {
        live = record->live_folded + delta;
        store_relaxed(&record->live_folded, live);
    } else {
        live = fetch_add_relaxed(&record->live_folded, delta) + delta;
    }
    if (live > 0)
        max_relaxed(&record->peak_bytes, (uint64_t)live);
}

static inline void change(struct book_writer *w, uint32_t account, struct book_counters *counters,
                          int64_t delta, bool shared)
{
    if (__builtin_expect(shared, 0)) {
        fold(w, account, delta);
        return;
    }
    delta += counters->fold_delta;
    if (w->single || delta >= BOOK_FOLD_BYTES || delta <= -BOOK_FOLD_BYTES) {
        fold(w, account, delta);
        delta = 0;
    }
    store_relaxed(&counters->fold_delta, delta);
}

/* ---- one block more, one block less ---- */

static void count_alloc(struct book_writer *w, struct book_thread *t,
                        const struct book_block *block)
{
    uint32_t account = book_place_account(block->place);
    uint32_t site = book_place_site(block->place);
    uint64_t bytes = book_block_bytes(block);
    bool shared;
    struct book_counters *counters = account_counters(w, t, account, &shared);
    add(&counters->alloc_bytes, bytes, shared);
    add(&counters->alloc_blocks, 1, shared);
    add(&counters->alloc_served, bytes, shared);
    change(w, account, counters, (int64_t)bytes, shared);
    struct book_site_counters *of_site;
    if (site != BOOK_SITE_NONE && (of_site = site_counters(w, t, site, &shared)) != NULL) {
        add(&of_site->alloc_bytes, bytes, shared);
        add(&of_site->alloc_blocks, 1, shared);
    }
}

static void count_free(struct book_writer *w, struct book_thread *t, const struct book_block *block)
{
    uint32_t account = book_place_account(block->place);
    uint32_t site = book_place_site(block->place);
    uint64_t bytes = book_block_bytes(block);
    bool shared;
    struct book_counters *counters = account_counters(w, t, account, &shared);
    add(&counters->freed_bytes, bytes, shared);
    add(&counters->freed_blocks, 1, shared);
    add(&counters->freed_served, bytes, shared);
    change(w, account, counters, -(int64_t)bytes, shared);
    struct book_site_counters *of_site;
    if (site != BOOK_SITE_NONE && (of_site = site_counters(w, t, site, &shared)) != NULL) {
        add(&of_site->freed_bytes, bytes, shared);
        add(&of_site->freed_blocks, 1, shared);
    }
}

void book_alloc(struct book_writer *w, struct book_thread *t, const struct book_block *block)
{
    struct book_block old;
    /* Counted first: a free by another thread must not be seen before its allocation. */
    count_alloc(w, t, block);
    int r = table_put(w, t, block, &old);
    if (__builtin_expect(r == 0, 1))
        return;
    if (r == 1) {
        count_free(w, t, &old);
        book_lose(w, BOOK_LOSS_REPLACED);
    } else {
        book_lose(w, BOOK_LOSS_BLOCKS_FULL);
    }
}

void book_free(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id)
{
    struct book_block old;
    if (__builtin_expect(table_take(w, t, account, id, &old), 1))
        count_free(w, t, &old);
    else
        book_lose(w, BOOK_LOSS_UNKNOWN_FREE);
}

void book_realloc(struct book_writer *w, struct book_thread *t, uint64_t old_id,
                  const struct book_block *block)
{
    uint32_t account = book_place_account(block->place);
    bool shared;
    book_free(w, t, account, old_id);
    book_alloc(w, t, block);
    struct book_counters *counters = account_counters(w, t, account, &shared);
    add(&counters->reallocs, 1, shared);
}

void book_transfer(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id,
                   uint64_t bytes, bool into, uint32_t time)
{
    bool shared;
    struct book_counters *counters = account_counters(w, t, account, &shared);
    add(into ? &counters->moved_in_bytes : &counters->moved_out_bytes, bytes, shared);
    add(into ? &counters->moved_in : &counters->moved_out, 1, shared);
    if (id != 0)
        table_move(w, t, account, id, time);
}

/* ---- sums ---- */

static void sum_freed(const struct book_counters *from, struct book_counters *sum)
{
    sum->freed_bytes += load_acquire(&from->freed_bytes);
    sum->freed_blocks += load_acquire(&from->freed_blocks);
    sum->freed_served += load_acquire(&from->freed_served);
}

static void sum_rest(const struct book_counters *from, struct book_counters *sum)
{
    sum->alloc_bytes += load_acquire(&from->alloc_bytes);
    sum->alloc_blocks += load_acquire(&from->alloc_blocks);
    sum->alloc_served += load_acquire(&from->alloc_served);
    sum->reallocs += load_relaxed(&from->reallocs);
    sum->moved_in_bytes += load_relaxed(&from->moved_in_bytes);
    sum->moved_in += load_relaxed(&from->moved_in);
    sum->moved_out_bytes += load_relaxed(&from->moved_out_bytes);
    sum->moved_out += load_relaxed(&from->moved_out);
}

void book_account_sum(struct book_writer *w, uint32_t account, struct book_counters *ret_sum)
{
    uint32_t group = account / BOOK_ACCOUNTS_PER_PAGE, at = account % BOOK_ACCOUNTS_PER_PAGE;
    const struct book_counters *common = &book_account_at(w, account)->common;
    memset(ret_sum, 0, sizeof(*ret_sum));
    sum_freed(common, ret_sum);
    uint32_t n = load_acquire(&w->n_account_pages[group]);
    for (uint32_t i = 0; i < n; i++)
        sum_freed(&w->account_pages[group][i][at], ret_sum);
    /* A page that came since may hold the allocation of a block whose free we have counted. */
    sum_rest(common, ret_sum);
    n = load_acquire(&w->n_account_pages[group]);
    for (uint32_t i = 0; i < n; i++)
        sum_rest(&w->account_pages[group][i][at], ret_sum);
}
