/* The seam to the kernel; os.h has the contract. */
#include "malloc/os.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

struct os_counts os_counts;

/* The lowest address of the area that grows downwards, mapping by mapping, as the kernel's own choice
 * would; 0 lets the kernel choose. A hint and no more: any thread reads and writes it. */
static uintptr_t area_low;

/* Bytes unmapped since the area was begun. An area that always grows downwards would never use the
 * holes above it, and the address map, which has a byte for every 2 MiB ever used, would grow with it;
 * so after a while it starts again at the highest hole. */
static uint64_t area_holes_bytes;
#define AREA_HOLES_MAX ((uint64_t)1 << 30)

/* Moves that the kernel refused. Nobody can tell whether it had already removed the reserved place by
 * then, so each leaves a stretch of address space behind, and there must be an end to it. */
static uint32_t moves_failed;
#define MOVES_FAILED_MAX 16

#ifdef OS_FAULTS
bool (*os_fault)(enum os_call call);
#define FAULT(call) (os_fault && os_fault(call))
#else
#define FAULT(call) false
#endif

static void count(uint64_t *counter, uint64_t n)
{
    fetch_add_relaxed(counter, n);
}

/* The system calls. Sanitizers must see them, to keep their shadow of the address space true: they
 * wrap the functions of libc. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CALL_MMAP    mmap
#define CALL_MUNMAP  munmap
#define CALL_MREMAP  mremap
#define CALL_MADVISE madvise
#else
#define CALL_MMAP(...)    (void *)syscall(SYS_mmap, __VA_ARGS__)
#define CALL_MUNMAP(...)  (int)syscall(SYS_munmap, __VA_ARGS__)
#define CALL_MREMAP(...)  (void *)syscall(SYS_mremap, __VA_ARGS__)
#define CALL_MADVISE(...) (int)syscall(SYS_madvise, __VA_ARGS__)
#endif

static void *call_map(uintptr_t hint, size_t bytes, int prot)
{
    count(&os_counts.map_calls, 1);
    void *p = FAULT(OS_CALL_MAP)
                  ? MAP_FAILED
                  : CALL_MMAP((void *)hint, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, (off_t)0);
    if (p != MAP_FAILED)
        return p;
    count(&os_counts.failed_calls, 1);
    return NULL;
}

static bool call_unmap(void *p, size_t bytes)
{
    count(&os_counts.unmap_calls, 1);
    if (!FAULT(OS_CALL_UNMAP) && CALL_MUNMAP(p, bytes) == 0)
        return true;
    count(&os_counts.failed_calls, 1);
    return false;
}

static bool call_advise(void *p, size_t bytes, int advice)
{
    count(&os_counts.advise_calls, 1);
    if (!FAULT(OS_CALL_ADVISE) && CALL_MADVISE(p, bytes, advice) == 0)
        return true;
    count(&os_counts.failed_calls, 1);
    return false;
}

static bool call_protect(void *p, size_t bytes, int prot)
{
    count(&os_counts.protect_calls, 1);
    if (!FAULT(OS_CALL_PROTECT) && syscall(SYS_mprotect, p, bytes, prot) == 0)
        return true;
    count(&os_counts.failed_calls, 1);
    return false;
}

static void *call_remap(void *old, size_t old_bytes, size_t new_bytes, int flags, void *to)
{
    count(&os_counts.remap_calls, 1);
    void *p = FAULT(OS_CALL_REMAP) ? MAP_FAILED : CALL_MREMAP(old, old_bytes, new_bytes, flags, to);
    if (p != MAP_FAILED)
        return p;
    count(&os_counts.failed_calls, 1);
    return NULL;
}

/* Unmap what nobody was given yet. */
static void drop(uintptr_t from, uintptr_t to)
{
    if (from < to && !call_unmap((void *)from, to - from))
        count(&os_counts.kept_bytes, to - from);
}

/* Note that a range became a hole. */
static void hole(void *p, size_t bytes)
{
    uintptr_t at = (uintptr_t)p;
    if (fetch_add_relaxed(&area_holes_bytes, bytes) + bytes > AREA_HOLES_MAX) {
        store_relaxed(&area_holes_bytes, 0);
        store_relaxed(&area_low, 0);
    } else if (load_relaxed(&area_low) == at) {
        store_relaxed(&area_low, at + bytes);
    }
}

