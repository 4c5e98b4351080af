/* Terminals, and text that is safe for them. See term.h. */
#include "cli/term.h"

#include <langinfo.h>
#include <locale.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "base/buffer.h"
#include "base/utf8.h"

const char *const term_color_words[] = {"auto", "always", "never", NULL};

static bool color_wanted(bool tty, enum term_color color)
{
    if (color != TERM_COLOR_AUTO)
        return color == TERM_COLOR_ALWAYS;
    const char *no_color = getenv("NO_COLOR");
    const char *name = getenv("TERM");
    return tty && !(no_color && *no_color) && name && strcmp(name, "dumb") != 0;
}

void term_init(struct term *term, int fd, enum term_color color)
{
    static bool locale_set;
    if (!locale_set) {
        setlocale(LC_CTYPE, "");
        locale_set = true;
    }
    *term = (struct term){
        .tty = isatty(fd),
        .utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0,
    };
    term->color = color_wanted(term->tty, color);
    struct winsize size;
    if (term->tty && ioctl(fd, TIOCGWINSZ, &size) == 0) {
        term->width = size.ws_col;
        term->height = size.ws_row;
    }
    const char *columns = getenv("COLUMNS");
    if (!term->width && columns) {
        char *end;
        unsigned long n = strtoul(columns, &end, 10);
        if (!*end && n <= 10000)
            term->width = (unsigned)n;
    }
    if (term->tty && !term->width)
        term->width = 80;
}

const char *term_style(const struct term *term, enum term_style style)
{
    static const char *const on[] = {
        [STYLE_PLAIN] = "",        [STYLE_TITLE] = "\033[1m", [STYLE_DIM] = "\033[2m",
        [STYLE_GOOD] = "\033[32m", [STYLE_WARN] = "\033[33m", [STYLE_BAD] = "\033[1;31m",
        [STYLE_BLUE] = "\033[34m", [STYLE_CYAN] = "\033[36m", [STYLE_MAGENTA] = "\033[35m",
    };
    return term->color ? on[style] : "";
}

const char *term_plain(const struct term *term, enum term_style style)
{
    return term->color && style != STYLE_PLAIN ? "\033[0m" : "";
}

/* One character of `text`: its bytes (0 at the end), what to print instead (or NULL) and its width.
 * Unprintable bytes and characters become '?', one column each. */
struct glyph {
    size_t bytes;
    const char *instead;
    unsigned columns;
};

static struct glyph glyph_at(const struct term *term, const char *text)
{
    if (!*text)
        return (struct glyph){0};
    size_t n = utf8_sequence(text, strnlen(text, 4));
    if (n == 0)
        return (struct glyph){.bytes = 1, .instead = "?", .columns = 1};
    uint32_t c = utf8_decode(text, n);
    if (c < 0x80)
        return (struct glyph){
            .bytes = 1, .instead = c < 0x20 || c == 0x7f ? "?" : NULL, .columns = 1};
    int width = term->utf8 && !utf8_deceives(c) ? wcwidth((wchar_t)c) : -1;
    if (width < 0)
        return (struct glyph){.bytes = n, .instead = "?", .columns = 1};
    return (struct glyph){.bytes = n, .columns = (unsigned)width};
}

unsigned term_columns(const struct term *term, const char *text)
{
    unsigned columns = 0;
    for (struct glyph g = glyph_at(term, text); g.bytes; g = glyph_at(term, text)) {
        columns += g.columns;
        text += g.bytes;
    }
    return columns;
}

unsigned term_append(const struct term *term, struct buffer *out, const char *text,
                     unsigned columns)
{
    const char *ellipsis = term->utf8 ? "\xe2\x80\xa6" : "~";
    bool cut = columns && term_columns(term, text) > columns;
    unsigned room = cut ? columns - 1 : UINT32_MAX;
    unsigned used = 0;
    for (struct glyph g = glyph_at(term, text); g.bytes; g = glyph_at(term, text)) {
        if (used + g.columns > room)
            break;
        if (g.instead)
            buffer_append_str(out, g.instead);
        else
            buffer_append(out, text, g.bytes);
        used += g.columns;
        text += g.bytes;
    }
    if (cut) {
        buffer_append_str(out, ellipsis);
        used++;
    }
    return used;
}

static void indent_by(struct buffer *out, unsigned columns)
{
    buffer_printf(out, "%*s", (int)columns, "");
}

/* The words of one paragraph, up to the empty line or verbatim line that ends it. */
/* A word; a figure and its unit are one: "426.0 kB", "1.4 s". */
static size_t word_length(const char *text)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "ns", "us", "ms", "s"};
    size_t len = strcspn(text, " \n");
    if (*text < '0' || *text > '9' || text[len - 1] < '0' || text[len - 1] > '9' ||
        text[len] != ' ')
        return len;
    const char *next = text + len + 1;
    size_t letters = strspn(next, "BkMGTPnums");
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
        if (letters == strlen(units[i]) && strncmp(next, units[i], letters) == 0)
            return len + 1 + strcspn(next, " \n");
    return len;
}

static const char *wrap_paragraph(struct buffer *out, const char *text, unsigned indent,
                                  unsigned columns)
{
    struct term plain = {.utf8 = true};
    unsigned used = 0;
    while (*text && *text != '\n') {
        size_t len = word_length(text);
        char word[256];
        size_t kept = len < sizeof(word) ? len : sizeof(word) - 1;
        memcpy(word, text, kept);
        word[kept] = '\0';
        unsigned width = term_columns(&plain, word);
        if (used && indent + used + 1 + width > columns) {
            buffer_append_char(out, '\n');
            used = 0;
        }
        if (used)
            buffer_append_char(out, ' ');
        else
            indent_by(out, indent);
        buffer_append(out, word, kept);
        used += width + (used ? 1 : 0);
        text += len;
        while (*text == ' ')
            text++;
        if (*text != '\n')
            continue;
        text++; /* a line break in the source is a space, unless the paragraph ends here */
        if (*text == '\n' || strncmp(text, "  ", 2) == 0)
            break;
    }
    buffer_append_char(out, '\n');
    return text;
}

void term_wrap(struct buffer *out, const char *text, unsigned indent, unsigned columns)
{
    while (*text) {
        if (*text == '\n') {
            buffer_append_char(out, '\n');
            text++;
        } else if (strncmp(text, "  ", 2) == 0) {
            size_t len = strcspn(text, "\n");
            indent_by(out, indent);
            buffer_append(out, text, len);
            buffer_append_char(out, '\n');
            text += len + (text[len] == '\n');
        } else {
            text = wrap_paragraph(out, text, indent, columns);
        }
    }
}
