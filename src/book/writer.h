/*
 * writer.h: write a book.
 *
 * This code lives inside strangers' processes: it calls no malloc and no stdio, keeps no
 * descriptor, starts nothing, and every call that can fail leaves the host as it was. Memory comes
 * from mmap. Nothing here looks at errno's old value: callers at the library's edge save it.
 *
 * A writer begins in private memory with the final layout. book_writer_publish() makes the file,
 * copies what is there and goes on in it; until then one caller at a time may use the writer.
 * Afterwards many threads may report at once, each with its own struct book_thread.
 *
 * The file has its final (sparse) size from the start. Pages are opened by mprotect() and
 * MADV_POPULATE_WRITE, which need no descriptor and no privilege, and which fail with an error
 * where a store would raise SIGBUS.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/atomic.h"
#include "book/index.h"
#include "book/layout.h"
#include "book/mapping.h"
#include "book/table.h"

enum {
    BOOK_FOLD_BYTES = 65536, /* a thread's change is folded into the peak at this size, */
    BOOK_RECENT = 16,        /* sites whose counters a thread finds at once */
    BOOK_FOLD_PART = 256,    /* and at this part of the peak where that is more */
    BOOK_SHARDS_MAX = 64,    /* threads with counter pages of their own; others share */
    BOOK_SECTION_KINDS = 15,
    BOOK_TIME_SHIFT = 24, /* of a block's time: 17 ms, and 2.3 years until it stops */
    BOOK_LOCKS_HELD_MAX =
        4, /* the user's, a shard of the block table, the peak's, the writer's own */
    BOOK_ACCOUNT_GROUPS = BOOK_RECORDS_MAX / BOOK_ACCOUNTS_PER_PAGE,
    BOOK_LASTING_MAX = 64, /* modules that are found without the loader */
};

struct book_writer_options {
    uint32_t source; /* enum book_source */
    bool on_behalf;  /* written by a daemon: one thread, small, no control page */
    bool large;      /* eight times the usual address space */
    bool bare;       /* with on_behalf, for bare.h only: no counter pages and no sites; one mapping;
                        the identity stays empty until the daemon fills it in */
};

/* Where blocks of an account and a site are counted. */
struct book_recent {
    uint64_t key; /* lower half of a block's `place`; 0 is no account's */
    struct book_counters *account;
    struct book_site_counters *site;
};

/* One per reporting thread. */
struct book_thread {
    struct book_recent recent[BOOK_RECENT];
    uint32_t shard;
    bool exclusive;  /* nobody else stores into its pages */
    bool growing;    /* this thread is moving entries of the block table */
    uint32_t n_held; /* locks held now, innermost last, so that a torn report can give them back */
    uint32_t *held[BOOK_LOCKS_HELD_MAX];
    struct book_counters *account_pages[BOOK_ACCOUNT_GROUPS];
    struct book_site_counters *site_pages[BOOK_SITES_MAX / BOOK_SITES_PER_PAGE];
};

/* A module that is never unloaded. */
struct book_lasting {
    uintptr_t start, bytes, bias;
    uint64_t key; /* site_key_module() */
    uint64_t number;
};

struct book_writer {
    struct book_header *header;                       /* start of the mapping */
    uint8_t *at[BOOK_SECTION_KINDS];                  /* start of each section, or NULL */
    struct book_section *section[BOOK_SECTION_KINDS]; /* its entry in the header, or NULL */
    struct book_control *control;                     /* NULL if there is none */
    uint64_t map_bytes;
    uint64_t created_ns; /* header.created_monotonic_ns, by the clock of our time namespace */
    uint32_t page_bytes;
    bool single; /* one thread writes: no locks, no atomic adds */
    bool published;
    bool sealed; /* make no system call any more */
    bool
        folds_made_code; /* see fold() in sites.c; set after book_writer_init() by sources that find callers themselves */
    uint32_t lock;          /* everything below and all sections but counters and blocks */
    uint32_t *lost_lock;    /* the last one that was waited for in vain, */
    uint32_t waits_in_vain; /* and how often; any thread, relaxed: it is a guess */
    uint32_t shards;        /* book_threads that got a number */
    struct index sites, tags, scripts; /* private: finds entries again */
    struct index places;               /* and outer parts of stacks: see sites.c */
    uint32_t refused;                  /* page requests to turn down at once after one failed */
    uint64_t *moves_open;              /* one bit per page of MOVES, private memory */
    bool bare;     /* all of the mapping is writable, and of the rest of this only */
    char name[96]; /* BOOK_WRITER_BARE_BYTES are there: up to the first shard */
    struct table table;
    char directory[256];
    struct book_thread common; /* only its site pages: for threads without pages of their own */
    struct book_site_counters *sampled_pages[BOOK_SITES_MAX / BOOK_SITES_PER_PAGE]; /* of all */
    uint32_t peak_lock; /* the next: see peak.h */
    struct book_site_peak *peak_pages[BOOK_SITES_MAX / BOOK_SITES_PER_PAGE];
    uint32_t n_lasting; /* under the lock: */
    struct book_lasting lasting[BOOK_LASTING_MAX];
    uint64_t stack[BOOK_STACK_FRAMES_MAX];         /* the one that is being entered */
    uint32_t n_account_pages[BOOK_ACCOUNT_GROUPS]; /* account pages by group, for sums */
    struct book_counters *account_pages[BOOK_ACCOUNT_GROUPS][BOOK_SHARDS_MAX];
};
#define BOOK_WRITER_BARE_BYTES \
    (offsetof(struct book_writer, table.shard) + sizeof(struct table_shard))

