/* Two-level segregated fit over sealed words. The order of stores matters: chain.h says why. */
#include "malloc/chain_fit.h"

/* ---- classes ---- */

/* The class whose smallest size is the largest that is not above `bytes`, and whether that is `bytes`. Sizes in
 * grains: 2..31 have one each; above, the four bits after the leading one choose among 16. */
static inline unsigned class_floor(uint64_t bytes, bool *ret_exact)
{
    uint64_t grains = bytes / CHAIN_GRAIN;
    if (grains < 32) {
        *ret_exact = true;
        return (unsigned)grains - 2;
    }
    unsigned top = 63 - (unsigned)__builtin_clzll(grains);
    *ret_exact = (grains & ((UINT64_C(1) << (top - 4)) - 1)) == 0;
    return CHAIN_LISTS_EXACT + (top - 5) * 16 + (unsigned)(grains >> (top - 4) & 15);
}

unsigned fit_lists(uint64_t bytes)
{
    bool exact;
    unsigned lists = class_floor(bytes < CHAIN_BLOCK_MIN ? CHAIN_BLOCK_MIN : bytes, &exact) + 2;
    return lists < CHAIN_LISTS_MAX ? lists : CHAIN_LISTS_MAX;
}

unsigned fit_list_of(const struct memoir_chain *c, uint64_t bytes)
{
    bool exact;
    unsigned list = class_floor(bytes, &exact), last = chain_lists(c) - 1;
    return list < last ? list : last;
}

/* ---- lists ---- */

static void lists_mark(struct memoir_chain *c, unsigned list)
{
    chain_map(c)[list / 64] |= UINT64_C(1) << list % 64;
    c->map_top |= UINT64_C(1) << list / 64;
}

static void lists_unmark(struct memoir_chain *c, unsigned list)
{
    chain_map(c)[list / 64] &= ~(UINT64_C(1) << list % 64);
    if (chain_map(c)[list / 64] == 0)
        c->map_top &= ~(UINT64_C(1) << list / 64);
}

/* The first list from `list` on that has blocks, or -1. */
static int lists_next(const struct memoir_chain *c, unsigned list)
{
    unsigned word = list / 64;
    uint64_t bits = chain_map(c)[word] & ~UINT64_C(0) << list % 64;
    if (bits == 0) {
        uint64_t words = word == 63 ? 0 : c->map_top & ~UINT64_C(0) << (word + 1);
        if (words == 0)
            return -1;
        word = (unsigned)__builtin_ctzll(words);
        if (word >= chain_map_words(chain_lists(c)))
            return -1;
        bits = chain_map(c)[word];
        if (bits == 0)
            return -1;
    }
    unsigned found = word * 64 + (unsigned)__builtin_ctzll(bits);
    return found < chain_lists(c) ? (int)found : -1;
}

void fit_clear(struct memoir_chain *c)
{
    uint64_t *heads = chain_heads(c);
    for (unsigned i = 0; i < chain_lists(c); i++)
        link_put(c, &heads[i], NULL);
    for (unsigned i = 0; i < chain_map_words(chain_lists(c)); i++)
        chain_map(c)[i] = 0;
    c->map_top = 0;
}

int fit_insert(struct memoir_chain *c, uint64_t *b, uint64_t bytes)
{
    unsigned list = fit_list_of(c, bytes);
    uint64_t *head = &chain_heads(c)[list], *first;
    if (!link_get(c, head, &first))
        return -EUCLEAN;
    link_put(c, &b[1], first);
    link_put(c, &b[2], NULL);
    word_put(c, block_at(b, bytes) - 1, bytes);
    if (first)
        link_put(c, &first[2], b);
    else
        lists_mark(c, list);
    link_put(c, head, b);
    return 0;
}

int fit_remove(struct memoir_chain *c, uint64_t *b, uint64_t bytes)
{
    uint64_t *next, *before, *back;
    if (!link_get(c, &b[1], &next) || !link_get(c, &b[2], &before))
        return -EUCLEAN;
    if (next && (!link_get(c, &next[2], &back) || back != b))
        return -EUCLEAN;
    unsigned list = fit_list_of(c, bytes);
    uint64_t *from = before ? &before[1] : &chain_heads(c)[list];
    if (!link_get(c, from, &back) || back != b)
        return -EUCLEAN;
    link_put(c, from, next);
    if (next)
        link_put(c, &next[2], before);
    else if (!before)
        lists_unmark(c, list);
    return 0;
}

/* ---- searching ---- */

