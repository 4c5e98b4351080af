/* What is printed from the table of keys: --help, the sample file, the manual page. */
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/version.h"
#include "daemon/config.h"

enum {
    TEXT_WIDTH = 96,
    HELP_WIDTH = 80, /* where there is no terminal to ask */
    HELP_WIDTH_MIN = 60,
    HELP_COLUMN = 30,
    HELP_ENTRY_MAX = 4096,
};

/* Words of `text` in lines of at most TEXT_WIDTH, each after `prefix`. */
static void wrap(struct buffer *out, const char *text, const char *prefix)
{
    size_t column = 0;
    while (*text) {
        size_t len = strcspn(text, " ");
        if (column > 0 && column + 1 + len > TEXT_WIDTH) {
            buffer_append_char(out, '\n');
            column = 0;
        }
        if (column == 0) {
            buffer_append_str(out, prefix);
            column = strlen(prefix);
        } else {
            buffer_append_char(out, ' ');
            column++;
        }
        buffer_append(out, text, len);
        column += len;
        text += len + (text[len] == ' ');
    }
    buffer_append_char(out, '\n');
}

/* ---- help ---- */

static size_t first_sentence(const char *help)
{
    const char *end = strstr(help, ". ");
    return end ? (size_t)(end - help) : strlen(help) - (help[strlen(help) - 1] == '.');
}

/* As wide as the terminal, within what reads well. */
static size_t help_width(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
        return HELP_WIDTH;
    return size.ws_col < HELP_WIDTH_MIN ? HELP_WIDTH_MIN
           : size.ws_col > TEXT_WIDTH   ? TEXT_WIDTH
                                        : size.ws_col;
}

/* "  --flag VALUE        what it is", the second in a column of its own. */
static void help_entry(struct buffer *out, const char *flag, const char *text, size_t width)
{
    size_t column = strlen(flag) + 2;
    buffer_printf(out, "  %s", flag);
    if (column + 2 > HELP_COLUMN) {
        buffer_append_char(out, '\n');
        column = 0;
    }
    bool first = true;
    while (*text) {
        size_t len = strcspn(text, " ");
        if (!first && column + 1 + len > width) {
            buffer_append_char(out, '\n');
            column = 0;
            first = true;
        }
        size_t gap = first ? HELP_COLUMN - column : 1;
        buffer_printf(out, "%*s%.*s", (int)gap, "", (int)len, text);
        column += gap + len;
        first = false;
        text += len + (text[len] == ' ');
    }
    buffer_append_char(out, '\n');
}

void config_print_help(struct buffer *out)
{
    size_t n, width = help_width();
    const struct config_key *keys = config_keys(&n);
    buffer_append_str(out, "Usage: memoird [FLAG...]\n\n"
                           "Watch the books of this machine's processes, and retire those of the "
                           "dead.\n\nFlags:\n");
    for (size_t i = 0; i < n; i++) {
        const struct config_key *key = &keys[i];
        bool boolean = key->type == CONFIG_BOOL || key->type == CONFIG_NOT_BOOL;
        MEMOIR_CLEANUP(buffer_release)
        struct buffer flag = BUFFER_INIT(HELP_ENTRY_MAX);
        MEMOIR_CLEANUP(buffer_release)
        struct buffer text = BUFFER_INIT(HELP_ENTRY_MAX);
        buffer_printf(&flag, "--%s%s%s%s", key->name, boolean ? "[=" : " ", key->value,
                      boolean ? "]" : "");
        buffer_append(&text, key->help, first_sentence(key->help));
        if (key->initial[0] && !key->flag_only)
            buffer_printf(&text, " [%s]", key->initial);
        help_entry(out, buffer_string(&flag), buffer_string(&text), width);
    }
    static const struct {
        const char *flag, *help;
    } actions[] = {
        {"--print-config", "Print a sample configuration file with every key explained"},
        {"--print-manual", "Print the manual page"},
        {"--print-api", "Print the OpenAPI description of what is served by HTTP"},
        {"-h, --help", "Print this"},
        {"-V, --version", "Print the version"},
    };
    for (size_t i = 0; i < sizeof(actions) / sizeof(*actions); i++)
        help_entry(out, actions[i].flag, actions[i].help, width);
    buffer_append_str(out, "\nSIGHUP reads the configuration again and reopens the log file;\n"
                           "SIGTERM and SIGINT end it.\n");
}

