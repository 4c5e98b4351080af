/* words.c: see words.h. */
#include "malloc/words.h"

#include <string.h>

/* Who sees the words sees the number to find them by. */
bool words_attach(struct slab *s)
{
    struct word *none = NULL;
    if (load_acquire(&s->words))
        return true;
    void *array = lots_take(words_bytes(s));
    if (!array)
        return false;
    store_relaxed(&s->magic, words_magic(s->block_bytes));
    if (!cas_acq_rel(&s->words, &none, (struct word *)array))
        lots_give(array, words_bytes(s));
    return true;
}

/* Whatever is there: blocks that were freed without our knowing would come back as live ones. */
void words_detach_now(struct slab *s)
{
    struct word *array = s->words;
    memset(array, 0, s->made * sizeof(struct word));
    s->words = NULL;
    lots_give(array, words_bytes(s));
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
    store_release(&word->high, (uint16_t)(slack << WORD_SLACK_SHIFT | high));
    return true;
}

struct word *words_take(void *block, uint32_t generation, struct word *ret_word,
                        struct book_trailer *ret)
{
    const struct slab *s = slab_of(block);
    struct word *place = words_find(block);
    if (!place || !(place->high & WORD_GENERATION_MASK))
        return NULL;
    struct word word = *place;
    bool small = s->class != SLAB_LARGE;
    uint64_t far = small && word_is_far(word) ? *far_place(s, block) : UINT64_MAX;
    if (!word_read(word, generation, (uintptr_t)block, small ? s->block_bytes : s->asked, far, ret))
        return NULL;
    *ret_word = word;
    place->high = (uint16_t)(word.high & ~WORD_GENERATION_MASK);
    return place;
}

void words_forget(void *block)
{
    struct word *word = words_find(block);
    if (word && slab_of(block)->class != SLAB_LARGE) /* whose word begins anew with it */
        *word = (struct word){0};
}

size_t words_inside(const void *block)
{
    const struct word *word = words_find(block);
    return word && (word->high & WORD_GENERATION_MASK) && word_is_far(*word) ? WORD_FAR_BYTES : 0;
}
