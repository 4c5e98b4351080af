/* The loop and the keys of the full screen. See watch.h. */
#include "cli/watch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/tui.h"
#include "ledger/follow.h"
#include "ledger/ledger.h"
#include "profile/site_names.h"

enum {
    HEAD_LINES = 2, /* title and an empty line */
    FOOT_LINES = 1,
};

static const struct {
    const char *name;
    int (*fill)(struct watch *w);
} pages[WATCH_PAGES] = {
    [WATCH_OVERVIEW] = {"1 overview", watch_page_overview},
    [WATCH_CHARTS] = {"2 charts", watch_page_charts},
    [WATCH_PROCESSES] = {"3 processes", watch_page_processes},
    [WATCH_BUFFERS] = {"buffers", watch_page_buffers},
    [WATCH_HELP] = {"? help", watch_page_help},
};

/* ---- looking ---- */

/* One look, and a point for each chart. */
static int look(struct watch *w)
{
    int r = follow_look(w->follow, true);
    if (r < 0)
        return r;
    struct ledger *ledger = follow_ledger(w->follow);
    driver_join(&w->driver, ledger, true);
    MEMOIR_CLEANUP(devices_view_release)
    struct devices_view view = {0};
    r = devices_view_take(ledger, w->options->device, &view);
    if (r < 0)
        return r;
    w->watched = follow_watched(w->follow);
    w->loaded = true;
    samples_begin(&w->samples);
    for (size_t d = 0; d < view.n; d++) {
        const struct devices_row *row = &view.rows[d];
        char key[SAMPLES_KEY_MAX], space[DEVICES_SPACE_MAX];
        for (size_t i = 0; i < row->n_spaces; i++) {
            const struct devices_space *s = &row->spaces[i];
            if (s->space != MEMOIR_SPACE_DRAM && s->space != MEMOIR_SPACE_TRACE)
                continue;
            snprintf(key, sizeof(key), "%s  %s", row->label, devices_space_label(space, s->name));
            samples_put(&w->samples, key, s->used, s->capacity);
        }
        if (row->driver.has_unattributed) {
            struct devices_space driver = devices_driver_space(row);
            snprintf(key, sizeof(key), "%s  driver", row->label);
            samples_put(&w->samples, key, driver.used, driver.capacity);
        }
        if (!row->has_l1)
            continue;
        snprintf(key, sizeof(key), "%s  L1 total", row->label);
        samples_put(&w->samples, key, row->l1.used, row->l1.capacity);
    }
    return 0;
}

/* ---- drawing ---- */

static void draw_head(struct watch *w)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer line = BUFFER_INIT(4096);
    char clock[16];
    time_t now = time(NULL);
    struct tm tm;
    strftime(clock, sizeof(clock), "%T", localtime_r(&now, &tm));
    buffer_printf(&line, "%smemoir%s %s ", term_style(&w->term, STYLE_TITLE),
                  term_plain(&w->term, STYLE_TITLE), clock);
    for (int p = WATCH_OVERVIEW; p < WATCH_PAGES; p++) {
        bool here = p == (int)w->page;
        if (p == WATCH_BUFFERS && !here)
            continue;
        enum term_style style = here ? STYLE_TITLE : STYLE_DIM;
        buffer_printf(&line, "%s%s%s%s%s", term_style(&w->term, style), here ? "[" : " ",
                      pages[p].name, here ? "]" : " ", term_plain(&w->term, style));
    }
    buffer_printf(&line, " %sq quit%s", term_style(&w->term, STYLE_DIM),
                  term_plain(&w->term, STYLE_DIM));
    tui_line(&w->term, 0, buffer_string(&line), line.len, TUI_PLAIN);
    tui_line(&w->term, 1, "", 0, TUI_PLAIN);
}

