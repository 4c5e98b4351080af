/*
 * account.c: see account.h.
 *
 * The usual call is for a small block, in a thread that has a heap and has seen its caller before: eight bytes more are asked
 * for, the slab tells where the trailer goes, and four counters change. As in src/track/wrap.c all that is unusual is
 * left to a function that is called last, so that the usual way saves no registers.
 *
 * Blocks of a slab end where the next one begins. A large block has room to spare up to its last slice: there the trailer stands
 * right behind what was asked for, so that no page is touched for its sake.
 */
#include "malloc/account.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "malloc/core.h"
#include "malloc/settings.h"
#include "track/fast.h"

#define LATER __attribute__((noinline))

/* ---- what the tracker asks of the allocator below: track/real.h ---- */

void *real_realloc(void *block, size_t bytes)
{
    return core_realloc(block, bytes);
}

/* Up to here a block may hold a trailer. */
static size_t room_of(const struct slab *s)
{
    return likely(s->class != SLAB_LARGE) ? s->block_bytes : s->asked;
}

size_t real_usable(void *block)
{
    if (likely(map_kind(block) == MAP_MACRO)) {
        const struct slab *s = slab_of(block);
        return s->class == SLAB_UNUSED ? 0 : room_of(s);
    }
    return core_usable(block);
}

/* Found when it is first needed: most programs close no library. */
int real_dlclose(void *handle)
{
    static int (*next)(void *);
    if (!load_relaxed(&next)) {
        int (*found)(void *) = NULL;
        *(void **)&found = dlsym(RTLD_NEXT, "dlclose");
        store_relaxed(&next, found);
    }
    return load_relaxed(&next)(handle);
}

__attribute__((section(".text.startup"))) bool real_wanted(void)
{
    settings_read();
    return malloc_settings.account != 0;
}

/* ---- a block more ---- */

static LATER void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

static void *or_enomem(void *block)
{
    return likely(block) ? block : no_memory();
}

static LATER void *malloc_slowly(size_t bytes, uintptr_t caller)
{
    if (bytes > BOOK_TRAILER_SIZE_MAX || !track_wanted())
        return or_enomem(core_malloc_slowly(bytes));
    void *block = core_malloc_slowly(track_request(bytes));
    return likely(block) ? track_alloc(block, bytes, caller) : no_memory();
}

/* Where nothing is known of the block but that this thread may count it. */
static LATER void *malloc_any(size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    if (unlikely(!track_may_alloc(t, &track_page.root.pass) || bytes > BOOK_TRAILER_SIZE_MAX))
        return malloc_slowly(bytes, caller);
    void *block = core_malloc_slowly(track_request(bytes));
    if (unlikely(!block))
        return no_memory();
    t->budget -= (int64_t)bytes;
    return track_done(block, bytes, caller);
}

/* What to ask for, for a block that is not large. */
INLINE size_t request_of(size_t bytes)
{
    return bytes <= BOOK_TRAILER_SHORT_MAX ? bytes + BOOK_TRAILER_SHORT_BYTES
                                           : book_trailer_request_long(bytes);
}

/* Its trailer is short if it can be, else there is room for a long one. */
INLINE void *slab_done(struct track_thread *t, void *block, const struct slab *s, size_t bytes,
                       uintptr_t caller)
{
    uint64_t extent = s->block_bytes - sizeof(uint64_t);
    if (bytes <= BOOK_TRAILER_SHORT_MAX && extent - bytes <= BOOK_TRAILER_SLACK_MAX)
        return near_done_within(t, block, extent, bytes, caller, UINT64_MAX);
    return far_done_at(t, block, extent, bytes, caller);
}

/* Where the slab that comes first has no block, or anything else is unusual. */
static LATER void *malloc_refill(size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    struct heap *h = heap_own;
    if (unlikely(!track_may_alloc(t, &track_page.root.near_pass) || !h ||
                 bytes >= TRACK_LARGE_BYTES))
        return malloc_any(bytes, caller);
    void *block = heap_alloc(h, request_of(bytes));
    if (unlikely(!block))
        return no_memory();
    return slab_done(t, block, slab_of(block), bytes, caller);
}

