/* region.c: see region.h. */
#include "pin/region.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/kernel.h"

enum {
    PAGE = 4096,
    LOOK_MAX = 64,
    SPACE_SMALL = 0,
    SPACE_LARGE = 1,
    OPEN_BYTES = 32 << 20, /* a step by which a space is opened */
    PLAIN_BYTES = 8 << 20, /* of small extents: a few of them would waste most of a huge page */
};

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

/* Without the C library's functions: libraries that account mappings wrap these, and must not count
 * this address space. */
static void *map(uint64_t bytes, int protection)
{
    int saved = errno;
    long r = syscall(SYS_mmap, NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                     -1, 0L);
    errno = saved;
    return r == -1 ? NULL : (void *)r;
}

static void advise(uintptr_t at, uint64_t bytes, int advice)
{
    (void)kernel_call(SYS_madvise, (long)at, (long)bytes, advice, 0, 0);
}

void *region_table(uint64_t bytes)
{
    return map(bytes, PROT_READ | PROT_WRITE);
}

uint64_t region_pages(uint64_t bytes)
{
    return (bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1);
}

static int space_init(struct region_space *space, uint64_t bytes, uint64_t least, uint32_t unit)
{
    for (; bytes >= least; bytes /= 2) {
        void *at = map(bytes + REGION_LARGE_UNIT,
                       PROT_NONE); /* a writable one would be filled by mlockall() */
        if (!at)
            continue;
        space->map = region_table(bytes / unit * sizeof(uint32_t));
        if (!space->map)
            return -ENOMEM;
        space->start =
            ((uintptr_t)at + REGION_LARGE_UNIT - 1) & ~(uintptr_t)(REGION_LARGE_UNIT - 1);
        uint64_t plain = unit == REGION_LARGE_UNIT ? 0 : PLAIN_BYTES;
        advise(space->start, plain, MADV_NOHUGEPAGE);
        advise(space->start + plain, bytes - plain, MADV_HUGEPAGE);
        space->unit = unit;
        store_release(&space->bytes, bytes);
        return 0;
    }
    return -ENOMEM;
}

int region_init(struct region *region)
{
    region->extents = region_table((uint64_t)REGION_EXTENTS_MAX * sizeof(struct extent));
    region->n_extents = 1;
    if (!region->extents)
        return -ENOMEM;
    int r = space_init(&region->space[SPACE_SMALL], REGION_SMALL_BYTES, UINT64_C(1) << 30,
                       REGION_SMALL_UNIT);
    if (r < 0)
        return r;
    return space_init(&region->space[SPACE_LARGE], REGION_LARGE_BYTES, UINT64_C(4) << 30,
                      REGION_LARGE_UNIT);
}

struct extent *region_find(const struct region *region, const void *address)
{
    for (unsigned i = 0; i < REGION_SPACES; i++) {
        const struct region_space *space = &region->space[i];
        uintptr_t offset = (uintptr_t)address - space->start;
        if (offset >= load_acquire(&space->bytes))
            continue;
        uint32_t number = load_acquire(&space->map[offset / space->unit]);
        return number ? &region->extents[number] : NULL;
    }
    return NULL;
}

/* ---- lists ---- */

static uint32_t number_of(const struct region *region, const struct extent *e)
{
    return (uint32_t)(e - region->extents);
}

static unsigned bin_of(uint64_t units)
{
    unsigned bin = 63 - (unsigned)__builtin_clzll(units);
    return bin < REGION_BINS ? bin : REGION_BINS - 1;
}

static void bin_add(struct region *region, struct extent *e)
{
    struct region_space *space = &region->space[e->space];
    uint32_t *head = &space->bins[bin_of(e->bytes / space->unit)];
    e->bin_previous = 0;
    e->bin_next = *head;
    if (*head)
        region->extents[*head].bin_previous = number_of(region, e);
    *head = number_of(region, e);
}

static void bin_remove(struct region *region, struct extent *e)
{
    struct region_space *space = &region->space[e->space];
    if (e->bin_previous)
        region->extents[e->bin_previous].bin_next = e->bin_next;
    else
        space->bins[bin_of(e->bytes / space->unit)] = e->bin_next;
    if (e->bin_next)
        region->extents[e->bin_next].bin_previous = e->bin_previous;
}

static void age_add(struct region *region, struct extent *e)
{
    if (e->aged || (!e->resident && !e->registered_bytes))
        return;
    e->age_next = 0;
    e->age_previous = region->newest;
    if (region->newest)
        region->extents[region->newest].age_next = number_of(region, e);
    else
        region->oldest = number_of(region, e);
    region->newest = number_of(region, e);
    e->aged = true;
    if (e->registered_bytes)
        region->idle_bytes += e->registered_bytes;
    else
        region->warm_bytes += e->resident;
}