static void draw_foot(struct watch *w, size_t lines, size_t room)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer line = BUFFER_INIT(4096);
    buffer_append_str(&line, term_style(&w->term, STYLE_DIM));
    if (w->page == WATCH_PROCESSES)
        buffer_printf(&line, "by %s (s next, r reverse)  Enter: its buffers  ",
                      watch_sorts[w->sort]);
    else if (w->page == WATCH_BUFFERS)
        buffer_append_str(&line, "Esc: back to the processes  ");
    else if (w->page == WATCH_CHARTS)
        buffer_append_str(&line, "+ - zoom  ");
    if (!w->watched)
        buffer_append_str(&line, "no memoird runs: no history");
    if (lines > room)
        buffer_printf(&line, "  lines %zu-%zu of %zu", w->top + 1,
                      w->top + room < lines ? w->top + room : lines, lines);
    buffer_append_str(&line, term_plain(&w->term, STYLE_DIM));
    tui_line(&w->term, w->term.height - 1, buffer_string(&line), line.len, TUI_PLAIN);
}

static size_t count_lines(const struct buffer *text)
{
    size_t n = 0;
    for (const char *p = buffer_string(text); *p; p++)
        n += *p == '\n';
    return n;
}

/* The chosen line stays in sight, and the page does not end above the screen's end. */
static void scroll_to_fit(struct watch *w, size_t lines, size_t room)
{
    if (w->page == WATCH_PROCESSES && w->n_rows) {
        size_t at = w->chosen_at;
        if (at < w->top)
            w->top = at;
        if (room && at >= w->top + room)
            w->top = at - room + 1;
    }
    if (lines <= room)
        w->top = 0;
    else if (w->top > lines - room)
        w->top = lines - room;
}

static int draw(struct watch *w)
{
    if (w->term.height < HEAD_LINES + FOOT_LINES + 1)
        return 0;
    buffer_reset(&w->text);
    w->fixed = 0;
    int r = pages[w->page].fill(w);
    if (r < 0)
        return r;
    size_t all = w->term.height - HEAD_LINES - FOOT_LINES;
    size_t room = all > w->fixed ? all - w->fixed : 1;
    size_t lines = count_lines(&w->text);
    lines = lines > w->fixed ? lines - w->fixed : 0;
    scroll_to_fit(w, lines, room);
    draw_head(w);
    const char *line = buffer_string(&w->text);
    unsigned row = HEAD_LINES;
    for (size_t i = 0; *line && row < w->term.height - FOOT_LINES; i++) {
        size_t len = strcspn(line, "\n");
        bool scrolls = i >= w->fixed;
        if (!scrolls || i - w->fixed >= w->top) {
            bool marked =
                scrolls && w->page == WATCH_PROCESSES && w->n_rows && i - w->fixed == w->chosen_at;
            tui_line(&w->term, row++, line, len, marked ? TUI_MARKED : TUI_PLAIN);
        }
        line += len + (line[len] == '\n');
    }
    while (row < w->term.height - FOOT_LINES)
        tui_line(&w->term, row++, "", 0, TUI_PLAIN);
    draw_foot(w, lines, room);
    tui_show();
    return 0;
}

/* ---- keys ---- */

static void go(struct watch *w, enum watch_page page)
{
    if (page == w->page)
        return;
    w->page_before = w->page == WATCH_HELP ? w->page_before : w->page;
    w->page = page;
    w->top = 0;
}

static void move(struct watch *w, ssize_t lines)
{
    if (w->page != WATCH_PROCESSES || !w->n_rows) {
        w->top = lines < 0 && (size_t)-lines > w->top ? 0 : w->top + (size_t)lines;
        return;
    }
    ssize_t at = (ssize_t)w->chosen_at + lines;
    at = at < 0 ? 0 : at >= (ssize_t)w->n_rows ? (ssize_t)w->n_rows - 1 : at;
    w->chosen = w->pids[at];
    w->chosen_at = (size_t)at;
}

