/* A ledger that keeps itself up to date. See follow.h. */
#include "ledger/follow.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "book/finder.h"
#include "ledger/index.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"

enum {
    FOREIGN_BUDGET_MS = 20, /* a look at other mount namespaces takes so long at most */
    SLOW_LOOK_MS = 1000,    /* what costs more is done so often: foreign books, states by /proc */
};

/* A directory of books. Its descriptor stays open while it has names: books refer to it. */
struct place {
    char path[256];
    uint32_t uid;
    int dirfd; /* -1: a free slot */
    uint64_t ino;
    size_t names;
};

/* A name in a place. A file that is no good keeps its row, so that it is not opened in every look. */
struct name_row {
    struct index_node node;
    struct ledger_book *book; /* NULL: it is no good, or counts under another name */
    size_t place;
    uint64_t seen; /* number of the last look that found it */
    char name[];
};

struct follow {
    struct ledger *ledger;
    char *dir;
    struct place *places;
    size_t n_places;
    struct index names;
    struct ledger_book **foreign; /* books of other mount namespaces: they have no name here */
    size_t n_foreign, room_foreign;
    struct book_seen *seen;
    uint64_t looks, slow_look_ns;
    uint64_t seed;
};

int follow_new(const char *dir, struct follow **ret_follow)
{
    MEMOIR_CLEANUP(follow_freep)
    struct follow *f = calloc(1, sizeof(*f));
    if (!f)
        return -ENOMEM;
    f->seed = hash_mix(clock_monotonic_ns() ^ (uintptr_t)f);
    if (dir && !(f->dir = strdup(dir)))
        return -ENOMEM;
    struct ledger_options options = {.user_names = true, .regions_dir = ledger_regions_dir(dir)};
    int r = ledger_new(&options, &f->ledger);
    if (r >= 0 && !dir && geteuid() == 0)
        r = book_seen_new(&f->seen);
    if (r < 0)
        return r;
    *ret_follow = MEMOIR_TAKE(f);
    return 0;
}

void follow_free(struct follow *f)
{
    if (!f)
        return;
    ledger_free(f->ledger); /* before the descriptors that its books use */
    for (size_t i = 0; i < f->names.n_buckets; i++)
        for (struct index_node *node = f->names.buckets[i], *next; node; node = next) {
            next = node->next;
            free(index_row(node, struct name_row, node));
        }
    index_release(&f->names);
    for (size_t i = 0; i < f->n_places; i++)
        if (f->places[i].dirfd >= 0)
            close(f->places[i].dirfd);
    if (f->seen)
        book_seen_free(f->seen);
    free(f->places);
    free(f->foreign);
    free(f->dir);
    free(f);
}

void follow_freep(struct follow **follow)
{
    follow_free(*follow);
}

struct ledger *follow_ledger(const struct follow *follow)
{
    return follow->ledger;
}

/* ---- names ---- */

struct scan {
    struct follow *follow;
    const struct book_place *place;
    ssize_t at; /* in follow.places; -1: not looked up yet */
};

/* The kept row of the directory that is being scanned: by inode, since a directory that was removed
 * and made again is another one. */
static ssize_t place_find(struct follow *f, const struct book_place *place, int dirfd)
{
    struct stat st;
    if (fstat(dirfd, &st) < 0)
        return -errno;
    size_t slot = f->n_places;
    for (size_t i = 0; i < f->n_places; i++) {
        if (f->places[i].dirfd < 0)
            slot = i;
        else if (f->places[i].ino == st.st_ino && strcmp(f->places[i].path, place->path) == 0)
            return (ssize_t)i;
    }
    if (slot == f->n_places) {
        struct place *places = realloc(f->places, (f->n_places + 1) * sizeof(*places));
        if (!places)
            return -ENOMEM;
        f->places = places;
        places[f->n_places++].dirfd = -1;
    }
    struct place *new = &f->places[slot];
    *new = (struct place){.uid = place->uid, .ino = st.st_ino};
    memcpy(new->path, place->path, sizeof(new->path));
    new->dirfd = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);
    return new->dirfd < 0 ? -errno : (ssize_t)slot;
}

static uint64_t name_hash(const struct follow *f, size_t place, const char *name)
{
    return hash_combine(f->seed + place, hash_bytes(name, strlen(name), f->seed));
}

static int name_add(struct follow *f, size_t place, const char *name, struct ledger_book *book)
{
    size_t len = strlen(name);
    struct name_row *row = calloc(1, sizeof(*row) + len + 1);
    if (!row || index_reserve(&f->names) < 0) {
        free(row);
        return -ENOMEM;
    }
    row->book = book;
    row->place = place;
    row->seen = f->looks;
    memcpy(row->name, name, len + 1);
    index_insert(&f->names, &row->node, name_hash(f, place, name));
    f->places[place].names++;
    return 0;
}

