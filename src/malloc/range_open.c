/*
 * range_open.c: a heap that goes on at other addresses.
 *
 * The loader asks for memory before there are settings, and a process that waits for an image has a heap of its own until that comes. Blocks of
 * then stay where they are, and can be freed. But nothing new may lie beside them, or a part of what the program has would not be in the
 * range: so their slabs become slabs of a heap that nobody has, where others' frees wait for ever, and their macro-blocks those of a
 * source that is not theirs, which gives nothing out and takes nothing back (source.h: generation).
 */
#include <errno.h>
#include <string.h>

#include "malloc/heap.h"
#include "malloc/range.h"
#include "malloc/source.h"
#include "malloc/thread.h"

static struct heap nobody;
static struct source nowhere;

static void macro_retire(struct macro *m)
{
    for (unsigned i = 1; i < MACRO_SLICES;) {
        struct slab *s = macro_slab(m, i);
        bool free = m->free[i / 64] >> i % 64 & 1;
        if (!free && s->class < SIZE_CLASSES) {
            store_relaxed(&s->owner, &nobody);
            exchange_acquire(&s->remote, remote_word(s, SLAB_OWNED, 0, NULL));
        }
        i += free || s->slices == 0 ? 1 : s->slices;
    }
    nowhere.generation = UINT32_MAX; /* no macro-block is its own */
    nowhere.node = UINT32_MAX;       /* and no heap's is it */
    m->source = &nowhere;
}

static void heap_forget(struct heap *h)
{
    heap_empty(h);
    memset(h->bin, 0, sizeof(h->bin));
    memset(h->spare, 0, sizeof(h->spare));
    h->n_kept = h->held_slices = 0;
}

void range_retire(void)
{
    struct source *s;
    for (unsigned i = 0; (s = source_at(i)) != NULL; i++) {
        for (struct macro *m = s->macros; m; m = m->next)
            macro_retire(m);
        if (s->lock.stale) /* else it has nothing yet */
            s->lock.stale(&s->lock);
    }
    for (struct heap *h = heap_all; h; h = h->next)
        heap_forget(h);
}

int range_state_moved(enum range_state *ret)
{
    start_modes();
    int r = range_state(ret);
    return r == 0 && thread_modes != 0 ? -ENOTSUP : r;
}
