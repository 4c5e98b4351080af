/* tui_terminal.h: what terminfo knows of a terminal. Apart, since its header has a struct term of its own. */
#ifndef MEMOIR_CLI_TUI_TERMINAL_H
#define MEMOIR_CLI_TUI_TERMINAL_H

#include <stdbool.h>

/* Can a screen be drawn there? Not where $TERM is unknown or dumb. */
bool tui_terminal_usable(int fd);

#endif
