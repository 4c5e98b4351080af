/*
 * leaks_watch.h: watch the books for some time and judge what their sites did.
 */
#ifndef MEMOIR_CLI_LEAKS_WATCH_H
#define MEMOIR_CLI_LEAKS_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct follow;
struct ledger_process;
struct suspects;

struct leaks_watch {
    const char *dir;
    uint64_t for_ns, interval_ns, needs_ns;
    bool all;      /* rows of all verdicts */
    bool progress; /* on stderr, if that is a terminal */
    bool (*wanted)(const struct ledger_process *process, void *context);
    void *context;
};

/* Blocks for that long; Ctrl-C ends it earlier, and what was seen until then is judged. ret_follow keeps the ledger, for
 * names; free it after the suspects. -ENOENT: no wanted process keeps a book, at the first look or at any later one. */
int leaks_watch(const struct leaks_watch *watch, struct follow **ret_follow,
                struct suspects *ret_suspects);

#endif
