/* slab.c: see slab.h. */
#include "malloc/slab.h"

#include "malloc/source.h"
#include "malloc/words.h"

enum { CARVE_BYTES = 4096 };
static_assert(MACRO_SLICES * SLICE_BYTES / SIZE_STEP / 8 <= REMOTE_COUNT_MAX,
              "the blocks of 16 slices can be counted");

static inline void *next_of(const void *block)
{
    return *(void *const *)block;
}

static inline void next_set(void *block, void *next)
{
    *(void **)block = next;
}

void slab_begin(struct slab *s, unsigned class, struct heap *owner)
{
    uint32_t bytes = size_of_class(class);
    words_begin(s, bytes);
    for (unsigned i = 1; i < s->slices; i++)
        s[i].back = (uint8_t)i;
    s->free = NULL;
    s->used = 0;
    s->class = (uint8_t) class;
    s->current = s->held = s->torn = 0;
    s->block_bytes = bytes;
    s->made = 0;
    s->limit = ((uint32_t)s->slices << SLICE_SHIFT) / bytes;
    store_release(&s->remote, remote_word(s, SLAB_OWNED, 0, NULL));
    s->owner = owner;
}

/* In this order: a child that is forked in between loses blocks, but has none twice. */
bool slab_carve(struct slab *s)
{
    uint32_t bytes = s->block_bytes, left = s->limit - s->made;
    uint32_t n = bytes < CARVE_BYTES ? CARVE_BYTES / bytes : 1;
    n = n < left ? n : left;
    if (n == 0)
        return false;
    char *first = slab_memory(s) + (size_t)s->made * bytes, *block = first;
    for (uint32_t i = 1; i < n; i++, block += bytes)
        next_set(block, block + bytes);
    next_set(block, NULL);
    s->made += n;
    fence_signal();
    s->free = first;
    return true;
}

/* A list of others' onto the owner's own. */
static void take_over(struct slab *s, void *list, uint32_t count)
{
    if (s->free && list) {
        void *last = list;
        while (next_of(last))
            last = next_of(last);
        next_set(last, s->free);
    }
    if (list)
        s->free = list;
    s->used -= count;
}

bool slab_collect(struct slab *s)
{
    uint64_t word = load_relaxed(&s->remote);
    if (remote_count(word) == 0)
        return false;
    word = exchange_acquire(&s->remote, remote_word(s, SLAB_OWNED, 0, NULL));
    take_over(s, remote_head(s, word), remote_count(word));
    return true;
}

bool slab_let_go(struct slab *s)
{
    struct heap *owner = s->owner;
    uint64_t word = remote_word(s, SLAB_OWNED, 0, NULL);
    store_relaxed(&s->owner, NULL);
    store_relaxed(&s->let_go_by, owner);
    if (cas_acq_rel(&s->remote, &word, remote_word(s, SLAB_FULL, 0, NULL)))
        return true;
    store_relaxed(&s->owner, owner);
    return false;
}

enum slab_outcome slab_leave(struct source *source, struct slab *s)
{
    struct heap *owner = s->owner;
    if (!s->free && s->made == s->limit && slab_let_go(s))
        return SLAB_DONE;
    store_relaxed(&s->owner, NULL);
    source_lock(source);
    uint64_t word =
        load_acquire(&s->remote); /* it may be given away: after all that was done to it */
    for (;;) {
        uint32_t count = remote_count(word);
        if (count == s->used)
            break;
        if (cas_acq_rel(&s->remote, &word,
                        remote_pooled(s, s->used, count, remote_head(s, word)))) {
            source_pool_link(source, s);
            lock_drop(&source->lock);
            return SLAB_DONE;
        }
    }
    lock_drop(&source->lock);
    store_relaxed(&s->owner, owner);
    return SLAB_EMPTY;
}

/* ---- for anybody ---- */

/* Enough blocks of a full slab are back, and nobody wants the slab. False if somebody else was there first. */
static bool full_to_pool(struct source *source, struct slab *s, uint64_t word,
                         const struct slab_list *list)
{
    uint32_t count = remote_count(word) + list->n;
    next_set(list->last, remote_head(s, word));
    source_lock(source);
    bool done = cas_acq_rel(&s->remote, &word, remote_pooled(s, s->limit, count, list->first));
    if (done)
        source_pool_link(source, s);
    lock_drop(&source->lock);
    return done;
}

static bool full_claim(struct slab *s, uint64_t word, const struct slab_list *list,
                       struct heap *heap)
{
    if (!cas_acq_rel(&s->remote, &word, remote_word(s, SLAB_OWNED, 0, NULL)))
        return false;
    next_set(list->last, remote_head(s, word));
    fence_signal(); /* in this order for a child that is forked in between */
    s->free = list->first;
    s->used -= remote_count(word) + list->n;
    fence_signal();
    store_relaxed(&s->owner, heap);
    return true;
}

static void pool_leave(struct source *source, struct slab *s)
{
    source_lock(source);
    source_pool_unlink(source, s);
    lock_drop(&source->lock);
}

enum slab_outcome slab_free(struct source *source, struct slab *s, const struct slab_list *list,
                            bool claim, bool at_once, struct heap *heap)
{
    uint32_t enough = at_once ? 1 : slab_full_end(s);
    for (;;) {
        uint64_t word = load_acquire(&s->remote), to;
        uint32_t count = remote_count(word) + list->n;
        enum slab_state state = remote_state(word);
        if (state == SLAB_FULL &&
            (count >= enough || (claim && load_relaxed(&s->let_go_by) == heap))) {
            if (claim || s->limit == count) {
                if (full_claim(s, word, list, heap))
                    return s->used == 0 ? SLAB_EMPTY : SLAB_CLAIMED;
            } else if (full_to_pool(source, s, word, list)) {
                return SLAB_DONE;
            }
            continue;
        }
        bool last = state == SLAB_POOLED && count == remote_used(word);
        next_set(list->last, remote_head(s, word));
        to = last                   ? remote_word(s, SLAB_OWNED, 0, NULL)
             : state == SLAB_POOLED ? remote_pooled(s, remote_used(word), count, list->first)
                                    : remote_word(s, state, count, list->first);
        if (!cas_acq_rel(&s->remote, &word, to))
            continue;
        if (!last)
            return SLAB_DONE;
        pool_leave(source, s);
        return SLAB_EMPTY;
    }
}

struct slab *slab_adopt(struct source *source, unsigned class, struct heap *heap)
{
    source_lock(source);
    struct slab *s = source->pool[class];
    while (s) {
        uint64_t word = load_acquire(&s->remote);
        if (remote_state(word) != SLAB_POOLED) {
            s = s->next; /* whoever freed its last block is about to take it out */
            continue;
        }
        if (!cas_acq_rel(&s->remote, &word, remote_word(s, SLAB_OWNED, 0, NULL)))
            continue;
        source_pool_unlink(source, s);
        take_over(s, remote_head(s, word), remote_count(word));
        store_relaxed(&s->owner, heap);
        break;
    }
    lock_drop(&source->lock);
    return s;
}