/* A range with the rights `prot` and `room_bytes` of unused addresses after it, if there happen to be. */
static void *place(size_t bytes, size_t room_bytes, size_t align, int prot)
{
    uintptr_t low = load_relaxed(&area_low), hint = 0;
    if (low > bytes && low - bytes > room_bytes)
        hint = (low - bytes - room_bytes) & ~(align - 1);
    void *p = call_map(hint, bytes, prot);
    if (!p)
        return NULL;
    uintptr_t at = (uintptr_t)p;
    if (at & (align - 1)) {
        drop(at, at + bytes);
        size_t wide = bytes + align - OS_PAGE_BYTES;
        if (wide < bytes)
            return NULL;
        /* Without rights it is not charged to the process: only what stays must be affordable. */
        p = call_map(0, wide, PROT_NONE);
        if (!p)
            return NULL;
        uintptr_t from = (uintptr_t)p;
        at = (from + wide - bytes) & ~(align - 1);
        drop(from, at);
        drop(at + bytes, from + wide);
        if (prot != PROT_NONE && !call_protect((void *)at, bytes, prot)) {
            drop(at, at + bytes);
            return NULL;
        }
    }
    store_relaxed(&area_low, at);
    return (void *)at;
}

/* Sizes near the end of the address space would wrap around in what follows. */
static bool sensible(size_t bytes, size_t align)
{
    return bytes - 1 < PTRDIFF_MAX - OS_PAGE_BYTES && align <= (size_t)PTRDIFF_MAX;
}

void *os_map(size_t bytes, size_t align)
{
    if (!sensible(bytes, align))
        return NULL;
    int saved = errno;
    bytes = os_page_up(bytes);
    void *p =
        place(bytes, 0, align < OS_PAGE_BYTES ? OS_PAGE_BYTES : align, PROT_READ | PROT_WRITE);
    if (p)
        count(&os_counts.mapped_bytes, bytes);
    errno = saved;
    return p;
}

static bool purge(void *p, size_t bytes)
{
    if (!call_advise(p, bytes, MADV_DONTNEED))
        return false;
    count(&os_counts.purged_bytes, bytes);
    return true;
}

bool os_unmap(void *p, size_t bytes)
{
    int saved = errno;
    bytes = os_page_up(bytes);
    bool gone = call_unmap(p, bytes);
    if (gone) {
        count(&os_counts.unmapped_bytes, bytes);
        hole(p, bytes);
    } else {
        count(&os_counts.kept_bytes, bytes);
        purge(p, bytes);
    }
    errno = saved;
    return gone;
}

bool os_purge(void *p, size_t bytes)
{
    int saved = errno;
    bool done = purge(p, os_page_up(bytes));
    errno = saved;
    return done;
}

static void *grow(void *old, size_t old_bytes, size_t new_bytes, size_t align)
{
    if (call_remap(old, old_bytes, new_bytes, 0, NULL))
        return old;
    if (load_relaxed(&moves_failed) >= MOVES_FAILED_MAX)
        return NULL;
    /* What grew will grow again. The room costs nothing: it is not mapped, only left free. */
    void *to = place(new_bytes, new_bytes / 2, align, PROT_NONE);
    if (!to)
        return NULL;
    if (call_remap(old, old_bytes, new_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to)) {
        hole(old, old_bytes);
        return to;
    }
    count(&os_counts.kept_bytes, new_bytes);
    fetch_add_relaxed(&moves_failed, 1);
    return NULL;
}

void *os_grow(void *old, size_t old_bytes, size_t new_bytes, size_t align)
{
    if (!sensible(new_bytes, align))
        return NULL;
    int saved = errno;
    old_bytes = os_page_up(old_bytes);
    new_bytes = os_page_up(new_bytes);
    void *p = old;
    if (new_bytes > old_bytes) {
        p = grow(old, old_bytes, new_bytes, align < OS_PAGE_BYTES ? OS_PAGE_BYTES : align);
        if (p)
            count(&os_counts.mapped_bytes, new_bytes - old_bytes);
    }
    errno = saved;
    return p;
}

bool os_huge_page(void *p, size_t bytes, bool on)
{
    int saved = errno;
    bool done = call_advise(p, os_page_up(bytes), on ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    errno = saved;
    return done;
}

bool os_protect(void *p, size_t bytes, enum os_access access)
{
    int saved = errno;
    int prot = access == OS_READ_WRITE ? PROT_READ | PROT_WRITE
               : access == OS_READ     ? PROT_READ
                                       : PROT_NONE;
    bool done = call_protect(p, os_page_up(bytes), prot);
    errno = saved;
    return done;
}
