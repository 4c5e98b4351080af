/* table.c: see table.h for the design. */
#include "book/table.h"

#include <errno.h>

#include "book/lock.h"
#include "book/writer.h"

enum {
    FILL_PERCENT = 78, /* live blocks per slot at which a shard grows */
    OVERFLOW_STUCK = 255,
};

struct spot {
    struct table_head *head;
    struct book_block *block;
    uint32_t chunk; /* number in the shard */
    uint32_t slot;
};

static uint32_t chunk_count(const struct table_shard *shard)
{
    return shard->pages * TABLE_CHUNKS_PER_PAGE;
}

static uint32_t home_number(const struct table_shard *shard, uint64_t hash)
{
    struct table_home home = table_home_of(shard, hash);
    return (uint32_t)(home.page * TABLE_CHUNKS_PER_PAGE + home.chunk);
}

static struct book_block *chunk_at(const struct table_shard *shard, uint32_t chunk)
{
    struct book_block_page *page = &shard->blocks[chunk / TABLE_CHUNKS_PER_PAGE];
    return &page->slots[chunk % TABLE_CHUNKS_PER_PAGE * TABLE_CHUNK];
}

static uint32_t chunk_after(const struct table_shard *shard, uint32_t chunk)
{
    return chunk + 1 == chunk_count(shard) ? 0 : chunk + 1;
}

static uint64_t hash_of(struct book_writer *w, uint32_t account, uint64_t id)
{
    uint32_t key = w->table.by_device ? book_account_at(w, account)->device : account;
    return table_hash(&w->table, key, id);
}

static uint64_t block_hash(struct book_writer *w, const struct book_block *block)
{
    return hash_of(w, book_place_account(block->place), block->id);
}

/* The slot's number in the section, for parallel columns. */
static uint64_t slot_number(const struct book_writer *w, const struct table_shard *shard,
                            uint32_t chunk, uint32_t slot)
{
    uint64_t first = (uint64_t)(shard - w->table.shard) * w->table.part_pages;
    uint64_t page = first + chunk / TABLE_CHUNKS_PER_PAGE;
    return page * BOOK_BLOCKS_PER_PAGE + chunk % TABLE_CHUNKS_PER_PAGE * TABLE_CHUNK + slot;
}

static inline bool is_among(const uint16_t *accounts, uint32_t n, uint32_t account)
{
    for (uint32_t i = 0; i < n; i++)
        if (accounts[i] == account)
            return true;
    return false;
}

static inline bool find_any(const struct table_shard *shard, uint64_t hash,
                            const uint16_t *accounts, uint32_t n, uint64_t id,
                            struct spot *ret_spot)
{
    uint32_t count = chunk_count(shard), chunk = count ? home_number(shard, hash) : 0;
    for (uint32_t tried = 0; tried < count; tried++, chunk = chunk_after(shard, chunk)) {
        struct table_head *head = &shard->heads[chunk];
        struct book_block *blocks = chunk_at(shard, chunk);
        for (uint32_t mask = table_match(head, table_print(hash)); mask; mask &= mask - 1) {
            uint32_t i = (uint32_t)__builtin_ctz(mask);
            if (blocks[i].id == id && is_among(accounts, n, book_place_account(blocks[i].place))) {
                *ret_spot = (struct spot){head, &blocks[i], chunk, i};
                return true;
            }
        }
        if (head->overflow == 0)
            return false;
    }
    return false;
}

static bool find(const struct table_shard *shard, uint64_t hash, uint32_t account, uint64_t id,
                 struct spot *ret_spot)
{
    uint16_t one = (uint16_t)account;
    return find_any(shard, hash, &one, 1, id, ret_spot);
}

