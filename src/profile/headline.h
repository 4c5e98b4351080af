/* The line that speaks for a stack: the innermost one of the program's own code (site/own.h). Every view takes it from here.
 *
 * A function of the program's own that only forwards to the allocator is passed over, too. Some are known by name; others
 * are found by what they do: little code that asks in one place, called from many places, for blocks of different sizes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "site/own.h"

struct profile;
struct symbolizer;
struct buffer;

enum {
    HEADLINE_FORWARDS_CALLERS = 4, /* places that call a function that forwards: more than this */
    HEADLINE_FORWARDS_BYTES = 320, /* of its code, at most */
    HEADLINE_FORWARDS_NESTED = 3,  /* functions that forward to each other */
    HEADLINE_STRANGE_NAMED =
        4, /* innermost frames that get names where none is the program's own */
};

/* A stack, the innermost frame first, with all that it ever asked for. */
struct headline_stack {
    const uint32_t *frames;
    uint16_t n_frames;
    uint16_t at; /* used by headlines_find() */
    uint64_t bytes, blocks;
};

/* Look up the names that the choice for these stacks needs (frames of modules that are not the program's are told by their
 * path) and mark the functions that forward. `progress` as of profile_name_all(). Without a symbolizer nothing is looked up. 0 or
 * -errno. */
int headlines_find(struct profile *profile, struct symbolizer *symbolizer,
                   struct headline_stack *stacks, size_t n,
                   bool (*progress)(size_t done, size_t all, void *context), void *context);

/* The same for all stacks of a profile. */
int headlines_find_all(struct profile *profile, struct symbolizer *symbolizer,
                       bool (*progress)(size_t done, size_t all, void *context), void *context);

/* Let two profiles that are compared pass over the same functions: what forwards in one does in the other. Frames must have
 * keys. 0 or -ENOMEM. */
int headlines_agree(struct profile *one, struct profile *other);

/* Which of the frames, by what is known of them now; 0 where none is better than the innermost. */
size_t headline_frame(const struct profile *profile, const uint32_t *frames, size_t n);

/* Which of the calls compiled into each other at a frame; 0 is the innermost. */
size_t headline_line(const struct profile *profile, uint32_t frame);

/* Whose code a frame is: that of its best line. */
enum own_kind headline_kind(const struct profile *profile, uint32_t frame);

/* What the headline calls to get its memory, for people: "std::map<…>::operator[]", "zmalloc". `frames` are those inside of the
 * headline's, innermost first, and the headline's own as the last of `n`. Nothing where the headline asked by itself, or where
 * the inside of an interpreter follows a line of a script. */
void headline_via(const struct profile *profile, const uint32_t *frames, size_t n,
                  struct buffer *out);