/* A free block's size, or 0: it is none. */
static uint64_t free_bytes(const struct memoir_chain *c, const uint64_t *b)
{
    uint64_t header;
    if (!word_get(c, b, &header) || (header & (CHAIN_USED | CHAIN_END)) ||
        !block_fits(c, b, header_bytes(header)))
        return 0;
    return header_bytes(header);
}

/* Take the first block of a list whose blocks all have at least `need` bytes. */
static inline int take_first(struct memoir_chain *c, unsigned list, uint64_t need, uint64_t **ret,
                             uint64_t *ret_bytes)
{
    uint64_t *head = &chain_heads(c)[list], *b, *next, *back;
    if (!link_get(c, head, &b) || !b)
        return -EUCLEAN;
    uint64_t bytes = free_bytes(c, b);
    if (bytes < need || !link_get(c, &b[1], &next) || !link_get(c, &b[2], &back) || back)
        return -EUCLEAN;
    if (next) {
        if (!link_get(c, &next[2], &back) || back != b)
            return -EUCLEAN;
        link_put(c, &next[2], NULL);
    } else {
        lists_unmark(c, list);
    }
    link_put(c, head, next);
    *ret = b;
    *ret_bytes = bytes;
    return 0;
}

/* Look through a list for a block of `need` bytes. *ret is NULL when there is none. */
static int search(const struct memoir_chain *c, const uint64_t *head, uint64_t need, uint64_t **ret)
{
    uint64_t *b;
    /* A ring would be a chain of sealed words that the allocator itself never makes, yet an endless
     * loop is not a way to fail: there cannot be more steps than blocks of the smallest size. */
    uint64_t steps = c->span / CHAIN_BLOCK_MIN + 1;
    if (!link_get(c, head, &b))
        return -EUCLEAN;
    for (; b; steps--) {
        uint64_t bytes = free_bytes(c, b);
        if (bytes == 0 || steps == 0)
            return -EUCLEAN;
        if (bytes >= need)
            break;
        if (!link_get(c, &b[1], &b))
            return -EUCLEAN;
    }
    *ret = b;
    return 0;
}

/* Take a free block of at least `need` bytes out of its list. */
static int find(struct memoir_chain *c, uint64_t need, uint64_t **ret, uint64_t *ret_bytes)
{
    bool exact;
    unsigned floor = class_floor(need, &exact), last = chain_lists(c) - 1;
    unsigned above = floor + !exact;
    if (above <= last) {
        int list = lists_next(c, above);
        if (list >= 0)
            return take_first(c, (unsigned)list, need, ret, ret_bytes);
        if (exact)
            return -ENOMEM;
    }
    int r = search(c, &chain_heads(c)[floor < last ? floor : last], need, ret);
    if (r < 0)
        return r;
    if (!*ret)
        return -ENOMEM;
    *ret_bytes = free_bytes(c, *ret);
    return fit_remove(c, *ret, *ret_bytes);
}

/* ---- taking ---- */

/* Bytes to skip in a free block so that a payload is aligned; what is skipped must be able to be a block. */
static uint64_t gap_before(const uint64_t *b, size_t alignment)
{
    uintptr_t payload = (uintptr_t)(b + 1);
    uint64_t gap = -payload & (alignment - 1);
    return gap == CHAIN_GRAIN ? gap + alignment : gap;
}

int fit_take(struct memoir_chain *c, uint64_t need, size_t alignment, uint64_t **ret_block)
{
    bool aligned = alignment > CHAIN_GRAIN;
    uint64_t *b, bytes, after_header;
    int r = find(c, aligned ? need + alignment + CHAIN_GRAIN : need, &b, &bytes);
    if (r < 0)
        return r;
    uint64_t *after = block_at(b, bytes);
    if (!word_get(c, after, &after_header) || (after_header & CHAIN_BEFORE_USED))
        return -EUCLEAN;

    uint64_t gap = aligned ? gap_before(b, alignment) : 0;
    uint64_t rest = bytes - gap - need;
    if (rest < CHAIN_BLOCK_MIN) {
        need += rest;
        rest = 0;
    }
    uint64_t *taken = block_at(b, gap);
    if (rest) {
        word_put(c, block_at(taken, need), rest | CHAIN_BEFORE_USED);
        r = fit_insert(c, block_at(taken, need), rest);
    } else {
        word_put(c, after, after_header | CHAIN_BEFORE_USED);
    }
    if (gap) {
        word_put(c, taken, need | CHAIN_USED);
        word_put(c, b, gap | CHAIN_BEFORE_USED); /* the store that counts */
        if (r == 0)
            r = fit_insert(c, b, gap);
    } else {
        word_put(c, taken, need | CHAIN_USED | CHAIN_BEFORE_USED); /* or this one */
    }
    c->carved_bytes += need;
    chain_count_used(c, need);
    c->allocations++;
    *ret_block = taken;
    return r;
}

