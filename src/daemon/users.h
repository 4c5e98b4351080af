/* Names of users, from /etc/passwd; those that are not in it are asked for by a helper (user_names.h): NSS may ask the
 * network, and the loop must not wait. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct users;

enum { USERS_MAX = 65536, USERS_LOOK_NS = 1000000000 };

int users_new(struct users **ret_users);
void users_free(struct users *users); /* NULL is fine */

/* Read the file again if it changed, which is looked at once a second at most. */
void users_refresh(struct users *users);

/* NULL: not known, or not yet. Good until the next refresh. */
const char *users_name(const struct users *users, uint32_t uid);

/* The other way; false: not in the file. Names of 32 bytes and more are not found. */
bool users_uid(const struct users *users, const char *name, uint32_t *ret_uid);