/* The first empty slot from chunk `first` on; with `wrap` also before it. */
static bool find_empty(const struct table_shard *shard, uint32_t first, bool wrap,
                       struct spot *ret_spot)
{
    uint32_t count = chunk_count(shard), chunk = first;
    uint32_t most = wrap ? count : count - first;
    for (uint32_t tried = 0; tried < most; tried++, chunk = chunk_after(shard, chunk)) {
        struct table_head *head = &shard->heads[chunk];
        uint32_t empty = table_empty(head);
        if (empty) {
            uint32_t i = (uint32_t)__builtin_ctz(empty);
            *ret_spot = (struct spot){head, &chunk_at(shard, chunk)[i], chunk, i};
            return true;
        }
    }
    return false;
}

/* Note at every chunk from `home` up to `chunk` that one more (or less) block passed by. */
static void overflow_change(const struct table_shard *shard, uint32_t home, uint32_t chunk, int by)
{
    for (uint32_t c = home; c != chunk; c = chunk_after(shard, c)) {
        struct table_head *head = &shard->heads[c];
        if (head->overflow < OVERFLOW_STUCK)
            head->overflow = (uint8_t)(head->overflow + by);
    }
}

/* ---- transfers per block ---- */

/* The moves entry of a slot, if its page is open. */
static struct book_moves *moves_at(struct book_writer *w, uint64_t slot_number)
{
    uint64_t offset = slot_number * sizeof(struct book_moves);
    uint64_t page = offset / w->page_bytes;
    uint64_t *open = load_acquire(&w->moves_open);
    if (!open || !(load_acquire(&open[page / 64]) >> (page % 64) & 1))
        return NULL;
    return (struct book_moves *)(w->at[BOOK_SECTION_MOVES] + offset);
}

static void moves_clear(struct book_writer *w, const struct table_shard *shard,
                        const struct spot *spot)
{
    struct book_moves *moves = moves_at(w, slot_number(w, shard, spot->chunk, spot->slot));
    if (moves)
        store_relaxed(&moves->count, 0);
}

/* Open the page of MOVES that holds a slot. Hold w->lock. */
static void moves_page_open(struct book_writer *w, uint64_t slot_number)
{
    uint64_t page = slot_number * sizeof(struct book_moves) / w->page_bytes;
    if (book_moves_prepare(w) == 0 &&
        book_section_open_range(w, BOOK_SECTION_MOVES, page * w->page_bytes, w->page_bytes) == 0)
        fetch_or_release(&w->moves_open[page / 64], UINT64_C(1) << (page % 64));
}

/* For a block that changes its slot. Hold w->lock. */
static void moves_copy(struct book_writer *w, uint64_t from, uint64_t to)
{
    struct book_moves *source = moves_at(w, from), *target = moves_at(w, to);
    if (source && source->count > 0 && !target) {
        moves_page_open(w, to);
        target = moves_at(w, to);
    }
    if (target) {
        store_relaxed(&target->count, source ? source->count : 0);
        store_relaxed(&target->time, source ? source->time : 0);
    }
}

/* ---- growing ---- */

static uint32_t fill_limit(uint32_t pages)
{
    return (uint32_t)((uint64_t)pages * BOOK_BLOCKS_PER_PAGE * FILL_PERCENT / 100);
}

/* Move what lies in `chunk` and has its new home further up. Chunks above are done already, so
 * what comes there stays. What finds no room up to the end stays too: its way is noted by
 * count_overflows(). */
static void spread_chunk(struct book_writer *w, struct table_shard *shard, uint32_t chunk)
{
    struct table_head *head = &shard->heads[chunk];
    struct book_block *blocks = chunk_at(shard, chunk);
    for (uint32_t i = 0; i < TABLE_CHUNK; i++) {
        if (!head->print[i])
            continue;
        uint32_t home = home_number(shard, block_hash(w, &blocks[i]));
        struct spot to;
        if (home <= chunk || !find_empty(shard, home, false, &to))
            continue;
        table_slot_fill(to.block, blocks[i].id, blocks[i].size_tag, blocks[i].place);
        to.head->print[to.slot] = head->print[i];
        moves_copy(w, slot_number(w, shard, chunk, i), slot_number(w, shard, to.chunk, to.slot));
        table_slot_clear(&blocks[i]);
        head->print[i] = 0;
    }
}

