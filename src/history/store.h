/* The file of history: an SQLite database that one thread writes and anybody may read at the same time.
 *
 * Points arrive in flushes: what a flush brings becomes one row of `recent`. When a window of the finest tier
 * is over, its rows of `recent` become one chunk a series; when a window of a coarser tier is over, it is
 * made of the chunks of the finer one (last and largest value of each step). Each of these is one
 * transaction, and everything that it needs is in the file: so a writer that was killed loses what it had not
 * flushed, and the next one goes on where it stopped. Nothing of a tier is deleted, by age, before the next
 * one has it.
 *
 * Rows are keyed by window, then series: new ones are appended, old ones go from the front, and one series is
 * read by one lookup a window. doc/history.md has the schema.
 *
 * One thread at a time. Errors are -errno: -ENOSPC for a full disk or quota, -EBADMSG when the file is
 * damaged or not ours; store_error() has SQLite's words. A failed call leaves an open transaction to be
 * rolled back. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "history/sample.h"
#include "history/tier.h"

struct store;

struct store_limits {
    uint64_t bytes_max;             /* of the file, and about of its log */
    uint64_t keep_s[HISTORY_TIERS]; /* at least; a tier may wait for the next one */
};

/* Open or begin the file. Mode 0600, no link is followed. */
int store_open(const char *path, const struct store_limits *limits, struct store **ret_store);

/* Rename a file that store_open() refused with -EBADMSG, and its log, to PATH.bad-TIME; the two latest
 * such are kept. `ret_name` gets the new path. */
enum { STORE_PATH_MAX = 4096 };
int store_set_aside(const char *path, char ret_name[static STORE_PATH_MAX]);

/* Moves the log into the file. An open transaction is rolled back. NULL is fine. */
void store_free(struct store *store);
void store_freep(struct store **store);

void store_set_limits(struct store *store, const struct store_limits *limits);
const char *store_error(const struct store *store); /* of the last failure; borrowed */
uint64_t store_bytes(struct store *store);          /* file and log on disk */

int store_begin(struct store *store);
int store_commit(struct store *store);
void store_rollback(struct store *store); /* fine without a transaction */

/* ---- who: in a transaction; numbers stay the same for the life of the file ---- */

int store_process(struct store *store, const struct sample_process *process, uint64_t boot,
                  uint64_t now_s, int64_t *ret_id);
int store_device(struct store *store, const struct sample_device *device, uint64_t now_s,
                 int64_t *ret_id);
/* `process` and `device` 0: none. */
int store_series(struct store *store, int64_t process, int64_t device, uint32_t space,
                 uint32_t metric, int64_t *ret_id);
/* They were there at that time. */
int store_process_seen(struct store *store, int64_t id, uint64_t now_s);
int store_device_seen(struct store *store, int64_t id, uint64_t now_s);

/* ---- points ---- */

/* A row of `recent` for a window of the finest tier, in a transaction: see recent.h. */
int store_recent(struct store *store, uint64_t window, const void *data, size_t len);

/* While `hold`, nothing is deleted for its age, only for want of room: the clock cannot be relied on (steady.h). */
void store_hold_age(struct store *store, bool hold);

/* Close the windows that ended before `now_s`, and delete what is too old or too much; transactions of
 * its own. About 10 us a series once every window, nothing in between. */
int store_maintain(struct store *store, uint64_t now_s);

/* After -ENOSPC and a rollback: if the file has reached its own limit, and not the disk's, a quarter of it
 * goes, the oldest first. 1 when it is worth another try, else 0 or -errno. */
int store_reclaim(struct store *store);

/* ---- for who reads the same file: store_read.c opens it without any of the above ---- */

/* Is this our schema? 0, -EBADMSG, -ENODATA while it is being begun, or another error. */
struct sqlite3;
int store_check(struct sqlite3 *db);
int store_errno(struct sqlite3 *db, int code);
