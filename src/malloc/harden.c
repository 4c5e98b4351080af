/* harden.c: see harden.h. */
#include "malloc/harden.h"

#include <errno.h>
#include <string.h>
#include <sys/auxv.h>

#include "malloc/core.h"
#include "malloc/depot.h"
#include "malloc/gone.h"
#include "malloc/grind.h"
#include "malloc/guard.h"
#include "malloc/huge.h"
#include "malloc/lock.h"
#include "malloc/nursery.h"
#include "malloc/os.h"
#include "malloc/quarantine.h"
#include "malloc/settings.h"
#include "site/arch.h"

enum { CANARY = 0xc5, FILL = 0xdb };

uint32_t hard_level;
static uint64_t hard_key;
static uint32_t sample_turn;

/* Blocks without a record. Few: the loader's, from before there was an environment to read. */
static struct lock early_lock;
static void *early[HARD_EARLY_MAX];
static uint32_t n_early;
static bool early_lost; /* more than that: a block that has no record may be one of them */

void hard_fork_prepare(void)
{
    lock_fork_take(&quarantine_lock);
    lock_fork_take(&early_lock);
}

void hard_fork_done(bool child)
{
    lock_fork_drop(&early_lock, child);
    lock_fork_drop(&quarantine_lock, child);
}

__attribute__((section(".text.startup"))) void hard_begin(void)
{
    grind_begin();
    if (grind_on || (malloc_settings.harden == 0 && malloc_settings.zero_free == 0))
        return; /* memcheck sees more */
    const uint64_t *random = (const uint64_t *)getauxval(AT_RANDOM);
    hard_key = (random ? random[1] : (uintptr_t)&random) | 1;
    hard_level = malloc_settings.harden ? (uint32_t)malloc_settings.harden : 1;
}

void hard_early_add(void *p)
{
    lock_take(&early_lock);
    if (n_early < HARD_EARLY_MAX)
        early[n_early++] = p;
    else
        early_lost = true;
    lock_drop(&early_lock);
}

bool hard_early_is(const void *p, bool take)
{
    bool found = false;
    if (load_relaxed(&n_early) == 0)
        return false;
    lock_take(&early_lock);
    for (uint32_t i = 0; i < n_early && !found; i++)
        if (early[i] == p) {
            found = true;
            if (take)
                early[i] = early[--n_early];
        }
    lock_drop(&early_lock);
    return found;
}

/* ---- records ---- */

static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * UINT64_C(0xff51afd7ed558ccd);
    return h ^ h >> 32;
}

static uint64_t check_of(const void *start, const struct hard_record *r, enum hard_state state)
{
    uint64_t h = mix(hard_key, (uintptr_t)start);
    h = mix(h, r->bytes);
    return mix(h, (uint64_t)r->alloc_stack << 2 | state);
}

enum hard_state hard_state(const struct hard_block *b)
{
    uint64_t check = load_acquire(&b->record->check);
    if (check == check_of(b->start, b->record, HARD_LIVE))
        return HARD_LIVE;
    return check == check_of(b->start, b->record, HARD_FREED) ? HARD_FREED : HARD_DAMAGED;
}

/* Bytes of canary, right behind the bytes asked. Guarded blocks have it as far as the guard: alignment leaves that much. */
static size_t canary_bytes(const struct hard_block *b)
{
    char *asked_end = b->start + b->record->bytes;
    char *end = b->guarded ? b->start + b->usable : (char *)b->record;
    size_t bytes = (size_t)(end - asked_end);
    return bytes < HARD_CANARY_MAX ? bytes : HARD_CANARY_MAX;
}

static const char *changed(const char *from, size_t bytes, unsigned char expected)
{
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)from[i] != expected)
            return from + i;
    return NULL;
}

static void record_write(struct hard_block *b, size_t bytes, uint32_t stack)
{
    b->record->bytes = bytes;
    b->record->alloc_stack = stack;
    b->record->free_stack = 0;
    memset(b->start + bytes, CANARY, canary_bytes(b));
    store_release(&b->record->check, check_of(b->start, b->record, HARD_LIVE));
}

/* ---- finding blocks ---- */

static void record_place(struct hard_block *b, uintptr_t end)
{
    b->record = (struct hard_record *)((end - HARD_RECORD_BYTES) & ~(uintptr_t)7);
}

static enum hard_crime small_find(const char *p, bool inside, struct hard_block *b)
{
    struct slab *s = b->slab;
    size_t index = (size_t)(p - slab_memory(s)) / s->block_bytes;
    if (index >= s->made)
        return HARD_UNUSED;
    b->start = slab_memory(s) + index * s->block_bytes;
    b->usable = s->block_bytes;
    record_place(b, (uintptr_t)b->start + b->usable);
    return p == b->start || inside ? HARD_NONE : HARD_INSIDE;
}

