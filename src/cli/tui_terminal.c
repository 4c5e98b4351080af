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
    if (setupterm(NULL, fd, &error) != OK)
        return false;
    bool usable = has("cup") && has("clear");
    del_curterm(cur_term);
    return usable;
}
