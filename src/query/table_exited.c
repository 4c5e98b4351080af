/* The table of processes that ended. */
#include <stdio.h>

#include "base/sum.h"
#include "query/table_process.h"

void query_exited_add_account(struct query_exited *exited, uint32_t space, uint64_t live_bytes,
                              uint64_t live_blocks, uint64_t peak_bytes)
{
    if (space == 0 || space > MEMOIR_SPACE_MAX)
        return;
    exited->spaces |= 1u << space;
    sum_add(&exited->bytes[space], live_bytes);
    sum_add(&exited->blocks, live_blocks);
    if (space >= MEMOIR_SPACE_DRAM && space != MEMOIR_SPACE_SYSTEM)
        sum_add(&exited->device_peak, peak_bytes);
}

void query_exited_mark_account(struct query_exited *exited, uint32_t space, bool sampled,
                               bool partial)
{
    if (space == 0 || space > MEMOIR_SPACE_MAX)
        return;
    exited->sampled |= (uint32_t)sampled << space;
    exited->partial |= (uint32_t)partial << space;
}

enum { TEXT_PROGRAM, TEXT_COMMAND, TEXT_EXE, TEXT_CAUSE, TEXT_KIND, TEXT_CGROUP };

static void get_text(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    const struct query_exited *e = row->exited;
    const char *const texts[] = {
        [TEXT_PROGRAM] = e->program, [TEXT_COMMAND] = e->command, [TEXT_EXE] = e->exe,
        [TEXT_CAUSE] = e->cause,     [TEXT_KIND] = e->kind,       [TEXT_CGROUP] = e->cgroup,
    };
    const char *text = texts[field->column->arg];
    if (text && *text)
        query_set_text(ret, text);
    else
        ret->state = QUERY_UNKNOWN;
}

static void get_user(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    if (row->exited->user)
        query_set_text(ret, row->exited->user);
    else
        query_set_user(ret, world, row->exited->uid);
}

static void get_node(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    query_set_node(ret, world, row->exited->node);
}

static void set_or_unknown(struct query_value *ret, bool known, uint64_t number)
{
    if (known)
        query_set_number(ret, number);
    else
        ret->state = QUERY_UNKNOWN;
}

enum { NUMBER_PID, NUMBER_UID, NUMBER_START, NUMBER_ENDED, NUMBER_LIVED, NUMBER_AGO };

static void get_number(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    const struct query_exited *e = row->exited;
    switch (field->column->arg) {
    case NUMBER_PID:
        set_or_unknown(ret, e->pid, e->pid);
        break;
    case NUMBER_UID:
        query_set_number(ret, e->uid);
        break;
    case NUMBER_START:
        set_or_unknown(ret, e->start_ns, e->start_ns);
        break;
    case NUMBER_ENDED:
        set_or_unknown(ret, e->end_ns, e->end_ns);
        break;
    case NUMBER_LIVED:
        if (e->processes)
            query_set_number(ret, e->lived_ns);
        else
            set_or_unknown(ret, e->start_ns && e->end_ns >= e->start_ns, e->end_ns - e->start_ns);
        break;
    case NUMBER_AGO:
        set_or_unknown(ret, e->end_ns,
                       world->now_real_ns > e->end_ns ? world->now_real_ns - e->end_ns : 0);
        break;
    }
}

enum { KERNEL_PARENT, KERNEL_PEAK, KERNEL_CPU, KERNEL_SEQUENCE };

/* What only the kernel tells, and only where it is asked. */
static void get_kernel(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    const struct query_exited *e = row->exited;
    switch (field->column->arg) {
    case KERNEL_PARENT:
        set_or_unknown(ret, e->parent, e->parent);
        break;
    case KERNEL_PEAK:
        set_or_unknown(ret, e->has_exit && e->peak_rss, e->peak_rss);
        ret->marks = ret->state == QUERY_KNOWN && e->peak_estimate ? QUERY_ESTIMATE : 0;
        break;
    case KERNEL_CPU: /* what it used since the last tick was not counted yet */
        set_or_unknown(ret, e->has_exit && e->cpu_ns, e->cpu_ns);
        ret->marks = ret->state == QUERY_KNOWN ? QUERY_AT_LEAST : 0;
        break;
    case KERNEL_SEQUENCE:
        if (e->sequence)
            query_set_number(ret, e->sequence);
        break;
    }
}

