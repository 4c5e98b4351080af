/* See arena.h. */
#include "scan/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/cleanup.h"

/* As struct malloc_state has it on 64 bits since glibc 2.26: heads of lists of small pieces (fastbinsY), `top`, `last_remainder`, and the heads
 * (bins) of all other lists, of two words each. A head is named as if it were a piece itself, by an address two words before it. */
enum {
    HEADS = 127,
    HEAD_WORDS = 2,
    FAST_HEADS = 10,
    WORDS_BEFORE = FAST_HEADS + 2,
    PIECE_NEXT = 16, /* from the address that names a piece to its links */
    PIECE_PREVIOUS = 24,
    DATA_BYTES_MAX = 1 << 20, /* the C library has some 10 KiB */
};

struct look {
    struct scan_memory *memory;
    const uint64_t *words; /* copy of the data */
    size_t n;
    uint64_t from; /* its address */
};

static bool names(const struct look *l, uint64_t address, uint64_t what)
{
    uint64_t word = 0;
    return address % sizeof(word) == 0 &&
           scan_memory_read(l->memory, address, &word, sizeof(word)) == sizeof(word) &&
           word == what;
}

/* The name of the list whose head is the word of that number. */
static uint64_t head_name(const struct look *l, size_t i)
{
    return l->from + i * sizeof(uint64_t) - PIECE_NEXT;
}

static bool is_empty_head(const struct look *l, size_t i)
{
    uint64_t name = head_name(l, i);
    return l->words[i] == name && l->words[i + 1] == name;
}

static bool is_head(const struct look *l, size_t i)
{
    uint64_t name = head_name(l, i);
    return is_empty_head(l, i) || (names(l, l->words[i] + PIECE_PREVIOUS, name) &&
                                   names(l, l->words[i + 1] + PIECE_NEXT, name));
}

/* All heads around an empty one; their number. */
static size_t heads_around(const struct look *l, size_t empty, size_t *ret_first)
{
    size_t first = empty, behind = empty + HEAD_WORDS;
    while (first >= HEAD_WORDS && is_head(l, first - HEAD_WORDS))
        first -= HEAD_WORDS;
    while (behind + HEAD_WORDS <= l->n && is_head(l, behind))
        behind += HEAD_WORDS;
    *ret_first = first;
    return (behind - first) / HEAD_WORDS;
}

static bool look_in(const struct look *l, struct scan_arena *ret_arena)
{
    for (size_t i = 0; i + HEAD_WORDS <= l->n;) {
        size_t first;
        if (!is_empty_head(l, i)) {
            i++;
            continue;
        }
        size_t heads = heads_around(l, i, &first);
        if (heads == HEADS && first >= WORDS_BEFORE) {
            uint64_t at = l->from + first * sizeof(uint64_t);
            ret_arena->start = at - WORDS_BEFORE * sizeof(uint64_t);
            ret_arena->end = at + HEADS * HEAD_WORDS * sizeof(uint64_t);
            return true;
        }
        i = first + heads * HEAD_WORDS;
    }
    return false;
}

struct scan_arena scan_arena_find(struct scan_memory *memory, const struct scan_regions *regions)
{
    struct scan_arena arena = {0};
    for (size_t i = 0; i < regions->n && arena.end == 0; i++) {
        const struct scan_region *region = &regions->regions[i];
        uint64_t bytes = region->end - region->start;
        if (!region->libc || bytes > DATA_BYTES_MAX)
            continue;
        MEMOIR_CLEANUP(freep)
        uint64_t *words = malloc(bytes);
        if (!words)
            break; /* not found: fewer blocks are lost */
        size_t got = scan_memory_read(memory, region->start, words, bytes);
        struct look look = {memory, words, got / sizeof(uint64_t), region->start};
        look_in(&look, &arena);
    }
    return arena;
}

/* ---- arenas of threads ---- */

/* As struct _heap_info begins. */
struct heap_info {
    uint64_t arena;    /* in the first heap of its arena, right behind its record */
    uint64_t previous; /* heap of the same arena; 0: it is the first */
    uint64_t bytes, opened;
};

enum { INFO_BYTES_MAX = 256, PAGE = 4096 };

static bool is_heap(struct scan_memory *memory, uint64_t start)
{
    struct heap_info info, first;
    if (scan_memory_read(memory, start, &info, sizeof(info)) != sizeof(info) || info.bytes == 0 ||
        info.bytes % PAGE != 0 || info.bytes > info.opened || info.opened > SCAN_ARENA_BYTES ||
        info.arena % 16 != 0 || info.previous % SCAN_ARENA_BYTES != 0)
        return false;
    uint64_t of = info.arena & ~(SCAN_ARENA_BYTES - 1);
    if (info.arena - of < sizeof(info) || info.arena - of > INFO_BYTES_MAX ||
        (of == start) != (info.previous == 0))
        return false;
    return of == start || (scan_memory_read(memory, of, &first, sizeof(first)) == sizeof(first) &&
                           first.arena == info.arena && first.previous == 0);
}

void scan_arena_heaps(struct scan_memory *memory, struct scan_regions *regions)
{
    bool heap = false; /* is the last one that begins like an arena? */
    for (size_t i = 0; i < regions->n; i++) {
        struct scan_region *region = &regions->regions[i];
        if (!region->heap || region->brk)
            continue;
        if (region->start % SCAN_ARENA_BYTES == 0)
            heap = is_heap(memory, region->start);
        region->heap = heap;
    }
}
