/* lots.c: see lots.h. */
#include "malloc/lots.h"

#include <string.h>

#include "base/atomic.h"
#include "malloc/lock.h"
#include "malloc/os.h"

enum {
    KINDS = LOT_ARRAY_MAX / LOT_GRAIN + 1,
    /* Of used[] and cut[]: what a child found half changed. Its arrays serve on, but nobody knows any more how many there are. */
    LOST = UINT16_MAX,
    /* Of cut[]: the kernel is being asked to take the memory. */
    GOING = UINT16_MAX - 1,
    IDLE_MIN = 2,
    IDLE_PART = 8,
};
static_assert(LOT_PART_BYTES / LOT_GRAIN < GOING, "a part's grains are told by 16 bits");

/* An array that no slab has. */
struct idle_array {
    struct idle_array *next, *prev;
    uint64_t grains;
};
static_assert(sizeof(struct idle_array) <= LOT_ARRAY_MIN, "fits into the smallest");

/* A part of a lot. */
struct part {
    struct words_lot *lot;
    unsigned number;
};

struct words_lot *words_lots;

static void begin_anew(struct lock *l);

static struct lock stock_lock = {.stale =
                                     begin_anew}; /* apart: so the rest takes no room in the file */

/* All under the lock. */
static struct {
    struct idle_array *idle[KINDS]; /* by their grains */
    struct part open;               /* where arrays are cut; lot NULL: nowhere */
    uint32_t used_n, idle_n,
        blank_n; /* parts: with arrays that slabs have; with others only; with none */
} stock;

/* In a child that was forked while another thread held the lock: arrays that nobody had are nobody's. */
static void begin_anew(struct lock *l)
{
    memset(&stock, 0, sizeof(stock));
    for (struct words_lot *lot = words_lots; lot; lot = lot->next) {
        memset(lot->used, 0xff, sizeof(lot->used));
        memset(lot->cut, 0xff, sizeof(lot->cut));
    }
}

/* ---- parts ---- */

static struct part part_of(const void *array)
{
    uintptr_t at = (uintptr_t)array;
    return (struct part){(struct words_lot *)(at & ~(uintptr_t)(LOT_BYTES - 1)),
                         at % LOT_BYTES / LOT_PART_BYTES};
}

static char *part_memory(struct part p)
{
    return (char *)p.lot + (size_t)p.number * LOT_PART_BYTES;
}

/* Where arrays begin. */
static uint16_t part_first(struct part p)
{
    return p.number == 0 ? LOT_HEADER : 0;
}

static bool part_is_blank(struct part p)
{
    return p.lot->cut[p.number] == part_first(p);
}

static bool part_is_idle(struct part p)
{
    uint16_t cut = p.lot->cut[p.number];
    return p.lot->used[p.number] == 0 && cut != GOING && cut > part_first(p);
}

/* One more or one fewer of its arrays is a slab's. */
static void part_count(struct part p, int change)
{
    uint16_t *used = &p.lot->used[p.number];
    if (*used == LOST)
        return;
    if (*used == 0) {
        stock.used_n++;
        stock.idle_n--;
    }
    *used = (uint16_t)(*used + change);
    if (*used == 0) {
        stock.used_n--;
        stock.idle_n++;
    }
}

static bool lot_add(void)
{
    struct words_lot *lot = os_map(LOT_BYTES, LOT_BYTES);
    if (!lot)
        return false;
    lot->next = words_lots;
    lot->cut[0] = LOT_HEADER;
    stock.blank_n += LOT_PARTS;
    store_release(&words_lots, lot);
    return true;
}

static bool blank_find(struct part *ret)
{
    if (stock.blank_n == 0 && !lot_add())
        return false;
    for (struct words_lot *lot = words_lots; lot; lot = lot->next)
        for (unsigned i = 0; i < LOT_PARTS; i++)
            if (part_is_blank((struct part){lot, i})) {
                *ret = (struct part){lot, i};
                return true;
            }
    return false;
}

/* ---- arrays ---- */

static void idle_link(struct idle_array *array, uint64_t grains)
{
    struct idle_array **first = &stock.idle[grains];
    *array = (struct idle_array){.next = *first, .grains = grains};
    if (*first)
        (*first)->prev = array;
    *first = array;
}

