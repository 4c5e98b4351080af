/*
 * root.h: where everything of the allocator is, for who reads it from outside: `memoir heap PID`, and scans for lost blocks.
 *
 * The root stands at the start of a page of the library's data (or of the program's, where it is linked in), and names its own
 * address: so it is found by looking at these pages alone, and a copy of it elsewhere is none. It never changes. Who reads it has the same
 * headers: `layout` tells whether they are of one kind. All that is read is a stranger's, and changes meanwhile.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "malloc/heap.h"
#include "malloc/huge.h"
#include "malloc/huge_cache.h"
#include "malloc/os.h"
#include "malloc/settings.h"
#include "malloc/source.h"
#include "malloc/words.h"

enum { ROOT_ALIGN = 4096, ROOT_VERSION = 6 };
#define ROOT_MAGIC "MEMOIRHP"

struct malloc_root {
    char magic[8];
    uint32_t version;
    uint32_t bytes;  /* of this struct */
    uint64_t layout; /* ROOT_LAYOUT */
    const struct malloc_root *self;
    const struct source *source_main, *sources_more; /* the others: an array, */
    const unsigned *sources_n;                       /* of one less than this */
    struct heap *const *heaps;                       /* the first of all */
    const struct huge_look *huge;
    const struct os_counts *os;
    const struct malloc_settings *settings;
    struct words_lot *const *words; /* the first of all lots */
};

/* Changes with the structs that are read. */
#define ROOT_LAYOUT                                                                             \
    ((uint64_t)sizeof(struct source) << 48 ^ (uint64_t)sizeof(struct heap) << 36 ^              \
     (uint64_t)sizeof(struct os_counts) << 30 ^ (uint64_t)sizeof(struct huge_counts) << 24 ^    \
     (uint64_t)sizeof(struct malloc_settings) << 18 ^ offsetof(struct source, n_macros) << 12 ^ \
     offsetof(struct source, total_purges) << 9 ^ offsetof(struct heap, next) << 6 ^            \
     offsetof(struct heap, tid) << 3 ^ offsetof(struct slab, remote) ^ MACRO_SLICES << 4 ^      \
     SIZE_CLASSES << 2 ^ sizeof(struct huge_cache) << 15 ^ offsetof(struct macro, next) << 7 ^  \
     offsetof(struct slab, words) << 21 ^ offsetof(struct slab, large_word) << 27)

/* How a root begins, by which it is known: ROOT_MAGIC, without the zero at its end. */
#define ROOT_HEAD(root)                                                         \
    .magic = {'M', 'E', 'M', 'O', 'I', 'R', 'H', 'P'}, .version = ROOT_VERSION, \
    .bytes = sizeof(struct malloc_root), .layout = ROOT_LAYOUT, .self = &(root)

/* Takes it into whatever is linked with us. */
extern struct malloc_root malloc_root __attribute__((visibility("hidden")));
