/* Who died? A pidfd per process tells within microseconds; where descriptors ran out, a look each
 * refresh does. Exec is seen by the lock that the old image let go. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct daemon;
struct ledger_book;
struct ledger_process;
struct reaper;

int reaper_new(struct daemon *daemon, struct reaper **ret_reaper);
void reaper_free(struct reaper *reaper); /* NULL is fine */

/* A book came. Watches its process, tells the book so, and retires it if its process is dead already:
 * then `book` may be gone when this returns. */
void reaper_add(struct daemon *daemon, struct ledger_book *book);

/* Something about the process changed (a writer closed its book): look now. It may be retired and gone
 * when this returns. */
void reaper_check(struct daemon *daemon, struct ledger_process *process);

/* Each refresh: look at processes in turn, at most REAPER_CHECKS_MAX. */
enum {
    REAPER_CHECKS_MAX = 1000,
    REAPER_TURN_MS = 5, /* of retirements in one turn of the loop; the others wait for the next */
    REAPER_SPARE_FDS = 64,  /* of RLIMIT_NOFILE, or a quarter of a small one: not for pidfds; */
    REAPER_SPARE_SHARE = 3, /* of a large one this part, since connections come before them */
    REAPER_SPARE_FDS_MAX = 16384,
};
void reaper_tick(struct daemon *daemon);

/* The process goes: close what belongs to it. */
void reaper_forget(struct daemon *daemon, struct ledger_process *process);

/* Clear the mark that all books carry. */
void reaper_release_books(struct daemon *daemon);

/* Is its death looked for only at each refresh? */
bool reaper_polls(const struct ledger_process *process);

/* Processes without a pidfd, for want of descriptors. */
size_t reaper_polled(const struct reaper *reaper);
