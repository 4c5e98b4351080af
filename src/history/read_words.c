/* Names of lines, as all surfaces print them, and the processes that they are of. See read.h. */
#include <string.h>

#include "base/clock.h"
#include "history/read.h"
#include "history/recorder.h"
#include "ledger/host.h"
#include "ledger/proc.h"

static const char *system_word(uint32_t number)
{
    static const char *const words[HISTORY_SYSTEM_PARTS] = {
        [HISTORY_SYSTEM_TOTAL] = "total",
        [HISTORY_SYSTEM_AVAILABLE] = "available",
        [HISTORY_SYSTEM_USED] = "used",
        [HISTORY_SYSTEM_SWAP] = "swap",
    };
    if (number < HISTORY_SYSTEM_PARTS)
        return words[number] ? words[number] : "other";
    number -= HISTORY_SYSTEM_PARTS;
    return number < HOST_PARTS ? host_part_name((enum host_part)number) : "other";
}

char *read_line_device_id(const struct read_line *line, const char *node,
                          char text[static LEDGER_DEVICE_ID_MAX])
{
    return ledger_device_id(text, line->device_uid, line->bus, line->ordinal, line->device,
                            line->device_node[0] ? line->device_node : node);
}

static bool same_process(const struct read_line *a, const struct read_line *b)
{
    return a->pid == b->pid && a->boot == b->boot && a->start_ticks == b->start_ticks &&
           strcmp(a->node, b->node) == 0;
}

static bool first_of_process(const struct read_result *result, size_t line)
{
    for (size_t i = 0; i < line; i++)
        if (same_process(&result->lines[i], &result->lines[line]))
            return false;
    return true;
}

void read_choose_process(struct read_result *result, uint64_t start_s)
{
    uint64_t wanted_s = start_s ? start_s : UINT64_MAX, nearest_s = UINT64_MAX;
    struct read_line chosen = {0};
    size_t kept = 0, processes = 0;
    for (size_t i = 0; i < result->n_lines; i++) {
        const struct read_line *line = &result->lines[i];
        uint64_t apart_s =
            line->began_s > wanted_s ? line->began_s - wanted_s : wanted_s - line->began_s;
        processes += first_of_process(result, i);
        if (apart_s <= nearest_s) {
            chosen = *line;
            nearest_s = apart_s;
        }
    }
    for (size_t i = 0; i < result->n_lines; i++)
        if (same_process(&result->lines[i], &chosen))
            result->lines[kept++] = result->lines[i];
    result->n_earlier = processes ? processes - 1 : 0;
    result->n_lines = kept;
}

const char *read_line_word(const struct read_line *line, bool blocks)
{
    switch (line->what) {
    case READ_SYSTEM:
        return system_word(line->space);
    case READ_PRESSURE: /* as the table `system` names them */
        return line->space == HISTORY_PRESSURE_SOME   ? "pressure"
               : line->space == HISTORY_PRESSURE_FULL ? "stall"
                                                      : "other";
    case READ_PSS:
        return "pss";
    case READ_ACCOUNT:
        break;
    }
    return line->space ? ledger_space_name(line->space) : blocks ? "all" : "rss";
}

static bool has_ended(const struct read_line *line)
{
    struct proc_stat stat;
    if (line->node[0] || (uint64_t)line->boot != history_boot())
        return true;
    return proc_stat_read((pid_t)line->pid, &stat) < 0 || stat.dead ||
           !proc_same_start(stat.start_ticks, (uint64_t)line->start_ticks);
}

bool read_line_ended(const struct read_line *line)
{
    static _Thread_local struct {
        struct read_line line;
        uint64_t until_ns; /* the answer counts up to then */
        bool ended;
    } last;
    uint64_t now_ns = clock_monotonic_ns();
    if (now_ns >= last.until_ns || !same_process(&last.line, line)) {
        last.ended = has_ended(line);
        last.line = *line;
        last.until_ns = now_ns + NS_PER_S;
    }
    return last.ended;
}
