/* See past.h. */
#include "cli/past.h"

#include "base/clock.h"
#include "cli/command.h"
#include "cli/when.h"
#include "history/read.h"

enum { STEPS_USUAL = 60 };

static int moment(const struct command *command, const char *option, const char *word,
                  uint64_t now_s, uint64_t *ret_s)
{
    if (when_parse(word, now_s, ret_s) == 0)
        return COMMAND_OK;
    return command_misuse(
        command,
        "invalid time '%s' for --%s: expected 90s, 1h, 7d (ago), 12:30, yesterday, 2026-01-31",
        word, option);
}

int past_window_of(const struct command *command, const struct past_values *v,
                   struct past_window *ret_window)
{
    uint64_t now_s = clock_real_ns() / NS_PER_S, at_s = 0;
    struct past_window window = {.until_s = now_s + 1}; /* this second is part of it */
    *ret_window = (struct past_window){0};
    if (!past_wanted(v))
        return COMMAND_OK;
    if (v->at && (v->since || v->until || v->step_ns))
        return command_misuse(command, "--at goes with neither --since, --until nor --step");
    if (v->at) {
        int r = moment(command, "at", v->at, now_s, &at_s);
        if (r == COMMAND_OK)
            *ret_window = past_at(at_s);
        return r;
    }
    if (!v->since)
        return command_misuse(command, "--until and --step go with --since");
    int r = moment(command, "since", v->since, now_s, &window.since_s);
    if (r == COMMAND_OK && v->until)
        r = moment(command, "until", v->until, now_s, &window.until_s);
    if (r != COMMAND_OK)
        return r;
    if (!v->until && window.until_s <= window.since_s)
        window.until_s = window.since_s + 1; /* the future has no rows */
    if (window.until_s <= window.since_s)
        return command_misuse(command, "--until must be later than --since");
    if (v->step_ns % NS_PER_S)
        return command_misuse(command, "--step takes whole seconds");
    window.step_s = v->step_ns ? v->step_ns / NS_PER_S
                               : read_step(window.until_s - window.since_s, STEPS_USUAL);
    *ret_window = window;
    return COMMAND_OK;
}
