/*
 * reader_shape.h: is this header a book's, and where do its sections lie?
 *
 * Pure checks on a copy; nothing here touches the file except book_header_read().
 */
#ifndef MEMOIR_BOOK_READER_SHAPE_H
#define MEMOIR_BOOK_READER_SHAPE_H

#include <stddef.h>
#include <stdint.h>

#include "book/reader_internal.h"

/* Copy the header of a file of `size` bytes and check its fixed part. -EAGAIN while the magic is not
 * there yet, -EBADMSG if it is no book, -EPROTONOSUPPORT if it is one that this version may not read. */
int book_header_read(int fd, uint64_t size, struct book_header *ret_header);

/* Find the sections of the kinds that are known; kinds that are not stay unlooked at. -EBADMSG if one
 * is absurd: outside the file, misaligned, overlapping, entries smaller than this version's. */
int book_shape_check(const struct book_header *header, struct book_shape shape[BOOK_KINDS]);

/* How much of a section may be mapped when its header says that `open` bytes of it are open. */
uint64_t book_mapped_bytes(const struct book_shape *shape, uint64_t open);

/* How far into a page of this machine an offset lies. */
size_t book_page_lead(uint64_t offset);

/* Up to whole pages of this machine. */
size_t book_page_round(uint64_t bytes);

#endif
