/* tracker.c: the tracker and its threads: made when a process is worth a book, found fast afterwards. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "book/identity.h"
#include "book/lock.h"
#include "book/making.h"
#include "book/peak.h"
#include "book/place.h"
#include "book/report.h"
#include "book/thread_key.h"
#include "site/module.h"
#include "track/beside.h"
#include "track/early.h"
#include "track/map.h"
#include "track/sample.h"
#include "track/track.h"

enum {
    REUSE_TRIES = 8, /* structs looked at for one whose thread is gone */
    STACK_MAX = 256, /* frames looked at to tell whether a call is under way */
    SAMPLE_BYTES = 1 << 20,
    /* Twice what a thread may not have folded yet: half of what book_fold() allows, and all that may come between two ticks, or, which is
     * more, be freed before track_settle(). */
    PEAK_ERROR = 2 * BOOK_FOLD_BYTES + 2 * TRACK_SETTLE_BYTES,
};

union track_page track_page __attribute__((aligned(TRACK_PAGE_BYTES)));
static uint32_t
    page_state; /* 0: an ordinary page, 1: a child will find it wiped, 2: it cannot be */
struct track_settings track_settings = {.sample_bytes = SAMPLE_BYTES};
const struct track_nobody track_nobody = {.pass = TRACK_PASS_NONE};
__thread struct track_thread *track_self = TRACK_NOBODY;
uint32_t track_closes;

/* Set while this thread enters itself: mallocs of ours (there are none but the C library's) and of
 * signal handlers pass. */
static __thread bool registering;
static __thread bool ended; /* its key's destructor has run: it only borrows a struct now */

static bool exiting;
/* How often this process, or one that it was forked from, has locked itself up: while it is not 0, no file is opened or removed. */
static uint32_t locked_up;
static bool begun_before; /* this image has been set up: who finds its root wiped is a child */
static struct thread_key thread_key;

/* ---- the process ---- */

static bool is_set(const char *name)
{
    const char *value = secure_getenv(name);
    return value && value[0] && strcmp(value, "0") != 0;
}

/* Stops at what is no digit, and at what is too large for all that is asked for here. */
static uint64_t number_read(const char *text)
{
    uint64_t number = 0;
    for (; *text >= '0' && *text <= '9' && number < INT32_MAX / 10; text++)
        number = number * 10 + (uint64_t)(*text - '0');
    return number;
}

/* As early as there is an environment: libraries that come to life before us may make enough of a process
 * for a book. */
static void settings_read(void)
{
    static bool known;
    if (known || !__environ)
        return;
    known = true;
    book_place_remember();
    const char *stacks = secure_getenv("MEMOIR_STACKS");
    const char *bytes = secure_getenv("MEMOIR_SAMPLE_BYTES");
    track_settings.off = is_set("MEMOIR_OFF");
    track_settings.keep_pid = book_keep_asked() ? getpid() : 0;
    track_settings.maps = REAL_SOURCE == BOOK_SOURCE_TRACK && is_set("MEMOIR_TRACK_MMAP");
    track_settings.suspended = is_set("MEMOIR_SUSPENDED");
    if (stacks && strcmp(stacks, "all") == 0)
        track_settings.stacks = TRACK_STACKS_ALL;
    else if (stacks && strcmp(stacks, "off") == 0)
        track_settings.stacks = TRACK_STACKS_OFF;
    if (bytes && number_read(bytes) > 0)
        track_settings.sample_bytes = number_read(bytes);
}

/* Where the kernel cannot wipe it, a child would write into its parent's book. */
static bool page_prepare(void)
{
    if (load_acquire(&page_state) == 0) {
        bool wiped = madvise(&track_page, sizeof(track_page), MADV_WIPEONFORK) == 0;
        store_release(&page_state, wiped ? 1 : 2);
    }
    return load_acquire(&page_state) == 1;
}

