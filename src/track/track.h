/*
 * track.h: the process-wide state of libmemoir-track.
 *
 * A call of the program's goes one of three ways. Fast: the book is open and this thread has counters of
 * its own there; all is loads and stores, and each counter takes one instruction, so that a signal handler
 * which allocates in between finds nothing half done. Early: most processes end before they are worth a
 * file, so the first calls are counted in a small static table (early.h). Slow: everything else, by
 * track_alloc(), track_free() and track_resize(), from any thread, phase or signal handler.
 *
 * The pointer to the tracker lives in a page that the kernel wipes in a child after fork: however it was
 * forked, it finds no tracker, and starts anew with a book of its own (fork.c).
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"
#include "book/script_stack.h"
#include "book/trailer.h"
#include "book/writer.h"
#include "site/python.h"
#include "site/unwind.h"
#include "track/real.h"
#include "track/recall.h"

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum {
    TRACK_SITES_BITS = 12,
    /* Callers whose counters a thread finds at once. PyTorch has 23,000, of which a training step uses hundreds. */
    TRACK_SITES = 1 << TRACK_SITES_BITS,
    TRACK_STACKS_BITS = 15,
    TRACK_STACKS = 1 << TRACK_STACKS_BITS, /* stacks whose sites a thread finds at once */
    TRACK_HINTS = 512,                     /* pages of small blocks whose size a thread guesses */
    TRACK_PENDING_MAX = 8,                 /* frees by signal handlers inside a slow call */
    TRACK_TICK_BLOCKS = 64,                /* between two calls of track_tick(), about, */
    TRACK_TICK_BLOCKS_MOST = 256,          /* or so many while these come within one stamp */
#ifdef TRACK_OVER_CORE
    TRACK_TICK_BYTES = 131072, /* the same in bytes, at most */
#else
    TRACK_TICK_BYTES = 65536,
#endif
    TRACK_LARGE_BYTES = 8192, /* blocks from this size on do more each time */
    /* Freed between two calls of track_settle(). A tick settles, too: of a thread that frees as much as it allocates, always first. */
    TRACK_SETTLE_BYTES = TRACK_TICK_BYTES + TRACK_TICK_BYTES / 4,
#if defined(__x86_64__)
    TRACK_PAGE_BYTES = 4096, /* the largest page that a machine may have */
#else
    TRACK_PAGE_BYTES = 65536,
#endif
    TRACK_SPACE_HEAP = 1, /* MEMOIR_SPACE_HEAP */
    TRACK_PASS_NONE = 1,  /* a thread's pass that is never the root's */
};

enum track_phase {
    TRACK_EARLY = 0, /* counted in the early table */
    TRACK_OPEN = 1,  /* there is a book */
    TRACK_OFF = 2,   /* there will be none: calls are passed on */
};

enum track_stacks {
    TRACK_STACKS_SAMPLED = 0,
    TRACK_STACKS_ALL = 1,
    TRACK_STACKS_OFF = 2,
};

/* From the environment, read once. */
struct track_settings {
    uint32_t stacks; /* enum track_stacks */
    bool off;
    int32_t keep_pid; /* this process makes a book at once, and leaves it at exit; 0: none */
    bool maps;
    bool suspended;        /* make a book at once, and count nothing until somebody resumes it */
    uint64_t sample_bytes; /* mean distance between samples */
};
extern struct track_settings track_settings;

struct map_list;

/* What a thread keeps for a caller. */
struct track_site {
    /* return address; 0: empty. User addresses leave the top bits free, for the two below */
    uint64_t key;
    struct book_site_counters *counters;
    uint64_t identity; /* of the code there: see unwind_identity() */
    /* its part of a short trailer or a word, and the process's: beside_site() */
    uint64_t short_site;
};
static_assert(sizeof(struct track_site) == 32, "two to a cache line");
#define TRACK_KEY_STALE (UINT64_C(1) << 63) /* a library was closed: other code may be there now */
#define TRACK_KEY_WIDE  (UINT64_C(1) << 62) /* its number is too large for a short trailer */
#define TRACK_KEY_CLOSE \
    (UINT64_C(1) << 61) /* its stacks are sampled more often: control.close_sites */

