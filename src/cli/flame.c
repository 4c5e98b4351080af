/* Trees as pictures. See flame.h. */
#include "cli/flame.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/units.h"
#include "profile/profile.h"
#include "site/short_name.h"

enum { NAME_MIN = 2 /* columns of a cell that are worth a letter */, SMALL_PER_MILLE = 1 };

/* ---- where everything stands ---- */

static int row_add(struct flame *f, size_t *room)
{
    if (f->n == *room) {
        size_t more = *room ? *room * 2 : 32;
        struct flame_row *rows = reallocarray(f->rows, more, sizeof(*rows));
        if (!rows)
            return -ENOMEM;
        f->rows = rows;
        *room = more;
    }
    struct flame_row *row = &f->rows[f->n];
    row->n = 0;
    row->cells = calloc(f->width, sizeof(*row->cells));
    if (!row->cells)
        return -ENOMEM;
    f->n++;
    return 0;
}

static uint64_t value_of(const struct flame *f, uint32_t node)
{
    return rows_value(&f->tree->nodes[node].total, f->measure);
}

/* The children of a cell, each as wide as its part of it. What is narrower than a column leaves a gap. */
static void lay_children(const struct flame *f, const struct flame_cell *cell,
                         struct flame_row *row)
{
    uint64_t whole = value_of(f, cell->node), before = 0;
    for (uint32_t c = f->tree->nodes[cell->node].child; c != TREE_NONE && whole;
         c = f->tree->nodes[c].sibling) {
        uint64_t value = value_of(f, c);
        uint64_t after = value > whole - before ? whole : before + value;
        unsigned from = (unsigned)((unsigned __int128)cell->columns * before / whole);
        unsigned to = (unsigned)((unsigned __int128)cell->columns * after / whole);
        if (to > from)
            row->cells[row->n++] = (struct flame_cell){c, cell->at + from, to - from};
        before = after;
    }
}

static int by_value(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return x[1] != y[1] ? (x[1] > y[1] ? -1 : 1) : (x[0] > y[0]) - (x[0] < y[0]);
}

/* Which modules hold the most themselves. */
static int find_modules(struct flame *f)
{
    const struct tree *t = f->tree;
    MEMOIR_CLEANUP(freep)
    uint64_t(*sums)[2] = calloc(t->profile->n_modules + 1, sizeof(*sums));
    MEMOIR_CLEANUP(numbers_release)
    struct numbers by_path = {0};
    size_t n = 0;
    if (!sums)
        return -ENOMEM;
    for (size_t i = 1; i < t->n; i++) {
        struct numbers_walk walk;
        uint32_t k = numbers_first(&by_path, t->nodes[i].module, &walk);
        if (k == NUMBERS_NONE) {
            k = (uint32_t)n++; /* modules with one path are one */
            sums[k][0] = t->nodes[i].module;
            if (numbers_add(&by_path, t->nodes[i].module, k) < 0)
                return -ENOMEM;
        }
        uint64_t value = rows_value(&t->nodes[i].self, f->measure);
        sums[k][1] = sums[k][1] > UINT64_MAX - value ? UINT64_MAX : sums[k][1] + value;
    }
    qsort(sums, n, sizeof(*sums), by_value);
    for (size_t i = 0; i < n && i < FLAME_COLORS; i++) {
        f->modules[i] = (profile_string)sums[i][0];
        f->module_values[i] = sums[i][1];
        f->n_modules++;
    }
    return 0;
}

int flame_lay_out(const struct tree *tree, uint32_t top, enum rows_measure measure, unsigned width,
                  unsigned depth, struct flame *ret_flame)
{
    MEMOIR_CLEANUP(flame_release)
    struct flame f = {.tree = tree, .measure = measure, .top = top};
    size_t room = 0;
    f.width = width < FLAME_WIDTH_MAX ? width : FLAME_WIDTH_MAX;
    if (f.width == 0)
        f.width = 1;
    int r = find_modules(&f);
    if (r == 0)
        r = row_add(&f, &room);
    if (r < 0)
        return r;
    f.rows[0].cells[f.rows[0].n++] = (struct flame_cell){top, 0, f.width};
    while (!depth || f.n < depth) {
        r = row_add(&f, &room);
        if (r < 0)
            return r;
        struct flame_row *last = &f.rows[f.n - 1], *above = &f.rows[f.n - 2];
        for (size_t i = 0; i < above->n; i++)
            lay_children(&f, &above->cells[i], last);
        if (last->n == 0) {
            free(last->cells);
            f.n--;
            break;
        }
    }
    *ret_flame = f;
    f = (struct flame){0};
    return 0;
}

