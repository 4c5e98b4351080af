/* What programs do with the blocks of a chain, and how they look at it. */
#include <string.h>

#include "malloc/chain_bin.h"
#include "malloc/chain_block.h"
#include "malloc/chain_enter.h"
#include "malloc/chain_fit.h"
#include "malloc/chain_region.h"
#include "malloc/chain_walk.h"
#include "malloc/chain_watch.h"

#define CALLER() ((uintptr_t)__builtin_return_address(0))

/* ---- allocating ---- */

/* A source that gives buffers which others empty at once must not keep us here for ever. */
enum { GROW_TRIES = 8 };

static int take_free(struct memoir_chain *c, uint64_t need, size_t alignment, uint64_t **ret)
{
    int r = fit_take(c, need, alignment, ret);
    if (r == -ENOMEM && c->carved_bytes != c->used_bytes) {
        /* What lies in bins may fit when it is merged. */
        r = bin_drain(c);
        if (r == 0)
            r = fit_take(c, need, alignment, ret);
    }
    if (r == -ENOMEM && !chain_source(c))
        c->failures++;
    return r;
}

static int grow(struct memoir_chain *c, uint64_t need, size_t alignment, uint64_t **ret)
{
    uint64_t room = need + (alignment > CHAIN_GRAIN ? alignment + CHAIN_GRAIN : 0);
    int r = -ENOMEM;
    for (int i = 0; r == -ENOMEM && i < GROW_TRIES; i++) {
        r = region_request(c, room);
        if (r < 0)
            break;
        r = chain_enter(c);
        if (r < 0)
            return r;
        r = chain_judge(c, take_free(c, need, alignment, ret), NULL);
        chain_leave(c);
    }
    if (r == -ENOMEM || r == -EINVAL) {
        r = -ENOMEM;
        if (chain_enter(c) == 0) {
            c->failures++;
            chain_leave(c);
        }
    }
    return r;
}

/* In a chain that was entered, whose bins have nothing for it; leaves it. */
static __attribute__((noinline)) void *allocate_inside(struct memoir_chain *c, size_t bytes,
                                                       size_t alignment)
{
    uint64_t *b, need = 0;
    bool sourced = chain_source(c);
    int r = -ENOMEM;
    if (bytes <= CHAIN_BYTES_MAX && alignment <= CHAIN_BYTES_MAX) {
        need = fit_bytes(bytes);
        r = alignment <= CHAIN_GRAIN && bin_is_damaged(c, bytes)
                ? -EUCLEAN
                : take_free(c, need, alignment, &b);
    }
    r = chain_judge(c, r, NULL);
    chain_leave(c);
    if (r == -ENOMEM && need && sourced)
        r = grow(c, need, alignment, &b);
    if (r == 0)
        return block_payload(b);
    errno = -r;
    return NULL;
}

static inline void *allocate_unwatched(struct memoir_chain *c, size_t bytes)
{
    int r = chain_enter_slowly(c);
    if (r < 0) {
        errno = -r;
        return NULL;
    }
    uint64_t *b = bin_take(c, bytes);
    if (!b)
        return allocate_inside(c, bytes, CHAIN_GRAIN);
    chain_leave(c);
    return block_payload(b);
}

static __attribute__((noinline)) void *allocate_watched(struct memoir_chain *c, size_t bytes,
                                                        uintptr_t caller)
{
    return chain_watch_add(c, allocate_unwatched(c, bytes), bytes, caller);
}

static __attribute__((noinline)) void *allocate_slowly(struct memoir_chain *c, size_t bytes,
                                                       uintptr_t caller)
{
    if (__builtin_expect(load_relaxed(&chain_watcher) != NULL, 0))
        return allocate_watched(c, bytes, caller);
    return allocate_unwatched(c, bytes);
}

static __attribute__((noinline)) void *allocate_locked(struct memoir_chain *c, size_t bytes,
                                                       uintptr_t caller)
{
    if (!chain_enter_locked(c))
        return allocate_slowly(c, bytes, caller);
    uint64_t *b = bin_take(c, bytes);
    if (!b)
        return allocate_inside(c, bytes, CHAIN_GRAIN);
    chain_word_drop(&c->lock, &c->sleepers);
    return block_payload(b);
}

