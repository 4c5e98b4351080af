/*
 * check.c: do all the allocator's books about its own memory agree?
 *
 * Runs with the locks of all heaps and sources: macro-blocks, their maps of slices and the pools then stand still. The rest of a slab
 * is its owner's (macro.h), so the free lists that are followed are those of this thread's slabs and of slabs in a pool; with one
 * thread, those of all. Nothing is believed before it is used: a list that leaves its slab, or has no end, is a finding and not a fault.
 */
#include <errno.h>
#include <memoir/heap.h>
#include <string.h>
#include <sys/single_threaded.h>

#include "malloc/entry.h"
#include "malloc/grind.h"
#include "malloc/harden.h"
#include "malloc/huge.h"
#include "malloc/line.h"
#include "malloc/nursery.h"
#include "malloc/quarantine.h"
#include "malloc/source.h"
#include "malloc/thread.h"

enum { TRIES = 1000, SAID_MAX = 50 };

struct check {
    int fd;
    int problems;
    /* Of the source at hand, as counted. */
    uint64_t slices_used, slices_dirty_free, macros_empty;
    uint64_t runs[RUNS_KINDS];
    struct line line;
};

static void problem(struct check *c, const char *what, const void *where, uint64_t is,
                    uint64_t expected)
{
    if (c->fd < 0 || c->problems++ >= SAID_MAX) {
        c->problems += c->fd < 0;
        return;
    }
    line_text(&c->line, "memoir-malloc: check: ");
    line_text(&c->line, what);
    line_text(&c->line, " at ");
    line_hex(&c->line, (uintptr_t)where);
    line_text(&c->line, ": ");
    line_number(&c->line, is);
    line_text(&c->line, ", expected ");
    line_number(&c->line, expected);
    line_write(&c->line, c->fd);
}

static void equal(struct check *c, const char *what, const void *where, uint64_t is,
                  uint64_t expected)
{
    if (is != expected)
        problem(c, what, where, is, expected);
}

/* ---- slabs ---- */

static bool in_slab(const struct slab *s, const void *block)
{
    uintptr_t distance = (uintptr_t)block - (uintptr_t)slab_memory(s);
    return distance < (size_t)s->made * s->block_bytes && distance % s->block_bytes == 0;
}

/* Blocks on a list; more than there can be if it leaves the slab or comes back to itself. */
static uint32_t list_length(struct check *c, const struct slab *s, const void *block)
{
    uint32_t n = 0;
    for (; block; block = *(void *const *)block, n++)
        if (n >= s->limit || !in_slab(s, block)) {
            problem(c, "free list leaves its slab, or has no end, after block", s, n, s->limit);
            return s->limit + 1;
        }
    return n;
}

/* Hardened: whoever is live must be whole. */
static void check_records(struct check *c, const struct slab *s)
{
    for (uint32_t i = 0; hard_level > 0 && i < s->made; i++) {
        struct hard_block b;
        const char *where;
        char *block = slab_memory(s) + (size_t)i * s->block_bytes;
        if (hard_find(block, false, &b) == HARD_NONE && !hard_whole(&b, &where))
            problem(c, "write beyond the end of a block, at byte", block, (uint64_t)(where - block),
                    0);
    }
}

static void check_lists(struct check *c, const struct slab *s, uint64_t remote)
{
    uint32_t free = list_length(c, s, s->free), used = slab_out(s);
    if (free > s->limit)
        return;
    if (!s->torn) /* blocks that its owner was about to take or to give are in both, or in none */
        equal(c, "blocks free and used of a slab", s, free + used, s->made);
    if (remote_count(remote) > used)
        problem(c, "blocks freed by others of a slab", s, remote_count(remote), used);
    equal(c, "list of blocks freed by others", s, list_length(c, s, remote_head(s, remote)),
          remote_count(remote));
    check_records(c, s);
}

static void check_small(struct check *c, const struct slab *s)
{
    uint64_t remote = load_acquire(&s->remote);
    struct heap *owner = load_relaxed(&s->owner);
    enum slab_state state = remote_state(remote);
    uint32_t bytes = size_of_class(s->class);
    bool alone = __libc_single_threaded;
    bool ours = owner && owner == heap_own;
    /* Somebody else may be making it just now. */
    if (!ours && !alone && state == SLAB_OWNED)
        return;
    equal(c, "block size of a slab", s, s->block_bytes, bytes);
    equal(c, "room in a slab", s, s->limit, ((uint32_t)s->slices << SLICE_SHIFT) / bytes);
    if (s->block_bytes == 0 || s->made > s->limit) {
        problem(c, "blocks made of a slab", s, s->made, s->limit);
        return;
    }
    for (unsigned i = 1; i < s->slices; i++)
        equal(c, "way back to a slab", s + i, s[i].back, i);
    if (state == SLAB_FULL) {
        equal(c, "blocks made of a full slab", s, s->made, s->limit);
        /* Unless it has become another one meanwhile. */
        if (remote_count(remote) >= slab_full_end(s) && load_acquire(&s->remote) == remote)
            problem(c, "free blocks of a full slab", s, remote_count(remote), slab_full_end(s) - 1);
    }
    if (ours || alone || state == SLAB_POOLED)
        check_lists(c, s, remote);
}

