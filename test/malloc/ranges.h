/* ranges.h: what tests of fixed addresses share: blocks that point to each other and tell whether they are whole. */
#pragma once

#include <malloc.h>
#include <memoir/malloc.h>
#include <string.h>

#include "cases.h"

#define SEND    "range=auto,range_bytes=1G,slot=3"
#define RECEIVE SEND ",receive=1"
enum { IMAGE_FD = 57 };

static inline struct memoir_malloc_range range_now(void)
{
    struct memoir_malloc_range r = {.struct_size = sizeof(r)};
    int error = memoir_malloc_range(&r);
    MUST_SAY(error == 0, "memoir_malloc_range: %d", error);
    return r;
}

static inline bool in_range(const void *p)
{
    struct memoir_malloc_range r = range_now();
    return (uintptr_t)p - r.base < r.bytes;
}

/* A table of blocks of all sizes; each knows its table, its neighbour and what it is filled with. */
struct leaf {
    struct tree *tree;
    struct leaf *next;
    size_t bytes;
    uint64_t seed;
};

struct tree {
    size_t count;
    struct leaf *leaves[];
};

static inline void leaf_fill(struct leaf *l)
{
    uint64_t state = l->seed;
    unsigned char *bytes = (unsigned char *)(l + 1);
    for (size_t i = 0; i < l->bytes; i += 1 + l->bytes / 512)
        bytes[i] = (unsigned char)case_random(&state);
}

static inline void leaf_check(struct leaf *l)
{
    uint64_t state = l->seed;
    unsigned char *bytes = (unsigned char *)(l + 1);
    for (size_t i = 0; i < l->bytes; i += 1 + l->bytes / 512)
        MUST_SAY(bytes[i] == (unsigned char)case_random(&state), "byte %zu of %zu", i, l->bytes);
    MUST(malloc_usable_size(l) >= sizeof(*l) + l->bytes);
}

static inline size_t leaf_bytes(uint64_t *state)
{
    uint64_t kind = case_random(state) % 100;
    return case_random(state) % (kind < 90   ? 500
                                 : kind < 97 ? 20000
                                 : kind < 99 ? 900000
                                             : 5 << 20);
}

static inline void tree_link(struct tree *t)
{
    for (size_t i = 0; i < t->count; i++) {
        t->leaves[i]->tree = t;
        t->leaves[i]->next = t->leaves[(i + 1) % t->count];
    }
}

/* Of a block that was just allocated, or not. */
static inline struct leaf *leaf_begin(struct leaf *l, size_t bytes, uint64_t *seed)
{
    MUST(l);
    l->bytes = bytes;
    l->seed = case_random(seed);
    leaf_fill(l);
    return l;
}

static inline struct tree *tree_make(size_t count, uint64_t seed)
{
    struct tree *t = malloc(sizeof(*t) + count * sizeof(t->leaves[0]));
    MUST(t);
    t->count = count;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = leaf_bytes(&seed), kind = case_random(&seed) % 8;
        struct leaf *l = kind == 0 ? memalign(256, sizeof(*l) + bytes) : malloc(sizeof(*l) + bytes);
        if (kind == 1) { /* leaves a hole */
            free(l);
            l = malloc(sizeof(*l) + bytes);
        }
        t->leaves[i] = leaf_begin(l, bytes, &seed);
    }
    tree_link(t);
    return t;
}

static inline void tree_check(struct tree *t)
{
    for (size_t i = 0; i < t->count; i++) {
        struct leaf *l = t->leaves[i];
        MUST_SAY(l->tree == t && l->next == t->leaves[(i + 1) % t->count], "leaf %zu", i);
        leaf_check(l);
    }
}

/* Free some and make others in their place, and let others grow and shrink. */
static inline void tree_change(struct tree *t, uint64_t seed)
{
    for (size_t i = 0; i < t->count; i++) {
        uint64_t what = case_random(&seed) % 4;
        size_t bytes = leaf_bytes(&seed);
        struct leaf *l = t->leaves[i];
        if (what == 0) {
            free(l);
            l = malloc(sizeof(*l) + bytes);
        } else if (what == 1) {
            l = realloc(l, sizeof(*l) + bytes);
        } else {
            continue;
        }
        t->leaves[i] = leaf_begin(l, bytes, &seed);
    }
    tree_link(t);
}

static inline void tree_free(struct tree *t)
{
    for (size_t i = 0; i < t->count; i++)
        free(t->leaves[i]);
    free(t);
}
