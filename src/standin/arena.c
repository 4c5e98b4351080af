#include "standin/arena.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Where addresses of 32 bits are looked for. */
#define LOW_FIRST 0x10000000ul
#define LOW_STEP  0x08000000ul
#define LOW_END   0x100000000ul

struct slab {
    uint64_t base;
    unsigned units_used;
    bool listed; /* in arena.slabs */
    struct slab *prev, *next;
    uint64_t used[ARENA_UNITS / 64];
};

static bool bit_get(const uint64_t *bits, size_t i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

static void bits_set(uint64_t *bits, size_t from, size_t count, bool value)
{
    for (size_t i = from; i < from + count; i++) {
        if (value)
            bits[i / 64] |= 1ul << (i % 64);
        else
            bits[i / 64] &= ~(1ul << (i % 64));
    }
}

static bool bits_free(const uint64_t *bits, size_t from, size_t count)
{
    for (size_t i = from; i < from + count; i++)
        if (bit_get(bits, i))
            return false;
    return true;
}

/* The first run of `count` clear bits among `total`, or -1. */
static long bits_first_fit(const uint64_t *bits, size_t total, size_t count)
{
    size_t run = 0;

    for (size_t i = 0; i < total; i++) {
        if (run == 0 && i % 64 == 0 && bits[i / 64] == UINT64_MAX) {
            i += 63;
            continue;
        }
        run = bit_get(bits, i) ? 0 : run + 1;
        if (run == count)
            return (long)(i + 1 - count);
    }
    return -1;
}

/* Hints, never MAP_FIXED_NOREPLACE: sanitizers clear an address that they do not allow, and that flag would then ask for 0. */
static void *reserve(size_t size, enum arena_place place, uint64_t hint, int fd)
{
    int flags = MAP_SHARED | MAP_NORESERVE | (fd < 0 ? MAP_ANONYMOUS : 0);

    if (place != ARENA_BELOW_4G)
        return mmap(place == ARENA_AT_HINT ? (void *)hint : NULL, size, PROT_NONE, flags, fd, 0);
    for (uint64_t at = LOW_FIRST; at + size <= LOW_END; at += LOW_STEP) {
        void *p = mmap((void *)at, size, PROT_NONE, flags, fd, 0);
        if (p != MAP_FAILED && (uint64_t)p + size <= LOW_END)
            return p;
        if (p != MAP_FAILED)
            munmap(p, size);
    }
    errno = ENOMEM;
    return MAP_FAILED;
}

int arena_open(struct arena *a, size_t size, enum arena_place place, uint64_t hint,
               const char *name)
{
    size_t chunks = (size + ARENA_CHUNK - 1) / ARENA_CHUNK, words = (chunks + 63) / 64;
    int fd = -1;

    /* One chunk more: the kernel need not give an aligned address. */
    size_t reserved = (chunks + 1) * ARENA_CHUNK;
    if (name) {
        fd = memfd_create(name, MFD_CLOEXEC);
        if (fd < 0)
            return -errno;
        if (ftruncate(fd, (off_t)reserved) < 0) {
            int r = -errno;
            close(fd);
            return r;
        }
    }
    void *p = reserve(reserved, place, hint, fd);
    if (p == MAP_FAILED) {
        int r = -errno;
        if (fd >= 0)
            close(fd);
        return r;
    }
    a->used = calloc(words, sizeof(*a->used));
    a->opened = calloc(words, sizeof(*a->opened));
    a->slab = calloc(chunks, sizeof(struct slab *));
    if (!a->used || !a->opened || !a->slab)
        abort();
    a->chunks = chunks;
    a->fd = fd;
    a->base = ((uint64_t)p + ARENA_CHUNK - 1) & ~(ARENA_CHUNK - 1);
    a->offset = a->base - (uint64_t)p;
    return 0;
}

int arena_open_bare(struct arena *a, size_t size)
{
    a->bare = true;
    return arena_open(a, size, ARENA_ANYWHERE, 0, NULL);
}

/* Make chunks accessible. The kernel backs a page when it is first touched. */
static bool chunks_enable(struct arena *a, size_t first, size_t count)
{
    size_t i = first;

    if (a->bare)
        return true;
    while (i < first + count && bit_get(a->opened, i))
        i++;
    if (i == first + count)
        return true;
    if (mprotect((void *)(a->base + first * ARENA_CHUNK), count * ARENA_CHUNK,
                 PROT_READ | PROT_WRITE) < 0)
        return false;
    bits_set(a->opened, first, count, true);
    return true;
}

static long chunks_take(struct arena *a, size_t count, long at)
{
    if (at < 0)
        at = bits_first_fit(a->used, a->chunks, count);
    if (at < 0 || !chunks_enable(a, (size_t)at, count))
        return -1;
    bits_set(a->used, (size_t)at, count, true);
    a->chunks_used += count;
    return at;
}

static void chunks_give(struct arena *a, size_t at, size_t count)
{
    bits_set(a->used, at, count, false);
    a->chunks_used -= count;
    if (!a->bare)
        madvise((void *)(a->base + at * ARENA_CHUNK), count * ARENA_CHUNK, MADV_REMOVE);
}

static void slab_list(struct arena *a, struct slab *s, bool listed)
{
    if (s->listed == listed)
        return;
    s->listed = listed;
    if (listed) {
        s->prev = NULL;
        s->next = a->slabs;
        if (a->slabs)
            a->slabs->prev = s;
        a->slabs = s;
        return;
    }
    if (s->prev)
        s->prev->next = s->next;
    else
        a->slabs = s->next;
    if (s->next)
        s->next->prev = s->prev;
}

void arena_trim(struct arena *a)
{
    struct slab *next;

    for (struct slab *s = a->slabs; s; s = next) {
        next = s->next;
        if (s->units_used)
            continue;
        size_t chunk = (s->base - a->base) / ARENA_CHUNK;
        slab_list(a, s, false);
        a->slab[chunk] = NULL;
        chunks_give(a, chunk, 1);
        free(s);
    }
}

static struct slab *slab_new(struct arena *a)
{
    long chunk = chunks_take(a, 1, -1);

    if (chunk < 0)
        return NULL;
    struct slab *s = calloc(1, sizeof(*s));
    if (!s)
        abort();
    s->base = a->base + (uint64_t)chunk * ARENA_CHUNK;
    a->slab[chunk] = s;
    slab_list(a, s, true);
    return s;
}

static uint64_t slab_use(struct arena *a, struct slab *s, size_t at, size_t units)
{
    bits_set(s->used, at, units, true);
    s->units_used += (unsigned)units;
    if (s->units_used == ARENA_UNITS)
        slab_list(a, s, false);
    return s->base + at * ARENA_UNIT;
}

static uint64_t small_take(struct arena *a, size_t size)
{
    size_t units = (size + ARENA_UNIT - 1) / ARENA_UNIT;

    for (struct slab *s = a->slabs; s; s = s->next) {
        long at = bits_first_fit(s->used, ARENA_UNITS, units);
        if (at >= 0)
            return slab_use(a, s, (size_t)at, units);
    }
    struct slab *s = slab_new(a);
    return s ? slab_use(a, s, 0, units) : 0;
}

/* Take the range of `size` bytes that was freed last, if it is still free. */
static uint64_t recent_take(struct arena *a, size_t size)
{
    for (unsigned i = a->recent_count; i-- > 0;) {
        struct span_recent r = a->recent[i];
        if (r.size != size)
            continue;
        for (unsigned j = i; j + 1 < a->recent_count; j++)
            a->recent[j] = a->recent[j + 1];
        a->recent_count--;
        size_t chunk = (r.address - a->base) / ARENA_CHUNK;
        if (size >= ARENA_SMALL) {
            size_t count = (size + ARENA_CHUNK - 1) / ARENA_CHUNK;
            if (bits_free(a->used, chunk, count) && chunks_take(a, count, (long)chunk) >= 0)
                return r.address;
            continue;
        }
        struct slab *s = a->slab[chunk];
        size_t at = (r.address % ARENA_CHUNK) / ARENA_UNIT;
        size_t units = size / ARENA_UNIT;
        if (s && bits_free(s->used, at, units))
            return slab_use(a, s, at, units);
    }
    return 0;
}

/* Sizes that take the same room are the same size to the stack of freed ranges. */
static size_t rounded(size_t size)
{
    size_t unit = size < ARENA_SMALL ? ARENA_UNIT : ARENA_CHUNK;

    return (size + unit - 1) / unit * unit;
}

static void recent_push(struct arena *a, uint64_t address, size_t size)
{
    if (a->recent_count == ARENA_RECENT) {
        for (unsigned i = 0; i + 1 < ARENA_RECENT; i++)
            a->recent[i] = a->recent[i + 1];
        a->recent_count--;
    }
    a->recent[a->recent_count++] = (struct span_recent){address, size};
}

uint64_t arena_take(struct arena *a, size_t size)
{
    if (size == 0 || size > a->chunks * ARENA_CHUNK)
        return 0;
    size = rounded(size);
    uint64_t address = recent_take(a, size);
    if (address)
        return address;
    if (size < ARENA_SMALL)
        return small_take(a, size);
    long at = chunks_take(a, size / ARENA_CHUNK, -1);
    if (at < 0) {
        arena_trim(a);
        at = chunks_take(a, size / ARENA_CHUNK, -1);
    }
    return at < 0 ? 0 : a->base + (uint64_t)at * ARENA_CHUNK;
}

uint64_t arena_take_at(struct arena *a, uint64_t address, size_t size)
{
    size = rounded(size);
    if (size < ARENA_SMALL || address < a->base || address % ARENA_CHUNK)
        return 0;
    size_t chunk = (address - a->base) / ARENA_CHUNK, count = size / ARENA_CHUNK;
    if (chunk > a->chunks || count > a->chunks - chunk || !bits_free(a->used, chunk, count))
        return 0;
    return chunks_take(a, count, (long)chunk) < 0 ? 0 : address;
}

void arena_give(struct arena *a, uint64_t address, size_t size)
{
    size_t chunk = (address - a->base) / ARENA_CHUNK;

    size = rounded(size);
    recent_push(a, address, size);
    if (size >= ARENA_SMALL) {
        chunks_give(a, chunk, size / ARENA_CHUNK);
        return;
    }
    struct slab *s = a->slab[chunk];
    size_t units = size / ARENA_UNIT;
    bits_set(s->used, (address % ARENA_CHUNK) / ARENA_UNIT, units, false);
    s->units_used -= (unsigned)units;
    slab_list(a, s, true);
}
