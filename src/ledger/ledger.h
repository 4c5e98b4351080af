/* The ledger: all books of the machine, joined with /proc and with each other into plain tables of
 * processes and devices.
 *
 * Two ways to use it. A command takes one picture: ledger_scan(), read the tables, ledger_free(). The
 * daemon keeps one: ledger_new(), then ledger_book_add() and ledger_book_remove() as books come and go,
 * and ledger_refresh() for the figures, which makes no system call (100 books in microseconds).
 *
 * Tables belong to the ledger. Rows stay where they are until the call that removes them; arrays of
 * row pointers are good until the next call that changes the ledger. One thread at a time. Nothing here
 * logs: what could not be read is in the table of problems, and in `valid` bits. A field whose bit is
 * not set is unknown, not 0. Programs call book_guard_install() before. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <memoir/memoir.h>

#include "book/reader.h"

struct ledger_device;
struct ledger;
struct nvml_device;

/* ---- limits: what strangers can make us hold ---- */

enum {
    LEDGER_BOOKS_MAX = 65536, /* default of ledger_options.books_max */
    LEDGER_BOOKS_PER_UID_MAX =
        8192,                  /* default of ledger_options.books_per_uid_max; root has none */
    LEDGER_DEVICES_MAX = 4096, /* merged devices; accounts on further ones are left out */
    LEDGER_DEVICES_PER_UID_MAX = 512, /* of them, first told of by one user; root has no limit */
    LEDGER_ACCOUNTS_MAX = 4096,       /* of one process, joined */
    LEDGER_PROBLEMS_MAX = 256,        /* described ones; all are counted */
    LEDGER_BOOKS_PER_PROCESS_MAX = 16,
    LEDGER_REGIONS_MAX = 1024,              /* of tt-metal; further ones are not read */
    LEDGER_REGIONS_PER_UID_MAX = 256,       /* of them, one user's; root has no limit */
    LEDGER_REGION_SLOTS_PER_UID_MAX = 1024, /* and of their slots; the rest is "unknown" */
};
/* Bytes of one user's books that are mapped, default of ledger_options.mapped_per_uid_max. A writer who
 * takes pages out of his book again makes us pay for those that we read; root has no limit. */
#define LEDGER_MAPPED_PER_UID_MAX (UINT64_C(256) << 20)

struct ledger_options {
    size_t books_max;          /* 0: LEDGER_BOOKS_MAX */
    size_t books_per_uid_max;  /* 0: LEDGER_BOOKS_PER_UID_MAX */
    size_t mapped_per_uid_max; /* 0: LEDGER_MAPPED_PER_UID_MAX */
    bool user_names; /* look up ledger_process.user: NSS may block, so not in a loop thread */
    /* How to read a command line of a process that has no book of its own, "" when it is not known; NULL:
     * from /proc, which waits for the memory of that process, so not in a loop thread. */
    void (*command_read)(void *context, pid_t pid, char *ret_text, size_t size);
    void *command_context;
    const char *regions_dir; /* where tt-metal keeps its regions; NULL: do not look */
    const char *sys_dir;     /* where drivers tell sizes of devices; NULL: /sys */
    /* The size of a memory as root or a driver confirms it, 0: not known. NULL: nothing is known besides sys_dir. */
    uint64_t (*device_size)(void *context, const struct ledger_device *device, uint32_t space);
    void *device_size_context;
};

/* ---- devices ---- */

enum { LEDGER_CLAIMS_MAX = 4 };

/* The size that processes of one user claim for a memory; the largest, if they differ. */
struct ledger_claim {
    uint32_t user; /* base/accountable.h */
    uint64_t bytes;
};

struct ledger_capacity {
    uint32_t space; /* enum memoir_space */
    char name[32];  /* of the space, as the books call it */
    uint64_t
        capacity; /* confirmed, else what all users who claim one agree on; 0: not known, or disputed */
    bool confirmed;    /* by the driver, or by a process of root's */
    bool disputed;     /* a user claims another size than `capacity`, or than another user */
    uint32_t n_claims; /* users who claim one, as far as there is room */
    struct ledger_claim claims[LEDGER_CLAIMS_MAX];
    uint64_t used;   /* live bytes of all processes that still live */
    uint64_t blocks; /* and their live blocks */
    bool sampled;    /* a part of it is an estimate, */
    bool partial;    /* or was counted from some moment on */
};

