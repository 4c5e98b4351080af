/* Names of users that /etc/passwd does not have: NSS knows them (LDAP, SSSD, winbind).
 *
 * NSS may ask the network and hang, so a child asks it (base/apart.h), for all users that came up since the last one, on a
 * thread that exists only meanwhile. Until the answer is there, and where there is none, a user has no name. */
#pragma once

#include <stdint.h>

struct user_names;

enum {
    USER_NAMES_MAX = 4096,    /* of users kept; further ones stay numbers */
    USER_NAMES_ASK_MS = 5000, /* for one child, which is killed then */
    USER_NAMES_AGAIN_S = 300, /* a user without a name is asked for again after so long */
    USER_NAMES_BYTES = 64,
};

/* Fill in the name of `uid`: 0 or -errno. Runs in the child. NULL for getpwuid_r(). */
typedef int user_names_fn(uint32_t uid, char ret_name[static USER_NAMES_BYTES]);

int user_names_new(user_names_fn *look, uint64_t ask_ms, struct user_names **ret_names);
void user_names_free(
    struct user_names *names); /* NULL is fine; a thread that still waits frees the rest */

/* NULL: not known, or not yet. Never waits. One thread at a time. The text stays as long as `names`. */
const char *user_names_of(struct user_names *names, uint32_t uid);