void flame_release(struct flame *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->rows[i].cells);
    free(f->rows);
    *f = (struct flame){0};
}

/* ---- words ---- */

const char *flame_value(uint64_t value, enum rows_measure measure, bool estimate,
                        char text[static FLAME_VALUE_MAX])
{
    char number[UNITS_TEXT_MAX];
    const char *about = estimate ? "~" : "";
    if (measure == ROWS_BLOCKS)
        snprintf(text, FLAME_VALUE_MAX, "%s%s block%s", about, units_format_count(number, value),
                 value == 1 ? "" : "s");
    else
        snprintf(text, FLAME_VALUE_MAX, "%s%s", about,
                 units_format_bytes(number, value, UNITS_DECIMAL));
    return text;
}

static const char *name_of(const struct tree *t, uint32_t node)
{
    static char text[SHORT_NAME_MAX]; /* until the next call */
    return node == 0 ? "all" : short_name(profile_text(t->profile, t->nodes[node].name), text);
}

void flame_node_text(const struct tree *t, uint32_t node, enum rows_measure measure,
                     const struct term *term, struct buffer *out)
{
    char text[FLAME_VALUE_MAX];
    uint64_t value = rows_value(&t->nodes[node].total, measure);
    uint64_t all = rows_value(&t->nodes[0].total, measure);
    term_append(term, out, name_of(t, node), 0);
    buffer_printf(out, "  %s", flame_value(value, measure, t->nodes[node].estimate, text));
    if (all && node)
        buffer_printf(out, "  %.1f %%", (double)value * 100 / (double)all);
}

/* ---- the picture ---- */

/* Black on colours that are told apart on light and dark screens alike; the root has none. */
static const char *const colors[FLAME_COLORS] = {"\033[30;43m", "\033[30;46m", "\033[30;42m",
                                                 "\033[30;45m", "\033[30;44m", "\033[30;47m"};
#define COLOR_MARKED "\033[7;1m"
#define COLOR_FOUND  "\033[30;41m"
#define COLOR_END    "\033[0m"

static size_t color_of(const struct flame *f, profile_string module)
{
    for (size_t i = 0; i < f->n_modules; i++)
        if (f->modules[i] == module)
            return i;
    return FLAME_COLORS - 1;
}

static void cell_append(const struct flame *f, const struct flame_cell *cell,
                        const struct term *term, uint32_t marked, bool found, struct buffer *out)
{
    const struct tree_node *node = &f->tree->nodes[cell->node];
    bool color = term->color;
    unsigned used = 1;
    if (color)
        buffer_append_str(out, cell->node == marked ? COLOR_MARKED
                               : found              ? COLOR_FOUND
                               : cell->node == 0    ? "\033[1m"
                                                    : colors[color_of(f, node->module)]);
    /* Where there is no colour, what is chosen and what was found is told by its left end. */
    if (!color && cell->node == marked)
        buffer_append_char(out, '>');
    else if (!color && found)
        buffer_append_char(out, '*');
    else
        buffer_append_str(out, term->utf8 ? "\xe2\x96\x8f" : "|");
    if (cell->columns >= NAME_MIN) {
        MEMOIR_CLEANUP(buffer_release)
        struct buffer text = BUFFER_INIT(1 << 17);
        struct term ascii = *term;
        flame_node_text(f->tree, cell->node, f->measure, &ascii, &text);
        const char *shown = buffer_string(&text);
        /* The whole text where there is room, else the name alone. */
        if (term_columns(term, shown) > cell->columns - 1)
            shown = name_of(f->tree, cell->node);
        used += term_append(term, out, shown, cell->columns - 1);
    }
    while (used++ < cell->columns)
        buffer_append_char(out, ' ');
    if (color)
        buffer_append_str(out, COLOR_END);
}

