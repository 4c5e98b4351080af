/* grind.c: see grind.h. */
#include "malloc/grind.h"

#include <stdint.h>
#include <string.h>

#include "malloc/core.h"
#include "malloc/harden.h"

#ifdef HAVE_VALGRIND
#include <valgrind/memcheck.h>
#else /* one that is never there */
#define RUNNING_ON_VALGRIND                       0
#define VALGRIND_DISABLE_ERROR_REPORTING          (void)0
#define VALGRIND_ENABLE_ERROR_REPORTING           (void)0
#define VALGRIND_MAKE_MEM_NOACCESS(p, bytes)      (void)0
#define VALGRIND_MALLOCLIKE_BLOCK(p, bytes, z, f) (void)0
#define VALGRIND_FREELIKE_BLOCK(p, z)             (void)0
#endif

enum { REDZONE = 16, TRAILER = 8 };
#define MARK UINT64_C(0x5f3759df9e3779b9)

bool grind_on;

__attribute__((section(".text.startup"))) void grind_begin(void)
{
    if (RUNNING_ON_VALGRIND)
        grind_on = true; /* else its page stays untouched */
}

void grind_errors(bool on)
{
    if (on)
        VALGRIND_ENABLE_ERROR_REPORTING;
    else
        VALGRIND_DISABLE_ERROR_REPORTING;
}

/* The last word of a block tells how many bytes were asked for, bound to its address; 0 once it was freed. */
static uint64_t *trailer_of(const struct hard_block *b)
{
    return (uint64_t *)(((uintptr_t)b->start + b->usable - TRAILER) & ~(uintptr_t)7);
}

/* A live block that starts there? With errors off. */
static bool find(void *p, struct hard_block *ret, size_t *ret_bytes)
{
    if (hard_find(p, false, ret) != HARD_NONE)
        return false;
    uint64_t bytes = *trailer_of(ret) ^ MARK ^ (uintptr_t)p;
    *ret_bytes = (size_t)bytes;
    return bytes <= ret->usable - TRAILER;
}

void *grind_alloc(size_t bytes, size_t align, bool zero)
{
    struct hard_block b;
    if (bytes > PTRDIFF_MAX - REDZONE - TRAILER)
        return NULL;
    grind_enter();
    size_t all = bytes + REDZONE + TRAILER;
    char *p = align > SIZE_STEP ? core_memalign(align, all) : core_malloc(all);
    bool found = p && hard_find(p, false, &b) == HARD_NONE;
    if (found) {
        *trailer_of(&b) = bytes ^ MARK ^ (uintptr_t)p;
        if (zero)
            memset(p, 0, bytes);
    }
    grind_leave();
    if (!found)
        return NULL;
    VALGRIND_MAKE_MEM_NOACCESS(p + bytes, b.usable - bytes);
    VALGRIND_MALLOCLIKE_BLOCK(p, bytes, 0, zero);
    return p;
}

/* memcheck says what is wrong with a block that it was not told of; here it is only left alone. */
void grind_free(void *p)
{
    struct hard_block b;
    size_t bytes;
    if (!p)
        return;
    grind_enter();
    bool found = find(p, &b, &bytes);
    if (found)
        *trailer_of(&b) = 0;
    grind_leave();
    VALGRIND_FREELIKE_BLOCK(p, 0);
    if (!found)
        return;
    grind_enter();
    core_free(p);
    grind_leave();
}

void *grind_realloc(void *p, size_t bytes)
{
    struct hard_block b;
    size_t had;
    grind_enter();
    bool found = find(p, &b, &had);
    grind_leave();
    if (!found) {
        VALGRIND_FREELIKE_BLOCK(p, 0);
        return NULL;
    }
    void *to = grind_alloc(bytes, 1, false);
    if (to) {
        memcpy(to, p, had < bytes ? had : bytes);
        grind_free(p);
    }
    return to;
}

size_t grind_usable(void *p)
{
    struct hard_block b;
    size_t bytes;
    grind_enter();
    bool found = find(p, &b, &bytes);
    grind_leave();
    return found ? bytes : 0;
}
