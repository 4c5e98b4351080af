/* The books of one process, taken out of a ledger for a thread that does not own it.
 *
 * The owner takes a part, which holds descriptors of the books' files and what is known about the process; any
 * thread may make a ledger of its own of it, with that one process, and read as much as it likes. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ledger/ledger.h"

struct part_book {
    int fd;
    uint32_t uid; /* who may keep books there */
    char path[320];
};

struct part {
    pid_t pid; /* as we see it, or 0 */
    uint64_t start_ticks;
    uint32_t uid;
    char name[64];
    char command[512];
    struct part_book books[LEDGER_BOOKS_PER_PROCESS_MAX];
    size_t n;
};

/* About 5 µs a book. Books that cannot be opened any more are left out. */
void part_take(const struct ledger_process *process, struct part *ret_part);
void part_release(struct part *part); /* fine after zeroing */

/* A ledger with this process alone, its figures read. -ESRCH when no book of it could be read. The ledger refers to
 * the part. */
int part_open(const struct part *part, struct ledger **ret_ledger,
              struct ledger_process **ret_process);
