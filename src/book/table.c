/* table.c: see table.h for the design. */
#include "book/table.h"

#include <errno.h>

#include "book/lock.h"
#include "book/writer.h"

enum {
    FILL_PERCENT = 78, /* live blocks per home slot at which a shard grows */
    OVERFLOW_STUCK = 255,
};

struct spot {
    struct table_head *head;
    struct book_block *block;
    uint32_t chunk, slot;
};

static uint32_t physical_chunks(const struct table_shard *shard)
{
    return shard->pages * TABLE_CHUNKS_PER_PAGE;
}

static inline bool find(const struct table *table, uint32_t shard, uint64_t hash, uint32_t account,
                        uint64_t id, struct spot *ret_spot)
{
    uint32_t chunks = table->shard[shard].chunks;
    uint32_t end = physical_chunks(&table->shard[shard]);
    uint8_t print = table_print(hash);
    for (uint32_t c = table_home(hash, chunks); c < end; c++) {
        struct table_head *head = table_head_at(table, shard, c);
        struct book_block *chunk = table_chunk_at(table, shard, c);
        for (uint32_t mask = table_match(head, print); mask; mask &= mask - 1) {
            uint32_t i = (uint32_t)__builtin_ctz(mask);
            if (chunk[i].id == id && book_place_account(chunk[i].place) == account) {
                *ret_spot = (struct spot){head, &chunk[i], c, i};
                return true;
            }
        }
        if (__builtin_expect(head->overflow == 0, 1))
            return false;
    }
    return false;
}

/* The first chunk at or after `home` with an empty slot. */
static inline bool find_empty(const struct table *table, uint32_t shard, uint32_t home,
                              struct spot *ret_spot)
{
    uint32_t end = physical_chunks(&table->shard[shard]);
    for (uint32_t c = home; c < end; c++) {
        struct table_head *head = table_head_at(table, shard, c);
        uint32_t mask = table_match(head, 0);
        if (__builtin_expect(mask != 0, 1)) {
            uint32_t i = (uint32_t)__builtin_ctz(mask);
            *ret_spot = (struct spot){head, &table_chunk_at(table, shard, c)[i], c, i};
            return true;
        }
    }
    return false;
}

static inline void overflow_add(const struct table *table, uint32_t shard, uint32_t home,
                                uint32_t chunk)
{
    for (uint32_t c = home; c < chunk; c++) {
        struct table_head *head = table_head_at(table, shard, c);
        if (head->overflow < OVERFLOW_STUCK)
            head->overflow++;
    }
}

static inline void overflow_remove(const struct table *table, uint32_t shard, uint32_t home,
                                   uint32_t chunk)
{
    for (uint32_t c = home; c < chunk; c++) {
        struct table_head *head = table_head_at(table, shard, c);
        if (head->overflow < OVERFLOW_STUCK)
            head->overflow--;
    }
}

/* Readers look at `place` to tell a live slot: it is stored last and cleared first. */
static inline void slot_fill(struct book_block *slot, const struct book_block *block)
{
    store_relaxed(&slot->id, block->id);
    store_relaxed(&slot->size_tag, block->size_tag);
    store_release(&slot->place, block->place);
}

static inline void slot_clear(struct book_block *slot)
{
    store_release(&slot->place, 0);
}

/* ---- transfers per block ---- */

/* The moves entry of a slot, if its page is open. */
static struct book_moves *moves_at(struct book_writer *w, uint64_t slot_number)
{
    uint64_t offset = slot_number * sizeof(struct book_moves);
    uint64_t page = offset / w->page_bytes;
    if (!w->moves_open || !(load_relaxed(&w->moves_open[page / 64]) >> (page % 64) & 1))
        return NULL;
    return (struct book_moves *)(w->at[BOOK_SECTION_MOVES] + offset);
}

static inline void moves_clear(struct book_writer *w, uint32_t shard, const struct spot *spot)
{
    if (__builtin_expect(load_relaxed(&w->moves_open) == NULL, 1))
        return;
    uint64_t number = table_slot_number(&w->table, shard, spot->chunk) + spot->slot;
    struct book_moves *moves = moves_at(w, number);
    if (moves)
        store_relaxed(&moves->count, 0);
}

