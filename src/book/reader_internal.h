/*
 * reader_internal.h: what the reader's files share.
 *
 * The shape of a book (which section lies where) is copied and checked when the book is opened. From
 * then on only two live values per section are looked at, `open` and `used`, and they are clamped to
 * that shape each time.
 */
#ifndef MEMOIR_BOOK_READER_INTERNAL_H
#define MEMOIR_BOOK_READER_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "book/layout.h"
#include "book/reader.h"

enum { BOOK_KINDS = BOOK_SECTION_SCRIPTS + 1 };

/* Where a section lies; constant once checked. size 0: the book has none of this kind. */
struct book_shape {
    uint32_t slot;       /* in header.sections, for its live values */
    uint32_t entry_size; /* at least what this version's entries take */
    uint64_t offset;
    uint64_t size;
};

/* A read-only mapping of the first bytes of a section, which may begin in the middle of a page and share
 * that one with others. */
struct book_map {
    const uint8_t *base; /* the section's first byte; NULL: not mapped */
    size_t lead;         /* bytes of the first page before it */
    size_t bytes;        /* mapped, whole pages */
};

/* One account and where its shards lie in parts[]. */
struct book_shards {
    size_t first, n;
};

struct book_reader {
    struct book_identity identity;
    struct book_shape shape[BOOK_KINDS];
    uint64_t file_size;
    uint64_t hash_seed; /* random: the ids of blocks are a stranger's */

    struct book_map header, registry, index, counters;
    size_t mapped_max; /* of all four, 0: no limit */
    size_t holes;      /* bytes of them that had no page when they were mapped */

    /* What the last refresh saw. */
    uint32_t records;         /* registry entries looked at */
    uint32_t records_settled; /* of which had a type (entry 0 has none) */
    uint32_t pages;           /* counter pages looked at */
    uint32_t pages_settled;   /* of which had an owner */
    bool stale;               /* a refresh failed half-way: build everything anew */
    bool settled;             /* all of these were whole: nothing is new while `used` stays */
    uint64_t used_records, used_pages; /* the writer's words for them, with `settled` */

    struct book_device_view *devices;
    size_t n_devices;
    struct book_account_view *accounts;
    struct book_shards *shards; /* parallel to accounts */
    size_t n_accounts;
    size_t left_out;                    /* accounts of a device that is none */
    const struct book_counters **parts; /* pointers into the maps, grouped by account */
    size_t n_parts;
    struct book_counter_page *page_list; /* `pages` entries, copied */
};

/* Live values of one section, clamped to its shape. */
struct book_live {
    uint64_t open; /* bytes */
    uint64_t n;    /* entries in use that lie within the open bytes */
};

/* How many of `n` entries lie within the first `open` bytes of a section that is there. A division costs
 * more than the rest, and only books that lie need it. */
static inline uint64_t book_entries_within(const struct book_shape *shape, uint64_t n,
                                           uint64_t open)
{
    if (n <= UINT32_MAX && n * shape->entry_size <= open)
        return n;
    uint64_t room = open / shape->entry_size;
    return n < room ? n : room;
}

/* Under a guard only. */
struct book_live book_reader_live(const struct book_reader *reader, enum book_section_kind kind);

/* The same, guarded. */
int book_reader_live_get(const struct book_reader *reader, enum book_section_kind kind,
                         struct book_live *ret_live);

/* 0 if `fd` is the file this reader was opened on, -ESTALE if it is another one, -EIO if it has become
 * shorter than it was. */
int book_reader_check_fd(const struct book_reader *reader, int fd);

/* Are there counter pages that the lists do not have yet? Under a guard only; two loads. */
bool book_reader_pages_behind(const struct book_reader *reader);

/* Under a guard: is there anything for book_reader_refresh() to do? */
bool book_reader_behind(struct book_reader *reader);

/* Find them, and leave devices and accounts as they are. */
int book_reader_pages_refresh(struct book_reader *reader);

/* In reader_peak.c: fill in sites->at_peak, of a copy whose sites and counters are there and checked. */
int book_reader_at_peak(struct book_reader *reader, struct book_sites *sites);

/* pread() all of it; -EIO when the file ends before. */
int book_pread_all(int fd, void *out, size_t len, uint64_t offset);

/* Copy entries 0 … n-1 of a section, `item` bytes of each, into `out` (zeroed by the caller). Holes
 * of the file are skipped, so a hostile sparse file costs nothing. */
int book_reader_copy(const struct book_reader *reader, int fd, enum book_section_kind kind,
                     uint64_t n, void *out, size_t item);

/* The first byte at or after `from` that has a page, or `end` if there is none before it. Moves the
 * descriptor's file offset. */
uint64_t book_next_data(int fd, uint64_t from, uint64_t end);

/* How many bytes between `from` and `end` have no page; counting stops beyond `max`. */
uint64_t book_holes(int fd, uint64_t from, uint64_t end, uint64_t max);

/* Copy a string of at most `len` bytes; terminated, control bytes and invalid UTF-8 become '?'. */
void book_text_copy(char *out, size_t out_size, const char *text, size_t len);

#endif
