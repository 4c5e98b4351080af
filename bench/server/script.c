/* See script.h. */
#include "script.h"

#include <stdlib.h>
#include <string.h>

#include "../book/harness.h"

static uint64_t *ids_new(uint64_t n)
{
    uint64_t *ids = calloc(n, sizeof(*ids));
    if (!ids)
        bench_fail("out of memory");
    return ids;
}

static uint64_t *ids_shuffled(const uint64_t *from, uint64_t n, uint64_t *random)
{
    uint64_t *ids = ids_new(n);
    memcpy(ids, from, n * sizeof(*ids));
    for (uint64_t i = n - 1; i > 0; i--) {
        uint64_t other = bench_random(random) % (i + 1), id = ids[i];
        ids[i] = ids[other];
        ids[other] = id;
    }
    return ids;
}

void script_init(struct script *script, uint64_t live)
{
    uint64_t random = 4711, *sets[2];
    if (live < 1)
        bench_fail("a stream needs a buffer");
    *script = (struct script){.live = live};
    for (int set = 0; set < 2; set++) {
        sets[set] = ids_new(live);
        for (uint64_t i = 0; i < live; i++) {
            sets[set][i] = bench_random(&random);
            wire_totals_add(&script->half[set].before, sets[set][i]);
        }
    }
    for (int set = 0; set < 2; set++) {
        script->half[set].goes = ids_shuffled(sets[set], live, &random);
        script->half[set].comes = ids_shuffled(sets[!set], live, &random);
    }
    free(sets[0]);
    free(sets[1]);
}

void script_release(struct script *script)
{
    for (int set = 0; set < 2; set++) {
        free(script->half[set].goes);
        free(script->half[set].comes);
    }
    *script = (struct script){0};
}

uint64_t script_halves(const struct script *script, uint64_t reports)
{
    return reports / (2 * script->live) | 1;
}
