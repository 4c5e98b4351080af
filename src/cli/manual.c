/* Man pages from the command tables, in the classic man macros. See help.h. */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/version.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/table.h"

enum { PAGE_MAX = 1 << 20 };

static const struct command_section environment[] = {
    {"MEMOIR_DIR", "Directory of the books, for programs that report and for all commands; --dir "
                   "overrides it."},
    {"XDG_RUNTIME_DIR", "Books of a user are in its subdirectory memoir where it lies in memory."},
    {"NO_COLOR", "When set and not empty, output has no colours unless --color asks for them."},
    {"COLUMNS", "Width of the output where it is no terminal; without it, lines have any length."},
    {"MEMOIR_NVML", "Path of the library that tells what the NVIDIA driver counts, instead of "
                    "libnvidia-ml.so.1; off: it is not read."},
    {0},
};

static const struct command_section files[] = {
    {"/run/memoir/UID/", "Books, where memoird runs as root."},
    {"$XDG_RUNTIME_DIR/memoir/", "Books of a user without it."},
    {"/dev/shm/memoir-UID/", "Books where there is neither."},
    {0},
};

/* Text with everything that troff would take for its own escaped. */
static void escaped(struct buffer *out, const char *text, size_t len, bool line_start)
{
    static const char special[] = "\\-'~^`";
    static const char *const escapes[] = {"\\e", "\\-", "\\(aq", "\\(ti", "\\(ha", "\\(ga"};
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (line_start && (c == '.' || c == '\''))
            buffer_append_str(out, "\\&");
        const char *name = c ? strchr(special, c) : NULL;
        if (name)
            buffer_append_str(out, escapes[name - special]);
        else
            buffer_append_char(out, c);
        line_start = c == '\n';
    }
}

static void escaped_str(struct buffer *out, const char *text)
{
    escaped(out, text, strlen(text), true);
}

/* Paragraphs, and verbatim lines as command.h says. */
static void prose(struct buffer *out, const char *text)
{
    bool verbatim = false;
    while (*text) {
        size_t len = strcspn(text, "\n");
        bool indented = strncmp(text, "  ", 2) == 0;
        if (indented != verbatim)
            buffer_append_str(out, indented ? ".PP\n.nf\n.RS 4\n" : ".RE\n.fi\n");
        verbatim = indented;
        if (len == 0)
            buffer_append_str(out, ".PP\n");
        else {
            escaped(out, text + (indented ? 2 : 0), len - (indented ? 2 : 0), true);
            buffer_append_char(out, '\n');
        }
        text += len + (text[len] == '\n');
    }
    if (verbatim)
        buffer_append_str(out, ".RE\n.fi\n");
}

static void heading(struct buffer *out, const char *title)
{
    buffer_printf(out, ".SH %s\n", title);
}

static void upper(struct buffer *out, const char *text)
{
    for (; *text; text++)
        buffer_append_char(out, (char)toupper((unsigned char)*text));
}

static void page_begin(struct buffer *out, const char *name, const char *one_line)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer title = BUFFER_INIT(256);
    upper(&title, name);
    buffer_append_str(out, ".\\\" Generated from the command tables; do not edit.\n.TH \"");
    escaped_str(out, buffer_string(&title));
    buffer_printf(out, "\" 1 \"\" \"Memoir %s\" \"Memoir\"\n.nh\n.ad l\n", MEMOIR_VERSION);
    heading(out, "NAME");
    escaped_str(out, name);
    buffer_append_str(out, " \\- ");
    escaped_str(out, one_line);
    buffer_append_char(out, '\n');
    heading(out, "SYNOPSIS");
}

/* ".TP" items: a bold term and its explanation. */
static void item(struct buffer *out, const char *term, const char *text)
{
    buffer_append_str(out, ".TP\n.B ");
    escaped_str(out, term);
    buffer_append_char(out, '\n');
    escaped_str(out, text);
    buffer_append_char(out, '\n');
}

static void sentence(struct buffer *out, const char *text)
{
    char first = (char)toupper((unsigned char)*text);
    escaped(out, &first, 1, true);
    escaped(out, text + 1, strlen(text + 1), false);
    buffer_append_str(out, ".\n");
}

static void options_section(struct buffer *out, const struct option_spec *specs)
{
    heading(out, "OPTIONS");
    for (; specs->name; specs++) {
        if (specs->hidden)
            continue;
        MEMOIR_CLEANUP(buffer_release)
        struct buffer term = BUFFER_INIT(256);
        options_format(specs, &term);
        buffer_append_str(out, ".TP\n.B ");
        escaped_str(out, buffer_string(&term));
        buffer_append_char(out, '\n');
        sentence(out, specs->help);
    }
}

