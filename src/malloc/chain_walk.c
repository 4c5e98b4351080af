/* See chain_walk.h. */
#include "malloc/chain_walk.h"

#include "malloc/chain_bin.h"
#include "malloc/chain_fit.h"
#include "malloc/chain_region.h"

static int wrong(const char **ret_what, const char *what)
{
    *ret_what = what;
    return -EUCLEAN;
}

static int walk_region(struct memoir_chain *c, struct region *r, uint64_t bytes, chain_visit *visit,
                       void *user, const char **ret_what)
{
    uint64_t *b = region_first(r), *end = region_end(r, bytes), header;
    for (;;) {
        if (!word_get(c, b, &header))
            return wrong(ret_what, "the header of a block is overwritten");
        if (b == end)
            break;
        uint64_t own = header_bytes(header);
        if ((header & CHAIN_END) || own < CHAIN_BLOCK_MIN ||
            own > (uint64_t)((char *)end - (char *)b))
            return wrong(ret_what, "a block's size leads out of its buffer");
        int result = visit(user, c, b, header);
        if (result != 0)
            return result;
        b = block_at(b, own);
    }
    if (!(header & CHAIN_END) || !(header & CHAIN_USED) || header_bytes(header) != bytes)
        return wrong(ret_what, "the end of a buffer is overwritten");
    return 0;
}

int chain_walk(struct memoir_chain *c, chain_visit *visit, void *user, const char **ret_what)
{
    struct region *next;
    uint64_t bytes;
    bool sourced;
    unsigned n = 0;
    if (c->constants != chain_constants(c))
        return wrong(ret_what, "the constants of the chain are overwritten");
    for (struct region *r = chain_first_region(c); r; r = next) {
        if (!region_look(c, r, &bytes, &sourced, &next))
            return wrong(ret_what, "the header of a buffer is overwritten");
        if (++n > CHAIN_REGIONS_MAX)
            return wrong(ret_what, "the list of buffers is a ring");
        int result = walk_region(c, r, bytes, visit, user, ret_what);
        if (result != 0)
            return result;
    }
    return 0;
}

/* ---- checking ---- */

struct tally {
    const char *what;
    bool before_used;
    uint64_t used_bytes, used_blocks, binned_bytes, binned_blocks, free_bytes, free_blocks;
};

static int check_block(void *user, struct memoir_chain *c, uint64_t *b, uint64_t header)
{
    struct tally *t = user;
    uint64_t bytes = header_bytes(header), after, size;
    if (!word_get(c, block_at(b, bytes), &after))
        return wrong(&t->what, "the header of a block is overwritten");
    if (!(header & CHAIN_USED) != !(after & CHAIN_BEFORE_USED))
        return wrong(&t->what, "two neighbours disagree whether one of them is used");
    if (header_is_live(header)) {
        t->used_bytes += bytes;
        t->used_blocks++;
        return 0;
    }
    if (header & CHAIN_USED) {
        t->binned_bytes += bytes;
        t->binned_blocks++;
        return 0;
    }
    if (header & CHAIN_BINNED)
        return wrong(&t->what, "a block is both free and in a bin");
    if (!(after & CHAIN_USED))
        return wrong(&t->what, "two free neighbours are not merged");
    if (!word_get(c, block_at(b, bytes) - 1, &size) || size != bytes)
        return wrong(&t->what, "the size at the end of a free block is overwritten");
    t->free_bytes += bytes;
    t->free_blocks++;
    return 0;
}

/* The free blocks of one list, each in its place. */
static int check_list(struct memoir_chain *c, unsigned list, uint64_t limit, uint64_t *ret_blocks,
                      const char **ret_what)
{
    uint64_t *b, *before = NULL, *back, header, n = 0;
    if (!link_get(c, &chain_heads(c)[list], &b))
        return wrong(ret_what, "the head of a list is overwritten");
    if (!b != !(chain_map(c)[list / 64] >> list % 64 & 1))
        return wrong(ret_what, "the map of lists disagrees with a list");
    for (; b; n++) {
        if (n >= limit)
            return wrong(ret_what, "a free list has more blocks than there are free");
        if (!word_get(c, b, &header) || (header & CHAIN_USED))
            return wrong(ret_what, "a free list leads to what is no free block");
        if (fit_list_of(c, header_bytes(header)) != list)
            return wrong(ret_what, "a free block is in a list of another size");
        if (!link_get(c, &b[2], &back) || back != before)
            return wrong(ret_what, "the links of a free block are overwritten");
        before = b;
        if (!link_get(c, &b[1], &b))
            return wrong(ret_what, "the links of a free block are overwritten");
    }
    *ret_blocks += n;
    return 0;
}

static int check_lists(struct memoir_chain *c, uint64_t free_blocks, const char **ret_what)
{
    uint64_t listed = 0;
    for (unsigned list = 0; list < chain_lists(c); list++) {
        int r = check_list(c, list, free_blocks - listed, &listed, ret_what);
        if (r < 0)
            return r;
    }
    if (listed != free_blocks)
        return wrong(ret_what, "a free block is in no list");
    for (unsigned i = 0; i < 64; i++) {
        bool filled = i < chain_map_words(chain_lists(c)) && chain_map(c)[i] != 0;
        if (filled != (c->map_top >> i & 1))
            return wrong(ret_what, "the map of lists disagrees with itself");
    }
    return 0;
}

