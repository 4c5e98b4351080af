/* huge_cache.c: see huge_cache.h. */
#include "malloc/huge_cache.h"

#include "base/atomic.h"
#include "malloc/map.h"

static void remove_at(struct huge_cache *c, unsigned i)
{
    sub_relaxed(&c->bytes, c->ranges[i].bytes);
    c->ranges[i] = c->ranges[--c->n];
}

/* The oldest of all, if it came before `ns`; else c->n. */
static unsigned oldest(const struct huge_cache *c, uint64_t ns)
{
    unsigned found = c->n;
    for (unsigned i = 0; i < c->n; i++)
        if (c->ranges[i].freed_ns < ns) {
            ns = c->ranges[i].freed_ns;
            found = i;
        }
    return found;
}

static size_t unit_up(size_t bytes)
{
    return (bytes + MAP_UNIT_BYTES - 1) & ~(MAP_UNIT_BYTES - 1);
}

/* The first whole units of a range that have `bytes`, or all of it. */
static void take_front(struct huge_cache *c, unsigned i, size_t bytes, struct huge_range *ret)
{
    struct huge_range *r = &c->ranges[i];
    size_t part = unit_up(bytes);
    *ret = *r;
    if (part >= r->bytes) {
        remove_at(c, i);
        return;
    }
    ret->bytes = part;
    r->at += part;
    r->bytes -= part;
    r->lead = 0;
    sub_relaxed(&c->bytes, part);
}

bool huge_cache_put(struct huge_cache *c, struct huge_range r, struct huge_range *ret_evicted)
{
    for (unsigned i = 0; i < c->n;) {
        struct huge_range o = c->ranges[i];
        if (o.at + o.bytes == r.at && r.lead == 0) {
            r.at = o.at;
            r.lead = o.lead;
        } else if (!(r.at + r.bytes == o.at && o.lead == 0)) {
            i++;
            continue;
        }
        r.bytes += o.bytes;
        r.freed_ns = o.freed_ns > r.freed_ns ? o.freed_ns : r.freed_ns;
        remove_at(c, i);
    }
    bool full = c->n == HUGE_CACHE_RANGES;
    if (full) {
        unsigned i = oldest(c, UINT64_MAX);
        i = i == c->n ? 0 : i;
        *ret_evicted = c->ranges[i];
        remove_at(c, i);
    }
    c->ranges[c->n++] = r;
    add_relaxed(&c->bytes, r.bytes);
    return full;
}

bool huge_cache_take(struct huge_cache *c, size_t bytes, size_t lead, size_t align,
                     struct huge_range *ret)
{
    unsigned best = c->n;
    for (unsigned i = 0; i < c->n; i++) {
        const struct huge_range *r = &c->ranges[i];
        if (r->bytes < bytes || (best < c->n && r->bytes >= c->ranges[best].bytes))
            continue;
        if (lead == 0 || (r->lead == lead && ((uintptr_t)r->at & (align - 1)) == 0))
            best = i;
    }
    if (best == c->n)
        return false;
    take_front(c, best, bytes, ret);
    return true;
}

bool huge_cache_take_at(struct huge_cache *c, const char *at, size_t bytes, struct huge_range *ret)
{
    for (unsigned i = 0; i < c->n; i++)
        if (c->ranges[i].at == at && c->ranges[i].lead == 0) {
            take_front(c, i, bytes, ret);
            return true;
        }
    return false;
}

bool huge_cache_take_unit(struct huge_cache *c, struct huge_range *ret)
{
    unsigned best = c->n;
    size_t most = 0;
    for (unsigned i = 0; i < c->n; i++) {
        const struct huge_range *r = &c->ranges[i];
        size_t has = r->bytes < MAP_UNIT_BYTES ? r->bytes : MAP_UNIT_BYTES;
        if (r->lead || has < most || (has == most && r->freed_ns >= c->ranges[best].freed_ns))
            continue;
        most = has;
        best = i;
    }
    if (best == c->n)
        return false;
    take_front(c, best, MAP_UNIT_BYTES, ret);
    return true;
}

bool huge_cache_take_largest(struct huge_cache *c, size_t bytes, struct huge_range *ret)
{
    unsigned best = c->n;
    for (unsigned i = 0; i < c->n; i++)
        if (c->ranges[i].bytes >= bytes) {
            bytes = c->ranges[i].bytes + 1;
            best = i;
        }
    if (best == c->n)
        return false;
    *ret = c->ranges[best];
    remove_at(c, best);
    return true;
}

bool huge_cache_take_old(struct huge_cache *c, uint64_t ns, size_t bytes, struct huge_range *ret)
{
    unsigned i = oldest(c, ns);
    if (i == c->n)
        return false;
    struct huge_range *r = &c->ranges[i];
    *ret = *r;
    size_t stays = r->bytes > bytes ? (r->bytes - bytes) & ~(MAP_UNIT_BYTES - 1) : 0;
    if (stays == 0) {
        remove_at(c, i);
        return true;
    }
    ret->at += stays;
    ret->bytes -= stays;
    ret->lead = 0;
    r->bytes = stays;
    sub_relaxed(&c->bytes, ret->bytes);
    return true;
}
