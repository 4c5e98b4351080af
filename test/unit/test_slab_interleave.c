/* The protocol of a slab's remote word, in every order in which two or three threads can run.
 *
 * slab.c is compiled into this file with each atomic access turned into a place where the thread may be
 * interrupted. Threads are coroutines; a scheduler runs a scenario again and again, depth first over
 * all its choices. A state that was seen before (memory, and what each thread has read so far) is not
 * followed twice, which keeps the number of runs in the thousands. Orders of memory weaker than that are
 * for TSan (test_slab_threads.c).
 *
 * A scenario has slabs with some blocks in use, and a script for each thread:
 *   F free a block that it holds, waiting for one   C the same, claiming a slab that was full
 *   A allocate                                      L leave all its slabs, as a thread that ends
 *   S give all that it holds to the next thread     T give back slabs that are empty
 *   M free all blocks that it holds of a slab, waiting for one, and hand them over together */
#include "base/atomic.h"
#include "malloc/lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "check.h"

/* Coroutines that are left in the middle of a call are not for AddressSanitizer. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((no_sanitize("address"))), apply_to = function)
#endif

static void step(const volatile void *address, const char *function, int line);
static void saw(uint64_t value);
static bool sim_lock_take(struct lock *l, const char *function, int line);
static void sim_lock_drop(struct lock *l);

#undef load_relaxed
#undef load_acquire
#undef store_relaxed
#undef store_release
#undef exchange_acquire
#undef exchange_acq_rel
#undef cas_relaxed
#undef cas_acquire
#undef cas_release
#undef cas_acq_rel
#define HERE(p) step((p), __func__, __LINE__)
#define SIM_LOAD(p)                                                       \
    ({                                                                    \
        HERE(p);                                                          \
        __typeof__(*(p)) sim_v_ = __atomic_load_n((p), __ATOMIC_SEQ_CST); \
        saw((uint64_t)(uintptr_t)sim_v_);                                 \
        sim_v_;                                                           \
    })
#define SIM_STORE(p, v)                               \
    ({                                                \
        HERE(p);                                      \
        __atomic_store_n((p), (v), __ATOMIC_SEQ_CST); \
    })
#define SIM_EXCHANGE(p, v)                                                         \
    ({                                                                             \
        HERE(p);                                                                   \
        __typeof__(*(p)) sim_v_ = __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST); \
        saw((uint64_t)(uintptr_t)sim_v_);                                          \
        sim_v_;                                                                    \
    })
#define SIM_CAS(p, expected, desired)                                                   \
    ({                                                                                  \
        HERE(p);                                                                        \
        bool sim_ok_ = __atomic_compare_exchange_n((p), (expected), (desired), false,   \
                                                   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
        saw(sim_ok_ ? 1 : 2 + (uint64_t)(uintptr_t) * (expected));                      \
        sim_ok_;                                                                        \
    })
#define load_relaxed(p)        SIM_LOAD(p)
#define load_acquire(p)        SIM_LOAD(p)
#define store_relaxed(p, v)    SIM_STORE(p, v)
#define store_release(p, v)    SIM_STORE(p, v)
#define exchange_acquire(p, v) SIM_EXCHANGE(p, v)
#define exchange_acq_rel(p, v) SIM_EXCHANGE(p, v)
#define cas_relaxed(p, e, d)   SIM_CAS(p, e, d)
#define cas_acquire(p, e, d)   SIM_CAS(p, e, d)
#define cas_release(p, e, d)   SIM_CAS(p, e, d)
#define cas_acq_rel(p, e, d)   SIM_CAS(p, e, d)
#define lock_take(l)           sim_lock_take((l), __func__, __LINE__)
#define lock_drop(l)           sim_lock_drop(l)

#include "malloc/slab.c"

/* Nobody waits for a lock that he could have, and no slab has words. */
void spread_waited(struct source *s)
{
    abort();
}

void words_detach_now(struct slab *s)
{
    abort();
}

/* ---- the world ---- */

enum {
    THREADS = 3,
    SLABS = 2,
    BLOCKS = 16, /* of a slab, at most */
    STEPS = 400,
    STACK = 64 << 10,
    STATES = 1 << 19,
    STATES_MAX = STATES / 4 * 3, /* a scenario that has more is cut short */
    NOBODY = 255,
};

