/* The tables of accounts (process, device, space) and of devices (device, space). */
#include <memoir/memoir.h>

#include "ledger/driver.h"
#include "ledger/ledger.h"
#include "nvml/facts.h"
#include "query/table_process.h"

/* ---- accounts ---- */

enum account_figure {
    LIVE,
    BLOCKS,
    PEAK,
    ALLOCATED,
    FREED,
    ALLOCATED_BLOCKS,
    FREED_BLOCKS,
    MOVED_IN,
    MOVED_OUT,
    INHERITED,
};

static uint64_t account_figure(const struct ledger_account *a, enum account_figure figure)
{
    const struct book_totals *t = &a->totals;
    const uint64_t figures[] = {
        [LIVE] = t->live_bytes,           [BLOCKS] = t->live_blocks,
        [PEAK] = t->peak_bytes,           [ALLOCATED] = t->alloc_bytes,
        [FREED] = t->freed_bytes,         [ALLOCATED_BLOCKS] = t->alloc_blocks,
        [FREED_BLOCKS] = t->freed_blocks, [MOVED_IN] = t->moved_in_bytes,
        [MOVED_OUT] = t->moved_out_bytes, [INHERITED] = a->inherited_bytes,
    };
    return figures[figure];
}

static void get_figure(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    const struct ledger_account *a = row->account;
    if (!a->valid) {
        ret->state = QUERY_UNKNOWN;
        return;
    }
    query_set_number(ret, account_figure(a, (enum account_figure)field->column->arg));
    ret->marks = account_marks(a);
}

static void get_account_capacity(const struct query_world *world, const struct query_row *row,
                                 const struct query_field *field, struct query_value *ret)
{
    if (row->account->capacity)
        query_set_number(ret, row->account->capacity);
}

static void get_account_percent(const struct query_world *world, const struct query_row *row,
                                const struct query_field *field, struct query_value *ret)
{
    get_figure(world, row, field, ret);
    ret->per = row->account->capacity;
    if (!ret->per)
        *ret = (struct query_value){0};
}

static void get_source(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    query_set_text(ret, ledger_source_name(row->account->source));
}

static const struct query_column account_columns[] = {
    PROCESS_COLUMNS,
    DEVICE_COLUMNS(0),
    {"bytes", "allocated and not freed", QUERY_BYTES, .arg = LIVE, .get = get_figure},
    {"blocks", "blocks allocated and not freed", QUERY_NUMBER, .arg = BLOCKS, .get = get_figure},
    {"peak", "the most that was live at once", QUERY_BYTES, .arg = PEAK, .get = get_figure},
    {"allocated", "bytes allocated since the start", QUERY_BYTES, .arg = ALLOCATED,
     .get = get_figure},
    {"freed", "bytes freed since the start", QUERY_BYTES, .arg = FREED, .get = get_figure},
    {"allocated_blocks", "blocks allocated since the start", QUERY_NUMBER, .arg = ALLOCATED_BLOCKS,
     .get = get_figure},
    {"freed_blocks", "blocks freed since the start", QUERY_NUMBER, .arg = FREED_BLOCKS,
     .get = get_figure},
    {"moved_in", "bytes of transfers into it", QUERY_BYTES, .arg = MOVED_IN, .get = get_figure},
    {"moved_out", "bytes of transfers out of it", QUERY_BYTES, .arg = MOVED_OUT, .get = get_figure},
    {"inherited", "live in the parent at fork and not freed since; no part of bytes", QUERY_BYTES,
     .arg = INHERITED, .get = get_figure},
    {"capacity", "size of the space, as the process told", QUERY_BYTES, QUERY_MAX,
     .get = get_account_capacity},
    {"percent", "share of the capacity that the process holds", QUERY_PERCENT, QUERY_MAX,
     .arg = LIVE, .get = get_account_percent},
    {"holds", NULL, QUERY_YES, .get = process_holds},
    {"source", "who counted: client, socket, malloc, ...", QUERY_TEXT, .get = get_source},
    {0},
};

