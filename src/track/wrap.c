/*
 * wrap.c: the allocator's functions as the program sees them.
 *
 * Each asks the real allocator for a few bytes more, keeps a trailer there (trailer.h) and counts. A size that
 * no trailer can tell is passed on as it is, and will hardly succeed. Alignments, error codes and the
 * corner cases are the real function's own.
 *
 * Nearly all calls are for small blocks of glibc's in a thread that has seen their caller before. What these need is
 * here once more, with nothing in between ("near"): their size stands before them, their trailer is one word,
 * and all that is unusual is left to a function that is called last, so that no registers have to be saved. Most of
 * them are not asked for with more: their word is kept beside them (beside.h).
 */
#include "track/wrap.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "book/peak.h"
#include "track/beside.h"
#include "track/fast.h"

enum { HINT_PAGE = 4096 };

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

/* Count a block of glibc's that is neither small nor large. One with a mapping of its own ends a word earlier. */
INLINE void *far_done(struct track_thread *t, void *block, size_t bytes, uintptr_t caller)
{
    if (likely(!(real_chunk(block) & REAL_CHUNK_MAPPED)))
        return far_done_at(t, block, near_extent(block), bytes, caller);
    t->budget -= (int64_t)bytes;
    return track_done(block, bytes, caller);
}

/* ---- words beside ---- */

/* As beside_counted(), for the sites from BOOK_TRAILER_SHORT_SITES on. */
INLINE struct book_site_counters *beside_counted_wide(struct track_thread *t, uint64_t word)
{
    uint32_t site = book_beside_site_of(word);
    struct book_site_counters *page = t->book.site_pages[site / BOOK_SITES_PER_PAGE];
    bool plain = ((uint32_t)word & BOOK_BESIDE_PLAIN_MASK) == (uint32_t)t->generation;
    return likely(plain && page) ? &page[site % BOOK_SITES_PER_PAGE] : NULL;
}

/* The counters of the site that a word names, if this process made the block and the block is not
 * sampled; or NULL. */
INLINE struct book_site_counters *beside_counted(struct track_thread *t, uint64_t word,
                                                 size_t *ret_bytes)
{
    *ret_bytes = word >> BOOK_BESIDE_BYTES_SHIFT & BOOK_BESIDE_BYTES_MASK;
    if (unlikely(((uint32_t)word & BOOK_BESIDE_USUAL_MASK) != (uint32_t)t->generation))
        return beside_counted_wide(t, word);
    return site_named(t, word);
}

/* A block up to BOOK_BESIDE_BYTES_MAX that was asked for with small_room: one that has its word in itself, as its address or its
 * size tells, may have to grow for that. NULL if there is no memory: then it is as it was. */
static void *small_fit(struct track_thread *t, void *block, size_t bytes)
{
    if (beside_claim(block))
        return block;
    t->elsewhere += beside_distance(block) >= load_relaxed(&beside.span);
    return any_extent(block) >= bytes ? block : real.realloc(block, track_request(bytes));
}

static __attribute__((noinline)) void *small_fitted(void *block, size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    void *fitting = small_fit(t, block, bytes);
    if (unlikely(!fitting))
        return track_without(block);
    if (likely(!beside_word(fitting)))
        return near_done(t, fitting, near_extent(fitting), bytes, caller);
    t->budget -= (int64_t)bytes;
    return track_done(fitting, bytes, caller);
}

/* Count a block that has its word beside, which can name every site. */
INLINE void *beside_done(struct track_thread *t, void *block, uint64_t distance, size_t bytes,
                         uintptr_t caller)
{
    struct track_site *entry = track_site_entry(t, caller);
    if (unlikely(charge(&t->budget, bytes)))
        return track_done(block, bytes, caller);
    if (unlikely(entry->key != caller && (entry->key ^ caller) != TRACK_KEY_WIDE)) {
        entry = track_site_beside(entry);
        if ((entry->key & ~TRACK_KEY_WIDE) != caller)
            return track_done(block, bytes, caller);
    }
    *beside_at(distance) =
        entry->short_site + t->stamp + book_beside_shape((uintptr_t)block, bytes);
    count_alloc(t, entry->counters, bytes);
    return block;
}

