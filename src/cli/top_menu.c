/* Menus of top: what to sort by, which columns, whose processes. See top.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/top.h"

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

struct user {
    uint32_t uid;
    const char *name;
    size_t processes;
    int64_t rss, pss;
    bool some_pss, all_pss;
};

static int compare_users(const void *a, const void *b)
{
    const struct user *x = a, *y = b;
    return (x->rss < y->rss) - (x->rss > y->rss);
}

static struct user *user_of(struct user **users, size_t *n, size_t *room, const struct top_row *row)
{
    for (size_t i = 0; i < *n; i++)
        if ((*users)[i].uid == row->uid)
            return &(*users)[i];
    if (*n == *room) {
        size_t more = *room ? *room * 2 : 16;
        struct user *grown = reallocarray(*users, more, sizeof(*grown));
        if (!grown)
            return NULL;
        *users = grown;
        *room = more;
    }
    (*users)[*n] = (struct user){.uid = row->uid, .name = "", .all_pss = true};
    return &(*users)[(*n)++];
}

static int users_take(const struct top_rows *rows, struct user **ret_users, size_t *ret_n)
{
    struct user *users = NULL;
    size_t n = 0, room = 0;
    for (size_t i = 0; i < rows->n; i++) {
        const struct top_row *row = &rows->rows[i];
        if (row->kernel || !row->has_uid)
            continue;
        struct user *user = user_of(&users, &n, &room, row);
        if (!user) {
            free(users);
            return -ENOMEM;
        }
        if (*row->user)
            user->name = row->user;
        user->processes++;
        if (row->own.known >> TOP_RSS & 1)
            user->rss += row->own.value[TOP_RSS];
        if (row->own.known >> TOP_PSS & 1) {
            user->pss += row->own.value[TOP_PSS];
            user->some_pss = true;
        } else {
            user->all_pss = false;
        }
    }
    if (n)
        qsort(users, n, sizeof(*users), compare_users);
    *ret_users = users;
    *ret_n = n;
    return 0;
}

int top_menu_users(struct top *t)
{
    MEMOIR_CLEANUP(freep)
    struct user *users = NULL;
    size_t n = 0;
    int r = users_take(&t->source.rows, &users, &n);
    if (r < 0)
        return r;
    uint32_t *items = reallocarray(t->items, n + TOP_COLUMNS, sizeof(*items));
    if (!items)
        return -ENOMEM;
    t->items = items;
    t->n_items = 0;
    title_append(t, "Processes of                   PROCESSES    RSS      PSS");
    buffer_printf(&t->text, " %s everybody\n", t->wish.by_uid ? "[ ]" : "[x]");
    t->items[t->n_items++] = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        char rss[TOP_SIZE_MAX], pss[TOP_SIZE_MAX], number[16];
        snprintf(number, sizeof(number), "%u", users[i].uid);
        bool on = t->wish.by_uid && t->wish.uid == users[i].uid;
        buffer_printf(&t->text, " %s ", on ? "[x]" : "[ ]");
        unsigned used =
            term_append(&t->term, &t->text, *users[i].name ? users[i].name : number, 24);
        buffer_printf(&t->text, "%*s %10zu %6s %7s%s\n", (int)(25 - used), "", users[i].processes,
                      top_size(rss, (uint64_t)users[i].rss),
                      users[i].some_pss ? top_size(pss, (uint64_t)users[i].pss) : "-",
                      users[i].some_pss && !users[i].all_pss ? "+" : "");
        t->items[t->n_items++] = users[i].uid;
    }
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
