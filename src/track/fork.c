/*
 * fork.c: what a child takes over from its parent.
 *
 * The kernel wipes the pointer to the tracker, so a child can never store into its parent's book. At its
 * first call it lets go of the parent's mapping (which also carries the lock that says the parent lives)
 * and begins anew: its trailers are of the next generation, and what the parent held is one figure, from
 * which blocks are taken away as the child frees them. The handlers only do that sooner, and note the
 * figure before the parent goes on.
 */
#include <pthread.h>
#include <unistd.h>

#include "book/making.h"
#include "track/early.h"
#include "track/map.h"
#include "track/track.h"

static struct tracker *parent; /* the newest tracker of this image; not wiped */
static uint32_t handler_state;

/* What before_fork() saw of its thread's stack, where walking it again is cheap: a child would start with nothing. */
enum { NOT_SEEN, SEEN_CALM, SEEN_INTERRUPTED };
static __thread int seen;

static uint64_t difference(uint64_t allocated, uint64_t freed)
{
    return allocated > freed ? allocated - freed : 0;
}

static struct track_live live_of(struct tracker *tracker)
{
    struct book_counters sum;
    book_account_sum(&tracker->writer, tracker->account, &sum);
    const struct book_account *account = book_account_at(&tracker->writer, tracker->account);
    return (struct track_live){
        .bytes = difference(sum.alloc_bytes, sum.freed_bytes) + account->inherited_bytes,
        .blocks = difference(sum.alloc_blocks, sum.freed_blocks) + account->inherited_blocks,
    };
}

static void before_fork(void)
{
    book_forking_begin();
    struct tracker *tracker = load_acquire(&track_page.root.tracker);
    if (!tracker)
        return; /* the early table is the child's own already */
    seen = track_interrupted(tracker) ? SEEN_INTERRUPTED : SEEN_CALM;
    tracker->live_at_fork = live_of(tracker);
    store_relaxed(&tracker->live_noted, true);
}

static void after_fork(void)
{
    struct tracker *tracker = load_acquire(&track_page.root.tracker);
    seen = NOT_SEEN;
    if (tracker)
        store_relaxed(&tracker->live_noted, false);
    book_forking_end();
}

static void in_child(void)
{
    track_phase_now();
}

static void parent_drop(struct tracker *old)
{
    for (struct track_thread *t = old->threads, *next; t; t = next) {
        next = t->next;
        book_private_free(t, sizeof(*t));
    }
    book_private_free(old->maps, sizeof(*old->maps));
    book_writer_forget(&old->writer);
    book_private_free(old, sizeof(*old));
}

struct track_live track_fork_begin(void)
{
    struct tracker *old = parent;
    struct track_thread *t = track_self;
    parent = NULL;
    book_making_forget();
    if (!old) {
        track_self = TRACK_NOBODY;
        return early_live();
    }
    struct track_live live = old->live_noted ? old->live_at_fork : live_of(old);
    /* Forked by a signal handler inside a call of ours, which will go on in the child too, with what it holds in
     * registers: then all stays where it is, but not shared with the parent. */
    bool interrupted = seen == NOT_SEEN ? track_interrupted(NULL) : seen == SEEN_INTERRUPTED;
    seen = NOT_SEEN;
    if ((t != TRACK_NOBODY && t->tracker == old && t->inside) || interrupted) {
        book_writer_detach(&old->writer);
    } else {
        track_self = TRACK_NOBODY;
        parent_drop(old);
    }
    return live;
}

void track_note_parent(struct tracker *tracker)
{
    parent = tracker;
}

void track_watch_forks(void)
{
    uint32_t none = 0;
    if (cas_acquire(&handler_state, &none, 1))
        pthread_atfork(before_fork, after_fork, in_child);
}
