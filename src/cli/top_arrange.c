/* Which rows are shown, in what order, and how they hang together. See top_rows.h. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/top_columns.h"
#include "cli/top_rows.h"

enum { MORE_BITS = 64 };

/* ---- filter ---- */

bool top_row_matches(const struct top_row *row, const char *filter)
{
    if (!*filter)
        return true;
    char number[16];
    snprintf(number, sizeof(number), "%d", (int)row->pid);
    return strncmp(number, filter, strlen(filter)) == 0 ||
           strcasestr(top_column_text(TOP_COLUMN_PROGRAM, row), filter) ||
           strcasestr(top_column_text(TOP_COLUMN_USER, row), filter) ||
           (!row->self && strcasestr(top_column_text(TOP_COLUMN_COMMAND, row), filter));
}

static bool wanted(const struct top_row *row, const struct top_wish *wish)
{
    if (row->kernel && !wish->kernel)
        return false;
    if (wish->by_uid && !(row->has_uid && row->uid == wish->uid))
        return false;
    if (wish->only_tracked && !row->has_book)
        return false;
    return top_row_matches(row, wish->filter);
}

/* ---- order ---- */

struct sorting {
    const struct top_row *rows;
    const struct top_wish *wish;
};

static int compare(const void *a, const void *b, void *context)
{
    const struct sorting *s = context;
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    const struct top_row *p = &s->rows[x], *q = &s->rows[y];
    int order = top_column_compare(s->wish->sort, s->wish->ascending, s->wish->tree, p, q);
    if (!order) /* most rates and jobs are equal: then the large ones are those to look at */
        order = top_column_compare(TOP_COLUMN_RSS, false, s->wish->tree, p, q);
    return order ? order : (x > y) - (x < y);
}

static void sort(const struct top_rows *rows, const struct top_wish *wish, size_t *order, size_t n)
{
    struct sorting context = {rows->rows, wish};
    qsort_r(order, n, sizeof(*order), compare, &context);
}

/* ---- tree ---- */

#define NO_ROW SIZE_MAX

struct tree {
    size_t n;
    size_t *parent; /* NO_ROW: a root */
    /* n + 2: where the children of each are in `children`; those of n are the roots */
    size_t *start;
    size_t *children; /* n */
    size_t *order;    /* n: parents before their children */
    bool *wanted;     /* it or one below it */
};

static void tree_release(struct tree *tree)
{
    free(tree->parent);
    free(tree->start);
    free(tree->children);
    free(tree->order);
    free(tree->wanted);
}

static int tree_alloc(struct tree *tree, size_t n)
{
    tree->n = n;
    tree->parent = calloc(n + 1, sizeof(size_t));
    tree->start = calloc(n + 2, sizeof(size_t));
    tree->children = calloc(n + 1, sizeof(size_t));
    tree->order = calloc(n + 1, sizeof(size_t));
    tree->wanted = calloc(n + 1, sizeof(bool));
    return tree->parent && tree->start && tree->children && tree->order && tree->wanted ? 0
                                                                                        : -ENOMEM;
}

/* Parents are read at different moments while pids are reused: a process that is older than its parent is not its child,
 * and a ring that comes about nevertheless is cut open. */
static void tree_parents(struct tree *tree, const struct top_rows *rows)
{
    enum { UNSEEN, ON_THE_WAY, SEEN };
    for (size_t i = 0; i < rows->n; i++) {
        const struct top_row *row = &rows->rows[i];
        size_t parent = row->parent > 0 ? top_rows_index(rows, row->parent) : NO_ROW;
        if (parent != NO_ROW && (parent == i || rows->rows[parent].start_ticks > row->start_ticks))
            parent = NO_ROW;
        tree->parent[i] = parent;
        tree->order[i] = UNSEEN;
    }
    for (size_t i = 0; i < rows->n; i++) {
        size_t at = i;
        while (at != NO_ROW && tree->order[at] == UNSEEN) {
            tree->order[at] = ON_THE_WAY;
            size_t up = tree->parent[at];
            if (up != NO_ROW && tree->order[up] == ON_THE_WAY)
                tree->parent[at] = up = NO_ROW;
            at = up;
        }
        for (at = i; at != NO_ROW && tree->order[at] == ON_THE_WAY; at = tree->parent[at])
            tree->order[at] = SEEN;
    }
}