/* The same for a whole stack. */
struct track_stack {
    uint64_t key, identity;
    uint32_t site;
};

/* A block that was freed while its thread could not change the book. */
struct track_pending {
    uint32_t site;
    bool sampled;
    uint64_t bytes;
    void *block;
};

/* The same for blocks of chains (malloc/account_chain.c), which have an account of their own. */
enum { TRACK_CHAIN_SITES = 64 };
struct track_chain_site {
    uintptr_t caller;
    uint64_t pass; /* of its thread, when this was found */
    uint32_t site;
};

struct track_thread {
    /* What the fast way needs comes first. */
    uint64_t pass; /* that of the root, if this thread may take the fast way: see there */
    const struct book_control *control;
    struct book_counters *account; /* own page, or NULL: then there is no fast way */
    int64_t budget;                /* bytes to allocate before track_tick() has to be called */
    uint64_t settle_at;            /* freed bytes of the account at which track_settle() is due */
    uint64_t stamp;                /* of a short trailer or a word: now */
    uint64_t key;                  /* of a trailer's check, */
    uint64_t generation;           /* and what is crossed with it */

    uint64_t small_room; /* to ask for with blocks that may have their word beside: see beside.h, */
    uint64_t elsewhere;  /* and how many of late had it not */
    uint64_t has_wide;   /* a caller with TRACK_KEY_WIDE is or was among those below */
    uint64_t replaced;   /* state of the random choice in entry_for() */
    struct tracker *tracker;
    int64_t sample_left;  /* bytes until the next sampled block, when the budget was given, */
    int64_t granted;      /* which was so much then */
    int64_t tick_bytes;   /* the budget to be given, if no sample is due before */
    uint64_t tick_blocks; /* allocated at the last tick */
    uint64_t close;       /* control.close_sites, as of the last tick, */
    int64_t close_left;   /* and bytes of these sites until the next sampled block */
    int64_t folded;       /* of its live bytes, what is part of the account's peak */
    uintptr_t inside;     /* frame address of the slow call under way; 0: none */
    uint32_t n_pending;
    struct track_pending pending[TRACK_PENDING_MAX];
    uint64_t random;
    int32_t tid;                    /* 0: of no thread */
    struct track_thread *next_free; /* under tracker.threads_lock */
    struct track_thread *next;      /* all of them; constant */
    struct track_site sites[TRACK_SITES] __attribute__((aligned(64))); /* pairs */
    uint32_t site_numbers[TRACK_SITES];
    /* Of allocators other than glibc's: the address of a page, and the extent of a small block in it. Such allocators
     * keep blocks of one size together, so others of that page may have it too; their trailers tell. */
    uint64_t hints[TRACK_HINTS];
    struct book_thread book;
    struct track_stack stacks[TRACK_STACKS];
    struct script_thread script; /* untouched pages where no script runs */
    struct recall recall;        /* but for its trail used where all stacks are taken */
    struct track_chain_site chain_sites[TRACK_CHAIN_SITES];
};

/* Bytes and blocks that live, as a child takes them over. */
struct track_live {
    uint64_t bytes, blocks;
};

struct tracker {
    struct book_trailer_key key;
    uint32_t account;        /* of the heap */
    uint32_t chains_account; /* of blocks in chains; 0: none yet */
    uint32_t time;           /* now, in the unit of a trailer; any thread stores (relaxed) */
    uint32_t threads_lock;
    struct track_thread *threads, *free_threads;
    struct track_thread *reuse_from; /* where to look for ended threads next */
    bool live_noted;                 /* while we fork: */
    struct track_live live_at_fork;
    struct unwind_cache unwind;
    struct map_list *maps; /* NULL unless mappings are counted */
    struct python python;  /* the interpreter in this process */
    bool interpreter;      /* there is one in the program itself: no stacks are recalled */
    struct book_writer writer;
};

