/* Drawing the pages of top. See top_screen.h. */
#include "cli/top_screen.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/top.h"
#include "cli/tui.h"
#include "ledger/host.h"

enum { LINE_MAX_BYTES = 65536, FOOT_LINES = 1 };

static int (*const fills[TOP_PAGES])(struct top *t) = {
    [TOP_PAGE_PROCESS] = top_page_process, [TOP_PAGE_MACHINE] = top_page_machine,
    [TOP_PAGE_SORT] = top_menu_sort,       [TOP_PAGE_COLUMNS] = top_menu_columns,
    [TOP_PAGE_USERS] = top_menu_users,     [TOP_PAGE_HELP] = top_page_help,
};

static bool is_menu(enum top_page page)
{
    return page == TOP_PAGE_SORT || page == TOP_PAGE_COLUMNS || page == TOP_PAGE_USERS;
}

static void blank(const struct top *t, unsigned row)
{
    tui_line(&t->term, row, "", 0, TUI_PLAIN);
}

/* ---- the last line ---- */

/* "Enter details  / filter ...", as many as fit, the important first. */
static void hints_append(const struct top *t, const char *const *hints, unsigned used,
                         struct buffer *out)
{
    for (size_t i = 0; hints[i]; i += 2) {
        unsigned need = (unsigned)(strlen(hints[i]) + strlen(hints[i + 1]) + 3);
        if (used + need > t->term.width + 2)
            return;
        used += need;
        buffer_printf(out, "%s%s%s %s%s%s  ", term_style(&t->term, STYLE_TITLE), hints[i],
                      term_plain(&t->term, STYLE_TITLE), term_style(&t->term, STYLE_DIM),
                      hints[i + 1], term_plain(&t->term, STYLE_DIM));
    }
}

/* What is left out of the list. Returns the columns used. */
static unsigned only_append(const struct top *t, struct buffer *out)
{
    if (!*t->wish.filter && !t->wish.by_uid && !t->wish.only_tracked)
        return 0;
    unsigned used = 4 + 13;
    buffer_printf(out, "%sOnly", term_style(&t->term, STYLE_WARN));
    if (*t->wish.filter) {
        buffer_append_str(out, " '");
        used += 3 + term_append(&t->term, out, t->wish.filter, 24);
        buffer_append_str(out, "'");
    }
    if (t->wish.by_uid) {
        char text[32];
        used += (unsigned)snprintf(text, sizeof(text), " user %u", t->wish.uid);
        buffer_append_str(out, text);
    }
    if (t->wish.only_tracked) {
        buffer_append_str(out, " with a book");
        used += 12;
    }
    buffer_printf(out, "%s (Esc: all)  ", term_plain(&t->term, STYLE_WARN));
    return used;
}

static void foot_list(const struct top *t, struct buffer *out)
{
    static const char *const keys[] = {
        "?",     "help",  "q",    "quit",    "Enter", "details", "/",       "filter",   "s",
        "sort",  "t",     "tree", "u",       "user",  "C",       "columns", "m",        "memory",
        "Space", "pause", "r",    "reverse", "T",     "tracked", "+ -",     "interval", NULL,
    };
    if (t->typing) {
        buffer_printf(out, "%sFilter:%s ", term_style(&t->term, STYLE_TITLE),
                      term_plain(&t->term, STYLE_TITLE));
        term_append(&t->term, out, t->input.text, t->term.width / 2);
        buffer_printf(out, "_   %sEnter keeps it, Esc clears it%s", term_style(&t->term, STYLE_DIM),
                      term_plain(&t->term, STYLE_DIM));
        return;
    }
    if (*t->note) {
        term_append(&t->term, out, t->note, t->term.width);
        return;
    }
    hints_append(t, keys, only_append(t, out), out);
}

static void foot(const struct top *t, size_t lines, size_t room)
{
    static const char *const page_keys[] = {"Esc",  "back", "up down", "scroll", "?",
                                            "help", "q",    "quit",    NULL};
    static const char *const menu_keys[] = {"Enter", "choose", "Esc", "back", "q", "quit", NULL};
    static const char *const column_keys[] = {
        "Space", "show or hide", "Enter", "keep for next time", "Esc", "for now", NULL};
    MEMOIR_CLEANUP(buffer_release)
    struct buffer line = BUFFER_INIT(LINE_MAX_BYTES);
    if (t->page == TOP_PAGE_LIST)
        foot_list(t, &line);
    else
        hints_append(t,
                     t->page == TOP_PAGE_COLUMNS ? column_keys
                     : is_menu(t->page)          ? menu_keys
                                                 : page_keys,
                     0, &line);
    if (t->page != TOP_PAGE_LIST && lines > room)
        buffer_printf(&line, " %slines %zu-%zu of %zu%s", term_style(&t->term, STYLE_DIM),
                      t->scroll + 1, t->scroll + room, lines, term_plain(&t->term, STYLE_DIM));
    tui_line(&t->term, t->term.height - 1, buffer_string(&line), line.len, TUI_PLAIN);
}

/* ---- the list ---- */

/* Draws the lines of `text` from screen line `row` on; the line after the last one. */
static unsigned lines_draw(const struct top *t, const struct buffer *text, unsigned row)
{
    for (const char *line = buffer_string(text); *line && row + FOOT_LINES < t->term.height;) {
        size_t len = strcspn(line, "\n");
        tui_line(&t->term, row++, line, len, TUI_PLAIN);
        line += len + (line[len] == '\n');
    }
    return row;
}

