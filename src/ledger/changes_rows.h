/* Inside changes: what is kept of each process, and the calls between the files. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ledger/blockset.h"
#include "ledger/changes.h"
#include "ledger/index.h"

/* One (device, space) of a process. `told` is the sum of all changes told, in the counters' own terms. */
struct tally {
    struct change_place *place;
    uint32_t space;
    uint64_t told_came, told_came_bytes, told_went, told_went_bytes;
    struct book_totals last;         /* counters of the last look */
    struct book_totals settled;      /* of the one before */
    uint64_t begun, begun_bytes;     /* blocks that the first look found */
    bool tableless;                  /* its source counts and enters no blocks */
    bool has_blocks;                 /* a block of it was in a table */
    uint64_t missing_ns;             /* since then more came than was found; 0: it did not */
    uint64_t missing, missing_bytes; /* the least of it since then */
};

struct snapshot {
    struct index_node node;
    struct change_process about;
    uint64_t start_ticks, exec_id, pid_ns, book_ns; /* with about.book_pid: who it is */
    uint64_t seen;                                  /* number of the last look that had it */
    bool gone;                                      /* was told, its book is still there */
    bool pending; /* look at its blocks again, whatever the counters say */
    struct tally *tallies;
    size_t n_tallies;
    struct blockset blocks;
    struct {
        uint64_t dev, ino;
    } books[LEDGER_BOOKS_PER_PROCESS_MAX]; /* numbers for block owners */
    size_t n_books;
};

struct event {
    struct blockset_entry block;
    uint32_t tally;
    const struct ledger_book *book;
};

struct events {
    struct event *events;
    size_t n, room;
};

struct changes {
    struct index snapshots;
    uint64_t looks;
    struct change_place **places; /* each on its own: tallies point to them */
    size_t n_places, room_places;
    struct change_place **of_device; /* by ledger_device.index, in the look under way */
    struct change_place *host;
    struct events came, went; /* of the process at hand; kept for their memory */
    int (*each)(const struct change *change, void *context);
    void *context;
};

/* changes_tell.c: tell a change, with the sums brought up to date. Each returns what the caller's function
 * answered. */
int changes_tell(struct changes *c, const struct change *change);
int changes_tell_block(struct changes *c, const struct snapshot *s, enum change_kind kind,
                       const struct event *event);
int changes_tell_unseen(struct changes *c, const struct snapshot *s, struct tally *t);
int changes_tell_gone(struct changes *c, struct snapshot *s, enum ledger_state state);

/* Begin a tally with what is live now. */
void changes_restart(struct tally *t, const struct book_totals *totals);
bool changes_moved(const struct book_totals *a, const struct book_totals *b);

/* changes_blocks.c: read the blocks of a process and put what came and went into c->came and c->went.
 * `tallies` is by the number of the process's account. 1 when that is all of it, 0 when some could not be
 * read, or -ENOMEM. */
int changes_blocks(struct changes *c, struct snapshot *s, const struct ledger_process *p,
                   const uint32_t *tallies);