/* Count a small block with a trailer, for a caller that is_wide(). It was asked for with small_room, which
 * is enough for a long trailer from the tick on after the first such site. */
static __attribute__((noinline)) void *small_wide(void *block, size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    uint64_t extent = near_extent(block);
    if (likely(extent >= book_trailer_whole_words(bytes) + sizeof(uint64_t)))
        return far_done_at(t, block, extent, bytes, caller);
    t->budget -= (int64_t)bytes;
    return track_done(block, bytes, caller);
}

/* Count a block up to BOOK_BESIDE_BYTES_MAX that was asked for with small_room. In a thread with an arena
 * of its own, and in a heap with few small blocks, most of these have trailers. */
INLINE void *small_done(struct track_thread *t, void *block, size_t bytes, uintptr_t caller)
{
    uint64_t distance = beside_distance(block), extent = near_extent(block);
    uint64_t span = load_acquire(&beside.span);
    if (real_chunk(block) <= BOOK_BESIDE_CHUNK_MAX + REAL_CHUNK_FLAGS) {
        if (distance < span)
            return beside_done(t, block, distance, bytes, caller);
        if (unlikely(!beside_never(span, distance) || extent < bytes))
            return small_fitted(block, bytes, caller);
    }
    t->elsewhere += distance >= span;
    if (unlikely(t->has_wide && is_wide(t, caller)))
        return small_wide(block, bytes, caller);
    return near_done(t, block, extent, bytes, caller);
}

/* ---- new blocks ---- */

/* A new block may begin with links of the list that it was in while it was free: four words in glibc
 * (malloc_chunk), of which its smallest blocks have three, and one in other allocators. In a block that the
 * program never writes, a scan for lost blocks (scan/scan.h) would take them for pointers of the program.
 * They are cleared before the trailer is stored, which may take the same word. */
enum {
    LINKS_THREE_BYTES_MAX = 24,        /* larger blocks of glibc's have room for all four */
    LINKS_OTHER_BYTES_MAX = 128 << 10, /* larger blocks of other allocators are in no list */
};

INLINE void links_clear(void *block, size_t bytes)
{
    uint64_t *words = block;
    memset(words, 0, 3 * sizeof(*words));
    words[bytes > LINKS_THREE_BYTES_MAX ? 3 : 2] = 0;
}

static void *links_clear_any(void *block, size_t bytes)
{
    if (unlikely(!block))
        return NULL;
    if (real.glibc)
        links_clear(block, bytes);
    else if (bytes <= LINKS_OTHER_BYTES_MAX)
        *(uint64_t *)block = 0;
    return block;
}

/* ---- any block ---- */

INLINE bool is_small(size_t bytes)
{
    return bytes <= BOOK_BESIDE_BYTES_MAX && real.glibc;
}

INLINE size_t room_asked(const struct track_thread *t, size_t bytes)
{
    return is_small(bytes) ? bytes + t->small_room : track_request(bytes);
}

/* Count a block that was asked for with room_asked(). */
static void *any_done(struct track_thread *t, void *block, size_t bytes, uintptr_t caller)
{
    void *fitting = is_small(bytes) ? small_fit(t, block, bytes) : block;
    if (unlikely(!fitting))
        return track_without(block);
    t->budget -= (int64_t)bytes;
    return track_done(fitting, bytes, caller);
}

/* Take away a word that is kept beside. */
static bool held_beside(struct track_thread *t, uint64_t *at, struct track_held *ret)
{
    struct book_trailer said;
    if (!book_beside_read(t->tracker->key, *at, 0, &said) || said.inherited || said.sampled)
        return false;
    struct book_site_counters *page = t->book.site_pages[said.site / BOOK_SITES_PER_PAGE];
    if (!page)
        return false;
    *ret = (struct track_held){
        .last = at,
        .words = {0, *at},
        .site = &page[said.site % BOOK_SITES_PER_PAGE],
        .bytes = said.bytes,
        .is_short = true,
    };
    *at = 0;
    return true;
}

