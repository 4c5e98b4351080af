/*
 * malloc.h: allocate inside memory of your own.
 *
 * Link with -lmemoir-malloc. A chain is an allocator over any buffer that you own: locked, pinned,
 * huge-page or file-backed pages, memory shared by processes, a static array. Its book-keeping lives
 * at the start of that buffer, so a chain needs no other memory and goes when the buffer goes.
 *
 *     static char room[1 << 20];
 *     struct memoir_chain *chain;
 *     if (memoir_chain_init(room, sizeof(room), NULL, &chain) == 0) {
 *         char *p = memoir_chain_alloc(chain, 42);
 *         memoir_chain_free(chain, p);
 *         memoir_chain_destroy(chain);
 *     }
 *
 * Blocks are aligned to 16 bytes and cost 8 bytes each; the smallest takes 32. Allocating and freeing
 * take constant time (two-level segregated fit, neighbours merged at once); only an allocation that
 * finds no block in the larger classes looks through the one class that may still hold a fit, so it
 * fails only when no free block is large enough. doc/chains.md says when to use which chain.
 *
 * Threads: a chain without MEMOIR_CHAIN_THREAD_SAFE is used by one thread at a time; only
 * memoir_chain_remote_free() may be called beside it. No function here may be called from a signal
 * handler that may have interrupted another one on the same chain.
 *
 * Errors: functions that return int give 0 or more, or -errno; functions that return a pointer give
 * NULL and set errno. Beside what each one says, every function that takes a chain may give
 *     EINVAL           no chain is there
 *     EIDRM            the chain was destroyed
 *     EUCLEAN          its memory was overwritten: found now; nothing was followed, the chain is broken
 *     ENOTRECOVERABLE  the chain is broken: blocks stay readable, memoir_chain_repair() may mend it,
 *                      memoir_chain_reset() and memoir_chain_destroy() work
 */
#ifndef MEMOIR_MALLOC_H
#define MEMOIR_MALLOC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef MEMOIR_API
#define MEMOIR_API __attribute__((visibility("default")))
#endif

struct memoir_chain;

enum memoir_chain_flags {
    /* Any thread may use it at any time: one lock around each operation. A child of fork() that
     * inherits the lock from a thread that it does not have takes it over and mends the chain. */
    MEMOIR_CHAIN_THREAD_SAFE = 1,
    /* Any process that maps the buffer may use it, each at its own address (memoir_chain_attach). A
     * process that dies within an operation, by kill -9 too, is noticed by the next one, which mends
     * the chain; the dead one's blocks stay allocated. Implies THREAD_SAFE; takes no source. All
     * processes have the same architecture. */
    MEMOIR_CHAIN_SHARED = 2,
    /* Overwritten memory, double and invalid frees end the program with a message (SIGABRT) instead
     * of an error code. Every free then also looks at the word after the block, so that a write past
     * its end is told with its address. */
    MEMOIR_CHAIN_ABORT = 4,
    /* free(), realloc() and malloc_usable_size() find the chain of its blocks. What lies in memory
     * that malloc gave cannot be registered (-EBUSY). */
    MEMOIR_CHAIN_REGISTER = 8,
    /* While the chain is a thread's default and full, malloc() fails with ENOMEM and so does a
     * realloc() of its blocks. Without it the thread's own heap serves what does not fit. */
    MEMOIR_CHAIN_NO_FALLBACK = 16,
};

#define MEMOIR_CHAIN_BYTES_MIN 256 /* the smallest buffer of a chain, at any alignment */

struct memoir_chain_options {
    size_t struct_size; /* sizeof(struct memoir_chain_options): lets the struct grow */
    unsigned flags;     /* enum memoir_chain_flags */

    /* How large a block may become after refills, when that is more than the first buffer holds:
     * sizes the table of free lists. Blocks beyond it share one list, which is searched. */
    size_t expect_bytes;

    /* A source that the chain grows by. request() gives a buffer of at least `bytes` and stores its
     * real size, or gives NULL; buffers begin at a multiple of 16 and have a multiple of 16 bytes.
     * give_back() (may be NULL) takes one that no block is in any more (one empty buffer is kept),
     * and all of them when the chain is destroyed or reset. Both are called by the thread whose call
     * needs it, without the chain's lock and with no default chain. request NULL: no source. */
    void *(*request)(void *user, size_t bytes, size_t *ret_bytes);
    void (*give_back)(void *user, void *buffer, size_t bytes);
    void *user;
};

