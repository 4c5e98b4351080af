/*
 * table.h: the live blocks of a book, found by (account, id).
 *
 * A hash table that grows in place. Slots come in chunks of 14; for each chunk the index keeps 16
 * bytes: a fingerprint per slot and a count of the blocks that did not fit here and went on to a
 * later chunk. A lookup reads one index line (a megabyte or two for a million blocks, so it stays
 * in cache) and then, nearly always, exactly one entry: one cache miss for a free, and a store miss
 * that nobody waits for on an allocation. Entries do not move when others come or go, so the slot
 * number can carry further columns, and a reader needs no lock.
 *
 * The home chunk is hash * chunks / 2^32, so a larger table keeps the order of homes, and growing
 * moves entries only upwards (but for the few that wrapped around the end): by a quarter, inside
 * the same address range, without a second copy. The worst fill is 0.62, 40 bytes per live block
 * all told.
 *
 * Books of processes find a block by (account, id). In those that a daemon writes the hash goes by
 * (device, id), since some of its clients free a buffer without telling in which space it is: one
 * search finds it in whichever account of the device.
 *
 * Eight shards, each with a lock of its own, taken only in processes with more than one thread.
 * Each has its part of the sections BLOCKS and BLOCK_INDEX and opens pages there.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "book/layout.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

struct book_writer;
struct book_thread;

enum {
    TABLE_CHUNK = 14,           /* slots */
    TABLE_CHUNKS_PER_PAGE = 12, /* 12 * 14 = BOOK_BLOCKS_PER_PAGE */
};
static_assert(TABLE_CHUNK * TABLE_CHUNKS_PER_PAGE == BOOK_BLOCKS_PER_PAGE, "page");

/* Index entry of a chunk. An empty slot has the fingerprint 0. */
struct table_head {
    uint8_t print[TABLE_CHUNK];
    uint8_t overflow; /* blocks that passed by here because there was no room; 255 stays */
    uint8_t spare;
};
static_assert(sizeof(struct table_head) == 16, "head");

/* Belongs to whoever holds the lock (or to the only thread). What every report changes lies apart
 * from what it only reads, so that another thread can find its way before it has the lock. */
struct table_shard {
    struct book_block_page *blocks __attribute__((aligned(64)));
    struct table_head *heads;
    uint32_t pages; /* of BOOK_BLOCKS_PER_PAGE slots; 0 until the first block */
    uint32_t limit; /* grow when live reaches it */

    uint32_t lock __attribute__((aligned(64)));
    uint32_t live;
};
static_assert(sizeof(struct table_shard) == 128, "two cache lines each");

struct table {
    uint64_t seed;
    uint32_t shard_shift; /* 32 - log2 of the number of shards */
    bool plain;           /* only the usual cases of report.h to think of: no MOVES, not broken */
    bool by_device;       /* blocks of one device and id lie together, whatever their account */
    bool broken;          /* a growth was torn: no block is found or kept any more */
    uint32_t part_pages;  /* from one shard's part of BLOCKS to the next */
    uint32_t max_pages;   /* of them that the index has room for */
    struct table_shard shard[BOOK_BLOCK_SHARDS_MAX] __attribute__((aligned(64)));
};

/* Point the shards at the sections of w's mapping. */
void table_rebase(struct book_writer *w);

/* Store a block. Returns 0, 1 if it replaced a live one (copied to ret_old), or -ENOSPC: not
 * stored. May open pages. report.h has the usual cases inline. */
int table_put(struct book_writer *w, struct book_thread *t, const struct book_block *block,
              struct book_block *ret_old);

/* Remove a block; false if there is none. */
bool table_take(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id,
                struct book_block *ret_old);

/* Remove a block that is in any of these accounts (0: none); false if there is none. Only for tables by device, which
 * have one shard. Where all accounts are of one device, it is a single search. */
bool table_take_any(struct book_writer *w, struct book_thread *t, const uint16_t *accounts,
                    uint32_t n, uint64_t id, struct book_block *ret_old);

/* Count a transfer for a block; false if there is none. */
bool table_move(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id,
                uint32_t time);

/* Open pages for that many blocks ahead of time. */
int table_reserve(struct book_writer *w, struct book_thread *t, uint64_t blocks);

/* Walk everything and check the invariants; 0 or the number of faults. For tests. */
unsigned table_check(struct book_writer *w);

/* ---- the parts below are for table.c, report.h and tests ---- */

