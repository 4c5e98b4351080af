/* Pictures of the ledger. See sample.h. */
#include "history/sample.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/accountable.h"
#include "base/sum.h"
#include "ledger/ledger.h"

void sample_init(struct sample *sample)
{
    *sample = (struct sample){0};
}

void sample_release(struct sample *sample)
{
    free(sample->processes);
    free(sample->devices);
    free(sample->values);
    sample_init(sample);
}

void sample_reset(struct sample *sample, uint64_t real_ns)
{
    sample->real_ns = real_ns;
    sample->n_processes = sample->n_devices = sample->n_values = 0;
    sample->first_total = SIZE_MAX;
    memset(sample->by_user, 0, sizeof(sample->by_user));
}

/* Room for one more in an array that doubles; false past `max` or without memory. */
static bool grow(void **array, size_t n, size_t *cap, size_t max, size_t size)
{
    if (n < *cap)
        return true;
    size_t wanted = *cap ? *cap * 2 : 64;
    wanted = wanted < max ? wanted : max;
    void *grown = n < max ? reallocarray(*array, wanted, size) : NULL;
    if (!grown)
        return false;
    *array = grown;
    *cap = wanted;
    return true;
}

struct sample_device *sample_add_device(struct sample *sample)
{
    if (!grow((void **)&sample->devices, sample->n_devices, &sample->cap_devices,
              SAMPLE_DEVICES_MAX, sizeof(*sample->devices)))
        return NULL;
    struct sample_device *device = &sample->devices[sample->n_devices++];
    *device = (struct sample_device){0};
    return device;
}

struct sample_process *sample_add_process(struct sample *sample)
{
    if (!grow((void **)&sample->processes, sample->n_processes, &sample->cap_processes,
              SAMPLE_PROCESSES_MAX, sizeof(*sample->processes)))
        return NULL;
    struct sample_process *process = &sample->processes[sample->n_processes++];
    *process = (struct sample_process){.first_value = (uint32_t)sample->n_values};
    return process;
}

void sample_totals(struct sample *sample)
{
    sample->first_total = sample->n_values;
}

void sample_add_value(struct sample *sample, uint32_t device, uint32_t space, uint32_t metric,
                      uint64_t value)
{
    struct sample_process *process = NULL;
    if (sample->first_total == SIZE_MAX)
        process = &sample->processes[sample->n_processes - 1];
    if ((process && process->n_values == SAMPLE_VALUES_PER_PROCESS_MAX) ||
        !grow((void **)&sample->values, sample->n_values, &sample->cap_values, SAMPLE_VALUES_MAX,
              sizeof(*sample->values))) {
        sample->left_out++;
        return;
    }
    sample->values[sample->n_values++] = (struct sample_value){
        .device = device, .space = (uint16_t)space, .metric = (uint16_t)metric, .value = value};
    if (process)
        process->n_values++;
}

bool sample_reserve(struct sample *sample, uint32_t uid, uint32_t values, uint64_t per_user_max)
{
    uint32_t *taken = &sample->by_user[accountable_uid(uid) % SAMPLE_USERS];
    if (uid != 0 && uid != geteuid() && *taken + values > per_user_max) {
        sample->left_out += values;
        return false;
    }
    *taken += values;
    return true;
}

/* ---- from the ledger ---- */

/* As many as a process may have, with its blocks and its resident size. */
static uint32_t values_of(const struct ledger_process *p)
{
    size_t own = p->n_accounts < SAMPLE_VALUES_PER_PROCESS_MAX ? p->n_accounts
                                                               : SAMPLE_VALUES_PER_PROCESS_MAX;
    return (uint32_t)own + 2;
}

static void take_device(struct sample *sample, const struct ledger_device *d)
{
    struct sample_device *device = sample_add_device(sample);
    if (!device)
        return;
    device->kind = d->kind;
    device->ordinal = d->ordinal;
    memcpy(device->node, d->host, sizeof(device->node));
    memcpy(device->name, d->name, sizeof(device->name));
    memcpy(device->uid, d->uid, sizeof(device->uid));
    memcpy(device->bus, d->bus, sizeof(device->bus));
}