static void check_large(struct check *c, const struct slab *s)
{
    struct hard_block b;
    const char *where;
    size_t bytes = (size_t)s->slices << SLICE_SHIFT;
    uint64_t start = load_relaxed(&s->start), asked = load_relaxed(&s->asked);
    if (load_relaxed(&s->class) != SLAB_LARGE)
        return; /* its run has become a slab's meanwhile, whose list lies there */
    if (start >= SLICE_BYTES || start + asked > bytes)
        problem(c, "bytes asked of a large block", s, start + asked, bytes);
    else if (hard_level > 0 && hard_find(slab_memory(s) + s->start, false, &b) == HARD_NONE &&
             !hard_whole(&b, &where))
        problem(c, "write beyond the end of a block, at byte", b.start, (uint64_t)(where - b.start),
                0);
}

/* ---- macro-blocks ---- */

static bool slice_is(const uint64_t *words, unsigned i)
{
    return words[i / 64] >> i % 64 & 1;
}

static unsigned check_slab(struct check *c, struct macro *m, unsigned i)
{
    struct slab *s = macro_slab(m, i);
    if (s->slices == 0 || i + s->slices > MACRO_SLICES) {
        problem(c, "slices of a slab", s, s->slices, MACRO_SLICES - i);
        return 1;
    }
    for (unsigned k = i; k < i + s->slices; k++)
        if (slice_is(m->free, k))
            problem(c, "slice of a slab is free", s, k, i);
    if (s->class < SIZE_CLASSES)
        check_small(c, s);
    else if (s->class == SLAB_LARGE)
        check_large(c, s);
    else
        equal(c, "kind of a slab", s, s->class, SLAB_UNUSED);
    return s->slices;
}

/* Runs of free slices are listed, from their first slice, as what they are; nothing else is. */
static void check_free(struct check *c, struct macro *m)
{
    slice_bits free = bits_of(m->free), dirty = free & bits_of(m->dirty);
    for (unsigned i = 1; i < MACRO_SLICES; i++) {
        const struct slab *s = macro_slab(m, i);
        unsigned expected[2] = {0}, slices[2] = {0};
        if (!slice_is(m->free, i))
            continue;
        if (words_both_have(m->free, m->dirty, i) && !words_both_have(m->free, m->dirty, i - 1)) {
            slices[0] = run_end(dirty, i) - i;
            expected[0] = 1 + RUNS_DIRTY;
            c->runs[RUNS_DIRTY]++;
        }
        slices[1] = run_end(free, i) - i;
        slice_bits has = bits_run(i, slices[1]) & dirty;
        if (!slice_is(m->free, i - 1) && has != bits_run(i, slices[1])) {
            enum runs_kind kind = has ? RUNS_PARTLY : RUNS_CLEAN;
            expected[1] = 1 + kind;
            c->runs[kind]++;
        }
        for (unsigned k = 0; k < 2; k++) {
            equal(c, "list of a free run", s, s->run[k].listed, expected[k]);
            if (expected[k])
                equal(c, "length of a free run", s, s->run[k].slices, slices[k]);
        }
    }
}

/* By now each run that is free is known to say the right thing of itself; so many of them must be in the lists. */
static void check_runs(struct check *c, const struct source *source, enum runs_kind kind)
{
    const struct runs *runs = &source->runs[kind];
    uint64_t n = 0;
    for (unsigned bin = 0; bin < RUNS_BINS; bin++) {
        const struct slab *before = NULL;
        for (const struct slab *s = runs->list[bin].first; s;) {
            const struct run_link *l = &s->run[kind == RUNS_DIRTY ? 0 : 1];
            if (++n > c->runs[kind] || map_kind(s) != MAP_MACRO || l->listed != 1 + kind) {
                problem(c, "list of free runs", s, n, c->runs[kind]);
                return;
            }
            equal(c, "way back in a list of free runs", s, (uintptr_t)l->prev, (uintptr_t)before);
            equal(c, "list of free runs of a length", s, bin, runs_bin(l->slices));
            equal(c, "list that a free run names", s, l->bin, bin);
            before = s;
            s = l->next;
        }
        equal(c, "last of a list of free runs", source, (uintptr_t)runs->list[bin].last,
              (uintptr_t)before);
        equal(c, "list of free runs is known", source, runs->some >> bin & 1, before != NULL);
    }
    equal(c, "free runs", source, n, c->runs[kind]);
}