struct scenario {
    const char *name;
    unsigned limit; /* blocks of a slab */
    const char *slab
        [SLABS]; /* its state (O: owned by the first thread, F, P), then who holds each block, - for free */
    const char *script[THREADS];
};

struct thread {
    ucontext_t context;
    struct heap *heap;
    const char *script; /* what is left of it */
    struct slab *own[SLABS];
    uint64_t seen;      /* hash of all that it read */
    struct lock *wants; /* it cannot go on before this is free, */
    bool hungry;        /* or before it holds a block */
    bool done;
    const char *function;
    int line;
};

static char *macro_memory; /* 2 MiB */
static char (*stacks)[STACK];
static struct source source;
static struct thread threads[THREADS];
static unsigned char holder[SLABS][BLOCKS];
static unsigned char given[SLABS];
static unsigned n_threads, n_slabs, limit;
static struct thread *running;
static ucontext_t scheduler;
static const char *broken; /* what is wrong, or NULL */

static void breaks(const char *what)
{
    if (!broken)
        broken = what;
}

static struct slab *slab_at(unsigned i)
{
    return macro_slab((struct macro *)macro_memory, 1 + i);
}

static unsigned slab_index(const struct slab *s)
{
    return slab_slice(s) - 1;
}

static void *block_at(unsigned slab, unsigned block)
{
    return slab_memory(slab_at(slab)) + (size_t)block * slab_at(slab)->block_bytes;
}

/* Linked at the end, as source.c does. */
void source_pool_link(struct source *src, struct slab *slab)
{
    unsigned class = slab->class;
    slab->next = NULL;
    slab->prev = src->pool_last[class];
    if (slab->prev)
        slab->prev->next = slab;
    else
        src->pool[class] = slab;
    src->pool_last[class] = slab;
    src->pooled[class]++;
}

void source_pool_unlink(struct source *src, struct slab *slab)
{
    unsigned class = slab->class;
    if (slab->prev)
        slab->prev->next = slab->next;
    else
        src->pool[class] = slab->next;
    if (slab->next)
        slab->next->prev = slab->prev;
    else
        src->pool_last[class] = slab->prev;
    src->pooled[class]--;
}

/* ---- where a thread may be interrupted ---- */

static void pause_here(const char *function, int line)
{
    struct thread *t = running;
    if (!t)
        return; /* the scenario is being set up */
    t->function = function;
    t->line = line;
    swapcontext(&t->context, &scheduler);
}

static void step(const volatile void *address, const char *function, int line)
{
    pause_here(function, line);
    const char *at = (const char *)address;
    for (unsigned i = 0; running && i < n_slabs; i++)
        if (given[i] && at >= (char *)slab_at(i) && at < (char *)(slab_at(i) + 1))
            breaks("a slab is touched after it was given back");
}

