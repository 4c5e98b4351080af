/*
 * wrap.c: the allocator's functions as the program sees them.
 *
 * Each asks the real allocator for 16 bytes more, keeps a trailer there (trailer.h) and counts. A size that
 * no trailer can tell is passed on as it is, and will hardly succeed. Alignments, error codes and the
 * corner cases are the real function's own.
 */
#include "track/wrap.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "book/report.h"

#define INLINE static inline __attribute__((always_inline))

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

/* Keep the trailer of a block, and count it. */
INLINE void enter(struct track_thread *t, const struct track_site *entry, void *block,
                  size_t usable, size_t bytes)
{
    uint64_t start = (uintptr_t)block, at = book_trailer_place(start, usable);
    uint64_t *words = (uint64_t *)at;
    uint64_t pad = book_trailer_pad(start, at, bytes), word0 = entry->word0 | bytes;
    if (unlikely(pad >= BOOK_TRAILER_PAD_FAR)) {
        words[-1] = pad;
        pad = BOOK_TRAILER_PAD_FAR;
    }
    words[0] = word0;
    words[1] = book_trailer_seal(t->key, at, word0, pad, load_relaxed(&t->tracker->time), false);
    count_alloc(t, entry->counters, bytes);
}

/* A block that the real allocator gave: count it, in any case. Gives the block. */
static __attribute__((noinline)) void *done(void *block, size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    struct track_site *entry = track_site_entry(t, caller);
    int64_t left = t->sample_left - (int64_t)bytes;
    if (t->ticks_left < 0 || bytes >= TRACK_TICK_BYTES)
        track_tick(t);
    if (entry->key != track_site_key(caller) || left < 0) {
        track_alloc(block, bytes, caller);
    } else {
        t->sample_left = left;
        enter(t, entry, block, real_usable(block), bytes);
    }
    return block;
}

/* The same, but for a call of done() where anything is unusual: so that the usual case saves no registers. */
INLINE void *done_quickly(void *block, size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    struct track_site *entry = track_site_entry(t, caller);
    size_t chunk;
    int64_t left = t->sample_left - (int64_t)bytes;
    if (unlikely(entry->key != track_site_key(caller) || left < 0 || --t->ticks_left < 0 ||
                 bytes >= TRACK_TICK_BYTES || !real.glibc ||
                 ((chunk = real_chunk(block)) & REAL_CHUNK_MAPPED)))
        return done(block, bytes, caller);
    t->sample_left = left;
    enter(t, entry, block, real_chunk_usable(chunk), bytes);
    return block;
}

/* The trailer of a block of this process that can be counted as freed at once: NULL if anything is
 * unusual. */
INLINE uint64_t *taken(struct track_thread *t, void *block, size_t usable,
                       struct book_site_counters **ret_site)
{
    uint64_t start = (uintptr_t)block, at = book_trailer_place(start, usable);
    uint64_t *words = (uint64_t *)at;
    if (unlikely(usable < BOOK_TRAILER_BYTES || book_trailer_sampled(words[1]) ||
                 !book_trailer_own(t->key, at, words[0], words[1])))
        return NULL;
    uint32_t site = book_trailer_site(words[0]);
    struct book_site_counters *page = t->book.site_pages[site / BOOK_SITES_PER_PAGE];
    *ret_site = &page[site % BOOK_SITES_PER_PAGE];
    return likely(page) ? words : NULL;
}

/* ---- malloc and free ---- */

static __attribute__((noinline)) void *malloc_slowly(size_t bytes, uintptr_t caller)
{
    if (!real_ready())
        return real_boot_alloc(bytes, 16);
    if (bytes > WRAP_SIZE_MAX || !track_wanted())
        return real.malloc(bytes);
    void *block = real.malloc(book_trailer_request(bytes));
    if (block)
        track_alloc(block, bytes, caller);
    return block;
}

INLINE void *malloc_for(size_t bytes, uintptr_t caller)
{
    if (unlikely(!track_may_alloc(track_self) || bytes > WRAP_SIZE_MAX))
        return malloc_slowly(bytes, caller);
    void *block = real.malloc(book_trailer_request(bytes));
    return likely(block) ? done_quickly(block, bytes, caller) : NULL;
}

static __attribute__((noinline)) void free_slowly(void *block)
{
    if (real_is_boot(block) || !real_ready())
        return;
    track_free(block);
    real.free(block);
}