static void check_empty(struct check *c, const struct source *source)
{
    uint64_t n = 0;
    const struct macro *before = NULL;
    for (const struct macro *m = source->empty; m; before = m, m = m->next_empty) {
        if (++n > c->macros_empty || map_kind(m) != MAP_MACRO) {
            problem(c, "list of empty macro-blocks", m, n, c->macros_empty);
            return;
        }
        equal(c, "way back of an empty macro-block", m, (uintptr_t)m->prev_empty,
              (uintptr_t)before);
        equal(c, "free slices of an empty macro-block", m, m->n_free, MACRO_SLICES_USABLE);
    }
    equal(c, "empty macro-blocks in their list", source, n, c->macros_empty);
    equal(c, "empty macro-blocks", source, source->n_empty, c->macros_empty);
}

static void check_macro(struct check *c, struct source *source, struct macro *m)
{
    unsigned n_free = 0, n_dirty_free = 0;
    equal(c, "address map of a macro-block", m, map_kind(m), MAP_MACRO);
    equal(c, "source of a macro-block", m, (uintptr_t)m->source, (uintptr_t)source);
    equal(c, "first slice is free", m, slice_is(m->free, 0), 0);
    for (unsigned i = 1; i < MACRO_SLICES;) {
        bool free = slice_is(m->free, i);
        n_free += free;
        n_dirty_free += free && slice_is(m->dirty, i);
        /* What is being given to the kernel is in nobody's hands. */
        i += free || source->purging ? 1 : check_slab(c, m, i);
    }
    equal(c, "free slices of a macro-block", m, m->n_free, n_free);
    equal(c, "free slices with memory of a macro-block", m, m->n_dirty_free, n_dirty_free);
    check_free(c, m);
    c->macros_empty += n_free == MACRO_SLICES_USABLE;
    c->slices_used += MACRO_SLICES_USABLE - n_free;
    c->slices_dirty_free += n_dirty_free;
}

static void check_pools(struct check *c, struct source *source)
{
    for (unsigned class = 0; class < SIZE_CLASSES; class ++) {
        uint32_t n = 0;
        const struct slab *before = NULL;
        for (const struct slab *s = source->pool[class]; s && n <= source->pooled[class];
             s = s->next, n++) {
            if (map_kind(s) != MAP_MACRO || s->class != class) {
                problem(c, "size class of a slab in a pool", s,
                        map_kind(s) == MAP_MACRO ? s->class : 0, class);
                break;
            }
            equal(c, "way back in a pool", s, (uintptr_t)s->prev, (uintptr_t)before);
            before = s;
        }
        equal(c, "slabs in a pool", source, n, source->pooled[class]);
    }
}

static void check_source(struct check *c, struct source *source)
{
    uint64_t n = 0;
    const struct macro *before = NULL;
    c->slices_used = c->slices_dirty_free = c->macros_empty = 0;
    memset(c->runs, 0, sizeof(c->runs));
    for (struct macro *m = source->macros; m; before = m, m = m->next) {
        if (++n > source->n_macros || (uintptr_t)m % MACRO_BYTES || map_kind(m) != MAP_MACRO) {
            problem(c, "list of macro-blocks", m, n, source->n_macros);
            return;
        }
        equal(c, "way back of a macro-block", m, (uintptr_t)m->prev, (uintptr_t)before);
        check_macro(c, source, m);
    }
    equal(c, "macro-blocks", source, n, source->n_macros);
    equal(c, "free slices with memory", source, source->n_dirty_free, c->slices_dirty_free);
    if (!source->purging)
        equal(c, "slices in use", source, source->n_used, c->slices_used);
    for (enum runs_kind kind = RUNS_DIRTY; kind < RUNS_KINDS; kind++)
        check_runs(c, source, kind);
    check_empty(c, source);
    check_pools(c, source);
}

/* ---- heaps ---- */