static void count_overflows(struct book_writer *w, const struct table_shard *shard)
{
    uint32_t count = chunk_count(shard);
    for (uint32_t c = 0; c < count; c++)
        shard->heads[c].overflow = 0;
    for (uint32_t c = 0; c < count; c++) {
        const struct book_block *blocks = chunk_at(shard, c);
        for (uint32_t i = 0; i < TABLE_CHUNK; i++) {
            if (!shard->heads[c].print[i])
                continue;
            uint32_t home = home_number(shard, block_hash(w, &blocks[i]));
            if (home != c)
                overflow_change(shard, home, c, 1);
        }
    }
}

/* Use `pages` pages from now on. The caller holds both locks. */
static void spread(struct book_writer *w, struct book_thread *t, struct table_shard *shard,
                   uint32_t pages)
{
    uint32_t old_count = chunk_count(shard);
    t->growing = true;
    store_release(&w->header->blocks_seq, w->header->blocks_seq + 1);
    fence_seq_cst();
    shard->pages = pages;
    store_relaxed(&w->header->block_pages[shard - w->table.shard], pages);
    for (uint32_t c = old_count; c-- > 0;)
        spread_chunk(w, shard, c);
    count_overflows(w, shard);
    store_release(&w->header->blocks_seq, w->header->blocks_seq + 1);
    t->growing = false;
}

/* Open the pages of blocks and index for growing to `want`; as many as there are, in all. */
static uint32_t open_pages(struct book_writer *w, const struct table_shard *shard, uint32_t want)
{
    uint64_t number = (uint64_t)(shard - w->table.shard), old = shard->pages;
    uint64_t first = number * w->table.part_pages;
    uint64_t heads_bytes = sizeof(struct table_head) * TABLE_CHUNKS_PER_PAGE; /* for one page */
    uint64_t heads_first =
        number * (w->section[BOOK_SECTION_BLOCK_INDEX]->size / w->header->block_shards);
    if (want > w->table.max_pages)
        want = w->table.max_pages;
    if (want <= old ||
        book_section_open_range(w, BOOK_SECTION_BLOCK_INDEX, heads_first + old * heads_bytes,
                                (want - old) * heads_bytes) < 0 ||
        book_section_open_range(w, BOOK_SECTION_BLOCKS, (first + old) * BOOK_BLOCK_PAGE_BYTES,
                                (want - old) * BOOK_BLOCK_PAGE_BYTES) < 0)
        return shard->pages;
    return want;
}

static int grow_to(struct book_writer *w, struct book_thread *t, struct table_shard *shard,
                   uint32_t want)
{
    if (!book_lock_take(w, t, &w->lock))
        return -EBUSY;
    struct book_calm calm;
    bool calmly = !w->single && !w->sealed && w->refused == 0;
    if (calmly)
        book_calm_begin(&calm);
    uint32_t pages = open_pages(w, shard, want);
    if (pages > shard->pages)
        spread(w, t, shard, pages);
    if (calmly)
        book_calm_end(&calm);
    book_lock_drop(t, &w->lock);

    shard->limit = fill_limit(shard->pages);
    if (shard->live < shard->limit)
        return 0;
    /* No page to be had: use what is left, and do not ask again at every report. A shard without
     * any page keeps limit 0: nobody may look for a home there. */
    shard->limit = shard->pages ? shard->live + 64 + shard->live / 16 : 0;
    return -ENOSPC;
}

static int grow(struct book_writer *w, struct book_thread *t, struct table_shard *shard)
{
    return grow_to(w, t, shard, shard->pages + (shard->pages < 8 ? 1 : shard->pages / 4));
}

/* ---- the table's calls ---- */

