/* The seam to the kernel; os.h has the contract. */
#include "malloc/os.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/auxv.h>
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
uint64_t os_limit_bytes;
struct os_places *os_places;

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
#define FAULT(call) (os_fault && os_fault(call) && (errno = ENOMEM))
#else
#define FAULT(call) false
#endif

#ifdef OS_PAGES_VARY
size_t os_page_known;

/* The same whoever asks, and however often. */
size_t os_page_find(void)
{
    size_t page = getauxval(AT_PAGESZ);
    store_relaxed(&os_page_known, page);
    return page;
}
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

static void *call_map_flags(uintptr_t hint, size_t bytes, int prot, int flags)
{
    count(&os_counts.map_calls, 1);
    flags |= MAP_PRIVATE | MAP_ANONYMOUS;
    void *p =
        FAULT(OS_CALL_MAP) ? MAP_FAILED : CALL_MMAP((void *)hint, bytes, prot, flags, -1, (off_t)0);
    if (p != MAP_FAILED)
        return p;
    count(&os_counts.failed_calls, 1);
    return NULL;
}

static void *call_map(uintptr_t hint, size_t bytes, int prot)
{
    return call_map_flags(hint, bytes, prot, 0);
}

/* Of held addresses: they are without access again, and nobody else's meanwhile. */
static bool call_unmap_held(void *p, size_t bytes)
{
    if (!call_map_flags((uintptr_t)p, bytes, PROT_NONE, MAP_FIXED))
        return false;
    os_places->give(p, bytes);
    return true;
}

static bool is_whole(const void *p, size_t bytes)
{
    return (((uintptr_t)p | bytes) & (os_page_bytes() - 1)) == 0;
}

static bool call_unmap(void *p, size_t bytes)
{
    if (os_places_has(p))
        return call_unmap_held(p, bytes);
    count(&os_counts.unmap_calls, 1);
    if (!FAULT(OS_CALL_UNMAP) && CALL_MUNMAP(p, bytes) == 0)
        return true;
    count(&os_counts.failed_calls, 1);
    return false;
}