static void process_begin(struct track_root *root)
{
    struct book_trailer_key key = early.key;
    struct track_live inherited = {0};
    settings_read();
    if (begun_before) {
        inherited = track_fork_begin();
    } else {
        key.key = hash_combine(book_exec_random(), clock_monotonic_ns()) | 1;
        beside_begin();
    }
    key.generation++;
    begun_before = true;
    early_reset(key, inherited);
    bool usable = page_prepare() && real.whole && key.generation < BESIDE_GENERATIONS_MAX;
    bool off = track_settings.off || load_relaxed(&locked_up) > 0;
    store_release(&root->phase, off || !usable ? TRACK_OFF : TRACK_EARLY);
}

enum track_phase track_begin(void)
{
    int saved = errno;
    struct track_root *root = &track_page.root;
    uint32_t free_word = 0;
    if (cas_acquire(&root->beginning, &free_word, 1)) {
        process_begin(root);
        store_release(&root->begun, 1);
    }
    /* A signal handler that interrupted process_begin() waits in vain: it has to pass. */
    for (unsigned i = 0; i < 1000 && !load_acquire(&root->begun); i++)
        sched_yield();
    errno = saved;
    return load_acquire(&root->begun) ? (enum track_phase)load_acquire(&root->phase) : TRACK_OFF;
}

/* ---- the book ---- */

/* What was counted so far. Sites keep their numbers, since blocks name them already. */
static void early_enter(struct tracker *tracker)
{
    struct book_writer *w = &tracker->writer;
    for (uint32_t i = 0; i < early.n_sites; i++) {
        const struct early_site *site = &early.site[i];
        uint32_t flags = BOOK_SITE_CALLER_ONLY;
        if (i > 0 && book_site_add(w, &w->common, tracker->account, &site->caller, 1, flags) != i)
            /* The same place in a library that was closed and opened elsewhere meanwhile. */
            book_site_add(w, &w->common, tracker->account, &site->caller, 1,
                          flags | BOOK_SITE_AGAIN);
        struct book_site_counters counted = {site->freed_bytes, site->freed_blocks,
                                             site->alloc_bytes, site->alloc_blocks};
        book_count_many(w, &w->common, (uint64_t)i << 12 | tracker->account, &counted);
    }
    struct book_account *account = book_account_at(w, tracker->account);
    account->common.reallocs = early.reallocs;
    account->inherited_bytes = early.inherited.bytes;
    account->inherited_blocks = early.inherited.blocks;
    w->header->losses[BOOK_LOSS_UNKNOWN_FREE] = early.unknown_frees;
    w->header->losses[BOOK_LOSS_REENTRY] = early.reentries;
    if (early.key.generation > 1)
        w->header->compat |= BOOK_COMPAT_FORK_CHILD;
}

/* Times count from the first call, not from the moment at which it came to be a book. */
static void begin_earlier(struct book_writer *w)
{
    uint64_t earlier = w->created_ns > early.begun_ns ? w->created_ns - early.begun_ns : 0;
    w->created_ns -= earlier;
    w->header->created_monotonic_ns -= earlier;
    w->header->created_realtime_ns -= earlier;
}

static int tracker_fill(struct tracker *tracker)
{
    struct book_writer *w = &tracker->writer;
    const char *reserve = secure_getenv("MEMOIR_RESERVE");
    struct book_writer_options options = {
        .source = REAL_SOURCE,
        .large = reserve && strcmp(reserve, "large") == 0,
    };
    int r = book_writer_init(w, &options);
    w->folds_made_code = true;
    if (r < 0)
        return r;
    begin_earlier(w);
    if (track_settings.suspended && w->control)
        w->control->flags = w->control->flags_more |= BOOK_CONTROL_SUSPENDED;
    w->header->trailer_key = early.key.key;
    w->header->trailer_generation = early.key.generation;
    w->header->trailer_format = real.glibc ? BOOK_TRAILER_FORMAT_GLIBC : BOOK_TRAILER_FORMAT;
    beside_enter(w->header);
    tracker->key = early.key;
    tracker->time = early_time();
    r = book_account_add(w, &w->common, TRACK_SPACE_HEAP, BOOK_DEVICE_HOST, "heap");
    if (r > 0) {
        tracker->account = (uint32_t)r;
        early_enter(tracker);
        r = book_writer_publish(w);
    }
    if (r < 0)
        book_writer_forget(w);
    return r;
}

