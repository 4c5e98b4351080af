/*
 * wrap.c: the allocator's functions as the program sees them.
 *
 * Each asks the real allocator for a few bytes more, keeps a trailer there (trailer.h) and counts. A size that
 * no trailer can tell is passed on as it is, and will hardly succeed. Alignments, error codes and the
 * corner cases are the real function's own.
 *
 * Nearly all calls are for small blocks of glibc's in a thread that has seen their caller before. What these need is
 * here once more, with nothing in between ("near"): their size stands before them, their trailer is one word,
 * and all that is unusual is left to a function that is called last, so that no registers have to be saved.
 */
#include "track/wrap.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "book/report.h"

#define INLINE static inline __attribute__((always_inline))

enum { HINT_PAGE = 4096 };

/* Take from a counter of this thread's, in one instruction; true if nothing is left. */
INLINE bool charge(int64_t *left, size_t bytes)
{
#if defined(__x86_64__)
    bool less;
    __asm__("subq %2, %0" : "+m"(*left), "=@ccle"(less) : "r"(bytes));
    return less;
#else
    return (*left -= (int64_t)bytes) <= 0;
#endif
}

/* Bytes from the start of a block to its last word: of a small one of glibc's, whatever else gives more than any of
 * those; and of any block, or very many. */
INLINE uint64_t near_extent(void *block)
{
    return (real_chunk(block) & ~(uint64_t)REAL_CHUNK_FLAGS) - 2 * sizeof(uint64_t);
}

INLINE uint64_t any_extent(void *block)
{
    size_t usable = real_usable(block);
    return (usable & ~(size_t)7) - sizeof(uint64_t); /* of less than a word: very many */
}

/* A guess at the same, and whether it may be looked at: the page is that of the block, so it is there. */
INLINE uint64_t *hint_of(struct track_thread *t, const void *block)
{
    return &t->hints[(uintptr_t)block / HINT_PAGE % TRACK_HINTS];
}

INLINE void hint_set(struct track_thread *t, const void *block, uint64_t extent)
{
    *hint_of(t, block) = ((uintptr_t)block & ~(uint64_t)(HINT_PAGE - 1)) | extent;
}

INLINE uint64_t hint_extent(struct track_thread *t, const void *block)
{
    uint64_t hint = *hint_of(t, block), extent = hint % HINT_PAGE;
    bool same = (hint ^ (uintptr_t)block) < HINT_PAGE;
    return same && (uintptr_t)block % HINT_PAGE + extent < HINT_PAGE ? extent : UINT64_MAX;
}

/* ---- counting ---- */

INLINE void count_alloc(struct track_thread *t, struct book_site_counters *site, size_t bytes)
{
    struct book_counters *account = t->account;
    book_add(&account->alloc_bytes, bytes);
    book_add(&account->alloc_blocks, 1);
    book_add(&site->alloc_bytes, bytes);
    book_add(&site->alloc_blocks, 1);
}

INLINE void count_free(struct track_thread *t, struct book_site_counters *site, size_t bytes)
{
    struct book_counters *account = t->account;
    book_add(&account->freed_bytes, bytes);
    book_add(&account->freed_blocks, 1);
    book_add(&site->freed_bytes, bytes);
    book_add(&site->freed_blocks, 1);
}

/* The entry of a caller that this thread knows, or NULL. */
INLINE struct track_site *site_known(struct track_thread *t, uintptr_t caller)
{
    struct track_site *entry = track_site_entry(t, caller);
    if (likely((entry->key & ~TRACK_KEY_WIDE) == caller))
        return entry;
    entry = track_site_beside(entry);
    return (entry->key & ~TRACK_KEY_WIDE) == caller ? entry : NULL;
}

/* A block that the real allocator gave, and that the budget has been charged for: count it, in any case. Gives the block,
 * or one that takes its place. */
static __attribute__((noinline)) void *done(void *block, size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    t->budget += (int64_t)bytes;
    if (track_settings.stacks == TRACK_STACKS_ALL)
        return track_alloc(block, bytes, caller);
    bool large = bytes >= TRACK_LARGE_BYTES;
    if (large)
        track_clock(t->tracker);
    else if (t->budget <= (int64_t)bytes)
        track_tick(t);
    struct track_site *entry = site_known(t, caller);
    uint64_t at = book_trailer_place((uintptr_t)block, real_usable(block));
    if (!entry || track_sample_left(t) < (int64_t)bytes ||
        !book_trailer_write((uint64_t *)at, t->tracker->key, at, (uintptr_t)block, bytes,
                            t->site_numbers[entry - t->sites], load_relaxed(&t->tracker->time),
                            false))
        return track_alloc(block, bytes, caller);
    t->budget -= (int64_t)bytes;
    count_alloc(t, entry->counters, bytes);
    if (large)
        track_settle(t); /* it makes a peak, though it may be gone before the next tick */
    return block;
}