static void moves_copy(struct book_writer *w, uint64_t from, uint64_t to)
{
    struct book_moves *source = moves_at(w, from), *target = moves_at(w, to);
    if (target) {
        store_relaxed(&target->count, source ? source->count : 0);
        store_relaxed(&target->time, source ? source->time : 0);
    }
}

/* ---- growing ---- */

static uint32_t fill_limit(uint32_t chunks)
{
    return (uint32_t)((uint64_t)chunks * TABLE_CHUNK * FILL_PERCENT / 100);
}

/* Open block pages [shard->pages, want) and the index for them; gives how many pages there are. */
static uint32_t open_pages(struct book_writer *w, uint32_t shard_number, uint32_t want)
{
    struct table *table = &w->table;
    uint32_t pages = table->shard[shard_number].pages;
    uint64_t lines = (uint64_t)want * (TABLE_CHUNKS_PER_PAGE / TABLE_HEADS_PER_LINE);
    if (book_section_open(w, BOOK_SECTION_BLOCK_INDEX, lines * table->shards * 64) < 0)
        return pages;
    for (; pages < want; pages++) {
        uint64_t page = (uint64_t)pages * table->shards + shard_number;
        if (book_section_open_range(w, BOOK_SECTION_BLOCKS, page * BOOK_BLOCK_PAGE_BYTES,
                                    BOOK_BLOCK_PAGE_BYTES) < 0)
            break;
    }
    return pages;
}

/* Move what lies in `chunk` and has its new home further up. Chunks above are done already, so
 * what comes there stays. */
static void spread_chunk(struct book_writer *w, uint32_t shard, uint32_t chunk, uint32_t chunks)
{
    struct table *table = &w->table;
    struct table_head *head = table_head_at(table, shard, chunk);
    struct book_block *blocks = table_chunk_at(table, shard, chunk);
    for (uint32_t i = 0; i < TABLE_CHUNK; i++) {
        if (!head->print[i])
            continue;
        uint64_t hash = table_hash(table, book_place_account(blocks[i].place), blocks[i].id);
        uint32_t home = table_home(hash, chunks);
        if (home <= chunk)
            continue;
        struct spot to;
        if (find_empty(table, shard, home, &to)) {
            slot_fill(to.block, &blocks[i]);
            to.head->print[to.slot] = head->print[i];
            moves_copy(w, table_slot_number(table, shard, chunk) + i,
                       table_slot_number(table, shard, to.chunk) + to.slot);
        } else {
            /* Takes dozens of neighbours that all hash alike. */
            table->shard[shard].live--;
            book_lose(w, BOOK_LOSS_BLOCKS_FULL);
        }
        slot_clear(&blocks[i]);
        head->print[i] = 0;
    }
}

static void count_overflows(const struct table *table, uint32_t shard, uint32_t chunks,
                            uint32_t end)
{
    for (uint32_t c = 0; c < end; c++)
        table_head_at(table, shard, c)->overflow = 0;
    for (uint32_t c = 0; c < end; c++) {
        const struct table_head *head = table_head_at(table, shard, c);
        const struct book_block *blocks = table_chunk_at(table, shard, c);
        for (uint32_t i = 0; i < TABLE_CHUNK; i++) {
            if (!head->print[i])
                continue;
            uint64_t hash = table_hash(table, book_place_account(blocks[i].place), blocks[i].id);
            overflow_add(table, shard, table_home(hash, chunks), c);
        }
    }
}

/* Spread the shard over `pages` pages. The caller holds both locks. */
static void spread(struct book_writer *w, struct book_thread *t, uint32_t shard_number,
                   uint32_t pages)
{
    struct table *table = &w->table;
    struct table_shard *shard = &table->shard[shard_number];
    uint32_t old_end = physical_chunks(shard);
    uint32_t chunks = pages * TABLE_CHUNKS_PER_PAGE - TABLE_TAIL;

    t->growing = true;
    store_release(&w->header->blocks_seq, w->header->blocks_seq + 1);
    fence_seq_cst();
    shard->pages = pages;
    for (uint32_t c = old_end; c-- > 0;)
        spread_chunk(w, shard_number, c, chunks);
    shard->chunks = chunks;
    count_overflows(table, shard_number, chunks, physical_chunks(shard));
    store_release(&w->header->blocks_seq, w->header->blocks_seq + 1);
    t->growing = false;
}

