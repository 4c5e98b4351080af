/* See heap.h. */
#include "scan/heap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "base/cleanup.h"
#include "scan/maps.h"
#include "scan/memory.h"

enum {
    PAGES_AT_ONCE = 256,
    PAGES_MAX = 1 << 20, /* of data, which are looked at for a root: 4 GB */
};

#define ADDRESS_MAX (UINT64_C(1) << 57) /* of a program, with five levels of page tables */

struct reader {
    struct scan_memory *memory;
    const struct scan_regions *regions;
    struct malloc_root root;
    struct scan_heap *heap;
    size_t room_macros, room_chains, room_lots;
    struct slab descriptors[MACRO_SLICES];
};

static bool read_at(struct reader *r, const void *address, void *to, size_t bytes)
{
    return address && scan_memory_read(r->memory, (uintptr_t)address, to, bytes) == bytes;
}

/* ---- the root ---- */

static bool is_root(const struct malloc_root *root, uint64_t address)
{
    return memcmp(root->magic, ROOT_MAGIC, sizeof(root->magic)) == 0 &&
           (uintptr_t)root->self == address;
}

/* One of up to PAGES_AT_ONCE pages that follow each other. */
static bool pages_look(struct reader *r, uint64_t start, size_t n)
{
    static const size_t head = offsetof(struct malloc_root, source_main);
    struct iovec places[PAGES_AT_ONCE] = {0};
    struct malloc_root root = {0};
    uint8_t *heads = r->memory->window;
    for (size_t i = 0; i < n; i++)
        places[i] = (struct iovec){(void *)(uintptr_t)(start + i * ROOT_ALIGN), head};
    bool all = scan_memory_read_many(r->memory, places, n, heads, n * head);
    for (size_t i = 0; i < n; i++) {
        uint64_t at = start + i * ROOT_ALIGN;
        if (all)
            memcpy(&root, heads + i * head, head);
        else if (!read_at(r, (void *)(uintptr_t)at, &root, head))
            continue;
        if (is_root(&root, at) && read_at(r, (void *)(uintptr_t)at, &r->root, sizeof(r->root)) &&
            is_root(&r->root, at))
            return true;
    }
    return false;
}

static int root_find(struct reader *r)
{
    uint64_t pages = 0;
    for (size_t i = 0; i < r->regions->n; i++) {
        const struct scan_region *region = &r->regions->regions[i];
        if (region->anonymous || region->shared || !region->readable || !region->writable)
            continue;
        uint64_t at = (region->start + ROOT_ALIGN - 1) & ~(uint64_t)(ROOT_ALIGN - 1);
        while (at < region->end && pages < PAGES_MAX) {
            uint64_t left = (region->end - at) / ROOT_ALIGN;
            size_t n = left < PAGES_AT_ONCE ? (size_t)left : PAGES_AT_ONCE;
            if (n == 0)
                break;
            if (pages_look(r, at, n))
                return r->root.version == ROOT_VERSION && r->root.bytes == sizeof(r->root) &&
                               r->root.layout == ROOT_LAYOUT
                           ? 0
                           : -EPROTO;
            at += n * ROOT_ALIGN;
            pages += n;
        }
    }
    return -ENOENT;
}

/* ---- chains ---- */

static void *grown(void *array, size_t *room, size_t n, size_t each)
{
    if (n < *room)
        return array;
    size_t more = *room ? *room * 2 : 64;
    void *larger = reallocarray(array, more, each);
    if (larger)
        *room = more;
    return larger;
}

static int chain_by_address(const void *a, const void *b)
{
    uint64_t x = ((const struct scan_heap_chain *)a)->address;
    uint64_t y = ((const struct scan_heap_chain *)b)->address;
    return x < y ? -1 : x > y;
}

static unsigned spare_slices(const struct heap *h)
{
    unsigned slices = 0;
    for (unsigned i = 0; i < HEAP_SPARE_SLICES; i++)
        slices += h->spare[i].n <= HEAP_SPARES ? h->spare[i].n * (i + 1) : 0;
    return slices;
}

static int chains_read(struct reader *r)
{
    struct scan_heap *heap = r->heap;
    struct heap *at = NULL;
    if (!read_at(r, r->root.heaps, &at, sizeof(at)))
        return -EFAULT;
    for (; at; heap->n_chains++) {
        struct heap copy;
        if (heap->n_chains == SCAN_HEAP_CHAINS_MAX || !read_at(r, at, &copy, sizeof(copy))) {
            heap->cut = true;
            break;
        }
        void *room = grown(heap->chains, &r->room_chains, heap->n_chains, sizeof(*heap->chains));
        if (!room)
            return -ENOMEM;
        heap->chains = room;
        heap->chains[heap->n_chains] = (struct scan_heap_chain){
            .address = (uintptr_t)at,
            .tid = copy.tid > 0 ? copy.tid : 0,
            .on_node = ((const unsigned char *)&copy)[offsetof(struct heap, on_node)] != 0,
            .spares = spare_slices(&copy),
            .slow_calls = copy.slow_calls,
            .large_allocs = copy.large_allocs,
        };
        heap->chain_bytes += sizeof(copy);
        at = copy.next;
    }
    if (heap->n_chains)
        qsort(heap->chains, heap->n_chains, sizeof(*heap->chains), chain_by_address);
    return 0;
}