int track_publish(void)
{
    struct book_calm calm;
    if (load_relaxed(&locked_up) > 0) { /* too late */
        store_release(&track_page.root.phase, TRACK_OFF);
        return -EPERM;
    }
    book_calm_begin(&calm);
    settings_read();
    track_watch_forks();
    book_making_begin();
    struct track_root *root = &track_page.root;
    struct tracker *tracker = exiting ? NULL : book_private_new(sizeof(*tracker));
    int r = tracker ? tracker_fill(tracker) : -ENOMEM;
    if (r < 0) {
        book_private_free(tracker, sizeof(*tracker));
        store_release(&root->phase, TRACK_OFF);
    } else {
        tracker->interpreter = track_settings.stacks == TRACK_STACKS_ALL && recall_interpreter();
        if (track_settings.maps)
            tracker->maps = book_private_new(sizeof(*tracker->maps));
        track_note_parent(tracker);
        store_release(&root->tracker, tracker);
        store_release(&root->phase, TRACK_OPEN);
        uint64_t pass = (uintptr_t)tracker + ((uint64_t)load_relaxed(&track_closes) << 48);
        bool by_caller = track_settings.stacks != TRACK_STACKS_ALL;
        store_release(&root->pass, pass);
        store_release(&root->glibc_pass, real.glibc ? pass : 0);
        store_release(&root->near_pass, REAL_NEAR && by_caller ? pass : 0);
        store_release(&root->sized_pass, real.sized && by_caller ? pass : 0);
    }
    book_making_end();
    book_calm_end(&calm);
    return r;
}

struct tracker *track_tracker_open(void)
{
    if (track_phase_now() == TRACK_EARLY && early_lock()) {
        if (load_relaxed(&track_page.root.phase) == TRACK_EARLY)
            track_publish();
        early_unlock();
    }
    return load_acquire(&track_page.root.tracker);
}

uint32_t track_clock(struct tracker *tracker)
{
    uint64_t time = book_time(&tracker->writer) >> (BOOK_TRAILER_TIME_SHIFT - BOOK_TIME_SHIFT);
    uint32_t now = time < BOOK_TRAILER_TIME_MAX ? (uint32_t)time : BOOK_TRAILER_TIME_MAX;
    if (now != load_relaxed(&tracker->time))
        store_relaxed(&tracker->time, now);
    return now;
}

/* ---- threads ---- */

/* Read before anything is marked: who closes a library meanwhile has us here again. */
void track_pass_renew(struct track_thread *t)
{
    uint64_t pass = load_acquire(&track_page.root.pass);
    if (t->pass == pass || !pass || !t->account)
        return;
    for (int i = 0; t->pass != TRACK_PASS_NONE && i < TRACK_SITES; i++)
        if (t->sites[i].key)
            t->sites[i].key |= TRACK_KEY_STALE;
    fence_signal();
    t->pass = pass;
}

static void give_back_locks(struct track_thread *t)
{
    struct book_writer *w = &t->tracker->writer;
    if (t->book.growing) {
        /* Entries were being moved: some are not where they are looked for. */
        w->table.broken = true;
        w->table.plain = false;
        store_release(&w->header->blocks_seq, w->header->blocks_seq + 1);
        t->book.growing = false;
    }
    book_locks_give_back(w, &t->book);
    book_lose(w, BOOK_LOSS_TORN);
    t->inside = 0;
}

static bool threads_lock(struct tracker *tracker)
{
    uint32_t free_word = 0;
    return cas_acquire(&tracker->threads_lock, &free_word, 1) ||
           book_lock_wait(&tracker->writer, &tracker->threads_lock, 1);
}

static void thread_give_back(struct track_thread *t)
{
    struct tracker *tracker = t->tracker;
    if (!threads_lock(tracker))
        return;
    t->tid = 0;
    t->next_free = tracker->free_threads;
    tracker->free_threads = t;
    store_release(&tracker->threads_lock, 0);
}

