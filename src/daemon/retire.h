/* The end of a process: its last figures are kept, one line is written, its books are removed. */
#pragma once

#include <stdbool.h>

#include "daemon/cause.h"

struct daemon;
struct ledger_process;

/* What one book may make us read for its largest blocks (10 million of them); larger ones are retired
 * without. */
#define RETIRE_BOOK_BYTES_MAX (UINT64_C(256) << 20)

/* Retire `process`, which is freed. About a millisecond for 100,000 blocks. False when somebody still
 * writes one of its books: then nothing happened, and the caller tries again later. `witnessed`: a pidfd
 * told of its end, so that who holds the lock of a book that it wrote itself is only a child. */
bool retire_process(struct daemon *daemon, struct ledger_process *process, struct cause cause,
                    bool witnessed);
