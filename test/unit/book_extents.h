/* A sparse book as a small file: its size and the bytes that are not zero.
 *
 *     u64 size of the book
 *     then extents: u64 offset, u32 length, bytes
 *
 * in the machine's byte order (little-endian on all that we test). Bit 63 of an offset marks a change
 * that happens later, while the book is being read; a late extent of length 0 cuts the file there.
 * Header-only: the fuzz target, the golden test and their tools all use it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXTENT_LATE (UINT64_C(1) << 63)

enum {
    EXTENT_HEAD_BYTES = 12,
    EXTENT_GAP_BYTES = 32, /* a run of zeros at least this long is left out */
};

/* Apply the extents of a compact book to `fd`: the early ones (after setting the size) or the late ones.
 * What lies beyond `size_max` is left out; a last extent that is cut short is applied as far as it goes. */
static inline void extents_apply(int fd, const uint8_t *data, size_t len, bool late,
                                 uint64_t size_max)
{
    uint64_t size;
    if (len < sizeof(size))
        return;
    memcpy(&size, data, sizeof(size));
    if (!late && (size > size_max || ftruncate(fd, (off_t)size) < 0))
        return;
    for (size_t at = sizeof(size); len - at >= EXTENT_HEAD_BYTES;) {
        uint64_t offset;
        uint32_t n;
        memcpy(&offset, data + at, sizeof(offset));
        memcpy(&n, data + at + sizeof(offset), sizeof(n));
        at += EXTENT_HEAD_BYTES;
        if (n > len - at)
            n = (uint32_t)(len - at);
        bool wanted = ((offset & EXTENT_LATE) != 0) == late;
        offset &= ~EXTENT_LATE;
        if (wanted && offset <= size_max && n <= size_max - offset) {
            if (late && n == 0 && ftruncate(fd, (off_t)offset) < 0)
                return;
            if (n > 0 && pwrite(fd, data + at, n, (off_t)offset) < 0)
                return;
        }
        at += n;
    }
}

struct extents {
    uint8_t *bytes; /* malloc; the caller frees */
    size_t len;
};

static inline void extents_append(struct extents *e, const void *bytes, size_t len)
{
    e->bytes = realloc(e->bytes, e->len + len + 1);
    if (!e->bytes)
        abort();
    memcpy(e->bytes + e->len, bytes, len);
    e->len += len;
}

static inline void extents_add(struct extents *e, uint64_t offset, const void *bytes, uint32_t len)
{
    extents_append(e, &offset, sizeof(offset));
    extents_append(e, &len, sizeof(len));
    extents_append(e, bytes, len);
}

/* The parts of one page that are not zero. */
static inline void extents_add_page(struct extents *e, uint64_t offset, const uint8_t *page,
                                    size_t len)
{
    size_t start = 0, end = 0; /* of the part under way; empty when equal */
    for (size_t i = 0; i < len; i++) {
        if (page[i] == 0)
            continue;
        if (end > start && i - end >= EXTENT_GAP_BYTES) {
            extents_add(e, offset + start, page + start, (uint32_t)(end - start));
            start = i;
        } else if (end == start) {
            start = i;
        }
        end = i + 1;
    }
    if (end > start)
        extents_add(e, offset + start, page + start, (uint32_t)(end - start));
}

/* All of a book. */
static inline struct extents extents_dump(int fd)
{
    struct extents e = {0};
    uint64_t size = (uint64_t)lseek(fd, 0, SEEK_END);
    extents_append(&e, &size, sizeof(size));
    for (off_t at = 0; (at = lseek(fd, at, SEEK_DATA)) >= 0;) {
        uint8_t page[4096];
        ssize_t n = pread(fd, page, sizeof(page), at);
        if (n <= 0)
            break;
        extents_add_page(&e, (uint64_t)at, page, (size_t)n);
        at += n;
    }
    return e;
}
