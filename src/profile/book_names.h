/* The words of a live book: tags, and call sites as people name them.
 *
 * Both only grow while the book lives, so a copy stays right; it may lack the newest. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "book/reader.h"
#include "profile/book_frames.h"

struct buffer;
struct ledger_book;
struct site_names;

/* The place in the code that asked for a block, as far as it is known: the line of the program's own code (headline.h). Where
 * the caller is not the program's own, that is the line further out that most of the sampled stacks through it agree on. */
struct book_site_name {
    char *text; /* "victim.c:19 main", "train.py:41 in load", else "libfoo.so+0x12ab"; owned */
    char *
        via; /* what that line calls to get its memory, "zmalloc"; NULL if it asks by itself; owned */
    char *frame;    /* "PATH+0xOFFSET", or "FILE:LINE" of a script; owned */
    char *function; /* whole; NULL if not known; owned */
    char *file;     /* NULL if not known; owned */
    uint32_t line;  /* 0 if not known */
};

struct book_names {
    struct book_sites copy;
    struct book_site_name *sites; /* by number; filled in when asked for */
    const struct ledger_book *book;
    struct profile *profile; /* frames with their names; made when the first site is asked for */
    struct book_frames frames;
};

/* -errno as book_reader_sites(). The names refer to the book until they are released. */
int book_names_load(const struct ledger_book *book, struct book_names *ret_names);
void book_names_release(struct book_names *names);

/* NULL: no tag, or one that is newer than the copy. */
const char *book_names_tag(const struct book_names *names, uint32_t tag);

/* NULL: no site is known. `symbols` may be NULL: then sites have no functions. Slow the first time for
 * each site. Borrowed until the names are released. */
const struct book_site_name *book_names_site(struct book_names *names, uint32_t site,
                                             struct site_names *symbols);

/* The stack that speaks for a site. */
struct book_stack {
    uint32_t frames[PROFILE_STACK_MAX]; /* of names->profile, innermost first */
    size_t n;
    size_t headline; /* which of them */
    bool sampled;    /* found by sampling: one of several, perhaps */
    uint32_t k,
        of; /* live samples that agree on the headline, and all of the site's; 0 of 0: not counted, or exact */
    struct book_site_name name;
};

/* As book_names_site(), with the stack. `samples` (NULL: not known) has live samples by number of the site: a headline
 * that fewer than `samples_min` of them speak for is not taken. Where the caller itself is the program's own, the stack is the one that
 * holds most, and k counts that stack. False: the site is not known. book_stack_release() frees the name. */
bool book_names_stack(struct book_names *names, uint32_t site, struct site_names *symbols,
                      const uint32_t *samples, uint32_t samples_min, struct book_stack *ret_stack);
void book_stack_release(struct book_stack *stack);

/* Is site number `stack` a sampled stack of what the caller alone is known of at site number `caller`? */
bool book_names_is_stack_of(const struct book_names *names, size_t stack, uint32_t caller);
