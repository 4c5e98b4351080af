/* What a terminal can do. See tui_terminal.h. */
#include "cli/tui_terminal.h"

#include <ncurses.h>
#include <stdint.h>

#include <term.h>

static bool has(const char *capability)
{
    const char *text = tigetstr(capability);
    return text && text != (const char *)(intptr_t)-1;
}

bool tui_terminal_usable(int fd)
{
    int error;
    return setupterm(NULL, fd, &error) == OK && has("cup") && has("clear");
}
