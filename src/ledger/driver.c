/* See driver.h. */
#include "ledger/driver.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/sum.h"
#include "ledger/rows.h"
#include "nvml/facts.h"

struct ledger_driver {
    struct nvml_facts facts;
    struct ledger_device **devices; /* by place in facts.devices; NULL: it has no row */
    uint32_t *first;                /* of each device, its first process; one more at the end */
    uint32_t *by_pid;               /* places of processes that are here, sorted by PID */
    size_t n_here;
    uint64_t time_ns;
};

/* ---- devices ---- */

void ledger_device_confirm_capacity(struct ledger_device *device, uint32_t space, uint64_t bytes)
{
    struct ledger_capacity *c = &device->spaces[space];
    if (c->space == 0)
        snprintf(c->name, sizeof(c->name), "%s", ledger_space_name(space));
    c->space = space;
    device_row(device)->told |= UINT32_C(1) << space;
    device_row(device)->driver_bytes = bytes; /* 0: not told, claims go on counting */
    device_row(device)->claims_changed = true;
}

static struct ledger_device *device_join(struct ledger *ledger, const struct nvml_device *fact)
{
    struct book_device_view view = {.kind = MEMOIR_DEVICE_GPU, .ordinal = (int32_t)fact->index};
    snprintf(view.name, sizeof(view.name), "%.*s", (int)sizeof(view.name) - 1, fact->name);
    snprintf(view.uid, sizeof(view.uid), "%s", fact->uuid);
    snprintf(view.bus, sizeof(view.bus), "%s", fact->bus);
    struct ledger_device *device = ledger_device_ref(ledger, &view, "", 0);
    if (!device)
        return NULL;
    ledger_device_number(ledger, device, view.ordinal);
    device->driver = fact;
    ledger_device_confirm_capacity(device, MEMOIR_SPACE_DRAM,
                                   fact->valid & NVML_HAS_TOTAL ? fact->total_bytes : 0);
    return device;
}

void ledger_driver_clear(struct ledger *ledger)
{
    struct ledger_driver *driver = ledger->driver;
    if (!driver)
        return;
    for (size_t i = 0; driver->devices && i < driver->facts.n_devices; i++) {
        if (!driver->devices[i])
            continue;
        driver->devices[i]->driver = NULL;
        ledger_device_unref(ledger, driver->devices[i]);
    }
    nvml_facts_release(&driver->facts);
    free(driver->devices);
    free(driver->first);
    free(driver->by_pid);
    free(driver);
    ledger->driver = NULL;
}

/* ---- processes ---- */

/* Places, for qsort() without a context: PID above place, in one number. */
static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int processes_index(struct ledger_driver *driver)
{
    const struct nvml_facts *facts = &driver->facts;
    uint64_t *numbers = calloc(facts->n_processes + 1, sizeof(*numbers));
    driver->first = calloc(facts->n_devices + 1, sizeof(*driver->first));
    driver->by_pid = calloc(facts->n_processes + 1, sizeof(*driver->by_pid));
    if (!numbers || !driver->first || !driver->by_pid) {
        free(numbers);
        return -ENOMEM;
    }
    for (size_t i = 0; i < facts->n_processes; i++) {
        const struct nvml_process *p = &facts->processes[i];
        driver->first[p->device + 1] = (uint32_t)i + 1;
        if (p->is_here)
            numbers[driver->n_here++] = (uint64_t)p->pid << 32 | i;
    }
    for (size_t i = 1; i <= facts->n_devices;
         i++) /* devices without any begin where the last one ended */
        if (driver->first[i] < driver->first[i - 1])
            driver->first[i] = driver->first[i - 1];
    qsort(numbers, driver->n_here, sizeof(*numbers), by_number);
    for (size_t i = 0; i < driver->n_here; i++)
        driver->by_pid[i] = (uint32_t)numbers[i];
    free(numbers);
    return 0;
}

