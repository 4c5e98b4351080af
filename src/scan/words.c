/* See words.h. All that is read is a stranger's: a slab can name any address for its words, and any bytes are words. So nothing is read
 * beyond what the slab's own size allows, and no block reaches beyond its slab. And it goes on meanwhile: an array that was read after its
 * slab had gone may be cut anew for another one, so the slab is looked at again behind it. */
#include "scan/words.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "malloc/words.h"
#include "scan/heap.h"
#include "scan/memory.h"

enum { WORDS_MAX = MACRO_BYTES / SIZE_STEP };
static_assert(WORDS_MAX > UINT16_MAX, "more blocks than a descriptor can tell of");

struct scan_words {
    struct scan_memory *memory;
    uint32_t generation;
    int (*each)(void *context, const struct book_trailer *block);
    void *context;
    uint64_t read_bytes;
    struct slab descriptors[MACRO_SLICES];
    struct word array[WORDS_MAX];
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

static int large(struct scan_words *w, const struct slab *s, uint64_t memory)
{
    uint64_t room = (uint64_t)s->slices << SLICE_SHIFT;
    if (s->start > room || s->asked > room - s->start)
        return 0;
    return tell(w, s->large_word, memory + s->start, s->asked, NULL);
}

/* Is it still the slab whose array was read? It may have carved more blocks by now. */
static bool still(struct scan_words *w, const struct slab *s, uint64_t descriptor)
{
    struct slab now;
    return scan_memory_read(w->memory, descriptor, &now, sizeof(now)) == sizeof(now) &&
           now.words == s->words && now.class == s->class && now.slices == s->slices &&
           now.block_bytes == s->block_bytes;
}

static int small(struct scan_words *w, const struct slab *s, unsigned slice, uint64_t memory)
{
    size_t bytes = s->made * sizeof(struct word);
    uint64_t descriptor = memory - ((uint64_t)slice << SLICE_SHIFT) + slice * sizeof(*s);
    if (!s->words)
        return 0;
    size_t got = scan_memory_read(w->memory, words_array(s, slice), w->array, bytes);
    w->read_bytes += got;
    if (!still(w, s, descriptor))
        return 0;
    for (size_t i = 0; i < got / sizeof(struct word); i++) {
        struct word word = w->array[i];
        uint64_t start = memory + i * s->block_bytes;
        uint32_t far = 0;
        bool is_far = word_is_far(word);
        if (!word.high)
            continue;
        if (is_far && scan_memory_read(w->memory, start + s->block_bytes - sizeof(far), &far,
                                       sizeof(far)) != sizeof(far))
            continue;
        int r = tell(w, word, start, s->block_bytes, is_far ? &far : NULL);
        if (r != 0)
            return r;
    }
    return 0;
}

int scan_words_macro(struct scan_words *w, struct scan_memory *memory, uint64_t address,
                     uint64_t start, uint64_t end, uint32_t generation,
                     int (*each)(void *context, const struct book_trailer *block), void *context,
                     uint64_t *ret_read)
{
    struct macro macro;
    uint64_t unread = memory->unread;
    int r = 0;
    w->memory = memory;
    w->generation = generation;
    w->each = each;
    w->context = context;
    w->read_bytes = 0;
    if (scan_memory_read(memory, address, w->descriptors, sizeof(w->descriptors)) !=
        sizeof(w->descriptors))
        return 0;
    memcpy(&macro, w->descriptors, sizeof(macro));
    for (unsigned i = 1; i < MACRO_SLICES && r == 0;) {
        unsigned slice = i;
        const struct slab *s = &w->descriptors[slice];
        uint64_t at = address + ((uint64_t)slice << SLICE_SHIFT);
        bool free = (macro.free[i / 64] | macro.purging[i / 64]) >> i % 64 & 1;
        if (free || s->slices == 0 || s->slices > MACRO_SLICES - i) {
            i++;
            continue;
        }
        uint64_t bytes = (uint64_t)s->slices << SLICE_SHIFT;
        i += s->slices;
        if (s->class == SLAB_UNUSED || !scan_heap_sensible(s) || at < start || at + bytes > end)
            continue;
        r = s->class == SLAB_LARGE ? large(w, s, at) : small(w, s, slice, at);
    }
    memory->unread = unread; /* nothing of it is a root of the program's */
    *ret_read += sizeof(w->descriptors) + w->read_bytes;
    return r;
}
