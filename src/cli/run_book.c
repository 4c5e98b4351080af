/* Books of a process that we start. See run_book.h. */
#include "cli/run_book.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "book/control.h"
#include "book/finder.h"
#include "book/layout.h"
#include "book/place.h"
#include "ledger/ledger.h"

enum {
    NAME_TRIES = 16,
    YOUNG_SECONDS = 10, /* a folder without a lock may just have been made */
};

/* ---- the folder with empty files ---- */

static void closedirp(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}

static void folder_clear(int parent, const char *name, int folder)
{
    MEMOIR_CLEANUP(closedirp)
    DIR *dir = fdopendir(folder);
    if (!dir) {
        close(folder);
        return;
    }
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.')
            unlinkat(dirfd(dir), e->d_name, 0);
    unlinkat(parent, name, AT_REMOVEDIR);
}

/* Folders of runs that were killed: a running one holds its lock. */
static void folders_sweep(int parent)
{
    int copy = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    MEMOIR_CLEANUP(closedirp)
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    if (!dir) {
        closep(&copy);
        return;
    }
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat info;
        if (strncmp(e->d_name, BOOK_KEEP_PREFIX, strlen(BOOK_KEEP_PREFIX)) != 0)
            continue;
        int folder = openat(parent, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (folder < 0)
            continue;
        if (fstat(folder, &info) < 0 || info.st_uid != geteuid() ||
            time(NULL) - info.st_mtim.tv_sec < YOUNG_SECONDS ||
            flock(folder, LOCK_EX | LOCK_NB) < 0)
            close(folder);
        else
            folder_clear(parent, e->d_name, folder);
    }
}

