/* A place that is watched: one directory with books of one user. */
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "book/finder.h"
#include "daemon/watch.h"

/* A book that was not ready. */
struct retry {
    char name[128];
    uint32_t delay_ms;
    uint64_t at_ns;
};

struct place {
    struct book_place where;
    int dirfd; /* checked to be where.uid's, or root's; books refer to it */
    int wd;    /* -1: not listened to */
    bool gone; /* the directory is no more; kept while books refer to it */
    uint64_t dev, ino;

    bool search;     /* wants to be searched */
    DIR *dir;        /* a search under way */
    size_t searched; /* names seen by it */

    char (*queue)[128]; /* names that came by events, WATCH_QUEUE_MAX of them at most */
    size_t n_queue, room_queue;
    struct retry *retries;
    size_t n_retries;

    uint64_t window_ns; /* begin of the second in which `events` are counted */
    uint32_t events;
    uint64_t muted_until_ns; /* 0: not muted */
    bool said_muted, said_limit, said_owner;
};

/* Open and check the directory. -errno; -EPERM when it is neither the user's nor root's. */
int place_new(const struct book_place *where, struct place **ret_place);
void place_free(struct place *place); /* NULL is fine */

/* Remember a name for the next turn. */
void place_queue(struct place *place, const char *name);

/* Remember a book that was not ready. 0, or -ENOSPC when it was tried for long enough. */
int place_retry(struct place *place, const char *name, uint64_t now_ns);
void place_retry_done(struct place *place, const char *name);
bool place_retries(const struct place *place, const char *name);

/* Count an event; true when the place has made too many of them. */
bool place_count_event(struct place *place, uint64_t now_ns);

/* The next name of a search, NULL at its end; and give it up, or be done with it. */
const char *place_search_next(struct place *place);
void place_search_end(struct place *place);
