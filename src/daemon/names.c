/* Names in a place, one by one. See names.h. */
#include "daemon/names.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/place.h"
#include "daemon/reaper.h"
#include "ledger/ledger.h"

bool names_is_book(const char *name)
{
    size_t len = strlen(name);
    return len > 5 && strcmp(name + len - 5, ".book") == 0;
}

/* Warn once per place, not once per book: a user that fills its directory must not fill our log. */
static void say_refused(struct place *place, int error, const char *name)
{
    if (error == -EDQUOT) {
        if (!place->said_limit)
            log_warn("too many books in '%s': those beyond the limit are not watched",
                     place->where.path);
        place->said_limit = true;
    } else if (error == -EPERM && !place->said_owner) {
        place->said_owner = true;
        log_warn("book '%s/%s' is ignored: its owner may not speak for that process",
                 place->where.path, name);
    } else {
        log_debug("book '%s/%s' is ignored: %s", place->where.path, name, strerror(-error));
    }
}

/* Was it changed longer ago than the time between two searches of all places? A time in the future comes from a
 * clock that was wrong, and counts by its distance, too. */
static bool is_old(const struct daemon *daemon, const struct stat *st)
{
    uint64_t now = clock_real_ns();
    uint64_t changed = (uint64_t)st->st_ctim.tv_sec * NS_PER_S + (uint64_t)st->st_ctim.tv_nsec;
    return (now > changed ? now - changed : changed - now) >= daemon->config.rescan_ns;
}

/* Remove a file that its maker has not finished since the last search of all places: the maker died. It is a
 * process of the place's user, or a memoird of our own user that made a book on behalf of one. */
static bool remove_stillborn(const struct daemon *daemon, const struct place *place,
                             const char *name)
{
    struct stat st;
    if (!book_name_check(name) || fstatat(place->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISREG(st.st_mode) || (st.st_uid != place->where.uid && st.st_uid != geteuid()) ||
        !is_old(daemon, &st))
        return false;
    MEMOIR_CLEANUP(closep)
    int fd = openat(place->dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) < 0)
        return false; /* its maker holds the lock, so it lives */
    if (unlinkat(place->dirfd, name, 0) < 0)
        return false;
    log_debug("removed '%s/%s', which was never finished", place->where.path, name);
    return true;
}

/* True when it was not ready and will be tried again. */
static bool try_name(struct daemon *daemon, struct place *place, const char *name)
{
    struct ledger_where where = {
        .dirfd = place->dirfd,
        .name = name,
        .fd = -1,
        .uid = place->where.uid,
        .place = place->where.path,
    };
    struct ledger_book *book;
    int r = ledger_book_add(daemon->ledger, &where, &book);
    if (r == -EAGAIN && !remove_stillborn(daemon, place, name))
        return place_retry(place, name, clock_monotonic_ns()) >= 0;
    place_retry_done(place, name);
    if (r == 0)
        reaper_add(daemon, book);
    else if (r != -EEXIST && r != -ENOENT && r != -EAGAIN)
        say_refused(place, r, name);
    return false;
}

static bool known_name(struct daemon *daemon, const struct place *place, const char *name)
{
    struct stat st;
    if (fstatat(place->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return true; /* gone, or nothing that could be a book */
    return ledger_book_find(daemon->ledger, st.st_dev, st.st_ino);
}

/* The next name of the search that may be a new book; NULL when this piece of it is over. */
static const char *search_next(struct daemon *daemon, struct place *place, size_t *budget)
{
    size_t names_max = 2 * daemon->config.books_per_user_max;
    while (*budget > 0 && place->search) {
        const char *name = place_search_next(place);
        if (!name || (place->searched > names_max && place->where.uid != 0)) {
            if (name && !place->said_limit) {
                log_warn("more than %zu files in '%s': the rest is not looked at", names_max,
                         place->where.path);
                place->said_limit = true;
            }
            place_search_end(place);
            return NULL;
        }
        (*budget)--;
        if (names_is_book(name) && !known_name(daemon, place, name))
            return name;
    }
    return NULL;
}

bool names_work(struct daemon *daemon, struct place *place, size_t budget)
{
    bool retries = false;
    for (; budget > 0 && place->n_queue > 0; budget--) {
        char name[sizeof(*place->queue)];
        strcpy(name, place->queue[--place->n_queue]);
        /* We make books ourselves, on behalf of others, and know of these before we are told. */
        if (!known_name(daemon, place, name))
            retries |= try_name(daemon, place, name);
    }
    const char *name;
    while ((name = search_next(daemon, place, &budget)))
        retries |= try_name(daemon, place, name);
    return retries;
}
