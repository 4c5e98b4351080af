/* report.c: the unusual cases of report.h, and sums. */
#include "book/report.h"

#include <errno.h>
#include <string.h>

#include "book/peak.h"

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
        if (n == BOOK_SHARDS_MAX)
            return NULL; /* torn reports left pages that nobody owns */
        w->account_pages[group][n] = page;
        store_release(&w->n_account_pages[group], n + 1);
        /* Each thread with a page may keep a change that it has not folded yet. */
        max_relaxed(&w->header->peak_error, (uint64_t)(n + 2) * BOOK_FOLD_BYTES);
    }
    return page;
}

void *book_counter_page_get(struct book_writer *w, struct book_thread *t, uint32_t what,
                            uint32_t first, void **slot)
{
    if (!book_lock_take(w, t, &w->lock))
        return NULL;
    if (!*slot)
        store_release(slot, page_add(w, t->exclusive ? t->shard : 0, what, first));
    book_lock_drop(t, &w->lock);
    return *slot;
}

void book_counters_prepare(struct book_writer *w, struct book_thread *t)
{
    if (!t->exclusive || w->single)
        return;
    book_counter_page_get(w, t, BOOK_COUNTERS_ACCOUNTS, 0, (void **)&t->account_pages[0]);
    book_counter_page_get(w, t, BOOK_COUNTERS_SITES, 0, (void **)&t->site_pages[0]);
}

/* The thread's counters of an account. ret_shared: others add there too. */
static struct book_counters *account_counters(struct book_writer *w, struct book_thread *t,
                                              uint32_t account, bool *ret_shared)
{
    uint32_t number = account / BOOK_ACCOUNTS_PER_PAGE;
    struct book_counters *page = t->account_pages[number];
    *ret_shared = false;
    if (__builtin_expect(page != NULL, 1))
        return &page[account % BOOK_ACCOUNTS_PER_PAGE];
    /* Until the book is published one caller at a time counts, and the record will do. */
    if (!w->single && w->published && t->exclusive)
        page = book_counter_page_get(w, t, BOOK_COUNTERS_ACCOUNTS, number * BOOK_ACCOUNTS_PER_PAGE,
                                     (void **)&t->account_pages[number]);
    if (page)
        return &page[account % BOOK_ACCOUNTS_PER_PAGE];
    *ret_shared = !w->single && w->published;
    return &book_account_at(w, account)->common;
}

/* The pages that several threads may use: all of them until the book is published (one at a time),
 * afterwards those without pages of their own. */
static struct book_site_counters *site_counters(struct book_writer *w, struct book_thread *t,
                                                uint32_t site, bool *ret_shared)
{
    uint32_t number = site / BOOK_SITES_PER_PAGE;
    bool own = t->exclusive && w->published && !w->single;
    struct book_thread *owner = own ? t : &w->common;
    struct book_site_counters *page = load_acquire(&owner->site_pages[number]);
    if (!page)
        page = book_counter_page_get(w, t, BOOK_COUNTERS_SITES, number * BOOK_SITES_PER_PAGE,
                                     (void **)&owner->site_pages[number]);
    if (!page) {
        book_lose(w, BOOK_LOSS_COUNTERS_FULL);
        return NULL;
    }
    *ret_shared = !own && w->published && !w->single;
    return &page[site % BOOK_SITES_PER_PAGE];
}

static void add(uint64_t *counter, uint64_t amount, bool shared)
{
    if (shared)
        fetch_add_release(counter, amount);
    else
        book_add(counter, amount);
}

/* ---- the peak ---- */

static uint64_t fold(struct book_writer *w, struct book_thread *t, uint32_t account, int64_t delta)
{
    struct book_account *record = book_account_at(w, account);
    int64_t live = fetch_add_relaxed(&record->live_folded, delta) + delta;
    if (live > 0)
        max_relaxed(&record->peak_bytes, (uint64_t)live);
    if (__builtin_expect(book_peak_is_due(w, record, live), 0))
        book_peak_save(w, t, account);
    return load_relaxed(&record->peak_bytes);
}

