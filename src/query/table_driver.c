/* The table of processes on devices as the driver counts them, whether they keep a book or not. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <memoir/memoir.h>

#include "base/cleanup.h"
#include "base/sum.h"
#include "ledger/driver.h"
#include "ledger/ledger.h"
#include "nvml/facts.h"
#include "query/table_process.h"

typedef struct query_value value;

static const struct nvml_process *fact_of(const struct query_row *row)
{
    return row->custom;
}

static void get_pid(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, value *ret)
{
    if (fact_of(row)->is_here)
        query_set_number(ret, fact_of(row)->pid);
    else
        ret->state = QUERY_UNKNOWN;
}

static void get_driver_pid(const struct query_world *world, const struct query_row *row,
                           const struct query_field *field, value *ret)
{
    query_set_number(ret, fact_of(row)->pid);
}

static void get_program(const struct query_world *world, const struct query_row *row,
                        const struct query_field *field, value *ret)
{
    if (row->process)
        query_set_text(ret, row->process->name);
    else if (fact_of(row)->is_here)
        query_set_text(ret, fact_of(row)->comm);
    else
        ret->state = QUERY_UNKNOWN;
}

static void get_user(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, value *ret)
{
    static _Thread_local char number[16];
    const struct nvml_process *fact = fact_of(row);
    if (!fact->is_here) {
        ret->state = QUERY_UNKNOWN;
        return;
    }
    const char *name = world->user_name ? world->user_name(fact->uid, world->context) : NULL;
    if (!name)
        snprintf(number, sizeof(number), "%u", fact->uid);
    query_set_text(ret, name ? name : number);
}

static void get_uid(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, value *ret)
{
    if (fact_of(row)->is_here)
        query_set_number(ret, fact_of(row)->uid);
    else
        ret->state = QUERY_UNKNOWN;
}

static void get_use(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, value *ret)
{
    static const char *const words[] = {
        "", [NVML_COMPUTE] = "compute", [NVML_GRAPHICS] = "graphics",
        [NVML_COMPUTE | NVML_GRAPHICS] = "both"};
    query_set_text(ret, words[fact_of(row)->uses & (NVML_COMPUTE | NVML_GRAPHICS)]);
}

static void get_driver(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, value *ret)
{
    if (fact_of(row)->has_used)
        query_set_number(ret, fact_of(row)->used_bytes);
    else
        ret->state = QUERY_UNKNOWN;
}

/* What its books say of this device: the device's own memory. */
static bool accounted(const struct query_row *row, uint64_t *ret_bytes)
{
    bool any = false;
    *ret_bytes = 0;
    for (size_t i = 0; row->process && i < row->process->n_accounts; i++) {
        const struct ledger_account *a = &row->process->accounts[i];
        if (a->device != row->device || a->space == MEMOIR_SPACE_SYSTEM || !a->valid)
            continue;
        any = true;
        sum_add(ret_bytes, a->totals.live_bytes);
    }
    return any;
}

static void get_accounted(const struct query_world *world, const struct query_row *row,
                          const struct query_field *field, value *ret)
{
    uint64_t bytes;
    if (accounted(row, &bytes))
        query_set_number(ret, bytes);
}

static void get_unattributed(const struct query_world *world, const struct query_row *row,
                             const struct query_field *field, value *ret)
{
    uint64_t bytes, driver = fact_of(row)->used_bytes;
    (void)accounted(row, &bytes);
    if (fact_of(row)->has_used)
        query_set_number(ret, driver > bytes ? driver - bytes : 0);
    else
        ret->state = QUERY_UNKNOWN;
}

