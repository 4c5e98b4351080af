/* words.c: see words.h. */
#include "malloc/words.h"

#include <string.h>

#include "malloc/lock.h"
#include "malloc/os.h"

enum { GRAIN = 16, KINDS = 4096 }; /* arrays of up to 64 KiB, in steps of a cache line */

struct words_lot *words_lots;

static void begin_anew(struct lock *l);

/* Arrays that no slab has, by their size, and the rest of the newest lot. All under the lock. */
static struct lock stock_lock = {.stale =
                                     begin_anew}; /* apart: so the rest takes no room in the file */
static struct {
    void *free[KINDS];
    char *at, *end;
} stock;

/* In a child that was forked while another thread held the lock: arrays that nobody had are nobody's. */
static void begin_anew(struct lock *l)
{
    memset(stock.free, 0, sizeof(stock.free));
    stock.at = stock.end = NULL;
}

static size_t kind_of(const struct slab *s)
{
    return (words_bytes(s) + GRAIN - 1) / GRAIN;
}

static void *carve(size_t bytes)
{
    if ((size_t)(stock.end - stock.at) < bytes) {
        struct words_lot *lot = os_map(WORDS_LOT_BYTES, 1);
        if (!lot)
            return NULL;
        lot->next = words_lots;
        store_release(&words_lots, lot);
        stock.at = (char *)(lot + 1);
        stock.end = (char *)lot + WORDS_LOT_BYTES;
    }
    void *array = stock.at;
    stock.at += bytes;
    return array;
}

/* All zero but for what was left of words without a block. */
static struct word *array_take(size_t kind)
{
    if (kind >= KINDS)
        return NULL;
    lock_take(&stock_lock);
    void *array = stock.free[kind];
    if (array) {
        stock.free[kind] = *(void **)array;
        memset(array, 0, sizeof(void *));
    } else {
        array = carve(kind * GRAIN);
    }
    lock_drop(&stock_lock);
    return array;
}

static void array_give(void *array, size_t kind)
{
    lock_take(&stock_lock);
    *(void **)array = stock.free[kind];
    stock.free[kind] = array;
    lock_drop(&stock_lock);
}

/* Who sees the words sees the number to find them by. */
bool words_attach(struct slab *s)
{
    struct word *none = NULL;
    if (load_acquire(&s->words))
        return true;
    struct word *words = array_take(kind_of(s));
    if (!words)
        return false;
    store_relaxed(&s->magic, words_magic(s->block_bytes));
    if (!cas_acq_rel(&s->words, &none, words))
        array_give(words, kind_of(s));
    return true;
}

/* Whatever is there: blocks that were freed without our knowing would come back as live ones. */
void words_detach_now(struct slab *s)
{
    struct word *words = s->words;
    memset(words, 0, s->made * sizeof(*words));
    s->words = NULL;
    array_give(words, kind_of(s));
}

/* ---- a block ---- */

static uint32_t *far_place(const struct slab *s, const void *block)
{
    return (uint32_t *)((uintptr_t)block + s->block_bytes - sizeof(uint32_t));
}

bool words_put(void *block, size_t bytes, uint32_t low, uint32_t generation, bool sampled)
{
    struct slab *s = slab_of(block);
    struct word *word = words_find(block);
    if (!word)
        return false;
    size_t slack = 0;
    if (s->class == SLAB_LARGE)
        s->asked = bytes;
    else
        slack = s->block_bytes - bytes;
    uint32_t high = generation;
    if (slack > WORD_SLACK_MAX || (sampled && slack > WORD_ODD_SLACK_MAX)) {
        *far_place(s, block) = (uint32_t)bytes;
        high |= WORD_ODD | WORD_FAR;
        slack = 0;
    }
    if (sampled)
        high |= WORD_ODD | WORD_SAMPLED;
    word->low = low;
    fence_signal();
    word->high = (uint16_t)(slack << WORD_SLACK_SHIFT | high);
    return true;
}

struct word *words_take(void *block, uint32_t generation, struct word *ret_word,
                        struct book_trailer *ret)
{
    const struct slab *s = slab_of(block);
    struct word *place = words_find(block);
    if (!place || !place->high)
        return NULL;
    struct word word = *place;
    bool small = s->class != SLAB_LARGE;
    uint64_t far = small && word_is_far(word) ? *far_place(s, block) : UINT64_MAX;
    if (!word_read(word, generation, (uintptr_t)block, small ? s->block_bytes : s->asked, far, ret))
        return NULL;
    *ret_word = word;
    place->high = 0;
    return place;
}

size_t words_inside(const void *block)
{
    const struct word *word = words_find(block);
    return word && word->high && word_is_far(*word) ? WORD_FAR_BYTES : 0;
}

/* ---- fork ---- */

void words_fork_prepare(void)
{
    lock_fork_take(&stock_lock);
}

void words_fork_done(bool child)
{
    lock_fork_drop(&stock_lock, child);
}