static void take_process(struct sample *sample, const struct ledger_process *p)
{
    struct sample_process *process = sample_add_process(sample);
    if (!process) {
        sample->left_out += values_of(p);
        return;
    }
    bool seen = p->valid & LEDGER_HAS_PID;
    process->pid_ns = p->pid_ns;
    process->start_ticks = p->start_ticks;
    process->exec_id = p->exec_id;
    process->began_ns = p->valid & LEDGER_HAS_START ? p->start_realtime_ns : 0;
    process->pid = seen ? p->pid : p->book_pid;
    process->claim = host_claim_of(p);
    process->uid = p->uid;
    memcpy(process->node, p->host, sizeof(process->node));
    memcpy(process->program, p->name, sizeof(process->program));
    uint64_t blocks = 0;
    bool has_blocks = false;
    for (size_t i = 0; i < p->n_accounts; i++) {
        const struct ledger_account *a = &p->accounts[i];
        if (!a->valid)
            continue; /* unknown is no value */
        sum_add(&blocks, a->totals.live_blocks);
        has_blocks = true;
        if (a->device && a->device->index >= sample->n_devices)
            sample->left_out++; /* and so is its device */
        else
            sample_add_value(sample, a->device ? a->device->index + 1 : 0, a->space, HISTORY_BYTES,
                             a->totals.live_bytes);
    }
    if (has_blocks)
        sample_add_value(sample, 0, 0, HISTORY_BLOCKS, blocks);
}

/* Of the host's memory, over all processes, also those that are left out. */
static void take_host(struct sample *sample, const struct ledger *ledger)
{
    uint64_t bytes[MEMOIR_SPACE_MAX + 1] = {0}, blocks[MEMOIR_SPACE_MAX + 1] = {0};
    uint32_t told = 0;
    size_t n;
    struct ledger_process *const *processes = ledger_processes(ledger, &n);
    for (size_t i = 0; i < n; i++) {
        const struct ledger_process *p = processes[i];
        for (size_t k = 0; ledger_process_holds(p) && k < p->n_accounts && !p->accounts[k].device;
             k++) {
            const struct ledger_account *a = &p->accounts[k];
            if (!a->valid || a->space > MEMOIR_SPACE_MAX)
                continue;
            sum_add(&bytes[a->space], a->totals.live_bytes);
            sum_add(&blocks[a->space], a->totals.live_blocks);
            told |= 1u << a->space;
        }
    }
    for (; told; told &= told - 1) {
        uint32_t space = (uint32_t)__builtin_ctz(told);
        sample_add_value(sample, 0, space, HISTORY_BYTES, bytes[space]);
        sample_add_value(sample, 0, space, HISTORY_BLOCKS, blocks[space]);
    }
}

void sample_take(struct sample *sample, const struct ledger *ledger, uint64_t real_ns,
                 uint64_t per_user_max)
{
    size_t n_devices, n_processes;
    struct ledger_device *const *devices = ledger_devices(ledger, &n_devices);
    struct ledger_process *const *processes = ledger_processes(ledger, &n_processes);
    sample_reset(sample, real_ns);
    for (size_t i = 0; i < n_devices; i++)
        take_device(sample, devices[i]);
    for (size_t i = 0; i < n_processes; i++)
        if (ledger_process_holds(processes[i]) &&
            sample_reserve(sample, processes[i]->uid, values_of(processes[i]), per_user_max))
            take_process(sample, processes[i]);
    sample_totals(sample);
    for (size_t i = 0; i < sample->n_devices; i++) { /* of these, as many as there is room for */
        for (size_t s = 0; s <= MEMOIR_SPACE_MAX; s++) {
            const struct ledger_capacity *space = &devices[i]->spaces[s];
            if (!space->space)
                continue;
            uint32_t number = (uint32_t)i + 1;
            sample_add_value(sample, number, space->space, HISTORY_BYTES, space->used);
            sample_add_value(sample, number, space->space, HISTORY_BLOCKS, space->blocks);
            if (space->capacity)
                sample_add_value(sample, number, space->space, HISTORY_CAPACITY, space->capacity);
        }
    }
    take_host(sample, ledger);
}
