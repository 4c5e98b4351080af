/* map.c: see map.h. */
#include "malloc/map.h"

#include "malloc/nursery.h"
#include "malloc/os.h"

uintptr_t map_top[1 << MAP_TOP_SHIFT];
uint8_t map_nothing[1 << MAP_LEAF_SHIFT];

/* Here, since who asks what lies at an address has to know it. */
union nursery_region nursery_region __attribute__((aligned(NURSERY_STEP)));

enum { LEAF_BYTES = 1 << MAP_LEAF_SHIFT };

/* Somebody else may add the same leaf meanwhile: one of the two goes back. */
static bool leaf_make(uintptr_t top)
{
    uintptr_t none = 0;
    if (load_acquire(&map_top[top]))
        return true;
    void *leaf = os_map(LEAF_BYTES, 1);
    if (!leaf)
        return false;
    if (!cas_acq_rel(&map_top[top], &none, (uintptr_t)leaf - (uintptr_t)map_nothing))
        os_unmap(leaf, LEAF_BYTES);
    return true;
}

bool map_set(const void *address, size_t bytes, enum map_kind kind)
{
    uintptr_t first = (uintptr_t)address >> MAP_UNIT_SHIFT;
    uintptr_t last = ((uintptr_t)address + bytes - 1) >> MAP_UNIT_SHIFT;
    if (last >> MAP_LEAF_SHIFT >= 1 << MAP_TOP_SHIFT)
        return false; /* beyond what the map can tell */
    for (uintptr_t top = first >> MAP_LEAF_SHIFT; kind != MAP_NONE && top <= last >> MAP_LEAF_SHIFT;
         top++)
        if (!leaf_make(top))
            return false;
    for (uintptr_t unit = first; unit <= last; unit++)
        store_release(map_byte((void *)(unit << MAP_UNIT_SHIFT)), (uint8_t)kind);
    return true;
}
