/*
 * watch.h: `memoir devices --watch`: the devices, live, on the whole screen.
 *
 * Reads the books itself. What was is kept only while it runs.
 */
#ifndef MEMOIR_CLI_WATCH_H
#define MEMOIR_CLI_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "cli/driver.h"
#include "cli/samples.h"
#include "cli/term.h"

struct follow;
struct site_names;

struct watch_options {
    const char *dir;
    const char *device; /* by number, uid, bus address or name; NULL: all */
    uint64_t interval_ns;
    enum term_color color;
};

/* enum command_exit; -ENOTTY when there is no screen to draw on (nothing was done then). */
int watch_run(const struct watch_options *options);

/* ---- inside: what the pages share ---- */

enum watch_page {
    WATCH_OVERVIEW,
    WATCH_CHARTS,
    WATCH_PROCESSES,
    WATCH_BUFFERS, /* of the chosen process */
    WATCH_HELP,
    WATCH_PAGES,
};

enum { WATCH_TEXT_MAX = 16 << 20 };

struct watch {
    const struct watch_options *options;
    struct term term;
    struct follow *follow;
    struct driver driver;
    struct samples samples;
    struct site_names *symbols;
    enum watch_page page, page_before; /* `before`: where Esc leads to */
    size_t top;                        /* first line shown of the page's body */
    unsigned zoom;                     /* of the charts: index into watch_zooms */
    size_t sort;                       /* of the processes: index into watch_sorts */
    bool reverse;
    pid_t chosen;     /* process; 0: the first one */
    size_t chosen_at; /* its line in the body; set by the page */
    size_t n_rows;    /* of the list that can be chosen from */
    pid_t *pids;      /* of its rows, in the order shown */
    bool watched;     /* a daemon watches */
    bool loaded;      /* books have been read at least once */

    struct buffer text; /* the page's body, one line each */
    size_t fixed;       /* lines at its top that do not scroll */
};

extern const unsigned watch_zooms[]; /* looks in one point; 0 ends */
extern const char *const watch_sorts[];

/* Fill watch.text. 0 or -errno. */
int watch_page_overview(struct watch *w);
int watch_page_charts(struct watch *w);
int watch_page_processes(struct watch *w);
int watch_page_buffers(struct watch *w);
int watch_page_help(struct watch *w);

#endif