/* Runs in a thread that ends. After fork the value may be of the parent's memory: believe only
 * what this thread itself points to. */
static void thread_end(void *value)
{
    struct track_thread *t = track_self;
    track_self = TRACK_NOBODY;
    ended = true;
    struct tracker *tracker = load_acquire(&track_page.root.tracker);
    if (t == TRACK_NOBODY || t != value || !tracker || t->tracker != tracker)
        return;
    int saved = errno;
    if (t->inside)
        give_back_locks(t); /* cancelled in the middle */
    thread_give_back(t);
    errno = saved;
}

/* A struct whose thread is gone; a few are asked for each time, in turn. Not in a sandbox, which expects no signals. Hold threads_lock. */
static struct track_thread *thread_reuse(struct tracker *tracker)
{
    if (load_relaxed(&locked_up) > 0)
        return NULL;
    for (unsigned i = 0; tracker->threads && i < REUSE_TRIES; i++) {
        struct track_thread *t = tracker->reuse_from ? tracker->reuse_from : tracker->threads;
        tracker->reuse_from = t->next;
        if (t->tid == 0 || syscall(SYS_tgkill, getpid(), t->tid, 0) == 0 || errno != ESRCH)
            continue;
        if (t->inside)
            give_back_locks(t);
        return t;
    }
    return NULL;
}

static void thread_fill(struct tracker *tracker, struct track_thread *t)
{
    struct book_writer *w = &tracker->writer;
    t->tracker = tracker;
    t->pass = TRACK_PASS_NONE;
    t->control = w->control;
    t->key = tracker->key.key;
    t->generation = tracker->key.generation;
    t->stamp = beside_stamp(load_relaxed(&tracker->time));
    t->random = hash_combine(w->header->hash_seed, (uintptr_t)t) | 1;
    t->sample_left = sample_distance(t);
    book_thread_init(w, &t->book);
    book_counters_prepare(w, &t->book);
    max_relaxed(&w->header->peak_error, (uint64_t)(load_relaxed(&w->shards) + 1) * PEAK_ERROR);
    struct book_counters *page = t->book.account_pages[tracker->account / BOOK_ACCOUNTS_PER_PAGE];
    t->account = page ? &page[tracker->account % BOOK_ACCOUNTS_PER_PAGE] : NULL;
    if (!t->account) { /* then no pages for sites either: that is what keeps it off the fast way */
        t->book.exclusive = false;
        t->book.site_pages[0] = NULL;
    }
    track_pass_renew(t);
}

static struct track_thread *thread_new(struct tracker *tracker)
{
    if (!threads_lock(tracker))
        return NULL;
    struct track_thread *t = tracker->free_threads;
    if (t)
        tracker->free_threads = t->next_free;
    else if (!ended)
        t = thread_reuse(tracker); /* some end without a word, whatever key they have */
    bool fresh = !t && (t = book_private_new(sizeof(*t))) != NULL;
    if (fresh) {
        t->next = tracker->threads;
        tracker->threads = t;
    }
    if (t) /* before anybody else asks whether its thread is gone */
        t->tid = ended ? 0 : (int32_t)syscall(SYS_gettid);
    store_release(&tracker->threads_lock, 0);
    if (fresh)
        thread_fill(tracker, t);
    return t;
}

struct track_thread *track_thread_get(struct tracker *tracker)
{
    struct track_thread *t = track_self;
    if (t != TRACK_NOBODY && t->tracker == tracker)
        return t;
    if (registering)
        return NULL;
    struct book_calm calm;
    book_calm_begin(&calm);
    registering = true;
    fence_signal();
    bool has_key = thread_key_get(&thread_key, thread_end);
    t = thread_new(tracker);
    if (t && !ended) {
        t->sample_left = track_sample_left(t);
        t->granted = t->budget = 0; /* so that it looks at the clock first */
        track_self = t;
        if (has_key)
            pthread_setspecific(thread_key.key, t);
    }
    fence_signal();
    registering = false;
    book_calm_end(&calm);
    return t;
}

void track_thread_done(struct track_thread *t)
{
    if (unlikely(t != track_self))
        thread_give_back(t);
}