/* The same for a block up to BOOK_TRAILER_SHORT_MAX that the budget has not been charged for: but for a call of done() where
 * anything is unusual. */
INLINE void *near_done(struct track_thread *t, void *block, uint64_t extent, size_t bytes,
                       uintptr_t caller)
{
    struct track_site *entry = track_site_entry(t, caller);
    uint64_t at = (uintptr_t)block + extent;
    if (unlikely(charge(&t->budget, bytes) || extent - bytes > BOOK_TRAILER_SLACK_MAX))
        return done(block, bytes, caller);
    if (unlikely(entry->key != caller)) {
        entry = track_site_beside(entry);
        if (entry->key != caller)
            return done(block, bytes, caller);
    }
    uint64_t said = entry->short_site + t->stamp + book_trailer_short_shape(extent, extent - bytes);
    *(uint64_t *)at = book_trailer_short_seal(t->key, at, said);
    count_alloc(t, entry->counters, bytes);
    return block;
}

/* The same for a larger one of glibc's, which gets a long trailer. One with a mapping of its own ends a word earlier. */
INLINE void *far_done(struct track_thread *t, void *block, size_t bytes, uintptr_t caller)
{
    struct track_site *entry = track_site_entry(t, caller);
    uint64_t at = (uintptr_t)block + near_extent(block) - sizeof(uint64_t);
    uint64_t pad = (at - (uintptr_t)block - book_trailer_whole_words(bytes)) / 8;
    if (unlikely(charge(&t->budget, bytes) || pad >= BOOK_TRAILER_PAD_FAR ||
                 (real_chunk(block) & REAL_CHUNK_MAPPED)))
        return done(block, bytes, caller);
    if (unlikely(entry->key != caller)) {
        entry = track_site_beside(entry);
        if (entry->key != caller)
            return done(block, bytes, caller);
    }
    uint64_t *words = (uint64_t *)at, site = t->site_numbers[entry - t->sites];
    struct book_trailer_key key = {t->key, (uint32_t)t->generation};
    words[0] = bytes | site << BOOK_TRAILER_LONG_SITE_SHIFT;
    words[1] = book_trailer_seal(key, at, words[0], pad, load_relaxed(&t->tracker->time), false);
    count_alloc(t, entry->counters, bytes);
    return block;
}

/* Has a block of this process a short trailer so far from its start? `ret_word` is what is there then. */
INLINE bool short_here(struct track_thread *t, void *block, uint64_t extent, uint64_t *ret_word)
{
    uint64_t at = (uintptr_t)block + extent;
    if (unlikely(extent > BOOK_TRAILER_SHORT_EXTENT_MAX))
        return false;
    uint64_t word = *ret_word = *(uint64_t *)at;
    return likely((int64_t)word < 0 &&
                  book_trailer_short_sealed(t->key, (uint32_t)t->generation, at, word));
}

/* The same where the distance is a guess, so that it may be another block's; and where the block is going on, so that what looks
 * like a trailer must not be the program's own, in a block that we know nothing of. */
INLINE bool short_surely(struct track_thread *t, void *block, uint64_t extent, uint64_t *ret_word)
{
    return short_here(t, block, extent, ret_word) &&
           likely(book_trailer_short_extent(*ret_word) == extent);
}

/* What was counted for a block with that trailer; the counters of its site, or NULL. */
INLINE struct book_site_counters *counted(struct track_thread *t, uint64_t word, uint64_t extent,
                                          size_t *ret_bytes)
{
    uint64_t site = word >> BOOK_TRAILER_SHORT_SITE_SHIFT; /* and the mark */
    struct book_site_counters *page =
        t->book.site_pages[site / BOOK_SITES_PER_PAGE -
                           BOOK_TRAILER_SHORT_SITES / BOOK_SITES_PER_PAGE];
    *ret_bytes = extent - book_trailer_short_slack(word);
    return likely(page) ? &page[site % BOOK_SITES_PER_PAGE] : NULL;
}

