/* stats.c: see stats.h. */
#include "malloc/stats.h"

#include <string.h>

#include "malloc/huge.h"
#include "malloc/nursery.h"
#include "malloc/source.h"

static void slab_count(const struct slab *s, struct stats_counts *n)
{
    unsigned class = load_relaxed(&s->class); /* its owner may change it */
    bool large = class == SLAB_LARGE;
    struct stats_class *c = large ? &n->large : class < SIZE_CLASSES ? &n->small[class] : NULL;
    if (!c)
        return;
    uint64_t back = large ? 0 : remote_count(load_relaxed(&s->remote));
    uint64_t made = load_relaxed(&s->made), used = large ? 1 : slab_out(s);
    used = large || used < made ? used : made;
    if (large)
        made = load_relaxed(&s->asked);
    if (large && load_relaxed(&s->class) != class)
        return; /* its run has become another slab's, whose list lies there */
    c->slabs++;
    c->slices += s->slices;
    c->used += used > back ? used - back : 0;
    c->made += made;
}

void stats_count(struct macro *m, struct stats_counts *n)
{
    for (unsigned i = 1; i < MACRO_SLICES;) {
        /* Or being purged: then its descriptor is of an earlier slab. */
        bool free = (m->free[i / 64] | m->purging[i / 64]) >> i % 64 & 1;
        struct slab *s = macro_slab(m, i);
        if (!free)
            slab_count(s, n);
        i += free || s->slices == 0 ? 1 : s->slices;
    }
}

void stats_take(struct stats *ret)
{
    memset(ret, 0, sizeof(*ret));
    for (unsigned i = 0; source_at(i); i++) {
        struct source *s = source_at(i);
        lock_take(&s->lock);
        for (struct macro *m = s->macros; m; m = m->next)
            stats_count(m, &ret->counts);
        ret->mapped_bytes += s->n_macros * MACRO_BYTES;
        ret->kept_bytes += s->n_dirty_free * SLICE_BYTES;
        lock_drop(&s->lock);
    }
    for (unsigned class = 0; class < SIZE_CLASSES; class ++) {
        ret->small_blocks += ret->counts.small[class].used;
        ret->small_bytes += ret->counts.small[class].used * size_of_class(class);
    }
    ret->first_blocks = nursery_count(&ret->first_bytes);
    ret->small_blocks += ret->first_blocks;
    ret->small_bytes += ret->first_bytes;
    ret->mapped_bytes += ret->first_blocks ? NURSERY_BYTES : 0;
    ret->large_blocks = ret->counts.large.used;
    ret->large_bytes = ret->counts.large.slices * SLICE_BYTES;
    struct huge_counts huge;
    huge_count(&huge);
    ret->huge_blocks = huge.blocks;
    ret->huge_bytes = huge.mapped_bytes;
    ret->kept_bytes += huge.kept_bytes;
    ret->mapped_bytes += huge.kept_bytes;
}
