/* One picture of all books, for commands that look once and end. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "book/finder.h"
#include "ledger/proc.h"
#include "ledger/rows.h"

enum { FOREIGN_NS_MAX = 1000000000 };

struct scan {
    struct ledger *ledger;
    const struct book_place *place;
    int dirfd; /* the ledger's copy of the place's descriptor, or -1 */
};

/* Books refer to their directory for as long as the ledger lives. */
static int keep_dirfd(struct ledger *ledger, int dirfd)
{
    int *fds = realloc(ledger->dirfds, (ledger->n_dirfds + 1) * sizeof(*fds));
    if (!fds)
        return -ENOMEM;
    ledger->dirfds = fds;
    int fd = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return -errno;
    fds[ledger->n_dirfds++] = fd;
    return fd;
}

static int each_name(int dirfd, const char *name, void *context)
{
    struct scan *scan = context;
    if (scan->dirfd < 0) {
        int fd = keep_dirfd(scan->ledger, dirfd);
        if (fd < 0)
            return fd;
        scan->dirfd = fd;
    }
    struct ledger_where where = {
        .dirfd = scan->dirfd,
        .name = name,
        .fd = -1,
        .uid = scan->place->uid,
        .place = scan->place->path,
    };
    struct ledger_book *book;
    int r = ledger_book_add(scan->ledger, &where, &book);
    if (r == -EAGAIN)
        ledger_problem_add(scan->ledger, LEDGER_PROBLEM_NOT_READY, r, where.uid, where.place, name,
                           "it is still being made");
    return r == -ENOMEM ? r : 0;
}

static int each_foreign(int fd, int pid, const char *map_path, void *context)
{
    struct scan *scan = context;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return 0; /* it ended in between */
    struct ledger_where where = {
        .dirfd = -1, .fd = fd, .hint_pid = pid, .uid = st.st_uid, .place = map_path};
    where.has_payer = proc_owner(pid, &where.payer) == 0;
    struct ledger_book *book;
    int r = ledger_book_add(scan->ledger, &where, &book);
    return r == -ENOMEM || r == -EAGAIN ? r : 0;
}

static int places_scan(struct ledger *ledger, const char *dir)
{
    struct book_places places = {0};
    int r = book_places_find(dir, &places);
    if (r < 0)
        return r;
    for (size_t i = 0; i < places.n && r >= 0; i++) {
        struct scan scan = {.ledger = ledger, .place = &places.places[i], .dirfd = -1};
        size_t skipped = 0;
        r = book_place_scan(scan.place, ledger->options.books_per_uid_max, each_name, &scan,
                            &skipped);
        if (r < 0 && r != -ENOMEM) {
            ledger_problem_add(ledger, LEDGER_PROBLEM_PLACE, r, scan.place->uid, scan.place->path,
                               "", "cannot be searched: %s", strerror(-r));
            r = 0;
        }
        if (skipped > 0) {
            ledger_problem_add(ledger, LEDGER_PROBLEM_LIMIT, 0, scan.place->uid, scan.place->path,
                               "", "%zu books beyond the limit were not looked at", skipped);
            ledger->problem_counts[LEDGER_PROBLEM_LIMIT] += skipped - 1;
        }
    }
    book_places_release(&places);
    return r;
}

/* Best effort: without root, or without /proc/PID/map_files, there is nothing to see. */
static int foreign_scan(struct ledger *ledger)
{
    struct book_seen *seen = NULL;
    if (geteuid() != 0)
        return 0;
    int r = book_seen_new(&seen);
    if (r < 0)
        return r;
    struct scan scan = {.ledger = ledger, .dirfd = -1};
    r = book_foreign_scan_some(seen, FOREIGN_NS_MAX, each_foreign, &scan);
    book_seen_free(seen);
    if (r == 1)
        ledger_problem_add(ledger, LEDGER_PROBLEM_LIMIT, 0, 0, "/proc", "",
                           "looking at processes of other mount namespaces took too long");
    return r == -ENOMEM ? r : 0;
}

static int by_pid(const void *a, const void *b)
{
    const struct ledger_process *x = *(struct ledger_process *const *)a;
    const struct ledger_process *y = *(struct ledger_process *const *)b;
    pid_t px = x->valid & LEDGER_HAS_PID ? x->pid : x->book_pid;
    pid_t py = y->valid & LEDGER_HAS_PID ? y->pid : y->book_pid;
    if (px != py)
        return px < py ? -1 : 1;
    return (x->book_realtime_ns > y->book_realtime_ns) -
           (x->book_realtime_ns < y->book_realtime_ns);
}

int ledger_scan(const char *dir, struct ledger **ret_ledger)
{
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    struct ledger_options options = {.user_names = true, .regions_dir = ledger_regions_dir(dir)};
    int r = ledger_new(&options, &ledger);
    if (r >= 0)
        r = places_scan(ledger, dir);
    /* Books of containers are no part of a directory that was named. */
    if (r >= 0 && !dir)
        r = foreign_scan(ledger);
    if (r >= 0)
        r = ledger_regions_poll(ledger, NULL, NULL);
    if (r < 0)
        return r;
    if (ledger->n_processes > 0)
        qsort(ledger->processes, ledger->n_processes, sizeof(*ledger->processes), by_pid);
    for (size_t i = 0; i < ledger->n_processes; i++) {
        process_row(ledger->processes[i])->slot = i;
        ledger_update_state(ledger, ledger->processes[i]);
        ledger_update_facts(ledger, ledger->processes[i]);
    }
    ledger_refresh(ledger);
    *ret_ledger = MEMOIR_TAKE(ledger);
    return 0;
}
