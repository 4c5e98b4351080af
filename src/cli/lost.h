/*
 * lost.h: `memoir leaks --scan`: the heap blocks of a tracked process that nothing points to any more.
 */
#ifndef MEMOIR_CLI_LOST_H
#define MEMOIR_CLI_LOST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/table.h"

struct buffer;

struct lost_request {
    const char *word; /* a PID, or the name of the only such program */
    pid_t borrowed;   /* a thread of it that we trace and that stands still; 0: stop them all */
    const char *dir;  /* of books, or NULL */
    uint64_t top;     /* rows at most; 0: all */
    bool all;         /* also what is reachable, and what was there before fork */
    bool check;       /* end with 1 when something is lost */
    bool no_header, no_sites;
    bool quiet; /* no word where it is not tracked: the code tells */
    int color;
    int terminal;                     /* descriptor that `text` is for */
    struct buffer *text, *json, *csv; /* each may be NULL; appended to */
};

/* Look, and tell what was found. An exit code, after a word on stderr where it is no good one (but for `quiet`); -errno. */
int lost_report(const struct lost_request *request);

/* For the manual. */
extern const struct column lost_columns[];

#endif