static int each_name(int dirfd, const char *name, void *context)
{
    struct scan *scan = context;
    struct follow *f = scan->follow;
    if (scan->at < 0) {
        scan->at = place_find(f, scan->place, dirfd);
        if (scan->at < 0)
            return scan->at == -ENOMEM ? -ENOMEM : -EIO;
    }
    size_t place = (size_t)scan->at;
    uint64_t hash = name_hash(f, place, name);
    for (struct index_node *node = index_first(&f->names, hash); node;
         node = index_next(node->next, hash)) {
        struct name_row *row = index_row(node, struct name_row, node);
        if (row->place != place || strcmp(row->name, name) != 0)
            continue;
        row->seen = f->looks;
        return 0;
    }
    struct ledger_where where = {
        .dirfd = f->places[place].dirfd,
        .name = name,
        .fd = -1,
        .uid = f->places[place].uid,
        .place = f->places[place].path,
    };
    struct ledger_book *book = NULL;
    int r = ledger_book_add(f->ledger, &where, &book);
    if (r == -ENOMEM)
        return r;
    if (r == -EAGAIN || r == -ENOENT)
        return 0; /* being made, or gone again: the next look tells */
    r = name_add(f, place, name, r == 0 ? book : NULL);
    if (r < 0 && book)
        ledger_book_remove(f->ledger, book);
    return r;
}

static int places_look(struct follow *f)
{
    struct book_places places = {0};
    int r = book_places_find(f->dir, &places);
    if (r < 0)
        return r;
    for (size_t i = 0; i < places.n && r >= 0; i++) {
        struct scan scan = {.follow = f, .place = &places.places[i], .at = -1};
        r = book_place_scan(scan.place, LEDGER_BOOKS_PER_UID_MAX, each_name, &scan, NULL);
        if (r != -ENOMEM)
            r = 0; /* a directory that cannot be read has no books for us */
    }
    book_places_release(&places);
    return r;
}

static void names_sweep(struct follow *f)
{
    for (size_t i = 0; i < f->names.n_buckets; i++)
        for (struct index_node *node = f->names.buckets[i], *next; node; node = next) {
            struct name_row *row = index_row(node, struct name_row, node);
            next = node->next;
            if (row->seen == f->looks)
                continue;
            if (row->book)
                ledger_book_remove(f->ledger, row->book);
            index_remove(&f->names, node);
            f->places[row->place].names--;
            free(row);
        }
    /* Whoever makes his directory again and again must not take our descriptors. */
    for (size_t i = 0; i < f->n_places; i++)
        if (f->places[i].dirfd >= 0 && f->places[i].names == 0) {
            close(f->places[i].dirfd);
            f->places[i].dirfd = -1;
        }
}

/* ---- books of other mount namespaces ---- */

static int each_foreign(int fd, int pid, const char *map_path, void *context)
{
    struct follow *f = context;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return 0; /* it ended in between */
    if (f->n_foreign == f->room_foreign) {
        size_t room = f->room_foreign ? f->room_foreign * 2 : 16;
        struct ledger_book **books = reallocarray(f->foreign, room, sizeof(struct ledger_book *));
        if (!books)
            return -ENOMEM;
        f->foreign = books;
        f->room_foreign = room;
    }
    struct ledger_where where = {
        .dirfd = -1, .fd = fd, .hint_pid = pid, .uid = st.st_uid, .place = map_path};
    where.has_payer = proc_owner(pid, &where.payer) == 0;
    struct ledger_book *book;
    int r = ledger_book_add(f->ledger, &where, &book);
    if (r == 0)
        f->foreign[f->n_foreign++] = book;
    return r == -ENOMEM || r == -EAGAIN ? r : 0;
}

static int foreign_look(struct follow *f)
{
    int r = book_foreign_scan_some(f->seen, FOREIGN_BUDGET_MS * NS_PER_MS, each_foreign, f);
    for (size_t i = 0; i < f->n_foreign;) {
        if (ledger_process_holds(f->foreign[i]->process)) {
            i++;
            continue;
        }
        ledger_book_remove(f->ledger, f->foreign[i]);
        f->foreign[i] = f->foreign[--f->n_foreign];
    }
    return r == -ENOMEM ? r : 0;
}

/* ---- a look ---- */

/* Locks tell of nearly every death and cost little; /proc tells of the rest. */
static void states_look(struct follow *f, bool slow, bool facts)
{
    size_t n;
    struct ledger_process *const *processes = ledger_processes(f->ledger, &n);
    for (size_t i = 0; i < n; i++) {
        struct ledger_process *p = processes[i];
        if (!ledger_process_holds(p))
            continue;
        if (slow || !ledger_process_exists(p) || ledger_writers_gone(p))
            ledger_update_state(f->ledger, p);
        if (facts)
            ledger_update_facts(f->ledger, p);
    }
}

int follow_look(struct follow *f, bool facts)
{
    uint64_t now_ns = clock_monotonic_ns();
    bool slow = f->looks == 0 || now_ns - f->slow_look_ns >= SLOW_LOOK_MS * NS_PER_MS;
    f->looks++;
    int r = places_look(f);
    if (r < 0)
        return r;
    names_sweep(f);
    if (slow && f->seen) {
        r = foreign_look(f);
        if (r < 0)
            return r;
    }
    r = ledger_regions_poll(f->ledger, NULL, NULL);
    if (r < 0)
        return r;
    states_look(f, slow, facts);
    if (slow)
        f->slow_look_ns = now_ns;
    ledger_refresh(f->ledger);
    return 0;
}

bool follow_watched(const struct follow *f)
{
    struct ledger_books books = ledger_books(f->ledger);
    for (size_t i = 0; i < books.n; i++) {
        struct book_watcher watchers[BOOK_WATCHERS];
        if (ledger_book_watchers(f->ledger, books.books[i], watchers) < 0)
            continue;
        for (size_t k = 0; k < BOOK_WATCHERS; k++)
            if (watchers[k].pid)
                return true;
    }
    return false;
}
