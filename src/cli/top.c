/* The loop and the keys of top. See top.h. */
#include "cli/top.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/command.h"
#include "cli/top_screen.h"
#include "cli/tui.h"
#include "ledger/follow.h"
#include "ledger/host.h"
#include "profile/site_names.h"

/* What costly figures may take: much at first, when nothing is known, then a small share of the time. */
#define EAGER_NS        (40 * NS_PER_MS)
#define STEADY_PERMILLE 2

enum { EAGER_LOOKS = 8, WHEEL_LINES = 3 };

static const uint64_t intervals_ms[] = {100, 200, 500, 1000, 2000, 5000, 10000, 30000, 60000};
enum { INTERVALS = sizeof(intervals_ms) / sizeof(intervals_ms[0]) };

const struct top_row *top_chosen(const struct top *t)
{
    const struct top_rows *rows = &t->source.rows;
    for (size_t i = 0; t->chosen && i < rows->n; i++)
        if (rows->rows[i].pid == t->chosen)
            return &rows->rows[i];
    return NULL;
}

/* ---- moving ---- */

static void go(struct top *t, enum top_page page)
{
    if (page == t->page)
        return;
    if (t->page != TOP_PAGE_HELP)
        t->page_before = t->page;
    t->page = page;
    t->scroll = 0;
    t->item = 0;
}

static void choose_at(struct top *t, size_t at)
{
    const struct top_rows *rows = &t->source.rows;
    if (rows->shown == 0)
        return;
    t->chosen_at = at < rows->shown ? at : rows->shown - 1;
    t->chosen = rows->rows[rows->order[t->chosen_at]].pid;
}

static size_t moved(size_t at, ssize_t by, size_t n)
{
    if (by < 0)
        return (size_t)-by > at ? 0 : at - (size_t)-by;
    return n && at + (size_t)by >= n ? n - 1 : at + (size_t)by;
}

static void move(struct top *t, ssize_t lines)
{
    if (t->page == TOP_PAGE_LIST)
        choose_at(t, moved(t->chosen_at, lines, t->source.rows.shown));
    else if (t->page == TOP_PAGE_SORT || t->page == TOP_PAGE_COLUMNS || t->page == TOP_PAGE_USERS)
        t->item = moved(t->item, lines, t->n_items);
    else
        t->scroll = moved(t->scroll, lines, t->scroll_lines);
}

/* Keys that move, the same on all pages. */
static bool obey_move(struct top *t, int key)
{
    ssize_t page = (ssize_t)top_room(t) - 1;
    page = page < 1 ? 1 : page;
    switch (key) {
    case TUI_UP:
    case 'k':
        move(t, -1);
        return true;
    case TUI_DOWN:
    case 'j':
        move(t, 1);
        return true;
    case TUI_PAGE_UP:
        move(t, -page);
        return true;
    case TUI_PAGE_DOWN:
        move(t, page);
        return true;
    case TUI_HOME:
    case 'g':
        move(t, INT32_MIN);
        return true;
    case TUI_LAST:
    case 'G':
        move(t, INT32_MAX);
        return true;
    default:
        return false;
    }
}

/* ---- order ---- */

static void sort_by(struct top *t, enum top_column column)
{
    if (t->wish.sort == column) {
        t->wish.ascending = !t->wish.ascending;
        return;
    }
    t->wish.sort = column;
    t->wish.ascending = top_column_ascends(column);
}

/* The column left or right of the one that sorts, of those on the screen. */
static void sort_beside(struct top *t, int by)
{
    size_t n = t->layout.n, at = 0;
    for (size_t i = 0; i < n; i++)
        if (t->layout.column[i] == t->wish.sort)
            at = i;
    for (size_t tries = 0; tries < n; tries++) {
        at = (at + n + (size_t)by) % n;
        if (top_column_sorts(t->layout.column[at]) && t->layout.column[at] != t->wish.sort) {
            sort_by(t, t->layout.column[at]);
            return;
        }
    }
}

/* ---- tree ---- */

static int compare_pids(const void *a, const void *b)
{
    pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;
    return (x > y) - (x < y);
}

static void fold(struct top *t, bool folded)
{
    const struct top_rows *rows = &t->source.rows;
    if (!rows->shown)
        return;
    const struct top_row *row = &rows->rows[rows->order[t->chosen_at]];
    size_t at = 0;
    while (at < t->wish.n_folded && t->folded[at] != row->pid)
        at++;
    bool was = at < t->wish.n_folded;
    if (folded && !was && row->below && t->wish.n_folded < TOP_FOLDED_MAX) {
        t->folded[t->wish.n_folded++] = row->pid;
        qsort(t->folded, t->wish.n_folded, sizeof(*t->folded), compare_pids);
    } else if (folded) { /* nothing to fold: to the parent, as file managers do */
        size_t parent = top_rows_find(rows, row->parent);
        if (parent != SIZE_MAX)
            choose_at(t, parent);
        return;
    } else if (!folded && was) {
        memmove(t->folded + at, t->folded + at + 1, (--t->wish.n_folded - at) * sizeof(*t->folded));
    }
    t->chosen = row->pid;
}

