/* The line that is written when a process is gone.
 *
 * All sizes of a line are in the unit of the largest, so that they can be compared at a glance; one
 * of which that unit would leave nothing has its own. */
#include "daemon/line.h"

#include <inttypes.h>
#include <memoir/memoir.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/sum.h"
#include "base/units.h"
#include "daemon/retired.h"

enum noun { BUFFERS, CBS, KERNELS, PINNED, MANAGED, SHARED, HEAP, MAPPINGS, CHAINED, NOUNS };

static const struct {
    const char *one, *many;
} words[NOUNS] = {
    [BUFFERS] = {"buffer", "buffers"},
    [CBS] = {"CB", "CBs"},
    [KERNELS] = {"kernel", "kernels"},
    [PINNED] = {"pinned block", "pinned blocks"},
    [MANAGED] = {"managed block", "managed blocks"},
    [SHARED] = {"shared block", "shared blocks"},
    [HEAP] = {"heap block", "heap blocks"},
    [MAPPINGS] = {"mapping", "mappings"},
    [CHAINED] = {"block in chains", "blocks in chains"},
};

static enum noun noun_of(uint32_t space)
{
    static const uint8_t by_space[MEMOIR_SPACE_MAX + 1] = {
        [MEMOIR_SPACE_HEAP] = HEAP,      [MEMOIR_SPACE_MAPPED] = MAPPINGS,
        [MEMOIR_SPACE_PINNED] = PINNED,  [MEMOIR_SPACE_MANAGED] = MANAGED,
        [MEMOIR_SPACE_SHARED] = SHARED,  [MEMOIR_SPACE_CB] = CBS,
        [MEMOIR_SPACE_KERNEL] = KERNELS, [MEMOIR_SPACE_CHAIN] = CHAINED,
    };
    return space <= MEMOIR_SPACE_MAX ? (enum noun)by_space[space] : BUFFERS; /* BUFFERS is 0 */
}

static const struct {
    uint64_t bytes;
    const char *name;
} units[] = {
    {UINT64_C(1000000000000), "TB"},
    {UINT64_C(1000000000), "GB"},
    {UINT64_C(1000000), "MB"},
    {UINT64_C(1000), "kB"},
};

static void size_write(uint64_t bytes, uint64_t largest, struct buffer *out)
{
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
        if (largest < units[i].bytes)
            continue;
        /* Rounded half up, like all our sizes. */
        uint64_t tenths = bytes / units[i].bytes * 10 +
                          (bytes % units[i].bytes * 10 + units[i].bytes / 2) / units[i].bytes;
        if (tenths == 0 && bytes > 0)
            break;
        buffer_printf(out, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10, units[i].name);
        return;
    }
    char text[UNITS_TEXT_MAX];
    buffer_append_str(out, units_format_bytes(text, bytes, UNITS_DECIMAL));
}

int line_write(const struct retired_process *process, struct buffer *out)
{
    struct {
        uint64_t blocks, bytes;
    } sums[NOUNS] = {0};
    uint64_t largest = 0, blocks = 0;
    for (size_t i = 0; i < process->n_accounts; i++) {
        const struct retired_account *account = &process->accounts[i];
        enum noun noun = noun_of(account->space);
        sum_add(&sums[noun].blocks, account->totals.live_blocks);
        sum_add(&sums[noun].bytes, account->totals.live_bytes);
        sum_add(&blocks, account->totals.live_blocks);
        if (sums[noun].bytes > largest)
            largest = sums[noun].bytes;
    }
    char text[CAUSE_TEXT_MAX];
    buffer_printf(out, "PID %d", (int)(process->pid > 0 ? process->pid : process->book_pid));
    if (process->host[0])
        buffer_printf(out, " of %s", process->host);
    else if (process->pid <= 0)
        buffer_printf(out, " of pid namespace %" PRIu64, process->pid_ns);
    buffer_printf(out, " (%s, %s) gone: ", process->name, cause_text(process->cause, text));
    const char *before = "removed ";
    for (int i = 0; i < NOUNS; i++) {
        if (sums[i].blocks == 0)
            continue;
        buffer_printf(out, "%s%" PRIu64 " %s (", before, sums[i].blocks,
                      sums[i].blocks == 1 ? words[i].one : words[i].many);
        size_write(sums[i].bytes, largest, out);
        buffer_append_char(out, ')');
        before = ", ";
    }
    if (blocks == 0)
        buffer_append_str(out, process->figures_complete ? "held nothing" : "figures unknown");
    else if (!process->figures_complete)
        buffer_append_str(out, ", and more that could not be read");
    return out->error;
}