/* The blocks of all bins, each of its size. */
static int check_bins(struct memoir_chain *c, uint64_t binned_blocks, const char **ret_what)
{
    uint64_t listed = 0;
    for (uint64_t bin = 0; bin < chain_bins(c); bin++) {
        for (uint64_t head = c->bins[bin], header, next; head != 0; head = next) {
            if (++listed > binned_blocks)
                return wrong(ret_what, "bins have more blocks than there are");
            if (!bin_at(c, bin, head, &header, &next))
                return wrong(ret_what, "a bin leads to what is no block of it");
        }
    }
    return listed == binned_blocks ? 0 : wrong(ret_what, "a block of a bin is not in it");
}

int chain_verify(struct memoir_chain *c, const char **ret_what)
{
    struct tally t = {0};
    const char *what = NULL;
    int r = chain_walk(c, check_block, &t, &what);
    if (r < 0)
        return wrong(ret_what, what ? what : t.what);
    r = check_lists(c, t.free_blocks, ret_what);
    if (r < 0)
        return r;
    r = check_bins(c, t.binned_blocks, ret_what);
    if (r < 0)
        return r;
    if (c->used_bytes != t.used_bytes || c->allocations - c->frees != t.used_blocks ||
        c->carved_bytes != t.used_bytes + t.binned_bytes ||
        c->total_bytes != c->carved_bytes + t.free_bytes || c->used_bytes_peak < c->used_bytes)
        return wrong(ret_what, "the counters disagree with the blocks");
    return 0;
}

/* ---- mending ---- */

static int accept(void *user, struct memoir_chain *c, uint64_t *b, uint64_t header)
{
    return 0;
}

static void count_nothing(struct memoir_chain *c)
{
    bin_clear(c);
    fit_clear(c);
    c->regions = 0;
    c->used_bytes = c->carved_bytes = 0;
    chain_count_total(c, 0);
    c->frees = c->allocations;
}

/* Headers were good a moment ago; in a shared chain somebody may write there nevertheless. A run of free blocks, those of bins too, becomes one, by one store. */
static int rebuild_region(struct memoir_chain *c, struct region *r, uint64_t bytes)
{
    uint64_t *b = region_first(r), *end = region_end(r, bytes), header;
    uint64_t before = CHAIN_BEFORE_USED;
    while (b != end) {
        bool whole = word_get(c, b, &header);
        uint64_t own = header_bytes(header);
        if (!whole || own < CHAIN_BLOCK_MIN || own > (uint64_t)((char *)end - (char *)b))
            return -EUCLEAN;
        if (header_is_live(header)) {
            word_put(c, b, own | CHAIN_USED | before);
            c->used_bytes += own;
            c->carved_bytes += own;
            c->frees--;
            before = CHAIN_BEFORE_USED;
        } else {
            uint64_t *after = block_at(b, own);
            for (; after != end && word_get(c, after, &header) && !header_is_live(header);
                 after = block_at(b, own)) {
                if (header_bytes(header) < CHAIN_BLOCK_MIN ||
                    header_bytes(header) > (uint64_t)((char *)end - (char *)after))
                    return -EUCLEAN;
                own += header_bytes(header);
            }
            word_put(c, b, own | before);
            int result = fit_insert(c, b, own);
            if (result < 0)
                return result;
            before = 0;
        }
        b = block_at(b, own);
    }
    word_put(c, end, bytes | CHAIN_USED | CHAIN_END | before);
    return 0;
}

int chain_rebuild(struct memoir_chain *c)
{
    const char *what;
    int result = chain_walk(c, accept, NULL, &what);
    if (result < 0)
        return result;
    count_nothing(c);
    struct region *before = NULL, *next;
    uint64_t bytes;
    bool sourced;
    for (struct region *r = chain_first_region(c); r; before = r, r = next) {
        if (!region_look(c, r, &bytes, &sourced, &next) || c->regions >= CHAIN_REGIONS_MAX)
            return -EUCLEAN;
        link_put_by(c, c->key, &r->before, before);
        region_count(c, bytes);
        result = rebuild_region(c, r, bytes);
        if (result < 0)
            return result;
    }
    if (c->used_bytes_peak < c->used_bytes)
        c->used_bytes_peak = c->used_bytes;
    if (chain_source(c))
        chain_source(c)->spare = 0;
    return 0;
}

int chain_clear(struct memoir_chain *c)
{
    struct region *before = NULL, *next;
    uint64_t bytes;
    bool sourced;
    if (c->constants != chain_constants(c))
        return -EUCLEAN;
    /* Who dies from here on leaves a broken chain, which can be cleared again. */
    c->seal = chain_seal_next(c);
    count_nothing(c);
    for (struct region *r = chain_first_region(c); r; before = r, r = next) {
        if (!region_look(c, r, &bytes, &sourced, &next) || c->regions >= CHAIN_REGIONS_MAX)
            return -EUCLEAN;
        link_put_by(c, c->key, &r->before, before);
        region_count(c, bytes);
        region_lay(c, r, bytes, sourced);
        uint64_t own = bytes - sizeof(struct region) - CHAIN_HEADER;
        int result = fit_insert(c, region_first(r), own);
        if (result < 0)
            return result;
    }
    return 0;
}