/* ---- life ---- */

/* Prepare a writer in `w` (zeroed by the caller, who owns the storage) with a private image. The
 * identity of this very process is filled in; a daemon overwrites it before it publishes. */
int book_writer_init(struct book_writer *w, const struct book_writer_options *options);

/* Make the file in the first usable place. On failure the private image stays in use. */
int book_writer_publish(struct book_writer *w);

/* The same in a directory that the caller has checked, for books on behalf of others. Sweeps nothing. */
int book_writer_publish_at(struct book_writer *w, int directory);

/* The same in the file `fd` called `name`, a book whose writer is gone: where there is no room for two. Its
 * pages are written over, so nobody else can take them meanwhile; who is killed in between (milliseconds)
 * leaves no book. -EAGAIN: somebody holds its lock; -ENOSPC: it has too few pages and there are no others;
 * in both cases the old book is as it was. Borrows `fd`. In republish.c, for daemons. */
int book_writer_publish_over(struct book_writer *w, int fd, const char *name);

/* Fill an empty file and go on in it: what the above share. */
int book_writer_fill(struct book_writer *w, int fd);

/* End in order: with `leave` the file stays, marked closed, for the daemon; else it is removed. */
void book_writer_close(struct book_writer *w, bool leave);

/* Unmap without touching the file: for a child after fork. */
void book_writer_forget(struct book_writer *w);

/* Did who started this process ask for its book ($MEMOIR_KEEP is its PID), however small and although no
 * daemon watches? Then publish at the first report, a tracker at its start; the exit leaves the book as if it were watched. */
bool book_keep_asked(void);
static inline bool book_writer_wanted(const struct book_writer *w)
{
    return w->control && (w->control->flags_more & BOOK_CONTROL_WATCHED);
}

/* Put a private copy where the book is mapped: for a child of a process that was in the middle of a
 * report, which will go on in the child too. */
void book_writer_detach(struct book_writer *w);

void book_thread_init(struct book_writer *w, struct book_thread *t);

/* Open the first page of everything that a published book and this thread may need, and enter the
 * module that `pc` lies in: after that a sealed writer keeps call sites, tags and counters. */
void book_writer_prepare(struct book_writer *w, struct book_thread *t, uintptr_t pc);

/* ---- the registry ---- */

/* Find or add; the record's number, or -ENOSPC. `device` is matched by uid, or without one by
 * (kind, ordinal). */
int book_device_add(struct book_writer *w, struct book_thread *t, const struct book_device *device);
int book_account_add(struct book_writer *w, struct book_thread *t, uint32_t space, uint32_t device,
                     const char *name);
void book_account_capacity(struct book_writer *w, uint32_t account, uint64_t bytes);
int book_tag_add(struct book_writer *w, struct book_thread *t, const char *name);

/* Number of the site with these return addresses (innermost first) for blocks of this account;
 * BOOK_SITE_NONE if there is no room. About a microsecond: callers keep what they got. Among the addresses
 * may be frames of scripts, BOOK_SCRIPT_FRAME(): no code of a user is at such an address. */
uint32_t book_site_add(struct book_writer *w, struct book_thread *t, uint32_t account,
                       const uintptr_t *pcs, size_t n, uint32_t flags);

/* The same for who enters many stacks that differ in their inner frames only: `places` has for each frame a number that
 * was given before to the same frame with the same ones further out, or 0, and gets the missing ones, if the site is new.
 * They are good for this writer, until a library is unloaded. */
