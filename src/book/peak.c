/* peak.c: see peak.h. */
#include "book/peak.h"

#include "book/lock.h"

/* Is there a page for what each of these sites held? Hold the peak's lock. */
static bool pages_prepare(struct book_writer *w, struct book_thread *t, uint64_t n_sites)
{
    for (uint32_t first = 0; first < n_sites; first += BOOK_SITES_PER_PAGE) {
        struct book_site_peak **slot = &w->peak_pages[first / BOOK_SITES_PER_PAGE];
        if (!*slot && !book_counter_page_get(w, t, BOOK_COUNTERS_PEAK_SITES, first, (void **)slot))
            return false;
    }
    return true;
}

static struct book_site_peak *peak_of(struct book_writer *w, uint64_t site)
{
    return &w->peak_pages[site / BOOK_SITES_PER_PAGE][site % BOOK_SITES_PER_PAGE];
}

static void set_clear(struct book_writer *w, uint32_t account, unsigned set, uint64_t n_sites)
{
    const struct book_site *sites = (const void *)w->at[BOOK_SECTION_SITES];
    for (uint64_t i = 1; i < n_sites; i++)
        if (sites[i].account == account) {
            store_relaxed(&peak_of(w, i)->set[set].bytes, 0);
            store_relaxed(&peak_of(w, i)->set[set].blocks, 0);
        }
}

/* A page has the part of one thread: blocks that it freed may be another's, so that only sums make sense. */
static void set_add_page(struct book_writer *w, uint32_t account, unsigned set, uint64_t n_sites,
                         uint64_t first, const struct book_site_counters *page)
{
    const struct book_site *sites = (const void *)w->at[BOOK_SECTION_SITES];
    for (uint64_t i = 0; i < BOOK_SITES_PER_PAGE && first + i < n_sites; i++) {
        if (first + i == BOOK_SITE_NONE || sites[first + i].account != account)
            continue;
        struct book_site_peak *to = peak_of(w, first + i);
        uint64_t freed = load_relaxed(&page[i].freed_bytes);
        uint64_t freed_blocks = load_relaxed(&page[i].freed_blocks);
        uint64_t bytes = load_relaxed(&page[i].alloc_bytes) - freed;
        uint64_t blocks = load_relaxed(&page[i].alloc_blocks) - freed_blocks;
        store_relaxed(&to->set[set].bytes, to->set[set].bytes + bytes);
        store_relaxed(&to->set[set].blocks, to->set[set].blocks + blocks);
    }
}

static void set_fill(struct book_writer *w, uint32_t account, unsigned set, uint64_t n_sites)
{
    const struct book_counter_page *index = (const void *)w->at[BOOK_SECTION_COUNTER_INDEX];
    uint64_t pages = load_acquire(&w->section[BOOK_SECTION_COUNTER_INDEX]->used);
    set_clear(w, account, set, n_sites);
    for (uint64_t p = 0; p < pages; p++)
        if (index[p].what == BOOK_COUNTERS_SITES || index[p].what == BOOK_COUNTERS_SAMPLED_SITES)
            set_add_page(
                w, account, set, n_sites, index[p].first,
                (const void *)(w->at[BOOK_SECTION_COUNTERS] + p * BOOK_COUNTER_PAGE_BYTES));
}

static uint64_t live_now(struct book_writer *w, uint32_t account)
{
    struct book_counters sum;
    book_account_sum(w, account, &sum);
    return sum.alloc_bytes > sum.freed_bytes ? sum.alloc_bytes - sum.freed_bytes : 0;
}

/* Hold the peak's lock. */
static void save(struct book_writer *w, struct book_thread *t, uint32_t account)
{
    struct book_account *record = book_account_at(w, account);
    uint64_t n_sites = load_acquire(&w->section[BOOK_SECTION_SITES]->used);
    uint64_t peak = load_relaxed(&record->peak_bytes);
    uint32_t seq = record->at_peak_seq + 1;
    if (!pages_prepare(w, t, n_sites))
        return;
    set_fill(w, account, seq % 2, n_sites);
    uint64_t live = live_now(w, account);
    if (live + book_peak_error(w) < peak)
        return; /* other threads freed so much meanwhile: better none than a wrong one */
    store_relaxed(&record->at_peak_bytes, live);
    store_relaxed(&record->at_peak_of, peak);
    store_relaxed(&record->at_peak_time, book_time(w));
    store_release(&record->at_peak_seq, seq ? seq : 2);
}

void book_peak_save(struct book_writer *w, struct book_thread *t, uint32_t account)
{
    if (!w->published || w->bare || !w->section[BOOK_SECTION_COUNTER_INDEX] ||
        !w->section[BOOK_SECTION_SITES] || !book_lock_take(w, t, &w->peak_lock))
        return;
    /* Another thread may have done it while this one waited. */
    if (book_peak_is_due(w, book_account_at(w, account), INT64_MIN))
        save(w, t, account);
    book_lock_drop(t, &w->peak_lock);
}

void book_peak_before_free(struct book_writer *w, struct book_thread *t, uint32_t account,
                           uint64_t bytes)
{
    const struct book_account *record = book_account_at(w, account);
    int64_t live = load_relaxed(&record->live_folded) - (int64_t)bytes;
    if (book_peak_is_due(w, record, live))
        book_peak_save(w, t, account);
}
