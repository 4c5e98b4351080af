/* map.c: see map.h. */
#include "track/map.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "book/lock.h"
#include "book/report.h"
#include "site/module.h"
#include "track/wrap.h"

enum { SPACE_MAPPED = 2 }; /* MEMOIR_SPACE_MAPPED */

/* ---- ranges ---- */

static size_t whole_pages(size_t bytes)
{
    size_t page = real.page_bytes;
    return (bytes + page - 1) & ~(page - 1);
}

static uint64_t place_of(const struct track_thread *t, uint32_t site)
{
    const struct tracker *tracker = t->tracker;
    return (uint64_t)book_time(&tracker->writer) << 32 | (uint64_t)site << 12 |
           tracker->maps->account;
}

static void range_add(struct track_thread *t, struct map_range range)
{
    struct map_list *maps = t->tracker->maps;
    if (range.start >= range.end)
        return;
    if (maps->n == MAP_RANGES_MAX) {
        book_lose(&t->tracker->writer, BOOK_LOSS_BLOCKS_FULL);
        return;
    }
    maps->range[maps->n++] = range;
    book_alloc(&t->tracker->writer, &t->book, range.start, range.end - range.start,
               place_of(t, range.site));
}

/* What is left of a range before and behind what was taken out of it counts anew. */
static void range_cut(struct track_thread *t, uint32_t i, uintptr_t start, uintptr_t end)
{
    struct map_list *maps = t->tracker->maps;
    struct map_range old = maps->range[i];
    maps->range[i] = maps->range[--maps->n];
    book_free(&t->tracker->writer, &t->book, maps->account, old.start);
    if (old.start < start)
        range_add(t, (struct map_range){old.start, start, old.site});
    if (old.end > end)
        range_add(t, (struct map_range){end, old.end, old.site});
}

void map_removed(struct track_thread *t, void *at, size_t bytes)
{
    struct map_list *maps = t->tracker->maps;
    uintptr_t start = (uintptr_t)at, end = start + whole_pages(bytes);
    for (uint32_t i = maps->n; i-- > 0;)
        if (maps->range[i].start < end && maps->range[i].end > start)
            range_cut(t, i, start, end);
}

void map_added(struct track_thread *t, void *at, size_t bytes, uintptr_t caller)
{
    struct tracker *tracker = t->tracker;
    uintptr_t start = (uintptr_t)at;
    uint32_t site = book_site_add(&tracker->writer, &t->book, tracker->maps->account, &caller, 1,
                                  BOOK_SITE_CALLER_ONLY);
    map_removed(t, at, bytes); /* MAP_FIXED replaces what is there */
    range_add(t, (struct map_range){start, start + whole_pages(bytes), site});
}

/* ---- one call ---- */

/* Ours, and those of the allocator: what it maps is the heap, which counts already. */
static bool counts_already(uintptr_t caller)
{
    struct module_object of_caller = {0}, other = {0};
    if (module_object_find(caller - 1, &of_caller) < 0)
        return false;
    if (module_object_find((uintptr_t)counts_already, &other) == 0 &&
        other.map_start == of_caller.map_start)
        return true;
    return module_object_find((uintptr_t)real.malloc, &other) == 0 &&
           other.map_start == of_caller.map_start;
}

static bool account_ready(struct track_thread *t)
{
    struct map_list *maps = t->tracker->maps;
    if (maps->account == 0) {
        int r = book_account_add(&t->tracker->writer, &t->book, SPACE_MAPPED, BOOK_DEVICE_HOST,
                                 "mapped");
        if (r <= 0)
            return false;
        maps->account = (uint32_t)r;
    }
    return true;
}

struct track_thread *map_begin(uintptr_t caller)
{
    if (likely(!track_settings.maps) || !load_acquire(&real.ready) || counts_already(caller))
        return NULL;
    struct tracker *tracker = track_tracker_open();
    if (!tracker || !tracker->maps ||
        (load_relaxed(&tracker->writer.control->flags) & BOOK_CONTROL_SUSPENDED))
        return NULL;
    struct track_thread *t = track_call_begin(tracker);
    if (!t)
        return NULL;
    if (account_ready(t) && book_lock_take(&tracker->writer, &t->book, &tracker->maps->lock))
        return t;
    track_call_end(t);
    return NULL;
}

void map_end(struct track_thread *t)
{
    book_lock_drop(&t->book, &t->tracker->maps->lock);
    track_call_end(t);
}

/* ---- what the program calls ---- */

/* As it would be without us: another library behind us may stand in front of them, too. Until they are known, and
 * for what we map ourselves, the kernel is asked. */
static bool by_kernel(uintptr_t caller)
{
    struct module_object of_caller = {0};
    return !load_acquire(&real.ready) || (module_object_find(caller - 1, &of_caller) == 0 &&
                                          (uintptr_t)by_kernel >= of_caller.map_start &&
                                          (uintptr_t)by_kernel < of_caller.map_end);
}

static inline __attribute__((always_inline)) void *map_for(void *hint, size_t bytes, int protection,
                                                           int flags, int fd, off64_t offset,
                                                           uintptr_t caller)
{
    int saved = errno;
    struct track_thread *t = map_begin(caller);
    void *start = by_kernel(caller)
                      ? (void *)syscall(SYS_mmap, hint, bytes, protection, flags, fd, offset)
                      : real.mmap(hint, bytes, protection, flags, fd, offset);
    int error = errno;
    if (t) {
        if (start != MAP_FAILED)
            map_added(t, start, bytes, caller);
        map_end(t);
    }
    errno = start == MAP_FAILED ? error : saved;
    return start;
}

/* Two names for the same; headers give the one that the program's own offsets ask for. */
EXPORT void *map_small(void *hint, size_t bytes, int protection, int flags, int fd,
                       off64_t offset) __asm__("mmap");
EXPORT void *map_large(void *hint, size_t bytes, int protection, int flags, int fd,
                       off64_t offset) __asm__("mmap64");

void *map_small(void *hint, size_t bytes, int protection, int flags, int fd, off64_t offset)
{
    return map_for(hint, bytes, protection, flags, fd, offset, CALLER());
}

void *map_large(void *hint, size_t bytes, int protection, int flags, int fd, off64_t offset)
{
    return map_for(hint, bytes, protection, flags, fd, offset, CALLER());
}

EXPORT int munmap(void *start, size_t bytes)
{
    int saved = errno;
    struct track_thread *t = map_begin(CALLER());
    int r =
        by_kernel(CALLER()) ? (int)syscall(SYS_munmap, start, bytes) : real.munmap(start, bytes);
    int error = errno;
    if (t) {
        if (r == 0)
            map_removed(t, start, bytes);
        map_end(t);
    }
    errno = r < 0 ? error : saved;
    return r;
}

EXPORT void *mremap(void *old, size_t old_bytes, size_t bytes, int flags, ...)
{
    int saved = errno;
    va_list more;
    va_start(more, flags);
    void *hint = flags & MREMAP_FIXED ? va_arg(more, void *) : NULL;
    va_end(more);
    struct track_thread *t = map_begin(CALLER());
    void *start = by_kernel(CALLER())
                      ? (void *)syscall(SYS_mremap, old, old_bytes, bytes, flags, hint)
                      : real.mremap(old, old_bytes, bytes, flags, hint);
    int error = errno;
    if (t) {
        if (start != MAP_FAILED) {
            map_removed(t, old, old_bytes);
            map_added(t, start, bytes, CALLER());
        }
        map_end(t);
    }
    errno = start == MAP_FAILED ? error : saved;
    return start;
}
