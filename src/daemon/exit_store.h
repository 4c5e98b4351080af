/* The exits that memoird has seen, in STATE/exits.ring (query/exit_file.h): the last ones one by one, what had
 * to give way as sums.
 *
 * Each user but root has a share of a quarter: a user with more of the slots, or of the sums, than that loses its
 * own oldest ones, so that it cannot evict those of others. Adding takes about a microsecond. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "query/exit_file.h"

enum { EXIT_STORE_SHARE = 4 };

struct exit_store;

/* `state_fd` is the state directory (borrowed); -1, or a file that cannot be used, keeps them in memory only:
 * then *ret_error says why (0: it is kept). -ENOMEM. */
int exit_store_new(int state_fd, struct exit_store **ret_store, int *ret_error);
void exit_store_free(struct exit_store *store); /* NULL is fine */

/* Add one; its sequence and check are set here. False when it is known already (same pid and start): two
 * threads that ended at once both told of it; the larger figures are kept. */
bool exit_store_add(struct exit_store *store, const struct exit_record *record);

/* The one with this pid that began at `start_ticks`, or NULL. Good until the next one is added. */
const struct exit_record *exit_store_find(const struct exit_store *store, pid_t pid,
                                          uint64_t start_ticks);

/* All of it, for readers: what is not there has sequence or count 0. */
const struct exit_file *exit_store_file(const struct exit_store *store);
struct exit_file_header *exit_store_header(struct exit_store *store);
