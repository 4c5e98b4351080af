/* arena.h: addresses of one device, or of pinned host memory.
 *
 * An arena is one reservation of address space. Its chunks of 2 MiB become readable and writable when they are first used.
 * Blocks of 1 MiB and more are runs of chunks; smaller ones lie in slabs of one chunk, at multiples of 512 bytes. The
 * allocator is deterministic, and an address that was freed last is given out first: a reader that confuses an old block
 * with its successor shows at once. Callers hold the lock of the stand-in. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARENA_CHUNK  (2ul << 20)
#define ARENA_UNIT   512ul
#define ARENA_SMALL  (1ul << 20) /* blocks below this size are sub-allocated */
#define ARENA_UNITS  (ARENA_CHUNK / ARENA_UNIT)
#define ARENA_RECENT 64

struct slab;

/* A range that was freed. */
struct span_recent {
    uint64_t address, size;
};

struct arena {
    uint64_t base; /* 0: not opened */
    size_t chunks;
    size_t chunks_used;
    uint64_t offset;                         /* of `base` in the memory file */
    bool bare;                               /* addresses only: memory is mapped there by others */
    int fd;                                  /* of the memory file; -1: anonymous */
    uint64_t *used;                          /* a bit per chunk */
    uint64_t *opened;                        /* a bit per chunk: it is readable and writable */
    struct slab **slab;                      /* per chunk: its slab, or NULL */
    struct slab *slabs;                      /* those with room, most recently freed into first */
    struct span_recent recent[ARENA_RECENT]; /* the stack of freed ranges; the last is on top */
    unsigned recent_count;
};

enum arena_place {
    ARENA_ANYWHERE, /* the kernel chooses */
    ARENA_AT_HINT,  /* at `hint`, or elsewhere if that is taken */
    ARENA_BELOW_4G, /* for pointers of 32 bits */
};

/* Reserve `size` bytes of address space, rounded up to chunks. `name`: of the memory file, for device memory; NULL: anonymous
 * shared memory. Returns 0 or -errno. */
int arena_open(struct arena *a, size_t size, enum arena_place place, uint64_t hint,
               const char *name);

/* Reserve addresses only, for mappings that the caller makes. */
int arena_open_bare(struct arena *a, size_t size);

/* An address for `size` bytes, or 0 when there is no room. */
uint64_t arena_take(struct arena *a, size_t size);

/* `address`, if it is a multiple of the chunk's size and so many bytes are free there; otherwise 0. */
uint64_t arena_take_at(struct arena *a, uint64_t address, size_t size);

/* Give back what arena_take() returned for `size`. Memory of whole chunks goes back to the system. */
void arena_give(struct arena *a, uint64_t address, size_t size);

/* Give up slabs that are empty. They are kept otherwise, so that their addresses are reused; arena_take() gives them up when it
 * needs room. */
void arena_trim(struct arena *a);

/* Bytes of chunks in use: what a driver takes from the device. */
static inline uint64_t arena_used(const struct arena *a)
{
    return a->chunks_used * ARENA_CHUNK;
}
