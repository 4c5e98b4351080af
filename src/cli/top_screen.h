/*
 * top_screen.h: drawing of `memoir top`, apart from what its keys do.
 */
#ifndef MEMOIR_CLI_TOP_SCREEN_H
#define MEMOIR_CLI_TOP_SCREEN_H

#include <stddef.h>

struct top;

/* Draw the page that is open. 0 or -errno. */
int top_draw(struct top *t);

/* Rows of the list, or lines of the page, that the screen has room for. */
size_t top_room(const struct top *t);

#endif
