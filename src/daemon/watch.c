/* Where books come from. See watch.h. */
#include "daemon/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/accountable.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/live_uids.h"
#include "daemon/loop.h"
#include "daemon/names.h"
#include "daemon/place.h"
#include "daemon/reaper.h"
#include "daemon/squat.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"

enum {
    EVENTS_BYTES = 65536,
    ROOTS_MAX = 64,
    /* A book's mapping keeps its open file, so IN_CLOSE_WRITE comes when its writer exits or calls
     * exec, or when one is torn down that never became ready. */
    PLACE_EVENTS = IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MODIFY | IN_CLOSE_WRITE |
                   IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK,
    ROOT_EVENTS = IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_ATTRIB | IN_ONLYDIR,
};

struct root {
    char path[256];
    int wd;
};

struct watch {
    struct daemon *daemon;
    int fd; /* inotify */
    struct loop_source *source;
    struct loop_source *work;         /* deferred: names, in pieces */
    struct loop_source *retry_timer;  /* books that were not ready, muted places */
    struct loop_source *places_timer; /* look for new places */
    struct loop_source *rescan_timer;
    struct loop_source *foreign_timer;
    bool places_pending, said_places;
    uint64_t places_cost_ns; /* of the last look */
    struct place **places;
    size_t n_places;
    struct root roots[ROOTS_MAX];
    size_t n_roots;
    struct book_seen *seen; /* NULL: no foreign books are looked for */
};

static const char *dir_of(const struct watch *watch)
{
    return watch->daemon->config.dir[0] ? watch->daemon->config.dir : NULL;
}

/* ---- work on names ---- */

static void place_work(struct watch *watch, struct place *place, size_t budget)
{
    if (names_work(watch->daemon, place, budget))
        loop_timer_set(watch->retry_timer, WATCH_RETRY_FIRST_MS * NS_PER_MS, 0);
}

static bool place_wants_work(const struct place *place)
{
    return !place->gone && (place->n_queue > 0 || place->search);
}

static void on_work(void *context)
{
    struct watch *watch = context;
    bool more = false;
    size_t waiting = 0;
    for (size_t i = 0; i < watch->n_places; i++)
        waiting += place_wants_work(watch->places[i]);
    for (size_t i = 0; i < watch->n_places && waiting > 0; i++) {
        struct place *place = watch->places[i];
        if (!place_wants_work(place))
            continue;
        size_t share = WATCH_NAMES_PER_TURN / waiting;
        place_work(watch, place, share ? share : 1);
        more |= place_wants_work(place);
    }
    if (more)
        loop_defer(watch->work);
}

/* A search that is under way goes on, unless events were lost: what it has passed may be new. */
static void search_all(struct watch *watch, bool lost_events)
{
    for (size_t i = 0; i < watch->n_places; i++) {
        struct place *place = watch->places[i];
        if (place->gone)
            continue;
        if (lost_events)
            place_search_end(place);
        place->search = true;
    }
    loop_defer(watch->work);
}

/* ---- places ---- */

/* By descriptor, so that it is the directory that was checked. */
static int place_listen(struct watch *watch, struct place *place)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", place->dirfd);
    int wd = inotify_add_watch(watch->fd, path, PLACE_EVENTS);
    if (wd < 0)
        return -errno;
    place->wd = wd;
    return 0;
}

static void place_add(struct watch *watch, const struct book_place *where)
{
    struct place *place;
    int r = place_new(where, &place);
    if (r < 0) {
        if (r != -ENOENT)
            log_warn("cannot watch '%s': %s, books there are not seen", where->path, strerror(-r));
        return;
    }
    struct place **places = realloc(watch->places, (watch->n_places + 1) * sizeof(*places));
    if (!places) {
        place_free(place);
        return;
    }
    watch->places = places;
    places[watch->n_places++] = place;
    r = place_listen(watch, place);
    if (r < 0)
        log_warn("cannot listen to '%s': %s, searching it every now and then", where->path,
                 strerror(-r));
    log_debug("watching place '%s' of uid %u", where->path, where->uid);
    loop_defer(watch->work);
}