static void spare_make(struct run_books *books, unsigned i)
{
    char name[16];
    snprintf(name, sizeof(name), "%u", i);
    books->spare[i] = openat(books->folder, name, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    char link[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", books->spare[i]);
    /* The last mapping keeps it open for writing: it ends with exit or exec. */
    if (books->spare[i] >= 0 && books->events >= 0)
        (void)inotify_add_watch(books->events, link, IN_CLOSE_WRITE);
}

/* Where it cannot be watched the files are not replaced. */
static void watch_folder(struct run_books *books)
{
    char path[sizeof(books->path) + sizeof(books->folder_name) + 1];
    snprintf(path, sizeof(path), "%s/%s", books->path, books->folder_name);
    books->events = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (books->events >= 0 && inotify_add_watch(books->events, path, IN_MOVED_FROM) < 0)
        closep(&books->events);
}

/* The oldest makes way: its image was replaced by exec long ago, and its book counts no more. */
static void taken_add(struct run_books *books, int fd)
{
    if (books->n_taken == RUN_BOOKS_TAKEN) {
        close(books->taken[0]);
        memmove(&books->taken[0], &books->taken[1], sizeof(books->taken) - sizeof(books->taken[0]));
        books->n_taken--;
    }
    books->taken[books->n_taken++] = fd;
}

static int folder_make(struct run_books *books)
{
    folders_sweep(books->directory);
    for (int i = 0; i < NAME_TRIES; i++) {
        uint64_t random = 0;
        if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0)
            random = clock_monotonic_ns();
        snprintf(books->folder_name, sizeof(books->folder_name), BOOK_KEEP_PREFIX "%d-%016" PRIx64,
                 (int)getpid(), random);
        if (mkdirat(books->directory, books->folder_name, 0700) == 0)
            break;
        if (errno != EEXIST || i + 1 == NAME_TRIES)
            return -errno;
    }
    books->folder = openat(books->directory, books->folder_name,
                           O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (books->folder < 0 || flock(books->folder, LOCK_EX | LOCK_NB) < 0) {
        int error = -errno;
        closep(&books->folder);
        books->folder = -1;
        unlinkat(books->directory, books->folder_name, AT_REMOVEDIR);
        return error;
    }
    watch_folder(books); /* before the first file can be taken */
    for (unsigned i = 0; i < BOOK_KEEP_FILES; i++)
        spare_make(books, i);
    return 0;
}

void run_books_refill(struct run_books *books)
{
    _Alignas(struct inotify_event) char buffer[16 * (sizeof(struct inotify_event) + NAME_MAX + 1)];
    ssize_t n;
    while (books->events >= 0 && (n = read(books->events, buffer, sizeof(buffer))) > 0) {
        for (char *at = buffer; at < buffer + n;) {
            const struct inotify_event *event = (const struct inotify_event *)at;
            unsigned long i = event->len > 0 ? strtoul(event->name, NULL, 10) : BOOK_KEEP_FILES;
            at += sizeof(*event) + event->len;
            if (i >= BOOK_KEEP_FILES)
                continue;
            if (books->spare[i] >= 0)
                taken_add(books, books->spare[i]);
            spare_make(books, (unsigned)i);
        }
    }
}

bool run_books_mapped(const struct run_books *books)
{
    for (size_t i = books->n_taken; i-- > 0;)
        if (books->taken[i] >= 0 && book_writer_alive_fd(books->taken[i]) == 1)
            return true;
    return false;
}

/* ---- its books ---- */

void run_books_clear(struct run_books *books)
{
    *books = (struct run_books){.events = -1, .folder = -1, .directory = -1};
    for (unsigned i = 0; i < BOOK_KEEP_FILES; i++)
        books->spare[i] = -1;
}

/* In the first place that has room: other users can fill /run/memoir, and a process then has its book in another one, too. */
int run_books_init(struct run_books *books)
{
    char path[sizeof(books->path)];
    int error = -ENOENT;
    run_books_clear(books);
    for (unsigned which = 0; which < BOOK_PLACE_CANDIDATES; which++) {
        int directory = book_place_open(which, path, sizeof(path));
        if (directory < 0) {
            error = error == -ENOENT ? directory : error;
            continue;
        }
        closep(&books->directory);
        books->directory = directory;
        snprintf(books->path, sizeof(books->path), "%s", path);
        if (folder_make(books) == 0)
            return 0;
        books->folder_name[0] = '\0'; /* no room: books may still be found in time */
    }
    return books->directory < 0 ? error : 0;
}

void run_books_release(struct run_books *books)
{
    for (size_t i = 0; i < books->n; i++)
        close(books->held[i].fd);
    if (books->folder >= 0)
        folder_clear(books->directory, books->folder_name, books->folder);
    for (unsigned i = 0; i < BOOK_KEEP_FILES; i++)
        closep(&books->spare[i]);
    for (size_t i = 0; i < books->n_taken; i++)
        closep(&books->taken[i]);
    closep(&books->events);
    closep(&books->directory);
    run_books_clear(books);
}

static bool is_known(const struct run_books *books, const char *name)
{
    for (size_t i = 0; i < books->n; i++)
        if (strcmp(books->held[i].name, name) == 0)
            return true;
    return false;
}

/* Hold an open file if it is a book of this pid: takes it then. */
static bool hold(struct run_books *books, int fd, const char *name, pid_t pid)
{
    struct book_header header;
    char prefix[16];
    snprintf(prefix, sizeof(prefix), "%d-", (int)pid);
    if (books->n == RUN_BOOKS_MAX || strncmp(name, prefix, strlen(prefix)) != 0 ||
        !book_name_check(name) || strlen(name) >= sizeof(books->held[0].name) ||
        pread(fd, &header, sizeof(header), 0) != sizeof(header) ||
        memcmp(header.magic, BOOK_MAGIC, sizeof(header.magic)) != 0)
        return false;
    struct run_held *held = &books->held[books->n++];
    snprintf(held->name, sizeof(held->name), "%s", name);
    held->fd = fd;
    return true;
}

/* One of ours that the process has taken has another name by now, unless a daemon has removed that. */
static void take_spare(struct run_books *books, int *fd, pid_t pid)
{
    char link[64], path[512];
    static const char deleted[] = " (deleted)";
    snprintf(link, sizeof(link), "/proc/self/fd/%d", *fd);
    ssize_t n = *fd < 0 ? -1 : readlink(link, path, sizeof(path) - 1);
    if (n < 0)
        return;
    path[n] = '\0';
    size_t len = (size_t)n, cut = strlen(deleted);
    if (len > cut && strcmp(path + len - cut, deleted) == 0)
        path[len - cut] = '\0';
    const char *slash = strrchr(path, '/');
    if (slash && hold(books, *fd, slash + 1, pid))
        *fd = -1;
}

static void take(struct run_books *books, int directory, const char *name, pid_t pid)
{
    MEMOIR_CLEANUP(closep)
    int fd = is_known(books, name)
                 ? -1
                 : openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat info;
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && hold(books, fd, name, pid))
        fd = -1;
}

static void take_in(struct run_books *books, int directory, pid_t pid)
{
    char prefix[16];
    MEMOIR_CLEANUP(closedirp)
    DIR *dir = directory < 0 ? NULL : fdopendir(directory);
    if (!dir) {
        closep(&directory);
        return;
    }
    snprintf(prefix, sizeof(prefix), "%d-", (int)pid);
    for (struct dirent *e; (e = readdir(dir));)
        if (strncmp(e->d_name, prefix, strlen(prefix)) == 0)
            take(books, dirfd(dir), e->d_name, pid);
}

/* Books that are none of our files: of an image after too many others, or of one that could not take one. The process has made its
 * book in another place than ours if ours was full. */
static void take_others(struct run_books *books, pid_t pid)
{
    char path[sizeof(books->path)];
    for (unsigned which = 0; which < BOOK_PLACE_CANDIDATES; which++)
        take_in(books, book_place_open(which, path, sizeof(path)), pid);
}

void run_books_look(struct run_books *books, pid_t pid)
{
    for (size_t i = 0; i < books->n_taken; i++)
        take_spare(books, &books->taken[i], pid);
    for (unsigned i = 0; i < BOOK_KEEP_FILES; i++)
        take_spare(books, &books->spare[i], pid);
    take_others(books, pid);
}

int run_books_ledger(struct run_books *books, struct ledger **ret_ledger)
{
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    int r = ledger_new(&(struct ledger_options){0}, &ledger);
    for (size_t i = 0; r == 0 && i < books->n; i++) {
        struct ledger_book *book;
        /* By its descriptor: a daemon may take its name away at any moment. */
        struct ledger_where where = {
            .dirfd = -1, .fd = books->held[i].fd, .uid = geteuid(), .place = books->path};
        ledger_book_add(ledger, &where, &book);
    }
    if (r < 0)
        return r;
    ledger_refresh(ledger);
    *ret_ledger = MEMOIR_TAKE(ledger);
    return 0;
}

static bool is_watched(int fd)
{
    MEMOIR_CLEANUP(book_reader_freep)
    struct book_reader *reader = NULL;
    struct book_control control;
    if (book_reader_open_fd(fd, &reader) < 0 || book_control_read(reader, fd, &control) < 0)
        return true; /* not ours to remove */
    return control.watchers[0].pid != 0 || control.watchers[1].pid != 0;
}

static void remove_in(const struct run_books *books, int directory)
{
    for (size_t i = 0; i < books->n; i++) {
        struct stat held, named;
        const char *name = books->held[i].name;
        if (!is_watched(books->held[i].fd) && fstat(books->held[i].fd, &held) == 0 &&
            fstatat(directory, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
            held.st_dev == named.st_dev && held.st_ino == named.st_ino)
            unlinkat(directory, name, 0);
    }
}

void run_books_remove(struct run_books *books)
{
    char path[sizeof(books->path)];
    for (unsigned which = 0; books->n > 0 && which < BOOK_PLACE_CANDIDATES; which++) {
        int directory = book_place_open(which, path, sizeof(path));
        if (directory < 0)
            continue;
        remove_in(books, directory);
        close(directory);
    }
}
