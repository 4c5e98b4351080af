/* Readings on their way from the worker. See facts.h and wire.h. */
#include "nvml/facts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nvml/wire.h"

void nvml_facts_release(struct nvml_facts *facts)
{
    free(facts->memory);
    *facts = (struct nvml_facts){0};
}

int nvml_wire_rest(const struct nvml_wire_head *head, size_t *ret_bytes)
{
    if (head->magic != NVML_WIRE_MAGIC || head->result > 0 || head->n_devices > NVML_DEVICES_MAX ||
        head->n_processes > NVML_PROCESSES_MAX)
        return -EBADMSG;
    *ret_bytes = head->n_devices * sizeof(struct nvml_device) +
                 head->n_processes * sizeof(struct nvml_process);
    return 0;
}

static bool process_is_next(const struct nvml_process *p, const struct nvml_process *before)
{
    return !before || p->device > before->device ||
           (p->device == before->device && p->pid > before->pid);
}

static bool is_sound(struct nvml_facts *facts)
{
    for (size_t i = 0; i < facts->n_devices; i++) {
        struct nvml_device *d = &facts->devices[i];
        d->uuid[sizeof(d->uuid) - 1] = d->bus[sizeof(d->bus) - 1] = '\0';
        d->name[sizeof(d->name) - 1] = '\0';
    }
    for (size_t i = 0; i < facts->n_processes; i++) {
        facts->processes[i].comm[sizeof(facts->processes[i].comm) - 1] = '\0';
        const struct nvml_process *p = &facts->processes[i];
        if (p->device >= facts->n_devices || !process_is_next(p, i ? p - 1 : NULL))
            return false;
    }
    return true;
}

int nvml_facts_read(const struct nvml_wire_head *head, const void *rest, size_t len,
                    struct nvml_facts *ret_facts)
{
    size_t expected;
    if (nvml_wire_rest(head, &expected) < 0 || head->result != 0 || len != expected)
        return -EBADMSG;
    struct nvml_facts facts = {
        .n_devices = head->n_devices,
        .n_processes = head->n_processes,
        .devices_left_out = head->devices_left_out,
        .processes_left_out = head->processes_left_out,
        .cost_ns = head->cost_ns,
        .memory = malloc(len + 1),
    };
    if (!facts.memory)
        return -ENOMEM;
    if (len > 0)
        memcpy(facts.memory, rest, len);
    facts.devices = facts.memory;
    facts.processes = (struct nvml_process *)(facts.devices + facts.n_devices);
    memcpy(facts.driver, head->driver, sizeof(facts.driver));
    facts.driver[sizeof(facts.driver) - 1] = '\0';
    if (!is_sound(&facts)) {
        nvml_facts_release(&facts);
        return -EBADMSG;
    }
    *ret_facts = facts;
    return 0;
}