/* Take away the trailer of any block of this process; false if it cannot be counted as freed at once. */
static bool take(struct track_thread *t, void *block, struct track_held *ret)
{
    uint64_t word, extent = hint_extent(t, block), *beside_it = beside_word(block);
    if (beside_it)
        return held_beside(t, beside_it, ret);
    if (short_surely(t, block, extent, &word) && held_short(t, block, extent, word, ret))
        return true;
    return held_take(t, block, any_extent(block), ret);
}

/* ---- malloc and free ---- */

static __attribute__((noinline)) void *malloc_slowly(size_t bytes, uintptr_t caller)
{
    if (!real_ready())
        return real_boot_alloc(bytes, 16);
    if (bytes > WRAP_SIZE_MAX || !track_wanted())
        return real.malloc(bytes);
    void *block = links_clear_any(real.malloc(track_request(bytes)), bytes);
    return block ? track_alloc(block, bytes, caller) : NULL;
}

/* The fast way for large blocks, and for allocators that nothing is known of. */
static __attribute__((noinline)) void *malloc_any(size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    if (unlikely(!track_may_alloc(t, &track_page.root.pass) || bytes > WRAP_SIZE_MAX))
        return malloc_slowly(bytes, caller);
    void *block = links_clear_any(real.malloc(room_asked(t, bytes)), bytes);
    if (unlikely(!block))
        return NULL;
    if (bytes > BOOK_TRAILER_SHORT_MAX || real.glibc || track_settings.stacks == TRACK_STACKS_ALL)
        return any_done(t, block, bytes, caller);
    uint64_t extent = any_extent(block);
    hint_set(t, block, extent % HINT_PAGE);
    return near_done(t, block, extent, bytes, caller);
}

/* Is nothing counted in this process, now and from now on? Then calls are passed on at once. */
INLINE bool is_off(void)
{
    return load_relaxed(&track_page.root.phase) == TRACK_OFF &&
           load_acquire(&track_page.root.begun) && load_acquire(&real.ready);
}

/* For small blocks of jemalloc's. */
static __attribute__((noinline)) void *malloc_sized(size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    if (unlikely(!track_may_alloc(t, &track_page.root.sized_pass) ||
                 bytes > BOOK_TRAILER_SHORT_MAX))
        return is_off() ? real.malloc(bytes) : malloc_any(bytes, caller);
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
    if (unlikely(!block))
        return NULL;
    links_clear(block, bytes);
    return far_done(t, block, bytes, caller);
}

/* For small blocks of glibc's. */
INLINE void *malloc_near(struct track_thread *t, size_t bytes, uintptr_t caller)
{
    if (unlikely((t->control->flags & BOOK_CONTROL_SUSPENDED) || bytes > BOOK_TRAILER_SHORT_MAX))
        return malloc_far(bytes, caller);
    void *block = real.malloc(bytes + t->small_room);
    if (unlikely(!block))
        return NULL;
    links_clear(block, bytes);
    return small_done(t, block, bytes, caller);
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
    struct track_held old = {.bytes = 0};
    if (unlikely(!track_is_fast(t, &track_page.root.pass) || real_is_boot(block))) {
        if (is_off() && !real_is_boot(block))
            real.free(block);
        else
            free_slowly(block);
        return;
    }
    if (likely(take(t, block, &old))) {
        if (unlikely(old.bytes >= BOOK_PEAK_LARGE_BYTES))
            track_peak(t, old.bytes);
        count_free(t, old.site, old.bytes);
    } else {
        track_free(block);
    }
    if (unlikely(settle_due(t)))
        track_settle(t);
    real.free(block);
}

static __attribute__((noinline)) void free_settling(void *block)
{
    track_settle(track_self);
    real.free(block);
}

/* Of a word that is found: ends in a jump, so that nothing has to be saved. */
INLINE void free_word(struct track_thread *t, void *block, uint64_t *word,
                      struct book_site_counters *site, size_t bytes)
{
    *word = 0;
    count_free(t, site, bytes);
    if (unlikely(settle_due(t)))
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
        free_word(t, block, (uint64_t *)((uintptr_t)block + extent), site, bytes);
}