/* ---- making and ending ---- */

/* Make a chain over `buffer` (borrowed until memoir_chain_destroy(); its old contents are lost). With
 * a source, `buffer` may be NULL: the source gives the first one, too. `options` may be NULL and is
 * copied. The calling thread becomes the owner. Time grows with the size of the table of lists
 * (6 KiB at most), not with the buffer. -EINVAL: no sense in the arguments; -ENOSPC: less than
 * MEMOIR_CHAIN_BYTES_MIN; -ENOMEM: the source gave nothing. When registering: -EBUSY (memory of
 * malloc's, or of another registered chain), -ENOSPC (65,536 buffers are registered). */
MEMOIR_API int memoir_chain_init(void *buffer, size_t bytes,
                                 const struct memoir_chain_options *options,
                                 struct memoir_chain **ret_chain);

/* Use a MEMOIR_CHAIN_SHARED chain that lies in `buffer`, made by another process or mapped anew from
 * a file, also after a restart of the machine: then the first one to attach mends it. `flags`: MEMOIR_CHAIN_REGISTER (all of `bytes`, in this process) or 0; for the rest the chain
 * has its own. Checks that the chain fits into `bytes` (else -ENOSPC); -ENOENT when there is none
 * (yet); -EPROTONOSUPPORT when another version of this library made it. Constant time; any thread. */
MEMOIR_API int memoir_chain_attach(void *buffer, size_t bytes, unsigned flags,
                                   struct memoir_chain **ret_chain);

/* This process stops using a shared chain, before it unmaps the buffer; others go on. */
MEMOIR_API int memoir_chain_detach(struct memoir_chain *chain);

/* Give up all blocks at once and end the chain. Buffers of the source go back to it, the others are
 * the caller's again. A shared chain ends for all processes. Nobody else may be inside a call on the
 * chain or have it as default; the calling thread may. A later free() of one of its blocks is a free
 * of what malloc never gave: it ends the program with a message. Time grows with the number of
 * buffers. */
MEMOIR_API int memoir_chain_destroy(struct memoir_chain *chain);

/* Give up all blocks at once and go on with an empty chain, which has only the buffers that are not
 * the source's. Also makes a broken chain whole. Time grows with the number of buffers. */
MEMOIR_API int memoir_chain_reset(struct memoir_chain *chain);

/* Add another buffer (borrowed as the first one), of 128 bytes or more. Of a shared chain it must
 * have the same distance from the first one in every process: a part of the same mapping, behind it;
 * a process that had mapped less attaches anew with all of it (until then, its calls give ENOSPC).
 * -ERANGE: of more than 2^46 bytes, or further away than 2^47, or before a shared chain; -ENOSPC: too small; -EBUSY: part of the chain already; errors
 * of registering. Time grows with the number of buffers. */
MEMOIR_API int memoir_chain_refill(struct memoir_chain *chain, void *buffer, size_t bytes);

/* ---- blocks ---- */

/* As malloc(), calloc(), aligned_alloc() (any power of two; size need not be a multiple) and
 * realloc(). ENOMEM when nothing fits and the source gives no more; EINVAL: an alignment that is not
 * a power of two. A size of 0 gives a block of its own; memoir_chain_realloc(chain, block, 0) frees
 * and gives NULL. In a shared chain alignments over a page hold in the allocating process only. */
MEMOIR_API void *memoir_chain_alloc(struct memoir_chain *chain, size_t bytes);
MEMOIR_API void *memoir_chain_calloc(struct memoir_chain *chain, size_t count, size_t bytes);
MEMOIR_API void *memoir_chain_aligned(struct memoir_chain *chain, size_t alignment, size_t bytes);
MEMOIR_API void *memoir_chain_realloc(struct memoir_chain *chain, void *block, size_t bytes);

/* Free a block; NULL is fine. -EFAULT: not a block of this chain; -EALREADY: it is free already. Both
 * change nothing but a counter. */
MEMOIR_API int memoir_chain_free(struct memoir_chain *chain, void *block);

