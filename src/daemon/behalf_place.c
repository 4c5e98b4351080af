/* The directories that books on behalf of users go to, kept open: book_place_open_for() finds them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/accountable.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/log.h"
#include "book/place.h"
#include "daemon/behalf_internal.h"
#include "daemon/daemon.h"

static bool is_removed(const struct behalf_place *place)
{
    struct stat st;
    return fstat(place->dirfd, &st) < 0 || st.st_nlink == 0;
}

static void place_free(struct behalf_place *place)
{
    LIST_REMOVE(place, link);
    close(place->dirfd);
    free(place);
}

int behalf_place_get(struct behalf_table *table, uint32_t uid, bool fresh,
                     struct behalf_place **ret_place)
{
    struct behalf_place *place, *next;
    for (place = LIST_FIRST(&table->places); place; place = next) {
        next = LIST_NEXT(place, link);
        if (place->uid != uid || place->gone)
            continue;
        if (!fresh || !is_removed(place)) {
            *ret_place = place;
            return 0;
        }
        place->gone = true;
        if (place->books == 0)
            place_free(place);
    }
    place = calloc(1, sizeof(*place));
    if (!place)
        return -ENOMEM;
    place->uid = uid;
    place->user = accountable_uid(uid);
    const struct daemon *daemon = table->daemon;
    place->dirfd =
        book_place_open_for(daemon->config.dir[0] ? daemon->config.dir : daemon->own_root, uid,
                            place->path, sizeof(place->path));
    if (place->dirfd < 0) {
        int r = place->dirfd;
        free(place);
        return r;
    }
    LIST_INSERT_HEAD(&table->places, place, link);
    *ret_place = place;
    return 0;
}

uint64_t behalf_user_pages(const struct behalf_table *table, const struct behalf_place *place)
{
    const struct behalf_place *other;
    uint64_t pages = 0;
    LIST_FOREACH(other, &table->places, link)
    if (other->user == place->user)
        pages += other->pages + (uint64_t)other->books * BEHALF_BASE_PAGES;
    return pages;
}

void behalf_place_count(struct behalf_place *place, struct behalf *b, uint32_t pages)
{
    if (!place)
        return;
    place->pages += pages;
    place->pages -= b->pages;
    b->pages = pages;
}

void behalf_place_unref(struct behalf_place *place)
{
    if (place && --place->books == 0 && place->gone)
        place_free(place);
}

void behalf_places_free(struct behalf_table *table)
{
    struct behalf_place *place;
    while ((place = LIST_FIRST(&table->places)))
        place_free(place);
}