int ledger_driver_set(struct ledger *ledger, struct nvml_facts *facts)
{
    struct ledger_driver *driver = calloc(1, sizeof(*driver));
    if (!driver) {
        ledger_driver_clear(ledger);
        nvml_facts_release(facts);
        return -ENOMEM;
    }
    driver->facts = *facts;
    *facts = (struct nvml_facts){0};
    driver->devices = calloc(driver->facts.n_devices + 1, sizeof(struct ledger_device *));
    int r = driver->devices ? processes_index(driver) : -ENOMEM;
    /* The new ones are joined before the old ones go, so that rows stay what and where they are. */
    for (size_t i = 0; r == 0 && i < driver->facts.n_devices; i++)
        if (driver->facts.devices[i].mig_count == 0)
            driver->devices[i] = device_join(ledger, &driver->facts.devices[i]);
    ledger_driver_clear(ledger);
    for (size_t i = 0; r == 0 && i < driver->facts.n_devices; i++)
        if (driver->devices[i])
            driver->devices[i]->driver = &driver->facts.devices[i];
    driver->time_ns = clock_monotonic_ns();
    ledger->driver = driver;
    ledger_capacities(ledger);
    if (r < 0)
        ledger_driver_clear(ledger);
    return r;
}

void ledger_driver_forget(struct ledger *ledger)
{
    struct ledger_driver *driver = ledger->driver;
    if (!driver)
        return;
    for (size_t i = 0; i < driver->facts.n_devices; i++)
        driver->facts.devices[i].valid &=
            ~(uint32_t)(NVML_HAS_USED | NVML_HAS_RESERVED | NVML_HAS_PROCESSES);
    memset(driver->first, 0, (driver->facts.n_devices + 1) * sizeof(*driver->first));
    driver->n_here = 0;
}

/* ---- looking ---- */

const char *ledger_driver_version(const struct ledger *ledger)
{
    return ledger->driver ? ledger->driver->facts.driver : "";
}

uint64_t ledger_driver_time_ns(const struct ledger *ledger)
{
    return ledger->driver ? ledger->driver->time_ns : 0;
}

const struct nvml_process *ledger_driver_processes(const struct ledger *ledger,
                                                   const struct ledger_device *device,
                                                   size_t *ret_n)
{
    const struct ledger_driver *driver = ledger->driver;
    *ret_n = 0;
    if (!driver || !device->driver)
        return NULL;
    size_t place = (size_t)(device->driver - driver->facts.devices);
    *ret_n = driver->first[place + 1] - driver->first[place];
    return driver->facts.processes + driver->first[place];
}

struct ledger_driver_use ledger_driver_use(const struct ledger *ledger, pid_t pid,
                                           const struct ledger_device *device)
{
    const struct ledger_driver *driver = ledger ? ledger->driver : NULL;
    struct ledger_driver_use use = {0};
    size_t low = 0, high = driver ? driver->n_here : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (driver->facts.processes[driver->by_pid[middle]].pid < (uint32_t)pid)
            low = middle + 1;
        else
            high = middle;
    }
    for (; driver && low < driver->n_here; low++) {
        const struct nvml_process *p = &driver->facts.processes[driver->by_pid[low]];
        if (p->pid != (uint32_t)pid)
            break;
        if (device && driver->devices[p->device] != device)
            continue;
        use.listed = true;
        use.known |= p->has_used;
        use.partly |= !p->has_used;
        sum_add(&use.bytes, p->has_used ? p->used_bytes : 0);
    }
    return use;
}

bool ledger_driver_unattributed(const struct ledger_device *device, uint64_t *ret_bytes)
{
    const struct nvml_device *fact = device->driver;
    uint64_t accounted = 0;
    if (!fact || !(fact->valid & NVML_HAS_USED))
        return false;
    for (uint32_t space = 1; space <= MEMOIR_SPACE_MAX; space++)
        if (device->spaces[space].space && space != MEMOIR_SPACE_SYSTEM)
            sum_add(&accounted, device->spaces[space].used);
    *ret_bytes = fact->used_bytes > accounted ? fact->used_bytes - accounted : 0;
    return true;
}
