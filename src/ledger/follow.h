/* A kept ledger that finds its books by itself: for commands that look again and again without a daemon.
 *
 * A look lists the places, adds books that are new, removes those whose name is gone, polls regions of
 * tt-metal, reads new figures and finds out who died. Books that are known are not opened again, so one
 * costs about 10 µs a look, where ledger_scan() takes 70. */
#pragma once

#include <stdbool.h>

struct follow;
struct ledger;

/* `dir` as --dir (NULL for the usual places); copied. */
int follow_new(const char *dir, struct follow **ret_follow);
void follow_free(struct follow *follow); /* NULL is fine */
void follow_freep(struct follow **follow);

/* The ledger, empty before the first look; rows are good until the next one. */
struct ledger *follow_ledger(const struct follow *follow);

/* Look. `facts`: also memory and threads of every process, from /proc (7 µs each). What cannot be read is
 * in the ledger's problems; only lack of memory fails. */
int follow_look(struct follow *follow, bool facts);

/* Does a daemon watch any of these books? */
bool follow_watched(const struct follow *follow);