static void saw(uint64_t value)
{
    if (running)
        running->seen = (running->seen ^ value) * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

static bool sim_lock_take(struct lock *l, const char *function, int line)
{
    if (running) {
        running->wants = l;
        pause_here(function, line);
        running->wants = NULL;
    }
    if (l->word)
        breaks("the lock is taken twice");
    l->word = 1;
    return false;
}

static void sim_lock_drop(struct lock *l)
{
    l->word = 0;
}

/* ---- what threads do, as heap.c does it ---- */

static void own_add(struct thread *t, struct slab *s)
{
    unsigned i = slab_index(s);
    if (given[i])
        breaks("a slab that was given back has an owner");
    for (unsigned o = 0; o < n_threads; o++)
        if (threads[o].own[i])
            breaks("a slab has two owners");
    t->own[i] = s;
}

static void own_remove(struct thread *t, struct slab *s)
{
    t->own[slab_index(s)] = NULL;
}

static void give(struct slab *s)
{
    unsigned i = slab_index(s);
    if (given[i])
        breaks("a slab is given back twice");
    for (unsigned b = 0; b < limit; b++)
        if (holder[i][b] != NOBODY)
            breaks("a slab is given back with a block in use");
    for (unsigned o = 0; o < n_threads; o++)
        if (threads[o].own[i])
            breaks("a slab is given back that somebody owns");
    if (source.pool[s->class] == s || s->prev || s->next)
        for (struct slab *p = source.pool[s->class]; p; p = p->next)
            if (p == s)
                breaks("a slab is given back that is in the pool");
    given[i] = 1;
}

static void pop(struct thread *t, struct slab *s)
{
    char *block = s->free;
    s->free = next_of(block);
    s->used++;
    unsigned b = (unsigned)((block - slab_memory(s)) / s->block_bytes), i = slab_index(s);
    saw(100 + i * BLOCKS + b);
    if (holder[i][b] != NOBODY)
        breaks("a block is handed out twice");
    holder[i][b] = (unsigned char)(t - threads);
    next_set(block, NULL); /* the user writes into it */
}

static void do_alloc(struct thread *t)
{
    for (unsigned i = 0; i < n_slabs; i++) {
        struct slab *s = t->own[i];
        while (s) {
            if (s->free || slab_collect(s) || slab_carve(s)) {
                pop(t, s);
                return;
            }
            own_remove(t, s);
            if (slab_let_go(s))
                break;
            own_add(t, s);
        }
    }
    struct slab *s = slab_adopt(&source, slab_at(0)->class, t->heap);
    if (!s)
        return;
    own_add(t, s);
    if (!s->free && !slab_carve(s))
        breaks("a slab was adopted that has no block");
    else
        pop(t, s);
}

static void hand_over(struct thread *t, unsigned i, const struct slab_list *list, bool claim)
{
    struct slab *s = slab_at(i);
    switch (slab_free(&source, s, list, claim, false, t->heap)) {
    case SLAB_DONE:
        break;
    case SLAB_CLAIMED:
        own_add(t, s);
        break;
    case SLAB_EMPTY:
        give(s);
        break;
    }
}

/* The owner's own way. */
static void push(struct thread *t, unsigned i, void *block)
{
    struct slab *s = slab_at(i);
    if (t->own[i] != s)
        breaks("a heap is named as owner that is not");
    next_set(block, s->free);
    s->free = block;
    if (--s->used == 0) {
        own_remove(t, s);
        give(s);
    }
}

static void do_free(struct thread *t, unsigned i, unsigned b, bool claim)
{
    void *block = block_at(i, b);
    holder[i][b] = NOBODY;
    saw(200 + i * BLOCKS + b);
    if (load_relaxed(&slab_at(i)->owner) == t->heap)
        push(t, i, block);
    else
        hand_over(t, i, &(struct slab_list){.first = block, .last = block, .n = 1}, claim);
}

/* They are linked first, as strays are. */
static void do_free_all(struct thread *t, unsigned i)
{
    struct slab_list list = {0};
    for (unsigned b = 0; b < limit; b++) {
        if (holder[i][b] != t - threads)
            continue;
        holder[i][b] = NOBODY;
        saw(200 + i * BLOCKS + b);
        next_set(block_at(i, b), list.first);
        list.last = list.first ? list.last : block_at(i, b);
        list.first = block_at(i, b);
        list.n++;
    }
    if (load_relaxed(&slab_at(i)->owner) != t->heap) {
        hand_over(t, i, &list, true);
        return;
    }
    for (void *block = list.first, *next; block; block = next) {
        next = next_of(block);
        push(t, i, block);
    }
}

static void do_part(struct thread *t, bool leave)
{
    for (unsigned i = 0; i < n_slabs; i++) {
        struct slab *s = t->own[i];
        if (!s)
            continue;
        slab_collect(s);
        bool empty = s->used == 0;
        if (!empty && !leave)
            continue;
        own_remove(t, s);
        if (empty || slab_leave(&source, s) == SLAB_EMPTY)
            give(s);
    }
}

/* The first block that it holds. */
static bool holds(const struct thread *t, unsigned *ret_slab, unsigned *ret_block)
{
    for (unsigned i = 0; i < n_slabs; i++)
        for (unsigned b = 0; b < limit; b++)
            if (holder[i][b] == t - threads) {
                *ret_slab = i;
                *ret_block = b;
                return true;
            }
    return false;
}

static void live(void)
{
    struct thread *t = running;
    unsigned next = (unsigned)(t - threads + 1) % n_threads, i, b;
    for (; *t->script; t->script++)
        switch (*t->script) {
        case 'F':
        case 'C':
        case 'M':
            t->hungry = true;
            pause_here("free", 0);
            t->hungry = false;
            if (!holds(t, &i, &b))
                break;
            if (*t->script == 'M')
                do_free_all(t, i);
            else
                do_free(t, i, b, *t->script == 'C');
            break;
        case 'S':
            pause_here("send", 0);
            while (holds(t, &i, &b))
                holder[i][b] = (unsigned char)next;
            break;
        case 'A':
            do_alloc(t);
            break;
        case 'L':
        case 'T':
            do_part(t, *t->script == 'L');
            break;
        }
    t->done = true;
    for (;;)
        pause_here("end", 0);
}

/* ---- setting up, and looking at the end ---- */

static char heap_names[THREADS];

static void set_up(const struct scenario *sc)
{
    running = NULL;
    broken = NULL;
    limit = sc->limit;
    memset(&source, 0, sizeof source);
    memset(threads, 0, sizeof threads);
    memset(holder, NOBODY, sizeof holder);
    memset(given, 0, sizeof given);
    for (n_slabs = 0; n_slabs < SLABS && sc->slab[n_slabs]; n_slabs++)
        ;
    for (n_threads = 0; n_threads < THREADS && sc->script[n_threads]; n_threads++) {
        struct thread *t = &threads[n_threads];
        t->heap = (struct heap *)&heap_names[n_threads];
        t->script = sc->script[n_threads];
        getcontext(&t->context);
        t->context.uc_stack.ss_sp = stacks[n_threads];
        t->context.uc_stack.ss_size = STACK;
        makecontext(&t->context, live, 0);
    }
    for (unsigned i = 0; i < n_slabs; i++) {
        struct slab *s = slab_at(i);
        memset(s, 0, sizeof *s);
        s->slices = 1;
        uint32_t bytes = SLICE_BYTES / limit; /* of the largest class, one fits */
        slab_begin(s, size_class(bytes < SIZE_SMALL_MAX ? bytes : SIZE_SMALL_MAX), threads[0].heap);
        s->limit = limit;
        for (unsigned b = 0; b < limit; b++) {
            if (!s->free)
                slab_carve(s);
            pop(&threads[0], s);
        }
        for (unsigned b = limit; b-- > 0;) {
            char who = sc->slab[i][1 + b];
            holder[i][b] = who == '-' ? NOBODY : (unsigned char)(who - '0');
            if (who != '-')
                continue;
            next_set(block_at(i, b), s->free);
            s->free = block_at(i, b);
            s->used--;
        }
        switch (sc->slab[i][0]) {
        case 'O':
            own_add(&threads[0], s);
            break;
        case 'F':
            assert_true(slab_let_go(s));
            break;
        default:
            assert_int_equal(slab_leave(&source, s), SLAB_DONE);
        }
    }
}

static unsigned listed(const struct slab *s, const void *list, bool *free_seen)
{
    unsigned n = 0;
    for (const char *block = list; block; block = next_of(block), n++) {
        unsigned b = (unsigned)((block - slab_memory(s)) / s->block_bytes);
        if (n >= limit || b >= limit || free_seen[b]) {
            breaks("a block is listed twice");
            return n;
        }
        free_seen[b] = true;
        if (holder[slab_index(s)][b] != NOBODY)
            breaks("a block in use is listed as free");
    }
    return n;
}

static void look(unsigned i)
{
    struct slab *s = slab_at(i);
    if (given[i])
        return;
    bool free_seen[BLOCKS] = {false};
    uint64_t word = s->remote;
    unsigned in_use = 0, owners = 0, pooled = 0;
    unsigned n = listed(s, s->free, free_seen);
    unsigned remote = listed(s, remote_head(s, word), free_seen);
    for (unsigned b = 0; b < limit; b++)
        in_use += holder[i][b] != NOBODY;
    for (unsigned o = 0; o < n_threads; o++)
        owners += threads[o].own[i] != NULL;
    for (struct slab *p = source.pool[s->class]; p; p = p->next)
        pooled += p == s;
    enum slab_state state = remote_state(word);
    if (remote != remote_count(word))
        breaks("the count of what others freed is wrong");
    if (n + remote + (limit - s->made) + in_use != limit)
        breaks("a block is lost");
    if (s->used - remote != in_use)
        breaks("the number of blocks in use is wrong");
    if (owners != (state == SLAB_OWNED))
        breaks("a slab has an owner that its state denies, or none");
    if (pooled != (state == SLAB_POOLED))
        breaks("the pool and the state of a slab disagree");
    if (state == SLAB_FULL && (n > 0 || remote >= slab_full_end(s)))
        breaks("a slab counts as full that is not");
    if (state == SLAB_POOLED && in_use == 0)
        breaks("an empty slab stays in the pool");
    if (state != SLAB_OWNED && s->owner)
        breaks("a slab without an owner names one");
}

/* ---- all orders ---- */

static struct {
    uint64_t seen[STATES]; /* hashes, 0 for none */
    size_t n_seen;
    uint64_t runs;
    struct {
        unsigned char thread;  /* that runs now */
        unsigned char untried; /* that can run here, and were not yet chosen: a bit for each */
        const char *function;  /* where it goes on */
        int line;
    } path[STEPS];
    unsigned depth;
} search;

static uint64_t mix(uint64_t h, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h ^ h >> 29;
}

static uint64_t state_hash(void)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (unsigned i = 0; i < n_slabs; i++) {
        h = mix(h, slab_at(i), sizeof(struct slab));
        for (unsigned b = 0; b < limit; b++)
            h = mix(h, block_at(i, b), sizeof(void *));
    }
    unsigned class = slab_at(0)->class;
    h = mix(h, &source.pool[class], sizeof(void *));
    h = mix(h, &source.pool_last[class], sizeof(void *));
    h = mix(h, &source.lock, sizeof source.lock);
    h = mix(h, holder, sizeof holder);
    h = mix(h, given, sizeof given);
    for (unsigned i = 0; i < n_threads; i++) {
        const struct thread *t = &threads[i];
        size_t left = strlen(t->script);
        h = mix(h, &t->seen, sizeof t->seen);
        h = mix(h, &left, sizeof left);
        h = mix(h, &t->function, sizeof t->function);
        h = mix(h, &t->line, sizeof t->line);
        h = mix(h, &t->hungry, sizeof t->hungry);
        h = mix(h, t->own, sizeof t->own);
        h = mix(h, &t->done, 1);
    }
    return h ? h : 1;
}

