/* Books of a process that we start. See run_book.h. */
#include "cli/run_book.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "book/control.h"
#include "book/finder.h"
#include "book/layout.h"
#include "book/place.h"
#include "ledger/ledger.h"

int run_books_init(struct run_books *books)
{
    *books = (struct run_books){.events = -1, .directory = -1};
    int error = -ENOENT;
    for (unsigned which = 0; which < BOOK_PLACE_CANDIDATES && books->directory < 0; which++) {
        books->directory = book_place_open(which, books->path, sizeof(books->path));
        if (books->directory < 0 && error == -ENOENT)
            error = books->directory;
    }
    if (books->directory < 0)
        return error;
    books->events = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    /* The magic of a book is written last, and by write(). */
    if (books->events < 0 || inotify_add_watch(books->events, books->path, IN_MODIFY) < 0) {
        error = -errno;
        run_books_release(books);
        return error;
    }
    return 0;
}

void run_books_release(struct run_books *books)
{
    for (size_t i = 0; i < books->n; i++)
        close(books->held[i].fd);
    closep(&books->events);
    closep(&books->directory);
    *books = (struct run_books){.events = -1, .directory = -1};
}

static bool is_known(const struct run_books *books, const char *name)
{
    for (size_t i = 0; i < books->n; i++)
        if (strcmp(books->held[i].name, name) == 0)
            return true;
    return false;
}

/* An image that was replaced by exec left a book that counts no more. */
static struct run_held *room(struct run_books *books)
{
    if (books->n < RUN_BOOKS_MAX)
        return &books->held[books->n++];
    close(books->held[0].fd);
    memmove(&books->held[0], &books->held[1], sizeof(books->held) - sizeof(books->held[0]));
    return &books->held[RUN_BOOKS_MAX - 1];
}

static void take(struct run_books *books, const char *name, pid_t pid)
{
    char prefix[16], magic[sizeof(BOOK_MAGIC) - 1];
    snprintf(prefix, sizeof(prefix), "%d-", (int)pid);
    if (strncmp(name, prefix, strlen(prefix)) != 0 || !book_name_check(name) ||
        strlen(name) >= sizeof(books->held[0].name) || is_known(books, name))
        return;
    MEMOIR_CLEANUP(closep)
    int fd = openat(books->directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) < 0 || !S_ISREG(info.st_mode) ||
        pread(fd, magic, sizeof(magic), 0) != sizeof(magic) ||
        memcmp(magic, BOOK_MAGIC, sizeof(magic)) != 0)
        return;
    struct run_held *held = room(books);
    snprintf(held->name, sizeof(held->name), "%s", name);
    held->fd = MEMOIR_TAKE_FD(fd);
}

void run_books_look(struct run_books *books, pid_t pid)
{
    _Alignas(struct inotify_event) char buffer[64 * (sizeof(struct inotify_event) + NAME_MAX + 1)];
    ssize_t n;
    while (books->events >= 0 && (n = read(books->events, buffer, sizeof(buffer))) > 0) {
        for (char *at = buffer; at < buffer + n;) {
            const struct inotify_event *event = (const struct inotify_event *)at;
            if (event->len > 0)
                take(books, event->name, pid);
            at += sizeof(*event) + event->len;
        }
    }
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

void run_books_remove(struct run_books *books)
{
    for (size_t i = 0; i < books->n; i++) {
        struct stat held, named;
        const char *name = books->held[i].name;
        if (!is_watched(books->held[i].fd) && fstat(books->held[i].fd, &held) == 0 &&
            fstatat(books->directory, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
            held.st_dev == named.st_dev && held.st_ino == named.st_ino)
            unlinkat(books->directory, name, 0);
    }
}
