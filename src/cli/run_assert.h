/*
 * run_assert.h: what `memoir run --assert` checks at the end of a program: 'peak<200MB'.
 */
#ifndef MEMOIR_CLI_RUN_ASSERT_H
#define MEMOIR_CLI_RUN_ASSERT_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/options.h"

struct buffer;

/* What can be asserted; in the order of the table of names. */
enum run_fact {
    RUN_PEAK,        /* most bytes in use at once on the heap */
    RUN_LIVE,        /* bytes in use at the end, */
    RUN_BLOCKS,      /* and blocks */
    RUN_ALLOCATED,   /* bytes ever, */
    RUN_ALLOCATIONS, /* and blocks */
    RUN_RSS,         /* most bytes resident at once */
    RUN_LOST,        /* bytes that nothing points to at the end; needs a scan, */
    RUN_LOST_BLOCKS, /* and blocks */
    RUN_DURATION,    /* in ns */
    RUN_FACTS,
};

/* What is known at the end, and which site has most of it. A text is "" where there is none. */
struct run_facts {
    bool known[RUN_FACTS];
    uint64_t values[RUN_FACTS];
    char sites[RUN_FACTS][256]; /* "shop.c:79 receipt_print holds 1.6 MB of it" */
};

struct run_assertion {
    enum run_fact fact;
    char operator[3]; /* "<", "<=", ">", ">=", "=", "!=" */
    uint64_t value;
    const char *text; /* as it was given; borrowed */
};

/* Parse NAME OPERATOR VALUE, with or without spaces; values as in the query language. -EINVAL with a sentence in `error`. */
int run_assertion_parse(const char *text, struct run_assertion *ret, struct buffer *error);

/* True if it holds. Else one line for people is appended, without "memoir: ". What is not known does not hold. */
bool run_assertion_check(const struct run_assertion *assertion, const struct run_facts *facts,
                         struct buffer *out);

/* "peak, live, ...", for the manual and for errors. */
extern const char run_assertion_names[];

#endif