/* ---- giving ---- */

int fit_live(const struct memoir_chain *c, const uint64_t *b, uint64_t *ret_header)
{
    uint64_t header;
    if (!word_get(c, b, &header) || (header & CHAIN_END) || !block_fits(c, b, header_bytes(header)))
        return -EFAULT;
    if (!header_is_live(header))
        return -EALREADY;
    *ret_header = header;
    return 0;
}

int fit_give(struct memoir_chain *c, uint64_t *b, uint64_t header, struct region **ret_empty)
{
    uint64_t after_header, before_bytes;
    int r;
    uint64_t own = header_bytes(header), bytes = own;
    uint64_t *start = b, *after = block_at(b, own);
    if (!word_get(c, after, &after_header) || !(after_header & CHAIN_BEFORE_USED))
        return -EUCLEAN;
    if (!(header & CHAIN_BEFORE_USED)) {
        if (!word_get(c, b - 1, &before_bytes))
            return -EUCLEAN;
        start = (uint64_t *)((char *)b - header_bytes(before_bytes));
        if (!chain_spans(c, start) || free_bytes(c, start) != before_bytes)
            return -EUCLEAN;
        r = fit_remove(c, start, before_bytes);
        if (r < 0)
            return r;
        bytes += before_bytes;
    }
    uint64_t *absorbed = NULL;
    if (!(after_header & CHAIN_USED)) {
        if (free_bytes(c, after) == 0)
            return -EUCLEAN;
        r = fit_remove(c, after, header_bytes(after_header));
        if (r < 0)
            return r;
        absorbed = after;
        bytes += header_bytes(after_header);
        after = block_at(start, bytes);
        if (!word_get(c, after, &after_header))
            return -EUCLEAN;
    }
    word_put(c, start, bytes | CHAIN_BEFORE_USED); /* the store that counts */
    /* A second free of the same pointer must not find a header here. */
    if (start != b)
        store_relaxed(b, 0);
    if (absorbed)
        store_relaxed(absorbed, 0);
    word_put(c, after, after_header & ~(uint64_t)CHAIN_BEFORE_USED);
    c->carved_bytes -= own;
    struct region *region = (struct region *)start - 1;
    bool whole = (after_header & CHAIN_END) &&
                 header_bytes(after_header) == bytes + sizeof(*region) + CHAIN_HEADER;
    *ret_empty = whole ? region : NULL;
    return fit_insert(c, start, bytes);
}

int fit_resize(struct memoir_chain *c, uint64_t *b, uint64_t header, uint64_t need)
{
    uint64_t after_header;
    uint64_t own = header_bytes(header), bytes = own;
    uint64_t *after = block_at(b, own), *absorbed = NULL;
    if (!word_get(c, after, &after_header) || !(after_header & CHAIN_BEFORE_USED))
        return -EUCLEAN;
    if (!(after_header & CHAIN_USED)) {
        if (free_bytes(c, after) == 0)
            return -EUCLEAN;
        bytes += header_bytes(after_header);
        absorbed = after;
    }
    if (bytes < need)
        return -ENOMEM;
    if (absorbed) {
        int r = fit_remove(c, absorbed, header_bytes(after_header));
        if (r < 0)
            return r;
        after = block_at(b, bytes);
        if (!word_get(c, after, &after_header))
            return -EUCLEAN;
    }
    uint64_t rest = bytes - need;
    if (rest < CHAIN_BLOCK_MIN) {
        need = bytes;
        rest = 0;
    }
    if (rest) {
        word_put(c, block_at(b, need), rest | CHAIN_BEFORE_USED);
        word_put(c, after, after_header & ~(uint64_t)CHAIN_BEFORE_USED);
    } else {
        word_put(c, after, after_header | CHAIN_BEFORE_USED);
    }
    word_put(c, b, need | CHAIN_USED | (header & CHAIN_BEFORE_USED)); /* the store that counts */
    if (absorbed && absorbed != block_at(b, need))
        store_relaxed(absorbed, 0);
    c->carved_bytes += need - own;
    c->used_bytes -= own;
    chain_count_used(c, need);
    return rest ? fit_insert(c, block_at(b, need), rest) : 0;
}
