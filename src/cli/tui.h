/*
 * tui.h: the whole screen, by ncurses. Nothing else knows about it.
 *
 * Pages are text with the styles of term.h, the same that commands print; here they become attributes.
 * The terminal is given back as it was on every way out: the end, signals, and being stopped (Ctrl-Z).
 */
#ifndef MEMOIR_CLI_TUI_H
#define MEMOIR_CLI_TUI_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/term.h"

enum tui_key {
    TUI_NONE = 0,     /* the time is over */
    TUI_END = 0x1000, /* a signal, or the terminal is gone */
    TUI_RESIZED,
    TUI_UP,
    TUI_DOWN,
    TUI_PAGE_UP,
    TUI_PAGE_DOWN,
    TUI_HOME,
    TUI_LAST,
    TUI_LEFT,
    TUI_RIGHT,
    TUI_ENTER,
    TUI_BACK,  /* Esc */
    TUI_ERASE, /* Backspace */
    TUI_MOUSE, /* see tui_mouse() */
    /* below 0x1000: the character itself; one of several bytes comes byte by byte */
};

enum tui_mouse_what { TUI_CLICK, TUI_DOUBLE_CLICK, TUI_WHEEL_UP, TUI_WHEEL_DOWN };

struct tui_mouse {
    enum tui_mouse_what what;
    unsigned row, column; /* from 0 */
};

/* How a line stands out. */
enum tui_mark {
    TUI_PLAIN,
    TUI_MARKED,  /* chosen */
    TUI_HEADING, /* of a table */
};

/* Take the screen. `term` gets its size and what it can show. -ENOTTY when there is no screen to take: a
 * pipe, TERM=dumb, an unknown terminal. */
int tui_start(struct term *term, enum term_color color);

/* Give it back; may be called at any time, also twice. */
void tui_stop(void);

/* Ask for the mouse as well: clicks and the wheel come as TUI_MOUSE from then on. The terminal's own marking of
 * text then needs Shift, so only views that use it ask. */
void tui_mouse_on(void);

/* What the last TUI_MOUSE was about. */
struct tui_mouse tui_mouse(void);

/* One line of the screen, cut at its end. */
void tui_line(const struct term *term, unsigned row, const char *text, size_t len,
              enum tui_mark mark);

/* Show what was drawn. */
void tui_show(void);

/* enum tui_key, or a character. After TUI_RESIZED `term` has the new size. */
int tui_wait(struct term *term, uint64_t timeout_ns);

/* The signal that ended it, or 0. */
int tui_signal(void);

#endif
