/* bump.c: an allocator that may be interrupted anywhere, for tests with signal handlers that allocate. It
 * gives each block once and takes none back. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HEADER = 16 };
#define RESERVE (UINT64_C(64) << 30)

#define EXPORT  __attribute__((visibility("default")))

static char *region;
static size_t used;

static void *take(size_t align, size_t bytes)
{
    char *base = __atomic_load_n(&region, __ATOMIC_ACQUIRE);
    if (!base) {
        char *none = NULL;
        char *made = mmap(NULL, RESERVE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (made == MAP_FAILED)
            return NULL;
        if (!__atomic_compare_exchange_n(&region, &none, made, 0, __ATOMIC_ACQ_REL,
                                         __ATOMIC_ACQUIRE))
            munmap(made, RESERVE);
        base = region;
    }
    align = align < HEADER ? HEADER : align;
    size_t whole = ((bytes + 15) & ~(size_t)15) + HEADER + align;
    if (bytes > RESERVE / 4 || used + whole > RESERVE) {
        errno = ENOMEM;
        return NULL;
    }
    uintptr_t at = (uintptr_t)base + __atomic_fetch_add(&used, whole, __ATOMIC_RELAXED);
    at = (at + HEADER + align - 1) & ~(uintptr_t)(align - 1);
    ((size_t *)at)[-1] = (bytes + 15) & ~(size_t)15;
    return (void *)at;
}

EXPORT size_t malloc_usable_size(void *block);
EXPORT void *memalign(size_t align, size_t bytes);

EXPORT size_t malloc_usable_size(void *block)
{
    return block ? ((size_t *)block)[-1] : 0;
}
EXPORT void *malloc(size_t bytes)
{
    return take(HEADER, bytes);
}
EXPORT void free(void *block)
{
    (void)block;
}
EXPORT void *calloc(size_t n, size_t bytes)
{
    return bytes && n > SIZE_MAX / bytes ? NULL : take(HEADER, n * bytes);
}
EXPORT void *realloc(void *block, size_t bytes)
{
    void *moved = take(HEADER, bytes);
    size_t old = malloc_usable_size(block);
    return moved && block ? memcpy(moved, block, old < bytes ? old : bytes) : moved;
}
EXPORT void *memalign(size_t align, size_t bytes)
{
    return take(align, bytes);
}
EXPORT void *aligned_alloc(size_t align, size_t bytes)
{
    return take(align, bytes);
}
EXPORT int posix_memalign(void **ret_block, size_t align, size_t bytes)
{
    *ret_block = take(align, bytes);
    return *ret_block ? 0 : ENOMEM;
}
EXPORT void *valloc(size_t bytes)
{
    return take(4096, bytes);
}
