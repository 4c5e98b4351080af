/*
 * term.h: what the place that we print to can show, and text that is safe to show there.
 *
 * Names of programs, tags and devices come from strangers. Nothing reaches a terminal except through
 * term_append(), which lets no control character and no invisible or direction-changing one pass.
 */
#ifndef MEMOIR_CLI_TERM_H
#define MEMOIR_CLI_TERM_H

#include <stdbool.h>
#include <stddef.h>

struct buffer;

enum term_color { TERM_COLOR_AUTO, TERM_COLOR_ALWAYS, TERM_COLOR_NEVER };
extern const char *const term_color_words[]; /* in that order, ended by NULL */

enum term_style {
    STYLE_PLAIN,
    STYLE_TITLE,
    STYLE_DIM,
    STYLE_GOOD,
    STYLE_WARN,
    STYLE_BAD,
    STYLE_BLUE, /* these say nothing; they tell parts of a picture apart */
    STYLE_CYAN,
    STYLE_MAGENTA,
};

struct term {
    bool tty;
    bool utf8;       /* else only ASCII is printed */
    bool color;      /* styles have an effect */
    unsigned width;  /* columns; 0 when lines may have any length (a pipe, a file) */
    unsigned height; /* lines; 0 when unknown */
};

/* Look at descriptor `fd`. Calls setlocale() the first time. NO_COLOR and TERM=dumb turn AUTO off;
 * COLUMNS gives the width where the descriptor is no terminal. */
void term_init(struct term *term, int fd, enum term_color color);

/* The sequence that starts a style, and the one that ends it; "" without colour. */
const char *term_style(const struct term *term, enum term_style style);
const char *term_plain(const struct term *term, enum term_style style);

/* Columns that `text` takes when it is printed whole by term_append(). */
unsigned term_columns(const struct term *term, const char *text);

/* Append `text` as printable characters, at most `columns` wide (0: no limit); what does not fit is
 * replaced by an ellipsis. Returns the columns used. */
unsigned term_append(const struct term *term, struct buffer *out, const char *text,
                     unsigned columns);

/* Append prose broken at spaces so that no line is wider than `columns`, each line after `indent`
 * spaces. Empty lines separate paragraphs; lines that start with two spaces are kept as they are. */
void term_wrap(struct buffer *out, const char *text, unsigned indent, unsigned columns);

#endif