static void age_remove(struct region *region, struct extent *e)
{
    if (!e->aged)
        return;
    if (e->age_previous)
        region->extents[e->age_previous].age_next = e->age_next;
    else
        region->oldest = e->age_next;
    if (e->age_next)
        region->extents[e->age_next].age_previous = e->age_previous;
    else
        region->newest = e->age_previous;
    e->aged = false;
    if (e->registered_bytes)
        region->idle_bytes -= e->registered_bytes;
    else
        region->warm_bytes -= e->resident;
}

static void free_add(struct region *region, struct extent *e)
{
    e->free = true;
    bin_add(region, e);
    age_add(region, e);
}

static void free_remove(struct region *region, struct extent *e)
{
    age_remove(region, e);
    bin_remove(region, e);
    e->free = false;
}

/* ---- extents ---- */

static struct extent *extent_new(struct region *region)
{
    uint32_t number = region->unused;
    if (number)
        region->unused = region->extents[number].bin_next;
    else if (region->n_extents < REGION_EXTENTS_MAX)
        number = region->n_extents++;
    else
        return NULL;
    struct extent *e = &region->extents[number];
    memset(e, 0, sizeof(*e));
    return e;
}

static void extent_drop(struct region *region, struct extent *e)
{
    e->bin_next = region->unused;
    e->start = 0;
    e->bytes = 0;
    region->unused = number_of(region, e);
}

static void map_fill(struct region *region, const struct extent *e)
{
    struct region_space *space = &region->space[e->space];
    uint64_t first = (e->start - space->start) / space->unit;
    for (uint64_t i = 0; i < e->bytes / space->unit; i++)
        store_release(&space->map[first + i], number_of(region, e));
}

/* Leave the first `bytes` to `e`; the rest becomes a free extent. */
static void extent_split(struct region *region, struct extent *e, uint64_t bytes)
{
    struct extent *rest = extent_new(region);
    if (!rest)
        return;
    rest->space = e->space;
    rest->start = e->start + bytes;
    rest->bytes = e->bytes - bytes;
    rest->touched = e->touched > bytes ? e->touched - bytes : 0;
    rest->resident = e->resident > bytes ? e->resident - bytes : 0;
    rest->freed_ns = e->freed_ns;
    e->bytes = bytes;
    e->touched = e->touched < bytes ? e->touched : bytes;
    e->resident = e->resident < bytes ? e->resident : bytes;
    map_fill(region, rest);
    free_add(region, rest);
}

static bool mergeable(const struct extent *e)
{
    return e && e->free && !e->registered_bytes && !e->stuck &&
           load_relaxed(&e->state) == EXTENT_STILL;
}

/* Take `b`, which follows `a`, into `a`. Neither is in a list. */
static void extent_join(struct region *region, struct extent *a, struct extent *b)
{
    if (b->touched)
        a->touched = a->bytes + b->touched;
    a->resident += b->resident;
    a->bytes += b->bytes;
    a->carry_ns = a->carry_ns > b->carry_ns ? a->carry_ns : b->carry_ns;
    a->freed_ns = a->freed_ns > b->freed_ns ? a->freed_ns : b->freed_ns;
    extent_drop(region, b);
    map_fill(region, a);
}

static struct extent *merge(struct region *region, struct extent *e)
{
    struct region_space *space = &region->space[e->space];
    if (e->start > space->start) {
        struct extent *before = region_find(region, (void *)(e->start - 1));
        if (mergeable(before)) {
            free_remove(region, before);
            extent_join(region, before, e);
            e = before;
        }
    }
    if (e->start + e->bytes < space->start + space->top) {
        struct extent *after = region_find(region, (void *)(e->start + e->bytes));
        if (mergeable(after)) {
            free_remove(region, after);
            extent_join(region, e, after);
        }
    }
    return e;
}

/* ---- taking and giving ---- */

static uint64_t need_of(const struct region_space *space, uint64_t size)
{
    return (size + space->unit - 1) / space->unit * space->unit;
}

static unsigned space_of(uint64_t size, uint64_t alignment)
{
    return size >= REGION_LARGE_MIN || alignment > REGION_SMALL_UNIT ? SPACE_LARGE : SPACE_SMALL;
}

/* Registered extents fit as they are, with a fifth of waste at most. */
static bool pinned_fits(const struct extent *e, uint64_t size, uint64_t need)
{
    return e->registered_bytes && !e->stuck && load_relaxed(&e->state) == EXTENT_STILL &&
           e->registered_bytes >= region_pages(size) && e->bytes <= need + need / 4;
}

static struct extent *pinned_find(const struct region *region, const struct region_space *space,
                                  uint64_t size)
{
    uint64_t need = need_of(space, size);
    for (unsigned bin = bin_of(need / space->unit); bin <= bin_of((need + need / 4) / space->unit);
         bin++) {
        unsigned looks = 0;
        for (uint32_t i = space->bins[bin]; i && looks < LOOK_MAX;
             i = region->extents[i].bin_next, looks++)
            if (pinned_fits(&region->extents[i], size, need))
                return &region->extents[i];
    }
    return NULL;
}

