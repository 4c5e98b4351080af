/* strays.c: see strays.h. */
#include "malloc/strays.h"

struct slab_list strays_pick(void **list)
{
    const struct slab *s = slab_of(*list);
    struct slab_list picked = {.first = *list, .last = *list, .n = 1};
    void *block = *(void **)*list, **left = list;
    for (void *next; block; block = next) {
        next = *(void **)block;
        if (slab_of(block) == s) {
            *(void **)picked.last = block;
            picked.last = block;
            picked.n++;
        } else {
            *left = block;
            left = (void **)block;
        }
    }
    *left = NULL;
    *(void **)picked.last = NULL;
    return picked;
}
