/*
 * making.h: a book in the making, and fork.
 *
 * While a book is made there are descriptors and a mapping that nobody knows of yet. A child forked by another thread in
 * that moment would keep them for good: two descriptors that are not the program's, and the lock that says
 * that the writer lives. So whoever makes a book and whoever forks wait for each other; never for long, since a
 * lock of the program may lie between them. Fork without handlers (_Fork, clone) does not wait.
 */
#ifndef MEMOIR_BOOK_MAKING_H
#define MEMOIR_BOOK_MAKING_H

/* Around the making, by the thread that does it. One at a time. */
void book_making_begin(void);
void book_making_end(void);

/* Around fork: in its prepare and its parent handler. */
void book_forking_begin(void);
void book_forking_end(void);

/* In a child: nobody forks, nobody makes a book. */
void book_making_forget(void);

#endif