static struct scan_heap_chain *chain_of(struct scan_heap *heap, const void *owner)
{
    struct scan_heap_chain key = {.address = (uintptr_t)owner};
    if (!owner || heap->n_chains == 0)
        return NULL;
    return bsearch(&key, heap->chains, heap->n_chains, sizeof(key), chain_by_address);
}

/* ---- macro-blocks ---- */

/* How many blocks of a slab the program has. */
static uint32_t slab_used(const struct slab *s)
{
    uint32_t count = remote_count(s->remote), used;
    switch (remote_state(s->remote)) {
    case SLAB_FULL:
        used = s->made;
        break;
    case SLAB_POOLED:
        used = remote_used(s->remote);
        break;
    default:
        used = slab_out(s);
        break;
    }
    used = used > count ? used - count : 0;
    return used < s->made ? used : s->made;
}

static void slab_add(struct scan_heap *heap, const struct slab *s)
{
    struct scan_heap_class *c = &heap->classes[s->class];
    struct scan_heap_chain *chain = NULL;
    uint32_t used = slab_used(s), state = (uint32_t)remote_state(s->remote);
    uint32_t remote = remote_count(s->remote);
    c->slabs++;
    c->slices += s->slices;
    c->owned += state == SLAB_OWNED;
    c->full += state == SLAB_FULL;
    c->pooled += state == SLAB_POOLED;
    c->used += used;
    c->free += s->made - used;
    c->remote += remote < s->made ? remote : 0;
    c->uncut += s->limit - s->made;
    if (state == SLAB_OWNED && (chain = chain_of(heap, s->owner)) != NULL) {
        chain->slabs++;
        chain->used_blocks += used;
        chain->used_bytes += (uint64_t)used * s->block_bytes;
        chain->free_bytes += (uint64_t)(s->made - used) * s->block_bytes;
    }
}

bool scan_heap_sensible(const struct slab *s)
{
    if (s->class == SLAB_LARGE)
        return s->asked <= (uint64_t)s->slices << SLICE_SHIFT;
    return s->class < SIZE_CLASSES && s->block_bytes == size_of_class(s->class) &&
           s->limit <= ((uint32_t)s->slices << SLICE_SHIFT) / s->block_bytes && s->made <= s->limit;
}

static void macro_add(struct reader *r)
{
    struct scan_heap *heap = r->heap;
    struct macro macro;
    memcpy(&macro, r->descriptors, sizeof(macro));
    for (unsigned i = 1; i < MACRO_SLICES;) {
        const struct slab *s = &r->descriptors[i];
        bool dirty = macro.dirty[i / 64] >> i % 64 & 1;
        /* Or being purged: then its descriptor is of an earlier slab. */
        if ((macro.free[i / 64] | macro.purging[i / 64]) >> i % 64 & 1) {
            heap->kept_slices += dirty;
            heap->given_slices += !dirty;
            i++;
            continue;
        }
        unsigned slices = s->slices;
        if (slices == 0 || slices > MACRO_SLICES - i) {
            heap->broken++; /* or about to be a slab */
            i++;
            continue;
        }
        if (s->class == SLAB_UNUSED) {
            heap->spare_slices += slices;
        } else if (!scan_heap_sensible(s)) {
            heap->broken++;
        } else if (s->class == SLAB_LARGE) {
            heap->large_blocks++;
            heap->large_asked += s->asked;
            heap->large_slices += slices;
        } else {
            slab_add(heap, s);
        }
        i += slices;
    }
}

