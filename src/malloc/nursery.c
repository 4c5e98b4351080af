/* nursery.c: see nursery.h. */
#include "malloc/nursery.h"

#include <sys/single_threaded.h>

#include "malloc/heap.h"
#include "malloc/os.h"

enum { HOLES_TRIED = 32 }; /* nobody looks through hundreds of small ones */

static struct nursery *const now = &nursery_region.now;

static inline bool bit_is(const uint64_t *words, uint32_t place)
{
    return load_relaxed(&words[place / 64]) >> place % 64 & 1;
}

static inline void bit_set(uint64_t *words, uint32_t place)
{
    words[place / 64] |= UINT64_C(1) << place % 64;
}

static inline void bit_clear(uint64_t *words, uint32_t place)
{
    words[place / 64] &= ~(UINT64_C(1) << place % 64);
}

static inline uint32_t end_of(void)
{
    return now->end ? now->end : (uint32_t)NURSERY_FIRST;
}

/* Where the block after this one starts, or the end. */
static uint32_t next_start(uint32_t place)
{
    uint32_t word = ++place / 64, end = end_of();
    uint64_t bits = place < end ? now->starts[word] & ~UINT64_C(0) << place % 64 : 0;
    while (!bits && ++word < (end + 63) / 64)
        bits = now->starts[word];
    return bits ? word * 64 + (uint32_t)__builtin_ctzll(bits) : end;
}

/* Where the last block before this place starts; 0: it is the first. */
static uint32_t last_start(uint32_t place)
{
    uint32_t word = place / 64;
    uint64_t bits = now->starts[word] & ~(~UINT64_C(0) << place % 64);
    while (!bits && word > 0)
        bits = now->starts[--word];
    return bits ? word * 64 + 63 - (uint32_t)__builtin_clzll(bits) : 0;
}

static inline uint32_t place_of(const void *p)
{
    return (uint32_t)(((uintptr_t)p - (uintptr_t)&nursery_region) / NURSERY_STEP);
}

static inline void *address_of(uint32_t place)
{
    return nursery_region.bytes + (size_t)place * NURSERY_STEP;
}

/* ---- giving out ---- */

void nursery_close(void)
{
    if (!nursery_is_closed())
        store_relaxed(&now->closed, 1);
}

/* Who finds it open is the only thread there is. */
static bool is_open(void)
{
    if (nursery_is_closed())
        return false;
    if (likely(__libc_single_threaded))
        return true;
    nursery_close();
    return false;
}

/* The first free block that is large enough, if it is not far; what is left of it stays free. */
static uint32_t hole_take(uint32_t places)
{
    unsigned tried = 0;
    for (uint32_t word = 0; word < (end_of() + 63) / 64; word++)
        for (uint64_t bits = now->starts[word] & ~now->live[word]; bits; bits &= bits - 1) {
            uint32_t at = word * 64 + (uint32_t)__builtin_ctzll(bits);
            uint32_t has = next_start(at) - at;
            if (has > places)
                bit_set(now->starts, at + places);
            if (has >= places)
                return at;
            if (++tried == HOLES_TRIED)
                return 0;
        }
    return 0;
}

/* At the end; what is left out for the sake of an alignment is a free block. */
static uint32_t end_take(uint32_t places, uint32_t align)
{
    /* The region itself is not aligned to more than a place. */
    uint32_t end = end_of(), before = (uint32_t)((uintptr_t)&nursery_region / NURSERY_STEP);
    uint32_t at = ((before + end + align - 1) & ~(align - 1)) - before;
    if (at + places > NURSERY_PLACES)
        return 0;
    if (at > end)
        bit_set(now->starts, end);
    now->end = at + places;
    bit_set(now->starts, at);
    return at;
}

void *nursery_alloc(size_t bytes, size_t align)
{
    if (!is_open() || bytes > NURSERY_BLOCK_MAX || align > NURSERY_BLOCK_MAX / 8)
        return NULL;
    uint32_t places = bytes ? (uint32_t)(bytes + NURSERY_STEP - 1) / NURSERY_STEP : 1;
    uint32_t at = 0;
    if (now->calls < NURSERY_CALLS) {
        now->calls++;
        at = align <= NURSERY_STEP ? hole_take(places) : 0;
        if (!at)
            at = end_take(places, align <= NURSERY_STEP ? 1 : (uint32_t)align / NURSERY_STEP);
    }
    if (!at) {
        nursery_close();
        return NULL;
    }
    bit_set(now->live, at);
    return address_of(at);
}

