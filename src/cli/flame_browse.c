/* memoir flame --browse: a walk through the picture. See flame.h. */
#include <errno.h>
#include <regex.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/command.h"
#include "cli/flame.h"
#include "cli/tui.h"
#include "cli/tui_input.h"
#include "profile/profile.h"

enum { LINE_MAX_BYTES = 1 << 20, LINES_AROUND = 3 /* title, what is chosen, keys */ };

struct browse {
    const struct tree *tree;
    enum rows_measure measure;
    const char *title;
    struct term term;
    struct flame flame; /* of what is below `top` */
    uint32_t top;
    uint32_t chosen; /* always in the picture */
    size_t scroll;   /* first row shown */
    struct tui_input input;
    bool typing;
    bool *found; /* by node; NULL: nothing was searched for */
    size_t n_found;
    const char *message; /* instead of the keys, until the next one */
    struct buffer line;
};

static void browse_release(struct browse *b)
{
    flame_release(&b->flame);
    free(b->found);
    buffer_release(&b->line);
}

/* ---- where things are ---- */

static unsigned rows_shown(const struct browse *b)
{
    return b->term.height > LINES_AROUND ? b->term.height - LINES_AROUND : 1;
}

static size_t row_of(const struct browse *b, uint32_t node)
{
    return b->tree->nodes[node].depth - b->tree->nodes[b->top].depth;
}

static const struct flame_cell *cell_of(const struct browse *b, uint32_t node)
{
    size_t row = row_of(b, node);
    for (size_t i = 0; row < b->flame.n && i < b->flame.rows[row].n; i++)
        if (b->flame.rows[row].cells[i].node == node)
            return &b->flame.rows[row].cells[i];
    return NULL;
}

static void choose(struct browse *b, uint32_t node)
{
    if (!cell_of(b, node))
        return;
    b->chosen = node;
    size_t row = row_of(b, node);
    if (row < b->scroll)
        b->scroll = row;
    if (row >= b->scroll + rows_shown(b))
        b->scroll = row - rows_shown(b) + 1;
}

/* Lay out anew; what was chosen stays so where it is still to be seen. */
static int lay_out(struct browse *b, uint32_t top)
{
    struct flame flame;
    int r = flame_lay_out(b->tree, top, b->measure, b->term.width, 0, &flame);
    if (r < 0)
        return r;
    flame_release(&b->flame);
    b->flame = flame;
    b->top = top;
    b->scroll = 0;
    bool below = false;
    for (uint32_t n = b->chosen; n != TREE_NONE; n = b->tree->nodes[n].parent)
        below |= n == top;
    choose(b, below && cell_of(b, b->chosen) ? b->chosen : top);
    if (!below || !cell_of(b, b->chosen))
        b->chosen = top;
    return 0;
}

/* ---- drawing ---- */

static void line_out(struct browse *b, unsigned row, enum tui_mark mark)
{
    tui_line(&b->term, row, buffer_string(&b->line), b->line.len, mark);
    buffer_reset(&b->line);
}

static void draw_chosen(struct browse *b)
{
    const struct tree_node *node = &b->tree->nodes[b->chosen];
    char self[FLAME_VALUE_MAX];
    uint64_t own = rows_value(&node->self, b->measure);
    flame_node_text(b->tree, b->chosen, b->measure, &b->term, &b->line);
    if (own)
        buffer_printf(&b->line, "  (%s itself)",
                      flame_value(own, b->measure, node->estimate, self));
    const char *path = profile_text(b->tree->profile, node->module);
    if (*path) {
        buffer_append_str(&b->line, "  ");
        term_append(&b->term, &b->line, profile_base_name(path), 0);
    }
    line_out(b, b->term.height - 2, TUI_PLAIN);
}

static void draw(struct browse *b)
{
    unsigned shown = rows_shown(b);
    term_append(&b->term, &b->line, b->title, 0);
    buffer_append_str(&b->line, "  ");
    flame_node_text(b->tree, b->top, b->measure, &b->term, &b->line);
    if (b->found)
        buffer_printf(&b->line, "  %zu found", b->n_found);
    line_out(b, 0, TUI_HEADING);
    for (unsigned i = 0; i < shown; i++) {
        if (b->scroll + i < b->flame.n)
            flame_row_append(&b->flame, b->scroll + i, &b->term, b->chosen, b->found, &b->line);
        line_out(b, 1 + i, TUI_PLAIN);
    }
    if (b->term.height >= LINES_AROUND)
        draw_chosen(b);
    if (b->typing) {
        buffer_append_char(&b->line, '/');
        term_append(&b->term, &b->line, b->input.text, 0);
        buffer_append_char(&b->line, '_');
    } else {
        buffer_append_str(&b->line, b->message
                                        ? b->message
                                        : "arrows choose  Enter zooms in  Esc out  / searches  "
                                          "n next  q ends");
    }
    line_out(b, b->term.height - 1, TUI_PLAIN);
    tui_show();
}

/* ---- searching ---- */

