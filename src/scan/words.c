/* See words.h. All that is read is a stranger's: a slab can name any address for its words, and any bytes are words. So nothing is read
 * beyond what the slab's own size allows, and no block reaches beyond its slab. And where it goes on meanwhile, all is read twice:
 * - an array that was read after its slab had gone may be cut anew for another one, so the slab is looked at again behind it;
 * - of a word that changes, its two halves may be of two blocks. Who stores one makes the high half visible after the low one
 *   (malloc/words.h), so whoever has seen a high half and then reads the word again finds the low half that belongs to it, or a later one:
 *   a word that is the same twice is one. One that is not is of a block that came or went just now. */
#include "scan/words.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/atomic.h"
#include "base/sum.h"
#include "malloc/words.h"
#include "scan/heap.h"
#include "scan/memory.h"

enum { WORDS_MAX = MACRO_BYTES / SIZE_STEP };
static_assert(WORDS_MAX > UINT16_MAX, "more blocks than a descriptor can tell of");

struct scan_words {
    struct scan_memory *memory;
    bool goes_on; /* the process does, while it is read */
    uint32_t generation;
    int (*each)(void *context, const struct book_trailer *block);
    void *context;
    uint64_t read_bytes;
    struct slab descriptors[MACRO_SLICES];
    struct word array[WORDS_MAX];
    struct {
        struct word array[WORDS_MAX];
        struct slab descriptor; /* behind what was read of the array */
    } again;
};

int scan_words_new(struct scan_words **ret_words)
{
    struct scan_words *words = calloc(1, sizeof(*words));
    if (!words)
        return -ENOMEM;
    *ret_words = words;
    return 0;
}

void scan_words_free(struct scan_words *words)
{
    free(words);
}

static int tell(struct scan_words *w, struct word word, uint64_t start, uint64_t room,
                const uint32_t *far)
{
    struct book_trailer block;
    if (!word_read(word, w->generation, start, room, far ? *far : UINT64_MAX, &block))
        return 0;
    return w->each(w->context, &block);
}

/* Is it still the slab that was read? It may have carved more blocks by now. */
static bool same(const struct slab *s, const struct slab *now)
{
    return now->words == s->words && now->class == s->class && now->slices == s->slices &&
           now->block_bytes == s->block_bytes;
}

static int large(struct scan_words *w, const struct slab *s, uint64_t descriptor, uint64_t memory)
{
    uint64_t room = (uint64_t)s->slices << SLICE_SHIFT;
    struct slab now;
    if (s->start > room || s->asked > room - s->start ||
        !(s->large_word.high & WORD_GENERATION_MASK))
        return 0;
    fence_acquire();
    if (w->goes_on && (scan_memory_read(w->memory, descriptor, &now, sizeof(now)) != sizeof(now) ||
                       !same(s, &now) || now.start != s->start || now.asked != s->asked ||
                       memcmp(&now.large_word, &s->large_word, sizeof(now.large_word)) != 0))
        return 0;
    return tell(w, s->large_word, memory + s->start, s->asked, NULL);
}

/* Of the words that were read, those that change are none; false: their slab has gone. */
static bool settle(struct scan_words *w, const struct slab *s, uint64_t descriptor, uint64_t array,
                   size_t n)
{
    size_t bytes = n * sizeof(struct word);
    struct iovec places[] = {{(void *)(uintptr_t)array, bytes},
                             {(void *)(uintptr_t)descriptor, sizeof(*s)}};
    struct slab now;
    fence_acquire();
    if (!scan_memory_read_many(w->memory, places, 2, &w->again, bytes + sizeof(now)))
        return false;
    memcpy(&now, (char *)&w->again + bytes, sizeof(now));
    for (size_t i = 0; i < n; i++)
        if (memcmp(&w->again.array[i], &w->array[i], sizeof(struct word)) != 0)
            w->array[i].high = 0;
    return same(s, &now);
}

