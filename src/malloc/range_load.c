/*
 * range_load.c: make an image part of this process's heap.
 *
 * The bytes may be anybody's. Each item is checked, its memory is mapped, filled and described by what was checked; and only when the
 * last byte has come and is right does the heap learn of it. Until then everything goes back as it was by unmapping what is
 * in the list of what has come so far, which lies in the memory itself, where our own records will.
 */
#include <errno.h>
#include <memoir/malloc.h>
#include <string.h>

#include "malloc/entry.h"
#include "malloc/huge.h"
#include "malloc/node.h"
#include "malloc/range.h"
#include "malloc/range_image.h"
#include "malloc/source.h"
#include "malloc/thread.h"

/* What has come, at its beginning. */
struct staged {
    struct staged *next;
    uint64_t kind;
    uint64_t bytes, asked, offset; /* of a huge block */
};
static_assert(sizeof(struct staged) <= HUGE_HEADER && sizeof(struct staged) <= sizeof(struct macro),
              "where there will be a record of ours");

struct load {
    struct image_stream stream;
    struct image_macro macro;
    struct image_header header;
    struct staged *staged;
};

enum { LOCK_TRIES = 1000 };
static uint32_t loading; /* somebody is at it */

static struct source *source_for(const void *p)
{
    return node_many ? source_of(range_node(p)) : &source_main;
}

/* ---- staging ---- */

static int stage(struct load *l, void *at, const struct image_item *item)
{
    if (!range_take_at(at, item->bytes))
        return -EBADMSG;
    if (!os_map_held(at, item->bytes)) {
        os_places->give(at, item->bytes);
        return -ENOMEM;
    }
    if (node_many && item->kind == IMAGE_MACRO)
        node_prefer(at, item->bytes, source_for(at)->node);
    struct staged *s = at;
    *s = (struct staged){l->staged, item->kind, item->bytes, item->asked, item->offset};
    l->staged = s;
    return 0;
}

static void unstage(struct load *l)
{
    for (struct staged *s = l->staged, *next; s; s = next) {
        next = s->next;
        os_unmap(s, s->bytes);
    }
}

static int get_pages(struct load *l, char *at, size_t n)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < n; i++)
        r = image_get(&l->stream, at + i * OS_PAGE_BYTES, OS_PAGE_BYTES);
    return r;
}

/* ---- macro-blocks ---- */

/* The list of free blocks, in order. */
static void *free_list(const struct slab *s, const uint64_t *bits)
{
    char *memory = slab_memory(s);
    void *first = NULL, **link = &first;
    for (size_t i = 0; i < s->made; i++)
        if (!bit_is(bits, i)) {
            *link = memory + i * s->block_bytes;
            link = (void **)*link;
        }
    *link = NULL;
    return first;
}

static size_t count_bits(const uint64_t *bits, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < image_words((uint32_t)n); i++)
        count += (size_t)__builtin_popcountll(bits[i]);
    return count;
}

/* The words of a slab, if it may be one; else SIZE_MAX. */
static size_t slab_words(const struct image_slab *i, unsigned *next_slice)
{
    if (i->first < *next_slice || i->slices == 0 || i->first + i->slices > MACRO_SLICES || i->zero)
        return SIZE_MAX;
    *next_slice = i->first + i->slices;
    size_t bytes = (size_t)i->slices << SLICE_SHIFT;
    if (i->class == SLAB_LARGE) {
        bool fits = i->start < SLICE_BYTES && i->start % SIZE_STEP == 0 &&
                    i->asked <= bytes - i->start && i->made == 0;
        return fits ? 0 : SIZE_MAX;
    }
    if (i->class >= SIZE_CLASSES || i->slices != size_slices[i->class] || i->start || i->asked)
        return SIZE_MAX;
    uint32_t limit = (uint32_t)bytes / size_of_class(i->class);
    return i->made > 0 && i->made <= limit ? image_words(i->made) : SIZE_MAX;
}