void flame_row_append(const struct flame *f, size_t row, const struct term *term, uint32_t marked,
                      const bool *found, struct buffer *out)
{
    unsigned at = 0;
    for (size_t i = 0; i < f->rows[row].n; i++) {
        const struct flame_cell *cell = &f->rows[row].cells[i];
        while (at < cell->at) {
            buffer_append_char(out, ' ');
            at++;
        }
        cell_append(f, cell, term, marked, found && found[cell->node], out);
        at += cell->columns;
    }
}

static void legend(const struct flame *f, const struct term *term, struct buffer *out)
{
    const struct profile *p = f->tree->profile;
    uint64_t all = rows_value(&f->tree->nodes[0].total, f->measure);
    for (size_t i = 0; i < f->n_modules && all; i++) {
        const char *path = profile_text(p, f->modules[i]);
        char name[160];
        if (!f->module_values[i])
            break;
        snprintf(name, sizeof(name), " %.100s %.1f %% ",
                 *path ? profile_base_name(path) : "[no file]",
                 (double)f->module_values[i] * 100 / (double)all);
        if (i)
            buffer_append_char(out, ' ');
        buffer_append_str(out, colors[i]);
        term_append(term, out, name, 0);
        buffer_append_str(out, COLOR_END);
    }
    buffer_append_char(out, '\n');
}

void flame_append(const struct flame *f, const struct term *term, struct buffer *out)
{
    for (size_t i = 0; i < f->n; i++) {
        flame_row_append(f, i, term, TREE_NONE, NULL, out);
        buffer_append_char(out, '\n');
    }
    if (term->color)
        legend(f, term, out);
}

/* ---- text ---- */

struct texts {
    const struct tree *tree;
    enum rows_measure measure;
    unsigned depth;
    uint64_t all;
    const struct term *term;
    struct buffer *out;
};

static void text_line(const struct texts *x, unsigned depth, uint64_t value, bool estimate,
                      const char *name)
{
    char text[FLAME_VALUE_MAX];
    double percent = x->all ? (double)value * 100 / (double)x->all : 0;
    buffer_printf(x->out, "%12s  %5.1f %%  %*s", flame_value(value, x->measure, estimate, text),
                  percent, (int)(2 * depth), "");
    unsigned before = 24 + 2 * depth;
    term_append(x->term, x->out, name,
                !x->term->width                ? 0
                : x->term->width > before + 16 ? x->term->width - before
                                               : 16);
    buffer_append_char(x->out, '\n');
}

/* The nodes in the order of the picture, without recursion: stacks are as deep as strangers make them. */
void flame_text(const struct tree *tree, enum rows_measure measure, unsigned depth,
                const struct term *term, struct buffer *out)
{
    struct texts x = {tree, measure, depth, rows_value(&tree->nodes[0].total, measure), term, out};
    uint64_t least = x.all / (1000 / SMALL_PER_MILLE);
    uint32_t at = 0;
    while (at != TREE_NONE) {
        const struct tree_node *node = &tree->nodes[at];
        uint64_t value = rows_value(&node->total, measure);
        text_line(&x, node->depth, value, node->estimate, name_of(tree, at));
        uint32_t next = depth && node->depth + 1 >= depth ? TREE_NONE : node->child;
        /* Children go from large to small: the first that is small ends the list. */
        uint32_t parent = at;
        for (;;) {
            if (next != TREE_NONE) {
                uint64_t small = rows_value(&tree->nodes[next].total, measure);
                if (small && small >= least)
                    break;
                uint64_t sum = 0;
                size_t n = 0;
                for (uint32_t c = next; c != TREE_NONE; c = tree->nodes[c].sibling) {
                    sum += rows_value(&tree->nodes[c].total, measure);
                    n++;
                }
                char name[64];
                snprintf(name, sizeof(name), "... %zu smaller", n);
                if (sum)
                    text_line(&x, tree->nodes[parent].depth + 1, sum, false, name);
            }
            if (parent == 0 || parent == TREE_NONE) {
                next = TREE_NONE;
                break;
            }
            next = tree->nodes[parent].sibling;
            parent = tree->nodes[parent].parent;
        }
        at = next;
    }
}
