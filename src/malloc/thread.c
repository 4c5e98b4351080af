/*
 * thread.c: which heap a thread has, from its first block to its end, and what a child of fork() makes of the others.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "book/thread_key.h"
#include "malloc/atfork.h"
#include "malloc/grind.h"
#include "malloc/harden.h"
#include "malloc/heap.h"
#include "malloc/huge.h"
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

/* Nobody writes to it: beside what the loader fills in anyway. */
__attribute__((section(".data.rel.ro.heap_none"))) struct heap heap_none = {
    .direct = {[0 ... HEAP_DIRECT - 1] = &slab_none}};
struct heap heap_accounted; /* filled when accounting begins */
__thread struct heap *heap_fast = &heap_none;
__thread struct heap *heap_own;
struct heap *heap_all;

static struct heap heap_first; /* of whoever comes first, in memory that is there anyway */
static bool first_taken;
static struct heap *heap_free_list;
static unsigned heaps_made; /* all, in use or not */
static struct lock heaps_lock;
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
}

static void heap_begin(struct heap *h)
{
    heap_empty(h);
    h->source = &source_main;
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
    if (!first_taken) {
        first_taken = true;
        h = &heap_first;
    } else {
        h = os_map(sizeof(*h), 1);
        if (!h)
            return NULL;
    }
    heap_begin(h);
    heaps_made++;
    h->next = heap_all;
    heap_all = h;
    return h;
}

struct heap *heap_borrow(void)
{
    if (malloc_settings.read)
        atfork_begin(); /* else when there is an environment, and so a C library that has begun */
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
    h->tid = 0;
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
        h->pid = (int32_t)syscall(SYS_getpid);
        h->tid = (int32_t)syscall(SYS_gettid);
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
    words_fork_prepare();
    lock_forking = true;
}

void thread_fork_parent(void)
{
    lock_forking = false;
    words_fork_done(false);
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
    words_fork_done(true);
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
        heap_send_strays(own, h);
        memset(h, 0, sizeof(*h));
        heap_begin(h);
        h->next = following;
        h->next_free = heap_free_list;
        heap_free_list = h;
    }
    if (own) {
        own->pid = (int32_t)syscall(SYS_getpid);
        own->tid = (int32_t)syscall(SYS_gettid);
    }
}