/* A thread that may take the fast way, a block that has to be asked for its size, or a tick that is due. */
static __attribute__((noinline)) void free_asking(void *block)
{
    struct track_thread *t = track_self;
    size_t usable = real_usable(block);
    struct book_site_counters *site;
    uint64_t *words = taken(t, block, usable, &site);
    if (words) {
        size_t bytes = book_trailer_bytes(words[0]);
        words[0] = words[1] = 0;
        count_free(t, site, bytes);
    } else {
        track_free(block);
    }
    if (t->ticks_left < 0 || usable >= TRACK_TICK_BYTES)
        track_tick(t);
    real.free(block);
}

/* Ends in a jump to one of three functions, so that nothing has to be saved. */
INLINE void free_it(void *block)
{
    if (!block)
        return;
    struct track_thread *t = track_self;
    if (unlikely(!track_is_fast(t) || real_is_boot(block))) {
        free_slowly(block);
        return;
    }
    size_t chunk;
    struct book_site_counters *site;
    uint64_t *words;
    if (unlikely(!real.glibc || real_chunk_odd(block, chunk = real_chunk(block)) ||
                 chunk >= TRACK_TICK_BYTES || --t->ticks_left < 0 ||
                 !(words = taken(t, block, real_chunk_usable(chunk), &site)))) {
        free_asking(block);
        return;
    }
    size_t bytes = book_trailer_bytes(words[0]);
    words[0] = words[1] = 0;
    count_free(t, site, bytes);
    real.free(block);
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

static __attribute__((noinline)) void *calloc_slowly(size_t n, size_t bytes, uintptr_t caller)
{
    size_t total;
    bool fits = !__builtin_mul_overflow(n, bytes, &total) && total <= WRAP_SIZE_MAX;
    if (!real_ready())
        return fits ? real_boot_alloc(total, 16) : NULL; /* zeroed: it is never used again */
    if (!fits || !track_wanted())
        return real.calloc(n, bytes);
    void *block = real.calloc(1, book_trailer_request(total));
    if (block)
        track_alloc(block, total, caller);
    return block;
}

EXPORT void *calloc(size_t n, size_t bytes)
{
    size_t total;
    if (unlikely(!track_may_alloc(track_self) || __builtin_mul_overflow(n, bytes, &total) ||
                 total > WRAP_SIZE_MAX))
        return calloc_slowly(n, bytes, CALLER());
    void *block = real.calloc(1, book_trailer_request(total));
    return likely(block) ? done_quickly(block, total, CALLER()) : NULL;
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
    void *larger = rest && track_wanted() ? real.realloc(rest, book_trailer_request(0)) : NULL;
    if (!larger)
        return rest;
    track_alloc(larger, 0, caller);
    return larger;
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
    void *moved = real.realloc(block, counted ? book_trailer_request(bytes) : bytes);
    if (!moved) {
        track_put_back(&old);
        return NULL;
    }
    track_taken_free(&old, true);
    if (counted)
        track_alloc(moved, bytes, caller);
    return moved;
}

INLINE void *realloc_for(void *block, size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    struct book_site_counters *site;
    uint64_t *words;
    if (unlikely(!track_may_alloc(t) || !block || bytes == 0 || bytes > WRAP_SIZE_MAX ||
                 real_is_boot(block) || !(words = taken(t, block, real_usable(block), &site))))
        return realloc_slowly(block, bytes, caller);
    uint64_t old[2] = {words[0], words[1]};
    words[0] = words[1] = 0; /* the block may grow where it is, and must not hold two */
    void *moved = real.realloc(block, book_trailer_request(bytes));
    if (unlikely(!moved)) {
        words[0] = old[0];
        words[1] = old[1];
        return NULL;
    }
    count_free(t, site, book_trailer_bytes(old[0]));
    book_add(&t->account->reallocs, 1);
    t->ticks_left--;
    return done(moved, bytes, caller);
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
    void *block = (*function)(align, book_trailer_request(bytes));
    if (block)
        track_alloc(block, bytes, caller);
    return block;
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
    int r = real.posix_memalign(ret_block, align, book_trailer_request(bytes));
    if (r == 0)
        track_alloc(*ret_block, bytes, CALLER());
    return r;
}

/* ---- the rest ---- */

EXPORT size_t malloc_usable_size(void *block)
{
    if (!block)
        return 0;
    if (real_is_boot(block) || !real_ready())
        return real_boot_size(block);
    return track_usable(block);
}

/* Code that called us may be gone afterwards, and other code be in its place. */
EXPORT int dlclose(void *handle)
{
    real_ready();
    int r = real.dlclose(handle);
    fetch_add_relaxed(&track_closes, 1);
    return r;
}
