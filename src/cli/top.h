/*
 * top.h: `memoir top`: every process of the machine on the whole screen.
 *
 * Reads /proc and the books itself. What was is kept only while it runs.
 */
#ifndef MEMOIR_CLI_TOP_H
#define MEMOIR_CLI_TOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "cli/term.h"
#include "cli/top_columns.h"
#include "cli/top_rows.h"
#include "cli/tui_input.h"

struct follow;
struct host;
struct site_names;
struct top_history;

struct top_options {
    const char *dir;   /* of the books; NULL: the usual places */
    const char *state; /* of the daemon, with its history; NULL: the usual one */
    uint64_t interval_ns;
    enum term_color color;
    struct top_wish wish;
    top_column_set columns;
};

/* enum command_exit; -ENOTTY when there is no screen to draw on (nothing was done then). */
int top_run(const struct top_options *options);

/* ---- inside: what the pages share ---- */

enum top_page {
    TOP_PAGE_LIST,
    TOP_PAGE_PROCESS, /* the chosen one */
    TOP_PAGE_MACHINE,
    TOP_PAGE_SORT,
    TOP_PAGE_COLUMNS,
    TOP_PAGE_USERS,
    TOP_PAGE_HELP,
    TOP_PAGES,
};

enum { TOP_TEXT_MAX = 16 << 20, TOP_NOTE_MAX = 120 };

/* Where the figures come from; also for one picture without a screen. */
struct top_source {
    struct host *host;
    struct follow *follow;
    struct query *query; /* of the rows */
    struct top_rows rows;
    uint64_t found_ns; /* when books were last looked for */
};

/* The process table keeps a descriptor for each process: let it have as many as we may. */
void top_allow_files(void);

int top_source_open(struct top_source *source, const char *dir);
void top_source_release(struct top_source *source);

/* Look at all processes and books; costly figures as far as `cpu_ns` allow. 0 or -errno. */
int top_source_look(struct top_source *source, uint64_t cpu_ns);

/* What the last look saw, for further questions. */
struct query_world top_source_world(const struct top_source *source);

struct top {
    const struct top_options *options;
    struct term term;
    struct top_source source;
    struct top_wish wish;
    top_column_set columns;
    uint64_t interval_ns;
    bool paused;
    enum top_page page, page_before; /* `before`: where the help leads back to */

    struct top_layout layout; /* of the list, as last drawn */
    unsigned heading;         /* line of the screen with the headings */
    size_t first;             /* row of the list that is shown first */
    pid_t chosen;             /* 0: none yet: the first one */
    size_t chosen_at;         /* in the list */
    pid_t *folded;            /* wish.folded */

    bool typing; /* the filter */
    struct tui_input input;
    size_t item, n_items;        /* of a menu: the chosen one, and how many there are */
    uint32_t *items;             /* their values: columns or users */
    size_t scroll, scroll_lines; /* of a page: first line shown, and lines that there are */

    struct site_names *symbols;
    struct top_sites *sites; /* of the process page, as is */
    struct top_history *history;
    struct top_explained *explained; /* of the process page; for free() */
    char note[TOP_NOTE_MAX];         /* one line for the user, until the next key */
    struct buffer text;              /* of a page, one line each */
};

/* Lines above the list: machine and devices. How many there are depends on the height of the screen. */
void top_head_append(struct top *t, struct buffer *out);

/* The memory of the machine as one bar, and what its parts are. */
void top_memory_bar(const struct term *term, const struct host_system *system, unsigned columns,
                    struct buffer *out);
void top_memory_legend(const struct term *term, const struct host_system *system,
                       struct buffer *out);

/* Fill top.text; 0 or -errno. Menus also fill `items`. */
int top_page_process(struct top *t);
int top_page_machine(struct top *t);

/* top_explain.c: a bar of what is resident, by owner. True where most of it is not malloc's. */
bool top_explain_append(struct top *t, pid_t pid);

int top_page_help(struct top *t);
int top_menu_sort(struct top *t);
int top_menu_columns(struct top *t);
int top_menu_users(struct top *t);

/* What Enter, or Space, does in a menu. True: it is done, back to the list. */
bool top_menu_pick(struct top *t, bool space);

/* The row of the chosen process, NULL when it is gone. */
const struct top_row *top_chosen(const struct top *t);

/* ---- charts of the process page: RSS at the last looks, and in the last hour where memoird noted it ---- */

void top_chart_recent(struct top *t, const struct top_row *row);
void top_chart_history(struct top *t, const struct top_row *row);

/* What memoird noted of one process. */
struct top_history {
    pid_t pid;
    uint64_t start_ticks, taken_ns; /* CLOCK_MONOTONIC; 0: never */
    unsigned n;                     /* points; 0: nothing is known */
    double *points;                 /* bytes; below 0: none */
};

/* ---- call sites of the process page ---- */

struct top_sites *top_sites_new(void); /* NULL: no memory */
void top_sites_free(struct top_sites *sites);

/* The call sites of a process that hold the most, as a table. Reads the books every two seconds only. */
int top_sites_append(struct top *t, const struct top_row *row, struct buffer *out);

/* ---- what lasts ---- */

/* Columns and order as kept by top_config_save() in $XDG_CONFIG_HOME/memoir/toprc. What is missing or invalid
 * changes nothing. */
void top_config_load(top_column_set *columns, struct top_wish *wish);
int top_config_save(top_column_set columns, const struct top_wish *wish);

/* "rss", "-rss", "+rss" for --sort and the file. -EINVAL. */
int top_sort_parse(const char *text, struct top_wish *wish);

#endif