static void get_processes(const struct query_world *world, const struct query_row *row,
                          const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, row->exited->processes ? row->exited->processes : 1);
}

enum { YES_CORE, YES_BOOK, YES_SUMMED };

static void get_yes(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, struct query_value *ret)
{
    const struct query_exited *e = row->exited;
    const bool values[] = {
        [YES_CORE] = e->core, [YES_BOOK] = e->has_book, [YES_SUMMED] = e->processes > 0};
    query_set_number(ret, values[field->column->arg]);
}

static void get_exit_code(const struct query_world *world, const struct query_row *row,
                          const struct query_field *field, struct query_value *ret)
{
    if (row->exited->has_exit_code && row->exited->exit_code >= 0)
        query_set_number(ret, (uint64_t)row->exited->exit_code);
}

static void get_signal(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    if (row->exited->has_signal && row->exited->signal >= 0)
        query_set_number(ret, (uint64_t)row->exited->signal);
}

static uint32_t device_spaces(void)
{
    uint32_t devices = 0;
    for (uint32_t space = MEMOIR_SPACE_DRAM; space <= MEMOIR_SPACE_MAX; space++)
        if (space != MEMOIR_SPACE_SYSTEM)
            devices |= 1u << space;
    return devices;
}

/* A figure of its accounts in these spaces; what is there may not be all. */
static void set_figure(struct query_value *ret, const struct query_exited *e, uint32_t spaces,
                       uint64_t number)
{
    if (e->spaces & spaces)
        query_set_number(ret, number);
    if (e->figures_incomplete)
        ret->state |= QUERY_UNKNOWN;
    ret->marks =
        (e->sampled & spaces ? QUERY_ESTIMATE : 0) | (e->partial & spaces ? QUERY_AT_LEAST : 0);
}

/* One space, or with 0 all of a device's. */
static void get_space(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, struct query_value *ret)
{
    uint32_t spaces = field->space ? 1u << field->space : device_spaces();
    uint64_t sum = 0;
    for (uint32_t space = 1; space <= MEMOIR_SPACE_MAX; space++)
        if (spaces & 1u << space)
            sum_add(&sum, row->exited->bytes[space]);
    set_figure(ret, row->exited, spaces, sum);
}

static void get_peak(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    set_figure(ret, row->exited, device_spaces(), row->exited->device_peak);
}

static void get_blocks(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    set_figure(ret, row->exited, UINT32_MAX, row->exited->blocks);
}

static void get_losses(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, row->exited->losses);
}

#define HELD(name, space, help)                                 \
    {                                                           \
        name, help, QUERY_BYTES, .arg = space, .get = get_space \
    }

