/* Which user answers for a uid?
 *
 * A user may own a range of subordinate uids (/etc/subuid) and run processes as any of them, in a user namespace. So
 * whatever is limited per user counts by the owner of the range: else each of 65,536 uids would have a share. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The user that is accountable for `uid`: the owner of the subordinate range that it is in, else the uid itself. An
 * account of /etc/passwd is its own. Ranges of root, and of owners without an account, stand for themselves by their first
 * uid: they run what root does not trust. Any thread. Reads both files again when they changed, after a second at
 * the latest; neither NSS nor the network is asked. About 50 ns. */
uint32_t accountable_uid(uint32_t uid);

/* The same as a table, for code that cannot call this, sorted by `first`: the last range that begins at or below a uid
 * answers for it, if it reaches so far. Returns how many of `max` places were filled; further ranges are left out. */
struct accountable_range {
    uint32_t first, last, owner;
};
size_t accountable_ranges(struct accountable_range *ret_ranges, size_t max);

/* ---- for tests ---- */

struct accountable;

/* The ranges of such files. A file that is not there is empty. -ENOMEM. */
int accountable_read(const char *subuid_path, const char *passwd_path,
                     struct accountable **ret_accountable);
void accountable_free(struct accountable *accountable); /* NULL is fine */
uint32_t accountable_find(const struct accountable *accountable, uint32_t uid);
size_t accountable_list(const struct accountable *accountable, struct accountable_range *ret_ranges,
                        size_t max);