/* Some block is in use, and none that was never made. */
static bool bits_are_right(const struct image_slab *i, const uint64_t *bits)
{
    size_t last = i->made % 64;
    return count_bits(bits, i->made) > 0 &&
           (last == 0 || bits[image_words(i->made) - 1] >> last == 0);
}

/* Checks all of a macro-block but its pages. */
static int get_macro(struct load *l, unsigned n)
{
    struct image_macro *m = &l->macro;
    size_t words = 0;
    unsigned next_slice = 1;
    int r = image_get(&l->stream, m->slabs, n * sizeof(m->slabs[0]));
    for (unsigned i = 0; r == 0 && i < n; i++) {
        size_t more = slab_words(&m->slabs[i], &next_slice);
        if (more == SIZE_MAX || more > IMAGE_WORDS_MAX - words)
            return -EBADMSG;
        words += more;
    }
    if (r == 0)
        r = image_get(&l->stream, m->words, words * sizeof(m->words[0]));
    if (r == 0)
        r = image_get(&l->stream, m->pages, sizeof(m->pages));
    if (r < 0)
        return r;
    const uint64_t *bits = m->words;
    for (unsigned i = 0; i < n; bits += image_words(m->slabs[i].made), i++)
        if (m->slabs[i].class != SLAB_LARGE && !bits_are_right(&m->slabs[i], bits))
            return -EBADMSG;
    return 0;
}

/* No page may come for where no slab is: there our records are, or what has to be zero. */
static bool pages_are_right(const struct image_macro *m, unsigned n)
{
    unsigned slab = 0;
    for (size_t i = 0; i < IMAGE_MACRO_PAGES; i++) {
        size_t slice = i * OS_PAGE_BYTES >> SLICE_SHIFT;
        while (slab < n && slice >= (size_t)m->slabs[slab].first + m->slabs[slab].slices)
            slab++;
        if (bit_is(m->pages, i) && (slab == n || slice < m->slabs[slab].first))
            return false;
    }
    return true;
}

/* A descriptor, of a slab that nobody owns. Pooled ones are linked later. */
static void make_slab(struct macro *m, const struct image_slab *i, const uint64_t *bits)
{
    struct slab *s = macro_slab(m, i->first);
    s->slices = i->slices;
    s->class = i->class;
    if (i->class == SLAB_LARGE) {
        s->start = i->start;
        s->asked = i->asked;
        return;
    }
    for (unsigned k = 1; k < i->slices; k++)
        s[k].back = (uint8_t)k;
    s->block_bytes = size_of_class(i->class);
    s->limit = ((uint32_t)i->slices << SLICE_SHIFT) / s->block_bytes;
    s->made = i->made;
    s->used = (uint32_t)count_bits(bits, i->made);
    s->free = free_list(s, bits);
    s->remote = s->used == s->limit ? remote_word(s, SLAB_FULL, 0, NULL)
                                    : remote_pooled(s, s->used, 0, NULL);
}

static int load_macro(struct load *l, struct image_item *item)
{
    char *at = (char *)(uintptr_t)item->at;
    struct image_macro *m = &l->macro;
    if (item->n == 0 || item->n > MACRO_SLICES_USABLE || item->at % MACRO_BYTES || item->bytes ||
        item->asked || item->offset)
        return -EBADMSG;
    int r = get_macro(l, item->n);
    if (r < 0)
        return r;
    if (!pages_are_right(m, item->n))
        return -EBADMSG;
    item->bytes = MACRO_BYTES;
    r = stage(l, at, item);
    for (size_t i = 0; r == 0 && i < IMAGE_MACRO_PAGES; i++)
        if (bit_is(m->pages, i))
            r = get_pages(l, at + i * OS_PAGE_BYTES, 1);
    const uint64_t *bits = m->words;
    for (unsigned i = 0; r == 0 && i < item->n; bits += image_words(m->slabs[i].made), i++)
        make_slab((struct macro *)at, &m->slabs[i], bits);
    return r;
}