static const struct query_column columns[] = {
    {"pid", "process id; absent for a process of another PID namespace", QUERY_NUMBER, QUERY_SAME,
     .get = get_pid},
    {"driver_pid", NULL, QUERY_NUMBER, QUERY_SAME, .get = get_driver_pid},
    {"program", "name of the program", QUERY_TEXT, .get = get_program},
    {"user", NULL, QUERY_TEXT, .get = get_user},
    {"uid", NULL, QUERY_NUMBER, QUERY_SAME, .get = get_uid},
    {"node", NULL, QUERY_TEXT, .get = query_get_node},
    QUERY_COLUMN_NODES,
    {"device", "number and name of the device", QUERY_TEXT, .get = place_device},
    {"ordinal", "the driver's number of the device", QUERY_NUMBER, QUERY_SAME,
     .get = place_ordinal},
    {"device_name", NULL, QUERY_TEXT, .arg = PLACE_NAME, .get = place_text},
    {"device_id", DEVICE_ID_HELP, QUERY_TEXT, .get = place_device_id},
    {"device_uid", NULL, QUERY_TEXT, .arg = PLACE_UID, .get = place_text},
    {"device_bus", NULL, QUERY_TEXT, .arg = PLACE_BUS, .get = place_text},
    {"use", NULL, QUERY_TEXT, .get = get_use},
    {"driver", NULL, QUERY_BYTES, .get = get_driver},
    {"accounted", NULL, QUERY_BYTES, .get = get_accounted},
    {"unattributed", "driver less accounted, where the driver counts more", QUERY_BYTES,
     .get = get_unattributed},
    {0},
};

/* ---- their books ---- */

static int by_pid(const void *a, const void *b)
{
    const struct ledger_process *x = *(struct ledger_process *const *)a;
    const struct ledger_process *y = *(struct ledger_process *const *)b;
    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    return ledger_process_before(y, x) - ledger_process_before(x, y);
}

/* Those of processes that the driver lists, by PID, one that runs before others. */
static int books_collect(const struct ledger *ledger, struct ledger_process ***ret_books,
                         size_t *ret_n)
{
    size_t n, found = 0;
    struct ledger_process *const *all = ledger_processes(ledger, &n);
    struct ledger_process **books = calloc(n + 1, sizeof(struct ledger_process *));
    if (!books)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (ledger_process_reachable(all[i]) && ledger_driver_use(ledger, all[i]->pid, NULL).listed)
            books[found++] = all[i];
    qsort(books, found, sizeof(struct ledger_process *), by_pid);
    *ret_books = books;
    *ret_n = found;
    return 0;
}

static const struct ledger_process *book_of(const struct nvml_process *fact,
                                            struct ledger_process *const *books, size_t n)
{
    size_t low = 0, high = fact->is_here ? n : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (books[middle]->pid < (pid_t)fact->pid)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && fact->is_here && books[low]->pid == (pid_t)fact->pid ? books[low] : NULL;
}

static int scan(struct query_scan *scan)
{
    struct ledger *ledger = scan->world->ledger;
    size_t n_devices = 0, n_books = 0;
    MEMOIR_CLEANUP(freep)
    struct ledger_process **books = NULL;
    if (ledger && books_collect(ledger, &books, &n_books) < 0)
        return -ENOMEM;
    struct ledger_device *const *devices = ledger ? ledger_devices(ledger, &n_devices) : NULL;
    for (size_t i = 0; i < n_devices; i++) {
        size_t n;
        const struct nvml_process *facts = ledger_driver_processes(ledger, devices[i], &n);
        for (size_t k = 0; k < n; k++) {
            int r =
                scan->each(scan, &(struct query_row){.device = devices[i],
                                                     .process = book_of(&facts[k], books, n_books),
                                                     .custom = &facts[k]});
            if (r)
                return r;
        }
    }
    return 0;
}

static bool owner(const struct query_row *row, uint32_t *ret_uid)
{
    *ret_uid = fact_of(row)->is_here ? fact_of(row)->uid : 0;
    return true;
}

const struct query_table query_table_device_processes = {
    .name = "device_processes",
    .help = "one row for each process on each device, as the driver counts it (NVIDIA)",
    .columns = columns,
    .needs = QUERY_NEEDS_BOOKS | QUERY_NEEDS_DRIVER,
    .driver_only = true,
    .show = "device,pid,user,program,use,driver,accounted,unattributed",
    .show_by = "count,driver,accounted,unattributed",
    .sort = "+ordinal,-driver,+driver_pid",
    .scan = scan,
    .owner = owner,
};
