/* What the operating system did to host memory of a traced process.
 *
 * The kernel counts page faults by granules of 2 MiB. They are told when a range is copied for the first time, so that its
 * history says how many came before, and else once in a while. */
#include <string.h>

#include <memoir/memoir.h>

#include "base/clock.h"
#include "observe/kernel.h"
#include "observe/observed_internal.h"

enum {
    GRANULES = sizeof((struct observed){0}.granules) / sizeof(struct observed_granule),
    GRANULES_LOOKED_AT = 512, /* of one range: 1 GiB */
    HOST_SEEN = sizeof((struct observed){0}.host_seen) / sizeof(uint64_t),
};

static void faults_tell(struct observed *o, uint64_t address, uint64_t n, uint64_t time_ns)
{
    struct trace_event e = {
        .time_ns = time_ns,
        .address = address,
        .size = n,
        .pid = o->pid,
        .kind = TRACE_SYSTEM,
        .device = -1,
        .detail = TRACE_SYSTEM_FAULT,
    };
    observed_tell(o, &e);
}

/* What is new of a granule. Full, the table forgets: a granule that comes back is told from where it stands. */
static uint64_t granule_new(struct observed *o, uint64_t granule, uint64_t count)
{
    struct observed_granule *g = &o->granules[granule * UINT64_C(0x9e3779b97f4a7c15) >> 52];
    uint64_t told = g->granule == granule ? g->told : 0;
    if (g->granule != granule && g->granule != 0)
        told = count; /* another granule was here: nothing is told twice */
    *g = (struct observed_granule){granule, count};
    return count > told ? count - told : 0;
}

void observed_faults_of(struct observed *o, uint64_t address, uint64_t size, uint64_t time_ns)
{
    uint64_t *seen = &o->host_seen[(address >> 12 ^ address >> 22) % HOST_SEEN];
    if (*seen == address || address == 0)
        return;
    *seen = address;
    uint64_t first = address >> WIRE_GRANULE_SHIFT;
    uint64_t last = (address + (size ? size - 1 : 0)) >> WIRE_GRANULE_SHIFT;
    for (uint64_t g = first; g <= last && g - first < GRANULES_LOOKED_AT; g++) {
        uint64_t n =
            granule_new(o, g, kernel_faults_at(o->options.kernel, o->pid, o->generation, g));
        uint64_t start = g << WIRE_GRANULE_SHIFT;
        if (n)
            faults_tell(o, start > address ? start : address, n, time_ns);
    }
}

void observed_faults_tell(struct observed *o, const struct wire_granule_key *key, uint64_t count)
{
    if (key->pid != (uint32_t)o->pid || key->generation != o->generation)
        return;
    uint64_t n = granule_new(o, key->granule, count);
    if (n)
        faults_tell(o, key->granule << WIRE_GRANULE_SHIFT, n, clock_monotonic_ns());
}

bool observed_faults_new(struct observed *o, const struct wire_process *process)
{
    bool new = process->faults != o->faults;
    o->faults = process->faults;
    return new;
}

void observed_system_event(struct observed *o, const struct wire_event *w)
{
    struct trace_event e = {
        .time_ns = w->time_ns,
        .address = w->address,
        .size = w->size,
        .pid = o->pid,
        .tid = (int32_t)w->tid,
        .kind = w->kind,
        .device = -1,
        .flags = TRACE_FLAG_SYSTEM,
        .space = MEMOIR_SPACE_MAPPED,
        .detail = w->kind == TRACE_SYSTEM ? w->flags : 0,
    };
    if (w->kind == TRACE_SYSTEM)
        e.flags = 0;
    observed_tell(o, &e);
}
