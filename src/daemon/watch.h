/* Where books come from: inotify on every place and on the directories where places appear, a search
 * of the places at start and now and then, and as root a look into other mount namespaces.
 *
 * A place belongs to a stranger. All work on its names is done in pieces, at most WATCH_NAMES_PER_TURN
 * a turn of the loop; a place that makes more than WATCH_EVENTS_MAX events in a second is not listened
 * to for a while but searched once a second. */
#pragma once

#include <stddef.h>

struct daemon;
struct watch;

enum {
    WATCH_NAMES_PER_TURN = 128, /* names looked at before other events get their turn */
    WATCH_EVENTS_MAX = 10000,   /* events a second of one place before it is muted */
    WATCH_QUEUE_MAX = 1024,     /* names of one place that wait; more of them mean a search */
    WATCH_RETRIES_MAX = 64, /* books of one place that are not ready; the rest waits for a search */
    WATCH_RETRY_FIRST_MS = 1,  /* then doubled, up to */
    WATCH_RETRY_LAST_MS = 256, /* and given up after about a second in all */
    WATCH_MUTE_MS = 1000,
    WATCH_PLACES_MAX = 4096,
    WATCH_PLACES_USER_SHARE = 16, /* of them, one part for each user before any gets more */
    WATCH_PLACES_DELAY_MS = 2,    /* new places are looked for at most this often */
    WATCH_PLACES_SHARE = 20,      /* and for one 20th of the time at most */
    WATCH_FOREIGN_MS = 5,         /* other mount namespaces are looked into for so long at a time */
    WATCH_FOREIGN_FIRST_MS = 500, /* before the loop runs */
    WATCH_FOREIGN_SHARE = 20,     /* and for one 20th of the time at most */
};

/* Finds all places and begins to watch them; the first search is done when this returns. */
int watch_new(struct daemon *daemon, struct watch **ret_watch);
void watch_free(struct watch *watch); /* NULL is fine */

/* New intervals after a reload. */
void watch_reconfigure(struct watch *watch);

/* How many places are watched. */
size_t watch_places(const struct watch *watch);