/* The size as processes of `uid` see it: where it is disputed, their own claim. 0: not known. */
uint64_t ledger_capacity_for(const struct ledger_capacity *capacity, uint32_t uid);

/* One device of the machine. Two processes mean the same one if their uids are equal; where one of them
 * tells no uid, if the bus addresses are; where one tells no bus either, if kind, ordinal and name are. An
 * NPU called "Tenstorrent" has any name. */
struct ledger_device {
    uint32_t index; /* its row in ledger_devices() */
    uint32_t kind;  /* enum memoir_device_kind */
    int32_t
        ordinal; /* the driver's number, else that of the first process that told; others may differ */
    char name[64], uid[64], bus[32];
    char host[64];                                       /* another machine's, or "" */
    struct ledger_capacity spaces[MEMOIR_SPACE_MAX + 1]; /* by space; .space is 0 where unused */
    uint32_t processes;                                  /* that hold something on it */
    const struct nvml_device *driver; /* what its driver says (driver.h); NULL: nothing is known */
};

/* What names one device on all surfaces and on all nodes: its uid; else "BUS@NODE"; else, where nothing tells either,
 * "ORDINAL NAME@NODE". An ordinal alone names no device: it is a process's own numbering. `node` is the machine
 * that the device is in. Returns `text`. */
enum { LEDGER_DEVICE_ID_MAX = 192 };
char *ledger_device_id(char text[static LEDGER_DEVICE_ID_MAX], const char *uid, const char *bus,
                       int32_t ordinal, const char *name, const char *node);

/* ---- processes ---- */

enum ledger_state {
    LEDGER_RUNNING,  /* lives and may report */
    LEDGER_STOPPED,  /* lives, but its accounting ended early: see stop_reason */
    LEDGER_CLOSED,   /* its writer ended in order and left the book */
    LEDGER_EXITED,   /* is gone, its book is still there: the last figures */
    LEDGER_REPLACED, /* its pid lives on as another program (exec): the last figures */
    LEDGER_UNKNOWN,  /* of another machine or boot, or nothing tells */
};

/* Bits of ledger_process.valid. */
enum ledger_field {
    LEDGER_HAS_PID =
        1u << 0, /* pid: in our own pid namespace; of a living process, its owner is proved */
    LEDGER_HAS_START = 1u << 1, /* start_realtime_ns */
    LEDGER_HAS_RSS = 1u << 2,   /* rss_bytes, vms_bytes, shared_bytes */
    LEDGER_HAS_THREADS = 1u << 3,
    LEDGER_HAS_USER = 1u << 4,    /* user, the name; uid is always there */
    LEDGER_HAS_FIGURES = 1u << 5, /* every account could be read at the last refresh */
};

/* One (space, device) of a process: the sum over the books of the source that counts for it. The peak is
 * then the most that it can have been. Transfers may be another source's. */
struct ledger_account {
    struct ledger_device *device; /* NULL: the host's memory, always in spaces below DRAM */
    uint32_t space;               /* enum memoir_space */
    uint32_t source;              /* enum book_source that won */
    uint32_t moves_source; /* enum book_source that totals.moved_* are of; 0: nobody told any */
    bool on_behalf;        /* in a book that a daemon wrote */
    bool partial;          /* counted from some moment on, not from the start */
    bool sampled;          /* an estimate */
    bool valid;            /* totals could be read at the last refresh */
    struct book_totals totals;
    uint64_t capacity;
    /* Live in the parent at fork, and not freed since; in nobody's live_bytes. */
    uint64_t inherited_bytes, inherited_blocks;
    char name[32];
};

struct ledger_book;

/* A process is one exec image of one pid: (boot, pid namespace, pid, start, exec). */
struct ledger_process {
    uint32_t valid; /* enum ledger_field */
    enum ledger_state state;
    uint32_t stop_reason; /* enum book_stop_reason, with LEDGER_STOPPED */

    /* As of ledger_refresh(), and close together since it looks at nothing else. Accounts are sorted by
     * device (host first), then by space. */
    struct ledger_account *accounts;
    size_t n_accounts;
    size_t n_books;
    struct ledger_book *books[LEDGER_BOOKS_PER_PROCESS_MAX];

