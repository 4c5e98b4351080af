/*
 * reader_blocks.c: every live block, once.
 *
 * The table changes while it is copied. Three things can go wrong, each with its answer:
 * - an entry is rewritten under the copy: every page is copied twice, and a slot that differs is
 *   read again until two copies agree;
 * - entries are moved (header.blocks_seq): the scan is repeated a few times;
 * - a block is freed and another one with its id appears in a slot still ahead: entries with the
 *   same id and account are one block, the younger of them.
 * In the book of a dead process nothing changes, so that none of this is needed unless it died in
 * the middle of a move.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/sum.h"
#include "book/guard.h"
#include "book/reader_internal.h"

enum {
    SCAN_TRIES = 4,
    SLOT_TRIES = 8,
    PIECE_BYTES = 65536, /* read at a time; the longest entry fits */
};

struct held_block {
    struct book_block block;
    uint32_t moves;
    bool gone; /* the same block stands elsewhere */
};

struct scan {
    struct book_reader *reader;
    int fd;
    int (*each)(const struct book_block_view *block, void *context);
    void *context;

    uint64_t deadline_ns; /* 0: none */
    size_t held_max;
    struct book_tally *tally; /* or NULL */
    const uint64_t *bytes_min;

    uint8_t *piece, *again; /* two copies of the same pages */
    struct book_moves moves[BOOK_BLOCKS_PER_PAGE];
    uint64_t moves_open;
    uint64_t moves_next; /* in the file: no page with moves comes before it */
    struct held_block *held;
    size_t n_held, room;
    bool alive;   /* the writer may change the table */
    bool direct;  /* it cannot change and has no block twice: nothing needs to be held */
    bool torn;    /* an entry never came to rest */
    bool late;    /* the time was over */
    bool flushed; /* blocks were handed out before the end: they cannot be taken back */
};

static void scan_release(struct scan *s)
{
    free(s->held);
    free(s->piece);
}

struct seq_call {
    const struct book_reader *reader;
    uint64_t seq;
};

static int seq_guarded(void *context)
{
    struct seq_call *c = context;
    const struct book_header *h = (const void *)c->reader->header.base;
    c->seq = load_acquire(&h->blocks_seq);
    return 0;
}

static int seq_get(const struct book_reader *reader, uint64_t *ret_seq)
{
    struct seq_call c = {.reader = reader};
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    int r = book_guard_run(seq_guarded, &c);
    if (r == 0)
        *ret_seq = c.seq;
    return r;
}

/* ---- once each ---- */

static bool same_block(const struct book_block *a, const struct book_block *b)
{
    return a->id == b->id && book_place_account(a->place) == book_place_account(b->place);
}

/* Mark all but the youngest of equal blocks as gone. */
static int held_dedup(struct scan *s)
{
    if (s->n_held < 2)
        return 0;
    size_t slots = 4;
    while (slots < s->n_held * 2)
        slots *= 2;
    MEMOIR_CLEANUP(freep)
    uint32_t *table = calloc(slots, sizeof(table[0]));
    if (!table)
        return -ENOMEM;
    for (size_t i = 0; i < s->n_held; i++) {
        struct held_block *b = &s->held[i];
        uint64_t hash =
            hash_combine(s->reader->hash_seed ^ book_place_account(b->block.place), b->block.id);
        size_t at = (size_t)hash & (slots - 1);
        for (; table[at]; at = (at + 1) & (slots - 1)) {
            struct held_block *other = &s->held[table[at] - 1];
            if (!same_block(&b->block, &other->block))
                continue;
            if (book_place_time(b->block.place) >= book_place_time(other->block.place)) {
                other->gone = true;
                table[at] = (uint32_t)(i + 1);
            } else {
                b->gone = true;
            }
            break;
        }
        if (!table[at])
            table[at] = (uint32_t)(i + 1);
    }
    return 0;
}

/* Add it up. Is it one that nobody wants to see? */
static inline bool is_only_counted(struct scan *s, const struct book_block *block)
{
    if (!s->tally)
        return false;
    uint64_t bytes = book_block_bytes(block);
    uint32_t account = book_place_account(block->place);
    if (account < BOOK_RECORDS_MAX) {
        s->tally[account].blocks++;
        sum_add(&s->tally[account].bytes, bytes);
    }
    return bytes < *s->bytes_min;
}

static inline int hand_out(struct scan *s, const struct book_block *block, uint32_t moves)
{
    if (is_only_counted(s, block))
        return 0;
    const struct book_identity *id = &s->reader->identity;
    struct book_block_view view = {
        .id = block->id,
        .bytes = book_block_bytes(block),
        .tag = book_block_tag(block),
        .account = book_place_account(block->place),
        .site = book_place_site(block->place),
        .time_ns =
            id->created_monotonic_ns + ((uint64_t)book_place_time(block->place) << id->time_shift),
        .moves = moves,
    };
    return s->each(&view, s->context);
}

