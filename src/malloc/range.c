/* range.c: see range.h. */
#include "malloc/range.h"

#include <errno.h>
#include <memoir/malloc.h>
#include <string.h>
#include <unistd.h>

#include "malloc/entry.h"
#include "malloc/huge.h"
#include "malloc/line.h"
#include "malloc/lock.h"
#include "malloc/map.h"
#include "malloc/node.h"
#include "malloc/nursery.h"
#include "malloc/os.h"
#include "malloc/thread.h"

#define UNIT MAP_UNIT_BYTES

static struct {
    struct lock lock; /* of `pages`, `low` and `mapped` */
    struct range_plan plan;
    enum range_state state;
    size_t units, part_units; /* of the range, and of a node's part of it */
    unsigned parts;           /* a power of two */
    uint16_t *pages;          /* mapped in each unit */
    size_t low[NODE_MAX];     /* no unit of the part before this one is free */
    uint64_t mapped;          /* pages */
} range;
static int range_error = -ENOENT; /* why there is none; apart, as the rest is all zero at first */

static size_t unit_of(const void *p)
{
    return ((uintptr_t)p - range_plan_from(&range.plan)) / UNIT;
}

/* The last one has what is left over, too. */
static unsigned part_of(size_t unit)
{
    size_t part = unit / range.part_units;
    return (unsigned)(part < range.parts ? part : range.parts - 1);
}

/* ---- with the lock ---- */

/* Pages more, or less (-1), of all units that are touched. */
static void account(char *p, size_t bytes, int sign)
{
    range.mapped += (uint64_t)((int64_t)(bytes / OS_PAGE_BYTES) * sign);
    while (bytes > 0) {
        size_t room = UNIT - (uintptr_t)p % UNIT, part = bytes < room ? bytes : room;
        size_t unit = unit_of(p);
        range.pages[unit] = (uint16_t)(range.pages[unit] + (int)(part / OS_PAGE_BYTES) * sign);
        size_t *low = &range.low[part_of(unit)];
        if (range.pages[unit] == 0 && unit < *low)
            *low = unit;
        p += part;
        bytes -= part;
    }
}

/* The first of n free units in a row, with `lead` more before it, whose address is a multiple of `align`. SIZE_MAX: none. */
static size_t search(size_t from, size_t to, size_t n, size_t lead, size_t align)
{
    size_t first = range_plan_from(&range.plan) / UNIT, step = align / UNIT;
    for (;;) {
        size_t at = ((first + from + lead + step - 1) & ~(step - 1)) - first;
        if (at > to || n > to - at)
            return SIZE_MAX;
        size_t k = at + n;
        while (k > at - lead && range.pages[k - 1] == 0)
            k--;
        if (k == at - lead)
            return at;
        from = k;
    }
}

static size_t search_part(unsigned part, size_t n, size_t lead, size_t align)
{
    size_t to = (part + 1) * range.part_units, *low = &range.low[part];
    while (*low < to && range.pages[*low] != 0)
        ++*low;
    return search(*low, to, n, lead, align);
}

/* ---- what os.c calls ---- */

static void *take(size_t bytes, size_t align, size_t lead, int node)
{
    if (node == OS_NODE_HERE)
        node = node_many ? (int)node_here() : 0;
    size_t n = (bytes - lead + UNIT - 1) / UNIT, lead_units = lead ? 1 : 0;
    char *p = NULL;
    lock_take(&range.lock);
    size_t at = search_part((unsigned)node % range.parts, n, lead_units, align);
    if (at == SIZE_MAX) /* full, or too small: anywhere, as the kernel does with memory */
        at = search(0, range.units, n, lead_units, align);
    if (at != SIZE_MAX) {
        p = (char *)range_plan_from(&range.plan) + at * UNIT - lead;
        account(p, bytes, 1);
    }
    lock_drop(&range.lock);
    return p;
}

/* Are these units free, and all ours? */
static bool are_free(size_t from, size_t to)
{
    while (from < to && to <= range.units && range.pages[from] == 0)
        from++;
    return from >= to;
}