    pid_t pid;        /* as we see it; LEDGER_HAS_PID */
    pid_t book_pid;   /* in its own namespace, always there */
    pid_t parent_pid; /* in its own namespace, when the book was made */
    uint64_t pid_ns;  /* inode of its namespace; 0: unknown */
    bool foreign_ns;  /* its namespace is not ours */
    bool pid_proved;  /* when last looked at, /proc had that pid with that start time */
    uint64_t start_ticks, exec_id;
    uint64_t start_realtime_ns; /* LEDGER_HAS_START */
    uint64_t book_realtime_ns;  /* when its first book was made */

    uint32_t uid;  /* owner of its books, or of the process where root's daemon wrote them */
    char user[32]; /* LEDGER_HAS_USER */
    char host[64]; /* another machine's, or "" */
    char comm[16];
    char *exe, *command; /* never NULL */
    char name[64];       /* for people: "train.py" for "/usr/bin/python3 train.py" */

    /* As of ledger_update_facts(). */
    uint64_t rss_bytes, vms_bytes, shared_bytes;
    uint32_t threads;

    /* As of ledger_refresh(). */
    uint64_t losses[BOOK_LOSSES_MAX]; /* sum over its books, by enum book_loss */
    uint64_t peak_error;
    uint64_t book_bytes; /* pages that its books take */
    size_t left_out; /* accounts past a limit, of an unknown space, or on a device never told of */
    void *user_data; /* the caller's */
};

/* ---- problems: books that do not count, and why ---- */

enum ledger_problem_kind {
    LEDGER_PROBLEM_UNREADABLE, /* open or map failed: error says why */
    LEDGER_PROBLEM_BAD,        /* the bytes make no sense */
    LEDGER_PROBLEM_NOT_READY,  /* still being made */
    LEDGER_PROBLEM_OWNER,      /* the file's owner is not the process's: not counted */
    LEDGER_PROBLEM_LIMIT,      /* a limit of books was reached: not counted */
    LEDGER_PROBLEM_PLACE,      /* a directory could not be read */
    LEDGER_PROBLEM_KINDS,
};

struct ledger_problem {
    enum ledger_problem_kind kind;
    int error;       /* -errno, or 0 */
    uint32_t uid;    /* whose place it is */
    char where[320]; /* path, cut from the left if need be */
    char what[128];  /* one line for people */
};

/* ---- regions of tt-metal: processes that keep no book of their own ----
 * See doc/tt-metal.md. Their living processes are in the tables like all others; here is what a region says
 * beyond that. */

enum { LEDGER_REGION_SPACES = 5 }; /* dram, l1, l1_small, trace, cb: region_spaces of region.h */

struct ledger_region_part {
    uint32_t processes;
    uint64_t bytes[LEDGER_REGION_SPACES];
};

struct ledger_region {
    char path[320];
    uint32_t uid; /* owner of the file */
    int error; /* -errno of the last poll: -EAGAIN still being made, -EACCES another user's; or 0 */
    uint64_t asic_id;
    uint32_t device_id, version;
    struct ledger_region_part live;
    struct ledger_region_part ghosts; /* slots of the dead: in no total */
    /* Slots of processes that cannot be told: of other pid namespaces, hidden, or past a limit. In no
     * total, and perhaps alive. */
    struct ledger_region_part unknown;
    uint32_t nonsense; /* slots whose values cannot be */
    /* The totals that the region keeps. Updates get lost in them: compare them with the sum of the parts,
     * do not use them. */
    uint64_t told[LEDGER_REGION_SPACES];
};
const struct ledger_region *ledger_regions(const struct ledger *ledger, size_t *ret_n);

/* Look at all regions: new processes get a book (`added` is told, NULL is fine; it may remove it again),
 * known ones new figures, which ledger_refresh() then reads. ledger_scan() does it. About 10 µs a region and
 * 20 µs a process; only lack of memory fails. */
int ledger_regions_poll(struct ledger *ledger,
                        void (*added)(struct ledger_book *book, void *context), void *context);

/* The directory to look in: $MEMOIR_TT_REGIONS (an absolute path; anything else: nowhere), else /dev/shm
 * unless books of one directory only (`dir`, not NULL) were asked for. */
const char *ledger_regions_dir(const char *dir);

/* ---- one picture ---- */