static void root_add(struct watch *watch, const char *path)
{
    for (size_t i = 0; i < watch->n_roots; i++)
        if (strcmp(watch->roots[i].path, path) == 0)
            return;
    if (watch->n_roots == ROOTS_MAX)
        return;
    int wd = inotify_add_watch(watch->fd, path, ROOT_EVENTS);
    if (wd < 0)
        return; /* it does not exist; the timer of rescans looks again */
    struct root *root = &watch->roots[watch->n_roots++];
    snprintf(root->path, sizeof(root->path), "%s", path);
    root->wd = wd;
}

static void place_gone(struct watch *watch, struct place *place)
{
    if (place->wd >= 0)
        inotify_rm_watch(watch->fd, place->wd);
    place->wd = -1;
    place->gone = true;
    place_search_end(place);
}

/* Our descriptor keeps a removed directory from being told of, so look whether its path still leads
 * there. */
static void places_verify(struct watch *watch)
{
    for (size_t i = 0; i < watch->n_places; i++) {
        struct place *place = watch->places[i];
        struct stat st;
        if (!place->gone && (lstat(place->where.path, &st) < 0 || st.st_dev != place->dev ||
                             st.st_ino != place->ino))
            place_gone(watch, place);
    }
}

/* Books refer to the descriptor of their place, so it goes with the last of them. */
static void places_bury(struct watch *watch)
{
    struct ledger_books books = ledger_books(watch->daemon->ledger);
    for (size_t i = 0; i < watch->n_places;) {
        struct place *place = watch->places[i];
        bool used = !place->gone;
        for (size_t k = 0; k < books.n && !used; k++)
            used = books.books[k]->dirfd == place->dirfd;
        if (used) {
            i++;
            continue;
        }
        place_free(place);
        watch->places[i] = watch->places[--watch->n_places];
    }
}

static int by_uid_and_path(const void *a, const void *b)
{
    const struct book_place *x = a, *y = b;
    if (x->uid != y->uid)
        return x->uid < y->uid ? -1 : 1;
    return strcmp(x->path, y->path);
}

/* Move places of uids that have processes to the front: of each user, base/accountable.h, up to `share` in all. */
static size_t places_prefer(struct book_places *found, size_t kept, const struct live_uids *live,
                            size_t share)
{
    enum { USERS = 4096 }; /* that are told apart */
    uint32_t taken[USERS] = {0};
    for (size_t i = 0; i < kept; i++)
        taken[accountable_uid(found->places[i].uid) % USERS]++;
    for (size_t i = kept; i < found->n && kept < WATCH_PLACES_MAX; i++) {
        uint32_t *own = &taken[accountable_uid(found->places[i].uid) % USERS];
        if (*own >= share || !live_uids_have(live, found->places[i].uid))
            continue;
        struct book_place place = found->places[i];
        found->places[i] = found->places[kept];
        found->places[kept++] = place;
        ++*own;
    }
    return kept;
}

/* More places than we watch. One user can have directories of thousands of subordinate uids. So places of uids that
 * have processes come first, and each user gets a share before any gets more; one without processes now has a
 * place again later. */
static void places_choose(struct watch *watch, struct book_places *found)
{
    if (found->n <= WATCH_PLACES_MAX)
        return;
    if (!watch->said_places)
        log_warn(
            "%zu directories for books: %d of them are watched, those of users who have processes "
            "first",
            found->n, WATCH_PLACES_MAX);
    watch->said_places = true;
    struct live_uids live = {0};
    (void)live_uids_get(&live); /* without it the first ones found */
    size_t kept = places_prefer(found, 0, &live, WATCH_PLACES_MAX / WATCH_PLACES_USER_SHARE);
    (void)places_prefer(found, kept, &live, SIZE_MAX);
    live_uids_release(&live);
    found->n = WATCH_PLACES_MAX;
}

