/*
 * real.h: the allocator that the program would have without us.
 *
 * Found by dlsym(RTLD_NEXT), so it is whatever the loader would have chosen: glibc's, or one that the
 * program or its user brings. dlsym() may itself allocate: until the real functions are known, memory
 * comes from a small static buffer whose blocks are never given back.
 *
 * The same tracker is in libmemoir-malloc.so, compiled with TRACK_OVER_CORE.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"
#include "book/layout.h"

#ifdef TRACK_OVER_CORE

/* In libmemoir-malloc.so it is our own, which calls us: see src/malloc/account.c, where these are. */
#define REAL_SOURCE BOOK_SOURCE_MALLOC
#define REAL_NEAR   true /* where a small block ends can be told at once */
static const struct {
    bool glibc, sized, whole;
} real = {.whole = true};

void *real_realloc(void *block, size_t bytes);
size_t real_usable(void *block); /* 0 if it is no block */
int real_dlclose(void *handle);
bool real_wanted(void); /* is anything to be counted? */

static inline size_t real_usable_told(void *block)
{
    return real_usable(block);
}

static inline bool real_ready(void)
{
    return true;
}

static inline bool real_is_over(const void *libc_malloc)
{
    return true;
}
/* Are the blocks of another malloc() ours in the end? */
bool real_is_below(void *other_malloc, void *other_free);

#else

#define REAL_SOURCE    BOOK_SOURCE_TRACK
#define REAL_NEAR      (real.glibc)

enum { REAL_SIZED_MAX = 1024 };

struct real {
    void *(*malloc)(size_t);
    void (*free)(void *);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*memalign)(size_t, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    size_t (*usable)(void *);
    int (*dlclose)(void *);
    void *(*mmap)(void *, size_t, int, int, int, long);
    int (*munmap)(void *, size_t);
    void *(*mremap)(void *, size_t, size_t, int, ...);
    bool glibc; /* a block's size stands before it: no call is needed to learn it */
    bool sized; /* jemalloc's: what it gives for a small request is always the same, */
    uint16_t last_of[REAL_SIZED_MAX / 8 + 1]; /* by request / 8: where its last word begins */
    bool whole;     /* all of them are there, and of one library: blocks can carry trailers */
    bool operators; /* those of C++ that the program calls are all ours: see wrap_cxx.c */
    uint32_t page_bytes;
    uint32_t ready; /* stored last (release) */
};

extern struct real real __attribute__((visibility("hidden"))); /* no way round */

enum { REAL_BOOT_BYTES = 32768 };
extern unsigned char real_boot[REAL_BOOT_BYTES];

/* Find them; false while this very call is under way further out on the stack. */
bool real_find(void);

static inline bool real_ready(void)
{
    return load_acquire(&real.ready) || real_find();
}

/* Memory for dlsym() while it looks for malloc. NULL when there is no more. */
void *real_boot_alloc(size_t bytes, size_t align);
size_t real_boot_size(const void *block);

static inline bool real_is_boot(const void *block)
{
    return (uintptr_t)block - (uintptr_t)real_boot < REAL_BOOT_BYTES;
}

enum {
    REAL_CHUNK_MAPPED = 2, /* glibc's flag for a block with a mapping of its own */
    REAL_CHUNK_FLAGS = 7,
};
/* Larger than any block, smaller than addresses: what stands before a pointer that is no block. */
#define REAL_CHUNK_MAX (UINT64_C(1) << 42)

/* The word before a block of glibc's; other allocators may have nothing there, not even a page. */
static inline size_t real_chunk(const void *block)
{
    return ((const size_t *)block)[-1];
}

/* Usable bytes of a block with that word, if it has not REAL_CHUNK_MAPPED. */
static inline size_t real_chunk_usable(size_t chunk)
{
    return (chunk & ~(size_t)REAL_CHUNK_FLAGS) - sizeof(size_t);
}

/* Has it that flag, or is it none of glibc's blocks at all? */
static inline bool real_chunk_odd(const void *block, size_t chunk)
{
    return ((uintptr_t)block % 16 | chunk / REAL_CHUNK_MAX | (chunk & REAL_CHUNK_MAPPED)) != 0;
}

/* Usable bytes of a block of the real allocator; 0 if it cannot be one. */
static inline size_t real_usable(void *block)
{
    if (__builtin_expect(real.glibc, 1)) {
        size_t chunk = real_chunk(block);
        if (__builtin_expect(!real_chunk_odd(block, chunk), 1))
            return real_chunk_usable(chunk);
        if ((uintptr_t)block % 16 != 0 || chunk >= REAL_CHUNK_MAX)
            return 0;
    }
    return real.usable(block);
}

/* What the allocator itself says. */
static inline size_t real_usable_told(void *block)
{
    return real.usable(block);
}

static inline void *real_realloc(void *block, size_t bytes)
{
    return real.realloc(block, bytes);
}

static inline int real_dlclose(void *handle)
{
    real_ready();
    return real.dlclose(handle);
}

static inline bool real_wanted(void)
{
    return true;
}

/* May libc's names lead to us (redirect.h)? Only if ours lead to libc's, with no other library between. */
static inline bool real_is_over(const void *libc_malloc)
{
    return real_ready() && (const void *)real.malloc == libc_malloc;
}

/* Does another malloc() come to ours? It is not known, nor needed: all blocks are libc's in the end, or another library's. */
static inline bool real_is_below(void *other_malloc, void *other_free)
{
    return false;
}

/* The next function of that name after ours, or NULL; for those that are seldom needed. Takes the lock of the
 * loader, which may be held by a thread that waits for this one. */
void *real_symbol(const char *name);

/* Who has the operators of C++? For real_find(); in wrap_cxx.c. */
void real_operators_find(struct real *r);

#endif
