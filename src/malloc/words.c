/* words.c: see words.h. */
#include "malloc/words.h"

#include <string.h>

#include "malloc/lock.h"
#include "malloc/os.h"

enum { GRAIN = 16, KINDS = 4096 }; /* arrays of up to 64 KiB, in steps of a cache line */

struct words_lot *words_lots;
uint64_t words_magic[SIZE_CLASSES];

static void begin_anew(struct lock *l);

/* Arrays that no slab has, by their size, and the rest of the newest lot. All under the lock. */
static struct {
    struct lock lock;
    void *free[KINDS];
    char *at, *end;
} depot = {.lock = {.stale = begin_anew}};

/* In a child that was forked while another thread held the lock: arrays that nobody had are nobody's. */
static void begin_anew(struct lock *l)
{
    memset(depot.free, 0, sizeof(depot.free));
    depot.at = depot.end = NULL;
}

static size_t kind_of(const struct slab *s)
{
    return (words_bytes(s) + GRAIN - 1) / GRAIN;
}

static void *carve(size_t bytes)
{
    for (unsigned class = 0; !words_lots && class < SIZE_CLASSES; class ++)
        words_magic[class] = words_magic_of(size_of_class(class));
    if ((size_t)(depot.end - depot.at) < bytes) {
        struct words_lot *lot = os_map(WORDS_LOT_BYTES, 1);
        if (!lot)
            return NULL;
        lot->next = words_lots;
        store_release(&words_lots, lot);
        depot.at = (char *)(lot + 1);
        depot.end = (char *)lot + WORDS_LOT_BYTES;
    }
    void *array = depot.at;
    depot.at += bytes;
    return array;
}

/* All zero but for what was left of words without a block. */
static struct word *array_take(size_t kind)
{
    if (kind >= KINDS)
        return NULL;
    lock_take(&depot.lock);
    void *array = depot.free[kind];
    if (array) {
        depot.free[kind] = *(void **)array;
        memset(array, 0, sizeof(void *));
    } else {
        array = carve(kind * GRAIN);
    }
    lock_drop(&depot.lock);
    return array;
}

static void array_give(void *array, size_t kind)
{
    lock_take(&depot.lock);
    *(void **)array = depot.free[kind];
    depot.free[kind] = array;
    lock_drop(&depot.lock);
}

bool words_attach(struct slab *s)
{
    uintptr_t none = 0;
    if (load_acquire(&s->words))
        return true;
    struct word *array = array_take(kind_of(s));
    if (!array)
        return false;
    if (!cas_acq_rel(&s->words, &none, (uintptr_t)array - words_offset(s)))
        array_give(array, kind_of(s));
    return true;
}

/* Whatever is there: blocks that were freed without our knowing would come back as live ones. */
void words_detach_now(struct slab *s)
{
    struct word *array = (struct word *)(s->words + words_offset(s));
    memset(array, 0, s->made * sizeof(*array));
    s->words = 0;
    array_give(array, kind_of(s));
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
    lock_fork_take(&depot.lock);
}

void words_fork_done(bool child)
{
    lock_fork_drop(&depot.lock, child);
}
