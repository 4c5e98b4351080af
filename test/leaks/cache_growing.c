/* A cache that never forgets, with a new key in every step. */
#include "truth.h"

enum { BUCKETS = 61 };
struct item {
    struct item *next;
    uint64_t key;
    char value[100];
};
static struct item *buckets[BUCKETS];

static void step(int number)
{
    uint64_t key = (uint64_t)number * 7919;
    struct item *item = CALLOC(1, sizeof(struct item)); /* LEAK reachable */
    item->key = key;
    item->next = buckets[key % BUCKETS];
    buckets[key % BUCKETS] = item;
}

TRUTH_MAIN(step)