static int held_hand_out(struct scan *s)
{
    for (size_t i = 0; i < s->n_held; i++) {
        int r = s->held[i].gone ? 0 : hand_out(s, &s->held[i].block, s->held[i].moves);
        if (r != 0)
            return r;
    }
    return 0;
}

static int held_flush(struct scan *s)
{
    int r = held_dedup(s);
    if (r == 0)
        r = held_hand_out(s);
    s->n_held = 0;
    s->flushed = true;
    return r;
}

static int held_add(struct scan *s, const struct book_block *block, uint32_t moves)
{
    if (s->n_held == s->held_max) {
        int r = held_flush(s);
        if (r != 0)
            return r;
    }
    if (s->n_held == s->room) {
        size_t room = s->room ? s->room * 2 : 1024;
        struct held_block *held = reallocarray(s->held, room, sizeof(held[0]));
        if (!held)
            return -ENOMEM;
        s->held = held;
        s->room = room;
    }
    s->held[s->n_held++] = (struct held_block){.block = *block, .moves = moves};
    return 0;
}

/* ---- the table ---- */

/* The slot was different in the two copies: read it alone until it holds still. */
static int slot_settle(struct scan *s, uint64_t at, struct book_block *slot)
{
    struct book_block before, now = *slot;
    for (int i = 0; i < SLOT_TRIES; i++) {
        before = now;
        int r = book_pread_all(s->fd, &now, sizeof(now), at);
        if (r < 0)
            return r;
        if (memcmp(&before, &now, sizeof(now)) == 0) {
            *slot = now;
            return 0;
        }
    }
    s->torn = true;
    *slot = now;
    return 0;
}

