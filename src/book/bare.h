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

/* 0, or -ENOSPC with nothing counted. The account exists; a live id is replaced. */
int book_bare_alloc(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id,
                    uint64_t size_tag, uint32_t time);

/* Bytes of the block that is gone, or -ENOENT. */
int64_t book_bare_free(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id);

/* 0, or -ENOENT when there is no such block; its bytes count in any case. Id 0: no block. */
int book_bare_transfer(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id,
                       uint64_t bytes, bool into, uint32_t time);