/* Watch those that are new, and no longer those that are not among them. */
static void places_take(struct watch *watch, struct book_places *found)
{
    places_choose(watch, found);
    if (found->n > 0)
        qsort(found->places, found->n, sizeof(*found->places), by_uid_and_path);
    for (size_t i = 0; i < watch->n_places; i++) {
        struct place *place = watch->places[i];
        struct book_place *known = place->gone || found->n == 0
                                       ? NULL
                                       : bsearch(&place->where, found->places, found->n,
                                                 sizeof(*found->places), by_uid_and_path);
        if (known)
            known->watched = true;
        else if (!place->gone)
            place_gone(watch, place);
    }
    places_bury(watch);
    for (size_t i = 0; i < found->n; i++)
        if (!found->places[i].watched)
            place_add(watch, &found->places[i]);
}

static void places_update(struct watch *watch)
{
    struct book_places found = {0};
    uint64_t start = clock_monotonic_ns();
    watch->places_pending = false;
    const char *shared = dir_of(watch) ? dir_of(watch) : watch->daemon->own_root;
    if (shared)
        (void)squat_clear(shared);
    places_verify(watch);
    places_bury(watch);
    /* Roots first: what appears after that makes an event. */
    int r = book_roots_find(dir_of(watch), &found);
    for (size_t i = 0; r >= 0 && i < found.n; i++)
        root_add(watch, found.places[i].path);
    if (r >= 0)
        book_places_release(&found);
    r = book_places_find(dir_of(watch), &found);
    if (r >= 0)
        places_take(watch, &found);
    if (r >= 0)
        book_places_release(&found);
    else if (r != -ENOENT)
        log_warn("cannot look for books: %s", strerror(-r));
    watch->places_cost_ns = clock_monotonic_ns() - start;
}

static void on_places(void *context)
{
    places_update(context);
}

static void places_soon(struct watch *watch)
{
    if (watch->places_pending)
        return;
    watch->places_pending = true;
    /* Any user can fill /dev/shm and make events there; looking must not take all our time. */
    uint64_t delay = watch->places_cost_ns * WATCH_PLACES_SHARE;
    if (delay < WATCH_PLACES_DELAY_MS * NS_PER_MS)
        delay = WATCH_PLACES_DELAY_MS * NS_PER_MS;
    loop_timer_set(watch->places_timer, delay, 0);
}

/* ---- events ---- */

static void place_mute(struct watch *watch, struct place *place, uint64_t now)
{
    if (!place->said_muted)
        log_warn("more than %d events a second in '%s': searching it once a second instead",
                 WATCH_EVENTS_MAX, place->where.path);
    place->said_muted = true;
    inotify_rm_watch(watch->fd, place->wd);
    place->wd = -1;
    place->n_queue = 0;
    place_search_end(place);
    place->search = true;
    place->muted_until_ns = now + WATCH_MUTE_MS * NS_PER_MS;
    loop_timer_set(watch->retry_timer, WATCH_RETRY_FIRST_MS * NS_PER_MS, 0);
}

/* The observer does not account this process any more, and has removed what it wrote. The process may go on; the book of one that
 * ended is the reaper's. */
static void on_vanished(struct watch *watch, const struct place *place, const char *name)
{
    struct daemon *daemon = watch->daemon;
    struct ledger_books books = ledger_books(daemon->ledger);
    for (size_t i = 0; i < books.n; i++) {
        struct ledger_book *book = books.books[i];
        struct stat st;
        if (book->identity->source != BOOK_SOURCE_OBSERVER || book->dirfd < 0 ||
            strcmp(book->name, name) != 0 || fstat(book->dirfd, &st) < 0 ||
            st.st_dev != place->dev || st.st_ino != place->ino)
            continue;
        pid_t pid = book->process->pid;
        if (pid <= 0 || kill(pid, 0) < 0)
            return;
        if (book->process->n_books == 1)
            reaper_forget(daemon, book->process); /* its row goes with its last book */
        ledger_book_remove(daemon->ledger, book);
        return;
    }
}

