/* The writer of history: a thread of its own, so that neither a slow disk nor a full one is ever felt by the
 * loop.
 *
 * The loop's thread takes a picture of the ledger after a refresh and hands it over; the writer adds sizes
 * of all processes (history_host.h), packs and stores (history/recorder.h, history/store.h). There are HISTORY_PICTURES_MAX pictures in
 * all: when the writer has not given one back, this second is lost and counted. What goes wrong
 * with the file is said once, and tried again with every flush. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "history/store.h"

struct history;
struct hosts;
struct ledger;

enum { HISTORY_PICTURES_MAX = 8 };

struct history_settings {
    struct store_limits limits;
    uint64_t flush_ns;
    uint64_t per_user_max;  /* values of one user in a picture */
    uint64_t processes_max; /* that keep no book */
};

struct history_counts {
    uint64_t taken;    /* pictures handed over */
    uint64_t lost;     /* seconds without one: the writer was behind, or there was no memory */
    uint64_t written;  /* values in the file */
    uint64_t dropped;  /* values given up because they could not be written */
    uint64_t left_out; /* values past a limit */
    bool stopped;      /* the file cannot be written at the moment */
};

/* Starts the thread, which opens STATE/history.db. Blocks all signals in it. `hosts` has the sizes of processes, and
 * outlives it; NULL: there are none. */
int history_new(const char *state_path, const struct history_settings *settings,
                struct hosts *hosts, struct history **ret_history);

/* Writes what is left and ends the thread. NULL is fine. */
void history_free(struct history *history);

/* The rest is for the thread that owns the ledger. One picture a second at most; costs about 100 us for 1,000
 * processes and never waits for the disk. */
void history_take(struct history *history, const struct ledger *ledger);
void history_set(struct history *history, const struct history_settings *settings);
struct history_counts history_counts(struct history *history);
