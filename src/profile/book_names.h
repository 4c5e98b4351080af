/* The words of a live book: tags, and call sites as people name them.
 *
 * Both only grow while the book lives, so a copy stays right; it may lack the newest. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "book/reader.h"

struct ledger_book;
struct site_names;

/* The place in the code that asked for a block, as far as it is known. */
struct book_site_name {
    char *text;     /* "victim.c:19 main", "train.py:41 in load", else "libfoo.so+0x12ab"; owned */
    char *frame;    /* "PATH+0xOFFSET", or "FILE:LINE" of a script; owned */
    char *function; /* NULL if not known; owned */
    char *file;     /* NULL if not known; owned */
    uint32_t line;  /* 0 if not known */
};

struct book_names {
    struct book_sites copy;
    struct book_site_name *sites; /* by number; filled in when asked for */
    const struct ledger_book *book;
};

/* -errno as book_reader_sites(). The names refer to the book until they are released. */
int book_names_load(const struct ledger_book *book, struct book_names *ret_names);
void book_names_release(struct book_names *names);

/* NULL: no tag, or one that is newer than the copy. */
const char *book_names_tag(const struct book_names *names, uint32_t tag);

/* A frame as book_site_name.text has it, for free(); NULL where it is none of a module or a script. `symbols` may be
 * NULL. */
char *book_names_frame(const struct book_names *names, uint64_t frame, struct site_names *symbols);

/* NULL: no site is known. `symbols` may be NULL: then sites have no functions. Slow the first time for
 * each site. Borrowed until the names are released. */
const struct book_site_name *book_names_site(struct book_names *names, uint32_t site,
                                             struct site_names *symbols);