void table_rebase(struct book_writer *w)
{
    struct table *table = &w->table;
    uint64_t shards = w->header->block_shards;
    table->shard_shift = 32 - (uint32_t)__builtin_ctzll(shards);
    uint64_t heads_bytes = w->section[BOOK_SECTION_BLOCK_INDEX]->size / shards;
    uint64_t pages = w->section[BOOK_SECTION_BLOCKS]->size / shards / BOOK_BLOCK_PAGE_BYTES;
    uint64_t with_heads = heads_bytes / (TABLE_CHUNKS_PER_PAGE * sizeof(struct table_head));
    table->part_pages = (uint32_t)pages;
    table->max_pages = (uint32_t)(pages < with_heads ? pages : with_heads);
    uint8_t *blocks = w->at[BOOK_SECTION_BLOCKS], *heads = w->at[BOOK_SECTION_BLOCK_INDEX];
    for (uint64_t i = 0; i < shards; i++) {
        table->shard[i].blocks = (struct book_block_page *)blocks + i * table->part_pages;
        table->shard[i].heads = (struct table_head *)(heads + i * heads_bytes);
    }
}

static int put_locked(struct book_writer *w, struct book_thread *t, struct table_shard *shard,
                      uint64_t hash, const struct book_block *block, struct book_block *ret_old)
{
    if (shard->live >= shard->limit)
        grow(w, t, shard);
    struct spot spot;
    if (find(shard, hash, book_place_account(block->place), block->id, &spot)) {
        *ret_old = *spot.block;
        table_slot_clear(spot.block);
        moves_clear(w, shard, &spot);
        table_slot_fill(spot.block, block->id, block->size_tag, block->place);
        return 1;
    }
    if (shard->pages == 0 || !find_empty(shard, home_number(shard, hash), true, &spot)) {
        shard->limit = shard->live; /* ask for pages again: there may be some by now */
        return -ENOSPC;
    }
    uint32_t home = home_number(shard, hash);
    if (spot.chunk != home)
        overflow_change(shard, home, spot.chunk, 1);
    moves_clear(w, shard, &spot);
    table_slot_fill(spot.block, block->id, block->size_tag, block->place);
    spot.head->print[spot.slot] = (uint8_t)table_print(hash);
    shard->live++;
    return 0;
}

int table_put(struct book_writer *w, struct book_thread *t, const struct book_block *block,
              struct book_block *ret_old)
{
    uint64_t hash = block_hash(w, block);
    struct table_shard *shard = table_shard_of(&w->table, hash);
    if (w->table.broken)
        return -ENOSPC;
    if (!book_lock_take(w, t, &shard->lock))
        return -EBUSY;
    int r = put_locked(w, t, shard, hash, block, ret_old);
    book_lock_drop(t, &shard->lock);
    return r;
}

static bool take_locked(struct table_shard *shard, uint64_t hash, const uint16_t *accounts,
                        uint32_t n, uint64_t id, struct book_block *ret_old)
{
    struct spot spot;
    if (!find_any(shard, hash, accounts, n, id, &spot))
        return false;
    *ret_old = *spot.block;
    table_slot_clear(spot.block);
    spot.head->print[spot.slot] = 0;
    uint32_t home = home_number(shard, hash);
    if (spot.chunk != home)
        overflow_change(shard, home, spot.chunk, -1);
    shard->live--;
    return true;
}

bool table_take(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id,
                struct book_block *ret_old)
{
    uint64_t hash = hash_of(w, account, id);
    struct table_shard *shard = table_shard_of(&w->table, hash);
    uint16_t one = (uint16_t)account;
    if (w->table.broken || !book_lock_take(w, t, &shard->lock))
        return false;
    bool found = take_locked(shard, hash, &one, 1, id, ret_old);
    book_lock_drop(t, &shard->lock);
    return found;
}

/* Was the search for account i made for one before it already? */
static bool is_repeated(struct book_writer *w, const uint16_t *accounts, uint32_t i)
{
    uint32_t device = book_account_at(w, accounts[i])->device;
    for (uint32_t k = 0; k < i; k++)
        if (accounts[k] && book_account_at(w, accounts[k])->device == device)
            return true;
    return false;
}