static enum hard_crime large_find(const char *p, bool inside, struct hard_block *b)
{
    struct slab *s = b->slab;
    b->start = slab_memory(s) + s->start;
    b->guarded = guard_is(s);
    if (b->guarded) {
        b->record = guard_record(s);
        b->usable = guard_usable(s);
    } else {
        b->usable = large_usable(s);
        record_place(b, (uintptr_t)b->start + b->usable);
    }
    return p == b->start || inside ? HARD_NONE : HARD_INSIDE;
}

/* Only the start of a huge block leads to it. */
static enum hard_crime huge_find(const char *p, struct hard_block *b)
{
    b->usable = huge_usable(p);
    if (b->usable == 0)
        return HARD_UNUSED;
    b->start = (char *)p;
    uintptr_t end = (uintptr_t)p + b->usable;
    record_place(b, hard_level == 3 ? guard_page_before(end) : end);
    return HARD_NONE;
}

/* Given out before it was known that records are wanted. */
static enum hard_crime nursery_find(const char *p, bool inside, struct hard_block *b)
{
    static struct hard_record none;
    b->start = nursery_around(p);
    b->record = &none;
    if (!b->start)
        return HARD_UNUSED;
    b->usable = nursery_usable(b->start);
    return p == b->start || inside ? HARD_NONE : HARD_INSIDE;
}

/* All slices of a slab lead to its first one, those of large blocks too: hard_alloc() sees to that. What is left over from slabs that
 * were there before leads to one that is shorter, or to none. */
enum hard_crime hard_find(const void *p, bool inside, struct hard_block *ret)
{
    struct hard_block b = {0};
    enum hard_crime crime = HARD_FOREIGN;
    enum map_kind kind = map_kind(p);
    if (kind == MAP_MACRO) {
        struct slab *s = slab_of(p);
        bool there = macro_of(s) == macro_of(p) && slab_slice(s) > 0 &&
                     (const char *)p < slab_memory(s) + ((size_t)s->slices << SLICE_SHIFT);
        b.slab = s;
        if (there && s->class == SLAB_LARGE)
            crime = large_find(p, inside, &b);
        else if (there && s->class < SIZE_CLASSES && s->block_bytes > 0)
            crime = small_find(p, inside, &b);
        else
            crime = HARD_UNUSED;
    } else if (nursery_has(p)) {
        crime = nursery_find(p, inside, &b);
    } else if (kind == MAP_HUGE || kind == MAP_HUGE_ALONE) {
        crime = huge_find(p, &b);
    }
    *ret = b;
    return crime;
}

/* Given out before there were records. */
static bool recordless(const struct hard_block *b, bool take)
{
    if (b->guarded)
        return false;
    if (nursery_has(b->start))
        return true;
    return hard_early_is(b->start, take) || (early_lost && hard_state(b) == HARD_DAMAGED);
}

/* Ends the program unless a block starts here. */
static void block_at(void *p, struct hard_block *ret)
{
    enum hard_crime crime = hard_find(p, false, ret);
    if (crime != HARD_NONE)
        hard_report(crime, p, crime == HARD_INSIDE ? ret : NULL, NULL);
}

/* Ends the program unless it is live and whole. */
static void block_check(const struct hard_block *b)
{
    enum hard_state state = hard_state(b);
    if (state == HARD_FREED)
        hard_report(HARD_TWICE, b->start, b, NULL);
    if (state == HARD_DAMAGED)
        hard_report(HARD_RECORD, b->start, b, b->record);
    const char *where = changed(b->start + b->record->bytes, canary_bytes(b), CANARY);
    if (where)
        hard_report(HARD_OVERRUN, b->start, b, where);
}

/* ---- the functions ---- */

/* Above a page, or its turn. */
static bool guard_wanted(size_t bytes)
{
    return hard_level == 3 &&
           (bytes > OS_PAGE_BYTES || fetch_add_relaxed(&sample_turn, 1) % HARD_SAMPLE == 0);
}

/* Slices of a large block lead back to its first one, so that an address inside is known for what it is. */
static void large_lead_back(struct slab *s)
{
    for (unsigned i = 1; i < s->slices; i++)
        s[i].back = (uint8_t)i;
}

/* With `zero`, what the kernel has zeroed already is not touched. */
static void *plain_alloc(size_t bytes, size_t align, bool zero)
{
    size_t more = HARD_EXTRA;
    if (hard_level == 3 && (bytes + more > GUARD_BYTES_MAX || align > SLICE_BYTES))
        more += 2 * os_page_bytes(); /* for a guard at the end, if it becomes a huge block */
    if (align > SIZE_STEP) {
        void *p = core_memalign(align, bytes + more);
        return p && zero ? memset(p, 0, bytes) : p;
    }
    return zero ? core_calloc(bytes + more) : core_malloc(bytes + more);
}

