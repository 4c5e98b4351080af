/*
 * past.h: --at, --since, --until and --step: tables as they were, from what memoird recorded.
 */
#ifndef MEMOIR_CLI_PAST_H
#define MEMOIR_CLI_PAST_H

#include <stdbool.h>
#include <stdint.h>

#include "history/past.h"

struct command;

/* Part of every command's values: see command_common. */
struct past_values {
    const char *at, *since, *until;
    uint64_t step_ns;
};

static inline bool past_wanted(const struct past_values *v)
{
    return v->at || v->since || v->until || v->step_ns;
}

/* The time that the options name; all 0 where they name none. COMMAND_OK, or COMMAND_USAGE after words on stderr. */
int past_window_of(const struct command *command, const struct past_values *v,
                   struct past_window *ret_window);

#define OPTION_PAST_AT                                                                           \
    {                                                                                            \
        .name = "at", .type = OPTION_STRING, .offset = offsetof(struct command_common, past.at), \
        .value = "WHEN",                                                                         \
        .help = "as it was then, by memoird's history: 10m (ago), 12:30, yesterday, "            \
                "2026-01-31 12:30; the values at the end of the 10 seconds, or the longer "      \
                "step that is kept, that it lies in"                                             \
    }
#define OPTION_PAST_SINCE                                                                        \
    {                                                                                            \
        .name = "since", .type = OPTION_STRING,                                                  \
        .offset = offsetof(struct command_common, past.since), .value = "WHEN",                  \
        .help =                                                                                  \
            "as it was from then on, a row for each step (column time); groups are by time, too" \
    }
#define OPTION_PAST_UNTIL                                                       \
    {                                                                           \
        .name = "until", .type = OPTION_STRING,                                 \
        .offset = offsetof(struct command_common, past.until), .value = "WHEN", \
        .help = "with --since: until then (default: now)"                       \
    }
#define OPTION_PAST_STEP                                                                       \
    {                                                                                          \
        .name = "step", .type = OPTION_DURATION,                                               \
        .offset = offsetof(struct command_common, past.step_ns), .value = "TIME",              \
        .help = "with --since: length of a step, in whole seconds (default: 60 steps at most)" \
    }
#define OPTIONS_PAST OPTION_PAST_AT, OPTION_PAST_SINCE, OPTION_PAST_UNTIL, OPTION_PAST_STEP

#endif
