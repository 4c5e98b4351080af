/* See chain_region.h. */
#include "malloc/chain_region.h"

#include "malloc/chain_default.h"
#include "malloc/chain_enter.h"
#include "malloc/chain_fit.h"
#include "malloc/chain_registry.h"

enum {
    REGION_OVERHEAD = sizeof(struct region) + CHAIN_HEADER,
    SOURCED = 1, /* in the word with the bytes */
};

bool region_look(const struct memoir_chain *c, const struct region *r, uint64_t *ret_bytes,
                 bool *ret_sourced, struct region **ret_next)
{
    uint64_t word, *next;
    if (!word_get_by(c, c->key, &r->bytes, &word) || !link_get_by(c, c->key, &r->next, &next))
        return false;
    *ret_bytes = header_bytes(word);
    *ret_sourced = word & SOURCED;
    *ret_next = (struct region *)next;
    return *ret_bytes >= REGION_OVERHEAD + CHAIN_BLOCK_MIN &&
           chain_spans(c, (const char *)r + *ret_bytes - 1);
}

void region_lay(struct memoir_chain *c, struct region *r, uint64_t bytes, bool sourced)
{
    word_put_by(c, c->key, &r->bytes, bytes | (sourced ? SOURCED : 0));
    word_put(c, region_end(r, bytes), bytes | CHAIN_USED | CHAIN_END);
    word_put(c, region_first(r), (bytes - REGION_OVERHEAD) | CHAIN_BEFORE_USED);
}

void region_span(struct memoir_chain *c, const struct region *r, uint64_t bytes)
{
    int64_t low = (int64_t)chain_distance(c, r), high = low + (int64_t)bytes;
    int64_t old_low = (int64_t)c->low, old_high = (int64_t)(c->low + c->span);
    if (c->span != 0) {
        low = old_low < low ? old_low : low;
        high = old_high > high ? old_high : high;
    }
    /* A reader without the lock must not see a span that is too large for its start. */
    store_relaxed(&c->low, (uint64_t)low);
    store_release(&c->span, (uint64_t)(high - low));
}

void region_count(struct memoir_chain *c, uint64_t bytes)
{
    c->regions++;
    chain_count_total(c, c->total_bytes + bytes - REGION_OVERHEAD);
}

/* Is any of it in the chain already? */
static int look_for(struct memoir_chain *c, const struct region *new, uint64_t new_bytes)
{
    uintptr_t start = (uintptr_t) new, end = start + new_bytes;
    struct region *next;
    uint64_t bytes;
    bool sourced;
    unsigned n = 0;
    for (struct region *r = chain_first_region(c); r; r = next) {
        if (!region_look(c, r, &bytes, &sourced, &next) || ++n > CHAIN_REGIONS_MAX)
            return -EUCLEAN;
        uintptr_t from = r == chain_first_region(c) ? (uintptr_t)c : (uintptr_t)r;
        if (start < (uintptr_t)r + bytes && from < end)
            return -EBUSY;
    }
    return 0;
}

int region_add(struct memoir_chain *c, void *buffer, size_t bytes, bool sourced)
{
    uintptr_t start = ((uintptr_t)buffer + CHAIN_GRAIN - 1) & ~(uintptr_t)(CHAIN_GRAIN - 1);
    uintptr_t skipped = start - (uintptr_t)buffer;
    if (bytes < CHAIN_REFILL_MIN)
        return -ENOSPC;
    if (bytes > CHAIN_BYTES_MAX || c->regions >= CHAIN_REGIONS_MAX)
        return -ERANGE;
    bytes = (bytes - skipped) & ~(size_t)(CHAIN_GRAIN - 1);
    struct region *r = (struct region *)start, *first = chain_first_region(c), *next;
    int64_t distance = (int64_t)chain_distance(c, r);
    if (distance < -CHAIN_FAR_MAX || distance >= CHAIN_FAR_MAX - (int64_t)bytes)
        return -ERANGE;
    uint64_t first_bytes;
    bool first_sourced;
    int result = sourced ? 0 : look_for(c, r, bytes); /* the source knows what it gives */
    if (result < 0)
        return result;
    if (!region_look(c, first, &first_bytes, &first_sourced, &next))
        return -EUCLEAN;
    region_span(c, r, bytes);
    region_lay(c, r, bytes, sourced);
    link_put_by(c, c->key, &r->next, next);
    link_put_by(c, c->key, &r->before, first);
    result = fit_insert(c, region_first(r), bytes - REGION_OVERHEAD);
    if (next)
        link_put_by(c, c->key, &next->before, r);
    link_put_by(c, c->key, &first->next, r); /* the store that counts */
    region_count(c, bytes);
    return result;
}

/* ---- back to the source ---- */

