/*
 * finder.h: where books are.
 *
 * A place is a directory that holds books of one uid: /run/memoir/UID, $XDG_RUNTIME_DIR/memoir,
 * /dev/shm/memoir-UID, or $MEMOIR_DIR/UID. Root looks at everybody's, others at their own. Only
 * directories that belong to that uid (or root), are not writable by others and lie on a tmpfs
 * count. Links are not followed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct book_place {
    char path[256]; /* for people, and for inotify */
    uint32_t uid;   /* who may keep books here */
    bool watched;   /* the caller's */
};

struct book_places {
    struct book_place *places;
    size_t n;
};

/* List the places that exist now. `root` is --dir, or NULL for the usual ones. */
int book_places_find(const char *root, struct book_places *ret_places);
void book_places_release(struct book_places *places);

/* Directories whose new subdirectories may become places (to watch them): /run/memoir, /dev/shm,
 * /run/user/UID … Same ownership of the result. */
int book_roots_find(const char *root, struct book_places *ret_roots);

/* Call `each` for every *.book name in a place, at most `max` of them; the rest are counted in
 * ret_skipped (may be NULL). Only regular files of the place's uid or of root are offered; names of
 * links, fifos and directories are not even counted. `each` may unlink the name. A non-zero answer
 * ends the scan and is returned. The descriptor of the directory is good during the call only. */
int book_place_scan(const struct book_place *place, size_t max,
                    int (*each)(int dirfd, const char *name, void *context), void *context,
                    size_t *ret_skipped);

/* Open one name of a place with every rule about owners: a regular file of the place's uid, or one of
 * root that says it was written on behalf of somebody. -EPERM if it is another's. ret_fd (may be NULL)
 * gets a descriptor for sites and blocks, which the caller closes. */
struct book_reader;
int book_place_open_reader(const struct book_place *place, int dirfd, const char *name,
                           struct book_reader **ret_reader, int *ret_fd);

/* Does this name look like a book's: PID-STARTTIME-SOURCE-RANDOM.book? Names prove nothing; this
 * only spares opening what is certainly none. */
bool book_name_check(const char *name);

/* Books mapped by processes of other mount namespaces (containers), seen through
 * /proc/PID/map_files; needs root, else -EPERM. The descriptor (read-only, a regular file on a tmpfs)
 * is good during the call only. A process (pid and start time) is remembered in `seen`, a small cache
 * that the caller keeps: its books are offered once, and as books are made late it is looked at again
 * after 1, 2, 4 … 64 further scans, or only after 64 if it has so many mappings that the look took
 * long. `each` answers 0 to go on, -EAGAIN to be offered this book again at a later look (it is not
 * ready), anything else to end the scan, which then returns it. -EPERM when no process may be looked at. */
struct book_seen;
int book_seen_new(struct book_seen **ret_seen);
void book_seen_free(struct book_seen *seen);
int book_foreign_scan(struct book_seen *seen,
                      int (*each)(int fd, int pid, const char *map_path, void *context),
                      void *context);

/* The same in pieces of about `budget_ns` (one process may take 20 ms more), for a loop that has other
 * things to do: 1 when there is more, to be called again. */
int book_foreign_scan_some(struct book_seen *seen, uint64_t budget_ns,
                           int (*each)(int fd, int pid, const char *map_path, void *context),
                           void *context);
