/* Books that memoird writes on behalf of processes which report over a socket.
 *
 * One per (process, source), made at the first report that needs it, so that the ledger and every reader see
 * socket clients as they see all others, and a killed daemon loses nothing. The book lies in the place of
 * the process's user; it counts until the process dies or calls exec (the reaper sees to both, whoever is
 * connected), or, for one of another machine, stays away for too long after its last connection closed.
 *
 * After a restart the books of the dead daemon still count. behalf_get() adopts: what such a book says is
 * copied into a fresh one, which replaces it before it is read.
 *
 * Small and with one thread in mind: a few kB of private memory and one mapping each. Reports are plain
 * stores, about 20 ns, and make system calls only when the book grows. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <memoir/memoir.h>

#include "book/layout.h"

struct behalf;       /* one book */
struct behalf_table; /* all of them: daemon->behalf */
struct daemon;
struct ledger_book;

enum {
    BEHALF_DEVICES_MAX = 64, /* of one book */
    BEHALF_IDLE_MS = 500,    /* without reports, then its pages are given back to the page cache */
};

/* Live bytes of one account: more than all machines have together, and far from where sums end. */
#define BEHALF_ACCOUNT_BYTES_MAX (UINT64_C(1) << 56)

int behalf_table_new(struct daemon *daemon, struct behalf_table **ret_table);

/* Lets go of all books, which stay and go on counting. NULL is fine. */
void behalf_table_free(struct behalf_table *table);

/* A book is about to leave the ledger: nothing is written into it any more. Does nothing for those that
 * are not ours. */
void behalf_book_gone(struct ledger_book *book);

/* ---- whose ---- */

/* A process of this machine, as we see its pid; or one of another. */
struct behalf_subject {
    uint32_t source;      /* BOOK_SOURCE_SOCKET, or another one that a daemon writes */
    pid_t pid;            /* of this machine: /proc has the rest, if it is still the one that */
    uint64_t start_ticks; /* began then (0: any process with the pid), */
    uint32_t speaker;     /* and this user's, by real and effective uid; 0: any user's */

    /* With a `host` the process runs there, and nothing can be looked up. */
    const char *host;  /* NULL: this machine */
    uint32_t uid;      /* who answers for it here */
    const char *token; /* that it came with, in whose limits the book counts; NULL: in the user's */
    uint64_t exec_id;
    const char *comm, *exe, *command; /* NULL: not told */
};

/* The book of a process, with a reference (one per connection that uses it). Makes or adopts it if need
 * be: about 100 µs, and for an adopted one 0.2 µs for each live block. -ESRCH: no such process (any more);
 * -EPERM: not the speaker's, or a daemon that is not root's, which writes only for its own user's
 * processes; -EDQUOT: a limit of books; -EBUSY: a book of another daemon cannot be taken over now, try
 * again later; others: no room for the file. */
int behalf_get(struct daemon *daemon, const struct behalf_subject *subject,
               struct behalf **ret_behalf);

/* Give a reference back. With the last one a process that was replaced by exec is retired, and one of
 * another machine has remote-expire to come back. NULL is fine. */
void behalf_unref(struct behalf *behalf);

/* False once the process is gone and the book retired: every call below then does nothing, so holders may
 * look when they like and should unref. A later behalf_get() makes another one. */
bool behalf_alive(const struct behalf *behalf);

pid_t behalf_pid(const struct behalf *behalf); /* as we see it; 0 for one of another machine */
uint32_t behalf_uid(const struct behalf *behalf);
struct ledger_book *behalf_book(const struct behalf *behalf); /* in daemon->ledger; NULL: gone */

/* ---- reports ----
 * A device is known by the number that behalf_device() gave (MEMOIR_HOST is 0), an account by that of
 * behalf_account(): callers who count nanoseconds keep these. Numbers are those of the book's registry and
 * survive adoption only by being asked for again. */

struct behalf_device {
    uint32_t kind; /* enum memoir_device_kind */
    int32_t ordinal;
    const char *name, *uid, *bus; /* NULL: not told; cut to fit */
    const struct memoir_capacity *capacity;
    size_t n_capacity;
};

/* Find or enter a device, and set the capacities that are told. Its number (1 and up); -ENOSPC when the
 * book has no room. */
int behalf_device(struct behalf *behalf, const struct behalf_device *device);

/* Capacity of one space, 0 to forget it. -EINVAL for a device or space that does not exist. */
int behalf_capacity(struct behalf *behalf, int device, int space, uint64_t bytes);

/* The account of a space on a device; spaces below MEMOIR_SPACE_DRAM are the host's whatever the device.
 * -EINVAL, -ENOSPC. */
int behalf_account(struct behalf *behalf, int device, int space);

