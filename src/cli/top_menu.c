/* Menus of top: what to sort by, which columns, whose processes. See top.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/top.h"
#include "query/query.h"

static void title_append(struct top *t, const char *title)
{
    buffer_printf(&t->text, "%s%s%s\n\n", term_style(&t->term, STYLE_TITLE), title,
                  term_plain(&t->term, STYLE_TITLE));
}

static void item_clamp(struct top *t)
{
    if (t->n_items && t->item >= t->n_items)
        t->item = t->n_items - 1;
}

/* ---- columns ---- */

static void column_append(struct top *t, enum top_column column, bool on)
{
    const struct column *field = &top_fields[column];
    buffer_printf(&t->text, " %s %-10s ", on ? "[x]" : "[ ]", field->title);
    term_append(&t->term, &t->text, field->help, t->term.width > 20 ? t->term.width - 18 : 10);
    buffer_append_char(&t->text, '\n');
}

int top_menu_sort(struct top *t)
{
    t->n_items = 0;
    title_append(t, "Sort by");
    for (int c = 0; c < TOP_COLUMNS; c++) {
        if (!top_column_sorts((enum top_column)c) || (c == TOP_COLUMN_TREE && !t->wish.tree))
            continue;
        if (t->item == SIZE_MAX && t->wish.sort == (enum top_column)c)
            t->item = t->n_items;
        column_append(t, (enum top_column)c, t->wish.sort == (enum top_column)c);
        t->items[t->n_items++] = (uint32_t)c;
    }
    item_clamp(t);
    return 0;
}

int top_menu_columns(struct top *t)
{
    t->n_items = 0;
    title_append(t, "Columns (as many as fit are shown, those that matter most first)");
    for (int c = 0; c < TOP_COLUMNS; c++) {
        if (c == TOP_COLUMN_TREE || c == TOP_COLUMN_PID || c == TOP_COLUMN_PROGRAM ||
            c == TOP_COLUMN_RSS)
            continue; /* always there, or with the tree */
        column_append(t, (enum top_column)c, t->columns & TOP_COLUMN_BIT(c));
        t->items[t->n_items++] = (uint32_t)c;
    }
    item_clamp(t);
    return 0;
}

static void columns_keep(struct top *t)
{
    int r = top_config_save(t->columns, &t->wish);
    if (r < 0)
        snprintf(t->note, sizeof(t->note), "The columns could not be kept for the next time: %s",
                 strerror(-r));
    else
        snprintf(t->note, sizeof(t->note), "Columns and order are kept for the next time.");
}

/* ---- users ---- */

enum { USER_NAME, USER_UID, USER_COUNT, USER_RSS, USER_PSS };

static int ask_users(const struct query_world *world, struct query **ret_query,
                     struct query_result **ret_result)
{
    struct query_error error;
    int r = query_new(&(struct query_spec){.table = "host",
                                           .where = "uid!=none",
                                           .by = "user",
                                           .show = "any(uid),count,rss,pss",
                                           .sort = "-rss,+user"},
                      ret_query, &error);
    if (r == 0)
        r = query_result_new(*ret_query, 0, ret_result);
    if (r == 0)
        r = query_run(*ret_query, world, *ret_result);
    return r < 0 ? r : query_result_finish(*ret_result);
}

static void user_append(struct top *t, const struct query_result *result, size_t row)
{
    char rss[TOP_SIZE_MAX], pss[TOP_SIZE_MAX];
    uint32_t uid = (uint32_t)query_result_value(result, row, USER_UID).number;
    struct query_value all = query_result_value(result, row, USER_PSS);
    bool on = t->wish.by_uid && t->wish.uid == uid;
    bool known = all.state & QUERY_KNOWN;
    buffer_printf(&t->text, " %s ", on ? "[x]" : "[ ]");
    unsigned used =
        term_append(&t->term, &t->text, query_result_value(result, row, USER_NAME).text, 24);
    buffer_printf(&t->text, "%*s %10" PRIu64 " %6s %7s%s\n", (int)(25 - used), "",
                  query_result_value(result, row, USER_COUNT).number,
                  top_size(rss, query_result_value(result, row, USER_RSS).number),
                  known ? top_size(pss, all.number) : "-",
                  known && all.marks & QUERY_AT_LEAST ? "+" : "");
    t->items[t->n_items++] = uid;
}

int top_menu_users(struct top *t)
{
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    MEMOIR_CLEANUP(query_result_freep)
    struct query_result *result = NULL;
    struct query_world world = top_source_world(&t->source);
    int r = ask_users(&world, &query, &result);
    if (r < 0)
        return r;
    size_t n = query_result_rows(result);
    uint32_t *items = reallocarray(t->items, n + TOP_COLUMNS, sizeof(*items));
    if (!items)
        return -ENOMEM;
    t->items = items;
    t->n_items = 0;
    title_append(t, "Processes of                   PROCESSES    RSS      PSS");
    buffer_printf(&t->text, " %s all users\n", t->wish.by_uid ? "[ ]" : "[x]");
    t->items[t->n_items++] = UINT32_MAX;
    for (size_t i = 0; i < n; i++)
        user_append(t, result, i);
    item_clamp(t);
    return 0;
}

/* ---- choosing ---- */

bool top_menu_pick(struct top *t, bool space)
{
    if (!t->n_items || t->item >= t->n_items)
        return true;
    uint32_t value = t->items[t->item];
    switch (t->page) {
    case TOP_PAGE_COLUMNS:
        if (!space) {
            columns_keep(t);
            return true;
        }
        t->columns ^= TOP_COLUMN_BIT(value);
        return false;
    case TOP_PAGE_SORT:
        if (t->wish.sort != (enum top_column)value) {
            t->wish.sort = (enum top_column)value;
            t->wish.ascending = top_column_ascends(t->wish.sort);
        }
        return true;
    case TOP_PAGE_USERS:
        t->wish.by_uid = t->item > 0;
        t->wish.uid = value;
        return true;
    default:
        return true;
    }
}