/* ---- one slow call at a time in one thread ---- */

/* Our code is on the stack twice only if a signal came in between: we call nobody back. (The real
 * allocator calls us back in programs where it is written over malloc() itself; those see a call under way
 * where there is none, and lose the site of a block.) */
bool track_interrupted(struct tracker *tracker)
{
    uintptr_t pcs[STACK_MAX];
    struct module_object our = {0};
    module_object_find((uintptr_t)track_interrupted, &our);
    size_t n = unwind_stack(tracker ? &tracker->unwind : NULL, pcs, STACK_MAX);
    bool outside = false;
    for (size_t i = 0; i < n; i++) {
        bool ours = pcs[i] > our.map_start && pcs[i] <= our.map_end;
        if (ours && outside)
            return true;
        outside = outside || !ours;
    }
    return n == STACK_MAX;
}

bool track_under_way(uintptr_t frame)
{
    stack_t alternate = {0};
    bool elsewhere = sigaltstack(NULL, &alternate) < 0 || (alternate.ss_flags & SS_ONSTACK);
    if (!elsewhere && (uintptr_t)__builtin_frame_address(0) > frame)
        return false; /* the stack has been unwound past it */
    return track_interrupted(load_acquire(&track_page.root.tracker));
}

bool track_enter(struct track_thread *t)
{
    if (t->inside) {
        if (track_under_way(t->inside))
            return false;
        give_back_locks(t);
    }
    t->inside = (uintptr_t)__builtin_frame_address(0);
    fence_signal();
    return true;
}

static void fold(struct track_thread *t)
{
    struct book_counters *account = t->account;
    int64_t live = (int64_t)(account->alloc_bytes - account->freed_bytes);
    int64_t delta = live - t->folded;
    int64_t most = (int64_t)(BOOK_FOLD_BYTES + account->fold_more) / 2;
    if ((delta < most && delta > -most) || !track_enter(t))
        return;
    account->fold_delta += delta;
    t->folded = live;
    book_fold(&t->tracker->writer, &t->book, t->tracker->account);
    track_leave(t);
}

void track_peak(struct track_thread *t, size_t bytes)
{
    int saved = errno;
    if (t->account && track_enter(t)) {
        book_peak_before_free(&t->tracker->writer, &t->book, t->tracker->account, bytes);
        track_leave(t);
    }
    errno = saved;
}

void track_settle(struct track_thread *t)
{
    int saved = errno;
    if (t->account)
        t->settle_at = t->account->freed_bytes + TRACK_SETTLE_BYTES;
    if (unlikely(t->inside) && track_enter(t))
        track_leave(t);
    if (t->account)
        fold(t);
    errno = saved;
}

void track_grant(struct track_thread *t)
{
    t->granted = t->sample_left < t->tick_bytes ? t->sample_left : t->tick_bytes;
    t->budget = t->granted;
}

/* The clock is to be looked at every so many blocks, and what the fast way counts down are bytes: give as many as
 * so many blocks took of late. A thread that allocates so fast that the stamp is still the same looks less often. */
static void budget_adapt(struct track_thread *t, bool same_stamp)
{
    uint64_t most = same_stamp ? TRACK_TICK_BLOCKS_MOST : TRACK_TICK_BLOCKS;
    uint64_t blocks = t->account->alloc_blocks, since = blocks - t->tick_blocks;
    t->tick_blocks = blocks;
    if (since > most)
        t->tick_bytes /= 2;
    else if (since < most / 2 && t->tick_bytes < TRACK_TICK_BYTES / 2)
        t->tick_bytes = 2 * t->tick_bytes + 1;
}

/* Somebody suspects other sites than before: those that this thread knows are marked, so that they leave the fast way. */
static void close_renew(struct track_thread *t, uint64_t close)
{
    t->close = close;
    for (size_t i = 0; i < TRACK_SITES; i++)
        if (t->sites[i].key) {
            uint64_t old = t->sites[i].key;
            bool is_close = track_is_close(t, t->site_numbers[i]);
            /* A signal handler may give the entry to another caller meanwhile: then it is right already. */
            (void)cas_relaxed(&t->sites[i].key, &old,
                              (old & ~TRACK_KEY_CLOSE) | (is_close ? TRACK_KEY_CLOSE : 0));
        }
    t->close_left = sample_distance_of(t, sample_close_bytes());
}

