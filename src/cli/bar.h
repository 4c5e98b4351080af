/*
 * bar.h: how full something is, drawn with characters.
 *
 * A bar never lies at its ends: what is used shows at least a sliver, and only what is full looks
 * full. In UTF-8 the last cell is filled by eighths; elsewhere bars are made of ASCII.
 */
#ifndef MEMOIR_CLI_BAR_H
#define MEMOIR_CLI_BAR_H

#include <stddef.h>
#include <stdint.h>

#include "cli/term.h"

struct buffer;

enum {
    BAR_WARN_PERCENT = 75,
    BAR_BAD_PERCENT = 90,
    BAR_PARTS_MAX = 4, /* of a stack: as many as there are textures that can be told apart */
};

/* Good, warn from 75 %, bad from 90 %; plain when the capacity is not known (0). */
enum term_style bar_style(uint64_t used, uint64_t capacity);

/* "66.4 %"; "-" when the capacity is not known. `text` takes BAR_PERCENT_MAX bytes. Returns it. */
enum { BAR_PERCENT_MAX = 32 };
const char *bar_percent(char text[static BAR_PERCENT_MAX], uint64_t used, uint64_t capacity);

/* `columns` wide, in the style that the fullness asks for. The capacity is not 0. */
void bar_append(const struct term *term, struct buffer *out, uint64_t used, uint64_t capacity,
                unsigned columns);

/* Several things in one bar, one after another. */
struct bar_part {
    uint64_t value;
    unsigned start, cells; /* where it stands; set by bar_divide() */
};

/* Give each part its cells: together as many as the sum is of the capacity. A part that is too small for
 * a cell has none. */
void bar_divide(struct bar_part *parts, size_t n, uint64_t capacity, unsigned columns);

/* The whole stack, each part in a texture of its own, styled by the fullness of all. */
void bar_append_stack(const struct term *term, struct buffer *out, const struct bar_part *parts,
                      size_t n, uint64_t capacity, unsigned columns);

/* Part `i` alone where it stands in the stack, for a line below it. A part without a cell is a sliver.
 * Nothing follows it. */
void bar_append_part(const struct term *term, struct buffer *out, const struct bar_part *parts,
                     size_t i, unsigned columns);

#endif
