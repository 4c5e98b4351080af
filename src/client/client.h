/*
 * client.h: the process-wide state behind memoir.h.
 *
 * One struct client per process, found through a page that the kernel wipes in a child after fork
 * (MADV_WIPEONFORK): whoever forked, however, finds no client and starts anew, with its own book.
 * Each thread has a struct client_thread, recycled when the thread ends.
 *
 * Phases only move forward. EARLY: reports are counted in a private image, one at a time under
 * `early_lock`, because most processes end before they are worth a file. OPEN: the book is a file,
 * threads report side by side. OFF: there will be no book, reports are dropped and counted.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "book/script_stack.h"
#include "book/writer.h"
#include "memoir/memoir.h"
#include "site/unwind.h"

enum {
    CLIENT_SITE_CACHE_BITS = 7,
    CLIENT_SITE_CACHE = 1 << CLIENT_SITE_CACHE_BITS,
    CLIENT_TAGS_NESTED = 16,
    CLIENT_PENDING_MAX = 8,        /* reports from signal handlers that interrupted a report */
    CLIENT_EARLY_CALLS = 1000,     /* what makes a process worth a book: so many reports, */
    CLIENT_EARLY_BYTES = 64 << 10, /* so many bytes, or any device memory at all */
    CLIENT_SPACES = MEMOIR_SPACE_MAX + 1,
    CLIENT_STRUCT_MAX = 4096, /* no struct of memoir.h will be larger */
};

enum client_phase {
    CLIENT_EARLY = 0,
    CLIENT_OPEN = 1,
    CLIENT_OFF = 2,
};

enum client_stacks {
    CLIENT_STACKS_CALLER = 0, /* a site is the caller of the report */
    CLIENT_STACKS_ALL = 1,    /* a site is the whole stack */
    CLIENT_STACKS_OFF = 2,
};

enum report_kind {
    REPORT_ALLOC,
    REPORT_FREE,
    REPORT_REALLOC,
    REPORT_TRANSFER,
};

/* A report in full, for the ways that are not the fast one. */
struct report {
    enum report_kind kind;
    int device, space;       /* of a transfer: the source */
    int to_device, to_space; /* of a transfer */
    uint64_t id, new_id;     /* new_id: of a realloc, or the target of a transfer */
    uint64_t bytes;
    uintptr_t caller;
    const struct unwind_state *state; /* where the stack begins, if it is still there */
    int32_t tag;                      /* below 0: the thread's */
};

struct site_cache_entry {
    uint64_t key;      /* return address, or hash of the stack */
    uint64_t identity; /* of the code there: see unwind_identity() */
    uint32_t site;
};

struct client_thread {
    struct client *client;
    uint32_t inside; /* a report is under way; only this thread and its signal handlers look */
    uint32_t n_pending;
    const struct book_control *control; /* of the published book */
    uint32_t tag;                       /* innermost */
    uint32_t n_tags;
    uint32_t tags[CLIENT_TAGS_NESTED];
    int32_t tid;                     /* where nobody tells us that a thread ended; else 0 */
    struct client_thread *next_free; /* under client.threads_lock */
    struct client_thread *next;      /* all of them; constant */
    struct report pending[CLIENT_PENDING_MAX];
    struct site_cache_entry sites[CLIENT_SITE_CACHE];
    struct book_thread book;
    struct script_thread script; /* untouched pages where no script runs */
};

/* What an account holds, inherited memory included. */
struct client_live {
    uint64_t bytes, blocks;
};

struct client {
    uint32_t phase;  /* enum client_phase */
    int error;       /* why it is off */
    uint32_t stacks; /* enum client_stacks; constant */
    uint32_t early_lock;
    uint64_t early_calls, early_bytes; /* under early_lock */
    uint64_t dropped;                  /* reports while off; any thread */
    uint32_t threads_lock;
    struct client_thread *threads, *free_threads;
    struct client_thread *reuse_from; /* where to look for ended threads next */
    uint64_t records_at_fork;         /* how many of live_at_fork are valid: 0 but while we fork */
    struct client_live live_at_fork[BOOK_RECORDS_MAX];
    uint16_t account_of[BOOK_RECORDS_MAX][CLIENT_SPACES]; /* 0: not yet */
    struct book_writer writer;
    struct unwind_cache unwind;
    struct python python; /* the interpreter in this process */
};

/* What the kernel wipes in a child. */
struct client_root {
    struct client *client;
    struct client *fast; /* the same once reports may take the fast way */
    uint32_t making;     /* held by the thread that makes the client */
};

extern struct client_root *client_root; /* never NULL */
extern __thread struct client_thread *client_self;

extern uint64_t client_dropped; /* reports for which there was no client; any thread */
extern bool client_sealed;      /* never wiped: a child of a sealed process is sealed, too */

static inline struct client_root *client_root_now(void)
{
    return load_acquire(&client_root);
}

/* The client and this thread's part of it, made if need be; NULL while that is not possible. */
struct client *client_get(void);
struct client_thread *client_thread_get(struct client *c);

/* Do one report the long way: from any phase, any thread, any signal handler. */
void client_report(struct report *report);

/* Client and thread, inside a report by the long way; NULL if it has to be dropped or (`report` is
 * not NULL) left for later. End with client_end(). */
struct client_thread *client_enter(struct client **ret_client, const struct report *report);

/* Copy a struct that starts with its own size: what the caller's version does not have is zero.
 * False if it is shorter than `least` or absurd. */
bool client_options_take(void *to, size_t size, const void *from, size_t least);

/* Begin and end a stretch in which this thread may change the book; false if it is inside one
 * already. */
bool client_begin(struct client_thread *t);
void client_end(struct client_thread *t);

/* Does a call of ours stand further out on this stack, behind the frame of a signal? We call nobody
 * back, so our code is there twice only then. 1, 0, or -EAGAIN if the stack cannot be read to its
 * end. A few microseconds. */
int client_under_way(struct client *c);

/* Make the file now. Hold early_lock. */
int client_publish(struct client *c);

/* Number of the account; 0 if there is none and none can be made (counted as a loss). */
uint32_t client_account(struct client *c, struct client_thread *t, int device, int space);

static inline struct site_cache_entry *client_site_entry(struct client_thread *t, uint64_t key)
{
    return &t->sites[key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - CLIENT_SITE_CACHE_BITS)];
}

uint32_t client_site_slowly(struct client *c, struct client_thread *t, uint32_t account,
                            uintptr_t pc);

/* User addresses leave the top bits free. */
static inline uint64_t client_site_key(uint32_t account, uintptr_t pc)
{
    return pc ^ (uint64_t)account << 52;
}

/* Site of a report for `account` whose caller returns to `pc`. Code loaded with the program (identity 0) stays
 * what it is, so a hit needs no further question. */
static inline uint32_t client_site(struct client *c, struct client_thread *t, uint32_t account,
                                   uintptr_t pc)
{
    uint64_t key = client_site_key(account, pc);
    const struct site_cache_entry *entry = client_site_entry(t, key);
    if (__builtin_expect(entry->key == key && entry->identity == 0, 1))
        return entry->site;
    return client_site_slowly(c, t, account, pc);
}

/* The whole stack above the function whose state this is. */
uint32_t client_stack_site(struct client *c, struct client_thread *t, uint32_t account,
                           const struct unwind_state *state);

/* After fork: what the child takes over from its parent's book. See fork.c. */
void client_forked(void);
void client_inherit(struct client *c);
void client_watch_forks(struct client *c);

/* "dram", "L1", … */
const char *client_space_name(int space);
