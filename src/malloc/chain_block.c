/* What programs do with the blocks of a chain, and how they look at it. */
#include <string.h>

#include "malloc/chain_fit.h"
#include "malloc/chain_region.h"
#include "malloc/chain_walk.h"

/* ---- allocating ---- */

/* A source that gives buffers which others empty at once must not keep us here for ever. */
enum { GROW_TRIES = 8 };

static int take(struct memoir_chain *c, uint64_t need, size_t alignment, uint64_t **ret)
{
    int r = chain_enter(c);
    if (r < 0)
        return r;
    r = chain_judge(c, fit_take(c, need, alignment, ret), NULL);
    if (r == -ENOMEM && !chain_source(c))
        c->failures++;
    chain_leave(c);
    return r;
}

static int take_or_grow(struct memoir_chain *c, uint64_t need, size_t alignment, uint64_t **ret)
{
    int r = take(c, need, alignment, ret);
    if (r != -ENOMEM || !chain_source(c))
        return r;
    uint64_t room = need + (alignment > CHAIN_GRAIN ? alignment + CHAIN_GRAIN : 0);
    for (int i = 0; r == -ENOMEM && i < GROW_TRIES; i++) {
        r = region_request(c, room);
        if (r < 0)
            break;
        r = take(c, need, alignment, ret);
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

static void *allocate(struct memoir_chain *c, size_t bytes, size_t alignment)
{
    uint64_t *b;
    int r = -ENOMEM;
    if (bytes <= CHAIN_BYTES_MAX && alignment <= CHAIN_BYTES_MAX)
        r = take_or_grow(c, fit_bytes(bytes), alignment, &b);
    if (r == 0)
        return block_payload(b);
    errno = -r;
    return NULL;
}

void *memoir_chain_alloc(struct memoir_chain *c, size_t bytes)
{
    return allocate(c, bytes, CHAIN_GRAIN);
}

void *memoir_chain_calloc(struct memoir_chain *c, size_t count, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    void *p = allocate(c, total, CHAIN_GRAIN);
    return p ? memset(p, 0, total) : NULL;
}

void *memoir_chain_aligned(struct memoir_chain *c, size_t alignment, size_t bytes)
{
    if (alignment == 0 || (alignment & (alignment - 1))) {
        errno = EINVAL;
        return NULL;
    }
    return allocate(c, bytes, alignment);
}

/* ---- freeing ---- */

static bool is_locked(const struct memoir_chain *c)
{
    return c->flags & (MEMOIR_CHAIN_THREAD_SAFE | MEMOIR_CHAIN_SHARED);
}

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
    return r == 0 && !is_locked(c) && chain_is_queued(c, b) ? -EALREADY : r;
}

int memoir_chain_free(struct memoir_chain *c, void *block)
{
    uint64_t header;
    if (!block)
        return 0;
    int r = chain_enter(c);
    if (r < 0)
        return r;
    r = live(c, block, &header);
    if (r == 0)
        r = chain_give(c, block_of(block), header);
    r = chain_judge(c, r, block);
    chain_leave(c);
    return r;
}

int memoir_chain_remote_free(struct memoir_chain *c, void *block)
{
    if (!block)
        return 0;
    if (!c || (uintptr_t)c % CHAIN_GRAIN || load_relaxed(&c->magic) != CHAIN_MAGIC || is_locked(c))
        return memoir_chain_free(c, block);
    int r = is_inside(c, block) ? chain_push(c, block_of(block)) : -EFAULT;
    return chain_judge(c, r, block);
}

int memoir_chain_drain(struct memoir_chain *c)
{
    int r = chain_enter_any(c);
    if (r < 0)
        return r;
    r = c->state == CHAIN_WHOLE ? chain_judge(c, chain_drain_locked(c), NULL) : -ENOTRECOVERABLE;
    chain_leave(c);
    return r;
}

/* ---- resizing ---- */

/* Where it is, or -ENOMEM. *ret_bytes: how much of it there was before. */
static int resize(struct memoir_chain *c, void *block, size_t bytes, size_t *ret_bytes)
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
    return r;
}

void *memoir_chain_realloc(struct memoir_chain *c, void *block, size_t bytes)
{
    size_t old_bytes = 0;
    if (!block)
        return memoir_chain_alloc(c, bytes);
    if (bytes == 0) {
        int r = memoir_chain_free(c, block);
        if (r < 0)
            errno = -r;
        return NULL;
    }
    int r = bytes <= CHAIN_BYTES_MAX ? resize(c, block, bytes, &old_bytes) : -ENOMEM;
    if (r == 0)
        return block;
    if (r != -ENOMEM || bytes > CHAIN_BYTES_MAX) {
        errno = -r;
        return NULL;
    }
    void *moved = memoir_chain_alloc(c, bytes);
    if (!moved)
        return NULL;
    memcpy(moved, block, old_bytes < bytes ? old_bytes : bytes);
    memoir_chain_free(c, block);
    return moved;
}

/* ---- looking ---- */

size_t memoir_chain_usable_size(struct memoir_chain *c, const void *block)
{
    uint64_t header;
    if (!c || !block || (uintptr_t)c % CHAIN_GRAIN || load_relaxed(&c->magic) != CHAIN_MAGIC ||
        !is_inside(c, block) || fit_live(c, block_of(block), &header) < 0)
        return 0;
    return header_bytes(header) - CHAIN_HEADER;
}

struct free_figures {
    uint64_t blocks, largest;
};

static int count_free(void *user, struct memoir_chain *c, uint64_t *b, uint64_t header)
{
    struct free_figures *f = user;
    if (!(header & CHAIN_USED)) {
        f->blocks++;
        if (header_bytes(header) > f->largest)
            f->largest = header_bytes(header);
    }
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
        .used_blocks = c->used_blocks,
        .free_blocks = figures.blocks,
        .free_bytes_largest = figures.largest ? figures.largest - CHAIN_HEADER : 0,
        .allocations = c->allocations,
        .failures = c->failures,
        .bad_frees = load_relaxed(&c->bad_frees),
        .recoveries = c->recoveries,
        .buffers = c->regions,
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
                         header & CHAIN_USED);
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