/* The same if it is there, by what the program calls the device. -ENOENT. */
int behalf_account_lookup(const struct behalf *behalf, uint32_t kind, int32_t ordinal, int space);

/* Number of a tag, 0 for NULL, "" or when there is no room (which is counted). */
uint32_t behalf_tag(struct behalf *behalf, const char *name);

/* A block. Reporting a live id again replaces it (loss "replaced"). -EINVAL: size of 2^48 or more, or no
 * such account (loss "bad argument"); -EDQUOT: buffers-per-client-max or BEHALF_ACCOUNT_BYTES_MAX reached,
 * nothing counted (loss "limit"); -ENOSPC: no pages for its entry, nothing counted (loss "blocks full"). */
int behalf_alloc(struct behalf *behalf, uint32_t account, uint64_t id, uint64_t bytes,
                 uint32_t tag);

/* -ENOENT: never reported or freed already (loss "unknown free"). ret_bytes (may be NULL): what it held. */
int behalf_free(struct behalf *behalf, uint32_t account, uint64_t id, uint64_t *ret_bytes);

/* A report about that block will follow: for who has many at hand. Once far ahead, and once when it comes
 * near, then saying what it will be. */
enum behalf_ahead { BEHALF_AHEAD_FAR, BEHALF_AHEAD_ALLOC, BEHALF_AHEAD_FREE };
void behalf_prefetch(const struct behalf *behalf, uint32_t account, uint64_t id,
                     enum behalf_ahead ahead);

/* For ids that are one block of their device, whatever its space: `accounts` are those of the device's spaces
 * that share ids, 0 for one that is not made yet. Allocating replaces the id wherever it lives; freeing finds
 * it in any of them, and counts nothing where it is in none (-ENOENT). One search each. */
int behalf_alloc_among(struct behalf *behalf, uint32_t account, const uint16_t *accounts,
                       uint32_t n, uint64_t id, uint64_t bytes);
int behalf_free_among(struct behalf *behalf, const uint16_t *accounts, uint32_t n, uint64_t id);

/* Bytes moved into or out of an account; `id` 0: no block in particular. -ENOENT for an unknown one (loss
 * "unknown move"; the bytes count all the same). */
int behalf_transfer(struct behalf *behalf, uint32_t account, uint64_t id, uint64_t bytes,
                    bool into);

/* Something that was not accounted. */
void behalf_lose(struct behalf *behalf, enum book_loss cause, uint64_t n);

/* Everything freed, as if by the process: for a client that says it starts anew. Losses and totals stay.
 * Returns how many blocks that were. */
uint64_t behalf_drop(struct behalf *behalf);

/* ---- who wants to know ---- */

enum behalf_event_kind { BEHALF_ALLOC, BEHALF_FREE, BEHALF_MOVED_IN, BEHALF_MOVED_OUT };

/* A report that was accounted. */
struct behalf_event {
    enum behalf_event_kind kind;
    uint32_t account, space;
    bool has_device; /* false: the host's memory */
    int32_t ordinal; /* of the device */
    uint64_t id, bytes;
    const char *tag; /* "" without one */
};

/* Call for every report, of all books, from now on; NULL: no listener. One at a time. */
void behalf_listen(struct behalf_table *table,
                   void (*call)(void *context, const struct behalf *behalf,
                                const struct behalf_event *event),
                   void *context);

/* ---- figures ---- */

/* Make the ledger's figures of processes that reported since the last call as of now, whatever it thinks of
 * how long that takes: it leaves out books that were slow to read, and a busy machine makes any look slow. */
void behalf_refresh(struct behalf_table *table);

struct behalf_figures {
    uint64_t live_bytes, live_blocks;
    uint64_t alloc_bytes, alloc_blocks;
    uint64_t freed_bytes, freed_blocks;
    uint64_t peak_bytes;
    uint64_t capacity;
};
/* Of one account, as of now. -EINVAL if it does not exist. */
int behalf_figures(const struct behalf *behalf, uint32_t account,
                   struct behalf_figures *ret_figures);
uint64_t behalf_blocks(const struct behalf *behalf); /* live, in all accounts */
uint64_t behalf_losses(const struct behalf *behalf, enum book_loss cause);

/* ---- sessions ----
 * A client that numbers its reports can send those again that were not acknowledged when a daemon died. The
 * number of the last one that was applied is kept in the book and outlives us. Store it after the reports
 * it stands for: who dies in between gets them twice, which leaves the figures right (an id that is
 * reported again replaces itself). A session is one run of a client; a book
 * knows the last BOOK_SESSIONS_MAX, another id begins anew at 0. */
uint64_t behalf_session_seq(const struct behalf *behalf, uint64_t session_id); /* 0: none applied */
void behalf_session_applied(struct behalf *behalf, uint64_t session_id, uint64_t seq);