/* The same process as before is chosen, wherever it is now; when it is gone, the row at its place. */
static void choose(struct top *t)
{
    const struct top_rows *rows = &t->source.rows;
    size_t at = t->chosen ? top_rows_find(rows, t->chosen) : 0;
    if (at == SIZE_MAX)
        at = t->chosen_at;
    if (rows->shown == 0) {
        t->chosen_at = t->first = 0;
        return;
    }
    t->chosen_at = at < rows->shown ? at : rows->shown - 1;
    if (t->chosen)
        t->chosen = rows->rows[rows->order[t->chosen_at]].pid;
}

static void scroll_list(struct top *t, size_t room)
{
    size_t shown = t->source.rows.shown;
    if (t->chosen_at < t->first)
        t->first = t->chosen_at;
    if (room && t->chosen_at >= t->first + room)
        t->first = t->chosen_at - room + 1;
    if (shown <= room)
        t->first = 0;
    else if (t->first > shown - room)
        t->first = shown - room;
}

size_t top_room(const struct top *t)
{
    unsigned above = t->page == TOP_PAGE_LIST ? t->heading + 1 : 0;
    return t->term.height > above + FOOT_LINES ? t->term.height - above - FOOT_LINES : 1;
}

static void empty_append(const struct top *t, struct buffer *out)
{
    bool all = !*t->wish.filter && !t->wish.by_uid && !t->wish.only_tracked;
    buffer_append_str(out, all ? "  /proc shows no process."
                           : t->wish.only_tracked
                               ? "  No process keeps a book. Start one with: memoir run PROGRAM"
                               : "  No process is like that. Esc shows all again.");
}

static int draw_list(struct top *t)
{
    int r = top_arrange(&t->source.rows, &t->wish);
    if (r < 0)
        return r;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer line = BUFFER_INIT(LINE_MAX_BYTES);
    const struct top_rows *rows = &t->source.rows;
    top_head_append(t, &line);
    unsigned row = lines_draw(t, &line, 0);
    choose(t);
    t->heading = row;
    top_layout_make(rows, t->columns, t->wish.tree, t->term.width, &t->layout);
    buffer_reset(&line);
    top_heading_append(&t->term, &t->layout, t->wish.sort, t->wish.ascending, &line);
    tui_line(&t->term, row++, buffer_string(&line), line.len, TUI_HEADING);
    size_t room = top_room(t);
    scroll_list(t, room);
    struct top_cells cells = {
        .term = &t->term,
        .system = host_system(t->source.host),
        .looks = rows->looks,
        .tree = t->wish.tree,
    };
    for (size_t i = t->first; i < rows->shown && row + FOOT_LINES < t->term.height; i++) {
        buffer_reset(&line);
        top_row_append(&cells, &t->layout, &rows->rows[rows->order[i]], &line);
        tui_line(&t->term, row++, buffer_string(&line), line.len,
                 i == t->chosen_at ? TUI_MARKED : TUI_PLAIN);
    }
    if (rows->shown == 0 && row + FOOT_LINES < t->term.height) {
        buffer_reset(&line);
        empty_append(t, &line);
        tui_line(&t->term, row++, buffer_string(&line), line.len, TUI_PLAIN);
    }
    while (row + FOOT_LINES < t->term.height)
        blank(t, row++);
    foot(t, rows->shown, room);
    return 0;
}

/* ---- pages of text ---- */

static size_t count_lines(const struct buffer *text)
{
    size_t n = 0;
    for (const char *p = buffer_string(text); *p; p++)
        n += *p == '\n';
    return n;
}

static void scroll_page(struct top *t, size_t lines, size_t room)
{
    if (is_menu(t->page)) { /* one line each, after the title and an empty one */
        size_t at = t->item + 2;
        if (at >= t->scroll + room)
            t->scroll = at - room + 1;
        if (at < t->scroll || t->item == 0)
            t->scroll = t->item ? at : 0;
    }
    if (lines <= room)
        t->scroll = 0;
    else if (t->scroll > lines - room)
        t->scroll = lines - room;
}

static int draw_page(struct top *t)
{
    buffer_reset(&t->text);
    int r = fills[t->page](t);
    if (r == 0)
        r = t->text.error;
    if (r < 0)
        return r;
    size_t lines = count_lines(&t->text), room = top_room(t);
    scroll_page(t, lines, room);
    t->scroll_lines = lines;
    const char *line = buffer_string(&t->text);
    unsigned row = 0;
    for (size_t i = 0; *line && row + FOOT_LINES < t->term.height; i++) {
        size_t len = strcspn(line, "\n");
        bool marked = is_menu(t->page) && i == t->item + 2;
        if (i >= t->scroll)
            tui_line(&t->term, row++, line, len, marked ? TUI_MARKED : TUI_PLAIN);
        line += len + (line[len] == '\n');
    }
    while (row + FOOT_LINES < t->term.height)
        blank(t, row++);
    foot(t, lines, room);
    return 0;
}

int top_draw(struct top *t)
{
    if (t->term.height < FOOT_LINES + 2)
        return 0;
    int r = t->page == TOP_PAGE_LIST ? draw_list(t) : draw_page(t);
    if (r == 0)
        tui_show();
    return r;
}
