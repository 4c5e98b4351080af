/* Paths of cgroups by their numbers. The kernel tells a number with each exit; the file system of cgroups opens
 * by number what is still there. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EXIT_CGROUPS_MAX = 512 }; /* remembered */

struct exit_cgroups;

int exit_cgroups_new(struct exit_cgroups **ret_cgroups);
void exit_cgroups_free(struct exit_cgroups *cgroups); /* NULL is fine */

/* The path below the top of its hierarchy ("/user.slice/build"), at most size - 1 bytes, the first ones cut off
 * ("...") where it is longer. `v1`: of the memory controller's own hierarchy. False, and `path` untouched, when
 * it is gone or may not be opened. A few microseconds for one that is not known yet. */
bool exit_cgroups_path(struct exit_cgroups *cgroups, uint64_t id, bool v1, char *path, size_t size);