/* ---- filter ---- */

static void show_all(struct top *t)
{
    t->wish.filter[0] = '\0';
    t->wish.by_uid = t->wish.only_tracked = false;
    tui_input_set(&t->input, "");
}

static void obey_typing(struct top *t, int key)
{
    if (key == TUI_ENTER) {
        t->typing = false;
    } else if (key == TUI_BACK || (key == TUI_ERASE && !t->input.len)) {
        t->typing = false;
        tui_input_set(&t->input, "");
    } else if (!tui_input_key(&t->input, key)) {
        obey_move(t, key);
    }
    snprintf(t->wish.filter, sizeof(t->wish.filter), "%s", t->input.text);
}

/* ---- mouse ---- */

static void click_list(struct top *t, const struct tui_mouse *mouse)
{
    if (mouse->row == t->heading) {
        for (size_t i = 0; i < t->layout.n; i++)
            if (mouse->column >= t->layout.start[i] &&
                mouse->column <= t->layout.start[i] + t->layout.width[i] &&
                top_column_sorts(t->layout.column[i])) {
                sort_by(t, t->layout.column[i]);
                return;
            }
        return;
    }
    size_t at = t->first + mouse->row - t->heading - 1;
    if (mouse->row < t->heading || mouse->row + 1 >= t->term.height || at >= t->source.rows.shown)
        return;
    choose_at(t, at);
    if (mouse->what == TUI_DOUBLE_CLICK)
        go(t, TOP_PAGE_PROCESS);
}

static void click_menu(struct top *t, const struct tui_mouse *mouse)
{
    size_t line = t->scroll + mouse->row;
    if (line < 2 || line - 2 >= t->n_items || mouse->row + 1 >= t->term.height)
        return;
    t->item = line - 2;
    if (top_menu_pick(t, t->page == TOP_PAGE_COLUMNS))
        go(t, TOP_PAGE_LIST);
}

static void obey_mouse(struct top *t)
{
    struct tui_mouse mouse = tui_mouse();
    if (mouse.what == TUI_WHEEL_UP || mouse.what == TUI_WHEEL_DOWN)
        move(t, mouse.what == TUI_WHEEL_UP ? -WHEEL_LINES : WHEEL_LINES);
    else if (t->page == TOP_PAGE_LIST)
        click_list(t, &mouse);
    else if (t->page == TOP_PAGE_SORT || t->page == TOP_PAGE_COLUMNS || t->page == TOP_PAGE_USERS)
        click_menu(t, &mouse);
}

/* ---- keys ---- */

static void interval(struct top *t, bool longer)
{
    size_t at = 0;
    while (at + 1 < INTERVALS && intervals_ms[at] * NS_PER_MS < t->interval_ns)
        at++;
    if (longer && at + 1 < INTERVALS)
        at++;
    else if (!longer && at)
        at--;
    t->interval_ns = intervals_ms[at] * NS_PER_MS;
}

static void obey_list(struct top *t, int key)
{
    switch (key) {
    case TUI_ENTER:
        if (t->source.rows.shown) {
            choose_at(t, t->chosen_at);
            go(t, TOP_PAGE_PROCESS);
        }
        break;
    case '/':
        tui_input_set(&t->input, t->wish.filter);
        t->typing = true;
        break;
    case TUI_BACK:
        show_all(t);
        break;
    case 's':
        go(t, TOP_PAGE_SORT);
        t->item = SIZE_MAX; /* the one that sorts */
        break;
    case 'C':
    case 'c':
        go(t, TOP_PAGE_COLUMNS);
        break;
    case 'u':
        go(t, TOP_PAGE_USERS);
        break;
    case 'm':
        go(t, TOP_PAGE_MACHINE);
        break;
    case '<':
        sort_beside(t, -1);
        break;
    case '>':
        sort_beside(t, 1);
        break;
    case TUI_LEFT:
    case TUI_RIGHT:
        if (t->wish.tree)
            fold(t, key == TUI_LEFT);
        else
            sort_beside(t, key == TUI_LEFT ? -1 : 1);
        break;
    case 'r':
    case 'I':
        t->wish.ascending = !t->wish.ascending;
        break;
    case 'M':
        sort_by(t, TOP_COLUMN_RSS);
        break;
    case 'N':
        sort_by(t, TOP_COLUMN_PID);
        break;
    case 't':
        t->wish.tree = !t->wish.tree;
        break;
    case 'T':
        t->wish.only_tracked = !t->wish.only_tracked;
        break;
    case 'K':
        t->wish.kernel = !t->wish.kernel;
        break;
    default:
        break;
    }
}