/* What the kernel wipes in a child. */
struct track_root {
    struct tracker *tracker;
    /* Not 0 once calls may take the fast way: the address of the tracker, and above it a count of dlclose() calls. A
     * thread whose own pass is another one comes by the slow way first, and forgets what callers it knew. */
    uint64_t pass;
    uint64_t glibc_pass; /* the same, if besides the allocator is glibc's; else 0 */
    /* the same, if besides blocks are counted by their callers, and so at few sites; else 0 */
    uint64_t near_pass;
    uint64_t sized_pass; /* the same with an allocator that real.sized tells of */
    uint32_t phase;      /* enum track_phase */
    uint32_t begun;      /* this process has been set up */
    uint32_t beginning;  /* held by the thread that sets it up */
    uint64_t lock;       /* of the early table: see early.h */
};

/* In pages of its own, so that the way there is short. */
union track_page {
    struct track_root root;
    char bytes[TRACK_PAGE_BYTES];
};
extern union track_page track_page __attribute__((visibility("hidden"))); /* no way round */

/* What a thread has that is not known yet: no pass. */
struct track_nobody {
    uint64_t pass;
};
extern const struct track_nobody track_nobody __attribute__((visibility("hidden")));
#define TRACK_NOBODY ((struct track_thread *)&track_nobody)

extern __thread struct track_thread *track_self; /* or TRACK_NOBODY */
extern uint32_t track_closes; /* dlclose() calls: a caller may be another one since */

/* Set up this process, once: the first call ever, or the first after fork. Gives its phase. */
enum track_phase track_begin(void);

static inline enum track_phase track_phase_now(void)
{
    return likely(load_acquire(&track_page.root.begun))
               ? (enum track_phase)load_acquire(&track_page.root.phase)
               : track_begin();
}

/* May this thread take the fast way? Not in a child, whose root is wiped, and whose thread is its parent's. `pass` is one
 * of the root's; that it is this thread's own was stored by itself, and so is all that comes with it. */
static inline bool track_is_fast(const struct track_thread *t, const uint64_t *pass)
{
    return likely(t->pass == *pass);
}

/* To allocate, it must not be suspended either. */
static inline bool track_may_alloc(const struct track_thread *t, const uint64_t *pass)
{
    return track_is_fast(t, pass) && likely(!(t->control->flags & BOOK_CONTROL_SUSPENDED));
}

/* What need not be done at every call. Settle: bring what this thread has counted into the peak, and give back what
 * a call that was left by longjmp() still holds. Tick: besides look at the clock, and give a new budget. Both keep
 * errno. */
void track_settle(struct track_thread *t);
void track_tick(struct track_thread *t);

/* A block so large that the peak has to be looked at before it is counted as freed (book/peak.h), from who may take the
 * fast way. Keeps errno. */
void track_peak(struct track_thread *t, size_t bytes);

/* Is this a site whose stacks are sampled more often? Few are, mostly none. */
static inline bool track_is_close(const struct track_thread *t, uint32_t site)
{
    for (uint64_t close = t->close; close; close >>= BOOK_CLOSE_BITS)
        if (site && (close & ((1u << BOOK_CLOSE_BITS) - 1)) == site)
            return true;
    return false;
}

/* Give a budget: after a block was counted by the slow way, or the distance to a sample has changed. */
void track_grant(struct track_thread *t);

/* Bytes until the next sampled block, now. */
static inline int64_t track_sample_left(const struct track_thread *t)
{
    return t->sample_left - (t->granted - t->budget);
}

/* ---- the slow ways: see slow.c. All keep errno. ---- */

/* A block of the real allocator's, with room for a trailer, is the program's from now on. Gives the block, or
 * another one in its place where it turned out to need a longer trailer: aligned blocks are asked for with room for
 * any. */
void *track_alloc(void *block, size_t bytes, uintptr_t caller);

/* The same for a block that the budget has been charged for, from who could take the fast way but for this block. */
void *track_done(void *block, size_t bytes, uintptr_t caller);