bool region_has_pinned(const struct region *region, uint64_t size)
{
    return region->idle_bytes && pinned_find(region, &region->space[space_of(size, 1)], size);
}

/* The best of the first few that fit: warm before cold, small before large. */
static struct extent *plain_find(const struct region *region, const struct region_space *space,
                                 uint64_t need)
{
    struct extent *best = NULL;
    for (unsigned bin = bin_of(need / space->unit); bin < REGION_BINS && !best; bin++) {
        unsigned looks = 0;
        for (uint32_t i = space->bins[bin]; i && looks < LOOK_MAX;
             i = region->extents[i].bin_next, looks++) {
            struct extent *e = &region->extents[i];
            if (e->bytes < need || !mergeable(e))
                continue;
            bool warmer = best && (e->resident > 0) != (best->resident > 0);
            if (!best || (warmer ? e->resident > 0 : e->bytes < best->bytes))
                best = e;
        }
    }
    return best;
}

/* Make the first `top` bytes of a space accessible. */
static bool space_open(struct region_space *space, uint64_t top)
{
    uint64_t end = (top + OPEN_BYTES - 1) / OPEN_BYTES * OPEN_BYTES;
    end = end < space->bytes ? end : space->bytes;
    if (top <= space->open)
        return true;
    if (kernel_call(SYS_mprotect, (long)(space->start + space->open), (long)(end - space->open),
                    PROT_READ | PROT_WRITE, 0, 0) < 0)
        return false;
    space->open = end;
    return true;
}

static struct extent *fresh(struct region *region, unsigned which, uint64_t need)
{
    struct region_space *space = &region->space[which];
    if (space->bytes - space->top < need || !space_open(space, space->top + need))
        return NULL;
    struct extent *e = extent_new(region);
    if (!e)
        return NULL;
    e->space = (uint8_t)which;
    e->start = space->start + space->top;
    e->bytes = need;
    space->top += need;
    map_fill(region, e);
    return e;
}

struct extent *region_take(struct region *region, uint64_t size, uint64_t alignment, bool pinned)
{
    unsigned which = space_of(size, alignment);
    struct region_space *space = &region->space[which];
    uint64_t need = need_of(space, size);
    if (size == 0 || size > space->bytes)
        return NULL;
    struct extent *e = pinned && region->idle_bytes ? pinned_find(region, space, size) : NULL;
    if (!e)
        e = plain_find(region, space, need);
    if (e)
        free_remove(region, e);
    else
        e = fresh(region, which, need);
    if (!e)
        return NULL;
    if (!e->registered_bytes && e->bytes > need)
        extent_split(region, e, need);
    e->size = size;
    memset(&e->account, 0, sizeof(e->account));
    region->live_bytes += size;
    region->live_blocks++;
    return e;
}

void region_give(struct region *region, struct extent *e, uint64_t now_ns)
{
    uint64_t pages = region_pages(e->size);
    region->live_bytes -= e->size;
    region->live_blocks--;
    e->touched = e->touched > pages ? e->touched : pages;
    e->resident = e->resident > pages ? e->resident : pages;
    e->size = 0;
    e->freed_ns = now_ns;
    if (e->stuck)
        return;
    if (!e->registered_bytes)
        e = merge(region, e);
    free_add(region, e);
}

void region_detach(struct region *region, struct extent *e)
{
    free_remove(region, e);
}

void region_attach(struct region *region, struct extent *e)
{
    if (!e->stuck)
        free_add(region, e->registered_bytes ? e : merge(region, e));
}

struct extent *region_idle_oldest(const struct region *region)
{
    for (uint32_t i = region->oldest; i; i = region->extents[i].age_next)
        if (region->extents[i].registered_bytes &&
            load_relaxed(&region->extents[i].state) == EXTENT_STILL)
            return &region->extents[i];
    return NULL;
}

void region_purge(struct region *region, uint64_t keep)
{
    uint32_t next;
    for (uint32_t i = region->oldest; i && region->warm_bytes > keep; i = next) {
        struct extent *e = &region->extents[i];
        next = e->age_next;
        if (e->registered_bytes || load_relaxed(&e->state) != EXTENT_STILL)
            continue;
        age_remove(region, e);
        advise(e->start, region_pages(e->touched), MADV_DONTNEED);
        e->touched = e->resident = 0;
    }
}

void region_move(struct extent *from, struct extent *to, uint64_t bytes)
{
    uint64_t pages = region_pages(bytes);
    long r = kernel_call(SYS_mremap, (long)from->start, (long)pages, (long)pages,
                         MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, (long)to->start);
    if (r == (long)to->start) {
        if (to->space == SPACE_LARGE)
            advise(to->start, pages, MADV_HUGEPAGE);
        from->touched = from->resident = 0;
    } else {
        memcpy((void *)to->start, (const void *)from->start, bytes);
    }
    to->touched = to->touched > pages ? to->touched : pages;
    to->resident = to->resident > pages ? to->resident : pages;
}