bool table_take_any(struct book_writer *w, struct book_thread *t, const uint16_t *accounts,
                    uint32_t n, uint64_t id, struct book_block *ret_old)
{
    struct table_shard *shard = &w->table.shard[0];
    if (w->table.broken || !book_lock_take(w, t, &shard->lock))
        return false;
    bool found = false;
    for (uint32_t i = 0; i < n && !found; i++)
        found = accounts[i] && !is_repeated(w, accounts, i) &&
                take_locked(shard, hash_of(w, accounts[i], id), accounts, n, id, ret_old);
    book_lock_drop(t, &shard->lock);
    return found;
}

/* Open the page of MOVES that holds a slot. A private image has none: few live that short. */
static struct book_moves *moves_open(struct book_writer *w, struct book_thread *t, uint64_t number)
{
    struct book_moves *moves = moves_at(w, number);
    if (moves || !w->published)
        return moves;
    if (!book_lock_take(w, t, &w->lock))
        return NULL;
    moves_page_open(w, number);
    book_lock_drop(t, &w->lock);
    return moves_at(w, number);
}

bool table_move(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id,
                uint32_t time)
{
    uint64_t hash = hash_of(w, account, id);
    struct table_shard *shard = table_shard_of(&w->table, hash);
    if (w->table.broken || !book_lock_take(w, t, &shard->lock))
        return false;
    struct spot spot;
    bool found = find(shard, hash, account, id, &spot);
    if (found) {
        struct book_moves *moves = moves_open(w, t, slot_number(w, shard, spot.chunk, spot.slot));
        if (moves) {
            store_relaxed(&moves->time, time);
            if (moves->count < UINT32_MAX)
                store_relaxed(&moves->count, moves->count + 1);
        }
    }
    book_lock_drop(t, &shard->lock);
    return found;
}

int table_reserve(struct book_writer *w, struct book_thread *t, uint64_t blocks)
{
    if (blocks > (uint64_t)w->table.max_pages * w->header->block_shards * BOOK_BLOCKS_PER_PAGE)
        return -ENOSPC;
    /* Shards fill unevenly: a fifth more covers it. */
    uint64_t each = blocks / w->header->block_shards * 6 / 5 + TABLE_CHUNK;
    uint64_t want = each * 100 / (FILL_PERCENT * BOOK_BLOCKS_PER_PAGE) + 1;
    if (want > w->table.max_pages)
        return -ENOSPC;
    int result = 0;
    for (uint32_t s = 0; s < w->header->block_shards && result == 0; s++) {
        struct table_shard *shard = &w->table.shard[s];
        if (!book_lock_take(w, t, &shard->lock))
            return -EBUSY;
        if (want > shard->pages)
            result = grow_to(w, t, shard, (uint32_t)want);
        book_lock_drop(t, &shard->lock);
    }
    return result;
}

static unsigned shard_check(struct book_writer *w, const struct table_shard *shard)
{
    unsigned faults = 0;
    uint32_t live = 0;
    for (uint32_t c = 0; c < chunk_count(shard); c++) {
        const struct book_block *blocks = chunk_at(shard, c);
        for (uint32_t i = 0; i < TABLE_CHUNK; i++) {
            uint32_t account = book_place_account(blocks[i].place);
            uint8_t print = shard->heads[c].print[i];
            faults += (print != 0) != (account != 0);
            if (!account)
                continue;
            live++;
            uint64_t hash = block_hash(w, &blocks[i]);
            struct spot spot;
            if (print != table_print(hash) || !find(shard, hash, account, blocks[i].id, &spot) ||
                spot.block != &blocks[i])
                faults++;
        }
    }
    return faults + (live != shard->live);
}

unsigned table_check(struct book_writer *w)
{
    unsigned faults = 0;
    for (uint32_t s = 0; s < w->header->block_shards; s++)
        faults += shard_check(w, &w->table.shard[s]);
    return faults;
}