/* All books that we may read: `dir` as --dir (NULL for the usual places), and as root those of other
 * mount namespaces. Fills the tables, facts and user names. Costs about 70 µs a book. What could not
 * be read is in ledger_problems(), so that only lack of memory or of /proc fails. */
int ledger_scan(const char *dir, struct ledger **ret_ledger);

void ledger_free(struct ledger *ledger);
void ledger_freep(struct ledger **ledger);

/* ---- tables ---- */

/* Processes are sorted by pid after ledger_scan(), else in no order. */
struct ledger_process *const *ledger_processes(const struct ledger *ledger, size_t *ret_n);
struct ledger_device *const *ledger_devices(const struct ledger *ledger, size_t *ret_n);
const struct ledger_problem *ledger_problems(const struct ledger *ledger, size_t *ret_n);

/* How often each kind came up, described or not. */
uint64_t ledger_problem_count(const struct ledger *ledger, enum ledger_problem_kind kind);

/* ---- is a process alive? ----
 * All code asks these functions; only life.c and state.c look at `state`. They say what the last
 * ledger_update_state() found: no system call. */

/* The process is known to be there, on this machine or on another. */
bool ledger_process_exists(const struct ledger_process *process);

/* Its figures count: what it reported was not given back, as far as is known. Totals, views, history
 * and the detector leave out the others. */
bool ledger_process_holds(const struct ledger_process *process);

/* It may be probed: `pid` is this process in our own /proc, and its owner is proved. */
bool ledger_process_reachable(const struct ledger_process *process);

/* Its accounting ended early, and it goes on; stop_reason says why. */
bool ledger_process_stopped(const struct ledger_process *process);

/* Its PID lives on as another program (exec). */
bool ledger_process_replaced(const struct ledger_process *process);

/* Of several rows with one PID the one with the lowest number speaks for it: running ones come first,
 * then those whose owner is proved. */
uint32_t ledger_process_precedence(const struct ledger_process *process);
bool ledger_process_before(const struct ledger_process *a, const struct ledger_process *b);

/* By pid as we see it; a running one before others. NULL if there is none. Costs the same however many there are. */
struct ledger_process *ledger_process_find(const struct ledger *ledger, pid_t pid);

/* Those whose books say `book_pid`, one after the other: the one after `after`, which is still there; the
 * first for NULL. Costs the same however many there are in all. */
struct ledger_process *ledger_process_next(const struct ledger *ledger, pid_t book_pid,
                                           const struct ledger_process *after);

/* Words for people. */
const char *ledger_state_name(enum ledger_state state);
extern const char *const ledger_space_words[MEMOIR_SPACE_MAX + 1]; /* NULL where there is none */
const char *ledger_space_name(
    uint32_t space); /* "heap", "dram", "l1", "cb"; "space-9" never dies */
const char *ledger_source_name(uint32_t source); /* "client", "malloc" ... */

/* Do its bytes add to what a process has? Those of user chains lie in buffers that count where they came from; registered ones are
 * host memory that was pinned in place. */
static inline bool ledger_space_adds(uint32_t space)
{
    return space != MEMOIR_SPACE_CHAIN && space != MEMOIR_SPACE_REGISTERED;
}

/* Live bytes and blocks of a process in one space (0: in all), on one device (NULL: on all). false
 * when it has no such account or one could not be read; the sums then hold what could be. */
bool ledger_process_sum(const struct ledger_process *process, uint32_t space,
                        const struct ledger_device *device, uint64_t *ret_bytes,
                        uint64_t *ret_blocks);

/* ---- a book ---- */

struct ledger_book {
    struct book_reader *reader;           /* owned */
    const struct book_identity *identity; /* the reader's */
    struct ledger_process *process;       /* whose it is */
    uint32_t place_uid;
    int dirfd;      /* borrowed from who added it, or -1 for a foreign one */
    char name[128]; /* in dirfd; "" for a foreign one */
    int fd;         /* a foreign one's own descriptor (nobody could open it later), else -1 */
    char path[320]; /* for people */
    struct book_status status; /* as of the last refresh */
    int error;                 /* -errno of the last refresh, or 0 */
    void *user_data;           /* the caller's */
};

/* Where a book is. Everything is borrowed during the call, except `dirfd`, which must stay open until
 * the book is removed. */
