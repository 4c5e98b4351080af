/* spread.c: see spread.h. */
#include "malloc/spread.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "malloc/node.h"
#include "malloc/os.h"
#include "malloc/settings.h"
#include "malloc/thread.h"

/* On which processors somebody waited, by their number modulo 64 (relaxed). How many there are would tell less: a process may not have them
 * all. The C library knows where a thread runs without asking the kernel, which a sandbox may not allow. */
uint64_t spread_processors;

void spread_waited(struct source *s)
{
    int saved = errno, here = sched_getcpu();
    errno = saved;
    uint64_t bit = here < 0 ? 0 : UINT64_C(1) << here % 64;
    if (bit & ~load_relaxed(&spread_processors))
        (void)fetch_or_relaxed(&spread_processors, bit);
    store_relaxed(&s->waits, load_relaxed(&s->waits) + 1);
}

static unsigned width_most(void)
{
    unsigned pairs = (unsigned)__builtin_popcountll(load_relaxed(&spread_processors)) / 2;
    if (os_places)
        return 1; /* what is in the ranges of others may be theirs at any time */
    if (malloc_settings.sources > 0)
        return (unsigned)malloc_settings.sources;
    return pairs < SPREAD_MAX ? pairs : SPREAD_MAX;
}

unsigned spread_width_further(const struct source *s)
{
    unsigned n = 0;
    const struct source *other;
    for (unsigned i = 0; (other = source_at(i)); i++)
        n += other->node == s->node;
    return n;
}

/* How many threads take from each source. With heaps_lock. */
static void heaps_count(unsigned heaps[NODE_MAX])
{
    memset(heaps, 0, NODE_MAX * sizeof(heaps[0]));
    for (const struct heap *h = heap_all; h; h = h->next)
        if (load_relaxed(&h->tid) != 0)
            heaps[source_number(load_relaxed(&h->source))]++;
}

/* The one of the same node that fewest take from, if these are so few that a move pays; or a new one. NULL: neither. With heaps_lock. */
static struct source *move_to(const struct source *from)
{
    unsigned heaps[NODE_MAX];
    heaps_count(heaps);
    unsigned here = heaps[source_number(from)], fewest = here - here / 8;
    if (here < 2)
        return NULL;
    struct source *to = spread_width(from) < width_most() ? source_add(from->node) : NULL, *s;
    if (to)
        return to;
    for (unsigned i = 0; (s = source_at(i)); i++)
        if (s != from && s->node == from->node && heaps[i] + 1 < fewest) {
            to = s;
            fewest = heaps[i] + 1;
        }
    return to;
}

/* Not where the thread is forking: then the locks of those that there are are held. */
void spread(struct heap *h)
{
    struct source *from = h->source, *to = NULL;
    bool begins = malloc_settings.sources > 0;
    if (h->on_node || lock_forking)
        return;
    if (width_most() <= 1) {
        store_relaxed(&from->waits, 0);
        return;
    }
    lock_take(&heaps_lock);
    if (begins || spread_is_due(from)) { /* still: others follow one by one */
        to = move_to(from);
        store_relaxed(&from->waits, to ? SPREAD_WAITS / 2 : 0);
    }
    if (to)
        store_relaxed(&h->source, to);
    lock_drop(&heaps_lock);
}

struct source *spread_beside_further(struct source *s)
{
    unsigned n = load_acquire(&sources_n), at = load_relaxed(&s->beside);
    struct source *other;
    for (unsigned i = 0; i < n; i++) {
        at = at + 1 < n ? at + 1 : 0;
        other = source_at(at);
        if (other != s && other->node == s->node) {
            store_relaxed(&s->beside, at);
            return other;
        }
    }
    return NULL;
}
