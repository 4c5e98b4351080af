/* quarantine.c: see quarantine.h. */
#include "malloc/quarantine.h"

#include "malloc/harden.h"
#include "malloc/os.h"
#include "malloc/settings.h"

struct held {
    void *start;
    size_t bytes;
};

static struct held *ring; /* QUARANTINE_BLOCKS */
static uint64_t first, next;
static uint64_t held_bytes;

/* In a child that was forked while somebody was at it: what is half in or half out stays free for good. */
static void begin_anew(struct lock *l)
{
    first = next = held_bytes = 0;
}

struct lock quarantine_lock = {.stale = begin_anew};

size_t quarantine_limit(void)
{
    return (size_t)malloc_settings.quarantine_bytes;
}

/* Still free, still as it was filled? */
static void held_check(const struct held *h, struct hard_block *b)
{
    const char *where = NULL;
    if (hard_find(h->start, false, b) != HARD_NONE)
        hard_report(HARD_UNUSED, h->start, NULL, NULL);
    if (hard_state(b) != HARD_FREED)
        hard_report(HARD_RECORD, h->start, b, b->record);
    if (!hard_filled(b, &where))
        hard_report(HARD_AFTER, h->start, b, where);
}

static void release_oldest(struct held *ret)
{
    *ret = ring[first++ % QUARANTINE_BLOCKS];
    held_bytes -= ret->bytes;
}

/* What leaves is looked at and freed without the lock: both take their time, and a report ends in foreign code. */
void quarantine_add(void *start, size_t bytes)
{
    struct held new = {start, bytes}, old;
    lock_take(&quarantine_lock);
    if (!ring)
        ring = os_map(sizeof(*ring) * QUARANTINE_BLOCKS, 1);
    if (ring) {
        if (next - first == QUARANTINE_BLOCKS)
            release_oldest(&old);
        else
            old.start = NULL;
        ring[next++ % QUARANTINE_BLOCKS] = new;
        held_bytes += bytes;
    } else {
        old = new;
    }
    for (;;) {
        bool over = !old.start && held_bytes > quarantine_limit() && next > first;
        if (over)
            release_oldest(&old);
        lock_drop(&quarantine_lock);
        if (!old.start)
            return;
        struct hard_block b;
        held_check(&old, &b);
        hard_release(&b);
        old.start = NULL;
        lock_take(&quarantine_lock);
    }
}

void quarantine_check(void)
{
    struct hard_block b;
    lock_take(&quarantine_lock);
    for (uint64_t i = first; i < next; i++)
        held_check(&ring[i % QUARANTINE_BLOCKS], &b);
    lock_drop(&quarantine_lock);
}

struct quarantine_counts quarantine_counts_try(void)
{
    struct quarantine_counts counts = {0, 0};
    if (lock_try(&quarantine_lock)) {
        counts = (struct quarantine_counts){next - first, held_bytes};
        lock_drop(&quarantine_lock);
    }
    return counts;
}
