/*
 * dump.c: what the heap is made of, in words: see memoir/heap.h.
 *
 * Waits for nobody. With the locks, the macro-blocks are walked and what each size has is counted; without, the figures are those that can
 * be read any time. Slabs of other threads change meanwhile: each figure is one that was true, the sums need not be of one moment.
 */
#include <errno.h>
#include <memoir/heap.h>
#include <string.h>
#include <unistd.h>

#include "malloc/depot.h"
#include "malloc/entry.h"
#include "malloc/harden.h"
#include "malloc/huge.h"
#include "malloc/line.h"
#include "malloc/map.h"
#include "malloc/nursery.h"
#include "malloc/quarantine.h"
#include "malloc/settings.h"
#include "malloc/source.h"
#include "malloc/spread.h"
#include "malloc/stats.h"
#include "malloc/thread.h"

static void say(struct line *l, const char *before, uint64_t value, const char *after)
{
    line_text(l, before);
    line_number(l, value);
    line_text(l, after);
}

/* ---- sources ---- */

static void source_say(struct line *l, const struct source *s, int fd)
{
    say(l, "node ", s->node, spread_width(s) > 1 ? ", one of its sources: " : ": ");
    say(l, "", load_relaxed(&s->n_macros) * MACRO_BYTES >> 10, " KiB mapped, ");
    say(l, "", load_relaxed(&s->n_used) * SLICE_BYTES >> 10, " KiB in slabs, ");
    say(l, "", load_relaxed(&s->n_dirty_free) * SLICE_BYTES >> 10, " KiB kept free (at most ");
    say(l, "", load_relaxed(&s->keep_limit) * SLICE_BYTES >> 10, "), ");
    say(l, "", s->total_purged * SLICE_BYTES >> 10, " KiB given back so far");
    line_write(l, fd);
}

static void counts_say(struct line *l, const struct stats_counts *n, int fd)
{
    for (unsigned class = 0; class < SIZE_CLASSES; class ++) {
        const struct stats_class *c = &n->small[class];
        if (c->slabs == 0)
            continue;
        say(l, "  blocks of ", size_of_class(class), ": ");
        say(l, "", c->used, " used of ");
        say(l, "", c->made, " made, in ");
        say(l, "", c->slabs, " slabs of ");
        say(l, "", c->slices * SLICE_BYTES >> 10, " KiB");
        line_write(l, fd);
    }
    if (n->large.slabs > 0) {
        say(l, "  large blocks: ", n->large.used, ", ");
        say(l, "", n->large.made >> 10, " KiB asked, in ");
        say(l, "", n->large.slices * SLICE_BYTES >> 10, " KiB");
        line_write(l, fd);
    }
}

/* ---- heaps ---- */

/* Heaps are never unmapped, and the list only grows. */
static void heaps_say(struct line *l, int fd)
{
    for (const struct heap *h = load_acquire(&heap_all); h; h = h->next) {
        uint64_t slabs = 0;
        if (h->tid == 0 && !h->on_node)
            continue;
        for (unsigned class = 0; class < SIZE_CLASSES; class ++)
            slabs += load_relaxed(&h->bin[class].open.n);
        /* Nobody tells the heap of a program's only thread when it is forked. */
        bool named = h->pid == (int32_t)getpid();
        if (h->on_node)
            say(l, "heap of node ", h->source->node, ": ");
        else
            say(l, "heap of thread ", named ? (uint64_t)h->tid : (uint64_t)gettid(), ": ");
        say(l, "", slabs, " slabs with free blocks, ");
        say(l, "", load_relaxed(&h->spare[0].n) + load_relaxed(&h->spare[1].n), " spare, node ");
        say(l, "", h->source->node, ", ");
        say(l, "", h->slow_calls, " times out of blocks, ");
        say(l, "", h->large_allocs, " large blocks");
        line_write(l, fd);
    }
}

EXPORT void memoir_malloc_dump(int fd)
{
    struct line l = {.length = 0};
    static struct stats_counts
        counts; /* under the locks: too large for the stack of a signal handler */
    int saved = errno;
    line_text(&l, "memoir-malloc: the heap of this process");
    if (hard_level > 0) {
        struct quarantine_counts held = quarantine_counts_try();
        say(&l, "; harden=", hard_level, "");
        say(&l, ", quarantine ", held.blocks, " blocks");
        say(&l, ", ", held.bytes >> 10, " KiB");
    }
    if (load_relaxed(&thread_modes) & MODE_ACCOUNT)
        line_text(&l, "; accounted");
    line_write(&l, fd);
    uint64_t first_bytes, first_blocks = nursery_count(&first_bytes);
    say(&l, "first blocks, side by side: ", first_blocks, " used, ");
    say(&l, "", first_bytes, nursery_is_closed() ? " bytes" : " bytes; no heap yet");
    line_write(&l, fd);
    bool locked = thread_locks_try();
    for (unsigned i = 0; source_at(i); i++) {
        source_say(&l, source_at(i), fd);
        if (!locked)
            continue;
        memset(&counts, 0, sizeof(counts));
        for (struct macro *m = source_at(i)->macros; m; m = m->next)
            stats_count(m, &counts);
        counts_say(&l, &counts, fd);
    }
    if (locked)
        thread_locks_drop();
    else
        line_text(&l, "  (somebody is inside just now: sizes not known)");
    line_write(&l, fd);
    heaps_say(&l, fd);
    errno = saved;
}

/* ---- one address ---- */

static void stack_say(struct line *l, const char *title, uint32_t number)
{
    const struct depot_stack *s = depot_get(number);
    line_text(l, title);
    line_stack(l, s ? s->pcs : NULL, s ? s->n : 0);
}

static void record_say(struct line *l, const struct hard_block *b)
{
    enum hard_state state = hard_state(b);
    if (state == HARD_DAMAGED) {
        line_text(l, "  its record is damaged, or it was never given out\n");
        return;
    }
    say(l, state == HARD_LIVE ? "  live, " : "  freed, ", b->record->bytes, " bytes asked\n");
    stack_say(l, "  allocated by:\n", b->record->alloc_stack);
    if (state == HARD_FREED)
        stack_say(l, "  freed by:\n", b->record->free_stack);
}

EXPORT void memoir_malloc_explain(const void *address, int fd)
{
    struct line l = {.length = 0};
    struct hard_block b;
    int saved = errno;
    enum hard_crime found = hard_find(address, true, &b);
    line_hex(&l, (uintptr_t)address);
    if (found == HARD_FOREIGN) {
        line_text(&l, ": no memory of this heap\n");
    } else if (found != HARD_NONE) {
        line_text(&l, ": memory of this heap, but no block\n");
    } else {
        bool behind = (const char *)address < b.start;
        say(&l, ": ",
            (uint64_t)(behind ? b.start - (const char *)address : (const char *)address - b.start),
            behind ? " bytes before" : " bytes into");
        say(&l, " a block of ", b.usable, " bytes at ");
        line_hex(&l, (uintptr_t)b.start);
        line_text(&l, b.guarded ? ", guarded\n" : "\n");
        if (hard_level > 0)
            record_say(&l, &b);
    }
    line_write(&l, fd);
    errno = saved;
}
