/* real.c: see real.h. */
#include "track/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "site/module.h"

enum { BOOT_HEADER = 16, PROBE_BYTES = 100 };

struct real real;
unsigned char real_boot[REAL_BOOT_BYTES] __attribute__((aligned(64)));
static size_t boot_used;
static uint32_t stored; /* somebody copies what he found */
static __thread bool finding;

void *real_boot_alloc(size_t bytes, size_t align)
{
    align = align < BOOT_HEADER ? BOOT_HEADER : align;
    if (bytes > REAL_BOOT_BYTES || align > REAL_BOOT_BYTES || (align & (align - 1)) != 0)
        return NULL;
    size_t used = load_relaxed(&boot_used), end;
    uintptr_t at;
    do {
        at = ((uintptr_t)real_boot + used + BOOT_HEADER + align - 1) & ~(uintptr_t)(align - 1);
        end = at + ((bytes + 15) & ~(size_t)15) - (uintptr_t)real_boot;
        if (end > REAL_BOOT_BYTES)
            return NULL;
    } while (!cas_weak_relaxed(&boot_used, &used, end));
    ((size_t *)at)[-1] = bytes;
    return (void *)at;
}

size_t real_boot_size(const void *block)
{
    return ((const size_t *)block)[-1];
}

void *real_symbol(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static bool same_library(const void *a, const void *b)
{
    struct module_object of_a = {0}, of_b = {0};
    return a && b && module_object_find((uintptr_t)a, &of_a) == 0 &&
           module_object_find((uintptr_t)b, &of_b) == 0 && of_a.map_start == of_b.map_start;
}

/* Valgrind puts other functions under the same addresses, and complains about who reads there. Those of its tools that
 * leave malloc() alone (callgrind) preload no more than its core. */
static bool under_valgrind(void)
{
    static const char core[] = "/vgpreload_core";
    const char *at = environ ? getenv("LD_PRELOAD") : NULL;
    while (at && (at = strstr(at, "/vgpreload_")) != NULL) {
        if (strncmp(at, core, sizeof(core) - 1) != 0)
            return true;
        at++;
    }
    return false;
}

/* Does the word before a block tell its size, as in all releases of glibc so far? */
static bool glibc_layout(const struct real *r)
{
    if (under_valgrind() || (void *)r->malloc != dlsym(RTLD_DEFAULT, "__libc_malloc"))
        return false;
    void *block = r->malloc(PROBE_BYTES);
    size_t chunk = block ? ((size_t *)block)[-1] : 0;
    bool known = block && !(chunk & REAL_CHUNK_MAPPED) &&
                 (chunk & ~(size_t)REAL_CHUNK_FLAGS) - sizeof(size_t) == r->usable(block);
    r->free(block);
    return known;
}

/* jemalloc's nallocx() tells what it would give. Believed if it does, and of jemalloc alone: others that have it may give
 * less for a block which they chose to guard. */
static bool sizes_learn(struct real *r)
{
    size_t (*would_give)(size_t, int) = NULL;
    *(void **)&would_give = real_symbol("nallocx");
    if (!same_library((void *)r->malloc, (void *)would_give) ||
        !same_library((void *)r->malloc, real_symbol("mallctl")))
        return false;
    for (size_t request = 8; request <= REAL_SIZED_MAX; request += 8) {
        void *block = r->malloc(request);
        size_t usable = block ? r->usable(block) : 0;
        r->free(block);
        if (usable < request || usable > UINT16_MAX || usable != would_give(request, 0))
            return false;
        r->last_of[request / 8] = (uint16_t)((usable & ~(size_t)7) - 8);
    }
    return true;
}

static void find(struct real *r)
{
    *(void **)&r->malloc = real_symbol("malloc");
    *(void **)&r->free = real_symbol("free");
    *(void **)&r->calloc = real_symbol("calloc");
    *(void **)&r->realloc = real_symbol("realloc");
    *(void **)&r->memalign = real_symbol("memalign");
    *(void **)&r->aligned_alloc = real_symbol("aligned_alloc");
    *(void **)&r->posix_memalign = real_symbol("posix_memalign");
    *(void **)&r->usable = real_symbol("malloc_usable_size");
    *(void **)&r->dlclose = real_symbol("dlclose");
    *(void **)&r->mmap = real_symbol("mmap");
    *(void **)&r->munmap = real_symbol("munmap");
    *(void **)&r->mremap = real_symbol("mremap");
    r->page_bytes = (uint32_t)sysconf(_SC_PAGESIZE);
    const void *rest[] = {(void *)r->free,     (void *)r->calloc,        (void *)r->realloc,
                          (void *)r->memalign, (void *)r->aligned_alloc, (void *)r->posix_memalign,
                          (void *)r->usable};
    r->whole = r->malloc != NULL;
    for (size_t i = 0; i < sizeof(rest) / sizeof(rest[0]); i++)
        r->whole = r->whole && same_library((void *)r->malloc, rest[i]);
    r->glibc = r->whole && glibc_layout(r);
    r->sized = r->whole && !r->glibc && sizes_learn(r);
    real_operators_find(r);
}

/* Several threads may do this at once: all find the same. */
bool real_find(void)
{
    if (finding)
        return load_acquire(&real.ready);
    finding = true;
    int saved = errno;
    struct real found = {0};
    find(&found);
    uint32_t none = 0;
    if (cas_acquire(&stored, &none, 1)) {
        real = found;
        store_release(&real.ready, 1);
    }
    while (!load_acquire(&real.ready))
        cpu_relax();
    errno = saved;
    finding = false;
    return true;
}