/* Threads fold when they have changed enough to matter: a fixed amount, or a part of the peak where
 * single blocks are larger than that. */
void book_fold(struct book_writer *w, struct book_thread *t, uint32_t account)
{
    struct book_counters *page = t->account_pages[account / BOOK_ACCOUNTS_PER_PAGE];
    struct book_counters *counters = &page[account % BOOK_ACCOUNTS_PER_PAGE];
    uint64_t part = fold(w, t, account, counters->fold_delta) / BOOK_FOLD_PART;
    store_relaxed(&counters->fold_delta, 0);
    if (part > counters->fold_more) {
        counters->fold_more = part;
        uint64_t threads = load_relaxed(&w->shards);
        threads = threads < BOOK_SHARDS_MAX ? threads : BOOK_SHARDS_MAX;
        max_relaxed(&w->header->peak_error, (threads + 1) * (BOOK_FOLD_BYTES + part));
    }
}

/* ---- one block more, one block less ---- */

void book_count_alloc_any(struct book_writer *w, struct book_thread *t, uint64_t size_tag,
                          uint64_t place)
{
    uint32_t account = book_place_account(place), site = book_place_site(place);
    uint64_t bytes = size_tag & BOOK_BLOCK_SIZE_MAX;
    bool shared, due;
    if (book_count_alloc(t, size_tag, place, &due)) {
        if (due)
            book_fold(w, t, account);
        return;
    }
    struct book_counters *counters = account_counters(w, t, account, &shared);
    add(&counters->alloc_bytes, bytes, shared);
    add(&counters->alloc_blocks, 1, shared);
    struct book_site_counters *of_site = site_counters(w, t, site, &shared);
    if (of_site) {
        add(&of_site->alloc_bytes, bytes, shared);
        add(&of_site->alloc_blocks, 1, shared);
    }
    fold(w, t, account, (int64_t)bytes);
}

void book_count_free_any(struct book_writer *w, struct book_thread *t, uint64_t size_tag,
                         uint64_t place)
{
    uint32_t account = book_place_account(place), site = book_place_site(place);
    uint64_t bytes = size_tag & BOOK_BLOCK_SIZE_MAX;
    bool shared, due;
    if (bytes >= BOOK_PEAK_LARGE_BYTES)
        book_peak_before_free(w, t, account, bytes);
    if (book_count_free(t, size_tag, place, &due)) {
        if (due)
            book_fold(w, t, account);
        return;
    }
    struct book_counters *counters = account_counters(w, t, account, &shared);
    add(&counters->freed_bytes, bytes, shared);
    add(&counters->freed_blocks, 1, shared);
    struct book_site_counters *of_site = site_counters(w, t, site, &shared);
    if (of_site) {
        add(&of_site->freed_bytes, bytes, shared);
        add(&of_site->freed_blocks, 1, shared);
    }
    fold(w, t, account, -(int64_t)bytes);
}

bool book_count_sampled(struct book_writer *w, struct book_thread *t, uint32_t site,
                        const struct book_site_counters *counted)
{
    uint32_t number = site / BOOK_SITES_PER_PAGE;
    struct book_site_counters *page = load_acquire(&w->sampled_pages[number]);
    if (!page)
        page =
            book_counter_page_get(w, t, BOOK_COUNTERS_SAMPLED_SITES, number * BOOK_SITES_PER_PAGE,
                                  (void **)&w->sampled_pages[number]);
    if (!page) {
        book_lose(w, BOOK_LOSS_COUNTERS_FULL);
        return false;
    }
    struct book_site_counters *counters = &page[site % BOOK_SITES_PER_PAGE];
    if (counted->alloc_blocks) {
        add(&counters->alloc_bytes, counted->alloc_bytes, true);
        add(&counters->alloc_blocks, counted->alloc_blocks, true);
    }
    if (counted->freed_blocks) {
        add(&counters->freed_bytes, counted->freed_bytes, true);
        add(&counters->freed_blocks, counted->freed_blocks, true);
    }
    return true;
}