/* ---- huge blocks ---- */

static bool huge_is_right(const struct image_item *i)
{
    bool alone = i->at % MAP_UNIT_BYTES != 0;
    size_t lead = alone ? OS_PAGE_MAX : 0;
    if ((i->at + lead) % MAP_UNIT_BYTES || i->n || i->bytes % os_page_bytes())
        return false;
    bool offset = alone ? i->offset == OS_PAGE_MAX
                        : i->offset >= HUGE_HEADER && i->offset < MAP_UNIT_BYTES &&
                              i->offset % SIZE_STEP == 0;
    return offset && i->bytes > i->offset && i->asked <= i->bytes - i->offset;
}

static int load_huge(struct load *l, const struct image_item *item)
{
    char *at = (char *)(uintptr_t)item->at;
    if (!huge_is_right(item))
        return -EBADMSG;
    int r = stage(l, at, item);
    for (uint64_t next = 0, pages = item->bytes / OS_PAGE_BYTES; r == 0;) {
        struct image_run run;
        r = image_get(&l->stream, &run, sizeof(run));
        if (r < 0)
            break;
        if (run.n == 0)
            return run.first == 0 ? 0 : -EBADMSG;
        if (run.first < next || run.first >= pages || run.n > pages - run.first ||
            run.n > IMAGE_RUN_PAGES)
            return -EBADMSG;
        struct staged kept = *(struct staged *)at; /* the first page is ours at its beginning */
        r = get_pages(l, at + run.first * OS_PAGE_BYTES, run.n);
        *(struct staged *)at = kept;
        next = run.first + run.n;
    }
    return r;
}

/* ---- all ---- */

static int get_header(struct load *l)
{
    const struct range_plan *plan = range_here();
    struct image_header *h = &l->header;
    int r = image_get(&l->stream, h, sizeof(*h));
    if (r < 0)
        return r;
    if (memcmp(h->magic, IMAGE_MAGIC, sizeof(h->magic)) != 0)
        return -EBADMSG;
    if (h->version != IMAGE_VERSION || h->bytes != sizeof(*h) || h->layout != IMAGE_LAYOUT)
        return -EPROTONOSUPPORT;
    if (h->check != image_header_check(h) || h->zero != 0)
        return -EBADMSG;
    if (h->base != range_plan_from(plan) || h->range_bytes != plan->bytes || h->slot != plan->slot)
        return -EXDEV;
    return h->root == 0 || h->root - h->base < h->range_bytes ? 0 : -EBADMSG;
}

static int get_items(struct load *l)
{
    for (;; l->stream.items++) {
        struct image_item item;
        uint64_t check = l->stream.check;
        int r = image_get(&l->stream, &item, sizeof(item));
        if (r < 0)
            return r;
        if (item.kind == IMAGE_MACRO)
            r = load_macro(l, &item);
        else if (item.kind == IMAGE_HUGE)
            r = load_huge(l, &item);
        else
            return item.kind == IMAGE_END && item.at == l->stream.items && item.bytes == check &&
                           !item.n && !item.asked && !item.offset
                       ? 0
                       : -EBADMSG;
        if (r < 0)
            return r;
    }
}

static char *staged_unit(struct staged *s)
{
    return (char *)s + ((uintptr_t)s % MAP_UNIT_BYTES ? OS_PAGE_MAX : 0);
}

/* Tell the address map of all that has come. Nobody asks it about these addresses yet. */
static int tell_map(struct load *l)
{
    struct staged *s = l->staged;
    for (; s; s = s->next) {
        enum map_kind kind = s->kind == IMAGE_MACRO        ? MAP_MACRO
                             : staged_unit(s) == (char *)s ? MAP_HUGE
                                                           : MAP_HUGE_ALONE;
        if (!map_set(staged_unit(s), 1, kind))
            break;
    }
    if (!s)
        return 0;
    for (struct staged *done = l->staged; done != s; done = done->next)
        map_set(staged_unit(done), 1, MAP_NONE);
    return -ENOMEM;
}

