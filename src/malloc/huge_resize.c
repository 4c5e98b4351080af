/* huge_resize.c: huge blocks that become larger or smaller (huge.h). */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "malloc/huge_state.h"

enum { GROWTH_PART = 64 }; /* of a block is added where it grows by less */

/* A block's new extent where it is. */
static void resize(struct huge_block *h, size_t mapped, size_t asked)
{
    uint64_t now = clock_monotonic_coarse_ns();
    lock_take(&huge.lock);
    if (h->era == huge.era) {
        huge_count_out(h->mapped_bytes, h->asked_bytes);
        huge_count_in(mapped, asked);
    }
    h->mapped_bytes = mapped;
    h->asked_bytes = asked;
    huge_settle(now);
}

/* If what follows the block is kept, it becomes the block's, without a fault; it may be less than is needed. */
static void grow_into_kept(struct huge_block *h, size_t mapped)
{
    char *start = (char *)h, *end = start + h->mapped_bytes;
    char *boundary = (char *)huge_unit_up((uintptr_t)end);
    struct huge_range r;
    if (start + mapped <= boundary)
        return;
    lock_take(&huge.lock);
    bool found =
        huge_cache_take_at(&huge_ranges, boundary, (size_t)(start + mapped - boundary), &r);
    lock_drop(&huge.lock);
    if (!found)
        return;
    if (os_extend(start, h->mapped_bytes, (size_t)(boundary - start)) == 0)
        resize(h, (size_t)(r.at + r.bytes - start), h->asked_bytes);
    else
        huge_retire(r);
}

/* A block that grows a little grows again: a few pages more, which nobody touches before, save most of the system calls. */
static size_t with_reserve(const struct huge_block *h, size_t mapped)
{
    size_t reserve = h->mapped_bytes / GROWTH_PART;
    return mapped > h->mapped_bytes && mapped - h->mapped_bytes < reserve
               ? os_page_up(mapped + reserve)
               : mapped;
}

/* Whole units after the new end are kept for others as they are; less than that stays with the block
 * unless it is much for it. */
static void shrink(struct huge_block *h, size_t bytes)
{
    char *start = (char *)h;
    size_t mapped = h->mapped_bytes, need = os_page_up(h->data_offset + bytes);
    size_t cut = huge_unit_up((uintptr_t)start + need) - (uintptr_t)start;
    cut = cut < mapped ? cut : mapped;
    size_t keep = cut - need > need / 4 && os_unmap(start + need, cut - need) ? need : cut;
    resize(h, keep, bytes);
    if (cut < mapped)
        huge_retire((struct huge_range){
            .at = start + cut, .bytes = mapped - cut, .freed_ns = clock_monotonic_coarse_ns()});
}

/* Move the pages of a block to where there is room. The address map must never tell a wrong thing about
 * a place that others may have been given: so the new place is marked before it is used, and the old one
 * cleared while it is still ours. */
static struct huge_block *move(struct huge_block *h, size_t mapped)
{
    size_t lead = huge_block_lead(h), had = h->mapped_bytes;
    enum map_kind kind = lead ? MAP_HUGE_ALONE : MAP_HUGE;
    char *from = (char *)h, *to = os_reserve(mapped, mapped / 2, HUGE_UNIT, lead);
    if (!to)
        return NULL;
    if (!map_set(to + lead, 1, kind)) {
        os_unreserve(to, mapped);
        return NULL;
    }
    lock_take(&huge.lock);
    bool intact = huge_block_unlink(h), listed = h->era == huge.era;
    lock_drop(&huge.lock);
    bool moved = false;
    if (intact) {
        map_set(from + lead, 1, MAP_NONE);
        moved = os_move(from, had, mapped, to);
        map_set(moved ? to + lead : from + lead, 1, kind);
    } else {
        os_unreserve(to, mapped);
    }
    if (!moved)
        map_set(to + lead, 1, MAP_NONE);
    if (!intact)
        return NULL;
    h = (struct huge_block *)(moved ? to : from);
    lock_take(&huge.lock);
    if (listed)
        huge_count_out(had, h->asked_bytes);
    h->mapped_bytes = moved ? mapped : had;
    store_relaxed(&h->cookie, huge_cookie_of(h));
    huge_block_link(h);
    huge_count_in(h->mapped_bytes, h->asked_bytes);
    lock_drop(&huge.lock);
    huge_total_add(&huge_totals.moved, moved);
    return moved ? h : NULL;
}

void *huge_realloc(void *p, size_t bytes)
{
    struct huge_block *h = huge_block_at(p);
    if (!h || bytes > PTRDIFF_MAX - 2 * HUGE_UNIT)
        return NULL;
    size_t usable = h->mapped_bytes - h->data_offset;
    if (bytes <= usable) {
        if (bytes < h->asked_bytes)
            shrink(h, bytes);
        else
            resize(h, h->mapped_bytes, bytes);
        return p;
    }
    size_t exact = os_page_up(h->data_offset + bytes);
    grow_into_kept(h, exact);
    exact = exact > h->mapped_bytes ? exact : h->mapped_bytes;
    size_t mapped = with_reserve(h, exact);
    int r = os_extend(h, h->mapped_bytes, mapped);
    struct huge_block *moved = r == -ENOMEM ? move(h, mapped) : NULL;
    if (r != 0 && !moved && mapped > exact && os_extend(h, h->mapped_bytes, exact) == 0) {
        mapped = exact; /* not a page more than that */
        r = 0;
    }
    if (r == 0 || moved) {
        h = moved ? moved : h;
        resize(h, mapped, bytes);
        return huge_data_of(h);
    }
    void *q = huge_alloc(bytes, 1, NULL);
    if (!q)
        return NULL;
    memcpy(q, p, usable);
    huge_free(p);
    huge_total_add(&huge_totals.copied, 1);
    return q;
}
