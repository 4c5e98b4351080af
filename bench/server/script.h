/* script.h: which buffers go and come in a stream of reports.
 *
 * Two sets of `live` random ids. Half 0 leads from the first set to the second and half 1 back: over and over a
 * random one goes and a new one comes. So few prepared messages make as long a stream as we like, and every
 * stream of an odd number of halves ends with other totals than it began with: a server that applied less than
 * all of it cannot answer right. */
#pragma once

#include <stdint.h>

#include "wire.h"

struct script {
    uint64_t live;
    struct {
        uint64_t *goes, *comes; /* `live` ids each, in the order of use */
        struct wire_totals before;
    } half[2];
};

void script_init(struct script *script, uint64_t live);
void script_release(struct script *script);

/* Halves for at least so many reports; odd. */
uint64_t script_halves(const struct script *script, uint64_t reports);