struct ledger_where {
    int dirfd; /* with `name`; or -1 and */
    const char *name;
    int fd;            /* a descriptor of the book itself (duplicated), with */
    pid_t hint_pid;    /* the process, as we see it, that maps it; 0: not known */
    uint32_t uid;      /* who may keep books there */
    bool has_payer;    /* in whose limits it counts is told: */
    uint32_t payer;    /* else it is `uid` */
    const char *place; /* path of the directory, for people */
    /* which is removed once this one has come, and so leaves its place in all limits to it; or NULL */
    const struct ledger_book *replaces;
};

/* ---- kept by the daemon ---- */

int ledger_new(const struct ledger_options *options, struct ledger **ret_ledger);

/* Add a book: opens, checks, and joins it to its process, which may be new. 0 and the book; or
 *   -EAGAIN   not ready yet: try again
 *   -EEXIST   known already (same file); ret_book is set to it
 *   -EPERM    its owner may not speak for that process
 *   -EDQUOT   a limit of books was reached, or of what they map
 *   -EMLINK   the file has more than one name: once retired, it would come again
 *   others    could not be opened (-ENOENT: gone again) or make no sense (-EBADMSG)
 * All but -EAGAIN, -EEXIST and -ENOENT are counted as problems. */
int ledger_book_add(struct ledger *ledger, const struct ledger_where *where,
                    struct ledger_book **ret_book);

/* Takes the book away, and its process when it was the last one. */
void ledger_book_remove(struct ledger *ledger, struct ledger_book *book);

/* A book by its file; NULL if it is not there. */
struct ledger_book *ledger_book_find(const struct ledger *ledger, uint64_t dev, uint64_t ino);

/* A descriptor of the book's file (a fresh one, checked to be the same file), for sites and blocks. */
int ledger_book_open(const struct ledger_book *book);

/* Which account of its process each registry record of this book takes part in (what blocks and sites
 * refer to); UINT32_MAX where it is none, or where another source counts. */
void ledger_book_accounts(const struct ledger_book *book, uint32_t ret_accounts[BOOK_RECORDS_MAX]);

/* Is the book's lock held? 1, 0 or -errno: see book_writer_alive(). */
int ledger_book_lock(const struct ledger_book *book);

/* The daemons that watch the book, by enum book_watcher_slot; pid 0 where there is none or where it is
 * known to be dead. -ENODEV for books without a control page. */
int ledger_book_watchers(const struct ledger *ledger, const struct ledger_book *book,
                         struct book_watcher ret_watchers[BOOK_WATCHERS]);

/* What this process would store there. */
int ledger_watcher_self(struct book_watcher *ret_watcher);

/* Somebody may have put another file under the book's name. 0 when the name still is this book,
 * -ENOENT when not (or for a foreign book, which has no name that we follow). */
int ledger_book_check(const struct ledger_book *book);

struct ledger_books {
    struct ledger_book **books;
    size_t n;
};
struct ledger_books ledger_books(const struct ledger *ledger);

/* Read new figures of all books. No system call but the clock. No book gets more than 1 % of the time,
 * nor do all books of one user that took long: these wait for their next turn. Losses, state and size are at most 100 ms old. */
void ledger_refresh(struct ledger *ledger);

/* The same in pieces of about `budget_ns`, for a loop that has other things to do. True when the round
 * is complete (device sums are then new as well), false to be called again. */
bool ledger_refresh_some(struct ledger *ledger, uint64_t budget_ns);

/* The same for one process at once, whatever it costs. */
void ledger_refresh_process(struct ledger *ledger, struct ledger_process *process);

/* Is it alive? Looks at /proc (pid, start time, zombie, uids) and at the books' locks, and sets `state` and
 * `pid`. A PID whose process is not proved to be the books' owners' is taken away (LEDGER_HAS_PID). About 20 µs.
 * EPERM and errors of our own (-EMFILE) are not taken for death. */
enum ledger_state ledger_update_state(struct ledger *ledger, struct ledger_process *process);

/* The cheap half of it, for who is told of deaths in another way (pidfd): has every writer among the
 * process's own books let go of its lock? About 3 µs a book; errors are not taken for it. */
bool ledger_writers_gone(const struct ledger_process *process);

/* Memory and threads from /proc/PID/statm and stat; about 7 µs. Clears the bits of what is unknown. */
void ledger_update_facts(struct ledger *ledger, struct ledger_process *process);
