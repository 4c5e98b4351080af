/* Frames of a book as frames of a profile. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "book/reader.h"
#include "profile/profile.h"

struct ledger_book;

struct book_frames {
    struct profile *to;             /* borrowed */
    const struct ledger_book *book; /* borrowed */
    const struct book_sites *sites; /* borrowed */
    uint32_t *module_numbers;       /* of the profile, by module of the book */
    uint32_t address_module, unknown_module;
};

/* `sites` are those of the book. -ENOMEM. */
int book_frames_init(struct book_frames *frames, struct profile *to, const struct ledger_book *book,
                     const struct book_sites *sites);
void book_frames_release(struct book_frames *frames);

/* The stack of a site of the book, innermost first: how many frames. Errors stick to the profile. */
size_t book_frames_stack(struct book_frames *frames, const struct book_site *site,
                         uint32_t ret_frames[static PROFILE_STACK_MAX]);