/* Free from any thread, without waiting, into a chain that is not THREAD_SAFE: the block is queued
 * and freed by the chain's next operation. In other chains the same as memoir_chain_free(). */
MEMOIR_API int memoir_chain_remote_free(struct memoir_chain *chain, void *block);

/* Free now what was queued; gives the number of blocks. Also merges the small blocks that are kept for
 * the next ones of their sizes, and gives buffers that are empty by that back to the source. For a
 * chain that will be idle. */
MEMOIR_API int memoir_chain_drain(struct memoir_chain *chain);

/* Bytes that a block really has, at least what was asked for; 0 when it is no block of the chain.
 * Takes no lock. */
MEMOIR_API size_t memoir_chain_usable_size(struct memoir_chain *chain, const void *block);

/* ---- owner ---- */

/* The owner of a chain that is not THREAD_SAFE: the thread whose free() works in it directly, while
 * that of others is queued. At first the one that made it. The calling thread becomes the owner; the
 * old one must have ended or do nothing with the chain meanwhile. After fork() a child whose owner
 * thread was not the one that forked calls this, too: the chain is mended. Time grows with the
 * number of blocks. */
MEMOIR_API int memoir_chain_adopt(struct memoir_chain *chain);

/* ---- looking ---- */

struct memoir_chain_stats {
    size_t struct_size;          /* set it: only what fits is stored */
    uint64_t total_bytes;        /* of all buffers, less the book-keeping of the chain */
    uint64_t used_bytes;         /* in live blocks, their 8 bytes included */
    uint64_t used_bytes_peak;    /* the most that used_bytes ever was */
    uint64_t used_blocks;        /* live; those queued by remote frees are */
    uint64_t free_blocks;        /* pieces that the free bytes are in, when all are merged */
    uint64_t free_bytes_largest; /* the largest allocation that would succeed now */
    uint64_t allocations;        /* since the chain was made */
    uint64_t failures;           /* allocations for which there was no memory */
    uint64_t bad_frees;          /* frees of what was no live block */
    uint64_t recoveries;         /* times that an operation left unfinished was mended */
    uint64_t buffers;            /* first one, refills and the source's */
    uint64_t binned_bytes;       /* free, kept unmerged for the next small blocks of their sizes */
};

/* Time grows with the number of blocks. Of a broken chain, too; then the two figures of free blocks
 * are 0. */
MEMOIR_API int memoir_chain_stats(struct memoir_chain *chain, struct memoir_chain_stats *stats);

/* Walk all of the chain and compare everything that is stored twice. 0, or -EUCLEAN; then *ret_what
 * (may be NULL) says in a few words what is wrong. Changes nothing, works on a broken chain. Time
 * grows with the number of blocks. */
MEMOIR_API int memoir_chain_check(struct memoir_chain *chain, const char **ret_what);

/* Make the lists and counters of a chain anew from the sizes of its blocks and merge what is free. 0
 * when the chain is whole (again); -EUCLEAN when sizes are overwritten, too: it is broken then. Blocks
 * that a free refused because of the damage become usable again. Time grows with the blocks. */
MEMOIR_API int memoir_chain_repair(struct memoir_chain *chain);

/* Call visit() for every block in order of its buffer, until it gives other than 0, which is then
 * the result. The chain is locked meanwhile: visit() must not use it. */
MEMOIR_API int memoir_chain_walk(struct memoir_chain *chain,
                                 int (*visit)(void *user, void *block, size_t bytes, int used),
                                 void *user);

/* ---- the heap under names of its own ---- */

/* malloc(), calloc(), aligned_alloc() (any power of two), realloc(), free() and malloc_usable_size() of
 * libmemoir-malloc, for programs that keep their own: link libmemoir-malloc-embed.a, which has no other
 * names. Any thread; errors as those of the C library. Where libmemoir-malloc also serves malloc(), it
 * is the same heap. (memoir_free() and memoir_realloc() are reports to Memoir: memoir.h.) */
MEMOIR_API void *memoir_malloc(size_t bytes);
MEMOIR_API void *memoir_malloc_calloc(size_t count, size_t bytes);
MEMOIR_API void *memoir_malloc_aligned(size_t alignment, size_t bytes);
MEMOIR_API void *memoir_malloc_realloc(void *block, size_t bytes);
MEMOIR_API void memoir_malloc_free(void *block);
MEMOIR_API size_t memoir_malloc_usable(void *block);