void track_tick(struct track_thread *t)
{
    int saved = errno;
    uint64_t close = load_relaxed(&t->control->close_sites);
    if (unlikely(close != t->close) && track_settings.stacks == TRACK_STACKS_SAMPLED)
        close_renew(t, close);
    uint64_t before = t->stamp;
    t->stamp = beside_stamp(track_clock(t->tracker));
    if (t->account)
        budget_adapt(t, t->stamp == before);
    /* Blocks of other parts of the address space have to have room for a trailer; these are mostly those of a thread. */
    t->small_room = t->elsewhere > TRACK_TICK_BLOCKS / 8 ? track_request(0) : 0;
    t->elsewhere = 0;
    t->sample_left = track_sample_left(t);
    track_grant(t);
    track_settle(t);
    errno = saved;
}

/* A handler may add to what is pending meanwhile; the compare-and-swap is for it, not for others. */
void track_leave(struct track_thread *t)
{
    uint32_t done = 0, seen;
    do {
        for (; done < load_relaxed(&t->n_pending); done++) {
            const struct track_pending *p = &t->pending[done];
            book_count_free_any(&t->tracker->writer, &t->book, p->bytes,
                                (uint64_t)p->site << 12 | t->tracker->account);
            t->folded -= (int64_t)p->bytes;
            if (p->sampled)
                sample_free(t, p->block);
        }
        seen = done;
    } while (!cas_relaxed(&t->n_pending, &seen, 0));
    fence_signal();
    t->inside = 0;
}

/* ---- begin and end ---- */

/* Do the program's calls come to us? Not where it brings a malloc() of its own. (Without a loader that tells whose an address is, we
 * believe it.) */
static bool is_reached(void)
{
    struct module_object our = {0};
    uintptr_t first = (uintptr_t)dlsym(RTLD_DEFAULT, "malloc");
    return module_object_find((uintptr_t)is_reached, &our) < 0 ||
           (first >= our.map_start && first < our.map_end);
}

__attribute__((constructor)) static void track_start(void)
{
    if (!real_wanted())
        return;
    settings_read();
    if (real_ready() && track_phase_now() == TRACK_EARLY && track_settings.off)
        store_release(&track_page.root.phase, TRACK_OFF);
    if (track_phase_now() == TRACK_EARLY)
        track_watch_forks(); /* before there are threads that could fork while a book is made */
    /* Who asked for the book knows by it that nothing was allocated, rather than nothing seen. */
    if (track_settings.keep_pid && track_settings.keep_pid == getpid() && is_reached())
        track_tracker_open();
}

/* A child of fork() that has allocated nothing is mostly about to run another program. */
static bool is_worth_no_book(void)
{
    return track_phase_now() == TRACK_EARLY && early.key.generation > 1 &&
           load_relaxed(&early.calls) == 0;
}

void track_lock_up(void)
{
    if (real_wanted() && !is_worth_no_book())
        (void)track_tracker_open();
    fetch_add_relaxed(&locked_up, 1);
}

void track_unlock(void)
{
    fetch_sub_relaxed(&locked_up, 1);
}

/* At exit a watched book stays for the daemon, others go, but for one of a program that has locked itself up: who makes the next one sweeps. Threads that go on still write into the mapping,
 * which nobody reads any more. */
__attribute__((destructor)) static void track_exit(void)
{
    int saved = errno;
    if (!real_wanted())
        return;
    exiting = true;
    struct tracker *tracker = load_acquire(&track_page.root.tracker);
    if (tracker) {
        struct book_control *control = tracker->writer.control;
        bool watched = control && (load_relaxed(&control->flags) & BOOK_CONTROL_WATCHED);
        book_writer_close(&tracker->writer, watched || load_relaxed(&locked_up) > 0);
    }
    errno = saved;
}