/* The way of most calls first; functions of their own for the others, so that no register is saved on it. */
static inline void *allocate(struct memoir_chain *c, size_t bytes, uintptr_t caller)
{
    if (__builtin_expect(!chain_is_open(c), 0))
        return allocate_locked(c, bytes, caller);
    uint64_t *b = bin_take(c, bytes);
    return __builtin_expect(b != NULL, 1) ? block_payload(b)
                                          : allocate_inside(c, bytes, CHAIN_GRAIN);
}

void *memoir_chain_alloc(struct memoir_chain *c, size_t bytes)
{
    return allocate(c, bytes, CALLER());
}

void *chain_alloc_by(struct memoir_chain *c, size_t bytes, uintptr_t caller)
{
    return allocate(c, bytes, caller);
}

void *chain_calloc_by(struct memoir_chain *c, size_t bytes, uintptr_t caller)
{
    void *p = allocate(c, bytes, caller);
    return p ? memset(p, 0, bytes) : NULL;
}

void *memoir_chain_calloc(struct memoir_chain *c, size_t count, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    return chain_calloc_by(c, total, CALLER());
}

void *chain_aligned_by(struct memoir_chain *c, size_t alignment, size_t bytes, uintptr_t caller)
{
    if (alignment == 0 || (alignment & (alignment - 1))) {
        errno = EINVAL;
        return NULL;
    }
    if (alignment <= CHAIN_GRAIN)
        return allocate(c, bytes, caller);
    int r = chain_enter(c);
    if (r == 0)
        return chain_watch_add(c, allocate_inside(c, bytes, alignment), bytes, caller);
    errno = -r;
    return NULL;
}

void *memoir_chain_aligned(struct memoir_chain *c, size_t alignment, size_t bytes)
{
    return chain_aligned_by(c, alignment, bytes, CALLER());
}

/* ---- freeing ---- */

static bool is_inside(const struct memoir_chain *c, const void *payload)
{
    return (uintptr_t)payload % CHAIN_GRAIN == 0 && chain_spans(c, payload) &&
           chain_spans(c, block_of(payload));
}

/* A live block of this chain that nobody has queued. */
static int live(struct memoir_chain *c, const void *payload, uint64_t *ret_header)
{
    if (!is_inside(c, payload))
        return -EFAULT;
    uint64_t *b = block_of(payload);
    int r = fit_live(c, b, ret_header);
    return r == 0 && !chain_is_locked(c) && chain_is_queued(c, b) ? -EALREADY : r;
}

/* In a chain that was entered; leaves it. */
static __attribute__((noinline)) int free_inside(struct memoir_chain *c, void *block)
{
    uint64_t header;
    int r = live(c, block, &header);
    if (r == 0)
        r = chain_give(c, block_of(block), header);
    r = chain_judge(c, r, block);
    chain_leave(c);
    return r;
}

/* A small block of a chain that has others. Nobody has queued it: the queue was empty a moment ago. */
static inline bool free_small(struct memoir_chain *c, void *block)
{
    uint64_t *b = block_of(block), header;
    return (uintptr_t)block % CHAIN_GRAIN == 0 && chain_spans(c, b) && word_get(c, b, &header) &&
           header_is_live(header) && block_fits(c, b, header_bytes(header)) &&
           c->used_bytes > header_bytes(header) && bin_put(c, b, header);
}

static inline int free_unwatched(struct memoir_chain *c, void *block)
{
    int r = chain_enter_slowly(c);
    if (r < 0)
        return r;
    if (!free_small(c, block))
        return free_inside(c, block);
    chain_leave(c);
    return 0;
}

static int free_remotely(struct memoir_chain *c, void *block)
{
    int r = is_inside(c, block) ? chain_push(c, block_of(block)) : -EFAULT;
    return chain_judge(c, r, block);
}

