/*
 * run_book.h: the books of a process that we start, held so that they can be read after its end.
 *
 * The process leaves them for us (MEMOIR_KEEP), but a daemon may retire them the moment it dies. So each is
 * opened when it is made: whoever watches the directory is told of it.
 */
#ifndef MEMOIR_CLI_RUN_BOOK_H
#define MEMOIR_CLI_RUN_BOOK_H

#include <sys/types.h>

enum { RUN_BOOKS_MAX = 16 };

struct ledger;

struct run_held {
    int fd;
    char name[128];
};

struct run_books {
    int events;    /* inotify, for poll(); -1: nothing is watched */
    int directory; /* -1: there is none */
    char path[256];
    struct run_held held[RUN_BOOKS_MAX];
    size_t n;
};

/* Watch the place where a process of this user will put its book. -errno where there is none. */
int run_books_init(struct run_books *books);
void run_books_release(struct run_books *books);

/* Take what has come: the books of this pid. */
void run_books_look(struct run_books *books, pid_t pid);

/* A ledger of the books that could be read. The books must stay until it is freed. */
int run_books_ledger(struct run_books *books, struct ledger **ret_ledger);

/* Remove those that no daemon watches. */
void run_books_remove(struct run_books *books);

#endif