/* A trailer that was taken away, and where its block was counted. */
struct wrap_taken {
    uint64_t *last, words[2];
    struct book_site_counters *site;
    size_t bytes;
    bool is_short;
};

/* Take away the trailer of any block of this process; false if it cannot be counted as freed at once. */
static bool take(struct track_thread *t, void *block, struct wrap_taken *ret)
{
    uint64_t word = 0, extent = hint_extent(t, block);
    struct book_trailer trailer;
    ret->is_short = short_surely(t, block, extent, &word);
    if (!ret->is_short) {
        extent = any_extent(block);
        ret->is_short = short_surely(t, block, extent, &word);
    }
    uint64_t *last = ret->last = (uint64_t *)((uintptr_t)block + extent);
    if (ret->is_short) {
        ret->site = counted(t, word, extent, &ret->bytes);
        if (unlikely(!ret->site))
            return false;
    } else {
        if (unlikely(last < (uint64_t *)block ||
                     book_trailer_check(t->tracker->key, (uintptr_t)block, (uintptr_t)last, last,
                                        &trailer) != 0 ||
                     trailer.is_short || trailer.sampled))
            return false;
        struct book_site_counters *page = t->book.site_pages[trailer.site / BOOK_SITES_PER_PAGE];
        if (unlikely(!page))
            return false;
        ret->site = &page[trailer.site % BOOK_SITES_PER_PAGE];
        ret->bytes = trailer.bytes;
        ret->words[0] = last[-1];
        last[-1] = 0;
    }
    ret->words[1] = last[0];
    last[0] = 0;
    return true;
}

static void put_back(const struct wrap_taken *taken)
{
    taken->last[0] = taken->words[1];
    if (!taken->is_short)
        taken->last[-1] = taken->words[0];
}

/* ---- malloc and free ---- */

static __attribute__((noinline)) void *malloc_slowly(size_t bytes, uintptr_t caller)
{
    if (!real_ready())
        return real_boot_alloc(bytes, 16);
    if (bytes > WRAP_SIZE_MAX || !track_wanted())
        return real.malloc(bytes);
    void *block = real.malloc(track_request(bytes));
    return block ? track_alloc(block, bytes, caller) : NULL;
}

/* The fast way for large blocks, and for allocators that nothing is known of. */
static __attribute__((noinline)) void *malloc_any(size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    if (unlikely(!track_may_alloc(t, &track_page.root.pass) || bytes > WRAP_SIZE_MAX))
        return malloc_slowly(bytes, caller);
    void *block = real.malloc(track_request(bytes));
    if (unlikely(!block))
        return NULL;
    if (bytes > BOOK_TRAILER_SHORT_MAX || real.glibc || track_settings.stacks == TRACK_STACKS_ALL) {
        t->budget -= (int64_t)bytes;
        return done(block, bytes, caller);
    }
    uint64_t extent = any_extent(block);
    hint_set(t, block, extent % HINT_PAGE);
    return near_done(t, block, extent, bytes, caller);
}

/* For small blocks of jemalloc's. */
static __attribute__((noinline)) void *malloc_sized(size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    if (unlikely(!track_may_alloc(t, &track_page.root.sized_pass) ||
                 bytes > BOOK_TRAILER_SHORT_MAX))
        return malloc_any(bytes, caller);
    void *block = real.malloc(book_trailer_request(bytes));
    if (unlikely(!block))
        return NULL;
    uint64_t extent = real.last_of[(bytes + 7) / 8 + 1];
    hint_set(t, block, extent);
    return near_done(t, block, extent, bytes, caller);
}

/* For blocks of glibc's that are neither small nor large. */
static __attribute__((noinline)) void *malloc_far(size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    if (unlikely(!track_may_alloc(t, &track_page.root.near_pass) || bytes >= TRACK_LARGE_BYTES))
        return malloc_any(bytes, caller);
    void *block = real.malloc(book_trailer_request_long(bytes));
    return likely(block) ? far_done(t, block, bytes, caller) : NULL;
}

/* For small blocks of glibc's. */
INLINE void *malloc_near(struct track_thread *t, size_t bytes, uintptr_t caller)
{
    if (unlikely((t->control->flags & BOOK_CONTROL_SUSPENDED) || bytes > BOOK_TRAILER_SHORT_MAX))
        return malloc_far(bytes, caller);
    void *block = real.malloc(bytes + BOOK_TRAILER_SHORT_BYTES);
    return likely(block) ? near_done(t, block, near_extent(block), bytes, caller) : NULL;
}

