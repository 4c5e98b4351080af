/* wrap.c: the C library's allocator, as the program calls it. Large requests are served here, all
 * others go on to the allocator that the program has. */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "pin/manager.h"
#include "pin/next.h"

#define WRAP_API __attribute__((visibility("default")))

/* Where the next allocator is not known yet. */
static void *early(size_t bytes, size_t alignment)
{
    void *block = pin_next_boot(bytes, alignment);
    if (!block)
        errno = ENOMEM;
    return block;
}

static bool is_power(size_t value)
{
    return value && (value & (value - 1)) == 0;
}

WRAP_API void *malloc(size_t bytes)
{
    if (__builtin_expect(bytes >= pin_settings.threshold_bytes, false)) {
        struct unwind_state from = UNWIND_STATE_CALLER();
        void *block = pin_allocate(bytes, 1, false, &from);
        if (block)
            return block;
    }
    return pin_next_find() ? pin_next.malloc(bytes) : early(bytes, 1);
}

WRAP_API void *calloc(size_t count, size_t bytes)
{
    size_t whole;
    if (__builtin_mul_overflow(count, bytes, &whole)) {
        errno = ENOMEM;
        return NULL;
    }
    if (__builtin_expect(whole >= pin_settings.threshold_bytes, false)) {
        struct unwind_state from = UNWIND_STATE_CALLER();
        void *block = pin_allocate(whole, 1, true, &from);
        if (block)
            return block;
    }
    return pin_next_find() ? pin_next.calloc(count, bytes)
                           : early(whole, 1); /* that memory is zero */
}

WRAP_API void free(void *block)
{
    if (__builtin_expect(pin_owns(block), false))
        pin_release(block);
    else if (block && !pin_next_is_boot(block) && pin_next_find())
        pin_next.free(block);
}

WRAP_API void *realloc(void *block, size_t bytes)
{
    struct unwind_state from = UNWIND_STATE_CALLER();
    if (!block) {
        void *fresh =
            bytes >= pin_settings.threshold_bytes ? pin_allocate(bytes, 1, false, &from) : NULL;
        return fresh ? fresh : pin_next_find() ? pin_next.realloc(NULL, bytes) : early(bytes, 1);
    }
    if (pin_owns(block))
        return pin_reallocate(block, bytes, &from);
    bool boot = pin_next_is_boot(block);
    if (!boot && bytes < pin_settings.threshold_bytes)
        return pin_next_find() ? pin_next.realloc(block, bytes) : NULL;
    size_t old = boot ? pin_next_boot_size(block) : pin_next_find() ? pin_next.usable(block) : 0;
    /* A block that was large already stays where it is: the other allocator may be able to grow it
     * in place. */
    if (!boot && old >= pin_settings.threshold_bytes)
        return pin_next.realloc(block, bytes);
    void *fresh = pin_allocate(bytes, 1, false, &from);
    if (!fresh && !boot)
        return pin_next.realloc(block, bytes);
    if (!fresh)
        fresh = pin_next_find() ? pin_next.malloc(bytes) : early(bytes, 1);
    if (fresh) {
        memcpy(fresh, block, old < bytes ? old : bytes);
        if (!boot)
            pin_next.free(block);
    }
    return fresh;
}

WRAP_API void *reallocarray(void *block, size_t count, size_t bytes)
{
    size_t whole;
    if (__builtin_mul_overflow(count, bytes, &whole)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(block, whole);
}

static void *aligned(size_t alignment, size_t bytes, const struct unwind_state *from)
{
    return bytes >= pin_settings.threshold_bytes && is_power(alignment)
               ? pin_allocate(bytes, alignment, false, from)
               : NULL;
}

WRAP_API void *memalign(size_t alignment, size_t bytes)
{
    struct unwind_state from = UNWIND_STATE_CALLER();
    void *block = aligned(alignment, bytes, &from);
    return block             ? block
           : pin_next_find() ? pin_next.memalign(alignment, bytes)
                             : early(bytes, alignment);
}

WRAP_API void *aligned_alloc(size_t alignment, size_t bytes)
{
    struct unwind_state from = UNWIND_STATE_CALLER();
    void *block = aligned(alignment, bytes, &from);
    return block             ? block
           : pin_next_find() ? pin_next.aligned_alloc(alignment, bytes)
                             : early(bytes, alignment);
}

WRAP_API int posix_memalign(void **ret, size_t alignment, size_t bytes)
{
    struct unwind_state from = UNWIND_STATE_CALLER();
    void *block = alignment % sizeof(void *) == 0 ? aligned(alignment, bytes, &from) : NULL;
    if (!block && pin_next_find())
        return pin_next.posix_memalign(ret, alignment, bytes);
    if (!block && !(block = pin_next_boot(bytes, alignment)))
        return ENOMEM;
    *ret = block;
    return 0;
}

WRAP_API size_t malloc_usable_size(void *block)
{
    if (!block)
        return 0;
    if (pin_owns(block))
        return pin_usable(block);
    if (pin_next_is_boot(block))
        return pin_next_boot_size(block);
    return pin_next_find() ? pin_next.usable(block) : 0;
}

/* Pages that are dropped while the device has them would be others than the program's. */
WRAP_API int madvise(void *address, size_t bytes, int advice)
{
    if (pin_owns(address) &&
        (advice == MADV_DONTNEED || advice == MADV_FREE || advice == MADV_REMOVE ||
         advice == MADV_PAGEOUT || advice == MADV_COLD))
        pin_dropping(address, bytes);
    if (!pin_next_find()) {
        errno = EAGAIN;
        return -1;
    }
    return pin_next.madvise(address, bytes, advice);
}

__attribute__((constructor(101))) static void start(void)
{
    (void)pin_next_find();
    pin_start();
}