static int scan_accounts(struct query_scan *scan)
{
    size_t n = 0;
    struct ledger_process *const *processes =
        scan->world->ledger ? ledger_processes(scan->world->ledger, &n) : NULL;
    for (size_t i = 0; i < n; i++)
        for (size_t a = 0; a < processes[i]->n_accounts; a++) {
            struct query_row row = {.process = processes[i],
                                    .account = &processes[i]->accounts[a],
                                    .device = processes[i]->accounts[a].device};
            int r = scan->each(scan, &row);
            if (r)
                return r;
        }
    return 0;
}

const struct query_table query_table_accounts = {
    .name = "accounts",
    .help = "one row for each device and kind of memory of each process",
    .columns = account_columns,
    .needs = QUERY_NEEDS_BOOKS,
    .show = "pid,user,program,device,space,bytes,blocks,peak,capacity",
    .show_by = "count,bytes,blocks,peak",
    .sort = "-bytes,+pid,+ordinal,+space",
    .scan = scan_accounts,
    .owner = process_owner,
    .usual = process_lives,
    .unusual_by = "state",
};

/* ---- devices ---- */

static void get_node(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    query_set_node(ret, world, row->device->host);
}

/* A memory has a size even where none was reported; what lies in L1 has none of its own. */
static uint8_t capacity_missing(const struct ledger_capacity *c)
{
    return c->space == MEMOIR_SPACE_CB || c->space == MEMOIR_SPACE_KERNEL ? 0 : QUERY_UNKNOWN;
}

/* A user whose claim is disputed sees it all the same: it holds for that user's own processes. */
static uint64_t capacity_of(const struct query_world *world, const struct ledger_capacity *c)
{
    return ledger_capacity_for(c, world->viewer_uid);
}

static void get_capacity(const struct query_world *world, const struct query_row *row,
                         const struct query_field *field, struct query_value *ret)
{
    uint64_t capacity = capacity_of(world, row->capacity);
    if (capacity)
        query_set_number(ret, capacity);
    else
        ret->state = capacity_missing(row->capacity);
}

static void get_used(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, row->capacity->used);
    ret->marks = (row->capacity->sampled ? QUERY_ESTIMATE : 0) |
                 (row->capacity->partial ? QUERY_AT_LEAST : 0);
}

static void get_free(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    const struct ledger_capacity *c = row->capacity;
    uint64_t capacity = capacity_of(world, c);
    if (capacity)
        query_set_number(ret, capacity > c->used ? capacity - c->used : 0);
    else
        ret->state = capacity_missing(c);
}

static void get_percent(const struct query_world *world, const struct query_row *row,
                        const struct query_field *field, struct query_value *ret)
{
    uint64_t capacity = capacity_of(world, row->capacity);
    if (!capacity)
        return; /* out of nothing known; no part of a sum's share either */
    query_set_number(ret, row->capacity->used);
    ret->per = capacity;
}

static void get_blocks(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, row->capacity->blocks);
}

static void get_processes(const struct query_world *world, const struct query_row *row,
                          const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, row->device->processes);
}

/* ---- what the driver says, of the memory that it manages ---- */

static const struct nvml_device *driver_of(const struct query_row *row)
{
    return row->capacity->space == MEMOIR_SPACE_DRAM ? row->device->driver : NULL;
}

static void get_driver(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    const struct nvml_device *driver = driver_of(row);
    bool used = field->column->arg == NVML_HAS_USED;
    if (!driver)
        return;
    if (driver->valid & field->column->arg)
        query_set_number(ret, used ? driver->used_bytes : driver->reserved_bytes);
    else
        ret->state = QUERY_UNKNOWN;
}

