/* Where books on behalf of a user go: DIR/UID, or the first of the usual places that can be had. As root, in
 * the user's own directory, which is made for him; nothing in it is followed, and a directory that is
 * neither his nor ours is left alone. */
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

/* DIR/NAME, made with the owner `uid` if it is not there. A descriptor, or -errno. */
static int make_and_open(const char *directory, const char *name, uint32_t uid)
{
    MEMOIR_CLEANUP(closep)
    int parent = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0)
        return -errno;
    if (fs_is_tmpfs(parent) != 1)
        return -EMEDIUMTYPE;
    if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
        return -errno;
    MEMOIR_CLEANUP(closep)
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    /* One that root made a moment ago, or that a daemon before us made and could not give away. */
    if (st.st_uid == 0 && uid != 0 && geteuid() == 0) {
        if (fchown(fd, uid, (gid_t)-1) < 0)
            return -errno;
        st.st_uid = uid;
    }
    if (st.st_uid != uid || st.st_mode & (S_IWGRP | S_IWOTH))
        return -EPERM;
    return MEMOIR_TAKE_FD(fd);
}

static int open_of(const struct daemon *daemon, uint32_t uid, char *path, size_t size)
{
    char name[32];
    snprintf(name, sizeof(name), "%u", uid);
    const char *root = daemon->config.dir[0] ? daemon->config.dir : daemon->own_root;
    if (root) {
        snprintf(path, size, "%s/%s", root, name);
        return make_and_open(root, name, uid);
    }
    if (geteuid() != 0) {
        int fd = -ENOENT;
        for (unsigned which = 0; which < BOOK_PLACE_CANDIDATES && fd < 0; which++)
            fd = book_place_open(which, path, size);
        return fd;
    }
    snprintf(name, sizeof(name), "memoir-%u", uid);
    snprintf(path, size, "/dev/shm/%s", name);
    return make_and_open("/dev/shm", name, uid);
}

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
    place->dirfd = open_of(table->daemon, uid, place->path, sizeof(place->path));
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