/* For larger blocks of glibc's: but for a call of free_any() where anything is unusual. */
static __attribute__((noinline)) void free_far(void *block)
{
    struct track_thread *t = track_self;
    size_t chunk = real_chunk(block);
    uint64_t at = (uintptr_t)block + near_extent(block) - sizeof(uint64_t);
    size_t bytes;
    if (unlikely(beside_word(block) || real_chunk_odd(block, chunk) ||
                 chunk - 2 * BOOK_TRAILER_LONG_BYTES >= BOOK_PEAK_LARGE_BYTES ||
                 !count_free_long(t, at, &bytes)))
        free_any(block);
    else if (unlikely(settle_due(t)))
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
    uint64_t distance = beside_distance(block);
    if (beside_has(real_chunk(block), distance)) {
        uint64_t *beside_it = beside_at(distance);
        if (likely(site = beside_counted(t, *beside_it, &bytes)))
            free_word(t, block, beside_it, site, bytes);
        else
            free_far(block);
        return;
    }
    if (unlikely(!short_here(t, block, extent = near_extent(block), &word) ||
                 !(site = counted(t, word, extent, &bytes))))
        free_far(block);
    else
        free_word(t, block, (uint64_t *)((uintptr_t)block + extent), site, bytes);
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
    struct track_thread *t = track_self;
    void *block = real.calloc(1, fast ? room_asked(t, total) : track_request(total));
    if (!block)
        return NULL;
    return fast ? any_done(t, block, total, caller) : track_alloc(block, total, caller);
}

EXPORT void *calloc(size_t n, size_t bytes)
{
    struct track_thread *t = track_self;
    size_t total;
    if (unlikely(!track_may_alloc(t, &track_page.root.near_pass) ||
                 __builtin_mul_overflow(n, bytes, &total) || total > BOOK_TRAILER_SHORT_MAX))
        return calloc_any(n, bytes, CALLER());
    void *block = real.calloc(1, total + t->small_room);
    return likely(block) ? small_done(t, block, total, CALLER()) : NULL;
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

static __attribute__((noinline)) void *realloc_any(void *block, size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    struct track_held old;
    if (unlikely(!track_may_alloc(t, &track_page.root.pass) || bytes == 0 ||
                 bytes > WRAP_SIZE_MAX || real_is_boot(block) || !take(t, block, &old)))
        return realloc_slowly(block, bytes, caller);
    void *to = real.realloc(block, room_asked(t, bytes));
    if (unlikely(!to)) {
        held_put_back(&old);
        return NULL;
    }
    if (unlikely(old.bytes >= BOOK_PEAK_LARGE_BYTES && bytes < old.bytes))
        track_peak(t, old.bytes - bytes);
    count_moved(t, old.site, old.bytes);
    return any_done(t, to, bytes, caller);
}

INLINE void *realloc_for(void *block, size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    struct book_site_counters *site;
    size_t old_bytes;
    uint64_t word, extent, *last;
    if (!block)
        return wrap_malloc(bytes, caller);
    if (unlikely(!track_may_alloc(t, &track_page.root.near_pass) ||
                 bytes - 1 >= BOOK_TRAILER_SHORT_MAX))
        return realloc_any(block, bytes, caller);
    if ((last = beside_word(block))) {
        word = *last;
        site = beside_counted(t, word, &old_bytes);
    } else {
        extent = near_extent(block);
        last = (uint64_t *)((uintptr_t)block + extent);
        site = short_surely(t, block, extent, &word) ? counted(t, word, extent, &old_bytes) : NULL;
    }
    if (unlikely(!site))
        return realloc_any(block, bytes, caller);
    *last = 0; /* the block may grow where it is, and must not hold two */
    void *to = real.realloc(block, bytes + t->small_room);
    if (unlikely(!to)) {
        *last = word;
        return NULL;
    }
    count_moved(t, site, old_bytes);
    return small_done(t, to, bytes, caller);
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
    void *block = links_clear_any((*function)(align, book_trailer_request_long(bytes)), bytes);
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
        *ret_block = track_alloc(links_clear_any(*ret_block, bytes), bytes, CALLER());
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
        if (beside_word(block))
            return real_chunk_usable(real_chunk(block));
        extent = real.glibc ? near_extent(block) : hint_extent(t, block);
        if (short_surely(t, block, extent, &word))
            return extent;
    }
    return usable_slowly(block);
}