/* ---- behind malloc() and free(), with libmemoir-malloc in the program ---- */

/* The registered chain in whose memory an address lies, or NULL. Takes no lock. */
MEMOIR_API struct memoir_chain *memoir_chain_find(const void *address);

#define MEMOIR_CHAIN_FAILED ((struct memoir_chain *)-1)

/* From now on malloc() and its relatives serve the calling thread from this chain, which must be
 * registered, or from its own heap (NULL). Gives the chain that was set before (NULL: none), to be
 * put back; MEMOIR_CHAIN_FAILED and EINVAL when the chain is not registered: nothing changed then.
 * Other threads are not concerned, and a new thread has none. A child of fork() keeps that of the
 * forking thread. The setting ends with the thread; blocks stay. Constant time. */
MEMOIR_API struct memoir_chain *memoir_chain_set_default(struct memoir_chain *chain);

/* Put back what memoir_chain_set_default() gave; MEMOIR_CHAIN_FAILED does nothing. */
MEMOIR_API void memoir_chain_restore_default(struct memoir_chain *old);

/* The calling thread's default chain, or NULL. */
MEMOIR_API struct memoir_chain *memoir_chain_default(void);

/* ---- a heap at fixed addresses (doc/ranges.md), with libmemoir-malloc in the program ---- */

/* With the setting `range`, all blocks lie in one range of addresses, which is this process's slot of a plan that many processes share.
 * So another process with the same plan and slot can have the same blocks at the same addresses, and pointers between them hold. */
struct memoir_malloc_range {
    size_t struct_size;    /* set it: only what fits is stored */
    uint64_t base;         /* the first address of this process's slot, */
    uint64_t bytes;        /* and how many there are */
    uint64_t all_base;     /* of the first slot */
    uint32_t slot, slots;  /* this process's, of so many */
    uint32_t nodes;        /* NUMA nodes that the slot is divided between, */
    uint32_t waiting;      /* 1: receive=1, and no image has been loaded yet */
    uint64_t node_bytes;   /* in parts of this size, node 0 first */
    uint64_t mapped_bytes; /* of the slot, at this moment */
};
/* 0; -ENOENT: no range is set; -EEXIST: the addresses were taken by others when the program began, -ENOMEM, -EPERM: could not be held;
 * -EINVAL: the settings make no sense. Any thread. */
MEMOIR_API int memoir_malloc_range(struct memoir_malloc_range *ret);

/* Write all blocks of the heap to `fd`, a file, pipe or socket, as they are at one moment while other threads go on; and `root`, the
 * address of a block (or NULL), for who loads them. The caller waits until all is written. A child does the
 * work, which needs room for page tables and for pages that are written to meanwhile. The errors above; -ENOTSUP: blocks are accounted or
 * hardened; -EAGAIN: the range still waits for an image; -EINVAL: `root` is not in the range; -EUCLEAN: the heap is damaged;
 * -ENOTRECOVERABLE: a child of _Fork() that lost a part of it; -EIO: the child was killed; those of fork() and write(). Then what was written is no image. */
MEMOIR_API int memoir_malloc_range_save(int fd, const void *root);

/* Make the blocks of an image part of this heap, at the addresses that they had. For a process with the same range and slot and
 * receive=1, once, while no other thread has allocated; from then on all new blocks lie in the range, too. Those from before stay where they
 * are, can be freed, and are in no image. Reads `fd` exactly to the end of the image. The image may be anybody's: it is checked, and either
 * all of it is there afterwards or none, and nothing has changed. What is in its blocks is for the caller to trust or not. *ret_root (may be
 * NULL): the root. The errors above; -EEXIST: the range is in use already; -EBUSY: other threads have heaps;
 * -EXDEV: of another range or slot; -EPROTONOSUPPORT: of another version of the library; -EBADMSG: no image, cut short, or forged;
 * -ENOTSUP; -ENOMEM; those of read(). */
MEMOIR_API int memoir_malloc_range_load(int fd, void **ret_root);

#ifdef __cplusplus
}
#endif

#endif
