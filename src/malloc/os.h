/*
 * os.h: the allocator's seam to the kernel.
 *
 * The only place of the allocator that maps, unmaps, moves, purges or protects memory. It makes the
 * system calls itself, so that a library which wraps mmap() (a tracker, a profiler) is not entered from
 * inside malloc. Every call may be made by any thread at any time, takes no lock, is safe in a signal
 * handler, and leaves errno as it was: who hands a failure on to the program sets ENOMEM itself.
 *
 * Sizes are rounded up to pages here, addresses are the caller's to keep on page boundaries. Alignments
 * are powers of two.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"

/* The smallest page that there is, which all sizes of ours are multiples of; the largest one; and the kernel's. Elsewhere than on x86-64 that may
 * have 4, 16 or 64 KiB, and is known only when the program runs. Where it is larger than ours, the kernel takes whole ones of its own:
 * it rounds sizes up, over what others have in the same page, so nobody but this file may ask it for less. */
#define OS_PAGE_BYTES ((size_t)4096)
#if !defined(__x86_64__) && !defined(OS_PAGES_VARY) /* tests set it on x86-64, too */
#define OS_PAGES_VARY
#endif

#ifdef OS_PAGES_VARY
#define OS_PAGE_MAX ((size_t)65536)
extern size_t os_page_known; /* 0: not yet */
size_t os_page_find(void);
static inline size_t os_page_bytes(void)
{
    size_t known = load_relaxed(&os_page_known);
    return known ? known : os_page_find();
}
#else
#define OS_PAGE_MAX OS_PAGE_BYTES
static inline size_t os_page_bytes(void)
{
    return OS_PAGE_BYTES;
}
#endif

static inline size_t os_page_up(size_t bytes)
{
    return (bytes + os_page_bytes() - 1) & ~(os_page_bytes() - 1);
}

/* What was asked of the kernel since the process began, failures included. Any thread adds (relaxed);
 * a reader sees each figure whole, not all of one moment. */
struct os_counts {
    uint64_t map_calls;     /* mmap */
    uint64_t unmap_calls;   /* munmap */
    uint64_t remap_calls;   /* mremap */
    uint64_t advise_calls;  /* madvise */
    uint64_t protect_calls; /* mprotect */
    uint64_t failed_calls;  /* of all of these */
    uint64_t mapped_bytes;  /* handed out, and added where it was made longer */
    uint64_t unmapped_bytes;
    uint64_t purged_bytes;
    uint64_t kept_bytes; /* the kernel would not unmap: purged where possible, never used again */
};
extern struct os_counts os_counts;

/* No more than this is mapped at once; 0: no limit. Reservations do not count. */
extern uint64_t os_limit_bytes;

/* Zeroed memory of this process alone, aligned to `align` (at least a page's). NULL when there is none.
 * Places its mappings side by side, so that the kernel sees one large area instead of thousands (a
 * process may have 65530), and mostly needs one system call. */
void *os_map(size_t bytes, size_t align);

/* The same with `lead` bytes (whole pages) before the address that is aligned. */
void *os_map_lead(size_t bytes, size_t align, size_t lead);

/* The same, preferably among the addresses of a NUMA node, where those are kept apart. */
void *os_map_node(size_t bytes, size_t align, unsigned node);

/* Give a range back, whole mappings or parts. False when the kernel refuses, which it does when a
 * process has too many mappings to split another: then the range stays mapped, its pages are given
 * back as far as possible, and it is counted as kept. The caller must not touch it either way. */
bool os_unmap(void *p, size_t bytes);

/* Give the pages of a range back and keep the range: it reads as zero afterwards. False when the kernel
 * refuses (locked pages): then the contents are as before. What is not a whole page of the kernel's is filled
 * with zeroes, and stays. */
bool os_purge(void *p, size_t bytes);

/* A range becomes longer, or moves without its contents being copied:
 *
 *   os_extend()   makes it longer where it is. 0, or a negative errno: after -ENOMEM a move may do.
 *   os_reserve()  finds a place for os_move(): addresses without access, with `room_bytes` free after
 *                 them if possible, so that further growth stays there. (place + lead) is a multiple of
 *                 `align`. os_unreserve() gives back what is not used.
 *   os_move()     moves the pages there; what is added reads as zero. False leaves the old range as it
 *                 was, and the reserved place is lost. The old range must be one mapping to the kernel;
 *                 where several were joined, or the program has changed a part, this fails. If it does so too
 *                 often, there are no more places to be had.
 *   os_move_some()  the same; but failures are counted for the caller, who sees to an end.
 *
 * Ranges that are moved are no longer where they were: another thread may be given the old place at once. */
int os_extend(void *old, size_t old_bytes, size_t new_bytes);
void *os_reserve(size_t bytes, size_t room_bytes, size_t align, size_t lead);
void os_unreserve(void *p, size_t bytes);
bool os_move(void *old, size_t old_bytes, size_t new_bytes, void *to);
bool os_move_some(void *old, size_t old_bytes, size_t new_bytes, void *to, uint32_t *failed);

/* Ask for huge pages in a range, or for none. False when the kernel has none. */
bool os_huge_page(void *p, size_t bytes, bool on);

/* What the process may do with a range, whole pages of the kernel's: nothing (a guard), read, or read and write. False for parts of them. */
enum os_access { OS_NO_ACCESS, OS_READ, OS_READ_WRITE };
bool os_protect(void *p, size_t bytes, enum os_access access);

/* ---- addresses that are held for the heap (range.h) ---- */

/* While they are `open`, all that is aligned to OS_PLACES_ALIGN and more comes from them, and they stay without access where
 * nothing is. Constant once it is set, but for `open`, which is set once. */
struct os_places {
    uintptr_t from, to;
    bool open;
    /* Addresses for a mapping of `bytes`, `lead` of which (a page or 0) come before what is aligned. NULL: none left. */
    void *(*take)(size_t bytes, size_t align, size_t lead, int node);
    /* Those that follow a mapping, for it to have `new_bytes`. False: they are in use. */
    bool (*extend)(void *old, size_t old_bytes, size_t new_bytes);
    /* Nothing is there any more. */
    void (*give)(void *p, size_t bytes);
};
extern struct os_places *os_places; /* NULL: the kernel chooses */
enum { OS_NODE_HERE = -1 };
#define OS_PLACES_ALIGN ((size_t)2 << 20)

static inline bool os_places_has(const void *p)
{
    return os_places && (uintptr_t)p >= os_places->from && (uintptr_t)p < os_places->to;
}

/* It was mapped before the places were opened: must not be used again for something new. */
static inline bool os_places_lack(const void *p)
{
    return os_places && os_places->open && !os_places_has(p);
}

/* Hold addresses, of which none is in use, without access. 0; -EEXIST: some are. */
int os_hold(void *at, size_t bytes);

/* Memory at addresses that are held and were taken. False: there is none. os_unmap() lets them be held again. */
bool os_map_held(void *at, size_t bytes);

#ifdef OS_FAULTS
/* For tests: asked before each system call; true makes that call fail without being made. */
enum os_call { OS_CALL_MAP, OS_CALL_UNMAP, OS_CALL_REMAP, OS_CALL_ADVISE, OS_CALL_PROTECT };
extern bool (*os_fault)(enum os_call call) __attribute__((visibility("default")));
#endif