static bool call_advise(void *p, size_t bytes, int advice)
{
    assert(is_whole(p, bytes));
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

/* What is held has no access and is charged to nobody. With access, it counts against all limits but that of addresses, as a mapping
 * of its own would; one that takes its place by MAP_FIXED does not. */
static bool call_map_held(void *p, size_t bytes)
{
    return call_protect(p, bytes, PROT_READ | PROT_WRITE);
}

static void *place_held(size_t bytes, size_t align, size_t lead, int node)
{
    void *p = os_places->take(bytes, align, lead, node);
    if (!p || call_map_held(p, bytes))
        return p;
    os_places->give(p, bytes);
    return NULL;
}

/* A range with the rights `prot` and `room_bytes` of unused addresses after it, if there happen to be.
 * Small things do not need to lie in the area and would only leave gaps there. */
static void *place(size_t bytes, size_t room_bytes, size_t align, size_t lead, int prot)
{
    bool in_area = align > os_page_bytes();
    uintptr_t low = in_area ? load_relaxed(&area_low) : 0, hint = 0;
    if (low > bytes + align && low - bytes - align > room_bytes)
        hint = ((low - bytes - room_bytes + lead) & ~(align - 1)) - lead;
    void *p = call_map(hint, bytes, prot);
    if (!p)
        return NULL;
    uintptr_t at = (uintptr_t)p;
    if ((at + lead) & (align - 1)) {
        drop(at, at + bytes);
        size_t wide = bytes + align - OS_PAGE_BYTES;
        if (wide < bytes)
            return NULL;
        /* Without rights it is not charged to the process: only what stays must be affordable. */
        p = call_map(0, wide, PROT_NONE);
        if (!p)
            return NULL;
        uintptr_t from = (uintptr_t)p;
        at = ((from + wide - bytes + lead) & ~(align - 1)) - lead;
        drop(from, at);
        drop(at + bytes, from + wide);
        if (prot != PROT_NONE && !call_protect((void *)at, bytes, prot)) {
            drop(at, at + bytes);
            return NULL;
        }
    }
    if (in_area)
        store_relaxed(&area_low, at);
    return (void *)at;
}

/* Sizes near the end of the address space would wrap around in what follows. */
static bool sensible(size_t bytes, size_t align)
{
    return bytes - 1 < PTRDIFF_MAX - OS_PAGE_MAX && align <= (size_t)PTRDIFF_MAX;
}

/* Count bytes as mapped, unless there would be too many. */
static bool charge(uint64_t bytes)
{
    uint64_t limit = load_relaxed(&os_limit_bytes);
    uint64_t mapped = fetch_add_relaxed(&os_counts.mapped_bytes, bytes) + bytes;
    if (!limit || mapped - load_relaxed(&os_counts.unmapped_bytes) <= limit)
        return true;
    fetch_sub_relaxed(&os_counts.mapped_bytes, bytes);
    return false;
}

static void *map_charged(size_t bytes, size_t align, size_t lead, int node)
{
    if (!sensible(bytes, align))
        return NULL;
    bytes = os_page_up(bytes);
    if (!charge(bytes))
        return NULL;
    int saved = errno;
    void *p = os_places && os_places->open && align >= OS_PLACES_ALIGN
                  ? place_held(bytes, align, lead, node)
                  : place(bytes, 0, align < os_page_bytes() ? os_page_bytes() : align, lead,
                          PROT_READ | PROT_WRITE);
    if (!p)
        fetch_sub_relaxed(&os_counts.mapped_bytes, bytes);
    errno = saved;
    return p;
}

void *os_map_lead(size_t bytes, size_t align, size_t lead)
{
    return map_charged(bytes, align, lead, OS_NODE_HERE);
}

void *os_map(size_t bytes, size_t align)
{
    return map_charged(bytes, align, 0, OS_NODE_HERE);
}

void *os_map_node(size_t bytes, size_t align, unsigned node)
{
    return map_charged(bytes, align, 0, (int)node);
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
    assert(is_whole(p, bytes));
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

/* Parts of the kernel's pages are not its business: nothing is rounded up to whole ones. */
static size_t small_page_up(size_t bytes)
{
    return (bytes + OS_PAGE_BYTES - 1) & ~(OS_PAGE_BYTES - 1);
}

/* Whole pages of the kernel's go. It would round up what is less, and take what others have there. */
static bool purge_whole(char *p, size_t bytes)
{
    uintptr_t page = os_page_bytes(), at = (uintptr_t)p;
    size_t head = -at & (page - 1), tail = (at + bytes) & (page - 1);
    if (head + tail >= bytes) {
        memset(p, 0, bytes);
        return true;
    }
    if (!purge(p + head, bytes - head - tail))
        return false;
    memset(p, 0, head);
    memset(p + bytes - tail, 0, tail);
    return true;
}

bool os_purge(void *p, size_t bytes)
{
    int saved = errno;
    bytes = small_page_up(bytes);
    bool done = os_page_bytes() == OS_PAGE_BYTES ? purge(p, bytes) : purge_whole(p, bytes);
    errno = saved;
    return done;
}

static int extend_held(char *old, size_t old_bytes, size_t new_bytes)
{
    if (!os_places->extend(old, old_bytes, new_bytes))
        return -ENOMEM;
    char *end = old + old_bytes;
    size_t more = new_bytes - old_bytes;
    if (call_map_held(end, more))
        return 0;
    os_places->give(end, more);
    return -ENOMEM;
}

static int extend(void *old, size_t old_bytes, size_t new_bytes)
{
    if (os_places_has(old))
        return extend_held(old, old_bytes, new_bytes);
    return call_remap(old, old_bytes, new_bytes, 0, NULL) ? 0 : -errno;
}

int os_extend(void *old, size_t old_bytes, size_t new_bytes)
{
    if (!sensible(new_bytes, 1))
        return -EOVERFLOW;
    old_bytes = os_page_up(old_bytes);
    new_bytes = os_page_up(new_bytes);
    if (new_bytes <= old_bytes)
        return 0;
    if (!charge(new_bytes - old_bytes))
        return -EDQUOT;
    int saved = errno, r = extend(old, old_bytes, new_bytes);
    if (r < 0)
        fetch_sub_relaxed(&os_counts.mapped_bytes, new_bytes - old_bytes);
    errno = saved;
    return r;
}

void *os_reserve(size_t bytes, size_t room_bytes, size_t align, size_t lead)
{
    if (!sensible(bytes, align) || load_relaxed(&moves_failed) >= MOVES_FAILED_MAX)
        return NULL;
    if (os_places && os_places->open)
        return NULL; /* pages that move leave a place that is not held any more: better copied */
    int saved = errno;
    void *p = place(os_page_up(bytes), os_page_up(room_bytes), align, lead, PROT_NONE);
    errno = saved;
    return p;
}

void os_unreserve(void *p, size_t bytes)
{
    int saved = errno;
    drop((uintptr_t)p, (uintptr_t)p + os_page_up(bytes));
    errno = saved;
}

bool os_move_some(void *old, size_t old_bytes, size_t new_bytes, void *to, uint32_t *failed)
{
    old_bytes = os_page_up(old_bytes);
    new_bytes = os_page_up(new_bytes);
    uint64_t more = new_bytes > old_bytes ? new_bytes - old_bytes : 0;
    if (!charge(more)) {
        os_unreserve(to, new_bytes);
        return false;
    }
    int saved = errno;
    bool done = call_remap(old, old_bytes, new_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != NULL;
    if (done) {
        hole(old, old_bytes);
    } else {
        fetch_sub_relaxed(&os_counts.mapped_bytes, more);
        fetch_add_relaxed(failed, 1);
        count(&os_counts.kept_bytes, new_bytes);
    }
    errno = saved;
    return done;
}

bool os_move(void *old, size_t old_bytes, size_t new_bytes, void *to)
{
    return os_move_some(old, old_bytes, new_bytes, to, &moves_failed);
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
    bytes = small_page_up(bytes);
    bool done = is_whole(p, bytes) && call_protect(p, bytes, prot);
    errno = saved;
    return done;
}

/* ---- addresses that are held ---- */

int os_hold(void *at, size_t bytes)
{
    int saved = errno, r = 0;
    void *p = call_map_flags((uintptr_t)at, bytes, PROT_NONE, MAP_FIXED_NOREPLACE);
    if (!p) {
        r = -errno;
    } else if (p != at) { /* a kernel that takes it for a hint */
        call_unmap(p, bytes);
        r = -EEXIST;
    }
    errno = saved;
    return r;
}

bool os_map_held(void *at, size_t bytes)
{
    bytes = os_page_up(bytes);
    if (!charge(bytes))
        return false;
    int saved = errno;
    bool done = call_map_held(at, bytes);
    if (!done)
        fetch_sub_relaxed(&os_counts.mapped_bytes, bytes);
    errno = saved;
    return done;
}
