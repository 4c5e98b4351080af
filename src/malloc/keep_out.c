/*
 * keep_out.c: libmemoir-malloc-ranges.so, which keeps everybody else out of the addresses of all slots (range_plan.h).
 *
 * A process holds its own slot, so the kernel puts nobody there by itself. But a library may ask for an address, or insist on one: in
 * front of such calls stands this library, preloaded beside the allocator. A hint is left out, and the kernel chooses; who
 * insists is refused with EEXIST; who would unmap or move what lies there, with EINVAL. The allocator itself calls the kernel
 * and does not come by here, nor does the dynamic loader. Without a range in MEMOIR_MALLOC all calls are passed on.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "malloc/range_plan.h"

#define EXPORT __attribute__((visibility("default")))
#define PAGE   ((uintptr_t)4096)

/* The addresses of all slots. Known as soon as there is an environment; set once, `to` last. */
static uintptr_t keep_from, keep_to;
static uint32_t known;

/* Whoever is behind us, from our constructor on. */
static struct {
    void *(*mmap)(void *, size_t, int, int, int, off64_t);
    int (*munmap)(void *, size_t);
    void *(*mremap)(void *, size_t, size_t, int, ...);
    void *(*shmat)(int, const void *, int);
} next;

static void learn(void)
{
    struct malloc_settings settings = malloc_settings;
    struct range_plan plan;
    const char *why, *text = secure_getenv("MEMOIR_MALLOC");
    if (text)
        settings_parse(&settings, text, &why); /* the allocator tells what makes no sense */
    if (range_plan(&settings, &plan, &why) > 0) {
        store_relaxed(&keep_from, plan.base);
        store_release(&keep_to, range_plan_end(&plan));
    }
    store_release(&known, 1);
}

/* Does it touch a page of a slot? What wraps around touches nothing: the kernel refuses it. */
static bool touches(const void *at, size_t bytes)
{
    uintptr_t from = (uintptr_t)at & ~(PAGE - 1), end;
    if (!load_acquire(&known) && environ)
        learn();
    if (__builtin_add_overflow((uintptr_t)at, bytes, &end))
        return false;
    return bytes > 0 && from < load_acquire(&keep_to) && end > load_relaxed(&keep_from);
}

static void *refuse(int error)
{
    errno = error;
    return MAP_FAILED; /* which is what shmat() gives, too */
}

static inline __attribute__((always_inline)) void *map(void *hint, size_t bytes, int protection,
                                                       int flags, int fd, off64_t offset)
{
    if (hint && touches(hint, bytes)) {
        if (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE))
            return refuse(EEXIST);
        hint = NULL;
    }
    return next.mmap ? next.mmap(hint, bytes, protection, flags, fd, offset)
                     : (void *)syscall(SYS_mmap, hint, bytes, protection, flags, fd, offset);
}

/* Two names for the same; headers give the one that the program's own offsets ask for. */
EXPORT void *map_small(void *hint, size_t bytes, int protection, int flags, int fd,
                       off64_t offset) __asm__("mmap");
EXPORT void *map_large(void *hint, size_t bytes, int protection, int flags, int fd,
                       off64_t offset) __asm__("mmap64");

void *map_small(void *hint, size_t bytes, int protection, int flags, int fd, off64_t offset)
{
    return map(hint, bytes, protection, flags, fd, offset);
}

void *map_large(void *hint, size_t bytes, int protection, int flags, int fd, off64_t offset)
{
    return map(hint, bytes, protection, flags, fd, offset);
}

EXPORT int munmap(void *start, size_t bytes)
{
    if (touches(start, bytes)) {
        errno = EINVAL;
        return -1;
    }
    return next.munmap ? next.munmap(start, bytes) : (int)syscall(SYS_munmap, start, bytes);
}

EXPORT void *mremap(void *old, size_t old_bytes, size_t bytes, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    void *to = flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) ? va_arg(more, void *) : NULL;
    va_end(more);
    /* An old size of 0 makes a second mapping of shared memory. */
    if (touches(old, old_bytes ? old_bytes : 1))
        return refuse(EINVAL);
    if (to && touches(to, bytes)) {
        if (flags & MREMAP_FIXED)
            return refuse(EEXIST);
        to = NULL;
    }
    /* Growing where it is, it would come in. */
    if (!(flags & MREMAP_FIXED) && touches(old, bytes))
        return refuse(ENOMEM);
    return next.mremap ? next.mremap(old, old_bytes, bytes, flags, to)
                       : (void *)syscall(SYS_mremap, old, old_bytes, bytes, flags, to);
}

EXPORT void *shmat(int id, const void *at, int flags)
{
    struct shmid_ds segment;
    if (at && shmctl(id, IPC_STAT, &segment) == 0 && touches(at, segment.shm_segsz))
        return refuse(EINVAL);
    return next.shmat ? next.shmat(id, at, flags) : (void *)syscall(SYS_shmat, id, at, flags);
}

__attribute__((constructor)) static void keep_out_begin(void)
{
    *(void **)&next.munmap = dlsym(RTLD_NEXT, "munmap");
    *(void **)&next.mremap = dlsym(RTLD_NEXT, "mremap");
    *(void **)&next.shmat = dlsym(RTLD_NEXT, "shmat");
    *(void **)&next.mmap = dlsym(RTLD_NEXT, "mmap");
}
