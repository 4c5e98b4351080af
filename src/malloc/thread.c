/*
 * thread.c: which heap a thread has, from its first block to its end, and what a child of fork() makes of the others.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/kernel.h"
#include "book/thread_key.h"
#include "malloc/atfork.h"
#include "malloc/grind.h"
#include "malloc/harden.h"
#include "malloc/heap.h"
#include "malloc/huge.h"
#include "malloc/lots.h"
#include "malloc/node.h"
#include "malloc/nursery.h"
#include "malloc/os.h"
#include "malloc/settings.h"
#include "malloc/slab.h"
#include "malloc/source.h"
#include "malloc/thread.h"
#include "malloc/unseen.h"
#include "malloc/words.h"

enum {
    ENDS_MAX = 3
}; /* times that a thread which is ending may come back: the C library asks us again 4 times */

/* Nobody writes to it, and nobody looks at more of it: so little is there, beside what the loader fills in anyway. */
static struct heap_front {
    struct slab *direct[HEAP_DIRECT];
    size_t direct_max;
    bool alone;
} heap_front __attribute__((section(".data.rel.ro.heap_none"), aligned(64), used)) = {
    .direct = {[0 ... HEAP_DIRECT - 1] = &slab_none}};
static_assert(offsetof(struct heap, direct) == offsetof(struct heap_front, direct) &&
                  offsetof(struct heap, direct_max) == offsetof(struct heap_front, direct_max) &&
                  offsetof(struct heap, alone) == offsetof(struct heap_front, alone) &&
                  offsetof(struct heap, way) == sizeof(struct heap_front),
              "a heap begins like this");
extern struct heap heap_none __attribute__((alias("heap_front")));
struct heap heap_accounted; /* filled when accounting begins */
__thread struct heap *heap_fast = &heap_none;
__thread struct heap *heap_own;
struct heap *heap_all;

/* Heaps lie side by side, since two of them need less than two pages: those of the first threads in memory that is there anyway. */
enum { HEAPS_FIRST = 3, HEAPS_MORE = (16 << 10) / sizeof(struct heap) };
static struct heap heaps_first[HEAPS_FIRST];
static struct heap *heaps_room; /* of further ones: the next that was never used, */
static unsigned heaps_left;     /* and how many there are */
static struct heap *heap_free_list;
static unsigned heaps_made; /* all, in use or not */
struct lock heaps_lock;
static struct thread_key thread_key;
static __thread uint8_t ends;
static __thread bool registering;
uint32_t thread_modes;

void heap_fast_set(void)
{
    uint32_t modes = load_relaxed(&thread_modes);
    bool usual = heap_own && malloc_settings.read && !thread_chain && nursery_is_closed();
    heap_fast = usual && modes == 0              ? heap_own
                : usual && modes == MODE_ACCOUNT ? &heap_accounted
                                                 : &heap_none;
}

__thread void *thread_chain;

/* ---- heaps ---- */

void heap_empty(struct heap *h)
{
    for (unsigned i = 0; i < HEAP_DIRECT; i++)
        h->direct[i] = &slab_none;
    for (unsigned i = 0; i < SIZE_CLASSES; i++)
        h->way[i] = &slab_none;
    h->sharing = h->grown = 0;
}

static void heap_begin(struct heap *h)
{
    heap_empty(h);
    h->direct_max = SIZE_DIRECT_MAX;
    h->source = &source_main;
}

/* Whose it is. */
static void heap_name(struct heap *h)
{
    h->pid = (int32_t)kernel_call(SYS_getpid, 0, 0, 0, 0, 0);
    store_relaxed(&h->tid, (int32_t)kernel_call(SYS_gettid, 0, 0, 0, 0, 0));
}

/* The process may have been forked since it got its heap, and no handler of ours was called then. */
void thread_second(struct heap *first)
{
    if (malloc_settings.read)
        atfork_begin();
    if (!first->on_node) /* which is no thread's */
        heap_name(first);
}

/* With the lock. NULL: no memory. */
static struct heap *heap_new(void)
{
    if (heaps_made < HEAPS_FIRST)
        return &heaps_first[heaps_made];
    if (heaps_left == 0) {
        heaps_room = os_map(HEAPS_MORE * sizeof(struct heap), 1);
        heaps_left = heaps_room ? HEAPS_MORE : 0;
    }
    return heaps_left > 0 ? &heaps_room[HEAPS_MORE - heaps_left--] : NULL;
}

/* With the lock. */
static struct heap *heap_take(void)
{
    struct heap *h = heap_free_list;
    if (h) {
        heap_free_list = h->next_free;
        return h;
    }
    if (heaps_made >= UNSEEN_HEAPS_MIN && (h = unseen_heap()) != NULL)
        return h;
    h = heap_new();
    if (!h)
        return NULL;
    heap_begin(h);
    heaps_made++;
    h->next = heap_all;
    heap_all = h;
    return h;
}

struct heap *heap_borrow(void)
{
    /* A program of one thread may have a heap without them; the rest comes when there is an environment, and so a C library that
     * has begun. */
    if (malloc_settings.read && !__libc_single_threaded)
        atfork_begin();
    lock_take(&heaps_lock);
    struct heap *h = heap_take();
    lock_drop(&heaps_lock);
    return h;
}