/* Once it is free, another thread may have it. */
static __attribute__((noinline)) int free_watched(const struct chain_watch *watch,
                                                  struct memoir_chain *c, void *block,
                                                  int (*free_it)(struct memoir_chain *c,
                                                                 void *block))
{
    struct chain_note note;
    bool noted = watch->drop(block, &note);
    int r = free_it(c, block);
    if (r < 0 && noted)
        watch->put_back(block, &note);
    return r;
}

static __attribute__((noinline)) int free_slowly(struct memoir_chain *c, void *block)
{
    const struct chain_watch *watch = chain_watch_of(c);
    return watch ? free_watched(watch, c, block, free_unwatched) : free_unwatched(c, block);
}

static __attribute__((noinline)) int free_locked(struct memoir_chain *c, void *block)
{
    if (!chain_enter_locked(c))
        return free_slowly(c, block);
    if (!free_small(c, block))
        return free_inside(c, block);
    chain_word_drop(&c->lock, &c->sleepers);
    return 0;
}

int memoir_chain_free(struct memoir_chain *c, void *block)
{
    if (!block)
        return 0;
    if (__builtin_expect(!chain_is_open(c), 0))
        return free_locked(c, block);
    return __builtin_expect(free_small(c, block), 1) ? 0 : free_inside(c, block);
}

int memoir_chain_remote_free(struct memoir_chain *c, void *block)
{
    if (!block)
        return 0;
    if (!c || (uintptr_t)c % CHAIN_GRAIN || load_relaxed(&c->magic) != CHAIN_MAGIC ||
        chain_is_locked(c) || mapped_find(c))
        return memoir_chain_free(c, block);
    const struct chain_watch *watch = chain_watch_of(c);
    return watch ? free_watched(watch, c, block, free_remotely) : free_remotely(c, block);
}

int memoir_chain_drain(struct memoir_chain *c)
{
    int r = chain_enter_any(c);
    if (r < 0)
        return r;
    if (c->state == CHAIN_WHOLE) {
        int queued = chain_is_locked(c) ? 0 : chain_drain_locked(c),
            binned = queued < 0 ? queued : bin_drain(c);
        r = chain_judge(c, binned < 0 ? binned : queued, NULL);
    } else {
        r = -ENOTRECOVERABLE;
    }
    chain_leave(c);
    return r;
}

/* ---- resizing ---- */

/* Where it is, or -ENOMEM. *ret_bytes: how much of it there was before. */
static int resize(struct memoir_chain *c, void *block, size_t bytes, uintptr_t caller,
                  size_t *ret_bytes)
{
    uint64_t header;
    int r = chain_enter(c);
    if (r < 0)
        return r;
    r = live(c, block, &header);
    if (r == 0) {
        *ret_bytes = header_bytes(header) - CHAIN_HEADER;
        r = fit_resize(c, block_of(block), header, fit_bytes(bytes));
    }
    r = chain_judge(c, r, block);
    chain_leave(c);
    if (r == 0)
        chain_watch_resized(c, block, bytes, caller);
    return r;
}

void *chain_realloc_by(struct memoir_chain *c, void *block, size_t bytes, uintptr_t caller)
{
    size_t old_bytes = 0;
    if (!block)
        return allocate(c, bytes, caller);
    if (bytes == 0) {
        int r = memoir_chain_free(c, block);
        if (r < 0)
            errno = -r;
        return NULL;
    }
    int r = bytes <= CHAIN_BYTES_MAX ? resize(c, block, bytes, caller, &old_bytes) : -ENOMEM;
    if (r == 0)
        return block;
    if (r != -ENOMEM || bytes > CHAIN_BYTES_MAX) {
        errno = -r;
        return NULL;
    }
    void *moved = allocate(c, bytes, caller);
    if (!moved) {
        /* That emptied the bins: a neighbour may be free now. */
        int error = errno;
        r = error == ENOMEM ? resize(c, block, bytes, caller, &old_bytes) : -error;
        if (r == 0)
            return block;
        errno = error;
        return NULL;
    }
    memcpy(moved, block, old_bytes < bytes ? old_bytes : bytes);
    memoir_chain_free(c, block);
    return moved;
}

