/*
 * leaks_ask.h: what memoird knows of leaks.
 */
#ifndef MEMOIR_CLI_LEAKS_ASK_H
#define MEMOIR_CLI_LEAKS_ASK_H

#include <stdbool.h>
#include <stdint.h>

struct ledger;
struct ledger_process;
struct suspects;

struct leaks_ask {
    const char *socket;          /* NULL: the usual ones */
    const struct ledger *ledger; /* whose processes `wanted` is asked about */
    bool all;                    /* rows of all verdicts */
    bool soon;                   /* also of sites that were not watched for long enough */
    bool (*wanted)(const struct ledger_process *process, void *context);
    /* The same for a process that keeps no book, of which memoird watches the resident size. */
    bool (*wanted_other)(uint64_t pid, const char *program, void *context);
    void *context;
};

/* 0 and rows without names; -ENODATA when memoird has not watched what is wanted for long enough to tell, and then
 * for how long it has in ret_watched_ns (0: not at all); other -errno when none answers. */
int leaks_ask(const struct leaks_ask *ask, struct suspects *ret_suspects, uint64_t *ret_watched_ns);

#endif