/* A writer let go of its book, or another process closed it after writing. */
static void on_closed(struct watch *watch, struct place *place, const char *name)
{
    struct stat st;
    if (fstatat(place->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    struct ledger_book *book = ledger_book_find(watch->daemon->ledger, st.st_dev, st.st_ino);
    if (book && ledger_writers_gone(book->process))
        reaper_check(watch->daemon, book->process);
    else if (!book)
        place_queue(place, name);
}

static void place_event(struct watch *watch, struct place *place, const struct inotify_event *event)
{
    if (event->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT)) {
        if (event->mask & IN_IGNORED)
            place->wd = -1;
        places_soon(watch);
        return;
    }
    uint64_t now = clock_monotonic_ns();
    if (place_count_event(place, now)) {
        place_mute(watch, place, now);
        return;
    }
    if (event->len == 0 || !names_is_book(event->name))
        return;
    if (event->mask & (IN_CREATE | IN_MOVED_TO))
        place_queue(place, event->name);
    else if (event->mask & IN_DELETE)
        on_vanished(watch, place, event->name);
    else if (place_retries(place, event->name))
        place_queue(place, event->name);
    else if (event->mask & IN_CLOSE_WRITE)
        on_closed(watch, place, event->name);
}

static void dispatch_event(struct watch *watch, const struct inotify_event *event)
{
    if (event->mask & IN_Q_OVERFLOW) {
        log_info("the kernel's queue of file events overflowed: searching all places");
        places_soon(watch);
        search_all(watch, true);
        return;
    }
    for (size_t i = 0; i < watch->n_places; i++)
        if (watch->places[i]->wd == event->wd) {
            place_event(watch, watch->places[i], event);
            return;
        }
    for (size_t i = 0; i < watch->n_roots; i++)
        if (watch->roots[i].wd == event->wd) {
            if (event->mask & IN_IGNORED)
                watch->roots[i] = watch->roots[--watch->n_roots];
            if (event->mask & (IN_ISDIR | IN_IGNORED))
                places_soon(watch);
            return;
        }
}

static void on_events(void *context, uint32_t events)
{
    struct watch *watch = context;
    char bytes[EVENTS_BYTES] __attribute__((aligned(__alignof__(struct inotify_event))));
    ssize_t n = read(watch->fd, bytes, sizeof(bytes)); /* one piece a turn */
    for (ssize_t at = 0; at < n;) {
        const struct inotify_event *event = (const void *)(bytes + at);
        dispatch_event(watch, event);
        at += (ssize_t)(sizeof(*event) + event->len);
    }
    loop_defer(watch->work);
}

/* ---- timers ---- */

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a == 0 || b < a ? b : a;
}

static void on_retry(void *context)
{
    struct watch *watch = context;
    uint64_t now = clock_monotonic_ns(), next = 0;
    for (size_t i = 0; i < watch->n_places; i++) {
        struct place *place = watch->places[i];
        if (place->muted_until_ns && now >= place->muted_until_ns) {
            place->muted_until_ns = 0;
            if (!place->gone && place_listen(watch, place) < 0)
                place->muted_until_ns = now + WATCH_MUTE_MS * NS_PER_MS;
            place->search = true;
        }
        if (place->muted_until_ns)
            next = sooner(next, place->muted_until_ns);
        for (size_t k = 0; k < place->n_retries; k++) {
            if (now >= place->retries[k].at_ns)
                place_queue(place, place->retries[k].name);
            next = sooner(next, place->retries[k].at_ns);
        }
    }
    loop_defer(watch->work);
    if (next)
        loop_timer_set(watch->retry_timer,
                       next > now + NS_PER_MS ? next - now : WATCH_RETRY_FIRST_MS * NS_PER_MS, 0);
}

static void on_rescan(void *context)
{
    struct watch *watch = context;
    places_update(watch);
    search_all(watch, false);
}

static int each_foreign(int fd, int pid, const char *map_path, void *context)
{
    struct watch *watch = context;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return 0;
    struct ledger_where where = {
        .dirfd = -1, .fd = fd, .hint_pid = pid, .uid = st.st_uid, .place = map_path};
    where.has_payer = proc_owner(pid, &where.payer) == 0;
    struct ledger_book *book;
    int r = ledger_book_add(watch->daemon->ledger, &where, &book);
    if (r == 0)
        reaper_add(watch->daemon, book);
    return r == -EAGAIN ? r : 0;
}

