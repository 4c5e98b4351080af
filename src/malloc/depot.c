/* depot.c: see depot.h. */
#include "malloc/depot.h"

#include <link.h>

#include "base/atomic.h"
#include "malloc/os.h"
#include "site/module.h"
#include "site/unwind.h"

enum { DEPOT_OWN = 4 }; /* frames of the allocator that may be on top */

static struct depot_stack *table;  /* DEPOT_STACKS; made by whoever needs it first */
static struct unwind_cache unwind; /* pages that nobody touches cost nothing */

static struct depot_stack *table_get(void)
{
    struct depot_stack *have = load_acquire(&table), *none = NULL;
    if (have)
        return have;
    have = os_map(sizeof(*have) * DEPOT_STACKS, 1);
    if (have && !cas_acq_rel(&table, &none, have)) {
        os_unmap(have, sizeof(*have) * DEPOT_STACKS);
        have = none;
    }
    return have;
}

static uint64_t hash(const uintptr_t *pcs, size_t n)
{
    uint64_t h = n * UINT64_C(0x9e3779b97f4a7c15);
    for (size_t i = 0; i < n; i++) {
        h = (h ^ pcs[i]) * UINT64_C(0xff51afd7ed558ccd);
        h ^= h >> 32;
    }
    return h ? h : 1;
}

/* The allocator's own frames tell nobody anything. Known for the library; linked into a program, its module is the program's. */
static size_t own_frames(const uintptr_t *pcs, size_t n)
{
    struct module_object own;
    size_t skip = 0;
    if (module_object_find((uintptr_t)own_frames, &own) != 0 || own.map == NULL ||
        own.map->l_name[0] == 0)
        return 0;
    while (skip < n && pcs[skip] > own.map_start && pcs[skip] < own.map_end)
        skip++;
    return skip;
}

uint32_t depot_add(const struct unwind_state *from)
{
    uintptr_t taken[DEPOT_FRAMES + DEPOT_OWN];
    struct depot_stack *stacks = table_get();
    if (!stacks)
        return 0;
    size_t all = unwind_stack_from(&unwind, from, taken, DEPOT_FRAMES + DEPOT_OWN, NULL);
    size_t skip = own_frames(taken, all), n = all - skip;
    n = n < DEPOT_FRAMES ? n : DEPOT_FRAMES;
    if (n == 0)
        return 0;
    const uintptr_t *pcs = taken + skip;
    uint64_t key = hash(pcs, n);
    for (uint32_t i = 0; i < DEPOT_TRIES; i++) {
        uint32_t at = (uint32_t)(key + i) % DEPOT_STACKS;
        struct depot_stack *s = &stacks[at];
        uint64_t there = load_acquire(&s->key);
        /* Two stacks with one hash of 64 bits are not expected; the worst is a wrong name in a message. */
        if (there == key)
            return at + 1;
        if (there != 0 || !cas_acq_rel(&s->key, &there, key)) {
            if (there == key)
                return at + 1;
            continue;
        }
        for (size_t frame = 0; frame < n; frame++)
            s->pcs[frame] = pcs[frame];
        store_release(&s->n, (uint32_t)n);
        return at + 1;
    }
    return 0;
}

const struct depot_stack *depot_get(uint32_t number)
{
    struct depot_stack *stacks = load_acquire(&table);
    if (!stacks || number == 0 || number > DEPOT_STACKS)
        return NULL;
    const struct depot_stack *s = &stacks[number - 1];
    return load_acquire(&s->n) > 0 ? s : NULL;
}
