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
    TUI_BACK, /* Esc or Backspace */
    /* below 0x1000: the character itself */
};

/* Take the screen. `term` gets its size and what it can show. -ENOTTY when there is no screen to take: a
 * pipe, TERM=dumb, an unknown terminal. */
int tui_start(struct term *term, enum term_color color);

/* Give it back; may be called at any time, also twice. */
void tui_stop(void);

/* One line of the screen, cut at its end. `marked`: shown as chosen. */
void tui_line(const struct term *term, unsigned row, const char *text, size_t len, bool marked);

/* Show what was drawn. */
void tui_show(void);

/* enum tui_key, or a character. After TUI_RESIZED `term` has the new size. */
int tui_wait(struct term *term, uint64_t timeout_ns);

/* The signal that ended it, or 0. */
int tui_signal(void);

#endif