/* In pieces, and for a part of the time: a user that makes many processes with many mappings must not have
 * all of ours. */
static void foreign_scan(struct watch *watch, uint64_t budget_ns)
{
    uint64_t start = clock_monotonic_ns(), interval = watch->daemon->config.foreign_scan_ns;
    int r = book_foreign_scan_some(watch->seen, budget_ns, each_foreign, watch);
    if (r == 1) {
        uint64_t took = clock_monotonic_ns() - start;
        loop_timer_set(watch->foreign_timer, took * WATCH_FOREIGN_SHARE, interval);
        return;
    }
    if (r < 0) {
        log_warn("cannot look into other mount namespaces: %s, books of containers are not seen",
                 strerror(-r));
        interval = 0;
    }
    loop_timer_set(watch->foreign_timer, interval, interval);
}

static void on_foreign(void *context)
{
    foreign_scan(context, WATCH_FOREIGN_MS * NS_PER_MS);
}

void watch_reconfigure(struct watch *watch)
{
    const struct config *config = &watch->daemon->config;
    loop_timer_set(watch->rescan_timer, config->rescan_ns, config->rescan_ns);
    if (watch->seen)
        loop_timer_set(watch->foreign_timer, config->foreign_scan_ns, config->foreign_scan_ns);
}

size_t watch_places(const struct watch *watch)
{
    size_t n = 0;
    for (size_t i = 0; i < watch->n_places; i++)
        n += !watch->places[i]->gone;
    return n;
}

/* ---- begin and end ---- */

static int timers_add(struct watch *watch)
{
    struct loop *loop = watch->daemon->loop;
    int r = loop_add_deferred(loop, on_work, watch, &watch->work);
    if (r >= 0)
        r = loop_add_timer(loop, on_retry, watch, &watch->retry_timer);
    if (r >= 0)
        r = loop_add_timer(loop, on_places, watch, &watch->places_timer);
    if (r >= 0)
        r = loop_add_timer(loop, on_rescan, watch, &watch->rescan_timer);
    if (r >= 0)
        r = loop_add_timer(loop, on_foreign, watch, &watch->foreign_timer);
    return r;
}

static void watch_freep(struct watch **watch)
{
    watch_free(*watch);
}

int watch_new(struct daemon *daemon, struct watch **ret_watch)
{
    MEMOIR_CLEANUP(watch_freep)
    struct watch *watch = calloc(1, sizeof(*watch));
    if (!watch)
        return -ENOMEM;
    watch->daemon = daemon;
    watch->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (watch->fd < 0) {
        int r = -errno;
        log_error("cannot listen to file events: %s", strerror(-r));
        return r;
    }
    int r = loop_add_fd(daemon->loop, watch->fd, EPOLLIN, on_events, watch, &watch->source);
    if (r >= 0)
        r = timers_add(watch);
    if (r < 0)
        return r;
    /* Other mount namespaces are no part of a directory that was named, and need root. */
    if (geteuid() == 0 && !dir_of(watch) && book_seen_new(&watch->seen) >= 0)
        foreign_scan(watch, WATCH_FOREIGN_FIRST_MS * NS_PER_MS);
    places_update(watch);
    for (size_t i = 0; i < watch->n_places; i++)
        while (place_wants_work(watch->places[i]))
            place_work(watch, watch->places[i], SIZE_MAX);
    watch_reconfigure(watch);
    *ret_watch = MEMOIR_TAKE(watch);
    return 0;
}

void watch_free(struct watch *watch)
{
    if (!watch)
        return;
    struct loop_source *sources[] = {watch->source,       watch->work,
                                     watch->retry_timer,  watch->places_timer,
                                     watch->rescan_timer, watch->foreign_timer};
    for (size_t i = 0; i < sizeof(sources) / sizeof(*sources); i++)
        loop_source_free(sources[i]);
    for (size_t i = 0; i < watch->n_places; i++)
        place_free(watch->places[i]);
    free(watch->places);
    book_seen_free(watch->seen);
    if (watch->fd >= 0)
        close(watch->fd);
    free(watch);
}