/* Children side by side, then all rows with parents first. */
static void tree_children(struct tree *tree)
{
    size_t n = tree->n;
    for (size_t i = 0; i < n; i++)
        tree->start[(tree->parent[i] == NO_ROW ? n : tree->parent[i]) + 1]++;
    for (size_t i = 0; i <= n; i++)
        tree->start[i + 1] += tree->start[i];
    /* Filled from behind, so that `start` need not be copied: it ends where it began. */
    for (size_t i = n; i-- > 0;) {
        size_t parent = tree->parent[i] == NO_ROW ? n : tree->parent[i];
        tree->children[--tree->start[parent + 1]] = i;
    }
    /* start[p + 1] is now where p's children begin; move them down. */
    for (size_t i = 0; i <= n; i++)
        tree->start[i] = tree->start[i + 1];
    tree->start[n + 1] = n;
    size_t done = 0, end = 0;
    for (size_t c = tree->start[n]; c < n; c++)
        tree->order[end++] = tree->children[c];
    for (; done < end; done++)
        for (size_t c = tree->start[tree->order[done]]; c < tree->start[tree->order[done] + 1]; c++)
            tree->order[end++] = tree->children[c];
}

static void add(struct top_figures *to, const struct top_row *row, const struct top_figures *from)
{
    for (int f = 0; f < TOP_FIGURES; f++) {
        uint32_t bit = 1u << f;
        if (!(from->known & bit)) {
            /* Kernel threads have nothing, and a process without a book is no gap in a sum of books. */
            if (!row->kernel && f != TOP_HEAP && f != TOP_PINNED && f != TOP_DEVICE)
                to->partial |= bit;
            continue;
        }
        if (__builtin_add_overflow(to->value[f], from->value[f], &to->value[f]))
            to->value[f] = INT64_MAX;
        to->known |= bit;
        to->partial |= from->partial & bit;
        to->estimate |= from->estimate & bit;
    }
}

static void tree_sums(struct tree *tree, struct top_rows *rows, const struct top_wish *wish)
{
    for (size_t i = 0; i < rows->n; i++) {
        struct top_row *row = &rows->rows[i];
        row->sum = row->own;
        row->below = row->depth = 0;
        row->more = 0;
        row->folded = false;
        tree->wanted[i] = wanted(row, wish);
        row->context = !tree->wanted[i];
    }
    for (size_t k = rows->n; k-- > 0;) {
        size_t i = tree->order[k], up = tree->parent[i];
        if (up == NO_ROW)
            continue;
        add(&rows->rows[up].sum, &rows->rows[i], &rows->rows[i].sum);
        if (!rows->rows[i].kernel || wish->kernel)
            rows->rows[up].below += 1 + rows->rows[i].below;
        tree->wanted[up] |= tree->wanted[i];
    }
}

static int compare_pids(const void *a, const void *b)
{
    pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;
    return (x > y) - (x < y);
}

static bool is_folded(const struct top_wish *wish, pid_t pid)
{
    return wish->n_folded && bsearch(&pid, wish->folded, wish->n_folded, sizeof(pid), compare_pids);
}

/* Put the wanted children of `parent` on the stack, the first one on top. Returns the new top. */
static size_t push(const struct tree *tree, struct top_rows *rows, size_t parent, size_t *stack,
                   size_t top)
{
    bool last = true;
    const struct top_row *up = parent < tree->n ? &rows->rows[parent] : NULL;
    for (size_t c = tree->start[parent + 1]; c-- > tree->start[parent];) {
        size_t i = tree->children[c];
        if (!tree->wanted[i])
            continue;
        struct top_row *row = &rows->rows[i];
        row->depth = up ? up->depth + 1 : 0;
        row->more = up ? up->more : 0;
        if (!last && row->depth < MORE_BITS)
            row->more |= UINT64_C(1) << row->depth;
        last = false;
        stack[top++] = i;
    }
    return top;
}

static int arrange_tree(struct top_rows *rows, const struct top_wish *wish)
{
    MEMOIR_CLEANUP(tree_release)
    struct tree tree = {0};
    int r = tree_alloc(&tree, rows->n);
    if (r < 0)
        return r;
    tree_parents(&tree, rows);
    tree_children(&tree);
    tree_sums(&tree, rows, wish);
    for (size_t i = 0; i <= rows->n; i++)
        sort(rows, wish, tree.children + tree.start[i], tree.start[i + 1] - tree.start[i]);
    size_t *stack = tree.order; /* has done its duty; never more than all are on it */
    size_t top = push(&tree, rows, rows->n, stack, 0);
    while (top) {
        size_t i = stack[--top];
        rows->order[rows->shown++] = i;
        rows->rows[i].folded = rows->rows[i].below && is_folded(wish, rows->rows[i].pid);
        if (!rows->rows[i].folded)
            top = push(&tree, rows, i, stack, top);
    }
    return 0;
}

int top_arrange(struct top_rows *rows, const struct top_wish *wish)
{
    rows->shown = 0;
    if (wish->tree)
        return arrange_tree(rows, wish);
    for (size_t i = 0; i < rows->n; i++) {
        struct top_row *row = &rows->rows[i];
        row->depth = row->below = 0;
        row->folded = row->context = false;
        if (wanted(row, wish))
            rows->order[rows->shown++] = i;
    }
    sort(rows, wish, rows->order, rows->shown);
    return 0;
}
