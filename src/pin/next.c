/* next.c: see next.h. */
#include "pin/next.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/atomic.h"
#include "site/module.h"
#include "site/module_symbol.h"

enum { BOOT_BYTES = 64 << 10, BOOT_HEADER = 16 };

struct pin_next pin_next;
static unsigned char boot[BOOT_BYTES] __attribute__((aligned(64)));
static size_t boot_used;
static uint32_t finding;
static __thread bool inside;

void *pin_next_boot(size_t bytes, size_t alignment)
{
    size_t used = load_relaxed(&boot_used), end;
    uintptr_t at;
    alignment = alignment < BOOT_HEADER ? BOOT_HEADER : alignment;
    if (bytes > BOOT_BYTES || alignment > BOOT_BYTES)
        return NULL;
    do {
        at = ((uintptr_t)boot + used + BOOT_HEADER + alignment - 1) & ~(uintptr_t)(alignment - 1);
        end = at + ((bytes + 15) & ~(size_t)15) - (uintptr_t)boot;
        if (end > BOOT_BYTES)
            return NULL;
    } while (!cas_weak_relaxed(&boot_used, &used, end));
    ((size_t *)at)[-1] = bytes;
    return (void *)at;
}

bool pin_next_is_boot(const void *block)
{
    return (uintptr_t)block - (uintptr_t)boot < BOOT_BYTES;
}

size_t pin_next_boot_size(const void *block)
{
    return ((const size_t *)block)[-1];
}

/* dlsym() is ours, too. Of the others that stand in front of libc's, the first one is asked. */
static void *dlsym_find(void)
{
    struct module_symbol symbol;
    return module_symbol_find_any((uintptr_t)&pin_next, "dlsym", &symbol) == 0 ? (void *)symbol.addr
                                                                               : NULL;
}

static bool find(struct pin_next *n)
{
    *(void **)&n->dlsym = dlsym_find();
    if (!n->dlsym)
        return false;
    const struct {
        void **to;
        const char *name;
    } names[] = {
        {(void **)&n->malloc, "malloc"},
        {(void **)&n->free, "free"},
        {(void **)&n->calloc, "calloc"},
        {(void **)&n->realloc, "realloc"},
        {(void **)&n->memalign, "memalign"},
        {(void **)&n->aligned_alloc, "aligned_alloc"},
        {(void **)&n->posix_memalign, "posix_memalign"},
        {(void **)&n->usable, "malloc_usable_size"},
        {(void **)&n->madvise, "madvise"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!(*names[i].to = n->dlsym(RTLD_NEXT, names[i].name)))
            return false;
    return true;
}

bool pin_next_find(void)
{
    if (__builtin_expect(load_acquire(&pin_next.ready), true))
        return true;
    if (inside)
        return false;
    inside = true;
    int saved = errno;
    struct pin_next found = {0};
    uint32_t none = 0;
    if (find(&found) && cas_acquire(&finding, &none, 1)) {
        pin_next = found;
        store_release(&pin_next.ready, true);
    }
    while (load_relaxed(&finding) && !load_acquire(&pin_next.ready))
        cpu_relax();
    errno = saved;
    inside = false;
    return load_acquire(&pin_next.ready);
}