/* What stands in the last 4 bytes of a block; false: it has gone. */
static bool far_read(struct scan_words *w, const struct word *word, uint64_t place, uint64_t end,
                     uint32_t *ret_far)
{
    struct {
        uint32_t far;
        struct word word;
    } now;
    struct iovec places[] = {{(void *)(uintptr_t)(end - sizeof(now.far)), sizeof(now.far)},
                             {(void *)(uintptr_t)place, sizeof(now.word)}};
    size_t n = w->goes_on ? 2 : 1, len = sizeof(now.far) + (w->goes_on ? sizeof(now.word) : 0);
    if (!scan_memory_read_many(w->memory, places, n, &now, len) &&
        (w->goes_on || scan_memory_read(w->memory, end - sizeof(now.far), &now.far,
                                        sizeof(now.far)) != sizeof(now.far))) {
        sum_add(&w->memory->unread, sizeof(now.far));
        return false;
    }
    *ret_far = now.far;
    return !w->goes_on || memcmp(&now.word, word, sizeof(*word)) == 0;
}

static int small(struct scan_words *w, const struct slab *s, uint64_t descriptor, uint64_t memory)
{
    uint64_t array = (uintptr_t)s->words;
    if (!s->words)
        return 0;
    size_t n = scan_memory_read(w->memory, array, w->array, s->made * sizeof(struct word)) /
               sizeof(struct word);
    w->read_bytes += n * sizeof(struct word);
    if (n < s->made) /* blocks that are not known */
        sum_add(&w->memory->unread, (s->made - n) * sizeof(struct word));
    if (w->goes_on && !settle(w, s, descriptor, array, n))
        return 0;
    for (size_t i = 0; i < n; i++) {
        const struct word *word = &w->array[i];
        uint64_t start = memory + i * s->block_bytes, end = start + s->block_bytes;
        uint32_t far = 0;
        bool is_far = word_is_far(*word);
        if (!(word->high & WORD_GENERATION_MASK) ||
            (is_far && !far_read(w, word, array + i * sizeof(*word), end, &far)))
            continue;
        int r = tell(w, *word, start, s->block_bytes, is_far ? &far : NULL);
        if (r != 0)
            return r;
    }
    return 0;
}

int scan_words_macro(struct scan_words *w, struct scan_memory *memory, uint64_t address,
                     uint64_t start, uint64_t end, bool goes_on, uint32_t generation,
                     int (*each)(void *context, const struct book_trailer *block), void *context,
                     uint64_t *ret_read)
{
    struct macro macro;
    int r = 0;
    w->memory = memory;
    w->goes_on = goes_on;
    w->generation = generation;
    w->each = each;
    w->context = context;
    w->read_bytes = 0;
    if (scan_memory_read(memory, address, w->descriptors, sizeof(w->descriptors)) !=
        sizeof(w->descriptors)) {
        sum_add(&memory->unread, sizeof(w->descriptors));
        return 0;
    }
    memcpy(&macro, w->descriptors, sizeof(macro));
    for (unsigned i = 1; i < MACRO_SLICES && r == 0;) {
        unsigned slice = i;
        const struct slab *s = &w->descriptors[slice];
        uint64_t at = address + ((uint64_t)slice << SLICE_SHIFT);
        uint64_t descriptor = address + slice * sizeof(*s);
        bool free = (macro.free[i / 64] | macro.purging[i / 64]) >> i % 64 & 1;
        if (free || s->slices == 0 || s->slices > MACRO_SLICES - i) {
            i++;
            continue;
        }
        uint64_t bytes = (uint64_t)s->slices << SLICE_SHIFT;
        i += s->slices;
        if (s->class == SLAB_UNUSED || !scan_heap_sensible(s))
            continue;
        if (at < start || at + bytes > end) { /* the program has put something else there */
            sum_add(&memory->unread, bytes);
            continue;
        }
        r = s->class == SLAB_LARGE ? large(w, s, descriptor, at) : small(w, s, descriptor, at);
    }
    *ret_read += sizeof(w->descriptors) + w->read_bytes;
    return r;
}
