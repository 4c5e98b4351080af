/* count.c: the least that a preload can do: find the real function, count, and pass on. Others are measured
 * against it. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

static __thread uint64_t allocated __attribute__((tls_model("initial-exec")));
static __thread uint64_t freed __attribute__((tls_model("initial-exec")));
static void *(*real_malloc)(size_t);
static void (*real_free)(void *);

EXPORT void *malloc(size_t bytes)
{
    if (__builtin_expect(!real_malloc, 0))
        real_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    allocated++;
    return real_malloc(bytes);
}

EXPORT void free(void *block)
{
    if (__builtin_expect(!real_free, 0))
        real_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    freed++;
    real_free(block);
}