/* For blocks that are neither small nor large, of a thread that may count them. */
static LATER void *malloc_middle(size_t bytes, uintptr_t caller)
{
    if (unlikely(bytes >= TRACK_LARGE_BYTES))
        return malloc_any(bytes, caller);
    void *block = heap_pop_further(heap_own, request_of(bytes));
    if (unlikely(!block))
        return malloc_refill(bytes, caller);
    return slab_done(track_self, block, slab_of(block), bytes, caller);
}

/* Up to here size classes are so close that a short trailer can tell what is left over. */
enum { CLOSE_MAX = 504 };
static_assert((int)BOOK_TRAILER_SHORT_MAX + (int)BOOK_TRAILER_SHORT_BYTES <= (int)SIZE_DIRECT_MAX &&
                  (512 - 256) / 8 - 1 <= (int)BOOK_TRAILER_SLACK_MAX &&
                  (int)CLOSE_MAX + (int)BOOK_TRAILER_SHORT_BYTES == 512,
              "eight classes for each doubling");

INLINE void *malloc_from(struct heap *h, size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    if (unlikely(!track_may_alloc(t, &track_page.root.near_pass)))
        return malloc_any(bytes, caller);
    if (unlikely(bytes > CLOSE_MAX))
        return malloc_middle(bytes, caller);
    void *block = heap_pop(h, bytes + BOOK_TRAILER_SHORT_BYTES);
    if (unlikely(!block))
        return malloc_refill(bytes, caller);
    uint64_t extent = slab_of(block)->block_bytes - sizeof(uint64_t);
    return near_done_within(t, block, extent, bytes, caller, UINT64_MAX);
}

void *account_malloc_own(size_t bytes, uintptr_t caller)
{
    return malloc_from(heap_own, bytes, caller);
}

void *account_malloc(size_t bytes, uintptr_t caller)
{
    struct heap *h = heap_own;
    return likely(h) ? malloc_from(h, bytes, caller) : malloc_any(bytes, caller);
}

/* A block of the core's with room for its trailer, or NULL: count it, by the fast way or by the slow one. */
static void *counted_now(void *block, size_t bytes, uintptr_t caller, bool fast)
{
    if (!block)
        return no_memory();
    if (!fast)
        return track_alloc(block, bytes, caller);
    track_self->budget -= (int64_t)bytes;
    return track_done(block, bytes, caller);
}

void *account_calloc(size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    if (likely(bytes <= BOOK_TRAILER_SHORT_MAX)) {
        void *block = account_malloc(bytes, caller);
        return likely(block) ? memset(block, 0, bytes) : NULL;
    }
    bool fast = track_may_alloc(t, &track_page.root.pass);
    if (bytes > BOOK_TRAILER_SIZE_MAX || (!fast && !track_wanted()))
        return or_enomem(core_calloc(bytes));
    void *block = core_calloc(track_request(bytes));
    return counted_now(block, bytes, caller, fast);
}

/* With room for any trailer: who made more would lose the alignment. */
void *account_memalign(size_t align, size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    bool fast = track_may_alloc(t, &track_page.root.pass);
    if (bytes > BOOK_TRAILER_SIZE_MAX || (!fast && !track_wanted()))
        return or_enomem(core_memalign(align, bytes));
    void *block = core_memalign(align, book_trailer_request_long(bytes));
    return counted_now(block, bytes, caller, fast);
}

/* ---- a block less ---- */

static LATER void free_slowly(void *block)
{
    if (map_kind(block) == MAP_MACRO || core_usable(block) != 0)
        track_free(block);
    core_free_slowly(block);
}

static LATER void free_any(void *block)
{
    struct track_thread *t = track_self;
    struct track_held old = {.bytes = 0};
    size_t usable = real_usable(block);
    if (unlikely(!track_is_fast(t, &track_page.root.pass) || usable < sizeof(uint64_t))) {
        free_slowly(block);
        return;
    }
    if (likely(held_take(t, block, (usable & ~(size_t)7) - sizeof(uint64_t), &old)))
        count_free(t, old.site, old.bytes);
    else
        track_free(block);
    if (unlikely(charge(&t->settle_left, old.bytes)))
        track_settle(t);
    core_free(block);
}

static LATER void free_settling(void *block)
{
    track_settle(track_self);
    core_free(block);
}