/* False if it was there. */
static bool state_add(uint64_t h)
{
    size_t at = h % STATES;
    while (search.seen[at]) {
        if (search.seen[at] == h)
            return false;
        at = (at + 1) % STATES;
    }
    search.seen[at] = h;
    search.n_seen++;
    return true;
}

static unsigned runnable(void)
{
    unsigned set = 0, slab, block;
    for (unsigned i = 0; i < n_threads; i++) {
        const struct thread *t = &threads[i];
        bool waits = (t->wants && t->wants->word) || (t->hungry && !holds(t, &slab, &block));
        set |= (unsigned)(!t->done && !waits) << i;
    }
    return set;
}

static void run_thread(unsigned i)
{
    search.path[search.depth].function = threads[i].function;
    search.path[search.depth].line = threads[i].line;
    running = &threads[i];
    swapcontext(&scheduler, &running->context);
    running = NULL;
    search.depth++;
}

static void tell(const struct scenario *sc)
{
    print_message("%s: %s, after\n", sc->name, broken);
    for (unsigned i = 0; i < search.depth; i++)
        print_message("  thread %u: %s:%d\n", search.path[i].thread,
                      search.path[i].function ? search.path[i].function : "begin",
                      search.path[i].line);
}

/* Run on from where the path ends, along the first choice everywhere. */
static void run_on(void)
{
    while (!broken) {
        if (search.n_seen == STATES_MAX || !state_add(state_hash()))
            return;
        unsigned set = runnable();
        if (!set) {
            for (unsigned i = 0; i < n_threads; i++)
                if (!threads[i].done && !threads[i].hungry)
                    breaks("all wait for a lock");
            for (unsigned i = 0; i < n_slabs; i++)
                look(i);
            return;
        }
        if (search.depth == STEPS) {
            breaks("no end");
            return;
        }
        unsigned first = (unsigned)__builtin_ctz(set);
        search.path[search.depth].thread = (unsigned char)first;
        search.path[search.depth].untried = (unsigned char)(set & ~(1u << first));
        run_thread(first);
    }
}