static int take_out(struct memoir_chain *c, struct region *r, uint64_t bytes, struct region *next)
{
    struct chain_source *source = chain_source(c);
    uint64_t *before, *back;
    if (!link_get_by(c, c->key, &r->before, &before) || !before ||
        !link_get_by(c, c->key, &((struct region *)before)->next, &back) || back != (uint64_t *)r)
        return -EUCLEAN;
    link_put_by(c, c->key, &((struct region *)before)->next, next); /* the store that counts */
    if (next)
        link_put_by(c, c->key, &next->before, before);
    c->regions--;
    chain_count_total(c, c->total_bytes - (bytes - REGION_OVERHEAD));
    link_put_by(c, c->key, &r->next, source->retired);
    source->retired = r;
    return 0;
}

/* Does this region hold nothing but one free block? */
static bool is_empty(const struct memoir_chain *c, struct region *r)
{
    uint64_t bytes, header;
    struct region *next;
    bool sourced;
    return region_look(c, r, &bytes, &sourced, &next) && word_get(c, region_first(r), &header) &&
           !(header & CHAIN_USED) && header_bytes(header) == bytes - REGION_OVERHEAD;
}

int region_emptied(struct memoir_chain *c, struct region *empty)
{
    struct chain_source *source = chain_source(c);
    uint64_t bytes;
    bool sourced;
    struct region *next;
    if (!source || empty == chain_first_region(c))
        return 0;
    if (!region_look(c, empty, &bytes, &sourced, &next))
        return -EUCLEAN;
    if (!sourced)
        return 0;
    uint64_t distance = chain_distance(c, empty);
    if (source->spare == 0 || source->spare == distance ||
        !is_empty(c, chain_at(c, source->spare))) {
        source->spare = distance;
        return 0;
    }
    int r = fit_remove(c, region_first(empty), bytes - REGION_OVERHEAD);
    return r < 0 ? r : take_out(c, empty, bytes, next);
}

int region_pull_all(struct memoir_chain *c)
{
    struct region *r = chain_first_region(c), *next;
    uint64_t bytes;
    bool sourced;
    if (!chain_source(c))
        return 0;
    chain_source(c)->spare = 0;
    for (unsigned n = 0; r; r = next) {
        if (!region_look(c, r, &bytes, &sourced, &next) || ++n > CHAIN_REGIONS_MAX)
            return -EUCLEAN;
        if (!sourced)
            continue;
        int result = take_out(c, r, bytes, next);
        if (result < 0)
            return result;
    }
    return 0;
}

/* ---- calls of the source ---- */

/* Its own code may allocate: not from the chain that waits for it. */
static void *source_request(const struct chain_source *source, size_t bytes, size_t *ret_bytes)
{
    struct memoir_chain *outer = chain_default_suspend();
    void *buffer = source->request(source->user, bytes, ret_bytes);
    chain_default_resume(outer);
    return buffer;
}

void region_give_back(const struct chain_source *source, void *buffer, uint64_t bytes)
{
    if (!source->give_back)
        return;
    struct memoir_chain *outer = chain_default_suspend();
    int saved = errno;
    source->give_back(source->user, buffer, bytes);
    errno = saved;
    chain_default_resume(outer);
}

int region_source_first(const struct chain_source *source, size_t bytes, void **ret_buffer,
                        size_t *ret_bytes)
{
    size_t got = 0;
    void *buffer = source_request(source, bytes, &got);
    if (!buffer)
        return -ENOMEM;
    if ((uintptr_t)buffer % CHAIN_GRAIN || got % CHAIN_GRAIN || got < bytes) {
        region_give_back(source, buffer, got);
        return -EINVAL;
    }
    *ret_buffer = buffer;
    *ret_bytes = got;
    return 0;
}

/* free() must know the buffer before the first block of it is given out. */
int region_enter(struct memoir_chain *c, void *buffer, size_t bytes, bool sourced)
{
    int known = registry_has(c) ? registry_add(buffer, bytes, c) : 1;
    if (known < 0)
        return known;
    int r = chain_enter(c);
    if (r == 0) {
        r = chain_judge(c, region_add(c, buffer, bytes, sourced), buffer);
        chain_leave(c);
    }
    if (r < 0 && !known)
        registry_remove(buffer);
    return r;
}

int region_request(struct memoir_chain *c, uint64_t need)
{
    struct chain_source source = *chain_source(c);
    uint64_t bytes = need + REGION_OVERHEAD;
    void *buffer;
    size_t got;
    int r = region_source_first(&source, bytes < CHAIN_REFILL_MIN ? CHAIN_REFILL_MIN : bytes,
                                &buffer, &got);
    if (r < 0)
        return r;
    r = region_enter(c, buffer, got, true);
    if (r < 0)
        region_give_back(&source, buffer, got);
    return r;
}