void config_print_sample(struct buffer *out)
{
    buffer_append_str(out,
                      "# memoird.conf: settings of memoird.\n"
                      "#\n"
                      "# Lines are 'key = value'; '#' begins a comment. What is commented out "
                      "shows the default.\n"
                      "# Every key is also a flag (--key VALUE), which wins over this file.\n"
                      "# SIGHUP (systemctl reload memoird) reads the file again; keys that need a "
                      "restart say so.\n");
    size_t n;
    const struct config_key *keys = config_keys(&n);
    for (size_t i = 0; i < n; i++) {
        if (keys[i].flag_only)
            continue;
        buffer_append_char(out, '\n');
        wrap(out, keys[i].help, "# ");
        if (!keys[i].reload)
            buffer_append_str(out, "# Needs a restart.\n");
        buffer_printf(out, "#%s =%s%s\n", keys[i].name, keys[i].initial[0] ? " " : "",
                      keys[i].initial);
    }
}

/* Text in which troff finds nothing of its own. */
static void troff(struct buffer *out, const char *text)
{
    bool line_start = true;
    for (; *text; text++) {
        if (line_start && (*text == '.' || *text == '\''))
            buffer_append_str(out, "\\&");
        line_start = *text == '\n';
        if (*text == '\\')
            buffer_append_str(out, "\\e");
        else if (*text == '-')
            buffer_append_str(out, "\\-");
        else if (*text == '~')
            buffer_append_str(out, "\\(ti");
        else
            buffer_append_char(out, *text);
    }
}

static void manual_keys(struct buffer *out)
{
    size_t n;
    const struct config_key *keys = config_keys(&n);
    for (size_t i = 0; i < n; i++) {
        const struct config_key *key = &keys[i];
        buffer_append_str(out, ".TP\n\\fB\\-\\-");
        troff(out, key->name);
        bool boolean = key->type == CONFIG_BOOL || key->type == CONFIG_NOT_BOOL;
        buffer_append_str(out, boolean ? "\\fR[=\\fI" : "\\fR \\fI");
        troff(out, key->value);
        buffer_append_str(out, boolean ? "\\fR]\n" : "\\fR\n");
        troff(out, key->help);
        if (key->initial[0]) {
            buffer_append_str(out, "\nThe default is ");
            troff(out, key->initial);
            buffer_append_char(out, '.');
        }
        if (key->flag_only)
            buffer_append_str(out, "\nA flag only.");
        else if (!key->reload)
            buffer_append_str(out, "\nA change needs a restart.");
        buffer_append_char(out, '\n');
    }
}

static const struct {
    const char *title, *text;
} manual_sections[] = {
    {"DESCRIPTION",
     "memoird finds the books in which processes account their memory, and watches them. When a "
     "process ends, however it ends, memoird writes one line with what it held, keeps its last "
     "figures and its largest blocks, and removes its book. Started as root it serves the whole "
     "machine, else its user. Books stay when memoird ends; the next one finds them."},
    {"SIGNALS",
     "SIGHUP reads the configuration again and reopens the log file; it says which changes need a "
     "restart. SIGTERM and SIGINT end memoird in order. Killed in any other way, it loses nothing."},
    {"PRIVILEGES",
     "As root, memoird starts a broker process and gives up CAP_SETUID and CAP_SETGID, which only the "
     "broker keeps. Files that a user's book names are opened as the owner of the book, memory is "
     "searched as the user who asks, both by processes of the broker that have become that user. Debug "
     "information is parsed by a process that is nobody and can open no files. Without these "
     "capabilities, call sites have no names, and only root sees the ages of heap blocks. As "
     "another user, memoird has no broker and works with the rights of that user."},
    {"EXIT STATUS", "0 after an orderly end; 1 when it could not start or go on; 2 for a wrong "
                    "command line or configuration."},
};

void config_print_manual(struct buffer *out)
{
    buffer_printf(
        out,
        ".TH MEMOIRD 8 \"\" \"Memoir %s\" \"Memoir\"\n.SH NAME\nmemoird \\- watch the "
        "books of this machine's processes\n.SH SYNOPSIS\n.B memoird\n[\\fIFLAG\\fR...]\n",
        MEMOIR_VERSION);
    buffer_printf(out, ".SH %s\n", manual_sections[0].title);
    troff(out, manual_sections[0].text);
    buffer_append_str(out, "\n.SH OPTIONS\nEvery flag but those marked is also a key of the "
                           "configuration file.\n");
    manual_keys(out);
    for (size_t i = 1; i < sizeof(manual_sections) / sizeof(*manual_sections); i++) {
        buffer_printf(out, ".SH %s\n", manual_sections[i].title);
        troff(out, manual_sections[i].text);
        buffer_append_char(out, '\n');
    }
    static const char *const files[][2] = {
        {"/etc/memoir/memoird.conf", "Settings; memoird \\-\\-print\\-config prints a sample."},
        {"/run/memoir/UID/", "Books."},
        {"/var/lib/memoir/retired.jsonl", "Processes that ended, one JSON object a line."},
    };
    buffer_append_str(out, ".SH FILES\n");
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
        buffer_printf(out, ".TP\n.I %s\n%s\n", files[i][0], files[i][1]);
    buffer_append_str(out, ".SH SEE ALSO\n.BR memoir (1)\n");
}