/* True if the invariants hold in every order. */
static bool explore(const struct scenario *sc)
{
    unsigned fixed = 0; /* how much of the path is given */
    memset(search.seen, 0, sizeof search.seen);
    search.n_seen = search.runs = 0;
    for (;;) {
        set_up(sc);
        search.runs++;
        search.depth = 0;
        while (search.depth < fixed)
            run_thread(search.path[search.depth].thread);
        run_on();
        if (broken)
            return false;
        fixed = search.depth;
        while (fixed > 0 && search.path[fixed - 1].untried == 0)
            fixed--;
        if (fixed == 0)
            return true;
        unsigned next = (unsigned)__builtin_ctz(search.path[fixed - 1].untried);
        search.path[fixed - 1].thread = (unsigned char)next;
        search.path[fixed - 1].untried &= (unsigned char)~(1u << next);
    }
}

#if defined(__clang__)
#pragma clang attribute pop
#endif

static const struct scenario scenarios[] = {
    {"two free into an owned slab", 2, {"O12"}, {"TTAL", "F", "F"}},
    {"frees meet a slab that is let go", 2, {"O12"}, {"AA", "F", "F"}},
    {"frees meet a slab that is let go and claimed", 3, {"O112"}, {"AA", "CC", "C"}},
    {"two claim a full slab", 2, {"F01"}, {"CA", "CA"}},
    {"one claims a full slab, another pools it", 3, {"F012"}, {"CAL", "F", "F"}},
    {"a full slab is pooled and freed by three", 3, {"F012"}, {"F", "F", "F"}},
    {"a pooled slab is adopted while its last block is freed", 2, {"P-1"}, {"AL", "F"}},
    {"two adopt while one frees", 3, {"P-12"}, {"AFL", "FA", "FL"}},
    {"an adopter leaves while others free", 3, {"P-12"}, {"AAL", "F", "F"}},
    {"the owner leaves while others free", 3, {"O-12"}, {"AL", "F", "F"}},
    {"the owner of a full slab leaves while others free", 3, {"O012"}, {"LF", "F", "F"}},
    {"two slabs in the pool become empty", 2, {"P-0", "P-1"}, {"F", "F", "AAL"}},
    {"two slabs in the pool, one adopted, one emptied", 2, {"P-0", "P-1"}, {"FA", "FA", "A"}},
    {"a slab of one block", 1, {"F1"}, {"AL", "CA"}},
    /* While one thread is about to free the last block of a slab in the pool, the slab is adopted,
     * filled, let go, and comes to look the same in the pool with more blocks in use. */
    {"the pool sees the same word again with more in use", 3, {"P0-1"}, {"FF", "F", "AAAS"}},
    {"the pool sees the same word again with less in use", 3, {"F012"}, {"FF", "F", "AFLS"}},
    {"a full slab is pooled by two, with an owner in between", 3, {"F012"}, {"CL", "F", "F"}},
    {"two hand over all that they have of an owned slab", 3, {"O112"}, {"ATL", "M", "M"}},
    {"two hand over all that they have of a full slab", 4, {"F1122"}, {"AL", "M", "M"}},
    {"all blocks of a full slab come back together", 3, {"F111"}, {"AL", "M"}},
    {"some come back together while a slab is adopted and left", 4, {"P-112"}, {"AL", "M", "F"}},
    {"the last ones come back together to the pool", 3, {"P-11"}, {"A", "M"}},
    /* Of sixteen blocks, the second one that comes back ends it. */
    {"two free into a full slab that waits", 16, {"F0000000000000012"}, {"", "F", "F"}},
    {"one of two claims a full slab that waits", 16, {"F0000000000000012"}, {"", "CA", "CL"}},
    {"one claims a full slab that waits, another pools it",
     16,
     {"F0000000000000012"},
     {"A", "C", "F"}},
    {"who let it go claims a full slab that waits", 16, {"F0000000000000012"}, {"CAL", "F", "F"}},
    {"it is let go again while others free", 16, {"F0000000000000012"}, {"CAA", "F", "C"}},
    {"two free while the owner leaves, and then frees",
     16,
     {"O0000000000000012"},
     {"LC", "F", "F"}},
    {"all of a slab that waits come back", 16, {"F1111111111111112"}, {"A", "M", "F"}},
    {"blocks go round", 3, {"O012"}, {"AS", "CF", "FA"}},
};

