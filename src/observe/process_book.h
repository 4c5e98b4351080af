/* process_book.h: a book on behalf of an observed process. One thread. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "book/writer.h"

struct process_book {
    struct book_writer *w; /* NULL: there is none */
    struct book_thread *thread;
    int place; /* its directory, while there is a writer */
    uint32_t uid;
};

/* Make the book of a process in its user's place: under `dir`, or where books usually are. Books of the same source that an
 * observer before us wrote about the process are removed. -ESRCH: it is gone. */
int process_book_open(struct process_book *book, uint32_t source, pid_t pid, const char *dir);

enum process_book_end {
    PROCESS_BOOK_STAYS,  /* open, for the next observer */
    PROCESS_BOOK_CLOSED, /* for the daemon to retire */
    PROCESS_BOOK_GOES,   /* removed */
};
void process_book_close(struct process_book *book, enum process_book_end end);

/* A moment of CLOCK_MONOTONIC in the unit of the book. */
uint64_t process_book_time(const struct process_book *book, uint64_t time_ns);
