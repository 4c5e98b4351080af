/* nursery.c: see nursery.h. */
#include "malloc/nursery.h"

#include <sys/single_threaded.h>

#include "malloc/heap.h"
#include "malloc/os.h"

enum { HOLES_TRIED = 32 }; /* nobody looks through hundreds of small ones */

static struct nursery *const now = &nursery_region.now;

/* Not inline: what each program runs is to be short, and nothing here is done a thousand times. */
static __attribute__((noinline)) struct nursery_bits *bits_of(uint32_t word)
{
    return word < NURSERY_NEAR ? &now->near[word] : &nursery_region.far[word - NURSERY_NEAR];
}

static inline uint64_t bit_of(uint32_t place)
{
    return UINT64_C(1) << place % 64;
}

static inline bool is_start(uint32_t place)
{
    return bits_of(place / 64)->starts & bit_of(place);
}

static inline bool is_live(uint32_t place)
{
    return load_relaxed(&bits_of(place / 64)->live) & bit_of(place);
}

static inline void start_set(uint32_t place)
{
    bits_of(place / 64)->starts |= bit_of(place);
}

static inline void start_clear(uint32_t place)
{
    bits_of(place / 64)->starts &= ~bit_of(place);
}

static inline uint32_t end_of(void)
{
    return now->end ? now->end : (uint32_t)NURSERY_FIRST;
}

/* Where the block after this one starts, or the end. */
static uint32_t next_start(uint32_t place)
{
    uint32_t word = ++place / 64, end = end_of();
    uint64_t bits = place < end ? bits_of(word)->starts & ~UINT64_C(0) << place % 64 : 0;
    while (!bits && ++word < (end + 63) / 64)
        bits = bits_of(word)->starts;
    return bits ? word * 64 + (uint32_t)__builtin_ctzll(bits) : end;
}

/* Where the last block before this place starts; 0: it is the first. */
static uint32_t last_start(uint32_t place)
{
    uint32_t word = place / 64;
    uint64_t bits = bits_of(word)->starts & ~(~UINT64_C(0) << place % 64);
    while (!bits && word > 0)
        bits = bits_of(--word)->starts;
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
        for (uint64_t bits = bits_of(word)->starts & ~bits_of(word)->live; bits; bits &= bits - 1) {
            uint32_t at = word * 64 + (uint32_t)__builtin_ctzll(bits);
            uint32_t has = next_start(at) - at;
            if (has > places)
                start_set(at + places);
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
        start_set(end);
    now->end = at + places;
    start_set(at);
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
    bits_of(at / 64)->live |= bit_of(at);
    return address_of(at);
}

/* ---- taking back ---- */

/* A free block and its free neighbours are one; the last one is none. */
static void merge(uint32_t at)
{
    uint32_t after = next_start(at), before = last_start(at);
    if (after < now->end && !is_live(after)) {
        start_clear(after);
        after = next_start(at);
    }
    if (before && !is_live(before)) {
        start_clear(at);
        at = before;
    }
    if (after == now->end) {
        start_clear(at);
        now->end = at;
    }
}

/* Does no block in use touch the page that begins with that place? */
static bool page_is_dead(uint32_t first)
{
    for (uint32_t at = first, end = first + os_page_bytes() / NURSERY_STEP; at < end;
         at = (at | 63) + 1) {
        uint64_t live = load_acquire(&bits_of(at / 64)->live) >> at % 64;
        if (end - at < 64)
            live &= ~(~UINT64_C(0) << (end - at));
        if (live)
            return false;
    }
    return is_start(first) || !is_live(last_start(first));
}

/* Closed: nobody is given anything here any more, so a page goes back with its last block. Two who find that at once both do it. The region
 * begins anywhere in a page, and its blocks end anywhere: others have the rest. A program without a heap does not come here. */
static __attribute__((noinline)) void pages_give(uint32_t from, uint32_t to)
{
    uintptr_t blocks = (uintptr_t)address_of(NURSERY_FIRST);
    uintptr_t bytes = os_page_bytes(), page = (uintptr_t)address_of(from) & ~(bytes - 1);
    uintptr_t end = os_page_up((uintptr_t)address_of(to)), dead = 0;
    for (; page <= end; page += bytes) {
        bool ours = page >= blocks && page + bytes <= (uintptr_t)nursery_region.far;
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
    return nursery_has(p) && (uintptr_t)p % NURSERY_STEP == 0 && is_live(place);
}

bool nursery_free(void *p)
{
    uint32_t at = place_of(p);
    if (!is_block(p))
        return false;
    if (is_open()) {
        bits_of(at / 64)->live &= ~bit_of(at);
        merge(at);
        return true;
    }
    uint64_t bit = bit_of(at);
    if (!(__atomic_fetch_and(&bits_of(at / 64)->live, ~bit, __ATOMIC_ACQ_REL) & bit))
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
    uint32_t at = is_start(place) ? place : last_start(place);
    return at && is_live(at) ? address_of(at) : NULL;
}

uint64_t nursery_count(uint64_t *ret_bytes)
{
    uint64_t blocks = 0;
    *ret_bytes = 0;
    for (uint32_t at = NURSERY_FIRST, end = end_of(), after; at < end; at = after) {
        after = next_start(at);
        if (!is_live(at))
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
    if (end > NURSERY_FIRST && !is_start(NURSERY_FIRST))
        return NURSERY_FIRST;
    for (uint32_t place = 0; place < NURSERY_PLACES; place++) {
        bool start = is_start(place), live = is_live(place);
        if ((live && !start) || (start && (place < NURSERY_FIRST || place >= end)))
            return place;
    }
    return 0;
}