INLINE void *malloc_for(size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    if (unlikely(!track_is_fast(t, &track_page.root.near_pass)))
        return malloc_sized(bytes, caller);
    return malloc_near(t, bytes, caller);
}

static __attribute__((noinline)) void free_slowly(void *block)
{
    if (real_is_boot(block) || !real_ready())
        return;
    track_free(block);
    real.free(block);
}

/* The fast way for blocks whose size has to be asked for, or which are large or unusual. */
static __attribute__((noinline)) void free_any(void *block)
{
    struct track_thread *t = track_self;
    struct wrap_taken old = {.bytes = 0};
    if (unlikely(!track_is_fast(t, &track_page.root.pass) || real_is_boot(block))) {
        free_slowly(block);
        return;
    }
    if (likely(take(t, block, &old)))
        count_free(t, old.site, old.bytes);
    else
        track_free(block);
    if (unlikely(charge(&t->settle_left, old.bytes)))
        track_settle(t);
    real.free(block);
}

static __attribute__((noinline)) void free_settling(void *block)
{
    track_settle(track_self);
    real.free(block);
}

/* Of a short trailer that is found: ends in a jump, so that nothing has to be saved. */
INLINE void free_short(struct track_thread *t, void *block, uint64_t extent,
                       struct book_site_counters *site, size_t bytes)
{
    *(uint64_t *)((uintptr_t)block + extent) = 0;
    count_free(t, site, bytes);
    if (unlikely(charge(&t->settle_left, bytes)))
        free_settling(block);
    else
        real.free(block);
}

/* For blocks of allocators that are not glibc's. */
static __attribute__((noinline)) void free_hinted(void *block)
{
    struct track_thread *t = track_self;
    struct book_site_counters *site;
    size_t bytes;
    uint64_t word, extent;
    if (unlikely(!track_is_fast(t, &track_page.root.pass) ||
                 !short_surely(t, block, extent = hint_extent(t, block), &word) ||
                 !(site = counted(t, word, extent, &bytes))))
        free_any(block);
    else
        free_short(t, block, extent, site, bytes);
}

/* For larger blocks of glibc's: but for a call of free_any() where anything is unusual. */
static __attribute__((noinline)) void free_far(void *block)
{
    struct track_thread *t = track_self;
    size_t chunk = real_chunk(block);
    uint64_t at = (uintptr_t)block + near_extent(block) - sizeof(uint64_t);
    uint64_t *words = (uint64_t *)at;
    if (unlikely(real_chunk_odd(block, chunk) || chunk < 2 * BOOK_TRAILER_LONG_BYTES ||
                 (int64_t)words[1] < 0 || (words[1] >> 36 & 1))) {
        free_any(block);
        return;
    }
    uint64_t made = words[1] - book_trailer_hash(t->key, at, words[0], words[1]);
    uint64_t site = words[0] >> BOOK_TRAILER_LONG_SITE_SHIFT;
    size_t bytes = words[0] & BOOK_TRAILER_SIZE_MAX;
    struct book_site_counters *page = t->book.site_pages[site / BOOK_SITES_PER_PAGE];
    if (unlikely((made & BOOK_TRAILER_CHECK_MASK) != t->generation || !page)) {
        free_any(block);
        return;
    }
    words[0] = words[1] = 0;
    count_free(t, &page[site % BOOK_SITES_PER_PAGE], bytes);
    if (unlikely(charge(&t->settle_left, bytes)))
        free_settling(block);
    else
        real.free(block);
}

/* For small ones. */
INLINE void free_it(void *block)
{
    if (!block)
        return;
    struct track_thread *t = track_self;
    struct book_site_counters *site;
    size_t bytes;
    uint64_t word, extent;
    if (unlikely(!track_is_fast(t, &track_page.root.glibc_pass))) {
        free_hinted(block);
        return;
    }
    if (unlikely(!short_here(t, block, extent = near_extent(block), &word) ||
                 !(site = counted(t, word, extent, &bytes))))
        free_far(block);
    else
        free_short(t, block, extent, site, bytes);
}

EXPORT void *malloc(size_t bytes)
{
    return malloc_for(bytes, CALLER());
}

EXPORT void free(void *block)
{
    free_it(block);
}

