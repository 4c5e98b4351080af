/*
 * control.h: the daemons' page in somebody's book, the only bytes in it that a reader ever writes.
 */
#ifndef MEMOIR_BOOK_CONTROL_H
#define MEMOIR_BOOK_CONTROL_H

#include <stdint.h>

#include "book/layout.h"

struct book_reader;

/* Which of control.watchers a daemon writes. */
enum book_watcher_slot {
    BOOK_WATCHER_ROOT = 0,
    BOOK_WATCHER_USER = 1,
};

/* Store who watches into a daemon's own slot, and what all slots say together into control.flags. NULL
 * clears the slot; the other one stays as it is. `fd` is any descriptor of the book; one that is
 * read-only is opened again through /proc. Written with pwrite() at the offset that was checked when the
 * reader was opened, never through a mapping. Both daemons may do this at the same time. -ESTALE if `fd`
 * is another file, -ENODEV if the book has no control page, -EIO if the file was cut short. */
int book_control_write(const struct book_reader *reader, int fd, enum book_watcher_slot slot,
                       const struct book_watcher *watcher);

/* Set those of `flags` that are in `mask` (enum book_control_flags), and clear the others of it, for good: they stay
 * when no daemon watches any more, until somebody changes them again. What a watcher wants for itself is not touched.
 * For those who act on behalf of the process's user, since that is who is asked about it. Errors as above. */
int book_control_ask(const struct book_reader *reader, int fd, uint32_t mask, uint32_t flags);

/* Store control.close_sites, for who watches the sites of a heap tracker. The last one who does counts. */
int book_control_close(const struct book_reader *reader, int fd, uint64_t close_sites);

/* What the page says now. */
int book_control_read(const struct book_reader *reader, int fd, struct book_control *ret_control);

#endif
