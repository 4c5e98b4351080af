/*
 * tui_input.h: a line that is being typed: what keys do to its text. Drawing it is the view's.
 */
#ifndef MEMOIR_CLI_TUI_INPUT_H
#define MEMOIR_CLI_TUI_INPUT_H

#include <stdbool.h>
#include <stddef.h>

enum { TUI_INPUT_MAX = 128 };

struct tui_input {
    char text[TUI_INPUT_MAX]; /* ends with 0; bytes as typed */
    size_t len;
};

/* Does the key write or erase? Then it is done. Ctrl-U erases all, Ctrl-W a word; what does not fit is dropped. */
bool tui_input_key(struct tui_input *input, int key);

void tui_input_set(struct tui_input *input, const char *text); /* cut where it does not fit */

#endif