static void all_orders_keep_the_invariants(void **unused)
{
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        if (!explore(&scenarios[i])) {
            tell(&scenarios[i]);
            fail();
        }
        print_message("%s: %zu states\n", scenarios[i].name, search.n_seen);
        assert_true(search.n_seen < STATES_MAX);
    }
}

/* Sixteen blocks: others' first one waits, the second one ends it; one of the heap that let it go does so at once. */
static void a_full_slab_waits_for_others_and_not_for_its_last_heap(void **unused)
{
    static const struct scenario full = {"", 16, {"F0000000000000000"}, {"", ""}};
    const struct slab_list first = {block_at(0, 3), block_at(0, 3), 1};
    const struct slab_list second = {block_at(0, 7), block_at(0, 7), 1};
    struct slab *s = slab_at(0);
    for (unsigned claim = 0; claim < 2; claim++) {
        set_up(&full);
        assert_int_equal(slab_free(&source, s, &first, claim, false, threads[1].heap), SLAB_DONE);
        assert_int_equal(remote_state(s->remote), SLAB_FULL);
        assert_int_equal(remote_count(s->remote), 1);
        enum slab_outcome end = slab_free(&source, s, &second, claim, false, threads[1].heap);
        assert_int_equal(end, claim ? SLAB_CLAIMED : SLAB_DONE);
        assert_int_equal(remote_state(s->remote), claim ? SLAB_OWNED : SLAB_POOLED);
        assert_int_equal(claim ? 16 - s->used : remote_count(s->remote), 2);
    }
    set_up(&full);
    assert_int_equal(slab_free(&source, s, &first, true, false, threads[0].heap), SLAB_CLAIMED);
    assert_int_equal(s->used, 15);
    set_up(&full); /* with what others have freed before */
    assert_int_equal(slab_free(&source, s, &first, true, false, threads[1].heap), SLAB_DONE);
    assert_int_equal(slab_free(&source, s, &second, true, false, threads[0].heap), SLAB_CLAIMED);
    assert_int_equal(s->used, 14);
    assert_ptr_equal(s->owner, threads[0].heap);
    set_up(&full); /* where memory is scarce, nobody waits */
    assert_int_equal(slab_free(&source, s, &first, false, true, threads[1].heap), SLAB_DONE);
    assert_int_equal(remote_state(s->remote), SLAB_POOLED);
}