/* A block that there is no memory for a trailer of: it counts as lost. Gives the block. */
void *track_without(void *block);

/* Bytes to ask for if it comes to that. */
size_t track_request(size_t bytes);

/* A block is about to be freed. Counts it and clears its trailer. */
void track_free(void *block);

/* The same in two steps, for realloc(): take the trailer away; put it back, or count the block as
 * freed. */
struct track_taken {
    void *block;
    uint64_t *last; /* its last word; NULL: the block has none */
    bool beside;    /* it is not in the block: one that only beside.h understands */
    uint64_t words[2];
    struct book_trailer trailer;
};
struct track_taken track_take(void *block);
void track_put_back(const struct track_taken *taken);
void track_taken_free(const struct track_taken *taken, bool moved);

/* What malloc_usable_size() tells: all but the trailer. */
size_t track_usable(void *block);

/* May new blocks carry trailers now? Not where tracking is off or suspended. */
bool track_wanted(void);

/* ---- threads and phases: tracker.c ---- */

/* Make the book. Hold the early lock. 0 or -errno: then tracking is off. */
int track_publish(void);

/* The tracker, for what is worth a book from its first call on: made if need be. NULL: tracking is off. */
struct tracker *track_tracker_open(void);

/* The program is about to make itself a sandbox: its book is made before that, and left where it is at the end. A child of fork() that has
 * allocated nothing gets none, nor do children that come later, nor a program of which is not known yet whether it wants one: they are
 * not counted. */
void track_lock_up(void);
/* It came to nothing: takes back one track_lock_up(). */
void track_unlock(void);

/* This thread's part, made if need be; NULL while that is not possible. Give it back with
 * track_thread_done(): a thread that is ending only borrows one. */
struct track_thread *track_thread_get(struct tracker *tracker);
void track_thread_done(struct track_thread *t);

/* Begin and end a stretch in which this thread may change the book; false if it is inside one already:
 * we are in a signal handler. */
bool track_enter(struct track_thread *t);
void track_leave(struct track_thread *t);

/* All of that for one call: this thread's part, to be changed until track_call_end(). NULL: the call is not counted. */
static inline struct track_thread *track_call_begin(struct tracker *tracker)
{
    struct track_thread *t = track_thread_get(tracker);
    if (!t || track_enter(t))
        return t;
    book_lose(&tracker->writer, BOOK_LOSS_REENTRY);
    track_thread_done(t);
    return NULL;
}

static inline void track_call_end(struct track_thread *t)
{
    track_leave(t);
    track_thread_done(t);
}

/* Is a call of ours further out on this stack, interrupted by a signal? `frame` is where it was. */
bool track_under_way(uintptr_t frame);

/* The same where none has said so: any call of ours, also one that is at the real allocator's. */
bool track_interrupted(struct tracker *tracker);

/* Look at the clock: the time of now, in the unit of a trailer. */
uint32_t track_clock(struct tracker *tracker);

/* Where a caller is looked for first. If it is not there, it may be in the entry beside. */
static inline struct track_site *track_site_entry(struct track_thread *t, uintptr_t caller)
{
    uint32_t hash = (uint32_t)caller * UINT32_C(0x9e3779b1);
    uint32_t offset = hash >> (32 - TRACK_SITES_BITS - 5) & (TRACK_SITES - 1) * 32;
    return (struct track_site *)((char *)t->sites + offset);
}

static inline struct track_site *track_site_beside(struct track_site *entry)
{
    return (struct track_site *)((uintptr_t)entry ^ sizeof(*entry));
}

/* After somebody's dlclose(): callers that this thread knew may be others now. Inside, or at its first call. */
void track_pass_renew(struct track_thread *t);

/* ---- fork.c ---- */

/* In a child, before anything else: let go of the parent's tracker. Gives what it held. */
struct track_live track_fork_begin(void);
/* From now on whoever forks looks at what there is; and the tracker that a child will find to be its parent's. */
void track_watch_forks(void);
void track_note_parent(struct tracker *tracker);
