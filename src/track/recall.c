/* recall.c: see recall.h. */
#include "track/recall.h"

#include <link.h>
#include <string.h>
#include <sys/auxv.h>

#include "site/module.h"
#include "site/module_symbol.h"
#include "track/sample.h"
#include "track/track.h"

enum { SEARCH_WORDS = 160, FRAMES_MAX = BOOK_SITE_FRAMES_MAX + 16, CHAIN_MAX = 1024 };

/* A place near the return address that is `caller`: itself, or a register that held it and was saved by one of our
 * functions further in, which do the same each time. NULL: there is none. */
static __attribute__((noinline)) uintptr_t *place_find(uintptr_t caller)
{
    uintptr_t *word = __builtin_frame_address(0);
    for (int i = 0; i < SEARCH_WORDS; i++)
        if (word[i] == caller)
            return &word[i];
    return NULL;
}

static struct recall_entry *set_of(struct recall *recall, uintptr_t caller, uintptr_t first)
{
    uint64_t hash = (caller ^ first << 20) * UINT64_C(0x9e3779b97f4a7c15);
    return recall->set[hash >> (64 - RECALL_BITS)];
}

static bool same(const struct recall_entry *entry, const uintptr_t *first)
{
    if (entry->first != (uintptr_t)first || entry->closes != load_relaxed(&track_closes))
        return false;
    for (uint32_t i = 0; i < entry->n; i++)
        if (first[entry->at[i]] != entry->pcs[i])
            return false;
    return true;
}

/* Walk, and note the places, if all return addresses are where they should be. */
static bool note(struct track_thread *t, uintptr_t caller, const uintptr_t *first,
                 struct recall_entry *ret_entry)
{
    uintptr_t pcs[FRAMES_MAX], sps[FRAMES_MAX];
    struct unwind_trace trace = {0};
    struct unwind_state state = UNWIND_STATE_CALLER();
    struct tracker *tracker = t->tracker;
    size_t n = unwind_stack_places(&tracker->unwind, &state, pcs, sps, FRAMES_MAX, &trace);
    if (!ARCH_RA_BELOW_CFA ||
        (trace.flags & (UNWIND_COMPLETE | UNWIND_UNSTABLE)) != UNWIND_COMPLETE)
        return false;
    size_t own = 0;
    while (own < n && (pcs[own] != caller || sps[own] <= (uintptr_t)first))
        own++;
    if (own == n || n - own > RECALL_FRAMES_MAX)
        return false;
    ret_entry->n = (uint32_t)(n - own);
    for (size_t i = own; i < n; i++) {
        const uintptr_t *place = (const uintptr_t *)sps[i] - 1;
        if (place < first || *place != pcs[i] || place - first > UINT32_MAX)
            return false;
        ret_entry->at[i - own] = (uint32_t)(place - first);
        ret_entry->pcs[i - own] = pcs[i];
    }
    return true;
}

uint32_t recall_site(struct track_thread *t, uintptr_t caller)
{
    const uintptr_t *first = place_find(caller);
    if (!first || t->tracker->interpreter || python_ready(&t->tracker->python))
        return sample_stack_site(t, 0);
    struct recall_entry *set = set_of(&t->recall, caller, (uintptr_t)first);
    for (int i = 0; i < RECALL_WAYS; i++)
        if (same(&set[i], first))
            return set[i].site;
    struct recall_entry *entry = &set[t->recall.next++ % RECALL_WAYS];
    entry->first = 0;
    bool known = note(t, caller, first, entry);
    entry->site = sample_stack_site(t, 0);
    entry->closes = load_relaxed(&track_closes);
    if (known && entry->site != BOOK_SITE_NONE && !python_ready(&t->tracker->python))
        entry->first = (uintptr_t)first;
    return entry->site;
}

/* What comes before the loader's own entry was there from the start, and stays: no lock is needed. */
bool recall_interpreter(void)
{
    struct module_object object;
    struct module_symbol symbol;
    if (module_object_find(getauxval(AT_BASE), &object) < 0)
        return false;
    const struct link_map *at = object.map;
    for (int n = 0; at && n < CHAIN_MAX; n++, at = at->l_prev)
        if (module_object_find((uintptr_t)at->l_ld, &object) == 0 &&
            module_symbol_find(&object, "Py_IsInitialized", &symbol) == 0)
            return true;
    return false;
}