/* The slots of one page that lies at `at` in the file were copied twice: make the first copy good. */
static int page_settle(struct scan *s, struct book_block_page *page,
                       const struct book_block_page *again, uint64_t at)
{
    if (memcmp(page, again, sizeof(*page)) == 0)
        return 0;
    for (size_t i = 0; i < BOOK_BLOCKS_PER_PAGE; i++) {
        if (memcmp(&page->slots[i], &again->slots[i], sizeof(struct book_block)) == 0)
            continue;
        page->slots[i] = again->slots[i];
        int r = slot_settle(s, at + i * sizeof(struct book_block), &page->slots[i]);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Copy `n` pages, the first of which lies at `at` in the file. */
static int piece_read(struct scan *s, uint64_t at, uint64_t n)
{
    size_t step = s->reader->shape[BOOK_SECTION_BLOCKS].entry_size;
    int r = book_pread_all(s->fd, s->piece, n * step, at);
    if (r < 0 || !s->alive)
        return r;
    /* Two copies that agree prove something only if the second was made after the first. */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    r = book_pread_all(s->fd, s->again, n * step, at);
    for (uint64_t i = 0; r == 0 && i < n; i++)
        r = page_settle(s, (void *)(s->piece + i * step), (const void *)(s->again + i * step),
                        at + i * step);
    return r;
}

/* How often the blocks in the slots from `first` on moved. Where the section does not reach or has
 * no page, they never did. */
static int moves_read(struct scan *s, uint64_t first)
{
    const struct book_shape *shape = &s->reader->shape[BOOK_SECTION_MOVES];
    memset(s->moves, 0, sizeof(s->moves));
    uint64_t n = shape->size ? s->moves_open / shape->entry_size : 0;
    n = n <= first ? 0 : n - first < BOOK_BLOCKS_PER_PAGE ? n - first : BOOK_BLOCKS_PER_PAGE;
    uint64_t at = shape->offset + first * shape->entry_size;
    uint64_t end = at + n * shape->entry_size;
    if (n == 0)
        return 0;
    if (at >= s->moves_next)
        s->moves_next = book_next_data(s->fd, at, shape->offset + s->moves_open);
    if (end <= s->moves_next)
        return 0;
    if (shape->entry_size == sizeof(s->moves[0]))
        return book_pread_all(s->fd, s->moves, (size_t)n * sizeof(s->moves[0]), at);
    int r = 0;
    for (uint64_t i = 0; i < n && r == 0; i++)
        r = book_pread_all(s->fd, &s->moves[i], sizeof(s->moves[0]), at + i * shape->entry_size);
    return r;
}

static int page_take(struct scan *s, const struct book_block_page *page, uint64_t number)
{
    int r = moves_read(s, number * BOOK_BLOCKS_PER_PAGE);
    for (size_t i = 0; r == 0 && i < BOOK_BLOCKS_PER_PAGE; i++)
        if (book_place_account(page->slots[i].place) != 0)
            r = s->direct ? hand_out(s, &page->slots[i], s->moves[i].count)
                          : held_add(s, &page->slots[i], s->moves[i].count);
    return r;
}

/* Pages `first` to `end` - 1, which are not known to be holes. */
static int pages_take(struct scan *s, uint64_t first, uint64_t end)
{
    const struct book_shape *shape = &s->reader->shape[BOOK_SECTION_BLOCKS];
    uint64_t most = PIECE_BYTES / shape->entry_size;
    int r = 0;
    for (uint64_t n; r == 0 && first < end; first += n) {
        n = end - first < most ? end - first : most;
        if (s->deadline_ns && clock_monotonic_ns() >= s->deadline_ns) {
            s->late = true;
            return 0;
        }
        r = piece_read(s, shape->offset + first * shape->entry_size, n);
        for (uint64_t i = 0; r == 0 && i < n; i++)
            r = page_take(s, (const void *)(s->piece + i * shape->entry_size), first + i);
    }
    return r;
}

static int table_scan(struct scan *s)
{
    const struct book_shape *shape = &s->reader->shape[BOOK_SECTION_BLOCKS];
    struct book_live blocks, moves;
    int r = book_reader_live_get(s->reader, BOOK_SECTION_BLOCKS, &blocks);
    if (r == 0)
        r = book_reader_live_get(s->reader, BOOK_SECTION_MOVES, &moves);
    if (r < 0)
        return r;
    s->n_held = 0;
    s->torn = false;
    s->moves_open = moves.open;
    s->moves_next = 0;
    if (shape->size == 0)
        return 0;
    /* Pages are opened in any order: all that have bytes are looked at, whatever `used` says. */
    uint64_t n = blocks.open / shape->entry_size;
    uint64_t end = shape->offset + n * shape->entry_size;
    for (uint64_t i = 0; i < n && r == 0 && !s->late;) {
        uint64_t data = book_next_data(s->fd, shape->offset + i * shape->entry_size, end);
        if (data == end)
            break;
        off_t hole = lseek(s->fd, (off_t)data, SEEK_HOLE);
        uint64_t stop = hole > (off_t)data && (uint64_t)hole < end ? (uint64_t)hole : end;
        uint64_t first = (data - shape->offset) / shape->entry_size;
        i = (stop - shape->offset + shape->entry_size - 1) / shape->entry_size;
        r = pages_take(s, first, i);
    }
    return r;
}

int book_reader_blocks_within(struct book_reader *reader, int fd,
                              const struct book_scan_limits *limits,
                              int (*each)(const struct book_block_view *block, void *context),
                              void *context, bool *ret_exact)
{
    int r = book_reader_check_fd(reader, fd);
    if (r < 0)
        return r;
    MEMOIR_CLEANUP(scan_release)
    struct scan s = {.reader = reader, .fd = fd, .each = each, .context = context};
    s.deadline_ns = limits->deadline_ns;
    s.tally = limits->tally;
    s.bytes_min = limits->bytes_min;
    s.held_max = limits->held_max ? limits->held_max : BOOK_READER_BLOCKS_HELD_MAX;
    s.alive = book_writer_alive_fd(fd) != 0; /* when in doubt, be careful */
    s.piece = malloc(s.alive ? 2 * PIECE_BYTES : PIECE_BYTES);
    if (!s.piece)
        return -ENOMEM;
    s.again = s.piece + PIECE_BYTES;
    uint64_t before = 0, after = 0;
    unsigned tries = limits->tries ? limits->tries : SCAN_TRIES;
    bool exact = false;
    for (; r == 0 && tries > 0 && !exact && !s.flushed && !s.direct && !s.late; tries--) {
        r = seq_get(reader, &before);
        s.direct = !s.alive && before % 2 == 0;
        if (r == 0)
            r = table_scan(&s);
        if (r == 0)
            r = seq_get(reader, &after);
        /* Whatever a dead writer left half done stays so, and equal blocks are told apart below. */
        exact = r == 0 && before == after && (!s.alive || before % 2 == 0) && !s.torn &&
                !s.flushed && !s.late;
    }
    if (r == 0)
        r = held_dedup(&s); /* nothing is held when everything was handed out directly */
    if (r == 0)
        r = held_hand_out(&s);
    if (r != 0)
        return r;
    if (s.late)
        return -ETIME;
    if (ret_exact)
        *ret_exact = exact;
    return 0;
}

int book_reader_blocks(struct book_reader *reader, int fd,
                       int (*each)(const struct book_block_view *block, void *context),
                       void *context, bool *ret_exact)
{
    return book_reader_blocks_within(reader, fd, &(struct book_scan_limits){0}, each, context,
                                     ret_exact);
}
