/* Help on the screen. See help.h. */
#include "cli/help.h"

#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/version.h"
#include "cli/command.h"
#include "cli/table.h"
#include "cli/term.h"

enum {
    HELP_MAX = 1 << 20,
    HELP_WIDTH_MAX = 100, /* longer lines are hard to read */
    OPTION_INDENT = 24,
};

const struct help_exit help_exits[] = {
    {COMMAND_OK, "Success; also when nothing specific was asked for and there is nothing: no "
                 "process that reports, no device, no block."},
    {COMMAND_FAILED,
     "It could not be done; devices --check found a memory as full as that; a check "
     "of doctor failed."},
    {COMMAND_USAGE, "The command line is invalid (an option, a kind of memory, a column that "
                    "does not exist); nothing was done."},
    {COMMAND_NOTHING, "Something specific was asked for (a process, a user, a device, a filter of "
                      "buffers or query, a time of history) and there is none."},
    {0, NULL},
};

static unsigned help_width(struct term *term)
{
    term_init(term, STDOUT_FILENO, TERM_COLOR_AUTO);
    if (!term->width)
        return 80;
    return term->width < HELP_WIDTH_MAX ? term->width : HELP_WIDTH_MAX;
}

static void title(struct buffer *out, const struct term *term, const char *text)
{
    buffer_printf(out, "%s%s%s\n", term_style(term, STYLE_TITLE), text,
                  term_plain(term, STYLE_TITLE));
}

/* "  left        right", the right side wrapped; a long left side has its own line. */
static void two_columns(struct buffer *out, const char *left, const char *right, unsigned width)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer wrapped = BUFFER_INIT(HELP_MAX);
    if (width < OPTION_INDENT + 20)
        width = OPTION_INDENT + 20;
    term_wrap(&wrapped, right, OPTION_INDENT, width);
    const char *text = buffer_string(&wrapped);
    if (2 + strlen(left) + 2 <= OPTION_INDENT)
        buffer_printf(out, "  %-*s%s", OPTION_INDENT - 2, left, text + OPTION_INDENT);
    else
        buffer_printf(out, "  %s\n%s", left, text);
}

static void options_list(struct buffer *out, const struct option_spec *specs, unsigned width)
{
    for (; specs->name; specs++) {
        if (specs->hidden)
            continue;
        MEMOIR_CLEANUP(buffer_release)
        struct buffer left = BUFFER_INIT(256);
        if (!specs->letter)
            buffer_append_str(&left, "    ");
        options_format(specs, &left);
        two_columns(out, buffer_string(&left), specs->help, width);
    }
}

static void columns_list(struct buffer *out, const struct column *columns, unsigned width)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer names = BUFFER_INIT(HELP_MAX);
    for (size_t i = 0; columns[i].key; i++)
        buffer_printf(&names, "%s%s", i ? " " : "", columns[i].key);
    term_wrap(out, buffer_string(&names), 2, width);
}

/* "-trace-hot" of "trace hot". */
static void page_name(const struct command *command, struct buffer *out)
{
    buffer_append_char(out, '-');
    for (const char *c = command->name; *c; c++)
        buffer_append_char(out, *c == ' ' ? '-' : *c);
}

int help_command(const struct command *command)
{
    struct term term;
    unsigned width = help_width(&term);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(HELP_MAX);
    buffer_printf(&out, "Usage: memoir %s\n\n", command->usage);
    term_wrap(&out, command->description, 0, width);
    buffer_append_char(&out, '\n');
    if (command->parts) {
        title(&out, &term, "Subcommands");
        for (size_t i = 0; command->parts[i]; i++)
            two_columns(&out, command_last_word(command->parts[i]), command->parts[i]->help, width);
        buffer_append_char(&out, '\n');
    }
    title(&out, &term, "Options");
    options_list(&out, command->options, width);
    for (const struct command_fields *f = command->fields; f && f->title; f++) {
        buffer_append_char(&out, '\n');
        title(&out, &term, f->title);
        columns_list(&out, f->columns, width);
    }
    buffer_append_char(&out, '\n');
    title(&out, &term, "Examples");
    for (const struct command_example *e = command->examples; e->line; e++)
        buffer_printf(&out, "  %s\n      %s\n", e->line, e->what);
    buffer_append_str(&out, "\nMore: man memoir");
    page_name(command, &out);
    buffer_append_char(&out, '\n');
    return command_output(&out);
}

int help_overview(void)
{
    struct term term;
    unsigned width = help_width(&term);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(HELP_MAX);
    buffer_append_str(&out, "Usage: memoir COMMAND [OPTION...]\n\n");
    term_wrap(&out,
              "Memoir shows which process holds which memory, on the host and on accelerators, "
              "since when, and which line of code asked for it.",
              0, width);
    buffer_append_char(&out, '\n');
    title(&out, &term, "Commands");
    for (size_t i = 0; commands[i]; i++)
        if (!commands[i]->hidden)
            two_columns(&out, commands[i]->name, commands[i]->help, width);
    buffer_append_char(&out, '\n');
    title(&out, &term, "Options");
    options_list(&out, help_global_options, width);
    buffer_append_str(&out,
                      "\nStart with: memoir demo, and memoir devices --watch in another terminal.\n"
                      "Each command explains itself: memoir COMMAND --help\n");
    return command_output(&out);
}