static bool extend(void *old, size_t old_bytes, size_t new_bytes)
{
    char *end = (char *)old + old_bytes;
    size_t room = range_plan_from(&range.plan) + range.plan.bytes - (uintptr_t)end;
    size_t more = new_bytes - old_bytes;
    if (more > room)
        return false;
    lock_take(&range.lock);
    bool done = are_free(unit_of(end - 1) + 1, unit_of(end + more - 1) + 1);
    if (done)
        account(end, more, 1);
    lock_drop(&range.lock);
    return done;
}

static void give(void *p, size_t bytes)
{
    lock_take(&range.lock);
    account(p, bytes, -1);
    lock_drop(&range.lock);
}

static struct os_places places = {.take = take, .extend = extend, .give = give};

bool range_take_at(void *p, size_t bytes)
{
    uintptr_t from = (uintptr_t)p - range_plan_from(&range.plan);
    if (from >= range.plan.bytes || bytes == 0 || bytes > range.plan.bytes - from)
        return false;
    lock_take(&range.lock);
    bool done = are_free(from / UNIT, (from + bytes - 1) / UNIT + 1);
    if (done)
        account(p, bytes, 1);
    lock_drop(&range.lock);
    return done;
}

unsigned range_node(const void *p)
{
    return part_of(unit_of(p));
}

/* ---- the beginning ---- */

static void say(const char *why)
{
    struct line l = {.length = 0};
    line_text(&l, "memoir-malloc: range: ");
    line_text(&l, why);
    if (range.plan.bytes > 0) {
        line_text(&l, ": ");
        line_hex(&l, range_plan_from(&range.plan));
        line_text(&l, " to ");
        line_hex(&l, range_plan_from(&range.plan) + range.plan.bytes);
    }
    line_text(&l, "; the heap lies elsewhere");
    line_write(&l, STDERR_FILENO);
}

/* A part for each node up to the last one, all of the same size. */
static void divide(void)
{
    range.units = range.plan.bytes / UNIT;
    range.parts = 1;
    while (node_many && range.parts < NODE_MAX && node_mask() >> range.parts &&
           range.parts * 2 <= range.units)
        range.parts *= 2;
    range.part_units = range.units / range.parts;
    for (unsigned i = 0; i < range.parts; i++)
        range.low[i] = i * range.part_units;
}

static int hold(void)
{
    uintptr_t from = range_plan_from(&range.plan);
    range.pages = os_map(range.units * sizeof(*range.pages), 1);
    if (!range.pages)
        return -ENOMEM;
    int r = os_hold((void *)from, range.plan.bytes);
    if (r < 0) {
        os_unmap(range.pages, range.units * sizeof(*range.pages));
        return r;
    }
    places.from = from;
    places.to = from + range.plan.bytes;
    os_places = &places;
    return 0;
}

void range_begin(void)
{
    const char *why = NULL;
    int r = range_plan(&malloc_settings, &range.plan, &why);
    if (r == 0)
        return;
    if (r > 0) {
        divide();
        r = hold();
        why = r == -EEXIST ? "these addresses are taken" : "these addresses cannot be held";
    }
    range_error = r;
    if (r < 0) {
        say(why);
        return;
    }
    range.state = RANGE_WAITING;
    if (!malloc_settings.receive)
        range_open();
}

void range_open(void)
{
    huge_trim();
    range_retire();
    nursery_close();
    heap_fast_set();
    places.open = true;
    range.state = RANGE_OPEN;
}

int range_state(enum range_state *ret)
{
    *ret = range.state;
    return range_error;
}

const struct range_plan *range_here(void)
{
    return &range.plan;
}

/* ---- for programs ---- */

EXPORT int memoir_malloc_range(struct memoir_malloc_range *ret)
{
    start_modes();
    if (range_error < 0)
        return range_error;
    lock_take(&range.lock);
    struct memoir_malloc_range r = {
        .struct_size = ret->struct_size,
        .base = range_plan_from(&range.plan),
        .bytes = range.plan.bytes,
        .slot = range.plan.slot,
        .slots = range.plan.slots,
        .all_base = range.plan.base,
        .nodes = range.parts,
        .waiting = range.state == RANGE_WAITING,
        .node_bytes = range.part_units * UNIT,
        .mapped_bytes = range.mapped * OS_PAGE_BYTES,
    };
    lock_drop(&range.lock);
    memcpy(ret, &r, ret->struct_size < sizeof(r) ? ret->struct_size : sizeof(r));
    return 0;
}
