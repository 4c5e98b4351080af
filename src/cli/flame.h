/*
 * flame.h: a tree of functions as a picture: the root on top, below each function those that it called, as wide
 * as their part of the whole.
 */
#ifndef MEMOIR_CLI_FLAME_H
#define MEMOIR_CLI_FLAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/term.h"
#include "profile/tree.h"

struct buffer;

enum { FLAME_WIDTH_MAX = 1000, FLAME_COLORS = 6 };

/* A function in the picture. */
struct flame_cell {
    uint32_t node;
    unsigned at, columns;
};

struct flame_row {
    struct flame_cell *cells; /* from left to right; none that is narrower than a column */
    size_t n;
};

struct flame {
    const struct tree *tree;
    enum rows_measure measure;
    unsigned width;
    struct flame_row *rows; /* [0] is the function on top */
    size_t n;
    uint32_t top; /* its node */
    /* Modules by size, for colours: what is not among them has the last one. */
    profile_string modules[FLAME_COLORS];
    uint64_t module_values[FLAME_COLORS];
    size_t n_modules;
};

/* Lay out what is below `top` (0: the root), `depth` rows at most (0: all). Borrows the tree. 0 or -ENOMEM. */
int flame_lay_out(const struct tree *tree, uint32_t top, enum rows_measure measure, unsigned width,
                  unsigned depth, struct flame *ret_flame);
void flame_release(struct flame *flame);

/* One row of it, without a line end. `marked` is a node drawn as chosen (TREE_NONE: none), `found` one bit for
 * each node that a search found (NULL: none). */
void flame_row_append(const struct flame *flame, size_t row, const struct term *term,
                      uint32_t marked, const bool *found, struct buffer *out);

/* The whole picture, with the modules that the colours stand for. */
void flame_append(const struct flame *flame, const struct term *term, struct buffer *out);

/* The same as lines of text, each function below its caller and further in; what is less than a thousandth
 * of the whole is put together. */
void flame_text(const struct tree *tree, enum rows_measure measure, unsigned depth,
                const struct term *term, struct buffer *out);

/* "cache_fill  25.5 MB  12.3 %" of a node; its part is of the root. */
void flame_node_text(const struct tree *tree, uint32_t node, enum rows_measure measure,
                     const struct term *term, struct buffer *out);

/* Walk through it on the whole screen: choose, zoom, search. `title` names the process. enum command_exit; -ENOTTY
 * when there is no screen. */
int flame_browse(const struct tree *tree, enum rows_measure measure, const char *title,
                 enum term_color color);

/* "25.5 MB", "1,204 blocks" */
enum { FLAME_VALUE_MAX = 64 };
const char *flame_value(uint64_t value, enum rows_measure measure, bool estimate,
                        char text[static FLAME_VALUE_MAX]);

#endif
