/* See chain_registry.h. */
#include "malloc/chain_registry.h"

#include "malloc/chain_lock.h"
#include "malloc/map.h"
#include "malloc/nursery.h"
#include "malloc/os.h"

/* Atomic, as readers may look while the copy is written anew; then they see by `writing` that they did. */
struct entry {
    uintptr_t start, end;
    struct memoir_chain *chain;
};

static struct entry *tables[2]; /* REGISTRY_MAX each; made with the first entry, never unmapped */
static uint32_t counts[2];
static uint64_t version; /* readers look at copy version % 2 */
static uint64_t writing; /* the version that is, or was last, being written */
static uint32_t lock;    /* of writers */
uint32_t registry_count;

/* ---- reading ---- */

/* The first entry that ends behind an address, or the number of entries. */
static uint32_t search(const struct entry *table, uint32_t n, uintptr_t address)
{
    uint32_t low = 0, high = n;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (load_acquire(&table[middle].end) > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

struct memoir_chain *registry_find(const void *address)
{
    for (;;) {
        uint64_t seen = load_acquire(&version);
        const struct entry *table = load_relaxed(&tables[seen % 2]);
        uint32_t n = table ? load_acquire(&counts[seen % 2]) : 0;
        uint32_t at = search(table, n, (uintptr_t)address);
        struct memoir_chain *chain = NULL;
        if (at < n && load_acquire(&table[at].start) <= (uintptr_t)address)
            chain = load_acquire(&table[at].chain);
        if (load_acquire(&writing) <= seen + 1)
            return chain;
    }
}

/* ---- writing ---- */

static int writer_begin(void)
{
    chain_word_take(&lock);
    for (int i = 0; i < 2; i++) {
        if (tables[i])
            continue;
        void *table = os_map(REGISTRY_MAX * sizeof(struct entry), OS_PAGE_BYTES);
        if (!table) {
            chain_word_drop(&lock);
            return -ENOMEM;
        }
        store_release(&tables[i], (struct entry *)table);
    }
    /* A child of fork() may find that its parent had begun a version: that copy is nobody's. */
    store_relaxed(&writing, version + 1);
    return 0;
}

/* The number for those who ask only whether there is any is never too low: a fork() may come in between. */
static void writer_end(uint32_t n)
{
    if (n > registry_count)
        store_relaxed(&registry_count, n);
    store_release(&counts[(version + 1) % 2], n);
    store_release(&version, version + 1);
    store_relaxed(&registry_count, n);
    chain_word_drop(&lock);
}

static void put(struct entry *at, struct entry entry)
{
    store_release(&at->start, entry.start);
    store_release(&at->end, entry.end);
    store_release(&at->chain, entry.chain);
}

/* Macro-blocks of malloc's are told by the address map, before anybody asks here; its first blocks by where they lie. */
static bool is_malloc(uintptr_t start, uintptr_t end)
{
    uintptr_t first = (uintptr_t)&nursery_region;
    if (start < first + NURSERY_BYTES && end > first)
        return true;
    for (uintptr_t unit = start >> MAP_UNIT_SHIFT; unit <= (end - 1) >> MAP_UNIT_SHIFT; unit++)
        if (map_kind((void *)(unit << MAP_UNIT_SHIFT)) == MAP_MACRO)
            return true;
    return false;
}

int registry_add(const void *start, size_t bytes, struct memoir_chain *chain)
{
    struct entry new = {(uintptr_t)start, (uintptr_t)start + bytes, chain};
    if (is_malloc(new.start, new.end))
        return -EBUSY;
    int r = writer_begin();
    if (r < 0)
        return r;
    const struct entry *from = tables[version % 2];
    struct entry *to = tables[(version + 1) % 2];
    uint32_t n = counts[version % 2], at = search(from, n, new.start);
    if (at < n && from[at].start < new.end) {
        bool inside =
            from[at].chain == chain && from[at].start <= new.start &&from[at].end >= new.end;
        r = inside ? 1 : -EBUSY;
    } else if (n == REGISTRY_MAX) {
        r = -ENOSPC;
    }
    if (r != 0) {
        chain_word_drop(&lock);
        return r;
    }
    for (uint32_t i = 0; i < at; i++)
        put(&to[i], from[i]);
    put(&to[at], new);
    for (uint32_t i = at; i < n; i++)
        put(&to[i + 1], from[i]);
    writer_end(n + 1);
    return 0;
}

static void remove_some(uintptr_t start, const struct memoir_chain *chain)
{
    if (load_relaxed(&registry_count) == 0 || writer_begin() < 0)
        return;
    const struct entry *from = tables[version % 2];
    struct entry *to = tables[(version + 1) % 2];
    uint32_t n = counts[version % 2], kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (from[i].start != start && from[i].chain != chain)
            put(&to[kept++], from[i]);
    writer_end(kept);
}

void registry_remove(const void *start)
{
    remove_some((uintptr_t)start, NULL);
}

void registry_remove_chain(const struct memoir_chain *chain)
{
    remove_some(0, chain);
}
