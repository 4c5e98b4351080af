/* The end of a process: its last figures are kept, one line is written, its books are removed. */
#pragma once

#include <stdbool.h>

#include "daemon/cause.h"

struct daemon;
struct ledger_process;

/* What the books of one process may make us read for its largest blocks; larger ones are retired without,
 * and where the time was over the record has the largest of those that were looked at. */
#define RETIRE_BOOK_BYTES_MAX (UINT64_C(256) << 20) /* 10 million blocks */
#define RETIRE_SITES_BYTES_MAX \
    (UINT64_C(64) << 20) /* for the words about the blocks that were kept */
enum {
    RETIRE_SCAN_MS = 50,
    RETIRE_HELD_MAX = 1 << 19, /* blocks in memory, of a book that is still being changed */
    /* Lines and records of one user: so many at once, and as many again in this time. Beyond it
     * processes are retired without either. */
    RETIRE_RECORDS_MAX = 1000,
    RETIRE_RECORDS_REFILL_S = 100,
};

/* Tell of those that were retired without a word; each refresh. */
void retire_tell(struct daemon *daemon);

/* Retire `process`, which is freed. About a millisecond for 100,000 blocks. False when a writer still
 * writes one of its books: then nothing happened, and the caller tries again later. `witnessed`: a pidfd
 * told of its end, so that who holds the lock of a book that it wrote itself is only a child. */
bool retire_process(struct daemon *daemon, struct ledger_process *process, struct cause cause,
                    bool witnessed);
