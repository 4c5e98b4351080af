/* gone.c: see gone.h. */
#include "malloc/gone.h"

#include "base/atomic.h"

static struct gone ring[GONE_BLOCKS];
static uint32_t next;
static uint32_t busy; /* somebody writes or reads */

static bool enter(void)
{
    uint32_t none = 0;
    return cas_acquire(&busy, &none, 1);
}

void gone_add(const struct gone *g)
{
    if (!enter())
        return;
    ring[next++ % GONE_BLOCKS] = *g;
    store_release(&busy, 0);
}

/* The latest comes first: an address is used again and again. */
bool gone_find(const void *start, struct gone *ret)
{
    bool found = false;
    if (!enter())
        return false;
    for (uint32_t i = 1; i <= GONE_BLOCKS && !found; i++) {
        const struct gone *g = &ring[(next - i) % GONE_BLOCKS];
        found = g->start && g->start == start;
        if (found)
            *ret = *g;
    }
    store_release(&busy, 0);
    return found;
}