/* Scripts that nobody thought of. */
static void random_scenarios_keep_the_invariants(void **unused)
{
    const char *text = getenv("MEMOIR_TEST_SEED"), *rounds = getenv("MEMOIR_TEST_ROUNDS");
    unsigned seed = text ? (unsigned)atoi(text) : 1;
    int n = rounds ? atoi(rounds) : 40;
    for (int round = 0; round < n; round++, seed++) {
        unsigned r = seed;
        char script[THREADS][8], slab[SLABS][BLOCKS + 2], name[32];
        struct scenario sc = {.name = name, .limit = 2 + rand_r(&r) % 2};
        snprintf(name, sizeof name, "seed %u", seed);
        unsigned slabs = 1 + (rand_r(&r) % 4 == 0), actors = 2 + rand_r(&r) % 2;
        for (unsigned i = 0; i < slabs; i++) {
            slab[i][0] = "OFP"[rand_r(&r) % 3];
            for (unsigned b = 0; b < sc.limit; b++)
                slab[i][1 + b] = (char)('0' + rand_r(&r) % actors);
            if (slab[i][0] == 'P' || (slab[i][0] == 'O' && rand_r(&r) % 2))
                slab[i][1 + rand_r(&r) % sc.limit] = '-';
            slab[i][1 + sc.limit] = 0;
            sc.slab[i] = slab[i];
        }
        for (unsigned i = 0; i < actors; i++) {
            unsigned length = 1 + rand_r(&r) % (actors == 2 ? 5 : 3);
            for (unsigned j = 0; j < length; j++)
                script[i][j] = "FFFCCMMAAALST"[rand_r(&r) % 13];
            script[i][length] = 0;
            sc.script[i] = script[i];
        }
        if (!explore(&sc)) {
            for (unsigned i = 0; i < slabs; i++)
                print_message("slab %s\n", slab[i]);
            for (unsigned i = 0; i < actors; i++)
                print_message("thread %u: %s\n", i, script[i]);
            tell(&sc);
            fail();
        }
    }
}

static int make_memory(void **unused)
{
    macro_memory = aligned_alloc(MACRO_BYTES, MACRO_BYTES);
    stacks = calloc(THREADS, STACK);
    return macro_memory && stacks ? 0 : -1;
}

static int free_memory(void **unused)
{
    free(macro_memory);
    free(stacks);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_orders_keep_the_invariants),
        cmocka_unit_test(a_full_slab_waits_for_others_and_not_for_its_last_heap),
        cmocka_unit_test(random_scenarios_keep_the_invariants),
    };
    return cmocka_run_group_tests(tests, make_memory, free_memory);
}
