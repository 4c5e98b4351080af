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

/* ---- counting, the fast way ---- */

/* One instruction, so that a signal handler cannot come in between. True when it is time to fold. */
static inline bool change(struct book_counters *account, int64_t delta)
{
    uint64_t most = BOOK_FOLD_BYTES + account->fold_more;
    book_add((uint64_t *)&account->fold_delta, (uint64_t)delta);
    return (uint64_t)account->fold_delta + most > 2 * most;
}

static __attribute__((noinline)) void fold(struct track_thread *t)
{
    int saved = errno;
    if (track_enter(t)) {
        book_fold(&t->tracker->writer, &t->book, t->tracker->account);
        track_leave(t);
    }
    errno = saved;
}

static inline void count_alloc(struct track_thread *t, struct book_site_counters *site,
                               size_t bytes)
{
    struct book_counters *account = t->account;
    book_add(&account->alloc_bytes, bytes);
    book_add(&account->alloc_blocks, 1);
    book_add(&site->alloc_bytes, bytes);
    book_add(&site->alloc_blocks, 1);
    if (unlikely(change(account, (int64_t)bytes)))
        fold(t);
}

static inline void count_free(struct track_thread *t, struct book_site_counters *site, size_t bytes)
{
    struct book_counters *account = t->account;
    book_add(&account->freed_bytes, bytes);
    book_add(&account->freed_blocks, 1);
    book_add(&site->freed_bytes, bytes);
    book_add(&site->freed_blocks, 1);
    if (unlikely(change(account, -(int64_t)bytes)))
        fold(t);
}

static inline uint32_t time_now(struct track_thread *t, size_t bytes)
{
    if (unlikely(--t->clock_left < 0 || bytes >= TRACK_CLOCK_BYTES)) {
        t->clock_left = TRACK_CLOCK_EVERY;
        return track_clock(t->tracker);
    }
    return load_relaxed(&t->tracker->time);
}

/* A block that the real allocator gave: count it. Ends in a call for all that is unusual. */
static inline void done(struct track_thread *t, void *block, size_t bytes, uintptr_t caller)
{
    struct track_site *entry = track_site_entry(t, caller);
    int64_t left = t->sample_left - (int64_t)bytes;
    if (unlikely(entry->key != track_site_key(caller) || !t->account || left < 0)) {
        track_alloc(block, bytes, caller);
        return;
    }
    t->sample_left = left;
    uint64_t start = (uintptr_t)block, at = book_trailer_place(start, real_usable(block));
    uint64_t *words = (uint64_t *)at;
    uint64_t pad = book_trailer_pad(start, at, bytes), word0 = entry->word0 | bytes;
    if (unlikely(pad >= BOOK_TRAILER_PAD_FAR)) {
        words[-1] = pad;
        pad = BOOK_TRAILER_PAD_FAR;
    }
    words[0] = word0;
    words[1] = book_trailer_seal(t->key, at, word0, pad, time_now(t, bytes), false);
    count_alloc(t, entry->counters, bytes);
}

/* The trailer of a block of this process that can be counted as freed at once: NULL if anything is
 * unusual. */
static inline uint64_t *taken(struct track_thread *t, void *block,
                              struct book_site_counters **ret_site)
{
    size_t usable = real_usable(block);
    uint64_t start = (uintptr_t)block, at = book_trailer_place(start, usable);
    uint64_t *words = (uint64_t *)at;
    if (unlikely(usable < BOOK_TRAILER_BYTES || !t->account || book_trailer_sampled(words[1]) ||
                 book_trailer_check(t->key, start, at, words) != 0))
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

static inline void *malloc_for(size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_fast();
    if (unlikely(!t || bytes > WRAP_SIZE_MAX))
        return malloc_slowly(bytes, caller);
    void *block = real.malloc(book_trailer_request(bytes));
    if (likely(block))
        done(t, block, bytes, caller);
    return block;
}

static __attribute__((noinline)) void free_slowly(void *block)
{
    if (real_is_boot(block) || !real_ready())
        return;
    track_free(block);
    real.free(block);
}

static inline void free_it(void *block)
{
    if (!block)
        return;
    struct track_thread *t = track_fast();
    if (unlikely(!t || real_is_boot(block))) {
        free_slowly(block);
        return;
    }
    struct book_site_counters *site;
    uint64_t *words = taken(t, block, &site);
    if (unlikely(!words)) {
        free_slowly(block);
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
    struct track_thread *t = track_fast();
    size_t total;
    if (unlikely(!t || __builtin_mul_overflow(n, bytes, &total) || total > WRAP_SIZE_MAX))
        return calloc_slowly(n, bytes, CALLER());
    void *block = real.calloc(1, book_trailer_request(total));
    if (likely(block))
        done(t, block, total, CALLER());
    return block;
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

static inline void *realloc_for(void *block, size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_fast();
    struct book_site_counters *site;
    uint64_t *words;
    if (unlikely(!t || !block || bytes == 0 || bytes > WRAP_SIZE_MAX || real_is_boot(block) ||
                 !(words = taken(t, block, &site))))
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
    done(t, moved, bytes, caller);
    return moved;
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
