/* bare.c: see bare.h. */
#include "book/bare.h"

#include <errno.h>

/* The usual case: room in the home chunk, no moves to clear. */
static bool put_quick(struct book_writer *w, uint32_t account, uint64_t id, uint64_t size_tag,
                      uint64_t place)
{
    struct table_shard *shard = &w->table.shard[0];
    return !w->moves_open && !w->table.broken &&
           table_put_at_home(shard, book_bare_hash(w, account, id), id, size_tag, place);
}

int book_bare_alloc(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id,
                    uint64_t size_tag, uint32_t time)
{
    struct book_account *record = book_account_at(w, account);
    struct book_block old, block = {
                               .id = id,
                               .size_tag = size_tag,
                               .place = account | (uint64_t)time << 32,
                           };
    int r = put_quick(w, account, id, size_tag, block.place) ? 0 : table_put(w, t, &block, &old);
    if (r < 0) {
        book_lose(w, BOOK_LOSS_BLOCKS_FULL);
        return -ENOSPC;
    }
    book_bare_count_alloc(record, size_tag & BOOK_BLOCK_SIZE_MAX);
    if (r == 1) {
        book_bare_count_free(record, book_block_bytes(&old));
        book_lose(w, BOOK_LOSS_REPLACED);
    }
    return 0;
}

bool book_bare_alloc_new(struct book_writer *w, uint32_t account, uint64_t id, uint64_t size_tag,
                         uint32_t time)
{
    if (!put_quick(w, account, id, size_tag, account | (uint64_t)time << 32))
        return false;
    book_bare_count_alloc(book_account_at(w, account), size_tag & BOOK_BLOCK_SIZE_MAX);
    return true;
}

int64_t book_bare_free_among(struct book_writer *w, struct book_thread *t, const uint16_t *accounts,
                             uint32_t n, uint64_t id, uint32_t *ret_account)
{
    struct book_block old;
    if (!table_take_any(w, t, accounts, n, id, &old))
        return -ENOENT;
    uint64_t bytes = book_block_bytes(&old);
    *ret_account = book_place_account(old.place);
    book_bare_count_free(book_account_at(w, *ret_account), bytes);
    return (int64_t)bytes;
}

int64_t book_bare_free(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id)
{
    struct book_block old;
    uint64_t hash = book_bare_hash(w, account, id);
    bool found =
        !w->moves_open && !w->table.broken &&
        table_take_at_home(&w->table.shard[0], hash, account, id, &old.size_tag, &old.place);
    if (!found && !table_take(w, t, account, id, &old)) {
        book_lose(w, BOOK_LOSS_UNKNOWN_FREE);
        return -ENOENT;
    }
    uint64_t bytes = book_block_bytes(&old);
    book_bare_count_free(book_account_at(w, account), bytes);
    return (int64_t)bytes;
}

int book_bare_transfer(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id,
                       uint64_t bytes, bool into, uint32_t time)
{
    struct book_counters *c = &book_account_at(w, account)->common;
    book_add(into ? &c->moved_in_bytes : &c->moved_out_bytes, bytes);
    book_add(into ? &c->moved_in : &c->moved_out, 1);
    if (id == 0 || table_move(w, t, account, id, time))
        return 0;
    book_lose(w, BOOK_LOSS_UNKNOWN_MOVE);
    return -ENOENT;
}