void heap_return(struct heap *h)
{
    grind_enter();
    heap_leave(h);
    grind_leave();
    lock_take(&heaps_lock);
    store_relaxed(&h->tid, 0);
    h->next_free = heap_free_list;
    heap_free_list = h;
    lock_drop(&heaps_lock);
}

/* A thread ends, or the C library asks again since we came back meanwhile. */
static void thread_end(void *value)
{
    struct heap *h = heap_own;
    if (!h || h != value)
        return;
    heap_own = NULL;
    heap_fast = &heap_none;
    ends++;
    heap_return(h);
}

struct heap *heap_get(void)
{
    struct heap *h = heap_own;
    if (likely(h))
        return h;
    if (ends > ENDS_MAX || registering)
        return NULL;
    int saved = errno;
    registering = true;
    h = heap_borrow();
    if (h) {
        heap_name(h);
        h->alone = __libc_single_threaded;
        h->held_most = 0; /* looked for anew */
        heap_own = h;
        node_heap_begin(h);
        if (thread_key_get(&thread_key, thread_end))
            pthread_setspecific(thread_key.key, h);
        heap_fast_set();
    }
    registering = false;
    errno = saved;
    return h;
}

/* ---- fork ---- */

void thread_fork_prepare(void)
{
    hard_fork_prepare();
    node_fork_prepare();
    lock_fork_take(&heaps_lock);
    for (unsigned i = 0; source_at(i); i++)
        lock_fork_take(&source_at(i)->lock);
    huge_fork_prepare();
    lots_fork_prepare();
    lock_forking = true;
}

void thread_fork_parent(void)
{
    lock_forking = false;
    lots_fork_done(false);
    huge_fork_done(false);
    for (unsigned i = 0; source_at(i); i++)
        lock_fork_drop(&source_at(i)->lock, false);
    lock_fork_drop(&heaps_lock, false);
    node_fork_done(false);
    hard_fork_done(false);
}

static void sources_drop(unsigned n)
{
    while (n-- > 0)
        lock_drop(&source_at(n)->lock);
}

bool thread_locks_try(void)
{
    if (!lock_try(&heaps_lock))
        return false;
    for (unsigned i = 0; source_at(i); i++)
        if (!lock_try(&source_at(i)->lock)) {
            sources_drop(i);
            lock_drop(&heaps_lock);
            return false;
        }
    return true;
}

void thread_locks_drop(void)
{
    unsigned n = 0;
    while (source_at(n))
        n++;
    sources_drop(n);
    lock_drop(&heaps_lock);
}

static bool is_spare(const struct heap *h, const struct slab *s)
{
    for (unsigned i = 0; h && i < HEAP_SPARE_SLICES; i++)
        for (unsigned k = 0; k < h->spare[i].n; k++)
            if (h->spare[i].runs[k] == s)
                return true;
    for (unsigned i = 0; h && i < h->n_kept; i++)
        if (h->kept[i] == s)
            return true;
    return false;
}

/* A slab of a thread that there is not in this process. It may have been interrupted anywhere, but what it stores in a slab is
 * stored in an order that leaves blocks unused at worst. */
static void slab_orphan(struct source *source, struct slab *s)
{
    if (s->class == SLAB_UNUSED) {
        source_give(source, s);
        return;
    }
    s->used = s->made;
    for (const void *block = s->free; block; block = *(void *const *)block)
        s->used--;
    s->current = s->held = 0;
    s->torn = 1;
    slab_collect(s);
    if (s->used == 0 || slab_leave(source, s) == SLAB_EMPTY) {
        s->owner = NULL;
        source_give(source, s);
    }
}

static void macro_orphans(struct macro *m)
{
    for (unsigned i = 1; i < MACRO_SLICES;) {
        struct slab *s = macro_slab(m, i);
        bool free = m->free[i / 64] >> i % 64 & 1;
        unsigned slices = free || s->slices == 0 ? 1 : s->slices;
        bool owned = s->class < SIZE_CLASSES && s->owner && s->owner != heap_own;
        bool left = s->class == SLAB_UNUSED && s->slices > 0 && !is_spare(heap_own, s);
        if (!free && (owned || left))
            slab_orphan(m->source, s);
        i += slices;
    }
}

void thread_fork_child(void)
{
    struct heap *own = heap_own;
    lock_forking = false;
    lots_fork_done(true);
    huge_fork_done(true);
    lock_fork_drop(&heaps_lock, true);
    node_fork_done(true);
    hard_fork_done(true);
    bool others = heap_all && (heap_all->next || heap_all != own);
    struct source *source;
    for (unsigned i = 0; (source = source_at(i)) != NULL; i++) {
        source_fork_child(source);
        grind_enter();
        source->purging = lock_process(); /* no macro-block goes away while they are walked */
        for (struct macro *m = others ? source->macros : NULL; m; m = m->next)
            macro_orphans(m);
        source->purging = 0;
        grind_leave();
    }
    heap_free_list = NULL;
    for (struct heap *h = heap_all; h; h = h->next) {
        if (h == own)
            continue;
        struct heap *following = h->next;
        grind_enter();
        heap_send_strays(own, h);
        grind_leave();
        memset(h, 0, sizeof(*h));
        heap_begin(h);
        h->next = following;
        h->next_free = heap_free_list;
        heap_free_list = h;
    }
    if (own)
        heap_name(own);
}