static int search(struct browse *b)
{
    regex_t regex;
    free(b->found);
    b->found = NULL;
    b->n_found = 0;
    if (!b->input.len)
        return 0;
    if (regcomp(&regex, b->input.text, REG_EXTENDED | REG_NOSUB | REG_ICASE) != 0) {
        b->message = "that is no regular expression";
        return 0;
    }
    b->found = calloc(b->tree->n, sizeof(*b->found));
    for (size_t i = 1; b->found && i < b->tree->n; i++) {
        b->found[i] = regexec(&regex, profile_text(b->tree->profile, b->tree->nodes[i].name), 0,
                              NULL, 0) == 0;
        b->n_found += b->found[i];
    }
    regfree(&regex);
    return b->found ? 0 : -ENOMEM;
}

/* The next found function after the chosen one, from left to right and from top to bottom. */
static void choose_next(struct browse *b)
{
    bool after = false;
    for (int round = 0; round < 2; round++)
        for (size_t row = 0; row < b->flame.n; row++)
            for (size_t i = 0; i < b->flame.rows[row].n; i++) {
                uint32_t node = b->flame.rows[row].cells[i].node;
                if (after && b->found && b->found[node]) {
                    choose(b, node);
                    return;
                }
                after |= node == b->chosen;
            }
    b->message =
        b->n_found ? "found only where it is too narrow to show: Enter zooms in" : "nothing found";
}

static int key_typing(struct browse *b, int key)
{
    if (tui_input_key(&b->input, key))
        return 0;
    if (key != TUI_ENTER && key != TUI_BACK)
        return 0;
    b->typing = false;
    if (key == TUI_BACK)
        return 0;
    int r = search(b);
    if (r == 0 && b->found)
        choose_next(b);
    return r;
}

/* ---- keys ---- */

/* The cell beside the chosen one in its row. */
static void choose_beside(struct browse *b, int step)
{
    const struct flame_row *row = &b->flame.rows[row_of(b, b->chosen)];
    for (size_t i = 0; i < row->n; i++)
        if (row->cells[i].node == b->chosen) {
            if (step < 0 ? i > 0 : i + 1 < row->n)
                choose(b, row->cells[step < 0 ? i - 1 : i + 1].node);
            return;
        }
}

static int click(struct browse *b)
{
    struct tui_mouse mouse = tui_mouse();
    size_t row = b->scroll + mouse.row - 1;
    if (mouse.what == TUI_WHEEL_UP || mouse.what == TUI_WHEEL_DOWN) {
        if (mouse.what == TUI_WHEEL_UP)
            b->scroll -= b->scroll > 0;
        else
            b->scroll += b->scroll + rows_shown(b) < b->flame.n;
        return 0;
    }
    if (mouse.row == 0 || mouse.row > rows_shown(b) || row >= b->flame.n)
        return 0;
    for (size_t i = 0; i < b->flame.rows[row].n; i++) {
        const struct flame_cell *cell = &b->flame.rows[row].cells[i];
        if (mouse.column < cell->at || mouse.column >= cell->at + cell->columns)
            continue;
        choose(b, cell->node);
        return mouse.what == TUI_DOUBLE_CLICK ? lay_out(b, b->chosen) : 0;
    }
    return 0;
}

static int key_press(struct browse *b, int key)
{
    const struct tree_node *node = &b->tree->nodes[b->chosen];
    b->message = NULL;
    switch (key) {
    case TUI_UP:
        if (b->chosen != b->top)
            choose(b, node->parent);
        return 0;
    case TUI_DOWN:
        if (node->child != TREE_NONE)
            choose(b, node->child);
        return 0;
    case TUI_LEFT:
    case TUI_RIGHT:
        choose_beside(b, key == TUI_LEFT ? -1 : 1);
        return 0;
    case TUI_PAGE_UP:
        b->scroll = b->scroll > rows_shown(b) ? b->scroll - rows_shown(b) : 0;
        return 0;
    case TUI_PAGE_DOWN:
        if (b->scroll + rows_shown(b) < b->flame.n)
            b->scroll += rows_shown(b);
        return 0;
    case TUI_ENTER:
        return lay_out(b, b->chosen);
    case TUI_BACK:
    case TUI_ERASE:
        return b->top ? lay_out(b, b->tree->nodes[b->top].parent) : 0;
    case TUI_HOME:
        return lay_out(b, 0);
    case TUI_MOUSE:
        return click(b);
    case '/':
        b->typing = true;
        tui_input_set(&b->input, "");
        return 0;
    case 'n':
        choose_next(b);
        return 0;
    default:
        return 0;
    }
}

int flame_browse(const struct tree *tree, enum rows_measure measure, const char *title,
                 enum term_color color)
{
    MEMOIR_CLEANUP(browse_release)
    struct browse b = {
        .tree = tree, .measure = measure, .title = title, .line = BUFFER_INIT(LINE_MAX_BYTES)};
    int r = tui_start(&b.term, color);
    if (r < 0)
        return r;
    tui_mouse_on();
    r = lay_out(&b, 0);
    while (r == 0) {
        draw(&b);
        int key = tui_wait(&b.term, 3600 * NS_PER_S);
        if (key == TUI_END || (key == 'q' && !b.typing))
            break;
        if (key == TUI_RESIZED)
            r = lay_out(&b, b.top);
        else if (key != TUI_NONE)
            r = b.typing ? key_typing(&b, key) : key_press(&b, key);
    }
    tui_stop();
    int number = tui_signal();
    if (r == 0 && number && number != SIGINT) {
        signal(number, SIG_DFL); /* who sent it should see that it worked */
        raise(number);
    }
    return r < 0 ? r : COMMAND_OK;
}