void book_enter(struct book_writer *w, struct book_thread *t, uint64_t id, uint64_t size_tag,
                uint64_t place)
{
    struct book_block old, block = {.id = id, .size_tag = size_tag, .place = place};
    int r = table_put(w, t, &block, &old);
    if (r == 1) {
        book_count_free_any(w, t, old.size_tag, old.place);
        book_lose(w, BOOK_LOSS_REPLACED);
    } else if (r < 0) {
        book_lose(w, BOOK_LOSS_BLOCKS_FULL);
    }
}

/* Counted before it is entered: nobody may see the free of a block before its allocation. */
void book_alloc(struct book_writer *w, struct book_thread *t, uint64_t id, uint64_t size_tag,
                uint64_t place)
{
    uint64_t hash = table_hash(&w->table, book_place_account(place), id);
    struct table_shard *shard = table_shard_of(&w->table, hash);
    bool done = false;
    book_count_alloc_any(w, t, size_tag, place);
    if (load_relaxed(&w->table.plain) && book_lock_take(w, t, &shard->lock)) {
        done = table_put_at_home(shard, hash, id, size_tag, place);
        book_lock_drop(t, &shard->lock);
    }
    if (!done)
        book_enter(w, t, id, size_tag, place);
}

void book_free(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id)
{
    uint64_t hash = table_hash(&w->table, account, id);
    struct table_shard *shard = table_shard_of(&w->table, hash);
    struct book_block old;
    bool done = false;
    if (load_relaxed(&w->table.plain) && book_lock_take(w, t, &shard->lock)) {
        done = table_take_at_home(shard, hash, account, id, &old.size_tag, &old.place);
        book_lock_drop(t, &shard->lock);
    }
    if (done || table_take(w, t, account, id, &old))
        book_count_free_any(w, t, old.size_tag, old.place);
    else
        book_lose(w, BOOK_LOSS_UNKNOWN_FREE);
}

void book_count_realloc(struct book_writer *w, struct book_thread *t, uint32_t account)
{
    bool shared;
    struct book_counters *counters = account_counters(w, t, account, &shared);
    add(&counters->reallocs, 1, shared);
}

void book_realloc(struct book_writer *w, struct book_thread *t, uint64_t old_id, uint64_t new_id,
                  uint64_t size_tag, uint64_t place)
{
    uint32_t account = book_place_account(place);
    book_free(w, t, account, old_id);
    book_alloc(w, t, new_id, size_tag, place);
    book_count_realloc(w, t, account);
}

void book_count_many(struct book_writer *w, struct book_thread *t, uint64_t place,
                     const struct book_site_counters *counted)
{
    uint32_t account = book_place_account(place);
    bool shared;
    struct book_counters *counters = account_counters(w, t, account, &shared);
    add(&counters->alloc_bytes, counted->alloc_bytes, shared);
    add(&counters->alloc_blocks, counted->alloc_blocks, shared);
    add(&counters->freed_bytes, counted->freed_bytes, shared);
    add(&counters->freed_blocks, counted->freed_blocks, shared);
    struct book_site_counters *of_site = site_counters(w, t, book_place_site(place), &shared);
    if (of_site) {
        add(&of_site->alloc_bytes, counted->alloc_bytes, shared);
        add(&of_site->alloc_blocks, counted->alloc_blocks, shared);
        add(&of_site->freed_bytes, counted->freed_bytes, shared);
        add(&of_site->freed_blocks, counted->freed_blocks, shared);
    }
    fold(w, t, account, (int64_t)(counted->alloc_bytes - counted->freed_bytes));
}

void book_transfer(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id,
                   uint64_t bytes, bool into, uint32_t time)
{
    bool shared;
    struct book_counters *counters = account_counters(w, t, account, &shared);
    add(into ? &counters->moved_in_bytes : &counters->moved_out_bytes, bytes, shared);
    add(into ? &counters->moved_in : &counters->moved_out, 1, shared);
    if (id != 0 && !table_move(w, t, account, id, time))
        book_lose(w, BOOK_LOSS_UNKNOWN_MOVE);
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