static void zoom(struct watch *w, bool out)
{
    if (out && watch_zooms[w->zoom + 1])
        w->zoom++;
    else if (!out && w->zoom)
        w->zoom--;
}

/* false: the end. */
static bool obey(struct watch *w, int key)
{
    ssize_t screen = (ssize_t)w->term.height - HEAD_LINES - FOOT_LINES - 1;
    switch (key) {
    case 'q':
    case 'Q':
    case TUI_END:
        return false;
    case '1':
    case '2':
    case '3':
        go(w, (enum watch_page)(key - '1'));
        break;
    case '?':
    case 'h':
        go(w, w->page == WATCH_HELP ? w->page_before : WATCH_HELP);
        break;
    case TUI_LEFT:
    case TUI_RIGHT:
        if (w->page <= WATCH_PROCESSES)
            go(w, (enum watch_page)((w->page + (key == TUI_LEFT ? 2 : 1)) % 3));
        break;
    case '\t':
        go(w, (enum watch_page)(w->page < WATCH_PROCESSES ? w->page + 1 : WATCH_OVERVIEW));
        break;
    case TUI_UP:
    case 'k':
        move(w, -1);
        break;
    case TUI_DOWN:
    case 'j':
        move(w, 1);
        break;
    case TUI_PAGE_UP:
        move(w, -screen);
        break;
    case TUI_PAGE_DOWN:
    case ' ':
        move(w, screen);
        break;
    case TUI_HOME:
        move(w, -(ssize_t)(w->n_rows + w->top + 1));
        break;
    case TUI_LAST:
        move(w, w->page == WATCH_PROCESSES ? (ssize_t)w->n_rows : INT32_MAX);
        break;
    case TUI_ENTER:
        if (w->page == WATCH_PROCESSES && w->n_rows)
            go(w, WATCH_BUFFERS);
        break;
    case TUI_BACK:
    case TUI_ERASE:
        if (w->page == WATCH_BUFFERS)
            go(w, WATCH_PROCESSES);
        else if (w->page == WATCH_HELP)
            go(w, w->page_before);
        break;
    case 's':
        w->sort = watch_sorts[w->sort + 1] ? w->sort + 1 : 0;
        break;
    case 'r':
        w->reverse = !w->reverse;
        break;
    case '+':
    case '=':
        zoom(w, false);
        break;
    case '-':
        zoom(w, true);
        break;
    default:
        break;
    }
    return true;
}

static int loop(struct watch *w)
{
    for (;;) {
        uint64_t begin_ns = clock_monotonic_ns();
        int r = look(w);
        if (r < 0)
            return r;
        for (;;) {
            r = draw(w);
            if (r < 0)
                return r;
            uint64_t spent_ns = clock_monotonic_ns() - begin_ns;
            uint64_t left_ns =
                w->options->interval_ns > spent_ns ? w->options->interval_ns - spent_ns : 0;
            int key = tui_wait(&w->term, left_ns);
            if (key == TUI_NONE)
                break;
            if (!obey(w, key))
                return 0;
        }
    }
}

int watch_run(const struct watch_options *options)
{
    struct watch w = {.options = options};
    w.symbols = site_names_new(); /* starts a process: before there is a screen to spoil */
    int r = follow_new(options->dir, &w.follow);
    if (r == 0)
        r = tui_start(&w.term, options->color);
    if (r == 0) {
        buffer_init(&w.text, WATCH_TEXT_MAX);
        r = loop(&w);
        tui_stop();
    }
    follow_free(w.follow);
    driver_release(&w.driver);
    samples_release(&w.samples);
    buffer_release(&w.text);
    free(w.pids);
    site_names_freep(&w.symbols);
    int number = tui_signal();
    if (r == 0 && number && number != SIGINT) {
        signal(number, SIG_DFL); /* who sent it should see that it worked */
        raise(number);
    }
    return r < 0 ? r : COMMAND_OK;
}