static const struct query_column columns[] = {
    {"pid", "process id that it had", QUERY_NUMBER, QUERY_SAME, .arg = NUMBER_PID,
     .get = get_number},
    {"program", "name of the program, or of the script that it ran", QUERY_TEXT,
     .flags = QUERY_PRIVATE, .arg = TEXT_PROGRAM, .get = get_text},
    {"user", "whose it was", QUERY_TEXT, .get = get_user},
    {"uid", "the same as a number", QUERY_NUMBER, QUERY_SAME, .arg = NUMBER_UID, .get = get_number},
    {"node", "name of the machine", QUERY_TEXT, .get = get_node},
    QUERY_COLUMN_NODES,
    {"cause", "how it ended", QUERY_TEXT, .flags = QUERY_PRIVATE, .arg = TEXT_CAUSE,
     .get = get_text},
    {"kind", "of the cause: code, signal, oom, exec or unknown", QUERY_TEXT, .flags = QUERY_PRIVATE,
     .arg = TEXT_KIND, .get = get_text},
    {"exit_code", "code with which it exited", QUERY_NUMBER, QUERY_SAME, .flags = QUERY_PRIVATE,
     .get = get_exit_code},
    {"signal", "number of the signal that killed it", QUERY_NUMBER, QUERY_SAME,
     .flags = QUERY_PRIVATE, .get = get_signal},
    {"core", "whether it left a core dump", QUERY_YES, .flags = QUERY_PRIVATE, .arg = YES_CORE,
     .get = get_yes},
    {"command", "the command line", QUERY_TEXT, .flags = QUERY_PRIVATE, .arg = TEXT_COMMAND,
     .get = get_text},
    {"exe", "path of the program", QUERY_TEXT, .flags = QUERY_PRIVATE, .arg = TEXT_EXE,
     .get = get_text},
    {"start", "when it was started", QUERY_TIME, QUERY_MIN, .arg = NUMBER_START, .get = get_number},
    {"ended", "when it ended", QUERY_TIME, QUERY_MAX, .arg = NUMBER_ENDED, .get = get_number},
    {"lived", "how long it lived", QUERY_AGE, .arg = NUMBER_LIVED, .get = get_number},
    {"ago", "how long ago it ended", QUERY_AGE, QUERY_MIN, .arg = NUMBER_AGO, .get = get_number},
    {"peak_rss", "the most that it had in memory; needs memoird as root", QUERY_BYTES, QUERY_MAX,
     .arg = KERNEL_PEAK, .get = get_kernel},
    {"cpu", "processor time that it used, up to its last tick", QUERY_AGE, QUERY_SUM,
     .arg = KERNEL_CPU, .get = get_kernel},
    {"parent", "process id of its parent", QUERY_NUMBER, QUERY_SAME, .arg = KERNEL_PARENT,
     .get = get_kernel},
    {"cgroup", "its control group", QUERY_TEXT, .arg = TEXT_CGROUP, .get = get_text},
    {"has_book", "whether it kept a book", QUERY_YES, .arg = YES_BOOK, .get = get_yes},
    {"processes", "how many the row stands for", QUERY_NUMBER, QUERY_SUM, .get = get_processes},
    {"summed",
     "whether the row is a sum of processes that gave way to later ones; such rows come only where "
     "the question names this column",
     QUERY_YES, .arg = YES_SUMMED, .get = get_yes},
    {"sequence", "order in which the kernel told of them", QUERY_NUMBER, QUERY_MAX,
     .arg = KERNEL_SEQUENCE, .get = get_kernel},
    HELD("device", 0, "device memory that it held at the end"),
    HELD("device.dram", MEMOIR_SPACE_DRAM, "of it, DRAM"),
    HELD("device.l1", MEMOIR_SPACE_L1, "of it, buffers in L1"),
    HELD("device.l1_small", MEMOIR_SPACE_L1_SMALL, "of it, small buffers in L1"),
    HELD("device.trace", MEMOIR_SPACE_TRACE, "of it, recorded traces"),
    HELD("device.cb", MEMOIR_SPACE_CB, "of it, circular buffers"),
    HELD("device.kernel", MEMOIR_SPACE_KERNEL, "of it, kernel binaries"),
    {"peak", "the most that device can have been", QUERY_BYTES, .get = get_peak},
    HELD("heap", MEMOIR_SPACE_HEAP, "heap that it held at the end"),
    HELD("pinned", MEMOIR_SPACE_PINNED, "pinned memory that it held at the end"),
    {"blocks", "blocks that it held at the end", QUERY_NUMBER, .get = get_blocks},
    {"losses", "reports that were not fully accounted", QUERY_NUMBER, .get = get_losses},
    {0},
};

static int scan_exited(struct query_scan *scan)
{
    for (size_t i = 0; i < scan->world->n_exited; i++) {
        int r = scan->each(scan, &(struct query_row){.exited = &scan->world->exited[i]});
        if (r)
            return r;
    }
    return 0;
}

static bool owner(const struct query_row *row, uint32_t *ret_uid)
{
    *ret_uid = row->exited->uid;
    return true;
}

/* Sums would be taken for processes. */
static bool usual(const struct query_row *row)
{
    return row->exited->processes == 0;
}

const struct query_table query_table_exited = {
    .name = "exited",
    .help = "one row for each process that ended, as the daemon remembers them",
    .columns = columns,
    .needs = QUERY_NEEDS_EXITS,
    .costly = true,
    .show = "pid,user,program,ended,cause,device,peak,heap,blocks,lived",
    .show_by = "count,device,peak,ended",
    .sort = "-ended,+pid",
    .scan = scan_exited,
    .owner = owner,
    .usual = usual,
    .unusual_by = "summed",
};
