/*
 * heap.h: the heap of a program that runs with libmemoir-malloc: NUMA nodes, checks, what is in it.
 *
 * Link with -lmemoir-malloc. Memory from here is freed by free().
 */
#ifndef MEMOIR_HEAP_H
#define MEMOIR_HEAP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef MEMOIR_API
#define MEMOIR_API __attribute__((visibility("default")))
#endif

/* ---- NUMA nodes ---- */

/* As malloc(), preferably of memory of that node. EINVAL: this process may have no memory there. Takes a lock for the node. */
MEMOIR_API void *memoir_malloc_on_node(size_t bytes, unsigned node);

/* As malloc(), with pages of all nodes in turn, for large arrays that threads of all nodes use. A block of less than 256 KiB is an
 * ordinary one; others have at least 1 MiB of addresses. */
MEMOIR_API void *memoir_malloc_interleaved(size_t bytes);

/* Nodes that this process may have memory of: a bit for each. 1 on a machine that has one. */
MEMOIR_API uint64_t memoir_malloc_nodes(void);

/* Blocks up to 1 MiB by node; larger ones have mappings of their own and are not counted here. */
struct memoir_malloc_node_figures {
    uint64_t mapped_bytes; /* asked from the kernel */
    uint64_t used_bytes;   /* in slabs with blocks */
    uint64_t kept_bytes;   /* free, and kept to be used again */
};
/* 0; -ENOENT: no such node, or blocks are not kept apart by node (one node, numa=off): then node 0 has all. */
MEMOIR_API int memoir_malloc_node_figures(unsigned node, struct memoir_malloc_node_figures *ret);

/* ---- looking inside ---- */

/* Walk everything that the allocator knows of its memory, and see whether it fits together: macro-blocks and their maps, slabs, free
 * lists, huge blocks; of a hardened program, canaries and what is in quarantine too. A line for each thing wrong goes to `fd` (-1: none).
 * Returns how many there are; -EBUSY: somebody is inside just now. Slabs of other threads that run meanwhile are only looked at as far
 * as they stand still. Takes the allocator's locks, and as long as reading all of its memory. For a program's own tests,
 * and from gdb: call (int)memoir_malloc_check(2) */
MEMOIR_API int memoir_malloc_check(int fd);

/* What the heap is made of, for people: nodes, threads, sizes, huge blocks. Can be called from a signal handler: waits for nobody,
 * and says so where it was not let in. From gdb: call (void)memoir_malloc_dump(2) */
MEMOIR_API void memoir_malloc_dump(int fd);

/* What is at an address, in a few lines: which block, how large, and of a hardened program who allocated and who freed it. For a handler
 * of SIGSEGV (si_addr) and for gdb. As memoir_malloc_dump(). */
MEMOIR_API void memoir_malloc_explain(const void *address, int fd);

#ifdef __cplusplus
}
#endif
#endif
