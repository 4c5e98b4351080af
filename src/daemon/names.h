/* Names in a place: which of them are books, which are new, and what becomes of them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct daemon;
struct place;

/* Does it end as a book's name does? */
bool names_is_book(const char *name);

/* Look at up to `budget` names of a place: first those that came by events, then those of a search that
 * is wanted or under way. New books are watched (or retired at once), what was never finished is
 * removed. True when some were not ready and want to be tried again. */
bool names_work(struct daemon *daemon, struct place *place, size_t budget);