static void check_slabs(struct check *c, const struct heap *h, unsigned class,
                        const struct slabs *list, bool held)
{
    const struct slab *before = NULL;
    uint32_t n = 0;
    for (const struct slab *s = list->first; s; before = s, s = s->next) {
        if (++n > list->n || map_kind(s) != MAP_MACRO) {
            problem(c, "list of a heap's slabs", s, n, list->n);
            return;
        }
        equal(c, "owner of a slab", s, (uintptr_t)s->owner, (uintptr_t)h);
        equal(c, "size class of a slab", s, s->class, class);
        if (before)
            equal(c, "way back of a slab", s, (uintptr_t)s->prev, (uintptr_t)before);
        equal(c, "slab is current", s, s->current, !held && s == list->first);
        equal(c, "slab is held", s, s->held > 0, held);
        if (held && (s->used == 0 || s->used > s->held))
            problem(c, "blocks that a held slab waits for", s, s->used, s->held);
    }
    equal(c, "a heap's slabs of a class", h, n, list->n);
    if (before)
        equal(c, "last of a heap's slabs", h, (uintptr_t)list->first->prev, (uintptr_t)before);
}

static void check_spare(struct check *c, const struct slab *s, unsigned slices)
{
    equal(c, "spare run is unused", s, s->class, SLAB_UNUSED);
    equal(c, "spare run is nobody's", s, (uintptr_t)s->owner, 0);
    equal(c, "slices of a spare run", s, s->slices, slices);
}

static void check_strays(struct check *c, const struct heap *h, unsigned class)
{
    const struct strays *strays = &h->strays[class];
    uint32_t n = 0;
    for (const void *block = strays->first; block; block = *(void *const *)block) {
        const struct slab *s = map_kind(block) == MAP_MACRO ? slab_of(block) : &slab_none;
        if (++n > strays->n || s == &slab_none || s->class != class || !in_slab(s, block) ||
            s != slab_of(strays->first)) {
            problem(c, "block that a heap has to hand over", block, n, strays->n);
            return;
        }
    }
    equal(c, "blocks that a heap has to hand over", h, n, strays->n);
}

static const struct slab *current_of(const struct heap *h, unsigned class)
{
    unsigned serving = h->sharing >> class & 1 ? size_shared[class] : class;
    const struct slab *first = h->bin[serving].open.first;
    return first ? first : &slab_none;
}

static void check_heap(struct check *c, const struct heap *h)
{
    for (unsigned class = 0; class < SIZE_CLASSES; class ++) {
        check_slabs(c, h, class, &h->bin[class].open, false);
        check_slabs(c, h, class, &h->bin[class].held, true);
        if (h->sharing >> class & 1)
            equal(c, "slabs of a class that shares others'", h,
                  h->bin[class].open.n + h->bin[class].held.n, 0);
        check_strays(c, h, class);
    }
    for (unsigned i = 0; i < HEAP_DIRECT; i++)
        equal(c, "direct way to a slab", h, (uintptr_t)h->direct[i],
              (uintptr_t)current_of(h, size_class((size_t)i * SIZE_STEP)));
    for (unsigned class = 0; class < SIZE_CLASSES; class ++)
        equal(c, "way to a slab", h, (uintptr_t)h->way[class], (uintptr_t)current_of(h, class));
    for (unsigned i = 0; i < HEAP_SPARE_SLICES; i++)
        for (unsigned k = 0; k < h->spare[i].n && k < HEAP_SPARES; k++)
            check_spare(c, h->spare[i].runs[k], i + 1);
}

static bool check_huge(void *p, size_t usable, size_t asked, void *arg)
{
    struct check *c = arg;
    enum map_kind kind = map_kind(p);
    if (kind != MAP_HUGE && kind != MAP_HUGE_ALONE)
        problem(c, "address map of a huge block", p, kind, MAP_HUGE);
    if (asked > usable)
        problem(c, "bytes asked of a huge block", p, asked, usable);
    return true;
}

static bool locks_try(void)
{
    for (int i = 0; i < TRIES; i++) {
        if (thread_locks_try())
            return true;
        cpu_relax();
    }
    return false;
}

EXPORT int memoir_malloc_check(int fd)
{
    struct check c = {.fd = fd};
    int saved = errno;
    if (!locks_try())
        return -EBUSY;
    grind_enter();
    for (unsigned i = 0; source_at(i); i++)
        check_source(&c, source_at(i));
    if (heap_own)
        check_heap(&c, heap_own);
    thread_locks_drop();
    equal(&c, "bits of the first blocks", &nursery_region, nursery_check(), 0);
    if (!huge_walk(check_huge, &c))
        problem(&c, "list of huge blocks", NULL, 0, 1);
    if (hard_level >= 2)
        quarantine_check();
    grind_leave();
    errno = saved;
    return c.problems;
}