void *wrap_malloc(size_t bytes, uintptr_t caller)
{
    return malloc_for(bytes, caller);
}

void wrap_free(void *block)
{
    free_it(block);
}

static __attribute__((noinline)) void *calloc_any(size_t n, size_t bytes, uintptr_t caller)
{
    size_t total;
    bool fits = !__builtin_mul_overflow(n, bytes, &total) && total <= WRAP_SIZE_MAX;
    if (!real_ready())
        return fits ? real_boot_alloc(total, 16) : NULL; /* zeroed: it is never used again */
    bool fast = track_may_alloc(track_self, &track_page.root.pass);
    if (!fits || (!fast && !track_wanted()))
        return real.calloc(n, bytes);
    void *block = real.calloc(1, track_request(total));
    if (!block)
        return NULL;
    if (!fast)
        return track_alloc(block, total, caller);
    track_self->budget -= (int64_t)total;
    return done(block, total, caller);
}

EXPORT void *calloc(size_t n, size_t bytes)
{
    struct track_thread *t = track_self;
    size_t total;
    if (unlikely(!track_may_alloc(t, &track_page.root.near_pass) ||
                 __builtin_mul_overflow(n, bytes, &total) || total > BOOK_TRAILER_SHORT_MAX))
        return calloc_any(n, bytes, CALLER());
    void *block = real.calloc(1, total + BOOK_TRAILER_SHORT_BYTES);
    return likely(block) ? near_done(t, block, near_extent(block), total, CALLER()) : NULL;
}

/* ---- realloc ---- */

/* A block from before the real allocator was known. */
static void *realloc_boot(void *block, size_t bytes, uintptr_t caller)
{
    size_t old = real_boot_size(block);
    void *moved = malloc_for(bytes, caller);
    if (moved)
        memcpy(moved, block, old < bytes ? old : bytes);
    return moved;
}

/* Most allocators free the block and give NULL; one gives a small block, which has to grow to carry a
 * trailer. */
static void *realloc_zero(void *block, uintptr_t caller)
{
    struct track_taken old = track_take(block);
    void *rest = real.realloc(block, 0);
    track_taken_free(&old, rest != NULL);
    void *larger = rest && track_wanted() ? real.realloc(rest, track_request(0)) : NULL;
    return larger ? track_alloc(larger, 0, caller) : rest;
}

static __attribute__((noinline)) void *realloc_slowly(void *block, size_t bytes, uintptr_t caller)
{
    if (!block)
        return malloc_for(bytes, caller);
    if (real_is_boot(block))
        return realloc_boot(block, bytes, caller);
    if (!real_ready())
        return NULL;
    if (bytes == 0)
        return realloc_zero(block, caller);
    bool counted = bytes <= WRAP_SIZE_MAX && track_wanted();
    struct track_taken old = track_take(block);
    void *moved = real.realloc(block, counted ? track_request(bytes) : bytes);
    if (!moved) {
        track_put_back(&old);
        return NULL;
    }
    track_taken_free(&old, true);
    return counted ? track_alloc(moved, bytes, caller) : moved;
}

/* What a realloc() that moved a block counts for the old one. */
INLINE void count_moved(struct track_thread *t, struct book_site_counters *site, size_t bytes)
{
    count_free(t, site, bytes);
    book_add(&t->account->reallocs, 1);
    t->settle_left -= (int64_t)bytes;
}

static __attribute__((noinline)) void *realloc_any(void *block, size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    struct wrap_taken old;
    if (unlikely(!track_may_alloc(t, &track_page.root.pass) || !block || bytes == 0 ||
                 bytes > WRAP_SIZE_MAX || real_is_boot(block) || !take(t, block, &old)))
        return realloc_slowly(block, bytes, caller);
    void *to = real.realloc(block, track_request(bytes));
    if (unlikely(!to)) {
        put_back(&old);
        return NULL;
    }
    count_moved(t, old.site, old.bytes);
    charge(&t->budget, bytes);
    return done(to, bytes, caller);
}

