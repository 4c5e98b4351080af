/* The book of a process that only tt-metal's regions tell of.
 *
 * It is an ordinary book (doc/book.md) in memory that has no name, written on the process's behalf with
 * source REGION and added to the ledger by its descriptor: so joining, precedence among sources and every
 * view treat the process like all others. A region has figures and no blocks, so the book has a registry
 * and nothing else; what an account holds counts as one block. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "ledger/region.h"

struct region_book;

struct region_book_subject {
    pid_t pid; /* of our own pid namespace */
    uint32_t uid;
    uint64_t start_ticks, pid_ns;
    void (*command_read)(void *context, pid_t pid, char *ret_text,
                         size_t size); /* as in ledger_options */
    void *command_context;
};

int region_book_new(const struct region_book_subject *subject, struct region_book **ret_book);
void region_book_free(struct region_book *book); /* NULL is fine */

/* Borrowed: for ledger_book_add(). */
int region_book_fd(const struct region_book *book);

/* The figures of one device. -ENOSPC past REGION_BOOK_DEVICES_MAX devices. */
enum { REGION_BOOK_DEVICES_MAX = 256 };
int region_book_set(struct region_book *book, uint64_t asic_id, uint32_t device_id,
                    const uint64_t bytes[REGION_SPACES]);

/* Figures that were not set since region_book_begin() become 0: the process has closed that device. */
void region_book_begin(struct region_book *book);
void region_book_end(struct region_book *book);