/* To the heap that has it, or as it may be. */
INLINE void give(struct heap *h, void *block, struct slab *s)
{
    if (likely(load_relaxed(&s->owner) == h))
        heap_push(h, s, block);
    else
        heap_free_slowly(heap_own, s, block);
}

/* Of blocks with a long trailer in a slab. `h` is never NULL. */
static LATER void free_far(void *block, struct slab *s, struct heap *h)
{
    struct track_thread *t = track_self;
    uint64_t at = (uintptr_t)block + s->block_bytes - 2 * sizeof(uint64_t);
    size_t bytes;
    if (unlikely(s->class >= SIZE_CLASSES || !count_free_long(t, at, &bytes)))
        free_any(block);
    else if (unlikely(charge(&t->settle_left, bytes)))
        free_settling(block);
    else
        give(h, block, s);
}

void account_free(void *block)
{
    if (likely(map_kind(block) == MAP_MACRO))
        account_free_slab(block, slab_of(block));
    else
        free_any(block);
}

INLINE void free_to(struct heap *h, void *block, struct slab *s)
{
    struct track_thread *t = track_self;
    struct book_site_counters *site;
    size_t bytes;
    uint64_t word, extent = s->block_bytes - sizeof(uint64_t);
    if (unlikely(!track_is_fast(t, &track_page.root.pass))) {
        free_any(block);
        return;
    }
    if (unlikely(!short_here(t, block, extent, &word) ||
                 !(site = counted(t, word, extent, &bytes)))) {
        free_far(block, s, h);
        return;
    }
    *(uint64_t *)((uintptr_t)block + extent) = 0;
    count_free(t, site, bytes);
    if (unlikely(charge(&t->settle_left, bytes)))
        free_settling(block);
    else
        give(h, block, s);
}

void account_free_own(void *block, struct slab *s)
{
    free_to(heap_own, block, s);
}

/* No slab is heap_none's. */
void account_free_slab(void *block, struct slab *s)
{
    struct heap *h = heap_own;
    free_to(h ? h : &heap_none, block, s);
}

/* ---- a block that changes ---- */

static LATER void *realloc_slowly(void *block, size_t bytes, uintptr_t caller)
{
    if (core_usable(block) == 0)
        return or_enomem(core_realloc(block, bytes)); /* says what is wrong with it */
    bool counted = bytes <= BOOK_TRAILER_SIZE_MAX && track_wanted();
    struct track_taken old = track_take(block);
    void *moved = core_realloc(block, counted ? track_request(bytes) : bytes);
    if (!moved) {
        track_put_back(&old);
        return no_memory();
    }
    track_taken_free(&old, true);
    return counted ? track_alloc(moved, bytes, caller) : moved;
}

void *account_realloc(void *block, size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    struct track_held old;
    size_t usable = real_usable(block);
    if (unlikely(!track_may_alloc(t, &track_page.root.pass) || usable < sizeof(uint64_t) ||
                 bytes > BOOK_TRAILER_SIZE_MAX ||
                 !held_take(t, block, (usable & ~(size_t)7) - sizeof(uint64_t), &old)))
        return realloc_slowly(block, bytes, caller);
    void *to = core_realloc(block, track_request(bytes));
    if (unlikely(!to)) {
        held_put_back(&old);
        return no_memory();
    }
    count_moved(t, old.site, old.bytes);
    if (likely(track_is_fast(t, &track_page.root.near_pass) && bytes <= BOOK_TRAILER_SHORT_MAX &&
               map_kind(to) == MAP_MACRO)) {
        uint64_t extent = real_usable(to) - sizeof(uint64_t);
        if (likely(extent - bytes <= BOOK_TRAILER_SLACK_MAX))
            return near_done(t, to, extent, bytes, caller);
    }
    t->budget -= (int64_t)bytes;
    return track_done(to, bytes, caller);
}

/* ---- the rest ---- */

size_t account_usable(void *block)
{
    struct track_thread *t = track_self;
    uint64_t word;
    if (likely(track_is_fast(t, &track_page.root.pass) && map_kind(block) == MAP_MACRO)) {
        uint64_t extent = slab_of(block)->block_bytes - sizeof(uint64_t);
        if (short_surely(t, block, extent, &word))
            return extent;
    }
    return core_usable(block) ? track_usable(block) : 0;
}
