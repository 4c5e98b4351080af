/* timing.c: see timing.h. */
#include "standin/timing.h"

#include <stdlib.h>
#include <string.h>

enum { LATE_MAX = 4096 };

static atomic_ullong virtual_ns;
static struct copy late[LATE_MAX];
static size_t late_count; /* under the lock */

__attribute__((visibility("default"))) unsigned long long standin_time_ns(void);
unsigned long long standin_time_ns(void)
{
    return atomic_load(&virtual_ns);
}

static void take(uint64_t fixed, uint64_t bytes, uint64_t rate)
{
    atomic_fetch_add(&virtual_ns, fixed + bytes / rate);
}

/* Needs the lock. */
static bool pinned(uint64_t address)
{
    struct block *b = memory_at(address);
    return b && !memory_is_device(b);
}

void timing_copy(const struct copy *c, bool dst_device, bool src_device)
{
    if (dst_device == src_device)
        return;
    state_lock();
    bool fast = pinned(dst_device ? c->src : c->dst);
    state_unlock();
    take(fast ? 9000 : 16000, c->size, fast ? TIMING_PINNED_RATE : TIMING_PAGEABLE_RATE);
}

void timing_register(uint64_t bytes)
{
    take(60000, bytes, TIMING_REGISTER_RATE);
}

void timing_unregister(uint64_t bytes)
{
    take(40000, bytes, TIMING_REGISTER_RATE);
}

bool timing_moves(void)
{
    static int moves = -1;
    const char *text = moves < 0 ? getenv("MEMOIR_STANDIN_MOVE") : NULL;
    if (moves < 0)
        moves = !text || strcmp(text, "0") != 0;
    return moves;
}

bool timing_late(const struct copy *c)
{
    static int wanted = -1;
    if (wanted < 0)
        wanted = getenv("MEMOIR_STANDIN_LATE") != NULL;
    if (!wanted)
        return false;
    state_lock();
    bool put_off = late_count < LATE_MAX && (pinned(c->src) || pinned(c->dst));
    if (put_off)
        late[late_count++] = *c;
    state_unlock();
    return put_off;
}

void timing_flush(void)
{
    state_lock();
    for (size_t i = 0; i < late_count; i++)
        memmove((void *)late[i].dst, (const void *)late[i].src, late[i].size);
    late_count = 0;
    state_unlock();
}
