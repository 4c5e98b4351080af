/* A line that is being typed. See tui_input.h. */
#include "cli/tui_input.h"

#include <stdio.h>
#include <string.h>

#include "cli/tui.h"

#define CONTROL(letter) ((letter)&0x1f)

static void cut(struct tui_input *input, size_t len)
{
    input->len = len;
    input->text[len] = '\0';
}

/* The whole of the last character: its following bytes are 10xxxxxx. */
static void erase(struct tui_input *input)
{
    size_t len = input->len;
    while (len && ((unsigned char)input->text[--len] & 0xc0) == 0x80)
        ;
    cut(input, len);
}

static void erase_word(struct tui_input *input)
{
    size_t len = input->len;
    while (len && input->text[len - 1] == ' ')
        len--;
    while (len && input->text[len - 1] != ' ')
        len--;
    cut(input, len);
}

bool tui_input_key(struct tui_input *input, int key)
{
    if (key == TUI_ERASE) {
        erase(input);
    } else if (key == CONTROL('u')) {
        cut(input, 0);
    } else if (key == CONTROL('w')) {
        erase_word(input);
    } else if (key >= 0x20 && key <= 0xff && key != 0x7f) {
        if (input->len + 1 < sizeof(input->text)) {
            input->text[input->len] = (char)key;
            cut(input, input->len + 1);
        }
    } else {
        return false;
    }
    return true;
}

void tui_input_set(struct tui_input *input, const char *text)
{
    snprintf(input->text, sizeof(input->text), "%s", text);
    input->len = strlen(input->text);
}