static int grow_to(struct book_writer *w, struct book_thread *t, uint32_t shard_number,
                   uint32_t want)
{
    struct table_shard *shard = &w->table.shard[shard_number];
    if (!book_lock_take(w, t, &w->lock))
        return -EBUSY;
    uint32_t pages = open_pages(w, shard_number, want);
    if (pages > shard->pages)
        spread(w, t, shard_number, pages);
    book_lock_drop(t, &w->lock);

    shard->limit = fill_limit(shard->chunks);
    if (shard->live < shard->limit)
        return 0;
    /* No page to be had: use what is left, and do not ask again at every report. */
    shard->limit = shard->live + 64 + shard->live / 16;
    return -ENOSPC;
}

static int grow(struct book_writer *w, struct book_thread *t, uint32_t shard_number)
{
    uint32_t pages = w->table.shard[shard_number].pages;
    return grow_to(w, t, shard_number, pages + (pages < 8 ? 1 : pages / 4));
}

/* ---- the table's calls ---- */

static int put_locked(struct book_writer *w, struct book_thread *t, uint32_t shard_number,
                      uint64_t hash, const struct book_block *block, struct book_block *ret_old)
{
    struct table *table = &w->table;
    struct table_shard *shard = &table->shard[shard_number];
    uint32_t account = book_place_account(block->place);
    if (__builtin_expect(shard->live >= shard->limit, 0)) {
        grow(w, t, shard_number);
        if (shard->chunks == 0)
            return -ENOSPC;
    }
    struct spot spot;
    if (__builtin_expect(find(table, shard_number, hash, account, block->id, &spot), 0)) {
        *ret_old = *spot.block;
        slot_clear(spot.block);
        slot_fill(spot.block, block);
        moves_clear(w, shard_number, &spot);
        return 1;
    }
    uint32_t home = table_home(hash, shard->chunks);
    if (__builtin_expect(!find_empty(table, shard_number, home, &spot), 0)) {
        int r = grow(w, t, shard_number);
        if (r < 0)
            return r;
        home = table_home(hash, shard->chunks);
        if (!find_empty(table, shard_number, home, &spot))
            return -ENOSPC;
    }
    if (__builtin_expect(spot.chunk != home, 0))
        overflow_add(table, shard_number, home, spot.chunk);
    moves_clear(w, shard_number, &spot);
    slot_fill(spot.block, block);
    spot.head->print[spot.slot] = table_print(hash);
    shard->live++;
    return 0;
}

int table_put(struct book_writer *w, struct book_thread *t, const struct book_block *block,
              struct book_block *ret_old)
{
    struct table *table = &w->table;
    uint64_t hash = table_hash(table, book_place_account(block->place), block->id);
    uint32_t shard = table_shard_of(table, hash);
    if (__builtin_expect(table->broken, 0))
        return -ENOSPC;
    if (!book_lock_take(w, t, &table->shard[shard].lock))
        return -EBUSY;
    int r = put_locked(w, t, shard, hash, block, ret_old);
    book_lock_drop(t, &table->shard[shard].lock);
    return r;
}

bool table_take(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id,
                struct book_block *ret_old)
{
    struct table *table = &w->table;
    uint64_t hash = table_hash(table, account, id);
    uint32_t number = table_shard_of(table, hash);
    struct table_shard *shard = &table->shard[number];
    if (__builtin_expect(table->broken, 0) || !book_lock_take(w, t, &shard->lock))
        return false;
    struct spot spot;
    bool found = find(table, number, hash, account, id, &spot);
    if (__builtin_expect(found, 1)) {
        *ret_old = *spot.block;
        slot_clear(spot.block);
        spot.head->print[spot.slot] = 0;
        uint32_t home = table_home(hash, shard->chunks);
        if (__builtin_expect(spot.chunk != home, 0))
            overflow_remove(table, number, home, spot.chunk);
        shard->live--;
    }
    book_lock_drop(t, &shard->lock);
    return found;
}

