/* Inside the ledger: the rows with what only the ledger itself needs, and the calls between its files. */
#pragma once

#include "ledger/index.h"
#include "ledger/ledger.h"
#include "ledger/pidns.h"

struct book_row {
    struct ledger_book b; /* first, so that a pointer to it is a pointer to the row */
    struct index_node by_file;
    size_t slot;                    /* in ledger.books */
    size_t payer;                   /* in ledger.uids: in whose limits it counts */
    size_t mapped;                  /* bytes that are part of these limits */
    pid_t hint_pid;                 /* who was seen mapping it, as we see it; 0: not known */
    size_t n_devices, n_accounts;   /* of the reader, when its process was joined last */
    struct ledger_device **devices; /* by registry record; NULL where there is none */
    size_t n_records;
    struct book_totals *totals;            /* by the reader's account number */
    const struct book_account_view *views; /* the reader's, as of the last refresh */
    size_t room_totals;
    bool totals_valid;
    bool lock_held;   /* written on somebody's behalf: did its writer live when last looked at? */
    bool passed_over; /* another book that was written on his behalf by the same source counts */
};

/* An account of one book that takes part in an account of its process. */
struct part {
    struct book_row *book;
    size_t index; /* in book_reader_accounts() */
    struct ledger_device *device;
    uint32_t space;
    uint32_t rank;       /* of its source; 0 wins */
    uint32_t moves_rank; /* the same for transfers; of parts with one rank all have the same */
    uint64_t claimed;    /* size of the space as it was told last; 0: not told */
};

struct process_row {
    struct ledger_process p; /* first */
    struct index_node by_identity;
    struct index_node by_pid; /* with LEDGER_HAS_PID */
    size_t slot;              /* in ledger.processes */
    uint8_t boot_id[16];
    uint64_t exec_random; /* 0: no book told it yet */
    bool trusted;      /* one of its books certainly may speak for the process: see owner_check() */
    bool owner_proved; /* when last looked at, the process with its PID was its books' owners' */
    bool owner_refused;       /* it was another user\'s */
    uint64_t proved_start;    /* start time of the process of which that was true; 0: none yet */
    uint64_t next_refresh_ns; /* one that took long is read less often */
    uint64_t status_ns;       /* when losses and sizes were read */
    bool slow;                /* took long the last time that it was timed alone */
    size_t slow_payer;        /* in ledger.uids, with `slow`: where it counts as that */
    bool quick;               /* did not; need not be timed alone */
    bool joined;              /* accounts and parts fit the readers' accounts */
    struct part *parts;       /* sorted by device, space, rank */
    size_t n_parts;
    size_t left_out;    /* accounts that could not be joined */
    size_t *first_part; /* of each account; one more at the end */
};

struct device_row {
    struct ledger_device d; /* first */
    struct index_node by_uid, by_bus, by_name;
    uint32_t creator_uid;
    uint32_t told;         /* one bit for each of d.spaces in use, which are far apart */
    bool claims_changed;   /* ledger_capacities() has to look at it again */
    uint64_t driver_bytes; /* size of its DRAM as the driver told it (driver.h); 0: it did not */
    size_t refs;           /* books that tell of it; the row goes with the last one */
};

struct uid_row {
    uint32_t uid;
    size_t books, devices; /* devices: that he told of first */
    size_t mapped;         /* bytes of his books */
    size_t slow;           /* of his processes, those whose books take long */
    uint32_t region_slots; /* of tt-metal's regions, looked at in this poll */
    size_t maps_left;      /* bytes of /proc/PID/maps that may be read in this poll */
};

struct ledger_driver;

struct ledger {
    struct ledger_options options;
    uint64_t seed;
    uint64_t own_pid_ns; /* 0: unknown */

    struct ledger_book **books;
    size_t n_books, room_books;
    struct index books_by_file;

    struct ledger_process **processes;
    size_t n_processes, room_processes;
    struct index processes_by_identity, processes_by_pid;
    size_t refreshed; /* of them, in the round of ledger_refresh_some() under way */

    struct ledger_device **devices;
    size_t n_devices, room_devices;
    struct index devices_by_uid, devices_by_bus, devices_by_name;

    struct uid_row *uids; /* few: linear; they never go */
    size_t n_uids;

    struct ledger_problem *problems;
    size_t n_problems;
    uint64_t problem_counts[LEDGER_PROBLEM_KINDS];

    struct pidns_map *pidns;
    struct region_set *regions;   /* NULL: none are looked at */
    struct ledger_driver *driver; /* NULL: nothing is known */
    int *dirfds;                  /* opened by ledger_scan(), closed with the ledger */
    size_t n_dirfds;
};

static inline struct book_row *book_row(const struct ledger_book *book)
{
    return (struct book_row *)book;
}
static inline struct device_row *device_row(const struct ledger_device *device)
{
    return (struct device_row *)device;
}
static inline struct process_row *process_row(const struct ledger_process *process)
{
    return (struct process_row *)process;
}

/* ledger.c: the only place that changes a process's PID and LEDGER_HAS_PID. 0: it is not known. */
void ledger_process_pid_set(struct ledger *ledger, struct process_row *row, pid_t pid);

/* ledger.c: the row of a user, made if need be; NULL without memory. */
struct uid_row *ledger_uid(struct ledger *ledger, uint32_t uid);

/* problem.c */
void ledger_problem_add(struct ledger *ledger, enum ledger_problem_kind kind, int error,
                        uint32_t uid, const char *place, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 7, 8)));

/* capacity.c: judge the sizes that processes claim, of devices where something changed. */
void ledger_capacities(struct ledger *ledger);

/* device.c: the merged row of a device that a book of `uid` tells of, with a reference; NULL without
 * room. Unref ends it; NULL is fine. */
struct ledger_device *ledger_device_ref(struct ledger *ledger, const struct book_device_view *view,
                                        const char *host, uint32_t uid);
void ledger_device_unref(struct ledger *ledger, struct ledger_device *device);

/* device.c: give the device another number. */
void ledger_device_number(struct ledger *ledger, struct ledger_device *device, int32_t ordinal);

/* join.c: the first tells whether the writer of a book on somebody's behalf lives, which decides among
 * several of them. */
void ledger_book_note_lock(struct book_row *book, bool held);

/* Among the books that one source wrote on the process's behalf only one counts: is it another one? */
bool ledger_book_passed_over(const struct process_row *row, const struct book_row *book);
int ledger_join(struct ledger *ledger, struct process_row *row);
void ledger_join_release(struct process_row *row);
void ledger_join_totals(struct process_row *row);
void ledger_book_release_devices(struct ledger *ledger, struct book_row *book);

/* state.c: the pid that we see, or 0. */
pid_t ledger_resolve_pid(struct ledger *ledger, const struct book_row *book);
