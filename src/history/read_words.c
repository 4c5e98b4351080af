/* Names of lines, as all surfaces print them. See read.h. */
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
    return a->boot == b->boot && a->start_ticks == b->start_ticks && a->pid == b->pid;
}

void read_choose_process(struct read_result *result, uint64_t start_s)
{
    const struct read_line *best = NULL;
    size_t kept = 0;
    uint64_t best_far = 0;
    for (size_t i = 0; i < result->n_lines; i++) {
        const struct read_line *line = &result->lines[i];
        uint64_t far = line->began_s > start_s ? line->began_s - start_s : start_s - line->began_s;
        bool first = true;
        for (size_t k = 0; k < i; k++)
            first &= !same_process(&result->lines[k], line);
        result->n_earlier += first;
        if (!best || (start_s ? far < best_far : line->began_s > best->began_s)) {
            best = line;
            best_far = far;
        }
    }
    if (!best)
        return;
    struct read_line chosen = *best;
    result->n_earlier--;
    for (size_t i = 0; i < result->n_lines; i++)
        if (same_process(&result->lines[i], &chosen))
            result->lines[kept++] = result->lines[i];
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

bool read_line_ended(const struct read_line *line)
{
    static _Thread_local struct {
        int64_t boot, start_ticks, pid;
        uint64_t looked_ns; /* 0: nothing is known */
        bool ended;
    } last;
    uint64_t now_ns = clock_monotonic_ns();
    if (last.looked_ns && now_ns - last.looked_ns < NS_PER_S && last.boot == line->boot &&
        last.start_ticks == line->start_ticks && last.pid == line->pid)
        return last.ended;
    struct proc_stat stat;
    last.ended = line->node[0] || (uint64_t)line->boot != history_boot() || line->pid <= 0 ||
                 proc_stat_read((pid_t)line->pid, &stat) < 0 || stat.dead ||
                 !proc_same_start(stat.start_ticks, (uint64_t)line->start_ticks);
    last.boot = line->boot;
    last.start_ticks = line->start_ticks;
    last.pid = line->pid;
    last.looked_ns = now_ns;
    return last.ended;
}