/* A list that leads back to itself is found out by a mark that moves on ever less often (Brent). */
static int macros_read(struct reader *r, const struct macro *at, bool addresses_only)
{
    struct scan_heap *heap = r->heap;
    const struct macro *mark = NULL;
    size_t steps = 0, until = 1;
    while (at) {
        size_t bytes = addresses_only ? sizeof(struct macro) : sizeof(r->descriptors);
        if ((uintptr_t)at % MACRO_BYTES != 0 || at == mark ||
            heap->n_macros == SCAN_HEAP_MACROS_MAX || !read_at(r, at, r->descriptors, bytes)) {
            heap->cut = true;
            return 0;
        }
        void *room = grown(heap->macros, &r->room_macros, heap->n_macros, sizeof(*heap->macros));
        if (!room)
            return -ENOMEM;
        heap->macros = room;
        heap->macros[heap->n_macros++] = (uintptr_t)at;
        if (!addresses_only)
            macro_add(r);
        if (++steps == until) {
            mark = at;
            until *= 2;
        }
        struct macro macro;
        memcpy(&macro, r->descriptors, sizeof(macro));
        at = macro.next;
    }
    return 0;
}

/* A node may have several (malloc/spread.h). There is room for one node for each. */
static void node_count(struct scan_heap *heap, const struct source *source)
{
    struct scan_heap_node *node = heap->nodes;
    while (node < heap->nodes + heap->n_nodes && node->node != source->node)
        node++;
    if (node == heap->nodes + heap->n_nodes) {
        *node = (struct scan_heap_node){.node = source->node};
        heap->n_nodes++;
    }
    node->macros += source->n_macros;
    node->used_slices += source->n_used;
    node->kept_slices += source->n_dirty_free;
    node->purges += source->total_purges;
    node->purged_slices += source->total_purged;
    node->refaulted_slices += source->total_refaulted;
    node->macros_mapped += source->total_macros;
    node->macros_unmapped += source->total_unmapped;
}

static int sources_read(struct reader *r, bool addresses_only)
{
    struct scan_heap *heap = r->heap;
    unsigned n = 0;
    if (!read_at(r, r->root.sources_n, &n, sizeof(n)) || n == 0 || n > SCAN_HEAP_NODES_MAX)
        n = 1;
    heap->nodes = calloc(n, sizeof(*heap->nodes));
    if (!heap->nodes)
        return -ENOMEM;
    for (unsigned i = 0; i < n; i++) {
        struct source source;
        uintptr_t at = i ? (uintptr_t)r->root.sources_more + (i - 1) * sizeof(source)
                         : (uintptr_t)r->root.source_main;
        if (!read_at(r, (void *)at, &source, sizeof(source)))
            return i ? 0 : -EFAULT;
        node_count(heap, &source);
        int error = macros_read(r, source.macros, addresses_only);
        if (error < 0)
            return error;
    }
    return 0;
}

/* ---- lots of words ---- */

/* A lot that comes a second time lies where another does: that is found out when they are in order. */
static int lots_read(struct reader *r)
{
    struct scan_heap *heap = r->heap;
    const struct words_lot *at = NULL;
    if (!read_at(r, r->root.words, &at, sizeof(at)))
        return -EFAULT;
    while (at) {
        struct words_lot copy;
        if (heap->n_lots == SCAN_HEAP_LOTS_MAX || (uintptr_t)at >= ADDRESS_MAX ||
            !read_at(r, at, &copy, sizeof(copy))) {
            heap->cut = true;
            break;
        }
        void *room = grown(heap->lots, &r->room_lots, heap->n_lots, sizeof(*heap->lots));
        if (!room)
            return -ENOMEM;
        heap->lots = room;
        heap->lots[heap->n_lots++] = (uintptr_t)at;
        for (unsigned i = 0; i < LOT_PARTS; i++)
            heap->lot_bytes += copy.cut[i] > (i ? 0 : LOT_HEADER) ? LOT_PART_BYTES
                               : i == 0                           ? sizeof(copy)
                                                                  : 0;
        at = copy.next;
    }
    return 0;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* ---- all of it ---- */

/* Ranges that end before they begin, or that nobody can have, go. */
static void huge_cache_trim(struct huge_cache *cache)
{
    unsigned n = 0;
    for (unsigned i = 0; i < cache->n; i++) {
        uint64_t start = (uintptr_t)cache->ranges[i].at, bytes = cache->ranges[i].bytes;
        if (start < ADDRESS_MAX && bytes <= ADDRESS_MAX - start)
            cache->ranges[n++] = cache->ranges[i];
    }
    cache->n = n;
}

static int all_read(struct reader *r, bool macros_only)
{
    struct scan_heap *heap = r->heap;
    int error = macros_only ? 0 : chains_read(r);
    if (error == 0)
        error = sources_read(r, macros_only);
    if (error < 0)
        return error;
    error = lots_read(r);
    if (error < 0)
        return error;
    if (heap->n_macros)
        qsort(heap->macros, heap->n_macros, sizeof(uint64_t), by_number);
    if (heap->n_lots)
        qsort(heap->lots, heap->n_lots, sizeof(uint64_t), by_number);
    struct huge_look huge = {0};
    if (!read_at(r, r->root.huge, &huge, sizeof(huge)) ||
        !read_at(r, huge.cache, &heap->huge_cache, sizeof(heap->huge_cache)) ||
        heap->huge_cache.n > HUGE_CACHE_RANGES)
        heap->huge_cache = (struct huge_cache){0};
    huge_cache_trim(&heap->huge_cache);
    if (macros_only)
        return 0;
    if (!read_at(r, r->root.os, &heap->os, sizeof(heap->os)) ||
        !read_at(r, huge.counts, &heap->huge, sizeof(heap->huge)) ||
        !read_at(r, r->root.settings, &heap->settings, sizeof(heap->settings)))
        return -EFAULT;
    return 0;
}

int scan_heap_read_from(struct scan_memory *memory, const struct scan_regions *regions,
                        bool macros_only, struct scan_heap **ret_heap)
{
    MEMOIR_CLEANUP(scan_heap_freep)
    struct scan_heap *heap = calloc(1, sizeof(*heap));
    MEMOIR_CLEANUP(freep)
    struct reader *r = calloc(1, sizeof(*r));
    if (!heap || !r)
        return -ENOMEM;
    *r = (struct reader){.memory = memory, .regions = regions, .heap = heap};
    int error = root_find(r);
    if (error == 0)
        error = all_read(r, macros_only);
    if (error < 0)
        return error;
    *ret_heap = MEMOIR_TAKE(heap);
    return 0;
}

/* Nobody tells the heap of a program's only thread when it is forked: it has the parent's number still. */
static void only_thread_set(struct scan_heap *heap, pid_t pid)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    struct scan_heap_chain *only = NULL;
    size_t n = 0;
    for (size_t i = 0; i < heap->n_chains; i++)
        if (heap->chains[i].tid > 0) {
            only = &heap->chains[i];
            n++;
        }
    if (n == 1 && stat(path, &st) == 0 && st.st_nlink == 3) /* a folder of a single one */
        only->tid = pid;
}

