/* What changed between two looks at the ledger: which blocks came, which went, who is gone.
 *
 * A book has counters, which miss nothing, and a table of the blocks that live now. Counters are compared
 * first; only of processes whose counters moved are the blocks read and compared with the last look by
 * (account, id, time, size). What came and went in between is in no table; the counters tell how much it
 * was, so that it becomes one change for each account (CHANGE_UNSEEN) and nothing is lost silently:
 * the changes of an account add up to its counters.
 *
 * Counters are read before the blocks (ledger_refresh(), then changes_look()), so a block that is newer
 * than them is told early and never twice.
 *
 * Costs per look: nothing worth mentioning for processes that did nothing, about 0.1 µs for each live
 * block of the others. Keeps 48 bytes a block. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ledger/ledger.h"

enum {
    CHANGES_BLOCKS_MAX = 4 << 20, /* of one process; those beyond are told by their counters */
    CHANGES_SCAN_MS = 500,        /* for the blocks of one book in one look */
};

struct changes;

enum change_kind {
    CHANGE_ALLOC,  /* a block came */
    CHANGE_FREE,   /* a block went */
    CHANGE_UNSEEN, /* blocks that were in no look: how many came, how many went */
    CHANGE_BEGIN,  /* a process keeps a book now */
    CHANGE_GONE,   /* a process no longer counts */
    CHANGE_HELD,   /* what it held in one account: these follow its GONE */
};

/* Copies: they outlive the ledger's rows. */
struct change_process {
    pid_t pid; /* as we see it; 0: not known */
    pid_t book_pid;
    uint32_t uid;
    uint64_t start_realtime_ns; /* 0: not known */
    char name[64], user[32];
};

/* A device, or the host's memory, with the running sum of all changes told: what living processes hold. */
struct change_place {
    bool host;
    int32_t ordinal;
    char name[64], uid[64], bus[32], machine[64];
    uint64_t bytes[MEMOIR_SPACE_MAX + 1]; /* by space */
};

struct change {
    enum change_kind kind;
    const struct change_process *process;
    const struct change_place *place; /* NULL for BEGIN and GONE */
    uint32_t space;
    uint64_t id, bytes;             /* ALLOC, FREE: the block; GONE, HELD: bytes held at the end */
    uint64_t blocks;                /* GONE, HELD: blocks held at the end */
    uint64_t time_ns;               /* ALLOC, FREE: CLOCK_MONOTONIC when the block was made */
    uint32_t tag;                   /* ALLOC, FREE: in `book`; 0: none */
    const struct ledger_book *book; /* ALLOC, FREE: where the block is or was */
    uint64_t came, came_bytes, went, went_bytes; /* UNSEEN */
    enum ledger_state state; /* GONE: as the ledger saw it, or UNKNOWN: its book is gone */
};

int changes_new(struct changes **ret_changes);
void changes_free(struct changes *changes); /* NULL is fine */
void changes_freep(struct changes **changes);

/* Compare with the last look and tell each change. The first look tells nothing: it is what the others
 * are compared with. Of one process first what went, then what came by age, then what was not seen.
 * `each` is called before the next change is applied, so place->bytes is the sum up to this one; its
 * answer, if not 0, ends the look and is returned, and the rest is lost. Else 0 or -ENOMEM. */
int changes_look(struct changes *changes, struct ledger *ledger,
                 int (*each)(const struct change *change, void *context), void *context);
