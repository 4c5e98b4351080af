/* What the driver counts for a traced process beyond its blocks: the CUDA context, and what was
 * allocated before tracing began.
 *
 * NVML is asked when the process is seen first and when it makes a context. From its answer the
 * memory of known blocks is subtracted; the rest is the baseline of the process on that device.
 * An answer takes some milliseconds: if blocks came or went meanwhile the figure is an estimate,
 * and NVML is asked again after a while. Each answer costs the program something, since the
 * driver holds a lock for it: the pauses double. */
#include <stdio.h>
#include <string.h>

#include <memoir/memoir.h>

#include "base/clock.h"
#include "nvml/owners.h"
#include "observe/device_facts.h"
#include "observe/observed_internal.h"

enum { TRIES_MAX = 8 }; /* for one context: the last pause has two minutes */

/* A context is made before the driver counts it: an answer without the process comes too early. */
enum { EARLY_NS = 100 * 1000 * 1000 };

struct taken {
    int32_t ordinal;
    uint64_t large, small, pool;
};

/* As the driver rounds them: see nvml/owners.h. */
static void block_taken(void *context, struct live_block *b)
{
    struct taken *t = context;
    int32_t device = b->device < 0 ? 0 : b->device;
    if (device != t->ordinal || b->space != MEMOIR_SPACE_DRAM || b->class == WIRE_MAPPING ||
        b->class == WIRE_GRAPH || b->flags & WIRE_FUNCTION_SHARED)
        return;
    if (b->flags & WIRE_FUNCTION_POOL)
        t->pool += b->size;
    else if (b->size > OWNERS_SMALL_MAX)
        t->large += (b->size + OWNERS_GRANULE - 1) / OWNERS_GRANULE * OWNERS_GRANULE;
    else
        t->small += (b->size + OWNERS_SMALL_ALIGN - 1) / OWNERS_SMALL_ALIGN * OWNERS_SMALL_ALIGN;
}

static uint64_t taken_on(struct observed *o, int32_t ordinal)
{
    struct taken t = {.ordinal = ordinal};
    live_each(&o->live, block_taken, &t);
    return t.large + (t.small + OWNERS_GRANULE - 1) / OWNERS_GRANULE * OWNERS_GRANULE +
           (t.pool + OWNERS_POOL_GRANULE - 1) / OWNERS_POOL_GRANULE * OWNERS_POOL_GRANULE;
}

static struct observed_baseline *baseline_of(struct observed *o, int32_t ordinal)
{
    for (size_t i = 0; i < o->n_baselines; i++)
        if (o->baselines[i].ordinal == ordinal)
            return &o->baselines[i];
    return NULL;
}

void observed_use_wanted(struct observed *o)
{
    o->use_due = true;
    o->use_tries = 0;
    o->use_next_ns = 0;
}

bool observed_use_due(const struct observed *o)
{
    return o->use_due && clock_monotonic_ns() >= o->use_next_ns;
}

void observed_use_asked(struct observed *o)
{
    o->use_due = false;
    o->use_changes = o->changes;
}

void observed_use_told(struct observed *o, const struct device_answer *answer)
{
    bool quiet = o->changes == o->use_changes, again = answer->n_uses == 0;
    for (size_t i = 0; i < answer->n_uses; i++) {
        const struct device_use *use = &answer->uses[i];
        struct observed_baseline *b = baseline_of(o, use->ordinal);
        if (b && !b->estimate)
            continue;
        if (!b && o->n_baselines < OBSERVED_BASELINES_MAX)
            b = &o->baselines[o->n_baselines++];
        if (!b)
            continue;
        uint64_t taken = taken_on(o, use->ordinal);
        *b = (struct observed_baseline){
            .ordinal = use->ordinal,
            .index = use->index,
            .bytes = use->used_bytes > taken ? use->used_bytes - taken : 0,
            .estimate = !quiet,
        };
        again |= b->estimate;
    }
    o->use_due = again && ++o->use_tries < TRIES_MAX;
    uint64_t pause = answer->n_uses == 0 ? EARLY_NS : NS_PER_S;
    o->use_next_ns = clock_monotonic_ns() + (pause << o->use_tries);
}

void observed_use_ended(struct observed *o, int32_t ordinal)
{
    struct observed_baseline *b = baseline_of(o, ordinal);
    if (b)
        *b = o->baselines[--o->n_baselines];
}

size_t observed_baselines(const struct observed *o, const struct observed_baseline **ret_baselines)
{
    *ret_baselines = o->baselines;
    return o->n_baselines;
}
