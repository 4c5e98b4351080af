/* See chain_mapped.h. */
#include "malloc/chain_mapped.h"

#include "malloc/chain_lock.h"
#include "malloc/os.h"

/* What is in place of an address where there is none; 0: never used. */
enum { GONE = 1 };

enum { TABLE = 2 * MAPPED_MAX };

uintptr_t mapped_low = UINTPTR_MAX, mapped_high;
static struct mapped *table; /* TABLE entries; made with the first chain, never unmapped */
static uint32_t lock, sleepers, used;

static unsigned place_of(uintptr_t chain)
{
    return (unsigned)((chain >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 40) % TABLE;
}

static struct mapped *find(uintptr_t chain)
{
    struct mapped *all = load_acquire(&table);
    for (unsigned i = 0, at = place_of(chain); all && i < TABLE; i++, at = (at + 1) % TABLE) {
        uintptr_t there = load_acquire(&all[at].chain);
        if (there == chain)
            return &all[at];
        if (there == 0)
            break;
    }
    return NULL;
}

const struct mapped *mapped_find(const struct memoir_chain *c)
{
    return mapped_may(c) ? find((uintptr_t)c) : NULL;
}

static int add(uintptr_t chain, uint64_t bytes, uint32_t flags)
{
    struct mapped *known = find(chain);
    if (known) {
        known->flags = flags;
        known->control_bytes = (uint32_t)chain_control_bytes(flags);
        store_relaxed(&known->bytes, bytes);
        return 0;
    }
    if (!table) {
        void *made = os_map(TABLE * sizeof(*table), OS_PAGE_BYTES);
        if (!made)
            return -ENOMEM;
        store_release(&table, (struct mapped *)made);
    }
    if (used == MAPPED_MAX)
        return -ENOSPC;
    unsigned at = place_of(chain);
    while (table[at].chain > GONE)
        at = (at + 1) % TABLE;
    used++;
    store_relaxed(&table[at].bytes, bytes);
    table[at].flags = flags;
    table[at].control_bytes = (uint32_t)chain_control_bytes(flags);
    store_release(&table[at].chain, chain);
    if (chain < mapped_low)
        store_release(&mapped_low, chain);
    if (chain > mapped_high)
        store_release(&mapped_high, chain);
    return 0;
}

int mapped_add(const struct memoir_chain *c, uint64_t bytes, uint32_t flags)
{
    chain_word_take(&lock, &sleepers);
    int r = add((uintptr_t)c, bytes, flags);
    chain_word_drop(&lock, &sleepers);
    return r;
}

void mapped_widen(const struct memoir_chain *c, uint64_t bytes)
{
    struct mapped *known = mapped_may(c) ? find((uintptr_t)c) : NULL;
    if (!known)
        return;
    uint64_t seen = load_relaxed(&known->bytes);
    while (seen < bytes && !cas_weak_relaxed(&known->bytes, &seen, bytes))
        ;
}

/* An entry that nobody looks past any more is as if never used: else searches would grow longer and longer. */
static void sweep(unsigned at)
{
    while (table[at].chain == GONE && table[(at + 1) % TABLE].chain == 0) {
        store_release(&table[at].chain, (uintptr_t)0);
        at = (at + TABLE - 1) % TABLE;
    }
}

void mapped_remove(const struct memoir_chain *c)
{
    if (!mapped_may(c))
        return;
    chain_word_take(&lock, &sleepers);
    struct mapped *known = find((uintptr_t)c);
    if (known) {
        store_release(&known->chain, (uintptr_t)GONE);
        sweep((unsigned)(known - table));
        used--;
    }
    chain_word_drop(&lock, &sleepers);
}

void mapped_may_all(void)
{
    chain_word_take(&lock, &sleepers);
    store_release(&mapped_low, (uintptr_t)0);
    store_release(&mapped_high, UINTPTR_MAX);
    chain_word_drop(&lock, &sleepers);
}
