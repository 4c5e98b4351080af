/* A watched place: its queue, retries and search. See place.h. */
#include "daemon/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

int place_new(const struct book_place *where, struct place **ret_place)
{
    MEMOIR_CLEANUP(closep)
    int fd = open(where->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if ((st.st_uid != where->uid && st.st_uid != 0) || st.st_mode & (S_IWGRP | S_IWOTH))
        return -EPERM;
    struct place *place = calloc(1, sizeof(*place));
    if (!place)
        return -ENOMEM;
    place->where = *where;
    place->dirfd = MEMOIR_TAKE_FD(fd);
    place->wd = -1;
    place->dev = st.st_dev;
    place->ino = st.st_ino;
    place->search = true;
    *ret_place = place;
    return 0;
}

void place_free(struct place *place)
{
    if (!place)
        return;
    if (place->dir)
        closedir(place->dir);
    close(place->dirfd);
    free(place->queue);
    free(place->retries);
    free(place);
}

void place_queue(struct place *place, const char *name)
{
    if ((place->search && !place->dir) || strlen(name) >= sizeof(*place->queue))
        return; /* the search to come finds it; no book of ours has so long a name */
    if (place->n_queue == place->room_queue) {
        size_t room = place->room_queue ? place->room_queue * 2 : 16;
        char(*queue)[128] =
            room > WATCH_QUEUE_MAX ? NULL : realloc(place->queue, room * sizeof(*queue));
        if (!queue) {
            /* From the start: one under way may have passed the place where the name stands. */
            place_search_end(place);
            place->search = true;
            return;
        }
        place->queue = queue;
        place->room_queue = room;
    }
    strcpy(place->queue[place->n_queue++], name);
}

static struct retry *retry_find(const struct place *place, const char *name)
{
    for (size_t i = 0; i < place->n_retries; i++)
        if (strcmp(place->retries[i].name, name) == 0)
            return &place->retries[i];
    return NULL;
}

bool place_retries(const struct place *place, const char *name)
{
    return retry_find(place, name);
}

/* A slot for a new retry. When all are taken, the one that was tried most often gives way: junk that
 * will never be ready must not keep a fresh book out. */
static struct retry *retry_slot(struct place *place)
{
    if (!place->retries)
        place->retries = calloc(WATCH_RETRIES_MAX, sizeof(*place->retries));
    if (!place->retries)
        return NULL;
    if (place->n_retries < WATCH_RETRIES_MAX)
        return &place->retries[place->n_retries++];
    struct retry *worst = &place->retries[0];
    for (size_t i = 1; i < place->n_retries; i++)
        if (place->retries[i].delay_ms > worst->delay_ms)
            worst = &place->retries[i];
    return worst;
}

int place_retry(struct place *place, const char *name, uint64_t now_ns)
{
    struct retry *retry = retry_find(place, name);
    if (!retry) {
        retry = strlen(name) < sizeof(retry->name) ? retry_slot(place) : NULL;
        if (!retry)
            return -ENOSPC;
        strcpy(retry->name, name);
        retry->delay_ms = WATCH_RETRY_FIRST_MS;
    } else if (now_ns < retry->at_ns) {
        return 0; /* a search came by: the time that was set for it stands */
    } else {
        retry->delay_ms *= 2;
        if (retry->delay_ms > WATCH_RETRY_LAST_MS) {
            place_retry_done(place, name);
            return -ENOSPC;
        }
    }
    retry->at_ns = now_ns + retry->delay_ms * NS_PER_MS;
    return 0;
}

void place_retry_done(struct place *place, const char *name)
{
    struct retry *retry = retry_find(place, name);
    if (retry)
        *retry = place->retries[--place->n_retries];
}

bool place_count_event(struct place *place, uint64_t now_ns)
{
    if (now_ns - place->window_ns > NS_PER_S) {
        place->window_ns = now_ns;
        place->events = 0;
    }
    return ++place->events > WATCH_EVENTS_MAX;
}

const char *place_search_next(struct place *place)
{
    if (!place->dir) {
        /* A descriptor of its own, because reading moves its position. */
        int fd = openat(place->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        place->dir = fd < 0 ? NULL : fdopendir(fd);
        if (!place->dir) {
            if (fd >= 0)
                close(fd);
            return NULL;
        }
        place->searched = 0;
    }
    struct dirent *entry = readdir(place->dir);
    if (entry) {
        place->searched++;
        return entry->d_name;
    }
    closedir(place->dir);
    place->dir = NULL;
    return NULL;
}

void place_search_end(struct place *place)
{
    place->search = false;
    if (place->dir)
        closedir(place->dir);
    place->dir = NULL;
}
