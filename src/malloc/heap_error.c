/* heap_error.c: see heap_error.h. The message is like those of harden_report.c:
 *
 *   memoir-malloc: double free of a block of 24 bytes at 0x7f21a0400040, allocated by /usr/bin/program+0x1299
 *     now by:
 *       /usr/bin/program+0x1234
 */
#include "malloc/heap_error.h"

#include <string.h>
#include <unistd.h>

#include "malloc/depot.h"
#include "malloc/fatal.h"
#include "malloc/heap.h"
#include "malloc/huge.h"
#include "malloc/line.h"
#include "malloc/nursery.h"
#include "malloc/words.h"
#include "track/early.h"

/* ---- lists ---- */

static bool list_has(const struct slab *s, const void *first, const void *block)
{
    const char *from = slab_memory(s), *to = from + ((size_t)s->slices << SLICE_SHIFT);
    const void *at = first;
    for (uint32_t n = 0; at && n <= s->limit; n++) {
        if (at == block)
            return true;
        if ((const char *)at < from || (const char *)at >= to || (uintptr_t)at % SIZE_STEP != 0)
            return false;
        at = load_relaxed((void *const *)at);
    }
    return false;
}

bool heap_error_is_free(const struct slab *s, const void *block)
{
    struct heap *h = heap_own;
    if (s->class >= SIZE_CLASSES)
        return false;
    return list_has(s, load_relaxed(&s->free), block) ||
           list_has(s, remote_head(s, load_acquire(&s->remote)), block) ||
           (h && list_has(s, h->strays[s->class].first, block));
}

/* ---- what is known of a block ---- */

struct known {
    const char *start; /* of the block around the address; NULL: none */
    size_t bytes;      /* asked for, or its room where that is not known */
    bool is_free;
    uint32_t site; /* as in the book; BOOK_SITE_NONE: not known */
};

static void word_known(struct known *k, struct word word, size_t room)
{
    k->site = word.low >> WORD_SITE_SHIFT;
    if ((word.low || word.high) && !(word.high & WORD_ODD))
        k->bytes = room - (word.high >> WORD_SLACK_SHIFT);
}

static void small_known(struct known *k, const struct slab *s, const char *p)
{
    size_t number = (size_t)(p - slab_memory(s)) / s->block_bytes;
    struct word *words = load_acquire(&s->words);
    if (number >= s->made)
        return;
    k->start = slab_memory(s) + number * s->block_bytes;
    k->bytes = s->block_bytes;
    k->is_free = heap_error_is_free(s, k->start);
    if (words)
        word_known(k, *words_at(words, s, k->start), s->block_bytes);
}

static void large_known(struct known *k, const struct slab *s)
{
    k->start = slab_memory(s) + s->start;
    k->bytes = large_usable(s);
    if (s->large_word.high) {
        k->bytes = s->asked;
        k->site = s->large_word.low >> WORD_SITE_SHIFT;
    }
}

/* Only the start of a huge block leads to it, and that of one that is gone to none. */
static struct known known_of(const char *p)
{
    struct known k = {.site = BOOK_SITE_NONE};
    if (nursery_has(p)) {
        k.start = nursery_around(p);
        k.bytes = k.start ? nursery_usable(k.start) : 0;
    } else if (map_kind(p) == MAP_MACRO) {
        struct slab *s = slab_of(p);
        bool there = macro_of(s) == macro_of(p) && slab_slice(s) > 0 &&
                     p < slab_memory(s) + ((size_t)s->slices << SLICE_SHIFT);
        if (there && s->class == SLAB_LARGE)
            large_known(&k, s);
        else if (there && s->class < SIZE_CLASSES && s->block_bytes > 0)
            small_known(&k, s, p);
    }
    return k;
}

/* ---- the message ---- */

/* As the book has it, or the table before there is one. */
static void site_say(struct line *l, uint32_t site)
{
    const struct tracker *tracker = load_acquire(&track_page.root.tracker);
    if (site == BOOK_SITE_NONE)
        return;
    if (!tracker) {
        if (site < early.n_sites) {
            line_text(l, ", allocated by ");
            line_code(l, early.site[site].caller);
        }
        return;
    }
    const struct book_writer *w = &tracker->writer;
    const struct book_section *sites = w->section[BOOK_SECTION_SITES];
    const struct book_section *frames = w->section[BOOK_SECTION_FRAMES];
    const struct book_section *modules = w->section[BOOK_SECTION_MODULES];
    if (!sites || !frames || !modules || site >= load_acquire(&sites->used))
        return;
    const struct book_site *at = (const struct book_site *)w->at[BOOK_SECTION_SITES] + site;
    if (at->frames == 0 || at->first_frame >= load_acquire(&frames->used))
        return;
    uint64_t frame = ((const uint64_t *)w->at[BOOK_SECTION_FRAMES])[at->first_frame];
    uint32_t module = BOOK_FRAME_MODULE(frame);
    if (module == 0 || module >= load_acquire(&modules->used))
        return;
    const struct book_module *of = (const struct book_module *)w->at[BOOK_SECTION_MODULES] + module;
    line_text(l, ", allocated by ");
    line_code(l, of->bias + BOOK_FRAME_OFFSET(frame));
}

static void block_say(struct line *l, const char *what, const struct known *k, const char *p)
{
    line_text(l, what);
    line_number(l, k->bytes);
    line_text(l, " bytes at ");
    line_hex(l, (uintptr_t)p);
    site_say(l, k->site);
}

_Noreturn void heap_error(const char *function, const void *p)
{
    struct unwind_state from = UNWIND_STATE_CALLER();
    const struct depot_stack *stack = depot_get(depot_add(&from));
    struct known k = known_of(p);
    struct line l = {.length = 0};
    line_text(&l, "memoir-malloc: ");
    if (k.start && k.is_free) {
        block_say(&l,
                  strcmp(function, "free") == 0 ? "double free of a block of "
                                                : "realloc of a freed block of ",
                  &k, p);
    } else if (k.start && k.start != p) {
        line_text(&l, function);
        line_text(&l, " of an invalid pointer, ");
        line_number(&l, (uint64_t)((const char *)p - k.start));
        block_say(&l, " bytes into a block of ", &k, k.start);
    } else {
        line_text(&l, function);
        line_text(&l, " of an invalid pointer at ");
        line_hex(&l, (uintptr_t)p);
        line_text(&l, ": not allocated by this heap");
    }
    line_text(&l, "\n  now by:\n");
    line_stack(&l, stack ? stack->pcs : NULL, stack ? stack->n : 0);
    line_write(&l, STDERR_FILENO);
    fatal_end();
}
