/* Memory that is given back all at once: the texts of a result. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_PIECE_MIN = 4096, ARENA_PIECE_MAX = 1 << 20 };

struct arena_piece {
    struct arena_piece *next;
    size_t size;
    char data[];
};

struct arena {
    struct arena_piece *pieces; /* the first one has room */
    size_t used;                /* of it */
};

/* Room for `len` bytes, not aligned; NULL without memory. */
static inline char *arena_take(struct arena *a, size_t len)
{
    if (!a->pieces || a->pieces->size - a->used < len) {
        size_t size = a->pieces ? a->pieces->size * 2 : ARENA_PIECE_MIN;
        if (size > ARENA_PIECE_MAX)
            size = ARENA_PIECE_MAX;
        if (size < len)
            size = len;
        struct arena_piece *piece = malloc(sizeof(*piece) + size);
        if (!piece)
            return NULL;
        piece->size = size;
        piece->next = a->pieces;
        a->pieces = piece;
        a->used = 0;
    }
    char *at = a->pieces->data + a->used;
    a->used += len;
    return at;
}

/* A copy that ends with NUL. */
static inline const char *arena_text(struct arena *a, const char *text, size_t len)
{
    char *copy = arena_take(a, len + 1);
    if (!copy)
        return NULL;
    if (len)
        memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

static inline void arena_release(struct arena *a)
{
    for (struct arena_piece *piece = a->pieces, *next; piece; piece = next) {
        next = piece->next;
        free(piece);
    }
    *a = (struct arena){0};
}

/* Take over the texts of `from`, which is empty then. */
static inline void arena_join(struct arena *a, struct arena *from)
{
    struct arena_piece **last = &from->pieces;
    while (*last)
        last = &(*last)->next;
    /* Only the first piece of an arena is written to: theirs go behind ours. */
    if (a->pieces) {
        *last = a->pieces->next;
        a->pieces->next = from->pieces;
    } else {
        *a = *from;
    }
    *from = (struct arena){0};
}

/* Forget all but the newest piece, which is as large as any. */
static inline void arena_reset(struct arena *a)
{
    struct arena_piece *keep = a->pieces;
    if (!keep)
        return;
    struct arena rest = {.pieces = keep->next};
    arena_release(&rest);
    keep->next = NULL;
    a->used = 0;
}
