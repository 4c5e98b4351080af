/*
 * run_book.h: the books of a process that we start, held so that they can be read after its end.
 *
 * The process leaves them for us (MEMOIR_KEEP), but a daemon may remove them the moment it dies, before we have looked. So the process makes them of empty
 * files that we hold open (MEMOIR_KEEP_IN, book/place.h): whatever happens to their names, we have them. The files lie in a folder of ours beside the
 * books. It is locked while we live; others that start programs remove folders that are not.
 */
#ifndef MEMOIR_CLI_RUN_BOOK_H
#define MEMOIR_CLI_RUN_BOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "book/place.h"

enum {
    RUN_BOOKS_TAKEN = BOOK_KEEP_FILES,
    RUN_BOOKS_MAX = 3 * BOOK_KEEP_FILES, /* files that were taken, spare ones, and others */
};

struct ledger;

struct run_held {
    int fd;
    char name[128];
};

struct run_books {
    int directory; /* where a process of this user will put its book; -1: there is none */
    char path[256];
    int folder; /* in it; -1: there is none */
    int events; /* inotify, for poll(): a file was taken from the folder, or is mapped no more; -1: there is none */
    char folder_name[64];
    int spare
        [BOOK_KEEP_FILES]; /* files that no image has taken yet, or that we have not looked at; -1: none */
    int taken[RUN_BOOKS_TAKEN]; /* files of the last images, in order */
    size_t n_taken;
    struct run_held held[RUN_BOOKS_MAX];
    size_t n;
};

/* Nothing at all: for run_books_release(). */
void run_books_clear(struct run_books *books);

/* Find the place where a process of this user will put its book, and make the folder there. -errno where there is no place. */
int run_books_init(struct run_books *books);
void run_books_release(struct run_books *books);

/* Replace the files that images of the process have taken: when `events` can be read. So there is one for each, however often it calls exec. */
void run_books_refill(struct run_books *books);

/* Is one of the files that images have taken still mapped: by the process, as long as it does not execute another program? */
bool run_books_mapped(const struct run_books *books);

/* Hold the books of this pid: when it has ended, or stands still at its end. Costs a look into the place. */
void run_books_look(struct run_books *books, pid_t pid);

/* A ledger of the books that could be read. The books must stay until it is freed. */
int run_books_ledger(struct run_books *books, struct ledger **ret_ledger);

/* Remove those that no daemon watches. */
void run_books_remove(struct run_books *books);

#endif
