/*
 * count.c: an independent count of what a program asks of its allocator.
 *
 * Preloaded in front of everything else it sees each call as the program made it, and hands it on. The figures are
 * in a shared file, COUNT_DIR/PID, so that they are complete however the process ends and need no last word from
 * it. Every function that allocates, frees or does both is here under its own name, as the C library documents
 * them; new and delete of the C++ runtime end in these.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

struct figures {
    _Atomic uint64_t alloc_blocks, alloc_bytes, freed_blocks;
};
static struct figures nowhere, *figures = &nowhere;

static void open_file(void)
{
    const char *folder = getenv("COUNT_DIR");
    char path[256];
    if (!folder)
        return;
    snprintf(path, sizeof(path), "%s/%d", folder, (int)getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(*figures)) < 0)
        return;
    void *map = mmap(NULL, sizeof(*figures), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return;
    struct figures *to = map;
    to->alloc_blocks += nowhere.alloc_blocks; /* what came before this library was ready */
    to->alloc_bytes += nowhere.alloc_bytes;
    to->freed_blocks += nowhere.freed_blocks;
    figures = to;
}

/* A child's figures are its own: those of its blocks that it inherited are not counted. */
static void in_child(void)
{
    memset(&nowhere, 0, sizeof(nowhere));
    figures = &nowhere;
    open_file();
}

__attribute__((constructor)) static void begin(void)
{
    open_file();
    pthread_atfork(NULL, NULL, in_child);
}

#define REAL(name) ((__typeof__(&name))next(&real_##name, #name))
static void *next(void **slot, const char *name)
{
    if (!*slot)
        *slot = dlsym(RTLD_NEXT, name);
    if (!*slot)
        _exit(99);
    return *slot;
}

static void *got(void *p, size_t bytes)
{
    if (p) {
        figures->alloc_blocks++;
        figures->alloc_bytes += bytes;
    }
    return p;
}

static void *real_malloc, *real_calloc, *real_realloc, *real_reallocarray, *real_free,
    *real_memalign, *real_aligned_alloc, *real_posix_memalign, *real_valloc, *real_pvalloc;

void *pvalloc(size_t bytes);
void *valloc(size_t bytes);
void *memalign(size_t to, size_t bytes);

EXPORT void *malloc(size_t bytes)
{
    return got(REAL(malloc)(bytes), bytes);
}

EXPORT void *calloc(size_t n, size_t each)
{
    return got(REAL(calloc)(n, each), n * each);
}

EXPORT void free(void *p)
{
    if (p)
        figures->freed_blocks++;
    REAL(free)(p);
}

/* Of a realloc to nothing the C library makes a free. */
static void *moved(void *old, void *new, size_t bytes)
{
    if (old && (new || bytes == 0))
        figures->freed_blocks++;
    return got(new, bytes);
}

EXPORT void *realloc(void *p, size_t bytes)
{
    return moved(p, REAL(realloc)(p, bytes), bytes);
}

EXPORT void *reallocarray(void *p, size_t n, size_t each)
{
    return moved(p, REAL(reallocarray)(p, n, each), n * each);
}

EXPORT void *memalign(size_t to, size_t bytes)
{
    return got(REAL(memalign)(to, bytes), bytes);
}

EXPORT void *aligned_alloc(size_t to, size_t bytes)
{
    return got(REAL(aligned_alloc)(to, bytes), bytes);
}

EXPORT int posix_memalign(void **ret, size_t to, size_t bytes)
{
    int r = REAL(posix_memalign)(ret, to, bytes);
    if (r == 0)
        got(*ret, bytes);
    return r;
}

EXPORT void *valloc(size_t bytes)
{
    return got(REAL(valloc)(bytes), bytes);
}

EXPORT void *pvalloc(size_t bytes)
{
    return got(REAL(pvalloc)(bytes), bytes);
}