INLINE void *realloc_for(void *block, size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    struct book_site_counters *site;
    size_t old_bytes;
    uint64_t word, extent;
    if (unlikely(!track_may_alloc(t, &track_page.root.near_pass) || !block ||
                 bytes - 1 >= BOOK_TRAILER_SHORT_MAX ||
                 !short_surely(t, block, extent = near_extent(block), &word) ||
                 !(site = counted(t, word, extent, &old_bytes))))
        return realloc_any(block, bytes, caller);
    uint64_t *last = (uint64_t *)((uintptr_t)block + extent);
    *last = 0; /* the block may grow where it is, and must not hold two */
    void *to = real.realloc(block, bytes + BOOK_TRAILER_SHORT_BYTES);
    if (unlikely(!to)) {
        *last = word;
        return NULL;
    }
    count_moved(t, site, old_bytes);
    return near_done(t, to, near_extent(to), bytes, caller);
}

EXPORT void *realloc(void *block, size_t bytes)
{
    return realloc_for(block, bytes, CALLER());
}

EXPORT void *reallocarray(void *block, size_t n, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(n, bytes, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc_for(block, total, CALLER());
}

/* ---- alignments ---- */

static inline void *aligned(void *(*const *function)(size_t, size_t), size_t align, size_t bytes,
                            uintptr_t caller)
{
    if (!real_ready())
        return real_boot_alloc(bytes, align);
    if (bytes > WRAP_SIZE_MAX || !track_wanted())
        return (*function)(align, bytes);
    void *block = (*function)(align, book_trailer_request_long(bytes));
    return block ? track_alloc(block, bytes, caller) : NULL;
}

void *wrap_aligned(size_t align, size_t bytes, uintptr_t caller)
{
    return aligned(&real.aligned_alloc, align, bytes, caller);
}

EXPORT void *aligned_alloc(size_t align, size_t bytes)
{
    return aligned(&real.aligned_alloc, align, bytes, CALLER());
}

EXPORT void *memalign(size_t align, size_t bytes)
{
    return aligned(&real.memalign, align, bytes, CALLER());
}

EXPORT void *valloc(size_t bytes)
{
    return real_ready() ? aligned(&real.memalign, real.page_bytes, bytes, CALLER()) : NULL;
}

/* Whole pages, all of which the program may use. */
EXPORT void *pvalloc(size_t bytes)
{
    if (!real_ready())
        return NULL;
    size_t page = real.page_bytes, whole = (bytes + page - 1) & ~(page - 1);
    return aligned(&real.memalign, page, whole < bytes ? bytes : whole, CALLER());
}

EXPORT int posix_memalign(void **ret_block, size_t align, size_t bytes)
{
    if (!real_ready()) {
        *ret_block = real_boot_alloc(bytes, align);
        return *ret_block ? 0 : ENOMEM;
    }
    if (bytes > WRAP_SIZE_MAX || !track_wanted())
        return real.posix_memalign(ret_block, align, bytes);
    int r = real.posix_memalign(ret_block, align, book_trailer_request_long(bytes));
    if (r == 0)
        *ret_block = track_alloc(*ret_block, bytes, CALLER());
    return r;
}

/* ---- the rest ---- */

static __attribute__((noinline)) size_t usable_slowly(void *block)
{
    if (real_is_boot(block) || !real_ready())
        return real_boot_size(block);
    size_t usable = track_usable(block);
    if (track_is_fast(track_self, &track_page.root.pass) && usable < HINT_PAGE)
        hint_set(track_self, block, usable & ~(size_t)7);
    return usable;
}

/* Some programs ask this of every block that they get and give back, before they do. */
EXPORT size_t malloc_usable_size(void *block)
{
    struct track_thread *t = track_self;
    uint64_t word, extent;
    if (!block)
        return 0;
    if (likely(track_is_fast(t, &track_page.root.pass))) {
        extent = real.glibc ? near_extent(block) : hint_extent(t, block);
        if (short_surely(t, block, extent, &word))
            return extent;
    }
    return usable_slowly(block);
}

/* Code that called us may be gone afterwards, and other code be in its place. */
EXPORT int dlclose(void *handle)
{
    real_ready();
    int r = real.dlclose(handle);
    fetch_add_relaxed(&track_closes, 1);
    struct track_root *root = &track_page.root;
    if (load_relaxed(&root->pass))
        fetch_add_relaxed(&root->pass, UINT64_C(1) << 48);
    if (load_relaxed(&root->glibc_pass))
        fetch_add_relaxed(&root->glibc_pass, UINT64_C(1) << 48);
    if (load_relaxed(&root->near_pass))
        fetch_add_relaxed(&root->near_pass, UINT64_C(1) << 48);
    if (load_relaxed(&root->sized_pass))
        fetch_add_relaxed(&root->sized_pass, UINT64_C(1) << 48);
    return r;
}
