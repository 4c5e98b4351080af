/*
 * control.h: the daemon's page in somebody's book, the only bytes in it that a reader ever writes.
 */
#ifndef MEMOIR_BOOK_CONTROL_H
#define MEMOIR_BOOK_CONTROL_H

#include <stdint.h>

#include "book/layout.h"

struct book_reader;

/* Set and clear flags (enum book_control_flags; what is in both gets set) and store the daemon's pid.
 * `fd` is any descriptor of the book; one that is read-only is opened again through /proc. Written
 * with pwrite() at the offset that was checked when the reader was opened, never through a mapping.
 * -ESTALE if `fd` is another file, -ENODEV if the book has no control page, -EIO if the file was cut
 * short. One daemon at a time. */
int book_control_write(const struct book_reader *reader, int fd, uint32_t flags_set,
                       uint32_t flags_clear, int32_t daemon_pid);

/* What the page says now. */
int book_control_read(const struct book_reader *reader, int fd, struct book_control *ret_control);

#endif
