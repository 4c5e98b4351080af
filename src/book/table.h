/*
 * table.h: the live blocks of a book, found by (account, id).
 *
 * A hash table that grows in place. Slots come in chunks of 14; for each chunk the index keeps 16
 * bytes: a fingerprint per slot and a count of the blocks that did not fit here and went on to a
 * later chunk. A lookup reads one index line (a megabyte for a million blocks, so it stays in
 * cache) and then, nearly always, exactly one entry: one cache miss for a free, and a store miss
 * that nobody waits for on an allocation. Entries do not move when others come or go, so the slot
 * number can carry further columns, and a reader needs no lock.
 *
 * The home chunk is hash * chunks / 2^32, so a larger table keeps the order of homes, and growing
 * moves entries only upwards: by a quarter, inside the same address range, without a second copy.
 * The worst fill is 0.62, or 40 bytes per live block all told.
 *
 * Sixteen shards, each with a lock of its own, taken only in processes with more than one thread.
 * A shard owns every 16th page of the section, so that it opens pages without asking the others.
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
    TABLE_SHARDS_MAX = 16,
    TABLE_CHUNK = 14,           /* slots */
    TABLE_CHUNKS_PER_PAGE = 12, /* 12 * 14 = BOOK_BLOCKS_PER_PAGE */
    TABLE_TAIL = 2,             /* chunks past the last home, for what overflows there */
    TABLE_HEADS_PER_LINE = 4,
};
static_assert(TABLE_CHUNK * TABLE_CHUNKS_PER_PAGE == BOOK_BLOCKS_PER_PAGE, "page");

/* Index entry of a chunk. A fingerprint of 0 marks an empty slot. */
struct table_head {
    uint8_t print[TABLE_CHUNK];
    uint8_t overflow; /* blocks whose home is here or before and that lie behind; 255 stays */
    uint8_t spare;
};
static_assert(sizeof(struct table_head) == 16, "head");

/* All fields belong to whoever holds the lock (or to the only thread). */
struct table_shard {
    uint32_t lock;
    uint32_t chunks; /* homes; 0 until the first block */
    uint32_t pages;  /* chunks + TABLE_TAIL <= pages * TABLE_CHUNKS_PER_PAGE */
    uint32_t live;
    uint32_t limit; /* grow when live reaches it */
    uint32_t spare[11];
};
static_assert(sizeof(struct table_shard) == 64, "one cache line each");

struct table {
    uint8_t *blocks; /* start of the section BLOCKS */
    uint8_t *index;  /* start of the section BLOCK_INDEX */
    uint64_t seed;
    uint32_t shards;
    bool broken; /* a growth was torn: no block is found or kept any more */
    struct table_shard shard[TABLE_SHARDS_MAX];
};

/* Store a block. Returns 0, 1 if it replaced a live one (copied to ret_old), or -ENOSPC: not
 * stored. May open pages. */
int table_put(struct book_writer *w, struct book_thread *t, const struct book_block *block,
              struct book_block *ret_old);

/* Remove a block; false if there is none. */
bool table_take(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id,
                struct book_block *ret_old);

/* Count a transfer for a block; false if there is none. */
bool table_move(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id,
                uint32_t time);

/* Open pages for that many blocks ahead of time. */
int table_reserve(struct book_writer *w, struct book_thread *t, uint64_t blocks);

/* Walk everything and check the invariants; 0 or the number of faults. For tests. */
unsigned table_check(struct book_writer *w);

/* ---- the parts below are for table.c and its tests ---- */

static inline uint64_t table_hash(const struct table *table, uint32_t account, uint64_t id)
{
    unsigned __int128 product = (unsigned __int128)(id ^ table->seed) *
                                (UINT64_C(0x9e3779b97f4a7c15) + ((uint64_t)account << 33));
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint32_t table_shard_of(const struct table *table, uint64_t hash)
{
    return (uint32_t)(((hash >> 32) * table->shards) >> 32);
}

static inline uint32_t table_home(uint64_t hash, uint32_t chunks)
{
    return (uint32_t)(((hash & UINT32_MAX) * chunks) >> 32);
}

static inline uint8_t table_print(uint64_t hash)
{
    uint8_t print = (uint8_t)hash;
    return print ? print : 1;
}

static inline struct table_head *table_head_at(const struct table *table, uint32_t shard,
                                               uint32_t chunk)
{
    uint64_t line = (uint64_t)(chunk / TABLE_HEADS_PER_LINE) * table->shards + shard;
    return (struct table_head *)(table->index + line * 64) + chunk % TABLE_HEADS_PER_LINE;
}

static inline uint64_t table_slot_number(const struct table *table, uint32_t shard, uint32_t chunk)
{
    uint64_t page = (uint64_t)(chunk / TABLE_CHUNKS_PER_PAGE) * table->shards + shard;
    return page * BOOK_BLOCKS_PER_PAGE + (chunk % TABLE_CHUNKS_PER_PAGE) * TABLE_CHUNK;
}

static inline struct book_block *table_chunk_at(const struct table *table, uint32_t shard,
                                                uint32_t chunk)
{
    uint64_t page = (uint64_t)(chunk / TABLE_CHUNKS_PER_PAGE) * table->shards + shard;
    return (struct book_block *)(table->blocks + page * BOOK_BLOCK_PAGE_BYTES) +
           (chunk % TABLE_CHUNKS_PER_PAGE) * TABLE_CHUNK;
}

/* Bit i is set if slot i has that fingerprint. */
static inline uint32_t table_match(const struct table_head *head, uint8_t print)
{
#if defined(__SSE2__)
    __m128i all = _mm_load_si128((const __m128i *)head);
    __m128i same = _mm_cmpeq_epi8(all, _mm_set1_epi8((char)print));
    return (uint32_t)_mm_movemask_epi8(same) & ((1u << TABLE_CHUNK) - 1);
#else
    uint32_t mask = 0;
    for (uint32_t i = 0; i < TABLE_CHUNK; i++)
        mask |= (uint32_t)(head->print[i] == print) << i;
    return mask;
#endif
}