static void obey_page(struct top *t, int key)
{
    bool menu =
        t->page == TOP_PAGE_SORT || t->page == TOP_PAGE_COLUMNS || t->page == TOP_PAGE_USERS;
    if (key == TUI_BACK || key == TUI_ERASE || key == TUI_LEFT)
        go(t, t->page == TOP_PAGE_HELP ? t->page_before : TOP_PAGE_LIST);
    else if (menu && (key == TUI_ENTER || key == ' ')) {
        if (top_menu_pick(t, key == ' '))
            go(t, TOP_PAGE_LIST);
    } else if (key == 'm' && t->page == TOP_PAGE_MACHINE) {
        go(t, TOP_PAGE_LIST);
    }
}

/* false: the end. */
static bool obey(struct top *t, int key)
{
    t->note[0] = '\0';
    if (key == TUI_END)
        return false;
    if (key == TUI_MOUSE) {
        obey_mouse(t);
        return true;
    }
    if (t->typing) {
        obey_typing(t, key);
        return true;
    }
    if (key == 'q' || key == 'Q')
        return false;
    if (obey_move(t, key))
        return true;
    switch (key) {
    case '?':
    case 'h':
        go(t, t->page == TOP_PAGE_HELP ? t->page_before : TOP_PAGE_HELP);
        return true;
    case ' ':
        if (t->page == TOP_PAGE_COLUMNS || t->page == TOP_PAGE_SORT || t->page == TOP_PAGE_USERS)
            break;
        t->paused = !t->paused;
        return true;
    case '+':
    case '=':
        interval(t, true);
        return true;
    case '-':
        interval(t, false);
        return true;
    default:
        break;
    }
    if (t->page == TOP_PAGE_LIST)
        obey_list(t, key);
    else
        obey_page(t, key);
    return true;
}

/* ---- the loop ---- */

static int look(struct top *t)
{
    bool eager = t->source.rows.looks < EAGER_LOOKS;
    uint64_t steady_ns = t->interval_ns / 1000 * STEADY_PERMILLE;
    return top_source_look(&t->source, eager && steady_ns < EAGER_NS ? EAGER_NS : steady_ns);
}

static int loop(struct top *t)
{
    for (;;) {
        uint64_t begin_ns = clock_monotonic_ns();
        int r = t->paused ? 0 : look(t);
        if (r < 0)
            return r;
        for (;;) {
            r = top_draw(t);
            if (r < 0)
                return r;
            uint64_t spent_ns = clock_monotonic_ns() - begin_ns;
            int key = tui_wait(&t->term, t->interval_ns > spent_ns ? t->interval_ns - spent_ns : 0);
            if (key == TUI_NONE)
                break;
            if (!obey(t, key))
                return 0;
        }
    }
}

int top_run(const struct top_options *options)
{
    struct top t = {
        .options = options,
        .wish = options->wish,
        .columns = options->columns,
        .interval_ns = options->interval_ns,
    };
    t.folded = calloc(TOP_FOLDED_MAX, sizeof(*t.folded));
    t.items = calloc(TOP_COLUMNS, sizeof(*t.items));
    t.sites = top_sites_new();
    struct top_history history = {0};
    t.history = &history;
    t.wish.folded = t.folded;
    tui_input_set(&t.input, options->wish.filter);
    t.symbols = site_names_new(); /* starts a process: before there is a screen to spoil */
    int r = t.folded && t.items && t.sites ? top_source_open(&t.source, options->dir) : -ENOMEM;
    if (r == 0)
        r = tui_start(&t.term, options->color);
    if (r == 0) {
        tui_mouse_on();
        buffer_init(&t.text, TOP_TEXT_MAX);
        r = loop(&t);
        tui_stop();
    }
    top_source_release(&t.source);
    top_sites_free(t.sites);
    free(history.points);
    free(t.explained);
    buffer_release(&t.text);
    free(t.folded);
    free(t.items);
    site_names_freep(&t.symbols);
    int number = tui_signal();
    if (r == 0 && number && number != SIGINT) {
        signal(number, SIG_DFL); /* who sent it should see that it worked */
        raise(number);
    }
    return r < 0 ? r : COMMAND_OK;
}