/* Names of the fields in JSON and CSV, with the title that the column has on screen. */
static void fields_section(struct buffer *out, const struct command_fields *fields)
{
    buffer_append_str(out, ".SH \"");
    upper(out, fields->title);
    buffer_append_str(out, "\"\n");
    const struct column *columns = fields->columns;
    for (; columns->key; columns++) {
        bool shown = columns->title && !(columns->flags & COLUMN_EXPORT_ONLY);
        buffer_append_str(out, ".TP\n.B ");
        escaped_str(out, columns->key);
        if (shown)
            buffer_printf(out, " \\fR(%s%s)", columns->title,
                          columns->flags & COLUMN_SCREEN_ONLY ? "; on screen only" : "");
        buffer_append_char(out, '\n');
        sentence(out, columns->help);
    }
}

static void examples_section(struct buffer *out, const struct command_example *examples)
{
    heading(out, "EXAMPLES");
    for (; examples->line; examples++) {
        buffer_append_str(out, ".TP\n.B ");
        escaped_str(out, examples->line);
        buffer_append_char(out, '\n');
        sentence(out, examples->what);
    }
}

static void exit_section(struct buffer *out)
{
    heading(out, "EXIT STATUS");
    for (const struct help_exit *e = help_exits; e->text; e++) {
        char code[] = {(char)('0' + e->code), '\0'};
        item(out, code, e->text);
    }
}

static void items_section(struct buffer *out, const char *title,
                          const struct command_section *items)
{
    heading(out, title);
    for (; items->title; items++)
        item(out, items->title, items->text);
}

/* "memoir(1), memoir-ps(1), ..." without the page itself. */
static void see_also(struct buffer *out, const char *own)
{
    heading(out, "SEE ALSO");
    const char *comma = "";
    if (strcmp(own, "memoir") != 0) {
        buffer_append_str(out, "\\fBmemoir\\fR(1)");
        comma = ", ";
    }
    for (size_t i = 0; commands[i]; i++) {
        if (commands[i]->hidden || strcmp(commands[i]->name, own) == 0)
            continue;
        buffer_printf(out, "%s\\fBmemoir\\-%s\\fR(1)", comma, commands[i]->name);
        comma = ", ";
    }
    buffer_printf(out, "%s\\fBmemoird\\fR(8)\n", comma);
}

static int overview_page(struct buffer *out)
{
    page_begin(out, "memoir", "which process holds which memory, since when, and why");
    buffer_append_str(out, ".B memoir\n.I COMMAND\n.RI [ OPTION... ]\n");
    heading(out, "DESCRIPTION");
    prose(out,
          "Memoir keeps the life story of every byte: which process holds it, on the host heap, "
          "pinned, or on an accelerator; which line of code asked for it; since when; and whether "
          "anyone will ever give it back.\n\n"
          "Every process that reports its memory keeps a book, a small file in shared memory that "
          "the process itself writes and everyone else only reads. The commands read the books, so "
          "they work without a daemon; memoird adds history.");
    heading(out, "COMMANDS");
    for (size_t i = 0; commands[i]; i++) {
        if (commands[i]->hidden)
            continue;
        buffer_append_str(out, ".TP\n.B memoir ");
        escaped_str(out, commands[i]->usage);
        buffer_append_char(out, '\n');
        sentence(out, commands[i]->help);
    }
    options_section(out, help_global_options);
    exit_section(out);
    items_section(out, "ENVIRONMENT", environment);
    items_section(out, "FILES", files);
    see_also(out, "memoir");
    return out->error;
}

/* Subcommands, each of which has a page of its own. */
static void parts_section(struct buffer *out, const struct command *command)
{
    heading(out, "SUBCOMMANDS");
    for (size_t i = 0; command->parts[i]; i++) {
        buffer_append_str(out, ".TP\n.B memoir ");
        escaped_str(out, command->parts[i]->usage);
        buffer_append_char(out, '\n');
        sentence(out, command->parts[i]->help);
        buffer_printf(out, "See \\fBmemoir\\-%s\\-%s\\fR(1).\n", command->name,
                      command_last_word(command->parts[i]));
    }
}

static int command_page(const struct command *command, struct buffer *out)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer name = BUFFER_INIT(256);
    buffer_append_str(&name, "memoir-");
    for (const char *c = command->name; *c; c++)
        buffer_append_char(&name, *c == ' ' ? '-' : *c);
    page_begin(out, buffer_string(&name), command->help);
    buffer_append_str(out, ".B memoir ");
    escaped_str(out, command->usage);
    buffer_append_char(out, '\n');
    heading(out, "DESCRIPTION");
    prose(out, command->description);
    if (command->parts)
        parts_section(out, command);
    options_section(out, command->options);
    for (const struct command_fields *f = command->fields; f && f->title; f++)
        fields_section(out, f);
    for (const struct command_section *s = command->sections; s && s->title; s++) {
        heading(out, s->title);
        prose(out, s->text);
    }
    examples_section(out, command->examples);
    exit_section(out);
    see_also(out, command->name);
    return out->error;
}

int manual_page(const char *name, struct buffer *out)
{
    if (strcmp(name, "memoir") == 0)
        return overview_page(out);
    const char *prefix = "memoir-";
    if (strncmp(name, prefix, strlen(prefix)) == 0)
        name += strlen(prefix);
    const struct command *command = command_find(name);
    return command && !command->hidden ? command_page(command, out) : -ENOENT;
}
