/*
 * bare.h: reports into a bare book, which a daemon writes on behalf of somebody.
 *
 * One thread writes, there are no call sites and no counter pages: every account counts in its own
 * record, so a report is a handful of plain stores and a book needs few pages. Who is killed between two
 * of them leaves counters that disagree with the blocks by that one report; see "Adoption" in
 * doc/book.md.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "book/report.h"
#include "book/table.h"
#include "book/writer.h"

/* Live blocks of all accounts. */
static inline uint64_t book_bare_blocks(const struct book_writer *w)
{
    return w->table.shard[0].live;
}

static inline void book_bare_count_alloc(struct book_account *account, uint64_t bytes)
{
    struct book_counters *c = &account->common;
    book_add(&c->alloc_bytes, bytes);
    book_add(&c->alloc_blocks, 1);
    uint64_t live = c->alloc_bytes - c->freed_bytes;
    if (live > account->peak_bytes)
        store_relaxed(&account->peak_bytes, live);
}

static inline void book_bare_count_free(struct book_account *account, uint64_t bytes)
{
    book_add(&account->common.freed_bytes, bytes);
    book_add(&account->common.freed_blocks, 1);
}

/* Where a block is looked for: by its device, not its account. */
static inline uint64_t book_bare_hash(struct book_writer *w, uint32_t account, uint64_t id)
{
    return table_hash(&w->table, book_account_at(w, account)->device, id);
}

/* 0, or -ENOSPC with nothing counted. The account exists; a live id is replaced. */
int book_bare_alloc(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id,
                    uint64_t size_tag, uint32_t time);

/* gcc takes a function that only prefetches for one without effect, and leaves its calls out. */
#define BOOK_BARE_HAS_EFFECT() __asm__ volatile("")

/* Ask for what a report about that block will look at, a few reports ahead: first for the head of its chunk,
 * and when that has come, for the slot that it leads to. */
static inline void book_bare_prefetch_head(struct book_writer *w, uint32_t account, uint64_t id)
{
    const struct table_shard *shard = &w->table.shard[0];
    uint64_t hash = book_bare_hash(w, account, id);
    __builtin_prefetch(table_head_of(shard, table_home_of(shard, hash)), 1);
    BOOK_BARE_HAS_EFFECT();
}

static inline void book_bare_prefetch_slot(struct book_writer *w, uint32_t account, uint64_t id,
                                           bool alloc)
{
    const struct table_shard *shard = &w->table.shard[0];
    uint64_t hash = book_bare_hash(w, account, id);
    struct table_home home = table_home_of(shard, hash);
    const struct table_head *head = table_head_of(shard, home);
    uint32_t slots = alloc ? table_empty(head) : table_match(head, table_print(hash));
    if (slots)
        __builtin_prefetch(&table_chunk_of(shard, home)[__builtin_ctz(slots)], 1);
    BOOK_BARE_HAS_EFFECT();
}

/* The same if it can be told at a glance that the id lives nowhere on the account's device: a home chunk from
 * which nothing went on, without that fingerprint. False, and nothing is done, if it cannot. */
bool book_bare_alloc_new(struct book_writer *w, uint32_t account, uint64_t id, uint64_t size_tag,
                         uint32_t time);

/* Bytes of the block of any of the accounts that is gone, and its account; or -ENOENT, which is not counted. */
int64_t book_bare_free_among(struct book_writer *w, struct book_thread *t, const uint16_t *accounts,
                             uint32_t n, uint64_t id, uint32_t *ret_account);

/* Bytes of the block that is gone, or -ENOENT (which is counted). */
int64_t book_bare_free(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id);

/* 0, or -ENOENT when there is no such block; its bytes count in any case. Id 0: no block. */
int book_bare_transfer(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id,
                       uint64_t bytes, bool into, uint32_t time);
