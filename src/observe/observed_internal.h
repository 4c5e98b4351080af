/* observed_internal.h: what the parts of observed.h share. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "book/writer.h"
#include "observe/live.h"
#include "observe/observed.h"
#include "observe/process_book.h"
#include "observe/stacks.h"
#include "observe/wire.h"
#include "trace/history.h"

enum {
    OBSERVED_CONTEXTS_MAX = 256,
    OBSERVED_DEVICES_MAX = 64,
    OBSERVED_BASELINES_MAX = 16, /* devices of one process */
    OBSERVED_ACCOUNTS_MAX = 128,
    OBSERVED_PENDING_MAX = 512, /* stacks whose call has not been told yet */
    OBSERVED_FREED = 64,        /* blocks freed a moment ago, in case the call fails */
    OBSERVED_STACK_BYTES = WIRE_PAGE * WIRE_STACK_PAGES,
};

/* A call site: a stack, whatever it allocated. Its number is the same in kernel, history and
 * here. */
struct observed_site {
    uint64_t key;
    uint32_t n, flags; /* frames; enum book_site_flags */
    struct book_frame *frames;
    struct book_script *scripts; /* that the frames lead to */
    uint32_t next;               /* in its bucket */
    uint32_t n_entered;
    struct {
        uint32_t account, site; /* of the book */
    } entered[4];               /* the last accounts that it was entered for */
};

/* A stack that was copied, of a call that has not returned. */
struct observed_pending {
    uint32_t tid;
    uint64_t call;
    struct wire_stack *head; /* its bytes are at `bytes` */
    uint8_t *bytes;
    uint32_t n_bytes;
};

struct observed_context {
    uint64_t context;
    int32_t device;
};

struct observed_account {
    uint8_t space;
    int32_t device;
    uint32_t account; /* of the book */
};

struct observed {
    struct observed_options options;
    pid_t pid;
    uint32_t uid, generation;
    uint64_t start_ns;
    uint64_t lost_events, lost_blocks; /* told so far */
    bool stale;                        /* events were lost since the last comparison, */
    bool drained;                      /* and the ring was read since */
    bool compares;
    bool look_due;
    uint64_t compared_ns;

    struct trace_history *history;
    struct live live;
    struct live_block freed[OBSERVED_FREED];

    /* book */
    struct process_book book;
    struct observed_account accounts[OBSERVED_ACCOUNTS_MAX];
    size_t n_accounts;
    struct observed_context contexts[OBSERVED_CONTEXTS_MAX];
    size_t n_contexts, next_context;
    struct {
        int32_t ordinal;
        char uid[64];
    } devices[OBSERVED_DEVICES_MAX]; /* UUIDs that the program was told */
    size_t n_devices;

    /* observed_use.c */
    struct observed_baseline baselines[OBSERVED_BASELINES_MAX];
    size_t n_baselines;
    bool use_due;         /* NVML is to be asked */
    unsigned use_tries;   /* how often it was, for the last context */
    uint64_t use_next_ns; /* not before */
    uint64_t changes;     /* blocks that came or went */
    uint64_t use_changes; /* the same, when NVML was asked */

    /* page faults that were told, by granule: a hash */
    struct observed_granule {
        uint64_t granule, told;
    } granules[4096];
    uint64_t faults;          /* of the process, at the last look */
    uint64_t host_seen[1024]; /* host addresses that were copied, the last ones */

    /* sites */
    struct stack_process *stacks; /* NULL: its memory cannot be read */
    struct observed_site *sites;  /* [0] stays empty */
    uint32_t n_sites, cap_sites;
    uint32_t buckets[1024];
    struct observed_pending pending[OBSERVED_PENDING_MAX];
    size_t n_pending;
};

/* ---- observed_sites.c ---- */

/* The site of an event: the kernel's number, or that of the stack that was copied; 0: not known. */
uint32_t observed_site_of(struct observed *o, const struct wire_event *event);
/* Its number in the book, for blocks of an account. */
uint32_t observed_site_in_book(struct observed *o, uint32_t site, uint32_t account);
/* Let the kernel know where the frames of an interpreter are, as soon as there is one. */
void observed_python_follow(struct observed *o);
void observed_sites_release(struct observed *o);

/* ---- observed_system.c ---- */

/* Tell the page faults of a host range that is copied, before the first copy of it is told. */
void observed_faults_of(struct observed *o, uint64_t address, uint64_t size, uint64_t time_ns);
void observed_system_event(struct observed *o, const struct wire_event *event);

/* Tell an event to the history and to the reader of the stream. */
void observed_tell(struct observed *o, const struct trace_event *event);

/* ---- observed_book.c ---- */

/* 0, or -errno: there is none then. */
int observed_book_open(struct observed *o);
/* Account of a block, entered if need be; 0: it is in no account. */
uint32_t observed_account(struct observed *o, uint8_t class, uint8_t space, uint8_t flags,
                          int32_t device);
void observed_book_alloc(struct observed *o, const struct live_block *block);
void observed_book_free(struct observed *o, const struct live_block *block);
void observed_book_transfer(struct observed *o, const struct live_block *block, uint64_t bytes,
                            bool into, uint64_t time_ns);
/* The UUID that the program was told for its device. */
void observed_device_uuid(struct observed *o, int32_t ordinal, const uint8_t uuid[static 16]);