/* All zero afterwards. */
static void idle_unlink(struct idle_array *array)
{
    if (array->prev)
        array->prev->next = array->next;
    else
        stock.idle[array->grains] = array->next;
    if (array->next)
        array->next->prev = array->prev;
    memset(array, 0, sizeof(*array));
}

static void *cut(uint64_t grains)
{
    struct part *p = &stock.open;
    if (!p->lot || p->lot->cut[p->number] + grains > LOT_PART_BYTES / LOT_GRAIN) {
        if (!blank_find(p))
            return NULL;
        stock.blank_n--;
        stock.idle_n++; /* until the array is counted */
    }
    void *array = part_memory(*p) + (size_t)p->lot->cut[p->number] * LOT_GRAIN;
    p->lot->cut[p->number] += (uint16_t)grains;
    return array;
}

static uint64_t grains_of(size_t bytes)
{
    return ((bytes > LOT_ARRAY_MIN ? bytes : LOT_ARRAY_MIN) + LOT_GRAIN - 1) / LOT_GRAIN;
}

void *lots_take(size_t bytes)
{
    uint64_t grains = grains_of(bytes);
    if (grains >= KINDS)
        return NULL;
    lock_take(&stock_lock);
    void *array = stock.idle[grains];
    if (array)
        idle_unlink(array);
    else
        array = cut(grains);
    if (array)
        part_count(part_of(array), 1);
    lock_drop(&stock_lock);
    return array;
}

/* ---- what goes back ---- */

/* With the lock: an idle part has no arrays any more, and is nobody's until part_give() is done with it. */
static void part_empty(struct part p)
{
    uint16_t *end = &p.lot->cut[p.number], used = *end;
    for (uint16_t at = part_first(p); at < used;) {
        struct idle_array *array = (struct idle_array *)(part_memory(p) + (size_t)at * LOT_GRAIN);
        at = (uint16_t)(at + array->grains);
        idle_unlink(array);
    }
    if (stock.open.lot == p.lot && stock.open.number == p.number)
        stock.open.lot = NULL;
    *end = GOING;
    stock.idle_n--;
}

/* The kernel was asked for its memory, which is all zero: arrays can be cut from it. */
static void part_gone(struct part p)
{
    p.lot->cut[p.number] = part_first(p);
    stock.blank_n++;
}

/* With the lock, which is let go meanwhile. The page of the header stays; so does everything where pages are locked: it was all zero
 * before. */
static void part_give(struct part p)
{
    char *memory = part_memory(p);
    size_t header = p.number == 0 ? os_page_bytes() : 0;
    lock_drop(&stock_lock);
    os_purge(memory + header, LOT_PART_BYTES - header);
    lock_take(&stock_lock);
    if (p.lot->cut[p.number] == GOING) /* else this is a child that has begun anew */
        part_gone(p);
}

static bool idle_too_many(void)
{
    return stock.idle_n > IDLE_MIN + stock.used_n / IDLE_PART;
}

/* With the lock: idle parts go, all of them or as long as there are too many. No lot leaves its list. */
static bool idle_give(bool all)
{
    bool any = false;
    for (struct words_lot *lot = words_lots; lot; lot = lot->next)
        for (unsigned i = 0; i < LOT_PARTS && (all || idle_too_many()); i++) {
            struct part p = {lot, i};
            if (!part_is_idle(p))
                continue;
            part_empty(p);
            part_give(p);
            any = true;
        }
    return any;
}

void lots_give(void *array, size_t bytes)
{
    lock_take(&stock_lock);
    idle_link(array, grains_of(bytes));
    part_count(part_of(array), -1);
    if (idle_too_many())
        idle_give(false);
    lock_drop(&stock_lock);
}

bool lots_trim(void)
{
    lock_take(&stock_lock);
    bool any = idle_give(true);
    lock_drop(&stock_lock);
    return any;
}

/* ---- fork ---- */

void lots_fork_prepare(void)
{
    lock_fork_take(&stock_lock);
}

/* What a thread of the parent was about to give is all zero, given or not. */
static void going_forget(void)
{
    for (struct words_lot *lot = words_lots; lot; lot = lot->next)
        for (unsigned i = 0; i < LOT_PARTS; i++)
            if (lot->cut[i] == GOING)
                part_gone((struct part){lot, i});
}

void lots_fork_done(bool child)
{
    if (child)
        going_forget();
    lock_fork_drop(&stock_lock, child);
}
