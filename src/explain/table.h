/* The table `explain` of the query core: one row for each part of the resident memory of a process. Where a book tells which call
 * sites hold the heap, these are its rows: the largest, and one for all others. A question names its
 * processes by pid, since a process costs 15 ms for each GB and its page tables are locked for that long.
 *
 * Programs register the table and put a struct explain_world into the world of a question. Taking blocks: it is no table for a
 * loop. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct explain;
struct explain_sites;
struct query_table;

extern const struct query_table explain_table;

/* A process that the question names. Texts are borrowed. */
struct explain_subject {
    pid_t pid;
    uint32_t uid;               /* its owner; UINT32_MAX: not known, so only root may see it */
    const char *program, *user; /* NULL: not known */
};

struct explain_world {
    const struct explain_subject *subjects;
    size_t n;
    /* Where its memory goes, with what its book tells (explain_live_by(), explain_sites_take()); `ret_sites` is empty before, and
     * stays so where no book tells. 0, or -errno as explain_take_apart(). */
    int (*take)(const struct explain_subject *subject, struct explain *ret_explain,
                struct explain_sites *ret_sites, void *context);
    void *context;
};