/* ---- taking back ---- */

/* A free block and its free neighbours are one; the last one is none. */
static void merge(uint32_t at)
{
    uint32_t after = next_start(at), before = last_start(at);
    if (after < now->end && !bit_is(now->live, after)) {
        bit_clear(now->starts, after);
        after = next_start(at);
    }
    if (before && !bit_is(now->live, before)) {
        bit_clear(now->starts, at);
        at = before;
    }
    if (after == now->end) {
        bit_clear(now->starts, at);
        now->end = at;
    }
}

/* Does no block in use touch the page that begins with that place? */
static bool page_is_dead(uint32_t first)
{
    for (uint32_t at = first, end = first + os_page_bytes() / NURSERY_STEP; at < end;
         at = (at | 63) + 1) {
        uint64_t live = load_acquire(&now->live[at / 64]) >> at % 64;
        if (end - at < 64)
            live &= ~(~UINT64_C(0) << (end - at));
        if (live)
            return false;
    }
    return bit_is(now->starts, first) || !bit_is(now->live, last_start(first));
}

/* Closed: nobody is given anything here any more, so a page goes back with its last block. Two who find that at once both do it. The region
 * begins and ends anywhere in a page: others have the rest. A program without a heap does not come here. */
static __attribute__((noinline)) void pages_give(uint32_t from, uint32_t to)
{
    uintptr_t blocks = (uintptr_t)address_of(NURSERY_FIRST);
    uintptr_t bytes = os_page_bytes(), page = (uintptr_t)address_of(from) & ~(bytes - 1);
    uintptr_t end = os_page_up((uintptr_t)address_of(to)), dead = 0;
    for (; page <= end; page += bytes) {
        bool ours = page >= blocks && page + bytes <= (uintptr_t)(&nursery_region + 1);
        if (page < end && ours && page_is_dead(place_of((void *)page))) {
            dead += bytes;
        } else if (dead > 0) {
            os_purge((void *)(page - dead), dead);
            dead = 0;
        }
    }
}

/* In use, and its start? */
static bool is_block(const void *p)
{
    uint32_t place = place_of(p);
    return nursery_has(p) && (uintptr_t)p % NURSERY_STEP == 0 && bit_is(now->live, place);
}

bool nursery_free(void *p)
{
    uint32_t at = place_of(p);
    if (!is_block(p))
        return false;
    if (is_open()) {
        bit_clear(now->live, at);
        merge(at);
        return true;
    }
    uint64_t bit = UINT64_C(1) << at % 64;
    if (!(__atomic_fetch_and(&now->live[at / 64], ~bit, __ATOMIC_ACQ_REL) & bit))
        return false;
    pages_give(at, next_start(at));
    return true;
}

size_t nursery_usable(const void *p)
{
    uint32_t at = place_of(p);
    return is_block(p) ? (size_t)(next_start(at) - at) * NURSERY_STEP : 0;
}

/* ---- walks ---- */

void *nursery_around(const void *p)
{
    uint32_t place = place_of(p);
    if (!nursery_has(p) || place >= end_of())
        return NULL;
    uint32_t at = bit_is(now->starts, place) ? place : last_start(place);
    return at && bit_is(now->live, at) ? address_of(at) : NULL;
}

uint64_t nursery_count(uint64_t *ret_bytes)
{
    uint64_t blocks = 0;
    *ret_bytes = 0;
    for (uint32_t at = NURSERY_FIRST, end = end_of(), after; at < end; at = after) {
        after = next_start(at);
        if (!bit_is(now->live, at))
            continue;
        blocks++;
        *ret_bytes += (uint64_t)(after - at) * NURSERY_STEP;
    }
    return blocks;
}

/* Blocks lie one after the other from the first place to the end, and what is in use starts somewhere. */
uint32_t nursery_check(void)
{
    uint32_t end = end_of();
    if (end < NURSERY_FIRST || end > NURSERY_PLACES)
        return end;
    if (end > NURSERY_FIRST && !bit_is(now->starts, NURSERY_FIRST))
        return NURSERY_FIRST;
    for (uint32_t place = 0; place < NURSERY_PLACES; place++) {
        bool start = bit_is(now->starts, place), live = bit_is(now->live, place);
        if ((live && !start) || (start && (place < NURSERY_FIRST || place >= end)))
            return place;
    }
    return 0;
}