int scan_heap_read(pid_t pid, struct scan_heap **ret_heap)
{
    struct scan_regions regions = {0};
    struct scan_memory memory;
    int r = scan_memory_open(&memory, pid);
    if (r < 0)
        return r;
    r = scan_regions_read(pid, &regions);
    if (r == 0)
        r = scan_heap_read_from(&memory, &regions, false, ret_heap);
    if (r == 0)
        only_thread_set(*ret_heap, pid);
    if (r == -EFAULT)
        r = -EACCES;
    scan_regions_release(&regions);
    scan_memory_close(&memory);
    return r;
}

void scan_heap_free(struct scan_heap *heap)
{
    if (!heap)
        return;
    free(heap->chains);
    free(heap->nodes);
    free(heap->macros);
    free(heap->lots);
    free(heap);
}

void scan_heap_freep(struct scan_heap **heap)
{
    scan_heap_free(*heap);
}

/* ---- whose memory it is ---- */

/* How many of the addresses, which are in order, are not above this one. */
static size_t count_below(const uint64_t *addresses, size_t n, uint64_t address)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (addresses[middle] <= address)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

/* The range among those of equal size that an address lies in; where it ends, or where the next one begins. */
static bool range_of(const uint64_t *starts, size_t n, uint64_t bytes, uint64_t address,
                     uint64_t *ret_next)
{
    size_t below = count_below(starts, n, address);
    bool inside = below > 0 && address - starts[below - 1] < bytes;
    *ret_next = inside ? starts[below - 1] + bytes : below < n ? starts[below] : UINT64_MAX;
    return inside;
}

uint64_t scan_heap_macro(const struct scan_heap *heap, uint64_t address)
{
    uint64_t next;
    bool inside = range_of(heap->macros, heap->n_macros, MACRO_BYTES, address, &next);
    return inside ? next - MACRO_BYTES : 0;
}

uint64_t scan_heap_stretch(const struct scan_heap *heap, uint64_t address, bool *ret_own)
{
    uint64_t next, next_lot;
    *ret_own = range_of(heap->macros, heap->n_macros, MACRO_BYTES, address, &next);
    if (*ret_own)
        return next;
    *ret_own = range_of(heap->lots, heap->n_lots, LOT_BYTES, address, &next_lot);
    if (*ret_own)
        return next_lot;
    next = next < next_lot ? next : next_lot;
    for (unsigned i = 0; i < heap->huge_cache.n; i++) {
        uint64_t start = (uintptr_t)heap->huge_cache.ranges[i].at;
        uint64_t bytes = heap->huge_cache.ranges[i].bytes;
        if (address - start < bytes) {
            *ret_own = true;
            return start + bytes;
        }
        if (start > address && start < next)
            next = start;
    }
    return next;
}