uint32_t book_site_add_at(struct book_writer *w, struct book_thread *t, uint32_t account,
                          const uintptr_t *pcs, size_t n, uint32_t flags, uint32_t *places);

/* A frame of another process, for books on behalf of others. */
struct book_frame {
    /* Where it lies: what a book keeps of a module; `generation` is filled in by the writer. The path is never empty. NULL: in
     * no module; `offset` is then the address. */
    const struct book_module *module;
    /* Not NULL: a line of a script, and no module counts. One without a file is a call of which nothing is known. */
    const struct book_script *script;
    uint64_t
        offset; /* module: the address as in its ELF file, of a return address; script: the line */
};

/* The same as book_site_add() for frames of another process, of which nothing is looked up here. The key is that which the
 * process itself would compute. In sites_of.c. */
uint32_t book_site_add_frames(struct book_writer *w, struct book_thread *t, uint32_t account,
                              const struct book_frame *frames, size_t n, uint32_t flags);

/* The key of such a stack. */
uint64_t book_frames_key(const struct book_frame *frames, size_t n);

/* Copy site number `site` of an older book (reader.h: book_reader_sites()) for blocks of `account` of this one, with the key that
 * it has there: for a writer that takes over what another one left. BOOK_SITE_NONE if there is no such site or no room.
 * In sites_of.c. */
struct book_sites;
uint32_t book_site_adopt(struct book_writer *w, struct book_thread *t, uint32_t account,
                         const struct book_sites *sites, uint32_t site);

/* Number of a function of a script, for BOOK_SCRIPT_FRAME(); 0 if there is no room, which counts as a loss.
 * Strings are terminated, and zero behind their end. */
uint32_t book_script_add(struct book_writer *w, struct book_thread *t,
                         const struct book_script *script);

static inline struct book_account *book_account_at(struct book_writer *w, uint32_t account)
{
    return &((union book_record *)w->at[BOOK_SECTION_REGISTRY])[account].account;
}

/* ---- reports: any thread ---- */

/* report.h has book_alloc() and book_free(). size_tag and place are those of struct book_block. */
void book_realloc(struct book_writer *w, struct book_thread *t, uint64_t old_id, uint64_t new_id,
                  uint64_t size_tag, uint64_t place);
void book_transfer(struct book_writer *w, struct book_thread *t, uint32_t account, uint64_t id,
                   uint64_t bytes, bool into, uint32_t time);
void book_lose(struct book_writer *w, enum book_loss cause);

/* Sum of an account's counters over all threads, freed before allocated. */
void book_account_sum(struct book_writer *w, uint32_t account, struct book_counters *ret_sum);

/* The time of now in the unit of a block; 4 ns, no system call where the kernel has a vDSO. */
static inline uint32_t book_time(const struct book_writer *w)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    uint64_t ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    uint64_t time = (ns - w->created_ns) >> BOOK_TIME_SHIFT;
    return time < UINT32_MAX ? (uint32_t)time : UINT32_MAX;
}

/* ---- for the writer's own files ---- */

/* Room for one more entry of a section whose entry 0 stays empty: its number, or -errno. After it
 * is filled in, book_entry_done() shows it to readers. Hold w->lock. */
int64_t book_entry_next(struct book_writer *w, uint32_t kind, uint64_t most);
void book_entry_done(struct book_writer *w, uint32_t kind, int64_t number);

/* Make the first `bytes` of a section usable. Hold w->lock. */
int book_section_open(struct book_writer *w, uint32_t kind, uint64_t bytes);

/* Private memory for the bits of MOVES. Hold w->lock. */
int book_moves_prepare(struct book_writer *w);
size_t book_moves_bytes(const struct book_writer *w);

/* Call `each` for every stretch of the image that is in use, until it returns non-zero. Leaves out
 * MOVES, which may have holes. */
int book_writer_each_open(const struct book_writer *w,
                          int (*each)(void *context, uint64_t offset, uint64_t bytes),
                          void *context);

/* Pages for the counters of the first accounts and sites; the module around an address. */
void book_counters_prepare(struct book_writer *w, struct book_thread *t);
void book_module_prepare(struct book_writer *w, struct book_thread *t, uintptr_t pc);

/* Use the mapping at `base`, whose header is filled in. */
void book_writer_rebase(struct book_writer *w, void *base);

/* The same for any range; what was open stays as it is. Hold w->lock. */
int book_section_open_range(struct book_writer *w, uint32_t kind, uint64_t offset, uint64_t bytes);
