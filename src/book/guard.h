/*
 * guard.h: read a mapped file that somebody may cut short at any moment.
 *
 * Touching a page past the end of a file raises SIGBUS. Code that reads such a mapping runs under
 * book_guard_run(), which turns the signal into -EIO.
 */
#ifndef MEMOIR_BOOK_GUARD_H
#define MEMOIR_BOOK_GUARD_H

/* Put our SIGBUS handler first, process-wide; does nothing when it is. Signals that are not ours go
 * on to the handler that was there before. Opening a book calls it, so a handler that somebody set
 * meanwhile loses its place at the next book; between the two, faults are his. */
int book_guard_install(void);

/* Call fn(context) and return what it returns, or -EIO when a mapped page was gone. Costs a few
 * nanoseconds and no system call. `fn` may be left at any read of mapped memory: it must not
 * allocate, lock or call into libc beyond memcpy. Guards nest. */
int book_guard_run(int (*fn)(void *context), void *context);

#endif
