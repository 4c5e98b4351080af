/* map.c: see map.h. */
#include "malloc/map.h"

#include "malloc/nursery.h"
#include "malloc/os.h"

uintptr_t map_near_from;
uint8_t map_near[MAP_NEAR_UNITS];
uint8_t *map_top[1 << MAP_TOP_SHIFT];

/* Here, since who asks what lies at an address has to know it. */
union nursery_region nursery_region __attribute__((aligned(NURSERY_STEP)));

enum { LEAF_BYTES = 1 << MAP_LEAF_SHIFT };

uint8_t *map_far(const void *address)
{
    static uint8_t nothing;
    uintptr_t unit = (uintptr_t)address >> MAP_UNIT_SHIFT;
    uintptr_t top = unit >> MAP_LEAF_SHIFT;
    uint8_t *leaf = top < 1 << MAP_TOP_SHIFT ? load_acquire(&map_top[top]) : NULL;
    return leaf ? leaf + unit % LEAF_BYTES : &nothing;
}

/* The kernel hands out addresses from the top down, so nearly all of the near ones are below the first that is told, whose byte is not
 * far from the end: link.ld puts something behind it. Never 0. */
static void near_begin(uintptr_t first)
{
    enum { ABOVE = 256, BELOW = MAP_NEAR_UNITS - ABOVE };
    uintptr_t none = 0, from = first > BELOW ? (first - BELOW) << MAP_UNIT_SHIFT : MAP_UNIT_BYTES;
    if (load_relaxed(&map_near_from) == 0)
        cas_acq_rel(&map_near_from, &none, from);
}

static bool is_near(uintptr_t unit)
{
    return map_near_unit((const void *)(unit << MAP_UNIT_SHIFT)) < MAP_NEAR_UNITS;
}

/* Somebody else may add the same leaf meanwhile: one of the two goes back. */
static bool leaf_make(uintptr_t top)
{
    uint8_t *none = NULL, *leaf;
    if (load_acquire(&map_top[top]))
        return true;
    leaf = os_map(LEAF_BYTES, 1);
    if (!leaf)
        return false;
    if (!cas_acq_rel(&map_top[top], &none, leaf))
        os_unmap(leaf, LEAF_BYTES);
    return true;
}

bool map_set(const void *address, size_t bytes, enum map_kind kind)
{
    uintptr_t first = (uintptr_t)address >> MAP_UNIT_SHIFT;
    uintptr_t last = ((uintptr_t)address + bytes - 1) >> MAP_UNIT_SHIFT;
    if (last >> MAP_LEAF_SHIFT >= 1 << MAP_TOP_SHIFT)
        return false; /* beyond what the map can tell */
    near_begin(first);
    for (uintptr_t unit = first; kind != MAP_NONE && unit <= last; unit++)
        if (!is_near(unit) && !leaf_make(unit >> MAP_LEAF_SHIFT))
            return false;
    for (uintptr_t unit = first; unit <= last; unit++)
        store_release(map_byte((void *)(unit << MAP_UNIT_SHIFT)), (uint8_t)kind);
    return true;
}
