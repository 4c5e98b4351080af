/* Names of lines, as all surfaces print them. See read.h. */
#include "history/read.h"
#include "ledger/host.h"

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