void *memoir_chain_realloc(struct memoir_chain *c, void *block, size_t bytes)
{
    return chain_realloc_by(c, block, bytes, CALLER());
}

/* ---- looking ---- */

size_t memoir_chain_usable_size(struct memoir_chain *c, const void *block)
{
    uint64_t header;
    if (!c || !block || (uintptr_t)c % CHAIN_GRAIN || load_relaxed(&c->magic) != CHAIN_MAGIC ||
        mapped_check(c) < 0 || !is_inside(c, block) || fit_live(c, block_of(block), &header) < 0)
        return 0;
    return header_bytes(header) - CHAIN_HEADER;
}

struct free_figures {
    uint64_t blocks, largest;
    const uint64_t *end; /* of the run of free blocks that is being looked at */
    uint64_t run;
};

/* Neighbours of which some are in bins count as one: they are merged as soon as somebody needs that. */
static int count_free(void *user, struct memoir_chain *c, uint64_t *b, uint64_t header)
{
    struct free_figures *f = user;
    if (header_is_live(header))
        return 0;
    bool joined = b == f->end;
    f->blocks += !joined;
    f->run = header_bytes(header) + (joined ? f->run : 0);
    f->end = block_at(b, header_bytes(header));
    if (f->run > f->largest)
        f->largest = f->run;
    return 0;
}

int memoir_chain_stats(struct memoir_chain *c, struct memoir_chain_stats *stats)
{
    struct free_figures figures = {0};
    const char *what;
    if (!stats || stats->struct_size < sizeof(size_t))
        return -EINVAL;
    int r = chain_enter_any(c);
    if (r < 0)
        return r;
    if (c->state != CHAIN_WHOLE || chain_walk(c, count_free, &figures, &what) < 0)
        figures = (struct free_figures){0};
    struct memoir_chain_stats all = {
        .struct_size = stats->struct_size,
        .total_bytes = c->total_bytes,
        .used_bytes = c->used_bytes,
        .used_bytes_peak = c->used_bytes_peak,
        .used_blocks = c->allocations - c->frees,
        .free_blocks = figures.blocks,
        .free_bytes_largest = figures.largest ? figures.largest - CHAIN_HEADER : 0,
        .allocations = c->allocations,
        .failures = c->failures,
        .bad_frees = load_relaxed(&c->bad_frees),
        .recoveries = c->recoveries,
        .buffers = c->regions,
        .binned_bytes = c->carved_bytes - c->used_bytes,
    };
    chain_leave(c);
    memcpy(stats, &all, stats->struct_size < sizeof(all) ? stats->struct_size : sizeof(all));
    return 0;
}

int memoir_chain_check(struct memoir_chain *c, const char **ret_what)
{
    const char *what = NULL;
    int r = chain_enter_any(c);
    if (r < 0)
        return r;
    r = chain_verify(c, &what);
    chain_leave(c);
    if (r < 0 && ret_what)
        *ret_what = what;
    return r;
}

int memoir_chain_repair(struct memoir_chain *c)
{
    int r = chain_enter_any(c);
    if (r < 0)
        return r;
    r = chain_rebuild(c);
    c->state = r < 0 ? CHAIN_BROKEN : CHAIN_WHOLE;
    chain_leave(c);
    return r;
}

struct visitor {
    int (*visit)(void *user, void *block, size_t bytes, int used);
    void *user;
    int result;
};

static int visit_block(void *user, struct memoir_chain *c, uint64_t *b, uint64_t header)
{
    struct visitor *v = user;
    v->result = v->visit(v->user, block_payload(b), header_bytes(header) - CHAIN_HEADER,
                         header_is_live(header));
    return v->result;
}

int memoir_chain_walk(struct memoir_chain *c,
                      int (*visit)(void *user, void *block, size_t bytes, int used), void *user)
{
    struct visitor v = {.visit = visit, .user = user};
    const char *what;
    if (!visit)
        return -EINVAL;
    int r = chain_enter_any(c);
    if (r < 0)
        return r;
    r = chain_walk(c, visit_block, &v, &what);
    chain_leave(c);
    return v.result ? v.result : r;
}