/* With the source's lock. Slices that no slab has are free, and clean. */
static void macro_adopt(struct source *s, struct macro *m)
{
    memset(m, 0, sizeof(*m));
    source_macro_join(s, m);
    for (unsigned i = 1, first; i < MACRO_SLICES;) {
        for (first = i; i < MACRO_SLICES && macro_slab(m, i)->slices == 0;)
            i++;
        if (i > first)
            runs_insert(s, m, first, i - first);
        if (i == MACRO_SLICES)
            break;
        struct slab *slab = macro_slab(m, i);
        bits_store(m->dirty, bits_of(m->dirty) | bits_run(i, slab->slices));
        if (slab->class < SIZE_CLASSES && remote_state(slab->remote) == SLAB_POOLED)
            source_pool_link(s, slab);
        i += slab->slices;
    }
    store_relaxed(&s->n_used, s->n_used + MACRO_SLICES_USABLE - m->n_free);
    s->n_peak = s->n_used > s->n_peak ? s->n_used : s->n_peak;
}

static void adopt_all(struct load *l)
{
    for (struct staged *s = l->staged, *next; s; s = next) {
        struct staged kept = *s;
        next = kept.next;
        if (kept.kind == IMAGE_HUGE) {
            huge_adopt(s, kept.bytes, kept.asked, kept.offset);
            continue;
        }
        struct source *source = source_for(s);
        lock_take(&source->lock);
        macro_adopt(source, (struct macro *)s);
        lock_drop(&source->lock);
    }
}

/* All locks, if no other thread has a heap: who has one has slabs in his hands, which cannot be left to nobody behind his back. */
static bool alone_lock(void)
{
    for (int i = 0; !thread_locks_try(); i++) {
        if (i == LOCK_TRIES)
            return false;
        cpu_relax();
    }
    for (struct heap *h = heap_all; h; h = h->next)
        if (h != heap_own && h->tid != 0) {
            thread_locks_drop();
            return false;
        }
    return true;
}

static int commit(struct load *l)
{
    if (!alone_lock())
        return -EBUSY;
    range_open();
    thread_locks_drop();
    adopt_all(l);
    return 0;
}

static int load_all(struct load *l)
{
    if (!alone_lock())
        return -EBUSY;
    thread_locks_drop();
    int r = get_header(l);
    if (r == 0)
        r = get_items(l);
    if (r == 0)
        r = tell_map(l);
    if (r < 0)
        goto fail;
    r = commit(l);
    if (r == 0)
        return 0;
    for (struct staged *s = l->staged; s; s = s->next)
        map_set(staged_unit(s), 1, MAP_NONE);
fail:
    unstage(l);
    return r;
}

static int load_from(int fd, void **ret_root)
{
    struct load *l = os_map(sizeof(*l), 1);
    if (!l)
        return -ENOMEM;
    l->stream.fd = fd;
    int r = load_all(l);
    if (r == 0 && ret_root)
        *ret_root = (void *)(uintptr_t)l->header.root;
    os_unmap(l, sizeof(*l));
    return r;
}

EXPORT int memoir_malloc_range_load(int fd, void **ret_root)
{
    enum range_state state;
    uint32_t none = 0;
    int saved = errno;
    int r = range_state_moved(&state);
    if (r < 0)
        return r;
    if (!cas_acquire(&loading, &none, 1))
        return -EBUSY;
    range_state(&state); /* as the last one has left it */
    r = state == RANGE_WAITING ? load_from(fd, ret_root) : -EEXIST;
    store_release(&loading, 0);
    errno = saved;
    return r;
}
