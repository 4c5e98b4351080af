/*
 * buffers.h: live blocks of all processes: which are wanted, in which order, and how they look.
 *
 * There may be millions. With a limit only the best ones are kept (a heap), without one 48 bytes for each;
 * words (tags, call sites) are copied per book, and rows are printed in pieces.
 */
#ifndef MEMOIR_CLI_BUFFERS_H
#define MEMOIR_CLI_BUFFERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/table.h"
#include "profile/book_names.h"

struct buffer;
struct json;
struct ledger;
struct ledger_account;
struct ledger_device;
struct site_names;

enum { BUFFERS_KEPT_MAX = 64 << 20 }; /* 3 GB; those beyond are counted, not shown */

enum buffers_key {
    BUFFERS_BY_SIZE, /* large first */
    BUFFERS_BY_AGE,  /* old first */
    BUFFERS_BY_MOVES,
    BUFFERS_BY_ID,
    BUFFERS_BY_PID,
    BUFFERS_BY_TAG,
};

/* Which blocks; 0 and NULL: any. */
struct buffers_filter {
    uint64_t pid;
    const char *device; /* see devices_match(); "host" for the host's memory */
    uint32_t space;     /* enum memoir_space */
    const char *tag;
    uint64_t min_bytes;
    uint64_t min_age_ns;
    enum buffers_key key;
    bool reverse;
    size_t limit; /* 0: all */
};

struct buffers_row {
    uint64_t id, bytes, time_ns;
    uint32_t book;    /* in buffers.books */
    uint32_t account; /* of its process */
    uint32_t site, tag, moves;
};

struct buffers {
    struct buffers_row *rows; /* sorted */
    size_t n, room;
    struct book_names *books;          /* `book` is NULL in those whose words could not be read */
    const struct ledger_book **owners; /* by the same number */
    size_t n_books;
    uint64_t matched, matched_bytes; /* in all, also those past the limit */
    uint64_t oldest_ns;              /* of them: when it was made; UINT64_MAX: there is none */
    size_t processes;                /* that have some */
    uint64_t left_out;               /* past BUFFERS_KEPT_MAX */
    size_t inexact;  /* books that were being reordered: some blocks may be missing */
    uint64_t now_ns; /* CLOCK_MONOTONIC */
};

/* Read the blocks of all books that can match. The ledger stays as it is while the result is used.
 * Processes that are gone take part only if their pid is asked for. */
int buffers_take(const struct ledger *ledger, const struct buffers_filter *filter,
                 struct buffers *ret_buffers);
void buffers_release(struct buffers *buffers);

extern const struct column buffers_columns[];

/* Rows `first` to `first + n` as rows of a table of buffers_columns. `symbols` may be NULL. */
void buffers_rows(struct buffers *buffers, size_t first, size_t n, struct site_names *symbols,
                  struct table *table);

#endif