/* `key` is the block's account or, in a table by device, the device of that. */
static inline uint64_t table_hash(const struct table *table, uint32_t key, uint64_t id)
{
    unsigned __int128 product = (unsigned __int128)(id ^ table->seed) *
                                (UINT64_C(0x9e3779b97f4a7c15) + ((uint64_t)key << 33));
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* The top bits choose the shard, the lower half the chunk, the lowest eight are the fingerprint. */
static inline struct table_shard *table_shard_of(struct table *table, uint64_t hash)
{
    return &table->shard[(hash >> 32) >> table->shard_shift];
}

static inline uint32_t table_print(uint64_t hash)
{
    uint32_t print = (uint32_t)hash & 0xff;
    return print + (print == 0);
}

/* Where a chunk is: chunk number = page * TABLE_CHUNKS_PER_PAGE + chunk. */
struct table_home {
    uint64_t page;
    uint64_t chunk;
};

static inline struct table_home table_home_of(const struct table_shard *shard, uint64_t hash)
{
    uint64_t scaled = (hash & UINT32_MAX) * shard->pages;
    return (struct table_home){scaled >> 32, (scaled & UINT32_MAX) * TABLE_CHUNKS_PER_PAGE >> 32};
}

static inline struct table_head *table_head_of(const struct table_shard *shard,
                                               struct table_home home)
{
    return &shard->heads[home.page * TABLE_CHUNKS_PER_PAGE + home.chunk];
}

static inline struct book_block *table_chunk_of(const struct table_shard *shard,
                                                struct table_home home)
{
    return &shard->blocks[home.page].slots[home.chunk * TABLE_CHUNK];
}

/* Bit i is set if slot i has that fingerprint. */
static inline uint32_t table_match(const struct table_head *head, uint32_t print)
{
#if defined(__SSE2__)
    __m128i all = _mm_load_si128((const __m128i *)head);
    __m128i wanted = _mm_shuffle_epi32(_mm_cvtsi32_si128((int)(print * 0x01010101u)), 0);
    return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(all, wanted)) & ((1u << TABLE_CHUNK) - 1);
#else
    uint32_t mask = 0;
    for (uint32_t i = 0; i < TABLE_CHUNK; i++)
        mask |= (uint32_t)(head->print[i] == print) << i;
    return mask;
#endif
}

/* Bit i is set if slot i is empty. */
static inline uint32_t table_empty(const struct table_head *head)
{
    return table_match(head, 0);
}

/* Readers look at `place` to tell a live slot: it is stored last and cleared first. */
static inline void table_slot_fill(struct book_block *slot, uint64_t id, uint64_t size_tag,
                                   uint64_t place)
{
    store_release(&slot->id, id); /* after the clearing of what was there before */
    store_relaxed(&slot->size_tag, size_tag);
    store_release(&slot->place, place);
}

static inline void table_slot_clear(struct book_block *slot)
{
    store_release(&slot->place, 0);
}

/* The usual case of a put, with the lock held: the home chunk has room, nothing went on from it,
 * and no fingerprint there is the same. */
static inline bool table_put_at_home(struct table_shard *shard, uint64_t hash, uint64_t id,
                                     uint64_t size_tag, uint64_t place)
{
    if (__builtin_expect(shard->live >= shard->limit, 0))
        return false;
    struct table_home home = table_home_of(shard, hash);
    struct table_head *head = table_head_of(shard, home);
    uint32_t print = table_print(hash), empty = table_empty(head);
    if (__builtin_expect(!empty || head->overflow || table_match(head, print), 0))
        return false;
    uint32_t i = (uint32_t)__builtin_ctz(empty);
    table_slot_fill(&table_chunk_of(shard, home)[i], id, size_tag, place);
    head->print[i] = (uint8_t)print;
    shard->live++;
    return true;
}

/* The usual case of a take: the first slot in the home chunk with that fingerprint is the one. */
static inline bool table_take_at_home(struct table_shard *shard, uint64_t hash, uint32_t account,
                                      uint64_t id, uint64_t *ret_size_tag, uint64_t *ret_place)
{
    if (__builtin_expect(shard->live == 0, 0))
        return false;
    struct table_home home = table_home_of(shard, hash);
    struct table_head *head = table_head_of(shard, home);
    uint32_t same = table_match(head, table_print(hash));
    if (__builtin_expect(!same, 0))
        return false;
    uint32_t i = (uint32_t)__builtin_ctz(same);
    struct book_block *block = &table_chunk_of(shard, home)[i];
    uint64_t place = block->place;
    if (__builtin_expect(block->id != id || book_place_account(place) != account, 0))
        return false;
    *ret_size_tag = block->size_tag;
    *ret_place = place;
    table_slot_clear(block);
    head->print[i] = 0;
    shard->live--;
    return true;
}
