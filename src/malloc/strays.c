/* strays.c: see strays.h. */
#include "malloc/strays.h"

struct slab_list strays_take(struct strays *strays)
{
    struct slab_list all = {.first = strays->first, .last = strays->first, .n = 1};
    for (void *next; (next = *(void **)all.last) != NULL; all.n++)
        all.last = next;
    *strays = (struct strays){0};
    fence_signal(); /* they are handed over only then */
    return all;
}