static void get_driver_processes(const struct query_world *world, const struct query_row *row,
                                 const struct query_field *field, struct query_value *ret)
{
    size_t n;
    if (!driver_of(row))
        return;
    (void)ledger_driver_processes(world->ledger, row->device, &n);
    if (n > 0 || driver_of(row)->valid & NVML_HAS_PROCESSES)
        query_set_number(ret, n);
    if (!(driver_of(row)->valid & NVML_HAS_PROCESSES)) {
        ret->state |= QUERY_UNKNOWN;
        ret->marks |= n > 0 ? QUERY_AT_LEAST : 0;
    }
}

static void get_unattributed(const struct query_world *world, const struct query_row *row,
                             const struct query_field *field, struct query_value *ret)
{
    uint64_t bytes;
    if (!driver_of(row))
        return;
    if (ledger_driver_unattributed(row->device, &bytes))
        query_set_number(ret, bytes);
    else
        ret->state = QUERY_UNKNOWN;
}

enum { YES_CONFIRMED, YES_DISPUTED };

static void get_yes(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, field->column->arg == YES_CONFIRMED ? row->capacity->confirmed
                                                              : row->capacity->disputed);
}

static const struct query_column device_columns[] = {
    DEVICE_COLUMNS(0),
    {"node", "name of the machine", QUERY_TEXT, .get = get_node},
    QUERY_COLUMN_NODES,
    {"capacity",
     "size of the space: as the driver or root tells it, else as all users claim it who claim one; where they "
     "disagree, your own claim",
     QUERY_BYTES, .get = get_capacity},
    {"confirmed", "whether the driver or root tells the capacity", QUERY_YES, .arg = YES_CONFIRMED,
     .get = get_yes},
    {"disputed", "whether a user claims another capacity", QUERY_YES, .arg = YES_DISPUTED,
     .get = get_yes},
    {"used", "held by processes that live", QUERY_BYTES, .get = get_used},
    {"free", "capacity less used", QUERY_BYTES, .get = get_free},
    {"percent", "used as a share of the capacity", QUERY_PERCENT, .get = get_percent},
    {"blocks", "blocks allocated and not freed", QUERY_NUMBER, .get = get_blocks},
    {"processes", "processes that hold something on the device", QUERY_NUMBER, QUERY_MAX,
     .get = get_processes},
    {"driver.used", "held by all processes, as the driver counts (NVIDIA)", QUERY_BYTES,
     .arg = NVML_HAS_USED, .get = get_driver},
    {"driver.reserved", "held by the driver itself; no part of driver.used", QUERY_BYTES,
     .arg = NVML_HAS_RESERVED, .get = get_driver},
    {"driver.processes", "processes that use the device, as the driver counts", QUERY_NUMBER,
     QUERY_MAX, .get = get_driver_processes},
    {"unattributed", "driver.used less what is accounted, where the driver counts more",
     QUERY_BYTES, .get = get_unattributed},
    {0},
};

static int scan_devices(struct query_scan *scan)
{
    size_t n = 0;
    struct ledger_device *const *devices =
        scan->world->ledger ? ledger_devices(scan->world->ledger, &n) : NULL;
    for (size_t i = 0; i < n; i++)
        for (size_t s = 0; s <= MEMOIR_SPACE_MAX; s++) {
            if (!devices[i]->spaces[s].space)
                continue;
            int r = scan->each(scan, &(struct query_row){.device = devices[i],
                                                         .capacity = &devices[i]->spaces[s]});
            if (r)
                return r;
        }
    return 0;
}

const struct query_table query_table_devices = {
    .name = "devices",
    .help = "one row for each kind of memory of each device",
    .columns = device_columns,
    .needs = QUERY_NEEDS_BOOKS | QUERY_NEEDS_DRIVER,
    .show = "device,space,used,free,capacity,percent,blocks,processes",
    .show_by = "used,free,capacity,percent,blocks,processes",
    .sort = "+ordinal,+device,+space",
    .scan = scan_devices,
};
