/* node.c: see node.h. */
#include "malloc/node.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <memoir/heap.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/kernel.h"
#include "malloc/divert.h"
#include "malloc/entry.h"
#include "malloc/grind.h"
#include "malloc/lock.h"
#include "malloc/nursery.h"
#include "malloc/os.h"
#include "malloc/settings.h"
#include "malloc/source.h"
#include "malloc/thread.h"

/* Arrays from here on have pages enough to be spread over nodes. */
enum { INTERLEAVE_MIN = 256 << 10 };

bool node_many, node_bound;
static uint64_t mask = 1;
static struct heap *node_heaps[NODE_MAX]; /* for memoir_malloc_on_node(); under the lock */

/* In a child that was forked while somebody held the lock: that heap may be half changed. */
static void heaps_anew(struct lock *l)
{
    for (unsigned node = 0; node < NODE_MAX; node++)
        node_heaps[node] = NULL;
}

static struct lock node_heaps_lock = {.stale =
                                          heaps_anew}; /* before all locks of heaps and sources */

static inline bool policy_get(int *ret_mode, uint64_t *ret_nodes, unsigned flags)
{
    /* The kernel wants room for all nodes that it was built for. */
    unsigned long nodes[1024 / (8 * sizeof(unsigned long))] = {0};
    bool done = kernel_call(SYS_get_mempolicy, (long)ret_mode, (long)nodes, 8 * sizeof(nodes), 0,
                            (long)flags) == 0;
    *ret_nodes = nodes[0];
    return done;
}

/* The first blocks of a program are its first thread's, whoever touches them first. What shares the region's first and last page may be
 * the program's. */
static void nursery_place(void)
{
    node_prefer(&nursery_region, sizeof(nursery_region), node_here());
}

static __attribute__((noinline)) void begin_many(uint64_t allowed)
{
    uint64_t set;
    int mode;
    mask = allowed;
    if ((allowed & (allowed - 1)) == 0 || malloc_settings.numa == NUMA_OFF)
        return;
    if (!policy_get(&mode, &set, 0) || mode != MPOL_DEFAULT)
        return;
    for (unsigned node = 0; node < NODE_MAX; node++)
        if (allowed >> node & 1)
            source_begin(node);
    node_many = true;
    nursery_place();
}

/* When a program starts, not with its first heap: it may have gone into a sandbox by then that kills for such a call. */
__attribute__((section(".text.startup"))) void node_begin(void)
{
    uint64_t allowed;
    if (policy_get(NULL, &allowed, MPOL_F_MEMS_ALLOWED) && allowed > 1)
        begin_many(allowed);
}

uint64_t node_mask(void)
{
    return mask;
}

unsigned node_here(void)
{
    unsigned node = 0;
    if (getcpu(NULL, &node) != 0 || node >= NODE_MAX || !(mask >> node & 1))
        node = (unsigned)__builtin_ctzll(mask); /* a node without memory that we may have */
    return node;
}

void node_heap_place(struct heap *h)
{
    store_relaxed(&h->source, source_of(node_here()));
}

void node_follow(struct heap *h)
{
    if (h->on_node || malloc_settings.numa != NUMA_FOLLOW)
        return;
    unsigned node = node_here();
    if (h->source->node != node)
        store_relaxed(&h->source, source_of(node));
}

/* ---- telling the kernel ---- */

static void policy_set(void *p, size_t bytes, int mode, uint64_t nodes, unsigned flags)
{
    uintptr_t from = os_page_up((uintptr_t)p), to = ((uintptr_t)p + bytes) & -os_page_bytes();
    int saved = errno;
    if (to > from)
        syscall(SYS_mbind, from, to - from, mode, nodes ? &nodes : NULL,
                nodes ? NODE_MAX + 1UL : 0UL, flags);
    errno = saved;
}

void node_prefer(void *p, size_t bytes, unsigned node)
{
    policy_set(p, bytes, MPOL_PREFERRED, UINT64_C(1) << node, MPOL_MF_MOVE);
}

void node_unbind(void *p, size_t bytes)
{
    policy_set(p, bytes, MPOL_DEFAULT, 0, 0);
}

/* ---- for programs ---- */

/* With the lock. */
static struct heap *heap_on(unsigned node)
{
    struct heap *h = node_heaps[node];
    if (!h && (h = heap_borrow()) != NULL) {
        h->source = source_of(node);
        h->on_node = true;
        node_heaps[node] = h;
    }
    return h;
}

/* By the way that all calls take, with another heap in the place of the thread's own: accounting and hardening see it as any other. */
static void *alloc_on(size_t bytes, unsigned node, uintptr_t caller)
{
    void *block = NULL;
    nursery_close(); /* which is of any node */
    lock_take(&node_heaps_lock);
    struct heap *own = heap_own, *h = heap_on(node);
    if (h) {
        heap_own = h;
        block = divert_malloc(bytes, caller);
        heap_own = own;
    }
    lock_drop(&node_heaps_lock);
    return block;
}

EXPORT void *memoir_malloc_on_node(size_t bytes, unsigned node)
{
    start_modes();
    if (node >= NODE_MAX || !(mask >> node & 1)) {
        errno = EINVAL;
        return NULL;
    }
    if (grind_on)
        return malloc(bytes); /* which may be Valgrind's, as free() will be */
    if ((mask & (mask - 1)) == 0)
        return divert_malloc(bytes, CALLER);
    void *block = node_many && bytes <= HEAP_LARGE_MAX ? alloc_on(bytes, node, CALLER)
                                                       : divert_malloc(bytes, CALLER);
    if (block && bytes > HEAP_LARGE_MAX) {
        store_relaxed(&node_bound, true);
        node_prefer(block, bytes, node);
    }
    if (!block)
        errno = ENOMEM;
    return block;
}

EXPORT void *memoir_malloc_interleaved(size_t bytes)
{
    start_modes();
    if (grind_on)
        return malloc(bytes);
    if (bytes < INTERLEAVE_MIN || (mask & (mask - 1)) == 0)
        return divert_malloc(bytes, CALLER);
    void *block = divert_malloc(bytes > HEAP_LARGE_MAX ? bytes : HEAP_LARGE_MAX + 1, CALLER);
    if (block) {
        store_relaxed(&node_bound, true);
        policy_set(block, bytes, MPOL_INTERLEAVE, mask, MPOL_MF_MOVE);
    }
    return block;
}

EXPORT uint64_t memoir_malloc_nodes(void)
{
    start_modes();
    return mask;
}

EXPORT int memoir_malloc_node_figures(unsigned node, struct memoir_malloc_node_figures *ret)
{
    start_modes();
    if (node >= NODE_MAX || !(mask >> node & 1))
        return -ENOENT;
    if (source_of(node)->node != node && node_many)
        return -ENOENT;
    *ret = (struct memoir_malloc_node_figures){0};
    struct source *s;
    for (unsigned i = 0; (s = source_at(i)); i++) {
        if (node_many && s->node != node)
            continue;
        lock_take(&s->lock);
        ret->mapped_bytes += s->n_macros * MACRO_BYTES;
        ret->used_bytes += s->n_used * SLICE_BYTES;
        ret->kept_bytes += s->n_dirty_free * SLICE_BYTES;
        lock_drop(&s->lock);
    }
    return 0;
}

/* ---- fork ---- */

void node_fork_prepare(void)
{
    lock_fork_take(&node_heaps_lock);
}

/* A child has no heap but its thread's own. */
void node_fork_done(bool child)
{
    if (child)
        heaps_anew(&node_heaps_lock);
    lock_fork_drop(&node_heaps_lock, child);
}