void *hard_alloc(size_t bytes, size_t align, bool zero)
{
    struct unwind_state from = UNWIND_STATE_CALLER();
    struct hard_block b;
    if (grind_on)
        return grind_alloc(bytes, align, zero);
    if (bytes > PTRDIFF_MAX - 4 * OS_PAGE_MAX)
        return NULL;
    char *p = guard_wanted(bytes) ? guard_alloc(bytes, align) : NULL;
    if (p && zero)
        memset(p, 0, bytes);
    if (!p)
        p = plain_alloc(bytes, align, zero);
    if (!p || hard_find(p, false, &b) != HARD_NONE)
        return NULL;
    if (b.slab && b.slab->class == SLAB_LARGE)
        large_lead_back(b.slab);
    if (!b.slab && hard_level == 3)
        os_protect((void *)guard_page_before((uintptr_t)p + b.usable), os_page_bytes(),
                   OS_NO_ACCESS);
    record_write(&b, bytes, depot_add(&from));
    return p;
}

void hard_release(const struct hard_block *b)
{
    struct hard_record *r = b->record;
    if (!b->slab || b->slab->class == SLAB_LARGE)
        gone_add(&(struct gone){b->start, r->bytes, r->alloc_stack, r->free_stack});
    if (b->guarded) {
        guard_free(b->slab);
        return;
    }
    if (!b->slab && hard_level == 3)
        os_protect((void *)guard_page_before((uintptr_t)b->start + b->usable), os_page_bytes(),
                   OS_READ_WRITE);
    core_free(b->start);
}

bool hard_whole(const struct hard_block *b, const char **ret_where)
{
    *ret_where = hard_state(b) == HARD_LIVE
                     ? changed(b->start + b->record->bytes, canary_bytes(b), CANARY)
                     : NULL;
    return !*ret_where;
}

static size_t filled_bytes(const struct hard_block *b)
{
    return b->record->bytes < HARD_FILL_MAX ? b->record->bytes : HARD_FILL_MAX;
}

static int fill_with(void)
{
    return malloc_settings.zero_free ? 0 : FILL;
}

/* What a guarded block holds cannot be changed. */
bool hard_filled(const struct hard_block *b, const char **ret_where)
{
    *ret_where = b->guarded ? NULL : changed(b->start, filled_bytes(b), (unsigned char)fill_with());
    return !*ret_where;
}

/* Nobody else can have freed it: of several who try, one changes the check. */
static void block_free(const struct hard_block *b, const struct unwind_state *from)
{
    uint64_t live = check_of(b->start, b->record, HARD_LIVE);
    uint32_t stack = depot_add(from);
    if (!cas_acq_rel(&b->record->check, &live, check_of(b->start, b->record, HARD_FREED)))
        hard_report(HARD_TWICE, b->start, b, NULL);
    b->record->free_stack = stack;
    if (malloc_settings.zero_free)
        memset(b->start, 0, b->record->bytes);
    if (hard_level < 2 || b->record->bytes > quarantine_limit() / 2) {
        hard_release(b);
        return;
    }
    if (b->guarded)
        guard_hide(b->slab);
    else if (!malloc_settings.zero_free)
        memset(b->start, FILL, filled_bytes(b));
    quarantine_add(b->start, b->record->bytes);
}

void hard_free(void *p)
{
    struct unwind_state from = UNWIND_STATE_CALLER();
    struct hard_block b;
    int saved = errno;
    if (!p)
        return;
    if (grind_on) {
        grind_free(p);
        return;
    }
    block_at(p, &b);
    if (recordless(&b, true)) {
        core_free(p);
    } else {
        block_check(&b);
        block_free(&b, &from);
    }
    errno = saved;
}

/* Always to another place: who still has the old address is found out. */
void *hard_realloc(void *p, size_t bytes)
{
    struct unwind_state from = UNWIND_STATE_CALLER();
    struct hard_block old;
    if (grind_on)
        return grind_realloc(p, bytes);
    block_at(p, &old);
    bool early_block = recordless(&old, false);
    if (!early_block)
        block_check(&old);
    size_t had = early_block ? old.usable : old.record->bytes;
    void *to = hard_alloc(bytes, 1, false);
    if (!to && bytes <= had) {
        if (!early_block)
            record_write(&old, bytes, old.record->alloc_stack);
        return p; /* less needs no memory */
    }
    if (!to)
        return NULL;
    memcpy(to, p, had < bytes ? had : bytes);
    if (!early_block)
        block_free(&old, &from);
    else if (recordless(&old, true))
        core_free(p);
    return to;
}

/* What was asked for: the rest is the canary's. */
size_t hard_usable(void *p)
{
    struct hard_block b;
    if (grind_on)
        return grind_usable(p);
    block_at(p, &b);
    if (recordless(&b, false))
        return b.usable;
    block_check(&b);
    return b.record->bytes;
}