/* Open the page of MOVES that holds a slot. */
static struct book_moves *moves_open(struct book_writer *w, struct book_thread *t,
                                     uint64_t slot_number)
{
    struct book_moves *moves = moves_at(w, slot_number);
    if (moves)
        return moves;
    uint64_t offset = slot_number * sizeof(struct book_moves);
    uint64_t page = offset / w->page_bytes;
    if (!book_lock_take(w, t, &w->lock))
        return NULL;
    if (book_moves_prepare(w) == 0 &&
        book_section_open_range(w, BOOK_SECTION_MOVES, page * w->page_bytes, w->page_bytes) == 0)
        fetch_or_release(&w->moves_open[page / 64], UINT64_C(1) << (page % 64));
    book_lock_drop(t, &w->lock);
    return moves_at(w, slot_number);
}

bool table_move(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id,
                uint32_t time)
{
    struct table *table = &w->table;
    uint64_t hash = table_hash(table, account, id);
    uint32_t shard = table_shard_of(table, hash);
    if (table->broken || !book_lock_take(w, t, &table->shard[shard].lock))
        return false;
    struct spot spot;
    bool found = find(table, shard, hash, account, id, &spot);
    if (found) {
        uint64_t number = table_slot_number(table, shard, spot.chunk) + spot.slot;
        struct book_moves *moves = moves_open(w, t, number);
        if (moves) {
            store_relaxed(&moves->time, time);
            if (moves->count < UINT32_MAX)
                store_relaxed(&moves->count, moves->count + 1);
        }
    }
    book_lock_drop(t, &table->shard[shard].lock);
    return found;
}

int table_reserve(struct book_writer *w, struct book_thread *t, uint64_t blocks)
{
    struct table *table = &w->table;
    /* Shards fill unevenly: a fifth more covers it. */
    uint64_t each = blocks / table->shards * 6 / 5 + TABLE_CHUNK;
    uint64_t chunks = each * 100 / (FILL_PERCENT * TABLE_CHUNK) + 1 + TABLE_TAIL;
    uint64_t want = (chunks + TABLE_CHUNKS_PER_PAGE - 1) / TABLE_CHUNKS_PER_PAGE;
    if (want * table->shards * BOOK_BLOCK_PAGE_BYTES > w->section[BOOK_SECTION_BLOCKS]->size)
        return -ENOSPC;
    int result = 0;
    for (uint32_t s = 0; s < table->shards && result == 0; s++) {
        struct table_shard *shard = &table->shard[s];
        if (!book_lock_take(w, t, &shard->lock))
            return -EBUSY;
        if (want > shard->pages)
            result = grow_to(w, t, s, (uint32_t)want);
        book_lock_drop(t, &shard->lock);
    }
    return result;
}

unsigned table_check(struct book_writer *w)
{
    struct table *table = &w->table;
    unsigned faults = 0;
    for (uint32_t s = 0; s < table->shards; s++) {
        uint32_t live = 0;
        for (uint32_t c = 0; c < physical_chunks(&table->shard[s]); c++) {
            const struct table_head *head = table_head_at(table, s, c);
            const struct book_block *blocks = table_chunk_at(table, s, c);
            for (uint32_t i = 0; i < TABLE_CHUNK; i++) {
                uint32_t account = book_place_account(blocks[i].place);
                if ((head->print[i] != 0) != (account != 0))
                    faults++;
                if (!account)
                    continue;
                live++;
                uint64_t hash = table_hash(table, account, blocks[i].id);
                struct spot spot;
                if (table_shard_of(table, hash) != s || head->print[i] != table_print(hash) ||
                    !find(table, s, hash, account, blocks[i].id, &spot) || spot.block != &blocks[i])
                    faults++;
            }
        }
        if (live != table->shard[s].live)
            faults++;
    }
    return faults;
}
